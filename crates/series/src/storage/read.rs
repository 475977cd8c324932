//! The samples of one series, as one reader sees them.
//!
//!   stored chunks ─┐
//!   sealed chunks ─┼─▶ disjoint in time, as almost always: decode in sequence
//!   open samples ──┘   else: all samples with their commits, sorted, one left per time
//!
//! A reader at commit S sees the samples written by commits up to S, without those deleted by commits up to
//! S.

use std::ops::Range;
use std::sync::Arc;

use ropewalk_base::{DecodeError, Seq};
use ropewalk_engine::{Cursor, Keyspace, ReadView};
use ropewalk_labels::Samples;

use crate::chunk::payload_chunk::each_rich;
use crate::chunk::{Aggregates, Around, ChunkHead, Part, Which};
use crate::error::{Result, SeriesError};
use crate::memory::{Deletion, Sample, Sealed, SeriesMemory, StoreMemory};
use crate::sample::batch::take_payload;
use crate::sample::duplicate_rules::DuplicateRules;
use crate::storage::chunk_keys::{ChunkKey, damaged, each_chunk_between, partition_of, partitions};
use crate::storage::partition_bounds::Reach;

/// An unread chunk of floats that no other samples of its series overlap in time.
pub struct Chunk<'c> {
    head: ChunkHead<'c>,
    /// Requested times, both inclusive.
    range: (i64, i64),
    source: &'c Source,
    store: u32,
}

impl Chunk<'_> {
    /// Time of its first sample, and of its last.
    pub fn time_range_ms(&self) -> (i64, i64) {
        (self.head.first, self.head.last)
    }

    /// Aggregates of its samples. `None` when they are unknown without reading the samples, or some are
    /// staleness markers.
    ///
    /// # Errors
    /// Damage.
    pub fn aggregates(&self) -> Result<Option<Aggregates>> {
        let known = self.head.aggregates().map_err(|error| explain(self.source, self.store, &error))?;
        Ok(known.filter(|aggregates| aggregates.count as usize == self.head.count))
    }

    /// True when it is known that no value is less than the previous one, and none is a NaN.
    ///
    /// # Errors
    /// Damage.
    pub fn is_monotonic(&self) -> Result<bool> {
        match self.source {
            Source::Sealed(sealed) => Ok(sealed.counts),
            // A sum with a NaN is one.
            _ => Ok(self.aggregates()?.is_some_and(|of| of.resets == 0 && !of.sum.is_nan())),
        }
    }

    /// Appends the first and the last of its requested samples, and for each of `marks`, times that rise, the
    /// last one at or before it and the first one after it, each with the number of samples from it to the
    /// next. Returns false, and appends nothing, when these are not few. Cost: values in between are unpacked
    /// and summed up.
    ///
    /// # Errors
    /// Damage.
    pub fn read_around(&self, marks: &[i64], into: &mut Samples) -> Result<bool> {
        let around = Around { marks, which: Which::Both };
        self.counted(into, |columns, counts| self.head.samples_around(self.range, &around, columns, counts))
    }

    /// As [`Chunk::read_around`], but only the last sample at or before each mark, and the last of all.
    ///
    /// # Errors
    /// Damage.
    pub fn read_before(&self, marks: &[i64], into: &mut Samples) -> Result<bool> {
        let (first, last) = self.time_range_ms();
        let begin = marks.partition_point(|mark| *mark < first);
        let only_last = last <= self.range.1 && marks.get(begin).is_none_or(|mark| *mark >= last);
        if only_last && let Some(of) = self.aggregates()? {
            into.times_ms.push(last);
            into.values.push(of.last);
            return Ok(true);
        }
        let around = Around { marks, which: Which::Before };
        let columns = (&mut into.times_ms, &mut into.values);
        let read = self.head.samples_around(self.range, &around, columns, &mut Vec::new());
        read.map_err(|error| explain(self.source, self.store, &error))
    }

    /// Appends one row for the samples between each two of `marks`, times that rise: the time of the first,
    /// the aggregate `part` of their values, and their number; a sample at a mark belongs to those before it.
    /// Returns false, and appends nothing, when these are not few or the values are not integers. Cost: a
    /// scan over integers.
    ///
    /// # Errors
    /// Damage.
    pub fn read_parts(&self, marks: &[i64], part: Part, into: &mut Samples) -> Result<bool> {
        self.counted(into, |columns, counts| {
            self.head.parts_between(self.range, (marks, part), columns, counts)
        })
    }

    /// Runs `read`, which appends rows and their counts; the rows before them may lack theirs.
    fn counted(
        &self,
        into: &mut Samples,
        read: impl FnOnce((&mut Vec<i64>, &mut Vec<f64>), &mut Vec<u32>) -> Result<bool, DecodeError>,
    ) -> Result<bool> {
        let before = into.counts.len();
        into.counts.resize(into.times_ms.len(), 1);
        let is_read = read((&mut into.times_ms, &mut into.values), &mut into.counts)
            .map_err(|error| explain(self.source, self.store, &error))?;
        if !is_read {
            into.counts.truncate(before);
        }
        Ok(is_read)
    }
}

/// A callback that puts a replacement for a chunk into the samples and returns true, or returns false to have
/// it read.
pub(crate) type TakeChunk<'t> = &'t mut dyn FnMut(&Chunk<'_>, &mut Samples) -> Result<bool>;

enum Source {
    /// Range of `stored`.
    Stored(ChunkKey, Range<usize>),
    Sealed(Arc<Sealed>),
    /// Range of `open`, and whether its times rise strictly.
    Open(Range<usize>, bool),
}

struct Piece {
    first: i64,
    last: i64,
    /// Order of arrival, among parts of one commit.
    ordinal: usize,
    source: Source,
}

/// One sample among others of its time.
struct Row {
    time: i64,
    seq: Seq,
    /// Order of arrival among samples of one commit: part, then place in it.
    order: (usize, usize),
    value: RowValue,
}

enum RowValue {
    Bits(u64),
    Payload(Range<usize>),
}

/// A partition that is being read.
struct Partition<'a> {
    number: i64,
    /// No requested chunk begins before this time.
    since: i64,
    cursor: Cursor<'a>,
}

/// Keyspace of a store's samples.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) store: u32,
    pub(crate) slot: usize,
    pub(crate) chunks: Keyspace,
}

/// Reads series of one store, within one range of times, best in the order of their ids.
pub(crate) struct SeriesReader<'a> {
    place: Place,
    at: Seq,
    from: i64,
    to: i64,
    duplicates: DuplicateRules,
    /// Oldest first.
    memories: Vec<Arc<StoreMemory>>,
    deletions: Vec<Deletion>,
    partitions: Vec<Partition<'a>>,
    pieces: Vec<Piece>,
    stored: Vec<u8>,
    open: Vec<Sample>,
    rows: Vec<Row>,
    payloads: Vec<u8>,
    times: Vec<i64>,
    bits: Vec<u64>,
}

impl<'a> SeriesReader<'a> {
    /// A reader of the samples from `from` to `to`, both inclusive.
    pub(crate) fn new(
        read: ReadView<'a>,
        place: Place,
        duplicates: DuplicateRules,
        (from, to): (i64, i64),
    ) -> Result<Self> {
        let mut memories: Vec<_> =
            read.memories::<SeriesMemory>(place.slot).filter_map(|m| m.store(place.store)).collect();
        memories.reverse();
        let deletions = memories.iter().flat_map(|m| m.deletions(read.at())).collect();
        let mut cursor = read.cursor(place.chunks);
        let found = if from <= to {
            partitions(&mut cursor, place.store, partition_of(from), partition_of(to))?
        } else {
            Vec::new()
        };
        let of = |number| Partition { number, since: i64::MIN, cursor: read.cursor(place.chunks) };
        let partitions = found.into_iter().map(of).collect();
        Ok(Self {
            place,
            at: read.at(),
            from,
            to,
            duplicates,
            memories,
            deletions,
            partitions,
            pieces: Vec::new(),
            stored: Vec::new(),
            open: Vec::new(),
            rows: Vec::new(),
            payloads: Vec::new(),
            times: Vec::new(),
            bits: Vec::new(),
        })
    }

    /// Skips the partitions without stored chunks in the range, and in the others the chunks that begin too
    /// early for it.
    pub(crate) fn narrow(&mut self, reach: &Reach) {
        let from = self.from;
        self.partitions.retain_mut(|partition| match reach.since(partition.number, from) {
            Some(since) => {
                partition.since = since;
                true
            }
            None => false,
        });
    }

    /// How many partitions a read of one series searches.
    pub(crate) fn partition_count(&self) -> usize {
        self.partitions.len()
    }

    /// Prefetches for the next reads of these series, few and ascending.
    pub(crate) fn warm(&self, ids: &[u32]) {
        self.memories.iter().for_each(|memory| memory.warm(ids, self.from));
    }

    /// Appends the samples of series `id` to `out`; returns their number.
    pub(crate) fn read(&mut self, id: u32, out: &mut Samples) -> Result<usize> {
        self.read_chunks(id, out, None)
    }

    /// As [`SeriesReader::read`], but chunks for which `take` returns true are not read: it has put a
    /// replacement into `out`. Returns the number of rows appended.
    pub(crate) fn read_chunks(
        &mut self,
        id: u32,
        out: &mut Samples,
        take: Option<TakeChunk<'_>>,
    ) -> Result<usize> {
        self.gather(id)?;
        let deleted = self.deletions.iter().any(|d| d.covers(id));
        if self.pieces.is_empty() && self.rows.is_empty() {
            return Ok(0);
        }
        if self.rows.is_empty() && !deleted && self.in_order() {
            return self.concatenate(out, take);
        }
        self.merge(id)?;
        self.take_rows(out)
    }

    /// The newest commit after `since` that wrote samples of series `id` in the range that exist now. It may
    /// be one that wrote to a chunk of the range, but outside of the range.
    pub(crate) fn written_since(&mut self, since: Seq, id: u32) -> Result<Option<Seq>> {
        self.gather(id)?;
        let newest = |piece: &Piece| match &piece.source {
            Source::Stored(key, _) => key.seq,
            Source::Sealed(sealed) => sealed.seqs.1,
            Source::Open(range, _) => {
                let seqs = gathered(&self.open, range).iter().map(|sample| sample.seq);
                seqs.max().expect("a piece has samples")
            }
        };
        let seqs = self.pieces.iter().map(newest).chain(self.rows.iter().map(|row| row.seq));
        Ok(seqs.max().filter(|seq| *seq > since))
    }

    /// The newest commit after `since` that deleted samples of series `id` in the range, or the series if `series` counts, as
    /// far as the memories hold it.
    pub(crate) fn deleted_since(&self, since: Seq, id: u32, series: bool) -> Option<Seq> {
        let hits = |deletion: &&Deletion| {
            let hits_range = self.from <= self.to && deletion.from <= self.to && self.from <= deletion.to;
            deletion.seq > since && deletion.covers(id) && (hits_range || series && deletion.is_of_series())
        };
        self.deletions.iter().filter(hits).map(|deletion| deletion.seq).max()
    }

    /// Aggregates of the float samples of series `id`. Chunks that lie completely in the range and overlap
    /// nothing else are not decoded. `None` without samples, or with histograms among them.
    pub(crate) fn aggregate(&mut self, id: u32) -> Result<Option<Aggregates>> {
        self.gather(id)?;
        let deleted = self.deletions.iter().any(|d| d.covers(id));
        if self.rows.is_empty() && !deleted && self.in_order() {
            let mut all: Option<Aggregates> = None;
            for piece in &self.pieces {
                let part = self.aggregate_piece(piece)?;
                all = match (all, part) {
                    (Some(all), Some(part)) => Some(all.and(part)),
                    (all, part) => all.or(part),
                };
            }
            return Ok(all);
        }
        self.merge(id)?;
        let mut bits = Vec::with_capacity(self.rows.len());
        for row in &self.rows {
            match row.value {
                RowValue::Bits(value) => bits.push(value),
                RowValue::Payload(_) => return Ok(None),
            }
        }
        Ok(Aggregates::of(&bits))
    }

    fn aggregate_piece(&self, piece: &Piece) -> Result<Option<Aggregates>> {
        if let Source::Open(range, _) = &piece.source {
            let open = gathered(&self.open, range);
            let bits: Vec<u64> = open.iter().map(|s| s.bits).collect();
            return Ok(Aggregates::of(&bits));
        }
        let (bytes, base) = place_of(&piece.source, &self.stored);
        let (mut times, mut bits) = (Vec::new(), Vec::new());
        let explain = |error| explain(&piece.source, self.place.store, &error);
        let head = ChunkHead::decode(bytes, base).map_err(explain)?;
        if self.from <= head.first
            && head.last <= self.to
            && let Some(aggregates) = head.aggregates().map_err(explain)?
        {
            return Ok(Some(aggregates));
        }
        head.samples_within((self.from, self.to), &mut times, &mut bits).map_err(explain)?;
        Ok(Aggregates::of(&bits))
    }

    fn gather(&mut self, id: u32) -> Result<()> {
        self.pieces.clear();
        self.stored.clear();
        self.open.clear();
        self.rows.clear();
        self.payloads.clear();
        self.gather_stored(id)?;
        self.gather_memory(id);
        Ok(())
    }

    fn gather_stored(&mut self, id: u32) -> Result<()> {
        let (from, to, store) = (self.from, self.to, self.place.store);
        let Self { pieces, stored, rows, payloads, .. } = self;
        for Partition { number, since, cursor } in &mut self.partitions {
            each_chunk_between(cursor, store, *number, id, (*since, to), |key, _, value| {
                let bad = |error| damaged(&key.encode(store), &error);
                if key.first() > to {
                    return Ok(());
                }
                if key.rich {
                    return each_rich(value, key.base(), |time, payload| {
                        if from <= time && time <= to {
                            push_payload(rows, payloads, time, key.seq, payload);
                        }
                    })
                    .map_err(bad);
                }
                let head = ChunkHead::decode(value, key.base()).map_err(bad)?;
                if head.last >= from {
                    let start = stored.len();
                    stored.extend_from_slice(value);
                    let source = Source::Stored(key, start..stored.len());
                    let ordinal = pieces.len();
                    pieces.push(Piece { first: head.first, last: head.last, ordinal, source });
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    fn gather_memory(&mut self, id: u32) {
        let (from, to, at) = (self.from, self.to, self.at);
        let Self { pieces, open, rows, payloads, .. } = self;
        for memory in &self.memories {
            memory.with(id, |head| {
                for sealed in head.sealed_within(from, to) {
                    if sealed.seqs.0 <= at {
                        let source = Source::Sealed(sealed.clone());
                        let ordinal = pieces.len();
                        pieces.push(Piece { first: sealed.first, last: sealed.last, ordinal, source });
                    }
                }
                let (start, rises) = (open.len(), head.open_rises());
                for block in head.open() {
                    if !rises {
                        let seen = |s: &&Sample| s.seq <= at && from <= s.time && s.time <= to;
                        open.extend(block.iter().filter(seen));
                    } else if block.last().is_some_and(|last| last.time >= from) {
                        // Times and commits rise, and most reads want the end.
                        let (seen, _) = split_end(block, |s| s.time > to || s.seq > at);
                        let (_, inside) = split_end(seen, |s| s.time >= from);
                        open.extend_from_slice(inside);
                    }
                }
                let new = gathered(open, &(start..open.len()));
                let times = || new.iter().map(|s| s.time);
                let ends = match rises {
                    true => (new.first().map(|s| s.time), new.last().map(|s| s.time)),
                    false => (times().min(), times().max()),
                };
                if let (Some(first), Some(last)) = ends {
                    let (ordinal, source) = (pieces.len(), Source::Open(start..open.len(), rises));
                    pieces.push(Piece { first, last, ordinal, source });
                }
                for sample in head.rich() {
                    if sample.seq <= at && from <= sample.time && sample.time <= to {
                        push_payload(rows, payloads, sample.time, sample.seq, &sample.payload);
                    }
                }
            });
        }
    }

    /// True when the parts follow each other in time and no sample in them is to be skipped.
    fn in_order(&mut self) -> bool {
        let at = self.at;
        self.pieces.sort_by_key(|piece| piece.first);
        self.pieces.is_sorted_by(|a, b| a.last < b.first)
            && self.pieces.iter().all(|piece| match &piece.source {
                Source::Stored(..) => true,
                Source::Sealed(sealed) => sealed.rises && sealed.seqs.1 <= at,
                Source::Open(range, rises) => {
                    let open = gathered(&self.open, range);
                    *rises || open.is_sorted_by(|a, b| a.time < b.time)
                }
            })
    }

    /// Appends the in-range rows of each part that `take` did not consume; returns the number of rows.
    fn concatenate(&self, out: &mut Samples, mut take: Option<TakeChunk<'_>>) -> Result<usize> {
        let before = out.times_ms.len();
        for piece in &self.pieces {
            match &piece.source {
                Source::Open(range, _) => {
                    let open = gathered(&self.open, range);
                    out.times_ms.extend(open.iter().map(|s| s.time));
                    out.values.extend(open.iter().map(|s| f64::from_bits(s.bits)));
                }
                other => {
                    let (bytes, base) = place_of(other, &self.stored);
                    let explain = |error| explain(other, self.place.store, &error);
                    let head = ChunkHead::decode(bytes, base).map_err(explain)?;
                    let range = (self.from, self.to);
                    if let Some(take) = &mut take
                        && take(&Chunk { head, range, source: other, store: self.place.store }, out)?
                    {
                        continue;
                    }
                    head.samples_within(range, &mut out.times_ms, &mut out.values).map_err(explain)?;
                }
            }
        }
        let len = out.times_ms.len();
        if !out.histograms.is_empty() {
            out.histograms.resize(len, None);
        }
        if !out.starts_ms.is_empty() {
            out.starts_ms.resize(len, 0);
        }
        if !out.counts.is_empty() {
            out.counts.resize(len, 1);
        }
        Ok(len - before)
    }

    /// Fills `rows` with every visible sample, in order, one for each time.
    fn merge(&mut self, id: u32) -> Result<()> {
        let (from, to, at) = (self.from, self.to, self.at);
        for piece in &self.pieces {
            let mut push = |time: i64, seq: Seq, bits: u64| {
                if seq <= at && from <= time && time <= to {
                    let order = (piece.ordinal, self.rows.len());
                    self.rows.push(Row { time, seq, order, value: RowValue::Bits(bits) });
                }
            };
            if let Source::Open(range, _) = &piece.source {
                let open = gathered(&self.open, range);
                open.iter().for_each(|s| push(s.time, s.seq, s.bits));
                continue;
            }
            let (bytes, base) = place_of(&piece.source, &self.stored);
            self.times.clear();
            self.bits.clear();
            let seqs = decode(bytes, base, (&mut self.times, &mut self.bits))
                .and_then(|count| match &piece.source {
                    Source::Stored(key, _) => Ok(vec![key.seq; count]),
                    Source::Sealed(sealed) => sealed.each_seq(count),
                    Source::Open(..) => Ok(Vec::new()),
                })
                .map_err(|error| explain(&piece.source, self.place.store, &error))?;
            debug_assert_eq!(seqs.len(), self.times.len(), "every sample has a commit");
            for ((time, bits), seq) in self.times.iter().zip(&self.bits).zip(seqs) {
                push(*time, seq, *bits);
            }
        }
        let deletions: Vec<&Deletion> = self.deletions.iter().filter(|d| d.covers(id)).collect();
        self.rows.retain(|row| !deletions.iter().any(|d| d.hides(row.time, row.seq)));
        self.rows.sort_by_key(|row| (row.time, row.seq, row.order));
        let duplicates = &self.duplicates;
        self.rows.dedup_by(|later, kept| {
            let same = later.time == kept.time;
            if same && !duplicates.keep_first(later.seq) {
                std::mem::swap(later, kept);
            }
            same
        });
        debug_assert!(self.rows.is_sorted_by(|a, b| a.time < b.time), "one sample is left for each time");
        Ok(())
    }

    fn take_rows(&mut self, out: &mut Samples) -> Result<usize> {
        for row in &self.rows {
            let (mut start_ms, mut histogram) = (0, None);
            let bits = match &row.value {
                RowValue::Bits(bits) => *bits,
                RowValue::Payload(range) => {
                    let payload = gathered(&self.payloads, range);
                    let (start, value) = take_payload(payload).map_err(|error| SeriesError::Damaged {
                        place: format!("sample at {} ms", row.time),
                        what: error.to_string(),
                    })?;
                    start_ms = start;
                    match value {
                        Ok(found) => {
                            histogram = Some(Arc::new(found));
                            0
                        }
                        Err(bits) => bits,
                    }
                }
            };
            let before = out.times_ms.len();
            out.times_ms.push(row.time);
            out.values.push(f64::from_bits(bits));
            if histogram.is_some() && out.histograms.is_empty() {
                out.histograms.resize(before, None);
            }
            if histogram.is_some() || !out.histograms.is_empty() {
                out.histograms.push(histogram);
            }
            if start_ms != 0 && out.starts_ms.is_empty() {
                out.starts_ms.resize(before, 0);
            }
            if start_ms != 0 || !out.starts_ms.is_empty() {
                out.starts_ms.push(start_ms);
            }
        }
        Ok(self.rows.len())
    }
}

/// Splits a slice where `is_behind` begins to hold, up to its end. Cost: logarithmic in the distance from the
/// end.
fn split_end<T>(all: &[T], is_behind: impl Fn(&T) -> bool) -> (&[T], &[T]) {
    let mut stride = 1;
    let mut end = all.len();
    // For all from `end` on it holds.
    while let Some(at) = end.checked_sub(stride)
        && all.get(at).is_some_and(&is_behind)
    {
        end = at;
        stride *= 2;
    }
    // The stride may lead to before the beginning.
    let from = end.saturating_sub(stride);
    let inside = all.get(from..end).expect("the end only moves back");
    all.split_at(from + inside.partition_point(|item| !is_behind(item)))
}

fn push_payload(rows: &mut Vec<Row>, payloads: &mut Vec<u8>, time: i64, seq: Seq, payload: &[u8]) {
    let start = payloads.len();
    payloads.extend_from_slice(payload);
    // It counts as later than a float of the same commit.
    let (order, value) = ((usize::MAX, rows.len()), RowValue::Payload(start..payloads.len()));
    rows.push(Row { time, seq, order, value });
}

/// The part of the gathered columns that belongs to a piece or a row.
fn gathered<'g, T>(all: &'g [T], range: &Range<usize>) -> &'g [T] {
    all.get(range.clone()).expect("pieces and rows lie in what was gathered with them")
}

/// Bytes of a chunk, and the base of its times.
fn place_of<'s>(source: &'s Source, stored: &'s [u8]) -> (&'s [u8], i64) {
    match source {
        Source::Stored(key, range) => (gathered(stored, range), key.base()),
        Source::Sealed(sealed) => (&sealed.bytes, 0),
        Source::Open(..) => (&[], 0),
    }
}

fn decode(
    bytes: &[u8],
    base: i64,
    (times, bits): (&mut Vec<i64>, &mut Vec<u64>),
) -> Result<usize, ropewalk_base::DecodeError> {
    let head = ChunkHead::decode(bytes, base)?;
    head.samples(times, bits)?;
    Ok(head.count)
}

fn explain(source: &Source, store: u32, error: &DecodeError) -> SeriesError {
    match source {
        Source::Stored(key, _) => damaged(&key.encode(store), error),
        _ => SeriesError::Damaged { place: "chunk in memory".into(), what: error.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::split_end;

    #[test]
    fn the_end_is_split_off_wherever_it_begins() {
        for len in 0..40 {
            let all: Vec<usize> = (0..len).collect();
            for begin in 0..=len {
                let wanted = all.split_at(begin);
                assert_eq!(split_end(&all, |item| *item >= begin), wanted);
            }
        }
    }
}
