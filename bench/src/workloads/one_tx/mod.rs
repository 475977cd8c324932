//! One transaction over four models, compared with one model, and with an outbox.

pub mod input;
pub mod orders;
pub mod plan;
pub mod rates;
