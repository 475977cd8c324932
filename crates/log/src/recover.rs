//! Recovery: read the records, decide what the first invalid one means, and leave a log that ends cleanly.
//!
//! ```text
//!   ... ✓ ✓ ✓ X ? ? ✓ ? ✓      X: first address without a valid record
//!                     └─ states "everything below D was durable"
//! ```
//!
//! D > X: the record at X was durable once and is now invalid: corruption, refuse to open. A next segment
//! proves the same, because a segment is synced before its successor gets a header. So does a checkpoint
//! after X. Otherwise X was never known to be durable: writes of unsynced groups reached the disk in another
//! order, or not at all. They were never acknowledged as durable; the log is cut at X.
//!
//! Invariants
//! 1. Before the first append, everything after X is zeros, durably. Otherwise a stale record could follow a
//!    new record as long as the lost one at X; and a power cut in the middle of a new record could mix its
//!    sectors with those of the lost one and restore the old record.
//! 2. When `open` returns, everything it replayed is durable. Bytes whose durability no later record confirms
//!    are rewritten before the sync: after a failed sync the system may hold pages that it believes clean and
//!    the disk does not have.
//!
//! Cost: each open reads the rest of the last segment, 16 MiB at most by default, once when that is zeros.
//! Otherwise it searches it for records and overwrites what is not zero: once for a recycled segment.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ropewalk_base::{Lsn, Seq};
use ropewalk_vfs::Env;

use crate::error::{Result, io};
use crate::format::{ALIGNMENT, Kind, RECORD_HEADER_BYTES, RecordHeader, checksum_seed};
use crate::segment::{Segment, WINDOW_BYTES, Window};
use crate::{Found, LogError, ReplayError};

/// Findings of `open`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Commits replayed.
    pub records: u64,
    /// Their bytes in the log, headers and padding included.
    pub bytes: u64,
    /// The torn tail that was removed.
    pub cut: Option<TornTail>,
}

/// A torn tail: bytes of records that were never known to be durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornTail {
    /// The segment.
    pub path: PathBuf,
    /// Where in the file the log now ends.
    pub offset: u64,
    /// Bytes of complete or partial records after that offset; now zeros.
    pub bytes: u64,
}

/// The state of a log after its last valid record.
pub(crate) struct Recovered {
    pub tail: Lsn,
    pub seq: Seq,
    pub sealed: bool,
    /// The last record confirms that the one before it was durable.
    pub marked: bool,
    pub report: Recovery,
}

/// Opens the segments that start at `starts`, ascending, and joins them.
pub(crate) fn open_chain(env: &Env, dir: &Path, starts: &[Lsn]) -> Result<Vec<Arc<Segment>>> {
    let mut chain: Vec<Arc<Segment>> = Vec::with_capacity(starts.len());
    for &start in starts {
        let segment = Segment::open(env, dir, start)?;
        if let Some(before) = chain.last() {
            if before.header.id != segment.header.id {
                let what = "the segment belongs to another log";
                return Err(LogError::Foreign { path: segment.path, offset: 16, what });
            }
            if before.room_end() < start {
                return Err(LogError::Missing { dir: dir.to_owned(), lsn: before.room_end() });
            }
            before.close(start);
        }
        chain.push(Arc::new(segment));
    }
    Ok(chain)
}

/// The part of `chain` from the segment that holds `lsn`.
pub(crate) fn chain_from(chain: &[Arc<Segment>], lsn: Lsn) -> Option<&[Arc<Segment>]> {
    let after = chain.partition_point(|segment| segment.start() <= lsn);
    let rest = chain.get(after.checked_sub(1)?..)?;
    rest.first().filter(|segment| lsn <= segment.room_end())?;
    Some(rest)
}

/// Reads the valid records of a chain in order.
pub(crate) struct Walk<'a> {
    pub window: Window,
    rest: std::slice::Iter<'a, Arc<Segment>>,
    seed: u32,
    /// Where the next record is expected.
    pub at: Lsn,
    /// Number of the last record.
    pub seq: Seq,
    /// Everything below was durable, according to the records read so far.
    pub vouched: Lsn,
    /// True after the seal was read.
    pub sealed: bool,
    /// Why there is no record at `at`, once `next` returned `None`.
    pub reason: &'static str,
}

impl<'a> Walk<'a> {
    /// Starts at `at` in the first segment of `chain`, after record `seq`; `None` for an empty chain.
    pub(crate) fn new(chain: &'a [Arc<Segment>], at: Lsn, seq: Seq) -> Option<Self> {
        let (first, _) = chain.split_first()?;
        let window = Window::new(first.clone());
        let seed = checksum_seed(first.header.id);
        let mut rest = chain.iter();
        rest.next();
        Some(Self { window, rest, seed, at, seq, vouched: Lsn::ZERO, sealed: false, reason: "" })
    }

    /// The next valid record, or `None` where the valid ones end.
    ///
    /// # Errors
    /// [`LogError::Corrupt`] when a sequence number or a later segment shows that the log continues; `at`
    /// stays there.
    pub(crate) fn next(&mut self) -> Result<Option<RecordHeader>> {
        while self.at == self.window.segment.end() {
            let Some(next) = self.rest.next() else { return Ok(None) };
            self.window.turn_to(next.clone());
            if next.header.seq != self.seq {
                return Err(LogError::Corrupt {
                    path: next.path.clone(),
                    offset: 40,
                    what: "the segment does not continue the one before",
                });
            }
        }
        if self.sealed {
            self.reason = "the log is sealed";
            return Ok(None);
        }
        let segment = &self.window.segment;
        let limit = segment.end().min(segment.room_end());
        match self.window.record(self.seed, self.at, limit)? {
            Ok(header) if !header.continues(self.seq) => {
                Err(self.window.segment.corrupt(self.at, "the record's number does not continue the log"))
            }
            Ok(header) => {
                self.at = header.next();
                self.seq = header.seq;
                self.vouched = self.vouched.max(header.durable);
                self.sealed = header.kind == Kind::Seal;
                Ok(Some(header))
            }
            Err(reason) if self.window.segment.end() != Lsn::MAX => {
                Err(self.window.segment.corrupt(self.at, reason))
            }
            Err(reason) => {
                self.reason = reason;
                Ok(None)
            }
        }
    }
}

/// Replays the records from `from` on and leaves the log clean and durable after the last one.
pub(crate) fn recover(
    chain: &[Arc<Segment>],
    from: Lsn,
    seq: Seq,
    replay: &mut dyn FnMut(Found<'_>) -> Result<(), ReplayError>,
) -> Result<Option<Recovered>> {
    let Some((recovered, tail)) = examine(chain, from, seq, replay)? else { return Ok(None) };
    let cut = tail.settle(recovered.tail)?;
    Ok(Some(Recovered { report: Recovery { cut, ..recovered.report }, ..recovered }))
}

/// The read-only part of [`recover`]: finds the tail and proves that the log may end there. `None`: no segment holds `from`.
pub(crate) fn examine(
    chain: &[Arc<Segment>],
    from: Lsn,
    seq: Seq,
    replay: &mut dyn FnMut(Found<'_>) -> Result<(), ReplayError>,
) -> Result<Option<(Recovered, Tail)>> {
    let Some(chain) = chain_from(chain, from) else { return Ok(None) };
    let Some(mut walk) = Walk::new(chain, from, seq) else { return Ok(None) };
    let mut report = Recovery::default();
    // Without a record after the checkpoint, the checkpoint itself proves durability.
    let mut marked = true;
    while let Some(header) = walk.next()? {
        marked = header.kind != Kind::Commit;
        report.bytes += header.bytes();
        if header.kind == Kind::Commit {
            report.records += 1;
            let (lsn, seq, next) = (header.lsn, header.seq, header.next());
            replay(Found { lsn, seq, payload: walk.window.payload(&header), next })
                .map_err(|source| LogError::Replay { lsn, seq, source })?;
        }
    }
    let mut sealed = walk.sealed;
    if walk.at == from {
        sealed = reaches(chain, from, seq)?;
    }
    let segment = walk.window.segment.clone();
    let vouched = walk.vouched.max(from).max(segment.start());
    let is_blank = is_blank(&segment, walk.at)?;
    let ghosts_end = if is_blank { walk.at } else { find_ghosts(&segment, walk.seed, walk.at, walk.reason)? };
    let recovered = Recovered { tail: walk.at, seq: walk.seq, sealed, marked, report };
    Ok(Some((recovered, Tail { segment, vouched, is_blank, ghosts_end })))
}

/// Proves that the log reaches a checkpoint without records after it; returns whether it was sealed there.
fn reaches(chain: &[Arc<Segment>], from: Lsn, seq: Seq) -> Result<bool> {
    let Some(first) = chain.first() else { return Ok(false) };
    let Some(mut walk) = Walk::new(chain, first.start(), first.header.seq) else { return Ok(false) };
    while walk.at < from {
        if walk.next()?.is_none() {
            return Err(first.corrupt(walk.at, "the log breaks off before the checkpoint"));
        }
    }
    match () {
        () if walk.at != from => Err(first.corrupt(from, "the checkpoint is not at the end of a record")),
        () if walk.seq != seq => Err(first.corrupt(from, "the checkpoint's number is not the log's")),
        () => Ok(walk.sealed),
    }
}

/// True when the segment has only zeros from `at` on.
fn is_blank(segment: &Arc<Segment>, mut at: Lsn) -> Result<bool> {
    let mut window = Window::new(segment.clone());
    let end = segment.room_end();
    while let Some(len) = end.0.checked_sub(at.0).filter(|len| *len > 0) {
        let len = len.min(WINDOW_BYTES);
        let held = window.fill(at, len, end)?.and_then(|held| held.get(..len as usize));
        let held = held.expect("the window holds what ends at the limit");
        if held.iter().fold(0, |any, byte| any | byte) != 0 {
            return Ok(false);
        }
        at = Lsn(at.0 + len);
    }
    Ok(true)
}

/// End of the last valid record after `at`, or of the remains of one at `at`; `at` itself without any.
fn find_ghosts(segment: &Arc<Segment>, seed: u32, at: Lsn, reason: &'static str) -> Result<Lsn> {
    let mut end = at;
    let mut window = Window::new(segment.clone());
    if let Some(header) = window.fill(at, RECORD_HEADER_BYTES, segment.room_end())?
        && header.get(8..16) == Some(&at.0.to_le_bytes())
        && header.iter().take(RECORD_HEADER_BYTES as usize).any(|byte| *byte != 0)
    {
        end = Lsn(at.0 + RECORD_HEADER_BYTES);
    }
    let mut proof = false;
    scan(segment, seed, Lsn(at.0 + ALIGNMENT), segment.room_end(), |ghost| {
        end = end.max(ghost.next());
        proof |= ghost.durable > at;
    })?;
    if proof { Err(segment.corrupt(at, reason)) } else { Ok(end) }
}

/// Calls `visit` with every valid record that starts in `from .. limit`, at whatever multiple of 8.
pub(crate) fn scan(
    segment: &Arc<Segment>,
    seed: u32,
    from: Lsn,
    limit: Lsn,
    mut visit: impl FnMut(&RecordHeader),
) -> Result<()> {
    let (mut words, mut records) = (Window::new(segment.clone()), Window::new(segment.clone()));
    let mut at = from;
    while let Some(bytes) = words.fill(at, RECORD_HEADER_BYTES, limit)? {
        let held = bytes.len() as u64 / ALIGNMENT * ALIGNMENT;
        // A record at `a` has its own address in the second word, at `a + 8`.
        let mut addresses = (at.0..).step_by(ALIGNMENT as usize);
        let mut second_words = bytes.chunks_exact(ALIGNMENT as usize).skip(1);
        let candidate = second_words.find_map(|word| {
            let address = addresses.next()?;
            (word == address.to_le_bytes()).then_some(Lsn(address))
        });
        // Without a candidate the last word in the window was checked only as a second word.
        let Some(candidate) = candidate else {
            at = Lsn(at.0 + held - ALIGNMENT);
            continue;
        };
        at = match records.record(seed, candidate, limit)? {
            Ok(header) => {
                visit(&header);
                header.next()
            }
            Err(_) => Lsn(candidate.0 + ALIGNMENT),
        };
    }
    Ok(())
}

/// The last segment, about to be written to again.
pub(crate) struct Tail {
    segment: Arc<Segment>,
    vouched: Lsn,
    /// Everything after the last record is zeros.
    is_blank: bool,
    ghosts_end: Lsn,
}

impl Tail {
    /// Rewrites records whose durability no later record confirms, zeroes everything after `tail`, and syncs.
    fn settle(&self, tail: Lsn) -> Result<Option<TornTail>> {
        let Segment { path, file, .. } = &*self.segment;
        assert!(self.vouched <= tail, "a log is not cut before {}, up to which it was durable", self.vouched);
        assert!(
            tail <= self.ghosts_end && tail <= self.segment.room_end(),
            "the log ends in its last segment"
        );
        let zeros = vec![0; WINDOW_BYTES as usize];
        let mut window = Window::new(self.segment.clone());
        let (mut at, end) = (self.vouched, if self.is_blank { tail } else { self.segment.room_end() });
        let mut changed = false;
        while at < end {
            // In chunks, first up to the tail, then up to the end of the file.
            let limit = if at < tail { tail } else { end };
            let len = (limit.0 - at.0).min(WINDOW_BYTES);
            let held = window.fill(at, len, limit)?.and_then(|held| held.get(..len as usize));
            let held = held.expect("the window holds what ends at the limit");
            let bytes = if at < tail { held } else { zeros.get(..len as usize).expect("a window of zeros") };
            if at < tail || held.iter().fold(0, |any, byte| any | byte) != 0 {
                file.write_all_at(bytes, self.segment.offset(at)).map_err(io("write", path))?;
                changed = true;
            }
            at = Lsn(at.0 + len);
        }
        if changed {
            file.sync_data().map_err(io("sync", path))?;
        }
        let (offset, bytes) = (self.segment.offset(tail), self.ghosts_end.0 - tail.0);
        Ok((bytes > 0).then(|| TornTail { path: path.clone(), offset, bytes }))
    }
}
