//! Functions over the catalog that psql and other clients call, about types, definitions and the session.

use std::sync::Arc;

use ropewalk::tables::{Array, Scalar, Type, Value};

use super::Catalog;
use super::OWNER;
use super::procs::Proc;
use super::show;
use super::text;
use crate::error::{Result, SqlError, state};
use crate::expr::Context;
use crate::expr::catalog_call::CatalogCall;
use crate::syntax::names::{ident, name_parts, whole_name};

macro_rules! functions {
    ($($function:ident => $($name:literal)|+),* $(,)?) => {
        /// A function over the catalog.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum CatalogFunction { $($function),* }

        impl CatalogFunction {
            #[cfg(test)]
            pub(super) const NAMES: &'static [&'static str] = &[$($($name),+),*];

            fn named(name: &str) -> Option<Self> {
                match name {
                    $($($name)|+ => Some(Self::$function),)*
                    _ => None,
                }
            }
        }
    };
}

functions! {
    AclDefault => "acldefault",
    CancelBackend => "pg_cancel_backend",
    ColDescription => "col_description",
    ConstraintDef => "pg_get_constraintdef",
    CurrentDatabase => "current_database" | "current_catalog",
    CurrentSchemas => "current_schemas",
    CurrentSetting => "current_setting",
    CurrentUser => "current_user" | "session_user" | "user" | "current_role",
    EncodingName => "pg_encoding_to_char",
    FormatType => "format_type",
    FunctionArguments => "pg_get_function_arguments" | "pg_get_function_identity_arguments",
    FunctionResult => "pg_get_function_result",
    GetExpr => "pg_get_expr",
    HasPrivilege => "has_table_privilege" | "has_schema_privilege" | "has_database_privilege" | "has_column_privilege"
        | "has_any_column_privilege" | "has_sequence_privilege" | "has_function_privilege" | "has_type_privilege"
        | "has_tablespace_privilege" | "has_language_privilege" | "pg_has_role",
    IndexDef => "pg_get_indexdef",
    IsVisible => "pg_table_is_visible" | "pg_type_is_visible" | "pg_function_is_visible" | "pg_operator_is_visible"
        | "pg_collation_is_visible" | "pg_opclass_is_visible" | "pg_conversion_is_visible",
    Nothing => "pg_get_partkeydef" | "pg_get_statisticsobjdef_columns" | "pg_get_triggerdef" | "pg_get_ruledef"
        | "pg_get_functiondef" | "inet_server_addr" | "inet_client_addr"
        | "inet_server_port" | "inet_client_port" | "pg_tablespace_location" | "pg_advisory_unlock_all"
        | "pg_relation_size" | "pg_table_size" | "pg_total_relation_size" | "pg_indexes_size" | "pg_database_size",
    ObjDescription => "obj_description" | "shobj_description",
    InRecovery => "pg_is_in_recovery",
    PublishableNot => "pg_relation_is_publishable" | "pg_is_other_temp_schema" | "row_security_active",
    ProcedureName => "*regproc" | "*to_regproc",
    RelationName => "*regclass",
    RelationOid => "to_regclass",
    RelationOidOrError => "*to_regclass",
    RoleName => "pg_get_userbyid" | "*regrole",
    SchemaName => "*regnamespace",
    SerialSequence => "pg_get_serial_sequence",
    SetConfig => "*set_config",
    SchemaOid => "*to_regnamespace",
    TerminateBackend => "pg_terminate_backend",
    TypeName => "*regtype",
    TypeOid => "to_regtype",
    TypeOidOrError => "*to_regtype",
    ViewDef => "pg_get_viewdef",
}

/// A bound call, with the catalog at planning.
pub(crate) struct BoundCall {
    pub(crate) function: CatalogFunction,
    pub(crate) catalog: Arc<Catalog>,
}

impl std::fmt::Debug for BoundCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.function)
    }
}

impl CatalogFunction {
    /// The function of this name, the types to cast its arguments to, and its result type.
    pub(crate) fn resolve(name: &str, types: &[Option<Type>]) -> Option<(Self, Vec<Type>, Type)> {
        let function = Self::named(name)?;
        const OID: Type = Type::INT8;
        const TRUTH: Type = Type::BOOL;
        const WORDS: Type = Type::TEXT;
        let count = types.len();
        let (least, arguments, result): (usize, &[Type], Type) = match function {
            Self::AclDefault => (2, &[WORDS, OID], Type::TEXT.array()),
            Self::CancelBackend => (1, &[Type::INT4], TRUTH),
            Self::TerminateBackend => (1, &[Type::INT4, Type::INT8], TRUTH),
            Self::ProcedureName => {
                return (count == 1)
                    .then(|| (function, vec![types.first().copied().flatten().unwrap_or(WORDS)], WORDS));
            }
            Self::SerialSequence => (2, &[WORDS, WORDS], WORDS),
            Self::SetConfig => (3, &[WORDS, WORDS, TRUTH], WORDS),
            Self::ViewDef => {
                return (1..=2).contains(&count).then(|| {
                    // The view by number or by name. The second argument only controls formatting.
                    let arguments = types.iter().map(|ty| ty.unwrap_or(WORDS)).collect();
                    (function, arguments, WORDS)
                });
            }
            Self::ColDescription => (2, &[OID, Type::INT4], WORDS),
            Self::ConstraintDef => (1, &[OID, TRUTH], WORDS),
            Self::CurrentDatabase | Self::CurrentUser => (0, &[], WORDS),
            Self::CurrentSchemas => (1, &[TRUTH], Type::TEXT.array()),
            Self::CurrentSetting => (1, &[WORDS, TRUTH], WORDS),
            Self::EncodingName => (1, &[Type::INT4], WORDS),
            Self::FormatType => (2, &[OID, Type::INT4], WORDS),
            Self::GetExpr => (2, &[WORDS, OID, TRUTH], WORDS),
            Self::HasPrivilege => {
                // Privileges are not checked: any caller has them. The arguments have many forms.
                return (1..=4).contains(&count).then(|| {
                    let arguments = types.iter().map(|ty| ty.unwrap_or(WORDS)).collect();
                    (function, arguments, TRUTH)
                });
            }
            Self::IndexDef => (1, &[OID, Type::INT4, TRUTH], WORDS),
            Self::InRecovery => (0, &[], TRUTH),
            Self::IsVisible | Self::PublishableNot if count == 0 => (0, &[], TRUTH),
            Self::IsVisible | Self::PublishableNot => (1, &[OID], TRUTH),
            Self::Nothing => {
                let result = if name.ends_with("_size") { Type::INT8 } else { WORDS };
                let arguments = types.iter().map(|ty| ty.unwrap_or(WORDS)).collect();
                return Some((function, arguments, result));
            }
            Self::ObjDescription => (1, &[OID, WORDS], WORDS),
            Self::FunctionArguments | Self::FunctionResult => (1, &[OID], WORDS),
            Self::RelationName | Self::RoleName | Self::SchemaName | Self::TypeName => (1, &[OID], WORDS),
            Self::RelationOid
            | Self::RelationOidOrError
            | Self::SchemaOid
            | Self::TypeOid
            | Self::TypeOidOrError => (1, &[WORDS], OID),
        };
        (least..=arguments.len())
            .contains(&count)
            .then(|| (function, arguments.iter().take(count).copied().collect(), result))
    }
}

impl CatalogCall for BoundCall {
    fn is_of_peers(&self) -> bool {
        matches!(self.function, CatalogFunction::CancelBackend | CatalogFunction::TerminateBackend)
    }

    fn number(&self) -> usize {
        self.function as usize
    }

    fn call(&self, arguments: &[Value<'_>], cx: &Context<'_>) -> Result<Value<'static>> {
        use CatalogFunction as F;
        let catalog = &self.catalog;
        let number = |place: usize| arguments.get(place).and_then(Value::as_integer);
        let words = |place: usize| match arguments.get(place) {
            Some(Value::Text(text)) => text.as_ref(),
            _ => "",
        };
        let truth = |place: usize| arguments.get(place) == Some(&Value::Bool(true));
        if arguments.first().is_some_and(Value::is_null) {
            return Ok(Value::Null);
        }
        let oid = number(0).unwrap_or_default();
        let optional = |found: Option<String>| found.map_or(Value::Null, Value::text);
        Ok(match self.function {
            F::CurrentDatabase => text(&catalog.database),
            F::CurrentUser => text(&catalog.user),
            F::CurrentSchemas => show_path(catalog, truth(0))?,
            F::CurrentSetting => match catalog.settings.show(words(0)) {
                Ok(value) => text(value),
                Err(_) if truth(1) => Value::Null,
                Err(error) => return Err(error),
            },
            F::EncodingName => text(if oid == 6 { "UTF8" } else { "" }),
            F::FormatType => text(catalog.format_type(oid, number(1))),
            F::FunctionArguments => optional(Proc::find(oid).map(Proc::shown_arguments)),
            F::FunctionResult => optional(Proc::find(oid).map(Proc::shown_result)),
            F::GetExpr => text(words(0)),
            F::HasPrivilege => Value::Bool(true),
            F::IsVisible => Value::Bool(catalog.sees(oid)),
            // No privileges are granted by name, so none differ from the default.
            F::AclDefault => Value::Null,
            F::CancelBackend => Value::Bool(catalog.peers.cancel(oid, cx)?),
            F::TerminateBackend if arguments.get(1).is_some_and(Value::is_null) => Value::Null,
            F::TerminateBackend => {
                Value::Bool(catalog.peers.terminate(oid, number(1).unwrap_or_default(), cx)?)
            }
            F::ProcedureName => match arguments.first() {
                Some(Value::Text(name)) => text(name.to_string()),
                _ if oid == 0 => text("-"),
                _ => text(Proc::find(oid).map_or_else(|| oid.to_string(), |proc| proc.name.to_owned())),
            },
            F::SerialSequence => optional(find_serial_sequence(catalog, words(0), words(1))),
            F::SetConfig => {
                return Err(SqlError::unsupported("set_config of a column", "name one variable"));
            }
            F::ViewDef => optional(show_view(catalog, arguments.first())),
            F::InRecovery => Value::Bool(catalog.settings.follows),
            F::PublishableNot => Value::Bool(false),
            F::Nothing => Value::Null,
            F::ObjDescription => optional(find_comment(catalog, oid, 0, words(1))),
            F::ColDescription => optional(find_comment(catalog, oid, number(1).unwrap_or_default(), "")),
            F::IndexDef => optional(show_index(catalog, oid, number(1), truth(2))),
            F::ConstraintDef => {
                let found = catalog.constraints().find(|constraint| constraint.oid() == oid);
                optional(found.map(|constraint| catalog.constraint_def(&constraint)))
            }
            F::RelationName => text(catalog.relation_name(oid).unwrap_or_else(|| oid.to_string())),
            F::RelationOid => catalog.relation_oid(words(0)).map_or(Value::Null, Value::Int8),
            F::RelationOidOrError => match catalog.relation_oid(words(0)) {
                Some(oid) => Value::Int8(oid),
                None => {
                    let message = format!("relation \"{}\" does not exist", words(0));
                    return Err(SqlError::new(state::UNDEFINED_TABLE, message));
                }
            },
            F::RoleName if oid == OWNER => text(&catalog.user),
            F::RoleName if oid == super::DATABASE_OWNER => text("pg_database_owner"),
            F::RoleName => text(format!("unknown (OID={oid})")),
            F::SchemaName => {
                let known = catalog.schemas().find(|(known, _)| *known == oid);
                text(known.map_or_else(|| oid.to_string(), |(_, name)| ident(name)))
            }
            F::SchemaOid => {
                let name = name_parts(words(0)).pop().unwrap_or_default();
                Value::Int8(catalog.schema_oid(&name).ok_or_else(|| crate::access::schemas::unknown(&name))?)
            }
            F::TypeName => text(catalog.format_type(oid, None)),
            F::TypeOid => catalog.type_oid(words(0)).map_or(Value::Null, Value::Int8),
            F::TypeOidOrError => match catalog.type_oid(words(0)) {
                Some(oid) => Value::Int8(oid),
                None => {
                    let message = format!("type \"{}\" does not exist", words(0));
                    return Err(SqlError::new(state::UNDEFINED_OBJECT, message));
                }
            },
        })
    }
}

/// The schemas of the search path, after the implied one if it is included.
fn show_path(catalog: &Catalog, includes_implied: bool) -> Result<Value<'static>> {
    let implied = includes_implied.then(|| text("pg_catalog"));
    let schemas: Vec<Value<'static>> = implied.into_iter().chain(catalog.path.iter().map(text)).collect();
    let array = Array::new(Scalar::Text, schemas);
    Ok(Value::Array(array.map_err(|_| crate::expr::bug("names that make no array"))?))
}

/// The name of the sequence that a column owns.
fn find_serial_sequence(catalog: &Catalog, table: &str, column: &str) -> Option<String> {
    let table = catalog.relation_oid(table);
    let mut sequences = catalog.sequences();
    let found = sequences.find(|sequence| {
        sequence.owner.as_ref().is_some_and(|(owner, place)| {
            Some(super::table_oid(owner)) == table
                && owner.columns().get(*place).is_some_and(|known| known.name() == column)
        })
    });
    found.map(|sequence| whole_name(sequence.name()))
}

/// The query of a view, found by its name or its number.
fn show_view(catalog: &Catalog, argument: Option<&Value<'_>>) -> Option<String> {
    let oid = argument.and_then(Value::as_integer).unwrap_or_default();
    let named = |view: &&super::ViewOf| match argument {
        Some(Value::Text(name)) => catalog.relation_oid(name) == Some(view.oid()),
        _ => view.oid() == oid,
    };
    let found = catalog.views.iter().find(named);
    found.map(|view| format!(" {};", catalog.view_text(view).0))
}

/// The comment of an object, or of one of its columns.
fn find_comment(catalog: &Catalog, oid: i64, column: i64, of_catalog: &str) -> Option<String> {
    // Numbers are unique across catalogs, so the argument with the name of the catalog is only needed for
    // databases.
    let database =
        catalog.database_comment().filter(|_| of_catalog == "pg_database" && oid == super::DATABASE);
    let mut all = catalog.descriptions();
    let found = all.find(|(_, object, part, _)| (*object, *part) == (oid, column));
    found.map(|(.., comment)| comment).or(database).map(str::to_owned)
}

/// The definition of an index, or of one of its columns.
fn show_index(catalog: &Catalog, oid: i64, column: Option<i64>, is_pretty: bool) -> Option<String> {
    let index = catalog.indexes().find(|index| index.oid() == oid)?;
    match column.and_then(|column| usize::try_from(column).ok()) {
        None | Some(0) => Some(catalog.index_def(index, is_pretty)),
        Some(column) => catalog.index_column(index, column),
    }
}

/// The number of a type by any of its names.
pub(super) fn type_oid(name: &str) -> Option<i64> {
    if let Ok(oid) = name.parse() {
        return Some(oid);
    }
    let name = name.trim().trim_start_matches("pg_catalog.").trim_matches('"');
    // The name of an array type is `_` and the name of its element type.
    let element = name.strip_suffix("[]").or_else(|| name.strip_prefix('_'));
    let (name, is_array) = element.map_or((name, false), |name| (name, true));
    let name = match name {
        "int" => "int4",
        "decimal" => "numeric",
        name => name.split('(').next().unwrap_or(name).trim(),
    };
    let known = show::TYPES.iter().find(|(_, short, long, _)| *short == name || *long == name);
    known.map(|(one, _, _, many)| if is_array { *many } else { *one })
}
