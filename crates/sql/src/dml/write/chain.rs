//! WITH whose queries write or lock rows.
//! Example: `WITH gone AS (DELETE FROM t RETURNING *) INSERT INTO u SELECT * FROM gone`.
//!
//!   read:  every part finds its rows and reads its tables, as they were before the statement
//!   write: the referenced parts in order, each reading the rows that earlier ones returned;
//!          the main statement after WITH; the unreferenced parts
//!
//! Invariants
//! 1. A part sees the writes of another one only through its RETURNING (PostgreSQL's rule).
//! 2. A row found by two parts is written only by the first of them.
//!
//! Tables that are joined with the rows of a part are read completely, within the statement's memory budget.

use std::collections::HashSet;
use std::sync::Arc;

use ropewalk::tables::{OwnedRow, Type};
use sqlparser::ast;

use super::Delete;
use super::Given;
use super::Insert;
use super::Returning;
use super::Source;
use super::Update;
use super::Written;
use super::run::{cast_to, given};
use crate::access::row_source::Access;
use crate::dml::keyed::Keyed;
use crate::error::{Result, SqlError, state};
use crate::exec::finder::Finder;
use crate::exec::nested_loop::{Filled, Node, fill_expr};
use crate::exec::point::run;
use crate::expr::{Context, Expr, Record, bug};
use crate::limits::budget::Budget;
use crate::plan::locking::{Locking, unskippable};
use crate::plan::with::{Last, Named};
use crate::plan::{Planner, Select};
use crate::syntax::names::folded;
use crate::types::outcome::ResultColumn;

/// A statement with WITH whose queries write or lock rows.
pub(crate) struct Chain {
    parts: Vec<Part>,
    main: Main,
}

struct Part {
    step: Step,
    /// The rows it returned, shared with the parts that read them.
    answered: Last,
    /// True if another part reads it. Unreferenced parts run last, as in PostgreSQL.
    is_read: bool,
}

enum Main {
    Query(Box<Node>),
    Step(Step),
}

/// A statement that writes, or that locks the rows it reads.
enum Step {
    Lock(Box<(Select, Box<Locking>)>),
    Insert(Box<Insert>),
    Update(Box<Update>),
    Delete(Box<Delete>),
    Keyed(Box<Keyed>),
}

/// The data that a step has read from tables.
enum Ready {
    Values(Vec<Vec<Given>>),
    Query(Box<Node>),
    Rows(Vec<OwnedRow>),
    /// A locking step reads its rows when it locks them.
    Nothing,
}

/// Stored keys of the rows that the statement has written.
type Touched = HashSet<Vec<u8>>;

fn refused(what: impl std::fmt::Display) -> SqlError {
    SqlError::unsupported(what, "move it to the main statement after WITH")
}

/// True for a query of WITH that writes.
pub(crate) fn writes(query: &ast::Query) -> bool {
    matches!(query.body.as_ref(), ast::SetExpr::Insert(_) | ast::SetExpr::Update(_) | ast::SetExpr::Delete(_))
}

/// The body of a query; rejects any other clauses.
fn bare(query: &ast::Query) -> Result<&ast::SetExpr> {
    let mut rest = query.clone();
    rest.with = None;
    if rest.to_string() != query.body.to_string() {
        return Err(refused(format!("the statement {query}")));
    }
    Ok(&query.body)
}

/// True if one of the values has a subquery.
fn asks_in(set: &[(usize, Given)]) -> bool {
    set.iter().any(|(_, given)| matches!(given, Given::Expr(expr) if expr.has_inner()))
}

fn plain(returning: Option<&Returning>) -> Result<()> {
    match returning {
        Some(returning) if returning.output.iter().any(Expr::has_inner) => {
            Err(refused("a subquery in RETURNING"))
        }
        _ => Ok(()),
    }
}

impl Planner<'_> {
    /// Plans a statement with writing queries in WITH. Returns its result columns, too.
    pub(crate) fn chain(&mut self, query: &ast::Query) -> Result<(Chain, Option<Vec<ResultColumn>>)> {
        let with = query.with.as_ref().ok_or_else(|| bug("no WITH"))?;
        let (known, was_small) = (self.named.len(), self.is_small);
        self.chained = true;
        let mut parts = Vec::new();
        let mut planned = Ok(());
        for cte in &with.cte_tables {
            planned = self.link(cte, with.recursive, &mut parts);
            if planned.is_err() {
                break;
            }
        }
        let main = planned.and_then(|()| {
            let mut rest = query.clone();
            rest.with = None;
            match writes(&rest) {
                true => self.step(bare(&rest)?).map(Main::Step),
                false => {
                    self.is_small = was_small;
                    self.small(&rest).map(|node| Main::Query(Box::new(node)))
                }
            }
        });
        self.named.truncate(known);
        (self.is_small, self.chained) = (was_small, false);
        let main = main?;
        // Each reader holds a reference.
        parts.iter_mut().for_each(|part: &mut Part| part.is_read = Arc::strong_count(&part.answered) > 1);
        let columns = match &main {
            Main::Query(node) => Some(node.columns.clone()),
            Main::Step(step) => step.returning().map(|returning| returning.columns.clone()),
        };
        Ok((Chain { parts, main }, columns))
    }

    fn link(&mut self, cte: &ast::Cte, recursive: bool, parts: &mut Vec<Part>) -> Result<()> {
        let locks = !cte.query.locks.is_empty();
        if !locks && !writes(&cte.query) {
            self.named.push(Named::of(cte, recursive));
            return Ok(());
        }
        if cte.query.with.is_some() {
            return Err(refused("WITH in a query of WITH that writes"));
        }
        let step = match locks {
            true => self.lock_step(&cte.query)?,
            false => {
                self.is_small = true;
                self.step(bare(&cte.query)?)?
            }
        };
        let answered = Last::default();
        let returned = step.columns();
        let mut columns: Vec<(String, Type)> =
            returned.iter().map(|column| (column.name.clone(), column.ty)).collect();
        crate::plan::row_in_subquery::check_width(&cte.alias, columns.len())?;
        for (column, given) in columns.iter_mut().zip(&cte.alias.columns) {
            column.0 = folded(&given.name);
        }
        let name = folded(&cte.alias.name);
        self.named.push(Named::answered(name, columns, answered.clone(), &cte.query));
        parts.push(Part { step, answered, is_read: false });
        Ok(())
    }

    /// Plans a query that locks rows by their keys.
    fn lock_step(&mut self, query: &ast::Query) -> Result<Step> {
        let is_of_with = |name: &ast::ObjectName| match name.0.as_slice() {
            [ast::ObjectNamePart::Identifier(name)] => {
                let name = folded(name);
                self.named.iter().any(|named| named.is_called(&name))
            }
            _ => false,
        };
        if let ast::SetExpr::Select(select) = query.body.as_ref()
            && select.from.iter().any(|from| match &from.relation {
                ast::TableFactor::Table { name, .. } => is_of_with(name),
                _ => false,
            })
        {
            return Err(refused("FOR UPDATE of a query of WITH"));
        }
        let was_small = std::mem::replace(&mut self.is_small, false);
        let planned = self.locking_query(query);
        self.is_small = was_small;
        match planned? {
            (select, Some(locking)) => Ok(Step::Lock(Box::new((select, locking)))),
            (_, None) => Err(bug("a query that locks nothing")),
        }
    }

    /// Plans one writing statement. Its subqueries are read before it runs.
    fn step(&mut self, body: &ast::SetExpr) -> Result<Step> {
        self.is_small = true;
        match body {
            ast::SetExpr::Insert(ast::Statement::Insert(insert)) => {
                let insert = self.insert(insert)?;
                plain(insert.returning.as_ref())?;
                if insert
                    .on_conflict
                    .as_ref()
                    .and_then(|on| on.update.as_ref())
                    .is_some_and(|(set, filter)| asks_in(set) || filter.as_ref().is_some_and(Expr::has_inner))
                {
                    return Err(refused("a subquery in ON CONFLICT"));
                }
                Ok(Step::Insert(Box::new(insert)))
            }
            ast::SetExpr::Update(ast::Statement::Update(update)) => {
                let mark = self.mark();
                match self.update(update) {
                    Ok(plan) if !plan.found.filter.iter().any(Expr::has_inner) && !asks_in(&plan.set) => {
                        plain(plan.returning.as_ref())?;
                        return Ok(Step::Update(Box::new(plan)));
                    }
                    Err(error) if error.state != state::FEATURE_NOT_SUPPORTED => return Err(error),
                    _ => self.back_to(mark),
                }
                let keyed = self.keyed_update(update)?;
                plain(keyed.columns())?;
                Ok(Step::Keyed(Box::new(keyed)))
            }
            ast::SetExpr::Delete(ast::Statement::Delete(delete)) => {
                let mark = self.mark();
                match self.delete(delete) {
                    Ok(plan) if !plan.found.filter.iter().any(Expr::has_inner) => {
                        plain(plan.returning.as_ref())?;
                        return Ok(Step::Delete(Box::new(plan)));
                    }
                    Err(error) if error.state != state::FEATURE_NOT_SUPPORTED => return Err(error),
                    _ => self.back_to(mark),
                }
                let keyed = self.keyed_delete(delete)?;
                plain(keyed.columns())?;
                Ok(Step::Keyed(Box::new(keyed)))
            }
            other => Err(refused(other)),
        }
    }
}

impl Step {
    fn returning(&self) -> Option<&Returning> {
        match self {
            Self::Insert(insert) => insert.returning.as_ref(),
            Self::Update(update) => update.returning.as_ref(),
            Self::Delete(delete) => delete.returning.as_ref(),
            Self::Keyed(keyed) => keyed.columns(),
            Self::Lock(_) => None,
        }
    }

    /// The result columns.
    fn columns(&self) -> &[ResultColumn] {
        match self {
            Self::Lock(lock) => &lock.0.columns,
            _ => self.returning().map_or(&[][..], |returning| &returning.columns),
        }
    }

    fn command(&self) -> &'static str {
        match self {
            Self::Insert(_) => "INSERT",
            Self::Update(_) => "UPDATE",
            Self::Delete(_) => "DELETE",
            Self::Keyed(keyed) => keyed.command(),
            Self::Lock(_) => "SELECT",
        }
    }

    /// Reads the required rows of tables, as they are before the statement.
    fn read(
        &self,
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
        filled: &mut Filled,
    ) -> Result<Ready> {
        let query = match self {
            Self::Lock(_) => return Ok(Ready::Nothing),
            Self::Update(update) => return update.found.rows(access, cx, budget).map(Ready::Rows),
            Self::Delete(delete) => return delete.found.rows(access, cx, budget).map(Ready::Rows),
            Self::Insert(insert) => match &insert.source {
                Source::Values(rows) => {
                    let mut rows = rows.clone();
                    for given in rows.iter_mut().flatten() {
                        if let Given::Expr(expr) = given {
                            fill_expr(expr, Some(access), cx, budget, filled)?;
                        }
                    }
                    return Ok(Ready::Values(rows));
                }
                Source::Whole(query, _) => query,
                Source::Select(_) => return Err(bug("an INSERT within WITH planned by keys")),
            },
            Self::Keyed(keyed) => keyed.query(),
        };
        let Finder::Loops(node) = query else { return Err(bug("an engine plan within WITH")) };
        let mut node = node.clone();
        node.fill(Some(access), cx, budget, filled)?;
        Ok(Ready::Query(node))
    }

    fn write(
        &self,
        ready: Ready,
        touched: &mut Touched,
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
    ) -> Result<Written> {
        match (self, ready) {
            (Self::Lock(lock), Ready::Nothing) => {
                let (select, locking) = lock.as_ref();
                let rows = if access.is_locking() {
                    locking.run(access, cx, budget)?
                } else if locking.skips() {
                    return Err(unskippable());
                } else {
                    budget.collect_rows(|sink| run(select, access, cx, budget, sink))?
                };
                Ok(Written { count: rows.len() as u64, rows })
            }
            (Self::Insert(insert), Ready::Values(rows)) => {
                insert.write(given(&rows, cx, budget)?, access, cx, budget)
            }
            (Self::Insert(insert), Ready::Query(node)) => {
                let Source::Whole(_, casts) = &insert.source else { return Err(bug("a source")) };
                let rows = node.answer_filled(cx, budget)?.into_iter().map(|row| {
                    let record = cast_to(row, casts, cx)?;
                    Ok(record.into_iter().map(Some).collect())
                });
                insert.write(rows.collect::<Result<_>>()?, access, cx, budget)
            }
            (Self::Update(update), Ready::Rows(rows)) => {
                update.write(untouched(rows, touched), access, cx, budget)
            }
            (Self::Delete(delete), Ready::Rows(rows)) => {
                delete.write(untouched(rows, touched), access, cx, budget)
            }
            (Self::Keyed(keyed), Ready::Query(node)) => {
                keyed.write(node.answer_filled(cx, budget)?, Some(touched), access, cx, budget)
            }
            _ => Err(bug("a step that read something else")),
        }
    }
}

fn untouched(rows: Vec<OwnedRow>, touched: &mut Touched) -> Vec<OwnedRow> {
    rows.into_iter().filter(|row| touched.insert(row.row().stored_key().to_vec())).collect()
}

impl Chain {
    /// True if a query of WITH locks the rows that it reads.
    pub(crate) fn locks(&self) -> bool {
        self.parts.iter().any(|part| matches!(part.step, Step::Lock(_)))
    }

    /// The lines of EXPLAIN.
    pub(crate) fn lines(&self) -> Vec<String> {
        let line = |step: &Step| format!("{} within WITH", step.command());
        let mut lines: Vec<String> = self.parts.iter().map(|part| line(&part.step)).collect();
        lines.push(match &self.main {
            Main::Query(_) => "Small: in memory, by nested loops".into(),
            Main::Step(step) => step.command().into(),
        });
        lines
    }

    /// Runs the statement. Returns the command and the result of the main statement.
    pub(crate) fn run(
        &self,
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
    ) -> Result<(&'static str, Written)> {
        // A query of WITH is evaluated once, whatever the number of its readers.
        let filled = &mut Filled::default();
        let read = self.parts.iter().map(|part| part.step.read(access, cx, budget, filled));
        let read: Vec<Ready> = read.collect::<Result<_>>()?;
        let main = match &self.main {
            Main::Query(node) => {
                let mut node = node.clone();
                node.fill(Some(access), cx, budget, filled)?;
                Ready::Query(node)
            }
            Main::Step(step) => step.read(access, cx, budget, filled)?,
        };
        let mut touched = Touched::new();
        let (first, last): (Vec<_>, Vec<_>) = self.parts.iter().zip(read).partition(|(part, _)| part.is_read);
        for (part, ready) in first {
            let written = part.step.write(ready, &mut touched, access, cx, budget)?;
            *part.answered.lock().unwrap_or_else(|held| held.into_inner()) = Arc::new(written.rows);
        }
        let done = match (&self.main, main) {
            (Main::Query(_), Ready::Query(node)) => {
                let rows: Vec<Record> = node.answer_filled(cx, budget)?;
                ("SELECT", Written { count: rows.len() as u64, rows })
            }
            (Main::Step(step), ready) => {
                (step.command(), step.write(ready, &mut touched, access, cx, budget)?)
            }
            _ => return Err(bug("a query that read something else")),
        };
        // An unreferenced query that only locks rows is not run.
        for (part, ready) in last.into_iter().filter(|(part, _)| !matches!(part.step, Step::Lock(_))) {
            part.step.write(ready, &mut touched, access, cx, budget)?;
        }
        for part in &self.parts {
            *part.answered.lock().unwrap_or_else(|held| held.into_inner()) = Arc::default();
        }
        Ok(done)
    }
}
