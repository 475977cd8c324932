//! Ropewalk's documents: BSON in collections, and MongoDB's language to ask for them and change them.
//!
//! Read [`lang`] for the language: pure functions of documents, without storage.
#![deny(missing_docs)]

pub mod lang;
