//! Rules that clients set at run time, stored in the database: series to drop on ingest, and derived metrics.
//!
//! ```text
//! POST   /api/v1/config/drop-rules        body: a selector, such as {__name__=~"go_.*"}
//! POST   /api/v1/config/derived-metrics   body: name|query|interval_ms
//! GET lists them; DELETE removes one, with the selector or the name as body
//! ```
//! A change is durable when it is acknowledged, and applies from the next request or evaluation. The rules in
//! memory are read again after every commit that wrote to their keyspace, wherever the commit was made. The
//! two paths and the bodies of POST are those of mytsdb.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use axum::extract::{Request, State};
use axum::response::Response;
use ropewalk::engine::{Keyspace, WatchMark};
use ropewalk::hooks::WatchedKeyspace;
use ropewalk::series::{LabelsRef, Matcher};
use ropewalk::{Database, Durability};
use ropewalk_monitoring::{DerivedMetric, Monitoring};
use ropewalk_wire::{Code, WireError};
use serde::{Deserialize, Serialize};

use crate::app::App;
use crate::query::names;
use crate::request::body;
use crate::request::response::{ApiError, Kind, Notes, success};

const KEYSPACE: &str = "prometheus";
const DROPS: &[u8] = b"drop-rules";
const DERIVED: &[u8] = b"derived-metrics";
/// Limit of rules of each kind: each costs time for every incoming series, or at every interval.
const RULES_MAX: usize = 1000;
/// Shortest interval of a derived metric.
const INTERVAL_MS_MIN: u64 = 100;

/// The drop rules.
#[derive(Debug, Default)]
pub(crate) struct Drops {
    rules: Vec<(String, Vec<Matcher>)>,
}

impl Drops {
    fn new(texts: &[String]) -> Result<Self, ApiError> {
        let rule = |text: &String| Ok((text.clone(), names::selector(text)?));
        Ok(Self { rules: texts.iter().map(rule).collect::<Result<_, ApiError>>()? })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// True when one of the rules matches the series.
    pub(crate) fn drops(&self, labels: LabelsRef<'_>) -> bool {
        let means = |matcher: &Matcher| matcher.matches(labels.get(matcher.name()));
        self.rules.iter().any(|(_, matchers)| matchers.iter().all(means))
    }
}

/// All rules set by clients.
pub(crate) struct RuntimeRules {
    db: Database,
    /// The rules as the database has them; none while their keyspace is not defined.
    stored: WatchedKeyspace,
    drops: RwLock<(Arc<Drops>, Option<WatchMark>)>,
    /// Evaluates the derived metrics.
    monitoring: Arc<Monitoring>,
    /// Serializes changes.
    changing: tokio::sync::Mutex<()>,
}

impl RuntimeRules {
    /// Reads the stored rules, and gives `monitoring` the derived metrics.
    pub(crate) fn open(db: &Database, monitoring: Arc<Monitoring>) -> Result<Self, WireError> {
        let watched = WatchedKeyspace::new(db.system_keyspace(KEYSPACE)?);
        let mark = watched.mark(db);
        let (drops, derived) = stored(db, watched.to_read(db))?;
        monitoring.set_derived_metrics(derived);
        let (db, drops) = (db.clone(), RwLock::new((Arc::new(drops), mark)));
        Ok(Self { db, stored: watched, drops, monitoring, changing: tokio::sync::Mutex::default() })
    }

    /// The drop rules of the newest visible commit.
    pub(crate) fn drops(&self) -> Arc<Drops> {
        self.refresh();
        self.drops.read().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    fn derived_metrics(&self) -> BTreeMap<String, DerivedMetric> {
        self.refresh();
        self.monitoring.derived_metrics()
    }

    /// Reads all rules again if a commit has changed them, here or elsewhere.
    pub(crate) fn refresh(&self) {
        let mark = self.drops.read().unwrap_or_else(PoisonError::into_inner).1;
        if !self.stored.is_current(&self.db, mark)
            && let Err(error) = self.reload()
        {
            tracing::error!(%error, "stored rules could not be read; those read before stay in force");
        }
    }

    /// Reads all rules again, unless another thread has done it meanwhile.
    fn reload(&self) -> Result<(), WireError> {
        let mut loaded = self.drops.write().unwrap_or_else(PoisonError::into_inner);
        if !self.stored.is_current(&self.db, loaded.1) {
            let mark = self.stored.mark(&self.db);
            let (drops, derived) = stored(&self.db, self.stored.to_read(&self.db))?;
            if derived != self.monitoring.derived_metrics() {
                self.monitoring.set_derived_metrics(derived);
            }
            *loaded = (Arc::new(drops), mark);
        }
        Ok(())
    }

    fn drop_texts(&self) -> Vec<String> {
        self.drops().rules.iter().map(|(text, _)| text.clone()).collect()
    }
}

/// The drop rules and the derived metrics, as stored.
fn stored(
    db: &Database,
    keyspace: Option<Keyspace>,
) -> Result<(Drops, BTreeMap<String, DerivedMetric>), WireError> {
    let Some(keyspace) = keyspace else { return Ok(Default::default()) };
    let snapshot = db.snapshot();
    let texts: Vec<String> = read(&snapshot, keyspace, DROPS)?;
    let drops = Drops::new(&texts).map_err(|error| WireError::new(Code::Internal, error.message))?;
    Ok((drops, read(&snapshot, keyspace, DERIVED)?))
}

fn read<T: Default + for<'de> Deserialize<'de>>(
    snapshot: &ropewalk::Snapshot,
    keyspace: Keyspace,
    key: &[u8],
) -> Result<T, WireError> {
    let Some(value) = snapshot.get(keyspace, key)? else { return Ok(T::default()) };
    serde_json::from_slice(&value)
        .map_err(|error| WireError::new(Code::Internal, format!("stored rules: {error}")))
}

async fn write<T: Serialize>(app: &App, key: &'static [u8], value: &T) -> Result<(), ApiError> {
    let json = serde_json::to_vec(value).map_err(|error| ApiError::bad(error.to_string()))?;
    let (db, keyspace) = (app.service.database().clone(), app.runtime_rules.stored.keyspace());
    let written = app.wait_for(move || db.put(keyspace.to_write(&db)?, key, &json, Durability::Sync)).await?;
    written.map(drop).map_err(|error| WireError::from(error).into())
}

async fn text(app: &App, request: Request) -> Result<String, ApiError> {
    let body = body::plain(&app.service, request).await?;
    let text = std::str::from_utf8(&body).map_err(|_| ApiError::bad("the body is not UTF-8"))?;
    Ok(text.trim().to_owned())
}

fn shown<T: Serialize>(value: &T) -> Response {
    success(&Notes::default(), |out| out.extend(serde_json::to_vec(value).unwrap_or_default()))
}

/// `GET /api/v1/config/drop-rules`.
pub(crate) async fn drop_rules(State(app): State<App>) -> Result<Response, ApiError> {
    Ok(shown(&app.runtime_rules.drop_texts()))
}

/// `POST /api/v1/config/drop-rules`.
pub(crate) async fn add_drop_rule(State(app): State<App>, request: Request) -> Result<Response, ApiError> {
    change_drops(&app, request, true).await
}

/// `DELETE /api/v1/config/drop-rules`.
pub(crate) async fn remove_drop_rule(State(app): State<App>, request: Request) -> Result<Response, ApiError> {
    change_drops(&app, request, false).await
}

async fn change_drops(app: &App, request: Request, add: bool) -> Result<Response, ApiError> {
    let rule = text(app, request).await?;
    let _alone = app.runtime_rules.changing.lock().await;
    let mut texts = app.runtime_rules.drop_texts();
    let known = texts.iter().position(|known| *known == rule);
    match (add, known) {
        (true, Some(_)) => {}
        (true, None) if texts.len() >= RULES_MAX => {
            return Err(ApiError::bad(format!("there are {RULES_MAX} rules, and no more are possible")));
        }
        (true, None) => texts.push(rule),
        (false, Some(at)) => drop(texts.remove(at)),
        (false, None) => {
            return Err(ApiError::new(Kind::NotFound, "there is no such rule"));
        }
    }
    // Rejects an invalid rule.
    Drops::new(&texts)?;
    write(app, DROPS, &texts).await?;
    Ok(shown(&texts))
}

/// `GET /api/v1/config/derived-metrics`.
pub(crate) async fn derived_metrics(State(app): State<App>) -> Result<Response, ApiError> {
    Ok(shown(&app.runtime_rules.derived_metrics()))
}

/// `POST /api/v1/config/derived-metrics`.
pub(crate) async fn add_derived_metric(
    State(app): State<App>,
    request: Request,
) -> Result<Response, ApiError> {
    let text = text(&app, request).await?;
    // A query may contain `|` itself, in a regular expression.
    let parts = text.split_once('|').and_then(|(name, rest)| Some((name, rest.rsplit_once('|')?)));
    let (name, (query, interval)) = parts.ok_or_else(|| ApiError::bad("name|query|interval_ms is needed"))?;
    let interval_ms = interval.trim().parse::<u64>().ok().filter(|ms| *ms >= INTERVAL_MS_MIN);
    let interval_ms = interval_ms.ok_or_else(|| {
        ApiError::bad(format!("the interval has to be a number of milliseconds from {INTERVAL_MS_MIN}"))
    })?;
    let (name, query) = (name.trim().to_owned(), query.trim().to_owned());
    let derived = DerivedMetric { query, interval_ms };
    derived.group(&name).map_err(ApiError::bad)?;
    let _alone = app.runtime_rules.changing.lock().await;
    let mut all = app.runtime_rules.derived_metrics();
    if all.len() >= RULES_MAX && !all.contains_key(&name) {
        return Err(ApiError::bad(format!(
            "there are {RULES_MAX} derived metrics, and no more are possible"
        )));
    }
    all.insert(name, derived);
    change_derived(&app, all).await
}

/// `DELETE /api/v1/config/derived-metrics`.
pub(crate) async fn remove_derived_metric(
    State(app): State<App>,
    request: Request,
) -> Result<Response, ApiError> {
    let name = text(&app, request).await?;
    let _alone = app.runtime_rules.changing.lock().await;
    let mut all = app.runtime_rules.derived_metrics();
    if all.remove(&name).is_none() {
        return Err(ApiError::new(Kind::NotFound, "there is no such metric"));
    }
    change_derived(&app, all).await
}

async fn change_derived(app: &App, all: BTreeMap<String, DerivedMetric>) -> Result<Response, ApiError> {
    write(app, DERIVED, &all).await?;
    // Hands them to the evaluation.
    app.runtime_rules.refresh();
    Ok(shown(&all))
}
