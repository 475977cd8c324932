//! Merging runs, and dropping versions that no snapshot can read.

pub(crate) mod gc;
pub(crate) mod merge;
