//! Import of Prometheus' exposition formats: `POST /api/v1/import/prometheus`.
//!
//! The text is one commit: an unreadable line rejects all of it, and the error has its line number. Samples
//! without a time get that of the request, or of the parameter `timestamp` (milliseconds).
//! `extra_label=name=value` adds a label to every series.

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use ropewalk::series::SampleBatch;
use ropewalk_auth::Caller;
use ropewalk_http_kit::params::pairs;
use ropewalk_monitoring::exposition::{Format, Item, SampleLine, parse_lines};

use crate::app::App;
use crate::ingest::labels::{LabelSet, Rejected};
use crate::ingest::{self, Read};
use crate::request::response::{ApiError, Plain};
use crate::request::time::now_ms;

fn format(headers: &HeaderMap) -> Format {
    Format::of(headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default())
}

/// Reads a text.
///
/// # Errors
/// The first line that cannot be read, or whose labels are invalid.
pub(crate) fn read(
    text: &str,
    format: Format,
    extra: &[(String, String)],
    now_ms: i64,
) -> Result<Read, String> {
    let mut read = Read::default();
    parse_lines(text, format, |item: Item<'_, '_>| {
        match item {
            Item::Sample(sample) => return add(&mut read.batch, sample, extra, now_ms),
            other => other.describe(&mut read.metadata.0),
        }
        Ok(())
    })?;
    Ok(read)
}

fn add(
    batch: &mut SampleBatch,
    sample: &SampleLine<'_>,
    extra: &[(String, String)],
    now_ms: i64,
) -> Result<(), String> {
    let mut labels = LabelSet::default();
    let given = |name: &str| extra.iter().any(|(n, _)| n == name);
    for (name, value) in sample.labels.iter().filter(|(name, _)| !given(name)) {
        labels.push(name.as_bytes(), value.as_bytes());
    }
    extra.iter().for_each(|(name, value)| labels.push(name.as_bytes(), value.as_bytes()));
    let stored = labels.stored().map_err(|Rejected(why)| why)?;
    let time_ms = sample.time_ms.unwrap_or(now_ms);
    let mut series = batch.series_bytes(stored);
    series.push(time_ms, sample.value);
    if let Some(example) = &sample.exemplar {
        series.exemplar(example.exemplar(time_ms)?);
    }
    Ok(())
}

/// `name=value`, a label for every series of a text.
pub(crate) fn extra_label(pair: &str) -> Result<(String, String), ApiError> {
    let (name, value) =
        pair.split_once('=').ok_or_else(|| ApiError::parameter("extra_label", "name=value is needed"))?;
    Ok((name.to_owned(), value.to_owned()))
}

/// `POST /api/v1/import/prometheus`.
pub(crate) async fn import(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<StatusCode, Plain> {
    let format = format(request.headers());
    let (mut extra, mut now_ms) = (Vec::new(), now_ms());
    for (name, value) in pairs(request.uri().query())? {
        match name.as_str() {
            "extra_label" => extra.push(extra_label(&value)?),
            "timestamp" => {
                now_ms =
                    value.parse().map_err(|_| ApiError::parameter("timestamp", "milliseconds are needed"))?;
            }
            other => return Err(ApiError::parameter(other, "there is extra_label and timestamp").into()),
        }
    }
    let read = move |text: &str| read(text, format, &extra, now_ms).map_err(ApiError::bad);
    Ok(ingest::import(&app, &caller, request, read).await?)
}
