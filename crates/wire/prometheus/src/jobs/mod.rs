//! What the server does by itself, as the file of `prometheus.config` says: scrape targets, evaluate rules, tell of alerts.
//!
//!   a task for each job ─▶ discovery ─▶ a task for each target        a task for each group of rules ─▶ alerts ─▶ Alertmanager
//!
//! All of it writes like any client, through `ingest`, and is durable. It ends when the server stops; what was scraped stays
//! as it is then, without staleness markers, since the server itself is gone.
//!
//! The file may be read again while the server runs: the whole of it is in force then, or, where it makes no sense, nothing of it.
//! What it says as before goes on undisturbed; groups and targets that it says otherwise go on with what they knew.

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

use crate::App;
use crate::answer::{ApiError, Kind, Plain};

/// All jobs and groups, and how they are.
#[derive(Default)]
pub(crate) struct Jobs {
    config: RwLock<Arc<Config>>,
    groups: RwLock<Arc<[Arc<GroupState>]>>,
    pub(crate) pools: Mutex<BTreeMap<String, Pool>>,
    /// One change at a time.
    running: tokio::sync::Mutex<Running>,
}

/// The tasks.
#[derive(Default)]
struct Running {
    has_begun: bool,
    groups: Vec<Evaluating>,
    /// The newest form of each job that there ever was.
    pools: BTreeMap<String, watch::Sender<Option<Arc<Job>>>>,
    others: JoinSet<()>,
}

/// A group's task. It ends when the sender goes, after the evaluation that it is in.
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

    /// What is in force.
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
        // One that panicked has ended, too.
        let _ = group.task.await;
    }
    while running.others.join_next().await.is_some() {}
}

/// Reads the file again, and lets run what it says now; nothing changes when it makes no sense. To its end, whoever waits for it.
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
                tracing::error!(%error, "the new prometheus.config is of no use; the one before stays");
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

/// Lets everything run as the configuration says.
async fn arrange(app: &App, running: &mut Running) {
    // What has ended.
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

/// Groups that stay as they are go on. One that is changed ends with the evaluation that it is in, and its successor takes over.
async fn arrange_groups(app: &App, running: &mut Running, config: &Config) {
    let resumes = !std::mem::replace(&mut running.has_begun, true);
    let external = &config.external_labels;
    let stays = |one: &Evaluating| config.groups.iter().any(|group| one.state.is_of(group, external));
    let (mut staying, ended): (Vec<_>, Vec<_>) =
        std::mem::take(&mut running.groups).into_iter().partition(stays);
    // All are told before the first is waited for.
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
    let now_ms = crate::now_ms();
    for (series, state) in gone.into_iter().filter(|(series, _)| !series.is_empty()) {
        let (at_ms, wait) = (now_ms - state.group.offset_ms, state.group.interval.saturating_mul(2));
        running.others.spawn(fade(app.clone(), series, at_ms, wait));
    }
}

/// Marks series stale as of `at_ms` whose rules are gone. It waits before: until then rules of other groups, to which they may
/// have moved, have given theirs.
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

async fn evaluate(app: App, state: Arc<GroupState>, mut ended: oneshot::Receiver<()>) {
    let interval = state.group.interval;
    let mut ticks = ticks(interval, &(&state.group.file, &state.group.name));
    loop {
        tokio::select! {
            () = app.service.stop().wait() => return,
            _ = &mut ended => return,
            _ = ticks.tick() => {}
        }
        let at_ms = crate::now_ms();
        state.evaluate(&app, at_ms).await;
        let again_ms = notify::AGAIN.as_millis() as i64;
        let alerts = state.alerting.to_tell(at_ms, again_ms);
        if !alerts.is_empty() {
            notify::tell(&app.jobs.config(), &alerts, interval).await;
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
    let state = GroupState::new(group, BTreeMap::new(), false);
    loop {
        ticks.tick().await;
        state.evaluate(&app, crate::now_ms()).await;
    }
}
