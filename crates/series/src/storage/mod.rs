//! Stored forms: keys, chunks in runs, bounds of partitions, sections of commit records; and reading them with memory.

pub(crate) mod chunk_keys;
pub(crate) mod flush;
pub(crate) mod keys;
pub(crate) mod partition_bounds;
pub(crate) mod read;
pub(crate) mod section;
