//! Enum types: CREATE, ALTER and DROP TYPE.

use ropewalk::tables::{EnumChange, EnumPlace, TablesRead, Type, qualify, schema_and_name};
use sqlparser::ast;

use crate::access::enums::{data_type, undefined};
use crate::access::schemas;
use crate::ddl::Ddl;
use crate::error::{Result, SqlError, state};
use crate::syntax::names::{folded, own, table_name};
use crate::types::names::{self, Modifiers};

/// Maximum number of bytes of a label.
const LABEL_BYTES_MAX: usize = 63;

/// A label, which must be a quoted literal.
fn label(ident: &ast::Ident) -> Result<&str> {
    if ident.quote_style != Some('\'') {
        let message = format!("syntax error at or near \"{}\"", ident.value);
        return Err(SqlError::new(state::SYNTAX_ERROR, message).hint("labels are literals: 'label'"));
    }
    if ident.value.len() > LABEL_BYTES_MAX {
        let message = format!("invalid enum label \"{}\"", ident.value);
        return Err(SqlError::new(state::INVALID_NAME, message)
            .hint(format!("labels have at most {LABEL_BYTES_MAX} bytes")));
    }
    Ok(&ident.value)
}

impl Ddl<'_> {
    /// Resolves `wanted`, including enum types, and its modifiers.
    pub(crate) fn data_type(&mut self, wanted: &ast::DataType) -> Result<(Type, Modifiers)> {
        let settings = self.settings.clone();
        data_type(&mut self.access(), &settings, wanted).map(|(ty, modifiers, _)| (ty, modifiers))
    }

    /// The stored name of the type that a reference denotes.
    pub(crate) fn type_meant(&mut self, reference: &str) -> Result<String> {
        let settings = self.settings.clone();
        schemas::of_type(&mut self.access(), &settings, reference)
    }

    pub(crate) fn create_type(
        &mut self,
        name: &ast::ObjectName,
        representation: Option<&ast::UserDefinedTypeRepresentation>,
    ) -> Result<()> {
        let Some(ast::UserDefinedTypeRepresentation::Enum { labels }) = representation else {
            return Err(SqlError::unsupported(
                format!("CREATE TYPE {name} of this kind"),
                "CREATE TYPE name AS ENUM ('label', ...)",
            ));
        };
        let name = self.fresh(&table_name(name)?)?;
        let labels = labels.iter().map(label).collect::<Result<Vec<_>>>()?;
        if self.exists(&name)? || names::named(&name).is_some() {
            let message = format!("type \"{}\" already exists", own(&name));
            return Err(SqlError::new(state::DUPLICATE_OBJECT, message));
        }
        self.transaction.tables().create_enum(&name, &labels)?;
        Ok(())
    }

    pub(crate) fn alter_type(&mut self, alter: &ast::AlterType) -> Result<()> {
        let name = self.type_meant(&table_name(&alter.name)?)?;
        let change = match &alter.operation {
            ast::AlterTypeOperation::Rename(renamed) => {
                EnumChange::Rename(qualify(schema_and_name(&name).0, &folded(&renamed.new_name)))
            }
            ast::AlterTypeOperation::RenameValue(renamed) => {
                EnumChange::RenameLabel(label(&renamed.from)?.to_owned(), label(&renamed.to)?.to_owned())
            }
            ast::AlterTypeOperation::AddValue(added) => {
                let value = label(&added.value)?;
                let known = self.transaction.tables().enum_named(&name)?;
                let has = known.is_some_and(|known| known.value_of(value).is_some());
                if added.if_not_exists && has {
                    let message = format!("enum label \"{value}\" already exists, skipping");
                    self.notice = Some(SqlError::new(state::DUPLICATE_OBJECT, message));
                    return Ok(());
                }
                let place = match &added.position {
                    None => EnumPlace::Last,
                    Some(ast::AlterTypeAddValuePosition::Before(other)) => {
                        EnumPlace::Before(label(other)?.to_owned())
                    }
                    Some(ast::AlterTypeAddValuePosition::After(other)) => {
                        EnumPlace::After(label(other)?.to_owned())
                    }
                };
                EnumChange::Add(value.to_owned(), place)
            }
        };
        self.transaction.tables().alter_enum(&name, &change)?;
        Ok(())
    }

    /// DROP TYPE; CASCADE also drops columns of the type.
    pub(crate) fn drop_type(&mut self, name: &ast::ObjectName, if_exists: bool, cascade: bool) -> Result<()> {
        let name = match self.type_meant(&table_name(name)?) {
            Err(error) if if_exists && error.state == state::INVALID_SCHEMA_NAME => return Ok(()),
            found => found?,
        };
        if self.transaction.tables().enum_named(&name)?.is_some() {
            let views = if cascade { self.meaningful_views()? } else { Vec::new() };
            self.drop_kept_type(&name, cascade)?;
            return self.drop_meaningless(&views);
        }
        if !if_exists {
            return Err(undefined(&name));
        }
        let message = format!("type \"{name}\" does not exist, skipping");
        self.notice = Some(SqlError::new(state::SUCCESSFUL_COMPLETION, message));
        Ok(())
    }

    /// Drops the type with this stored name.
    pub(crate) fn drop_kept_type(&mut self, name: &str, cascade: bool) -> Result<()> {
        let known = self.transaction.tables().enum_named(name)?.ok_or_else(|| undefined(name))?;
        for table in if cascade { self.tables()? } else { Vec::new() } {
            let schema = self.schema(&table)?;
            let is_of = |column: &&ropewalk::tables::Column| {
                column.enum_type().is_some_and(|labels| labels.number() == known.number())
            };
            for column in schema.columns().iter().filter(is_of) {
                self.drop_column(&table, column.name(), true)?;
            }
        }
        self.transaction.tables().drop_enum(name).map_err(crate::ddl::dependent)?;
        self.uncomment(Some("type"), i64::from(known.number()), None)
    }

    /// ALTER TYPE ... OWNER TO, as dumps contain it. Ignored: all objects have one owner.
    pub(crate) fn type_owned(&mut self, reference: &str) -> Result<()> {
        let name = &self.type_meant(reference)?;
        self.transaction.tables().enum_named(name)?.ok_or_else(|| undefined(name))?;
        self.notice = Some(SqlError::new(
            state::SUCCESSFUL_COMPLETION,
            "OWNER TO ignored: all objects have the same owner",
        ));
        Ok(())
    }
}
