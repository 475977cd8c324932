//! Settling leased events (acknowledge, retry, park, extend), and replaying or discarding parked ones.

use core::time::Duration;

use ropewalk_base::Position;
use ropewalk_events::SequencedEvent;

use super::ConsumerGroup;
use super::record::{PARKED, PENDING, ParkedRecord, Pending, key, position_of};
use super::take::BATCH_BYTES;
use crate::database::transaction::Transaction;
use crate::error::Result;

/// Result of a call on leased or parked events.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settled {
    /// Number of events that the call applied to.
    pub done: u64,
    /// Requested events that the call no longer applies to.
    ///
    /// They were settled before, or leased again after the lease expired.
    pub lost: Vec<Position>,
    /// Number of events parked because this was their last try.
    pub parked: u64,
}

/// A parked (dead-lettered) event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parked {
    /// The event.
    pub event: SequencedEvent,
    /// Number of times it was handed out.
    pub tries: u32,
    /// When it was parked, microseconds since 1970 UTC.
    pub time_micros: i64,
    /// Why it was parked.
    pub reason: String,
}

impl ConsumerGroup {
    /// Acknowledges events of a lease, or all of them with `None`; they are not handed out again.
    ///
    /// Durable when it returns. An expired lease still counts unless the event was leased again.
    ///
    /// # Errors
    /// [`super::GroupError::Unknown`], [`super::GroupError::UnknownLease`]; errors of the database.
    pub fn acknowledge(&self, lease: u64, positions: Option<&[Position]>) -> Result<Settled> {
        self.settle(lease, positions, |tx, position, _| {
            tx.delete(self.keyspace, &self.key(PENDING, position));
            Ok(false)
        })
    }

    /// Releases events of a lease for a retry after `pause`, by default that of the settings.
    ///
    /// Events on their last try are parked. With [`in_order`](super::GroupSettings::in_order) the later
    /// events of the lease are released, too, which does not count as a try.
    ///
    /// # Errors
    /// [`super::GroupError::Unknown`], [`super::GroupError::UnknownLease`]; errors of the database.
    pub fn retry(
        &self,
        lease: u64,
        positions: Option<&[Position]>,
        pause: Option<Duration>,
        reason: &str,
    ) -> Result<Settled> {
        let _turn = self.turn();
        self.attempt(|tx| {
            let settings = self.holding(tx, lease)?.settings;
            let pause = pause.unwrap_or(settings.pause).min(super::TIME_MAX);
            let due_micros = self.now().saturating_add_unsigned(pause.as_micros() as u64);
            let mut first = None;
            let mut settled = self.each(tx, lease, positions, |tx, position, one| {
                first.get_or_insert(position);
                if one.tries >= settings.tries_max {
                    self.to_parked(tx, position, one.tries, reason.to_owned());
                    return Ok(true);
                }
                let again = Pending { lease: 0, due_micros, reason: reason.to_owned(), ..one };
                tx.put(self.keyspace, &self.key(PENDING, position), &again.encode());
                Ok(false)
            })?;
            if let Some(first) = first.filter(|_| settings.in_order) {
                self.give_back_behind(tx, lease, first, due_micros)?;
            }
            settled.lost.sort_unstable();
            Ok(settled)
        })
    }

    /// Releases the events of a lease after `first` until `due_micros`, without counting a try.
    fn give_back_behind(
        &self,
        tx: &mut Transaction,
        lease: u64,
        first: Position,
        due_micros: i64,
    ) -> Result<()> {
        for (position, one) in self.pending(tx)? {
            if position > first && one.lease == lease {
                let again = Pending { lease: 0, due_micros, tries: one.tries.saturating_sub(1), ..one };
                tx.put(self.keyspace, &self.key(PENDING, position), &again.encode());
            }
        }
        Ok(())
    }

    /// Parks events of a lease: they are not handed out until they are replayed.
    ///
    /// # Errors
    /// [`super::GroupError::Unknown`], [`super::GroupError::UnknownLease`]; errors of the database.
    pub fn park(&self, lease: u64, positions: Option<&[Position]>, reason: &str) -> Result<Settled> {
        self.settle(lease, positions, |tx, position, one| {
            self.to_parked(tx, position, one.tries, reason.to_owned());
            Ok(true)
        })
    }

    /// Extends a lease to `lease_time` from now, by default that of the settings.
    ///
    /// Returns the new expiry, microseconds since 1970 UTC. Events that were already settled are not
    /// affected.
    ///
    /// # Errors
    /// [`super::GroupError::Unknown`], [`super::GroupError::UnknownLease`]; errors of the database.
    pub fn extend(&self, lease: u64, lease_time: Option<Duration>) -> Result<(Settled, i64)> {
        let _turn = self.turn();
        self.attempt(|tx| {
            let time = lease_time.unwrap_or(self.holding(tx, lease)?.settings.lease).min(super::TIME_MAX);
            let due_micros = self.now().saturating_add_unsigned(time.as_micros() as u64);
            let settled = self.each(tx, lease, None, |tx, position, one| {
                let held = Pending { due_micros, ..one };
                tx.put(self.keyspace, &self.key(PENDING, position), &held.encode());
                Ok(false)
            })?;
            Ok((settled, due_micros))
        })
    }

    /// Returns up to `limit` parked events after `after`, by position. A page with large events ends after 4
    /// MiB of them; only an empty one is the last.
    ///
    /// # Errors
    /// [`super::GroupError::Unknown`]; corrupt data.
    pub fn parked(&self, after: Option<Position>, limit: usize) -> Result<Vec<Parked>> {
        let snapshot = self.groups.db.snapshot();
        self.look(&snapshot)?;
        let mut found = Vec::new();
        self.visit(&snapshot, PARKED, |key, value| {
            let position = position_of(key).unwrap_or(Position::ZERO);
            if after.is_none_or(|after| position > after) && found.len() < limit {
                found.push((position, self.decoded(ParkedRecord::decode(value))?));
            }
            Ok(found.len() < limit)
        })?;
        let (mut parked, mut bytes) = (Vec::new(), 0);
        for (position, one) in found {
            if bytes >= BATCH_BYTES {
                break;
            }
            if let Some(event) = self.event(&snapshot, position)? {
                bytes += event.with_ref(|event| event.stored_bytes());
                let ParkedRecord { tries, time_micros, reason } = one;
                parked.push(Parked { event, tries, time_micros, reason });
            }
        }
        Ok(parked)
    }

    /// Makes parked events available again, at once and with all tries; `None` means all.
    ///
    /// # Errors
    /// [`super::GroupError::Unknown`]; errors of the database.
    pub fn replay(&self, positions: Option<&[Position]>) -> Result<Settled> {
        self.each_parked(positions, |tx, position| {
            let again = Pending { due_micros: self.now(), ..Pending::default() };
            tx.put(self.keyspace, &self.key(PENDING, position), &again.encode());
        })
    }

    /// Deletes parked events; `None` means all.
    ///
    /// # Errors
    /// [`super::GroupError::Unknown`]; errors of the database.
    pub fn discard(&self, positions: Option<&[Position]>) -> Result<Settled> {
        self.each_parked(positions, |_, _| ())
    }

    fn each_parked(
        &self,
        positions: Option<&[Position]>,
        mut work: impl FnMut(&mut Transaction, Position),
    ) -> Result<Settled> {
        let _turn = self.turn();
        self.attempt(|tx| {
            self.get(tx)?;
            let wanted = match positions {
                Some(positions) => positions.to_vec(),
                None => {
                    let (start, end) = (key(&self.prefix, PARKED, None), key(&self.prefix, PARKED + 1, None));
                    let rows = tx.range(self.keyspace, &start, Some(&end), usize::MAX)?;
                    rows.iter().filter_map(|(key, _)| position_of(key)).collect()
                }
            };
            let mut settled = Settled::default();
            for position in wanted {
                let key = self.key(PARKED, position);
                if tx.get(self.keyspace, &key)?.is_none() {
                    settled.lost.push(position);
                    continue;
                }
                tx.delete(self.keyspace, &key);
                work(tx, position);
                settled.done += 1;
            }
            Ok(settled)
        })
    }

    fn settle(
        &self,
        lease: u64,
        positions: Option<&[Position]>,
        mut work: impl FnMut(&mut Transaction, Position, Pending) -> Result<bool>,
    ) -> Result<Settled> {
        let _turn = self.turn();
        self.attempt(|tx| {
            self.holding(tx, lease)?;
            self.each(tx, lease, positions, &mut work)
        })
    }

    /// Applies `work` to events of the lease; `work` returns true if it parked the event.
    fn each(
        &self,
        tx: &mut Transaction,
        lease: u64,
        positions: Option<&[Position]>,
        mut work: impl FnMut(&mut Transaction, Position, Pending) -> Result<bool>,
    ) -> Result<Settled> {
        let mut settled = Settled::default();
        let held = match positions {
            Some(positions) => {
                let mut held = Vec::new();
                for position in positions {
                    let stored = tx.get(self.keyspace, &self.key(PENDING, *position))?;
                    let one = stored.map(|bytes| self.decoded(Pending::decode(&bytes))).transpose()?;
                    match one.filter(|one| lease > 0 && one.lease == lease) {
                        Some(one) => held.push((*position, one)),
                        None => settled.lost.push(*position),
                    }
                }
                held.sort_unstable_by_key(|(position, _)| *position);
                held.dedup_by_key(|(position, _)| *position);
                held
            }
            None => {
                self.pending(tx)?.into_iter().filter(|(_, one)| lease > 0 && one.lease == lease).collect()
            }
        };
        for (position, one) in held {
            let parked = work(tx, position, one)?;
            settled.parked += u64::from(parked);
            settled.done += u64::from(!parked);
        }
        Ok(settled)
    }
}
