//! Read views: generations of memtables, runs, and the highest visible commit.
//!
//!   Version = active generation │ frozen generations    │ resident generations │ runs      each newest first
//!              ▲ sequencer writes    ▲ wait for their flush  ▲ flushed              ▲ flushed and compacted
//!
//! A generation is flushed after a few megabytes of log, so that opening replays little. Many small runs are slow to scan,
//! so a flushed generation stays resident while there is room: scans use it and leave out the runs that its flush made.
//! It is dropped when compaction takes those runs. Lookups of one key use the runs, which have filters.
//!
//! A [`Snapshot`] is one `Seq` in a registry, which tells flush and compaction which old versions of entries must survive:
//! every later version shows the snapshot the same state. So a snapshot owns no version while it is idle. It pins one from
//! the first [`Snapshot::read`], whose values lie in place, until [`Snapshot::refresh_sources`]; a
//! [`Snapshot::reading`] pins one for a single read.
//!
//! Invariant: a version that is current after `visible` was read contains every commit up to that `visible`, because a
//! new generation becomes current before its first commit becomes visible.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwap;
use ropewalk_base::sync::{AtomicU64, Mutex, MutexGuard, Ordering, hint_switch};
use ropewalk_base::{Lsn, Seq};
use ropewalk_store::{Cursor, Entry, Flush, Keyspace, MANY, Memtable, StoreView, Value};

use crate::error::Result;
use crate::model::Memory;
use crate::model::effects::SavedEffects;
use crate::span::KeySpan;

const KEYSPACES_PER_BUCKET: usize = 64;
const BUCKETS: usize = 1 + u16::MAX as usize / KEYSPACES_PER_BUCKET;

type Bucket = Box<[OnceLock<Memtable>]>;

/// Everything written between two checkpoints.
pub struct Generation {
    memories: Vec<Box<dyn Memory>>,
    keyspaces: Box<[OnceLock<Bucket>]>,
    /// Keyspaces with a memtable. Every commit sums their bytes, and few of the possible ones exist.
    made: Mutex<Vec<Keyspace>>,
    /// Set when it is frozen.
    pub(crate) end: OnceLock<End>,
    /// Its runs, once flushed.
    pub(crate) flush: Arc<Flush>,
}

/// End of a frozen generation.
pub(crate) struct End {
    /// Its last commit.
    pub(crate) seq: Seq,
    /// End of that commit in the log.
    pub(crate) lsn: Lsn,
    /// Time of that commit. Stored in the checkpoint, so that commit times do not run backwards when the
    /// clock was set back and the log that would show it is gone.
    pub(crate) time_micros: i64,
    /// The sum of effects up to it, of a node.
    pub(crate) effects: Option<SavedEffects>,
}

impl Generation {
    pub(crate) fn new(memories: Vec<Box<dyn Memory>>) -> Self {
        let keyspaces = std::iter::repeat_with(OnceLock::new).take(BUCKETS).collect();
        Self { memories, keyspaces, made: Mutex::default(), end: OnceLock::new(), flush: Arc::default() }
    }

    /// The memory of the model in `slot`, if it is a `T`.
    pub(crate) fn memory<T: Memory>(&self, slot: usize) -> Option<&T> {
        (&**self.memories.get(slot)? as &dyn Any).downcast_ref()
    }

    pub(crate) fn memories(&self) -> &[Box<dyn Memory>] {
        &self.memories
    }

    /// The memtable of a keyspace, made when first written.
    pub(crate) fn keyspace(&self, keyspace: Keyspace) -> &Memtable {
        let index = usize::from(keyspace.0);
        let bucket =
            self.keyspaces.get(index / KEYSPACES_PER_BUCKET).expect("there is a bucket for every u16");
        let bucket =
            bucket.get_or_init(|| std::iter::repeat_with(OnceLock::new).take(KEYSPACES_PER_BUCKET).collect());
        bucket.get(index % KEYSPACES_PER_BUCKET).expect("a bucket holds every remainder").get_or_init(|| {
            self.made.lock().push(keyspace);
            Memtable::new()
        })
    }

    /// The memtable of a keyspace, if anything was written to it.
    fn written(&self, keyspace: Keyspace) -> Option<&Memtable> {
        let index = usize::from(keyspace.0);
        self.keyspaces.get(index / KEYSPACES_PER_BUCKET)?.get()?.get(index % KEYSPACES_PER_BUCKET)?.get()
    }

    /// The memtables of a frozen generation, in the order of keyspaces.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = (Keyspace, &Memtable)> {
        let mut made = self.made.lock().clone();
        made.sort_unstable();
        debug_assert!(made.is_sorted_by(|a, b| a < b), "a memtable is made once");
        let table = |keyspace| self.written(keyspace).expect("a frozen generation makes no more memtables");
        made.into_iter().map(move |keyspace| (keyspace, table(keyspace)))
    }

    /// Bytes held by memtables and models.
    pub fn bytes(&self) -> u64 {
        let tables = self
            .made
            .lock()
            .iter()
            // One that is just being made is listed already.
            .filter_map(|keyspace| Some(self.written(*keyspace)?.bytes()))
            .sum::<u64>();
        tables + self.memories.iter().map(|m| m.bytes()).sum::<u64>()
    }
}

/// One consistent set of generations and runs.
pub(crate) struct Version {
    pub(crate) active: Arc<Generation>,
    /// Newest first.
    pub(crate) frozen: Vec<Arc<Generation>>,
    /// Flushed, and older than the frozen ones. Newest first.
    resident: Vec<Arc<Generation>>,
    /// All runs.
    all_runs: Arc<StoreView>,
    /// The runs of what is neither frozen nor resident.
    runs: Arc<StoreView>,
    /// Commits up to this one are in runs, where their numbers may be gone; those after it are in memory.
    pub(crate) flushed: Seq,
}

impl Version {
    /// Runs and an active generation.
    pub(crate) fn new(active: Arc<Generation>, runs: Arc<StoreView>, flushed: Seq) -> Self {
        Self { active, frozen: Vec::new(), resident: Vec::new(), runs: runs.clone(), all_runs: runs, flushed }
    }

    /// This version once its active generation is frozen, and `active` takes its place.
    pub(crate) fn with_active(&self, active: Arc<Generation>) -> Self {
        let frozen = std::iter::once(&self.active).chain(&self.frozen).cloned().collect();
        let (resident, runs) = (self.resident.clone(), self.runs.clone());
        Self { active, frozen, resident, all_runs: self.all_runs.clone(), runs, flushed: self.flushed }
    }

    /// This version once its oldest frozen generation is flushed, with resident generations of at most
    /// `resident_bytes`.
    pub(crate) fn with_flushed(&self, runs: Arc<StoreView>, seq: Seq, resident_bytes: u64) -> Self {
        let mut frozen = self.frozen.clone();
        let flushed = frozen.pop();
        let mut free = resident_bytes;
        let fits = |generation: &&Arc<Generation>| {
            let left = free.checked_sub(generation.bytes());
            free = left.unwrap_or(0);
            left.is_some()
        };
        let resident = flushed.iter().chain(&self.resident).take_while(fits).cloned().collect();
        Self::over(self.active.clone(), frozen, resident, runs, seq)
    }

    /// This version over newer runs with the same entries.
    pub(crate) fn with_runs(&self, runs: Arc<StoreView>) -> Self {
        Self::over(self.active.clone(), self.frozen.clone(), self.resident.clone(), runs, self.flushed)
    }

    /// This version without resident generations: all that is flushed is read from runs.
    pub(crate) fn without_resident(&self) -> Self {
        Self::over(self.active.clone(), self.frozen.clone(), Vec::new(), self.all_runs.clone(), self.flushed)
    }

    fn over(
        active: Arc<Generation>,
        frozen: Vec<Arc<Generation>>,
        mut resident: Vec<Arc<Generation>>,
        runs: Arc<StoreView>,
        flushed: Seq,
    ) -> Self {
        // Without the runs of one, older ones would hide newer entries: they end with it.
        let held = resident.iter().take_while(|generation| runs.holds(&generation.flush)).count();
        resident.truncate(held);
        // The runs of a frozen one are there for a moment before it is resident.
        let hidden: Vec<_> =
            frozen.iter().chain(&resident).map(|generation| generation.flush.clone()).collect();
        let read = if hidden.is_empty() { runs.clone() } else { Arc::new(runs.without(&hidden)) };
        Self { active, frozen, resident, all_runs: runs, runs: read, flushed }
    }

    /// All runs.
    pub(crate) fn all_runs(&self) -> &Arc<StoreView> {
        &self.all_runs
    }

    /// The runs of generations that are read from memory instead.
    pub(crate) fn resident_flushes(&self) -> Vec<Arc<Flush>> {
        self.resident.iter().map(|generation| generation.flush.clone()).collect()
    }

    /// Bytes of flushed generations that are still read.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.resident.iter().map(|generation| generation.bytes()).sum()
    }

    fn frozen_bytes(&self) -> u64 {
        self.frozen.iter().map(|g| g.bytes()).sum()
    }

    /// All generations, newest first.
    fn generations(&self) -> impl DoubleEndedIterator<Item = &Arc<Generation>> {
        std::iter::once(&self.active).chain(&self.frozen).chain(&self.resident)
    }

    /// Those whose entries are not in [`Version::all_runs`], newest first.
    fn unflushed(&self) -> impl Iterator<Item = &Arc<Generation>> {
        std::iter::once(&self.active).chain(&self.frozen)
    }

    /// Checks the order of the generations and their ends.
    fn check(&self) {
        for generation in &self.resident {
            let end = generation.end.get().expect("a flushed generation is frozen with its end");
            assert!(end.seq <= self.flushed, "a resident generation is flushed");
        }
        let mut newer: Option<&End> = None;
        for generation in &self.frozen {
            let end = generation.end.get().expect("a generation is frozen with its end");
            assert!(self.flushed <= end.seq, "a flushed generation is not frozen");
            assert!(
                newer.is_none_or(|newer| end.seq <= newer.seq && end.lsn <= newer.lsn),
                "frozen generations are in order, the newest first"
            );
            newer = Some(end);
        }
    }
}

/// A reader of one version as of one commit, shared by snapshots, validation and checks.
#[derive(Clone, Copy)]
pub struct ReadView<'a> {
    version: &'a Version,
    at: Seq,
}

impl<'a> ReadView<'a> {
    pub(crate) fn new(version: &'a Version, at: Seq) -> Self {
        Self { version, at }
    }

    /// The last commit that counts; [`Seq::MAX`] in validation.
    pub fn at(&self) -> Seq {
        self.at
    }

    /// True without resident generations.
    pub(crate) fn is_flushed(&self) -> bool {
        self.version.resident.is_empty()
    }

    /// The runs of what is in none of the memories.
    pub fn runs(&self) -> &'a StoreView {
        &self.version.runs
    }

    /// A model's memories, newest first. `slot` is what the engine gave the model at registration.
    pub fn memories<T: Memory>(&self, slot: usize) -> impl DoubleEndedIterator<Item = &'a T> + use<'a, T> {
        self.version.generations().filter_map(move |g| g.memory::<T>(slot))
    }

    /// Newest first.
    fn written(&self, keyspace: Keyspace) -> impl Iterator<Item = &'a Memtable> + use<'a> {
        self.version.generations().filter_map(move |g| g.written(keyspace))
    }

    fn memtables(&self, keyspace: Keyspace) -> Vec<&'a Memtable> {
        self.written(keyspace).collect()
    }

    /// The value of `key`. Cost: a lookup in each memtable that has the keyspace, then one block of one run.
    ///
    /// # Errors
    /// A block is damaged or unreadable.
    pub fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Value<'a>>> {
        Ok(self.entry(keyspace, key)?.and_then(|entry| entry.value))
    }

    /// The value of `key`, or that it was deleted, and the commit that wrote that.
    #[inline]
    pub(crate) fn entry(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Entry<'a>>> {
        // The path of every point read: it builds no list of memtables.
        let version = self.version;
        for generation in version.unflushed() {
            if let Some(entry) = generation.written(keyspace).and_then(|table| table.get(key, self.at)) {
                return Ok(Some(entry));
            }
        }
        Ok(version.all_runs.get(keyspace, key, self.at)?)
    }

    /// Passes the values of `keys` to `each`, in order: number of the key, value. Lookups are interleaved,
    /// several at a time, so that many of them cost a third of separate ones. Allocates nothing.
    ///
    /// # Errors
    /// A block is damaged or unreadable; values passed to `each` before that are correct.
    pub fn get_many(
        &self,
        keyspace: Keyspace,
        keys: &[&[u8]],
        mut each: impl FnMut(usize, Option<Value<'a>>),
    ) -> Result<()> {
        let version = self.version;
        let mut next = 0;
        for keys in keys.chunks(MANY) {
            let mut found = [const { None::<Entry<'a>> }; MANY];
            let found = found.get_mut(..keys.len()).expect("a chunk has at most that many keys");
            for table in version.unflushed().filter_map(|generation| generation.written(keyspace)) {
                for (key, found) in keys.iter().zip(&mut *found).filter(|(_, found)| found.is_none()) {
                    *found = table.get(key, self.at);
                }
            }
            version.all_runs.get_many(keyspace, keys, self.at, found)?;
            for entry in found {
                each(next, entry.take().and_then(|entry| entry.value));
                next += 1;
            }
        }
        Ok(())
    }

    /// A cursor over a keyspace, unpositioned.
    pub fn cursor(&self, keyspace: Keyspace) -> Cursor<'a> {
        Cursor::merged(&self.memtables(keyspace), &self.version.runs, keyspace, self.at)
    }

    /// As [`ReadView::cursor`], with the runs of flushed generations also while those are in memory. For what a model's
    /// flush writes and its memory does not have.
    pub fn flushed_cursor(&self, keyspace: Keyspace) -> Cursor<'a> {
        let version = self.version;
        let tables: Vec<_> =
            version.unflushed().filter_map(|generation| generation.written(keyspace)).collect();
        Cursor::merged(&tables, &version.all_runs, keyspace, self.at)
    }

    /// Passes the keys of `span` with their values to `each` until it returns false.
    ///
    /// # Errors
    /// A block is damaged or unreadable.
    pub fn visit(
        &self,
        keyspace: Keyspace,
        span: KeySpan<'_>,
        mut each: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let mut cursor = self.cursor(keyspace);
        span.seek(&mut cursor)?;
        while cursor.valid() && span.contains(cursor.key()) && each(cursor.key(), cursor.value()) {
            span.advance(&mut cursor)?;
        }
        Ok(())
    }

    /// The newest commit after `since` that wrote `key`, if there is one.
    ///
    /// # Errors
    /// A block is damaged or unreadable.
    pub fn changed(&self, keyspace: Keyspace, key: &[u8], since: Seq) -> Result<Option<Seq>> {
        let tables = self.version.unflushed().filter_map(|generation| generation.written(keyspace));
        Ok(ropewalk_store::newest_seq(tables, &self.version.all_runs, keyspace, key, since)?)
    }

    /// A commit after `since` that wrote a key from `start` up to `end`, if there is one.
    ///
    /// # Errors
    /// A block is damaged or unreadable.
    pub fn changed_in(
        &self,
        keyspace: Keyspace,
        start: &[u8],
        end: Option<&[u8]>,
        since: Seq,
    ) -> Result<Option<Seq>> {
        let tables = self.memtables(keyspace);
        Ok(ropewalk_store::changed_in_range(&tables, &self.version.runs, keyspace, start, end, since)?)
    }

    /// True when no commit after `since` wrote a key from `start` up to `end`, for callers without a snapshot
    /// of `since`. Checks memory only: once commits after `since` are in runs they cannot be distinguished,
    /// and the result is false.
    pub fn is_known_unchanged_since(
        &self,
        keyspace: Keyspace,
        start: &[u8],
        end: Option<&[u8]>,
        since: Seq,
    ) -> bool {
        let unchanged = |table: &&Memtable| table.changed_in(start, end, since).is_none();
        since >= self.version.flushed && self.memtables(keyspace).iter().all(unchanged)
    }
}

/// The current version, the newest visible commit, and the snapshots of older ones.
pub(crate) struct Versions {
    current: ArcSwap<Version>,
    /// Flushed generations that readers may still hold, with their bytes.
    retired: Mutex<Vec<(Weak<Generation>, u64)>>,
    /// The bytes of those, as of the last [`Versions::pinned`].
    pinned_bytes: AtomicU64,
    /// Held while the current version is replaced.
    replacing: Mutex<()>,
    visible: AtomicU64,
    /// The newest commit that has its place in the log; never less than `visible`.
    ordered: AtomicU64,
    /// Bytes of the active generation. Only the sequencer writes it.
    active_bytes: AtomicU64,
    /// Bytes of the frozen generations. Written only while the current version is replaced, so that a flush and a group
    /// that is sequenced meanwhile cannot overwrite each other's figure.
    frozen_bytes: AtomicU64,
    live: [Live; LIVE_SHARDS],
    /// The newest commit when the engine was opened: replay need not preserve older states.
    opened: Seq,
}

/// Live snapshots are counted in several places, so that readers on several processors do not wait for each other.
const LIVE_SHARDS: usize = 16;

/// Number of snapshots per commit. Aligned to separate cache lines.
#[derive(Default)]
#[repr(align(128))]
struct Live(Mutex<BTreeMap<Seq, usize>>);

/// Where this thread counts its snapshots.
fn shard() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SHARD: usize = THREADS.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % LIVE_SHARDS;
    }
    SHARD.with(|shard| *shard)
}

impl Versions {
    pub(crate) fn new(version: Version, visible: Seq) -> Self {
        let (active, frozen) = (version.active.bytes(), version.frozen_bytes());
        Self {
            active_bytes: AtomicU64::new(active),
            frozen_bytes: AtomicU64::new(frozen),
            current: ArcSwap::from_pointee(version),
            retired: Mutex::default(),
            pinned_bytes: AtomicU64::new(0),
            replacing: Mutex::new(()),
            visible: AtomicU64::new(visible.0),
            ordered: AtomicU64::new(visible.0),
            live: Default::default(),
            opened: visible,
        }
    }

    pub(crate) fn current(&self) -> arc_swap::Guard<Arc<Version>> {
        hint_switch();
        self.current.load()
    }

    pub(crate) fn replace(&self, change: impl FnOnce(&Version) -> Version) {
        let _replacing = self.replacing.lock();
        let old = self.current.load();
        let new = change(&old);
        debug_assert!(old.flushed <= new.flushed, "flushed commits stay flushed");
        if cfg!(debug_assertions) {
            new.check();
        }
        drop(old);
        let frozen_bytes = new.frozen_bytes();
        let new = Arc::new(new);
        let old = self.current.swap(new.clone());
        hint_switch();
        self.frozen_bytes.store(frozen_bytes, Ordering::Relaxed);
        let ended = |old: &&Arc<Generation>| !new.generations().any(|new| Arc::ptr_eq(new, old));
        old.generations().filter(ended).for_each(|generation| self.retire(generation));
    }

    /// `generation` was flushed and is not resident: from now on only readers hold it.
    fn retire(&self, generation: &Arc<Generation>) {
        self.retired.lock().push((Arc::downgrade(generation), generation.bytes()));
    }

    /// Flushed generations that readers hold, and their bytes.
    pub(crate) fn pinned(&self) -> (usize, u64) {
        let mut retired = self.retired.lock();
        retired.retain(|(generation, _)| generation.strong_count() > 0);
        let bytes = retired.iter().map(|(_, bytes)| bytes).sum();
        self.pinned_bytes.store(bytes, Ordering::Relaxed);
        (retired.len(), bytes)
    }

    /// The bytes that [`Versions::pinned`] found last: never less than pinned, except during a flush.
    pub(crate) fn pinned_bytes_at_most(&self) -> u64 {
        self.pinned_bytes.load(Ordering::Relaxed)
    }

    /// The sequencer has written to the active generation, or replaced it.
    pub(crate) fn set_active_bytes(&self, bytes: u64) {
        self.active_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Bytes in memtables: the number that the memory budget for writes limits. Two atomic loads.
    pub(crate) fn write_bytes(&self) -> u64 {
        self.active_bytes.load(Ordering::Relaxed) + self.frozen_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn visible(&self) -> Seq {
        Seq(self.visible.load(Ordering::SeqCst))
    }

    pub(crate) fn opened(&self) -> Seq {
        self.opened
    }

    pub(crate) fn publish(&self, seq: Seq) {
        let (visible, ordered) = (self.visible(), self.ordered());
        assert!(visible < seq && seq <= ordered, "visible {visible} < published {seq} <= ordered {ordered}");
        // SeqCst: pairs with the check that a watcher makes after it has announced itself.
        self.visible.store(seq.0, Ordering::SeqCst);
    }

    /// The newest commit that has its place in the log, visible or not.
    pub(crate) fn ordered(&self) -> Seq {
        Seq(self.ordered.load(Ordering::SeqCst))
    }

    /// Commits up to `seq` have their place in the log and are in the memtables.
    pub(crate) fn order(&self, seq: Seq) {
        let ordered = self.ordered();
        assert!(ordered < seq, "commit {seq} is ordered after {ordered}");
        self.ordered.store(seq.0, Ordering::SeqCst);
    }

    /// Commits whose view of the data must survive: live snapshots, ascending, and the newest visible commit last. Snapshots
    /// ahead of that are left out, since everything newer survives anyway; among them a list would have gaps.
    pub(crate) fn live(&self) -> Vec<Seq> {
        // All of them at once, so that no snapshot is missed that is older than the commit reported as newest.
        let live: Vec<_> = self.live.iter().map(|live| live.0.lock()).collect();
        let visible = self.visible();
        let seqs = live.iter().flat_map(|live| live.keys().copied());
        let mut seqs: Vec<Seq> = seqs.filter(|seq| *seq <= visible).collect();
        drop(live);
        seqs.sort_unstable();
        seqs.dedup();
        if seqs.last() != Some(&visible) {
            seqs.push(visible);
        }
        seqs
    }

    pub(crate) fn snapshot(self: &Arc<Self>) -> Snapshot {
        self.snapshot_of(Self::visible)
    }

    /// A snapshot of all ordered commits, visible or not: for transactions that will be ordered after them,
    /// and that return no results read from it before they are visible.
    pub(crate) fn snapshot_ahead(self: &Arc<Self>) -> Snapshot {
        self.snapshot_of(Self::ordered)
    }

    /// A snapshot of commit `seq`, which is ordered, while no later one can become visible.
    pub(crate) fn snapshot_confirmed(self: &Arc<Self>, seq: Seq) -> Snapshot {
        self.snapshot_of(|versions| {
            let (visible, ordered) = (versions.visible(), versions.ordered());
            assert!(
                visible <= seq && seq <= ordered,
                "visible {visible} <= confirmed {seq} <= ordered {ordered}"
            );
            seq
        })
    }

    fn snapshot_of(self: &Arc<Self>, newest: impl FnOnce(&Self) -> Seq) -> Snapshot {
        let shard = shard();
        let seq = {
            // Inside the lock, see `live`.
            let mut live = self.count(shard);
            let seq = newest(self);
            *live.entry(seq).or_insert(0) += 1;
            seq
        };
        self.registered(seq, shard)
    }

    /// A snapshot that is counted already.
    fn registered(self: &Arc<Self>, seq: Seq, shard: usize) -> Snapshot {
        // A version is loaded when it is first read, after `visible`, so it holds every commit up to `seq`; entries of later
        // commits and the garbage collection between the two are harmless because `seq` is registered.
        Snapshot { seq, pinned: OnceLock::new(), versions: self.clone(), shard }
    }

    /// A snapshot of the visible commit `seq`, if its state still exists: a live snapshot holds it, or
    /// everything written after it is in the active generation, which has all versions. Otherwise the first
    /// and the last commit of the second kind.
    pub(crate) fn snapshot_at(self: &Arc<Self>, seq: Seq) -> Result<Snapshot, (Seq, Seq)> {
        if seq <= self.visible() {
            for place in 0..LIVE_SHARDS {
                // A snapshot in this shard keeps the commit alive until this one is counted, too.
                if let Some(count) = self.count(place).get_mut(&seq) {
                    *count += 1;
                    return Ok(self.registered(seq, place));
                }
            }
        }
        let shard = shard();
        // Counted under the lock that covers the check: no other caller finds a commit that is refused here, and
        // a flush of the active generation, which begins after it was frozen, finds the commit in `live`.
        let mut live = self.count(shard);
        let (oldest, newest) = (self.oldest_unflushed(), self.visible());
        if seq != newest && !(oldest..=newest).contains(&seq) {
            return Err((oldest.min(newest), newest));
        }
        *live.entry(seq).or_insert(0) += 1;
        drop(live);
        Ok(self.registered(seq, shard))
    }

    /// The newest commit before the active generation. Flushes and merges in progress concern commits up to
    /// it, and retain the newest version of each key, so every state from it on can be read.
    fn oldest_unflushed(&self) -> Seq {
        let version = self.current();
        let frozen = version.frozen.first().and_then(|generation| generation.end.get());
        frozen.map_or(version.flushed, |end| end.seq).max(self.opened)
    }

    fn count(&self, shard: usize) -> MutexGuard<'_, BTreeMap<Seq, usize>> {
        self.live.get(shard).expect("snapshots remember a shard that there is").0.lock()
    }

    fn release(&self, seq: Seq, shard: usize) {
        let mut live = self.count(shard);
        // Otherwise a flush may have dropped versions that a snapshot needs.
        let count = live.get_mut(&seq).expect("a snapshot is counted until it is dropped");
        *count -= 1;
        if *count == 0 {
            live.remove(&seq);
        }
    }
}

/// The database as of one commit, for as long as it lives. Never blocks a writer and is never blocked by one.
pub struct Snapshot {
    seq: Seq,
    /// Set by the first [`Snapshot::read`].
    pinned: OnceLock<Arc<Version>>,
    versions: Arc<Versions>,
    /// Where it is counted.
    shard: usize,
}

impl Snapshot {
    /// The last commit it sees.
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// For reading in place: values and cursors borrow from the snapshot. The first call pins the current
    /// memtables and runs, until [`Snapshot::refresh_sources`] or the end of the snapshot.
    #[inline]
    pub fn read(&self) -> ReadView<'_> {
        let version = self.pinned.get_or_init(|| self.versions.current.load_full());
        ReadView { version, at: self.seq }
    }

    /// For reading without a pin: the newest memtables and runs, as of the snapshot's commit, as long as the
    /// [`Reading`] lives. Costs nanoseconds.
    #[inline]
    pub fn reading(&self) -> Reading {
        Reading { version: self.versions.current.load(), at: self.seq }
    }

    /// Releases the memtables and runs that were read, so that a long-lived snapshot does not hold old memory
    /// and files. The next read pins the newest ones, at the same commit. Costs nanoseconds.
    pub fn refresh_sources(&mut self) {
        self.pinned.take();
    }
}

/// One version, held for a read, with the commit to read. See [`Snapshot::reading`].
pub struct Reading {
    version: arc_swap::Guard<Arc<Version>>,
    at: Seq,
}

impl Reading {
    /// To read it.
    #[inline]
    pub fn view(&self) -> ReadView<'_> {
        ReadView { version: &self.version, at: self.at }
    }
}

impl Clone for Snapshot {
    fn clone(&self) -> Self {
        // In the shard of the first, which keeps the commit alive: no read of `live` can fall between.
        let mut live = self.versions.count(self.shard);
        *live.get_mut(&self.seq).expect("a snapshot is counted until it is dropped") += 1;
        drop(live);
        let (pinned, versions) = (OnceLock::new(), self.versions.clone());
        Self { seq: self.seq, pinned, versions, shard: self.shard }
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.versions.release(self.seq, self.shard);
    }
}
