//! Commands that change the files of a database and not its content: `init`, `recover`, `checkpoint`, `compact`, `backup`.

use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, ValueHint};
use ropewalk::engine::LogDamage;
use ropewalk::{Database, Seq};

use crate::database::context::Context;
use crate::database::place::Place;
use crate::database::remote::BackupAnswer;
use crate::output::cell::Cell;
use crate::output::failure::{Exit, Failure, Result};

#[derive(Debug, Args)]
pub(crate) struct Recover {
    /// Cut the log: give up unreadable commits. The damaged files are preserved next to the log
    #[arg(long)]
    yes: bool,
    /// End the log before this commit at the latest, for a valid record that cannot be applied
    #[arg(long, value_name = "COMMIT")]
    cut_before: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct Backup {
    /// Directory to create; through a server, a name in its backup directory [default there: the time]
    #[arg(value_hint = ValueHint::DirPath)]
    target: Option<PathBuf>,
}

pub(crate) fn init(context: &Context) -> Result {
    let created = !context.exists();
    context.open_or_create()?.close()?;
    let path = context.at.display().to_string();
    context.print_row(&["path", "created"], vec![path.into(), Cell::Bool(created)])
}

/// Reports the damage of the log; with `--yes` cuts the log before it, and opens the database as a check.
pub(crate) fn recover(context: &Context, recover: &Recover) -> Result {
    context.must_exist()?;
    let (act, before) = (recover.yes, recover.cut_before.map(Seq));
    let found = context.patiently(|options| {
        if act { options.salvage_log(&context.at, before) } else { options.inspect_log(&context.at, before) }
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
        (Some(_), false) if before.is_some() => "to be cut",
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
            format!("the log in {} is {state} and was not changed", context.at.display()),
            "Prefer restoring a backup; the same command with --yes discards every commit after `kept_up_to`",
        ));
    }
    // Other parts may be damaged; opening reports them.
    context.open()?.close()?;
    Ok(())
}

/// Lost commits that later log records prove to have existed.
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

/// Copies the database into a directory, or into the backup directory of a server.
pub(crate) fn backup(context: &Context, backup: &Backup) -> Result {
    let todo = "`ropewalk backup DIRECTORY`; a server creates copies below its setting `backups`";
    let made = match (context.place()?, backup.target.as_deref()) {
        (Place::Local(db), Some(target)) => {
            let backup = db.backup(target)?;
            db.close()?;
            BackupAnswer {
                name: target.display().to_string(),
                seq: backup.seq.0,
                files: backup.files,
                bytes: backup.bytes,
                linked_bytes: backup.linked_bytes,
            }
        }
        (Place::Local(_), None) => {
            return Err(Failure::new(Exit::Invalid, "a backup needs a directory to create", todo));
        }
        (Place::Remote(remote), None) => remote.backup(None)?,
        (Place::Remote(remote), Some(target)) => match target.to_str() {
            Some(name) if !name.contains('/') => remote.backup(Some(name))?,
            _ => {
                let what = format!(
                    "{} is served, and its server chooses the directory: {} is not a backup name",
                    context.shown(),
                    target.display()
                );
                return Err(Failure::new(Exit::Invalid, what, todo));
            }
        },
    };
    context.print_row(
        &["backup", "seq", "files", "bytes", "linked_bytes"],
        vec![
            made.name.into(),
            made.seq.into(),
            made.files.into(),
            made.bytes.into(),
            made.linked_bytes.into(),
        ],
    )
}

/// Runs `work` and prints the size of the files afterwards.
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
