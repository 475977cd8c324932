//! Destination of a load's entries: runs that bypass the log, or the log.
//!
//! ```text
//!                ┌─ runs ─▶ RunWriter ─▶ files that `Engine::ingest` installs
//! EntryWriter ───┤
//!                └─ log ──▶ commits of at most 512 KiB             (`EngineOptions::log_everything`)
//! ```
//! In both cases the entries belong to declared objects that no definition names, so no other transaction
//! reads them before the load's commit. The commits of entries are `Buffered`: the load's commit, which
//! comes after them in the log, makes them as durable as itself.

use std::sync::Arc;

use crate::error::Result;

use ropewalk_base::Seq;
use ropewalk_engine::{Durability, Engine, EngineError, Keyspace, KvBatch, NewRun, RunWriter};

/// Bytes of one commit of a load through the log; a larger entry has its own commit. Services that replicate
/// logs limit a message to a megabyte.
const COMMIT_BYTES_MAX: usize = 512 << 10;
/// Bytes of a write in a record in addition to key and value, at most.
const WRITE_OVERHEAD: usize = 16;

/// Writes entries in key order. Dropping it before [`EntryWriter::finish`] leaves those in earlier commits to
/// the clean-up of the load.
pub(crate) enum EntryWriter {
    Runs(Box<RunWriter>),
    Log(Box<LogWriter>),
}

/// Collects the entries of one commit.
pub(crate) struct LogWriter {
    engine: Arc<Engine>,
    keyspace: Keyspace,
    batch: KvBatch,
    bytes: usize,
}

impl EntryWriter {
    /// `alone`: the keys lie in no other source.
    pub(crate) fn new(engine: &Arc<Engine>, keyspace: Keyspace, alone: bool) -> Result<Self, EngineError> {
        if engine.logs_everything() {
            let (engine, batch) = (engine.clone(), KvBatch::new());
            return Ok(Self::Log(Box::new(LogWriter { engine, keyspace, batch, bytes: 0 })));
        }
        Ok(Self::Runs(Box::new(engine.run_writer(keyspace, alone)?)))
    }

    /// Adds an entry with a key greater than the previous one.
    #[inline]
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        match self {
            Self::Runs(writer) => Ok(writer.add(key, Seq::ZERO, Some(value))?),
            Self::Log(writer) => writer.add(key, value),
        }
    }

    /// Finishes. Returns the runs to ingest; entries in the log are readable already.
    pub(crate) fn finish(self) -> Result<Vec<NewRun>> {
        match self {
            Self::Runs(writer) => Ok(writer.finish()?),
            Self::Log(mut writer) => writer.commit().map(|()| Vec::new()),
        }
    }
}

impl LogWriter {
    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let bytes = key.len() + value.len() + WRITE_OVERHEAD;
        if self.bytes + bytes > COMMIT_BYTES_MAX {
            self.commit()?;
        }
        self.batch.put(self.keyspace, key, value);
        self.bytes += bytes;
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        self.bytes = 0;
        let batch = std::mem::replace(&mut self.batch, KvBatch::new());
        if batch.is_empty() {
            return Ok(());
        }
        let committed = self.engine.commit(vec![Box::new(batch)], Durability::Buffered);
        committed.map_err(EngineError::from)?;
        Ok(())
    }
}
