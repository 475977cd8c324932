//! Alertmanager client: posts firing and ended alerts to `/api/v2/alerts` of each, repeatedly.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;

use super::alerts::{Alert, AlertState};
use crate::client::{self, Ask};
use crate::config::Config;
use crate::config::relabel::relabel;

/// Interval at which a firing alert is sent again.
pub(crate) const AGAIN: Duration = Duration::from_secs(60);
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Sends alerts to every Alertmanager. A failure is logged, and the alerts are sent with the next interval.
pub(crate) async fn tell(config: &Arc<Config>, alerts: &[Alert], interval: Duration) {
    let body = body(config, alerts, interval);
    for alertmanager in config.alertmanagers.iter().filter(|_| !body.is_empty()) {
        let answer = client::ask(Ask {
            method: Method::POST,
            url: &alertmanager.url,
            headers: vec![
                ("content-type", "application/json".to_owned()),
                ("content-length", body.len().to_string()),
            ],
            body: body.clone(),
            bytes_max: ANSWER_BYTES_MAX,
            time: alertmanager.timeout,
            follow: false,
        });
        match answer.await {
            Ok(answer) if answer.status.is_success() => {}
            Ok(answer) => {
                tracing::warn!(url = alertmanager.url, status = %answer.status, "an Alertmanager refuses alerts");
            }
            Err(error) => tracing::warn!(url = alertmanager.url, error, "an Alertmanager cannot be reached"),
        }
    }
}

fn body(config: &Config, alerts: &[Alert], interval: Duration) -> Bytes {
    let moment = |ms: i64| {
        jiff::Timestamp::from_millisecond(ms).map_or_else(|_| String::new(), |time| time.to_string())
    };
    // Alertmanager ends an alert when it receives no update for this long.
    let lasts_ms = 4 * AGAIN.max(interval).as_millis() as i64;
    let all: Vec<serde_json::Value> = alerts
        .iter()
        .filter_map(|alert| {
            let mut labels = config.external_labels.clone();
            labels.extend(alert.labels.clone());
            let labels = relabel(labels, &config.alert_relabel)?;
            let ends_ms = match alert.state {
                AlertState::Resolved => alert.resolved_ms,
                _ => alert.told_ms + lasts_ms,
            };
            let query: String = form_urlencoded::byte_serialize(alert.query.as_bytes()).collect();
            Some(serde_json::json!({
                "labels": labels,
                "annotations": alert.annotations,
                "startsAt": moment(alert.fired_ms),
                "endsAt": moment(ends_ms),
                "generatorURL": format!("/api/v1/query?query={query}"),
            }))
        })
        .collect();
    if all.is_empty() { Bytes::new() } else { serde_json::to_vec(&all).map(Bytes::from).unwrap_or_default() }
}
