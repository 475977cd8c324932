//! The sessions of a server as seen by one session: `pg_stat_activity`, cancelling and ending sessions by
//! number.
//!
//! This crate has no list of sessions: the server passes [`SessionRegistry`] to each of them. Without it,
//! `pg_stat_activity` is empty.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Result, SqlError, state};
use crate::expr::Context;

/// Interval at which `pg_terminate_backend` checks whether the session has ended.
const LOOK: Duration = Duration::from_millis(10);

/// The sessions of a server. See [`crate::Session::set_peers`].
pub trait SessionRegistry: Send + Sync {
    /// The state of all sessions, in the order of their numbers.
    fn activity(&self) -> Vec<SessionInfo>;

    /// True while a session with this number exists.
    fn is_there(&self, number: i32) -> bool;

    /// Cancels the statement that a session runs; false when there is no such session.
    ///
    /// # Errors
    /// 42501.
    fn cancel(&self, number: i32) -> Result<bool>;

    /// Ends a session; false when there is no such session.
    ///
    /// # Errors
    /// 42501.
    fn terminate(&self, number: i32) -> Result<bool>;
}

/// A session and its state. Times are microseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionInfo {
    /// The number that `pg_backend_pid()` returns.
    pub number: i32,
    /// The user name that the client gave.
    pub user: String,
    /// Name of the database.
    pub database: String,
    /// The client's `application_name`.
    pub application: String,
    /// The remaining columns; `None` if the caller may not see them.
    pub doing: Option<SessionState>,
}

/// The part of a session's state that needs rights to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionState {
    /// Address and port of the client.
    pub client: Option<(String, u16)>,
    /// When the session began.
    pub since: i64,
    /// When its transaction began, if one is open.
    pub transaction_since: Option<i64>,
    /// When the newest statement began.
    pub query_since: Option<i64>,
    /// When `state` changed last.
    pub state_since: i64,
    /// As PostgreSQL calls it: `active`, `idle`, `idle in transaction`.
    pub state: &'static str,
    /// True while it waits for a row that another transaction holds.
    pub waits: bool,
    /// The text of the newest statement.
    pub query: Arc<str>,
}

/// The peers of a session, if it was given any.
#[derive(Clone, Default)]
pub(crate) struct Known(pub(crate) Option<Arc<dyn SessionRegistry>>);

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Known({})", self.0.is_some())
    }
}

impl Known {
    /// The state of all sessions.
    pub(crate) fn activity(&self) -> Vec<SessionInfo> {
        self.0.as_ref().map_or_else(Vec::new, |peers| peers.activity())
    }

    /// `pg_cancel_backend`.
    pub(crate) fn cancel(&self, number: i64, cx: &Context<'_>) -> Result<bool> {
        let found = self.asked(number).map_or(Ok(false), |(peers, number)| peers.cancel(number))?;
        // The cancelled session may be this one.
        cx.interrupt.check_now(cx.env)?;
        Ok(found)
    }

    /// `pg_terminate_backend`; with 0 milliseconds it does not wait for the session to end.
    pub(crate) fn terminate(&self, number: i64, millis: i64, cx: &Context<'_>) -> Result<bool> {
        if millis < 0 {
            let message = "\"timeout\" must not be negative";
            return Err(SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, message));
        }
        let Some((peers, number)) = self.asked(number) else { return Ok(false) };
        let found = peers.terminate(number)?;
        cx.interrupt.check_now(cx.env)?;
        if !found || millis == 0 {
            return Ok(found);
        }
        let begun = cx.env.clock.monotonic_nanos();
        let limit = millis.unsigned_abs().saturating_mul(1_000_000);
        while peers.is_there(number) {
            if cx.env.clock.monotonic_nanos().saturating_sub(begun) >= limit {
                return Ok(false);
            }
            cx.interrupt.check_now(cx.env)?;
            cx.env.clock.sleep(LOOK);
        }
        Ok(true)
    }

    fn asked(&self, number: i64) -> Option<(&Arc<dyn SessionRegistry>, i32)> {
        Some((self.0.as_ref()?, i32::try_from(number).ok()?))
    }
}
