//! Batches, metadata, options and stored histograms, and the packing of integers that all of them use.

pub(crate) mod batch;
pub(crate) mod duplicate_rules;
pub(crate) mod histogram;
pub(crate) mod metadata;
pub(crate) mod pack;
pub(crate) mod types;
