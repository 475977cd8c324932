//! A session that serves unrelated requests of one user in turn.
//!
//! ```text
//! request ─▶ transaction: prepare_cached ─▶ run ─▶ retain ─▶ reset ─▶ next request
//! ```
//! A plan belongs to its session, so a new session for each request would plan every statement again. Between
//! two requests the session forgets everything but its plans.

use std::sync::Arc;

use ropewalk::Seq;

use crate::error::Result;
use crate::limits::interrupt::Canceller;
use crate::session::Session;
use crate::session::prepared::Prepared;
use crate::types::settings::Settings;

/// Maximum number of plans that remain for later requests.
const RETAINED_MAX: usize = 128;
/// Longest text whose plan remains.
const RETAINED_BYTES_MAX: usize = 1 << 10;

impl Session {
    /// As [`Session::prepare`], with the plan that [`Session::retain`] cached, if the definitions are
    /// unchanged. The user needs the rights of the statement now.
    ///
    /// # Errors
    /// As [`Session::prepare`].
    pub fn prepare_cached(&mut self, sql: &str) -> Result<Prepared> {
        self.retained(sql).unwrap_or_else(|| self.prepare(sql))
    }

    /// The plan of [`Session::prepare_cached`] if one is cached for the text, which then is a single statement.
    pub fn retained(&mut self, sql: &str) -> Option<Result<Prepared>> {
        // A new table may have the name of another one that comes later in `search_path`.
        self.cached.drop_older_than(self.db.tables().newest_definition());
        let mut prepared = self.cached.take(sql)?;
        let may = self.acting.check(prepared.needs());
        if let Err(error) = self.failing(may) {
            return Some(Err(error));
        }
        prepared.stand_in(self.standing());
        Some(self.renew(&mut prepared).map(|()| prepared))
    }

    /// Caches the plan of a text for [`Session::prepare_cached`], within the session's transaction.
    ///
    /// Only brief statements by key remain, since other plans depend on more than definitions, and only texts
    /// with parameters: a text that contains its values seldom comes again.
    pub fn retain(&mut self, sql: &str, prepared: Prepared) {
        let Some(open) = &self.open else { return };
        let at = open.transaction.snapshot_seq();
        self.retain_at(sql, prepared, at);
    }

    /// As [`Session::retain`], for a plan that was made outside of a transaction when `at`, or a later commit,
    /// was the newest.
    pub fn retain_at(&mut self, sql: &str, mut prepared: Prepared, at: Seq) {
        let is_short = sql.len() <= RETAINED_BYTES_MAX && sql.contains('$');
        let is_fit = is_short && prepared.is_of_keys() && prepared.is_brief();
        if is_fit && (prepared.is_reserved() || prepared.reserve(sql).is_ok()) {
            self.cached.put(sql, prepared, RETAINED_MAX, at);
        }
    }

    /// Prepares the session for another request of the same user.
    ///
    /// Rolls its transaction back, and resets everything that statements can leave, except cached plans:
    /// settings, prepared statements, cursors, advisory locks, numbers drawn from sequences, cancel requests.
    /// Rights are those of the next [`Session::act_for`]. A session for another user must be a new one:
    /// `search_path` contains the user's name.
    pub fn reset(&mut self, settings: Arc<Settings>) {
        debug_assert_eq!(self.settings.user, settings.user, "a session serves one user");
        drop(self.end());
        self.forget(settings);
        // Holders of the earlier one cancel the earlier request.
        self.canceller = Canceller::default();
        self.submits = false;
        self.pending = None;
        self.waits = None;
        self.resuming = None;
        self.latest_read_seq = Seq::ZERO;
    }

    /// Resets everything that outlives a transaction, except cached plans.
    pub(crate) fn forget(&mut self, settings: Arc<Settings>) {
        self.named.clear();
        self.settings = settings;
        self.announcements.leave();
        self.given.forget();
        self.cursors.close_all();
        self.advisory.release_all();
    }
}

#[cfg(test)]
mod tests {
    use ropewalk::Database;

    use super::*;

    #[test]
    fn only_brief_statements_by_key_with_parameters_are_retained() {
        let mut s = Session::new(Database::in_memory().unwrap());
        s.execute_all("CREATE TABLE t (id int PRIMARY KEY, v int); CREATE SEQUENCE q").unwrap();
        let settings = s.settings_held();
        let mut is_retained = |sql: &str| {
            s.begin_implicit();
            let prepared = s.prepare_cached(sql).unwrap();
            s.retain(sql, prepared);
            let is_retained = s.cached.take(sql).is_some();
            s.reset(settings.clone());
            is_retained
        };
        for sql in [
            "SELECT v FROM t WHERE id = $1",
            "INSERT INTO t VALUES ($1, 1)",
            "UPDATE t SET v = $1 WHERE id = $2",
            "DELETE FROM t WHERE id = $1",
        ] {
            assert!(is_retained(sql), "{sql}");
        }
        for sql in [
            "SELECT v FROM t WHERE id = 1",
            "SELECT v FROM t WHERE v = $1",
            "SELECT nextval('q'), $1::int",
            "SELECT pg_try_advisory_lock($1)",
            "INSERT INTO events (type) VALUES ($1)",
            "SELECT set_config('application_name', $1, true)",
        ] {
            assert!(!is_retained(sql), "{sql}");
        }
        let long = format!("SELECT v FROM t WHERE id = $1{}", " ".repeat(RETAINED_BYTES_MAX));
        assert!(!is_retained(&long));
    }
}
