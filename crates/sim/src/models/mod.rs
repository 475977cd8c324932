//! Scenarios of the other models, of all models together, and of consumers.

pub(crate) mod audit;
pub(crate) mod consumers;
pub(crate) mod documents;
pub(crate) mod mixed;
pub(crate) mod series;
pub(crate) mod tables;
