//! The shared log of a cluster on NATS JetStream: [`NatsLog`] is a [`ropewalk_log::shared::SharedLog`] in one stream.
//!
//! ```text
//! leader ──append: entry, number of the newest one──▶ stream NAME, three replicas ──push──▶ followers
//!              ▲                                            │
//!              └── stored as the next number, or refused ◀──┘   message NAME.log.NONCE, its sequence = EntryIndex
//! ```
//!
//! The server compares the expected number with its newest one (`Nats-Expected-Last-Sequence`), which fences a deposed
//! leader. Everything else that the service promises is checked: the settings of the stream and the version of the
//! server when the log is opened, the numbers of all entries when they are read, the incarnation of the stream at each
//! request. `docs/cluster-nats.md` describes how to run the servers.
#![deny(missing_docs)]

mod error;
mod feed;
mod link;
mod log;
mod settings;
mod stream;
mod wait;

pub use error::NatsError;
pub use log::NatsLog;
pub use settings::{NatsSettings, NatsUser};
