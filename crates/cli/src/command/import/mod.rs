//! `ropewalk import`: events and samples from other sources. An interrupted import resumes; a repeated one adds nothing.

mod git;
mod ndjson;
mod progress;
mod prometheus;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Subcommand, ValueHint};

use crate::database::context::Context;
use crate::output::cell::Cell;
use crate::output::failure::Result;

pub(crate) use git::Repository;
use progress::Progress;

#[derive(Debug, Subcommand)]
pub(crate) enum Import {
    /// The history of a git repository: CommitAuthored, FileAdded, FileChanged, FileRemoved
    Git {
        /// Directory of the repository, or any directory inside it
        #[arg(value_hint = ValueHint::DirPath)]
        path: PathBuf,
        /// Import the history of this branch, tag or commit
        #[arg(long = "ref", value_name = "REF", default_value = "HEAD")]
        reference: String,
    },
    /// One event per line, as `read --mode ndjson` prints them
    Ndjson {
        /// The file; - is standard input
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// Name under which to store the position reached [default: the path of the file; none for standard
        /// input]
        #[arg(long, value_name = "NAME")]
        source: Option<String>,
    },
    /// Samples of Prometheus blocks, into the series store of --store
    Prometheus {
        /// A block, or a directory of blocks, such as the data directory of Prometheus or a snapshot of it
        #[arg(value_hint = ValueHint::DirPath)]
        path: PathBuf,
    },
}

/// Result of an import.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Imported {
    /// Git commits or lines imported now.
    pub(crate) items: u64,
    /// Git commits or lines that an earlier import has added.
    pub(crate) before: u64,
    /// Events appended now.
    pub(crate) events: u64,
    /// Duration of the import.
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

pub(crate) fn import(context: &Context, import: Import) -> Result {
    match import {
        Import::Git { path, reference } => git(context, &path, &reference),
        Import::Ndjson { file, source } => ndjson(context, &file, source),
        Import::Prometheus { path } => prometheus::prometheus(context, &path),
    }
}

fn git(context: &Context, path: &Path, reference: &str) -> Result {
    let repository = Repository::find(path, reference)?;
    let place = context.place()?;
    let store = place.store(context.store_name())?;
    let imported = git::import(&store, &repository, &Progress::stderr())?;
    place.close()?;
    imported.print(context, &repository.source)
}

fn ndjson(context: &Context, file: &Path, source: Option<String>) -> Result {
    let input = ndjson::Input::open(file, source)?;
    let place = context.place()?;
    let store = place.store(context.store_name())?;
    let (imported, source) = ndjson::import(&store, input, &Progress::stderr())?;
    place.close()?;
    imported.print(context, &source)
}
