//! Event appends: single and batched, plain and conditional, one thread or many.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::harness::worker::{Figure, Latencies, Outcome, Task};
use crate::workloads::events::dataset::Dataset;
use crate::workloads::events::event_store::{Direction, Event, EventStore, Flush, Query};

/// Tags repeat as in a store of this many events.
const PATTERN: u64 = 100_000;
/// Events that one thread prepares before each timed interval.
const STRETCH_EVENTS: usize = 200;
/// Maximum rate of events prepared ahead for a thread pool, per second.
const READY_PER_SECOND: f64 = 250_000.0;

/// Appends `task.batch` events at a time, synced.
pub fn run<S: EventStore>(task: &Task) -> Result<Outcome> {
    if task.threads == 1 { alone::<S>(task) } else { together::<S>(task) }
}

/// One thread. Events are prepared between timed intervals, and only appends are timed.
fn alone<S: EventStore>(task: &Task) -> Result<Outcome> {
    let store = S::open(&task.dir)?;
    let (mut latencies, mut events, mut busy) = (Latencies::default(), 0u64, Duration::ZERO);
    let mut source = Source::new(0, 1);
    for _ in 0..(2000 / task.batch).min(100) {
        ensure!(
            store.append(S::batch(source.take(task.batch)), None, Flush::Synced)?.is_some(),
            "unconditional"
        );
    }
    while busy.as_secs_f64() < task.seconds {
        let batches: Vec<_> =
            (0..(STRETCH_EVENTS / task.batch).max(1)).map(|_| S::batch(source.take(task.batch))).collect();
        for batch in batches {
            let started = Instant::now();
            store.append(batch, None, Flush::Synced)?;
            let elapsed = started.elapsed();
            latencies.record(elapsed);
            busy += elapsed;
            events += task.batch as u64;
        }
    }
    finish(&store, source.made, events as f64 / busy.as_secs_f64(), &latencies)
}

/// Many threads, one event at a time. All events are prepared before the clock starts; a thread that has used
/// up its share ends the row early.
fn together<S: EventStore>(task: &Task) -> Result<Outcome> {
    ensure!(S::CONCURRENT, "appends from several threads are not safe here");
    let store = S::open(&task.dir)?;
    let share = (task.seconds * READY_PER_SECOND) as usize / task.threads;
    let pools: Vec<Vec<S::Batch>> = (0..task.threads)
        .map(|thread| {
            let mut source = Source::new(thread as u64, task.threads as u64);
            (0..share).map(|_| S::batch(source.take(1))).collect()
        })
        .collect();
    let stop = AtomicBool::new(false);
    let writer = |pool: Vec<S::Batch>| -> Result<Latencies> {
        let mut latencies = Latencies::default();
        for batch in pool {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let started = Instant::now();
            store.append(batch, None, Flush::Synced)?;
            latencies.record(started.elapsed());
        }
        stop.store(true, Ordering::Relaxed);
        Ok(latencies)
    };
    let (mut latencies, started) = (Latencies::default(), Instant::now());
    thread::scope(|scope| -> Result<()> {
        let writers: Vec<_> = pools.into_iter().map(|pool| scope.spawn(move || writer(pool))).collect();
        while !stop.load(Ordering::Relaxed) && started.elapsed().as_secs_f64() < task.seconds {
            thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            latencies.merge(&writer.join().ok().context("a writer panicked")??);
        }
        Ok(())
    })?;
    let rate = latencies.count() as f64 / started.elapsed().as_secs_f64();
    finish(&store, latencies.count(), rate, &latencies)
}

/// One event under the condition that no event has its type and unique tag; it always holds.
pub fn conditional<S: EventStore>(task: &Task) -> Result<Outcome> {
    let store = S::open(&task.dir)?;
    let (mut latencies, mut busy) = (Latencies::default(), Duration::ZERO);
    let mut source = Source::new(0, 1);
    while busy.as_secs_f64() < task.seconds {
        let prepared: Vec<_> = (0..STRETCH_EVENTS)
            .flat_map(|_| source.take(1))
            .map(|event| {
                let unique: Vec<&str> = event.tags.iter().take(1).map(String::as_str).collect();
                (S::filter(&Query::of(&[event.kind.as_str()], &unique)), S::batch(vec![event.clone()]))
            })
            .collect();
        for (filter, batch) in prepared {
            let started = Instant::now();
            let position = store.append(batch, Some(&filter), Flush::Synced)?;
            let elapsed = started.elapsed();
            ensure!(position.is_some(), "a condition failed that holds");
            latencies.record(elapsed);
            busy += elapsed;
        }
    }
    let again = source.again();
    let filter =
        S::filter(&Query::of(&[again.kind.as_str()], &[again.tags.first().map_or("", String::as_str)]));
    let twice = store.append(S::batch(vec![again]), Some(&filter), Flush::Synced)?;
    ensure!(twice.is_none(), "a condition held that must fail");
    finish(&store, source.made, latencies.count() as f64 / busy.as_secs_f64(), &latencies)
}

fn finish<S: EventStore>(store: &S, events: u64, rate: f64, latencies: &Latencies) -> Result<Outcome> {
    let answer = store.answer(&S::filter(&Query::all()), Direction::Forward, None)?;
    ensure!(answer.events == events, "{events} events acknowledged, {} present", answer.events);
    ensure!(store.head()? == events, "{events} events, but the head is {}", store.head()?);
    let mut outcome = Outcome::default();
    outcome.figure("append", Figure::one(rate).with(latencies));
    Ok(outcome)
}

/// Every `step`-th event of the data set, from `next`.
struct Source {
    next: u64,
    step: u64,
    made: u64,
}

impl Source {
    fn new(first: u64, step: u64) -> Self {
        Self { next: first, step, made: 0 }
    }

    fn take(&mut self, n: usize) -> Vec<Event> {
        let events = (0..n as u64).map(|i| Dataset::new(PATTERN).event(self.next + i * self.step)).collect();
        self.next += n as u64 * self.step;
        self.made += n as u64;
        events
    }

    /// Returns the last event again.
    fn again(&self) -> Event {
        Dataset::new(PATTERN).event(self.next - self.step)
    }
}
