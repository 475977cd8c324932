//! Declared projections: SQL statements that the server runs for each event of a store.

use axum::Json;
use axum::http::StatusCode;
use axum::response::Response;
use ropewalk::Database;
use ropewalk_auth::{Needs, Resource, Right};
use ropewalk_sql::{
    DamagedProjection, OnError, ParkedEvent, ProjectionChange, ProjectionDef, ProjectionInfo, ProjectionRule,
    Session, SqlError, parked_at, projection_at, projections_after, state,
};
use ropewalk_wire::{Bounds, Code, WireError, run_unpinned};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::kit::body::{JsonText, NoBody};
use crate::kit::counted::counted_json;
use crate::kit::encode::time;
use crate::kit::params::{PageParams, Params};
use crate::kit::path::{PathRequest, StoreAndProjection, StoreName};
use crate::kit::problem::{Problem, Result};
use crate::route::{Route, STORE};

/// Most parked events of one response.
const PARKED_MAX: usize = 1_000;

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::new(Needs::read(STORE), routes!(list_projections)),
        Route::new(Needs::read(STORE), routes!(get_projection)),
        // Its statements may read and write every table.
        Route::new(Needs::admin(Resource::AllStores), routes!(put_projection)),
        Route::new(Needs::admin(STORE), routes!(delete_projection)),
        Route::new(Needs::admin(STORE), routes!(pause_projection)),
        Route::new(Needs::admin(STORE), routes!(resume_projection)),
        Route::new(Needs::admin(STORE), routes!(rebuild_projection)),
        Route::new(Needs::admin(STORE), routes!(retry_projection)),
        Route::new(Needs::admin(STORE), routes!(skip_projection)),
        Route::new(Needs::read(STORE), routes!(parked_of_projection)),
    ]
}

/// Handling of an event that cannot be applied.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = OnError)]
enum OnErrorBody {
    /// The projection stops at the event.
    #[default]
    Stop,
    /// The event is set aside, and the projection continues.
    Park,
}

/// The statements of some event types.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ProjectionRule)]
struct RuleBody {
    /// Types of the events.
    #[schema(example = json!(["OrderPlaced"]))]
    types: Vec<String>,
    /// INSERT, UPDATE, DELETE and MERGE statements, which run in this order. `event.position`, `event.type`,
    /// `event.tags`, `event.data`, `event.json`, `event.metadata`, `event.recorded_at` and `event.id` are the
    /// event.
    #[schema(example = json!(["INSERT INTO orders VALUES (event.position, event.json->>'item')"]))]
    statements: Vec<String>,
}

/// Declaration of a projection.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ProjectionRequest)]
struct ProjectionIn {
    /// A change of a projection needs a greater version. Default 1.
    version: Option<u64>,
    #[serde(default)]
    on_error: OnErrorBody,
    /// The statements of each event type.
    on: Vec<RuleBody>,
}

impl ProjectionIn {
    fn into_def(self, store: String, name: String) -> ProjectionDef {
        let rule = |rule: RuleBody| ProjectionRule { types: rule.types, statements: rule.statements };
        ProjectionDef {
            name,
            version: self.version.unwrap_or(1),
            store,
            outputs: Vec::new(),
            on_error: match self.on_error {
                OnErrorBody::Stop => OnError::Stop,
                OnErrorBody::Park => OnError::Park,
            },
            rules: self.on.into_iter().map(rule).collect(),
        }
    }
}

/// State of a projection.
#[derive(Serialize, ToSchema)]
#[schema(as = Projection)]
struct ProjectionOut {
    #[schema(example = "orders")]
    name: String,
    version: u64,
    /// `live`, `catching_up`, `rebuilding`, `paused` or `failed`; `damaged` if its declaration cannot be read.
    #[schema(example = "live")]
    state: &'static str,
    /// Every event up to here is applied or does not match; null before the first batch.
    checkpoint: Option<u64>,
    /// Last position of the store; 0 while it is empty.
    head: u64,
    /// Matching events that are not applied yet.
    lag: u64,
    /// Parked events.
    parked: u64,
    /// The error of the event at which the projection stopped.
    error: Option<String>,
    /// The tables that it writes.
    tables: Vec<String>,
    /// The collections of documents that it writes, each with its database.
    collections: Vec<String>,
    on_error: OnErrorBody,
    on: Vec<RuleBody>,
}

impl ProjectionOut {
    /// Approximate bytes.
    fn bytes(&self) -> usize {
        let rule =
            |rule: &RuleBody| rule.types.iter().chain(&rule.statements).map(String::len).sum::<usize>();
        let names = self.tables.iter().chain(&self.collections).map(String::len).sum::<usize>();
        self.name.len()
            + self.error.as_ref().map_or(0, String::len)
            + names
            + self.on.iter().map(rule).sum::<usize>()
    }
}

impl From<ProjectionInfo> for ProjectionOut {
    fn from(info: ProjectionInfo) -> Self {
        let (state, error) = (info.state(), info.error().map(str::to_owned));
        let ProjectionInfo { def, status, parked, .. } = info;
        let rule = |rule: ProjectionRule| RuleBody { types: rule.types, statements: rule.statements };
        Self {
            tables: def.tables(),
            collections: def.collections(),
            name: def.name,
            version: def.version,
            state,
            checkpoint: status.checkpoint.map(|checkpoint| checkpoint.0),
            head: status.head.0,
            lag: status.lag,
            parked,
            error,
            on_error: match def.on_error {
                OnError::Stop => OnErrorBody::Stop,
                OnError::Park => OnErrorBody::Park,
            },
            on: def.rules.into_iter().map(rule).collect(),
        }
    }
}

impl From<DamagedProjection> for ProjectionOut {
    fn from(damaged: DamagedProjection) -> Self {
        Self {
            name: damaged.name,
            version: 0,
            state: "damaged",
            checkpoint: None,
            head: 0,
            lag: 0,
            parked: 0,
            error: Some(format!("{}: {}", damaged.error.state, damaged.error)),
            tables: Vec::new(),
            collections: Vec::new(),
            on_error: OnErrorBody::Stop,
            on: Vec::new(),
        }
    }
}

#[derive(Serialize, ToSchema)]
#[schema(as = Projections)]
struct ProjectionsOut {
    projections: Vec<ProjectionOut>,
    /// `after` of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Which event.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ProjectionPosition)]
struct PositionIn {
    /// Position of the event. Absent: the failing event; a retry also means all parked events.
    position: Option<u64>,
}

/// An event that was set aside.
#[derive(Serialize, ToSchema)]
#[schema(as = ParkedByProjection)]
struct ParkedOut {
    position: u64,
    /// Type of the event.
    #[serde(rename = "type")]
    event_type: String,
    /// The statement that failed.
    statement: String,
    /// The code of the error.
    #[schema(example = "23505")]
    sqlstate: String,
    message: String,
    /// RFC 3339, UTC.
    #[schema(format = DateTime)]
    parked_at: String,
    /// It is about to be applied again.
    retry: bool,
}

impl From<ParkedEvent> for ParkedOut {
    fn from(parked: ParkedEvent) -> Self {
        Self {
            position: parked.position,
            event_type: parked.event_type,
            statement: parked.statement,
            sqlstate: parked.sqlstate,
            message: parked.message,
            parked_at: time(parked.parked_at),
            retry: parked.wants_retry,
        }
    }
}

#[derive(Serialize, ToSchema)]
#[schema(as = ParkedByProjections)]
struct AllParkedOut {
    parked: Vec<ParkedOut>,
}

/// The error of a statement about projections.
fn refused(error: SqlError) -> Problem {
    let code = match error.state {
        state::UNDEFINED_OBJECT => Code::NotFound,
        state::DUPLICATE_OBJECT | state::OBJECT_NOT_IN_PREREQUISITE_STATE => Code::AlreadyExists,
        state::SERIALIZATION_FAILURE => Code::KeyConflict,
        state::PROGRAM_LIMIT_EXCEEDED => Code::TooLarge,
        state::DATA_CORRUPTED => Code::Corrupt,
        state::IO_ERROR => Code::Io,
        state::INTERNAL_ERROR => Code::Internal,
        _ => Code::InvalidArgument,
    };
    let parts: Vec<String> = [Some(error.message), error.detail].into_iter().flatten().collect();
    let constraint = error.about.and_then(|about| about.constraint);
    Problem::new(code, parts.join("; ")).of_statement(error.state.0, constraint, error.hint)
}

fn unknown(store: &str, projection: &str) -> Problem {
    Problem::new(Code::NotFound, format!("store {store:?} has no projection {projection:?}"))
}

/// The state of a projection of this store.
fn found(db: &Database, store: &str, projection: &str) -> Result<ProjectionInfo> {
    let info = projection_at(db, &db.snapshot(), projection).map_err(refused)?;
    info.filter(|info| info.def.store == store).ok_or_else(|| unknown(store, projection))
}

/// A request to a projection.
type InProjection = PathRequest<StoreAndProjection>;

/// Changes a projection of this store.
async fn change(at: InProjection, change: ProjectionChange) -> Result<Json<ProjectionOut>> {
    let PathRequest { app, caller, names: StoreAndProjection { store, projection }, .. } = at;
    app.service.check(&caller, Right::Admin, &store)?;
    app.service.wait_for_write_capacity().await?;
    let db = app.service.database();
    run_unpinned(|| {
        found(db, &store, &projection)?;
        Session::new(db.clone()).alter_projection(&projection, change).map_err(refused)?;
        Ok(Json(found(db, &store, &projection)?.into()))
    })
}

/// The projections of a store, by name.
#[utoipa::path(
    get, path = "/v1/stores/{store}/projections", operation_id = "list_projections", tag = "consumers",
    params(StoreName, PageParams),
    responses((status = 200, description = "A page of them. It ends after 4 MiB of declarations, too.", body = ProjectionsOut)),
)]
async fn list_projections(at: PathRequest<StoreName>) -> Result<Response> {
    let PathRequest { app, caller, names: StoreName { store }, query } = at;
    let page = Params::only_page(query.as_deref())?;
    app.service.check(&caller, Right::Read, &store)?;
    let db = app.service.database();
    // A name that no store may have is an error, not an empty list.
    db.events(&store).map_err(WireError::from)?;
    let bounds = Bounds::new(&app.service);
    let read = || {
        let snapshot = db.snapshot();
        let entries = projections_after(db, &snapshot, &store, page.after()).map(
            |entry| -> Result<ProjectionOut, Problem> {
                bounds.look().map_err(WireError::from)?;
                Ok(entry
                    .map_err(refused)?
                    .map_or_else(|damaged| ProjectionOut::from(*damaged), ProjectionOut::from))
            },
        );
        bounds.run(|| page.fill(entries, |one| one.name.clone(), ProjectionOut::bytes))
    };
    let (projections, next) = app.service.run_blocking_limited(read).await?;
    counted_json(&app.service, &ProjectionsOut { projections, next })
}

/// The state of a projection.
#[utoipa::path(
    get, path = "/v1/stores/{store}/projections/{projection}", operation_id = "get_projection", tag = "consumers",
    params(StoreAndProjection),
    responses((status = 200, description = "The projection.", body = ProjectionOut)),
)]
async fn get_projection(at: InProjection) -> Result<Json<ProjectionOut>> {
    let StoreAndProjection { store, projection } = &at.names;
    at.app.service.check(&at.caller, Right::Read, store)?;
    let db = at.app.service.database();
    let info = at.app.service.run_blocking_limited(|| found(db, store, projection)).await?;
    Ok(Json(info.into()))
}

/// Declares a projection, or replaces it by a greater version, whose outputs are built next to the live ones.
#[utoipa::path(
    put, path = "/v1/stores/{store}/projections/{projection}", operation_id = "put_projection", tag = "consumers",
    params(StoreAndProjection),
    request_body = ProjectionIn,
    responses(
        (status = 200, description = "It was there, and has this version now.", body = ProjectionOut),
        (status = 201, description = "Declared.", body = ProjectionOut),
        (status = 409, description = "It has this version or a greater one, or another projection writes one of the tables or collections: `already_exists`."),
    ),
)]
async fn put_projection(at: InProjection, body: JsonText) -> Result<(StatusCode, Json<ProjectionOut>)> {
    let PathRequest { app, caller, names: StoreAndProjection { store, projection }, .. } = at;
    app.service.check(&caller, Right::Admin, &store)?;
    let asked: ProjectionIn = body.json().await?;
    app.service.wait_for_write_capacity().await?;
    let db = app.service.database();
    run_unpinned(|| {
        let known = projection_at(db, &db.snapshot(), &projection).map_err(refused)?;
        let def = asked.into_def(store.clone(), projection.clone());
        Session::new(db.clone()).create_projection(def, true).map_err(refused)?;
        let status = if known.is_some() { StatusCode::OK } else { StatusCode::CREATED };
        Ok((status, Json(found(db, &store, &projection)?.into())))
    })
}

/// Deletes a projection. Its tables and collections remain.
#[utoipa::path(
    delete, path = "/v1/stores/{store}/projections/{projection}", operation_id = "delete_projection", tag = "consumers",
    params(StoreAndProjection),
    responses((status = 204, description = "Deleted.")),
)]
async fn delete_projection(at: InProjection, NoBody: NoBody) -> Result<StatusCode> {
    let PathRequest { app, caller, names: StoreAndProjection { store, projection }, .. } = at;
    app.service.check(&caller, Right::Admin, &store)?;
    app.service.wait_for_write_capacity().await?;
    let db = app.service.database();
    run_unpinned(|| {
        found(db, &store, &projection)?;
        Session::new(db.clone()).drop_projection(&projection).map_err(refused)?;
        Ok(StatusCode::NO_CONTENT)
    })
}

/// Stops applying events.
#[utoipa::path(
    post, path = "/v1/stores/{store}/projections/{projection}/pause", operation_id = "pause_projection", tag = "consumers",
    params(StoreAndProjection),
    responses((status = 200, description = "Durable.", body = ProjectionOut)),
)]
async fn pause_projection(at: InProjection, NoBody: NoBody) -> Result<Json<ProjectionOut>> {
    change(at, ProjectionChange::Pause).await
}

/// Continues after a pause.
#[utoipa::path(
    post, path = "/v1/stores/{store}/projections/{projection}/resume", operation_id = "resume_projection", tag = "consumers",
    params(StoreAndProjection),
    responses((status = 200, description = "Durable.", body = ProjectionOut)),
)]
async fn resume_projection(at: InProjection, NoBody: NoBody) -> Result<Json<ProjectionOut>> {
    change(at, ProjectionChange::Resume).await
}

/// Builds new outputs from the first event, next to the live ones, and replaces them in one commit.
#[utoipa::path(
    post, path = "/v1/stores/{store}/projections/{projection}/rebuild", operation_id = "rebuild_projection", tag = "consumers",
    params(StoreAndProjection),
    responses((status = 200, description = "The request is durable; the state is `rebuilding` until it ends.", body = ProjectionOut)),
)]
async fn rebuild_projection(at: InProjection, NoBody: NoBody) -> Result<Json<ProjectionOut>> {
    change(at, ProjectionChange::Rebuild).await
}

/// Applies the failing event or parked events again.
#[utoipa::path(
    post, path = "/v1/stores/{store}/projections/{projection}/retry", operation_id = "retry_projection", tag = "consumers",
    params(StoreAndProjection),
    request_body = PositionIn,
    responses((status = 200, description = "The request is durable.", body = ProjectionOut)),
)]
async fn retry_projection(at: InProjection, body: JsonText) -> Result<Json<ProjectionOut>> {
    let asked: PositionIn = body.json().await?;
    change(at, ProjectionChange::Retry(asked.position)).await
}

/// Skips the failing event, or discards a parked one.
#[utoipa::path(
    post, path = "/v1/stores/{store}/projections/{projection}/skip", operation_id = "skip_projection", tag = "consumers",
    params(StoreAndProjection),
    request_body = PositionIn,
    responses((status = 200, description = "Durable.", body = ProjectionOut)),
)]
async fn skip_projection(at: InProjection, body: JsonText) -> Result<Json<ProjectionOut>> {
    let asked: PositionIn = body.json().await?;
    change(at, ProjectionChange::Skip(asked.position)).await
}

/// The parked events of a projection, by position.
#[utoipa::path(
    get, path = "/v1/stores/{store}/projections/{projection}/parked", operation_id = "parked_of_projection", tag = "consumers",
    params(
        StoreAndProjection,
        ("after" = Option<u64>, Query, description = "Only events after this position."),
        ("limit" = Option<u64>, Query, description = "At most so many, up to 1,000. Default 1,000. A page with fewer is the last."),
    ),
    responses((status = 200, description = "A page of them, with the statement and the error of each.", body = AllParkedOut)),
)]
async fn parked_of_projection(at: InProjection) -> Result<Response> {
    let PathRequest { app, caller, names: StoreAndProjection { store, projection }, query } = at;
    let mut params = Params::parse(query.as_deref())?;
    let (after, limit) = (params.number("after")?, params.number("limit")?);
    params.finish()?;
    let limit =
        limit.map_or(PARKED_MAX, |limit| usize::try_from(limit).unwrap_or(PARKED_MAX).min(PARKED_MAX));
    app.service.check(&caller, Right::Read, &store)?;
    let db = app.service.database();
    let read = || {
        let generation = found(db, &store, &projection)?.status.generation;
        parked_at(db, &db.snapshot(), &projection, generation, (after, limit)).map_err(refused)
    };
    let parked = app.service.run_blocking_limited(read).await?;
    counted_json(&app.service, &AllParkedOut { parked: parked.into_iter().map(ParkedOut::from).collect() })
}
