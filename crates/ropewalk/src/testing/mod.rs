//! Deterministic clocks, randomness and disks with fault injection, for application tests.
//!
//! ```
//! use std::sync::Arc;
//! use ropewalk::testing::{ManualClock, MemoryVfs, SeededRandom};
//! use ropewalk::engine::Env;
//! use ropewalk::{Event, Options, Query};
//!
//! # fn main() -> Result<(), ropewalk::Error> {
//! let clock = Arc::new(ManualClock::default());
//! let env = Env {
//!     vfs: Arc::new(MemoryVfs::default()),
//!     clock: clock.clone(),
//!     random: Arc::new(SeededRandom::new(1)),
//! };
//! let db = Options::new().env(env).open("/db")?;
//! let orders = db.events("orders")?;
//! for _ in 0..2 {
//!     orders.append(&[Event::new("Placed")], None)?;
//!     clock.advance(std::time::Duration::from_secs(60));
//! }
//! let times = orders.read(&Query::all(), Default::default())?;
//! let times = times.map(|event| Ok(event?.time_micros)).collect::<Result<Vec<_>, ropewalk::events::EventsError>>()?;
//! assert!(times[1] - times[0] >= 60_000_000);
//! # Ok(())
//! # }
//! ```

pub use ropewalk_vfs::{Clock, DiskOp, Faults, FaultyVfs, ManualClock, MemoryVfs, Random, SeededRandom, Vfs};
