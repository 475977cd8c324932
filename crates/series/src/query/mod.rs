//! Reading a snapshot: series by matchers, samples merged from chunks and memory, and the reads that a transaction notes.

pub(crate) mod read;
pub(crate) mod reads;
pub(crate) mod select;
