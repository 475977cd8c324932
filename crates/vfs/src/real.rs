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

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{Clock, File, LockGuard, Mapping, MappingKind, OpenMode, Random, Vfs};

/// Mode for created files and directories: owner-only, because they hold user data and password verifiers.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
/// Size of a huge page, which the kernel maps at once where it can.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Opens something. A process at its soft limit of open files raises that to the hard limit and tries again: a database has
/// a file for each 64 MiB, and the usual soft limit of 1024 is a relic of `select`, which nothing here uses.
///
/// # Errors
/// As `open`; at the hard limit the error says what the limit is.
fn within_file_limit<T>(open: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let at_limit = |error: &io::Error| error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error());
    let opened = open();
    if !opened.as_ref().err().is_some_and(at_limit) {
        return opened;
    }
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised =
        current != maximum && setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    let opened = if raised { open() } else { opened };
    opened.map_err(|error| {
        let limit = if raised { maximum } else { current };
        match limit.filter(|_| at_limit(&error)) {
            Some(limit) => io::Error::new(
                error.kind(),
                format!("{error}; the process may have {limit} files open (ulimit -n)"),
            ),
            None => error,
        }
    })
}

/// A symbolic link in a database directory is refused: it could lead to any file of the user.
const NO_FOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();

/// `std::fs` with `fdatasync`.
#[derive(Debug, Clone, Copy)]
pub struct RealVfs;

impl Vfs for RealVfs {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut options = fs::OpenOptions::new();
        options.read(true).custom_flags(NO_FOLLOW);
        match mode {
            OpenMode::Read => {}
            OpenMode::ReadWrite => {
                options.write(true);
            }
            OpenMode::CreateNew => {
                options.write(true).create_new(true).mode(FILE_MODE);
            }
        }
        Ok(Arc::new(RealFile(within_file_limit(|| options.open(path))?)))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in within_file_limit(|| fs::read_dir(dir))? {
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

    fn is_link(&self, path: &Path) -> io::Result<bool> {
        match fs::symlink_metadata(path) {
            Ok(found) => Ok(found.is_symlink()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
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
        within_file_limit(|| fs::File::open(dir))?.sync_all()
    }

    fn lock(&self, path: &Path, holder: &str) -> io::Result<Box<dyn LockGuard>> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE).custom_flags(NO_FOLLOW);
        let mut file = options.open(path)?;
        if !file.metadata()?.is_file() {
            let what = format!("{} is not a regular file", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
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

    /// Releases the pages of the range, and of the huge pages around it, from this process; they stay in the
    /// page cache and come back when touched. Bounds the resident size of a long scan.
    pub fn release(&self, offset: usize, len: usize) {
        if let MappingKind::Mapped(map) = &self.0 {
            // Whole huge pages: releasing a part would split the mapping of the rest into small pages.
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

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: &str = "ROPEWALK_TEST_FILE_LIMIT";

    /// The limits count for a whole process, so the test runs itself in a separate process.
    #[test]
    fn opening_at_the_soft_limit_raises_it_and_at_the_hard_limit_names_it() {
        if let Ok(hard) = std::env::var(LIMIT) {
            return open_files_in_a_process_limited_to(hard.parse().unwrap());
        }
        for hard in ["400", "40"] {
            let name = "real::tests::opening_at_the_soft_limit_raises_it_and_at_the_hard_limit_names_it";
            let mut run = std::process::Command::new(std::env::current_exe().unwrap());
            let done = run.args(["--exact", name, "--nocapture"]).env(LIMIT, hard).output().unwrap();
            let said = String::from_utf8_lossy(&done.stdout).into_owned();
            assert!(done.status.success() && said.contains("1 passed"), "{said}{:?}", done.stderr);
        }
    }

    fn open_files_in_a_process_limited_to(hard: u64) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        drop(RealVfs.open(&path, OpenMode::CreateNew).unwrap());
        setrlimit(Resource::Nofile, Rlimit { current: Some(40), maximum: Some(hard) }).unwrap();
        let opened: io::Result<Vec<_>> = (0..100).map(|_| RealVfs.open(&path, OpenMode::Read)).collect();
        match opened {
            Ok(_) => assert!(hard > 100),
            Err(error) => assert!(hard == 40 && error.to_string().contains("40 files"), "{error}"),
        }
    }

    #[test]
    fn deadline_of_a_duration_without_end_is_the_last_moment() {
        let clock = RealClock::default();
        assert_eq!(clock.deadline(Duration::MAX), u64::MAX);
        assert_eq!(clock.deadline(Duration::from_nanos(u64::MAX)), u64::MAX);
        let now = clock.monotonic_nanos();
        assert!((now + 1_000_000..u64::MAX / 2).contains(&clock.deadline(Duration::from_millis(1))));
    }
}
