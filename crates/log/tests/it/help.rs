//! Test helpers: a reproducible environment, short calls, and copies of a disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ropewalk_base::{Lsn, Seq};
use ropewalk_log::{CommitLog, LocalLog, LogError, LogOptions, LogReader, Record, Recovery};
use ropewalk_vfs::{Env, ManualClock, MemoryVfs, OpenMode, SeededRandom, Vfs};

pub(crate) const SMALL: LogOptions =
    LogOptions { segment_bytes_first: 4096, segment_bytes_max: 16384, spare_segments_max: 2 };

/// A number and its payload.
pub(crate) type Commit = (u64, Vec<u8>);

pub(crate) fn dir() -> PathBuf {
    PathBuf::from("/db/log")
}

pub(crate) fn env_on(vfs: Arc<dyn Vfs>) -> Env {
    Env { vfs, clock: Arc::new(ManualClock::default()), random: Arc::new(SeededRandom::new(1)) }
}

pub(crate) fn memory() -> Env {
    env_on(Arc::new(MemoryVfs::default()))
}

pub(crate) struct Opened {
    pub(crate) log: LocalLog,
    pub(crate) replayed: Vec<Commit>,
    pub(crate) recovery: Recovery,
}

pub(crate) fn open_from(env: &Env, dir: &Path, from: Lsn, seq: Seq) -> Result<Opened, LogError> {
    let mut replayed = Vec::new();
    let (log, recovery) = LocalLog::open(env, dir, SMALL, from, seq, &mut |found| {
        replayed.push((found.seq.0, found.payload.to_vec()));
        Ok(())
    })?;
    assert_eq!(recovery.records, replayed.len() as u64);
    assert_eq!((log.flushed(), log.durable()), (log.tail(), log.tail()), "what was replayed is durable");
    Ok(Opened { log, replayed, recovery })
}

pub(crate) fn open(env: &Env) -> Opened {
    open_from(env, &dir(), Lsn::ZERO, Seq::ZERO).unwrap()
}

/// Why the log in `dir()` cannot be opened.
pub(crate) fn refusal(env: &Env) -> String {
    open_from(env, &dir(), Lsn::ZERO, Seq::ZERO).err().expect("a refusal").to_string()
}

/// Appends one commit at the tail.
pub(crate) fn append(log: &LocalLog, seq: u64, payload: &[u8]) -> Lsn {
    log.append(&[Record { seq: Seq(seq), payload }], log.tail()).unwrap()
}

/// Appends and syncs one commit at the tail.
pub(crate) fn commit(log: &LocalLog, seq: u64, payload: &[u8]) -> Lsn {
    let tail = append(log, seq, payload);
    assert_eq!(log.barrier().unwrap(), tail);
    tail
}

pub(crate) fn read_all(log: &LocalLog, from: Lsn) -> Vec<Commit> {
    rest_of(&mut *log.read(from).unwrap())
}

pub(crate) fn rest_of(reader: &mut dyn LogReader) -> Vec<Commit> {
    let mut commits = Vec::new();
    while let Some(found) = reader.next().unwrap() {
        commits.push((found.seq.0, found.payload.to_vec()));
    }
    commits
}

pub(crate) fn read_file(env: &Env, path: &Path) -> Vec<u8> {
    let file = env.vfs.open(path, OpenMode::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

pub(crate) fn write_file(env: &Env, path: &Path, bytes: &[u8]) {
    if env.vfs.exists(path).unwrap() {
        env.vfs.remove(path).unwrap();
    }
    env.vfs.open(path, OpenMode::CreateNew).unwrap().write_all_at(bytes, 0).unwrap();
}

pub(crate) fn flip(env: &Env, path: &Path, offset: u64) {
    let file = env.vfs.open(path, OpenMode::ReadWrite).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], offset).unwrap();
}

/// Another disk with the same files in `dir()`, as a crash that loses nothing would leave it.
pub(crate) fn copy(env: &Env) -> Env {
    let other = memory();
    other.vfs.create_dir_all(&dir()).unwrap();
    for name in env.vfs.list(&dir()).unwrap() {
        write_file(&other, &dir().join(&name), &read_file(env, &dir().join(&name)));
    }
    other
}

/// Paths of the segments in use, oldest first.
pub(crate) fn segments(env: &Env) -> Vec<PathBuf> {
    let names = env.vfs.list(&dir()).unwrap();
    names.iter().filter(|n| n.starts_with("log-") && n.ends_with(".seg")).map(|n| dir().join(n)).collect()
}

/// A payload that can be recognised.
pub(crate) fn payload(seq: u64, len: usize) -> Vec<u8> {
    (0..len).map(|i| (seq as usize * 31 + i * 7 + 1) as u8).collect()
}
