//! Append conditions: checked first outside the sequencer and then in the commit order.
//!
//! An append has explicit conditions; a [`ReadGuard`] has those derived from the reads of a transaction.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropewalk_base::{Position, Seq};
use ropewalk_engine::{ModelId, Operation, Outcome, ReadView, Rejection, Verdict};

use crate::error::{EventsError, Result};
use crate::event::types::{AppendCondition, Query};
use crate::index::search::StoreRead;
use crate::model::{EVENTS, EventsModel};

/// Limit of queries that a guard lists for one store; beyond it any new event is a conflict.
const QUERIES_MAX: usize = 1_000;

/// Conditions, and the position up to which each was checked.
pub(crate) struct Conditions {
    list: Vec<AppendCondition>,
    /// Positions up to here were checked before the sequencer.
    checked: Vec<u64>,
}

/// The first condition that fails.
pub(crate) struct Failing<'c> {
    pub(crate) condition: &'c AppendCondition,
    ordinal: usize,
    position: u64,
    item: Option<usize>,
    seq: Seq,
}

impl Failing<'_> {
    pub(crate) fn error(&self) -> EventsError {
        EventsError::AppendConditionFailed {
            condition: self.ordinal,
            position: Position(self.position),
            item: self.item,
            after: self.condition.after,
            seq: self.seq,
        }
    }
}

impl Conditions {
    /// # Errors
    /// [`EventsError::InvalidQuery`].
    pub(crate) fn new(list: Vec<AppendCondition>) -> Result<Self> {
        for condition in &list {
            condition.fail_if_events_match.check()?;
        }
        let checked = list.iter().map(|condition| condition.after.map_or(0, |p| p.0)).collect();
        Ok(Self { list, checked })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn has_prefixes(&self) -> bool {
        self.list.iter().any(|condition| condition.fail_if_events_match.has_prefixes())
    }

    /// True when no event up to `head` is left to check.
    pub(crate) fn are_checked_to(&self, head: u64) -> bool {
        self.checked.iter().all(|checked| *checked >= head)
    }

    /// Notes that no condition fails up to `head`.
    pub(crate) fn note_checked(&mut self, head: u64) {
        for checked in &mut self.checked {
            *checked = (*checked).max(head);
        }
    }

    /// The first condition that fails for an event up to `head`.
    pub(crate) fn failing(&self, read: &StoreRead<'_>, head: u64) -> Result<Option<Failing<'_>>> {
        for (ordinal, (condition, after)) in self.list.iter().zip(&self.checked).enumerate() {
            if let Some((position, item)) = read.first_match(&condition.fail_if_events_match, *after, head)? {
                let seq = read.event_seq(position)?;
                return Ok(Some(Failing { condition, ordinal, position, item, seq }));
            }
        }
        Ok(None)
    }
}

/// The events of one store that a transaction has read, as conditions of its commit.
#[derive(Clone)]
pub struct EventReads {
    /// The store's number at the first read; `None` when it did not exist.
    store: Option<u32>,
    /// Each query, with the lowest head at which it was read.
    queries: HashMap<Query, u64>,
}

impl EventReads {
    /// No reads yet of the store with this number.
    pub fn new(store: Option<u32>) -> Self {
        Self { store, queries: HashMap::new() }
    }

    /// Notes that the events of `query` were read up to `head`.
    pub fn note(&mut self, query: &Query, head: Position) {
        let is_listed = self.queries.contains_key(query) || self.queries.len() < QUERIES_MAX;
        // Beyond the limit the check is conservative: unrelated events reject the commit, too.
        let query = if is_listed { query.clone() } else { Query::all() };
        let at = self.queries.entry(query).or_insert(head.0);
        *at = (*at).min(head.0);
    }
}

/// Rejects a commit if an event was appended that one of its reads would have found.
pub struct ReadGuard {
    model: Arc<EventsModel>,
    name: String,
    store: Option<u32>,
    conditions: Conditions,
}

impl ReadGuard {
    pub(crate) fn new(model: Arc<EventsModel>, name: &str, reads: &EventReads) -> Result<Self> {
        let condition = |(query, head): (&Query, &u64)| AppendCondition {
            fail_if_events_match: query.clone(),
            after: Some(Position(*head)),
        };
        let conditions = Conditions::new(reads.queries.iter().map(condition).collect())?;
        Ok(Self { model, name: name.to_owned(), store: reads.store, conditions })
    }

    fn check(&self, latest: ReadView<'_>) -> Result<()> {
        let state = self.model.find(&self.name);
        if self.store.is_some() && self.store != state.as_ref().map(|state| state.id) {
            // The positions that were read no longer exist.
            return Err(EventsError::UnknownStore { name: self.name.clone() });
        }
        let Some(state) = state else { return Ok(()) };
        let sequenced = state.sequenced.load(Ordering::Acquire);
        if self.conditions.are_checked_to(sequenced) {
            return Ok(());
        }
        let read = StoreRead::new(latest, self.model.place(state.id));
        let Some(failing) = self.conditions.failing(&read, sequenced)? else { return Ok(()) };
        let (store, position) = (self.name.clone(), Position(failing.position));
        Err(EventsError::ReadConflict { store, position, seq: failing.seq })
    }
}

impl Operation for ReadGuard {
    fn model(&self) -> ModelId {
        EVENTS
    }

    fn is_guard(&self) -> bool {
        true
    }

    fn bytes_max(&self) -> usize {
        0
    }

    fn validate(&mut self, latest: ReadView<'_>) -> Result<Verdict, Rejection> {
        self.check(latest).map(|()| Verdict::Write).map_err(|error| Box::new(error) as Rejection)
    }

    fn encode(&mut self, _seq: Seq, _time_micros: i64, _out: &mut Vec<u8>) -> Outcome {
        (0, 0)
    }
}
