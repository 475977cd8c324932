//! Stored results of transactions by idempotency key.
//!
//! A repeated request gets the first result and writes nothing.
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
//! the result of the first. A record is valid for 24 hours, and then deleted. `key_usage` limits the records
//! of a caller.

use core::time::Duration;
use std::collections::HashMap;
use std::sync::Arc;

use ropewalk::engine::{Keyspace, KeyspaceOptions};
use ropewalk::events::ReadOptions;
use ropewalk::{Database, Durability, Error, Isolation, Position, Query, Seq, Transaction};
use ropewalk_auth::Caller;
use ropewalk_wire::{Code, TransactionLimits, WireError};
use sha2::{Digest, Sha256};

use crate::failure::Cause;
use crate::key_usage::{ByCaller, KeyUsage, Reserved, Usage};
use crate::limits::{KEY_BYTES_MAX, RETENTION};
use crate::operation::Appended;

/// Most bytes of the results of a transaction with a key.
const RESULTS_BYTES_MAX: usize = 1 << 20;
/// Records deleted in one commit.
const DELETED_MAX: usize = 1_000;
/// Records counted at a time: some milliseconds.
const COUNTED_MAX: usize = 10_000;
const KEYSPACE: &str = "sys.transactions";
const VERSION: u8 = 1;
/// Most attempts to delete old records.
const ATTEMPTS: usize = 3;
const PREFIX: u8 = b'r';
const AGES: u8 = b'a';
const AGE_BYTES: usize = 9;
const HASH_BYTES: usize = 32;

/// The key of a request, unique for its caller, and the hash of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    key: Vec<u8>,
    hash: [u8; HASH_BYTES],
}

impl IdempotencyKey {
    /// The key `key` of the caller for the request with this text.
    ///
    /// # Errors
    /// A key that is empty, longer than [`KEY_BYTES_MAX`], or contains control characters.
    pub fn new(caller: &Caller, key: &str, request: &[u8]) -> Result<Self, WireError> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX || key.chars().any(char::is_control) {
            let what = format!("an idempotency key has 1 to {KEY_BYTES_MAX} bytes and no control characters");
            return Err(WireError::invalid(what));
        }
        let stored = [&[PREFIX], caller.principal().as_bytes(), b"\0", key.as_bytes()].concat();
        Ok(Self { key: stored, hash: Sha256::digest(request).into() })
    }
}

/// The result of one operation, as stored and as answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stored {
    /// Encoded by the protocol.
    Encoded(Vec<u8>),
    /// An append, whose positions are known after the commit.
    Appended(Appended),
}

/// The stored result of a committed transaction.
pub(crate) struct Recorded {
    pub(crate) seq: Seq,
    pub(crate) results: Vec<Stored>,
}

/// The records of one database.
#[derive(Clone)]
pub(crate) struct Records {
    db: Database,
    keyspace: Keyspace,
    usage: Arc<KeyUsage>,
}

impl Records {
    pub(crate) fn new(db: &Database) -> Result<Self, Error> {
        let keyspace = db.keyspace(KEYSPACE, KeyspaceOptions::default())?;
        let usage = db.extension::<KeyUsage>();
        usage.since_micros(db.engine().env().clock.wall_micros());
        Ok(Self { db: db.clone(), keyspace, usage })
    }

    /// The number and bytes of the records of each caller.
    pub(crate) fn usage(&self) -> &KeyUsage {
        &self.usage
    }

    /// The result of an earlier transaction with the key.
    ///
    /// # Errors
    /// The key was used for another request.
    pub(crate) fn find(&self, tx: &mut Transaction, key: &IdempotencyKey) -> Result<Option<Recorded>, Cause> {
        let Some(stored) = tx.get(self.keyspace, &key.key)? else { return Ok(None) };
        let record = decode(&stored).ok_or_else(damaged)?;
        if self.is_expired(record.time_micros) {
            return Ok(None);
        }
        if record.hash != key.hash {
            let what = "the idempotency key was used for another request";
            return Err(WireError::new(Code::IdempotencyMismatch, what).into());
        }
        let mut recorded = Recorded { seq: record.seq, results: record.results };
        self.find_positions(&mut recorded)?;
        Ok(Some(recorded))
    }

    /// Records the results in the transaction that they are of. Release the reservation if it is rejected.
    ///
    /// # Errors
    /// The results are too large; the caller has too many keys.
    pub(crate) fn put(
        &self,
        tx: &mut Transaction,
        key: &IdempotencyKey,
        results: &[Stored],
        limits: &TransactionLimits,
    ) -> Result<Reserved, Cause> {
        let now = self.db.engine().env().clock.wall_micros();
        let value = encode(now, &key.hash, results);
        if value.len() > RESULTS_BYTES_MAX {
            let what = "bytes of results of a transaction with an idempotency key";
            return Err(WireError::too_large(what, value.len(), RESULTS_BYTES_MAX).into());
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
        let reserved = self.usage.reserve(caller_of(&key.key), u64::from(bytes), replaced, limits)?;
        tx.put_stamped(self.keyspace, &key.key, &value);
        tx.put(self.keyspace, &age_key(now, &key.key), &bytes.to_le_bytes());
        Ok(reserved)
    }

    /// Counts some of the records that were stored before this process; returns whether there are more.
    pub(crate) fn count_earlier(&self) -> Result<bool, Error> {
        let since = self.usage.since_micros(i64::MAX);
        self.usage.count(|count| {
            let until = age_key(since, &[]);
            if count.next.is_empty() {
                count.next.push(AGES);
            }
            let snapshot = self.db.snapshot();
            let mut cursor = snapshot.cursor(self.keyspace);
            cursor.seek(&count.next)?;
            for _ in 0..COUNTED_MAX {
                if !cursor.valid() || cursor.key() >= until.as_slice() {
                    return Ok(false);
                }
                note(&mut count.found, cursor.key(), cursor.value());
                cursor.next()?;
            }
            if !cursor.valid() {
                return Ok(false);
            }
            count.next = cursor.key().to_vec();
            Ok(true)
        })
    }

    /// Deletes at most a thousand records older than [`RETENTION`]; returns whether there may be more.
    pub(crate) fn delete_expired(&self) -> Result<bool, Error> {
        let mut usage = ByCaller::new();
        let retention = i64::try_from(RETENTION.as_micros()).unwrap_or(i64::MAX);
        let until = age_key(self.db.engine().env().clock.wall_micros().saturating_sub(retention), &[]);
        let snapshot = self.db.snapshot();
        let mut cursor = snapshot.cursor(self.keyspace);
        let mut expired = Vec::new();
        cursor.seek(&[AGES])?;
        while cursor.valid() && cursor.key() < until.as_slice() && expired.len() < DELETED_MAX {
            expired.push(cursor.key().to_vec());
            note(&mut usage, cursor.key(), cursor.value());
            cursor.next()?;
        }
        if expired.is_empty() {
            return Ok(false);
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
        self.usage.subtract(usage);
        Ok(expired.len() == DELETED_MAX)
    }

    fn is_expired(&self, time_micros: i64) -> bool {
        let age = self.db.engine().env().clock.wall_micros().saturating_sub(time_micros);
        u64::try_from(age).is_ok_and(|age| Duration::from_micros(age) > RETENTION)
    }

    /// Finds the positions of the appends by the number of their commit.
    fn find_positions(&self, recorded: &mut Recorded) -> Result<(), Error> {
        let mut firsts: HashMap<String, Option<Position>> = HashMap::new();
        for result in &mut recorded.results {
            let Stored::Appended(appended) = result else { continue };
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
    fn first_of(&self, store: &str, seq: Seq) -> Result<Option<Position>, Error> {
        let store = self.db.events(store)?;
        let seq_at = |position: u64| -> Result<Option<Seq>, Error> {
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

/// Adds the record of an age to the usage of its caller.
fn note(usage: &mut ByCaller, age: &[u8], value: &[u8]) {
    let caller = age.get(AGE_BYTES..).map_or("", caller_of);
    let one = Usage { keys: 1, bytes: recorded_bytes(value) };
    usage.entry(caller.to_owned()).or_default().add(one);
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

/// The key that orders a record by its age.
fn age_key(time_micros: i64, record: &[u8]) -> Vec<u8> {
    let time = u64::try_from(time_micros).unwrap_or_default();
    [&[AGES], time.to_be_bytes().as_slice(), record].concat()
}

struct Record {
    time_micros: i64,
    hash: [u8; HASH_BYTES],
    results: Vec<Stored>,
    seq: Seq,
}

fn encode(time_micros: i64, hash: &[u8; HASH_BYTES], results: &[Stored]) -> Vec<u8> {
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
            Stored::Encoded(bytes) => {
                out.push(0);
                put(&mut out, bytes);
            }
            Stored::Appended(appended) => {
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
            [0] => Stored::Encoded(text(bytes)?.to_vec()),
            [1] => Stored::Appended(Appended {
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

fn damaged() -> Cause {
    let what = "stored data is corrupt: the record of an idempotency key";
    WireError::new(Code::Corrupt, what).into()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ropewalk::Options;
    use ropewalk::engine::Env;
    use ropewalk::testing::{ManualClock, MemoryVfs, SeededRandom};

    use super::*;

    const RESULTS: &[Stored] = &[];

    struct Store {
        clock: Arc<ManualClock>,
        env: Env,
        records: Records,
    }

    fn opened(env: &Env) -> Records {
        Records::new(&Options::new().env(env.clone()).open("/db").unwrap()).unwrap()
    }

    impl Store {
        fn new() -> Self {
            let clock = Arc::new(ManualClock::default());
            let (vfs, random) = (Arc::new(MemoryVfs::default()), Arc::new(SeededRandom::new(1)));
            let env = Env { vfs, clock: clock.clone(), random };
            let records = opened(&env);
            while records.count_earlier().unwrap() {}
            Self { clock, records, env }
        }

        /// Stores the key of a caller at the limit of two keys.
        fn put(&self, key: &str) -> Result<(), Cause> {
            let limits = TransactionLimits { keys_per_caller: 2, ..TransactionLimits::default() };
            let key = IdempotencyKey::new(&Caller::everybody(), key, b"request").unwrap();
            let mut tx = self.records.db.begin();
            if self.records.find(&mut tx, &key)?.is_none() {
                let _ = self.records.put(&mut tx, &key, RESULTS, &limits)?;
            }
            tx.commit()?;
            Ok(())
        }

        fn is_full(&self) -> bool {
            let refused = self.put("more").err();
            refused.is_some_and(
                |cause| matches!(cause, Cause::Wire(error) if error.code == Code::ResourceExhausted),
            )
        }
    }

    #[test]
    fn expired_keys_are_deleted_and_make_room() {
        let store = Store::new();
        store.put("a").unwrap();
        store.clock.advance(RETENTION / 2);
        store.put("b").unwrap();
        store.put("b").unwrap();
        assert!(store.is_full());
        assert!(!store.records.delete_expired().unwrap());
        assert!(store.is_full());
        store.clock.advance(RETENTION / 2 + Duration::from_secs(1));
        store.records.delete_expired().unwrap();
        store.put("c").unwrap();
        assert!(store.is_full());
    }

    #[test]
    fn expired_key_that_is_used_again_counts_once() {
        let store = Store::new();
        store.put("a").unwrap();
        store.put("b").unwrap();
        store.clock.advance(RETENTION + Duration::from_secs(1));
        store.put("a").unwrap();
        assert!(store.is_full());
        store.records.delete_expired().unwrap();
        store.put("c").unwrap();
        assert!(store.is_full());
    }

    #[test]
    fn stored_keys_are_counted_after_opening() {
        let Store { clock, env, records } = Store::new();
        let store = Store { clock: clock.clone(), env: env.clone(), records };
        store.put("a").unwrap();
        store.put("b").unwrap();
        drop(store);
        clock.advance(Duration::from_secs(1));
        let records = opened(&env);
        let store = Store { clock, env, records };
        assert!(!store.records.usage().is_counted());
        while store.records.count_earlier().unwrap() {}
        assert!(store.records.usage().is_counted() && store.is_full());
    }
}
