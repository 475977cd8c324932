//! A random transaction over all models, step by step, and the record of what it read and wrote.

use std::collections::BTreeSet;

use ropewalk::{Database, Error, Isolation};

use crate::checker::{Executed, Operation, Outcome, Seen, Version};
use crate::events::rng::Dice;
use crate::models::mixed::places::{Place, Stores};

/// A step of a transaction.
#[derive(Debug, Clone, Copy)]
enum Step {
    Read(Place),
    Write(Place),
    /// Reads events, and appends one on the condition that no other has followed.
    Decide(i64),
    /// Writes, and rolls back to a savepoint before the write.
    TakeBack(Place),
}

impl Step {
    fn any(dice: &Dice, versions: Version) -> Self {
        let place = Place::any(dice, versions);
        match (dice.below(12), place) {
            (0..6, _) => Self::Read(place),
            (6, _) => Self::TakeBack(place),
            (7 | 8, Place::Events(number)) => Self::Decide(number),
            _ => Self::Write(place),
        }
    }
}

/// A transaction in progress.
pub(super) struct Running {
    transaction: ropewalk::Transaction,
    isolation: Isolation,
    begin: u64,
    /// The last step first.
    left: Vec<Step>,
    operations: Vec<Operation>,
    /// Samples cannot be read after that.
    has_samples: bool,
    /// Event places with own appends, which a condition would find.
    appended: BTreeSet<i64>,
}

impl Running {
    /// Begins a transaction of a few steps. `versions`: how many exist.
    pub(super) fn begin(
        db: &Database,
        isolation: Isolation,
        begin: u64,
        dice: &Dice,
        versions: Version,
    ) -> Self {
        let left = (0..dice.between(2, 5)).map(|_| Step::any(dice, versions)).collect();
        Self::of(db, isolation, begin, left)
    }

    /// A transaction that reads every place.
    pub(super) fn reading_all(db: &Database, isolation: Isolation, begin: u64, versions: Version) -> Self {
        Self::of(db, isolation, begin, Place::all(versions).map(Step::Read).collect())
    }

    fn of(db: &Database, isolation: Isolation, begin: u64, left: Vec<Step>) -> Self {
        Self {
            transaction: db.begin_with(isolation),
            isolation,
            begin,
            left,
            operations: Vec::new(),
            has_samples: false,
            appended: BTreeSet::new(),
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.left.is_empty()
    }

    /// Runs the next step; `version` returns an unused version.
    pub(super) fn step(
        &mut self,
        stores: &Stores,
        version: &mut dyn FnMut() -> Version,
    ) -> Result<(), Error> {
        match self.left.pop() {
            None => Ok(()),
            Some(Step::Read(place)) => self.read(stores, place),
            Some(Step::Write(place)) => self.write(stores, place, version()),
            Some(Step::Decide(number)) => self.decide(stores, number, version()),
            Some(Step::TakeBack(place)) => self.take_back(stores, place, version()),
        }
    }

    fn read(&mut self, stores: &Stores, place: Place) -> Result<(), Error> {
        if matches!(place, Place::Samples(_)) && self.has_samples {
            return Ok(());
        }
        let seen = stores.read(&mut self.transaction, place)?;
        self.record(place, seen);
        Ok(())
    }

    fn record(&mut self, place: Place, seen: Seen) {
        let seen = match (place, seen) {
            (Place::Events(_), Seen::List(list)) if self.isolation != Isolation::Serializable => {
                Seen::Set(list.into_iter().collect())
            }
            (_, seen) => seen,
        };
        self.operations.push(Operation::Read(place.key(), seen));
    }

    fn write(&mut self, stores: &Stores, place: Place, version: Version) -> Result<(), Error> {
        // A register names its predecessor only if its writer has read it.
        if let Place::Row(_) = place {
            self.read(stores, place)?;
        }
        stores.write(&mut self.transaction, place, version, None)?;
        self.wrote(place, version);
        Ok(())
    }

    fn wrote(&mut self, place: Place, version: Version) {
        self.operations.push(Operation::Write(place.key(), version));
        match place {
            Place::Samples(_) => self.has_samples = true,
            Place::Events(number) => {
                self.appended.insert(number);
            }
            Place::Row(_) | Place::Rows(_) | Place::Document(_) => {}
        }
    }

    fn decide(&mut self, stores: &Stores, number: i64, version: Version) -> Result<(), Error> {
        let place = Place::Events(number);
        let (seen, head) = stores.read_events(&mut self.transaction, number)?;
        self.record(place, seen);
        let unless_after = (!self.appended.contains(&number)).then_some(head);
        stores.write(&mut self.transaction, place, version, unless_after)?;
        self.wrote(place, version);
        Ok(())
    }

    fn take_back(&mut self, stores: &Stores, place: Place, version: Version) -> Result<(), Error> {
        let (before, has_samples, appended) =
            (self.operations.len(), self.has_samples, self.appended.clone());
        self.transaction.savepoint();
        self.write(stores, place, version)?;
        self.transaction.rollback_to_savepoint();
        (self.has_samples, self.appended) = (has_samples, appended);
        let since = self.operations.split_off(before);
        let is_read = |operation: &Operation| matches!(operation, Operation::Read(..));
        self.operations.extend(since.into_iter().filter(is_read));
        Ok(())
    }

    /// Commits; the record lacks its end.
    pub(super) fn commit(self) -> (Executed, Result<Option<ropewalk::transaction::Committed>, Error>) {
        let Self { transaction, begin, operations, .. } = self;
        let result = transaction.commit();
        let outcome = match &result {
            Ok(_) => Outcome::Committed,
            Err(error) if error.is_conflict() => Outcome::Aborted,
            Err(_) => Outcome::Unknown,
        };
        (Executed { begin, end: begin, outcome, operations }, result)
    }

    /// Rolls back.
    pub(super) fn abort(self, end: u64) -> Executed {
        let Self { begin, operations, .. } = self;
        Executed { begin, end, outcome: Outcome::Aborted, operations }
    }
}
