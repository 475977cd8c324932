//! Where the stream is, and how to get access to it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::error::NatsError;

/// Longest name of a stream.
const STREAM_NAME_MAX: usize = 64;

/// Servers that start elect leaders for several seconds.
const OPEN_TIME: Duration = Duration::from_secs(15);

/// Name and password of a user of NATS.
#[derive(Clone, PartialEq, Eq)]
pub struct NatsUser {
    /// Name.
    pub name: String,
    /// Password.
    pub password: String,
}

impl fmt::Debug for NatsUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsUser").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Where the stream is, and how to get access to it. Parsed from `nats://[USER:PASSWORD@]HOST[:PORT],.../STREAM`, or
/// `tls://` for connections that must use TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatsSettings {
    /// Servers, each as `host` or `host:port`. The client also uses servers of the cluster that are not listed.
    pub servers: Vec<String>,
    /// Name of the stream.
    pub stream: String,
    /// Refuse connections without TLS.
    pub tls: bool,
    /// File with the certificates (PEM) to trust instead of those of the system.
    pub ca_file: Option<PathBuf>,
    /// The user, when the servers require one.
    pub user: Option<NatsUser>,
    /// Accept a stream with fewer than three replicas. Loss of the disk of one server then loses entries, and loss of
    /// one server stops all writes.
    pub allow_one_server: bool,
    /// Replicas of a stream that is created; by default three, or one when `allow_one_server` is set and there are
    /// fewer than three servers.
    pub replicas: Option<u64>,
    /// How long opening tries while the servers do not answer: 15 s by default.
    pub open_time: Duration,
}

impl FromStr for NatsSettings {
    type Err = NatsError;

    fn from_str(url: &str) -> Result<Self, NatsError> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("the URL has no scheme"))?;
        let tls = match scheme {
            "nats" => false,
            "tls" => true,
            // Not the whole URL, which may have a password.
            other => return Err(wrong(format!("scheme {other:?} is neither nats nor tls"))),
        };
        let (user, rest) = match rest.rsplit_once('@') {
            Some((user, rest)) => (Some(parse_user(user)?), rest),
            None => (None, rest),
        };
        let (hosts, stream) = rest.split_once('/').ok_or_else(|| wrong("the URL names no stream"))?;
        let settings = Self {
            servers: hosts.split(',').map(str::to_owned).collect(),
            stream: stream.to_owned(),
            tls,
            ca_file: None,
            user,
            allow_one_server: false,
            replicas: None,
            open_time: OPEN_TIME,
        };
        settings.check()?;
        Ok(settings)
    }
}

impl NatsSettings {
    /// Rejects names that NATS or a URL could read otherwise.
    pub(crate) fn check(&self) -> Result<(), NatsError> {
        let name = &self.stream;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || name.len() > STREAM_NAME_MAX || !name.chars().all(is_plain) {
            return Err(wrong(format!(
                "stream {name:?}: a name has 1 to {STREAM_NAME_MAX} letters, digits, '-' and '_'"
            )));
        }
        self.addresses().map(drop)
    }

    /// The servers as the client takes them.
    pub(crate) fn addresses(&self) -> Result<Vec<async_nats::ServerAddr>, NatsError> {
        let scheme = if self.tls { "tls" } else { "nats" };
        let address = |server: &String| match format!("{scheme}://{server}").parse() {
            Ok(address) if is_host_and_port(server) => Ok(address),
            _ => Err(wrong(format!("server {server:?} is not host or host:port"))),
        };
        if self.servers.is_empty() {
            return Err(wrong("no server"));
        }
        self.servers.iter().map(address).collect()
    }

    /// The servers as one text, for errors.
    pub(crate) fn servers_text(&self) -> String {
        self.servers.join(",")
    }
}

fn wrong(what: impl Into<String>) -> NatsError {
    NatsError::Url { what: what.into() }
}

/// False for text that a URL would read as a user, a path or a query.
fn is_host_and_port(server: &str) -> bool {
    let is_plain = |c: char| c.is_alphanumeric() || ".-_:[]".contains(c);
    !server.is_empty() && !server.starts_with(':') && server.chars().all(is_plain)
}

fn parse_user(text: &str) -> Result<NatsUser, NatsError> {
    let (name, password) = text.split_once(':').ok_or_else(|| wrong("the user has no password"))?;
    match (percent_decoded(name), percent_decoded(password)) {
        (Some(name), Some(password)) if !name.is_empty() => Ok(NatsUser { name, password }),
        _ => Err(wrong("user and password are not percent-encoded UTF-8")),
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((plain, after)) = rest.split_once('%') {
        bytes.extend_from_slice(plain.as_bytes());
        bytes.extend(ropewalk_base::from_hex(after.get(..2)?)?);
        rest = after.get(2..)?;
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<NatsSettings, NatsError> {
        url.parse()
    }

    #[test]
    fn url_has_servers_user_and_stream() {
        let settings = parse("tls://ann:p%40s%3As@a.example:4222,10.0.0.2,[::1]:4223/shop_log").unwrap();
        assert_eq!(settings.servers, ["a.example:4222", "10.0.0.2", "[::1]:4223"]);
        assert_eq!(settings.user, Some(NatsUser { name: "ann".into(), password: "p@s:s".into() }));
        assert_eq!((settings.stream.as_str(), settings.tls), ("shop_log", true));
        let addresses = settings.addresses().unwrap();
        assert_eq!(addresses[1].port(), 4222);
        assert!(addresses.iter().all(async_nats::ServerAddr::tls_required));
        assert!(!parse("nats://h/S").unwrap().tls);
    }

    #[test]
    fn wrong_url_is_rejected_with_its_reason() {
        for (url, reason) in [
            ("h/S", "no scheme"),
            ("http://h/S", "\"http\" is neither"),
            ("nats://h", "names no stream"),
            ("nats://h/", "stream \"\""),
            ("nats://h/a.b", "stream \"a.b\""),
            ("nats://h/S?x=1", "stream \"S?x=1\""),
            ("nats:///S", "server \"\""),
            ("nats://h,/S", "server \"\""),
            ("nats://h:port/S", "server \"h:port\""),
            ("nats://ann@h/S", "no password"),
            ("nats://ann:%zz@h/S", "percent-encoded"),
        ] {
            let error = parse(url).unwrap_err().to_string();
            assert!(error.contains(reason), "{url}: {error}");
        }
    }

    #[test]
    fn password_is_not_in_debug_output() {
        let text = format!("{:?}", parse("nats://ann:secret@h/S").unwrap());
        assert!(text.contains("ann") && !text.contains("secret"), "{text}");
    }
}
