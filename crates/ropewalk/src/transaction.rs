//! Transactions over everything in one database.
//!
//! A transaction reads one snapshot and its own writes, keeps what it writes to itself, and at commit becomes one log
//! record, checked in its place in the order. Nothing is applied before that, so rolling back is forgetting.

use std::collections::BTreeMap;

use ropewalk_engine::{Committed, Durability, Isolation, KvBatch, Operation};
use ropewalk_events::{AppendOptions, Event, EventStore};

use crate::database::{Database, Snapshot};
use crate::error::Error;
use crate::keyspace::Keyspace;

type Writes = BTreeMap<(u16, Vec<u8>), Option<Vec<u8>>>;

/// A transaction. Dropping it rolls it back.
pub struct Transaction {
    db: Database,
    snapshot: Snapshot,
    isolation: Isolation,
    writes: Writes,
    keys_read: Vec<(Keyspace, Vec<u8>)>,
    ranges_read: Vec<(Keyspace, Vec<u8>, Option<Vec<u8>>)>,
    appends: Vec<(EventStore, Vec<Event>, AppendOptions)>,
    savepoints: Vec<(Writes, usize)>,
}

impl Transaction {
    pub(crate) fn new(db: Database, isolation: Isolation) -> Self {
        let snapshot = db.snapshot();
        Self {
            db,
            snapshot,
            isolation,
            writes: Writes::new(),
            keys_read: Vec::new(),
            ranges_read: Vec::new(),
            appends: Vec::new(),
            savepoints: Vec::new(),
        }
    }

    /// What the transaction reads. With [`Isolation::ReadCommitted`] each read sees the newest commit.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    fn refresh(&mut self) {
        if self.isolation == Isolation::ReadCommitted {
            self.snapshot = self.db.snapshot();
        }
    }

    /// The value of `key`, own writes included.
    ///
    /// # Errors
    /// Damage.
    pub fn get(&mut self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.refresh();
        if let Some(own) = self.writes.get(&(keyspace.id(), key.to_vec())) {
            return Ok(own.clone());
        }
        self.keys_read.push((keyspace, key.to_vec()));
        Ok(self.snapshot.get(keyspace, key)?.map(|value| value.to_vec()))
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
        self.refresh();
        self.ranges_read.push((keyspace, start.to_vec(), end.map(<[u8]>::to_vec)));
        let inside = |key: &[u8]| end.is_none_or(|end| key < end);
        let mut own = self
            .writes
            .range((keyspace.id(), start.to_vec())..)
            .take_while(|((id, key), _)| *id == keyspace.id() && inside(key))
            .peekable();
        let mut cursor = self.snapshot.cursor(keyspace);
        cursor.seek(start)?;
        let mut rows = Vec::new();
        while rows.len() < limit {
            let stored = (cursor.valid() && inside(cursor.key())).then(|| cursor.key());
            match (own.peek(), stored) {
                (None, None) => break,
                (Some(((_, key), _)), stored) if stored.is_none_or(|stored| key.as_slice() <= stored) => {
                    let same = stored == Some(key.as_slice());
                    if let Some(((_, key), Some(value))) = own.next() {
                        rows.push((key.clone(), value.clone()));
                    }
                    if same {
                        cursor.next()?;
                    }
                }
                (_, Some(key)) => {
                    rows.push((key.to_vec(), cursor.value().to_vec()));
                    cursor.next()?;
                }
                (Some(_), None) => {}
            }
        }
        Ok(rows)
    }

    /// Writes `key`.
    pub fn put(&mut self, keyspace: Keyspace, key: &[u8], value: &[u8]) {
        self.writes.insert((keyspace.id(), key.to_vec()), Some(value.to_vec()));
    }

    /// Deletes `key`.
    pub fn delete(&mut self, keyspace: Keyspace, key: &[u8]) {
        self.writes.insert((keyspace.id(), key.to_vec()), None);
    }

    /// Appends events to a store when the transaction commits; conditions, tracking and key as in
    /// [`EventStore::append_with`], the durability is the commit's. Refused at once is what can be known at once.
    ///
    /// # Errors
    /// Events or queries over the limits.
    pub fn append(
        &mut self,
        store: &EventStore,
        events: &[Event],
        options: AppendOptions,
    ) -> Result<(), Error> {
        // Built once to check it; built again at commit, when conditions are looked at.
        store.operation(events, AppendOptions { conditions: Vec::new(), ..options.clone() })?;
        self.appends.push((store.clone(), events.to_vec(), options));
        Ok(())
    }

    /// Marks a place to roll back to. Savepoints nest.
    pub fn savepoint(&mut self) {
        self.savepoints.push((self.writes.clone(), self.appends.len()));
    }

    /// Takes back everything since the last savepoint, which is used up. False when there is none.
    pub fn rollback_to_savepoint(&mut self) -> bool {
        let Some((writes, appends)) = self.savepoints.pop() else { return false };
        self.writes = writes;
        self.appends.truncate(appends);
        true
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
    /// The outcomes are those of the appends, in order: first and last position.
    ///
    /// # Errors
    /// [`crate::Class::Conflict`] when a key, a range or a condition no longer holds: nothing was written.
    pub fn commit_with(self, durability: Durability) -> Result<Option<Committed>, Error> {
        let mut operations: Vec<Box<dyn Operation>> = Vec::new();
        for (store, events, options) in &self.appends {
            operations.push(Box::new(store.operation(events, options.clone())?));
        }
        if !self.writes.is_empty() || (!operations.is_empty() && self.isolation == Isolation::Serializable) {
            let mut batch = KvBatch::validated(self.snapshot.seq(), self.isolation);
            for (keyspace, key) in &self.keys_read {
                batch.note_read(keyspace.0, key);
            }
            for (keyspace, start, end) in &self.ranges_read {
                batch.note_range(keyspace.0, start, end.as_deref());
            }
            for ((keyspace, key), value) in &self.writes {
                let keyspace = ropewalk_engine::Keyspace(*keyspace);
                match value {
                    Some(value) => batch.put(keyspace, key, value),
                    None => batch.delete(keyspace, key),
                }
            }
            operations.push(Box::new(batch));
        }
        if operations.is_empty() {
            return Ok(None);
        }
        Ok(Some(self.db.engine.commit(operations, durability)?))
    }
}
