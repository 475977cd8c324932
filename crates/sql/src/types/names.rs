//! Names of types: from SQL to column types, and back in PostgreSQL's notation for messages.

use ropewalk::tables::{Field, NumericLimits, Precision, SECOND_DIGITS_MAX, Scalar, Type};
use sqlparser::ast::{
    ArrayElemTypeDef, CharacterLength, DataType, ExactNumberInfo, IntervalFields, TimezoneInfo,
};

use crate::error::{Result, SqlError, state};

const TYPES: &str = "use bool, smallint, integer, bigint, real, double precision, numeric(p,s), text, varchar(n), \
                     bytea, date, time, timestamp, timestamptz, interval, uuid, json, jsonb or arrays of them";

/// Modifiers of a column type in addition to its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Modifiers {
    /// Maximum number of characters of a `varchar(n)`, or of an element of a `varchar(n)[]`.
    pub(crate) characters_max: Option<u64>,
    /// `serial`: the column takes its default from a sequence.
    pub(crate) serial: bool,
    /// `char(n)`: PostgreSQL pads with blanks, this database does not.
    pub(crate) is_padded: bool,
    /// Precision of stored times.
    pub(crate) precision: Option<Precision>,
}

/// The built-in type that `data_type` names, without modifiers.
pub(crate) fn plain(data_type: &DataType) -> Result<Type> {
    let (ty, modifiers) = with_modifiers(data_type)?;
    match modifiers.characters_max {
        _ if modifiers.precision.is_some() => {
            Err(SqlError::unsupported(format!("{data_type} here"), "leave the precision out"))
        }
        _ if modifiers.serial => Err(unknown(data_type)),
        None => Ok(ty),
        Some(_) if matches!(ty, Type::Array(_)) => {
            Err(SqlError::unsupported(format!("{data_type} here"), "write text[]"))
        }
        Some(_) => {
            Err(SqlError::unsupported(format!("{data_type} here"), "write text, and use left() to cut"))
        }
    }
}

fn unknown(data_type: &DataType) -> SqlError {
    SqlError::new(state::UNDEFINED_OBJECT, format!("type \"{data_type}\" does not exist")).hint(TYPES)
}

fn numeric(info: &ExactNumberInfo, data_type: &DataType) -> Result<Type> {
    let (precision, scale) = match info {
        ExactNumberInfo::None => return Ok(Type::NUMERIC),
        ExactNumberInfo::Precision(precision) => (*precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (*precision, *scale),
    };
    match (u8::try_from(precision), u8::try_from(scale)) {
        (Ok(precision @ 1..=38), Ok(scale)) if scale <= precision => {
            Ok(Type::Scalar(Scalar::Numeric(Some(NumericLimits { precision, scale }))))
        }
        _ => Err(SqlError::unsupported(data_type, "precision is 1 to 38, scale 0 to the precision")),
    }
}

fn length(characters: &Option<CharacterLength>) -> Modifiers {
    let characters_max = match characters {
        Some(CharacterLength::IntegerLength { length, .. }) => Some(*length),
        Some(CharacterLength::Max) | None => None,
    };
    Modifiers { characters_max, ..Modifiers::default() }
}

/// A time type with the requested digits of seconds, or the maximum.
fn timed(ty: Type, digits: Option<u64>, fields: Option<(Field, Field)>) -> (Type, Modifiers) {
    let most = u64::from(SECOND_DIGITS_MAX);
    let digits = digits.map(|digits| u8::try_from(digits.min(most)).unwrap_or(SECOND_DIGITS_MAX));
    let precision = Precision { digits, fields };
    let precision = Some(precision).filter(|precision| *precision != Precision::default());
    (ty, Modifiers { precision, ..Modifiers::default() })
}

/// The greatest and the least field of an interval type.
fn fields_of(fields: &IntervalFields) -> (Field, Field) {
    match fields {
        IntervalFields::Year => (Field::Year, Field::Year),
        IntervalFields::Month => (Field::Month, Field::Month),
        IntervalFields::Day => (Field::Day, Field::Day),
        IntervalFields::Hour => (Field::Hour, Field::Hour),
        IntervalFields::Minute => (Field::Minute, Field::Minute),
        IntervalFields::Second => (Field::Second, Field::Second),
        IntervalFields::YearToMonth => (Field::Year, Field::Month),
        IntervalFields::DayToHour => (Field::Day, Field::Hour),
        IntervalFields::DayToMinute => (Field::Day, Field::Minute),
        IntervalFields::DayToSecond => (Field::Day, Field::Second),
        IntervalFields::HourToMinute => (Field::Hour, Field::Minute),
        IntervalFields::HourToSecond => (Field::Hour, Field::Second),
        IntervalFields::MinuteToSecond => (Field::Minute, Field::Second),
    }
}

/// The type that `data_type` names, and its modifiers.
pub(crate) fn with_modifiers(data_type: &DataType) -> Result<(Type, Modifiers)> {
    let ty = match data_type {
        DataType::Bool | DataType::Boolean => Type::BOOL,
        DataType::SmallInt(None) | DataType::Int2(None) => Type::INT2,
        DataType::Int(None) | DataType::Integer(None) | DataType::Int4(None) => Type::INT4,
        DataType::BigInt(None) | DataType::Int8(None) => Type::INT8,
        DataType::Real | DataType::Float4 => Type::FLOAT4,
        DataType::Float8 | DataType::DoublePrecision | DataType::Double(ExactNumberInfo::None) => {
            Type::FLOAT8
        }
        DataType::Float(ExactNumberInfo::None) => Type::FLOAT8,
        DataType::Float(ExactNumberInfo::Precision(1..=24)) => Type::FLOAT4,
        DataType::Float(ExactNumberInfo::Precision(25..=53)) => Type::FLOAT8,
        DataType::Numeric(info) | DataType::Decimal(info) | DataType::Dec(info) => numeric(info, data_type)?,
        DataType::Text => Type::TEXT,
        DataType::Varchar(n) | DataType::CharacterVarying(n) | DataType::CharVarying(n) => {
            return Ok((Type::TEXT, length(n)));
        }
        DataType::Char(n) | DataType::Character(n) => {
            let n = n.or(Some(CharacterLength::IntegerLength { length: 1, unit: None }));
            return Ok((Type::TEXT, Modifiers { is_padded: true, ..length(&n) }));
        }
        DataType::Bytea => Type::BYTEA,
        DataType::Date => Type::DATE,
        DataType::Time(digits, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            return Ok(timed(Type::TIME, *digits, None));
        }
        DataType::Timestamp(digits, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            return Ok(timed(Type::TIMESTAMP, *digits, None));
        }
        DataType::Timestamp(digits, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => {
            return Ok(timed(Type::TIMESTAMPTZ, *digits, None));
        }
        DataType::Interval { fields, precision } => {
            return Ok(timed(Type::INTERVAL, *precision, fields.as_ref().map(fields_of)));
        }
        DataType::Uuid => Type::UUID,
        DataType::JSON => Type::JSON,
        DataType::JSONB => Type::JSONB,
        DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)) => match with_modifiers(element)? {
            // Each element is limited to so many characters.
            (ty, modifiers @ Modifiers { serial: false, precision: None, .. }) => {
                return Ok((ty.array(), modifiers));
            }
            _ => plain(element)?.array(),
        },
        DataType::Custom(name, arguments) if arguments.is_empty() => {
            let name = name.to_string().to_ascii_lowercase();
            if let Some(ty) = named(name.trim_start_matches("pg_catalog.")) {
                return Ok((ty, Modifiers::default()));
            }
            let serial = match name.as_str() {
                "serial" | "serial4" => Type::INT4,
                "bigserial" | "serial8" => Type::INT8,
                "smallserial" | "serial2" => Type::INT2,
                _ => return Err(unknown(data_type)),
            };
            return Ok((serial, Modifiers { serial: true, ..Modifiers::default() }));
        }
        DataType::Time(..) => {
            return Err(SqlError::unsupported(format!("type {data_type}"), TYPES));
        }
        _ => return Err(unknown(data_type)),
    };
    Ok((ty, Modifiers::default()))
}

/// The short name of a type, used as the name of a column that is cast to it.
pub(crate) fn short_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Varchar(_) | DataType::CharacterVarying(_) | DataType::CharVarying(_) => "varchar".into(),
        DataType::Char(_) | DataType::Character(_) => "bpchar".into(),
        DataType::Interval { .. } => "interval".into(),
        // The name of an array type is that of its elements.
        DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)) => short_name(element),
        other => match with_modifiers(other) {
            Ok((Type::Scalar(scalar) | Type::Array(scalar), _)) => match scalar {
                Scalar::Numeric(_) => "numeric".into(),
                scalar => scalar.to_string(),
            },
            Err(_) => {
                match crate::syntax::names::custom_name(other)
                    .map(|(name, _)| crate::syntax::names::parts(name))
                {
                    Some(Ok(parts)) => parts.last().cloned().unwrap_or_default(),
                    _ => other.to_string().to_lowercase(),
                }
            }
        },
    }
}

fn scalar_name(scalar: Scalar) -> String {
    match scalar {
        Scalar::Bool => "boolean".into(),
        Scalar::Int2 => "smallint".into(),
        Scalar::Int4 => "integer".into(),
        Scalar::Int8 => "bigint".into(),
        Scalar::Float4 => "real".into(),
        Scalar::Float8 => "double precision".into(),
        Scalar::Time => "time without time zone".into(),
        Scalar::Timestamp => "timestamp without time zone".into(),
        Scalar::Timestamptz => "timestamp with time zone".into(),
        other => other.to_string(),
    }
}

/// Types by PostgreSQL's internal names. Object numbers are bigint here, names are text.
pub(crate) fn named(name: &str) -> Option<Type> {
    Some(match name {
        "bool" => Type::BOOL,
        "int2" => Type::INT2,
        "int4" => Type::INT4,
        "int8" | "oid" | "xid" => Type::INT8,
        "float4" => Type::FLOAT4,
        "float8" => Type::FLOAT8,
        "numeric" => Type::NUMERIC,
        "text" | "name" | "varchar" | "\"char\"" | "cstring" => Type::TEXT,
        "bytea" => Type::BYTEA,
        "date" => Type::DATE,
        "interval" => Type::INTERVAL,
        "inet" => Type::INET,
        "cidr" => Type::CIDR,
        "time" => Type::TIME,
        "timestamp" => Type::TIMESTAMP,
        "timestamptz" => Type::TIMESTAMPTZ,
        "uuid" => Type::UUID,
        "json" => Type::JSON,
        "jsonb" => Type::JSONB,
        _ => return None,
    })
}

/// First number of user objects; PostgreSQL's system objects have smaller ones.
pub(crate) const FIRST_OID: i64 = 16_384;

/// Numbers of enum types, which are objects of the tables model, and of their arrays.
const ENUM_OID: u32 = FIRST_OID as u32;
const ENUM_ARRAY_OID: u32 = 0x1000_0000;

/// The enum type, or array of one, with this number.
pub fn enum_of_oid(oid: u32) -> Option<Type> {
    match (oid.checked_sub(ENUM_ARRAY_OID), oid.checked_sub(ENUM_OID)) {
        (Some(number), _) => Some(Type::Array(Scalar::Enum(number))),
        (None, Some(number)) => Some(Type::Scalar(Scalar::Enum(number))),
        (None, None) => None,
    }
}

/// PostgreSQL's number of the type, as used by its clients.
pub fn oid(ty: Type) -> u32 {
    let (scalar, array) = match ty {
        Type::Scalar(scalar) => (scalar, false),
        Type::Array(scalar) => (scalar, true),
    };
    let (one, many) = match scalar {
        Scalar::Bool => (16, 1000),
        Scalar::Bytea => (17, 1001),
        Scalar::Int8 => (20, 1016),
        Scalar::Int2 => (21, 1005),
        Scalar::Int4 => (23, 1007),
        Scalar::Text => (25, 1009),
        Scalar::Json => (114, 199),
        Scalar::Float4 => (700, 1021),
        Scalar::Float8 => (701, 1022),
        Scalar::Date => (1082, 1182),
        Scalar::Time => (1083, 1183),
        Scalar::Timestamp => (1114, 1115),
        Scalar::Timestamptz => (1184, 1185),
        Scalar::Numeric(_) => (1700, 1231),
        Scalar::Uuid => (2950, 2951),
        Scalar::Jsonb => (3802, 3807),
        Scalar::Interval => (1186, 1187),
        Scalar::Inet => (869, 1041),
        Scalar::Cidr => (650, 651),
        Scalar::Enum(number) => (ENUM_OID.saturating_add(number), ENUM_ARRAY_OID.saturating_add(number)),
    };
    if array { many } else { one }
}

/// The type's name as PostgreSQL writes it.
pub fn type_name(ty: Type) -> String {
    match ty {
        Type::Scalar(scalar) => scalar_name(scalar),
        Type::Array(scalar) => format!("{}[]", scalar_name(scalar)),
    }
}

/// [`type_name`], for a type that may be undetermined.
pub(crate) fn shown(ty: Option<Type>) -> String {
    ty.map_or_else(|| "unknown".into(), |ty| type_name(unmodified(ty)))
}

/// The rank of a number type: of two types the greater one is the common type.
pub(crate) fn rank(ty: Type) -> Option<u8> {
    Some(match ty {
        Type::INT2 => 0,
        Type::INT4 => 1,
        Type::INT8 => 2,
        Type::Scalar(Scalar::Numeric(_)) => 3,
        Type::FLOAT4 => 4,
        Type::FLOAT8 => 5,
        _ => return None,
    })
}

pub(crate) fn is_numeric(ty: Type) -> bool {
    matches!(ty, Type::Scalar(Scalar::Numeric(_)))
}

pub(crate) fn is_integer(ty: Type) -> bool {
    matches!(ty, Type::INT2 | Type::INT4 | Type::INT8)
}

/// True for equal types, ignoring limits.
pub(crate) fn same(a: Type, b: Type) -> bool {
    a == b || is_numeric(a) && is_numeric(b)
}

/// The type without a precision: that of a constant in quotes, which no limit of another operand rounds.
pub(crate) fn unmodified(ty: Type) -> Type {
    match ty {
        Type::Array(Scalar::Numeric(_)) => Type::NUMERIC.array(),
        ty if is_numeric(ty) => Type::NUMERIC,
        ty => ty,
    }
}

/// The common type of two types without a cast; `None` if they have none.
pub(crate) fn common(a: Type, b: Type) -> Option<Type> {
    if a == b {
        return Some(a);
    }
    if let (Some(x), Some(y)) = (rank(a), rank(b)) {
        return Some(match x.max(y) {
            3 => Type::NUMERIC,
            _ if x >= y => a,
            _ => b,
        });
    }
    if matches!((a, b), (Type::INET, Type::CIDR) | (Type::CIDR, Type::INET)) {
        return Some(Type::INET);
    }
    if let (Type::Array(x), Type::Array(y)) = (a, b) {
        return common(Type::Scalar(x), Type::Scalar(y)).map(Type::array);
    }
    let times = |ty| match ty {
        Type::DATE => Some(0),
        Type::TIMESTAMP => Some(1),
        Type::TIMESTAMPTZ => Some(2),
        _ => None,
    };
    match (times(a)?, times(b)?) {
        (x, y) if x >= y => Some(a),
        _ => Some(b),
    }
}

/// Rejects a column of a recursive term that widens the type of the non-recursive term. `place` counts from 0.
///
/// # Errors
/// 42804.
pub(crate) fn check_recursive(name: &str, place: usize, first: Type, next: Type) -> Result<()> {
    let together = common(first, next);
    if together == Some(first) {
        return Ok(());
    }
    let message = match together {
        None => format!("UNION types {} and {} cannot be matched", type_name(first), type_name(next)),
        Some(together) => format!(
            "recursive query \"{name}\" column {} has type {} in non-recursive term but type {} overall",
            place + 1,
            type_name(first),
            type_name(together)
        ),
    };
    let error = SqlError::new(state::DATATYPE_MISMATCH, message);
    Err(match together {
        None => error,
        Some(_) => error.hint("Cast the output of the non-recursive term to the correct type."),
    })
}

/// PostgreSQL's bits for the fields of an interval.
const FIELD_BITS: [(Field, i64); 6] = [
    (Field::Year, 1 << 2),
    (Field::Month, 1 << 1),
    (Field::Day, 1 << 3),
    (Field::Hour, 1 << 10),
    (Field::Minute, 1 << 11),
    (Field::Second, 1 << 12),
];
/// All fields, and all digits, of an interval.
const ALL_FIELDS: i64 = 0x7fff;
const ALL_DIGITS: i64 = 0xffff;

/// A precision as the modifier of a type in PostgreSQL's catalogs.
pub(crate) fn modifier_of(ty: Type, precision: Precision) -> i64 {
    let digits = precision.digits.map(i64::from);
    if ty != Type::INTERVAL {
        return digits.unwrap_or(-1);
    }
    let fields = precision.fields.map_or(ALL_FIELDS, |(greatest, least)| {
        let within = FIELD_BITS.iter().filter(|(field, _)| greatest <= *field && *field <= least);
        within.map(|(_, bit)| bit).sum()
    });
    fields << 16 | digits.unwrap_or(ALL_DIGITS)
}

/// The precision in a modifier of an interval.
pub(crate) fn interval_precision(modifier: i64) -> Precision {
    let (fields, digits) = (modifier >> 16 & ALL_FIELDS, modifier & ALL_DIGITS);
    let mut within = FIELD_BITS.iter().filter(|(_, bit)| fields & bit != 0).map(|(field, _)| *field);
    let greatest = within.next().filter(|_| fields != ALL_FIELDS);
    let fields = greatest.map(|greatest| (greatest, within.next_back().unwrap_or(greatest)));
    Precision { digits: u8::try_from(digits).ok(), fields }
}

/// The fields of an interval type: `year to month`.
pub(crate) fn shown_fields((greatest, least): (Field, Field)) -> String {
    let name = |field: Field| format!("{field:?}").to_lowercase();
    if greatest == least { name(least) } else { format!("{} to {}", name(greatest), name(least)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modifiers_are_those_of_postgresql() {
        let of = |digits, fields| modifier_of(Type::INTERVAL, Precision { digits, fields });
        for (modifier, digits, fields) in [
            (2_147_418_115, Some(3), None),
            (458_751, None, Some((Field::Year, Field::Month))),
            (268_435_459, Some(3), Some((Field::Second, Field::Second))),
            (470_286_338, Some(2), Some((Field::Day, Field::Second))),
        ] {
            assert_eq!(of(digits, fields), modifier);
            assert_eq!(interval_precision(modifier), Precision { digits, fields });
        }
        assert_eq!(modifier_of(Type::TIMESTAMP, Precision::digits(3)), 3);
    }
}
