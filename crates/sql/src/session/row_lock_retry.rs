//! At read committed, writers wait for each other's row locks instead of failing with a conflict.
//!
//! ```text
//! statement begins: newest snapshot ─▶ finds rows ─▶ locks each ─▶ writes ─▶ returns
//!        ▲                                             │ held by another: roll back writes, retain locks
//!        └── begins again ◀── has the row ◀── waits ◀──┘ changed meanwhile: the same, without a wait
//! ```
//! WHERE is therefore evaluated on the newest rows, all as of one commit. That snapshot may include commits
//! that are not synced yet, because row locks are released as soon as a commit has its position in the log.
//! Results wait until that part of the log is synced. Decision 0014.
//!
//! Invariant: a client never receives rows that a crash can undo (`Session::unsettled`).

use std::time::Duration;

use ropewalk::engine::Env;
use ropewalk::hooks::{Blocked, LockWait};
use ropewalk::tables::Value;
use ropewalk::{Database, Error, Isolation, Seq, Transaction};

use crate::access::row_source::Access;
use crate::error::{Result, SqlError, state};
use crate::expr::Context;
use crate::limits::budget::Budget;
use crate::limits::interrupt::{Canceller, Interrupt};
use crate::session::prepared::Prepared;
use crate::session::{Session, read_only};
use crate::types::outcome::Outcome;
use crate::types::settings::Settings;

/// Longest wait for a commit to become visible before the engine is checked for a stop.
const LOOK: Duration = Duration::from_millis(100);

/// A pending wait for a row lock. See [`crate::session::async_statements::Progress::Waits`].
#[derive(Debug)]
pub struct RowWait {
    wait: LockWait,
    canceller: Canceller,
    /// Longest wait, and the timeout that ends it.
    limit: Option<(Duration, Limit)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    Lock,
    Statement,
}

impl RowWait {
    fn new(wait: LockWait, lock_millis: u64, interrupt: &Interrupt, env: &Env) -> Self {
        let lock = (lock_millis > 0).then(|| (Duration::from_millis(lock_millis), Limit::Lock));
        let statement = interrupt.left(env).map(|left| (left, Limit::Statement));
        let limit = [lock, statement].into_iter().flatten().min_by_key(|(limit, _)| *limit);
        let canceller = interrupt.canceller().clone();
        canceller.wakes(Some(wait.waker()));
        Self { wait, canceller, limit }
    }

    /// How long to wait at most.
    pub fn limit(&self) -> Option<Duration> {
        self.limit.map(|(limit, _)| limit)
    }

    /// Resolves when the row lock is granted, or the wait is cancelled.
    pub async fn over(&self) {
        (&self.wait).await;
    }

    /// True once the row lock is granted.
    pub fn is_granted(&self) -> bool {
        self.wait.is_granted()
    }

    /// Checks, after the wait, whether the statement may resume.
    ///
    /// # Errors
    /// 57014, 55P03: it was cancelled, or a timeout has passed.
    pub fn verdict(&self) -> Result<()> {
        if self.wait.is_granted() {
            return Ok(());
        }
        let (state, why) = match self.limit {
            _ if self.canceller.is_cancelled() => (state::QUERY_CANCELED, "user request"),
            Some((_, Limit::Lock)) => (state::LOCK_NOT_AVAILABLE, "lock timeout"),
            _ => (state::QUERY_CANCELED, "statement timeout"),
        };
        Err(SqlError::new(state, format!("canceling statement due to {why}")))
    }

    fn block(&self) -> Result<()> {
        self.wait.block(self.limit());
        self.verdict()
    }
}

impl Drop for RowWait {
    fn drop(&mut self) {
        self.canceller.wakes(None);
    }
}

/// State to resume a statement that waited.
pub(crate) struct Resuming {
    /// The statement's own transaction; `None` if it runs in one that the client began.
    transaction: Option<Transaction>,
    interrupt: Interrupt,
}

/// How an attempt of a statement ended.
enum Came {
    Through(Result<Outcome>),
    UpTo(RowWait, Interrupt),
}

impl Session {
    /// True for a statement that locks rows at read committed.
    pub(crate) fn is_waiting_kind(&self, prepared: &Prepared) -> bool {
        let isolation = self.open.as_ref().map_or(self.settings.isolation, |open| open.isolation);
        isolation == Isolation::ReadCommitted && prepared.locks_rows()
    }

    /// Runs a statement that locks rows, at read committed. In submit mode it does not block: `self.waits`
    /// holds the wait, and the same call resumes the statement.
    pub(crate) fn run_waiting(&mut self, prepared: &mut Prepared, params: &[Value<'_>]) -> Result<Outcome> {
        let (transaction, interrupt) = match self.resuming.take() {
            Some(Resuming { transaction, interrupt }) => (transaction, interrupt),
            None => (None, self.interrupt()),
        };
        let Some(mut open) = self.open.take() else {
            return self.run_waiting_alone(prepared, params, transaction, interrupt);
        };
        open.has_run = true;
        if open.read_only {
            let refused = read_only(&prepared.statement);
            self.open = Some(open);
            return Err(refused);
        }
        let came = self.come(&mut open.transaction, prepared, params, open.now, interrupt);
        self.latest_read_seq(open.transaction.latest_read_seq());
        self.open = Some(open);
        match came {
            Came::Through(outcome) => outcome,
            Came::UpTo(wait, interrupt) => Err(self.park(wait, None, interrupt)),
        }
    }

    fn run_waiting_alone(
        &mut self,
        prepared: &mut Prepared,
        params: &[Value<'_>],
        transaction: Option<Transaction>,
        mut interrupt: Interrupt,
    ) -> Result<Outcome> {
        let Settings { durability, attempts, .. } = *self.settings;
        let begun = || self.db.begin_with(Isolation::ReadCommitted);
        let mut transaction = transaction.unwrap_or_else(begun);
        let mut attempt = 1;
        loop {
            let now = self.db.engine().env().clock.wall_micros();
            let came = self.come(&mut transaction, prepared, params, now, interrupt);
            self.latest_read_seq(transaction.latest_read_seq());
            let outcome = match came {
                Came::Through(outcome) => outcome?,
                Came::UpTo(wait, interrupt) => return Err(self.park(wait, Some(transaction), interrupt)),
            };
            if self.submits {
                self.pending = transaction.submit_with(durability)?;
                return Ok(outcome);
            }
            match transaction.commit_with(durability) {
                Ok(committed) => {
                    self.given.note_events(committed.as_ref());
                    return Ok(outcome);
                }
                // The conflicting transaction takes no row locks.
                Err(error) if error.is_conflict() && attempt < attempts => attempt += 1,
                Err(error) => return Err(error.into()),
            }
            transaction = self.db.begin_with(Isolation::ReadCommitted);
            interrupt = self.interrupt();
        }
    }

    /// Runs the statement, starting it again after each row that was locked or changed by another.
    fn come(
        &self,
        transaction: &mut Transaction,
        prepared: &mut Prepared,
        params: &[Value<'_>],
        now: i64,
        interrupt: Interrupt,
    ) -> Came {
        let env = self.db.engine().env();
        loop {
            transaction.set_lock_owner_tag(self.settings.number.unsigned_abs());
            transaction.begin_locking_statement();
            let result = self.attempt(transaction, prepared, params, now, &interrupt);
            // Unless a brief plan found its rows, the result also depends on rows that are not locked:
            // missing ones, and those read by subqueries.
            let is_plain = prepared.is_brief() && matches!(&result, Ok(outcome) if outcome.count != Some(0));
            match result {
                Ok(outcome) => {
                    if !is_plain {
                        transaction.depend_on_all_reads();
                    }
                    return Came::Through(Ok(outcome));
                }
                Err(error) => match transaction.rollback_statement() {
                    None => {
                        transaction.depend_on_all_reads();
                        return Came::Through(Err(error));
                    }
                    Some(Blocked::Changed) => {
                        if let Err(error) = interrupt.check_now(env) {
                            return Came::Through(Err(error));
                        }
                    }
                    Some(Blocked::Wait(wait)) => {
                        let wait = RowWait::new(wait, self.settings.lock_millis, &interrupt, env);
                        if self.submits {
                            return Came::UpTo(wait, interrupt);
                        }
                        if let Err(error) = wait.block() {
                            return Came::Through(Err(error));
                        }
                    }
                },
            }
        }
    }

    fn attempt(
        &self,
        transaction: &mut Transaction,
        prepared: &mut Prepared,
        params: &[Value<'_>],
        now: i64,
        interrupt: &Interrupt,
    ) -> Result<Outcome> {
        prepared.renew(Access::Transaction(&self.db, transaction))?;
        let bound = prepared.bound(params)?;
        let env = self.db.engine().env();
        let zone = &self.settings.zone;
        let cx = Context { params: &bound, answers: &[], now, env, zone, interrupt, nested: None };
        let budget = Budget::new(self.settings.memory_bytes_max);
        prepared.run(&mut Access::Transaction(&self.db, transaction), &cx, &budget)
    }

    fn park(&mut self, wait: RowWait, transaction: Option<Transaction>, interrupt: Interrupt) -> SqlError {
        self.waits = Some(wait);
        self.resuming = Some(Resuming { transaction, interrupt });
        // Never reported: `submit` returns the wait instead.
        SqlError::new(state::LOCK_NOT_AVAILABLE, "the statement waits for a row")
    }

    /// Abandons the statement that waited; an open transaction fails.
    pub fn give_up(&mut self) {
        self.resuming = None;
        self.fail();
    }

    /// Records a commit that was read before it was visible.
    pub(crate) fn latest_read_seq(&mut self, seq: Seq) {
        self.latest_read_seq = self.latest_read_seq.max(seq);
    }

    /// The newest commit that the session has read and that is not visible yet. Wait for it before sending
    /// rows, an error, or the result of a transaction's end.
    pub fn unsettled(&self) -> Option<Seq> {
        // The common case returns without reading `db.seq()`.
        Some(self.latest_read_seq).filter(|seq| *seq > Seq::ZERO && *seq > self.db.seq())
    }

    /// Waits until all commits that the session has read are visible.
    pub(crate) fn settle(&self) -> Result<()> {
        while let Some(seq) = self.unsettled() {
            settled(&self.db)?;
            self.db.engine().wait_visible(seq, LOOK);
        }
        Ok(())
    }
}

fn settled(db: &Database) -> Result<()> {
    match db.engine().stopped() {
        Some(error) => Err(Error::Engine(error).into()),
        None => Ok(()),
    }
}
