//! Enforcing the rules of stores: in small steps, each one commit with its progress, so that a crash repeats
//! nothing and a writer never waits for more than one step.
//!
//!   old days, bytes ─▶ drop_before        retention ─▶ delete up to a day        downsampling, day by day, series by series:
//!   read ─▶ one sample per step ─▶ commit { unchanged?, delete the day, append the rest, progress }
//!
//! A downsampled series has its samples in the same chunks and is read by the same code; queries over old
//! days read less. Samples that arrive for a day after its downsampling are not downsampled.

use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ropewalk_base::Seq;
use ropewalk_engine::{
    CommitError, Durability, Engine, ModelId, Operation, Outcome, PeriodicTask, ReadView, Rejection,
    Snapshot, Verdict,
};
use ropewalk_labels::{Matcher, STALE_BITS, Samples};

use crate::error::{Result, SeriesError};
use crate::id::SeriesId;
use crate::model::{SERIES, SeriesModel, StoreState};
use crate::retention::rules::{
    Downsampling, Progress, RetentionRule, RulesOperation, put_progress, read_rules,
};
use crate::sample::batch::SampleBatch;
use crate::storage::chunk_keys::{base_of, partition_of, partitions};
use crate::storage::read::SeriesReader;
use crate::storage::section::RulesPart;
use crate::store::SeriesStore;
use crate::store::admin::DeleteOperation;
use crate::store::append::AppendSamples;

/// Samples that one step of downsampling reads, and one series more: a few milliseconds.
const STEP_SAMPLES: usize = 50_000;

/// Result of [`SeriesStore::enforce`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Enforced {
    /// The first retained millisecond, if days of all series were dropped for their age or their bytes.
    pub dropped_before_ms: Option<i64>,
    /// Series of which retention by selector dropped days.
    pub shortened: u64,
    /// Samples that downsampling removed.
    pub thinned: u64,
    /// Commits.
    pub steps: u64,
}

/// One rule with a selector, and its progress.
struct Turn<'a> {
    rules: &'a [Progress],
    at: usize,
}

impl Turn<'_> {
    fn progress(&self) -> Progress {
        *self.rules.get(self.at).expect("every rule has its progress")
    }

    /// An operation that records the rule's progress in a commit.
    fn now(&self, store: &SeriesStore, progress: Progress) -> RulesOperation {
        let mut all = self.rules.to_vec();
        *all.get_mut(self.at).expect("every rule has its progress") = progress;
        let mut bytes = Vec::new();
        put_progress(&mut bytes, &all);
        let (model, name) = (store.model.clone(), store.name().to_owned());
        RulesOperation { model, store: name, part: RulesPart::Progress, bytes }
    }
}

impl SeriesStore {
    /// Enforces the store's rules as of now, in as many steps as necessary.
    ///
    /// Cost: reads the index when nothing is due; otherwise see [`Rules`](crate::retention::rules::Rules).
    /// Later flushes and merges free the bytes.
    ///
    /// # Errors
    /// Damage; the engine's.
    pub fn enforce(&self) -> Result<Enforced> {
        let mut all = Enforced::default();
        while self.enforce_step(&mut all)? {}
        Ok(all)
    }

    /// One step. False when there was nothing to do.
    fn enforce_step(&self, done: &mut Enforced) -> Result<bool> {
        let Some(state) = self.model.find(self.name()) else { return Ok(false) };
        let snapshot = self.engine.snapshot();
        let (rules, progress) = read_rules(snapshot.read(), &self.model, &state)?;
        let now = self.now_ms();
        let days_before = |ms: u64| partition_of(now.saturating_sub(i64::try_from(ms).unwrap_or(i64::MAX)));
        let floor = state.retention_floor_ms();
        let kept = match (rules.keep_ms, rules.bytes_max) {
            (Some(ms), _) if base_of(days_before(ms)) > floor => {
                self.drop_before(base_of(days_before(ms)))?
            }
            // All stores together are within the limit: then this one's bytes need not be counted.
            (_, Some(bytes)) if self.file_bytes() > bytes => self.drop_to_bytes(bytes)?,
            _ => floor,
        };
        if kept > floor {
            done.dropped_before_ms = Some(kept);
            done.steps += 1;
            return Ok(true);
        }
        for (at, rule) in rules.retention.iter().enumerate() {
            let turn = Turn { rules: &progress, at };
            if self.shorten(&snapshot, &state, (&rule.matchers, days_before(rule.keep_ms)), &turn, done)? {
                return Ok(true);
            }
        }
        for (at, rule) in (rules.retention.len()..).zip(&rules.downsampling) {
            let turn = Turn { rules: &progress, at };
            if self.thin(&snapshot, &state, (rule, days_before(rule.after_ms)), &turn, done)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Bytes of all chunks in files, including those of other stores.
    fn file_bytes(&self) -> u64 {
        let keyspaces = self.engine.stats().store.keyspaces;
        keyspaces.iter().find(|keyspace| keyspace.name == "series").map_or(0, |keyspace| keyspace.file_bytes)
    }

    /// Deletes the days before `end` of the series that `matchers` select.
    fn shorten(
        &self,
        snapshot: &Snapshot,
        state: &Arc<StoreState>,
        (matchers, end): (&[Matcher], i64),
        turn: &Turn<'_>,
        done: &mut Enforced,
    ) -> Result<bool> {
        if turn.progress().partition >= end {
            return Ok(false);
        }
        let (_, ids) = self.at(snapshot).found(matchers);
        if ids.is_empty() {
            return Ok(false);
        }
        done.shortened += ids.len();
        done.steps += 1;
        // The first day of all has nothing before it.
        let (from, to) = (i64::MIN, base_of(end).saturating_sub(1));
        let delete = DeleteOperation { state: state.clone(), from, to, ids: Some(ids), forget: false };
        let progress = turn.now(self, Progress { partition: end, id: 0 });
        self.engine.commit(vec![Box::new(delete), Box::new(progress)], Durability::Sync)?;
        Ok(true)
    }

    /// Downsamples some series of one day before `end`.
    fn thin(
        &self,
        snapshot: &Snapshot,
        state: &Arc<StoreState>,
        (rule, end): (&Downsampling, i64),
        turn: &Turn<'_>,
        done: &mut Enforced,
    ) -> Result<bool> {
        let Progress { partition, id } = turn.progress();
        let Some(last) = end.checked_sub(1).filter(|last| *last >= partition) else { return Ok(false) };
        let place = self.model.place(state.id);
        let mut cursor = snapshot.read().flushed_cursor(place.chunks);
        let Some(day) = partitions(&mut cursor, state.id, partition, last)?.first().copied() else {
            return Ok(false);
        };
        let (_, mut ids) = self.at(snapshot).found(&rule.matchers);
        if day == partition {
            ids.remove_range(..id);
        }
        // A damaged key may have the last number of a day.
        let (from, to) = (base_of(day), base_of(day.saturating_add(1)).saturating_sub(1));
        let mut reader = SeriesReader::new(snapshot.read(), place, state.duplicate_rules(), (from, to))?;
        let (mut raw, mut batch) = (Samples::default(), SampleBatch::new());
        let mut changed: Vec<(u32, usize)> = Vec::new();
        let (mut read, mut next) = (0, Progress { partition: day.saturating_add(1), id: 0 });
        for id in ids {
            if read > STEP_SAMPLES {
                next = Progress { partition: day, id };
                break;
            }
            raw.clear();
            read += reader.read(id, &mut raw)?;
            let left = steps_of(&raw, rule.step_ms);
            if left.len() < raw.len() {
                done.thinned += (raw.len() - left.len()) as u64;
                changed.push((id, raw.len()));
                put_steps(&raw, &left, rule.keep, batch.series_id(SeriesId(id)));
            }
        }
        let ids = changed.iter().map(|(id, _)| *id).collect();
        let step = ThinStep {
            progress: turn.now(self, next),
            state: state.clone(),
            range: (from, to),
            since: snapshot.seq(),
            found: changed,
        };
        let mut operations: Vec<Box<dyn Operation>> = vec![Box::new(step)];
        if !batch.is_empty() {
            let ids = Some(ids);
            operations.push(Box::new(DeleteOperation { state: state.clone(), from, to, ids, forget: false }));
            operations.push(Box::new(AppendSamples::replacing(self.model.clone(), self.name(), &batch)?));
        }
        done.steps += 1;
        match self.engine.commit(operations, Durability::Sync) {
            Err(CommitError::Rejected(reason)) if reason.is::<Touched>() => Ok(true),
            other => other.map(|_| true).map_err(SeriesError::from),
        }
    }
}

/// The samples of each step: ends of consecutive ranges.
fn steps_of(raw: &Samples, step_ms: u64) -> Vec<usize> {
    let step = i64::try_from(step_ms).unwrap_or(i64::MAX);
    let of = |time: &i64| time.div_euclid(step);
    let pairs = raw.times_ms.iter().zip(raw.times_ms.iter().skip(1));
    let mut ends: Vec<usize> =
        (1..).zip(pairs).filter(|(_, (a, b))| of(a) != of(b)).map(|(end, _)| end).collect();
    if !raw.is_empty() {
        ends.push(raw.len());
    }
    debug_assert!(ends.is_sorted_by(|a, b| a < b), "steps are not empty");
    ends
}

fn put_steps(
    raw: &Samples,
    ends: &[usize],
    keep: RetentionRule,
    mut to: crate::sample::batch::SeriesSamples<'_>,
) {
    let mut start = 0;
    for end in ends {
        debug_assert!(start < *end && *end <= raw.len(), "steps follow each other: {ends:?}");
        let last = *end - 1;
        let time = *raw.times_ms.get(last).expect("a step ends in the samples");
        // The column is empty where no sample has a start.
        let start_ms = raw.starts_ms.get(last).copied().unwrap_or(0);
        let value = *raw.values.get(last).expect("every time has a value");
        match raw.histograms.get(last).and_then(Option::as_ref) {
            Some(histogram) => {
                to.push_histogram(time, histogram, start_ms);
            }
            None if start_ms != 0 => {
                to.push_started(time, value, start_ms);
            }
            None => {
                let rows = raw.values.get(start..*end).expect("every time has a value");
                let plain = raw.histograms.get(start..*end).is_none_or(|all| all.iter().all(Option::is_none));
                let kept = if plain { value_of(rows, keep) } else { None };
                to.push(time, kept.unwrap_or(value));
            }
        }
        start = *end;
    }
}

/// The resulting value of a step; `None` when all are staleness markers.
fn value_of(values: &[f64], keep: RetentionRule) -> Option<f64> {
    let mut real = values.iter().copied().filter(|value| value.to_bits() != STALE_BITS);
    match keep {
        RetentionRule::Last => real.next_back(),
        RetentionRule::Least => real.reduce(f64::min),
        RetentionRule::Greatest => real.reduce(f64::max),
        RetentionRule::Mean => {
            let (count, sum) = real.fold((0_u32, 0.0), |(count, sum), value| (count + 1, sum + value));
            (count > 0).then(|| sum / f64::from(count))
        }
    }
}

/// Another transaction wrote where a step has read.
#[derive(Debug, thiserror::Error)]
#[error("samples came while they were thinned out")]
struct Touched;

/// Records a rule's progress, if no commit since a snapshot, which is still held, wrote to the series of the
/// step or deleted there.
struct ThinStep {
    progress: RulesOperation,
    state: Arc<StoreState>,
    range: (i64, i64),
    since: Seq,
    /// The series, and how many samples of each the snapshot has there.
    found: Vec<(u32, usize)>,
}

impl Operation for ThinStep {
    fn model(&self) -> ModelId {
        SERIES
    }

    fn bytes_max(&self) -> usize {
        self.progress.bytes_max()
    }

    fn validate(&mut self, latest: ReadView<'_>) -> Result<Verdict, Rejection> {
        let place = self.progress.model.place(self.state.id);
        let (from, to) = self.range;
        let reader = SeriesReader::new(latest, place, self.state.duplicate_rules(), (from, to));
        let (mut reader, mut samples) = (reader.map_err(Box::new)?, Samples::default());
        for (id, count) in &self.found {
            samples.clear();
            let newer = reader.written_since(self.since, *id).map_err(Box::new)?;
            if newer.is_some() || reader.read(*id, &mut samples).map_err(Box::new)? != *count {
                return Err(Box::new(Touched));
            }
        }
        self.progress.validate(latest)
    }

    fn encode(&mut self, seq: Seq, time_micros: i64, out: &mut Vec<u8>) -> Outcome {
        self.progress.encode(seq, time_micros, out)
    }
}

impl SeriesModel {
    /// Enforces the rules of all stores in the background, repeatedly with `pause` between, as long as the
    /// returned handle lives.
    pub fn enforce_in_background(self: &Arc<Self>, engine: &Arc<Engine>, pause: Duration) -> PeriodicTask {
        let (model, at) = (self.clone(), engine.clone());
        PeriodicTask::start("rope-retention", engine.clone(), pause, move |stop| {
            for name in model.stores() {
                // A failure recurs in the next round and for writers, which report it; this thread has no
                // caller to report it to.
                let _ = SeriesStore::new(at.clone(), model.clone(), &name)
                    .and_then(|store| store.enforce_until(stop));
            }
        })
    }
}

impl SeriesStore {
    fn enforce_until(&self, stop: &AtomicBool) -> Result<()> {
        let mut done = Enforced::default();
        while !stop.load(Ordering::Acquire) && self.enforce_step(&mut done)? {
            // Let others go first: each step is a commit, and its flush is work.
            self.engine.env().clock.sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}
