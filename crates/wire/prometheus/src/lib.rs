//! Prometheus on the wire: what pushes samples, what asks for them, what reads them back, over one series store.
//!
//!   remote write, text, line protocol, OTLP ─▶ ingest ─▶ SampleBatch ─▶ one commit, durable when it is answered
//!   query, query_range ─▶ PromQL over one snapshot ─▶ JSON      labels, series, status ─▶ JSON
//!   remote read ─▶ samples or chunks                             federate ─▶ text
//!
//! Read `write` for ingest, `query` for the language, `names` for what Grafana's pickers ask, `answer` for the envelope that
//! all of them share. The listener, users and the general limits are those of the HTTP port: see [`Prometheus::routes`]. `routes` has the right of each.
#![deny(missing_docs)]

mod admin;
mod answer;
mod body;
mod cache;
mod csv;
mod described;
mod exposition;
mod features;
mod federate;
mod flight;
mod influx;
mod ingest;
mod jobs;
mod json_lines;
mod labels;
mod names;
mod number;
mod otlp;
mod params;
mod protobuf;
mod query;
mod read;
mod routes;
mod scrape;
mod settings;
mod status;
mod steps;
mod stream;
mod time;
mod tree;
mod turn;
mod value;
mod write;
mod xor;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use ropewalk::promql::SharedMemory;
use ropewalk::series::SeriesStore;
use ropewalk_wire::{Operation, Service, WireError};
use tokio::sync::Semaphore;

pub use jobs::{Config, ConfigError};
pub use otlp::Deltas;
pub use settings::PrometheusSettings;

use answer::{ApiError, Kind};
use cache::Answers;
use described::Described;
use jobs::Jobs;
use jobs::kept::Kept;
use steps::Evaluated;
use turn::Turns;

/// Requests that wait for the disk at the same time.
const WAITING_MAX: usize = 16;

/// What every handler has at hand. Each request takes several clones.
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
    /// Questions that are worked on, and requests that are decoded, at the same time.
    turns: Arc<Turns>,
    /// What waits for the disk at the same time.
    waiting: Arc<Semaphore>,
    /// Answers that are still right.
    pub(crate) answers: Arc<Answers>,
    pub(crate) evaluated: Arc<Evaluated>,
    /// Series that remote write knows.
    known: Arc<write::known::Known>,
    /// What deltas of OTLP have added up to.
    pub(crate) totals: Arc<otlp::Totals>,
    /// What is known of metrics.
    described: Arc<Described>,
    /// What the server does by itself.
    pub(crate) jobs: Arc<Jobs>,
    /// Rules that clients set.
    pub(crate) kept: Arc<Kept>,
    /// What all queries and long answers may hold together.
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
        let jobs = Arc::new(Jobs::new(config));
        // Whole answers for those who ask again, and steps for those whose window moves.
        let answers = Arc::new(Answers::new(settings.answer_bytes / 2));
        let evaluated = Arc::new(Evaluated::new(settings.answer_bytes / 2));
        let kept = Arc::new(Kept::open(service.database())?);
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
            jobs,
            kept,
            memory,
            started,
        })))
    }

    /// The store that all of this is about.
    pub(crate) fn store(&self) -> Result<SeriesStore, ApiError> {
        let store = self.service.database().series(&self.settings.store);
        store.map_err(|error| WireError::from(error).into())
    }

    /// Answers a question, or takes in what a client wrote, where that may take its time and block.
    pub(crate) async fn off_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let turn = self.turns.next().await;
        run(turn, work).await
    }

    /// Does what waits for the disk more than it works: it takes no turn.
    pub(crate) async fn wait_for<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        // The semaphore is never closed.
        let place = self.waiting.clone().acquire_owned().await.ok();
        run(place, work).await
    }
}

/// Works on a thread that may block, and then gives back what was held meanwhile.
async fn run<H: Send + 'static, T: Send + 'static>(
    held: H,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    let work = move || {
        let done = work();
        drop(held);
        done
    };
    let broken = |_| ApiError::new(Kind::Internal, "the request could not be worked on");
    tokio::task::spawn_blocking(work).await.map_err(broken)
}

/// Prometheus over one store of a service: its routes, and what it does by itself.
#[derive(Clone)]
pub struct Prometheus(App);

impl Prometheus {
    /// Over `service`; `config` says what it does by itself.
    ///
    /// # Errors
    /// What is kept of it in the database cannot be read.
    pub fn new(service: Service, settings: PrometheusSettings, config: Config) -> Result<Self, WireError> {
        Ok(Self(App::new(service, settings, config)?))
    }

    /// The routes that need a caller: the request must carry a [`Caller`] as extension.
    pub fn routes(&self) -> Router {
        routes::router(routes::http(), &self.0)
    }

    /// The memory that all queries and their answers share, for other surfaces that evaluate queries.
    pub fn memory(&self) -> Arc<SharedMemory> {
        self.0.memory.clone()
    }

    /// The calls for the port of gRPC, OTLP's `MetricsService/Export` and Flight's `DoPut`: the request must carry a [`Caller`] as extension.
    pub fn calls(&self) -> Router {
        routes::router(routes::grpc(), &self.0)
    }

    /// Scrapes, evaluates rules and tells of alerts, until the server stops.
    pub async fn run(self) {
        jobs::run(self.0).await;
    }

    /// Reads the file of the configuration again, with all that it names, and does what it says now. Rules, alerts and targets
    /// that are still there go on.
    ///
    /// # Errors
    /// As [`Config::read`]; everything stays as it was then.
    pub async fn reload(&self) -> Result<(), ConfigError> {
        jobs::reload(self.0.clone()).await
    }

    /// Appends the server's own metrics every `interval`, until the server stops.
    pub async fn scrape_self(self, interval: Duration, instance: String) {
        scrape::scrape_self(self.0, interval, instance).await;
    }
}

/// Every operation of [`Prometheus::routes`], [`Prometheus::calls`] and [`open_routes`], with the rights that it needs.
pub fn operations() -> Vec<Operation> {
    routes::operations()
}

/// The routes for everybody: whether the server lives, and whether it takes requests.
pub fn open_routes(service: Service) -> Router {
    let [healthy, ready] = routes::OPEN;
    Router::new()
        .route(healthy, get(status::healthy).head(status::healthy))
        .route(ready, get(status::ready).head(status::ready))
        .with_state(service)
}

/// This moment in milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
