//! Arrays as sets: equal elements count once; results are in value order.

use std::collections::BTreeMap;

use super::{Function, arg, between, fixed};
use crate::lang::budget::{Held, held};
use crate::lang::error::{LangResult, refuse};
use crate::lang::value::key::key_of;
use crate::lang::value::val::{self, Answer, Val};
use crate::lang::value::{Doc, Value};

pub(super) const TABLE: &[Function] = &[
    between("$setUnion", 0, usize::MAX, |args| combined("$setUnion", args, |_, _| true)),
    between("$setIntersection", 0, usize::MAX, |args| {
        combined("$setIntersection", args, |count, sets| count == sets)
    }),
    fixed("$setDifference", 2, |args| {
        let (Some(a), Some(b)) = (set("$setDifference", arg(args, 0))?, set("$setDifference", arg(args, 1))?)
        else {
            return Ok(Val::NULL);
        };
        val::array(
            a.values.into_iter().filter(|(key, _)| !b.values.contains_key(key)).map(|(_, value)| value),
        )
    }),
    between("$setEquals", 2, usize::MAX, |args| {
        let first = wanted("$setEquals", arg(args, 0))?;
        for other in args.iter().skip(1) {
            if !wanted("$setEquals", other)?.values.keys().eq(first.values.keys()) {
                return Ok(val::bool(false));
            }
        }
        Ok(val::bool(true))
    }),
    fixed("$setIsSubset", 2, |args| {
        let (a, b) = (wanted("$setIsSubset", arg(args, 0))?, wanted("$setIsSubset", arg(args, 1))?);
        Ok(val::bool(a.values.keys().all(|key| b.values.contains_key(key))))
    }),
    fixed("$allElementsTrue", 1, |args| {
        Ok(val::bool(elements("$allElementsTrue", arg(args, 0))?.values().all(Value::is_truthy)))
    }),
    fixed("$anyElementTrue", 1, |args| {
        Ok(val::bool(elements("$anyElementTrue", arg(args, 0))?.values().any(Value::is_truthy)))
    }),
];

/// Elements by their keys, and the memory of both.
struct Set<'v> {
    values: BTreeMap<Vec<u8>, Value<'v>>,
    held: Held,
}

/// Memory of one element in a tree: tree nodes are at least half full, and the key is a vector that grew.
const ENTRY_BYTES: usize = 2 * size_of::<(Vec<u8>, (usize, Value<'_>))>() + 32;

fn elements<'v>(name: &str, value: &'v Val<'_>) -> LangResult<Doc<'v>> {
    match value.get() {
        Some(Value::Array(array)) => Ok(array),
        _ => refuse!(17040, "{name}'s argument must be an array, but is {}", value.type_name()),
    }
}

fn wanted<'v>(name: &str, value: &'v Val<'_>) -> LangResult<Set<'v>> {
    let (listed, _listed) = val::listed(elements(name, value)?, 0)?;
    let (mut values, held) = (BTreeMap::new(), held("an expression"));
    for value in listed {
        let key = key_of(value);
        held.take(ENTRY_BYTES + key.capacity())?;
        values.insert(key, value);
    }
    Ok(Set { values, held })
}

fn set<'v>(name: &str, value: &'v Val<'_>) -> LangResult<Option<Set<'v>>> {
    if value.is_nullish() { Ok(None) } else { wanted(name, value).map(Some) }
}

/// The elements that are in the required number of sets.
fn combined(name: &str, args: &[Val<'_>], keep: fn(usize, usize) -> bool) -> Answer {
    let mut all: BTreeMap<Vec<u8>, (usize, Value<'_>)> = BTreeMap::new();
    let held = held("an expression");
    for value in args {
        let Some(set) = set(name, value)? else { return Ok(Val::NULL) };
        held.take(set.held.bytes())?;
        for (key, value) in set.values {
            all.entry(key).or_insert((0, value)).0 += 1;
        }
    }
    let kept = all.into_values().filter(|(count, _)| keep(*count, args.len()));
    val::array(kept.map(|(_, value)| value))
}
