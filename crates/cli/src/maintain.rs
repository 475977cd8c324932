//! Commands on the database as a whole that change its files, never its content.

use std::time::Instant;

use ropewalk::Database;

use crate::context::Context;
use crate::failure::Result;
use crate::output::Cell;

pub(crate) fn init(context: &Context) -> Result {
    let created = !context.exists();
    context.open_or_create()?.close()?;
    let path = context.at.display().to_string();
    context.print_row(&["path", "created"], vec![path.into(), Cell::Bool(created)])
}

pub(crate) fn checkpoint(context: &Context) -> Result {
    timed(context, |db| db.checkpoint())
}

pub(crate) fn compact(context: &Context) -> Result {
    timed(context, |db| db.compact())
}

/// Does the work and says what the files hold afterwards.
fn timed(context: &Context, work: impl FnOnce(&Database) -> Result<(), ropewalk::Error>) -> Result {
    let db = context.open()?;
    let started = Instant::now();
    work(&db)?;
    let seconds = (started.elapsed().as_secs_f64() * 1000.0).round() / 1000.0;
    let stats = db.stats();
    let runs: u64 = stats.store.keyspaces.iter().flat_map(|k| &k.levels).map(|level| level.runs).sum();
    let bytes: u64 = stats.store.keyspaces.iter().map(|keyspace| keyspace.file_bytes).sum();
    db.close()?;
    context.print_row(
        &["checkpoint", "runs", "bytes", "seconds"],
        vec![stats.checkpoint.0.into(), runs.into(), bytes.into(), Cell::Decimal(seconds)],
    )
}
