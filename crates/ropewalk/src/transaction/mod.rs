//! Transactions over everything in one database.
//!
//! A transaction reads one snapshot and its own writes, keeps what it writes to itself, and at commit becomes one log
//! record, checked in its place in the order. Nothing is applied before that, so rolling back is forgetting.

mod committed;
mod events;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use ropewalk_base::Seq;
use ropewalk_documents::{DocumentsMark, DocumentsState, DocumentsTx};
use ropewalk_engine::{
    Blocked, CommitError, CommitHandle, Committing, Durability, Isolation, KvMark, KvTransaction, Operation,
};
use ropewalk_series::{SampleBatch, SeriesStore};
use ropewalk_tables::{TablesState, TablesTx};

pub use committed::{AppendedEvents, AppendedSamples, Committed};

use self::committed::Written;
use self::events::EventsState;
use crate::database::{Database, Snapshot};
use crate::error::Error;
use crate::keyspace::Keyspace;

/// A transaction. Dropping it rolls it back.
pub struct Transaction {
    db: Database,
    kv: KvTransaction,
    tables: TablesState,
    documents: DocumentsState,
    events: EventsState,
    samples: Vec<(SeriesStore, SampleBatch)>,
    savepoints: Vec<Savepoint>,
    /// Where the statement began that locks rows.
    statement: Option<Savepoint>,
}

/// How much there was of everything.
pub(crate) struct Savepoint {
    kv: KvMark,
    documents: DocumentsMark,
    appends: usize,
    samples: usize,
}

impl Transaction {
    pub(crate) fn new(db: Database, isolation: Isolation) -> Self {
        let kv = KvTransaction::new(db.engine.clone(), isolation);
        let (tables, documents) = (TablesState::default(), DocumentsState::default());
        let (samples, savepoints) = (Vec::new(), Vec::new());
        Self {
            db,
            kv,
            tables,
            documents,
            events: EventsState::default(),
            samples,
            savepoints,
            statement: None,
        }
    }

    /// What the transaction reads. With [`Isolation::ReadCommitted`] each statement sees the newest commit.
    pub fn snapshot(&self) -> Snapshot {
        self.db.at(self.kv.snapshot().clone())
    }

    /// Begins a statement of several operations: what is read and written up to the next call is of one snapshot, so that a
    /// value which is read and then written cannot have changed between. Without a call each operation of a transaction with
    /// [`Isolation::ReadCommitted`] is a statement of its own. At the other levels the whole transaction reads one snapshot anyway.
    pub fn begin_statement(&mut self) {
        self.kv.mark_statement();
        self.statement = None;
    }

    /// As [`Transaction::begin_statement`], for a statement that locks the rows which it writes, so that other such transactions
    /// wait for this one instead of being refused at commit. Works with [`Isolation::ReadCommitted`]; at the other levels it is
    /// an ordinary statement.
    ///
    /// When the tables answer [`LockError::Again`](crate::LockError::Again), call [`Transaction::retract_statement`], wait for
    /// what that says, and do all of the statement again. What the statement read may not be durable yet:
    /// [`Transaction::rests_on`].
    pub fn begin_locking_statement(&mut self) {
        self.kv.mark_locking_statement();
        self.statement = Some(self.place());
    }

    /// Has the locks that it takes from here on listed under a number of the caller's: `LockHolder::label`.
    pub fn label_locks(&mut self, label: u32) {
        self.kv.label_locks(label);
    }

    /// Takes back what the locking statement did, but for its locks. Answers why it has to begin again; `None` when it failed
    /// for another reason.
    pub fn retract_statement(&mut self) -> Option<Blocked> {
        let blocked = self.kv.take_blocked()?;
        if let Some(place) = self.statement.take() {
            self.back_to(&place);
        }
        Some(blocked)
    }

    /// The newest commit that was read before it was durable, if locking statements did so. Nobody is to be told of what was
    /// read before that commit is visible; this transaction's own commit is behind it.
    pub fn rests_on(&self) -> Seq {
        self.kv.rests_on()
    }

    /// Everything that the locking statement read counts for [`Transaction::rests_on`], not only the rows that it locked.
    pub fn rest_on_all(&mut self) {
        self.kv.rest_on_all();
    }

    /// The value of `key`, own writes included.
    ///
    /// # Errors
    /// Damage.
    pub fn get(&mut self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.kv.begin_statement();
        Ok(self.kv.get(keyspace.0, key)?)
    }

    /// Keys and values from `start` up to, not including, `end`, at most `limit`, own writes included.
    ///
    /// # Errors
    /// Damage.
    pub fn range(
        &mut self,
        keyspace: Keyspace,
        start: &[u8],
        end: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Error> {
        self.kv.begin_statement();
        let mut rows = Vec::new();
        if limit > 0 {
            self.kv.visit(keyspace.0, start, end, false, |key, value| {
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

    /// Deletes `key`.
    pub fn delete(&mut self, keyspace: Keyspace, key: &[u8]) {
        self.kv.delete(keyspace.0, key);
    }

    /// The tables within this transaction: rows and definitions, read and written.
    pub fn tables(&mut self) -> TablesTx<'_> {
        TablesTx::new(&self.db.tables, &mut self.kv, &mut self.tables)
    }

    /// The documents within this transaction: read and written, definitions included.
    pub fn documents(&mut self) -> DocumentsTx<'_> {
        DocumentsTx::new(&self.db.documents, &mut self.kv, &mut self.documents)
    }

    /// Appends samples to a series store when the transaction commits. Refused at once is what can be known at once.
    ///
    /// # Errors
    /// Labels over the limits; series that are not there; samples before the store's retention.
    pub fn append_samples(&mut self, store: &SeriesStore, batch: &SampleBatch) -> Result<(), Error> {
        // Prepared once to check it; prepared again at commit, together with what else goes to the same store.
        store.operation(batch)?;
        self.samples.push((store.clone(), batch.clone()));
        Ok(())
    }

    /// What the commit appends to series stores: one operation for each store, with the store's name.
    fn sample_operations(&self) -> Result<Vec<(String, Box<dyn Operation>)>, Error> {
        let mut stores: Vec<(&SeriesStore, SampleBatch)> = Vec::new();
        for (store, batch) in &self.samples {
            match stores.iter_mut().find(|(other, _)| other.name() == store.name()) {
                Some((_, all)) => all.extend(batch),
                None => stores.push((store, batch.clone())),
            }
        }
        let mut operations: Vec<(String, Box<dyn Operation>)> = Vec::new();
        for (store, batch) in stores {
            operations.push((store.name().to_owned(), Box::new(store.operation(&batch)?)));
        }
        Ok(operations)
    }

    /// Marks a place to roll back to. Savepoints nest.
    pub fn savepoint(&mut self) {
        self.savepoints.push(self.place());
    }

    /// Number of savepoints to roll back to.
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

    /// Takes back everything since the last savepoint, which is used up. False when there is none. What was read stays
    /// read; a key whose write is taken back counts as read, too, since the write may have told whether it was free. Locks that
    /// were taken since are given back.
    pub fn rollback_to_savepoint(&mut self) -> bool {
        let Some(place) = self.savepoints.pop() else { return false };
        self.back_to(&place);
        self.kv.release_since(place.kv);
        true
    }

    /// Gives back the locks taken since the last savepoint, for a transaction that will be rolled back to there at least.
    pub fn give_back_locks(&mut self) {
        match self.savepoints.last() {
            Some(place) => self.kv.release_since(place.kv),
            None => self.kv.release_all(),
        }
    }

    /// Forgets everything. The same as dropping the transaction.
    pub fn rollback(self) {}

    /// Commits with [`Durability::Sync`].
    ///
    /// # Errors
    /// As [`Transaction::commit_with`].
    pub fn commit(self) -> Result<Option<Committed>, Error> {
        self.commit_with(Durability::Sync)
    }

    /// Commits: one log record, all or nothing. A transaction that wrote nothing touches no log and answers `None`.
    ///
    /// # Errors
    /// [`crate::Class::Conflict`] when a key, a range or a condition no longer holds: nothing was written.
    pub fn commit_with(self, durability: Durability) -> Result<Option<Committed>, Error> {
        let has_loaded = self.tables.has_loaded();
        let Some(Ready { db, operations, written }) = self.into_ready()? else { return Ok(None) };
        let committed = db.engine.commit(operations, durability);
        if has_loaded {
            // What cannot be cleared up now is when the next load begins.
            let _ = db.tables.clear_up();
        }
        match committed {
            Ok(committed) => Ok(Some(written.named(committed))),
            Err(error) => Err(explained(&db, error)),
        }
    }

    /// Hands the commit over and returns at once with a handle to wait on or await, so that no thread is held until the disk
    /// has it; never blocks. `None` for a transaction that wrote nothing.
    ///
    /// # Errors
    /// What is known before the commit is decided; [`crate::Class::Busy`] while too many commits are queued.
    pub fn submit_with(self, durability: Durability) -> Result<Option<PendingCommit>, Error> {
        let Some(Ready { db, operations, written }) = self.into_ready()? else { return Ok(None) };
        match db.engine.try_submit(operations, durability) {
            Ok(handle) => Ok(Some(PendingCommit { db, handle, written: Some(written) })),
            Err(error) => Err(explained(&db, error)),
        }
    }

    /// What the commit is made of; `None` when there is nothing to commit.
    fn into_ready(self) -> Result<Option<Ready>, Error> {
        let mut operations = self.events.append_operations()?;
        let (samples, sample_operations): (Vec<_>, Vec<_>) = self.sample_operations()?.into_iter().unzip();
        operations.extend(sample_operations);
        let written = Written { events: self.events.stores().map(str::to_owned).collect(), samples };
        let guards = self.events.guards()?;
        let Self { db, kv, mut tables, mut documents, .. } = self;
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
        Ok(Some(Ready { db, operations, written }))
    }
}

/// A transaction that is ready to be committed.
struct Ready {
    db: Database,
    operations: Vec<Box<dyn Operation>>,
    written: Written,
}

/// The error of a commit; a conflict over a key says what the key is of.
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

/// The outcome of a submitted commit, with its stores named.
fn outcome(
    db: &Database,
    written: Option<Written>,
    committed: Result<ropewalk_engine::Committed, CommitError>,
) -> Result<Committed, Error> {
    let committed = committed.map_err(|error| explained(db, error))?;
    Ok(written.unwrap_or_default().named(committed))
}

/// A commit on its way: wait, or await it. Dropping it does not take the commit back. See [`Transaction::submit_with`].
pub struct PendingCommit {
    db: Database,
    handle: CommitHandle,
    /// Taken with the outcome.
    written: Option<Written>,
}

impl PendingCommit {
    /// Blocks until the commit is decided and as durable as asked.
    ///
    /// # Errors
    /// As [`Transaction::commit_with`].
    pub fn wait(mut self) -> Result<Committed, Error> {
        let written = self.written.take();
        outcome(&self.db, written, self.handle.wait())
    }
}

impl Committing for PendingCommit {
    fn is_lone(&self) -> bool {
        self.handle.is_lone()
    }

    fn drive(&mut self) {
        self.handle.drive();
    }
}

impl Future for PendingCommit {
    type Output = Result<Committed, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let committed = std::task::ready!(Pin::new(&mut self.handle).poll(context));
        let written = self.written.take();
        Poll::Ready(outcome(&self.db, written, committed))
    }
}
