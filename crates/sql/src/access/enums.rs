//! The enum types of a statement, and the resolution of type names.

use std::sync::Arc;

use ropewalk::tables::{EnumType, Type};
use sqlparser::ast;

use crate::access::row_source::Access;
use crate::access::schemas;
use crate::error::{Result, SqlError, state};
use crate::syntax::names::{custom_name, table_name};
use crate::types::names::{self, Modifiers};
use crate::types::settings::Settings;

pub(crate) fn undefined(name: &str) -> SqlError {
    SqlError::new(state::UNDEFINED_OBJECT, format!("type \"{name}\" does not exist"))
}

/// The enum types that a statement uses.
#[derive(Debug, Clone, Default)]
pub(crate) struct Enums(Vec<Known>);

#[derive(Debug, Clone)]
struct Known {
    labels: Arc<EnumType>,
    /// It belongs to a table of the statement, whose definition changes with the type.
    is_of_table: bool,
}

impl Enums {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The enum type of `ty`, or of its elements.
    pub(crate) fn of(&self, ty: Type) -> Option<&Arc<EnumType>> {
        let number = ty.enum_number()?;
        self.0.iter().find(|known| known.labels.number() == number).map(|known| &known.labels)
    }

    pub(crate) fn named(&self, name: &str) -> Option<&Arc<EnumType>> {
        self.0.iter().find(|known| known.labels.name() == name).map(|known| &known.labels)
    }

    pub(crate) fn add(&mut self, labels: &Arc<EnumType>, is_of_table: bool) {
        match self.0.iter_mut().find(|known| known.labels.number() == labels.number()) {
            Some(known) => known.is_of_table |= is_of_table,
            None => self.0.push(Known { labels: labels.clone(), is_of_table }),
        }
    }

    /// True if no type has changed. Those of tables are covered by the definitions of the tables.
    pub(crate) fn are_current(&self, access: &mut Access<'_>) -> Result<bool> {
        for known in self.0.iter().filter(|known| !known.is_of_table) {
            if access.enum_named(known.labels.name())?.as_ref() != Some(&*known.labels) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Resolves `data_type`, including enum types, and its modifiers.
pub(crate) fn data_type(
    access: &mut Access<'_>,
    settings: &Settings,
    data_type: &ast::DataType,
) -> Result<(Type, Modifiers, Option<EnumType>)> {
    let error = match names::with_modifiers(data_type) {
        Ok((ty, modifiers)) => return Ok((ty, modifiers, None)),
        Err(error) if error.state == state::UNDEFINED_OBJECT => error,
        Err(error) => return Err(error),
    };
    let Some((name, is_array)) = custom_name(data_type) else { return Err(error) };
    let name = table_name(name).map_err(|_| error.clone())?;
    let name = schemas::of_type(access, settings, &name).map_err(|other| match other.state {
        state::INVALID_SCHEMA_NAME => other,
        _ => error.clone(),
    })?;
    let labels = access.enum_named(&name)?.ok_or(error)?;
    let ty = if is_array { labels.column_type().array() } else { labels.column_type() };
    Ok((ty, Modifiers::default(), Some(labels)))
}
