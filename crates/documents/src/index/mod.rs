//! Keys of documents and entries of indexes, encoded and checked.
//!
//! A complete index has exactly the entries of the documents; a capped collection's order has each document
//! once.

pub(crate) mod entry;
pub(crate) mod order;
pub(crate) mod verify;
pub(crate) mod wildcard;
