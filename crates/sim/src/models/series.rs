//! Series on a disk that fails: samples in any order and with repeats, deletions, days that are dropped, snapshots that stay.
//!
//!   append, delete, drop ─▶ the model's next state      read, wait, commit ─▶ reads are unchanged since
//!   hold ─▶ a snapshot, compared repeatedly during flushes
//!   crash ─▶ open ─▶ the samples are a state of the model, no acknowledged commit lost; verify finds nothing
//!
//! The model stores the effect of every commit on every sample, so it defines the contents of any snapshot.

use std::collections::BTreeMap;
use std::time::Duration;

use ropewalk::series::{Labels, Matcher, PARTITION_MS, SampleBatch, Samples, SeriesStore};
use ropewalk::{Database, Durability, Error, Snapshot, Transaction};

use crate::Run;
use crate::events::scenario::{Bug, Check, ensure};
use crate::runs::restarts;
use crate::runs::restarts::{Boots, World};

const SERIES: u64 = 6;
/// Series that are created many at a time.
const MANY: u64 = 400;
const SNAPSHOTS: usize = 3;

/// Series and time of a sample.
type Key = (u64, i64);

/// Effect of a commit.
#[derive(Debug)]
struct Change {
    /// The new bits of a sample; `None`: deleted.
    samples: Vec<(Key, Option<u64>)>,
    floor: Option<i64>,
}

/// Contents of the store after each commit.
#[derive(Default)]
struct History {
    /// Versions of each sample, with their commits, which rise.
    samples: BTreeMap<Key, Vec<(u64, Option<u64>)>>,
    floors: Vec<(u64, i64)>,
    last: u64,
}

impl History {
    /// The samples after commit `at`.
    fn samples_at(&self, at: u64) -> impl Iterator<Item = (Key, u64)> {
        self.samples.iter().filter_map(move |(key, versions)| {
            let (_, bits) = versions.iter().rev().find(|(seq, _)| *seq <= at)?;
            bits.map(|bits| (*key, bits))
        })
    }

    fn newest(&self) -> impl Iterator<Item = (Key, u64)> {
        self.samples_at(u64::MAX)
    }

    fn floor(&self) -> i64 {
        self.floors.last().map_or(i64::MIN, |(_, floor)| *floor)
    }

    fn commit(&mut self, seq: u64, change: Change) {
        for (key, bits) in change.samples {
            self.samples.entry(key).or_default().push((seq, bits));
        }
        self.floors.extend(change.floor.map(|floor| (seq, floor)));
        self.last = seq;
    }

    /// Drops the effects of commits after `seq`.
    fn cut(&mut self, seq: u64) {
        if seq >= self.last {
            return;
        }
        self.samples.retain(|_, versions| {
            versions.retain(|(of, _)| *of <= seq);
            !versions.is_empty()
        });
        self.floors.retain(|(of, _)| *of <= seq);
        self.last = seq;
    }

    /// True when `change` would result in exactly this.
    fn would_be(&self, change: &Change, samples: &BTreeMap<Key, u64>, floor: i64) -> bool {
        let mut all: BTreeMap<Key, u64> = self.newest().collect();
        for (key, bits) in &change.samples {
            match bits {
                Some(bits) => all.insert(*key, *bits),
                None => all.remove(key),
            };
        }
        all == *samples && change.floor.unwrap_or_else(|| self.floor()) == floor
    }
}

/// A read of a transaction.
struct Read {
    /// Its snapshot.
    since: u64,
    /// One series or all, and between which times.
    series: Option<u64>,
    range: (i64, i64),
}

impl Read {
    fn has(&self, (series, time): Key) -> bool {
        self.series.is_none_or(|of| of == series) && (self.range.0..=self.range.1).contains(&time)
    }
}

struct SeriesWorld {
    boots: Boots,
    open: Option<(Transaction, Read)>,
    held: Vec<Snapshot>,
    history: History,
    /// Commits without a response since the last acknowledged one.
    doubts: Vec<Change>,
}

/// Runs one seed: so many boots, each with one kind of injected fault.
pub fn run_series(seed: u64, boots: u64) -> Run {
    let world = SeriesWorld {
        boots: Boots::new(seed, 0x5e71e5),
        open: None,
        held: Vec::new(),
        history: History::default(),
        doubts: Vec::new(),
    };
    restarts::run(world, boots)
}

fn store(db: &Database) -> Result<SeriesStore, Error> {
    db.series("m")
}

fn labels(series: u64) -> Result<Labels, Error> {
    Ok(Labels::new([("__name__", "m".to_owned()), ("s", series.to_string())])?)
}

fn matcher(series: u64) -> Matcher {
    Matcher::equal("s", series.to_string())
}

fn read_state(db: &Database, snapshot: &Snapshot) -> Result<BTreeMap<(u64, i64), u64>, Error> {
    let store = store(db)?;
    let at = snapshot.series(&store);
    let mut selection = at.select(&[Matcher::equal("__name__", "m")], i64::MIN, i64::MAX)?;
    let (mut found, mut samples) = (BTreeMap::new(), Samples::default());
    while selection.next().is_some() {
        samples.clear();
        selection.samples(&mut samples)?;
        let series = selection.labels().and_then(|l| l.get("s").parse().ok()).unwrap_or(0);
        found.extend(samples.bits().map(|(time, bits)| ((series, time), bits)));
    }
    Ok(found)
}

impl World for SeriesWorld {
    fn boots(&mut self) -> &mut Boots {
        &mut self.boots
    }

    fn leave(&mut self) {
        self.open = None;
        self.held.clear();
    }

    fn reconcile(&mut self, db: &Database) -> Check {
        let found = db.seq().0;
        let doubts = std::mem::take(&mut self.doubts);
        if found > self.history.last {
            let (samples, floor) = (read_state(db, &db.snapshot())?, store(db)?.retention_floor_ms());
            let done = doubts.into_iter().find(|change| self.history.would_be(change, &samples, floor));
            let nobody =
                || Bug(format!("commit {found} matches no pending change: left {samples:?} from {floor}"));
            self.history.commit(found, done.ok_or_else(nobody)?);
        }
        self.history.cut(found);
        self.compare(db)
    }

    fn compare(&mut self, db: &Database) -> Check {
        self.compare_at(db, &db.snapshot())?;
        restarts::verify(db)
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
            36..38 => match self.open.take() {
                None => self.begin(),
                Some((transaction, read)) => self.end(transaction, &read),
            },
            _ => self.look(),
        }
    }
}

impl SeriesWorld {
    fn compare_at(&mut self, db: &Database, snapshot: &Snapshot) -> Check {
        self.boots.counts.reads += 1;
        let at = snapshot.seq().0;
        let found = read_state(db, snapshot)?;
        let expected = || self.history.samples_at(at);
        ensure!(
            found.iter().map(|(key, bits)| (*key, *bits)).eq(expected()),
            "at commit {at}: expected {:?}, found {found:?}",
            expected().collect::<BTreeMap<_, _>>()
        );
        Ok(())
    }

    fn any_time(&self) -> i64 {
        let day = PARTITION_MS * self.boots.dice.between(0, 2).cast_signed();
        day + self.boots.dice.below(40).cast_signed() - 5
    }

    fn append(&mut self) -> Check {
        let db = self.boots.db()?;
        let floor = self.history.floor();
        let mut after = BTreeMap::new();
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
                    after.insert((series, time), Some(value.to_bits()));
                }
            }
        }
        if self.boots.dice.one_in(40) {
            // More than the index adds at a time.
            let first = SERIES + MANY / 2 * self.boots.dice.below(4);
            let time = self.any_time().max(floor);
            for series in first..first + MANY {
                batch.push(&labels(series)?, time, 1.0);
                after.insert((series, time), Some(1.0_f64.to_bits()));
            }
        }
        let durability = self.boots.dice.weighted(&[
            (6, Durability::Sync),
            (2, Durability::Buffered),
            (1, Durability::Async { interval: Duration::from_millis(50) }),
        ]);
        self.boots.note(format!("append {} samples, {durability:?}", batch.len()));
        let done = store(&db)?.append_with(&batch, durability).map(|done| done.seq.0);
        let change = Change { samples: after.into_iter().collect(), floor: None };
        self.settle("append", done.map_err(Error::from), durability, change)
    }

    /// Records a commit with or without a response.
    fn settle(
        &mut self,
        what: &str,
        done: Result<u64, Error>,
        durability: Durability,
        change: Change,
    ) -> Check {
        match done {
            Ok(seq) => {
                self.boots.acknowledged(seq, durability);
                // Earlier commits without a response did not happen.
                self.doubts.clear();
                self.history.commit(seq, change);
            }
            Err(error) => {
                self.boots.excuse(what, &error)?;
                self.doubts.push(change);
            }
        }
        Ok(())
    }

    fn delete(&mut self) -> Check {
        let db = self.boots.db()?;
        let series = self.boots.dice.below(SERIES);
        let (a, b) = (self.any_time(), self.any_time());
        let (from, to) = if self.boots.dice.one_in(4) { (i64::MIN, i64::MAX) } else { (a.min(b), a.max(b)) };
        let hit = |(s, time): Key| s == series && (from..=to).contains(&time);
        let change = Change { samples: self.gone(hit), floor: None };
        self.boots.note(format!("delete {series} from {from} to {to}"));
        let done = store(&db)?.delete(&[matcher(series)], from, to).map_err(Error::from);
        if matches!(done, Ok(0)) {
            // The series does not exist: nothing was committed.
            return Ok(());
        }
        let seq = db.seq().0;
        self.settle("delete", done.map(|_| seq), Durability::Sync, change)
    }

    /// Begins a serializable transaction that reads some samples.
    fn begin(&mut self) -> Check {
        let db = self.boots.db()?;
        let (a, b) = (self.any_time(), self.any_time());
        let series = (!self.boots.dice.one_in(4)).then(|| self.boots.dice.below(SERIES));
        let matchers = match series {
            Some(series) => vec![matcher(series)],
            None => vec![Matcher::equal("__name__", "m")],
        };
        let mut transaction = db.begin();
        let since = transaction.snapshot().seq().0;
        let read = Read { since, series, range: (a.min(b), a.max(b)) };
        self.boots.note(format!("begin at {since}: read {series:?} between {:?}", read.range));
        let store = store(&db)?;
        let at = transaction.series(&store)?;
        let mut selection = at.select(&matchers, read.range.0, read.range.1)?;
        let (mut samples, mut found) = (Samples::default(), 0);
        while selection.next().is_some() {
            samples.clear();
            found += selection.samples(&mut samples)?;
        }
        drop(selection);
        let expected = self.history.samples_at(since).filter(|(key, _)| read.has(*key)).count();
        ensure!(found == expected, "a transaction at {since} read {found} samples, not {expected}");
        self.open = Some((transaction, read));
        Ok(())
    }

    /// Makes it write a sample and commit, which is refused when its reads have changed.
    fn end(&mut self, mut transaction: Transaction, read: &Read) -> Check {
        let db = self.boots.db()?;
        let key = (self.boots.dice.below(SERIES), self.any_time().max(self.history.floor()));
        let mut batch = SampleBatch::new();
        batch.push(&labels(key.0)?, key.1, 0.5);
        let since = read.since;
        self.boots.note(format!("end the transaction at {since}, with a sample"));
        let change = Change { samples: vec![(key, Some(0.5_f64.to_bits()))], floor: None };
        transaction.append_samples(&store(&db)?, &batch)?;
        let overtakes = |(key, versions): (&Key, &Vec<(u64, Option<u64>)>)| {
            read.has(*key) && versions.iter().any(|(seq, _)| *seq > since)
        };
        let overtaken = self.history.samples.iter().any(overtakes);
        let done = transaction.commit();
        match &done {
            Ok(_) => {
                ensure!(!overtaken, "a commit was not refused though what it read at {since} has changed")
            }
            Err(error) if error.is_conflict() => {
                let is_excused = self.history.last > since || !self.doubts.is_empty();
                ensure!(is_excused, "a commit was refused though nothing has changed since {since}: {error}");
                self.boots.counts.refusals += 1;
                return Ok(());
            }
            Err(_) => {}
        }
        let seq = db.seq().0;
        self.settle("commit", done.map(|_| seq), Durability::Sync, change)
    }

    /// Effect of a commit that deletes the samples for which `hit` holds.
    fn gone(&self, hit: impl Fn(Key) -> bool) -> Vec<(Key, Option<u64>)> {
        self.history.newest().filter(|(key, _)| hit(*key)).map(|(key, _)| (key, None)).collect()
    }

    fn drop_days(&mut self) -> Check {
        let db = self.boots.db()?;
        if !self.boots.dice.one_in(4) {
            return Ok(());
        }
        let day = PARTITION_MS * self.boots.dice.below(2).cast_signed();
        if self.history.floor() >= day || db.series_stores().is_empty() {
            return Ok(());
        }
        let change = Change { samples: self.gone(|(_, time)| time < day), floor: Some(day) };
        self.boots.note(format!("drop what lies before {day}"));
        let done = store(&db)?.drop_before(day + 3).map_err(Error::from);
        let seq = db.seq().0;
        self.settle("drop", done.map(|_| seq), Durability::Sync, change)
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
