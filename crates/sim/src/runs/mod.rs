//! Restarts and crashes that all scenarios share.

pub(crate) mod crash_everywhere;
pub(crate) mod restarts;
pub(crate) mod states;
