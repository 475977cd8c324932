//! The event store under faults: workload, model, faults and restarts.

pub(crate) mod actors;
pub(crate) mod backups;
pub(crate) mod bounds;
pub(crate) mod corruption;
pub(crate) mod faults;
pub(crate) mod generators;
pub(crate) mod oracle;
pub(crate) mod readers;
pub(crate) mod rng;
pub(crate) mod scenario;
pub(crate) mod transactions;
