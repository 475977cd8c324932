//! Jobs, rules and alerts as the API shows them.

use std::sync::PoisonError;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use ropewalk_wire::{Caller, Right};
use serde_json::{Value, json};

use super::RuleHealth;
use super::alerts::{self, Alert};
use super::rules::GroupState;
use crate::App;
use crate::answer::{ApiError, Notes, success};
use crate::number::put_float;
use crate::params::Params;

fn data(value: &Value) -> Response {
    success(&Notes::default(), |out| out.extend_from_slice(value.to_string().as_bytes()))
}

fn moment(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).map_or_else(|_| String::new(), |time| time.to_string())
}

fn number(value: f64) -> String {
    let mut out = Vec::new();
    put_float(&mut out, value);
    String::from_utf8_lossy(&out).into_owned()
}

fn seconds(time: Duration) -> Value {
    json!(time.as_secs_f64())
}

/// `rules`, with `type`, `rule_name[]`, `rule_group[]`, `file[]` and `exclude_alerts`.
pub(crate) async fn rules(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    params: Params,
) -> Result<Response, ApiError> {
    app.may(&caller, Right::Read)?;
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
    let mut groups = Vec::new();
    for state in app.jobs.groups().iter() {
        let group = &state.group;
        if !asked("rule_group[]", &group.name) || !asked("file[]", &group.file) {
            continue;
        }
        let health = state.health.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let rules: Vec<Value> = group
            .rules
            .iter()
            .enumerate()
            .filter(|(_, rule)| kind.is_none_or(|alerts| rule.alert.is_some() == alerts))
            .filter(|(_, rule)| asked("rule_name[]", &rule.name))
            .map(|(number, _)| rule(state, number, health.get(number), exclude))
            .collect();
        let filtered = kind.is_some() || params.all("rule_name[]").next().is_some();
        if filtered && rules.is_empty() {
            continue;
        }
        let took = health.iter().map(|health| health.took).sum();
        groups.push(json!({
            "name": group.name, "file": group.file, "rules": rules, "interval": group.interval.as_secs_f64(),
            "limit": group.limit, "evaluationTime": seconds(took),
            "lastEvaluation": moment(health.iter().map(|health| health.at_ms).max().unwrap_or(0)),
        }));
    }
    Ok(data(&json!({ "groups": groups })))
}

fn rule(state: &GroupState, number: usize, health: Option<&RuleHealth>, exclude: bool) -> Value {
    let Some(rule) = state.group.rules.get(number) else { return Value::Null };
    let mut shown = json!({
        "name": rule.name, "query": rule.query.expr().to_string(), "labels": rule.labels,
        "health": match health { None => "unknown", Some(health) if health.error.is_some() => "err", Some(_) => "ok" },
        "lastError": health.and_then(|health| health.error.clone()).unwrap_or_default(),
        "evaluationTime": health.map_or(0.0, |health| health.took.as_secs_f64()),
        "lastEvaluation": moment(health.map_or(0, |health| health.at_ms)),
        "type": if rule.alert.is_some() { "alerting" } else { "recording" },
    });
    if let (Some(alert), Some(fields)) = (&rule.alert, shown.as_object_mut()) {
        let active = state.alerting.active(number);
        let worst = active.iter().map(|alert| alert.state);
        let firing = worst.clone().any(|state| state == alerts::State::Firing);
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
        if !exclude {
            fields.insert("alerts".to_owned(), active.iter().map(shown_alert).collect());
        }
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
pub(crate) async fn alerts(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, ApiError> {
    app.may(&caller, Right::Read)?;
    let states = app.jobs.groups();
    let all = states
        .iter()
        .flat_map(|state| (0..state.group.rules.len()).flat_map(|number| state.alerting.active(number)));
    let all: Vec<Value> = all.map(|alert| shown_alert(&alert)).collect();
    Ok(data(&json!({ "alerts": all })))
}

/// `alertmanagers`: whom we tell.
pub(crate) async fn alertmanagers(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, ApiError> {
    app.may(&caller, Right::Read)?;
    let config = app.jobs.config();
    let active: Vec<Value> = config.alertmanagers.iter().map(|one| json!({ "url": one.url })).collect();
    Ok(data(&json!({ "activeAlertmanagers": active, "droppedAlertmanagers": [] })))
}

/// `targets`, with `state` and `scrapePool`.
pub(crate) async fn targets(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    params: Params,
) -> Result<Response, ApiError> {
    app.may(&caller, Right::Read)?;
    let (mut active, mut dropped, mut counts) = (Vec::new(), Vec::new(), serde_json::Map::new());
    let state = params.get("state").unwrap_or("any");
    let config = app.jobs.config();
    let pools = app.jobs.pools.lock().unwrap_or_else(PoisonError::into_inner);
    for job in &config.jobs {
        if params.get("scrapePool").is_some_and(|pool| pool != job.name) {
            continue;
        }
        let Some(pool) = pools.get(&job.name) else { continue };
        counts.insert(job.name.clone(), json!(pool.dropped.len()));
        if state != "dropped" {
            active.extend(pool.active.iter().map(|(target, health)| {
                let health = health.lock().unwrap_or_else(PoisonError::into_inner);
                let error = health.outcome.as_ref().and_then(|outcome| outcome.as_ref().err().cloned());
                let word = match &health.outcome { None => "unknown", Some(Ok(())) => "up", Some(Err(_)) => "down" };
                json!({
                    "discoveredLabels": target.discovered, "labels": target.labels, "scrapePool": job.name,
                    "scrapeUrl": target.url, "globalUrl": target.url, "lastError": error.unwrap_or_default(),
                    "lastScrape": moment(health.at_ms), "lastScrapeDuration": seconds(health.took), "health": word,
                    "scrapeInterval": format!("{}s", job.interval.as_secs_f64()),
                    "scrapeTimeout": format!("{}s", job.timeout.as_secs_f64()),
                })
            }));
        }
        if state != "active" {
            dropped.extend(pool.dropped.iter().map(|labels| json!({ "discoveredLabels": labels })));
        }
    }
    drop(pools);
    Ok(data(&json!({ "activeTargets": active, "droppedTargets": dropped, "droppedTargetCounts": counts })))
}

/// `scrape_pools`: the names of the jobs.
pub(crate) async fn scrape_pools(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, ApiError> {
    app.may(&caller, Right::Read)?;
    let config = app.jobs.config();
    let names: Vec<&str> = config.jobs.iter().map(|job| job.name.as_str()).collect();
    Ok(data(&json!({ "scrapePools": names })))
}
