//! A file system that stops working at any step: the old or the new state is in force, never a mixture, and the call
//! can be repeated.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use ropewalk_base::{Lsn, Seq};
use ropewalk_store::{
    Checkpoint, Edit, Keyspace, KeyspaceOptions, Memtable, Store, StoreError, StoreOptions, get,
};
use ropewalk_vfs::{Env, File, LockGuard, Mapping, MemoryVfs, OpenMode, Vfs};

/// Lets so many changes through and refuses those after.
struct Failing {
    inner: Arc<MemoryVfs>,
    left: Arc<AtomicI64>,
    /// Only one change is refused, or all that follow, too.
    once: bool,
}

impl Failing {
    fn step(&self) -> io::Result<()> {
        step(&self.left, self.once)
    }
}

fn step(left: &AtomicI64, once: bool) -> io::Result<()> {
    match left.fetch_sub(1, Ordering::SeqCst) {
        1.. => Ok(()),
        n if once && n < 0 => Ok(()),
        _ => Err(io::ErrorKind::StorageFull.into()),
    }
}

impl Vfs for Failing {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        if mode == OpenMode::CreateNew {
            self.step()?;
        }
        let inner = self.inner.open(path, mode)?;
        Ok(Arc::new(FailingFile { inner, left: self.left.clone(), once: self.once }))
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.inner.list(dir)
    }
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.inner.create_dir_all(dir)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.inner.exists(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        self.inner.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        self.inner.remove(path)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.step()?;
        self.inner.sync_dir(dir)
    }
    fn lock(&self, path: &Path, holder: &str) -> io::Result<Box<dyn LockGuard>> {
        self.inner.lock(path, holder)
    }
}

struct FailingFile {
    inner: Arc<dyn File>,
    left: Arc<AtomicI64>,
    once: bool,
}

impl File for FailingFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_exact_at(buf, offset)
    }
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        // A write that fails may have written a part.
        step(&self.left, self.once).inspect_err(|_| {
            let _ = self.inner.write_all_at(&bytes[..bytes.len() / 2], offset);
        })?;
        self.inner.write_all_at(bytes, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        step(&self.left, self.once)?;
        self.inner.sync_data()
    }
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }
    fn map(&self) -> io::Result<Option<Mapping>> {
        self.inner.map()
    }
}

pub(crate) const DIR: &str = "/store";
const ROWS: u64 = 40;

pub(crate) fn options() -> StoreOptions {
    StoreOptions { run_bytes: 700, l0_runs_max: 1, ..StoreOptions::default() }
}

pub(crate) fn small_blocks() -> KeyspaceOptions {
    KeyspaceOptions { block_bytes: 512, ..KeyspaceOptions::default() }
}

/// One round: every row gets the value `round`, flushed with a checkpoint, then compacted.
pub(crate) fn round(store: &Store, keyspace: Keyspace, round: u64, retry: bool) -> Result<(), StoreError> {
    let memtable = Memtable::new();
    for row in 0..ROWS {
        memtable.put(&row.to_be_bytes(), Some(&[round as u8; 30]), Seq(round));
    }
    let again = |result: Result<(), StoreError>, f: &dyn Fn() -> Result<(), StoreError>| match result {
        Err(StoreError::Io { .. }) if retry => f(),
        other => other,
    };
    let flush = || {
        let new_l0 = store.write_memtable(keyspace, &memtable, &[Seq(round)])?;
        let checkpoint = Some(Checkpoint { lsn: Lsn(round * 10), seq: Seq(round), meta: vec![round as u8] });
        store.install(Edit { new_l0, checkpoint, flush: None }).map(|_| ())
    };
    again(flush(), &flush)?;
    let compact = || store.compact_all(&[Seq(round)]);
    again(compact(), &compact)
}

/// The round that is in force; panics when rows, checkpoint and files do not agree.
pub(crate) fn in_force(env: &Env) -> u64 {
    let store = Store::open(env, Path::new(DIR), options()).unwrap();
    assert_eq!(store.verify().unwrap().damage, []);
    let checkpoint = store.checkpoint();
    let round = checkpoint.seq.0;
    if round > 0 {
        assert_eq!((checkpoint.lsn, checkpoint.meta), (Lsn(round * 10), vec![round as u8]));
        let keyspace = store.keyspace("rows", small_blocks()).unwrap();
        for row in 0..ROWS {
            let found =
                get(&[], &store.view(), keyspace, &row.to_be_bytes(), Seq::MAX).unwrap().unwrap().to_vec();
            assert_eq!(found, vec![round as u8; 30]);
        }
    }
    let named: u64 = store.stats().keyspaces.iter().flat_map(|k| &k.levels).map(|l| l.runs).sum();
    let files = env.vfs.list(Path::new(DIR)).unwrap();
    assert_eq!(files.iter().filter(|n| n.ends_with(".run")).count() as u64, named, "{files:?}");
    round
}

fn failing(after: i64, once: bool) -> (Env, Env) {
    let inner = Arc::new(MemoryVfs::default());
    let below = Env { vfs: inner.clone(), ..Env::memory() };
    let left = Arc::new(AtomicI64::new(after));
    (Env { vfs: Arc::new(Failing { inner, left, once }), ..Env::memory() }, below)
}

#[test]
fn a_crash_at_every_step_leaves_a_whole_state() {
    let mut complete = false;
    for after in 0.. {
        let (env, below) = failing(after, false);
        let mut acknowledged = 0;
        let run = || -> Result<(), StoreError> {
            let store = Store::open(&env, Path::new(DIR), options())?;
            let keyspace = store.keyspace("rows", small_blocks())?;
            for number in 1..=4 {
                round(&store, keyspace, number, false)?;
                acknowledged = number;
            }
            Ok(())
        };
        let finished = { run }().is_ok();
        let found = in_force(&below);
        assert!(
            found == acknowledged || found == acknowledged + 1,
            "after {after}: {found} of {acknowledged}"
        );
        if finished {
            complete = true;
            assert!(after > 50);
            break;
        }
    }
    assert!(complete);
}

#[test]
fn a_failure_at_every_step_can_be_retried() {
    for after in 0..400 {
        let (env, below) = failing(after, true);
        let store = match Store::open(&env, Path::new(DIR), options()) {
            Ok(store) => store,
            Err(_) => Store::open(&env, Path::new(DIR), options()).unwrap(),
        };
        let keyspace = store
            .keyspace("rows", small_blocks())
            .or_else(|_| store.keyspace("rows", small_blocks()))
            .unwrap();
        for number in 1..=4 {
            round(&store, keyspace, number, true).unwrap();
            let found =
                get(&[], &store.view(), keyspace, &7_u64.to_be_bytes(), Seq::MAX).unwrap().unwrap().to_vec();
            assert_eq!(found, vec![number as u8; 30]);
        }
        drop(store);
        assert_eq!(in_force(&below), 4);
    }
}
