//! Samples of one series in columns, as stores read them and queries evaluate them.

use std::sync::Arc;

use crate::histogram::Histogram;

/// Bits of the NaN that marks the end of a series.
pub const STALE_BITS: u64 = 0x7ff0_0000_0000_0002;

/// The staleness marker.
pub const STALE: f64 = f64::from_bits(STALE_BITS);

/// True for the staleness marker, and for no other NaN.
#[inline]
pub fn is_stale(value: f64) -> bool {
    value.to_bits() == STALE_BITS
}

/// Samples of one series, by column: row `i` is (`times_ms[i]`, `values[i]`), or a histogram where
/// `histograms[i]` is one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Samples {
    /// Milliseconds since 1970, rising strictly.
    pub times_ms: Vec<i64>,
    /// As long as `times_ms`; any value where the row is a histogram. NaNs have their bits, so staleness
    /// markers, also those of histograms, are among them.
    pub values: Vec<f64>,
    /// Empty when all rows are floats, else as long as `times_ms`.
    pub histograms: Vec<Option<Arc<Histogram>>>,
    /// Start timestamps, 0 for none. Empty when no row has one, or the reader needs none; else as long as
    /// `times_ms`.
    pub starts_ms: Vec<i64>,
    /// Number of samples per row, for a query that needs only aggregates. Empty when each row is one sample,
    /// else as long as `times_ms`.
    pub counts: Vec<u32>,
}

impl Samples {
    /// Removes the rows and retains the memory.
    pub fn clear(&mut self) {
        self.times_ms.clear();
        self.values.clear();
        self.histograms.clear();
        self.starts_ms.clear();
        self.counts.clear();
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        let columns = self.times_ms.capacity() + self.values.capacity() + self.starts_ms.capacity();
        columns * 8
            + self.histograms.capacity() * 8
            + self.counts.capacity() * 4
            + self.histograms.iter().flatten().map(|h| h.bytes()).sum::<usize>()
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

    /// Adds a float row.
    pub fn push(&mut self, time_ms: i64, value: f64) {
        self.times_ms.push(time_ms);
        self.values.push(value);
        if !self.histograms.is_empty() {
            self.histograms.push(None);
        }
        if !self.starts_ms.is_empty() {
            self.starts_ms.push(0);
        }
        if !self.counts.is_empty() {
            self.counts.push(1);
        }
    }

    /// Adds a histogram row.
    pub fn push_histogram(&mut self, time_ms: i64, histogram: Arc<Histogram>) {
        if self.histograms.is_empty() {
            self.histograms.resize(self.times_ms.len(), None);
        }
        self.times_ms.push(time_ms);
        self.values.push(0.0);
        self.histograms.push(Some(histogram));
        if !self.starts_ms.is_empty() {
            self.starts_ms.push(0);
        }
        if !self.counts.is_empty() {
            self.counts.push(1);
        }
    }

    /// Gives the last row a start timestamp.
    pub fn set_start(&mut self, start_ms: i64) {
        if self.starts_ms.is_empty() && start_ms != 0 {
            self.starts_ms.resize(self.times_ms.len(), 0);
        }
        if let Some(last) = self.starts_ms.last_mut() {
            *last = start_ms;
        }
    }

    /// Adds a decoded chunk of floats.
    pub fn extend(&mut self, times_ms: &[i64], values: &[f64]) {
        self.times_ms.extend_from_slice(times_ms);
        self.values.extend_from_slice(values);
        if !self.histograms.is_empty() {
            self.histograms.resize(self.times_ms.len(), None);
        }
        if !self.starts_ms.is_empty() {
            self.starts_ms.resize(self.times_ms.len(), 0);
        }
        if !self.counts.is_empty() {
            self.counts.resize(self.times_ms.len(), 1);
        }
    }
}
