//! The row locks of SELECT ... FOR UPDATE and FOR SHARE at read committed.
//!
//! `exec::locking` takes them.

use ropewalk::hooks::LockMode;
use ropewalk::tables::Table;
use sqlparser::ast;

use crate::error::{Result, SqlError, state};
use crate::expr::Expr;
use crate::plan::Select;
use crate::syntax::names::{folded, parts};

/// Handling of a row that another transaction has locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    Waits,
    Refuses,
    Skips,
}

/// A table whose rows are locked.
pub(crate) struct Target {
    pub(crate) table: Table,
    /// Position of its key in a row of the extended query.
    pub(crate) key: std::ops::Range<usize>,
    pub(crate) mode: LockMode,
    pub(crate) taken: Taken,
}

/// A SELECT that locks.
pub(crate) struct Locking {
    /// The query with the keys of the locked tables appended to its columns, without its limit.
    pub(crate) select: Select,
    pub(crate) width: usize,
    pub(crate) limit: Option<Expr>,
    pub(crate) offset: Option<Expr>,
    pub(crate) targets: Vec<Target>,
}

/// The error of SKIP LOCKED in a statement that takes no row locks.
pub(crate) fn unskippable() -> SqlError {
    SqlError::unsupported(
        "SKIP LOCKED",
        "rows are locked at read committed only: BEGIN ISOLATION LEVEL READ COMMITTED",
    )
}

/// The names of the tables in FROM, in order; `None` when FROM has an item of another kind.
fn names(body: &ast::SetExpr) -> Option<Vec<String>> {
    let ast::SetExpr::Select(select) = body else { return None };
    let name = |factor: &ast::TableFactor| match factor {
        ast::TableFactor::Table { alias: Some(alias), .. } => Some(folded(&alias.name)),
        ast::TableFactor::Table { name, .. } => parts(name).ok()?.pop(),
        _ => None,
    };
    let mut names = Vec::new();
    for from in &select.from {
        names.push(name(&from.relation)?);
        for join in &from.joins {
            names.push(name(&join.relation)?);
        }
    }
    Some(names)
}

impl Locking {
    /// The locks that `query`, planned as `select`, takes.
    ///
    /// # Errors
    /// 0A000 for a query whose result rows are not rows of tables; 42P01.
    pub(crate) fn of(query: &ast::Query, select: &Select) -> Result<Self> {
        let refused =
            |what: &str| Err(SqlError::unsupported(what, "lock the rows of a plain SELECT by their keys"));
        if select.groups.is_some() || select.is_distinct || select.values.is_some() {
            return refused("FOR UPDATE with DISTINCT, GROUP BY, aggregates or VALUES");
        }
        let names = names(&query.body).filter(|names| names.len() == select.levels.len());
        let Some(names) = names else { return refused("FOR UPDATE of this query at read committed") };
        let mut extended = Select { limit: None, offset: None, ..select.clone() };
        // Locks are taken on rows, and read their keys.
        extended.levels.iter_mut().for_each(|level| level.path.is_covering = false);
        let mut targets = Vec::new();
        for lock in &query.locks {
            let of = match &lock.of {
                None => None,
                Some(of) => Some(parts(of)?.join(".")),
            };
            if let Some(of) = of.as_ref().filter(|of| !names.contains(of)) {
                let message = format!("relation \"{of}\" in FOR UPDATE clause not found in FROM clause");
                return Err(SqlError::new(state::UNDEFINED_TABLE, message));
            }
            let mode = match lock.lock_type {
                ast::LockType::Update => LockMode::Update,
                ast::LockType::Share => LockMode::Share,
            };
            let taken = match lock.nonblock {
                None => Taken::Waits,
                Some(ast::NonBlock::Nowait) => Taken::Refuses,
                Some(ast::NonBlock::SkipLocked) => Taken::Skips,
            };
            for (level, name) in select.levels.iter().zip(&names) {
                if of.as_ref().is_some_and(|of| of != name) {
                    continue;
                }
                let key = level.schema.key_columns();
                if key.is_empty() {
                    return refused("FOR UPDATE of a table without a primary key");
                }
                let from = extended.output.len();
                extended.output.extend(key.iter().map(|place| Expr::Column(level.start + place)));
                let key = from..extended.output.len();
                targets.push(Target { table: level.table.clone(), key, mode, taken });
            }
        }
        let (limit, offset) = (select.limit.clone(), select.offset.clone());
        Ok(Self { select: extended, width: select.output.len(), limit, offset, targets })
    }

    /// Replaces the expression of the first column, which differs from the former one only in its type.
    pub(crate) fn answer_first(&mut self, expr: Expr) {
        if let Some(first) = self.select.output.first_mut() {
            *first = expr;
        }
    }

    /// True when locked rows are skipped.
    pub(crate) fn skips(&self) -> bool {
        self.targets.iter().any(|target| target.taken == Taken::Skips)
    }
}
