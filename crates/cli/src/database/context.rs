//! Global options of all commands: database, store, output format.

use std::io::{self, BufWriter, Stdout};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use clap::{Args, ValueHint};
use ropewalk::engine::EngineError;
use ropewalk::{Class, Database, Options};

use crate::database::place::{Place, Store};
use crate::database::remote::{Endpoint, Remote, Secrets, Url, is_served};
use crate::output::cell::Cell;
use crate::output::failure::{Exit, Failure, Result};
use crate::output::report::{Mode, Report};
use crate::values::{bytes, seconds};

const AT_HELP: &str = "Database directory, or http[s]://[USER@]HOST[:PORT] of a server \
     [default: $ROPEWALK_AT, else ./ropewalk.db]";

#[derive(Debug, Clone, Args)]
pub(crate) struct Global {
    #[arg(long, global = true, value_name = "PATH|URL", value_hint = ValueHint::DirPath, help = AT_HELP)]
    pub(crate) at: Option<PathBuf>,
    /// Event store inside the database [default: default]
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) store: Option<String>,
    /// Form of the output [default: table on a terminal, ndjson elsewhere]
    #[arg(long, global = true, value_enum)]
    pub(crate) mode: Option<Mode>,
    /// Bytes for memtables and caches together, such as 256MiB [default: 512MiB]
    #[arg(long, global = true, value_name = "BYTES", value_parser = bytes)]
    pub(crate) memory: Option<u64>,
    /// Seconds to wait while another process has the database open
    #[arg(long, global = true, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub(crate) wait: Duration,
    /// API token for the server of --at; prefer the variable, which other users cannot see
    #[arg(long, global = true, value_name = "TOKEN", env = "ROPEWALK_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// Trust the certificates in this PEM file instead of the system's
    #[arg(long, global = true, value_name = "FILE", env = "ROPEWALK_CA", value_hint = ValueHint::FilePath)]
    pub(crate) ca: Option<PathBuf>,
}

/// Interval between attempts to open a busy database.
pub(crate) const RETRY: Duration = Duration::from_millis(20);

/// The global options, with their defaults filled in.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    /// The database directory.
    pub(crate) at: PathBuf,
    /// The server, when --at names one.
    url: Option<Url>,
    secrets: Secrets,
    /// The store, when one was named.
    pub(crate) store: Option<String>,
    mode: Option<Mode>,
    memory: Option<u64>,
    pub(crate) wait: Duration,
}

impl Context {
    pub(crate) fn new(global: Global) -> Result<Self> {
        let at = global.at.or_else(|| std::env::var_os("ROPEWALK_AT").map(PathBuf::from));
        let at = at.unwrap_or_else(|| "ropewalk.db".into());
        let url = at.to_str().filter(|text| Url::is_meant(text)).map(Url::parse).transpose();
        let url = url.map_err(|what| Failure::invalid(format!("--at {}: {what}", at.display())))?;
        Ok(Self {
            at,
            url,
            secrets: Secrets { token: global.token, ca: global.ca },
            store: global.store,
            mode: global.mode,
            memory: global.memory,
            wait: global.wait,
        })
    }

    /// The target as given, without secrets.
    pub(crate) fn shown(&self) -> String {
        self.url.as_ref().map_or_else(|| self.at.display().to_string(), Url::shown)
    }

    /// Rejects a server, for commands that work on the files themselves.
    pub(crate) fn needs_directory(&self) -> Result {
        if self.url.is_none() {
            return Ok(());
        }
        let what = format!("this command works on a database directory, and {} is a server", self.shown());
        Err(Failure::new(Exit::Invalid, what, "Run it where the files are, with --at DIRECTORY"))
    }

    /// Opens the target: the server of --at, the directory, or the server that holds it.
    pub(crate) fn place(&self) -> Result<Place> {
        if let Some(url) = &self.url {
            return self.connect(Endpoint::Url(url.clone()));
        }
        self.must_exist()?;
        let deadline = Instant::now() + self.wait;
        loop {
            match self.options().open(&self.at) {
                Ok(db) => return Ok(Place::Local(db)),
                Err(ropewalk::Error::Engine(EngineError::Locked { .. })) if is_served(&self.at) => {
                    return self.connect(Endpoint::Local(self.at.clone()));
                }
                Err(error) if error.class() == Class::Busy && Instant::now() < deadline => {
                    std::thread::sleep(RETRY);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Connects to another node of the server of --at, with the same user or token.
    pub(crate) fn node(&self, address: &str) -> Result<Remote> {
        let invalid = |what: String| Failure::invalid(format!("{address}: {what}"));
        let mut url = Url::parse(address).map_err(invalid)?;
        if let Some(asked) = &self.url {
            url.user.clone_from(&asked.user);
            url.password.clone_from(&asked.password);
        }
        Remote::connect(Endpoint::Url(url), self.secrets.clone())
    }

    fn connect(&self, endpoint: Endpoint) -> Result<Place> {
        Ok(Place::Remote(Rc::new(Remote::connect(endpoint, self.secrets.clone())?)))
    }

    /// The store of `place` that a command reads, which must exist.
    pub(crate) fn existing_store(&self, place: &Place) -> Result<Store> {
        place.existing_store(self.store_name(), &self.shown())
    }

    pub(crate) fn store_name(&self) -> &str {
        self.store.as_deref().unwrap_or("default")
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode.unwrap_or_else(Mode::automatic)
    }

    /// Standard output with a large buffer.
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

    /// Prints one number: bare, or as a row when --mode names a form.
    pub(crate) fn print_number(&self, columns: &'static [&'static str; 1], number: u64) -> Result {
        if self.mode.is_some() {
            return self.print_row(columns, vec![number.into()]);
        }
        use std::io::Write;
        Ok(writeln!(io::stdout(), "{number}")?)
    }

    /// True if the directory contains a database, complete or partial.
    pub(crate) fn exists(&self) -> bool {
        ["store", "log"].iter().any(|part| self.at.join(part).is_dir())
    }

    /// Fails if the directory contains no database.
    pub(crate) fn must_exist(&self) -> Result {
        self.needs_directory()?;
        if self.exists() {
            return Ok(());
        }
        let what = format!("there is no database in {}", self.at.display());
        Err(Failure::new(
            Exit::NotFound,
            what,
            "`ropewalk init` creates one; --at PATH or ROPEWALK_AT selects another",
        ))
    }

    /// Opens the existing database.
    pub(crate) fn open(&self) -> Result<Database> {
        self.must_exist()?;
        self.open_or_create()
    }

    /// Opens the database, or creates it.
    pub(crate) fn open_or_create(&self) -> Result<Database> {
        self.patiently(|options| options.open(&self.at))
    }

    /// Runs `work`, which needs exclusive access to the directory; retries while it is busy, for at most --wait.
    pub(crate) fn patiently<T>(
        &self,
        work: impl Fn(Options) -> std::result::Result<T, ropewalk::Error>,
    ) -> Result<T> {
        self.needs_directory()?;
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
}

/// The canonical path, for one name per place.
pub(crate) fn canonical(path: &Path) -> Result<PathBuf> {
    std::fs::canonicalize(path).map_err(|error| Failure::file("open", path, &error))
}
