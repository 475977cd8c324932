//! Series on a disk that fails: samples in any order and with repeats, deletions, days that are dropped, snapshots that stay.
//!
//!   append, delete, drop ─▶ the model's next state      hold ─▶ a snapshot, compared again and again while flushes go on
//!   crash ─▶ open ─▶ the samples are a state of the model, not older than promised; verify finds nothing
//!
//! The model keeps every sample of every state, so it says what any snapshot must show.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ropewalk::series::{Labels, Matcher, PARTITION_MS, SampleBatch, Samples, SeriesStore};
use ropewalk::{Class, Database, Durability, Env, Error, Snapshot};
use ropewalk_vfs::{DiskOp, FaultyVfs, ManualClock, SeededRandom};

use crate::dice::Dice;
use crate::world::{Bug, Check, DIR, End, ensure, small_options};
use crate::{Counts, Run};

const SERIES: u64 = 6;
const SNAPSHOTS: usize = 3;
const TRACE_LINES: usize = 60;

/// What the store holds.
#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    /// Series and time; the bits of the value.
    samples: BTreeMap<(u64, i64), u64>,
    floor: i64,
}

struct World {
    dice: Dice,
    vfs: FaultyVfs,
    env: Env,
    clock: Arc<ManualClock>,
    options: ropewalk::Options,
    db: Option<Database>,
    held: Vec<Snapshot>,
    /// The state after each commit, ascending.
    states: Vec<(u64, State)>,
    /// States that a commit without an answer may have left.
    doubts: Vec<State>,
    durable: u64,
    written: u64,
    full: bool,
    sync_failed: bool,
    faults_before: u64,
    counts: Counts,
    trace: Vec<String>,
}

/// Runs one seed: so many boots, each under some trouble.
pub fn run_series(seed: u64, boots: u64) -> Run {
    let vfs = FaultyVfs::new(seed ^ 0x5e71e5);
    let clock = Arc::new(ManualClock::default());
    clock.jump_wall_micros(1_700_000_000_000_000);
    let random = Arc::new(SeededRandom::new(seed ^ 0x5eed));
    let env = Env { vfs: Arc::new(vfs.clone()), clock: clock.clone(), random };
    let dice = Dice::new(seed);
    let mut world = World {
        options: small_options(&dice),
        dice,
        vfs,
        env,
        clock,
        db: None,
        held: Vec::new(),
        states: vec![(0, State { samples: BTreeMap::new(), floor: i64::MIN })],
        doubts: Vec::new(),
        durable: 0,
        written: 0,
        full: false,
        sync_failed: false,
        faults_before: 0,
        counts: Counts::default(),
        trace: Vec::new(),
    };
    let result = catch_unwind(AssertUnwindSafe(|| world.live(boots))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(Bug(format!("panic: {}", text.unwrap_or("without a message"))))
    });
    world.counts.faults = world.vfs.injected();
    let tail = world.trace.split_off(world.trace.len().saturating_sub(TRACE_LINES));
    let (hash, counts) = (world.vfs.fingerprint(), world.counts);
    let bug = result.err().map(|Bug(what)| what);
    if bug.is_some() {
        // A database in an impossible state may not even close; its memory is the price of the report.
        std::mem::forget(world);
    }
    Run { hash, counts, bug, tail }
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

impl World {
    fn live(&mut self, boots: u64) -> Check {
        self.restart(End::Kill, false)?;
        for _ in 0..boots {
            self.troubled_boot()?;
        }
        self.heal();
        self.restart(End::Close, false)?;
        for _ in 0..20 {
            self.step()?;
        }
        self.held.clear();
        let db = self.db()?;
        db.compact()?;
        self.compare(&db)?;
        drop(db);
        self.restart(End::Close, false)
    }

    fn note(&mut self, line: impl Into<String>) {
        self.trace.push(format!("{:>4} {}", self.counts.steps, line.into()));
    }

    fn db(&self) -> Check<Database> {
        self.db.clone().ok_or_else(|| Bug("the database is closed".into()))
    }

    fn heal(&mut self) {
        self.vfs.calm();
        self.full = false;
    }

    fn stopped(&self) -> bool {
        self.db.as_ref().is_some_and(|db| db.engine().stopped().is_some())
    }

    /// A failure, which the disk must explain.
    fn excuse(&mut self, what: &str, error: &Error) -> Check {
        self.note(format!("{what}: {error}"));
        let typed = matches!(error.class(), Class::Io | Class::Busy | Class::Internal);
        let reason =
            self.vfs.is_off() || self.full || self.stopped() || self.vfs.injected() > self.faults_before;
        ensure!(typed && reason, "{what} failed without a reason: {error} ({:?})", error.class());
        Ok(())
    }

    fn troubled_boot(&mut self) -> Check {
        let steps = self.dice.between(10, 120);
        match self.dice.below(8) {
            0 => {}
            1..=4 => self.vfs.crash_at(self.vfs.operations() + self.dice.between(1, 200)),
            5 => {
                self.sync_failed = true;
                self.vfs.fail(DiskOp::Sync, self.dice.below(40));
            }
            6 => self.vfs.fail(DiskOp::Write, self.dice.below(40)),
            _ => {
                self.vfs.set_space(Some(self.vfs.used() + self.dice.below(64 << 10)));
                self.full = true;
            }
        }
        for step in 0..steps {
            self.step()?;
            if self.vfs.is_off() || self.stopped() {
                break;
            }
            if self.full && step > steps / 2 {
                self.heal();
            }
        }
        let end = match self.vfs.is_off() {
            true => End::PowerCut,
            false => self.dice.weighted(&[(3, End::PowerCut), (2, End::Kill), (1, End::Close)]),
        };
        self.heal();
        let trouble = self.dice.one_in(2);
        self.restart(end, trouble)
    }

    /// What must be left after this end.
    fn end(&mut self, end: End) -> Check<u64> {
        let floor = match end {
            End::PowerCut => self.durable,
            End::Kill if self.sync_failed => self.durable,
            End::Kill => self.written,
            End::Close => {
                if let Some(db) = self.db.take() {
                    let (seq, stopped) = (db.seq().0, db.engine().stopped().is_some());
                    match db.close() {
                        Ok(()) if !stopped => self.durable = self.durable.max(seq),
                        Ok(()) => {}
                        Err(error) => {
                            self.note(format!("close: {error}"));
                            ensure!(stopped || self.vfs.is_off(), "close failed without a reason: {error}");
                        }
                    }
                }
                self.durable
            }
        };
        match end {
            End::PowerCut => {
                self.vfs.crash();
                self.counts.power_cuts += 1;
            }
            End::Kill => self.vfs.kill(),
            End::Close => {}
        }
        Ok(floor)
    }

    /// Ends the boot, opens again, and compares.
    fn restart(&mut self, end: End, trouble: bool) -> Check {
        self.note(format!("---- {end:?}"));
        self.held.clear();
        let mut floor = self.end(end)?;
        self.db = None;
        self.sync_failed = false;
        for attempt in 0.. {
            if trouble && attempt < 3 && self.dice.one_in(3) {
                self.vfs.crash_at(self.vfs.operations() + self.dice.between(1, 40));
            }
            self.faults_before = self.vfs.injected();
            self.counts.opens += 1;
            let env = Env { vfs: Arc::new(self.vfs.process()), ..self.env.clone() };
            match self.options.clone().env(env).open(Path::new(DIR)) {
                Ok(db) => {
                    self.db = Some(db);
                    break;
                }
                Err(error) => self.excuse("open", &error)?,
            }
            if self.vfs.is_off() {
                self.vfs.crash();
                floor = self.durable;
            }
            if attempt > 2 {
                self.heal();
            }
        }
        // What was planned for the opening does not meet the comparison.
        self.vfs.calm();
        if self.vfs.is_off() {
            self.vfs.crash();
            return self.restart(End::PowerCut, false);
        }
        let db = self.db()?;
        self.reconcile(&db, floor)
    }

    fn reconcile(&mut self, db: &Database, floor: u64) -> Check {
        let found = db.seq().0;
        self.note(format!("opened at commit {found}, promised {floor}"));
        ensure!(found >= floor, "commit {floor} was acknowledged and is lost: reopened at commit {found}");
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
        (self.durable, self.written) = (found, found);
        self.compare(db)
    }

    /// The state that a snapshot of commit `at` shows.
    fn state_at(&self, at: u64) -> Check<&State> {
        let found = self.states.iter().rev().find(|(seq, _)| *seq <= at);
        found.map(|(_, state)| state).ok_or_else(|| Bug(format!("no state at commit {at}")))
    }

    fn compare_at(&mut self, db: &Database, snapshot: &Snapshot) -> Check {
        self.counts.reads += 1;
        let at = snapshot.seq().0;
        let (found, expected) = (read_state(db, snapshot)?, &self.state_at(at)?.samples);
        ensure!(found == *expected, "at commit {at}: expected {expected:?}, found {found:?}");
        Ok(())
    }

    fn compare(&mut self, db: &Database) -> Check {
        self.compare_at(db, &db.snapshot())?;
        let report = db.verify()?;
        ensure!(report.violations.is_empty(), "verify: {:?}", report.violations);
        ensure!(report.store.damage.is_empty(), "verify: {:?}", report.store.damage);
        Ok(())
    }

    fn step(&mut self) -> Check {
        self.counts.steps += 1;
        self.faults_before = self.vfs.injected();
        match self.dice.below(40) {
            0..20 => self.append(),
            20..24 => self.delete(),
            24 => self.drop_days(),
            25..33 => self.housekeeping(),
            33 => {
                self.clock.advance(Duration::from_millis(self.dice.below(300)));
                Ok(())
            }
            34..36 => self.hold(),
            _ => self.look(),
        }
    }

    fn any_time(&self) -> i64 {
        let day = PARTITION_MS * self.dice.between(0, 2).cast_signed();
        day + self.dice.below(40).cast_signed() - 5
    }

    fn append(&mut self) -> Check {
        let db = self.db()?;
        let latest = self.state_at(u64::MAX)?;
        let (floor, mut after) = (latest.floor, latest.clone());
        let mut batch = SampleBatch::new();
        for _ in 0..self.dice.between(1, 8) {
            let series = self.dice.below(SERIES);
            let labels = labels(series)?;
            let mut to = batch.series(&labels);
            let long = self.dice.one_in(5);
            let (first, step) = (self.any_time(), 1 + self.dice.below(20_000).cast_signed());
            for i in 0..if long { self.dice.between(64, 300) } else { self.dice.between(1, 3) } {
                let time = first + i.cast_signed() * step;
                let value = (self.dice.below(50) as f64) / 4.0;
                if time >= floor {
                    to.push(time, value);
                    after.samples.insert((series, time), value.to_bits());
                }
            }
        }
        let durability = self.dice.weighted(&[
            (6, Durability::Sync),
            (2, Durability::Buffered),
            (1, Durability::Async { interval: Duration::from_millis(50) }),
        ]);
        self.note(format!("append {} samples, {durability:?}", batch.len()));
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
                if durability == Durability::Sync {
                    self.durable = self.durable.max(seq);
                }
                if !matches!(durability, Durability::Async { .. }) {
                    self.written = self.written.max(seq);
                }
                self.states.push((seq, after));
                self.counts.commits += 1;
            }
            Err(error) => {
                self.excuse(what, &error)?;
                self.doubts.push(after);
            }
        }
        Ok(())
    }

    fn delete(&mut self) -> Check {
        let db = self.db()?;
        let series = self.dice.below(SERIES);
        let (a, b) = (self.any_time(), self.any_time());
        let (from, to) = if self.dice.one_in(4) { (i64::MIN, i64::MAX) } else { (a.min(b), a.max(b)) };
        let mut after = self.state_at(u64::MAX)?.clone();
        after.samples.retain(|(s, time), _| *s != series || *time < from || *time > to);
        self.note(format!("delete {series} from {from} to {to}"));
        let done = store(&db)?.delete(&[matcher(series)?], from, to).map_err(Error::from);
        if matches!(done, Ok(0)) {
            // There is no such series: nothing was committed.
            return Ok(());
        }
        let seq = db.seq().0;
        self.settle("delete", done.map(|_| seq), Durability::Sync, after)
    }

    fn drop_days(&mut self) -> Check {
        let db = self.db()?;
        if !self.dice.one_in(4) {
            return Ok(());
        }
        let day = PARTITION_MS * self.dice.below(2).cast_signed();
        let mut after = self.state_at(u64::MAX)?.clone();
        if after.floor >= day || db.series_stores().is_empty() {
            return Ok(());
        }
        after.floor = day;
        after.samples.retain(|(_, time), _| *time >= day);
        self.note(format!("drop what lies before {day}"));
        let done = store(&db)?.drop_before(day + 3).map_err(Error::from);
        let seq = db.seq().0;
        self.settle("drop", done.map(|_| seq), Durability::Sync, after)
    }

    fn hold(&mut self) -> Check {
        if self.held.len() == SNAPSHOTS {
            self.held.remove(0);
        }
        self.held.push(self.db()?.snapshot());
        Ok(())
    }

    fn look(&mut self) -> Check {
        let db = self.db()?;
        let held = std::mem::take(&mut self.held);
        for snapshot in held.iter().chain([&db.snapshot()]) {
            self.compare_at(&db, snapshot)?;
        }
        self.held = held;
        Ok(())
    }

    fn housekeeping(&mut self) -> Check {
        let db = self.db()?;
        let done = match self.dice.below(8) {
            0 => db.checkpoint(),
            1 if self.dice.one_in(3) => db.compact(),
            _ => db.engine().background_step().map(|_| ()).map_err(Error::from),
        };
        match done {
            Ok(()) => Ok(()),
            Err(error) => self.excuse("housekeeping", &error),
        }
    }
}
