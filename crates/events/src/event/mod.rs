//! Events, queries and options, their bytes, and their typed forms.

pub(crate) mod batch;
pub(crate) mod codec;
pub(crate) mod typed;
pub(crate) mod types;
