//! Maps whose keys are hashes already.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Hashes keys that are hashes already, or half of one.
#[derive(Debug, Default)]
pub struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {}

    #[inline]
    fn write_u32(&mut self, half: u32) {
        // Maps take bits from both ends.
        self.0 = u64::from(half) << 32 | u64::from(half);
    }

    #[inline]
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// A map by hash.
pub type HashedMap<K, V> = HashMap<K, V, BuildHasherDefault<IdentityHasher>>;
