//! The targets of one job: found by discovery, each scraped by a separate task.
//!
//! A changed job keeps its task. Targets that are gone are marked stale; a target that returns with the same
//! labels but is scraped differently continues its predecessor's series.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::Method;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use super::config::{self, Job, TargetGroup};
use super::relabel::Labels;
use super::target::{self, Health, Scraper, Target};
use super::{client, ticks};
use crate::app::App;

/// Limit of bytes of an HTTP discovery response.
const DISCOVERY_BYTES_MAX: usize = 16 << 20;
const DISCOVERY_TIME: Duration = Duration::from_secs(30);

/// The targets of a job, as the API lists them.
#[derive(Debug, Default, Clone)]
pub(crate) struct Pool {
    pub(crate) active: Vec<(Target, Arc<Mutex<Health>>)>,
    pub(crate) dropped: Vec<Labels>,
}

/// A target's task. It ends when the sender is dropped, and returns its state, unless the server stops.
struct Scraping {
    job: Arc<Job>,
    _end: oneshot::Sender<()>,
    task: JoinHandle<Option<Scraper>>,
}

/// Scrapes the targets of the job `name` in its current form; `None` while it is removed.
pub(super) async fn pool(app: App, name: String, mut jobs: watch::Receiver<Option<Arc<Job>>>) {
    let mut scraping: BTreeMap<Target, Scraping> = BTreeMap::new();
    let mut kept: BTreeMap<String, Vec<TargetGroup>> = BTreeMap::new();
    loop {
        let job = jobs.borrow_and_update().clone();
        arrange(&app, &name, job.as_ref(), &mut scraping, &mut kept).await;
        let refresh = job.as_deref().map_or(Duration::MAX, refresh);
        tokio::select! {
            () = app.service.stop().wait() => return,
            changed = jobs.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(refresh) => {}
        }
    }
}

/// Interval of discovery.
fn refresh(job: &Job) -> Duration {
    let files = job.files.iter().map(|sd| sd.refresh_interval.0);
    let refresh = files.chain(job.urls.iter().map(|sd| sd.refresh_interval.0)).min();
    refresh.unwrap_or(Duration::MAX).max(Duration::from_millis(100))
}

/// Starts and stops tasks to match the discovered targets.
async fn arrange(
    app: &App,
    name: &str,
    job: Option<&Arc<Job>>,
    scraping: &mut BTreeMap<Target, Scraping>,
    kept: &mut BTreeMap<String, Vec<TargetGroup>>,
) {
    let (wanted, dropped) = match job {
        Some(job) => discover(job, kept).await,
        None => Default::default(),
    };
    let goes_on = |target: &Target, scraping: &Scraping| {
        wanted.contains(target) && job.is_some_and(|job| Arc::ptr_eq(job, &scraping.job))
    };
    let (going_on, ended): (BTreeMap<_, _>, BTreeMap<_, _>) =
        std::mem::take(scraping).into_iter().partition(|(target, scraping)| goes_on(target, scraping));
    *scraping = going_on;
    let new: BTreeSet<&Target> = wanted.iter().filter(|target| !scraping.contains_key(*target)).collect();
    let mut heirs = end(app, ended, &new).await;
    let before = if job.is_some() { shown(app, name) } else { Pool::default() };
    let mut pool = Pool { active: Vec::with_capacity(wanted.len()), dropped };
    for target in &wanted {
        let known = before.active.iter().find(|(old, _)| old == target).map(|(_, health)| health.clone());
        let health = known.unwrap_or_default();
        if let (Some(job), true) = (job, new.contains(target)) {
            let mut scraper = Scraper::new(job.clone(), target.clone());
            if let Some(mut before) = heirs.remove(&target.labels) {
                scraper.succeed(&mut before);
            }
            let (end, ended) = oneshot::channel();
            let task = tokio::spawn(scrape(app.clone(), scraper, health.clone(), ended));
            scraping.insert(target.clone(), Scraping { job: job.clone(), _end: end, task });
        }
        pool.active.push((target.clone(), health));
    }
    let mut pools = app.jobs.pools.lock().unwrap_or_else(PoisonError::into_inner);
    match job {
        Some(_) => drop(pools.insert(name.to_owned(), pool)),
        None => drop(pools.remove(name)),
    }
}

fn shown(app: &App, name: &str) -> Pool {
    let pools = app.jobs.pools.lock().unwrap_or_else(PoisonError::into_inner);
    pools.get(name).cloned().unwrap_or_default()
}

/// Ends tasks, and marks their series stale before the same series can come from elsewhere. Returns those
/// whose labels match a new target's.
async fn end(
    app: &App,
    ended: BTreeMap<Target, Scraping>,
    new: &BTreeSet<&Target>,
) -> BTreeMap<BTreeMap<String, String>, Scraper> {
    // Signal all of them before waiting for the first.
    let tasks: Vec<_> = ended.into_values().map(|Scraping { task, .. }| task).collect();
    let mut heirs: BTreeMap<BTreeMap<String, String>, Scraper> = BTreeMap::new();
    for task in tasks {
        let Ok(Some(mut scraper)) = task.await else { continue };
        if !new.iter().any(|target| target.labels == scraper.target.labels) {
            scraper.end(app).await;
        } else if let Some(other) = heirs.get_mut(&scraper.target.labels) {
            other.succeed(&mut scraper);
        } else {
            heirs.insert(scraper.target.labels.clone(), scraper);
        }
    }
    heirs
}

async fn scrape(
    app: App,
    mut scraper: Scraper,
    health: Arc<Mutex<Health>>,
    mut ended: oneshot::Receiver<()>,
) -> Option<Scraper> {
    let mut ticks = ticks(scraper.job.interval, &scraper.target.url);
    loop {
        tokio::select! {
            () = app.service.stop().wait() => return None,
            _ = &mut ended => return Some(scraper),
            _ = ticks.tick() => {}
        }
        scraper.scrape(&app, &health).await;
    }
}

/// All targets of a job. A file or URL that cannot be read leaves its previous targets.
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
        follow: true,
    });
    let answer = answer.await?;
    if answer.status != 200 {
        return Err(format!("server returned HTTP status {}", answer.status));
    }
    serde_json::from_slice(&answer.body).map_err(|error| error.to_string())
}
