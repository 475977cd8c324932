//! Appending: a client's request, and its place in the commit order.
//!
//!   caller's thread: look every series up, sort, compress, encode
//!     ─▶ sequencer: look the unknown ones up again, assign ids
//!     ─▶ caller's thread: postings of many new series
//!
//! Almost everything is done before the sequencer; the remaining cost depends on new series, not on samples,
//! and most of that is done after it (see `index`).

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use ropewalk_base::{HashedMap, Seq, hash64};
use ropewalk_engine::{ModelId, Operation, Outcome, ReadView, Rejection, Verdict};
use ropewalk_labels::{LabelsRef, METRIC_NAME, Samples, check_labels};

use crate::error::{Result, SeriesError};
use crate::id::SeriesId;
use crate::memory::index::Index;
use crate::model::{SERIES, SeriesModel, StoreState};
use crate::sample::batch::{GroupRef, SampleBatch, Who, take_payload};
use crate::sample::types::{Duplicates, SeriesOptions};
use crate::storage::read::SeriesReader;
use crate::storage::section::{GroupWriter, NewSeries, Target, put_samples};

/// The series that were unknown when the batch was prepared, by ordinal. Their labels are contiguous, because
/// the sequencer drops them.
#[derive(Default)]
struct Unknown {
    labels: Vec<u8>,
    series: Vec<UnknownSeries>,
}

#[derive(Clone, Copy)]
struct UnknownSeries {
    /// Start of its labels.
    start: usize,
    end: usize,
    hash: u64,
    /// Found in the sequencer.
    id: Option<u32>,
}

impl UnknownSeries {
    fn labels_in<'l>(&self, labels: &'l [u8]) -> &'l [u8] {
        labels.get(self.start..self.end).expect("series follow each other in the labels")
    }
}

impl Unknown {
    fn push(&mut self, labels: &[u8], hash: u64) {
        let start = self.labels.len();
        self.labels.extend_from_slice(labels);
        self.series.push(UnknownSeries { start, end: self.labels.len(), hash, id: None });
    }

    fn labels(&self, series: &UnknownSeries) -> LabelsRef<'_> {
        LabelsRef::new(series.labels_in(&self.labels))
    }

    fn get(&self, ordinal: u32) -> Option<&UnknownSeries> {
        self.series.get(ordinal as usize)
    }

    /// The series that are to be created.
    fn fresh(&self) -> impl Iterator<Item = LabelsRef<'_>> + Clone {
        self.series.iter().filter(|series| series.id.is_none()).map(|series| self.labels(series))
    }

    /// Searches for them again when the index has changed since `looked`; returns its current state. Costs
    /// nothing while no series are created or deleted, as while others wait for the creation of many.
    fn look_again(&mut self, index: &Index, looked: Option<(u32, usize)>) -> Option<(u32, usize)> {
        let now = Some((index.last(), index.deaths()));
        if looked != now {
            for series in &mut self.series {
                series.id = index.find(series.labels_in(&self.labels), series.hash);
            }
        }
        now
    }
}

/// Labels with their hash, so that a map need not compute it again.
#[derive(PartialEq, Eq)]
struct HashedLabels<'a> {
    hash: u64,
    labels: &'a [u8],
}

impl Hash for HashedLabels<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// Samples that the sequencer must search, because the store refuses duplicates.
struct Check {
    target: Target,
    samples: Vec<(i64, u64)>,
}

/// A checked and encoded append, to be sequenced.
pub struct AppendSamples {
    model: Arc<SeriesModel>,
    store: String,
    state: Option<Arc<StoreState>>,
    /// The settings of the store at the lookup.
    options: SeriesOptions,
    unknown: Unknown,
    /// Ids that the groups name: they must not be deleted meanwhile.
    known: Vec<u32>,
    /// Number of deleted series at the lookup.
    deaths: usize,
    /// The last series, and the number of deleted ones, at the search for the unknown ones.
    looked: Option<(u32, usize)>,
    checks: Vec<Check>,
    groups: Vec<u8>,
    samples: u64,
    oldest: i64,
}

/// Sorts a group by time and leaves one sample for each. `None` when it already is that way.
fn sorted(group: &GroupRef<'_>, duplicates: Duplicates) -> Result<Option<(Vec<i64>, Vec<u64>)>, i64> {
    if group.times.is_sorted_by(|a, b| a < b) {
        return Ok(None);
    }
    let mut rows: Vec<(i64, u64)> = group.times.iter().copied().zip(group.bits.iter().copied()).collect();
    rows.sort_by_key(|(time, _)| *time);
    let mut conflict = None;
    rows.dedup_by(|later, kept| {
        let same = later.0 == kept.0;
        if same && later.1 != kept.1 {
            conflict = conflict.or(Some(later.0));
            if duplicates != Duplicates::KeepFirst {
                *kept = *later;
            }
        }
        same
    });
    match conflict {
        Some(time) if duplicates == Duplicates::Refuse => Err(time),
        _ => Ok(Some(rows.into_iter().unzip())),
    }
}

/// Samples that a store accepts, while one batch is prepared.
struct Taken {
    duplicates: Duplicates,
    /// Start of its retention.
    floor: i64,
    /// Times that the clock allows, inclusive.
    window: (i64, i64),
}

impl Taken {
    fn check(&self, oldest: i64, newest: i64, labels: impl FnOnce() -> String) -> Result<()> {
        let (from_ms, to_ms) = self.window;
        if oldest < self.floor {
            return Err(SeriesError::OutOfRetention {
                labels: labels(),
                time_ms: oldest,
                floor_ms: self.floor,
            });
        }
        if oldest < from_ms || newest > to_ms {
            let time_ms = if oldest < from_ms { oldest } else { newest };
            return Err(SeriesError::OutOfWindow { labels: labels(), time_ms, from_ms, to_ms });
        }
        Ok(())
    }
}

/// Series of the groups of a batch.
struct Resolved {
    targets: Vec<Target>,
    unknown: Unknown,
    known: Vec<u32>,
}

/// Looks the series of a batch up, step by step for all groups: the cache misses then overlap instead of
/// waiting for each other, which is most of the cost of a lookup among many series.
fn resolve(batch: &SampleBatch, index: Option<&Index>, store: &str) -> Result<Resolved> {
    let labels = |group: &GroupRef<'_>| match group.who {
        Who::Labels(start, end) => Some(batch.label_bytes(start, end)),
        Who::Id(_) => None,
    };
    let hashes: Vec<u64> = batch.groups().map(|g| labels(&g).map_or(0, hash64)).collect();
    let candidate = |hash: &u64| index.and_then(|index| index.candidate(*hash));
    let candidates: Vec<Option<u32>> = hashes.iter().map(candidate).collect();
    let mut targets = Vec::with_capacity(batch.group_count());
    let mut known = Vec::with_capacity(batch.group_count());
    let mut unknown = Unknown::default();
    let mut ordinals: HashedMap<HashedLabels<'_>, u32> = HashedMap::default();
    for ((group, candidate), hash) in batch.groups().zip(candidates).zip(hashes) {
        let found = match group.who {
            Who::Id(id) => match index.filter(|index| index.is_alive(id.0)) {
                Some(_) => Some(id.0),
                None => return Err(SeriesError::UnknownSeries { id, store: store.to_owned() }),
            },
            Who::Labels(start, end) => {
                let bytes = batch.label_bytes(start, end);
                index.and_then(|index| index.confirm(candidate, bytes))
            }
        };
        if let Some(id) = found {
            known.push(id);
            targets.push(Target::Known(id));
        } else if let Some(labels) = labels(&group) {
            let next = unknown.series.len() as u32;
            let ordinal = *ordinals.entry(HashedLabels { hash, labels }).or_insert(next);
            if ordinal == next {
                check_labels(labels)?;
                unknown.push(labels, hash);
            }
            targets.push(Target::New(ordinal));
        }
    }
    debug_assert_eq!(targets.len(), batch.group_count(), "every group has a target");
    Ok(Resolved { targets, unknown, known })
}

/// True when no series has two groups.
fn all_different(targets: &[Target]) -> bool {
    let key = |target: &Target| match target {
        Target::Known(id) => u64::from(*id),
        Target::New(ordinal) => 1 << 32 | u64::from(*ordinal),
    };
    if targets.is_sorted_by(|a, b| key(a) < key(b)) {
        return true;
    }
    let mut keys: Vec<u64> = targets.iter().map(key).collect();
    keys.sort_unstable();
    keys.is_sorted_by(|a, b| a < b)
}

impl AppendSamples {
    /// Prepares an append to the store `store`.
    ///
    /// # Errors
    /// Labels over the limits; a series id that is not there; samples before the store's retention or too far from
    /// `now_ms`; with [`Duplicates::Refuse`], two values for one time within the batch.
    pub(crate) fn new(
        model: Arc<SeriesModel>,
        store: &str,
        batch: &SampleBatch,
        now_ms: impl FnOnce() -> i64,
    ) -> Result<Self> {
        let state = model.find(store);
        let (options, floor) = state
            .as_ref()
            .map_or((SeriesOptions::default(), i64::MIN), |s| (s.options(), s.retention_floor_ms()));
        let mut taken = Taken { duplicates: options.duplicates, floor, window: (i64::MIN, i64::MAX) };
        if (options.past_ms_max, options.future_ms_max) != (i64::MAX, i64::MAX) {
            let now = now_ms();
            taken.window =
                (now.saturating_sub(options.past_ms_max), now.saturating_add(options.future_ms_max));
        }
        Self::prepare(model, (store, state), batch, &taken)
    }

    /// Prepares samples that replace others, which the same commit deletes: the store's rules do not apply to
    /// them.
    pub(crate) fn replacing(model: Arc<SeriesModel>, store: &str, batch: &SampleBatch) -> Result<Self> {
        let state = model.find(store);
        let floor = state.as_ref().map_or(i64::MIN, |state| state.retention_floor_ms());
        let taken = Taken { duplicates: Duplicates::KeepLast, floor, window: (i64::MIN, i64::MAX) };
        Self::prepare(model, (store, state), batch, &taken)
    }

    fn prepare(
        model: Arc<SeriesModel>,
        (store, state): (&str, Option<Arc<StoreState>>),
        batch: &SampleBatch,
        taken: &Taken,
    ) -> Result<Self> {
        let (Resolved { targets, unknown, known }, looked) = {
            let index = state.as_ref().map(|state| state.index.read());
            let looked = index.as_ref().map(|index| (index.last(), index.deaths()));
            (resolve(batch, index.as_deref(), store)?, looked)
        };
        let options = state.as_ref().map_or_else(SeriesOptions::default, |state| state.options());
        let mut append = Self {
            model,
            store: store.to_owned(),
            state,
            options,
            unknown,
            known,
            deaths: looked.map_or(0, |(_, deaths)| deaths),
            looked,
            checks: Vec::new(),
            groups: Vec::new(),
            samples: 0,
            oldest: i64::MAX,
        };
        // One group of several of a series must not overtake another.
        let chunks = all_different(&targets);
        let mut writer = GroupWriter::default();
        writer.out.reserve(batch.len() * 10);
        for (group, target) in batch.groups().zip(&targets) {
            append.group(&mut writer, &group, (*target, chunks), taken)?;
        }
        append.groups = writer.out;
        Ok(append)
    }

    fn group(
        &mut self,
        writer: &mut GroupWriter,
        group: &GroupRef<'_>,
        (target, chunks): (Target, bool),
        taken: &Taken,
    ) -> Result<()> {
        let sorted = sorted(group, taken.duplicates)
            .map_err(|time_ms| SeriesError::DuplicateSample { labels: self.name(target), time_ms })?;
        let (times, bits) = match &sorted {
            Some((times, bits)) => (times.as_slice(), bits.as_slice()),
            None => (group.times, group.bits),
        };
        for (_, payload) in group.rich.iter() {
            if let Ok((_, Ok(histogram))) = take_payload(payload) {
                histogram.check()?;
            }
        }
        for labels in group.exemplars.iter().filter_map(|exemplar| exemplar.labels.as_ref()) {
            check_labels(labels.as_bytes())?;
        }
        let rich_times = || group.rich.iter().map(|(time, _)| time);
        let oldest = times.first().copied().into_iter().chain(rich_times()).min();
        let newest = times.last().copied().into_iter().chain(rich_times()).max();
        if let (Some(oldest), Some(newest)) = (oldest, newest) {
            taken.check(oldest, newest, || self.name(target))?;
            self.oldest = self.oldest.min(oldest);
        }
        writer.floats(target, times, bits, chunks);
        writer.rich(target, group.rich.len(), group.rich.iter());
        writer.exemplars(target, group.exemplars);
        self.samples += (times.len() + group.rich.len()) as u64;
        if taken.duplicates == Duplicates::Refuse {
            let samples = times.iter().copied().zip(bits.iter().copied()).collect();
            self.checks.push(Check { target, samples });
        }
        Ok(())
    }

    /// The series of a group, for messages.
    fn name(&self, target: Target) -> String {
        match target {
            Target::New(ordinal) => {
                let labels = self.unknown.get(ordinal).map(|series| self.unknown.labels(series));
                labels.map_or_else(String::new, |labels| labels.to_string())
            }
            Target::Known(id) => {
                let index = self.state.as_ref().map(|state| state.index.read());
                let labels = index.as_ref().and_then(|index| index.labels(id));
                labels.map_or_else(|| format!("{id}"), |labels| labels.to_string())
            }
        }
    }

    /// True if the same samples, prepared now, would be decided in the same way.
    pub fn is_current(&self) -> bool {
        let SeriesOptions { past_ms_max, future_ms_max, .. } = self.options;
        if (past_ms_max, future_ms_max) != (i64::MAX, i64::MAX) {
            // Times were compared with the clock.
            return false;
        }
        match (&self.state, self.model.find(&self.store)) {
            (None, None) => true,
            (Some(own), Some(now)) => {
                let has_same_series = Arc::ptr_eq(own, &now) && now.index.read().deaths() == self.deaths;
                has_same_series && now.options() == self.options
            }
            _ => false,
        }
    }

    fn decide(&mut self, latest: ReadView<'_>) -> Result<()> {
        if self.state.is_none() {
            self.state = self.model.find(&self.store);
        }
        let Some(state) = self.state.clone() else {
            self.model.check_new(&self.store)?;
            // The defaults have no limit by metric.
            return self.check_room(0, 0, SeriesOptions::default());
        };
        {
            let metric_max = state.options().metric_series_max;
            // Counting by metric needs the postings of all.
            let head = if metric_max == u64::MAX { 0 } else { u32::MAX };
            let index = state.posted(head);
            let dead = |id: &&u32| !index.is_alive(**id);
            if index.deaths() != self.deaths
                && let Some(id) = self.known.iter().find(dead)
            {
                return Err(SeriesError::UnknownSeries { id: SeriesId(*id), store: self.store.clone() });
            }
            self.looked = self.unknown.look_again(&index, self.looked);
            self.check_room(index.len(), index.last(), state.options())?;
            self.check_metrics(&index, metric_max)?;
        }
        let floor_ms = state.retention_floor_ms();
        if self.oldest < floor_ms {
            let (labels, time_ms) = ("of the batch".to_owned(), self.oldest);
            return Err(SeriesError::OutOfRetention { labels, time_ms, floor_ms });
        }
        self.check_duplicates(latest, &state)
    }

    fn check_room(&self, held: u64, last: u32, options: SeriesOptions) -> Result<()> {
        let mut fresh = self.unknown.fresh();
        let new = fresh.clone().count() as u64;
        let max = options.series_max;
        if new > 0 && held + new > max {
            let labels = fresh.next().expect("there are new series").to_string();
            return Err(SeriesError::CardinalityLimit { store: self.store.clone(), new, held, max, labels });
        }
        if new > u64::from(u32::MAX - last) {
            return Err(SeriesError::Exhausted { what: "the 2^32 - 1 series numbers of this store" });
        }
        Ok(())
    }

    /// Counts the new series of each metric with the existing ones.
    fn check_metrics(&self, index: &Index, max: u64) -> Result<()> {
        if max == u64::MAX {
            return Ok(());
        }
        let mut new: HashMap<&str, (u64, LabelsRef<'_>)> = HashMap::new();
        for labels in self.unknown.fresh() {
            new.entry(labels.get(METRIC_NAME)).or_insert((0, labels)).0 += 1;
        }
        for (metric, (new, labels)) in new {
            let held = new + index.alive_with(METRIC_NAME, metric);
            if held > max {
                let (metric, labels) = (metric.to_owned(), labels.to_string());
                return Err(SeriesError::MetricLimit { metric, held, max, labels });
            }
        }
        Ok(())
    }

    fn check_duplicates(&self, latest: ReadView<'_>, state: &StoreState) -> Result<()> {
        let mut found = Samples::default();
        for check in &self.checks {
            let id = match check.target {
                Target::Known(id) => Some(id),
                Target::New(ordinal) => self.unknown.get(ordinal).and_then(|series| series.id),
            };
            let range = (check.samples.first(), check.samples.last());
            // A new series has nothing to compare with, and a group may have no samples.
            let (Some(id), (Some((from, _)), Some((to, _)))) = (id, range) else { continue };
            found.clear();
            let place = self.model.place(state.id);
            let rules = state.duplicate_rules();
            SeriesReader::new(latest, place, rules, (*from, *to))?.read(id, &mut found)?;
            let mut there = found.bits().peekable();
            for (time, bits) in &check.samples {
                while there.peek().is_some_and(|(t, _)| t < time) {
                    there.next();
                }
                if there.peek().is_some_and(|(t, b)| t == time && b != bits) {
                    let labels = self.name(check.target);
                    return Err(SeriesError::DuplicateSample { labels, time_ms: *time });
                }
            }
        }
        Ok(())
    }
}

impl Operation for AppendSamples {
    fn model(&self) -> ModelId {
        SERIES
    }

    fn bytes_max(&self) -> usize {
        let new = self.unknown.labels.len() + 12 * self.unknown.series.len();
        self.groups.len() + new + self.store.len() + 64
    }

    fn validate(&mut self, latest: ReadView<'_>) -> Result<Verdict, Rejection> {
        self.decide(latest).map(|()| Verdict::Write).map_err(|error| Box::new(error) as Rejection)
    }

    fn encode(&mut self, _seq: Seq, _time_micros: i64, out: &mut Vec<u8>) -> Outcome {
        // Looked up again: an earlier part of the same transaction may have created the store or its series.
        let state = self.state.take().or_else(|| self.model.find(&self.store));
        let (store, last) = match &state {
            Some(state) => {
                let index = state.index.read();
                self.unknown.look_again(&index, self.looked);
                (state.id, index.last())
            }
            None => (self.model.new_id(), 0),
        };
        let creates = state.is_none().then_some(self.store.as_str());
        let new = self.unknown.series.iter().map(|series| match series.id {
            Some(id) => NewSeries::Known(id),
            None => NewSeries::Created(self.unknown.labels(series).as_bytes()),
        });
        let created = self.unknown.series.iter().filter(|series| series.id.is_none()).count();
        assert!(
            created as u64 <= u64::from(u32::MAX - last),
            "validation leaves numbers for {created} series after {last}"
        );
        // Without new series the number is not used.
        put_samples(out, (store, creates), last.saturating_add(1), new, &self.groups);
        (self.samples, created as u64)
    }
}
