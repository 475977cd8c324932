//! What to do about a log that refuses to open: the log's own salvage, behind the directory's lock and from the
//! checkpoint that the manifest names. Only the log is looked at; a damaged run is not mended by anything here.

use std::path::Path;

use ropewalk_log::Damage;
use ropewalk_store::{Store, StoreOptions};
use ropewalk_vfs::Env;

use crate::engine::lock;
use crate::error::EngineError;

/// Says what is damaged in the log of the engine in `dir`, and what a salvage would lose; `None` when the log opens.
/// The log is not changed.
///
/// # Errors
/// [`EngineError::Locked`]; a damaged manifest; a format from the future; I/O.
pub fn inspect_log(env: &Env, dir: &Path) -> Result<Option<Damage>, EngineError> {
    let _lock = lock(env, dir)?;
    let checkpoint = Store::open(env, &dir.join("store"), StoreOptions::default())?.checkpoint();
    Ok(ropewalk_log::inspect(env, &dir.join("log"), checkpoint.lsn, checkpoint.seq)?)
}

/// Ends the log in front of its damage; `None` when it opens as it is. What is cut off stays in files beside it.
///
/// # Errors
/// As [`inspect_log`]. May be repeated.
pub fn salvage_log(env: &Env, dir: &Path) -> Result<Option<Damage>, EngineError> {
    let _lock = lock(env, dir)?;
    let checkpoint = Store::open(env, &dir.join("store"), StoreOptions::default())?.checkpoint();
    Ok(ropewalk_log::salvage(env, &dir.join("log"), checkpoint.lsn, checkpoint.seq)?)
}
