//! Cursors: results that a client fetches batch by batch.
//!
//! A cursor belongs to its user and session, not to a connection: drivers fetch the next batch on another
//! one. It holds a snapshot and a position, or the documents themselves if they had to be computed at once.
//! While a batch is built the cursor is out of the table, so that no document is returned twice.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ropewalk::Seq;
use ropewalk::documents::lang::DocBuf;
use ropewalk::documents::{DocumentCursor, Tail};

use crate::protocol::failure::{Code, Failure, Outcome};
use crate::state::changes::Changes;
use crate::state::guard::Guard;
use crate::state::made::Made;
use crate::state::sessions::SessionId;

/// An unused cursor is closed after this time.
const IDLE_TIME: Duration = Duration::from_secs(600);
/// The same for a cursor with `noCursorTimeout`: the lifetime of a session.
const IDLE_TIME_LONG: Duration = Duration::from_secs(1800);
/// Most open cursors.
const CURSORS_MAX: usize = 10_000;
/// Most open cursors of one connection.
const CURSORS_PER_CONNECTION_MAX: usize = 1_000;
/// Bytes of documents that all cursors hold together.
const BYTES_MAX: usize = 256 << 20;

/// Source of a cursor's documents.
pub(crate) enum Source {
    /// A query at its snapshot.
    Find(Box<DocumentCursor>),
    /// Computed documents, and their bytes.
    Ready(VecDeque<DocBuf>, usize),
    /// Documents that are made of events or rows as they are read.
    Made(Box<Made>),
    /// A change stream.
    Changes(Box<Changes>),
    /// A tailable cursor on a capped collection; true: `getMore` awaits data.
    Tail(Box<Tail>, bool),
}

impl Source {
    fn bytes(&self) -> usize {
        match self {
            Self::Ready(_, bytes) => *bytes,
            Self::Find(cursor) => cursor.held_bytes(),
            Self::Made(made) => made.held_bytes(),
            Self::Changes(_) | Self::Tail(..) => 0,
        }
    }
}

/// A cursor.
pub(crate) struct Cursor {
    /// `database.collection`.
    pub(crate) namespace: String,
    /// The rights and rules checked at each batch.
    pub(crate) guard: Guard,
    /// The documents.
    pub(crate) source: Source,
    /// The user who opened it.
    pub(crate) user: String,
    /// The session it was opened in.
    pub(crate) session: Option<SessionId>,
    /// The number of the transaction it was opened in.
    pub(crate) transaction: Option<i64>,
    /// The connection that opened it.
    pub(crate) connection: i32,
    /// It lives as long as a session would.
    pub(crate) no_timeout: bool,
    /// Its snapshot.
    pub(crate) at: Seq,
}

enum Slot {
    Idle(Box<Cursor>, Instant),
    /// A batch is being built.
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

    /// Stores a new cursor under an unused id; `random` makes ids.
    ///
    /// # Errors
    /// Too many cursors, or too many bytes in them.
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

    /// Takes a cursor out to build a batch.
    ///
    /// # Errors
    /// `CursorNotFound`, also for another user's cursor or a busy one.
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

    /// Puts a cursor back, unless it was killed meanwhile.
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

    /// Removes a cursor of any user; true when it was a change stream.
    pub(crate) fn lose(&self, id: i64) -> bool {
        let lost = self.all().remove(&id);
        matches!(lost, Some(Slot::Idle(cursor, _)) if matches!(cursor.source, Source::Changes(_)))
    }

    /// Closes the cursors of matching sessions.
    pub(crate) fn kill_of(&self, of: impl Fn(&SessionId) -> bool) {
        self.all().retain(|_, slot| match slot {
            Slot::Idle(cursor, _) => !cursor.session.as_ref().is_some_and(&of),
            Slot::Busy { session, .. } => !session.as_ref().is_some_and(&of),
        });
    }

    /// Number of open cursors.
    pub(crate) fn count(&self) -> usize {
        self.all().len()
    }

    /// Closes unused cursors.
    pub(crate) fn tend(&self) {
        self.all().retain(|_, slot| match slot {
            Slot::Idle(cursor, since) => {
                since.elapsed() < if cursor.no_timeout { IDLE_TIME_LONG } else { IDLE_TIME }
            }
            Slot::Busy { .. } => true,
        });
    }
}
