//! The MongoDB wire protocol: unmodified drivers see a replica set of one member, so that transactions,
//! retryable writes and change streams work without set-up.
//!
//! ```text
//! bytes ─▶ frame ─▶ Request ─▶ connection: who is there ─▶ command table, rights ─▶ Call ─▶ documents ─▶ Writer ─▶ frame ─▶ bytes
//!                                                  sessions, cursors ──┘
//! ```
//!
//! `frame` has the encoding, `connection` the life of one client, `command` the table of commands, and then
//! there is one module for each group of commands: `hello`, `login`, `users`, `server`, `operations`,
//! `write`, `read`, `schema`, `transaction`, `changes`.
//!
//! Invariants
//! 1. A reply is ok only if the command was executed: an unknown command fails with 59, an unknown field with
//!    40415, a MongoDB feature not supported here with 115 or 238, each with a message.
//! 2. The result of a retryable write, and the fact that a transaction was committed, are part of the commit
//!    itself: a client that lost the reply gets the same one, also after a restart.
//! 3. Messages, batches, cursors, sessions and transactions have bounds in bytes, number and time.
//! 4. Each batch of a cursor repeats the checks of the command that opened it (`guard`).
#![deny(missing_docs)]

mod args;
mod call;
mod changes;
mod command;
mod compress;
mod connection;
mod cursor;
mod failpoint;
mod failure;
pub mod frame;
mod guard;
mod hello;
mod login;
mod operations;
mod read;
mod rights;
mod schema;
mod server;
mod session;
mod snapshots;
mod transaction;
mod users;
mod write;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use ropewalk::documents::{Documents, WriteBudget};
use ropewalk_wire::Service;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;

pub use compress::Compressor;
pub use rights::operations;

use crate::cursor::Cursors;

use crate::failpoint::FailPoints;
use crate::operations::Operations;
use crate::session::Sessions;
use crate::snapshots::Snapshots;

/// Interval at which expired sessions, cursors and transactions are cleaned up.
const TEND: Duration = Duration::from_secs(1);
/// Memory of the writes of all open transactions. One alone may commit 64 MiB.
const TRANSACTION_BYTES_MAX: u64 = 256 << 20;
/// Concurrent writes that wait for the disk, each on a thread.
const WRITES: usize = 256;

/// Settings of a [`Mongo`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MongoSettings {
    /// `HOST:PORT` by which clients reach the server, when it is another than the one they connect to.
    pub announce: Option<String>,
    /// Offer `configureFailPoint`, which is meant only for tests of clients.
    pub test_commands: bool,
    /// Time for one command without `maxTimeMS`. Default 10 minutes.
    pub command_time: Duration,
}

impl Default for MongoSettings {
    fn default() -> Self {
        Self { announce: None, test_commands: false, command_time: Duration::from_secs(600) }
    }
}

/// The MongoDB protocol over one database. Cheap to clone.
#[derive(Clone)]
pub struct Mongo(Arc<Shared>);

struct Shared {
    service: Service,
    documents: Documents,
    settings: MongoSettings,
    sessions: Sessions,
    cursors: Cursors,
    fail_points: FailPoints,
    snapshots: Snapshots,
    transactions: Arc<WriteBudget>,
    operations: Arc<Operations>,
    writes: Semaphore,
    connections: AtomicI32,
    open_connections: AtomicI32,
    /// Id of this process, by which drivers detect a restart.
    process: [u8; 12],
    started: std::time::Instant,
}

impl Mongo {
    /// Offers the documents of the service's database.
    pub fn new(service: Service, settings: MongoSettings) -> Self {
        let documents = service.database().documents().clone();
        let random = &service.database().engine().env().random;
        let mut process = [0; 12];
        for (byte, random) in process
            .iter_mut()
            .zip([random.next_u64(), random.next_u64()].into_iter().flat_map(u64::to_le_bytes))
        {
            *byte = random;
        }
        Self(Arc::new(Shared {
            documents,
            service,
            fail_points: FailPoints::new(settings.test_commands),
            snapshots: Snapshots::default(),
            transactions: WriteBudget::new(TRANSACTION_BYTES_MAX),
            settings,
            sessions: Sessions::default(),
            cursors: Cursors::default(),
            operations: Arc::default(),
            writes: Semaphore::new(WRITES),
            connections: AtomicI32::new(0),
            open_connections: AtomicI32::new(0),
            process,
            started: std::time::Instant::now(),
        }))
    }

    /// Serves one client until it or the server ends. `local`: the address to which the client connected.
    pub async fn serve<S>(&self, stream: S, peer: Option<SocketAddr>, local: Option<SocketAddr>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let id = self.0.connections.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        self.0.open_connections.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = connection::serve(self, id, stream, peer, local).await {
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
            self.0.sessions.tend();
            self.0.cursors.tend();
            self.0.snapshots.tend();
        }
    }
}
