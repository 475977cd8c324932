//! Arrays as sets: equal elements count once; results are in value order.

use std::collections::BTreeMap;

use super::{Arguments, Function, arg, fixed, ordered};
use crate::lang::budget::{Held, held};
use crate::lang::error::{LangResult, refuse};
use crate::lang::value::ordering::Order;
use crate::lang::value::val::{self, Answer, Val};
use crate::lang::value::{Doc, Value};

pub(super) const TABLE: &[Function] = &[
    ordered("$setUnion", Arguments::Between(0, usize::MAX), |args, order| {
        combined("$setUnion", args, order, |_, _| true)
    }),
    ordered("$setIntersection", Arguments::Between(0, usize::MAX), |args, order| {
        combined("$setIntersection", args, order, |count, sets| count == sets)
    }),
    ordered("$setDifference", Arguments::Between(2, 2), |args, order| {
        let set = |at: usize| set("$setDifference", arg(args, at), order);
        let (Some(a), Some(b)) = (set(0)?, set(1)?) else { return Ok(Val::NULL) };
        val::array(
            a.values.into_iter().filter(|(key, _)| !b.values.contains_key(key)).map(|(_, value)| value),
        )
    }),
    ordered("$setEquals", Arguments::Between(2, usize::MAX), |args, order| {
        let first = wanted("$setEquals", arg(args, 0), order)?;
        for other in args.iter().skip(1) {
            if !wanted("$setEquals", other, order)?.values.keys().eq(first.values.keys()) {
                return Ok(val::bool(false));
            }
        }
        Ok(val::bool(true))
    }),
    ordered("$setIsSubset", Arguments::Between(2, 2), |args, order| {
        let wanted = |at: usize| wanted("$setIsSubset", arg(args, at), order);
        let (a, b) = (wanted(0)?, wanted(1)?);
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

fn wanted<'v>(name: &str, value: &'v Val<'_>, order: &Order) -> LangResult<Set<'v>> {
    let (listed, _listed) = val::listed(elements(name, value)?, 0)?;
    let (mut values, held) = (BTreeMap::new(), held("an expression"));
    for value in listed {
        let key = order.key(value)?;
        held.take(ENTRY_BYTES + key.capacity())?;
        values.insert(key, value);
    }
    Ok(Set { values, held })
}

fn set<'v>(name: &str, value: &'v Val<'_>, order: &Order) -> LangResult<Option<Set<'v>>> {
    if value.is_nullish() { Ok(None) } else { wanted(name, value, order).map(Some) }
}

/// The elements that are in the required number of sets.
fn combined(name: &str, args: &[Val<'_>], order: &Order, keep: fn(usize, usize) -> bool) -> Answer {
    let mut all: BTreeMap<Vec<u8>, (usize, Value<'_>)> = BTreeMap::new();
    let held = held("an expression");
    for value in args {
        let Some(set) = set(name, value, order)? else { return Ok(Val::NULL) };
        held.take(set.held.bytes())?;
        for (key, value) in set.values {
            all.entry(key).or_insert((0, value)).0 += 1;
        }
    }
    let kept = all.into_values().filter(|(count, _)| keep(*count, args.len()));
    val::array(kept.map(|(_, value)| value))
}
