//! Runs plans of SELECT: rows are streamed one by one; only sorting, grouping and DISTINCT hold rows.
//!
//!   scan levels ─▶ conditions ─▶ groups ─▶ having ─▶ output ─▶ distinct ─▶ sort ─▶ offset, limit ─▶ sink
//!
//! Tables are joined by scanning the next one, along its path, for each row of those before. A table that is
//! scanned completely is read once and cached, hashed by its join columns.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ropewalk::tables::{KeyRange, OwnedRow, Row, Value};

use crate::access::row_source::Access;
use crate::error::{Result, SqlError, state};
use crate::exec::relations::RowSink;
use crate::expr::arith::{Compare, put_identity, sort_order};
use crate::expr::{Answer, Context, Expr, Input, Nothing, Order, Record, bug};
use crate::functions::aggregate::Running;
use crate::limits::budget::{Budget, row_bytes};
use crate::plan::{Asked, Groups, Level, Select, Subquery};

/// Takes rows until it returns false.
pub(crate) type Sink<'s> = dyn FnMut(Record) -> Result<bool> + 's;

/// Evaluates subqueries, each once, inner ones first.
pub(crate) fn answers(
    subqueries: &[Subquery],
    access: &mut Access<'_>,
    cx: &Context<'_>,
    budget: &Budget,
) -> Result<Vec<Answer>> {
    let mut answers: Vec<Answer> = Vec::with_capacity(subqueries.len());
    for Subquery { select, asked, locking } in subqueries {
        let mut rows: Vec<Value<'static>> = Vec::new();
        let mut several = false;
        let mut exists = false;
        let cx = Context { answers: &answers, ..*cx };
        let mut sink = |row: Record| {
            exists = true;
            if *asked == Asked::Exists {
                return Ok(false);
            }
            several = !rows.is_empty();
            budget.take_row(&row)?;
            rows.extend(row.into_iter().next());
            Ok(*asked == Asked::List || !several)
        };
        match locking {
            Some(locking) if access.is_locking() => {
                for row in locking.run(access, &cx, budget)? {
                    if !sink(row)? {
                        break;
                    }
                }
            }
            Some(locking) if locking.skips() => return Err(crate::plan::locking::unskippable()),
            _ => run(select, access, &cx, budget, &mut sink)?,
        }
        answers.push(match asked {
            Asked::Exists => Answer::Scalar(Value::Bool(exists)),
            Asked::List => Answer::List(rows),
            Asked::Scalar if several => {
                let message = "more than one row returned by a subquery used as an expression";
                return Err(SqlError::new(state::CARDINALITY_VIOLATION, message));
            }
            Asked::Scalar => Answer::Scalar(rows.pop().unwrap_or(Value::Null)),
        });
    }
    Ok(answers)
}

pub(crate) fn count(expr: Option<&Expr>, cx: &Context<'_>, clause: &str) -> Result<Option<u64>> {
    let Some(expr) = expr else { return Ok(None) };
    match expr.constant(cx)?.as_integer() {
        None => Ok(None),
        Some(number) => u64::try_from(number).map(Some).map_err(|_| {
            let code = if clause == "LIMIT" {
                state::INVALID_ROW_COUNT_IN_LIMIT
            } else {
                state::INVALID_ROW_COUNT_IN_OFFSET
            };
            SqlError::new(code, format!("{clause} must not be negative"))
        }),
    }
}

/// Runs a plan; every row of the result goes to `sink`.
pub(crate) fn run(
    select: &Select,
    access: &mut Access<'_>,
    cx: &Context<'_>,
    budget: &Budget,
    sink: &mut Sink<'_>,
) -> Result<()> {
    let skip = count(select.offset.as_ref(), cx, "OFFSET")?.unwrap_or(0);
    let left = count(select.limit.as_ref(), cx, "LIMIT")?.unwrap_or(u64::MAX);
    run_some(select, (skip, left), access, cx, budget, sink)
}

/// Like [`run`], with an offset and a limit from the caller.
pub(crate) fn run_some(
    select: &Select,
    (mut skip, mut left): (u64, u64),
    access: &mut Access<'_>,
    cx: &Context<'_>,
    budget: &Budget,
    sink: &mut Sink<'_>,
) -> Result<()> {
    if left == 0 {
        return Ok(());
    }
    let kept = usize::try_from(left.saturating_add(skip)).unwrap_or(usize::MAX);
    let mut last = |row: Record| -> Result<bool> {
        if skip > 0 {
            skip -= 1;
            return Ok(true);
        }
        left -= 1;
        Ok(sink(row)? && left > 0)
    };
    // A path that does not keep its order for the current values is sorted like any other.
    let in_order = select.order.is_empty()
        || match select.levels.as_slice() {
            [level] if level.path.is_ordered && select.groups.is_none() => {
                level.path.ranges(cx, &Nothing)?.is_complete
            }
            _ => false,
        };
    if in_order {
        return distinct(select, access, cx, budget, &mut |row, _| last(row));
    }
    // Rows to sort: keys and row. With a limit, only as many as it needs stay in memory.
    let mut rows: Vec<(Record, Record)> = Vec::new();
    let compare = |a: &(Record, Record), b: &(Record, Record)| {
        let each = select.order.iter().zip(a.0.iter().zip(&b.0));
        each.map(|(order, (a, b))| sort_order(a, b, order.descending, order.nulls_first))
            .find(|order| order.is_ne())
            .unwrap_or(std::cmp::Ordering::Equal)
    };
    distinct(select, access, cx, budget, &mut |row, keys| {
        budget.take(row_bytes(&row) + row_bytes(&keys))?;
        rows.push((keys, row));
        if kept < 1 << 20 && rows.len() >= (kept * 2).max(1024) {
            rows.sort_by(compare);
            let dropped =
                rows.drain(kept.min(rows.len())..).map(|(keys, row)| row_bytes(&keys) + row_bytes(&row));
            budget.give_back(dropped.sum());
        }
        Ok(true)
    })?;
    rows.sort_by(compare);
    for (_, row) in rows {
        if !last(row)? {
            break;
        }
    }
    Ok(())
}

/// Receives rows with their sort keys.
type KeyedSink<'s> = dyn FnMut(Record, Record) -> Result<bool> + 's;

fn distinct(
    select: &Select,
    access: &mut Access<'_>,
    cx: &Context<'_>,
    budget: &Budget,
    sink: &mut KeyedSink<'_>,
) -> Result<()> {
    if !select.is_distinct {
        return output(select, access, cx, budget, sink);
    }
    let mut seen: HashSet<Vec<u8>> = HashSet::new();
    output(select, access, cx, budget, &mut |row, keys| {
        let mut identity = Vec::new();
        row.iter().for_each(|value| put_identity(value, &mut identity));
        budget.take(identity.len() + 48)?;
        if seen.insert(identity) { sink(row, keys) } else { Ok(true) }
    })
}

fn project(exprs: &[Expr], cx: &Context<'_>, input: &dyn Input) -> Result<Record> {
    Expr::record(exprs, cx, input)
}

/// The sort keys of a row with the output `row`.
pub(crate) fn keys(
    orders: &[Order],
    row: &[Value<'static>],
    cx: &Context<'_>,
    input: &dyn Input,
) -> Result<Record> {
    let key = |order: &Order| match order.shown.and_then(|place| row.get(place)) {
        Some(shown) => Ok(shown.clone()),
        None => Ok(order.expr.eval(cx, input)?.into_owned()),
    };
    orders.iter().map(key).collect()
}

/// Rows of the output, with sort keys if the query sorts.
fn output(
    select: &Select,
    access: &mut Access<'_>,
    cx: &Context<'_>,
    budget: &Budget,
    sink: &mut KeyedSink<'_>,
) -> Result<()> {
    let Some(groups) = &select.groups else {
        return source(select, access, cx, budget, &mut |input| {
            let row = project(&select.output, cx, input)?;
            let keys = keys(&select.order, &row, cx, input)?;
            sink(row, keys)
        });
    };
    let mut grouping = Grouping::new(groups);
    source(select, access, cx, budget, &mut |input| grouping.take(input, cx, budget).map(|()| true))?;
    for group in grouping.finish(cx)? {
        let row = project(&select.output, cx, &group)?;
        let keys = keys(&select.order, &row, cx, &group)?;
        if !sink(row, keys)? {
            break;
        }
    }
    Ok(())
}

/// Rows being grouped.
struct Grouping<'g> {
    groups: &'g Groups,
    numbers: HashMap<Vec<u8>, usize>,
    all: Vec<(Record, Vec<Running>)>,
    identity: Vec<u8>,
    is_volatile: bool,
}

impl<'g> Grouping<'g> {
    fn new(groups: &'g Groups) -> Self {
        let is_volatile = groups.keys.iter().any(Expr::is_volatile);
        let mut new =
            Self { groups, numbers: HashMap::new(), all: Vec::new(), identity: Vec::new(), is_volatile };
        if groups.keys.is_empty() {
            new.all.push((Vec::new(), new.start()));
        }
        new
    }

    fn start(&self) -> Vec<Running> {
        self.groups.aggregates.iter().map(|aggregate| aggregate.start()).collect()
    }

    fn take(&mut self, input: &dyn Input, cx: &Context<'_>, budget: &Budget) -> Result<()> {
        let groups = self.groups;
        let mut number = 0;
        if !groups.keys.is_empty() {
            self.identity.clear();
            // Volatile keys are evaluated once; other keys are evaluated again for the first row of a group.
            let asked = self.is_volatile.then(|| project(&groups.keys, cx, input)).transpose()?;
            match &asked {
                Some(keys) => keys.iter().for_each(|key| put_identity(key, &mut self.identity)),
                None => {
                    for key in &groups.keys {
                        put_identity(&key.eval(cx, input)?, &mut self.identity);
                    }
                }
            }
            number = match self.numbers.get(&self.identity) {
                Some(number) => *number,
                None => {
                    let row = asked.map_or_else(|| project(&groups.keys, cx, input), Ok)?;
                    budget.take_row(&row)?;
                    budget.take(self.identity.len() + 64 + groups.aggregates.len() * 128)?;
                    self.numbers.insert(self.identity.clone(), self.all.len());
                    self.all.push((row, self.start()));
                    self.all.len() - 1
                }
            };
        }
        let Some((_, running)) = self.all.get_mut(number) else {
            return Err(bug("a group without a number"));
        };
        for (aggregate, running) in groups.aggregates.iter().zip(running) {
            aggregate.take(running, cx, input, budget)?;
        }
        Ok(())
    }

    /// Keys and aggregates of the groups that satisfy HAVING.
    fn finish(self, cx: &Context<'_>) -> Result<Vec<Record>> {
        let mut rows = Vec::with_capacity(self.all.len());
        for (mut row, running) in self.all {
            for (aggregate, running) in self.groups.aggregates.iter().zip(running) {
                row.push(aggregate.finish(running)?);
            }
            match &self.groups.having {
                Some(having) if !having.holds(cx, &row)? => {}
                _ => rows.push(row),
            }
        }
        Ok(rows)
    }
}

/// Groups rows in memory.
pub(crate) fn grouped(
    groups: &Groups,
    rows: Vec<Record>,
    cx: &Context<'_>,
    budget: &Budget,
) -> Result<Vec<Record>> {
    let mut grouping = Grouping::new(groups);
    for row in rows {
        cx.interrupt.check(cx.env)?;
        grouping.take(&row, cx, budget)?;
    }
    grouping.finish(cx)
}

fn source(
    select: &Select,
    access: &mut Access<'_>,
    cx: &Context<'_>,
    budget: &Budget,
    each: &mut RowSink<'_>,
) -> Result<()> {
    for condition in &select.constant {
        if !condition.holds(cx, &Nothing)? {
            return Ok(());
        }
    }
    if let Some(values) = &select.values {
        for row in values {
            if !each(&project(row, cx, &Nothing)?)? {
                break;
            }
        }
        return Ok(());
    }
    match select.levels.as_slice() {
        [] => {
            each(&Nothing)?;
            Ok(())
        }
        [level] => access.walk(&level.table, &level.path, cx, &Nothing, &mut |row| {
            for condition in &level.filter {
                if !condition.holds(cx, &row)? {
                    return Ok(true);
                }
            }
            each(&row)
        }),
        levels => {
            let mut join = Join { levels, rows: Vec::new(), kept: levels.iter().map(|_| None).collect() };
            join.level(0, access, cx, budget, each)?;
            Ok(())
        }
    }
}

/// The rows of a table that is read once, by their join values.
struct Kept {
    rows: Vec<OwnedRow>,
    /// Columns of this level and the expressions over earlier ones that equal them.
    pairs: Vec<(Expr, Expr)>,
    by_value: JoinTable,
}

struct Join<'p> {
    levels: &'p [Level],
    /// The current row of each level; `None` is a row of NULLs.
    rows: Vec<Option<OwnedRow>>,
    kept: Vec<Option<Arc<Kept>>>,
}

/// Columns of several levels.
struct Joined<'j> {
    levels: &'j [Level],
    rows: &'j [Option<OwnedRow>],
}

impl Input for Joined<'_> {
    fn column(&self, index: usize) -> Result<Value<'_>> {
        let place = self.levels.iter().rposition(|level| level.start <= index);
        let found = place.and_then(|place| Some((self.levels.get(place)?, self.rows.get(place)?)));
        match found {
            None => Err(bug("a column of a table that was not read")),
            Some((_, None)) => Ok(Value::Null),
            Some((level, Some(row))) => Ok(row.get(index - level.start)?),
        }
    }
}

/// The pairs of a join by equal values: a column expression of the level, and one of earlier levels.
fn equal_pairs(level: &Level) -> Vec<(Expr, Expr)> {
    let width = level.schema.columns().len();
    let side = |expr: &Expr| {
        let (mut here, mut before) = (false, false);
        expr.columns(&mut |column| {
            if column < level.start { before = true } else { here |= column < level.start + width }
        });
        (here, before)
    };
    let mut pairs = Vec::new();
    for conjunct in &level.filter {
        if let Expr::Compare(Compare::Eq, left, right) = conjunct {
            match (side(left), side(right)) {
                ((true, false), (false, true)) => pairs.push(((**left).clone(), (**right).clone())),
                ((false, true), (true, false)) => pairs.push(((**right).clone(), (**left).clone())),
                _ => {}
            }
        }
    }
    pairs
}

/// The conditions that use only one relation, whose columns begin at `start`, and may be evaluated once for
/// each of its rows.
pub(crate) fn alone(filter: &[Expr], start: usize) -> impl Iterator<Item = &Expr> {
    filter.iter().filter(move |condition| {
        let mut is_alone = !condition.is_volatile() && !condition.has_inner();
        condition.columns(&mut |column| is_alone &= column >= start);
        is_alone
    })
}

/// True when a condition is false. An evaluation error rules out nothing: another condition may guard it.
pub(crate) fn rules_out(conditions: &[Expr], cx: &Context<'_>, row: &dyn Input) -> bool {
    conditions.iter().any(|condition| matches!(condition.holds(cx, row), Ok(false)))
}

/// Row numbers by join values.
#[derive(Debug, Default)]
pub(crate) struct JoinTable {
    by_value: HashMap<Vec<u8>, Vec<usize>>,
    /// Rows whose join values cannot be computed: all conditions, including the guards, are evaluated for
    /// each pair of rows.
    unknown: Vec<usize>,
}

impl JoinTable {
    /// Adds a row by the identity of its values; a row with a NULL among them joins with no row.
    pub(crate) fn add(
        &mut self,
        number: usize,
        identity: Result<Option<Vec<u8>>>,
        budget: &Budget,
    ) -> Result<()> {
        match identity {
            Ok(Some(identity)) => {
                budget.take(identity.len() + 64)?;
                self.by_value.entry(identity).or_default().push(number);
            }
            Ok(None) => {}
            Err(_) => self.unknown.push(number),
        }
        Ok(())
    }

    /// The row numbers, in order, that may join with values of this identity, including the `unknown` ones;
    /// `None` for all rows.
    pub(crate) fn numbers<'t>(
        &'t self,
        identity: Result<Option<Vec<u8>>>,
        unknown: &[usize],
    ) -> Option<Cow<'t, [usize]>> {
        let found = match identity {
            Ok(Some(identity)) => self.by_value.get(&identity).map(Vec::as_slice).unwrap_or_default(),
            Ok(None) => &[],
            Err(_) => return None,
        };
        if unknown.is_empty() {
            return Some(Cow::Borrowed(found));
        }
        let mut all = [found, unknown].concat();
        all.sort_unstable();
        Some(Cow::Owned(all))
    }

    /// The rows whose join values cannot be computed.
    pub(crate) fn unknown(&self) -> &[usize] {
        &self.unknown
    }
}

/// Bytes that are equal for values that compare as equal, across number types; `None` when one is NULL.
pub(crate) fn join_identity(values: impl Iterator<Item = Result<Record>>) -> Result<Option<Vec<u8>>> {
    let mut identity = Vec::new();
    for row in values {
        for value in row? {
            if value.is_null() {
                return Ok(None);
            }
            match crate::expr::cast::to_f64(&value) {
                // Equal numbers are equal as doubles; the condition itself distinguishes those that are equal
                // only as doubles.
                Some(float) => put_identity(&Value::Float8(float), &mut identity),
                None => put_identity(&value, &mut identity),
            }
        }
    }
    Ok(Some(identity))
}

impl Join<'_> {
    fn level(
        &mut self,
        depth: usize,
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
        each: &mut RowSink<'_>,
    ) -> Result<bool> {
        let levels = self.levels;
        let Some(level) = levels.get(depth) else {
            return each(&Joined { levels, rows: &self.rows });
        };
        let left = budget.remaining();
        let candidates = self.candidates(depth, level, access, cx, budget)?;
        let held = if self.is_kept(depth) { 0 } else { left.saturating_sub(budget.remaining()) };
        let mut matched = false;
        for row in candidates {
            cx.interrupt.check(cx.env)?;
            self.rows.push(Some(row));
            let mut holds = true;
            let input = Joined { levels, rows: &self.rows };
            for condition in &level.filter {
                holds = holds && condition.holds(cx, &input)?;
            }
            matched |= holds;
            let mut goes_on = true;
            if holds && self.passes(level, cx)? {
                goes_on = self.level(depth + 1, access, cx, budget, each)?;
            }
            self.rows.pop();
            if !goes_on {
                return Ok(false);
            }
        }
        budget.give_back(held);
        if level.is_outer && !matched {
            self.rows.push(None);
            let goes_on =
                if self.passes(level, cx)? { self.level(depth + 1, access, cx, budget, each)? } else { true };
            self.rows.pop();
            return Ok(goes_on);
        }
        Ok(true)
    }

    fn passes(&self, level: &Level, cx: &Context<'_>) -> Result<bool> {
        let input = Joined { levels: self.levels, rows: &self.rows };
        for condition in &level.after {
            if !condition.holds(cx, &input)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Rows of a level that may match the rows of the levels before.
    fn candidates(
        &mut self,
        depth: usize,
        level: &Level,
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
    ) -> Result<Vec<OwnedRow>> {
        if self.is_kept(depth) {
            return self.kept_rows(depth, level, access, cx, budget);
        }
        let mut rows = Vec::new();
        let input = Joined { levels: self.levels, rows: &self.rows };
        let mut each = |row: Row<'_>| -> Result<bool> {
            cx.interrupt.check(cx.env)?;
            budget.take(ROW_BYTES)?;
            rows.push(row.to_owned());
            Ok(true)
        };
        match level.path.ranges(cx, &input) {
            Ok(ranges) => access.walk_ranges(&level.table, &level.path, &ranges.ranges, &mut each)?,
            // A key that cannot be computed may be guarded by another condition: all of them are evaluated
            // for each row.
            Err(_) => access.walk_ranges(&level.table, &level.path, &[KeyRange::all()], &mut each)?,
        }
        Ok(rows)
    }

    /// True for a table that is read once.
    fn is_kept(&self, depth: usize) -> bool {
        depth > 0 && self.levels.get(depth).is_some_and(|level| level.path.is_whole())
    }

    fn kept_rows(
        &mut self,
        depth: usize,
        level: &Level,
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
    ) -> Result<Vec<OwnedRow>> {
        let kept = match self.kept.get(depth) {
            Some(Some(kept)) => kept.clone(),
            _ => {
                let kept = Arc::new(Self::keep(level, access, cx, budget)?);
                if let Some(slot) = self.kept.get_mut(depth) {
                    *slot = Some(kept.clone());
                }
                kept
            }
        };
        if kept.pairs.is_empty() {
            return Ok(kept.rows.clone());
        }
        let input = Joined { levels: self.levels, rows: &self.rows };
        let wanted = kept.pairs.iter().map(|(_, before)| project(std::slice::from_ref(before), cx, &input));
        Ok(match kept.by_value.numbers(join_identity(wanted), kept.by_value.unknown()) {
            Some(numbers) => numbers.iter().filter_map(|number| kept.rows.get(*number).cloned()).collect(),
            None => kept.rows.clone(),
        })
    }

    fn keep(level: &Level, access: &mut Access<'_>, cx: &Context<'_>, budget: &Budget) -> Result<Kept> {
        let shift = |expr: &Expr| expr.clone().renumber(&|column| column - level.start);
        let pairs = equal_pairs(level);
        let here: Vec<Expr> = pairs.iter().map(|(here, _)| shift(here)).collect();
        let alone: Vec<Expr> = alone(&level.filter, level.start).map(shift).collect();
        let mut kept = Kept { rows: Vec::new(), pairs, by_value: JoinTable::default() };
        access.walk(&level.table, &level.path, cx, &Nothing, &mut |row| {
            if rules_out(&alone, cx, &row) {
                return Ok(true);
            }
            let identity = join_identity(std::iter::once(project(&here, cx, &row)));
            budget.take(ROW_BYTES)?;
            kept.by_value.add(kept.rows.len(), identity, budget)?;
            kept.rows.push(row.to_owned());
            Ok(true)
        })?;
        Ok(kept)
    }
}

/// Bytes counted for a held row in addition to its values when it is sorted or returned.
const ROW_BYTES: usize = 256;
