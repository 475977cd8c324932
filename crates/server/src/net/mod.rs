//! Listening sockets, TLS, and the handling of one connection.

pub(crate) mod connection;
pub(crate) mod http1_timeouts;
pub(crate) mod listen;
pub(crate) mod ports;
pub(crate) mod timeout_stream;
pub(crate) mod tls;
