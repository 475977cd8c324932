//! SQL's shortest statements, embedded: a row by its key, and an update that is durable when it returns.
//! Statements are prepared once.
//!
//! `accounts (id bigint PRIMARY KEY, balance bigint, name text)`, ids from 0, every balance 0. Ids are drawn
//! uniformly. After the updates the sum of the balances must equal the sum of the added amounts.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::harness::closed_loop;
use crate::harness::random::SplitMix;
use crate::harness::worker::{Figure, Outcome, Task};

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
    let (figure, totals) = closed_loop::run(task, |own| {
        let mut session = accounts.session()?;
        let mut random = SplitMix::new(1000 + own.thread as u64);
        let mut total = 0;
        while own.continues() {
            let (id, amount) = (random.below(task.rows).cast_signed(), random.below(100).cast_signed());
            own.time(|| session.add(id, amount))?;
            total += amount;
        }
        Ok(total)
    })?;
    let total: i64 = totals.iter().sum();
    let sum = accounts.sum()?;
    ensure!(sum == total, "{total} was added, the balances sum up to {sum}");
    let mut outcome = Outcome::default();
    outcome.figure("update", figure);
    Ok(outcome)
}
