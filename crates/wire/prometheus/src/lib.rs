//! Prometheus' HTTP protocols: ingest, queries and remote read over one series store.
//!
//!   remote write, text, line protocol, OTLP ─▶ ingest ─▶ SampleBatch ─▶ one commit, durable once acknowledged
//!   query, query_range ─▶ PromQL over one snapshot ─▶ JSON      labels, series, status ─▶ JSON
//!   remote read ─▶ samples or chunks                             federate ─▶ text
//!
//! Rooms, from top to bottom: `routes` has the table of rights; `status`, `export`, `runtime_rules`, `ingest`
//! and `query` have the handlers, `host` the server as [`ropewalk_monitoring`] uses it; `app` is the state of
//! the handlers, which names three rooms above it; `request` has parameters, bodies, the response envelope and
//! times.
//!
//! The listener, users and the general limits are those of the HTTP port: see [`Prometheus::routes`].
#![deny(missing_docs)]

mod app;
mod export;
mod host;
mod ingest;
mod query;
mod request;
mod routes;
mod runtime_rules;
mod settings;
mod status;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use ropewalk::promql::SharedMemory;
use ropewalk_auth::Operation;
use ropewalk_monitoring::{Config, ConfigError};
use ropewalk_wire::{Service, WireError};

pub use settings::{Deltas, PrometheusSettings};

use app::App;

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

    /// The routes that require a caller: the request must carry a `Caller` as extension.
    pub fn routes(&self) -> Router {
        routes::router(routes::http(), &self.0)
    }

    /// The memory limit shared by all queries and their results, for other surfaces that evaluate queries.
    pub fn memory(&self) -> Arc<SharedMemory> {
        self.0.memory.clone()
    }

    /// The gRPC calls, OTLP's `MetricsService/Export` and Flight's `DoPut`: the request must carry a
    /// `Caller` as extension.
    pub fn calls(&self) -> Router {
        routes::router(routes::grpc(), &self.0)
    }

    /// Scrapes, evaluates rules and sends alerts, until the server stops. A node that follows waits until it leads.
    pub async fn run(self) {
        if !self.0.service.until_leading().await {
            return;
        }
        // An earlier leader may have changed them.
        self.0.runtime_rules.refresh();
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

    /// Appends the server's own metrics every `interval`, until the server stops. A node that follows waits until it leads.
    pub async fn scrape_self(self, interval: Duration, instance: String) {
        if !self.0.service.until_leading().await {
            return;
        }
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
