//! Fills an empty directory from a checkpoint.
//!
//! ```text
//! DIR/joining/log/…, store/…, place  ─▶ all there and checked ─▶ DIR/joining/complete ─▶ DIR/log, DIR/place, DIR/store
//!      └ interrupted: what is right stays, the rest is downloaded again      └ interrupted: the moves are finished
//! ```
//!
//! A node whose place was trimmed away gives its copy up first: `DIR/discarding` says so until all of it is gone.

use core::ops::Range;
use std::path::{Path, PathBuf};

use ropewalk_base::Seq;
use ropewalk_log::LogId;
use ropewalk_log::shared::{EntryIndex, Place, SharedLog};
use ropewalk_vfs::{Env, File, LockGuard, OpenMode, Vfs, create_dir_durably};

use crate::checkpoint::error::{CheckpointError, io};
use crate::checkpoint::manifest::{Block, Manifest, StoredFile};
use crate::checkpoint::{Checkpoints, tree};

const JOINING: &str = "joining";
/// Marks that everything is there.
const COMPLETE: &str = "complete";
/// Marks that the database in the directory is to be deleted.
const DISCARDING: &str = "discarding";

/// How a directory was prepared for its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Joined {
    /// It has a database.
    Present,
    /// It has none, and the shared log has every entry: the node begins with the first one.
    FromFirstEntry,
    /// It has the database of a checkpoint now.
    FromCheckpoint {
        /// Number of the checkpoint.
        number: u64,
        /// The newest commit in it.
        seq: Seq,
        /// The entry after which the node continues.
        place: Place,
        /// Bytes of its files.
        bytes: u64,
        /// Of these, bytes that an interrupted call had downloaded.
        found_bytes: u64,
    },
}

/// An event to report to the operator while a node joins.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum JoinNotice {
    /// A checkpoint is used.
    Begins {
        /// Its number.
        number: u64,
        /// Bytes of its files.
        bytes: u64,
    },
    /// A checkpoint cannot be used; the next older one is tried.
    Rejected {
        /// Its number.
        number: u64,
        /// Why.
        cause: CheckpointError,
    },
}

/// Outcome of an attempt to join from a checkpoint.
enum Used {
    Joined(Joined),
    DoesNotFit(String),
}

/// A directory without a database, and its lock.
struct Target<'a> {
    vfs: &'a dyn Vfs,
    dir: &'a Path,
    joining: PathBuf,
    _lock: Box<dyn LockGuard>,
}

impl Checkpoints {
    /// Prepares the directory `dir` for a node on `log`: one without a database gets the newest checkpoint that is complete
    /// and after which the shared log has every entry. Interrupted, it may be called again, and continues.
    ///
    /// Cost: downloads the checkpoint, checking each block against its hash.
    ///
    /// # Errors
    /// [`CheckpointError::NoneFits`]; the store, the shared log, a file. Then there is no database in `dir`.
    pub fn join(
        &self,
        env: &Env,
        dir: &Path,
        log: &dyn SharedLog,
        notice: &mut dyn FnMut(JoinNotice),
    ) -> Result<Joined, CheckpointError> {
        let target = Target::lock(env, dir)?;
        target.finish()?;
        if target.has_database()? {
            // An earlier call may have left files in the directory for joining.
            tree::remove(target.vfs, &target.joining)?;
            return Ok(Joined::Present);
        }
        let mut rejected: Vec<(u64, String)> = Vec::new();
        // After each failure the list is read again: newer checkpoints may have replaced the one that failed.
        loop {
            let (identity, oldest) = (log.identity()?, log.bounds()?.oldest);
            let is_new = |number: &u64| !rejected.iter().any(|(known, _)| known == number);
            let Some(number) = self.numbers()?.into_iter().find(is_new) else {
                if oldest <= EntryIndex(1) {
                    return Ok(Joined::FromFirstEntry);
                }
                let rejected = reasons(rejected.into_iter().map(|(_, reason)| reason));
                return Err(CheckpointError::NoneFits { oldest, rejected });
            };
            let used = self.use_checkpoint(number, (identity, oldest), &target, notice);
            let cause = match used {
                Ok(Used::Joined(joined)) => return Ok(joined),
                Ok(Used::DoesNotFit(reason)) => {
                    rejected.push((number, reason));
                    continue;
                }
                Err(cause) if cause.is_unusable() => cause,
                Err(error) => return Err(error),
            };
            rejected.push((number, unusable(number, &cause)));
            // One that was deleted meanwhile is in order: there is a newer one.
            if self.numbers()?.contains(&number) {
                notice(JoinNotice::Rejected { number, cause });
            }
        }
    }

    /// Gives the directory `dir`, if it has no database, the newest complete checkpoint, of whichever shared log: for a
    /// cluster of which nothing else is left. Interrupted, it may be called again, and continues.
    ///
    /// # Errors
    /// [`CheckpointError::NoneComplete`]; the store, a file. Then there is no database in `dir`.
    pub fn restore(
        &self,
        env: &Env,
        dir: &Path,
        notice: &mut dyn FnMut(JoinNotice),
    ) -> Result<Joined, CheckpointError> {
        let target = Target::lock(env, dir)?;
        target.finish()?;
        if target.has_database()? {
            return Ok(Joined::Present);
        }
        let mut rejected = Vec::new();
        for number in self.numbers()? {
            let manifest = self.manifest(number);
            match manifest.and_then(|manifest| self.give(&manifest, &target, notice)) {
                Ok(joined) => return Ok(joined),
                Err(cause) if cause.is_unusable() => {
                    rejected.push(unusable(number, &cause));
                    notice(JoinNotice::Rejected { number, cause });
                }
                Err(error) => return Err(error),
            }
        }
        Err(CheckpointError::NoneComplete { rejected: reasons(rejected) })
    }

    /// Makes a checkpoint the database of a directory, if it continues in a shared log with this identity and this oldest
    /// entry.
    fn use_checkpoint(
        &self,
        number: u64,
        (identity, oldest): (LogId, EntryIndex),
        target: &Target<'_>,
        notice: &mut dyn FnMut(JoinNotice),
    ) -> Result<Used, CheckpointError> {
        let manifest = self.manifest(number)?;
        match misfit(&manifest, identity, oldest) {
            Some(reason) => Ok(Used::DoesNotFit(reason)),
            None => self.give(&manifest, target, notice).map(Used::Joined),
        }
    }

    /// Makes a checkpoint the database of a directory.
    fn give(
        &self,
        manifest: &Manifest,
        target: &Target<'_>,
        notice: &mut dyn FnMut(JoinNotice),
    ) -> Result<Joined, CheckpointError> {
        let (number, seq, bytes) = (manifest.number, manifest.seq, manifest.bytes());
        notice(JoinNotice::Begins { number, bytes });
        let found_bytes = self.download(target, manifest)?;
        target.install()?;
        Ok(Joined::FromCheckpoint { number, seq, place: manifest.place.place, bytes, found_bytes })
    }

    /// Downloads a checkpoint into `joining`; returns how many bytes were there already.
    fn download(&self, target: &Target<'_>, manifest: &Manifest) -> Result<u64, CheckpointError> {
        let (vfs, joining) = (target.vfs, &target.joining);
        create_dir_durably(vfs, joining).map_err(io("create directory", joining))?;
        for part in tree::parts(joining) {
            vfs.create_dir_all(&part).map_err(io("create directory", &part))?;
        }
        for file in tree::files(vfs, joining)? {
            if !manifest.files.iter().any(|wanted| wanted.name == file) {
                tree::remove_file(vfs, &joining.join(file))?;
            }
        }
        let mut found_bytes = 0;
        for file in &manifest.files {
            found_bytes += self.download_file(vfs, &joining.join(&file.name), file, manifest.block_bytes)?;
        }
        for part in tree::parts(joining) {
            tree::sync(vfs, &part)?;
        }
        tree::sync(vfs, joining)?;
        Ok(found_bytes)
    }

    /// Downloads the blocks of a file that it does not have yet; returns how many bytes it had.
    fn download_file(
        &self,
        vfs: &dyn Vfs,
        path: &Path,
        stored: &StoredFile,
        block_bytes: u32,
    ) -> Result<u64, CheckpointError> {
        let mode = if tree::exists(vfs, path)? { OpenMode::ReadWrite } else { OpenMode::CreateNew };
        let file = vfs.open(path, mode).map_err(io("open", path))?;
        let length = file.len().map_err(io("measure", path))?;
        let mut found_bytes = 0;
        for (block, range) in stored.blocks.iter().zip(stored.ranges(block_bytes)) {
            let bytes = range.end - range.start;
            if range.end <= length && is_block(&*file, &range, block).map_err(io("read", path))? {
                found_bytes += bytes;
                continue;
            }
            let contents = self.block(block)?;
            if contents.len() as u64 != bytes {
                let what = format!("it has {} bytes, expected {bytes}", contents.len());
                return Err(CheckpointError::Damaged { name: block.name(), what });
            }
            file.write_all_at(&contents, range.start).map_err(io("write", path))?;
        }
        if length > stored.bytes {
            file.set_len(stored.bytes).map_err(io("cut", path))?;
        }
        file.sync_data().map_err(io("sync", path))?;
        Ok(found_bytes)
    }
}

/// Why a node cannot begin with a checkpoint in a shared log with this identity and this oldest entry, if it cannot.
pub(super) fn misfit(manifest: &Manifest, identity: LogId, oldest: EntryIndex) -> Option<String> {
    let (number, log, index) = (manifest.number, manifest.place.log, manifest.place.place.index);
    if log != identity {
        return Some(format!("checkpoint {number} is of shared log {log}"));
    }
    (index.next() < oldest).then(|| format!("checkpoint {number} continues after entry {index}"))
}

/// The reason against a checkpoint, as text.
pub(super) fn unusable(number: u64, cause: &CheckpointError) -> String {
    match cause {
        CheckpointError::Withdrawn { .. } => cause.to_string(),
        _ => format!("checkpoint {number} is damaged: {cause}"),
    }
}

/// The reasons against all checkpoints, as text.
pub(super) fn reasons(rejected: impl IntoIterator<Item = String>) -> String {
    let rejected: Vec<String> = rejected.into_iter().collect();
    if rejected.is_empty() { "none was found".to_owned() } else { rejected.join("; ") }
}

/// True when a file has a block at its place.
fn is_block(file: &dyn File, range: &Range<u64>, block: &Block) -> std::io::Result<bool> {
    let mut contents = vec![0; usize::try_from(range.end - range.start).unwrap_or(usize::MAX)];
    file.read_exact_at(&mut contents, range.start)?;
    Ok(Block::of(block.number, &contents) == *block)
}

/// Deletes the database in `dir`, which must not be open, so that [`Checkpoints::join`] gives it a newer one. For a node
/// whose next entries were trimmed away: what it has is a part of what every other node has. Interrupted, the next call of
/// `join` finishes it.
///
/// # Errors
/// [`CheckpointError::Io`], also while another process has the directory open.
pub fn discard_copy(env: &Env, dir: &Path) -> Result<(), CheckpointError> {
    let target = Target::lock(env, dir)?;
    let mark = dir.join(DISCARDING);
    target.mark(&mark)?;
    target.finish()
}

impl<'a> Target<'a> {
    fn lock(env: &'a Env, dir: &'a Path) -> Result<Self, CheckpointError> {
        let vfs = &*env.vfs;
        create_dir_durably(vfs, dir).map_err(io("create directory", dir))?;
        let path = dir.join("LOCK");
        let holder = format!("pid {}", std::process::id());
        let lock = vfs.lock(&path, &holder).map_err(io("lock", &path))?;
        Ok(Self { vfs, dir, joining: dir.join(JOINING), _lock: lock })
    }

    /// Creates a file that says something by its name.
    fn mark(&self, path: &Path) -> Result<(), CheckpointError> {
        if !tree::exists(self.vfs, path)? {
            self.vfs.open(path, OpenMode::CreateNew).map_err(io("create", path))?;
        }
        tree::sync(self.vfs, path.parent().unwrap_or(self.dir))
    }

    /// Finishes what an interrupted call has begun and has to be finished.
    fn finish(&self) -> Result<(), CheckpointError> {
        let mark = self.dir.join(DISCARDING);
        if tree::exists(self.vfs, &mark)? {
            self.discard()?;
            tree::remove_file(self.vfs, &mark)?;
            tree::sync(self.vfs, self.dir)?;
        }
        if tree::exists(self.vfs, &self.joining.join(COMPLETE))? { self.move_in() } else { Ok(()) }
    }

    fn has_database(&self) -> Result<bool, CheckpointError> {
        for part in tree::parts(self.dir) {
            if tree::exists(self.vfs, &part)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes the download, which is complete and durable, the database of the directory.
    fn install(&self) -> Result<(), CheckpointError> {
        self.mark(&self.joining.join(COMPLETE))?;
        self.move_in()
    }

    fn move_in(&self) -> Result<(), CheckpointError> {
        for name in tree::PARTS.into_iter().chain([tree::PLACE]) {
            let from = self.joining.join(name);
            if tree::exists(self.vfs, &from)? {
                self.vfs.rename(&from, &self.dir.join(name)).map_err(io("rename", &from))?;
            }
        }
        // Before the mark goes, so that it says what is to be moved as long as something may be.
        tree::sync(self.vfs, self.dir)?;
        tree::sync(self.vfs, &self.joining)?;
        tree::remove_file(self.vfs, &self.joining.join(COMPLETE))?;
        tree::remove(self.vfs, &self.joining)?;
        tree::sync(self.vfs, self.dir)
    }

    /// Deletes the database, and a download that was not finished.
    fn discard(&self) -> Result<(), CheckpointError> {
        tree::remove(self.vfs, &self.joining)?;
        for part in tree::parts(self.dir) {
            tree::remove(self.vfs, &part)?;
        }
        for name in [tree::PLACE, tree::DIFFERS] {
            tree::remove_file(self.vfs, &self.dir.join(name))?;
        }
        tree::sync(self.vfs, self.dir)
    }
}
