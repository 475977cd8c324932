//! Types: names, text and binary formats, dates, intervals, zones.

pub(crate) mod binary_format;
pub(crate) mod datetime;
pub(crate) mod executor;
pub(crate) mod interval;
pub(crate) mod json;
pub(crate) mod json_bson;
pub(crate) mod names;
pub(crate) mod outcome;
pub(crate) mod settings;
pub(crate) mod text_format;
pub(crate) mod zone;
