//! Backups of the complete database into the directory that the server's settings name.

use axum::Json;
use axum::http::StatusCode;
use ropewalk_auth::{Needs, Resource};
use ropewalk_wire::NamedBackup;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use crate::kit::body::NoBody;
use crate::kit::path::PathRequest;
use crate::kit::problem::Result;
use crate::route::Route;

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::new(Needs::admin(Resource::AllStores), routes!(list, create)),
        Route::new(Needs::admin(Resource::AllStores), routes!(create_named)),
    ]
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct BackupName {
    /// A letter or digit, then letters, digits, `.`, `_`, `-`; at most 128.
    backup: String,
}

/// A backup.
#[derive(Serialize, ToSchema)]
#[schema(as = Backup)]
struct BackupOut {
    /// Its directory inside that of all backups.
    #[schema(example = "20261121T143651Z-2be650b6d019eb54")]
    name: String,
    /// The last commit in it.
    seq: u64,
    /// End of its log.
    lsn: u64,
    files: u64,
    /// Lengths of its files.
    bytes: u64,
    /// Of these, bytes of files that it shares with the database.
    linked_bytes: u64,
}

impl From<NamedBackup> for BackupOut {
    fn from(NamedBackup { name, backup }: NamedBackup) -> Self {
        Self {
            name,
            seq: backup.seq.0,
            lsn: backup.lsn.0,
            files: backup.files,
            bytes: backup.bytes,
            linked_bytes: backup.linked_bytes,
        }
    }
}

/// A backup in the server's directory.
#[derive(Serialize, ToSchema)]
#[schema(as = ListedBackup)]
struct ListedBackupOut {
    #[schema(example = "20261121T143651Z-2be650b6d019eb54")]
    name: String,
}

#[derive(Serialize, ToSchema)]
#[schema(as = ListedBackups)]
struct ListedBackupsOut {
    backups: Vec<ListedBackupOut>,
}

/// The complete backups in the server's directory.
///
/// At most 1,000, in the reverse order of their names: of those that are made of the time, the newest first.
/// Needs the right `admin` on every store.
#[utoipa::path(
    get, path = "/v1/backups", operation_id = "list_backups", tag = "backups",
    responses((status = 200, description = "Their names.", body = ListedBackupsOut)),
)]
async fn list(at: PathRequest) -> Result<Json<ListedBackupsOut>> {
    let names = at.app.service.list_backups(&at.caller).await?;
    let backups = names.into_iter().map(|name| ListedBackupOut { name }).collect();
    Ok(Json(ListedBackupsOut { backups }))
}

/// Copies the database into the server's directory of backups, under a name made of time and chance.
///
/// The backup contains everything acknowledged before the request, as of one commit; writers continue
/// meanwhile. Needs the right `admin` on every store. Responds when the copy is durable, however long that
/// takes.
#[utoipa::path(
    post, path = "/v1/backups", operation_id = "create_backup", tag = "backups",
    responses((status = 201, description = "Made.", body = BackupOut)),
)]
async fn create(at: PathRequest, NoBody: NoBody) -> Result<(StatusCode, Json<BackupOut>)> {
    let backup = at.app.service.backup(&at.caller, None).await?;
    Ok((StatusCode::CREATED, Json(backup.into())))
}

/// As `POST /v1/backups`, under a name chosen by the client.
#[utoipa::path(
    put, path = "/v1/backups/{backup}", operation_id = "create_named_backup", tag = "backups",
    params(BackupName),
    responses(
        (status = 201, description = "Made.", body = BackupOut),
        (status = 409, description = "There is something of this name: `already_exists`."),
    ),
)]
async fn create_named(at: PathRequest<BackupName>, NoBody: NoBody) -> Result<(StatusCode, Json<BackupOut>)> {
    let backup = at.app.service.backup(&at.caller, Some(&at.names.backup)).await?;
    Ok((StatusCode::CREATED, Json(backup.into())))
}
