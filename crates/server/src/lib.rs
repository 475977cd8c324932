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

mod connection;
mod direct;
mod lanes;
mod listen;
mod logs;
mod mongo;
mod notify;
mod pages;
mod patient;
mod place;
mod postgres;
mod server;
mod settings;
mod spans;
mod tls;
mod turns;
mod units;

pub use listen::{SOCKET_NAME, connect_local};
pub use server::{Address, ServeError, serve};
pub use settings::{
    DEFAULT_FILE, Directory, Effective, Enabled, Grpc, Http, Key, Limits, Log, LogFormat, Memory, MongoDb,
    Origin, Prometheus, Settings, SettingsError, Sources, Stop, Tls, keys, schema,
};
pub use tls::{Certificates, TlsError};
pub use units::{ByteSize, Every, Listen, Period, StoreListen};
