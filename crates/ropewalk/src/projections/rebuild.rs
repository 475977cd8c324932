//! Rebuilds: new outputs are built next to the live ones and replace them in one commit.
//!
//! ```text
//! begin ─▶ batches up to the live checkpoint, which still moves ─▶ live projection paused ─▶ last batch ─▶ swap
//!   └ record 'r': generation, checkpoint: the state a rebuild resumes from            one commit ┘
//! ```
//!
//! A projection without a live checkpoint is built up to the head of the store at the start of the rebuild.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::live::Batch;
use super::record::{Kind, Record};
use super::run::{ProjectionRun, copy_rules, drop_outputs, swap_outputs};
use super::{Inner, Projections, Registered};
use crate::database::Snapshot;
use crate::database::transaction::Transaction;
use crate::error::Result;

/// Which projections to rebuild.
///
/// In every mode, an interrupted rebuild restarts if its store was deleted since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RebuildMode {
    /// Resumes interrupted rebuilds at their checkpoint; begins none.
    #[default]
    ResumeOnly,
    /// Also begins a rebuild of each projection that has no checkpoint.
    MissingCheckpointsOnly,
    /// Rebuilds from the first event and discards an interrupted rebuild.
    ForceFullRebuild,
}

/// Result of a rebuild, which is finished or interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rebuilt {
    /// The generation that it built.
    pub generation: u64,
    /// Number of events applied, not counting those before an interruption.
    pub applied: u64,
    /// It resumed an interrupted rebuild.
    pub resumed: bool,
    /// Its outputs are live; false if it was interrupted.
    pub finished: bool,
}

impl Projections {
    /// Rebuilds one projection while readers and the live projection continue.
    ///
    /// Returns `None` if the mode has nothing to do, such as [`RebuildMode::ResumeOnly`] without an
    /// interrupted rebuild.
    ///
    /// # Errors
    /// As [`Projections::catch_up`]; the partial build is preserved, and [`RebuildMode::ResumeOnly`] resumes
    /// it. Outputs that other objects refer to cannot be swapped.
    pub fn rebuild(&self, name: &str, mode: RebuildMode) -> Result<Option<Rebuilt>> {
        let one = self.0.one(name)?;
        self.0.rebuild(&one, mode)
    }

    /// Rebuilds all registered projections, several in parallel.
    pub fn rebuild_all(&self, mode: RebuildMode) -> Vec<(String, Result<Option<Rebuilt>>)> {
        let names = self.names();
        self.rebuild_some(names.iter().map(String::as_str), mode)
    }

    /// Rebuilds the named projections, several in parallel. One failure does not stop the others.
    pub fn rebuild_some<'a>(
        &self,
        names: impl IntoIterator<Item = &'a str>,
        mode: RebuildMode,
    ) -> Vec<(String, Result<Option<Rebuilt>>)> {
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
    pub(super) fn rebuild(&self, one: &Registered, mode: RebuildMode) -> Result<Option<Rebuilt>> {
        let _alone = one.rebuild.lock();
        let interruptions = self.interruptions.load(Ordering::Acquire);
        let Some((generation, resumed)) = self.attempt(|tx| self.begin(tx, one, mode))? else {
            return Ok(None);
        };
        let mut rebuilt = Rebuilt { generation, applied: 0, resumed, finished: false };
        // Most batches run while the live projection continues; only the last ones run while it is paused.
        if !self.build(one, &mut rebuilt, interruptions)? {
            return Ok(Some(rebuilt));
        }
        let _turn = one.turn.lock();
        while !rebuilt.finished && self.build(one, &mut rebuilt, interruptions)? {
            rebuilt.finished = self.attempt(|tx| self.switch(tx, one, generation))?;
        }
        Ok(Some(rebuilt))
    }

    /// Records the start of a rebuild, or finds one to resume: its generation, and whether it is resumed.
    fn begin(
        &self,
        tx: &mut Transaction,
        one: &Registered,
        mode: RebuildMode,
    ) -> Result<Option<(u64, bool)>> {
        let records = self.records(&one.name);
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

    /// Applies batches until the rebuild has reached its end; false if it was interrupted.
    fn build(&self, one: &Registered, rebuilt: &mut Rebuilt, interruptions: u64) -> Result<bool> {
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
    ) -> Result<Batch> {
        let records = self.records(&one.name);
        let stored = records.get(tx, Kind::Rebuild)?.filter(|record| record.generation == generation);
        // Another call finished or discarded it.
        let Some(mut record) = stored else { return Ok(Batch::ended(0)) };
        let snapshot = tx.snapshot();
        let store = self.store.id_at(snapshot.engine());
        if !record.is_of(store) {
            return Err(self.replaced(one));
        }
        // Read without validation at commit: the live projection moves while this batch is applied.
        let live = records.look(&snapshot, Kind::Live)?;
        let until = self.end(&snapshot, &record, live.as_ref());
        if record.checkpoint >= until {
            return Ok(Batch::ended(record.checkpoint));
        }
        record.store = store.unwrap_or(record.store);
        let run = ProjectionRun::new(tx, one, generation, true);
        let batch = self.apply(run, one, &mut record, until, most)?;
        // Also to collections that this batch has created.
        copy_rules(tx, &one.handler.outputs(), generation)?;
        records.put(tx, Kind::Rebuild, &record);
        Ok(batch)
    }

    /// The position that a rebuild must reach before it may take over.
    fn end(&self, snapshot: &Snapshot, record: &Record, live: Option<&Record>) -> u64 {
        let store = self.store.id_at(snapshot.engine());
        live.filter(|live| live.is_of(store)).map_or(record.until, |live| live.checkpoint)
    }

    /// Makes the new outputs live; false if the live projection is ahead.
    fn switch(&self, tx: &mut Transaction, one: &Registered, generation: u64) -> Result<bool> {
        let records = self.records(&one.name);
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
