//! What the server does by itself, as the file of `prometheus.config` says: scrape targets, evaluate rules, tell of alerts.
//!
//!   a task for each job ─▶ discovery ─▶ a task for each target        a task for each group of rules ─▶ alerts ─▶ Alertmanager
//!
//! All of it writes like any client, through `ingest`, and is durable. It ends when the server stops; what was scraped stays
//! as it is then, without staleness markers, since the server itself is gone.

mod alerts;
mod client;
mod config;
pub(crate) mod kept;
mod notify;
mod relabel;
mod rules;
pub(crate) mod show;
mod target;
mod template;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::Method;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

pub use config::{Config, ConfigError};

use alerts::Alerting;
use config::Job;
use config::TargetGroup;
use relabel::Labels;
use rules::{Group, Health as RuleHealth};
use target::{Health, Scraper, Target};

use crate::App;

/// Bytes of a list of targets that HTTP discovery gives.
const DISCOVERY_BYTES_MAX: usize = 16 << 20;
const DISCOVERY_TIME: Duration = Duration::from_secs(30);

/// All jobs and groups, and how they are.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    pub(crate) config: Arc<Config>,
    pub(crate) groups: Vec<GroupState>,
    pub(crate) pools: Mutex<BTreeMap<String, Pool>>,
}

/// A group of rules, as the API shows it.
#[derive(Debug)]
pub(crate) struct GroupState {
    pub(crate) group: Group,
    pub(crate) alerting: Alerting,
    pub(crate) health: Mutex<Vec<RuleHealth>>,
}

/// The targets of a job.
#[derive(Debug, Default, Clone)]
pub(crate) struct Pool {
    pub(crate) active: Vec<(Target, Arc<Mutex<Health>>)>,
    pub(crate) dropped: Vec<Labels>,
}

impl Jobs {
    pub(crate) fn new(config: Config) -> Self {
        let config = Arc::new(config);
        let state = |group: &Group| GroupState {
            group: group.clone(),
            alerting: Alerting::new(config.external_labels.clone()),
            health: Mutex::default(),
        };
        let groups = config.groups.iter().map(state).collect();
        Self { groups, config, pools: Mutex::default() }
    }
}

/// Runs everything until the server stops.
pub(crate) async fn run(app: App) {
    let mut running = JoinSet::new();
    for number in 0..app.jobs.groups.len() {
        running.spawn(group(app.clone(), number));
    }
    for job in app.jobs.config.jobs.clone() {
        running.spawn(pool(app.clone(), Arc::new(job)));
    }
    running.spawn(derived(app));
    while running.join_next().await.is_some() {}
}

/// Ticks at whole multiples of `period`, moved by something that `who` decides.
fn ticks(period: Duration, who: &impl Hash) -> tokio::time::Interval {
    let period_ms = i64::try_from(period.as_millis()).unwrap_or(i64::MAX).max(1);
    let mut hasher = DefaultHasher::new();
    who.hash(&mut hasher);
    let moved = (hasher.finish() % period_ms as u64) as i64;
    let wait = (moved - crate::now_ms()).rem_euclid(period_ms) as u64;
    let mut ticks = tokio::time::interval_at(Instant::now() + Duration::from_millis(wait), period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}

async fn group(app: App, number: usize) {
    let jobs = app.jobs.clone();
    let Some(state) = jobs.groups.get(number) else { return };
    let interval = state.group.interval;
    let mut running = rules::Running::new(state.group.clone());
    let mut ticks = ticks(interval, &(&state.group.file, &state.group.name));
    loop {
        tokio::select! {
            () = app.service.stop().wait() => return,
            _ = ticks.tick() => {}
        }
        let at_ms = crate::now_ms();
        let health = running.evaluate(&app, at_ms, &state.alerting).await;
        *state.health.lock().unwrap_or_else(PoisonError::into_inner) = health;
        let again_ms = notify::AGAIN.as_millis() as i64;
        let alerts = state.alerting.to_tell(at_ms, again_ms);
        if !alerts.is_empty() {
            notify::tell(&jobs.config, &alerts, interval).await;
        }
    }
}

/// Runs the metrics that clients have asked for, as they come and go.
async fn derived(app: App) {
    let mut wanted = app.kept.derived();
    let mut running = BTreeMap::new();
    loop {
        let now = wanted.borrow_and_update().clone();
        running.retain(|name, (derived, task): &mut (kept::Derived, AbortOnDrop)| {
            let _ = task;
            now.get(name) == Some(derived)
        });
        for (name, derived) in now {
            if let (false, Ok(group)) = (running.contains_key(&name), kept::group(&name, &derived)) {
                let task = AbortOnDrop(tokio::spawn(derive(app.clone(), group)));
                running.insert(name, (derived, task));
            }
        }
        tokio::select! {
            () = app.service.stop().wait() => return,
            changed = wanted.changed() => if changed.is_err() { return },
        }
    }
}

/// A task that ends with the value.
struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn derive(app: App, group: Group) {
    let mut ticks = ticks(group.interval, &group.name);
    let (mut running, alerting) = (rules::Running::new(group), Alerting::default());
    loop {
        ticks.tick().await;
        running.evaluate(&app, crate::now_ms(), &alerting).await;
    }
}

/// Tells a target's task to end, and waits until it has.
struct Scraping {
    end: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

async fn pool(app: App, job: Arc<Job>) {
    let mut scraping: BTreeMap<Target, Scraping> = BTreeMap::new();
    let mut kept: BTreeMap<String, Vec<TargetGroup>> = BTreeMap::new();
    let refresh = job
        .files
        .iter()
        .map(|sd| sd.refresh_interval.0)
        .chain(job.urls.iter().map(|sd| sd.refresh_interval.0));
    let refresh = refresh.min().unwrap_or(Duration::MAX).max(Duration::from_millis(100));
    loop {
        let (wanted, dropped) = discover(&job, &mut kept).await;
        let gone: Vec<Target> = scraping.keys().filter(|target| !wanted.contains(target)).cloned().collect();
        for target in gone {
            if let Some(old) = scraping.remove(&target) {
                old.end.send_replace(true);
                // It ends with its markers, before the same series can come from elsewhere.
                let _ = old.task.await;
            }
        }
        let mut pool = Pool { active: Vec::with_capacity(wanted.len()), dropped };
        {
            let mut pools = app.jobs.pools.lock().unwrap_or_else(PoisonError::into_inner);
            let before = pools.get(&job.name).cloned().unwrap_or_default();
            for target in wanted {
                let known =
                    before.active.iter().find(|(old, _)| *old == target).map(|(_, health)| health.clone());
                let health = known.unwrap_or_default();
                if !scraping.contains_key(&target) {
                    let (end, ended) = watch::channel(false);
                    let task = scrape(app.clone(), job.clone(), target.clone(), health.clone(), ended);
                    scraping.insert(target.clone(), Scraping { end, task: tokio::spawn(task) });
                }
                pool.active.push((target, health));
            }
            pools.insert(job.name.clone(), pool);
        }
        tokio::select! {
            () = app.service.stop().wait() => return,
            () = tokio::time::sleep(refresh) => {}
        }
    }
}

async fn scrape(
    app: App,
    job: Arc<Job>,
    target: Target,
    health: Arc<Mutex<Health>>,
    mut ended: watch::Receiver<bool>,
) {
    let mut ticks = ticks(job.interval, &target.url);
    let mut scraper = Scraper::new(&job, target);
    loop {
        // The sender is gone when the job is.
        let is_over = async { drop(ended.wait_for(|ended| *ended).await) };
        let over = tokio::select! {
            () = app.service.stop().wait() => return,
            () = is_over => true,
            _ = ticks.tick() => false,
        };
        if over {
            return scraper.end(&app).await;
        }
        scraper.scrape(&app, &health).await;
    }
}

/// All targets of a job. A file or URL that cannot be read leaves what it gave before.
async fn discover(
    job: &Job,
    kept: &mut BTreeMap<String, Vec<TargetGroup>>,
) -> (BTreeSet<Target>, Vec<Labels>) {
    let (mut wanted, mut dropped) = (BTreeSet::new(), Vec::new());
    let mut add = |groups: &[TargetGroup], meta: &[(&str, &str)]| {
        for group in groups {
            let (targets, left_out) = target::targets(job, group, meta);
            wanted.extend(targets);
            dropped.extend(left_out);
        }
    };
    add(&job.static_groups, &[]);
    let files = job.files.iter().flat_map(|sd| &sd.files);
    for pattern in files {
        let paths = config::paths(pattern).unwrap_or_else(|error| {
            tracing::warn!(job = job.name, %error, "discovery");
            Vec::new()
        });
        for path in paths {
            let name = path.display().to_string();
            match config::yaml::<Vec<TargetGroup>>(&path) {
                Ok((_, groups)) => drop(kept.insert(name.clone(), groups)),
                Err(error) => tracing::warn!(job = job.name, %error, "discovery"),
            }
            add(kept.get(&name).map_or(&[], Vec::as_slice), &[("__meta_filepath", &name)]);
        }
    }
    for sd in &job.urls {
        match ask(&sd.url).await {
            Ok(groups) => drop(kept.insert(sd.url.clone(), groups)),
            Err(error) => tracing::warn!(job = job.name, url = sd.url, error, "discovery"),
        }
        add(kept.get(&sd.url).map_or(&[], Vec::as_slice), &[("__meta_url", &sd.url)]);
    }
    (wanted, dropped)
}

async fn ask(url: &str) -> Result<Vec<TargetGroup>, String> {
    let answer = client::ask(client::Ask {
        method: Method::GET,
        url,
        headers: vec![("accept", "application/json".to_owned())],
        body: Bytes::new(),
        bytes_max: DISCOVERY_BYTES_MAX,
        time: DISCOVERY_TIME,
    });
    let answer = answer.await?;
    if answer.status != 200 {
        return Err(format!("server returned HTTP status {}", answer.status));
    }
    serde_json::from_slice(&answer.body).map_err(|error| error.to_string())
}
