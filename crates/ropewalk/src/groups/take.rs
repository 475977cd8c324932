//! Handing out events: first those due again, then new ones.

use core::ops::ControlFlow;
use core::time::Duration;

use ropewalk_base::Position;
use ropewalk_events::{ReadOptions, SequencedEvent};

use super::ConsumerGroup;
use super::record::{GroupRecord, PARKED, PENDING, ParkedRecord, Pending, key, position_of};
use crate::database::Snapshot;
use crate::database::transaction::Transaction;
use crate::error::Result;

/// A batch, or a page of parked events, ends with the event that reaches this many bytes.
pub(super) const BATCH_BYTES: usize = 4 << 20;
/// After this many events that do not match, the cursor is stored although nothing was handed out.
const IDLE_POSITIONS: u64 = 10_000;
/// Reason stored for an event whose last lease expired.
const RAN_OUT: &str = "the lease ran out";

/// A leased batch of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Lease number, to settle the batch; zero if there were no events.
    pub id: u64,
    /// Expiry, microseconds since 1970 UTC. Later another consumer may receive the events.
    pub until_micros: i64,
    /// The events.
    pub events: Vec<Taken>,
    /// Without events: when the next pending event is due, unless it is settled before.
    pub due_micros: Option<i64>,
}

/// An event of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// The event.
    pub event: SequencedEvent,
    /// Number of this try, from 1.
    pub tries: u32,
}

impl Lease {
    fn none(due_micros: Option<i64>) -> Self {
        Self { id: 0, until_micros: 0, events: Vec::new(), due_micros }
    }
}

/// Result of the check before a write transaction.
enum Next {
    Something,
    /// Nothing before that time, unless events are appended.
    Nothing(Option<i64>),
}

impl ConsumerGroup {
    /// Leases up to `max` events for the time of the settings.
    ///
    /// The lease is empty if no event is available or too many are pending.
    ///
    /// # Errors
    /// [`super::GroupError::Unknown`], [`super::GroupError::StoreReplaced`]; errors of the database.
    pub fn take(&self, max: usize) -> Result<Lease> {
        self.take_for(max, None)
    }

    /// Same as [`ConsumerGroup::take`], for a lease time of up to 366 days.
    ///
    /// # Errors
    /// As [`ConsumerGroup::take`].
    pub fn take_for(&self, max: usize, lease: Option<Duration>) -> Result<Lease> {
        let _turn = self.turn();
        // A call that finds nothing to hand out writes nothing and does not wait for the disk.
        if let Next::Nothing(due_micros) = self.next(&self.groups.db.snapshot())? {
            return Ok(Lease::none(due_micros));
        }
        self.attempt(|tx| self.hand_out(tx, max, lease))
    }

    /// Same as [`ConsumerGroup::take_for`], waiting up to `timeout` for an event.
    ///
    /// It blocks the calling thread without polling: commits and due times wake it.
    ///
    /// # Errors
    /// As [`ConsumerGroup::take`]; the engine stopped.
    pub fn take_waiting(&self, max: usize, lease: Option<Duration>, timeout: Duration) -> Result<Lease> {
        let engine = self.groups.db.engine();
        let clock = engine.env().clock.clone();
        let deadline = clock.deadline(timeout);
        loop {
            let seen = self.groups.db.seq();
            let taken = self.take_for(max, lease)?;
            let left = Duration::from_nanos(deadline.saturating_sub(clock.monotonic_nanos()));
            if !taken.events.is_empty() || max == 0 || left.is_zero() {
                return Ok(taken);
            }
            let due = taken.due_micros.map(|due| due.saturating_sub(self.now()).max(1_000).cast_unsigned());
            let wait = due.map_or(left, |due| left.min(Duration::from_micros(due)));
            engine.wait_visible(seen.next(), wait);
            if let Some(error) = engine.stopped() {
                return Err(error.into());
            }
        }
    }

    fn next(&self, snapshot: &Snapshot) -> Result<Next> {
        let record = self.look(snapshot)?;
        let store = self.groups.store.id_at(snapshot.engine());
        if !record.is_of(store) {
            return Err(self.replaced());
        }
        let now = self.now();
        let (mut pending, mut due, mut latest) = (0, None::<i64>, None::<i64>);
        self.visit(snapshot, PENDING, |_, value| {
            let one = self.decoded(Pending::decode(value))?;
            pending += 1;
            due = Some(due.map_or(one.due_micros, |due| due.min(one.due_micros)));
            latest = latest.max(Some(one.due_micros));
            Ok(true)
        })?;
        if record.settings.in_order && latest.is_some_and(|latest| latest > now) {
            return Ok(Next::Nothing(latest));
        }
        if due.is_some_and(|due| due <= now) {
            return Ok(Next::Something);
        }
        if pending >= record.settings.pending_max {
            return Ok(Next::Nothing(due));
        }
        let options = ReadOptions::default().after(Position(record.cursor)).limit(1);
        let mut reader = snapshot.events(&self.groups.store, &record.settings.query, options)?;
        let head = reader.head().map_or(0, |head| head.0);
        if reader.visit(1, |_| ())? > 0 || head.saturating_sub(record.cursor) >= IDLE_POSITIONS {
            return Ok(Next::Something);
        }
        Ok(Next::Nothing(due))
    }

    fn hand_out(&self, tx: &mut Transaction, max: usize, lease: Option<Duration>) -> Result<Lease> {
        let mut record = self.get(tx)?;
        let snapshot = tx.snapshot();
        let store = self.groups.store.id_at(snapshot.engine());
        if !record.is_of(store) {
            return Err(self.replaced());
        }
        record.store = store.unwrap_or(record.store);
        let now = self.now();
        let lease = lease.unwrap_or(record.settings.lease).min(super::TIME_MAX);
        let until_micros = now.saturating_add_unsigned(lease.as_micros() as u64);
        let mut batch = Lease { id: record.next_lease, until_micros, events: Vec::new(), due_micros: None };
        let pending = self.pending(tx)?;
        if record.settings.in_order && pending.iter().any(|(_, one)| one.due_micros > now) {
            return Ok(Lease::none(None));
        }
        let (mut out, mut bytes) = (pending.len(), 0);
        for (position, one) in pending.into_iter().filter(|(_, one)| one.due_micros <= now) {
            if batch.events.len() >= max || bytes >= BATCH_BYTES {
                break;
            }
            if one.tries >= record.settings.tries_max {
                let reason = if one.reason.is_empty() { RAN_OUT.to_owned() } else { one.reason.clone() };
                self.to_parked(tx, position, one.tries, reason);
                out -= 1;
                continue;
            }
            // Pending events belong to this store, so the event exists.
            let Some(event) = self.event(&snapshot, position)? else { continue };
            bytes += event.with_ref(|event| event.stored_bytes());
            self.lease(tx, &mut batch, event, one.tries, one.reason);
        }
        let room = (record.settings.pending_max as usize).saturating_sub(out);
        let room = room.min(max.saturating_sub(batch.events.len()));
        if room > 0 && bytes < BATCH_BYTES {
            for event in self.fresh(&snapshot, &mut record, room)? {
                self.lease(tx, &mut batch, event, 0, String::new());
            }
        }
        if batch.events.is_empty() {
            batch = Lease::none(None);
        } else {
            record.next_lease += 1;
        }
        self.put(tx, &record);
        Ok(batch)
    }

    /// Reads new events and moves the cursor past them.
    fn fresh(
        &self,
        snapshot: &Snapshot,
        record: &mut GroupRecord,
        most: usize,
    ) -> Result<Vec<SequencedEvent>> {
        let options = ReadOptions::default().after(Position(record.cursor));
        let mut reader = snapshot.events(&self.groups.store, &record.settings.query, options)?;
        let head = reader.head().map_or(0, |head| head.0);
        let (mut events, mut bytes) = (Vec::new(), 0);
        reader.visit_while(most, |event| {
            bytes += event.stored_bytes();
            events.push(event.to_owned());
            if bytes < BATCH_BYTES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        let last = events.last().map_or(0, |event| event.position.0);
        let reached = if reader.ended() { head } else { last };
        record.cursor = record.cursor.max(reached);
        Ok(events)
    }

    fn lease(
        &self,
        tx: &mut Transaction,
        batch: &mut Lease,
        event: SequencedEvent,
        tries: u32,
        reason: String,
    ) {
        let tries = tries.saturating_add(1);
        let one = Pending { tries, lease: batch.id, due_micros: batch.until_micros, reason };
        tx.put(self.keyspace, &self.key(PENDING, event.position), &one.encode());
        batch.events.push(Taken { event, tries });
    }

    /// All pending events, by position.
    pub(super) fn pending(&self, tx: &mut Transaction) -> Result<Vec<(Position, Pending)>> {
        let (start, end) = (key(&self.prefix, PENDING, None), key(&self.prefix, PENDING + 1, None));
        let rows = tx.range(self.keyspace, &start, Some(&end), usize::MAX)?;
        let decode = |(key, value): (Vec<u8>, Vec<u8>)| {
            let position = position_of(&key).unwrap_or(Position::ZERO);
            Ok((position, self.decoded(Pending::decode(&value))?))
        };
        rows.into_iter().map(decode).collect()
    }

    pub(super) fn to_parked(&self, tx: &mut Transaction, position: Position, tries: u32, reason: String) {
        let parked = ParkedRecord { tries, time_micros: self.now(), reason };
        tx.delete(self.keyspace, &self.key(PENDING, position));
        tx.put(self.keyspace, &self.key(PARKED, position), &parked.encode());
    }
}
