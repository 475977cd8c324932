//! Casts of values between types.
//!
//! Three strengths, as in PostgreSQL: implicit (numbers widen, dates become timestamps), assignment (numbers
//! narrow, every type becomes text), explicit (every cast with a meaning). The binder decides which one is
//! allowed; this module performs the cast.

use ropewalk::tables::{Array, Interval, Jsonb, Numeric, Scalar, Type, Value};

use crate::error::{Result, SqlError, state};
use crate::types::datetime::DAY;
use crate::types::names::{common, is_integer, rank, same, type_name};
use crate::types::text_format;
use crate::types::zone::Zone;

/// Strength of a cast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Strength {
    Implicit,
    Assignment,
    Explicit,
}

/// True when values of type `from` may become `to`.
pub(crate) fn allowed(from: Type, to: Type, strength: Strength) -> bool {
    if same(from, to) || common(from, to) == Some(to) {
        return true;
    }
    let (from_scalar, to_scalar) = match (from, to) {
        (Type::Scalar(from), Type::Scalar(to)) => (from, to),
        (Type::Array(a), Type::Array(b)) => return allowed(Type::Scalar(a), Type::Scalar(b), strength),
        (Type::Array(_), Type::TEXT) => return strength >= Strength::Assignment,
        (Type::TEXT, Type::Array(_)) => return strength == Strength::Explicit,
        _ => return false,
    };
    match strength {
        // Functions over json also take jsonb.
        _ if (from_scalar, to_scalar) == (Scalar::Jsonb, Scalar::Json) => true,
        _ if (from_scalar, to_scalar) == (Scalar::Time, Scalar::Interval) => true,
        _ if (from_scalar, to_scalar) == (Scalar::Cidr, Scalar::Inet) => true,
        Strength::Implicit => false,
        Strength::Assignment => {
            rank(from).is_some() && rank(to).is_some()
                || to == Type::TEXT
                || (from_scalar, to_scalar) == (Scalar::Json, Scalar::Jsonb)
                || matches!(
                    (from_scalar, to_scalar),
                    (Scalar::Timestamptz, Scalar::Timestamp | Scalar::Date | Scalar::Time)
                        | (Scalar::Timestamp, Scalar::Date | Scalar::Time)
                        | (Scalar::Interval, Scalar::Time)
                        | (Scalar::Inet, Scalar::Cidr)
                )
        }
        Strength::Explicit => {
            allowed(from, to, Strength::Assignment)
                || from == Type::TEXT
                || from == Type::JSONB && (rank(to).is_some() || to == Type::BOOL)
                || matches!(
                    (from_scalar, to_scalar),
                    (Scalar::Bool, Scalar::Int4) | (Scalar::Int4, Scalar::Bool)
                )
        }
    }
}

fn overflow(ty: Type) -> SqlError {
    SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, format!("{} out of range", type_name(ty)))
}

fn impossible(found: Type, ty: Type) -> SqlError {
    let message = format!("cannot cast type {} to {}", type_name(found), type_name(ty));
    SqlError::new(state::CANNOT_COERCE, message)
}

/// The nearest double of a number.
pub(crate) fn to_f64(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Float4(v) => Some(f64::from(*v)),
        Value::Float8(v) => Some(*v),
        Value::Numeric(v) => Some(v.to_f64()),
        other => other.as_integer().map(|v| v as f64),
    }
}

/// The exact decimal of an integer or numeric.
pub(crate) fn to_numeric(value: &Value<'_>) -> Option<Numeric> {
    match value {
        Value::Numeric(v) => Some(*v),
        other => other.as_integer().map(Numeric::from),
    }
}

fn to_integer(value: &Value<'_>, ty: Type) -> Result<i64> {
    let rounded = match value {
        Value::Float4(_) | Value::Float8(_) => {
            let float = to_f64(value).unwrap_or(f64::NAN).round_ties_even();
            // The bounds of i64 as doubles: the lower one is exact, the upper one is just too great.
            (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0)
                .contains(&float)
                .then_some(float as i64)
        }
        Value::Numeric(v) => v.to_i128().and_then(|v| i64::try_from(v).ok()),
        other => other.as_integer(),
    };
    rounded.ok_or_else(|| overflow(ty))
}

/// Casts a value; the binder has checked that the cast exists. Not for timestamps: see [`cast_in`].
pub(crate) fn cast(value: Value<'_>, ty: Type) -> Result<Value<'_>> {
    cast_in(value, ty, &Zone::UTC)
}

/// Casts a value; conversions between instants and local times use `zone`.
pub(crate) fn cast_in<'v>(value: Value<'v>, ty: Type, zone: &Zone) -> Result<Value<'v>> {
    let Some(found) = value.value_type() else { return Ok(Value::Null) };
    if found == ty {
        return Ok(value);
    }
    if ty == Type::TEXT {
        return Ok(match value {
            // The cast to text writes the prefix of a single host, too.
            Value::Inet(v) => Value::text(format!("{}/{}", v.address(), v.bits())),
            Value::Json(text) | Value::Jsonb(text) => Value::Text(text),
            // The cast to text writes a word; a result column of type bool has a letter.
            Value::Bool(v) => Value::text(if v { "true" } else { "false" }),
            other => Value::text(text_format::to_text_in(&other, zone).unwrap_or_default()),
        });
    }
    if let Value::Text(text) = &value {
        return text_format::from_text_in(text, ty, zone);
    }
    let scalar = match (ty, value) {
        (Type::Array(element), Value::Array(array)) => return cast_array(&array, element, zone),
        (Type::Array(_), _) => return Err(impossible(found, ty)),
        (Type::Scalar(scalar), value) => (scalar, value),
    };
    Ok(match scalar {
        (Scalar::Json, Value::Jsonb(text)) => Value::Json(text),
        (Scalar::Jsonb, Value::Json(text)) => text_format::from_text(&text, ty)?,
        (_, Value::Jsonb(text)) => return cast_jsonb(&text, ty),
        (Scalar::Int4, Value::Bool(v)) => Value::Int4(i32::from(v)),
        (Scalar::Bool, Value::Int4(v)) => Value::Bool(v != 0),
        (_, value) if is_integer(ty) && rank(found).is_some() => {
            Value::Int8(to_integer(&value, ty)?).assign(ty).map_err(|_| overflow(ty))?
        }
        (Scalar::Numeric(_), Value::Float4(v)) => {
            let number = Numeric::from_f64(f64::from(v)).filter(|_| v.is_finite());
            // The digits of the real, not of the double that it widens to.
            let number =
                number.and_then(|_| text_format::to_text(&Value::Float4(v))?.parse::<Numeric>().ok());
            Value::Numeric(number.ok_or_else(|| overflow(ty))?).assign(ty).map_err(|_| overflow(ty))?
        }
        (Scalar::Numeric(_), Value::Float8(v)) if v.is_nan() => Value::Numeric(Numeric::NAN),
        (Scalar::Numeric(_), Value::Float8(v)) => {
            let number = Numeric::from_f64(v).ok_or_else(|| overflow(ty))?;
            Value::Numeric(number).assign(ty).map_err(|_| overflow(ty))?
        }
        (Scalar::Numeric(_) | Scalar::Float4 | Scalar::Float8, value) if rank(found).is_some() => {
            value.assign(ty).map_err(|_| overflow(ty))?
        }
        (Scalar::Timestamp, Value::Date(days)) => Value::Timestamp(midnight(days)?),
        (Scalar::Timestamptz, Value::Date(days)) => Value::Timestamptz(zone.moment(midnight(days)?)),
        (Scalar::Timestamptz, Value::Timestamp(micros)) => Value::Timestamptz(zone.moment(micros)),
        (_, Value::Timestamptz(micros)) => return cast(Value::Timestamp(zone.local(micros)), ty),
        (Scalar::Date, Value::Timestamp(micros)) => Value::Date(match micros {
            i64::MAX => i32::MAX,
            i64::MIN => i32::MIN,
            micros => i32::try_from(micros.div_euclid(DAY)).map_err(|_| overflow(ty))?,
        }),
        (Scalar::Inet, Value::Cidr(network)) => Value::Inet(network),
        (Scalar::Cidr, Value::Inet(inet)) => Value::Cidr(inet.network()),
        (Scalar::Interval, Value::Time(micros)) => Value::Interval(Interval { months: 0, days: 0, micros }),
        // The time of day after so many hours.
        (Scalar::Time, Value::Interval(interval)) => Value::Time(interval.micros.rem_euclid(DAY)),
        (Scalar::Time, Value::Timestamp(micros)) => {
            if matches!(micros, i64::MAX | i64::MIN) {
                Value::Null
            } else {
                Value::Time(micros.rem_euclid(DAY))
            }
        }
        _ => return Err(impossible(found, ty)),
    })
}

fn midnight(days: i32) -> Result<i64> {
    match days {
        i32::MAX => Ok(i64::MAX),
        i32::MIN => Ok(i64::MIN),
        days => i64::from(days).checked_mul(DAY).ok_or_else(|| overflow(Type::TIMESTAMP)),
    }
}

fn cast_array(array: &Array<'_>, element: Scalar, zone: &Zone) -> Result<Value<'static>> {
    let target = Type::Scalar(element);
    let mut items = Vec::new();
    for item in array.iter() {
        let item = item.map_err(|e| SqlError::new(state::DATA_CORRUPTED, e.to_string()))?;
        items.push(cast_in(item, target, zone)?.into_owned());
    }
    Array::new(element, items).map(Value::Array).map_err(|_| overflow(target))
}

/// A scalar of jsonb as a value of another type.
///
/// # Errors
/// 22023: the value has another type.
fn cast_jsonb(text: &str, ty: Type) -> Result<Value<'static>> {
    let refused = |kind: &str| {
        let message = format!("cannot cast jsonb {kind} to type {}", type_name(ty));
        SqlError::new(state::INVALID_PARAMETER_VALUE, message)
    };
    let damaged = |_| SqlError::new(state::DATA_CORRUPTED, "a jsonb that is no JSON");
    match Jsonb::parse(text).map_err(damaged)? {
        Jsonb::Bool(truth) if ty == Type::BOOL => Ok(Value::Bool(truth)),
        Jsonb::Number(digits) if ty != Type::BOOL => {
            let number = text_format::from_text(&digits, Type::NUMERIC)?;
            Ok(cast(number, ty)?.into_owned())
        }
        Jsonb::Null => Err(refused("null")),
        Jsonb::Bool(_) => Err(refused("boolean")),
        Jsonb::Number(_) => Err(refused("numeric")),
        Jsonb::String(_) => Err(refused("string")),
        Jsonb::Array(_) => Err(refused("array")),
        Jsonb::Object(_) => Err(refused("object")),
    }
}
