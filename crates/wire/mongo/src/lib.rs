//! The MongoDB wire protocol: unmodified drivers see a replica set of one member, so that transactions,
//! retryable writes and change streams work without set-up.
//!
//! ```text
//! bytes ─▶ frame ─▶ Request ─▶ connection: who is there ─▶ command table, rights ─▶ Call ─▶ documents ─▶ Writer ─▶ frame ─▶ bytes
//!                                                  sessions, cursors ──┘
//! ```
//!
//! Rooms, from top to bottom; each uses only those below it:
//!
//! | room | contents |
//! |---|---|
//! | `connection` | the life of one client |
//! | `command` | the table of commands, their rights, and how each is run |
//! | `models` | commands on events, rows and samples; event stores and tables as collections |
//! | `crud` | reads, writes, change streams; collections and indexes |
//! | `session` | commands of sessions and transactions |
//! | `server` | the handshake, the server's status, running operations |
//! | `auth` | logins and users |
//! | `call` | one command in execution, and its client |
//! | `state` | state that all connections share: sessions, snapshots, cursors, operations, fail points |
//! | `protocol` | frames, compression, fields of commands, lists of replies, errors |
//!
//! Invariants
//! 1. A reply is ok only if the command was executed: an unknown command fails with 59, an unknown field with
//!    40415, a MongoDB feature not supported here with 115 or 238, each with a message.
//! 2. The result of a retryable write, and the fact that a transaction was committed, are part of the commit
//!    itself: a client that lost the reply gets the same one, also after a restart.
//! 3. Messages, batches, cursors, sessions and transactions have bounds in bytes, number and time.
//! 4. Each batch of a cursor repeats the checks of the command that opened it (`state::guard`).
#![deny(missing_docs)]

mod auth;
mod call;
mod command;
mod connection;
mod crud;
mod models;
mod protocol;
mod server;
mod session;
mod state;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ropewalk_wire::Service;
use tokio::io::{AsyncRead, AsyncWrite};

pub use command::rights::operations;
pub use protocol::compress::Compressor;
pub use protocol::frame;
pub use state::MongoSettings;

use crate::state::Shared;

/// Interval at which expired sessions, cursors and transactions are cleaned up.
const TEND: Duration = Duration::from_secs(1);

/// The MongoDB protocol over one database. Cheap to clone.
#[derive(Clone)]
pub struct Mongo(Arc<Shared>);

impl Mongo {
    /// Offers the documents of the service's database.
    pub fn new(service: Service, settings: MongoSettings) -> Self {
        Self(Arc::new(Shared::new(service, settings)))
    }

    /// Serves one client until it or the server ends. `local`: the address to which the client connected.
    pub async fn serve<S>(&self, stream: S, peer: Option<SocketAddr>, local: Option<SocketAddr>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let id = self.0.connections.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        self.0.open_connections.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = connection::serve(&self.0, id, stream, peer, local).await {
            tracing::debug!(?peer, %error, "connection ended");
        }
        self.0.open_connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Cleans up periodically: transactions past their time limit, unused cursors and sessions. Runs until
    /// the server stops.
    pub async fn tend(self) {
        let stop = self.0.service.stop().clone();
        let mut at = tokio::time::interval(TEND);
        loop {
            tokio::select! {
                _ = at.tick() => {}
                () = stop.wait() => return,
            }
            self.0.tend();
        }
    }
}
