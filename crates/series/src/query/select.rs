//! Reading the series of a store, and their samples, as of one snapshot.

use std::sync::Arc;

use roaring::RoaringBitmap;
use ropewalk_base::Seq;
use ropewalk_engine::{ReadView, Snapshot};
use ropewalk_labels::{Labels, LabelsRef, Matcher, Samples};

use crate::chunk::Aggregates;
use crate::error::Result;
use crate::id::SeriesId;
use crate::model::{SeriesModel, StoreState};
use crate::query::reads::{Read, SeriesReads};
use crate::storage::read::{Chunk, SeriesReader};

/// A store as of one snapshot. Any number of threads may read it.
pub struct SeriesAt<'s> {
    model: Arc<SeriesModel>,
    state: Option<Arc<StoreState>>,
    snapshot: &'s Snapshot,
    /// Reads of the transaction.
    reads: Option<&'s SeriesReads>,
}

impl<'s> SeriesAt<'s> {
    pub(crate) fn new(model: Arc<SeriesModel>, name: &str, snapshot: &'s Snapshot) -> Self {
        let state = model.find(name);
        Self { model, state, snapshot, reads: None }
    }

    pub(crate) fn noting(self, reads: &'s SeriesReads) -> Self {
        Self { reads: Some(reads), ..self }
    }

    /// The last commit it sees.
    pub fn seq(&self) -> Seq {
        self.snapshot.seq()
    }

    /// The number of the store, which no other store of the database has or will have; `None` before there is one.
    pub fn number(&self) -> Option<u32> {
        self.state.as_ref().map(|state| state.id)
    }

    fn ids(&self, matchers: &[Matcher], read: Read) -> RoaringBitmap {
        if let Some(reads) = self.reads {
            reads.note(matchers, read);
        }
        let Some(state) = &self.state else { return RoaringBitmap::new() };
        let head = state.head_at(self.seq());
        state.posted(head).select(matchers, self.seq(), head)
    }

    /// The series for which all `matchers` hold, with their samples from `from_ms` to `to_ms`, both
    /// inclusive. Includes series without samples in that range. Cost: the postings; samples are read series
    /// by series.
    ///
    /// # Errors
    /// Damage.
    pub fn select(&self, matchers: &[Matcher], from_ms: i64, to_ms: i64) -> Result<Selection<'_>> {
        let ids = self.ids(matchers, Read::samples(from_ms, to_ms));
        let reader = match &self.state {
            Some(state) if !ids.is_empty() => {
                let read: ReadView<'_> = self.snapshot.read();
                let place = self.model.place(state.id);
                let duplicates = state.duplicate_rules();
                let mut reader = SeriesReader::new(read, place, duplicates, (from_ms, to_ms))?;
                reader.narrow(&state.reach);
                Some(reader)
            }
            _ => None,
        };
        let (state, ids) = (self.state.clone(), ids.into_iter());
        Ok(Selection { state, ids, ahead: Vec::new(), next: 0, current: None, reader })
    }

    /// Number of series for which all `matchers` hold.
    pub fn count(&self, matchers: &[Matcher]) -> u64 {
        self.ids(matchers, Read::SERIES).len()
    }

    /// The labels of the series for which all `matchers` hold, in the order of their numbers, at most `limit`.
    pub fn series(&self, matchers: &[Matcher], limit: usize) -> Vec<Labels> {
        let ids = self.ids(matchers, Read::SERIES);
        let Some(state) = &self.state else { return Vec::new() };
        let index = state.index.read();
        ids.iter().take(limit).filter_map(|id| index.labels(id).map(|l| l.to_owned())).collect()
    }

    /// Names of the labels of those series, sorted.
    pub fn label_names(&self, matchers: &[Matcher]) -> Vec<String> {
        collected(usize::MAX, |each| self.each_label_name(matchers, each))
    }

    /// Passes the names of the labels of those series, sorted, to `each`, which can end the list by an error.
    ///
    /// # Errors
    /// Those of `each`.
    pub fn each_label_name<E>(
        &self,
        matchers: &[Matcher],
        each: impl FnMut(&str) -> Result<(), E>,
    ) -> Result<(), E> {
        let ids = self.ids(matchers, Read::SERIES);
        let Some(state) = &self.state else { return Ok(()) };
        state.index.read().names(&ids).try_for_each(each)
    }

    /// Values that the label `name` has among those series, sorted, at most `limit`.
    pub fn label_values(&self, name: &str, matchers: &[Matcher], limit: usize) -> Vec<String> {
        collected(limit, |each| self.each_label_value(name, matchers, each))
    }

    /// Passes the values that the label `name` has among those series, sorted, to `each`, which can end the list by
    /// an error.
    ///
    /// # Errors
    /// Those of `each`.
    pub fn each_label_value<E>(
        &self,
        name: &str,
        matchers: &[Matcher],
        each: impl FnMut(&str) -> Result<(), E>,
    ) -> Result<(), E> {
        let ids = self.ids(matchers, Read::SERIES);
        let Some(state) = &self.state else { return Ok(()) };
        state.index.read().values(name, &ids).try_for_each(each)
    }

    /// Read view, model and state, if the store exists.
    pub(crate) fn parts(&self) -> Option<(ReadView<'_>, &SeriesModel, &StoreState)> {
        Some((self.snapshot.read(), &self.model, self.state.as_deref()?))
    }

    /// The store, if there is one, and the series for which all `matchers` hold.
    pub(crate) fn found(&self, matchers: &[Matcher]) -> (Option<Arc<StoreState>>, RoaringBitmap) {
        (self.state.clone(), self.ids(matchers, Read::SERIES))
    }

    pub(crate) fn with_index<R>(
        &self,
        look: impl FnOnce(&crate::memory::index::Index, &RoaringBitmap) -> R,
    ) -> Option<R> {
        let ids = self.ids(&[], Read::SERIES);
        self.state.as_ref().map(|state| look(&state.index.read(), &ids))
    }
}

/// The first `limit` texts that `list` passes to its argument.
fn collected(
    limit: usize,
    list: impl FnOnce(&mut dyn FnMut(&str) -> Result<(), ()>) -> Result<(), ()>,
) -> Vec<String> {
    let mut all = Vec::new();
    // An error only ends the list.
    let _ = list(&mut |text| {
        if all.len() >= limit {
            return Err(());
        }
        all.push(text.to_owned());
        Ok(())
    });
    all
}

/// Number of series whose samples are prefetched before they are read one by one.
const AHEAD: usize = 32;

/// Selected series, one at a time, in the order of their numbers.
pub struct Selection<'a> {
    state: Option<Arc<StoreState>>,
    ids: roaring::bitmap::IntoIter,
    /// The prefetched series, and the place of the next of them.
    ahead: Vec<u32>,
    next: usize,
    current: Option<u32>,
    reader: Option<SeriesReader<'a>>,
}

impl Selection<'_> {
    /// Moves to the next series; returns its number, or `None` at the end.
    #[allow(clippy::should_implement_trait)] // other calls read the current series
    pub fn next(&mut self) -> Option<SeriesId> {
        if self.next == self.ahead.len() {
            self.ahead.clear();
            self.ahead.extend(self.ids.by_ref().take(AHEAD));
            self.next = 0;
            if let Some(reader) = self.reader.as_ref().filter(|_| self.ahead.len() > 1) {
                reader.warm(&self.ahead);
            }
        }
        self.current = self.ahead.get(self.next).copied();
        self.next += usize::from(self.current.is_some());
        self.current.map(SeriesId)
    }

    /// Number of remaining series.
    pub fn remaining(&self) -> usize {
        debug_assert!(self.next <= self.ahead.len(), "series that were given are among those ahead");
        self.ids.len() + self.ahead.len() - self.next
    }

    /// The labels of the current series.
    pub fn labels(&self) -> Option<Labels> {
        self.with_labels(|labels| labels.to_owned())
    }

    /// Passes the labels of the current series to `look`, in place.
    pub fn with_labels<R>(&self, look: impl FnOnce(LabelsRef<'_>) -> R) -> Option<R> {
        let index = self.state.as_ref()?.index.read();
        index.labels(self.current?).map(look)
    }

    /// Aggregates of the samples of the current series in the range: count, sum, least, greatest, first,
    /// last, resets. Staleness markers do not count. Cost: chunks that lie completely in the range are not
    /// decoded. `None` without samples, and for series with histograms or start timestamps in the range.
    ///
    /// # Errors
    /// Damage.
    pub fn aggregate(&mut self) -> Result<Option<Aggregates>> {
        match (self.current, &mut self.reader) {
            (Some(id), Some(reader)) => reader.aggregate(id),
            _ => Ok(None),
        }
    }

    /// As [`Selection::samples`], but chunks for which `take` returns true are not read: it has put a
    /// replacement for their samples, or part of them, into the samples. Only chunks of floats that overlap
    /// no other samples are passed to it. Returns the number of rows. Cost of a replaced chunk: its head, and
    /// what `take` reads of it.
    ///
    /// # Errors
    /// Damage.
    pub fn samples_or_chunks(
        &mut self,
        into: &mut Samples,
        take: &mut dyn FnMut(&Chunk<'_>, &mut Samples) -> Result<bool>,
    ) -> Result<usize> {
        match (self.current, &mut self.reader) {
            (Some(id), Some(reader)) => reader.read_chunks(id, into, Some(take)),
            _ => Ok(0),
        }
    }

    /// Appends the samples of the current series to `into`; returns their number.
    ///
    /// # Errors
    /// Damage.
    pub fn samples(&mut self, into: &mut Samples) -> Result<usize> {
        match (self.current, &mut self.reader) {
            (Some(id), Some(reader)) => reader.read(id, into),
            _ => Ok(0),
        }
    }
}
