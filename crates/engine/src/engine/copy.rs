//! The local copy of a node's log, read while no engine has it open.

use std::path::{Path, PathBuf};

use ropewalk_base::Seq;
use ropewalk_log::shared::SavedPlace;
use ropewalk_log::{CommitLog, LocalLog, LogOptions, LogReader};
use ropewalk_vfs::{Env, LockGuard};

use crate::engine::cluster::{NEW_PLACE, PLACE, read_place};
use crate::engine::salvage::log_and_checkpoint;
use crate::engine::{io, lock};
use crate::error::Result;

/// The commits that a database has, without opening its engine: no commit is written, applied or made visible.
///
/// Holds the lock of the directory.
pub struct LocalCopy {
    env: Env,
    dir: PathBuf,
    log: LocalLog,
    last: Seq,
    place: Option<SavedPlace>,
    _lock: Box<dyn LockGuard>,
}

impl LocalCopy {
    /// Opens the copy in `dir`; `None` when there is no database. Reads and checks every record after the checkpoint, and
    /// cuts a torn one at the end, as an opening of the engine does.
    ///
    /// # Errors
    /// [`crate::EngineError::Locked`]; a damaged log or manifest, with file and offset; a newer format; I/O.
    pub fn open(env: &Env, dir: &Path) -> Result<Option<Self>> {
        let store = dir.join("store");
        if !env.vfs.exists(&store).map_err(io("look for", &store))? {
            return Ok(None);
        }
        let lock = lock(env, dir)?;
        let Some((log, checkpoint)) = log_and_checkpoint(env, dir)? else { return Ok(None) };
        let mut last = checkpoint.seq;
        let opened =
            LocalLog::open(env, &log, LogOptions::default(), checkpoint.lsn, checkpoint.seq, &mut |found| {
                last = found.seq;
                Ok(())
            });
        let (log, _) = opened?;
        let place = read_place(env, dir)?;
        Ok(Some(Self { env: env.clone(), dir: dir.to_owned(), log, last, place, _lock: lock }))
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The newest commit.
    pub fn last(&self) -> Seq {
        self.last
    }

    /// Where the node was in the shared log, as it has noted it.
    pub fn place(&self) -> Option<&SavedPlace> {
        self.place.as_ref()
    }

    /// A reader of the records from commit `from` on, or from the oldest one that there is, and a commit before which it
    /// begins: `from` is there if that is less.
    pub fn read(&self, from: Seq) -> (Seq, Box<dyn LogReader>) {
        self.log.read_near(from)
    }

    /// Forgets the place in the shared log: the node that opens the database begins with the oldest entry of its shared log,
    /// whichever that is.
    ///
    /// # Errors
    /// I/O.
    pub fn forget_place(&mut self) -> Result<()> {
        let vfs = &*self.env.vfs;
        for path in [self.dir.join(NEW_PLACE), self.dir.join(PLACE)] {
            if vfs.exists(&path).map_err(io("look for", &path))? {
                vfs.remove(&path).map_err(io("remove", &path))?;
            }
        }
        vfs.sync_dir(&self.dir).map_err(io("sync directory", &self.dir))?;
        self.place = None;
        Ok(())
    }
}

impl core::fmt::Debug for LocalCopy {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "LocalCopy({} up to commit {})", self.dir.display(), self.last)
    }
}
