//! CREATE, ALTER, DROP and TRUNCATE: statements to the definitions of the tables model, inside the transaction.
//!
//! ```text
//! CREATE TABLE ─▶ table ─▶ column ─▶ expr: checks, defaults, indexes in the model's own language
//! ALTER TABLE ──▶ alter ──┘    CREATE, DROP INDEX ─▶ index    DROP TABLE, TRUNCATE ─▶ drop
//! ```

mod alter;
mod column;
mod drop;
mod expr;
mod index;
mod table;

use ropewalk::Database;
use ropewalk::Transaction;
use ropewalk::tables::{Schema, TablesError, TablesRead};
use sqlparser::ast;

use crate::error::{Result, SqlError, state};
use crate::expr::Context;
use crate::parse::Statement;
use crate::prepared::Outcome;
use crate::scope::table_name;
use crate::utility::Utility;

pub(crate) use index::create_index_concurrently;
pub(crate) use table::nothing_but_a_table;

fn unsupported(what: impl std::fmt::Display) -> SqlError {
    SqlError::unsupported(what, "leave it out")
}

/// What a definition is made with.
pub(crate) struct Ddl<'a> {
    pub(crate) db: &'a Database,
    pub(crate) transaction: &'a mut Transaction,
    pub(crate) cx: Context<'a>,
    /// Tables that this transaction made: nobody else can list them yet.
    pub(crate) created: &'a mut Vec<String>,
    /// What the client should know though it all went well.
    pub(crate) notice: Option<SqlError>,
}

impl Ddl<'_> {
    /// Runs a statement that changes definitions; `None` when it is another kind.
    pub(crate) fn run(&mut self, statement: &Statement) -> Result<Option<Outcome>> {
        let command = match statement {
            Statement::Sql(statement) => self.run_one(statement)?,
            Statement::Utility(Utility::Sequence(statement)) => Some(self.sequence(statement)?),
            Statement::Utility(Utility::Comment { on, text }) => {
                self.comment(on, text.as_deref())?;
                Some("COMMENT")
            }
            Statement::Utility(Utility::Identity(statement)) => {
                self.add_identity(statement)?;
                Some("ALTER TABLE")
            }
            Statement::Utility(Utility::TypeOwner(name)) => {
                self.type_owned(name)?;
                Some("ALTER TYPE")
            }
            Statement::Utility(_) => None,
        };
        Ok(command.map(|command| Outcome { notice: self.notice.take(), ..Outcome::of(command) }))
    }

    fn note(&mut self, message: impl Into<String>) {
        self.notice = Some(SqlError::new(state::SUCCESSFUL_COMPLETION, message));
    }

    fn run_one(&mut self, statement: &ast::Statement) -> Result<Option<&'static str>> {
        Ok(Some(match statement {
            ast::Statement::CreateTable(create) if create.query.is_some() => {
                crate::views::create_table_as(self, create)?;
                "CREATE TABLE AS"
            }
            ast::Statement::CreateSchema {
                schema_name: ast::SchemaName::Simple(name),
                if_not_exists,
                with: None,
                options: None,
                default_collate_spec: None,
                clone: None,
            } => {
                self.create_schema(name, *if_not_exists)?;
                "CREATE SCHEMA"
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
                crate::views::create(self, create)?;
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
                // CASCADE takes foreign keys along; views stay, and are an error to use.
                ast::ObjectType::Table => {
                    let names = names.iter().map(table_name).collect::<Result<Vec<_>>>()?;
                    self.part(&names, *cascade)?;
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
                    for name in names {
                        crate::views::drop(self, &table_name(name)?, *if_exists)?;
                    }
                    "DROP VIEW"
                }
                ast::ObjectType::Sequence => {
                    for name in names {
                        self.drop_sequence(&table_name(name)?, *if_exists, *cascade)?;
                    }
                    "DROP SEQUENCE"
                }
                ast::ObjectType::Type => {
                    for name in names {
                        self.drop_type(name, *if_exists)?;
                    }
                    "DROP TYPE"
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

    /// There is one schema, which everybody has.
    fn create_schema(&mut self, name: &ast::ObjectName, if_not_exists: bool) -> Result<()> {
        let name = crate::scope::parts(name)?.join(".");
        if name != "public" {
            return Err(SqlError::unsupported(
                format!("a schema \"{name}\""),
                "there is one schema, public; prefixes of names do as well",
            ));
        }
        let message = "schema \"public\" already exists";
        if !if_not_exists {
            return Err(SqlError::new(state::DUPLICATE_SCHEMA, message));
        }
        self.notice = Some(SqlError::new(state::DUPLICATE_SCHEMA, format!("{message}, skipping")));
        Ok(())
    }
}

pub(crate) fn dependent(error: TablesError) -> SqlError {
    let is_dependent = matches!(error, TablesError::Dependent { .. });
    let error = SqlError::from(error);
    if is_dependent {
        error.hint("drop what depends on it first; CASCADE takes nothing along")
    } else {
        error
    }
}
