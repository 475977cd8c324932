//! Conversions between types: `$convert` and its short forms.

use ropewalk_base::{from_hex, hex};

use super::arithmetic::fits_long;
use super::dates::{date_of, iso_text, parse_iso};
use super::{Function, arg, fixed, named};
use crate::lang::error::{LangResult, refuse};
use crate::lang::value::decimal::{Decimal, Rounding};
use crate::lang::value::number;
use crate::lang::value::val::{self, Answer, Val};
use crate::lang::value::{Owned, TYPE_NAMES, Value, tag};

pub(super) const TABLE: &[Function] = &[
    fixed("$type", 1, |args| val::text(arg(args, 0).type_name())),
    fixed("$toBool", 1, |args| short(args, tag::BOOL)),
    fixed("$toInt", 1, |args| short(args, tag::INT32)),
    fixed("$toLong", 1, |args| short(args, tag::INT64)),
    fixed("$toDouble", 1, |args| short(args, tag::DOUBLE)),
    fixed("$toDecimal", 1, |args| short(args, tag::DECIMAL)),
    fixed("$toString", 1, |args| short(args, tag::STRING)),
    fixed("$toDate", 1, |args| short(args, tag::DATE)),
    fixed("$toObjectId", 1, |args| short(args, tag::OBJECT_ID)),
    named("$convert", &["input", "to", "onError", "onNull"], 2, convert),
];

fn short(args: &[Val<'_>], to: u8) -> Answer {
    if arg(args, 0).is_nullish() {
        return Ok(Val::NULL);
    }
    Ok(Val::Own(to_type(arg(args, 0).or_null(), to)?))
}

fn convert(args: &[Val<'_>]) -> Answer {
    let default = |at: usize| arg(args, at).clone().into_static();
    let to = match arg(args, 1).or_null() {
        Value::String(name) => TYPE_NAMES.iter().find(|(_, own)| *own == name).map(|(tag, _)| *tag),
        value if value.is_nullish() => return Ok(Val::NULL),
        value => value
            .as_integer()
            .and_then(|n| TYPE_NAMES.iter().find(|(tag, _)| i64::from(*tag) == n))
            .map(|(tag, _)| *tag),
    };
    let Some(to) = to else {
        refuse!(BadValue, "Unknown type name or number in $convert: {}", arg(args, 1).or_null());
    };
    if arg(args, 0).is_nullish() {
        return Ok(if let Val::Missing = arg(args, 3) { Val::NULL } else { default(3) });
    }
    match to_type(arg(args, 0).or_null(), to) {
        Ok(value) => Ok(Val::Own(value)),
        Err(_) if !matches!(arg(args, 2), Val::Missing) => Ok(default(2)),
        Err(error) => Err(error),
    }
}

/// A number as text, in JSON format.
pub(super) fn number_text(value: Value<'_>) -> String {
    match value {
        Value::Int32(n) => n.to_string(),
        Value::Int64(n) => n.to_string(),
        Value::Double(d) if d.is_nan() => "NaN".to_owned(),
        Value::Double(d) if d.is_infinite() => if d < 0.0 { "-Infinity" } else { "Infinity" }.to_owned(),
        // Beyond this range plain digits would be mostly zeros.
        Value::Double(d) if d != 0.0 && !(1e-5..1e16).contains(&d.abs()) => {
            let text = format!("{d:e}");
            if text.contains("e-") { text } else { text.replacen('e', "e+", 1) }
        }
        Value::Double(d) => d.to_string(),
        Value::Decimal(d) => d.to_string(),
        other => other.to_string(),
    }
}

fn to_type(value: Value<'_>, to: u8) -> LangResult<Owned> {
    if value.tag() == to {
        return Ok(value.into());
    }
    let converted = match to {
        tag::BOOL => Some(Value::Bool(value.is_truthy())),
        tag::INT32 => to_long(value)?.and_then(|n| i32::try_from(n).ok()).map(Value::Int32),
        tag::INT64 => match value {
            Value::DateTime(ms) => Some(Value::Int64(ms)),
            value => to_long(value)?.map(Value::Int64),
        },
        tag::DOUBLE => to_double(value)?.map(Value::Double),
        tag::DECIMAL => to_decimal(value)?.map(Value::Decimal),
        tag::STRING => return to_text(value),
        tag::DATE => to_date(value)?.map(Value::DateTime),
        tag::OBJECT_ID => Some(Value::ObjectId(to_object_id(value)?)),
        _ => unsupported(value, to)?,
    };
    match converted {
        Some(value) => Ok(value.into()),
        None => refuse!(
            ConversionFailure,
            "Conversion of {value} to {} would overflow",
            crate::lang::value::type_name(to)
        ),
    }
}

fn unsupported<T>(value: Value<'_>, to: u8) -> LangResult<T> {
    refuse!(
        ConversionFailure,
        "Unsupported conversion from {} to {} in $convert with no onError value",
        value.type_name(),
        crate::lang::value::type_name(to)
    )
}

fn parsed<T: std::str::FromStr>(text: &str, what: &str) -> LangResult<T> {
    // Rust's parsers accept a leading plus, MongoDB's do not accept spaces either.
    match text.parse() {
        Ok(number) => Ok(number),
        Err(_) => refuse!(
            ConversionFailure,
            "Failed to parse number '{text}' in $convert with no onError value: it is no {what}"
        ),
    }
}

/// Converts to an integer; fractions are cut off. `None`: it does not fit.
fn to_long(value: Value<'_>) -> LangResult<Option<i64>> {
    Ok(match value {
        Value::Bool(b) => Some(b.into()),
        Value::Int32(n) => Some(n.into()),
        Value::Int64(n) => Some(n),
        Value::Double(d) => fits_long(d.trunc()),
        Value::Decimal(d) => d.quantize(0, Rounding::Truncate).truncated(),
        Value::String(text) => Some(parsed(text, "integer")?),
        other => unsupported(other, tag::INT64)?,
    })
}

fn to_double(value: Value<'_>) -> LangResult<Option<f64>> {
    Ok(match value {
        Value::Bool(b) => Some(f64::from(u8::from(b))),
        Value::DateTime(ms) => Some(ms as f64),
        Value::String(text) => Some(parsed(text, "double")?),
        Value::Decimal(d) => {
            let double = d.to_double();
            let overflowed =
                double.is_infinite() && !matches!(d.to_string().as_str(), "Infinity" | "-Infinity");
            if overflowed { None } else { Some(double) }
        }
        value if value.is_number() => value.as_double(),
        other => unsupported(other, tag::DOUBLE)?,
    })
}

fn to_decimal(value: Value<'_>) -> LangResult<Option<Decimal>> {
    Ok(match value {
        Value::Bool(b) => Some(Decimal::from_i64(b.into())),
        Value::DateTime(ms) => Some(Decimal::from_i64(ms)),
        Value::String(text) => match Decimal::parse(text) {
            Some(decimal) => Some(decimal),
            None => refuse!(
                ConversionFailure,
                "Failed to parse number '{text}' in $convert with no onError value"
            ),
        },
        value if value.is_number() => number::to_decimal(value),
        other => unsupported(other, tag::DECIMAL)?,
    })
}

fn to_text(value: Value<'_>) -> LangResult<Owned> {
    let text = match value {
        Value::Bool(b) => b.to_string(),
        Value::ObjectId(id) => hex(&id),
        Value::DateTime(ms) => iso_text(ms),
        Value::Symbol(text) => text.to_owned(),
        value if value.is_number() => number_text(value),
        other => unsupported(other, tag::STRING)?,
    };
    Ok(Value::String(&text).into())
}

fn to_date(value: Value<'_>) -> LangResult<Option<i64>> {
    Ok(match value {
        Value::Int64(ms) => Some(ms),
        Value::Double(d) => fits_long(d.trunc()),
        Value::Decimal(d) => d.truncated(),
        Value::String(text) => match parse_iso(text) {
            Some(ms) => Some(ms),
            None => refuse!(ConversionFailure, "Error parsing date string '{text}'"),
        },
        value => match date_of(value) {
            Some(ms) => Some(ms),
            None => unsupported(value, tag::DATE)?,
        },
    })
}

fn to_object_id(value: Value<'_>) -> LangResult<[u8; 12]> {
    let Value::String(text) = value else { return unsupported(value, tag::OBJECT_ID) };
    match from_hex(text).and_then(|id| id.try_into().ok()) {
        Some(id) => Ok(id),
        None => refuse!(
            ConversionFailure,
            "Failed to parse objectId '{text}' in $convert with no onError value: 24 hex digits are one"
        ),
    }
}
