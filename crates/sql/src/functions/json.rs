//! Functions over JSON documents, and functions that build documents of values.
//!
//! Source of the rules: PostgreSQL 15's documentation, "JSON Functions and Operators".

use ropewalk::tables::{Type, Value};

use crate::error::{Result, SqlError, state};
use crate::expr::function::Function;
use crate::expr::{bounds, bug};
use crate::functions::array::items;
use crate::functions::{Resolved, int4, text_of};
use crate::types::json::{self, quoted};
use crate::types::text_format::{to_text, to_text_in};
use crate::types::zone::Zone;

/// The JSON function with this name, if any.
pub(crate) fn resolve(name: &str, types: &[Option<Type>]) -> Option<Resolved> {
    use Function as F;
    const TEXT: Type = Type::TEXT;
    const JSON: Type = Type::JSON;
    let first = types.first().copied().flatten();
    let resolved = |function, arguments: Vec<Type>, result| Some(Resolved { function, arguments, result });
    let shown = || types.iter().map(|ty| ty.unwrap_or(TEXT)).collect::<Vec<Type>>();
    let path_of = |is_text| if is_text { (F::JsonPathText, TEXT) } else { (F::JsonPath, JSON) };
    match (name, types.len()) {
        ("json_extract_path" | "json_extract_path_text", 2..) => {
            let (function, result) = path_of(name.ends_with("_text"));
            resolved(function, [vec![JSON], vec![TEXT; types.len() - 1]].concat(), result)
        }
        ("*path" | "*path_text", 2) => {
            let (function, result) = path_of(name == "*path_text");
            resolved(function, vec![JSON, TEXT.array()], result)
        }
        ("to_json" | "row_to_json", 1) => resolved(F::ToJson, vec![first.unwrap_or(TEXT)], JSON),
        ("array_to_json", 1) => {
            let array = first.filter(|ty| matches!(ty, Type::Array(_)))?;
            resolved(F::ToJson, vec![array], JSON)
        }
        ("json_build_array", _) => resolved(F::JsonBuildArray, shown(), JSON),
        ("json_build_object", count) if count % 2 == 0 => resolved(F::JsonBuildObject, shown(), JSON),
        ("*json_row", _) => resolved(F::JsonRow, shown(), JSON),
        ("json_object", count @ (1 | 2)) => resolved(F::JsonObject, vec![TEXT.array(); count], JSON),
        ("json_array_length", 1) => resolved(F::JsonArrayLength, vec![JSON], Type::INT4),
        ("json_typeof", 1) => resolved(F::JsonTypeof, vec![JSON], TEXT),
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

/// The part of a document at a path of member names and element numbers.
fn find_path(document: &str, steps: impl IntoIterator<Item = String>) -> Option<&str> {
    steps.into_iter().try_fold(document, |part, step| {
        json::member(part, &step).or_else(|| json::element(part, step.parse().ok()?))
    })
}

/// `json_extract_path` and the operators `#>`, `#>>`: the steps are one array or the other arguments.
fn read_path(values: &[Value<'_>], as_text: bool) -> Result<Value<'static>> {
    let steps: Option<Vec<String>> = match values.get(1) {
        Some(array @ Value::Array(_)) => items(Some(array))?.iter().map(to_text).collect(),
        _ => values.iter().skip(1).map(to_text).collect(),
    };
    // A NULL step matches no part.
    Ok(match steps.and_then(|steps| find_path(text_of(values.first()), steps)) {
        Some(found) => json::shown(found, as_text),
        None => Value::Null,
    })
}

fn build_array(values: &[Value<'_>], zone: &Zone) -> Result<Value<'static>> {
    let mut items = bounds::Text::default();
    items.push("[")?;
    items.join(values.iter().map(|value| json_of(value, zone)), ", ")?;
    items.push("]")?;
    Ok(Value::json(items.finish()))
}

/// `json_build_object`: keys and values take turns.
fn build_object(values: &[Value<'_>], zone: &Zone) -> Result<Value<'static>> {
    let mut members = bounds::Text::default();
    members.push("{")?;
    for pair in values.chunks(2) {
        let [key, value] = pair else { return Err(bug("a key without a value")) };
        if key.is_null() {
            let message = "argument 1: key must not be null";
            return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
        }
        let key = json_of(key, zone);
        let key = if key.starts_with('"') { key } else { quoted(&key) };
        if members.len() > 1 {
            members.push(", ")?;
        }
        members.join([key, json_of(value, zone)], " : ")?;
    }
    members.push("}")?;
    Ok(Value::json(members.finish()))
}

/// A row as an object: names of columns and values take turns.
fn build_row(values: &[Value<'_>], zone: &Zone) -> Result<Value<'static>> {
    let member = |pair: &[Value<'_>]| match pair {
        [Value::Text(name), value] => format!("{}:{}", quoted(name), json_of(value, zone)),
        _ => String::new(),
    };
    let mut row = bounds::Text::default();
    row.push("{")?;
    row.join(values.chunks(2).map(member), ",")?;
    row.push("}")?;
    Ok(Value::json(row.finish()))
}

/// `json_object`: of an array of names and values, or of an array of names and one of values.
fn build_object_of_texts(first: Option<&Value<'_>>, second: Option<&Value<'_>>) -> Result<Value<'static>> {
    let wrong = |message: &str| SqlError::new(state::ARRAY_SUBSCRIPT_ERROR, message);
    let (names, values) = (items(first)?, items(second)?);
    let pairs: Vec<_> = match second {
        None if names.len() % 2 != 0 => {
            return Err(wrong("array must have even number of elements"));
        }
        None => {
            let mut rest = names.into_iter();
            std::iter::from_fn(|| Some((rest.next()?, rest.next()?))).collect()
        }
        Some(_) if names.len() != values.len() => {
            return Err(wrong("mismatched array dimensions"));
        }
        Some(_) => names.into_iter().zip(values).collect(),
    };
    let mut members = bounds::Text::default();
    members.push("{")?;
    for (name, value) in pairs {
        let Value::Text(name) = name else {
            let message = "null value not allowed for object key";
            return Err(SqlError::new(state::NULL_VALUE_NOT_ALLOWED, message));
        };
        if members.len() > 1 {
            members.push(", ")?;
        }
        members.join([quoted(&name), json_of(&value, &Zone::UTC)], " : ")?;
    }
    members.push("}")?;
    Ok(Value::json(members.finish()))
}

impl Function {
    /// Evaluates a JSON function; `None` for other functions. Only functions that accept NULLs get them.
    pub(crate) fn of_json(self, values: &[Value<'_>], zone: &Zone) -> Result<Option<Value<'static>>> {
        use Function as F;
        let (first, second) = (values.first(), values.get(1));
        Ok(Some(match self {
            F::JsonPath | F::JsonPathText => read_path(values, self == F::JsonPathText)?,
            F::ToJson => Value::json(first.map_or_else(|| "null".into(), |value| json_of(value, zone))),
            F::JsonBuildArray => build_array(values, zone)?,
            F::JsonBuildObject => build_object(values, zone)?,
            // The NULL row of an outer join becomes NULL.
            F::JsonRow if values.chunks(2).all(|pair| pair.get(1).is_none_or(Value::is_null)) => Value::Null,
            F::JsonRow => build_row(values, zone)?,
            F::JsonObject => build_object_of_texts(first, second)?,
            F::JsonArrayLength => int4(json::array_length(text_of(first)).ok_or_else(|| {
                SqlError::new(state::INVALID_PARAMETER_VALUE, "cannot get array length of a non-array")
            })?),
            F::JsonTypeof => Value::text(json::kind(text_of(first))),
            _ => return Ok(None),
        }))
    }
}
