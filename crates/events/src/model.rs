//! The events model: catalog of stores, apply, flush, verify.
//!
//! Keyspaces: `events` (key: store and position, value: event), `events.terms` (see `index::postings`), and
//! `events.meta`:
//! ```text
//! 's' name          → store number u32          the catalog
//! 'd' store         → name                      deleted stores: their numbers are never reused
//! 't' store source  → tracking position u64     highest so far
//! 'i' store key     → first u64 | last u64 | fingerprint u64     idempotency keys
//! ```
//! with the store number as u32 big-endian.

use std::any::Any;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;
use ropewalk_base::{DecodeError, Seq};
use ropewalk_engine::{
    Apply, Compression, EngineError, FilterPolicy, Keyspace, KeyspaceOptions, Memory, Model, ModelId,
    ReadView, SliceHasher,
};
use ropewalk_store::{NewRun, Store};

use crate::error::{EventsError, Result};
use crate::event::codec::{AppendSection, SequencedEventRef};
use crate::event::types::Query;
use crate::index::memory::EventMemory;
use crate::index::postings::{self, CHUNK_POSITIONS, POSITION_BYTES, put_chunk};
use crate::index::search::{self, Place, StoreRead, Values, event_key, split_event_key};

/// Number of the events model in commit records.
pub const EVENTS: ModelId = ModelId(1);

/// In-memory state of one store other than its events.
#[derive(Debug)]
pub(crate) struct StoreState {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// Last assigned position, pending commits included. Written by the sequencer.
    pub(crate) sequenced: AtomicU64,
    /// The commit that deleted it, `u64::MAX` for none. Written by the sequencer.
    deleted: AtomicU64,
}

impl StoreState {
    /// True once a commit that deletes it was sequenced.
    pub(crate) fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::Acquire) != u64::MAX
    }

    fn is_there_at(&self, seq: Seq) -> bool {
        self.deleted.load(Ordering::Acquire) > seq.0
    }
}

#[derive(Clone, Copy)]
struct Keyspaces {
    events: Keyspace,
    postings: Keyspace,
    meta: Keyspace,
}

/// The event stores of one engine. Register one in the engine and create handles from it.
pub struct EventsModel {
    slot: usize,
    keyspaces: OnceLock<Keyspaces>,
    catalog: RwLock<Catalog>,
}

#[derive(Default)]
struct Catalog {
    /// Oldest first: all but the last are deleted, and remain for readers with older snapshots.
    by_name: HashMap<String, Vec<Arc<StoreState>>>,
    by_id: HashMap<u32, Arc<StoreState>>,
    /// Deleted stores that are still in `by_name`.
    deleted: Vec<Arc<StoreState>>,
    last_id: u32,
}

pub(crate) enum MetaKey<'a> {
    Store(&'a str),
    Deleted(u32),
    Tracking(u32, &'a str),
    Idempotency(u32, &'a str),
}

impl MetaKey<'_> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Store(name) => [b"s", name.as_bytes()].concat(),
            Self::Deleted(id) => [b"d", &id.to_be_bytes()[..]].concat(),
            Self::Tracking(id, source) => [b"t", &id.to_be_bytes()[..], source.as_bytes()].concat(),
            Self::Idempotency(id, key) => [b"i", &id.to_be_bytes()[..], key.as_bytes()].concat(),
        }
    }
}

impl EventsModel {
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

    pub(crate) fn place(&self, store: u32) -> Place {
        let Keyspaces { events, postings, .. } = self.keyspaces();
        Place { store, slot: self.slot, events, postings }
    }

    /// The store `name` in the newest state, pending commits included.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<StoreState>> {
        self.catalog.read().by_name.get(name)?.last().filter(|state| !state.is_deleted()).cloned()
    }

    /// The store `name` visible to a reader at `seq`.
    pub(crate) fn find_at(&self, name: &str, seq: Seq) -> Option<Arc<StoreState>> {
        self.catalog.read().by_name.get(name)?.iter().find(|state| state.is_there_at(seq)).cloned()
    }

    /// The number that the next new store gets.
    pub(crate) fn next_id(&self) -> u32 {
        self.catalog.read().last_id + 1
    }

    /// Name and number of every store visible to a reader at `seq`, by name.
    pub fn stores_at(&self, seq: Seq) -> Vec<(String, u32)> {
        let catalog = self.catalog.read();
        let there = catalog.by_name.values().filter_map(|same| same.iter().find(|s| s.is_there_at(seq)));
        let mut all: Vec<_> = there.map(|state| (state.name.clone(), state.id)).collect();
        all.sort();
        all
    }

    /// Names of stores visible to a reader at `seq`, sorted: the first `max` that come after `after` and that
    /// `is_wanted` accepts.
    pub fn names_at(
        &self,
        seq: Seq,
        after: Option<&str>,
        max: usize,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        let catalog = self.catalog.read();
        let mut first = BinaryHeap::new();
        for (name, same) in &catalog.by_name {
            let name = name.as_str();
            let is_later = after.is_none_or(|after| after < name);
            if is_later && same.iter().any(|state| state.is_there_at(seq)) && is_wanted(name) {
                first.push(name);
                if first.len() > max {
                    first.pop();
                }
            }
        }
        first.into_sorted_vec().into_iter().map(str::to_owned).collect()
    }

    /// The name of store number `id`, deleted or not.
    pub fn store_name(&self, id: u32) -> Option<String> {
        self.catalog.read().by_id.get(&id).map(|s| s.name.clone())
    }

    fn learn(&self, name: &str, id: u32, sequenced: u64) -> Arc<StoreState> {
        let state = self.know(name, id, sequenced, Seq::MAX);
        self.catalog.write().by_name.entry(name.to_owned()).or_default().push(state.clone());
        state
    }

    fn know(&self, name: &str, id: u32, sequenced: u64, deleted: Seq) -> Arc<StoreState> {
        let (sequenced, deleted) = (AtomicU64::new(sequenced), AtomicU64::new(deleted.0));
        let state = Arc::new(StoreState { id, name: name.to_owned(), sequenced, deleted });
        let mut catalog = self.catalog.write();
        catalog.by_id.insert(id, state.clone());
        catalog.last_id = catalog.last_id.max(id);
        state
    }

    /// Applies the deletion of store number `id`. Its events and postings are dropped when the generation is
    /// flushed.
    fn delete(&self, apply: &Apply<'_>, id: u32) -> Result<(), DecodeError> {
        let state = self.catalog.read().by_id.get(&id).cloned();
        let state = state.ok_or(DecodeError { what: "a store that was created before", offset: 0 })?;
        let meta = self.meta();
        apply.put(meta, &MetaKey::Store(&state.name).encode(), None);
        apply.put(meta, &MetaKey::Deleted(id).encode(), Some(state.name.as_bytes()));
        for first in [MetaKey::Tracking(id, ""), MetaKey::Idempotency(id, "")] {
            let start = first.encode();
            // The number is at most 2^24 - 1, so there is always a next prefix.
            let end = ropewalk_base::keys::prefix_end(&start).expect("a prefix that is not the last");
            apply.delete_range(meta, &start, &end);
        }
        apply.memory::<EventMemory>().delete(id, apply.seq);
        apply.note_effect(&[&id.to_le_bytes()]);
        state.deleted.store(apply.seq.0, Ordering::Release);
        self.catalog.write().deleted.push(state);
        Ok(())
    }

    /// Removes the names of deleted stores that no snapshot sees; `oldest` is the oldest of these. Otherwise
    /// lookups of a name that is created and deleted repeatedly would get slower each time. The numbers keep
    /// their names, which change feeds report.
    fn forget_deleted(&self, oldest: Seq) {
        let mut catalog = self.catalog.write();
        let Catalog { by_name, deleted, .. } = &mut *catalog;
        deleted.retain(|state| {
            let is_seen = state.is_there_at(oldest);
            if !is_seen && let Some(same) = by_name.get_mut(&state.name) {
                same.retain(|other| other.id != state.id);
                if same.is_empty() {
                    by_name.remove(&state.name);
                }
            }
            is_seen
        });
    }
}

fn to_engine(error: EventsError) -> EngineError {
    match error {
        EventsError::Engine(error) => error,
        other => EngineError::Damaged { model: "events", what: other.to_string().into() },
    }
}

impl Model for EventsModel {
    fn id(&self) -> ModelId {
        EVENTS
    }

    fn name(&self) -> &'static str {
        "events"
    }

    fn open(&self, store: &Store) -> Result<(), EngineError> {
        if store.stats().keyspaces.iter().any(|keyspace| keyspace.name == "events.postings") {
            let what = "its postings have keys without store numbers, as development versions before 0.1.0 wrote them";
            return Err(EngineError::Damaged { model: "events", what: what.into() });
        }
        let plain = KeyspaceOptions {
            compression: Compression::None,
            filter: FilterPolicy::None,
            ..Default::default()
        };
        // Most lookups in postings are for tags that do not exist yet (unique names), so filters pay on every
        // level.
        let prefixed = KeyspaceOptions {
            filter: FilterPolicy::All,
            filter_ignores_last: POSITION_BYTES,
            ..Default::default()
        };
        let found = Keyspaces {
            events: store.keyspace("events", plain)?,
            postings: store.keyspace("events.terms", prefixed)?,
            meta: store.keyspace("events.meta", KeyspaceOptions::default())?,
        };
        let _ = self.keyspaces.set(found);
        Ok(())
    }

    fn load(&self, read: ReadView<'_>) -> Result<(), EngineError> {
        let mut cursor = read.cursor(self.meta());
        cursor.seek(b"s")?;
        while cursor.valid() {
            let Some((b's', name)) = cursor.key().split_first() else { break };
            let damaged =
                || EngineError::Damaged { model: "events", what: "entry of the store catalog".into() };
            let name = std::str::from_utf8(name).map_err(|_| damaged())?;
            let id = u32::from_le_bytes(cursor.value().try_into().map_err(|_| damaged())?);
            let head = StoreRead::new(read, self.place(id)).head().map_err(to_engine)?;
            self.learn(name, id, head);
            cursor.next()?;
        }
        cursor.seek(b"d")?;
        while cursor.valid() {
            let Some((b'd', id)) = cursor.key().split_first() else { break };
            let damaged =
                || EngineError::Damaged { model: "events", what: "entry of a deleted store".into() };
            let id = u32::from_be_bytes(id.try_into().map_err(|_| damaged())?);
            let name = std::str::from_utf8(cursor.value()).map_err(|_| damaged())?;
            self.know(name, id, 0, Seq::ZERO);
            cursor.next()?;
        }
        Ok(())
    }

    fn memory(&self) -> Box<dyn Memory> {
        Box::new(EventMemory::default())
    }

    fn apply(&self, apply: &Apply<'_>, section: &[u8]) -> Result<(), DecodeError> {
        let append = AppendSection::decode(section)?;
        let id = append.store;
        if append.deletes {
            return self.delete(apply, id);
        }
        if let Some(name) = append.creates {
            debug_assert!(apply.is_replay || id == self.next_id(), "a new store has the next number");
            self.learn(name, id, 0);
            apply.put(self.meta(), &MetaKey::Store(name).encode(), Some(&id.to_le_bytes()));
        }
        let at = (apply.seq, apply.time_micros);
        if !append.is_empty() {
            let memory = apply.memory::<EventMemory>();
            let added = memory.append(id, append.first.0, at, apply.is_replay, append.bodies())?;
            if added != append.len() {
                return Err(DecodeError { what: "as many events as announced", offset: section.len() });
            }
            if apply.has_effects() {
                note_events(apply, memory, id, append.first.0..append.first.0 + added);
            }
            let state = self.catalog.read().by_id.get(&id).cloned();
            let state = state.ok_or(DecodeError { what: "a store that was created before", offset: 0 })?;
            let before = state.sequenced.swap(append.first.0 + added - 1, Ordering::AcqRel);
            debug_assert!(
                apply.is_replay || before + 1 == append.first.0,
                "store {id} continues after {before}, not at {}",
                append.first
            );
        }
        if let Some((source, position)) = append.tracking {
            apply.put(self.meta(), &MetaKey::Tracking(id, source).encode(), Some(&position.to_le_bytes()));
        }
        if let Some((key, fingerprint)) = append.idempotency {
            let last = append.first.0 + append.len() - 1;
            let mut value = [0; 24];
            for (slot, number) in value.chunks_exact_mut(8).zip([append.first.0, last, fingerprint]) {
                slot.copy_from_slice(&number.to_le_bytes());
            }
            apply.put(self.meta(), &MetaKey::Idempotency(id, key).encode(), Some(&value));
        }
        Ok(())
    }

    fn flush(
        &self,
        memory: &dyn Memory,
        store: &Store,
        snapshots: &[Seq],
    ) -> Result<Vec<NewRun>, EngineError> {
        // Events and postings never change, and readers limit them by position: they carry no version. A
        // deletion does, so that older snapshots still see the store; merging drops events that no snapshot
        // sees.
        let memory = (memory as &dyn Any).downcast_ref::<EventMemory>();
        let memory = memory.expect("the engine flushes the memory that the model made");
        if let Some(oldest) = snapshots.first() {
            self.forget_deleted(*oldest);
        }
        let (mut stores, deleted) = (memory.all_stores(), memory.deleted());
        let gone = |id: u32| deleted.iter().any(|(d, seq)| *d == id && snapshots.iter().all(|s| s >= seq));
        stores.retain(|(id, _)| !gone(*id));
        if stores.is_empty() && deleted.is_empty() {
            return Ok(Vec::new());
        }
        let Keyspaces { events, postings, .. } = self.keyspaces();
        let mut writer = store.writer(events)?;
        for (id, seq) in &deleted {
            let (start, end) = search::store_range(*id);
            writer.add_range_tombstone(&start, &end, *seq)?;
        }
        for (id, part) in &stores {
            // Without an event when the bodies of the first append did not decode.
            for position in part.first..=part.last().unwrap_or(0) {
                let value = memory.value(part, position).expect("every position of a memory has its value");
                writer.add(&event_key(*id, position), Seq::ZERO, Some(value))?;
            }
        }
        let mut runs = writer.finish()?;
        runs.extend(flush_postings(memory, &stores, &deleted, (store, postings))?);
        Ok(runs)
    }

    fn verify(&self, read: ReadView<'_>) -> Result<Vec<String>, EngineError> {
        let mut violations = Vec::new();
        for (name, id) in self.stores_at(read.at()) {
            let read = StoreRead::new(read, self.place(id));
            verify_store(&read, &name, &mut violations).map_err(to_engine)?;
        }
        Ok(violations)
    }

    /// Runs may have events of commits that the reader does not see, and the chunks of postings are as long as the memories
    /// were. Postings follow from events, and [`Model::verify`] compares the two.
    fn unordered_keyspaces(&self) -> Vec<Keyspace> {
        let Keyspaces { events, postings, .. } = self.keyspaces();
        vec![events, postings]
    }

    fn hash_contents(
        &self,
        read: ReadView<'_>,
        start: &[u8],
        into: &mut SliceHasher,
    ) -> Result<Option<Vec<u8>>, EngineError> {
        let start = match start {
            [] => (0, 0),
            key => split_event_key(key).ok_or_else(damaged_position)?,
        };
        let mut stores: Vec<u32> = self.stores_at(read.at()).into_iter().map(|(_, id)| id).collect();
        stores.retain(|id| *id >= start.0);
        stores.sort_unstable();
        for id in stores {
            let store = StoreRead::new(read, self.place(id));
            let head = store.head().map_err(to_engine)?;
            let mut values = Values::new(&store);
            let first = if id == start.0 { start.1.max(1) } else { 1 };
            for position in first..=head {
                let event = values.get(position).map_err(to_engine)?;
                into.add(&[&event_key(id, position), event.value()]);
                if into.is_full() {
                    return Ok(Some(event_key(id, position + 1).to_vec()));
                }
            }
        }
        Ok(None)
    }
}

/// Hashes events of one append as the memory has them.
fn note_events(apply: &Apply<'_>, memory: &EventMemory, id: u32, positions: std::ops::Range<u64>) {
    let store = memory.store(id).expect("an append adds its store to the memory");
    for position in positions {
        let value = memory.value(&store, position).expect("every event of an append is in the memory");
        apply.note_effect(&[&event_key(id, position), value]);
    }
}

fn damaged_position() -> EngineError {
    EngineError::Damaged { model: "events", what: "position of a slice".into() }
}

/// Chunks must be written in the order of their hashes, across all stores of the generation.
fn flush_postings(
    memory: &EventMemory,
    stores: &[(u32, Arc<crate::index::memory::StoreMemory>)],
    deleted: &[(u32, Seq)],
    (store, keyspace): (&Store, Keyspace),
) -> Result<Vec<NewRun>, EngineError> {
    let mut chunks: Vec<([u8; 16], std::ops::Range<usize>)> = Vec::new();
    let mut values = Vec::new();
    let mut positions = Vec::new();
    for (id, part) in stores {
        memory.each_posting(*id, part, |term, all| {
            positions.clear();
            positions.extend(all);
            for chunk in positions.chunks(CHUNK_POSITIONS) {
                let start = values.len();
                put_chunk(&mut values, term.name, chunk);
                let first = chunk.first().expect("a chunk has at least one position");
                chunks.push((term.key(*first), start..values.len()));
            }
            Ok::<(), EngineError>(())
        })?;
    }
    chunks.sort_by_key(|(key, _)| *key);
    let mut writer = store.writer(keyspace)?;
    for (id, seq) in deleted {
        let (start, end) = postings::store_range(*id);
        writer.add_range_tombstone(&start, &end, *seq)?;
    }
    let mut shared = Vec::new();
    let value = |range: &std::ops::Range<usize>| {
        values.get(range.clone()).expect("ranges were noted while writing the chunks")
    };
    for same_key in chunks.chunk_by(|(a, _), (b, _)| a == b) {
        if let [(key, range)] = same_key {
            writer.add(key, Seq::ZERO, Some(value(range)))?;
            continue;
        }
        // Terms with the same hash whose chunks begin at the same position share an entry.
        shared.clear();
        for (_, range) in same_key {
            shared.extend_from_slice(value(range));
        }
        let (key, _) = same_key.first().expect("a group has at least one chunk");
        writer.add(key, Seq::ZERO, Some(&shared))?;
    }
    Ok(writer.finish()?)
}

/// Checks positions without gaps, commit numbers and times that never fall, and that every event is found by
/// each of its terms.
fn verify_store(store: &StoreRead<'_>, name: &str, out: &mut Vec<String>) -> Result<()> {
    const VIOLATIONS_MAX: usize = 100;
    const SAMPLE_ALL_BELOW: u64 = 1_000_000;
    let head = store.head()?;
    let mut values = Values::new(store);
    let (mut seq, mut time) = (Seq::ZERO, i64::MIN);
    // Ordered, so that the simulation reads blocks in the same order in every run.
    let mut terms: BTreeMap<(bool, String), u64> = BTreeMap::new();
    for position in 1..=head {
        if out.len() >= VIOLATIONS_MAX {
            out.push(format!("store {name}: more violations follow"));
            return Ok(());
        }
        let event: SequencedEventRef<'_> = match values.get(position) {
            Ok(event) => event,
            Err(EventsError::Damaged { place, what, .. }) => {
                out.push(format!("store {name}, {place}: {what}"));
                continue;
            }
            Err(other) => return Err(other),
        };
        if event.seq < seq || event.time_micros < time {
            out.push(format!("store {name}, position {position}: commit number or time falls"));
        }
        (seq, time) = (event.seq, event.time_micros);
        // Counting per term finds a missing or surplus posting without one lookup per event. Only terms of a
        // sample by hash are counted, so that the table stays small; a term is in the sample for all its
        // events or for none.
        for (is_tag, term) in
            std::iter::once((false, event.event_type())).chain(event.tags().map(|t| (true, t)))
        {
            if head < SAMPLE_ALL_BELOW || ropewalk_base::hash64(term.as_bytes()).is_multiple_of(64) {
                *terms.entry((is_tag, term.to_owned())).or_insert(0) += 1;
            }
        }
    }
    for ((is_tag, term), expected) in terms {
        let query = if is_tag { Query::from_tags([&*term]) } else { Query::from_types([&*term]) };
        let mut plan = store.plan(&query, (1, u64::MAX))?;
        let (mut found, mut at) = (0, 1);
        while let Some(position) = plan.seek_ge(at)?.filter(|p| *p <= head) {
            found += 1;
            at = position + 1;
        }
        if found != expected {
            out.push(format!(
                "store {name}: postings of {term:?} list {found} events, the events say {expected}"
            ));
        }
        if out.len() >= VIOLATIONS_MAX {
            return Ok(());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::EventStore;
    use ropewalk_engine::{Background, Engine, EngineOptions};
    use ropewalk_vfs::Env;

    #[test]
    fn deleted_stores_leave_the_names_when_no_snapshot_sees_them() {
        let model = Arc::new(EventsModel::new(1));
        let options = EngineOptions { background: Background::Manual, ..EngineOptions::default() };
        let models: Vec<Arc<dyn Model>> = vec![model.clone()];
        let engine = Arc::new(Engine::open(&Env::memory(), "/db".as_ref(), options, models).unwrap());
        let store = |name: &str| EventStore::new(engine.clone(), model.clone(), name).unwrap();
        let names = || -> Vec<usize> { model.catalog.read().by_name.values().map(Vec::len).collect() };
        let mut seen = None;
        for round in 0..20 {
            assert!(store("again").create().unwrap());
            if round == 9 {
                seen = Some((engine.snapshot(), store("again").id().unwrap()));
            }
            assert!(store("again").delete().unwrap());
        }
        engine.checkpoint().unwrap();
        // Those that existed at the snapshot or later.
        assert_eq!(names(), [11]);
        let (snapshot, id) = seen.unwrap();
        assert_eq!(store("again").id_at(&snapshot), Some(id));
        drop(snapshot);
        assert!(store("again").create().unwrap() && store("other").create().unwrap());
        assert!(store("other").delete().unwrap());
        engine.checkpoint().unwrap();
        assert_eq!(names(), [1]);
        assert_eq!(model.store_name(id).as_deref(), Some("again"));
    }

    #[test]
    fn names_after_a_name_are_the_first_of_those_that_are_wanted() {
        let model = Arc::new(EventsModel::new(1));
        let options = EngineOptions { background: Background::Manual, ..EngineOptions::default() };
        let models: Vec<Arc<dyn Model>> = vec![model.clone()];
        let engine = Arc::new(Engine::open(&Env::memory(), "/db".as_ref(), options, models).unwrap());
        let store = |name: &str| EventStore::new(engine.clone(), model.clone(), name).unwrap();
        for name in ["d", "b", "a", "e", "c", "bb"] {
            assert!(store(name).create().unwrap());
        }
        let before = engine.seq();
        assert!(store("c").delete().unwrap());
        let names = |seq, after, max| model.names_at(seq, after, max, |name| name != "d");
        assert_eq!(names(engine.seq(), None, 9), ["a", "b", "bb", "e"]);
        assert_eq!(names(engine.seq(), None, 2), ["a", "b"]);
        assert_eq!(names(engine.seq(), Some("b"), 1), ["bb"]);
        assert_eq!(names(engine.seq(), Some("ba"), 9), ["bb", "e"], "the name need not exist");
        assert_eq!(names(before, Some("bb"), 2), ["c", "e"], "as of an earlier commit");
        assert!(names(engine.seq(), Some("e"), 9).is_empty() && names(engine.seq(), None, 0).is_empty());
    }
}
