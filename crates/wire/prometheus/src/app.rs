//! State available to every handler.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::FromRef;
use ropewalk::promql::SharedMemory;
use ropewalk::series::SeriesStore;
use ropewalk_monitoring::{Config, Monitoring};
use ropewalk_wire::{Service, WireError};
use tokio::sync::Semaphore;

use crate::ingest::metadata::Described;
use crate::ingest::otlp::Totals;
use crate::ingest::remote_write::known::Known;
use crate::query::range_cache::Evaluated;
use crate::query::result_cache::Answers;
use crate::query::scheduler::Turns;
use crate::request::response::{ApiError, Kind};
use crate::runtime_rules::RuntimeRules;
use crate::settings::PrometheusSettings;

/// Concurrent requests that wait for the disk.
const WAITING_MAX: usize = 16;

/// Shared state of the handlers. Each request clones it several times.
#[derive(Clone)]
pub(crate) struct App(Arc<Parts>);

impl Deref for App {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

pub(crate) struct Parts {
    pub(crate) service: Service,
    pub(crate) settings: Arc<PrometheusSettings>,
    /// Scheduler slots: bounds concurrent queries and decoding requests.
    pub(crate) turns: Arc<Turns>,
    /// Bounds concurrent requests that wait for the disk.
    waiting: Arc<Semaphore>,
    /// Cache of complete responses that are still valid.
    pub(crate) answers: Arc<Answers>,
    pub(crate) evaluated: Arc<Evaluated>,
    /// Series cache of remote write.
    pub(crate) known: Arc<Known>,
    /// Running totals of OTLP deltas.
    pub(crate) totals: Arc<Totals>,
    /// Cache of metric metadata.
    pub(crate) described: Arc<Described>,
    /// Scraping, rules and alerts of the server.
    pub(crate) monitoring: Arc<Monitoring>,
    /// Rules that clients set, stored in the database.
    pub(crate) runtime_rules: RuntimeRules,
    /// Memory limit over all queries and long responses.
    pub(crate) memory: Arc<SharedMemory>,
    pub(crate) started: SystemTime,
}

impl FromRef<App> for Service {
    fn from_ref(app: &App) -> Self {
        app.service.clone()
    }
}

impl App {
    pub(crate) fn new(
        service: Service,
        settings: PrometheusSettings,
        config: Config,
    ) -> Result<Self, WireError> {
        let turns = Turns::new(settings.queries);
        let waiting = Arc::new(Semaphore::new(WAITING_MAX));
        let (settings, started) = (Arc::new(settings), SystemTime::now());
        if config.path.is_some() {
            service.metrics().config_read(true);
        }
        // Complete responses for repeated requests, and steps for moving windows.
        let answers = Arc::new(Answers::new(settings.answer_bytes / 2));
        let evaluated = Arc::new(Evaluated::new(settings.answer_bytes / 2));
        let monitoring = Arc::new(Monitoring::new(config, BTreeMap::new()));
        let runtime_rules = RuntimeRules::open(service.database(), monitoring.clone())?;
        let memory = SharedMemory::new(settings.queries_bytes);
        let (described, known, totals) = (Arc::default(), Arc::default(), Arc::default());
        Ok(Self(Arc::new(Parts {
            answers,
            evaluated,
            service,
            settings,
            turns,
            waiting,
            known,
            totals,
            described,
            monitoring,
            runtime_rules,
            memory,
            started,
        })))
    }

    /// The series store of this server.
    pub(crate) fn store(&self) -> Result<SeriesStore, ApiError> {
        let store = self.service.database().series(&self.settings.store);
        store.map_err(|error| WireError::from(error).into())
    }

    /// Runs CPU work that may block, such as a query or a decoding, on a blocking thread in a scheduler slot.
    pub(crate) async fn off_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let turn = self.turns.next().await;
        run(turn, work).await
    }

    /// Runs work that mostly waits for the disk; it takes no scheduler slot.
    pub(crate) async fn wait_for<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        // The semaphore is never closed.
        let place = self.waiting.clone().acquire_owned().await.ok();
        run(place, work).await
    }
}

/// Runs work on a thread that may block, and releases `held` when it is done.
async fn run<H: Send + 'static, T: Send + 'static>(
    held: H,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    let work = move || {
        let done = work();
        drop(held);
        done
    };
    let broken = |_| ApiError::new(Kind::Internal, "the request could not be processed");
    tokio::task::spawn_blocking(work).await.map_err(broken)
}
