//! Evaluation of recording and alerting rules, group by group.
//!
//!   group, every interval: rule by rule at one time ─▶ query ─▶ samples (record), alerts ─▶ one commit each
//!
//! A rule reads the results of the rules before it in its group. Series that a rule no longer returns are
//! marked stale. A group that takes longer than its interval skips the evaluations in between. Evaluation
//! times are multiples of the interval plus an offset of the group, so that groups do not all begin at once.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ropewalk::promql::{Query, Sample, Value};
use ropewalk::series::{Labels, METRIC_NAME, Matcher, STALE, SampleBatch, Samples};

use super::alerts::{Alert, Alerting, Remembered, STOP_MS_MAX, resumed};
use crate::config::rules::{AlertRule, Rule, RuleGroup};
use crate::host::Host;

/// Outcome of the newest evaluation of a rule.
#[derive(Debug, Clone, Default)]
pub struct RuleHealth {
    /// The reason why it failed, if it did.
    pub error: Option<String>,
    /// Time that it took.
    pub took: Duration,
    /// The time of the evaluation.
    pub at_ms: i64,
}

/// Series of a rule's result.
pub(crate) type SeriesSet = HashSet<Labels>;

/// A running group, as the API lists it.
#[derive(Debug)]
pub struct GroupState {
    /// Its definition.
    pub group: RuleGroup,
    pub(crate) alerting: Alerting,
    health: Mutex<Vec<RuleHealth>>,
    /// The series of each rule's last result.
    given: Mutex<Vec<Arc<SeriesSet>>>,
    /// The first evaluation restores alerts that began before a restart.
    resumes: AtomicBool,
}

impl GroupState {
    pub(crate) fn new(group: RuleGroup, external: BTreeMap<String, String>, resumes: bool) -> Self {
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
    pub(crate) fn is_of(&self, group: &RuleGroup, external: &BTreeMap<String, String>) -> bool {
        self.group.is_same(group) && self.alerting.has_external(external)
    }

    /// The outcomes of the newest evaluation, by rule.
    pub fn health(&self) -> Vec<RuleHealth> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Passes the alerts of the rule at `number` that have not ended to `read`; the group is not evaluated meanwhile.
    pub fn with_alerts<R>(&self, number: usize, read: impl FnOnce(&[&Alert]) -> R) -> R {
        self.alerting.with_active(number, read)
    }

    /// Takes over the alerts and results of the group's previous state. Returns series that no rule of the
    /// group has taken over.
    pub(crate) fn succeed(&self, before: &Self) -> SeriesSet {
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
    pub(crate) fn all_given(&self) -> SeriesSet {
        self.given().iter().flat_map(|given| (**given).clone()).collect()
    }

    /// Removes the series that this group's rules returned from `series`.
    pub(crate) fn take_out_given(&self, series: &mut SeriesSet) {
        for given in self.given() {
            series.retain(|one| !given.contains(one));
        }
    }

    /// Evaluates all rules as of `at_ms`.
    pub(crate) async fn evaluate(&self, host: &impl Host, at_ms: i64) {
        let mut all = Vec::with_capacity(self.group.rules.len());
        let (resumes, stored_ms) = (self.resumes.load(Ordering::Relaxed), at_ms - self.group.offset_ms);
        for (number, (rule, given)) in self.group.rules.iter().zip(self.given()).enumerate() {
            let begin = Instant::now();
            let rows = evaluate(host, &rule.query, stored_ms).await;
            let rows = rows.and_then(|rows| match self.group.limit {
                limit if limit > 0 && rows.len() > limit => {
                    let what = if rule.alert.is_some() { "alerts" } else { "series" };
                    Err(format!("exceeded limit of {limit} with {} {what}", rows.len()))
                }
                _ => Ok(rows),
            });
            let remembered = match &rule.alert {
                Some(alert) if resumes => remember(host, rule, alert, at_ms).await,
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
                Ok(series) => store(host, &given, series, stored_ms).await,
                Err(error) => Err(error),
            };
            if let Err(error) = &stored {
                tracing::warn!(group = self.group.name, rule = rule.name, error, "a rule failed");
            }
            let error = stored.map(|given| self.set_given(number, Arc::new(given))).err();
            all.push(RuleHealth { error, took: begin.elapsed(), at_ms });
        }
        self.resumes.store(false, Ordering::Relaxed);
        *self.health.lock().unwrap_or_else(PoisonError::into_inner) = all;
    }
}

/// Start times of the rule's alerts from before a restart.
async fn remember(
    host: &impl Host,
    rule: &Rule,
    alert: &AlertRule,
    at_ms: i64,
) -> Result<Remembered, String> {
    let metric = Matcher::equal(METRIC_NAME, "ALERTS_FOR_STATE");
    let name = Matcher::equal("alertname", rule.name.as_str());
    let from_ms = at_ms.saturating_sub(STOP_MS_MAX);
    let read = host.read(move |series| {
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
    let found = read.await?;
    let hold_ms = alert.hold.as_millis() as i64;
    let known = found.into_iter().filter_map(|(labels, since_ms, down_ms)| {
        Some((labels, resumed(hold_ms, since_ms, down_ms, at_ms)?))
    });
    Ok(known.collect())
}

/// Labels of a series as they are stored, and its sample.
pub(crate) type Stored = (Vec<(String, String)>, Sample);

async fn evaluate(host: &impl Host, query: &Query, at_ms: i64) -> Result<Vec<(Labels, Sample)>, String> {
    match host.evaluate(query.clone(), at_ms).await? {
        Value::Vector(rows) => Ok(rows),
        Value::Scalar(value) => Ok(vec![(Labels::default(), Sample::Float(value))]),
        Value::Text(_) | Value::Matrix(_) => Err("rule result is not a vector or scalar".to_owned()),
    }
}

fn record(rule: &Rule, rows: Vec<(Labels, Sample)>) -> Result<Vec<Stored>, String> {
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
async fn store(
    host: &impl Host,
    given: &SeriesSet,
    series: Vec<Stored>,
    at_ms: i64,
) -> Result<SeriesSet, String> {
    let mut batch = SampleBatch::new();
    let mut now = HashSet::with_capacity(series.len());
    for (labels, sample) in series {
        let labels = Labels::new(labels).map_err(|error| error.to_string())?;
        let mut samples = batch.series(&labels);
        match sample {
            Sample::Float(value) => samples.push(at_ms, value),
            Sample::Histogram(histogram) => samples.push_histogram(at_ms, &histogram, 0),
        };
        now.insert(labels);
    }
    for gone in given.difference(&now) {
        batch.push(gone, at_ms, STALE);
    }
    host.append(batch, HashMap::new()).await?;
    Ok(now)
}

/// Marks series stale as of `at_ms`.
pub(crate) async fn mark_stale(host: &impl Host, series: &SeriesSet, at_ms: i64) -> Result<(), String> {
    let mut batch = SampleBatch::new();
    for gone in series {
        batch.push(gone, at_ms, STALE);
    }
    host.append(batch, HashMap::new()).await
}
