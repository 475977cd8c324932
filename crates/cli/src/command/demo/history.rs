//! Chapters 1 and 2: a git history as events, and queries over it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ropewalk::events::{QueryItem, ReadOptions};
use ropewalk::{Database, EventStore, Query};

use super::story::Story;
use super::{rate, took};
use crate::command::import::{Progress, Repository, import_repository};
use crate::database::place::Store;
use crate::output::cell::thousands;
use crate::output::failure::Result;

/// An imported repository.
pub(super) struct Imported {
    name: String,
    /// The store it is in.
    pub(super) store: String,
}

/// Imports the repository of the current directory, and `more`.
pub(super) fn import(story: &mut Story, db: &Database, more: &[PathBuf]) -> Result<Vec<Imported>> {
    story.chapter("A git history as events")?;
    story.say(
        "An event is a fact that is never changed: a type (what happened), data, and tags (what it is about). Every git \
         commit becomes one CommitAuthored and a FileAdded, FileChanged or FileRemoved for each file, tagged with author, \
         commit and path. All events of one git commit go in as one append: all of them, or none.",
    )?;
    let mut imported = Vec::new();
    match Repository::find(Path::new("."), "HEAD") {
        Ok(repository) => imported.push(import_one(story, db, Path::new("."), &repository)?),
        Err(_) => story.say(
            "There is no git history in the current directory, so there is nothing real to import here, and nothing is \
             made up instead. Run the demo inside a clone, or name one with --repo.",
        )?,
    }
    for path in more {
        let repository = Repository::find(path, "HEAD")?;
        imported.push(import_one(story, db, path, &repository)?);
    }
    Ok(imported)
}

fn import_one(story: &mut Story, db: &Database, path: &Path, repository: &Repository) -> Result<Imported> {
    let full = crate::database::context::canonical(path)?;
    let name = repository.name.clone();
    let store = Store::Local(db.events(&format!("git {name}"))?);
    let first = import_repository(&store, repository, &Progress::stderr())?;
    story.say(&format!(
        "{}: {} commits became {} events in {} ({} events/s), each append synced to disk{}.",
        full.display(),
        thousands(first.items),
        thousands(first.events),
        took(first.took),
        thousands(first.events_per_second()),
        if first.before > 0 {
            format!("; {} commits were there already", thousands(first.before))
        } else {
            String::new()
        },
    ))?;
    story.figure(
        &format!("import of {name}"),
        format!("{} events, {} events/s", thousands(first.events), thousands(first.events_per_second())),
    );
    let again = import_repository(&store, repository, &Progress::hidden())?;
    story.check(
        again.items == 0 && again.before == first.items + first.before,
        &format!(
            "importing it again brings nothing: all {} commits are known by their tag",
            thousands(again.before)
        ),
    )?;
    Ok(Imported { name, store: store.name().to_owned() })
}

/// Runs queries over each imported history.
pub(super) fn ask(story: &mut Story, db: &Database, repositories: &[Imported]) -> Result {
    if repositories.is_empty() {
        return Ok(());
    }
    story.chapter("Queries by type and tag")?;
    story.say(
        "A query is a list of items joined by OR; an item matches any of some types AND all of some tags. Its cost \
         grows with its result, not with the store, and is the same in both directions. Nothing was indexed by hand.",
    )?;
    for repository in repositories {
        ask_one(story, &repository.name, &db.existing_events(&repository.store)?)?;
    }
    Ok(())
}

fn ask_one(story: &mut Story, name: &str, store: &EventStore) -> Result {
    let authored = Query::from_types(["CommitAuthored"]);
    let file_types = ["FileAdded", "FileChanged", "FileRemoved"];
    let Some(path) = most_frequent(store, &Query::from_types(["FileChanged", "FileAdded"]), "path:")? else {
        return story.say(&format!("{name} has no files, so there is nothing to query."));
    };
    let Some(author) = most_frequent(store, &authored, "author:")? else { return Ok(()) };
    let questions = [
        ("everything that happened".to_owned(), Query::all()),
        ("all commits: CommitAuthored".to_owned(), authored.clone()),
        (format!("the life of the busiest file: {path}"), Query::from_tags([path.clone()])),
        (
            format!("commits of the busiest author: CommitAuthored AND {author}"),
            item(["CommitAuthored"], [author.clone()]),
        ),
        (
            "changes of that author to that file: 3 types AND 2 tags".to_owned(),
            item(file_types, [path.clone(), author.clone()]),
        ),
        (
            "files removed, OR the beginning of that file".to_owned(),
            item(["FileRemoved"], []).or(QueryItem::new(["FileAdded"], [path.clone()])),
        ),
        ("events that were never written: RocketLaunched".to_owned(), Query::from_types(["RocketLaunched"])),
    ];
    let mut rows = Vec::new();
    let mut same = true;
    for (question, query) in &questions {
        // One unmeasured run, so that both directions find the pages cached.
        positions(store, query, ReadOptions::default())?;
        let begun = Instant::now();
        let ascending = positions(store, query, ReadOptions::default())?;
        let up = begun.elapsed();
        let begun = Instant::now();
        let mut descending = positions(store, query, ReadOptions::backwards())?;
        let down = begun.elapsed();
        descending.reverse();
        same &= ascending == descending && store.count(query)? == ascending.len() as u64;
        rows.push(vec![question.clone(), thousands(ascending.len() as u64), took(up), took(down)]);
        if query.is_all() {
            story.figure(&format!("read all of {name}"), rate(ascending.len() as u64, "events", up));
        }
    }
    story.say(&format!("{name}, each event read with its type, tags and data:"))?;
    story.table(&["query", "events", "oldest first", "newest first"], &rows)?;
    story
        .check(same, "both directions give the same events, and `count` counts them without reading them")?;
    let begun = Instant::now();
    if let Some(last) = store.read_last(&Query::from_tags([path.clone()]))? {
        let data = String::from_utf8_lossy(&last.event.data).into_owned();
        story.say(&format!(
            "The last thing that happened to {path} ({}): {} {data}",
            took(begun.elapsed()),
            last.event.event_type
        ))?;
    }
    Ok(())
}

fn item<const T: usize, const G: usize>(types: [&str; T], tags: [String; G]) -> Query {
    Query::from_items([QueryItem::new(types, tags)])
}

/// Reads the matching events completely and returns their positions.
fn positions(store: &EventStore, query: &Query, options: ReadOptions) -> Result<Vec<u64>> {
    let mut positions = Vec::new();
    let bytes = store.scan(query, options, |scan| {
        let mut bytes = 0;
        while let Some(event) = scan.next()? {
            bytes +=
                event.event_type().len() + event.tags().map(str::len).sum::<usize>() + event.data().len();
            positions.push(event.position.0);
        }
        Ok(bytes)
    })?;
    std::hint::black_box(bytes);
    Ok(positions)
}

/// The most frequent tag with this prefix among the matching events.
fn most_frequent(store: &EventStore, query: &Query, prefix: &str) -> Result<Option<String>> {
    let (counts, _) = store.fold(query, HashMap::new(), |mut counts: HashMap<String, u64>, event| {
        for tag in event.tags().filter(|tag| tag.starts_with(prefix)) {
            *counts.entry(tag.to_owned()).or_default() += 1;
        }
        counts
    })?;
    Ok(counts
        .into_iter()
        .max_by_key(|(tag, count)| (*count, std::cmp::Reverse(tag.clone())))
        .map(|(tag, _)| tag))
}
