//! Event appends and reads of a transaction.
//!
//! Its own reads and conditions see its appends.
//!
//! ```text
//! read, decision ─▶ stored events of the snapshot, then own appends ─▶ recorded: query and head      commit ─▶ guard
//! ```
//! Own appends have no positions before the commit. Reads return them with the positions that they get if no
//! other transaction appends to the store first.

use ropewalk_base::Position;
use ropewalk_engine::{EngineError, Isolation, Operation, TRANSACTION_BYTES_MAX};
use ropewalk_events::{
    AppendCondition, AppendOperation, AppendOptions, Event, EventReader, EventReads, EventStore, EventsError,
    Projection, Query, QueryItem, ReadOptions, SequencedEvent, ToEvent, Tracking, to_events,
};

use super::Transaction;
use crate::error::{ProjectionError, Result};

/// An append to apply at commit.
struct Append {
    store: EventStore,
    /// Checked and encoded, without its conditions.
    operation: AppendOperation,
    conditions: Vec<AppendCondition>,
    /// Total bytes of this append and the earlier ones in the commit record.
    bytes: usize,
}

type Operations = Vec<Box<dyn Operation>>;

/// Appends in order, and the recorded reads of each store.
#[derive(Default)]
pub(super) struct EventsState {
    appends: Vec<Append>,
    reads: Vec<(EventStore, EventReads)>,
    /// The transaction replays events whose appends to event stores exist already.
    is_replay: bool,
}

impl EventsState {
    /// Number of appends, for [`Self::truncate`].
    pub(super) fn len(&self) -> usize {
        self.appends.len()
    }

    /// Removes the appends after the first `len`. Reads remain recorded: the caller has seen their results.
    pub(super) fn truncate(&mut self, len: usize) {
        self.appends.truncate(len);
    }

    /// Total bytes of the appends in the commit record.
    pub(super) fn bytes(&self) -> usize {
        self.appends.last().map_or(0, |append| append.bytes)
    }

    /// The stores of the appends, in order.
    pub(super) fn stores(&self) -> impl Iterator<Item = &str> {
        self.appends.iter().map(|append| append.store.name())
    }

    /// The operations of the commit: the appends, then the guards of the reads.
    pub(super) fn into_operations(self) -> Result<(Operations, Operations)> {
        let append = |Append { store, operation, conditions, .. }: Append| -> Result<_> {
            Ok(Box::new(store.conditioned(operation, conditions)?) as Box<dyn Operation>)
        };
        let guard = |(store, reads): (EventStore, EventReads)| -> Result<_> {
            Ok(Box::new(store.read_guard(&reads)?) as Box<dyn Operation>)
        };
        let appends = self.appends.into_iter().map(append).collect::<Result<_, _>>()?;
        let guards = self.reads.into_iter().map(guard).collect::<Result<_, _>>()?;
        Ok((appends, guards))
    }

    fn appends_to<'a>(&'a self, store: &'a EventStore) -> impl Iterator<Item = &'a Append> {
        self.appends.iter().filter(|append| append.store.name() == store.name())
    }

    /// The total bytes with one more append, unless they exceed the limit of a record.
    fn grown(&self, bytes: usize) -> Result<usize> {
        let bytes = self.bytes() + bytes;
        if bytes as u64 > TRANSACTION_BYTES_MAX {
            return Err(EngineError::TooLarge { bytes: bytes as u64, max: TRANSACTION_BYTES_MAX }.into());
        }
        Ok(bytes)
    }

    /// Rejects a condition that an earlier own append violates.
    fn check(&self, store: &EventStore, conditions: &[AppendCondition]) -> Result<(), EventsError> {
        for (ordinal, condition) in conditions.iter().enumerate() {
            let query = &condition.fail_if_events_match;
            let mut own = self.appends_to(store).flat_map(|append| append.operation.events());
            if let Some(event) = own.find(|event| query.matches(event.event_type(), event.tags())) {
                let is_matching = |item: &QueryItem| item.matches(event.event_type(), event.tags());
                let item = query.items.iter().position(is_matching);
                let event_type = event.event_type().to_owned();
                return Err(EventsError::OwnEventMatches { condition: ordinal, item, event_type });
            }
        }
        Ok(())
    }

    /// Rejects tracking that does not exceed that of an earlier own append.
    fn check_tracking(&self, store: &EventStore, tracking: &Tracking) -> Result<(), EventsError> {
        let own = self.appends_to(store).filter_map(|append| append.operation.tracking());
        let stored = own.filter(|own| own.source == tracking.source).map(|own| own.position).max();
        match stored.filter(|stored| tracking.position <= *stored) {
            None => Ok(()),
            Some(stored) => Err(EventsError::TrackingConflict {
                source_name: tracking.source.clone(),
                position: tracking.position,
                stored,
            }),
        }
    }

    fn note(&mut self, store: &EventStore, number: Option<u32>, query: &Query, head: Position) {
        let known = self.reads.iter_mut().find(|(known, _)| known.name() == store.name());
        match known {
            Some((_, reads)) => reads.note(query, head),
            None => {
                let mut reads = EventReads::new(number);
                reads.note(query, head);
                self.reads.push((store.clone(), reads));
            }
        }
    }
}

impl Transaction {
    /// Appends events to a store when the transaction commits.
    ///
    /// Conditions, tracking and key work as in [`EventStore::append_with`]; the durability is that of the
    /// commit.
    ///
    /// Conditions also see earlier appends of this transaction: such an event is newer than every `after`.
    ///
    /// # Errors
    /// Events over the limits; [`EventsError::OwnEventMatches`]; tracking that does not exceed that of an own
    /// append; [`ProjectionError::AppendsInReplay`] in a projection that is being rebuilt.
    pub fn append(&mut self, store: &EventStore, events: &[Event], mut options: AppendOptions) -> Result<()> {
        if self.events.is_replay {
            return Err(ProjectionError::AppendsInReplay { store: store.name().to_owned() }.into());
        }
        // Commit checks the conditions against stored events.
        let conditions = std::mem::take(&mut options.conditions);
        let operation = store.operation(events, options)?;
        let bytes = self.events.grown(operation.bytes_max())?;
        self.events.check(store, &conditions)?;
        if let Some(tracking) = operation.tracking() {
            self.events.check_tracking(store, tracking)?;
        }
        self.events.appends.push(Append { store: store.clone(), operation, conditions, bytes });
        Ok(())
    }

    /// Appends typed events when the transaction commits.
    ///
    /// The decisions of this transaction are their condition. A list without events appends nothing.
    ///
    /// # Errors
    /// [`EventsError::Unencoded`] for the first event that does not encode; as [`Transaction::append`].
    pub fn publish<'e, E: ToEvent + 'e>(
        &mut self,
        store: &EventStore,
        typed: impl IntoIterator<Item = &'e E>,
    ) -> Result<()> {
        let events = to_events(typed)?;
        if events.is_empty() {
            return Ok(());
        }
        self.append(store, &events, AppendOptions::default())
    }

    /// Number of appends that the commit will apply.
    pub fn pending_appends(&self) -> usize {
        self.events.appends.len()
    }

    /// Number of events that the pending appends add to a store.
    pub fn pending_events(&self, store: &EventStore) -> u64 {
        self.events.appends_to(store).map(|append| append.operation.event_count() as u64).sum()
    }

    /// True if a pending append has an idempotency key.
    ///
    /// If the key is already known, the commit writes nothing of the transaction.
    pub fn has_idempotency_key(&self) -> bool {
        self.events.appends.iter().any(|append| append.operation.has_idempotency_key())
    }

    /// Folds a decision model over the events at this snapshot and the own appends.
    ///
    /// The model may be a composition of models.
    ///
    /// The commit then fails with a conflict, at every isolation level, if another transaction appended a
    /// matching event. [`crate::Database::transact`] then runs the transaction again.
    ///
    /// ```
    /// use ropewalk::{AppendOptions, Database, Error, Event, Isolation, Query};
    /// use ropewalk::events::count;
    ///
    /// # fn main() -> Result<(), Error> {
    /// let db = Database::in_memory()?;
    /// let seats = db.events("seats")?;
    /// let taken = count(Query::from_types(["Taken"]));
    /// let number = db.transact(Isolation::Serializable, 10, |tx| {
    ///     let number = tx.decision(&seats, &taken)? + 1;
    ///     tx.append(&seats, &[Event::new("Taken")], AppendOptions::default())?;
    ///     Ok::<_, Error>(number)
    /// })?;
    /// assert_eq!(number, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`EventsError::InvalidQuery`]; [`EventsError::Unapplied`] for an event that the model cannot apply;
    /// corrupt data.
    pub fn decision<P: Projection>(&mut self, store: &EventStore, model: &P) -> Result<P::State> {
        self.kv.begin_statement();
        let query = model.query();
        let mut reader = self.reader(store, &query, ReadOptions::default())?;
        let head = reader.head().unwrap_or(Position::ZERO);
        let mut state = model.initial();
        reader.project(model, &mut state)?;
        self.events.note(store, store.id_at(self.kv.snapshot()), &query, head);
        Ok(state)
    }

    /// Returns matching events at the snapshot of this transaction, then its own appends.
    ///
    /// With [`Isolation::Serializable`] the commit fails with a conflict if another transaction appended an
    /// event that this read would have returned. Use [`crate::Snapshot::events`] of [`Transaction::snapshot`]
    /// to read without this validation.
    ///
    /// # Errors
    /// [`EventsError::InvalidQuery`]; corrupt data.
    pub fn read_events(
        &mut self,
        store: &EventStore,
        query: &Query,
        options: ReadOptions,
    ) -> Result<EventReader> {
        self.kv.begin_statement();
        let reader = self.reader(store, query, options)?;
        let head = reader.head().unwrap_or(Position::ZERO);
        let ends_before_new = options.before.is_some_and(|before| before <= head.next());
        if self.kv.isolation() == Isolation::Serializable && !ends_before_new {
            self.events.note(store, store.id_at(self.kv.snapshot()), query, head);
        }
        Ok(reader)
    }

    /// Rejects appends from here on: the replayed events made them when they were first applied.
    pub(crate) fn mark_replay(&mut self) {
        self.events.is_replay = true;
    }

    /// Allows the names of tables and collections that are reserved for rebuilds of projections.
    pub(crate) fn mark_rebuild(&mut self) {
        self.tables.mark_rebuild();
        self.documents.mark_rebuild();
    }

    fn reader(
        &self,
        store: &EventStore,
        query: &Query,
        options: ReadOptions,
    ) -> Result<EventReader, EventsError> {
        let snapshot = self.kv.snapshot();
        let reader = store.read_at(snapshot.clone(), query, options)?;
        if self.events.appends_to(store).next().is_none() {
            return Ok(reader);
        }
        let (mut position, seq) = (reader.head().unwrap_or(Position::ZERO), snapshot.seq().next());
        let time_micros = self.db.engine.env().clock.wall_micros();
        let mut own = Vec::new();
        for append in self.events.appends_to(store) {
            for event in append.operation.events() {
                position = position.next();
                let (event, tracking) = (event.to_event(), append.operation.tracking().cloned());
                own.push(SequencedEvent { position, seq, time_micros, event, tracking });
            }
        }
        Ok(reader.with_own(&own))
    }
}
