//! `ropewalk tail`: the change feed, all commits in order over all stores.
//!
//! A server streams it. In a directory, one process owns the database, so a follower opens it intermittently:
//! it prints the new commits, closes the database, and opens it again when the log files have changed. The
//! feed resumes by commit number, so it skips none. While another process holds the database, the follower
//! waits.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use clap::Args;
use ropewalk::changes::{Change, ChangedPart};
use ropewalk::engine::EngineError;
use ropewalk::events::{QueryItem, SequencedEvent};
use ropewalk::hooks::KvWrite;
use ropewalk::{Database, Seq};

use super::events;
use crate::database::context::Context;
use crate::database::listed::{CommitPart, ListedCommit};
use crate::database::place::Place;
use crate::database::remote::Remote;
use crate::output::cell::{Cell, payload, thousands, time};
use crate::output::failure::{Exit, Failure, Result};
use crate::output::report::{Mode, Report};

#[derive(Debug, Args)]
pub(crate) struct Tail {
    /// Follow: wait for commits of other processes whenever they release the database
    #[arg(short, long)]
    follow: bool,
    /// First commit to print [default: the last 10]
    #[arg(long, value_name = "SEQ")]
    from: Option<u64>,
    /// Only events of this type; repeat for "any of these"
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// Only events with this tag; repeat for "all of these"
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
}

/// Commits printed without --from.
const DEFAULT_COMMITS: u64 = 10;
/// Interval at which a follower checks the log for changes.
const POLL: Duration = Duration::from_millis(100);

/// One event, or one write to an ordered keyspace, as a row. The first two columns are the commit's.
const COLUMNS: &[&str] = &[
    "seq",
    "time",
    "store",
    "position",
    "type",
    "tags",
    "id",
    "metadata",
    "data",
    "data_encoding",
    "keyspace",
    "change",
    "key",
    "key_encoding",
];
const KEYS_COLUMNS: usize = 4;

pub(crate) fn tail(context: &Context, arguments: &Tail) -> Result {
    let filter = Filter {
        store: context.store.as_deref(),
        item: QueryItem::new(arguments.types.clone(), arguments.tags.clone()),
    };
    let mut printer = Printer::new(context)?;
    let mut next = arguments.from.map(Seq);
    let mut is_reported = false;
    loop {
        match context.place() {
            Ok(place) => {
                if !arguments.follow && context.store.is_some() {
                    context.existing_store(&place)?;
                }
                let written = match place {
                    Place::Local(db) => {
                        next = Some(print_from(&db, next, &filter, &mut printer)?);
                        if !arguments.follow {
                            return printer.finish();
                        }
                        printer.flush()?;
                        Some(close_database(db, &context.at)?)
                    }
                    Place::Remote(remote) => {
                        let ended = print_remote(&remote, &mut next, arguments.follow, &filter, &mut printer);
                        if !arguments.follow {
                            return ended.and_then(|()| printer.finish());
                        }
                        continues(context, ended)?;
                        None
                    }
                };
                is_reported = false;
                std::thread::sleep(POLL);
                while written.as_ref().is_some_and(|written| state_of_log(&context.at) == *written) {
                    std::thread::sleep(POLL);
                }
            }
            Err(Failure::Said { exit: Exit::Busy, what, .. }) if arguments.follow => {
                if !std::mem::replace(&mut is_reported, true) {
                    eprintln!("ropewalk: {what}. Waiting until it is free");
                }
                std::thread::sleep(POLL);
            }
            Err(failure) => return Err(failure),
        }
    }
}

/// If the feed of a server ends and a directory was given, following continues: another server, or this
/// process, opens it.
fn continues(context: &Context, ended: Result) -> Result {
    match ended {
        Err(Failure::Said { exit: Exit::Busy | Exit::Io, .. }) | Ok(())
            if context.needs_directory().is_ok() =>
        {
            Ok(())
        }
        Ok(()) => Err(Failure::new(Exit::Io, format!("{} ended the feed", context.shown()), "")),
        Err(failure) => Err(failure),
    }
}

/// Prints the commits that a server sends; `next` is the number after the last one.
fn print_remote(
    remote: &Remote,
    next: &mut Option<Seq>,
    follow: bool,
    filter: &Filter<'_>,
    printer: &mut Printer,
) -> Result {
    remote.changes(*next, DEFAULT_COMMITS, follow, |commit| {
        *next = Some(commit.seq.next());
        printer.commit(commit, filter)?;
        if follow { printer.flush() } else { Ok(()) }
    })
}

/// Prints the commits from `from` on and returns the number of the next one.
fn print_from(db: &Database, from: Option<Seq>, filter: &Filter<'_>, printer: &mut Printer) -> Result<Seq> {
    let last_few = Seq((db.seq().0 + 1).saturating_sub(DEFAULT_COMMITS));
    each_change(db, from.unwrap_or(last_few), from.is_some(), |change| {
        printer.commit(listed(change)?, filter)
    })
}

/// Visits the commits from `from` up to the newest and returns the number of the next one.
///
/// If the log no longer holds `from`, it fails if `exactly`, and starts with the oldest commit otherwise.
pub(crate) fn each_change(
    db: &Database,
    from: Seq,
    exactly: bool,
    mut visit: impl FnMut(&Change<'_>) -> Result,
) -> Result<Seq> {
    let newest = db.seq();
    let mut feed = db.changes(from)?;
    while feed.next_seq() <= newest {
        match feed.next(Duration::ZERO) {
            Ok(Some(change)) => visit(&change)?,
            Ok(None) => break,
            Err(ropewalk::Error::Engine(EngineError::FeedTrimmed { oldest, .. })) if !exactly => {
                feed = db.changes(oldest)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(feed.next_seq())
}

/// Closes the database and returns the state of its log, read before another process can open it.
fn close_database(db: Database, at: &Path) -> Result<LogState> {
    let lock = db.clone();
    db.close()?;
    let state = state_of_log(at);
    drop(lock);
    Ok(state)
}

type LogState = Vec<(std::ffi::OsString, Option<SystemTime>)>;

/// Names and times of the log files. An unreadable directory counts as a state: the next open reports it.
fn state_of_log(at: &Path) -> LogState {
    let entries = std::fs::read_dir(at.join("log")).into_iter().flatten().flatten();
    let mut state: LogState =
        entries.map(|entry| (entry.file_name(), entry.metadata().and_then(|m| m.modified()).ok())).collect();
    state.sort();
    state
}

/// Selects the parts of a commit to print.
struct Filter<'a> {
    store: Option<&'a str>,
    item: QueryItem,
}

impl Filter<'_> {
    fn lets_through(&self, part: &CommitPart) -> bool {
        let all = self.item.types.is_empty() && self.item.tags.is_empty();
        let wants = |store: &str| self.store.is_none_or(|wanted| wanted == store);
        match part {
            CommitPart::Event { store, event } => {
                let tags = event.event.tags.iter().map(String::as_str);
                wants(store) && self.item.matches(&event.event.event_type, tags)
            }
            CommitPart::Deleted { store } => wants(store) && all,
            CommitPart::Key { .. } | CommitPart::Other { .. } => self.store.is_none() && all,
        }
    }
}

/// Writes commits as rows, or for people as a headline and one line per part.
enum Printer {
    Rows(Report<std::io::BufWriter<std::io::Stdout>>),
    Lines(std::io::BufWriter<std::io::Stdout>),
}

impl Printer {
    fn new(context: &Context) -> Result<Self> {
        Ok(match context.mode() {
            Mode::Table => Self::Lines(context.out()),
            _ => Self::Rows(context.report(COLUMNS)?),
        })
    }

    fn commit(&mut self, commit: ListedCommit, filter: &Filter<'_>) -> Result {
        let mut headed = false;
        let (seq, time_micros) = (commit.seq, commit.time_micros);
        for part in commit.parts.into_iter().filter(|part| filter.lets_through(part)) {
            let cells = row(seq, time_micros, part);
            match self {
                Self::Rows(report) => report.row(cells)?,
                Self::Lines(out) => {
                    if !std::mem::replace(&mut headed, true) {
                        writeln!(out, "commit {}  {}", thousands(seq.0), time(time_micros).eyes())?;
                    }
                    let shown = cells.iter().skip(2).map(Cell::eyes).filter(|text| !text.is_empty());
                    writeln!(out, "  {}", shown.collect::<Vec<_>>().join("  "))?;
                }
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result {
        match self {
            Self::Rows(report) => report.flush()?,
            Self::Lines(out) => out.flush()?,
        }
        Ok(())
    }

    fn finish(self) -> Result {
        match self {
            Self::Rows(report) => report.finish()?,
            Self::Lines(mut out) => out.flush()?,
        }
        Ok(())
    }
}

fn listed(change: &Change<'_>) -> Result<ListedCommit> {
    let (seq, time_micros) = (change.seq, change.time_micros);
    // Records of other models come last, as in the feed of a server.
    let (mut parts, mut others) = (Vec::new(), Vec::new());
    for part in &change.parts {
        match part {
            ChangedPart::Events { store, append } => {
                parts.extend(append.deletes.then(|| CommitPart::Deleted { store: store.clone() }));
                for event in append.events() {
                    let (position, event) = event.map_err(|error| damaged(change, store, &error))?;
                    // No command prints the tracking position.
                    let event = SequencedEvent {
                        position,
                        seq,
                        time_micros,
                        event: event.to_event(),
                        tracking: None,
                    };
                    parts.push(CommitPart::Event { store: store.clone(), event });
                }
            }
            ChangedPart::Keys(writes) => parts.extend(writes.iter().map(|(keyspace, write)| {
                let (change, key, end) = match write {
                    KvWrite::Put(key, _) => ("put", key, None),
                    KvWrite::Delete(key) => ("delete", key, None),
                    KvWrite::DeleteRange(start, end) => ("delete_range", start, Some(end.to_vec())),
                };
                CommitPart::Key {
                    keyspace: keyspace.id().into(),
                    change: change.to_owned(),
                    key: key.to_vec(),
                    end,
                }
            })),
            ChangedPart::Other(_, bytes) => {
                let model = part.model().unwrap_or("unknown").to_owned();
                others.push(CommitPart::Other { model, bytes: bytes.len() as u64 });
            }
        }
    }
    parts.extend(others);
    Ok(ListedCommit { seq, time_micros, parts })
}

/// Checks that all parts of a commit decode.
pub(crate) fn check(change: &Change<'_>) -> Result {
    for part in &change.parts {
        if let ChangedPart::Events { store, append } = part {
            for event in append.events() {
                event.map_err(|error| damaged(change, store, &error))?;
            }
        }
    }
    Ok(())
}

fn damaged(change: &Change<'_>, store: &str, error: &dyn std::error::Error) -> Failure {
    let what = format!("commit {} at log address {}, store {store:?}: {error}", change.seq, change.lsn);
    Failure::new(Exit::Corrupt, what, "`ropewalk verify` checks everything")
}

/// A part as a row.
fn row(seq: Seq, time_micros: i64, part: CommitPart) -> Vec<Cell> {
    let (store, what) = match part {
        CommitPart::Event { store, event } => {
            let mut cells = events::row(event).into_iter();
            let (position, seq, time) = (cells.next(), cells.next(), cells.next());
            let head = [seq, time, Some(store.into()), position].into_iter().flatten();
            return head.chain(cells).chain(std::iter::repeat_n(Cell::None, KEYS_COLUMNS)).collect();
        }
        CommitPart::Deleted { store } => {
            (store.into(), [Cell::None, "deleted".into(), Cell::None, Cell::None])
        }
        CommitPart::Other { model, bytes } => {
            let what = match model.as_str() {
                "unknown" => format!("{bytes} bytes of a model that is unknown to this version"),
                model => format!("{bytes} bytes of {model}"),
            };
            (Cell::None, [Cell::None, what.into(), Cell::None, Cell::None])
        }
        CommitPart::Key { keyspace, change, key, end } => {
            let (key, key_encoding) = payload(&key);
            let (end, end_encoding) = end.map_or((Cell::None, Cell::None), |end| payload(&end));
            let mut cells = vec![seq.0.into(), time(time_micros)];
            cells.resize(COLUMNS.len() - KEYS_COLUMNS - 2, Cell::None);
            cells.extend([end, end_encoding, keyspace.into(), change.into(), key, key_encoding]);
            return cells;
        }
    };
    let mut cells = vec![seq.0.into(), time(time_micros), store];
    cells.resize(COLUMNS.len() - KEYS_COLUMNS, Cell::None);
    cells.extend(what);
    cells
}
