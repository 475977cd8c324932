//! Idle SQL sessions, which requests reuse: a new session would have no plans.
//!
//! ```text
//! transaction ─▶ take: an idle session of the same caller, else a new one ─▶ … ─▶ end: reset, idle again
//! ```
//!
//! Invariants
//! 1. A session serves one caller: plans depend on the user's name, and the limit of advisory locks is that of
//!    the caller.
//! 2. [`Session::reset`] undoes everything that a transaction may have left, before the session is idle.
//! 3. Each transaction sets the rights of its caller before it uses the session.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ropewalk::{Database, Durability, Isolation};
use ropewalk_auth::Caller;
use ropewalk_sql::{Session, Settings};

use crate::advisory::AdvisoryLimits;

/// Most idle sessions. A transaction in one request uses a session only while a thread runs it.
const IDLE_MAX: usize = 32;
/// Memory of one statement.
const STATEMENT_BYTES_MAX: usize = 64 << 20;

/// The idle sessions of a server; the last one is the newest.
#[derive(Default)]
pub struct Sessions(Mutex<VecDeque<Idle>>);

struct Idle {
    caller: Caller,
    session: Session,
    /// The settings at the begin of each transaction.
    settings: Arc<Settings>,
    /// Its advisory locks count for its caller.
    is_limited: bool,
}

impl Idle {
    fn new(db: &Database, caller: &Caller, isolation: Isolation, durability: Durability) -> Self {
        let settings = Settings {
            user: caller.name().to_owned(),
            isolation,
            durability,
            memory_bytes_max: STATEMENT_BYTES_MAX,
            ..Settings::default()
        };
        let session = Session::with_settings(db.clone(), settings);
        let settings = session.settings_held();
        Self { caller: caller.clone(), session, settings, is_limited: false }
    }
}

impl Sessions {
    fn idle(&self) -> MutexGuard<'_, VecDeque<Idle>> {
        // Each change is a single call, so a panic leaves the list consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session of the caller.
    pub fn take(
        self: &Arc<Self>,
        db: &Database,
        caller: &Caller,
        isolation: Isolation,
        durability: Durability,
    ) -> UsedSession {
        let fits = |idle: &Idle| {
            let own = &idle.settings;
            (own.isolation, own.durability) == (isolation, durability) && idle.caller.is_same(caller)
        };
        let found = {
            let mut idle = self.idle();
            let place = idle.iter().rposition(fits);
            place.and_then(|place| idle.remove(place))
        };
        let used = found.unwrap_or_else(|| Idle::new(db, caller, isolation, durability));
        UsedSession { used: Some(used), sessions: self.clone() }
    }

    fn put(&self, session: Idle) {
        let mut idle = self.idle();
        idle.push_back(session);
        let oldest = if idle.len() > IDLE_MAX { idle.pop_front() } else { None };
        drop(idle);
        // Its plans are dropped after the lock is released.
        drop(oldest);
    }
}

/// A session that a transaction uses. It is idle again when this is dropped.
pub struct UsedSession {
    used: Option<Idle>,
    sessions: Arc<Sessions>,
}

impl UsedSession {
    /// Counts the advisory locks of the session with those of all sessions of the caller: `most` together.
    pub(crate) fn limit_locks(&mut self, most: usize) {
        let Some(Idle { caller, session, is_limited, .. }) = &mut self.used else { return };
        if !*is_limited {
            *is_limited = true;
            let limits = session.database().extension::<AdvisoryLimits>();
            session.limit_advisory_locks(limits.of(caller, most));
        }
    }
}

impl Deref for UsedSession {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.used.as_ref().expect("the session is taken out when this is dropped").session
    }
}

impl DerefMut for UsedSession {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.used.as_mut().expect("the session is taken out when this is dropped").session
    }
}

impl Drop for UsedSession {
    fn drop(&mut self) {
        // A session in which a statement panicked is not used again.
        if let Some(mut used) = self.used.take().filter(|_| !std::thread::panicking()) {
            used.session.reset(used.settings.clone());
            self.sessions.put(used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_reused_by_settings_and_bounded() {
        let (db, caller) = (Database::in_memory().unwrap(), Caller::everybody());
        let sessions = Arc::new(Sessions::default());
        let take = |isolation| sessions.take(&db, &caller, isolation, Durability::Sync);
        let count = || sessions.idle().len();
        for _ in 0..3 {
            let mut used = take(Isolation::Serializable);
            assert_eq!(count(), 0);
            used.begin_implicit();
            used.execute("SET application_name = 'a'", &[]).unwrap();
            drop(used.submit_commit().unwrap());
            assert_eq!(used.settings().application_name, "a");
            drop(used);
            assert_eq!(count(), 1);
        }
        let (same, other) = (take(Isolation::Serializable), take(Isolation::Snapshot));
        assert_eq!(same.settings().application_name, "");
        assert_eq!(other.settings().isolation, Isolation::Snapshot);
        drop((same, other));
        assert_eq!(count(), 2);
        let many: Vec<_> = (0..2 * IDLE_MAX).map(|_| take(Isolation::Serializable)).collect();
        assert_eq!(count(), 1);
        drop(many);
        assert_eq!(count(), IDLE_MAX);
    }

    #[test]
    fn session_of_a_panic_is_not_reused() {
        let (db, caller) = (Database::in_memory().unwrap(), Caller::everybody());
        let sessions = Arc::new(Sessions::default());
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _used = sessions.take(&db, &caller, Isolation::Serializable, Durability::Sync);
            panic!("in a statement");
        }));
        assert!(panicked.is_err());
        assert_eq!(sessions.idle().len(), 0);
    }
}
