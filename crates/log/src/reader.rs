//! Reading records while others append and trim.
//!
//! A reader keeps its segment's file open and reads below `flushed` only, where bytes no longer change - except when
//! the segment is trimmed and its file becomes another segment. Then the record's own address no longer fits, and the
//! reader finds that the log's oldest address has passed it.

use std::sync::Arc;

use ropewalk_base::Lsn;

use crate::error::Result;
use crate::format::Kind;
use crate::local::Shared;
use crate::segment::{Segment, Window};
use crate::{Found, LogError, LogReader};

pub(crate) struct SegmentReader {
    shared: Arc<Shared>,
    window: Window,
    at: Lsn,
}

impl SegmentReader {
    pub(crate) fn new(shared: Arc<Shared>, at: Lsn) -> Result<Self> {
        let window = Window::new(shared.segment_at(at)?);
        Ok(Self { shared, window, at })
    }

    /// Reads from the start of `segment`.
    pub(crate) fn starting(shared: Arc<Shared>, segment: Arc<Segment>) -> Self {
        let at = segment.start();
        Self { shared, window: Window::new(segment), at }
    }

    /// Why there is no record here: damage, or the log was trimmed past the reader.
    fn refuse(&self, what: &'static str) -> LogError {
        let oldest = self.shared.oldest();
        if oldest > self.at {
            LogError::Trimmed { oldest }
        } else {
            self.window.segment.corrupt(self.at, what)
        }
    }
}

impl LogReader for SegmentReader {
    fn next(&mut self) -> Result<Option<Found<'_>>> {
        let header = loop {
            let flushed = self.shared.flushed();
            if self.at >= flushed {
                return Ok(None);
            }
            if self.window.segment.end() == self.at {
                self.window.turn_to(self.shared.segment_at(self.at)?);
            }
            let limit = self.window.segment.end().min(flushed);
            match self.window.record(self.shared.seed, self.at, limit)? {
                Ok(header) if header.kind == Kind::Seal => return Ok(None),
                Ok(header) => {
                    self.at = header.next();
                    if header.kind == Kind::Commit {
                        break header;
                    }
                }
                Err(what) => return Err(self.refuse(what)),
            }
        };
        let payload = self.window.payload(&header);
        Ok(Some(Found { lsn: header.lsn, seq: header.seq, payload, next: header.next() }))
    }
}
