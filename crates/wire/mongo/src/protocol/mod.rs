//! Messages: frames, compression, fields of commands, errors.

pub(crate) mod args;
pub(crate) mod compress;
pub(crate) mod failure;
pub mod frame;
