//! State of a session that planning depends on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::access::cursors::CursorShape;
use crate::access::peers::Known;
use crate::access::rights::Acting;
use crate::expr::advisory::Held;
use crate::expr::sequence_call::Given;
use crate::limits::quota::Shares;
use crate::types::settings::Settings;

/// Session state that planning depends on, apart from the data.
#[derive(Debug, Clone, Default)]
pub(crate) struct Standing {
    pub(crate) settings: Arc<Settings>,
    /// Tables created by the open transaction, which others cannot list yet.
    pub(crate) created: Vec<String>,
    /// Numbers that the session drew from sequences.
    pub(crate) given: Given,
    /// Its cursors.
    pub(crate) cursors: Arc<BTreeMap<String, CursorShape>>,
    /// The advisory locks that the session holds.
    pub(crate) advisory: Held,
    /// The channels that the session listens on.
    pub(crate) heard: Arc<BTreeSet<String>>,
    /// The sessions of the server.
    pub(crate) peers: Known,
    /// The caller and its rights.
    pub(crate) acting: Acting,
    /// The session's memory quotas.
    pub(crate) shares: Shares,
}
