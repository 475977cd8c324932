//! Type, unit and help of metrics on their way in. Clients send them again and again, some with every request, so what was
//! stored lately is remembered, and only what is new is written.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use ropewalk::series::{HELP_BYTES_MAX, Metadata, MetricType, UNIT_BYTES_MAX};
use ropewalk_wire::WireError;

use crate::App;
use crate::answer::ApiError;
use crate::ingest::Refused;

/// Metrics that are remembered; beyond it the memory begins anew.
const METRICS_MAX: usize = 100_000;

/// What was stored lately.
#[derive(Debug, Default)]
pub(crate) struct Described(Mutex<HashMap<String, Metadata>>);

/// The type that a message of remote write means by a number.
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
pub(crate) struct Descriptions(HashMap<String, Metadata>);

impl Descriptions {
    /// The description of a metric, to be filled in.
    pub(crate) fn of(&mut self, metric: &str) -> &mut Metadata {
        self.0.entry(metric.to_owned()).or_default()
    }

    /// Adds a whole one, unless it is over the limits.
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

/// Stores what is new of it; durable when it returns. The caller's right has been looked at.
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
