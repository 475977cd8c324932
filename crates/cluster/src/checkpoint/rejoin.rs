//! A node whose next entries were trimmed away: its copy makes room for a checkpoint.
//!
//! ```text
//! shared log:            entries 80 … 95
//! copy of the node:      up to entry 40        ─▶ deleted, if a checkpoint is there that continues at 80 or later
//! newest checkpoint:     up to entry 90        ─▶ the database of the node, by `join`
//! ```

use std::path::Path;

use ropewalk_engine::LocalCopy;
use ropewalk_log::LogId;
use ropewalk_log::shared::{EntryIndex, SharedLog};
use ropewalk_vfs::Env;

use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::join::{misfit, reasons, unusable};
use crate::checkpoint::{Checkpoints, Manifest, discard_copy};

impl Checkpoints {
    /// Deletes the database in `dir`, of a node whose next entries `log` no longer has, so that [`Checkpoints::join`] gives it
    /// a newer one. Returns the number of the checkpoint that is complete and fits.
    ///
    /// No commit is lost: the copy is of the same shared log, and the checkpoint has every commit of the copy.
    ///
    /// # Errors
    /// [`CheckpointError::NotReplaced`], [`CheckpointError::NoneFits`]; the store, the shared log, a file, or a process that
    /// has the database open. Then the database is there as before.
    pub fn discard_trimmed(
        &self,
        env: &Env,
        dir: &Path,
        log: &dyn SharedLog,
    ) -> Result<u64, CheckpointError> {
        let not_replaced = |what: String| CheckpointError::NotReplaced { dir: dir.to_owned(), what };
        let (identity, oldest) = (log.identity()?, log.bounds()?.oldest);
        let Some(copy) = LocalCopy::open(env, dir)? else {
            return Err(not_replaced("it does not exist".to_owned()));
        };
        let (last, place) = (copy.last(), copy.place().cloned());
        // Its lock is needed to delete the files.
        drop(copy);
        let Some(place) = place else {
            return Err(not_replaced("it has no place in a shared log".to_owned()));
        };
        if place.log != identity {
            return Err(not_replaced(format!("it is of shared log {}, and not of {identity}", place.log)));
        }
        if place.place.index.next() >= oldest {
            let what = format!("the shared log has the entries after its place, {}", place.place.index);
            return Err(not_replaced(what));
        }
        let manifest = self.fitting(identity, oldest)?;
        if manifest.seq < last {
            let (number, seq) = (manifest.number, manifest.seq);
            return Err(not_replaced(format!("it has commit {last}, and checkpoint {number} ends at {seq}")));
        }
        discard_copy(env, dir)?;
        Ok(manifest.number)
    }

    /// The newest complete checkpoint with which a node can begin in a shared log with this identity and this oldest entry.
    fn fitting(&self, identity: LogId, oldest: EntryIndex) -> Result<Manifest, CheckpointError> {
        let mut rejected = Vec::new();
        for number in self.numbers()? {
            let manifest = match self.manifest(number) {
                Ok(manifest) => manifest,
                Err(cause) if cause.is_unusable() => {
                    rejected.push(unusable(number, &cause));
                    continue;
                }
                Err(error) => return Err(error),
            };
            let missing = || -> Result<Option<String>, CheckpointError> {
                let missing = self.missing(&manifest)?;
                Ok(missing.map(|name| format!("checkpoint {number} is damaged: object {name} is missing")))
            };
            match misfit(&manifest, identity, oldest).map_or_else(missing, |reason| Ok(Some(reason)))? {
                Some(reason) => rejected.push(reason),
                None => return Ok(manifest),
            }
        }
        Err(CheckpointError::NoneFits { oldest, rejected: reasons(rejected) })
    }
}
