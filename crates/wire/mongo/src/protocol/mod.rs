//! Messages: frames, compression, fields of commands, lists of replies, errors.

pub(crate) mod args;
pub(crate) mod compress;
pub(crate) mod failure;
pub mod frame;
pub(crate) mod reply;
