//! Tables as relations: conditions become a path, or are asked of a row before its columns are taken; a whole table is read in parts.

use std::sync::Arc;

use ropewalk::tables::{KeyRange, Row, Schema, Table, Type, Value};

use crate::access::Access;
use crate::error::Result;
use crate::expr::{Expr, Input, Nothing, bug};
use crate::interrupt::Interrupt;
use crate::path::Path;
use crate::query::rows::{Part, Rows, Scan};
use crate::query::scalar::Around;
use crate::types::is_integer;

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

    /// Parts by the first key column, where that is an integer; and about how many rows there are.
    fn parts(&self, access: &mut Access<'_>, count: usize) -> Result<(Vec<KeyRange<'static>>, Option<u64>)> {
        let whole = || vec![KeyRange::all()];
        let first = self.schema.key_columns().first().and_then(|place| self.schema.columns().get(*place));
        let ty = first.map(|column| column.column_type()).filter(|ty| is_integer(*ty));
        let (Some(ty), Some((low, high))) = (ty, access.ends(&self.table)?) else {
            return Ok((whole(), None));
        };
        let (Some(low), Some(high)) = (low.as_integer(), high.as_integer()) else {
            return Ok((whole(), None));
        };
        let span = high.saturating_sub(low);
        let estimate = u64::try_from(span).ok().map(|span| span.saturating_add(1));
        if count < 2 || span < SPLIT_SPAN {
            return Ok((whole(), estimate));
        }
        let step = span / i64::try_from(count).unwrap_or(i64::MAX).max(1);
        let cut = |part: usize| {
            let ahead = step.saturating_mul(i64::try_from(part).unwrap_or(i64::MAX));
            Value::Int8(low.saturating_add(ahead)).assign(ty).map_err(|_| bug("a part of a key range"))
        };
        let mut parts = Vec::with_capacity(count);
        for part in 0..count {
            let mut range = KeyRange::all();
            if part > 0 {
                range = range.from(vec![cut(part)?]);
            }
            if part + 1 < count {
                range = range.before(vec![cut(part + 1)?]);
            }
            parts.push(range);
        }
        Ok((parts, estimate))
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
        // Alone it may be of no use and still belong to a key of several columns.
        matches!(conjunct, Expr::Compare(..) | Expr::In(..) | Expr::And(_))
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
        let (mut ranges, mut estimate) =
            (vec![path.ranges(&self.around.context(&Interrupt::never()), &Nothing)?.ranges], None);
        if path.is_whole()
            && let Some(access) = access
        {
            let (parts, rows) = self.parts(access, if limited { 1 } else { parts })?;
            ranges = parts.into_iter().map(|range| vec![range]).collect();
            estimate = rows;
        }
        let part = |ranges| -> Box<dyn Part> {
            let (table, path, around) = (self.table.clone(), path.clone(), self.around.clone());
            Box::new(TablePart { table, path, ranges, conjuncts: conjuncts.to_vec(), around })
        };
        Ok(Scan { parts: ranges.into_iter().map(part).collect(), shown, estimate })
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
    fn read(&self, access: &mut Access<'_>, row: &mut dyn FnMut(&dyn Input) -> Result<bool>) -> Result<()> {
        let interrupt = Interrupt::never();
        let cx = self.around.context(&interrupt);
        access.walk_ranges(&self.table, &self.path, &self.ranges, &mut |found: Row<'_>| {
            for conjunct in &self.conjuncts {
                if !conjunct.holds(&cx, &found)? {
                    return Ok(true);
                }
            }
            row(&found)
        })
    }
}
