//! Runs the declared projections of a database: SQL statements for each event, exactly once.
//!
//! ```text
//! CREATE PROJECTION ─▶ row of the declaration ─▶ runner ─▶ batch of events ─▶ planned statements ─▶ one commit
//!                                                 └ rebuild in its thread ─▶ t__g2 ─▶ swap            with the
//!                                                                                              checkpoint
//! ```
//!
//! ```
//! use ropewalk::{Database, Event};
//! use ropewalk_projector::{Runner, RunnerOptions};
//! use ropewalk_sql::Session;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let db = Database::in_memory()?;
//! let mut session = Session::new(db.clone());
//! session.execute("CREATE TABLE orders (position bigint PRIMARY KEY, item text)", &[])?;
//! session.execute(
//!     "CREATE PROJECTION orders FROM EVENTS shop
//!        ON 'Placed' DO (INSERT INTO orders VALUES (event.position, event.json->>'item'))",
//!     &[],
//! )?;
//! db.events("shop")?.append(&[Event::new("Placed").data(r#"{"item":"pen"}"#)], None)?;
//!
//! let runner = Runner::new(db, RunnerOptions::default());
//! runner.catch_up()?;
//! assert_eq!(session.execute("SELECT item FROM orders", &[])?.rows.len(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! Declarations are stored by `ropewalk-sql`; batches, checkpoints and rebuilds are those of
//! [`ropewalk::projections`]. Not here: the statements about projections, HTTP.
#![deny(missing_docs)]

mod active;
mod declared;
mod options;
mod runner;

pub use options::{Report, RunnerOptions};
pub use runner::{Runner, RunningProjections};
