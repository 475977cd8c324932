//! Values as text, in PostgreSQL's format.

use ropewalk::hooks::{from_hex, hex};
use ropewalk::tables::{Array, Inet, Numeric, Scalar, Type, Value};

use crate::error::{Result, SqlError, state};
use crate::types::datetime::{self, Wrong};
use crate::types::interval;
use crate::types::names::type_name;
use crate::types::zone::Zone;

/// Appends the shortest digits that identify the float, plain or with an exponent.
fn push_float(shortest: &str, plain_digits: i32, out: &mut String) {
    let Some((mantissa, exponent)) = shortest.split_once('e') else {
        *out += shortest;
        return;
    };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |m| ("-", m));
    let digits = mantissa.replace('.', "");
    *out += sign;
    if (-4..plain_digits).contains(&exponent) {
        if exponent < 0 {
            *out += "0.";
            *out += &"0".repeat(usize::try_from(-exponent - 1).unwrap_or_default());
            *out += &digits;
        } else {
            let point = usize::try_from(exponent + 1).unwrap_or_default();
            let whole: String = digits.chars().chain(std::iter::repeat('0')).take(point).collect();
            *out += &whole;
            if let Some(fraction) = digits.get(point..).filter(|f| !f.is_empty()) {
                out.push('.');
                *out += fraction;
            }
        }
    } else {
        *out += mantissa;
        *out += &format!("e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs());
    }
}

fn push_f64(value: f64, out: &mut String) {
    match value {
        v if v.is_nan() => *out += "NaN",
        f64::INFINITY => *out += "Infinity",
        f64::NEG_INFINITY => *out += "-Infinity",
        v => push_float(&format!("{v:e}"), 15, out),
    }
}

fn push_f32(value: f32, out: &mut String) {
    match value {
        v if v.is_nan() => *out += "NaN",
        f32::INFINITY => *out += "Infinity",
        f32::NEG_INFINITY => *out += "-Infinity",
        v => push_float(&format!("{v:e}"), 6, out),
    }
}

/// Appends a value's text, with instants in the local time of `zone`; nothing for NULL, which has no text.
pub(crate) fn push(value: &Value<'_>, zone: &Zone, out: &mut String) {
    match value {
        Value::Null => {}
        Value::Bool(v) => out.push(if *v { 't' } else { 'f' }),
        Value::Int2(v) => *out += &v.to_string(),
        Value::Int4(v) => *out += &v.to_string(),
        Value::Int8(v) => *out += &v.to_string(),
        Value::Float4(v) => push_f32(*v, out),
        Value::Float8(v) => push_f64(*v, out),
        Value::Numeric(v) => *out += &v.to_string(),
        Value::Text(v) | Value::Json(v) | Value::Jsonb(v) => *out += v,
        Value::Bytea(v) => {
            *out += "\\x";
            *out += &hex(v);
        }
        Value::Date(v) => *out += &datetime::show_date(*v),
        Value::Time(v) => *out += &datetime::show_time(*v),
        Value::Timestamp(v) => *out += &datetime::show_timestamp(*v, None),
        Value::Timestamptz(v) => *out += &datetime::show_timestamp(*v, Some(zone)),
        Value::Uuid(v) => *out += &uuid::Uuid::from_bytes(*v).to_string(),
        Value::Interval(v) => *out += &interval::show(*v),
        Value::Inet(_) | Value::Cidr(_) => *out += &value.to_string(),
        Value::Enum(v) => *out += v.label(),
        Value::Array(array) => push_array(array, zone, out),
    }
}

fn push_array(array: &Array<'_>, zone: &Zone, out: &mut String) {
    out.push('{');
    for (place, item) in array.iter().enumerate() {
        if place > 0 {
            out.push(',');
        }
        let Ok(item) = item else { break };
        if item.is_null() {
            *out += "NULL";
            continue;
        }
        let mut one = String::new();
        push(&item, zone, &mut one);
        let plain = !one.is_empty()
            && !one.eq_ignore_ascii_case("null")
            && !one.chars().any(|c| c.is_whitespace() || "{},\"\\".contains(c));
        if plain {
            *out += &one;
        } else {
            out.push('"');
            for c in one.chars() {
                if matches!(c, '"' | '\\') {
                    out.push('\\');
                }
                out.push(c);
            }
            out.push('"');
        }
    }
    out.push('}');
}

/// A value's text in the protocol's text format; `None` for NULL. Bools are `t` and `f`, floats the shortest
/// text that reads back the same, times ISO 8601 in UTC, bytes hexadecimal, arrays in braces.
pub fn to_text(value: &Value<'_>) -> Option<String> {
    to_text_in(value, &Zone::UTC)
}

/// Like [`to_text`], with instants in the local time of `zone`, followed by its offset.
pub fn to_text_in(value: &Value<'_>, zone: &Zone) -> Option<String> {
    if value.is_null() {
        return None;
    }
    let mut out = String::new();
    push(value, zone, &mut out);
    Some(out)
}

fn invalid(text: &str, ty: Type) -> SqlError {
    let cut: String = text.chars().take(64).collect();
    let message = format!("invalid input syntax for type {}: \"{cut}\"", type_name(ty));
    SqlError::new(state::INVALID_TEXT_REPRESENTATION, message)
}

fn out_of_range(text: &str, ty: Type) -> SqlError {
    let cut: String = text.chars().take(64).collect();
    let message = format!("value \"{cut}\" is out of range for type {}", type_name(ty));
    SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, message)
}

fn wrong_time(text: &str, ty: Type) -> impl FnOnce(Wrong) -> SqlError {
    let cut: String = text.chars().take(64).collect();
    move |wrong| match wrong {
        Wrong::Form => {
            let message = format!("invalid input syntax for type {}: \"{cut}\"", type_name(ty));
            SqlError::new(state::INVALID_DATETIME_FORMAT, message)
        }
        Wrong::Range => SqlError::new(
            state::DATETIME_FIELD_OVERFLOW,
            format!("date/time field value out of range: \"{cut}\""),
        ),
    }
}

/// Reads text as a value of type `ty`, in the format of PostgreSQL's literals and text parameters. A label of
/// an enum type stays text: prepared statements and tables resolve it.
///
/// # Errors
/// 22P02, 22007, 22008 or 22003.
pub fn from_text(text: &str, ty: Type) -> Result<Value<'static>> {
    from_text_in(text, ty, &Zone::UTC)
}

/// Like [`from_text`]; a timestamptz without a zone is in the local time of `zone`.
///
/// # Errors
/// Those of [`from_text`].
pub fn from_text_in(text: &str, ty: Type, zone: &Zone) -> Result<Value<'static>> {
    let scalar = match ty {
        Type::Scalar(scalar) => scalar,
        Type::Array(element) => return array_from_text(text, element, zone),
    };
    // Fast path for the usual form of numbers.
    match scalar {
        Scalar::Int4 => {
            if let Ok(number) = text.parse() {
                return Ok(Value::Int4(number));
            }
        }
        Scalar::Int8 => {
            if let Ok(number) = text.parse() {
                return Ok(Value::Int8(number));
            }
        }
        _ => {}
    }
    let trimmed = text.trim();
    Ok(match scalar {
        Scalar::Bool => Value::Bool(bool_from_text(trimmed).ok_or_else(|| invalid(text, ty))?),
        Scalar::Int2 | Scalar::Int4 | Scalar::Int8 => {
            let digits = trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed);
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return Err(invalid(text, ty));
            }
            let wide: i64 = trimmed.parse().map_err(|_| out_of_range(text, ty))?;
            Value::Int8(wide).assign(ty).map_err(|_| out_of_range(text, ty))?
        }
        Scalar::Float4 => Value::Float4(float_from_text(trimmed, |v: f32| v.is_finite(), text, ty)?),
        Scalar::Float8 => Value::Float8(float_from_text(trimmed, |v: f64| v.is_finite(), text, ty)?),
        Scalar::Numeric(_) => {
            let number: Numeric = trimmed.parse().map_err(|_| {
                let digits = trimmed.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
                if digits && trimmed.bytes().any(|b| b.is_ascii_digit()) {
                    out_of_range(text, ty).hint("numerics have at most 38 digits")
                } else {
                    invalid(text, ty)
                }
            })?;
            let overflow =
                |_| SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow".to_owned());
            Value::Numeric(number).assign(ty).map_err(overflow)?
        }
        // The caller resolves enum labels.
        Scalar::Text | Scalar::Enum(_) => Value::text(text.to_owned()),
        Scalar::Bytea => Value::bytea(bytes_from_text(text).ok_or_else(|| invalid(text, ty))?),
        Scalar::Date => Value::Date(datetime::parse_date(text).map_err(wrong_time(text, ty))?),
        Scalar::Time => Value::Time(datetime::parse_time(text).map_err(wrong_time(text, ty))?),
        // A zone in a type without one is ignored, as in PostgreSQL.
        Scalar::Timestamp => {
            Value::Timestamp(datetime::parse_timestamp(text).map_err(wrong_time(text, ty))?.0)
        }
        Scalar::Timestamptz => {
            let (local, named) = datetime::parse_timestamp(text).map_err(wrong_time(text, ty))?;
            let moment = match named.filter(|_| !matches!(local, i64::MAX | i64::MIN)) {
                Some(named) => named.moment(local),
                None => Some(zone.moment(local)),
            };
            Value::Timestamptz(moment.ok_or_else(|| wrong_time(text, ty)(Wrong::Range))?)
        }
        Scalar::Interval => Value::Interval(interval::parse(trimmed, None).ok_or_else(|| {
            let cut: String = text.chars().take(64).collect();
            let message = format!("invalid input syntax for type interval: \"{cut}\"");
            SqlError::new(state::INVALID_DATETIME_FORMAT, message)
        })?),
        Scalar::Inet => Value::Inet(Inet::parse(trimmed).ok_or_else(|| invalid(text, ty))?),
        Scalar::Cidr => Value::Cidr(network(trimmed, text)?),
        Scalar::Uuid => {
            let id = uuid::Uuid::try_parse(trimmed).map_err(|_| invalid(text, ty))?;
            Value::Uuid(id.into_bytes())
        }
        Scalar::Json | Scalar::Jsonb => {
            Value::text(text.to_owned()).assign(ty).map_err(|_| invalid(text, ty))?
        }
    })
}

/// The network that a text is.
fn network(trimmed: &str, text: &str) -> Result<Inet> {
    let network = Inet::parse_network(trimmed).ok_or_else(|| invalid(text, Type::CIDR))?;
    if !network.is_network() {
        let message = format!("invalid cidr value: \"{text}\"");
        return Err(SqlError::new(state::INVALID_TEXT_REPRESENTATION, message)
            .detail("Value has bits set to right of mask."));
    }
    Ok(network)
}

fn bool_from_text(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "t" | "tr" | "tru" | "true" | "y" | "ye" | "yes" | "on" | "1" => Some(true),
        "f" | "fa" | "fal" | "fals" | "false" | "n" | "no" | "of" | "off" | "0" => Some(false),
        _ => None,
    }
}

fn float_from_text<T: std::str::FromStr + Copy>(
    trimmed: &str,
    finite: impl Fn(T) -> bool,
    text: &str,
    ty: Type,
) -> Result<T> {
    let value: T = trimmed.parse().map_err(|_| invalid(text, ty))?;
    let says_digits = trimmed.bytes().any(|b| b.is_ascii_digit());
    if says_digits && !finite(value) {
        return Err(out_of_range(text, ty));
    }
    Ok(value)
}

fn bytes_from_text(text: &str) -> Option<Vec<u8>> {
    if let Some(digits) = text.strip_prefix("\\x") {
        return from_hex(&digits.split_ascii_whitespace().collect::<String>());
    }
    // The older format: a backslash and three octal digits for a byte, two backslashes for one.
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let first = bytes.next()?;
        if first == b'\\' {
            out.push(b'\\');
            continue;
        }
        let octal = |b: u8| (b'0'..=b'7').contains(&b).then(|| u32::from(b - b'0'));
        let value = octal(first)? * 64 + octal(bytes.next()?)? * 8 + octal(bytes.next()?)?;
        out.push(u8::try_from(value).ok()?);
    }
    Some(out)
}

fn array_from_text(text: &str, element: Scalar, zone: &Zone) -> Result<Value<'static>> {
    let ty = Type::Array(element);
    let malformed = || {
        SqlError::new(
            state::INVALID_TEXT_REPRESENTATION,
            format!("malformed array literal: \"{}\"", text.chars().take(64).collect::<String>()),
        )
    };
    let inner = text.trim().strip_prefix('{').and_then(|t| t.strip_suffix('}')).ok_or_else(malformed)?;
    let mut items = Vec::new();
    let mut chars = inner.chars().peekable();
    while chars.peek().is_some() {
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        let mut one = String::new();
        let quoted = chars.next_if_eq(&'"').is_some();
        if quoted {
            loop {
                match chars.next().ok_or_else(malformed)? {
                    '"' => break,
                    '\\' => one.push(chars.next().ok_or_else(malformed)?),
                    c => one.push(c),
                }
            }
            while chars.next_if(|c| c.is_whitespace()).is_some() {}
        } else {
            while let Some(c) = chars.next_if(|c| *c != ',') {
                match c {
                    '{' | '}' => {
                        return Err(SqlError::unsupported("an array of arrays", "use one dimension"));
                    }
                    '"' => return Err(malformed()),
                    '\\' => one.push(chars.next().ok_or_else(malformed)?),
                    c => one.push(c),
                }
            }
            one.truncate(one.trim_end().len());
            if one.is_empty() {
                return Err(malformed());
            }
        }
        items.push(if !quoted && one.eq_ignore_ascii_case("null") {
            Value::Null
        } else {
            from_text_in(&one, Type::Scalar(element), zone)?
        });
        match chars.next() {
            Some(',') if chars.peek().is_some() => {}
            None => break,
            _ => return Err(malformed()),
        }
    }
    let element = if matches!(element, Scalar::Enum(_)) { Scalar::Text } else { element };
    Array::new(element, items).map(Value::Array).map_err(|_| invalid(text, ty))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats() {
        for (value, text) in [
            (1.0, "1"),
            (-0.5, "-0.5"),
            (1e14, "100000000000000"),
            (1e15, "1e+15"),
            (123_456.789, "123456.789"),
            (0.0001, "0.0001"),
            (0.000_012_5, "1.25e-05"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "Infinity"),
        ] {
            assert_eq!(to_text(&Value::Float8(value)).unwrap(), text);
        }
        assert_eq!(to_text(&Value::Float4(1e6)).unwrap(), "1e+06");
        assert_eq!(to_text(&Value::Float4(0.1)).unwrap(), "0.1");
    }

    #[test]
    fn round_trips() {
        for (ty, text) in [
            (Type::BOOL, "t"),
            (Type::INT2, "-5"),
            (Type::NUMERIC, "1.50"),
            (Type::BYTEA, "\\x00ff"),
            (Type::UUID, "00112233-4455-6677-8899-aabbccddeeff"),
            (Type::TIMESTAMPTZ, "2024-02-29 12:00:00+00"),
            (Type::INT4.array(), "{1,NULL,3}"),
            (Type::TEXT.array(), "{a,\"b c\",\"\",\"null\",\"q\\\"\\\\\"}"),
            (Type::TEXT.array(), "{}"),
            (Type::JSON, "{\"a\": [1]}"),
        ] {
            assert_eq!(to_text(&from_text(text, ty).unwrap()).unwrap(), text, "{ty}");
        }
    }

    #[test]
    fn bad_text() {
        for (ty, text, code) in [
            (Type::INT4, "1x", "22P02"),
            (Type::INT2, "40000", "22003"),
            (Type::INT8, "99999999999999999999", "22003"),
            (Type::BOOL, "maybe", "22P02"),
            (Type::DATE, "2024-02-30", "22008"),
            (Type::DATE, "today or so", "22007"),
            (Type::JSON, "{", "22P02"),
            (Type::UUID, "1", "22P02"),
            (Type::INT4.array(), "{1,}", "22P02"),
            (Type::INT4.array(), "1", "22P02"),
            (Type::FLOAT8, "1e999", "22003"),
            (Type::BYTEA, "\\x0", "22P02"),
        ] {
            assert_eq!(from_text(text, ty).unwrap_err().state.0, code, "{ty} {text}");
        }
    }
}
