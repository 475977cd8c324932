//! Idempotency keys of the callers of a server, and how many records each of them has.
//!
//! [`ropewalk::hooks::idempotency`] stores the results of transactions; `key_usage` limits the records of a
//! caller.

use std::sync::Arc;

use ropewalk::hooks::idempotency::{
    DELETED_MAX, IdempotencyRecords, RecordedResults, RequestKey, StoredResult,
};
use ropewalk::{Database, Error, Transaction};
use ropewalk_auth::Caller;
use ropewalk_wire::{TransactionLimits, WireError};
use sha2::{Digest, Sha256};

use crate::failure::Cause;
use crate::key_usage::{ByCaller, Count, KeyUsage, Reserved, Usage};

/// The key of a request, unique for its caller, and the hash of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey(RequestKey);

impl IdempotencyKey {
    /// The key `key` of the caller for the request with this text.
    ///
    /// # Errors
    /// A key that is empty, longer than [`KEY_BYTES_MAX`](crate::KEY_BYTES_MAX), or contains control characters.
    pub fn new(caller: &Caller, key: &str, request: &[u8]) -> Result<Self, WireError> {
        let key = RequestKey::new(&caller.principal(), key, Sha256::digest(request).into());
        Ok(Self(key?))
    }
}

/// The records of one database.
#[derive(Clone)]
pub(crate) struct Records {
    stored: IdempotencyRecords,
    usage: Arc<KeyUsage>,
}

impl Records {
    pub(crate) fn new(db: &Database) -> Result<Self, Error> {
        let usage = db.extension::<KeyUsage>();
        usage.since_micros(db.engine().env().clock.wall_micros());
        Ok(Self { stored: db.idempotency_records()?, usage })
    }

    /// The number and bytes of the records of each caller.
    pub(crate) fn usage(&self) -> &KeyUsage {
        &self.usage
    }

    /// The result of an earlier transaction with the key.
    ///
    /// # Errors
    /// The key was used for another request.
    pub(crate) fn find(
        &self,
        tx: &mut Transaction,
        key: &IdempotencyKey,
    ) -> Result<Option<RecordedResults>, Cause> {
        Ok(self.stored.find(tx, &key.0)?)
    }

    /// Records the results in the transaction that they are of. Release the reservation if it is rejected.
    ///
    /// # Errors
    /// The results are too large; the caller has too many keys.
    pub(crate) fn put(
        &self,
        tx: &mut Transaction,
        IdempotencyKey(key): &IdempotencyKey,
        results: &[StoredResult],
        limits: &TransactionLimits,
    ) -> Result<Reserved, Cause> {
        let size = self.stored.put(tx, key, results)?;
        Ok(self.usage.reserve(key.caller(), size.bytes, size.replaced, limits)?)
    }

    /// Counts some of the records that were stored before this process; returns whether there are more.
    pub(crate) fn count_earlier(&self) -> Result<bool, Error> {
        let since = self.usage.since_micros(i64::MAX);
        self.usage.count(|count| {
            let Count { next, found } = count;
            self.stored.visit(next, since, &mut |caller, bytes| note(found, caller, bytes))
        })
    }

    /// Deletes some of the expired records; returns whether there may be more.
    pub(crate) fn delete_expired(&self) -> Result<bool, Error> {
        let deleted = self.stored.delete_expired()?;
        let mut usage = ByCaller::new();
        for (caller, bytes) in &deleted {
            note(&mut usage, caller, *bytes);
        }
        self.usage.subtract(usage);
        Ok(deleted.len() == DELETED_MAX)
    }
}

/// Adds a record to the usage of its caller.
fn note(usage: &mut ByCaller, caller: &str, bytes: u64) {
    usage.entry(caller.to_owned()).or_default().add(Usage { keys: 1, bytes });
}

#[cfg(test)]
mod tests {
    use core::time::Duration;
    use std::sync::Arc;

    use ropewalk::Options;
    use ropewalk::engine::Env;
    use ropewalk::testing::{ManualClock, MemoryVfs, SeededRandom};
    use ropewalk_wire::Code;

    use super::*;
    use crate::limits::RETENTION;

    const RESULTS: &[StoredResult] = &[];

    struct Store {
        clock: Arc<ManualClock>,
        env: Env,
        db: Database,
        records: Records,
    }

    impl Store {
        fn open(clock: Arc<ManualClock>, env: Env) -> Self {
            let db = Options::new().env(env.clone()).open("/db").unwrap();
            Self { clock, env, records: Records::new(&db).unwrap(), db }
        }

        fn new() -> Self {
            let clock = Arc::new(ManualClock::default());
            let (vfs, random) = (Arc::new(MemoryVfs::default()), Arc::new(SeededRandom::new(1)));
            let store = Self::open(clock.clone(), Env { vfs, clock, random });
            while store.records.count_earlier().unwrap() {}
            store
        }

        /// Stores the key of a caller at the limit of two keys.
        fn put(&self, key: &str) -> Result<(), Cause> {
            let limits = TransactionLimits { keys_per_caller: 2, ..TransactionLimits::default() };
            let key = IdempotencyKey::new(&Caller::everybody(), key, b"request").unwrap();
            let mut tx = self.db.begin();
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
        let store = Store::new();
        store.put("a").unwrap();
        store.put("b").unwrap();
        let (clock, env) = (store.clock.clone(), store.env.clone());
        drop(store);
        clock.advance(Duration::from_secs(1));
        let store = Store::open(clock, env);
        assert!(!store.records.usage().is_counted());
        while store.records.count_earlier().unwrap() {}
        assert!(store.records.usage().is_counted() && store.is_full());
    }
}
