//! CREATE, ALTER, DROP and TRUNCATE: run as changes of the definitions of the tables model, in the
//! transaction.
//!
//! ```text
//! CREATE TABLE ─▶ table ─▶ column ─▶ expr: checks, defaults, indexes in the model's own language
//! ALTER TABLE ──▶ alter ──┘    CREATE, DROP INDEX ─▶ index    DROP TABLE, TRUNCATE ─▶ drop
//! ```

pub(crate) mod comments;
mod drop_column;
pub(crate) mod enums;
mod extensions;
mod generation;
pub(crate) mod read_only;
pub(crate) mod sequences;
pub(crate) mod views;

mod alter;
mod column;
mod drop;
mod expr;
mod index;
mod schema;
mod table;

use std::sync::Arc;

use ropewalk::Database;
use ropewalk::Transaction;
use ropewalk::tables::{Schema, TablesError, TablesRead};
use sqlparser::ast;

use crate::access::row_source::Access;
use crate::access::schemas;
use crate::error::{Result, SqlError, state};
use crate::expr::Context;
use crate::syntax::names::table_name;
use crate::syntax::parse::Statement;
use crate::syntax::statements::{AddIdentity, Utility};
use crate::types::outcome::Outcome;
use crate::types::settings::Settings;

pub(crate) use index::create_index_concurrently;
pub(crate) use table::nothing_but_a_table;

fn unsupported(what: impl std::fmt::Display) -> SqlError {
    SqlError::unsupported(what, "leave it out")
}

/// The context of a statement that changes definitions.
pub(crate) struct Ddl<'a> {
    pub(crate) db: &'a Database,
    pub(crate) transaction: &'a mut Transaction,
    pub(crate) cx: Context<'a>,
    /// The session's settings; names are looked up along its `search_path`.
    pub(crate) settings: Arc<Settings>,
    /// Tables created by this transaction. Others cannot list them before the commit.
    pub(crate) created: &'a mut Vec<String>,
    /// A notice to the client of a successful statement.
    pub(crate) notice: Option<SqlError>,
}

impl Ddl<'_> {
    /// Runs a statement that changes definitions; `None` for any other kind.
    pub(crate) fn run(&mut self, statement: &Statement) -> Result<Option<Outcome>> {
        let command = match statement {
            Statement::Sql(ast::Statement::CreateTable(create)) if create.query.is_some() => {
                // The command tag has the number of rows that the query returned.
                let count = crate::ddl::views::create_table_as(self, create)?;
                let outcome = Outcome::of(if count.is_some() { "SELECT" } else { "CREATE TABLE AS" });
                return Ok(Some(Outcome { count, notice: self.notice.take(), ..outcome }));
            }
            Statement::Sql(statement) => match self.run_one(statement) {
                Err(error) => return Err(self.explained(named_by(statement), error)),
                command => command?,
            },
            Statement::Utility(Utility::Sequence(statement)) => Some(self.sequence(statement)?),
            Statement::Utility(Utility::Comment { on, text }) => {
                self.comment(on, text.as_deref())?;
                Some("COMMENT")
            }
            Statement::Utility(Utility::Identity(statement)) => {
                let table = self.meant(&statement.table)?;
                self.add_identity(&AddIdentity { table, ..statement.clone() })?;
                Some("ALTER TABLE")
            }
            Statement::Utility(Utility::Generation(statement)) => {
                self.alter_generation(statement)?;
                Some("ALTER TABLE")
            }
            Statement::Utility(Utility::RenameIndex { name, if_exists, new }) => {
                self.rename_index(name, *if_exists, new)?;
                Some("ALTER INDEX")
            }
            Statement::Utility(Utility::CreateExtension(statement)) => {
                self.create_extension(statement)?;
                Some("CREATE EXTENSION")
            }
            Statement::Utility(Utility::DropExtension { names, if_exists }) => {
                self.drop_extensions(names, *if_exists)?;
                Some("DROP EXTENSION")
            }
            Statement::Utility(Utility::TypeOwner(name)) => {
                self.type_owned(name)?;
                Some("ALTER TYPE")
            }
            Statement::Utility(Utility::Move(moved)) => Some(self.move_to(moved)?),
            Statement::Utility(_) => None,
        };
        Ok(command.map(|command| Outcome { notice: self.notice.take(), ..Outcome::of(command) }))
    }

    fn note(&mut self, message: impl Into<String>) {
        self.notice = Some(SqlError::new(state::SUCCESSFUL_COMPLETION, message));
    }

    fn run_one(&mut self, statement: &ast::Statement) -> Result<Option<&'static str>> {
        Ok(Some(match statement {
            ast::Statement::CreateSchema {
                schema_name,
                if_not_exists,
                with: None,
                options: None,
                default_collate_spec: None,
                clone: None,
            } => {
                self.create_schema(schema_name, *if_not_exists)?;
                "CREATE SCHEMA"
            }
            ast::Statement::AlterSchema(alter) => {
                self.alter_schema(alter)?;
                "ALTER SCHEMA"
            }
            ast::Statement::CreateType { name, representation } => {
                self.create_type(name, representation.as_ref())?;
                "CREATE TYPE"
            }
            ast::Statement::AlterType(alter) => {
                self.alter_type(alter)?;
                "ALTER TYPE"
            }
            ast::Statement::CreateView(create) => {
                crate::ddl::views::create(self, create)?;
                "CREATE VIEW"
            }
            ast::Statement::CreateTable(create) => {
                self.create_table(create)?;
                "CREATE TABLE"
            }
            ast::Statement::CreateIndex(create) => {
                self.create_index(create)?;
                "CREATE INDEX"
            }
            ast::Statement::AlterTable(alter) => {
                self.alter_table(alter)?;
                "ALTER TABLE"
            }
            ast::Statement::Truncate(truncate) => {
                self.truncate(truncate)?;
                "TRUNCATE TABLE"
            }
            ast::Statement::Drop {
                object_type,
                if_exists,
                names,
                cascade,
                restrict: _,
                purge: false,
                temporary: false,
                table: None,
            } => match object_type {
                // CASCADE also drops foreign keys, views, and defaults that use a dropped sequence.
                ast::ObjectType::Table => {
                    let names = self.relations(names, *if_exists)?;
                    self.part_from_views("table", &names, *cascade)?;
                    self.part(&names, *cascade)?;
                    self.part_from_sequences(&names, *cascade)?;
                    for name in &names {
                        self.drop_table(name, *if_exists)?;
                    }
                    "DROP TABLE"
                }
                ast::ObjectType::Index => {
                    for name in names {
                        self.drop_index(&table_name(name)?, *if_exists)?;
                    }
                    "DROP INDEX"
                }
                ast::ObjectType::View => {
                    let names = self.relations(names, *if_exists)?;
                    self.part_from_views("view", &names, *cascade)?;
                    for name in names {
                        crate::ddl::views::drop(self, &name, *if_exists)?;
                    }
                    "DROP VIEW"
                }
                ast::ObjectType::Sequence => {
                    for name in self.relations(names, *if_exists)? {
                        self.drop_sequence(&name, *if_exists, *cascade)?;
                    }
                    "DROP SEQUENCE"
                }
                ast::ObjectType::Type => {
                    for name in names {
                        self.drop_type(name, *if_exists, *cascade)?;
                    }
                    "DROP TYPE"
                }
                ast::ObjectType::Schema => {
                    for name in names {
                        self.drop_schema(name, *if_exists, *cascade)?;
                    }
                    "DROP SCHEMA"
                }
                other => return Err(unsupported(format!("DROP {other}"))),
            },
            _ => return Ok(None),
        }))
    }

    pub(crate) fn exists(&mut self, table: &str) -> Result<bool> {
        match self.transaction.tables().table(table) {
            Ok(_) => Ok(true),
            Err(TablesError::UnknownTable { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn schema(&mut self, table: &str) -> Result<std::sync::Arc<Schema>> {
        let mut tables = self.transaction.tables();
        let handle = tables.table(table)?;
        Ok(tables.schema(&handle)?)
    }

    pub(crate) fn access(&mut self) -> Access<'_> {
        Access::Transaction(self.db, self.transaction)
    }

    /// The stored name of the relation that a reference denotes.
    pub(crate) fn meant(&mut self, reference: &str) -> Result<String> {
        let settings = self.settings.clone();
        let mut access = Access::Transaction(self.db, self.transaction);
        schemas::relation(&mut access, &settings, self.created, reference).map(|(kept, _)| kept)
    }

    /// The stored name of a relation.
    pub(crate) fn relation(&mut self, name: &ast::ObjectName) -> Result<String> {
        self.meant(&table_name(name)?)
    }

    /// The stored names of relations; with `if_exists` those in missing schemas are skipped.
    fn relations(&mut self, names: &[ast::ObjectName], if_exists: bool) -> Result<Vec<String>> {
        let mut kept = Vec::with_capacity(names.len());
        for name in names {
            match self.relation(name) {
                Err(error) if if_exists && error.state == state::INVALID_SCHEMA_NAME => {}
                found => kept.push(found?),
            }
        }
        Ok(kept)
    }

    /// The stored name for an object to be created.
    pub(crate) fn fresh(&mut self, reference: &str) -> Result<String> {
        let settings = self.settings.clone();
        schemas::fresh(&mut self.access(), &settings, reference)
    }

    /// The stored names of all tables.
    pub(crate) fn tables(&mut self) -> Result<Vec<String>> {
        let mut names = self.db.tables().names()?;
        names.extend(self.created.iter().cloned());
        names.sort();
        names.dedup();
        let mut there = Vec::with_capacity(names.len());
        for name in names {
            // Skips those renamed or dropped by this transaction.
            if self.exists(&name)? {
                there.push(name);
            }
        }
        Ok(there)
    }
}

/// The tables that a definition concerns.
fn named_by(statement: &ast::Statement) -> Vec<&ast::ObjectName> {
    match statement {
        ast::Statement::AlterTable(alter) => vec![&alter.name],
        ast::Statement::CreateIndex(create) => vec![&create.table_name],
        ast::Statement::Truncate(truncate) => {
            truncate.table_names.iter().map(|target| &target.name).collect()
        }
        ast::Statement::Drop { object_type: ast::ObjectType::Table, names, .. } => names.iter().collect(),
        _ => Vec::new(),
    }
}

pub(crate) fn dependent(error: TablesError) -> SqlError {
    let is_dependent = matches!(error, TablesError::Dependent { .. });
    let error = SqlError::from(error);
    if is_dependent {
        error.hint("drop what depends on it first; CASCADE does not drop dependent objects here")
    } else {
        error
    }
}
