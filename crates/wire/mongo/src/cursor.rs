//! Cursors: results that a client takes batch by batch.
//!
//! A cursor belongs to its user and session, not to a connection: drivers ask for the next batch on another one. What it
//! holds is a snapshot and a place in it, or the documents themselves where they had to be made at once. While a batch is made
//! the cursor is out of the table, so that nothing is given twice.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ropewalk::Seq;

use crate::changes::Changes;
use crate::documents::lang::DocBuf;
use crate::documents::{DocumentCursor, Tail};
use crate::failure::{Code, Failure, Outcome};
use crate::guard::Guard;
use crate::session::SessionId;

/// A cursor that nobody asks is closed after this time.
const IDLE_TIME: Duration = Duration::from_secs(600);
/// One that asked to stay, after this: that of a session.
const IDLE_TIME_LONG: Duration = Duration::from_secs(1800);
/// Cursors at once.
const CURSORS_MAX: usize = 10_000;
/// Cursors at once that one connection has opened.
const CURSORS_PER_CONNECTION_MAX: usize = 1_000;
/// Bytes of documents that cursors hold together.
const BYTES_MAX: usize = 256 << 20;

/// Where the documents come from.
pub(crate) enum Source {
    /// A query, as of its snapshot.
    Find(Box<DocumentCursor>),
    /// Documents that are there already, and their bytes.
    Ready(VecDeque<DocBuf>, usize),
    /// What happens.
    Changes(Box<Changes>),
    /// A capped collection and what comes into it; true: a batch is waited for.
    Tail(Box<Tail>, bool),
}

impl Source {
    fn bytes(&self) -> usize {
        match self {
            Self::Ready(_, bytes) => *bytes,
            Self::Find(cursor) => cursor.held_bytes(),
            Self::Changes(_) | Self::Tail(..) => 0,
        }
    }
}

/// A cursor.
pub(crate) struct Cursor {
    /// `database.collection`.
    pub(crate) namespace: String,
    /// What its reader has to be allowed.
    pub(crate) guard: Guard,
    /// The documents.
    pub(crate) source: Source,
    /// Whose it is.
    pub(crate) user: String,
    /// The session it was opened in.
    pub(crate) session: Option<SessionId>,
    /// The number of the transaction it was opened in.
    pub(crate) transaction: Option<i64>,
    /// The connection that opened it.
    pub(crate) connection: i32,
    /// It stays as long as a session would.
    pub(crate) no_timeout: bool,
    /// As of when it is.
    pub(crate) at: Seq,
}

enum Slot {
    Idle(Box<Cursor>, Instant),
    /// A batch is being made.
    Busy {
        user: String,
        connection: i32,
        session: Option<SessionId>,
    },
}

/// All cursors.
#[derive(Default)]
pub(crate) struct Cursors(Mutex<HashMap<i64, Slot>>);

fn unknown(id: i64) -> Failure {
    Failure::new(Code::CursorNotFound, format!("cursor id {id} not found"))
}

impl Cursors {
    fn all(&self) -> MutexGuard<'_, HashMap<i64, Slot>> {
        self.0.lock().unwrap_or_else(|held| held.into_inner())
    }

    /// Keeps a new cursor under a number that is not in use; `random` makes numbers.
    ///
    /// # Errors
    /// Too many cursors, or too much in them.
    pub(crate) fn open(&self, cursor: Cursor, random: impl Fn() -> u64) -> Outcome<i64> {
        let mut all = self.all();
        let of_connection = all.values().filter(|slot| match slot {
            Slot::Idle(other, _) => other.connection == cursor.connection,
            Slot::Busy { connection, .. } => *connection == cursor.connection,
        });
        if all.len() >= CURSORS_MAX || of_connection.count() >= CURSORS_PER_CONNECTION_MAX {
            return Err(Failure::new(Code::TemporarilyUnavailable, "too many cursors are open"));
        }
        let held: usize = all
            .values()
            .map(|slot| if let Slot::Idle(other, _) = slot { other.source.bytes() } else { 0 })
            .sum();
        if cursor.source.bytes() > 0 && held + cursor.source.bytes() > BYTES_MAX {
            return Err(Failure::new(Code::ExceededMemoryLimit, "open cursors hold too many documents"));
        }
        loop {
            // Positive, as drivers expect; zero means that there is no cursor.
            let id = (random() >> 1) as i64;
            if id != 0 && !all.contains_key(&id) {
                all.insert(id, Slot::Idle(Box::new(cursor), Instant::now()));
                return Ok(id);
            }
        }
    }

    /// Takes a cursor out, to make a batch.
    ///
    /// # Errors
    /// `CursorNotFound`, also for another's cursor or one that is busy.
    pub(crate) fn take(&self, id: i64, user: &str) -> Outcome<Box<Cursor>> {
        let mut all = self.all();
        match all.remove(&id) {
            Some(Slot::Idle(cursor, _)) if cursor.user == user => {
                all.insert(
                    id,
                    Slot::Busy {
                        user: cursor.user.clone(),
                        connection: cursor.connection,
                        session: cursor.session.clone(),
                    },
                );
                Ok(cursor)
            }
            Some(other) => {
                all.insert(id, other);
                Err(unknown(id))
            }
            None => Err(unknown(id)),
        }
    }

    /// Puts a cursor back, unless somebody killed it meanwhile.
    pub(crate) fn put_back(&self, id: i64, cursor: Box<Cursor>) {
        if let Some(slot) = self.all().get_mut(&id) {
            *slot = Slot::Idle(cursor, Instant::now());
        }
    }

    /// Closes a cursor. Returns false if the cursor does not exist.
    pub(crate) fn kill(&self, id: i64, user: &str) -> bool {
        let mut all = self.all();
        let own = match all.get(&id) {
            Some(Slot::Idle(cursor, _)) => cursor.user == user,
            Some(Slot::Busy { user: owner, .. }) => owner == user,
            None => false,
        };
        own && all.remove(&id).is_some()
    }

    /// Takes a cursor away whose ever it is; true when it was a change stream.
    pub(crate) fn lose(&self, id: i64) -> bool {
        let lost = self.all().remove(&id);
        matches!(lost, Some(Slot::Idle(cursor, _)) if matches!(cursor.source, Source::Changes(_)))
    }

    /// Closes what was opened in a session.
    pub(crate) fn kill_of(&self, of: impl Fn(&SessionId) -> bool) {
        self.all().retain(|_, slot| match slot {
            Slot::Idle(cursor, _) => !cursor.session.as_ref().is_some_and(&of),
            Slot::Busy { session, .. } => !session.as_ref().is_some_and(&of),
        });
    }

    /// How many are open.
    pub(crate) fn count(&self) -> usize {
        self.all().len()
    }

    /// Closes what nobody asks.
    pub(crate) fn tend(&self) {
        self.all().retain(|_, slot| match slot {
            Slot::Idle(cursor, since) => {
                since.elapsed() < if cursor.no_timeout { IDLE_TIME_LONG } else { IDLE_TIME }
            }
            Slot::Busy { .. } => true,
        });
    }
}
