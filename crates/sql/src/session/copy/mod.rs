//! Runs COPY in a session: receives and sends the data in chunks of bytes.
//!
//! ```text
//! copy_in ─▶ CopyIn ─▶ copy_data, copy_data, ... ─▶ copy_end    (copy_fail or drop: nothing is copied)
//!              empty table ─▶ a bulk load of the tables model, outside of the log if it is large
//!              otherwise   ─▶ inserts, some rows at a time
//! copy_out ─▶ chunks to a function
//! ```
//! A COPY is one statement: it adds all of its rows or none, in its own transaction unless one is open. In a
//! table that references itself all rows are inserted at once, so that they may arrive in any order.

mod decode;
mod encode;

use std::sync::Arc;

use ropewalk::Transaction;
use ropewalk::tables::{LoadOptions, Schema, Table, TxLoad, Type, Value};
use sqlparser::ast;

use crate::access::row_source::Access;
use crate::error::{Result, SqlError, state};
use crate::exec::analytic::WholeQuery;
use crate::exec::executor::may_serve;
use crate::exec::{analytic, point};
use crate::expr::enum_call::labelled;
use crate::expr::{Context, bug};
use crate::limits::budget::Budget;
use crate::plan::{Planner, Select};
use crate::session::Session;
use crate::session::copy::decode::{Reader, Record};
use crate::session::copy::encode::Writer;
use crate::session::prepared::{Plan, Prepared};
use crate::syntax::copy_statement::{Copied, CopyStatement, Direction, Format};
use crate::syntax::parse::Statement;
use crate::syntax::statements::Utility;
use crate::types::binary_format::from_binary;
use crate::types::executor::Executor;
use crate::types::outcome::{Outcome, ResultColumn};
use crate::types::text_format::from_text_in;
use crate::types::zone::Zone;

/// Number of rows that are inserted at once.
const BATCH: usize = 512;
/// Approximate size of a chunk of COPY TO.
const CHUNK_BYTES: usize = 64 << 10;

/// Direction of a COPY, for the code that transports its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyDirection {
    /// Bytes go to [`Session::copy_in`].
    In,
    /// Bytes come from [`Session::copy_out`].
    Out,
}

/// Direction and format of a COPY statement, for the code that transports its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyFormat {
    /// Direction of the bytes.
    pub way: CopyDirection,
    /// Number of columns.
    pub columns: usize,
    /// PostgreSQL's binary format, not text.
    pub is_binary: bool,
}

/// Target table and columns of COPY FROM.
#[derive(Clone)]
pub(crate) struct Target {
    table: Table,
    schema: Arc<Schema>,
    places: Vec<usize>,
}

/// A running COPY FROM. Dropped before [`Session::copy_end`] it copies nothing, except in an open transaction:
/// end it there with [`Session::copy_fail`], so that the transaction fails and its rows are rolled back.
pub struct CopyIn {
    target: Target,
    is_binary: bool,
    zone: Zone,
    reader: Reader,
    record: Record,
    types: Vec<Type>,
    /// Its own transaction; `None` if the session has an open one.
    own: Option<Transaction>,
    load: Option<TxLoad>,
    waiting: Vec<Vec<Value<'static>>>,
    /// True if all rows are inserted at the end.
    waits: bool,
    budget: Budget,
    count: u64,
}

pub(crate) enum CopyPlan {
    In(Target),
    Out(Box<Select>),
    /// From a query that the analytic engine runs.
    Whole(WholeQuery),
}

impl CopyPlan {
    pub(crate) fn of(copy: &CopyStatement, planner: &mut Planner<'_>) -> Result<Self> {
        let columns = match (&copy.what, copy.direction) {
            (Copied::Query(query), _) => {
                if planner.executor() == Executor::Engine
                    && let Some(query) = planner.forced(|planner| {
                        analytic::prepare(query, planner)
                            .map(|planned| planned.is_served.then_some(planned.query))
                    })?
                {
                    return Ok(Self::Whole(query));
                }
                let mark = planner.mark();
                return match planner.query(query) {
                    Ok(select) => Ok(Self::Out(Box::new(select))),
                    Err(error) if may_serve(&error) => {
                        planner.back_to(mark);
                        Ok(Self::Whole(analytic::prepare(query, planner)?.query))
                    }
                    Err(error) => Err(error),
                };
            }
            (Copied::Table { columns, .. }, _) => columns,
        };
        let Copied::Table { table, .. } = &copy.what else { return Err(bug("a COPY of nothing")) };
        if copy.direction == Direction::To {
            let quoted = |name: &String| format!("\"{}\"", name.replace('"', "\"\""));
            let list = columns.as_ref().map_or_else(
                || "*".to_owned(),
                |columns| columns.iter().map(quoted).collect::<Vec<_>>().join(", "),
            );
            let text = format!("SELECT {list} FROM {}", crate::syntax::names::object_name(table));
            return match crate::syntax::parse::one(&text)? {
                Statement::Sql(ast::Statement::Query(query)) => {
                    Ok(Self::Out(Box::new(planner.query(&query)?)))
                }
                _ => Err(bug("COPY TO parsed as another statement")),
            };
        }
        let (table, schema) = planner.target_table(&crate::syntax::names::object_name(table))?;
        let places = match columns {
            None => (0..schema.columns().len()).collect(),
            Some(columns) => {
                let mut places: Vec<usize> = Vec::with_capacity(columns.len());
                for column in columns {
                    let place = schema.index_of(column)?;
                    if places.contains(&place) {
                        let message = format!("column \"{column}\" specified more than once");
                        return Err(SqlError::new(state::DUPLICATE_COLUMN, message));
                    }
                    places.push(place);
                }
                places
            }
        };
        Ok(Self::In(Target { table, schema, places }))
    }

    pub(crate) fn width(&self) -> usize {
        match self {
            Self::In(target) => target.places.len(),
            Self::Out(select) => select.columns.len(),
            Self::Whole(query) => query.columns.len(),
        }
    }
}

impl Target {
    fn names(&self) -> Vec<String> {
        let name = |place: &usize| self.schema.columns().get(*place).map(|column| column.name().to_owned());
        self.places.iter().filter_map(name).collect()
    }

    fn types(&self) -> Vec<Type> {
        let ty = |place: &usize| self.schema.columns().get(*place).map(|column| column.column_type());
        self.places.iter().filter_map(ty).collect()
    }
}

fn statement_of(prepared: &Prepared) -> Result<CopyStatement> {
    match prepared.statement.as_ref() {
        Statement::Utility(Utility::Copy(copy)) => Ok(copy.clone()),
        other => Err(SqlError::new(state::INVALID_PARAMETER_VALUE, format!("{other} is not COPY"))),
    }
}

impl Prepared {
    /// Direction and format, if the statement is COPY FROM STDIN or TO STDOUT.
    pub fn copy(&self) -> Option<CopyFormat> {
        let Plan::Copy(plan) = &self.plan else { return None };
        let copy = statement_of(self).ok()?;
        let way = match copy.direction {
            Direction::From => CopyDirection::In,
            Direction::To => CopyDirection::Out,
        };
        Some(CopyFormat { way, columns: plan.width(), is_binary: copy.format == Format::Binary })
    }
}

impl Session {
    /// Begins COPY FROM STDIN.
    ///
    /// # Errors
    /// The statement is not COPY FROM; its table does not exist or cannot be written to.
    pub fn copy_in(&mut self, prepared: &mut Prepared) -> Result<CopyIn> {
        let begun = self.begin_copy(prepared);
        self.failing(begun)
    }

    fn begin_copy(&mut self, prepared: &mut Prepared) -> Result<CopyIn> {
        self.may_run(prepared)?;
        let copy = statement_of(prepared)?;
        let memory_bytes_max = self.settings().memory_bytes_max;
        let zone = self.settings().zone.clone();
        let mut own = if self.transaction().is_none() {
            Some(self.database().begin_with(self.settings().isolation))
        } else {
            None
        };
        let db = self.database().clone();
        let transaction = match &mut own {
            Some(own) => own,
            None => self.transaction().ok_or_else(|| bug("no transaction"))?,
        };
        prepared.renew(Access::Transaction(&db, transaction))?;
        let Plan::Copy(CopyPlan::In(target)) = &prepared.plan else {
            return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, "the statement is not COPY FROM"));
        };
        // COPY may set columns that are GENERATED ALWAYS, so that a dump can be restored unchanged.
        let load = transaction.tables().load(&target.table, LoadOptions::default())?;
        let load = load.map(TxLoad::allow_generated_values);
        let refers = |key: &ropewalk::tables::ForeignKey| key.parent() == target.schema.id();
        Ok(CopyIn {
            is_binary: copy.format == Format::Binary,
            zone,
            reader: Reader::new(&copy, target.names())?,
            record: Record::default(),
            types: target.types(),
            own,
            load,
            waiting: Vec::new(),
            waits: target.schema.foreign_keys().iter().any(refers),
            budget: Budget::new(memory_bytes_max),
            count: 0,
            target: target.clone(),
        })
    }

    /// Processes the next chunk of the data, of any size.
    ///
    /// # Errors
    /// The data is malformed, does not fit its column, or violates a constraint. The COPY has then ended.
    pub fn copy_data(&mut self, copy: &mut CopyIn, bytes: &[u8]) -> Result<()> {
        let taken = copy.reader.push(bytes).and_then(|()| self.take_records(copy, false));
        self.failing(taken)
    }

    /// Ends the data and adds the rows.
    ///
    /// # Errors
    /// As [`Session::copy_data`], and those of a commit outside of a transaction.
    pub fn copy_end(&mut self, mut copy: CopyIn) -> Result<Outcome> {
        let ended = self.end_copy(&mut copy);
        self.failing(ended)
    }

    fn end_copy(&mut self, copy: &mut CopyIn) -> Result<Outcome> {
        self.take_records(copy, true)?;
        let durability = self.settings().durability;
        self.in_transaction_of(copy, |copy, transaction| {
            copy.insert_waiting(transaction)?;
            if let Some(load) = copy.load.take() {
                load.finish(&mut transaction.tables())?;
            }
            Ok(())
        })?;
        if let Some(own) = copy.own.take() {
            own.commit_with(durability)?;
        }
        Ok(Outcome { count: Some(copy.count), ..Outcome::of("COPY") })
    }

    /// Aborts the COPY: an open transaction fails. Returns the error to report.
    pub fn copy_fail(&mut self, copy: CopyIn, reason: &str) -> SqlError {
        drop(copy);
        let error = SqlError::new(state::QUERY_CANCELED, format!("COPY from stdin failed: {reason}"));
        match self.failing::<(), _>(Err(error.clone())) {
            Ok(()) => error,
            Err(error) => error,
        }
    }

    fn in_transaction_of<R>(
        &mut self,
        copy: &mut CopyIn,
        work: impl FnOnce(&mut CopyIn, &mut Transaction) -> Result<R>,
    ) -> Result<R> {
        let mut own = copy.own.take();
        let transaction = match &mut own {
            Some(own) => own,
            None => self.transaction().ok_or_else(|| {
                let message = "the transaction of the COPY has ended";
                SqlError::new(state::NO_ACTIVE_SQL_TRANSACTION, message)
            })?,
        };
        let done = work(copy, transaction);
        copy.own = own;
        done
    }

    fn take_records(&mut self, copy: &mut CopyIn, last: bool) -> Result<()> {
        self.in_transaction_of(copy, |copy, transaction| {
            let mut record = std::mem::take(&mut copy.record);
            while copy.reader.next(&mut record, last)? {
                copy.take(&record, transaction)?;
            }
            copy.record = record;
            Ok(())
        })
    }

    /// Runs COPY TO STDOUT; `give` receives the bytes in chunks of about 64 KiB, and may stop it with an
    /// error.
    ///
    /// # Errors
    /// Those of the query, and of `give`.
    pub fn copy_out(
        &mut self,
        prepared: &mut Prepared,
        give: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<Outcome> {
        let done = self.run_copy_out(prepared, give);
        self.failing(done)
    }

    fn run_copy_out(
        &mut self,
        prepared: &mut Prepared,
        give: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<Outcome> {
        self.may_run(prepared)?;
        let copy = statement_of(prepared)?;
        let budget = Budget::new(self.settings().memory_bytes_max);
        let (now, interrupt) = (self.now(), self.interrupt());
        let interrupt = &interrupt;
        let db = self.database().clone();
        let (snapshot, zone) = (db.snapshot(), &self.settings().zone.clone());
        let mut access = match self.transaction() {
            Some(transaction) => Access::Transaction(&db, transaction),
            None => Access::Snapshot(&db, &snapshot),
        };
        prepared.renew(access.again())?;
        let answers = prepared.answers(&mut access, now, &budget, interrupt)?;
        let columns: &[ResultColumn] = match &prepared.plan {
            Plan::Copy(CopyPlan::Out(select)) => &select.columns,
            Plan::Copy(CopyPlan::Whole(query)) => &query.columns,
            _ => return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, "the statement is not COPY TO")),
        };
        let env = db.engine().env();
        let cx = Context { params: &[], answers: &answers, now, env, zone, interrupt, nested: None };
        let columns = columns.iter().map(|ResultColumn { name, .. }| name.clone()).collect();
        let mut writer = Writer::new(&copy, columns, zone.clone())?;
        let mut out = Vec::with_capacity(CHUNK_BYTES + 4096);
        let mut count = 0;
        writer.begin(&mut out);
        let mut each = |row: Vec<Value<'static>>| {
            writer.row(&row, &mut out);
            count += 1;
            if out.len() >= CHUNK_BYTES {
                give(&out)?;
                out.clear();
            }
            Ok(true)
        };
        match &prepared.plan {
            Plan::Copy(CopyPlan::Out(select)) => point::run(select, &mut access, &cx, &budget, &mut each)?,
            Plan::Copy(CopyPlan::Whole(query)) => {
                query.run(prepared.parameters(), &mut access, &cx, &budget, &mut each)?;
            }
            _ => {}
        }
        writer.end(&mut out);
        if !out.is_empty() {
            give(&out)?;
        }
        Ok(Outcome { count: Some(count), ..Outcome::of("COPY") })
    }
}

impl CopyIn {
    fn take(&mut self, record: &Record, transaction: &mut Transaction) -> Result<()> {
        let values = self.values(record).map_err(|error| self.placed(error))?;
        if self.load.is_none() {
            self.budget.take_row(&values)?;
            self.waiting.push(values);
            self.count += 1;
            if self.waiting.len() >= BATCH && !self.waits {
                return self.insert_waiting(transaction);
            }
            return Ok(());
        }
        let is_whole = self.is_whole();
        let taken = match &mut self.load {
            Some(load) if is_whole => load.row(&mut transaction.tables(), &values),
            Some(load) => {
                let named = Self::named(&self.target.schema, &self.target.places, &values);
                load.insert(&mut transaction.tables(), &named)
            }
            None => Ok(()),
        };
        taken.map_err(|error| self.placed(error.into()))?;
        self.count += 1;
        Ok(())
    }

    /// True when the records have all columns of the table, in order.
    fn is_whole(&self) -> bool {
        self.target.places.len() == self.target.schema.columns().len() && self.target.places.is_sorted()
    }

    fn named<'v>(
        schema: &'v Schema,
        places: &[usize],
        values: &'v [Value<'static>],
    ) -> Vec<(&'v str, Value<'v>)> {
        let name = |place: &usize| schema.columns().get(*place).map_or("", |column| column.name());
        places.iter().map(name).zip(values.iter().map(Value::borrowed)).collect()
    }

    fn insert_waiting(&mut self, transaction: &mut Transaction) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let waiting = std::mem::take(&mut self.waiting);
        let Target { table, schema, places } = &self.target;
        let named: Vec<_> = waiting.iter().map(|values| Self::named(schema, places, values)).collect();
        let rows: Vec<&[(&str, Value<'_>)]> = named.iter().map(Vec::as_slice).collect();
        transaction.tables().restore_many(table, &rows).map_err(|error| self.placed(error.into()))?;
        waiting.iter().for_each(|row| self.budget.give_back(crate::limits::budget::row_bytes(row)));
        Ok(())
    }

    fn values(&self, record: &Record) -> Result<Vec<Value<'static>>> {
        let mut values = Vec::with_capacity(self.types.len());
        if record.len() > self.types.len() {
            let message = "extra data after last expected column";
            return Err(SqlError::new(state::BAD_COPY_FILE_FORMAT, message));
        }
        for ((field, ty), place) in record.fields().zip(&self.types).zip(&self.target.places) {
            let column = self.target.schema.columns().get(*place);
            let labels = column.and_then(|column| column.enum_type());
            let value = match field {
                None => Value::Null,
                Some(bytes) if self.is_binary => from_binary(bytes, *ty)?,
                Some(bytes) => {
                    let text =
                        std::str::from_utf8(bytes).map_err(|_| crate::types::binary_format::not_utf8())?;
                    from_text_in(text, *ty, &self.zone)?
                }
            };
            values.push(labelled(value, labels.map(|labels| &**labels))?);
        }
        if values.len() < self.types.len() {
            let names = self.target.names();
            let missing = names.get(values.len()).map_or("", String::as_str);
            let message = format!("missing data for column \"{missing}\"");
            return Err(SqlError::new(state::BAD_COPY_FILE_FORMAT, message));
        }
        Ok(values)
    }

    /// The error with its line number in the hint.
    fn placed(&self, error: SqlError) -> SqlError {
        let place = format!("COPY {}, line {}", self.target.schema.unqualified_name(), self.reader.line);
        match &error.hint {
            None => error.hint(place),
            Some(hint) => {
                let hint = format!("{hint}; {place}");
                error.hint(hint)
            }
        }
    }
}
