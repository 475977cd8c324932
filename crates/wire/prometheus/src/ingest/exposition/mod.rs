//! Import of Prometheus' exposition formats: `POST /api/v1/import/prometheus`.
//!
//! The text is one commit: an unreadable line rejects all of it, and the error has its line number. Samples
//! without a time get that of the request, or of the parameter `timestamp` (milliseconds).
//! `extra_label=name=value` adds a label to every series.

mod parse;

use std::borrow::Cow;
use std::collections::BTreeMap;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use ropewalk::series::{Exemplar, Labels, MetricType, SampleBatch};
use ropewalk_http_kit::params::pairs;
use ropewalk_wire::Caller;

use crate::app::App;
use crate::ingest::labels::{LabelSet, Rejected};
use crate::ingest::metadata::Descriptions;
use crate::ingest::{self, Read};
use crate::request::number::{open_metrics_float, parse_float};
use crate::request::response::{ApiError, Plain};
use crate::request::time::now_ms;

pub(crate) use parse::Format;
use parse::{Example, Item, Sample, parse};

impl Format {
    /// By the content type; without one, the old text format.
    pub(crate) fn of(content_type: &str) -> Self {
        match content_type.trim_start().starts_with("application/openmetrics-text") {
            true => Self::OpenMetrics,
            false => Self::Text,
        }
    }
}

fn format(headers: &HeaderMap) -> Format {
    Format::of(headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default())
}

/// A sample of a scraped page.
pub(crate) struct Scraped<'s> {
    sample: &'s Sample<'s>,
    pub(crate) value: f64,
    pub(crate) time_ms: Option<i64>,
}

impl Scraped<'_> {
    /// # Errors
    /// A label name that occurs twice, since its value would be ambiguous.
    pub(crate) fn labels(&self) -> Result<BTreeMap<String, String>, String> {
        let mut labels = BTreeMap::new();
        for (name, value) in &self.sample.labels {
            if labels.insert(name.to_string(), value.to_string()).is_some() {
                return Err(format!("label name {name:?} is not unique"));
            }
        }
        Ok(labels)
    }

    /// The exemplar, at its own time or at `at_ms`.
    pub(crate) fn exemplar(&self, at_ms: i64) -> Result<Option<Exemplar>, String> {
        self.sample.exemplar.as_ref().map(|example| exemplar(example, at_ms)).transpose()
    }
}

/// Reads a page, sample by sample; returns the descriptions of its metrics. Bounds of buckets and quantiles
/// are normalized as in Prometheus 3: `le="1"` of a histogram becomes `le="1.0"`.
///
/// # Errors
/// The first line that cannot be read, or that `take` rejects.
pub(crate) fn each(
    text: &str,
    format: Format,
    mut take: impl FnMut(Scraped<'_>) -> Result<(), String>,
) -> Result<Descriptions, String> {
    let mut described = Descriptions::default();
    let mut bounded = None;
    parse(text, format, |mut item: Item<'_, '_>| {
        match &mut item {
            Item::Sample(sample) => {
                if let Some(label) = bounded {
                    one_form(sample, label);
                }
                return take(Scraped { value: sample.value, time_ms: sample.time_ms, sample });
            }
            Item::Type(_, MetricType::Histogram) => bounded = Some("le"),
            Item::Type(_, MetricType::Summary) => bounded = Some("quantile"),
            Item::Type(..) => bounded = None,
            Item::Help(..) | Item::Unit(..) => {}
        }
        describe(&mut described, item);
        Ok(())
    })?;
    Ok(described)
}

/// Normalizes the number in a label to the form of OpenMetrics.
fn one_form(sample: &mut Sample<'_>, label: &str) {
    for (_, value) in sample.labels.iter_mut().filter(|(name, _)| name == label) {
        if let Some(number) = parse_float(value) {
            *value = Cow::Owned(open_metrics_float(number));
        }
    }
}

fn describe(described: &mut Descriptions, item: Item<'_, '_>) {
    match item {
        Item::Sample(_) => {}
        Item::Type(name, kind) => described.of(&name).metric_type = kind,
        Item::Help(name, help) => described.of(&name).help = help,
        Item::Unit(name, unit) => described.of(&name).unit = unit.to_owned(),
    }
}

fn exemplar(example: &Example<'_>, at_ms: i64) -> Result<Exemplar, String> {
    let labels = match example.labels.is_empty() {
        true => None,
        false => {
            Some(Labels::new(example.labels.iter().map(|(n, v)| (n, v))).map_err(|error| error.to_string())?)
        }
    };
    Ok(Exemplar { time_ms: example.time_ms.unwrap_or(at_ms), value: example.value, labels })
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
    parse(text, format, |item: Item<'_, '_>| {
        match item {
            Item::Sample(sample) => return add(&mut read.batch, sample, extra, now_ms),
            other => describe(&mut read.metadata, other),
        }
        Ok(())
    })?;
    Ok(read)
}

fn add(
    batch: &mut SampleBatch,
    sample: &Sample<'_>,
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
        series.exemplar(exemplar(example, time_ms)?);
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
