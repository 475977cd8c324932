//! Limits: background work for the written data, number and size of files, and bytes read by an opening.
//!
//! No limit is a time: work is counted in steps, and reading in bytes of the simulated disk.

use std::path::Path;

use ropewalk_engine::WriteCapacity;

use crate::events::generators::HUGE_BYTES;
use crate::events::scenario::{Check, DIR, World, ensure};

/// Steps of background work, flushes and quanta of compaction, that a run's data can need.
const UPKEEP_STEPS_MAX: u64 = 2_000;
/// Bytes of a run that an opening reads: its footer, with fences and filters of the simulation's small
/// blocks.
const BYTES_OF_A_RUN: u64 = 16 << 10;
/// The manifest, and data that a model loads.
const BYTES_BESIDES: u64 = 256 << 10;

impl World {
    /// Background work ends, and then the memory budget has space for writers.
    pub(crate) fn check_upkeep(&mut self) -> Check {
        let db = self.db();
        let mut steps = 0;
        while db.engine().background_step().map_err(ropewalk::Error::from)? {
            steps += 1;
            ensure!(steps < UPKEEP_STEPS_MAX, "background work does not come to an end");
        }
        let stats = db.stats();
        ensure!(stats.frozen == 0, "{} generations are not flushed", stats.frozen);
        ensure!(
            db.engine().write_capacity() == WriteCapacity::Free
                || stats.write_bytes > stats.write_bytes_max / 4,
            "writers wait with {} bytes in memory: {:?}",
            stats.write_bytes,
            db.engine().write_capacity()
        );
        Ok(())
    }

    fn files(&self, suffix: &str) -> (u64, u64) {
        let files = self.vfs.files();
        let ours = files.iter().filter(|(path, _)| path.starts_with(Path::new(DIR)));
        let lengths = ours.filter(|(path, _)| path.to_string_lossy().ends_with(suffix)).map(|(_, len)| *len);
        lengths.fold((0, 0), |(count, bytes), len| (count + 1, bytes + len))
    }

    /// After an opening: each run is in force, and the log is no longer than the settings allow.
    pub(crate) fn check_files(&mut self) -> Check {
        let stats = self.db().stats();
        let levels = stats.store.keyspaces.iter().flat_map(|keyspace| &keyspace.levels);
        let in_force: u64 = levels.map(|level| level.runs).sum();
        let (runs, _) = self.files(".run");
        ensure!(runs == in_force, "{runs} runs lie on the disk, {in_force} are in force");
        let (segments, bytes) = self.files(".seg");
        let engine = self.options.engine_mut();
        // A record that is larger than a segment gets a separate segment.
        let segment = engine.log.segment_bytes_max.max(2 * HUGE_BYTES);
        // The last one is never trimmed, and the part that the checkpoint needs ends in another.
        let most = engine.log_retention_bytes
            + stats.write_bytes_max
            + segment * (3 + engine.log.spare_segments_max as u64);
        ensure!(bytes <= most, "{segments} segments of {bytes} bytes, at most {most} are allowed");
        Ok(())
    }

    /// After an opening that read `bytes`: of the log no more than fits memory, of the runs no data.
    pub(crate) fn check_opening(&mut self, bytes: u64) -> Check {
        let stats = self.db().stats();
        let (runs, _) = self.files(".run");
        // Each record is read twice, once to be checked; the entries of a record take no less memory than log.
        let log = 2 * (stats.write_bytes_max + 4 * HUGE_BYTES);
        let most = log + runs * BYTES_OF_A_RUN + BYTES_BESIDES;
        self.note(format!("the opening read {bytes} bytes, at most {most}"));
        ensure!(bytes <= most, "the opening read {bytes} bytes, at most {most} are needed");
        Ok(())
    }
}
