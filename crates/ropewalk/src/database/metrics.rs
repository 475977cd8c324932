//! PromQL data source over a series store at one snapshot.
//!
//!   Query ─▶ [`Metrics`] ─▶ matchers ─▶ `SeriesAt::select` ─▶ columns, passed on without a copy if they are floats
//!                                                        ├─▶ chunks inside one window: their aggregates
//!                                                        └─▶ chunks with few window borders: the samples at the borders

use std::sync::Arc;

use ropewalk_promql::{self as promql, Budget, Hints, Runs, Select, SeriesSet, Source, SourceError};
use ropewalk_series::{self as series, Chunk, Part, Selection, SeriesAt, SeriesError, SeriesStore};

use crate::database::Snapshot;
use crate::database::label_texts::LabelTexts;

/// A series store at one snapshot, for [`promql::Query::instant`] and [`promql::Query::range`].
pub struct Metrics<'s> {
    at: SeriesAt<'s>,
    texts: Arc<LabelTexts>,
}

impl<'s> Metrics<'s> {
    pub(crate) fn new(at: SeriesAt<'s>, texts: Arc<LabelTexts>) -> Self {
        Self { at, texts }
    }
}

impl Snapshot {
    /// Returns a series store at this snapshot as a PromQL data source.
    pub fn metrics(&self, store: &SeriesStore) -> Metrics<'_> {
        Metrics::new(self.series(store), self.label_texts.clone())
    }
}

fn storage(error: SeriesError) -> SourceError {
    SourceError::Storage(Box::new(error))
}

fn matcher(from: &promql::Matcher) -> Result<series::Matcher, SourceError> {
    let op = match from.op() {
        promql::MatchOp::Equal => series::MatchOp::Equal,
        promql::MatchOp::NotEqual => series::MatchOp::NotEqual,
        promql::MatchOp::Regex => series::MatchOp::Regex,
        promql::MatchOp::NotRegex => series::MatchOp::NotRegex,
    };
    series::Matcher::new(from.name(), op, from.value()).map_err(storage)
}

fn histogram(from: &series::Histogram) -> promql::Histogram {
    let buckets = |side: &[series::Bucket]| {
        side.iter().map(|b| promql::Bucket { index: b.index, count: b.count }).collect()
    };
    promql::Histogram {
        hint: match from.hint {
            series::ResetHint::Unknown => promql::ResetHint::Unknown,
            series::ResetHint::Reset => promql::ResetHint::Reset,
            series::ResetHint::NotReset => promql::ResetHint::NotReset,
            series::ResetHint::Gauge => promql::ResetHint::Gauge,
        },
        schema: from.schema,
        zero_threshold: from.zero_threshold,
        zero_count: from.zero_count,
        count: from.count,
        sum: from.sum,
        positive: buckets(&from.positive),
        negative: buckets(&from.negative),
        custom: from.custom.clone(),
    }
}

/// Converts a histogram of a query's result to the store's form.
pub fn stored_histogram(from: &promql::Histogram) -> series::Histogram {
    let buckets = |side: &[promql::Bucket]| {
        side.iter().map(|b| series::Bucket { index: b.index, count: b.count }).collect()
    };
    series::Histogram {
        hint: match from.hint {
            promql::ResetHint::Unknown => series::ResetHint::Unknown,
            promql::ResetHint::Reset => series::ResetHint::Reset,
            promql::ResetHint::NotReset => series::ResetHint::NotReset,
            promql::ResetHint::Gauge => series::ResetHint::Gauge,
        },
        schema: from.schema,
        zero_threshold: from.zero_threshold,
        zero_count: from.zero_count,
        count: from.count,
        sum: from.sum,
        positive: buckets(&from.positive),
        negative: buckets(&from.negative),
        custom: from.custom.clone(),
    }
}

/// Appends rows that summarize a chunk, with the number of samples of each row.
///
/// Returns false, and appends nothing, if the chunk must be read sample by sample.
fn stand_for(
    chunk: &Chunk<'_>,
    request: &Select<'_>,
    borders: &[i64],
    rows: &mut series::Samples,
    counts: &mut Vec<u32>,
) -> Result<bool, SeriesError> {
    let runs = request.hints.runs;
    if runs == Runs::Last {
        return chunk.read_before(borders, rows);
    }
    let (first_ms, last_ms) = chunk.ends_ms();
    // A border separates the samples at or before it from those after it.
    let parts = borders.get(borders.partition_point(|border| *border < first_ms));
    let is_whole = first_ms >= request.start_ms
        && last_ms <= request.end_ms
        && parts.is_none_or(|border| *border >= last_ms);
    let part = match runs {
        Runs::Sum => Some(Part::Sum),
        Runs::Least => Some(Part::Least),
        Runs::Greatest => Some(Part::Greatest),
        _ => None,
    };
    if runs == Runs::RisingEnds && !chunk.counts_up()? {
        return Ok(false);
    }
    let known = if is_whole || runs == Runs::Ends { chunk.aggregates()? } else { None };
    let of = match known {
        Some(of) if is_whole && of.count > 1 => of,
        None if runs == Runs::Ends => return Ok(false),
        _ => {
            let before = counts.len();
            counts.resize(rows.len(), 1);
            let taken = match part {
                Some(part) => chunk.read_parts(borders, part, rows, counts)?,
                None => chunk.read_around(borders, rows, counts)?,
            };
            if !taken {
                counts.truncate(before);
            }
            return Ok(taken);
        }
    };
    let (first, last) = match runs {
        Runs::Sum if of.sum.is_finite() => (of.sum, None),
        Runs::Least if !of.min.is_nan() => (of.min, None),
        Runs::Greatest if !of.max.is_nan() => (of.max, None),
        Runs::Ends | Runs::RisingEnds => (of.first, Some(of.last)),
        _ => return Ok(false),
    };
    counts.resize(rows.len(), 1);
    let mut push = |time_ms: i64, value: f64, count: u32| {
        rows.times_ms.push(time_ms);
        rows.values.push(value);
        counts.push(count);
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
        let matchers = request.matchers.iter().map(matcher).collect::<Result<Vec<_>, _>>()?;
        let selection = self.at.select(&matchers, request.start_ms, request.end_ms).map_err(storage)?;
        let read = series::Samples::default();
        let (store, texts) = (self.at.number().unwrap_or_default(), &self.texts);
        // The matchers and hints are borrowed for this call only; the window borders depend on numbers alone.
        let request =
            Select { matchers: &[], hints: Hints { func: None, grouping: &[], ..request.hints }, ..*request };
        let borders = request.borders();
        Ok(Box::new(Found { selection, budget, request, borders, read, store, texts }))
    }
}

struct Found<'s> {
    selection: Selection<'s>,
    budget: &'s Budget<'s>,
    request: Select<'static>,
    borders: Vec<i64>,
    read: series::Samples,
    store: u32,
    texts: &'s Arc<LabelTexts>,
}

impl SeriesSet for Found<'_> {
    fn next(&mut self) -> Result<Option<promql::Labels>, SourceError> {
        let Some(id) = self.selection.next() else { return Ok(None) };
        self.budget.one_series()?;
        Ok(self.texts.get(self.store, id.0, || {
            self.selection.with_labels(|labels| promql::Labels::from_sorted(labels.iter()))
        }))
    }

    fn samples(&mut self, into: &mut promql::Samples) -> Result<(), SourceError> {
        self.read.clear();
        let request = &self.request;
        let count = match request.hints.runs {
            Runs::Apart => self.selection.samples(&mut self.read),
            _ => self.selection.samples_or_chunks(&mut self.read, &mut |chunk, rows| {
                stand_for(chunk, request, &self.borders, rows, &mut into.counts)
            }),
        }
        .map_err(storage)?;
        if !into.counts.is_empty() {
            into.counts.resize(self.read.len(), 1);
        }
        self.budget.sample(count)?;
        std::mem::swap(&mut into.times_ms, &mut self.read.times_ms);
        std::mem::swap(&mut into.values, &mut self.read.values);
        if self.request.hints.starts {
            std::mem::swap(&mut into.starts_ms, &mut self.read.starts_ms);
        }
        let histograms = self.read.histograms.iter();
        into.histograms.extend(histograms.map(|h| h.as_ref().map(|h| Arc::new(histogram(h)))));
        Ok(())
    }
}
