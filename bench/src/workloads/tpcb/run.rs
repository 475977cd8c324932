//! TPC-B's transaction, embedded: three balances change by an amount and one line of history is added,
//! atomically and durably, from many threads in a closed loop.
//!
//! 100 branches, 10 tellers for each, `--rows` accounts (TPC-B itself has 100,000 accounts for each branch).
//! Branch, teller and account are drawn independently and uniformly, from a seed for each thread. After the
//! run every balance must equal the sum of its history.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::harness::random::SplitMix;
use crate::harness::worker::{Figure, Latencies, Outcome, Task};

/// Branches.
pub const BRANCHES: u64 = 100;
/// Tellers of all branches.
pub const TELLERS: u64 = 10 * BRANCHES;

/// Parameters of one transaction.
#[derive(Debug, Clone, Copy)]
pub struct Transfer {
    /// The account, from 0.
    pub account: u64,
    /// The teller.
    pub teller: u64,
    /// The branch.
    pub branch: u64,
    /// Added to each of the three.
    pub delta: i64,
    /// Unique in the run: thread and counter.
    pub number: u64,
}

/// A store with accounts, tellers, branches and a history.
pub trait Bank: Sized + Sync {
    /// Handle of one thread.
    type Session<'a>: Teller
    where
        Self: 'a;

    /// A new store in the empty directory `dir`, every balance zero.
    fn create(dir: &Path, accounts: u64) -> Result<Self>;
    /// Opens for one thread.
    fn session(&self) -> Result<Self::Session<'_>>;
    /// Sums of the balances of accounts, tellers and branches and of the history's amounts, and the lines of history.
    fn sums(&self) -> Result<([i64; 4], u64)>;
}

/// Operations of a thread.
pub trait Teller {
    /// Runs one transaction, retried until it commits; durable when it returns.
    fn transfer(&mut self, transfer: Transfer) -> Result<()>;
}

/// Threads transfer until the time is over; the first tenth is not counted.
pub fn run<B: Bank>(task: &Task) -> Result<Outcome> {
    let bank = B::create(&task.dir, task.rows)?;
    let (counting, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let worker = |thread: usize| -> Result<(Latencies, u64, i64)> {
        let mut session = bank.session()?;
        let mut random = SplitMix::new(1000 + thread as u64);
        let (mut latencies, mut done, mut total) = (Latencies::default(), 0, 0);
        while !stop.load(Ordering::Relaxed) {
            let transfer = Transfer {
                account: random.below(task.rows),
                teller: random.below(TELLERS),
                branch: random.below(BRANCHES),
                delta: random.below(10_001).cast_signed() - 5000,
                number: (thread as u64) << 40 | done,
            };
            let started = Instant::now();
            session.transfer(transfer)?;
            (done, total) = (done + 1, total + transfer.delta);
            if counting.load(Ordering::Relaxed) {
                latencies.record(started.elapsed());
            }
        }
        Ok((latencies, done, total))
    };
    let (mut all, mut seconds, mut done, mut total) = (Latencies::default(), 0.0, 0, 0);
    thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..task.threads).map(|t| scope.spawn(move || worker(t))).collect();
        thread::sleep(Duration::from_secs_f64(task.seconds / 10.0));
        counting.store(true, Ordering::Relaxed);
        let started = Instant::now();
        thread::sleep(Duration::from_secs_f64(task.seconds));
        counting.store(false, Ordering::Relaxed);
        seconds = started.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        for worker in workers {
            let (latencies, more, sum) = worker.join().ok().context("a thread panicked")??;
            all.merge(&latencies);
            (done, total) = (done + more, total + sum);
        }
        Ok(())
    })?;
    let (sums, lines) = bank.sums()?;
    ensure!(lines == done, "{done} transactions acknowledged, {lines} lines of history");
    ensure!(sums.iter().all(|&sum| sum == total), "balances sum up to {sums:?}, the transactions to {total}");
    let mut outcome = Outcome::default();
    outcome.figure("tpcb", Figure::one(all.count() as f64 / seconds).with(&all));
    Ok(outcome)
}
