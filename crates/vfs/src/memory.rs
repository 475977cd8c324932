//! Files in memory, and clock and randomness that a test sets. The same engine runs on it; nothing survives a drop.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use crate::{Clock, File, LockGuard, Mapping, OpenMode, Random, Vfs};

type Locks = Arc<Mutex<BTreeMap<PathBuf, String>>>;

/// A directory tree in memory.
#[derive(Default)]
pub struct MemoryVfs {
    tree: Mutex<Tree>,
    locks: Locks,
}

#[derive(Default)]
struct Tree {
    files: BTreeMap<PathBuf, Arc<MemoryFile>>,
    dirs: BTreeSet<PathBuf>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn not_found(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("no file {}", path.display()))
}

impl Vfs for MemoryVfs {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut tree = lock(&self.tree);
        if mode == OpenMode::CreateNew {
            if tree.files.contains_key(path) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            if !path.parent().is_some_and(|dir| tree.dirs.contains(dir)) {
                return Err(not_found(path));
            }
            tree.files.insert(path.to_owned(), Arc::default());
        }
        let file = tree.files.get(path).ok_or_else(|| not_found(path))?;
        Ok(file.clone())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let tree = lock(&self.tree);
        if !tree.dirs.contains(dir) {
            return Err(not_found(dir));
        }
        let inside = tree.files.keys().chain(&tree.dirs).filter(|p| p.parent() == Some(dir));
        let names = inside.filter_map(|p| p.file_name()?.to_str().map(str::to_owned));
        Ok(names.collect::<BTreeSet<_>>().into_iter().collect())
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        lock(&self.tree).dirs.extend(dir.ancestors().map(Path::to_owned));
        Ok(())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let tree = lock(&self.tree);
        Ok(tree.files.contains_key(path) || tree.dirs.contains(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let tree = &mut *lock(&self.tree);
        if tree.dirs.contains(from) {
            if tree.dirs.contains(to) || tree.files.contains_key(to) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            let moved = |path: &Path| Some(to.join(path.strip_prefix(from).ok()?));
            let renamed = |path: PathBuf| moved(&path).unwrap_or(path);
            tree.dirs = std::mem::take(&mut tree.dirs).into_iter().map(renamed).collect();
            let files = std::mem::take(&mut tree.files).into_iter();
            tree.files = files.map(|(path, file)| (renamed(path), file)).collect();
            return Ok(());
        }
        let file = tree.files.remove(from).ok_or_else(|| not_found(from))?;
        tree.files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        lock(&self.tree).files.remove(path).map(|_| ()).ok_or_else(|| not_found(path))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut tree = lock(&self.tree);
        let file = tree.files.get(from).cloned().ok_or_else(|| not_found(from))?;
        if tree.files.contains_key(to) || tree.dirs.contains(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if !to.parent().is_some_and(|dir| tree.dirs.contains(dir)) {
            return Err(not_found(to));
        }
        tree.files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        let mut tree = lock(&self.tree);
        if tree.files.keys().chain(&tree.dirs).any(|path| path.parent() == Some(dir)) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        if tree.dirs.remove(dir) { Ok(()) } else { Err(not_found(dir)) }
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        if lock(&self.tree).dirs.contains(dir) { Ok(()) } else { Err(not_found(dir)) }
    }

    fn lock(&self, path: &Path, holder: &str) -> io::Result<Box<dyn LockGuard>> {
        let mut locks = lock(&self.locks);
        if let Some(other) = locks.get(path) {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, other.clone()));
        }
        locks.insert(path.to_owned(), holder.to_owned());
        Ok(Box::new(MemoryLock { locks: self.locks.clone(), path: path.to_owned() }))
    }
}

struct MemoryLock {
    locks: Locks,
    path: PathBuf,
}

impl LockGuard for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        lock(&self.locks).remove(&self.path);
    }
}

#[derive(Default)]
struct MemoryFile {
    bytes: RwLock<Vec<u8>>,
}

impl File for MemoryFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let bytes = self.bytes.read().unwrap_or_else(PoisonError::into_inner);
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let end = start.checked_add(buf.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(bytes.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_all_at(&self, new: &[u8], offset: u64) -> io::Result<()> {
        let mut bytes = self.bytes.write().unwrap_or_else(PoisonError::into_inner);
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let end = start.checked_add(new.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes.get_mut(start..end).ok_or(io::ErrorKind::FileTooLarge)?.copy_from_slice(new);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.read().unwrap_or_else(PoisonError::into_inner).len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::FileTooLarge)?;
        self.bytes.write().unwrap_or_else(PoisonError::into_inner).resize(len, 0);
        Ok(())
    }

    fn map(&self) -> io::Result<Option<Mapping>> {
        Ok(None)
    }
}

/// A clock that is moved only by [`ManualClock::advance`], by a sleep, or by a wall-clock jump.
#[derive(Debug, Default)]
pub struct ManualClock {
    nanos: AtomicU64,
    wall_offset_micros: AtomicI64,
}

impl ManualClock {
    /// Moves both clocks forward.
    pub fn advance(&self, by: Duration) {
        self.nanos.fetch_add(by.as_nanos() as u64, Ordering::SeqCst);
    }

    /// Moves the wall clock alone, either way, as an administrator or a time daemon would.
    pub fn jump_wall_micros(&self, by: i64) {
        self.wall_offset_micros.fetch_add(by, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn wall_micros(&self) -> i64 {
        (self.nanos.load(Ordering::SeqCst) / 1000) as i64 + self.wall_offset_micros.load(Ordering::SeqCst)
    }

    fn monotonic_nanos(&self) -> u64 {
        self.nanos.load(Ordering::SeqCst)
    }

    fn sleep(&self, duration: Duration) {
        self.advance(duration);
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): the same seed gives the same numbers.
#[derive(Debug)]
pub struct SeededRandom(AtomicU64);

impl SeededRandom {
    /// Starts the sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }
}

impl Random for SeededRandom {
    fn next_u64(&self) -> u64 {
        let mut z =
            self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_behave_like_files() {
        let vfs = MemoryVfs::default();
        let dir = Path::new("/db");
        vfs.create_dir_all(dir).unwrap();
        let file = vfs.open(&dir.join("a"), OpenMode::CreateNew).unwrap();
        file.write_all_at(b"hello", 3).unwrap();
        assert_eq!(file.len().unwrap(), 8);
        let mut buf = [9; 5];
        file.read_exact_at(&mut buf, 0).unwrap();
        assert_eq!(&buf, b"\0\0\0he");
        assert_eq!(file.read_exact_at(&mut buf, 4).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        vfs.rename(&dir.join("a"), &dir.join("b")).unwrap();
        assert_eq!(vfs.list(dir).unwrap(), ["b"]);
        assert!(vfs.open(&dir.join("a"), OpenMode::Read).is_err());
    }

    #[test]
    fn directories_move_whole_and_links_are_one_file() {
        let vfs = MemoryVfs::default();
        let [old, new] = ["/old", "/new"].map(Path::new);
        vfs.create_dir_all(&old.join("in")).unwrap();
        let file = vfs.open(&old.join("in/a"), OpenMode::CreateNew).unwrap();
        vfs.hard_link(&old.join("in/a"), &old.join("b")).unwrap();
        file.write_all_at(b"both", 0).unwrap();
        vfs.rename(old, new).unwrap();
        assert_eq!(vfs.list(new).unwrap(), ["b", "in"]);
        for name in ["b", "in/a"] {
            assert_eq!(vfs.open(&new.join(name), OpenMode::Read).unwrap().len().unwrap(), 4, "{name}");
        }
        assert!(!vfs.exists(old).unwrap() && vfs.list(old).is_err());
        assert_eq!(vfs.remove_dir(&new.join("in")).unwrap_err().kind(), io::ErrorKind::DirectoryNotEmpty);
        vfs.remove(&new.join("in/a")).unwrap();
        vfs.remove_dir(&new.join("in")).unwrap();
        assert_eq!(vfs.open(&new.join("b"), OpenMode::Read).unwrap().len().unwrap(), 4);
    }

    #[test]
    fn a_lock_names_its_holder_until_dropped() {
        let vfs = MemoryVfs::default();
        let path = Path::new("/db/LOCK");
        let guard = vfs.lock(path, "pid 7").unwrap();
        let error = vfs.lock(path, "pid 8").err().unwrap();
        assert_eq!((error.kind(), error.to_string()), (io::ErrorKind::WouldBlock, "pid 7".to_owned()));
        drop(guard);
        vfs.lock(path, "pid 8").unwrap();
    }
}
