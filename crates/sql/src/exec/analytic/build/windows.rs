//! Window functions: bound into a separate list like aggregates, computed over the rows after WHERE and GROUP
//! BY.

use datafusion::common::ScalarValue;
use datafusion::functions_window as engine;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{
    Expr as Df, ExprFunctionExt, LogicalPlan, LogicalPlanBuilder, WindowFrame, WindowFrameBound,
    WindowFrameUnits, WindowFunctionDefinition, cast,
};
use ropewalk::tables::{Type, Value};
use sqlparser::ast;

use crate::error::{Result, SqlError, state};
use crate::exec::analytic::build::select::{bare, sort_key};
use crate::exec::analytic::build::translate::Col;
use crate::exec::analytic::built;
use crate::exec::analytic::kernel::convert::{data_type, literal};
use crate::exec::executor::unsupported;
use crate::expr::cast::Strength;
use crate::expr::{Expr, Order, bug};
use crate::functions::aggregate::{self, Aggregate};
use crate::plan::Planner;
use crate::plan::bind::aggregate::OF_AGGREGATE;
use crate::plan::bind::{Binder, Typed};
use crate::syntax::names::folded;
use crate::types::names::{common, unmodified};

/// The clause name for arguments of a window function.
const OF_WINDOW: &str = "a window function";

/// The function that a window evaluates.
#[derive(Debug, Clone, PartialEq)]
enum Computes {
    /// A function of the engine, by PostgreSQL's name.
    Named(String, Vec<(Expr, Type)>),
    Aggregate(Aggregate),
}

/// A call with OVER.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Window {
    computes: Computes,
    partition: Vec<(Expr, Type)>,
    order: Vec<Order>,
    frame: Option<ast::WindowFrame>,
    ty: Type,
}

impl Window {
    /// True when its rows come out in their input order.
    pub(in crate::exec::analytic) fn keeps_order(&self) -> bool {
        self.partition.is_empty() && self.order.is_empty()
    }

    /// Makes a window without ORDER BY read its rows in their input order, where its result depends on that.
    pub(in crate::exec::analytic) fn follow(&mut self, order: &[Order]) {
        let depends_on_frame = match &self.computes {
            Computes::Named(name, _) => match name.as_str() {
                "row_number" | "lag" | "lead" | "ntile" => false,
                "first_value" | "last_value" | "nth_value" => true,
                _ => return,
            },
            Computes::Aggregate(aggregate) if aggregate.kind.minds_order() || self.frame.is_some() => true,
            Computes::Aggregate(_) => return,
        };
        // Without ORDER BY all rows are peers: an added order would change every frame except ROWS frames.
        let is_of_rows = |frame: &ast::WindowFrame| frame.units == ast::WindowFrameUnits::Rows;
        let may_follow = !depends_on_frame || self.frame.as_ref().is_none_or(is_of_rows);
        if order.is_empty() || !self.order.is_empty() || !may_follow {
            return;
        }
        if depends_on_frame && self.frame.is_none() {
            self.frame = Some(ast::WindowFrame {
                units: ast::WindowFrameUnits::Rows,
                start_bound: ast::WindowFrameBound::Preceding(None),
                end_bound: Some(ast::WindowFrameBound::Following(None)),
            });
        }
        self.order = order.to_vec();
    }

    /// Like [`Aggregate::take_filter_along`].
    pub(in crate::exec::analytic) fn take_filter_along(&mut self) {
        if let Computes::Aggregate(aggregate) = &mut self.computes {
            aggregate.take_filter_along();
        }
    }

    /// Its expressions, with their types.
    pub(in crate::exec::analytic) fn parts_mut(&mut self) -> Vec<(&mut Expr, Type)> {
        let mut parts: Vec<(&mut Expr, Type)> = match &mut self.computes {
            Computes::Named(_, arguments) => arguments.iter_mut().map(|(expr, ty)| (expr, *ty)).collect(),
            Computes::Aggregate(aggregate) => aggregate.parts_mut().collect(),
        };
        parts.extend(self.partition.iter_mut().map(|(expr, ty)| (expr, *ty)));
        parts.extend(self.order.iter_mut().map(|order| (&mut order.expr, order.ty)));
        parts
    }

    /// Applies `change` to each of its expressions.
    pub(in crate::exec::analytic) fn rewrite(&mut self, change: &dyn Fn(Expr) -> Result<Expr>) -> Result<()> {
        let each = |expr: &mut Expr| -> Result<()> {
            *expr = change(expr.clone())?;
            Ok(())
        };
        match &mut self.computes {
            Computes::Named(_, arguments) => arguments.iter_mut().try_for_each(|(expr, _)| each(expr))?,
            Computes::Aggregate(aggregate) => {
                aggregate.arguments.iter_mut().try_for_each(each)?;
                aggregate.filter.iter_mut().try_for_each(each)?;
            }
        }
        self.partition.iter_mut().try_for_each(|(expr, _)| each(expr))?;
        self.order.iter_mut().try_for_each(|order| each(&mut order.expr))
    }
}

impl Binder<'_, '_> {
    /// Binds with window functions rejected.
    pub(crate) fn without_windows<R>(&mut self, bind: impl FnOnce(&mut Self) -> R) -> R {
        let windows = self.planner.engine_mut().map(|whole| whole.windows.take());
        let bound = bind(self);
        if let (Some(whole), Some(windows)) = (self.planner.engine_mut(), windows) {
            whole.windows = windows;
        }
        bound
    }

    /// Binds a call with OVER.
    pub(crate) fn window(
        &mut self,
        name: &str,
        function: &ast::Function,
        over: &ast::WindowType,
    ) -> Result<Typed> {
        let allowed = self.planner.engine().map(|whole| whole.windows.is_some());
        match allowed {
            None => return Err(unsupported("a window function")),
            Some(false) => {
                let (code, message) = match self.clause {
                    OF_WINDOW => (state::WINDOWING_ERROR, "window function calls cannot be nested".into()),
                    OF_AGGREGATE => (
                        state::GROUPING_ERROR,
                        "aggregate function calls cannot contain window function calls".into(),
                    ),
                    clause => {
                        (state::WINDOWING_ERROR, format!("window functions are not allowed in {clause}"))
                    }
                };
                return Err(SqlError::new(code, message));
            }
            Some(true) => {}
        }
        // A call cannot contain another one.
        let clause = self.clause;
        let bound = self.without_windows(|binder| binder.window_parts(name, function, over));
        self.clause = clause;
        let window = bound?;
        let ty = window.ty;
        let windows = self.planner.whole()?.windows.get_or_insert_default();
        let number = windows.iter().position(|known| *known == window).unwrap_or_else(|| {
            windows.push(window);
            windows.len() - 1
        });
        Ok(Typed::new(Expr::Window(number), ty))
    }

    fn window_parts(
        &mut self,
        name: &str,
        function: &ast::Function,
        over: &ast::WindowType,
    ) -> Result<Window> {
        self.clause = "window definitions";
        let spec = self.spec(over, 0)?;
        if spec.window_name.is_some() {
            return Err(unsupported("a window that extends another"));
        }
        let mut partition = Vec::new();
        for expr in &spec.partition_by {
            partition.push(self.bind_closed(expr)?);
        }
        let mut order = Vec::new();
        for item in &spec.order_by {
            order.push(self.order_item(item)?);
        }
        self.clause = OF_WINDOW;
        let no_list =
            ast::FunctionArgumentList { duplicate_treatment: None, args: Vec::new(), clauses: Vec::new() };
        let list = match &function.args {
            ast::FunctionArguments::None => &no_list,
            ast::FunctionArguments::List(list) => list,
            ast::FunctionArguments::Subquery(_) => return Err(unsupported(format!("the call {function}"))),
        };
        let (computes, ty) = if aggregate::is_aggregate(name) && name != "grouping" {
            if list.duplicate_treatment.is_some() {
                return Err(unsupported("DISTINCT in a window function"));
            }
            let aggregate = self.aggregate_parts(name, list, function.filter.as_deref(), &[])?;
            if !aggregate.order.is_empty() {
                return Err(unsupported("ORDER BY in the arguments of a window function"));
            }
            let ty = aggregate.ty;
            (Computes::Aggregate(aggregate), ty)
        } else {
            if function.filter.is_some() || list.duplicate_treatment.is_some() || !list.clauses.is_empty() {
                return Err(unsupported(format!("the call {function}")));
            }
            let mut arguments = Vec::new();
            for argument in &list.args {
                match argument {
                    ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => {
                        arguments.push(self.bind_closed(expr)?);
                    }
                    other => return Err(unsupported(format!("the argument {other}"))),
                }
            }
            if let ("lag" | "lead", [(value, ty), _, (default, found)]) = (name, arguments.as_mut_slice()) {
                // A literal in quotes was given the type text.
                let (default_ty, together) = match (&default, *found) {
                    (Expr::Const(Value::Text(_)), Type::TEXT) => (None, unmodified(*ty)),
                    (_, found) => (Some(found), common(*ty, found).unwrap_or(*ty)),
                };
                *value = self.settle(Typed::new(value.clone(), *ty), together, Strength::Implicit)?;
                let default_of = Typed { expr: default.clone(), ty: default_ty };
                *default = self.settle(default_of, together, Strength::Implicit)?;
                (*ty, *found) = (together, together);
            }
            let first = arguments.first().map(|(_, ty)| *ty);
            let ty = match (name, arguments.len()) {
                ("row_number" | "rank" | "dense_rank", 0) => Type::INT8,
                ("percent_rank" | "cume_dist", 0) => Type::FLOAT8,
                ("ntile", 1) => Type::INT4,
                ("lag" | "lead", 1..=3) | ("first_value" | "last_value", 1) | ("nth_value", 2) => {
                    first.unwrap_or(Type::TEXT)
                }
                _ => {
                    let message = format!("function {name} with OVER does not exist");
                    return Err(SqlError::new(state::UNDEFINED_FUNCTION, message));
                }
            };
            (Computes::Named(name.to_owned(), arguments), ty)
        };
        Ok(Window { computes, partition, order, frame: spec.window_frame, ty })
    }

    fn spec(&mut self, over: &ast::WindowType, depth: usize) -> Result<ast::WindowSpec> {
        let name = match over {
            ast::WindowType::WindowSpec(spec) => return Ok(spec.clone()),
            ast::WindowType::NamedWindow(name) => folded(name),
        };
        let found = self.planner.whole()?.window_names.iter().find(|named| folded(&named.0) == name).cloned();
        let found = found.filter(|_| depth < 8).ok_or_else(|| {
            SqlError::new(state::UNDEFINED_OBJECT, format!("window \"{name}\" does not exist"))
        })?;
        match found.1 {
            ast::NamedWindowExpr::WindowSpec(spec) => Ok(spec),
            ast::NamedWindowExpr::NamedWindow(other) => {
                self.spec(&ast::WindowType::NamedWindow(other), depth + 1)
            }
        }
    }
}

fn bound(bound: &ast::WindowFrameBound) -> Result<WindowFrameBound> {
    let count = |expr: &ast::Expr| match expr {
        ast::Expr::Value(value) => match &value.value {
            ast::Value::Number(digits, false) => digits.parse::<u64>().ok(),
            _ => None,
        },
        _ => None,
    };
    let counted = |expr: &Option<Box<ast::Expr>>| -> Result<ScalarValue> {
        match expr {
            None => Ok(ScalarValue::UInt64(None)),
            Some(expr) => match count(expr) {
                Some(rows) => Ok(ScalarValue::UInt64(Some(rows))),
                None => Err(unsupported(format!("the frame bound {expr}"))),
            },
        }
    };
    Ok(match bound {
        ast::WindowFrameBound::CurrentRow => WindowFrameBound::CurrentRow,
        ast::WindowFrameBound::Preceding(rows) => WindowFrameBound::Preceding(counted(rows)?),
        ast::WindowFrameBound::Following(rows) => WindowFrameBound::Following(counted(rows)?),
    })
}

fn frame_of(given: Option<&ast::WindowFrame>, is_ordered: bool) -> Result<WindowFrame> {
    let Some(given) = given else { return Ok(WindowFrame::new(is_ordered.then_some(false))) };
    let units = match given.units {
        ast::WindowFrameUnits::Rows => WindowFrameUnits::Rows,
        ast::WindowFrameUnits::Range => WindowFrameUnits::Range,
        ast::WindowFrameUnits::Groups => WindowFrameUnits::Groups,
    };
    let start = bound(&given.start_bound)?;
    let end = given.end_bound.as_ref().map_or(Ok(WindowFrameBound::CurrentRow), bound)?;
    let counts = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::Preceding(rows) | WindowFrameBound::Following(rows) => !rows.is_null(),
        WindowFrameBound::CurrentRow => false,
    };
    if units == WindowFrameUnits::Range && (counts(&start) || counts(&end)) {
        return Err(unsupported("RANGE with an offset"));
    }
    Ok(WindowFrame::new_bounds(units, start, end))
}

impl Planner<'_> {
    /// Computes window functions: their results are columns after `cols`.
    pub(in crate::exec::analytic) fn windowed(
        &mut self,
        plan: LogicalPlan,
        mut cols: Vec<Col>,
        windows: &[Window],
    ) -> Result<(LogicalPlan, Vec<Col>)> {
        let (mut exprs, mut results) = (Vec::new(), Vec::new());
        for window in windows {
            let (function, arguments, filter, form, ty) = match &window.computes {
                Computes::Named(name, arguments) => self.named_window(name, arguments, &cols)?,
                Computes::Aggregate(aggregate) => {
                    let (mut parts, result) = self.computed(aggregate, &cols, 0)?;
                    let (Some(part), Expr::Column(0), true) = (parts.pop(), result, parts.is_empty()) else {
                        return self.averaged(plan, cols, windows);
                    };
                    let function = WindowFunctionDefinition::AggregateUDF(part.function);
                    (function, part.arguments, part.filter, part.form, part.ty)
                }
            };
            let translator = self.whole()?.translator(&cols);
            let partition: Result<Vec<Df>> =
                window.partition.iter().map(|(expr, ty)| translator.comparable(expr, *ty)).collect();
            let order: Result<Vec<_>> = window
                .order
                .iter()
                .map(|order| Ok(sort_key(translator.ranked(&order.expr, order.ty)?, order)))
                .collect();
            let frame = frame_of(window.frame.as_ref(), !window.order.is_empty())?;
            let mut call = Df::from(WindowFunction::new(function, arguments))
                .partition_by(partition?)
                .order_by(order?)
                .window_frame(frame);
            if let Some(filter) = filter {
                call = call.filter(filter);
            }
            // The engine names it; the projection above gives it a name of ours.
            let call = built(call.build())?;
            let column = bare(call.schema_name().to_string());
            if !exprs.contains(&call) {
                exprs.push(call);
            }
            results.push((column, form, ty, window.ty));
        }
        let plan = built(LogicalPlanBuilder::window_plan(plan, exprs))?;
        // The engine's ranks are unsigned; they are cast to PostgreSQL's types.
        let mut shown: Vec<Df> = cols.iter().map(Col::expr).collect();
        for (column, form, found, ty) in results {
            let expr = Df::Column(column.clone());
            let wanted = if found == ty { form.clone() } else { data_type(ty) };
            let name = bare(self.whole()?.fresh('c'));
            shown.push(
                if form == wanted && found == ty { expr } else { cast(expr, wanted.clone()) }
                    .alias(&name.name),
            );
            cols.push(Col { column: name, form: wanted, ty });
        }
        let plan = built(LogicalPlanBuilder::from(plan).project(shown).and_then(|builder| builder.build()))?;
        Ok((plan, cols))
    }

    /// Adds averages, computed as a sum and a count over the same window.
    fn averaged(
        &mut self,
        plan: LogicalPlan,
        cols: Vec<Col>,
        windows: &[Window],
    ) -> Result<(LogicalPlan, Vec<Col>)> {
        let mut simple: Vec<Window> = Vec::new();
        let mut results: Vec<(Expr, Type)> = Vec::new();
        let width = cols.len();
        for window in windows {
            let place = width + simple.len();
            match &window.computes {
                Computes::Aggregate(aggregate)
                    if aggregate.kind == aggregate::Kind::Avg && window.ty == Type::NUMERIC =>
                {
                    let sum = Aggregate { kind: aggregate::Kind::Sum, ..aggregate.clone() };
                    let wide = match aggregate.types.first().copied() {
                        Some(Type::INT2 | Type::INT4) => Type::INT8,
                        _ => Type::NUMERIC,
                    };
                    let count =
                        Aggregate { kind: aggregate::Kind::Count, ty: Type::INT8, ..aggregate.clone() };
                    simple.push(Window {
                        computes: Computes::Aggregate(Aggregate { ty: wide, ..sum }),
                        ty: wide,
                        ..window.clone()
                    });
                    simple.push(Window {
                        computes: Computes::Aggregate(count),
                        ty: Type::INT8,
                        ..window.clone()
                    });
                    let numeric = |place| Box::new(Expr::Cast(Box::new(Expr::Column(place)), Type::NUMERIC));
                    let average = Expr::Arith(
                        crate::expr::arith::Arith::Div,
                        Type::NUMERIC,
                        numeric(place),
                        numeric(place + 1),
                    );
                    let none = Expr::IsNull(Box::new(Expr::Column(place)), false);
                    let case = Expr::Case(vec![(none, Expr::Const(Value::Null))], Some(Box::new(average)));
                    results.push((case, Type::NUMERIC));
                }
                _ => {
                    simple.push(window.clone());
                    results.push((Expr::Column(place), window.ty));
                }
            }
        }
        if simple.len() == windows.len() {
            return Err(unsupported("this aggregate as a window function"));
        }
        let (plan, inner) = self.windowed(plan, cols.clone(), &simple)?;
        let mut shown: Vec<Df> = cols.iter().map(Col::expr).collect();
        let mut all = cols;
        for (expr, ty) in results {
            let (expr, form, ty) = self.translated(&expr, ty, &inner)?;
            let name = bare(self.whole()?.fresh('c'));
            shown.push(expr.alias(&name.name));
            all.push(Col { column: name, form, ty });
        }
        let plan = built(LogicalPlanBuilder::from(plan).project(shown).and_then(|builder| builder.build()))?;
        Ok((plan, all))
    }

    #[allow(clippy::type_complexity)] // the parts of a window function
    fn named_window(
        &mut self,
        name: &str,
        arguments: &[(Expr, Type)],
        cols: &[Col],
    ) -> Result<(WindowFunctionDefinition, Vec<Df>, Option<Df>, datafusion::arrow::datatypes::DataType, Type)>
    {
        let mut exprs = Vec::new();
        for (expr, ty) in arguments {
            exprs.push(self.translated(expr, *ty, cols)?);
        }
        if let ("lag" | "lead", [(value, ty), _, _], [first, ..]) = (name, arguments, exprs.as_mut_slice()) {
            // The default may have more digits than the form of the value.
            let form = data_type(*ty);
            *first = (self.whole()?.translator(cols).in_form(value, *ty, &form)?, form, *ty);
        }
        let first = exprs.first().map(|(_, form, ty)| (form.clone(), *ty));
        // A row count must be a constant.
        let counts = |at: usize| -> Result<Df> {
            match arguments.get(at).map(|(expr, _)| expr) {
                Some(Expr::Const(value)) if value.as_integer().is_some_and(|n| n > 0 || name != "ntile") => {
                    Ok(datafusion::logical_expr::lit(value.as_integer().unwrap_or_default()))
                }
                _ => Err(unsupported(format!("{name} with a number that is no constant"))),
            }
        };
        let value = exprs.first().map(|(expr, _, _)| expr.clone());
        let value = || value.clone().ok_or_else(|| bug("a window function without an argument"));
        let (function, exprs): (WindowFunctionDefinition, Vec<Df>) = match name {
            "row_number" => (engine::row_number::row_number_udwf().into(), Vec::new()),
            "rank" => (engine::rank::rank_udwf().into(), Vec::new()),
            "dense_rank" => (engine::rank::dense_rank_udwf().into(), Vec::new()),
            "percent_rank" => (engine::rank::percent_rank_udwf().into(), Vec::new()),
            "cume_dist" => (engine::cume_dist::cume_dist_udwf().into(), Vec::new()),
            "ntile" => (engine::ntile::ntile_udwf().into(), vec![counts(0)?]),
            "lag" | "lead" => {
                let mut all = vec![value()?];
                if arguments.len() > 1 {
                    all.push(counts(1)?);
                }
                if let (Some((default, _)), Some((form, _))) = (arguments.get(2), &first) {
                    let Expr::Const(default) = default else {
                        return Err(unsupported(format!("{name} with a default that is no constant")));
                    };
                    all.push(Df::Literal(literal(default, form)?, None));
                }
                let function =
                    if name == "lag" { engine::lead_lag::lag_udwf() } else { engine::lead_lag::lead_udwf() };
                (function.into(), all)
            }
            // Not the aggregates of these names: reversed to save a sort, they lose their columns.
            "first_value" => (engine::nth_value::first_value_udwf().into(), vec![value()?]),
            "last_value" => (engine::nth_value::last_value_udwf().into(), vec![value()?]),
            "nth_value" => (engine::nth_value::nth_value_udwf().into(), vec![value()?, counts(1)?]),
            _ => return Err(bug("an unknown window function")),
        };
        let unsigned = datafusion::arrow::datatypes::DataType::UInt64;
        // Marked with a type that no window function has, the ranks are cast to PostgreSQL's types.
        let (form, ty) = match name {
            "row_number" | "rank" | "dense_rank" | "ntile" => (unsigned, Type::BYTEA),
            "percent_rank" | "cume_dist" => (data_type(Type::FLOAT8), Type::FLOAT8),
            _ => first.ok_or_else(|| bug("a window function without an argument"))?,
        };
        Ok((function, exprs, None, form, ty))
    }
}
