//! The change feed: every commit in order, once, from any `Seq` that the log still holds.
//!
//! The log is the feed: nothing is written twice, and a reader that stops and comes back with the number of the last
//! commit it handled misses nothing. Delivered are commits that are visible and handed to the operating system.

use core::time::Duration;
use std::sync::Arc;

use ropewalk_base::{Lsn, Seq};
use ropewalk_log::LogReader;

use crate::commit::Core;
use crate::error::EngineError;
use crate::record::RecordBody;

/// Reads commits in order. See [`crate::Engine::changes`].
pub struct ChangeFeed {
    core: Arc<Core>,
    reader: Box<dyn LogReader>,
    /// The next commit to deliver.
    next: Seq,
    /// True once the reader stands at `next`.
    positioned: bool,
}

/// One commit.
pub struct Change<'a> {
    /// Its number.
    pub seq: Seq,
    /// Its address in the log.
    pub lsn: Lsn,
    /// What it wrote.
    pub body: RecordBody<'a>,
}

impl ChangeFeed {
    pub(crate) fn new(core: Arc<Core>, from: Seq) -> Result<Self, EngineError> {
        let reader = core.log.read(core.log.oldest())?;
        Ok(Self { core, reader, next: Seq(from.0.max(1)), positioned: false })
    }

    /// The number of the commit that comes next.
    pub fn next_seq(&self) -> Seq {
        self.next
    }

    /// The next commit, or `None` when there is none now.
    ///
    /// # Errors
    /// [`EngineError::FeedTrimmed`] when the log no longer holds it; damage.
    #[allow(clippy::should_implement_trait)] // the change borrows from the feed
    pub fn next(&mut self) -> Result<Option<Change<'_>>, EngineError> {
        let core = self.core.clone();
        // After a failed sync nobody knows what the unsynced end of the log holds.
        self.read_next().map_err(|error| core.stopped().unwrap_or(error))
    }

    fn read_next(&mut self) -> Result<Option<Change<'_>>, EngineError> {
        if self.next > self.core.versions.visible() {
            return Ok(None);
        }
        while !self.positioned {
            // Read up to the commit before the wanted one, so that the borrow of the wanted one can be returned.
            let Some(found) = self.reader.next()? else { return Ok(None) };
            if found.seq > self.next {
                return Err(EngineError::FeedTrimmed { asked: self.next, oldest: found.seq });
            }
            if found.seq == self.next {
                // The first record read is the wanted one: start over from its own address.
                let lsn = found.lsn;
                self.reader = self.core.log.read(lsn)?;
                self.positioned = true;
            }
        }
        let Some(found) = self.reader.next()? else { return Ok(None) };
        self.next = found.seq.next();
        let (seq, lsn) = (found.seq, found.lsn);
        let body =
            RecordBody::decode(found.payload).map_err(|source| EngineError::Record { seq, lsn, source })?;
        Ok(Some(Change { seq, lsn, body }))
    }

    /// Waits until there may be a next commit, at most `timeout`. May return early.
    pub fn wait(&self, timeout: Duration) {
        self.core.wait_published(self.next, timeout);
    }
}
