//! Import of series as JSON lines, VictoriaMetrics' export format: `POST /api/v1/import`.
//!
//! ```text
//! {"metric":{"__name__":"up","job":"a"},"values":[1,0.5,null,"Infinity"],"timestamps":[1000,2000,3000,4000]}
//! ```
//! The text is one commit: an unreadable line rejects all of it, and the error has its line number. Times are
//! milliseconds; numbers that JSON lacks are strings (`NaN`, `Infinity`, `-Infinity`), and `null` is NaN.
//! `extra_label=name=value` adds a label.

use std::collections::BTreeMap;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use ropewalk::series::SampleBatch;
use ropewalk_auth::Caller;
use ropewalk_http_kit::params::pairs;
use ropewalk_monitoring::notation::parse_float;
use serde::Deserialize;

use crate::app::App;
use crate::ingest::exposition::extra_label;
use crate::ingest::labels::{LabelSet, Rejected};
use crate::ingest::{self, Read};
use crate::request::response::{ApiError, Plain};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    metric: BTreeMap<String, String>,
    values: Vec<Option<Number>>,
    timestamps: Vec<i64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Float(f64),
    Text(String),
}

impl Number {
    fn value(&self) -> Result<f64, String> {
        match self {
            Self::Float(value) => Ok(*value),
            Self::Text(text) => parse_float(text).ok_or_else(|| format!("{text:?} is no number")),
        }
    }
}

/// Reads all lines.
///
/// # Errors
/// The first line that cannot be read, or whose labels are invalid.
fn read(text: &str, extra: &[(String, String)]) -> Result<SampleBatch, String> {
    let mut batch = SampleBatch::new();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        add(&mut batch, line, extra).map_err(|why| format!("line {number}: {why}"))?;
    }
    Ok(batch)
}

fn add(batch: &mut SampleBatch, line: &str, extra: &[(String, String)]) -> Result<(), String> {
    let Line { mut metric, values, timestamps } =
        serde_json::from_str(line).map_err(|error| error.to_string())?;
    if values.len() != timestamps.len() {
        return Err(format!("{} values with {} timestamps", values.len(), timestamps.len()));
    }
    metric.extend(extra.iter().cloned());
    let mut labels = LabelSet::default();
    metric.iter().for_each(|(name, value)| labels.push(name.as_bytes(), value.as_bytes()));
    let stored = labels.stored().map_err(|Rejected(why)| why)?;
    if values.is_empty() {
        return Ok(());
    }
    let mut series = batch.series_bytes(stored);
    for (value, time_ms) in values.iter().zip(timestamps) {
        series.push(time_ms, value.as_ref().map_or(Ok(f64::NAN), Number::value)?);
    }
    Ok(())
}

/// `POST /api/v1/import`.
pub(crate) async fn import(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<StatusCode, Plain> {
    let mut extra = Vec::new();
    for (name, value) in pairs(request.uri().query())? {
        match name.as_str() {
            "extra_label" => extra.push(extra_label(&value)?),
            other => return Err(ApiError::parameter(other, "there is extra_label").into()),
        }
    }
    let read = move |text: &str| {
        let batch = read(text, &extra).map_err(ApiError::bad)?;
        Ok(Read { batch, ..Read::default() })
    };
    Ok(ingest::import(&app, &caller, request, read).await?)
}
