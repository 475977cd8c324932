//! Rule files: groups of recording and alerting rules, checked when they are read.
//!
//! Source: "Recording rules" and "Alerting rules" of the Prometheus documentation.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use ropewalk::promql::{Options, Query};
use ropewalk::series::METRIC_NAME;
use serde::Deserialize;

use super::template::Template;
use super::{ConfigError, Span};

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
pub struct RuleGroup {
    /// Unique in its file.
    pub name: String,
    /// The rule file.
    pub file: String,
    /// Time between two evaluations.
    pub interval: Duration,
    pub(crate) offset_ms: i64,
    /// Limit of series or alerts of one rule; 0 for none.
    pub limit: usize,
    /// In the order of their evaluation.
    pub rules: Vec<Rule>,
}

/// One rule.
#[derive(Debug, Clone)]
pub struct Rule {
    /// The metric that it records, or the name of its alerts.
    pub name: String,
    /// The expression.
    pub query: Query,
    /// Labels added to its results.
    pub labels: BTreeMap<String, String>,
    /// Present for an alerting rule.
    pub alert: Option<AlertRule>,
}

/// The alerting part of a rule.
#[derive(Debug, Clone)]
pub struct AlertRule {
    /// `for`: the time from pending to firing.
    pub hold: Duration,
    /// `keep_firing_for`: the time from the last result to the end.
    pub keep: Duration,
    pub(crate) labels: Vec<(String, Template)>,
    pub(crate) annotations: Vec<(String, Template)>,
    /// As they are written in the rule file.
    pub annotation_texts: BTreeMap<String, String>,
}

/// Reads the groups of a rule file.
pub(super) fn read(path: &Path, default: Duration) -> Result<Vec<RuleGroup>, ConfigError> {
    let (_, file): (String, File) = super::yaml(path)?;
    let mut groups: Vec<RuleGroup> = Vec::new();
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

fn group(config: &GroupConfig, path: &Path, default: Duration) -> Result<RuleGroup, String> {
    let interval = config.interval.map_or(default, |interval| interval.0);
    if config.name.is_empty() || interval.is_zero() {
        return Err("a group needs a name, and an interval above 0".to_owned());
    }
    let rule = |rule: &RuleConfig| {
        self::rule(rule, &config.labels).map_err(|why| format!("group {:?}: {why}", config.name))
    };
    Ok(RuleGroup {
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
    pub(crate) fn is_succeeded_by(&self, other: &Self) -> bool {
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

impl RuleGroup {
    /// Identity of a group across reloads.
    pub(crate) fn key(&self) -> (String, String) {
        (self.file.clone(), self.name.clone())
    }

    /// True when both are evaluated alike.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let of =
            |group: &Self| (group.key(), group.interval, group.offset_ms, group.limit, group.rules.len());
        of(self) == of(other) && self.rules.iter().zip(&other.rules).all(|(one, other)| one.is_same(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Vec<RuleGroup>, ConfigError> {
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
