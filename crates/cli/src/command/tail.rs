//! The change feed: every commit in order, whatever store it wrote to.
//!
//! A server tells it as a stream. Without one, a single process owns a database, so following means taking turns: print
//! what is there, let go, and look again when the files of the log have changed. Nothing is skipped, because the feed
//! resumes by commit number, whoever tells it; a process that holds the database for long is waited for.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use ropewalk::{Change, ChangedPart, Database, EngineError, KvWrite, QueryItem, Seq, SequencedEvent};

use crate::command::Tail;
use crate::command::events;
use crate::database::context::Context;
use crate::database::place::Place;
use crate::database::remote::Remote;
use crate::output::failure::{Exit, Failure, Result};
use crate::output::report::{Cell, Mode, Report, payload, thousands, time};

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
        item: QueryItem::new(arguments.types.clone(), arguments.tags.clone()),
    };
    let mut printer = Printer::new(context)?;
    let mut next = arguments.from.map(Seq);
    let mut told = false;
    loop {
        match context.place() {
            Ok(place) => {
                if !arguments.follow && context.store.is_some() {
                    place.existing_store(context)?;
                }
                let written = match place {
                    Place::Here(db) => {
                        next = Some(print_from(&db, next, &filter, &mut printer)?);
                        if !arguments.follow {
                            return printer.finish();
                        }
                        printer.flush()?;
                        Some(let_go(db, &context.at)?)
                    }
                    Place::There(remote) => {
                        let ended = print_remote(&remote, &mut next, arguments.follow, &filter, &mut printer);
                        if !arguments.follow {
                            return ended.and_then(|()| printer.finish());
                        }
                        goes_on(context, ended)?;
                        None
                    }
                };
                told = false;
                std::thread::sleep(LOOK);
                while written.as_ref().is_some_and(|written| state_of_log(&context.at) == *written) {
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

/// A server that lets go of the directory is no end: another, or we ourselves, will open it.
fn goes_on(context: &Context, ended: Result) -> Result {
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

/// Prints the commits that a server tells; `next` follows them.
fn print_remote(
    remote: &Remote,
    next: &mut Option<Seq>,
    follow: bool,
    filter: &Filter<'_>,
    printer: &mut Printer,
) -> Result {
    remote.changes(*next, DEFAULT_COMMITS, follow, |told| {
        *next = Some(told.seq.next());
        printer.told(told, filter)?;
        if follow { printer.flush() } else { Ok(()) }
    })
}

/// Prints the commits from `from` on and answers the number of the next one.
fn print_from(db: &Database, from: Option<Seq>, filter: &Filter<'_>, printer: &mut Printer) -> Result<Seq> {
    let last_few = Seq((db.seq().0 + 1).saturating_sub(DEFAULT_COMMITS));
    each_change(db, from.unwrap_or(last_few), from.is_some(), |change| printer.told(told(change)?, filter))
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
    fn lets_through(&self, part: &ToldPart) -> bool {
        let all = self.item.types.is_empty() && self.item.tags.is_empty();
        let wants = |store: &str| self.store.is_none_or(|wanted| wanted == store);
        match part {
            ToldPart::Event { store, event } => {
                let tags = event.event.tags.iter().map(String::as_str);
                wants(store) && self.item.matches(&event.event.event_type, tags)
            }
            ToldPart::Deleted { store } => wants(store) && all,
            ToldPart::Key { .. } | ToldPart::Other { .. } => self.store.is_none() && all,
        }
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

    fn told(&mut self, told: Told, filter: &Filter<'_>) -> Result {
        let mut headed = false;
        let (seq, time_micros) = (told.seq, told.time_micros);
        for part in told.parts.into_iter().filter(|part| filter.lets_through(part)) {
            let cells = row(seq, time_micros, part);
            match self {
                Self::Rows(report) => report.row(cells)?,
                Self::Lines(out) => {
                    if !std::mem::replace(&mut headed, true) {
                        writeln!(out, "commit {}  {}", thousands(seq.0), time(time_micros).eyes())?;
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

/// A commit as it is told, read here or sent by a server.
pub(crate) struct Told {
    pub(crate) seq: Seq,
    pub(crate) time_micros: i64,
    pub(crate) parts: Vec<ToldPart>,
}

/// One thing that a commit did.
pub(crate) enum ToldPart {
    Event {
        store: String,
        event: SequencedEvent,
    },
    Deleted {
        store: String,
    },
    /// Without the value: a server keeps its secrets in a keyspace.
    Key {
        keyspace: u64,
        change: String,
        key: Vec<u8>,
        end: Option<Vec<u8>>,
    },
    /// Another model's, without what it says.
    Other {
        model: String,
        bytes: u64,
    },
}

fn told(change: &Change<'_>) -> Result<Told> {
    let (seq, time_micros) = (change.seq, change.time_micros);
    // What other models got comes last, as servers tell it.
    let (mut parts, mut others) = (Vec::new(), Vec::new());
    for part in &change.parts {
        match part {
            ChangedPart::Events { store, append } => {
                parts.extend(append.deletes.then(|| ToldPart::Deleted { store: store.clone() }));
                for event in append.events() {
                    let (position, event) = event.map_err(|error| damaged(change, store, &error))?;
                    // No command shows what was tracked.
                    let event = SequencedEvent {
                        position,
                        seq,
                        time_micros,
                        event: event.to_event(),
                        tracking: None,
                    };
                    parts.push(ToldPart::Event { store: store.clone(), event });
                }
            }
            ChangedPart::Keys(writes) => parts.extend(writes.iter().map(|(keyspace, write)| {
                let (change, key, end) = match write {
                    KvWrite::Put(key, _) => ("put", key, None),
                    KvWrite::Delete(key) => ("delete", key, None),
                    KvWrite::DeleteRange(start, end) => ("delete_range", start, Some(end.to_vec())),
                };
                ToldPart::Key {
                    keyspace: keyspace.id().into(),
                    change: change.to_owned(),
                    key: key.to_vec(),
                    end,
                }
            })),
            ChangedPart::Other(_, bytes) => {
                let model = part.model().unwrap_or("unknown").to_owned();
                others.push(ToldPart::Other { model, bytes: bytes.len() as u64 });
            }
        }
    }
    parts.extend(others);
    Ok(Told { seq, time_micros, parts })
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

/// A part as a row.
fn row(seq: Seq, time_micros: i64, part: ToldPart) -> Vec<Cell> {
    let (store, what) = match part {
        ToldPart::Event { store, event } => {
            let mut cells = events::row(event).into_iter();
            let (position, seq, time) = (cells.next(), cells.next(), cells.next());
            let head = [seq, time, Some(store.into()), position].into_iter().flatten();
            return head.chain(cells).chain(std::iter::repeat_n(Cell::None, KEYS_COLUMNS)).collect();
        }
        ToldPart::Deleted { store } => (store.into(), [Cell::None, "deleted".into(), Cell::None, Cell::None]),
        ToldPart::Other { model, bytes } => {
            let what = match model.as_str() {
                "unknown" => format!("{bytes} bytes of a model that is unknown to this version"),
                model => format!("{bytes} bytes of {model}"),
            };
            (Cell::None, [Cell::None, what.into(), Cell::None, Cell::None])
        }
        ToldPart::Key { keyspace, change, key, end } => {
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
