//! Set-returning functions: joined with each row of a select list, or of the relations before them in FROM.
//!
//!   SELECT f(x) FROM t      ─▶  t, the rows of f(x) as a list  ─▶  one row for each element        (several: side by side)
//!   FROM t, f(t.x) AS a     ─▶  the same; the element becomes a column of the relation a
//!
//! A function with constant arguments in FROM, such as generate_series, makes its rows one by one: see
//! `functions`.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, ListArray};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::{Column, NullHandling, Result as DfResult, UnnestOptions};
use datafusion::logical_expr::{
    ColumnarValue, Expr as Df, LogicalPlan, LogicalPlanBuilder, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use ropewalk::tables::{Type, Value};
use sqlparser::ast;

use crate::error::{Result, SqlError, state};
use crate::exec::analytic::build::from::From;
use crate::exec::analytic::build::records::{Shape, is_of_many};
use crate::exec::analytic::build::translate::Col;
use crate::exec::analytic::built;
use crate::exec::analytic::kernel::convert::{Builder, Reader, data_type};
use crate::exec::analytic::kernel::scalar::through;
use crate::expr::cast::Strength;
use crate::expr::{Expr, bug};
use crate::functions::set_returning::SetFunction;
use crate::limits::budget::{Budget, MEMORY_BYTES_MAX};
use crate::plan::bind::scope::Scope;
use crate::plan::bind::{Binder, Typed, unsupported};
use crate::plan::{Planner, split};
use crate::syntax::names::{folded, parts};
use crate::types::interval;
use crate::types::names::Modifiers;
use crate::types::zone::Zone;

/// The source of the rows.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Makes {
    Function(SetFunction),
    /// generate_series over times, with an interval as its step.
    Times,
    /// Members of an object, or of each object of an array.
    Records {
        many: bool,
    },
}

/// A call of a set-returning function.
#[derive(Debug, Clone)]
pub(crate) struct SetCall {
    name: String,
    makes: Makes,
    /// Time zone of the session.
    zone: Zone,
    arguments: Vec<(Expr, Type)>,
    columns: Vec<(String, Type)>,
}

impl SetCall {
    /// Changes every argument.
    pub(in crate::exec::analytic) fn rewrite(&mut self, change: &dyn Fn(Expr) -> Result<Expr>) -> Result<()> {
        for (expr, _) in &mut self.arguments {
            *expr = change(expr.clone())?;
        }
        Ok(())
    }

    fn reads_columns(&self) -> bool {
        let mut found = false;
        for (expr, _) in &self.arguments {
            expr.columns(&mut |_| found = true);
        }
        found
    }

    fn rows(&self, arguments: &[Value<'static>], budget: &Budget) -> Result<Vec<Vec<Value<'static>>>> {
        match self.makes {
            Makes::Function(function) => function.rows(arguments, budget),
            Makes::Times => times(arguments, &self.zone, budget),
            Makes::Records { many } => {
                let shape = Shape { name: &self.name, columns: &self.columns, zone: &self.zone };
                shape.rows(arguments.first().unwrap_or(&Value::Null), many, budget)
            }
        }
    }
}

fn is_of_time(ty: Type) -> bool {
    matches!(ty, Type::DATE | Type::TIMESTAMP | Type::TIMESTAMPTZ | Type::INTERVAL)
}

/// The times from the first to the second argument, in steps of the third.
fn times(arguments: &[Value<'static>], zone: &Zone, budget: &Budget) -> Result<Vec<Vec<Value<'static>>>> {
    let wrap = |micros: i64, like: &Value<'_>| match like {
        Value::Timestamp(_) => Value::Timestamp(micros),
        _ => Value::Timestamptz(micros),
    };
    let micros = |value: Option<&Value<'_>>| match value {
        Some(Value::Timestamp(micros) | Value::Timestamptz(micros)) => Some(*micros),
        _ => None,
    };
    let (Some(like), Some(mut next), Some(last), Some(Value::Interval(step))) =
        (arguments.first(), micros(arguments.first()), micros(arguments.get(1)), arguments.get(2))
    else {
        return Ok(Vec::new());
    };
    let length = step.length();
    if length == 0 {
        return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, "step size cannot equal zero"));
    }
    let mut rows = Vec::new();
    while if length > 0 { next <= last } else { next >= last } {
        let row = vec![wrap(next, like)];
        budget.take_row(&row)?;
        rows.push(row);
        let after = match like {
            Value::Timestamp(_) => interval::after(*step, next),
            _ => interval::after_in(*step, next, zone),
        };
        match after {
            Some(after) if (after > next) == (length > 0) => next = after,
            _ => break,
        }
    }
    Ok(rows)
}

impl Binder<'_, '_> {
    /// The call, if it is one of a set-returning function.
    pub(crate) fn set_call(&mut self, name: &str, arguments: &[ast::FunctionArg]) -> Result<Option<SetCall>> {
        if !SetFunction::is_known(name)
            && !matches!(name, "json_each" | "jsonb_each" | "json_each_text" | "jsonb_each_text")
        {
            return Ok(None);
        }
        let mut exprs = Vec::new();
        for argument in arguments {
            match argument {
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => exprs.push(expr),
                other => return Err(unsupported(format!("the argument {other}"))),
            }
        }
        let mut bound = Vec::new();
        for expr in exprs {
            bound.push(self.bind(expr)?);
        }
        if let ("generate_series", [first, last, step]) = (name, bound.as_slice())
            && [first, last, step].iter().any(|typed| typed.ty.is_some_and(is_of_time))
        {
            return self.series_of_times(first.clone(), last.clone(), step.clone()).map(Some);
        }
        bound.extend(self.planner.listening(name, bound.len())?);
        let types: Vec<Option<Type>> = bound.iter().map(|argument| argument.ty).collect();
        let Some((function, types)) = SetFunction::resolve(name, &types)? else { return Ok(None) };
        let mut settled = Vec::new();
        for (argument, ty) in bound.into_iter().zip(types) {
            settled.push((self.settle(argument, ty, Strength::Implicit)?, ty));
        }
        let columns = function.columns(name);
        let zone = self.zone().clone();
        Ok(Some(SetCall {
            name: name.to_owned(),
            makes: Makes::Function(function),
            zone,
            arguments: settled,
            columns,
        }))
    }

    fn series_of_times(&mut self, first: Typed, last: Typed, step: Typed) -> Result<SetCall> {
        let of = |typed: &Typed| matches!(typed.ty, Some(Type::TIMESTAMPTZ));
        let is_plain = [&first, &last].iter().any(|typed| matches!(typed.ty, Some(Type::TIMESTAMP)));
        let ty = if of(&first) || of(&last) || !is_plain { Type::TIMESTAMPTZ } else { Type::TIMESTAMP };
        let mut arguments = Vec::new();
        for typed in [first, last] {
            arguments.push((self.settle(typed, ty, Strength::Implicit)?, ty));
        }
        arguments.push((self.settle(step, Type::INTERVAL, Strength::Implicit)?, Type::INTERVAL));
        let name = "generate_series".to_owned();
        let columns = vec![(name.clone(), ty)];
        let zone = self.zone().clone();
        Ok(SetCall { name, makes: Makes::Times, zone, arguments, columns })
    }

    /// A call whose alias defines the columns; `None` for other functions.
    fn record_call(&mut self, called: &Called<'_>) -> Result<Option<SetCall>> {
        let name = called.name.as_str();
        let Some(many) = is_of_many(name) else { return Ok(None) };
        if called.is_numbered {
            let message = "WITH ORDINALITY cannot be used with a column definition list";
            return Err(SqlError::new(state::SYNTAX_ERROR, message));
        }
        let said = called.alias.map(|alias| alias.columns.as_slice()).unwrap_or_default();
        let mut columns = Vec::with_capacity(said.len());
        for column in said {
            let Some(data_type) = &column.data_type else { continue };
            let (ty, modifiers) = self.planner.cut(data_type)?;
            if modifiers != Modifiers::default() || self.planner.enum_of(ty)?.is_some() {
                return Err(unsupported(format!("the type {data_type} in the columns of {name}")));
            }
            columns.push((folded(&column.name), ty));
        }
        if columns.is_empty() || columns.len() < said.len() {
            let message = "a column definition list is required for functions returning \"record\"";
            return Err(
                SqlError::new(state::SYNTAX_ERROR, message).hint("name(...) AS alias (column type, ...)")
            );
        }
        let [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(document))] = called.arguments.as_slice()
        else {
            let message = format!("function {name} takes one argument");
            return Err(SqlError::new(state::UNDEFINED_FUNCTION, message));
        };
        let ty = if name.starts_with("jsonb_") { Type::JSONB } else { Type::JSON };
        let arguments = vec![(self.bind_as(document, ty, Strength::Implicit)?, ty)];
        let zone = self.zone().clone();
        Ok(Some(SetCall { name: name.to_owned(), makes: Makes::Records { many }, zone, arguments, columns }))
    }

    /// A set-returning function within a select list.
    pub(crate) fn set_in_list(
        &mut self,
        name: &str,
        arguments: &[ast::FunctionArg],
    ) -> Result<Option<Typed>> {
        let Some(whole) = self.planner.engine_mut() else { return Ok(None) };
        // Its arguments must not contain another one.
        let Some(mut calls) = whole.sets.take() else { return Ok(None) };
        let call = self.set_call(name, arguments);
        let typed = call.and_then(|call| {
            let Some(call) = call else { return Ok(None) };
            let [(_, ty)] = call.columns.as_slice() else {
                return Err(unsupported(format!("{name} in the select list, which returns several columns")));
            };
            let typed = Typed::new(Expr::Set(calls.len()), *ty);
            calls.push(call);
            Ok(Some(typed))
        });
        if let Some(whole) = self.planner.engine_mut() {
            whole.sets = Some(calls);
        }
        typed
    }
}

/// A function in FROM, as written.
struct Called<'f> {
    name: String,
    arguments: Vec<ast::FunctionArg>,
    alias: Option<&'f ast::TableAlias>,
    /// WITH ORDINALITY.
    is_numbered: bool,
}

fn called(factor: &ast::TableFactor) -> Result<Option<Called<'_>>> {
    let (name, arguments, alias, is_numbered) = match factor {
        ast::TableFactor::Table { name, alias, args: Some(arguments), with_ordinality, .. } => {
            (name, arguments.args.clone(), alias, *with_ordinality)
        }
        ast::TableFactor::Function { lateral: _, name, args, with_ordinality, alias } => {
            (name, args.clone(), alias, *with_ordinality)
        }
        ast::TableFactor::UNNEST {
            alias,
            array_exprs,
            with_offset: false,
            with_offset_alias: None,
            with_ordinality,
        } => {
            let argument =
                |expr: &ast::Expr| ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr.clone()));
            let arguments = array_exprs.iter().map(argument).collect();
            return Ok(Some(Called {
                name: "unnest".into(),
                arguments,
                alias: alias.as_ref(),
                is_numbered: *with_ordinality,
            }));
        }
        _ => return Ok(None),
    };
    let name = match parts(name)?.as_slice() {
        [name] => name.clone(),
        [schema, name] if schema == "pg_catalog" => name.clone(),
        _ => return Ok(None),
    };
    Ok(Some(Called { name, arguments, alias: alias.as_ref(), is_numbered }))
}

impl Planner<'_> {
    /// A function in FROM, joined with the relations before it if it reads them; the result includes those.
    /// `keeps`: rows without function results stay, padded with NULLs. `None` when it is no such function, or
    /// reads no other relation.
    pub(in crate::exec::analytic) fn function_item(
        &mut self,
        factor: &ast::TableFactor,
        before: Option<&From>,
        keeps: bool,
    ) -> Result<Option<(From, bool)>> {
        let Some(called) = called(factor)? else { return Ok(None) };
        let nothing = Scope::default();
        let scope = before.map_or(&nothing, |before| &before.scope);
        let current = before.map_or_else(Vec::new, |before| before.cols.clone());
        let current = std::mem::replace(&mut self.whole()?.current, current);
        let scope = scope.clone();
        let mut binder = Binder::new(self, &scope, "a function in FROM");
        let call = match binder.record_call(&called) {
            Ok(None) => binder.set_call(&called.name, &called.arguments),
            found => found,
        };
        self.whole()?.current = current;
        let Some(call) = call? else { return Ok(None) };
        let says_its_columns = matches!(call.makes, Makes::Records { .. });
        let is_beside = call.reads_columns();
        let is_lone_series = matches!(called.name.as_str(), "generate_series" | "unnest")
            && !is_beside
            && !called.is_numbered
            && matches!(factor, ast::TableFactor::Table { .. })
            && call.makes != Makes::Times;
        if is_lone_series {
            return Ok(None);
        }
        let (plan, cols, mut scope) = match before.filter(|_| is_beside) {
            Some(before) => (before.plan.clone(), before.cols.clone(), before.scope.clone()),
            None => (crate::exec::analytic::build::from::nothing()?, Vec::new(), Scope::default()),
        };
        let own = cols.len();
        let calls = std::slice::from_ref(&call);
        let (plan, cols) = self.unnested(plan, cols, calls, called.is_numbered, keeps && is_beside)?;
        let mut names: Vec<String> = call.columns.iter().map(|(name, _)| name.clone()).collect();
        if called.is_numbered {
            names.push("ordinality".into());
        }
        let mut relation = called.name.clone();
        if let Some(alias) = called.alias {
            relation = folded(&alias.name);
            let is_scalar = call.columns.len() == 1 && !says_its_columns;
            // The alias of a single-column function also names the column, unless the column has another name
            // already.
            if let (true, Some(first)) = (is_scalar, names.first_mut())
                && *first == called.name
            {
                first.clone_from(&relation);
            }
            if alias.columns.len() > names.len()
                || !says_its_columns && alias.columns.iter().any(|column| column.data_type.is_some())
            {
                return Err(unsupported(format!("the alias {alias}")));
            }
            for (name, column) in names.iter_mut().zip(&alias.columns) {
                *name = folded(&column.name);
            }
        }
        let types = cols.iter().skip(own).map(|col| col.ty);
        let is_scalar = call.columns.len() == 1 && !says_its_columns;
        scope.add_function(relation, names.into_iter().zip(types).collect(), is_scalar)?;
        Ok(Some((From { plan, scope, cols, order: Vec::new() }, is_beside)))
    }

    /// A join with a function that reads the rows on its left.
    pub(in crate::exec::analytic) fn joined_function(
        &mut self,
        left: &From,
        factor: &ast::TableFactor,
        is_left: bool,
        constraint: &ast::JoinConstraint,
    ) -> Result<Option<From>> {
        let Some((joined, true)) = self.function_item(factor, Some(left), is_left)? else { return Ok(None) };
        let condition = match constraint {
            ast::JoinConstraint::None => return Ok(Some(joined)),
            ast::JoinConstraint::On(condition) => condition,
            other => return Err(crate::exec::executor::unsupported(format!("{other:?} with a function"))),
        };
        self.whole()?.current.clone_from(&joined.cols);
        let condition = Binder::new(self, &joined.scope, "JOIN/ON").condition(condition)?;
        if condition == Expr::Const(Value::Bool(true)) {
            return Ok(Some(joined));
        }
        if is_left {
            return Err(crate::exec::executor::unsupported(
                "LEFT JOIN of a function ON a condition but true",
            ));
        }
        let mut conjuncts = Vec::new();
        split(condition, &mut conjuncts);
        let plan = self.filtered(joined.plan, &conjuncts, &joined.cols)?;
        Ok(Some(From { plan, ..joined }))
    }

    /// Joins each row with the rows of functions: their columns follow the others.
    pub(in crate::exec::analytic) fn unnested(
        &mut self,
        plan: LogicalPlan,
        cols: Vec<Col>,
        calls: &[SetCall],
        is_numbered: bool,
        keeps: bool,
    ) -> Result<(LogicalPlan, Vec<Col>)> {
        let mut exprs: Vec<Df> = cols.iter().map(Col::expr).collect();
        let mut lists = Vec::new();
        for call in calls {
            let (mut arguments, mut types) = (Vec::new(), Vec::new());
            for (expr, ty) in &call.arguments {
                let (expr, _, ty) = self.translated(expr, *ty, &cols)?;
                arguments.push(expr);
                types.push(ty);
            }
            let number = is_numbered.then_some((usize::MAX, Type::INT8));
            let columns = call.columns.iter().map(|(_, ty)| *ty).enumerate().chain(number);
            for (column, ty) in columns {
                let name = self.whole()?.fresh('c');
                let form = data_type(ty);
                let list = ListOf {
                    call: call.clone(),
                    column,
                    types: types.clone(),
                    form: form.clone(),
                    signature: signature(types.len()),
                };
                let function = Arc::new(ScalarUDF::new_from_impl(list));
                exprs.push(function.call(arguments.clone()).alias(&name));
                lists.push(Col { column: Column::from_name(name), form, ty });
            }
        }
        let handling = if keeps { NullHandling::PreserveAndExpandEmpty } else { NullHandling::Drop };
        let options = UnnestOptions::new().with_null_handling(handling);
        let columns = lists.iter().map(|col| col.column.clone()).collect();
        let builder = LogicalPlanBuilder::from(plan).project(exprs);
        let builder = builder.and_then(|builder| builder.unnest_columns_with_options(columns, options));
        let plan = built(builder.and_then(|builder| builder.build()))?;
        Ok((plan, cols.into_iter().chain(lists).collect()))
    }
}

fn signature(arguments: usize) -> Signature {
    match arguments {
        0 => Signature::nullary(Volatility::Immutable),
        count => Signature::any(count, Volatility::Immutable),
    }
}

/// One column of the rows of a call, as a list.
#[derive(Debug)]
struct ListOf {
    call: SetCall,
    /// The column number; the greatest number represents WITH ORDINALITY.
    column: usize,
    types: Vec<Type>,
    form: DataType,
    signature: Signature,
}

impl ListOf {
    fn identity(&self) -> (String, usize) {
        (format!("{:?} {:?} {:?}", self.call.makes, self.types, self.call.columns), self.column)
    }

    fn field(&self) -> Arc<Field> {
        Arc::new(Field::new_list_field(self.form.clone(), true))
    }

    fn evaluate(&self, arrays: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let readers: Result<Vec<Reader<'_>>> =
            arrays.iter().zip(&self.types).map(|(array, ty)| Reader::new(array.as_ref(), *ty)).collect();
        let readers = readers?;
        let budget = Budget::new(MEMORY_BYTES_MAX);
        let mut builder = Builder::new(&self.form, rows)?;
        let (mut lengths, mut valid) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        for row in 0..rows {
            let arguments: Result<Vec<Value<'static>>> =
                readers.iter().map(|reader| Ok(reader.get(row)?.into_owned())).collect();
            let answered = self.call.rows(&arguments?, &budget)?;
            lengths.push(answered.len());
            valid.push(!answered.is_empty());
            for (number, record) in answered.iter().enumerate() {
                if self.column == usize::MAX {
                    builder.push(&Value::Int8(i64::try_from(number + 1).unwrap_or(i64::MAX)))?;
                } else {
                    builder.push(record.get(self.column).ok_or_else(|| bug("a column of a function"))?)?;
                }
            }
        }
        let offsets = OffsetBuffer::from_lengths(lengths);
        let nulls = NullBuffer::from(valid);
        let list = ListArray::try_new(self.field(), offsets, builder.finish(), Some(nulls));
        Ok(Arc::new(list.map_err(|error| bug(&error.to_string()))?))
    }
}

impl PartialEq for ListOf {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for ListOf {}

impl Hash for ListOf {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

impl ScalarUDFImpl for ListOf {
    fn name(&self) -> &str {
        "rows_of"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::List(self.field()))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let rows = args.number_rows;
        let arrays = args.args.iter().map(|arg| arg.to_array(rows)).collect::<DfResult<Vec<_>>>()?;
        Ok(ColumnarValue::Array(self.evaluate(&arrays, rows).map_err(through)?))
    }
}
