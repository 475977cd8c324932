//! Settings: one struct is the definition of all of them.
//!
//! ```text
//! flag  >  environment  >  ropewalk.toml  >  default          http.listen = --http-listen = ROPEWALK_HTTP_LISTEN
//! ```
//! A field with its doc comment and its default makes the key of the file, the flag, the variable, the help
//! text and the JSON Schema, so that they cannot differ. Values are checked with their origin: an error names
//! the flag, the variable or the line. An unknown key is an error.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::units::{ByteSize, Every, Listen, Period, Share, StoreListen};

/// The settings file that is read, if it exists, when none is named.
pub const DEFAULT_FILE: &str = "ropewalk.toml";
/// Prefix of every environment variable.
const PREFIX: &str = "ROPEWALK_";
/// Variables of other commands, and the one that names the file.
const OTHER_VARIABLES: &[&str] =
    &["ROPEWALK_CONFIG", "ROPEWALK_TOKEN", "ROPEWALK_PASSWORD", "ROPEWALK_CA", "ROPEWALK_READY_FILE"];

/// Settings of `ropewalk serve`, as in `ropewalk.toml`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Database directory, created when it does not exist
    pub dir: Directory,
    /// Bytes for memtables and caches together
    pub memory: Memory,
    /// Serve without users, and addresses that others can reach without TLS: every client may do everything
    pub insecure: bool,
    /// Offer operations meant only for tests, such as POST /cleanup, which empties a store
    pub dev: bool,
    /// Use TLS with a self-signed certificate stored in the database directory, for trying things out
    pub dev_tls: bool,
    /// Directory for backups that clients request; without one such requests are rejected
    pub backups: Option<PathBuf>,
    /// Listen on the local socket DIR/ropewalk.sock, which other commands of the same user connect to
    pub socket: Enabled,
    /// Serve the web console at /ui/ of the HTTP port: `on` or `off`
    pub console: Console,
    /// The HTTP port
    pub http: Http,
    /// The gRPC port
    pub grpc: Grpc,
    /// The MongoDB port
    pub mongo: MongoDb,
    /// The PostgreSQL port
    pub postgres: Postgres,
    /// Prometheus, on the HTTP port
    pub prometheus: Prometheus,
    /// Declared projections
    pub projections: Projections,
    /// Several nodes that share a log
    pub cluster: Cluster,
    /// Certificates of all ports
    pub tls: Tls,
    /// Logs, written to standard error
    pub log: Log,
    /// Bounds on what clients may use
    pub limits: Limits,
    /// How the server stops
    pub stop: Stop,
}

/// The HTTP port.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    /// IP:PORT of the HTTP API; port 0 takes a free one, `off` takes none
    pub listen: Listen,
    /// Origins that browsers may call from, or `*`
    pub cors: Vec<String>,
    /// Names by which clients reach the HTTP API, or `*`; loopback names and IP addresses are always allowed
    pub hosts: Vec<String>,
}

impl Default for Http {
    fn default() -> Self {
        Self { listen: Listen::loopback(4780), cors: Vec::new(), hosts: Vec::new() }
    }
}

/// The gRPC port.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Grpc {
    /// IP:PORT of the gRPC services; port 0 takes a free one, `off` takes none
    pub listen: Listen,
    /// Further gRPC ports, each with the event store of calls that name none, as STORE=IP:PORT
    pub stores: Vec<StoreListen>,
}

impl Default for Grpc {
    fn default() -> Self {
        Self { listen: Listen::loopback(50051), stores: Vec::new() }
    }
}

/// The MongoDB port.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MongoDb {
    /// IP:PORT of the MongoDB wire protocol, such as 127.0.0.1:27017; port 0 takes a free one, `off` takes none
    pub listen: Listen,
    /// HOST:PORT by which MongoDB clients reach the server, when it is another than the one they connect to
    pub announce: Option<String>,
    /// Offer commands meant only for tests of MongoDB clients: `configureFailPoint`
    pub test_commands: bool,
    /// Time for one MongoDB command without `maxTimeMS`
    pub command_time: Period,
}

impl Default for MongoDb {
    // Off by default: the port may belong to a MongoDB server on this machine.
    fn default() -> Self {
        Self { listen: Listen::Off, announce: None, test_commands: false, command_time: Period::seconds(600) }
    }
}

/// The PostgreSQL port.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Postgres {
    /// IP:PORT of the PostgreSQL wire protocol, such as 127.0.0.1:5432; port 0 takes a free one, `off` takes none
    pub listen: Listen,
    /// Time in which a PostgreSQL client may be silent while it has a transaction open
    pub transaction_idle_time: Period,
    /// Bytes for the in-memory columns of tables that queries scan, in addition to `memory`; `auto` is a
    /// quarter of the process's memory limit, `0B` caches none
    pub column_memory: Share,
    /// Bytes of temporary files that all SQL statements and cursors may write
    pub temp_files: ByteSize,
    /// Bytes of temporary files that one SQL statement may write
    pub statement_temp_files: ByteSize,
}

impl Default for Postgres {
    // Off by default: the port may belong to a PostgreSQL server on this machine.
    fn default() -> Self {
        Self {
            listen: Listen::Off,
            transaction_idle_time: Period::seconds(600),
            column_memory: Share::Auto,
            temp_files: ByteSize(16 << 30),
            statement_temp_files: ByteSize(4 << 30),
        }
    }
}

/// Prometheus.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Prometheus {
    /// The series store that Prometheus requests write and read
    pub store: String,
    /// YAML file in Prometheus' format: what to scrape, rules, Alertmanagers
    pub config: Option<PathBuf>,
    /// How often the server appends its own metrics to that store, or `off`
    pub self_scrape: Every,
    /// Time for one query; a request may ask for less
    pub query_time: Period,
    /// Samples that one query may read
    pub query_samples: u64,
    /// Bytes that one query may hold at one time
    pub query_bytes: ByteSize,
    /// Bytes that all queries and their results may hold at one time
    pub queries_bytes: ByteSize,
    /// Bytes of cached query results; 0 caches none
    pub answer_bytes: ByteSize,
    /// How old a sample may be that a query still sees at an evaluation time
    pub lookback: Period,
    /// Treatment of OTLP delta metrics: `refuse`, `keep` (as gauges), or `cumulate` (to counters)
    pub otlp_deltas: OtlpDeltas,
}

impl Default for Prometheus {
    fn default() -> Self {
        Self {
            store: "default".to_owned(),
            config: None,
            self_scrape: Every::seconds(15),
            query_time: Period::seconds(60),
            query_samples: 50_000_000,
            query_bytes: ByteSize(1 << 30),
            queries_bytes: ByteSize(2 << 30),
            answer_bytes: ByteSize(64 << 20),
            lookback: Period::seconds(300),
            otlp_deltas: OtlpDeltas::Refuse,
        }
    }
}

/// Treatment of OTLP delta metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OtlpDeltas {
    /// They are rejected, and counted in the response.
    Refuse,
    /// They are stored unchanged, as gauges.
    Keep,
    /// They are added up, to counters and histograms that rise.
    Cumulate,
}

/// Certificates.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// PEM file with the certificate and those between it and its root; read again when it changes and on SIGHUP
    pub cert: Option<PathBuf>,
    /// PEM file with the private key
    pub key: Option<PathBuf>,
}

/// Logs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// error, warn, info, debug (every request), trace, or a list such as `info,ropewalk=debug`
    pub level: String,
    /// text or json
    pub format: LogFormat,
}

impl Default for Log {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::Text }
    }
}

/// Form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Bounds on what clients may use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Open connections of all ports together; an eighth is reserved for each port, and further ones are turned away
    pub connections: u32,
    /// Open connections of one client address at one port that have not logged in, at most half of `connections`; further ones are
    /// turned away
    pub peer_connections: u32,
    /// Bytes of the headers of one request
    pub header_bytes: ByteSize,
    /// Time for a TLS handshake, for a client's first bytes, and for the headers of a request from their
    /// first byte
    pub header_time: Period,
    /// Time in which an HTTP/1 client may be silent between two requests
    pub idle_time: Period,
    /// Time in which a client may read nothing of its response
    pub stall_time: Period,
    /// Bytes of one request's body
    pub request_bytes: ByteSize,
    /// Bytes of requests that are being received, over all ports; reserved as they arrive
    pub request_memory: ByteSize,
    /// Bytes of complete responses in memory until their clients have read them
    pub answer_memory: ByteSize,
    /// Time for one request other than a stream
    pub request_time: Period,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 16_384,
            peer_connections: 2_048,
            header_bytes: ByteSize(64 << 10),
            header_time: Period::seconds(30),
            idle_time: Period::seconds(300),
            stall_time: Period::seconds(60),
            request_bytes: ByteSize(16 << 20),
            request_memory: ByteSize(256 << 20),
            answer_memory: ByteSize(256 << 20),
            request_time: Period::seconds(60),
        }
    }
}

/// Declared projections.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Projections {
    /// Apply events to the tables of declared projections
    pub run: Enabled,
}

/// Several nodes that share a log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Cluster {
    /// The log that the nodes share, as nats://HOST,HOST,HOST/NAME or postgres://USER@HOST/DATABASE; none: the server is alone
    pub log: Option<String>,
    /// Host name or IP address by which clients and the other nodes reach this node, at the ports where it listens
    pub advertise: Option<String>,
    /// File with one line USER:PASSWORD for the log service; none: as in `cluster.log`
    pub credentials: Option<PathBuf>,
    /// PEM file with the certificates by which those of the log service are checked; none: those of the system
    pub log_ca: Option<PathBuf>,
    /// Accept a log service of one server, whose loss stops all writes and may lose them; for trying things out
    pub allow_one_server: bool,
    /// Time without an entry of the leader after which another node tries to lead; an idle leader writes one at each third of it
    pub lease: Period,
    /// Time for which an append to the shared log is repeated when its outcome is unknown
    pub patience: Period,
    /// Longest lag of a follower that still reports that it is ready
    pub lag_max: Period,
    /// PEM file with the certificates by which nodes check each other's HTTPS; none: those of the system
    pub ca: Option<PathBuf>,
    /// Where checkpoints of this cluster are: a directory on a file system that all its nodes mount, or s3://BUCKET/PREFIX; none: there
    /// are no checkpoints, and the shared log is not trimmed
    pub checkpoints: Option<String>,
    /// Age of the newest checkpoint at which the next one is made
    pub checkpoint_interval: Period,
    /// Time for which the shared log is retained for a node that no longer reports, at least 1m
    pub grace: Period,
    /// Delete the copy of this node and begin with a checkpoint when the shared log no longer has the entries that it needs
    pub rejoin: bool,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            log: None,
            advertise: None,
            credentials: None,
            log_ca: None,
            allow_one_server: false,
            lease: Period::seconds(3),
            patience: Period::seconds(30),
            lag_max: Period::seconds(10),
            ca: None,
            checkpoints: None,
            checkpoint_interval: Period::seconds(600),
            grace: Period::seconds(3600),
            rejoin: false,
        }
    }
}

/// How the server stops.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Stop {
    /// Time for running requests to finish after a signal to stop
    pub drain_time: Period,
}

impl Default for Stop {
    fn default() -> Self {
        Self { drain_time: Period::seconds(10) }
    }
}

/// A directory whose default is that of every command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Directory(pub PathBuf);

impl Default for Directory {
    fn default() -> Self {
        Self("ropewalk.db".into())
    }
}

/// Bytes whose default is the engine's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Memory(pub ByteSize);

impl Default for Memory {
    fn default() -> Self {
        Self(ByteSize(512 << 20))
    }
}

/// A switch that is on by default.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Enabled(pub bool);

impl Default for Enabled {
    fn default() -> Self {
        Self(true)
    }
}

/// Whether the web console is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Console {
    /// It is served; its data needs the rights of its user.
    #[default]
    On,
    /// Nothing is served at `/` and `/ui/`.
    Off,
}

/// Description of one setting, for the command line and documentation.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    /// Name in the file, such as `http.listen`.
    pub name: String,
    /// Name on the command line without dashes, such as `http-listen`.
    pub flag: String,
    /// Name in the environment, such as `ROPEWALK_HTTP_LISTEN`.
    pub variable: String,
    /// Help text.
    pub help: String,
    /// Its default as text; empty for none.
    pub default: String,
    /// True for a switch.
    pub switch: bool,
}

/// Every setting, in the order of the file.
pub fn keys() -> Vec<Key> {
    let mut found = Vec::new();
    collect_keys(schema().as_value(), &defaults(), "", &mut found);
    found
}

fn collect_keys(schema: &Value, default: &Value, prefix: &str, found: &mut Vec<Key>) {
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, described) in properties.into_iter().flatten() {
        let name = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        let default = default.get(name.rsplit('.').next().unwrap_or_default()).unwrap_or(&Value::Null);
        if default.is_object() {
            collect_keys(described, default, &name, found);
            continue;
        }
        let help = described.get("description").and_then(Value::as_str).unwrap_or_default();
        found.push(Key {
            flag: name.replace(['.', '_'], "-"),
            variable: variable(&name),
            help: help.split_whitespace().collect::<Vec<_>>().join(" "),
            default: text(default),
            switch: default.is_boolean(),
            name,
        });
    }
}

/// The variable of a key. The directory is called `ROPEWALK_AT` in every command.
fn variable(name: &str) -> String {
    if name == "dir" {
        return "ROPEWALK_AT".to_owned();
    }
    format!("{PREFIX}{}", name.replace('.', "_").to_uppercase())
}

/// The JSON Schema of the file, as in `docs/ropewalk.schema.json`.
pub fn schema() -> schemars::Schema {
    let generator = schemars::generate::SchemaSettings::draft2020_12().with(|s| s.inline_subschemas = true);
    let mut schema = generator.into_generator().into_root_schema_for::<Settings>();
    schema.insert("title".to_owned(), "ropewalk.toml".into());
    schema
}

fn defaults() -> Value {
    serde_json::to_value(Settings::default()).expect("settings are plain data")
}

/// A value as a user would type it.
fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// No source set it.
    Default,
    /// The file.
    File(PathBuf),
    /// A variable.
    Environment(String),
    /// The command line.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Environment(name) => f.write_str(name),
            Self::Flag(name) => write!(f, "--{name}"),
        }
    }
}

/// Sources of settings, before they are merged.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// Key and value of each flag.
    pub flags: Vec<(String, String)>,
    /// The environment's variables; those without our prefix are ignored.
    pub environment: Vec<(String, String)>,
    /// The named file, which must exist. Without one, [`DEFAULT_FILE`] is read if it exists.
    pub file: Option<PathBuf>,
}

/// A setting that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A value is invalid.
    #[error("{place}: {what}")]
    Invalid {
        /// The flag, the variable, or file and line.
        place: String,
        /// Why.
        what: String,
    },
    /// The file cannot be read.
    #[error("read the settings in {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Settings with the origin of each.
#[derive(Debug, Clone)]
pub struct Effective {
    /// The values.
    pub settings: Settings,
    origins: BTreeMap<String, Origin>,
    /// Unknown variables with our prefix: logged only, since an orchestrator may set some.
    pub unknown_variables: Vec<String>,
}

impl Effective {
    /// Merges the sources.
    ///
    /// # Errors
    /// [`SettingsError`] with the place of the first invalid value.
    pub fn resolve(sources: &Sources) -> Result<Self, SettingsError> {
        let keys = keys();
        let mut origins = BTreeMap::new();
        let mut values = defaults();
        if let Some((path, file)) = read_file(sources.file.as_deref())? {
            for key in &keys {
                if let Some(value) = file.pointer(&pointer(&key.name)) {
                    set(&mut values, &key.name, value.clone());
                    origins.insert(key.name.clone(), Origin::File(path.clone()));
                }
            }
        }
        let mut unknown_variables = Vec::new();
        for (name, text) in sources.environment.iter().filter(|(name, _)| name.starts_with(PREFIX)) {
            match keys.iter().find(|key| key.variable == *name) {
                Some(key) => {
                    overlay(&mut values, key, text, name)?;
                    origins.insert(key.name.clone(), Origin::Environment(name.clone()));
                }
                None if OTHER_VARIABLES.contains(&name.as_str()) => {}
                None => unknown_variables.push(name.clone()),
            }
        }
        for (name, text) in &sources.flags {
            let place = format!("--{}", name.replace(['.', '_'], "-"));
            let Some(key) = keys.iter().find(|key| key.name == *name) else {
                return Err(SettingsError::Invalid { place, what: "there is no such setting".to_owned() });
            };
            overlay(&mut values, key, text, &place)?;
            origins.insert(key.name.clone(), Origin::Flag(key.flag.clone()));
        }
        let settings = serde_json::from_value(values)
            .map_err(|error| SettingsError::Invalid { place: "settings".into(), what: error.to_string() })?;
        Ok(Self { settings, origins, unknown_variables })
    }

    /// Where the setting `name` came from.
    pub fn origin(&self, name: &str) -> &Origin {
        self.origins.get(name).unwrap_or(&Origin::Default)
    }

    /// Every setting with its value as text and its origin. Passwords in URLs are left out.
    pub fn rows(&self) -> Vec<(String, String, Origin)> {
        let values = serde_json::to_value(&self.settings).expect("settings are plain data");
        let value = |key: &Key| {
            let value = values.pointer(&pointer(&key.name)).map(text).unwrap_or_default();
            if key.name == "cluster.log" { without_passwords(&value) } else { value }
        };
        keys().iter().map(|key| (key.name.clone(), value(key), self.origin(&key.name).clone())).collect()
    }
}

/// The URL with `***` in place of each password or token.
pub(crate) fn without_passwords(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (hosts, path) = rest.split_once('/').map_or((rest, None), |(hosts, path)| (hosts, Some(path)));
    let hide = |host: &str| match host.rsplit_once('@') {
        Some((user, host)) => match user.split_once(':') {
            Some((user, _)) => format!("{user}:***@{host}"),
            None => format!("***@{host}"),
        },
        None => host.to_owned(),
    };
    let hosts: Vec<_> = hosts.split(',').map(hide).collect();
    let path = path.map(|path| {
        // `password=` may also be a parameter.
        let (path, parameters) = path.split_once('?').map_or((path, None), |(path, all)| (path, Some(all)));
        let hide = |parameter: &str| match parameter.split_once('=') {
            Some((name, _)) if name.contains("pass") || name.contains("token") => format!("{name}=***"),
            _ => parameter.to_owned(),
        };
        let parameters = parameters.map(|all| all.split('&').map(hide).collect::<Vec<_>>().join("&"));
        parameters.map_or_else(|| format!("/{path}"), |all| format!("/{path}?{all}"))
    });
    format!("{scheme}://{}{}", hosts.join(","), path.unwrap_or_default())
}

fn pointer(name: &str) -> String {
    format!("/{}", name.replace('.', "/"))
}

/// Replaces the value of an existing key.
fn set(values: &mut Value, name: &str, value: Value) {
    if let Some(slot) = values.pointer_mut(&pointer(name)) {
        *slot = value;
    }
}

/// Replaces a value by that of a flag or a variable, once it is validated.
fn overlay(values: &mut Value, key: &Key, given: &str, place: &str) -> Result<(), SettingsError> {
    let invalid = |what: String| SettingsError::Invalid { place: place.to_owned(), what };
    let typed = match values.pointer(&pointer(&key.name)) {
        Some(Value::Bool(_)) => {
            given.parse().map(Value::Bool).map_err(|_| "is neither true nor false".to_owned())
        }
        Some(Value::Number(_)) => {
            given.parse::<u64>().map(Value::from).map_err(|_| format!("{given:?} is not a whole number"))
        }
        Some(Value::Array(_)) => {
            let items = given.split(',').map(str::trim).filter(|item| !item.is_empty());
            Ok(items.map(Value::from).collect())
        }
        _ => Ok(Value::from(given)),
    };
    set(values, &key.name, typed.map_err(invalid)?);
    match Settings::deserialize(&*values) {
        Ok(_) => Ok(()),
        Err(error) => Err(invalid(error.to_string())),
    }
}

/// The file's values, each validated.
fn read_file(named: Option<&Path>) -> Result<Option<(PathBuf, Value)>, SettingsError> {
    let path = named.unwrap_or(Path::new(DEFAULT_FILE));
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if named.is_none() && error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(SettingsError::File { path: path.to_owned(), source }),
    };
    let refused = |error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        SettingsError::Invalid {
            place: format!("{}, line {line}", path.display()),
            what: error.message().trim_end().replace('\n', " "),
        }
    };
    toml::from_str::<Settings>(&text).map_err(refused)?;
    let values: Value = toml::from_str(&text).map_err(refused)?;
    Ok(Some((path.to_owned(), values)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(flags: &[(&str, &str)], environment: &[(&str, &str)], file: Option<PathBuf>) -> Sources {
        let owned = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect::<Vec<_>>()
        };
        Sources { flags: owned(flags), environment: owned(environment), file }
    }

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("some.toml");
        std::fs::write(&path, text).unwrap();
        (dir, path)
    }

    fn refused(sources: &Sources) -> String {
        Effective::resolve(sources).unwrap_err().to_string()
    }

    #[test]
    fn every_setting_has_three_names_a_meaning_and_a_default() {
        let keys = keys();
        let listen = keys.iter().find(|key| key.name == "http.listen").unwrap();
        assert_eq!((listen.flag.as_str(), listen.variable.as_str()), ("http-listen", "ROPEWALK_HTTP_LISTEN"));
        assert_eq!(listen.default, "127.0.0.1:4780");
        assert!(keys.iter().all(|key| !key.help.is_empty()), "{keys:?}");
        assert!(keys.iter().any(|key| key.name == "tls.cert" && key.default.is_empty()));
        let settings = Effective::resolve(&Sources::default()).unwrap();
        assert_eq!(settings.settings, Settings::default());
        assert_eq!(settings.rows().len(), keys.len());
    }

    #[test]
    fn flag_overrides_environment_overrides_file_overrides_default() {
        let (_dir, path) =
            file("memory = \"1GiB\"\n[http]\nlisten = \"127.0.0.1:1\"\n[log]\nlevel = \"warn\"\n");
        let environment =
            [("ROPEWALK_HTTP_LISTEN", "127.0.0.1:2"), ("ROPEWALK_LOG_LEVEL", "debug"), ("HOME", "/")];
        let found =
            Effective::resolve(&sources(&[("http.listen", "127.0.0.1:3")], &environment, Some(path.clone())))
                .unwrap();
        assert_eq!(found.settings.http.listen, "127.0.0.1:3".parse().unwrap());
        assert_eq!(*found.origin("http.listen"), Origin::Flag("http-listen".into()));
        assert_eq!(found.settings.log.level, "debug");
        assert_eq!(found.origin("log.level").to_string(), "ROPEWALK_LOG_LEVEL");
        assert_eq!(found.settings.memory.0, ByteSize(1 << 30));
        assert_eq!(*found.origin("memory"), Origin::File(path));
        assert_eq!(found.settings.grpc, Grpc::default());
        assert_eq!(*found.origin("grpc.listen"), Origin::Default);
    }

    #[test]
    fn invalid_file_is_rejected_with_line_and_reason() {
        for (text, line, words) in [
            ("insecure = true\n\n[http]\nlisten = \"127.0.0.1:0\"\nlisen = 3\n", 5, "lisen"),
            ("colour = 1\n", 1, "colour"),
            ("[limits]\nheader_time = \"soon\"\n", 2, "soon"),
            ("[limits]\n\nconnections = -1\n", 3, "u32"),
            ("[http]\nlisten = \"nowhere\"\n", 2, "IP:PORT"),
            ("[log]\nformat = \"xml\"\n", 2, "xml"),
            ("[http\n", 1, ""),
        ] {
            let (_dir, path) = file(text);
            let message = refused(&sources(&[], &[], Some(path)));
            assert!(
                message.contains(&format!("some.toml, line {line}: ")) && message.contains(words),
                "{message}"
            );
        }
        assert!(refused(&sources(&[], &[], Some("/no/such.toml".into()))).contains("/no/such.toml"));
    }

    #[test]
    fn invalid_flags_and_variables_are_rejected_by_name() {
        let message = refused(&sources(&[("limits.connections", "many")], &[], None));
        assert!(message.starts_with("--limits-connections: ") && message.contains("many"), "{message}");
        let message = refused(&sources(&[], &[("ROPEWALK_MEMORY", "12 potatoes")], None));
        assert!(message.starts_with("ROPEWALK_MEMORY: ") && message.contains("potatoes"), "{message}");
        assert!(refused(&sources(&[("colour", "1")], &[], None)).contains("--colour"));
        let foreign =
            Effective::resolve(&sources(&[], &[("ROPEWALK_PORT", "tcp://x"), ("ROPEWALK_TOKEN", "x")], None));
        assert_eq!(foreign.unwrap().unknown_variables, ["ROPEWALK_PORT"]);
    }

    #[test]
    fn passwords_of_the_shared_log_are_not_shown() {
        for (url, shown) in [
            ("nats://a:4222,b:4222/shop", "nats://a:4222,b:4222/shop"),
            ("nats://ann:pw@a:4222,secret@b:4222/shop", "nats://ann:***@a:4222,***@b:4222/shop"),
            (
                "postgres://ann:p@w@db/shop?sslmode=on&password=x",
                "postgres://ann:***@db/shop?sslmode=on&password=***",
            ),
            ("nats://ann:pw@a", "nats://ann:***@a"),
            ("elsewhere", "elsewhere"),
        ] {
            assert_eq!(without_passwords(url), shown);
        }
        let flags = [("cluster.log", "nats://ann:pw@a:4222/shop"), ("cluster.lease", "5s")];
        let found = Effective::resolve(&sources(&flags, &[], None)).unwrap();
        assert_eq!(found.settings.cluster.lease, Period::seconds(5));
        assert!(
            found
                .rows()
                .iter()
                .any(|(name, value, _)| { name == "cluster.log" && value == "nats://ann:***@a:4222/shop" })
        );
    }

    #[test]
    fn lists_and_switches_as_text() {
        let found = Effective::resolve(&sources(
            &[("http.cors", "a, b"), ("insecure", "true"), ("socket", "false")],
            &[("ROPEWALK_GRPC_STORES", "shop=127.0.0.1:50052,mail=[::1]:0")],
            None,
        ))
        .unwrap();
        assert_eq!(found.settings.http.cors, ["a", "b"]);
        let stores = found.settings.grpc.stores.iter().map(ToString::to_string);
        assert_eq!(stores.collect::<Vec<_>>(), ["shop=127.0.0.1:50052", "mail=[::1]:0"]);
        let (_dir, path) = file("[grpc]\nstores = [\"shop=127.0.0.1:1\"]\n");
        let of_file = Effective::resolve(&sources(&[], &[], Some(path))).unwrap();
        assert_eq!(of_file.settings.grpc.stores.len(), 1);
        assert!(found.settings.insecure && !found.settings.socket.0);
    }
}
