//! Targets, rules and alerts over HTTP, and the reload of their configuration.

use std::sync::PoisonError;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use ropewalk::promql::format_duration;
use ropewalk::series::Matcher;
use ropewalk_monitoring::notation::put_exponent;
use ropewalk_monitoring::{Alert, AlertState, GroupState, Rule, RuleHealth, ScrapeJob, ScrapePool};
use serde_json::{Value, json};

use crate::app::App;
use crate::query::counted::Counted;
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
    let listed = app.clone();
    app.off_thread(move || listed_rules(&listed, &params)).await?
}

/// The rules that a request selects.
struct Selected<'p> {
    params: &'p Params,
    /// Only alerting rules, or only recording rules.
    alerts: Option<bool>,
    /// A rule has to match one of these lists.
    selectors: Vec<Vec<Matcher>>,
}

impl<'p> Selected<'p> {
    fn new(params: &'p Params) -> Result<Self, ApiError> {
        let alerts = match params.get("type") {
            None => None,
            Some("alert") => Some(true),
            Some("record") => Some(false),
            Some(other) => return Err(ApiError::parameter("type", format!("not supported value {other:?}"))),
        };
        Ok(Self { params, alerts, selectors: names::of_texts(params.all("match[]")).map_err(ApiError::bad)? })
    }

    /// Whether the list in the parameter is absent or has the value.
    fn names(&self, parameter: &'static str, value: &str) -> bool {
        let mut all = self.params.all(parameter).peekable();
        all.peek().is_none() || all.any(|asked| asked == value)
    }

    /// Whether groups are left out of which no rule is selected.
    fn filters_rules(&self) -> bool {
        let has_names = self.params.all("rule_name[]").next().is_some();
        self.alerts.is_some() || !self.selectors.is_empty() || has_names
    }

    fn has(&self, rule: &Rule) -> bool {
        let value = |name: &str| rule.labels.get(name).map_or("", String::as_str);
        let holds = |all: &Vec<Matcher>| all.iter().all(|matcher| matcher.matches(value(matcher.name())));
        self.alerts.is_none_or(|alerts| rule.alert.is_some() == alerts)
            && self.names("rule_name[]", &rule.name)
            && (self.selectors.is_empty() || self.selectors.iter().any(holds))
    }
}

fn listed_rules(app: &App, params: &Params) -> Result<Response, ApiError> {
    let selected = Selected::new(params)?;
    let exclude = params.get("exclude_alerts").is_some_and(|value| matches!(value, "true" | "1"));
    let limit = params.whole("group_limit")?.filter(|limit| *limit > 0);
    let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let (from, mut begun, mut next) = (params.get("group_next_token"), false, None);
    let (mut out, mut groups) = (Counted::new(app), 0);
    out.put("{\"groups\":[")?;
    for state in app.monitoring.groups().iter() {
        let group = &state.group;
        begun |= from.is_none_or(|from| from == token(&group.file, &group.name));
        if !begun || !selected.names("rule_group[]", &group.name) || !selected.names("file[]", &group.file) {
            continue;
        }
        let rules = group.rules.iter().enumerate().filter(|(_, rule)| selected.has(rule));
        let rules: Vec<usize> = rules.map(|(number, _)| number).collect();
        if selected.filters_rules() && rules.is_empty() {
            continue;
        }
        if groups == limit {
            next = Some(token(&group.file, &group.name));
            break;
        }
        groups += 1;
        let health = state.health();
        let took = health.iter().map(|health| health.took).sum();
        let fields = json!({
            "name": group.name, "file": group.file, "interval": group.interval.as_secs_f64(),
            "limit": group.limit, "evaluationTime": seconds(took),
            "lastEvaluation": moment(health.iter().map(|health| health.at_ms).max().unwrap_or(0)),
        });
        out.open(&fields, "rules")?;
        for number in rules {
            put_rule(&mut out, state, number, health.get(number), exclude)?;
        }
        out.close()?;
    }
    if let Some(from) = from.filter(|_| !begun) {
        let why = format!("invalid group_next_token '{from}'. were rule groups changed?");
        return Err(ApiError::parameter("group_next_token", why));
    }
    out.put("]")?;
    if let Some(next) = next {
        out.put(&format!(",\"groupNextToken\":{}", json!(next)))?;
    }
    out.put("}")?;
    Ok(out.into_response())
}

fn put(fields: &mut Value, name: &str, value: Value) {
    if let Some(fields) = fields.as_object_mut() {
        fields.insert(name.to_owned(), value);
    }
}

fn put_rule(
    out: &mut Counted,
    state: &GroupState,
    number: usize,
    health: Option<&RuleHealth>,
    exclude: bool,
) -> Result<(), ApiError> {
    let Some(rule) = state.group.rules.get(number) else { return Ok(()) };
    let mut fields = json!({
        "name": rule.name, "query": rule.query.expr().to_string(), "labels": rule.labels,
        "health": match health { None => "unknown", Some(health) if health.error.is_some() => "err", Some(_) => "ok" },
        "evaluationTime": health.map_or(0.0, |health| health.took.as_secs_f64()),
        "lastEvaluation": moment(health.map_or(0, |health| health.at_ms)),
        "type": if rule.alert.is_some() { "alerting" } else { "recording" },
    });
    if let Some(error) = health.and_then(|health| health.error.clone()) {
        put(&mut fields, "lastError", json!(error));
    }
    let Some(alert) = &rule.alert else { return out.element(&fields) };
    put(&mut fields, "duration", seconds(alert.hold));
    put(&mut fields, "keepFiringFor", seconds(alert.keep));
    put(&mut fields, "annotations", json!(alert.annotation_texts));
    state.with_alerts(number, |active| {
        let firing = active.iter().any(|alert| alert.state == AlertState::Firing);
        let state = if firing {
            "firing"
        } else if active.is_empty() {
            "inactive"
        } else {
            "pending"
        };
        put(&mut fields, "state", json!(state));
        if exclude {
            put(&mut fields, "alerts", Value::Null);
            return out.element(&fields);
        }
        out.open(&fields, "alerts")?;
        active.iter().try_for_each(|alert| out.element(&shown_alert(alert)))?;
        out.close()
    })
}

fn shown_alert(alert: &Alert) -> Value {
    json!({
        "labels": alert.labels, "annotations": alert.annotations, "state": alert.state.name(),
        "activeAt": moment(alert.active_ms), "value": number(alert.value),
    })
}

/// `alerts`: those that have not ended.
pub(crate) async fn alerts(State(app): State<App>) -> Result<Response, ApiError> {
    let listed = app.clone();
    let list = move || {
        let mut out = Counted::new(&listed);
        out.put("{\"alerts\":[")?;
        for state in listed.monitoring.groups().iter() {
            for number in 0..state.group.rules.len() {
                state.with_alerts(number, |active| {
                    active.iter().try_for_each(|alert| out.element(&shown_alert(alert)))
                })?;
            }
        }
        out.close()?;
        Ok(out.into_response())
    };
    app.off_thread(list).await?
}

/// `alertmanagers`: the configured Alertmanagers.
pub(crate) async fn alertmanagers(State(app): State<App>) -> Result<Response, ApiError> {
    let config = app.monitoring.config();
    let active: Vec<Value> = config.alertmanagers.iter().map(|one| json!({ "url": one.url })).collect();
    Ok(data(&json!({ "activeAlertmanagers": active, "droppedAlertmanagers": [] })))
}

/// `targets`, with `state` and `scrapePool`.
pub(crate) async fn targets(State(app): State<App>, params: Params) -> Result<Response, ApiError> {
    let listed = app.clone();
    app.off_thread(move || listed_targets(&listed, &params)).await?
}

fn listed_targets(app: &App, params: &Params) -> Result<Response, ApiError> {
    let state = params.get("state").unwrap_or("any");
    let is_shown = |job: &ScrapeJob| params.get("scrapePool").is_none_or(|pool| pool == job.name);
    let (config, pools) = (app.monitoring.config(), app.monitoring.pools());
    let pools: Vec<(&ScrapeJob, &ScrapePool)> =
        config.jobs.iter().filter_map(|job| Some((job, pools.get(&job.name)?))).collect();
    let mut out = Counted::new(app);
    out.put("{\"activeTargets\":[")?;
    for (job, pool) in pools.iter().filter(|(job, _)| state != "dropped" && is_shown(job)) {
        for (target, health) in &pool.active {
            let health = health.lock().unwrap_or_else(PoisonError::into_inner);
            let error = health.outcome.as_ref().and_then(|outcome| outcome.as_ref().err().cloned());
            let word = match &health.outcome {
                None => "unknown",
                Some(Ok(())) => "up",
                Some(Err(_)) => "down",
            };
            out.element(&json!({
                "discoveredLabels": target.discovered, "labels": target.labels, "scrapePool": job.name,
                "scrapeUrl": target.url, "globalUrl": target.url, "lastError": error.unwrap_or_default(),
                "lastScrape": moment(health.at_ms), "lastScrapeDuration": seconds(health.took), "health": word,
                "scrapeInterval": span(job.interval), "scrapeTimeout": span(job.timeout),
            }))?;
        }
    }
    out.put("],\"droppedTargets\":[")?;
    for (job, pool) in pools.iter().filter(|(job, _)| state != "active" && is_shown(job)) {
        for labels in &pool.dropped {
            out.element(&json!({ "discoveredLabels": labels, "scrapePool": job.name }))?;
        }
    }
    let counts = pools.iter().map(|(job, pool)| (job.name.clone(), json!(pool.dropped.len())));
    out.put(&format!("],\"droppedTargetCounts\":{}}}", Value::Object(counts.collect())))?;
    Ok(out.into_response())
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
