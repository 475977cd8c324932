//! `ropewalk promql` and `ropewalk series`: queries over time series, in a directory or of a server.
//!
//! The rows are the same: labels, time, value. A server is queried over its Prometheus API, so that its limits apply. It
//! serves one series store there; --store applies to directories only.

use clap::Args;
use ropewalk::Database;
use ropewalk::promql::{self, Options, Query, Sample, Value};
use ropewalk::series::{Labels, Matcher, SeriesStore};
use serde::Deserialize;

use crate::database::context::Context;
use crate::database::place::Place;
use crate::output::cell::{Cell, time};
use crate::output::failure::{Exit, Failure, Result};
use crate::output::report::Report;

/// Evaluates PromQL.
#[derive(Debug, Args)]
pub(crate) struct Promql {
    /// The query
    query: String,
    /// At this time: seconds since 1970 or RFC 3339 [default: now]
    #[arg(long, value_name = "TIME", value_parser = moment, conflicts_with_all = ["start", "end", "step"])]
    time: Option<i64>,
    /// Start of the range
    #[arg(long, value_name = "TIME", value_parser = moment, requires = "step")]
    start: Option<i64>,
    /// End of the range [default: now]
    #[arg(long, value_name = "TIME", value_parser = moment, requires = "start")]
    end: Option<i64>,
    /// Interval between the steps, such as 15s or 1h
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "start")]
    step: Option<i64>,
}

/// Lists series.
#[derive(Debug, Args)]
pub(crate) struct ListSeries {
    /// Matching series, such as 'up{job="a"}' [default: all]
    selector: Option<String>,
    /// Print the metrics and labels with the most series instead
    #[arg(long, conflicts_with = "selector")]
    top: bool,
    /// Maximum number of rows
    #[arg(long, value_name = "N", default_value_t = 1000)]
    limit: usize,
}

fn now() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

/// Milliseconds since 1970.
fn moment(text: &str) -> Result<i64, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        let ms = (seconds * 1000.0).round();
        let inside = ms.is_finite() && ms.abs() < 9e15;
        return if inside { Ok(ms as i64) } else { Err("the time is out of range".to_owned()) };
    }
    text.parse::<jiff::Timestamp>().map(|time| time.as_millisecond()).map_err(|error| error.to_string())
}

fn duration(text: &str) -> Result<i64, String> {
    let ms = promql::parse_duration(text).map_err(|error| error.to_string())?;
    if ms > 0 { Ok(ms) } else { Err("a step must be above 0".to_owned()) }
}

/// One point of a result.
struct Point {
    labels: String,
    time_ms: Option<i64>,
    value: String,
}

pub(crate) fn promql(context: &Context, arguments: &Promql) -> Result {
    let points = match context.place()? {
        Place::Local(db) => evaluate(&db, context, arguments)?,
        Place::Remote(remote) => {
            let path = match (arguments.start, arguments.step) {
                (Some(start), Some(step)) => {
                    let end = arguments.end.unwrap_or_else(now);
                    format!(
                        "query_range?start={}&end={}&step={}",
                        seconds(start),
                        seconds(end),
                        seconds(step)
                    )
                }
                _ => format!("query?time={}", seconds(arguments.time.unwrap_or_else(now))),
            };
            points_of(remote.prometheus(&format!("{path}&query="), &arguments.query)?)
        }
    };
    let mut report = context.report(&["labels", "time", "value"])?;
    for point in points {
        let at = point.time_ms.map_or(Cell::None, |ms| time(ms.saturating_mul(1000)));
        report.row(vec![point.labels.into(), at, number(point.value)])?;
    }
    Ok(report.finish()?)
}

/// `up{job="a"}`; nothing without labels.
fn shown<N: AsRef<str>, V: AsRef<str>>(labels: impl IntoIterator<Item = (N, V)>) -> String {
    Labels::new(labels).map_or_else(|_| String::new(), |labels| labels.to_string())
}

fn seconds(ms: i64) -> String {
    format!("{}.{:03}", ms.div_euclid(1000), ms.rem_euclid(1000))
}

/// A number if JSON can represent it, otherwise a string.
fn number(text: String) -> Cell {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => Cell::Decimal(value),
        _ => text.into(),
    }
}

fn store(db: &Database, context: &Context) -> Result<SeriesStore> {
    Ok(db.series(context.store_name())?)
}

fn evaluate(db: &Database, context: &Context, arguments: &Promql) -> Result<Vec<Point>> {
    let query = Query::parse(&arguments.query, Options::default());
    let query = query.map_err(|error| Failure::invalid(error.to_string()))?;
    let (snapshot, store) = (db.snapshot(), store(db, context)?);
    let source = snapshot.metrics(&store);
    let at = arguments.time.unwrap_or_else(now);
    let answer = match (arguments.start, arguments.step) {
        (Some(start), Some(step)) => {
            query.range(&source, start, arguments.end.unwrap_or_else(now), step, &|| None)
        }
        _ => query.instant(&source, at, &|| None),
    };
    let answer = answer.map_err(|error| Failure::invalid(error.to_string()))?;
    for note in &answer.annotations {
        eprintln!("{}", note.text);
    }
    let point = |labels: String, time_ms: i64, sample: &Sample| {
        let value = match sample {
            Sample::Float(value) => promql::format_float(*value),
            Sample::Histogram(histogram) => format!("{histogram:?}"),
        };
        Point { labels, time_ms: Some(time_ms), value }
    };
    Ok(match answer.value {
        Value::Scalar(value) => vec![point(String::new(), at, &Sample::Float(value))],
        Value::Text(text) => {
            vec![Point {
                labels: String::new(),
                time_ms: Some(at),
                value: String::from_utf8_lossy(&text).into_owned(),
            }]
        }
        Value::Vector(rows) => {
            rows.iter().map(|(labels, sample)| point(shown(labels.iter()), at, sample)).collect()
        }
        Value::Matrix(rows) => rows
            .iter()
            .flat_map(|row| {
                row.samples.iter().map(|(time, sample)| point(shown(row.labels.iter()), *time, sample))
            })
            .collect(),
    })
}

/// A response of the Prometheus API.
#[derive(Deserialize)]
pub(crate) struct Envelope<T> {
    data: T,
    #[serde(default)]
    warnings: Vec<String>,
    #[serde(default)]
    infos: Vec<String>,
}

/// The data of a query response.
#[derive(Deserialize)]
pub(crate) struct Answer {
    #[serde(rename = "resultType")]
    kind: String,
    result: serde_json::Value,
}

fn points_of(envelope: Envelope<Answer>) -> Vec<Point> {
    for note in envelope.warnings.iter().chain(&envelope.infos) {
        eprintln!("{note}");
    }
    let Answer { kind, result } = envelope.data;
    let point = |labels: &serde_json::Value, pair: &serde_json::Value| {
        let labels = labels.as_object().into_iter().flatten();
        let labels = labels.map(|(name, value)| (name.as_str(), value.as_str().unwrap_or_default()));
        let value = pair.get(1).map_or_else(String::new, |value| match value.as_str() {
            Some(text) => text.to_owned(),
            None => value.to_string(),
        });
        let time_ms =
            pair.get(0).and_then(serde_json::Value::as_f64).map(|time| (time * 1000.0).round() as i64);
        Point { labels: shown(labels), time_ms, value }
    };
    if kind == "scalar" || kind == "string" {
        let mut point = point(&serde_json::Value::Null, &result);
        point.labels.clear();
        return vec![point];
    }
    let mut points = Vec::new();
    for row in result.as_array().into_iter().flatten() {
        let labels = row.get("metric").unwrap_or(&serde_json::Value::Null);
        for name in ["value", "histogram"] {
            points.extend(row.get(name).map(|pair| point(labels, pair)));
        }
        for name in ["values", "histograms"] {
            points.extend(
                row.get(name)
                    .and_then(|list| list.as_array())
                    .into_iter()
                    .flatten()
                    .map(|pair| point(labels, pair)),
            );
        }
    }
    points
}

pub(crate) fn series(context: &Context, arguments: &ListSeries) -> Result {
    if arguments.top {
        return top(context, arguments.limit);
    }
    let mut report = context.report(&["series"])?;
    match context.place()? {
        Place::Local(db) => {
            let matchers = arguments.selector.as_deref().map(selector).transpose()?.unwrap_or_default();
            let (snapshot, store) = (db.snapshot(), store(&db, context)?);
            for labels in snapshot.series(&store).series(&matchers, arguments.limit) {
                report.row(vec![labels.to_string().into()])?;
            }
        }
        Place::Remote(remote) => {
            let selector = arguments.selector.as_deref().unwrap_or("{__name__!=\"\"}");
            let path = format!("series?limit={}&match[]=", arguments.limit);
            let found: Envelope<Vec<std::collections::BTreeMap<String, String>>> =
                remote.prometheus(&path, selector)?;
            for labels in found.data {
                report.row(vec![shown(labels).into()])?;
            }
        }
    }
    Ok(report.finish()?)
}

fn selector(text: &str) -> Result<Vec<Matcher>> {
    promql::parse_selector(text).map_err(|error| Failure::invalid(error.to_string()))
}

/// Prints the metrics and labels with the most series.
fn top(context: &Context, limit: usize) -> Result {
    let Place::Local(db) = context.place()? else {
        let what = "--top works on a database directory";
        return Err(Failure::new(Exit::Invalid, what, "A server reports it at /api/v1/status/tsdb"));
    };
    let (snapshot, store) = (db.snapshot(), store(&db, context)?);
    let found = snapshot.series(&store).cardinality(limit);
    let mut report: Report<_> = context.report(&["what", "name", "number"])?;
    report.row(vec!["series".into(), Cell::None, found.series.into()])?;
    for metric in found.metrics {
        report.row(vec!["series of a metric".into(), metric.value.into(), metric.series.into()])?;
    }
    for label in found.labels {
        report.row(vec!["values of a label".into(), label.name.into(), label.values.into()])?;
    }
    for value in found.values {
        let name = format!("{}={:?}", value.name, value.value);
        report.row(vec!["series of a value".into(), name.into(), value.series.into()])?;
    }
    Ok(report.finish()?)
}
