//! What every command needs: where the database is, which store, which form of output.

use std::io::{self, BufWriter, Stdout};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ropewalk::{Class, Database, EventStore, Options};

use crate::args::Global;
use crate::failure::{Exit, Failure, Result};
use crate::output::{Cell, Mode, Report};

/// How often a busy database is tried again.
const RETRY: Duration = Duration::from_millis(20);

/// The global options, with their defaults filled in.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    /// The database directory.
    pub(crate) at: PathBuf,
    /// The store, when one was named.
    pub(crate) store: Option<String>,
    mode: Option<Mode>,
    memory: Option<u64>,
    wait: Duration,
}

impl Context {
    pub(crate) fn new(global: Global) -> Self {
        let at = global.at.or_else(|| std::env::var_os("ROPEWALK_AT").map(PathBuf::from));
        Self {
            at: at.unwrap_or_else(|| "ropewalk.db".into()),
            store: global.store,
            mode: global.mode,
            memory: global.memory,
            wait: global.wait,
        }
    }

    pub(crate) fn store_name(&self) -> &str {
        self.store.as_deref().unwrap_or("default")
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode.unwrap_or_else(Mode::automatic)
    }

    /// Standard output, written in large pieces.
    pub(crate) fn out(&self) -> BufWriter<Stdout> {
        BufWriter::with_capacity(64 << 10, io::stdout())
    }

    pub(crate) fn report(&self, columns: &'static [&'static str]) -> Result<Report<BufWriter<Stdout>>> {
        Ok(Report::new(self.out(), self.mode(), columns)?)
    }

    /// Prints a report of one row.
    pub(crate) fn print_row(&self, columns: &'static [&'static str], cells: Vec<Cell>) -> Result {
        let mut report = self.report(columns)?;
        report.row(cells)?;
        Ok(report.finish()?)
    }

    /// Prints one number: bare for people and scripts, as a row when a form was asked for.
    pub(crate) fn print_number(&self, columns: &'static [&'static str; 1], number: u64) -> Result {
        if self.mode.is_some() {
            return self.print_row(columns, vec![number.into()]);
        }
        use std::io::Write;
        Ok(writeln!(io::stdout(), "{number}")?)
    }

    /// True when a database, whole or in part, lies in the directory.
    pub(crate) fn exists(&self) -> bool {
        ["store", "log"].iter().any(|part| self.at.join(part).is_dir())
    }

    /// Refuses where there is no database.
    pub(crate) fn must_exist(&self) -> Result {
        if self.exists() {
            return Ok(());
        }
        let what = format!("there is no database in {}", self.at.display());
        Err(Failure::new(
            Exit::NotFound,
            what,
            "`ropewalk init` makes one; --at PATH or ROPEWALK_AT names another",
        ))
    }

    /// Opens the database that must be there.
    pub(crate) fn open(&self) -> Result<Database> {
        self.must_exist()?;
        self.open_or_create()
    }

    /// Opens the database, created if it is not there.
    pub(crate) fn open_or_create(&self) -> Result<Database> {
        self.patiently(|options| options.open(&self.at))
    }

    /// Does what needs the database for itself, waiting for another process to let go of it as long as --wait allows.
    pub(crate) fn patiently<T>(
        &self,
        work: impl Fn(Options) -> std::result::Result<T, ropewalk::Error>,
    ) -> Result<T> {
        let deadline = Instant::now() + self.wait;
        loop {
            match work(self.options()) {
                Err(error) if error.class() == Class::Busy && Instant::now() < deadline => {
                    std::thread::sleep(RETRY);
                }
                result => return Ok(result?),
            }
        }
    }

    fn options(&self) -> Options {
        let options = Options::new();
        match self.memory {
            Some(bytes) => options.memory_budget(bytes),
            None => options,
        }
    }

    /// The store that the command reads, which must exist.
    pub(crate) fn existing_store(&self, db: &Database) -> Result<EventStore> {
        db.existing_events(self.store_name()).map_err(|error| {
            let known = db.event_stores();
            if error.class() != Class::NotFound {
                return error.into();
            }
            let what = match known.as_slice() {
                [] => format!("{error}; the database in {} has none yet", self.at.display()),
                known => format!("{error}; there are: {}", known.join(", ")),
            };
            Failure::new(
                Exit::NotFound,
                what,
                "--store NAME chooses one; a store comes into being with its first append",
            )
        })
    }
}

/// The same place under one name, however it was written.
pub(crate) fn canonical(path: &Path) -> Result<PathBuf> {
    std::fs::canonicalize(path).map_err(|error| Failure::file("open", path, &error))
}
