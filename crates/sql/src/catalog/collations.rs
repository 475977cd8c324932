//! Collations. All text is ordered by its bytes, which is the order of each collation here.

use ropewalk::tables::{Type, Value};
use sqlparser::ast;

use super::relations::row;
use super::{OWNER, PG_CATALOG};
use crate::error::{Result, SqlError, state};
use crate::expr::Record;
use crate::syntax::names::parts;
use crate::types::names::type_name;

/// The collation of columns that name none.
pub(crate) const DEFAULT: &str = "default";
/// Numbers and names.
const COLLATIONS: [(i64, &str); 4] = [(100, DEFAULT), (950, "C"), (951, "POSIX"), (12_547, "ucs_basic")];

/// The number of a column's collation.
pub(crate) fn oid(name: Option<&str>) -> i64 {
    let name = name.unwrap_or(DEFAULT);
    COLLATIONS.iter().find(|(_, known)| *known == name).map_or(100, |(oid, _)| *oid)
}

/// The name of a collation that exists.
///
/// # Errors
/// 0A000, 42704: another one.
pub(crate) fn known(name: &str) -> Result<&'static str> {
    if let Some((_, known)) = COLLATIONS.iter().find(|(_, known)| *known == name) {
        return Ok(*known);
    }
    if name.ends_with("-x-icu") {
        return Err(SqlError::unsupported(
            format!("the collation \"{name}\""),
            "text is ordered by its bytes: use \"C\", or leave COLLATE out",
        ));
    }
    let message = format!("collation \"{name}\" for encoding \"UTF8\" does not exist");
    Err(SqlError::new(state::UNDEFINED_OBJECT, message).hint("text is ordered by its bytes: use \"C\""))
}

/// The collation of a column of this type.
///
/// # Errors
/// As [`known`]; 42804 for a type that is not text.
pub(crate) fn of_column(name: &ast::ObjectName, ty: Type) -> Result<&'static str> {
    let name = known(&parts(name)?.pop().unwrap_or_default())?;
    if !matches!(
        ty,
        Type::Scalar(ropewalk::tables::Scalar::Text) | Type::Array(ropewalk::tables::Scalar::Text)
    ) {
        let message = format!("collations are not supported by type {}", type_name(ty));
        return Err(SqlError::new(state::DATATYPE_MISMATCH, message));
    }
    Ok(name)
}

/// The rows of `pg_collation`.
pub(super) fn rows() -> Vec<Record> {
    let row = |(oid, name): (i64, &str)| {
        let provider = if name == DEFAULT { "d" } else { "c" };
        row![
            oid,
            name.to_owned(),
            PG_CATALOG,
            OWNER,
            provider,
            true,
            -1_i64,
            "C",
            "C",
            Value::Null,
            Value::Null
        ]
    };
    COLLATIONS.into_iter().map(row).collect()
}
