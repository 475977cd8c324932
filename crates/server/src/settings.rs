//! Settings: one struct is the definition of all of them.
//!
//! ```text
//! flag  >  environment  >  ropewalk.toml  >  default          http.listen = --http-listen = ROPEWALK_HTTP_LISTEN
//! ```
//! A field with its doc comment and its default makes the key of the file, the flag, the variable, the help text and the
//! JSON Schema, so that none of them can lag behind. Every text is checked where it stands: an error names the flag, the
//! variable or the line. A key that does not exist is an error.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::units::{ByteSize, Every, Listen, Period, Share, StoreListen};

/// The file that is read when nobody names one, if it is there.
pub const DEFAULT_FILE: &str = "ropewalk.toml";
/// Beginning of every environment variable.
const PREFIX: &str = "ROPEWALK_";
/// Variables that belong to other commands, or to the choice of the file.
const OTHER_VARIABLES: &[&str] =
    &["ROPEWALK_CONFIG", "ROPEWALK_TOKEN", "ROPEWALK_PASSWORD", "ROPEWALK_CA", "ROPEWALK_READY_FILE"];

/// Settings of `ropewalk serve`, as in `ropewalk.toml`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Database directory, made when it is not there
    pub dir: Directory,
    /// Bytes for memtables and caches together
    pub memory: Memory,
    /// Serve without users, and addresses that others can reach without TLS: whoever reaches a port may do everything
    pub insecure: bool,
    /// Offer operations that only a test should have, such as POST /cleanup, which empties a store
    pub dev: bool,
    /// Use TLS with a certificate made here and kept in the database directory, for trying things out
    pub dev_tls: bool,
    /// Directory for backups that clients ask for; without one they are refused
    pub backups: Option<PathBuf>,
    /// Listen on the local socket DIR/ropewalk.sock, through which other commands of the same user work
    pub socket: Enabled,
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
    /// Certificates of all ports
    pub tls: Tls,
    /// What is logged, to standard error
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
    /// Offer what only tests of MongoDB clients should have: `configureFailPoint`
    pub test_commands: bool,
}

impl Default for MongoDb {
    // Not on by itself: where there is a MongoDB already, the server would not start.
    fn default() -> Self {
        Self { listen: Listen::Off, announce: None, test_commands: false }
    }
}

/// The PostgreSQL port.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Postgres {
    /// IP:PORT of the PostgreSQL wire protocol, such as 127.0.0.1:5432; port 0 takes a free one, `off` takes none
    pub listen: Listen,
    /// Time in which a PostgreSQL client may say nothing while it has a transaction open
    pub transaction_idle_time: Period,
    /// Bytes that columns of tables which queries read whole may take in memory, beside `memory`; `auto` is a quarter of the memory
    /// that the process may use, `0B` keeps none
    pub column_memory: Share,
}

impl Default for Postgres {
    // Not on by itself: where there is a PostgreSQL already, the server would not start.
    fn default() -> Self {
        Self { listen: Listen::Off, transaction_idle_time: Period::seconds(600), column_memory: Share::Auto }
    }
}

/// Prometheus.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Prometheus {
    /// The series store that is written and read
    pub store: String,
    /// YAML file in the form of Prometheus: what to scrape, rules, Alertmanagers
    pub config: Option<PathBuf>,
    /// How often the server appends its own metrics to that store, or `off`
    pub self_scrape: Every,
    /// Time for one query; a request may ask for less
    pub query_time: Period,
    /// Samples that one query may read
    pub query_samples: u64,
    /// Bytes that one query may hold at one time
    pub query_bytes: ByteSize,
    /// Bytes that all queries and their answers may hold at one time
    pub queries_bytes: ByteSize,
    /// Bytes of answers that are kept for as long as they stay right; 0 keeps none
    pub answer_bytes: ByteSize,
    /// How old a sample may be that a query still sees at a moment
    pub lookback: Period,
    /// What becomes of OTLP metrics that are deltas: `refuse`, `keep` (as gauges), or `cumulate` (to counters)
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

/// What becomes of deltas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OtlpDeltas {
    /// They are not taken, and counted in the answer.
    Refuse,
    /// They are kept as they are, as gauges.
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
    /// Bytes of the headers of one request
    pub header_bytes: ByteSize,
    /// Time for a TLS handshake, for a client's first words, and for the headers of a request from their first byte
    pub header_time: Period,
    /// Time in which an HTTP/1 client may say nothing between two requests
    pub idle_time: Period,
    /// Time in which a client may take nothing of the answer it asked for
    pub stall_time: Period,
    /// Bytes of one request's body
    pub request_bytes: ByteSize,
    /// Bytes of requests that are being received, over all ports; reserved as they arrive
    pub request_memory: ByteSize,
    /// Time for one request other than a stream
    pub request_time: Period,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 16_384,
            header_bytes: ByteSize(64 << 10),
            header_time: Period::seconds(30),
            idle_time: Period::seconds(300),
            stall_time: Period::seconds(60),
            request_bytes: ByteSize(16 << 20),
            request_memory: ByteSize(256 << 20),
            request_time: Period::seconds(60),
        }
    }
}

/// How the server stops.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Stop {
    /// Time for requests that are on their way when the server is told to stop
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

/// One setting, for whoever offers it: command line, documentation.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    /// Name in the file, such as `http.listen`.
    pub name: String,
    /// Name on the command line without dashes, such as `http-listen`.
    pub flag: String,
    /// Name in the environment, such as `ROPEWALK_HTTP_LISTEN`.
    pub variable: String,
    /// What it means.
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

/// The JSON Schema of the file, as kept in `docs/ropewalk.schema.json`.
pub fn schema() -> schemars::Schema {
    let generator = schemars::generate::SchemaSettings::draft2020_12().with(|s| s.inline_subschemas = true);
    let mut schema = generator.into_generator().into_root_schema_for::<Settings>();
    schema.insert("title".to_owned(), "ropewalk.toml".into());
    schema
}

fn defaults() -> Value {
    serde_json::to_value(Settings::default()).expect("settings are plain data")
}

/// A value as somebody would type it.
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
    /// Nobody said anything.
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

/// What is said about settings, before it is joined.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// Key and text of each flag.
    pub flags: Vec<(String, String)>,
    /// The environment's variables; those without our prefix are passed over.
    pub environment: Vec<(String, String)>,
    /// The file that was named, which must be there. Without one, [`DEFAULT_FILE`] is read if it is there.
    pub file: Option<PathBuf>,
}

/// A setting that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// What it says makes no sense.
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
        /// Which.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
}

/// Settings with the origin of each.
#[derive(Debug, Clone)]
pub struct Effective {
    /// The values.
    pub settings: Settings,
    origins: BTreeMap<String, Origin>,
    /// Variables that look like ours and are not: said in the log, since an orchestrator may set some of its own.
    pub unknown_variables: Vec<String>,
}

impl Effective {
    /// Joins the sources.
    ///
    /// # Errors
    /// [`SettingsError`] with the place of the first value that makes no sense.
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

    /// Every setting with its value as text and its origin.
    pub fn rows(&self) -> Vec<(String, String, Origin)> {
        let values = serde_json::to_value(&self.settings).expect("settings are plain data");
        let value = |key: &Key| values.pointer(&pointer(&key.name)).map(text).unwrap_or_default();
        keys().iter().map(|key| (key.name.clone(), value(key), self.origin(&key.name).clone())).collect()
    }
}

fn pointer(name: &str) -> String {
    format!("/{}", name.replace('.', "/"))
}

/// Replaces the value of a key that is there.
fn set(values: &mut Value, name: &str, value: Value) {
    if let Some(slot) = values.pointer_mut(&pointer(name)) {
        *slot = value;
    }
}

/// Puts the text of a flag or a variable in place of a value, once it is known to make sense there.
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

/// The file's values, each known to make sense.
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
    fn a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default() {
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
    fn the_file_is_refused_with_line_and_reason() {
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
    fn flags_and_variables_are_refused_by_name() {
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
