//! PromQL over a series store: the reader that the language asks, on one snapshot.
//!
//!   Query ─▶ [`Metrics`] ─▶ matchers ─▶ `SeriesAt::select` ─▶ columns, handed over without a copy where they are floats
//!                                                        └─▶ in place of chunks that no window parts: their aggregates

use std::sync::Arc;

use ropewalk_promql::{self as promql, Budget, Hints, Runs, Select, SeriesSet, Source, SourceError};
use ropewalk_series::{self as series, Run, Selection, SeriesAt, SeriesError, SeriesStore};

use crate::database::Snapshot;
use crate::label_texts::LabelTexts;

/// A series store at one snapshot, for [`promql::Query::instant`] and [`promql::Query::range`].
pub struct Metrics<'s> {
    at: SeriesAt<'s>,
    texts: &'s Arc<LabelTexts>,
}

impl Snapshot {
    /// A series store as of this snapshot, as PromQL reads it.
    pub fn metrics(&self, store: &SeriesStore) -> Metrics<'_> {
        Metrics { at: self.series(store), texts: &self.label_texts }
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

/// Appends what stands for a run, and of how many samples each row tells. False where nothing does.
fn stand_for(run: &Run, runs: Runs, rows: &mut series::Samples, counts: &mut Vec<u32>) -> bool {
    let of = &run.aggregates;
    let (first, last) = match runs {
        Runs::Sum if of.sum.is_finite() => (of.sum, None),
        Runs::Least if !of.min.is_nan() => (of.min, None),
        Runs::Greatest if !of.max.is_nan() => (of.max, None),
        Runs::Ends => (of.first, Some(of.last)),
        Runs::RisingEnds if of.resets == 0 => (of.first, Some(of.last)),
        _ => return false,
    };
    if of.count < 2 {
        return false;
    }
    counts.resize(rows.len(), 1);
    let mut push = |time_ms: i64, value: f64, count: u32| {
        rows.times_ms.push(time_ms);
        rows.values.push(value);
        counts.push(count);
    };
    push(run.first_ms, first, of.count - u32::from(last.is_some()));
    if let Some(last) = last {
        push(run.last_ms, last, 1);
    }
    true
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
        let (store, texts) = (self.at.number().unwrap_or_default(), self.texts);
        // What it asks for lives as long as this call; whether a run is whole depends on numbers alone.
        let request =
            Select { matchers: &[], hints: Hints { func: None, grouping: &[], ..request.hints }, ..*request };
        Ok(Box::new(Found { selection, budget, request, read, store, texts }))
    }
}

struct Found<'s> {
    selection: Selection<'s>,
    budget: &'s Budget<'s>,
    request: Select<'static>,
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
            runs => self.selection.samples_or_runs(&mut self.read, &mut |run, rows| {
                request.is_whole(run.first_ms, run.last_ms) && stand_for(run, runs, rows, &mut into.counts)
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
