//! Definitions as SQL in PostgreSQL's format: types, expressions, indexes, constraints.

use ropewalk::tables::{
    Action, Binary, Check, Column, ColumnRef, DefaultValue, Deferral, Expr, Function, Identity,
    OperatorClass, Precision, Scalar, Schema, Type, Unary, Value,
};

use super::Catalog;
use super::ConstraintOf;
use super::IndexOf;
use super::operator_classes::class_of;
use super::table_oid;
use crate::syntax::names::{ident, literal, whole_name};
use crate::types::names::{interval_precision, modifier_of, shown_fields, type_name};
use crate::types::text_format::to_text;

/// The place of the column, if the expression is one.
pub(crate) fn place_of(schema: &Schema, expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Column(ColumnRef::Id(id)) => schema.columns().iter().position(|column| column.id() == *id),
        Expr::Column(ColumnRef::Name(name)) => {
            schema.columns().iter().position(|column| column.name() == name)
        }
        _ => None,
    }
}

/// The column and n, if `check` implements the length of a `varchar(n)` or of the elements of a
/// `varchar(n)[]`.
pub(crate) fn length_bound(schema: &Schema, check: &Check) -> Option<(usize, i64)> {
    let (text, bound) = check.length_bound()?;
    let place = place_of(schema, text)?;
    let name = schema.columns().get(place)?.name();
    (check.name() == format!("{name}_length")).then_some((place, bound))
}

/// The length limit of a `varchar(n)` column.
pub(crate) fn characters_max(schema: &Schema, place: usize) -> Option<i64> {
    let mut bounds = schema.checks().iter().filter_map(|check| length_bound(schema, check));
    bounds.find(|(at, _)| *at == place).map(|(_, max)| max)
}

/// PostgreSQL's number and modifier for the type of a column.
pub(crate) fn type_of(schema: &Schema, place: usize, column: &Column) -> (i64, i64) {
    match (column.column_type(), characters_max(schema, place)) {
        (Type::TEXT, Some(max)) => (1043, max + 4),
        (Type::Array(Scalar::Text), Some(max)) => (1015, max + 4),
        (ty, _) => match (type_and_modifier(ty), column.precision()) {
            ((oid, _), Some(precision)) => (oid, modifier_of(ty, precision)),
            (found, None) => found,
        },
    }
}

/// PostgreSQL's number and modifier for a type.
pub(crate) fn type_and_modifier(ty: Type) -> (i64, i64) {
    let oid = i64::from(crate::types::names::oid(ty));
    match ty {
        Type::Scalar(Scalar::Numeric(Some(limits))) | Type::Array(Scalar::Numeric(Some(limits))) => {
            (oid, (i64::from(limits.precision) << 16 | i64::from(limits.scale)) + 4)
        }
        _ => (oid, -1),
    }
}

/// All types: PostgreSQL's number, its short name, the SQL name, the number of its array or element type.
pub(crate) const TYPES: [(i64, &str, &str, i64); 24] = [
    (16, "bool", "boolean", 1000),
    (17, "bytea", "bytea", 1001),
    (18, "char", "\"char\"", 1002),
    (19, "name", "name", 1003),
    (20, "int8", "bigint", 1016),
    (21, "int2", "smallint", 1005),
    (23, "int4", "integer", 1007),
    (25, "text", "text", 1009),
    (26, "oid", "oid", 1028),
    (114, "json", "json", 199),
    (650, "cidr", "cidr", 651),
    (700, "float4", "real", 1021),
    (701, "float8", "double precision", 1022),
    (869, "inet", "inet", 1041),
    (1042, "bpchar", "character", 1014),
    (1043, "varchar", "character varying", 1015),
    (1082, "date", "date", 1182),
    (1083, "time", "time without time zone", 1183),
    (1114, "timestamp", "timestamp without time zone", 1115),
    (1184, "timestamptz", "timestamp with time zone", 1185),
    (1186, "interval", "interval", 1187),
    (1700, "numeric", "numeric", 1231),
    (2950, "uuid", "uuid", 2951),
    (3802, "jsonb", "jsonb", 3807),
];

/// Pseudo-types of arguments and results of functions.
pub(crate) const PSEUDO_TYPES: [(i64, &str); 6] = [
    (2249, "record"),
    (2276, "any"),
    (2277, "anyarray"),
    (2278, "void"),
    (2283, "anyelement"),
    (3500, "anyenum"),
];

/// `format_type(oid, typmod)`.
pub(crate) fn format_type(oid: i64, modifier: Option<i64>) -> String {
    let known = TYPES.iter().find(|(one, _, _, many)| *one == oid || *many == oid);
    let Some((one, _, name, _)) = known else {
        let pseudo = PSEUDO_TYPES.iter().find(|(known, _)| *known == oid).map(|(_, name)| *name);
        return pseudo.unwrap_or(if oid == 0 { "-" } else { "???" }).into();
    };
    if let (1083 | 1114 | 1184 | 1186, Some(modifier @ 0..)) = (*one, modifier) {
        let named = timed_type(*one, name, modifier);
        return if *one == oid { named } else { format!("{named}[]") };
    }
    let modifier = modifier.filter(|modifier| *modifier >= 4).map(|modifier| modifier - 4);
    let named = match (*one, modifier) {
        (1042 | 1043, Some(max)) => format!("{name}({max})"),
        (1700, Some(limits)) => format!("{name}({},{})", limits >> 16, limits & 0xffff),
        _ => (*name).to_owned(),
    };
    if *one == oid { named } else { format!("{named}[]") }
}

/// A date or time type with its modifier.
fn timed_type(oid: i64, name: &str, modifier: i64) -> String {
    if oid != 1186 {
        let (first, rest) = name.split_once(' ').unwrap_or((name, ""));
        return format!("{first}({modifier}) {rest}");
    }
    let Precision { digits, fields } = interval_precision(modifier);
    let fields = fields.map_or_else(String::new, |fields| format!(" {}", shown_fields(fields)));
    let digits = digits.map_or_else(String::new, |digits| format!("({digits})"));
    format!("{name}{fields}{digits}")
}

/// A constant with its cast. The names of enum types are found in `types`.
fn value(value: &Value<'_>, types: &Types<'_>) -> String {
    match value {
        Value::Null => "NULL".into(),
        Value::Bool(truth) => truth.to_string(),
        Value::Int2(_) | Value::Int4(_) | Value::Int8(_) | Value::Numeric(_) => {
            to_text(value).unwrap_or_default()
        }
        Value::Float4(_) | Value::Float8(_) => {
            format!("{}::{}", literal(&to_text(value).unwrap_or_default()), types.name_of(value))
        }
        other => format!("{}::{}", literal(&to_text(other).unwrap_or_default()), types.name_of(other)),
    }
}

/// Returns the name to display for the stored name of a type.
pub(super) type Naming<'n> = &'n dyn Fn(&str) -> String;

/// Resolves the names of the types of constants.
struct Types<'t> {
    columns: &'t [Column],
    naming: Naming<'t>,
}

impl Types<'_> {
    fn name_of(&self, value: &Value<'_>) -> String {
        let Some(ty) = value.value_type() else { return String::new() };
        let (Type::Scalar(scalar) | Type::Array(scalar)) = ty;
        let mut enums = self.columns.iter().filter_map(|column| column.enum_type());
        let Some(known) = enums.find(|known| known.column_type() == Type::Scalar(scalar)) else {
            return type_name(ty);
        };
        let array = if matches!(ty, Type::Array(_)) { "[]" } else { "" };
        format!("{}{array}", (self.naming)(known.name()))
    }
}

/// Renders an expression of a check or an index.
fn expr(schema: &Schema, shown: &Expr, naming: Naming<'_>) -> String {
    let of = |part: &Expr| expr(schema, part, naming);
    match shown {
        Expr::Column(_) => {
            let place = place_of(schema, shown);
            place
                .and_then(|place| schema.columns().get(place))
                .map_or("?".into(), |column| ident(column.name()))
        }
        Expr::Literal(constant) => value(constant, &Types { columns: schema.columns(), naming }),
        Expr::Unary(Unary::Not, inner) => format!("(NOT {})", of(inner)),
        Expr::Unary(Unary::Negate, inner) => format!("(- {})", of(inner)),
        Expr::Unary(Unary::IsNull, inner) => format!("({} IS NULL)", of(inner)),
        Expr::Unary(Unary::IsNotNull, inner) => format!("({} IS NOT NULL)", of(inner)),
        Expr::Binary(op, left, right) => {
            let op = match op {
                Binary::And => "AND",
                Binary::Or => "OR",
                Binary::Eq => "=",
                Binary::Ne => "<>",
                Binary::Lt => "<",
                Binary::Le => "<=",
                Binary::Gt => ">",
                Binary::Ge => ">=",
                Binary::Add => "+",
                Binary::Sub => "-",
                Binary::Mul => "*",
                Binary::Div => "/",
                Binary::Rem => "%",
                Binary::Concat => "||",
            };
            format!("({} {op} {})", of(left), of(right))
        }
        Expr::Call(function, arguments) => {
            let name = match function {
                Function::Lower => "lower",
                Function::Upper => "upper",
                Function::Length => "length",
                Function::Abs => "abs",
                Function::Coalesce => "COALESCE",
            };
            format!("{name}({})", arguments.iter().map(of).collect::<Vec<_>>().join(", "))
        }
    }
}

/// Renders the default of a column.
pub(crate) fn default(column: &Column, naming: Naming<'_>) -> Option<String> {
    match (column.identity(), column.default_value()) {
        // Only the catalog knows the name of the sequence.
        (Some(_), _) | (_, DefaultValue::None | DefaultValue::Next(_)) => None,
        (_, DefaultValue::Value(constant)) => {
            Some(value(constant, &Types { columns: std::slice::from_ref(column), naming }))
        }
        (_, DefaultValue::Now) => Some(match column.column_type() {
            Type::DATE => "CURRENT_DATE".into(),
            Type::TIME => "LOCALTIME".into(),
            Type::TIMESTAMP => "LOCALTIMESTAMP".into(),
            _ => "now()".into(),
        }),
        (_, DefaultValue::NewUuid) => Some("gen_random_uuid()".into()),
    }
}

/// `attidentity` of `pg_attribute`: whether the column is an identity column.
pub(crate) fn identity(column: &Column) -> &'static str {
    match column.identity() {
        None => "",
        Some(Identity::Always) => "a",
        Some(Identity::ByDefault) => "d",
    }
}

fn names(schema: &Schema, numbers: &[i16]) -> String {
    let name = |number: &i16| {
        let place = usize::try_from(*number).ok().and_then(|number| number.checked_sub(1));
        place.and_then(|place| schema.columns().get(place)).map_or("?".into(), |column| ident(column.name()))
    };
    numbers.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// Numbers of the columns with these ids.
pub(crate) fn numbers(schema: &Schema, ids: &[u16]) -> Vec<i16> {
    let place = |id: &u16| schema.columns().iter().position(|column| column.id() == *id);
    ids.iter().filter_map(place).map(|place| i16::try_from(place + 1).unwrap_or(i16::MAX)).collect()
}

fn action(action: Action) -> Option<&'static str> {
    match action {
        Action::NoAction => None,
        Action::Restrict => Some("RESTRICT"),
        Action::Cascade => Some("CASCADE"),
        Action::SetNull => Some("SET NULL"),
        Action::SetDefault => Some("SET DEFAULT"),
    }
}

pub(crate) fn action_letter(action: Action) -> &'static str {
    match action {
        Action::NoAction => "a",
        Action::Restrict => "r",
        Action::Cascade => "c",
        Action::SetNull => "n",
        Action::SetDefault => "d",
    }
}

/// Renders a column or expression of an index, with its order.
fn index_column(index: IndexOf<'_>, number: usize, naming: Naming<'_>) -> Option<String> {
    let place = number.checked_sub(1)?;
    match index {
        IndexOf::Key(schema) => {
            let column = schema.columns().get(*schema.key_columns().get(place)?)?;
            Some(ident(column.name()))
        }
        IndexOf::Secondary(schema, index) => {
            let column = index.columns().get(place)?;
            let text = expr(schema, &column.expr, naming);
            Some(if matches!(column.expr, Expr::Column(_) | Expr::Call(..)) {
                text
            } else {
                format!("({text})")
            })
        }
    }
}

impl Catalog {
    /// Renders a column or expression of an index, with its order.
    pub(crate) fn index_column(&self, index: IndexOf<'_>, number: usize) -> Option<String> {
        index_column(index, number, &|kept| self.qualified_type(kept))
    }

    /// Renders an expression of a check or an index.
    pub(crate) fn expr(&self, schema: &Schema, shown: &Expr) -> String {
        expr(schema, shown, &|kept| self.qualified_type(kept))
    }

    /// Renders the CREATE INDEX of an index. With `pretty` the table is not qualified.
    pub(crate) fn index_def(&self, index: IndexOf<'_>, pretty: bool) -> String {
        let schema = index.table();
        let unique = if index.is_unique() { "UNIQUE " } else { "" };
        let table = if pretty { self.qualified(schema.name()) } else { whole_name(schema.name()) };
        let width = index.columns().len();
        let mut columns = Vec::new();
        for number in 1..=width {
            let mut column = self.index_column(index, number).unwrap_or_default();
            let class = index.class(number);
            if class != OperatorClass::Default
                && let Some(class) = class_of(index.column_type(number), class)
            {
                column += " ";
                column += class.name;
            }
            if let IndexOf::Secondary(_, index) = index
                && let Some(order) =
                    number.checked_sub(1).and_then(|place| index.columns().get(place)).map(|c| c.order)
            {
                column += match (order.descending, order.nulls_first) {
                    (false, false) | (true, true) if !order.descending => "",
                    (false, _) => " NULLS FIRST",
                    (true, true) => " DESC",
                    (true, false) => " DESC NULLS LAST",
                };
            }
            columns.push(column);
        }
        let filter = match index {
            IndexOf::Secondary(_, index) => {
                index.filter().map(|filter| format!(" WHERE {}", self.expr(schema, filter)))
            }
            IndexOf::Key(_) => None,
        };
        let included = index.included();
        let included = match included.as_slice() {
            [] => String::new(),
            _ => format!(" INCLUDE ({})", names(schema, &included)),
        };
        let nulls = if index.has_equal_nulls() { " NULLS NOT DISTINCT" } else { "" };
        let (name, columns) = (ident(index.name()), columns.join(", "));
        format!(
            "CREATE {unique}INDEX {name} ON {table} USING btree ({columns}){included}{nulls}{}",
            filter.unwrap_or_default()
        )
    }

    /// Renders a constraint as in ALTER TABLE ADD CONSTRAINT.
    pub(crate) fn constraint_def(&self, constraint: &ConstraintOf<'_>) -> String {
        let text = self.constraint_def_at_once(constraint);
        text + match constraint.deferral() {
            Deferral::NotDeferrable => "",
            Deferral::InitiallyImmediate => " DEFERRABLE",
            Deferral::InitiallyDeferred => " DEFERRABLE INITIALLY DEFERRED",
        }
    }

    /// As [`Catalog::constraint_def`], without the time of the check.
    fn constraint_def_at_once(&self, constraint: &ConstraintOf<'_>) -> String {
        match constraint {
            ConstraintOf::Index(index @ IndexOf::Key(schema)) => {
                format!("PRIMARY KEY ({})", names(schema, &index.columns()))
            }
            ConstraintOf::Index(index) => format!("UNIQUE ({})", names(index.table(), &index.columns())),
            ConstraintOf::Check(schema, _, check) => format!("CHECK ({})", self.expr(schema, check.expr())),
            ConstraintOf::Foreign(schema, _, key) => {
                let own = names(schema, &numbers(schema, key.columns()));
                let parent = self.tables.iter().find(|table| table.id() == key.parent());
                let (table, referred) = parent.map_or_else(Default::default, |parent| {
                    let referred = names(parent, &numbers(parent, key.parent_columns()));
                    (self.relation_name(table_oid(parent)).unwrap_or_default(), referred)
                });
                let mut text = format!("FOREIGN KEY ({own}) REFERENCES {table}({referred})");
                for (what, action) in
                    [(" ON UPDATE ", action(key.on_update())), (" ON DELETE ", action(key.on_delete()))]
                {
                    if let Some(action) = action {
                        text += what;
                        text += action;
                    }
                }
                text
            }
        }
    }
}
