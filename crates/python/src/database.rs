//! The database, as Python opens it.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use ropewalk::engine::Env;
use ropewalk::{Durability, Error, Isolation, Options, Position};
use ropewalk_sql::{Outcome, Settings, Status};

use crate::documents::{Prepared, prepared};
use crate::error::Result;
use crate::events::read::{Events, Following, read, subscribe};
use crate::handle::{Shared, Slot};
use crate::metrics::{Times, promql};
use crate::sql::{Rows, Statements, left_open, parameters};
use crate::tables::{Table, table};
use crate::transaction::{Open, begin, give_back};
use crate::value::body::{durability, isolation};
use crate::{events, groups};

/// Bytes for memtables and caches by default, 128 MiB: the process is the application's.
const MEMORY: u64 = 128 << 20;

/// An open database.
#[pyclass(frozen, name = "Database", module = "ropewalk._core")]
pub(crate) struct Core {
    shared: Arc<Shared>,
    /// Sessions that wait for a statement.
    sessions: Arc<Slot<Vec<Statements>>>,
    settings: Settings,
}

#[pymethods]
impl Core {
    /// Opens the database in a directory, or one in memory without a path.
    ///
    /// `memory` is for memtables and caches, `statement_memory` for the rows of one statement, both in bytes.
    #[staticmethod]
    #[pyo3(signature = (path, *, create=true, memory=None, statement_memory=None))]
    fn open(
        py: Python<'_>,
        path: Option<PathBuf>,
        create: bool,
        memory: Option<u64>,
        statement_memory: Option<usize>,
    ) -> Result<Self> {
        let mut options = Options::new().memory_budget(memory.unwrap_or(MEMORY));
        if path.is_none() {
            options = options.env(Env::memory());
        } else if !create {
            options = options.must_exist();
        }
        let path = path.unwrap_or_else(|| PathBuf::from("/memory"));
        let db = py.detach(|| options.open(&path))?;
        let shared = Shared::new(db);
        let sessions = Arc::new(Slot::new(&shared, Vec::new())?);
        let mut settings = Settings::default();
        if let Some(bytes) = statement_memory {
            settings.memory_bytes_max = bytes;
        }
        Ok(Self { shared, sessions, settings })
    }

    /// Syncs and closes the database. A second call, and one in a forked process, does nothing.
    fn close(&self, py: Python<'_>) -> Result<()> {
        py.detach(|| self.shared.close())
    }

    /// The number of the newest visible commit.
    fn seq(&self) -> Result<u64> {
        Ok(self.shared.db()?.seq().0)
    }

    /// Waits until a commit is visible, at most so many seconds; reports whether it is.
    fn wait_visible(&self, py: Python<'_>, seq: u64, timeout: f64) -> Result<bool> {
        let db = self.shared.db()?;
        let timeout = std::time::Duration::try_from_secs_f64(timeout).unwrap_or_default();
        Ok(py.detach(|| db.engine().wait_visible(ropewalk::Seq(seq), timeout)))
    }

    /// Copies the database to a directory that must not exist; returns the last commit of the copy.
    fn backup(&self, py: Python<'_>, path: PathBuf) -> Result<u64> {
        let db = self.shared.db()?;
        Ok(self.call(py, || db.backup(&path))?.seq.0)
    }

    // Events.

    /// Name, last position and number of events of each store.
    fn stores<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyList>> {
        let db = self.shared.db()?;
        let stores = self.call(py, || {
            let names = db.event_stores().into_iter();
            let store = |name: String| -> Result<_, Error> {
                Ok((db.events(&name)?.head()?.map_or(0, |head| head.0), name))
            };
            names.map(store).collect::<Result<Vec<_>, Error>>()
        })?;
        let list = PyList::empty(py);
        for (head, name) in stores {
            let store = PyDict::new(py);
            store.set_item("name", name)?;
            store.set_item("head", head)?;
            store.set_item("events", head)?;
            list.append(store)?;
        }
        Ok(list)
    }

    /// Appends events; returns the first and the last position, and the commit.
    fn append(&self, py: Python<'_>, store: &str, body: &Bound<'_, PyDict>) -> Result<(u64, u64, u64)> {
        let appended = events::append(py, &self.shared.db()?, store, body);
        appended.map_err(|fault| self.shared.explained(fault))
    }

    /// An iterator over matching events.
    fn read(&self, py: Python<'_>, store: &str, body: &Bound<'_, PyDict>) -> Result<Events> {
        read(py, &self.shared, store, body)
    }

    /// Answers `last`, `count` or `exists`.
    fn ask<'py>(
        &self,
        py: Python<'py>,
        store: &str,
        route: &str,
        body: &Bound<'py, PyDict>,
    ) -> Result<Bound<'py, PyDict>> {
        events::ask(py, &self.shared.db()?, store, route, body)
    }

    /// An endless iterator over matching events.
    fn subscribe(&self, py: Python<'_>, store: &str, body: &Bound<'_, PyDict>) -> Result<Following> {
        subscribe(py, &self.shared, store, body)
    }

    /// The last position of a store; 0 if it is empty or does not exist.
    fn head(&self, py: Python<'_>, store: &str) -> Result<u64> {
        let db = self.shared.db()?;
        let head = self.call(py, || -> Result<_, Error> { Ok(db.events(store)?.head()?) })?;
        Ok(head.map_or(0, |head| head.0))
    }

    /// The position that was reached in an upstream source.
    fn tracking(&self, py: Python<'_>, store: &str, source: &str) -> Result<Option<u64>> {
        let db = self.shared.db()?;
        self.call(py, || Ok(db.events(store)?.tracking(source)?))
    }

    /// Deletes a store with its events.
    fn delete_store(&self, py: Python<'_>, store: &str) -> Result<()> {
        let db = self.shared.db()?;
        self.call(py, || db.existing_events(store)?.delete().map(drop).map_err(Error::from))
    }

    /// The position that a consumer has reached; 0 without a checkpoint.
    fn checkpoint(&self, py: Python<'_>, store: &str, consumer: &str) -> Result<u64> {
        let db = self.shared.db()?;
        let found = self.call(py, || db.consumer_checkpoints(store)?.get(consumer))?;
        Ok(found.map_or(0, |position| position.0))
    }

    /// The position of each consumer.
    fn checkpoints<'py>(&self, py: Python<'py>, store: &str) -> Result<Bound<'py, PyDict>> {
        let db = self.shared.db()?;
        let found = self.call(py, || db.consumer_checkpoints(store)?.all())?;
        let checkpoints = PyDict::new(py);
        for one in found {
            checkpoints.set_item(one.name, one.position.0)?;
        }
        Ok(checkpoints)
    }

    /// Stores the position that a consumer has reached.
    fn set_checkpoint(&self, py: Python<'_>, store: &str, consumer: &str, position: u64) -> Result<()> {
        let db = self.shared.db()?;
        self.call(py, || db.consumer_checkpoints(store)?.set(consumer, Position(position)))
    }

    /// Deletes the checkpoint of a consumer.
    fn delete_checkpoint(&self, py: Python<'_>, store: &str, consumer: &str) -> Result<()> {
        let db = self.shared.db()?;
        self.call(py, || db.consumer_checkpoints(store)?.remove(consumer)).map(drop)
    }

    /// Carries out a request about a consumer group.
    fn group<'py>(
        &self,
        py: Python<'py>,
        store: &str,
        name: &str,
        action: &str,
        body: &Bound<'py, PyDict>,
    ) -> Result<Bound<'py, PyDict>> {
        let done = groups::request(py, &self.shared.db()?, (store, name), action, body);
        done.map_err(|fault| self.shared.explained(fault))
    }

    // Documents, rows, metrics.

    /// A handle on a collection.
    fn collection(&self, database: &str, name: &str) -> Result<Prepared> {
        prepared(&self.shared, database, name)
    }

    /// A handle on a table, to read rows by primary key.
    fn table(&self, py: Python<'_>, name: &str) -> Result<Table> {
        table(py, &self.shared, name)
    }

    /// Runs the statements of a text; with parameters a single one. Returns a result for each.
    #[pyo3(signature = (text, params=None))]
    fn sql(&self, py: Python<'_>, text: &str, params: Option<&Bound<'_, PyAny>>) -> Result<Vec<Rows>> {
        let given = params.map(parameters).transpose()?;
        let outcomes = py.detach(|| self.run(text, given.as_deref()));
        let outcomes = outcomes.map_err(|fault| self.shared.explained(fault))?;
        Ok(outcomes.into_iter().map(Rows::new).collect())
    }

    /// Evaluates a PromQL query at a time, by default now; milliseconds since 1970.
    #[pyo3(signature = (query, at=None))]
    fn promql<'py>(&self, py: Python<'py>, query: &str, at: Option<i64>) -> Result<Bound<'py, PyDict>> {
        let db = self.shared.db()?;
        let now = || db.engine().env().clock.wall_micros().div_euclid(1000);
        promql(py, &db, query, Times::At(at.unwrap_or_else(now)))
    }

    /// Evaluates a PromQL query over a range; times and step are milliseconds.
    fn promql_range<'py>(
        &self,
        py: Python<'py>,
        query: &str,
        start: i64,
        end: i64,
        step: i64,
    ) -> Result<Bound<'py, PyDict>> {
        promql(py, &self.shared.db()?, query, Times::Range(start, end, step))
    }

    /// Begins a transaction over all models.
    #[pyo3(signature = (isolation=None, durability=None))]
    fn begin(&self, py: Python<'_>, isolation: Option<&str>, durability: Option<&str>) -> Result<Open> {
        let modes = modes(isolation, durability)?;
        let statements = py.detach(|| self.session(modes))?;
        begin(py, &self.shared, self.sessions.clone(), statements)
    }
}

/// Isolation and durability of a transaction.
fn modes(of_reads: Option<&str>, of_commit: Option<&str>) -> Result<(Isolation, Durability)> {
    let isolation = of_reads.map_or(Ok(Isolation::Serializable), isolation)?;
    Ok((isolation, of_commit.map_or(Ok(Durability::Sync), durability)?))
}

impl Core {
    /// Calls the engine detached from the interpreter.
    fn call<R: Send>(&self, py: Python<'_>, work: impl FnOnce() -> Result<R, Error> + Send) -> Result<R> {
        py.detach(work).map_err(|error| self.shared.explained(error.into()))
    }

    /// A session for a transaction with these modes.
    fn session(&self, (isolation, durability): (Isolation, Durability)) -> Result<Statements> {
        let db = self.shared.db()?;
        if (isolation, durability) == (self.settings.isolation, self.settings.durability) {
            let idle = self.sessions.with(|idle| Ok(idle.pop()))?;
            return Ok(idle.unwrap_or_else(|| Statements::new(db, self.settings.clone())));
        }
        let settings = Settings { isolation, durability, ..self.settings.clone() };
        Ok(Statements::new(db, settings))
    }

    fn run(&self, text: &str, parameters: Option<&[Option<String>]>) -> Result<Vec<Outcome>> {
        let mut statements = self.session((self.settings.isolation, self.settings.durability))?;
        let done = match parameters {
            Some(parameters) => statements.run(text, parameters).map(|outcome| vec![outcome]),
            None => statements.script(text),
        };
        let is_open = statements.session.status() != Status::Idle;
        give_back(&self.sessions, statements);
        if done.is_ok() && is_open {
            return Err(left_open());
        }
        done
    }
}
