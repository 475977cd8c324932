//! The source of samples, and the texts, times and patterns of a query.

pub(crate) mod calendar;
pub(crate) mod patterns;
pub(crate) mod source;
pub(crate) mod text;
