//! The change feed: every commit in order, whatever store it wrote to.
//!
//! One process owns a database, so following means taking turns: print what is there, let go, and look again when the
//! files of the log have changed. Nothing is skipped, because the feed resumes by commit number; a process that holds
//! the database for long is waited for.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use ropewalk::{Change, ChangedPart, Database, EngineError, KvWrite, QueryItem, Seq, SequencedEvent};

use crate::args::Tail;
use crate::context::Context;
use crate::events;
use crate::failure::{Exit, Failure, Result};
use crate::output::{Cell, Mode, Report, payload, thousands, time};

/// Commits printed when nobody says from where.
const DEFAULT_COMMITS: u64 = 10;
/// How often a follower looks whether the log has changed.
const LOOK: Duration = Duration::from_millis(100);

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
        item: QueryItem { types: arguments.types.clone(), tags: arguments.tags.clone() },
    };
    let mut printer = Printer::new(context)?;
    let mut next = arguments.from.map(Seq);
    let mut told = false;
    loop {
        match context.open() {
            Ok(db) => {
                if !arguments.follow && context.store.is_some() {
                    crate::place::Place::Here(db.clone()).existing_store(context)?;
                }
                next = Some(print_from(&db, next, &filter, &mut printer)?);
                if !arguments.follow {
                    return printer.finish();
                }
                printer.flush()?;
                let written = let_go(db, &context.at)?;
                told = false;
                while state_of_log(&context.at) == written {
                    std::thread::sleep(LOOK);
                }
            }
            Err(Failure::Said { exit: Exit::Busy, what, .. }) if arguments.follow => {
                if !std::mem::replace(&mut told, true) {
                    eprintln!("ropewalk: {what}. Waiting until it is free");
                }
                std::thread::sleep(LOOK);
            }
            Err(failure) => return Err(failure),
        }
    }
}

/// Prints the commits from `from` on and answers the number of the next one.
fn print_from(db: &Database, from: Option<Seq>, filter: &Filter<'_>, printer: &mut Printer) -> Result<Seq> {
    let last_few = Seq((db.seq().0 + 1).saturating_sub(DEFAULT_COMMITS));
    each_change(db, from.unwrap_or(last_few), from.is_some(), |change| printer.change(change, filter))
}

/// Visits the commits from `from` up to the newest and answers the number of the next one. Unless `exactly` from there,
/// it begins with the oldest that the log still holds.
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

/// Closes the database and answers the state of its log at the end of our turn: closed, but not yet anybody else's.
fn let_go(db: Database, at: &Path) -> Result<LogState> {
    let lock = db.clone();
    db.close()?;
    let state = state_of_log(at);
    drop(lock);
    Ok(state)
}

type LogState = Vec<(std::ffi::OsString, Option<SystemTime>)>;

/// Names and times of the log's files. Unreadable counts as a state too: the next opening says what is wrong.
fn state_of_log(at: &Path) -> LogState {
    let entries = std::fs::read_dir(at.join("log")).into_iter().flatten().flatten();
    let mut state: LogState =
        entries.map(|entry| (entry.file_name(), entry.metadata().and_then(|m| m.modified()).ok())).collect();
    state.sort();
    state
}

/// Which parts of a commit are shown.
struct Filter<'a> {
    store: Option<&'a str>,
    item: QueryItem,
}

impl Filter<'_> {
    fn is_open(&self) -> bool {
        self.store.is_none() && self.item.types.is_empty() && self.item.tags.is_empty()
    }
}

/// Writes commits as rows, or for eyes as a headline and a line for each thing written.
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

    fn change(&mut self, change: &Change<'_>, filter: &Filter<'_>) -> Result {
        let mut headed = false;
        for cells in rows(change, filter)? {
            match self {
                Self::Rows(report) => report.row(cells)?,
                Self::Lines(out) => {
                    if !std::mem::replace(&mut headed, true) {
                        let at = time(change.time_micros).eyes();
                        writeln!(out, "commit {}  {at}", thousands(change.seq.0))?;
                    }
                    let told = cells.iter().skip(2).map(Cell::eyes).filter(|text| !text.is_empty());
                    writeln!(out, "  {}", told.collect::<Vec<_>>().join("  "))?;
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

/// What the filter lets through of a commit, as rows.
fn rows(change: &Change<'_>, filter: &Filter<'_>) -> Result<Vec<Vec<Cell>>> {
    let mut rows = Vec::new();
    for part in &change.parts {
        match part {
            ChangedPart::Events { store, append } if filter.store.is_none_or(|wanted| wanted == store) => {
                for event in append.events() {
                    let (position, event) = event.map_err(|error| damaged(change, store, &error))?;
                    if filter.item.matches(event.event_type(), event.tags()) {
                        let (seq, time_micros) = (change.seq, change.time_micros);
                        let event = event.to_event();
                        let event = SequencedEvent { position, seq, time_micros, event, tracking: None };
                        rows.push(event_row(store, event));
                    }
                }
            }
            ChangedPart::Keys(writes) if filter.is_open() => {
                rows.extend(writes.iter().map(|(keyspace, write)| key_row(change, keyspace.id(), write)));
            }
            ChangedPart::Other(model, bytes) if filter.is_open() => {
                let what = format!("{} bytes of model {}, unknown to this version", bytes.len(), model.0);
                rows.push(padded(
                    change,
                    [Cell::None, what.into(), Cell::None, Cell::None],
                    Cell::None,
                    Cell::None,
                ));
            }
            ChangedPart::Events { .. } | ChangedPart::Keys(_) | ChangedPart::Other(..) => {}
        }
    }
    Ok(rows)
}

/// Decodes everything that a commit wrote.
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

fn event_row(store: &str, event: SequencedEvent) -> Vec<Cell> {
    let mut cells = events::row(event).into_iter();
    let (position, seq, time) = (cells.next(), cells.next(), cells.next());
    let head = [seq, time, Some(store.into()), position].into_iter().flatten();
    head.chain(cells).chain(std::iter::repeat_n(Cell::None, KEYS_COLUMNS)).collect()
}

fn key_row(change: &Change<'_>, keyspace: u16, write: &KvWrite<'_>) -> Vec<Cell> {
    let (what, key, value) = match write {
        KvWrite::Put(key, value) => ("put", *key, Some(*value)),
        KvWrite::Delete(key) => ("delete", *key, None),
        KvWrite::DeleteRange(start, end) => ("delete up to", *start, Some(*end)),
    };
    let (key, key_encoding) = payload(key);
    let (data, encoding) = value.map_or((Cell::None, Cell::None), payload);
    padded(change, [u64::from(keyspace).into(), what.into(), key, key_encoding], data, encoding)
}

/// A row without an event.
fn padded(change: &Change<'_>, keys: [Cell; KEYS_COLUMNS], data: Cell, encoding: Cell) -> Vec<Cell> {
    let mut cells = vec![change.seq.0.into(), time(change.time_micros)];
    cells.resize(COLUMNS.len() - KEYS_COLUMNS - 2, Cell::None);
    cells.extend([data, encoding]);
    cells.extend(keys);
    cells
}
