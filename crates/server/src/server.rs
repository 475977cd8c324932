//! The life of the server process, from settings to shutdown.
//!
//! ```text
//! settings ─▶ database ─▶ certificates ─▶ may this be reached? ─▶ ports ─▶ ready ─▶ … ─▶ stop
//! stop: no new connection ─▶ streams end, requests finish (bounded time) ─▶ sync and close
//!
//! node of a cluster: each round opens the database as a follower ─▶ caught up ─▶ ports … ─▶ deposed: stop, next round
//!                    └ before that, an empty directory gets the database of a checkpoint, if there are checkpoints
//! ```
//! SIGTERM and SIGINT stop the server; a second one stops it at once, without waiting for requests. SIGHUP
//! reads the certificates and `prometheus.config` again. Commits acknowledged as durable survive however the
//! process ends.

use std::borrow::Cow;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use ropewalk::{Database, Options};
use ropewalk_grpc::GrpcSettings;
use ropewalk_http::{Cors, Hosts, HttpSettings, SettingInForce};
use ropewalk_http_kit::leader::ToLeader;
use ropewalk_mongo::{Mongo, MongoSettings};
use ropewalk_monitoring::{Config, ConfigError};
use ropewalk_postgres::{Postgres, PostgresSettings, TempFileLimits};
use ropewalk_prometheus::{Deltas, Prometheus, PrometheusSettings};
use ropewalk_transactions::OpenTransactions;
use ropewalk_wire::{NodeAddresses, Service, ServiceSettings, WireError};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_rustls::TlsAcceptor;
use tonic::transport::server::TcpConnectInfo;

use crate::cluster::{self, Filling, Joined};
use crate::config::settings::{Cluster, Console, Effective, MongoDb, OtlpDeltas, Settings, SettingsError};
use crate::config::units::{Every, Listen, Period, Share, StoreListen};
use crate::net::connection::{Port, Protocol, Room};
use crate::net::listen::{Listener, LocalSocket};
use crate::net::ports::Ports;
use crate::net::tls::{Certificates, TlsError};
use crate::process::notify::ServiceManager;
use crate::workers::{LanePort, Lanes, STACK_BYTES, Threads};

/// Pause between two applications of the rules of series stores.
const SERIES_RULES_PAUSE: Duration = Duration::from_secs(60);
/// How often expired documents are deleted.
const EXPIRY_PAUSE: Duration = Duration::from_secs(60);
/// How often the certificate's files are checked for changes.
const CERTIFICATE_LOOK: Duration = Duration::from_secs(2);
/// How long a request may still use a database that is closed to be opened again.
const RELEASE_TIME: Duration = Duration::from_secs(30);
/// Interval of the checks for that.
const RELEASE_LOOK: Duration = Duration::from_millis(10);
/// A round that was shorter …
const SHORT_ROUND: Duration = Duration::from_secs(5);
/// … is followed by this pause, so that a node that fails at once does not fail all the time.
const REOPEN_PAUSE: Duration = Duration::from_secs(1);
/// Longest time for the requests of a node that no longer leads: they cannot write any more.
const DEPOSED_DRAIN_TIME: Duration = Duration::from_secs(2);
/// Least memory, as in the engine.
const MEMORY_MIN: u64 = 1 << 20;
/// Least `cluster.grace`: a node of an idle cluster reports a new place every half minute.
const GRACE_MIN: Duration = Duration::from_secs(60);

/// Why the server did not start, or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// A setting is invalid.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The file with scrape jobs and rules is invalid.
    #[error("prometheus.config: {0}")]
    Prometheus(#[from] ConfigError),
    /// A certificate or key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The database cannot be opened or closed.
    #[error(transparent)]
    Database(#[from] ropewalk::Error),
    /// The service cannot be set up.
    #[error(transparent)]
    Service(#[from] WireError),
    /// The server cannot be a node of its cluster.
    #[error("the node cannot follow its cluster: {what}")]
    Cluster {
        /// Why.
        what: String,
    },
    /// Others could reach the server without authentication or encryption.
    #[error("{what}")]
    Exposed {
        /// The address, and the missing protection.
        what: String,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// The operation and its object.
        what: String,
        /// The system's error.
        source: io::Error,
    },
}

/// A place where the server can be reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// `http`, `grpc`, `mongo`, `postgres` or `socket`.
    pub protocol: Cow<'static, str>,
    /// IP and port, or the path of the local socket.
    pub address: String,
    /// True when the address requires TLS.
    pub tls: bool,
    /// The event store of calls that name none, of a port from `grpc.stores`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
}

/// Content of the ready file, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadyFile {
    /// The server's process.
    pub pid: u32,
    /// The directory of the database.
    pub dir: PathBuf,
    /// Where the server can be reached.
    pub listening: Vec<Address>,
}

/// Serves until a signal stops it. `listening` receives the addresses once everything is served; with
/// `ready_file` a [`ReadyFile`] is also written there.
///
/// A node of a cluster that no longer leads closes its database, opens it again, and serves at the same addresses.
///
/// # Errors
/// [`ServeError`]: why nothing was served, that the last sync failed, or that the node cannot follow its cluster.
pub fn serve(
    effective: &Effective,
    ready_file: Option<&Path>,
    listening: &mut dyn FnMut(&[Address]),
) -> Result<(), ServeError> {
    let settings = &effective.settings;
    // Before any thread starts. A kernel that does not know the option has nothing to switch off.
    let small = crate::process::huge_pages::stay_small();
    let logs = crate::process::logs::start(&settings.log)?;
    for name in &effective.unknown_variables {
        tracing::warn!(name, "unknown setting in the environment; ignored");
    }
    if let Err(error) = small {
        tracing::debug!(%error, "cannot disable transparent huge pages");
    }
    raise_descriptor_limit();
    check(settings)?;
    refuse_shared_directory(&settings.dir.0)?;
    let mut lasting = Lasting::default();
    let mut said = |addresses: &[Address]| -> Result<(), ServeError> {
        if let Some(path) = ready_file {
            write_ready(path, settings, addresses)?;
        }
        listening(addresses);
        Ok(())
    };
    let served = loop {
        let begun = Instant::now();
        match round(effective, &mut lasting, &mut said) {
            Ok(Round::Stopped) => break Ok(()),
            Ok(Round::Reopen(_)) if begun.elapsed() < SHORT_ROUND => std::thread::sleep(REOPEN_PAUSE),
            Ok(Round::Reopen(_)) => {}
            Err(error) => break Err(error),
        }
    };
    logs.finish();
    if let Some(path) = ready_file.filter(|_| lasting.is_opened) {
        // A ready file of an earlier run must not be mistaken for this server's.
        let _ = std::fs::remove_file(path);
    }
    served?;
    tracing::info!("stopped");
    Ok(())
}

/// Parts that outlive the database: a node of a cluster opens it several times.
#[derive(Default)]
struct Lasting {
    signals: Option<Signals>,
    ports: Ports,
    cluster: cluster::Lasting,
    /// The database was opened.
    is_opened: bool,
    /// The addresses were announced.
    is_announced: bool,
}

/// How a round of serving ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Round {
    /// By a signal.
    Stopped,
    /// The database is opened again.
    Reopen(cluster::Again),
}

/// Opens the database, serves it, and closes it.
fn round(
    effective: &Effective,
    lasting: &mut Lasting,
    said: &mut dyn FnMut(&[Address]) -> Result<(), ServeError>,
) -> Result<Round, ServeError> {
    let settings = &effective.settings;
    let io = |what: &str| {
        let what = what.to_owned();
        move |source| ServeError::Io { what, source }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_stack_size(STACK_BYTES)
        .enable_all()
        .build()
        .map_err(io("start threads"))?;
    if lasting.signals.is_none() {
        let _inside = runtime.enter();
        // They last over all rounds, so that none is missed between two of them.
        lasting.signals = Some(Signals::new().map_err(io("listen to signals"))?);
    }
    let options = Options::new().memory_budget(settings.memory.0.0);
    let (db, joined) = match settings.cluster.log {
        None => (options.open(&settings.dir.0)?, None),
        Some(_) => {
            let addresses = advertised(settings, &mut lasting.ports)?;
            if let Some(filling) = lasting.cluster.fill(settings)?
                && runtime.block_on(is_stopped_while_filled(filling, lasting))?
            {
                return Ok(Round::Stopped);
            }
            let (db, joined) = cluster::join(&mut lasting.cluster, options, settings, &addresses)?;
            (db, Some(joined))
        }
    };
    lasting.is_opened = true;
    let engine = Arc::downgrade(db.engine());
    let rules = db.enforce_series_rules(SERIES_RULES_PAUSE);
    let sweeper = db.documents().sweep_in_background(EXPIRY_PAUSE);
    let projections = match settings.projections.run.0 {
        true => Some(crate::projections::start(&db)?),
        false => None,
    };
    let threads = Threads::start().map_err(io("start threads"))?;
    let done = runtime.block_on(serve_round(effective, &db, joined.as_ref(), threads.lanes(), lasting, said));
    // Running tasks have had their drain time.
    runtime.shutdown_timeout(Duration::from_secs(1));
    threads.end(Duration::from_secs(1));
    drop(projections);
    drop(rules);
    drop(sweeper);
    if let Some(joined) = joined {
        joined.stop();
    }
    let closed = db.close();
    let done = done?;
    // The engine of a node that was deposed has stopped, and has nothing to sync.
    if done == Round::Stopped {
        closed?;
    }
    wait_for_release(&engine, done)?;
    if let Round::Reopen(again) = done {
        lasting.cluster.prepare(again, settings)?;
    }
    Ok(done)
}

/// Waits until the directory of a new node has the database of a checkpoint; true when a signal came first.
async fn is_stopped_while_filled(mut filling: Filling, lasting: &mut Lasting) -> Result<bool, ServeError> {
    let Some(signals) = &mut lasting.signals else { return Ok(false) };
    tokio::select! {
        filled = filling.finished() => filled.map(|()| false),
        signal = signals.stop() => {
            tracing::info!(signal, "stopping");
            filling.stop();
            Ok(true)
        }
    }
}

/// Waits until nothing uses the engine any more, so that its directory can be opened again.
fn wait_for_release<T>(engine: &Weak<T>, done: Round) -> Result<(), ServeError> {
    let until = Instant::now() + RELEASE_TIME;
    while done != Round::Stopped && engine.strong_count() > 0 {
        if Instant::now() >= until {
            let what = format!("a request still uses the database {RELEASE_TIME:?} after it was closed");
            return Err(ServeError::Cluster { what });
        }
        std::thread::sleep(RELEASE_LOOK);
    }
    Ok(())
}

/// Serves an open database until a signal, or until its node has ended.
async fn serve_round(
    effective: &Effective,
    db: &Database,
    joined: Option<&Joined>,
    lanes: Lanes,
    lasting: &mut Lasting,
    said: &mut dyn FnMut(&[Address]) -> Result<(), ServeError>,
) -> Result<Round, ServeError> {
    let Lasting { signals: Some(signals), ports, is_announced, .. } = lasting else {
        return Ok(Round::Stopped);
    };
    if let Some(joined) = joined {
        tokio::select! {
            caught_up = joined.caught_up() => caught_up?,
            end = joined.ended() => return reopened(&end, &effective.settings),
            signal = signals.stop() => {
                tracing::info!(signal, "stopping");
                return Ok(Round::Stopped);
            }
        }
    }
    let running = Running::start(effective, db.clone(), joined, lanes, ports).await?;
    if !*is_announced {
        said(&running.addresses)?;
        *is_announced = true;
    }
    running.until_told(signals, joined, &effective.settings).await
}

/// The end of the round after the end of its node.
fn reopened(end: &cluster::End, settings: &Settings) -> Result<Round, ServeError> {
    cluster::after(end, settings).map(Round::Reopen)
}

/// The addresses that other nodes and clients reach, of ports that are taken for them.
fn advertised(settings: &Settings, ports: &mut Ports) -> Result<NodeAddresses, ServeError> {
    let host = settings.cluster.advertise.as_deref().unwrap_or_default();
    // An IPv6 address is in brackets in a URL.
    let host = if host.parse::<Ipv6Addr>().is_ok() { format!("[{host}]") } else { host.to_owned() };
    let is_secure = settings.tls.cert.is_some() || settings.dev_tls;
    let secure = |plain: &'static str, over_tls: &'static str| if is_secure { over_tls } else { plain };
    let mut addresses = NodeAddresses::default();
    for (name, protocol, listen) in [
        ("http", secure("http", "https"), settings.http.listen),
        ("grpc", secure("grpc", "grpcs"), settings.grpc.listen),
        ("postgres", "postgres", settings.postgres.listen),
        ("mongo", "mongodb", settings.mongo.listen),
    ] {
        let Some(asked) = listen.address() else { continue };
        let failed = |source| ServeError::Io { what: format!("listen on {asked} for {name}"), source };
        let port = ports.reserve(name, asked).map_err(failed)?.port();
        match settings.mongo.announce.as_deref().and_then(|announced| announced.rsplit_once(':')) {
            Some((host, port)) if name == "mongo" => {
                addresses.push(protocol, host, port.parse().unwrap_or_default());
            }
            _ => addresses.push(protocol, &host, port),
        }
    }
    Ok(addresses)
}

/// Checks constraints between settings that types cannot express.
fn check(settings: &Settings) -> Result<(), SettingsError> {
    let refuse = |place: &str, what: &str| {
        Err(SettingsError::Invalid { place: place.to_owned(), what: what.to_owned() })
    };
    if settings.memory.0.0 < MEMORY_MIN {
        return refuse("memory", "is below the least, 1MiB");
    }
    if settings.limits.connections == 0 {
        return refuse("limits.connections", "must be at least 1");
    }
    if settings.tls.cert.is_some() != settings.tls.key.is_some() {
        return refuse("tls", "cert and key belong together; one of them is missing");
    }
    if settings.dev_tls && settings.tls.cert.is_some() {
        return refuse("dev_tls", "makes a certificate, and tls.cert names another; take one of them out");
    }
    check_cluster(&settings.cluster)?;
    let addresses = [
        settings.http.listen.address(),
        settings.grpc.listen.address(),
        settings.mongo.listen.address(),
        settings.postgres.listen.address(),
    ];
    let is_off = addresses.iter().flatten().next().is_none() && settings.grpc.stores.is_empty();
    if is_off && !settings.socket.0 {
        return refuse("http.listen", "every port is off; there would be nothing to serve");
    }
    Ok(())
}

/// Checks constraints between settings of a cluster.
fn check_cluster(cluster: &Cluster) -> Result<(), SettingsError> {
    let refuse = |place: &str, what: &str| {
        Err(SettingsError::Invalid { place: place.to_owned(), what: what.to_owned() })
    };
    if cluster.log.is_some() && cluster.advertise.is_none() {
        return refuse("cluster.advertise", "is missing: clients and other nodes have to reach this node");
    }
    if cluster.log.is_none() && cluster.advertise.is_some() {
        return refuse("cluster.log", "is missing: cluster.advertise alone makes no cluster");
    }
    if cluster.log.is_none() && cluster.checkpoints.is_some() {
        return refuse("cluster.log", "is missing: cluster.checkpoints has checkpoints of a cluster");
    }
    if cluster.rejoin && cluster.checkpoints.is_none() {
        return refuse("cluster.checkpoints", "is missing: cluster.rejoin begins with a checkpoint");
    }
    if cluster.grace.0 < GRACE_MIN {
        return refuse("cluster.grace", "is below the least, 1m");
    }
    let host = cluster.advertise.as_deref().unwrap_or("host");
    if host.is_empty() || !host.bytes().all(|byte| byte.is_ascii_graphic() && !b"/,@".contains(&byte)) {
        return refuse("cluster.advertise", "is not a host name or an IP address");
    }
    Ok(())
}

/// Refuses a database directory in which every user of the machine may create and replace files.
fn refuse_shared_directory(dir: &Path) -> Result<(), ServeError> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::metadata(dir).map(|dir| dir.permissions().mode());
    if mode.is_ok_and(|mode| mode & 0o002 != 0) {
        let what = format!(
            "every user of this machine may write {}; remove that permission (chmod 700)",
            dir.display()
        );
        return Err(ServeError::Exposed { what });
    }
    Ok(())
}

/// Lets the process have as many connections as the system allows it.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    {
        tracing::warn!(%error, "the limit of open files cannot be raised");
    }
}

fn write_ready(path: &Path, settings: &Settings, listening: &[Address]) -> Result<(), ServeError> {
    let (pid, dir) = (std::process::id(), settings.dir.0.clone());
    let ready = ReadyFile { pid, dir, listening: listening.to_vec() };
    let mut json = serde_json::to_vec(&ready).expect("plain data");
    json.push(b'\n');
    // Written under another name first, so that readers never see a partial file.
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    std::fs::write(&beside, json)
        .and_then(|()| std::fs::rename(&beside, path))
        .map_err(|source| ServeError::Io { what: format!("write {}", path.display()), source })
}

struct Running<'p> {
    service: Service,
    /// Shared by HTTP and gRPC, so that limits and tokens are those of the server.
    transactions: OpenTransactions,
    room: Arc<Room>,
    lanes: Lanes,
    accepting: tokio::task::JoinSet<()>,
    addresses: Vec<Address>,
    certificates: Option<Certificates>,
    /// With a configuration that may be read again.
    prometheus: Option<Prometheus>,
    drain_time: Duration,
    ports: &'p mut Ports,
}

/// The settings with their origins, for administrators.
fn in_force(effective: &Effective) -> Vec<SettingInForce> {
    let rows = effective.rows().into_iter();
    rows.map(|(name, value, origin)| SettingInForce { name, value, origin: origin.to_string() }).collect()
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

/// Request made by a signal.
enum Asked {
    Stop(&'static str),
    Reload,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::Stop("SIGTERM"),
            _ = self.interrupt.recv() => Asked::Stop("SIGINT"),
            _ = self.hangup.recv() => Asked::Reload,
        }
    }

    /// Waits for the next signal to stop.
    async fn stop(&mut self) -> &'static str {
        loop {
            if let Asked::Stop(name) = self.next().await {
                return name;
            }
        }
    }
}

impl<'p> Running<'p> {
    async fn start(
        effective: &Effective,
        db: Database,
        joined: Option<&Joined>,
        lanes: Lanes,
        ports: &'p mut Ports,
    ) -> Result<Self, ServeError> {
        let settings = &effective.settings;
        let limits = ropewalk_wire::Limits {
            request_bytes: usize::try_from(settings.limits.request_bytes.0).unwrap_or(usize::MAX),
            request_time: settings.limits.request_time.0,
            request_memory: usize::try_from(settings.limits.request_memory.0).unwrap_or(usize::MAX),
            answer_memory: usize::try_from(settings.limits.answer_memory.0).unwrap_or(usize::MAX),
            ..ropewalk_wire::Limits::default()
        };
        let service_settings = ServiceSettings {
            limits,
            insecure: settings.insecure,
            backups: settings.backups.clone(),
            ..ServiceSettings::default()
        };
        let service = Service::new(db, service_settings)?;
        service.metrics().add_source(crate::projections::gauges);
        if let Some(joined) = joined {
            joined.serve(&service, settings)?;
        }
        let certificates = certificates(settings)?;
        refuse_exposed(settings, &service)?;
        let mut running = Self {
            transactions: OpenTransactions::new(service.clone()),
            service,
            room: Arc::new(Room::new(settings.limits.clone())),
            lanes,
            accepting: tokio::task::JoinSet::new(),
            addresses: Vec::new(),
            certificates,
            prometheus: None,
            drain_time: settings.stop.drain_time.0,
            ports,
        };
        let prometheus = prometheus(&running.service, settings)?;
        let postgres = postgres(&running.service, settings);
        postgres.share_promql_memory(prometheus.memory());
        let leader = joined.map(Joined::to_leader);
        let http = running.http(prometheus.routes().merge(postgres.routes()), effective, leader.clone())?;

        if settings.socket.0 {
            running.listen_local(&settings.dir.0, http.clone())?;
        }
        if let Some(address) = settings.http.listen.address() {
            running.listen("http", "http", Protocol::Http, address, http)?;
        }
        if let Some(address) = settings.grpc.listen.address() {
            let router = running.grpc(&prometheus, None, leader.clone()).await;
            running.listen("grpc", "grpc", Protocol::Grpc, address, router)?;
        }
        for StoreListen { store, address } in &settings.grpc.stores {
            running.listen_store(&prometheus, store, *address, leader.clone()).await?;
        }
        if let Some(address) = settings.mongo.listen.address() {
            running.listen_mongo(address, &settings.mongo)?;
        }
        if let Some(address) = settings.postgres.listen.address() {
            running.listen_postgres(address, postgres)?;
        }
        if let Every::Period(Period(interval)) = settings.prometheus.self_scrape {
            let addresses = &running.addresses;
            let reached = addresses.iter().find(|address| address.protocol == "http").or(addresses.first());
            let instance = reached.map_or_else(String::new, |reached| reached.address.clone());
            tokio::spawn(prometheus.clone().scrape_self(interval, instance));
        }
        running.prometheus = settings.prometheus.config.is_some().then(|| prometheus.clone());
        tokio::spawn(prometheus.run());
        Ok(running)
    }

    /// Opens a TCP port. `port`: its name among the ports; `name`: that of its protocol.
    fn listen(
        &mut self,
        port: &str,
        name: &'static str,
        protocol: Protocol,
        address: SocketAddr,
        router: Router,
    ) -> Result<(), ServeError> {
        let failed = |source| ServeError::Io { what: format!("listen on {address} for {name}"), source };
        let listener = self.ports.listen(port, address).map_err(failed)?;
        let config = self.certificates.as_ref().map(|c| c.server_config(protocol.alpn())).transpose()?;
        self.serve(name, protocol, listener, config.map(TlsAcceptor::from), router).map_err(failed)
    }

    /// Opens a gRPC port with a default store, which is created with it; on a node that follows, by its leader.
    async fn listen_store(
        &mut self,
        prometheus: &Prometheus,
        store: &str,
        address: SocketAddr,
        leader: Option<Arc<dyn ToLeader>>,
    ) -> Result<(), ServeError> {
        let invalid = |error: ropewalk::Error| SettingsError::Invalid {
            place: "grpc.stores".to_owned(),
            what: error.to_string(),
        };
        let opened = self.service.database().events(store).map_err(invalid)?;
        if self.service.database().leads() {
            opened.create().map_err(ropewalk::Error::from)?;
        }
        let router = self.grpc(prometheus, Some(store), leader).await;
        self.listen(&format!("grpc {store}"), "grpc", Protocol::Grpc, address, router)?;
        if let Some(address) = self.addresses.last_mut() {
            address.store = Some(store.to_owned());
        }
        Ok(())
    }

    /// The routes of the HTTP port and the local socket.
    fn http(
        &self,
        further: Router,
        effective: &Effective,
        leader: Option<Arc<dyn ToLeader>>,
    ) -> Result<Router, ServeError> {
        let settings = &effective.settings;
        let invalid = |what: String| SettingsError::Invalid { place: "http.cors".to_owned(), what };
        let invalid_host = |what: String| SettingsError::Invalid { place: "http.hosts".to_owned(), what };
        let header_bytes = usize::try_from(settings.limits.header_bytes.0).unwrap_or(usize::MAX);
        // Other nodes reach this one by the name that it advertises.
        let is_name = |host: &&String| host.trim_matches(['[', ']']).parse::<IpAddr>().is_err();
        let advertised = settings.cluster.advertise.iter().filter(is_name);
        let names: Vec<&String> = settings.http.hosts.iter().chain(advertised).collect();
        let http = HttpSettings {
            dev: settings.dev,
            cors: Cors::origins(&settings.http.cors).map_err(|error| invalid(error.to_string()))?,
            hosts: Hosts::names(&names).map_err(|error| invalid_host(error.to_string()))?,
            header_bytes_max: header_bytes,
            console: if settings.console == Console::On { crate::console::FILES } else { &[] },
            secure_cookies: self.certificates.is_some(),
            in_force: in_force(effective),
            leader,
            ..HttpSettings::default()
        };
        let (service, transactions) = (self.service.clone(), self.transactions.clone());
        let probes = ropewalk_prometheus::open_routes(service.clone());
        Ok(ropewalk_http::router_with(service, transactions, http, further, probes))
    }

    /// The services of a gRPC port, whose calls use this store when they name none.
    async fn grpc(
        &self,
        prometheus: &Prometheus,
        store: Option<&str>,
        leader: Option<Arc<dyn ToLeader>>,
    ) -> Router {
        let store_of_port = store.map(str::to_owned);
        let settings = GrpcSettings { store: store_of_port, leader, ..GrpcSettings::default() };
        let events = ropewalk_grpc::routes(&self.service, &self.transactions, &settings).await;
        let events = events.into_axum_router();
        let known = axum::middleware::from_fn_with_state(self.service.clone(), known);
        let router = events.merge(prometheus.calls().layer(known));
        let store: Arc<str> = store.unwrap_or(self.service.default_store()).into();
        router.layer(axum::middleware::from_fn(move |request: Request, next: Next| {
            crate::process::spans::name_store(&request, &store);
            next.run(request)
        }))
    }

    fn listen_mongo(&mut self, address: SocketAddr, settings: &MongoDb) -> Result<(), ServeError> {
        let settings = MongoSettings {
            announce: settings.announce.clone(),
            test_commands: settings.test_commands,
            command_time: settings.command_time.0,
        };
        let port = self.lane_port("mongo", &[], address, Mongo::new(self.service.clone(), settings))?;
        self.accepting.spawn(port.serve());
        Ok(())
    }

    fn listen_postgres(&mut self, address: SocketAddr, postgres: Postgres) -> Result<(), ServeError> {
        let port = self.lane_port("postgres", &["postgresql"], address, postgres)?;
        self.accepting.spawn(port.serve());
        Ok(())
    }

    /// Opens the TCP port of a protocol that lanes serve.
    fn lane_port<P>(
        &mut self,
        name: &'static str,
        alpn: &[&str],
        address: SocketAddr,
        protocol: P,
    ) -> Result<LanePort<P>, ServeError> {
        let failed = |source| ServeError::Io { what: format!("listen on {address} for {name}"), source };
        let listener = self.ports.listen(name, address).map_err(failed)?;
        let config = self.certificates.as_ref().map(|c| c.server_config(alpn)).transpose()?;
        let (tls, room, lanes) = (config.map(TlsAcceptor::from), self.room.clone(), self.lanes.clone());
        let places = room.places(self.service.metrics().connections_of(name));
        self.reached(name, &listener, tls.is_some()).map_err(failed)?;
        Ok(LanePort { listener, tls, protocol, room, places, lanes })
    }

    /// Records an address at which the server can be reached.
    fn reached(&mut self, protocol: &'static str, listener: &Listener, tls: bool) -> io::Result<()> {
        let address = Address { protocol: protocol.into(), address: listener.address()?, tls, store: None };
        tracing::info!(protocol, address = address.address, tls, "listening");
        self.addresses.push(address);
        Ok(())
    }

    /// Opens the local socket. On a file system without sockets the server runs without one.
    fn listen_local(&mut self, dir: &Path, router: Router) -> Result<(), ServeError> {
        let bound = LocalSocket::bind(dir).map(Listener::Local);
        match bound.and_then(|listener| self.serve("socket", Protocol::Http, listener, None, router)) {
            Ok(()) => {}
            Err(error) => {
                tracing::warn!(%error, dir = %dir.display(), "no local socket; other commands cannot connect")
            }
        }
        Ok(())
    }

    fn serve(
        &mut self,
        name: &'static str,
        protocol: Protocol,
        listener: Listener,
        tls: Option<TlsAcceptor>,
        router: Router,
    ) -> io::Result<()> {
        self.reached(name, &listener, tls.is_some())?;
        let room = self.room.clone();
        let open = self.service.metrics().connections_of(name);
        let places = match &listener {
            Listener::Local(_) => room.local_places(open),
            _ => room.places(open),
        };
        let memory = self.service.request_memory().clone();
        let stop = self.service.stop().clone();
        self.accepting.spawn(Port { protocol, listener, tls, router, room, places, memory, stop }.serve());
        Ok(())
    }

    /// Serves until a signal, or until the node has ended, then stops.
    async fn until_told(
        mut self,
        signals: &mut Signals,
        joined: Option<&Joined>,
        settings: &Settings,
    ) -> Result<Round, ServeError> {
        let manager = ServiceManager::from_environment();
        manager.ready();
        tracing::info!(pid = std::process::id(), "ready");
        let round = tokio::select! {
            signal = self.serve_on(&manager, signals) => {
                tracing::info!(signal, drain_time = ?self.drain_time, "stopping");
                manager.stopping();
                Ok(Round::Stopped)
            }
            end = ended(joined) => reopened(&end, settings),
        };
        let drain_time = match round {
            Ok(Round::Stopped) => self.drain_time,
            _ => self.drain_time.min(DEPOSED_DRAIN_TIME),
        };
        let Self { service, room, mut accepting, .. } = self;
        // Ports close with their tasks; the system rejects connections still in their queues.
        accepting.shutdown().await;
        service.stop().begin();
        tokio::select! {
            () = Room::drain(room) => {}
            () = tokio::time::sleep(drain_time) => tracing::warn!("some requests did not finish in time"),
            signal = signals.stop() => match round {
                Ok(Round::Reopen(_)) => {
                    tracing::info!(signal, "stopping");
                    return Ok(Round::Stopped);
                }
                _ => tracing::warn!(signal, "stopping at once"),
            },
        }
        round
    }

    /// Starts to reload the configuration; the log reports the result.
    fn reload_prometheus(&self) {
        if let Some(prometheus) = self.prometheus.clone() {
            tokio::spawn(async move { prometheus.reload().await });
        }
    }

    /// Handles signals, certificate changes and the watchdog; returns the signal that stops the server.
    async fn serve_on(&mut self, manager: &ServiceManager, signals: &mut Signals) -> &'static str {
        let mut look = tokio::time::interval(CERTIFICATE_LOOK);
        let mut beat =
            tokio::time::interval(manager.watchdog_interval().unwrap_or(Duration::from_secs(3600)));
        let mut known = self.certificates.as_ref().map(Certificates::state);
        loop {
            let reload = tokio::select! {
                asked = signals.next() => match asked {
                    Asked::Stop(signal) => return signal,
                    Asked::Reload => {
                        self.reload_prometheus();
                        true
                    }
                },
                _ = look.tick() => self.certificates.as_ref().map(Certificates::state) != known,
                _ = beat.tick() => {
                    manager.alive();
                    false
                }
            };
            if let Some(certificates) = self.certificates.as_ref().filter(|_| reload) {
                known = Some(certificates.state());
                match certificates.reload() {
                    Ok(()) => tracing::info!(path = %certificates.path().display(), "certificate reloaded"),
                    Err(error) => {
                        tracing::error!(%error, "certificate reload failed; keeping the current certificate")
                    }
                }
            }
        }
    }
}

/// Waits for the end of the node; for ever without one.
async fn ended(joined: Option<&Joined>) -> cluster::End {
    match joined {
        Some(joined) => joined.ended().await,
        None => core::future::pending().await,
    }
}

fn certificates(settings: &Settings) -> Result<Option<Certificates>, TlsError> {
    match (&settings.tls.cert, &settings.tls.key) {
        (Some(cert), Some(key)) => Certificates::load(cert, key).map(Some),
        _ if settings.dev_tls => Certificates::for_development(&settings.dir.0.join("tls")).map(Some),
        _ => Ok(None),
    }
}

/// Rejects an address that others can reach unless users and TLS are configured.
fn refuse_exposed(settings: &Settings, service: &Service) -> Result<(), ServeError> {
    let places = [
        ("http.listen", settings.http.listen),
        ("grpc.listen", settings.grpc.listen),
        ("mongo.listen", settings.mongo.listen),
        ("postgres.listen", settings.postgres.listen),
    ];
    let of_stores = settings.grpc.stores.iter().map(|of| ("grpc.stores", Listen::At(of.address)));
    let places = places.into_iter().chain(of_stores);
    let mut reachable = places.filter_map(|(name, listen)| Some((name, listen.address()?)));
    let Some((name, address)) = reachable.find(|(_, address)| !address.ip().is_loopback()) else {
        return Ok(());
    };
    if settings.insecure {
        tracing::warn!(%address, "insecure: every client that reaches this address may do everything");
        return Ok(());
    }
    let mut missing = Vec::new();
    if service.access().is_open() {
        missing.push("there is no user (`ropewalk user add NAME`)");
    }
    if settings.tls.cert.is_none() && !settings.dev_tls {
        missing.push("there is no TLS (tls.cert and tls.key, or dev_tls)");
    }
    if missing.is_empty() {
        return Ok(());
    }
    let what = format!(
        "{name} = {address} can be reached by others, but {}; --insecure allows it",
        missing.join(" and ")
    );
    Err(ServeError::Exposed { what })
}

/// Authenticates a call to a service other than those of `ropewalk_grpc`.
async fn known(State(service): State<Service>, mut request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<TcpConnectInfo>().and_then(|connection| connection.remote_addr());
    match ropewalk_grpc::known_caller(&service, request.headers(), peer.map(|peer| peer.ip())).await {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(status) => status.into_http(),
    }
}

fn postgres(service: &Service, settings: &Settings) -> Postgres {
    let settings = PostgresSettings {
        opening_time: settings.limits.header_time.0,
        transaction_idle_time: settings.postgres.transaction_idle_time.0,
        column_memory: match settings.postgres.column_memory {
            Share::Auto => PostgresSettings::default().column_memory,
            Share::Bytes(bytes) => usize::try_from(bytes.0).unwrap_or(usize::MAX),
        },
        temp_files: TempFileLimits {
            all: settings.postgres.temp_files.0,
            statement: settings.postgres.statement_temp_files.0,
        },
    };
    Postgres::new(service.clone(), settings)
}

fn prometheus(service: &Service, settings: &Settings) -> Result<Prometheus, ServeError> {
    let prometheus = &settings.prometheus;
    let config = prometheus.config.as_deref().map(Config::read).transpose()?;
    let settings = PrometheusSettings {
        store: prometheus.store.clone(),
        query_time: prometheus.query_time.0,
        query_samples: prometheus.query_samples,
        query_bytes: prometheus.query_bytes.0,
        queries_bytes: prometheus.queries_bytes.0,
        answer_bytes: prometheus.answer_bytes.0,
        lookback: prometheus.lookback.0,
        otlp_deltas: match prometheus.otlp_deltas {
            OtlpDeltas::Refuse => Deltas::Refuse,
            OtlpDeltas::Keep => Deltas::Keep,
            OtlpDeltas::Cumulate => Deltas::Cumulate,
        },
        ..PrometheusSettings::default()
    };
    Ok(Prometheus::new(service.clone(), settings, config.unwrap_or_default())?)
}
