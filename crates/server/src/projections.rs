//! Declared projections in the server: their runner, and their metrics.

use std::sync::Arc;

use ropewalk::Database;
use ropewalk_projector::{Runner, RunnerOptions, RunningProjections};
use ropewalk_sql::{ListedProjections, ProjectionInfo, projections_at};
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
    let ListedProjections { readable, damaged } = match projections_at(db, &db.snapshot()) {
        Ok(listed) => listed,
        Err(error) => {
            tracing::warn!(%error, "the projections cannot be read");
            return Vec::new();
        }
    };
    let labels = |name: &str, store: &str| vec![("projection", name.to_owned()), ("store", store.to_owned())];
    let gauge = |name, help, value: &dyn Fn(&ProjectionInfo) -> f64| {
        let labelled = |info: &ProjectionInfo| (labels(&info.def.name, &info.def.store), value(info));
        Gauge { name, help, rows: readable.iter().map(labelled).collect() }
    };
    if readable.is_empty() && damaged.is_empty() {
        return Vec::new();
    }
    let help = "1 when the projection stopped at an event, or its declaration is damaged.";
    let mut failed =
        gauge("ropewalk_projection_failed", help, &|info| f64::from(u8::from(info.error().is_some())));
    failed.rows.extend(damaged.iter().map(|one| (labels(&one.name, &one.store), 1.0)));
    vec![
        gauge("ropewalk_projection_lag_events", "Matching events that are not applied yet.", &|info| {
            info.status.lag as f64
        }),
        gauge("ropewalk_projection_parked", "Events that were set aside.", &|info| info.parked as f64),
        failed,
    ]
}
