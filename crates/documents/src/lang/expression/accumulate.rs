//! Accumulators of groups: `{ total: { $sum: "$n" } }`.

use std::collections::{BTreeMap, VecDeque};

use crate::lang::budget::byte_steps;
use crate::lang::error::{LangResult, refuse};
use crate::lang::expression::functions::{Merged, quotient, standard_deviation, sum_of};
use crate::lang::expression::percentile::{self, Percentiles};
use crate::lang::expression::{Expression, Scope};
use crate::lang::value::key::key_of;
use crate::lang::value::order;
use crate::lang::value::sort::Sort;
use crate::lang::value::val::{self, Answer, Val};
use crate::lang::value::writer::Writer;
use crate::lang::value::{Doc, Owned, Value};

/// Memory of an entry of a list or tree in addition to its key and value: the capacity of either may be
/// twice its length.
const LIST_ENTRY_BYTES: usize = size_of::<Owned>();
const TREE_ENTRY_BYTES: usize = 2 * size_of::<((Vec<u8>, u64), Owned)>() + 32;

/// A parsed accumulator.
#[derive(Debug, Clone)]
pub(crate) struct Accumulator {
    kind: Kind,
    input: Expression,
}

#[derive(Debug, Clone)]
enum Kind {
    Sum,
    Average,
    Extreme {
        greatest: bool,
    },
    First,
    Last,
    Push,
    Set,
    Merge,
    Deviation {
        sample: bool,
    },
    Percentiles(Percentiles),
    /// The first or last so many, in order of arrival.
    Some {
        count: usize,
        last: bool,
    },
    /// The least or greatest so many.
    Extremes {
        count: usize,
        greatest: bool,
    },
    /// So many by a sort; a single one is not wrapped in an array.
    Sorted {
        count: usize,
        sort: Sort,
        bottom: bool,
        single: bool,
    },
}

/// State accumulated so far.
#[derive(Debug, Clone)]
pub(crate) enum State {
    Sum(Value<'static>, i64),
    One(Option<Owned>),
    Many(VecDeque<Owned>),
    Set(BTreeMap<Vec<u8>, Owned>),
    Numbers(Vec<f64>),
    /// Sorted by key, then by arrival.
    Sorted(BTreeMap<(Vec<u8>, u64), Owned>, u64),
}

impl Accumulator {
    pub(crate) fn parse(spec: Value<'_>, scope: &Scope<'_>) -> LangResult<Self> {
        let pair = spec.as_document().filter(|doc| doc.iter().count() == 1).and_then(Doc::first);
        let Some((name, operand)) = pair else {
            refuse!(40234, "The field of a group must be an accumulator object, found: {spec}");
        };
        let input = || Expression::parse(operand, scope);
        let part = |doc: Doc<'_>, field: &str| match doc.get(field) {
            Some(value) => Ok(Expression::parse(value, scope)?),
            None => refuse!(5787906, "Missing value for '{field}' in {name}"),
        };
        let simple = |kind| Ok(Self { kind, input: input()? });
        match name {
            "$sum" => simple(Kind::Sum),
            "$avg" => simple(Kind::Average),
            "$min" => simple(Kind::Extreme { greatest: false }),
            "$max" => simple(Kind::Extreme { greatest: true }),
            "$first" => simple(Kind::First),
            "$last" => simple(Kind::Last),
            "$push" => simple(Kind::Push),
            "$addToSet" => simple(Kind::Set),
            "$mergeObjects" => simple(Kind::Merge),
            "$stdDevPop" => simple(Kind::Deviation { sample: false }),
            "$stdDevSamp" => simple(Kind::Deviation { sample: true }),
            "$percentile" | "$median" => {
                let (percentiles, input) = Percentiles::parse(name, operand, scope)?;
                Ok(Self { kind: Kind::Percentiles(percentiles), input: Expression::parse(input, scope)? })
            }
            "$count" => match operand {
                Value::Document(doc) if doc.is_empty() => {
                    Ok(Self { kind: Kind::Sum, input: Expression::constant(Value::Int32(1)) })
                }
                _ => refuse!(TypeMismatch, "$count takes no arguments, i.e. $count:{{}}"),
            },
            "$firstN" | "$lastN" | "$minN" | "$maxN" => {
                let doc = arguments(name, operand, &["input", "n"])?;
                let count = count_of(name, doc, scope)?;
                let kind = match name {
                    "$firstN" => Kind::Some { count, last: false },
                    "$lastN" => Kind::Some { count, last: true },
                    _ => Kind::Extremes { count, greatest: name == "$maxN" },
                };
                Ok(Self { kind, input: part(doc, "input")? })
            }
            "$top" | "$bottom" | "$topN" | "$bottomN" => {
                let single = !name.ends_with('N');
                let names: &[&str] = if single { &["output", "sortBy"] } else { &["output", "sortBy", "n"] };
                let doc = arguments(name, operand, names)?;
                let Some(Value::Document(sort)) = doc.get("sortBy") else {
                    refuse!(5788005, "Missing or invalid 'sortBy' in {name}");
                };
                let count = if single { 1 } else { count_of(name, doc, scope)? };
                let bottom = name.starts_with("$bottom");
                let kind = Kind::Sorted { count, sort: Sort::parse(sort)?, bottom, single };
                Ok(Self { kind, input: part(doc, "output")? })
            }
            "$accumulator" => {
                refuse!(CommandNotSupported, "$accumulator runs JavaScript, which is not offered")
            }
            _ => refuse!(15952, "unknown group operator '{name}'"),
        }
    }

    pub(crate) fn start(&self) -> State {
        match &self.kind {
            Kind::Sum | Kind::Average => State::Sum(Value::Int32(0), 0),
            Kind::Extreme { .. } | Kind::First | Kind::Last | Kind::Merge => State::One(None),
            Kind::Push | Kind::Some { .. } => State::Many(VecDeque::new()),
            Kind::Set => State::Set(BTreeMap::new()),
            Kind::Deviation { .. } | Kind::Percentiles(_) => State::Numbers(Vec::new()),
            Kind::Extremes { .. } | Kind::Sorted { .. } => State::Sorted(BTreeMap::new(), 0),
        }
    }

    /// Adds one document; returns the change in bytes held.
    pub(crate) fn add(&self, state: &mut State, doc: Doc<'_>) -> LangResult<isize> {
        let input = self.input.evaluate_root(doc)?;
        byte_steps(input.size())?;
        let value = input.get();
        Ok(match (&self.kind, state) {
            (Kind::Sum | Kind::Average, State::Sum(total, count)) => {
                if let Some(number) = value.filter(|value| value.is_number()) {
                    *total = sum_of(*total, number);
                    *count += 1;
                }
                0
            }
            (Kind::Extreme { greatest }, State::One(own)) => {
                let Some(value) = value.filter(|value| !value.is_nullish()) else { return Ok(0) };
                let better = own.as_ref().is_none_or(|own| {
                    let order = order::compare(value, own.value());
                    if *greatest { order.is_gt() } else { order.is_lt() }
                });
                if better { replace(own, value) } else { 0 }
            }
            (Kind::First, State::One(own @ None)) | (Kind::Last, State::One(own)) => {
                replace(own, input.or_null())
            }
            (Kind::First, State::One(Some(_))) => 0,
            (Kind::Merge, State::One(own)) => {
                let doc = match value {
                    Some(Value::Document(doc)) => doc,
                    None | Some(Value::Null | Value::Undefined) => Doc::empty(),
                    Some(other) => refuse!(
                        40400,
                        "$mergeObjects requires object inputs, but input {other} is of type {}",
                        other.type_name()
                    ),
                };
                let merged = {
                    let before =
                        own.as_ref().and_then(|own| own.value().as_document()).unwrap_or(Doc::empty());
                    let mut merged = Merged::new();
                    merged.put_all(before)?;
                    merged.put_all(doc)?;
                    merged.into_writer().within("a document that $mergeObjects makes")?.into_owned()
                };
                replace(own, merged.value())
            }
            (Kind::Push, State::Many(values)) => value.map_or(0, |value| push(values, value)),
            (Kind::Some { count, last }, State::Many(values)) => {
                let dropped = if *last && values.len() == *count { values.pop_front() } else { None };
                let less = dropped.map_or(0, |dropped| signed(LIST_ENTRY_BYTES + dropped.bytes()));
                if values.len() < *count { push(values, input.or_null()) - less } else { -less }
            }
            (Kind::Set, State::Set(values)) => {
                let Some(value) = value else { return Ok(0) };
                let key = key_of(value);
                let bytes = key.capacity() + TREE_ENTRY_BYTES;
                let mut grown = 0;
                values.entry(key).or_insert_with(|| {
                    let owned = Owned::from(value);
                    grown = signed(bytes + owned.bytes());
                    owned
                });
                grown
            }
            (Kind::Deviation { .. }, State::Numbers(numbers)) => match value.and_then(Value::as_double) {
                Some(number) => {
                    numbers.push(number);
                    signed(2 * size_of::<f64>())
                }
                None => 0,
            },
            (Kind::Percentiles(_), State::Numbers(numbers)) => match value.and_then(percentile::counted) {
                Some(number) => {
                    numbers.push(number);
                    signed(percentile::NUMBER_BYTES)
                }
                None => 0,
            },
            (Kind::Extremes { count, greatest }, State::Sorted(values, arrived)) => {
                let Some(value) = value.filter(|value| !value.is_nullish()) else { return Ok(0) };
                let mut key = Vec::new();
                crate::lang::value::key::encode(value, *greatest, &mut key);
                keep(values, arrived, key, value, *count, false)
            }
            (Kind::Sorted { count, sort, bottom, .. }, State::Sorted(values, arrived)) => {
                keep(values, arrived, sort.key(doc)?, input.or_null(), *count, *bottom)
            }
            _ => 0,
        })
    }

    /// The value of a group.
    ///
    /// # Errors
    /// An array above 16 MiB.
    pub(crate) fn finish(&self, state: &State) -> Answer {
        Ok(match (&self.kind, state) {
            (Kind::Average, State::Sum(total, count)) => {
                quotient(*total, Value::Int64(*count)).flatten().map_or(Val::NULL, Val::Ref)
            }
            (_, State::Sum(total, _)) => Val::Ref(*total),
            (Kind::Merge, State::One(None)) => Val::Own(Writer::new().into_owned()),
            (_, State::One(own)) => own.clone().map_or(Val::NULL, Val::Own),
            (_, State::Many(values)) => return val::array(values.iter().map(Owned::value)),
            (_, State::Set(values)) => return val::array(values.values().map(Owned::value)),
            (Kind::Deviation { sample }, State::Numbers(numbers)) => {
                let deviation = standard_deviation(numbers, usize::from(*sample));
                deviation.map_or(Val::NULL, |d| Val::Ref(Value::Double(d)))
            }
            (Kind::Percentiles(percentiles), State::Numbers(numbers)) => {
                return percentiles.of(numbers.clone());
            }
            (_, State::Numbers(_)) => Val::NULL,
            (Kind::Sorted { single: true, .. }, State::Sorted(values, _)) => {
                values.values().next().cloned().map_or(Val::NULL, Val::Own)
            }
            (_, State::Sorted(values, _)) => return val::array(values.values().map(Owned::value)),
        })
    }
}

fn signed(bytes: usize) -> isize {
    isize::try_from(bytes).unwrap_or(isize::MAX)
}

fn replace(own: &mut Option<Owned>, value: Value<'_>) -> isize {
    let before = own.as_ref().map_or(0, Owned::bytes);
    let owned = Owned::from(value);
    let after = owned.bytes();
    *own = Some(owned);
    signed(after) - signed(before)
}

fn push(values: &mut VecDeque<Owned>, value: Value<'_>) -> isize {
    let owned = Owned::from(value);
    let bytes = LIST_ENTRY_BYTES + owned.bytes();
    values.push_back(owned);
    signed(bytes)
}

/// Keeps the first `count` of the sorted entries, or the last of them.
fn keep(
    values: &mut BTreeMap<(Vec<u8>, u64), Owned>,
    arrived: &mut u64,
    key: Vec<u8>,
    value: Value<'_>,
    count: usize,
    bottom: bool,
) -> isize {
    let size = |key: &Vec<u8>, value: &Owned| signed(TREE_ENTRY_BYTES + key.capacity() + value.bytes());
    let owned = Owned::from(value);
    let more = size(&key, &owned);
    values.insert((key, *arrived), owned);
    *arrived += 1;
    if values.len() <= count {
        return more;
    }
    let dropped = if bottom { values.pop_first() } else { values.pop_last() };
    more - dropped.map_or(0, |((key, _), value)| size(&key, &value))
}

fn arguments<'v>(name: &str, operand: Value<'v>, names: &[&str]) -> LangResult<Doc<'v>> {
    let Value::Document(doc) = operand else {
        refuse!(5787900, "specification must be an object; found {name}: {operand}");
    };
    match doc.iter().find(|(own, _)| !names.contains(own)) {
        Some((other, _)) => refuse!(5787901, "Unknown argument for {name}: {other}"),
        None => Ok(doc),
    }
}

fn count_of(name: &str, doc: Doc<'_>, scope: &Scope<'_>) -> LangResult<usize> {
    let expression = doc.get("n").map(|value| Expression::parse(value, scope)).transpose()?;
    let value = match &expression {
        Some(expression) => expression.evaluate_root(Doc::empty())?,
        None => Val::Missing,
    };
    match value.get().and_then(Value::as_integer).and_then(|n| usize::try_from(n).ok()) {
        Some(n) if n > 0 => Ok(n),
        _ => refuse!(5787908, "{name}: 'n' must be a positive integer, found {}", value.or_null()),
    }
}
