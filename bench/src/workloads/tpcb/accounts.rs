//! SQL's shortest statements, embedded: a row by its key, and an update that is durable when it returns.
//! Statements are prepared once.
//!
//! `accounts (id bigint PRIMARY KEY, balance bigint, name text)`, ids from 0, every balance 0. Ids are drawn
//! uniformly. After the updates the sum of the balances must equal the sum of the added amounts.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::harness::random::SplitMix;
use crate::harness::worker::{Figure, Latencies, Outcome, Task};

/// The table definition.
pub const TABLE: &str =
    "CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL, name text NOT NULL)";

/// A database with the table.
pub trait Accounts: Sized + Sync {
    /// Handle of one thread.
    type Session<'a>: Client
    where
        Self: 'a;

    /// Creates a database in the empty directory `dir` with so many accounts; `durable`: for synced commits,
    /// otherwise for reads.
    fn create(dir: &Path, rows: u64, durable: bool) -> Result<Self>;
    /// Opens for one thread.
    fn session(&self) -> Result<Self::Session<'_>>;
    /// The sum of all balances.
    fn sum(&self) -> Result<i64>;
}

/// Operations of a thread.
pub trait Client {
    /// `SELECT balance, name FROM accounts WHERE id = $1`: the balance and the length of the name.
    fn get(&mut self, id: i64) -> Result<(i64, usize)>;
    /// `UPDATE accounts SET balance = balance + $2 WHERE id = $1`, retried until it commits.
    fn add(&mut self, id: i64, amount: i64) -> Result<()>;
}

/// The name of an account.
pub fn name(id: u64) -> String {
    format!("account {id} of the bank at the harbour")
}

/// `lookups` SELECTs per pass, by one thread, after an untimed pass.
pub fn select<A: Accounts>(task: &Task) -> Result<Outcome> {
    let accounts = A::create(&task.dir, task.rows, false)?;
    let mut session = accounts.session()?;
    let mut outcome = Outcome::default();
    let mut figure = Figure::default();
    let mut sum = 0_u64;
    for pass in 0..=task.passes as u64 {
        let mut random = SplitMix::new(pass);
        let ids: Vec<i64> = (0..task.lookups).map(|_| random.below(task.rows).cast_signed()).collect();
        let started = Instant::now();
        for &id in &ids {
            let (balance, length) = session.get(id)?;
            sum = sum.wrapping_mul(31).wrapping_add(balance.cast_unsigned()).wrapping_add(length as u64);
        }
        if pass > 0 {
            figure.per(started, ids.len(), 1e6);
        }
    }
    outcome.figure("select", figure);
    outcome.digest("rows", sum);
    Ok(outcome)
}

/// Threads update until the time is over; the first tenth is not counted.
pub fn update<A: Accounts>(task: &Task) -> Result<Outcome> {
    let accounts = A::create(&task.dir, task.rows, true)?;
    let (counting, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let worker = |thread: usize| -> Result<(Latencies, i64)> {
        let mut session = accounts.session()?;
        let mut random = SplitMix::new(1000 + thread as u64);
        let (mut latencies, mut total) = (Latencies::default(), 0);
        while !stop.load(Ordering::Relaxed) {
            let (id, amount) = (random.below(task.rows).cast_signed(), random.below(100).cast_signed());
            let started = Instant::now();
            session.add(id, amount)?;
            total += amount;
            if counting.load(Ordering::Relaxed) {
                latencies.record(started.elapsed());
            }
        }
        Ok((latencies, total))
    };
    let (mut all, mut seconds, mut total) = (Latencies::default(), 0.0, 0);
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
            let (latencies, sum) = worker.join().ok().context("a thread panicked")??;
            all.merge(&latencies);
            total += sum;
        }
        Ok(())
    })?;
    let sum = accounts.sum()?;
    ensure!(sum == total, "{total} was added, the balances sum up to {sum}");
    let mut outcome = Outcome::default();
    outcome.figure("update", Figure::one(all.count() as f64 / seconds).with(&all));
    Ok(outcome)
}
