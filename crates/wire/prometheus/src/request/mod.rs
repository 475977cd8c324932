//! Shared parts of the handlers: parameters, bodies, responses and times.

pub(crate) mod body;
pub(crate) mod params;
pub(crate) mod response;
pub(crate) mod time;
