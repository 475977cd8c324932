//! Behaviour of documents.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)] // helpers outside of test functions

#[path = "../../../promql/tests/it/allocations.rs"]
mod allocations;
mod bombs;
#[path = "../../../promql/tests/it/hostile_texts.rs"]
mod hostile_texts;
mod lang;
mod store;
