//! `/federate`: the newest sample of each matching series, in the text format, for another Prometheus to
//! scrape.
//!
//! A sample is included with its own time, when it is younger than the look-back and not a staleness marker.
//! Native histograms are left out, as in Prometheus: the text format cannot represent them. Each series
//! carries the external labels of the configuration that it lacks, and an `instance`, empty where it has
//! none, so that a scraper with `honor_labels` does not set this server as the instance.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use ropewalk::promql::Share;
use ropewalk::series::{Labels, Samples, is_stale};
use ropewalk_monitoring::notation::put_float;

use crate::app::App;
use crate::ingest::labels::METRIC_NAME;
use crate::query::names::selectors;
use crate::request::params::Params;
use crate::request::response::ApiError;
use crate::request::time::now_ms;

pub(crate) async fn federate(State(app): State<App>, params: Params) -> Result<Response, ApiError> {
    let now_ms = now_ms();
    let lookback = i64::try_from(app.settings.lookback.as_millis()).unwrap_or(i64::MAX);
    let (store, snapshot) = (app.store()?, app.service.database().snapshot());
    let mut external = app.monitoring.config().external_labels.clone();
    external.entry("instance".to_owned()).or_default();
    let mut share = Share::new(Some(app.memory.clone()));
    let work = move || -> Result<Vec<u8>, ApiError> {
        let selectors = selectors(&params)?;
        let series = snapshot.series(&store);
        let mut rows = Vec::new();
        let mut samples = Samples::default();
        for matchers in &selectors {
            let mut selection = series.select(matchers, now_ms.saturating_sub(lookback) + 1, now_ms)?;
            while selection.next().is_some() {
                samples.clear();
                selection.samples(&mut samples)?;
                let last = (samples.times_ms.last().copied(), samples.values.last().copied());
                let (Some(time_ms), Some(value)) = last else { continue };
                if is_stale(value) || samples.histograms.last().is_some_and(Option::is_some) {
                    continue;
                }
                let Some(labels) = selection.labels() else { continue };
                // The row, and its line of text.
                share.grow(2 * labels.bytes() + size_of::<(Labels, i64, f64)>())?;
                rows.push((labels, time_ms, value));
            }
        }
        rows.sort_by(|a, b| a.0.name().cmp(b.0.name()).then_with(|| a.0.cmp(&b.0)));
        rows.dedup_by(|a, b| a.0 == b.0);
        Ok(text(&rows, &external))
    };
    let text = app.off_thread(work).await??;
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8; escaping=allow-utf-8")], text)
        .into_response())
}

fn text(rows: &[(Labels, i64, f64)], external: &BTreeMap<String, String>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut family: Option<&str> = None;
    for (labels, time_ms, value) in rows {
        let name = labels.name();
        let plain = is_name(name, true);
        if family != Some(name) {
            family = Some(name);
            out.extend_from_slice(b"# TYPE ");
            if plain {
                out.extend_from_slice(name.as_bytes())
            } else {
                put_quoted(&mut out, name)
            }
            out.extend_from_slice(b" untyped\n");
        }
        if plain {
            out.extend_from_slice(name.as_bytes());
        }
        let own = labels.iter().filter(|(name, _)| *name != METRIC_NAME);
        let added = external.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let rest = own.chain(added.filter(|(name, _)| labels.get(name).is_empty()));
        let mut opened = false;
        let mut part = |out: &mut Vec<u8>| {
            out.push(if opened { b',' } else { b'{' });
            opened = true;
        };
        if !plain {
            part(&mut out);
            put_quoted(&mut out, name);
        }
        for (name, value) in rest {
            part(&mut out);
            if is_name(name, false) {
                out.extend_from_slice(name.as_bytes())
            } else {
                put_quoted(&mut out, name)
            }
            out.push(b'=');
            put_quoted(&mut out, value);
        }
        if opened {
            out.push(b'}');
        }
        out.push(b' ');
        put_float(&mut out, *value);
        out.extend_from_slice(format!(" {time_ms}\n").as_bytes());
    }
    out
}

fn is_name(name: &str, metric: bool) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || c == '_' || (metric && c == ':');
    !name.starts_with(|c: char| c.is_ascii_digit()) && !name.is_empty() && name.chars().all(inside)
}

fn put_quoted(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            other => out.push(other),
        }
    }
    out.push(b'"');
}
