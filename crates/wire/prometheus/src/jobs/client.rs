//! The HTTP that the server speaks as a client: to targets, discovery and Alertmanager. One request, one connection, all of it
//! within one time limit and one limit of bytes.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_ENCODING, HOST};
use axum::http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::body::{Encoding, inflate};

/// What came back.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) content_type: String,
    pub(crate) body: Vec<u8>,
}

/// What is asked.
pub(crate) struct Ask<'a> {
    pub(crate) method: Method,
    pub(crate) url: &'a str,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Bytes,
    /// Bytes of the answer, packed and unpacked.
    pub(crate) bytes_max: usize,
    pub(crate) time: Duration,
}

/// Asks, whatever the status of the answer.
///
/// # Errors
/// In words: no connection, no answer in time, an answer that is too long.
pub(crate) async fn ask(ask: Ask<'_>) -> Result<Answer, String> {
    let time = ask.time;
    tokio::time::timeout(time, answer(ask)).await.map_err(|_| format!("no answer within {time:?}"))?
}

async fn answer(ask: Ask<'_>) -> Result<Answer, String> {
    let uri: Uri = ask.url.parse().map_err(|error| format!("{:?} is no URL: {error}", ask.url))?;
    let host = uri.host().ok_or_else(|| format!("{:?} names no host", ask.url))?;
    let tls = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return Err(format!("{:?} is neither http nor https", ask.url)),
    };
    let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let authority = uri.authority().map_or(host, |authority| authority.as_str());
    let mut request = Request::builder().method(ask.method).uri(path).header(HOST, authority);
    for (name, value) in ask.headers {
        request = request.header(name, value);
    }
    let request = request.body(Body::from(ask.body)).map_err(|error| error.to_string())?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((bare, port)).await.map_err(|error| format!("{host}:{port}: {error}"))?;
    let response = if tls {
        let name = ServerName::try_from(bare.to_owned()).map_err(|error| error.to_string())?;
        let connector = TlsConnector::from(tls_config()?);
        let stream = connector.connect(name, stream).await.map_err(|error| error.to_string())?;
        send(stream, request).await?
    } else {
        send(stream, request).await?
    };
    read(response, ask.bytes_max).await
}

async fn send<S>(stream: S, request: Request<Body>) -> Result<Response<Incoming>, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
    // Ends with the answer, or with the sender when nobody waits any longer.
    tokio::spawn(connection);
    sender.send_request(request).await.map_err(|error| error.to_string())
}

async fn read(response: Response<Incoming>, bytes_max: usize) -> Result<Answer, String> {
    let (head, body) = response.into_parts();
    let packed = Limited::new(body, bytes_max).collect().await.map_err(|error| error.to_string())?.to_bytes();
    let text = |value: Option<&HeaderValue>| {
        value.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    };
    let encoding = Encoding::of(&head.headers)
        .ok_or_else(|| format!("Content-Encoding {:?}", text(head.headers.get(CONTENT_ENCODING))))?;
    let body = inflate(encoding, &packed, bytes_max).map_err(|error| error.message)?.to_vec();
    Ok(Answer { status: head.status, content_type: text(head.headers.get("content-type")), body })
}

/// Trusts whom the system trusts.
fn tls_config() -> Result<Arc<ClientConfig>, String> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(config.clone());
    }
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(CONFIG.get_or_init(|| Arc::new(config)).clone())
}
