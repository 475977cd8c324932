//! Spare segments: files of written zeros, or trimmed segments, waiting to become the next segment.
//!
//! ```text
//! spare-N.tmp ──zeros, sync, rename──▶ spare-N.seg ──header, sync, rename──▶ log-LSN.seg ──trim: rename──▶ spare-M.seg
//! ```
//!
//! A file gets its next name only after everything the name promises is durable, and the directory is synced before
//! anything relies on the name. So a crash leaves a file under its old or its new name, and both are true.
//!
//! Zeros are written, not reserved: writing into blocks that were only reserved makes every later sync also change the
//! file's extent tree, which costs more than the data.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ropewalk_base::sync::Mutex;
use ropewalk_vfs::{Env, File, OpenMode};

use crate::error::{Result, io};
use crate::format::SegmentHeader;
use crate::segment::Segment;

/// Bytes of zeros written at once.
static ZEROS: [u8; 256 << 10] = [0; 256 << 10];

/// A prepared file.
pub(crate) struct Spare {
    path: PathBuf,
    file: Arc<dyn File>,
    bytes: u64,
}

impl Spare {
    /// Writes into a file that is not yet a segment.
    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.file.write_all_at(bytes, offset).map_err(io("write", &self.path))
    }
}

/// The spares of one log directory.
pub(crate) struct Pool {
    env: Env,
    dir: PathBuf,
    spares_max: usize,
    spares: Mutex<Vec<Spare>>,
    next_number: AtomicU64,
}

/// The number in a spare's name, finished or not.
fn number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("spare-")?;
    digits.strip_suffix(".seg").or_else(|| digits.strip_suffix(".tmp"))?.parse().ok()
}

impl Pool {
    /// Adopts the spares among `names` and removes those that were never finished or are too many.
    pub(crate) fn open(env: &Env, dir: PathBuf, names: &[String], spares_max: usize) -> Result<Self> {
        let next_number = names.iter().filter_map(|name| number(name)).max().map_or(0, |n| n + 1);
        let next_number = AtomicU64::new(next_number);
        let pool = Self { env: env.clone(), dir, spares_max, spares: Mutex::default(), next_number };
        for name in names.iter().filter(|name| number(name).is_some()) {
            let path = pool.dir.join(name);
            if name.ends_with(".tmp") || pool.count() >= spares_max {
                pool.env.vfs.remove(&path).map_err(io("remove", &path))?;
                continue;
            }
            let file = pool.env.vfs.open(&path, OpenMode::ReadWrite).map_err(io("open", &path))?;
            let bytes = file.len().map_err(io("measure", &path))?;
            pool.spares.lock().push(Spare { path, file, bytes });
        }
        Ok(pool)
    }

    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    pub(crate) fn count(&self) -> usize {
        self.spares.lock().len()
    }

    /// True when a spare of at least `bytes` is ready.
    pub(crate) fn has(&self, bytes: u64) -> bool {
        self.spares.lock().iter().any(|spare| spare.bytes >= bytes)
    }

    /// The smallest spare of at least `bytes`.
    pub(crate) fn take(&self, bytes: u64) -> Option<Spare> {
        let mut spares = self.spares.lock();
        let fitting = spares.iter().enumerate().filter(|(_, spare)| spare.bytes >= bytes);
        let (index, _) = fitting.min_by_key(|(_, spare)| spare.bytes)?;
        Some(spares.swap_remove(index))
    }

    /// Makes a spare of `bytes`. Long: writes and syncs that many zeros. On failure no file is left.
    pub(crate) fn make(&self, bytes: u64) -> Result<Spare> {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let tmp = self.dir.join(format!("spare-{number}.tmp"));
        let path = self.dir.join(format!("spare-{number}.seg"));
        let made = self.write_zeros(&tmp, bytes).and_then(|file| {
            self.env.vfs.rename(&tmp, &path).map_err(io("rename", &tmp))?;
            self.sync_names()?;
            Ok(file)
        });
        match made {
            Ok(file) => Ok(Spare { path, file, bytes }),
            Err(error) => {
                // The disk may be full or broken; the next open removes what cannot be removed now.
                let _ = self.env.vfs.remove(&tmp);
                Err(error)
            }
        }
    }

    fn write_zeros(&self, path: &Path, bytes: u64) -> Result<Arc<dyn File>> {
        let file = self.env.vfs.open(path, OpenMode::CreateNew).map_err(io("create", path))?;
        let mut at = 0;
        while at < bytes {
            let len = (bytes - at).min(ZEROS.len() as u64);
            let zeros = ZEROS.get(..len as usize).unwrap_or(&ZEROS);
            file.write_all_at(zeros, at).map_err(io("preallocate", path))?;
            at += len;
        }
        file.sync_data().map_err(io("sync", path))?;
        Ok(file)
    }

    /// Stores a spare for later, or removes it when there are enough.
    pub(crate) fn put(&self, spare: Spare) -> Result<()> {
        let surplus = {
            let mut spares = self.spares.lock();
            spares.push(spare);
            // Remove the smallest: requested sizes only grow.
            let smallest =
                spares.iter().enumerate().min_by_key(|(_, spare)| spare.bytes).map(|(index, _)| index);
            smallest.filter(|_| spares.len() > self.spares_max).map(|index| spares.swap_remove(index))
        };
        surplus.map_or(Ok(()), |spare| self.env.vfs.remove(&spare.path).map_err(io("remove", &spare.path)))
    }

    /// Returns all spares to the file system.
    pub(crate) fn clear(&self) -> Result<()> {
        while let Some(spare) = { self.spares.lock().pop() } {
            self.env.vfs.remove(&spare.path).map_err(io("remove", &spare.path))?;
        }
        Ok(())
    }

    /// Turns a spare into the segment that starts at `start`, durably.
    pub(crate) fn install(&self, spare: Spare, header: SegmentHeader) -> Result<Segment> {
        let header = SegmentHeader { bytes: spare.bytes, ..header };
        let path = self.dir.join(Segment::name(header.start));
        spare.file.write_all_at(&header.encode(), 0).map_err(io("write", &spare.path))?;
        spare.file.sync_data().map_err(io("sync", &spare.path))?;
        self.env.vfs.rename(&spare.path, &path).map_err(io("rename", &spare.path))?;
        self.sync_names()?;
        Ok(Segment::new(path, spare.file, header))
    }

    /// The next segment: a spare of at least `bytes`, or a new file when none is ready.
    pub(crate) fn next(&self, bytes: u64, header: SegmentHeader) -> Result<Segment> {
        let spare = self.take(bytes).map_or_else(|| self.make(bytes), Ok)?;
        debug_assert!(spare.bytes >= bytes, "a spare of {} bytes for a segment of {bytes}", spare.bytes);
        self.install(spare, header)
    }

    /// Removes a segment's name from the log; its file becomes a spare if segments of its size will be
    /// needed. Neither is durable, nor the spare ready, before [`Pool::sync_names`].
    pub(crate) fn retire(&self, segment: &Segment, useful: RangeInclusive<u64>) -> Result<Option<Spare>> {
        let bytes = segment.header.bytes;
        if !useful.contains(&bytes) {
            self.env.vfs.remove(&segment.path).map_err(io("remove", &segment.path))?;
            return Ok(None);
        }
        let path = self.dir.join(format!("spare-{}.seg", self.next_number.fetch_add(1, Ordering::Relaxed)));
        self.env.vfs.rename(&segment.path, &path).map_err(io("rename", &segment.path))?;
        Ok(Some(Spare { path, file: segment.file.clone(), bytes }))
    }

    /// Makes every name in the directory durable.
    pub(crate) fn sync_names(&self) -> Result<()> {
        self.env.vfs.sync_dir(&self.dir).map_err(io("sync directory", &self.dir))
    }
}
