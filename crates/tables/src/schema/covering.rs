//! Covering indexes: their entries also hold values of the row, so that queries of only these read no rows.
//!
//! The values are stored as a row ([`crate::schema::layout`]) after the row's key. Its layout follows from the
//! definition of the index: the plain indexed columns and those of INCLUDE, in the order of the table, without
//! those that the row's key holds. The number of the layout is that of the index's object, above all layouts of rows.

use crate::schema::layout::{Layout, LayoutColumn, Source};
use crate::schema::{Index, LAYOUTS_MAX, Parts};
use crate::value::Value;
use crate::value::expr::{ColumnRef, Expr};

/// The columns that the entries of one index hold.
#[derive(Debug)]
pub(crate) struct Covering {
    pub(crate) object: u32,
    layout: Layout,
    /// Columns of the layout, by their position in the schema.
    stored: Vec<usize>,
    /// By column of the schema.
    sources: Vec<Source>,
}

impl Covering {
    /// `None` for an index without included columns.
    pub(crate) fn new(parts: &Parts, key_sources: &[Option<usize>], index: &Index) -> Option<Self> {
        if index.include.is_empty() {
            return None;
        }
        let is_indexed = |id: u16| {
            let mut exprs = index.columns.iter().map(|column| &column.expr);
            exprs.any(|expr| *expr == Expr::Column(ColumnRef::Id(id)))
        };
        let (mut columns, mut stored, mut sources) = (Vec::new(), Vec::new(), Vec::new());
        for (place, column) in parts.columns.iter().enumerate() {
            sources.push(match key_sources.get(place).copied().flatten() {
                Some(ordinal) => Source::Key(ordinal),
                None if index.include.contains(&column.id) || is_indexed(column.id) => {
                    // Constraints may change; the entries do not.
                    columns.push(LayoutColumn { id: column.id, ty: column.ty, nullable: true });
                    stored.push(place);
                    Source::Layout(columns.len() - 1)
                }
                None => Source::Missing,
            });
        }
        Some(Self { object: index.object, layout: Layout::new(columns), stored, sources })
    }

    /// True when entries have the value of the column at a position of the schema.
    pub(crate) fn has(&self, place: usize) -> bool {
        self.sources.get(place).is_some_and(|source| *source != Source::Missing)
    }

    /// Where a column is found in an entry with this number of a layout; `None` for other numbers and columns.
    pub(crate) fn source(&self, number: usize, place: usize) -> Option<(&Layout, Source)> {
        let source = self.sources.get(place).copied().filter(|_| self.has(place))?;
        (number == self.number()).then_some((&self.layout, source))
    }

    fn number(&self) -> usize {
        LAYOUTS_MAX + self.object as usize
    }

    /// Appends the values of a row, one per column of the schema.
    pub(crate) fn put(&self, values: &[Value<'_>], out: &mut Vec<u8>) {
        let value = |place: &usize| values.get(*place).expect("a row has a value for each column");
        self.layout.put(self.number(), self.stored.iter().map(value), out);
    }
}
