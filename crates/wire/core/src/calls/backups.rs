//! Backups requested by clients: always inside the directory that the settings name, under names without
//! paths.

use std::io;
use std::path::Path;
use std::sync::Arc;

use ropewalk::Error;
use ropewalk::engine::{Backup, EngineError, Env};
use ropewalk_auth::{Caller, Right};
use tokio::sync::Semaphore;

use crate::calls::Service;
use crate::error::{Code, Result, WireError};

const NAME_BYTES_MAX: usize = 128;
/// Most backups of a list.
const LISTED_MAX: usize = 1_000;
/// The error of a server without a directory of backups.
const NO_DIRECTORY: &str = "this server makes no backups; its setting `backups` names no directory";

/// A completed backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedBackup {
    /// The directory inside that of all backups.
    pub name: String,
    /// Its description.
    pub backup: Backup,
}

/// Permit for one backup at a time: a second one would only make both slower.
#[derive(Debug, Clone)]
pub(crate) struct Turn(Arc<Semaphore>);

impl Default for Turn {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl Service {
    /// Copies the database, as [`ropewalk::Database::backup`] does, into a directory of this name, or of one
    /// made of the time and chance, such as `20261121T143651Z-2be650b6d019eb54`. Needs the right `admin` on
    /// every store, since it copies them all. It continues if the caller stops waiting.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] for an invalid name, and where the settings name no directory;
    /// [`Code::AlreadyExists`]; [`Code::ResourceExhausted`] while another one is made; [`Code::Io`].
    pub async fn backup(&self, caller: &Caller, name: Option<&str>) -> Result<NamedBackup> {
        self.begin(caller, Right::Admin, None)?;
        let Some(dir) = self.backups() else {
            return Err(WireError::invalid(NO_DIRECTORY));
        };
        let name = match name {
            Some(name) => checked(name)?.to_owned(),
            None => self.new_name(),
        };
        let turn = self.backup_turn().0.clone().try_acquire_owned();
        let turn = turn.map_err(|_| WireError::exhausted("another backup is being made"))?;
        let (db, target) = (self.database().clone(), dir.join(&name));
        let work = tokio::task::spawn_blocking(move || {
            let done = db.backup(target);
            drop(turn);
            done
        });
        match work.await {
            Ok(Ok(backup)) => Ok(NamedBackup { name, backup }),
            Ok(Err(Error::Engine(EngineError::BackupTarget { .. }))) => {
                Err(WireError::new(Code::AlreadyExists, format!("the name {name:?} is already in use")))
            }
            Ok(Err(Error::Engine(EngineError::Locked { .. }))) => {
                Err(WireError::exhausted(format!("another process is making the backup {name:?}")))
            }
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(WireError::new(Code::Internal, "the backup failed")),
        }
    }

    /// Names of the complete backups in the directory of backups, at most 1,000, in the reverse order of their
    /// names: of those that are made of the time, the newest first. Needs the right `admin` on every store.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] where the settings name no directory; [`Code::Io`].
    pub async fn list_backups(&self, caller: &Caller) -> Result<Vec<String>> {
        self.begin(caller, Right::Admin, None)?;
        let Some(dir) = self.backups() else { return Err(WireError::invalid(NO_DIRECTORY)) };
        let (dir, env) = (dir.to_owned(), self.database().engine().env().clone());
        let work = tokio::task::spawn_blocking(move || listed(&env, &dir)).await;
        let names = work.map_err(|_| WireError::new(Code::Internal, "the backups could not be listed"))?;
        names.map_err(|error| {
            tracing::warn!(%error, "the directory of backups cannot be read");
            WireError::new(Code::Io, "the directory of backups cannot be read")
        })
    }

    fn new_name(&self) -> String {
        let env = self.database().engine().env();
        let time = jiff::Timestamp::from_microsecond(env.clock.wall_micros()).unwrap_or_default();
        format!("{}-{:016x}", time.strftime("%Y%m%dT%H%M%SZ"), env.random.next_u64())
    }
}

/// Names of the complete copies in a directory, in the reverse order of their names.
fn listed(env: &Env, dir: &Path) -> io::Result<Vec<String>> {
    let vfs = &env.vfs;
    // It is created by the first backup.
    if !vfs.exists(dir)? {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for name in vfs.list(dir)?.into_iter().rev().filter(|name| checked(name).is_ok()) {
        let copy = dir.join(&name);
        if vfs.exists(&copy.join("log"))? && vfs.exists(&copy.join("store"))? {
            found.push(name);
        }
        if found.len() >= LISTED_MAX {
            break;
        }
    }
    Ok(found)
}

/// Accepts a single path segment without special characters for shells that is not an unfinished backup.
fn checked(name: &str) -> Result<&str> {
    let allowed = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    let begins = name.starts_with(|first: char| first.is_ascii_alphanumeric());
    if allowed && begins && name.len() <= NAME_BYTES_MAX && !name.ends_with(".partial") {
        return Ok(name);
    }
    Err(WireError::invalid(format!(
        "{name:?} is not a valid backup name: a letter or digit, then letters, digits, `.`, `_`, `-`; at most {NAME_BYTES_MAX}, not ending with .partial"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_the_directory() {
        for name in ["a", "nightly-2026.11.22_1", "7"] {
            assert_eq!(checked(name), Ok(name));
        }
        let long = "a".repeat(NAME_BYTES_MAX + 1);
        for name in
            ["", ".", "..", "../a", "a/b", "/a", "a\\b", "-a", ".a", "a b", "a\0", "é", "a.partial", &long]
        {
            assert_eq!(checked(name).map_err(|error| error.code), Err(Code::InvalidArgument), "{name:?}");
        }
    }
}
