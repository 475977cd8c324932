//! Status endpoints under `/api/v1`.

pub(crate) mod admin;
pub(crate) mod features;
pub(crate) mod monitoring;

use std::time::{Duration, SystemTime};

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use ropewalk::promql::Share;
use ropewalk::series::{Metadata, SeriesAt, ValueCount};
use ropewalk_http_kit::response::measured;
use ropewalk_wire::Service;
use serde_json::json;

use crate::app::App;
use crate::query::counted::Counted;
use crate::query::{names, stream};
use crate::request::params::Params;
use crate::request::response::{ApiError, HEAD, Notes, put_labels, put_tail, put_text, success};

/// The version of Prometheus whose language and API this is. Clients derive features from it: Grafana whether
/// names may be UTF-8 and whether label values can be requested by selector. The tests compare the server
/// with this version.
pub(crate) const API_VERSION: &str = "3.15.0";

fn texts(pairs: &[(&str, &str)]) -> Response {
    success(&Notes::default(), |out| put_labels(out, pairs.iter().copied()))
}

fn moment(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time).map_or_else(|_| String::new(), |time| time.to_string())
}

pub(crate) async fn build_info() -> Response {
    texts(&[
        ("version", API_VERSION),
        ("revision", concat!("ropewalk-", env!("CARGO_PKG_VERSION"))),
        ("branch", ""),
        ("buildUser", ""),
        ("buildDate", ""),
        ("goVersion", ""),
    ])
}

pub(crate) async fn runtime_info(State(app): State<App>) -> Result<Response, ApiError> {
    let floor = app.store()?.retention_floor_ms();
    let retention = if floor == i64::MIN { "unlimited".to_owned() } else { format!("from {floor} ms on") };
    let (read_ok, read_ms) = app.service.metrics().config_state().unwrap_or((true, 0));
    let read_at =
        if read_ms == 0 { app.started } else { SystemTime::UNIX_EPOCH + Duration::from_millis(read_ms) };
    let info = serde_json::json!({
        "startTime": moment(app.started), "serverTime": moment(SystemTime::now()), "storageRetention": retention,
        "reloadConfigSuccess": read_ok, "lastConfigTime": moment(read_at),
    });
    Ok(success(&Notes::default(), |out| out.extend_from_slice(info.to_string().as_bytes())))
}

pub(crate) async fn flags(State(app): State<App>) -> Result<Response, ApiError> {
    let settings = &app.settings;
    Ok(texts(&[
        ("query.lookback-delta", &format!("{}s", settings.lookback.as_secs_f64())),
        ("query.max-concurrency", &settings.queries.to_string()),
        ("query.max-samples", &settings.query_samples.to_string()),
        ("query.timeout", &format!("{}s", settings.query_time.as_secs_f64())),
    ]))
}

/// `status/walreplay`: progress of the log replay at startup. It is complete before requests are accepted.
pub(crate) async fn replayed() -> Response {
    success(&Notes::default(), |out| out.extend_from_slice(br#"{"min":0,"max":0,"current":0}"#))
}

/// `notifications`: always empty; the server reports in its log.
pub(crate) async fn notifications() -> Response {
    success(&Notes::default(), |out| out.extend_from_slice(b"[]"))
}

/// `status/config`: the configuration file as it was read. It may contain passwords.
pub(crate) async fn config(State(app): State<App>) -> Result<Response, ApiError> {
    let config = app.monitoring.config();
    let text = config.text.as_str();
    Ok(texts(&[("yaml", if text.is_empty() { "global: {}\n" } else { text })]))
}

/// `metadata`: type, help and unit of metrics, as they were sent.
pub(crate) async fn metadata(State(app): State<App>, params: Params) -> Result<Response, ApiError> {
    // A metric has a single entry, so any limit per metric is met.
    params.whole("limit_per_metric")?;
    let limit =
        params.whole("limit")?.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let metric = params.get("metric").map(str::to_owned);
    let mut share = Share::new(Some(app.memory.clone()));
    let read = move |series: &SeriesAt<'_>| -> Result<_, ApiError> {
        let mut found = Vec::new();
        series.each_metadata(metric.as_deref(), limit, |name, metadata| {
            names::take(&mut share, name.len() + metadata.help.len() + metadata.unit.len())?;
            found.push((name.to_owned(), metadata));
            Ok::<_, ApiError>(())
        })?;
        Ok((found, share))
    };
    let (found, share) = names::on_snapshot(&app, read).await?;
    let mut tail = b"}".to_vec();
    put_tail(&mut tail, &Notes::default());
    Ok(stream::list([HEAD, b"{"].concat(), found, put_metadata, tail, share).into_response())
}

fn put_metadata(out: &mut Vec<u8>, (name, metadata): &(String, Metadata)) {
    put_text(out, name);
    out.extend_from_slice(b":[");
    put_labels(
        out,
        [("type", metadata.metric_type.name()), ("help", &metadata.help), ("unit", &metadata.unit)],
    );
    out.push(b']');
}

/// `targets/metadata`: always empty, since metadata is not stored by target; `metadata` has it by metric.
pub(crate) async fn targets_metadata() -> Response {
    success(&Notes::default(), |out| out.extend_from_slice(b"[]"))
}

/// Limit of the rows of each list.
const TOP_MAX: usize = 10_000;

/// `status/tsdb`: the labels and metrics with the most series.
pub(crate) async fn tsdb(State(app): State<App>, params: Params) -> Result<Response, ApiError> {
    let top = match params.get("limit").map(str::parse::<usize>) {
        None => 10,
        Some(Ok(top @ 1..=TOP_MAX)) => top,
        Some(Ok(top)) if top > TOP_MAX => {
            return Err(ApiError::bad(format!("limit must not exceed {TOP_MAX}")));
        }
        Some(_) => return Err(ApiError::bad("limit must be a positive number")),
    };
    let (store, snapshot, listed) = (app.store()?, app.service.database().snapshot(), app.clone());
    let list = move || {
        let found = snapshot.series(&store).cardinality(top);
        let mut out = Counted::new(&listed);
        let (series, pairs) = (found.series, found.pairs);
        out.put(&format!("{{\"headStats\":{{\"numSeries\":{series},\"numLabelPairs\":{pairs}}}"))?;
        let pair = |value: ValueCount| (format!("{}={}", value.name, value.value), value.series);
        put_counts(&mut out, "seriesCountByMetricName", found.metrics, |metric| {
            (metric.value, metric.series)
        })?;
        put_counts(&mut out, "labelValueCountByLabelName", found.labels, |label| (label.name, label.values))?;
        put_counts(&mut out, "seriesCountByLabelValuePair", found.values, pair)?;
        out.put("}")?;
        Ok(out.into_response())
    };
    app.off_thread(list).await?
}

fn put_counts<T>(
    out: &mut Counted,
    list: &str,
    rows: Vec<T>,
    count: impl Fn(T) -> (String, u64),
) -> Result<(), ApiError> {
    out.put(&format!(",\"{list}\":["))?;
    for (name, value) in rows.into_iter().map(count) {
        out.element(&json!({ "name": name, "value": value }))?;
    }
    out.put("]")
}

/// Counts and times each request under the name of its operation.
pub(crate) async fn measure(State(app): State<App>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let operation = operation(path);
    measured(app.service.metrics(), "prometheus", operation, next.run(request)).await
}

/// Names of operations in metrics, few and fixed.
fn operation(path: &str) -> &'static str {
    match path.strip_prefix("/api/v1/").unwrap_or(path) {
        "write" => "remote_write",
        "read" => "remote_read",
        "query" => "query",
        "query_range" => "query_range",
        "labels" | "label/{name}/values" | "series" => "names",
        "import" | "import/prometheus" => "import",
        "/write" | "/api/v2/write" => "line_protocol",
        "otlp/v1/metrics" | crate::ingest::otlp::grpc::PATH => "otlp",
        "/federate" => "federate",
        path if path.starts_with("admin/") => "admin",
        _ => "other",
    }
}

pub(crate) async fn healthy() -> &'static str {
    "Ropewalk is healthy.\n"
}

pub(crate) async fn ready(State(service): State<Service>) -> Response {
    match service.readiness() {
        Ok(()) => "Ropewalk is ready.\n".into_response(),
        Err(error) => ApiError::from(error).into_text(),
    }
}
