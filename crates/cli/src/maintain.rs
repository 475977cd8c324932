//! Commands on the database as a whole that change its files, never its content.

use std::time::Instant;

use ropewalk::{Database, LogDamage};

use crate::context::Context;
use crate::failure::{Exit, Failure, Result};
use crate::output::Cell;

pub(crate) fn init(context: &Context) -> Result {
    let created = !context.exists();
    context.open_or_create()?.close()?;
    let path = context.at.display().to_string();
    context.print_row(&["path", "created"], vec![path.into(), Cell::Bool(created)])
}

/// Says what is damaged in the log; with `act` gives up what cannot be kept, and opens the rest to be sure.
pub(crate) fn recover(context: &Context, act: bool) -> Result {
    context.must_exist()?;
    let found = context.patiently(|options| {
        if act { options.salvage_log(&context.at) } else { options.inspect_log(&context.at) }
    })?;
    let mut report = context.report(&[
        "log",
        "refusal",
        "kept_up_to",
        "unreadable",
        "readable_but_cut_off",
        "set_aside",
    ])?;
    let state = match (&found, act) {
        (None, _) => "whole",
        (Some(_), false) => "damaged",
        (Some(_), true) => "cut",
    };
    report.row(match &found {
        None => vec![state.into(), Cell::None, Cell::None, Cell::None, Cell::None, Cell::None],
        Some(damage) => vec![
            state.into(),
            damage.refusal.clone().into(),
            damage.seq.0.into(),
            unreadable(damage),
            damage.cut_off.into(),
            Cell::List(damage.set_aside.iter().map(|path| path.display().to_string()).collect()),
        ],
    })?;
    report.finish()?;
    if found.is_some() && !act {
        return Err(Failure::new(
            Exit::Corrupt,
            format!("the log in {} is damaged and was not changed", context.at.display()),
            "A backup is better than a cut; `ropewalk recover --yes` gives up every commit behind kept_up_to",
        ));
    }
    // Something else may be damaged; opening says what.
    context.open()?.close()?;
    Ok(())
}

/// The commits that no byte of the log shows any more, as far as later ones prove that they were there.
fn unreadable(damage: &LogDamage) -> Cell {
    let ranges = damage.unreadable.iter().map(|range| match (range.start(), range.end()) {
        (first, last) if first == last => first.to_string(),
        (first, last) => format!("{first}-{last}"),
    });
    Cell::List(ranges.collect())
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
