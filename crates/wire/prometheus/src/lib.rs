//! Prometheus' HTTP protocols: ingest, queries and remote read over one series store.
//!
//!   remote write, text, line protocol, OTLP ─▶ ingest ─▶ SampleBatch ─▶ one commit, durable once acknowledged
//!   query, query_range ─▶ PromQL over one snapshot ─▶ JSON      labels, series, status ─▶ JSON
//!   remote read ─▶ samples or chunks                             federate ─▶ text
//!
//! Read `write` for ingest, `query` for the language, `names` for the lookups of Grafana's pickers, `answer`
//! for the response envelope. The listener, users and the general limits are those of the HTTP port: see
//! [`Prometheus::routes`]. `routes` lists the right that each operation needs.
#![deny(missing_docs)]

mod export;
mod host;
mod ingest;
mod query;
mod request;
mod routes;
mod runtime_rules;
mod settings;
mod status;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use ropewalk::promql::SharedMemory;
use ropewalk::series::SeriesStore;
use ropewalk_auth::Operation;
use ropewalk_monitoring::{Config, ConfigError, Monitoring};
use ropewalk_wire::{Service, WireError};
use tokio::sync::Semaphore;

pub use ingest::otlp::Deltas;
pub use settings::PrometheusSettings;

use ingest::metadata::Described;
use query::range_cache::Evaluated;
use query::result_cache::Answers;
use query::scheduler::Turns;
use request::response::{ApiError, Kind};
use runtime_rules::RuntimeRules;

/// Concurrent requests that wait for the disk.
const WAITING_MAX: usize = 16;

/// Shared state of the handlers. Each request clones it several times.
#[derive(Clone)]
pub(crate) struct App(Arc<Parts>);

impl Deref for App {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

pub(crate) struct Parts {
    pub(crate) service: Service,
    pub(crate) settings: Arc<PrometheusSettings>,
    /// Scheduler slots: bounds concurrent queries and decoding requests.
    turns: Arc<Turns>,
    /// Bounds concurrent requests that wait for the disk.
    waiting: Arc<Semaphore>,
    /// Cache of complete responses that are still valid.
    pub(crate) answers: Arc<Answers>,
    pub(crate) evaluated: Arc<Evaluated>,
    /// Series cache of remote write.
    known: Arc<ingest::remote_write::known::Known>,
    /// Running totals of OTLP deltas.
    pub(crate) totals: Arc<ingest::otlp::Totals>,
    /// Cache of metric metadata.
    described: Arc<Described>,
    /// Scraping, rules and alerts of the server.
    pub(crate) monitoring: Arc<Monitoring>,
    /// Rules that clients set, stored in the database.
    pub(crate) runtime_rules: RuntimeRules,
    /// Memory limit over all queries and long responses.
    pub(crate) memory: Arc<SharedMemory>,
    started: std::time::SystemTime,
}

impl App {
    fn new(service: Service, settings: PrometheusSettings, config: Config) -> Result<Self, WireError> {
        let turns = Turns::new(settings.queries);
        let waiting = Arc::new(Semaphore::new(WAITING_MAX));
        let (settings, started) = (Arc::new(settings), std::time::SystemTime::now());
        if config.path.is_some() {
            service.metrics().config_read(true);
        }
        // Complete responses for repeated requests, and steps for moving windows.
        let answers = Arc::new(Answers::new(settings.answer_bytes / 2));
        let evaluated = Arc::new(Evaluated::new(settings.answer_bytes / 2));
        let (runtime_rules, derived) = RuntimeRules::open(service.database())?;
        let monitoring = Arc::new(Monitoring::new(config, derived));
        let memory = SharedMemory::new(settings.queries_bytes);
        let (described, known, totals) = (Arc::default(), Arc::default(), Arc::default());
        Ok(Self(Arc::new(Parts {
            answers,
            evaluated,
            service,
            settings,
            turns,
            waiting,
            known,
            totals,
            described,
            monitoring,
            runtime_rules,
            memory,
            started,
        })))
    }

    /// The series store of this server.
    pub(crate) fn store(&self) -> Result<SeriesStore, ApiError> {
        let store = self.service.database().series(&self.settings.store);
        store.map_err(|error| WireError::from(error).into())
    }

    /// Runs CPU work that may block, such as a query or a decoding, on a blocking thread in a scheduler slot.
    pub(crate) async fn off_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let turn = self.turns.next().await;
        run(turn, work).await
    }

    /// Runs work that mostly waits for the disk; it takes no scheduler slot.
    pub(crate) async fn wait_for<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        // The semaphore is never closed.
        let place = self.waiting.clone().acquire_owned().await.ok();
        run(place, work).await
    }
}

/// Runs work on a thread that may block, and releases `held` when it is done.
async fn run<H: Send + 'static, T: Send + 'static>(
    held: H,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    let work = move || {
        let done = work();
        drop(held);
        done
    };
    let broken = |_| ApiError::new(Kind::Internal, "the request could not be processed");
    tokio::task::spawn_blocking(work).await.map_err(broken)
}

/// Prometheus over one store of a service: its routes and its background jobs.
#[derive(Clone)]
pub struct Prometheus(App);

impl Prometheus {
    /// Over `service`; `config` defines the background jobs.
    ///
    /// # Errors
    /// The rules stored in the database cannot be read.
    pub fn new(service: Service, settings: PrometheusSettings, config: Config) -> Result<Self, WireError> {
        Ok(Self(App::new(service, settings, config)?))
    }

    /// The routes that require a caller: the request must carry a [`Caller`] as extension.
    pub fn routes(&self) -> Router {
        routes::router(routes::http(), &self.0)
    }

    /// The memory limit shared by all queries and their results, for other surfaces that evaluate queries.
    pub fn memory(&self) -> Arc<SharedMemory> {
        self.0.memory.clone()
    }

    /// The gRPC calls, OTLP's `MetricsService/Export` and Flight's `DoPut`: the request must carry a
    /// [`Caller`] as extension.
    pub fn calls(&self) -> Router {
        routes::router(routes::grpc(), &self.0)
    }

    /// Scrapes, evaluates rules and sends alerts, until the server stops.
    pub async fn run(self) {
        let monitoring = self.0.monitoring.clone();
        monitoring.run(self.0).await;
    }

    /// Reads the configuration file and all files that it names again, and applies it. Rules, alerts and
    /// targets that are still configured continue without a break.
    ///
    /// # Errors
    /// As [`Config::read`]; the running configuration then stays in force.
    pub async fn reload(&self) -> Result<(), ConfigError> {
        self.0.monitoring.clone().reload(self.0.clone()).await
    }

    /// Appends the server's own metrics every `interval`, until the server stops.
    pub async fn scrape_self(self, interval: Duration, instance: String) {
        ingest::self_scrape::scrape_self(self.0, interval, instance).await;
    }
}

/// Every operation of [`Prometheus::routes`], [`Prometheus::calls`] and [`open_routes`], with the rights it
/// needs.
pub fn operations() -> Vec<Operation> {
    routes::operations()
}

/// The routes without authentication: whether the server lives, and whether it takes requests.
pub fn open_routes(service: Service) -> Router {
    let [healthy, ready] = routes::OPEN;
    Router::new()
        .route(healthy, get(status::healthy).head(status::healthy))
        .route(ready, get(status::ready).head(status::ready))
        .with_state(service)
}

/// The current time in milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
