//! Recording and alerting rules: read from rule files, evaluated group by group.
//!
//!   group, every interval: rule by rule at one time ─▶ query ─▶ samples (record), alerts ─▶ one commit each
//!
//! A rule reads the results of the rules before it in its group. Series that a rule no longer returns are
//! marked stale. A group that takes longer than its interval skips the evaluations in between. Evaluation
//! times are multiples of the interval plus an offset of the group, so that groups do not all begin at once.
//! Source: "Recording rules" and "Alerting rules" of the Prometheus documentation.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ropewalk::promql::{self, Options, Query, Sample, Value};
use ropewalk::series::{MatchOp, Matcher, SampleBatch, Samples};
use ropewalk_wire::Caller;
use serde::Deserialize;

use super::alerts::{AlertRule, Alerting, Remembered, STOP_MS_MAX, resumed};
use super::config::{ConfigError, Span};
use super::template::Template;
use crate::app::App;
use crate::ingest;
use crate::ingest::labels::{LabelSet, METRIC_NAME, Rejected};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    groups: Vec<GroupConfig>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupConfig {
    name: String,
    interval: Option<Span>,
    query_offset: Option<Span>,
    #[serde(default)]
    limit: usize,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    rules: Vec<RuleConfig>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleConfig {
    record: Option<String>,
    alert: Option<String>,
    expr: String,
    #[serde(rename = "for")]
    hold: Option<Span>,
    keep_firing_for: Option<Span>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// Rules that are evaluated one after the other.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) file: String,
    pub(crate) interval: Duration,
    pub(crate) offset_ms: i64,
    /// Limit of series or alerts of one rule; 0 for none.
    pub(crate) limit: usize,
    pub(crate) rules: Vec<Rule>,
}

/// One rule.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub(crate) name: String,
    pub(crate) query: Query,
    pub(crate) labels: BTreeMap<String, String>,
    /// Present for an alerting rule.
    pub(crate) alert: Option<AlertRule>,
}

/// Outcome of the newest evaluation of a rule.
#[derive(Debug, Clone, Default)]
pub(crate) struct Health {
    pub(crate) error: Option<String>,
    pub(crate) took: Duration,
    pub(crate) at_ms: i64,
}

/// Reads the groups of a rule file.
pub(super) fn read(path: &Path, default: Duration) -> Result<Vec<Group>, ConfigError> {
    let (_, file): (String, File) = super::config::yaml(path)?;
    let mut groups: Vec<Group> = Vec::new();
    for config in file.groups {
        let group = group(&config, path, default).map_err(|what| ConfigError::new(path, what))?;
        if groups.iter().any(|other| other.name == group.name) {
            return Err(ConfigError::new(
                path,
                format!("groupname: {:?} is repeated in the same file", group.name),
            ));
        }
        groups.push(group);
    }
    Ok(groups)
}

fn group(config: &GroupConfig, path: &Path, default: Duration) -> Result<Group, String> {
    let interval = config.interval.map_or(default, |interval| interval.0);
    if config.name.is_empty() || interval.is_zero() {
        return Err("a group needs a name, and an interval above 0".to_owned());
    }
    let rule = |rule: &RuleConfig| {
        self::rule(rule, &config.labels).map_err(|why| format!("group {:?}: {why}", config.name))
    };
    Ok(Group {
        name: config.name.clone(),
        file: path.display().to_string(),
        interval,
        offset_ms: config.query_offset.map_or(0, |offset| offset.0.as_millis() as i64),
        limit: config.limit,
        rules: config.rules.iter().map(rule).collect::<Result<_, _>>()?,
    })
}

fn rule(config: &RuleConfig, common: &BTreeMap<String, String>) -> Result<Rule, String> {
    let (name, is_alert) = match (&config.record, &config.alert) {
        (Some(name), None) => (name, false),
        (None, Some(name)) => (name, true),
        _ => return Err("a rule has either `record` or `alert`".to_owned()),
    };
    let said = |why: &dyn std::fmt::Display| format!("rule {name:?}: {why}");
    if name.is_empty() {
        return Err("a rule has no name".to_owned());
    }
    let query = Query::parse(&config.expr, Options::default()).map_err(|error| said(&error))?;
    let mut labels = common.clone();
    labels.extend(config.labels.clone());
    if labels.contains_key(METRIC_NAME) {
        return Err(said(&"the label __name__ is not free"));
    }
    let alert = if is_alert {
        let all = |map: &BTreeMap<String, String>| -> Result<Vec<(String, Template)>, String> {
            let one = |(name, text): (&String, &String)| {
                Ok((name.clone(), Template::parse(text).map_err(|why| said(&why))?))
            };
            map.iter().map(one).collect()
        };
        Some(AlertRule {
            hold: config.hold.map_or(Duration::ZERO, |span| span.0),
            keep: config.keep_firing_for.map_or(Duration::ZERO, |span| span.0),
            labels: all(&labels)?,
            annotations: all(&config.annotations)?,
            annotation_texts: config.annotations.clone(),
        })
    } else {
        if config.hold.is_some() || config.keep_firing_for.is_some() || !config.annotations.is_empty() {
            return Err(said(&"for, keep_firing_for and annotations belong to alerts"));
        }
        None
    };
    Ok(Rule { name: name.clone(), query, labels, alert })
}

impl Rule {
    /// True when `other` takes over this rule's state: its query and its `for` duration may differ.
    fn is_succeeded_by(&self, other: &Self) -> bool {
        self.name == other.name
            && self.labels == other.labels
            && self.alert.is_some() == other.alert.is_some()
    }

    fn is_same(&self, other: &Self) -> bool {
        let of_alert = |rule: &Self| {
            rule.alert.as_ref().map(|alert| (alert.hold, alert.keep, alert.annotation_texts.clone()))
        };
        self.is_succeeded_by(other)
            && of_alert(self) == of_alert(other)
            && self.query.expr().to_string() == other.query.expr().to_string()
    }
}

impl Group {
    /// Identity of a group across reloads.
    pub(super) fn key(&self) -> (String, String) {
        (self.file.clone(), self.name.clone())
    }

    fn is_same(&self, other: &Self) -> bool {
        let of =
            |group: &Self| (group.key(), group.interval, group.offset_ms, group.limit, group.rules.len());
        of(self) == of(other) && self.rules.iter().zip(&other.rules).all(|(one, other)| one.is_same(other))
    }
}

/// Label bytes of series.
pub(super) type SeriesSet = HashSet<Box<[u8]>>;

/// A running group, as the API lists it.
#[derive(Debug)]
pub(crate) struct GroupState {
    pub(crate) group: Group,
    pub(crate) alerting: Alerting,
    pub(crate) health: Mutex<Vec<Health>>,
    /// The series of each rule's last result.
    given: Mutex<Vec<Arc<SeriesSet>>>,
    /// The first evaluation restores alerts that began before a restart.
    resumes: AtomicBool,
}

impl GroupState {
    pub(super) fn new(group: Group, external: BTreeMap<String, String>, resumes: bool) -> Self {
        let given = group.rules.iter().map(|_| Arc::default()).collect();
        Self {
            group,
            alerting: Alerting::new(external),
            health: Mutex::default(),
            given: Mutex::new(given),
            resumes: AtomicBool::new(resumes),
        }
    }

    /// True when `group` is unchanged.
    pub(super) fn is_of(&self, group: &Group, external: &BTreeMap<String, String>) -> bool {
        self.group.is_same(group) && self.alerting.has_external(external)
    }

    /// Takes over the alerts and results of the group's previous state. Returns series that no rule of the
    /// group has taken over.
    pub(super) fn succeed(&self, before: &Self) -> SeriesSet {
        self.resumes.store(before.resumes.load(Ordering::Relaxed), Ordering::Relaxed);
        let mut left: Vec<_> = before.group.rules.iter().zip(before.given()).enumerate().collect();
        for (number, rule) in self.group.rules.iter().enumerate() {
            let Some(place) = left.iter().position(|(_, (old, _))| old.is_succeeded_by(rule)) else {
                continue;
            };
            let (its_number, (_, given)) = left.remove(place);
            self.alerting.succeed(number, rule, &before.alerting, its_number);
            self.set_given(number, given);
        }
        let mut gone: SeriesSet = left.into_iter().flat_map(|(_, (_, given))| (*given).clone()).collect();
        self.take_out_given(&mut gone);
        gone
    }

    fn given(&self) -> Vec<Arc<SeriesSet>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_given(&self, number: usize, series: Arc<SeriesSet>) {
        if let Some(given) = self.given.lock().unwrap_or_else(PoisonError::into_inner).get_mut(number) {
            *given = series;
        }
    }

    /// All series of its rules' last results.
    pub(super) fn all_given(&self) -> SeriesSet {
        self.given().iter().flat_map(|given| (**given).clone()).collect()
    }

    /// Removes the series that this group's rules returned from `series`.
    pub(super) fn take_out_given(&self, series: &mut SeriesSet) {
        for given in self.given() {
            series.retain(|one| !given.contains(one));
        }
    }

    /// Evaluates all rules as of `at_ms`.
    pub(super) async fn evaluate(&self, app: &App, at_ms: i64) {
        let mut all = Vec::with_capacity(self.group.rules.len());
        let (resumes, stored_ms) = (self.resumes.load(Ordering::Relaxed), at_ms - self.group.offset_ms);
        for (number, (rule, given)) in self.group.rules.iter().zip(self.given()).enumerate() {
            let begin = Instant::now();
            let rows = evaluate(app, &rule.query, stored_ms).await;
            let rows = rows.and_then(|rows| match self.group.limit {
                limit if limit > 0 && rows.len() > limit => {
                    let what = if rule.alert.is_some() { "alerts" } else { "series" };
                    Err(format!("exceeded limit of {limit} with {} {what}", rows.len()))
                }
                _ => Ok(rows),
            });
            let remembered = match &rule.alert {
                Some(alert) if resumes => remember(app, rule, alert, at_ms).await,
                _ => Ok(Remembered::new()),
            };
            let series = match (&rule.alert, rows.and_then(|rows| Ok((rows, remembered?)))) {
                (None, Ok((rows, _))) => record(rule, rows),
                (Some(alert), Ok((rows, remembered))) => {
                    Ok(self.alerting.update(number, rule, alert, rows, at_ms, &remembered))
                }
                (_, Err(error)) => Err(error),
            };
            let stored = match series {
                Ok(series) => store(app, &given, series, stored_ms).await,
                Err(error) => Err(error),
            };
            if let Err(error) = &stored {
                tracing::warn!(group = self.group.name, rule = rule.name, error, "a rule failed");
            }
            let error = stored.map(|given| self.set_given(number, Arc::new(given))).err();
            all.push(Health { error, took: begin.elapsed(), at_ms });
        }
        self.resumes.store(false, Ordering::Relaxed);
        *self.health.lock().unwrap_or_else(PoisonError::into_inner) = all;
    }
}

/// Start times of the rule's alerts from before a restart.
async fn remember(app: &App, rule: &Rule, alert: &AlertRule, at_ms: i64) -> Result<Remembered, String> {
    let metric = Matcher::new(METRIC_NAME, MatchOp::Equal, "ALERTS_FOR_STATE").map_err(|e| e.to_string())?;
    let name = Matcher::new("alertname", MatchOp::Equal, rule.name.as_str()).map_err(|e| e.to_string())?;
    let from_ms = at_ms.saturating_sub(STOP_MS_MAX);
    let read = crate::query::names::on_snapshot(app, move |series| {
        let (mut found, mut samples) = (Vec::new(), Samples::default());
        let mut selection = series.select(&[metric, name], from_ms, at_ms)?;
        while selection.next().is_some() {
            samples.clear();
            selection.samples(&mut samples)?;
            // A series that was marked stale is an alert that ended.
            let last =
                samples.times_ms.iter().zip(&samples.values).next_back().filter(|(_, value)| !value.is_nan());
            if let (Some((time_ms, since)), Some(labels)) = (last, selection.labels()) {
                let mut labels: BTreeMap<String, String> =
                    labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
                labels.remove(METRIC_NAME);
                found.push((labels, (since * 1000.0) as i64, *time_ms));
            }
        }
        Ok(found)
    });
    let found = read.await.map_err(|error| error.message)?;
    let hold_ms = alert.hold.as_millis() as i64;
    let known = found.into_iter().filter_map(|(labels, since_ms, down_ms)| {
        Some((labels, resumed(hold_ms, since_ms, down_ms, at_ms)?))
    });
    Ok(known.collect())
}

/// Labels of a series as they are stored, and its sample.
pub(super) type Stored = (Vec<(String, String)>, Sample);

async fn evaluate(app: &App, query: &Query, at_ms: i64) -> Result<Vec<(promql::Labels, Sample)>, String> {
    let answer = crate::query::evaluate_at(app, query.clone(), at_ms).await.map_err(|error| error.message)?;
    match answer.value {
        Value::Vector(rows) => Ok(rows),
        Value::Scalar(value) => Ok(vec![(promql::Labels::default(), Sample::Float(value))]),
        Value::Text(_) | Value::Matrix(_) => Err("rule result is not a vector or scalar".to_owned()),
    }
}

fn record(rule: &Rule, rows: Vec<(promql::Labels, Sample)>) -> Result<Vec<Stored>, String> {
    let mut seen = HashSet::new();
    let mut all = Vec::with_capacity(rows.len());
    for (labels, sample) in rows {
        let mut named: BTreeMap<String, String> =
            labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        named.insert(METRIC_NAME.to_owned(), rule.name.clone());
        named.extend(rule.labels.clone());
        named.retain(|_, value| !value.is_empty());
        let labels: Vec<_> = named.into_iter().collect();
        if !seen.insert(labels.clone()) {
            return Err(
                "vector contains metrics with the same labelset after applying rule labels".to_owned()
            );
        }
        all.push((labels, sample));
    }
    Ok(all)
}

/// Appends a rule's result, and staleness markers for series that it no longer returns; returns its series.
async fn store(app: &App, given: &SeriesSet, series: Vec<Stored>, at_ms: i64) -> Result<SeriesSet, String> {
    let mut batch = SampleBatch::new();
    let mut now = HashSet::with_capacity(series.len());
    for (labels, sample) in &series {
        let mut set = LabelSet::default();
        labels.iter().for_each(|(name, value)| set.push(name.as_bytes(), value.as_bytes()));
        let stored = set.stored().map_err(|Rejected(why)| why)?;
        match sample {
            Sample::Float(value) => {
                batch.series_bytes(stored).push(at_ms, *value);
            }
            Sample::Histogram(histogram) => {
                batch.series_bytes(stored).push_histogram(
                    at_ms,
                    &crate::query::value::stored_histogram(histogram),
                    0,
                );
            }
        }
        now.insert(stored.into());
    }
    for gone in given.difference(&now) {
        batch.series_bytes(gone).push(at_ms, promql::STALE);
    }
    if !batch.is_empty() {
        ingest::append(app, &Caller::everybody(), batch).await.map_err(|error| error.message)?;
    }
    Ok(now)
}

/// Marks series stale as of `at_ms`.
pub(super) async fn mark_stale(app: &App, series: &SeriesSet, at_ms: i64) -> Result<(), String> {
    let mut batch = SampleBatch::new();
    for gone in series {
        batch.series_bytes(gone).push(at_ms, promql::STALE);
    }
    if batch.is_empty() {
        return Ok(());
    }
    ingest::append(app, &Caller::everybody(), batch).await.map_err(|error| error.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Vec<Group>, ConfigError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rules.yml");
        std::fs::write(&path, text).unwrap();
        read(&path, Duration::from_secs(60))
    }

    #[test]
    fn a_rule_file() {
        let groups = read_text(
            "groups:\n- name: g\n  interval: 30s\n  rules:\n  - record: job:up:sum\n    expr: sum by (job) (up)\n    labels: {by: rule}\n  \
             - alert: Down\n    expr: up == 0\n    for: 5m\n    labels: {severity: page}\n    annotations: {text: '{{ $labels.instance }} is down'}\n",
        );
        let groups = groups.unwrap();
        assert_eq!((groups[0].interval, groups[0].rules.len()), (Duration::from_secs(30), 2));
        assert_eq!(groups[0].rules[1].alert.as_ref().unwrap().hold, Duration::from_secs(300));
    }

    #[test]
    fn rejects_invalid_rule_files() {
        for text in [
            "groups: [{name: g, what: 1}]",
            "groups: [{name: g}, {name: g}]",
            "groups: [{name: g, rules: [{record: a, alert: b, expr: up}]}]",
            "groups: [{name: g, rules: [{record: a, expr: 'up{'}]}]",
            "groups: [{name: g, rules: [{record: a, expr: up, for: 1m}]}]",
            "groups: [{name: g, rules: [{alert: a, expr: up, annotations: {t: '{{ query }}'}}]}]",
            "groups: [{name: g, interval: soon}]",
        ] {
            assert!(read_text(text).is_err(), "{text}");
        }
    }
}
