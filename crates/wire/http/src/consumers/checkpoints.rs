//! Checkpoints of consumers: the position that each has reported.

use axum::Json;
use axum::http::StatusCode;
use ropewalk::Position;
use ropewalk::changes::ConsumerCheckpoint;
use ropewalk_auth::Needs;
use ropewalk_wire::WireError;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::kit::body::{JsonText, NoBody};
use crate::kit::encode::time;
use crate::kit::params::{MustExist, PageParams};
use crate::kit::path::{PathRequest, StoreAndConsumer, StoreName};
use crate::kit::problem::Result;
use crate::route::{Route, STORE};

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::new(Needs::read(STORE), routes!(list_checkpoints)),
        // Consumers report how far they have read.
        Route::new(Needs::read(STORE), routes!(get_checkpoint, put_checkpoint, delete_checkpoint)),
    ]
}

/// Checkpoint of a consumer.
#[derive(Serialize, ToSchema)]
#[schema(as = Checkpoint)]
struct CheckpointOut {
    #[schema(example = "mailer")]
    consumer: String,
    /// Every event up to here is processed; null for a consumer without a checkpoint.
    #[schema(example = 42)]
    position: Option<u64>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = ListedCheckpoint)]
struct ListedOut {
    consumer: String,
    position: u64,
    /// Time of the report, RFC 3339, UTC.
    #[schema(format = DateTime)]
    set_at: String,
}

impl From<ConsumerCheckpoint> for ListedOut {
    fn from(one: ConsumerCheckpoint) -> Self {
        Self { consumer: one.name, position: one.position.0, set_at: time(one.time_micros) }
    }
}

#[derive(Serialize, ToSchema)]
#[schema(as = Checkpoints)]
struct CheckpointsOut {
    checkpoints: Vec<ListedOut>,
    /// `after` of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SetCheckpoint)]
struct CheckpointIn {
    /// Every event up to here is processed. At most the last position of the store.
    position: u64,
}

/// The checkpoints of a store's consumers, by name.
#[utoipa::path(
    get, path = "/v1/stores/{store}/checkpoints", operation_id = "list_checkpoints", tag = "consumers",
    params(StoreName, MustExist, PageParams),
    responses((status = 200, description = "A page of them.", body = CheckpointsOut)),
)]
async fn list_checkpoints(at: PathRequest<StoreName>) -> Result<Json<CheckpointsOut>> {
    let (store, page) = at.asked_page()?;
    let checkpoints = at.app.service.checkpoints(&at.caller, store)?;
    let found = checkpoints.list_after(page.after(), page.sought()).map_err(WireError::from)?;
    let (found, next) = page.cut(found, |one| &one.name);
    Ok(Json(CheckpointsOut { checkpoints: found.into_iter().map(ListedOut::from).collect(), next }))
}

/// Checkpoint of a consumer.
#[utoipa::path(
    get, path = "/v1/stores/{store}/checkpoints/{consumer}", operation_id = "get_checkpoint", tag = "consumers",
    params(StoreAndConsumer, MustExist),
    responses((status = 200, description = "Its last reported position.", body = CheckpointOut)),
)]
async fn get_checkpoint(at: PathRequest<StoreAndConsumer>) -> Result<Json<CheckpointOut>> {
    let checkpoints = at.app.service.checkpoints(&at.caller, at.asked_store()?)?;
    let position = checkpoints.get(&at.names.consumer).map_err(WireError::from)?;
    Ok(Json(CheckpointOut { consumer: at.names.consumer, position: position.map(|position| position.0) }))
}

/// Stores the checkpoint of a consumer. Responds when it is durable.
#[utoipa::path(
    put, path = "/v1/stores/{store}/checkpoints/{consumer}", operation_id = "set_checkpoint", tag = "consumers",
    params(StoreAndConsumer),
    request_body = CheckpointIn,
    responses((status = 200, description = "Kept.", body = CheckpointOut)),
)]
async fn put_checkpoint(at: PathRequest<StoreAndConsumer>, body: JsonText) -> Result<Json<CheckpointOut>> {
    let PathRequest { app, caller, names: StoreAndConsumer { store, consumer }, .. } = at;
    let checkpoints = app.service.checkpoints(&caller, &store)?;
    let CheckpointIn { position } = body.json().await?;
    app.service.write(|| checkpoints.set(&consumer, Position(position))).await?;
    Ok(Json(CheckpointOut { consumer, position: Some(position) }))
}

/// Deletes the checkpoint of a consumer.
#[utoipa::path(
    delete, path = "/v1/stores/{store}/checkpoints/{consumer}", operation_id = "delete_checkpoint", tag = "consumers",
    params(StoreAndConsumer, MustExist),
    responses((status = 204, description = "Deleted, or it did not exist.")),
)]
async fn delete_checkpoint(at: PathRequest<StoreAndConsumer>, NoBody: NoBody) -> Result<StatusCode> {
    let checkpoints = at.app.service.checkpoints(&at.caller, at.asked_store()?)?;
    at.app.service.write(|| checkpoints.remove(&at.names.consumer)).await?;
    Ok(StatusCode::NO_CONTENT)
}
