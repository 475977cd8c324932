//! Durable commits of one 108-byte row each, from many threads, closed loop.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::harness::worker::{Figure, Latencies, Outcome, Task};
use crate::workloads::kernel::rows::{VALUE_BYTES, scramble, value};

/// A store whose commits are durable when they return.
pub trait DurableStore: Sized + Sync {
    /// A new store in the empty directory `dir`, with the settings that make every commit durable.
    fn create(dir: &Path) -> Result<Self>;
    /// Commits one row; durable when it returns.
    fn commit(&self, key: u64, value: &[u8; VALUE_BYTES]) -> Result<()>;
    /// Counts the rows by reading them.
    fn rows(&self) -> Result<u64>;
}

/// Threads commit until the time is over; the first tenth is not counted. Afterwards every acknowledged row
/// must exist.
pub fn run<S: DurableStore>(task: &Task) -> Result<Outcome> {
    let store = S::create(&task.dir)?;
    let (counting, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let writer = |thread: usize| -> Result<(Latencies, u64)> {
        let (mut latencies, mut acknowledged) = (Latencies::default(), 0);
        for i in 0u64.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let key = scramble(((thread as u64) << 40) | i) << 1;
            let bytes = value(key);
            let started = Instant::now();
            store.commit(key, &bytes)?;
            acknowledged += 1;
            if counting.load(Ordering::Relaxed) {
                latencies.record(started.elapsed());
            }
        }
        Ok((latencies, acknowledged))
    };
    let (mut all, mut acknowledged, mut seconds) = (Latencies::default(), 0, 0.0);
    thread::scope(|scope| -> Result<()> {
        let writers: Vec<_> = (0..task.threads).map(|t| scope.spawn(move || writer(t))).collect();
        thread::sleep(Duration::from_secs_f64(task.seconds / 10.0));
        counting.store(true, Ordering::Relaxed);
        let started = Instant::now();
        thread::sleep(Duration::from_secs_f64(task.seconds));
        counting.store(false, Ordering::Relaxed);
        seconds = started.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            let (latencies, rows) = writer.join().ok().context("a writer panicked")??;
            all.merge(&latencies);
            acknowledged += rows;
        }
        Ok(())
    })?;
    let present = store.rows()?;
    ensure!(present == acknowledged, "{acknowledged} commits acknowledged, {present} rows present");
    let mut outcome = Outcome::default();
    outcome.figure("commit", Figure::one(all.count() as f64 / seconds).with(&all));
    Ok(outcome)
}
