//! One segment: a preallocated file with a header and then records, and a window to read them through.
//!
//! Addresses count record bytes only. A segment that starts at address `s` holds address `a` at byte `64 + a - s`, and
//! the next segment starts at exactly the address where this one's last record ends.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ropewalk_base::Lsn;
use ropewalk_vfs::{Env, File, OpenMode};

use crate::error::{Result, io};
use crate::format::{
    HeaderError, LSN_END, RECORD_HEADER_BYTES, RecordHeader, SEGMENT_HEADER_BYTES, SegmentHeader, VERSION,
    VERSION_OFFSET, checksum_matches,
};
use crate::{LogError, LogId};

/// Bytes read at once. Large enough that the system call does not show, small enough for many change feeds.
pub(crate) const WINDOW_BYTES: u64 = 256 << 10;

/// A segment in use.
pub(crate) struct Segment {
    pub path: PathBuf,
    pub file: Arc<dyn File>,
    pub header: SegmentHeader,
    /// Address where the next segment starts; `u64::MAX` while it is the last one.
    end: AtomicU64,
}

impl Segment {
    pub(crate) fn name(start: Lsn) -> String {
        format!("log-{:016x}.seg", start.0)
    }

    pub(crate) fn parse_name(name: &str) -> Option<Lsn> {
        let lsn = u64::from_str_radix(name.strip_prefix("log-")?.strip_suffix(".seg")?, 16).ok().map(Lsn)?;
        (lsn < LSN_END && Self::name(lsn) == name).then_some(lsn)
    }

    pub(crate) fn new(path: PathBuf, file: Arc<dyn File>, header: SegmentHeader) -> Self {
        Self { path, file, header, end: AtomicU64::new(u64::MAX) }
    }

    /// Opens the segment that starts at `start` and checks its header and length.
    pub(crate) fn open(env: &Env, dir: &Path, start: Lsn) -> Result<Self> {
        let path = dir.join(Self::name(start));
        let file = env.vfs.open(&path, OpenMode::ReadWrite).map_err(io("open", &path))?;
        let length = file.len().map_err(io("measure", &path))?;
        let corrupt = |offset, what| LogError::Corrupt { path: path.clone(), offset, what };
        if length < SEGMENT_HEADER_BYTES {
            return Err(corrupt(length, "the file ends inside the segment header"));
        }
        let mut bytes = [0; SEGMENT_HEADER_BYTES as usize];
        file.read_exact_at(&mut bytes, 0).map_err(io("read", &path))?;
        let header = SegmentHeader::decode(&bytes).map_err(|error| match error {
            HeaderError::Foreign => {
                LogError::Foreign { path: path.clone(), offset: 0, what: "not a Ropewalk log segment" }
            }
            HeaderError::Future(found) => {
                LogError::Future { path: path.clone(), offset: VERSION_OFFSET, found, supported: VERSION }
            }
            HeaderError::Damaged => corrupt(0, "damaged segment header"),
        })?;
        if header.start != start {
            return Err(corrupt(32, "the segment header disagrees with the file's name"));
        }
        if length < header.bytes {
            return Err(corrupt(length, "the file is shorter than its header says"));
        }
        Ok(Self::new(path, file, header))
    }

    pub(crate) fn start(&self) -> Lsn {
        self.header.start
    }

    pub(crate) fn end(&self) -> Lsn {
        Lsn(self.end.load(Ordering::Acquire))
    }

    pub(crate) fn close(&self, end: Lsn) {
        self.end.store(end.0, Ordering::Release);
    }

    /// End address of the space in the file.
    pub(crate) fn room_end(&self) -> Lsn {
        Lsn(self.start().0 + (self.header.bytes - SEGMENT_HEADER_BYTES))
    }

    pub(crate) fn offset(&self, lsn: Lsn) -> u64 {
        SEGMENT_HEADER_BYTES + (lsn.0 - self.start().0)
    }

    pub(crate) fn corrupt(&self, lsn: Lsn, what: &'static str) -> LogError {
        LogError::Corrupt { path: self.path.clone(), offset: self.offset(lsn), what }
    }
}

/// Bytes of one segment, read ahead.
pub(crate) struct Window {
    pub segment: Arc<Segment>,
    bytes: Vec<u8>,
    at: Lsn,
}

impl Window {
    pub(crate) fn new(segment: Arc<Segment>) -> Self {
        Self { segment, bytes: Vec::new(), at: Lsn::ZERO }
    }

    /// Switches to another segment and reuses the memory.
    pub(crate) fn turn_to(&mut self, segment: Arc<Segment>) {
        self.segment = segment;
        self.bytes.clear();
    }

    /// At least `len` bytes at `lsn`, with the bytes in memory after them; `None` when `len` crosses `limit`.
    /// Reads ahead up to `limit` and no further, so bytes that are still being written never enter the
    /// window.
    pub(crate) fn fill(&mut self, lsn: Lsn, len: u64, limit: Lsn) -> Result<Option<&[u8]>> {
        if limit.0.saturating_sub(lsn.0) < len {
            return Ok(None);
        }
        if self.held(lsn).is_none_or(|held| (held.len() as u64) < len) {
            let ahead = len.max(WINDOW_BYTES).min(limit.0 - lsn.0);
            self.bytes.resize(ahead as usize, 0);
            // One huge record must not hold its memory forever.
            self.bytes.shrink_to(ahead.max(WINDOW_BYTES) as usize);
            self.at = lsn;
            let read = self.segment.file.read_exact_at(&mut self.bytes, self.segment.offset(lsn));
            if let Err(error) = read {
                self.bytes.clear();
                return Err(io("read", &self.segment.path)(error));
            }
        }
        Ok(self.held(lsn))
    }

    fn held(&self, lsn: Lsn) -> Option<&[u8]> {
        self.bytes.get(lsn.0.checked_sub(self.at.0)? as usize..)
    }

    /// The complete valid record at `lsn`, or the reason why no valid record below `limit` starts there.
    pub(crate) fn record(
        &mut self,
        seed: u32,
        lsn: Lsn,
        limit: Lsn,
    ) -> Result<Result<RecordHeader, &'static str>> {
        let Some(header) = self.fill(lsn, RECORD_HEADER_BYTES, limit)?.and_then(|h| h.first_chunk()) else {
            return Ok(Err("no room for a record header"));
        };
        let header = match RecordHeader::decode(header, lsn) {
            Ok(header) => header,
            Err(what) => return Ok(Err(what)),
        };
        let held = self.fill(lsn, header.bytes(), limit)?;
        let Some(bytes) = held.and_then(|held| held.get(..header.bytes() as usize)) else {
            return Ok(Err("the record's length leaves its segment"));
        };
        Ok(if checksum_matches(seed, bytes) { Ok(header) } else { Err("record checksum mismatch") })
    }

    /// The complete record that was just checked.
    pub(crate) fn whole(&self, header: &RecordHeader) -> &[u8] {
        let held = self.held(header.lsn);
        held.and_then(|held| held.get(..header.bytes() as usize)).expect("a checked record is in the window")
    }

    /// The payload of the record that was just checked.
    pub(crate) fn payload(&self, header: &RecordHeader) -> &[u8] {
        let held = self.held(Lsn(header.lsn.0 + RECORD_HEADER_BYTES));
        held.and_then(|held| held.get(..header.len as usize)).expect("a checked record is in the window")
    }
}

/// Draws the name of a new log.
pub(crate) fn new_id(env: &Env) -> LogId {
    let mut id = [0; 16];
    let (low, high) = id.split_at_mut(8);
    low.copy_from_slice(&env.random.next_u64().to_le_bytes());
    high.copy_from_slice(&env.random.next_u64().to_le_bytes());
    LogId(id)
}
