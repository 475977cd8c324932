//! OTLP metrics: `POST /api/v1/otlp/v1/metrics`, protobuf or JSON, and the call of gRPC (`grpc`).
//!
//!   resource (job, instance, target_info) ─▶ metric (name, unit) ─▶ points ─▶ SampleBatch ─▶ one commit
//!
//! A gauge and a sum are a series each; a histogram is `_bucket`, `_sum` and `_count`; an exponential
//! histogram is a native one; a summary has its quantiles. A setting selects the handling of deltas
//! (`delta`). Rejected points are counted in the response (`partial_success`).
//! Source: the OTLP specification, and "Prometheus and OpenMetrics Compatibility" of OpenTelemetry.

mod delta;
pub(crate) mod grpc;
mod json;
mod names;
mod points;

use std::collections::BTreeMap;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use ropewalk::hooks::hex;
use ropewalk::series::{Exemplar, Metadata, MetricType, ResetHint, STALE};
use ropewalk_auth::Caller;
use ropewalk_http_kit::body::RequestBody;
use ropewalk_http_kit::media::MediaType;
use ropewalk_monitoring::notation::put_float;

use crate::app::App;
use crate::ingest::labels::{LabelSet, METRIC_NAME};
use crate::ingest::protobuf::{Fields, Malformed, Value, put_bytes, put_integer};
use crate::ingest::{self, Read, Refused};
use crate::request::body;
use crate::request::response::{ApiError, Kind, Plain};
use crate::settings::Deltas;

use delta::{Amount, Late};
use names::Shape;

pub(crate) use delta::Totals;

/// Limit of nested values in attributes.
const DEPTH_MAX: usize = 16;

/// Labels by name.
pub(crate) type Pairs = BTreeMap<String, String>;

/// Aggregation temporality of a metric's values.
#[derive(Clone, Copy)]
pub(crate) enum Temporality<'a> {
    /// Since the start time; also for values without temporality.
    Cumulative,
    /// Since the previous point, stored unchanged.
    Delta,
    /// Since the previous point, to be added up here.
    Added(&'a Totals),
}

/// Data shared by all points of a metric.
pub(crate) struct Context<'a> {
    /// Labels of the resource.
    pub(crate) own: &'a Pairs,
    pub(crate) temporality: Temporality<'a>,
}

/// Times and handling of one sample.
pub(crate) struct Way<'a> {
    pub(crate) time_ms: i64,
    pub(crate) start_ms: i64,
    pub(crate) temporality: Temporality<'a>,
    /// The point marks that there is no value any more.
    pub(crate) stale: bool,
    /// See [`Totals::add`].
    pub(crate) layout: u64,
}

impl Way<'_> {
    /// A sample without a start time.
    fn at(time_ms: i64) -> Self {
        Self { time_ms, start_ms: 0, temporality: Temporality::Cumulative, stale: false, layout: 0 }
    }

    /// The value to store for `amount`, and its start time.
    fn taken(&self, labels: &[u8], amount: Amount) -> Result<(Amount, i64), Late> {
        match self.temporality {
            Temporality::Cumulative => Ok((amount, self.start_ms)),
            // Each delta has a different start time; without one, none is taken for a reset.
            Temporality::Delta => Ok((amount, 0)),
            Temporality::Added(totals) => {
                totals.add((labels, self.layout), (self.start_ms, self.time_ms), amount)
            }
        }
    }
}

impl Read {
    /// Adds a sample of a series: the metric's name with `suffix`, and `labels` with `more` as the last
    /// label.
    pub(crate) fn number(
        &mut self,
        name: (&str, &str),
        labels: &Pairs,
        more: Option<(&str, &str)>,
        way: &Way<'_>,
        value: f64,
        exemplars: Vec<Exemplar>,
    ) {
        self.amount(name, labels, more, way, Amount::Number(value), exemplars);
    }

    pub(crate) fn amount(
        &mut self,
        (name, suffix): (&str, &str),
        labels: &Pairs,
        more: Option<(&str, &str)>,
        way: &Way<'_>,
        amount: Amount,
        exemplars: Vec<Exemplar>,
    ) {
        let name = format!("{name}{suffix}");
        let mut set = LabelSet::default();
        set.push(METRIC_NAME.as_bytes(), name.as_bytes());
        let own = labels.iter().filter(|(name, _)| more.is_none_or(|(more, _)| more != name.as_str()));
        own.for_each(|(name, value)| set.push(name.as_bytes(), value.as_bytes()));
        if let Some((name, value)) = more {
            set.push(name.as_bytes(), value.as_bytes());
        }
        let stored = match set.stored() {
            Ok(stored) => stored,
            Err(rejected) => return self.refused.add(1, || rejected.0),
        };
        let taken =
            if way.stale { Ok((Amount::Number(STALE), way.start_ms)) } else { way.taken(stored, amount) };
        let (amount, start_ms) = match taken {
            Ok(taken) => taken,
            Err(Late(last)) => {
                let why = || {
                    format!("a delta of {name:?} at {} ms is older than the last, at {last} ms", way.time_ms)
                };
                // A point is counted once, however many series it has.
                if !matches!(suffix, "_bucket" | "_sum") {
                    self.refused.add(1, why);
                }
                return;
            }
        };
        let mut series = self.batch.series_bytes(stored);
        match amount {
            Amount::Number(value) => series.push_started(way.time_ms, value, start_ms),
            Amount::Histogram(mut histogram) => {
                if matches!(way.temporality, Temporality::Delta) {
                    histogram.hint = ResetHint::Gauge;
                }
                series.push_histogram(way.time_ms, &histogram, start_ms)
            }
        };
        for exemplar in exemplars {
            series.exemplar(exemplar);
        }
    }
}

/// `POST /api/v1/otlp/v1/metrics`.
pub(crate) async fn write(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Plain> {
    let form = Form::of(&request)?;
    let body = body::text(&app.service, request).await?;
    let refused = take(&app, &caller, form, body).await?;
    let mut response = Response::new(form.answer(refused).into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(form.media_type()));
    Ok(response)
}

/// Stores the points of a request, and returns the rejected ones.
async fn take(app: &App, caller: &Caller, form: Form, body: RequestBody) -> Result<Refused, ApiError> {
    let bytes_max = app.service.limits().request_bytes;
    let (deltas, totals) = (app.settings.otlp_deltas, app.totals.clone());
    let work = move || {
        let body = body.inflate()?;
        let translated;
        let message: &[u8] = match form {
            Form::Protobuf => &body,
            Form::Json => {
                translated = json::to_protobuf(&body).map_err(|error| ApiError::bad(error.to_string()))?;
                &translated
            }
        };
        decode(message, bytes_max, (deltas, &totals)).map_err(|error| ApiError::bad(error.to_string()))
    };
    let read = app.off_thread(work).await??;
    ingest::store_pushed(app, caller, read).await
}

/// Encoding of a request and its response.
#[derive(Debug, Clone, Copy)]
enum Form {
    Protobuf,
    Json,
}

impl Form {
    fn of(request: &Request) -> Result<Self, ApiError> {
        let kind = MediaType::of(request.headers());
        let found = [Self::Protobuf, Self::Json].into_iter().find(|form| kind.is(form.media_type()));
        found.ok_or_else(|| {
            let what = "Content-Type has to be application/x-protobuf or application/json";
            ApiError::new(Kind::MediaType, what)
        })
    }

    fn media_type(self) -> &'static str {
        match self {
            Self::Protobuf => "application/x-protobuf",
            Self::Json => "application/json",
        }
    }

    /// An `ExportMetricsServiceResponse`.
    fn answer(self, refused: Refused) -> Vec<u8> {
        match (self, refused.into_parts()) {
            (Self::Protobuf, None) => Vec::new(),
            (Self::Protobuf, Some((count, why))) => {
                let (mut partial, mut out) = (Vec::new(), Vec::new());
                put_integer(&mut partial, 1, count);
                put_bytes(&mut partial, 2, why.as_bytes());
                put_bytes(&mut out, 1, &partial);
                out
            }
            (Self::Json, None) => b"{}".to_vec(),
            (Self::Json, Some((count, why))) => {
                let partial =
                    serde_json::json!({ "rejectedDataPoints": count.to_string(), "errorMessage": why });
                serde_json::json!({ "partialSuccess": partial }).to_string().into_bytes()
            }
        }
    }
}

/// Reads an `ExportMetricsServiceRequest`. Labels of a resource are repeated in each of its series, so each
/// repetition counts toward their byte limit.
fn decode(bytes: &[u8], bytes_max: usize, deltas: (Deltas, &Totals)) -> Result<Read, Malformed> {
    let mut read = Read::default();
    let mut budget = bytes_max.saturating_mul(16);
    let mut fields = Fields(bytes);
    while let Some((number, value)) = fields.next()? {
        if number == 1 {
            resource(value.message()?, deltas, &mut read, &mut budget)?;
        }
    }
    Ok(read)
}

fn resource(
    message: Fields<'_>,
    deltas: (Deltas, &Totals),
    read: &mut Read,
    budget: &mut usize,
) -> Result<(), Malformed> {
    let mut attributes = Pairs::new();
    let mut fields = message;
    while let Some((number, value)) = fields.next()? {
        if number == 1 {
            let mut fields = value.message()?;
            while let Some((number, value)) = fields.next()? {
                if number == 1 {
                    let (name, value) = attribute(value, 0)?;
                    attributes.insert(name, value);
                }
            }
        }
    }
    let mut own = Pairs::new();
    let namespace = attributes.remove("service.namespace");
    if let Some(name) = attributes.remove("service.name") {
        own.insert("job".to_owned(), namespace.map_or(name.clone(), |space| format!("{space}/{name}")));
    }
    if let Some(instance) = attributes.remove("service.instance.id") {
        own.insert("instance".to_owned(), instance);
    }
    let mut newest = None;
    let mut fields = message;
    while let Some((number, value)) = fields.next()? {
        if number == 2 {
            let mut fields = value.message()?;
            while let Some((number, value)) = fields.next()? {
                if number == 2 {
                    metric(value.message()?, (&own, deltas), read, (&mut newest, budget))?;
                }
            }
        }
    }
    if let Some(time_ms) = newest.filter(|_| !attributes.is_empty() && !own.is_empty()) {
        let labels =
            attributes.iter().map(|(name, value)| (names::label(name), value.clone())).chain(own).collect();
        read.number(("target", "_info"), &labels, None, &Way::at(time_ms), 1.0, Vec::new());
    }
    Ok(())
}

/// Name and value of an attribute.
pub(crate) fn attribute(value: Value<'_>, depth: usize) -> Result<(String, String), Malformed> {
    let (mut name, mut text) = ("", String::new());
    let mut fields = value.message()?;
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => name = value.text()?,
            2 => text = any_value(value, depth)?,
            _ => {}
        }
    }
    Ok((name.to_owned(), text))
}

/// A value as text: lists and maps as JSON.
fn any_value(value: Value<'_>, depth: usize) -> Result<String, Malformed> {
    if depth > DEPTH_MAX {
        return Err(Malformed("attributes are nested too deep"));
    }
    let mut out = String::new();
    let mut fields = value.message()?;
    while let Some((number, value)) = fields.next()? {
        out = match number {
            1 => value.text()?.to_owned(),
            2 => (value.u64()? != 0).to_string(),
            3 => value.i64()?.to_string(),
            4 => {
                let mut text = Vec::new();
                put_float(&mut text, value.f64()?);
                String::from_utf8_lossy(&text).into_owned()
            }
            5 => {
                let mut list = Vec::new();
                let mut fields = value.message()?;
                while let Some((number, value)) = fields.next()? {
                    if number == 1 {
                        list.push(any_value(value, depth + 1)?);
                    }
                }
                serde_json::json!(list).to_string()
            }
            6 => {
                let mut map = Pairs::new();
                let mut fields = value.message()?;
                while let Some((number, value)) = fields.next()? {
                    if number == 1 {
                        let (name, value) = attribute(value, depth + 1)?;
                        map.insert(name, value);
                    }
                }
                serde_json::json!(map).to_string()
            }
            7 => hex(value.bytes()?),
            _ => continue,
        };
    }
    Ok(out)
}

fn metric(
    message: Fields<'_>,
    (own, (deltas, totals)): (&Pairs, (Deltas, &Totals)),
    read: &mut Read,
    (newest, budget): (&mut Option<i64>, &mut usize),
) -> Result<(), Malformed> {
    let (mut name, mut unit, mut help, mut data) = ("", "", "", None);
    let mut fields = message;
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => name = value.text()?,
            2 => help = value.text()?,
            3 => unit = value.text()?,
            5 | 7 | 9 | 10 | 11 => data = Some((number, value.message()?)),
            _ => {}
        }
    }
    let Some((kind, data)) = data else { return Ok(()) };
    let shell = points::Shell::read(data)?;
    let is_delta = matches!(kind, 7 | 9 | 10) && shell.temporality == points::DELTA;
    let (shape, metric_type) = match kind {
        // Prometheus has no metric type for deltas.
        7 | 9 | 10 if is_delta && deltas == Deltas::Keep => {
            (if kind == 7 && shell.monotonic { Shape::Counter } else { Shape::Other }, MetricType::Unknown)
        }
        5 => (Shape::Gauge, MetricType::Gauge),
        7 if shell.monotonic => (Shape::Counter, MetricType::Counter),
        7 => (Shape::Other, MetricType::Gauge),
        9 | 10 => (Shape::Other, MetricType::Histogram),
        _ => (Shape::Other, MetricType::Summary),
    };
    let is_known = !matches!(kind, 7 | 9 | 10) || is_delta || shell.temporality == points::CUMULATIVE;
    if !is_known || is_delta && deltas == Deltas::Refuse {
        let why = || match is_delta {
            true => {
                format!("metric {name:?} is a delta, and the setting prometheus.otlp_deltas refuses those")
            }
            false => format!("metric {name:?} is neither cumulative nor a delta"),
        };
        read.refused.add(shell.points.len() as u64, why);
        return Ok(());
    }
    let temporality = match (is_delta, deltas) {
        (false, _) => Temporality::Cumulative,
        (true, Deltas::Cumulate) => Temporality::Added(totals),
        (true, _) => Temporality::Delta,
    };
    let context = Context { own, temporality };
    let full = names::metric(name, unit, shape);
    let described = Metadata { metric_type, unit: unit.to_owned(), help: help.to_owned() };
    read.metadata.add(&full, described, &mut read.refused);
    for point in shell.points {
        let spent = full.len()
            + own.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
            + point.0.len();
        *budget = budget.checked_sub(spent).ok_or(Malformed("labels of the request are too long in all"))?;
        let time_ms = match kind {
            5 | 7 => points::number(point, &full, &context, read)?,
            9 => points::histogram(point, &full, &context, (read, budget))?,
            10 => points::exponential(point, &full, &context, read)?,
            _ => points::summary(point, &full, &context, (read, budget))?,
        };
        *newest = (*newest).max(Some(time_ms));
    }
    Ok(())
}
