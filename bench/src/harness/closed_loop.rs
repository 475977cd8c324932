//! Closed loops: threads that each repeat an operation, without a pause, until the time is over.
//!
//!   start ──(tenth of the time, not counted)──▶ counting ──(time)──▶ stop ─▶ join, merge the latencies

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::harness::worker::{Figure, Latencies, Task};

/// The closed loop of one thread.
#[derive(Debug)]
pub struct Loop<'a> {
    /// Number of the thread, from 0.
    pub thread: usize,
    counting: &'a AtomicBool,
    stop: &'a AtomicBool,
    latencies: Latencies,
}

impl Loop<'_> {
    /// False when the time is over.
    pub fn continues(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// Runs an operation; counts it and its latency if counting has begun.
    pub fn time<R>(&mut self, operation: impl FnOnce() -> Result<R>) -> Result<R> {
        let started = Instant::now();
        let result = operation()?;
        if self.counting.load(Ordering::Relaxed) {
            self.latencies.record(started.elapsed());
        }
        Ok(result)
    }
}

/// Calls `work` in `task.threads` threads. Returns the counted operations per second with their latencies, and
/// the result of each thread.
pub fn run<T: Send>(
    task: &Task,
    work: impl Fn(&mut Loop<'_>) -> Result<T> + Sync,
) -> Result<(Figure, Vec<T>)> {
    let (counting, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let one = |thread: usize| -> Result<(Latencies, T)> {
        let mut own = Loop { thread, counting: &counting, stop: &stop, latencies: Latencies::default() };
        let result = work(&mut own)?;
        Ok((own.latencies, result))
    };
    let one = &one;
    let (mut all, mut seconds, mut results) = (Latencies::default(), 0.0, Vec::new());
    thread::scope(|scope| -> Result<()> {
        let threads: Vec<_> = (0..task.threads).map(|t| scope.spawn(move || one(t))).collect();
        thread::sleep(Duration::from_secs_f64(task.seconds / 10.0));
        counting.store(true, Ordering::Relaxed);
        let started = Instant::now();
        thread::sleep(Duration::from_secs_f64(task.seconds));
        counting.store(false, Ordering::Relaxed);
        seconds = started.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            let (latencies, result) = thread.join().ok().context("a thread panicked")??;
            all.merge(&latencies);
            results.push(result);
        }
        Ok(())
    })?;
    Ok((Figure::one(all.count() as f64 / seconds).with(&all), results))
}
