//! Type, unit and help of incoming metrics. Clients send them repeatedly, some with every request, so
//! recently stored ones are cached and only changes are written.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use ropewalk::series::{HELP_BYTES_MAX, Metadata, MetricType, UNIT_BYTES_MAX};
use ropewalk_wire::WireError;

use crate::app::App;
use crate::ingest::Refused;
use crate::request::response::ApiError;

/// Limit of cached metrics; the cache is cleared when it is reached.
const METRICS_MAX: usize = 100_000;

/// Cache of the recently stored metadata.
#[derive(Debug, Default)]
pub(crate) struct Described(Mutex<HashMap<String, Metadata>>);

/// The metric type of a remote write number.
pub(crate) fn metric_type(number: u64) -> MetricType {
    match number {
        1 => MetricType::Counter,
        2 => MetricType::Gauge,
        3 => MetricType::Histogram,
        4 => MetricType::GaugeHistogram,
        5 => MetricType::Summary,
        6 => MetricType::Info,
        7 => MetricType::StateSet,
        _ => MetricType::Unknown,
    }
}

/// Descriptions of one request, by metric.
#[derive(Debug, Default)]
pub(crate) struct Descriptions(pub(crate) HashMap<String, Metadata>);

impl Descriptions {
    /// The description of a metric, to be filled in.
    pub(crate) fn of(&mut self, metric: &str) -> &mut Metadata {
        self.0.entry(metric.to_owned()).or_default()
    }

    /// Adds a complete description, unless it is over the limits.
    pub(crate) fn add(&mut self, metric: &str, metadata: Metadata, refused: &mut Refused) {
        if metric.is_empty() || metadata.help.len() > HELP_BYTES_MAX || metadata.unit.len() > UNIT_BYTES_MAX {
            let why = || {
                format!(
                    "metadata of {metric:?} is over the limits of {UNIT_BYTES_MAX} and {HELP_BYTES_MAX} bytes"
                )
            };
            return refused.add(1, why);
        }
        *self.of(metric) = metadata;
    }
}

impl Described {
    fn fresh(&self, all: Descriptions) -> Vec<(String, Metadata)> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut fresh: Vec<_> =
            all.0.into_iter().filter(|(name, new)| known.get(name) != Some(new)).collect();
        fresh.sort_by(|a, b| a.0.cmp(&b.0));
        fresh
    }

    fn remember(&self, stored: Vec<(String, Metadata)>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() + stored.len() > METRICS_MAX {
            known.clear();
        }
        known.extend(stored);
    }
}

/// Stores the new or changed ones; durable when it returns. The caller's right has been checked before.
pub(crate) async fn store(app: &App, all: Descriptions) -> Result<(), ApiError> {
    let fresh = app.described.fresh(all);
    if fresh.is_empty() {
        return Ok(());
    }
    let store = app.store()?;
    let work = move || store.set_metadata(&fresh).map(|()| fresh);
    let stored = app.wait_for(work).await?;
    app.described.remember(stored.map_err(|error| WireError::from(ropewalk::Error::from(error)))?);
    Ok(())
}
