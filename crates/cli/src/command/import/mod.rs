//! Bringing events and samples in from elsewhere, so that it may be interrupted and repeated.

mod git;
mod ndjson;
mod progress;
mod prometheus;

use std::path::Path;
use std::time::Duration;

use crate::database::context::Context;
use crate::output::failure::Result;
use crate::output::report::Cell;

pub(crate) use git::{Repository, import as import_repository};
pub(crate) use ndjson::Entries;
pub(crate) use progress::Progress;
pub(crate) use prometheus::prometheus;

/// What an import did.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Imported {
    /// Git commits or lines read now.
    pub(crate) items: u64,
    /// Git commits or lines that an earlier import brought.
    pub(crate) before: u64,
    /// Events appended now.
    pub(crate) events: u64,
    /// How long it took.
    pub(crate) took: Duration,
}

impl Imported {
    pub(crate) fn events_per_second(&self) -> u64 {
        (self.events as f64 / self.took.as_secs_f64().max(1e-9)) as u64
    }

    fn print(&self, context: &Context, source: &str) -> Result {
        context.print_row(
            &["source", "store", "items", "before", "events", "seconds", "events_per_second"],
            vec![
                source.into(),
                context.store_name().into(),
                self.items.into(),
                self.before.into(),
                self.events.into(),
                Cell::Decimal((self.took.as_secs_f64() * 1000.0).round() / 1000.0),
                self.events_per_second().into(),
            ],
        )
    }
}

pub(crate) fn git(context: &Context, path: &Path, reference: &str) -> Result {
    let repository = Repository::find(path, reference)?;
    let place = context.place()?;
    let store = place.store(context)?;
    let imported = git::import(&store, &repository, &Progress::stderr())?;
    place.close()?;
    imported.print(context, &repository.source)
}

pub(crate) fn ndjson(context: &Context, file: &Path, source: Option<String>) -> Result {
    let input = ndjson::Input::open(file, source)?;
    let place = context.place()?;
    let store = place.store(context)?;
    let (imported, source) = ndjson::import(&store, input, &Progress::stderr())?;
    place.close()?;
    imported.print(context, &source)
}
