//! One target: scraped repeatedly, its samples stored as series.
//!
//!   GET ─▶ text ─▶ target labels added, relabelled ─▶ one commit with `up` and the other `scrape_…` series
//!
//! A series that is missing from a scrape is marked stale; all are when the target does not respond or is
//! gone. Samples with explicit times get no markers and end by age. Where a label of the sample and one of
//! the target have the same name, the sample's becomes `exported_…`, or wins with `honor_labels`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use ropewalk::promql::format_duration;
use ropewalk::series::{self, METRIC_NAME, Metadata, STALE, SampleBatch};

use crate::client::{self, Ask};
use crate::clock::now_ms;
use crate::config::relabel::{Labels, relabel};
use crate::config::{ScrapeJob, TargetGroup};
use crate::exposition::{self, Format, Scraped};
use crate::host::Host;

const ACCEPT: &str =
    "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1";

/// A target after discovery and relabelling.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    /// The URL that is scraped.
    pub url: String,
    /// Labels added to its series.
    pub labels: BTreeMap<String, String>,
    /// Labels before relabelling.
    pub discovered: BTreeMap<String, String>,
}

/// Outcome of the newest scrape.
#[derive(Debug, Clone, Default)]
pub struct TargetHealth {
    /// When it began.
    pub at_ms: i64,
    /// Time that it took.
    pub took: Duration,
    /// `None` before the first scrape.
    pub outcome: Option<Result<(), String>>,
}

/// The targets of a group, and the labels of those that relabelling drops.
pub(crate) fn targets(
    job: &ScrapeJob,
    group: &TargetGroup,
    meta: &[(&str, &str)],
) -> (Vec<Target>, Vec<Labels>) {
    let (mut found, mut dropped) = (Vec::new(), Vec::new());
    for address in &group.targets {
        let mut labels: Labels = group.labels.clone();
        labels.extend(meta.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        for (name, value) in [
            ("job", job.name.as_str()),
            ("__scheme__", &job.scheme),
            ("__metrics_path__", &job.path),
            ("__scrape_interval__", &format_duration(job.interval.as_millis() as i64)),
            ("__scrape_timeout__", &format_duration(job.timeout.as_millis() as i64)),
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
            Some(target) => found.push(target),
            None => dropped.push(discovered),
        }
    }
    (found, dropped)
}

fn target(job: &ScrapeJob, mut labels: Labels, discovered: &Labels) -> Option<Target> {
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
    pub(super) job: Arc<ScrapeJob>,
    pub(super) target: Target,
    /// The series of the last scrape.
    seen: HashSet<series::Labels>,
}

/// Sample counts of one scrape.
#[derive(Default)]
struct Counts {
    scraped: usize,
    left: usize,
    added: usize,
}

impl Scraper {
    pub(super) fn new(job: Arc<ScrapeJob>, target: Target) -> Self {
        Self { job, target, seen: HashSet::new() }
    }

    /// Takes over the series of a predecessor whose target had the same labels.
    pub(super) fn succeed(&mut self, before: &mut Self) {
        self.seen.extend(std::mem::take(&mut before.seen));
    }

    /// Scrapes once, and stores the samples.
    pub(super) async fn scrape(&mut self, host: &impl Host, health: &Mutex<TargetHealth>) {
        let (begin, at_ms) = (Instant::now(), now_ms());
        let mut batch = SampleBatch::new();
        let mut counts = Counts::default();
        let mut described = HashMap::new();
        let outcome = match self.ask(host).await {
            Ok(answer) => self.take(answer, at_ms, &mut batch, &mut counts).map(|found| described = found),
            Err(error) => Err(error),
        };
        if outcome.is_err() {
            // Of a page that cannot be read nothing is stored but the count of samples read.
            batch.clear();
            for gone in std::mem::take(&mut self.seen) {
                batch.push(&gone, at_ms, STALE);
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
        let outcome = outcome.and(host.append(batch, described).await);
        *health.lock().unwrap_or_else(PoisonError::into_inner) =
            TargetHealth { at_ms, took, outcome: Some(outcome) };
    }

    async fn ask(&self, host: &impl Host) -> Result<client::Answer, String> {
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
            bytes_max: host.service().limits().request_bytes,
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
    ) -> Result<HashMap<String, Metadata>, String> {
        let text = String::from_utf8(answer.body).map_err(|_| "the page is not UTF-8".to_owned())?;
        let mut now = HashSet::with_capacity(self.seen.len());
        let format = Format::of(&answer.content_type);
        let described = exposition::each(&text, format, |scraped: Scraped<'_>| {
            counts.scraped += 1;
            let Some(labels) = self.labels(&scraped)? else { return Ok(()) };
            counts.left += 1;
            if self.job.sample_limit > 0 && counts.left > self.job.sample_limit {
                // The rest is still counted, so that the report tells by how much the limit is exceeded.
                return Ok(());
            }
            let labels = series::Labels::new(labels).map_err(|error| error.to_string())?;
            let own_time = scraped.time_ms.filter(|_| self.job.honor_timestamps);
            let mut series = batch.series(&labels);
            series.push(own_time.unwrap_or(at_ms), scraped.value);
            if let Some(exemplar) = scraped.exemplar(at_ms)? {
                series.exemplar(exemplar);
            }
            counts.added += usize::from(!self.seen.contains(&labels));
            if own_time.is_none() {
                now.insert(labels);
            }
            Ok(())
        })?;
        if self.job.sample_limit > 0 && counts.left > self.job.sample_limit {
            return Err(format!("sample limit of {} exceeded", self.job.sample_limit));
        }
        for gone in self.seen.difference(&now) {
            batch.push(gone, at_ms, STALE);
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
            let of_target = self.target.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            // Invalid labels of a target were reported with its samples.
            if let Ok(labels) = series::Labels::new(of_target.chain([(METRIC_NAME, metric)])) {
                batch.push(&labels, at_ms, value);
            }
        }
    }

    /// Marks the series of a removed target stale.
    pub(super) async fn end(&mut self, host: &impl Host) {
        let at_ms = now_ms();
        let mut batch = SampleBatch::new();
        for gone in std::mem::take(&mut self.seen) {
            batch.push(&gone, at_ms, STALE);
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
        if let Err(error) = host.append(batch, HashMap::new()).await {
            tracing::warn!(target = self.target.url, error, "staleness could not be stored");
        }
    }
}
