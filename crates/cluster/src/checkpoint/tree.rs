//! Directories with the files of a database: `log/…`, `store/…` and single files.

use std::path::{Path, PathBuf};

use ropewalk_vfs::Vfs;

use crate::checkpoint::error::{CheckpointError, io};

/// Its directories.
pub(super) const PARTS: [&str; 2] = ["log", "store"];
/// The file that has the place in the shared log.
pub(super) const PLACE: &str = "place";
/// The file that says that the contents differ from those of other nodes.
pub(super) const DIFFERS: &str = "differs";

/// Names of the files in `dir`, relative to it, sorted; none if it does not exist. Locks are left out.
pub(super) fn files(vfs: &dyn Vfs, dir: &Path) -> Result<Vec<String>, CheckpointError> {
    let mut found = Vec::new();
    for name in list(vfs, dir)? {
        if PARTS.contains(&name.as_str()) {
            let inside = list(vfs, &dir.join(&name))?;
            found.extend(inside.into_iter().map(|file| format!("{name}/{file}")));
        } else if name != "LOCK" {
            found.push(name);
        }
    }
    Ok(found)
}

/// Removes `dir`, if it exists.
pub(super) fn remove(vfs: &dyn Vfs, dir: &Path) -> Result<(), CheckpointError> {
    if !exists(vfs, dir)? {
        return Ok(());
    }
    for file in files(vfs, dir)? {
        remove_file(vfs, &dir.join(file))?;
    }
    remove_file(vfs, &dir.join("LOCK"))?;
    for part in parts(dir) {
        remove_empty(vfs, &part)?;
    }
    remove_empty(vfs, dir)
}

pub(super) fn remove_file(vfs: &dyn Vfs, path: &Path) -> Result<(), CheckpointError> {
    if exists(vfs, path)? { vfs.remove(path).map_err(io("remove", path)) } else { Ok(()) }
}

/// Removes a directory that has become empty, if it exists. Its removed names never come back, whatever gets its name.
fn remove_empty(vfs: &dyn Vfs, dir: &Path) -> Result<(), CheckpointError> {
    if !exists(vfs, dir)? {
        return Ok(());
    }
    sync(vfs, dir)?;
    vfs.remove_dir(dir).map_err(io("remove directory", dir))
}

pub(super) fn exists(vfs: &dyn Vfs, path: &Path) -> Result<bool, CheckpointError> {
    vfs.exists(path).map_err(io("look for", path))
}

pub(super) fn sync(vfs: &dyn Vfs, dir: &Path) -> Result<(), CheckpointError> {
    vfs.sync_dir(dir).map_err(io("sync directory", dir))
}

/// The directories of a database in `dir`.
pub(super) fn parts(dir: &Path) -> [PathBuf; 2] {
    PARTS.map(|part| dir.join(part))
}

fn list(vfs: &dyn Vfs, dir: &Path) -> Result<Vec<String>, CheckpointError> {
    if exists(vfs, dir)? { vfs.list(dir).map_err(io("list", dir)) } else { Ok(Vec::new()) }
}
