//! From a batch to a response, for all ingest protocols.

pub(crate) mod csv;
pub(crate) mod exposition;
pub(crate) mod flight;
pub(crate) mod influx;
pub(crate) mod json_lines;
pub(crate) mod labels;
pub(crate) mod metadata;
pub(crate) mod otlp;
pub(crate) mod protobuf;
pub(crate) mod remote_write;
pub(crate) mod self_scrape;

use axum::extract::Request;
use axum::http::StatusCode;
use ropewalk::Durability;
use ropewalk::series::{SampleBatch, SeriesError};
use ropewalk_auth::Caller;
use ropewalk_wire::WireError;

use crate::app::App;
use crate::ingest::metadata::Descriptions;
use crate::request::body;
use crate::request::response::{ApiError, Kind};

/// The rejected part of a request whose rest was taken.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    count: u64,
    first: Option<String>,
}

impl Refused {
    pub(crate) fn add(&mut self, count: u64, why: impl FnOnce() -> String) {
        self.count += count;
        if self.first.is_none() {
            self.first = Some(why());
        }
    }

    pub(crate) fn too_old(&mut self, time_ms: i64, floor_ms: i64) {
        self.add(1, || format!("a sample at {time_ms} ms lies before {floor_ms} ms, where retention ends"));
    }

    /// The number of rejected samples, and the reason of the first.
    pub(crate) fn into_parts(self) -> Option<(u64, String)> {
        let Self { count, first } = self;
        first.map(|why| (count, why))
    }

    /// The error response, if something was rejected.
    pub(crate) fn into_error(self) -> Option<ApiError> {
        let (count, why) = self.into_parts()?;
        Some(ApiError::bad(format!("partial write: {count} not taken, the rest is written; first: {why}")))
    }
}

/// The decoded content of a write request.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub(crate) batch: SampleBatch,
    pub(crate) metadata: Descriptions,
    pub(crate) refused: Refused,
}

/// Common handler of text imports: decompresses and decodes the body off the async threads, and appends it as
/// one commit. 204, or the rejected part.
///
/// # Errors
/// The caller lacks the right; `read` fails, and nothing was written; or a part was rejected.
pub(crate) async fn import(
    app: &App,
    caller: &Caller,
    request: Request,
    read: impl FnOnce(&str) -> Result<Read, ApiError> + Send + 'static,
) -> Result<StatusCode, ApiError> {
    let body = body::text(&app.service, request).await?;
    let work = move || {
        let body = body.inflate()?;
        read(std::str::from_utf8(&body).map_err(|_| ApiError::bad("the body is not UTF-8"))?)
    };
    let read = app.off_thread(work).await??;
    store_pushed(app, caller, read).await?.into_error().map_or(Ok(StatusCode::NO_CONTENT), Err)
}

/// Stores what a client pushed; returns the rejected part.
///
/// # Errors
/// As [`append`].
pub(crate) async fn store_pushed(app: &App, caller: &Caller, read: Read) -> Result<Refused, ApiError> {
    let Read { batch, metadata, mut refused } = read;
    if !batch.is_empty() {
        push(app, caller, batch, &mut refused).await?;
    }
    metadata::store(app, metadata).await?;
    Ok(refused)
}

/// Stores samples that the server itself collected.
///
/// # Errors
/// As [`append`].
pub(crate) async fn store_own(app: &App, read: Read) -> Result<(), ApiError> {
    if !read.batch.is_empty() {
        append(app, &Caller::everybody(), read.batch).await?;
    }
    metadata::store(app, read.metadata).await
}

/// As [`append`], for client pushes: relabels them first as configured.
///
/// # Errors
/// As [`append`].
pub(crate) async fn push(
    app: &App,
    caller: &Caller,
    mut batch: SampleBatch,
    refused: &mut Refused,
) -> Result<(), ApiError> {
    app.monitoring.config().relabel_pushed(&mut batch, |why| refused.add(1, || why));
    append(app, caller, batch).await
}

/// True when relabelling or drop rules need the labels of pushed series.
pub(crate) fn looks_at_labels(app: &App) -> bool {
    !app.runtime_rules.drops().is_empty() || app.monitoring.config().relabels_pushed()
}

/// As [`append`], for a batch that names series by their numbers: false when one of them was deleted, and
/// nothing was written.
///
/// # Errors
/// As [`append`].
pub(crate) async fn append_numbered(
    app: &App,
    caller: &Caller,
    batch: &SampleBatch,
) -> Result<bool, ApiError> {
    let _admitted = app.service.admit(caller, &app.settings.store, batch.len() * 16).await?;
    let submitted = match app.store()?.submit(batch, Durability::Sync) {
        Ok(pending) => pending.await.map(drop),
        Err(error) => Err(error),
    };
    match submitted {
        Ok(()) => Ok(true),
        Err(SeriesError::UnknownSeries { .. }) => Ok(false),
        Err(error) => Err(refusal(error)),
    }
}

/// Retries of a batch that met the deletion of one of its series.
const TRIES: usize = 8;

/// Appends a batch as one commit; durable when it returns.
///
/// # Errors
/// Nothing was written.
pub(crate) async fn append(app: &App, caller: &Caller, mut batch: SampleBatch) -> Result<(), ApiError> {
    let drops = app.runtime_rules.drops();
    if !drops.is_empty() {
        batch.retain(|labels| !drops.drops(labels));
        if batch.is_empty() {
            return Ok(());
        }
    }
    let bytes = batch.len() * 16;
    let _admitted = app.service.admit(caller, &app.settings.store, bytes).await?;
    let store = app.store()?;
    for _ in 1..TRIES {
        match store.submit(&batch, Durability::Sync).map_err(refusal)?.await {
            Err(SeriesError::UnknownSeries { .. }) => {}
            other => return other.map(drop).map_err(refusal),
        }
    }
    store.submit(&batch, Durability::Sync).map_err(refusal)?.await.map(drop).map_err(refusal)
}

/// Converts a store error that rejects the complete batch.
fn refusal(error: SeriesError) -> ApiError {
    match error {
        // Samples of existing series are still accepted, so the client should retry later.
        SeriesError::CardinalityLimit { .. } | SeriesError::MetricLimit { .. } => {
            ApiError::new(Kind::TooMany, error.to_string())
        }
        error => WireError::from(ropewalk::Error::from(error)).into(),
    }
}
