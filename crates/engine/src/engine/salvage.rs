//! Salvage of a log that fails to open: the log's own salvage, under the directory's lock and from the
//! checkpoint in the manifest. It handles only the log; it does not repair damaged runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ropewalk_base::Seq;
use ropewalk_log::{Damage, Extent, LocalLog};
use ropewalk_store::{Checkpoint, Store, StoreOptions};
use ropewalk_vfs::Env;

use crate::engine::lock;
use crate::error::{EngineError, Result};

/// Reports the damage in the log of the engine in `dir` and what a salvage would lose; `None` when the log
/// opens. The log is not changed. With `before`, the log is to end before that commit at the latest, for
/// records that are intact but make opening fail with [`EngineError::Record`].
///
/// # Errors
/// [`LogError::Checkpointed`](ropewalk_log::LogError::Checkpointed) when the store holds commit `before` already;
/// [`EngineError::Locked`]; a damaged or missing manifest; a format from the future; I/O.
pub fn inspect_log(env: &Env, dir: &Path, before: Option<Seq>) -> Result<Option<Damage>> {
    let _lock = lock(env, dir)?;
    let Some((log, checkpoint)) = log_and_checkpoint(env, dir)? else { return Ok(None) };
    Ok(ropewalk_log::inspect(env, &log, checkpoint.lsn, checkpoint.seq, before)?)
}

/// Ends the log before its damage, and before the commit `before`; `None` when it opens as it is. The removed
/// part is retained in files next to it.
///
/// # Errors
/// As [`inspect_log`]. May be repeated.
pub fn salvage_log(env: &Env, dir: &Path, before: Option<Seq>) -> Result<Option<Damage>> {
    let _lock = lock(env, dir)?;
    let Some((log, checkpoint)) = log_and_checkpoint(env, dir)? else { return Ok(None) };
    Ok(ropewalk_log::salvage(env, &log, checkpoint.lsn, checkpoint.seq, before)?)
}

/// Directory of the log, and the checkpoint where recovery starts; `None` in a directory where nothing was
/// ever written.
pub(crate) fn log_and_checkpoint(env: &Env, dir: &Path) -> Result<Option<(PathBuf, Checkpoint)>> {
    let log = dir.join("log");
    ropewalk_vfs::create_dir_durably(&*env.vfs, &log).map_err(|source| EngineError::Io {
        op: "create directory",
        path: log.clone(),
        source: Arc::new(source),
    })?;
    let store = Store::open(env, &dir.join("store"), StoreOptions::default())?;
    match LocalLog::extent(env, &log) {
        Ok(Extent::Nothing) if store.is_new() => Ok(None),
        Ok(Extent::Records) if store.is_new() => Err(store.missing_files_error().into()),
        // Damage in the log is reported by the salvage.
        Ok(_) | Err(_) => Ok(Some((log, store.checkpoint()))),
    }
}
