//! From a batch to an answer, for everything that writes samples.

use ropewalk::Durability;
use ropewalk::series::{SampleBatch, SeriesError};
use ropewalk_wire::{Caller, WireError};

use crate::App;
use crate::answer::{ApiError, Kind};

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
    app.jobs.config.relabel_pushed(&mut batch, refused);
    append(app, caller, batch).await
}

/// True when something here decides by labels what becomes of a series.
pub(crate) fn looks_at_labels(app: &App) -> bool {
    !app.kept.drops().is_empty() || app.jobs.config.relabels_pushed()
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
