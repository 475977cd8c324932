//! Copies of the database, made between and during all other operations.
//!
//!   backup ─▶ done: the copy opens with every commit that readers saw
//!          └▶ cut off: after the restart there is a complete copy or none
//!
//! A copy is opened on a separate disk without faults; the database itself covers opening on a failing one.

use std::path::Path;
use std::sync::Arc;

use ropewalk_vfs::{Env, FaultyVfs, Vfs};

use crate::events::scenario::{Bug, Check, World, ensure, open_in};

/// Where copies are made.
pub(crate) const BACKUPS: &str = "/backups";
pub(crate) const TARGET: &str = "/backups/copy";

/// Removes backup leftovers from the disk; returns a disk with the copy, if there is one.
pub(crate) fn take_copy(disk: &FaultyVfs, seed: u64) -> Check<Option<FaultyVfs>> {
    let copy = disk.copy(seed);
    disk.wipe(Path::new(BACKUPS));
    let there = copy.exists(Path::new(TARGET)).map_err(|error| Bug(error.to_string()))?;
    Ok(there.then_some(copy))
}

impl World {
    /// Copies the database, and opens the copy at once or at the next restart.
    pub(crate) fn backup(&mut self) -> Check {
        if self.backup.is_some() {
            return Ok(());
        }
        self.note("backup");
        let (visible, done) = (self.visible(), self.db().backup(TARGET));
        let Some(backup) = self.allow("backup", done)? else {
            // Leftovers do not hinder the next backup, except a copy whose name may not last.
            let left = self.vfs.is_off() || self.vfs.exists(Path::new(TARGET)).unwrap_or(true);
            self.backup = left.then_some(None);
            return Ok(());
        };
        ensure!(backup.seq.0 == visible, "the backup has commit {}, readers see {visible}", backup.seq.0);
        self.all_durable();
        self.backup = Some(Some(backup.seq.0));
        if self.dice.one_in(2) { self.look_at_backup() } else { Ok(()) }
    }

    /// Opens the copy, if there is one, compares it, and removes it.
    pub(crate) fn look_at_backup(&mut self) -> Check {
        let Some(finished) = self.backup.take() else { return Ok(()) };
        let Some(disk) = take_copy(&self.vfs, self.dice.number())? else {
            ensure!(finished.is_none(), "the copy of commit {finished:?} was finished and is gone");
            return Ok(());
        };
        let env = Env { vfs: Arc::new(disk), ..self.env.clone() };
        let (db, keyspaces) = open_in(&self.options.clone().env(env), Path::new(TARGET))
            .map_err(|error| Bug(format!("the copy does not open: {error}")))?;
        let at = db.seq().0;
        self.note(format!("the copy opens at commit {at}"));
        ensure!(finished.is_none_or(|seq| seq == at), "the copy of commit {finished:?} opens at {at}");
        let last = self.oracle.last();
        ensure!(at <= last, "the copy opens at commit {at}, the database has {last}");
        self.counts.copies += 1;
        self.compare_database(&db, &keyspaces, at)?;
        let report = db.verify()?;
        ensure!(report.store.damage.is_empty(), "verify finds damage in the copy: {:?}", report.store.damage);
        ensure!(report.violations.is_empty(), "verify finds in the copy {:?}", report.violations);
        Ok(())
    }
}
