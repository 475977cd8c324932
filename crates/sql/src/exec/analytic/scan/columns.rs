//! Column cache of tables, in memory in the engine's format.
//!
//! ```text
//! rows in key order   │ segment: 64k rows as of commit 17 │ segment as of commit 12 │ not read yet │ …
//!                          ├ l_shipdate   Arrow arrays, made when a query first reads the column
//!                          └ l_quantity   …
//! ```
//! A query that reads a complete table at a snapshot uses a segment if no later commit wrote a row in its key
//! range, and reads the range again otherwise. Writers do not know segments: the reader checks the memtables,
//! which hold recent writes. Once a flush has moved commits out of memory to which a segment has not been
//! compared, the segment is read again, too.
//!
//! Invariants
//! 1. All columns of a segment show one state of its rows.
//! 2. Segments of one table do not overlap, and a segment belongs to one definition of the table: after a
//!    change the cache starts empty.
//! 3. All segments together stay within their byte limit. The least recently used segments are evicted first;
//!    a query never evicts a segment that it will itself read.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use datafusion::arrow::array::{Array as _, ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::DataType;
use parking_lot::Mutex;
use ropewalk::tables::{Schema, Table, TablesError, Value};
use ropewalk::{Database, Seq, Snapshot};

use crate::access::row_source::Access;
use crate::error::Result;
use crate::exec::analytic::kernel::convert::Builder;
use crate::exec::analytic::scan::rows::{BATCH_ROWS, Want};
use crate::expr::bug;
use crate::plan::Select;

/// Rows of a segment.
const SEGMENT_ROWS: usize = 8 * BATCH_ROWS;
/// A segment with long values has fewer rows.
const SEGMENT_BYTES: usize = 16 << 20;
/// Default size of the cache, unless that is more than half of the memory.
const DEFAULT_BYTES_MIN: u64 = 512 << 20;

/// With fewer rows, row-by-row execution ends before the query engine has planned the query.
const MANY_ROWS: usize = 8192;

/// The rows of one table under one definition: object number and definition version.
type Rows = (u32, u32);

/// The column cache of one database.
pub(crate) struct Columns {
    kept: Mutex<Kept>,
    bytes_max: AtomicUsize,
}

impl Default for Columns {
    fn default() -> Self {
        Self { kept: Mutex::default(), bytes_max: AtomicUsize::new(default_column_bytes()) }
    }
}

#[derive(Default)]
struct Kept {
    tables: HashMap<Rows, BTreeMap<Vec<u8>, Arc<Segment>>>,
    bytes: usize,
    /// Number of the newest query.
    query: u64,
}

struct Segment {
    start: Vec<u8>,
    /// Exclusive end; `None`: up to the table's last row.
    end: Option<Vec<u8>>,
    /// Rows of each batch.
    lengths: Vec<usize>,
    /// The latest commit up to which no write in its key range is known since it was read.
    seq: AtomicU64,
    /// The newest query that used it.
    query: AtomicU64,
    bytes: AtomicUsize,
    columns: Mutex<HashMap<usize, Vec<ArrayRef>>>,
}

impl Segment {
    fn rows(&self) -> usize {
        self.lengths.iter().sum()
    }

    fn ends_within(&self, end: Option<&[u8]>) -> bool {
        match (self.end.as_deref(), end) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(own), Some(end)) => own <= end,
        }
    }
}

fn bytes_of(arrays: &[ArrayRef]) -> usize {
    arrays.iter().map(|array| array.get_array_memory_size()).sum()
}

impl Columns {
    fn limit(&self, bytes: usize) {
        self.bytes_max.store(bytes, Ordering::Relaxed);
        let mut kept = self.kept.lock();
        kept.query += 1;
        let query = kept.query;
        kept.make_room(0, bytes, query);
    }

    /// Assigns a number to a query.
    fn begin(&self) -> u64 {
        let mut kept = self.kept.lock();
        kept.query += 1;
        kept.query
    }

    /// The cached segments of a table.
    fn known(&self, rows: Rows) -> Vec<Arc<Segment>> {
        let kept = self.kept.lock();
        kept.tables.get(&rows).map(|segments| segments.values().cloned().collect()).unwrap_or_default()
    }

    /// The number of cached rows of a table.
    fn rows(&self, schema: &Schema) -> usize {
        self.known(rows_of(schema)).iter().map(|segment| segment.rows()).sum()
    }

    /// The segment that starts at `start`, and the start of the next one.
    fn find(&self, rows: Rows, start: &[u8]) -> (Option<Arc<Segment>>, Option<Vec<u8>>) {
        let kept = self.kept.lock();
        let Some(segments) = kept.tables.get(&rows) else { return (None, None) };
        let next = segments
            .range::<[u8], _>((std::ops::Bound::Excluded(start), std::ops::Bound::Unbounded))
            .next()
            .map(|(start, _)| start.clone());
        (segments.get(start).cloned(), next)
    }

    /// Adds a segment in place of those that it overlaps, if it fits.
    fn keep(&self, rows: Rows, segment: Segment, query: u64) {
        let bytes = segment.bytes.load(Ordering::Relaxed);
        let mut kept = self.kept.lock();
        kept.drop_others(rows);
        let seq = segment.seq.load(Ordering::Relaxed);
        if let Some(segments) = kept.tables.get_mut(&rows) {
            let before = segments.range(..segment.start.clone()).next_back();
            let overlaps = before.filter(|(_, before)| !before.ends_within(Some(&segment.start)));
            let mut gone: Vec<Vec<u8>> = overlaps.map(|(start, _)| start.clone()).into_iter().collect();
            let behind = segments.range(segment.start.clone()..);
            gone.extend(
                behind
                    .take_while(|(start, _)| segment.end.as_ref().is_none_or(|end| *start < end))
                    .map(|(start, _)| start.clone()),
            );
            let newer = |start: &Vec<u8>| {
                segments.get(start).is_some_and(|other| other.seq.load(Ordering::Relaxed) > seq)
            };
            if gone.iter().any(newer) {
                // The rows of an old snapshot are not cached.
                return;
            }
            let gone: Vec<_> = gone.iter().filter_map(|start| segments.remove(start)).collect();
            kept.bytes -= gone.iter().map(|segment| segment.bytes.load(Ordering::Relaxed)).sum::<usize>();
        }
        if kept.make_room(bytes, self.bytes_max.load(Ordering::Relaxed), query) {
            kept.bytes += bytes;
            kept.tables.entry(rows).or_default().insert(segment.start.clone(), Arc::new(segment));
        }
    }

    /// Adds columns to a segment, if they fit.
    fn add(&self, rows: Rows, segment: &Arc<Segment>, columns: Vec<(usize, Vec<ArrayRef>)>, query: u64) {
        let mut kept = self.kept.lock();
        let is_kept = |kept: &Kept| {
            let found = kept.tables.get(&rows).and_then(|segments| segments.get(&segment.start));
            found.is_some_and(|found| Arc::ptr_eq(found, segment))
        };
        for (place, arrays) in columns {
            let bytes = bytes_of(&arrays);
            if !kept.make_room(bytes, self.bytes_max.load(Ordering::Relaxed), query) || !is_kept(&kept) {
                return;
            }
            if segment.columns.lock().insert(place, arrays).is_none() {
                segment.bytes.fetch_add(bytes, Ordering::Relaxed);
                kept.bytes += bytes;
            }
        }
    }
}

impl Kept {
    /// Evicts segments used by older queries, the oldest first, until `bytes` more fit. Returns false when
    /// they do not fit.
    fn make_room(&mut self, bytes: usize, bytes_max: usize, query: u64) -> bool {
        while self.bytes.saturating_add(bytes) > bytes_max {
            let all = self.tables.iter().flat_map(|(rows, segments)| {
                segments
                    .iter()
                    .map(move |(start, segment)| (segment.query.load(Ordering::Relaxed), *rows, start))
            });
            let Some((used, rows, start)) = all.min_by_key(|(used, ..)| *used) else { return false };
            if used >= query {
                return false;
            }
            let start = start.clone();
            if let Some(segment) = self.tables.get_mut(&rows).and_then(|segments| segments.remove(&start)) {
                self.bytes -= segment.bytes.load(Ordering::Relaxed);
            }
        }
        true
    }

    /// Drops older definitions of the same rows.
    fn drop_others(&mut self, (object, version): Rows) {
        let is_old = |rows: &Rows| rows.0 == object && rows.1 < version;
        if !self.tables.keys().any(is_old) {
            return;
        }
        let old: Vec<_> = self.tables.extract_if(|rows, _| is_old(rows)).collect();
        let segments = old.iter().flat_map(|(_, segments)| segments.values());
        self.bytes -= segments.map(|segment| segment.bytes.load(Ordering::Relaxed)).sum::<usize>();
    }
}

/// Default limit of a database's column cache unless [`limit_columns`] sets another one: a quarter of the
/// memory that the process may use, at least 512 MiB, or half of the memory if that is less. 512 MiB where
/// the system does not report it.
pub fn default_column_bytes() -> usize {
    usize::try_from(default_bytes(ropewalk::engine::process_memory())).unwrap_or(usize::MAX)
}

fn default_bytes(memory: Option<u64>) -> u64 {
    memory.map_or(DEFAULT_BYTES_MIN, |memory| (memory / 4).max(DEFAULT_BYTES_MIN.min(memory / 2)))
}

/// Sets the limit of a database's column cache to `bytes`, effective now. The default is
/// [`default_column_bytes`]; 0 disables the cache.
pub fn limit_columns(db: &Database, bytes: usize) {
    db.extension::<Columns>().limit(bytes);
}

/// The bytes that a database's column cache uses.
pub fn column_bytes(db: &Database) -> usize {
    db.extension::<Columns>().kept.lock().bytes
}

impl Select {
    /// True if it works on complete tables of which one is large, at a snapshot. Queries in a transaction
    /// never do.
    pub(crate) fn works_on_large_tables(&self, access: &mut Access<'_>) -> Result<bool> {
        let Access::Snapshot(db, snapshot) = access else { return Ok(false) };
        if !self.works_on_whole_tables() {
            return Ok(false);
        }
        for level in self.levels.iter().filter(|level| level.path.is_whole()) {
            if has_rows(db, snapshot, (&level.table, &level.schema), MANY_ROWS)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// True when a table has at least so many rows. Scans that many rows unless its columns are cached.
fn has_rows(
    db: &Database,
    snapshot: &Snapshot,
    (table, schema): (&Table, &Schema),
    least: usize,
) -> Result<bool> {
    if db.extension::<Columns>().rows(schema) >= least {
        return Ok(true);
    }
    let mut rows = 0;
    snapshot.tables(db).scan_stored(table, None, None, &mut |_| {
        rows += 1;
        Ok(rows < least)
    })?;
    Ok(rows >= least)
}

fn rows_of(schema: &Schema) -> Rows {
    (schema.rows_object(), schema.version())
}

/// A range of a table, from one stored key to another.
pub(crate) struct Stretch {
    table: Table,
    rows: Rows,
    start: Vec<u8>,
    end: Option<Vec<u8>>,
    query: u64,
}

/// Divides a table into at most `parts` stretches of similar row counts, by the cached segments, or else by
/// `cuts`; returns the number of rows if all are known.
pub(crate) fn stretches(
    db: &Database,
    table: &Table,
    schema: &Schema,
    parts: usize,
    cuts: impl FnOnce() -> Result<Vec<Vec<u8>>>,
) -> Result<(Vec<Stretch>, Option<u64>)> {
    let columns = db.extension::<Columns>();
    let (rows, query) = (rows_of(schema), columns.begin());
    let segments = columns.known(rows);
    let first = schema.rows_object().to_be_bytes().to_vec();
    let (mut behind, mut total) = (Some(first.clone()), 0);
    for segment in &segments {
        // A gap ends the chain.
        behind = if behind.as_deref() == Some(segment.start.as_slice()) {
            segment.end.clone()
        } else {
            Some(Vec::new())
        };
        total += segment.rows();
    }
    let are_all = behind.is_none();
    let cuts = match segments.len() {
        0 => cuts()?,
        _ => {
            let (mut cuts, mut seen) = (Vec::new(), 0);
            for segment in &segments {
                if seen * parts >= total * (cuts.len() + 1) && seen > 0 && cuts.len() + 1 < parts {
                    cuts.push(segment.start.clone());
                }
                seen += segment.rows();
            }
            cuts
        }
    };
    let mut starts = vec![first];
    starts.extend(cuts);
    let ends: Vec<Option<Vec<u8>>> = starts.iter().skip(1).cloned().map(Some).chain([None]).collect();
    let stretch = |(start, end)| Stretch { table: table.clone(), rows, start, end, query };
    Ok((starts.into_iter().zip(ends).map(stretch).collect(), are_all.then_some(total as u64)))
}

/// Columns read into batches.
struct Gathered {
    arrays: Vec<Vec<ArrayRef>>,
    lengths: Vec<usize>,
    /// The key at which reading stopped, if before the end.
    stopped_at: Option<Vec<u8>>,
}

/// Reads columns of the rows between two stored keys: batches of `lengths`, or as many rows as a segment has.
fn gather(
    (db, snapshot): (&Database, &Snapshot),
    table: &Table,
    (start, end): (&[u8], Option<&[u8]>),
    columns: &[(usize, &DataType)],
    lengths: Option<&[usize]>,
) -> Result<Gathered> {
    let mut builders: Vec<Builder> =
        columns.iter().map(|(_, form)| Builder::new(form, BATCH_ROWS)).collect::<Result<_>>()?;
    let mut gathered =
        Gathered { arrays: vec![Vec::new(); columns.len()], lengths: Vec::new(), stopped_at: None };
    let (mut rows, mut all, mut bytes) = (0_usize, 0_usize, 0_usize);
    let mut outcome: Result<()> = Ok(());
    let finish = |builders: &mut Vec<Builder>, gathered: &mut Gathered, rows: usize| {
        gathered.arrays.iter_mut().zip(builders).for_each(|(arrays, builder)| arrays.push(builder.finish()));
        gathered.lengths.push(rows);
    };
    snapshot.tables(db).scan_stored(table, Some(start), end, &mut |row| {
        if bytes >= SEGMENT_BYTES || lengths.is_none() && all >= SEGMENT_ROWS {
            gathered.stopped_at = Some(row.stored_key().to_vec());
            return Ok(false);
        }
        for (builder, (place, _)) in builders.iter_mut().zip(columns) {
            let value = row.get(*place)?;
            bytes += match &value {
                Value::Text(text) | Value::Json(text) | Value::Jsonb(text) => text.len(),
                Value::Bytea(given) => given.len(),
                Value::Array(_) => 64,
                _ => 0,
            };
            if let Err(error) = builder.push(&value) {
                outcome = Err(error);
                return Ok(false);
            }
        }
        rows += 1;
        all += 1;
        let length = lengths
            .map_or(BATCH_ROWS, |lengths| lengths.get(gathered.lengths.len()).copied().unwrap_or(usize::MAX));
        if rows == length {
            finish(&mut builders, &mut gathered, rows);
            rows = 0;
        }
        Ok::<bool, TablesError>(true)
    })?;
    outcome?;
    if rows > 0 {
        finish(&mut builders, &mut gathered, rows);
    }
    Ok(gathered)
}

/// Reads a stretch in batches, until `each` returns false.
pub(crate) fn read(
    want: &Want,
    stretch: &Stretch,
    at: (&Database, &Snapshot),
    each: &mut dyn FnMut(RecordBatch) -> bool,
) -> Result<()> {
    let columns = at.0.extension::<Columns>();
    let mut start = stretch.start.clone();
    loop {
        let (found, next) = columns.find(stretch.rows, &start);
        let served = match found.filter(|segment| segment.ends_within(stretch.end.as_deref())) {
            Some(segment) => {
                serve(want, stretch, at, &columns, &segment)?.map(|batches| (batches, segment.end.clone()))
            }
            None => None,
        };
        let (batches, end) = match served {
            Some(served) => served,
            None => {
                let within = |next: &Vec<u8>| stretch.end.as_ref().is_none_or(|end| next < end);
                let end = next.filter(within).or_else(|| stretch.end.clone());
                read_anew(want, stretch, at, &columns, (&start, end))?
            }
        };
        for batch in batches {
            if !each(batch) {
                return Ok(());
            }
        }
        match end {
            Some(end) if stretch.end.as_ref().is_none_or(|last| end < *last) => start = end,
            _ => return Ok(()),
        }
    }
}

/// The batches of a segment, with its columns and newly read missing ones; `None` when the segment must be
/// read again.
fn serve(
    want: &Want,
    stretch: &Stretch,
    (db, snapshot): (&Database, &Snapshot),
    columns: &Columns,
    segment: &Arc<Segment>,
) -> Result<Option<Vec<RecordBatch>>> {
    let (seen, seq) = (Seq(segment.seq.load(Ordering::Acquire)), snapshot.seq());
    let bounds = (Some(segment.start.as_slice()), segment.end.as_deref());
    let unchanged = || snapshot.tables(db).is_known_unchanged_since(stretch.rows.0, bounds.0, bounds.1, seen);
    if seen > seq || seen < seq && !unchanged() {
        return Ok(None);
    }
    segment.seq.fetch_max(seq.0, Ordering::AcqRel);
    segment.query.fetch_max(stretch.query, Ordering::Relaxed);
    let mut held: HashMap<usize, Vec<ArrayRef>> = {
        let held = segment.columns.lock();
        let wanted = want.columns.iter().filter_map(|place| Some((*place, held.get(place)?.clone())));
        wanted.collect()
    };
    let lacking: Vec<(usize, &DataType)> = want
        .columns
        .iter()
        .zip(want.fields.fields())
        .filter(|(place, _)| !held.contains_key(place))
        .map(|(place, field)| (*place, field.data_type()))
        .collect();
    if !lacking.is_empty() {
        let bounds = (segment.start.as_slice(), segment.end.as_deref());
        let gathered = gather((db, snapshot), &stretch.table, bounds, &lacking, Some(&segment.lengths))?;
        if gathered.lengths != segment.lengths {
            // The values are too long for a segment of so many rows.
            return Ok(None);
        }
        let places = lacking.iter().map(|(place, _)| *place);
        let added: Vec<(usize, Vec<ArrayRef>)> = places.zip(gathered.arrays).collect();
        held.extend(added.iter().cloned());
        columns.add(stretch.rows, segment, added, stretch.query);
    }
    let arrays: Option<Vec<Vec<ArrayRef>>> =
        want.columns.iter().map(|place| held.get(place).cloned()).collect();
    batches(want, &arrays.ok_or_else(|| bug("a column that was not read"))?, &segment.lengths).map(Some)
}

/// Reads rows from `start` up to `end`, or one segment of them, and caches them. Returns the key at which it
/// stopped.
fn read_anew(
    want: &Want,
    stretch: &Stretch,
    at: (&Database, &Snapshot),
    columns: &Columns,
    (start, end): (&[u8], Option<Vec<u8>>),
) -> Result<(Vec<RecordBatch>, Option<Vec<u8>>)> {
    let forms = want.fields.fields().iter().map(|field| field.data_type());
    let wanted: Vec<(usize, &DataType)> = want.columns.iter().copied().zip(forms).collect();
    let gathered = gather(at, &stretch.table, (start, end.as_deref()), &wanted, None)?;
    let end = gathered.stopped_at.or(end);
    let read = batches(want, &gathered.arrays, &gathered.lengths)?;
    let bytes = gathered.arrays.iter().map(|arrays| bytes_of(arrays)).sum();
    let segment = Segment {
        start: start.to_vec(),
        end: end.clone(),
        lengths: gathered.lengths,
        seq: AtomicU64::new(at.1.seq().0),
        query: AtomicU64::new(stretch.query),
        bytes: AtomicUsize::new(bytes),
        columns: Mutex::new(want.columns.iter().copied().zip(gathered.arrays).collect()),
    };
    columns.keep(stretch.rows, segment, stretch.query);
    Ok((read, end))
}

fn batches(want: &Want, columns: &[Vec<ArrayRef>], lengths: &[usize]) -> Result<Vec<RecordBatch>> {
    let batch = |(number, rows): (usize, &usize)| {
        let arrays: Option<Vec<ArrayRef>> =
            columns.iter().map(|arrays| arrays.get(number).cloned()).collect();
        let arrays = arrays.ok_or_else(|| bug("a column with fewer batches"))?;
        let options = RecordBatchOptions::new().with_row_count(Some(*rows));
        RecordBatch::try_new_with_options(want.fields.clone(), arrays, &options)
            .map_err(|error| bug(&error.to_string()))
    };
    lengths.iter().enumerate().map(batch).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_bytes_are_a_quarter_of_memory_within_bounds() {
        let mib = |memory: u64| default_bytes(Some(memory << 20)) >> 20;
        assert_eq!([24 << 10, 4096, 2048].map(mib), [6 << 10, 1024, 512]);
        assert_eq!([1536, 1024, 512, 64, 0].map(mib), [512, 512, 256, 32, 0]);
        assert_eq!(default_bytes(None), 512 << 20);
        assert_eq!(default_bytes(Some(u64::MAX)), u64::MAX / 4);
    }
}
