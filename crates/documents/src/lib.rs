//! Ropewalk's documents: BSON in collections, and MongoDB's language to ask for them and change them.
//!
//! Read [`lang`] for the language: pure functions of documents, without storage.
#![deny(missing_docs)]

#[allow(dead_code)] // filters and updates are next
pub mod lang;
