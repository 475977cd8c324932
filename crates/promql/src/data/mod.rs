//! Labels, matchers, histograms and samples, and the numbers and texts that they consist of.

pub(crate) mod calendar;
pub(crate) mod histogram;
pub(crate) mod kahan;
pub(crate) mod labels;
pub(crate) mod matcher;
pub(crate) mod source;
pub(crate) mod text;
