//! Result of a commit, by store.

use ropewalk_base::{Position, Seq};

/// Result of a committed transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// Commit number; for an idempotent retry, the newest commit at that time.
    pub seq: Seq,
    /// Commit time, microseconds since 1970 UTC.
    pub time_micros: i64,
    /// One entry per [`append`](crate::Transaction::append), in order.
    pub appended: Vec<AppendedEvents>,
    /// One entry per series store, in the order of the first append to it.
    pub samples: Vec<AppendedSamples>,
}

/// Positions assigned to the events of one append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendedEvents {
    /// The event store.
    pub store: String,
    /// Position of the first event; zero if there are no events.
    pub first: Position,
    /// Position of the last event; zero if there are no events.
    pub last: Position,
}

/// Samples written to one series store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendedSamples {
    /// The series store.
    pub store: String,
    /// Number of samples.
    pub samples: u64,
    /// Number of new series.
    pub created: u64,
}

/// The stores that a commit writes to, in the order of its operations.
#[derive(Default)]
pub(super) struct Written {
    pub(super) events: Vec<String>,
    pub(super) samples: Vec<String>,
}

impl Written {
    /// Adds the store names to the outcomes of the engine.
    pub(super) fn named(self, committed: ropewalk_engine::Committed) -> Committed {
        let ropewalk_engine::Committed { seq, time_micros, outcomes } = committed;
        let mut outcomes = outcomes.into_iter();
        let events = self.events.into_iter().zip(outcomes.by_ref());
        let appended = events.map(|(store, (first, last))| {
            let (first, last) = (Position(first), Position(last));
            AppendedEvents { store, first, last }
        });
        let appended = appended.collect();
        let samples = self.samples.into_iter().zip(outcomes);
        let samples = samples.map(|(store, (samples, created))| AppendedSamples { store, samples, created });
        Committed { seq, time_micros, appended, samples: samples.collect() }
    }
}
