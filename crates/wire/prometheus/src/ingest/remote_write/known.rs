//! Cache from label bytes in the request to the series.
//!
//!   bytes of the labels ─▶ 128 bits of hash, seeded randomly at each start ─▶ number of the series
//!
//! An agent sends the same labels in the same bytes with every sample, and parsing, validating and looking
//! them up is most of a sample's cost. A cached series is written by its number alone.
//!
//! Invariants
//! 1. Only labels that were validated and stored are cached. Among half a million label sets, two have the
//!    same hash with a probability of 10⁻²⁷.
//! 2. The store never reuses a number. It rejects the number of a deleted series; the request is then read
//!    again without this cache.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use ropewalk::hooks::HashedMap;
use ropewalk::series::{Labels, SeriesId, SeriesStore};
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// Limit of cached label sets: about 20 MB.
const SETS_MAX: usize = 1 << 19;
/// Time that entries stay once the limit is reached.
const STAY: Duration = Duration::from_secs(600);

/// The hash of a label set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key(u64, u64);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0);
    }
}

type Ids = HashedMap<Key, SeriesId>;

/// The cache. Any number of threads may read it at once.
#[derive(Debug)]
pub(crate) struct Known {
    seed: u64,
    ids: RwLock<Ids>,
    begun: Mutex<Instant>,
}

impl Default for Known {
    fn default() -> Self {
        let seed = RandomState::new().hash_one(0);
        Self { seed, ids: RwLock::default(), begun: Mutex::new(Instant::now()) }
    }
}

/// The cache, locked for reading while one request is decoded.
#[derive(Debug)]
pub(crate) struct Reading<'k> {
    seed: u64,
    ids: RwLockReadGuard<'k, Ids>,
}

impl Reading<'_> {
    /// The hash of labels as they were sent, and the series if it is cached.
    #[inline]
    pub(crate) fn find(&self, labels: &[u8]) -> (Key, Option<SeriesId>) {
        let hash = xxh3_128_with_seed(labels, self.seed);
        let key = Key(hash as u64, (hash >> 64) as u64);
        (key, self.ids.get(&key).copied())
    }
}

impl Known {
    pub(crate) fn read(&self) -> Reading<'_> {
        Reading { seed: self.seed, ids: self.ids.read().unwrap_or_else(PoisonError::into_inner) }
    }

    /// Adds the series of a written request: keys, and labels as they are stored.
    pub(crate) fn learn(&self, new: Vec<(Key, Box<[u8]>)>, store: &SeriesStore) {
        if new.is_empty() || !self.has_room(new.len()) {
            return;
        }
        let resolved = new.into_iter().filter_map(|(key, labels)| {
            let labels = Labels::from_bytes(&labels).ok()?;
            Some((key, store.resolve(&labels)?))
        });
        let resolved: Vec<_> = resolved.collect();
        self.ids.write().unwrap_or_else(PoisonError::into_inner).extend(resolved);
    }

    fn has_room(&self, more: usize) -> bool {
        let held = self.ids.read().unwrap_or_else(PoisonError::into_inner).len();
        if held + more <= SETS_MAX {
            return true;
        }
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        if begun.elapsed() < STAY {
            return false;
        }
        *begun = Instant::now();
        self.forget();
        true
    }

    /// Clears the cache after a cached series was deleted.
    pub(crate) fn forget(&self) {
        *self.ids.write().unwrap_or_else(PoisonError::into_inner) = Ids::default();
    }
}
