//! PromQL data source over a series store at one snapshot.
//!
//!   Query ─▶ [`Metrics`] ─▶ matchers ─▶ `SeriesAt::select` ─▶ columns
//!                                                        ├─▶ chunks inside one window: their aggregates
//!                                                        └─▶ chunks with few window borders: the samples at the borders

use ropewalk_labels::{Labels, Samples};
use ropewalk_promql::{Budget, Hints, SampleRuns, Select, SeriesSet, Source, SourceError};
use ropewalk_series::{Chunk, Part, Selection, SeriesAt, SeriesError, SeriesStore};

use crate::database::Snapshot;

/// A series store at one snapshot, for [`ropewalk_promql::Query::instant`] and [`ropewalk_promql::Query::range`].
pub struct Metrics<'s> {
    at: SeriesAt<'s>,
}

impl<'s> Metrics<'s> {
    pub(crate) fn new(at: SeriesAt<'s>) -> Self {
        Self { at }
    }
}

impl Snapshot {
    /// Returns a series store at this snapshot as a PromQL data source.
    pub fn metrics(&self, store: &SeriesStore) -> Metrics<'_> {
        Metrics::new(self.series(store))
    }
}

fn storage(error: SeriesError) -> SourceError {
    SourceError::Storage(Box::new(error))
}

/// Appends rows that summarize a chunk, with the number of samples of each row.
///
/// Returns false, and appends nothing, if the chunk must be read sample by sample.
fn stand_for(
    chunk: &Chunk<'_>,
    request: &Select<'_>,
    borders: &[i64],
    rows: &mut Samples,
) -> Result<bool, SeriesError> {
    let runs = request.hints.runs;
    if runs == SampleRuns::Last {
        return chunk.read_before(borders, rows);
    }
    let (first_ms, last_ms) = chunk.time_range_ms();
    // A border separates the samples at or before it from those after it.
    let parts = borders.get(borders.partition_point(|border| *border < first_ms));
    let is_whole = first_ms >= request.start_ms
        && last_ms <= request.end_ms
        && parts.is_none_or(|border| *border >= last_ms);
    let part = match runs {
        SampleRuns::Sum => Some(Part::Sum),
        SampleRuns::Least => Some(Part::Least),
        SampleRuns::Greatest => Some(Part::Greatest),
        _ => None,
    };
    if runs == SampleRuns::RisingEnds && !chunk.is_monotonic()? {
        return Ok(false);
    }
    let known = if is_whole || runs == SampleRuns::Ends { chunk.aggregates()? } else { None };
    let of = match known {
        Some(of) if is_whole && of.count > 1 => of,
        None if runs == SampleRuns::Ends => return Ok(false),
        _ => {
            return match part {
                Some(part) => chunk.read_parts(borders, part, rows),
                None => chunk.read_around(borders, rows),
            };
        }
    };
    let (first, last) = match runs {
        SampleRuns::Sum if of.sum.is_finite() => (of.sum, None),
        SampleRuns::Least if !of.min.is_nan() => (of.min, None),
        SampleRuns::Greatest if !of.max.is_nan() => (of.max, None),
        SampleRuns::Ends | SampleRuns::RisingEnds => (of.first, Some(of.last)),
        _ => return Ok(false),
    };
    rows.counts.resize(rows.len(), 1);
    let mut push = |time_ms: i64, value: f64, count: u32| {
        rows.times_ms.push(time_ms);
        rows.values.push(value);
        rows.counts.push(count);
    };
    push(first_ms, first, of.count - u32::from(last.is_some()));
    if let Some(last) = last {
        push(last_ms, last, 1);
    }
    Ok(true)
}

impl Source for Metrics<'_> {
    fn select<'s>(
        &'s self,
        request: &Select<'_>,
        budget: &'s Budget<'_>,
    ) -> Result<Box<dyn SeriesSet + 's>, SourceError> {
        let selection =
            self.at.select(request.matchers, request.start_ms, request.end_ms).map_err(storage)?;
        // The matchers and hints are borrowed for this call only; the window borders depend on numbers alone.
        let request =
            Select { matchers: &[], hints: Hints { func: None, grouping: &[], ..request.hints }, ..*request };
        let borders = request.borders();
        Ok(Box::new(Found { selection, budget, request, borders }))
    }
}

struct Found<'s> {
    selection: Selection<'s>,
    budget: &'s Budget<'s>,
    request: Select<'static>,
    borders: Vec<i64>,
}

impl SeriesSet for Found<'_> {
    fn next(&mut self) -> Result<Option<Labels>, SourceError> {
        if self.selection.next().is_none() {
            return Ok(None);
        }
        Ok(self.selection.labels())
    }

    fn samples(&mut self, into: &mut Samples) -> Result<(), SourceError> {
        let request = &self.request;
        let count = match request.hints.runs {
            SampleRuns::Apart => self.selection.samples(into),
            _ => self
                .selection
                .samples_or_chunks(into, &mut |chunk, rows| stand_for(chunk, request, &self.borders, rows)),
        }
        .map_err(storage)?;
        self.budget.sample(count)?;
        if !request.hints.starts {
            into.starts_ms.clear();
        }
        Ok(())
    }
}
