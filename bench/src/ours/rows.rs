//! Ordered rows in one keyspace: a budget of 3 GB as the peers' caches, filters on every level, no compression.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, ensure};
use ropewalk::engine::{FilterPolicy, Keyspace, KeyspaceOptions};
use ropewalk::{Database, Durability, Options, Snapshot};
use ropewalk_bench::harness::worker::{Figure, Latencies, Outcome, Task};
use ropewalk_bench::workloads::kernel::commit::DurableStore;
use ropewalk_bench::workloads::kernel::ordered::{OrderedReader, OrderedStore, Workload, touch};
use ropewalk_bench::workloads::kernel::rows::{Rows, VALUE_BYTES, scramble, value};

const MEMORY_BYTES: u64 = 3 << 30;
const ROWS_PER_BATCH: u64 = 10_000;
/// Submitted batches before the loader waits for the oldest.
const BATCHES_IN_FLIGHT: usize = 4;
/// Submitted commits before the submitting thread waits for the oldest.
const COMMITS_IN_FLIGHT: usize = 1024;

/// A database with one keyspace.
pub(crate) struct Store {
    db: Database,
    keyspace: Keyspace,
    dir: PathBuf,
}

fn open(dir: &Path, options: Options) -> Result<Store> {
    let db = options.memory_budget(MEMORY_BYTES).open(dir)?;
    let keyspace =
        db.keyspace("rows", KeyspaceOptions { filter: FilterPolicy::All, ..KeyspaceOptions::default() })?;
    Ok(Store { db, keyspace, dir: dir.into() })
}

impl DurableStore for Store {
    fn create(dir: &Path) -> Result<Self> {
        open(dir, Options::new())
    }

    fn commit(&self, key: u64, value: &[u8; VALUE_BYTES]) -> Result<()> {
        self.db.put(self.keyspace, &key.to_be_bytes(), value, Durability::Sync)?;
        Ok(())
    }

    fn rows(&self) -> Result<u64> {
        let snapshot = self.db.snapshot();
        let mut cursor = snapshot.cursor(self.keyspace);
        let mut rows = 0;
        cursor.first()?;
        while cursor.valid() {
            rows += 1;
            cursor.next()?;
        }
        Ok(rows)
    }
}

/// One thread submits durable commits of one row and waits only for the oldest of many.
pub(crate) fn submit(task: &Task) -> Result<Outcome> {
    let store = <Store as DurableStore>::create(&task.dir)?;
    let (mut latencies, mut in_flight) = (Latencies::default(), VecDeque::with_capacity(COMMITS_IN_FLIGHT));
    let (mut submitted, begin) = (0u64, Instant::now());
    while begin.elapsed().as_secs_f64() < task.seconds {
        let key = scramble(submitted) << 1;
        let (bytes, row) = (key.to_be_bytes(), value(key));
        let started = Instant::now();
        let rows = [(bytes.as_slice(), row.as_slice())];
        in_flight.push_back((started, store.db.submit_puts(store.keyspace, rows, Durability::Sync)?));
        submitted += 1;
        if in_flight.len() == COMMITS_IN_FLIGHT
            && let Some((started, commit)) = in_flight.pop_front()
        {
            commit.wait()?;
            latencies.record(started.elapsed());
        }
    }
    for (started, commit) in in_flight {
        commit.wait()?;
        latencies.record(started.elapsed());
    }
    let rate = submitted as f64 / begin.elapsed().as_secs_f64();
    ensure!(store.rows()? == submitted, "{submitted} commits acknowledged, {} rows present", store.rows()?);
    let mut outcome = Outcome::default();
    outcome.figure("submit", Figure::one(rate).with(&latencies));
    Ok(outcome)
}

impl OrderedStore for Store {
    type Reader<'a> = Reader;

    fn create(dir: &Path) -> Result<Self> {
        // The peers retain no log of data in their files; ours would be retained for readers of the change
        // feed.
        open(dir, Options::new().log_retention(0))
    }

    fn load(&mut self, rows: Rows) -> Result<()> {
        let mut in_flight = VecDeque::with_capacity(BATCHES_IN_FLIGHT);
        let mut all = rows.iter().map(|(key, value)| (key.to_be_bytes(), value));
        for _ in 0..rows.count.div_ceil(ROWS_PER_BATCH) {
            let batch: Vec<_> = all.by_ref().take(ROWS_PER_BATCH as usize).collect();
            let batch = batch.iter().map(|(key, value)| (key.as_slice(), value.as_slice()));
            in_flight.push_back(self.db.submit_puts(self.keyspace, batch, Durability::Buffered)?);
            if in_flight.len() == BATCHES_IN_FLIGHT
                && let Some(oldest) = in_flight.pop_front()
            {
                oldest.wait()?;
            }
        }
        for commit in in_flight {
            commit.wait()?;
        }
        // There is one log: when this commit is durable, all earlier ones are.
        self.db.submit_puts(self.keyspace, [], Durability::Sync)?.wait()?;
        Ok(())
    }

    fn settle(&mut self) -> Result<bool> {
        self.db.compact()?;
        Ok(true)
    }

    fn reader(&self) -> Result<Reader> {
        Ok(Reader { snapshot: self.db.snapshot(), keyspace: self.keyspace })
    }

    /// The ablation: the same files reopened, with and without the learned model.
    fn extra(self, workload: &Workload, outcome: &mut Outcome) -> Result<()> {
        let dir = self.dir.clone();
        self.db.close()?;
        for (name, learned) in [("hit/model_on", true), ("hit/model_off", false)] {
            let mut options = Options::new();
            options.engine_mut().store.learned_index = learned;
            let (figure, sum) = workload.hit(&mut open(&dir, options)?.reader()?)?;
            outcome.figure(name, figure);
            outcome.digest("hit", sum);
        }
        Ok(())
    }
}

/// One snapshot.
pub(crate) struct Reader {
    snapshot: Snapshot,
    keyspace: Keyspace,
}

impl OrderedReader for Reader {
    #[inline]
    fn get(&mut self, key: u64) -> Result<Option<u64>> {
        Ok(self.snapshot.get(self.keyspace, &key.to_be_bytes())?.map(|value| touch(&value)))
    }

    fn scan(&mut self, from: u64, limit: usize) -> Result<(u64, usize)> {
        let mut cursor = self.snapshot.cursor(self.keyspace);
        cursor.seek(&from.to_be_bytes())?;
        let (mut sum, mut rows) = (0u64, 0);
        while rows < limit && cursor.valid() {
            sum = sum.wrapping_add(touch(cursor.value()));
            rows += 1;
            cursor.next()?;
        }
        Ok((sum, rows))
    }
}
