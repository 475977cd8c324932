//! Options of a store, and the result of an append.

use ropewalk_base::Seq;

/// Treatment of a second sample of the same series and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Duplicates {
    /// The later commit wins; within a batch the later sample.
    #[default]
    KeepLast,
    /// The earlier commit wins; within a batch the earlier sample.
    KeepFirst,
    /// A batch with another value is refused; one with the same bits is fine. Costs a read of the series per batch.
    Refuse,
}

/// Settings of a store, stored in it. Changing them is a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeriesOptions {
    /// Treatment of a second sample of the same series and time.
    pub duplicates: Duplicates,
    /// Most series the store may hold. Default 10 million.
    pub series_max: u64,
    /// Most series that one metric, one value of `__name__`, may have. Default: no limit.
    pub metric_series_max: u64,
    /// Samples that are older than this, by the clock, are refused. Default: any age is accepted, `i64::MAX`.
    pub past_ms_max: i64,
    /// Samples that lie further ahead of the clock than this are refused. Default: any are accepted,
    /// `i64::MAX`.
    pub future_ms_max: i64,
}

impl Default for SeriesOptions {
    fn default() -> Self {
        Self {
            duplicates: Duplicates::KeepLast,
            series_max: 10_000_000,
            metric_series_max: u64::MAX,
            past_ms_max: i64::MAX,
            future_ms_max: i64::MAX,
        }
    }
}

/// Result of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// The commit.
    pub seq: Seq,
    /// Samples written.
    pub samples: u64,
    /// Series that were created.
    pub created: u64,
}
