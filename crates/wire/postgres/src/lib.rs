//! The PostgreSQL wire protocol: psql and unmodified drivers use SQL on every model of the database.
//!
//! ```text
//! bytes ─▶ startup: TLS, who ─▶ channel: whole messages ─▶ connection: simple, extended ─▶ statement_cache ─▶ ropewalk_sql::Session
//!                                                              └─ frame, value: rows as text or binary ─▶ bytes
//! ```
//! `POST /v1/sql` of the HTTP port, in `http`, runs the same statements. `frame` has the encoding,
//! `connection` the life of one client, `statements` its prepared statements.
//!
//! Invariants
//! 1. A statement reported as successful is executed and durable; an error is one ErrorResponse with a
//!    SQLSTATE.
//! 2. A client that disconnects at any point leaves no transaction open.
//! 3. Messages, statements, portals, running statements and waits have bounds in bytes, number and time.
#![deny(missing_docs)]

mod backends;
mod channel;
mod connection;
mod copy;
mod failure;
mod frame;
mod http;
mod login;
mod notifications;
mod rights;
mod startup;
mod statement_cache;
mod types;
mod value;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ropewalk::promql::SharedMemory;
use ropewalk_sql::SqlError;
pub use ropewalk_sql::TempFileLimits;
use ropewalk_transactions::Sessions;
use ropewalk_wire::Service;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

pub use rights::{http_operations, operations};

use crate::backends::Backends;
use crate::http::cancellable::Cancellable;
use crate::notifications::Hub;

/// Settings of a [`Postgres`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresSettings {
    /// Time for encryption, login and the settings of a session together. Default 30 s.
    pub opening_time: Duration,
    /// Time in which a client may be silent while it has a transaction open. Default 10 minutes.
    pub transaction_idle_time: Duration,
    /// Bytes for the in-memory columns of tables that queries scan. Default
    /// [`ropewalk_sql::default_column_bytes`].
    pub column_memory: usize,
    /// Bytes of temporary files.
    pub temp_files: TempFileLimits,
}

impl Default for PostgresSettings {
    fn default() -> Self {
        Self {
            opening_time: Duration::from_secs(30),
            transaction_idle_time: Duration::from_secs(600),
            column_memory: ropewalk_sql::default_column_bytes(),
            temp_files: TempFileLimits::default(),
        }
    }
}

/// The PostgreSQL protocol over one database. Cheap to clone.
#[derive(Clone)]
pub struct Postgres(Arc<Shared>);

struct Shared {
    service: Service,
    settings: PostgresSettings,
    backends: Backends,
    hub: Hub,
    cancellable: Cancellable,
    /// Permits of statements that are not brief.
    turns: Semaphore,
    /// Idle sessions of `POST /v1/sql`.
    sessions: Arc<Sessions>,
}

impl Postgres {
    /// Offers the database of the service.
    pub fn new(service: Service, settings: PostgresSettings) -> Self {
        ropewalk_sql::limit_columns(service.database(), settings.column_memory);
        ropewalk_sql::limit_temp_files(service.database(), settings.temp_files);
        Self(Arc::new(Shared {
            turns: Semaphore::new(service.limits().long_reads.clamp(1, Semaphore::MAX_PERMITS)),
            backends: Backends::default(),
            hub: Hub::default(),
            sessions: Arc::default(),
            cancellable: Cancellable::default(),
            service,
            settings,
        }))
    }

    /// Counts the memory of SQL's `promql()` in the budget of PromQL queries.
    pub fn share_promql_memory(&self, memory: Arc<SharedMemory>) {
        ropewalk_sql::share_promql_memory(self.0.service.database(), memory);
    }

    /// Serves one client until it or the server ends. With `tls` every session must use it.
    pub async fn serve<S>(&self, stream: S, peer: Option<SocketAddr>, tls: Option<&TlsAcceptor>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        if let Err(error) = connection::serve(&self.0, stream, peer, tls).await {
            tracing::debug!(?peer, %error, "connection ended");
        }
    }

    /// Rejects a client because there are too many.
    pub async fn turn_away<S>(&self, stream: S, tls: Option<&TlsAcceptor>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let error = SqlError::new(failure::TOO_MANY_CONNECTIONS, "sorry, too many clients already")
            .hint("the limit is limits.connections of the server");
        let told = startup::turn_away(stream, tls, &error);
        // The client may be gone.
        let _ = channel::in_time(self.0.settings.opening_time, told).await;
    }
}

/// For the fuzz target: any bytes are at most rejected.
pub mod fuzzing {
    /// Reads a message, and a value in each type and format.
    pub fn message(bytes: &[u8]) {
        use crate::frame::{Format, Request};
        let Some((tag, body)) = bytes.split_first() else { return };
        let _ = Request::read(*tag, body);
        for oid in [16, 20, 21, 23, 25, 114, 700, 701, 1007, 1009, 1082, 1083, 1114, 1184, 1231, 1700, 2950] {
            if let Some(ty) = crate::types::type_of(oid) {
                for format in [Format::Text, Format::Binary] {
                    let _ = crate::value::read(body, format, ty, &ropewalk_sql::Zone::UTC);
                }
            }
        }
    }
}
