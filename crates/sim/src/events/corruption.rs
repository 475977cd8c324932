//! Bit corruption: after the end of a run one bit of one file is flipped, or one write to it is lost. Each
//! reader must either report damage or return correct data.

use ropewalk::events::ReadOptions;
use ropewalk::{Class, Error, Query};
use ropewalk_vfs::{Env, FaultyVfs};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::events::generators::STORES;
use crate::events::readers::{drain, scan};
use crate::events::scenario::{Bug, Check, World, ensure, open};

/// Bytes that a disk writes atomically.
const SECTOR_BYTES: usize = 512;

impl World {
    /// Damages copies of the disk. The database must be closed.
    pub(crate) fn rot(&mut self, times: u64) -> Check {
        for _ in 0..times {
            let disk = self.vfs.copy(self.dice.number());
            let files: Vec<(PathBuf, u64)> = disk.files().into_iter().filter(|(_, len)| *len > 0).collect();
            let Some((path, len)) = self.dice.pick(&files).cloned() else { return Ok(()) };
            let Some(damage) = self.damage(&disk, &path, len)? else { continue };
            self.counts.flips += 1;
            self.note(&damage);
            self.compare_rotten(&disk, &path).map_err(|Bug(what)| Bug(format!("after {damage}: {what}")))?;
        }
        Ok(())
    }

    /// Damages a file; describes how, unless that changed nothing.
    fn damage(&self, disk: &FaultyVfs, path: &Path, len: u64) -> Check<Option<String>> {
        let before = disk.bytes(path).unwrap_or_default();
        let sectors = before.len().div_ceil(SECTOR_BYTES);
        let to = self.dice.index(sectors) * SECTOR_BYTES;
        let name = path.display();
        let (offset, bytes, what) = match self.dice.below(4) {
            0 => (to, vec![0; SECTOR_BYTES], format!("the loss of the write of byte {to} of {name}")),
            _ => {
                let (at, bit) = (self.dice.below(len) as usize, self.dice.below(8));
                let byte = before.get(at).copied().unwrap_or_default() ^ (1 << bit);
                (at, vec![byte], format!("a flip of bit {bit} of byte {at} of {name}"))
            }
        };
        disk.overwrite(path, offset as u64, &bytes).map_err(|error| Bug(error.to_string()))?;
        Ok((disk.bytes(path).unwrap_or_default() != before).then_some(what))
    }

    fn compare_rotten(&mut self, disk: &FaultyVfs, path: &Path) -> Check {
        let random = Arc::new(ropewalk_vfs::SeededRandom::new(1));
        let env = Env { vfs: Arc::new(disk.clone()), clock: self.clock.clone(), random };
        let options = self.options.clone().env(env);
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
        let noticed = |error: &Error| error.class() == Class::Corrupt;
        let (db, keyspaces) = match open(&options) {
            Ok(opened) => opened,
            Err(error) => {
                self.note(format!("  open: {error}"));
                ensure!(noticed(&error), "open fails with {error} ({:?})", error.class());
                ensure!(error.to_string().contains(&name), "the error does not name the file: {error}");
                return Ok(());
            }
        };
        let at = db.seq().0;
        ensure!(
            at <= self.oracle.last() && at >= self.claimed,
            "opened at commit {at} of {}, {} are vouched for",
            self.oracle.last(),
            self.claimed
        );
        let snapshot = db.engine().snapshot();
        let mut damage = 0;
        for store_name in STORES {
            let store = db.events(store_name)?;
            for options in [ReadOptions::default(), ReadOptions::backwards()] {
                for query in [Query::all(), crate::events::generators::query(&self.dice)] {
                    let read = store.read_at(snapshot.clone(), &query, options).map_err(Error::from);
                    match read.and_then(|mut reader| drain(&mut reader, 50)) {
                        Ok(found) => {
                            let expected = self.oracle.query(store_name, at, &query, &options);
                            let same = found
                                .iter()
                                .map(|e| (e.position.0, &e.event))
                                .eq(expected.iter().map(|(p, s)| (*p, &s.event)));
                            ensure!(same, "a wrong answer to {query:?} {options:?} in {store_name}");
                        }
                        Err(error) => {
                            ensure!(noticed(&error), "a read fails with {error} ({:?})", error.class());
                            damage += 1;
                        }
                    }
                }
            }
        }
        for keyspace in keyspaces {
            for backwards in [false, true] {
                match scan(snapshot.read().cursor(ropewalk_engine::Keyspace(keyspace.id())), backwards)
                    .map_err(Error::from)
                {
                    Ok(mut found) => {
                        if backwards {
                            found.reverse();
                        }
                        let same = found
                            .iter()
                            .map(|(k, v)| (k.as_slice(), v.as_slice()))
                            .eq(self.oracle.rows(keyspace.id(), at));
                        ensure!(same, "a wrong answer from keyspace {}", keyspace.id());
                    }
                    Err(error) => {
                        ensure!(noticed(&error), "a scan fails with {error} ({:?})", error.class());
                        damage += 1;
                    }
                }
            }
        }
        let report = db.verify();
        let found = match &report {
            Ok(report) => report.store.damage.len(),
            Err(error) => {
                ensure!(noticed(error), "verify fails with {error} ({:?})", error.class());
                1
            }
        };
        self.note(format!("  opened at {at}, {damage} reads noticed, verify found {found}"));
        ensure!(damage == 0 || found > 0, "reads meet damage that verify does not find");
        let in_run = path.components().any(|c| c.as_os_str() == "store")
            && disk.files().iter().any(|(p, _)| p == path);
        ensure!(!in_run || found > 0, "verify does not find the damage");
        Ok(())
    }
}

impl From<Error> for Bug {
    fn from(error: Error) -> Self {
        Self(error.to_string())
    }
}

impl From<ropewalk::series::SeriesError> for Bug {
    fn from(error: ropewalk::series::SeriesError) -> Self {
        Self(error.to_string())
    }
}

impl From<ropewalk::events::EventsError> for Bug {
    fn from(error: ropewalk::events::EventsError) -> Self {
        Self(error.to_string())
    }
}
