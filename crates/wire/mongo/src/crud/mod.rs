//! Commands on documents, collections and indexes.

pub(crate) mod change_streams;
pub(crate) mod definitions;
pub(crate) mod index_stats;
pub(crate) mod read;
pub(crate) mod rules;
pub(crate) mod views;
pub(crate) mod write;
