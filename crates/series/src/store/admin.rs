//! Settings, deletion, retention, and space usage.
//!
//! Each change is one commit, decided in the commit order like any other. A deletion hides samples at once;
//! they are removed from the files by the next flush and the merges after it.

use std::sync::Arc;

use roaring::RoaringBitmap;
use ropewalk_base::Seq;
use ropewalk_engine::{Cursor, Durability, ModelId, Operation, Outcome, ReadView, Rejection, Verdict};
use ropewalk_labels::{METRIC_NAME, Matcher};

use crate::error::{Result, SeriesError};
use crate::model::{SERIES, SeriesModel, StoreState};
use crate::query::select::SeriesAt;
use crate::sample::types::SeriesOptions;
use crate::storage::chunk_keys::{ChunkKey, base_of, damaged, partition_of};
use crate::storage::keys::exemplar_key;
use crate::storage::section::{put_deletion, put_settings};
use crate::store::SeriesStore;

/// Changes the settings; creates the store if need be.
struct SettingsOperation {
    model: Arc<SeriesModel>,
    store: String,
    options: Option<SeriesOptions>,
    floor: Option<i64>,
}

impl Operation for SettingsOperation {
    fn model(&self) -> ModelId {
        SERIES
    }

    fn bytes_max(&self) -> usize {
        self.store.len() + 64
    }

    fn validate(&mut self, _latest: ReadView<'_>) -> Result<Verdict, Rejection> {
        self.model.check_new(&self.store)?;
        if let (Some(state), Some(options)) = (self.model.find(&self.store), self.options)
            && state.duplicate_rules().is_full()
            && state.options().duplicates != options.duplicates
        {
            let what = "the 1000 changes of a store's treatment of duplicates";
            return Err(SeriesError::Exhausted { what }.into());
        }
        Ok(Verdict::Write)
    }

    fn encode(&mut self, _seq: Seq, _time_micros: i64, out: &mut Vec<u8>) -> Outcome {
        let state = self.model.find(&self.store);
        let (id, options, floor) = match &state {
            Some(state) => (state.id, state.options(), state.retention_floor_ms()),
            None => (self.model.new_id(), SeriesOptions::default(), i64::MIN),
        };
        let creates = state.is_none().then_some(self.store.as_str());
        // A floor never sinks: older samples are gone.
        let floor = self.floor.map_or(floor, |new| new.max(floor));
        put_settings(out, (id, creates), self.options.unwrap_or(options), floor);
        (0, 0)
    }
}

/// Deletes samples of a store.
pub(crate) struct DeleteOperation {
    pub(crate) state: Arc<StoreState>,
    pub(crate) from: i64,
    pub(crate) to: i64,
    pub(crate) ids: Option<RoaringBitmap>,
    pub(crate) forget: bool,
}

impl Operation for DeleteOperation {
    fn model(&self) -> ModelId {
        SERIES
    }

    fn bytes_max(&self) -> usize {
        64 + self.ids.as_ref().map_or(0, RoaringBitmap::serialized_size)
    }

    fn validate(&mut self, _latest: ReadView<'_>) -> Result<Verdict, Rejection> {
        Ok(Verdict::Write)
    }

    fn encode(&mut self, _seq: Seq, _time_micros: i64, out: &mut Vec<u8>) -> Outcome {
        put_deletion(out, self.state.id, (self.from, self.to), self.ids.as_ref(), self.forget);
        (0, 0)
    }
}

impl SeriesStore {
    fn run(&self, operations: Vec<Box<dyn Operation>>) -> Result<Seq> {
        Ok(self.engine.commit(operations, Durability::Sync)?.seq)
    }

    /// Changes the settings, for batches that are prepared from now on; creates the store if it does not
    /// exist. A change of [`Duplicates`](crate::Duplicates) concerns later commits: of two samples at one time, the rule
    /// at the commit of the later one decides, for good.
    ///
    /// # Errors
    /// The engine's; [`SeriesError::Exhausted`] after 1000 changes of the treatment of duplicates.
    pub fn configure(&self, options: SeriesOptions) -> Result<Seq> {
        let (model, store) = (self.model.clone(), self.name().to_owned());
        self.run(vec![Box::new(SettingsOperation { model, store, options: Some(options), floor: None })])
    }

    /// Deletes the samples from `from_ms` to `to_ms`, both inclusive, of the series for which all `matchers`
    /// hold; returns the number of these series. With the whole time range the series are deleted, too, and
    /// their numbers are not assigned again.
    ///
    /// Readers with older snapshots still see them. Cost: one small commit; the following flush rewrites
    /// chunks that are only partly deleted.
    ///
    /// # Errors
    /// The engine's.
    pub fn delete(&self, matchers: &[Matcher], from_ms: i64, to_ms: i64) -> Result<u64> {
        let snapshot = self.engine.snapshot();
        let (Some(state), ids) = self.at(&snapshot).found(matchers) else { return Ok(0) };
        if ids.is_empty() || from_ms > to_ms {
            return Ok(0);
        }
        let (count, forget) = (ids.len(), from_ms == i64::MIN && to_ms == i64::MAX);
        let ids = Some(ids);
        self.run(vec![Box::new(DeleteOperation { state, from: from_ms, to: to_ms, ids, forget })])?;
        Ok(count)
    }

    /// Drops the days that end before `before_ms`, of all series, and refuses samples of those days from now
    /// on. Returns the first retained millisecond.
    ///
    /// # Errors
    /// The engine's.
    pub fn drop_before(&self, before_ms: i64) -> Result<i64> {
        let floor = base_of(partition_of(before_ms));
        let Some(state) = self.model.find(self.name()) else { return Ok(floor) };
        if floor <= state.retention_floor_ms() || floor > before_ms {
            return Ok(state.retention_floor_ms());
        }
        let (model, store) = (self.model.clone(), self.name().to_owned());
        let settings = SettingsOperation { model, store, options: None, floor: Some(floor) };
        let mut operations: Vec<Box<dyn Operation>> = vec![Box::new(settings)];
        let with_exemplars = {
            let snapshot = self.engine.snapshot();
            exemplars_before(&mut snapshot.read().cursor(self.model.exemplars()), state.id, floor)?
        };
        let (from, to, forget) = (i64::MIN, floor - 1, false);
        if !with_exemplars.is_empty() {
            // Days are deleted as a range of keys; exemplars are ordered by series.
            let (state, ids) = (state.clone(), Some(with_exemplars));
            operations.push(Box::new(DeleteOperation { state, from, to, ids, forget }));
        }
        operations.push(Box::new(DeleteOperation { state, from, to, ids: None, forget }));
        self.run(operations)?;
        Ok(floor)
    }

    /// Drops the oldest days, as [`SeriesStore::drop_before`] does, until the chunks in files take at most
    /// `bytes_max`; the newest day always stays. Returns the first retained millisecond. Cost: reads every
    /// stored chunk's key.
    ///
    /// # Errors
    /// Damage; the engine's.
    pub fn drop_to_bytes(&self, bytes_max: u64) -> Result<i64> {
        let Some(state) = self.model.find(self.name()) else { return Ok(i64::MIN) };
        let days = {
            let snapshot = self.engine.snapshot();
            let place = self.model.place(state.id);
            bytes_by_partition(&mut snapshot.read().flushed_cursor(place.chunks), state.id)?
        };
        let mut bytes: u64 = days.iter().map(|(_, bytes)| bytes).sum();
        let mut floor = state.retention_floor_ms();
        for ((_, dropped), (next, _)) in days.iter().zip(days.iter().skip(1)) {
            if bytes <= bytes_max {
                break;
            }
            bytes -= dropped;
            floor = base_of(*next);
        }
        if floor > state.retention_floor_ms() { self.drop_before(floor) } else { Ok(floor) }
    }

    /// The first millisecond for which samples are retained; `i64::MIN` without retention.
    pub fn retention_floor_ms(&self) -> i64 {
        self.model.find(self.name()).map_or(i64::MIN, |state| state.retention_floor_ms())
    }
}

/// The series of a store that have exemplars before `floor`. Cost: a search for each series with exemplars.
fn exemplars_before(cursor: &mut Cursor<'_>, store: u32, floor: i64) -> Result<RoaringBitmap> {
    let mut found = RoaringBitmap::new();
    cursor.seek(&exemplar_key(store, 0, i64::MIN))?;
    while cursor.valid() {
        let key = cursor.key();
        let Some((of, rest)) = key.split_first_chunk::<4>() else { break };
        let Some((id, _)) = rest.split_first_chunk::<4>().filter(|_| u32::from_be_bytes(*of) == store) else {
            break;
        };
        let id = u32::from_be_bytes(*id);
        if key < exemplar_key(store, id, floor).as_slice() {
            found.insert(id);
        }
        let Some(next) = id.checked_add(1) else { break };
        cursor.seek(&exemplar_key(store, next, i64::MIN))?;
    }
    Ok(found)
}

/// The partitions of a store and the bytes of the chunks in each, ascending.
fn bytes_by_partition(cursor: &mut Cursor<'_>, store: u32) -> Result<Vec<(i64, u64)>> {
    let mut days: Vec<(i64, u64)> = Vec::new();
    cursor.seek(&store.to_be_bytes())?;
    while cursor.valid() {
        let (of, key) = ChunkKey::decode(cursor.key()).map_err(|error| damaged(cursor.key(), &error))?;
        if of != store {
            break;
        }
        let bytes = if key.is_of_bounds() { 0 } else { (cursor.key().len() + cursor.value().len()) as u64 };
        match days.last_mut().filter(|(day, _)| *day == key.partition) {
            Some((_, sum)) => *sum += bytes,
            None => days.push((key.partition, bytes)),
        }
        cursor.next()?;
    }
    Ok(days)
}

/// Number of values of a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelCount {
    /// The label.
    pub name: String,
    /// Different values.
    pub values: u64,
    /// Series that have it.
    pub series: u64,
}

/// Number of series of a label value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueCount {
    /// The label.
    pub name: String,
    /// Its value.
    pub value: String,
    /// Series that have it.
    pub series: u64,
}

/// Main causes of the number of series.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cardinality {
    /// Series in all.
    pub series: u64,
    /// Bytes of memory that names and postings take, roughly.
    pub index_bytes: u64,
    /// Pairs of a label and a value in all.
    pub pairs: u64,
    /// Labels with the most values.
    pub labels: Vec<LabelCount>,
    /// Metric names with the most series.
    pub metrics: Vec<ValueCount>,
    /// Label values with the most series.
    pub values: Vec<ValueCount>,
}

impl SeriesAt<'_> {
    /// The `top` labels, metrics and values that make the most series. Cost: every posting.
    pub fn cardinality(&self, top: usize) -> Cardinality {
        self.with_index(|index, ids| {
            let mut all = Cardinality { series: ids.len(), index_bytes: index.bytes(), ..Default::default() };
            let mut label = None::<LabelCount>;
            index.census(ids, |name, value, series| {
                all.pairs += 1;
                match label.as_mut().filter(|label| label.name == name) {
                    Some(label) => {
                        label.values += 1;
                        label.series += series;
                    }
                    None => {
                        let begun = LabelCount { name: name.to_owned(), values: 1, series };
                        keep_label(&mut all.labels, top, label.replace(begun));
                    }
                }
                let count = || ValueCount { name: name.to_owned(), value: value.to_owned(), series };
                keep_top(&mut all.values, top, |other| other.series, series, count);
                if name == METRIC_NAME {
                    keep_top(&mut all.metrics, top, |other| other.series, series, count);
                }
            });
            keep_label(&mut all.labels, top, label);
            all
        })
        .unwrap_or_default()
    }
}

/// Retains the `top` labels with the most values.
fn keep_label(all: &mut Vec<LabelCount>, top: usize, label: Option<LabelCount>) {
    if let Some(label) = label {
        keep_top(all, top, |other| other.values, label.values, || label);
    }
}

/// Retains the `top` entries of the highest ranks, highest first; of equal ones the first that came. `rank` is
/// that of `entry`.
fn keep_top<T>(
    all: &mut Vec<T>,
    top: usize,
    rank_of: impl Fn(&T) -> u64,
    rank: u64,
    entry: impl FnOnce() -> T,
) {
    let at = all.partition_point(|other| rank_of(other) >= rank);
    if at < top {
        all.insert(at, entry());
        all.truncate(top);
    }
}
