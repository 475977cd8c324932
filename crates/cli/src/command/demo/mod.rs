//! `ropewalk demo`: demonstrates the purpose of this database in a minute, on real input.
//!
//!   1 history ─▶ 2 questions ─▶ 3 decisions ─▶ 4 four models ─▶ 5 crash ─▶ 6 change feed and verify ─▶ 7 server ─▶ figures
//!
//! Each chapter announces its work, does it, and checks the outcome; one failed check fails the demo. Nothing
//! is simulated: the events are the git history of the directory, threads race, and a process is killed by
//! SIGKILL.

mod crash;
mod decisions;
mod feed;
mod history;
mod served;
mod shop;
mod story;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, ValueHint};
use ropewalk::{Database, EventStore};

use crate::output::failure::{Exit, Failure, Result};
use story::Story;

pub(crate) use crash::{Writer, writer};

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Run the checks, clean up, and end; for scripts
    #[arg(long)]
    once: bool,
    /// Import this repository too; repeat for more
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath)]
    repo: Vec<PathBuf>,
}

/// The database of the demo, and whether it is removed at the end.
enum Place {
    Temporary(tempfile::TempDir),
    Given(PathBuf),
}

impl Place {
    fn path(&self) -> &Path {
        match self {
            Self::Temporary(dir) => dir.path(),
            Self::Given(path) => path,
        }
    }
}

pub(crate) fn demo(at: Option<PathBuf>, arguments: &Demo) -> Result {
    let started = Instant::now();
    let place = match at {
        Some(path) => Place::Given(path),
        None => Place::Temporary(
            tempfile::Builder::new()
                .prefix("ropewalk-demo-")
                .tempdir()
                .map_err(|error| Failure::file("create", &std::env::temp_dir(), &error))?,
        ),
    };
    let mut story = Story::new();
    story.title(
        "Ropewalk demo",
        "One embedded database, on real input. Every line below was measured just now.",
    )?;
    story.say(&format!(
        "The database lies in {}. An append counts as done when fdatasync has returned.",
        place.path().display()
    ))?;

    let db = open(place.path())?;
    let repositories = history::import(&mut story, &db, &arguments.repo)?;
    history::ask(&mut story, &db, &repositories)?;
    let before_decisions = db.seq();
    let courses = decisions::courses(&mut story, &db)?;
    let usernames = decisions::usernames(&mut story, &db)?;
    let sold = shop::sell_out(&mut story, &db)?;
    let (db, crashed) = crash::survive(&mut story, db, place.path())?;
    let stores = [courses, usernames, crashed];
    feed::follow(&mut story, &db, before_decisions, &stores)?;
    feed::verify(&mut story, &db)?;
    db.close()?;
    let server = served::serve(&mut story, place.path(), &sold)?;
    story.figure("the whole demo", format!("{:.1} s", started.elapsed().as_secs_f64()));
    let failed = story.end()?;

    if io::stdout().is_terminal() && !arguments.once {
        let path = match place {
            Place::Temporary(dir) => dir.keep(),
            Place::Given(path) => path,
        };
        try_next(&mut story, &path, repositories.first().map_or("courses", |repository| &repository.store))?;
        server.stay(&mut story, &sold.shop)?;
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::new(Exit::Internal, format!("the demo found: {}", failed.join("; ")), "Please report this"))
}

fn open(path: &Path) -> Result<Database> {
    Ok(Database::open(path)?)
}

/// The store `name`, or the first unused one of `name-2`, `name-3`, … if an earlier demo left stores.
fn fresh(db: &Database, name: &str) -> Result<EventStore> {
    let taken = db.event_stores();
    let mut names = std::iter::once(name.to_owned()).chain((2u64..).map(|n| format!("{name}-{n}")));
    let free = names.find(|name| !taken.contains(name)).expect("there are more numbers than stores");
    Ok(db.events(&free)?)
}

fn try_next(story: &mut Story, path: &Path, store: &str) -> Result {
    let at = path.display();
    story.chapter("Next steps")?;
    for line in [
        format!("export ROPEWALK_AT='{at}'"),
        "ropewalk stores".to_owned(),
        format!("ropewalk read --store '{store}' --type FileAdded --backwards --limit 5"),
        "ropewalk read --store courses --tag course:c1".to_owned(),
        "ropewalk append --store courses --type UserRegistered --tag username:ann --if-none tag=username:ann"
            .to_owned(),
        "    (run it twice: the second is rejected, with exit code 4)".to_owned(),
        "ropewalk tail --store courses".to_owned(),
        format!("rm -r '{at}'    (the demo wrote nothing else)"),
    ] {
        story.line(&line)?;
    }
    Ok(())
}

/// A duration for people.
fn took(duration: Duration) -> String {
    let nanos = duration.as_nanos() as f64;
    match nanos {
        n if n < 1e6 => format!("{:.0} µs", n / 1e3),
        n if n < 1e9 => format!("{:.1} ms", n / 1e6),
        n => format!("{:.2} s", n / 1e9),
    }
}

/// `count` things in that time, as a rate with its unit.
fn rate(count: u64, things: &str, duration: Duration) -> String {
    let rate = count as f64 / duration.as_secs_f64().max(1e-9);
    format!("{} {things}/s", crate::output::cell::thousands(rate as u64))
}
