//! SELECT ... FOR UPDATE and FOR SHARE at read committed: locks the rows of the result, in its order, before
//! returning them.
//!
//! ```text
//! SELECT ─▶ rows in order, followed by the keys to lock ─▶ lock each: wait, reject or skip ─▶ LIMIT
//! ```
//! The limit counts locked rows, so the number of rows to read is not known before. SKIP LOCKED first reads a
//! few more rows than the limit, and four times as many each time that too few of them could be locked.

use ropewalk::hooks::LockMode;
use ropewalk::tables::Table;
use sqlparser::ast;

use crate::access::row_source::Access;
use crate::error::{Result, SqlError, state};
use crate::exec::point::{count, run_some};
use crate::expr::{Context, Expr, Record, bug};
use crate::limits::budget::Budget;
use crate::plan::Select;
use crate::syntax::names::{folded, parts};

/// Rows read beyond the limit because some may be skipped.
const SPARE: u64 = 16;

/// Handling of a row that another transaction has locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    Waits,
    Refuses,
    Skips,
}

/// A table whose rows are locked.
struct Target {
    table: Table,
    /// Position of its key in a row of the extended query.
    key: std::ops::Range<usize>,
    mode: LockMode,
    taken: Taken,
}

/// A SELECT that locks.
pub(crate) struct Locking {
    /// The query with the keys of the locked tables appended to its columns, without its limit.
    select: Select,
    width: usize,
    limit: Option<Expr>,
    offset: Option<Expr>,
    targets: Vec<Target>,
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

    /// Returns the locked rows.
    pub(crate) fn run(
        &self,
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
    ) -> Result<Vec<Record>> {
        let skip = count(self.offset.as_ref(), cx, "OFFSET")?.unwrap_or(0);
        let wanted = match count(self.limit.as_ref(), cx, "LIMIT")? {
            Some(0) => return Ok(Vec::new()),
            limit => limit.map_or(u64::MAX, |limit| limit.saturating_add(skip)),
        };
        let mut most = if self.skips() { wanted.saturating_add(SPARE) } else { wanted };
        loop {
            let budget = &Budget::new(budget.left());
            let mut found = Vec::new();
            run_some(&self.select, (0, most), access, cx, budget, &mut |row| {
                budget.take_row(&row)?;
                found.push(row);
                Ok(true)
            })?;
            let is_all = (found.len() as u64) < most;
            let mut rows: Vec<Record> = Vec::new();
            for mut row in found {
                if rows.len() as u64 == wanted {
                    break;
                }
                cx.interrupt.check(cx.env)?;
                if self.lock(&row, access)? {
                    row.truncate(self.width);
                    rows.push(row);
                }
            }
            if is_all || rows.len() as u64 == wanted {
                return Ok(rows.into_iter().skip(usize::try_from(skip).unwrap_or(usize::MAX)).collect());
            }
            most = most.saturating_mul(4);
        }
    }

    /// Locks the table rows of a result row; returns false when it is to be skipped.
    fn lock(&self, row: &Record, access: &mut Access<'_>) -> Result<bool> {
        for target in &self.targets {
            let key = row.get(target.key.clone()).ok_or_else(|| bug("a key after the row"))?;
            // The NULL side of an outer join.
            if key.iter().any(|value| value.is_null()) {
                continue;
            }
            let waits = target.taken == Taken::Waits;
            if access.transaction()?.tables().lock(&target.table, key, target.mode, waits)? {
                continue;
            }
            if target.taken == Taken::Skips {
                return Ok(false);
            }
            let message = format!("could not obtain lock on row in relation \"{}\"", target.table.name());
            return Err(SqlError::new(state::LOCK_NOT_AVAILABLE, message));
        }
        Ok(true)
    }
}
