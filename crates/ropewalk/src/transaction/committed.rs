//! What a commit wrote, by store.

use ropewalk_base::{Position, Seq};

/// A transaction that was committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// The number of the commit; of an idempotent retry, the newest commit at that time.
    pub seq: Seq,
    /// Its time, microseconds since 1970 UTC.
    pub time_micros: i64,
    /// The events of each [`append`](crate::Transaction::append), in order.
    pub appended: Vec<AppendedEvents>,
    /// The samples of each series store, in the order of the first append to it.
    pub samples: Vec<AppendedSamples>,
}

/// Where one append of a transaction put its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendedEvents {
    /// The event store.
    pub store: String,
    /// Position of the first event; zero when there was none.
    pub first: Position,
    /// Position of the last event; zero when there was none.
    pub last: Position,
}

/// What a transaction wrote to one series store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendedSamples {
    /// The series store.
    pub store: String,
    /// Samples written.
    pub samples: u64,
    /// New series.
    pub created: u64,
}

/// The stores that a commit writes to, in the order of its operations.
#[derive(Default)]
pub(super) struct Written {
    pub(super) events: Vec<String>,
    pub(super) samples: Vec<String>,
}

impl Written {
    /// Names the outcomes of the engine.
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
