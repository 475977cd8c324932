//! The loop of a node, one step at a time.
//!
//! ```text
//! follower: read ─┬─ entries ─▶ apply ─▶ heard of the leader
//!                 ├─ unavailable ─▶ wait
//!                 └─ nothing ─▶ quiet for lease + random share ─▶ the log answers ─▶ one renewal interval ─▶ campaign
//! leader:   readers wait, or idle for a third of the lease ─▶ renew
//! ```
//! The interval before a campaign is for the leader: when the log service itself was away, both find it back at the same
//! time, and the leader should stay.

use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;

use ropewalk::{Database, Seq};
use ropewalk_base::sync::Mutex;
use ropewalk_engine::{EngineError, Role};
use ropewalk_log::shared::{EntryIndex, SharedError, SharedLog};

use crate::barriers::{self, BarrierError, Barriers};
use crate::end::End;
use crate::settings::Settings;
use crate::status::Status;

/// Pause after a call that the shared log did not answer, or that the memory budget refused.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Time between two questions for the bounds and warnings of the shared log.
const SURVEY_PAUSE: Duration = Duration::from_secs(1);

/// One database in a cluster. Shared by the thread that runs it and by everything that asks for its state.
pub struct Node {
    pub(crate) db: Database,
    log: Arc<dyn SharedLog>,
    settings: Settings,
    state: Mutex<State>,
    /// Separate, so that a status never waits for the log.
    status: Mutex<Status>,
    barriers: Barriers,
    /// The thread that runs the node, if there is one.
    pub(crate) thread: Mutex<Option<Thread>>,
    pub(crate) is_run: AtomicBool,
}

/// What a step did.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Done {
    /// Nothing: it is not time yet.
    Nothing,
    /// Applied entries.
    Followed {
        /// How many.
        entries: u64,
    },
    /// The shared log did not answer.
    Unavailable {
        /// What happened.
        cause: String,
    },
    /// Began to lead.
    Led {
        /// The term.
        term: u64,
    },
    /// Tried to lead, and another entry came first.
    Lost,
    /// Appended an empty entry.
    Renewed,
    /// Ended: every later step returns the same.
    Ended(End),
}

/// A step, and when the next one has something to do.
#[derive(Debug, Clone)]
pub struct Stepped {
    /// What the step did.
    pub done: Done,
    /// Monotonic nanoseconds at which to call again. Earlier calls do no harm.
    pub again: u64,
}

/// State between steps; times are monotonic nanoseconds.
struct State {
    end: Option<End>,
    /// Newest entry that was seen, and when.
    index: EntryIndex,
    heard: u64,
    /// How long this node waits for an entry before it tries to lead, and how often it drew that time.
    patience: Duration,
    attempts: u64,
    /// Since when a node that may lead gets answers from the log.
    answered: Option<u64>,
    /// This node leads, and has done what comes first then.
    has_begun: bool,
    /// When it had everything that the log had.
    caught_up: u64,
    surveyed: Option<u64>,
}

impl Node {
    /// A node around a database that was opened with a shared log. It follows until it has a reason to lead.
    ///
    /// # Errors
    /// The database has no shared log.
    pub fn new(db: Database, settings: Settings) -> Result<Self, EngineError> {
        let engine = db.engine();
        let log = engine.shared_log().ok_or_else(|| todo())?;
        let now = engine.env().clock.monotonic_nanos();
        let place = engine.place();
        let state = State {
            end: None,
            index: place.index,
            heard: now,
            patience: settings.patience(0),
            attempts: 0,
            answered: None,
            has_begun: false,
            caught_up: now,
            surveyed: None,
        };
        let status = Status {
            role: engine.role(),
            term: place.term,
            leader: None,
            seq: engine.seq(),
            index: place.index,
            lag_entries: 0,
            lag: Duration::ZERO,
            unavailable: None,
            warnings: Vec::new(),
            end: None,
        };
        Ok(Self {
            log,
            settings,
            state: Mutex::new(state),
            status: Mutex::new(status),
            barriers: Barriers::default(),
            thread: Mutex::new(None),
            is_run: AtomicBool::new(false),
            db,
        })
    }

    /// The database.
    pub fn database(&self) -> &Database {
        &self.db
    }

    /// State after the last step. Never waits for the log.
    pub fn status(&self) -> Status {
        let mut status = self.status.lock().clone();
        status.seq = self.db.seq();
        status
    }

    /// Why the node ended, if it did.
    pub fn end(&self) -> Option<End> {
        self.status.lock().end.clone()
    }

    /// Waits for proof that this node leads, and returns the newest visible commit: every commit that was acknowledged
    /// before the call, by any node, is in it. `deadline` is in nanoseconds of the database's monotonic clock.
    ///
    /// Cost: one append to the shared log, which all callers that wait share.
    ///
    /// # Errors
    /// [`BarrierError::NotLeader`] with the leader's address: ask there, and wait here for the commit that it returns.
    pub fn barrier(&self, deadline: u64) -> Result<Seq, BarrierError> {
        if self.end().is_some() {
            return Err(self.not_leader());
        }
        let receiver = self.barriers.enter();
        if self.is_run.load(Ordering::Acquire) {
            self.wake();
        } else {
            self.serve_barriers();
        }
        let left = deadline.saturating_sub(self.db.engine().env().clock.monotonic_nanos());
        barriers::wait(&receiver, Duration::from_nanos(left))
    }

    /// Wakes the thread that runs the node.
    pub(crate) fn wake(&self) {
        if let Some(thread) = &*self.thread.lock() {
            thread.unpark();
        }
    }
}
