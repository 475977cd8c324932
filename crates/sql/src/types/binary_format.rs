//! Values in PostgreSQL's binary format, as used by COPY BINARY and the extended protocol: big-endian
//! numbers, times since 2000-01-01, numerics in digits of 10,000, arrays with the number of their element
//! type.

use core::net::IpAddr;

use ropewalk::tables::{Array, Inet, Interval, Numeric, Scalar, Type, Value};

use crate::error::{Result, SqlError, state};
use crate::types::names::{oid, type_name};
use crate::types::text_format::from_text;

/// Days from 1970-01-01 to 2000-01-01.
const DAYS: i32 = 10_957;
/// The same in microseconds.
const MICROS: i64 = 946_684_800_000_000;
const NAN: u16 = 0xc000;
const NEGATIVE: u16 = 0x4000;

/// Version byte of a jsonb value, followed by its text.
const JSONB_VERSION: u8 = 1;

/// Appends a value that is not NULL; NULL appends nothing.
pub fn put_binary(value: &Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Null => {}
        Value::Bool(v) => out.push(u8::from(*v)),
        Value::Int2(v) => out.extend_from_slice(&v.to_be_bytes()),
        Value::Int4(v) => out.extend_from_slice(&v.to_be_bytes()),
        Value::Int8(v) => out.extend_from_slice(&v.to_be_bytes()),
        Value::Float4(v) => out.extend_from_slice(&v.to_be_bytes()),
        Value::Float8(v) => out.extend_from_slice(&v.to_be_bytes()),
        Value::Numeric(v) => put_numeric(*v, out),
        Value::Text(v) | Value::Json(v) => out.extend_from_slice(v.as_bytes()),
        Value::Jsonb(v) => {
            out.push(JSONB_VERSION);
            out.extend_from_slice(v.as_bytes());
        }
        Value::Bytea(v) => out.extend_from_slice(v),
        Value::Date(v) => {
            let moved = if matches!(*v, i32::MIN | i32::MAX) { *v } else { v.saturating_sub(DAYS) };
            out.extend_from_slice(&moved.to_be_bytes());
        }
        Value::Time(v) => out.extend_from_slice(&v.to_be_bytes()),
        Value::Timestamp(v) | Value::Timestamptz(v) => {
            let moved = if matches!(*v, i64::MIN | i64::MAX) { *v } else { v.saturating_sub(MICROS) };
            out.extend_from_slice(&moved.to_be_bytes());
        }
        Value::Uuid(v) => out.extend_from_slice(v),
        Value::Interval(v) => {
            out.extend_from_slice(&v.micros.to_be_bytes());
            out.extend_from_slice(&v.days.to_be_bytes());
            out.extend_from_slice(&v.months.to_be_bytes());
        }
        Value::Inet(v) => put_inet(*v, false, out),
        Value::Cidr(v) => put_inet(*v, true, out),
        Value::Enum(v) => out.extend_from_slice(v.label().as_bytes()),
        Value::Array(array) => put_array(array, out),
    }
}

/// Families of addresses in the binary format.
const INET_V4: u8 = 2;
const INET_V6: u8 = 3;

/// Appends an address in binary form: family, bits, whether it is a network, number of bytes, address.
pub fn put_inet(inet: Inet, is_network: bool, out: &mut Vec<u8>) {
    let mut put = |family: u8, octets: &[u8]| {
        out.extend_from_slice(&[family, inet.bits(), u8::from(is_network), octets.len() as u8]);
        out.extend_from_slice(octets);
    };
    match inet.address() {
        IpAddr::V4(v4) => put(INET_V4, &v4.octets()),
        IpAddr::V6(v6) => put(INET_V6, &v6.octets()),
    }
}

/// The address in the form that [`put_inet`] writes; `None` for other bytes.
pub fn read_inet(bytes: &[u8]) -> Option<Inet> {
    let ([family, bits, _, _], octets) = bytes.split_first_chunk::<4>()?;
    let address = match (*family, octets.len(), bytes.get(3)?) {
        (INET_V4, 4, 4) => IpAddr::from(<[u8; 4]>::try_from(octets).ok()?),
        (INET_V6, 16, 16) => IpAddr::from(<[u8; 16]>::try_from(octets).ok()?),
        _ => return None,
    };
    Inet::new(address, *bits)
}

fn put_numeric(number: Numeric, out: &mut Vec<u8>) {
    if number.is_nan() {
        for part in [0, 0, NAN, 0] {
            out.extend_from_slice(&part.to_be_bytes());
        }
        return;
    }
    let scale = usize::from(number.scale());
    let digits = number.mantissa().unsigned_abs().to_string();
    let digits = format!("{digits:0>width$}", width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    // Groups of four digits, counted from the decimal point in both directions.
    let whole = format!("{whole:0>width$}", width = whole.len().next_multiple_of(4));
    let fraction = format!("{fraction:0<width$}", width = fraction.len().next_multiple_of(4));
    let all: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
    let group = |four: &[u8]| four.iter().fold(0_u16, |sum, digit| sum * 10 + u16::from(digit - b'0'));
    let mut groups: Vec<u16> = all.chunks(4).map(group).collect();
    let mut weight = whole.len() as i16 / 4 - 1;
    let leading = groups.iter().take_while(|group| **group == 0).count();
    groups.drain(..leading);
    weight -= leading as i16;
    while groups.last() == Some(&0) {
        groups.pop();
    }
    if groups.is_empty() {
        weight = 0;
    }
    let sign = if number.mantissa() < 0 { NEGATIVE } else { 0 };
    out.extend_from_slice(&(groups.len() as u16).to_be_bytes());
    out.extend_from_slice(&weight.to_be_bytes());
    out.extend_from_slice(&sign.to_be_bytes());
    out.extend_from_slice(&u16::from(number.scale()).to_be_bytes());
    groups.iter().for_each(|group| out.extend_from_slice(&group.to_be_bytes()));
}

fn put_array(array: &Array<'_>, out: &mut Vec<u8>) {
    let items: Vec<Value<'_>> = array.iter().flatten().collect();
    let element = array.element();
    let dimensions = i32::from(!items.is_empty());
    let has_null = i32::from(items.iter().any(Value::is_null));
    out.extend_from_slice(&dimensions.to_be_bytes());
    out.extend_from_slice(&has_null.to_be_bytes());
    out.extend_from_slice(&oid(Type::Scalar(element)).to_be_bytes());
    if items.is_empty() {
        return;
    }
    out.extend_from_slice(&(items.len() as u32).to_be_bytes());
    out.extend_from_slice(&1_u32.to_be_bytes());
    items.iter().for_each(|item| put_sized(item, out));
}

/// Appends the length of a value and the value; -1 for NULL.
pub(crate) fn put_sized(value: &Value<'_>, out: &mut Vec<u8>) {
    if value.is_null() {
        out.extend_from_slice(&(-1_i32).to_be_bytes());
        return;
    }
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    put_binary(value, out);
    let length = ((out.len() - at - 4) as u32).to_be_bytes();
    if let Some(slot) = out.get_mut(at..at + 4) {
        slot.copy_from_slice(&length);
    }
}

fn malformed(ty: Type) -> SqlError {
    let message = format!("incorrect binary data format for type {}", type_name(ty));
    SqlError::new(state::INVALID_BINARY_REPRESENTATION, message)
}

/// Reads a value of type `ty`.
///
/// # Errors
/// 22P03; 22021 for text that is not UTF-8; the errors of the text format for values out of range.
pub fn from_binary(bytes: &[u8], ty: Type) -> Result<Value<'static>> {
    let scalar = match ty {
        Type::Scalar(scalar) => scalar,
        Type::Array(element) => return array(bytes, element),
    };
    let bad = |_| malformed(ty);
    let text = || std::str::from_utf8(bytes).map_err(|_| not_utf8());
    Ok(match scalar {
        Scalar::Bool => match bytes {
            [byte] => Value::Bool(*byte != 0),
            _ => return Err(malformed(ty)),
        },
        Scalar::Int2 => Value::Int2(i16::from_be_bytes(bytes.try_into().map_err(bad)?)),
        Scalar::Int4 => Value::Int4(i32::from_be_bytes(bytes.try_into().map_err(bad)?)),
        Scalar::Int8 => Value::Int8(i64::from_be_bytes(bytes.try_into().map_err(bad)?)),
        Scalar::Float4 => Value::Float4(f32::from_be_bytes(bytes.try_into().map_err(bad)?)),
        Scalar::Float8 => Value::Float8(f64::from_be_bytes(bytes.try_into().map_err(bad)?)),
        Scalar::Numeric(_) => from_text(&numeric(bytes).ok_or_else(|| malformed(ty))?, ty)?,
        Scalar::Text | Scalar::Enum(_) => Value::text(text()?.to_owned()),
        Scalar::Json => from_text(text()?, ty)?,
        Scalar::Jsonb => match bytes.split_first() {
            Some((&JSONB_VERSION, text)) => {
                from_text(std::str::from_utf8(text).map_err(|_| not_utf8())?, ty)?
            }
            _ => return Err(malformed(ty)),
        },
        Scalar::Bytea => Value::bytea(bytes.to_vec()),
        Scalar::Date => {
            let days = i32::from_be_bytes(bytes.try_into().map_err(bad)?);
            let infinite = matches!(days, i32::MIN | i32::MAX);
            let days = if infinite { Some(days) } else { days.checked_add(DAYS) };
            Value::Date(days.ok_or_else(|| malformed(ty))?)
        }
        Scalar::Time => {
            let micros = i64::from_be_bytes(bytes.try_into().map_err(bad)?);
            Value::Time(micros).assign(ty).map_err(|_| malformed(ty))?
        }
        Scalar::Timestamp => Value::Timestamp(moment(bytes).ok_or_else(|| malformed(ty))?),
        Scalar::Timestamptz => Value::Timestamptz(moment(bytes).ok_or_else(|| malformed(ty))?),
        Scalar::Uuid => Value::Uuid(bytes.try_into().map_err(bad)?),
        Scalar::Interval => Value::Interval(interval(bytes).ok_or_else(|| malformed(ty))?),
        Scalar::Inet => Value::Inet(read_inet(bytes).ok_or_else(|| malformed(ty))?),
        Scalar::Cidr => match read_inet(bytes) {
            Some(network) if network.is_network() => Value::Cidr(network),
            _ => return Err(malformed(ty)),
        },
    })
}

pub(crate) fn not_utf8() -> SqlError {
    SqlError::new(state::CHARACTER_NOT_IN_REPERTOIRE, "invalid byte sequence for encoding \"UTF8\"")
}

fn moment(bytes: &[u8]) -> Option<i64> {
    let micros = i64::from_be_bytes(bytes.try_into().ok()?);
    if matches!(micros, i64::MIN | i64::MAX) { Some(micros) } else { micros.checked_add(MICROS) }
}

fn interval(bytes: &[u8]) -> Option<Interval> {
    let (micros, rest) = bytes.split_first_chunk()?;
    let (days, months) = rest.split_first_chunk()?;
    Some(Interval {
        micros: i64::from_be_bytes(*micros),
        days: i32::from_be_bytes(*days),
        months: i32::from_be_bytes(months.try_into().ok()?),
    })
}

/// The text of a numeric.
fn numeric(bytes: &[u8]) -> Option<String> {
    let mut parts = bytes.chunks(2).map(|two| two.try_into().ok().map(u16::from_be_bytes));
    let mut next = || parts.next().flatten();
    let (count, weight, sign, scale) = (next()?, next()?.cast_signed(), next()?, next()?);
    let digits: Vec<u16> = std::iter::from_fn(next).collect();
    if digits.len() != usize::from(count) || digits.iter().any(|digit| *digit > 9999) {
        return None;
    }
    match sign {
        NAN => return Some("NaN".into()),
        0 | NEGATIVE => {}
        _ => return None,
    }
    // Beyond these limits the value has more digits than a numeric can have here.
    if !(-50..50).contains(&weight) || scale > 200 {
        return None;
    }
    let mut text = String::from(if sign == NEGATIVE { "-" } else { "" });
    let digit = |place: i32| {
        let index = usize::try_from(i32::from(weight) - place).ok();
        index.and_then(|index| digits.get(index)).copied().unwrap_or(0)
    };
    for place in (0..=i32::from(weight).max(0)).rev() {
        text += &format!("{:04}", digit(place));
    }
    if scale > 0 {
        let groups = i32::from(scale).div_euclid(4) + 1;
        let fraction: String = (1..=groups).map(|place| format!("{:04}", digit(-place))).collect();
        text.push('.');
        text += fraction.get(..usize::from(scale))?;
    }
    Some(text)
}

fn array(bytes: &[u8], element: Scalar) -> Result<Value<'static>> {
    let ty = Type::Array(element);
    let mut rest = bytes;
    let next = |rest: &mut &[u8]| -> Result<i32> {
        let (four, behind) = rest.split_first_chunk::<4>().ok_or_else(|| malformed(ty))?;
        *rest = behind;
        Ok(i32::from_be_bytes(*four))
    };
    let dimensions = next(&mut rest)?;
    let _has_null = next(&mut rest)?;
    let of = next(&mut rest)?;
    if of.cast_unsigned() != oid(Type::Scalar(element)) {
        return Err(SqlError::new(state::DATATYPE_MISMATCH, format!("wrong element type {of} of an array")));
    }
    let mut items = Vec::new();
    match dimensions {
        0 => {}
        1 => {
            let count = next(&mut rest)?;
            let _lower = next(&mut rest)?;
            for _ in 0..count {
                let length = next(&mut rest)?;
                if length < 0 {
                    items.push(Value::Null);
                    continue;
                }
                let parts = usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length));
                let (item, behind) = parts.ok_or_else(|| malformed(ty))?;
                rest = behind;
                items.push(from_binary(item, Type::Scalar(element))?);
            }
        }
        _ => return Err(SqlError::unsupported("an array of arrays", "use one dimension")),
    }
    if !rest.is_empty() {
        return Err(malformed(ty));
    }
    // Enum labels stay text: the caller knows their type.
    let element = if matches!(element, Scalar::Enum(_)) { Scalar::Text } else { element };
    Array::new(element, items).map(Value::Array).map_err(|_| malformed(ty))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::text_format::to_text;

    #[test]
    fn binary_format_round_trips() {
        for (ty, text) in [
            (Type::BOOL, "t"),
            (Type::INT2, "-5"),
            (Type::INT4, "2147483647"),
            (Type::INT8, "-9223372036854775808"),
            (Type::FLOAT4, "1.5"),
            (Type::FLOAT8, "-Infinity"),
            (Type::NUMERIC, "0"),
            (Type::NUMERIC, "0.00"),
            (Type::NUMERIC, "-12345678901234567890.000120"),
            (Type::NUMERIC, "0.0001"),
            (Type::NUMERIC, "0.00000001"),
            (Type::NUMERIC, "10000"),
            (Type::NUMERIC, "120000000.50"),
            (Type::NUMERIC, "NaN"),
            (Type::TEXT, "grün"),
            (Type::BYTEA, "\\x00ff"),
            (Type::DATE, "1999-12-31"),
            (Type::DATE, "infinity"),
            (Type::TIME, "23:59:59.000001"),
            (Type::TIMESTAMP, "1969-07-20 20:17:40"),
            (Type::TIMESTAMPTZ, "2024-02-29 12:00:00+00"),
            (Type::TIMESTAMP, "-infinity"),
            (Type::INTERVAL, "-1 years +2 days -00:00:00.5"),
            (Type::UUID, "00112233-4455-6677-8899-aabbccddeeff"),
            (Type::JSON, "{\"a\": [1]}"),
            (Type::INT4.array(), "{1,NULL,3}"),
            (Type::TEXT.array(), "{}"),
        ] {
            let mut bytes = Vec::new();
            put_binary(&from_text(text, ty).unwrap(), &mut bytes);
            assert_eq!(to_text(&from_binary(&bytes, ty).unwrap()).unwrap(), text, "{ty}");
            for cut in 0..bytes.len() {
                let _ = from_binary(&bytes[..cut], ty);
            }
        }
    }

    #[test]
    fn binary_format_equals_postgresql() {
        let bytes = |text: &str, ty: Type| {
            let mut out = Vec::new();
            put_binary(&from_text(text, ty).unwrap(), &mut out);
            ropewalk::hooks::hex(&out)
        };
        // From SELECT numeric_send(...), date_send(...) and so on of PostgreSQL 15.
        assert_eq!(bytes("12345.678", Type::NUMERIC), "000300010000000300010929 1a7c".replace(' ', ""));
        assert_eq!(bytes("-0.5", Type::NUMERIC), "0001ffff400000011388");
        assert_eq!(bytes("2000-01-02", Type::DATE), "00000001");
        assert_eq!(
            bytes("{1,2}", Type::INT4.array()),
            "0000000100000000000000170000000200000001000000040000000100000004 00000002".replace(' ', "")
        );
    }
}
