//! Shared parts of the handlers: parameters, bodies, responses, problems.

pub(crate) mod body;
pub(crate) mod counted;
pub(crate) mod encode;
pub(crate) mod json;
pub(crate) mod params;
pub(crate) mod path;
pub(crate) mod problem;
pub(crate) mod stream;
