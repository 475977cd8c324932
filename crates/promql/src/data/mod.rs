//! Labels, matchers, histograms and samples, and their numbers and strings.

pub(crate) mod calendar;
pub(crate) mod histogram;
pub(crate) mod kahan;
pub(crate) mod labels;
pub(crate) mod matcher;
pub(crate) mod source;
pub(crate) mod text;
