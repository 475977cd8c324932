//! State that all connections share: settings, sessions, snapshots, cursors, running operations, fail points.

pub(crate) mod changes;
pub(crate) mod cursors;
pub(crate) mod fail_points;
pub(crate) mod guard;
pub(crate) mod made;
pub(crate) mod operations;
pub(crate) mod sessions;
pub(crate) mod snapshots;
pub(crate) mod topology;
pub(crate) mod usage;

use std::sync::Arc;
use std::sync::atomic::AtomicI32;
use std::time::{Duration, Instant};

use ropewalk::documents::lang::{Value, Writer};
use ropewalk::documents::{Documents, WriteBudget};
use ropewalk_wire::Service;
use tokio::sync::Semaphore;

use crate::state::cursors::Cursors;
use crate::state::fail_points::FailPoints;
use crate::state::operations::Operations;
use crate::state::sessions::Sessions;
use crate::state::snapshots::Snapshots;
use crate::state::usage::Usage;

/// Memory of the writes of all open transactions. One alone may commit 64 MiB.
const TRANSACTION_BYTES_MAX: u64 = 256 << 20;
/// Concurrent writes that wait for the disk, each on a thread.
const WRITES: usize = 256;

/// Settings of a [`Mongo`](crate::Mongo).
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

/// The database, and the state of the protocol that all connections share.
pub(crate) struct Shared {
    /// The server: database, users, metrics, limits, shutdown.
    pub(crate) service: Service,
    /// The documents of the database.
    pub(crate) documents: Documents,
    /// The settings.
    pub(crate) settings: MongoSettings,
    /// Sessions with transactions.
    pub(crate) sessions: Sessions,
    /// Open cursors.
    pub(crate) cursors: Cursors,
    /// Active fail points.
    pub(crate) fail_points: FailPoints,
    /// Snapshots that sessions read again.
    pub(crate) snapshots: Snapshots,
    /// Memory of the writes of all open transactions.
    pub(crate) transactions: Arc<WriteBudget>,
    /// Running operations.
    pub(crate) operations: Arc<Operations>,
    /// Number and time of the commands on each collection.
    pub(crate) usage: Usage,
    /// Permits of writes that wait for the disk.
    pub(crate) writes: Semaphore,
    /// Number of connections since the start.
    pub(crate) connections: AtomicI32,
    /// Number of connections now.
    pub(crate) open_connections: AtomicI32,
    /// Id of this process, by which drivers detect a restart.
    pub(crate) process: [u8; 12],
    started: Instant,
}

impl Shared {
    /// The initial state of a server.
    pub(crate) fn new(service: Service, settings: MongoSettings) -> Self {
        let documents = service.database().documents().clone();
        let random = &service.database().engine().env().random;
        let mut process = [0; 12];
        for (byte, random) in process
            .iter_mut()
            .zip([random.next_u64(), random.next_u64()].into_iter().flat_map(u64::to_le_bytes))
        {
            *byte = random;
        }
        Self {
            documents,
            service,
            fail_points: FailPoints::new(settings.test_commands),
            snapshots: Snapshots::default(),
            transactions: WriteBudget::new(TRANSACTION_BYTES_MAX),
            settings,
            sessions: Sessions::default(),
            cursors: Cursors::default(),
            operations: Arc::default(),
            usage: Usage::default(),
            writes: Semaphore::new(WRITES),
            connections: AtomicI32::new(0),
            open_connections: AtomicI32::new(0),
            process,
            started: Instant::now(),
        }
    }

    /// Ends transactions past their time limit, and closes unused cursors, sessions and snapshots.
    pub(crate) fn tend(&self) {
        self.sessions.tend();
        self.cursors.tend();
        self.snapshots.tend();
    }

    /// Milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> i64 {
        self.service.database().engine().env().clock.wall_micros().div_euclid(1000)
    }

    /// An unpredictable number.
    pub(crate) fn random(&self) -> u64 {
        self.service.database().engine().env().random.next_u64()
    }

    /// Appends the fields that every member of a replica set adds to a reply.
    pub(crate) fn put_times(&self, out: &mut Writer) {
        let time = Value::Timestamp(self.service.database().seq().0);
        out.open_document("$clusterTime");
        out.put("clusterTime", time);
        out.open_document("signature");
        out.put("hash", Value::Binary(0, &[0; 20]));
        out.put("keyId", Value::Int64(0));
        out.close();
        out.close();
        out.put("operationTime", time);
    }

    /// How long the server has run.
    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }
}
