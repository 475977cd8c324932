//! Execution of INSERT, UPDATE and DELETE.

use ropewalk::tables::{OwnedRow, Schema, Table, Type, Value};

use super::Delete;
use super::Found;
use super::Given;
use super::Insert;
use super::Returning;
use super::Source;
use super::Target;
use super::Update;
use super::unsupported;
use crate::access::access_path::{Path, key_value};
use crate::access::row_source::Access;
use crate::error::{Result, SqlError, state};
use crate::exec::point::run;
use crate::expr::cast::cast_in;
use crate::expr::{Context, Expr, Input, Nothing, Record, bug};
use crate::limits::budget::{Budget, value_bytes};
use crate::syntax::overriding::Overriding;

/// Number of written rows, and the rows of RETURNING.
#[derive(Default)]
pub(crate) struct Written {
    pub(crate) count: u64,
    pub(crate) rows: Vec<Record>,
}

impl Written {
    pub(crate) fn row(
        &mut self,
        row: &dyn Input,
        returning: Option<&Returning>,
        cx: &Context<'_>,
        budget: &Budget,
    ) -> Result<()> {
        self.count += 1;
        if let Some(returning) = returning {
            let record = Expr::record(&returning.output, cx, row)?;
            budget.take_row(&record)?;
            self.rows.push(record);
        }
        Ok(())
    }
}

fn column_name(schema: &Schema, place: usize) -> Result<&str> {
    schema.columns().get(place).map(|column| column.name()).ok_or_else(|| bug("a column beyond its table"))
}

/// The existing row and the proposed one, concatenated.
struct Both<'r> {
    old: &'r OwnedRow,
    new: &'r [Value<'static>],
    width: usize,
}

impl Input for Both<'_> {
    fn column(&self, index: usize) -> Result<Value<'_>> {
        match index.checked_sub(self.width) {
            None => Ok(self.old.get(index)?),
            Some(place) => self.new.column(place),
        }
    }
}

/// The proposed values of a row; `None` means the default of a column.
pub(crate) type Proposed = Vec<Option<Value<'static>>>;

/// Evaluates the rows of VALUES.
pub(super) fn given(rows: &[Vec<Given>], cx: &Context<'_>, budget: &Budget) -> Result<Vec<Proposed>> {
    let value = |given: &Given| match given {
        Given::Default => Ok(None),
        Given::Expr(expr) => {
            let value = expr.constant(cx)?;
            budget.take(value_bytes(&value))?;
            Ok(Some(value))
        }
    };
    rows.iter().map(|row| row.iter().map(value).collect()).collect()
}

/// Casts a row of a query to the types of the target columns.
pub(super) fn cast_to(row: Record, casts: &[(Type, bool)], cx: &Context<'_>) -> Result<Record> {
    let cast = |(value, (ty, needs_cast)): (Value<'static>, &(Type, bool))| {
        Ok(if *needs_cast { cast_in(value, *ty, cx.zone)?.into_owned() } else { value })
    };
    row.into_iter().zip(casts).map(cast).collect()
}

impl Source {
    /// Computes the rows that an INSERT proposes.
    pub(crate) fn proposed(
        &self,
        types: &[Type],
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
    ) -> Result<Vec<Proposed>> {
        if let Self::Values(rows) = self {
            return given(rows, cx, budget);
        }
        let records = self.records(types, access, cx, budget)?;
        Ok(records.into_iter().map(|record| record.into_iter().map(Some).collect()).collect())
    }

    /// Reads the rows of the query.
    pub(crate) fn records(
        &self,
        types: &[Type],
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
    ) -> Result<Vec<Record>> {
        match self {
            Self::Values(_) => Err(bug("the values of VALUES")),
            Self::Select(select) => budget.collect_rows(|sink| run(select, access, cx, budget, sink)),
            Self::Whole(query, casts) => {
                let mut records = Vec::new();
                query.run(types, access, cx, budget, &mut |row| {
                    budget.take_row(&row)?;
                    records.push(cast_to(row, casts, cx)?);
                    Ok(true)
                })?;
                Ok(records)
            }
        }
    }
}

impl Insert {
    pub(crate) fn run(
        &self,
        types: &[Type],
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
    ) -> Result<Written> {
        if let Some(row) = self.plain_row() {
            return self.insert_plain(row, access, cx, budget);
        }
        let records = self.source.proposed(types, access, cx, budget)?;
        self.write(records, access, cx, budget)
    }

    /// The only row of VALUES, if it has an expression for each column, in order, and is to be inserted only.
    fn plain_row(&self) -> Option<&[Given]> {
        let Source::Values(rows) = &self.source else { return None };
        let [row] = rows.as_slice() else { return None };
        let is_plain = self.on_conflict.is_none()
            && self.returning.is_none()
            && self.overriding.is_none()
            && self.locals.is_empty()
            && self.numbered.is_empty();
        let is_complete = row.len() == self.schema.columns().len()
            && self.places.iter().copied().eq(0..row.len())
            && row.iter().all(|given| matches!(given, Given::Expr(_)));
        (is_plain && is_complete).then_some(row.as_slice())
    }

    fn insert_plain(
        &self,
        row: &[Given],
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
    ) -> Result<Written> {
        let mut values = Vec::with_capacity(row.len());
        for given in row {
            let Given::Expr(expr) = given else { return Err(bug("a default in a complete row")) };
            let value = expr.eval(cx, &Nothing)?;
            budget.take(value_bytes(&value))?;
            values.push(value);
        }
        access.transaction()?.tables().insert_row(&self.table, &values)?;
        Ok(Written { count: 1, rows: Vec::new() })
    }

    /// Inserts rows of values for the target columns.
    pub(super) fn write(
        &self,
        mut records: Vec<Proposed>,
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
    ) -> Result<Written> {
        let mut locals = Vec::with_capacity(self.locals.len());
        for local in &self.locals {
            locals.push(Some(local.constant(cx)?));
        }
        if !locals.is_empty() {
            records.iter_mut().for_each(|record| record.extend(locals.iter().cloned()));
        }
        if self.overriding == Some(Overriding::User) {
            let is_numbered = |place: &usize| {
                self.schema.columns().get(*place).is_some_and(|column| column.identity().is_some())
            };
            let numbered: Vec<bool> = self.places.iter().map(is_numbered).collect();
            for record in &mut records {
                let slots = record.iter_mut().zip(&numbered).filter(|(_, is_numbered)| **is_numbered);
                slots.for_each(|(slot, _)| *slot = None);
            }
        }
        if self.on_conflict.is_none() && self.returning.is_none() && records.len() > 1 {
            return self.insert_all(access, records);
        }
        // A single row cannot be proposed twice.
        let (mut written, mut touched) = (Written::default(), (records.len() > 1).then(Vec::new));
        for record in records {
            self.insert_one(record, access, cx, budget, &mut written, &mut touched)?;
        }
        Ok(written)
    }

    fn named<'r>(&'r self, record: &'r [Option<Value<'static>>]) -> Result<Vec<(&'r str, Value<'r>)>> {
        let mut named = Vec::with_capacity(record.len());
        for (place, value) in self.places.iter().zip(record) {
            if let Some(value) = value {
                named.push((column_name(&self.schema, *place)?, value.borrowed()));
            }
        }
        Ok(named)
    }

    /// Inserts all rows as one statement of the tables model, so that rows may reference each other.
    fn insert_all(&self, access: &mut Access<'_>, records: Vec<Proposed>) -> Result<Written> {
        let named: Vec<Vec<(&str, Value<'_>)>> =
            records.iter().map(|record| self.named(record)).collect::<Result<_>>()?;
        let rows: Vec<&[(&str, Value<'_>)]> = named.iter().map(Vec::as_slice).collect();
        if let Some(last) = self.insert_rows(access, &rows)? {
            self.note_numbers(&last)?;
        }
        Ok(Written { count: rows.len() as u64, rows: Vec::new() })
    }

    /// Inserts rows; returns the last one.
    fn insert_rows(
        &self,
        access: &mut Access<'_>,
        rows: &[&[(&str, Value<'_>)]],
    ) -> Result<Option<OwnedRow>> {
        let mut tables = access.transaction()?.tables();
        Ok(match self.overriding {
            Some(Overriding::System) => tables.restore_many(&self.table, rows)?,
            _ => tables.insert_many(&self.table, rows)?,
        })
    }

    /// The values of a row that has one for each column, in order; `None` for another row.
    fn complete<'r>(&self, record: &'r Proposed) -> Option<Vec<Value<'r>>> {
        let in_order = self.places.iter().copied().eq(0..self.schema.columns().len());
        let values = || -> Option<Vec<Value<'r>>> {
            record.iter().map(|value| value.as_ref().map(Value::borrowed)).collect()
        };
        (in_order && self.places.len() == record.len() && self.overriding.is_none()).then(values).flatten()
    }

    fn insert_row(&self, access: &mut Access<'_>, record: &Proposed) -> Result<OwnedRow> {
        if let Some(values) = self.complete(record) {
            return Ok(access.transaction()?.tables().insert_row(&self.table, &values)?);
        }
        let row = self.insert_rows(access, &[&self.named(record)?])?;
        row.ok_or_else(|| bug("a row that was inserted"))
    }

    fn insert_one(
        &self,
        record: Proposed,
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
        written: &mut Written,
        touched: &mut Option<Vec<Vec<Value<'static>>>>,
    ) -> Result<()> {
        let Some(on_conflict) = &self.on_conflict else {
            let row = self.insert_row(access, &record)?;
            self.note_numbers(&row)?;
            return written.row(&row, self.returning.as_ref(), cx, budget);
        };
        let new = self.proposed(&record)?;
        for target in &on_conflict.targets {
            let Some(old) = target.find(&self.table, &self.schema, &new, access, cx)? else { continue };
            let Some((set, filter)) = &on_conflict.update else { return Ok(()) };
            let key = touched.as_ref().map(|_| identity(&old, &self.schema)).transpose()?;
            if let (Some(touched), Some(key)) = (&*touched, &key)
                && touched.contains(key)
            {
                let message = "ON CONFLICT DO UPDATE command cannot affect row a second time";
                return Err(SqlError::new(state::CARDINALITY_VIOLATION, message)
                    .hint("ensure that no rows proposed for insertion have the same key"));
            }
            let both = Both { old: &old, new: &new, width: self.schema.columns().len() };
            if let Some(filter) = filter
                && !filter.holds(cx, &both)?
            {
                return Ok(());
            }
            let changes = changes(set, &self.schema, cx, &both)?;
            if let (Some(touched), Some(key)) = (touched.as_mut(), key) {
                touched.push(key);
            }
            if self.returning.is_none() {
                let named = named(&changes, &self.schema)?;
                access.transaction()?.tables().update_row_as_read(&old, &named)?;
                written.count += 1;
                return Ok(());
            }
            let changed = change(access, &self.table, &self.schema, &old, &changes, true)?;
            return match &changed {
                Some(row) => written.row(row, self.returning.as_ref(), cx, budget),
                None => {
                    let overlaid = Overlaid { row: &old, changes: &changes };
                    written.row(&overlaid, self.returning.as_ref(), cx, budget)
                }
            };
        }
        let row = self.insert_row(access, &record)?;
        self.note_numbers(&row)?;
        if let Some(touched) = touched.as_mut().filter(|_| on_conflict.update.is_some()) {
            touched.push(identity(&row, &self.schema)?);
        }
        written.row(&row, self.returning.as_ref(), cx, budget)
    }

    /// Records numbers that the row drew from sequences, for `currval` and `lastval`.
    fn note_numbers(&self, row: &OwnedRow) -> Result<()> {
        for (place, sequence) in &self.numbered {
            if let Some(number) = row.get(*place)?.as_integer() {
                self.given.note(*sequence, number);
            }
        }
        Ok(())
    }

    /// The row to be inserted, with constant defaults.
    fn proposed(&self, record: &[Option<Value<'static>>]) -> Result<Record> {
        let mut row: Record = Vec::with_capacity(self.schema.columns().len());
        for (place, column) in self.schema.columns().iter().enumerate() {
            let at = self.places.iter().position(|given| *given == place);
            let given = at.and_then(|at| record.get(at)).and_then(Option::as_ref);
            row.push(match (given, column.default_value()) {
                (Some(value), _) => column.keep(value.clone()).map_err(|source| {
                    let (table, column) = (self.schema.name().to_owned(), column.name().to_owned());
                    SqlError::from(ropewalk::tables::TablesError::Value { table, column, source })
                })?,
                (None, ropewalk::tables::DefaultValue::Value(value)) => value.clone(),
                // Sequence numbers, times and random values are generated by the insertion.
                (None, _) => Value::Null,
            });
        }
        self.schema.generate(&mut row)?;
        Ok(row)
    }
}

impl Target {
    /// The stored row with the same values in the constraint's columns as `new`.
    fn find(
        &self,
        table: &Table,
        schema: &Schema,
        new: &Record,
        access: &mut Access<'_>,
        cx: &Context<'_>,
    ) -> Result<Option<OwnedRow>> {
        let mut key = Vec::with_capacity(self.places.len());
        for place in &self.places {
            let value = new.column(*place)?.into_owned();
            if value.is_null() && !self.nulls_equal {
                return Ok(None);
            }
            key.push(value);
        }
        let Some(index) = &self.index else { return access.get(table, &key) };
        let conjuncts: Vec<Expr> = self
            .places
            .iter()
            .zip(key)
            .map(|(place, value)| {
                let column = Box::new(Expr::Column(*place));
                if value.is_null() {
                    return Expr::IsNull(column, false);
                }
                Expr::Compare(crate::expr::arith::Compare::Eq, column, Box::new(Expr::Const(value)))
            })
            .collect();
        let mut path = Path::choose(schema, 0, &conjuncts, &[], false);
        if path.index.as_ref() != Some(index) && !path.is_point {
            path = Path::choose(schema, 0, &conjuncts, &[], true);
        }
        let mut found = None;
        access.walk(table, &path, cx, &Nothing, &mut |row| {
            for conjunct in &conjuncts {
                if !conjunct.holds(cx, &row)? {
                    return Ok(true);
                }
            }
            found = Some(row.to_owned());
            Ok(false)
        })?;
        Ok(found)
    }
}

/// The primary key of a row; all its values if the table has no key.
fn identity(row: &OwnedRow, schema: &Schema) -> Result<Vec<Value<'static>>> {
    let key = schema.key_columns();
    if key.is_empty() {
        return Ok(row.values()?.into_iter().map(Value::into_owned).collect());
    }
    key.iter().map(|place| Ok(row.get(*place)?.into_owned())).collect()
}

/// Evaluates new values of columns, by place.
pub(crate) fn changes(
    set: &[(usize, Given)],
    schema: &Schema,
    cx: &Context<'_>,
    input: &dyn Input,
) -> Result<Vec<(usize, Value<'static>)>> {
    let mut changes = Vec::with_capacity(set.len());
    for (place, given) in set {
        let is_generated = schema.columns().get(*place).is_some_and(|column| column.generated().is_some());
        // It is computed anyway.
        if is_generated && matches!(given, Given::Default) {
            continue;
        }
        changes.push((
            *place,
            match given {
                Given::Expr(expr) => expr.eval(cx, input)?.into_owned(),
                Given::Default => default_value(schema, *place, cx)?,
            },
        ));
    }
    Ok(changes)
}

pub(crate) fn default_value(schema: &Schema, place: usize, cx: &Context<'_>) -> Result<Value<'static>> {
    use ropewalk::tables::DefaultValue as D;
    let column = schema.columns().get(place).ok_or_else(|| bug("a column beyond its table"))?;
    if column.identity().is_some() {
        return Err(unsupported("SET an identity column TO DEFAULT"));
    }
    Ok(match column.default_value() {
        D::None => Value::Null,
        D::Value(value) => value.clone(),
        D::Now => cast_in(Value::Timestamptz(cx.now), column.column_type(), cx.zone)?.into_owned(),
        D::Next(_) => return Err(unsupported("SET a column TO DEFAULT that a sequence numbers")),
        D::NewUuid => Expr::Call(crate::expr::function::Function::NewUuid, Vec::new()).constant(cx)?,
    })
}

/// The changes by the names of their columns.
fn named<'v>(
    changes: &'v [(usize, Value<'static>)],
    schema: &'v Schema,
) -> Result<Vec<(&'v str, Value<'v>)>> {
    let mut named = Vec::with_capacity(changes.len());
    for (place, value) in changes {
        let column = schema.columns().get(*place).ok_or_else(|| bug("a column beyond its table"))?;
        if column.identity() == Some(ropewalk::tables::Identity::Always) || column.generated().is_some() {
            let message = format!("column \"{}\" can only be updated to DEFAULT", column.name());
            return Err(SqlError::new(state::GENERATED_ALWAYS, message));
        }
        named.push((column.name(), value.borrowed()));
    }
    Ok(named)
}

/// Writes changed columns; returns the new row if `is_wanted` and the table has a key.
pub(crate) fn change(
    access: &mut Access<'_>,
    table: &Table,
    schema: &Schema,
    row: &OwnedRow,
    changes: &[(usize, Value<'static>)],
    is_wanted: bool,
) -> Result<Option<OwnedRow>> {
    access.transaction()?.tables().update_row(row, &named(changes, schema)?)?;
    if !is_wanted {
        return Ok(None);
    }
    let key = schema.key_columns();
    if key.is_empty() {
        return Ok(None);
    }
    let mut new_key = Vec::with_capacity(key.len());
    for place in key {
        let changed = changes.iter().find(|(at, _)| at == place).map(|(_, value)| value.clone());
        let value = match changed {
            Some(value) => value,
            None => row.get(*place)?.into_owned(),
        };
        let ty = schema.columns().get(*place).map_or(Type::TEXT, |column| column.column_type());
        new_key.push(key_value(value, ty).ok_or_else(|| bug("a key that does not fit"))?);
    }
    access.get(table, &new_key)
}

impl Found {
    /// Reads the rows, and evaluates the complete condition for each.
    pub(super) fn rows(
        &self,
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
    ) -> Result<Vec<OwnedRow>> {
        let holds = |row: &dyn Input| -> Result<bool> {
            for condition in &self.filter {
                if !condition.holds(cx, row)? {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        if let Some(key) = self.path.key(cx, &Nothing)? {
            let row = access.get(&self.table, &key)?;
            return match row {
                Some(row) if holds(&row)? => Ok(vec![row]),
                _ => Ok(Vec::new()),
            };
        }
        let mut rows = Vec::new();
        access.walk(&self.table, &self.path, cx, &Nothing, &mut |row| {
            if !holds(&row)? {
                return Ok(true);
            }
            budget.take(256)?;
            rows.push(row.to_owned());
            Ok(true)
        })?;
        Ok(rows)
    }
}

/// The new row of a table without a key: the old one, overlaid with changes.
struct Overlaid<'r> {
    row: &'r OwnedRow,
    changes: &'r [(usize, Value<'static>)],
}

impl Input for Overlaid<'_> {
    fn column(&self, index: usize) -> Result<Value<'_>> {
        match self.changes.iter().find(|(place, _)| *place == index) {
            Some((_, value)) => Ok(value.borrowed()),
            None => Ok(self.row.get(index)?),
        }
    }
}

impl Update {
    pub(crate) fn run(&self, access: &mut Access<'_>, cx: &Context<'_>, budget: &Budget) -> Result<Written> {
        let rows = self.found.rows(access, cx, budget)?;
        self.write(rows, access, cx, budget)
    }

    pub(super) fn write(
        &self,
        rows: Vec<OwnedRow>,
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
    ) -> Result<Written> {
        let mut written = Written::default();
        let Found { table, schema, .. } = &self.found;
        let places: Vec<usize> = self.set.iter().map(|(place, _)| *place).collect();
        access.transaction()?.tables().lock_rows(&rows, Some(&places))?;
        for row in rows {
            let changes = changes(&self.set, schema, cx, &row)?;
            let now = change(access, table, schema, &row, &changes, self.returning.is_some())?;
            match &now {
                Some(now) => written.row(now, self.returning.as_ref(), cx, budget)?,
                None => {
                    let overlaid = Overlaid { row: &row, changes: &changes };
                    written.row(&overlaid, self.returning.as_ref(), cx, budget)?;
                }
            }
        }
        Ok(written)
    }
}

impl Delete {
    pub(crate) fn run(&self, access: &mut Access<'_>, cx: &Context<'_>, budget: &Budget) -> Result<Written> {
        let rows = self.found.rows(access, cx, budget)?;
        self.write(rows, access, cx, budget)
    }

    pub(super) fn write(
        &self,
        rows: Vec<OwnedRow>,
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
    ) -> Result<Written> {
        let mut written = Written::default();
        access.transaction()?.tables().lock_rows(&rows, None)?;
        access.transaction()?.tables().delete_rows(&rows)?;
        for row in &rows {
            written.row(row, self.returning.as_ref(), cx, budget)?;
        }
        Ok(written)
    }
}
