//! The change feed: every commit in order, once, from any `Seq` that the log still holds.
//!
//! The log is the feed: nothing is written twice, and a reader that stops and comes back with the number of the last
//! commit it handled misses nothing. Delivered are commits that are visible and handed to the operating system.

use core::time::Duration;
use std::sync::Arc;

use ropewalk_base::{Lsn, Seq};
use ropewalk_log::{LogError, LogReader};

use crate::commit::Core;
use crate::commit::record::RecordBody;
use crate::error::{EngineError, Result};

/// Reads commits in order. See [`crate::engine::Engine::changes`].
pub struct ChangeFeed {
    core: Arc<Core>,
    /// Made when the first commit is there: the log may be trimmed while the feed waits for it.
    reader: Option<Box<dyn LogReader>>,
    /// The next commit to deliver.
    next: Seq,
    /// The next record that the reader gives is `next`, at this address or after it.
    at: Option<Lsn>,
}

/// One commit.
pub struct Change<'a> {
    /// Its number.
    pub seq: Seq,
    /// Its address in the log.
    pub lsn: Lsn,
    /// Its writes, section by section.
    pub body: RecordBody<'a>,
}

/// Where a record lies that was read on the way to a commit.
enum Step {
    Skipped,
    There,
    NotFlushed,
}

impl ChangeFeed {
    pub(crate) fn new(core: Arc<Core>, from: Seq) -> Self {
        Self { core, reader: None, next: Seq(from.0.max(1)), at: None }
    }

    /// The number of the next commit.
    pub fn next_seq(&self) -> Seq {
        self.next
    }

    /// The next commit, or `None` when no further commit is available yet.
    ///
    /// # Errors
    /// [`EngineError::FeedTrimmed`] when the log no longer holds it; damage.
    #[allow(clippy::should_implement_trait)] // the change borrows from the feed
    pub fn next(&mut self) -> Result<Option<Change<'_>>> {
        let core = self.core.clone();
        // After a failed sync the contents of the log's unsynced end are unknown.
        self.read_next().map_err(|error| core.stopped().unwrap_or(error))
    }

    fn read_next(&mut self) -> Result<Option<Change<'_>>> {
        if self.next > self.core.versions.visible() {
            return Ok(None);
        }
        // Between two commits a reader may wait at the end of a segment that is trimmed meanwhile.
        let stays = self.at.is_some_and(|at| at >= self.core.log.oldest());
        if !stays && !self.position()? {
            return Ok(None);
        }
        let (core, asked) = (&self.core, self.next);
        let reader = self.reader.as_mut().expect("positioning makes a reader");
        let Some(found) = reader.next().map_err(|error| not_there(core, asked, error))? else {
            return Ok(None);
        };
        self.next = found.seq.next();
        self.at = Some(found.next);
        let (seq, lsn) = (found.seq, found.lsn);
        let body =
            RecordBody::decode(found.payload).map_err(|source| EngineError::Record { seq, lsn, source })?;
        Ok(Some(Change { seq, lsn, body }))
    }

    /// Moves the reader to the next commit, so that the borrow of that one can be returned. False when it is not flushed yet.
    fn position(&mut self) -> Result<bool> {
        if self.at.take().is_some() {
            self.reader = None;
        }
        loop {
            match self.step() {
                Ok(Step::Skipped) => {}
                Ok(Step::There) => return Ok(true),
                Ok(Step::NotFlushed) => return Ok(false),
                // The segment held no wanted commit, or the wanted one is gone: the log tells which.
                Err(EngineError::Log(error)) if matches!(*error, LogError::Trimmed { .. }) => {
                    self.reader = None
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads one record on the way to the next commit.
    fn step(&mut self) -> Result<Step> {
        let reader = match &mut self.reader {
            Some(reader) => reader,
            none => none.insert(reader_before(&self.core, self.next)?),
        };
        let Some(found) = reader.next()? else { return Ok(Step::NotFlushed) };
        if found.seq < self.next {
            return Ok(Step::Skipped);
        }
        assert!(found.seq == self.next, "a log has each commit after the one that its segment begins with");
        let lsn = found.lsn;
        self.reader = Some(self.core.log.read(lsn)?);
        self.at = Some(lsn);
        Ok(Step::There)
    }

    /// Waits until there may be a next commit, at most `timeout`. May return early.
    pub fn wait(&self, timeout: Duration) {
        self.core.wait_published(self.next, timeout);
    }
}

/// Reads records from a place before the commit `asked`.
fn reader_before(core: &Core, asked: Seq) -> Result<Box<dyn LogReader>> {
    let (before, reader) = core.log.read_near(asked);
    if before < asked { Ok(reader) } else { Err(EngineError::FeedTrimmed { asked, oldest: before.next() }) }
}

/// `error`, or that the log no longer holds the commit `asked`.
fn not_there(core: &Core, asked: Seq, error: LogError) -> EngineError {
    let trimmed = matches!(error, LogError::Trimmed { .. });
    reader_before(core, asked).err().filter(|_| trimmed).unwrap_or_else(|| error.into())
}
