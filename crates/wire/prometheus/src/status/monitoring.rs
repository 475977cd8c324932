//! Targets, rules and alerts over HTTP, and the reload of their configuration.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use ropewalk::promql::format_duration;
use ropewalk::series::Matcher;
use ropewalk_monitoring::notation::put_exponent;
use ropewalk_monitoring::{Alert, AlertState, GroupState, RuleHealth};
use serde_json::{Value, json};

use crate::app::App;
use crate::query::names;
use crate::request::params::Params;
use crate::request::response::{ApiError, Kind, Notes, Plain, success};

fn data(value: &Value) -> Response {
    success(&Notes::default(), |out| out.extend_from_slice(value.to_string().as_bytes()))
}

fn moment(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).map_or_else(|_| String::new(), |time| time.to_string())
}

/// The value of an alert; Prometheus prints it with an exponent.
fn number(value: f64) -> String {
    let mut out = Vec::new();
    put_exponent(&mut out, value);
    String::from_utf8_lossy(&out).into_owned()
}

fn seconds(time: Duration) -> Value {
    json!(time.as_secs_f64())
}

/// A duration such as `1m30s`.
fn span(time: Duration) -> String {
    format_duration(time.as_millis() as i64)
}

/// Token of a page of groups.
fn token(file: &str, name: &str) -> String {
    format!("{file};{name}")
}

/// `rules`, with `type`, `rule_name[]`, `rule_group[]`, `file[]`, `match[]` and `exclude_alerts`; paged by
/// `group_limit` and `group_next_token`.
pub(crate) async fn rules(State(app): State<App>, params: Params) -> Result<Response, ApiError> {
    let kind = match params.get("type") {
        None => None,
        Some("alert") => Some(true),
        Some("record") => Some(false),
        Some(other) => return Err(ApiError::parameter("type", format!("not supported value {other:?}"))),
    };
    let exclude = params.get("exclude_alerts").is_some_and(|value| matches!(value, "true" | "1"));
    let asked = |name: &'static str, value: &str| {
        let mut all = params.all(name).peekable();
        all.peek().is_none() || all.any(|asked| asked == value)
    };
    let selectors = names::of_texts(params.all("match[]"));
    let selectors = selectors.map_err(ApiError::bad)?;
    let selected = |labels: &BTreeMap<String, String>| {
        let value = |name: &str| labels.get(name).map_or("", String::as_str);
        let holds = |all: &Vec<Matcher>| all.iter().all(|matcher| matcher.matches(value(matcher.name())));
        selectors.is_empty() || selectors.iter().any(holds)
    };
    let limit = params.whole("group_limit")?.filter(|limit| *limit > 0);
    let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let (from, mut begun, mut next) = (params.get("group_next_token"), false, None);
    let mut groups = Vec::new();
    for state in app.monitoring.groups().iter() {
        let group = &state.group;
        begun |= from.is_none_or(|from| from == token(&group.file, &group.name));
        if !begun {
            continue;
        }
        if !asked("rule_group[]", &group.name) || !asked("file[]", &group.file) {
            continue;
        }
        let health = state.health();
        let rules: Vec<Value> = group
            .rules
            .iter()
            .enumerate()
            .filter(|(_, rule)| kind.is_none_or(|alerts| rule.alert.is_some() == alerts))
            .filter(|(_, rule)| asked("rule_name[]", &rule.name) && selected(&rule.labels))
            .map(|(number, _)| rule(state, number, health.get(number), exclude))
            .collect();
        let filtered = kind.is_some() || !selectors.is_empty() || params.all("rule_name[]").next().is_some();
        if filtered && rules.is_empty() {
            continue;
        }
        if groups.len() == limit {
            next = Some(token(&group.file, &group.name));
            break;
        }
        let took = health.iter().map(|health| health.took).sum();
        groups.push(json!({
            "name": group.name, "file": group.file, "rules": rules, "interval": group.interval.as_secs_f64(),
            "limit": group.limit, "evaluationTime": seconds(took),
            "lastEvaluation": moment(health.iter().map(|health| health.at_ms).max().unwrap_or(0)),
        }));
    }
    if let Some(from) = from.filter(|_| !begun) {
        let why = format!("invalid group_next_token '{from}'. were rule groups changed?");
        return Err(ApiError::parameter("group_next_token", why));
    }
    let mut answer = json!({ "groups": groups });
    if let (Some(next), Some(fields)) = (next, answer.as_object_mut()) {
        fields.insert("groupNextToken".to_owned(), json!(next));
    }
    Ok(data(&answer))
}

fn rule(state: &GroupState, number: usize, health: Option<&RuleHealth>, exclude: bool) -> Value {
    let Some(rule) = state.group.rules.get(number) else { return Value::Null };
    let mut shown = json!({
        "name": rule.name, "query": rule.query.expr().to_string(), "labels": rule.labels,
        "health": match health { None => "unknown", Some(health) if health.error.is_some() => "err", Some(_) => "ok" },
        "evaluationTime": health.map_or(0.0, |health| health.took.as_secs_f64()),
        "lastEvaluation": moment(health.map_or(0, |health| health.at_ms)),
        "type": if rule.alert.is_some() { "alerting" } else { "recording" },
    });
    let Some(fields) = shown.as_object_mut() else { return shown };
    if let Some(error) = health.and_then(|health| health.error.clone()) {
        fields.insert("lastError".to_owned(), json!(error));
    }
    if let Some(alert) = &rule.alert {
        let active = state.alerts(number);
        let worst = active.iter().map(|alert| alert.state);
        let firing = worst.clone().any(|state| state == AlertState::Firing);
        let word = if firing {
            "firing"
        } else if active.is_empty() {
            "inactive"
        } else {
            "pending"
        };
        fields.insert("state".to_owned(), json!(word));
        fields.insert("duration".to_owned(), seconds(alert.hold));
        fields.insert("keepFiringFor".to_owned(), seconds(alert.keep));
        fields.insert("annotations".to_owned(), json!(alert.annotation_texts));
        let alerts = if exclude { Value::Null } else { active.iter().map(shown_alert).collect() };
        fields.insert("alerts".to_owned(), alerts);
    }
    shown
}

fn shown_alert(alert: &Alert) -> Value {
    json!({
        "labels": alert.labels, "annotations": alert.annotations, "state": alert.state.name(),
        "activeAt": moment(alert.active_ms), "value": number(alert.value),
    })
}

/// `alerts`: those that have not ended.
pub(crate) async fn alerts(State(app): State<App>) -> Result<Response, ApiError> {
    let states = app.monitoring.groups();
    let all =
        states.iter().flat_map(|state| (0..state.group.rules.len()).flat_map(|number| state.alerts(number)));
    let all: Vec<Value> = all.map(|alert| shown_alert(&alert)).collect();
    Ok(data(&json!({ "alerts": all })))
}

/// `alertmanagers`: the configured Alertmanagers.
pub(crate) async fn alertmanagers(State(app): State<App>) -> Result<Response, ApiError> {
    let config = app.monitoring.config();
    let active: Vec<Value> = config.alertmanagers.iter().map(|one| json!({ "url": one.url })).collect();
    Ok(data(&json!({ "activeAlertmanagers": active, "droppedAlertmanagers": [] })))
}

/// `targets`, with `state` and `scrapePool`.
pub(crate) async fn targets(State(app): State<App>, params: Params) -> Result<Response, ApiError> {
    let (mut active, mut dropped, mut counts) = (Vec::new(), Vec::new(), serde_json::Map::new());
    let state = params.get("state").unwrap_or("any");
    let config = app.monitoring.config();
    let pools = app.monitoring.pools();
    for job in &config.jobs {
        let Some(pool) = pools.get(&job.name) else { continue };
        counts.insert(job.name.clone(), json!(pool.dropped.len()));
        if params.get("scrapePool").is_some_and(|pool| pool != job.name) {
            continue;
        }
        if state != "dropped" {
            active.extend(pool.active.iter().map(|(target, health)| {
                let health = health.lock().unwrap_or_else(PoisonError::into_inner);
                let error = health.outcome.as_ref().and_then(|outcome| outcome.as_ref().err().cloned());
                let word = match &health.outcome { None => "unknown", Some(Ok(())) => "up", Some(Err(_)) => "down" };
                json!({
                    "discoveredLabels": target.discovered, "labels": target.labels, "scrapePool": job.name,
                    "scrapeUrl": target.url, "globalUrl": target.url, "lastError": error.unwrap_or_default(),
                    "lastScrape": moment(health.at_ms), "lastScrapeDuration": seconds(health.took), "health": word,
                    "scrapeInterval": span(job.interval), "scrapeTimeout": span(job.timeout),
                })
            }));
        }
        if state != "active" {
            let shown = |labels| json!({ "discoveredLabels": labels, "scrapePool": job.name });
            dropped.extend(pool.dropped.iter().map(shown));
        }
    }
    drop(pools);
    Ok(data(&json!({ "activeTargets": active, "droppedTargets": dropped, "droppedTargetCounts": counts })))
}

/// `scrape_pools`: the names of the jobs.
pub(crate) async fn scrape_pools(State(app): State<App>) -> Result<Response, ApiError> {
    let config = app.monitoring.config();
    let mut names: Vec<&str> = config.jobs.iter().map(|job| job.name.as_str()).collect();
    names.sort_unstable();
    Ok(data(&json!({ "scrapePools": names })))
}

/// `POST /-/reload`.
pub(crate) async fn reload(State(app): State<App>) -> Result<StatusCode, Plain> {
    let done = app.monitoring.clone().reload(app).await;
    done.map_err(|error| ApiError::new(Kind::Internal, format!("failed to reload config: {error}")))?;
    Ok(StatusCode::OK)
}
