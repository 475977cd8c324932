//! Durable commits of one 108-byte row each, from many threads, closed loop.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::harness::closed_loop;
use crate::harness::worker::{Outcome, Task};
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
    let (figure, acknowledged) = closed_loop::run(task, |own| {
        let mut acknowledged = 0_u64;
        while own.continues() {
            let key = scramble(((own.thread as u64) << 40) | acknowledged) << 1;
            let bytes = value(key);
            own.time(|| store.commit(key, &bytes))?;
            acknowledged += 1;
        }
        Ok(acknowledged)
    })?;
    let acknowledged: u64 = acknowledged.iter().sum();
    let present = store.rows()?;
    ensure!(present == acknowledged, "{acknowledged} commits acknowledged, {present} rows present");
    let mut outcome = Outcome::default();
    outcome.figure("commit", figure);
    Ok(outcome)
}
