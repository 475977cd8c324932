//! Rules and alerts: evaluated, stored as series, sent to Alertmanager.

pub(crate) mod alerts;
pub(crate) mod group;
pub(crate) mod notify;
