//! Histories over all models: transactions that read in one model and write in another, judged by the
//! independent checker.
//!
//!   dice ─▶ open transactions, interleaved ─▶ rows, documents, events, samples ─▶ history
//!   crash, backup ─▶ open ─▶ a transaction reads every place ─▶ checker: no cycle, in real time
//!
//! The run has no model: the checker sees reads, writes and times alone. All commits are synced, so a history
//! continues over crashes: an acknowledged commit that is lost is a stale read, one that is torn a read skew.
//! Threads run the same transactions without faults.

mod places;
mod running;
mod threads;

use ropewalk::{Database, Durability, Error, Isolation};

use crate::Run;
use crate::checker::{Executed, Level, Outcome, check};
use crate::events::scenario::{Bug, Check};
use crate::models::mixed::places::Stores;
use crate::models::mixed::running::Running;
use crate::runs::restarts;
use crate::runs::restarts::{Boots, World};

pub use self::threads::race;

/// Open transactions.
const OPEN_MAX: usize = 4;

struct MixedWorld {
    boots: Boots,
    isolation: Isolation,
    /// The level that the history has to have.
    level: Level,
    open: Vec<Running>,
    history: Vec<Executed>,
    versions: u64,
    /// Number of the next begin or end.
    moment: u64,
}

/// Runs one seed: so many boots, each with one kind of injected fault. Transactions have the isolation, and their
/// history must have the level.
pub fn run_mixed(seed: u64, boots: u64, isolation: Isolation, level: Level) -> Run {
    let world = MixedWorld {
        boots: Boots::new(seed, 0x313ed),
        isolation,
        level,
        open: Vec::new(),
        history: Vec::new(),
        versions: 0,
        moment: 0,
    };
    restarts::run(world, boots)
}

impl World for MixedWorld {
    fn boots(&mut self) -> &mut Boots {
        &mut self.boots
    }

    fn leave(&mut self) {
        for running in std::mem::take(&mut self.open) {
            let end = self.moment();
            self.history.push(running.abort(end));
        }
    }

    fn create(db: &Database) -> Result<(), Error> {
        if db.tables().names()?.is_empty() {
            Stores::create(db)?;
        }
        Ok(())
    }

    fn reconcile(&mut self, db: &Database) -> Check {
        self.compare(db)
    }

    fn compare(&mut self, db: &Database) -> Check {
        let begin = self.moment();
        let mut all = Running::reading_all(db, self.isolation, begin, self.versions);
        let stores = Stores::of(db)?;
        while !all.is_done() {
            all.step(&stores, &mut || 0)?;
        }
        let (executed, result) = all.commit();
        result?;
        self.end(executed);
        self.boots.counts.reads += 1;
        match check(&self.history, self.level).first() {
            None => restarts::verify(db),
            Some(anomaly) => Err(Bug(anomaly.to_string())),
        }
    }

    fn step(&mut self) -> Check {
        match self.boots.dice.below(10) {
            0 => self.boots.housekeeping(12),
            _ => (0..3).try_for_each(|_| self.use_transaction()),
        }
    }
}

impl MixedWorld {
    fn moment(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    fn end(&mut self, mut executed: Executed) {
        executed.end = self.moment();
        self.history.push(executed);
    }

    /// Begins a transaction, continues one, or ends one.
    fn use_transaction(&mut self) -> Check {
        let db = self.boots.db()?;
        if self.open.is_empty() || self.open.len() < OPEN_MAX && self.boots.dice.one_in(2) {
            let begin = self.moment();
            let running = Running::begin(&db, self.isolation, begin, &self.boots.dice, self.versions);
            self.open.push(running);
        }
        let mut running = self.open.swap_remove(self.boots.dice.index(self.open.len()));
        if self.boots.dice.one_in(40) {
            let end = self.moment();
            self.history.push(running.abort(end));
            return Ok(());
        }
        if running.is_done() {
            return self.commit(running);
        }
        let versions = &mut self.versions;
        let mut version = || {
            *versions += 1;
            *versions
        };
        let done = Stores::of(&db).and_then(|stores| running.step(&stores, &mut version));
        match done {
            Ok(()) => self.open.push(running),
            // A caller would not continue with a transaction after a failed read.
            Err(error) => {
                let end = self.moment();
                self.history.push(running.abort(end));
                return self.boots.excuse("step of a transaction", &error);
            }
        }
        Ok(())
    }

    fn commit(&mut self, running: Running) -> Check {
        let (executed, result) = running.commit();
        let outcome = executed.outcome;
        self.boots.note(format!("{outcome:?}: {:?}", executed.operations));
        self.end(executed);
        match result {
            Ok(Some(done)) => self.boots.acknowledged(done.seq.0, Durability::Sync),
            Ok(None) => {}
            Err(_) if outcome == Outcome::Aborted => self.boots.counts.refusals += 1,
            Err(error) => self.boots.excuse("commit", &error)?,
        }
        Ok(())
    }
}
