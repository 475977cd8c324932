//! Nodes that share one log, all on one machine.

pub mod plan;
