//! PromQL over a series store: the reader that the language asks, on one snapshot.
//!
//!   Query ─▶ [`Metrics`] ─▶ matchers ─▶ `SeriesAt::select` ─▶ columns, handed over without a copy where they are floats

use std::sync::Arc;

use ropewalk_promql::{self as promql, Budget, Select, SeriesSet, Source, SourceError};
use ropewalk_series::{self as series, Selection, SeriesAt, SeriesError, SeriesStore};

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
        Ok(Box::new(Found { selection, budget, starts: request.hints.starts, read, store, texts }))
    }
}

struct Found<'s> {
    selection: Selection<'s>,
    budget: &'s Budget<'s>,
    starts: bool,
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
        let count = self.selection.samples(&mut self.read).map_err(storage)?;
        self.budget.sample(count)?;
        std::mem::swap(&mut into.times_ms, &mut self.read.times_ms);
        std::mem::swap(&mut into.values, &mut self.read.values);
        if self.starts {
            std::mem::swap(&mut into.starts_ms, &mut self.read.starts_ms);
        }
        let histograms = self.read.histograms.iter();
        into.histograms.extend(histograms.map(|h| h.as_ref().map(|h| Arc::new(histogram(h)))));
        Ok(())
    }
}
