//! YCSB's core workloads (Cooper et al., SoCC 2010) on rows of 8 + 100 bytes, closed loop, one session per thread.
//!
//! | | operations | keys |
//! |---|---|---|
//! | A | half reads, half updates | uniform or zipfian (0.99, scattered over the table) |
//! | B | 95 % reads, 5 % updates | the same |
//! | C | reads | the same |
//! | D | 95 % reads of new rows, 5 % inserts | recency uniform or zipfian |
//! | E | 95 % scans of 1 to 100 rows, 5 % inserts | uniform or zipfian |
//! | F | half reads, half read-modify-writes | uniform or zipfian |
//!
//! One store is loaded once and runs A, B, C, F, D, E, as YCSB advises. Before the clock starts one session
//! performs some operations from a fixed seed, whose results must be the same in every system.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};

use crate::harness::closed_loop;
use crate::harness::random::SplitMix;
use crate::harness::worker::{Figure, Outcome, Task};
use crate::workloads::kernel::rows::{Order, Rows, VALUE_BYTES, scramble, value};

/// Rows of the longest scan.
const SCAN_ROWS_MAX: u64 = 100;
/// Number of compared operations.
const COMPARED: usize = 500;
const THETA: f64 = 0.99;

/// A store that several sessions use at once.
pub trait SharedStore: Sized + Sync {
    /// Handle of one thread.
    type Session<'a>: Session
    where
        Self: 'a;

    /// Creates a store in the empty directory `dir`. `durable`: every commit is synced; otherwise it is
    /// written to the operating system, or as close to that as the system allows.
    fn create(dir: &Path, durable: bool) -> Result<Self>;
    /// Inserts all rows.
    fn load(&mut self, rows: Rows) -> Result<()>;
    /// Opens for one thread.
    fn session(&self) -> Result<Self::Session<'_>>;
}

/// Operations of a thread. Each call is a separate transaction.
pub trait Session {
    /// The bytes' sum (first and last), or `None` when the key does not exist.
    fn read(&mut self, key: u64) -> Result<Option<u64>>;
    /// Replaces the value of an existing row.
    fn update(&mut self, key: u64, value: &[u8; VALUE_BYTES]) -> Result<()>;
    /// Adds a row.
    fn insert(&mut self, key: u64, value: &[u8; VALUE_BYTES]) -> Result<()>;
    /// Reads the value and writes the value changed by `change`.
    fn modify(&mut self, key: u64, change: fn(&mut [u8; VALUE_BYTES])) -> Result<()>;
    /// Like [`crate::workloads::kernel::ordered::OrderedReader::scan`].
    fn scan(&mut self, from: u64, limit: usize) -> Result<(u64, usize)>;
}

/// A workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// Update heavy.
    A,
    /// Read mostly.
    B,
    /// Read only.
    C,
    /// Read latest.
    D,
    /// Short ranges.
    E,
    /// Read-modify-write.
    F,
}

/// In the order in which they run.
pub const WORKLOADS: [(&str, Workload); 6] = [
    ("a", Workload::A),
    ("b", Workload::B),
    ("c", Workload::C),
    ("f", Workload::F),
    ("d", Workload::D),
    ("e", Workload::E),
];

/// Ranks from 0 with probability falling as 1/rank^0.99. Gray et al., "Quickly generating billion-record synthetic
/// databases", SIGMOD 1994.
#[derive(Debug, Clone, Copy)]
struct Zipf {
    count: u64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    fn new(count: u64) -> Self {
        let sum = |n: u64| (1..=n).map(|i| (i as f64).powf(-THETA)).sum::<f64>();
        let zeta = sum(count);
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - THETA)) / (1.0 - sum(2) / zeta);
        Self { count, zeta, alpha: 1.0 / (1.0 - THETA), eta }
    }

    fn next(&self, random: &mut SplitMix) -> u64 {
        let u = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let uz = u * self.zeta;
        if uz < 1.0 {
            0
        } else if uz < 1.0 + 0.5_f64.powf(THETA) {
            1
        } else {
            let rank = self.count as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha);
            (rank as u64).min(self.count - 1)
        }
    }
}

/// Draws operations.
struct Driver<'a> {
    rows: Rows,
    /// Number of assigned row numbers; rows above the loaded ones may still be in flight.
    inserted: &'a AtomicU64,
    zipf: Option<Zipf>,
    random: SplitMix,
}

impl Driver<'_> {
    /// The number of a loaded row.
    fn number(&mut self) -> u64 {
        match self.zipf {
            // Scattered, so that hot rows are not neighbours.
            Some(zipf) => scramble(zipf.next(&mut self.random)) % self.rows.count,
            None => self.random.below(self.rows.count),
        }
    }

    /// The number of a row, preferring new ones.
    fn latest(&mut self) -> u64 {
        let newest = self.inserted.load(Ordering::Relaxed);
        let back = match self.zipf {
            Some(zipf) => zipf.next(&mut self.random),
            None => self.random.below(self.rows.count),
        };
        newest - 1 - back.min(newest - 1)
    }

    /// Performs one operation; returns the sum that it read, zero for writes.
    fn step(&mut self, workload: Workload, session: &mut impl Session) -> Result<u64> {
        let reads = match workload {
            Workload::A | Workload::F => 50,
            Workload::B | Workload::D | Workload::E => 95,
            Workload::C => 100,
        };
        let read = self.random.below(100) < reads;
        match (workload, read) {
            (Workload::D, true) => {
                let number = self.latest();
                let found = session.read(self.rows.key(number))?;
                // A row that another thread is currently inserting may not exist yet.
                ensure!(found.is_some() || number >= self.rows.count, "row {number} is missing");
                Ok(found.unwrap_or(0))
            }
            (Workload::E, true) => {
                let from = self.number();
                let limit = 1 + self.random.below(SCAN_ROWS_MAX) as usize;
                let (sum, rows) = session.scan(self.rows.key(from), limit)?;
                ensure!(rows > 0, "a scan from row {from} finds nothing");
                Ok(sum.wrapping_add(rows as u64))
            }
            (_, true) => {
                let number = self.number();
                session.read(self.rows.key(number))?.with_context(|| format!("row {number} is missing"))
            }
            (Workload::D | Workload::E, false) => {
                let key = self.rows.key(self.inserted.fetch_add(1, Ordering::Relaxed));
                session.insert(key, &value(key)).map(|()| 0)
            }
            (Workload::F, false) => {
                let key = self.rows.key(self.number());
                session.modify(key, change).map(|()| 0)
            }
            (_, false) => {
                let key = self.rows.key(self.number());
                session.update(key, &value(self.random.next_u64())).map(|()| 0)
            }
        }
    }
}

/// Changes the bytes that the sums cover, so that a lost write is detected.
fn change(bytes: &mut [u8; VALUE_BYTES]) {
    if let Some(first) = bytes.first_mut() {
        *first = first.wrapping_add(1);
    }
}

/// Loads a store and runs all workloads. `task.order` is the order of the keys; `task.zipfian` and
/// `task.durable` set the rest.
pub fn run<S: SharedStore>(task: &Task) -> Result<Outcome> {
    let rows = Rows { count: task.rows, order: Order::Rand };
    let mut store = S::create(&task.dir, task.durable)?;
    store.load(rows)?;
    let inserted = AtomicU64::new(rows.count);
    let zipf = task.zipfian.then(|| Zipf::new(rows.count));
    let mut outcome = Outcome::default();
    // Compares the rows as loaded: the timed workloads change them by a varying number of operations.
    outcome.digest("answers", compare(&store, rows, zipf)?);
    for (name, workload) in WORKLOADS {
        let driver = |seed: u64| Driver { rows, inserted: &inserted, zipf, random: SplitMix::new(seed) };
        let figure = timed(&store, task, workload, driver)?;
        outcome.figure(name, figure);
    }
    Ok(outcome)
}

/// Sums the results of operations from a fixed seed. Inserts are excluded: their keys belong to the timed
/// part.
fn compare<S: SharedStore>(store: &S, rows: Rows, zipf: Option<Zipf>) -> Result<u64> {
    let mut session = store.session()?;
    let inserted = AtomicU64::new(rows.count);
    let mut sum = 0_u64;
    for (_, workload) in WORKLOADS.iter().filter(|(_, w)| !matches!(w, Workload::D | Workload::E)) {
        let mut driver = Driver { rows, inserted: &inserted, zipf, random: SplitMix::new(9) };
        for _ in 0..COMPARED {
            sum = sum.wrapping_mul(31).wrapping_add(driver.step(*workload, &mut session)?);
        }
    }
    let mut random = SplitMix::new(10);
    for _ in 0..COMPARED {
        let (seen, found) = session.scan(rows.key(random.below(rows.count)), 50)?;
        sum = sum.wrapping_mul(31).wrapping_add(seen).wrapping_add(found as u64);
    }
    Ok(sum)
}

/// Threads work until the time is over; the first tenth is not counted.
fn timed<'d, S: SharedStore>(
    store: &S,
    task: &Task,
    workload: Workload,
    driver: impl Fn(u64) -> Driver<'d> + Sync,
) -> Result<Figure> {
    let (figure, _) = closed_loop::run(task, |own| {
        let mut session = store.session()?;
        let mut driver = driver(100 + own.thread as u64);
        while own.continues() {
            own.time(|| driver.step(workload, &mut session))?;
        }
        Ok(())
    })?;
    Ok(figure)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use super::*;
    use crate::harness::worker::Group;
    use crate::workloads::kernel::ordered::touch;

    #[test]
    fn the_hottest_of_a_thousand_rows_gets_an_eighth() {
        let (zipf, mut random) = (Zipf::new(1000), SplitMix::new(1));
        let draws: Vec<u64> = (0..100_000).map(|_| zipf.next(&mut random)).collect();
        assert!(draws.iter().all(|&rank| rank < 1000));
        let hottest = draws.iter().filter(|&&rank| rank == 0).count();
        assert!((11_000..15_000).contains(&hottest), "{hottest}");
        assert!(draws.iter().filter(|&&rank| rank >= 500).count() > 5_000);
    }

    #[derive(Default)]
    struct Map(Mutex<BTreeMap<u64, [u8; VALUE_BYTES]>>);

    impl SharedStore for Map {
        type Session<'a> = &'a Map;

        fn create(_: &Path, _: bool) -> Result<Self> {
            Ok(Self::default())
        }

        fn load(&mut self, rows: Rows) -> Result<()> {
            self.0.lock().unwrap().extend(rows.iter());
            Ok(())
        }

        fn session(&self) -> Result<&Map> {
            Ok(self)
        }
    }

    impl Session for &Map {
        fn read(&mut self, key: u64) -> Result<Option<u64>> {
            Ok(self.0.lock().unwrap().get(&key).map(|value| touch(value)))
        }

        fn update(&mut self, key: u64, value: &[u8; VALUE_BYTES]) -> Result<()> {
            *self.0.lock().unwrap().get_mut(&key).context("no such row")? = *value;
            Ok(())
        }

        fn insert(&mut self, key: u64, value: &[u8; VALUE_BYTES]) -> Result<()> {
            ensure!(self.0.lock().unwrap().insert(key, *value).is_none(), "the row is there");
            Ok(())
        }

        fn modify(&mut self, key: u64, change: fn(&mut [u8; VALUE_BYTES])) -> Result<()> {
            change(self.0.lock().unwrap().get_mut(&key).context("no such row")?);
            Ok(())
        }

        fn scan(&mut self, from: u64, limit: usize) -> Result<(u64, usize)> {
            let map = self.0.lock().unwrap();
            let found: Vec<u64> = map.range(from..).take(limit).map(|(_, value)| touch(value)).collect();
            Ok((found.iter().fold(0, |sum: u64, v| sum.wrapping_add(*v)), found.len()))
        }
    }

    #[test]
    fn every_workload_runs_and_compares() {
        for zipfian in [false, true] {
            let task = Task { rows: 2000, threads: 2, seconds: 0.01, zipfian, ..Task::new(Group::Ycsb) };
            let (one, two) = (run::<Map>(&task).unwrap(), run::<Map>(&task).unwrap());
            assert_eq!(one.figures.len(), 6);
            assert!(!one.digests.is_empty());
            assert_eq!(one.digests, two.digests);
        }
    }
}
