//! Shared parts of the handlers: parameters, bodies, responses, numbers and times.

pub(crate) mod body;
pub(crate) mod number;
pub(crate) mod params;
pub(crate) mod response;
pub(crate) mod time;
