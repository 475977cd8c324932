//! The select list of nested loops, with functions that return rows and `row_number()`.

use ropewalk::tables::Type;
use sqlparser::ast;

use crate::error::Result;
use crate::exec::nested_loop::{Output, Take};
use crate::expr::cast::Strength;
use crate::expr::{Expr, Order};
use crate::functions::aggregate::Aggregate;
use crate::functions::set_returning::SetFunction;
use crate::plan::bind::Binder;
use crate::plan::bind::scope::{Mark, Scope};
use crate::plan::{Planner, label, unsupported};
use crate::syntax::names::{folded, parts};
use crate::types::outcome::ResultColumn;

/// The select list of a query for nested loops.
#[derive(Default)]
pub(super) struct SelectList {
    pub(super) output: Vec<Output>,
    pub(super) marks: Vec<(usize, Mark)>,
    /// The items as ORDER BY and GROUP BY find them.
    pub(super) projected: Vec<(Expr, ResultColumn)>,
}

impl Planner<'_> {
    pub(super) fn small_projection(
        &mut self,
        items: &[ast::SelectItem],
        scope: &Scope,
        aggregates: &mut Vec<Aggregate>,
    ) -> Result<SelectList> {
        let SelectList { mut output, mut marks, mut projected } = SelectList::default();
        for item in items {
            if let Some((many, column)) = self.many(item, scope)? {
                if matches!(many, Output::Many(.., Take::Pair)) {
                    marks.push((output.len(), Mark::Pair));
                }
                // No ORDER BY or GROUP BY may use it: no expression represents it.
                projected.push((Expr::Column(usize::MAX - output.len()), column));
                output.push(many);
                continue;
            }
            for (expr, column) in self.projection(std::slice::from_ref(item), scope, aggregates)? {
                if let Some(mark) = Binder::new(self, scope, "SELECT").mark_of(&expr) {
                    marks.push((output.len(), mark));
                }
                projected.push((expr.clone(), column));
                output.push(Output::One(expr));
            }
        }
        Ok(SelectList { output, marks, projected })
    }

    /// A function of the select list that returns rows, or a field of those; or `row_number()`.
    fn many(&mut self, item: &ast::SelectItem, scope: &Scope) -> Result<Option<(Output, ResultColumn)>> {
        let (expr, name) = match item {
            ast::SelectItem::UnnamedExpr(expr) => (expr, label(expr)),
            ast::SelectItem::ExprWithAlias { expr, alias } => (expr, folded(alias)),
            _ => return Ok(None),
        };
        let (called, field) = match expr {
            ast::Expr::CompoundFieldAccess { root, access_chain } => match (&**root, access_chain.as_slice())
            {
                (ast::Expr::Nested(inner), [ast::AccessExpr::Dot(ast::Expr::Identifier(field))]) => {
                    (&**inner, Some(folded(field)))
                }
                _ => return Ok(None),
            },
            expr => (expr, None),
        };
        let ast::Expr::Function(function) = called else { return Ok(None) };
        let called = parts(&function.name)?.pop().unwrap_or_default();
        if called == "row_number"
            && field.is_none()
            && let Some(ast::WindowType::WindowSpec(spec)) = &function.over
        {
            let number = self.numbered(spec, scope)?;
            return Ok(Some((number, ResultColumn { name, ty: Type::INT8 })));
        }
        if !SetFunction::is_known(&called) {
            return Ok(None);
        }
        let Some((function, arguments)) = self.set_function(&called, &function.args, scope)? else {
            return Ok(None);
        };
        let columns = function.columns(&name);
        let (take, ty) = match &field {
            None if function == SetFunction::ExpandArray => (Take::Pair, Type::INT8.array()),
            None => (Take::Column(0), columns.first().map_or(Type::TEXT, |(_, ty)| *ty)),
            Some(field) => {
                let found = columns.iter().position(|(column, _)| column == field);
                let unknown = || crate::plan::bind::scope::unknown_column(None, field);
                let place = found.ok_or_else(unknown)?;
                (Take::Column(place), columns.get(place).map_or(Type::TEXT, |(_, ty)| *ty))
            }
        };
        Ok(Some((Output::Many(function, arguments, take), ResultColumn { name, ty })))
    }

    fn numbered(&mut self, spec: &ast::WindowSpec, scope: &Scope) -> Result<Output> {
        if spec.window_name.is_some() || spec.window_frame.is_some() {
            return Err(unsupported("a window with a name or a frame"));
        }
        let mut binder = Binder::new(self, scope, "OVER");
        let mut partition = Vec::new();
        for expr in &spec.partition_by {
            partition.push(binder.bind_closed(expr)?.0);
        }
        let order: Result<Vec<Order>> = spec.order_by.iter().map(|item| binder.order_item(item)).collect();
        Ok(Output::Number(partition, order?))
    }

    pub(super) fn set_function(
        &mut self,
        name: &str,
        arguments: &ast::FunctionArguments,
        scope: &Scope,
    ) -> Result<Option<(SetFunction, Vec<Expr>)>> {
        let list = match arguments {
            ast::FunctionArguments::List(list) => list.args.as_slice(),
            ast::FunctionArguments::None => &[],
            ast::FunctionArguments::Subquery(_) => return Ok(None),
        };
        let (mut bound, mut marks) = (Vec::new(), Vec::new());
        for argument in list {
            match argument {
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => {
                    let mut binder = Binder::new(self, scope, "a function");
                    let typed = binder.bind(expr)?;
                    marks.push(binder.mark_of(&typed.expr));
                    bound.push(typed);
                }
                other => return Err(unsupported(format!("the argument {other}"))),
            }
        }
        bound.extend(self.listening(name, list.len())?);
        let types: Vec<Option<Type>> = bound.iter().map(|typed| typed.ty).collect();
        let Some((mut function, wanted)) = SetFunction::resolve(name, &types)? else { return Ok(None) };
        if let (SetFunction::GenerateSubscripts(first), Some(Some(Mark::Vector))) =
            (&mut function, marks.first())
        {
            *first = 0;
        }
        let mut settled = Vec::new();
        for (typed, ty) in bound.into_iter().zip(wanted) {
            settled.push(Binder::new(self, scope, "a function").settle(typed, ty, Strength::Assignment)?);
        }
        Ok(Some((function, settled)))
    }
}

impl Output {
    /// Changes the expressions that it evaluates for a row of the input.
    pub(super) fn change_exprs(&mut self, change: &mut dyn FnMut(&mut Expr) -> Result<()>) -> Result<()> {
        match self {
            Self::One(expr) => change(expr),
            Self::Many(_, arguments, _) => arguments.iter_mut().try_for_each(change),
            Self::Number(partition, order) => {
                partition.iter_mut().try_for_each(&mut *change)?;
                order.iter_mut().try_for_each(|order| change(&mut order.expr))
            }
        }
    }
}
