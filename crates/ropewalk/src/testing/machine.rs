//! A simulated machine, whose power can be cut, and whose clock is moved by the test.

use core::fmt::Debug;
use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use ropewalk_engine::Background;
use ropewalk_vfs::{Env, FaultyVfs, ManualClock, SeededRandom};

use crate::database::Database;
use crate::database::observer::Step;
use crate::database::options::Options;
use crate::error::Result;

/// Directory of the database on the disk of a machine.
const DIRECTORY: &str = "/db";

/// A simulated machine with a disk, a clock and randomness. Clones are the same machine.
///
/// The same seed and the same calls give the same run. The disk loses, in a power cut, data that was not
/// synced. The clock moves only when a test advances it, or when a thread sleeps. There are no background
/// threads: flushes and merges run when the test calls [`Database::checkpoint`] or [`Database::compact`].
///
/// ```
/// use ropewalk::Event;
/// use ropewalk::testing::Machine;
///
/// # fn main() -> Result<(), ropewalk::Error> {
/// let machine = Machine::new(7);
/// let db = machine.open()?;
/// db.events("orders")?.append(&[Event::new("Placed")], None)?;
/// machine.cut_power();
/// assert!(db.events("orders")?.append(&[Event::new("Placed")], None).is_err(), "the process is dead");
///
/// let db = machine.open()?;
/// assert_eq!(db.events("orders")?.head()?.map(|position| position.0), Some(1));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Machine {
    disk: FaultyVfs,
    clock: Arc<ManualClock>,
    random: Arc<SeededRandom>,
    rivals: Arc<Mutex<Rivals>>,
}

/// Calls to make before the next commits.
#[derive(Default)]
struct Rivals {
    waiting: VecDeque<Box<dyn FnOnce() + Send>>,
    /// A rival is running; its own commits have no rivals.
    is_running: bool,
}

impl Machine {
    /// A machine with an empty disk.
    pub fn new(seed: u64) -> Self {
        Self {
            disk: FaultyVfs::new(seed),
            clock: Arc::default(),
            random: Arc::new(SeededRandom::new(seed)),
            rivals: Arc::default(),
        }
    }

    /// The disk, to inject faults.
    pub fn disk(&self) -> &FaultyVfs {
        &self.disk
    }

    /// The clock. It begins at 1970-01-01 UTC.
    pub fn clock(&self) -> &ManualClock {
        &self.clock
    }

    /// The environment of a process that starts now and dies at the next power cut.
    pub fn env(&self) -> Env {
        Env { vfs: Arc::new(self.disk.process()), clock: self.clock.clone(), random: self.random.clone() }
    }

    /// Options with the environment of this machine and without background threads.
    ///
    /// They have an observer, for [`Machine::before_next_commit`].
    pub fn options(&self) -> Options {
        let rivals = self.rivals.clone();
        Options::new().env(self.env()).background(Background::Manual).observer(move |_, step| {
            if matches!(step, Step::Submit { .. }) {
                run_next(&rivals);
            }
        })
    }

    /// Opens the database of this machine, or creates it.
    ///
    /// # Errors
    /// As [`Options::open`]: the database is open already, or the power is off.
    pub fn open(&self) -> Result<Database> {
        self.options().open(DIRECTORY)
    }

    /// Cuts the power, and restarts the machine.
    ///
    /// Changes that were not synced are lost, preserved or torn, at random. Open databases return errors from
    /// then on.
    pub fn cut_power(&self) {
        self.disk.crash();
    }

    /// Cuts the power at the disk operation with this number, counted from the first of the disk.
    ///
    /// The power stays off, and all calls fail, until [`Machine::cut_power`] restarts the machine.
    pub fn cut_power_at(&self, operation: u64) {
        self.disk.crash_at(operation);
    }

    /// Runs `rival` when the next transaction reaches its commit, before the commit is validated.
    ///
    /// This tests commands that run transactions themselves: a rival that changes what the command has read
    /// makes its commit a conflict, and the command runs again. Several calls give the rivals of successive
    /// commits; commits of a rival have no rivals.
    ///
    /// ```
    /// use ropewalk::events::count;
    /// use ropewalk::testing::Machine;
    /// use ropewalk::{AppendOptions, Database, Error, Event, Query};
    ///
    /// fn next_number(db: &Database) -> Result<u64, Error> {
    ///     let invoices = db.events("invoices")?;
    ///     let next = db.run(|tx| {
    ///         let number = tx.decision(&invoices, &count(Query::all()))? + 1;
    ///         tx.append(&invoices, &[Event::new("Issued")], AppendOptions::default())?;
    ///         Ok::<_, Error>(number)
    ///     })?;
    ///     Ok(next.value)
    /// }
    ///
    /// # fn main() -> Result<(), Error> {
    /// let machine = Machine::new(1);
    /// let db = machine.open()?;
    /// let rival = db.clone();
    /// machine.before_next_commit(move || assert_eq!(next_number(&rival).unwrap(), 1));
    /// assert_eq!(next_number(&db)?, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn before_next_commit(&self, rival: impl FnOnce() + Send + 'static) {
        self.rivals.lock().waiting.push_back(Box::new(rival));
    }
}

/// Runs the next rival, without the lock, because its transactions come here, too.
fn run_next(rivals: &Mutex<Rivals>) {
    let next = {
        let mut rivals = rivals.lock();
        if rivals.is_running {
            return;
        }
        let next = rivals.waiting.pop_front();
        rivals.is_running = next.is_some();
        next
    };
    if let Some(rival) = next {
        rival();
        rivals.lock().is_running = false;
    }
}

/// Runs `work` once for each disk operation with a power cut there, and checks the reopened database.
///
/// `work` counts in `A` what was acknowledged to it, and ends with the first error. `check` reads the database
/// after the restart. A first run without a cut counts the operations; their number is returned.
///
/// ```
/// use ropewalk::testing::power_cut_at_each_operation;
/// use ropewalk::{Error, Event};
///
/// let operations = power_cut_at_each_operation(
///     |db, acknowledged: &mut u64| {
///         for _ in 0..3 {
///             db.events("orders")?.append(&[Event::new("Placed")], None)?;
///             *acknowledged += 1;
///         }
///         Ok::<_, Error>(())
///     },
///     |db, acknowledged| {
///         let stored = db.events("orders").unwrap().head().unwrap().map_or(0, |position| position.0);
///         assert!(stored == *acknowledged || stored == acknowledged + 1);
///     },
/// );
/// assert!(operations > 10);
/// ```
///
/// # Panics
/// `work` fails while the power is on; the database does not open after a cut; `check` panics.
pub fn power_cut_at_each_operation<A: Default, E: Debug>(
    work: impl Fn(&Database, &mut A) -> Result<(), E>,
    check: impl Fn(&Database, &A),
) -> u64 {
    let machine = Machine::new(1);
    let mut acknowledged = A::default();
    {
        let db = machine.open().expect("a new database opens");
        work(&db, &mut acknowledged).expect("the work succeeds without a power cut");
        check(&db, &acknowledged);
    }
    let operations = machine.disk.operations();
    for operation in 1..=operations {
        let machine = Machine::new(operation);
        machine.cut_power_at(operation);
        let mut acknowledged = A::default();
        if let Ok(db) = machine.open() {
            let done = work(&db, &mut acknowledged);
            assert!(done.is_ok() || machine.disk.is_off(), "before operation {operation}: {:?}", done.err());
        }
        machine.cut_power();
        let db = machine.open().map_err(|error| format!("cut at operation {operation}: {error}"));
        check(&db.expect("the database opens after a power cut"), &acknowledged);
    }
    operations
}
