//! The functions of SQL: which one a name and argument types mean, and what it does.
//!
//! All but a few answer NULL as soon as one argument is NULL.

pub(crate) mod advisory;
pub(crate) mod aggregate;
pub(crate) mod array;
pub(crate) mod bytes;
pub(crate) mod datetime_template;
pub(crate) mod format;
pub(crate) mod more;
pub(crate) mod number;
pub(crate) mod number_template;
pub(crate) mod parse_template;
pub(crate) mod regex;
pub(crate) mod statistics;
pub(crate) mod time;

use std::collections::HashSet;
use std::time::Duration;

use ropewalk::tables::{Array, Numeric, Scalar, Type, Value};

use crate::expr::arith::{self, negate, out_of_range};
use crate::expr::bounds::{self, Operands};
use crate::expr::cast::{cast, to_f64};
use crate::expr::{Context, Expr, Input, bug};
use crate::types::datetime::{self, DAY};
use crate::types::error::{Result, SqlError, state};
use crate::types::interval;
use crate::types::json;
use crate::types::names::{common, is_integer, is_numeric, rank};
use crate::types::text_format::to_text;
use crate::types::zone::Zone;

macro_rules! functions {
    ($($name:ident),* $(,)?) => {
        /// A function, named after what it does.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Function { $($name),* }

        /// The small letter of a character: one, as in PostgreSQL, also where a language writes two.
pub(crate) fn lower(c: char) -> char {
    c.to_lowercase().next().unwrap_or(c)
}

/// The capital of a character, which stays where it has none of one character: `ß`.
fn upper(c: char) -> char {
    let mut capitals = c.to_uppercase();
    match (capitals.next(), capitals.next()) {
        (Some(capital), None) => capital,
        _ => c,
    }
}

impl Function {
            #[cfg(test)]
            pub(crate) const ALL: &'static [Self] = &[$(Self::$name),*];
        }
    };
}

functions! {
    ArrayAppend, ArrayCat, ArrayContained, ArrayContains, ArrayLower, ArrayNdims, ArrayOverlaps, ArrayPosition, ArrayPrepend,
    ArrayRemove, ArrayToString, ArrayUpper, Cbrt, ClockTimestamp, Decode, Div, Encode, Format, JsonBuildArray,
    JsonBuildObject, JsonPath, JsonPathText, NumNulls, QuoteIdent, QuoteLiteral, QuoteNullable, RegexpMatch, RegexpSplit,
    SizePretty, StringToArray, ToChar, ToHex, ToJson, Translate,
    Abs, ArrayLength, Ascii, Ceil, Chr, Concat, ConcatWs, DatePart, DateTrunc, Exp, Extract, Floor, Greatest, InZone,
    Initcap,
    JsonArrayLength, JsonTypeof, JsonbConcat, JsonbContained, JsonbContains, JsonbDelete, JsonbDeleteAll, JsonbDeleteAt,
    JsonbDeletePath, JsonbExists, JsonbExistsAll, JsonbExistsAny, JsonbInsert, JsonbPretty, JsonbSet, JsonbStripNulls, Least, Left, Length, Ln, Log, Lower, Lpad, Ltrim, MakeDate, Mod, NewUuid, Now, OctetLength, Pi,
    Power, Random, RegexpReplace, Repeat, Replace, Reverse, Right, Round, Rpad, Rtrim, Sign, Sleep, SplitPart, Sqrt, StartsWith,
    Strpos, Substr, ToTimestamp, Trim, Trunc, Upper,
    BitCount, BitLength, BytesConcat, BytesLtrim, BytesPosition, BytesRtrim, BytesSubstr, BytesTrim, ConvertFrom, ConvertTo, GetBit,
    GetByte, HashText, HashTextExtended, Md5, Overlay, SetBit, SetByte, Sha224, Sha256, Sha384, Sha512,
    RegexpCount, RegexpInstr, RegexpLike, RegexpReplaceFrom, RegexpSubstr, RegexpSubstring, SimilarPattern,
    Acos, Acosh, Asin, Asinh, Atan, Atan2, Atanh, Cos, Cosh, Cot, Degrees, Factorial, Gcd, Lcm, MinScale, Radians, Scale, Sin,
    Sinh, Tan, Tanh, TrimScale, WidthBucket,
    ArrayDims, ArrayFill, ArrayPositionFrom, ArrayPositions, ArrayReplace, ArraySlice, JsonObject, JsonStripNulls, JsonbSetLax,
    JsonRow, NumNonnulls, TrimArray,
    DateBin, IsFinite, ToDate, ToNumber, ToTimestampBy,
    Age, Between, IntervalAdd, IntervalDivided, IntervalTimes, JustifyDays, JustifyHours, JustifyInterval, Keep, MakeInterval, MakeTime,
    MakeTimestamp, MakeTimestamptz, Shifted,
}

/// A function with the types that its arguments are cast to, and its own.
pub(crate) struct Resolved {
    pub(crate) function: Function,
    pub(crate) arguments: Vec<Type>,
    pub(crate) result: Type,
}

/// The function that `name` means for arguments of these types; `None` for one that is not there.
pub(crate) fn resolve(name: &str, types: &[Option<Type>]) -> Option<Resolved> {
    use Function as F;
    const TEXT: Type = Type::TEXT;
    const INT: Type = Type::INT4;
    let first = types.first().copied().flatten();
    let one = |function, argument, result| Some(Resolved { function, arguments: vec![argument], result });
    let many = |function, arguments: &[Type], result| {
        (arguments.len() == types.len()).then(|| Resolved { function, arguments: arguments.to_vec(), result })
    };
    let among = |function, arguments: &[Type], result, least: usize| {
        (least..=arguments.len()).contains(&types.len()).then(|| Resolved {
            function,
            arguments: arguments.iter().take(types.len()).copied().collect(),
            result,
        })
    };
    // Numbers stay what they are; what has no type yet is a double.
    let number = first.filter(|ty| rank(*ty).is_some()).unwrap_or(Type::FLOAT8);
    let exact = if is_numeric(number) { Type::NUMERIC } else { Type::FLOAT8 };
    let widest = || {
        types.iter().flatten().copied().try_fold(None, |all: Option<Type>, ty| match all {
            None => Some(Some(ty)),
            Some(all) => common(all, ty).map(Some),
        })
    };
    let count = types.len();
    if let Some(resolved) = crate::functions::bytes::resolve(name, types)
        .or_else(|| crate::functions::regex::resolve(name, types))
        .or_else(|| crate::functions::number::resolve(name, types))
        .or_else(|| crate::functions::array::resolve(name, types))
    {
        return Some(resolved);
    }
    match (name, count) {
        ("lower", 1) => one(F::Lower, TEXT, TEXT),
        ("upper", 1) => one(F::Upper, TEXT, TEXT),
        ("initcap", 1) => one(F::Initcap, TEXT, TEXT),
        ("reverse", 1) => one(F::Reverse, TEXT, TEXT),
        ("length", 1) if first == Some(Type::BYTEA) => one(F::OctetLength, Type::BYTEA, INT),
        ("length" | "char_length" | "character_length", 1) => one(F::Length, TEXT, INT),
        ("octet_length", 1) if first == Some(Type::BYTEA) => one(F::OctetLength, Type::BYTEA, INT),
        ("octet_length", 1) => one(F::OctetLength, TEXT, INT),
        ("substr" | "substring", _) => among(F::Substr, &[TEXT, INT, INT], TEXT, 2),
        ("left", _) => many(F::Left, &[TEXT, INT], TEXT),
        ("right", _) => many(F::Right, &[TEXT, INT], TEXT),
        ("btrim", _) => among(F::Trim, &[TEXT, TEXT], TEXT, 1),
        ("ltrim", _) => among(F::Ltrim, &[TEXT, TEXT], TEXT, 1),
        ("rtrim", _) => among(F::Rtrim, &[TEXT, TEXT], TEXT, 1),
        ("lpad", _) => among(F::Lpad, &[TEXT, INT, TEXT], TEXT, 2),
        ("rpad", _) => among(F::Rpad, &[TEXT, INT, TEXT], TEXT, 2),
        ("repeat", _) => many(F::Repeat, &[TEXT, INT], TEXT),
        ("replace", _) => many(F::Replace, &[TEXT, TEXT, TEXT], TEXT),
        ("split_part", _) => many(F::SplitPart, &[TEXT, TEXT, INT], TEXT),
        ("starts_with", _) => many(F::StartsWith, &[TEXT, TEXT], Type::BOOL),
        ("strpos", _) => many(F::Strpos, &[TEXT, TEXT], INT),
        ("ascii", 1) => one(F::Ascii, TEXT, INT),
        ("chr", 1) => one(F::Chr, INT, TEXT),
        ("concat", 1..) => many(F::Concat, &shown_arguments(types), TEXT),
        ("concat_ws", 2..) => {
            let arguments = [vec![TEXT], shown_arguments(types.get(1..).unwrap_or_default())].concat();
            many(F::ConcatWs, &arguments, TEXT)
        }
        ("abs", 1) => one(F::Abs, number, number),
        ("ceil" | "ceiling", 1) => one(F::Ceil, exact, exact),
        ("floor", 1) => one(F::Floor, exact, exact),
        ("round", 1) => one(F::Round, exact, exact),
        ("trunc", 1) => one(F::Trunc, exact, exact),
        ("round", 2) => many(F::Round, &[Type::NUMERIC, INT], Type::NUMERIC),
        ("trunc", 2) => many(F::Trunc, &[Type::NUMERIC, INT], Type::NUMERIC),
        ("sign", 1) => one(F::Sign, exact, exact),
        ("sqrt", 1) => one(F::Sqrt, Type::FLOAT8, Type::FLOAT8),
        ("exp", 1) => one(F::Exp, Type::FLOAT8, Type::FLOAT8),
        ("ln", 1) => one(F::Ln, Type::FLOAT8, Type::FLOAT8),
        ("log" | "log10", 1) => one(F::Log, Type::FLOAT8, Type::FLOAT8),
        ("power" | "pow", _) => many(F::Power, &[Type::FLOAT8, Type::FLOAT8], Type::FLOAT8),
        ("mod", 2) => {
            let ty = widest()?.unwrap_or(INT);
            let ty = (is_integer(ty) || is_numeric(ty)).then_some(ty)?;
            many(F::Mod, &[ty, ty], ty)
        }
        ("pi", 0) => many(F::Pi, &[], Type::FLOAT8),
        ("pg_sleep", 1) => one(F::Sleep, Type::FLOAT8, TEXT),
        ("random", 0) => many(F::Random, &[], Type::FLOAT8),
        ("gen_random_uuid", 0) => many(F::NewUuid, &[], Type::UUID),
        ("now" | "transaction_timestamp" | "current_timestamp", 0) => many(F::Now, &[], Type::TIMESTAMPTZ),
        ("greatest" | "least", 1..) => {
            let ty = widest()?.unwrap_or(TEXT);
            let function = if name == "least" { F::Least } else { F::Greatest };
            ty.is_ordered().then(|| Resolved { function, arguments: vec![ty; count], result: ty })
        }
        ("date_trunc", 2) => {
            let ty = types.get(1).copied().flatten().unwrap_or(Type::TIMESTAMPTZ);
            // Of the two that a date may be cast to, PostgreSQL prefers the one with a zone.
            let ty = if ty == Type::DATE { Type::TIMESTAMPTZ } else { ty };
            matches!(ty, Type::TIMESTAMP | Type::TIMESTAMPTZ | Type::INTERVAL).then_some(())?;
            many(F::DateTrunc, &[TEXT, ty], ty)
        }
        ("date_trunc", 3) => many(F::DateTrunc, &[TEXT, Type::TIMESTAMPTZ, TEXT], Type::TIMESTAMPTZ),
        ("timezone", 2) => match types.get(1).copied().flatten() {
            Some(Type::TIMESTAMP) => many(F::InZone, &[TEXT, Type::TIMESTAMP], Type::TIMESTAMPTZ),
            None | Some(Type::TIMESTAMPTZ | Type::DATE) => {
                many(F::InZone, &[TEXT, Type::TIMESTAMPTZ], Type::TIMESTAMP)
            }
            Some(_) => None,
        },
        ("date_part" | "extract", 2) => {
            let ty = types.get(1).copied().flatten().unwrap_or(Type::TIMESTAMP);
            matches!(ty, Type::TIMESTAMP | Type::TIMESTAMPTZ | Type::DATE | Type::TIME | Type::INTERVAL)
                .then_some(())?;
            match (name, ty) {
                ("extract", ty) => many(F::Extract, &[TEXT, ty], Type::NUMERIC),
                (_, Type::DATE) => many(F::DatePart, &[TEXT, Type::TIMESTAMP], Type::FLOAT8),
                (_, ty) => many(F::DatePart, &[TEXT, ty], Type::FLOAT8),
            }
        }
        ("make_date", 3) => many(F::MakeDate, &[INT, INT, INT], Type::DATE),
        ("to_timestamp", 1) => one(F::ToTimestamp, Type::FLOAT8, Type::TIMESTAMPTZ),
        ("json_array_length", 1) => one(F::JsonArrayLength, Type::JSON, INT),
        ("json_typeof", 1) => one(F::JsonTypeof, Type::JSON, TEXT),
        ("array_length", 2) => match first? {
            array @ Type::Array(_) => many(F::ArrayLength, &[array, INT], INT),
            Type::Scalar(_) => None,
        },
        ("cardinality", 1) => match first? {
            array @ Type::Array(_) => one(F::ArrayLength, array, INT),
            Type::Scalar(_) => None,
        },
        _ => crate::types::jsonb::resolve(name, types)
            .or_else(|| crate::functions::more::resolve(name, types))
            .or_else(|| crate::functions::time::resolve(name, types)),
    }
}

fn text<'v>(value: &'v Value<'_>) -> &'v str {
    match value {
        Value::Text(text) | Value::Json(text) | Value::Jsonb(text) => text,
        _ => "",
    }
}

fn integer(value: Option<&Value<'_>>) -> i64 {
    value.and_then(Value::as_integer).unwrap_or_default()
}

fn int4(number: usize) -> Value<'static> {
    Value::Int4(i32::try_from(number).unwrap_or(i32::MAX))
}

fn float_function(f: impl Fn(f64) -> f64, value: &Value<'_>) -> Result<Value<'static>> {
    let x = to_f64(value).unwrap_or(f64::NAN);
    let y = f(x);
    if x.is_finite() && y.is_infinite() {
        return Err(SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow"));
    }
    Ok(Value::Float8(y))
}

/// The numeric with its digits behind `digits` places cut off, then moved by one in direction `away` if any were there.
fn cut(number: Numeric, digits: i64, away: i8) -> Option<Numeric> {
    if number.is_nan() {
        return Some(number);
    }
    let scale = i64::from(number.scale());
    if digits >= scale {
        return Some(number);
    }
    let unit = 10_i128.checked_pow(u32::try_from(scale - digits).ok()?);
    let Some(unit) = unit else { return Some(Numeric::ZERO) };
    let whole = number.mantissa() / unit;
    let rest = number.mantissa() % unit;
    let step = match away {
        1 if rest > 0 => 1,
        -1 if rest < 0 => -1,
        _ => 0,
    };
    scaled(whole + step, digits)
}

/// `whole * 10^-digits`.
fn scaled(whole: i128, digits: i64) -> Option<Numeric> {
    match u8::try_from(digits) {
        Ok(scale) => Numeric::new(whole, scale),
        Err(_) => Numeric::new(whole.checked_mul(10_i128.checked_pow(u32::try_from(-digits).ok()?)?)?, 0),
    }
}

fn rounded(number: Numeric, digits: i64) -> Option<Numeric> {
    if number.is_nan() {
        return Some(number);
    }
    if let Ok(scale @ 0..=38) = u8::try_from(digits) {
        return number.rescale(scale);
    }
    if digits > 0 {
        return Some(number);
    }
    let unit = 10_i128.checked_pow(u32::try_from(i64::from(number.scale()) - digits).ok()?);
    let Some(unit) = unit else { return Some(Numeric::ZERO) };
    let (whole, rest) = (number.mantissa() / unit, number.mantissa() % unit);
    let away = if rest.unsigned_abs() >= unit.unsigned_abs() / 2 { number.mantissa().signum() } else { 0 };
    scaled(whole + away, digits)
}

/// A numeric without its digits behind the point.
pub(crate) fn truncated(value: &Value<'_>) -> Result<Value<'static>> {
    match value {
        Value::Numeric(number) => numeric_result(cut(*number, 0, 0)),
        _ => Ok(Value::Null),
    }
}

fn numeric_result(number: Option<Numeric>) -> Result<Value<'static>> {
    number.map(Value::Numeric).ok_or_else(|| out_of_range(Type::NUMERIC))
}

/// Start and end, in characters, of `substr(text, from [, count])`.
fn substring(text: &str, from: i64, count: Option<i64>) -> Result<&str> {
    let end = match count {
        Some(count) if count < 0 => {
            return Err(SqlError::new(state::SUBSTRING_ERROR, "negative substring length not allowed"));
        }
        Some(count) => from.saturating_add(count),
        None => i64::MAX,
    };
    let start = usize::try_from(from.max(1) - 1).unwrap_or_default();
    let end = usize::try_from(end.max(1) - 1).unwrap_or_default();
    let place = |chars: usize| text.char_indices().nth(chars).map_or(text.len(), |(place, _)| place);
    Ok(text.get(place(start)..place(end.max(start))).unwrap_or_default())
}

fn pad(text: &str, length: i64, fill: &str, left: bool) -> Result<String> {
    let length = usize::try_from(length).unwrap_or_default();
    let have = text.chars().count();
    if length <= have || fill.is_empty() {
        return Ok(text.chars().take(length).collect());
    }
    bounds::check_text(length.saturating_mul(4))?;
    let padding: String = fill.chars().cycle().take(length - have).collect();
    Ok(if left { padding + text } else { format!("{text}{padding}") })
}

/// The types in which arguments are joined as they are shown: a bool as a letter, where a cast to text makes a word of it.
pub(crate) fn shown_arguments(types: &[Option<Type>]) -> Vec<Type> {
    types.iter().map(|ty| if *ty == Some(Type::BOOL) { Type::BOOL } else { Type::TEXT }).collect()
}

/// Parts of a moment: days since 1970 and microseconds of the day.
fn moment(value: &Value<'_>) -> (i64, i64) {
    match value {
        Value::Date(days) => (i64::from(*days), 0),
        Value::Time(micros) => (0, *micros),
        Value::Timestamp(micros) => (micros.div_euclid(DAY), micros.rem_euclid(DAY)),
        _ => (0, 0),
    }
}

pub(crate) fn iso_week(days: i64) -> (i64, i64) {
    // The week belongs to the year of its Thursday.
    let thursday = days - (days + 3).rem_euclid(7) + 3;
    let (year, _, _) = datetime::civil(thursday);
    (year, (thursday - datetime::days(year, 1, 1)) / 7 + 1)
}

/// The zone of this name.
pub(crate) fn zone_named(name: &str) -> Result<Zone> {
    Zone::named(name).ok_or_else(|| {
        let cut: String = name.chars().take(64).collect();
        SqlError::new(state::INVALID_PARAMETER_VALUE, format!("time zone \"{cut}\" not recognized"))
    })
}

fn unknown_unit(field: &str, value: &Value<'_>) -> SqlError {
    let kind = value.value_type().map_or_else(String::new, crate::types::names::type_name);
    let message = format!("unit \"{field}\" not recognized for type {kind}");
    SqlError::new(state::INVALID_PARAMETER_VALUE, message)
}

/// A part of a moment.
enum Part {
    Number(Numeric),
    /// Of what grows with the moment, at infinity.
    Infinite(f64),
    /// Of what comes again and again, at infinity.
    Unknown,
}

/// `extract(field from value)`, also of the moments before and after all others.
fn part_of(field: &str, value: &Value<'_>, zone: &Zone) -> Result<Part> {
    let infinity = match value {
        Value::Date(i32::MAX) | Value::Timestamp(i64::MAX) | Value::Timestamptz(i64::MAX) => f64::INFINITY,
        Value::Date(i32::MIN) | Value::Timestamp(i64::MIN) | Value::Timestamptz(i64::MIN) => {
            f64::NEG_INFINITY
        }
        _ => return date_part(field, value, zone).map(Part::Number),
    };
    // Whether there is such a field at all does not depend on the moment.
    let like = match value {
        Value::Date(_) => Value::Date(0),
        Value::Timestamp(_) => Value::Timestamp(0),
        _ => Value::Timestamptz(0),
    };
    date_part(field, &like, zone)?;
    Ok(match unit_named(field) {
        "year" | "isoyear" | "decade" | "century" | "millennium" | "epoch" | "julian" => {
            Part::Infinite(infinity)
        }
        _ => Part::Unknown,
    })
}

/// `extract(field from value)`, in microseconds of the field where it has fractions.
fn date_part(field: &str, value: &Value<'_>, zone: &Zone) -> Result<Numeric> {
    let field = unit_named(field);
    if let Value::Timestamptz(at) = value {
        let offset = i64::from(zone.offset_at(*at));
        return match field {
            "timezone" => Ok(offset.into()),
            "timezone_hour" => Ok((offset / 3600).into()),
            "timezone_minute" => Ok((offset / 60 % 60).into()),
            "epoch" => Ok(Numeric::new(i128::from(*at), 6).unwrap_or(Numeric::NAN)),
            _ => date_part(field, &Value::Timestamp(zone.local(*at)), zone),
        };
    }
    if let Value::Interval(interval) = value {
        return interval::part(*interval, field).ok_or_else(|| unknown_unit(field, value));
    }
    let (days, micros) = moment(value);
    let (year, month, day) = datetime::civil(days);
    let whole = |number: i64| Numeric::from(number);
    let timed = |field: &str| {
        matches!(field, "hour" | "minute" | "second" | "milliseconds" | "microseconds" | "epoch")
    };
    let unknown = || unknown_unit(field, value);
    // A clock alone has no day, and a day no clock.
    let is_absent = match value {
        Value::Time(_) => !timed(field),
        Value::Date(_) => timed(field) && field != "epoch",
        _ => false,
    };
    if is_absent || field.starts_with("timezone") {
        date_part(field, &Value::Timestamptz(0), zone).map_err(|_| unknown())?;
        let kind = value.value_type().map_or_else(String::new, crate::types::names::type_name);
        let message = format!("unit \"{field}\" not supported for type {kind}");
        return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message));
    }
    let of_micros = |micros: i64, scale: u8| Numeric::new(i128::from(micros), scale).unwrap_or(Numeric::NAN);
    Ok(match field {
        "year" => whole(if year > 0 { year } else { year - 1 }),
        "month" => whole(month),
        "day" => whole(day),
        "hour" => whole(micros / 3_600_000_000),
        "minute" => whole(micros / 60_000_000 % 60),
        "second" => of_micros(micros % 60_000_000, 6),
        "milliseconds" => of_micros(micros % 60_000_000, 3),
        "microseconds" => whole(micros % 60_000_000),
        "dow" => whole((days + 4).rem_euclid(7)),
        "isodow" => whole((days + 3).rem_euclid(7) + 1),
        "doy" => whole(days - datetime::days(year, 1, 1) + 1),
        "week" => whole(iso_week(days).1),
        "isoyear" => whole(iso_week(days).0),
        "quarter" => whole((month + 2) / 3),
        "decade" => whole(year.div_euclid(10)),
        "century" => whole((year + 99).div_euclid(100) - i64::from(year <= 0)),
        "millennium" => whole((year + 999).div_euclid(1000) - i64::from(year <= 0)),
        "julian" if micros == 0 => whole(days + 2_440_588),
        "julian" => {
            let day = Numeric::new(i128::from(micros), 6)
                .and_then(|part| part.checked_div(Numeric::from(86_400_i64)));
            day.and_then(|day| day.rescale(20)?.checked_add(Numeric::from(days + 2_440_588)))
                .unwrap_or(Numeric::NAN)
        }
        "epoch" if matches!(value, Value::Date(_)) => whole(days * 86_400),
        "epoch" => {
            Numeric::new(i128::from(days) * i128::from(DAY) + i128::from(micros), 6).unwrap_or(Numeric::NAN)
        }
        _ => return Err(unknown()),
    })
}

/// A unit by its one name: PostgreSQL takes several for some.
fn unit_named(field: &str) -> &str {
    match field {
        "years" | "yr" | "yrs" | "y" => "year",
        "months" | "mon" | "mons" => "month",
        "weeks" | "w" => "week",
        "days" | "d" => "day",
        "hours" | "hr" | "hrs" | "h" => "hour",
        "minutes" | "min" | "mins" | "m" => "minute",
        "seconds" | "sec" | "secs" | "s" => "second",
        "millisecond" | "msec" | "msecs" | "ms" => "milliseconds",
        "microsecond" | "usec" | "usecs" | "us" => "microseconds",
        "decades" | "dec" | "decs" => "decade",
        "centuries" | "cent" | "c" => "century",
        "millennia" | "mil" | "mils" => "millennium",
        "qtr" => "quarter",
        other => other,
    }
}

/// The start of the unit in which a clock shows `micros`; `None` for a unit that it does not know.
fn date_trunc(field: &str, micros: i64) -> Option<i64> {
    if matches!(micros, i64::MAX | i64::MIN) {
        return date_trunc(field, 0).and(Some(micros));
    }
    let unit = |unit: i64| micros - micros.rem_euclid(unit);
    let days = micros.div_euclid(DAY);
    let (year, month, _) = datetime::civil(days);
    Some(match field {
        "microseconds" => micros,
        "milliseconds" => unit(1000),
        "second" => unit(1_000_000),
        "minute" => unit(60_000_000),
        "hour" => unit(3_600_000_000),
        "day" => unit(DAY),
        "week" => (days - (days + 3).rem_euclid(7)) * DAY,
        "month" => datetime::days(year, month, 1) * DAY,
        "quarter" => datetime::days(year, (month - 1) / 3 * 3 + 1, 1) * DAY,
        "year" => datetime::days(year, 1, 1) * DAY,
        "decade" => datetime::days(year.div_euclid(10) * 10, 1, 1) * DAY,
        "century" => datetime::days((year - 1).div_euclid(100) * 100 + 1, 1, 1) * DAY,
        "millennium" => datetime::days((year - 1).div_euclid(1000) * 1000 + 1, 1, 1) * DAY,
        _ => return None,
    })
}

/// Waits, and looks up now and then whether it shall go on.
fn sleep(seconds: f64, cx: &Context<'_>) -> Result<Value<'static>> {
    const LOOK: Duration = Duration::from_millis(10);
    let clock = &cx.env.clock;
    let start = clock.monotonic_nanos();
    loop {
        cx.interrupt.check_now(cx.env)?;
        let passed = clock.monotonic_nanos().saturating_sub(start) as f64 / 1e9;
        match Duration::try_from_secs_f64(seconds - passed) {
            Ok(left) if !left.is_zero() => clock.sleep(left.min(LOOK)),
            // Nothing is left, or what was asked for is no time.
            _ if seconds - passed > 1.0 => clock.sleep(LOOK),
            _ => return Ok(Value::text("")),
        }
    }
}

impl Function {
    /// True for those that only operators and words of the grammar call.
    #[cfg(test)]
    pub(crate) fn is_of_operators(self) -> bool {
        use Function as F;
        matches!(
            self,
            F::ArrayContained
                | F::ArrayContains
                | F::ArrayOverlaps
                | F::Between
                | F::Greatest
                | F::IntervalAdd
                | F::IntervalDivided
                | F::IntervalTimes
                | F::JsonbConcat
                | F::JsonbContained
                | F::JsonbContains
                | F::JsonbDelete
                | F::JsonbDeleteAll
                | F::JsonbDeleteAt
                | F::JsonbDeletePath
                | F::ArraySlice
                | F::BytesConcat
                | F::JsonRow
                | F::Keep
                | F::Least
                | F::RegexpSubstring
                | F::SimilarPattern
                | F::Shifted
        )
    }

    pub(crate) fn is_volatile(self) -> bool {
        matches!(self, Self::NewUuid | Self::Random | Self::Sleep | Self::ClockTimestamp)
    }

    fn takes_nulls(self) -> bool {
        matches!(self, Self::Concat | Self::ConcatWs | Self::Greatest | Self::Least | Self::JsonbSetLax)
            || self.is_of_lists()
    }

    /// True when it answers NULL where one of its arguments is NULL.
    pub(crate) fn is_strict(self) -> bool {
        if self.is_of_more() { !self.more_takes_nulls() } else { !self.takes_nulls() }
    }

    pub(crate) fn call<'a>(
        self,
        arguments: &'a [Expr],
        cx: &Context<'a>,
        input: &'a dyn Input,
    ) -> Result<Value<'a>> {
        let mut values = Vec::with_capacity(arguments.len());
        let mut operands = Operands::new(cx.interrupt);
        let stops_at_null = !self.is_of_more() && !self.takes_nulls();
        for argument in arguments {
            let value = argument.eval(cx, input)?;
            if stops_at_null && value.is_null() {
                return Ok(Value::Null);
            }
            operands.hold(&value)?;
            values.push(value);
        }
        if operands.are_large() {
            cx.interrupt.check_now(cx.env)?;
        }
        let made = if self.is_of_more() { self.more(&values, cx)? } else { self.of_values(&values, cx)? };
        bounds::check_made(&made)?;
        Ok(made)
    }

    fn of_values(self, values: &[Value<'_>], cx: &Context<'_>) -> Result<Value<'static>> {
        if let Some(value) = self.by_kind(values, cx)? {
            return Ok(value);
        }
        if let Some(value) = self.of_times(values, cx)? {
            return Ok(value);
        }
        if let Some(value) = self.of_jsonb(values)? {
            return Ok(value);
        }
        let result = match values {
            [] => self.without_arguments(cx)?,
            [seconds] if self == Self::Sleep => sleep(to_f64(seconds).unwrap_or_default(), cx)?,
            [first, rest @ ..] => match first {
                _ if self.takes_nulls() => self.of_many(values)?,
                // A cast to `varchar(n)[]` cuts each element.
                Value::Array(texts) if self == Self::Left => {
                    let mut cut = Vec::new();
                    for item in texts.iter() {
                        cut.push(match item.map_err(|_| bug("an element"))? {
                            Value::Text(text) => self.of_text(&text, rest, cx.zone)?,
                            _ => Value::Null,
                        });
                    }
                    Value::Array(Array::new(Scalar::Text, cut).map_err(|_| bug("texts that make no array"))?)
                }
                Value::Text(_) | Value::Json(_) => self.of_text(text(first), rest, cx.zone)?,
                _ => self.of_others(first, rest)?,
            },
        };
        Ok(result)
    }

    /// What a function of bytes, patterns, numbers or lists answers; `None` if it is another one.
    fn by_kind(self, values: &[Value<'_>], cx: &Context<'_>) -> Result<Option<Value<'static>>> {
        if let found @ Some(_) = self.of_bytes(values)? {
            return Ok(found);
        }
        if let found @ Some(_) = self.of_regex(values)? {
            return Ok(found);
        }
        if let found @ Some(_) = self.of_numbers(values)? {
            return Ok(found);
        }
        self.of_lists(values, cx.zone)
    }

    fn without_arguments(self, cx: &Context<'_>) -> Result<Value<'static>> {
        Ok(match self {
            Self::Now => Value::Timestamptz(cx.now),
            Self::Pi => Value::Float8(std::f64::consts::PI),
            // 53 random bits are every double in [0, 1) that has the same distance to the next.
            Self::Random => Value::Float8((cx.env.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64),
            Self::NewUuid => {
                let (high, low) = (cx.env.random.next_u64(), cx.env.random.next_u64());
                let bytes = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
                Value::Uuid(uuid::Builder::from_random_bytes(bytes).into_uuid().into_bytes())
            }
            _ => return Err(bug("a function without its arguments")),
        })
    }

    fn of_many(self, values: &[Value<'_>]) -> Result<Value<'static>> {
        let given = values.iter().filter(|value| !value.is_null());
        Ok(match self {
            Self::Concat => {
                let mut joined = bounds::Text::default();
                joined.join(given.filter_map(to_text), "")?;
                Value::text(joined.finish())
            }
            Self::ConcatWs => match values.split_first() {
                Some((Value::Text(separator), rest)) => {
                    let mut joined = bounds::Text::default();
                    joined.join(rest.iter().filter_map(to_text), separator)?;
                    Value::text(joined.finish())
                }
                _ => Value::Null,
            },
            Self::Greatest => {
                given.max_by(|a, b| arith::order(a, b)).cloned().map_or(Value::Null, Value::into_owned)
            }
            _ => given.min_by(|a, b| arith::order(a, b)).cloned().map_or(Value::Null, Value::into_owned),
        })
    }

    /// The characters that a function trims off.
    fn trimmed(self, given: &str, is_blank: bool) -> HashSet<char> {
        match self {
            Self::Trim | Self::Ltrim | Self::Rtrim if is_blank => HashSet::from([' ']),
            Self::Trim | Self::Ltrim | Self::Rtrim => given.chars().collect(),
            _ => HashSet::new(),
        }
    }

    fn of_text(self, subject: &str, rest: &[Value<'_>], zone: &Zone) -> Result<Value<'static>> {
        let second = rest.first().map(text).unwrap_or_default();
        let trimmed = self.trimmed(second, rest.is_empty());
        let is_trimmed = |c: char| trimmed.contains(&c);
        let count = integer(rest.first());
        // A negative count leaves out so many at the other end.
        let kept = |all: usize| {
            let all = i64::try_from(all).unwrap_or(i64::MAX);
            usize::try_from(if count < 0 { (all + count).max(0) } else { count.min(all) }).unwrap_or_default()
        };
        Ok(match self {
            Self::Lower => Value::text(subject.chars().map(lower).collect::<String>()),
            Self::Upper => Value::text(subject.chars().map(upper).collect::<String>()),
            Self::Initcap => {
                let mut inside = false;
                let mut out = String::with_capacity(subject.len());
                for c in subject.chars() {
                    out.push(if inside { lower(c) } else { upper(c) });
                    inside = c.is_alphanumeric();
                }
                Value::text(out)
            }
            Self::Reverse => Value::text(subject.chars().rev().collect::<String>()),
            Self::Length => int4(subject.chars().count()),
            Self::OctetLength => int4(subject.len()),
            Self::Substr => {
                let length = rest.get(1).map(|v| integer(Some(v)));
                Value::text(substring(subject, count, length)?.to_owned())
            }
            Self::Left => {
                Value::text(subject.chars().take(kept(subject.chars().count())).collect::<String>())
            }
            Self::Right => {
                let all = subject.chars().count();
                Value::text(subject.chars().skip(all - kept(all)).collect::<String>())
            }
            Self::Trim => Value::text(subject.trim_matches(is_trimmed).to_owned()),
            Self::Ltrim => Value::text(subject.trim_start_matches(is_trimmed).to_owned()),
            Self::Rtrim => Value::text(subject.trim_end_matches(is_trimmed).to_owned()),
            Self::Lpad | Self::Rpad => {
                let fill = rest.get(1).map_or(" ", text);
                Value::text(pad(subject, count, fill, self == Self::Lpad)?)
            }
            Self::Repeat => {
                let times = usize::try_from(count).unwrap_or_default();
                bounds::check_text(subject.len().saturating_mul(times))?;
                Value::text(subject.repeat(times))
            }
            Self::Replace if second.is_empty() => Value::text(subject.to_owned()),
            Self::Replace => {
                let mut replaced = bounds::Text::default();
                let new = rest.get(1).map(text).unwrap_or_default();
                for (place, part) in subject.split(second).enumerate() {
                    if place > 0 {
                        replaced.push(new)?;
                    }
                    replaced.push(part)?;
                }
                Value::text(replaced.finish())
            }
            Self::SplitPart => {
                let number = integer(rest.get(1));
                if number == 0 {
                    let message = "field position must not be zero";
                    return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
                }
                let parts: Vec<&str> =
                    if second.is_empty() { vec![subject] } else { subject.split(second).collect() };
                let place = if number > 0 { number - 1 } else { parts.len() as i64 + number };
                let part = usize::try_from(place).ok().and_then(|place| parts.get(place));
                Value::text(part.copied().unwrap_or_default().to_owned())
            }
            Self::StartsWith => Value::Bool(subject.starts_with(second)),
            Self::Strpos => {
                let found = subject.find(second).and_then(|place| subject.get(..place));
                int4(found.map_or(0, |before| before.chars().count() + 1))
            }
            Self::Ascii => {
                Value::Int4(subject.chars().next().map_or(0, |c| i32::try_from(u32::from(c)).unwrap_or(0)))
            }
            Self::DatePart | Self::Extract => {
                let Some(value) = rest.first() else { return Ok(Value::Null) };
                let field = subject.to_ascii_lowercase();
                match (self, part_of(&field, value, zone)?) {
                    (_, Part::Unknown) => Value::Null,
                    (Self::DatePart, Part::Number(number)) => Value::Float8(number.to_f64()),
                    (Self::DatePart, Part::Infinite(float)) => Value::Float8(float),
                    (_, Part::Number(number)) => Value::Numeric(number),
                    (_, Part::Infinite(_)) => {
                        let message = format!("extract({field}) of infinity: numerics have no infinity");
                        return Err(SqlError::unsupported(message, "use date_part, which answers a double"));
                    }
                }
            }
            Self::DateTrunc => {
                let field = subject.to_ascii_lowercase();
                let field = unit_named(&field).to_owned();
                match rest.first() {
                    Some(value @ Value::Timestamp(micros)) => Value::Timestamp(
                        date_trunc(&field, *micros).ok_or_else(|| unknown_unit(&field, value))?,
                    ),
                    Some(value @ Value::Interval(interval)) => Value::Interval(
                        interval::truncated(*interval, &field).ok_or_else(|| unknown_unit(&field, value))?,
                    ),
                    Some(value @ Value::Timestamptz(micros)) => {
                        let named = rest.get(1).map(|name| zone_named(text(name))).transpose()?;
                        let zone = named.as_ref().unwrap_or(zone);
                        // What is no date is cut off the moment itself: an hour that comes twice stays what it is.
                        let is_clock = matches!(
                            field.as_str(),
                            "microseconds" | "milliseconds" | "second" | "minute" | "hour"
                        );
                        let local = date_trunc(&field, zone.local(*micros));
                        let local = local.ok_or_else(|| unknown_unit(&field, value))?;
                        Value::Timestamptz(match is_clock {
                            true => micros.saturating_sub(zone.local(*micros).saturating_sub(local)),
                            false => zone.moment(local),
                        })
                    }
                    _ => Value::Null,
                }
            }
            Self::InZone => match rest.first() {
                Some(Value::Timestamptz(micros)) => Value::Timestamp(zone_named(subject)?.local(*micros)),
                Some(Value::Timestamp(micros)) => Value::Timestamptz(zone_named(subject)?.moment(*micros)),
                _ => Value::Null,
            },
            Self::JsonArrayLength => int4(json::array_length(subject).ok_or_else(|| {
                SqlError::new(state::INVALID_PARAMETER_VALUE, "cannot get array length of a non-array")
            })?),
            Self::JsonTypeof => Value::text(json::kind(subject)),
            _ => return Err(bug("a function of something else")),
        })
    }

    fn of_others(self, first: &Value<'_>, rest: &[Value<'_>]) -> Result<Value<'static>> {
        let digits = integer(rest.first());
        let numeric = match first {
            Value::Numeric(number) => Some(*number),
            _ => None,
        };
        Ok(match (self, numeric) {
            (Self::OctetLength, _) => match first {
                Value::Bytea(bytes) => int4(bytes.len()),
                _ => Value::Null,
            },
            (Self::Chr, _) if integer(Some(first)) < 0 => {
                let message = "character number must be positive";
                return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
            }
            (Self::Chr, _) => {
                let c = u32::try_from(integer(Some(first))).ok().filter(|c| *c != 0).and_then(char::from_u32);
                let error =
                    || SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, "requested character is not a character");
                Value::text(c.ok_or_else(error)?.to_string())
            }
            // The absolute of the zero below zero, too.
            (Self::Abs, _) if let Value::Float8(value) = first => Value::Float8(value.abs()),
            (Self::Abs, _) if let Value::Float4(value) = first => Value::Float4(value.abs()),
            (Self::Abs, _) => match first.compare(&Value::Int2(0)) {
                Some(std::cmp::Ordering::Less) => negate(first)?,
                _ => first.clone().into_owned(),
            },
            (Self::Ceil, Some(number)) => return numeric_result(cut(number, 0, 1)),
            (Self::Floor, Some(number)) => return numeric_result(cut(number, 0, -1)),
            (Self::Trunc, Some(number)) => return numeric_result(cut(number, digits, 0)),
            (Self::Round, Some(number)) => return numeric_result(rounded(number, digits)),
            (Self::Sign, Some(number)) => Value::Numeric(Numeric::from(number.mantissa().signum() as i64)),
            (Self::Ceil, None) => return float_function(f64::ceil, first),
            (Self::Floor, None) => return float_function(f64::floor, first),
            (Self::Trunc, None) => return float_function(f64::trunc, first),
            (Self::Round, None) => return float_function(f64::round_ties_even, first),
            (Self::Sign, None) => return float_function(|x| if x == 0.0 { 0.0 } else { x.signum() }, first),
            (Self::Sqrt, _) if to_f64(first).is_some_and(|x| x < 0.0) => {
                let message = "cannot take square root of a negative number";
                return Err(SqlError::new(state::INVALID_ARGUMENT_FOR_POWER, message));
            }
            (Self::Sqrt, _) => return float_function(f64::sqrt, first),
            (Self::Exp, _) => return float_function(f64::exp, first),
            (Self::Ln | Self::Log, _) if to_f64(first).is_some_and(|x| x <= 0.0) => {
                let message = "cannot take logarithm of zero or a negative number";
                return Err(SqlError::new(state::INVALID_ARGUMENT_FOR_LOGARITHM, message));
            }
            (Self::Ln, _) => return float_function(f64::ln, first),
            (Self::Log, _) => return float_function(f64::log10, first),
            (Self::Power, _) => {
                let exponent = rest.first().and_then(to_f64).unwrap_or(f64::NAN);
                let base = to_f64(first).unwrap_or(f64::NAN);
                if base == 0.0 && exponent < 0.0 || base < 0.0 && base.is_finite() && exponent.fract() != 0.0
                {
                    let message = "zero raised to a negative power, or a negative number to a fraction";
                    return Err(SqlError::new(state::INVALID_ARGUMENT_FOR_POWER, message));
                }
                return float_function(|x| x.powf(exponent), first);
            }
            (Self::Mod, _) => {
                let ty = first.value_type().unwrap_or(Type::INT8);
                return arith::arithmetic(arith::Arith::Rem, first, rest.first().unwrap_or(&Value::Null), ty);
            }
            (Self::MakeDate, _) => {
                let (year, month, day) = (integer(Some(first)), integer(rest.first()), integer(rest.get(1)));
                // Before our era they are counted without a year 0.
                let of_calendar = if year < 0 { year + 1 } else { year };
                let fits = year != 0
                    && (-4713..=5_874_897).contains(&year)
                    && (1..=12).contains(&month)
                    && (1..=datetime::days_in_month(of_calendar, month)).contains(&day);
                match i32::try_from(datetime::days(of_calendar, month, day)) {
                    Ok(days) if fits => Value::Date(days),
                    _ => {
                        let message = format!("date field value out of range: {year}-{month:02}-{day:02}");
                        return Err(SqlError::new(state::DATETIME_FIELD_OVERFLOW, message));
                    }
                }
            }
            (Self::ToTimestamp, _) => {
                let seconds = to_f64(first).unwrap_or(f64::NAN);
                let micros = cast(Value::Float8(seconds * 1e6), Type::INT8)?.as_integer();
                Value::Timestamptz(micros.unwrap_or_default())
            }
            (Self::ArrayLength, _) => match first {
                // Ours have one dimension; an empty array has none.
                Value::Array(array) if rest.is_empty() => int4(array.len()),
                Value::Array(array) if digits == 1 && !array.is_empty() => int4(array.len()),
                _ => Value::Null,
            },
            _ => return Err(bug("a function of something else")),
        })
    }
}

/// The scalar of an array that holds values of `ty`; arrays of arrays are none.
pub(crate) fn element_of(ty: Type) -> Option<Scalar> {
    match ty {
        Type::Scalar(scalar) => Some(scalar),
        Type::Array(_) => None,
    }
}
