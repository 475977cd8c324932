use std::path::Path;

use ropewalk_base::Seq;
use ropewalk_engine::{Background, Damage as LogDamage, EngineOptions, ReadMode, SharedOptions};
use ropewalk_vfs::Env;

use crate::database::Database;
use crate::database::observer::{Observer, Step};
use crate::error::Result;

/// Options for opening a database. The defaults suit most applications.
#[derive(Debug, Clone)]
pub struct Options {
    pub(crate) engine: EngineOptions,
    pub(crate) env: Env,
    pub(crate) must_exist: bool,
    pub(crate) observer: Option<Observer>,
}

impl Default for Options {
    fn default() -> Self {
        Self { engine: EngineOptions::default(), env: Env::real(), must_exist: false, observer: None }
    }
}

impl Options {
    /// Returns the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes for memtables and caches together. Default 512 MiB, minimum 1 MiB.
    #[must_use]
    pub fn memory_budget(mut self, bytes: u64) -> Self {
        self.engine.memory_budget = bytes.max(1 << 20);
        self
    }

    /// Bytes of log retained before the checkpoint for change feeds. Default 64 MiB.
    #[must_use]
    pub fn log_retention(mut self, bytes: u64) -> Self {
        self.engine.log_retention_bytes = bytes;
        self
    }

    /// Puts everything that changes the contents into the log, bulk loads included. Default false.
    ///
    /// For readers that have only the log. A large load takes longer then.
    #[must_use]
    pub fn log_everything(mut self, yes: bool) -> Self {
        self.engine.log_everything = yes;
        self
    }

    /// Shares the log with other nodes: see [`crate::cluster`]. Default: the database is alone.
    ///
    /// It opens as a follower, which reads what it has and refuses to write.
    #[must_use]
    pub fn shared(mut self, shared: SharedOptions) -> Self {
        self.engine.shared = Some(shared);
        self
    }

    /// How immutable files are read. Default: mapped while they fit in memory, otherwise `pread`.
    #[must_use]
    pub fn read_mode(mut self, mode: ReadMode) -> Self {
        self.engine.store.read_mode = mode;
        self
    }

    /// Where background work runs. [`Background::Manual`] is for simulation.
    #[must_use]
    pub fn background(mut self, background: Background) -> Self {
        self.engine.background = background;
        self
    }

    /// File system, clock and randomness. Default: those of the machine.
    #[must_use]
    pub fn env(mut self, env: Env) -> Self {
        self.env = env;
        self
    }

    /// Fails if there is no database at the path, instead of creating one.
    #[must_use]
    pub fn must_exist(mut self) -> Self {
        self.must_exist = true;
        self
    }

    /// Calls `observer` at each step of each transaction, with the number of the transaction.
    ///
    /// It runs in the thread of the transaction, which waits for it. Numbers begin at 1 with each open. The
    /// transactions of projections, consumer groups and SQL sessions are reported, too. Without an observer a
    /// step costs one comparison.
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use ropewalk::engine::Env;
    /// use ropewalk::transaction::Step;
    /// use ropewalk::{AppendOptions, Error, Event, Options};
    ///
    /// # fn main() -> Result<(), Error> {
    /// let slowest = Arc::new(Mutex::new(std::time::Duration::ZERO));
    /// let seen = slowest.clone();
    /// let options = Options::new().env(Env::memory()).observer(move |transaction, step| match step {
    ///     Step::Commit { commit, .. } => {
    ///         let mut slowest = seen.lock().unwrap();
    ///         *slowest = slowest.max(*commit);
    ///     }
    ///     Step::Conflict { error, .. } => eprintln!("transaction {transaction}: {error}"),
    ///     _ => {}
    /// });
    /// let db = options.open("/db")?;
    /// let store = db.events("shop")?;
    /// db.run(|tx| tx.append(&store, &[Event::new("Placed")], AppendOptions::default()))?;
    /// assert!(!slowest.lock().unwrap().is_zero());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn observer(mut self, observer: impl Fn(u64, &Step<'_>) + Send + Sync + 'static) -> Self {
        self.observer = Some(Observer::new(observer));
        self
    }

    /// The engine settings, for those without a method here.
    pub fn engine_mut(&mut self) -> &mut EngineOptions {
        &mut self.engine
    }

    /// Opens or creates the database in directory `path`.
    ///
    /// # Errors
    /// [`crate::Class::Busy`] if another process has the database open (the message names it); I/O errors;
    /// corrupt data; a newer format.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Database> {
        Database::open_with(path.as_ref(), self)
    }

    /// Reports the damage in the log at `path`, and what [`Options::salvage_log`] would lose.
    ///
    /// Returns `None` if the log opens. The log is not changed. With `before`, the log is treated as ending
    /// before that commit at the latest.
    ///
    /// # Errors
    /// [`crate::Class::Invalid`] if commit `before` is already flushed; [`crate::Class::Busy`] if another
    /// process has the database open; I/O errors; a corrupt manifest; a newer format.
    pub fn inspect_log(&self, path: impl AsRef<Path>, before: Option<Seq>) -> Result<Option<LogDamage>> {
        Ok(ropewalk_engine::inspect_log(&self.env, path.as_ref(), before)?)
    }

    /// Truncates a damaged log before its damage, so that the database opens again.
    ///
    /// All commits from there on, and from commit `before` on if given, are lost. The bytes cut off are
    /// preserved in files named `*.damaged`. Returns `None` if the log opens as it is. May be repeated.
    ///
    /// # Errors
    /// As [`Options::inspect_log`].
    pub fn salvage_log(&self, path: impl AsRef<Path>, before: Option<Seq>) -> Result<Option<LogDamage>> {
        Ok(ropewalk_engine::salvage_log(&self.env, path.as_ref(), before)?)
    }
}
