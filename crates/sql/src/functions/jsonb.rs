//! Operators and functions of `jsonb`. A value is parsed to a tree, changed, and written in its normalized
//! form.
//!
//! Source of the rules: PostgreSQL's documentation, "JSON Functions and Operators" and "jsonb Containment and Existence".

use ropewalk::tables::{Jsonb, Type, Value};

use crate::error::{Result, SqlError, state};
use crate::expr::function::Function;
use crate::functions::Resolved;

/// The jsonb function with this name, if any.
pub(crate) fn resolve(name: &str, types: &[Option<Type>]) -> Option<Resolved> {
    use Function as F;
    const DOC: Type = Type::JSONB;
    const TEXT: Type = Type::TEXT;
    let texts = TEXT.array();
    let resolved = |function, arguments: &[Type], result| {
        Some(Resolved { function, arguments: arguments.to_vec(), result })
    };
    let second = types.get(1).copied().flatten();
    match (name, types.len()) {
        ("*jsonb_contains", 2) => resolved(F::JsonbContains, &[DOC, DOC], Type::BOOL),
        ("*jsonb_contained", 2) => resolved(F::JsonbContained, &[DOC, DOC], Type::BOOL),
        ("jsonb_exists", 2) => resolved(F::JsonbExists, &[DOC, TEXT], Type::BOOL),
        ("jsonb_exists_any", 2) => resolved(F::JsonbExistsAny, &[DOC, texts], Type::BOOL),
        ("jsonb_exists_all", 2) => resolved(F::JsonbExistsAll, &[DOC, texts], Type::BOOL),
        ("*jsonb_concat", 2) => resolved(F::JsonbConcat, &[DOC, DOC], DOC),
        ("*jsonb_delete", 2) => match second {
            Some(Type::INT2 | Type::INT4 | Type::INT8) => resolved(F::JsonbDeleteAt, &[DOC, Type::INT8], DOC),
            Some(ty) if ty == texts => resolved(F::JsonbDeleteAll, &[DOC, texts], DOC),
            None | Some(Type::TEXT) => resolved(F::JsonbDelete, &[DOC, TEXT], DOC),
            Some(_) => None,
        },
        ("*jsonb_delete_path", 2) => resolved(F::JsonbDeletePath, &[DOC, texts], DOC),
        ("jsonb_set", 3) => resolved(F::JsonbSet, &[DOC, texts, DOC], DOC),
        ("jsonb_set", 4) => resolved(F::JsonbSet, &[DOC, texts, DOC, Type::BOOL], DOC),
        ("jsonb_insert", 3) => resolved(F::JsonbInsert, &[DOC, texts, DOC], DOC),
        ("jsonb_insert", 4) => resolved(F::JsonbInsert, &[DOC, texts, DOC, Type::BOOL], DOC),
        ("jsonb_strip_nulls", 1) => resolved(F::JsonbStripNulls, &[DOC], DOC),
        ("json_strip_nulls", 1) => resolved(F::JsonStripNulls, &[Type::JSON], Type::JSON),
        ("jsonb_set_lax", 3) => resolved(F::JsonbSetLax, &[DOC, texts, DOC], DOC),
        ("jsonb_set_lax", 4) => resolved(F::JsonbSetLax, &[DOC, texts, DOC, Type::BOOL], DOC),
        ("jsonb_set_lax", 5) => resolved(F::JsonbSetLax, &[DOC, texts, DOC, Type::BOOL, TEXT], DOC),
        ("jsonb_pretty", 1) => resolved(F::JsonbPretty, &[DOC], TEXT),
        _ => None,
    }
}

fn wrong(message: impl Into<String>) -> SqlError {
    SqlError::new(state::INVALID_PARAMETER_VALUE, message)
}

fn tree(value: Option<&Value<'_>>) -> Result<Jsonb> {
    let damaged = || SqlError::new(state::DATA_CORRUPTED, "a jsonb that is no JSON");
    match value {
        Some(Value::Jsonb(text)) => Jsonb::parse(text).map_err(|_| damaged()),
        _ => Err(damaged()),
    }
}

fn written(tree: &Jsonb) -> Value<'static> {
    Value::Jsonb(tree.to_string().into())
}

fn texts(value: Option<&Value<'_>>) -> Vec<Option<String>> {
    let Some(Value::Array(array)) = value else { return Vec::new() };
    let text = |item: Value<'_>| match item {
        Value::Text(text) => Some(text.into_owned()),
        _ => None,
    };
    array.iter().flatten().map(text).collect()
}

/// Compares numbers, ignoring trailing zeros.
fn same_number(a: &str, b: &str) -> bool {
    let plain = |number: &str| match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => number.to_owned(),
    };
    plain(a) == plain(b)
}

fn same(a: &Jsonb, b: &Jsonb) -> bool {
    match (a, b) {
        (Jsonb::Number(a), Jsonb::Number(b)) => same_number(a, b),
        (a, b) => a == b,
    }
}

fn is_scalar(tree: &Jsonb) -> bool {
    !matches!(tree, Jsonb::Array(_) | Jsonb::Object(_))
}

/// `whole @> part`.
fn contains(whole: &Jsonb, part: &Jsonb) -> bool {
    match (whole, part) {
        (Jsonb::Object(_), Jsonb::Object(members)) => {
            members.iter().all(|(name, value)| whole.member(name).is_some_and(|found| within(found, value)))
        }
        // At the top level, a scalar is contained in an array that has it.
        (Jsonb::Array(items), scalar) if is_scalar(scalar) => items.iter().any(|item| same(item, scalar)),
        _ => within(whole, part),
    }
}

fn within(whole: &Jsonb, part: &Jsonb) -> bool {
    match (whole, part) {
        (Jsonb::Object(_), Jsonb::Object(_)) => contains(whole, part),
        (Jsonb::Array(items), Jsonb::Array(parts)) => {
            parts.iter().all(|part| items.iter().any(|item| within(item, part)))
        }
        (whole, part) => is_scalar(whole) && same(whole, part),
    }
}

fn exists(tree: &Jsonb, name: &str) -> bool {
    match tree {
        Jsonb::Object(_) => tree.member(name).is_some(),
        Jsonb::Array(items) => items.iter().any(|item| matches!(item, Jsonb::String(text) if text == name)),
        Jsonb::String(text) => text == name,
        _ => false,
    }
}

fn concat(left: Jsonb, right: Jsonb) -> Jsonb {
    match (left, right) {
        (Jsonb::Object(left), Jsonb::Object(right)) => Jsonb::object(left.into_iter().chain(right).collect()),
        (left, right) => {
            let items = |tree| match tree {
                Jsonb::Array(items) => items,
                other => vec![other],
            };
            Jsonb::Array(items(left).into_iter().chain(items(right)).collect())
        }
    }
}

fn delete(tree: Jsonb, names: &[String]) -> Result<Jsonb> {
    Ok(match tree {
        Jsonb::Object(mut members) => {
            members.retain(|(name, _)| !names.contains(name));
            Jsonb::Object(members)
        }
        Jsonb::Array(mut items) => {
            items.retain(|item| !matches!(item, Jsonb::String(text) if names.contains(text)));
            Jsonb::Array(items)
        }
        _ => return Err(wrong("cannot delete from scalar")),
    })
}

/// The position of element `number`, counted from the end when negative; `Err` is a position out of range.
fn place(number: i64, length: usize) -> std::result::Result<usize, i64> {
    let length_of = i64::try_from(length).unwrap_or(i64::MAX);
    let place = if number < 0 { number.saturating_add(length_of) } else { number };
    match usize::try_from(place) {
        Ok(place) if place < length => Ok(place),
        _ => Err(place),
    }
}

fn step_number(step: &str, position: usize) -> Result<i64> {
    step.parse().map_err(|_| {
        let message = format!("path element at position {position} is not an integer: \"{step}\"");
        SqlError::new(state::INVALID_TEXT_REPRESENTATION, message)
    })
}

/// The change at the end of a path.
enum Change<'v> {
    Delete,
    /// The value, and whether it is added if absent.
    Set(&'v Jsonb, bool),
    /// The value, and whether it is inserted after the element.
    Insert(&'v Jsonb, bool),
}

fn changed(tree: Jsonb, path: &[String], position: usize, change: &Change<'_>) -> Result<Jsonb> {
    let Some((step, rest)) = path.split_first() else { return Ok(tree) };
    let is_last = rest.is_empty();
    Ok(match tree {
        Jsonb::Object(mut members) => {
            let found = members.iter().position(|(name, _)| name == step);
            match (found, is_last, change) {
                (Some(_), true, Change::Insert(..)) => {
                    return Err(wrong("cannot replace existing key")
                        .hint("try using the function jsonb_set to replace key value"));
                }
                (Some(at), true, Change::Delete) => {
                    members.remove(at);
                }
                (Some(at), true, Change::Set(value, _)) => {
                    if let Some((_, slot)) = members.get_mut(at) {
                        slot.clone_from(value);
                    }
                }
                (Some(at), false, _) => {
                    if let Some((_, slot)) = members.get_mut(at) {
                        let inner = std::mem::replace(slot, Jsonb::Null);
                        *slot = changed(inner, rest, position + 1, change)?;
                    }
                }
                (None, true, Change::Set(value, true) | Change::Insert(value, _)) => {
                    members.push((step.clone(), (*value).clone()));
                }
                (None, ..) => {}
            }
            Jsonb::object(members)
        }
        Jsonb::Array(mut items) => {
            let number = step_number(step, position)?;
            match (place(number, items.len()), is_last, change) {
                (Ok(at), true, Change::Delete) => {
                    items.remove(at);
                }
                (Ok(at), true, Change::Set(value, _)) => {
                    if let Some(slot) = items.get_mut(at) {
                        slot.clone_from(value);
                    }
                }
                (Ok(at), true, Change::Insert(value, behind)) => {
                    items.insert(at + usize::from(*behind), (*value).clone());
                }
                (Ok(at), false, _) => {
                    if let Some(slot) = items.get_mut(at) {
                        let inner = std::mem::replace(slot, Jsonb::Null);
                        *slot = changed(inner, rest, position + 1, change)?;
                    }
                }
                (Err(at), true, Change::Set(value, true) | Change::Insert(value, _)) => {
                    let end = if at < 0 { 0 } else { items.len() };
                    items.insert(end, (*value).clone());
                }
                (Err(_), ..) => {}
            }
            Jsonb::Array(items)
        }
        scalar => scalar,
    })
}

fn at_path(tree: Jsonb, path: Vec<Option<String>>, change: &Change<'_>) -> Result<Jsonb> {
    if is_scalar(&tree) {
        let what = match change {
            Change::Delete => "cannot delete path in scalar",
            _ => "cannot set path in scalar",
        };
        return Err(wrong(what));
    }
    let mut steps = Vec::with_capacity(path.len());
    for (number, step) in path.into_iter().enumerate() {
        let null = || {
            let message = format!("path element at position {} is null", number + 1);
            SqlError::new(state::NULL_VALUE_NOT_ALLOWED, message)
        };
        steps.push(step.ok_or_else(null)?);
    }
    changed(tree, &steps, 1, change)
}

fn stripped(tree: Jsonb) -> Jsonb {
    match tree {
        Jsonb::Object(members) => {
            let kept = members.into_iter().filter(|(_, value)| *value != Jsonb::Null);
            Jsonb::Object(kept.map(|(name, value)| (name, stripped(value))).collect())
        }
        Jsonb::Array(items) => Jsonb::Array(items.into_iter().map(stripped).collect()),
        scalar => scalar,
    }
}

fn pretty(tree: &Jsonb, depth: usize, out: &mut String) {
    let line = |depth: usize, out: &mut String| {
        out.push('\n');
        (0..depth).for_each(|_| out.push_str("    "));
    };
    match tree {
        Jsonb::Array(items) => {
            out.push('[');
            for (number, item) in items.iter().enumerate() {
                out.push_str(if number > 0 { "," } else { "" });
                line(depth + 1, out);
                pretty(item, depth + 1, out);
            }
            line(depth, out);
            out.push(']');
        }
        Jsonb::Object(members) => {
            out.push('{');
            for (number, (name, value)) in members.iter().enumerate() {
                out.push_str(if number > 0 { "," } else { "" });
                line(depth + 1, out);
                out.push_str(&Jsonb::String(name.clone()).to_string());
                out.push_str(": ");
                pretty(value, depth + 1, out);
            }
            line(depth, out);
            out.push('}');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

impl Function {
    /// The value of a jsonb function; `None` for other functions. No argument is NULL.
    pub(crate) fn of_jsonb(self, arguments: &[Value<'_>]) -> Result<Option<Value<'static>>> {
        let first = arguments.first();
        let second = arguments.get(1);
        let names = || texts(second).into_iter().flatten().collect::<Vec<String>>();
        let name = match second {
            Some(Value::Text(text)) => text.to_string(),
            _ => String::new(),
        };
        let flag = |by_itself| match arguments.get(3) {
            Some(Value::Bool(flag)) => *flag,
            _ => by_itself,
        };
        Ok(Some(match self {
            Self::JsonbContains => Value::Bool(contains(&tree(first)?, &tree(second)?)),
            Self::JsonbContained => Value::Bool(contains(&tree(second)?, &tree(first)?)),
            Self::JsonbExists => Value::Bool(exists(&tree(first)?, &name)),
            Self::JsonbExistsAny => {
                let tree = tree(first)?;
                Value::Bool(names().iter().any(|name| exists(&tree, name)))
            }
            Self::JsonbExistsAll => {
                let tree = tree(first)?;
                Value::Bool(names().iter().all(|name| exists(&tree, name)))
            }
            Self::JsonbConcat => written(&concat(tree(first)?, tree(second)?)),
            Self::JsonbDelete => written(&delete(tree(first)?, &[name])?),
            Self::JsonbDeleteAll => written(&delete(tree(first)?, &names())?),
            Self::JsonbDeleteAt => {
                let number = second.and_then(Value::as_integer).unwrap_or_default();
                match tree(first)? {
                    Jsonb::Array(mut items) => {
                        if let Ok(at) = place(number, items.len()) {
                            items.remove(at);
                        }
                        written(&Jsonb::Array(items))
                    }
                    Jsonb::Object(_) => return Err(wrong("cannot delete from object using integer index")),
                    _ => return Err(wrong("cannot delete from scalar")),
                }
            }
            Self::JsonbDeletePath => written(&at_path(tree(first)?, texts(second), &Change::Delete)?),
            Self::JsonbSet => {
                let value = tree(arguments.get(2))?;
                written(&at_path(tree(first)?, texts(second), &Change::Set(&value, flag(true)))?)
            }
            Self::JsonbInsert => {
                let value = tree(arguments.get(2))?;
                written(&at_path(tree(first)?, texts(second), &Change::Insert(&value, flag(false)))?)
            }
            Self::JsonbSetLax => {
                let nulls = |place: usize| arguments.get(place).is_some_and(Value::is_null);
                if nulls(0) || nulls(1) || nulls(3) {
                    return Ok(Some(Value::Null));
                }
                if !nulls(2) {
                    return Self::JsonbSet
                        .of_jsonb(arguments.get(..4.min(arguments.len())).unwrap_or_default());
                }
                let treatment = match arguments.get(4) {
                    Some(Value::Text(text)) => text.as_ref(),
                    Some(_) => "",
                    None => "use_json_null",
                };
                match treatment {
                    "use_json_null" => {
                        let change = Change::Set(&Jsonb::Null, flag(true));
                        written(&at_path(tree(first)?, texts(second), &change)?)
                    }
                    "return_target" => written(&tree(first)?),
                    "delete_key" => written(&at_path(tree(first)?, texts(second), &Change::Delete)?),
                    "raise_exception" => {
                        let message = "JSON value must not be null";
                        return Err(SqlError::new(state::NULL_VALUE_NOT_ALLOWED, message));
                    }
                    _ => {
                        let message = "null_value_treatment must be \"delete_key\", \"return_target\", \"use_json_null\", or \"raise_exception\"";
                        return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
                    }
                }
            }
            Self::JsonStripNulls => match first {
                Some(Value::Json(text)) => Value::json(crate::types::json::without_nulls(text)),
                _ => Value::Null,
            },
            Self::JsonbStripNulls => written(&stripped(tree(first)?)),
            Self::JsonbPretty => {
                let mut out = String::new();
                pretty(&tree(first)?, 0, &mut out);
                Value::text(out)
            }
            _ => return Ok(None),
        }))
    }
}
