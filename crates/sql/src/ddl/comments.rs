//! COMMENT ON. Comments are stored by the permanent ids of tables and columns, so they survive renames.

use ropewalk::tables::{ColumnDef, Schema, TableDef, TablesError, TablesRead, Type, Value};

use crate::access::comments::{COMMENTS, Comment, all};
use crate::access::row_source::Access;
use crate::ddl::Ddl;
use crate::error::{Result, SqlError, state};
use crate::expr::bug;
use crate::syntax::statements::Commented;

impl Ddl<'_> {
    /// COMMENT ON.
    pub(crate) fn comment(&mut self, on: &Commented, text: Option<&str>) -> Result<()> {
        let (kind, table, name) = self.commented(on)?;
        let mut tables = self.transaction.tables();
        let comments = match tables.table(COMMENTS) {
            Ok(table) => table,
            Err(TablesError::UnknownTable { .. }) => tables.create_table(
                TableDef::new(COMMENTS)
                    .column(ColumnDef::new("kind", Type::TEXT))
                    .column(ColumnDef::new("table", Type::INT8))
                    .column(ColumnDef::new("name", Type::TEXT))
                    .column(ColumnDef::new("comment", Type::TEXT).not_null())
                    .primary_key(["kind", "table", "name"]),
            )?,
            Err(error) => return Err(error.into()),
        };
        let key = [Value::text(kind), Value::Int8(table), Value::text(name)];
        tables.delete(&comments, &key)?;
        if let Some(text) = text {
            let [kind, table, name] = key;
            tables.insert(
                &comments,
                &[("kind", kind), ("table", table), ("name", name), ("comment", Value::text(text))],
            )?;
        }
        Ok(())
    }

    /// Kind, table id and name of the object of a comment. The object must exist.
    fn commented(&mut self, on: &Commented) -> Result<(&'static str, i64, String)> {
        let none = |what: &str, name: &str| {
            SqlError::new(state::UNDEFINED_OBJECT, format!("{what} \"{name}\" does not exist"))
        };
        let id = |schema: &Schema| i64::from(schema.id());
        Ok(match on {
            Commented::Table(table) => {
                let table = self.meant(table)?;
                ("table", id(&*self.schema(&table)?), String::new())
            }
            Commented::Column(table, column) => {
                let table = self.meant(table)?;
                let schema = self.schema(&table)?;
                let place = schema.index_of(column)?;
                let column = schema.columns().get(place).ok_or_else(|| bug("a column"))?;
                ("column", id(&schema), column.id().to_string())
            }
            Commented::Index(name) => {
                let (table, index) = self.table_of_index(name)?.ok_or_else(|| none("index", name))?;
                ("index", id(&*self.schema(&table)?), index)
            }
            Commented::Constraint(table, name) => {
                let table = self.meant(table)?;
                let schema = self.schema(&table)?;
                let known = schema.key_name() == name && !schema.key_columns().is_empty()
                    || schema.checks().iter().any(|check| check.name() == name)
                    || schema.foreign_keys().iter().any(|key| key.name() == name)
                    || schema.indexes().iter().any(|index| index.is_unique() && index.name() == name);
                if !known {
                    return Err(none("constraint", name));
                }
                ("constraint", id(&schema), name.clone())
            }
            Commented::Sequence(name) => {
                let kept = self.meant(name)?;
                self.sequence_named(&kept)?.ok_or_else(|| none("sequence", name))?;
                ("sequence", 0, kept)
            }
            Commented::View(name) => {
                let kept = self.meant(name)?;
                crate::access::views::find(&mut self.access(), &kept)?.ok_or_else(|| none("view", name))?;
                ("view", 0, kept)
            }
            Commented::Type(name) => {
                let kept = self.type_meant(name)?;
                let known = self.transaction.tables().enum_named(&kept)?;
                let known = known.ok_or_else(|| none("type", name))?;
                ("type", i64::from(known.number()), String::new())
            }
            Commented::Schema(name) => {
                if !crate::access::schemas::is_there(&mut self.access(), name)? {
                    return Err(crate::access::schemas::unknown(name));
                }
                ("schema", 0, name.clone())
            }
            // There is one database, whatever name clients give it.
            Commented::Database(_) => ("database", 0, String::new()),
        })
    }

    /// Moves the comment on an object of this kind to its new name.
    pub(crate) fn recomment(&mut self, kind: &str, table: i64, old: &str, new: &str) -> Result<()> {
        let comments = all(&mut self.access())?;
        let is_it = |known: &Comment| known.kind == kind && known.table == table && known.name == old;
        let Some(known) = comments.into_iter().find(is_it) else { return Ok(()) };
        self.uncomment(Some(kind), table, Some(old))?;
        let mut tables = self.transaction.tables();
        let comments = tables.table(COMMENTS)?;
        let (kind, text) = (Value::text(kind), Value::text(known.text));
        let name = Value::text(new);
        tables.insert(
            &comments,
            &[("kind", kind), ("table", Value::Int8(table)), ("name", name), ("comment", text)],
        )?;
        Ok(())
    }

    /// Deletes the comments on objects of this kind; all those of one table when `kind` is `None`.
    pub(crate) fn uncomment(&mut self, kind: Option<&str>, table: i64, name: Option<&str>) -> Result<()> {
        let comments = all(&mut Access::Transaction(self.db, self.transaction))?;
        let gone = comments.into_iter().filter(|comment| {
            kind.is_none_or(|kind| comment.kind == kind)
                && comment.table == table
                && name.is_none_or(|name| comment.name == name)
        });
        let gone: Vec<Comment> = gone.collect();
        if gone.is_empty() {
            return Ok(());
        }
        let mut tables = self.transaction.tables();
        let table = tables.table(COMMENTS)?;
        for Comment { kind, table: number, name, .. } in gone {
            tables.delete(&table, &[Value::text(kind), Value::Int8(number), Value::text(name)])?;
        }
        Ok(())
    }
}
