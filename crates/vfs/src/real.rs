//! The machine's own disk, clock and randomness.
//!
//! This file may use `unsafe` for one thing: mapping a file that the store has sealed. A mapping of a file that is cut
//! under it raises SIGBUS; the store never cuts or overwrites a run once it is installed.
#![allow(unsafe_code)]

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::{Clock, File, LockGuard, Mapping, MappingKind, OpenMode, Random, Vfs};

/// Who may do what with what is made here: its owner alone, since a database holds data of users and what proves their passwords.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
/// What the kernel maps at once where it can.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// `std::fs` with `fdatasync`.
#[derive(Debug, Clone, Copy)]
pub struct RealVfs;

impl Vfs for RealVfs {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut options = fs::OpenOptions::new();
        options.read(true);
        match mode {
            OpenMode::Read => {}
            OpenMode::ReadWrite => {
                options.write(true);
            }
            OpenMode::CreateNew => {
                options.write(true).create_new(true).mode(FILE_MODE);
            }
        }
        Ok(Arc::new(RealFile(options.open(path)?)))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        if let Some(parent) = dir.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        fs::exists(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        fs::remove_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        fs::File::open(dir)?.sync_all()
    }

    fn lock(&self, path: &Path, holder: &str) -> io::Result<Box<dyn LockGuard>> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE);
        let mut file = options.open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                return Err(io::Error::new(
                    io::ErrorKind::WouldBlock,
                    fs::read_to_string(path).unwrap_or_default(),
                ));
            }
            Err(fs::TryLockError::Error(error)) => return Err(error),
        }
        file.set_len(0)?;
        file.write_all(holder.as_bytes())?;
        Ok(Box::new(RealLock { _file: file }))
    }

    fn physical_memory(&self) -> Option<u64> {
        let info = fs::read_to_string("/proc/meminfo").ok()?;
        let line = info.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
        Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? << 10)
    }
}

/// The operating system releases the lock with the file.
struct RealLock {
    _file: fs::File,
}

impl LockGuard for RealLock {}

struct RealFile(fs::File);

impl File for RealFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buf, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn map(&self) -> io::Result<Option<Mapping>> {
        if self.len()? == 0 {
            return Ok(Some(Mapping::from_heap(Arc::from([]))));
        }
        // SAFETY: the caller promises (trait contract) not to cut or overwrite the file while the mapping lives; the
        // directory lock keeps other Ropewalk processes away.
        let map = unsafe { memmap2::Mmap::map(&self.0)? };
        Ok(Some(Mapping(MappingKind::Mapped(map))))
    }
}

impl Mapping {
    /// Puts the whole mapping into the page table, so that the first touch of each page costs no fault. Meant for files
    /// whose bytes are in memory, as those just written; otherwise it reads the file. About 20 µs per MiB at most.
    pub fn populate(&self) {
        if let MappingKind::Mapped(map) = &self.0 {
            // A hint: a kernel that does not know it (before Linux 5.14) serves the same bytes, a fault at a time.
            #[cfg(target_os = "linux")]
            let _ = map.advise(memmap2::Advice::PopulateRead);
            #[cfg(not(target_os = "linux"))]
            let _ = map;
        }
    }

    /// Lets go of the pages of the range and of what shares a huge page with it, in this process; they stay in the page
    /// cache and come back when touched.
    /// Keeps the resident size of a long scan bounded.
    pub fn release(&self, offset: usize, len: usize) {
        if let MappingKind::Mapped(map) = &self.0 {
            // Whole huge pages: letting go of a part would split the mapping of the rest into small pages.
            let start = offset & !(HUGE_PAGE_BYTES - 1);
            let end = (offset + len).next_multiple_of(HUGE_PAGE_BYTES).min(map.len());
            if start < end {
                // SAFETY: a shared read-only file mapping reads back the same bytes after MADV_DONTNEED.
                let _ = unsafe {
                    map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, end - start)
                };
            }
        }
    }
}

/// The machine's clocks.
#[derive(Debug, Clone, Copy)]
pub struct RealClock {
    start: Instant,
}

impl Default for RealClock {
    fn default() -> Self {
        Self { start: Instant::now() }
    }
}

impl Clock for RealClock {
    fn wall_micros(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => since.as_micros() as i64,
            Err(before) => -(before.duration().as_micros() as i64),
        }
    }

    fn monotonic_nanos(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

/// Randomness from the standard library's per-process hash keys; for ids and jitter, never for secrets.
#[derive(Debug, Clone, Copy)]
pub struct RealRandom;

impl Random for RealRandom {
    fn next_u64(&self) -> u64 {
        use std::hash::{BuildHasher, Hasher};
        let mut hasher = std::hash::RandomState::new().build_hasher();
        hasher.write_u128(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos()));
        hasher.finish()
    }
}
