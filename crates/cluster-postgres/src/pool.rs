//! The two connections of a log: one for appends, one for everything else, which never waits for an append.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use ropewalk_base::hex;
use ropewalk_log::LogId;
use ropewalk_log::shared::{SharedError, SharedResult};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::error::PostgresOpenError;
use crate::known::Known;
use crate::servers::{PostgresOptions, Server};
use crate::session::{Head, Session};
use crate::tls::Tls;

/// Purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Append,
    /// It listens for notifications.
    Read,
}

/// Connections to whichever server is the primary.
pub(crate) struct Pool {
    pub(crate) servers: Vec<Server>,
    tls: Tls,
    pub(crate) shard: String,
    create: bool,
    pub(crate) call_timeout: Duration,
    pub(crate) known: Known,
    /// Server that is tried first.
    preferred: AtomicUsize,
    /// Connections of an earlier generation are not used again.
    generation: AtomicU64,
    /// The latest timeline that was used. A server that was the primary before is not used again: it may show entries
    /// that no standby had, and an append that ended unknown would be taken for confirmed.
    timeline: AtomicU32,
    append: Slot,
    read: Slot,
}

/// A connection with its generation.
type Slot = Mutex<Option<(u64, Arc<Session>)>>;

impl Pool {
    /// Channel of the notifications of a log. The name has its incarnation and fits into 63 bytes.
    pub(crate) fn channel(id: LogId) -> String {
        format!("ropewalk_{}", hex(&id.0))
    }

    pub(crate) fn new(servers: Vec<Server>, tls: Tls, options: PostgresOptions) -> Self {
        let PostgresOptions { shard, create, call_timeout, certificates: _ } = options;
        Self {
            servers,
            tls,
            shard,
            create,
            call_timeout,
            known: Known::default(),
            preferred: AtomicUsize::new(0),
            generation: AtomicU64::new(0),
            timeline: AtomicU32::new(0),
            append: Slot::default(),
            read: Slot::default(),
        }
    }

    /// Opens the log `id`, or with `None` the log of this name, which may be created.
    pub(crate) async fn connect(
        &self,
        id: Option<LogId>,
        purpose: Purpose,
    ) -> Result<(Session, Head), PostgresOpenError> {
        let count = self.servers.len();
        // A server that accepts connections and does not respond must not hide the others. All attempts together
        // end before the call does, so that its error names their causes.
        let share = self.call_timeout * 2 / u32::try_from(2 * count + 1).unwrap_or(u32::MAX);
        let first = self.preferred.load(Ordering::Relaxed);
        let mut worst: Option<PostgresOpenError> = None;
        let mut causes = Vec::new();
        for place in 0..count {
            let place = (first + place) % count;
            let Some(server) = self.servers.get(place) else { continue };
            let attempt = timeout(share, self.connect_to(server, id, purpose)).await;
            let error = match attempt {
                Ok(Ok(found)) => {
                    self.preferred.store(place, Ordering::Relaxed);
                    return Ok(found);
                }
                Ok(Err(error)) => error,
                Err(_) => PostgresOpenError::unavailable(format!("no response within {share:?}")),
            };
            match error {
                PostgresOpenError::Log(SharedError::Unavailable { cause }) => {
                    causes.push(format!("{}: {cause}", server.name));
                }
                error => {
                    worst.get_or_insert(error);
                }
            }
        }
        Err(worst.unwrap_or_else(|| PostgresOpenError::unavailable(causes.join("; "))))
    }

    async fn connect_to(
        &self,
        server: &Server,
        id: Option<LogId>,
        purpose: Purpose,
    ) -> Result<(Session, Head), PostgresOpenError> {
        let (lock_timeout, may_create) = (self.call_timeout / 2, id.is_none() && self.create);
        let session = Session::open(server, &self.tls, &self.shard, lock_timeout, may_create).await?;
        let latest = self.timeline.fetch_max(session.timeline, Ordering::Relaxed);
        if session.timeline < latest {
            let cause = format!("its timeline {} ended: timeline {latest} was used", session.timeline);
            return Err(PostgresOpenError::unavailable(cause));
        }
        let head = session.head(&self.shard, self.known.get()).await?;
        if let Some(id) = id.filter(|id| *id != head.id) {
            let what = format!("it was created again: its identity is {}, not {id}", head.id);
            return Err(SharedError::Lost { what }.into());
        }
        if purpose == Purpose::Read {
            session.listen(&Self::channel(head.id)).await?;
        }
        Ok((session, head))
    }

    /// The connection for a purpose, with its generation; connects where necessary.
    pub(crate) async fn session(&self, id: LogId, purpose: Purpose) -> SharedResult<(u64, Arc<Session>)> {
        let slot = match purpose {
            Purpose::Append => &self.append,
            Purpose::Read => &self.read,
        };
        let mut slot = slot.lock().await;
        let generation = self.generation.load(Ordering::Relaxed);
        let timeline = self.timeline.load(Ordering::Relaxed);
        let is_usable = |session: &Session| session.timeline == timeline && !session.client.is_closed();
        if let Some((of, session)) = slot.as_ref().filter(|(of, s)| *of == generation && is_usable(s)) {
            return Ok((*of, session.clone()));
        }
        *slot = None;
        let connected = self.connect(Some(id), purpose).await;
        let session = Arc::new(connected.map_err(PostgresOpenError::into_shared)?.0);
        *slot = Some((generation, session.clone()));
        Ok((generation, session))
    }

    /// Makes later calls connect again. Both connections are replaced, since the server may have lost its role.
    pub(crate) fn retire(&self, generation: u64) {
        let next = generation + 1;
        let _ = self.generation.compare_exchange(generation, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Makes later calls begin with the next server, after one that did not respond.
    pub(crate) fn prefer_next(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
        let next = (self.preferred.load(Ordering::Relaxed) + 1) % self.servers.len().max(1);
        self.preferred.store(next, Ordering::Relaxed);
    }
}
