//! A part of the log in another directory, for a copy of the database.
//!
//! ```text
//! log-0 ✓✓✓✓  log-1 ✓✓✓✓✓  log-2 ✓✓ │ ✓✓      upto
//!             log-1 ✓✓✓✓✓  log-2 ✓✓ W           the copy, closed by a witness
//! ```
//!
//! Segments are copied, never linked: their files are written to and reused. Records are copied one by one,
//! so that a damaged one is found now and not when the copy is needed. The last segment ends with its last
//! record; the next segment of the copy's log continues from there.

use std::path::Path;
use std::sync::Arc;

use ropewalk_base::{Lsn, Seq};
use ropewalk_vfs::{Env, File, OpenMode};

use crate::error::{Result, io};
use crate::format::{Kind, SEGMENT_HEADER_BYTES, SegmentHeader, encode_record, record_bytes};
use crate::segment::{Segment, Window};

/// Bytes written at once.
const WRITE_BYTES: usize = 1 << 20;
/// Files end where pages do.
const FILE_ALIGNMENT: u64 = 4096;

/// Result of a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogCopy {
    /// Number of the last commit.
    pub seq: Seq,
    /// Number of files.
    pub files: u64,
    /// Total length of the files.
    pub bytes: u64,
}

/// A file that is written from its beginning to its end.
struct Target<'a> {
    path: &'a Path,
    file: Arc<dyn File>,
    buffer: Vec<u8>,
    at: u64,
}

impl Target<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() < WRITE_BYTES { Ok(()) } else { self.write() }
    }

    fn write(&mut self) -> Result<()> {
        self.file.write_all_at(&self.buffer, self.at).map_err(io("write", self.path))?;
        self.at += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Fills up with zeros and syncs.
    fn finish(mut self, bytes: u64) -> Result<()> {
        let rest = bytes.checked_sub(self.at + self.buffer.len() as u64);
        let rest = rest.expect("a copied segment has room for its records and the mark");
        self.buffer.resize(self.buffer.len() + rest as usize, 0);
        self.write()?;
        self.file.sync_data().map_err(io("sync", self.path))
    }
}

/// Copies `segments`, of which the last one holds `upto`.
pub(crate) fn copy(
    env: &Env,
    dir: &Path,
    segments: &[Arc<Segment>],
    seed: u32,
    upto: Lsn,
) -> Result<LogCopy> {
    let mut copied = LogCopy::default();
    for (index, segment) in segments.iter().enumerate() {
        let next = segments.get(index + 1);
        let end = next.map_or(upto, |next| next.start());
        let (seq, bytes) = copy_segment(env, dir, segment, seed, end, next.is_none())?;
        copied = LogCopy { seq, files: copied.files + 1, bytes: copied.bytes + bytes };
    }
    env.vfs.sync_dir(dir).map_err(io("sync directory", dir))?;
    Ok(copied)
}

/// Returns the last commit and the length of the new file.
fn copy_segment(
    env: &Env,
    dir: &Path,
    segment: &Arc<Segment>,
    seed: u32,
    end: Lsn,
    is_last: bool,
) -> Result<(Seq, u64)> {
    let witness = if is_last { record_bytes(0) } else { 0 };
    let used = SEGMENT_HEADER_BYTES + (end.0 - segment.start().0) + witness;
    let bytes = used.next_multiple_of(FILE_ALIGNMENT);
    let path = dir.join(Segment::name(segment.start()));
    let file = env.vfs.open(&path, OpenMode::CreateNew).map_err(io("create", &path))?;
    let mut target = Target { path: &path, file, buffer: Vec::new(), at: 0 };
    target.put(&SegmentHeader { bytes, ..segment.header }.encode())?;
    let mut window = Window::new(segment.clone());
    let (mut at, mut seq, mut sealed) = (segment.start(), segment.header.seq, false);
    while at < end {
        let header = window.record(seed, at, end)?.map_err(|what| segment.corrupt(at, what))?;
        target.put(window.whole(&header))?;
        (at, seq, sealed) = (header.next(), header.seq, header.kind == Kind::Seal);
    }
    debug_assert_eq!(at, end, "no record crosses the end of what is copied");
    if is_last && !sealed {
        let mut mark = Vec::new();
        encode_record(&mut mark, seed, Kind::Mark, end, seq, end, &[]);
        target.put(&mark)?;
    }
    target.finish(bytes)?;
    Ok((seq, bytes))
}
