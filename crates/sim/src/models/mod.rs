//! Scenarios of the other models, and of consumers.

pub(crate) mod consumers;
pub(crate) mod documents;
pub(crate) mod series;
pub(crate) mod tables;
