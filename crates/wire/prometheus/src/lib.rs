//! Prometheus on the wire: what pushes samples, what asks for them, what reads them back, over one series store.
//!
//!   remote write, text, line protocol, OTLP ─▶ ingest ─▶ SampleBatch ─▶ one commit, durable when it is answered
//!   query, query_range ─▶ PromQL over one snapshot ─▶ JSON      labels, series, status ─▶ JSON
//!   remote read ─▶ samples or chunks                             federate ─▶ text
//!
//! Read `write` for ingest, `query` for the language, `names` for what Grafana's pickers ask, `answer` for the envelope that
//! all of them share. The listener, users and the general limits are those of the HTTP port: see [`routes`].
#![deny(missing_docs)]
#![allow(dead_code)] // what the query API needs, which follows

mod answer;
mod body;
mod exposition;
mod influx;
mod ingest;
mod labels;
mod number;
mod params;
mod protobuf;
mod read;
mod scrape;
mod settings;
mod status;
mod write;
mod xor;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use ropewalk::series::SeriesStore;
use ropewalk_wire::{Caller, Right, Service, WireError};
use tokio::sync::Semaphore;

pub use scrape::scrape_self;
pub use settings::PrometheusSettings;

use answer::{ApiError, Kind};

/// What every handler has at hand.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) service: Service,
    pub(crate) settings: Arc<PrometheusSettings>,
    /// Queries that are worked on at the same time.
    turns: Arc<Semaphore>,
    started: std::time::SystemTime,
}

impl App {
    fn new(service: Service, settings: PrometheusSettings) -> Self {
        let turns = Arc::new(Semaphore::new(settings.queries.clamp(1, Semaphore::MAX_PERMITS)));
        Self { service, settings: Arc::new(settings), turns, started: std::time::SystemTime::now() }
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

    /// Runs work that may take its time where it may block.
    pub(crate) async fn off_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let _turn = self.turns.acquire().await;
        let broken = |_| ApiError::new(Kind::Internal, "the request could not be worked on");
        tokio::task::spawn_blocking(work).await.map_err(broken)
    }
}

/// The routes that need a caller: the request must carry a [`Caller`] as extension.
pub fn routes(service: Service, settings: PrometheusSettings) -> Router {
    let app = App::new(service, settings);
    Router::new()
        .route("/api/v1/write", post(write::write))
        .route("/api/v1/read", post(read::read))
        .route("/api/v1/metadata", get(status::metadata))
        .route("/api/v1/targets", get(status::targets))
        .route("/api/v1/targets/metadata", get(status::targets_metadata))
        .route("/api/v1/rules", get(status::rules))
        .route("/api/v1/alerts", get(status::alerts))
        .route("/api/v1/alertmanagers", get(status::alertmanagers))
        .route("/api/v1/status/buildinfo", get(status::build_info))
        .route("/api/v1/status/runtimeinfo", get(status::runtime_info))
        .route("/api/v1/status/flags", get(status::flags))
        .route("/api/v1/status/config", get(status::config))
        .route("/api/v1/status/tsdb", get(status::tsdb))
        .route("/api/v1/import/prometheus", post(exposition::import))
        .route("/write", post(influx::write))
        .route("/api/v2/write", post(influx::write))
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
