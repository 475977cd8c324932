//! More functions: of arrays, of JSON, and of text search and concatenation.

use std::collections::{HashMap, HashSet};

use ropewalk::tables::{Scalar, Type, Value};

use crate::expr::arith::{not_distinct, put_identity};
use crate::expr::bounds::{self, array};
use crate::expr::{Context, bug};
use crate::functions::datetime_template::{interval_to_char, to_char};
use crate::functions::{Function, Resolved, shown_arguments};
use crate::types::error::{Result, SqlError, state};
use crate::types::json;
use crate::types::names::common;
use crate::types::text_format::{to_text, to_text_in};
use crate::types::zone::Zone;

fn damaged(error: impl std::fmt::Display) -> SqlError {
    SqlError::new(state::DATA_CORRUPTED, error.to_string())
}

fn items(value: &Value<'_>) -> Result<Vec<Value<'static>>> {
    match value {
        Value::Array(array) => {
            array.iter().map(|item| item.map(Value::into_owned).map_err(damaged)).collect()
        }
        _ => Ok(Vec::new()),
    }
}

fn text<'v>(value: Option<&'v Value<'_>>) -> &'v str {
    match value {
        Some(Value::Text(text) | Value::Json(text) | Value::Jsonb(text)) => text,
        _ => "",
    }
}

/// The array, JSON or text function with this name, if any.
pub(crate) fn resolve(name: &str, types: &[Option<Type>]) -> Option<Resolved> {
    use Function as F;
    const TEXT: Type = Type::TEXT;
    let known = |place: usize| types.get(place).copied().flatten();
    let resolved = |function, arguments: Vec<Type>, result| Some(Resolved { function, arguments, result });
    // The type of an argument that goes with an array's elements.
    let element = |place: usize| match known(place)? {
        Type::Array(element) => Some(Type::Scalar(element)),
        Type::Scalar(_) => None,
    };
    match (name, types.len()) {
        ("array_to_string", 2) => {
            resolved(F::ArrayToString, vec![known(0)?, TEXT], TEXT).filter(|_| element(0).is_some())
        }
        ("array_to_string", 3) => {
            resolved(F::ArrayToString, vec![known(0)?, TEXT, TEXT], TEXT).filter(|_| element(0).is_some())
        }
        ("string_to_array", 2) => resolved(F::StringToArray, vec![TEXT; 2], TEXT.array()),
        ("string_to_array", 3) => resolved(F::StringToArray, vec![TEXT; 3], TEXT.array()),
        ("array_upper" | "array_lower", 2) => {
            element(0)?;
            let function = if name == "array_upper" { F::ArrayUpper } else { F::ArrayLower };
            resolved(function, vec![known(0)?, Type::INT4], Type::INT4)
        }
        ("array_ndims", 1) => element(0).and_then(|_| resolved(F::ArrayNdims, vec![known(0)?], Type::INT4)),
        ("array_append", 2) | ("array_remove", 2) | ("array_position", 2) => {
            let element = element(0).or(known(1))?;
            let (function, result) = match name {
                "array_append" => (F::ArrayAppend, element.array()),
                "array_remove" => (F::ArrayRemove, element.array()),
                _ => (F::ArrayPosition, Type::INT4),
            };
            resolved(function, vec![element.array(), element], result)
        }
        ("array_prepend", 2) => {
            let element = element(1).or(known(0))?;
            resolved(F::ArrayPrepend, vec![element, element.array()], element.array())
        }
        ("array_cat" | "*contains" | "*contained" | "*overlaps", 2) => {
            let element = match (element(0), element(1)) {
                (Some(a), Some(b)) => common(a, b)?,
                (Some(one), None) | (None, Some(one)) => one,
                (None, None) => return None,
            };
            let (function, result) = match name {
                "array_cat" => (F::ArrayCat, element.array()),
                "*contains" => (F::ArrayContains, Type::BOOL),
                "*contained" => (F::ArrayContained, Type::BOOL),
                _ => (F::ArrayOverlaps, Type::BOOL),
            };
            resolved(function, vec![element.array(); 2], result)
        }
        ("quote_ident", 1) => resolved(F::QuoteIdent, vec![TEXT], TEXT),
        ("quote_literal", 1) => resolved(F::QuoteLiteral, vec![TEXT], TEXT),
        ("quote_nullable", 1) => resolved(F::QuoteNullable, vec![TEXT], TEXT),
        ("format", 1..) => {
            let arguments = [vec![TEXT], shown_arguments(types.get(1..).unwrap_or_default())].concat();
            resolved(F::Format, arguments, TEXT)
        }
        ("translate", 3) => resolved(F::Translate, vec![TEXT; 3], TEXT),
        ("to_hex", 1) => {
            let ty = if matches!(known(0), Some(Type::INT2 | Type::INT4)) { Type::INT4 } else { Type::INT8 };
            resolved(F::ToHex, vec![ty], TEXT)
        }
        ("json_extract_path" | "json_extract_path_text", 2..) => {
            let arguments = [vec![Type::JSON], vec![TEXT; types.len() - 1]].concat();
            let is_text = name.ends_with("_text");
            let function = if is_text { F::JsonPathText } else { F::JsonPath };
            resolved(function, arguments, if is_text { TEXT } else { Type::JSON })
        }
        ("*path" | "*path_text", 2) => {
            let is_text = name == "*path_text";
            let function = if is_text { F::JsonPathText } else { F::JsonPath };
            resolved(function, vec![Type::JSON, TEXT.array()], if is_text { TEXT } else { Type::JSON })
        }
        ("to_json" | "row_to_json", 1) => resolved(F::ToJson, vec![known(0).unwrap_or(TEXT)], Type::JSON),
        ("json_build_array", _) => {
            resolved(F::JsonBuildArray, types.iter().map(|ty| ty.unwrap_or(TEXT)).collect(), Type::JSON)
        }
        ("json_build_object", count) if count % 2 == 0 => {
            resolved(F::JsonBuildObject, types.iter().map(|ty| ty.unwrap_or(TEXT)).collect(), Type::JSON)
        }
        ("num_nulls", 1..) => {
            resolved(F::NumNulls, types.iter().map(|ty| ty.unwrap_or(TEXT)).collect(), Type::INT4)
        }
        ("clock_timestamp" | "statement_timestamp", 0) => {
            resolved(F::ClockTimestamp, Vec::new(), Type::TIMESTAMPTZ)
        }
        ("to_char", 2) => match known(0)? {
            ty @ (Type::TIMESTAMP | Type::TIMESTAMPTZ | Type::INTERVAL) => {
                resolved(F::ToChar, vec![ty, TEXT], TEXT)
            }
            Type::DATE => resolved(F::ToChar, vec![Type::TIMESTAMPTZ, TEXT], TEXT),
            Type::TIME => resolved(F::ToChar, vec![Type::INTERVAL, TEXT], TEXT),
            Type::FLOAT4 | Type::FLOAT8 => resolved(F::ToChar, vec![Type::FLOAT8, TEXT], TEXT),
            ty if crate::types::names::rank(ty).is_some() => {
                resolved(F::ToChar, vec![Type::NUMERIC, TEXT], TEXT)
            }
            _ => None,
        },
        ("div", 2) => resolved(F::Div, vec![Type::NUMERIC; 2], Type::NUMERIC),
        ("cbrt", 1) => resolved(F::Cbrt, vec![Type::FLOAT8], Type::FLOAT8),
        ("pg_size_pretty", 1) => resolved(F::SizePretty, vec![Type::INT8], TEXT),
        _ => None,
    }
}

/// A value as JSON, with instants in the local time of `zone`: numbers, bools, JSON and arrays keep their
/// form, all other types become strings.
pub(crate) fn json_of(value: &Value<'_>, zone: &Zone) -> String {
    let plain = || to_text_in(value, zone).unwrap_or_default();
    match value {
        Value::Null => "null".into(),
        Value::Bool(truth) => truth.to_string(),
        Value::Int2(_) | Value::Int4(_) | Value::Int8(_) => plain(),
        Value::Float4(float) if float.is_finite() => plain(),
        Value::Float8(float) if float.is_finite() => plain(),
        Value::Numeric(number) if !number.is_nan() => plain(),
        Value::Json(document) | Value::Jsonb(document) => document.to_string(),
        Value::Array(array) => {
            let items = array.iter().flatten().map(|item| json_of(&item, zone)).collect::<Vec<_>>();
            format!("[{}]", items.join(","))
        }
        Value::Timestamp(_) | Value::Timestamptz(_) => {
            // JavaScript's ISO 8601 requires minutes in every offset.
            let shown = plain().replacen(' ', "T", 1);
            let hours_alone = shown.len().checked_sub(3).and_then(|place| shown.get(place..));
            let is_short = hours_alone.is_some_and(|end| end.starts_with(['+', '-']) && shown.contains('T'));
            quoted(&if is_short { format!("{shown}:00") } else { shown })
        }
        _ => quoted(&plain()),
    }
}

/// Text as an SQL literal that is independent of `standard_conforming_strings`.
pub(crate) fn quoted_literal(text: &str) -> String {
    let quoted = crate::catalog::literal(text);
    if quoted.contains('\\') { format!("E{}", quoted.replace('\\', "\\\\")) } else { quoted }
}

/// Text as a JSON string.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out += "\\\"",
            '\\' => out += "\\\\",
            '\n' => out += "\\n",
            '\r' => out += "\\r",
            '\t' => out += "\\t",
            c if u32::from(c) < 0x20 => out += &format!("\\u{:04x}", u32::from(c)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The part of a document at a path of member names and element numbers.
fn path(document: &str, steps: impl Iterator<Item = String>) -> Option<&str> {
    steps.into_iter().try_fold(document, |part, step| {
        json::member(part, &step).or_else(|| json::element(part, step.parse().ok()?))
    })
}

fn pretty(bytes: i64) -> String {
    const UNITS: [&str; 6] = ["bytes", "kB", "MB", "GB", "TB", "PB"];
    let (mut size, mut place) = (bytes as f64, 0);
    while size.abs() >= 10_240.0 && place + 1 < UNITS.len() {
        size /= 1024.0;
        place += 1;
    }
    format!("{} {}", size.round(), UNITS.get(place).copied().unwrap_or_default())
}

impl Function {
    /// True for functions of this module, which accept NULLs.
    pub(crate) fn is_of_more(self) -> bool {
        use Function as F;
        matches!(
            self,
            F::ArrayAppend
                | F::ArrayCat
                | F::ArrayContained
                | F::ArrayContains
                | F::ArrayLower
                | F::ArrayNdims
                | F::ArrayOverlaps
                | F::ArrayPosition
                | F::ArrayPrepend
                | F::ArrayRemove
                | F::ArrayToString
                | F::ArrayUpper
                | F::Cbrt
                | F::ClockTimestamp
                | F::Div
                | F::Format
                | F::JsonBuildArray
                | F::JsonBuildObject
                | F::JsonPath
                | F::JsonPathText
                | F::NumNulls
                | F::QuoteIdent
                | F::QuoteLiteral
                | F::QuoteNullable
                | F::SizePretty
                | F::StringToArray
                | F::ToChar
                | F::ToHex
                | F::ToJson
                | F::Translate
        )
    }

    /// True for functions of this module that handle NULL arguments themselves.
    pub(crate) fn more_takes_nulls(self) -> bool {
        use Function as F;
        matches!(
            self,
            F::ArrayAppend
                | F::ArrayPrepend
                | F::ArrayCat
                | F::ArrayPosition
                | F::ArrayRemove
                | F::StringToArray
                | F::ArrayToString
                | F::Format
                | F::JsonBuildArray
                | F::JsonBuildObject
                | F::NumNulls
                | F::QuoteNullable
        )
    }

    pub(crate) fn more(self, values: &[Value<'_>], cx: &Context<'_>) -> Result<Value<'static>> {
        use Function as F;
        let zone = cx.zone;
        let first = values.first();
        let second = values.get(1);
        let invalid = |message: &str| SqlError::new(state::INVALID_PARAMETER_VALUE, message.to_owned());
        if !self.more_takes_nulls() && values.iter().any(Value::is_null) {
            return Ok(Value::Null);
        }
        let element = |value: Option<&Value<'_>>| match value.and_then(Value::value_type) {
            Some(Type::Array(element) | Type::Scalar(element)) => Some(element),
            None => None,
        };
        let list = |value: Option<&Value<'_>>| value.map_or_else(|| Ok(Vec::new()), items);
        let null = |value: Option<&Value<'_>>| value.is_none_or(Value::is_null);
        Ok(match self {
            F::ArrayAppend | F::ArrayPrepend => {
                let (whole, one) = if self == F::ArrayAppend { (first, second) } else { (second, first) };
                let Some(element) = element(whole).or(element(one)) else { return Ok(Value::Null) };
                let (mut all, one) = (list(whole)?, one.cloned().map_or(Value::Null, Value::into_owned));
                if self == F::ArrayAppend {
                    all.push(one)
                } else {
                    all.insert(0, one)
                }
                array(element, all)?
            }
            F::ArrayCat => {
                let Some(element) = element(first).or(element(second)) else { return Ok(Value::Null) };
                array(element, [list(first)?, list(second)?].concat())?
            }
            F::ArrayRemove | F::ArrayPosition => {
                if null(first) {
                    return Ok(Value::Null);
                }
                let (all, one) = (list(first)?, second.cloned().unwrap_or(Value::Null));
                if self == F::ArrayPosition {
                    let place = all.iter().position(|item| not_distinct(item, &one));
                    return Ok(place
                        .and_then(|place| i32::try_from(place + 1).ok())
                        .map_or(Value::Null, Value::Int4));
                }
                let Some(element) = element(first) else { return Ok(Value::Null) };
                array(element, all.into_iter().filter(|item| !not_distinct(item, &one)).collect())?
            }
            F::ArrayContains | F::ArrayContained | F::ArrayOverlaps => {
                let (a, b) = (list(first)?, list(second)?);
                // NULL equals no element.
                let identity = |item: &Value<'_>| {
                    let mut identity = Vec::new();
                    put_identity(item, &mut identity);
                    identity
                };
                let (asked, among) = if self == F::ArrayContains { (&b, &a) } else { (&a, &b) };
                let known: HashSet<Vec<u8>> =
                    among.iter().filter(|item| !item.is_null()).map(identity).collect();
                let mut found = asked.iter().map(|item| !item.is_null() && known.contains(&identity(item)));
                Value::Bool(if self == F::ArrayOverlaps { found.any(|is| is) } else { found.all(|is| is) })
            }
            F::ArrayUpper | F::ArrayLower | F::ArrayNdims => {
                let count = list(first)?.len();
                let dimension =
                    if self == F::ArrayNdims { Some(1) } else { second.and_then(Value::as_integer) };
                match i32::try_from(count) {
                    Ok(count) if count > 0 && dimension == Some(1) => {
                        Value::Int4(if self == F::ArrayUpper { count } else { 1 })
                    }
                    _ => Value::Null,
                }
            }
            F::ArrayToString => {
                if null(first) || null(second) {
                    return Ok(Value::Null);
                }
                let instead = values.get(2).and_then(to_text);
                let shown = |item: &Value<'_>| to_text_in(item, zone).or_else(|| instead.clone());
                let mut joined = bounds::Text::default();
                joined.join(list(first)?.iter().filter_map(shown), text(second))?;
                Value::text(joined.finish())
            }
            F::StringToArray => {
                if null(first) {
                    return Ok(Value::Null);
                }
                let whole = text(first);
                let parts = || -> Box<dyn Iterator<Item = &str> + '_> {
                    match second {
                        _ if whole.is_empty() => Box::new(std::iter::empty()),
                        Some(Value::Text(between)) if between.is_empty() => Box::new(std::iter::once(whole)),
                        Some(Value::Text(between)) => Box::new(whole.split(between.as_ref())),
                        _ => Box::new(whole.split_inclusive(|_| true)),
                    }
                };
                let each = std::mem::size_of::<Value<'_>>();
                bounds::check_list(parts().count().saturating_mul(each).saturating_add(whole.len()))?;
                let nothing = values.get(2).and_then(to_text);
                let value = |part: &str| {
                    if nothing.as_deref() == Some(part) { Value::Null } else { Value::text(part.to_owned()) }
                };
                array(Scalar::Text, parts().map(value).collect())?
            }
            F::QuoteIdent => Value::text(crate::catalog::ident(text(first))),
            F::QuoteLiteral => Value::text(quoted_literal(text(first))),
            F::QuoteNullable if null(first) => Value::text("NULL"),
            F::QuoteNullable => Value::text(quoted_literal(text(first))),
            F::Format if null(first) => Value::Null,
            F::Format => Value::text(crate::functions::format::format(
                text(first),
                values.get(1..).unwrap_or_default(),
            )?),
            F::Translate => {
                let mut to = text(values.get(2)).chars();
                let mut moves: HashMap<char, Option<char>> = HashMap::new();
                for c in text(second).chars() {
                    let new = to.next();
                    // The first of several occurrences counts.
                    moves.entry(c).or_insert(new);
                }
                let moved = text(first).chars().filter_map(|c| moves.get(&c).map_or(Some(c), |new| *new));
                Value::text(moved.collect::<String>())
            }
            F::ToHex if let Some(Value::Int4(number)) = first => Value::text(format!("{number:x}")),
            F::ToHex => Value::text(format!("{:x}", first.and_then(Value::as_integer).unwrap_or_default())),
            F::JsonPath | F::JsonPathText => {
                let steps: Option<Vec<String>> = match second {
                    Some(Value::Array(_)) => list(second)?.iter().map(to_text).collect(),
                    _ => values.iter().skip(1).map(to_text).collect(),
                };
                // A NULL step matches no part.
                match steps.and_then(|steps| path(text(first), steps.into_iter())) {
                    Some(found) => json::shown(found, self == F::JsonPathText),
                    None => Value::Null,
                }
            }
            F::ToJson => Value::json(first.map_or_else(|| "null".into(), |value| json_of(value, zone))),
            F::JsonBuildArray => {
                let mut items = bounds::Text::default();
                items.push("[")?;
                items.join(values.iter().map(|value| json_of(value, zone)), ", ")?;
                items.push("]")?;
                Value::json(items.finish())
            }
            F::JsonBuildObject => {
                let mut members = bounds::Text::default();
                members.push("{")?;
                for pair in values.chunks(2) {
                    let [key, value] = pair else { return Err(bug("a key without a value")) };
                    if key.is_null() {
                        return Err(invalid("argument 1: key must not be null"));
                    }
                    let key = json_of(key, zone);
                    let key = if key.starts_with('"') { key } else { quoted(&key) };
                    if members.len() > 1 {
                        members.push(", ")?;
                    }
                    members.join([key, json_of(value, zone)], " : ")?;
                }
                members.push("}")?;
                Value::json(members.finish())
            }
            F::NumNulls => Value::Int4(
                i32::try_from(values.iter().filter(|value| value.is_null()).count()).unwrap_or(i32::MAX),
            ),
            F::ClockTimestamp => Value::Timestamptz(cx.env.clock.wall_micros()),
            F::Div => match (first, second) {
                (Some(Value::Numeric(a)), Some(Value::Numeric(b))) => {
                    let quotient = crate::expr::arith::arithmetic(
                        crate::expr::arith::Arith::Div,
                        &Value::Numeric(*a),
                        &Value::Numeric(*b),
                        Type::NUMERIC,
                    )?;
                    crate::functions::truncated(&quotient)?
                }
                _ => Value::Null,
            },
            F::ToChar => match first {
                Some(Value::Timestamp(micros)) => Value::text(to_char(*micros, None, text(second))?),
                Some(Value::Timestamptz(micros)) => Value::text(to_char(*micros, Some(zone), text(second))?),
                Some(Value::Interval(interval)) => Value::text(interval_to_char(*interval, text(second))?),
                Some(number @ (Value::Numeric(_) | Value::Float8(_))) => {
                    Value::text(crate::functions::number_template::to_char(number, text(second))?)
                }
                _ => Value::Null,
            },
            F::Cbrt => Value::Float8(first.and_then(crate::expr::cast::to_f64).unwrap_or(f64::NAN).cbrt()),
            F::SizePretty => Value::text(pretty(first.and_then(Value::as_integer).unwrap_or_default())),
            _ => return Err(bug("a function of another module")),
        })
    }
}
