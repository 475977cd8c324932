//! Set-returning functions.

use ropewalk::tables::{Type, Value};

use crate::error::{Result, SqlError, state};
use crate::expr::Record;
use crate::expr::arith::{Arith, arithmetic, order};
use crate::limits::budget::Budget;
use crate::types::json;
use crate::types::names::{common, is_integer, is_numeric, type_name};

/// A function that returns rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetFunction {
    GenerateSeries(Type),
    /// The subscript of the first element.
    GenerateSubscripts(i32),
    Unnest(Type),
    /// Several arrays in parallel, the shorter ones filled up with NULLs: `unnest` in FROM.
    UnnestAll,
    /// The elements of an array: json, jsonb or text.
    JsonElements(Type),
    JsonKeys,
    /// The members of an object, with values of this type.
    JsonEach(Type),
    RegexpMatches,
    RegexpSplit,
    StringToTable,
    /// `information_schema._pg_expandarray`: the elements with their numbers.
    ExpandArray,
    /// `pg_options_to_table`: always empty, since no object has options.
    Options,
    /// A function that never returns a row here.
    Nothing(Type),
}

impl SetFunction {
    /// The function of this name for arguments of these types, and the types that they are cast to.
    ///
    /// # Errors
    /// 42883: a function of this name exists, but not for these types.
    pub(crate) fn resolve(name: &str, types: &[Option<Type>]) -> Result<Option<(Self, Vec<Type>)>> {
        let refused = || {
            let types: Vec<String> = types.iter().map(|ty| crate::types::names::shown(*ty)).collect();
            let message = format!("function {name}({}) does not exist", types.join(", "));
            SqlError::new(state::UNDEFINED_FUNCTION, message)
        };
        let first = types.first().copied().flatten();
        let json = if name.starts_with("jsonb_") { Type::JSONB } else { Type::JSON };
        let found = match (name, types.len()) {
            ("generate_series", 2 | 3) => {
                let mut ty = Type::INT4;
                if types.iter().flatten().any(|ty| is_moment(*ty)) {
                    // The query engine has these.
                    return Err(SqlError::unsupported_query("generate_series over times in nested loops"));
                }
                for found in types.iter().flatten() {
                    ty = common(ty, *found).ok_or_else(refused)?;
                }
                if !is_integer(ty) && !is_numeric(ty) {
                    return Err(refused());
                }
                (Self::GenerateSeries(ty), vec![ty; types.len()])
            }
            // The binder adds the channels as an argument.
            ("pg_listening_channels", 0 | 1) => (Self::Unnest(Type::TEXT), vec![Type::TEXT.array()]),
            ("unnest", 1) => match first {
                Some(array @ Type::Array(element)) => (Self::Unnest(Type::Scalar(element)), vec![array]),
                _ => return Err(refused()),
            },
            ("generate_subscripts", 2 | 3) => match first {
                Some(array @ Type::Array(_)) => {
                    let types = [array, Type::INT4, Type::BOOL];
                    (Self::GenerateSubscripts(1), types.into_iter().take(types.len()).collect())
                }
                _ => return Err(refused()),
            },
            ("json_array_elements" | "jsonb_array_elements", 1) => (Self::JsonElements(json), vec![json]),
            ("json_array_elements_text" | "jsonb_array_elements_text", 1) => {
                (Self::JsonElements(Type::TEXT), vec![json])
            }
            ("json_object_keys" | "jsonb_object_keys", 1) => (Self::JsonKeys, vec![json]),
            ("json_each" | "jsonb_each", 1) => (Self::JsonEach(json), vec![json]),
            ("json_each_text" | "jsonb_each_text", 1) => (Self::JsonEach(Type::TEXT), vec![json]),
            ("regexp_matches", 2 | 3) => (Self::RegexpMatches, vec![Type::TEXT; types.len()]),
            ("regexp_split_to_table", 2 | 3) => (Self::RegexpSplit, vec![Type::TEXT; types.len()]),
            ("string_to_table", 2 | 3) => (Self::StringToTable, vec![Type::TEXT; types.len()]),
            ("pg_partition_ancestors", 1) => (Self::Nothing(Type::INT8), vec![Type::INT8]),
            ("pg_options_to_table", 1) => (Self::Options, vec![first.unwrap_or(Type::TEXT)]),
            ("_pg_expandarray", 1) => match first {
                Some(array @ Type::Array(_)) => (Self::ExpandArray, vec![array]),
                _ => return Err(refused()),
            },
            _ => return Ok(None),
        };
        Ok(Some(found))
    }

    /// Names and types of its columns; `name` is the function's or its alias.
    pub(crate) fn columns(self, name: &str) -> Vec<(String, Type)> {
        match self {
            Self::GenerateSeries(ty) | Self::Unnest(ty) | Self::Nothing(ty) => vec![(name.to_owned(), ty)],
            Self::GenerateSubscripts(_) => vec![(name.to_owned(), Type::INT4)],
            Self::JsonElements(value) => vec![("value".into(), value)],
            Self::JsonKeys | Self::StringToTable | Self::RegexpSplit => vec![(name.to_owned(), Type::TEXT)],
            Self::JsonEach(value) => vec![("key".into(), Type::TEXT), ("value".into(), value)],
            Self::RegexpMatches => vec![(name.to_owned(), Type::TEXT.array())],
            Self::ExpandArray => vec![("x".into(), Type::INT8), ("n".into(), Type::INT8)],
            // The caller knows the arrays.
            Self::UnnestAll => Vec::new(),
            Self::Options => vec![("option_name".into(), Type::TEXT), ("option_value".into(), Type::TEXT)],
        }
    }

    pub(crate) fn rows(self, arguments: &[Value<'static>], budget: &Budget) -> Result<Vec<Record>> {
        let mut rows: Vec<Record> = Vec::new();
        if self == Self::UnnestAll {
            return beside_each_other(arguments, budget);
        }
        let takes_nulls = self == Self::StringToTable && !arguments.first().is_none_or(Value::is_null);
        if !takes_nulls && arguments.iter().any(Value::is_null) {
            return Ok(rows);
        }
        let mut push = |row: Record| {
            budget.take_row(&row)?;
            rows.push(row);
            Ok::<_, SqlError>(())
        };
        let text = |place: usize| match arguments.get(place) {
            Some(Value::Text(text) | Value::Json(text) | Value::Jsonb(text)) => text.as_ref(),
            _ => "",
        };
        match (self, arguments) {
            (Self::GenerateSeries(ty), [from, to, rest @ ..]) => {
                let one = Value::Int4(1).assign(ty).unwrap_or(Value::Int4(1));
                let step = rest.first().cloned().unwrap_or(one);
                let direction = order(&step, &Value::Int4(0));
                if direction.is_eq() {
                    let message = "step size cannot equal zero";
                    return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
                }
                let mut at = from.clone();
                while if direction.is_gt() { order(&at, to).is_le() } else { order(&at, to).is_ge() } {
                    push(vec![at.clone()])?;
                    match arithmetic(Arith::Add, &at, &step, ty) {
                        Ok(next) => at = next,
                        // Stops at the end of the type's range, too.
                        Err(_) => break,
                    }
                }
            }
            (Self::GenerateSubscripts(first), [Value::Array(array), dimension, rest @ ..]) => {
                if dimension.as_integer() == Some(1) {
                    let count = i32::try_from(array.len()).unwrap_or(i32::MAX);
                    let mut all: Vec<i32> = (first..first + count).collect();
                    if rest.first() == Some(&Value::Bool(true)) {
                        all.reverse();
                    }
                    all.into_iter().try_for_each(|number| push(vec![Value::Int4(number)]))?;
                }
            }
            (Self::Unnest(_), [Value::Array(array)]) => {
                for item in array.iter() {
                    let item =
                        item.map_err(|error| SqlError::new(state::DATA_CORRUPTED, error.to_string()))?;
                    push(vec![item.into_owned()])?;
                }
            }
            (Self::JsonElements(ty), _) => {
                let all = json::all_elements(text(0)).ok_or_else(|| {
                    SqlError::new(state::INVALID_PARAMETER_VALUE, "cannot extract elements from a non-array")
                })?;
                all.into_iter().try_for_each(|element| push(vec![part_of(element, ty)]))?;
            }
            (Self::JsonKeys | Self::JsonEach(_), _) => {
                let members = json::members(text(0)).ok_or_else(|| {
                    SqlError::new(state::INVALID_PARAMETER_VALUE, "cannot take the members of a non-object")
                })?;
                for (key, member) in members {
                    let mut row = vec![Value::text(key)];
                    if let Self::JsonEach(ty) = self {
                        row.push(part_of(member, ty));
                    }
                    push(row)?;
                }
            }
            (Self::RegexpMatches, _) => {
                let (text, pattern, letters) = (text(0), text(1), text(2));
                crate::functions::regex::all_groups(text, pattern, letters, &mut |groups| {
                    push(vec![groups])
                })?;
            }
            (Self::RegexpSplit, _) => {
                let parts =
                    crate::functions::regex::split(text(0), text(1), text(2), "regexp_split_to_table")?;
                parts.into_iter().try_for_each(|part| push(vec![Value::text(part.to_owned())]))?;
            }
            (Self::StringToTable, [_, between, nothing @ ..]) => {
                let whole = text(0);
                let nothing = match nothing {
                    [Value::Text(nothing)] => Some(nothing.as_ref()),
                    _ => None,
                };
                let parts: Vec<&str> = match between {
                    _ if whole.is_empty() => Vec::new(),
                    Value::Text(between) if between.is_empty() => vec![whole],
                    Value::Text(between) => whole.split(between.as_ref()).collect(),
                    _ => whole.split_inclusive(|_| true).collect(),
                };
                parts.into_iter().try_for_each(|part| {
                    let is_nothing = nothing == Some(part);
                    push(vec![if is_nothing { Value::Null } else { Value::text(part.to_owned()) }])
                })?;
            }
            (Self::ExpandArray, [Value::Array(array)]) => {
                for (item, number) in array.iter().zip(1_i64..) {
                    let item =
                        item.map_err(|error| SqlError::new(state::DATA_CORRUPTED, error.to_string()))?;
                    push(vec![item.as_integer().map_or(Value::Null, Value::Int8), Value::Int8(number)])?;
                }
            }
            (Self::Nothing(_) | Self::Options | Self::UnnestAll, _) => {}
            _ => {
                let types: Vec<String> =
                    arguments.iter().filter_map(Value::value_type).map(type_name).collect();
                return Err(crate::expr::bug(&format!("a function of rows over {}", types.join(", "))));
            }
        }
        Ok(rows)
    }
}

/// The elements of arrays in parallel, a row for each position.
fn beside_each_other(arrays: &[Value<'static>], budget: &Budget) -> Result<Vec<Record>> {
    let length = |array: &Value<'_>| match array {
        Value::Array(array) => array.len(),
        _ => 0,
    };
    let most = arrays.iter().map(length).max().unwrap_or_default();
    let each = arrays.len().saturating_mul(std::mem::size_of::<Value<'_>>()).saturating_add(24);
    let planned = most.saturating_mul(each);
    budget.take(planned)?;
    let mut rows: Vec<Record> = vec![Vec::with_capacity(arrays.len()); most];
    for array in arrays {
        let mut items = match array {
            Value::Array(array) => Some(array.iter()),
            _ => None,
        };
        for row in &mut rows {
            row.push(match items.as_mut().and_then(Iterator::next) {
                None => Value::Null,
                Some(Ok(item)) => item.into_owned(),
                Some(Err(error)) => return Err(SqlError::new(state::DATA_CORRUPTED, error.to_string())),
            });
        }
    }
    budget.give_back(planned);
    rows.iter().try_for_each(|row| budget.take_row(row))?;
    Ok(rows)
}

impl SetFunction {
    /// True for names of such functions.
    pub(crate) fn is_known(name: &str) -> bool {
        matches!(
            name,
            "generate_series"
                | "generate_subscripts"
                | "unnest"
                | "json_array_elements"
                | "jsonb_array_elements"
                | "json_array_elements_text"
                | "jsonb_array_elements_text"
                | "json_object_keys"
                | "jsonb_object_keys"
                | "regexp_matches"
                | "regexp_split_to_table"
                | "string_to_table"
                | "pg_partition_ancestors"
                | "pg_listening_channels"
                | "_pg_expandarray"
        )
    }
}

/// A part of a JSON value as json, jsonb or text.
fn part_of(part: &str, ty: Type) -> Value<'static> {
    match json::shown(part, ty == Type::TEXT) {
        // A part of a jsonb value is in canonical form, too.
        Value::Json(text) if ty == Type::JSONB => Value::Jsonb(text),
        shown => shown,
    }
}

fn is_moment(ty: Type) -> bool {
    matches!(ty, Type::DATE | Type::TIMESTAMP | Type::TIMESTAMPTZ)
}
