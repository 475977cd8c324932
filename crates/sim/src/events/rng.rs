//! The seeded RNG of a run.

use ropewalk_vfs::{Random, SeededRandom};

/// Random choices that are the same for the same seed.
pub(crate) struct Dice(SeededRandom);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SeededRandom::new(seed))
    }

    pub(crate) fn number(&self) -> u64 {
        self.0.next_u64()
    }

    /// 0 up to, not including, `n`.
    pub(crate) fn below(&self, n: u64) -> u64 {
        self.number() % n.max(1)
    }

    /// `low` up to and including `high`.
    pub(crate) fn between(&self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    pub(crate) fn one_in(&self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn index(&self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    pub(crate) fn pick<'a, T>(&self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.index(from.len()))
    }

    /// One of the choices, with probabilities in proportion to the weights.
    pub(crate) fn weighted<T: Copy>(&self, choices: &[(u64, T)]) -> T {
        let mut left = self.below(choices.iter().map(|(weight, _)| weight).sum());
        for (weight, choice) in choices {
            if left < *weight {
                return *choice;
            }
            left -= weight;
        }
        choices.last().expect("there is something to choose from").1
    }

    pub(crate) fn bytes(&self, len: usize) -> Vec<u8> {
        std::iter::repeat_with(|| self.number().to_le_bytes()).flatten().take(len).collect()
    }
}
