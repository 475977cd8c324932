//! A transaction over ordered keyspaces before it commits: one snapshot, private writes, what was read.
//!
//!   get, visit ─▶ own writes over the snapshot ─▶ noted as read        commit ─▶ [`KvBatch`]: writes, reads, guards
//!
//! Reads are noted under [`Isolation::Serializable`] only. A *guard* holds at every isolation: models put it
//! on the keys that their own rules depend on, such as the row that an index entry belongs to. Savepoints cut
//! a journal of overwritten values, so their cost is proportional to later writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ropewalk_base::Seq;
use ropewalk_store::Keyspace;

use crate::commit::locks::{Held, LockGrant, LockMode, LockRefusal, LockWait};
use crate::engine::{Engine, TRANSACTION_BYTES_MAX};
use crate::error::{EngineError, Result};
use crate::kv::{Guard, Isolation, KvBatch};
use crate::model::version::Snapshot;
use crate::span::KeySpan;

type Writes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

struct Undo {
    keyspace: Keyspace,
    key: Vec<u8>,
    before: Option<Option<Vec<u8>>>,
}

impl Undo {
    /// Bytes that the entry took in the writes.
    fn write_bytes(&self) -> usize {
        self.before.as_ref().map_or(0, |value| entry_bytes(&self.key, value))
    }

    fn bytes(&self) -> usize {
        self.key.len() + self.before.iter().flatten().map(Vec::len).sum::<usize>()
    }
}

/// Bytes of a write.
fn entry_bytes(key: &[u8], value: &Option<Vec<u8>>) -> usize {
    key.len() + value.as_ref().map_or(0, Vec::len)
}

/// Largest total size of earlier writes that a transaction overwrites itself, stored for rollback to
/// savepoints.
const JOURNAL_BYTES_MAX: u64 = 4 * TRANSACTION_BYTES_MAX;

/// A savepoint.
#[derive(Debug, Clone, Copy)]
pub struct KvMark {
    journal: usize,
    guards: usize,
    range_deletes: usize,
    sweeps: usize,
    locks: usize,
}

/// Why a statement that locks keys cannot continue. Its writes must be rolled back and the statement
/// restarted at a newer snapshot.
#[derive(Debug)]
pub enum Blocked {
    /// After the lock is granted.
    Wait(LockWait),
    /// At once: a key that was locked has changed since the statement's snapshot.
    Changed,
}

/// A key could not be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// See [`KvTransaction::take_lock_wait`].
    #[error("the statement has to wait for another transaction and to begin again")]
    Again,
    /// Each of several transactions would wait for another of them.
    #[error("deadlock detected: another transaction waits for this one, which would wait for it")]
    Deadlock,
    /// Another transaction holds it, and the caller did not want to wait.
    #[error("another transaction holds the lock")]
    Taken,
    /// More than [`LOCKS_MAX`](crate::commit::locks::LOCKS_MAX).
    #[error("one transaction may hold {} locks", crate::commit::locks::LOCKS_MAX)]
    TooMany,
    /// The check whether the key has changed failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Private writes over a snapshot, and what was read of it. Dropping it forgets everything.
pub struct KvTransaction {
    engine: Arc<Engine>,
    snapshot: Snapshot,
    isolation: Isolation,
    writes: BTreeMap<Keyspace, Writes>,
    range_deletes: Vec<(Keyspace, Vec<u8>, Vec<u8>)>,
    /// Keys deleted at commit without a write-write check.
    sweeps: Vec<(Keyspace, Vec<u8>)>,
    /// Keys whose values end with the number of the commit.
    stamped: BTreeSet<(Keyspace, Vec<u8>)>,
    journal: Vec<Undo>,
    /// Bytes of keys and values in `writes`.
    write_bytes: usize,
    /// Bytes of keys and values in `journal`.
    journal_bytes: usize,
    keys_read: Vec<(Keyspace, Vec<u8>)>,
    ranges_read: Vec<(Keyspace, Vec<u8>, Option<Vec<u8>>)>,
    guards: Vec<Guard>,
    /// The snapshot of the first guard, when later statements read newer ones.
    oldest: Option<Snapshot>,
    /// Statements read no newer commits any more.
    stays: bool,
    /// Statements begin when the caller marks them, and not with each operation of a model.
    marks: bool,
    /// Ranges that are read from another snapshot.
    beside: Vec<Beside>,
    /// The locks it holds, once there was one.
    held: Option<Held>,
    /// Label of its locks in lists.
    label: u32,
    /// The statement locks what it is about to write.
    locks: bool,
    /// The newest visible commit when the statement began; its snapshot may be ahead of that.
    visible: Seq,
    /// The newest commit that was read before it was visible.
    latest_read_seq: Seq,
    blocked: Option<Blocked>,
}

/// A range of keys that only this transaction can read.
struct Beside {
    keyspace: Keyspace,
    start: Vec<u8>,
    end: Option<Vec<u8>>,
    snapshot: Snapshot,
}

impl Beside {
    fn holds(&self, keyspace: Keyspace, key: &[u8]) -> bool {
        let within = self.start.as_slice() <= key && self.end.as_deref().is_none_or(|end| key < end);
        self.keyspace == keyspace && within
    }

    fn holds_range(&self, keyspace: Keyspace, start: &[u8], end: Option<&[u8]>) -> bool {
        let ends_within = match (self.end.as_deref(), end) {
            (None, _) => true,
            (Some(own), Some(end)) => end <= own,
            (Some(_), None) => false,
        };
        self.holds(keyspace, start) && ends_within
    }
}

impl KvTransaction {
    /// Begins at the newest visible commit.
    pub fn new(engine: Arc<Engine>, isolation: Isolation) -> Self {
        let snapshot = engine.snapshot();
        Self::over(engine, isolation, snapshot)
    }

    /// Begins at `snapshot`, which all of its statements read. Its commit is validated since then.
    pub fn at(engine: Arc<Engine>, isolation: Isolation, snapshot: Snapshot) -> Self {
        Self { stays: true, ..Self::over(engine, isolation, snapshot) }
    }

    fn over(engine: Arc<Engine>, isolation: Isolation, snapshot: Snapshot) -> Self {
        Self {
            engine,
            snapshot,
            isolation,
            writes: BTreeMap::new(),
            range_deletes: Vec::new(),
            sweeps: Vec::new(),
            stamped: BTreeSet::new(),
            journal: Vec::new(),
            write_bytes: 0,
            journal_bytes: 0,
            keys_read: Vec::new(),
            ranges_read: Vec::new(),
            guards: Vec::new(),
            oldest: None,
            stays: false,
            marks: false,
            beside: Vec::new(),
            held: None,
            label: 0,
            locks: false,
            visible: Seq::ZERO,
            latest_read_seq: Seq::ZERO,
            blocked: None,
        }
    }

    /// The engine it will commit to.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Snapshot of the current statement.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Isolation level.
    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// True when something was written.
    pub fn has_writes(&self) -> bool {
        !(self.range_deletes.is_empty() && self.sweeps.is_empty())
            || self.writes.values().any(|writes| !writes.is_empty())
    }

    /// Begins an operation of a model, which is a separate statement unless the caller
    /// [marks](Self::mark_statement) them.
    pub fn begin_statement(&mut self) {
        if !self.marks {
            self.advance();
        }
    }

    /// Begins a statement of several operations: all reads and writes up to the next mark use one snapshot.
    /// With [`Isolation::ReadCommitted`] that is the newest commit.
    pub fn mark_statement(&mut self) {
        self.marks = true;
        self.locks = false;
        self.advance();
    }

    /// As [`KvTransaction::mark_statement`], for a statement that locks the keys which it is about to write.
    /// With [`Isolation::ReadCommitted`] it reads commits that are in the log's order, durable or not, since
    /// their locks are released. See [`KvTransaction::latest_read_seq`].
    pub fn mark_locking_statement(&mut self) {
        self.marks = true;
        self.locks = self.isolation == Isolation::ReadCommitted;
        self.blocked = None;
        self.advance();
    }

    /// True when writers of keys are to [lock](KvTransaction::lock) them.
    pub fn is_locking(&self) -> bool {
        self.locks
    }

    /// Highest commit this transaction may have read before it was visible. Do not return results to the
    /// client until that commit is visible; a commit of the transaction itself comes after it in the log.
    pub fn latest_read_seq(&self) -> Seq {
        self.latest_read_seq
    }

    /// Makes [`KvTransaction::latest_read_seq`] cover all reads of the statement, not only the keys that it locked.
    pub fn depend_on_all_reads(&mut self) {
        if self.snapshot.seq() > self.visible && self.locks {
            self.latest_read_seq = self.latest_read_seq.max(self.snapshot.seq());
        }
    }

    /// True when the statement has to begin again because of a change that it has seen, and may lock more before it does.
    pub fn needs_statement_restart(&self) -> bool {
        matches!(self.blocked, Some(Blocked::Changed))
    }

    /// Why the statement has to begin again.
    pub fn take_lock_wait(&mut self) -> Option<Blocked> {
        self.blocked.take()
    }

    /// Lists its locks under a label of the caller, such as a session number: [`LockHolder::label`].
    ///
    /// [`LockHolder::label`]: crate::commit::locks::LockHolder::label
    pub fn set_lock_owner_tag(&mut self, label: u32) {
        self.label = label;
    }

    /// Locks a key until the transaction has its place in the log's order, or ends. When another transaction
    /// holds the lock, or the key has changed since the statement's snapshot, the statement has to begin
    /// again. Without `waits`, a lock held by another transaction is an error.
    ///
    /// # Errors
    /// [`LockError::Again`], with the reason in [`KvTransaction::take_lock_wait`]; a deadlock; too many.
    pub fn lock(
        &mut self,
        keyspace: Keyspace,
        key: &[u8],
        mode: LockMode,
        waits: bool,
    ) -> Result<(), LockError> {
        let held = self.held.get_or_insert_with(|| self.engine.held(self.label));
        match held.take(keyspace, key, mode, waits) {
            Ok(LockGrant::Already) => Ok(()),
            Ok(LockGrant::Now) => self.look(keyspace, key),
            Err(LockRefusal::Waits(wait)) => {
                self.blocked = Some(Blocked::Wait(wait));
                Err(LockError::Again)
            }
            Err(LockRefusal::Taken) => Err(LockError::Taken),
            Err(LockRefusal::Deadlock) => Err(LockError::Deadlock),
            Err(LockRefusal::TooMany) => Err(LockError::TooMany),
        }
    }

    /// True when the newest state may differ from the statement's snapshot.
    fn may_differ(&self) -> bool {
        let is_fresh = self.snapshot.seq() == self.visible && self.engine.ordered() == self.visible;
        // With one snapshot for the whole transaction a restart would read the same state: the commit will be
        // refused.
        self.isolation == Isolation::ReadCommitted && !self.stays && !is_fresh
    }

    /// Decides about the newest change of a locked key.
    fn judge(&mut self, changed: Option<Seq>) -> Result<(), LockError> {
        match changed {
            None => Ok(()),
            Some(seq) if seq <= self.snapshot.seq() => {
                self.latest_read_seq = self.latest_read_seq.max(seq);
                Ok(())
            }
            Some(seq) if seq <= self.engine.ordered() => {
                self.blocked = Some(Blocked::Changed);
                Err(LockError::Again)
            }
            // Written by a transaction that takes no locks, and not ordered yet: validation at commit
            // decides.
            Some(_) => Ok(()),
        }
    }

    fn look(&mut self, keyspace: Keyspace, key: &[u8]) -> Result<(), LockError> {
        if !self.may_differ() {
            return Ok(());
        }
        let changed = self.engine.changed(keyspace, key, self.visible)?;
        self.judge(changed)
    }

    /// Checks whether a range protected by locks of others has changed since the statement's snapshot.
    ///
    /// # Errors
    /// [`LockError::Again`].
    pub fn recheck_range(
        &mut self,
        keyspace: Keyspace,
        start: &[u8],
        end: Option<&[u8]>,
    ) -> Result<(), LockError> {
        if !self.may_differ() {
            return Ok(());
        }
        let changed = self.engine.changed_in(keyspace, (start, end), self.visible)?;
        self.judge(changed)
    }

    fn advance(&mut self) {
        if self.isolation == Isolation::ReadCommitted && !self.stays {
            // Read the visible commit first: the ordered commit read later cannot be older.
            self.visible = self.engine.seq();
            let ahead = self.locks || self.latest_read_seq > self.visible;
            let newest = if ahead { self.engine.snapshot_ahead() } else { self.engine.snapshot() };
            if !self.locks && ahead {
                self.latest_read_seq = self.latest_read_seq.max(newest.seq());
            }
            let earlier = std::mem::replace(&mut self.snapshot, newest);
            if self.oldest.is_none() && !self.guards.is_empty() {
                self.oldest = Some(earlier);
            }
        }
    }

    /// From here on every statement reads the snapshot of this one: for models whose own writes, such as a changed
    /// definition, make sense only of what was there with them.
    pub fn pin_statement_snapshot(&mut self) {
        self.stays = true;
    }

    /// Makes the transaction read `snapshot` within this range: for keys that no other transaction can reach
    /// before the commit, such as those it loaded in earlier commits, or without the log. Its reads, writes
    /// and guards of keys in the range are not validated: only those earlier commits have written there.
    pub fn read_range_from(
        &mut self,
        keyspace: Keyspace,
        start: &[u8],
        end: Option<&[u8]>,
        snapshot: Snapshot,
    ) {
        let (start, end) = (start.to_vec(), end.map(<[u8]>::to_vec));
        self.beside.push(Beside { keyspace, start, end, snapshot });
    }

    /// The snapshot from which `key` is read.
    fn base(&self, keyspace: Keyspace, key: &[u8]) -> &Snapshot {
        let beside = self.beside.iter().rfind(|beside| beside.holds(keyspace, key));
        beside.map_or(&self.snapshot, |beside| &beside.snapshot)
    }

    fn own(&self, keyspace: Keyspace, key: &[u8]) -> Option<&Option<Vec<u8>>> {
        self.writes.get(&keyspace)?.get(key)
    }

    /// True when the transaction itself wrote or deleted the key.
    pub fn wrote(&self, keyspace: Keyspace, key: &[u8]) -> bool {
        self.own(keyspace, key).is_some()
    }

    /// The value of `key`, own writes included.
    ///
    /// # Errors
    /// Damage.
    pub fn get(&mut self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if let Some(own) = self.own(keyspace, key) {
            return Ok(own.clone());
        }
        self.note_read(keyspace, key);
        Ok(self.base(keyspace, key).reading().view().get(keyspace, key)?.map(|value| value.to_vec()))
    }

    /// The value of `key`, own writes included, without noting a read: for keys that a guard or an own write
    /// protects anyway.
    ///
    /// # Errors
    /// Damage.
    pub fn peek(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if let Some(own) = self.own(keyspace, key) {
            return Ok(own.clone());
        }
        Ok(self.base(keyspace, key).reading().view().get(keyspace, key)?.map(|value| value.to_vec()))
    }

    /// Notes that `key` was read some other way.
    pub fn note_read(&mut self, keyspace: Keyspace, key: &[u8]) {
        if self.isolation == Isolation::Serializable {
            self.keys_read.push((keyspace, key.to_vec()));
        }
    }

    /// Passes the keys of `span` with their values, own writes included, to `each` until it returns false. Only
    /// the scanned part counts as read.
    ///
    /// # Errors
    /// Damage.
    pub fn visit(
        &mut self,
        keyspace: Keyspace,
        span: KeySpan<'_>,
        mut each: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let KeySpan { start, end, backward } = span;
        if end.is_some_and(|end| end <= start) {
            return Ok(());
        }
        let mut stopped_at = None;
        let base = self.beside.iter().rfind(|beside| beside.holds(keyspace, start));
        let base = base.map_or(&self.snapshot, |beside| &beside.snapshot);
        let reading = base.reading();
        let mut cursor = reading.view().cursor(keyspace);
        span.seek(&mut cursor)?;
        let empty = Writes::new();
        let own = self.writes.get(&keyspace).unwrap_or(&empty);
        let bound = end.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        let mut own = own.range::<[u8], _>((std::ops::Bound::Included(start), bound));
        let mut pull = || if backward { own.next_back() } else { own.next() };
        let mut next_own = pull();
        loop {
            let stored = (cursor.valid() && span.contains(cursor.key())).then(|| cursor.key());
            let own_first = match (next_own, stored) {
                (None, None) => break,
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (Some((own, _)), Some(stored)) if backward => own.as_slice() >= stored,
                (Some((own, _)), Some(stored)) => own.as_slice() <= stored,
            };
            let goes_on = match next_own {
                Some((key, value)) if own_first => {
                    if stored == Some(key.as_slice()) {
                        span.advance(&mut cursor)?;
                    }
                    next_own = pull();
                    let goes_on = value.as_ref().is_none_or(|value| each(key, value));
                    if !goes_on {
                        stopped_at = Some(key.clone());
                    }
                    goes_on
                }
                _ => {
                    let goes_on = each(cursor.key(), cursor.value());
                    if !goes_on {
                        stopped_at = Some(cursor.key().to_vec());
                    }
                    span.advance(&mut cursor)?;
                    goes_on
                }
            };
            if !goes_on {
                break;
            }
        }
        if self.isolation == Isolation::Serializable {
            let (from, to) = match (stopped_at, backward) {
                (None, _) => (start.to_vec(), end.map(<[u8]>::to_vec)),
                (Some(mut last), false) => {
                    last.push(0);
                    (start.to_vec(), Some(last))
                }
                (Some(last), true) => (last, end.map(<[u8]>::to_vec)),
            };
            self.ranges_read.push((keyspace, from, to));
        }
        Ok(())
    }

    fn set(&mut self, keyspace: Keyspace, key: &[u8], value: Option<Vec<u8>>) {
        self.write_bytes += entry_bytes(key, &value);
        let before = self.writes.entry(keyspace).or_default().insert(key.to_vec(), value);
        self.log_undo(Undo { keyspace, key: key.to_vec(), before });
    }

    fn log_undo(&mut self, undo: Undo) {
        self.write_bytes -= undo.write_bytes();
        self.journal_bytes += undo.bytes();
        self.journal.push(undo);
    }

    /// Bytes of its keys and values, with those that it overwrote and holds for rollback.
    pub fn bytes(&self) -> usize {
        self.write_bytes + self.journal_bytes
    }

    /// Checks the memory of the transaction. Call it after each write, so that a transaction that could not be committed fails before
    /// it takes more memory than a record may have.
    ///
    /// # Errors
    /// [`EngineError::TooLarge`]: the writes exceed [`TRANSACTION_BYTES_MAX`], or what they overwrote exceeds
    /// `JOURNAL_BYTES_MAX`.
    pub fn check_size(&self) -> Result<()> {
        let bounds = [(self.write_bytes, TRANSACTION_BYTES_MAX), (self.journal_bytes, JOURNAL_BYTES_MAX)];
        match bounds.into_iter().find(|(bytes, max)| *bytes as u64 > *max) {
            Some((bytes, max)) => Err(EngineError::TooLarge { bytes: bytes as u64, max }),
            None => Ok(()),
        }
    }

    /// Writes `key`.
    pub fn put(&mut self, keyspace: Keyspace, key: &[u8], value: &[u8]) {
        debug_assert!(
            self.stamped.is_empty() || !self.stamped.contains(&(keyspace, key.to_vec())),
            "a key is written stamped or not"
        );
        self.set(keyspace, key, Some(value.to_vec()));
    }

    /// Writes `key` with `value` followed by the number of the commit: eight
    /// bytes, little endian. Own reads see the value without the number. All writes of such a key in this
    /// transaction must be stamped.
    pub fn put_stamped(&mut self, keyspace: Keyspace, key: &[u8], value: &[u8]) {
        self.set(keyspace, key, Some(value.to_vec()));
        self.stamped.insert((keyspace, key.to_vec()));
    }

    /// Deletes `key`.
    pub fn delete(&mut self, keyspace: Keyspace, key: &[u8]) {
        self.set(keyspace, key, None);
    }

    /// Deletes `key` at commit, even if others wrote it meanwhile. For keys that are written outside of
    /// transactions and are unreachable by then; the transaction itself must not read it.
    pub fn delete_unconditionally(&mut self, keyspace: Keyspace, key: &[u8]) {
        self.sweeps.push((keyspace, key.to_vec()));
    }

    /// Deletes the keys from `start` up to `end` at commit, even those that others wrote meanwhile: for
    /// ranges whose writers are excluded by a guard, such as the rows of a dropped table. The transaction
    /// itself must not read that range any more; own writes in it are dropped.
    pub fn sweep_range(&mut self, keyspace: Keyspace, start: &[u8], end: &[u8]) {
        if let Some(writes) = self.writes.get_mut(&keyspace) {
            let mut inside = writes.split_off(start);
            let mut behind = inside.split_off(end);
            writes.append(&mut behind);
            for (key, value) in inside {
                self.log_undo(Undo { keyspace, key, before: Some(value) });
            }
        }
        self.range_deletes.push((keyspace, start.to_vec(), end.to_vec()));
    }

    /// At commit no other transaction must have written `key` since the snapshot of this statement.
    pub fn guard_key(&mut self, keyspace: Keyspace, key: &[u8]) {
        self.guards.push(Guard::Unchanged(keyspace, key.to_vec(), self.snapshot.seq()));
    }

    /// At commit no other transaction must have written into the range since the snapshot of this statement.
    pub fn guard_range(&mut self, keyspace: Keyspace, start: &[u8], end: Option<&[u8]>) {
        let end = end.map(<[u8]>::to_vec);
        self.guards.push(Guard::RangeUnchanged(keyspace, start.to_vec(), end, self.snapshot.seq()));
    }

    /// At commit `key` must be there, unless the transaction itself puts it, or deletes it after all.
    pub fn guard_exists(&mut self, keyspace: Keyspace, key: &[u8]) {
        self.guards.push(Guard::Exists(keyspace, key.to_vec()));
    }

    /// Sets a savepoint.
    pub fn mark(&self) -> KvMark {
        KvMark {
            journal: self.journal.len(),
            guards: self.guards.len(),
            range_deletes: self.range_deletes.len(),
            sweeps: self.sweeps.len(),
            locks: self.held.as_ref().map_or(0, Held::len),
        }
    }

    /// Releases the locks taken since `mark`: nothing that depends on them is left.
    pub fn release_since(&mut self, mark: KvMark) {
        if let Some(held) = &mut self.held {
            held.release_since(mark.locks);
        }
    }

    /// Rolls back every write since `mark`. Reads stay noted, and facts learned by writing (that a key was
    /// free, that a guard held) count as reads from here on.
    pub fn rollback_to(&mut self, mark: KvMark) {
        while self.journal.len() > mark.journal {
            let undo = self.journal.pop().expect("more than at the mark");
            self.note_read(undo.keyspace, &undo.key);
            self.journal_bytes -= undo.bytes();
            self.write_bytes += undo.write_bytes();
            let writes = self.writes.entry(undo.keyspace).or_default();
            let undone = match undo.before {
                Some(value) => writes.insert(undo.key.clone(), value),
                None => writes.remove(&undo.key),
            };
            self.write_bytes -= undone.map_or(0, |value| entry_bytes(&undo.key, &value));
        }
        while self.guards.len() > mark.guards {
            match self.guards.pop() {
                Some(Guard::Unchanged(keyspace, key, _) | Guard::Exists(keyspace, key)) => {
                    self.note_read(keyspace, &key);
                }
                Some(Guard::RangeUnchanged(keyspace, start, end, _)) => {
                    if self.isolation == Isolation::Serializable {
                        self.ranges_read.push((keyspace, start, end));
                    }
                }
                None => unreachable!("more guards than at the mark"),
            }
        }
        self.range_deletes.truncate(mark.range_deletes);
        self.sweeps.truncate(mark.sweeps);
    }

    /// Releases all locks.
    pub fn release_all(&mut self) {
        self.held = None;
    }

    /// True when the transaction itself put or deleted the key, alone or with a range.
    fn decides(&self, keyspace: Keyspace, key: &[u8]) -> bool {
        let covers = |(space, start, end): &(Keyspace, Vec<u8>, Vec<u8>)| {
            *space == keyspace && start.as_slice() <= key && key < end.as_slice()
        };
        self.wrote(keyspace, key) || self.range_deletes.iter().any(covers)
    }

    /// Writes, reads and guards as one operation.
    pub fn into_batch(mut self) -> KvBatch {
        debug_assert_eq!(
            (self.write_bytes, self.journal_bytes),
            (
                self.writes.values().flatten().map(|(key, value)| entry_bytes(key, value)).sum::<usize>(),
                self.journal.iter().map(Undo::bytes).sum::<usize>(),
            ),
            "the sizes of a transaction are those of its writes"
        );
        let mut batch = KvBatch::validated(self.snapshot.seq(), self.isolation);
        let beside = std::mem::take(&mut self.beside);
        let is_private =
            |keyspace: Keyspace, key: &[u8]| beside.iter().any(|range| range.holds(keyspace, key));
        let is_private_range = |keyspace: Keyspace, start: &[u8], end: Option<&[u8]>| {
            beside.iter().any(|range| range.holds_range(keyspace, start, end))
        };
        self.keys_read.retain(|(keyspace, key)| !is_private(*keyspace, key));
        self.ranges_read.retain(|(keyspace, start, end)| !is_private_range(*keyspace, start, end.as_deref()));
        batch.note_all(std::mem::take(&mut self.keys_read), std::mem::take(&mut self.ranges_read));
        // Whether a key exists that the transaction itself put or deleted is not decided by other commits:
        // its own put exists, and a transaction that deletes a key ensures that no remaining entry refers to
        // it.
        let guards = std::mem::take(&mut self.guards);
        for guard in guards {
            let holds = match &guard {
                Guard::Exists(keyspace, key) => self.decides(*keyspace, key),
                Guard::Unchanged(keyspace, key, _) => is_private(*keyspace, key),
                Guard::RangeUnchanged(keyspace, start, end, _) => {
                    is_private_range(*keyspace, start, end.as_deref())
                }
            };
            if !holds {
                batch.guard(guard);
            }
        }
        for (keyspace, start, end) in &self.range_deletes {
            batch.sweep_range(*keyspace, start, end);
        }
        for (keyspace, writes) in &self.writes {
            for (key, value) in writes {
                let is_stamped = !self.stamped.is_empty() && self.stamped.contains(&(*keyspace, key.clone()));
                match value {
                    Some(value) if is_stamped => batch.put_stamped(*keyspace, key, value),
                    Some(value) => batch.put(*keyspace, key, value),
                    None => batch.delete(*keyspace, key),
                }
                if is_private(*keyspace, key) {
                    batch.exempt_last_write();
                }
            }
        }
        for (keyspace, key) in &self.sweeps {
            batch.delete_unconditionally(*keyspace, key);
        }
        batch.hold(self.held.take());
        batch.pin(self.oldest.unwrap_or(self.snapshot));
        batch
    }
}
