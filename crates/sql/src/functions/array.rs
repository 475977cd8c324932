//! Functions over arrays.
//!
//! Source of the rules: PostgreSQL 15's documentation, "Array Functions and Operators".

use std::collections::HashSet;

use ropewalk::tables::{Scalar, Type, Value};

use crate::error::{Result, SqlError, state};
use crate::expr::arith::{not_distinct, put_identity};
use crate::expr::bounds::{self, array};
use crate::expr::bug;
use crate::expr::function::Function;
use crate::functions::{Resolved, int4, text_of};
use crate::limits::budget::value_bytes;
use crate::types::names::common;
use crate::types::text_format::{to_text, to_text_in};
use crate::types::zone::Zone;

/// Maximum number of elements that `array_fill` makes.
const FILLED_MAX: usize = 1 << 20;

/// The array function with this name, if any.
pub(crate) fn resolve(name: &str, types: &[Option<Type>]) -> Option<Resolved> {
    use Function as F;
    const INT: Type = Type::INT4;
    const TEXT: Type = Type::TEXT;
    let known = |place: usize| types.get(place).copied().flatten();
    let resolved = |function, arguments: &[Type], result| {
        Some(Resolved { function, arguments: arguments.to_vec(), result })
    };
    let array = || known(0).filter(|ty| matches!(ty, Type::Array(_)));
    match (name, types.len()) {
        ("array_append" | "array_prepend" | "array_cat", 2)
        | ("array_remove" | "array_replace", _)
        | ("array_position" | "array_positions", _)
        | ("*contains" | "*contained" | "*overlaps", 2) => resolve_by_element(name, types),
        ("array_to_string", 2) => resolved(F::ArrayToString, &[array()?, TEXT], TEXT),
        ("array_to_string", 3) => resolved(F::ArrayToString, &[array()?, TEXT, TEXT], TEXT),
        ("string_to_array", 2) => resolved(F::StringToArray, &[TEXT; 2], TEXT.array()),
        ("string_to_array", 3) => resolved(F::StringToArray, &[TEXT; 3], TEXT.array()),
        ("array_dims", 1) => resolved(F::ArrayDims, &[array()?], TEXT),
        ("array_ndims", 1) => resolved(F::ArrayNdims, &[array()?], INT),
        ("array_upper", 2) => resolved(F::ArrayUpper, &[array()?, INT], INT),
        ("array_lower", 2) => resolved(F::ArrayLower, &[array()?, INT], INT),
        ("array_length", 2) => resolved(F::ArrayLength, &[array()?, INT], INT),
        ("cardinality", 1) => resolved(F::ArrayLength, &[array()?], INT),
        // The binder passes the value as an array, which has a type even if the value is NULL.
        ("array_fill" | "*array_fill", 2 | 3) => {
            let one = known(0).map(|ty| if matches!(ty, Type::Array(_)) { ty } else { ty.array() })?;
            let arguments = [one, INT.array(), INT.array()];
            resolved(F::ArrayFill, arguments.get(..types.len())?, one)
        }
        ("trim_array", 2) => resolved(F::TrimArray, &[array()?, INT], array()?),
        ("*slice", 3) => resolved(F::ArraySlice, &[array()?, INT, INT], array()?),
        _ => None,
    }
}

/// A function of an array and single values or another array, whose types determine each other.
fn resolve_by_element(name: &str, types: &[Option<Type>]) -> Option<Resolved> {
    use Function as F;
    const INT: Type = Type::INT4;
    let known = |place: usize| types.get(place).copied().flatten();
    let resolved = |function, arguments: &[Type], result| {
        Some(Resolved { function, arguments: arguments.to_vec(), result })
    };
    let element_at = |place: usize| match known(place)? {
        Type::Array(element) => Some(Type::Scalar(element)),
        Type::Scalar(_) => None,
    };
    // The common type of an array's elements and a single value.
    let together = || match (known(0), known(1)) {
        (Some(Type::Array(element)), Some(one @ Type::Scalar(_))) => common(Type::Scalar(element), one),
        (Some(Type::Array(element)), None) => Some(Type::Scalar(element)),
        (None, Some(one @ Type::Scalar(_))) => Some(one),
        _ => None,
    };
    match (name, types.len()) {
        ("array_append" | "array_remove" | "array_position", 2) => {
            let element = element_at(0).or(known(1))?;
            let (function, result) = match name {
                "array_append" => (F::ArrayAppend, element.array()),
                "array_remove" => (F::ArrayRemove, element.array()),
                _ => (F::ArrayPosition, INT),
            };
            resolved(function, &[element.array(), element], result)
        }
        ("array_prepend", 2) => {
            let element = element_at(1).or(known(0))?;
            resolved(F::ArrayPrepend, &[element, element.array()], element.array())
        }
        ("array_cat" | "*contains" | "*contained" | "*overlaps", 2) => {
            let element = match (element_at(0), element_at(1)) {
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
            resolved(function, &[element.array(); 2], result)
        }
        ("array_position", 3) => {
            let element = together()?;
            resolved(F::ArrayPositionFrom, &[element.array(), element, INT], INT)
        }
        ("array_positions", 2) => {
            let element = together()?;
            resolved(F::ArrayPositions, &[element.array(), element], INT.array())
        }
        ("array_replace", 3) => {
            let element = together()?;
            let element = known(2).map_or(Some(element), |new| common(element, new))?;
            resolved(F::ArrayReplace, &[element.array(), element, element], element.array())
        }
        _ => None,
    }
}

/// The elements of an array; none for NULL.
pub(crate) fn items(value: Option<&Value<'_>>) -> Result<Vec<Value<'static>>> {
    match value {
        Some(Value::Array(array)) => {
            let damaged =
                |error: &dyn std::fmt::Display| SqlError::new(state::DATA_CORRUPTED, error.to_string());
            array.iter().map(|item| item.map(Value::into_owned).map_err(|error| damaged(&error))).collect()
        }
        _ => Ok(Vec::new()),
    }
}

fn is_null(value: Option<&Value<'_>>) -> bool {
    value.is_none_or(Value::is_null)
}

/// The type of a value, or of the elements of an array.
fn element_type(value: Option<&Value<'_>>) -> Option<Scalar> {
    match value.and_then(Value::value_type)? {
        Type::Array(element) | Type::Scalar(element) => Some(element),
    }
}

/// An array with the element type of `like`.
fn same_kind(like: Option<&Value<'_>>, items: Vec<Value<'static>>) -> Result<Value<'static>> {
    match like.and_then(Value::value_type) {
        Some(Type::Array(element)) => array(element, items),
        _ => Ok(Value::Null),
    }
}

/// `array_append`, and `array_prepend` when `is_first`.
fn add_item(whole: Option<&Value<'_>>, one: Option<&Value<'_>>, is_first: bool) -> Result<Value<'static>> {
    let Some(element) = element_type(whole).or(element_type(one)) else { return Ok(Value::Null) };
    let (mut all, one) = (items(whole)?, one.cloned().map_or(Value::Null, Value::into_owned));
    if is_first {
        all.insert(0, one);
    } else {
        all.push(one);
    }
    array(element, all)
}

fn concatenate(first: Option<&Value<'_>>, second: Option<&Value<'_>>) -> Result<Value<'static>> {
    let Some(element) = element_type(first).or(element_type(second)) else { return Ok(Value::Null) };
    array(element, [items(first)?, items(second)?].concat())
}

/// `array_fill(one, sizes, lower bounds)`: the value is passed as an array of one element.
fn fill(
    one: Option<&Value<'_>>,
    sizes: Option<&Value<'_>>,
    lower: Option<&Value<'_>>,
) -> Result<Value<'static>> {
    let null = |message: &str| SqlError::new(state::NULL_VALUE_NOT_ALLOWED, message);
    if is_null(sizes) || lower.is_some_and(Value::is_null) {
        return Err(null("dimension array or low bound array cannot be null"));
    }
    let count = match items(sizes)?.as_slice() {
        [] => 0,
        [Value::Null] => return Err(null("dimension values cannot be null")),
        [size] => size.as_integer().unwrap_or_default(),
        _ => {
            return Err(SqlError::unsupported(
                "an array of several dimensions",
                "arrays have one dimension here",
            ));
        }
    };
    let count = usize::try_from(count).ok().filter(|count| *count <= FILLED_MAX);
    let count = count.ok_or_else(|| {
        SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, "array size exceeds the maximum allowed")
    })?;
    if let Some(least) = lower
        && items(Some(least))?.first().and_then(Value::as_integer) != Some(1)
    {
        let what = "an array that is not counted from 1";
        return Err(SqlError::unsupported(what, "leave the lower bounds out"));
    }
    let Some(Value::Array(list)) = one else { return Err(bug("array_fill")) };
    let value = items(one)?.into_iter().next().unwrap_or(Value::Null);
    bounds::check_list(value_bytes(&value).saturating_mul(count))?;
    array(list.element(), vec![value; count])
}

/// The position of the first element equal to `one`, after `skipped` elements.
fn find_item(list: Option<&Value<'_>>, one: &Value<'_>, skipped: usize) -> Result<Value<'static>> {
    let all = items(list)?;
    let place = all.iter().skip(skipped).position(|item| not_distinct(item, one));
    Ok(place.map_or(Value::Null, |place| int4(place + skipped + 1)))
}

fn find_item_from(
    list: Option<&Value<'_>>,
    one: &Value<'_>,
    from: Option<&Value<'_>>,
) -> Result<Value<'static>> {
    let from = from
        .and_then(Value::as_integer)
        .ok_or_else(|| SqlError::new(state::NULL_VALUE_NOT_ALLOWED, "initial position must not be null"))?;
    find_item(list, one, usize::try_from(from.max(1) - 1).unwrap_or_default())
}

/// The positions of all elements equal to `one`.
fn find_items(list: Option<&Value<'_>>, one: &Value<'_>) -> Result<Value<'static>> {
    let all = items(list)?;
    let found = all.iter().zip(1..).filter(|(item, _)| not_distinct(item, one));
    array(Scalar::Int4, found.map(|(_, place)| int4(place)).collect())
}

fn remove_items(list: Option<&Value<'_>>, one: &Value<'_>) -> Result<Value<'static>> {
    same_kind(list, items(list)?.into_iter().filter(|item| !not_distinct(item, one)).collect())
}

fn replace_items(
    list: Option<&Value<'_>>,
    old: &Value<'_>,
    new: Option<&Value<'_>>,
) -> Result<Value<'static>> {
    let new = new.cloned().map_or(Value::Null, Value::into_owned);
    let (mut replaced, mut bytes) = (items(list)?, 0_usize);
    for item in &mut replaced {
        if not_distinct(item, old) {
            bytes = bytes.saturating_add(value_bytes(&new));
            bounds::check_list(bytes)?;
            item.clone_from(&new);
        }
    }
    same_kind(list, replaced)
}

/// The elements from one position to another.
fn slice(
    list: Option<&Value<'_>>,
    from: Option<&Value<'_>>,
    to: Option<&Value<'_>>,
) -> Result<Value<'static>> {
    let from = from.and_then(Value::as_integer).unwrap_or(1).max(1);
    let to = to.and_then(Value::as_integer).unwrap_or_default();
    let (skipped, count) = (from - 1, (to - from + 1).max(0));
    let [skipped, count] = [skipped, count].map(|number| usize::try_from(number).unwrap_or(usize::MAX));
    same_kind(list, items(list)?.into_iter().skip(skipped).take(count).collect())
}

/// `trim_array`: removes elements at the end.
fn trim(list: Option<&Value<'_>>, count: Option<&Value<'_>>) -> Result<Value<'static>> {
    let mut all = items(list)?;
    let off = count.and_then(Value::as_integer).unwrap_or_default();
    let off = usize::try_from(off).ok().filter(|off| *off <= all.len()).ok_or_else(|| {
        let message = format!("number of elements to trim must be between 0 and {}", all.len());
        SqlError::new(state::ARRAY_SUBSCRIPT_ERROR, message)
    })?;
    all.truncate(all.len() - off);
    same_kind(list, all)
}

/// True when `among` contains all elements of `asked`, or any of them; NULL equals no element.
fn contains_items(
    among: Option<&Value<'_>>,
    asked: Option<&Value<'_>>,
    needs_all: bool,
) -> Result<Value<'static>> {
    let identity = |item: &Value<'_>| {
        let mut identity = Vec::new();
        put_identity(item, &mut identity);
        identity
    };
    let (among, asked) = (items(among)?, items(asked)?);
    let known: HashSet<Vec<u8>> = among.iter().filter(|item| !item.is_null()).map(identity).collect();
    let mut found = asked.iter().map(|item| !item.is_null() && known.contains(&identity(item)));
    Ok(Value::Bool(if needs_all { found.all(|is| is) } else { found.any(|is| is) }))
}

fn join_items(
    list: Option<&Value<'_>>,
    separator: &str,
    instead_of_null: Option<&Value<'_>>,
    zone: &Zone,
) -> Result<Value<'static>> {
    let instead = instead_of_null.and_then(to_text);
    let shown = |item: &Value<'_>| to_text_in(item, zone).or_else(|| instead.clone());
    let mut joined = bounds::Text::default();
    joined.join(items(list)?.iter().filter_map(shown), separator)?;
    Ok(Value::text(joined.finish()))
}

/// `string_to_array(text, separator, text that means NULL)`.
fn split_text(
    whole: &str,
    separator: Option<&Value<'_>>,
    null: Option<&Value<'_>>,
) -> Result<Value<'static>> {
    let parts = || -> Box<dyn Iterator<Item = &str> + '_> {
        match separator {
            _ if whole.is_empty() => Box::new(std::iter::empty()),
            Some(Value::Text(between)) if between.is_empty() => Box::new(std::iter::once(whole)),
            Some(Value::Text(between)) => Box::new(whole.split(between.as_ref())),
            _ => Box::new(whole.split_inclusive(|_| true)),
        }
    };
    let each = std::mem::size_of::<Value<'_>>();
    bounds::check_list(parts().count().saturating_mul(each).saturating_add(whole.len()))?;
    let nothing = null.and_then(to_text);
    let value = |part: &str| {
        if nothing.as_deref() == Some(part) { Value::Null } else { Value::text(part.to_owned()) }
    };
    array(Scalar::Text, parts().map(value).collect())
}

impl Function {
    /// Evaluates an array function; `None` for other functions. Only functions that accept NULLs get them.
    pub(crate) fn of_arrays(self, values: &[Value<'_>], zone: &Zone) -> Result<Option<Value<'static>>> {
        use Function as F;
        let (first, second, third) = (values.first(), values.get(1), values.get(2));
        let one = second.unwrap_or(&Value::Null);
        Ok(Some(match self {
            F::ArrayAppend => add_item(first, second, false)?,
            F::ArrayPrepend => add_item(second, first, true)?,
            F::ArrayCat => concatenate(first, second)?,
            F::ArrayFill => fill(first, second, third)?,
            F::ArrayPosition
            | F::ArrayPositionFrom
            | F::ArrayPositions
            | F::ArrayRemove
            | F::ArrayReplace
            | F::ArraySlice
                if is_null(first) =>
            {
                Value::Null
            }
            F::ArrayPosition => find_item(first, one, 0)?,
            F::ArrayPositionFrom => find_item_from(first, one, third)?,
            F::ArrayPositions => find_items(first, one)?,
            F::ArrayRemove => remove_items(first, one)?,
            F::ArrayReplace => replace_items(first, one, third)?,
            F::ArraySlice if is_null(second) || is_null(third) => Value::Null,
            F::ArraySlice => slice(first, second, third)?,
            F::TrimArray => trim(first, second)?,
            F::ArrayContains => contains_items(first, second, true)?,
            F::ArrayContained => contains_items(second, first, true)?,
            F::ArrayOverlaps => contains_items(second, first, false)?,
            F::ArrayToString if is_null(first) || is_null(second) => Value::Null,
            F::ArrayToString => join_items(first, text_of(second), third, zone)?,
            F::StringToArray if is_null(first) => Value::Null,
            F::StringToArray => split_text(text_of(first), second, third)?,
            F::ArrayDims => match items(first)?.len() {
                0 => Value::Null,
                count => Value::text(format!("[1:{count}]")),
            },
            F::ArrayUpper | F::ArrayLower | F::ArrayNdims => {
                let dimension =
                    if self == F::ArrayNdims { Some(1) } else { second.and_then(Value::as_integer) };
                match items(first)?.len() {
                    count if count > 0 && dimension == Some(1) => {
                        if self == F::ArrayUpper {
                            int4(count)
                        } else {
                            Value::Int4(1)
                        }
                    }
                    _ => Value::Null,
                }
            }
            F::ArrayLength => match (first, second) {
                // Arrays here have one dimension; an empty array has no dimension.
                (Some(Value::Array(array)), None) => int4(array.len()),
                (Some(Value::Array(array)), Some(dimension))
                    if dimension.as_integer() == Some(1) && !array.is_empty() =>
                {
                    int4(array.len())
                }
                _ => Value::Null,
            },
            _ => return Ok(None),
        }))
    }
}
