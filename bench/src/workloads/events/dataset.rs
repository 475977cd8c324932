//! The event workload: 100-byte payloads, three tags (one unique per event, an account, a region), five types in turn.
//!
//! An account has 100 events and a region 2,000 at every size, so a tag query returns the same number of
//! events at 100K and at 1M. At 100K this is exactly 1000 accounts and 50 regions. Type `A` has 20 %.

use crate::harness::random::SplitMix;
use crate::workloads::events::event_store::Event;

/// Bytes of a payload.
pub const DATA_BYTES: usize = 100;
/// Events with the same account tag.
pub const ACCOUNT_EVENTS: u64 = 100;
/// Events with the same region tag.
pub const REGION_EVENTS: u64 = 2000;

const KINDS: [&str; 5] = ["A", "B", "C", "D", "E"];

/// Events `0..size`, by number.
#[derive(Debug, Clone, Copy)]
pub struct Dataset {
    size: u64,
}

impl Dataset {
    /// A data set of `size` events; events beyond `size` continue the pattern.
    pub fn new(size: u64) -> Self {
        Self { size }
    }

    /// The `i`-th event.
    pub fn event(self, i: u64) -> Event {
        let mut data = vec![0; DATA_BYTES];
        SplitMix::new(i).fill(&mut data);
        let accounts = (self.size / ACCOUNT_EVENTS).max(1);
        let regions = (self.size / REGION_EVENTS).max(1);
        let kind = KINDS.get((i % KINDS.len() as u64) as usize).expect("a remainder is below the divisor");
        Event {
            kind: (*kind).to_owned(),
            data,
            tags: vec![
                format!("id:{i}"),
                format!("acct:{}", i % accounts),
                format!("region:{}", i % regions),
            ],
        }
    }

    /// Events `range`, in order.
    pub fn events(self, range: std::ops::Range<u64>) -> Vec<Event> {
        range.map(|i| self.event(i)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_and_types_have_their_documented_shares() {
        for size in [100_000, 200_000] {
            let events = Dataset::new(size).events(0..size);
            let count = |tag: &str| events.iter().filter(|e| e.tags.iter().any(|t| t == tag)).count();
            assert_eq!((count("acct:7"), count("region:7"), count("id:7")), (100, 2000, 1));
            assert_eq!(events.iter().filter(|e| e.kind == "A").count() as u64, size / 5);
            assert!(events.iter().all(|e| e.data.len() == DATA_BYTES && e.tags.len() == 3));
        }
    }
}
