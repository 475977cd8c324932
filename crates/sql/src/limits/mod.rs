//! Bounds of memory, time and temporary files.

pub(crate) mod budget;
pub(crate) mod interrupt;
pub(crate) mod quota;
pub(crate) mod temp_files;
