//! A node of a cluster: one database that follows a log that nodes share, or leads it.
//!
//! ```text
//!                  no entry for a lease, the log answers, all applied
//!   following ──────────────────── campaign ────────────────────────▶ leading
//!     ▲   │ entries ─▶ Engine::follow                                    │ idle for a third of the lease ─▶ Renew
//!     │   │                                                              │ another node's entry
//!     └───┼── the owner opens the database again ◀── Deposed, Stopped ───┘
//!         └── the log is not what it was, or other contents than most nodes ─▶ Lost, Diverged, Trimmed, Differs: an
//!             operator decides
//! ```
//!
//! [`Node`] is the loop around one open [`Database`](ropewalk::Database). [`Node::step`] does one thing and is
//! deterministic, for the simulation; [`Node::run`] is a thread that repeats it. A node that has ended reports [`End`];
//! its owner closes the database, and opens it again if [`End::is_reopened`].
//!
//! Invariants
//! 1. A clock decides only when a node tries to lead. Whether it leads is decided by the shared log, which confirms
//!    the append of a node only if that node has applied every entry.
//! 2. Entries are applied in order, each once. A node that cannot apply the next one ends; it never skips.
//! 3. A barrier is an entry that the log confirmed after the reader came.
//! 4. A node whose contents are not those of most nodes ends, also when it leads.
//!
//! Not here: entries and their fence (`ropewalk-log`), applying and publishing (`ropewalk-engine`), connections to a log
//! service, roles of protocols (the crates of the server).
#![deny(missing_docs)]

mod barriers;
pub mod checkpoint;
mod end;
mod hashes;
mod node;
mod reseed;
mod running;
mod settings;
mod status;

pub use barriers::BarrierError;
pub use end::End;
pub use hashes::report::HashReport;
pub use hashes::{HashStatus, Pass};
pub use node::{Done, Node, Stepped};
pub use reseed::{Left, Reseed, ReseedError, Reseeded, adopt, leave};
pub use running::RunningNode;
pub use settings::Settings;
pub use status::Status;
