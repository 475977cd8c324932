//! A copy of the database while it is in use: the state that a crash at one instant would leave, in another
//! directory.
//!
//! ```text
//!  hold the log ─▶ pin the manifest, note the log's end ─▶ sync ─▶ copy the log ─▶ link or copy the runs ─▶ rename
//!                       └── one moment ──┘                                         TARGET.partial           TARGET
//! ```
//!
//! Invariants
//! 1. The log's end and the manifest are of the same instant: runs that no commit wrote ([`Engine::ingest`])
//!    are in the copy when a commit of its log needs them, and the record that names their owner is in the
//!    log when they are in the copy.
//! 2. `TARGET` is a complete copy or absent. An interrupted backup leaves `TARGET.partial`, which the next
//!    one removes.
//! 3. Commits, flushes and compaction do not wait; only the trimming of the log is postponed.
//! 4. The copy of a node ([`Engine::backup_node`]) has every commit before the place that it names: another node
//!    can begin from it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ropewalk_base::{Lsn, Seq};
use ropewalk_log::shared::SavedPlace;

use crate::commit::Core;
use crate::engine::cluster::{NEW_PLACE, PLACE, write_place};
use crate::engine::{Engine, lock};
use crate::error::{EngineError, Result};

/// A completed backup. Bytes are lengths of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backup {
    /// The last commit in the copy.
    pub seq: Seq,
    /// End of the copy's log.
    pub lsn: Lsn,
    /// Number of files.
    pub files: u64,
    /// Total length of the files.
    pub bytes: u64,
    /// Of these, bytes of files that the copy shares with the database: they take no extra space while both
    /// have them.
    pub linked_bytes: u64,
    /// Where a node that opens the copy continues to read the shared log. Only from [`Engine::backup_node`]; `None` also if
    /// the node has not read any entry yet.
    pub place: Option<SavedPlace>,
}

impl Engine {
    /// Copies the database to `target`, which must not exist, with every commit that was acknowledged before
    /// the call, each one completely. Opening the copy is an ordinary opening. The copy is durable when this
    /// returns.
    ///
    /// Cost: the log after the checkpoint is read and written; runs are hard-linked when `target` is on the
    /// same file system, otherwise they are read and written. Writers continue meanwhile.
    ///
    /// # Errors
    /// [`EngineError::BackupTarget`]; [`EngineError::Locked`] while another backup to `target` is made; I/O, among them a full
    /// disk; damage in the log. Then there is no `target`, unless making its name durable was what failed.
    pub fn backup(&self, target: &Path) -> Result<Backup> {
        self.copy(target, false)
    }

    /// As [`Engine::backup`], with this node's place in the shared log, from which a node that opens the copy continues. A
    /// plain backup is a separate database.
    ///
    /// # Errors
    /// As [`Engine::backup`].
    pub fn backup_node(&self, target: &Path) -> Result<Backup> {
        self.copy(target, true)
    }

    fn copy(&self, target: &Path, with_place: bool) -> Result<Backup> {
        let core = self.core();
        if let Some(error) = core.stopped() {
            return Err(error);
        }
        let refuse = |path: &Path, what| EngineError::BackupTarget { path: path.to_owned(), what };
        let Some(name) = target.file_name().and_then(|name| name.to_str()) else {
            return Err(refuse(target, "it does not end with a name in UTF-8"));
        };
        let vfs = &*core.env.vfs;
        if vfs.exists(target).map_err(failed("look for", target))? {
            return Err(refuse(target, "it exists already"));
        }
        let partial = target.with_file_name(format!("{name}.partial"));
        // Nothing is touched, not even by the lock, in a directory that is not a backup of ours.
        core.leftovers(&partial)?;
        let _lock = lock(&core.env, &partial)?;
        let made =
            core.clear(&partial).and_then(|()| core.copy_to(&partial, with_place)).and_then(|backup| {
                vfs.rename(&partial, target).map_err(failed("rename", &partial))?;
                Ok(backup)
            });
        let backup = made.inspect_err(|_| {
            // The space may be needed; the next backup to this target removes what cannot be removed now.
            let _ = core.clear(&partial).and_then(|()| core.remove_dirs(&partial));
        })?;
        let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        vfs.sync_dir(parent).map_err(failed("sync directory", parent))?;
        Ok(backup)
    }
}

fn failed(op: &'static str, path: &Path) -> impl FnOnce(io::Error) -> EngineError {
    move |source| EngineError::Io { op, path: path.to_owned(), source: Arc::new(source) }
}

/// True for the file names that a copy has in `log` and `store`.
fn is_ours(dir: &str, name: &str) -> bool {
    match dir {
        "log" => name.starts_with("log-") && name.ends_with(".seg"),
        _ => name.ends_with(".run") || name == "MANIFEST" || name == "MANIFEST.new",
    }
}

impl Core {
    /// Fills a directory that contains only the lock.
    fn copy_to(&self, dir: &Path, with_place: bool) -> Result<Backup> {
        let vfs = &*self.env.vfs;
        let [log_dir, store_dir] = ["log", "store"].map(|name| dir.join(name));
        for made in [&log_dir, &store_dir] {
            vfs.create_dir_all(made).map_err(failed("create directory", made))?;
        }
        // Before the log's end, which then has all commits of the entries up to this place.
        let node = self.replicated.as_ref().filter(|_| with_place);
        let place = node.and_then(|log| log.saved_place());
        let hold = self.log.hold();
        let (pin, upto) = self.store.pin(|| self.log.tail());
        self.log.barrier().inspect_err(|error| self.fail_by_log(error))?;
        assert!(
            pin.checkpoint().lsn <= upto && upto <= self.log.durable(),
            "a copy from {} up to {upto}, durable is {}",
            pin.checkpoint().lsn,
            self.log.durable()
        );
        let log = hold.copy_to(&log_dir, pin.checkpoint().lsn, upto)?;
        drop(hold);
        let store = pin.copy_to(&store_dir)?;
        let mut backup = Backup {
            seq: log.seq,
            lsn: upto,
            files: log.files + store.files,
            bytes: log.bytes + store.bytes,
            linked_bytes: store.linked_bytes,
            place: None,
        };
        if let Some(place) = place {
            backup.files += 1;
            backup.bytes += write_place(&self.env, dir, &place)?;
            backup.place = Some(place);
        }
        vfs.sync_dir(dir).map_err(failed("sync directory", dir))?;
        Ok(backup)
    }

    /// The files of an interrupted backup.
    fn leftovers(&self, partial: &Path) -> Result<Vec<PathBuf>> {
        let vfs = &*self.env.vfs;
        let list = |dir: &Path| {
            let exists = vfs.exists(dir).map_err(failed("look for", dir))?;
            if exists { vfs.list(dir).map_err(failed("list", dir)) } else { Ok(Vec::new()) }
        };
        let mut files = Vec::new();
        for name in list(partial)? {
            let dir = partial.join(&name);
            let inside = match name.as_str() {
                "LOCK" => continue,
                PLACE | NEW_PLACE => {
                    files.push(dir);
                    continue;
                }
                "log" | "store" => list(&dir)?,
                _ => vec![String::new()],
            };
            if !inside.iter().all(|file| is_ours(&name, file)) {
                let what =
                    "something that is no interrupted backup has the name that it has while it is made";
                return Err(EngineError::BackupTarget { path: dir, what });
            }
            files.extend(inside.into_iter().map(|file| dir.join(file)));
        }
        Ok(files)
    }

    fn clear(&self, partial: &Path) -> Result<()> {
        for file in self.leftovers(partial)? {
            self.env.vfs.remove(&file).map_err(failed("remove", &file))?;
        }
        Ok(())
    }

    /// Removes what [`Core::clear`] has left.
    fn remove_dirs(&self, partial: &Path) -> Result<()> {
        let vfs = &*self.env.vfs;
        let lock = partial.join("LOCK");
        if vfs.exists(&lock).map_err(failed("look for", &lock))? {
            vfs.remove(&lock).map_err(failed("remove", &lock))?;
        }
        for dir in [partial.join("log"), partial.join("store"), partial.to_owned()] {
            vfs.remove_dir(&dir).map_err(failed("remove directory", &dir))?;
        }
        Ok(())
    }
}
