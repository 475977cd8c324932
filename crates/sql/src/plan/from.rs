//! FROM: one level per table, join conditions, and the assignment of conditions to levels.

use sqlparser::ast;

use super::Level;
use super::Order;
use super::unsupported;
use crate::access::access_path::{Path, Wanted};
use crate::error::{Result, SqlError, state};
use crate::expr::Expr;
use crate::expr::arith::Compare;
use crate::expr::cast::Strength;
use crate::plan::Planner;
use crate::plan::bind::scope::{Merged, Present, Scope};
use crate::plan::bind::{Binder, Typed};
use crate::syntax::names::{folded, parts, plain_table};
use crate::types::names::common;

#[derive(Default)]
pub(super) struct From {
    pub(super) scope: Scope,
    pub(super) levels: Vec<Level>,
    pub(super) conjuncts: Vec<Expr>,
}

impl Planner<'_> {
    /// Adds the tables of one item of FROM.
    pub(super) fn from(&mut self, item: &ast::TableWithJoins, from: &mut From) -> Result<()> {
        from.scope.begin_item(from.scope.shown_count());
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
            let right = from.scope.shown_count();
            self.factor(&join.relation, from, is_outer)?;
            let mut on = Vec::new();
            match constraint {
                ast::JoinConstraint::On(condition) => {
                    split(Binder::new(self, &from.scope, "JOIN/ON").condition(condition)?, &mut on);
                }
                constraint => {
                    let names = Self::names_of_using(constraint, &from.scope, right)?;
                    let present = if is_outer { Present::Left } else { Present::Both };
                    on = self.using(&names, &mut from.scope, right, present)?;
                }
            }
            match from.levels.last_mut().filter(|_| is_outer) {
                Some(level) => level.filter = on,
                None => from.conjuncts.append(&mut on),
            }
        }
        Ok(())
    }

    /// The column names of USING or NATURAL; the right side of the join has the visible columns from `right`
    /// on.
    pub(crate) fn names_of_using(
        constraint: &ast::JoinConstraint,
        scope: &Scope,
        right: usize,
    ) -> Result<Vec<String>> {
        match constraint {
            ast::JoinConstraint::Using(names) => names.iter().map(name_of_using).collect(),
            ast::JoinConstraint::Natural => Ok(scope.shared(right)),
            ast::JoinConstraint::On(_) | ast::JoinConstraint::None => Ok(Vec::new()),
        }
    }

    /// The join conditions of USING. Each pair becomes one column, placed before all others of the item.
    pub(crate) fn using(
        &mut self,
        names: &[String],
        scope: &mut Scope,
        right: usize,
        present: Present,
    ) -> Result<Vec<Expr>> {
        let (mut conditions, mut merged) = (Vec::new(), Vec::new());
        for (place, name) in names.iter().enumerate() {
            if names.iter().take(place).any(|known| known == name) {
                let message = format!("column name \"{name}\" appears more than once in USING clause");
                return Err(SqlError::new(state::DUPLICATE_COLUMN, message));
            }
            let [(left_place, left_ty, left), (right_place, right_ty, right)] = scope.sides(name, right)?;
            let ty = common(left_ty, right_ty).ok_or_else(|| {
                let (a, b) = (self.shown(Some(left_ty)), self.shown(Some(right_ty)));
                let message = format!("JOIN/USING types {a} and {b} cannot be matched");
                SqlError::new(state::DATATYPE_MISMATCH, message)
            })?;
            let mut binder = Binder::new(self, scope, "USING");
            let (left, right) = (Typed::new(left, left_ty), Typed::new(right, right_ty));
            conditions.push(binder.compare(Compare::Eq, left.clone(), right.clone())?);
            let is_cast = left_ty != ty;
            let left = binder.settle(left, ty, Strength::Implicit)?;
            let right_is_cast = right_ty != ty;
            let right = binder.settle(right, ty, Strength::Implicit)?;
            let expr = match present {
                Present::Both if is_cast && !right_is_cast => right,
                Present::Both | Present::Left => left,
                Present::Right => right,
                Present::Either => Expr::Coalesce(vec![left, right]),
            };
            merged.push(Merged { name: name.clone(), left: left_place, right: right_place, expr, ty });
        }
        scope.merge(merged);
        Ok(conditions)
    }

    fn factor(&mut self, factor: &ast::TableFactor, from: &mut From, is_outer: bool) -> Result<()> {
        let Some((name, alias, None)) = plain_table(factor) else {
            return Err(unsupported(format!("FROM {factor}")));
        };
        self.reads = true;
        let (table, schema) = self.table(name)?;
        let alias = alias_of(alias)?.unwrap_or_else(|| self.standing.settings.table_alias(schema.name()));
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

/// A column name in USING.
fn name_of_using(name: &ast::ObjectName) -> Result<String> {
    let mut names = parts(name)?;
    match (names.pop(), names.is_empty()) {
        (Some(name), true) => Ok(name),
        _ => Err(unsupported("a qualified name in USING")),
    }
}

/// The name in an alias.
pub(crate) fn alias_of(alias: Option<&ast::TableAlias>) -> Result<Option<String>> {
    match alias {
        None => Ok(None),
        Some(alias) if alias.columns.is_empty() && alias.at.is_none() => Ok(Some(folded(&alias.name))),
        Some(alias) => Err(unsupported(format!("the alias {alias}"))),
    }
}

/// Splits a condition at its ANDs, and factors out conditions common to all branches of an OR.
pub(crate) fn split(condition: Expr, conjuncts: &mut Vec<Expr>) {
    match condition {
        Expr::And(parts) => parts.into_iter().for_each(|part| split(part, conjuncts)),
        Expr::Or(branches) => factored(branches, conjuncts),
        other => conjuncts.push(other),
    }
}

/// Rewrites `(a AND b) OR (a AND c)` to `a AND (b OR c)`, which is valid for NULLs, too: `a` may be a join
/// key.
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
    // If a branch has no other conditions, the OR is true whenever the common ones are.
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

/// The columns by which the rows are ordered; empty if one order is not a plain column.
pub(super) fn wanted(orders: &[Order]) -> Vec<Wanted> {
    let plain = |order: &Order| match order.expr {
        Expr::Column(place) => Some((place, order.descending, order.nulls_first)),
        _ => None,
    };
    orders.iter().map(plain).collect::<Option<Vec<_>>>().unwrap_or_default()
}

/// Moves conditions on one relation, whose columns begin at `start`, before join conditions. As in
/// PostgreSQL, which evaluates them during the scan, they protect the others from values that cause errors.
pub(crate) fn alone_first(filter: &mut [Expr], start: usize) {
    filter.sort_by_cached_key(|condition| {
        let mut joins = false;
        condition.columns(&mut |column| joins |= column < start);
        joins
    });
}

/// Assigns each conjunct to the first level that has its columns, and chooses access paths. Returns those
/// without columns.
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
        let level = match last {
            Some(last) => levels.iter_mut().rev().find(|level| level.start <= last),
            // No columns, but volatile: evaluated for each row.
            None if conjunct.is_volatile() => levels.last_mut(),
            None => None,
        };
        match level {
            None => constant.push(conjunct),
            Some(level) if level.is_outer => level.after.push(conjunct),
            Some(level) => level.filter.push(conjunct),
        }
    }
    for level in levels {
        alone_first(&mut level.filter, level.start);
        // Conditions of earlier levels already hold; those of this level narrow its access path.
        level.path = Path::choose(&level.schema, level.start, &level.filter, wanted, is_limited);
    }
    constant
}
