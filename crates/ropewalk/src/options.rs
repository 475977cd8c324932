use std::path::Path;

use ropewalk_base::Seq;
use ropewalk_engine::{Background, Damage as LogDamage, EngineOptions, ReadMode};
use ropewalk_vfs::Env;

use crate::database::Database;
use crate::error::Error;

/// How to open a database. Defaults suit most; memory is one number.
#[derive(Debug, Clone)]
pub struct Options {
    pub(crate) engine: EngineOptions,
    pub(crate) env: Env,
    pub(crate) must_exist: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { engine: EngineOptions::default(), env: Env::real(), must_exist: false }
    }
}

impl Options {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes for memtables and caches together. Default 512 MiB, least 1 MiB.
    #[must_use]
    pub fn memory_budget(mut self, bytes: u64) -> Self {
        self.engine.memory_budget = bytes.max(1 << 20);
        self
    }

    /// Bytes of log kept behind the checkpoint, so that a change feed can resume. Default 64 MiB.
    #[must_use]
    pub fn log_retention(mut self, bytes: u64) -> Self {
        self.engine.log_retention_bytes = bytes;
        self
    }

    /// How sealed files are read. Default: mapped while they fit memory, else `pread`.
    #[must_use]
    pub fn read_mode(mut self, mode: ReadMode) -> Self {
        self.engine.store.read_mode = mode;
        self
    }

    /// Who does the background work. [`Background::Manual`] is for simulation.
    #[must_use]
    pub fn background(mut self, background: Background) -> Self {
        self.engine.background = background;
        self
    }

    /// Files, clock and randomness. Default: the machine's own.
    #[must_use]
    pub fn env(mut self, env: Env) -> Self {
        self.env = env;
        self
    }

    /// Refuses to create a database where there is none.
    #[must_use]
    pub fn must_exist(mut self) -> Self {
        self.must_exist = true;
        self
    }

    /// The engine's settings, for what has no method of its own here.
    pub fn engine_mut(&mut self) -> &mut EngineOptions {
        &mut self.engine
    }

    /// Opens or creates the database in directory `path`.
    ///
    /// # Errors
    /// [`crate::Class::Busy`] when another process has it open (the message names it); I/O; damage; a newer format.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Database, Error> {
        Database::open_with(path.as_ref(), self)
    }

    /// Says what is damaged in the log of the database at `path`, and what [`Options::salvage_log`] would lose; `None`
    /// when the log opens. The log is not changed. With `before`, the log is to end in front of that commit at the latest.
    ///
    /// # Errors
    /// [`crate::Class::Invalid`] when commit `before` was flushed already;
    /// [`crate::Class::Busy`] when another process has it open; I/O; a damaged manifest; a newer format.
    pub fn inspect_log(
        &self,
        path: impl AsRef<Path>,
        before: Option<Seq>,
    ) -> Result<Option<LogDamage>, Error> {
        Ok(ropewalk_engine::inspect_log(&self.env, path.as_ref(), before)?)
    }

    /// Ends a damaged log in front of its damage, and of the commit `before`, so that the database opens again, without the commits from there on.
    /// What is cut off stays in files named `*.damaged`. `None` when the log opens as it is.
    ///
    /// # Errors
    /// As [`Options::inspect_log`]. May be repeated.
    pub fn salvage_log(
        &self,
        path: impl AsRef<Path>,
        before: Option<Seq>,
    ) -> Result<Option<LogDamage>, Error> {
        Ok(ropewalk_engine::salvage_log(&self.env, path.as_ref(), before)?)
    }
}
