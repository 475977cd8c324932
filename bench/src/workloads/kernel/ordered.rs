//! Ordered key-value stores under the same measurement: load, settle, point hits and misses, scans of 100,
//! bytes on disk.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::harness::machine::disk_bytes;
use crate::harness::random::SplitMix;
use crate::harness::worker::{Figure, Outcome, Task};
use crate::workloads::kernel::rows::{ROW_BYTES, Rows};

/// Rows of one scan.
pub const SCAN_ROWS: usize = 100;

/// A store that keeps rows in key order.
pub trait OrderedStore: Sized {
    /// Reads at one snapshot of the store.
    type Reader<'a>: OrderedReader
    where
        Self: 'a;

    /// A new store in the empty directory `dir`.
    fn create(dir: &Path) -> Result<Self>;

    /// Inserts all rows in their order; all are durable when it returns.
    fn load(&mut self, rows: Rows) -> Result<()>;

    /// Compacts the store for fast reads (flush, compact, checkpoint), timed separately from the load. False
    /// when there is nothing to do.
    fn settle(&mut self) -> Result<bool>;

    /// Opens for reading.
    fn reader(&self) -> Result<Self::Reader<'_>>;

    /// Figures that only this store has, such as its ablations; called last, and takes ownership of the
    /// store.
    fn extra(self, _workload: &Workload, _outcome: &mut Outcome) -> Result<()> {
        Ok(())
    }

    /// False when the store has no files.
    const ON_DISK: bool = true;
}

/// Point and range reads. Both touch the first and the last byte of every value and add them up.
pub trait OrderedReader {
    /// The bytes' sum, or `None` when the key does not exist.
    fn get(&mut self, key: u64) -> Result<Option<u64>>;
    /// The bytes' sum over up to `limit` rows from the first key that is not below `from`, and how many there were.
    fn scan(&mut self, from: u64, limit: usize) -> Result<(u64, usize)>;
}

/// Definition of "touching" a value, the same for all systems.
#[inline]
pub fn touch(value: &[u8]) -> u64 {
    let first = value.first().copied().unwrap_or_default();
    let last = value.last().copied().unwrap_or_default();
    u64::from(first) + (u64::from(last) << 8)
}

/// The lookups, prepared before any timing. Each pass has separate keys.
#[derive(Debug)]
pub struct Workload {
    /// The rows in the store.
    pub rows: Rows,
    hits: Vec<Vec<u64>>,
    misses: Vec<Vec<u64>>,
    scans: Vec<Vec<u64>>,
    warm: Vec<u64>,
}

impl Workload {
    /// The lookups of a task.
    pub fn new(task: &Task) -> Self {
        let rows = Rows { count: task.rows, order: task.order };
        let mut seeds = SplitMix::new(42);
        let mut passes =
            |one: &dyn Fn(u64) -> Vec<u64>| (0..task.passes).map(|_| one(seeds.next_u64())).collect();
        Self {
            rows,
            hits: passes(&|seed| rows.hits(task.lookups, seed)),
            misses: passes(&|seed| rows.misses(task.lookups, seed)),
            scans: passes(&|seed| rows.hits(task.lookups / 25, seed)),
            warm: rows.hits(task.lookups, 41),
        }
    }

    /// Nanoseconds per hit, after one untimed pass.
    pub fn hit<R: OrderedReader>(&self, reader: &mut R) -> Result<(Figure, u64)> {
        let mut sum = 0u64;
        for &key in &self.warm {
            sum = sum.wrapping_add(reader.get(key)?.unwrap_or_default());
        }
        let mut figure = Figure::default();
        for keys in &self.hits {
            let started = Instant::now();
            let mut found = 0;
            for &key in keys {
                if let Some(bytes) = reader.get(key)? {
                    sum = sum.wrapping_add(bytes);
                    found += 1;
                }
            }
            figure.per(started, keys.len(), 1e9);
            ensure!(found == keys.len(), "{found} of {} keys found", keys.len());
        }
        Ok((figure, sum))
    }

    fn miss<R: OrderedReader>(&self, reader: &mut R) -> Result<Figure> {
        let mut figure = Figure::default();
        for keys in &self.misses {
            let started = Instant::now();
            let mut found = 0;
            for &key in keys {
                found += usize::from(reader.get(key)?.is_some());
            }
            figure.per(started, keys.len(), 1e9);
            ensure!(found == 0, "{found} keys found that were never written");
        }
        Ok(figure)
    }

    fn scan<R: OrderedReader>(&self, reader: &mut R) -> Result<(Figure, u64)> {
        let (mut figure, mut sum) = (Figure::default(), 0u64);
        for keys in &self.scans {
            let started = Instant::now();
            for &key in keys {
                let (bytes, rows) = reader.scan(key, SCAN_ROWS)?;
                sum = sum.wrapping_mul(31).wrapping_add(bytes).wrapping_add(rows as u64);
            }
            figure.per(started, keys.len(), 1e6);
        }
        Ok((figure, sum))
    }
}

/// Runs the whole group on one store.
pub fn run<S: OrderedStore>(task: &Task) -> Result<Outcome> {
    let workload = Workload::new(task);
    let rows = workload.rows;
    let mut outcome = Outcome::default();
    let mut store = S::create(&task.dir)?;

    let started = Instant::now();
    store.load(rows)?;
    outcome.figure("load", Figure::one(rows.count as f64 / started.elapsed().as_secs_f64()));
    let started = Instant::now();
    if store.settle()? {
        outcome.figure("settle", Figure::one(started.elapsed().as_secs_f64()));
    }
    if S::ON_DISK {
        outcome.figure("disk", Figure::one(disk_bytes(&task.dir)? as f64 / (rows.count * ROW_BYTES) as f64));
    }

    let mut reader = store.reader()?;
    let (figure, sum) = workload.hit(&mut reader)?;
    outcome.figure("hit", figure);
    outcome.digest("hit", sum);
    outcome.figure("miss", workload.miss(&mut reader)?);
    let (figure, sum) = workload.scan(&mut reader)?;
    outcome.figure("scan100", figure);
    outcome.digest("scan100", sum);
    drop(reader);
    store.extra(&workload, &mut outcome)?;
    Ok(outcome)
}
