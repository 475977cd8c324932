//! CREATE, ALTER and DROP SCHEMA, and ALTER ... SET SCHEMA.

use ropewalk::tables::{EnumChange, PUBLIC, TablesRead, qualify, schema_and_name};
use sqlparser::ast;

use super::Ddl;
use super::dependent;
use super::unsupported;
use crate::access::schemas::{self, Namespace};
use crate::error::{Result, SqlError, state};
use crate::syntax::names::{folded, own};
use crate::syntax::statements::{MoveTo, Moved};

/// The objects in a schema, by stored name.
struct Content {
    tables: Vec<String>,
    views: Vec<String>,
    /// Sequences except those of identity columns, which go with their tables.
    sequences: Vec<String>,
    types: Vec<String>,
}

impl Content {
    fn is_empty(&self) -> bool {
        [&self.tables, &self.views, &self.sequences, &self.types].iter().all(|names| names.is_empty())
    }
}

fn one_name(name: &ast::ObjectName) -> Result<String> {
    match crate::syntax::names::parts(name)?.as_slice() {
        [name] => Ok(name.clone()),
        _ => Err(unsupported(format!("the schema name {name}"))),
    }
}

fn taken(name: &str) -> SqlError {
    SqlError::new(state::DUPLICATE_SCHEMA, format!("schema \"{name}\" already exists"))
}

/// Rejects reserved schema names.
fn may_be(name: &str) -> Result<()> {
    if name.starts_with("pg_") {
        let message = format!("unacceptable schema name \"{name}\"");
        return Err(SqlError::new(state::RESERVED_NAME, message).hint("the prefix pg_ is for system schemas"));
    }
    if name.is_empty() || name.len() > 255 || name.chars().any(char::is_control) {
        let message = "a schema's name has 1 to 255 bytes without control characters";
        return Err(SqlError::new(state::INVALID_NAME, message));
    }
    Ok(())
}

impl Ddl<'_> {
    pub(super) fn create_schema(&mut self, name: &ast::SchemaName, if_not_exists: bool) -> Result<()> {
        let (name, owner) = match name {
            ast::SchemaName::Simple(name) => (one_name(name)?, None),
            ast::SchemaName::UnnamedAuthorization(owner) => (self.role(owner), Some(owner)),
            ast::SchemaName::NamedAuthorization(name, owner) => (one_name(name)?, Some(owner)),
        };
        if let Some(owner) = owner.map(|owner| self.role(owner)).filter(|owner| *owner != self.settings.user)
        {
            let message = format!("role \"{owner}\" does not exist");
            return Err(SqlError::new(state::UNDEFINED_OBJECT, message)
                .hint("the user of the session owns everything"));
        }
        if name == "information_schema" || schemas::is_there(&mut self.access(), &name)? {
            if !if_not_exists {
                return Err(taken(&name));
            }
            let message = format!("schema \"{name}\" already exists, skipping");
            self.notice = Some(SqlError::new(state::DUPLICATE_SCHEMA, message));
            return Ok(());
        }
        may_be(&name)?;
        let number =
            schemas::all(&mut self.access())?.iter().map(|known| known.number).max().unwrap_or(0) + 1;
        schemas::put(&mut self.access(), &Namespace { name, number })
    }

    fn role(&self, owner: &ast::Ident) -> String {
        match folded(owner).as_str() {
            "current_user" | "current_role" | "session_user" if owner.quote_style.is_none() => {
                self.settings.user.clone()
            }
            name => name.to_owned(),
        }
    }

    pub(super) fn alter_schema(&mut self, alter: &ast::AlterSchema) -> Result<()> {
        let ast::AlterSchema { name, if_exists: false, operations } = alter else {
            return Err(unsupported(alter));
        };
        let old = one_name(name)?;
        if !schemas::is_there(&mut self.access(), &old)? {
            return Err(schemas::unknown(&old));
        }
        match operations.as_slice() {
            [ast::AlterSchemaOperation::OwnerTo { .. }] => {
                self.note("OWNER TO ignored: all objects have the same owner");
                Ok(())
            }
            [ast::AlterSchemaOperation::Rename { name }] => self.rename_schema(&old, &one_name(name)?),
            _ => Err(unsupported(alter)),
        }
    }

    fn rename_schema(&mut self, old: &str, new: &str) -> Result<()> {
        if old == PUBLIC {
            return Err(SqlError::unsupported(
                "another name for public",
                "make a schema, and move tables to it",
            ));
        }
        if new == "information_schema" || schemas::is_there(&mut self.access(), new)? {
            return Err(taken(new));
        }
        may_be(new)?;
        let known = schemas::all(&mut self.access())?.into_iter().find(|known| known.name == old);
        let number = known.ok_or_else(|| schemas::unknown(old))?.number;
        let content = self.content(old)?;
        schemas::remove(&mut self.access(), old)?;
        schemas::put(&mut self.access(), &Namespace { name: new.to_owned(), number })?;
        let there = |kept: &String| qualify(new, own(kept));
        for table in &content.tables {
            self.move_table(table, &there(table))?;
        }
        for view in &content.views {
            self.rename_view(view, &there(view))?;
            self.recomment("view", 0, view, &there(view))?;
        }
        for sequence in &content.sequences {
            self.rename_sequence(sequence, &there(sequence))?;
            self.recomment("sequence", 0, sequence, &there(sequence))?;
        }
        for name in &content.types {
            self.transaction.tables().alter_enum(name, &EnumChange::Rename(there(name)))?;
        }
        self.recomment("schema", 0, old, new)?;
        self.follow_schema(old, new)
    }

    fn move_table(&mut self, old: &str, new: &str) -> Result<()> {
        self.transaction.tables().rename_table(old, new)?;
        self.created.retain(|created| created != old);
        self.created.push(new.to_owned());
        Ok(())
    }

    pub(super) fn drop_schema(
        &mut self,
        name: &ast::ObjectName,
        if_exists: bool,
        cascade: bool,
    ) -> Result<()> {
        let name = one_name(name)?;
        if name == PUBLIC {
            return Err(SqlError::unsupported("DROP SCHEMA public", "drop the objects in it"));
        }
        if name == "information_schema" || name == "pg_catalog" {
            let message = format!("cannot drop schema {name} because it is required by the database system");
            return Err(SqlError::new(state::DEPENDENT_OBJECTS_STILL_EXIST, message));
        }
        if !schemas::is_there(&mut self.access(), &name)? {
            if !if_exists {
                return Err(schemas::unknown(&name));
            }
            self.note(format!("schema \"{name}\" does not exist, skipping"));
            return Ok(());
        }
        let content = self.content(&name)?;
        if !content.is_empty() && !cascade {
            let message = format!("cannot drop schema {name} because other objects depend on it");
            return Err(SqlError::new(state::DEPENDENT_OBJECTS_STILL_EXIST, message)
                .hint("DROP SCHEMA ... CASCADE also drops the objects in it"));
        }
        let views = self.meaningful_views()?;
        let relations = [content.tables.as_slice(), &content.views, &content.sequences].concat();
        self.part_from_views("schema", &relations, true)?;
        for view in &content.views {
            crate::ddl::views::drop(self, view, false)?;
        }
        self.part(&content.tables, true)?;
        self.part_from_sequences(&content.tables, true)?;
        for table in &content.tables {
            self.drop_table(table, false)?;
        }
        for sequence in &content.sequences {
            self.drop_sequence(sequence, true, true)?;
        }
        for kept in &content.types {
            self.drop_kept_type(kept, true)?;
        }
        self.drop_meaningless(&views)?;
        schemas::remove(&mut self.access(), &name)?;
        self.uncomment(Some("schema"), 0, Some(&name))
    }

    fn content(&mut self, schema: &str) -> Result<Content> {
        let is_in = |kept: &String| schema_and_name(kept).0 == schema;
        let tables = self.tables()?.into_iter().filter(is_in).collect();
        let views = crate::catalog::all_views(&mut self.access())?.into_iter().map(|view| view.name);
        let sequences =
            crate::access::sequences::all(&mut self.access())?.into_iter().map(|sequence| sequence.name);
        let types = self.transaction.tables().enums()?;
        Ok(Content {
            tables,
            views: views.filter(is_in).collect(),
            sequences: sequences.filter(is_in).collect(),
            types: types.iter().map(|known| known.name().to_owned()).filter(is_in).collect(),
        })
    }

    /// ALTER ... SET SCHEMA.
    pub(super) fn move_to(&mut self, moved: &MoveTo) -> Result<&'static str> {
        let MoveTo { what, name, if_exists, schema } = moved;
        let command = what.command();
        let old = match what {
            Moved::Type => self.type_meant(name),
            _ => self.meant(name),
        };
        let old = match old {
            Err(error) if *if_exists && error.state == state::INVALID_SCHEMA_NAME => return Ok(command),
            old => old?,
        };
        if *what == Moved::Type {
            let known = self.transaction.tables().enum_named(&old)?;
            known.ok_or_else(|| {
                SqlError::new(state::UNDEFINED_OBJECT, format!("type \"{name}\" does not exist"))
            })?;
        }
        if !schemas::is_there(&mut self.access(), schema)? {
            return Err(schemas::unknown(schema));
        }
        schemas::touch(&mut self.access(), schema)?;
        let new = qualify(schema, own(&old));
        if new == old {
            return Ok(command);
        }
        if *what == Moved::Type {
            self.transaction.tables().alter_enum(&old, &EnumChange::Rename(new)).map_err(dependent)?;
            return Ok(command);
        }
        let is_view = crate::access::views::find(&mut self.access(), &old)?.is_some();
        let sequence = self.sequence_named(&old)?;
        let is_table = self.exists(&old)?;
        if !is_view && !is_table && sequence.is_none() {
            if *if_exists {
                return Ok(command);
            }
            let message = format!("relation \"{name}\" does not exist");
            return Err(SqlError::new(state::UNDEFINED_TABLE, message));
        }
        if self.exists(&new)?
            || crate::access::views::find(&mut self.access(), &new)?.is_some()
            || self.sequence_named(&new)?.is_some()
        {
            let message = format!("relation \"{}\" already exists in schema \"{schema}\"", own(&new));
            return Err(SqlError::new(state::DUPLICATE_TABLE, message));
        }
        if is_table {
            let id = self.schema(&old)?.id();
            let owned = crate::access::sequences::all(&mut self.access())?.into_iter();
            let owned = owned.filter(|sequence| sequence.owner.is_some_and(|(table, _)| table == id));
            for sequence in owned.map(|sequence| sequence.name).collect::<Vec<_>>() {
                let there = qualify(schema, own(&sequence));
                self.rename_sequence(&sequence, &there)?;
                self.recomment("sequence", 0, &sequence, &there)?;
            }
            self.move_table(&old, &new)?;
        } else if is_view {
            self.rename_view(&old, &new)?;
            self.recomment("view", 0, &old, &new)?;
        } else if let Some(sequence) = sequence {
            if sequence.owner.is_some() {
                let message = "cannot move an owned sequence into another schema";
                return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message).hint("move its table"));
            }
            self.rename_sequence(&old, &new)?;
            self.recomment("sequence", 0, &old, &new)?;
        }
        self.follow(&old, &new)?;
        Ok(command)
    }
}
