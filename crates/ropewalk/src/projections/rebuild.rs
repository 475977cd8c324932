//! Building anew: beside what is there, batch by batch, until one commit puts the new outputs in its place.
//!
//! ```text
//! begin ─▶ batches up to the live checkpoint, which goes on meanwhile ─▶ live stands still ─▶ last batch ─▶ swap
//!   └ record 'r': generation, checkpoint: what a resumed rebuild goes on from               one commit ┘
//! ```
//!
//! A projection without a live checkpoint is built up to the head that the store had when the rebuild began.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::live::Batch;
use super::record::{Kind, Record};
use super::run::{ProjectionRun, drop_outputs, swap_outputs};
use super::{Inner, Projections, Registered};
use crate::database::Snapshot;
use crate::error::Error;
use crate::transaction::Transaction;

/// What is rebuilt. Whatever the mode, an interrupted rebuild of a store that was deleted since begins anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RebuildMode {
    /// Resumes rebuilds that were interrupted, at their checkpoint; begins none.
    #[default]
    ResumeOnly,
    /// As [`RebuildMode::ResumeOnly`], and begins a rebuild of each projection that has no checkpoint yet.
    MissingCheckpointsOnly,
    /// Everything, from the first event; an interrupted rebuild is thrown away.
    ForceFullRebuild,
}

/// A rebuild that was done, or interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rebuilt {
    /// The generation that it built.
    pub generation: u64,
    /// Events that it applied, without those of before an interruption.
    pub applied: u64,
    /// It went on with one that was interrupted.
    pub resumed: bool,
    /// Its outputs are in place. False: it was interrupted.
    pub finished: bool,
}

impl Projections {
    /// Rebuilds one projection while readers and the live projection go on. `None` when the mode has nothing
    /// to do, such as [`RebuildMode::ResumeOnly`] where no rebuild was interrupted.
    ///
    /// # Errors
    /// As [`Projections::catch_up`]: what is built so far stays, and [`RebuildMode::ResumeOnly`] resumes it.
    /// Outputs that others refer to and so cannot be swapped.
    pub fn rebuild(&self, name: &str, mode: RebuildMode) -> Result<Option<Rebuilt>, Error> {
        let one = self.0.one(name)?;
        self.0.rebuild(&one, mode)
    }

    /// Rebuilds every registered projection, several side by side.
    pub fn rebuild_all(&self, mode: RebuildMode) -> Vec<(String, Result<Option<Rebuilt>, Error>)> {
        let names = self.names();
        self.rebuild_some(names.iter().map(String::as_str), mode)
    }

    /// Rebuilds some projections, several side by side. A failure of one does not end the others.
    pub fn rebuild_some<'a>(
        &self,
        names: impl IntoIterator<Item = &'a str>,
        mode: RebuildMode,
    ) -> Vec<(String, Result<Option<Rebuilt>, Error>)> {
        let names: Vec<&str> = names.into_iter().collect();
        let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let take = || {
            let index = next.fetch_add(1, Ordering::Relaxed);
            names.get(index).map(|name| (index, *name))
        };
        let work = || {
            while let Some((index, name)) = take() {
                let result = self.rebuild(name, mode);
                done.lock().push((index, name.to_owned(), result));
            }
        };
        let helpers = self.0.options.rebuilds_at_once.min(names.len()).saturating_sub(1);
        std::thread::scope(|scope| {
            for _ in 0..helpers {
                scope.spawn(work);
            }
            work();
        });
        let mut done = done.into_inner();
        done.sort_by_key(|(index, ..)| *index);
        done.into_iter().map(|(_, name, result)| (name, result)).collect()
    }
}

impl Inner {
    pub(super) fn rebuild(&self, one: &Registered, mode: RebuildMode) -> Result<Option<Rebuilt>, Error> {
        let _alone = one.rebuild.lock();
        let interruptions = self.interruptions.load(Ordering::Acquire);
        let Some((generation, resumed)) = self.attempt(|tx| self.begin(tx, one, mode))? else {
            return Ok(None);
        };
        let mut rebuilt = Rebuilt { generation, applied: 0, resumed, finished: false };
        // The long way beside the live projection, the last steps while it stands still.
        if !self.build(one, &mut rebuilt, interruptions)? {
            return Ok(Some(rebuilt));
        }
        let _turn = one.turn.lock();
        while !rebuilt.finished && self.build(one, &mut rebuilt, interruptions)? {
            rebuilt.finished = self.attempt(|tx| self.switch(tx, one, generation))?;
        }
        Ok(Some(rebuilt))
    }

    /// Notes that a rebuild begins, or finds the one to go on with: its generation, and whether it is an old one.
    fn begin(
        &self,
        tx: &mut Transaction,
        one: &Registered,
        mode: RebuildMode,
    ) -> Result<Option<(u64, bool)>, Error> {
        let records = self.records(one);
        let (live, old) = (records.get(tx, Kind::Live)?, records.get(tx, Kind::Rebuild)?);
        let snapshot = tx.snapshot();
        let store = self.store.id_at(snapshot.engine());
        let wanted = match mode {
            RebuildMode::ResumeOnly => false,
            RebuildMode::MissingCheckpointsOnly => live.is_none(),
            RebuildMode::ForceFullRebuild => true,
        };
        if let Some(old) = &old {
            if mode != RebuildMode::ForceFullRebuild && old.is_of(store) {
                return Ok(Some((old.generation, true)));
            }
            drop_outputs(tx, &one.handler.outputs(), Some(old.generation))?;
        } else if !wanted {
            return Ok(None);
        }
        let newest = live.iter().chain(&old).map(|record| record.generation).max().unwrap_or(0);
        let head = self.store.head_at(snapshot.engine())?.map_or(0, |head| head.0);
        let record = Record {
            generation: newest + 1,
            store: store.unwrap_or(0),
            until: live.filter(|live| live.is_of(store)).map_or(head, |live| live.checkpoint),
            ..Record::default()
        };
        ProjectionRun::new(tx, one, record.generation, true).prepare(one)?;
        records.put(tx, Kind::Rebuild, &record);
        Ok(Some((record.generation, false)))
    }

    /// Applies batches until the rebuild has come as far as it has to; false when it was interrupted.
    fn build(&self, one: &Registered, rebuilt: &mut Rebuilt, interruptions: u64) -> Result<bool, Error> {
        let mut most = self.options.rebuild_batch_events.max(1);
        loop {
            if self.interruptions.load(Ordering::Acquire) != interruptions {
                return Ok(false);
            }
            let batch =
                self.settled(&mut most, |tx, most| self.rebuild_batch(tx, one, rebuilt.generation, most))?;
            rebuilt.applied += batch.applied;
            if batch.ended {
                return Ok(true);
            }
        }
    }

    fn rebuild_batch(
        &self,
        tx: &mut Transaction,
        one: &Registered,
        generation: u64,
        most: usize,
    ) -> Result<Batch, Error> {
        let records = self.records(one);
        let stored = records.get(tx, Kind::Rebuild)?.filter(|record| record.generation == generation);
        // Somebody else ended it.
        let Some(mut record) = stored else { return Ok(Batch::ended(0)) };
        let snapshot = tx.snapshot();
        let store = self.store.id_at(snapshot.engine());
        if !record.is_of(store) {
            return Err(self.replaced(one));
        }
        // Not noted as read: the live projection moves on while this batch is applied.
        let live = records.look(&snapshot, Kind::Live)?;
        let until = self.end(&snapshot, &record, live.as_ref());
        if record.checkpoint >= until {
            return Ok(Batch::ended(record.checkpoint));
        }
        record.store = store.unwrap_or(record.store);
        let run = ProjectionRun::new(tx, one, generation, true);
        let batch = self.apply(run, one, &mut record, until, most)?;
        records.put(tx, Kind::Rebuild, &record);
        Ok(batch)
    }

    /// How far a rebuild has to come before it may take over.
    fn end(&self, snapshot: &Snapshot, record: &Record, live: Option<&Record>) -> u64 {
        let store = self.store.id_at(snapshot.engine());
        live.filter(|live| live.is_of(store)).map_or(record.until, |live| live.checkpoint)
    }

    /// Puts the outputs in place. False while the live projection is ahead.
    fn switch(&self, tx: &mut Transaction, one: &Registered, generation: u64) -> Result<bool, Error> {
        let records = self.records(one);
        let (live, stored) = (records.get(tx, Kind::Live)?, records.get(tx, Kind::Rebuild)?);
        let Some(record) = stored.filter(|record| record.generation == generation) else { return Ok(true) };
        if record.checkpoint < self.end(&tx.snapshot(), &record, live.as_ref()) {
            return Ok(false);
        }
        swap_outputs(tx, &one.handler.outputs(), generation)?;
        records.delete(tx, Kind::Rebuild);
        records.put(tx, Kind::Live, &Record { until: 0, failure: None, ..record });
        Ok(true)
    }
}
