//! TPC-B's transaction, embedded: three balances change by an amount and one line of history is added,
//! atomically and durably, from many threads in a closed loop.
//!
//! 100 branches, 10 tellers for each, `--rows` accounts (TPC-B itself has 100,000 accounts for each branch).
//! Branch, teller and account are drawn independently and uniformly, from a seed for each thread. After the
//! run every balance must equal the sum of its history.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::harness::closed_loop;
use crate::harness::random::SplitMix;
use crate::harness::worker::{Outcome, Task};

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
    let (figure, results) = closed_loop::run(task, |own| {
        let mut session = bank.session()?;
        let mut random = SplitMix::new(1000 + own.thread as u64);
        let (mut done, mut total) = (0_u64, 0_i64);
        while own.continues() {
            let transfer = Transfer {
                account: random.below(task.rows),
                teller: random.below(TELLERS),
                branch: random.below(BRANCHES),
                delta: random.below(10_001).cast_signed() - 5000,
                number: (own.thread as u64) << 40 | done,
            };
            own.time(|| session.transfer(transfer))?;
            (done, total) = (done + 1, total + transfer.delta);
        }
        Ok((done, total))
    })?;
    let done: u64 = results.iter().map(|(done, _)| done).sum();
    let total: i64 = results.iter().map(|(_, total)| total).sum();
    let (sums, lines) = bank.sums()?;
    ensure!(lines == done, "{done} transactions acknowledged, {lines} lines of history");
    ensure!(sums.iter().all(|&sum| sum == total), "balances sum up to {sums:?}, the transactions to {total}");
    let mut outcome = Outcome::default();
    outcome.figure("tpcb", figure);
    Ok(outcome)
}
