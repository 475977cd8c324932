//! What becomes of what was handed out, and of what was parked.

use core::time::Duration;

use ropewalk_base::Position;
use ropewalk_events::SequencedEvent;

use super::ConsumerGroup;
use super::record::{PARKED, PENDING, ParkedRecord, Pending, key, position_of};
use crate::error::Error;
use crate::transaction::Transaction;

/// How a call went.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settled {
    /// Events that it was done to.
    pub done: u64,
    /// Events that were asked for and are not what the call is about any more: settled before, or handed to somebody else
    /// after the lease ran out.
    pub lost: Vec<Position>,
    /// Events that were parked, since this was their last try.
    pub parked: u64,
}

/// An event that nobody is given any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parked {
    /// The event.
    pub event: SequencedEvent,
    /// How often it was handed out.
    pub tries: u32,
    /// When it was parked, microseconds since 1970 UTC.
    pub time_micros: i64,
    /// Why.
    pub reason: String,
}

impl ConsumerGroup {
    /// Says that events of a lease are done: these, or with `None` all. They are not handed out again. Durable when it
    /// returns. A lease that ran out still counts as long as nobody else was given the event.
    ///
    /// # Errors
    /// [`super::GroupError::Unknown`], [`super::GroupError::UnknownLease`]; the database's own.
    pub fn acknowledge(&self, lease: u64, positions: Option<&[Position]>) -> Result<Settled, Error> {
        self.settle(lease, positions, |tx, position, _| {
            tx.delete(self.groups.keyspace, &self.key(PENDING, position));
            Ok(false)
        })
    }

    /// Gives events of a lease back, to come again after `pause`, or the pause of the settings; those whose last try this was
    /// are parked. In a group in order what the lease holds behind the first of them comes again, too, and that does not count
    /// as a try.
    ///
    /// # Errors
    /// [`super::GroupError::Unknown`], [`super::GroupError::UnknownLease`]; the database's own.
    pub fn retry(
        &self,
        lease: u64,
        positions: Option<&[Position]>,
        pause: Option<Duration>,
        reason: &str,
    ) -> Result<Settled, Error> {
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
                tx.put(self.groups.keyspace, &self.key(PENDING, position), &again.encode());
                Ok(false)
            })?;
            if let Some(first) = first.filter(|_| settings.in_order) {
                self.give_back_behind(tx, lease, first, due_micros)?;
            }
            settled.lost.sort_unstable();
            Ok(settled)
        })
    }

    /// What a lease holds behind `first` waits with it.
    fn give_back_behind(
        &self,
        tx: &mut Transaction,
        lease: u64,
        first: Position,
        due_micros: i64,
    ) -> Result<(), Error> {
        for (position, one) in self.pending(tx)? {
            if position > first && one.lease == lease {
                let again = Pending { lease: 0, due_micros, tries: one.tries.saturating_sub(1), ..one };
                tx.put(self.groups.keyspace, &self.key(PENDING, position), &again.encode());
            }
        }
        Ok(())
    }

    /// Parks events of a lease: nobody is given them until they are replayed.
    ///
    /// # Errors
    /// [`super::GroupError::Unknown`], [`super::GroupError::UnknownLease`]; the database's own.
    pub fn park(&self, lease: u64, positions: Option<&[Position]>, reason: &str) -> Result<Settled, Error> {
        self.settle(lease, positions, |tx, position, one| {
            self.to_parked(tx, position, one.tries, reason.to_owned());
            Ok(true)
        })
    }

    /// Holds what is left of a lease for `lease_time` from now on, or the time of the settings. Answers until when,
    /// microseconds since 1970 UTC.
    ///
    /// # Errors
    /// [`super::GroupError::Unknown`], [`super::GroupError::UnknownLease`]; the database's own.
    pub fn extend(&self, lease: u64, lease_time: Option<Duration>) -> Result<(Settled, i64), Error> {
        let _turn = self.turn();
        self.attempt(|tx| {
            let time = lease_time.unwrap_or(self.holding(tx, lease)?.settings.lease).min(super::TIME_MAX);
            let due_micros = self.now().saturating_add_unsigned(time.as_micros() as u64);
            let settled = self.each(tx, lease, None, |tx, position, one| {
                let held = Pending { due_micros, ..one };
                tx.put(self.groups.keyspace, &self.key(PENDING, position), &held.encode());
                Ok(false)
            })?;
            Ok((settled, due_micros))
        })
    }

    /// Up to `limit` parked events behind `after`, by position.
    ///
    /// # Errors
    /// [`super::GroupError::Unknown`]; damage.
    pub fn parked(&self, after: Option<Position>, limit: usize) -> Result<Vec<Parked>, Error> {
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
        let mut parked = Vec::new();
        for (position, one) in found {
            if let Some(event) = self.event(&snapshot, position)? {
                let ParkedRecord { tries, time_micros, reason } = one;
                parked.push(Parked { event, tries, time_micros, reason });
            }
        }
        Ok(parked)
    }

    /// Hands parked events out again, at once and with all their tries: these, or with `None` all.
    ///
    /// # Errors
    /// [`super::GroupError::Unknown`]; the database's own.
    pub fn replay(&self, positions: Option<&[Position]>) -> Result<Settled, Error> {
        self.each_parked(positions, |tx, position| {
            let again = Pending { due_micros: self.now(), ..Pending::default() };
            tx.put(self.groups.keyspace, &self.key(PENDING, position), &again.encode());
        })
    }

    /// Forgets parked events: these, or with `None` all.
    ///
    /// # Errors
    /// [`super::GroupError::Unknown`]; the database's own.
    pub fn discard(&self, positions: Option<&[Position]>) -> Result<Settled, Error> {
        self.each_parked(positions, |_, _| ())
    }

    fn each_parked(
        &self,
        positions: Option<&[Position]>,
        mut work: impl FnMut(&mut Transaction, Position),
    ) -> Result<Settled, Error> {
        let _turn = self.turn();
        self.attempt(|tx| {
            self.get(tx)?;
            let wanted = match positions {
                Some(positions) => positions.to_vec(),
                None => {
                    let (start, end) = (key(&self.prefix, PARKED, None), key(&self.prefix, PARKED + 1, None));
                    let rows = tx.range(self.groups.keyspace, &start, Some(&end), usize::MAX)?;
                    rows.iter().filter_map(|(key, _)| position_of(key)).collect()
                }
            };
            let mut settled = Settled::default();
            for position in wanted {
                let key = self.key(PARKED, position);
                if tx.get(self.groups.keyspace, &key)?.is_none() {
                    settled.lost.push(position);
                    continue;
                }
                tx.delete(self.groups.keyspace, &key);
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
        mut work: impl FnMut(&mut Transaction, Position, Pending) -> Result<bool, Error>,
    ) -> Result<Settled, Error> {
        let _turn = self.turn();
        self.attempt(|tx| {
            self.holding(tx, lease)?;
            self.each(tx, lease, positions, &mut work)
        })
    }

    /// Does `work` to events that the lease holds; it answers true for those that it parked.
    fn each(
        &self,
        tx: &mut Transaction,
        lease: u64,
        positions: Option<&[Position]>,
        mut work: impl FnMut(&mut Transaction, Position, Pending) -> Result<bool, Error>,
    ) -> Result<Settled, Error> {
        let mut settled = Settled::default();
        let held = match positions {
            Some(positions) => {
                let mut held = Vec::new();
                for position in positions {
                    let stored = tx.get(self.groups.keyspace, &self.key(PENDING, *position))?;
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
