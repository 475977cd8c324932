//! Histories of real threads on a database in memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use ropewalk::{Database, Error, Isolation};

use crate::checker::Executed;
use crate::events::rng::Dice;
use crate::models::mixed::places::Stores;
use crate::models::mixed::running::Running;

/// State that all threads share.
struct Race {
    db: Database,
    isolation: Isolation,
    /// Numbers of begins and ends, in real time.
    moments: AtomicU64,
    versions: AtomicU64,
}

impl Race {
    fn moment(&self) -> u64 {
        self.moments.fetch_add(1, Ordering::SeqCst)
    }

    /// Random transactions of one thread.
    fn run(&self, dice: &Dice, transactions: u64) -> Result<Vec<Executed>, Error> {
        let (stores, mut history) = (Stores::of(&self.db)?, Vec::new());
        for _ in 0..transactions {
            let versions = self.versions.load(Ordering::SeqCst);
            let running = Running::begin(&self.db, self.isolation, self.moment(), dice, versions);
            history.push(self.finish(&stores, running)?);
        }
        Ok(history)
    }

    fn finish(&self, stores: &Stores, mut running: Running) -> Result<Executed, Error> {
        let mut version = || self.versions.fetch_add(1, Ordering::SeqCst) + 1;
        while !running.is_done() {
            running.step(stores, &mut version)?;
            // Lets other transactions begin in between.
            thread::yield_now();
        }
        let (mut executed, result) = running.commit();
        executed.end = self.moment();
        match result {
            Err(error) if !error.is_conflict() => Err(error),
            _ => Ok(executed),
        }
    }
}

/// Runs random transactions over all models on several threads, and returns their history.
///
/// # Errors
/// A transaction failed for another reason than a conflict.
pub fn race(
    seed: u64,
    threads: u64,
    transactions: u64,
    isolation: Isolation,
) -> Result<Vec<Executed>, Error> {
    let db = Database::in_memory()?;
    Stores::create(&db)?;
    let race = Race { db, isolation, moments: AtomicU64::new(0), versions: AtomicU64::new(0) };
    let shared = &race;
    let histories: Vec<Result<Vec<Executed>, Error>> = thread::scope(|scope| {
        let run =
            |number: u64| scope.spawn(move || shared.run(&Dice::new(seed ^ (number << 32)), transactions));
        let running: Vec<_> = (1..=threads).map(run).collect();
        let joined = running.into_iter().map(thread::ScopedJoinHandle::join);
        joined.map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let mut history = Vec::new();
    for one in histories {
        history.extend(one?);
    }
    let versions = race.versions.load(Ordering::SeqCst);
    let last = Running::reading_all(&race.db, isolation, race.moment(), versions);
    history.push(race.finish(&Stores::of(&race.db)?, last)?);
    Ok(history)
}
