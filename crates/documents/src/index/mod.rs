//! Keys and entries of indexes.

pub(crate) mod entry;
pub(crate) mod order;
pub(crate) mod verify;
pub(crate) mod wildcard;
