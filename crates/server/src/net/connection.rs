//! One connection, from its first byte to its last: TLS, authentication, HTTP/1 or HTTP/2, all waits bounded.
//!
//! ```text
//! accepted ─▶ room? ─▶ patience ─▶ TLS ─▶ HTTP ─▶ request + who is there ─▶ router of the protocol
//!               └─ no: turned away at once
//! ```

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulConnection, GracefulShutdown, Watcher};
use ropewalk_auth::{Caller, Newcomer, Newcomers};
use ropewalk_wire::{ConnectionMemory, Connections, OpenConnection, RequestMemory, Stop};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant as TimerInstant;
use tokio_rustls::TlsAcceptor;
use tonic::transport::server::TcpConnectInfo;
use tower::ServiceExt as _;
use tracing::Instrument as _;

use crate::config::settings::Limits;
use crate::net::http1_timeouts;
use crate::net::http1_timeouts::{Answer, Patience, Turns};
use crate::net::listen::{Accepted, Listener};
use crate::net::timeout_stream::Patient;

/// Concurrent requests on one HTTP/2 connection; UmaDB's limit, so that its clients see no difference.
const STREAMS: u32 = 1024;
/// Flow control windows of HTTP/2, of a stream and of a connection: UmaDB's values.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 8 << 20;
/// A silent HTTP/2 peer is pinged at this interval, and disconnected when it does not reply in time.
const PING_INTERVAL: Duration = Duration::from_secs(5);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// Most headers of one HTTP/1 request.
const HEADERS: usize = 128;
/// Response to a plain HTTP client when the connection limit is reached.
const NO_ROOM: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// Protocol of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/1.1 and HTTP/2, over TCP or the local socket.
    Http,
    /// HTTP/2 alone.
    Grpc,
}

impl Protocol {
    /// Names to offer in a TLS handshake, best first.
    pub(crate) fn alpn(self) -> &'static [&'static str] {
        match self {
            Self::Http => &["h2", "http/1.1"],
            Self::Grpc => &["h2"],
        }
    }
}

/// One port and its router.
pub(crate) struct Port {
    pub(crate) protocol: Protocol,
    pub(crate) listener: Listener,
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) router: Router,
    pub(crate) room: Arc<Room>,
    pub(crate) places: Places,
    /// For requests that are being received.
    pub(crate) memory: RequestMemory,
    /// Closes connections that have not sent anything yet.
    pub(crate) stop: Stop,
}

/// Ports over TCP that share the bound on connections.
const PORTS: u32 = 4;
/// Slots of the local socket beyond that bound, so that the owner is never locked out.
const LOCAL_PLACES: u32 = 64;

/// State shared by all ports: the bound on connections, and graceful shutdown.
///
/// Each port has an eighth of the connection slots for itself; all ports share the rest. Clients of one port
/// cannot use up the slots of another.
pub(crate) struct Room {
    limits: Limits,
    shared: Arc<Semaphore>,
    graceful: GracefulShutdown,
}

/// Connection slots of one port.
pub(crate) struct Places {
    /// `None` for the local socket, whose clients are known.
    newcomers: Option<Arc<Newcomers>>,
    own: Arc<Semaphore>,
    shared: Arc<Semaphore>,
    connections: u32,
    open: Connections,
}

/// The slot of a connection, which counts it.
struct Place {
    _permit: OwnedSemaphorePermit,
    _open: OpenConnection,
}

impl Places {
    /// Takes a connection slot, if one is free, and one of those for connections of this peer that have not
    /// logged in.
    fn enter(&self, peer: Option<SocketAddr>) -> Option<(Place, Option<Newcomer>)> {
        let newcomer = match (&self.newcomers, peer) {
            (Some(newcomers), Some(peer)) => {
                let newcomer = newcomers.enter(peer.ip());
                if newcomer.is_none() {
                    tracing::warn!(%peer, "too many unauthenticated connections from this address");
                }
                Some(newcomer?)
            }
            _ => None,
        };
        let place = self.own.clone().try_acquire_owned().or_else(|_| self.shared.clone().try_acquire_owned());
        if place.is_err() {
            tracing::warn!(connections = self.connections, "connection limit reached");
        }
        Some((Place { _permit: place.ok()?, _open: self.open.open() }, newcomer))
    }
}

/// Connection slot of an open connection.
pub(crate) struct Entered {
    newcomer: Option<Newcomer>,
    _place: Place,
    _watcher: Watcher,
}

impl Entered {
    /// Runs the connection and then releases its slot.
    pub(crate) fn serve<F: Future>(self, connection: F) -> impl Future<Output = F::Output> {
        // Boxed here: an async function would reserve bytes for each move of the connection's future.
        let connection = Newcomer::scope(self.newcomer.clone(), Box::pin(connection));
        async move {
            let ended = connection.await;
            drop(self);
            ended
        }
    }
}

impl Room {
    pub(crate) fn new(limits: Limits) -> Self {
        let shared = limits.connections - PORTS * Self::own_places(&limits);
        let shared = Arc::new(Semaphore::new(shared as usize));
        Self { limits, shared, graceful: GracefulShutdown::new() }
    }

    fn own_places(limits: &Limits) -> u32 {
        limits.connections / (2 * PORTS)
    }

    /// The slots of one port over TCP, whose connections count in `open`.
    pub(crate) fn places(&self, open: Connections) -> Places {
        // A smaller server has fewer slots for one address than the setting says.
        let of_one_peer = self.limits.peer_connections.min((self.limits.connections / 2).max(1));
        self.places_with(Self::own_places(&self.limits), Some(Newcomers::new(of_one_peer)), open)
    }

    /// The slots of the local socket.
    pub(crate) fn local_places(&self, open: Connections) -> Places {
        self.places_with(LOCAL_PLACES, None, open)
    }

    fn places_with(&self, own: u32, newcomers: Option<Arc<Newcomers>>, open: Connections) -> Places {
        let own = Arc::new(Semaphore::new(own as usize));
        Places { newcomers, own, shared: self.shared.clone(), connections: self.limits.connections, open }
    }

    /// The bounds.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Takes a slot for a connection that ends by itself on shutdown; shutdown waits until the value is
    /// dropped.
    pub(crate) fn enter(&self, places: &Places, peer: SocketAddr) -> Option<Entered> {
        let (place, newcomer) = places.enter(Some(peer))?;
        Some(Entered { newcomer, _place: place, _watcher: self.graceful.watcher() })
    }

    /// Tells every connection to end after its current request, and waits until all have ended. Call it after
    /// every port has stopped accepting.
    pub(crate) async fn drain(room: Arc<Self>) {
        if let Some(room) = Arc::into_inner(room) {
            room.graceful.shutdown().await;
        }
    }
}

impl Port {
    /// Accepts connections for as long as it is polled.
    pub(crate) async fn serve(self) {
        let (http1, http2) = (Arc::new(self.http1()), Arc::new(self.http2()));
        loop {
            let accepted = self.listener.accept().await;
            let peer = match &accepted {
                Accepted::Tcp(_, peer) => Some(*peer),
                Accepted::Local(_) => None,
            };
            let Some((place, newcomer)) = self.places.enter(peer) else {
                if self.tls.is_none() && self.protocol == Protocol::Http {
                    tokio::spawn(turn_away(accepted));
                }
                continue;
            };
            let limits = &self.room.limits;
            // Boxed: otherwise each of the futures below would reserve bytes for it.
            let connection = Box::new(Connection {
                http1: http1.clone(),
                http2: http2.clone(),
                protocol: self.protocol,
                router: self.router.clone(),
                watcher: self.room.graceful.watcher(),
                patience: Patience { head_time: limits.header_time.0, idle_time: limits.idle_time.0 },
                stall_time: limits.stall_time.0,
                memory: self.memory.connection(),
                stop: self.stop.clone(),
                newcomer,
                _place: place,
            });
            tokio::spawn(connection.serve(accepted, self.tls.clone()));
        }
    }

    fn http1(&self) -> http1::Builder {
        let limits = &self.room.limits;
        let header_bytes = usize::try_from(limits.header_bytes.0).unwrap_or(usize::MAX);
        let mut builder = http1::Builder::new();
        // Hyper's own timer would cover both headers and idle time, and be created again for each request.
        builder
            .header_read_timeout(None::<Duration>)
            .max_headers(HEADERS)
            .max_buf_size(header_bytes.max(8 << 10));
        builder
    }

    fn http2(&self) -> http2::Builder<TokioExecutor> {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_header_list_size(u32::try_from(self.room.limits.header_bytes.0).unwrap_or(u32::MAX))
            .max_concurrent_streams(STREAMS)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT);
        builder
    }
}

/// HTTP version of a connection. A library could detect it, but reads the first bytes separately and then
/// holds a buffer of twice the size for the life of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    Http1,
    Http2,
}

/// First bytes of an HTTP/2 client without TLS (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0";
/// Pause between two peeks at an incomplete preface.
const LOOK: Duration = Duration::from_millis(10);

/// Peeks at the first bytes without consuming them; silence counts as HTTP/1, which has its own timeouts.
async fn version_of(stream: &TcpStream, patience: Duration) -> Version {
    let look = async {
        let mut bytes = [0; PREFACE.len()];
        loop {
            let seen = stream.peek(&mut bytes).await.unwrap_or(0);
            match bytes.get(..seen) {
                Some(begin) if begin == PREFACE => return Version::Http2,
                Some(begin) if !begin.is_empty() && PREFACE.starts_with(begin) => {
                    tokio::time::sleep(LOOK).await
                }
                _ => return Version::Http1,
            }
        }
    };
    tokio::time::timeout(patience, look).await.unwrap_or(Version::Http1)
}

/// Waits for the first byte without consuming it; false when none comes in time.
async fn begins(stream: &TcpStream, patience: Duration) -> bool {
    let begun = tokio::time::timeout(patience, stream.peek(&mut [0])).await;
    matches!(begun, Ok(Ok(1..)))
}

async fn turn_away(accepted: Accepted) {
    // The client may be gone; the error does not matter.
    let _ = match accepted {
        Accepted::Tcp(mut stream, _) => stream.write_all(NO_ROOM).await,
        Accepted::Local(mut stream) => stream.write_all(NO_ROOM).await,
    };
}

struct Connection {
    http1: Arc<http1::Builder>,
    http2: Arc<http2::Builder<TokioExecutor>>,
    protocol: Protocol,
    router: Router,
    watcher: Watcher,
    patience: Patience,
    stall_time: Duration,
    /// Budget for the requests of this connection.
    memory: ConnectionMemory,
    stop: Stop,
    newcomer: Option<Newcomer>,
    _place: Place,
}

/// The peer of a connection.
#[derive(Debug, Clone, Copy)]
enum Peer {
    Remote(SocketAddr),
    /// The user who owns the database directory and could open its files anyway: needs no password.
    Owner,
}

impl Connection {
    async fn serve(self: Box<Self>, accepted: Accepted, tls: Option<TlsAcceptor>) {
        let opened = TimerInstant::now();
        match (accepted, tls) {
            (Accepted::Tcp(stream, peer), None) => {
                let Some(version) = self.begin(&stream).await else {
                    tracing::debug!(%peer, "the client sent nothing; connection closed");
                    return;
                };
                self.speak(stream, version, Peer::Remote(peer), opened).await;
            }
            // A handshake needs much memory, which a connection without TLS should not reserve.
            (Accepted::Tcp(stream, peer), Some(tls)) => Box::pin(self.serve_tls(stream, tls, peer)).await,
            (Accepted::Local(stream), _) => self.speak(stream, Version::Http1, Peer::Owner, opened).await,
        }
    }

    /// Waits for the client's first bytes, so that HTTP buffers are allocated only for active clients. `None`
    /// when it is silent, or the server stops.
    async fn begin(&self, stream: &TcpStream) -> Option<Version> {
        let patience = self.patience.head_time;
        let version = async {
            match self.protocol {
                Protocol::Http => Some(version_of(stream, patience).await),
                Protocol::Grpc => begins(stream, patience).await.then_some(Version::Http2),
            }
        };
        tokio::select! {
            biased;
            version = version => version,
            () = self.stop.wait() => None,
        }
    }

    async fn serve_tls(self: Box<Self>, stream: TcpStream, tls: TlsAcceptor, peer: SocketAddr) {
        match tokio::time::timeout(self.patience.head_time, tls.accept(stream)).await {
            Ok(Ok(stream)) => {
                let agreed = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                let http2 = agreed || self.protocol == Protocol::Grpc;
                let version = if http2 { Version::Http2 } else { Version::Http1 };
                self.speak(stream, version, Peer::Remote(peer), TimerInstant::now()).await;
            }
            Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
            Err(_) => tracing::debug!(%peer, "the TLS handshake took too long"),
        }
    }

    async fn speak<S>(self: Box<Self>, stream: S, version: Version, peer: Peer, opened: TimerInstant)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self {
            http1,
            http2,
            protocol,
            router,
            watcher,
            patience,
            stall_time,
            memory,
            stop,
            newcomer,
            _place,
        } = *self;
        let of_connection = (memory, newcomer);
        // Each idle connection holds one of these futures, so each is boxed at the size of its protocol.
        let ended = match version {
            Version::Http1 => {
                let turns = Arc::new(Turns::default());
                let stream = TokioIo::new(Patient::opened(stream, stall_time, turns.clone()));
                let of_service = turns.clone();
                let service = service_fn(move |request| {
                    let answering = of_service.answer();
                    let turn = |response: Response<Body>| {
                        response.map(|body| Answer { body, _answering: answering })
                    };
                    answer(router.clone(), request, peer, of_connection.clone(), turn)
                });
                let connection = Box::pin(watcher.watch(http1.serve_connection(stream, service)));
                http1_timeouts::bounded(connection, &turns, patience, opened).await
            }
            Version::Http2 => {
                // One deadline covers all bytes of the preface.
                let opening_time = patience.head_time.saturating_sub(opened.elapsed());
                let stream = TokioIo::new(Patient::http2(stream, opening_time, stall_time));
                let refused = Arc::new(AtomicBool::new(false));
                let of_service = refused.clone();
                let service = service_fn(move |request| {
                    let (refused, newcomer) = (of_service.clone(), of_connection.1.clone());
                    let checked = move |response: Response<Body>| {
                        let logged_in = newcomer.is_none_or(|newcomer| newcomer.is_admitted());
                        if protocol == Protocol::Grpc && !logged_in && lacks_credentials(&response) {
                            refused.store(true, Ordering::Relaxed);
                        }
                        response
                    };
                    answer(router.clone(), request, peer, of_connection.clone(), checked)
                });
                let connection = Box::pin(http2.serve_connection(stream, service));
                let ended = until_refused(connection, &stop, &refused).await;
                // The server waits for it when it stops.
                drop(watcher);
                Some(ended)
            }
        };
        match ended {
            Some(Ok(())) => {}
            Some(Err(error)) => tracing::debug!(?peer, %error, "connection ended"),
            None => tracing::debug!(?peer, "client timed out; connection closed"),
        }
    }
}

/// Serves an HTTP/2 connection until it ends. Tells its client to end it when the server stops, and after a call
/// was refused for lack of credentials on a connection without login: its state would take more memory than that
/// of any other protocol, and the client can use it for nothing.
async fn until_refused<C: GracefulConnection>(
    mut connection: Pin<Box<C>>,
    stop: &Stop,
    refused: &AtomicBool,
) -> C::Output {
    let mut stopped = pin!(stop.wait());
    let mut is_ending = false;
    poll_fn(|cx| {
        // The connection is polled after a response, because it sends that.
        if !is_ending && (refused.load(Ordering::Relaxed) || stopped.as_mut().poll(cx).is_ready()) {
            is_ending = true;
            connection.as_mut().graceful_shutdown();
        }
        connection.as_mut().poll(cx)
    })
    .await
}

/// True for the response to a call without valid credentials. Such a response has no trailers.
fn lacks_credentials(response: &Response<Body>) -> bool {
    let status = response.headers().get("grpc-status").and_then(|status| status.to_str().ok());
    status.and_then(|status| status.parse().ok()) == Some(i32::from(tonic::Code::Unauthenticated))
}

/// Routes a request, together with its peer, and records it. `wrap` makes the response that is sent.
async fn answer<B>(
    router: Router,
    request: Request<Incoming>,
    peer: Peer,
    (memory, newcomer): (ConnectionMemory, Option<Newcomer>),
    wrap: impl FnOnce(Response<Body>) -> Response<B>,
) -> Result<Response<B>, Infallible> {
    let started = Instant::now();
    // The request lives in a block: the future, which a connection holds while it waits for a body, would
    // reserve bytes for it otherwise.
    let (told, span, routed) = {
        let request = with_peer(request.map(Body::new), peer, memory);
        let told = tracing::enabled!(target: "ropewalk::access", tracing::Level::DEBUG)
            .then(|| (request.method().clone(), request.uri().path().to_owned()));
        let span = crate::process::spans::begin(&request);
        let routed = router.oneshot(request).instrument(span.clone());
        (told, span, Newcomer::scope(newcomer, routed))
    };
    let response = routed.await?;
    crate::process::spans::end(&span, &response);
    if let Some((method, path)) = told {
        let (status, micros) = (response.status().as_u16(), started.elapsed().as_micros());
        match peer {
            Peer::Remote(peer) => {
                tracing::debug!(target: "ropewalk::access", %method, path, status, micros = micros as u64, %peer, "request");
            }
            Peer::Owner => {
                tracing::debug!(target: "ropewalk::access", %method, path, status, micros = micros as u64, peer = "local", "request");
            }
        }
    }
    Ok(wrap(response))
}

/// The request with what handlers need of its connection.
fn with_peer(mut request: Request<Body>, peer: Peer, memory: ConnectionMemory) -> Request<Body> {
    let extensions = request.extensions_mut();
    extensions.insert(memory);
    match peer {
        Peer::Remote(address) => {
            // axum and tonic each look for their own type.
            extensions.insert(ConnectInfo(address));
            extensions.insert(TcpConnectInfo { local_addr: None, remote_addr: Some(address) });
        }
        Peer::Owner => {
            extensions.insert(Caller::everybody());
        }
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    /// Size of the future that `work` returns.
    fn answer_bytes<F>(
        _work: impl Fn(Router, Request<Incoming>, (ConnectionMemory, Option<Newcomer>)) -> F,
    ) -> usize {
        size_of::<F>()
    }

    #[tokio::test]
    async fn d1_24_futures_of_connection_and_request_reserve_no_copies() {
        let room = Room::new(Limits::default());
        let entered =
            room.enter(&room.places(Connections::default()), "127.0.0.1:1".parse().unwrap()).unwrap();
        let bytes = size_of_val(&entered.serve(std::future::ready([0_u8; 1000])));
        assert!(bytes < 256, "{bytes} bytes");
        let bytes = answer_bytes(|router, request, connection| {
            answer(router, request, Peer::Owner, connection, |response| response)
        });
        assert!(bytes < 1200, "{bytes} bytes");
    }

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let theirs = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (listener.accept().await.unwrap().0, theirs)
    }

    #[tokio::test]
    async fn d1_24_first_byte_begins_connection_and_is_not_consumed() {
        let (ours, mut theirs) = pair().await;
        theirs.write_all(b"P").await.unwrap();
        assert!(begins(&ours, PATIENCE).await);
        assert_eq!(ours.peek(&mut [0; 8]).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn d1_24_silent_or_closed_client_does_not_begin() {
        let (ours, theirs) = pair().await;
        assert!(!begins(&ours, Duration::from_millis(10)).await);
        drop(theirs);
        assert!(!begins(&ours, PATIENCE).await);
    }
}
