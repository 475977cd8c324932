//! Access paths: predicates become ranges of the primary key or of an index.
//!
//!   a = $1 AND b > 5      key (a, b)   ─▶   prefix [$1], from after [$1, 5]
//!   t LIKE 'ab%'          key (t)      ─▶   from ['ab'], before ['ac']
//!
//! Invariants
//! 1. A path only narrows the read; the complete condition is evaluated again for every row. A path that is
//!    too wide loses no row, and no condition is dropped.
//! 2. A value becomes part of a key only if the column type represents it exactly: `id = 1.5` matches no
//!    integer, `id < 1.5` reads without a bound.

use std::borrow::Cow;
use std::cmp::Ordering;

use ropewalk::tables::{ColumnRef, Expr as TableExpr, KeyOrder, KeyRange, Schema, Type, Value};

use crate::error::Result;
use crate::expr::arith::{Compare, order};
use crate::expr::cast::{to_f64, to_numeric};
use crate::expr::{Answer, Context, Expr, Input};
use crate::types::names::{is_integer, is_numeric};

/// Values that one column of a key may take.
#[derive(Debug, Clone, PartialEq)]
enum OneOf {
    List(Vec<Expr>),
    Subquery(usize),
    Array(Expr),
}

/// Access path of one table: the key or index to read, and its bounds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Path {
    /// `None` is the primary key.
    pub(crate) index: Option<String>,
    /// Positions of the key's columns in the row, with their types and orders.
    key: Vec<(usize, Type, KeyOrder)>,
    /// Values of the leading columns.
    equal: Vec<Expr>,
    one_of: Option<OneOf>,
    low: Option<(Expr, bool)>,
    high: Option<(Expr, bool)>,
    /// At most one row is found.
    pub(crate) is_point: bool,
    /// Rows come in the requested order.
    pub(crate) is_ordered: bool,
    pub(crate) backward: bool,
    /// The entries of the index hold all columns that are read: rows are not fetched.
    pub(crate) is_covering: bool,
}

/// A column of the requested order: its position, descending, NULLs first.
pub(crate) type Wanted = (usize, bool, bool);

/// The ranges of a path for given values.
pub(crate) struct Ranges {
    pub(crate) ranges: Vec<KeyRange<'static>>,
    /// The complete path was used, so that its order holds.
    pub(crate) is_complete: bool,
}

/// How a value fits the type of a key column.
enum Fit {
    Exact(Value<'static>),
    /// No value of the column equals it.
    Never,
    /// It has no representation as a key.
    Unfit,
}

fn fit(value: Value<'static>, ty: Type) -> Fit {
    let Some(found) = value.value_type() else { return Fit::Never };
    if found == ty {
        return Fit::Exact(value);
    }
    if is_integer(ty) {
        let wide = match &value {
            Value::Numeric(number) if number.rescale(0).is_some_and(|whole| whole == *number) => {
                number.to_i128().and_then(|whole| i64::try_from(whole).ok())
            }
            Value::Float4(_) | Value::Float8(_) => return Fit::Unfit,
            other => other.as_integer(),
        };
        return wide.and_then(|wide| Value::Int8(wide).assign(ty).ok()).map_or(Fit::Never, Fit::Exact);
    }
    if is_numeric(ty) {
        return match to_numeric(&value) {
            // Without the column's limits, which would round it.
            Some(number) => Value::Numeric(number).assign(ty).map_or(Fit::Unfit, |rounded| {
                if order(&rounded, &value).is_eq() { Fit::Exact(rounded) } else { Fit::Unfit }
            }),
            None => Fit::Unfit,
        };
    }
    match (ty, to_f64(&value)) {
        (Type::FLOAT8, Some(float)) => Fit::Exact(Value::Float8(float)),
        _ => Fit::Unfit,
    }
}

/// A predicate on one column, with values that are known before the table's rows are read.
enum Bound<'e> {
    Compare(usize, Compare, Cow<'e, Expr>),
    OneOf(usize, OneOf),
}

fn known_before(expr: &Expr, start: usize) -> bool {
    let mut known = !expr.is_volatile();
    expr.columns(&mut |column| known &= column < start);
    known
}

/// Collects the bounds that a conjunct sets for the columns from `start` to `end`.
fn bounds<'e>(conjunct: &'e Expr, start: usize, end: usize, found: &mut Vec<Bound<'e>>) {
    let column = |expr: &Expr| match expr {
        Expr::Column(index) if (start..end).contains(index) => Some(*index - start),
        _ => None,
    };
    match conjunct {
        Expr::And(parts) => parts.iter().for_each(|part| bounds(part, start, end, found)),
        Expr::Compare(op, left, right) if *op != Compare::Ne => {
            if let Some(place) = column(left)
                && known_before(right, start)
            {
                found.push(Bound::Compare(place, *op, Cow::Borrowed(right)));
            } else if let Some(place) = column(right)
                && known_before(left, start)
            {
                found.push(Bound::Compare(place, op.turned(), Cow::Borrowed(left)));
            }
        }
        Expr::In(left, list) => {
            if let Some(place) = column(left)
                && list.iter().all(|item| known_before(item, start))
            {
                found.push(Bound::OneOf(place, OneOf::List(list.clone())));
            }
        }
        Expr::Like(text, like) => {
            if let (Some(place), Some((low, high))) = (column(text), like.span()) {
                let mut add = |op, text: String| {
                    found.push(Bound::Compare(place, op, Cow::Owned(Expr::Const(Value::text(text)))));
                };
                add(Compare::Ge, low);
                high.into_iter().for_each(|high| add(Compare::Lt, high));
            }
        }
        Expr::InSubquery(left, number) => {
            if let Some(place) = column(left) {
                found.push(Bound::OneOf(place, OneOf::Subquery(*number)));
            }
        }
        Expr::Any(Compare::Eq, left, array, false) => {
            if let Some(place) = column(left)
                && known_before(array, start)
            {
                found.push(Bound::OneOf(place, OneOf::Array((**array).clone())));
            }
        }
        _ => {}
    }
}

impl Path {
    fn new(index: Option<String>, key: Vec<(usize, Type, KeyOrder)>) -> Self {
        Self {
            index,
            key,
            equal: Vec::new(),
            one_of: None,
            low: None,
            high: None,
            is_point: false,
            is_ordered: false,
            backward: false,
            is_covering: false,
        }
    }

    /// The best path to the rows of a table for which `conjuncts` may hold. Its columns are numbered from
    /// `start`; columns with smaller numbers have known values at that time.
    pub(crate) fn choose(
        schema: &Schema,
        start: usize,
        conjuncts: &[Expr],
        wanted: &[Wanted],
        is_limited: bool,
    ) -> Self {
        let mut found = Vec::new();
        conjuncts
            .iter()
            .for_each(|conjunct| bounds(conjunct, start, start + schema.columns().len(), &mut found));
        let ty = |place: usize| schema.columns().get(place).map_or(Type::TEXT, |column| column.column_type());
        let key = schema.key_columns().iter().map(|place| (*place, ty(*place), KeyOrder::ASC)).collect();
        let mut best = Self::new(None, key);
        best.fill(&found, true);
        best.order_by(wanted, |place| schema.columns().get(place).is_some_and(|column| column.is_nullable()));
        for index in schema.indexes().iter().filter(|index| index.is_ready() && index.filter().is_none()) {
            let place = |column: &ropewalk::tables::IndexColumn| match column.expr {
                TableExpr::Column(ColumnRef::Id(id)) => {
                    let place = schema.columns().iter().position(|column| column.id() == id)?;
                    Some((place, column.ty, column.order))
                }
                _ => None,
            };
            // Key columns that follow an expression cannot be used.
            let key: Vec<_> = index.columns().iter().map_while(place).collect();
            let is_whole = key.len() == index.columns().len();
            let mut path = Self::new(Some(index.name().to_owned()), key);
            path.fill(&found, index.is_always_unique() && is_whole);
            path.order_by(wanted, |place| {
                schema.columns().get(place).is_some_and(|column| column.is_nullable())
            });
            if path.worth(is_limited) > best.worth(is_limited) {
                best = path;
            }
        }
        best
    }

    fn fill(&mut self, found: &[Bound<'_>], is_unique: bool) {
        for (place, _, order) in &self.key {
            let equal = found.iter().find_map(|bound| match bound {
                Bound::Compare(at, Compare::Eq, value) if at == place => Some(value.as_ref().clone()),
                _ => None,
            });
            if let Some(value) = equal {
                self.equal.push(value);
                continue;
            }
            self.one_of = found.iter().find_map(|bound| match bound {
                Bound::OneOf(at, one_of) if at == place => Some(one_of.clone()),
                _ => None,
            });
            if self.one_of.is_none() {
                let bound = |strict: Compare, loose: Compare| {
                    found.iter().find_map(|bound| match bound {
                        Bound::Compare(at, op, value) if at == place && (*op == strict || *op == loose) => {
                            Some((value.as_ref().clone(), *op == loose))
                        }
                        _ => None,
                    })
                };
                let (low, high) = (bound(Compare::Gt, Compare::Ge), bound(Compare::Lt, Compare::Le));
                (self.low, self.high) = if order.descending { (high, low) } else { (low, high) };
            }
            break;
        }
        self.is_point = is_unique && !self.key.is_empty() && self.equal.len() == self.key.len();
    }

    /// Determines whether rows come in the requested order.
    fn order_by(&mut self, wanted: &[Wanted], is_nullable: impl Fn(usize) -> bool) {
        if wanted.is_empty() || self.one_of.is_some() {
            return;
        }
        if self.is_point {
            self.is_ordered = true;
            return;
        }
        let mut rest = self.key.iter().skip(self.equal.len());
        let mut backward = None;
        for (place, descending, nulls_first) in wanted {
            // A column with a fixed value may appear anywhere in the order.
            if self.key.iter().take(self.equal.len()).any(|(at, _, _)| at == place) {
                continue;
            }
            let Some((at, _, order)) = rest.next() else { return };
            let turned = order.descending != *descending;
            let nulls_fit = !is_nullable(*place) || (order.nulls_first != *nulls_first) == turned;
            if at != place || !nulls_fit || *backward.get_or_insert(turned) != turned {
                return;
            }
        }
        self.is_ordered = true;
        self.backward = backward.unwrap_or(false);
    }

    /// Rank of a path: the greater one is better.
    fn worth(&self, is_limited: bool) -> (bool, usize, usize, bool, bool) {
        let ranges = match (&self.one_of, &self.low, &self.high) {
            (Some(_), _, _) => 3,
            (None, Some(_), Some(_)) => 2,
            (None, None, None) => 0,
            _ => 1,
        };
        let ordered = self.is_ordered && (is_limited || self.index.is_none());
        (self.is_point, self.equal.len(), ranges, ordered, self.index.is_none())
    }

    /// True when the path reads the whole table.
    pub(crate) fn is_whole(&self) -> bool {
        self.equal.is_empty() && self.one_of.is_none() && self.low.is_none() && self.high.is_none()
    }

    /// True when the path has a lower or an upper bound.
    pub(crate) fn is_between(&self) -> bool {
        self.low.is_some() || self.high.is_some()
    }

    /// The values of all key columns, when the path selects one row by primary key.
    pub(crate) fn point(&self) -> Option<(&[Expr], impl Iterator<Item = Type> + '_)> {
        let types = self.key.iter().map(|(_, ty, _)| *ty);
        (self.is_point && self.index.is_none()).then_some((self.equal.as_slice(), types))
    }

    /// The primary key that the path selects; `None` for other paths, or when a value does not fit its column
    /// exactly.
    pub(crate) fn key(&self, cx: &Context<'_>, input: &dyn Input) -> Result<Option<Vec<Value<'static>>>> {
        let Some((exprs, types)) = self.point() else { return Ok(None) };
        let mut key = Vec::with_capacity(exprs.len());
        for (expr, ty) in exprs.iter().zip(types) {
            let Fit::Exact(value) = fit(expr.eval(cx, input)?.into_owned(), ty) else { return Ok(None) };
            key.push(value);
        }
        Ok(Some(key))
    }

    /// The ranges to read.
    pub(crate) fn ranges(&self, cx: &Context<'_>, input: &dyn Input) -> Result<Ranges> {
        let none = Ranges { ranges: Vec::new(), is_complete: true };
        let mut prefix = Vec::with_capacity(self.key.len());
        let mut is_complete = true;
        for (expr, (_, ty, _)) in self.equal.iter().zip(&self.key) {
            match fit(expr.eval(cx, input)?.into_owned(), *ty) {
                Fit::Exact(value) => prefix.push(value),
                Fit::Never => return Ok(none),
                Fit::Unfit => {
                    is_complete = false;
                    break;
                }
            }
        }
        let Some((_, ty, _)) = self.key.get(prefix.len()).filter(|_| is_complete) else {
            return Ok(Ranges { ranges: vec![range(&prefix)], is_complete });
        };
        if let Some(one_of) = &self.one_of {
            let Some(mut values) = one_of.values(*ty, cx, input)? else {
                return Ok(Ranges { ranges: vec![range(&prefix)], is_complete: false });
            };
            values.sort_by(order);
            values.dedup_by(|a, b| order(a, b) == Ordering::Equal);
            let with = |value| range(&[prefix.as_slice(), &[value]].concat());
            return Ok(Ranges { ranges: values.into_iter().map(with).collect(), is_complete });
        }
        let mut whole = range(&prefix);
        for (bound, is_low) in [(&self.low, true), (&self.high, false)] {
            let Some((expr, inclusive)) = bound else { continue };
            let value = expr.eval(cx, input)?.into_owned();
            if value.is_null() {
                return Ok(none);
            }
            let Fit::Exact(value) = fit(value, *ty) else { continue };
            let key = [prefix.as_slice(), &[value]].concat();
            whole = match (is_low, inclusive) {
                (true, true) => whole.from(key),
                (true, false) => whole.after(key),
                (false, true) => whole.to(key),
                (false, false) => whole.before(key),
            };
        }
        Ok(Ranges { ranges: vec![whole], is_complete })
    }

    /// The description of the path in EXPLAIN.
    pub(crate) fn describe(&self, schema: &Schema) -> String {
        let name = |place: usize| schema.columns().get(place).map_or("?", |column| column.name());
        let mut conditions: Vec<String> = self
            .key
            .iter()
            .take(self.equal.len())
            .map(|(place, _, _)| format!("{} =", name(*place)))
            .collect();
        if let Some((place, _, _)) = self.key.get(self.equal.len()) {
            let name = name(*place);
            match (&self.one_of, &self.low, &self.high) {
                (Some(_), _, _) => conditions.push(format!("{name} one of")),
                (None, Some(_), Some(_)) => conditions.push(format!("{name} between")),
                (None, Some(_), None) => conditions.push(format!("{name} from")),
                (None, None, Some(_)) => conditions.push(format!("{name} up to")),
                (None, None, None) => {}
            }
        }
        let through = match (&self.index, self.is_whole()) {
            (Some(index), _) if self.is_covering => format!("index {index} alone"),
            (Some(index), _) => format!("index {index}"),
            (None, true) => "scan".to_owned(),
            (None, false) => "primary key".to_owned(),
        };
        let mut text = format!("{} by {through}", if self.is_point { "Get" } else { "Read" });
        if self.is_whole() && self.index.is_none() {
            text = "Scan".to_owned();
        }
        if !conditions.is_empty() {
            text += &format!(" ({})", conditions.join(", "));
        }
        if self.backward {
            text += " backward";
        }
        text
    }
}

fn range(prefix: &[Value<'static>]) -> KeyRange<'static> {
    if prefix.is_empty() { KeyRange::all() } else { KeyRange::prefix(prefix.to_vec()) }
}

/// A value converted to the type of the key column that it is compared with, if that is exact.
pub(crate) fn key_value(value: Value<'static>, ty: Type) -> Option<Value<'static>> {
    match fit(value, ty) {
        Fit::Exact(value) => Some(value),
        Fit::Never | Fit::Unfit => None,
    }
}

impl OneOf {
    /// The values, without those that equal no column value; `None` when one has no representation as a key.
    fn values(&self, ty: Type, cx: &Context<'_>, input: &dyn Input) -> Result<Option<Vec<Value<'static>>>> {
        let mut values = Vec::new();
        match self {
            Self::List(list) => {
                for item in list {
                    values.push(item.eval(cx, input)?.into_owned());
                }
            }
            Self::Subquery(number) => match cx.answers.get(*number) {
                Some(Answer::List(list)) => values.extend(list.iter().cloned()),
                _ => return Ok(None),
            },
            Self::Array(array) => match array.eval(cx, input)? {
                Value::Array(array) => values.extend(array.iter().flatten().map(Value::into_owned)),
                _ => return Ok(Some(Vec::new())),
            },
        }
        let mut exact = Vec::with_capacity(values.len());
        for value in values {
            match fit(value, ty) {
                Fit::Exact(value) => exact.push(value),
                Fit::Never => {}
                Fit::Unfit => return Ok(None),
            }
        }
        Ok(Some(exact))
    }
}
