//! The series model: catalog of stores, apply, flush, verify.
//!
//! Keyspaces: `series` (chunks, see `storage::chunk_keys`), `series.labels`, `series.meta` and `series.exemplars` (see
//! `storage::keys`).

pub(crate) mod changes;
pub(crate) mod committed;
pub(crate) mod contents;
pub(crate) mod verify;

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use ropewalk_base::{AppendList, DecodeError, Decoder, Seq, hash64, put_u32};
use ropewalk_engine::{
    Apply, Compression, EngineError, FilterPolicy, Keyspace, KeyspaceOptions, Memory, Model, ModelId,
    ReadView, SliceHasher,
};
use ropewalk_labels::check_labels;
use ropewalk_store::{NewRun, Store};

use crate::error::{Result, SeriesError, to_engine};
use crate::memory::index::Index;
use crate::memory::{Deletion, SeriesMemory};
use crate::model::changes::Changes;
use crate::model::verify::verify;
use crate::sample::duplicate_rules::DuplicateRules;
use crate::sample::types::{Duplicates, SeriesOptions};
use crate::storage::chunk_keys::{bounds_key, partition_of, partitions};
use crate::storage::flush::flush;
use crate::storage::keys::{
    duplicates_key, exemplar_key, label_key, last_key, metadata_key, name_key, progress_key, rules_key,
};
use crate::storage::partition_bounds::{Bounds, Reach};
use crate::storage::read::Place;
use crate::storage::section::{
    Body, Group, NewSeries, RulesPart, Section, Target, each_group, put_options, take_options,
};

/// New series that the index adds before it lets readers in: about a tenth of a millisecond.
const INDEX_SLICE: usize = 256;

/// Number of the series model in commit records.
pub const SERIES: ModelId = ModelId(3);

/// State of one store in addition to its samples.
pub(crate) struct StoreState {
    pub(crate) id: u32,
    pub(crate) name: Box<str>,
    settings: Mutex<(SeriesOptions, i64)>,
    duplicates: RwLock<DuplicateRules>,
    pub(crate) index: RwLock<Index>,
    /// Commit that created series and the last id then, alternating; since open.
    created: AppendList,
    /// The last id at open.
    opened: u32,
    pub(crate) changes: Changes,
    pub(crate) reach: Reach,
    /// The last deletion that is no longer in memory.
    pub(crate) deletions_flushed: AtomicU64,
}

impl StoreState {
    pub(crate) fn options(&self) -> SeriesOptions {
        self.settings.lock().0
    }

    /// Which of two samples at one time stays, by commit; pending changes included, which concern later commits only.
    pub(crate) fn duplicate_rules(&self) -> DuplicateRules {
        self.duplicates.read().clone()
    }

    /// Samples before this time are refused.
    pub(crate) fn retention_floor_ms(&self) -> i64 {
        self.settings.lock().1
    }

    /// The index, with the postings of every existing series up to `head`. The caller that finds some missing
    /// adds them.
    pub(crate) fn posted(&self, head: u32) -> RwLockReadGuard<'_, Index> {
        loop {
            let index = self.index.read();
            if index.is_posted(head) {
                return index;
            }
            drop(index);
            let mut index = self.index.write();
            index.post(INDEX_SLICE);
            // The sequencer, which delays all commits, gets in between.
            RwLockWriteGuard::unlock_fair(index);
        }
    }

    /// The commit that created series `id`; `None` for those created before the open.
    pub(crate) fn creation_of(&self, id: u32) -> Option<Seq> {
        let (mut low, mut high) = (0, self.created.len() / 2);
        while low < high {
            let mid = low + (high - low) / 2;
            let last = self.created.get(2 * mid + 1);
            if last.is_some_and(|last| last < u64::from(id)) { low = mid + 1 } else { high = mid }
        }
        if id <= self.opened { None } else { self.created.get(2 * low).map(Seq) }
    }

    /// The last series that a reader at `at` may see.
    pub(crate) fn head_at(&self, at: Seq) -> u32 {
        let (mut low, mut high) = (0, self.created.len() / 2);
        while low < high {
            let mid = low + (high - low) / 2;
            if self.created.get(2 * mid).is_some_and(|seq| seq <= at.0) { low = mid + 1 } else { high = mid }
        }
        let last = low.checked_sub(1).and_then(|at| self.created.get(2 * at + 1));
        last.map_or(self.opened, |last| last as u32)
    }
}

#[derive(Clone, Copy)]
struct Keyspaces {
    chunks: Keyspace,
    labels: Keyspace,
    meta: Keyspace,
    exemplars: Keyspace,
}

#[derive(Default)]
struct Catalog {
    by_name: HashMap<Box<str>, Arc<StoreState>>,
    by_id: HashMap<u32, Arc<StoreState>>,
    last_id: u32,
}

/// The series stores of one engine. Register one in the engine and make handles from it.
pub struct SeriesModel {
    slot: usize,
    keyspaces: OnceLock<Keyspaces>,
    catalog: RwLock<Catalog>,
}

fn ids_of(deletion: &Deletion) -> impl Iterator<Item = u32> {
    deletion.ids.iter().flat_map(|ids| ids.iter())
}

fn unknown_store() -> DecodeError {
    DecodeError { what: "a store that was created before", offset: 0 }
}

fn damaged(what: &str) -> EngineError {
    EngineError::Damaged { model: "series", what: what.into() }
}

impl SeriesModel {
    /// The model for `slot` of the engine: its index among the models given to `Engine::open`, plus one.
    pub fn new(slot: usize) -> Self {
        Self { slot, keyspaces: OnceLock::new(), catalog: RwLock::default() }
    }

    fn keyspaces(&self) -> Keyspaces {
        *self.keyspaces.get().expect("the engine opens its models before it uses them")
    }

    pub(crate) fn meta(&self) -> Keyspace {
        self.keyspaces().meta
    }

    pub(crate) fn exemplars(&self) -> Keyspace {
        self.keyspaces().exemplars
    }

    pub(crate) fn place(&self, store: u32) -> Place {
        Place { store, slot: self.slot, chunks: self.keyspaces().chunks }
    }

    /// The store `name` in the newest state, pending commits included.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<StoreState>> {
        self.catalog.read().by_name.get(name).cloned()
    }

    pub(crate) fn by_id(&self, id: u32) -> Option<Arc<StoreState>> {
        self.catalog.read().by_id.get(&id).cloned()
    }

    /// The number that the next new store gets; `None` when they are used up.
    pub(crate) fn next_id(&self) -> Option<u32> {
        self.catalog.read().last_id.checked_add(1)
    }

    /// Refuses a new store when the numbers are used up.
    pub(crate) fn check_new(&self, name: &str) -> Result<()> {
        if self.find(name).is_none() && self.next_id().is_none() {
            return Err(SeriesError::Exhausted { what: "the 2^32 - 1 series stores of this engine" });
        }
        Ok(())
    }

    /// The number of a store that the commit being encoded creates: its validation has left one.
    pub(crate) fn new_id(&self) -> u32 {
        self.next_id().expect("a commit without a number for its new store is refused")
    }

    /// Names of all stores, sorted.
    pub fn stores(&self) -> Vec<String> {
        let mut names: Vec<String> = self.catalog.read().by_name.keys().map(|n| n.to_string()).collect();
        names.sort_unstable();
        names
    }

    /// The name of store number `id`.
    pub fn store_name(&self, id: u32) -> Option<String> {
        self.by_id(id).map(|state| state.name.to_string())
    }

    fn learn(
        &self,
        name: &str,
        id: u32,
        (settings, duplicates): ((SeriesOptions, i64), DuplicateRules),
        index: Index,
        reach: Reach,
    ) -> Arc<StoreState> {
        let opened = index.last();
        let state = Arc::new(StoreState {
            id,
            name: name.into(),
            settings: Mutex::new(settings),
            duplicates: RwLock::new(duplicates),
            index: RwLock::new(index),
            created: AppendList::default(),
            opened,
            changes: Changes::default(),
            reach,
            deletions_flushed: AtomicU64::new(0),
        });
        let mut catalog = self.catalog.write();
        catalog.by_name.insert(name.into(), state.clone());
        catalog.by_id.insert(id, state.clone());
        catalog.last_id = catalog.last_id.max(id);
        state
    }

    /// The store of a section; creates it when the section does.
    fn store_of(&self, apply: &Apply<'_>, section: &Section<'_>) -> Result<Arc<StoreState>, DecodeError> {
        match section.creates {
            None => self.by_id(section.store).ok_or_else(unknown_store),
            Some(name) => {
                let options = SeriesOptions::default();
                let settings = ((options, i64::MIN), DuplicateRules::always(options.duplicates));
                let state = self.learn(name, section.store, settings, Index::default(), Reach::default());
                self.save(apply, &state);
                Ok(state)
            }
        }
    }

    fn save(&self, apply: &Apply<'_>, state: &StoreState) {
        let mut value = Vec::new();
        put_u32(&mut value, state.id);
        let (options, floor) = *state.settings.lock();
        put_options(&mut value, options, floor);
        apply.put(self.keyspaces().meta, &name_key(&state.name), Some(&value));
    }

    /// Notes the treatment of duplicates from the next commit on. A new store has no samples before it.
    fn change_duplicates(
        &self,
        apply: &Apply<'_>,
        state: &StoreState,
        (duplicates, is_new): (Duplicates, bool),
    ) {
        let mut rules = state.duplicates.write();
        if is_new {
            *rules = DuplicateRules::always(duplicates);
        } else if let Some(changed) = rules.changed(apply.seq, duplicates) {
            apply.put(self.meta(), &duplicates_key(state.id), Some(&changed.encode()));
            *rules = changed;
        }
    }

    fn apply_samples(
        &self,
        apply: &Apply<'_>,
        state: &StoreState,
        (first_new, new): (u32, &[NewSeries<'_>]),
        groups: Decoder<'_>,
    ) -> Result<(), DecodeError> {
        let ids = self.create(apply, state, first_new, new)?;
        let mut oldest = i64::MAX;
        let mut writer = apply.memory::<SeriesMemory>().writer(state.id, apply.seq);
        each_group(groups, |target, group, floats| {
            let id = match target {
                Target::Known(id) => id,
                Target::New(ordinal) => *ids
                    .get(ordinal as usize)
                    .ok_or(DecodeError { what: "a series of the section's list", offset: 0 })?,
            };
            if apply.has_effects() {
                contents::note_group(apply, (state.id, id), &group, floats);
            }
            match group {
                Group::Floats => {
                    oldest = floats.iter().map(|(time, _)| *time).fold(oldest, i64::min);
                    writer.push(id, floats);
                }
                Group::Chunk(bytes) => oldest = oldest.min(writer.push_chunk(id, bytes)?),
                Group::Rich(time, payload) => {
                    oldest = oldest.min(time);
                    writer.push_rich(id, time, payload);
                }
                Group::Exemplar(time, bits, labels) => {
                    let value = [&bits.to_le_bytes(), labels].concat();
                    apply.put(self.exemplars(), &exemplar_key(state.id, id, time), Some(&value));
                }
            }
            Ok(())
        })?;
        state.changes.note(apply.seq, oldest);
        Ok(())
    }

    /// Adds the new series of a section; returns the ids of its list.
    fn create(
        &self,
        apply: &Apply<'_>,
        state: &StoreState,
        first_new: u32,
        new: &[NewSeries<'_>],
    ) -> Result<Vec<u32>, DecodeError> {
        if new.is_empty() {
            return Ok(Vec::new());
        }
        let mut ids = Vec::with_capacity(new.len());
        let mut next = first_new;
        let few = new.len() <= INDEX_SLICE;
        if !few {
            state.index.write().reserve(new.len());
        }
        for some in new.chunks(INDEX_SLICE) {
            let mut index = state.index.write();
            for series in some {
                match series {
                    NewSeries::Known(id) => ids.push(*id),
                    NewSeries::Created(labels) => {
                        index.insert(next, labels, hash64(labels));
                        ids.push(next);
                        next =
                            next.checked_add(1).ok_or(DecodeError { what: "series numbers", offset: 0 })?;
                    }
                }
            }
            // Postings of many series come later, see `index`.
            if few {
                index.post(INDEX_SLICE);
            }
            // Release fairly so waiting readers run first. Readers never observe a partial commit: they are
            // bounded by `created`, and writers come later in commit order.
            RwLockWriteGuard::unlock_fair(index);
        }
        for (id, series) in ids.iter().zip(new) {
            if let NewSeries::Created(labels) = series {
                apply.put(self.keyspaces().labels, &label_key(state.id, *id), Some(labels));
            }
        }
        debug_assert_eq!(ids.len(), new.len(), "every series of the list has a number");
        if next > first_new {
            state.created.push(apply.seq.0);
            state.created.push(u64::from(next - 1));
        }
        Ok(ids)
    }

    fn apply_deletion(&self, apply: &Apply<'_>, state: &StoreState, deletion: Deletion, forget: bool) {
        if forget && let Some(ids) = &deletion.ids {
            let Keyspaces { labels, meta, .. } = self.keyspaces();
            let mut ids = ids.iter();
            while ids.len() > 0 {
                let mut index = state.index.write();
                ids.by_ref().take(INDEX_SLICE).for_each(|id| index.forget(id, apply.seq));
                RwLockWriteGuard::unlock_fair(index);
            }
            for id in ids_of(&deletion) {
                apply.put(labels, &label_key(state.id, id), None);
            }
            let last = state.index.read().last();
            apply.put(meta, &last_key(state.id), Some(&last.to_le_bytes()));
        }
        for id in ids_of(&deletion) {
            // The end is not part of the range: the last possible time is deleted separately.
            let last = exemplar_key(state.id, id, deletion.to);
            apply.delete_range(self.exemplars(), &exemplar_key(state.id, id, deletion.from), &last);
            apply.put(self.exemplars(), &last, None);
        }
        if apply.has_effects() {
            contents::note_deletion(apply, state.id, &deletion);
        }
        apply.memory::<SeriesMemory>().writer(state.id, apply.seq).delete(deletion);
    }

    fn load_store(&self, read: ReadView<'_>, name: &str, value: &[u8]) -> Result<(), EngineError> {
        let mut decoder = Decoder::new(value);
        let entry = |_| damaged("entry of the store catalog");
        let id = decoder.u32("store").map_err(entry)?;
        let settings = take_options(&mut decoder).map_err(entry)?;
        let Keyspaces { labels, meta, .. } = self.keyspaces();
        let mut index = Index::default();
        let mut cursor = read.cursor(labels);
        cursor.seek(&label_key(id, 0))?;
        while cursor.valid() && cursor.key().starts_with(&id.to_be_bytes()) {
            let key: [u8; 8] = cursor.key().try_into().map_err(|_| damaged("key of a series"))?;
            check_labels(cursor.value()).map_err(|error| to_engine(error.into()))?;
            index.insert(u64::from_be_bytes(key) as u32, cursor.value(), hash64(cursor.value()));
            cursor.next()?;
        }
        index.post(usize::MAX);
        if let Some(last) = read.get(meta, &last_key(id))? {
            let last = (*last).try_into().map_err(|_| damaged("largest series number"))?;
            index.raise_last(u32::from_le_bytes(last));
        }
        let duplicates = match read.get(meta, &duplicates_key(id))? {
            Some(bytes) => DuplicateRules::decode(&bytes).map_err(|_| damaged("rules about duplicates"))?,
            None => DuplicateRules::always(settings.0.duplicates),
        };
        let reach = self.load_reach(read, id)?;
        self.learn(name, id, (settings, duplicates), index, reach);
        Ok(())
    }

    /// Cost: a search for each partition.
    fn load_reach(&self, read: ReadView<'_>, id: u32) -> Result<Reach, EngineError> {
        let chunks = self.keyspaces().chunks;
        let found = partitions(&mut read.cursor(chunks), id, partition_of(i64::MIN), partition_of(i64::MAX));
        let mut all = Vec::new();
        for partition in found.map_err(to_engine)? {
            let bounds = match read.get(chunks, &bounds_key(id, partition))? {
                Some(bytes) => {
                    Some(Bounds::decode(partition, &bytes).map_err(|_| damaged("bounds of a partition"))?)
                }
                None => None,
            };
            all.push((partition, bounds));
        }
        Ok(Reach::new(all))
    }
}

impl Model for SeriesModel {
    fn id(&self) -> ModelId {
        SERIES
    }

    fn name(&self) -> &'static str {
        "series"
    }

    fn open(&self, store: &Store) -> Result<(), EngineError> {
        // Chunks are compressed already and found by scans, so neither compression nor filters would help. A
        // chunk is up to a few kilobytes, and the rest of a block after its last chunk is lost: so blocks are
        // large.
        let chunks = KeyspaceOptions {
            compression: Compression::None,
            filter: FilterPolicy::None,
            block_bytes: 32 << 10,
            ..KeyspaceOptions::default()
        };
        let labels = KeyspaceOptions {
            compression: Compression::Lz4,
            filter: FilterPolicy::None,
            block_bytes: 16 << 10,
            ..KeyspaceOptions::default()
        };
        let found = Keyspaces {
            chunks: store.keyspace("series", chunks)?,
            labels: store.keyspace("series.labels", labels)?,
            meta: store.keyspace("series.meta", KeyspaceOptions::default())?,
            exemplars: store.keyspace("series.exemplars", labels)?,
        };
        let _ = self.keyspaces.set(found);
        Ok(())
    }

    fn load(&self, read: ReadView<'_>) -> Result<(), EngineError> {
        let mut cursor = read.cursor(self.keyspaces().meta);
        cursor.seek(b"s")?;
        while cursor.valid() {
            let Some((b's', name)) = cursor.key().split_first() else { break };
            let name = std::str::from_utf8(name).map_err(|_| damaged("name of a store"))?;
            self.load_store(read, name, cursor.value())?;
            cursor.next()?;
        }
        Ok(())
    }

    fn memory(&self) -> Box<dyn Memory> {
        Box::new(SeriesMemory::default())
    }

    fn apply(&self, apply: &Apply<'_>, section: &[u8]) -> Result<(), DecodeError> {
        let section = Section::decode(section)?;
        let state = self.store_of(apply, &section)?;
        if !matches!(section.body, Body::Samples { .. } | Body::Metadata(_)) {
            state.changes.note(apply.seq, i64::MIN);
        }
        match section.body {
            Body::Samples { first_new, new, groups } => {
                self.apply_samples(apply, &state, (first_new, &new), groups)?;
            }
            Body::Deletion { from, to, ids, forget } => {
                self.apply_deletion(apply, &state, Deletion { seq: apply.seq, ids, from, to }, forget);
            }
            Body::Metadata(all) => {
                for (metric, metadata) in all {
                    let mut value = Vec::new();
                    metadata.encode(&mut value);
                    apply.put(self.meta(), &metadata_key(state.id, metric), Some(&value));
                }
            }
            Body::Rules(RulesPart::Progress, bytes) => {
                apply.put(self.meta(), &progress_key(state.id), Some(bytes));
            }
            Body::Rules(RulesPart::Rules, bytes) => {
                apply.put(self.meta(), &rules_key(state.id), Some(bytes));
                apply.put(self.meta(), &progress_key(state.id), None);
            }
            Body::Settings { options, floor } => {
                *state.settings.lock() = (options, floor);
                self.save(apply, &state);
                self.change_duplicates(apply, &state, (options.duplicates, section.creates.is_some()));
            }
        }
        Ok(())
    }

    fn flush(
        &self,
        memory: &dyn Memory,
        store: &Store,
        snapshots: &[Seq],
    ) -> Result<Vec<NewRun>, EngineError> {
        let memory = (memory as &dyn Any).downcast_ref::<SeriesMemory>();
        let memory = memory.expect("the engine flushes the memory that the model has made");
        let state = |id| self.by_id(id).expect("a store with samples in memory is in the catalog");
        let duplicates = |id| state(id).duplicate_rules();
        let reach = |id: u32, partition: i64, more: Bounds| state(id).reach.note(partition, more);
        for (id, memory) in memory.all_stores() {
            if let Some(last) = memory.last_deletion() {
                state(id).deletions_flushed.fetch_max(last.0, Ordering::Release);
            }
        }
        flush(memory, (store, self.keyspaces().chunks), snapshots, duplicates, &reach).map_err(to_engine)
    }

    fn verify(&self, read: ReadView<'_>) -> Result<Vec<String>, EngineError> {
        let stores: Vec<Arc<StoreState>> = self.catalog.read().by_id.values().cloned().collect();
        verify(read, self.keyspaces().chunks, &stores).map_err(to_engine)
    }

    /// Which samples share a chunk depends on when memories were flushed and chunks merged.
    fn unordered_keyspaces(&self) -> Vec<Keyspace> {
        vec![self.keyspaces().chunks]
    }

    fn hash_contents(
        &self,
        read: ReadView<'_>,
        start: &[u8],
        into: &mut SliceHasher,
    ) -> Result<Option<Vec<u8>>, EngineError> {
        let mut stores: Vec<Arc<StoreState>> = self.catalog.read().by_id.values().cloned().collect();
        stores.sort_unstable_by_key(|state| state.id);
        contents::hash(read, |store| self.place(store), &stores, start, into).map_err(to_engine)
    }
}
