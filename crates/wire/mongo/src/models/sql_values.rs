//! Values of SQL from BSON, and back.
//!
//! | BSON parameter | SQL |
//! |---|---|
//! | number, boolean, decimal, string | its text, read by the type of the parameter |
//! | date | timestamptz, timestamp, date |
//! | ObjectId | its hexadecimal text |
//! | binary data | bytea; UUIDs also uuid |
//! | document, array | json; an array for a parameter of an array type: an array |

use ropewalk::documents::lang::extjson::{self, Form};
use ropewalk::documents::lang::{Decimal, Value as Bson, Writer};
use ropewalk::hooks::hex;
use ropewalk::tables::{Array, Scalar, Type, Value};
use ropewalk_sql::{Prepared, SqlError, from_text, state, to_text};
use ropewalk_wire::extjson_parser;
use uuid::Uuid;

/// Years 1 to 9999, milliseconds since 1970.
const DATES: std::ops::Range<i64> = -62_135_596_800_000..253_402_300_800_000;
const DAY_MS: i64 = 86_400_000;
/// Subtype of binary data that is a UUID.
const UUID: u8 = 4;

/// The values of a statement's parameters.
///
/// # Errors
/// The wrong number of values, or one that is not of its parameter's type.
pub(super) fn parameters(prepared: &Prepared, given: &[Bson<'_>]) -> Result<Vec<Value<'static>>, SqlError> {
    let types = prepared.parameters();
    if types.len() != given.len() {
        let message = format!("the statement takes {} parameters, {} were given", types.len(), given.len());
        return Err(SqlError::new(state::SYNTAX_ERROR, message));
    }
    given.iter().zip(types).map(|(value, ty)| parameter(*value, *ty)).collect()
}

/// The value of a parameter of this type.
///
/// # Errors
/// It is not of the type.
pub(super) fn parameter(value: Bson<'_>, ty: Type) -> Result<Value<'static>, SqlError> {
    Ok(match (value, ty) {
        (Bson::Null | Bson::Undefined, _) => Value::Null,
        (Bson::DateTime(ms), ty) => moment(ms, ty)?,
        (Bson::Binary(_, bytes), Type::Scalar(Scalar::Bytea)) => Value::bytea(bytes.to_vec()),
        (Bson::Array(values), Type::Array(element)) => {
            let ty = Type::Scalar(element);
            let values = values.values().map(|value| parameter(value, ty)).collect::<Result<Vec<_>, _>>()?;
            let array = Array::new(element, values);
            Value::Array(array.map_err(|error| SqlError::new(state::DATATYPE_MISMATCH, error.to_string()))?)
        }
        (value, ty) => from_text(&text(value)?, ty)?,
    })
}

/// A date by the type of its parameter.
fn moment(ms: i64, ty: Type) -> Result<Value<'static>, SqlError> {
    if !DATES.contains(&ms) {
        let message = format!("date/time field value out of range: {ms} milliseconds since 1970");
        return Err(SqlError::new(state::DATETIME_FIELD_OVERFLOW, message));
    }
    let moment = Value::Timestamptz(ms * 1_000);
    match ty {
        Type::Scalar(Scalar::Timestamptz) => Ok(moment),
        Type::Scalar(Scalar::Timestamp) => Ok(Value::Timestamp(ms * 1_000)),
        Type::Scalar(Scalar::Date) => Ok(Value::Date(ms.div_euclid(DAY_MS) as i32)),
        other => from_text(&to_text(&moment).unwrap_or_default(), other),
    }
}

/// The text that is read as the parameter's type.
fn text(value: Bson<'_>) -> Result<String, SqlError> {
    Ok(match value {
        Bson::String(text) | Bson::Symbol(text) => text.to_owned(),
        Bson::Bool(truth) => truth.to_string(),
        Bson::Int32(number) => number.to_string(),
        Bson::Int64(number) => number.to_string(),
        Bson::Double(number) => number.to_string(),
        Bson::Decimal(number) => number.to_string(),
        Bson::ObjectId(id) => hex(&id),
        Bson::Binary(UUID, bytes) if let Ok(id) = Uuid::from_slice(bytes) => id.to_string(),
        Bson::Document(_) | Bson::Array(_) => {
            let mut json = Vec::new();
            extjson::put_value(&mut json, value, Form::Relaxed);
            String::from_utf8_lossy(&json).into_owned()
        }
        other => {
            let message = format!("a parameter of the BSON type {} has no type in SQL", other.type_name());
            return Err(SqlError::new(state::DATATYPE_MISMATCH, message));
        }
    })
}

/// Appends a value of a row; elements of arrays have no name.
///
/// Values without a type in BSON are in PostgreSQL's text format.
pub(super) fn put(out: &mut Writer, name: &str, value: &Value<'_>) {
    let text = |out: &mut Writer| out.put(name, Bson::String(&to_text(value).unwrap_or_default()));
    match value {
        Value::Null => out.put(name, Bson::Null),
        Value::Bool(truth) => out.put(name, Bson::Bool(*truth)),
        Value::Int2(number) => out.put(name, Bson::Int32((*number).into())),
        Value::Int4(number) => out.put(name, Bson::Int32(*number)),
        Value::Int8(number) => out.put(name, Bson::Int64(*number)),
        Value::Float4(number) => out.put(name, Bson::Double((*number).into())),
        Value::Float8(number) => out.put(name, Bson::Double(*number)),
        Value::Numeric(number) => match decimal(&number.to_string()) {
            Some(number) => out.put(name, Bson::Decimal(number)),
            None => text(out),
        },
        Value::Text(value) => out.put(name, Bson::String(value)),
        Value::Bytea(bytes) => out.put(name, Bson::Binary(0, bytes)),
        Value::Uuid(id) => out.put(name, Bson::Binary(UUID, id)),
        // The least and the greatest number are the infinities.
        Value::Timestamptz(micros) if !matches!(*micros, i64::MIN | i64::MAX) => {
            out.put(name, Bson::DateTime(micros.div_euclid(1_000)));
        }
        Value::Json(json) | Value::Jsonb(json) => match extjson_parser::parse_value(json) {
            Ok(value) => out.put(name, value.value()),
            Err(_) => out.put(name, Bson::String(json)),
        },
        Value::Array(array) => {
            out.open_array(name);
            array.iter().flatten().for_each(|value| put(out, "", &value));
            out.close();
        }
        Value::Date(_)
        | Value::Time(_)
        | Value::Timestamp(_)
        | Value::Timestamptz(_)
        | Value::Interval(_)
        | Value::Inet(_)
        | Value::Cidr(_)
        | Value::Enum(_) => text(out),
    }
}

/// A numeric as decimal128, unless it has more digits than that.
fn decimal(text: &str) -> Option<Decimal> {
    /// Digits of a decimal128.
    const DIGITS: usize = 34;
    let digits = text.trim_start_matches(['-', '0', '.']).bytes().filter(u8::is_ascii_digit).count();
    if digits > DIGITS { None } else { Decimal::parse(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numerics_are_decimals_up_to_34_digits() {
        for text in ["0.00", "-12.50", "1234567890123456789012345678901234"] {
            assert_eq!(decimal(text).unwrap().to_string(), text);
        }
        assert!(decimal("0.12345678901234567890123456789012345").is_none());
    }

    #[test]
    fn dates_are_of_the_type_of_their_parameter() {
        let date = |ty| parameter(Bson::DateTime(86_399_999), ty).unwrap();
        assert_eq!(date(Type::TIMESTAMPTZ), Value::Timestamptz(86_399_999_000));
        assert_eq!(date(Type::TIMESTAMP), Value::Timestamp(86_399_999_000));
        assert_eq!(date(Type::DATE), Value::Date(0));
        assert_eq!(date(Type::TEXT), Value::text("1970-01-01 23:59:59.999+00"));
        assert_eq!(parameter(Bson::DateTime(i64::MAX), Type::DATE).unwrap_err().state.0, "22008");
    }
}
