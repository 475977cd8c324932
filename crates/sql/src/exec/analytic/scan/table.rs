//! Tables as relations: conditions become a path, or are evaluated for a row before its columns are read; a
//! complete table is read in parts, from cached columns.

use std::sync::Arc;

use ropewalk::tables::{KeyRange, Row, Schema, Table, Type, Value};

use crate::access::access_path::Path;
use crate::access::row_source::Access;
use crate::error::Result;
use crate::exec::analytic::kernel::scalar::Around;
use crate::exec::analytic::scan::columns::{self, Stretch};
use crate::exec::relations::{Part, RowSink, Rows, Scan};
use crate::expr::{Expr, Nothing, bug};
use crate::limits::interrupt::Watch;
use crate::types::names::is_integer;

/// Tables are read in parts when their first key column spans more than this.
const SPLIT_SPAN: i64 = 20_000;

pub(crate) struct TableRelation {
    table: Table,
    schema: Arc<Schema>,
    fields: Vec<(String, Type)>,
    around: Around,
}

impl TableRelation {
    pub(crate) fn new(table: Table, schema: Arc<Schema>, around: Around) -> Self {
        let fields = schema.columns().iter().map(|c| (c.name().to_owned(), c.column_type())).collect();
        Self { table, schema, fields, around }
    }

    /// Stretches of similar row counts, and the approximate number of rows: from its cached columns, or from
    /// the first key column if that is an integer.
    fn stretches(&self, access: &mut Access<'_>, count: usize) -> Result<(Vec<Stretch>, Option<u64>)> {
        let Access::Snapshot(db, snapshot) = access else { return Err(bug("columns of a transaction")) };
        let ends = self.ends(&mut Access::Snapshot(db, snapshot))?;
        let cuts = || -> Result<Vec<Vec<u8>>> {
            let Some((low, span, ty)) = ends.filter(|(_, span, _)| *span >= SPLIT_SPAN) else {
                return Ok(Vec::new());
            };
            let count = i64::try_from(count).unwrap_or(i64::MAX).max(1);
            let cut = |part: i64| {
                let value = Value::Int8(low.saturating_add((span / count).saturating_mul(part)));
                let value = value.assign(ty).map_err(|_| bug("a part of a key range"))?;
                Ok(snapshot.tables(db).stored_prefix(&self.table, &[value])?)
            };
            (1..count).map(cut).collect()
        };
        let (stretches, known) = columns::stretches(db, &self.table, &self.schema, count, cuts)?;
        let guessed =
            ends.and_then(|(_, span, _)| u64::try_from(span).ok()).map(|span| span.saturating_add(1));
        Ok((stretches, known.or(guessed)))
    }

    /// The lowest value of the first key column, its distance to the highest, and its type; `None` if it is
    /// no integer.
    fn ends(&self, access: &mut Access<'_>) -> Result<Option<(i64, i64, Type)>> {
        let first = self.schema.key_columns().first().and_then(|place| self.schema.columns().get(*place));
        let ty = first.map(|column| column.column_type()).filter(|ty| is_integer(*ty));
        let (Some(ty), Some((low, high))) = (ty, access.ends(&self.table)?) else { return Ok(None) };
        let (Some(low), Some(high)) = (low.as_integer(), high.as_integer()) else { return Ok(None) };
        Ok(Some((low, high.saturating_sub(low), ty)))
    }
}

impl Rows for TableRelation {
    fn name(&self) -> &str {
        self.schema.name()
    }

    fn fields(&self) -> &[(String, Type)] {
        &self.fields
    }

    fn narrows(&self, conjunct: &Expr) -> bool {
        // A condition may not be usable alone and still belong to a key of several columns.
        match conjunct {
            Expr::Like(_, like) => like.span().is_some(),
            _ => matches!(conjunct, Expr::Compare(..) | Expr::In(..) | Expr::And(_)),
        }
    }

    fn scan(
        &self,
        conjuncts: &[Expr],
        limited: bool,
        parts: usize,
        access: Option<&mut Access<'_>>,
    ) -> Result<Scan> {
        let path = Path::choose(&self.schema, 0, conjuncts, &[], limited);
        let shown = path.describe(&self.schema);
        if path.is_whole()
            && !limited
            && let Some(access) = access
        {
            let (stretches, estimate) = self.stretches(access, parts)?;
            let part = |stretch| -> Box<dyn Part> { Box::new(Whole(stretch)) };
            let shown = format!("{shown} of cached columns");
            return Ok(Scan { parts: stretches.into_iter().map(part).collect(), shown, estimate });
        }
        let interrupt = self.around.interrupt();
        // An error here may belong to a condition that the filter above guards: then all rows are read.
        let ranges = path.ranges(&self.around.context(&interrupt), &Nothing);
        let ranges = ranges.map_or_else(|_| vec![KeyRange::all()], |ranges| ranges.ranges);
        let (table, around) = (self.table.clone(), self.around.clone());
        let part = TablePart { table, path, ranges, conjuncts: conjuncts.to_vec(), around };
        Ok(Scan { parts: vec![Box::new(part)], shown, estimate: None })
    }
}

/// A part of a complete table.
pub(super) struct Whole(pub(super) Stretch);

impl Part for Whole {
    fn read(&self, _: &mut Access<'_>, _: &Watch, _: &mut RowSink<'_>) -> Result<()> {
        Err(bug("columns that are read row by row"))
    }
}

struct TablePart {
    table: Table,
    path: Path,
    ranges: Vec<KeyRange<'static>>,
    conjuncts: Vec<Expr>,
    around: Around,
}

impl Part for TablePart {
    fn read(&self, access: &mut Access<'_>, _: &Watch, row: &mut RowSink<'_>) -> Result<()> {
        let interrupt = self.around.interrupt();
        let cx = self.around.context(&interrupt);
        access.walk_ranges(&self.table, &self.path, &self.ranges, &mut |found: Row<'_>| {
            interrupt.check(cx.env)?;
            // An error here may be guarded by a condition that only the engine evaluates; it evaluates all of
            // them again.
            if self.conjuncts.iter().any(|conjunct| matches!(conjunct.holds(&cx, &found), Ok(false))) {
                return Ok(true);
            }
            row(&found)
        })
    }
}
