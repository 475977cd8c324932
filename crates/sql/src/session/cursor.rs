//! Cursors: DECLARE, FETCH, MOVE, CLOSE.
//!
//! ```text
//! DECLARE ─▶ the query runs at once ─▶ Spool of its rows        later writes are not visible
//! FETCH, MOVE ─▶ a position: 0 before the first row, 1 to n on a row, n + 1 after the last
//! ```
//! A cursor ends with its transaction, and with a rollback to a savepoint that is older than the cursor. WITH
//! HOLD, it survives the commit of the transaction. Each cursor has one page of rows in memory; the rest is
//! in temporary files.

use std::collections::BTreeMap;
use std::sync::Arc;

use ropewalk::Isolation;
use ropewalk::tables::Value;

use crate::access::cursors::{CursorShape, Rows, unknown};
use crate::access::row_source::Access;
use crate::dml::current_of::with_keys;
use crate::error::{Result, SqlError, state};
use crate::exec::spool::Spool;
use crate::expr::{Context, bug};
use crate::limits::budget::Budget;
use crate::session::Session;
use crate::session::prepared::{Plan, Prepared};
use crate::syntax::cursor_syntax::{Declare, Direction, Fetch};
use crate::types::outcome::{Outcome, ResultColumn};
use crate::types::settings::isolation_name;

/// Maximum number of cursors of one session.
const CURSORS_MAX: usize = 1000;

struct Cursor {
    spool: Spool,
    position: u64,
    /// Number of savepoints before the cursor; `None` once it no longer belongs to a transaction.
    savepoints: Option<usize>,
}

/// The cursors of a session.
#[derive(Default)]
pub(crate) struct Cursors {
    all: BTreeMap<String, Cursor>,
    pub(crate) shapes: Arc<BTreeMap<String, CursorShape>>,
}

impl Cursors {
    fn retain(&mut self, keep: impl Fn(&Cursor, &CursorShape) -> bool) {
        if self.all.is_empty() {
            return;
        }
        let shapes = Arc::make_mut(&mut self.shapes);
        self.all.retain(|name, cursor| shapes.get(name).is_some_and(|shape| keep(cursor, shape)));
        shapes.retain(|name, _| self.all.contains_key(name));
    }

    /// Drops cursors at the end of the transaction, except those WITH HOLD after a commit.
    pub(crate) fn end(&mut self, is_committed: bool) {
        self.retain(|cursor, shape| cursor.savepoints.is_none() || is_committed && shape.is_held);
        self.all.values_mut().for_each(|cursor| cursor.savepoints = None);
    }

    /// Drops the cursors declared after the transaction had this number of savepoints.
    pub(crate) fn back_to(&mut self, savepoints: usize) {
        self.retain(|cursor, _| cursor.savepoints.is_none_or(|before| before <= savepoints));
    }

    fn close(&mut self, name: &str) -> bool {
        Arc::make_mut(&mut self.shapes).remove(name);
        self.all.remove(name).is_some()
    }

    pub(crate) fn close_all(&mut self) {
        if !self.all.is_empty() {
            self.all.clear();
            self.shapes = Arc::default();
        }
    }
}

/// The rows that a FETCH returns, in order, and the position after it.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    first: u64,
    count: u64,
    backward: bool,
    end: u64,
}

/// Computes the effect of a FETCH at `position` of `count` rows.
fn step(direction: Direction, position: u64, count: u64) -> Step {
    let none = |end| Step { first: end, count: 0, backward: false, end };
    let one = |number: i128| match u64::try_from(number) {
        Ok(number) if (1..=count).contains(&number) => {
            Step { first: number, count: 1, backward: number < position, end: number }
        }
        Ok(0) | Err(_) if number <= 0 => Step { backward: position > 0, ..none(0) },
        _ => none(count + 1),
    };
    match direction {
        Direction::Absolute(number) if number < 0 => {
            // The row is counted from the end, so the number of rows is needed.
            Step { backward: true, ..one(i128::from(count) + 1 + i128::from(number)) }
        }
        Direction::Absolute(number) => {
            let step = one(number.into());
            Step { backward: step.end <= position && position > 0, ..step }
        }
        // The current row again.
        Direction::Relative(0) | Direction::Forward(Some(0)) | Direction::Backward(Some(0)) => {
            let stands = (1..=count).contains(&position);
            Step { first: position, count: stands.into(), backward: stands, end: position }
        }
        Direction::Relative(number) => one(i128::from(position) + i128::from(number)),
        Direction::Forward(Some(back)) if back < 0 => {
            step(Direction::Backward(Some(back.saturating_neg())), position, count)
        }
        Direction::Backward(Some(on)) if on < 0 => {
            step(Direction::Forward(Some(on.saturating_neg())), position, count)
        }
        Direction::Forward(wanted) => {
            let left = count.saturating_sub(position);
            let wanted = wanted.map_or(u64::MAX, i64::unsigned_abs);
            let end = if wanted > left { count + 1 } else { position + wanted };
            Step { first: position + 1, count: left.min(wanted), backward: false, end }
        }
        Direction::Backward(wanted) => {
            let left = position.saturating_sub(1);
            let wanted = wanted.map_or(u64::MAX, i64::unsigned_abs);
            let end = if wanted > left { 0 } else { position - wanted };
            Step { first: left, count: left.min(wanted), backward: true, end }
        }
    }
}

impl Session {
    /// DECLARE.
    pub(crate) fn declare(&mut self, prepared: &mut Prepared, params: &[Value<'_>]) -> Result<Outcome> {
        self.may_run(prepared)?;
        let Plan::Declare(declared) = &mut prepared.plan else { return Err(bug("no DECLARE")) };
        let (declare, query) = (&declared.0, &mut declared.1);
        if self.open.is_none() && !declare.is_held {
            let message = "DECLARE CURSOR can only be used in transaction blocks";
            return Err(SqlError::new(state::NO_ACTIVE_SQL_TRANSACTION, message));
        }
        if self.cursors.all.contains_key(&declare.name) {
            let message = format!("cursor \"{}\" already exists", declare.name);
            return Err(SqlError::new(state::DUPLICATE_CURSOR, message));
        }
        if self.cursors.all.len() >= CURSORS_MAX {
            let message = format!("more than {CURSORS_MAX} cursors");
            return Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message).hint("close some of them"));
        }
        let isolation = self.open.as_ref().map_or(self.settings.isolation, |open| open.isolation);
        if query.locks() && isolation != Isolation::Serializable {
            return Err(SqlError::unsupported(
                format!("FOR UPDATE of a cursor at {}", isolation_name(isolation)),
                "lock the rows by a SELECT",
            ));
        }
        let columns = query.shape().ok_or_else(|| bug("a query without columns"))?;
        let is_open = self.open.is_some();
        let (now, interrupt, db) = (self.now(), self.interrupt(), self.db.clone());
        let budget = Budget::new(self.settings.memory_bytes_max);
        let (snapshot, zone, shares) = (db.snapshot(), &self.settings.zone.clone(), self.shares.clone());
        let mut access = match self.transaction() {
            Some(transaction) => Access::Transaction(&db, transaction),
            None => Access::Snapshot(&db, &snapshot),
        };
        query.renew(access.again())?;
        // In a transaction the row executor runs the query and can add the keys, for WHERE CURRENT OF.
        let keyed = match &query.plan {
            Plan::Select(select) if is_open => with_keys(select),
            _ => None,
        };
        let key_types = keyed.iter().flat_map(|(_, _, types)| types.iter().copied());
        let types = columns.iter().map(|column| column.ty).chain(key_types).collect();
        let mut spool = Spool::new(types, &shares, crate::limits::temp_files::Spooled::new(&db))?;
        let bound = query.bound(params)?;
        let env = db.engine().env();
        let cx =
            Context { params: &bound, answers: &[], now, env, zone, interrupt: &interrupt, nested: None };
        let mut sink = |row: Vec<Value<'static>>| spool.push(&row).map(|()| true);
        match &keyed {
            Some((select, _, _)) => query.stream_select(select, &mut access, &cx, &budget, &mut sink)?,
            None => query.stream(&mut access, &cx, &budget, &mut sink)?,
        }
        if let Some(open) = &self.open {
            let seq = open.transaction.latest_read_seq();
            self.latest_read_seq(seq);
        }
        let shape = CursorShape {
            columns,
            statement: declare.to_string(),
            is_binary: declare.is_binary,
            is_held: declare.is_held,
            scrolls: declare.scrolls != Some(false),
            since: self.db.engine().env().clock.wall_micros(),
            rows: keyed.map(|(_, table, _)| Rows { table, key: None }),
        };
        Arc::make_mut(&mut self.cursors.shapes).insert(declare.name.clone(), shape);
        let cursor = Cursor { spool, position: 0, savepoints: self.savepoints() };
        self.cursors.all.insert(declare.name.clone(), cursor);
        Ok(Outcome::of("DECLARE CURSOR"))
    }

    /// FETCH and MOVE.
    pub(crate) fn fetch(&mut self, fetch: &Fetch) -> Result<Outcome> {
        let budget = Budget::new(self.settings.memory_bytes_max);
        let Cursors { all, shapes } = &mut self.cursors;
        let (Some(cursor), Some(shape)) = (all.get_mut(&fetch.name), shapes.get(&fetch.name)) else {
            return Err(unknown(&fetch.name));
        };
        let step = step(fetch.direction, cursor.position, cursor.spool.len());
        if step.backward && !shape.scrolls {
            let error =
                SqlError::new(state::OBJECT_NOT_IN_PREREQUISITE_STATE, "cursor can only scan forward");
            return Err(error.hint("declare it with SCROLL"));
        }
        let mut rows = Vec::new();
        for place in 0..if fetch.moves { 0 } else { step.count } {
            let number = if step.backward { step.first - place } else { step.first + place };
            let mut row = cursor.spool.row(number - 1)?;
            row.truncate(shape.columns.len());
            budget.take_row(&row)?;
            rows.push(row);
        }
        cursor.position = step.end;
        if shape.rows.is_some() {
            let stands = (1..=cursor.spool.len()).contains(&step.end);
            let row = if stands { Some(cursor.spool.row(step.end - 1)?) } else { None };
            let key = row.map(|mut row| row.split_off(shape.columns.len()));
            if let Some(rows) =
                Arc::make_mut(shapes).get_mut(&fetch.name).and_then(|shape| shape.rows.as_mut())
            {
                rows.key = key;
            }
        }
        let shape = shapes.get(&fetch.name).ok_or_else(|| unknown(&fetch.name))?;
        let count = Some(step.count);
        Ok(match fetch.moves {
            true => Outcome { count, ..Outcome::of("MOVE") },
            false => Outcome {
                count,
                columns: Some(shape.columns.clone()),
                rows,
                is_binary: shape.is_binary,
                ..Outcome::of("FETCH")
            },
        })
    }

    /// The columns of a cursor, and whether its rows are returned in binary; for portals of the protocol.
    pub fn cursor(&self, name: &str) -> Option<(Arc<[ResultColumn]>, bool)> {
        self.cursors.shapes.get(name).map(|shape| (shape.columns.clone(), shape.is_binary))
    }

    /// Closes a cursor. Returns false if the cursor does not exist.
    pub fn close_cursor(&mut self, name: &str) -> bool {
        self.cursors.close(name)
    }
}

impl std::fmt::Display for Declare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let binary = if self.is_binary { " BINARY" } else { "" };
        let scrolls = match self.scrolls {
            None => "",
            Some(true) => " SCROLL",
            Some(false) => " NO SCROLL",
        };
        let held = if self.is_held { " WITH HOLD" } else { "" };
        let (name, query) = (crate::syntax::names::ident(&self.name), &self.query);
        write!(f, "DECLARE {name}{binary}{scrolls} CURSOR{held} FOR {query}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First row, count, backward, end.
    fn went(direction: Direction, position: u64) -> (u64, u64, bool, u64) {
        let Step { first, count, backward, end } = step(direction, position, 5);
        (if count > 0 { first } else { 0 }, count, backward, end)
    }

    #[test]
    fn fetch_step_all_directions_and_positions() {
        use Direction::{Absolute, Backward, Forward, Relative};
        assert_eq!(went(Forward(Some(1)), 0), (1, 1, false, 1));
        assert_eq!(went(Forward(Some(3)), 3), (4, 2, false, 6));
        assert_eq!(went(Forward(Some(2)), 3), (4, 2, false, 5));
        assert_eq!(went(Forward(None), 6), (0, 0, false, 6));
        assert_eq!(went(Forward(Some(-2)), 4), (3, 2, true, 2));
        assert_eq!(went(Backward(Some(1)), 6), (5, 1, true, 5));
        assert_eq!(went(Backward(None), 3), (2, 2, true, 0));
        assert_eq!(went(Backward(Some(1)), 0), (0, 0, true, 0));
        assert_eq!(went(Forward(Some(0)), 2), (2, 1, true, 2));
        assert_eq!(went(Forward(Some(0)), 0), (0, 0, false, 0));
        assert_eq!(went(Absolute(4), 2), (4, 1, false, 4));
        assert_eq!(went(Absolute(2), 2), (2, 1, true, 2));
        assert_eq!(went(Absolute(0), 2), (0, 0, true, 0));
        assert_eq!(went(Absolute(9), 2), (0, 0, false, 6));
        assert_eq!(went(Absolute(-1), 0), (5, 1, true, 5));
        assert_eq!(went(Absolute(-9), 0), (0, 0, true, 0));
        assert_eq!(went(Relative(-1), 3), (2, 1, true, 2));
        assert_eq!(went(Relative(2), 5), (0, 0, false, 6));
        assert_eq!(went(Relative(i64::MIN), 5), (0, 0, true, 0));
    }
}
