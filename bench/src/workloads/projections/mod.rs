//! Catch-up and rebuild of projections.

pub mod plan;
