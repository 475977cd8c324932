//! Settings of a node.

use core::time::Duration;

use ropewalk_base::hash64;

/// Times and sizes of a node. The defaults suit a log service that acknowledges within milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Time without a new entry after which a follower may try to lead. The leader renews after a third of it.
    /// Default 3 s.
    pub lease: Duration,
    /// Decides this node's random share, so that followers try at different times. Different on each node.
    pub seed: u64,
    /// How long a follower's read waits for the next entry. Default 100 ms; zero where one thread drives several nodes.
    pub read_wait: Duration,
    /// About how many bytes of entries one read returns. Default 1 MiB.
    pub read_bytes: usize,
    /// How long the leader waits for reports of a slice, and for hashes of effects that compare with its own. Default 12 s:
    /// four leases.
    pub hash_time: Duration,
    /// About how many bytes of contents the nodes hash at a time while they compare all of them. Default 16 MiB, which takes
    /// some tens of milliseconds, in which no entry is applied.
    pub slice_bytes: u64,
    /// Time after which the leader begins to compare all contents again. Default one day.
    pub pass_interval: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(3),
            seed: 0,
            read_wait: Duration::from_millis(100),
            read_bytes: 1 << 20,
            hash_time: Duration::from_secs(12),
            slice_bytes: 16 << 20,
            pass_interval: Duration::from_secs(24 * 3600),
        }
    }
}

impl Settings {
    /// Longest time between two entries of an idle leader.
    pub fn renewal_interval(&self) -> Duration {
        self.lease / 3
    }

    /// Longest time without an entry after which a node that the shared log answers tries to lead.
    pub fn patience_max(&self) -> Duration {
        self.lease * 2 + self.renewal_interval()
    }

    /// Age at which the report of a node no longer counts.
    pub(crate) fn report_time(&self) -> Duration {
        self.lease * 2
    }

    /// Time without an entry after which this node tries to lead for the `attempt`-th time: between one lease and two.
    pub(crate) fn patience(&self, attempt: u64) -> Duration {
        let mut seed = self.seed.to_le_bytes().to_vec();
        seed.extend(attempt.to_le_bytes());
        // In thousandths: far finer than the time that an append takes.
        let thousandths = u32::try_from(hash64(&seed) % 1000).unwrap_or(0);
        self.lease + self.lease * thousandths / 1000
    }
}

/// The monotonic nanoseconds so long after `now`.
pub(crate) fn after(now: u64, pause: Duration) -> u64 {
    now.saturating_add(u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_is_between_one_lease_and_two_and_differs_by_seed_and_attempt() {
        let of = |seed, attempt| Settings { seed, ..Settings::default() }.patience(attempt);
        for seed in 0..50 {
            let lease = Settings::default().lease;
            assert!((lease..lease * 2).contains(&of(seed, 1)), "{:?}", of(seed, 1));
            assert_eq!(of(seed, 1), of(seed, 1));
            assert!(of(seed, 1) < Settings::default().patience_max());
        }
        assert!((0..50).any(|seed| of(seed, 1) != of(seed + 1, 1)));
        assert!((0..50).any(|attempt| of(7, attempt) != of(7, attempt + 1)));
    }
}
