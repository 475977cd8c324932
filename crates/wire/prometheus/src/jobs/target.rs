//! One target: scraped repeatedly, its samples stored as series.
//!
//!   GET ─▶ text ─▶ target labels added, relabelled ─▶ one commit with `up` and the other `scrape_…` series
//!
//! A series that is missing from a scrape is marked stale; all are when the target does not respond or is
//! gone. Samples with explicit times get no markers and end by age. Where a label of the sample and one of
//! the target have the same name, the sample's becomes `exported_…`, or wins with `honor_labels`.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::http::Method;
use ropewalk::promql::STALE;
use ropewalk::series::SampleBatch;
use ropewalk_wire::Caller;

use super::client::{self, Ask};
use super::config::{Job, TargetGroup};
use super::relabel::{Labels, relabel};
use crate::app::App;
use crate::ingest::exposition;
use crate::ingest::exposition::{Format, Scraped};
use crate::ingest::labels::{LabelSet, METRIC_NAME, Rejected};
use crate::ingest::metadata::Descriptions;
use crate::ingest::{self, Read};
use crate::request::time;

const ACCEPT: &str =
    "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1";

/// A target after discovery and relabelling.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Target {
    pub(crate) url: String,
    /// Labels added to its series.
    pub(crate) labels: BTreeMap<String, String>,
    /// Labels before relabelling.
    pub(crate) discovered: BTreeMap<String, String>,
}

/// Outcome of the newest scrape.
#[derive(Debug, Clone, Default)]
pub(crate) struct Health {
    pub(crate) at_ms: i64,
    pub(crate) took: Duration,
    /// `None` before the first scrape.
    pub(crate) outcome: Option<Result<(), String>>,
}

/// The targets of a group, and the labels of those that relabelling drops.
pub(crate) fn targets(job: &Job, group: &TargetGroup, meta: &[(&str, &str)]) -> (Vec<Target>, Vec<Labels>) {
    let (mut kept, mut dropped) = (Vec::new(), Vec::new());
    for address in &group.targets {
        let mut labels: Labels = group.labels.clone();
        labels.extend(meta.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        for (name, value) in [
            ("job", job.name.as_str()),
            ("__scheme__", &job.scheme),
            ("__metrics_path__", &job.path),
            ("__scrape_interval__", &time::duration(job.interval)),
            ("__scrape_timeout__", &time::duration(job.timeout)),
        ] {
            labels.entry(name.to_owned()).or_insert_with(|| value.to_owned());
        }
        for (name, values) in &job.params {
            if let Some(value) = values.first() {
                labels.insert(format!("__param_{name}"), value.clone());
            }
        }
        labels.insert("__address__".to_owned(), address.clone());
        let discovered = labels.clone();
        match relabel(labels, &job.relabel).and_then(|labels| target(job, labels, &discovered)) {
            Some(target) => kept.push(target),
            None => dropped.push(discovered),
        }
    }
    (kept, dropped)
}

fn target(job: &Job, mut labels: Labels, discovered: &Labels) -> Option<Target> {
    let of = |name: &str| labels.get(name).cloned().unwrap_or_default();
    let address = of("__address__");
    if address.is_empty() {
        return None;
    }
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, values) in &job.params {
        let first = of(&format!("__param_{name}"));
        for (at, value) in values.iter().enumerate() {
            query.append_pair(name, if at == 0 { &first } else { value });
        }
    }
    for (name, value) in &labels {
        if let Some(name) = name.strip_prefix("__param_").filter(|name| !job.params.contains_key(*name)) {
            query.append_pair(name, value);
        }
    }
    let query = query.finish();
    let mark = if query.is_empty() { "" } else { "?" };
    let url = format!("{}://{address}{}{mark}{query}", of("__scheme__"), of("__metrics_path__"));
    labels.retain(|name, _| !name.starts_with("__"));
    labels.entry("instance".to_owned()).or_insert(address);
    Some(Target { url, labels, discovered: discovered.clone() })
}

/// State of a target that is scraped.
pub(super) struct Scraper {
    pub(super) job: Arc<Job>,
    pub(super) target: Target,
    /// Label bytes of the series of the last scrape.
    seen: HashSet<Box<[u8]>>,
}

/// Sample counts of one scrape.
#[derive(Default)]
struct Counts {
    scraped: usize,
    left: usize,
    added: usize,
}

impl Scraper {
    pub(super) fn new(job: Arc<Job>, target: Target) -> Self {
        Self { job, target, seen: HashSet::new() }
    }

    /// Takes over the series of a predecessor whose target had the same labels.
    pub(super) fn succeed(&mut self, before: &mut Self) {
        self.seen.extend(std::mem::take(&mut before.seen));
    }

    /// Scrapes once, and stores the samples.
    pub(super) async fn scrape(&mut self, app: &App, health: &Mutex<Health>) {
        let (begin, at_ms) = (Instant::now(), time::now_ms());
        let mut batch = SampleBatch::new();
        let mut counts = Counts::default();
        let mut described = Descriptions::default();
        let outcome = match self.ask(app).await {
            Ok(answer) => self.take(answer, at_ms, &mut batch, &mut counts).map(|found| described = found),
            Err(error) => Err(error),
        };
        if outcome.is_err() {
            // Of a page that cannot be read nothing is stored but the count of samples read.
            batch.clear();
            for gone in std::mem::take(&mut self.seen) {
                batch.series_bytes(&gone).push(at_ms, STALE);
            }
        }
        let took = begin.elapsed();
        let number = |count: usize| count as f64;
        self.report(
            &mut batch,
            at_ms,
            [
                ("up", f64::from(u8::from(outcome.is_ok()))),
                ("scrape_duration_seconds", took.as_secs_f64()),
                ("scrape_samples_scraped", number(counts.scraped)),
                ("scrape_samples_post_metric_relabeling", number(counts.left)),
                ("scrape_series_added", number(counts.added)),
            ],
        );
        let read = Read { batch, metadata: described, ..Read::default() };
        let stored = ingest::store_own(app, read).await.map_err(|error| error.message);
        let outcome = outcome.and(stored);
        *health.lock().unwrap_or_else(PoisonError::into_inner) =
            Health { at_ms, took, outcome: Some(outcome) };
    }

    async fn ask(&self, app: &App) -> Result<client::Answer, String> {
        let mut headers = vec![
            ("accept", ACCEPT.to_owned()),
            ("accept-encoding", "gzip".to_owned()),
            ("user-agent", concat!("ropewalk/", env!("CARGO_PKG_VERSION")).to_owned()),
            ("x-prometheus-scrape-timeout-seconds", self.job.timeout.as_secs_f64().to_string()),
        ];
        headers.extend(self.job.authorization.clone().map(|value| ("authorization", value)));
        let answer = client::ask(Ask {
            method: Method::GET,
            url: &self.target.url,
            headers,
            body: Bytes::new(),
            bytes_max: app.service.limits().request_bytes,
            time: self.job.timeout,
            follow: self.job.follow_redirects,
        });
        let answer = answer.await?;
        if answer.status != 200 {
            return Err(format!("server returned HTTP status {}", answer.status));
        }
        Ok(answer)
    }

    fn take(
        &mut self,
        answer: client::Answer,
        at_ms: i64,
        batch: &mut SampleBatch,
        counts: &mut Counts,
    ) -> Result<Descriptions, String> {
        let text = String::from_utf8(answer.body).map_err(|_| "the page is not UTF-8".to_owned())?;
        let mut now = HashSet::with_capacity(self.seen.len());
        let format = Format::of(&answer.content_type);
        let mut set_bytes = Vec::new();
        let described = exposition::each(&text, format, |scraped: Scraped<'_>| {
            counts.scraped += 1;
            let Some(labels) = self.labels(&scraped)? else { return Ok(()) };
            counts.left += 1;
            if self.job.sample_limit > 0 && counts.left > self.job.sample_limit {
                // The rest is still counted, so that the report tells by how much the limit is exceeded.
                return Ok(());
            }
            let mut set = LabelSet::default();
            labels.iter().for_each(|(name, value)| set.push(name.as_bytes(), value.as_bytes()));
            set_bytes.clear();
            set_bytes.extend_from_slice(set.stored().map_err(|Rejected(why)| why)?);
            let own_time = scraped.time_ms.filter(|_| self.job.honor_timestamps);
            let mut series = batch.series_bytes(&set_bytes);
            series.push(own_time.unwrap_or(at_ms), scraped.value);
            if let Some(exemplar) = scraped.exemplar(at_ms)? {
                series.exemplar(exemplar);
            }
            counts.added += usize::from(!self.seen.contains(set_bytes.as_slice()));
            if own_time.is_none() {
                now.insert(set_bytes.as_slice().into());
            }
            Ok(())
        })?;
        if self.job.sample_limit > 0 && counts.left > self.job.sample_limit {
            return Err(format!("sample limit of {} exceeded", self.job.sample_limit));
        }
        for gone in self.seen.difference(&now) {
            batch.series_bytes(gone).push(at_ms, STALE);
        }
        self.seen = now;
        Ok(described)
    }

    /// The labels of a sample as they are stored; `None` when relabelling drops it.
    fn labels(&self, scraped: &Scraped<'_>) -> Result<Option<Labels>, String> {
        let mut labels = scraped.labels()?;
        for (name, value) in &self.target.labels {
            match labels.get(name).filter(|there| !there.is_empty()).cloned() {
                Some(_) if self.job.honor_labels => continue,
                Some(there) => {
                    let mut exported = format!("exported_{name}");
                    while labels.contains_key(&exported) {
                        exported.insert_str(0, "exported_");
                    }
                    labels.insert(exported, there);
                }
                None => {}
            }
            labels.insert(name.clone(), value.clone());
        }
        let labels = relabel(labels, &self.job.metric_relabel);
        Ok(labels.filter(|labels| labels.get(METRIC_NAME).is_some_and(|name| !name.is_empty())))
    }

    fn report(&self, batch: &mut SampleBatch, at_ms: i64, values: [(&str, f64); 5]) {
        for (metric, value) in values {
            let mut set = LabelSet::default();
            set.push(METRIC_NAME.as_bytes(), metric.as_bytes());
            self.target.labels.iter().for_each(|(name, value)| set.push(name.as_bytes(), value.as_bytes()));
            // Invalid labels of a target were reported with its samples.
            if let Ok(stored) = set.stored() {
                batch.series_bytes(stored).push(at_ms, value);
            }
        }
    }

    /// Marks the series of a removed target stale.
    pub(super) async fn end(&mut self, app: &App) {
        let at_ms = time::now_ms();
        let mut batch = SampleBatch::new();
        for gone in std::mem::take(&mut self.seen) {
            batch.series_bytes(&gone).push(at_ms, STALE);
        }
        self.report(
            &mut batch,
            at_ms,
            [
                ("up", STALE),
                ("scrape_duration_seconds", STALE),
                ("scrape_samples_scraped", STALE),
                ("scrape_samples_post_metric_relabeling", STALE),
                ("scrape_series_added", STALE),
            ],
        );
        if let Err(error) = ingest::append(app, &Caller::everybody(), batch).await {
            tracing::warn!(target = self.target.url, error = error.message, "staleness could not be stored");
        }
    }
}
