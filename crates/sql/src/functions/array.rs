//! Functions over arrays and JSON documents built of them.
//!
//! Source of the rules: PostgreSQL 15's documentation, "Array Functions and Operators" and "JSON Functions and Operators".

use ropewalk::tables::{Type, Value};

use crate::expr::arith::not_distinct;
use crate::expr::bounds::{self, array};
use crate::expr::bug;
use crate::functions::more::{json_of, quoted};
use crate::functions::{Function, Resolved};
use crate::limits::budget::value_bytes;
use crate::types::error::{Result, SqlError, state};
use crate::types::names::common;
use crate::types::zone::Zone;

/// Maximum number of elements that `array_fill` makes.
const FILLED_MAX: usize = 1 << 20;

/// The list function with this name, if any.
pub(crate) fn resolve(name: &str, types: &[Option<Type>]) -> Option<Resolved> {
    use Function as F;
    const INT: Type = Type::INT4;
    const TEXTS: Type = Type::TEXT.array();
    let known = |place: usize| types.get(place).copied().flatten();
    let resolved = |function, arguments: &[Type], result| {
        Some(Resolved { function, arguments: arguments.to_vec(), result })
    };
    // The common type of an array's elements and a single value.
    let element = || match (known(0), known(1)) {
        (Some(Type::Array(element)), Some(one @ Type::Scalar(_))) => common(Type::Scalar(element), one),
        (Some(Type::Array(element)), None) => Some(Type::Scalar(element)),
        (None, Some(one @ Type::Scalar(_))) => Some(one),
        _ => None,
    };
    let array = || known(0).filter(|ty| matches!(ty, Type::Array(_)));
    match (name, types.len()) {
        ("array_dims", 1) => resolved(F::ArrayDims, &[array()?], Type::TEXT),
        // The binder passes the value as an array, which has a type even if the value is NULL.
        ("array_fill" | "*array_fill", 2 | 3) => {
            let one = known(0).map(|ty| if matches!(ty, Type::Array(_)) { ty } else { ty.array() })?;
            let arguments = [one, INT.array(), INT.array()];
            resolved(F::ArrayFill, arguments.get(..types.len())?, one)
        }
        ("array_position", 3) => {
            let element = element()?;
            resolved(F::ArrayPositionFrom, &[element.array(), element, INT], INT)
        }
        ("array_positions", 2) => {
            let element = element()?;
            resolved(F::ArrayPositions, &[element.array(), element], INT.array())
        }
        ("array_replace", 3) => {
            let element = element()?;
            let element = known(2).map_or(Some(element), |new| common(element, new))?;
            resolved(F::ArrayReplace, &[element.array(), element, element], element.array())
        }
        ("trim_array", 2) => resolved(F::TrimArray, &[array()?, INT], array()?),
        ("*slice", 3) => resolved(F::ArraySlice, &[array()?, INT, INT], array()?),
        ("array_to_json", 1) => resolved(F::ToJson, &[array()?], Type::JSON),
        ("num_nonnulls", 1..) => {
            let types: Vec<Type> = types.iter().map(|ty| ty.unwrap_or(Type::TEXT)).collect();
            resolved(F::NumNonnulls, &types, INT)
        }
        ("*json_row", _) => {
            let types: Vec<Type> = types.iter().map(|ty| ty.unwrap_or(Type::TEXT)).collect();
            resolved(F::JsonRow, &types, Type::JSON)
        }
        ("json_object", 1) => resolved(F::JsonObject, &[TEXTS], Type::JSON),
        ("json_object", 2) => resolved(F::JsonObject, &[TEXTS, TEXTS], Type::JSON),
        _ => None,
    }
}

fn items(value: Option<&Value<'_>>) -> Result<Vec<Value<'static>>> {
    match value {
        Some(Value::Array(array)) => {
            let damaged =
                |error: &dyn std::fmt::Display| SqlError::new(state::DATA_CORRUPTED, error.to_string());
            array.iter().map(|item| item.map(Value::into_owned).map_err(|error| damaged(&error))).collect()
        }
        _ => Ok(Vec::new()),
    }
}

/// An array with the element type of `like`.
fn same_kind(like: Option<&Value<'_>>, items: Vec<Value<'static>>) -> Result<Value<'static>> {
    match like.and_then(Value::value_type) {
        Some(Type::Array(element)) => array(element, items),
        _ => Ok(Value::Null),
    }
}

fn int4(number: usize) -> Value<'static> {
    Value::Int4(i32::try_from(number).unwrap_or(i32::MAX))
}

/// A JSON object of names and values.
fn object(pairs: Vec<(Value<'static>, Value<'static>)>) -> Result<Value<'static>> {
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
    /// True for list functions that accept NULLs.
    pub(crate) fn is_of_lists(self) -> bool {
        use Function as F;
        matches!(
            self,
            F::ArrayFill
                | F::ArrayPositionFrom
                | F::ArrayPositions
                | F::ArrayReplace
                | F::ArraySlice
                | F::JsonRow
                | F::NumNonnulls
        )
    }

    /// Evaluates a list function; `None` for other functions.
    pub(crate) fn of_lists(self, values: &[Value<'_>], zone: &Zone) -> Result<Option<Value<'static>>> {
        use Function as F;
        let (first, second, third) = (values.first(), values.get(1), values.get(2));
        let is_null = |value: Option<&Value<'_>>| value.is_none_or(Value::is_null);
        let one = second.unwrap_or(&Value::Null);
        let wrong = |message: &str| SqlError::new(state::ARRAY_SUBSCRIPT_ERROR, message.to_owned());
        Ok(Some(match self {
            // The NULL row of an outer join becomes NULL.
            F::JsonRow if values.chunks(2).all(|pair| is_null(pair.get(1))) => Value::Null,
            F::JsonRow => {
                let member = |pair: &[Value<'_>]| match pair {
                    [Value::Text(name), value] => format!("{}:{}", quoted(name), json_of(value, zone)),
                    _ => String::new(),
                };
                let mut row = bounds::Text::default();
                row.push("{")?;
                row.join(values.chunks(2).map(member), ",")?;
                row.push("}")?;
                Value::json(row.finish())
            }
            F::NumNonnulls => int4(values.iter().filter(|value| !value.is_null()).count()),
            F::ArrayFill => {
                if is_null(second) || third.is_some_and(Value::is_null) {
                    let message = "dimension array or low bound array cannot be null";
                    return Err(SqlError::new(state::NULL_VALUE_NOT_ALLOWED, message));
                }
                let sizes = items(second)?;
                let count = match sizes.as_slice() {
                    [] => 0,
                    [Value::Null] => {
                        let message = "dimension values cannot be null";
                        return Err(SqlError::new(state::NULL_VALUE_NOT_ALLOWED, message));
                    }
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
                if let Some(least) = third
                    && items(Some(least))?.first().and_then(Value::as_integer) != Some(1)
                {
                    let what = "an array that is not counted from 1";
                    return Err(SqlError::unsupported(what, "leave the lower bounds out"));
                }
                let Some(Value::Array(one)) = first else { return Err(bug("array_fill")) };
                let value = items(first)?.into_iter().next().unwrap_or(Value::Null);
                bounds::check_list(value_bytes(&value).saturating_mul(count))?;
                array(one.element(), vec![value; count])?
            }
            _ if self.is_of_lists() && is_null(first) => Value::Null,
            F::ArrayPositionFrom => {
                let from = third.and_then(Value::as_integer).ok_or_else(|| {
                    SqlError::new(state::NULL_VALUE_NOT_ALLOWED, "initial position must not be null")
                })?;
                let from = usize::try_from(from.max(1) - 1).unwrap_or_default();
                let all = items(first)?;
                let place = all.iter().skip(from).position(|item| not_distinct(item, one));
                place.map_or(Value::Null, |place| int4(place + from + 1))
            }
            F::ArrayPositions => {
                let all = items(first)?;
                let found = all.iter().zip(1..).filter(|(item, _)| not_distinct(item, one));
                let found: Vec<Value<'static>> = found.map(|(_, place)| int4(place)).collect();
                array(ropewalk::tables::Scalar::Int4, found)?
            }
            F::ArrayReplace => {
                let new = third.cloned().map_or(Value::Null, Value::into_owned);
                let (mut replaced, mut bytes) = (items(first)?, 0_usize);
                for item in &mut replaced {
                    if not_distinct(item, one) {
                        bytes = bytes.saturating_add(value_bytes(&new));
                        bounds::check_list(bytes)?;
                        item.clone_from(&new);
                    }
                }
                same_kind(first, replaced)?
            }
            F::ArraySlice if [second, third].into_iter().any(is_null) => Value::Null,
            F::ArraySlice => {
                let from = second.and_then(Value::as_integer).unwrap_or(1).max(1);
                let to = third.and_then(Value::as_integer).unwrap_or_default();
                let (skipped, count) = (from - 1, (to - from + 1).max(0));
                let [skipped, count] =
                    [skipped, count].map(|number| usize::try_from(number).unwrap_or(usize::MAX));
                same_kind(first, items(first)?.into_iter().skip(skipped).take(count).collect())?
            }
            F::TrimArray => {
                let mut all = items(first)?;
                let off = second.and_then(Value::as_integer).unwrap_or_default();
                let off = usize::try_from(off).ok().filter(|off| *off <= all.len()).ok_or_else(|| {
                    wrong(&format!("number of elements to trim must be between 0 and {}", all.len()))
                })?;
                all.truncate(all.len() - off);
                same_kind(first, all)?
            }
            F::ArrayDims => match items(first)?.len() {
                0 => Value::Null,
                count => Value::text(format!("[1:{count}]")),
            },
            F::JsonObject => {
                let (names, values) = (items(first)?, items(second)?);
                let pairs = match second {
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
                object(pairs)?
            }
            _ => return Ok(None),
        }))
    }
}
