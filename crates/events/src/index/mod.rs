//! Events and postings in memory and in runs, and the search of queries in them.

pub(crate) mod memory;
pub(crate) mod postings;
pub(crate) mod search;

#[cfg(test)]
mod tests;
