//! The server's HTTP client: for targets, discovery and Alertmanager. One request, one connection, one time
//! limit and one byte limit, which include redirections.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST, LOCATION};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use ropewalk_http_kit::encoding::{Encoding, UnknownEncoding};
use ropewalk_http_kit::media::MediaType;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// A response.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) content_type: String,
    pub(crate) body: Vec<u8>,
}

/// A request.
pub(crate) struct Ask<'a> {
    pub(crate) method: Method,
    pub(crate) url: &'a str,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Bytes,
    /// Limit of the response's bytes, compressed and uncompressed.
    pub(crate) bytes_max: usize,
    pub(crate) time: Duration,
    /// Follows redirections. The credentials are sent to the first host only.
    pub(crate) follow: bool,
}

/// As in Go, and so in Prometheus.
const REDIRECTIONS_MAX: usize = 10;

/// Sends a request; any status is a success.
///
/// # Errors
/// As text: no connection, no response in time, a response that is too long.
pub(crate) async fn ask(ask: Ask<'_>) -> Result<Answer, String> {
    let time = ask.time;
    tokio::time::timeout(time, follow(&ask)).await.map_err(|_| format!("no answer within {time:?}"))?
}

async fn follow(ask: &Ask<'_>) -> Result<Answer, String> {
    let mut uri: Uri = ask.url.parse().map_err(|error| format!("{:?} is no URL: {error}", ask.url))?;
    let first = uri.authority().cloned();
    for _ in 0..=REDIRECTIONS_MAX {
        let response = answer(ask, &uri, uri.authority() == first.as_ref()).await?;
        let sent = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
        let place = response.headers().get(LOCATION).and_then(|place| place.to_str().ok());
        match place.filter(|_| sent && ask.follow) {
            Some(place) => uri = joined(&uri, place)?,
            None => return read(response, ask.bytes_max).await,
        }
    }
    Err(format!("stopped after {REDIRECTIONS_MAX} redirects"))
}

/// The target of a redirection from `uri` to `place`.
fn joined(uri: &Uri, place: &str) -> Result<Uri, String> {
    let place = place.split('#').next().unwrap_or_default();
    let (scheme, host) = (uri.scheme_str().unwrap_or("http"), uri.authority().map_or("", |a| a.as_str()));
    let up = uri.path().rsplit_once('/').map_or("", |(up, _)| up);
    let whole = match place {
        place if place.starts_with("http://") || place.starts_with("https://") => place.to_owned(),
        place if place.starts_with("//") => format!("{scheme}:{place}"),
        place if place.starts_with('/') => format!("{scheme}://{host}{place}"),
        place if place.starts_with('?') => format!("{scheme}://{host}{}{place}", uri.path()),
        place => format!("{scheme}://{host}{up}/{place}"),
    };
    whole.parse().map_err(|error| format!("sent to {place:?}: {error}"))
}

async fn answer(ask: &Ask<'_>, uri: &Uri, is_first_host: bool) -> Result<Response<Incoming>, String> {
    let host = uri.host().ok_or_else(|| format!("{uri} names no host"))?;
    let tls = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return Err(format!("{uri} is neither http nor https")),
    };
    let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let authority = uri.authority().map_or(host, |authority| authority.as_str());
    let mut request = Request::builder().method(ask.method.clone()).uri(path).header(HOST, authority);
    let told = |name: &str| is_first_host || !name.eq_ignore_ascii_case(AUTHORIZATION.as_str());
    for (name, value) in ask.headers.iter().filter(|(name, _)| told(name)) {
        request = request.header(*name, value);
    }
    let request = request.body(Full::new(ask.body.clone())).map_err(|error| error.to_string())?;
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
    Ok(response)
}

async fn send<S>(stream: S, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
    // Ends with the response, or when the caller drops the sender.
    tokio::spawn(connection);
    sender.send_request(request).await.map_err(|error| error.to_string())
}

async fn read(response: Response<Incoming>, bytes_max: usize) -> Result<Answer, String> {
    let (head, body) = response.into_parts();
    let packed = Limited::new(body, bytes_max).collect().await.map_err(|error| error.to_string())?.to_bytes();
    let encoding = Encoding::of(&head.headers, &Encoding::TEXTS)
        .map_err(|UnknownEncoding(text)| format!("Content-Encoding {text:?}"))?;
    let body = encoding.inflate(&packed, bytes_max).map_err(|error| error.to_string())?;
    Ok(Answer { status: head.status, content_type: MediaType::of(&head.headers).0.to_owned(), body })
}

/// Trusts the root certificates of the system.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirect_resolves_against_request_url() {
        let from: Uri = "http://a:1/x/metrics?q=1".parse().unwrap();
        for (place, whole) in [
            ("/m", "http://a:1/m"),
            ("m?z=2#top", "http://a:1/x/m?z=2"),
            ("?z=2", "http://a:1/x/metrics?z=2"),
            ("//b/m", "http://b/m"),
            ("https://b:2/m", "https://b:2/m"),
        ] {
            assert_eq!(joined(&from, place).unwrap().to_string(), whole);
        }
        assert!(joined(&from, "http://[").is_err());
    }
}
