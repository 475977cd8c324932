//! The store: runs in force, the switch from one set to the next, and the work in between.
//!
//! ```text
//!   Memtable ─▶ write_memtable ─▶ NewRun ─▶ install ──▶ manifest switch ──▶ new view
//!                                             ▲
//!                  view ─▶ compact_step ──────┘
//! ```
//!
//! Invariants
//! 1. The manifest names only files that are complete and synced.
//! 2. A view, once given out, never changes; its files live as long as it does.
//! 3. An error before the switch leaves the old state in force, on disk and in memory, and the call may be repeated.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use ropewalk_base::Seq;
use ropewalk_base::sync::Mutex;
use ropewalk_vfs::Env;

use crate::compaction::gc::{Gc, Snapshots};
use crate::compaction::merge::{Job, Plan};
use crate::error::StoreError;
use crate::manifest::pin::StorePin;
use crate::manifest::{self, Checkpoint, Manifest, ManifestKeyspace, ManifestRun};
use crate::memtable::Memtable;
use crate::options::{FilterPolicy, Keyspace, KeyspaceOptions, StoreOptions};
use crate::read::flush::Flush;
use crate::read::sorted::Sorted;
use crate::read::view::{KeyspaceView, StoreView};
use crate::run::Run;
use crate::run::files::Files;
use crate::run::writer::{NewRun, RunWriter};

/// Changes of one [`Store::install`], applied atomically.
#[derive(Debug, Default)]
pub struct Edit {
    /// Runs that become the newest of their keyspaces.
    pub new_l0: Vec<NewRun>,
    /// Where recovery starts from now on; `None`: as before.
    pub checkpoint: Option<Checkpoint>,
    /// Set to what the edit adds to level 0, before a view shows it.
    pub flush: Option<Arc<Flush>>,
}

/// A keyspace that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundKeyspace {
    /// Its number.
    pub keyspace: Keyspace,
    /// How runs are written from now on.
    pub options: KeyspaceOptions,
    /// The commit that defined its number; zero without one, see [`Store::keyspace`].
    pub defined: Seq,
}

/// Result of a quantum of compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactStep {
    /// No level is too full.
    Idle,
    /// Some work was done; there may be more.
    Worked {
        /// Bytes of input that were merged; zero when runs were moved without being rewritten.
        bytes: u64,
    },
}

/// Bytes written for one keyspace since the store was opened.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Written {
    pub(crate) flushed: u64,
    pub(crate) compacted: u64,
}

struct State {
    checkpoint: Checkpoint,
    next_group: u64,
    written: Vec<Written>,
}

/// Ordered versioned keys on disk. All methods take `&self`; reads never wait for writes.
pub struct Store {
    files: Arc<Files>,
    view: ArcSwap<StoreView>,
    /// Held for a manifest switch.
    state: Mutex<State>,
    /// Held for a quantum of compaction.
    job: Mutex<Option<Job>>,
    /// There was no manifest when it was opened.
    is_new: bool,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({})", self.files.dir.display())
    }
}

impl Store {
    /// Opens the store in `dir`, creating the directory if needed, and removes leftovers of a crash. Reads the
    /// manifest and the footers of the runs only; the index and the filter of a run are read when they are needed.
    ///
    /// # Errors
    /// Manifest or runs are damaged, missing, foreign or from the future; options out of range; I/O errors.
    pub fn open(env: &Env, dir: &Path, options: StoreOptions) -> Result<Self, StoreError> {
        options.check()?;
        env.vfs.create_dir_all(dir).map_err(StoreError::io("create", dir))?;
        // The process before may have died between the manifest's rename and its sync: a power cut would bring back the
        // manifest that names what is removed below.
        env.vfs.sync_dir(dir).map_err(StoreError::io("sync directory", dir))?;
        let files = Arc::new(Files::new(env, dir, options));
        let names = env.vfs.list(dir).map_err(StoreError::io("list", dir))?;
        let found = Manifest::read(&*env.vfs, dir)?;
        let is_new = found.is_none();
        let manifest = match found {
            Some(manifest) => manifest,
            // The manifest is written before the first run, so runs without one mean that it is lost.
            None if names.iter().any(|n| n.ends_with(".run")) => {
                return Err(StoreError::Missing { path: dir.join(manifest::NAME) });
            }
            None => Manifest::default(),
        };
        files.set_next_id(manifest.next_file.max(1));
        let mut known = BTreeSet::new();
        let mut keyspaces = Vec::new();
        let mut next_group = 1;
        for (index, keyspace) in manifest.keyspaces.iter().enumerate() {
            known.extend(keyspace.runs.iter().map(|r| Files::name(r.file)));
            next_group = keyspace.runs.iter().map(|r| r.group + 1).fold(next_group, u64::max);
            keyspaces.push(Arc::new(open_keyspace(&files, index, keyspace)?));
        }
        for name in names {
            if name == manifest::NEW_NAME || name.ends_with(".run") && !known.contains(&name) {
                let path = dir.join(&name);
                env.vfs.remove(&path).map_err(StoreError::io("remove", &path))?;
            }
        }
        let written = vec![Written::default(); keyspaces.len()];
        Ok(Self {
            files,
            view: ArcSwap::from_pointee(StoreView { keyspaces }),
            state: Mutex::new(State { checkpoint: manifest.checkpoint, next_group, written }),
            job: Mutex::new(None),
            is_new,
        })
    }

    /// True when there is a manifest in `dir`, which may not exist.
    ///
    /// # Errors
    /// The check failed.
    pub fn is_begun(env: &Env, dir: &Path) -> io::Result<bool> {
        env.vfs.exists(&dir.join(manifest::NAME))
    }

    /// Finds or creates the keyspace `name`, before any commit defines one. Options that differ from the stored ones
    /// replace them, for runs written from now on. Durable when it returns.
    ///
    /// # Errors
    /// The manifest cannot be written; options out of range; more than 65 535 keyspaces.
    pub fn keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<Keyspace, StoreError> {
        options.check()?;
        let mut state = self.state.lock();
        let mut view = StoreView::clone(&self.view.load());
        let found = view.keyspaces.iter().position(|k| k.name == name);
        let index = found.unwrap_or(view.keyspaces.len());
        let keyspace = u16::try_from(index).map(Keyspace).map_err(|_| StoreError::TooManyKeyspaces)?;
        match view.keyspaces.get_mut(index) {
            Some(same) if same.options == options => return Ok(keyspace),
            Some(other) => Arc::make_mut(other).options = options,
            None => view.keyspaces.push(Arc::new(KeyspaceView::empty(name, options, Seq::ZERO))),
        }
        // Otherwise the manifest would list a definition that the log may lose.
        assert!(
            view.listed(state.checkpoint.seq) == view.keyspaces.len(),
            "a keyspace without a commit is made before any commit defines one"
        );
        let checkpoint = state.checkpoint.clone();
        self.switch(&view, &checkpoint).map_err(|(error, _)| error)?;
        state.written.resize(view.keyspaces.len(), Written::default());
        self.view.store(Arc::new(view));
        Ok(keyspace)
    }

    /// The keyspace `name`, if there is one.
    pub fn find_keyspace(&self, name: &str) -> Option<FoundKeyspace> {
        let view = self.view.load();
        let index = view.keyspaces.iter().position(|keyspace| keyspace.name == name)?;
        let found = view.keyspaces.get(index)?;
        let keyspace = Keyspace(u16::try_from(index).ok()?);
        Some(FoundKeyspace { keyspace, options: found.options, defined: found.defined })
    }

    /// The number of the next new keyspace.
    ///
    /// # Errors
    /// [`StoreError::TooManyKeyspaces`].
    pub fn next_keyspace(&self) -> Result<Keyspace, StoreError> {
        u16::try_from(self.keyspace_count()).map(Keyspace).map_err(|_| StoreError::TooManyKeyspaces)
    }

    /// Number of keyspaces; theirs are the numbers below it.
    pub fn keyspace_count(&self) -> usize {
        self.view.load().keyspaces.len()
    }

    /// Applies the definition of a keyspace by commit `seq`, or its new options. Changes memory only: the
    /// manifest lists the keyspace from the first checkpoint at or after that commit on, or once it has a
    /// run. A repetition, as in replay, changes nothing. Waits for a manifest that is being written.
    ///
    /// # Errors
    /// The rule that the definition breaks: numbers are given out in order, each to one name.
    pub fn define_keyspace(
        &self,
        seq: Seq,
        keyspace: Keyspace,
        name: &str,
        options: KeyspaceOptions,
    ) -> Result<(), &'static str> {
        options.check().map_err(|_| "options of a keyspace in their ranges")?;
        let mut state = self.state.lock();
        let mut view = StoreView::clone(&self.view.load());
        let (index, count) = (usize::from(keyspace.0), view.keyspaces.len());
        let named = view.keyspaces.iter().position(|keyspace| keyspace.name == name);
        match view.keyspaces.get_mut(index) {
            _ if named.is_some_and(|named| named != index) => {
                return Err("one number for each keyspace name");
            }
            Some(_) if named.is_none() => return Err("one name for each keyspace number"),
            Some(same) if same.options == options => return Ok(()),
            // The manifest may have them before the commit is durable: options are about new runs only.
            Some(changed) => Arc::make_mut(changed).options = options,
            None if index == count => {
                view.keyspaces.push(Arc::new(KeyspaceView::empty(name, options, seq)));
            }
            None => return Err("keyspace numbers without a gap"),
        }
        state.written.resize(view.keyspaces.len(), Written::default());
        self.view.store(Arc::new(view));
        Ok(())
    }

    /// True when there was no manifest at the opening: the directory was empty or held nothing relevant.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Writes the manifest of the current state, durably: from then on the store exists.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn publish_first_manifest(&self) -> Result<(), StoreError> {
        let state = self.state.lock();
        self.switch(&self.view.load(), &state.checkpoint).map_err(|(error, _)| error)
    }

    /// The error for a store that appears new although its data must exist.
    pub fn missing_files_error(&self) -> StoreError {
        StoreError::Missing { path: self.files.dir.join(manifest::NAME) }
    }

    /// Where recovery starts, according to the manifest in force; zero and empty in a new store.
    pub fn checkpoint(&self) -> Checkpoint {
        self.state.lock().checkpoint.clone()
    }

    /// The runs in force. Costs a few nanoseconds; pins the files of the view while it is held.
    pub fn view(&self) -> Arc<StoreView> {
        self.view.load_full()
    }

    /// A writer of sorted entries, for bulk loads and flushes. Its runs take effect with [`Store::install`].
    ///
    /// # Errors
    /// Unknown keyspace.
    pub fn writer(&self, keyspace: Keyspace) -> Result<RunWriter, StoreError> {
        let view = self.view.load();
        let options = view.keyspace(keyspace)?.options;
        Ok(RunWriter::new(&self.files, keyspace, options, options.filter != FilterPolicy::None))
    }

    /// As [`Store::writer`], for keys that lie in no other source, so that their runs are the lowest there: they carry a
    /// filter only where the last level does.
    ///
    /// # Errors
    /// Unknown keyspace.
    pub fn bottom_writer(&self, keyspace: Keyspace) -> Result<RunWriter, StoreError> {
        let options = self.view.load().keyspace(keyspace)?.options;
        Ok(RunWriter::new(&self.files, keyspace, options, options.filter == FilterPolicy::All))
    }

    /// Writes a memtable, which must not change meanwhile, into runs. Drops versions that no snapshot sees.
    /// `snapshots`: the live ones, ascending, the last being the newest visible commit; without any, every
    /// version is retained.
    ///
    /// # Errors
    /// I/O errors (the partial files are removed, the call may be repeated), unknown keyspace.
    pub fn write_memtable(
        &self,
        keyspace: Keyspace,
        memtable: &Memtable,
        snapshots: &[Seq],
    ) -> Result<Vec<NewRun>, StoreError> {
        let mut writer = self.writer(keyspace)?;
        let snapshots = Snapshots::new(snapshots);
        let ranges = [memtable.ranges()];
        // Older data may lie in other memtables and in runs, so tombstones stay.
        writer.set_ranges(snapshots.keep_ranges(&ranges[0], false));
        let mut gc = Gc::new(snapshots, false);
        memtable.for_each(|key, seq, value| match gc.keep(key, seq, value.is_none(), 0, &ranges) {
            Some(seq) => writer.add(key, seq, value),
            None => Ok(()),
        })?;
        writer.finish()
    }

    /// Puts an edit in force, atomically: after a crash either all of it or none of it is there. Durable when it
    /// returns. Returns the new view.
    ///
    /// # Errors
    /// The manifest cannot be written: the old state stays in force, and the new runs are removed.
    pub fn install(&self, edit: Edit) -> Result<Arc<StoreView>, StoreError> {
        let mut state = self.state.lock();
        let mut view = StoreView::clone(&self.view.load());
        let group = state.next_group;
        let mut runs: Vec<Arc<Run>> = edit.new_l0.iter().map(|r| r.0.clone()).collect();
        runs.sort_by_key(|r| r.footer.keyspace);
        for same in runs.chunk_by(|a, b| a.footer.keyspace == b.footer.keyspace) {
            let first = same.first().expect("a chunk has at least one run");
            let index = first.footer.keyspace.0;
            let keyspace =
                view.keyspaces.get_mut(usize::from(index)).ok_or(StoreError::UnknownKeyspace(index))?;
            let sorted = Sorted::new(group, same.to_vec());
            if sorted.overlapping().is_some() {
                return Err(StoreError::Order("the runs of one edit must not overlap"));
            }
            if let Some(written) = state.written.get_mut(usize::from(index)) {
                written.flushed += sorted.bytes();
            }
            // After an opening, groups are all that tells which flush is newer.
            assert!(
                keyspace.l0.first().is_none_or(|newest| newest.group < group),
                "the newest flush has the highest group"
            );
            Arc::make_mut(keyspace).l0.insert(0, Arc::new(sorted));
        }
        let checkpoint = edit.checkpoint.unwrap_or_else(|| state.checkpoint.clone());
        if let Some(flush) = edit.flush.as_ref().filter(|_| !runs.is_empty()) {
            flush.set(group, runs.len());
        }
        self.put_in_force(view, &checkpoint, &runs).inspect_err(|_| {
            if let Some(flush) = &edit.flush {
                flush.set(0, 0);
            }
        })?;
        state.checkpoint = checkpoint;
        state.next_group += 1;
        Ok(self.view.load_full())
    }

    /// Writes the manifest of `view` and makes it the view, adopting `new` runs.
    fn put_in_force(
        &self,
        view: StoreView,
        checkpoint: &Checkpoint,
        new: &[Arc<Run>],
    ) -> Result<(), StoreError> {
        match self.switch(&view, checkpoint) {
            Ok(()) => {
                new.iter().for_each(|run| run.set_doomed(false));
                self.view.store(Arc::new(view));
                Ok(())
            }
            Err((error, maybe_in_force)) => {
                // If the new manifest survives a crash, it must find its runs.
                new.iter().for_each(|run| run.set_doomed(!maybe_in_force));
                Err(error)
            }
        }
    }

    /// Pins the state in force with its files, which stay while the returned pin lives; also returns the
    /// result of `look`, which runs while nothing can be installed.
    pub fn pin<T>(&self, look: impl FnOnce() -> T) -> (StorePin, T) {
        let state = self.state.lock();
        let view = self.view.load_full();
        let manifest = self.manifest(&view, &state.checkpoint);
        (StorePin { manifest, view, files: self.files.clone() }, look())
    }

    fn switch(&self, view: &StoreView, checkpoint: &Checkpoint) -> Result<(), (StoreError, bool)> {
        self.manifest(view, checkpoint).write(&*self.files.env.vfs, &self.files.dir)
    }

    fn manifest(&self, view: &StoreView, checkpoint: &Checkpoint) -> Manifest {
        let listed = view.keyspaces.iter().take(view.listed(checkpoint.seq));
        let keyspaces = listed.map(|keyspace| {
            let l0 = keyspace.l0.iter().map(|s| (0, s));
            let levels = keyspace.levels.iter().enumerate().map(|(i, s)| (i as u64 + 1, s));
            let runs = l0.chain(levels).flat_map(|(level, sorted)| {
                let run = move |r: &Arc<Run>| ManifestRun {
                    level,
                    group: sorted.group,
                    file: r.id,
                    bytes: r.bytes,
                };
                sorted.runs.iter().map(run)
            });
            ManifestKeyspace { name: keyspace.name.clone(), options: keyspace.options, runs: runs.collect() }
        });
        Manifest {
            checkpoint: checkpoint.clone(),
            next_file: self.files.next_id(),
            keyspaces: keyspaces.collect(),
        }
    }

    /// Does about `max_bytes` of compaction, if any is due. One caller works at a time; others wait.
    /// `snapshots` as in [`Store::write_memtable`]; a running job continues with those it began with.
    /// `hidden`: flushes that no reader reads; they make compaction due later.
    ///
    /// # Errors
    /// I/O errors or damage: the job is abandoned, its files are removed, the state is as before it. The next
    /// call starts a new job.
    pub fn compact_step(
        &self,
        snapshots: &[Seq],
        hidden: &[Arc<Flush>],
        max_bytes: u64,
    ) -> Result<CompactStep, StoreError> {
        let mut slot = self.job.lock();
        let job = match slot.take() {
            Some(job) => job,
            None => match Plan::pick(&self.view.load(), &self.files.options, hidden) {
                Some(plan) => Job::new(&plan, Snapshots::new(snapshots), false),
                None => return Ok(CompactStep::Idle),
            },
        };
        let (bytes, unfinished) = self.advance(job, max_bytes)?;
        *slot = unfinished;
        Ok(CompactStep::Worked { bytes })
    }

    /// Compacts everything: afterwards each keyspace is one sorted level, without tombstones and versions
    /// that no snapshot sees. Needs space for a second copy of the rewritten data.
    ///
    /// # Errors
    /// As [`Store::compact_step`].
    pub fn compact_all(&self, snapshots: &[Seq]) -> Result<(), StoreError> {
        let mut slot = self.job.lock();
        if let Some(job) = slot.take() {
            self.advance(job, u64::MAX)?;
        }
        for index in 0..self.view.load().keyspaces.len() {
            let view = self.view.load_full();
            let keyspace = Keyspace(index as u16);
            if let Some(plan) = Plan::everything(keyspace, view.keyspace(keyspace)?) {
                let job = Job::new(&plan, Snapshots::new(snapshots), true);
                drop((plan, view));
                self.advance(job, u64::MAX)?;
            }
        }
        Ok(())
    }

    /// Works on a job; returns it if it is not complete.
    fn advance(&self, mut job: Job, max_bytes: u64) -> Result<(u64, Option<Job>), StoreError> {
        let view = self.view.load_full();
        let (bytes, complete) = job.work(&self.files, view.keyspace(job.keyspace)?, max_bytes.max(1))?;
        if !complete {
            return Ok((bytes, Some(job)));
        }
        drop(view);
        self.install_job(job)?;
        Ok((bytes, None))
    }

    fn install_job(&self, job: Job) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        let mut view = StoreView::clone(&self.view.load());
        let index = usize::from(job.keyspace.0);
        let slot = view.keyspaces.get_mut(index).ok_or(StoreError::UnknownKeyspace(job.keyspace.0))?;
        let keyspace = Arc::make_mut(slot);
        let left = |sorted: &Arc<Sorted>| {
            let runs: Vec<Arc<Run>> =
                sorted.runs.iter().filter(|r| !job.taken.contains(&r.id)).cloned().collect();
            if runs.len() == sorted.runs.len() {
                sorted.clone()
            } else {
                Arc::new(Sorted::new(sorted.group, runs))
            }
        };
        let old: Vec<Arc<Run>> = keyspace.runs().filter(|r| job.taken.contains(&r.id)).cloned().collect();
        // A run that was replaced meanwhile would be there twice: its entries would come back.
        assert_eq!(
            old.len(),
            job.taken.len(),
            "the runs that a job takes stay in force until it replaces them"
        );
        keyspace.l0 = keyspace.l0.iter().map(left).filter(|s| !s.runs.is_empty()).collect();
        keyspace.levels = keyspace.levels.iter().map(left).collect();
        keyspace.levels.resize_with(keyspace.levels.len().max(job.output + 1), Arc::default);
        let written: Vec<Arc<Run>> = job.written.iter().map(|r| r.0.clone()).collect();
        let level = keyspace.levels.get_mut(job.output).expect("the levels were extended to the output");
        let runs = level.runs.iter().chain(&job.moved).chain(&written).cloned().collect();
        *level = Arc::new(Sorted::new(0, runs));
        if level.overlapping().is_some() {
            return Err(StoreError::Order("compaction made overlapping runs"));
        }
        while keyspace.levels.last().is_some_and(|s| s.runs.is_empty()) {
            keyspace.levels.pop();
        }
        self.put_in_force(view, &state.checkpoint.clone(), &written)?;
        let moved: BTreeSet<u64> = job.moved.iter().map(|r| r.id).collect();
        old.iter().filter(|r| !moved.contains(&r.id)).for_each(|r| r.set_doomed(true));
        if let Some(counter) = state.written.get_mut(index) {
            counter.compacted += written.iter().map(|r| r.bytes).sum::<u64>();
        }
        Ok(())
    }

    pub(crate) fn written(&self) -> Vec<Written> {
        self.state.lock().written.clone()
    }

    pub(crate) fn files(&self) -> &Files {
        &self.files
    }
}

fn open_keyspace(
    files: &Arc<Files>,
    index: usize,
    manifest: &ManifestKeyspace,
) -> Result<KeyspaceView, StoreError> {
    let path = files.dir.join(manifest::NAME);
    let wrong = |what| StoreError::corrupt(&path, 24, what);
    let mut levels: Vec<Vec<Arc<Run>>> = Vec::new();
    let mut groups: std::collections::BTreeMap<u64, Vec<Arc<Run>>> = std::collections::BTreeMap::new();
    for named in &manifest.runs {
        let run = Arc::new(Run::open(files, named.file, named.bytes)?);
        if usize::from(run.footer.keyspace.0) != index {
            return Err(StoreError::corrupt(
                &run.path,
                run.bytes,
                "run of the keyspace that the manifest says",
            ));
        }
        match usize::try_from(named.level).unwrap_or(usize::MAX).checked_sub(1) {
            None => groups.entry(named.group).or_default().push(run),
            Some(level) => {
                levels.resize_with(levels.len().max(level + 1), Vec::new);
                levels.get_mut(level).ok_or_else(|| wrong("level up to 64"))?.push(run);
            }
        }
    }
    let l0: Vec<Arc<Sorted>> =
        groups.into_iter().rev().map(|(g, runs)| Arc::new(Sorted::new(g, runs))).collect();
    let levels: Vec<Arc<Sorted>> = levels.into_iter().map(|runs| Arc::new(Sorted::new(0, runs))).collect();
    if l0.iter().chain(&levels).any(|s| s.overlapping().is_some()) {
        return Err(wrong("runs of a level that do not overlap"));
    }
    Ok(KeyspaceView { l0, levels, ..KeyspaceView::empty(&manifest.name, manifest.options, Seq::ZERO) })
}
