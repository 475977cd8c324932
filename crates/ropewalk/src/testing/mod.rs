//! A test kit for applications: scenarios, a simulated machine, races and power cuts.
//!
//! ```text
//! Scenario   given events ─▶ when a command runs ─▶ then events, a refusal, rows of a projection
//! Machine    disk, clock and randomness of a seed; Machine::open ─▶ Database
//! race       two transactions up to their commits, then one commit before the other
//! power_cut_at_each_operation   the work again for each disk operation, cut there, and a check after reopening
//! ```
//!
//! The functions named `then` and the power cuts panic if an expectation does not hold, as assertions do.
//!
//! # Decisions
//!
//! ```
//! use ropewalk::events::count;
//! use ropewalk::testing::Scenario;
//! use ropewalk::{Database, Error, Event, Query};
//!
//! #[derive(Debug, PartialEq, Event)]
//! struct Enrolled {
//!     #[event(tag)]
//!     course: String,
//!     #[event(tag)]
//!     student: String,
//! }
//!
//! #[derive(Debug)]
//! enum Refusal {
//!     Full,
//!     Database(Error),
//! }
//!
//! impl<E: Into<Error>> From<E> for Refusal {
//!     fn from(error: E) -> Self {
//!         Self::Database(error.into())
//!     }
//! }
//!
//! /// The command under test: a course has two seats.
//! fn enrol(db: &Database, student: &str) -> Result<(), Refusal> {
//!     let school = db.events("school")?;
//!     db.run(|tx| match tx.decision(&school, &count(Query::from_tags(["course:c1"])))? {
//!         2.. => Err(Refusal::Full),
//!         _ => Ok(tx.publish(&school, &[enrolled(student)])?),
//!     })?;
//!     Ok(())
//! }
//!
//! fn enrolled(student: &str) -> Enrolled {
//!     Enrolled { course: "c1".into(), student: student.into() }
//! }
//!
//! Scenario::new("school")
//!     .given(&[enrolled("ann")])
//!     .when(|db| enrol(db, "bob"))
//!     .then(&[enrolled("bob")])
//!     .when(|db| enrol(db, "cleo"))
//!     .then_refused(|error| matches!(error, Refusal::Full));
//! ```
//!
//! # Time
//!
//! ```
//! use std::time::Duration;
//! use ropewalk::Event;
//! use ropewalk::testing::Machine;
//!
//! # fn main() -> Result<(), ropewalk::Error> {
//! let machine = Machine::new(1);
//! let orders = machine.open()?.events("orders")?;
//! for _ in 0..2 {
//!     orders.append(&[Event::new("Placed")], None)?;
//!     machine.clock().advance(Duration::from_secs(60));
//! }
//! let all = orders.read(&ropewalk::Query::all(), Default::default())?;
//! let times = all.map(|event| Ok(event?.time_micros)).collect::<Result<Vec<_>, ropewalk::Error>>()?;
//! assert!(times[1] - times[0] >= 60_000_000); // microseconds
//! # Ok(())
//! # }
//! ```

mod machine;
mod race;
mod scenario;

pub use machine::{Machine, power_cut_at_each_operation};
pub use race::race;
pub use ropewalk_vfs::{Clock, DiskOp, Faults, FaultyVfs, ManualClock, MemoryVfs, Random, SeededRandom, Vfs};
pub use scenario::{Outcome, Scenario};
