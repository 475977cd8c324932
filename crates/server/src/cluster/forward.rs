//! HTTP requests to other nodes: writes that a follower sends to its leader, and its reports.
//!
//! ```text
//! request ─▶ an idle connection, or a new one ─▶ HTTP/1.1, TLS for https ─▶ response; the connection is idle again after it
//! ```
//! A request is never sent twice: it is repeated only while no byte of it has left this process.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{
    CONNECTION, COOKIE, HOST, HeaderMap, ORIGIN, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderName, HeaderValue, Uri, Version};
use axum::response::Response;
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use ropewalk_http::{FORWARDED, LeaderResponse, ToLeader, ToLeaderError};
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
/// Most idle connections to one node.
const IDLE_MAX: usize = 64;
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
    tls: TlsConnector,
    idle: Mutex<HashMap<String, Vec<SendRequest<Body>>>>,
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
        Ok(Self { tls: TlsConnector::from(Arc::new(config)), idle: Mutex::default() })
    }

    fn idle(&self, node: &str) -> Option<SendRequest<Body>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let senders = idle.get_mut(node)?;
        senders.retain(|sender| !sender.is_closed());
        let place = senders.iter().position(SendRequest::is_ready)?;
        Some(senders.swap_remove(place))
    }

    /// Gives a connection back; it is used again once its response is complete.
    fn give_back(&self, node: &str, sender: SendRequest<Body>) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let senders = idle.entry(node.to_owned()).or_default();
        if senders.len() < IDLE_MAX {
            senders.push(sender);
        }
    }

    async fn exchange(&self, node: &str, request: Request) -> Result<Response, ToLeaderError> {
        let uri: Uri = node.parse().map_err(|_| not_sent(format!("{node:?} is no URL")))?;
        let mut request = outgoing(&uri, request)?;
        while let Some(mut sender) = self.idle(node) {
            match sender.try_send_request(request).await {
                Ok(response) => {
                    self.give_back(node, sender);
                    return Ok(incoming(response));
                }
                // The node had closed the connection.
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(ToLeaderError::NoAnswer(error.into_error().to_string())),
                },
            }
        }
        let connected = tokio::time::timeout(CONNECT_TIME, self.connect(&uri)).await;
        let connected = connected.unwrap_or_else(|_| Err(format!("no connection within {CONNECT_TIME:?}")));
        let mut sender = connected.map_err(not_sent)?;
        match sender.try_send_request(request).await {
            Ok(response) => {
                self.give_back(node, sender);
                Ok(incoming(response))
            }
            Err(mut error) => match error.take_message() {
                Some(_) => Err(not_sent(error.into_error().to_string())),
                None => Err(ToLeaderError::NoAnswer(error.into_error().to_string())),
            },
        }
    }

    async fn connect(&self, uri: &Uri) -> Result<SendRequest<Body>, String> {
        let host = uri.host().ok_or("the URL has no host")?;
        let port = uri.port_u16().ok_or("the URL has no port")?;
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let stream =
            TcpStream::connect((bare, port)).await.map_err(|error| format!("{host}:{port}: {error}"))?;
        // A request is one write; without this its last packet would wait.
        let _ = stream.set_nodelay(true);
        match uri.scheme_str() {
            Some("http") => opened(stream).await,
            Some("https") => {
                let name = ServerName::try_from(bare.to_owned()).map_err(|error| error.to_string())?;
                opened(self.tls.connect(name, stream).await.map_err(|error| error.to_string())?).await
            }
            _ => Err(format!("{uri} is neither http nor https")),
        }
    }
}

impl ToLeader for Forward {
    fn send<'a>(&'a self, leader: &'a str, request: Request) -> LeaderResponse<'a> {
        Box::pin(self.exchange(leader, request))
    }
}

fn not_sent(why: String) -> ToLeaderError {
    ToLeaderError::NotSent(why)
}

async fn opened<S>(stream: S) -> Result<SendRequest<Body>, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    tokio::spawn(async move {
        // Its end is seen by the sender.
        let _ = connection.await;
    });
    Ok(sender)
}

/// The request as it is sent: with the name of the other node, and without the headers of this connection.
fn outgoing(node: &Uri, request: Request) -> Result<Request, ToLeaderError> {
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    let authority = node.authority().map_or("", |authority| authority.as_str());
    let host = HeaderValue::from_str(authority).map_err(|error| not_sent(error.to_string()))?;
    parts.uri = Uri::from(path);
    parts.version = Version::HTTP_11;
    remove_own(&mut parts.headers);
    parts.headers.insert(HOST, host);
    parts.headers.insert(FORWARDED, HeaderValue::from_static("1"));
    let mut request = Request::new(body);
    *request.method_mut() = parts.method;
    *request.uri_mut() = parts.uri;
    *request.headers_mut() = parts.headers;
    Ok(request)
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
            while !forward.idle.lock().unwrap()[&node].iter().any(SendRequest::is_ready) {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(forward.idle.lock().unwrap()[&node].len(), 1, "a connection is used again");
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
