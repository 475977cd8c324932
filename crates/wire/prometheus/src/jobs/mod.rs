//! Background jobs of the file `prometheus.config`: scraping, rule evaluation, alert notification.
//!
//!   a task for each job ─▶ discovery ─▶ a task for each target        a task for each group of rules ─▶ alerts ─▶ Alertmanager
//!
//! All jobs write like clients, through `ingest`, and their samples are durable. They end when the server
//! stops. Scraped series then get no staleness markers, since the server itself is gone.
//!
//! The file may be read again at run time: it then applies completely or, when it is invalid, not at all.
//! Unchanged groups and targets run on undisturbed; changed ones take over the state of their predecessors.

mod alerts;
mod client;
mod config;
pub(crate) mod kept;
mod notify;
mod pool;
mod relabel;
mod rules;
pub(crate) mod show;
mod target;
mod template;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior};

pub use config::{Config, ConfigError};

use config::Job;
use pool::Pool;
use rules::{Group, GroupState, Health as RuleHealth, SeriesSet};

use crate::app::App;
use crate::request::response::{ApiError, Kind, Plain};
use crate::request::time::now_ms;

/// All jobs and groups with their state.
#[derive(Default)]
pub(crate) struct Jobs {
    config: RwLock<Arc<Config>>,
    groups: RwLock<Arc<[Arc<GroupState>]>>,
    pub(crate) pools: Mutex<BTreeMap<String, Pool>>,
    /// Serializes changes.
    running: tokio::sync::Mutex<Running>,
}

/// The tasks.
#[derive(Default)]
struct Running {
    has_begun: bool,
    groups: Vec<Evaluating>,
    /// The newest form of each job that was ever configured.
    pools: BTreeMap<String, watch::Sender<Option<Arc<Job>>>>,
    others: JoinSet<()>,
}

/// A group's task. It ends when the sender is dropped, after its current evaluation.
struct Evaluating {
    state: Arc<GroupState>,
    _end: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Jobs {
    pub(crate) fn new(config: Config) -> Self {
        let state =
            |group: &Group| Arc::new(GroupState::new(group.clone(), config.external_labels.clone(), true));
        let groups = config.groups.iter().map(state).collect();
        Self { groups: RwLock::new(groups), config: RwLock::new(Arc::new(config)), ..Self::default() }
    }

    /// The configuration in force.
    pub(crate) fn config(&self) -> Arc<Config> {
        self.config.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The groups of rules.
    pub(crate) fn groups(&self) -> Arc<[Arc<GroupState>]> {
        self.groups.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Runs everything until the server stops.
pub(crate) async fn run(app: App) {
    {
        let mut running = app.jobs.running.lock().await;
        running.others.spawn(derived(app.clone()));
        arrange(&app, &mut running).await;
    }
    app.service.stop().wait().await;
    let mut running = app.jobs.running.lock().await;
    for group in std::mem::take(&mut running.groups) {
        // A task that panicked has ended, too.
        let _ = group.task.await;
    }
    while running.others.join_next().await.is_some() {}
}

/// Reads the file again and applies it, unless it is invalid. Runs to its end even if the caller is dropped.
pub(crate) async fn reload(app: App) -> Result<(), ConfigError> {
    let changed = tokio::spawn(async move {
        let mut running = app.jobs.running.lock().await;
        let path = app.jobs.config().path.clone();
        let path = path.ok_or_else(|| failed("there is no file to read again"))?;
        let read = tokio::task::spawn_blocking(move || Config::read(&path)).await;
        let read = read.unwrap_or_else(|_| Err(failed("it could not be read")));
        app.service.metrics().config_read(read.is_ok());
        match read {
            Ok(config) => {
                *app.jobs.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
                arrange(&app, &mut running).await;
                tracing::info!("prometheus.config was read again");
                Ok(())
            }
            Err(error) => {
                tracing::error!(%error, "prometheus.config reload failed; keeping the current configuration");
                Err(error)
            }
        }
    });
    changed.await.unwrap_or_else(|_| Err(failed("it could not be put in force")))
}

fn failed(what: &str) -> ConfigError {
    ConfigError::new(Path::new("prometheus.config"), what)
}

/// `POST /-/reload`.
pub(crate) async fn reload_now(State(app): State<App>) -> Result<StatusCode, Plain> {
    let done = reload(app).await;
    done.map_err(|error| ApiError::new(Kind::Internal, format!("failed to reload config: {error}")))?;
    Ok(StatusCode::OK)
}

/// Starts and stops tasks to match the configuration.
async fn arrange(app: &App, running: &mut Running) {
    // Reap the tasks that have ended.
    while running.others.try_join_next().is_some() {}
    let config = app.jobs.config();
    arrange_groups(app, running, &config).await;
    for (name, pool) in &running.pools {
        if !config.jobs.iter().any(|job| job.name == *name) {
            pool.send_replace(None);
        }
    }
    for job in &config.jobs {
        let pool = running.pools.entry(job.name.clone()).or_insert_with(|| {
            let (sender, jobs) = watch::channel(None);
            running.others.spawn(pool::pool(app.clone(), job.name.clone(), jobs));
            sender
        });
        pool.send_if_modified(|known| {
            let is_new = !known.as_ref().is_some_and(|known| known.is_same(job));
            if is_new {
                *known = Some(Arc::new(job.clone()));
            }
            is_new
        });
    }
}

/// Unchanged groups keep running. A changed one ends after its current evaluation, and its successor takes
/// over.
async fn arrange_groups(app: &App, running: &mut Running, config: &Config) {
    let resumes = !std::mem::replace(&mut running.has_begun, true);
    let external = &config.external_labels;
    let stays = |one: &Evaluating| config.groups.iter().any(|group| one.state.is_of(group, external));
    let (mut staying, ended): (Vec<_>, Vec<_>) =
        std::mem::take(&mut running.groups).into_iter().partition(stays);
    // Signal all of them before waiting for the first.
    let ended: Vec<_> = ended.into_iter().map(|Evaluating { state, task, .. }| (state, task)).collect();
    let mut before = BTreeMap::new();
    for (state, task) in ended {
        let _ = task.await;
        before.insert(state.group.key(), state);
    }
    let mut gone = Vec::new();
    for group in &config.groups {
        if let Some(at) = staying.iter().position(|one| one.state.group.key() == group.key()) {
            running.groups.push(staying.swap_remove(at));
            continue;
        }
        let state = Arc::new(GroupState::new(group.clone(), external.clone(), resumes));
        if let Some(before) = before.remove(&group.key()) {
            gone.push((state.succeed(&before), before));
        }
        let (end, ended) = oneshot::channel();
        let task = tokio::spawn(evaluate(app.clone(), state.clone(), ended));
        running.groups.push(Evaluating { state, _end: end, task });
    }
    gone.extend(before.into_values().map(|state| (state.all_given(), state)));
    *app.jobs.groups.write().unwrap_or_else(PoisonError::into_inner) =
        running.groups.iter().map(|one| one.state.clone()).collect();
    let now_ms = now_ms();
    for (series, state) in gone.into_iter().filter(|(series, _)| !series.is_empty()) {
        let (at_ms, wait) = (now_ms - state.group.offset_ms, state.group.interval.saturating_mul(2));
        running.others.spawn(fade(app.clone(), series, at_ms, wait));
    }
}

/// Marks series of removed rules stale as of `at_ms`. Waits first, so that rules of other groups, to which
/// they may have moved, have been evaluated.
async fn fade(app: App, mut series: SeriesSet, at_ms: i64, wait: Duration) {
    tokio::select! {
        () = app.service.stop().wait() => return,
        () = tokio::time::sleep(wait) => {}
    }
    for state in app.jobs.groups().iter() {
        state.take_out_given(&mut series);
    }
    if let Err(error) = rules::mark_stale(&app, &series, at_ms).await {
        tracing::warn!(error, "staleness could not be stored");
    }
}

/// Ticks at multiples of `period`, plus an offset derived from the hash of `who`.
fn ticks(period: Duration, who: &impl Hash) -> tokio::time::Interval {
    let period_ms = i64::try_from(period.as_millis()).unwrap_or(i64::MAX).max(1);
    let mut hasher = DefaultHasher::new();
    who.hash(&mut hasher);
    let moved = (hasher.finish() % period_ms as u64) as i64;
    let wait = (moved - now_ms()).rem_euclid(period_ms) as u64;
    let mut ticks = tokio::time::interval_at(Instant::now() + Duration::from_millis(wait), period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}

async fn evaluate(app: App, state: Arc<GroupState>, mut ended: oneshot::Receiver<()>) {
    let interval = state.group.interval;
    let mut ticks = ticks(interval, &(&state.group.file, &state.group.name));
    loop {
        tokio::select! {
            () = app.service.stop().wait() => return,
            _ = &mut ended => return,
            _ = ticks.tick() => {}
        }
        let at_ms = now_ms();
        state.evaluate(&app, at_ms).await;
        let again_ms = notify::AGAIN.as_millis() as i64;
        let alerts = state.alerting.to_tell(at_ms, again_ms);
        if !alerts.is_empty() {
            notify::tell(&app.jobs.config(), &alerts, interval).await;
        }
    }
}

/// Runs the derived metrics that clients have set, as they are added and removed.
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

/// Aborts its task when dropped.
struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn derive(app: App, group: Group) {
    let mut ticks = ticks(group.interval, &group.name);
    let state = GroupState::new(group, BTreeMap::new(), false);
    loop {
        ticks.tick().await;
        state.evaluate(&app, now_ms()).await;
    }
}
