//! GROUP BY and aggregates. The engine computes aggregates that it adds up exactly as PostgreSQL does; all
//! others run through `crate::functions::aggregate`, value by value.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{Array as _, ArrayRef, UInt64Array};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result as DfResult, ScalarValue};
use datafusion::functions_aggregate::bool_and_or::{bool_and_udaf, bool_or_udaf};
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, Aggregate as Aggregated, AggregateUDF, AggregateUDFImpl, Expr as Df, GroupingSet,
    LogicalPlan, LogicalPlanBuilder, Signature, Volatility, cast, lit,
};
use parking_lot::Mutex;
use ropewalk::tables::{Type, Value};

use crate::error::{Result, SqlError, state};
use crate::exec::analytic::build::select::bare;
use crate::exec::analytic::build::translate::{Col, comparable};
use crate::exec::analytic::built;
use crate::exec::analytic::kernel::checked_sum::{SAFE_DIGITS, checked_sum};
use crate::exec::analytic::kernel::convert::{Reader, compares, data_type, literal};
use crate::exec::analytic::kernel::scalar::{Around, RowOf, through};
use crate::exec::analytic::rules::computed_first::has_guards;
use crate::expr::arith::Arith;
use crate::expr::{Expr, bug};
use crate::functions::aggregate::{Aggregate, Kind, Running};
use crate::limits::budget::Budget;
use crate::plan::Planner;
use crate::types::names::{is_integer, is_numeric};

/// The keys of GROUP BY.
#[derive(Debug, Default)]
pub(in crate::exec::analytic) struct Keys {
    pub(in crate::exec::analytic) exprs: Vec<(Expr, Type)>,
    /// GROUPING SETS, ROLLUP, CUBE: the keys of each set.
    pub(in crate::exec::analytic) sets: Option<Vec<Vec<usize>>>,
}

impl Keys {
    /// The positions of the keys that are arguments of GROUPING.
    fn places(&self, arguments: &[Expr]) -> Result<Vec<usize>> {
        let place = |argument: &Expr| {
            self.exprs.iter().position(|(known, _)| known == argument).ok_or_else(|| {
                let message =
                    "arguments to GROUPING must be grouping expressions of the associated query level";
                SqlError::new(state::GROUPING_ERROR, message)
            })
        };
        arguments.iter().map(place).collect()
    }

    /// Returns the number of a key; adds the key if it is new.
    pub(in crate::exec::analytic) fn add(&mut self, (expr, ty): (Expr, Type)) -> usize {
        match self.exprs.iter().position(|(known, _)| *known == expr) {
            Some(number) => number,
            None => {
                self.exprs.push((expr, ty));
                self.exprs.len() - 1
            }
        }
    }
}

/// The bit of each key in the engine's number of a grouping set; it is set where the set lacks the key. Keys
/// are in the order in which the sets first name them, the first one highest.
fn bits(sets: &[Vec<usize>]) -> Vec<(usize, usize)> {
    let mut order: Vec<usize> = Vec::new();
    for place in sets.iter().flatten() {
        if !order.contains(place) {
            order.push(*place);
        }
    }
    let count = order.len();
    order.into_iter().enumerate().map(|(at, place)| (place, count - 1 - at)).collect()
}

/// PostgreSQL's number: a bit for each argument, the last one lowest.
fn mask(column: usize, places: &[usize], bits: &[(usize, usize)]) -> Expr {
    let whole = |number: usize| Expr::Const(Value::Int8(i64::try_from(number).unwrap_or_default()));
    let op = |op, left, right| Expr::Arith(op, Type::INT8, Box::new(left), Box::new(right));
    let mut sum = whole(0);
    for (number, place) in places.iter().enumerate() {
        // A key that occurs in no set is missing in all of them.
        let bit = match bits.iter().find(|(known, _)| known == place) {
            Some((_, bit)) => {
                let shifted = op(
                    Arith::ShiftRight,
                    Expr::Column(column),
                    Expr::Const(Value::Int4(i32::try_from(*bit).unwrap_or_default())),
                );
                op(Arith::BitAnd, shifted, whole(1))
            }
            None => whole(1),
        };
        sum = op(Arith::Add, sum, op(Arith::Mul, bit, whole(1 << (places.len() - 1 - number))));
    }
    Expr::Cast(Box::new(sum), Type::INT4)
}

/// An aggregate in the form that the engine computes.
pub(in crate::exec::analytic) struct Computed {
    pub(in crate::exec::analytic) function: Arc<AggregateUDF>,
    pub(in crate::exec::analytic) arguments: Vec<Df>,
    pub(in crate::exec::analytic) form: DataType,
    pub(in crate::exec::analytic) ty: Type,
    pub(in crate::exec::analytic) distinct: bool,
    pub(in crate::exec::analytic) filter: Option<Df>,
}

impl Computed {
    fn expr(self) -> Df {
        let Self { function, arguments, distinct, filter, .. } = self;
        Df::AggregateFunction(AggregateFunction::new_udf(
            function,
            arguments,
            distinct,
            filter.map(Box::new),
            Vec::new(),
            None,
        ))
    }
}

/// The input and the output of the engine's aggregation while they are planned.
#[derive(Default)]
struct Groups {
    /// The keys.
    exprs: Vec<Df>,
    /// The parts of the aggregates.
    computed: Vec<Df>,
    /// The columns of the output: keys, then parts of aggregates.
    cols: Vec<Col>,
    /// The number of keys among them.
    keys: usize,
    /// Where the rendered value differs from the compared one: any of the equal values, by key.
    shown: Vec<(usize, Col)>,
    /// The aggregates, over the columns.
    results: Vec<(Expr, Type)>,
    /// The results that are GROUPING, with the keys that are its arguments.
    groupings: Vec<(usize, Vec<usize>)>,
}

impl Groups {
    /// True when the columns are the keys and the aggregates.
    fn is_final(&self) -> bool {
        let is_part = |(number, (expr, _)): (usize, &(Expr, Type))| *expr == Expr::Column(self.keys + number);
        self.shown.is_empty() && self.results.iter().enumerate().all(is_part)
    }
}

impl Planner<'_> {
    /// Groups rows: returns the keys, then the aggregates, as columns.
    pub(in crate::exec::analytic) fn grouped(
        &mut self,
        plan: LogicalPlan,
        cols: Vec<Col>,
        mut keys: Keys,
        mut aggregates: Vec<Aggregate>,
    ) -> Result<(LogicalPlan, Vec<Col>)> {
        let (plan, cols) = self.compute_arguments(plan, cols, &mut keys, &mut aggregates)?;
        let mut groups = Groups::default();
        self.add_keys(&mut groups, &keys, &cols)?;
        self.add_aggregates(&mut groups, &aggregates, &keys, &cols)?;
        let group_exprs = match &keys.sets {
            None => std::mem::take(&mut groups.exprs),
            Some(sets) => {
                let set =
                    |set: &Vec<usize>| set.iter().filter_map(|at| groups.exprs.get(*at).cloned()).collect();
                vec![Df::GroupingSet(GroupingSet::GroupingSets(sets.iter().map(set).collect()))]
            }
        };
        if group_exprs.is_empty() && groups.computed.is_empty() {
            // GROUP BY () without aggregates: one row.
            groups.computed.push(count_udaf().call(vec![lit(1_i64)]).alias(self.whole()?.fresh('c')));
        }
        let plan = if self.whole()?.single { one_partition(plan)? } else { plan };
        let computed = std::mem::take(&mut groups.computed);
        let builder = LogicalPlanBuilder::from(plan).aggregate(group_exprs, computed);
        let mut plan = built(builder.and_then(|builder| builder.build()))?;
        if let Some(sets) = keys.sets.as_ref().filter(|_| !groups.groupings.is_empty()) {
            plan = self.number_sets(plan, &mut groups, sets)?;
        }
        if groups.is_final() {
            return Ok((plan, groups.cols));
        }
        self.combine_parts(plan, &groups, keys.sets.is_some())
    }

    /// Computes as columns the parts of keys and arguments that the engine must not compute itself.
    fn compute_arguments(
        &mut self,
        plan: LogicalPlan,
        cols: Vec<Col>,
        keys: &mut Keys,
        aggregates: &mut [Aggregate],
    ) -> Result<(LogicalPlan, Vec<Col>)> {
        let written = keys.exprs.clone();
        let mut exprs: Vec<(&mut Expr, Type)> = keys.exprs.iter_mut().map(|(expr, ty)| (expr, *ty)).collect();
        for aggregate in aggregates.iter_mut().filter(|aggregate| aggregate.kind != Kind::Grouping) {
            aggregate.take_filter_along();
            exprs.extend(aggregate.parts_mut());
        }
        let computed = self.computed_first(plan, cols, exprs, has_guards)?;
        // GROUPING refers to its keys as they were written.
        for aggregate in aggregates.iter_mut().filter(|aggregate| aggregate.kind == Kind::Grouping) {
            for argument in &mut aggregate.arguments {
                let at = written.iter().position(|(known, _)| known == argument);
                if let Some((key, _)) = at.and_then(|at| keys.exprs.get(at)) {
                    argument.clone_from(key);
                }
            }
        }
        Ok(computed)
    }

    /// Translates the keys. A key that the engine cannot compare is grouped by a comparable form.
    fn add_keys(&mut self, groups: &mut Groups, keys: &Keys, cols: &[Col]) -> Result<()> {
        for (place, (expr, ty)) in keys.exprs.iter().enumerate() {
            let (key, form, ty) = self.translated(expr, *ty, cols)?;
            if compares(&form) {
                let column = match (&key, expr) {
                    // A plain column keeps its name, since subqueries may refer to it.
                    (Df::Column(column), Expr::Column(_)) if !groups.exprs.contains(&key) => column.clone(),
                    _ => bare(self.whole()?.fresh('c')),
                };
                let plain = matches!(&key, Df::Column(known) if *known == column);
                groups.exprs.push(if plain { key } else { key.alias(&column.name) });
                groups.cols.push(Col { column, form, ty });
            } else {
                let column = bare(self.whole()?.fresh('c'));
                groups.exprs.push(comparable(key.clone(), &form, ty).alias(&column.name));
                groups.cols.push(Col { column, form: DataType::Binary, ty });
                let value = bare(self.whole()?.fresh('c'));
                let least = Computed {
                    function: min_udaf(),
                    arguments: vec![key],
                    form: form.clone(),
                    ty,
                    distinct: false,
                    filter: None,
                };
                groups.computed.push(least.expr().alias(&value.name));
                groups.shown.push((place, Col { column: value, form, ty }));
            }
        }
        groups.keys = groups.cols.len();
        Ok(())
    }

    fn add_aggregates(
        &mut self,
        groups: &mut Groups,
        aggregates: &[Aggregate],
        keys: &Keys,
        cols: &[Col],
    ) -> Result<()> {
        for aggregate in aggregates {
            if aggregate.kind == Kind::Grouping {
                groups.groupings.push((groups.results.len(), keys.places(&aggregate.arguments)?));
                groups.results.push((Expr::Const(Value::Int4(0)), Type::INT4));
                continue;
            }
            let (parts, result) = self.computed(aggregate, cols, groups.cols.len())?;
            for part in parts {
                let column = bare(self.whole()?.fresh('c'));
                groups.cols.push(Col { column: column.clone(), form: part.form.clone(), ty: part.ty });
                groups.computed.push(part.expr().alias(&column.name));
            }
            groups.results.push((result, aggregate.ty));
        }
        Ok(())
    }

    /// Adds the engine's number of the grouping set as a column, from which GROUPING is computed.
    fn number_sets(
        &mut self,
        plan: LogicalPlan,
        groups: &mut Groups,
        sets: &[Vec<usize>],
    ) -> Result<LogicalPlan> {
        let column = bare(self.whole()?.fresh('c'));
        let id = Df::Column(bare(Aggregated::INTERNAL_GROUPING_ID.to_owned()));
        let shown = groups.cols.iter().map(Col::expr);
        let shown = shown.chain([cast(id, DataType::Int64).alias(&column.name)]);
        let plan = built(LogicalPlanBuilder::from(plan).project(shown).and_then(|builder| builder.build()))?;
        let bits = bits(sets);
        for (number, places) in &groups.groupings {
            if let Some((result, _)) = groups.results.get_mut(*number) {
                *result = mask(groups.cols.len(), places, &bits);
            }
        }
        groups.cols.push(Col { column, form: DataType::Int64, ty: Type::INT8 });
        Ok(plan)
    }

    /// Combines aggregates of several parts, and replaces comparable forms of keys by values. Other keys keep
    /// their names.
    fn combine_parts(
        &mut self,
        plan: LogicalPlan,
        groups: &Groups,
        has_sets: bool,
    ) -> Result<(LogicalPlan, Vec<Col>)> {
        let mut exprs: Vec<Df> = Vec::new();
        let mut answered = Vec::new();
        for (place, col) in groups.cols.iter().take(groups.keys).enumerate() {
            let Some((_, value)) = groups.shown.iter().find(|(at, _)| *at == place) else {
                exprs.push(col.expr());
                answered.push(col.clone());
                continue;
            };
            let expr = if has_sets {
                let null = Df::Literal(literal(&Value::Null, &value.form)?, None);
                let mut case = datafusion::logical_expr::when(col.expr().is_null(), null);
                built(case.otherwise(value.expr()))?
            } else {
                value.expr()
            };
            let column = bare(self.whole()?.fresh('c'));
            exprs.push(expr.alias(&column.name));
            answered.push(Col { column, ..value.clone() });
        }
        for (expr, ty) in &groups.results {
            let (expr, form, ty) = self.translated(expr, *ty, &groups.cols)?;
            let column = bare(self.whole()?.fresh('c'));
            exprs.push(expr.alias(&column.name));
            answered.push(Col { column, form, ty });
        }
        let plan = built(LogicalPlanBuilder::from(plan).project(exprs).and_then(|builder| builder.build()))?;
        Ok((plan, answered))
    }

    /// The parts from which an aggregate is computed, as columns from `start` on, and the expression over
    /// them.
    pub(in crate::exec::analytic) fn computed(
        &mut self,
        aggregate: &Aggregate,
        cols: &[Col],
        start: usize,
    ) -> Result<(Vec<Computed>, Expr)> {
        let filter = match &aggregate.filter {
            None => None,
            Some(filter) => Some(self.whole()?.translator(cols).condition(filter)?),
        };
        let plain = |function, arguments, form, ty| Computed {
            function,
            arguments,
            form,
            ty,
            distinct: aggregate.distinct,
            filter: filter.clone(),
        };
        let whole = |computed| Ok((vec![computed], Expr::Column(start)));
        let argument = aggregate.arguments.first();
        if aggregate.kind == Kind::Count {
            let argument = match argument {
                None => lit(1_i64),
                Some(expr) => {
                    let ty = aggregate.types.first().copied().unwrap_or(Type::TEXT);
                    let (expr, form, ty) = self.translated(expr, ty, cols)?;
                    if aggregate.distinct { comparable(expr, &form, ty) } else { expr }
                }
            };
            return whole(plain(count_udaf(), vec![argument], DataType::Int64, Type::INT8));
        }
        let Some(argument) = argument else { return Err(bug("an aggregate without an argument")) };
        let ty = aggregate.types.first().copied().unwrap_or(Type::TEXT);
        {
            let (expr, form, ty) = self.translated(argument, ty, cols)?;
            match aggregate.kind {
                Kind::Sum | Kind::Avg
                    if is_integer(ty)
                        || matches!(form, DataType::Decimal128(..))
                            && !(is_wide(&form) && aggregate.distinct) =>
                {
                    let exact = aggregate.kind == Kind::Avg || ty == Type::INT8 || is_numeric(ty);
                    let argument = match (exact, &form) {
                        (false, _) => cast(expr, DataType::Int64),
                        (true, DataType::Decimal128(..)) => expr,
                        (true, _) => cast(expr, DataType::Decimal128(19, 0)),
                    };
                    let scale = if let DataType::Decimal128(_, scale) = form { scale } else { 0 };
                    let precision =
                        if let DataType::Decimal128(precision, _) = form { precision } else { 19 };
                    let (form, ty) = if exact {
                        (DataType::Decimal128((precision + 10).min(38), scale), Type::NUMERIC)
                    } else {
                        (DataType::Int64, Type::INT8)
                    };
                    let function = if precision > SAFE_DIGITS { checked_sum() } else { sum_udaf() };
                    let sum = plain(function, vec![argument.clone()], form, ty);
                    if aggregate.kind == Kind::Sum {
                        return whole(sum);
                    }
                    let count = plain(count_udaf(), vec![argument], DataType::Int64, Type::INT8);
                    let divisor = Expr::Cast(Box::new(Expr::Column(start + 1)), Type::NUMERIC);
                    let average = Expr::Arith(
                        Arith::Div,
                        Type::NUMERIC,
                        Box::new(Expr::Column(start)),
                        Box::new(divisor),
                    );
                    return Ok((vec![sum, count], average));
                }
                Kind::Min | Kind::Max if compares(&form) => {
                    let function = if aggregate.kind == Kind::Min { min_udaf() } else { max_udaf() };
                    return whole(plain(function, vec![expr], form, ty));
                }
                Kind::BoolAnd => {
                    return whole(plain(bool_and_udaf(), vec![expr], DataType::Boolean, Type::BOOL));
                }
                Kind::BoolOr => {
                    return whole(plain(bool_or_udaf(), vec![expr], DataType::Boolean, Type::BOOL));
                }
                _ => {}
            }
        }
        let mut arguments = Vec::new();
        let mut types = Vec::new();
        for (expr, ty) in aggregate.arguments.iter().zip(&aggregate.types) {
            let (expr, _, ty) = self.translated(expr, *ty, cols)?;
            types.push(ty);
            arguments.push(expr);
        }
        let own = arguments.len();
        // The ORDER BY values follow the arguments.
        let mut order = aggregate.order.clone();
        for key in &mut order {
            let (expr, _, ty) = self.translated(&key.expr, key.ty, cols)?;
            key.expr = Expr::Column(arguments.len());
            types.push(ty);
            arguments.push(expr);
        }
        let whole_plan = self.whole()?;
        whole_plan.single = true;
        let inner = Aggregate {
            arguments: (0..own).map(Expr::Column).collect(),
            filter: None,
            order,
            ..aggregate.clone()
        };
        let form = data_type(aggregate.ty);
        let function = RowAggregate::function(inner, types, form.clone(), whole_plan.around.clone());
        whole(Computed { distinct: false, ..plain(function, arguments, form, aggregate.ty) })
    }
}

impl Aggregate {
    /// Evaluates arguments that may fail only where the FILTER is true.
    pub(in crate::exec::analytic) fn take_filter_along(&mut self) {
        let Some(filter) = &self.filter else { return };
        for argument in self.arguments.iter_mut().filter(|argument| argument.may_fail()) {
            let taken = std::mem::replace(argument, Expr::Const(Value::Null));
            *argument = Expr::Case(vec![(filter.clone(), taken)], None);
        }
    }

    /// Its arguments, its filter and its order, with their types.
    pub(in crate::exec::analytic) fn parts_mut(&mut self) -> impl Iterator<Item = (&mut Expr, Type)> {
        let arguments = self.arguments.iter_mut().zip(self.types.iter().copied());
        let filter = self.filter.iter_mut().map(|filter| (filter, Type::BOOL));
        arguments.chain(filter).chain(self.order.iter_mut().map(|order| (&mut order.expr, order.ty)))
    }
}

/// True for decimals whose sum may have more digits than the type allows.
fn is_wide(form: &DataType) -> bool {
    matches!(form, DataType::Decimal128(precision, _) if *precision > SAFE_DIGITS)
}

/// The plan, with its rows in one partition, because our aggregates have no partial states. A union has a
/// partition for each side; only a limit, here one that is never reached, makes the engine merge them. It is
/// directly above the union: a sort below it would reserve memory for that many rows.
fn one_partition(plan: LogicalPlan) -> Result<LogicalPlan> {
    let limited = plan.transform_up(|part| match part {
        LogicalPlan::Union(_) => {
            let builder = LogicalPlanBuilder::from(part).limit(0, Some(i64::MAX as usize))?;
            builder.build().map(Transformed::yes)
        }
        other => Ok(Transformed::no(other)),
    });
    built(limited.map(|limited| limited.data))
}

/// One of our aggregates as an aggregate of the engine.
#[derive(Debug)]
struct RowAggregate {
    name: String,
    identity: String,
    aggregate: Aggregate,
    types: Vec<Type>,
    form: DataType,
    around: Around,
    signature: Signature,
    parts: Parts,
}

/// States of groups between two steps of the engine, with their bytes.
///
/// Grouping sets are computed in two steps, and each step sees all rows of a group. The states stay here;
/// only their numbers are passed on.
type Parts = Arc<Mutex<Vec<Option<(Running, usize)>>>>;

impl PartialEq for RowAggregate {
    fn eq(&self, other: &Self) -> bool {
        self.identity == other.identity
    }
}

impl Eq for RowAggregate {}

impl Hash for RowAggregate {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity.hash(state);
    }
}

impl RowAggregate {
    fn function(aggregate: Aggregate, types: Vec<Type>, form: DataType, around: Around) -> Arc<AggregateUDF> {
        let identity = format!("{aggregate:?} {types:?} {form}");
        let mut hasher = std::hash::DefaultHasher::new();
        identity.hash(&mut hasher);
        let name = format!("aggregate_{:016x}", hasher.finish());
        let signature = Signature::any(types.len(), Volatility::Immutable);
        Arc::new(AggregateUDF::new_from_impl(Self {
            name,
            identity,
            aggregate,
            types,
            form,
            around,
            signature,
            parts: Parts::default(),
        }))
    }
}

impl AggregateUDFImpl for RowAggregate {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(self.form.clone())
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> DfResult<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(args.name, DataType::UInt64, true))])
    }

    fn accumulator(&self, _: AccumulatorArgs<'_>) -> DfResult<Box<dyn Accumulator>> {
        Ok(Box::new(RowAccumulator {
            running: self.aggregate.start(),
            aggregate: self.aggregate.clone(),
            types: self.types.clone(),
            form: self.form.clone(),
            around: self.around.clone(),
            bytes: 0,
            parts: self.parts.clone(),
            has_part: false,
        }))
    }
}

#[derive(Debug)]
struct RowAccumulator {
    aggregate: Aggregate,
    running: Running,
    types: Vec<Type>,
    form: DataType,
    around: Around,
    /// Bytes that its state holds.
    bytes: usize,
    parts: Parts,
    has_part: bool,
}

impl RowAccumulator {
    fn take(&mut self, arrays: &[ArrayRef]) -> Result<()> {
        let readers: Result<Vec<Reader<'_>>> =
            arrays.iter().zip(&self.types).map(|(array, ty)| Reader::new(array.as_ref(), *ty)).collect();
        let readers = readers?;
        let rows = arrays.first().map_or(0, |array| array.len());
        // The engine queries the size; the limit is enforced elsewhere.
        let budget = Budget::new(usize::MAX);
        let interrupt = self.around.interrupt();
        let cx = self.around.context(&interrupt);
        for row in 0..rows {
            interrupt.check(cx.env)?;
            self.aggregate.take(&mut self.running, &cx, &RowOf { columns: &readers, row }, &budget)?;
        }
        self.bytes += usize::MAX - budget.remaining();
        Ok(())
    }
}

impl Accumulator for RowAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        self.take(values).map_err(through)
    }

    fn evaluate(&mut self) -> DfResult<ScalarValue> {
        let value = self.aggregate.finish(self.running.clone()).map_err(through)?;
        literal(&value, &self.form).map_err(through)
    }

    fn size(&self) -> usize {
        std::mem::size_of_val(self) + self.bytes
    }

    fn state(&mut self) -> DfResult<Vec<ScalarValue>> {
        let running = std::mem::replace(&mut self.running, self.aggregate.start());
        let mut parts = self.parts.lock();
        let number = parts.len() as u64;
        parts.push(Some((running, std::mem::take(&mut self.bytes))));
        Ok(vec![ScalarValue::UInt64(Some(number))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DfResult<()> {
        let numbers = states.first().and_then(|states| states.as_any().downcast_ref::<UInt64Array>());
        let numbers = numbers.ok_or_else(|| through(bug("states of an aggregate are numbers")))?;
        for number in numbers.iter().flatten() {
            let place = usize::try_from(number).unwrap_or(usize::MAX);
            let part = self.parts.lock().get_mut(place).and_then(Option::take);
            let (running, bytes) = part.ok_or_else(|| through(bug("a state that was never given")))?;
            if std::mem::replace(&mut self.has_part, true) {
                // A step that runs out of memory emits a group before it has read all of its rows.
                let message = "the groups of GROUPING SETS do not fit in the memory of the statement";
                return Err(through(SqlError::new(state::OUT_OF_MEMORY, message)));
            }
            self.running = running;
            self.bytes += bytes;
        }
        Ok(())
    }
}
