//! Requests to other nodes: writes that a follower sends to its leader, and its reports.
//!
//! ```text
//! http, https   ─▶ http1: an idle connection, or a new one; it is idle again after the response
//! grpc, grpcs   ─▶ http2: one connection to a node, for all calls
//! ```
//! A request is never sent twice: it is repeated only while no byte of it has left this process.

mod http1;
mod http2;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{CONNECTION, COOKIE, HeaderMap, ORIGIN, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use axum::http::{HeaderName, HeaderValue, Uri};
use axum::response::Response;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use ropewalk_http_kit::leader::{FORWARDED, LeaderResponse, ToLeader, ToLeaderError};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::config::settings::SettingsError;
use crate::server::ServeError;

/// Time for a connection and its TLS handshake.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// Headers of one connection (RFC 9110, section 7.6.1), and those of a browser, which this node has checked.
static OWN: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    COOKIE,
    ORIGIN,
    HeaderName::from_static("sec-fetch-site"),
];

/// Connections to other nodes.
pub(super) struct Forward {
    http1: http1::Connections,
    http2: http2::Connections,
}

impl core::fmt::Debug for Forward {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Forward").finish_non_exhaustive()
    }
}

impl Forward {
    /// No connections yet. `ca`: the file with the certificates to trust, instead of those of the system.
    ///
    /// # Errors
    /// The file cannot be used.
    pub(super) fn new(ca: Option<&Path>) -> Result<Self, ServeError> {
        let mut roots = RootCertStore::empty();
        match ca {
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
            Some(path) => {
                let invalid = |what: String| SettingsError::Invalid {
                    place: "cluster.ca".to_owned(),
                    what: format!("{}: {what}", path.display()),
                };
                let certificates = CertificateDer::pem_file_iter(path)
                    .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                    .map_err(|error| invalid(error.to_string()))?;
                for certificate in certificates {
                    roots.add(certificate).map_err(|error| invalid(error.to_string()))?;
                }
            }
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| ServeError::Cluster { what: error.to_string() })?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut over_http2 = config.clone();
        over_http2.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self { http1: http1::Connections::new(config), http2: http2::Connections::new(over_http2) })
    }
}

impl ToLeader for Forward {
    fn send<'a>(&'a self, leader: &'a str, request: Request) -> LeaderResponse<'a> {
        Box::pin(async move {
            let uri: Uri = leader.parse().map_err(|_| not_sent(format!("{leader:?} is no URL")))?;
            match uri.scheme_str() {
                Some("http" | "https") => self.http1.exchange(leader, &uri, request).await,
                Some("grpc" | "grpcs") => self.http2.exchange(leader, &uri, request).await,
                _ => Err(not_sent(format!("{uri} has another protocol"))),
            }
        })
    }
}

fn not_sent(why: String) -> ToLeaderError {
    ToLeaderError::NotSent(why)
}

/// A TCP connection, or TLS over one.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Connects to a node within [`CONNECT_TIME`], by TLS if the last letter of the protocol says so.
async fn dial(uri: &Uri, tls: &TlsConnector) -> Result<TokioIo<Box<dyn Stream>>, ToLeaderError> {
    let dialled = tokio::time::timeout(CONNECT_TIME, connect(uri, tls)).await;
    let dialled = dialled.unwrap_or_else(|_| Err(format!("no connection within {CONNECT_TIME:?}")));
    dialled.map(TokioIo::new).map_err(not_sent)
}

async fn connect(uri: &Uri, tls: &TlsConnector) -> Result<Box<dyn Stream>, String> {
    let host = uri.host().ok_or("the URL has no host")?;
    let port = uri.port_u16().ok_or("the URL has no port")?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((bare, port)).await.map_err(|error| format!("{host}:{port}: {error}"))?;
    // A request is one write; without this its last packet would wait.
    let _ = stream.set_nodelay(true);
    if !is_secure(uri) {
        return Ok(Box::new(stream));
    }
    let name = ServerName::try_from(bare.to_owned()).map_err(|error| error.to_string())?;
    Ok(Box::new(tls.connect(name, stream).await.map_err(|error| error.to_string())?))
}

/// True for `https` and `grpcs`.
fn is_secure(uri: &Uri) -> bool {
    matches!(uri.scheme_str(), Some("https" | "grpcs"))
}

/// The request as it is sent, to `uri`: without the headers of this connection.
fn outgoing(uri: Uri, request: Request) -> Request {
    let (mut parts, body) = request.into_parts();
    remove_own(&mut parts.headers);
    parts.headers.insert(FORWARDED, HeaderValue::from_static("1"));
    let mut request = Request::new(body);
    *request.method_mut() = parts.method;
    *request.uri_mut() = uri;
    *request.headers_mut() = parts.headers;
    request
}

fn incoming(response: Response<Incoming>) -> Response {
    let (mut parts, body) = response.into_parts();
    remove_own(&mut parts.headers);
    Response::from_parts(parts, Body::new(body))
}

fn remove_own(headers: &mut HeaderMap) {
    for name in &OWN {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::http::header::HOST;
    use axum::routing::post;

    use super::*;

    async fn echo(headers: HeaderMap, body: String) -> String {
        let header = |name: &str| headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or("-");
        format!("{} {} {} {body}", header("host"), header("ropewalk-forwarded"), header("cookie"))
    }

    async fn node() -> (String, tokio::task::JoinHandle<()>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/echo", post(echo));
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        (format!("http://{address}"), task)
    }

    fn request(body: &str) -> Request {
        let builder = Request::builder().method("POST").uri("http://follower:1/echo?a=1");
        builder.header(COOKIE, "a=b").header(HOST, "follower:1").body(Body::from(body.to_owned())).unwrap()
    }

    async fn text(response: Response) -> String {
        let bytes = axum::body::to_bytes(response.into_body(), 1 << 10).await.unwrap();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn request_reaches_the_leader_under_its_name() {
        let (node, _task) = node().await;
        let forward = Forward::new(None).unwrap();
        let host = node.strip_prefix("http://").unwrap();
        for body in ["one", "two", "three"] {
            let response = forward.send(&node, request(body)).await.unwrap();
            assert_eq!(text(response).await, format!("{host} 1 - {body}"));
            while !forward.http1.idle.lock().unwrap()[&node]
                .iter()
                .any(hyper::client::conn::http1::SendRequest::is_ready)
            {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(forward.http1.idle.lock().unwrap()[&node].len(), 1, "a connection is used again");
    }

    #[tokio::test]
    async fn call_reaches_the_leader_over_one_connection() {
        let (node, task) = node().await;
        let forward = Forward::new(None).unwrap();
        let leader = node.replace("http://", "grpc://");
        for body in ["one", "two"] {
            let response = forward.send(&leader, request(body)).await.unwrap();
            assert_eq!(response.version(), axum::http::Version::HTTP_2);
            assert_eq!(text(response).await, format!("- 1 - {body}"));
        }
        task.abort();
        let _ = task.await;
        let error = forward.send("grpc://127.0.0.1:1", request("x")).await.unwrap_err();
        assert!(matches!(error, ToLeaderError::NotSent(_)), "{error}");
    }

    #[tokio::test]
    async fn leader_that_is_gone_has_received_nothing() {
        let (node, task) = node().await;
        let forward = Forward::new(None).unwrap();
        forward.send(&node, request("one")).await.unwrap();
        task.abort();
        let _ = task.await;
        let error = forward.send(&node, request("two")).await.unwrap_err();
        assert!(matches!(error, ToLeaderError::NotSent(_) | ToLeaderError::NoAnswer(_)), "{error}");
        let error = forward.send("http://127.0.0.1:1", request("x")).await.unwrap_err();
        assert!(matches!(error, ToLeaderError::NotSent(_)), "{error}");
        assert!(matches!(forward.send("ftp://a:1", request("x")).await, Err(ToLeaderError::NotSent(_))));
    }
}
