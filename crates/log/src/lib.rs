//! The commit log: one sequence of records, numbered without gaps, that holds all changes in commit order.
//!
//! ```text
//! append ──▶ memory ──flush──▶ operating system ──barrier──▶ disk            addresses (LSN) only grow:
//!          tail()            flushed()                    durable()          durable ≤ flushed ≤ tail
//! ```
//!
//! [`CommitLog`] is the trait the engine is written against; [`LocalLog`] is the log in a local directory.
//! The trait has no notion of files, so that a log stored elsewhere can replace the local one.
//!
//! Invariants of the local log
//! 1. Records below `durable()` survive any crash; a record returned by a reader was at least flushed.
//! 2. `append` touches memory only: it never waits for a write or a sync of another thread.
//! 3. After a failed write or sync nothing is accepted until the log is reopened; a sync is never tried again, because
//!    a second one may succeed without having written anything (Rebello et al., USENIX ATC 2020).
//! 4. Recovery cuts only records that were never known to be durable, and refuses to open after any other
//!    damage.
//!
//! Reading order: [`mod@format`] (bytes), `segment` (one file), `pool` (spare files), `local` (append, flush, barrier, roll,
//! trim), `reader`, `copy` (a part of the log in another directory), `recover` (torn or corrupted?),
//! `salvage` (repair after corruption), [`shared`] (a log that nodes share, with a local copy).

mod copy;
mod error;
pub mod format;
mod local;
mod pool;
mod reader;
mod recover;
mod salvage;
mod segment;
pub mod shared;

use std::fmt;
use std::path::Path;

use crate::error::Result;

use ropewalk_base::{Lsn, Seq, hex};

pub use copy::LogCopy;
pub use error::{LogError, ReplayError};
pub use local::{Extent, LocalLog, LogOptions};
pub use recover::{Recovery, TornTail};
pub use salvage::{Damage, inspect, salvage};

/// Name of one incarnation of a log, drawn at random when it is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LogId(pub [u8; 16]);

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// Limits of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLimits {
    /// Largest payload of one record, in bytes.
    pub record_bytes_max: u64,
}

/// A record to append.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// Commit number: exactly one more than the record before.
    pub seq: Seq,
    /// Any bytes, possibly none.
    pub payload: &'a [u8],
}

/// A record that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found<'a> {
    /// Its address.
    pub lsn: Lsn,
    /// Its commit number.
    pub seq: Seq,
    /// Payload.
    pub payload: &'a [u8],
    /// Address after it: where a reader or a checkpoint continues.
    pub next: Lsn,
}

/// Counters since the log was opened, and the files it has now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogStats {
    /// Bytes of records appended, headers and padding included.
    pub appended_bytes: u64,
    /// Bytes handed to the operating system, segment headers included, preallocated zeros not.
    pub written_bytes: u64,
    /// Data syncs of segments.
    pub syncs: u64,
    /// Time of these syncs, nanoseconds.
    pub sync_nanos: u64,
    /// Switches to a new segment.
    pub rolls: u64,
    /// Segments in use.
    pub segments: u64,
    /// Prepared segments waiting for a roll.
    pub spare_segments: u64,
}

/// A durable sequence of records with fencing: each append states the tail that the writer expects.
pub trait CommitLog: Send + Sync {
    /// Name and incarnation; changes when the log is created again.
    fn identity(&self) -> LogId;
    /// Limits of a record.
    fn limits(&self) -> LogLimits;
    /// End of the appended records.
    fn tail(&self) -> Lsn;
    /// End of the records written to the operating system: survives the process, not the machine.
    fn flushed(&self) -> Lsn;
    /// End of the synced records: survives a crash of the machine.
    fn durable(&self) -> Lsn;
    /// Takes all `records` or none into the log's memory and returns the new tail. After a crash any number
    /// of them, counted from the first, may be there: records that must stay together belong into one record.
    ///
    /// Cost: one copy and one checksum; never waits for the disk.
    ///
    /// # Errors
    /// [`LogError::Fenced`] if the tail is not `expected_tail`; [`LogError::OutOfOrder`], [`LogError::TooLarge`],
    /// [`LogError::Sealed`], [`LogError::Stopped`]. Nothing was appended.
    fn append(&self, records: &[Record<'_>], expected_tail: Lsn) -> Result<Lsn>;
    /// Hands everything appended to the operating system and returns the flushed tail. No sync, unless a segment is
    /// full.
    ///
    /// # Errors
    /// [`LogError::Io`] the first time, [`LogError::Stopped`] from then on.
    fn flush(&self) -> Result<Lsn>;
    /// Flushes and syncs; returns the durable tail, which covers at least what was appended before the call. Callers
    /// that wait for a running barrier share the next one.
    ///
    /// # Errors
    /// [`LogError::Io`] the first time, [`LogError::Stopped`] from then on.
    fn barrier(&self) -> Result<Lsn>;
    /// Makes everything appended as safe as an acknowledgement promises: durable in this log, or, if nodes share it, in
    /// the shared log. Only after that may readers see it.
    ///
    /// # Errors
    /// As [`CommitLog::barrier`]; of a shared log also [`LogError::Deposed`] and [`LogError::Unknown`].
    fn acknowledge(&self) -> Result<()> {
        self.barrier().map(|_| ())
    }
    /// True when nodes share the log: then each commit waits for [`CommitLog::acknowledge`], whatever durability it has.
    fn is_shared(&self) -> bool {
        false
    }
    /// A barrier, followed by a durable mark that the last record was durable; returns the new tail. The last
    /// group has no later record that confirms it, and corruption in it would pass for a torn tail. For a
    /// clean close, and when the log becomes idle.
    ///
    /// # Errors
    /// [`LogError::Fenced`] if the tail is not `expected_tail`; as [`CommitLog::barrier`].
    fn write_durable_mark(&self, expected_tail: Lsn) -> Result<Lsn>;
    /// Reads flushed records, starting with the one at `from`: an address returned by `append`,
    /// [`Found::next`] or a replay.
    ///
    /// # Errors
    /// [`LogError::Trimmed`] below [`CommitLog::oldest`], [`LogError::Beyond`] after the tail.
    fn read(&self, from: Lsn) -> Result<Box<dyn LogReader>>;
    /// Reads flushed records from a place at most one segment before the commit `seq`, and returns the last
    /// commit before that place: it is `seq` or later when the log no longer holds `seq`. The caller skips
    /// earlier records.
    fn read_near(&self, seq: Seq) -> (Seq, Box<dyn LogReader>);
    /// First address that can be read.
    fn oldest(&self) -> Lsn;
    /// Drops everything below `upto`. The log may retain some of it when that is simpler.
    ///
    /// # Errors
    /// [`LogError::Io`]; the call may be repeated, unless it was a failed sync, which stops the log.
    fn trim(&self, upto: Lsn) -> Result<()>;
    /// Retains everything from [`CommitLog::oldest`] on while the returned hold lives: `trim` drops nothing
    /// meanwhile. Waits for another such hold, never for a writer.
    fn hold(&self) -> Box<dyn TrimGuard + '_>;
    /// Ends the log durably: nothing can be appended any more, also after reopening. Sealing twice is fine.
    ///
    /// # Errors
    /// As [`CommitLog::barrier`].
    fn seal(&self) -> Result<()>;
    /// Counters.
    fn stats(&self) -> LogStats;
    /// Does work ahead of time that a later append would otherwise do, such as making the next segment; true
    /// when it did some. For a background thread.
    ///
    /// # Errors
    /// [`LogError::Io`]; the log continues to work.
    fn prepare_spare(&self) -> Result<bool> {
        Ok(false)
    }
    /// Releases space that only makes later appends cheap.
    ///
    /// # Errors
    /// [`LogError::Io`]; the log continues to work.
    fn release_spares(&self) -> Result<()> {
        Ok(())
    }
}

/// A log that is not trimmed.
pub trait TrimGuard {
    /// Writes a local log into the directory `dir`, which exists and holds no log: this log from the segment
    /// of `from` on up to `upto`, an end of a durable record, closed by a mark that it was durable. Verifies
    /// every checksum. Durable when it returns, except for the name of `dir`. Cost: reads and writes those
    /// segments.
    ///
    /// # Errors
    /// [`LogError::Trimmed`] below [`CommitLog::oldest`]; [`LogError::Corrupt`]; [`LogError::Io`]. Files
    /// already written stay.
    fn copy_to(&self, dir: &Path, from: Lsn, upto: Lsn) -> Result<LogCopy>;
}

/// Reads records in order.
pub trait LogReader: Send {
    /// The next flushed record; `None` at the flushed end for now (a later call may return more) and forever
    /// at the end of a sealed log.
    ///
    /// # Errors
    /// [`LogError::Trimmed`] when the log was trimmed past this reader; [`LogError::Corrupt`], [`LogError::Io`]. The
    /// reader stays where it is.
    fn next(&mut self) -> Result<Option<Found<'_>>>;
}
