//! The functions that only `$setWindowFields` has: positions, ranks, neighbours, filled gaps, and calculus
//! along the sort.

use crate::lang::error::{LangResult, refuse};
use crate::lang::expression::{Expression, Scope};
use crate::lang::memory::Memory;
use crate::lang::pipeline::only;
use crate::lang::pipeline::window::{Framed, Partition};
use crate::lang::value::path;
use crate::lang::value::sort::Sort;
use crate::lang::value::val::Val;
use crate::lang::value::{Doc, DocBuf, Owned, Value};

/// A function of a whole partition.
#[derive(Debug, Clone)]
pub(crate) enum Whole {
    DocumentNumber,
    Rank {
        dense: bool,
    },
    Shift {
        output: Expression,
        by: i64,
        default: Owned,
    },
    MovingAverage {
        input: Expression,
        alpha: f64,
    },
    /// The last value that was present.
    Locf(Expression),
    LinearFill(Expression),
}

/// Position of a frame in its partition.
pub(crate) struct Place<'p> {
    pub(crate) partition: &'p Partition<'p>,
    pub(crate) start: usize,
}

fn sorted(name: &str, sort: Option<&Sort>, one: bool) -> LangResult<()> {
    match sort {
        Some(sort) if !one || sort.only().is_some() => Ok(()),
        Some(_) => refuse!(
            5371602,
            "{name} must be specified with a top level sortBy expression with exactly one element"
        ),
        None => refuse!(5371602, "{name} must be specified with a top level sortBy expression"),
    }
}

fn document<'v>(name: &str, operand: Value<'v>, fields: &[&str]) -> LangResult<Doc<'v>> {
    match operand {
        Value::Document(doc) => only(name, doc, fields),
        _ => refuse!(FailedToParse, "Argument to {name} must be an object"),
    }
}

fn input(name: &str, doc: Doc<'_>, field: &str, scope: &Scope<'_>) -> LangResult<Expression> {
    match doc.get(field) {
        Some(value) => Expression::parse(value, scope),
        None => refuse!(FailedToParse, "{name} requires '{field}'"),
    }
}

fn constant(value: Value<'_>, scope: &Scope<'_>) -> LangResult<Owned> {
    let expression = Expression::parse(value, scope)?;
    Ok(Owned::from(expression.evaluate_root(Doc::empty())?.or_null()))
}

impl Whole {
    /// `None` for functions of frames.
    pub(crate) fn parse(
        name: &str,
        operand: Value<'_>,
        sort: Option<&Sort>,
        scope: &Scope<'_>,
    ) -> LangResult<Option<Self>> {
        let empty = || match operand {
            Value::Document(doc) if doc.is_empty() => Ok(()),
            _ => refuse!(5371603, "{name} must be specified with '{{}}' as the value"),
        };
        Ok(Some(match name {
            "$documentNumber" => {
                sorted(name, sort, false)?;
                empty()?;
                Self::DocumentNumber
            }
            "$rank" | "$denseRank" => {
                sorted(name, sort, true)?;
                empty()?;
                Self::Rank { dense: name == "$denseRank" }
            }
            "$shift" => {
                sorted(name, sort, false)?;
                let doc = document(name, operand, &["output", "by", "default"])?;
                let Some(by) = doc.get("by").and_then(Value::as_integer) else {
                    refuse!(FailedToParse, "'$shift:by' field must be an integer");
                };
                let default = constant(doc.get("default").unwrap_or(Value::Null), scope)?;
                Self::Shift { output: input(name, doc, "output", scope)?, by, default }
            }
            "$expMovingAvg" => {
                sorted(name, sort, false)?;
                let doc = document(name, operand, &["input", "N", "alpha"])?;
                let count = doc.get("N").and_then(Value::as_integer).filter(|n| *n > 0);
                let weight = doc.get("alpha").and_then(Value::as_double).filter(|a| *a > 0.0 && *a < 1.0);
                let alpha = match (count, weight) {
                    (Some(count), None) => 2.0 / (count as f64 + 1.0),
                    (None, Some(weight)) => weight,
                    _ => refuse!(
                        FailedToParse,
                        "$expMovingAvg takes either N, a positive integer, or alpha, between 0 and 1"
                    ),
                };
                Self::MovingAverage { input: input(name, doc, "input", scope)?, alpha }
            }
            "$locf" => {
                sorted(name, sort, false)?;
                Self::Locf(Expression::parse(operand, scope)?)
            }
            "$linearFill" => {
                sorted(name, sort, true)?;
                Self::LinearFill(Expression::parse(operand, scope)?)
            }
            _ => return Ok(None),
        }))
    }

    /// Returns one value for each document; `None` adds no field.
    pub(crate) fn values(
        &self,
        partition: &Partition<'_>,
        memory: &Memory,
        show: &mut dyn FnMut(Option<Owned>) -> LangResult<()>,
    ) -> LangResult<()> {
        let hold = memory.holder("$setWindowFields");
        let owned = |value: Value<'_>| Some(Owned::from(value));
        let each = |expression: &Expression| -> LangResult<Vec<Owned>> {
            let of = |doc: &DocBuf| {
                let value = expression.evaluate_root(doc.doc())?;
                hold.take(2 * size_of::<Owned>() + value.size())?;
                Ok(Owned::from(value.or_null()))
            };
            partition.docs.iter().map(of).collect()
        };
        match self {
            Self::DocumentNumber => (1..=partition.docs.len()).try_for_each(|n| show(owned(number(n)))),
            Self::Rank { dense } => ranks(partition.keys, *dense).try_for_each(|n| show(owned(number(n)))),
            Self::Shift { output, by, default } => {
                let values = each(output)?;
                let at = |place: usize| usize::try_from(i64::try_from(place).ok()?.checked_add(*by)?).ok();
                let shifted = |place| at(place).and_then(|at| values.get(at)).unwrap_or(default).clone();
                (0..values.len()).try_for_each(|place| show(Some(shifted(place))))
            }
            Self::MovingAverage { input, alpha } => {
                let mut average: Option<f64> = None;
                each(input)?.iter().try_for_each(|value| {
                    if let Some(value) = value.value().as_double().filter(|_| value.value().is_number()) {
                        average =
                            Some(average.map_or(value, |before| value * alpha + before * (1.0 - alpha)));
                    }
                    show(owned(average.map_or(Value::Null, Value::Double)))
                })
            }
            Self::Locf(input) => {
                let mut last = Owned::from(Value::Null);
                each(input)?.into_iter().try_for_each(|value| {
                    if !value.value().is_nullish() {
                        last = value;
                    }
                    show(Some(last.clone()))
                })
            }
            Self::LinearFill(input) => {
                filled(partition, each(input)?)?.into_iter().try_for_each(|value| show(Some(value)))
            }
        }
    }
}

fn number(n: usize) -> Value<'static> {
    crate::lang::value::number::narrow(n as i64, true)
}

fn ranks(keys: &[Vec<u8>], dense: bool) -> impl Iterator<Item = usize> {
    let (mut rank, mut before) = (0, None);
    keys.iter().enumerate().map(move |(place, key)| {
        if before != Some(key) {
            rank = if dense { rank + 1 } else { place + 1 };
            before = Some(key);
        }
        rank
    })
}

/// The sort value of a document as a number; dates in milliseconds.
fn along(partition: &Partition<'_>, place: usize) -> Option<f64> {
    let doc = partition.docs.get(place)?;
    match path::get(doc.doc(), partition.sort?)? {
        Value::DateTime(ms) => Some(ms as f64),
        value if value.is_number() => value.as_double(),
        _ => None,
    }
}

/// Fills gaps between two numbers by linear interpolation.
fn filled(partition: &Partition<'_>, mut values: Vec<Owned>) -> LangResult<Vec<Owned>> {
    let mut before: Option<(usize, f64)> = None;
    for place in 0..values.len() {
        let Some(value) = values.get(place).filter(|value| !value.value().is_nullish()) else { continue };
        let Some(number) = value.value().as_double().filter(|_| value.value().is_number()) else {
            refuse!(TypeMismatch, "Value to be filled must be numeric or nullish");
        };
        if let Some((first, from)) = before {
            let (Some(x0), Some(x1)) = (along(partition, first), along(partition, place)) else {
                refuse!(TypeMismatch, "$linearFill sorts by a number or a date");
            };
            for gap in first + 1..place {
                let Some(x) = along(partition, gap).filter(|_| x1 > x0) else {
                    refuse!(6050106, "There can be no repeated values in the sort field");
                };
                if let Some(slot) = values.get_mut(gap) {
                    *slot = Owned::from(Value::Double(from + (number - from) * (x - x0) / (x1 - x0)));
                }
            }
        }
        before = Some((place, number));
    }
    Ok(values)
}

impl Framed {
    /// The functions of frames that are not accumulators of groups.
    pub(crate) fn parse_along(
        name: &str,
        operand: Value<'_>,
        sort: Option<&Sort>,
        scope: &Scope<'_>,
    ) -> LangResult<Option<Self>> {
        Ok(Some(match name {
            "$derivative" | "$integral" => {
                sorted(name, sort, true)?;
                let doc = document(name, operand, &["input", "unit"])?;
                let unit_ms = match doc.get("unit") {
                    None => None,
                    Some(unit) => Some(milliseconds(name, unit)?),
                };
                let input = input(name, doc, "input", scope)?;
                match name {
                    "$derivative" => Self::Derivative { input, unit_ms },
                    _ => Self::Integral { input, unit_ms },
                }
            }
            "$covariancePop" | "$covarianceSamp" => {
                let pair =
                    operand.as_array().map(|pair| pair.values().collect::<Vec<_>>()).unwrap_or_default();
                let [one, other] = pair.as_slice() else {
                    refuse!(FailedToParse, "{name} takes an array of two expressions");
                };
                let pair = [Expression::parse(*one, scope)?, Expression::parse(*other, scope)?];
                Self::Covariance { pair, sample: name == "$covarianceSamp" }
            }
            _ => return Ok(None),
        }))
    }

    /// The value of a frame; accumulators are the caller's.
    pub(crate) fn value(&self, docs: &[DocBuf], place: &Place<'_>) -> LangResult<Val<'static>> {
        let double = |value: Option<f64>| value.map_or(Val::NULL, |value| Val::Ref(Value::Double(value)));
        let numeric = |expression: &Expression, doc: &DocBuf| -> LangResult<Option<f64>> {
            let value = expression.evaluate_root(doc.doc())?;
            Ok(value.get().filter(|value| value.is_number()).and_then(Value::as_double))
        };
        Ok(match self {
            Self::Accumulate(_) => Val::Missing,
            Self::Derivative { input, unit_ms } => {
                let (Some(first), Some(last)) = (docs.first(), docs.last()) else { return Ok(Val::NULL) };
                let (y0, y1) = (numeric(input, first)?, numeric(input, last)?);
                let x0 = along(place.partition, place.start);
                let x1 = along(place.partition, place.start + docs.len() - 1);
                let slope = match (y0.zip(x0), y1.zip(x1)) {
                    (Some((y0, x0)), Some((y1, x1))) if x1 != x0 => Some((y1 - y0) / (x1 - x0)),
                    _ => None,
                };
                double(slope.map(|slope| slope * unit_ms.unwrap_or(1.0)))
            }
            Self::Integral { input, unit_ms } => {
                let mut area = 0.0;
                let mut before: Option<(f64, f64)> = None;
                for (at, doc) in (place.start..).zip(docs) {
                    let Some(point) = along(place.partition, at).zip(numeric(input, doc)?) else { continue };
                    if let Some((x, y)) = before {
                        area += (point.0 - x) * (point.1 + y) / 2.0;
                    }
                    before = Some(point);
                }
                double(before.map(|_| area / unit_ms.unwrap_or(1.0)))
            }
            Self::Covariance { pair: [one, other], sample } => {
                let mut points = Vec::with_capacity(docs.len());
                for doc in docs {
                    points.extend(numeric(one, doc)?.zip(numeric(other, doc)?));
                }
                double(covariance(&points, usize::from(*sample)))
            }
        })
    }
}

fn covariance(points: &[(f64, f64)], less: usize) -> Option<f64> {
    let divisor = points.len().checked_sub(less).filter(|divisor| *divisor > 0)?;
    let count = points.len() as f64;
    let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
    Some(points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum::<f64>() / divisor as f64)
}

/// Milliseconds of a unit of time that has a fixed length.
fn milliseconds(name: &str, unit: Value<'_>) -> LangResult<f64> {
    Ok(match unit {
        Value::String("week") => 604_800_000.0,
        Value::String("day") => 86_400_000.0,
        Value::String("hour") => 3_600_000.0,
        Value::String("minute") => 60_000.0,
        Value::String("second") => 1_000.0,
        Value::String("millisecond") => 1.0,
        other => refuse!(5490710, "unit must be 'week' or smaller in {name}, found {other}"),
    })
}
