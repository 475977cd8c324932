//! Reads over a preloaded event store, conditions that match nothing, and opening after a kill.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::harness::machine::peak_resident_mib;
use crate::harness::worker::{Figure, Latencies, Outcome, Task};
use crate::workloads::events::dataset::{ACCOUNT_EVENTS, Dataset, REGION_EVENTS};
use crate::workloads::events::event_store::{Answer, Direction, EventStore, Flush, Query};

/// Events per append while preloading.
const PRELOAD_BATCH: u64 = 10_000;

/// Fills a new store with the data set.
pub fn preload<S: EventStore>(store: &S, size: u64) -> Result<()> {
    let dataset = Dataset::new(size);
    for start in (0..size).step_by(PRELOAD_BATCH as usize) {
        let events = dataset.events(start..(start + PRELOAD_BATCH).min(size));
        store.append(S::batch(events), None, Flush::Synced)?;
    }
    ensure!(store.head()? == size, "{size} events preloaded, but the head is {}", store.head()?);
    store.settle()
}

/// All read rows of the group.
pub fn run<S: EventStore>(task: &Task) -> Result<Outcome> {
    use Direction::{Backward, Forward};
    let store = S::open(&task.dir)?;
    preload(&store, task.rows)?;
    let (size, mut outcome) = (task.rows, Outcome::default());
    let mut bench = Reads { store: &store, seconds: task.seconds, outcome: &mut outcome };
    bench.rate("read/all/forward", &Query::all(), Forward, size)?;
    bench.rate("read/all/backward", &Query::all(), Backward, size)?;
    bench.latency("tag/100", &Query::of(&[], &["acct:7"]), Forward, ACCOUNT_EVENTS)?;
    bench.latency("tag/2000", &Query::of(&[], &["region:7"]), Forward, REGION_EVENTS)?;
    bench.latency("tag_and_type/100", &Query::of(&["C"], &["acct:7"]), Forward, ACCOUNT_EVENTS)?;
    bench.rate("type/20pct/forward", &Query::of(&["A"], &[]), Forward, size / 5)?;
    bench.rate("type/20pct/backward", &Query::of(&["A"], &[]), Backward, size / 5)?;
    bench.latency("type/miss", &Query::of(&["Never"], &[]), Forward, 0)?;
    bench.condition("condition/miss", &Query::of(&["Never"], &[]))?;
    Ok(outcome)
}

struct Reads<'a, S> {
    store: &'a S,
    seconds: f64,
    outcome: &'a mut Outcome,
}

impl<S: EventStore> Reads<'_, S> {
    fn rate(&mut self, name: &str, query: &Query, direction: Direction, events: u64) -> Result<()> {
        let latencies = self.repeat(name, query, direction, events)?;
        let rates = latencies.iter().map(|seconds| events as f64 / seconds);
        self.outcome.figure(name, Figure { samples: rates.collect(), ..Figure::default() });
        Ok(())
    }

    fn latency(&mut self, name: &str, query: &Query, direction: Direction, events: u64) -> Result<()> {
        let samples = self.repeat(name, query, direction, events)?;
        let mut latencies = Latencies::default();
        samples.iter().for_each(|&seconds| latencies.record(Duration::from_secs_f64(seconds)));
        let p50 = latencies.quantile_us(0.5).unwrap_or_default();
        self.outcome.figure(name, Figure::one(p50).with(&latencies));
        Ok(())
    }

    /// Seconds of each read, after an untimed one; between 3 and 2000 of them. The answer is added to the
    /// digests.
    fn repeat(&mut self, name: &str, query: &Query, direction: Direction, events: u64) -> Result<Vec<f64>> {
        let filter = S::filter(query);
        let expected: Answer = self.store.answer(&filter, direction, None)?;
        ensure!(expected.events == events, "{name}: {} events instead of {events}", expected.events);
        self.outcome.digest(name, expected);
        let (begin, mut samples) = (Instant::now(), Vec::new());
        while samples.len() < 3 || (samples.len() < 2000 && begin.elapsed().as_secs_f64() < self.seconds) {
            let started = Instant::now();
            let answer = self.store.answer(&filter, direction, None)?;
            samples.push(started.elapsed().as_secs_f64());
            ensure!(answer == expected, "{name}: two reads differ: {answer}; {expected}");
        }
        Ok(samples)
    }

    /// Synced appends of one event whose condition matches nothing.
    fn condition(&mut self, name: &str, query: &Query) -> Result<()> {
        let filter = S::filter(query);
        let (begin, mut latencies) = (Instant::now(), Latencies::default());
        while latencies.count() < 3
            || (latencies.count() < 2000 && begin.elapsed().as_secs_f64() < self.seconds)
        {
            let batch = S::batch(vec![Dataset::new(1_000_000).event(latencies.count())]);
            let started = Instant::now();
            let position = self.store.append(batch, Some(&filter), Flush::Synced)?;
            latencies.record(started.elapsed());
            ensure!(position.is_some(), "{name}: the condition failed");
        }
        let p50 = latencies.quantile_us(0.5).unwrap_or_default();
        self.outcome.figure(name, Figure::one(p50).with(&latencies));
        Ok(())
    }
}

/// Preloads, prints `ready`, and then appends until it is killed.
pub fn fill<S: EventStore>(task: &Task, mut say: impl Write) -> Result<Outcome> {
    let store = S::open(&task.dir)?;
    preload(&store, task.rows)?;
    writeln!(say, "ready")?;
    say.flush()?;
    for i in task.rows.. {
        store.append(S::batch(vec![Dataset::new(task.rows).event(i)]), None, Flush::Synced)?;
    }
    Ok(Outcome::default())
}

/// Milliseconds until a killed store has opened and returned its newest event; then the peak memory of the
/// process while it reads every event in both directions.
pub fn reopen<S: EventStore>(task: &Task) -> Result<Outcome> {
    let filter = S::filter(&Query::all());
    let started = Instant::now();
    let store = S::open(&task.dir)?;
    let newest = store.answer(&filter, Direction::Backward, Some(1))?;
    let elapsed = started.elapsed();
    ensure!(newest.events == 1, "the newest event is gone");
    ensure!(store.head()? > task.rows, "only {} of {} events exist", store.head()?, task.rows);
    let mut outcome = Outcome::default();
    outcome.figure("open", Figure::one(elapsed.as_secs_f64() * 1e3));
    let forward = store.answer(&filter, Direction::Forward, None)?;
    let backward = store.answer(&filter, Direction::Backward, None)?;
    ensure!(forward.is_reverse_of(&backward), "{forward}, backwards {backward}");
    outcome.figure("resident", Figure::one(peak_resident_mib().context("no peak of memory in /proc")?));
    Ok(outcome)
}
