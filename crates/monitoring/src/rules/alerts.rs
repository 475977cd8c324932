//! Alerts: the series that an alerting rule returns are pending, then firing, and resolved when they end.
//!
//! ```text
//!            given               given for `for`              gone, and `keep_firing_for` is over
//! nothing ──────────▶ pending ───────────────────▶ firing ────────────────────▶ resolved (sent for 15 min)
//!                        └── gone: removed
//! ```
//! Active alerts are series, too: `ALERTS` with their state, and `ALERTS_FOR_STATE` with their start in
//! seconds. From the latter a restarted server restores how long its alerts have lasted (see [`resumed`]).

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use ropewalk::promql::Sample;
use ropewalk::series::{Labels, METRIC_NAME};

use super::group::Stored;
use crate::config::rules::{AlertRule, Rule};
use crate::config::template::Known;

/// How long the end of an alert is sent to Alertmanager.
const RESOLVED_TOLD_MS: i64 = 15 * 60 * 1000;

/// Alerts with a shorter `for` are not restored after a restart, as in Prometheus; restored alerts wait at
/// least this long before they fire.
const GRACE_MS: i64 = 10 * 60 * 1000;
/// After a longer downtime no alerts are restored.
pub(super) const STOP_MS_MAX: i64 = 60 * 60 * 1000;

/// Start times of the alerts before a restart, by their labels.
pub(super) type Remembered = HashMap<BTreeMap<String, String>, i64>;

/// The start time of a restored alert that began at `since_ms` and was last seen at `down_ms`, for a rule
/// with the `for` duration `hold_ms`. The downtime does not count, unless the alert fired before; `None` when
/// it is to start again.
pub(super) fn resumed(hold_ms: i64, since_ms: i64, down_ms: i64, at_ms: i64) -> Option<i64> {
    let left = hold_ms - (down_ms - since_ms);
    match left {
        _ if hold_ms < GRACE_MS => None,
        ..=0 => Some(since_ms),
        left if left < GRACE_MS => Some(at_ms + GRACE_MS - hold_ms),
        _ => Some(since_ms + (at_ms - down_ms)),
    }
}

/// State of an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlertState {
    /// Its rule returns it, but not yet for the duration `for`.
    Pending,
    /// It is sent to Alertmanager.
    Firing,
    /// It has ended.
    Resolved,
}

impl AlertState {
    /// The name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Firing => "firing",
            Self::Resolved => "inactive",
        }
    }
}

/// One alert.
#[derive(Debug, Clone)]
pub struct Alert {
    /// The expression of its rule.
    pub(crate) query: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Its state.
    pub state: AlertState,
    /// The value that its rule returned last.
    pub value: f64,
    /// When it began.
    pub active_ms: i64,
    pub(crate) fired_ms: i64,
    pub(crate) resolved_ms: i64,
    /// The last evaluation that returned it.
    seen_ms: i64,
    /// When it was last sent to Alertmanager.
    pub(crate) told_ms: i64,
    end_told: bool,
}

/// The alerts of one group, by rule.
#[derive(Debug, Default)]
pub(crate) struct Alerting {
    external: BTreeMap<String, String>,
    alerts: Mutex<HashMap<usize, Vec<Alert>>>,
}

impl Alerting {
    pub(super) fn new(external: BTreeMap<String, String>) -> Self {
        Self { external, alerts: Mutex::default() }
    }

    /// Applies the result of a rule, and returns the series of its alerts. The start times of new alerts are
    /// taken from `remembered`.
    pub(super) fn update(
        &self,
        number: usize,
        rule: &Rule,
        alert: &AlertRule,
        rows: Vec<(Labels, Sample)>,
        at_ms: i64,
        remembered: &Remembered,
    ) -> Vec<Stored> {
        let mut alerts = self.alerts.lock().unwrap_or_else(PoisonError::into_inner);
        let alerts = alerts.entry(number).or_default();
        for (labels, sample) in rows {
            let Sample::Float(value) = sample else { continue };
            let (labels, annotations) = self.texts(rule, alert, &labels, value);
            match alerts
                .iter_mut()
                .find(|known| known.labels == labels && known.state != AlertState::Resolved)
            {
                Some(known) => {
                    (known.value, known.annotations, known.seen_ms) = (value, annotations, at_ms);
                }
                None => {
                    alerts.retain(|known| known.labels != labels);
                    let active_ms = remembered.get(&labels).copied().unwrap_or(at_ms);
                    alerts.push(Alert {
                        query: rule.query.expr().to_string(),
                        labels,
                        annotations,
                        state: AlertState::Pending,
                        value,
                        active_ms,
                        fired_ms: 0,
                        resolved_ms: 0,
                        seen_ms: at_ms,
                        told_ms: 0,
                        end_told: false,
                    });
                }
            }
        }
        let (hold, keep) = (alert.hold.as_millis() as i64, alert.keep.as_millis() as i64);
        for one in alerts.iter_mut() {
            let seen = one.seen_ms == at_ms;
            match one.state {
                AlertState::Pending if seen && at_ms - one.active_ms >= hold => {
                    (one.state, one.fired_ms) = (AlertState::Firing, at_ms);
                }
                AlertState::Firing if !seen && at_ms - one.seen_ms >= keep.max(1) => {
                    (one.state, one.resolved_ms) = (AlertState::Resolved, at_ms);
                }
                _ => {}
            }
        }
        alerts.retain(|one| match one.state {
            AlertState::Pending => one.seen_ms == at_ms,
            AlertState::Firing => true,
            AlertState::Resolved => at_ms - one.resolved_ms <= RESOLVED_TOLD_MS,
        });
        alerts.iter().filter(|one| one.state != AlertState::Resolved).flat_map(series).collect()
    }

    fn texts(
        &self,
        rule: &Rule,
        alert: &AlertRule,
        labels: &Labels,
        value: f64,
    ) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
        let of = |name: &str| labels.get(name).to_owned();
        let known = Known { value, labels: &of, external: &self.external };
        let mut all: BTreeMap<String, String> =
            labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        all.remove(METRIC_NAME);
        for (name, text) in &alert.labels {
            all.insert(name.clone(), text.fill(&known));
        }
        all.insert("alertname".to_owned(), rule.name.clone());
        all.retain(|_, value| !value.is_empty());
        let annotations = alert.annotations.iter().map(|(name, text)| (name.clone(), text.fill(&known)));
        (all, annotations.collect())
    }

    /// Takes over the alerts of another rule, which may have another number.
    pub(super) fn succeed(&self, number: usize, rule: &Rule, before: &Self, its_number: usize) {
        let alerts = before.alerts.lock().unwrap_or_else(PoisonError::into_inner).get(&its_number).cloned();
        let query = rule.query.expr().to_string();
        let alerts = alerts.into_iter().flatten().map(|alert| Alert { query: query.clone(), ..alert });
        self.alerts.lock().unwrap_or_else(PoisonError::into_inner).insert(number, alerts.collect());
    }

    /// True when templates are rendered with these external labels.
    pub(super) fn has_external(&self, external: &BTreeMap<String, String>) -> bool {
        self.external == *external
    }

    /// Passes the alerts of a rule that have not ended to `read`.
    pub(crate) fn with_active<R>(&self, number: usize, read: impl FnOnce(&[&Alert]) -> R) -> R {
        let alerts = self.alerts.lock().unwrap_or_else(PoisonError::into_inner);
        let of_rule = alerts.get(&number).into_iter().flatten();
        read(&of_rule.filter(|alert| alert.state != AlertState::Resolved).collect::<Vec<_>>())
    }

    /// Alerts due to be sent: firing ones again after `again_ms`, and ended ones. Marks them as sent.
    pub(crate) fn to_tell(&self, at_ms: i64, again_ms: i64) -> Vec<Alert> {
        let mut alerts = self.alerts.lock().unwrap_or_else(PoisonError::into_inner);
        let due = |alert: &Alert| match alert.state {
            AlertState::Pending => false,
            AlertState::Resolved => !alert.end_told || at_ms - alert.told_ms >= again_ms,
            AlertState::Firing => alert.told_ms == 0 || at_ms - alert.told_ms >= again_ms,
        };
        let all = alerts.values_mut().flatten().filter(|alert| due(alert));
        all.map(|alert| {
            alert.told_ms = at_ms;
            alert.end_told = alert.state == AlertState::Resolved;
            alert.clone()
        })
        .collect()
    }
}

/// The two series of an alert.
fn series(alert: &Alert) -> [Stored; 2] {
    let named = |metric: &str| {
        let mut labels = alert.labels.clone();
        labels.insert(METRIC_NAME.to_owned(), metric.to_owned());
        labels
    };
    let mut state = named("ALERTS");
    state.insert("alertstate".to_owned(), alert.state.name().to_owned());
    let since = alert.active_ms.div_euclid(1000) as f64;
    [
        (state.into_iter().collect(), Sample::Float(1.0)),
        (named("ALERTS_FOR_STATE").into_iter().collect(), Sample::Float(since)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::template::Template;
    use ropewalk::promql::{Options, Query};
    use std::time::Duration;

    #[test]
    fn downtime_does_not_count_toward_for() {
        let minute = 60_000;
        let resumed = |hold: i64, since: i64, down: i64, at: i64| {
            resumed(hold * minute, since * minute, down * minute, at * minute).map(|ms| ms / minute)
        };
        // It fired before; it still has to wait for twenty minutes; for five, which become ten; `for` is too
        // short to be restored.
        assert_eq!(resumed(30, 0, 40, 50), Some(0));
        assert_eq!(resumed(30, 0, 10, 50), Some(40));
        assert_eq!(resumed(30, 0, 25, 50), Some(30));
        assert_eq!(resumed(5, 0, 25, 50), None);
    }

    #[test]
    fn the_life_of_an_alert() {
        let rule = Rule {
            name: "Down".to_owned(),
            query: Query::parse("up == 0", Options::default()).unwrap(),
            labels: BTreeMap::new(),
            alert: None,
        };
        let alert = AlertRule {
            hold: Duration::from_secs(60),
            keep: Duration::from_secs(30),
            labels: vec![("severity".to_owned(), Template::parse("page {{ $value }}").unwrap())],
            annotations: Vec::new(),
            annotation_texts: BTreeMap::new(),
        };
        let alerting = Alerting::default();
        let given = || vec![(Labels::from_pairs([("__name__", "up"), ("job", "a")]), Sample::Float(0.0))];
        let step = |rows: Vec<(Labels, Sample)>, at_s: i64| {
            let series = alerting.update(0, &rule, &alert, rows, at_s * 1000, &Remembered::new()).len();
            let told: Vec<_> =
                alerting.to_tell(at_s * 1000, 60_000).iter().map(|alert| alert.state).collect();
            (series, alerting.with_active(0, |active| active.first().map(|alert| alert.state)), told)
        };
        assert_eq!(step(given(), 0), (2, Some(AlertState::Pending), vec![]));
        assert_eq!(step(given(), 30), (2, Some(AlertState::Pending), vec![]));
        assert_eq!(step(vec![], 45), (0, None, vec![]));
        assert_eq!(step(given(), 60), (2, Some(AlertState::Pending), vec![]));
        assert_eq!(step(given(), 120), (2, Some(AlertState::Firing), vec![AlertState::Firing]));
        assert_eq!(step(given(), 150), (2, Some(AlertState::Firing), vec![]));
        assert_eq!(step(vec![], 165), (2, Some(AlertState::Firing), vec![]));
        assert_eq!(step(vec![], 180), (0, None, vec![AlertState::Resolved]));
        assert_eq!(step(vec![], 195), (0, None, vec![]));
        assert_eq!(step(vec![], 240), (0, None, vec![AlertState::Resolved]));
        assert_eq!(step(vec![], 1500), (0, None, vec![]));
        assert_eq!(step(given(), 1515), (2, Some(AlertState::Pending), vec![]));
    }
}
