//! The address of a server, as typed in `--at`, and connections to it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::output::failure::{Exit, Failure, Result};

/// `http://` or `https://`, an optional user, a host and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) tls: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
}

impl Url {
    /// True if the text is a URL and not a directory.
    pub(crate) fn is_meant(text: &str) -> bool {
        text.contains("://")
    }

    /// Reads `http[s]://[USER[:PASSWORD]@]HOST[:PORT][/]`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").ok_or("has no ://")?;
        let (tls, default_port) = match scheme {
            "http" => (false, 4780),
            "https" => (true, 4780),
            other => return Err(format!("{other:?} is neither http nor https")),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '?', '#']) {
            return Err("names more than a server: nothing may follow the port".to_owned());
        }
        let (login, place) = match rest.rsplit_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, rest),
        };
        let (user, password) =
            match login.map(|login| login.split_once(':').map_or((login, None), |(u, p)| (u, Some(p)))) {
                Some((user, password)) => (Some(decode(user)?), password.map(decode).transpose()?),
                None => (None, None),
            };
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => {
                (host, port.parse().map_err(|_| format!("{port:?} is not a port"))?)
            }
            _ => (place, default_port),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() {
            return Err("names no host".to_owned());
        }
        Ok(Self { tls, host: host.to_owned(), port, user, password })
    }

    /// The address for messages, without secrets.
    pub(crate) fn shown(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}", self.authority())
    }

    fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

/// Decodes percent escapes such as `%40`.
fn decode(text: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
        bytes.push(match byte {
            b'%' => match (digit(), digit()) {
                (Some(high), Some(low)) => (high * 16 + low) as u8,
                _ => return Err("has a % without two digits after it".to_owned()),
            },
            other => other,
        });
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())
}

/// Credentials, and the certificates to trust.
#[derive(Debug, Clone, Default)]
pub(crate) struct Secrets {
    pub(crate) token: Option<String>,
    /// A file with certificates to trust, instead of the system's.
    pub(crate) ca: Option<PathBuf>,
}

/// A server.
#[derive(Debug, Clone)]
pub(crate) enum Endpoint {
    Url(Url),
    /// The local socket in a database directory.
    Local(PathBuf),
}

/// Either kind of stream.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl Endpoint {
    /// The address for messages.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Url(url) => url.shown(),
            Self::Local(dir) => dir.join(ropewalk_server::SOCKET_NAME).display().to_string(),
        }
    }

    /// The header `Host`.
    pub(crate) fn host(&self) -> String {
        match self {
            Self::Url(url) => url.authority(),
            Self::Local(_) => "localhost".to_owned(),
        }
    }

    /// The header `Authorization`. The local socket needs none.
    pub(crate) fn authorization(&self, secrets: &Secrets) -> Result<Option<String>> {
        let Self::Url(url) = self else { return Ok(None) };
        let Some(user) = &url.user else {
            return Ok(secrets.token.as_ref().map(|token| format!("Bearer {token}")));
        };
        if secrets.token.is_some() {
            return Err(Failure::invalid(
                "--at names a user, and there is a token, too; use only one of them",
            ));
        }
        let password = match &url.password {
            Some(password) => password.clone(),
            None => crate::output::password::existing_password(user)?,
        };
        Ok(Some(format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))))
    }

    /// Opens a connection.
    pub(crate) async fn connect(&self, secrets: &Secrets) -> Result<Box<dyn Stream>> {
        let failed = |error: std::io::Error| self.unreachable(&error);
        match self {
            Self::Local(dir) => Ok(Box::new(connect_local(dir).map_err(failed)?)),
            Self::Url(url) => {
                let stream = TcpStream::connect((url.host.as_str(), url.port)).await.map_err(failed)?;
                let _ = stream.set_nodelay(true); // slower without, never wrong
                if !url.tls {
                    return Ok(Box::new(stream));
                }
                let name = ServerName::try_from(url.host.clone())
                    .map_err(|error| Failure::invalid(format!("{}: {error}", url.shown())))?;
                let connector = TlsConnector::from(Arc::new(client_config(secrets.ca.as_deref())?));
                Ok(Box::new(connector.connect(name, stream).await.map_err(failed)?))
            }
        }
    }

    pub(crate) fn unreachable(&self, error: &dyn std::fmt::Display) -> Failure {
        let todo = match self {
            Self::Url(url) if url.tls => "Is it running there? --ca FILE trusts a certificate of your own",
            _ => "Is it running there? `ropewalk serve` starts one",
        };
        Failure::new(Exit::Io, format!("{}: {error}", self.shown()), todo)
    }
}

fn connect_local(dir: &Path) -> std::io::Result<UnixStream> {
    let stream = ropewalk_server::connect_local(dir)?;
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// True when a server listens in the directory.
pub(crate) fn is_served(dir: &Path) -> bool {
    ropewalk_server::connect_local(dir).is_ok()
}

/// TLS 1.3 with the system certificates, or those of one file.
fn client_config(ca: Option<&Path>) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let certificates = match ca {
        Some(path) => {
            let wrong = |error| Failure::invalid(format!("certificates in {}: {error}", path.display()));
            let read = CertificateDer::pem_file_iter(path).map_err(wrong)?;
            read.collect::<Result<Vec<_>, _>>().map_err(wrong)?
        }
        // Unreadable certificates of the system are skipped; a handshake that needs one fails.
        None => rustls_native_certs::load_native_certs().certs,
    };
    roots.add_parsable_certificates(certificates);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| Failure::new(Exit::Internal, error.to_string(), ""))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let url = Url::parse("https://ann:p%40ss@db.example:1234/").unwrap();
        assert_eq!((url.tls, url.host.as_str(), url.port), (true, "db.example", 1234));
        assert_eq!((url.user.as_deref(), url.password.as_deref()), (Some("ann"), Some("p@ss")));
        assert_eq!(url.shown(), "https://db.example:1234");
        let url = Url::parse("http://[::1]").unwrap();
        assert_eq!((url.host.as_str(), url.port, url.shown().as_str()), ("::1", 4780, "http://[::1]:4780"));
        assert_eq!(Url::parse("http://bob@h").unwrap().user.as_deref(), Some("bob"));
        for wrong in
            ["ftp://h", "http://", "http://h:x", "http://h/path", "http://h?x", "http://%zz@h", "h:1"]
        {
            assert!(Url::parse(wrong).is_err(), "{wrong}");
        }
    }
}
