//! The file of `prometheus.config`: scrape jobs, rules and Alertmanagers, in the YAML of Prometheus.
//!
//! Unsupported fields are rejected by name when the file is read. Supported discovery is `static_configs`,
//! `file_sd_configs` and `http_sd_configs`; remote write and remote read are not.

pub(crate) mod derived;
pub(crate) mod relabel;
pub(crate) mod rules;
pub(crate) mod template;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ropewalk::series::{Labels, METRIC_NAME, SampleBatch};
use serde::{Deserialize, Deserializer};

use relabel::{Relabel, RelabelConfig, relabel};
use rules::RuleGroup;

use crate::notation::parse_duration;

/// A configuration file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {what}")]
pub struct ConfigError {
    path: String,
    what: String,
}

impl ConfigError {
    pub(crate) fn new(path: &Path, what: impl std::fmt::Display) -> Self {
        Self { path: path.display().to_string(), what: what.to_string() }
    }
}

/// A span of time as Prometheus writes it: `15s`, `1h30m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let ms = parse_duration(&text).ok().and_then(|ms| u64::try_from(ms).ok());
        let ms =
            ms.ok_or_else(|| serde::de::Error::custom(format!("{text:?} is no duration such as 15s")))?;
        Ok(Self(Duration::from_millis(ms)))
    }
}

impl Span {
    const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

/// The configuration file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    global: Global,
    rule_files: Vec<PathBuf>,
    scrape_configs: Vec<ScrapeConfig>,
    alerting: Alerting,
    /// Ours: Prometheus has no such list, since it relabels before it sends.
    ingest_relabel_configs: Vec<RelabelConfig>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Global {
    scrape_interval: Span,
    scrape_timeout: Span,
    evaluation_interval: Span,
    external_labels: BTreeMap<String, String>,
}

impl Default for Global {
    fn default() -> Self {
        Self {
            scrape_interval: Span::seconds(60),
            scrape_timeout: Span::seconds(10),
            evaluation_interval: Span::seconds(60),
            external_labels: BTreeMap::new(),
        }
    }
}

/// Targets that share additional labels.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TargetGroup {
    pub(crate) targets: Vec<String>,
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileSd {
    pub(crate) files: Vec<PathBuf>,
    #[serde(default = "five_minutes")]
    pub(crate) refresh_interval: Span,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HttpSd {
    pub(crate) url: String,
    #[serde(default = "one_minute")]
    pub(crate) refresh_interval: Span,
}

fn five_minutes() -> Span {
    Span::seconds(300)
}

fn one_minute() -> Span {
    Span::seconds(60)
}

fn metrics_path() -> String {
    "/metrics".to_owned()
}

fn http() -> String {
    "http".to_owned()
}

fn yes() -> bool {
    true
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct BasicAuth {
    username: String,
    password: Option<String>,
    password_file: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Authorization {
    #[serde(rename = "type", default = "bearer")]
    kind: String,
    credentials: Option<String>,
    credentials_file: Option<PathBuf>,
}

fn bearer() -> String {
    "Bearer".to_owned()
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScrapeConfig {
    job_name: String,
    scrape_interval: Option<Span>,
    scrape_timeout: Option<Span>,
    #[serde(default = "metrics_path")]
    metrics_path: String,
    #[serde(default = "http")]
    scheme: String,
    #[serde(default)]
    params: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    honor_labels: bool,
    #[serde(default = "yes")]
    honor_timestamps: bool,
    #[serde(default = "yes")]
    follow_redirects: bool,
    #[serde(default)]
    sample_limit: usize,
    basic_auth: Option<BasicAuth>,
    authorization: Option<Authorization>,
    #[serde(default)]
    static_configs: Vec<TargetGroup>,
    #[serde(default)]
    file_sd_configs: Vec<FileSd>,
    #[serde(default)]
    http_sd_configs: Vec<HttpSd>,
    #[serde(default)]
    relabel_configs: Vec<RelabelConfig>,
    #[serde(default)]
    metric_relabel_configs: Vec<RelabelConfig>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Alerting {
    alert_relabel_configs: Vec<RelabelConfig>,
    alertmanagers: Vec<AlertmanagerConfig>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct AlertmanagerConfig {
    #[serde(default)]
    static_configs: Vec<TargetGroup>,
    #[serde(default = "http")]
    scheme: String,
    #[serde(default)]
    path_prefix: String,
    timeout: Option<Span>,
    api_version: Option<String>,
}

/// One scrape job, ready to run: its targets and how they are scraped.
#[derive(Debug, Clone)]
pub struct ScrapeJob {
    /// The value of the label `job`.
    pub name: String,
    /// Time between two scrapes.
    pub interval: Duration,
    /// Time limit of a scrape.
    pub timeout: Duration,
    pub(crate) path: String,
    pub(crate) scheme: String,
    pub(crate) params: BTreeMap<String, Vec<String>>,
    pub(crate) honor_labels: bool,
    pub(crate) honor_timestamps: bool,
    pub(crate) follow_redirects: bool,
    /// 0 for no limit.
    pub(crate) sample_limit: usize,
    /// `Authorization`, if it is sent.
    pub(crate) authorization: Option<String>,
    pub(crate) static_groups: Vec<TargetGroup>,
    pub(crate) files: Vec<FileSd>,
    pub(crate) urls: Vec<HttpSd>,
    pub(crate) relabel: Vec<Relabel>,
    pub(crate) metric_relabel: Vec<Relabel>,
    /// As it is written in the file.
    written: ScrapeConfig,
}

impl ScrapeJob {
    /// True when both do the same: the written form, the global defaults that it takes, and the secrets.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let of = |job: &Self| (job.interval, job.timeout);
        of(self) == of(other)
            && self.authorization == other.authorization
            && self.written == other.written
            && self.files == other.files
    }
}

/// The complete configuration.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The file that it was read from, if any.
    pub path: Option<PathBuf>,
    /// The text of the file. It may contain passwords.
    pub text: String,
    /// The scrape jobs, each with a different name.
    pub jobs: Vec<ScrapeJob>,
    pub(crate) groups: Vec<RuleGroup>,
    /// Labels for alerts and federation.
    pub external_labels: BTreeMap<String, String>,
    pub(crate) alert_relabel: Vec<Relabel>,
    /// The receivers of alerts.
    pub alertmanagers: Vec<Alertmanager>,
    ingest_relabel: Vec<Relabel>,
}

/// An Alertmanager to which alerts are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alertmanager {
    /// The URL that alerts are posted to.
    pub url: String,
    pub(crate) timeout: Duration,
}

impl Config {
    /// Reads the file and the rule files that it names, which are relative to it.
    ///
    /// # Errors
    /// A missing file or invalid YAML, an unknown field, a rule whose expression is not valid PromQL.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let (text, file): (String, File) = yaml(path)?;
        let here = path.parent().unwrap_or(Path::new("."));
        let global = &file.global;
        let mut config = Self {
            path: Some(path.to_owned()),
            text,
            external_labels: global.external_labels.clone(),
            ..Self::default()
        };
        for job in &file.scrape_configs {
            let job = job.ready(global, here).map_err(|what| ConfigError::new(path, what))?;
            if config.jobs.iter().any(|other| other.name == job.name) {
                return Err(ConfigError::new(
                    path,
                    format!("found multiple scrape configs with job name {:?}", job.name),
                ));
            }
            config.jobs.push(job);
        }
        let mut known = BTreeSet::new();
        for pattern in &file.rule_files {
            for file_path in paths(&here.join(pattern))? {
                // A file that matches two patterns is read once.
                if !known.insert(file_path.clone()) {
                    continue;
                }
                config.groups.extend(rules::read(&file_path, global.evaluation_interval.0)?);
            }
        }
        let relabel = Relabel::all(&file.alerting.alert_relabel_configs);
        config.alert_relabel = relabel.map_err(|what| ConfigError::new(path, what))?;
        let relabel = Relabel::all(&file.ingest_relabel_configs);
        config.ingest_relabel = relabel.map_err(|what| ConfigError::new(path, what))?;
        for alertmanager in &file.alerting.alertmanagers {
            config.alertmanagers.extend(alertmanager.ready().map_err(|what| ConfigError::new(path, what))?);
        }
        Ok(config)
    }

    /// True when [`Config::relabel_pushed`] does anything.
    pub fn relabels_pushed(&self) -> bool {
        !self.ingest_relabel.is_empty()
    }

    /// Relabels samples that clients push, and removes series that are dropped or lose their metric name.
    /// `refuse` receives the reason for each series whose new labels are invalid.
    pub fn relabel_pushed(&self, batch: &mut SampleBatch, mut refuse: impl FnMut(String)) {
        if self.ingest_relabel.is_empty() {
            return;
        }
        batch.relabel(|labels| {
            let before = labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            let after = relabel(before, &self.ingest_relabel)?;
            if !after.contains_key(METRIC_NAME) {
                return None;
            }
            Labels::new(&after).map_err(|error| refuse(error.to_string())).ok()
        });
    }
}

/// Reads a YAML file: its text and its value.
pub(crate) fn yaml<T: serde::de::DeserializeOwned>(path: &Path) -> Result<(String, T), ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|error| ConfigError::new(path, error))?;
    let value = serde_saphyr::from_str(&text).map_err(|error| ConfigError::new(path, error))?;
    Ok((text, value))
}

/// The files that match a path whose last part may contain one `*`.
pub(crate) fn paths(pattern: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let name = pattern.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Some((before, after)) = name.split_once('*') else { return Ok(vec![pattern.to_owned()]) };
    let dir = pattern.parent().unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(dir).map_err(|error| ConfigError::new(dir, error))?;
    let fits = |name: &str| {
        name.len() >= before.len() + after.len() && name.starts_with(before) && name.ends_with(after)
    };
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(fits))
        .collect();
    found.sort();
    Ok(found)
}

fn secret(given: &Option<String>, file: &Option<PathBuf>, here: &Path) -> Result<String, String> {
    match (given, file) {
        (Some(secret), None) => Ok(secret.clone()),
        (None, Some(file)) => {
            let path = here.join(file);
            let text =
                std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            Ok(text.trim().to_owned())
        }
        (None, None) => Ok(String::new()),
        (Some(_), Some(_)) => Err("a secret and a file with it exclude each other".to_owned()),
    }
}

impl ScrapeConfig {
    fn ready(&self, global: &Global, here: &Path) -> Result<ScrapeJob, String> {
        let named = |what: String| format!("job {:?}: {what}", self.job_name);
        let interval = self.scrape_interval.unwrap_or(global.scrape_interval).0;
        let timeout = self.scrape_timeout.unwrap_or(Span(global.scrape_timeout.0.min(interval))).0;
        if interval.is_zero() || timeout.is_zero() || timeout > interval {
            return Err(named(
                "scrape_timeout must not be above scrape_interval, and both must be above 0".to_owned(),
            ));
        }
        if self.scheme != "http" && self.scheme != "https" {
            return Err(named(format!("scheme {:?} is neither http nor https", self.scheme)));
        }
        let authorization = match (&self.basic_auth, &self.authorization) {
            (Some(_), Some(_)) => {
                return Err(named("basic_auth and authorization exclude each other".to_owned()));
            }
            (Some(basic), None) => {
                let password = secret(&basic.password, &basic.password_file, here).map_err(named)?;
                let pair = format!("{}:{password}", basic.username);
                Some(format!(
                    "Basic {}",
                    base64::Engine::encode(&base64::engine::general_purpose::STANDARD, pair)
                ))
            }
            (None, Some(given)) => {
                let secret = secret(&given.credentials, &given.credentials_file, here).map_err(named)?;
                Some(format!("{} {secret}", given.kind))
            }
            (None, None) => None,
        };
        let files = self.file_sd_configs.iter().cloned().map(|mut sd| {
            sd.files = sd.files.iter().map(|file| here.join(file)).collect();
            sd
        });
        Ok(ScrapeJob {
            name: self.job_name.clone(),
            interval,
            timeout,
            path: self.metrics_path.clone(),
            scheme: self.scheme.clone(),
            params: self.params.clone(),
            honor_labels: self.honor_labels,
            honor_timestamps: self.honor_timestamps,
            follow_redirects: self.follow_redirects,
            sample_limit: self.sample_limit,
            authorization,
            static_groups: self.static_configs.clone(),
            files: files.collect(),
            urls: self.http_sd_configs.clone(),
            relabel: Relabel::all(&self.relabel_configs).map_err(named)?,
            metric_relabel: Relabel::all(&self.metric_relabel_configs).map_err(named)?,
            written: self.clone(),
        })
    }
}

impl AlertmanagerConfig {
    fn ready(&self) -> Result<Vec<Alertmanager>, String> {
        if self.api_version.as_deref().is_some_and(|version| version != "v2") {
            return Err("alertmanagers: api_version: there is v2 alone".to_owned());
        }
        let timeout = self.timeout.unwrap_or(Span::seconds(10)).0;
        let prefix = self.path_prefix.trim_end_matches('/');
        let targets = self.static_configs.iter().flat_map(|group| &group.targets);
        Ok(targets
            .map(|target| Alertmanager {
                url: format!("{}://{target}{prefix}/api/v2/alerts", self.scheme),
                timeout,
            })
            .collect())
    }
}
