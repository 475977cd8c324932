//! Series as lines of JSON, the form in which VictoriaMetrics exports them: `POST /api/v1/import`.
//!
//! ```text
//! {"metric":{"__name__":"up","job":"a"},"values":[1,0.5,null,"Infinity"],"timestamps":[1000,2000,3000,4000]}
//! ```
//! The whole text is one commit: a line that cannot be read refuses all of it, with its number. Times are milliseconds; what JSON
//! has no number for is a text (`NaN`, `Infinity`, `-Infinity`), and `null` is NaN. `extra_label=name=value` adds a label.

use std::collections::BTreeMap;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use ropewalk::series::SampleBatch;
use ropewalk_wire::{Caller, Right};
use serde::Deserialize;

use crate::App;
use crate::answer::ApiError;
use crate::exposition::{extra_label, take_text};
use crate::ingest::{self, Refused};
use crate::labels::{LabelSet, Rejected};
use crate::number::parse_float;

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

/// Reads a text.
///
/// # Errors
/// The first line that cannot be read, or whose labels cannot be taken.
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
) -> Response {
    match answer(&app, &caller, request).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(error) => error.into_text(),
    }
}

async fn answer(app: &App, caller: &Caller, request: Request) -> Result<(), ApiError> {
    app.may(caller, Right::Append)?;
    let mut extra = Vec::new();
    let query = request.uri().query().unwrap_or_default().to_owned();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "extra_label" => extra.push(extra_label(&value)?),
            other => return Err(ApiError::parameter(other, "there is extra_label")),
        }
    }
    let batch = take_text(app, request, move |text| read(text, &extra)).await?;
    let mut refused = Refused::default();
    if !batch.is_empty() {
        ingest::push(app, caller, batch, &mut refused).await?;
    }
    refused.into_error().map_or(Ok(()), Err)
}
