//! Bound expressions and their evaluation for one row.
//!
//!   sqlparser's tree ─▶ bind: names to positions, types determined, casts inserted ─▶ Expr ─▶ eval per row
//!
//! NULL is unknown: comparisons with it are NULL, AND and OR are three-valued, a condition holds only when it
//! is true.
//! Values are borrowed from the row, the parameters and the expression where they can be.

pub(crate) mod advisory;
pub(crate) mod arith;
pub(crate) mod bounds;
pub(crate) mod cast;
pub(crate) mod catalog_call;
pub(crate) mod enum_call;
pub(crate) mod function;
pub(crate) mod inner_query;
pub(crate) mod pattern;
pub(crate) mod sequence_call;

use std::borrow::Cow;
use std::sync::Arc;

use ropewalk::engine::Env;
use ropewalk::tables::{Array, OwnedRow, Row, Scalar, Type, Value};

use crate::error::{Result, SqlError, state};
use crate::expr::advisory::AdvisoryCall;
use crate::expr::arith::{Arith, Compare};
use crate::expr::bounds::Operands;
use crate::expr::cast::cast_in;
use crate::expr::catalog_call::CatalogCall;
use crate::expr::enum_call::EnumCall;
use crate::expr::function::Function;
use crate::expr::inner_query::{InnerQuery, NestedRun};
use crate::expr::pattern::{Like, Pattern, compile};
use crate::expr::sequence_call::SequenceCall;
use crate::limits::budget::value_bytes;
use crate::limits::interrupt::Interrupt;
use crate::types::json;
use crate::types::zone::Zone;

/// Length of a text from which concatenation checks the interrupt.
const CONCAT_BYTES_PER_LOOK: usize = 64 << 10;

/// A bound expression.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expr {
    Const(Value<'static>),
    /// A parameter, counted from 0.
    Param(usize),
    /// A column of the input.
    Column(usize),
    /// A column of an enclosing query: how many levels beyond the directly enclosing one, and its number
    /// there.
    Outer(usize, usize),
    /// A subquery in nested loops, and the left operand of IN.
    Inner(Box<dyn InnerQuery>, Option<Box<Expr>>),
    /// A function over the catalog.
    Catalog(Arc<dyn CatalogCall>, Vec<Expr>),
    /// nextval and related functions.
    Sequence(Box<SequenceCall>, Vec<Expr>),
    /// A function for an advisory lock.
    Advisory(Box<AdvisoryCall>, Vec<Expr>),
    /// A function over an enum type.
    Enum(Box<EnumCall>, Vec<Expr>),
    /// Result of an aggregate; becomes a column of the groups.
    Aggregate(usize),
    /// Result of a window function; becomes a column.
    Window(usize),
    /// A row of a set-returning function; becomes a column.
    Set(usize),
    /// The value of a subquery that is evaluated before.
    Subquery(usize),
    Cast(Box<Expr>, Type),
    /// NULL of a type: a strict operator or function over a NULL, or a filter that is never true. The
    /// expression as written is never evaluated; grouping and the level of an aggregate depend on the columns
    /// in it.
    Folded(Box<Expr>, Type),
    Not(Box<Expr>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Compare(Compare, Box<Expr>, Box<Expr>),
    /// `IS DISTINCT FROM`; true for NOT.
    Distinct(Box<Expr>, Box<Expr>, bool),
    Arith(Arith, Type, Box<Expr>, Box<Expr>),
    Negate(Box<Expr>),
    /// True for NOT.
    IsNull(Box<Expr>, bool),
    /// `IS TRUE`, `IS FALSE`, `IS UNKNOWN`; true for NOT.
    Is(Box<Expr>, Option<bool>, bool),
    In(Box<Expr>, Vec<Expr>),
    InSubquery(Box<Expr>, usize),
    /// `op ANY (array)`, or ALL.
    Any(Compare, Box<Expr>, Box<Expr>, bool),
    Case(Vec<(Expr, Expr)>, Option<Box<Expr>>),
    Coalesce(Vec<Expr>),
    Concat(Box<Expr>, Box<Expr>),
    /// LIKE with a pattern known when it was bound.
    Like(Box<Expr>, Like),
    /// Text, pattern, escape character, ignore case.
    LikeOf(Box<Expr>, Box<Expr>, Option<char>, bool),
    Matches(Box<Expr>, Pattern),
    MatchesOf(Box<Expr>, Box<Expr>, bool),
    /// `->`, and `->>` when true.
    Json(Box<Expr>, Box<Expr>, bool),
    Subscript(Box<Expr>, Box<Expr>),
    ArrayOf(Scalar, Vec<Expr>),
    Call(Function, Vec<Expr>),
}

/// Column values of one row.
pub(crate) trait Input {
    fn column(&self, index: usize) -> Result<Value<'_>>;
}

impl Input for Row<'_> {
    #[inline]
    fn column(&self, index: usize) -> Result<Value<'_>> {
        Ok(self.get(index)?)
    }
}

impl Input for OwnedRow {
    fn column(&self, index: usize) -> Result<Value<'_>> {
        Ok(self.get(index)?)
    }
}

impl Input for [Value<'static>] {
    fn column(&self, index: usize) -> Result<Value<'_>> {
        self.get(index).map(Value::borrowed).ok_or_else(|| bug("a column beyond its row"))
    }
}

impl Input for &[Value<'static>] {
    fn column(&self, index: usize) -> Result<Value<'_>> {
        (**self).column(index)
    }
}

impl Input for Vec<Value<'static>> {
    fn column(&self, index: usize) -> Result<Value<'_>> {
        self.as_slice().column(index)
    }
}

/// An input without columns.
pub(crate) struct Nothing;

impl Input for Nothing {
    fn column(&self, _: usize) -> Result<Value<'_>> {
        Err(bug("a column without a row"))
    }
}

/// An internal error: a bug of this crate.
pub(crate) fn bug(what: &str) -> SqlError {
    SqlError::new(state::INTERNAL_ERROR, what)
}

/// The result of a subquery.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Scalar(Value<'static>),
    /// A column of values; for IN.
    List(Vec<Value<'static>>),
}

/// The context of an evaluation in addition to the row.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) params: &'a [Value<'static>],
    pub(crate) answers: &'a [Answer],
    /// Time of the transaction, microseconds since 1970 UTC.
    pub(crate) now: i64,
    pub(crate) env: &'a Env,
    /// Time zone of the session.
    pub(crate) zone: &'a Zone,
    pub(crate) interrupt: &'a Interrupt,
    /// The run of nested loops that it is part of.
    pub(crate) nested: Option<&'a dyn NestedRun>,
}

fn truth(value: &Value<'_>) -> Option<bool> {
    match value {
        Value::Bool(truth) => Some(*truth),
        _ => None,
    }
}

fn from_truth(truth: Option<bool>) -> Value<'static> {
    truth.map_or(Value::Null, Value::Bool)
}

/// Three-valued AND (`decisive` false) and OR (`decisive` true).
fn junction<'a>(
    parts: &'a [Expr],
    decisive: bool,
    cx: &Context<'a>,
    input: &'a dyn Input,
) -> Result<Value<'a>> {
    let mut unknown = false;
    for part in parts {
        match truth(&part.eval(cx, input)?) {
            Some(truth) if truth == decisive => return Ok(Value::Bool(decisive)),
            Some(_) => {}
            None => unknown = true,
        }
    }
    Ok(if unknown { Value::Null } else { Value::Bool(!decisive) })
}

/// Whether `value` is in a list; three-valued.
fn in_list<'v>(value: &Value<'_>, list: impl Iterator<Item = Result<Value<'v>>>) -> Result<Option<bool>> {
    let mut unknown = false;
    let mut empty = true;
    for item in list {
        let item = item?;
        empty = false;
        if value.is_null() || item.is_null() {
            unknown = true;
        } else if arith::order(value, &item).is_eq() {
            return Ok(Some(true));
        }
    }
    Ok(if unknown && !empty { None } else { Some(false) })
}

/// Whether `value` is among others, as an SQL value.
pub(crate) fn contained<'v>(
    value: &Value<'_>,
    list: impl Iterator<Item = Result<Value<'v>>>,
) -> Result<Value<'static>> {
    Ok(from_truth(in_list(value, list)?))
}

fn compare(op: Compare, left: &Value<'_>, right: &Value<'_>) -> Option<bool> {
    if left.is_null() || right.is_null() { None } else { Some(op.holds(arith::order(left, right))) }
}

fn damaged(error: impl std::fmt::Display) -> SqlError {
    SqlError::new(state::DATA_CORRUPTED, error.to_string())
}

fn any_all(op: Compare, left: &Value<'_>, array: &Array<'_>, all: bool) -> Result<Option<bool>> {
    let mut unknown = false;
    for item in array.iter() {
        match compare(op, left, &item.map_err(damaged)?) {
            Some(holds) if holds != all => return Ok(Some(!all)),
            Some(_) => {}
            None => unknown = true,
        }
    }
    Ok(if unknown { None } else { Some(all) })
}

// The following functions are not inlined, so that the recursive `Expr::eval` needs no stack for their variables.

/// LIKE with a pattern that is computed for each row.
#[inline(never)]
fn like_pattern(
    text: &Value<'_>,
    pattern: &Value<'_>,
    escape: Option<char>,
    fold: bool,
    cx: &Context<'_>,
) -> Result<Value<'static>> {
    let (Value::Text(text), Value::Text(pattern)) = (text, pattern) else { return Ok(Value::Null) };
    let like = Like::new(pattern, escape, fold)?;
    Ok(Value::Bool(like.matches(text, &|| cx.interrupt.check_now(cx.env))?))
}

/// A match with a regular expression that is computed for each row.
#[inline(never)]
fn match_regex(text: &Value<'_>, pattern: &Value<'_>, fold: bool) -> Result<Value<'static>> {
    let (Value::Text(text), Value::Text(pattern)) = (text, pattern) else { return Ok(Value::Null) };
    Ok(Value::Bool(compile(pattern, fold)?.regex.is_match(text)))
}

/// `->` and `->>`: the member of an object, or the element of an array.
#[inline(never)]
fn read_member<'v>(document: Value<'v>, step: &Value<'_>, as_text: bool) -> Value<'v> {
    let is_jsonb = matches!(document, Value::Jsonb(_));
    match document {
        Value::Json(Cow::Borrowed(document)) | Value::Jsonb(Cow::Borrowed(document)) => {
            member_of(document, is_jsonb, step, as_text)
        }
        Value::Json(Cow::Owned(document)) | Value::Jsonb(Cow::Owned(document)) => {
            member_of(&document, is_jsonb, step, as_text).into_owned()
        }
        _ => Value::Null,
    }
}

/// The member or element, borrowed unless it is a text with escapes.
fn member_of<'d>(document: &'d str, is_jsonb: bool, step: &Value<'_>, as_text: bool) -> Value<'d> {
    let found = match step {
        Value::Text(name) => json::member(document, name),
        other => other.as_integer().and_then(|index| match is_jsonb {
            true => json::element_of_jsonb(document, index),
            false => json::element(document, index),
        }),
    };
    match found {
        None => Value::Null,
        Some(found) if as_text => json::as_text(found).map_or(Value::Null, Value::Text),
        // A part of a jsonb value is in normal form, too.
        Some(found) if is_jsonb => Value::Jsonb(found.into()),
        Some(found) => Value::json(found),
    }
}

/// The element of an array at an index that counts from 1.
#[inline(never)]
fn read_element(array: &Value<'_>, index: &Value<'_>) -> Result<Value<'static>> {
    let (Value::Array(array), Some(index)) = (array, index.as_integer()) else { return Ok(Value::Null) };
    let place = usize::try_from(index).ok().and_then(|index| index.checked_sub(1));
    let found = place.and_then(|place| array.iter().nth(place));
    Ok(found.transpose().map_err(damaged)?.map_or(Value::Null, Value::into_owned))
}

#[inline(never)]
fn build_array(element: Scalar, items: Vec<Value<'_>>) -> Result<Value<'static>> {
    bounds::check_list(items.iter().map(value_bytes).sum())?;
    Ok(Value::Array(Array::new(element, items).map_err(damaged)?))
}

impl Expr {
    /// True when the condition is true for the row; false for NULL.
    #[inline]
    pub(crate) fn holds(&self, cx: &Context<'_>, input: &dyn Input) -> Result<bool> {
        Ok(matches!(self.eval(cx, input)?, Value::Bool(true)))
    }

    /// The value of an expression without columns.
    pub(crate) fn constant(&self, cx: &Context<'_>) -> Result<Value<'static>> {
        Ok(self.eval(cx, &Nothing)?.into_owned())
    }

    /// The value for a row.
    ///
    /// # Errors
    /// Overflow, division by zero, invalid text for a type, and similar errors; corruption.
    pub(crate) fn eval<'a>(&'a self, cx: &Context<'a>, input: &'a dyn Input) -> Result<Value<'a>> {
        Ok(match self {
            Self::Const(value) => value.borrowed(),
            Self::Param(number) => cx
                .params
                .get(*number)
                .map(Value::borrowed)
                .ok_or_else(|| bug("a parameter that was not bound"))?,
            Self::Column(index) => return input.column(*index),
            Self::Outer(..) => return Err(bug("a column of an enclosing query")),
            Self::Inner(inner, left) => return inner.eval(left.as_deref(), cx, input),
            Self::Catalog(call, arguments) => return call.call(&Self::all(arguments, cx, input)?, cx),
            Self::Sequence(call, arguments) => return call.call(&Self::all(arguments, cx, input)?),
            Self::Advisory(call, arguments) => return call.call(&Self::all(arguments, cx, input)?, cx),
            Self::Enum(call, arguments) => return call.call(&Self::all(arguments, cx, input)?, cx.zone),
            Self::Aggregate(_) => return Err(bug("an aggregate outside of groups")),
            Self::Set(_) => return Err(bug("rows of a function outside of a select list")),
            Self::Window(_) => return Err(bug("a window function outside of windows")),
            Self::Subquery(number) => match cx.answers.get(*number) {
                Some(Answer::Scalar(value)) => value.borrowed(),
                _ => return Err(bug("a subquery without a value")),
            },
            Self::Cast(inner, ty) => {
                let value = cast_in(inner.eval(cx, input)?, *ty, cx.zone)?;
                bounds::check_made(&value)?;
                value
            }
            Self::Folded(..) => Value::Null,
            Self::Not(inner) => from_truth(truth(&inner.eval(cx, input)?).map(|t| !t)),
            Self::And(parts) => return junction(parts, false, cx, input),
            Self::Or(parts) => return junction(parts, true, cx, input),
            Self::Compare(op, left, right) => {
                let (left, right) = Self::both(left, right, cx, input)?;
                from_truth(compare(*op, &left, &right))
            }
            Self::Distinct(left, right, negated) => {
                let (left, right) = Self::both(left, right, cx, input)?;
                Value::Bool(arith::not_distinct(&left, &right) == *negated)
            }
            Self::Arith(op, ty, left, right) => {
                return arith::arithmetic(*op, &left.eval(cx, input)?, &right.eval(cx, input)?, *ty);
            }
            Self::Negate(inner) => return arith::negate(&inner.eval(cx, input)?),
            Self::IsNull(inner, negated) => Value::Bool(inner.eval(cx, input)?.is_null() != *negated),
            Self::Is(inner, wanted, negated) => {
                Value::Bool((truth(&inner.eval(cx, input)?) == *wanted) != *negated)
            }
            Self::In(inner, list) => return Self::eval_in(inner, list, cx, input),
            Self::InSubquery(inner, number) => return Self::eval_in_subquery(inner, *number, cx, input),
            Self::Any(op, left, array, all) => match Self::both(left, array, cx, input)? {
                (left, Value::Array(array)) => from_truth(any_all(*op, &left, &array, *all)?),
                _ => Value::Null,
            },
            Self::Case(whens, otherwise) => {
                for (condition, result) in whens {
                    if condition.holds(cx, input)? {
                        return result.eval(cx, input);
                    }
                }
                return otherwise.as_ref().map_or(Ok(Value::Null), |expr| expr.eval(cx, input));
            }
            Self::Coalesce(parts) => {
                for part in parts {
                    let value = part.eval(cx, input)?;
                    if !value.is_null() {
                        return Ok(value);
                    }
                }
                Value::Null
            }
            Self::Concat(left, right) => return Self::eval_concat(left, right, cx, input),
            Self::Like(inner, like) => match inner.eval(cx, input)? {
                Value::Text(text) => Value::Bool(like.matches(&text, &|| cx.interrupt.check_now(cx.env))?),
                _ => Value::Null,
            },
            Self::LikeOf(inner, pattern, escape, fold) => {
                let (text, pattern) = Self::both(inner, pattern, cx, input)?;
                like_pattern(&text, &pattern, *escape, *fold, cx)?
            }
            Self::Matches(inner, pattern) => match inner.eval(cx, input)? {
                Value::Text(text) => Value::Bool(pattern.regex.is_match(&text)),
                _ => Value::Null,
            },
            Self::MatchesOf(inner, pattern, fold) => {
                let (text, pattern) = Self::both(inner, pattern, cx, input)?;
                match_regex(&text, &pattern, *fold)?
            }
            Self::Json(inner, step, as_text) => {
                let (document, step) = Self::both(inner, step, cx, input)?;
                read_member(document, &step, *as_text)
            }
            Self::Subscript(inner, index) => {
                let array = inner.eval(cx, input)?;
                read_element(&array, &index.eval(cx, input)?)?
            }
            Self::ArrayOf(element, parts) => build_array(*element, Self::all(parts, cx, input)?)?,
            Self::Call(function, arguments) => return function.call(arguments, cx, input),
        })
    }

    #[inline(never)]
    fn eval_in<'a>(
        inner: &'a Self,
        list: &'a [Self],
        cx: &Context<'a>,
        input: &'a dyn Input,
    ) -> Result<Value<'a>> {
        let value = inner.eval(cx, input)?;
        contained(&value, list.iter().map(|item| item.eval(cx, input)))
    }

    #[inline(never)]
    fn eval_in_subquery<'a>(
        inner: &'a Self,
        number: usize,
        cx: &Context<'a>,
        input: &'a dyn Input,
    ) -> Result<Value<'a>> {
        let Some(Answer::List(list)) = cx.answers.get(number) else {
            return Err(bug("a subquery without a list"));
        };
        let value = inner.eval(cx, input)?;
        contained(&value, list.iter().map(|item| Ok(item.borrowed())))
    }

    #[inline(never)]
    fn eval_concat<'a>(
        left: &'a Self,
        right: &'a Self,
        cx: &Context<'a>,
        input: &'a dyn Input,
    ) -> Result<Value<'a>> {
        let (Value::Text(a), Value::Text(b)) = Self::both(left, right, cx, input)? else {
            return Ok(Value::Null);
        };
        bounds::check_text(a.len().saturating_add(b.len()))?;
        if a.len() >= CONCAT_BYTES_PER_LOOK {
            cx.interrupt.check_now(cx.env)?;
        }
        // The left side is reused, so that a chain copies each of its parts once.
        let mut joined = a.into_owned();
        joined.push_str(&b);
        Ok(Value::text(joined))
    }

    /// The values of two operands. The first is counted while the second is evaluated.
    fn both<'a>(
        left: &'a Self,
        right: &'a Self,
        cx: &Context<'a>,
        input: &'a dyn Input,
    ) -> Result<(Value<'a>, Value<'a>)> {
        let left = left.eval(cx, input)?;
        let mut operands = Operands::new(cx.interrupt);
        operands.hold(&left)?;
        Ok((left, right.eval(cx, input)?))
    }

    /// The values of several operands, each counted while the others are evaluated.
    fn all<'a>(parts: &'a [Self], cx: &Context<'a>, input: &'a dyn Input) -> Result<Vec<Value<'a>>> {
        let mut operands = Operands::new(cx.interrupt);
        let mut values = Vec::with_capacity(parts.len());
        for part in parts {
            let value = part.eval(cx, input)?;
            operands.hold(&value)?;
            values.push(value);
        }
        Ok(values)
    }

    /// Evaluates expressions to a row of owned values.
    ///
    /// # Errors
    /// As [`Expr::eval`]; 53200 for a row that is too large.
    pub(crate) fn record(parts: &[Self], cx: &Context<'_>, input: &dyn Input) -> Result<Vec<Value<'static>>> {
        let mut operands = Operands::new(cx.interrupt);
        let mut values = Vec::with_capacity(parts.len());
        for part in parts {
            let value = part.eval(cx, input)?.into_owned();
            operands.hold(&value)?;
            values.push(value);
        }
        Ok(values)
    }

    /// Calls `each` for the direct parts.
    pub(crate) fn for_parts<'a>(&'a self, each: &mut dyn FnMut(&'a Expr)) {
        match self {
            Self::Const(_)
            | Self::Param(_)
            | Self::Column(_)
            | Self::Outer(..)
            | Self::Aggregate(_)
            | Self::Window(_)
            | Self::Set(_)
            | Self::Subquery(_) => {}
            Self::Inner(_, left) => left.iter().for_each(|left| each(left)),
            Self::Cast(a, _)
            | Self::Folded(a, _)
            | Self::Not(a)
            | Self::Negate(a)
            | Self::IsNull(a, _)
            | Self::Is(a, _, _)
            | Self::InSubquery(a, _)
            | Self::Like(a, _)
            | Self::Matches(a, _) => each(a),
            Self::Compare(_, a, b)
            | Self::Distinct(a, b, _)
            | Self::Arith(_, _, a, b)
            | Self::Any(_, a, b, _)
            | Self::Concat(a, b)
            | Self::LikeOf(a, b, _, _)
            | Self::MatchesOf(a, b, _)
            | Self::Json(a, b, _)
            | Self::Subscript(a, b) => {
                each(a);
                each(b);
            }
            Self::And(parts)
            | Self::Or(parts)
            | Self::Coalesce(parts)
            | Self::ArrayOf(_, parts)
            | Self::Catalog(_, parts)
            | Self::Sequence(_, parts)
            | Self::Advisory(_, parts)
            | Self::Enum(_, parts)
            | Self::Call(_, parts) => parts.iter().for_each(each),
            Self::In(a, list) => {
                each(a);
                list.iter().for_each(each);
            }
            Self::Case(whens, otherwise) => {
                for (condition, result) in whens {
                    each(condition);
                    each(result);
                }
                if let Some(otherwise) = otherwise {
                    each(otherwise);
                }
            }
        }
    }

    /// Rewrites from the top: a result of `change` replaces the expression, and its parts are not visited.
    pub(crate) fn rewrite(self, change: &mut dyn FnMut(&Expr) -> Option<Expr>) -> Expr {
        if let Some(changed) = change(&self) {
            return changed;
        }
        let mut boxed = |part: Box<Expr>| Box::new(part.rewrite(change));
        match self {
            Self::Const(_)
            | Self::Param(_)
            | Self::Column(_)
            | Self::Outer(..)
            | Self::Aggregate(_)
            | Self::Window(_)
            | Self::Set(_)
            | Self::Subquery(_) => self,
            Self::Inner(inner, left) => Self::Inner(inner, left.map(boxed)),
            Self::Catalog(call, parts) => {
                Self::Catalog(call, parts.into_iter().map(|part| part.rewrite(change)).collect())
            }
            Self::Sequence(call, parts) => {
                Self::Sequence(call, parts.into_iter().map(|part| part.rewrite(change)).collect())
            }
            Self::Advisory(call, parts) => {
                Self::Advisory(call, parts.into_iter().map(|part| part.rewrite(change)).collect())
            }
            Self::Enum(call, parts) => {
                Self::Enum(call, parts.into_iter().map(|part| part.rewrite(change)).collect())
            }
            Self::Cast(a, ty) => Self::Cast(boxed(a), ty),
            Self::Folded(a, ty) => Self::Folded(boxed(a), ty),
            Self::Not(a) => Self::Not(boxed(a)),
            Self::Negate(a) => Self::Negate(boxed(a)),
            Self::IsNull(a, n) => Self::IsNull(boxed(a), n),
            Self::Is(a, w, n) => Self::Is(boxed(a), w, n),
            Self::InSubquery(a, n) => Self::InSubquery(boxed(a), n),
            Self::Like(a, like) => Self::Like(boxed(a), like),
            Self::Matches(a, p) => Self::Matches(boxed(a), p),
            Self::Compare(op, a, b) => Self::Compare(op, boxed(a), boxed(b)),
            Self::Distinct(a, b, n) => Self::Distinct(boxed(a), boxed(b), n),
            Self::Arith(op, ty, a, b) => Self::Arith(op, ty, boxed(a), boxed(b)),
            Self::Any(op, a, b, all) => Self::Any(op, boxed(a), boxed(b), all),
            Self::Concat(a, b) => Self::Concat(boxed(a), boxed(b)),
            Self::LikeOf(a, b, e, f) => Self::LikeOf(boxed(a), boxed(b), e, f),
            Self::MatchesOf(a, b, f) => Self::MatchesOf(boxed(a), boxed(b), f),
            Self::Json(a, b, t) => Self::Json(boxed(a), boxed(b), t),
            Self::Subscript(a, b) => Self::Subscript(boxed(a), boxed(b)),
            Self::And(parts) => Self::And(parts.into_iter().map(|p| p.rewrite(change)).collect()),
            Self::Or(parts) => Self::Or(parts.into_iter().map(|p| p.rewrite(change)).collect()),
            Self::Coalesce(parts) => Self::Coalesce(parts.into_iter().map(|p| p.rewrite(change)).collect()),
            Self::ArrayOf(e, parts) => {
                Self::ArrayOf(e, parts.into_iter().map(|p| p.rewrite(change)).collect())
            }
            Self::Call(f, parts) => Self::Call(f, parts.into_iter().map(|p| p.rewrite(change)).collect()),
            Self::In(a, list) => {
                let a = boxed(a);
                Self::In(a, list.into_iter().map(|p| p.rewrite(change)).collect())
            }
            Self::Case(whens, otherwise) => {
                let whens = whens.into_iter().map(|(c, r)| (c.rewrite(change), r.rewrite(change))).collect();
                Self::Case(whens, otherwise.map(|o| Box::new(o.rewrite(change))))
            }
        }
    }

    /// The same expression over other columns: column `n` becomes column `number(n)`, also where a subquery
    /// reads it.
    pub(crate) fn renumber(self, number: &dyn Fn(usize) -> usize) -> Expr {
        let mut wanted = Vec::new();
        if cfg!(debug_assertions) {
            self.columns(&mut |column| wanted.push(number(column)));
        }
        let renumbered = self.renumber_parts(number);
        if cfg!(debug_assertions) {
            let mut found = Vec::new();
            renumbered.columns(&mut |column| found.push(column));
            assert_eq!(found, wanted, "every column that `columns` reports is renumbered, once");
        }
        renumbered
    }

    fn renumber_parts(self, number: &dyn Fn(usize) -> usize) -> Expr {
        self.rewrite(&mut |part| match part {
            Self::Column(column) => Some(Self::Column(number(*column))),
            Self::Inner(inner, left) => {
                let mut inner = inner.clone();
                inner.renumber(number);
                let left = left.clone().map(|left| Box::new(left.renumber_parts(number)));
                Some(Self::Inner(inner, left))
            }
            _ => None,
        })
    }

    /// True for NULL of any type.
    pub(crate) fn is_null(&self) -> bool {
        match self {
            Self::Const(value) => value.is_null(),
            Self::Cast(inner, _) => inner.is_null(),
            Self::Folded(..) => true,
            _ => false,
        }
    }

    /// Replaces a strict operator or function over a NULL by NULL of type `ty`: the other operands are not
    /// evaluated, so they cannot fail. Constant operands still fail, as in PostgreSQL, which evaluates them
    /// first.
    pub(crate) fn null_folded(self, ty: Type) -> Self {
        let is_strict = match &self {
            Self::Compare(..)
            | Self::Arith(..)
            | Self::Concat(..)
            | Self::LikeOf(..)
            | Self::MatchesOf(..)
            | Self::Json(..)
            | Self::Subscript(..) => true,
            Self::Call(function, _) => function.is_strict(),
            _ => false,
        };
        let mut has_null = false;
        if is_strict {
            self.for_parts(&mut |part| has_null |= part.is_null());
        }
        if has_null && self.varies() { Self::Folded(Box::new(self), ty) } else { self }
    }

    /// True when it consists of more than constants and expressions over constants.
    fn varies(&self) -> bool {
        let mut varies = match self {
            Self::Folded(..) => return false,
            Self::Param(_)
            | Self::Column(_)
            | Self::Outer(..)
            | Self::Inner(..)
            | Self::Catalog(..)
            | Self::Sequence(..)
            | Self::Advisory(..)
            | Self::Enum(..)
            | Self::Aggregate(_)
            | Self::Window(_)
            | Self::Set(_)
            | Self::Subquery(_)
            | Self::InSubquery(..) => true,
            Self::Call(function, _) => function.is_volatile(),
            _ => false,
        };
        self.for_parts(&mut |part| varies |= part.varies());
        varies
    }

    /// Calls `each` for every column that is read.
    pub(crate) fn columns(&self, each: &mut dyn FnMut(usize)) {
        match self {
            Self::Column(index) => each(*index),
            Self::Inner(inner, _) => inner.outer_columns(each),
            _ => {}
        }
        self.for_parts(&mut |part| part.columns(each));
    }

    /// True when a row may make it fail, or its kind is not known to be safe.
    pub(crate) fn may_fail(&self) -> bool {
        let mut may_fail = !matches!(
            self,
            Self::Const(_)
                | Self::Param(_)
                | Self::Column(_)
                | Self::Outer(..)
                | Self::Subquery(_)
                | Self::InSubquery(..)
                | Self::Not(_)
                | Self::And(_)
                | Self::Or(_)
                | Self::Compare(..)
                | Self::Distinct(..)
                | Self::IsNull(..)
                | Self::Is(..)
                | Self::In(..)
                | Self::Any(..)
                | Self::Case(..)
                | Self::Coalesce(_)
                | Self::Concat(..)
                | Self::Like(..)
                | Self::Matches(..)
        );
        self.for_parts(&mut |part| may_fail |= part.may_fail());
        may_fail
    }

    /// True when a subquery of nested loops is part of it.
    pub(crate) fn has_inner(&self) -> bool {
        let mut found = matches!(self, Self::Inner(..));
        self.for_parts(&mut |part| found |= part.has_inner());
        found
    }

    /// True when it may block.
    pub(crate) fn sleeps(&self) -> bool {
        let mut found = match self {
            Self::Advisory(call, _) => call.waits(),
            Self::Catalog(call, _) => call.is_of_peers(),
            other => matches!(other, Self::Call(Function::Sleep, _)),
        };
        self.for_parts(&mut |part| found |= part.sleeps());
        found
    }

    /// Approximate memory of its constants.
    pub(crate) fn constant_bytes(&self) -> usize {
        let mut bytes = match self {
            Self::Const(value) => value_bytes(value),
            _ => 0,
        };
        self.for_parts(&mut |part| bytes += part.constant_bytes());
        bytes
    }

    /// True when it builds arrays whose size is not evident from its text.
    pub(crate) fn fills_arrays(&self) -> bool {
        use Function as F;
        let mut found =
            matches!(self, Self::Call(F::ArrayFill | F::StringToArray | F::RegexpSplit | F::ArrayCat, _));
        self.for_parts(&mut |part| found |= part.fills_arrays());
        found
    }

    /// True when the value may change from call to call.
    pub(crate) fn is_volatile(&self) -> bool {
        let mut found = match self {
            Self::Call(function, _) => function.is_volatile(),
            Self::Sequence(..) | Self::Advisory(..) => true,
            Self::Catalog(call, _) => call.is_of_peers(),
            _ => false,
        };
        self.for_parts(&mut |part| found |= part.is_volatile());
        found
    }
}

/// A row of a result.
pub(crate) type Record = Vec<Value<'static>>;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Order {
    pub(crate) expr: Expr,
    pub(crate) ty: Type,
    pub(crate) descending: bool,
    pub(crate) nulls_first: bool,
    /// Place in the select list from which to take the value, if evaluating the expression again could
    /// differ.
    pub(crate) shown: Option<usize>,
}
