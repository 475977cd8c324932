//! Single rows by primary key.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use ropewalk::Database;
use ropewalk::tables::{PointGet, Table as Definition, Type, Value, ValueError};
use ropewalk_sql::{SqlError, from_text, state, type_name};

use crate::error::{Fault, Result};
use crate::handle::{Shared, Slot};
use crate::sql::{parameters, to_python};

/// A prepared lookup. The key and the columns are those of the table's definition at the lookup.
struct Lookup {
    db: Database,
    point: PointGet,
    table: Definition,
}

/// A table, whose rows are read by primary key.
#[pyclass(frozen, module = "ropewalk._core")]
pub(crate) struct Table {
    lookup: Slot<Lookup>,
}

pub(crate) fn table(py: Python<'_>, shared: &Arc<Shared>, name: &str) -> Result<Table> {
    let db = shared.db()?;
    let lookup = py.detach(|| -> Result<_> {
        let table = db.table(name)?;
        let point = db.tables().point(&table);
        Ok(Lookup { point, table, db })
    })?;
    Ok(Table { lookup: Slot::new(shared, lookup)? })
}

#[pymethods]
impl Table {
    /// Version of the definition, name and SQL type of each column.
    fn definition(&self, py: Python<'_>) -> Result<(u32, Vec<(String, String)>)> {
        py.detach(|| {
            self.lookup.with(|lookup| {
                let schema = lookup.db.tables().schema(lookup.db.snapshot().engine(), &lookup.table)?;
                let columns = schema.columns().iter();
                let columns = columns.map(|one| (one.name().to_owned(), type_name(one.column_type())));
                Ok((schema.version(), columns.collect()))
            })
        })
    }

    /// The row with this key, after the version of the definition, or `None`.
    ///
    /// The key is a list, with values as `ropewalk._sql.parameter` returns them.
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> Result<Option<(u32, Bound<'py, PyTuple>)>> {
        let key = parameters(key)?;
        let row = py.detach(|| self.lookup.with(|lookup| lookup.get(&key)))?;
        let Some((version, row)) = row else { return Ok(None) };
        let values = row.iter().map(|value| to_python(py, value)).collect::<PyResult<Vec<_>>>()?;
        Ok(Some((version, PyTuple::new(py, values)?)))
    }
}

fn invalid(error: &ValueError) -> Fault {
    SqlError::new(state::INVALID_TEXT_REPRESENTATION, error.to_string()).into()
}

impl Lookup {
    fn get(&mut self, key: &[Option<String>]) -> Result<Option<(u32, Vec<Value<'static>>)>> {
        let snapshot = self.db.snapshot();
        let schema = self.db.tables().schema(snapshot.engine(), &self.table)?;
        let types = schema.key_columns().iter().filter_map(|column| schema.columns().get(*column));
        let types: Vec<_> = types.collect();
        if types.is_empty() || types.len() != key.len() {
            let what =
                format!("the primary key has {} columns, {} values were given", types.len(), key.len());
            return Err(Fault::Invalid(what));
        }
        let mut values = Vec::with_capacity(key.len());
        for (column, text) in types.iter().zip(key) {
            let Some(text) = text.as_deref() else { return Ok(None) };
            let value = match (column.enum_type(), column.column_type()) {
                (Some(_), _) => column.assign(Value::text(text)).map_err(|error| invalid(&error))?,
                (None, Type::TEXT) => Value::text(text),
                (None, ty) => from_text(text, ty)?,
            };
            values.push(value);
        }
        let Some(row) = self.point.get(snapshot.engine(), &values)? else { return Ok(None) };
        let row = row.row().values()?.into_iter().map(Value::into_owned);
        Ok(Some((schema.version(), row.collect())))
    }
}
