//! Files, directories, time and randomness as traits, so that the complete engine runs the same on a real
//! disk, in memory, and on a simulated disk that fails. The only crate that touches `std::fs` and
//! `std::time`.
//!
//!   Env { vfs, clock, random } ─▶ real: [`Env::real`]   in memory: [`Env::memory`]   simulated: [`FaultyVfs`]
//!
//! Guarantees to a caller; the simulator provides nothing beyond them:
//! - bytes written survive a crash only after [`File::sync_data`] returned Ok; unsynced bytes may survive, be
//!   lost or be torn at 512 bytes, in any order;
//! - a created, renamed or removed name survives only after [`Vfs::sync_dir`] of its directory.

mod allowance;
mod faulty;
mod memory;
mod real;

use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use allowance::process_memory;
pub use faulty::{DiskOp, Faults, FaultyVfs};
pub use memory::{ManualClock, MemoryVfs, SeededRandom};
pub use real::{RealClock, RealRandom, RealVfs};

/// Everything the engine takes from its environment. Cheap to clone.
#[derive(Clone)]
pub struct Env {
    /// Files and directories.
    pub vfs: Arc<dyn Vfs>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub random: Arc<dyn Random>,
}

impl Env {
    /// The machine's own disk, clock and randomness.
    pub fn real() -> Self {
        Self { vfs: Arc::new(RealVfs), clock: Arc::new(RealClock::default()), random: Arc::new(RealRandom) }
    }

    /// Files in memory, with the machine's clock and randomness. Nothing survives the last clone.
    pub fn memory() -> Self {
        Self { vfs: Arc::new(MemoryVfs::default()), ..Self::real() }
    }
}

impl std::fmt::Debug for Env {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Env")
    }
}

/// How [`Vfs::open`] opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing file, for reading.
    Read,
    /// An existing file, for reading and writing.
    ReadWrite,
    /// A new file for reading and writing; fails when the name exists.
    CreateNew,
}

/// A directory tree.
pub trait Vfs: Send + Sync {
    /// Opens a file.
    ///
    /// # Errors
    /// As `std::fs::OpenOptions::open`.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>>;
    /// File names (not paths) in `dir`, sorted.
    ///
    /// # Errors
    /// As `std::fs::read_dir`.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Creates `dir` and its parents.
    ///
    /// # Errors
    /// As `std::fs::create_dir_all`; created directories are accessible to their owner only.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;
    /// True when the file or directory exists.
    ///
    /// # Errors
    /// The check failed.
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// True when the last part of `path` is a symbolic link. The default returns false.
    ///
    /// # Errors
    /// The check failed.
    fn is_link(&self, _path: &Path) -> io::Result<bool> {
        Ok(false)
    }
    /// Renames a file, replacing the target, or a directory with its contents, to a name that is free.
    ///
    /// # Errors
    /// As `std::fs::rename`.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Gives a file a second name, which must be free. Both names are of one file from then on.
    ///
    /// # Errors
    /// As `std::fs::hard_link`: among others where the two names lie on different file systems. By default
    /// [`io::ErrorKind::Unsupported`].
    fn hard_link(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Removes a file.
    ///
    /// # Errors
    /// As `std::fs::remove_file`.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    ///
    /// # Errors
    /// As `std::fs::remove_dir`. By default [`io::ErrorKind::Unsupported`].
    fn remove_dir(&self, _dir: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Makes the names in `dir` durable.
    ///
    /// # Errors
    /// The directory cannot be synced.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Takes the exclusive lock file at `path`, writing `holder` into it; held until the guard is dropped.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when another process or opener holds it; the error's text is the holder's.
    fn lock(&self, path: &Path, holder: &str) -> io::Result<Box<dyn LockGuard>>;
    /// Bytes of physical memory, or `None` when unknown.
    fn physical_memory(&self) -> Option<u64> {
        None
    }
}

/// Holds a lock file until dropped.
pub trait LockGuard: Send + Sync {}

/// An open file. All methods take `&self`; readers and the writer may call at once.
pub trait File: Send + Sync {
    /// Reads exactly `buf.len()` bytes at `offset`.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] when the file ends before that; other I/O errors.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes all of `bytes` at `offset`, growing the file if needed.
    ///
    /// # Errors
    /// I/O errors; part of the bytes may have been written.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Returns when every byte written before the call is durable (`fdatasync`).
    ///
    /// # Errors
    /// I/O errors. After one the state of unsynced bytes is unknown and a second sync proves nothing.
    fn sync_data(&self) -> io::Result<()>;
    /// Length in bytes.
    ///
    /// # Errors
    /// I/O errors.
    fn len(&self) -> io::Result<u64>;
    /// True when the length is zero.
    ///
    /// # Errors
    /// I/O errors.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Cuts or zero-extends the file.
    ///
    /// # Errors
    /// I/O errors.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Maps the whole file read-only; `None` where mapping is not offered and `read_exact_at` must be used. The file
    /// must not be cut or overwritten while the mapping lives.
    ///
    /// # Errors
    /// I/O errors.
    fn map(&self) -> io::Result<Option<Mapping>>;
}

/// A whole file, read-only, in memory.
pub struct Mapping(MappingKind);

enum MappingKind {
    Mapped(memmap2::Mmap),
    Heap(Arc<[u8]>),
}

impl Mapping {
    /// A mapping of heap bytes, for file systems that live in memory.
    pub fn from_heap(bytes: Arc<[u8]>) -> Self {
        Self(MappingKind::Heap(bytes))
    }
}

impl Deref for Mapping {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            MappingKind::Mapped(map) => map,
            MappingKind::Heap(bytes) => bytes,
        }
    }
}

impl std::fmt::Debug for Mapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mapping({} bytes)", self.len())
    }
}

/// Time, real or simulated.
pub trait Clock: Send + Sync {
    /// Microseconds since 1970-01-01 UTC; may jump either way.
    fn wall_micros(&self) -> i64;
    /// Nanoseconds since some start; never goes back.
    fn monotonic_nanos(&self) -> u64;
    /// Blocks the calling thread.
    fn sleep(&self, duration: Duration);
    /// The [`Clock::monotonic_nanos`] at which `duration` will have passed; the largest number when that is beyond it, which
    /// a duration without end, such as [`Duration::MAX`], is.
    fn deadline(&self, duration: Duration) -> u64 {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.monotonic_nanos().saturating_add(nanos)
    }
}

/// Randomness, real or seeded.
pub trait Random: Send + Sync {
    /// 64 random bits.
    fn next_u64(&self) -> u64;
}

/// Creates `dir` and its parents so that they survive a crash: a new directory is durable only when its
/// parent is synced. Existing directories are synced, too, because the process that made them may have died,
/// or failed, before that.
///
/// # Errors
/// As [`Vfs::create_dir_all`] and [`Vfs::sync_dir`]. Above existing directories, a directory that may not be
/// opened, or that nothing can be written to, is skipped.
pub fn create_dir_durably(vfs: &dyn Vfs, dir: &Path) -> io::Result<()> {
    let above = |dir: &Path| -> Option<PathBuf> {
        let parent = dir.parent().filter(|_| !dir.as_os_str().is_empty())?;
        Some(if parent.as_os_str().is_empty() { PathBuf::from(".") } else { parent.to_owned() })
    };
    let (mut made, mut found) = (Vec::new(), Vec::new());
    for ancestor in dir.ancestors() {
        let is_there = !found.is_empty() || ancestor.as_os_str().is_empty() || vfs.exists(ancestor)?;
        if is_there { &mut found } else { &mut made }.extend(above(ancestor));
    }
    vfs.create_dir_all(dir)?;
    made.iter().try_for_each(|parent| vfs.sync_dir(parent))?;
    found.iter().try_for_each(|parent| match vfs.sync_dir(parent) {
        Err(error) if is_not_ours(&error) => Ok(()),
        synced => synced,
    })
}

fn is_not_ours(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// Joins a file name to a directory; a helper that keeps `std::path` noise out of the callers.
pub fn join(dir: &Path, name: &str) -> PathBuf {
    dir.join(name)
}
