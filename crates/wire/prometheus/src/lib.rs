//! Prometheus on the wire: what pushes samples, what asks for them, what reads them back, over one series store.
//!
//!   remote write, text, line protocol, OTLP ─▶ ingest ─▶ SampleBatch ─▶ one commit, durable when it is answered
//!   query, query_range ─▶ PromQL over one snapshot ─▶ JSON      labels, series, status ─▶ JSON
//!   remote read ─▶ samples or chunks                             federate ─▶ text
//!
//! Read `write` for ingest, `query` for the language, `names` for what Grafana's pickers ask, `answer` for the envelope that
//! all of them share. The listener, users and the general limits are those of the HTTP port: see [`routes`].
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
use axum::routing::{get, post};
use ropewalk::series::SeriesStore;
use ropewalk_wire::{Caller, Right, Service, WireError};
use tokio::sync::Semaphore;

pub use jobs::{Config, ConfigError};
pub use otlp::Deltas;
pub use settings::PrometheusSettings;

use answer::{ApiError, Kind};
use cache::Answers;
use described::Described;
use jobs::Jobs;
use jobs::kept::{self, Kept};
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
            started,
        })))
    }

    /// The store that all of this is about.
    pub(crate) fn store(&self) -> Result<SeriesStore, ApiError> {
        let store = self.service.database().series(&self.settings.store);
        store.map_err(|error| WireError::from(error).into())
    }

    /// Refuses what the caller may not do.
    pub(crate) fn may(&self, caller: &Caller, right: Right) -> Result<(), ApiError> {
        Ok(self.service.check(caller, right, &self.settings.store)?)
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
        routes(self.0.clone())
    }

    /// The calls for the port of gRPC, OTLP's `MetricsService/Export` and Flight's `DoPut`: the request must carry a [`Caller`] as extension.
    pub fn calls(&self) -> Router {
        let measured = axum::middleware::from_fn_with_state(self.0.clone(), status::measure);
        let calls = Router::new()
            .route(otlp::grpc::PATH, post(otlp::grpc::export))
            .route(flight::PATH, post(flight::do_put));
        calls.layer(measured).with_state(self.0.clone())
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

fn routes(app: App) -> Router {
    let drops = get(kept::drop_rules).post(kept::add_drop_rule).delete(kept::remove_drop_rule);
    let derived =
        get(kept::derived_metrics).post(kept::add_derived_metric).delete(kept::remove_derived_metric);
    let names = get(names::names).post(names::names);
    let series = get(names::series).post(names::series).delete(names::refuse_delete);
    Router::new()
        .route("/api/v1/write", post(write::write))
        .route("/api/v1/read", post(read::read))
        .route("/api/v1/query", get(query::instant).post(query::instant))
        .route("/api/v1/query_range", get(query::range).post(query::range))
        .route("/api/v1/query_exemplars", get(query::exemplars).post(query::exemplars))
        .route("/api/v1/format_query", get(query::format).post(query::format))
        .route("/api/v1/parse_query", get(tree::parse).post(tree::parse))
        .route("/api/v1/labels", names)
        .route("/api/v1/label/{name}/values", get(names::values))
        .route("/api/v1/series", series)
        .route("/api/v1/metadata", get(status::metadata))
        .route("/api/v1/targets", get(jobs::show::targets))
        .route("/api/v1/scrape_pools", get(jobs::show::scrape_pools))
        .route("/api/v1/targets/metadata", get(status::targets_metadata))
        .route("/api/v1/rules", get(jobs::show::rules))
        .route("/api/v1/alerts", get(jobs::show::alerts))
        .route("/api/v1/alertmanagers", get(jobs::show::alertmanagers))
        .route("/api/v1/status/buildinfo", get(status::build_info))
        .route("/api/v1/status/runtimeinfo", get(status::runtime_info))
        .route("/api/v1/status/flags", get(status::flags))
        .route("/api/v1/status/config", get(status::config))
        .route("/api/v1/status/tsdb", get(status::tsdb))
        .route("/api/v1/status/walreplay", get(status::replayed))
        .route("/api/v1/notifications", get(status::notifications))
        .route("/api/v1/features", get(features::features))
        .route("/api/v1/admin/tsdb/delete_series", post(admin::delete_series).put(admin::delete_series))
        .route("/api/v1/admin/tsdb/clean_tombstones", post(admin::clean).put(admin::clean))
        .route("/api/v1/admin/tsdb/snapshot", post(admin::snapshot).put(admin::snapshot))
        .route("/api/v1/import", post(json_lines::import))
        .route("/api/v1/import/csv", post(csv::import))
        .route("/api/v1/import/prometheus", post(exposition::import))
        .route("/api/v1/otlp/v1/metrics", post(otlp::write))
        .route("/api/v1/config/drop-rules", drops)
        .route("/api/v1/config/derived-metrics", derived)
        .route("/-/reload", post(jobs::reload_now).put(jobs::reload_now))
        .route("/write", post(influx::write))
        .route("/api/v2/write", post(influx::write))
        .route("/federate", get(federate::federate))
        .layer(axum::middleware::from_fn_with_state(app.clone(), status::measure))
        .with_state(app)
}

/// The routes for everybody: whether the server lives, and whether it takes requests.
pub fn open_routes(service: Service) -> Router {
    Router::new()
        .route("/-/healthy", get(status::healthy).head(status::healthy))
        .route("/-/ready", get(status::ready).head(status::ready))
        .with_state(service)
}

/// This moment in milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
