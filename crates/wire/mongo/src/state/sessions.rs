//! Sessions: a client's open transaction, and the newest number it used.
//!
//! ```text
//! startTransaction ─▶ Open ─▶ commitTransaction ─▶ Committing ─▶ Committed      numbers rise: a higher one ends what was open,
//!                     ↑  └──▶ abortTransaction, any failure, 60 s ─▶ Aborted      a lower one is refused
//!      a command ─▶ Busy
//! ```
//! A command takes the transaction out while it runs, which may last minutes; others of the transaction await their
//! turn. The lock of a session is held for moments only, so that no thread waits for a command of another client.
//!
//! A session without a transaction has no state here; the results of its retryable writes are in the
//! database.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ropewalk::Transaction;
use ropewalk::documents::lang::{Doc, Value};
use tokio::sync::Notify;

use crate::protocol::args::Args;
use crate::protocol::failure::{Code, Failure, Outcome, TRANSIENT};

/// A session is removed when it was not used for this long, as reported by `hello`.
pub(crate) const SESSION_MINUTES: i32 = 30;
/// Longest life of a transaction, as in MongoDB.
const TRANSACTION_TIME: Duration = Duration::from_secs(60);
/// Most sessions with transactions.
const SESSIONS_MAX: usize = 100_000;

/// A session's id and its user, so that a guessed id gives no access to another user's session.
pub(crate) type SessionId = Vec<u8>;

/// State of the newest transaction.
#[derive(Default)]
pub(crate) enum Phase {
    /// No transaction has this number.
    #[default]
    None,
    /// In progress.
    Open {
        /// Its reads and writes.
        transaction: Box<Transaction>,
        /// Since when.
        since: Instant,
        /// It wrote something.
        wrote: bool,
    },
    /// In progress, and in use by a command, which has the transaction.
    Busy {
        /// Since when.
        since: Instant,
    },
    /// Being made durable; other requests wait until it is.
    Committing(Arc<Notify>),
    /// Committed.
    Committed,
    /// Rolled back.
    Aborted,
}

/// The commands of a transaction run one at a time.
pub(crate) type Turn = tokio::sync::Mutex<()>;

/// One session.
pub(crate) struct State {
    /// The newest number seen.
    pub(crate) number: i64,
    /// The transaction of that number.
    pub(crate) phase: Phase,
    /// Held by the running command of the transaction.
    pub(crate) turn: Arc<Turn>,
    used: Instant,
}

/// All sessions that have, or had, a transaction.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<HashMap<SessionId, Arc<Mutex<State>>>>);

impl Sessions {
    fn all(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Mutex<State>>>> {
        self.0.lock().unwrap_or_else(|held| held.into_inner())
    }

    /// The session, made when it is not there.
    ///
    /// # Errors
    /// `TooManyLogicalSessions`.
    pub(crate) fn enter(&self, id: &SessionId) -> Outcome<Arc<Mutex<State>>> {
        let mut all = self.all();
        if let Some(session) = all.get(id) {
            return Ok(session.clone());
        }
        if all.len() >= SESSIONS_MAX {
            return Err(Failure::new(Code::TooManyLogicalSessions, "too many sessions have transactions"));
        }
        let (phase, turn) = (Phase::None, Arc::default());
        let state = State { number: i64::MIN, phase, turn, used: Instant::now() };
        let session = Arc::new(Mutex::new(state));
        all.insert(id.clone(), session.clone());
        Ok(session)
    }

    /// The session, if it is known.
    pub(crate) fn find(&self, id: &SessionId) -> Option<Arc<Mutex<State>>> {
        self.all().get(id).cloned()
    }

    /// Ends a session with its transaction.
    pub(crate) fn end(&self, id: &SessionId) {
        let ended = self.all().remove(id);
        // Its open transaction is dropped here, or by the command that is using it.
        drop(ended);
    }

    /// Ends every session of one user.
    pub(crate) fn end_all(&self, of: impl Fn(&SessionId) -> bool) {
        self.all().retain(|id, _| !of(id));
    }

    /// The ids of one user's sessions.
    pub(crate) fn ids_of(&self, user: &[u8]) -> Vec<SessionId> {
        self.all().keys().filter(|id| session_parts(id).1 == user).cloned().collect()
    }

    /// Number of sessions, and how many of them have a transaction in progress.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let all = self.all();
        let open = all.values().filter(|session| {
            // A session in use is locked.
            session
                .try_lock()
                .map_or(true, |state| matches!(state.phase, Phase::Open { .. } | Phase::Busy { .. }))
        });
        (all.len(), open.count())
    }

    /// Aborts transactions past their time limit and removes unused sessions.
    pub(crate) fn tend(&self) {
        let forgotten = Duration::from_secs(SESSION_MINUTES as u64 * 60);
        self.all().retain(|_, session| {
            // A session in use is checked later.
            let Ok(mut state) = session.try_lock() else { return true };
            if let Phase::Open { since, .. } | Phase::Busy { since } = &state.phase
                && since.elapsed() > TRANSACTION_TIME
            {
                state.phase = Phase::Aborted;
            }
            state.used.elapsed() < forgotten
        });
    }
}

impl State {
    /// Records that the session is in use.
    pub(crate) fn touch(&mut self) {
        self.used = Instant::now();
    }

    /// Records that the session is in use by a command of the transaction `number`.
    ///
    /// # Errors
    /// The session has already used a newer number.
    pub(crate) fn touch_with(&mut self, number: i64) -> Outcome<()> {
        self.touch();
        if number < self.number { Err(too_old(number, self.number)) } else { Ok(()) }
    }

    /// Takes the open transaction of this number out for a command, which returns it by [`State::check_in`].
    ///
    /// # Errors
    /// No open transaction has this number, or another command uses it.
    pub(crate) fn check_out(&mut self, number: i64) -> Outcome<CheckedOut> {
        if self.number != number {
            return Err(no_transaction(number));
        }
        match std::mem::take(&mut self.phase) {
            Phase::Open { transaction, since, wrote } => {
                self.phase = Phase::Busy { since };
                Ok(CheckedOut { transaction, wrote, number, since })
            }
            other => {
                let is_busy = matches!(other, Phase::Busy { .. });
                self.phase = other;
                Err(if is_busy { in_use(number) } else { no_transaction(number) })
            }
        }
    }

    /// Takes a transaction back after a command, and ends it if the command failed. False if it has ended
    /// meanwhile: it was aborted, became too old, or a higher number ended it.
    pub(crate) fn check_in(&mut self, out: CheckedOut, failed: bool) -> bool {
        let CheckedOut { transaction, wrote, number, since } = out;
        if self.number != number || !matches!(self.phase, Phase::Busy { .. }) {
            return false;
        }
        self.phase = if failed { Phase::Aborted } else { Phase::Open { transaction, since, wrote } };
        true
    }

    /// Takes the open transaction out, and whether it wrote something.
    pub(crate) fn take_open(&mut self) -> Option<(Box<Transaction>, bool)> {
        match std::mem::take(&mut self.phase) {
            Phase::Open { transaction, wrote, .. } => Some((transaction, wrote)),
            other => {
                self.phase = other;
                None
            }
        }
    }
}

/// The transaction of a session while a command uses it.
pub(crate) struct CheckedOut {
    /// Its reads and writes.
    pub(crate) transaction: Box<Transaction>,
    /// It wrote something.
    pub(crate) wrote: bool,
    number: i64,
    since: Instant,
}

/// Locks the state of a session; a command that panicked has left it unchanged.
pub(crate) fn lock(session: &Mutex<State>) -> MutexGuard<'_, State> {
    session.lock().unwrap_or_else(|held| held.into_inner())
}

/// The session has already used a newer number.
fn too_old(number: i64, newest: i64) -> Failure {
    let message = format!(
        "Cannot start transaction {number} on session because a newer transaction {newest} has already started."
    );
    Failure::new(Code::TransactionTooOld, message)
}

/// Another command of the transaction is running.
pub(crate) fn in_use(number: i64) -> Failure {
    let message = format!("another command of transaction {number} is running");
    Failure::new(Code::ConflictingOperationInProgress, message)
}

/// No transaction in progress has that number.
pub(crate) fn no_transaction(number: i64) -> Failure {
    let message = format!(
        "Given transaction number {number} does not match any in-progress transactions; one lasts at most \
         {TRANSACTION_TIME:?}."
    );
    Failure::new(Code::NoSuchTransaction, message).label(TRANSIENT)
}

/// Key of a session: its id and user.
///
/// # Errors
/// Not the id of a session.
pub(crate) fn session_id(lsid: Doc<'_>, user: &str) -> Outcome<SessionId> {
    let args = Args::statement("lsid", lsid, &["id", "uid", "txnNumber", "txnUUID"])?;
    args.not_offered(&["txnNumber", "txnUUID"])?;
    match args.get("id") {
        Some(Value::Binary(4, id)) if id.len() == 16 => {
            let mut key = id.to_vec();
            key.extend_from_slice(user.as_bytes());
            Ok(key)
        }
        _ => Err(Failure::new(Code::TypeMismatch, "lsid.id has to be a UUID")),
    }
}

/// The session's id and its user within [`SessionId`].
pub(crate) fn session_parts(id: &SessionId) -> (&[u8], &[u8]) {
    id.split_at_checked(16).unwrap_or((id, &[]))
}

/// Session key of an id that a client names.
///
/// # Errors
/// As for `lsid`.
pub(crate) fn named_session(value: Value<'_>, user: &str) -> Outcome<SessionId> {
    let doc = value.as_document();
    session_id(doc.ok_or_else(|| Failure::new(Code::TypeMismatch, "a session is a document"))?, user)
}
