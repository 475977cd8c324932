//! Reading a snapshot: series by matchers, their samples, and the reads that a transaction notes.

pub(crate) mod reads;
pub(crate) mod select;
