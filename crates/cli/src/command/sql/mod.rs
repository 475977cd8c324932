//! `ropewalk sql`: statements from the command line, from a script, or typed at a prompt.
//!
//! ```text
//! argument, -c, file, stdin ─▶ split ─▶ Runner ─▶ Session ─▶ form ─▶ standard output      (a server: remote ─▶ POST /v1/sql ─▶ form)
//! terminal ─▶ shell ──────────────┘          └─ \d, .tables, ... ─▶ queries over the catalog
//! ```

mod commands;
mod complete;
mod editor;
mod form;
mod highlight;
mod remote;
mod shell;
mod split;
mod watch;

use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, ValueHint};
use ropewalk_sql::{CopyDirection, Outcome, Prepared, Session, SqlError, state};

use crate::database::context::Context;
use crate::database::place::Place;
use crate::output::failure::{Exit, Failure, Result};
use crate::values::bytes;
use form::Form;
use watch::Watch;

/// Bytes per read of COPY from standard input.
const PIECE_BYTES: usize = 64 << 10;

/// Arguments of `ropewalk sql`.
#[derive(Debug, Args)]
pub(crate) struct Sql {
    /// Statements to run before those of -c, as one transaction
    #[arg(value_name = "SQL")]
    statements: Option<String>,
    /// Statements to run; repeat for more. Those of one -c are one transaction, as in psql
    #[arg(short = 'c', long = "command", value_name = "SQL")]
    commands: Vec<String>,
    /// File of statements to run after those of -c; - is standard input
    #[arg(short = 'f', long = "file", value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: Option<PathBuf>,
    /// Bytes for in-memory columns of tables that queries scan, in addition to --memory [default: a quarter
    /// of the memory that the process may use]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    column_memory: Option<u64>,
}

impl Sql {
    /// True if the statements are typed at a terminal.
    fn is_typed(&self) -> bool {
        self.texts().next().is_none() && self.file.is_none() && io::stdin().is_terminal()
    }

    /// The texts of the command line, in order.
    fn texts(&self) -> impl Iterator<Item = &str> {
        self.statements.iter().chain(&self.commands).map(String::as_str)
    }
}

pub(crate) fn sql(context: &Context, sql: &Sql) -> Result {
    let db = match context.place()? {
        Place::Local(db) => db,
        Place::Remote(remote) => return remote::run(&remote, sql, context.mode().into()),
    };
    if let Some(bytes) = sql.column_memory {
        ropewalk_sql::limit_columns(&db, usize::try_from(bytes).unwrap_or(usize::MAX));
    }
    let is_typed = sql.is_typed();
    let mut runner = Runner {
        session: Session::new(db.clone()),
        form: context.mode().into(),
        has_timer: false,
        watch: is_typed.then(|| Watch::new(db.clone())),
    };
    let done = match is_typed {
        true => shell::run(&mut runner, &context.shown()),
        false => runner.run(sql),
    };
    drop(runner);
    let closed = db.close();
    done.and(Ok(closed?))
}

/// Runs statements and prints their results.
pub(crate) struct Runner {
    session: Session,
    form: Form,
    has_timer: bool,
    /// Only for an interactive session.
    watch: Option<Watch>,
}

/// Source of the data of COPY FROM STDIN.
enum Data<'s> {
    StandardInput,
    /// After the statement, up to a line `\.`, as pg_dump writes it.
    Behind(&'s str),
}

impl Runner {
    fn run(&mut self, sql: &Sql) -> Result {
        sql.texts().try_for_each(|text| self.command(text))?;
        match &sql.file {
            Some(file) if file.as_os_str() != "-" => self.file(file),
            None if sql.texts().next().is_some() => Ok(()),
            _ => {
                let mut text = String::new();
                io::stdin().read_to_string(&mut text).map_err(|error| unread(&error))?;
                self.script(&text).map_err(|(line, failure)| failure.at(&format!("line {line}")))
            }
        }
    }

    /// Runs the statements of one -c as one transaction, unless there is only one or they say otherwise.
    fn command(&mut self, text: &str) -> Result {
        let (first, behind) = split::first(text).unwrap_or((text, ""));
        if split::is_blank(behind) || split::is_command(first) {
            return self.one(first, &mut Data::StandardInput);
        }
        let outcomes = self.session.execute_all(text).map_err(failure)?;
        outcomes.iter().try_for_each(|outcome| self.show(outcome))
    }

    /// Runs a script of a file.
    fn file(&mut self, file: &Path) -> Result {
        let text = std::fs::read_to_string(file).map_err(|error| Failure::file("read", file, &error))?;
        self.script(&text).map_err(|(line, failure)| failure.at(&format!("{}:{line}", file.display())))
    }

    /// Runs a script statement by statement; fails at the first failing one, with its line.
    fn script(&mut self, text: &str) -> Result<(), (usize, Failure)> {
        let mut rest = text;
        loop {
            let (statement, behind) = split::first(rest).unwrap_or((rest, ""));
            let mut data = Data::Behind(behind);
            if !split::is_blank(statement) {
                let begins = text.len() - rest.len() + statement.len() - split::bare(statement).len();
                self.one(statement, &mut data).map_err(|failure| {
                    (1 + text.get(..begins).unwrap_or_default().matches('\n').count(), failure)
                })?;
            }
            rest = match data {
                Data::Behind(behind) => behind,
                Data::StandardInput => behind,
            };
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// Runs one statement or shell command.
    fn one(&mut self, text: &str, data: &mut Data<'_>) -> Result {
        if split::is_command(text) {
            return commands::run(self, split::bare(text).trim());
        }
        let began = Instant::now();
        let running = self.watch.as_ref().map(|watch| watch.begin(self.session.canceller()));
        let outcome = self.answer(text, data);
        drop(running);
        self.show(&outcome?)?;
        if self.has_timer {
            say(&format!("{:.3} ms", began.elapsed().as_secs_f64() * 1e3), "\n");
        }
        Ok(())
    }

    fn answer(&mut self, text: &str, data: &mut Data<'_>) -> Result<Outcome> {
        let mut prepared = self.session.prepare(text).map_err(failure)?;
        match prepared.copy().map(|copy| copy.way) {
            Some(CopyDirection::Out) => self.copy_out(&mut prepared),
            Some(CopyDirection::In) => self.copy_in(&mut prepared, data),
            None => self.session.run(&mut prepared, &[]).map_err(failure),
        }
    }

    fn copy_out(&mut self, prepared: &mut Prepared) -> Result<Outcome> {
        let mut out = io::stdout().lock();
        let mut broken = None;
        let outcome = self.session.copy_out(prepared, &mut |bytes| {
            out.write_all(bytes).map_err(|error| {
                let message = error.to_string();
                broken = Some(error);
                SqlError::new(state::IO_ERROR, message)
            })
        });
        match broken {
            Some(error) => Err(error.into()),
            None => outcome.map_err(failure),
        }
    }

    fn copy_in(&mut self, prepared: &mut Prepared, data: &mut Data<'_>) -> Result<Outcome> {
        let mut copy = self.session.copy_in(prepared).map_err(failure)?;
        match data {
            Data::Behind(behind) => {
                // The data starts on the line after the statement.
                let text = behind.split_once('\n').map_or("", |(_, text)| text);
                let (rows, left) = until_end(text);
                *behind = left;
                self.session.copy_data(&mut copy, rows.as_bytes()).map_err(failure)?;
            }
            Data::StandardInput => {
                let mut input = io::stdin().lock();
                let mut piece = vec![0; PIECE_BYTES];
                loop {
                    let read = input.read(&mut piece).map_err(|error| unread(&error))?;
                    if read == 0 {
                        break;
                    }
                    let bytes = piece.get(..read).unwrap_or_default();
                    self.session.copy_data(&mut copy, bytes).map_err(failure)?;
                }
            }
        }
        self.session.copy_end(copy).map_err(failure)
    }

    fn show(&self, outcome: &Outcome) -> Result {
        if let Some(notice) = &outcome.notice {
            let kind = if notice.state.0 == "00000" { "NOTICE" } else { "WARNING" };
            say(&format!("{kind}: {notice}"), "\n");
        }
        if outcome.columns.is_some() {
            let mut out = io::BufWriter::with_capacity(PIECE_BYTES, io::stdout().lock());
            form::show(outcome, self.form, &self.session.settings().zone, &mut out)?;
            out.flush()?;
        } else if self.watch.is_some() {
            say(&outcome.tag().to_string(), "\n");
        }
        Ok(())
    }
}

/// The lines before a line `\.`, and the text after it.
fn until_end(text: &str) -> (&str, &str) {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let behind = at + line.len();
        if line.trim_end_matches(['\r', '\n']) == "\\." {
            return (text.get(..at).unwrap_or_default(), text.get(behind..).unwrap_or_default());
        }
        at = behind;
    }
    (text, "")
}

/// Prints a message on standard error. Errors are ignored: a terminal that is gone is detected where it is read.
fn say(text: &str, end: &str) {
    let _ = write!(io::stderr(), "{text}{end}");
}

fn unread(error: &io::Error) -> Failure {
    Failure::file("read", Path::new("standard input"), error)
}

/// Converts the error of a statement.
fn failure(error: SqlError) -> Failure {
    let exit = match error.state.0 {
        "40001" => Exit::Conflict,
        "53200" | "55P03" => Exit::Busy,
        "XX001" => Exit::Corrupt,
        "58030" => Exit::Io,
        "XX000" => Exit::Internal,
        "42P01" | "42704" => Exit::NotFound,
        _ => Exit::Invalid,
    };
    let hint = error.hint.as_ref().map_or_else(String::new, |hint| format!(" ({hint})"));
    Failure::new(exit, format!("{}: {}{hint}", error.state, error.message), "")
}
