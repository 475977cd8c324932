//! From a batch to an answer, for everything that writes samples.

use axum::extract::Request;
use axum::http::StatusCode;
use ropewalk::Durability;
use ropewalk::series::{SampleBatch, SeriesError};
use ropewalk_wire::{Caller, WireError};

use crate::App;
use crate::answer::{ApiError, Kind};
use crate::body::{self, Encoding};
use crate::described::{self, Descriptions};

/// What of a request was not taken, while the rest was.
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

    /// How much was not taken, and why the first of it.
    pub(crate) fn into_parts(self) -> Option<(u64, String)> {
        let Self { count, first } = self;
        first.map(|why| (count, why))
    }

    /// The answer, if something was not taken.
    pub(crate) fn into_error(self) -> Option<ApiError> {
        let (count, why) = self.into_parts()?;
        Some(ApiError::bad(format!("partial write: {count} not taken, the rest is written; first: {why}")))
    }
}

/// What was read of what somebody writes.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub(crate) batch: SampleBatch,
    pub(crate) metadata: Descriptions,
    pub(crate) refused: Refused,
}

/// The frame of every import of a text: the body, packed or not, becomes a batch where that may take its time, and one commit. 204,
/// or what was not taken.
///
/// # Errors
/// The caller may not; what `read` says, and nothing was written then; a part was not taken.
pub(crate) async fn import(
    app: &App,
    caller: &Caller,
    request: Request,
    read: impl FnOnce(&str) -> Result<Read, ApiError> + Send + 'static,
) -> Result<StatusCode, ApiError> {
    let encoding = Encoding::of_text(request.headers())?;
    let body = body::read(app, request).await?;
    let bytes_max = app.service.limits().request_bytes;
    let work = move || {
        let inflated = body::inflate(encoding, &body, bytes_max)?;
        read(std::str::from_utf8(&inflated).map_err(|_| ApiError::bad("the body is not UTF-8"))?)
    };
    let read = app.off_thread(work).await??;
    store_pushed(app, caller, read).await?.into_error().map_or(Ok(StatusCode::NO_CONTENT), Err)
}

/// Stores what a client pushed; answers what of it was not taken.
///
/// # Errors
/// As [`append`].
pub(crate) async fn store_pushed(app: &App, caller: &Caller, read: Read) -> Result<Refused, ApiError> {
    let Read { batch, metadata, mut refused } = read;
    if !batch.is_empty() {
        push(app, caller, batch, &mut refused).await?;
    }
    described::store(app, metadata).await?;
    Ok(refused)
}

/// Stores what the server has read by itself.
///
/// # Errors
/// As [`append`].
pub(crate) async fn store_own(app: &App, read: Read) -> Result<(), ApiError> {
    if !read.batch.is_empty() {
        append(app, &Caller::everybody(), read.batch).await?;
    }
    described::store(app, read.metadata).await
}

/// As [`append`], for what clients push: its labels are changed before as the configuration asks.
///
/// # Errors
/// As [`append`].
pub(crate) async fn push(
    app: &App,
    caller: &Caller,
    mut batch: SampleBatch,
    refused: &mut Refused,
) -> Result<(), ApiError> {
    app.jobs.config().relabel_pushed(&mut batch, refused);
    append(app, caller, batch).await
}

/// True when something here decides by labels what becomes of a series.
pub(crate) fn looks_at_labels(app: &App) -> bool {
    !app.kept.drops().is_empty() || app.jobs.config().relabels_pushed()
}

/// As [`append`], for a batch that names series by their numbers: false when one of them is gone, and nothing was written.
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

/// How often a batch is tried again that met the deletion of one of its series.
const TRIES: usize = 8;

/// Appends a batch as one commit; durable when it returns.
///
/// # Errors
/// Nothing was written then.
pub(crate) async fn append(app: &App, caller: &Caller, mut batch: SampleBatch) -> Result<(), ApiError> {
    let drops = app.kept.drops();
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

/// What the store says when it takes nothing of a batch.
fn refusal(error: SeriesError) -> ApiError {
    match error {
        // The samples of a series that is there are as welcome as ever, so the client shall keep them and try again.
        SeriesError::CardinalityLimit { .. } | SeriesError::MetricLimit { .. } => {
            ApiError::new(Kind::TooMany, error.to_string())
        }
        error => WireError::from(ropewalk::Error::from(error)).into(),
    }
}
