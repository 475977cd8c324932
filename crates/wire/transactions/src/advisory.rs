//! The limit of advisory locks that the SQL statements of one caller's transactions share.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use ropewalk_auth::Caller;
use ropewalk_sql::AdvisoryLimit;

/// Callers from which on those without locks are forgotten.
const CALLERS: usize = 1_024;

/// The limits by caller: an extension of the database handle, which all protocols share.
#[derive(Debug, Default)]
pub(crate) struct AdvisoryLimits(Mutex<HashMap<String, AdvisoryLimit>>);

impl AdvisoryLimits {
    /// The limit of a caller: `most` locks, unless the caller has one already.
    pub(crate) fn of(&self, caller: &Caller, most: usize) -> AdvisoryLimit {
        // Each change of the map is a single call, so a panic leaves it consistent.
        let mut limits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if limits.len() >= CALLERS {
            limits.retain(|_, limit| limit.is_used());
        }
        limits.entry(caller.principal()).or_insert_with(|| AdvisoryLimit::new(most)).clone()
    }
}
