//! Reports the steps of transactions to the application, for its logs, traces and histograms.
//!
//! ```text
//! Begin ─▶ Submit ─▶ Commit
//!   │        └─────▶ Conflict or Failure ─▶ Retry ─▶ Begin of the next attempt
//!   └▶ Rollback
//! ```
//!
//! Without an observer each step costs one comparison, and no clock is read.
//!
//! Not here: appends and document writes outside of a transaction, which are one commit without steps.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ropewalk_base::Seq;
use ropewalk_engine::Isolation;
use ropewalk_vfs::Clock;

use crate::database::Database;
use crate::error::{Error, Result};

/// A step of a transaction, reported to [`Options::observer`](crate::Options::observer).
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Step<'e> {
    /// The transaction has taken its snapshot.
    Begin {
        /// Its isolation level.
        isolation: Isolation,
    },
    /// The commit begins: all reads and writes are done, nothing is validated.
    Submit {
        /// Time since the begin.
        work: Duration,
    },
    /// The commit is decided and as durable as requested.
    Commit {
        /// Number of the commit; `None` for a transaction without writes.
        seq: Option<Seq>,
        /// Time since the submit.
        commit: Duration,
    },
    /// The commit was rejected because of another commit. Nothing was written.
    Conflict {
        /// The conflict.
        error: &'e Error,
        /// Time since the submit.
        commit: Duration,
    },
    /// The commit failed for another reason.
    Failure {
        /// The reason.
        error: &'e Error,
        /// Time since the submit.
        commit: Duration,
    },
    /// The transaction was dropped before a commit.
    Rollback {
        /// Time since the begin.
        work: Duration,
    },
    /// [`Database::run`] or [`Database::transact`] runs the work again in a new transaction.
    Retry {
        /// The conflict.
        error: &'e Error,
        /// Attempts that are left after the one that begins now.
        attempts_left: usize,
        /// Wait for the conflicting commit, and pause.
        pause: Duration,
    },
}

/// The application's function, and the number of the last transaction.
#[derive(Clone)]
pub(crate) struct Observer(Arc<Inner>);

struct Inner {
    report: Box<dyn Fn(u64, &Step<'_>) + Send + Sync>,
    last: AtomicU64,
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

impl Observer {
    pub(crate) fn new(report: impl Fn(u64, &Step<'_>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner { report: Box::new(report), last: AtomicU64::new(0) }))
    }

    pub(crate) fn report(&self, transaction: u64, step: &Step<'_>) {
        (self.0.report)(transaction, step);
    }
}

/// An observed transaction, from its begin to its end.
pub(crate) struct Span {
    observer: Observer,
    clock: Arc<dyn Clock>,
    transaction: u64,
    /// Time of the begin, or after the submit, of the submit.
    since_nanos: u64,
    is_submitted: bool,
}

impl Span {
    /// Begins a span if the database has an observer.
    pub(crate) fn begin(db: &Database, isolation: Isolation) -> Option<Self> {
        let observer = db.observer.clone()?;
        let transaction = observer.0.last.fetch_add(1, Ordering::Relaxed) + 1;
        observer.report(transaction, &Step::Begin { isolation });
        let clock = db.engine.env().clock.clone();
        let since_nanos = clock.monotonic_nanos();
        Some(Self { observer, clock, transaction, since_nanos, is_submitted: false })
    }

    /// The number of the transaction.
    pub(crate) fn transaction(&self) -> u64 {
        self.transaction
    }

    pub(crate) fn submit(&mut self) {
        let work = self.elapsed();
        self.is_submitted = true;
        self.observer.report(self.transaction, &Step::Submit { work });
        self.since_nanos = self.clock.monotonic_nanos();
    }

    /// Ends the span with the result of the commit, of which `seq` returns the number.
    pub(crate) fn end<T>(self, result: &Result<T>, seq: impl FnOnce(&T) -> Option<Seq>) {
        let commit = self.elapsed();
        let step = match result {
            Ok(committed) => Step::Commit { seq: seq(committed), commit },
            Err(error) if error.is_conflict() => Step::Conflict { error, commit },
            Err(error) => Step::Failure { error, commit },
        };
        self.observer.report(self.transaction, &step);
    }

    fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.clock.monotonic_nanos().saturating_sub(self.since_nanos))
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        // A submitted commit that the application does not wait for has no reported end.
        if !self.is_submitted {
            let work = self.elapsed();
            self.observer.report(self.transaction, &Step::Rollback { work });
        }
    }
}
