//! State shared by all parts of one run of nested loops: tables, memory, and the rows read and hashed so far.
//!
//! ```text
//! subquery, copied for each outer row ─▶ all copies read the same cached rows
//!   table    read by key where a key is known, to keep the transaction's read set small
//!   join     one hash table for the same rows and the same keys
//! ```
//! Invariant: [`Run::free`] decreases by memory in temporary use, not by memory that the run holds to its
//! end. A part that is done releases the difference.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use ropewalk::tables::{KeyRange, Table, Value};

use super::run::Rows;
use crate::access::access_path::Path;
use crate::access::row_source::Access;
use crate::error::Result;
use crate::exec::point::{JoinTable, join_identity};
use crate::exec::relations::Rows as _;
use crate::exec::relations::models::ModelRelation;
use crate::expr::{Context, Expr, Record, bug};
use crate::limits::budget::Budget;

/// Limit of range reads that are held to the end of a run. Ranges may overlap, unlike the rows of different
/// keys.
const RANGES_MAX: usize = 16;
/// Limit of hash tables over the same rows: a key that contains an outer value differs for each outer row.
const TABLES_MAX: usize = 4;

/// Rows read so far, by table, path and ranges.
#[derive(Default)]
struct Read {
    rows: HashMap<String, Rows>,
    ranges: usize,
}

/// The hash tables of some rows. They hold the rows, so that no other rows get the same address.
struct Hashed {
    rows: Rows,
    tables: Vec<(Vec<Expr>, Arc<JoinTable>)>,
}

/// A run.
pub(super) struct Run<'a> {
    /// `None` when all tables have been read before.
    access: Option<RefCell<Access<'a>>>,
    budget: &'a Budget,
    held: Cell<usize>,
    read: RefCell<Read>,
    hashed: RefCell<HashMap<usize, Hashed>>,
}

impl<'a> Run<'a> {
    pub(super) fn new(access: Option<Access<'a>>, budget: &'a Budget) -> Self {
        Self {
            access: access.map(RefCell::new),
            budget,
            held: Cell::new(0),
            read: RefCell::default(),
            hashed: RefCell::default(),
        }
    }

    fn rows(
        &self,
        table: &Table,
        path: &Path,
        ranges: &[KeyRange<'static>],
        cx: &Context<'_>,
    ) -> Result<Vec<Record>> {
        let access = self.access.as_ref().ok_or_else(|| bug("a table that was not read"))?;
        let mut rows = Vec::new();
        access.borrow_mut().walk_ranges(table, path, ranges, &mut |row| {
            cx.interrupt.check(cx.env)?;
            let row: Record = row.values()?.into_iter().map(Value::into_owned).collect();
            self.budget.take_row(&row)?;
            rows.push(row);
            Ok(true)
        })?;
        Ok(rows)
    }
}

impl Run<'_> {
    /// Caches the rows of a place to the end of the run, unless they are of a range and there are too many of
    /// those. `free`: the free bytes before they were read.
    fn keep(&self, place: String, rows: Rows, is_range: bool, free: usize) -> Result<(Rows, bool)> {
        let mut read = self.read.borrow_mut();
        if is_range {
            read.ranges += 1;
            if read.ranges > RANGES_MAX {
                return Ok((rows, false));
            }
        }
        self.budget.take(place.len() + 64)?;
        self.hold(free.saturating_sub(self.free()));
        read.rows.insert(place, rows.clone());
        Ok((rows, true))
    }
}

impl Run<'_> {
    /// The memory of the statement.
    pub(super) fn budget(&self) -> &Budget {
        self.budget
    }

    /// Free bytes, not counting those that the run holds to its end.
    pub(super) fn free(&self) -> usize {
        self.budget.remaining().saturating_add(self.held.get())
    }

    /// Marks so many of the taken bytes as held to the end of the run.
    pub(super) fn hold(&self, bytes: usize) {
        self.held.set(self.held.get().saturating_add(bytes));
    }

    /// The rows of a table on a path, in `ranges` of its key; false when the run does not hold them.
    pub(super) fn read(
        &self,
        table: &Table,
        path: &Path,
        ranges: &[KeyRange<'static>],
        cx: &Context<'_>,
    ) -> Result<(Rows, bool)> {
        let place = format!("{} {:?} {ranges:?}", table.id(), path.index);
        if let Some(rows) = self.read.borrow().rows.get(&place) {
            return Ok((rows.clone(), true));
        }
        let free = self.free();
        let rows = Arc::new(self.rows(table, path, ranges, cx)?);
        self.keep(place, rows, path.is_between(), free)
    }

    /// The rows of a model, narrowed by conditions over its columns; false when the run does not hold them.
    pub(super) fn read_model(
        &self,
        model: &Arc<ModelRelation>,
        conditions: &[Expr],
        cx: &Context<'_>,
    ) -> Result<(Rows, bool)> {
        let place = format!("model {:p} {conditions:?}", Arc::as_ptr(model));
        if let Some(rows) = self.read.borrow().rows.get(&place) {
            return Ok((rows.clone(), true));
        }
        let free = self.free();
        let access = self.access.as_ref().ok_or_else(|| bug("a model that was not read"))?;
        let mut rows = Vec::new();
        let watch = cx.interrupt.watch(cx.env);
        for part in model.scan(conditions, false, 1, None)?.parts {
            part.read(&mut access.borrow_mut(), &watch, &mut |row| {
                cx.interrupt.check(cx.env)?;
                let values = (0..model.fields().len()).map(|place| Ok(row.column(place)?.into_owned()));
                let row = values.collect::<Result<Record>>()?;
                self.budget.take_row(&row)?;
                rows.push(row);
                Ok(true)
            })?;
        }
        self.keep(place, Arc::new(rows), !conditions.is_empty(), free)
    }

    /// Rows of the run, hashed by the values of `keys` over their columns; `None` when that is not worth it.
    pub(super) fn hashed(
        &self,
        rows: &Rows,
        keys: &[Expr],
        cx: &Context<'_>,
    ) -> Result<Option<Arc<JoinTable>>> {
        let place = Arc::as_ptr(rows) as usize;
        let new = || Hashed { rows: rows.clone(), tables: Vec::new() };
        {
            let mut all = self.hashed.borrow_mut();
            let hashed = all.entry(place).or_insert_with(new);
            debug_assert!(Arc::ptr_eq(&hashed.rows, rows), "rows that are held keep their address");
            if let Some((_, table)) = hashed.tables.iter().find(|(known, _)| known == keys) {
                return Ok(Some(table.clone()));
            }
            if hashed.tables.len() >= TABLES_MAX {
                return Ok(None);
            }
        }
        let free = self.free();
        let table = Arc::new(join_table(rows, keys, self.budget, cx)?);
        self.hold(free.saturating_sub(self.free()));
        let mut all = self.hashed.borrow_mut();
        all.entry(place).or_insert_with(new).tables.push((keys.to_vec(), table.clone()));
        Ok(Some(table))
    }
}

/// Rows by the values of expressions over their columns.
pub(super) fn join_table(
    rows: &[Record],
    keys: &[Expr],
    budget: &Budget,
    cx: &Context<'_>,
) -> Result<JoinTable> {
    let mut table = JoinTable::default();
    for (number, row) in rows.iter().enumerate() {
        cx.interrupt.check(cx.env)?;
        let values = keys.iter().map(|expr| Ok(vec![expr.eval(cx, row)?.into_owned()]));
        table.add(number, join_identity(values), budget)?;
    }
    Ok(table)
}
