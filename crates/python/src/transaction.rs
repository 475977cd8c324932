//! Transactions over all models: one SQL session, in whose transaction every operation runs.
//!
//! ```text
//! operation of the HTTP API ─▶ Operation ─▶ in the transaction ─▶ Done ─▶ result of the HTTP API
//! results, encoded by Python, with an idempotency key ─▶ record in the same commit
//! commit ─▶ number of the commit, positions of each append
//! ```
//! An error of an operation ends the transaction.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use ropewalk::events::{EventBatch, ReadOptions};
use ropewalk::hooks::idempotency::{AppendPositions, IdempotencyRecords, RequestKey, StoredResult};
use ropewalk::series::SampleBatch;
use ropewalk::{AppendOptions, Database, Event, Position, Query, Transaction};
use ropewalk_sql::Outcome;

use crate::documents::run as documents;
use crate::error::{Fault, Result};
use crate::events::{input, output};
use crate::handle::{Shared, Slot};
use crate::metrics;
use crate::sql::{Rows, Statements, parameters};
use crate::value::body::{Body, number, object};
use crate::value::bson;

/// The caller of the idempotency keys of this process, which no caller of a server is.
const CALLER: &str = "embedded";

/// An operation of a transaction.
enum Operation {
    Append { store: String, events: Vec<Event>, options: AppendOptions },
    Read { store: String, query: Query, options: ReadOptions },
    Documents(documents::Operation),
    Sql { text: String, parameters: Vec<Option<String>>, expected: Option<u64>, is_check: bool },
    Samples { store: String, batch: SampleBatch },
    Checkpoint { store: String, consumer: String, position: Position, expected: Option<Position> },
    NoEvents { store: String, query: Query, after: Position },
}

/// The result of an operation.
enum Done {
    /// Index among the appends of the transaction.
    Appended(usize),
    Events(EventBatch),
    Documents(documents::Done),
    Sql(Box<Outcome>),
    Samples(usize),
    Nothing,
}

/// An open transaction.
struct Running {
    db: Database,
    statements: Statements,
    sessions: Arc<Slot<Vec<Statements>>>,
    /// The appends so far, in order.
    appends: Vec<AppendPositions>,
    /// Where its results are stored, if it has an idempotency key.
    records: Option<IdempotencyRecords>,
}

/// A transaction; dropping it rolls it back.
#[pyclass(frozen, name = "Transaction", module = "ropewalk._core")]
pub(crate) struct Open {
    running: Slot<Running>,
    #[pyo3(get)]
    snapshot: u64,
}

/// Begins a transaction in a session.
pub(crate) fn begin(
    py: Python<'_>,
    shared: &Arc<Shared>,
    sessions: Arc<Slot<Vec<Statements>>>,
    mut statements: Statements,
) -> Result<Open> {
    let db = shared.db()?;
    let (running, snapshot) = py.detach(|| -> Result<_> {
        statements.session.begin_implicit();
        let snapshot =
            statements.session.with_transaction(|tx| -> Result<u64> { Ok(tx.snapshot().seq().0) })?;
        let running = Running { db, statements, sessions, appends: Vec::new(), records: None };
        Ok((running, snapshot))
    })?;
    Ok(Open { running: Slot::new(shared, running)?, snapshot })
}

#[pymethods]
impl Open {
    /// Runs an operation of the HTTP API: `append`, `read`, `documents`, `sql`, `samples` or `checkpoint`.
    ///
    /// The result is as there, with `append` as the index of the append and rows as an object. After an error
    /// the transaction is rolled back.
    fn apply<'py>(&self, py: Python<'py>, body: &Bound<'py, PyDict>) -> Result<Bound<'py, PyAny>> {
        self.ended_by_error(py, |db| operation(db, body))
    }

    /// Checks a precondition of the HTTP API: `events`, `documents` or `sql`.
    fn require<'py>(&self, py: Python<'py>, body: &Bound<'py, PyDict>) -> Result<Bound<'py, PyAny>> {
        self.ended_by_error(py, |db| precondition(db, body))
    }

    /// The results of an earlier transaction with this key, of a request with this SHA-256: its commit, and for
    /// each operation the stored bytes, or first and last position of an append.
    fn find_results<'py>(
        &self,
        py: Python<'py>,
        key: &str,
        hash: &[u8],
    ) -> Result<Option<(u64, Vec<Bound<'py, PyAny>>)>> {
        let key = request_key(key, hash)?;
        let found = py.detach(|| {
            self.running.with(|running| {
                let records = running.db.idempotency_records()?;
                running.within(|tx| Ok(records.find(tx, &key)?))
            })
        });
        let Some(found) = found.map_err(ended_or)? else { return Ok(None) };
        let mut results = Vec::with_capacity(found.results.len());
        for result in found.results {
            results.push(match result {
                StoredResult::Encoded(bytes) => PyBytes::new(py, &bytes).into_any(),
                StoredResult::Appended(one) => (one.first.0, one.last.0).into_pyobject(py)?.into_any(),
            });
        }
        Ok(Some((found.seq.0, results)))
    }

    /// Stores the results of the operations, if the transaction writes: bytes, or `None` for each append.
    fn store_results(
        &self,
        py: Python<'_>,
        key: &str,
        hash: &[u8],
        results: Vec<Option<Vec<u8>>>,
    ) -> Result<()> {
        let key = request_key(key, hash)?;
        let stored = py.detach(|| self.running.with(|running| running.store_results(&key, results)));
        stored.map_err(ended_or)
    }

    /// Commits; returns the number of the commit, and store, first and last position of each append.
    fn commit(&self, py: Python<'_>) -> Result<(u64, Vec<(String, u64, u64)>)> {
        let Some(running) = py.detach(|| self.running.take())? else {
            self.running.shared().db()?;
            return Err(ended());
        };
        py.detach(|| {
            let Running { db, mut statements, sessions, records, .. } = running;
            let submitted = statements.session.submit_commit();
            give_back(&sessions, statements);
            let commit = submitted.map_err(|error| Fault::settled(error, &db))?;
            let Some(commit) = commit else { return Ok((self.snapshot, Vec::new())) };
            let done = commit.wait().map_err(|error| Fault::settled(error, &db))?;
            if let Some(records) = records {
                // A key that it cannot delete, the next transaction with a key deletes.
                let _ = records.delete_expired();
            }
            let appended = done.appended.into_iter();
            Ok((done.seq.0, appended.map(|one| (one.store, one.first.0, one.last.0)).collect()))
        })
    }

    /// Rolls back. A transaction that has ended is not affected.
    fn rollback(&self, py: Python<'_>) -> Result<()> {
        py.detach(|| self.running.take().map(drop))
    }
}

impl Open {
    /// Reads an operation and runs it; an error of either ends the transaction.
    fn ended_by_error<'py>(
        &self,
        py: Python<'py>,
        read: impl FnOnce(&Database) -> Result<Operation>,
    ) -> Result<Bound<'py, PyAny>> {
        let run = || {
            let db = self.running.shared().db()?;
            let operation = read(&db)?;
            let done = py.detach(|| self.running.with(|running| running.apply(&operation)))?;
            to_python(py, done)
        };
        let result = run();
        if result.is_err() {
            py.detach(|| self.running.take().map(drop))?;
        }
        result.map_err(ended_or)
    }
}

fn ended() -> Fault {
    Fault::Unknown("the transaction has ended: by a commit, a rollback or an error".to_owned())
}

/// The fault of a call of a transaction.
fn ended_or(fault: Fault) -> Fault {
    match fault {
        Fault::Ended => ended(),
        fault => fault,
    }
}

fn request_key(key: &str, hash: &[u8]) -> Result<RequestKey> {
    let hash: [u8; 32] = hash.try_into().map_err(|_| Fault::invalid("the hash of a request has 32 bytes"))?;
    Ok(RequestKey::new(CALLER, key, hash)?)
}

/// Returns a session, with its plans, for the next statement or transaction.
pub(crate) fn give_back(sessions: &Slot<Vec<Statements>>, statements: Statements) {
    if statements.is_idle() {
        // When the database is closed, the session is dropped.
        let _ = sessions.with(|idle| {
            if idle.len() < crate::sql::IDLE_MAX {
                idle.push(statements);
            }
            Ok(())
        });
    }
}

/// Reads the only field of an operation or precondition.
fn only<'py>(body: &Bound<'py, PyDict>) -> Result<(String, Bound<'py, PyDict>)> {
    let mut fields = body.iter();
    match (fields.next(), fields.next()) {
        (Some((name, value)), None) => {
            let name: String = name.extract()?;
            let fields = object(&name, &value)?;
            Ok((name, fields))
        }
        _ => Err(Fault::invalid("an operation has one field, which names it")),
    }
}

fn operation(db: &Database, body: &Bound<'_, PyDict>) -> Result<Operation> {
    let (name, fields) = only(body)?;
    let mut body = Body::new(&fields);
    let operation = match name.as_str() {
        "append" => {
            let store = body.need_text("store")?;
            let (events, options) = input::append(&mut body)?;
            Operation::Append { store, events, options }
        }
        "read" => {
            let store = body.need_text("store")?;
            let (query, options) = input::read(&mut body)?;
            Operation::Read { store, query, options }
        }
        "documents" => Operation::Documents(documents::operation(&mut body, &documents::options(db))?),
        "sql" => statement(&mut body, false)?,
        "samples" => {
            let store = body.text("store")?.unwrap_or_else(|| metrics::STORE.to_owned());
            Operation::Samples { store, batch: metrics::samples(&mut body)? }
        }
        "checkpoint" => {
            let (store, consumer) = (body.need_text("store")?, body.need_text("consumer")?);
            let position = Position(number("position", &body.need("position")?)?);
            let expected = body.number("expect")?.map(Position);
            Operation::Checkpoint { store, consumer, position, expected }
        }
        other => return Err(Fault::Invalid(format!("unknown operation {other:?}"))),
    };
    body.finish()?;
    Ok(operation)
}

fn statement(body: &mut Body<'_, '_>, is_check: bool) -> Result<Operation> {
    let text = body.need_text("sql")?;
    let parameters = body.get("params")?.map_or_else(|| Ok(Vec::new()), |given| parameters(&given))?;
    let expected = body.number("expect")?;
    Ok(Operation::Sql { text, parameters, expected, is_check })
}

fn precondition(db: &Database, body: &Bound<'_, PyDict>) -> Result<Operation> {
    let (name, fields) = only(body)?;
    let mut body = Body::new(&fields);
    let operation = match name.as_str() {
        "events" => {
            let (store, query) = (body.need_text("store")?, input::query(&mut body)?);
            let after = Position(body.number("after")?.unwrap_or_default());
            Operation::NoEvents { store, query, after }
        }
        "documents" => Operation::Documents(documents::count(&mut body, &documents::options(db))?),
        "sql" => statement(&mut body, true)?,
        other => return Err(Fault::Invalid(format!("unknown precondition {other:?}"))),
    };
    body.finish()?;
    Ok(operation)
}

impl Running {
    fn within<R>(&mut self, work: impl FnOnce(&mut Transaction) -> Result<R>) -> Result<R> {
        self.statements.session.with_transaction(work)
    }

    fn apply(&mut self, operation: &Operation) -> Result<Done> {
        let db = self.db.clone();
        match operation {
            Operation::Append { store, events, options } => {
                let store = db.events(store)?;
                let appended = self.within(|tx| {
                    let appended = AppendPositions::pending(tx, &store, events.len());
                    tx.append(&store, events, options.clone())?;
                    Ok(appended)
                })?;
                let index = appended.index;
                self.appends.push(appended);
                Ok(Done::Appended(index))
            }
            Operation::Read { store, query, options } => {
                let store = db.events(store)?;
                self.within(|tx| {
                    let mut batch = EventBatch::new();
                    tx.read_events(&store, query, *options)?.visit(usize::MAX, |event| batch.push(event))?;
                    Ok(Done::Events(batch))
                })
            }
            Operation::Documents(operation) => self.documents(&db, operation),
            Operation::Sql { text, parameters, expected, is_check } => {
                let outcome = self.statements.run_within(text, parameters, *is_check)?;
                expect("rows", outcome.count.unwrap_or_default(), *expected)?;
                Ok(if *is_check { Done::Nothing } else { Done::Sql(Box::new(outcome)) })
            }
            Operation::Samples { store, batch } => {
                let store = db.series(store)?;
                self.within(|tx| Ok(tx.append_samples(&store, batch)?))?;
                Ok(Done::Samples(batch.len()))
            }
            Operation::Checkpoint { store, consumer, position, expected } => {
                let checkpoints = db.consumer_checkpoints(store)?;
                self.within(|tx| {
                    if let Some(expected) = expected {
                        let recorded = checkpoints.get_in(tx, consumer)?;
                        if recorded.unwrap_or(Position::ZERO) != *expected {
                            let recorded = recorded.map_or_else(|| "none".to_owned(), |one| one.to_string());
                            return Err(Fault::Unmet(format!("the recorded position is {recorded}")));
                        }
                    }
                    checkpoints.set_in(tx, consumer, *position)?;
                    Ok(Done::Nothing)
                })
            }
            Operation::NoEvents { store, query, after } => {
                let store = db.events(store)?;
                let options = ReadOptions::default().after(*after).limit(1);
                self.within(|tx| match tx.read_events(&store, query, options)?.next().transpose()? {
                    None => Ok(Done::Nothing),
                    Some(event) => {
                        Err(Fault::Unmet(format!("the event at position {} matches", event.position)))
                    }
                })
            }
        }
    }

    /// Stores the results with an idempotency key; a transaction without writes has nothing to repeat.
    fn store_results(&mut self, key: &RequestKey, results: Vec<Option<Vec<u8>>>) -> Result<()> {
        let records = self.db.idempotency_records()?;
        let mut appends = self.appends.iter().cloned();
        let stored = |result: Option<Vec<u8>>| match result {
            Some(bytes) => Ok(StoredResult::Encoded(bytes)),
            None => {
                appends.next().map(StoredResult::Appended).ok_or_else(|| Fault::invalid("results: an append"))
            }
        };
        let results: Vec<StoredResult> = results.into_iter().map(stored).collect::<Result<_>>()?;
        let has_writes = self.within(|tx| {
            let has_writes = tx.write_bytes() + tx.pending_appends() > 0;
            if has_writes {
                records.put(tx, key, &results)?;
            }
            Ok(has_writes)
        })?;
        self.records = has_writes.then_some(records);
        Ok(())
    }

    fn documents(&mut self, db: &Database, operation: &documents::Operation) -> Result<Done> {
        let documents::Operation { database, collection, work, expected } = operation;
        let collection = db.documents().collection(database, collection)?;
        let (done, found) =
            self.within(|tx| Ok(documents::within(&mut tx.documents(), &collection, work)?))?;
        expect("documents", found, *expected)?;
        Ok(Done::Documents(done))
    }
}

/// Rejects another number than the expected one.
fn expect(what: &str, found: u64, expected: Option<u64>) -> Result<()> {
    match expected {
        Some(expected) if expected != found => {
            Err(Fault::Unmet(format!("it is about {found} {what}, {expected} are expected")))
        }
        _ => Ok(()),
    }
}

fn to_python(py: Python<'_>, done: Done) -> Result<Bound<'_, PyAny>> {
    let result = PyDict::new(py);
    match done {
        Done::Appended(index) => result.set_item("append", index)?,
        Done::Events(batch) => {
            let events: Bound<'_, PyList> = output::events(py, &batch)?;
            result.set_item("events", events)?;
        }
        Done::Documents(done) => {
            let answer = done.to_python(py)?;
            if let Some(id) = done.inserted() {
                answer.set_item("id", bson::to_python(py, id.value())?)?;
            }
            return Ok(answer.into_any());
        }
        Done::Sql(outcome) => return Ok(Bound::new(py, Rows::new(*outcome))?.into_any()),
        Done::Samples(samples) => result.set_item("samples", samples)?,
        Done::Nothing => {}
    }
    Ok(result.into_any())
}
