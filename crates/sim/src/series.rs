//! Series on a disk that fails: samples in any order and with repeats, deletions, days that are dropped, snapshots that stay.
//!
//!   append, delete, drop ─▶ the model's next state      hold ─▶ a snapshot, compared again and again while flushes go on
//!   crash ─▶ open ─▶ the samples are a state of the model, not older than promised; verify finds nothing
//!
//! The model keeps every sample of every state, so it says what any snapshot must show.

use std::collections::BTreeMap;
use std::time::Duration;

use ropewalk::series::{Labels, Matcher, PARTITION_MS, SampleBatch, Samples, SeriesStore};
use ropewalk::{Database, Durability, Error, Snapshot};

use crate::Run;
use crate::boots::{self, Boots, World};
use crate::world::{Bug, Check, ensure};

const SERIES: u64 = 6;
const SNAPSHOTS: usize = 3;

/// What the store holds.
#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    /// Series and time; the bits of the value.
    samples: BTreeMap<(u64, i64), u64>,
    floor: i64,
}

struct SeriesWorld {
    boots: Boots,
    held: Vec<Snapshot>,
    /// The state after each commit, ascending.
    states: Vec<(u64, State)>,
    /// States that a commit without an answer may have left.
    doubts: Vec<State>,
}

/// Runs one seed: so many boots, each under some trouble.
pub fn run_series(seed: u64, boots: u64) -> Run {
    let world = SeriesWorld {
        boots: Boots::new(seed, 0x5e71e5),
        held: Vec::new(),
        states: vec![(0, State { samples: BTreeMap::new(), floor: i64::MIN })],
        doubts: Vec::new(),
    };
    boots::run(world, boots)
}

fn store(db: &Database) -> Result<SeriesStore, Error> {
    db.series("m")
}

fn labels(series: u64) -> Result<Labels, Error> {
    Ok(Labels::new([("__name__", "m".to_owned()), ("s", series.to_string())])?)
}

fn matcher(series: u64) -> Result<Matcher, Error> {
    Ok(Matcher::equal("s", series.to_string())?)
}

fn read_state(db: &Database, snapshot: &Snapshot) -> Result<BTreeMap<(u64, i64), u64>, Error> {
    let store = store(db)?;
    let at = snapshot.series(&store);
    let mut selection = at.select(&[Matcher::equal("__name__", "m")?], i64::MIN, i64::MAX)?;
    let (mut found, mut samples) = (BTreeMap::new(), Samples::default());
    while selection.next().is_some() {
        samples.clear();
        selection.samples(&mut samples)?;
        let series = selection.labels().and_then(|l| l.get("s").and_then(|s| s.parse().ok())).unwrap_or(0);
        found.extend(samples.bits().map(|(time, bits)| ((series, time), bits)));
    }
    Ok(found)
}

impl World for SeriesWorld {
    fn boots(&mut self) -> &mut Boots {
        &mut self.boots
    }

    fn leave(&mut self) {
        self.held.clear();
    }

    fn reconcile(&mut self, db: &Database) -> Check {
        let found = db.seq().0;
        let last = self.states.last().map_or(0, |(seq, _)| *seq);
        if found > last {
            let samples = read_state(db, &db.snapshot())?;
            let floor = store(db)?.floor();
            let state = State { samples, floor };
            ensure!(self.doubts.contains(&state), "commit {found}, which nobody knows of, left {state:?}");
            self.states.push((found, state));
        }
        self.states.retain(|(seq, _)| *seq <= found);
        self.doubts.clear();
        self.compare(db)
    }

    fn compare(&mut self, db: &Database) -> Check {
        self.compare_at(db, &db.snapshot())?;
        let report = db.verify()?;
        ensure!(report.violations.is_empty(), "verify: {:?}", report.violations);
        ensure!(report.store.damage.is_empty(), "verify: {:?}", report.store.damage);
        Ok(())
    }

    fn step(&mut self) -> Check {
        match self.boots.dice.below(40) {
            0..20 => self.append(),
            20..24 => self.delete(),
            24 => self.drop_days(),
            25..33 => self.housekeeping(),
            33 => {
                self.boots.clock.advance(Duration::from_millis(self.boots.dice.below(300)));
                Ok(())
            }
            34..36 => self.hold(),
            _ => self.look(),
        }
    }
}

impl SeriesWorld {
    /// The state that a snapshot of commit `at` shows.
    fn state_at(&self, at: u64) -> Check<&State> {
        let found = self.states.iter().rev().find(|(seq, _)| *seq <= at);
        found.map(|(_, state)| state).ok_or_else(|| Bug(format!("no state at commit {at}")))
    }

    fn compare_at(&mut self, db: &Database, snapshot: &Snapshot) -> Check {
        self.boots.counts.reads += 1;
        let at = snapshot.seq().0;
        let (found, expected) = (read_state(db, snapshot)?, &self.state_at(at)?.samples);
        ensure!(found == *expected, "at commit {at}: expected {expected:?}, found {found:?}");
        Ok(())
    }

    fn any_time(&self) -> i64 {
        let day = PARTITION_MS * self.boots.dice.between(0, 2).cast_signed();
        day + self.boots.dice.below(40).cast_signed() - 5
    }

    fn append(&mut self) -> Check {
        let db = self.boots.db()?;
        let latest = self.state_at(u64::MAX)?;
        let (floor, mut after) = (latest.floor, latest.clone());
        let mut batch = SampleBatch::new();
        for _ in 0..self.boots.dice.between(1, 8) {
            let series = self.boots.dice.below(SERIES);
            let labels = labels(series)?;
            let mut to = batch.series(&labels);
            let long = self.boots.dice.one_in(5);
            let (first, step) = (self.any_time(), 1 + self.boots.dice.below(20_000).cast_signed());
            for i in 0..if long { self.boots.dice.between(64, 300) } else { self.boots.dice.between(1, 3) } {
                let time = first + i.cast_signed() * step;
                let value = (self.boots.dice.below(50) as f64) / 4.0;
                if time >= floor {
                    to.push(time, value);
                    after.samples.insert((series, time), value.to_bits());
                }
            }
        }
        let durability = self.boots.dice.weighted(&[
            (6, Durability::Sync),
            (2, Durability::Buffered),
            (1, Durability::Async { interval: Duration::from_millis(50) }),
        ]);
        self.boots.note(format!("append {} samples, {durability:?}", batch.len()));
        let done = store(&db)?.append_with(&batch, durability).map(|done| done.seq.0);
        self.settle("append", done.map_err(Error::from), durability, after)
    }

    /// A commit that was answered, or not.
    fn settle(
        &mut self,
        what: &str,
        done: Result<u64, Error>,
        durability: Durability,
        after: State,
    ) -> Check {
        match done {
            Ok(seq) => {
                self.boots.acknowledged(seq, durability);
                self.states.push((seq, after));
            }
            Err(error) => {
                self.boots.excuse(what, &error)?;
                self.doubts.push(after);
            }
        }
        Ok(())
    }

    fn delete(&mut self) -> Check {
        let db = self.boots.db()?;
        let series = self.boots.dice.below(SERIES);
        let (a, b) = (self.any_time(), self.any_time());
        let (from, to) = if self.boots.dice.one_in(4) { (i64::MIN, i64::MAX) } else { (a.min(b), a.max(b)) };
        let mut after = self.state_at(u64::MAX)?.clone();
        after.samples.retain(|(s, time), _| *s != series || *time < from || *time > to);
        self.boots.note(format!("delete {series} from {from} to {to}"));
        let done = store(&db)?.delete(&[matcher(series)?], from, to).map_err(Error::from);
        if matches!(done, Ok(0)) {
            // There is no such series: nothing was committed.
            return Ok(());
        }
        let seq = db.seq().0;
        self.settle("delete", done.map(|_| seq), Durability::Sync, after)
    }

    fn drop_days(&mut self) -> Check {
        let db = self.boots.db()?;
        if !self.boots.dice.one_in(4) {
            return Ok(());
        }
        let day = PARTITION_MS * self.boots.dice.below(2).cast_signed();
        let mut after = self.state_at(u64::MAX)?.clone();
        if after.floor >= day || db.series_stores().is_empty() {
            return Ok(());
        }
        after.floor = day;
        after.samples.retain(|(_, time), _| *time >= day);
        self.boots.note(format!("drop what lies before {day}"));
        let done = store(&db)?.drop_before(day + 3).map_err(Error::from);
        let seq = db.seq().0;
        self.settle("drop", done.map(|_| seq), Durability::Sync, after)
    }

    fn hold(&mut self) -> Check {
        if self.held.len() == SNAPSHOTS {
            self.held.remove(0);
        }
        self.held.push(self.boots.db()?.snapshot());
        Ok(())
    }

    fn look(&mut self) -> Check {
        let db = self.boots.db()?;
        let held = std::mem::take(&mut self.held);
        for snapshot in held.iter().chain([&db.snapshot()]) {
            self.compare_at(&db, snapshot)?;
        }
        self.held = held;
        Ok(())
    }

    fn housekeeping(&mut self) -> Check {
        let db = self.boots.db()?;
        let done = match self.boots.dice.below(8) {
            0 => db.checkpoint(),
            1 if self.boots.dice.one_in(3) => db.compact(),
            _ => db.engine().background_step().map(|_| ()).map_err(Error::from),
        };
        match done {
            Ok(()) => Ok(()),
            Err(error) => self.boots.excuse("housekeeping", &error),
        }
    }
}
