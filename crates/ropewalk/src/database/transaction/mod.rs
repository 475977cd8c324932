//! Transactions over all models of one database.
//!
//! A transaction reads one snapshot and its own writes. It buffers its writes, and at commit becomes one log
//! record that is validated in commit order. Nothing is applied before that, so a rollback only drops the
//! buffers.

mod committed;
mod events;
mod samples;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use ropewalk_base::Seq;
use ropewalk_documents::{DocumentsMark, DocumentsState, DocumentsTx};
use ropewalk_engine::{
    Blocked, CommitError, CommitHandle, Durability, FollowsCommit, InFlightCommit, Isolation, KeySpan,
    KvMark, KvTransaction, NotNewest, Operation, Snapshot as EngineSnapshot,
};
use ropewalk_series::{SampleBatch, SeriesStore};
use ropewalk_tables::{TablesState, TablesTx};

pub use committed::{AppendedEvents, AppendedSamples, Committed};

use self::committed::Written;
use self::events::EventsState;
use self::samples::{SamplesAppended, SamplesRead};
use crate::database::observer::Span;
use crate::database::{Database, Snapshot};
use crate::error::{Error, Result};
use crate::keyspace::Keyspace;

/// A transaction over all models. Dropping it rolls it back.
pub struct Transaction {
    db: Database,
    kv: KvTransaction,
    tables: TablesState,
    documents: DocumentsState,
    events: EventsState,
    samples: SamplesAppended,
    samples_read: SamplesRead,
    savepoints: Vec<Savepoint>,
    /// Start of the current locking statement.
    statement: Option<Savepoint>,
    /// Reports the steps, if the database has an observer.
    span: Option<Span>,
    /// The commit that its commit has to follow directly.
    follows: Option<Seq>,
}

/// A mark to roll back to: the sizes of all buffers.
pub(crate) struct Savepoint {
    kv: KvMark,
    documents: DocumentsMark,
    appends: usize,
    samples: usize,
}

impl Transaction {
    pub(crate) fn new(db: Database, isolation: Isolation) -> Self {
        let kv = KvTransaction::new(db.engine.clone(), isolation);
        let span = Span::begin(&db, isolation);
        Self::over(db, kv, span)
    }

    pub(crate) fn at(db: Database, isolation: Isolation, snapshot: EngineSnapshot) -> Self {
        let kv = KvTransaction::at(db.engine.clone(), isolation, snapshot);
        let span = Span::begin(&db, isolation);
        Self::over(db, kv, span)
    }

    fn over(db: Database, kv: KvTransaction, span: Option<Span>) -> Self {
        let (tables, documents) = (TablesState::default(), DocumentsState::default());
        Self {
            db,
            kv,
            tables,
            documents,
            events: EventsState::default(),
            samples: SamplesAppended::default(),
            samples_read: SamplesRead::default(),
            savepoints: Vec::new(),
            statement: None,
            span,
            follows: None,
        }
    }

    /// The number that an observer sees.
    pub(crate) fn number(&self) -> Option<u64> {
        self.span.as_ref().map(Span::transaction)
    }

    /// Returns the isolation level.
    pub fn isolation(&self) -> Isolation {
        self.kv.isolation()
    }

    /// Returns the snapshot that the transaction reads.
    ///
    /// With [`Isolation::ReadCommitted`] each statement reads the newest commit. Reads through the snapshot
    /// itself are not validated at commit.
    pub fn snapshot(&self) -> Snapshot {
        self.db.at(self.kv.snapshot().clone())
    }

    /// The number of the snapshot's newest commit, as that of [`Transaction::snapshot`], which costs more.
    pub fn snapshot_seq(&self) -> Seq {
        self.kv.snapshot().seq()
    }

    /// Begins a statement of several operations, which read one snapshot.
    ///
    /// The statement lasts until the next call, so a value that it reads and then writes cannot change in
    /// between. Without this call, each operation of a transaction with [`Isolation::ReadCommitted`] is a
    /// separate statement. At the other levels the entire transaction reads one snapshot anyway.
    pub fn begin_statement(&mut self) {
        self.kv.mark_statement();
        self.statement = None;
    }

    /// Begins a statement that locks the rows that it writes.
    ///
    /// Other locking transactions then wait for this one instead of being rejected at commit. It requires
    /// [`Isolation::ReadCommitted`]; at the other levels it is an ordinary
    /// [statement](Transaction::begin_statement).
    ///
    /// When the tables return `LockError::Again`, call
    /// [`Transaction::rollback_statement`], wait for what it returns, and run the entire statement again. The
    /// statement may have read data that is not durable yet: see [`Transaction::latest_read_seq`].
    pub fn begin_locking_statement(&mut self) {
        self.kv.mark_locking_statement();
        self.statement = Some(self.place());
    }

    /// Labels the locks taken from here on with a number: `LockHolder::label`.
    pub fn set_lock_owner_tag(&mut self, label: u32) {
        self.kv.set_lock_owner_tag(label);
    }

    /// Undoes the locking statement, except for its locks, and returns what it has to wait for.
    ///
    /// Returns `None`, and undoes nothing, if the statement failed for another reason.
    pub fn rollback_statement(&mut self) -> Option<Blocked> {
        let blocked = self.kv.take_lock_wait()?;
        if let Some(place) = self.statement.take() {
            self.back_to(&place);
        }
        Some(blocked)
    }

    /// The newest commit that locking statements may have read before it was durable.
    ///
    /// Report no result to the client before that commit is visible. A commit of this transaction follows it
    /// in the log.
    pub fn latest_read_seq(&self) -> Seq {
        self.kv.latest_read_seq()
    }

    /// Makes [`Transaction::latest_read_seq`] cover all reads of the locking statement.
    ///
    /// By default it covers only the rows that the statement locked.
    pub fn depend_on_all_reads(&mut self) {
        self.kv.depend_on_all_reads();
    }

    /// Returns the value of `key`, including own writes.
    ///
    /// # Errors
    /// Stored data is corrupt.
    pub fn get(&mut self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.kv.begin_statement();
        Ok(self.kv.get(keyspace.0, key)?)
    }

    /// Returns at most `limit` entries from `start` to before `end`, including own writes.
    ///
    /// # Errors
    /// Stored data is corrupt.
    pub fn range(
        &mut self,
        keyspace: Keyspace,
        start: &[u8],
        end: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.kv.begin_statement();
        let mut rows = Vec::new();
        if limit > 0 {
            self.kv.visit(keyspace.0, KeySpan::forward(start, end), |key, value| {
                rows.push((key.to_vec(), value.to_vec()));
                rows.len() < limit
            })?;
        }
        Ok(rows)
    }

    /// Writes `key`.
    pub fn put(&mut self, keyspace: Keyspace, key: &[u8], value: &[u8]) {
        self.kv.put(keyspace.0, key, value);
    }

    /// Writes `key` with `value` followed by the number of this commit: eight bytes, little endian.
    ///
    /// A reader of the key learns in which commit the other writes of this transaction are. Reads within the
    /// transaction see the value without the number.
    pub fn put_stamped(&mut self, keyspace: Keyspace, key: &[u8], value: &[u8]) {
        self.kv.put_stamped(keyspace.0, key, value);
    }

    /// Deletes `key`.
    pub fn delete(&mut self, keyspace: Keyspace, key: &[u8]) {
        self.kv.delete(keyspace.0, key);
    }

    /// Requires that no commit comes between commit `seq` and that of this transaction.
    ///
    /// Without writes only the snapshot is checked. Every commit of the database counts, also those of
    /// background work such as projections; reads of the transaction are a narrower condition.
    ///
    /// # Errors
    /// [`Error::NotNewest`] if the snapshot is of another commit. The commit fails with it if another commit
    /// has come first.
    pub fn require_newest(&mut self, seq: Seq) -> Result<()> {
        let newest = self.kv.snapshot().seq();
        if newest != seq {
            return Err(Error::NotNewest(NotNewest { expected: seq, newest }));
        }
        self.follows = Some(seq);
        Ok(())
    }

    /// Approximate memory of the buffered writes of all models, bytes.
    pub fn write_bytes(&self) -> usize {
        self.kv.bytes() + self.events.bytes() + self.samples.bytes()
    }

    /// The tables within this transaction: rows and definitions, to read and write.
    pub fn tables(&mut self) -> TablesTx<'_> {
        TablesTx::new(&self.db.tables, &mut self.kv, &mut self.tables)
    }

    /// The documents within this transaction, to read and write, including definitions.
    pub fn documents(&mut self) -> DocumentsTx<'_> {
        DocumentsTx::new(&self.db.documents, &mut self.kv, &mut self.documents)
    }

    /// Appends samples to a series store when the transaction commits.
    ///
    /// Errors that do not depend on other commits are reported at once. From here on [`Transaction::series`]
    /// rejects reads of the store, since they would miss these samples.
    ///
    /// # Errors
    /// Labels over the limits; unknown series; samples older than the retention of the store; samples of more
    /// than 256 MiB in memory in one transaction.
    pub fn append_samples(&mut self, store: &SeriesStore, batch: &SampleBatch) -> Result<()> {
        let prepared = store.operation(batch)?;
        self.samples.push(store, batch, prepared)
    }

    /// Sets a savepoint. Savepoints nest.
    pub fn savepoint(&mut self) {
        self.savepoints.push(self.place());
    }

    /// Number of open savepoints.
    pub fn savepoints(&self) -> usize {
        self.savepoints.len()
    }

    pub(crate) fn place(&self) -> Savepoint {
        Savepoint {
            kv: self.kv.mark(),
            documents: self.documents.mark(),
            appends: self.events.len(),
            samples: self.samples.len(),
        }
    }

    pub(crate) fn back_to(&mut self, place: &Savepoint) {
        self.kv.rollback_to(place.kv);
        self.tables.rolled_back();
        self.documents.rolled_back(place.documents);
        self.events.truncate(place.appends);
        self.samples.truncate(place.samples);
    }

    /// Rolls back to the last savepoint and removes it; false without a savepoint.
    ///
    /// Locks taken since then are released. Reads since then are still validated at commit. So is each key
    /// whose write is undone, since the write may have revealed whether the key existed.
    pub fn rollback_to_savepoint(&mut self) -> bool {
        let Some(place) = self.savepoints.pop() else { return false };
        self.back_to(&place);
        self.kv.release_since(place.kv);
        true
    }

    /// Releases the locks taken since the last savepoint, or all locks without a savepoint.
    ///
    /// For a transaction that will be rolled back at least to that savepoint.
    pub fn release_locks_since_savepoint(&mut self) {
        match self.savepoints.last() {
            Some(place) => self.kv.release_since(place.kv),
            None => self.kv.release_all(),
        }
    }

    /// Rolls the transaction back. Same as dropping it.
    pub fn rollback(self) {}

    /// Commits with [`Durability::Sync`].
    ///
    /// # Errors
    /// As [`Transaction::commit_with`].
    pub fn commit(self) -> Result<Option<Committed>> {
        self.commit_with(Durability::Sync)
    }

    /// Commits atomically, as one log record.
    ///
    /// A transaction without writes does not touch the log and returns `None`.
    ///
    /// # Errors
    /// [`crate::Class::Conflict`] if a key, range, condition or sample read no longer holds; nothing was
    /// written.
    pub fn commit_with(mut self, durability: Durability) -> Result<Option<Committed>> {
        let Some(mut span) = self.span.take() else { return self.commit_unobserved(durability) };
        span.submit();
        let committed = self.commit_unobserved(durability);
        span.end(&committed, |committed| committed.as_ref().map(|committed| committed.seq));
        committed
    }

    fn commit_unobserved(self, durability: Durability) -> Result<Option<Committed>> {
        let has_loaded = self.tables.has_loaded();
        let Some(Ready { db, operations, written }) = self.into_ready()? else { return Ok(None) };
        let committed = db.engine.commit(operations, durability);
        if has_loaded {
            // Storage that cannot be deleted now is deleted when the next load begins.
            let _ = db.tables.remove_orphaned_loads();
        }
        match committed {
            Ok(committed) => Ok(Some(written.named(committed))),
            Err(error) => Err(explained(&db, error)),
        }
    }

    /// Submits the commit and returns a handle to wait on or await; never blocks.
    ///
    /// No thread is held until the disk has synced. Returns `None` for a transaction without writes.
    ///
    /// # Errors
    /// Errors known before the commit is validated; [`crate::Class::Busy`] if too many commits are queued.
    pub fn submit_with(mut self, durability: Durability) -> Result<Option<PendingCommit>> {
        let Some(mut span) = self.span.take() else { return self.submit_unobserved(durability) };
        span.submit();
        match self.submit_unobserved(durability) {
            Ok(Some(pending)) => Ok(Some(PendingCommit { span: Some(span), ..pending })),
            ended => {
                span.end(&ended, |_| None);
                ended
            }
        }
    }

    fn submit_unobserved(self, durability: Durability) -> Result<Option<PendingCommit>> {
        let Some(Ready { db, operations, written }) = self.into_ready()? else { return Ok(None) };
        match db.engine.try_submit(operations, durability) {
            Ok(handle) => Ok(Some(PendingCommit { db, handle, written: Some(written), span: None })),
            Err(error) => Err(explained(&db, error)),
        }
    }

    /// The operations of the commit; `None` for a transaction without writes.
    fn into_ready(self) -> Result<Option<Ready>> {
        let Self { db, kv, mut tables, mut documents, events, samples, samples_read, follows, .. } = self;
        let stores = events.stores().map(str::to_owned).collect();
        let (mut operations, guards) = events.into_operations()?;
        let (samples, sample_operations): (Vec<_>, Vec<_>) = samples.into_operations()?.into_iter().unzip();
        operations.extend(sample_operations);
        let written = Written { events: stores, samples };
        let serializable = kv.isolation() == Isolation::Serializable;
        if kv.has_writes() || (!operations.is_empty() && serializable) {
            operations.extend(tables.operation());
            operations.extend(documents.operation());
            operations.push(Box::new(kv.into_batch()));
        }
        if operations.is_empty() {
            return Ok(None);
        }
        operations.extend(guards);
        operations.extend(samples_read.guards());
        operations.extend(follows.map(|seq| Box::new(FollowsCommit(seq)) as Box<dyn Operation>));
        Ok(Some(Ready { db, operations, written }))
    }
}

/// A transaction ready to commit.
struct Ready {
    db: Database,
    operations: Vec<Box<dyn Operation>>,
    written: Written,
}

/// Converts a commit error; a key conflict names the table or document of the key.
fn explained(db: &Database, error: CommitError) -> Error {
    let error = Error::from(error);
    match &error {
        Error::KeyConflict(conflict) => {
            let table = db.tables.explain(conflict).map(Error::Tables);
            let document = || db.documents.explain(conflict).map(Error::Documents);
            table.or_else(document).unwrap_or(error)
        }
        _ => error,
    }
}

/// The result of a submitted commit, with the names of its stores.
fn outcome(
    db: &Database,
    (written, span): (Option<Written>, Option<Span>),
    committed: Result<ropewalk_engine::Committed, CommitError>,
) -> Result<Committed> {
    let committed = committed.map_err(|error| explained(db, error));
    let committed = committed.map(|committed| written.unwrap_or_default().named(committed));
    if let Some(span) = span {
        span.end(&committed, |committed| Some(committed.seq));
    }
    committed
}

/// A submitted commit, to wait on or await. Dropping it does not cancel the commit.
///
/// See [`Transaction::submit_with`].
pub struct PendingCommit {
    db: Database,
    handle: CommitHandle,
    /// Taken when the outcome is returned, as is `span`.
    written: Option<Written>,
    span: Option<Span>,
}

impl PendingCommit {
    /// Blocks until the commit is decided and as durable as requested.
    ///
    /// # Errors
    /// As [`Transaction::commit_with`].
    pub fn wait(mut self) -> Result<Committed> {
        let end = (self.written.take(), self.span.take());
        outcome(&self.db, end, self.handle.wait())
    }
}

impl InFlightCommit for PendingCommit {
    fn can_lead(&self) -> bool {
        self.handle.can_lead()
    }

    fn lead(&mut self) {
        self.handle.lead();
    }
}

impl Future for PendingCommit {
    type Output = Result<Committed>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let committed = std::task::ready!(Pin::new(&mut self.handle).poll(context));
        let end = (self.written.take(), self.span.take());
        Poll::Ready(outcome(&self.db, end, committed))
    }
}
