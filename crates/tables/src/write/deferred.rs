//! Deferred constraints: checks that wait for the commit, or for the transaction to make them immediate.
//!
//! ```text
//! statement ends: its checks are judged ─┬─ hold ─▶ guarded, done
//!                                        └─ violated, constraint deferred ─▶ waits ─▶ made immediate, or commit: judged again
//! ```
//!
//! Only violations wait: a later statement that breaks a check which held has a check for that itself. A
//! judgement reads rows as they are then, not those of the statement that requires it, so it may be repeated.
//!
//! Invariants
//! 1. A transaction commits only when all its checks were judged: [`TablesState::operation`] asserts it.
//! 2. A rollback to a savepoint restores the checks that waited there, and the constraints that were deferred.
//! 3. While a check of a table waits, its definition does not change, so that check and definition agree.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::{Result, TablesError};
use crate::read::TablesRead;
use crate::schema::Schema;
use crate::schema::define::Deferral;
use crate::write::tx::{TablesState, TablesTx};
use crate::write::{Pending, Values};

/// Most bytes of the checks that wait in one transaction, estimated.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// Estimated bytes of a check or a value, without the contents of varying length.
pub(crate) const ITEM_BYTES: usize = 64;

/// A constraint: the number of its table, and its name.
type Named = (u32, String);

/// The constraints that a transaction has deferred or made immediate.
#[derive(Debug, Clone, Default)]
struct Modes {
    /// Those that are not named; `None`: as declared.
    others: Option<bool>,
    named: BTreeMap<Named, bool>,
}

/// A check that waits. Tables and constraints are found again when it is judged.
#[derive(Debug, Clone)]
pub(super) enum Check {
    /// Rows with these values refer to a row.
    Parent(Values),
    /// As [`Check::Parent`], after the row that they referred to was deleted or changed.
    Gone(Values),
    /// One row at most has this key in the index with this object.
    Repeated { index: u32, key: Vec<u8> },
}

struct Waiting {
    constraint: Named,
    deferral: Deferral,
    check: Check,
    bytes: usize,
    /// The step of the transaction that judged it.
    judged: Option<u32>,
}

/// Selects checks that wait, by their place and contents.
type Judges<'j> = dyn Fn(usize, &Waiting) -> bool + 'j;

/// The deferred constraints of one transaction.
#[derive(Default)]
pub(crate) struct Deferred {
    modes: Arc<Modes>,
    waiting: Vec<Waiting>,
    bytes: usize,
    /// Grows when checks were judged.
    step: u32,
    /// The number of checks when the caller's statement began, whose end they wait for.
    begun: Option<usize>,
}

/// A savepoint of the deferred constraints.
#[derive(Clone)]
pub struct TablesMark {
    modes: Arc<Modes>,
    waiting: usize,
    step: u32,
}

impl Deferred {
    pub(super) fn mark(&self) -> TablesMark {
        TablesMark { modes: self.modes.clone(), waiting: self.waiting.len(), step: self.step }
    }

    pub(super) fn rolled_back(&mut self, mark: &TablesMark) {
        debug_assert!(mark.waiting <= self.waiting.len(), "checks are removed by a rollback only");
        self.modes.clone_from(&mark.modes);
        self.waiting.truncate(mark.waiting);
        self.bytes = self.waiting.iter().map(|waiting| waiting.bytes).sum();
        for waiting in &mut self.waiting {
            waiting.judged = waiting.judged.filter(|step| *step <= mark.step);
        }
    }

    /// True when checks of a constraint wait: for the end of the caller's statement, or for the commit.
    pub(crate) fn defers(&self, deferral: Deferral, table: u32, name: &str) -> bool {
        deferral.is_deferrable() && (self.begun.is_some() || self.is_deferred(deferral, table, name))
    }

    /// True when checks of a deferrable constraint wait for the commit.
    fn is_deferred(&self, deferral: Deferral, table: u32, name: &str) -> bool {
        // A transaction names few constraints, or none.
        let named = match self.modes.named.is_empty() {
            true => None,
            false => self.modes.named.get(&(table, name.to_owned())).copied(),
        };
        named.or(self.modes.others).unwrap_or(deferral == Deferral::InitiallyDeferred)
    }

    fn waits(&self) -> impl Iterator<Item = &Waiting> {
        self.waiting.iter().filter(|waiting| waiting.judged.is_none())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waits().next().is_none()
    }

    /// True while a check of the table waits.
    pub(crate) fn concerns(&self, table: u32) -> bool {
        self.waits().any(|waiting| waiting.constraint.0 == table)
    }

    pub(super) fn push(&mut self, constraint: Named, deferral: Deferral, check: Check) -> Result<()> {
        let values = match &check {
            Check::Parent(values) | Check::Gone(values) => {
                let mut stored = Vec::new();
                values.iter().for_each(|value| value.put_key(&mut stored));
                stored.len() + values.len() * ITEM_BYTES
            }
            Check::Repeated { key, .. } => key.len(),
        };
        let bytes = values + ITEM_BYTES + constraint.1.len();
        self.bytes += bytes;
        self.waiting.push(Waiting { constraint, deferral, check, bytes, judged: None });
        check_bytes(self.bytes)
    }
}

/// Rejects more checks than may wait.
pub(crate) fn check_bytes(bytes: usize) -> Result<()> {
    if bytes > WAITING_BYTES_MAX {
        let (table, what) = (String::new(), "memory of the deferred checks of a transaction");
        return Err(TablesError::TooLarge { table, what, bytes, max: WAITING_BYTES_MAX });
    }
    Ok(())
}

impl TablesState {
    /// Sets a savepoint; the caller sets one for the writes as well.
    pub fn mark(&self) -> TablesMark {
        self.deferred.mark()
    }

    /// True while checks of deferred constraints wait: call [`TablesTx::check_deferred`] before the commit.
    pub fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }
}

impl TablesTx<'_> {
    /// Defers the checks of all deferrable constraints to the commit, or makes them immediate, in this
    /// transaction. Checks that become immediate are judged now.
    ///
    /// # Errors
    /// [`TablesError::ForeignKey`], [`TablesError::Unique`]: a constraint that would become immediate is
    /// violated; nothing is changed then.
    pub fn defer_all(&mut self, defers: bool) -> Result<()> {
        let modes = Modes { others: Some(defers), named: BTreeMap::new() };
        self.set_modes(modes, &|_, _| !defers)
    }

    /// As [`TablesTx::defer_all`], for the constraint called `name` of a table.
    ///
    /// # Errors
    /// As [`TablesTx::defer_all`]; [`TablesError::UnknownConstraint`]; [`TablesError::Definition`] for one that
    /// is not deferrable.
    pub fn defer(&mut self, table: &str, name: &str, defers: bool) -> Result<()> {
        self.begin();
        let id = self.find(table)?.ok_or_else(|| TablesError::UnknownTable { name: table.to_owned() })?;
        let schema = self.schema_by_id(id)?;
        let unknown =
            || TablesError::UnknownConstraint { table: table.to_owned(), constraint: name.to_owned() };
        let deferral = schema.deferral_of(name).ok_or_else(unknown)?;
        if !deferral.is_deferrable() {
            return Err(crate::error::invalid(table, format!("constraint {name:?} is not deferrable")));
        }
        let constraint = (schema.id(), name.to_owned());
        let mut modes = Modes::clone(&self.state.deferred.modes);
        modes.named.insert(constraint.clone(), defers);
        self.set_modes(modes, &|_, waiting| !defers && waiting.constraint == constraint)
    }

    /// Requires that the rows with these values have their parent when the transaction commits.
    pub(crate) fn expect_later(
        &mut self,
        table: u32,
        foreign_key: (String, Deferral),
        values: Values,
    ) -> Result<()> {
        let (name, deferral) = foreign_key;
        self.state.deferred.push((table, name), deferral, Check::Parent(values))
    }

    fn set_modes(&mut self, modes: Modes, judges: &Judges<'_>) -> Result<()> {
        self.judge_waiting(judges)?;
        self.state.deferred.modes = Arc::new(modes);
        Ok(())
    }

    /// Judges all checks that wait.
    ///
    /// # Errors
    /// [`TablesError::ForeignKey`], [`TablesError::Unique`]: a constraint is violated.
    pub fn check_deferred(&mut self) -> Result<()> {
        self.judge_waiting(&|_, _| true)
    }

    /// Begins a statement of the caller, of several changes: deferrable constraints are checked by
    /// [`TablesTx::end_checks`], at the earliest.
    pub fn begin_checks(&mut self) {
        self.state.deferred.begun = Some(self.state.deferred.waiting.len());
    }

    /// Ends the caller's statement and judges its checks of constraints that are not deferred. After an error the
    /// caller rolls the statement back.
    ///
    /// # Errors
    /// [`TablesError::ForeignKey`], [`TablesError::Unique`]: a constraint is violated.
    pub fn end_checks(&mut self) -> Result<()> {
        let Some(begun) = self.state.deferred.begun.take() else { return Ok(()) };
        let deferred = &self.state.deferred;
        if deferred.waiting.len() == begun {
            return Ok(());
        }
        let is_now = |place: usize, waiting: &Waiting| {
            let (table, name) = &waiting.constraint;
            place >= begun && !deferred.is_deferred(waiting.deferral, *table, name)
        };
        let places = deferred.waiting.iter().enumerate();
        let now: Vec<bool> = places.map(|(place, waiting)| is_now(place, waiting)).collect();
        let is_now = |place: usize| now.get(place).copied().unwrap_or(false);
        self.judge_waiting(&|place, _| is_now(place))?;
        // No savepoint is between the statement's beginning and its end, so a rollback needs none of them.
        let deferred = &mut self.state.deferred;
        let mut place = 0;
        deferred.waiting.retain(|_| {
            place += 1;
            !is_now(place - 1)
        });
        deferred.bytes = deferred.waiting.iter().map(|waiting| waiting.bytes).sum();
        Ok(())
    }

    /// Ends the caller's statement, which failed and will be rolled back.
    pub fn drop_checks(&mut self) {
        self.state.deferred.begun = None;
    }

    fn judge_waiting(&mut self, judges: &Judges<'_>) -> Result<()> {
        let all = self.state.deferred.waiting.iter().enumerate();
        let waits = all.filter(|(place, waiting)| waiting.judged.is_none() && judges(*place, waiting));
        let waits: Vec<(Named, Check)> =
            waits.map(|(_, waiting)| (waiting.constraint.clone(), waiting.check.clone())).collect();
        if waits.is_empty() {
            return Ok(());
        }
        self.statement(|statement| {
            for ((table, name), check) in waits {
                let schema = statement.tx().schema_by_id(table)?;
                let Some(pending) = check.pending(&schema, &name) else { continue };
                // Rows that referred to nothing may be gone by now.
                let refers = match &pending {
                    Pending::NeedsParent { child, key, values } => statement.refers(child, *key, values)?,
                    _ => true,
                };
                if refers {
                    statement.judge(&pending)?;
                }
            }
            Ok(())
        })?;
        let deferred = &mut self.state.deferred;
        deferred.step += 1;
        for (place, waiting) in deferred.waiting.iter_mut().enumerate() {
            if judges(place, waiting) {
                waiting.judged = waiting.judged.or(Some(deferred.step));
            }
        }
        Ok(())
    }
}

impl Check {
    /// The check against the present definition; `None` without the constraint.
    fn pending(self, schema: &Arc<Schema>, name: &str) -> Option<Pending> {
        let key = || schema.foreign_keys().iter().position(|key| key.name == name);
        let child = schema.clone();
        Some(match self {
            Self::Parent(values) => Pending::NeedsParent { child, key: key()?, values },
            Self::Gone(values) => Pending::ParentGone { child, key: key()?, values },
            Self::Repeated { index, key } => Pending::Repeated { table: schema.id(), index, key },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_checks_are_bounded_and_a_rollback_frees_them() {
        let mut deferred = Deferred::default();
        let push = |deferred: &mut Deferred| {
            let check = Check::Repeated { index: 1, key: vec![0; 1 << 20] };
            deferred.push((7, "u".into()), Deferral::InitiallyDeferred, check)
        };
        push(&mut deferred).unwrap();
        let mark = deferred.mark();
        let refused = (0..64).find_map(|_| push(&mut deferred).err());
        assert!(matches!(refused, Some(TablesError::TooLarge { .. })), "{refused:?}");
        deferred.rolled_back(&mark);
        assert!(deferred.concerns(7) && !deferred.concerns(8));
        push(&mut deferred).unwrap();
    }
}
