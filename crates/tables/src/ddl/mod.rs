//! Definitions: tables and indexes are created, changed and dropped inside transactions, like rows.
//!
//! No change but those in `rekey` rewrites rows. Adding a column makes a new layout, and older rows read the
//! column's default; dropping one makes a layout without it. TRUNCATE gives the table new, empty objects.
//! The old ones are deleted as ranges in the same commit, so the next compaction frees their bytes.

pub(crate) mod build_index;
mod columns;
pub(crate) mod constraints;
pub(crate) mod enums;
mod indexes;
pub(crate) mod rekey;
pub(crate) mod sequence;
mod tables;

use std::sync::Arc;

use crate::error::{Result, TablesError, invalid};
use crate::schema::{KEY_COLUMNS_MAX, Parts, Schema};
use crate::value::expr::{ColumnRef, Expr};
use crate::value::types::Type;
use crate::write::tx::TablesTx;

/// The ids of named columns; rejects duplicates.
pub(crate) fn column_ids(parts: &Parts, names: &[String]) -> Result<Vec<u16>> {
    let mut ids = Vec::new();
    for name in names {
        let column = parts.columns.iter().find(|column| column.name == *name);
        let id = column
            .map(|c| c.id)
            .ok_or_else(|| TablesError::UnknownColumn { table: parts.name.clone(), column: name.clone() })?;
        if ids.contains(&id) {
            return Err(invalid(&parts.name, format!("column {name:?} is named twice")));
        }
        ids.push(id);
    }
    if ids.is_empty() || ids.len() > KEY_COLUMNS_MAX {
        return Err(invalid(&parts.name, format!("a key has 1 to {KEY_COLUMNS_MAX} columns")));
    }
    Ok(ids)
}

fn bind(parts: &Parts, expr: &mut Expr) -> Result<Option<Type>> {
    let columns = &parts.columns;
    let resolve = |column: &ColumnRef| {
        let found = columns.iter().find(|c| match column {
            ColumnRef::Name(name) => c.name == *name,
            ColumnRef::Id(id) => c.id == *id,
        })?;
        Some((found.id, found.ty))
    };
    expr.bind(&resolve).map_err(|what| invalid(&parts.name, what))
}

/// Binds a condition, which must be of type bool.
pub(crate) fn bind_condition(parts: &Parts, expr: &mut Expr) -> Result<()> {
    match bind(parts, expr)? {
        None | Some(Type::BOOL) => Ok(()),
        Some(other) => Err(invalid(&parts.name, format!("a condition is bool, not {other}"))),
    }
}

fn fresh_name(taken: impl Fn(&str) -> bool, wanted: String) -> String {
    let mut name: String = wanted.chars().take(60).collect();
    let stem = name.clone();
    let mut number = 1;
    while taken(&name) {
        name = format!("{stem}{number}");
        number += 1;
    }
    name
}

impl TablesTx<'_> {
    fn new_object(&self) -> Result<u32> {
        self.tables.model.new_object(&self.tables.engine)
    }

    pub(crate) fn known(&mut self, name: &str) -> Result<Arc<Schema>> {
        let id = self.find(name)?.ok_or_else(|| TablesError::UnknownTable { name: name.to_owned() })?;
        self.schema_by_id(id)
    }

    pub(crate) fn alter(
        &mut self,
        table: &str,
        change: impl FnOnce(&mut Self, &Arc<Schema>, &mut Parts) -> Result<()>,
    ) -> Result<()> {
        self.ddl(|tx| {
            let schema = tx.known(table)?;
            let mut parts = schema.parts.clone();
            change(tx, &schema, &mut parts)?;
            tx.put_parts(parts, false)?;
            Ok(())
        })
    }
}
