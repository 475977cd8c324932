//! CREATE TABLE.

use std::sync::LazyLock;

use ropewalk::tables::{Expr as TableExpr, SequenceParams, TableDef};
use sqlparser::ast;

use super::Ddl;
use super::column::{fresh, key_at_once, plain_columns, unique_index};
use super::unsupported;
use crate::error::{Result, SqlError, state};
use crate::plan::bind::scope::Scope;
use crate::plan::nothing_else;
use crate::syntax::names::{folded, own, table_name};
use crate::syntax::parse;

static CREATE_TABLE: LazyLock<Option<ast::CreateTable>> =
    LazyLock::new(|| match parse::template("CREATE TABLE t ()")? {
        ast::Statement::CreateTable(create) => Some(create),
        _ => None,
    });

impl Ddl<'_> {
    pub(super) fn create_table(&mut self, create: &ast::CreateTable) -> Result<()> {
        no_other_kind(create)?;
        let mut rest = create.clone();
        rest.columns.clear();
        rest.constraints.clear();
        rest.if_not_exists = false;
        rest.table_options = self.storage_hints(&create.table_options)?;
        nothing_but_a_table(&rest)?;
        let name = self.fresh(&table_name(&create.name)?)?;
        let own = own(&name);
        if create.if_not_exists && self.exists(&name)? {
            return Ok(());
        }
        let mut scope = Scope::default();
        let mut columns = Vec::new();
        for column in &create.columns {
            columns.push((folded(&column.name), self.data_type(&column.data_type)?.0));
        }
        scope.add(crate::syntax::names::in_full(&name), columns)?;
        let mut def = TableDef::new(&name);
        let mut key: Vec<String> = Vec::new();
        let mut key_name = None;
        let mut keys = 0;
        let mut checks: Vec<(Option<String>, String, TableExpr)> = Vec::new();
        let mut foreign: Vec<ast::ForeignKeyConstraint> = Vec::new();
        let mut stepped: Vec<(String, SequenceParams)> = Vec::new();
        for column in &create.columns {
            let defined = self.column(column, &scope)?;
            let label = folded(&column.name);
            if defined.is_key {
                key.push(label.clone());
                key_name = defined.key_name;
                keys += 1;
            }
            def = defined.unique.into_iter().fold(def, TableDef::index);
            checks.extend(
                defined.checks.into_iter().map(|(given, expr)| (given, format!("{own}_{label}_check"), expr)),
            );
            foreign.extend(defined.foreign);
            stepped.extend(defined.steps.map(|steps| (label.clone(), steps)));
            def = def.column(defined.column);
        }
        for constraint in &create.constraints {
            match constraint {
                ast::TableConstraint::PrimaryKey(constraint) => {
                    key_at_once(constraint.characteristics.as_ref())?;
                    key = plain_columns(&constraint.columns)?;
                    key_name = constraint.name.as_ref().map(folded);
                    keys += 1;
                }
                ast::TableConstraint::Unique(constraint) => def = def.index(unique_index(constraint)?),
                ast::TableConstraint::Check(check) => {
                    let expr = self.check(&check.expr, &scope)?;
                    checks.push((check.name.as_ref().map(folded), format!("{own}_check"), expr));
                }
                ast::TableConstraint::ForeignKey(constraint) => foreign.push(constraint.clone()),
                other => return Err(unsupported(format!("the constraint {other}"))),
            }
        }
        if keys > 1 {
            let message = format!("multiple primary keys for table \"{own}\" are not allowed");
            return Err(SqlError::new(state::INVALID_TABLE_DEFINITION, message));
        }
        if !key.is_empty() {
            def = def.primary_key(key.clone());
        }
        if let Some(name) = key_name {
            def = def.key_named(name);
        }
        let mut taken = Vec::new();
        for (given, wanted, expr) in checks {
            let label = given.unwrap_or_else(|| fresh(wanted, &taken));
            taken.push(label.clone());
            def = def.check(label, expr);
        }
        for constraint in &foreign {
            let foreign_key = self.foreign_key(constraint, &name, &key)?;
            def = def.foreign_key(foreign_key);
        }
        self.transaction.tables().create_table(def)?;
        for (column, steps) in stepped {
            self.count_by(&name, &column, steps)?;
        }
        self.created.push(name);
        Ok(())
    }

    /// The table options except PostgreSQL's storage parameters, which have no effect here.
    fn storage_hints(&mut self, options: &ast::CreateTableOptions) -> Result<ast::CreateTableOptions> {
        let ast::CreateTableOptions::With(list) = options else { return Ok(options.clone()) };
        let hint = |option: &ast::SqlOption| match option {
            ast::SqlOption::KeyValue { key, .. } => {
                let name = folded(key);
                let known =
                    name == "fillfactor" || name == "toast_tuple_target" || name.starts_with("autovacuum_");
                known.then_some(name)
            }
            _ => None,
        };
        let (hints, others): (Vec<_>, Vec<_>) =
            list.iter().map(|option| (hint(option), option)).partition(|(hint, _)| hint.is_some());
        if let Some((_, other)) = others.first() {
            return Err(unsupported(format!("the option {other}")));
        }
        let names: Vec<String> = hints.into_iter().filter_map(|(hint, _)| hint).collect();
        self.note(format!("{} ignored: rows are not stored in pages", names.join(", ")));
        Ok(ast::CreateTableOptions::None)
    }
}

/// Rejects PostgreSQL's other kinds of tables; the hint names an alternative.
fn no_other_kind(create: &ast::CreateTable) -> Result<()> {
    let (what, hint) = if create.temporary {
        let hint = "CREATE TABLE makes one that every session sees and you drop after use; \
            WITH defines one for a single statement";
        ("a temporary table", hint)
    } else if create.partition_by.is_some() || create.partition_of.is_some() {
        let hint = "make one table: its rows are stored in the order of the primary key, and a range of it can be \
            read or deleted alone";
        ("a table in partitions", hint)
    } else if create.inherits.is_some() {
        ("INHERITS", "write the columns out; a view of UNION ALL reads several tables")
    } else if create.like.is_some() {
        ("LIKE", "write the columns out, or use CREATE TABLE ... AS SELECT")
    } else {
        return Ok(());
    };
    Err(SqlError::unsupported(what, hint))
}

/// Rejects clauses that CREATE TABLE AS does not support.
pub(crate) fn nothing_but_a_table(create: &ast::CreateTable) -> Result<()> {
    no_other_kind(create)?;
    let empty = CREATE_TABLE.as_ref();
    let mut rest = create.clone();
    if let Some(empty) = empty {
        rest.name.clone_from(&empty.name);
    }
    nothing_else(&rest, empty)
}
