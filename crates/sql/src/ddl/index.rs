//! CREATE INDEX, in the transaction or concurrently with writers, and DROP INDEX.

use std::sync::{Arc, LazyLock};

use ropewalk::tables::{
    Index, IndexDef, KeyOrder, OperatorClass, Schema, Type, qualify, schema_and_name, shown,
};
use ropewalk::{Database, Transaction};
use sqlparser::ast;

use super::Ddl;
use super::dependent;
use super::expr::{lowered, names};
use super::unsupported;
use crate::access::schemas;
use crate::catalog::operator_classes::OPERATOR_CLASSES;
use crate::catalog::place_of;
use crate::error::{Result, SqlError, state};
use crate::expr::Context;
use crate::plan::bind::scope::Scope;
use crate::plan::nothing_else;
use crate::syntax::names::{folded, in_full, own, parts, table_name};
use crate::syntax::parse;
use crate::types::names::type_name;
use crate::types::settings::Settings;

static CREATE_INDEX: LazyLock<Option<ast::CreateIndex>> =
    LazyLock::new(|| match parse::template("CREATE INDEX ON t (a)")? {
        ast::Statement::CreateIndex(create) => Some(create),
        _ => None,
    });

impl Ddl<'_> {
    /// The definition of an index and the name of its table.
    pub(crate) fn index_def(&mut self, create: &ast::CreateIndex) -> Result<(String, IndexDef)> {
        let empty = CREATE_INDEX.as_ref();
        let mut rest = create.clone();
        if let Some(empty) = empty {
            rest.table_name.clone_from(&empty.table_name);
            rest.columns.clone_from(&empty.columns);
        }
        (rest.name, rest.predicate) = (None, None);
        (rest.unique, rest.concurrently, rest.if_not_exists) = (false, false, false);
        rest.using = rest.using.filter(|using| *using != ast::IndexType::BTree);
        (rest.include, rest.nulls_distinct) = (Vec::new(), None);
        nothing_else(&rest, empty)?;
        let table = self.relation(&create.table_name)?;
        let schema = self.schema(&table)?;
        let mut scope = Scope::default();
        scope.add_table(in_full(&table), &schema)?;
        let mut def = IndexDef::on(Vec::<String>::new());
        for column in &create.columns {
            if column.column.with_fill.is_some() {
                return Err(unsupported(column));
            }
            let (expr, ty) = self.bound(&column.column.expr, &scope, "an index", None)?;
            let class = column.operator_class.as_ref().map(|name| operator_class(name, ty)).transpose()?;
            let options = &column.column.options;
            let descending = options.asc == Some(false);
            let order = KeyOrder { descending, nulls_first: options.nulls_first.unwrap_or(descending) };
            def =
                def.then_by(lowered(&expr, &names(&scope))?, order).operator_class(class.unwrap_or_default());
        }
        if let Some(predicate) = &create.predicate {
            let filter = self.check(predicate, &scope)?;
            def = def.filter(filter);
        }
        if create.unique {
            def = def.unique().alone();
        }
        if create.nulls_distinct == Some(false) {
            def = def.nulls_equal();
        }
        def = def.include(create.include.iter().map(folded));
        if let Some(name) = &create.name {
            def = def.named(table_name(name)?);
        }
        Ok((table, def))
    }

    pub(super) fn create_index(&mut self, create: &ast::CreateIndex) -> Result<()> {
        if create.concurrently {
            let message = "CREATE INDEX CONCURRENTLY cannot run inside a transaction block";
            return Err(SqlError::new(state::ACTIVE_SQL_TRANSACTION, message));
        }
        if self.index_is_there(create)? {
            return Ok(());
        }
        let (table, def) = self.index_def(create)?;
        Ok(self.transaction.tables().create_index(&table, def)?)
    }

    /// True when the index exists and IF NOT EXISTS is given.
    ///
    /// # Errors
    /// 42P07 when the name is taken, without IF NOT EXISTS.
    pub(crate) fn index_is_there(&mut self, create: &ast::CreateIndex) -> Result<bool> {
        let Some(name) = &create.name else { return Ok(false) };
        let table = self.relation(&create.table_name)?;
        let name = qualify(schema_and_name(&table).0, &table_name(name)?);
        match self.index_kept(&name)? {
            Some(_) if create.if_not_exists => Ok(true),
            Some(_) => Err(SqlError::new(
                state::DUPLICATE_TABLE,
                format!("relation \"{}\" already exists", own(&name)),
            )),
            None => Ok(false),
        }
    }

    /// The table and the name of the index that a reference denotes.
    pub(crate) fn table_of_index(&mut self, reference: &str) -> Result<Option<(String, String)>> {
        let settings = self.settings.clone();
        for kept in schemas::candidates(&mut self.access(), &settings, reference)? {
            if let Some(table) = self.index_kept(&kept)? {
                return Ok(Some((table, own(&kept).to_owned())));
            }
        }
        Ok(None)
    }

    /// The table of an index. Indexes have no stored name; they belong to their table's schema.
    fn index_kept(&mut self, kept: &str) -> Result<Option<String>> {
        let (namespace, index) = schema_and_name(kept);
        for table in self.tables()? {
            if schema_and_name(&table).0 != namespace {
                continue;
            }
            let schema = self.schema(&table)?;
            let is_key = !schema.key_columns().is_empty() && schema.key_name() == index;
            if is_key
                || schema.indexes().iter().any(|known| known.name() == index && !known.is_of_foreign_key())
            {
                return Ok(Some(table));
            }
        }
        Ok(None)
    }

    /// ALTER INDEX ... RENAME TO.
    pub(super) fn rename_index(&mut self, name: &str, if_exists: bool, new: &str) -> Result<()> {
        let found = match self.table_of_index(name) {
            Err(error) if if_exists && error.state == state::INVALID_SCHEMA_NAME => return Ok(()),
            found => found?,
        };
        let Some((table, index)) = found else {
            let message = format!("relation \"{name}\" does not exist");
            if if_exists {
                self.note(format!("{message}, skipping"));
                return Ok(());
            }
            return Err(SqlError::new(state::UNDEFINED_TABLE, message));
        };
        if self.index_kept(&qualify(schema_and_name(&table).0, new))?.is_some() {
            return Err(SqlError::new(state::DUPLICATE_TABLE, format!("relation \"{new}\" already exists")));
        }
        let id = i64::from(self.schema(&table)?.id());
        self.transaction.tables().rename_constraint(&table, &index, new)?;
        self.recomment("index", id, &index, new)?;
        self.recomment("constraint", id, &index, new)
    }

    pub(super) fn drop_index(&mut self, name: &str, if_exists: bool) -> Result<()> {
        let found = match self.table_of_index(name) {
            Err(error) if if_exists && error.state == state::INVALID_SCHEMA_NAME => return Ok(()),
            found => found?,
        };
        match found {
            Some((table, index)) => {
                let schema = self.schema(&table)?;
                if constrains(&schema, &index) {
                    return Err(required(&table, &index));
                }
                let id = i64::from(schema.id());
                self.uncomment(Some("index"), id, Some(&index))?;
                self.transaction.tables().drop_index(&table, &index).map_err(dependent)
            }
            None if if_exists => Ok(()),
            None => Err(SqlError::new(state::UNDEFINED_OBJECT, format!("index \"{name}\" does not exist"))),
        }
    }
}

/// The operator class with a name, for an indexed type.
fn operator_class(name: &ast::ObjectName, ty: Type) -> Result<OperatorClass> {
    let given = parts(name)?;
    let own = match given.as_slice() {
        [own] => Some(own),
        [schema, own] if schema == "pg_catalog" => Some(own),
        _ => None,
    };
    let Some(class) = own.and_then(|own| OPERATOR_CLASSES.iter().find(|class| class.name == own)) else {
        let message = format!("operator class \"{name}\" does not exist for access method \"btree\"");
        return Err(SqlError::new(state::UNDEFINED_OBJECT, message));
    };
    if !class.takes(ty) {
        let message = format!("operator class \"{name}\" does not accept data type {}", type_name(ty));
        return Err(SqlError::new(state::DATATYPE_MISMATCH, message));
    }
    Ok(class.class)
}

/// True if the index implements a constraint: the primary key, or UNIQUE.
pub(super) fn constrains(schema: &Schema, name: &str) -> bool {
    let is_key = !schema.key_columns().is_empty() && schema.key_name() == name;
    // As in the catalogs, an index on expressions is not a constraint.
    let is_plain =
        |index: &Index| index.columns().iter().all(|column| place_of(schema, &column.expr).is_some());
    let is_it = |index: &&Index| index.name() == name && index.is_constraint() && is_plain(index);
    is_key || schema.indexes().iter().any(|index| is_it(&index))
}

fn required(table: &str, index: &str) -> SqlError {
    let (namespace, table) = (schema_and_name(table).0, shown(table));
    let index_shown = shown(&qualify(namespace, index));
    let message =
        format!("cannot drop index {index_shown} because constraint {index} on table {table} requires it");
    let hint = format!("You can drop constraint {index} on table {table} instead.");
    SqlError::new(state::DEPENDENT_OBJECTS_STILL_EXIST, message).hint(hint)
}

/// Builds an index outside of a transaction, concurrently with writers.
pub(crate) fn create_index_concurrently(
    db: &Database,
    transaction: &mut Transaction,
    cx: Context<'_>,
    settings: Arc<Settings>,
    create: &ast::CreateIndex,
) -> Result<()> {
    let mut created = Vec::new();
    let mut ddl = Ddl { db, transaction, cx, settings, created: &mut created, notice: None };
    if ddl.index_is_there(create)? {
        return Ok(());
    }
    let (table, def) = ddl.index_def(create)?;
    Ok(db.tables().create_index(&table, def)?)
}
