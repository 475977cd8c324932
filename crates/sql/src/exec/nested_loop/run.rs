//! Execution of nested-loop queries: all rows are in memory.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ropewalk::tables::{KeyRange, Schema, Value};

use super::Body;
use super::From;
use super::Inner;
use super::Node;
use super::Output;
use super::Select;
use super::SetOp;
use super::Source;
use super::Take;
use super::nested::{Run, join_table};
use crate::access::access_path::Path;
use crate::access::row_source::Access;
use crate::error::{Result, SqlError, state};
use crate::exec::point::{self, JoinTable};
use crate::exec::relations::Rows as _;
use crate::exec::relations::models::ModelRelation;
use crate::expr::arith::{Compare, put_identity, sort_order};
use crate::expr::bounds::Operands;
use crate::expr::inner_query::{InnerQuery, NestedRun};
use crate::expr::{Context, Expr, Input, Nothing, Order, Record, bug};
use crate::limits::budget::{Budget, row_bytes};
use crate::plan::Asked;
use crate::plan::with::Last;

/// The rows of a query's result.
pub(super) type Rows = Arc<Vec<Record>>;

/// The columns of the row that is being joined.
type Row = Vec<Value<'static>>;

/// The queries of one run whose tables have been read. A query with several references, such as one of WITH,
/// is read and executed once for all of them.
#[derive(Default)]
pub(crate) struct Filled {
    /// By the plan's address. The plan is held so that no other plan gets the same address.
    queries: HashMap<*const Node, (Arc<Node>, Inner)>,
}

impl Filled {
    fn fill(
        &mut self,
        inner: &mut Inner,
        access: Option<&mut Access<'_>>,
        cx: &Context<'_>,
        budget: &Budget,
    ) -> Result<()> {
        let plan = inner.node.clone();
        match self.queries.get(&Arc::as_ptr(&plan)) {
            Some((_, filled)) => (inner.node, inner.kept) = (filled.node.clone(), filled.kept.clone()),
            None => {
                Arc::make_mut(&mut inner.node).fill(access, cx, budget, self)?;
                inner.kept = Arc::default();
                self.queries.insert(Arc::as_ptr(&plan), (plan, inner.clone()));
            }
        }
        Ok(())
    }
}

impl Node {
    /// Drops the results of an earlier run and, with `access`, reads the tables of the query into memory.
    pub(crate) fn fill(
        &mut self,
        mut access: Option<&mut Access<'_>>,
        cx: &Context<'_>,
        budget: &Budget,
        filled: &mut Filled,
    ) -> Result<()> {
        let mut failed = Ok(());
        self.each_inner(&mut |inner| {
            if failed.is_ok() {
                failed = filled.fill(inner, access.as_deref_mut(), cx, budget);
            }
        });
        failed?;
        let mut failed = Ok(());
        self.each_expr(&mut |expr| {
            if failed.is_ok() {
                failed = fill_expr(expr, access.as_deref_mut(), cx, budget, filled);
            }
        });
        failed?;
        match &mut self.body {
            Body::Set { left, right, .. } | Body::Recursive { base: left, step: right, .. } => {
                left.fill(access.as_deref_mut(), cx, budget, filled)?;
                right.fill(access, cx, budget, filled)
            }
            Body::Values(_) => Ok(()),
            Body::Select(select) => {
                let Some(access) = access else { return Ok(()) };
                for from in &mut select.from {
                    if let Source::Table(table, schema) = &from.source {
                        let path = from.path(schema, point::alone(&from.filter, from.start));
                        let ranges =
                            path.ranges(cx, &Nothing).map_or_else(|_| whole(), |ranges| ranges.ranges);
                        let run = Run::new(Some(access.again()), budget);
                        let (rows, _) = run.read(table, &path, &ranges, cx)?;
                        from.source = Source::Made(rows);
                    } else if let Source::Model(model) = &from.source {
                        let run = Run::new(Some(access.again()), budget);
                        let (rows, _) = run.read_model(model, &from.narrowing(model), cx)?;
                        from.source = Source::Made(rows);
                    }
                }
                Ok(())
            }
        }
    }

    /// Runs a query over tables as visible to `access`.
    pub(crate) fn answer(
        &self,
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
    ) -> Result<Vec<Record>> {
        let mut node = self.clone();
        node.fill(None, cx, budget, &mut Filled::default())?;
        let run = Run::new(Some(access.again()), budget);
        node.run(&Context { nested: Some(&run), ..*cx }, &run)
    }

    /// Runs a query that was [filled](Node::fill).
    pub(crate) fn answer_filled(&self, cx: &Context<'_>, budget: &Budget) -> Result<Vec<Record>> {
        let run = Run::new(None, budget);
        self.run(&Context { nested: Some(&run), ..*cx }, &run)
    }

    fn run(&self, cx: &Context<'_>, run: &Run<'_>) -> Result<Vec<Record>> {
        let mut rows = match &self.body {
            Body::Select(select) => select.run(cx, run)?,
            Body::Values(values) => {
                let row = |row: &Vec<Expr>| {
                    let row = Expr::record(row, cx, &Nothing)?;
                    run.budget().take_row(&row)?;
                    Ok::<_, SqlError>(row)
                };
                values.iter().map(row).collect::<Result<_>>()?
            }
            Body::Recursive { base, step, all, last } => recursion(base, step, *all, last, cx, run)?,
            Body::Set { op, all, left, right } => {
                combined(*op, *all, left.run(cx, run)?, right.run(cx, run)?, cx, run.budget())?
            }
        };
        if !self.order.is_empty() {
            let keyed = rows.into_iter().map(|row| Ok((keys(&self.order, cx, &row)?, row)));
            rows = sorted(keyed.collect::<Result<_>>()?, &self.order);
        }
        let skip = point::count(self.offset.as_ref(), cx, "OFFSET")?.unwrap_or(0);
        let limit = point::count(self.limit.as_ref(), cx, "LIMIT")?.unwrap_or(u64::MAX);
        let size = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        if skip > 0 || limit < u64::MAX {
            rows = rows.into_iter().skip(size(skip)).take(size(limit)).collect();
        }
        Ok(rows)
    }
}

/// The range of a complete table.
fn whole() -> Vec<KeyRange<'static>> {
    vec![KeyRange::all()]
}

/// As [`Node::fill`], for the subqueries of an expression.
pub(crate) fn fill_expr(
    expr: &mut Expr,
    mut access: Option<&mut Access<'_>>,
    cx: &Context<'_>,
    budget: &Budget,
    filled: &mut Filled,
) -> Result<()> {
    let mut failed = Ok(());
    let taken = std::mem::replace(expr, Expr::Const(Value::Null));
    *expr = taken.rewrite(&mut |part| match part {
        Expr::Inner(query, left) => {
            let mut inner = Inner::of(&**query)?.clone();
            if failed.is_ok() {
                failed = filled.fill(&mut inner, access.as_deref_mut(), cx, budget);
            }
            let mut left = left.clone();
            if let Some(left) = &mut left
                && failed.is_ok()
            {
                failed = fill_expr(left, access.as_deref_mut(), cx, budget, filled);
            }
            Some(inner.expr(left))
        }
        _ => None,
    });
    failed
}

fn identity(row: &[Value<'_>]) -> Vec<u8> {
    let mut identity = Vec::new();
    row.iter().for_each(|value| put_identity(value, &mut identity));
    identity
}

fn combined(
    op: SetOp,
    all: bool,
    left: Vec<Record>,
    right: Vec<Record>,
    cx: &Context<'_>,
    budget: &Budget,
) -> Result<Vec<Record>> {
    let mut counts: HashMap<Vec<u8>, usize> = HashMap::new();
    if op != SetOp::Union {
        for row in &right {
            budget.take(row_bytes(row))?;
            *counts.entry(identity(row)).or_default() += 1;
        }
    }
    let mut rows = Vec::new();
    let mut seen: HashSet<Vec<u8>> = HashSet::new();
    let given = left.into_iter().chain(if op == SetOp::Union { right } else { Vec::new() });
    for row in given {
        cx.interrupt.check(cx.env)?;
        let identity = identity(&row);
        let other = counts.get_mut(&identity);
        let stays = match (op, other) {
            (SetOp::Union, _) | (SetOp::Except, None) => true,
            (SetOp::Intersect, None) => false,
            (op, Some(count)) => {
                let is_there = *count > 0;
                if all && is_there {
                    *count -= 1;
                }
                is_there == (op == SetOp::Intersect)
            }
        };
        if stays && (all || seen.insert(identity)) {
            rows.push(row);
        }
    }
    Ok(rows)
}

/// The rows of `base`, then those of `step` over the previous rows, until there are no more. Without ALL each
/// row appears once.
fn recursion(
    base: &Node,
    step: &Node,
    all: bool,
    last: &Last,
    cx: &Context<'_>,
    run: &Run<'_>,
) -> Result<Vec<Record>> {
    let mut seen: HashSet<Vec<u8>> = HashSet::new();
    let mut rows = Vec::new();
    let mut came = base.run(cx, run)?;
    loop {
        came.retain(|row| all || seen.insert(identity(row)));
        if came.is_empty() {
            return Ok(rows);
        }
        cx.interrupt.check(cx.env)?;
        came.iter().try_for_each(|row| run.budget().take_row(row))?;
        rows.extend(came.iter().cloned());
        *last.lock().unwrap_or_else(|held| held.into_inner()) = Arc::new(came);
        came = step.run(cx, run)?;
    }
}

/// The number of each row within its partition.
fn numbers(partition: &[Expr], order: &[Order], sources: &[Row], cx: &Context<'_>) -> Result<Vec<i64>> {
    let mut keyed = Vec::with_capacity(sources.len());
    for (place, source) in (0_i64..).zip(sources) {
        cx.interrupt.check(cx.env)?;
        keyed.push((keys(order, cx, source)?, vec![Value::Int8(place)]));
    }
    let mut counts: HashMap<Vec<u8>, i64> = HashMap::new();
    let mut numbers = vec![0; sources.len()];
    for row in sorted(keyed, order) {
        let place = row.first().and_then(Value::as_integer).and_then(|place| usize::try_from(place).ok());
        let Some((place, source)) = place.and_then(|place| Some((place, sources.get(place)?))) else {
            continue;
        };
        let part: Result<Row> =
            partition.iter().map(|expr| Ok(expr.eval(cx, source)?.into_owned())).collect();
        let count = counts.entry(identity(&part?)).or_default();
        *count += 1;
        if let Some(number) = numbers.get_mut(place) {
            *number = *count;
        }
    }
    Ok(numbers)
}

fn keys(orders: &[Order], cx: &Context<'_>, input: &dyn Input) -> Result<Row> {
    orders.iter().map(|order| Ok(order.expr.eval(cx, input)?.into_owned())).collect()
}

fn sorted(mut keyed: Vec<(Row, Record)>, orders: &[Order]) -> Vec<Record> {
    keyed.sort_by(|a, b| {
        let each = orders.iter().zip(a.0.iter().zip(&b.0));
        each.map(|(order, (a, b))| sort_order(a, b, order.descending, order.nulls_first))
            .find(|order| order.is_ne())
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    keyed.into_iter().map(|(_, row)| row).collect()
}

impl Select {
    fn run(&self, cx: &Context<'_>, run: &Run<'_>) -> Result<Vec<Record>> {
        let budget = run.budget();
        let mut sources: Vec<Row> = Vec::new();
        let mut holds = true;
        for condition in &self.constant {
            holds = holds && condition.holds(cx, &Nothing)?;
        }
        if holds {
            Join::new(&self.from).level(0, cx, run, &mut |row| {
                budget.take_row(row)?;
                sources.push(row.clone());
                Ok(())
            })?;
        }
        if let Some(groups) = &self.groups {
            sources = point::grouped(groups, sources, cx, budget)?;
        }
        let mut numbered = Vec::with_capacity(self.output.len());
        for output in &self.output {
            numbered.push(match output {
                Output::Number(partition, order) => numbers(partition, order, &sources, cx)?,
                _ => Vec::new(),
            });
        }
        let mut keyed: Vec<(Row, Record)> = Vec::new();
        for (place, source) in sources.iter().enumerate() {
            cx.interrupt.check(cx.env)?;
            let number =
                |output: usize| numbered.get(output).and_then(|numbers: &Vec<i64>| numbers.get(place));
            for row in
                self.outputs(source, &|output| number(output).copied().unwrap_or_default(), cx, budget)?
            {
                budget.take_row(&row)?;
                keyed.push((point::keys(&self.order, &row, cx, source)?, row));
            }
        }
        if !self.distinct_on.is_empty() {
            // The first row of each, in the requested order.
            let with_on = sources.iter().zip(keyed).map(|(source, (order, row))| {
                let on = self.distinct_on.iter().map(|expr| Ok(expr.eval(cx, source)?.into_owned()));
                Ok((order, [on.collect::<Result<Row>>()?, row].concat()))
            });
            let width = self.distinct_on.len();
            let mut seen = HashSet::new();
            let mut rows = sorted(with_on.collect::<Result<_>>()?, &self.order);
            rows.retain(|row| seen.insert(identity(row.get(..width).unwrap_or_default())));
            rows.iter_mut().for_each(|row| drop(row.drain(..width)));
            return Ok(rows);
        }
        if self.is_distinct {
            let mut seen = HashSet::new();
            keyed.retain(|(_, row)| seen.insert(identity(row)));
        }
        Ok(sorted(keyed, &self.order))
    }

    /// The result rows of one source row: one, or as many as its functions return.
    fn outputs(
        &self,
        source: &Row,
        number: &dyn Fn(usize) -> i64,
        cx: &Context<'_>,
        budget: &Budget,
    ) -> Result<Vec<Record>> {
        let mut columns: Vec<(bool, Vec<Value<'static>>)> = Vec::with_capacity(self.output.len());
        let mut operands = Operands::new(cx.interrupt);
        for (place, output) in self.output.iter().enumerate() {
            columns.push(match output {
                Output::Number(..) => (false, vec![Value::Int8(number(place))]),
                Output::One(expr) => {
                    let value = expr.eval(cx, source)?.into_owned();
                    operands.hold(&value)?;
                    (false, vec![value])
                }
                Output::Many(function, arguments, take) => {
                    let rows = function.rows(&Expr::record(arguments, cx, source)?, budget)?;
                    (true, rows.into_iter().map(|row| taken(row, *take)).collect::<Result<_>>()?)
                }
            });
        }
        let many = columns.iter().filter(|(many, _)| *many).map(|(_, values)| values.len()).max();
        let row = |number: usize| {
            let value = |(many, values): &(bool, Vec<Value<'static>>)| {
                let place = if *many { number } else { 0 };
                values.get(place).cloned().unwrap_or(Value::Null)
            };
            columns.iter().map(value).collect()
        };
        let mut rows: Vec<Record> = Vec::new();
        let mut bytes = 0;
        for number in 0..many.unwrap_or(1) {
            // A scalar value is repeated in each row of a function. The caller pays for the rows that stay.
            let row: Record = row(number);
            budget.take_row(&row)?;
            bytes += row_bytes(&row);
            rows.push(row);
        }
        budget.give_back(bytes);
        Ok(rows)
    }
}

/// The part of a function's row that becomes a column.
fn taken(row: Record, take: Take) -> Result<Value<'static>> {
    match take {
        Take::Column(place) => Ok(row.into_iter().nth(place).unwrap_or(Value::Null)),
        Take::Pair => {
            let array = ropewalk::tables::Array::new(ropewalk::tables::Scalar::Int8, row);
            Ok(Value::Array(array.map_err(|_| bug("numbers that make no array"))?))
        }
    }
}

/// Rows of a level that may match the rows of the levels before.
struct Found {
    rows: Rows,
    /// The matching row numbers; `None` for all.
    numbers: Option<Vec<usize>>,
    /// Bytes held by them.
    bytes: usize,
}

impl Found {
    fn all(rows: Rows) -> Self {
        Self { rows, numbers: None, bytes: 0 }
    }

    fn len(&self) -> usize {
        self.numbers.as_ref().map_or(self.rows.len(), Vec::len)
    }

    fn get(&self, at: usize) -> Option<&Record> {
        let number = match &self.numbers {
            Some(numbers) => *numbers.get(at)?,
            None => at,
        };
        self.rows.get(number)
    }
}

/// The equalities that join a relation: expressions over its columns alone, numbered from 0, and the
/// expressions equal to them.
struct Pairs {
    here: Vec<Expr>,
    before: Vec<Expr>,
}

impl Pairs {
    fn of(from: &From) -> Self {
        let side = |expr: &Expr| {
            let (mut here, mut before) = (false, false);
            expr.columns(&mut |column| if column < from.start { before = true } else { here = true });
            // A subquery runs only for the rows that match, not for all candidates.
            (here, before || here && super::has_correlated(expr))
        };
        let mut pairs = Self { here: Vec::new(), before: Vec::new() };
        let mut add = |here: &Expr, before: &Expr| {
            pairs.here.push(from.shifted(here));
            pairs.before.push(before.clone());
        };
        for condition in &from.filter {
            if let Expr::Compare(Compare::Eq, left, right) = condition {
                match (side(left), side(right)) {
                    ((true, false), (false, _)) => add(left, right),
                    ((false, _), (true, false)) => add(right, left),
                    _ => {}
                }
            }
        }
        pairs
    }
}

/// State of a level that was reached before.
#[derive(Default)]
struct Known {
    pairs: Option<Arc<Pairs>>,
    path: Option<Arc<Path>>,
    /// The rows hashed last, and those of them that may match some join value.
    hashed: Option<(Rows, Option<Arc<JoinTable>>, Arc<[usize]>)>,
}

struct Join<'p> {
    from: &'p [From],
    known: Vec<Known>,
    row: Row,
}

impl From {
    /// The rows that its own conditions do not rule out.
    fn possible(&self, numbers: &[usize], rows: &[Record], cx: &Context<'_>) -> Vec<usize> {
        if numbers.is_empty() {
            return Vec::new();
        }
        let alone: Vec<Expr> =
            point::alone(&self.filter, self.start).map(|part| self.shifted(part)).collect();
        let is_possible =
            |number: &usize| rows.get(*number).is_some_and(|row| !point::rules_out(&alone, cx, row));
        numbers.iter().copied().filter(is_possible).collect()
    }

    /// Its own conditions that reduce the rows read from a model.
    fn narrowing(&self, model: &ModelRelation) -> Vec<Expr> {
        let alone = point::alone(&self.filter, self.start).map(|part| self.shifted(part));
        alone.filter(|condition| model.narrows(condition)).collect()
    }

    /// Renumbers an expression over its columns alone to start at 0.
    fn shifted(&self, expr: &Expr) -> Expr {
        expr.clone().renumber(&|column| column - self.start)
    }

    /// The path to the rows that satisfy some of its conditions.
    fn path<'e>(&self, schema: &Schema, conditions: impl Iterator<Item = &'e Expr>) -> Path {
        Path::choose(schema, self.start, &conditions.cloned().collect::<Vec<_>>(), &[], false)
    }
}

impl<'p> Join<'p> {
    fn new(from: &'p [From]) -> Self {
        Self { from, known: from.iter().map(|_| Known::default()).collect(), row: Vec::new() }
    }

    fn level(
        &mut self,
        depth: usize,
        cx: &Context<'_>,
        run: &Run<'_>,
        each: &mut dyn FnMut(&Row) -> Result<()>,
    ) -> Result<()> {
        let all = self.from;
        let Some(from) = all.get(depth) else { return each(&self.row) };
        let width = self.row.len();
        let mut matched = false;
        let found = self.candidates(depth, from, cx, run)?;
        for at in 0..found.len() {
            cx.interrupt.check(cx.env)?;
            self.row.extend(found.get(at).into_iter().flatten().cloned());
            let mut holds = true;
            for condition in &from.filter {
                holds = holds && condition.holds(cx, &self.row)?;
            }
            matched |= holds;
            if holds && self.passes(from, cx)? {
                self.level(depth + 1, cx, run, each)?;
            }
            self.row.truncate(width);
        }
        run.budget().give_back(found.bytes);
        if from.is_outer && !matched {
            self.row.extend(std::iter::repeat_n(Value::Null, from.width));
            if self.passes(from, cx)? {
                self.level(depth + 1, cx, run, each)?;
            }
            self.row.truncate(width);
        }
        Ok(())
    }

    fn passes(&self, from: &From, cx: &Context<'_>) -> Result<bool> {
        for condition in &from.after {
            if !condition.holds(cx, &self.row)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn candidates(&mut self, depth: usize, from: &From, cx: &Context<'_>, run: &Run<'_>) -> Result<Found> {
        let free = run.free();
        let passing = |rows: Rows| Ok(Found { bytes: free.saturating_sub(run.free()), ..Found::all(rows) });
        let (rows, is_held) = match &from.source {
            Source::Made(rows) => (rows.clone(), true),
            Source::Last(rows) => (rows.lock().unwrap_or_else(|held| held.into_inner()).clone(), false),
            Source::Query(inner) if inner.is_correlated => {
                return passing(inner.rows(cx, &self.row, run)?);
            }
            Source::Query(inner) => (inner.rows(cx, &self.row, run)?, !inner.is_settled),
            Source::Function(function, arguments, numbered) => {
                let mut rows = function.rows(&Expr::record(arguments, cx, &self.row)?, run.budget())?;
                if *numbered {
                    rows.iter_mut().zip(1_i64..).for_each(|(row, number)| row.push(Value::Int8(number)));
                }
                return passing(Arc::new(rows));
            }
            Source::Model(model) => match run.read_model(model, &from.narrowing(model), cx)? {
                (rows, true) => (rows, true),
                (rows, false) => return passing(rows),
            },
            Source::Table(table, schema) => {
                let path = self.path(depth, from, schema);
                // A key that cannot be computed may be guarded by another condition: all of them are
                // evaluated for each row.
                let ranges = path.ranges(cx, &self.row).map_or_else(|_| whole(), |ranges| ranges.ranges);
                match run.read(table, &path, &ranges, cx)? {
                    (rows, true) => (rows, true),
                    (rows, false) => return passing(rows),
                }
            }
        };
        self.joined(depth, from, (rows, is_held), cx, run)
    }

    fn path(&mut self, depth: usize, from: &From, schema: &Schema) -> Arc<Path> {
        let choose = || Arc::new(from.path(schema, from.filter.iter().filter(|part| !part.has_inner())));
        match self.known.get_mut(depth) {
            Some(known) => known.path.get_or_insert_with(choose).clone(),
            None => choose(),
        }
    }

    /// The rows that satisfy the equalities.
    fn joined(
        &mut self,
        depth: usize,
        from: &From,
        (rows, is_held): (Rows, bool),
        cx: &Context<'_>,
        run: &Run<'_>,
    ) -> Result<Found> {
        let Some(known) = self.known.get_mut(depth).filter(|_| rows.len() >= HASHED_ROWS_MIN) else {
            return Ok(Found::all(rows));
        };
        let pairs = known.pairs.get_or_insert_with(|| Arc::new(Pairs::of(from))).clone();
        if pairs.here.is_empty() {
            return Ok(Found::all(rows));
        }
        let (table, unknown) = match &known.hashed {
            Some((hashed, table, unknown)) if Arc::ptr_eq(hashed, &rows) => (table.clone(), unknown.clone()),
            _ => {
                let table = match is_held {
                    true => run.hashed(&rows, &pairs.here, cx)?,
                    // The table lives as long as the rows, and is no larger than they are; they are paid for.
                    false => {
                        let budget = Budget::new(usize::MAX);
                        Some(Arc::new(join_table(&rows, &pairs.here, &budget, cx)?))
                    }
                };
                let unknown: Arc<[usize]> = match &table {
                    Some(table) => from.possible(table.unknown(), &rows, cx).into(),
                    None => Arc::default(),
                };
                known.hashed = Some((rows.clone(), table.clone(), unknown.clone()));
                (table, unknown)
            }
        };
        let Some(table) = table else { return Ok(Found::all(rows)) };
        let before = pairs.before.iter().map(|expr| Ok(vec![expr.eval(cx, &self.row)?.into_owned()]));
        let numbers = table.numbers(point::join_identity(before), &unknown).map(Cow::into_owned);
        Ok(Found { rows, numbers, bytes: 0 })
    }
}

/// Below this number, rows are compared one by one.
const HASHED_ROWS_MIN: usize = 8;

impl Inner {
    /// Its rows for a row of the enclosing query.
    fn rows(&self, cx: &Context<'_>, input: &dyn Input, run: &Run<'_>) -> Result<Rows> {
        cx.interrupt.check(cx.env)?;
        if !self.is_correlated {
            if let Some(kept) = self.kept.get() {
                return Ok(kept.clone());
            }
            let free = run.free();
            let rows = Arc::new(self.node.run(cx, run)?);
            if !self.is_settled {
                run.hold(free.saturating_sub(run.free()));
            }
            return Ok(self.kept.get_or_init(|| rows).clone());
        }
        let mut node = (*self.node).clone();
        let mut failed = None;
        node.settle_outer(&mut |column| match input.column(column) {
            Ok(value) => Expr::Const(value.into_owned()),
            Err(error) => {
                failed = Some(error);
                Expr::Const(Value::Null)
            }
        });
        match failed {
            Some(error) => Err(error),
            None => Ok(Arc::new(node.run(cx, run)?)),
        }
    }

    /// The value that its rows amount to.
    fn value(
        &self,
        rows: &[Record],
        left: Option<&Expr>,
        cx: &Context<'_>,
        input: &dyn Input,
    ) -> Result<Value<'static>> {
        let mut firsts = rows.iter().filter_map(|row| row.first().cloned());
        Ok(match (&self.asked, left) {
            (Asked::Exists, _) => Value::Bool(!rows.is_empty()),
            (Asked::List, Some(left)) => {
                let value = left.eval(cx, input)?;
                crate::expr::contained(&value, firsts.map(Ok))?
            }
            (Asked::List, None) => {
                let ropewalk::tables::Type::Array(element) = self.ty else {
                    return Err(bug("an array without elements"));
                };
                crate::expr::bounds::array(element, firsts.collect())?
            }
            (Asked::Scalar, _) if rows.len() > 1 => {
                let message = "more than one row returned by a subquery used as an expression";
                return Err(SqlError::new(state::CARDINALITY_VIOLATION, message));
            }
            (Asked::Scalar, _) => firsts.next().unwrap_or(Value::Null),
        })
    }
}

impl NestedRun for Run<'_> {
    fn value(
        &self,
        inner: &dyn InnerQuery,
        left: Option<&Expr>,
        cx: &Context<'_>,
        input: &dyn Input,
    ) -> Result<Value<'static>> {
        let inner = Inner::of(inner).ok_or_else(|| bug("a subquery of another kind"))?;
        let free = self.free();
        let value = inner.value(&inner.rows(cx, input, self)?, left, cx, input);
        // Its rows are dropped, unless they are cached; the caller pays for the value.
        if inner.is_correlated {
            self.budget().give_back(free.saturating_sub(self.free()));
        }
        value
    }
}
