//! The Ropewalk server: every protocol over one database, each on its own port.
//!
//! ```text
//! settings ─▶ server ─┬▶ listen ─▶ connection ─▶ HTTP: ropewalk-http      ─┐
//!                     │   tls      patient    ─▶ gRPC: ropewalk-grpc      ─┴▶ ropewalk-wire ─▶ Database
//!                     │   lanes, direct         ─▶ PostgreSQL, MongoDB    ─▶ connections that stay on one thread
//!                     └▶ signals, notify (systemd), logs
//! ```
//! `settings` defines the options, `server` the life of the process, `connection` the handling of one client.
#![deny(missing_docs)]

#[cfg(feature = "cluster")]
mod cluster;
#[cfg(not(feature = "cluster"))]
#[path = "cluster/absent.rs"]
mod cluster;
mod config;
mod console;
pub mod directories;
mod net;
mod process;
mod projections;
mod server;
mod workers;

pub use config::settings::{
    Cluster, Console, DEFAULT_FILE, Directory, Effective, Enabled, Grpc, Http, Key, Limits, Log, LogFormat,
    Memory, MongoDb, Origin, Projections, Prometheus, Settings, SettingsError, Sources, Stop, Tls, keys,
    schema,
};
pub use config::units::{ByteSize, Every, Listen, Period, StoreListen};
pub use net::listen::{SOCKET_NAME, connect_local};
pub use net::tls::{Certificates, TlsError};
pub use server::{Address, ReadyFile, ServeError, serve};
