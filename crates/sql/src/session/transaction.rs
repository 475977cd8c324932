//! The transaction of a session: begin, commit, rollback and savepoints.

use std::sync::Arc;

use ropewalk::transaction::PendingCommit;
use ropewalk::{Durability, Isolation, Snapshot, Transaction};
use sqlparser::ast;

use crate::error::{Result, SqlError, state};
use crate::session::notify::Announcement;
use crate::session::{Session, failed, read_only};
use crate::types::outcome::Outcome;
use crate::types::settings::Settings;

pub(crate) struct Open {
    pub(crate) transaction: Transaction,
    pub(crate) isolation: Isolation,
    pub(crate) read_only: bool,
    /// Start time, microseconds since 1970.
    pub(crate) now: i64,
    /// Savepoint names, oldest first; a released one is `None` and remains in the engine transaction's list.
    pub(crate) savepoints: Vec<Option<String>>,
    /// Tables that the transaction created.
    pub(crate) created: Vec<String>,
    /// The session's settings at the start, restored by a rollback.
    pub(crate) before: Arc<Settings>,
    /// The session's settings after a commit: without those of SET LOCAL.
    pub(crate) lasting: Arc<Settings>,
    /// True once a statement has run: the isolation level can no longer change.
    pub(crate) has_run: bool,
    /// Begun by several statements in one text, not by BEGIN.
    pub(crate) is_implicit: bool,
}

impl Session {
    /// Begins a transaction; on a node that follows it only reads.
    pub(crate) fn begin(&mut self, isolation: Isolation, read_only: bool, is_implicit: bool) {
        let read_only = read_only || !self.db.leads();
        self.open_as(self.db.begin_with(isolation), isolation, read_only, is_implicit);
    }

    /// Begins an implicit READ ONLY transaction that reads `snapshot`. A transaction that is open is rolled
    /// back.
    pub fn begin_at(&mut self, snapshot: &Snapshot) {
        self.end();
        let isolation = Isolation::Snapshot;
        self.open_as(self.db.begin_at(snapshot, isolation), isolation, true, true);
    }

    fn open_as(
        &mut self,
        transaction: Transaction,
        isolation: Isolation,
        read_only: bool,
        is_implicit: bool,
    ) {
        self.open = Some(Box::new(Open {
            transaction,
            isolation,
            read_only,
            now: self.db.engine().env().clock.wall_micros(),
            savepoints: Vec::new(),
            created: Vec::new(),
            before: self.settings.clone(),
            lasting: self.settings.clone(),
            has_run: false,
            is_implicit,
        }));
        self.has_failed = false;
    }

    /// Drops the state of the transaction.
    pub(crate) fn end(&mut self) -> Option<Box<Open>> {
        self.has_failed = false;
        self.announcements.take();
        self.advisory.end_transaction();
        self.cursors.end(false);
        let open = self.open.take()?;
        self.settings = open.before.clone();
        Some(open)
    }

    pub(crate) fn commit(&mut self) -> Result<Outcome> {
        let failed = self.has_failed;
        let said = self.announcements.take();
        let durability = self.settings.durability;
        let mut cursors = std::mem::take(&mut self.cursors);
        let ended = match self.end() {
            None => Ok(no_transaction("COMMIT")),
            Some(_) if failed => Ok(Outcome::of("ROLLBACK")),
            Some(open) => self.commit_open(*open, said, durability),
        };
        cursors.end(matches!(&ended, Ok(outcome) if outcome.command == "COMMIT"));
        self.cursors = cursors;
        ended
    }

    fn commit_open(
        &mut self,
        open: Open,
        said: Vec<(usize, Announcement)>,
        durability: Durability,
    ) -> Result<Outcome> {
        match self.submits {
            true => self.pending = open.transaction.submit_with(durability)?,
            false => self.given.note_events(open.transaction.commit_with(durability)?.as_ref()),
        }
        self.announcements.commit(said);
        self.settings = open.lasting;
        Ok(Outcome::of("COMMIT"))
    }

    /// Submits the commit of the open transaction, for a caller that also wrote to it through
    /// [`Session::with_transaction`] and needs errors of all models.
    ///
    /// Returns `None` without an open transaction, for one without writes, and for a failed one, which is
    /// rolled back.
    ///
    /// # Errors
    /// As [`Transaction::submit_with`].
    pub fn submit_commit(&mut self) -> std::result::Result<Option<PendingCommit>, ropewalk::Error> {
        let (failed, said) = (self.has_failed, self.announcements.take());
        let durability = self.settings.durability;
        let Some(open) = self.end().filter(|_| !failed) else { return Ok(None) };
        let pending = open.transaction.submit_with(durability)?;
        self.announcements.commit(said);
        self.settings = open.lasting;
        Ok(pending)
    }

    /// Runs `work` in the transaction that BEGIN opened, in one commit with the session's statements.
    ///
    /// Reads and writes of `work` see the statements before it, and later statements see its writes.
    /// Savepoints that it sets nest in those of the session. It runs with the rights of the application,
    /// whatever user the session acts for; neither `statement_timeout` nor the session's canceller interrupts
    /// it. The event store, collection or series store must belong to the session's database.
    ///
    /// ```
    /// use ropewalk::documents::lang::{Value, Writer};
    /// use ropewalk::series::{Labels, SampleBatch};
    /// use ropewalk::{AppendOptions, Database, Event};
    /// use ropewalk_sql::Session;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let db = Database::in_memory()?;
    /// let (orders, receipts) = (db.events("orders")?, db.collection("receipts")?);
    /// let metrics = db.series("default")?;
    /// let mut session = Session::new(db);
    /// session.execute_all("CREATE TABLE stock (item text PRIMARY KEY, pieces int); INSERT INTO stock VALUES ('pen', 5)")?;
    ///
    /// session.execute("BEGIN", &[])?;
    /// session.execute("UPDATE stock SET pieces = pieces - 1 WHERE item = 'pen'", &[])?;
    /// session.with_transaction(|tx| {
    ///     let mut receipt = Writer::new();
    ///     receipt.put("_id", Value::Int32(1));
    ///     tx.documents().insert_one(&receipts, receipt.finish().bytes())?;
    ///     tx.append(&orders, &[Event::new("Sold").tag("item:pen")], AppendOptions::default())?;
    ///     let mut sold = SampleBatch::new();
    ///     sold.push(&Labels::new([("__name__", "sold")])?, 1_000, 1.0);
    ///     tx.append_samples(&metrics, &sold)?;
    ///     Ok::<_, Box<dyn std::error::Error>>(())
    /// })?;
    /// session.execute("COMMIT", &[])?; // one record of the log: all four, or none
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// 25P01 outside of BEGIN, 25006 in a READ ONLY transaction, 25P02 after a failed statement. An error of
    /// `work` is returned and makes all further statements fail (25P02) until ROLLBACK, as an error of a
    /// statement does. Conflicts are reported by COMMIT.
    pub fn with_transaction<R, E: From<SqlError>>(
        &mut self,
        work: impl FnOnce(&mut Transaction) -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        self.within("with_transaction", false, work)
    }

    /// As [`Session::with_transaction`], also in a READ ONLY transaction, where `work` may only read.
    ///
    /// # Errors
    /// As [`Session::with_transaction`]; 25006 after a write.
    pub fn with_reads<R, E: From<SqlError>>(
        &mut self,
        work: impl FnOnce(&mut Transaction) -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        self.within("with_reads", true, work)
    }

    fn within<R, E: From<SqlError>>(
        &mut self,
        what: &str,
        only_reads: bool,
        work: impl FnOnce(&mut Transaction) -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        if self.has_failed {
            return Err(failed().into());
        }
        let written = |transaction: &Transaction| transaction.write_bytes() + transaction.pending_appends();
        let done = match self.inside(what) {
            Err(error) => Err(error.hint("run BEGIN first").into()),
            Ok(open) if open.read_only && !only_reads => Err(read_only(what).into()),
            Ok(open) => {
                open.has_run = true;
                open.transaction.begin_statement();
                open.transaction.documents().act_for(None);
                let done = match work(&mut open.transaction) {
                    Ok(_) if open.read_only && written(&open.transaction) > 0 => Err(read_only(what).into()),
                    done => done,
                };
                open.savepoints.resize(open.transaction.savepoints(), None);
                let (depth, seq) = (open.savepoints.len(), open.transaction.latest_read_seq());
                self.announcements.back_to(depth);
                self.cursors.back_to(depth);
                self.latest_read_seq(seq);
                done
            }
        };
        self.failing(done)
    }

    pub(crate) fn inside(&mut self, what: &str) -> Result<&mut Open> {
        self.open.as_deref_mut().ok_or_else(|| {
            let message = format!("{what} can only be used in transaction blocks");
            SqlError::new(state::NO_ACTIVE_SQL_TRANSACTION, message)
        })
    }

    pub(crate) fn rollback_to(&mut self, name: &str) -> Result<Outcome> {
        let open = self.inside("ROLLBACK TO SAVEPOINT")?;
        let place = open.savepoints.iter().rposition(|known| known.as_deref() == Some(name));
        let place = place.ok_or_else(|| no_savepoint(name))?;
        while open.savepoints.len() > place {
            open.savepoints.pop();
            open.transaction.rollback_to_savepoint();
        }
        // The savepoint remains, so that it can be rolled back to again.
        open.transaction.savepoint();
        open.savepoints.push(Some(name.to_owned()));
        self.announcements.back_to(place);
        self.cursors.back_to(place);
        self.has_failed = false;
        Ok(Outcome::of("ROLLBACK"))
    }

    pub(crate) fn release(&mut self, name: &str) -> Result<Outcome> {
        let open = self.inside("RELEASE SAVEPOINT")?;
        let place = open.savepoints.iter().rposition(|known| known.as_deref() == Some(name));
        let place = place.ok_or_else(|| no_savepoint(name))?;
        open.savepoints.iter_mut().skip(place).for_each(|known| *known = None);
        Ok(Outcome::of("RELEASE"))
    }
}

impl Session {
    /// Rejects READ WRITE while the node follows another one.
    pub(crate) fn check_mode(&self, read_only: Option<bool>) -> Result<()> {
        if read_only != Some(false) || self.db.leads() {
            return Ok(());
        }
        let message = "cannot set transaction read-write mode during recovery";
        Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message))
    }
}

pub(crate) fn modes_of(modes: &[ast::TransactionMode]) -> Result<(Option<Isolation>, Option<bool>)> {
    let (mut isolation, mut read_only) = (None, None);
    for mode in modes {
        match mode {
            ast::TransactionMode::AccessMode(mode) => {
                read_only = Some(*mode == ast::TransactionAccessMode::ReadOnly)
            }
            ast::TransactionMode::IsolationLevel(level) => {
                isolation = Some(match level {
                    ast::TransactionIsolationLevel::Serializable => Isolation::Serializable,
                    ast::TransactionIsolationLevel::RepeatableRead
                    | ast::TransactionIsolationLevel::Snapshot => Isolation::Snapshot,
                    ast::TransactionIsolationLevel::ReadCommitted
                    | ast::TransactionIsolationLevel::ReadUncommitted => Isolation::ReadCommitted,
                });
            }
        }
    }
    Ok((isolation, read_only))
}

pub(crate) fn no_transaction(command: &'static str) -> Outcome {
    let notice = SqlError::new(state::NO_ACTIVE_SQL_TRANSACTION, "there is no transaction in progress");
    Outcome { notice: Some(notice), ..Outcome::of(command) }
}

fn no_savepoint(name: &str) -> SqlError {
    SqlError::new(state::INVALID_SAVEPOINT, format!("savepoint \"{name}\" does not exist"))
}
