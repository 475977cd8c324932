//! Stores: list, create, get, delete; their tracking positions; statistics of the engine.

use axum::Json;
use axum::http::StatusCode;
use ropewalk::Position;
use ropewalk::engine::EngineStats;
use ropewalk_auth::{Caller, Needs, Resource};
use ropewalk_wire::{OperationStats, Page, Service, StoreInfo, WireError};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::kit::body::NoBody;
use crate::kit::json::TrackingOut;
use crate::kit::params::{MustExist, PageParams, Params};
use crate::kit::path::{PathRequest, StoreAndSource, StoreName};
use crate::kit::problem::Result;
use crate::route::{Route, STORE};

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::new(Needs::LOGIN.later("stores that the caller may not read are left out"), routes!(list)),
        Route::new(Needs::admin(STORE), routes!(create, delete)),
        Route::new(Needs::read(STORE), routes!(look)),
        Route::new(Needs::read(STORE), routes!(tracking)),
        Route::new(Needs::read(Resource::AllStores), routes!(stats)),
    ]
}

/// An event store.
#[derive(Serialize, ToSchema)]
#[schema(as = Store)]
struct StoreOut {
    #[schema(example = "courses")]
    name: String,
    /// Last position; null while it is empty.
    #[schema(example = 42)]
    head: Option<u64>,
    /// Number of events.
    #[schema(example = 42)]
    events: u64,
}

impl From<StoreInfo> for StoreOut {
    fn from(store: StoreInfo) -> Self {
        Self::new(store.name, store.head)
    }
}

impl StoreOut {
    /// Positions have no gaps, so the last one is also the number of events.
    fn new(name: String, head: Option<Position>) -> Self {
        Self { name, head: head.map(|head| head.0), events: head.map_or(0, |head| head.0) }
    }
}

#[derive(Serialize, ToSchema)]
#[schema(as = Stores)]
struct StoresOut {
    stores: Vec<StoreOut>,
    /// `after` of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// The stores that the caller may read, by name.
#[utoipa::path(
    get, path = "/v1/stores", operation_id = "list_stores", tag = "stores",
    params(PageParams),
    responses((status = 200, description = "A page of them.", body = StoresOut)),
)]
async fn list(at: PathRequest) -> Result<Json<StoresOut>> {
    let page = Params::only_page(at.query.as_deref())?;
    let (stores, next) = at.app.service.stores(&at.caller, &page)?;
    Ok(Json(StoresOut { stores: stores.into_iter().map(StoreOut::from).collect(), next }))
}

/// Creates an empty store; does nothing when it exists. (The first append creates its store, too.)
#[utoipa::path(
    put, path = "/v1/stores/{store}", operation_id = "create_store", tag = "stores",
    params(StoreName),
    responses(
        (status = 200, description = "It was there.", body = StoreOut),
        (status = 201, description = "Created.", body = StoreOut),
    ),
)]
async fn create(at: PathRequest<StoreName>, NoBody: NoBody) -> Result<(StatusCode, Json<StoreOut>)> {
    let PathRequest { app, caller, names: StoreName { store }, .. } = at;
    if app.service.create_store(&caller, &store).await? {
        return Ok((StatusCode::CREATED, Json(StoreOut::new(store, None))));
    }
    let head = app.service.head(&caller, &store).await?;
    Ok((StatusCode::OK, Json(StoreOut::new(store, head))))
}

/// A store and the number of its events.
#[utoipa::path(
    get, path = "/v1/stores/{store}", operation_id = "get_store", tag = "stores",
    params(StoreName),
    responses((status = 200, description = "The store.", body = StoreOut)),
)]
async fn look(at: PathRequest<StoreName>) -> Result<Json<StoreOut>> {
    let head = at.app.service.head(&at.caller, &at.names.store).await?;
    Ok(Json(StoreOut::new(at.names.store, head)))
}

/// Deletes a store with everything in it.
#[utoipa::path(
    delete, path = "/v1/stores/{store}", operation_id = "delete_store", tag = "stores",
    params(StoreName),
    responses((status = 204, description = "Deleted.")),
)]
async fn delete(at: PathRequest<StoreName>, NoBody: NoBody) -> Result<StatusCode> {
    at.app.service.delete_store(&at.caller, &at.names.store).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// How far an upstream source has been consumed, as stored by appends with `tracking`.
#[utoipa::path(
    get, path = "/v1/stores/{store}/tracking/{source}", operation_id = "tracking", tag = "events",
    params(StoreAndSource, MustExist),
    responses((status = 200, description = "The highest position stored.", body = TrackingOut)),
)]
async fn tracking(at: PathRequest<StoreAndSource>) -> Result<Json<TrackingOut>> {
    let position = at.app.service.tracking(&at.caller, at.asked_store()?, &at.names.source).await?;
    Ok(Json(TrackingOut { source: at.names.source, position }))
}

/// State and sizes of the engine, connections and requests.
#[derive(Serialize, ToSchema)]
#[schema(as = Stats)]
pub(super) struct StatsOut {
    /// Newest visible commit.
    seq: u64,
    /// Commit that recovery would start after.
    checkpoint: u64,
    /// Bytes in memtables.
    memtable_bytes: u64,
    /// Bytes of memtables at which commits wait.
    memtable_bytes_max: u64,
    /// Memtables waiting for their flush.
    memtables_frozen: u64,
    /// Live snapshots of different commits.
    snapshots: u64,
    /// Why the last flush failed, if it did.
    flush_error: Option<String>,
    log: LogOut,
    /// Bytes of decoded blocks in the cache.
    cache_bytes: u64,
    /// Bound of the cache.
    cache_bytes_max: u64,
    /// Memory that runs hold: cache, fences, models, filters.
    run_memory_bytes: u64,
    /// A page of them, by name.
    keyspaces: Vec<KeyspaceOut>,
    /// `after` of the next page of keyspaces; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// Open connections of each port.
    connections: Vec<ConnectionsOut>,
    /// Requests since the start of the server: those whose operation has the longest mean time first.
    operations: Vec<OperationOut>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = ConnectionStats)]
struct ConnectionsOut {
    #[schema(example = "postgres")]
    protocol: &'static str,
    open: u64,
}

#[derive(Serialize, ToSchema)]
#[schema(as = OperationStats)]
struct OperationOut {
    #[schema(example = "http")]
    protocol: &'static str,
    #[schema(example = "append")]
    operation: &'static str,
    /// Requests that ended.
    requests: u64,
    /// Their mean time.
    mean_micros: u64,
    /// Requests that are being answered.
    running: u64,
}

impl From<OperationStats> for OperationOut {
    fn from(stats: OperationStats) -> Self {
        let OperationStats { protocol, operation, requests, micros, running } = stats;
        let mean_micros = micros.checked_div(requests).unwrap_or_default();
        Self { protocol, operation, requests, mean_micros, running }
    }
}

#[derive(Serialize, ToSchema)]
#[schema(as = LogStats)]
struct LogOut {
    appended_bytes: u64,
    written_bytes: u64,
    syncs: u64,
    /// Mean time of a sync since the start of the server; 0 without one.
    sync_mean_micros: u64,
    segments: u64,
    spare_segments: u64,
}

#[derive(Serialize, ToSchema)]
#[schema(as = KeyspaceStats)]
struct KeyspaceOut {
    name: String,
    /// Its number in the change feed.
    number: u16,
    entries: u64,
    raw_bytes: u64,
    file_bytes: u64,
    flushed_bytes: u64,
    compacted_bytes: u64,
    /// Runs and their bytes, level by level.
    levels: Vec<LevelOut>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = LevelStats)]
struct LevelOut {
    runs: u64,
    bytes: u64,
}

impl StatsOut {
    /// The statistics of the engine and of the requests.
    ///
    /// # Errors
    /// The caller may not read every store.
    pub(super) fn read(service: &Service, caller: &Caller, page: &Page) -> Result<Self, WireError> {
        let (stats, next) = service.stats(caller, page)?;
        let metrics = service.metrics();
        let connections = metrics.connections().into_iter();
        let mut operations: Vec<OperationOut> = metrics.operations().into_iter().map(Into::into).collect();
        operations.sort_by_key(|operation| std::cmp::Reverse(operation.mean_micros));
        Ok(Self {
            connections: connections.map(|(protocol, open)| ConnectionsOut { protocol, open }).collect(),
            operations,
            next,
            ..Self::of_engine(stats)
        })
    }

    fn of_engine(stats: EngineStats) -> Self {
        let keyspaces = stats.store.keyspaces.into_iter().map(|keyspace| KeyspaceOut {
            name: keyspace.name,
            number: keyspace.number,
            entries: keyspace.entries,
            raw_bytes: keyspace.raw_bytes,
            file_bytes: keyspace.file_bytes,
            flushed_bytes: keyspace.flushed_bytes,
            compacted_bytes: keyspace.compacted_bytes,
            levels: keyspace.levels.iter().map(|l| LevelOut { runs: l.runs, bytes: l.bytes }).collect(),
        });
        Self {
            seq: stats.seq.0,
            checkpoint: stats.checkpoint.0,
            memtable_bytes: stats.write_bytes,
            memtable_bytes_max: stats.write_bytes_max,
            memtables_frozen: stats.frozen as u64,
            snapshots: stats.snapshots as u64,
            flush_error: stats.flush_error,
            log: LogOut {
                appended_bytes: stats.log.appended_bytes,
                written_bytes: stats.log.written_bytes,
                syncs: stats.log.syncs,
                sync_mean_micros: (stats.log.sync_nanos / 1_000)
                    .checked_div(stats.log.syncs)
                    .unwrap_or_default(),
                segments: stats.log.segments,
                spare_segments: stats.log.spare_segments,
            },
            cache_bytes: stats.store.cache_bytes,
            cache_bytes_max: stats.store.cache_bytes_max,
            run_memory_bytes: stats.store.memory_bytes,
            keyspaces: keyspaces.collect(),
            next: None,
            connections: Vec::new(),
            operations: Vec::new(),
        }
    }
}

/// State and sizes of the engine, connections, and times of requests. Needs the right to read every store.
#[utoipa::path(
    get, path = "/v1/stats", operation_id = "stats", tag = "stores",
    params(PageParams),
    responses((status = 200, description = "The current values, with a page of the keyspaces.", body = StatsOut)),
)]
async fn stats(at: PathRequest) -> Result<Json<StatsOut>> {
    let page = Params::only_page(at.query.as_deref())?;
    Ok(Json(StatsOut::read(&at.app.service, &at.caller, &page)?))
}
