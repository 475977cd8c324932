//! The operations of one named event store.

pub(crate) mod admin;
pub(crate) mod decide;
pub(crate) mod subscribe;

use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropewalk_base::Position;
use ropewalk_engine::{CommitHandle, Engine, InFlightCommit, Snapshot};

use crate::append::conditions::{EventReads, ReadGuard};
use crate::append::{AppendOperation, AppendOptions, Appended, check_name};
use crate::error::Result;
use crate::event::codec::{SequencedEvent, SequencedEventRef};
use crate::event::types::{AppendCondition, Event, Query, ReadOptions};
use crate::index::search::{Place, StoreRead};
use crate::model::{EventsModel, MetaKey, StoreState};
use crate::read::{EventReader, Scan};
use crate::store::subscribe::Subscription;

/// A named event store. Cheap to clone; any number of threads may use it at once. It is created by its first
/// append or by [`EventStore::create`]; after [`EventStore::delete`] it does not exist.
#[derive(Clone)]
pub struct EventStore {
    pub(crate) engine: Arc<Engine>,
    pub(crate) model: Arc<EventsModel>,
    name: Arc<str>,
}

/// One store, until it is deleted. See [`EventStore::mark`].
#[derive(Clone)]
pub struct StoreMark(Arc<StoreState>);

impl StoreMark {
    /// The number of the store, which is never reused.
    pub fn id(&self) -> u32 {
        self.0.id
    }

    /// True when the store has events after `position`, including invisible ones, or was deleted. Cost: two
    /// atomic loads.
    pub fn has_events_after(&self, position: Position) -> bool {
        self.0.is_deleted() || self.0.sequenced.load(Ordering::Acquire) > position.0
    }
}

/// A pending append; [`PendingAppend::wait`] for it, or `.await` it.
pub struct PendingAppend(CommitHandle);

impl PendingAppend {
    /// Blocks until the append is decided and durable.
    ///
    /// # Errors
    /// As [`EventStore::append_with`].
    pub fn wait(self) -> Result<Appended> {
        appended(self.0.wait()?)
    }
}

impl InFlightCommit for PendingAppend {
    fn can_lead(&self) -> bool {
        self.0.can_lead()
    }

    fn lead(&mut self) {
        self.0.lead();
    }
}

impl std::future::Future for PendingAppend {
    type Output = Result<Appended>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        std::pin::Pin::new(&mut self.0).poll(context).map(|result| appended(result?))
    }
}

fn appended(committed: ropewalk_engine::Committed) -> Result<Appended> {
    let (first, last) = committed.outcomes.first().copied().unwrap_or_default();
    Ok(Appended { first: Position(first), last: Position(last), seq: committed.seq })
}

impl EventStore {
    /// A handle on the store `name` of an engine that has `model` registered.
    ///
    /// # Errors
    /// [`crate::EventsError::InvalidName`].
    pub fn new(engine: Arc<Engine>, model: Arc<EventsModel>, name: &str) -> Result<Self> {
        check_name("event store", name)?;
        Ok(Self { engine, model, name: name.into() })
    }

    /// The store's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn place(&self, snapshot: &Snapshot) -> Option<Place> {
        let state = self.model.find_at(&self.name, snapshot.seq())?;
        Some(self.model.place(state.id))
    }

    /// The number of the store, which changes when it is deleted and created again. `None` if it does not
    /// exist.
    pub fn id(&self) -> Option<u32> {
        self.model.find_at(&self.name, self.engine.seq()).map(|state| state.id)
    }

    /// The number of the store as of `snapshot`; `None` when it did not exist.
    pub fn id_at(&self, snapshot: &Snapshot) -> Option<u32> {
        self.model.find_at(&self.name, snapshot.seq()).map(|state| state.id)
    }

    /// The present store, for cheap and frequent checks for new events. `None` if it does not exist.
    pub fn mark(&self) -> Option<StoreMark> {
        self.model.find_at(&self.name, self.engine.seq()).map(StoreMark)
    }

    /// Appends `events` atomically unless `condition` finds a match, and returns their positions.
    ///
    /// Durable when it returns. Cost: one log write, shared by the group; a condition costs microseconds at
    /// any size.
    ///
    /// # Errors
    /// [`crate::EventsError::AppendConditionFailed`] if a matching event lies after `condition.after`; nothing is
    /// written.
    /// # Source
    /// DCB specification, section "Append Condition".
    pub fn append(&self, events: &[Event], condition: Option<AppendCondition>) -> Result<Appended> {
        self.append_with(
            events,
            AppendOptions { conditions: condition.into_iter().collect(), ..Default::default() },
        )
    }

    /// Appends with several conditions, tracking, an idempotency key, or another durability.
    ///
    /// # Errors
    /// The first condition that fails; a tracking position that does not rise; an idempotency key used for
    /// other events; events or queries over the limits; the engine's own.
    pub fn append_with(&self, events: &[Event], options: AppendOptions) -> Result<Appended> {
        let durability = options.durability;
        let operation = self.operation(events, options)?;
        appended(self.engine.commit(vec![Box::new(operation)], durability)?)
    }

    /// Queues an append and returns a handle immediately, so that one thread can have many appends in flight.
    ///
    /// # Errors
    /// As [`EventStore::append_with`], for errors found before it is queued.
    pub fn submit(&self, events: &[Event], options: AppendOptions) -> Result<PendingAppend> {
        let durability = options.durability;
        let operation = self.operation(events, options)?;
        Ok(PendingAppend(self.engine.submit(vec![Box::new(operation)], durability)?))
    }

    /// As [`EventStore::submit`], but never waits for queue space: for callers that must not block, and that
    /// check the engine's backpressure themselves. Checks conditions before it returns.
    ///
    /// # Errors
    /// [`ropewalk_engine::EngineError::Busy`] while the queue is full; as
    /// [`EventStore::append_with`], for errors found before it is queued.
    pub fn try_submit(&self, events: &[Event], options: AppendOptions) -> Result<PendingAppend> {
        let durability = options.durability;
        let operation = self.operation(events, options)?;
        Ok(PendingAppend(self.engine.try_submit(vec![Box::new(operation)], durability)?))
    }

    /// The append as a part of a larger transaction.
    ///
    /// # Errors
    /// As [`EventStore::append_with`], for errors found before the transaction is queued.
    pub fn operation(&self, events: &[Event], options: AppendOptions) -> Result<AppendOperation> {
        let mut operation = AppendOperation::new(self.model.clone(), &self.name, events, options)?;
        if operation.has_conditions() {
            operation.check_ahead(self.engine.snapshot().read())?;
        }
        Ok(operation)
    }

    /// An append that was prepared without conditions some time ago, as it is with `conditions` now.
    ///
    /// # Errors
    /// As [`EventStore::operation`].
    pub fn conditioned(
        &self,
        mut operation: AppendOperation,
        conditions: Vec<AppendCondition>,
    ) -> Result<AppendOperation> {
        operation.complete(conditions)?;
        if operation.has_conditions() {
            operation.check_ahead(self.engine.snapshot().read())?;
        }
        Ok(operation)
    }

    /// The reads of the store, as a part of a transaction that commits only if their results are unchanged.
    ///
    /// # Errors
    /// [`crate::EventsError::InvalidQuery`].
    pub fn read_guard(&self, reads: &EventReads) -> Result<ReadGuard> {
        ReadGuard::new(self.model.clone(), &self.name, reads)
    }

    /// Matching events at the current snapshot, as a stream whose memory is one batch. Unknown stores are
    /// empty.
    ///
    /// # Errors
    /// [`crate::EventsError::InvalidQuery`]; damage.
    pub fn read(&self, query: &Query, options: ReadOptions) -> Result<EventReader> {
        self.read_at(self.engine.snapshot(), query, options)
    }

    /// Matching events as of `snapshot`.
    ///
    /// # Errors
    /// [`crate::EventsError::InvalidQuery`]; damage.
    pub fn read_at(&self, snapshot: Snapshot, query: &Query, options: ReadOptions) -> Result<EventReader> {
        let place = self.place(&snapshot);
        EventReader::new(snapshot, place, query.clone(), options)
    }

    /// Runs `look` on a scan of the matching events, read in place: the fastest way through many events.
    ///
    /// # Errors
    /// [`crate::EventsError::InvalidQuery`]; damage; an error of `look`.
    pub fn scan<R>(
        &self,
        query: &Query,
        options: ReadOptions,
        look: impl FnOnce(&mut Scan<'_>) -> Result<R>,
    ) -> Result<R> {
        query.check()?;
        let snapshot = self.engine.snapshot();
        // A store that does not exist reads as store 0, which is always empty.
        let place = self.place(&snapshot).unwrap_or(self.model.place(0));
        let store = StoreRead::new(snapshot.read(), place);
        let head = store.head()?;
        look(&mut Scan::new(&store, query, &options, head)?)
    }

    /// The newest matching event. Cost: does not depend on the number of events.
    ///
    /// # Errors
    /// [`crate::EventsError::InvalidQuery`]; damage.
    pub fn read_last(&self, query: &Query) -> Result<Option<SequencedEvent>> {
        self.scan(query, ReadOptions::backwards().limit(1), |scan| Ok(scan.next()?.map(|e| e.to_owned())))
    }

    /// Number of matching events. Cost: proportional to the postings, the events are not read.
    ///
    /// # Errors
    /// [`crate::EventsError::InvalidQuery`]; damage.
    pub fn count(&self, query: &Query) -> Result<u64> {
        if query.is_all() {
            return Ok(self.head()?.map_or(0, |head| head.0));
        }
        self.scan(query, ReadOptions::default(), |scan| {
            let mut count = 0;
            while scan.next_position()?.is_some() {
                count += 1;
            }
            Ok(count)
        })
    }

    /// True when an event after `after` matches. Cost: stops at the first.
    ///
    /// # Errors
    /// [`crate::EventsError::InvalidQuery`]; damage.
    pub fn exists(&self, query: &Query, after: Option<Position>) -> Result<bool> {
        let options = ReadOptions { after, limit: Some(1), ..ReadOptions::default() };
        self.scan(query, options, |scan| Ok(scan.next_position()?.is_some()))
    }

    /// The last position, or `None` for an empty store.
    ///
    /// # Errors
    /// Damage.
    pub fn head(&self) -> Result<Option<Position>> {
        self.head_at(&self.engine.snapshot())
    }

    /// The last position as of `snapshot`.
    ///
    /// # Errors
    /// Damage.
    pub fn head_at(&self, snapshot: &Snapshot) -> Result<Option<Position>> {
        let Some(place) = self.place(snapshot) else { return Ok(None) };
        let head = StoreRead::new(snapshot.read(), place).head()?;
        Ok((head > 0).then_some(Position(head)))
    }

    /// Highest upstream position stored for `source`.
    ///
    /// # Errors
    /// Damage.
    pub fn tracking(&self, source: &str) -> Result<Option<u64>> {
        let snapshot = self.engine.snapshot();
        let Some(state) = self.model.find_at(&self.name, snapshot.seq()) else { return Ok(None) };
        let stored = snapshot.read().get(self.model.meta(), &MetaKey::Tracking(state.id, source).encode())?;
        Ok(stored.map(|value| (*value).try_into().map_or(u64::MAX, u64::from_le_bytes)))
    }

    /// Folds the matching events into a value; returns it with the head of its snapshot.
    ///
    /// # Errors
    /// [`crate::EventsError::InvalidQuery`]; damage.
    pub fn fold<T>(
        &self,
        query: &Query,
        initial: T,
        mut step: impl FnMut(T, &SequencedEventRef<'_>) -> T,
    ) -> Result<(T, Option<Position>)> {
        let mut reader = self.read(query, ReadOptions::default())?;
        let mut value = Some(initial);
        while reader.visit(1024, |event| value = value.take().map(|v| step(v, event)))? > 0 {}
        Ok((value.expect("the fold puts back what it takes"), reader.head()))
    }

    /// Follows the matching events from after `after` without end: first the existing ones, then each new one
    /// as soon as it is durable. Positions have no gaps and commit order is position order, so nothing is
    /// ever skipped.
    ///
    /// # Errors
    /// [`crate::EventsError::InvalidQuery`].
    pub fn subscribe(&self, query: &Query, after: Option<Position>) -> Result<Subscription> {
        query.check()?;
        Ok(Subscription::new(self.clone(), query.clone(), after.unwrap_or(Position::ZERO)))
    }

    /// Waits until the head is above `position`, at most `timeout`.
    pub(crate) fn wait_beyond(&self, snapshot_seq: ropewalk_base::Seq, timeout: Duration) -> bool {
        self.engine.wait_visible(snapshot_seq.next(), timeout)
    }
}
