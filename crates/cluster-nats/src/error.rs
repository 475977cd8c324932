//! Reasons why a shared log on NATS cannot be opened or created.

use std::path::PathBuf;

/// Why a shared log on NATS cannot be opened or created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NatsError {
    /// The URL or a setting has a value that cannot be used.
    #[error("{what}; a shared log on NATS has the URL nats://[USER:PASSWORD@]HOST[:PORT],.../STREAM")]
    Url {
        /// The value and the rule.
        what: String,
    },
    /// A file that the settings name cannot be used.
    #[error("{}: {what}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        what: String,
    },
    /// No server answers at the moment, or the servers have no majority. The call may be repeated.
    #[error("NATS at {servers} does not answer: {cause}")]
    Unreachable {
        /// The addresses.
        servers: String,
        /// The last failure.
        cause: String,
    },
    /// The servers refuse the user, the password or a right.
    #[error("NATS at {servers} refuses access: {cause}")]
    Denied {
        /// The addresses.
        servers: String,
        /// The server's words.
        cause: String,
    },
    /// The certificate of a server is not trusted, or the server speaks no TLS.
    #[error("TLS with NATS at {servers} failed: {cause}")]
    Tls {
        /// The addresses.
        servers: String,
        /// The reason.
        cause: String,
    },
    /// The server has known defects that lose entries.
    #[error("NATS server {server:?} has version {found}; a shared log needs {needed} or newer")]
    Version {
        /// Name of the server.
        server: String,
        /// Its version.
        found: String,
        /// The oldest version that is accepted.
        needed: &'static str,
    },
    /// There is no such stream.
    #[error("stream {stream} does not exist; a new cluster creates it")]
    Missing {
        /// Name of the stream.
        stream: String,
    },
    /// A stream of that name exists.
    #[error("stream {stream} exists; it is not replaced")]
    Exists {
        /// Name of the stream.
        stream: String,
    },
    /// A setting of the stream can lose entries.
    #[error("stream {stream} can lose entries: {setting} is {found}; {remedy}")]
    Setting {
        /// Name of the stream.
        stream: String,
        /// The setting, as NATS names it.
        setting: &'static str,
        /// Its value.
        found: String,
        /// The change that makes the stream usable.
        remedy: String,
    },
    /// The operating system gives no thread or no random numbers.
    #[error("{what}: {cause}")]
    System {
        /// The step that failed.
        what: &'static str,
        /// The reason.
        cause: String,
    },
    /// JetStream refuses the request for another reason.
    #[error("JetStream refuses {request}: {description} (error {code})")]
    Refused {
        /// The request.
        request: String,
        /// Number of the error in NATS's list.
        code: u64,
        /// The server's words.
        description: String,
    },
}
