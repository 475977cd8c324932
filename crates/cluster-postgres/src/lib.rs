//! The shared log of a cluster in two tables of PostgreSQL 14 or newer.
//!
//! ```text
//! ropewalk_head: shard, nonce, last, oldest     one row for each log; its lock orders the appends
//! ropewalk_log:  shard, index, entry            one row for each entry
//!
//! append(after 4) ─▶ one statement: last = 4 ? insert 5, last = 5, notify ─▶ commit (synchronous) ─▶ confirmed
//! read(after 4)   ─▶ one statement: head row and a range of entries; then wait for a notification, at most 50 ms
//! ```
//!
//! Invariants
//! 1. An append is confirmed only after the commit returned without a warning: PostgreSQL reports by a warning that it
//!    stopped to wait for a synchronous standby, and such a commit may be lost in a failover.
//! 2. The statement of the append also requires the settings without which a commit is not durable, so that a change
//!    of the configuration, or a connection pooler that mixes sessions, cannot weaken a confirmation.
//! 3. `Fenced` is returned after a write to the head row, whose commit waits for the standbys, too. So the entry that
//!    the caller reads next is as durable as a confirmed one, also when its own append had ended unknown.
//! 4. A request that has been sent is never cancelled: a cancelled wait would make an entry visible that no standby has.
//! 5. Each new connection checks that the newest entry that this process knows is in the log, with the same bytes. A
//!    failover to a server without it, which needs a new connection, is reported as [`SharedError::Lost`].
//! 6. A process that has used a promoted server does not use the one before it again: that one may show entries that
//!    no standby had.
//!
//! Not here: which node leads, and what the entries contain.
//!
//! [`SharedError::Lost`]: ropewalk_log::shared::SharedError::Lost

mod error;
mod known;
mod log;
mod pool;
mod servers;
mod session;
mod statements;
mod tls;

pub use error::PostgresOpenError;
pub use log::PostgresLog;
pub use servers::PostgresOptions;
