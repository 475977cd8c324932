//! Repair of a log that fails to open: report the loss, preserve every byte, and end the log before the
//! damage.
//!
//! ```text
//!   live ✓ ✓ ✓ ✓ ✗ ? ✓ ✓ │ ✓ ✓ ✓      a log has no gaps, so no record after ✗ can stay, readable or not:
//!                └ cut    └ next       they are counted and copied to `*.damaged` files
//! ```
//!
//! Records are self-verifying (address, number, checksum with the log's id), so a corrupted segment header
//! alone loses nothing. Damaged segments are rebuilt: the readable records go into a new file, which then
//! takes the old one's name. If interrupted, the log either still fails to open, and salvage starts again, or
//! is complete.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ropewalk_base::{Lsn, Seq};
use ropewalk_vfs::{Env, OpenMode};

use crate::error::{Result, io};
use crate::format::{
    ALIGNMENT, HeaderError, Kind, LSN_END, SEGMENT_HEADER_BYTES, SegmentHeader, VERSION, VERSION_OFFSET,
    checksum_seed,
};
use crate::pool::Pool;
use crate::recover::{examine, open_chain, scan};
use crate::segment::{Segment, WINDOW_BYTES, Window, new_id};
use crate::{LogError, LogId};

/// Damage in a log, and the result of [`salvage`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Why the log does not open.
    pub refusal: String,
    /// Where the log ends after the salvage.
    pub tail: Lsn,
    /// Last commit that remains; the checkpoint's when no later one can be read.
    pub seq: Seq,
    /// Numbers of later commits that cannot be read. Commits after the last readable one are unknown.
    pub unreadable: Vec<RangeInclusive<u64>>,
    /// Later commits that can be read but are dropped, because some before them are missing.
    pub cut_off: u64,
    /// Copies of the damaged segments and of the segments after them; empty before the salvage.
    pub set_aside: Vec<PathBuf>,
}

/// Reports the damage in the log in `dir` without changing anything; `None` when it opens. `from` and `seq`
/// are the checkpoint, as in [`LocalLog::open`](crate::LocalLog::open). With `before`, the log is to end
/// before that commit at the latest, for a record that is intact and that its reader cannot apply.
///
/// # Errors
/// [`LogError::Checkpointed`] when `before` is not after `seq`; [`LogError::Io`]; [`LogError::Future`], since
/// the format of a newer version is not damage; [`LogError::Missing`] when no log can have the address
/// `from`.
pub fn inspect(env: &Env, dir: &Path, from: Lsn, seq: Seq, before: Option<Seq>) -> Result<Option<Damage>> {
    Ok(survey(env, dir, (from, seq), before)?.map(|plan| plan.damage))
}

/// Ends the log in `dir` before its damage, and before the commit `before`, so that it opens again; `None`
/// when it opens as it is. The removed part stays in files named `*.damaged`, which the log never touches
/// again.
///
/// # Errors
/// As [`inspect`]. May be repeated.
pub fn salvage(env: &Env, dir: &Path, from: Lsn, seq: Seq, before: Option<Seq>) -> Result<Option<Damage>> {
    let Some(mut plan) = survey(env, dir, (from, seq), before)? else { return Ok(None) };
    let names = env.vfs.list(dir).map_err(io("list", dir))?;
    let pool = Pool::open(env, dir.to_owned(), &names, usize::MAX)?;
    for rebuild in &plan.rebuild {
        // A segment under another address keeps its file, which is renamed below.
        if let Some(segment) = rebuild.source.as_ref().filter(|segment| segment.start() == rebuild.start) {
            plan.damage.set_aside.push(copy_aside(env, segment)?);
        }
        rebuild.run(&pool, plan.id)?;
    }
    for path in &plan.aside {
        let to = free_name(env, path)?;
        env.vfs.rename(path, &to).map_err(io("rename", path))?;
        plan.damage.set_aside.push(to);
    }
    pool.sync_names()?;
    Ok(Some(plan.damage))
}

struct Plan {
    damage: Damage,
    id: LogId,
    rebuild: Vec<Rebuild>,
    /// Segments to rename.
    aside: Vec<PathBuf>,
}

/// A segment to be rewritten, with the records `start .. end` of the damaged one.
struct Rebuild {
    source: Option<Arc<Segment>>,
    start: Lsn,
    seq: Seq,
    end: Lsn,
}

impl Rebuild {
    fn run(&self, pool: &Pool, id: LogId) -> Result<()> {
        let needed = SEGMENT_HEADER_BYTES + (self.end.0 - self.start.0);
        let before = self.source.as_ref().map_or(0, |segment| segment.header.bytes);
        let spare = pool.make(needed.max(before).next_multiple_of(4096))?;
        if let Some(source) = &self.source {
            let mut at = self.start;
            while at < self.end {
                let mut bytes = vec![0; (self.end.0 - at.0).min(WINDOW_BYTES) as usize];
                let read = source.file.read_exact_at(&mut bytes, source.offset(at));
                read.map_err(io("read", &source.path))?;
                spare.write(&bytes, SEGMENT_HEADER_BYTES + (at.0 - self.start.0))?;
                at = Lsn(at.0 + bytes.len() as u64);
            }
        }
        // Installing syncs the records together with the header.
        pool.install(spare, SegmentHeader { id, start: self.start, seq: self.seq, bytes: 0 }).map(|_| ())
    }
}

fn survey(env: &Env, dir: &Path, (from, seq): (Lsn, Seq), before: Option<Seq>) -> Result<Option<Plan>> {
    if let Some(before) = before.filter(|before| *before <= seq) {
        return Err(LogError::Checkpointed { before, checkpoint: seq });
    }
    if !from.0.is_multiple_of(ALIGNMENT) || from >= LSN_END {
        return Err(LogError::Missing { dir: dir.to_owned(), lsn: from });
    }
    let names = env.vfs.list(dir).map_err(io("list", dir))?;
    let starts: BTreeSet<Lsn> = names.iter().filter_map(|name| Segment::parse_name(name)).collect();
    let starts: Vec<Lsn> = starts.into_iter().collect();
    let refusal =
        match open_chain(env, dir, &starts).and_then(|chain| examine(&chain, from, seq, &mut |_| Ok(()))) {
            Ok(Some((found, _))) => match before.filter(|before| *before <= found.seq) {
                Some(before) => format!("the log is to end before commit {before}"),
                None => return Ok(None),
            },
            Ok(None) => LogError::Missing { dir: dir.to_owned(), lsn: from }.to_string(),
            Err(error @ (LogError::Io { .. } | LogError::Future { .. })) => return Err(error),
            Err(error) => error.to_string(),
        };
    let (id, pieces) = open_pieces(env, dir, &starts, from)?;
    let line = Line { at: from, seq, before, rebuild: Vec::new(), aside: Vec::new() };
    Ok(Some(plan(id, &pieces, line, refusal)?))
}

/// A segment that may be damaged.
struct Piece {
    segment: Arc<Segment>,
    healthy: bool,
}

/// Opens every segment as far as it can be read, and determines the log they belong to.
fn open_pieces(env: &Env, dir: &Path, starts: &[Lsn], from: Lsn) -> Result<(LogId, Vec<Piece>)> {
    let mut files = Vec::new();
    for &start in starts {
        let path = dir.join(Segment::name(start));
        let file = env.vfs.open(&path, OpenMode::Read).map_err(io("open", &path))?;
        let length = file.len().map_err(io("measure", &path))?;
        let mut bytes = [0; SEGMENT_HEADER_BYTES as usize];
        if length >= SEGMENT_HEADER_BYTES {
            file.read_exact_at(&mut bytes, 0).map_err(io("read", &path))?;
        }
        let header = SegmentHeader::decode(&bytes);
        if let Err(HeaderError::Future(found)) = header {
            return Err(LogError::Future { path, offset: VERSION_OFFSET, found, supported: VERSION });
        }
        files.push((start, path, file, length, bytes, header.ok()));
    }
    // The segment of the checkpoint is the most reliable, then the later ones. A damaged header may still
    // show the id.
    let by_trust = || {
        let (before, after) =
            files.split_at(starts.partition_point(|start| *start <= from).saturating_sub(1));
        after.iter().chain(before)
    };
    let sound = by_trust().find_map(|file| file.5.map(|header| header.id));
    let visible = || by_trust().find_map(|file| file.4.get(16..32)?.first_chunk().copied().map(LogId));
    let id = sound.or_else(visible).unwrap_or_else(|| new_id(env));
    let pieces = files.into_iter().map(|(start, path, file, length, _, header)| {
        let sound = header.filter(|header| header.id == id && header.start == start);
        let healthy = sound.is_some_and(|header| length >= header.bytes);
        let guess = SegmentHeader { id, start, seq: Seq::MAX, bytes: length };
        let header = sound.unwrap_or(guess);
        let bytes = header.bytes.min(length).max(SEGMENT_HEADER_BYTES);
        Piece { segment: Arc::new(Segment::new(path, file, SegmentHeader { bytes, ..header })), healthy }
    });
    let pieces: Vec<Piece> = pieces.collect();
    for (piece, next) in pieces.iter().zip(pieces.iter().skip(1)) {
        piece.segment.close(next.segment.start());
    }
    Ok((id, pieces))
}

/// Follows the records as far as they are valid, and decides the fate of each segment.
fn plan(id: LogId, pieces: &[Piece], mut line: Line, refusal: String) -> Result<Plan> {
    let (seed, from, seq) = (checksum_seed(id), line.at, line.seq);
    let after = pieces.partition_point(|piece| piece.segment.start() <= from);
    let (before, rest) = pieces.split_at_checked(after.saturating_sub(1)).unwrap_or_default();
    let mut rest = rest.iter();
    let mut stopped_in = None;
    if after == 0 {
        line.rebuild.push(Rebuild { source: None, start: from, seq, end: from });
    } else if let Some(first) = rest.next() {
        stopped_in = line.first(seed, first, before)?;
        while stopped_in.is_none()
            && let Some(piece) = rest.next()
        {
            stopped_in = line.follow(seed, piece)?;
        }
    }
    let mut later = Later { expected: line.seq.next().0, unreadable: Vec::new(), cut_off: 0 };
    if let Some(segment) = stopped_in {
        later.count(seed, segment, line.at, segment.end().min(segment.room_end()))?;
    }
    for piece in rest {
        later.count(seed, &piece.segment, piece.segment.start(), piece.segment.room_end())?;
        line.aside.push(piece.segment.path.clone());
    }
    let damage = Damage {
        refusal,
        tail: line.at,
        seq: line.seq,
        unreadable: later.unreadable,
        cut_off: later.cut_off,
        set_aside: Vec::new(),
    };
    Ok(Plan { damage, id, rebuild: line.rebuild, aside: line.aside })
}

/// The contiguous records that remain.
struct Line {
    at: Lsn,
    seq: Seq,
    /// The commit before which the log must end.
    before: Option<Seq>,
    rebuild: Vec<Rebuild>,
    aside: Vec<PathBuf>,
}

impl Line {
    /// Takes the segment with the checkpoint. When the records before the checkpoint are damaged, the log
    /// starts at the checkpoint: they are no longer needed.
    fn first<'a>(
        &mut self,
        seed: u32,
        piece: &'a Piece,
        before: &[Piece],
    ) -> Result<Option<&'a Arc<Segment>>> {
        let segment = &piece.segment;
        let (from, seq) = (self.at, self.seq);
        let (start, seq) = match records_reach(seed, segment, from, seq)? {
            Some(seq_before) => (segment.start(), seq_before),
            None => (from, seq),
        };
        let stopped = self.read(seed, segment)?;
        if stopped || !piece.healthy || segment.header.seq != seq || start != segment.start() {
            let source = (from <= segment.room_end()).then(|| segment.clone());
            self.rebuild.push(Rebuild { source, start, seq, end: self.at });
        }
        // Recovery needs nothing before this segment, and a log is contiguous: older segments stay if they
        // connect to it.
        let moved = start != segment.start();
        let broken =
            |piece: &Piece| moved || !piece.healthy || piece.segment.room_end() < piece.segment.end();
        let lost = before.iter().rposition(broken).map_or(0, |index| index + 1);
        let aside = before.iter().take(lost).chain(Some(piece).filter(|_| moved));
        self.aside.extend(aside.map(|piece| piece.segment.path.clone()));
        Ok(stopped.then_some(segment))
    }

    /// Takes the next segment.
    fn follow<'a>(&mut self, seed: u32, piece: &'a Piece) -> Result<Option<&'a Arc<Segment>>> {
        let segment = &piece.segment;
        let (start, seq) = (self.at, self.seq);
        let stopped = self.read(seed, segment)?;
        if stopped || !piece.healthy || segment.header.seq != seq {
            self.rebuild.push(Rebuild { source: Some(segment.clone()), start, seq, end: self.at });
        }
        Ok(stopped.then_some(segment))
    }

    /// Advances to where the segment has no further record of this sequence; true when the next segment
    /// starts elsewhere.
    fn read(&mut self, seed: u32, segment: &Arc<Segment>) -> Result<bool> {
        let mut window = Window::new(segment.clone());
        let limit = segment.end().min(segment.room_end());
        while self.at < limit {
            match window.record(seed, self.at, limit)? {
                Ok(header) if header.continues(self.seq) && self.before != Some(header.seq) => {
                    (self.at, self.seq) = (header.next(), header.seq);
                }
                _ => break,
            }
        }
        Ok(self.at != segment.end())
    }
}

/// The number before a segment's first record, if its records reach exactly to `from` and `seq`.
fn records_reach(seed: u32, segment: &Arc<Segment>, from: Lsn, seq: Seq) -> Result<Option<Seq>> {
    let mut window = Window::new(segment.clone());
    let (mut at, mut last, mut before) = (segment.start(), None, seq);
    while at < from {
        let header = match window.record(seed, at, segment.room_end())? {
            Ok(header) if last.is_none_or(|last| header.continues(last)) => header,
            _ => return Ok(None),
        };
        if last.is_none() {
            before =
                if header.kind == Kind::Commit { Seq(header.seq.0.saturating_sub(1)) } else { header.seq };
        }
        (at, last) = (header.next(), Some(header.seq));
    }
    Ok((at == from && last.unwrap_or(seq) == seq).then_some(before))
}

/// Commits after the damage.
struct Later {
    expected: u64,
    unreadable: Vec<RangeInclusive<u64>>,
    cut_off: u64,
}

impl Later {
    fn count(&mut self, seed: u32, segment: &Arc<Segment>, from: Lsn, limit: Lsn) -> Result<()> {
        scan(segment, seed, from, limit, |header| {
            if header.kind != Kind::Commit || header.seq.0 < self.expected {
                return;
            }
            if header.seq.0 > self.expected {
                self.unreadable.push(self.expected..=header.seq.0 - 1);
            }
            self.cut_off += 1;
            self.expected = header.seq.0.saturating_add(1);
        })
    }
}

/// `path` with the suffix `.damaged`, and a number if that is taken.
fn free_name(env: &Env, path: &Path) -> Result<PathBuf> {
    let name = |n: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(if n == 0 { ".damaged".to_owned() } else { format!(".{n}.damaged") });
        PathBuf::from(name)
    };
    let mut n = 0;
    while env.vfs.exists(&name(n)).map_err(io("look for", path))? {
        n += 1;
    }
    Ok(name(n))
}

/// Copies a segment's file as it is.
fn copy_aside(env: &Env, segment: &Segment) -> Result<PathBuf> {
    let path = free_name(env, &segment.path)?;
    let copy = env.vfs.open(&path, OpenMode::CreateNew).map_err(io("create", &path))?;
    let length = segment.file.len().map_err(io("measure", &segment.path))?;
    let mut bytes = vec![0; WINDOW_BYTES as usize];
    for at in (0..length).step_by(WINDOW_BYTES as usize) {
        let piece = bytes.get_mut(..(length - at).min(WINDOW_BYTES) as usize).unwrap_or_default();
        segment.file.read_exact_at(piece, at).map_err(io("read", &segment.path))?;
        copy.write_all_at(piece, at).map_err(io("write", &path))?;
    }
    copy.sync_data().map_err(io("sync", &path))?;
    Ok(path)
}
