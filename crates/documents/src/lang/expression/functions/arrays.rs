use super::arithmetic::{quotient, sum_of};
use super::{Function, arg, between, fixed, named};
use crate::lang::budget::{Held, held, steps};
use crate::lang::error::{Code, LangError, LangResult, refuse};
use crate::lang::value::order;
use crate::lang::value::sort::Sort;
use crate::lang::value::val::{self, Answer, Val};
use crate::lang::value::writer::Writer;
use crate::lang::value::{Doc, Value};

/// Longest range that is built; a longer one would exceed 16 MiB.
const RANGE_MAX: i64 = 1 << 21;
/// Memory of the key of one element.
const KEY_BYTES: usize = size_of::<(Vec<u8>, Value<'_>)>();
/// Memory of an input of `$zip` and of its default.
const INPUT_BYTES: usize = size_of::<Vec<Value<'_>>>() + 3 * size_of::<Value<'_>>();

pub(super) const TABLE: &[Function] = &[
    fixed("$size", 1, |args| Ok(val::int(array("$size", arg(args, 0), 17124)?.values().count()))),
    fixed("$isArray", 1, |args| Ok(val::bool(arg(args, 0).get().is_some_and(|v| v.as_array().is_some())))),
    fixed("$arrayElemAt", 2, |args| {
        if arg(args, 0).is_nullish() || arg(args, 1).is_nullish() {
            return Ok(Val::NULL);
        }
        let array = array("$arrayElemAt", arg(args, 0), 28689)?;
        let Some(at) = arg(args, 1).or_null().as_integer() else {
            refuse!(
                28690,
                "$arrayElemAt's second argument must be a numeric value, but is {}",
                arg(args, 1).type_name()
            );
        };
        Ok(element(array, at))
    }),
    fixed("$first", 1, |args| end("$first", args, 0)),
    fixed("$last", 1, |args| end("$last", args, -1)),
    named("$firstN", &["input", "n"], 2, |args| some("$firstN", args, |values, n| values.truncate(n))),
    named("$lastN", &["input", "n"], 2, |args| {
        some("$lastN", args, |values, n| {
            values.drain(..values.len().saturating_sub(n));
        })
    }),
    named("$minN", &["input", "n"], 2, |args| some("$minN", args, |values, n| extremes(values, n, false))),
    named("$maxN", &["input", "n"], 2, |args| some("$maxN", args, |values, n| extremes(values, n, true))),
    between("$concatArrays", 0, usize::MAX, |args| {
        let mut writer = Writer::array().bounded();
        for value in args {
            if value.is_nullish() {
                return Ok(Val::NULL);
            }
            array("$concatArrays", value, 28664)?.values().for_each(|value| writer.put("", value));
            if writer.is_full() {
                break;
            }
        }
        val::built(writer)
    }),
    fixed("$in", 2, |args| {
        let array = array("$in", arg(args, 1), 40081)?;
        let wanted = arg(args, 0).get();
        Ok(val::bool(array.values().any(|value| order::compare_options(Some(value), wanted).is_eq())))
    }),
    between("$indexOfArray", 2, 4, index),
    between("$range", 2, 3, range),
    fixed("$reverseArray", 1, |args| {
        if arg(args, 0).is_nullish() {
            return Ok(Val::NULL);
        }
        let (values, _held) = val::listed(array("$reverseArray", arg(args, 0), 34435)?, 0)?;
        val::array(values.into_iter().rev())
    }),
    between("$slice", 2, 3, slice),
    named("$zip", &["inputs", "useLongestLength", "defaults"], 1, zip),
    named("$sortArray", &["input", "sortBy"], 2, sort),
    between("$sum", 0, usize::MAX, |args| Ok(Val::Ref(numbers(args).fold(Value::Int32(0), sum_of)))),
    between("$avg", 0, usize::MAX, |args| {
        let count = Value::Int64(numbers(args).count() as i64);
        let total = numbers(args).fold(Value::Int32(0), sum_of);
        Ok(quotient(total, count).flatten().map_or(Val::NULL, Val::Ref))
    }),
    between("$min", 0, usize::MAX, |args| extreme(args, false)),
    between("$max", 0, usize::MAX, |args| extreme(args, true)),
    between("$stdDevPop", 0, usize::MAX, |args| deviation(args, 0)),
    between("$stdDevSamp", 0, usize::MAX, |args| deviation(args, 1)),
];

fn array<'v>(name: &str, value: &'v Val<'_>, code: i32) -> LangResult<Doc<'v>> {
    match value.get() {
        Some(Value::Array(array)) => Ok(array),
        _ => Err(LangError::new(
            Code::Location(code),
            format!("The argument to {name} must be an array, but was of type: {}", value.type_name()),
        )),
    }
}

fn element(array: Doc<'_>, at: i64) -> Val<'static> {
    let at = match usize::try_from(at) {
        Ok(at) => Some(at),
        Err(_) => {
            array.values().count().checked_sub(usize::try_from(at.unsigned_abs()).unwrap_or(usize::MAX))
        }
    };
    at.and_then(|at| array.values().nth(at)).map_or(Val::Missing, val::own)
}

fn end(name: &str, args: &[Val<'_>], at: i64) -> Answer {
    if arg(args, 0).is_nullish() {
        return Ok(Val::NULL);
    }
    Ok(element(array(name, arg(args, 0), 28689)?, at))
}

/// The first or last so many elements.
fn some(name: &str, args: &[Val<'_>], pick: fn(&mut Vec<Value<'_>>, usize)) -> Answer {
    let array = array(name, arg(args, 0), 5788200)?;
    let Some(n) = arg(args, 1).or_null().as_integer().filter(|n| *n > 0) else {
        refuse!(5787908, "{name}: 'n' must be a positive integer, found {}", arg(args, 1).or_null());
    };
    let (mut values, _held) = val::listed(array, 0)?;
    pick(&mut values, usize::try_from(n).unwrap_or(usize::MAX));
    val::array(values)
}

fn extremes(values: &mut Vec<Value<'_>>, n: usize, greatest: bool) {
    values.retain(|value| !value.is_nullish());
    values.sort_by(|a, b| if greatest { order::compare(*b, *a) } else { order::compare(*a, *b) });
    values.truncate(n);
}

fn index(args: &[Val<'_>]) -> Answer {
    if arg(args, 0).is_nullish() {
        return Ok(Val::NULL);
    }
    let array = array("$indexOfArray", arg(args, 0), 40090)?;
    let bound = |at: usize, default: usize| match args.get(at) {
        None => Ok(default),
        Some(value) => match value.or_null().as_integer().and_then(|n| usize::try_from(n).ok()) {
            Some(n) => Ok(n),
            None => refuse!(
                40096,
                "$indexOfArray requires non-negative integral indexes, found: {}",
                value.or_null()
            ),
        },
    };
    let (start, end) = (bound(2, 0)?, bound(3, usize::MAX)?);
    let wanted = arg(args, 1).get();
    let found = array
        .values()
        .enumerate()
        .skip(start)
        .take(end.saturating_sub(start))
        .find(|(_, value)| order::compare_options(Some(*value), wanted).is_eq());
    Ok(found.map_or(Val::Ref(Value::Int32(-1)), |(at, _)| val::int(at)))
}

fn range(args: &[Val<'_>]) -> Answer {
    let number = |at: usize| match arg(args, at).or_null().as_integer().and_then(|n| i32::try_from(n).ok()) {
        Some(n) => Ok(i64::from(n)),
        None => refuse!(34444, "$range takes numbers of 32 bits, found: {}", arg(args, at).or_null()),
    };
    let (start, end) = (number(0)?, number(1)?);
    let step = if args.len() > 2 { number(2)? } else { 1 };
    if step == 0 {
        refuse!(34449, "$range requires a non-zero step value");
    }
    if (end - start) / step > RANGE_MAX {
        refuse!(BSONObjectTooLarge, "$range would make an array above 16 MiB");
    }
    let mut writer = Writer::array().bounded();
    let mut at = start;
    while if step > 0 { at < end } else { at > end } {
        writer.put("", Value::Int32(at as i32));
        at += step;
    }
    val::built(writer)
}

fn slice(args: &[Val<'_>]) -> Answer {
    if args.iter().any(Val::is_nullish) {
        return Ok(Val::NULL);
    }
    let array = array("$slice", arg(args, 0), 28724)?;
    let number = |at: usize| match arg(args, at).or_null().as_integer() {
        Some(n) => Ok(n),
        None => refuse!(28725, "$slice takes whole numbers, found: {}", arg(args, at).or_null()),
    };
    let (position, count) = if args.len() == 2 {
        let n = number(1)?;
        (if n < 0 { n } else { 0 }, n.saturating_abs())
    } else {
        let count = number(2)?;
        if count <= 0 {
            refuse!(28729, "Third argument to $slice must be positive: {count}");
        }
        (number(1)?, count)
    };
    let (from, count) = window(array.values().count(), position, count);
    val::array(array.values().skip(from).take(count))
}

/// Start and length of a slice; a negative position counts from the end.
pub(crate) fn window(length: usize, position: i64, count: i64) -> (usize, usize) {
    let from = match usize::try_from(position) {
        Ok(position) => position.min(length),
        Err(_) => length.saturating_sub(usize::try_from(position.unsigned_abs()).unwrap_or(usize::MAX)),
    };
    (from, usize::try_from(count).unwrap_or(0))
}

fn zip(args: &[Val<'_>]) -> Answer {
    if arg(args, 0).is_nullish() {
        return Ok(Val::NULL);
    }
    let (listed, held) = val::listed(array("$zip", arg(args, 0), 34461)?, INPUT_BYTES)?;
    let mut inputs = Vec::with_capacity(listed.len());
    for input in listed {
        match input {
            Value::Array(input) => {
                let count = input.values().count();
                held.take(count * size_of::<Value<'_>>())?;
                let mut values = Vec::with_capacity(count);
                values.extend(input.values());
                inputs.push(values);
            }
            value if value.is_nullish() => return Ok(Val::NULL),
            other => refuse!(34468, "$zip found a non-array expression in input: {other}"),
        }
    }
    if inputs.is_empty() {
        refuse!(34465, "$zip requires at least one input array");
    }
    let longest = match arg(args, 1).get() {
        None => false,
        Some(Value::Bool(longest)) => longest,
        Some(_) => refuse!(34463, "useLongestLength must be a bool, found {}", arg(args, 1).type_name()),
    };
    let defaults: Vec<Value<'_>> = match arg(args, 2).get() {
        None => Vec::new(),
        Some(_) if !longest => refuse!(34466, "cannot specify defaults unless useLongestLength is true"),
        Some(Value::Array(defaults)) if defaults.values().count() == inputs.len() => {
            defaults.values().collect()
        }
        Some(_) => refuse!(34467, "defaults and inputs must have the same length"),
    };
    let lengths = inputs.iter().map(Vec::len);
    let length = if longest { lengths.max() } else { lengths.min() };
    let mut writer = Writer::array().bounded();
    for row in 0..length.unwrap_or(0) {
        steps(inputs.len())?;
        if writer.is_full() {
            break;
        }
        writer.open_array("");
        for (column, input) in inputs.iter().enumerate() {
            let default = defaults.get(column).copied().unwrap_or(Value::Null);
            writer.put("", input.get(row).copied().unwrap_or(default));
        }
        writer.close();
    }
    val::built(writer)
}

fn sort(args: &[Val<'_>]) -> Answer {
    if arg(args, 0).is_nullish() {
        return Ok(Val::NULL);
    }
    // The size of a key, and of its position for the sort.
    let (mut values, held) = val::listed(array("$sortArray", arg(args, 0), 2942504)?, 3 * KEY_BYTES)?;
    match arg(args, 1).or_null() {
        Value::Document(spec) => {
            let sort = Sort::parse(spec)?;
            let mut keyed = Vec::with_capacity(values.len());
            for value in values {
                let key = sort.key(value.as_document().unwrap_or(Doc::empty()))?;
                held.take(key.capacity())?;
                keyed.push((key, value));
            }
            keyed.sort_by(|a, b| a.0.cmp(&b.0));
            values = keyed.into_iter().map(|(_, value)| value).collect();
        }
        direction => match direction.as_integer() {
            Some(1) => values.sort_by(|a, b| order::compare(*a, *b)),
            Some(-1) => values.sort_by(|a, b| order::compare(*b, *a)),
            _ => refuse!(2942507, "$sortArray: sortBy must be a document, 1 or -1, found: {direction}"),
        },
    }
    val::array(values)
}

/// The operands, or the elements of a single operand that is an array.
fn operands<'v>(args: &'v [Val<'_>]) -> Box<dyn Iterator<Item = Value<'v>> + 'v> {
    match args {
        [only] => match only.get() {
            Some(Value::Array(array)) => Box::new(array.values()),
            other => Box::new(other.into_iter()),
        },
        many => Box::new(many.iter().filter_map(Val::get)),
    }
}

/// The numbers among the operands.
fn numbers<'v>(args: &'v [Val<'_>]) -> impl Iterator<Item = Value<'v>> {
    operands(args).filter(|value| value.is_number())
}

fn extreme(args: &[Val<'_>], greatest: bool) -> Answer {
    let values = operands(args).filter(|value| !value.is_nullish());
    let found = if greatest {
        values.max_by(|a, b| order::compare(*a, *b))
    } else {
        values.min_by(|a, b| order::compare(*a, *b))
    };
    Ok(found.map_or(Val::NULL, val::own))
}

fn deviation(args: &[Val<'_>], less: usize) -> Answer {
    let (mut numbers, held): (Vec<f64>, Held) = (Vec::new(), held("an expression"));
    for number in self::numbers(args).filter_map(Value::as_double) {
        held.take(2 * size_of::<f64>())?;
        numbers.push(number);
    }
    Ok(standard_deviation(&numbers, less).map_or(Val::NULL, |d| Val::Ref(Value::Double(d))))
}

/// For a population (`less` 0) or a sample (`less` 1).
pub(crate) fn standard_deviation(numbers: &[f64], less: usize) -> Option<f64> {
    let divisor = numbers.len().checked_sub(less).filter(|divisor| *divisor > 0)?;
    let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
    let squares: f64 = numbers.iter().map(|x| (x - mean).powi(2)).sum();
    Some((squares / divisor as f64).sqrt())
}
