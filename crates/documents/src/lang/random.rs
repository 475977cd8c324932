use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The random numbers of one command: equal seeds give the same numbers.
///
/// Clones share one sequence, so that two operators of a command get different numbers.
///
/// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014 (SplitMix64).
#[derive(Debug, Clone, Default)]
pub struct Random(Arc<AtomicU64>);

/// Step of the sequence: 2^64 divided by the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
/// The distance of two doubles in [0.5, 1).
const UNIT: f64 = 1.0 / (1u64 << 53) as f64;

impl Random {
    /// The sequence of `seed`.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self(Arc::new(AtomicU64::new(seed)))
    }

    pub(crate) fn number(&self) -> u64 {
        let state = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 up to but not including 1.
    pub(crate) fn share(&self) -> f64 {
        (self.number() >> 11) as f64 * UNIT
    }
}
