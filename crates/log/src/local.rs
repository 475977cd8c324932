//! The log in a local directory: append, flush, barrier, roll, trim, seal.
//!
//! ```text
//! append ─[front]─▶ buffer ─swap─▶ pending ─[writer]─▶ pwrite ─▶ segment ─[sync]─▶ fdatasync
//!                                                         └─ full: roll ─[sync]─▶ next segment from the pool
//! ```
//!
//! Three locks, taken in the order sync, writer, front. `front` is held for one copy and checksum, or one swap of
//! buffers; `writer` for one `pwrite`; `sync` for one `fdatasync`. So the next group forms in memory while one syncs,
//! and is flushed while one syncs, too. Only a roll needs all three, because it syncs the full segment first.
//!
//! Serializing the syncs is also a matter of safety: of two concurrent syncs of a file, only one gets the
//! error of a failed write-back.
//!
//! Every failure of a write or sync stops the log, including a full disk at a roll. That is simple and safe:
//! records that were appended but not flushed were never acknowledged, and a reopened log holds all others.
//! `prepare_spare` requests the same space earlier, when an error is only a warning.
//!
//! A log may be held back ([`LocalLog::hold_back`]): then records reach a file only after they were released. The copy of a
//! shared log is: it never holds a record that the shared log may not have.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use ropewalk_base::sync::{Mutex, MutexGuard, RwLock};
use ropewalk_base::{Lsn, Seq};
use ropewalk_vfs::Env;

use crate::copy;
use crate::error::{Result, io};
use crate::format::{
    Kind, RECORD_BYTES_MAX, RECORD_HEADER_BYTES, RecordHeader, SEGMENT_HEADER_BYTES, SegmentHeader,
    checksum_seed, encode_record, record_bytes,
};
use crate::pool::Pool;
use crate::reader::SegmentReader;
use crate::recover::{Walk, open_chain, recover};
use crate::segment::{Segment, new_id};
use crate::{
    CommitLog, Found, LogCopy, LogError, LogId, LogLimits, LogReader, LogStats, Record, Recovery,
    ReplayError, TrimGuard,
};

/// Memory that each of the two buffers retains between groups; a larger group releases the excess.
const BUFFER_BYTES_KEPT: usize = 4 << 20;
/// File sizes are multiples of this, the page and block size of common systems.
const FILE_ALIGNMENT: u64 = 4096;

/// Sizes of segments and number of spares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogOptions {
    /// Size of the first segment file; each next one is twice as large. A multiple of 4096. Default 1 MiB.
    pub segment_bytes_first: u64,
    /// Size at which doubling ends. A larger record gets a segment of its size. Default 16 MiB: little next
    /// to a small database, and large enough to roll rarely.
    pub segment_bytes_max: u64,
    /// Trimmed segments retained for reuse. Default 2.
    pub spare_segments_max: usize,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { segment_bytes_first: 1 << 20, segment_bytes_max: 16 << 20, spare_segments_max: 2 }
    }
}

impl LogOptions {
    fn check(&self) -> Result<()> {
        let (first, max) = (self.segment_bytes_first, self.segment_bytes_max);
        if first == 0 || !first.is_multiple_of(FILE_ALIGNMENT) || !max.is_multiple_of(FILE_ALIGNMENT) {
            return Err(LogError::Options { what: "segment sizes must be multiples of 4096 above zero" });
        }
        if first > max {
            return Err(LogError::Options { what: "segment_bytes_first exceeds segment_bytes_max" });
        }
        Ok(())
    }

    /// Size of the segment after one of `bytes`.
    fn next_segment_bytes(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(2).clamp(self.segment_bytes_first, self.segment_bytes_max)
    }
}

/// A commit log in a directory of segment files. Cheap to share: readers hold references to what they need.
pub struct LocalLog {
    shared: Arc<Shared>,
    options: LogOptions,
    pool: Pool,
    id: LogId,
    seed: u32,
    front: Mutex<Front>,
    writer: Mutex<Writer>,
    sync: Mutex<()>,
    trimming: Mutex<()>,
    tail: AtomicU64,
    /// Nothing beyond this address is written to a file: an end of a record, or `u64::MAX`.
    released: AtomicU64,
    durable: AtomicU64,
    stopped: OnceLock<String>,
    counters: Counters,
}

/// State shared with readers.
pub(crate) struct Shared {
    pub segments: RwLock<VecDeque<Arc<Segment>>>,
    pub flushed: AtomicU64,
    pub oldest: AtomicU64,
    pub seed: u32,
}

/// The append buffer and its state.
struct Front {
    buffer: Vec<u8>,
    tail: Lsn,
    seq: Seq,
    sealed: bool,
    /// No commit came after the last mark.
    vouched: bool,
}

/// The writing side: current segment and pending buffer.
struct Writer {
    segment: Arc<Segment>,
    pending: Vec<u8>,
    /// Bytes of `pending` that are in the segment already.
    written: usize,
    at: Lsn,
}

#[derive(Default)]
struct Counters {
    appended_bytes: AtomicU64,
    written_bytes: AtomicU64,
    syncs: AtomicU64,
    sync_nanos: AtomicU64,
    rolls: AtomicU64,
}

/// How much of a log exists in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// No log was ever created there, or its files are gone.
    Nothing,
    /// A log without records.
    Empty,
    /// A log that has or had records.
    Records,
}

/// The addresses at which the segments among these files start, ascending.
fn starts_of(names: &[String]) -> Vec<Lsn> {
    let mut starts: Vec<Lsn> = names.iter().filter_map(|name| Segment::parse_name(name)).collect();
    starts.sort_unstable();
    starts
}

impl LocalLog {
    /// Returns how much of a log exists in `dir`, which exists, up to its first record. Changes nothing.
    ///
    /// # Errors
    /// As [`LocalLog::open`], about the first segment.
    pub fn extent(env: &Env, dir: &Path) -> Result<Extent> {
        let starts = starts_of(&env.vfs.list(dir).map_err(io("list", dir))?);
        if starts.as_slice() != [Lsn::ZERO] {
            return Ok(if starts.is_empty() { Extent::Nothing } else { Extent::Records });
        }
        let chain = open_chain(env, dir, &starts)?;
        let Some(mut walk) = Walk::new(&chain, Lsn::ZERO, Seq::ZERO) else { return Ok(Extent::Nothing) };
        Ok(if walk.next()?.is_some() { Extent::Records } else { Extent::Empty })
    }

    /// Makes a log without records in `dir`, which exists and has none. Its first segment is durable when it returns.
    ///
    /// # Errors
    /// [`LogError::Io`]; options out of range.
    pub fn create(env: &Env, dir: &Path, options: LogOptions) -> Result<()> {
        options.check()?;
        let names = env.vfs.list(dir).map_err(io("list", dir))?;
        let pool = Pool::open(env, dir.to_owned(), &names, options.spare_segments_max)?;
        let header = SegmentHeader { id: new_id(env), start: Lsn::ZERO, seq: Seq::ZERO, bytes: 0 };
        pool.next(options.segment_bytes_first, header)?;
        pool.sync_names()
    }

    /// Opens the log in `dir`, creating both when absent, and replays what follows the checkpoint: the records from
    /// `from` on, the first of which is `seq + 1`. Zero and zero replay everything.
    ///
    /// When it returns, everything replayed is durable. The caller ensures (directory lock) that no other
    /// process has the log open.
    ///
    /// # Errors
    /// [`LogError::Corrupt`], [`LogError::Foreign`], [`LogError::Future`] or [`LogError::Missing`] when the
    /// files are not as this log left them; no segment was changed then. [`LogError::Replay`] when `replay`
    /// fails.
    pub fn open(
        env: &Env,
        dir: &Path,
        options: LogOptions,
        from: Lsn,
        seq: Seq,
        replay: &mut dyn FnMut(Found<'_>) -> Result<(), ReplayError>,
    ) -> Result<(Self, Recovery)> {
        options.check()?;
        env.vfs.create_dir_all(dir).map_err(io("create directory", dir))?;
        // The process before may have died between a rename and its sync; from here on the names found are relied upon.
        env.vfs.sync_dir(dir).map_err(io("sync directory", dir))?;
        let names = env.vfs.list(dir).map_err(io("list", dir))?;
        let starts = starts_of(&names);
        let missing = || LogError::Missing { dir: dir.to_owned(), lsn: from };
        if starts.is_empty() && (from, seq) != (Lsn::ZERO, Seq::ZERO) {
            return Err(missing());
        }
        let pool = Pool::open(env, dir.to_owned(), &names, options.spare_segments_max)?;
        let mut chain = open_chain(env, dir, &starts)?;
        if chain.is_empty() {
            let header = SegmentHeader { id: new_id(env), start: Lsn::ZERO, seq: Seq::ZERO, bytes: 0 };
            chain.push(Arc::new(pool.next(options.segment_bytes_first, header)?));
        }
        let recovered = recover(&chain, from, seq, replay)?.ok_or_else(missing)?;
        let report = recovered.report.clone();
        Ok((Self::new(options, pool, chain, recovered).ok_or_else(missing)?, report))
    }

    fn new(
        options: LogOptions,
        pool: Pool,
        chain: Vec<Arc<Segment>>,
        recovered: crate::recover::Recovered,
    ) -> Option<Self> {
        let (first, last) = (chain.first()?.clone(), chain.last()?.clone());
        let (tail, id) = (recovered.tail, last.header.id);
        Some(Self {
            shared: Arc::new(Shared {
                segments: RwLock::new(chain.into()),
                flushed: AtomicU64::new(tail.0),
                oldest: AtomicU64::new(first.start().0),
                seed: checksum_seed(id),
            }),
            options,
            pool,
            id,
            seed: checksum_seed(id),
            front: Mutex::new(Front {
                buffer: Vec::new(),
                tail,
                seq: recovered.seq,
                sealed: recovered.sealed,
                vouched: recovered.marked,
            }),
            writer: Mutex::new(Writer { segment: last, pending: Vec::new(), written: 0, at: tail }),
            sync: Mutex::new(()),
            trimming: Mutex::new(()),
            tail: AtomicU64::new(tail.0),
            released: AtomicU64::new(u64::MAX),
            durable: AtomicU64::new(tail.0),
            stopped: OnceLock::new(),
            counters: Counters::default(),
        })
    }
}

impl LocalLog {
    /// Holds the log back from here on: [`CommitLog::flush`], [`CommitLog::barrier`], rolls and marks write nothing that is
    /// appended later, until [`LocalLog::release`]. Meanwhile `flushed` does not pass the released end, and both `flush` and
    /// `barrier` return without error before the tail. To be called before anything is appended.
    pub fn hold_back(&self) {
        let front = self.front.lock();
        assert_eq!(self.flushed(), front.tail, "a log is held back before its first append");
        self.released.store(front.tail.0, Ordering::Release);
    }

    /// Lets the records before `upto`, an end of a record, be written.
    pub fn release(&self, upto: Lsn) {
        debug_assert!(upto <= self.tail(), "{upto} was not appended yet");
        self.released.fetch_max(upto.0, Ordering::AcqRel);
    }

    /// The newest commit that was appended.
    pub(crate) fn last_seq(&self) -> Seq {
        self.front.lock().seq
    }

    /// The end of what may be written.
    fn released(&self) -> Lsn {
        Lsn(self.released.load(Ordering::Acquire))
    }

    /// Makes the next segment ahead of time, so that the next roll only renames it. Does nothing while a spare is ready
    /// or the current segment is less than half full; returns true when it made one. Long (writes and syncs a whole
    /// segment) but holds no lock meanwhile: for a background thread. Without it, the roll does this work.
    ///
    /// # Errors
    /// [`LogError::Io`], for example a full disk. The log is not stopped: this is the time to warn.
    pub fn prepare_spare(&self) -> Result<bool> {
        let segment = self.shared.segments.read().back().cloned();
        let Some(segment) = segment else { return Ok(false) };
        let flushed = self.flushed();
        debug_assert!(
            flushed >= segment.start(),
            "a segment starts where the records before it were flushed"
        );
        let filled = flushed.0 - segment.start().0;
        let bytes = self.options.next_segment_bytes(segment.header.bytes);
        if self.options.spare_segments_max == 0 || filled < segment.header.bytes / 2 || self.pool.has(bytes) {
            return Ok(false);
        }
        self.pool.put(self.pool.make(bytes)?)?;
        Ok(true)
    }

    fn check_running(&self) -> Result<()> {
        self.stopped.get().map_or(Ok(()), |cause| Err(LogError::Stopped { cause: cause.clone() }))
    }

    /// Records the first failure for all later callers.
    fn stop(&self, error: LogError) -> LogError {
        self.stopped.get_or_init(|| error.to_string());
        error
    }

    /// Writes records until `target` is reached, or the segment is full: then false. More than that when the buffer has more,
    /// but nothing beyond `released`, which is not before `target`.
    fn write_upto(&self, writer: &mut Writer, target: Lsn, released: Lsn) -> Result<bool> {
        while writer.at < target {
            if writer.pending.is_empty() {
                let mut front = self.front.lock();
                std::mem::swap(&mut writer.pending, &mut front.buffer);
                assert_eq!(
                    Lsn(writer.at.0 + writer.pending.len() as u64),
                    front.tail,
                    "the buffers hold exactly the records between the flushed and the appended tail"
                );
            }
            let rest = writer.pending.get(writer.written..).expect("written bytes are pending ones");
            let rest = first_bytes(rest, released.0 - writer.at.0);
            let fitting = fitting(rest, writer.segment.room_end().0 - writer.at.0);
            if fitting.is_empty() {
                return Ok(false);
            }
            let (segment, bytes) = (&writer.segment, fitting.len());
            let written = segment.file.write_all_at(fitting, segment.offset(writer.at));
            written.map_err(io("write", &segment.path)).map_err(|error| self.stop(error))?;
            writer.written += bytes;
            writer.at = Lsn(writer.at.0 + bytes as u64);
            self.shared.flushed.store(writer.at.0, Ordering::Release);
            count(&self.counters.written_bytes, bytes as u64);
            if writer.written == writer.pending.len() {
                writer.pending.clear();
                writer.pending.shrink_to(BUFFER_BYTES_KEPT);
                writer.written = 0;
            }
        }
        Ok(true)
    }

    /// Writes records until `target` is reached, rolling as often as needed; returns where that ends and the segment
    /// that holds the end.
    fn write_all(
        &self,
        sync: &MutexGuard<'_, ()>,
        target: Lsn,
        released: Lsn,
    ) -> Result<(Lsn, Arc<Segment>)> {
        let mut writer = self.writer.lock();
        self.check_running()?;
        while !self.write_upto(&mut writer, target, released)? {
            self.roll(sync, &mut writer).map_err(|error| self.stop(error))?;
        }
        Ok((writer.at, writer.segment.clone()))
    }

    /// Syncs what was written to `segment`, the current one, up to `at`.
    fn sync_segment(&self, _serialised: &MutexGuard<'_, ()>, segment: &Segment, at: Lsn) -> Result<()> {
        if self.durable() < at {
            let clock = &self.pool.env().clock;
            let begun = clock.monotonic_nanos();
            let synced = segment.file.sync_data();
            count(&self.counters.sync_nanos, clock.monotonic_nanos().saturating_sub(begun));
            synced.map_err(io("sync", &segment.path)).map_err(|error| self.stop(error))?;
            self.durable.store(at.0, Ordering::Release);
            count(&self.counters.syncs, 1);
        }
        Ok(())
    }

    /// Switches to the next segment. The full one is synced first: recovery takes a segment with a successor
    /// as complete.
    fn roll(&self, sync: &MutexGuard<'_, ()>, writer: &mut Writer) -> Result<()> {
        self.sync_segment(sync, &writer.segment, writer.at)?;
        let rest = writer.pending.get(writer.written..).expect("written bytes are pending ones");
        let first = header_at(rest, writer.at).expect("a roll happens in front of a record of ours");
        let own = (SEGMENT_HEADER_BYTES + first.bytes()).next_multiple_of(FILE_ALIGNMENT);
        let bytes = self.options.next_segment_bytes(writer.segment.header.bytes).max(own);
        let seq = if first.kind == Kind::Commit { Seq(first.seq.0 - 1) } else { first.seq };
        let segment = self.pool.next(bytes, SegmentHeader { id: self.id, start: writer.at, seq, bytes })?;
        let segment = Arc::new(segment);
        assert!(
            segment.room_end().0 - writer.at.0 >= first.bytes(),
            "a new segment has room for its first record"
        );
        assert!(self.durable() >= writer.at, "a segment is durable before it has a successor");
        {
            let mut segments = self.shared.segments.write();
            // A segment without any record starts at the same address; the new file has just taken its name.
            if writer.segment.start() == writer.at {
                segments.pop_back();
            }
            writer.segment.close(writer.at);
            segments.push_back(segment.clone());
        }
        writer.segment = segment;
        count(&self.counters.rolls, 1);
        count(&self.counters.written_bytes, SEGMENT_HEADER_BYTES);
        Ok(())
    }

    /// Puts a record that was checked into the buffer.
    fn push(&self, front: &mut Front, kind: Kind, seq: Seq, payload: &[u8]) {
        let (durable, start) = (self.durable(), front.buffer.len());
        encode_record(&mut front.buffer, self.seed, kind, front.tail, seq, durable, payload);
        let bytes = record_bytes(payload.len() as u64);
        assert_eq!((front.buffer.len() - start) as u64, bytes, "the tail grows by what is in the buffer");
        front.tail = Lsn(front.tail.0 + bytes);
        front.seq = seq;
        count(&self.counters.appended_bytes, bytes);
    }
}

impl CommitLog for LocalLog {
    fn prepare_spare(&self) -> Result<bool> {
        LocalLog::prepare_spare(self)
    }

    fn identity(&self) -> LogId {
        self.id
    }

    fn limits(&self) -> LogLimits {
        LogLimits { record_bytes_max: RECORD_BYTES_MAX }
    }

    fn tail(&self) -> Lsn {
        Lsn(self.tail.load(Ordering::Acquire))
    }

    fn flushed(&self) -> Lsn {
        self.shared.flushed()
    }

    fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    fn append(&self, records: &[Record<'_>], expected_tail: Lsn) -> Result<Lsn> {
        let mut front = self.front.lock();
        self.check_running()?;
        if front.sealed {
            return Err(LogError::Sealed);
        }
        check_fence(&front, expected_tail)?;
        let mut last = front.seq;
        for record in records {
            let (expected, bytes) = (last.next(), record.payload.len() as u64);
            if record.seq != expected {
                return Err(LogError::OutOfOrder { expected, found: record.seq });
            }
            if bytes > RECORD_BYTES_MAX {
                return Err(LogError::TooLarge { bytes, max: RECORD_BYTES_MAX });
            }
            last = record.seq;
        }
        for record in records {
            self.push(&mut front, Kind::Commit, record.seq, record.payload);
        }
        front.vouched &= records.is_empty();
        self.tail.store(front.tail.0, Ordering::Release);
        // In this order: each may grow meanwhile, and never past the next one.
        let (durable, flushed) = (self.durable(), self.shared.flushed());
        assert!(
            durable <= flushed && flushed <= front.tail,
            "durable {durable} <= flushed {flushed} <= tail {}",
            front.tail
        );
        Ok(front.tail)
    }

    fn flush(&self) -> Result<Lsn> {
        let released = self.released();
        let target = self.tail().min(released);
        let mut writer = self.writer.lock();
        self.check_running()?;
        if self.write_upto(&mut writer, target, released)? {
            return Ok(writer.at);
        }
        drop(writer);
        let sync = self.sync.lock();
        self.write_all(&sync, target, released).map(|(at, _)| at)
    }

    fn barrier(&self) -> Result<Lsn> {
        let released = self.released();
        let needed = self.tail().min(released);
        let sync = self.sync.lock();
        self.check_running()?;
        if self.durable() < needed {
            let (at, segment) = self.write_all(&sync, needed, released)?;
            self.sync_segment(&sync, &segment, at)?;
        }
        let durable = self.durable();
        assert!(durable >= needed, "a barrier at {needed} left the log durable up to {durable} only");
        Ok(durable)
    }

    fn write_durable_mark(&self, expected_tail: Lsn) -> Result<Lsn> {
        let durable = self.barrier()?;
        let tail = {
            let mut front = self.front.lock();
            check_fence(&front, expected_tail)?;
            if front.vouched || front.sealed || front.tail != durable {
                // Nothing new, or a later record will do it.
                return Ok(front.tail);
            }
            let seq = front.seq;
            self.push(&mut front, Kind::Mark, seq, &[]);
            front.vouched = true;
            self.tail.store(front.tail.0, Ordering::Release);
            // All records before it are durable, so they were released.
            self.release(front.tail);
            front.tail
        };
        self.barrier()?;
        Ok(tail)
    }

    fn read(&self, from: Lsn) -> Result<Box<dyn LogReader>> {
        let tail = self.tail();
        if from > tail {
            return Err(LogError::Beyond { lsn: from, tail });
        }
        Ok(Box::new(SegmentReader::new(self.shared.clone(), from)?))
    }

    fn read_near(&self, seq: Seq) -> (Seq, Box<dyn LogReader>) {
        let segment = self.shared.segment_of(seq);
        (segment.header.seq, Box::new(SegmentReader::starting(self.shared.clone(), segment)))
    }

    fn oldest(&self) -> Lsn {
        self.shared.oldest()
    }

    fn trim(&self, upto: Lsn) -> Result<()> {
        // One at a time and oldest first, each durably: after a crash the remaining segments are still
        // contiguous. A call that finds the log held leaves the work to the next trim.
        let Some(_one_at_a_time) = self.trimming.try_lock() else { return Ok(()) };
        self.check_running()?;
        loop {
            let (segment, last) = {
                let segments = self.shared.segments.read();
                // The last segment has no end yet, so it is never trimmed.
                let (Some(first), Some(next), Some(last)) =
                    (segments.front(), segments.get(1), segments.back())
                else {
                    return Ok(());
                };
                if first.end() > upto {
                    return Ok(());
                }
                assert_eq!(next.start(), first.end(), "the log continues after the segment that it trims");
                (first.clone(), last.header.bytes)
            };
            assert!(segment.end() <= self.durable(), "a trimmed segment is durable");
            // Readers check this when bytes change under them, so it comes before the file is touched.
            self.shared.oldest.store(segment.end().0, Ordering::SeqCst);
            let useful = self.options.next_segment_bytes(last)..=self.options.segment_bytes_max;
            let spare = self.pool.retire(&segment, useful)?;
            let trimmed = self.shared.segments.write().pop_front();
            assert!(
                trimmed.is_some_and(|trimmed| Arc::ptr_eq(&trimmed, &segment)),
                "one trim at a time takes the oldest segment, and a roll leaves it in place"
            );
            self.pool.sync_names().map_err(|error| self.stop(error))?;
            spare.map_or(Ok(()), |spare| self.pool.put(spare))?;
        }
    }

    fn release_spares(&self) -> Result<()> {
        self.pool.clear()
    }

    fn hold(&self) -> Box<dyn TrimGuard + '_> {
        Box::new(Hold { log: self, _trimming: self.trimming.lock() })
    }

    fn seal(&self) -> Result<()> {
        {
            let mut front = self.front.lock();
            self.check_running()?;
            if !front.sealed {
                let (seq, end) = (front.seq, front.tail);
                self.push(&mut front, Kind::Seal, seq, &[]);
                front.sealed = true;
                self.tail.store(front.tail.0, Ordering::Release);
                if self.released() >= end {
                    self.release(front.tail);
                }
            }
        }
        self.barrier().map(|_| ())
    }

    fn stats(&self) -> LogStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LogStats {
            appended_bytes: read(&self.counters.appended_bytes),
            written_bytes: read(&self.counters.written_bytes),
            syncs: read(&self.counters.syncs),
            sync_nanos: read(&self.counters.sync_nanos),
            rolls: read(&self.counters.rolls),
            segments: self.shared.segments.read().len() as u64,
            spare_segments: self.pool.count() as u64,
        }
    }
}

/// Prevents trimming of segments while it lives.
struct Hold<'a> {
    log: &'a LocalLog,
    _trimming: MutexGuard<'a, ()>,
}

impl TrimGuard for Hold<'_> {
    fn copy_to(&self, dir: &Path, from: Lsn, upto: Lsn) -> Result<LogCopy> {
        let shared = &self.log.shared;
        let first = shared.segment_at(from)?.start();
        let wanted = |segment: &&Arc<Segment>| (first..=upto).contains(&segment.start());
        let segments: Vec<Arc<Segment>> = shared.segments.read().iter().filter(wanted).cloned().collect();
        copy::copy(self.log.pool.env(), dir, &segments, self.log.seed, upto)
    }
}

impl std::fmt::Debug for LocalLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LocalLog({} tail {} durable {})", self.id, self.tail(), self.durable())
    }
}

impl Shared {
    pub(crate) fn flushed(&self) -> Lsn {
        Lsn(self.flushed.load(Ordering::Acquire))
    }

    pub(crate) fn oldest(&self) -> Lsn {
        Lsn(self.oldest.load(Ordering::SeqCst))
    }

    /// The segment that holds, or will hold, the record at `lsn`.
    pub(crate) fn segment_at(&self, lsn: Lsn) -> Result<Arc<Segment>> {
        let segments = self.segments.read();
        let after = segments.partition_point(|segment| segment.start() <= lsn);
        let segment = after.checked_sub(1).and_then(|index| segments.get(index));
        segment.filter(|_| self.oldest() <= lsn).cloned().ok_or(LogError::Trimmed { oldest: self.oldest() })
    }

    /// The segment that holds, or will hold, the commit `seq`; the oldest one when the commit was trimmed away.
    fn segment_of(&self, seq: Seq) -> Arc<Segment> {
        let segments = self.segments.read();
        let oldest = segments.partition_point(|segment| segment.start() < self.oldest());
        let after = segments.partition_point(|segment| segment.header.seq < seq);
        // Without a segment that begins before it the commit was trimmed away.
        let index = after.saturating_sub(1).max(oldest);
        segments
            .get(index)
            .or(segments.back())
            .expect("a log has a last segment, which is never trimmed")
            .clone()
    }
}

fn check_fence(front: &Front, expected_tail: Lsn) -> Result<()> {
    let (tail, expected) = (front.tail, expected_tail);
    if tail == expected { Ok(()) } else { Err(LogError::Fenced { tail, expected }) }
}

fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

fn header_at(records: &[u8], lsn: Lsn) -> Option<RecordHeader> {
    RecordHeader::decode(records.first_chunk::<{ RECORD_HEADER_BYTES as usize }>()?, lsn).ok()
}

/// At most `count` bytes at the front of `bytes`.
fn first_bytes(bytes: &[u8], count: u64) -> &[u8] {
    usize::try_from(count).ok().and_then(|count| bytes.get(..count)).unwrap_or(bytes)
}

/// The whole records at the front of `records` that take at most `room` bytes.
fn fitting(records: &[u8], room: u64) -> &[u8] {
    if records.len() as u64 <= room {
        return records;
    }
    let mut end = 0;
    while let Some(rest) = records.get(end..)
        && let Some(length) = rest.get(4..8).and_then(|length| length.first_chunk())
        && (end as u64) + record_bytes(u64::from(u32::from_le_bytes(*length))) <= room
    {
        end += record_bytes(u64::from(u32::from_le_bytes(*length))) as usize;
    }
    records.get(..end).expect("the room that the records exceed ends inside them")
}
