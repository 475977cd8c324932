//! What to do about a log that refuses to open: the log's own salvage, behind the directory's lock and from the
//! checkpoint that the manifest names. Only the log is looked at; a damaged run is not mended by anything here.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ropewalk_base::Seq;
use ropewalk_log::{Damage, Extent, LocalLog};
use ropewalk_store::{Checkpoint, Store, StoreOptions};
use ropewalk_vfs::Env;

use crate::engine::lock;
use crate::error::EngineError;

/// Says what is damaged in the log of the engine in `dir`, and what a salvage would lose; `None` when the log opens.
/// The log is not changed. With `before`, the log is to end in front of that commit at the latest: a record may be whole,
/// and opening fail with [`EngineError::Record`].
///
/// # Errors
/// [`LogError::Checkpointed`](ropewalk_log::LogError::Checkpointed) when the store holds commit `before` already;
/// [`EngineError::Locked`]; a damaged or missing manifest; a format from the future; I/O.
pub fn inspect_log(env: &Env, dir: &Path, before: Option<Seq>) -> Result<Option<Damage>, EngineError> {
    let _lock = lock(env, dir)?;
    let Some((log, checkpoint)) = log_and_checkpoint(env, dir)? else { return Ok(None) };
    Ok(ropewalk_log::inspect(env, &log, checkpoint.lsn, checkpoint.seq, before)?)
}

/// Ends the log in front of its damage, and of the commit `before`; `None` when it opens as it is. What is cut off stays in files beside it.
///
/// # Errors
/// As [`inspect_log`]. May be repeated.
pub fn salvage_log(env: &Env, dir: &Path, before: Option<Seq>) -> Result<Option<Damage>, EngineError> {
    let _lock = lock(env, dir)?;
    let Some((log, checkpoint)) = log_and_checkpoint(env, dir)? else { return Ok(None) };
    Ok(ropewalk_log::salvage(env, &log, checkpoint.lsn, checkpoint.seq, before)?)
}

/// Where the log is, and where recovery starts in it; `None` in a directory where nothing was ever written.
fn log_and_checkpoint(env: &Env, dir: &Path) -> Result<Option<(PathBuf, Checkpoint)>, EngineError> {
    let log = dir.join("log");
    ropewalk_vfs::create_dir_durably(&*env.vfs, &log).map_err(|source| EngineError::Io {
        op: "create directory",
        path: log.clone(),
        source: Arc::new(source),
    })?;
    let store = Store::open(env, &dir.join("store"), StoreOptions::default())?;
    match LocalLog::extent(env, &log) {
        Ok(Extent::Nothing) if store.is_new() => Ok(None),
        Ok(Extent::Records) if store.is_new() => Err(store.lost().into()),
        // What is damaged in it, the salvage says.
        Ok(_) | Err(_) => Ok(Some((log, store.checkpoint()))),
    }
}
