//! Background jobs of the file `prometheus.config`: scraping, rule evaluation, alert notification.
//!
//!   a task for each job ─▶ discovery ─▶ a task for each target        a task for each group of rules ─▶ alerts ─▶ Alertmanager
//!
//! All jobs write through the [`Host`], like clients, and their samples are durable. They end when the server
//! stops. Scraped series then get no staleness markers, since the server itself is gone.
//!
//! The file may be read again at run time: it then applies completely or, when it is invalid, not at all.
//! Unchanged groups and targets run on undisturbed; changed ones take over the state of their predecessors.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::clock::{now_ms, ticks};
use crate::config::derived::DerivedMetric;
use crate::config::rules::RuleGroup;
use crate::config::{Config, ConfigError, ScrapeJob};
use crate::host::Host;
use crate::rules::group::{GroupState, SeriesSet, mark_stale};
use crate::rules::notify;
use crate::scrape::pool::{Pools, ScrapePool, pool};

/// All jobs and groups of rules with their state.
pub struct Monitoring {
    config: RwLock<Arc<Config>>,
    groups: RwLock<Arc<[Arc<GroupState>]>>,
    pools: Arc<Pools>,
    derived: watch::Sender<BTreeMap<String, DerivedMetric>>,
    /// Serializes changes.
    running: tokio::sync::Mutex<Running>,
}

/// The tasks.
#[derive(Default)]
struct Running {
    has_begun: bool,
    groups: Vec<Evaluating>,
    /// The newest form of each job that was ever configured.
    pools: BTreeMap<String, watch::Sender<Option<Arc<ScrapeJob>>>>,
    others: JoinSet<()>,
}

/// A group's task. It ends when the sender is dropped, after its current evaluation.
struct Evaluating {
    state: Arc<GroupState>,
    _end: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Monitoring {
    /// Jobs that do not run yet; the derived metrics are by name.
    pub fn new(config: Config, derived: BTreeMap<String, DerivedMetric>) -> Self {
        Self {
            groups: RwLock::new(states(&config)),
            config: RwLock::new(Arc::new(config)),
            pools: Arc::default(),
            derived: watch::Sender::new(derived),
            running: tokio::sync::Mutex::default(),
        }
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<Config> {
        self.config.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The groups of rules.
    pub fn groups(&self) -> Arc<[Arc<GroupState>]> {
        self.groups.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The targets of each job, by the name of the job.
    pub fn pools(&self) -> MutexGuard<'_, BTreeMap<String, ScrapePool>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The derived metrics by name.
    pub fn derived_metrics(&self) -> BTreeMap<String, DerivedMetric> {
        self.derived.borrow().clone()
    }

    /// Replaces the derived metrics; unchanged ones continue.
    pub fn set_derived_metrics(&self, derived: BTreeMap<String, DerivedMetric>) {
        self.derived.send_replace(derived);
    }

    /// Runs everything until the server stops.
    pub async fn run(self: Arc<Self>, host: impl Host) {
        {
            let mut running = self.running.lock().await;
            running.others.spawn(derived(host.clone(), self.derived.subscribe()));
            self.arrange(&host, &mut running).await;
        }
        host.service().stop().wait().await;
        let mut running = self.running.lock().await;
        for group in std::mem::take(&mut running.groups) {
            // A task that panicked has ended, too.
            let _ = group.task.await;
        }
        while running.others.join_next().await.is_some() {}
    }

    /// Reads the file again and applies it, unless it is invalid. Runs to its end even if the caller is
    /// dropped.
    ///
    /// # Errors
    /// As [`Config::read`]; the running configuration then stays in force.
    pub async fn reload(self: Arc<Self>, host: impl Host) -> Result<(), ConfigError> {
        let changed = tokio::spawn(async move {
            let mut running = self.running.lock().await;
            let path = self.config().path.clone();
            let path = path.ok_or_else(|| failed("there is no file to read again"))?;
            let read = tokio::task::spawn_blocking(move || Config::read(&path)).await;
            let read = read.unwrap_or_else(|_| Err(failed("it could not be read")));
            host.service().metrics().config_read(read.is_ok());
            match read {
                Ok(config) => {
                    // Before the jobs run, as on a node that follows, only the list of groups changes.
                    if !running.has_begun {
                        *self.groups.write().unwrap_or_else(PoisonError::into_inner) = states(&config);
                    }
                    *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
                    if running.has_begun {
                        self.arrange(&host, &mut running).await;
                    }
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

    /// Starts and stops tasks to match the configuration.
    async fn arrange(self: &Arc<Self>, host: &impl Host, running: &mut Running) {
        // Reap the tasks that have ended.
        while running.others.try_join_next().is_some() {}
        let config = self.config();
        self.arrange_groups(host, running, &config).await;
        for (name, pool) in &running.pools {
            if !config.jobs.iter().any(|job| job.name == *name) {
                pool.send_replace(None);
            }
        }
        for job in &config.jobs {
            let sender = running.pools.entry(job.name.clone()).or_insert_with(|| {
                let (sender, jobs) = watch::channel(None);
                running.others.spawn(pool(host.clone(), self.pools.clone(), job.name.clone(), jobs));
                sender
            });
            sender.send_if_modified(|known| {
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
    async fn arrange_groups(self: &Arc<Self>, host: &impl Host, running: &mut Running, config: &Config) {
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
            let task = tokio::spawn(evaluate(host.clone(), self.clone(), state.clone(), ended));
            running.groups.push(Evaluating { state, _end: end, task });
        }
        gone.extend(before.into_values().map(|state| (state.all_given(), state)));
        *self.groups.write().unwrap_or_else(PoisonError::into_inner) =
            running.groups.iter().map(|one| one.state.clone()).collect();
        let now_ms = now_ms();
        for (series, state) in gone.into_iter().filter(|(series, _)| !series.is_empty()) {
            let (at_ms, wait) = (now_ms - state.group.offset_ms, state.group.interval.saturating_mul(2));
            running.others.spawn(fade(host.clone(), self.clone(), series, at_ms, wait));
        }
    }
}

/// The groups of a configuration, not yet evaluated.
fn states(config: &Config) -> Arc<[Arc<GroupState>]> {
    let state =
        |group: &RuleGroup| Arc::new(GroupState::new(group.clone(), config.external_labels.clone(), true));
    config.groups.iter().map(state).collect()
}

fn failed(what: &str) -> ConfigError {
    ConfigError::new(Path::new("prometheus.config"), what)
}

/// Marks series of removed rules stale as of `at_ms`. Waits first, so that rules of other groups, to which
/// they may have moved, have been evaluated.
async fn fade(
    host: impl Host,
    monitoring: Arc<Monitoring>,
    mut series: SeriesSet,
    at_ms: i64,
    wait: Duration,
) {
    tokio::select! {
        () = host.service().stop().wait() => return,
        () = tokio::time::sleep(wait) => {}
    }
    for state in monitoring.groups().iter() {
        state.take_out_given(&mut series);
    }
    if let Err(error) = mark_stale(&host, &series, at_ms).await {
        tracing::warn!(error, "staleness could not be stored");
    }
}

async fn evaluate(
    host: impl Host,
    monitoring: Arc<Monitoring>,
    state: Arc<GroupState>,
    mut ended: oneshot::Receiver<()>,
) {
    let interval = state.group.interval;
    let mut ticks = ticks(interval, &(&state.group.file, &state.group.name));
    loop {
        tokio::select! {
            () = host.service().stop().wait() => return,
            _ = &mut ended => return,
            _ = ticks.tick() => {}
        }
        let at_ms = now_ms();
        state.evaluate(&host, at_ms).await;
        let again_ms = notify::AGAIN.as_millis() as i64;
        let alerts = state.alerting.to_tell(at_ms, again_ms);
        if !alerts.is_empty() {
            notify::tell(&monitoring.config(), &alerts, interval).await;
        }
    }
}

/// Runs the derived metrics that clients have set, as they are added and removed.
async fn derived(host: impl Host, mut wanted: watch::Receiver<BTreeMap<String, DerivedMetric>>) {
    let mut running = BTreeMap::new();
    loop {
        let now = wanted.borrow_and_update().clone();
        running.retain(|name, (derived, task): &mut (DerivedMetric, AbortOnDrop)| {
            let _ = task;
            now.get(name) == Some(derived)
        });
        for (name, derived) in now {
            if let (false, Ok(group)) = (running.contains_key(&name), derived.group(&name)) {
                let task = AbortOnDrop(tokio::spawn(derive(host.clone(), group)));
                running.insert(name, (derived, task));
            }
        }
        tokio::select! {
            () = host.service().stop().wait() => return,
            changed = wanted.changed() => if changed.is_err() { return },
        }
    }
}

/// Aborts its task when dropped.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn derive(host: impl Host, group: RuleGroup) {
    let mut ticks = ticks(group.interval, &group.name);
    let state = GroupState::new(group, BTreeMap::new(), false);
    loop {
        ticks.tick().await;
        state.evaluate(&host, now_ms()).await;
    }
}
