//! The rows of the Bundoc report, embedded: one operation is one transaction, durable where the row says so.
//!
//! Documents as in its source: ids `doc-i` and `wW-docI`, a number `value`, and the fields of the row. A read
//! decodes the document and returns `value`, which is checked. Each worker runs its share of the operations;
//! the clock covers all of them. The report runs 1000 operations a row, here `--lookups`. The original mixes
//! are deterministic: of each hundred operations of a worker the first are reads, then inserts, then updates,
//! on the same hundred ids for all workers; `--order rand` shuffles the kinds and draws the ids.

use std::io::Write;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::harness::random::SplitMix;
use crate::harness::worker::{Figure, Group, Latencies, Outcome, Task};
use crate::workloads::kernel::rows::Order;

/// A field in addition to `_id`.
#[derive(Debug, Clone, Copy)]
pub enum Field {
    /// A number.
    Number(i64),
    /// A text.
    Text(&'static str),
    /// True or false.
    Flag(bool),
}

/// Name and value of each field.
pub type Fields<'f> = &'f [(&'static str, Field)];

/// A store of documents by id.
pub trait DocumentStore: Sized + Sync {
    /// Handle of one thread.
    type Session<'a>: DocumentSession
    where
        Self: 'a;

    /// The store in `dir`, created if it does not exist. `durable`: every commit is synced; otherwise it is
    /// written to the operating system.
    fn open(dir: &Path, durable: bool) -> Result<Self>;
    /// Opens for one thread.
    fn session(&self) -> Result<Self::Session<'_>>;
}

/// Operations of a thread; each call is a transaction.
pub trait DocumentSession {
    /// Inserts a new document.
    fn insert(&mut self, id: &str, fields: Fields<'_>) -> Result<()>;
    /// Replaces a document.
    fn replace(&mut self, id: &str, fields: Fields<'_>) -> Result<()>;
    /// Reads a document, decodes it and returns its `value`.
    fn find(&mut self, id: &str) -> Result<Option<i64>>;
    /// Inserts many in one transaction.
    fn insert_batch(&mut self, documents: &mut dyn Iterator<Item = (String, i64)>) -> Result<()>;
    /// Documents in the store.
    fn count(&mut self) -> Result<u64>;
}

#[derive(Clone, Copy)]
enum Operation {
    Insert,
    Find,
    Update,
}

/// Runs one step of the plan.
pub fn run<S: DocumentStore>(task: &Task) -> Result<Outcome> {
    let store = S::open(&task.dir, task.durable)?;
    if task.group == Group::BundocBatch {
        return batch(task, &store);
    }
    if task.rows > 0 {
        store.session()?.insert_batch(&mut (0..task.rows).map(|i| (format!("doc-{i}"), i as i64)))?;
    }
    let share = task.lookups / task.threads;
    let next = AtomicU64::new(0);
    let barrier = Barrier::new(task.threads + 1);
    let worker = |worker: usize| -> Result<Latencies> {
        let mut session = store.session()?;
        let mut random = SplitMix::new(7 + worker as u64);
        let mut latencies = Latencies::default();
        barrier.wait();
        for i in 0..share {
            let started = Instant::now();
            one(&mut session, task, (worker, share, i), &next, &mut random)?;
            latencies.record(started.elapsed());
        }
        Ok(latencies)
    };
    let (mut all, mut seconds) = (Latencies::default(), 0.0);
    thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..task.threads).map(|w| scope.spawn(move || worker(w))).collect();
        barrier.wait();
        let started = Instant::now();
        for worker in workers {
            all.merge(&worker.join().ok().context("a thread panicked")??);
        }
        seconds = started.elapsed().as_secs_f64();
        Ok(())
    })?;
    let inserted = match task.group {
        Group::BundocInsert => (share * task.threads) as u64,
        _ => next.load(Ordering::Relaxed),
    };
    let count = store.session()?.count()?;
    ensure!(count == task.rows + inserted, "{count} documents, {} were written", task.rows + inserted);
    let mut outcome = Outcome::default();
    outcome.figure("rate", Figure::one(all.count() as f64 / seconds).with(&all));
    Ok(outcome)
}

/// Operation `i` of `share` of a worker.
fn one<S: DocumentSession>(
    session: &mut S,
    task: &Task,
    (worker, share, i): (usize, usize, usize),
    next: &AtomicU64,
    random: &mut SplitMix,
) -> Result<()> {
    let number = i as i64;
    let shuffled = task.order == Order::Rand;
    let operation = match task.group {
        Group::BundocInsert => Operation::Insert,
        Group::BundocFind => Operation::Find,
        Group::BundocUpdate => Operation::Update,
        // The share of reads determines the others: 80-15-5, 50-30-20, 20-50-30.
        _ => {
            let (reads, inserts) = match task.batch {
                80 => (80, 15),
                50 => (50, 30),
                _ => (20, 50),
            };
            match if shuffled { random.below(100) as usize } else { i % 100 } {
                roll if roll < reads => Operation::Find,
                roll if roll < reads + inserts => Operation::Insert,
                _ => Operation::Update,
            }
        }
    };
    let mixed = task.group == Group::BundocMix;
    match operation {
        Operation::Insert if mixed => {
            let id = format!("new-{}", next.fetch_add(1, Ordering::Relaxed));
            session.insert(&id, &[("worker", Field::Number(worker as i64)), ("value", Field::Number(number))])
        }
        Operation::Insert if task.threads == 1 => session.insert(
            &format!("doc-{i}"),
            &[("value", Field::Number(number)), ("data", Field::Text("benchmark data"))],
        ),
        Operation::Insert => session.insert(
            &format!("w{worker}-doc{i}"),
            &[("worker", Field::Number(worker as i64)), ("value", Field::Number(number))],
        ),
        Operation::Find => {
            let at = match (mixed, shuffled) {
                (true, false) => (i % 100) as u64,
                (true, true) => random.below(task.rows),
                (false, _) => (worker * share + i) as u64 % task.rows,
            };
            let found = session.find(&format!("doc-{at}"))?;
            ensure!(found.is_some() && (mixed || found == Some(at as i64)), "doc-{at}: {found:?}");
            Ok(())
        }
        Operation::Update => {
            let at = match (mixed, shuffled) {
                (true, false) => (i % 100) as u64,
                (true, true) => random.below(task.rows),
                (false, _) => i as u64 % task.rows,
            };
            session.replace(
                &format!("doc-{at}"),
                &[("value", Field::Number(number)), ("updated", Field::Flag(true))],
            )
        }
    }
}

/// Preloads, prints `ready`, and inserts until it is killed.
pub fn fill<S: DocumentStore>(task: &Task, mut say: impl Write) -> Result<Outcome> {
    const CHUNK: u64 = 10_000;
    let store = S::open(&task.dir, task.durable)?;
    let mut session = store.session()?;
    for first in (0..task.rows).step_by(CHUNK as usize) {
        let chunk = first..task.rows.min(first + CHUNK);
        session.insert_batch(&mut chunk.map(|i| (format!("doc-{i}"), i as i64)))?;
    }
    writeln!(say, "ready")?;
    say.flush()?;
    for i in task.rows.. {
        session.insert(&format!("doc-{i}"), &[("value", Field::Number(i as i64))])?;
    }
    Ok(Outcome::default())
}

/// Milliseconds until a killed store has opened and returned its first and last documents; then all are
/// counted.
pub fn reopen<S: DocumentStore>(task: &Task) -> Result<Outcome> {
    let started = Instant::now();
    let store = S::open(&task.dir, task.durable)?;
    let mut session = store.session()?;
    for i in [0, task.rows - 1] {
        let found = session.find(&format!("doc-{i}"))?;
        ensure!(found == Some(i as i64), "doc-{i}: {found:?}");
    }
    let elapsed = started.elapsed();
    let count = session.count()?;
    ensure!(count >= task.rows, "only {count} of {} documents exist", task.rows);
    let mut outcome = Outcome::default();
    outcome.figure("open", Figure::one(elapsed.as_secs_f64() * 1e3));
    Ok(outcome)
}

/// `--batch` documents in one transaction, `--passes` times.
fn batch<S: DocumentStore>(task: &Task, store: &S) -> Result<Outcome> {
    let mut session = store.session()?;
    let mut figure = Figure::default();
    for pass in 0..task.passes {
        let started = Instant::now();
        session.insert_batch(&mut (0..task.batch).map(|i| (format!("p{pass}-doc-{i:06}"), i as i64)))?;
        figure.samples.push(task.batch as f64 / started.elapsed().as_secs_f64());
    }
    let count = session.count()?;
    ensure!(count == (task.passes * task.batch) as u64, "{count} documents");
    let mut outcome = Outcome::default();
    outcome.figure("rate", figure);
    Ok(outcome)
}
