//! Aggregates: resolution by name, and their states.
//!
//! Sums are exact where PostgreSQL's are: integers are summed in 128 bits, numerics as numerics; only floats
//! use floating point.

use std::collections::HashSet;

use ropewalk::tables::{Array, Interval, Numeric, Scalar, Type, Value};

use crate::error::{Result, SqlError, state};
use crate::expr::arith::{Arith, arithmetic, order, out_of_range, put_identity, sort_order, too_long};
use crate::expr::cast::{to_f64, to_numeric};
use crate::expr::{Context, Expr, Input, Order, bounds};
use crate::functions::element_of;
use crate::functions::json::json_of;
use crate::functions::statistics::{Pair, PairSums, Spread, Sums, carried};
use crate::limits::budget::{Budget, value_bytes};
use crate::types::interval;
use crate::types::json::quoted;
use crate::types::names::{is_integer, is_numeric, rank, shown, unmodified};
use crate::types::zone::Zone;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Count,
    Sum,
    Avg,
    Min,
    Max,
    BoolAnd,
    BoolOr,
    StringAgg,
    ArrayAgg(Scalar),
    JsonAgg,
    JsonObjectAgg,
    /// `percentile_cont`: interpolated between the two values around the fraction.
    PercentileCont,
    /// `percentile_disc`: the first value at or after the fraction.
    PercentileDisc,
    /// The most frequent value.
    Mode,
    Spread(Spread),
    Pair(Pair),
    BitAnd,
    BitOr,
    BitXor,
    /// `grouping(keys)`: the keys that are not in the row's grouping set; only in the query engine.
    Grouping,
}

impl Kind {
    /// True when it is called with WITHIN GROUP.
    pub(crate) fn is_of_ordered_set(self) -> bool {
        matches!(self, Self::PercentileCont | Self::PercentileDisc | Self::Mode)
    }

    /// True when the result depends on the order of the rows.
    pub(crate) fn minds_order(self) -> bool {
        self.is_of_ordered_set() || matches!(self, Self::StringAgg) || self.takes_nulls()
    }

    fn takes_nulls(self) -> bool {
        matches!(self, Self::ArrayAgg(_) | Self::JsonAgg | Self::JsonObjectAgg)
    }
}

/// An aggregate of a query.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Aggregate {
    pub(crate) kind: Kind,
    /// Empty for `count(*)`.
    pub(crate) arguments: Vec<Expr>,
    /// The types of the arguments.
    pub(crate) types: Vec<Type>,
    pub(crate) distinct: bool,
    pub(crate) filter: Option<Expr>,
    /// The order of its input rows; empty: as they arrive.
    pub(crate) order: Vec<Order>,
    pub(crate) ty: Type,
}

pub(crate) struct Resolved {
    pub(crate) kind: Kind,
    pub(crate) arguments: Vec<Type>,
    pub(crate) ty: Type,
}

pub(crate) fn is_aggregate(name: &str) -> bool {
    const NAMES: [&str; 10] =
        ["count", "sum", "avg", "min", "max", "bool_and", "bool_or", "every", "string_agg", "array_agg"];
    const OF_JSON: [&str; 4] = ["json_agg", "jsonb_agg", "json_object_agg", "jsonb_object_agg"];
    const OF_BITS: [&str; 3] = ["bit_and", "bit_or", "bit_xor"];
    NAMES.contains(&name)
        || OF_JSON.contains(&name)
        || OF_BITS.contains(&name)
        || is_of_ordered_set(name)
        || Spread::named(name).is_some()
        || Pair::named(name).is_some()
        || name == "grouping"
}

/// True for names used with WITHIN GROUP.
pub(crate) fn is_of_ordered_set(name: &str) -> bool {
    matches!(name, "percentile_cont" | "percentile_disc" | "mode")
}

/// Resolves an aggregate by its name and argument types. The ORDER BY values of WITHIN GROUP come first.
pub(crate) fn resolve(name: &str, types: &[Option<Type>]) -> Result<Resolved> {
    let unknown = || {
        let types: Vec<String> = types.iter().map(|ty| shown(*ty)).collect();
        let message = format!("function {name}({}) does not exist", types.join(", "));
        SqlError::new(state::UNDEFINED_FUNCTION, message)
    };
    let answer = |kind, arguments: &[Type], ty| Ok(Resolved { kind, arguments: arguments.to_vec(), ty });
    let first = types.first().copied().flatten();
    match (name, types.len()) {
        ("count", 0) => answer(Kind::Count, &[], Type::INT8),
        ("count", 1) => answer(Kind::Count, &[first.unwrap_or(Type::TEXT)], Type::INT8),
        ("sum" | "avg", 1) if first == Some(Type::INTERVAL) => {
            answer(if name == "sum" { Kind::Sum } else { Kind::Avg }, &[Type::INTERVAL], Type::INTERVAL)
        }
        ("sum", 1) => {
            let ty = first.filter(|ty| rank(*ty).is_some()).ok_or_else(unknown)?;
            let sum = match ty {
                Type::INT2 | Type::INT4 => Type::INT8,
                Type::INT8 => Type::NUMERIC,
                other => unmodified(other),
            };
            answer(Kind::Sum, &[unmodified(ty)], sum)
        }
        ("avg", 1) => {
            let ty = first.filter(|ty| rank(*ty).is_some()).ok_or_else(unknown)?;
            let exact = is_integer(ty) || is_numeric(ty);
            answer(Kind::Avg, &[unmodified(ty)], if exact { Type::NUMERIC } else { Type::FLOAT8 })
        }
        ("min" | "max", 1) => {
            let ty = first.unwrap_or(Type::TEXT);
            if !ty.is_ordered() || ty == Type::BOOL {
                return Err(unknown());
            }
            answer(if name == "min" { Kind::Min } else { Kind::Max }, &[ty], ty)
        }
        ("bool_and" | "every", 1) => answer(Kind::BoolAnd, &[Type::BOOL], Type::BOOL),
        ("bool_or", 1) => answer(Kind::BoolOr, &[Type::BOOL], Type::BOOL),
        ("string_agg", 2) => answer(Kind::StringAgg, &[Type::TEXT, Type::TEXT], Type::TEXT),
        ("json_agg" | "jsonb_agg", 1) => answer(Kind::JsonAgg, &[first.unwrap_or(Type::TEXT)], Type::JSON),
        ("json_object_agg" | "jsonb_object_agg", 2) => {
            let second = types.get(1).copied().flatten();
            answer(Kind::JsonObjectAgg, &[Type::TEXT, second.unwrap_or(Type::TEXT)], Type::JSON)
        }
        ("array_agg", 1) => {
            let ty = first.unwrap_or(Type::TEXT);
            let element = element_of(ty).ok_or_else(unknown)?;
            answer(Kind::ArrayAgg(element), &[ty], Type::Array(element))
        }
        ("percentile_cont", 2) => {
            let ty = first.filter(|ty| rank(*ty).is_some()).ok_or_else(unknown)?;
            answer(Kind::PercentileCont, &[unmodified(ty), Type::FLOAT8], Type::FLOAT8)
        }
        ("percentile_disc", 2) => {
            let ty = first.filter(|ty| ty.is_ordered()).ok_or_else(unknown)?;
            answer(Kind::PercentileDisc, &[ty, Type::FLOAT8], ty)
        }
        ("mode", 1) => {
            let ty = first.filter(|ty| ty.is_ordered()).ok_or_else(unknown)?;
            answer(Kind::Mode, &[ty], ty)
        }
        ("grouping", 1..=31) => {
            let arguments: Vec<Type> = types.iter().map(|ty| ty.unwrap_or(Type::TEXT)).collect();
            answer(Kind::Grouping, &arguments, Type::INT4)
        }
        ("bit_and" | "bit_or" | "bit_xor", 1) => {
            let ty = first.filter(|ty| is_integer(*ty)).ok_or_else(unknown)?;
            let kind = match name {
                "bit_and" => Kind::BitAnd,
                "bit_or" => Kind::BitOr,
                _ => Kind::BitXor,
            };
            answer(kind, &[ty], ty)
        }
        (_, 1) => {
            let spread = Spread::named(name).ok_or_else(unknown)?;
            let ty = first.filter(|ty| rank(*ty).is_some()).ok_or_else(unknown)?;
            answer(Kind::Spread(spread), &[unmodified(ty)], carried(ty))
        }
        (_, 2) => {
            let pair = Pair::named(name).ok_or_else(unknown)?;
            answer(Kind::Pair(pair), &[Type::FLOAT8, Type::FLOAT8], pair.result())
        }
        _ => Err(unknown()),
    }
}

#[derive(Debug, Clone)]
enum State {
    Count(i64),
    Integers(i128, i64),
    Numerics(Numeric, i64),
    Floats(f64, i64),
    Intervals(Interval, i64),
    Least(Option<Value<'static>>),
    Greatest(Option<Value<'static>>),
    All(Option<bool>),
    Some(Option<bool>),
    Text(Option<String>),
    List(Vec<Value<'static>>),
    /// Parts of a JSON document.
    Json(Vec<String>),
    /// Values in order, and the requested fraction.
    Ranked(Vec<Value<'static>>, Option<f64>),
    Spread(Sums),
    Pair(PairSums),
    Bits(Option<i64>),
}

/// A row to sort: sort keys, arguments.
type Waiting = (Vec<Value<'static>>, Vec<Value<'static>>);

/// The state of one aggregate in one group.
#[derive(Debug, Clone)]
pub(crate) struct Running {
    state: State,
    seen: HashSet<Vec<u8>>,
    waiting: Vec<Waiting>,
    /// Minimum size of its value in bytes.
    bytes: usize,
}

impl Running {
    /// Records the arguments of an aggregate with DISTINCT. Returns false if they have occurred before.
    fn record_arguments(
        &mut self,
        value: &Value<'_>,
        second: Option<&Value<'_>>,
        budget: &Budget,
    ) -> Result<bool> {
        let mut identity = Vec::new();
        put_identity(value, &mut identity);
        if let Some(second) = second {
            let length = identity.len();
            put_identity(second, &mut identity);
            identity.extend_from_slice(&length.to_le_bytes());
        }
        budget.take(identity.len() + 48)?;
        Ok(self.seen.insert(identity))
    }

    /// Counts the bytes that arguments add to a text, a list or a JSON document.
    #[inline]
    fn count_bytes(&mut self, value: &Value<'_>, second: Option<&Value<'_>>) -> Result<()> {
        if !matches!(self.state, State::Text(_) | State::List(_) | State::Json(_)) {
            return Ok(());
        }
        let bytes = value_bytes(value) + second.map_or(0, value_bytes);
        let is_joined = !matches!(self.state, State::List(_));
        let of_values = if is_joined { 2 * std::mem::size_of::<Value<'_>>() } else { 0 };
        self.bytes += bytes.saturating_sub(of_values);
        bounds::check_list(self.bytes)
    }
}

/// Adds a value to `string_agg`, with the separator before it.
fn append_text(
    text: &mut Option<String>,
    value: &Value<'_>,
    separator: Option<&Value<'_>>,
    budget: &Budget,
) -> Result<()> {
    let Value::Text(next) = value else { return Ok(()) };
    budget.take(next.len())?;
    match text {
        None => *text = Some(next.clone().into_owned()),
        Some(text) => {
            if let Some(Value::Text(separator)) = separator {
                budget.take(separator.len())?;
                *text += separator;
            }
            *text += next;
        }
    }
    Ok(())
}

impl Aggregate {
    /// True for GROUPING, which depends on the grouping sets and not on the rows.
    pub(crate) fn is_of_sets(&self) -> bool {
        self.kind == Kind::Grouping
    }

    /// The initial state.
    pub(crate) fn start(&self) -> Running {
        let state = match self.kind {
            Kind::Count | Kind::Grouping => State::Count(0),
            // Becomes exact with the first exact value.
            Kind::Sum | Kind::Avg => State::Floats(0.0, 0),
            Kind::Min => State::Least(None),
            Kind::Max => State::Greatest(None),
            Kind::BoolAnd => State::All(None),
            Kind::BoolOr => State::Some(None),
            Kind::StringAgg => State::Text(None),
            Kind::ArrayAgg(_) => State::List(Vec::new()),
            Kind::JsonAgg | Kind::JsonObjectAgg => State::Json(Vec::new()),
            Kind::PercentileCont | Kind::PercentileDisc | Kind::Mode => State::Ranked(Vec::new(), None),
            Kind::Spread(_) => State::Spread(Sums::default()),
            Kind::Pair(_) => State::Pair(PairSums::default()),
            Kind::BitAnd | Kind::BitOr | Kind::BitXor => State::Bits(None),
        };
        Running { state, seen: HashSet::new(), waiting: Vec::new(), bytes: 0 }
    }

    /// Adds one row.
    pub(crate) fn take(
        &self,
        running: &mut Running,
        cx: &Context<'_>,
        input: &dyn Input,
        budget: &Budget,
    ) -> Result<()> {
        if let Some(filter) = &self.filter
            && !filter.holds(cx, input)?
        {
            return Ok(());
        }
        let Some(first) = self.arguments.first() else {
            if let State::Count(count) = &mut running.state {
                *count += 1;
            }
            return Ok(());
        };
        if !self.order.is_empty() {
            let owned = |expr: &Expr| Ok(expr.eval(cx, input)?.into_owned());
            let keys = self.order.iter().map(|order| owned(&order.expr)).collect::<Result<Vec<_>>>()?;
            let arguments = self.arguments.iter().map(owned).collect::<Result<Vec<_>>>()?;
            budget.take(keys.iter().chain(&arguments).map(value_bytes).sum::<usize>() + 64)?;
            running.waiting.push((keys, arguments));
            return Ok(());
        }
        let second = || self.arguments.get(1).map(|second| second.eval(cx, input)).transpose();
        self.push(running, first.eval(cx, input)?, second, budget)
    }

    /// Adds the arguments of one row; the second one for aggregates with two.
    fn push<'v>(
        &self,
        running: &mut Running,
        value: Value<'v>,
        second: impl FnOnce() -> Result<Option<Value<'v>>>,
        budget: &Budget,
    ) -> Result<()> {
        if value.is_null() && !self.kind.takes_nulls() {
            return Ok(());
        }
        let second = second()?;
        if self.distinct && !running.record_arguments(&value, second.as_ref(), budget)? {
            return Ok(());
        }
        running.count_bytes(&value, second.as_ref())?;
        match &mut running.state {
            State::Count(count) => *count += 1,
            State::Integers(..) | State::Numerics(..) | State::Floats(..) | State::Intervals(..) => {
                self.add_to_sum(&mut running.state, &value)?;
            }
            State::Least(least) => {
                if least.as_ref().is_none_or(|least| order(&value, least).is_lt()) {
                    *least = Some(value.into_owned());
                }
            }
            State::Greatest(greatest) => {
                if greatest.as_ref().is_none_or(|greatest| order(&value, greatest).is_gt()) {
                    *greatest = Some(value.into_owned());
                }
            }
            State::All(all) => *all = Some(all.unwrap_or(true) && value == Value::Bool(true)),
            State::Some(some) => *some = Some(some.unwrap_or(false) || value == Value::Bool(true)),
            State::Text(text) => append_text(text, &value, second.as_ref(), budget)?,
            State::List(list) => {
                budget.take(value_bytes(&value))?;
                list.push(value.into_owned());
            }
            State::Json(parts) => {
                let part = self.json_part(&value, second.as_ref())?;
                budget.take(part.len() + 24)?;
                parts.push(part);
            }
            State::Spread(sums) => sums.take(&value),
            State::Pair(sums) => {
                if let Some(second) = &second {
                    sums.take(&value, second);
                }
            }
            State::Bits(bits) => {
                let next = value.as_integer().unwrap_or_default();
                *bits = Some(match (*bits, self.kind) {
                    (None, _) => next,
                    (Some(bits), Kind::BitAnd) => bits & next,
                    (Some(bits), Kind::BitOr) => bits | next,
                    (Some(bits), _) => bits ^ next,
                });
            }
            State::Ranked(list, fraction) => {
                if list.is_empty() && self.kind != Kind::Mode {
                    *fraction = second.as_ref().and_then(to_f64);
                }
                budget.take(value_bytes(&value))?;
                list.push(value.into_owned());
            }
        }
        Ok(())
    }

    /// Adds a value to a sum. The first value determines in which type the sum is computed.
    #[inline]
    fn add_to_sum(&self, state: &mut State, value: &Value<'_>) -> Result<()> {
        let overflow = || out_of_range(self.ty);
        match state {
            State::Floats(_, 0) if value.as_integer().is_some() => {
                *state = State::Integers(i128::from(value.as_integer().unwrap_or_default()), 1);
            }
            State::Floats(_, 0) if matches!(value, Value::Numeric(_)) => {
                *state = State::Numerics(to_numeric(value).unwrap_or(Numeric::NAN), 1);
            }
            State::Floats(_, 0) if let Value::Interval(first) = value => {
                *state = State::Intervals(*first, 1);
            }
            State::Intervals(sum, count) => {
                let Value::Interval(next) = value else { return Err(overflow()) };
                *sum = interval::add(*sum, *next).ok_or_else(too_long)?;
                *count += 1;
            }
            State::Integers(sum, count) => {
                *sum += i128::from(value.as_integer().unwrap_or_default());
                *count += 1;
            }
            State::Numerics(sum, count) => {
                let next = Value::Numeric(to_numeric(value).unwrap_or(Numeric::NAN));
                *sum = match arithmetic(Arith::Add, &Value::Numeric(*sum), &next, Type::NUMERIC)? {
                    Value::Numeric(sum) => sum,
                    _ => return Err(overflow()),
                };
                *count += 1;
            }
            State::Floats(sum, count) => {
                let next = to_f64(value).unwrap_or(f64::NAN);
                if sum.is_finite() && next.is_finite() && !(*sum + next).is_finite() {
                    return Err(overflow());
                }
                *sum += next;
                *count += 1;
            }
            _ => return Err(crate::expr::bug("a sum in a state that is no sum")),
        }
        Ok(())
    }

    /// An element of `json_agg`, or a member of `json_object_agg`. The binder has converted timestamptz values
    /// to JSON.
    fn json_part(&self, value: &Value<'_>, second: Option<&Value<'_>>) -> Result<String> {
        match (self.kind, value) {
            (Kind::JsonObjectAgg, Value::Text(key)) => {
                let value = json_of(second.unwrap_or(&Value::Null), &Zone::UTC);
                Ok(format!("{} : {value}", quoted(key)))
            }
            (Kind::JsonObjectAgg, _) => {
                let message = "field name must not be null";
                Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message))
            }
            _ => Ok(json_of(value, &Zone::UTC)),
        }
    }

    /// Adds the collected rows in their order.
    fn settle(&self, running: &mut Running) -> Result<()> {
        let mut waiting = std::mem::take(&mut running.waiting);
        waiting.sort_by(|(left, _), (right, _)| {
            let pairs = self.order.iter().zip(left.iter().zip(right));
            let orders = pairs.map(|(order, (l, r))| sort_order(l, r, order.descending, order.nulls_first));
            orders.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
        });
        // Their memory has been charged already.
        let budget = Budget::new(usize::MAX);
        for (_, arguments) in waiting {
            let mut arguments = arguments.into_iter();
            if let Some(first) = arguments.next() {
                self.push(running, first, || Ok(arguments.next()), &budget)?;
            }
        }
        Ok(())
    }

    /// The result.
    pub(crate) fn finish(&self, mut running: Running) -> Result<Value<'static>> {
        self.settle(&mut running)?;
        let overflow = || out_of_range(self.ty);
        let average = |sum: Numeric, count: i64| {
            let quotient = sum.checked_div(Numeric::from(count)).ok_or_else(overflow)?;
            Ok(Value::Numeric(quotient))
        };
        Ok(match running.state {
            State::Count(count) => Value::Int8(count),
            State::Integers(_, 0) | State::Numerics(_, 0) | State::Floats(_, 0) => Value::Null,
            State::Integers(sum, count) => {
                let exact = || Numeric::new(sum, 0).ok_or_else(overflow);
                match (self.kind, self.ty) {
                    (Kind::Avg, _) => return average(exact()?, count),
                    (_, Type::INT8) => Value::Int8(i64::try_from(sum).map_err(|_| overflow())?),
                    _ => Value::Numeric(exact()?),
                }
            }
            State::Numerics(sum, _) if self.kind == Kind::Sum => Value::Numeric(sum),
            State::Numerics(sum, _) if sum.is_nan() => Value::Numeric(sum),
            State::Numerics(sum, count) => return average(sum, count),
            State::Intervals(sum, _) if self.kind == Kind::Sum => Value::Interval(sum),
            State::Intervals(sum, count) => {
                Value::Interval(interval::divided(sum, count as f64).ok_or_else(too_long)?)
            }
            State::Floats(sum, _) if self.kind == Kind::Sum && self.ty == Type::FLOAT4 => {
                Value::Float4(sum as f32)
            }
            State::Floats(sum, _) if self.kind == Kind::Sum => Value::Float8(sum),
            State::Floats(sum, count) => Value::Float8(sum / count as f64),
            State::Least(value) | State::Greatest(value) => value.unwrap_or(Value::Null),
            State::All(truth) | State::Some(truth) => truth.map_or(Value::Null, Value::Bool),
            State::Text(text) => text.map_or(Value::Null, Value::text),
            State::List(list) => match self.kind {
                Kind::ArrayAgg(element) if !list.is_empty() => {
                    Value::Array(Array::new(element, list).map_err(|_| overflow())?)
                }
                _ => Value::Null,
            },
            State::Json(parts) if parts.is_empty() => Value::Null,
            State::Json(parts) if self.kind == Kind::JsonAgg => {
                Value::json(format!("[{}]", parts.join(", ")))
            }
            State::Json(parts) => Value::json(format!("{{ {} }}", parts.join(", "))),
            State::Ranked(list, fraction) => self.ranked(list, fraction)?,
            State::Spread(sums) => match self.kind {
                Kind::Spread(asked) => sums.finish(asked, self.ty),
                _ => Value::Null,
            },
            State::Pair(sums) => match self.kind {
                Kind::Pair(asked) => sums.finish(asked),
                _ => Value::Null,
            },
            State::Bits(bits) => match bits {
                Some(bits) => Value::Int8(bits).assign(self.ty).map_err(|_| overflow())?,
                None => Value::Null,
            },
        })
    }

    /// The result of an ordered-set aggregate for its values in order.
    fn ranked(&self, list: Vec<Value<'static>>, fraction: Option<f64>) -> Result<Value<'static>> {
        if self.kind == Kind::Mode {
            return Ok(most_frequent(list));
        }
        let Some(fraction) = fraction else { return Ok(Value::Null) };
        if !(0.0..=1.0).contains(&fraction) {
            let message = format!("percentile value {fraction} is not between 0 and 1");
            return Err(SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, message));
        }
        let last = list.len().saturating_sub(1);
        let at = |place: usize| list.get(place.min(last)).cloned().unwrap_or(Value::Null);
        if self.kind == Kind::PercentileDisc {
            let rows = (fraction * list.len() as f64).ceil() as usize;
            return Ok(at(rows.saturating_sub(1)));
        }
        let place = fraction * last as f64;
        let around = (to_f64(&at(place.floor() as usize)), to_f64(&at(place.ceil() as usize)));
        Ok(match around {
            (Some(below), Some(above)) => Value::Float8(below + place.fract() * (above - below)),
            _ => Value::Null,
        })
    }
}

/// The most frequent value of a sorted list; the first of several.
fn most_frequent(list: Vec<Value<'static>>) -> Value<'static> {
    let (mut best, mut most) = (Value::Null, 0);
    let mut rest = list.as_slice();
    while let Some(first) = rest.first() {
        let run = rest.iter().take_while(|value| order(first, value).is_eq()).count();
        if run > most {
            (best, most) = (first.clone(), run);
        }
        rest = rest.get(run..).unwrap_or_default();
    }
    best
}
