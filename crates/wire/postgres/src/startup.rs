//! Opening of a connection: encryption, then the startup message.
//!
//! ```text
//! SSLRequest ─▶ S, TLS ─┐      GSSENCRequest ─▶ N       CancelRequest ─▶ cancels another connection's statement; no reply
//!                       ├─▶ StartupMessage: version, user, database, settings
//! TLS, ALPN postgresql ─┤
//! (none) ───────────────┘      where TLS is configured, it is required
//! ```
//! Exactly these bytes are read, so that nothing sent in clear can be taken for part of the encrypted stream.

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio_rustls::TlsAcceptor;

use crate::channel::{Ended, Rewound, Stream};
use crate::failure::{INVALID_AUTHORIZATION, PROTOCOL_VIOLATION, Severity};
use crate::frame::{Fields, Out};
use ropewalk_sql::{SqlError, state};

const SSL: i32 = 80_877_103;
const GSS: i32 = 80_877_104;
const CANCEL: i32 = 80_877_102;
/// First byte of a client that begins with TLS: the type of a record of a handshake. The length of a message has a
/// smaller one.
const HANDSHAKE: u8 = 22;
/// Protocol that a client which begins with TLS has to request, so that no other protocol is taken for PostgreSQL's.
const ALPN: &[u8] = b"postgresql";
/// Version 3, in the upper half.
const MAJOR: i32 = 3;
/// PostgreSQL's bound on the first message.
const STARTUP_BYTES_MAX: usize = 10_000;

/// Kind of an opened connection.
pub(crate) enum Opened<S> {
    /// A request to cancel the statement of this process, with its secret. It gets no reply.
    Cancel(Stream<S>, i32, i32),
    /// A session.
    Session(Stream<S>, Startup),
}

/// The first message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Startup {
    pub(crate) user: String,
    pub(crate) database: Option<String>,
    /// All other settings.
    pub(crate) settings: Vec<(String, String)>,
    /// Requests beyond version 3.0: the minor version, and protocol options.
    pub(crate) beyond: Option<(i32, Vec<String>)>,
}

/// Opens a connection. `None`: the client disconnected, or was rejected.
///
/// # Errors
/// The stream's; an invalid first message.
pub(crate) async fn open<S>(stream: S, tls: Option<&TlsAcceptor>) -> Result<Opened<S>, Ended>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let mut stream = Stream::Plain(stream);
    // Each kind of encryption may be requested once.
    for _ in 0..3 {
        let mut length = read_length(&mut stream).await?;
        if let Some(tls) = tls
            && length.first() == Some(&HANDSHAKE)
        {
            stream = begin_with_tls(stream, length, tls).await?;
            length = read_length(&mut stream).await?;
        }
        let body = first(&mut stream, length).await?;
        let mut fields = Fields(&body);
        let code = fields.i32().unwrap_or_default();
        match code {
            SSL | GSS => {
                stream = match (stream, tls) {
                    (Stream::Plain(mut plain), Some(tls)) if code == SSL => {
                        plain.write_all(b"S").await?;
                        plain.flush().await?;
                        // Boxed: a handshake needs memory that a connection without TLS does not.
                        Stream::Tls(Box::new(Box::pin(tls.accept(Rewound::new(plain, &[]))).await?))
                    }
                    (mut other, _) => {
                        other.write_all(b"N").await?;
                        other.flush().await?;
                        other
                    }
                };
            }
            CANCEL => {
                let key = fields.i32().and_then(|process| Ok((process, fields.i32()?)));
                let (process, secret) = key.map_err(|error| Ended::Said(error.to_string()))?;
                return Ok(Opened::Cancel(stream, process, secret));
            }
            _ => {
                if tls.is_some() && matches!(stream, Stream::Plain(_)) {
                    let error = SqlError::new(INVALID_AUTHORIZATION, "this port requires TLS")
                        .hint("connect with sslmode=require, or verify-full and the server's certificate");
                    return Err(refuse(&mut stream, &error).await);
                }
                match startup(code, fields) {
                    Ok(startup) => return Ok(Opened::Session(stream, startup)),
                    Err(error) => return Err(refuse(&mut stream, &error).await),
                }
            }
        }
    }
    Err(Ended::Said("encryption was requested too often".to_owned()))
}

/// Encrypts a stream whose client has begun with TLS; `begin`: the bytes that were read.
async fn begin_with_tls<S>(stream: Stream<S>, begin: [u8; 4], tls: &TlsAcceptor) -> Result<Stream<S>, Ended>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let Stream::Plain(plain) = stream else { return Err(Ended::Length(announced(begin))) };
    let stream = Box::pin(tls.accept(Rewound::new(plain, &begin))).await?;
    if stream.get_ref().1.alpn_protocol() != Some(ALPN) {
        let what = "a client that begins with TLS has to request the protocol postgresql (ALPN)";
        return Err(Ended::Said(what.to_owned()));
    }
    Ok(Stream::Tls(Box::new(stream)))
}

async fn read_length<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut Stream<S>) -> Result<[u8; 4], Ended> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).await?;
    Ok(length)
}

fn announced(length: [u8; 4]) -> i64 {
    i64::from(i32::from_be_bytes(length))
}

/// Reads a message without a tag.
async fn first<S>(stream: &mut Stream<S>, length: [u8; 4]) -> Result<Vec<u8>, Ended>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let announced = announced(length);
    let body = usize::try_from(announced - 4).ok().filter(|body| (4..STARTUP_BYTES_MAX).contains(body));
    let mut bytes = vec![0; body.ok_or(Ended::Length(announced))?];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

fn startup(code: i32, mut fields: Fields<'_>) -> Result<Startup, SqlError> {
    let violation = |what: &str| SqlError::new(PROTOCOL_VIOLATION, what);
    let (major, minor) = (code >> 16, code & 0xffff);
    if major != MAJOR {
        let message = format!("unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.0");
        return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message));
    }
    let mut startup = Startup::default();
    let mut beyond = Vec::new();
    loop {
        let name = fields.text().map_err(crate::failure::malformed)?;
        if name.is_empty() {
            break;
        }
        let value = fields.text().map_err(crate::failure::malformed)?.to_owned();
        match name {
            "user" => startup.user = value,
            "database" => startup.database = Some(value),
            "replication" if matches!(value.as_str(), "false" | "off" | "no" | "0") => {}
            "replication" => {
                return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, "replication is not supported")
                    .hint("follow changes over HTTP: GET /v1/changes"));
            }
            "options" => startup.settings.extend(options(&value)?),
            name if name.starts_with("_pq_.") => beyond.push(name.to_owned()),
            name => startup.settings.push((name.to_owned(), value)),
        }
    }
    fields.end().map_err(|_| violation("invalid startup packet layout: expected terminator as last byte"))?;
    if startup.user.is_empty() {
        let message = "no PostgreSQL user name specified in startup packet";
        return Err(SqlError::new(INVALID_AUTHORIZATION, message));
    }
    startup.beyond = (minor > 0 || !beyond.is_empty()).then_some((minor, beyond));
    Ok(startup)
}

/// `-c name=value` and `--name=value`, as on a server's command line; a backslash escapes a blank.
fn options(text: &str) -> Result<Vec<(String, String)>, SqlError> {
    let mut words = vec![String::new()];
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, words.last_mut()) {
            ('\\', Some(word)) => word.extend(chars.next()),
            (c, Some(word)) if !c.is_whitespace() => word.push(c),
            _ => words.push(String::new()),
        }
    }
    let mut settings = Vec::new();
    let mut words = words.iter().filter(|word| !word.is_empty());
    while let Some(word) = words.next() {
        let setting = match word.strip_prefix("-c") {
            Some("") => words.next().map(String::as_str),
            Some(rest) => Some(rest),
            None => word.strip_prefix("--"),
        };
        let Some((name, value)) = setting.and_then(|setting| setting.split_once('=')) else {
            let message = format!("invalid command-line argument for server process: {word}");
            return Err(SqlError::new(state::SYNTAX_ERROR, message).hint("use -c name=value"));
        };
        settings.push((name.replace('-', "_"), value.to_owned()));
    }
    Ok(settings)
}

/// Sends the error and ends the connection.
async fn refuse<S>(stream: &mut Stream<S>, error: &SqlError) -> Ended
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut out = Out::default();
    out.failure(Severity::Fatal, error);
    // The client may be gone; the error does not matter.
    let _ = stream.write_all(out.bytes()).await;
    let _ = stream.shutdown().await;
    Ended::Said(error.message.clone())
}

/// Rejects a client because of the connection limit, with an error that it can read.
pub(crate) async fn turn_away<S>(stream: S, tls: Option<&TlsAcceptor>, error: &SqlError) -> Result<(), Ended>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    match open(stream, tls).await? {
        Opened::Cancel(..) => {}
        Opened::Session(mut stream, _) => drop(refuse(&mut stream, error).await),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(code: i32, body: &[u8]) -> Result<Startup, SqlError> {
        startup(code, Fields(body))
    }

    #[test]
    fn startup_message_is_parsed() {
        let read = |body: &str| read(3 << 16, body.as_bytes());
        let found =
            read("user\0ann\0database\0app\0application_name\0x\0options\0-c a=1 --b-c=2 -cd=e\\ f\0\0")
                .unwrap();
        assert_eq!((found.user.as_str(), found.database.as_deref()), ("ann", Some("app")));
        let settings: Vec<_> = found.settings.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(settings, [("application_name", "x"), ("a", "1"), ("b_c", "2"), ("d", "e f")]);
        assert_eq!(found.beyond, None);
        for (body, code) in [
            ("user\0\0\0", "28000"),
            ("\0", "28000"),
            ("user\0ann\0", "08P01"),
            ("user\0ann\0\0rest", "08P01"),
            ("user\0ann\0replication\0true\0\0", "0A000"),
            ("user\0ann\0options\0-x\0\0", "42601"),
        ] {
            assert_eq!(read(body).unwrap_err().state.0, code, "{body}");
        }
    }

    #[test]
    fn newer_minor_versions_are_negotiated_down_and_other_protocols_rejected() {
        let newer = read((3 << 16) + 2, b"user\0ann\0_pq_.x\0on\0\0").unwrap();
        assert_eq!(newer.beyond, Some((2, vec!["_pq_.x".to_owned()])));
        assert_eq!(read(2 << 16, b"").unwrap_err().state.0, "0A000");
    }
}
