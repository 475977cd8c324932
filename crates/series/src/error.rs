use ropewalk_base::Seq;
use ropewalk_engine::{CommitError, EngineError};
use ropewalk_labels::LabelError;

use crate::id::SeriesId;

/// The result of most functions of this crate.
pub(crate) type Result<T, E = SeriesError> = core::result::Result<T, E>;

/// Errors of the series store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SeriesError {
    /// A label set, a matcher or a histogram breaks a rule or a limit.
    #[error(transparent)]
    Label(#[from] LabelError),
    /// Metadata or an exemplar breaks a limit.
    #[error("{what}")]
    Invalid {
        /// Reason.
        what: String,
    },
    /// A name is empty, too long or holds control characters.
    #[error("series store {name:?}: 1 to 255 bytes without control characters are allowed")]
    InvalidName {
        /// The name, truncated.
        name: String,
    },
    /// The store refuses a second sample with another value at the same time. Nothing was written.
    #[error("series {labels} has a sample with another value at {time_ms} ms already")]
    DuplicateSample {
        /// The series.
        labels: String,
        /// The time.
        time_ms: i64,
    },
    /// The sample is older than the store's retention. Nothing was written.
    #[error(
        "sample at {time_ms} ms of series {labels} lies before {floor_ms} ms, where the store's retention ends"
    )]
    OutOfRetention {
        /// The series.
        labels: String,
        /// Time of the sample.
        time_ms: i64,
        /// Oldest retained time.
        floor_ms: i64,
    },
    /// The sample's time is further from the clock than the store allows. Nothing was written.
    #[error("sample at {time_ms} ms of series {labels}: samples from {from_ms} to {to_ms} ms are taken now")]
    OutOfWindow {
        /// The series.
        labels: String,
        /// Time of the sample.
        time_ms: i64,
        /// Oldest accepted time.
        from_ms: i64,
        /// Newest accepted time.
        to_ms: i64,
    },
    /// A metric has as many series as it may. Nothing was written.
    #[error("metric {metric:?} would have {held} series, {max} are allowed; first new one: {labels}")]
    MetricLimit {
        /// Value of `__name__`.
        metric: String,
        /// Series that it would have.
        held: u64,
        /// The limit.
        max: u64,
        /// The first series that is new.
        labels: String,
    },
    /// The store holds as many series as it may. Nothing was written.
    #[error(
        "the batch has {new} new series, the store {store:?} holds {held} of at most {max}; first new one: {labels}"
    )]
    CardinalityLimit {
        /// Name of the store.
        store: String,
        /// New series in the batch.
        new: u64,
        /// Existing series.
        held: u64,
        /// The limit.
        max: u64,
        /// The first series that is new.
        labels: String,
    },
    /// The store has no such series: it was deleted, or never existed.
    #[error("there is no series {id} in store {store:?}; resolve its labels again")]
    UnknownSeries {
        /// Its number.
        id: SeriesId,
        /// The store.
        store: String,
    },
    /// Another transaction wrote or deleted samples that this one has read. Nothing was written; run it again.
    #[error("series store {store:?}: commit {seq} changed {series}, which this transaction has read")]
    ReadConflict {
        /// The series store.
        store: String,
        /// The series by its labels, or the selector of several.
        series: String,
        /// The commit that changed it.
        seq: Seq,
    },
    /// A transaction reads a store to which it appends: its own samples would be missing. Read before appending.
    #[error(
        "series store {store:?} has samples of this transaction, which reads do not see before the commit"
    )]
    OwnSamples {
        /// The series store.
        store: String,
    },
    /// The ids of series, 2^32 − 1 in a store, or stores, 2^32 − 1 in an engine, are used up.
    #[error("{what} are used up")]
    Exhausted {
        /// The exhausted ids.
        what: &'static str,
    },
    /// Stored bytes passed their checksum but cannot be decoded.
    #[error("{place}: {what}")]
    Damaged {
        /// Place of the damage.
        place: String,
        /// Description.
        what: String,
    },
    /// An error of the engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl SeriesError {
    /// The conflicting commit of a [`SeriesError::ReadConflict`]: reading again may help.
    pub fn conflict_seq(&self) -> Option<Seq> {
        match self {
            Self::ReadConflict { seq, .. } => Some(*seq),
            _ => None,
        }
    }
}

impl From<CommitError> for SeriesError {
    fn from(error: CommitError) -> Self {
        error.reason().unwrap_or_else(Self::Engine)
    }
}

impl From<ropewalk_engine::StoreError> for SeriesError {
    fn from(error: ropewalk_engine::StoreError) -> Self {
        Self::Engine(error.into())
    }
}

/// Converts to an error of the engine, which has no notion of series.
pub(crate) fn to_engine(error: SeriesError) -> EngineError {
    match error {
        SeriesError::Engine(error) => error,
        other => EngineError::Damaged { model: "series", what: other.to_string().into() },
    }
}
