//! Common types of the crate: options, columns of samples.

use std::sync::Arc;

use ropewalk_base::Seq;

use crate::sample::histogram::Histogram;

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

/// Samples of one series, by column: row `i` is (`times_ms[i]`, `values[i]`), or a histogram where `histograms[i]` is one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Samples {
    /// Milliseconds since 1970, rising strictly.
    pub times_ms: Vec<i64>,
    /// As long as `times_ms`; 0 where the row is a histogram. NaNs keep their bits, so staleness markers are among them.
    pub values: Vec<f64>,
    /// Empty when all rows are floats, else as long as `times_ms`.
    pub histograms: Vec<Option<Arc<Histogram>>>,
    /// Start timestamps, 0 for none. Empty when no row has one, else as long as `times_ms`.
    pub starts_ms: Vec<i64>,
}

impl Samples {
    /// Removes the rows but retains the memory.
    pub fn clear(&mut self) {
        self.times_ms.clear();
        self.values.clear();
        self.histograms.clear();
        self.starts_ms.clear();
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.times_ms.len()
    }

    /// True without rows.
    pub fn is_empty(&self) -> bool {
        self.times_ms.is_empty()
    }

    /// The rows as (time, bits of the value), for tests and exports of floats.
    pub fn bits(&self) -> impl Iterator<Item = (i64, u64)> + '_ {
        self.times_ms.iter().zip(&self.values).map(|(t, v)| (*t, v.to_bits()))
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
