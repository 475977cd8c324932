//! SQL statements, and their results as rows and as Arrow.

use std::collections::HashSet;
use std::sync::Arc;

use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyCapsule, PyFloat, PyInt, PyList, PyString, PyTuple};
use ropewalk::Database;
use ropewalk::tables::Value;
use ropewalk_sql::arrow::{FFI_ArrowArrayStream, RecordBatchIterator};
use ropewalk_sql::{
    Outcome, Session, Settings, SqlError, StatementKind, Status, arrow_rows, single_rows, state, to_text,
    type_name,
};

use crate::error::{Fault, Result};
use crate::value::Helper;
use crate::value::body::{expected, list};

/// Most statements that a session knows the kind of, and longest text of one.
const KNOWN_MAX: usize = 512;
const KNOWN_BYTES_MAX: usize = 16 << 10;
/// Most sessions that wait for a statement.
pub(crate) const IDLE_MAX: usize = 64;

static LOADS: Helper = Helper::new("json", "loads");

/// A session, with its plans.
pub(crate) struct Statements {
    pub(crate) session: Session,
    settings: Arc<Settings>,
    /// Texts of a single statement.
    single: HashSet<String>,
    /// Statements that may be part of a transaction.
    parts: HashSet<String>,
}

impl Statements {
    pub(crate) fn new(db: Database, settings: Settings) -> Self {
        let session = Session::with_settings(db, settings);
        let settings = session.settings_held();
        Self { session, settings, single: HashSet::new(), parts: HashSet::new() }
    }

    /// True when the session is as a new one, except for its plans.
    pub(crate) fn is_idle(&self) -> bool {
        self.session.status() == Status::Idle && self.session.keeps(&self.settings)
    }

    /// Runs a statement in its own transaction.
    pub(crate) fn run(&mut self, sql: &str, parameters: &[Option<String>]) -> Result<Outcome> {
        let outcome = self.session.execute_columnar(sql, &values(parameters));
        Ok(outcome.map_err(|error| error.located_in(sql))?)
    }

    /// Runs all statements of a text.
    pub(crate) fn script(&mut self, sql: &str) -> Result<Vec<Outcome>> {
        let located = |error: SqlError| error.located_in(sql);
        if !self.single.contains(sql) {
            if self.session.script(sql).map_err(located)?.len() != 1 {
                return Ok(self.session.execute_all(sql).map_err(located)?);
            }
            remember(&mut self.single, sql);
        }
        Ok(vec![self.run(sql, &[])?])
    }

    /// Runs a statement in the open transaction.
    ///
    /// # Errors
    /// Also for statements that begin or end transactions, and with `is_check` for those that write.
    pub(crate) fn run_within(
        &mut self,
        sql: &str,
        parameters: &[Option<String>],
        is_check: bool,
    ) -> Result<Outcome> {
        if is_check || !self.parts.contains(sql) {
            let prepared = self.session.prepare(sql).map_err(|error| error.located_in(sql))?;
            if let Some(kind) = prepared.kind()
                && (!kind.can_join_transaction() || (is_check && kind != StatementKind::Query))
            {
                let what = format!("not in a transaction of several operations: {}", kind.description());
                let hint = "the transaction begins with its block and ends with it";
                return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, what).hint(hint).into());
            }
            if !is_check {
                remember(&mut self.parts, sql);
            }
        }
        self.run(sql, parameters)
    }
}

fn remember(known: &mut HashSet<String>, sql: &str) {
    if known.len() >= KNOWN_MAX {
        known.clear();
    }
    if sql.len() <= KNOWN_BYTES_MAX {
        known.insert(sql.to_owned());
    }
}

/// Texts are read as the types of the statement's parameters.
fn values(parameters: &[Option<String>]) -> Vec<Value<'_>> {
    parameters.iter().map(|text| text.as_deref().map_or(Value::Null, Value::text)).collect()
}

/// The error of a text that leaves a transaction open.
pub(crate) fn left_open() -> Fault {
    let what = "the transaction was still open at the end of the text, and is rolled back";
    SqlError::new(state::ACTIVE_SQL_TRANSACTION, what).hint("BEGIN and COMMIT belong into one text").into()
}

/// The parameters of a statement: `None`, bool, int, float and str, as `ropewalk._sql.parameter` returns them.
pub(crate) fn parameters(given: &Bound<'_, PyAny>) -> Result<Vec<Option<String>>> {
    list("params", given)?.iter().map(parameter).collect()
}

fn parameter(value: &Bound<'_, PyAny>) -> Result<Option<String>> {
    if value.is_none() {
        Ok(None)
    } else if let Ok(text) = value.cast::<PyString>() {
        Ok(Some(text.to_str()?.to_owned()))
    } else if let Ok(truth) = value.cast::<PyBool>() {
        Ok(Some(truth.is_true().to_string()))
    } else if let Ok(number) = value.cast::<PyInt>() {
        Ok(Some(number.str()?.to_str()?.to_owned()))
    } else if let Ok(number) = value.cast::<PyFloat>() {
        Ok(Some(format!("{:?}", number.value())))
    } else {
        Err(expected("params", "None, bool, int, float or str", value))
    }
}

/// The result of a statement.
#[pyclass(frozen, module = "ropewalk._core")]
pub(crate) struct Rows {
    outcome: Outcome,
}

impl Rows {
    pub(crate) fn new(outcome: Outcome) -> Self {
        Self { outcome }
    }
}

#[pymethods]
impl Rows {
    /// PostgreSQL's command tag, such as `UPDATE 1`.
    #[getter]
    fn command(&self) -> String {
        self.outcome.tag().to_string()
    }

    /// Name and SQL type of each column; empty for statements that return no rows.
    #[getter]
    fn columns(&self) -> Vec<(String, String)> {
        let columns = self.outcome.columns.as_deref().unwrap_or_default();
        columns.iter().map(|column| (column.name.clone(), type_name(column.ty))).collect()
    }

    fn __len__(&self) -> usize {
        let batches: usize = self.outcome.batches.iter().map(|batch| batch.num_rows()).sum();
        batches + self.outcome.rows.len()
    }

    /// The rows as tuples, whose values are those of the HTTP API.
    fn rows<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        let put = |row: &[Value<'_>]| -> PyResult<()> {
            let values = row.iter().map(|value| to_python(py, value)).collect::<PyResult<Vec<_>>>()?;
            list.append(PyTuple::new(py, values)?)
        };
        if self.outcome.batches.is_empty() {
            self.outcome.rows.iter().try_for_each(|row| put(row))?;
        } else {
            let rows = py.detach(|| single_rows(&self.outcome))?;
            rows.iter().try_for_each(|row| put(row))?;
        }
        Ok(list)
    }

    /// The rows as a stream of Arrow record batches, by the Arrow PyCapsule interface.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyCapsule>> {
        // The interface permits to ignore the schema: the consumer converts.
        drop(requested_schema);
        let rows = py.detach(|| arrow_rows(&self.outcome))?;
        let reader = RecordBatchIterator::new(rows.batches.into_iter().map(Ok), rows.schema);
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        Ok(PyCapsule::new_with_value(py, stream, c"arrow_array_stream")?)
    }
}

/// Numbers, booleans and JSON values as such, the rest in PostgreSQL's text format.
pub(crate) fn to_python<'py>(py: Python<'py>, value: &Value<'_>) -> PyResult<Bound<'py, PyAny>> {
    match value {
        Value::Null => Ok(py.None().into_bound(py)),
        Value::Bool(truth) => truth.into_bound_py_any(py),
        Value::Int2(number) => number.into_bound_py_any(py),
        Value::Int4(number) => number.into_bound_py_any(py),
        Value::Int8(number) => number.into_bound_py_any(py),
        Value::Float8(number) => number.into_bound_py_any(py),
        // The float with the fewest digits that is this one, as in text.
        Value::Float4(number) if number.is_finite() => {
            number.to_string().parse::<f64>().unwrap_or_else(|_| f64::from(*number)).into_bound_py_any(py)
        }
        Value::Text(text) => Ok(PyString::new(py, text).into_any()),
        Value::Json(text) | Value::Jsonb(text) => LOADS.get(py)?.call1((PyString::new(py, text),)),
        other => to_text(other).into_bound_py_any(py),
    }
}
