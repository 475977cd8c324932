//! Queries over HTTP: `query`, `query_range`, `query_exemplars`, `format_query`.
//!
//!   parameters ─▶ checked as Prometheus checks them, in its order and wording ─▶ one snapshot ─▶ a thread that may block ─▶ JSON
//!
//! A query ends when its time is up, when its client has disconnected (the dropped handler sets a flag that
//! the evaluator checks), and when the server stops.

pub(crate) mod ast_json;
pub(crate) mod counted;
pub(crate) mod names;
pub(crate) mod range_cache;
pub(crate) mod result_cache;
pub(crate) mod scheduler;
pub(crate) mod stream;
pub(crate) mod value;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::response::Response;
use ropewalk::promql::ast::{Expr, Selector};
use ropewalk::promql::{
    Annotation, Answer, Error, Limits, Options, ParseError, Query, Severity, Share, StopReason, Usage, Value,
};
use ropewalk::series::{Exemplar, Labels, Matcher};
use ropewalk_http_kit::json::put_list;
use ropewalk_http_kit::response::json;
use ropewalk_monitoring::notation::put_time;

use crate::app::App;
use crate::query::range_cache::Steps;
use crate::query::scheduler::Turn;
use crate::query::stream::List;
use crate::query::value::{put_matrix_row, put_value, put_vector_row};
use crate::request::params::Params;
use crate::request::response::{ApiError, HEAD, Kind, Notes, put_labels, put_tail, put_text, success};
use crate::request::time::now_ms;

/// Limit of points per series of a range query, as in Prometheus.
const POINTS_MAX: i64 = 11_000;

/// Tells the evaluator on drop that the client has disconnected.
struct Gone(Arc<AtomicBool>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn parse_fault(error: &ParseError) -> ApiError {
    ApiError::parameter("query", error)
}

fn options(app: &App, params: &Params) -> Result<Options, ApiError> {
    let settings = &app.settings;
    let lookback = i64::try_from(settings.lookback.as_millis()).unwrap_or(i64::MAX);
    let lookback_ms = params.lookback_delta()?.unwrap_or(lookback);
    let limits = Limits {
        samples_max: settings.query_samples,
        memory_bytes_max: settings.query_bytes,
        ..Limits::default()
    };
    Ok(Options { lookback_ms, limits, ..Options::default() })
}

/// Time limit of the query: the request's, capped by the server's.
fn time_limit(app: &App, params: &Params) -> Result<Duration, ApiError> {
    let most = app.settings.query_time;
    let Some(ms) = params.duration("timeout")? else { return Ok(most) };
    Ok(Duration::from_millis(u64::try_from(ms).unwrap_or(0)).min(most))
}

fn query_error(error: Error) -> ApiError {
    match error {
        Error::Parse(parse) => parse_fault(&parse),
        Error::Times(why) => ApiError::parameter("query", why),
        Error::Budget(error) => error.into(),
        Error::Storage(inner) => {
            tracing::error!(error = %inner, "a query could not read");
            ApiError::new(Kind::Internal, "the samples could not be read")
        }
        error => ApiError::new(Kind::Execution, error.to_string()),
    }
}

/// Times at which a query is evaluated.
#[derive(Debug, Clone, Copy)]
enum At {
    Time(i64),
    Steps(i64, i64, i64),
}

/// Runs `work` on a thread that may block, with the stop check and the arrival time of the query.
async fn run<T: Send + 'static>(
    app: &App,
    time_limit: Duration,
    work: impl FnOnce(&dyn Fn() -> Option<StopReason>, Instant) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let gone = Arc::new(AtomicBool::new(false));
    let _gone = Gone(gone.clone());
    let started = Instant::now();
    let stop = app.service.stop().clone();
    let turns = app.turns.clone();
    let held = turns.next_question().await;
    let work = move || {
        let turn = Turn::new(turns, held);
        let stop = || {
            if gone.load(Ordering::Relaxed) || stop.stopping() {
                return Some(StopReason::Cancelled);
            }
            turn.pass();
            (started.elapsed() > time_limit).then_some(StopReason::TimedOut)
        };
        work(&stop, started)
    };
    let broken = |_| ApiError::new(Kind::Internal, "the query could not be processed");
    tokio::task::spawn_blocking(work).await.map_err(broken)?
}

/// Evaluates a query of the server's own jobs at one time.
pub(crate) async fn evaluate_at(app: &App, query: Query, at_ms: i64) -> Result<Answer, ApiError> {
    let (store, snapshot) = (app.store()?, app.service.database().snapshot());
    let query = query.sharing(app.memory.clone());
    let work = move |stop: &dyn Fn() -> Option<StopReason>, _| {
        query.instant(&snapshot.metrics(&store), at_ms, stop).map_err(query_error)
    };
    run(app, app.settings.query_time, work).await
}

/// Parses the query of a request on a thread that may block, and passes it to `look`.
pub(crate) async fn parsed<T: Send + 'static>(
    app: &App,
    params: Params,
    look: impl FnOnce(&Query) -> T + Send + 'static,
) -> Result<T, ApiError> {
    let work = move |stop: &dyn Fn() -> Option<StopReason>, _| {
        let text = params.get("query").unwrap_or_default();
        Ok(look(&Query::parse_until(text, Options::default(), stop).map_err(query_error)?))
    };
    run(app, app.settings.query_time, work).await
}

/// `query`: evaluation at one time.
pub(crate) async fn instant(State(app): State<App>, params: Params) -> Result<Response, ApiError> {
    let limit = params.limit("limit")?;
    let time_ms = params.time("time")?.unwrap_or_else(now_ms);
    let time_limit = time_limit(&app, &params)?;
    answer(&app, &params, At::Time(time_ms), limit, time_limit).await
}

/// The cached response, or a new one.
async fn answer(
    app: &App,
    params: &Params,
    at: At,
    limit: usize,
    time_limit: Duration,
) -> Result<Response, ApiError> {
    let options = options(app, params)?;
    let text = params.get("query").unwrap_or_default();
    let stats = params.get("stats").map(str::to_owned);
    // `nocache=1`, as in VictoriaMetrics, bypasses the cache. Statistics belong to one evaluation.
    let kept = stats.is_none() && params.get("nocache").is_none_or(|value| value != "1");
    let question = format!("{at:?} {limit} {}\n{text}", options.lookback_ms);
    let store = app.store()?;
    if kept && let Some(body) = app.answers.get(&question, &store) {
        return Ok(json(body));
    }
    let (within, text) = (app.clone(), text.to_owned());
    // Parsing long queries and writing long responses take CPU time.
    let work = move |stop: &dyn Fn() -> Option<StopReason>, started: Instant| {
        let query = Query::parse_until(&text, options, stop).map_err(query_error)?;
        let query = query.sharing(within.memory.clone());
        // The cache is read after the snapshot was taken, so that its result is valid for the snapshot.
        let snapshot = within.service.database().snapshot();
        let plan = match at {
            At::Steps(start_ms, end_ms, step_ms) if kept => {
                let steps = Steps { start_ms, end_ms, step_ms };
                within.evaluated.plan(query.expr(), options.lookback_ms, steps, &store)
            }
            _ => None,
        };
        let (seq, series) = (snapshot.seq(), snapshot.metrics(&store));
        let evaluate = |at| match at {
            At::Time(time_ms) => query.instant(&series, time_ms, stop).map_err(query_error),
            At::Steps(start_ms, end_ms, step_ms) => {
                query.range(&series, start_ms, end_ms, step_ms, stop).map_err(query_error)
            }
        };
        let answer = match plan {
            None => evaluate(at)?,
            Some(plan) => match plan.missing {
                None => plan.whole(),
                Some(Steps { start_ms, end_ms, step_ms }) => {
                    let answer = evaluate(At::Steps(start_ms, end_ms, step_ms))?;
                    within.evaluated.finish(plan, answer, seq)
                }
            },
        };
        let latest_ms = answer.spent.latest_ms;
        let time_ms = match at {
            At::Time(time_ms) | At::Steps(time_ms, ..) => time_ms,
        };
        let list = respond(answer, time_ms, limit, stats.as_deref().map(|asked| (asked, started.elapsed())))?;
        if kept && let List::Short(body) = &list {
            within.answers.keep(question, body, seq, latest_ms);
        }
        Ok(list)
    };
    Ok(run(app, time_limit, work).await?.into_response())
}

/// `query_range`: evaluation at steps.
pub(crate) async fn range(State(app): State<App>, params: Params) -> Result<Response, ApiError> {
    let limit = params.limit("limit")?;
    let start_ms = params.needed_time("start")?;
    let end_ms = params.needed_time("end")?;
    if end_ms < start_ms {
        return Err(ApiError::parameter("end", "end timestamp must not be before start time"));
    }
    let missing = || ApiError::parameter("step", "cannot parse \"\" to a valid duration");
    let step_ms = params.duration("step")?.ok_or_else(missing)?;
    if step_ms <= 0 {
        let why = "zero or negative query resolution step widths are not accepted. Try a positive integer";
        return Err(ApiError::parameter("step", why));
    }
    if end_ms.saturating_sub(start_ms) / step_ms > POINTS_MAX {
        return Err(ApiError::bad(
            "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)",
        ));
    }
    let time_limit = time_limit(&app, &params)?;
    answer(&app, &params, At::Steps(start_ms, end_ms, step_ms), limit, time_limit).await
}

/// Truncates to `limit` items, and adds a warning.
fn cut<T>(items: &mut Vec<T>, limit: usize, notes: &mut Notes) {
    if items.len() > limit {
        items.truncate(limit);
        notes.warnings.extend(Notes::truncated().warnings);
    }
}

/// Limit of warnings and of infos in a response; the rest is only counted.
const NOTES_MAX: usize = 10;

/// The annotations of a result as warnings and infos.
fn notes(annotations: Vec<Annotation>) -> Notes {
    let of = |severity: Severity, word: &str| {
        let mut texts: Vec<String> = annotations
            .iter()
            .filter(|note| note.severity == severity)
            .map(|note| note.text.clone())
            .collect();
        if let Some(more) = texts.len().checked_sub(NOTES_MAX).filter(|more| *more > 0) {
            texts.truncate(NOTES_MAX);
            texts.push(format!("{more} more {word} annotations omitted"));
        }
        texts
    };
    Notes { warnings: of(Severity::Warning, "warning"), infos: of(Severity::Info, "info") }
}

/// Cost of a query, in Prometheus' JSON. Counters that we lack are 0; `peakSamples` is the peak of bytes
/// held, in samples of 16 bytes.
fn statistics(spent: Usage, took: Duration) -> serde_json::Value {
    let seconds = took.as_secs_f64();
    serde_json::json!({
        "timings": {
            "evalTotalTime": seconds, "resultSortTime": 0, "queryPreparationTime": 0, "innerEvalTime": seconds,
            "execQueueTime": 0, "execTotalTime": seconds,
        },
        "samples": {
            "totalQueryableSamples": spent.samples, "samplesRead": spent.samples,
            "peakSamples": spent.memory_bytes_max.div_ceil(16),
        },
    })
}

fn respond(
    answer: Answer,
    time_ms: i64,
    limit: usize,
    stats: Option<(&str, Duration)>,
) -> Result<List, ApiError> {
    let Answer { value, annotations, spent, mut share } = answer;
    let mut notes = notes(annotations);
    if let Some((asked, _)) = stats.filter(|(asked, _)| !matches!(*asked, "true" | "all")) {
        notes.warnings.push(format!(
            "value {asked:?} for parameter \"stats\" is deprecated and will be rejected in the next major release, use \"true\" or \"all\""
        ));
    }
    let kind = match &value {
        Value::Scalar(_) => "scalar",
        Value::Text(_) => "string",
        Value::Vector(_) => "vector",
        Value::Matrix(_) => "matrix",
    };
    let mut head = HEAD.to_vec();
    head.extend_from_slice(format!("{{\"resultType\":\"{kind}\",\"result\":[").as_bytes());
    let end = |notes: &Notes| {
        let mut out = b"]".to_vec();
        if let Some((_, took)) = stats {
            out.extend_from_slice(format!(",\"stats\":{}", statistics(spent, took)).as_bytes());
        }
        out.push(b'}');
        put_tail(&mut out, notes);
        out
    };
    Ok(match value {
        Value::Scalar(number) => {
            put_time(&mut head, time_ms);
            head.push(b',');
            put_value(&mut head, number);
            stream::list(head, Vec::<()>::new(), |_, ()| (), end(&notes), share)
        }
        Value::Text(text) => {
            put_time(&mut head, time_ms);
            head.push(b',');
            put_text(&mut head, &String::from_utf8_lossy(&text));
            stream::list(head, Vec::<()>::new(), |_, ()| (), end(&notes), share)
        }
        Value::Vector(rows) => {
            let mut rows: Vec<_> =
                rows.into_iter().map(|(labels, sample)| (time_ms, labels, sample)).collect();
            cut(&mut rows, limit, &mut notes);
            let tail = end(&notes);
            stream::list(head, rows, put_vector_row, tail, share)
        }
        Value::Matrix(mut rows) => {
            cut(&mut rows, limit, &mut notes);
            // A series is written as one chunk.
            let longest = rows.iter().map(|series| series.samples.len()).max().unwrap_or(0);
            share.grow(longest * POINT_BYTES)?;
            let tail = end(&notes);
            stream::list(head, rows, put_matrix_row, tail, share)
        }
    })
}

/// Bytes of a point as text, roughly.
const POINT_BYTES: usize = 40;

/// Limit of exemplars in a response.
const EXEMPLARS_MAX: usize = 100_000;

/// Collects the matchers of every selector in an expression.
fn selectors<'e>(expr: &'e Expr, found: &mut Vec<&'e [Matcher]>) {
    match expr {
        Expr::Selector(selector) => found.extend(lists(selector)),
        Expr::Matrix(matrix) => found.extend(lists(&matrix.selector)),
        other => other.children().into_iter().for_each(|child| selectors(child, found)),
    }
}

fn lists(selector: &Selector) -> impl Iterator<Item = &[Matcher]> {
    [&selector.matchers].into_iter().chain(&selector.others).map(Vec::as_slice)
}

/// `query_exemplars`: the exemplars of the series that the query selects.
pub(crate) async fn exemplars(State(app): State<App>, params: Params) -> Result<Response, ApiError> {
    let start_ms = params.time("start")?.unwrap_or(crate::request::time::EARLIEST_MS);
    let end_ms = params.time("end")?.unwrap_or(crate::request::time::LATEST_MS);
    if end_ms < start_ms {
        return Err(ApiError::bad("end timestamp must not be before start timestamp"));
    }
    let mut share = Share::new(Some(app.memory.clone()));
    let found = names::on_snapshot(&app, move |series| {
        let text = params.get("query").unwrap_or_default();
        let query = Query::parse(text, Options::default());
        let query = query.map_err(|error| ApiError::bad(error.to_string()))?;
        let mut lists = Vec::new();
        selectors(query.expr(), &mut lists);
        let mut found: BTreeMap<Labels, Vec<Exemplar>> = BTreeMap::new();
        for matchers in lists {
            series.each_exemplar(matchers, (start_ms, end_ms), EXEMPLARS_MAX, |labels, exemplar| {
                names::take(&mut share, exemplar.labels.as_ref().map_or(0, Labels::bytes))?;
                if !found.contains_key(labels) {
                    names::take(&mut share, labels.bytes())?;
                }
                found.entry(labels.clone()).or_default().push(exemplar);
                Ok::<_, ApiError>(())
            })?;
        }
        Ok((found, share))
    });
    let (mut found, share) = found.await?;
    for list in found.values_mut() {
        list.sort_by_key(|exemplar| exemplar.time_ms);
        list.dedup_by_key(|exemplar| exemplar.time_ms);
    }
    let mut tail = b"]".to_vec();
    put_tail(&mut tail, &Notes::default());
    let found: Vec<(Labels, Vec<Exemplar>)> = found.into_iter().collect();
    Ok(stream::list([HEAD, b"["].concat(), found, put_exemplars, tail, share).into_response())
}

fn put_exemplars(out: &mut Vec<u8>, (labels, exemplars): &(Labels, Vec<Exemplar>)) {
    out.extend_from_slice(b"{\"seriesLabels\":");
    put_labels(out, labels.iter());
    out.extend_from_slice(b",\"exemplars\":");
    put_list(out, exemplars, put_exemplar);
    out.push(b'}');
}

fn put_exemplar(out: &mut Vec<u8>, exemplar: &Exemplar) {
    out.extend_from_slice(b"{\"labels\":");
    put_labels(out, exemplar.labels.iter().flat_map(|labels| labels.iter()));
    out.extend_from_slice(b",\"value\":");
    put_value(out, exemplar.value);
    out.extend_from_slice(b",\"timestamp\":");
    put_time(out, exemplar.time_ms);
    out.push(b'}');
}

/// `format_query`: the query in one form, long ones on several lines.
pub(crate) async fn format(State(app): State<App>, params: Params) -> Result<Response, ApiError> {
    let text = parsed(&app, params, |query| query.expr().pretty()).await?;
    Ok(success(&Notes::default(), |out| put_text(out, &text)))
}
