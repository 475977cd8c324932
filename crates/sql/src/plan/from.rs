//! FROM: levels, one for each table, and the conditions of joins; which level a condition is put to.

use sqlparser::ast;

use super::{Level, Order, unsupported};
use crate::bind::{Binder, Typed};
use crate::error::{Result, SqlError, state};
use crate::expr::Expr;
use crate::path::{Path, Wanted};
use crate::plan::Planner;
use crate::schemas::in_full;
use crate::scope::{Scope, folded, parts};

#[derive(Default)]
pub(super) struct From {
    pub(super) scope: Scope,
    pub(super) levels: Vec<Level>,
    pub(super) conjuncts: Vec<Expr>,
}

impl Planner<'_> {
    /// Adds the tables of one item of FROM.
    pub(super) fn from(&mut self, item: &ast::TableWithJoins, from: &mut From) -> Result<()> {
        self.factor(&item.relation, from, false)?;
        for join in &item.joins {
            use ast::JoinOperator as J;
            if join.global {
                return Err(unsupported("a global join"));
            }
            let (is_outer, constraint) = match &join.join_operator {
                J::Join(constraint) | J::Inner(constraint) | J::CrossJoin(constraint) => (false, constraint),
                J::Left(constraint) | J::LeftOuter(constraint) => (true, constraint),
                J::Right(_) | J::RightOuter(_) => return Err(unsupported("RIGHT JOIN")),
                J::FullOuter(_) => return Err(unsupported("FULL JOIN")),
                _ => return Err(unsupported("this kind of join")),
            };
            let before = from.scope.width();
            self.factor(&join.relation, from, is_outer)?;
            let mut on = Vec::new();
            match constraint {
                ast::JoinConstraint::On(condition) => {
                    split(Binder::new(self, &from.scope, "JOIN/ON").condition(condition)?, &mut on);
                }
                ast::JoinConstraint::Using(names) => {
                    for name in names {
                        on.push(self.using(&name_of_using(name)?, &mut from.scope, before)?);
                    }
                }
                ast::JoinConstraint::Natural => return Err(unsupported("NATURAL JOIN")),
                ast::JoinConstraint::None => {}
            }
            match from.levels.last_mut().filter(|_| is_outer) {
                Some(level) => level.filter = on,
                None => from.conjuncts.append(&mut on),
            }
        }
        Ok(())
    }

    /// The condition of one name of USING, between the columns up to `before` and those from there; the right one is hidden
    /// behind the left one.
    pub(crate) fn using(&mut self, name: &str, scope: &mut Scope, before: usize) -> Result<Expr> {
        let mut sides = (None, None);
        for (column, ty, number) in scope.all(None) {
            if column == name {
                let side = if number < before { &mut sides.0 } else { &mut sides.1 };
                if side.replace((number, ty)).is_some() {
                    let message =
                        format!("common column name \"{name}\" appears more than once in one table");
                    return Err(SqlError::new(state::AMBIGUOUS_COLUMN, message));
                }
            }
        }
        let (Some((left, left_ty)), Some((right, right_ty))) = sides else {
            let message =
                format!("column \"{name}\" specified in USING clause does not exist in both tables");
            return Err(SqlError::new(state::UNDEFINED_COLUMN, message));
        };
        scope.hide(right);
        let (left, right) =
            (Typed::new(Expr::Column(left), left_ty), Typed::new(Expr::Column(right), right_ty));
        let scope = scope.clone();
        Binder::new(self, &scope, "USING").compare(crate::arith::Compare::Eq, left, right)
    }

    fn factor(&mut self, factor: &ast::TableFactor, from: &mut From, is_outer: bool) -> Result<()> {
        let ast::TableFactor::Table {
            name,
            alias,
            args: None,
            with_hints,
            version: None,
            with_ordinality: false,
            partitions,
            json_path: None,
            sample: None,
            index_hints,
        } = factor
        else {
            return Err(unsupported(format!("FROM {factor}")));
        };
        if !(with_hints.is_empty() && partitions.is_empty() && index_hints.is_empty()) {
            return Err(unsupported(format!("FROM {factor}")));
        }
        let (table, schema) = self.table(name)?;
        let alias = alias_of(alias.as_ref())?.unwrap_or_else(|| in_full(schema.name()));
        let start = from.scope.add_table(alias, &schema)?;
        let path = Path::choose(&schema, start, &[], &[], false);
        from.levels.push(Level {
            table,
            schema,
            path,
            start,
            filter: Vec::new(),
            is_outer,
            after: Vec::new(),
        });
        Ok(())
    }
}

/// A name of USING.
pub(crate) fn name_of_using(name: &ast::ObjectName) -> Result<String> {
    let mut names = parts(name)?;
    match (names.pop(), names.is_empty()) {
        (Some(name), true) => Ok(name),
        _ => Err(unsupported("a qualified name in USING")),
    }
}

/// The name that an alias gives.
pub(crate) fn alias_of(alias: Option<&ast::TableAlias>) -> Result<Option<String>> {
    match alias {
        None => Ok(None),
        Some(alias) if alias.columns.is_empty() && alias.at.is_none() => Ok(Some(folded(&alias.name))),
        Some(alias) => Err(unsupported(format!("the alias {alias}"))),
    }
}

/// Takes a condition apart at its ANDs, and at what all branches of an OR ask.
pub(crate) fn split(condition: Expr, conjuncts: &mut Vec<Expr>) {
    match condition {
        Expr::And(parts) => parts.into_iter().for_each(|part| split(part, conjuncts)),
        Expr::Or(branches) => factored(branches, conjuncts),
        other => conjuncts.push(other),
    }
}

/// `(a AND b) OR (a AND c)` is `a AND (b OR c)`, also where some are unknown: `a` may be the key of a join.
fn factored(branches: Vec<Expr>, conjuncts: &mut Vec<Expr>) {
    let parts = |branch| {
        let mut parts = Vec::new();
        split(branch, &mut parts);
        parts
    };
    let mut branches: Vec<Vec<Expr>> = branches.into_iter().map(parts).collect();
    let common: Vec<Expr> = match branches.split_first() {
        Some((first, others)) => {
            let everywhere =
                |part: &&Expr| !part.is_volatile() && others.iter().all(|other| other.contains(part));
            first.iter().filter(everywhere).cloned().collect()
        }
        None => Vec::new(),
    };
    branches.iter_mut().for_each(|branch| branch.retain(|part| !common.contains(part)));
    conjuncts.extend(common);
    // A branch that asks nothing else is true when the rest is asked for.
    if branches.iter().all(|branch| !branch.is_empty()) {
        let joined = |mut branch: Vec<Expr>| match (branch.pop(), branch.is_empty()) {
            (Some(only), true) => only,
            (last, _) => {
                branch.extend(last);
                Expr::And(branch)
            }
        };
        conjuncts.push(Expr::Or(branches.into_iter().map(joined).collect()));
    }
}

/// The columns that all orders are plain columns of; none when one is not.
pub(super) fn wanted(orders: &[Order]) -> Vec<Wanted> {
    let plain = |order: &Order| match order.expr {
        Expr::Column(place) => Some((place, order.descending, order.nulls_first)),
        _ => None,
    };
    orders.iter().map(plain).collect::<Option<Vec<_>>>().unwrap_or_default()
}

/// Puts each conjunct to the first level that knows its columns, and chooses the paths. Answers those without columns.
pub(super) fn place(
    levels: &mut [Level],
    conjuncts: Vec<Expr>,
    wanted: &[Wanted],
    is_limited: bool,
) -> Vec<Expr> {
    let mut constant = Vec::new();
    for conjunct in conjuncts {
        let mut last = None;
        conjunct.columns(&mut |column| last = last.max(Some(column)));
        let level = last.and_then(|last| levels.iter_mut().rev().find(|level| level.start <= last));
        match level {
            None => constant.push(conjunct),
            Some(level) if level.is_outer => level.after.push(conjunct),
            Some(level) => level.filter.push(conjunct),
        }
    }
    for level in levels {
        // What is asked before is known to hold; what is asked of this level narrows its path.
        level.path = Path::choose(&level.schema, level.start, &level.filter, wanted, is_limited);
    }
    constant
}
