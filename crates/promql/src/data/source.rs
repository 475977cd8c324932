//! The reader trait for samples: the only way this crate reads data.
//!
//!   Source::select(matchers, start..=end) ─▶ SeriesSet ─▶ next() labels, then samples() into a buffer that is reused
//!
//! Invariants
//! 1. The bounds of a [`Select`] are inclusive, in milliseconds, and already include look-back, range, offset
//!    and `@`.
//! 2. A set returns each label set once. Within a series times rise strictly. Series come in any order.
//! 3. The staleness marker is a sample like any other: its bits are preserved ([`ropewalk_labels::STALE`]).
//! 4. A source may return one or two rows in place of a run of samples that every window of the query
//!    contains completely, as [`SampleRuns`] defines: then a day of samples costs what its aggregates cost.
//! 5. A source calls [`Budget::sample`] for decoded samples and [`Budget::check`] regularly, so that limits,
//!    deadlines and cancellation apply within long scans.
//!
//! Not here: which samples a step uses (`select`), histogram arithmetic (`histogram`).

use ropewalk_labels::{Labels, Matcher, Samples};

use crate::budget::{Budget, BudgetError};

/// The request of one selector to a [`Source`].
#[derive(Debug, Clone, Copy)]
pub struct Select<'a> {
    /// All must match. A label that a series does not have matches as the empty string.
    pub matchers: &'a [Matcher],
    /// First requested millisecond, inclusive.
    pub start_ms: i64,
    /// Last requested millisecond, inclusive. Below `start_ms`: nothing is requested.
    pub end_ms: i64,
    /// How the samples are used. A source may ignore it and still return correct results.
    pub hints: Hints<'a>,
}

impl Select<'_> {
    /// The ends and exclusive beginnings of the query's windows: a window at t has the samples in
    /// (t - window, t]. Rising, each once; empty where [`Hints::runs`] is [`SampleRuns::Apart`].
    pub fn borders(&self) -> Vec<i64> {
        let Hints { step_ms, window_ms, runs, .. } = self.hints;
        if runs == SampleRuns::Apart || self.end_ms < self.start_ms {
            return Vec::new();
        }
        let before = self.start_ms.saturating_sub(1);
        let end = before.saturating_add(window_ms);
        let steps = if step_ms > 0 { self.end_ms.saturating_sub(end) / step_ms } else { 0 };
        let row =
            |first: i64| (0..=steps).map(move |step| first.saturating_add(step.saturating_mul(step_ms)));
        let mut borders: Vec<i64> = row(end).collect();
        if runs != SampleRuns::Last {
            borders.extend(row(before));
            borders.sort_unstable();
            borders.dedup();
        }
        borders
    }
}

/// Rows that may replace a run of two or more samples, all floats without start timestamps and none a
/// staleness marker. The first row has the time of the first sample; [`Samples::counts`] has the number of
/// samples per row.
///
/// With [`SampleRuns::Ends`] and [`SampleRuns::RisingEnds`], a source may also thin out samples that are not
/// in the same windows: it returns only those at which a window begins or ends, each representing the samples
/// from it to the next. With [`SampleRuns::Last`] it may return only the last sample of each window. With the
/// others, a row may replace any run that no window border divides, whatever is around it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SampleRuns {
    /// Nothing: each sample is needed.
    #[default]
    Apart,
    /// One row with their sum, if it is finite.
    Sum,
    /// One row with the least value, the earliest of equals, ignoring NaNs; not if all are NaN.
    Least,
    /// One row with the greatest value, in the same way.
    Greatest,
    /// The first and the last sample.
    Ends,
    /// The first and the last sample, if no value is less than the one before it.
    RisingEnds,
    /// Any sample, including a staleness marker, that is the last at one of [`Select::borders`]; a row
    /// represents itself only.
    Last,
}

/// How the query uses the samples, for sources that have aggregates or prune columns.
#[derive(Debug, Clone, Copy, Default)]
pub struct Hints<'a> {
    /// Distance of the steps in milliseconds; 0 when there is one step.
    pub step_ms: i64,
    /// Length of the range of a range selector in milliseconds; 0 for an instant selector.
    pub range_ms: i64,
    /// Name of the function or aggregation directly around the selector, as in `rate` or `sum`.
    pub func: Option<&'a str>,
    /// Labels of the aggregation directly around the selector.
    pub grouping: &'a [String],
    /// `by (grouping)` when true, `without (grouping)` when false.
    pub by: bool,
    /// Reach of a window in milliseconds: the range of a range selector, or the look-back of an instant
    /// selector.
    pub window_ms: i64,
    /// Rows that may replace samples that no window border divides.
    pub runs: SampleRuns,
    /// True when the query reads start timestamps: otherwise [`Samples::starts_ms`] may be left empty.
    pub starts: bool,
}

/// A provider of series: a storage, a snapshot of it, or a test's memory. A query reads one state of it.
pub trait Source {
    /// The matching series, with their samples in the bounds. Cost: that of finding the series; samples are
    /// read later.
    ///
    /// # Errors
    /// An error of the storage or of `budget`.
    fn select<'s>(
        &'s self,
        request: &Select<'_>,
        budget: &'s Budget<'_>,
    ) -> Result<Box<dyn SeriesSet + 's>, SourceError>;
}

/// Series, one at a time.
pub trait SeriesSet {
    /// The labels of the next series, or `None` at the end. The samples of a series may be left unread.
    ///
    /// # Errors
    /// As [`Source::select`].
    fn next(&mut self) -> Result<Option<Labels>, SourceError>;

    /// Appends the samples of the series that `next` returned last to `into` (which the caller has cleared).
    ///
    /// # Errors
    /// As [`Source::select`].
    fn samples(&mut self, into: &mut Samples) -> Result<(), SourceError>;
}

/// Errors of a source.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// A limit, the deadline, or a cancellation.
    #[error(transparent)]
    Budget(#[from] BudgetError),
    /// The storage failed.
    #[error("{0}")]
    Storage(Box<dyn std::error::Error + Send + Sync>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn windows_begin_and_end_at_borders(
            (first_step, steps, step_ms, window_ms) in (0..50_i64, 1..6_i64, 1..20_i64, 1..40_i64),
        ) {
            let hints = Hints { step_ms: if steps > 1 { step_ms } else { 0 }, window_ms, ..Hints::default() };
            let end_ms = first_step + (steps - 1) * step_ms;
            let select = |runs| {
                let hints = Hints { runs, ..hints };
                Select { matchers: &[], start_ms: first_step - window_ms + 1, end_ms, hints }.borders()
            };
            let ends: Vec<i64> = (0..steps).map(|step| first_step + step * step_ms).collect();
            prop_assert_eq!(&select(SampleRuns::Last), &ends);
            let mut all: Vec<i64> = ends.iter().flat_map(|end| [*end, end - window_ms]).collect();
            all.sort_unstable();
            all.dedup();
            prop_assert_eq!(select(SampleRuns::Sum), all);
            prop_assert_eq!(select(SampleRuns::Apart), []);
        }
    }

    #[test]
    fn borders_are_empty_without_a_request() {
        let hints = Hints { window_ms: 100, runs: SampleRuns::Ends, ..Hints::default() };
        let select = Select { matchers: &[], start_ms: 1, end_ms: 0, hints };
        assert_eq!(select.borders(), []);
        assert_eq!(Select { end_ms: 100, ..select }.borders(), [0, 100]);
        assert_eq!(Select { start_ms: i64::MIN, ..select }.borders().len(), 2);
    }
}
