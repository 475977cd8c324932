//! Declared projections in the server: their runner, and their metrics.

use std::sync::Arc;

use ropewalk::Database;
use ropewalk_projector::{Runner, RunnerOptions, RunningProjections};
use ropewalk_sql::{ProjectionInfo, projections_at};
use ropewalk_wire::Gauge;

use crate::server::ServeError;

/// Starts the runner. It stops when the returned value is dropped.
pub(crate) fn start(db: &Database) -> Result<RunningProjections, ServeError> {
    let report = |projection: &str, error: &dyn std::error::Error| {
        tracing::warn!(projection, error = %error, "projection failed");
    };
    let options = RunnerOptions { report: Arc::new(report), ..RunnerOptions::default() };
    Runner::new(db.clone(), options)
        .start()
        .map_err(|source| ServeError::Io { what: "start the thread of the projections".to_owned(), source })
}

/// Lag, parked events and failures of each projection.
pub(crate) fn gauges(db: &Database) -> Vec<Gauge> {
    let all = projections_at(db, &db.snapshot()).unwrap_or_else(|error| {
        tracing::warn!(%error, "the projections cannot be read");
        Vec::new()
    });
    let gauge = |name, help, value: &dyn Fn(&ProjectionInfo) -> f64| {
        let labels = |info: &ProjectionInfo| {
            vec![("projection", info.def.name.clone()), ("store", info.def.store.clone())]
        };
        Gauge { name, help, rows: all.iter().map(|info| (labels(info), value(info))).collect() }
    };
    if all.is_empty() {
        return Vec::new();
    }
    vec![
        gauge("ropewalk_projection_lag_events", "Matching events that are not applied yet.", &|info| {
            info.status.lag as f64
        }),
        gauge("ropewalk_projection_parked", "Events that were set aside.", &|info| info.parked as f64),
        gauge("ropewalk_projection_failed", "1 when the projection stopped at an event.", &|info| {
            f64::from(u8::from(info.error().is_some()))
        }),
    ]
}
