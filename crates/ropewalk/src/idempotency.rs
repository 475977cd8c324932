//! Stored results of transactions by idempotency key: a repeated request gets the first results and writes
//! nothing.
//!
//! ```text
//! sys.transactions   r caller 0 key    version 1 | microseconds since 1970 i64 | SHA-256 of the request | results | commit u64
//!                    a time u64, big endian, then the key above   bytes of the record u32; orders them by age
//! results            n u32 | n times: 0, length u32, bytes of the protocol; or 1, length u32, store, events u64,
//!                    events before it in the commit u64 (an append)
//! ```
//! The record is part of the commit that it describes, so it exists exactly if the transaction was committed,
//! also after a crash. The engine adds the number of the commit; positions of appended events follow from it.
//! Two copies of a request that run concurrently conflict on the key: the second to commit runs again, and finds
//! the result of the first. A record is valid for 24 hours, and then deleted by a caller of
//! [`IdempotencyRecords::delete_expired`].
//!
//! Not here: hashes of requests, encodings of results, limits for each caller.

use core::time::Duration;
use std::collections::HashMap;

use ropewalk_base::{Position, Seq};
use ropewalk_engine::{Durability, Isolation, KeyspaceOptions};
use ropewalk_events::{EventStore, Query, ReadOptions};

use crate::database::Database;
use crate::database::transaction::Transaction;
use crate::error::{Error, IdempotencyError, Result};
use crate::keyspace::Keyspace;

/// Longest idempotency key, bytes.
pub const KEY_BYTES_MAX: usize = 255;
/// Time for which the results of an idempotency key are stored.
pub const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);
/// Most bytes of the results of a transaction with a key.
pub const RESULTS_BYTES_MAX: usize = 1 << 20;
/// Most records that one call of [`IdempotencyRecords::delete_expired`] deletes.
pub const DELETED_MAX: usize = 1_000;
/// Records visited at a time: some milliseconds.
const VISITED_MAX: usize = 10_000;
const KEYSPACE: &str = "sys.transactions";
const VERSION: u8 = 1;
/// Most attempts to delete old records.
const ATTEMPTS: usize = 3;
const PREFIX: u8 = b'r';
const AGES: u8 = b'a';
const AGE_BYTES: usize = 9;
const HASH_BYTES: usize = 32;

/// The idempotency key of a request, unique for its caller, and the hash of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestKey {
    key: Vec<u8>,
    hash: [u8; HASH_BYTES],
}

impl RequestKey {
    /// The key `key` of `caller` for a request with this SHA-256.
    ///
    /// # Errors
    /// [`IdempotencyError::Key`] for a key that is empty, longer than [`KEY_BYTES_MAX`], or contains control
    /// characters.
    pub fn new(caller: &str, key: &str, hash: [u8; HASH_BYTES]) -> Result<Self> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX || key.chars().any(char::is_control) {
            return Err(IdempotencyError::Key { max: KEY_BYTES_MAX }.into());
        }
        let key = [&[PREFIX], caller.as_bytes(), b"\0", key.as_bytes()].concat();
        Ok(Self { key, hash })
    }

    /// The caller.
    pub fn caller(&self) -> &str {
        caller_of(&self.key)
    }
}

/// Positions of an append in a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendPositions {
    /// The event store.
    pub store: String,
    /// Number of events.
    pub events: u64,
    /// Index among all appends of the transaction, including those of SQL statements.
    pub index: usize,
    /// Number of events that earlier appends of the transaction add to the store.
    pub before: u64,
    /// Position of the first event; zero without events, or before the commit.
    pub first: Position,
    /// Position of the last event.
    pub last: Position,
}

impl AppendPositions {
    /// The next append of `tx`, of so many events, whose positions are not known yet.
    pub fn pending(tx: &Transaction, store: &EventStore, events: usize) -> Self {
        Self {
            store: store.name().to_owned(),
            events: events as u64,
            index: tx.pending_appends(),
            before: tx.pending_events(store),
            first: Position::ZERO,
            last: Position::ZERO,
        }
    }
}

/// The result of one operation, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredResult {
    /// Encoded by the protocol.
    Encoded(Vec<u8>),
    /// An append, whose positions are known after the commit.
    Appended(AppendPositions),
}

/// The stored results of a committed transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedResults {
    /// The commit.
    pub seq: Seq,
    /// The result of each operation, in order.
    pub results: Vec<StoredResult>,
}

/// Size of a record that was put, and of the one that it replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordSize {
    /// Bytes of the record.
    pub bytes: u64,
    /// Bytes of an expired record of the key, if it is still stored.
    pub replaced: Option<u64>,
}

/// The stored results of the transactions of one database. Cheap to clone.
#[derive(Clone)]
pub struct IdempotencyRecords {
    db: Database,
    keyspace: Keyspace,
}

impl Database {
    /// Returns the stored results of transactions by idempotency key. No stable API.
    ///
    /// # Errors
    /// The manifest cannot be written.
    #[doc(hidden)]
    pub fn idempotency_records(&self) -> Result<IdempotencyRecords> {
        let keyspace = self.keyspace(KEYSPACE, KeyspaceOptions::default())?;
        Ok(IdempotencyRecords { db: self.clone(), keyspace })
    }
}

impl IdempotencyRecords {
    /// The results of an earlier transaction with the key.
    ///
    /// # Errors
    /// [`IdempotencyError::Mismatch`]; stored data is corrupt.
    pub fn find(&self, tx: &mut Transaction, key: &RequestKey) -> Result<Option<RecordedResults>> {
        let Some(stored) = tx.get(self.keyspace, &key.key)? else { return Ok(None) };
        let record = decode(&stored).ok_or(IdempotencyError::Damaged)?;
        if self.is_expired(record.time_micros) {
            return Ok(None);
        }
        if record.hash != key.hash {
            return Err(IdempotencyError::Mismatch.into());
        }
        let mut recorded = RecordedResults { seq: record.seq, results: record.results };
        self.find_positions(&mut recorded)?;
        Ok(Some(recorded))
    }

    /// Records the results in the transaction that they are of.
    ///
    /// # Errors
    /// [`IdempotencyError::TooLarge`]; stored data is corrupt.
    pub fn put(
        &self,
        tx: &mut Transaction,
        key: &RequestKey,
        results: &[StoredResult],
    ) -> Result<RecordSize> {
        let now = self.db.engine().env().clock.wall_micros();
        let value = encode(now, &key.hash, results);
        if value.len() > RESULTS_BYTES_MAX {
            return Err(IdempotencyError::TooLarge { bytes: value.len(), max: RESULTS_BYTES_MAX }.into());
        }
        let bytes = u32::try_from(value.len() + key.key.len()).unwrap_or(u32::MAX);
        // One that is still there has expired.
        let mut replaced = None;
        if let Some(stored) = tx.get(self.keyspace, &key.key)?
            && let Some(record) = decode(&stored)
        {
            let age = age_key(record.time_micros, &key.key);
            replaced = tx.get(self.keyspace, &age)?.map(|stored| recorded_bytes(&stored));
            tx.delete(self.keyspace, &age);
        }
        tx.put_stamped(self.keyspace, &key.key, &value);
        tx.put(self.keyspace, &age_key(now, &key.key), &bytes.to_le_bytes());
        Ok(RecordSize { bytes: u64::from(bytes), replaced })
    }

    /// Calls `each` with caller and bytes of some records, oldest first, from `next` on, which is empty at the
    /// beginning. Returns whether there are more records from before `until_micros`.
    ///
    /// # Errors
    /// Stored data is corrupt.
    pub fn visit(
        &self,
        next: &mut Vec<u8>,
        until_micros: i64,
        each: &mut dyn FnMut(&str, u64),
    ) -> Result<bool> {
        let until = age_key(until_micros, &[]);
        if next.is_empty() {
            next.push(AGES);
        }
        let snapshot = self.db.snapshot();
        let mut cursor = snapshot.cursor(self.keyspace);
        cursor.seek(next.as_slice())?;
        for _ in 0..VISITED_MAX {
            if !cursor.valid() || cursor.key() >= until.as_slice() {
                return Ok(false);
            }
            each(caller_of_age(cursor.key()), recorded_bytes(cursor.value()));
            cursor.next()?;
        }
        if !cursor.valid() {
            return Ok(false);
        }
        *next = cursor.key().to_vec();
        Ok(true)
    }

    /// Deletes at most [`DELETED_MAX`] records older than [`RETENTION`]; returns caller and bytes of each.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn delete_expired(&self) -> Result<Vec<(String, u64)>> {
        let retention = i64::try_from(RETENTION.as_micros()).unwrap_or(i64::MAX);
        let until = age_key(self.db.engine().env().clock.wall_micros().saturating_sub(retention), &[]);
        let snapshot = self.db.snapshot();
        let mut cursor = snapshot.cursor(self.keyspace);
        let (mut expired, mut deleted) = (Vec::new(), Vec::new());
        cursor.seek(&[AGES])?;
        while cursor.valid() && cursor.key() < until.as_slice() && expired.len() < DELETED_MAX {
            expired.push(cursor.key().to_vec());
            deleted.push((caller_of_age(cursor.key()).to_owned(), recorded_bytes(cursor.value())));
            cursor.next()?;
        }
        if expired.is_empty() {
            return Ok(deleted);
        }
        self.db.transact_with(Isolation::Snapshot, Durability::Buffered, ATTEMPTS, |tx| {
            for age in &expired {
                let record = age.get(AGE_BYTES..).expect("the key of an age ends with that of its record");
                // An expired key may have been used again since then.
                let stored = tx.get(self.keyspace, record)?;
                if stored
                    .and_then(|stored| decode(&stored))
                    .is_none_or(|record| self.is_expired(record.time_micros))
                {
                    tx.delete(self.keyspace, record);
                }
                tx.delete(self.keyspace, age);
            }
            Ok::<_, Error>(())
        })?;
        Ok(deleted)
    }

    fn is_expired(&self, time_micros: i64) -> bool {
        let age = self.db.engine().env().clock.wall_micros().saturating_sub(time_micros);
        u64::try_from(age).is_ok_and(|age| Duration::from_micros(age) > RETENTION)
    }

    /// Finds the positions of the appends by the number of their commit.
    fn find_positions(&self, recorded: &mut RecordedResults) -> Result<()> {
        let mut firsts: HashMap<String, Option<Position>> = HashMap::new();
        for result in &mut recorded.results {
            let StoredResult::Appended(appended) = result else { continue };
            if appended.events == 0 {
                continue;
            }
            let first = match firsts.get(&appended.store) {
                Some(first) => *first,
                None => {
                    let first = self.first_of(&appended.store, recorded.seq)?;
                    firsts.insert(appended.store.clone(), first);
                    first
                }
            };
            // A store that was deleted since then has no positions.
            let Some(first) = first else { continue };
            appended.first = Position(first.0 + appended.before);
            appended.last = Position(appended.first.0 + appended.events - 1);
        }
        Ok(())
    }

    /// The first event of a commit in a store. Cost: a read of one event for each bit of the store's length.
    fn first_of(&self, store: &str, seq: Seq) -> Result<Option<Position>> {
        let store = self.db.events(store)?;
        let seq_at = |position: u64| -> Result<Option<Seq>> {
            let options =
                ReadOptions { from: Some(Position(position)), limit: Some(1), ..ReadOptions::default() };
            let event = store.read(&Query::all(), options)?.next().transpose()?;
            Ok(event.map(|event| event.seq))
        };
        let (mut low, mut high) = (1, store.head()?.map_or(0, |head| head.0) + 1);
        while low < high {
            let middle = low + (high - low) / 2;
            match seq_at(middle)? {
                Some(found) if found < seq => low = middle + 1,
                _ => high = middle,
            }
        }
        Ok((seq_at(low)? == Some(seq)).then_some(Position(low)))
    }
}

/// The bytes of the record of an age.
fn recorded_bytes(value: &[u8]) -> u64 {
    <[u8; 4]>::try_from(value).map_or(0, |bytes| u64::from(u32::from_le_bytes(bytes)))
}

/// The caller in the key of a record.
fn caller_of(record: &[u8]) -> &str {
    let named = record.strip_prefix(&[PREFIX]).unwrap_or_default();
    let caller = named.split(|byte| *byte == 0).next().unwrap_or_default();
    std::str::from_utf8(caller).unwrap_or_default()
}

/// The caller in the key of an age.
fn caller_of_age(age: &[u8]) -> &str {
    age.get(AGE_BYTES..).map_or("", caller_of)
}

/// The key that orders a record by its age.
fn age_key(time_micros: i64, record: &[u8]) -> Vec<u8> {
    let time = u64::try_from(time_micros).unwrap_or_default();
    [&[AGES], time.to_be_bytes().as_slice(), record].concat()
}

struct Record {
    time_micros: i64,
    hash: [u8; HASH_BYTES],
    results: Vec<StoredResult>,
    seq: Seq,
}

fn encode(time_micros: i64, hash: &[u8; HASH_BYTES], results: &[StoredResult]) -> Vec<u8> {
    let mut out = vec![VERSION];
    out.extend_from_slice(&time_micros.to_le_bytes());
    out.extend_from_slice(hash);
    out.extend_from_slice(&(results.len() as u32).to_le_bytes());
    let put = |out: &mut Vec<u8>, bytes: &[u8]| {
        out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        out.extend_from_slice(bytes);
    };
    for result in results {
        match result {
            StoredResult::Encoded(bytes) => {
                out.push(0);
                put(&mut out, bytes);
            }
            StoredResult::Appended(appended) => {
                out.push(1);
                put(&mut out, appended.store.as_bytes());
                out.extend_from_slice(&appended.events.to_le_bytes());
                out.extend_from_slice(&appended.before.to_le_bytes());
            }
        }
    }
    out
}

fn decode(mut stored: &[u8]) -> Option<Record> {
    fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
        let (head, rest) = bytes.split_first_chunk::<N>()?;
        *bytes = rest;
        Some(*head)
    }
    fn text<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
        let length = usize::try_from(u32::from_le_bytes(take(bytes)?)).ok()?;
        let (head, rest) = bytes.split_at_checked(length)?;
        *bytes = rest;
        Some(head)
    }
    let bytes = &mut stored;
    if take::<1>(bytes)? != [VERSION] {
        return None;
    }
    let time_micros = i64::from_le_bytes(take(bytes)?);
    let hash = take(bytes)?;
    let count = u32::from_le_bytes(take(bytes)?);
    let mut results = Vec::new();
    for _ in 0..count {
        results.push(match take::<1>(bytes)? {
            [0] => StoredResult::Encoded(text(bytes)?.to_vec()),
            [1] => StoredResult::Appended(AppendPositions {
                store: String::from_utf8(text(bytes)?.to_vec()).ok()?,
                events: u64::from_le_bytes(take(bytes)?),
                before: u64::from_le_bytes(take(bytes)?),
                index: 0,
                first: Position::ZERO,
                last: Position::ZERO,
            }),
            _ => return None,
        });
    }
    let seq = Seq(u64::from_le_bytes(take(bytes)?));
    bytes.is_empty().then_some(Record { time_micros, hash, results, seq })
}
