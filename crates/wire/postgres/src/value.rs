//! Values in the two formats of the protocol. Text is `ropewalk_sql`'s; binary is here.
//!
//! ```text
//! integers, floats   big-endian            date         days since 2000-01-01: i32
//! bool               one byte              times        microseconds, stamps since 2000-01-01: i64
//! text, json, bytea  the bytes             uuid         16 bytes          jsonb  1, the text
//! interval           microseconds: i64, days: i32, months: i32
//! numeric   groups: u16, weight: i16, sign: u16, scale: u16, groups of four decimal digits: u16 …
//! array     dimensions: i32 (0 or 1), has NULLs: i32, type of elements: u32, count: i32, first index: i32 (1), values …
//! ```
//! The binary formats are documented only by PostgreSQL's functions `…_send` and `…_recv`; drivers rely on
//! them all the same.

use ropewalk::tables::{Array, Inet, Interval, Numeric, Scalar, Type, Value};
use ropewalk_sql::{SqlError, SqlState, Zone, from_text_in, state, to_text_in};

use crate::frame::{Body, Fields, Format, Malformed, Out};
use crate::types::{OID, oid_of, type_of};

/// Days from 1970-01-01 to 2000-01-01.
const DAYS: i32 = 10_957;
/// The same in microseconds.
const MICROS: i64 = DAYS as i64 * 86_400_000_000;
/// Version byte at the start of a jsonb.
const JSONB_VERSION: u8 = 1;
/// Most elements of an array in a parameter. A NULL takes four bytes, so a message bounds them anyway.
const ELEMENTS_MAX: usize = 1 << 22;

pub(crate) const INVALID_BINARY: SqlState = SqlState("22P03");
pub(crate) const NOT_IN_REPERTOIRE: SqlState = SqlState("22021");

/// Writes a row, timestamps with zone as local time of the zone; with `are_oids` arrays of bigint are those
/// of oids.
///
/// # Errors
/// Corruption of a stored array.
pub(crate) fn put_row<'r>(
    out: &mut Out,
    values: impl ExactSizeIterator<Item = (&'r Value<'r>, Format)>,
    are_oids: bool,
    zone: &Zone,
) -> Result<(), SqlError> {
    out.try_message(b'D', |body| {
        body.count(values.len());
        for (value, format) in values {
            match value {
                Value::Array(array)
                    if are_oids && format == Format::Binary && array.element() == Scalar::Int8 =>
                {
                    body.value(|out| put_oids(out, array))?;
                }
                value => put(body, value, format, zone)?,
            }
        }
        Ok(())
    })
}

fn put(body: &mut Body<'_>, value: &Value<'_>, format: Format, zone: &Zone) -> Result<(), SqlError> {
    if value.is_null() {
        body.i32(-1);
        return Ok(());
    }
    body.value(|out| match format {
        Format::Text => {
            put_text(out, value, zone);
            Ok(())
        }
        Format::Binary => put_binary(out, value),
    })
}

/// Most values are written without an intermediate string.
fn put_text(out: &mut Vec<u8>, value: &Value<'_>, zone: &Zone) {
    match value {
        Value::Text(text) | Value::Json(text) | Value::Jsonb(text) => out.extend_from_slice(text.as_bytes()),
        other => out.extend_from_slice(to_text_in(other, zone).unwrap_or_default().as_bytes()),
    }
}

fn damaged() -> SqlError {
    SqlError::new(state::DATA_CORRUPTED, "a stored array is damaged")
}

/// Converts a number since 1970 to one since 2000; the greatest and the least are the infinities on both
/// sides.
macro_rules! since_2000 {
    ($value:expr, $kind:ty, $shift:expr) => {
        match $value {
            infinite @ (<$kind>::MIN | <$kind>::MAX) => infinite,
            value => value.saturating_sub($shift),
        }
    };
}

fn put_binary(out: &mut Vec<u8>, value: &Value<'_>) -> Result<(), SqlError> {
    match value {
        Value::Null => {}
        Value::Bool(value) => out.push((*value).into()),
        Value::Int2(value) => out.extend(value.to_be_bytes()),
        Value::Int4(value) => out.extend(value.to_be_bytes()),
        Value::Int8(value) | Value::Time(value) => out.extend(value.to_be_bytes()),
        Value::Float4(value) => out.extend(value.to_be_bytes()),
        Value::Float8(value) => out.extend(value.to_be_bytes()),
        Value::Numeric(value) => put_numeric(out, *value),
        Value::Text(value) | Value::Json(value) => out.extend_from_slice(value.as_bytes()),
        Value::Jsonb(value) => {
            out.push(JSONB_VERSION);
            out.extend_from_slice(value.as_bytes());
        }
        Value::Bytea(value) => out.extend_from_slice(value),
        Value::Date(value) => out.extend(since_2000!(*value, i32, DAYS).to_be_bytes()),
        Value::Timestamp(value) | Value::Timestamptz(value) => {
            out.extend(since_2000!(*value, i64, MICROS).to_be_bytes());
        }
        Value::Uuid(value) => out.extend_from_slice(value),
        Value::Interval(value) => {
            out.extend(value.micros.to_be_bytes());
            out.extend(value.days.to_be_bytes());
            out.extend(value.months.to_be_bytes());
        }
        Value::Inet(value) => ropewalk_sql::put_inet(*value, false, out),
        Value::Cidr(value) => ropewalk_sql::put_inet(*value, true, out),
        Value::Enum(value) => out.extend_from_slice(value.label().as_bytes()),
        Value::Array(array) => put_array(out, array)?,
    }
    Ok(())
}

fn put_oids(out: &mut Vec<u8>, array: &Array<'_>) -> Result<(), SqlError> {
    let items = array.iter().collect::<Result<Vec<_>, _>>().map_err(|_| damaged())?;
    let mut body = array_head(out, &items, OID);
    for item in items {
        match item.as_integer().map(u32::try_from) {
            None => body.i32(-1),
            Some(Ok(oid)) => {
                body.i32(4);
                body.i32(oid.cast_signed());
            }
            Some(Err(_)) => {
                return Err(SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, "OID out of range"));
            }
        }
    }
    Ok(())
}

fn array_head<'o>(out: &'o mut Vec<u8>, items: &[Value<'_>], element: u32) -> Body<'o> {
    let mut body = Body(out);
    body.i32((!items.is_empty()).into());
    body.i32(items.iter().any(Value::is_null).into());
    body.i32(element.cast_signed());
    if !items.is_empty() {
        body.i32(i32::try_from(items.len()).unwrap_or(i32::MAX));
        body.i32(1);
    }
    body
}

fn put_array(out: &mut Vec<u8>, array: &Array<'_>) -> Result<(), SqlError> {
    let items = array.iter().collect::<Result<Vec<_>, _>>().map_err(|_| damaged())?;
    let mut body = array_head(out, &items, oid_of(Type::Scalar(array.element())).oid);
    items.iter().try_for_each(|item| put(&mut body, item, Format::Binary, &Zone::UTC))
}

const NEGATIVE: u16 = 0x4000;
const NAN: u16 = 0xc000;

fn put_numeric(out: &mut Vec<u8>, value: Numeric) {
    let mut put = |numbers: [u16; 4]| numbers.iter().for_each(|number| out.extend(number.to_be_bytes()));
    if value.is_nan() {
        return put([0, 0, NAN, 0]);
    }
    let scale = usize::from(value.scale());
    let digits = format!("{:0>width$}", value.mantissa().unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let whole = format!("{:0>width$}", whole, width = whole.len().next_multiple_of(4));
    let fraction = format!("{:0<width$}", fraction, width = scale.next_multiple_of(4));
    // The groups before the point, and all of them.
    let mut weight = (whole.len() / 4) as i16 - 1;
    let all = whole.into_bytes().into_iter().chain(fraction.into_bytes()).collect::<Vec<_>>();
    let group = |digits: &[u8]| digits.iter().fold(0_u16, |sum, digit| sum * 10 + u16::from(digit - b'0'));
    let groups: Vec<u16> = all.chunks(4).map(group).collect();
    let leading = groups.iter().take_while(|group| **group == 0).count();
    let mut groups = groups.get(leading..).unwrap_or_default();
    weight -= leading as i16;
    while let Some((0, rest)) = groups.split_last() {
        groups = rest;
    }
    if groups.is_empty() {
        weight = 0;
    }
    let sign = if value.mantissa() < 0 { NEGATIVE } else { 0 };
    put([groups.len() as u16, weight.cast_unsigned(), sign, u16::from(value.scale())]);
    groups.iter().for_each(|group| out.extend(group.to_be_bytes()));
}

/// Reads a parameter as a value of type `ty`.
///
/// # Errors
/// The bytes are not such a value.
pub(crate) fn read(bytes: &[u8], format: Format, ty: Type, zone: &Zone) -> Result<Value<'static>, SqlError> {
    match format {
        Format::Text => from_text_in(text(bytes)?, ty, zone),
        Format::Binary => {
            let mut fields = Fields(bytes);
            let value = match ty {
                Type::Scalar(scalar) => read_binary(&mut fields, scalar)?,
                Type::Array(element) => read_array(&mut fields, element)?,
            };
            fields.end().map_err(incorrect)?;
            // Labels remain strings until the statement, which knows their type, gets them.
            if matches!(ty, Type::Scalar(Scalar::Enum(_)) | Type::Array(Scalar::Enum(_))) {
                return Ok(value);
            }
            // Checks the limits of numerics, and JSON syntax.
            value.assign(ty).map_err(|error| {
                let state = match error {
                    ropewalk::tables::ValueError::Range { .. } => state::NUMERIC_VALUE_OUT_OF_RANGE,
                    _ => state::INVALID_TEXT_REPRESENTATION,
                };
                SqlError::new(state, format!("a parameter {error}"))
            })
        }
    }
}

fn text(bytes: &[u8]) -> Result<&str, SqlError> {
    let refused = || SqlError::new(NOT_IN_REPERTOIRE, "invalid byte sequence for encoding \"UTF8\"");
    match std::str::from_utf8(bytes) {
        Ok(text) if !bytes.contains(&0) => Ok(text),
        _ => Err(refused()),
    }
}

fn incorrect(_: Malformed) -> SqlError {
    SqlError::new(INVALID_BINARY, "incorrect binary data format in a parameter")
}

fn exact<const N: usize>(fields: &mut Fields<'_>) -> Result<[u8; N], SqlError> {
    fields.bytes(N).map_err(incorrect)?.try_into().map_err(|_| incorrect(Malformed("")))
}

/// The reverse of [`since_2000`].
macro_rules! since_1970 {
    ($bytes:expr, $kind:ty, $shift:expr) => {
        match <$kind>::from_be_bytes($bytes) {
            infinite @ (<$kind>::MIN | <$kind>::MAX) => infinite,
            value => value.checked_add($shift).ok_or_else(out_of_range)?,
        }
    };
}

fn out_of_range() -> SqlError {
    SqlError::new(state::DATETIME_FIELD_OVERFLOW, "date/time field value out of range")
}

fn read_binary(fields: &mut Fields<'_>, scalar: Scalar) -> Result<Value<'static>, SqlError> {
    let rest = |fields: &mut Fields<'_>| fields.bytes(fields.0.len()).map_err(incorrect).map(<[u8]>::to_vec);
    Ok(match scalar {
        Scalar::Bool => Value::Bool(exact::<1>(fields)? != [0]),
        Scalar::Int2 => Value::Int2(i16::from_be_bytes(exact(fields)?)),
        Scalar::Int4 => Value::Int4(i32::from_be_bytes(exact(fields)?)),
        Scalar::Int8 => Value::Int8(i64::from_be_bytes(exact(fields)?)),
        Scalar::Float4 => Value::Float4(f32::from_be_bytes(exact(fields)?)),
        Scalar::Float8 => Value::Float8(f64::from_be_bytes(exact(fields)?)),
        Scalar::Numeric(_) => Value::Numeric(read_numeric(fields)?),
        Scalar::Text | Scalar::Enum(_) => Value::text(text(&rest(fields)?)?.to_owned()),
        Scalar::Json => Value::json(text(&rest(fields)?)?.to_owned()),
        Scalar::Jsonb => match rest(fields)?.split_first() {
            Some((&JSONB_VERSION, bytes)) => Value::json(text(bytes)?.to_owned())
                .assign(Type::JSONB)
                .map_err(|_| incorrect(Malformed("jsonb")))?,
            _ => return Err(incorrect(Malformed("jsonb"))),
        },
        Scalar::Bytea => Value::bytea(rest(fields)?),
        Scalar::Date => Value::Date(since_1970!(exact(fields)?, i32, DAYS)),
        Scalar::Time => match i64::from_be_bytes(exact(fields)?) {
            micros @ 0..=86_400_000_000 => Value::Time(micros),
            _ => return Err(out_of_range()),
        },
        Scalar::Timestamp => Value::Timestamp(since_1970!(exact(fields)?, i64, MICROS)),
        Scalar::Timestamptz => Value::Timestamptz(since_1970!(exact(fields)?, i64, MICROS)),
        Scalar::Uuid => Value::Uuid(exact(fields)?),
        Scalar::Inet => Value::Inet(inet(&rest(fields)?)?),
        Scalar::Cidr => match inet(&rest(fields)?)? {
            network if network.is_network() => Value::Cidr(network),
            _ => return Err(incorrect(Malformed("cidr"))),
        },
        Scalar::Interval => Value::Interval(Interval {
            micros: i64::from_be_bytes(exact(fields)?),
            days: i32::from_be_bytes(exact(fields)?),
            months: i32::from_be_bytes(exact(fields)?),
        }),
    })
}

fn inet(bytes: &[u8]) -> Result<Inet, SqlError> {
    ropewalk_sql::read_inet(bytes).ok_or_else(|| incorrect(Malformed("inet")))
}

fn read_array(fields: &mut Fields<'_>, element: Scalar) -> Result<Value<'static>, SqlError> {
    let mut number = || fields.i32().map_err(incorrect);
    let (dimensions, _, oid) = (number()?, number()?, number()?.cast_unsigned());
    let are_oids = oid == OID && element == Scalar::Int8;
    if !are_oids && type_of(oid) != Some(Type::Scalar(plain(element))) {
        let message = format!("an array of elements of type {oid} where another is needed");
        return Err(SqlError::new(state::DATATYPE_MISMATCH, message));
    }
    let count = match dimensions {
        0 => 0,
        1 => {
            let (count, _) = (number()?, number()?);
            usize::try_from(count).ok().filter(|count| *count <= ELEMENTS_MAX).ok_or_else(|| {
                SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, format!("an array of {count} elements"))
            })?
        }
        _ => {
            return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, "an array of arrays is not supported")
                .hint("use one dimension"));
        }
    };
    let mut items = Vec::new();
    for _ in 0..count {
        let length = fields.i32().map_err(incorrect)?;
        items.push(match usize::try_from(length) {
            Err(_) if length == -1 => Value::Null,
            length => {
                let length = length.map_err(|_| incorrect(Malformed("")))?;
                let mut inside = Fields(fields.bytes(length).map_err(incorrect)?);
                let item = match are_oids {
                    true => Value::Int8(u32::from_be_bytes(exact(&mut inside)?).into()),
                    false => read_binary(&mut inside, element)?,
                };
                inside.end().map_err(incorrect)?;
                item
            }
        });
    }
    let element = if matches!(element, Scalar::Enum(_)) { Scalar::Text } else { element };
    let array = Array::new(element, items);
    array.map(Value::Array).map_err(|error| SqlError::new(INVALID_BINARY, format!("an element {error}")))
}

fn plain(scalar: Scalar) -> Scalar {
    match scalar {
        Scalar::Numeric(_) => Scalar::Numeric(None),
        other => other,
    }
}

/// Groups of four digits before and after the point that may hold 38 digits.
const GROUPS_MAX: i32 = 11;

fn read_numeric(fields: &mut Fields<'_>) -> Result<Numeric, SqlError> {
    let mut number = || fields.i16().map_err(incorrect);
    let (count, weight, sign, scale) = (number()?, number()?, number()?.cast_unsigned(), number()?);
    let groups: Vec<i16> =
        (0..count.cast_unsigned()).map(|_| fields.i16().map_err(incorrect)).collect::<Result<_, _>>()?;
    if sign == NAN {
        return Ok(Numeric::NAN);
    }
    let too_great = || {
        SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow")
            .hint("numerics have at most 38 digits")
    };
    let (weight, scale) = (i32::from(weight), usize::from(scale.cast_unsigned()));
    if !matches!(sign, 0 | NEGATIVE) || groups.iter().any(|group| !(0..=9999).contains(group)) {
        return Err(if sign & NAN == NAN { too_great() } else { incorrect(Malformed("")) });
    }
    if scale > 38 || !groups.is_empty() && !(-GROUPS_MAX..GROUPS_MAX).contains(&weight) {
        return Err(too_great());
    }
    // Digits up to the scale, as text: wide enough for every number that fits.
    let group = |place: i32| {
        let place = usize::try_from(weight - place).ok();
        place.and_then(|place| groups.get(place)).copied().unwrap_or(0)
    };
    let mut text = String::from(if sign == NEGATIVE { "-" } else { "" });
    (0..=weight.max(0)).rev().for_each(|place| text += &format!("{:04}", group(place)));
    text.push('.');
    let point = text.len();
    let behind = scale.div_ceil(4) as i32;
    (1..=behind).for_each(|place| text += &format!("{:04}", group(-place)));
    text.truncate(point + scale);
    text.parse().map_err(|_| too_great())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_sql::{from_text, to_text};

    fn binary(value: &Value<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        put_binary(&mut out, value).unwrap();
        out
    }

    #[test]
    fn every_type_round_trips_in_both_formats() {
        for (ty, texts) in [
            (Type::BOOL, vec!["t", "f"]),
            (Type::INT2, vec!["-32768", "7"]),
            (Type::INT4, vec!["2147483647"]),
            (Type::INT8, vec!["-9223372036854775808"]),
            (Type::FLOAT4, vec!["0.1", "NaN", "-Infinity"]),
            (Type::FLOAT8, vec!["1e+300", "-0"]),
            (
                Type::NUMERIC,
                vec![
                    "0",
                    "0.00",
                    "1",
                    "-1.5",
                    "10000",
                    "9999.9999",
                    "0.0001",
                    "0.00001",
                    "123456789.123456789",
                    "NaN",
                    "99999999999999999999999999999999999999",
                    "-0.00000000000000000000000000000000000001",
                ],
            ),
            (Type::TEXT, vec!["", "häuser"]),
            (Type::BYTEA, vec!["\\x00ff", "\\x"]),
            (Type::DATE, vec!["1970-01-01", "2000-01-01", "infinity", "-infinity"]),
            (Type::TIME, vec!["23:59:59.999999"]),
            (Type::TIMESTAMP, vec!["1999-12-31 23:59:59.5", "infinity"]),
            (Type::TIMESTAMPTZ, vec!["2024-02-29 12:00:00+00"]),
            (Type::INTERVAL, vec!["1 year 2 mons -3 days +04:05:06.7", "00:00:00"]),
            (Type::UUID, vec!["00112233-4455-6677-8899-aabbccddeeff"]),
            (Type::INET, vec!["10.1.2.3/8", "10.1.2.3", "::1", "2001:db8::/32"]),
            (Type::CIDR, vec!["10.0.0.0/8", "10.1.2.3/32"]),
            (Type::JSON, vec!["{\"a\": 1}"]),
            (Type::JSONB, vec!["{\"a\": 1}"]),
            (Type::INT4.array(), vec!["{1,NULL,3}", "{}"]),
            (Type::NUMERIC.array(), vec!["{1.5,NULL}"]),
            (Type::TEXT.array(), vec!["{a,\"b c\"}"]),
        ] {
            for text in texts {
                let value = from_text(text, ty).unwrap();
                let bytes = binary(&value);
                let back = read(&bytes, Format::Binary, ty, &Zone::UTC).unwrap();
                assert_eq!(to_text(&back), to_text(&value), "{ty} {text} {bytes:?}");
                assert_eq!(to_text(&back).unwrap(), text);
                for cut in 0..bytes.len() {
                    // Bytes and strings may be cut anywhere; no other cut value is valid, and nothing panics.
                    let cut = read(&bytes[..cut], Format::Binary, ty, &Zone::UTC);
                    assert!(cut.is_err() || matches!(ty, Type::TEXT | Type::BYTEA | Type::JSON));
                }
            }
        }
    }

    #[test]
    fn binary_encoding_matches_known_bytes() {
        let number: Numeric = "12345.678".parse().unwrap();
        assert_eq!(binary(&Value::Numeric(number)), [0, 3, 0, 1, 0, 0, 0, 3, 0, 1, 0x09, 0x29, 0x1a, 0x7c]);
        assert_eq!(binary(&Value::Date(DAYS)), [0; 4]);
        assert_eq!(binary(&Value::Timestamp(MICROS + 1)), [0, 0, 0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn numbers_out_of_range_are_rejected() {
        let code = |bytes: &[u16]| {
            let bytes: Vec<u8> = bytes.iter().flat_map(|word| word.to_be_bytes()).collect();
            read(&bytes, Format::Binary, Type::NUMERIC, &Zone::UTC).unwrap_err().state.0
        };
        assert_eq!(code(&[1, 0x7fff, 0, 0, 1]), "22003");
        assert_eq!(code(&[1, 0, 0, 1000, 1]), "22003");
        assert_eq!(code(&[0, 0, 0xd000, 0]), "22003");
        assert_eq!(code(&[1, 0, 0, 0, 10_000]), "22P03");
        assert_eq!(code(&[0, 0, 1, 0]), "22P03");
        assert_eq!(code(&[2, 0, 0, 0, 1]), "22P03");
        let far = i64::MAX - 1;
        let refused = read(&far.to_be_bytes(), Format::Binary, Type::TIMESTAMP, &Zone::UTC).unwrap_err();
        assert_eq!(refused.state.0, "22008");
        assert_eq!(read(b"a\0b", Format::Text, Type::TEXT, &Zone::UTC).unwrap_err().state.0, "22021");
    }
}
