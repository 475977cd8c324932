//! Calls of aggregates: they go to a list of their own and leave their number in the expression.

use ropewalk::tables::Type;
use sqlparser::ast;

use crate::aggregate::{self, Aggregate};
use crate::bind::{Binder, Typed, unsupported};
use crate::cast::Strength;
use crate::error::{Result, SqlError, state};
use crate::expr::Expr;

impl Binder<'_, '_> {
    /// Binds the call of an aggregate.
    pub(crate) fn aggregate(
        &mut self,
        name: &str,
        list: &ast::FunctionArgumentList,
        filter: Option<&ast::Expr>,
    ) -> Result<Typed> {
        let Some(aggregates) = self.aggregates.take() else {
            let message = format!("aggregate functions are not allowed in {}", self.clause);
            return Err(SqlError::new(state::GROUPING_ERROR, message));
        };
        // Without a place for them, aggregates within aggregates are refused.
        let bound = self.aggregate_parts(name, list, filter);
        let bound = bound.map(|aggregate| {
            let ty = aggregate.ty;
            let known = aggregates.iter().position(|known| *known == aggregate);
            let number = known.unwrap_or_else(|| {
                aggregates.push(aggregate);
                aggregates.len() - 1
            });
            Typed::new(Expr::Aggregate(number), ty)
        });
        self.aggregates = Some(aggregates);
        bound
    }

    pub(crate) fn aggregate_parts(
        &mut self,
        name: &str,
        list: &ast::FunctionArgumentList,
        filter: Option<&ast::Expr>,
    ) -> Result<Aggregate> {
        let clause = std::mem::replace(&mut self.clause, "an aggregate");
        let ast::FunctionArgumentList { duplicate_treatment, args, clauses } = list;
        if !clauses.is_empty() {
            return Err(unsupported(format!(
                "{name} with {}",
                clauses.iter().map(ToString::to_string).collect::<String>()
            )));
        }
        let distinct = *duplicate_treatment == Some(ast::DuplicateTreatment::Distinct);
        let mut arguments = Vec::new();
        for argument in args {
            match argument {
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => {
                    arguments.push(self.bind(expr)?)
                }
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Wildcard) if name == "count" && !distinct => {
                }
                other => return Err(unsupported(format!("the argument {other} of {name}"))),
            }
        }
        let filter = filter.map(|filter| self.condition(filter)).transpose()?;
        self.clause = clause;
        let types: Vec<Option<Type>> = arguments.iter().map(|argument| argument.ty).collect();
        let resolved = aggregate::resolve(name, &types)?;
        let settled: Result<Vec<_>> = arguments
            .into_iter()
            .zip(&resolved.arguments)
            .map(|(argument, ty)| self.settle(argument, *ty, Strength::Implicit))
            .collect();
        let types = types.iter().zip(&resolved.arguments).map(|(found, ty)| found.unwrap_or(*ty)).collect();
        Ok(Aggregate { kind: resolved.kind, arguments: settled?, types, distinct, filter, ty: resolved.ty })
    }
}
