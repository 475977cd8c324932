//! The services on one port, and the HTTP/2 settings that UmaDB's clients expect.

use core::time::Duration;
use std::io;

use futures_util::Stream;
use ropewalk_wire::Service;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::Connected;

use crate::alias::Alias;
use crate::events::Events;
use crate::health::health;
use crate::server::events::events_server::EventsServer;
use crate::server::umadb::d_c_b_server::DCBServer;
use crate::umadb::Umadb;

const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// What a message may weigh beyond the bytes of an append: field numbers, lengths, conditions.
const MESSAGE_ROOM: usize = 1 << 20;

/// Settings of the HTTP/2 connections. The defaults are those of UmaDB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrpcSettings {
    /// A quiet connection is pinged after this time. Default 5 s.
    pub keep_alive: Duration,
    /// And closed when it has not answered for this time. Default 10 s.
    pub keep_alive_timeout: Duration,
    /// Bytes that one call may have on its way to us. Default 4 MiB.
    pub stream_window: u32,
    /// Bytes that one connection may have on its way to us. Default 8 MiB.
    pub connection_window: u32,
    /// Calls and open streams of one connection. Default 1,024.
    pub requests_per_connection: u32,
    /// Answers the reflection protocols. Default true.
    pub reflection: bool,
}

impl Default for GrpcSettings {
    fn default() -> Self {
        Self {
            keep_alive: Duration::from_secs(5),
            keep_alive_timeout: Duration::from_secs(10),
            stream_window: 4 << 20,
            connection_window: 8 << 20,
            requests_per_connection: 1024,
            reflection: true,
        }
    }
}

/// The services. Health ends with the service's stop signal, so this is called in the runtime that serves.
pub async fn routes(service: &Service, settings: &GrpcSettings) -> Routes {
    let message_bytes = service.limits().request_bytes.saturating_add(MESSAGE_ROOM);
    let umadb = DCBServer::new(Umadb(service.clone()))
        .max_decoding_message_size(message_bytes)
        .max_encoding_message_size(usize::MAX);
    let events = EventsServer::new(Events(service.clone()))
        .max_decoding_message_size(message_bytes)
        .max_encoding_message_size(usize::MAX);
    let mut routes = Routes::builder();
    routes
        .add_service(umadb.clone())
        .add_service(Alias(umadb))
        .add_service(events)
        .add_service(health(service).await);
    if settings.reflection {
        let builder = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        routes
            .add_service(builder().build_v1().expect("our own descriptors are well-formed"))
            .add_service(builder().build_v1alpha().expect("our own descriptors are well-formed"));
    }
    routes.routes()
}

/// Serves connections until the service's stop signal; then lets running calls finish. For the peer's address to be
/// known, a connection's info must be tonic's `TcpConnectInfo`.
///
/// # Errors
/// None that a single connection could cause.
pub async fn serve<C>(
    service: Service,
    settings: GrpcSettings,
    connections: impl Stream<Item = io::Result<C>> + Send,
) -> Result<(), tonic::transport::Error>
where
    C: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    let stop = service.stop().clone();
    let requests = settings.requests_per_connection;
    Server::builder()
        .http2_keepalive_interval(Some(settings.keep_alive))
        .http2_keepalive_timeout(Some(settings.keep_alive_timeout))
        .initial_stream_window_size(settings.stream_window)
        .initial_connection_window_size(settings.connection_window)
        .concurrency_limit_per_connection(requests as usize)
        .max_concurrent_streams(requests)
        .add_routes(routes(&service, &settings).await)
        .serve_with_incoming_shutdown(connections, async move { stop.wait().await })
        .await
}
