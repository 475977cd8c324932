//! Events, queries and options, their bytes, their typed forms, and the personal data in these.

pub(crate) mod batch;
pub(crate) mod codec;
pub(crate) mod personal;
pub(crate) mod typed;
pub(crate) mod types;
