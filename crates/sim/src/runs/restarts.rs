//! Boots of a database on a disk that fails, for the scenarios with their own model.
//!
//!   boot ─▶ faults are planned ─▶ steps of the scenario ─▶ power cut, kill or close ─▶ open ─▶ compare
//!
//! [`Boots`] has the state of every such scenario: the disk, the database, and the commits that an end must
//! preserve. A [`World`] adds the steps and the model. [`exhaust`] ends a scenario at every operation of its
//! disk.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ropewalk::engine::Env;
use ropewalk::{Class, Database, Durability, Error};
use ropewalk_sql::{SqlError, state};
use ropewalk_vfs::{DiskOp, FaultyVfs, ManualClock};

use crate::events::backups::{TARGET, take_copy};
use crate::events::rng::Dice;
use crate::events::scenario::{Bug, Check, DIR, End, ensure, machine, small_options};
use crate::runs::crash_everywhere::Exhausted;
use crate::{Counts, Run};

const TRACE_LINES: usize = 60;

/// The disk, the database on it, and the commits that must survive.
pub(crate) struct Boots {
    pub(crate) dice: Dice,
    /// Separate seeded RNG for kinds of faults added later, so that earlier seeds still produce the same
    /// runs.
    later: Dice,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) counts: Counts,
    vfs: FaultyVfs,
    env: Env,
    options: ropewalk::Options,
    db: Option<Database>,
    /// The newest commit that a power cut must preserve, and that a kill must preserve.
    durable: u64,
    written: u64,
    full: bool,
    sync_failed: bool,
    /// In every boot one sync returns Ok and does nothing.
    lies: bool,
    /// How the process ends when the disk goes off.
    cut: End,
    faults_before: u64,
    trace: Vec<String>,
}

/// A scenario: the contents of a database over several boots.
pub(crate) trait World {
    fn boots(&mut self) -> &mut Boots;
    /// Executes one step.
    fn step(&mut self) -> Check;
    /// Drops the state that is lost with the process.
    fn leave(&mut self);
    /// Creates what the scenario needs in a database, unless it exists.
    fn create(_: &Database) -> Result<(), Error> {
        Ok(())
    }
    /// After opening: checks that the contents are a state of the model, which becomes its newest.
    fn reconcile(&mut self, db: &Database) -> Check;
    /// Checks that the contents equal the model, and that the database finds no damage.
    fn compare(&mut self, db: &Database) -> Check;
}

fn open<W: World>(options: ropewalk::Options) -> Result<Database, Error> {
    let db = options.open(Path::new(DIR))?;
    W::create(&db)?;
    Ok(db)
}

impl Boots {
    pub(crate) fn new(seed: u64, salt: u64) -> Self {
        Self::on_disk(seed, seed ^ salt)
    }

    /// The seed of the disk, which decides the outcome of a power cut, is separate.
    pub(crate) fn on_disk(seed: u64, disk_seed: u64) -> Self {
        let (vfs, clock, env) = machine(seed, disk_seed);
        let dice = Dice::new(seed);
        Self {
            options: small_options(&dice),
            dice,
            later: Dice::new(seed ^ 0x1a7e12),
            clock,
            counts: Counts::default(),
            vfs,
            env,
            db: None,
            durable: 0,
            written: 0,
            full: false,
            sync_failed: false,
            lies: false,
            cut: End::PowerCut,
            faults_before: 0,
            trace: Vec::new(),
        }
    }

    /// Plants a bug: one sync of every boot does nothing.
    pub(crate) fn plant_lost_sync(&mut self) {
        self.lies = true;
    }

    pub(crate) fn note(&mut self, line: impl Into<String>) {
        self.trace.push(format!("{:>4} {}", self.counts.steps, line.into()));
    }

    pub(crate) fn db(&self) -> Check<Database> {
        self.db.clone().ok_or_else(|| Bug("the database is closed".into()))
    }

    /// A failure, which the disk must explain.
    pub(crate) fn excuse(&mut self, what: &str, error: &Error) -> Check {
        let typed = matches!(error.class(), Class::Io | Class::Busy | Class::Internal);
        self.excuse_typed(what, typed, &format!("{error} ({:?})", error.class()))
    }

    /// A failure of a SQL statement, which the disk must explain.
    pub(crate) fn excuse_sql(&mut self, error: &SqlError) -> Check {
        let of_disk = [state::IO_ERROR, state::DISK_FULL, state::LOCK_NOT_AVAILABLE, state::INTERNAL_ERROR];
        self.excuse_typed("statement", of_disk.contains(&error.state), &format!("{error} ({})", error.state))
    }

    fn excuse_typed(&mut self, what: &str, typed: bool, error: &str) -> Check {
        self.note(format!("{what}: {error}"));
        let reason =
            self.vfs.is_off() || self.full || self.stopped() || self.vfs.injected() > self.faults_before;
        ensure!(typed && reason, "{what} failed without a reason: {error}");
        Ok(())
    }

    /// Records that commit `seq` was acknowledged.
    pub(crate) fn acknowledged(&mut self, seq: u64, durability: Durability) {
        if durability == Durability::Sync {
            self.durable = self.durable.max(seq);
        }
        if !matches!(durability, Durability::Async { .. }) {
            self.written = self.written.max(seq);
        }
        self.counts.commits += 1;
    }

    pub(crate) fn durability(&self) -> Durability {
        let interval = Duration::from_millis(self.dice.between(1, 200));
        self.dice.weighted(&[
            (4, Durability::Sync),
            (1, Durability::Buffered),
            (1, Durability::Async { interval }),
        ])
    }

    /// A step of maintenance: rarely a checkpoint or a compaction of everything.
    pub(crate) fn housekeeping(&mut self, one_in: u64) -> Check {
        let db = self.db()?;
        let done = match self.dice.below(one_in) {
            0 => db.checkpoint(),
            1 => db.compact(),
            _ => db.engine().background_step().map(|_| ()).map_err(Error::from),
        };
        done.or_else(|error| self.excuse("housekeeping", &error))
    }

    fn heal(&mut self) {
        self.vfs.calm();
        self.full = false;
    }

    fn stopped(&self) -> bool {
        self.db.as_ref().is_some_and(|db| db.engine().stopped().is_some())
    }

    fn plan_trouble(&mut self) {
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
        self.cut = End::PowerCut;
        match self.later.below(16) {
            // The process ends where the power would have failed; what the next one finds may not be durable yet.
            0..3 => self.cut = End::Kill,
            3 => {
                self.cut = End::Kill;
                self.vfs.crash_at_call(DiskOp::SyncDir, self.later.below(8));
            }
            4 => {
                self.vfs.set_descriptors(Some(self.vfs.open_files() + self.later.below(4) as usize));
                self.full = true;
            }
            5 => self.vfs.set_copies_on_write(true),
            _ => {}
        }
        if self.lies {
            self.vfs.lie_about_sync(self.later.below(12));
        }
    }

    fn how_it_ends(&self) -> End {
        match self.vfs.is_off() {
            true => self.cut,
            false => self.dice.weighted(&[(3, End::PowerCut), (2, End::Kill), (1, End::Close)]),
        }
    }

    fn count_work(&mut self) {
        let Some(db) = &self.db else { return };
        let stats = db.stats();
        self.counts.rolls += stats.log.rolls;
        self.counts.flushed_bytes += stats.store.keyspaces.iter().map(|k| k.flushed_bytes).sum::<u64>();
        self.counts.compacted_bytes += stats.store.keyspaces.iter().map(|k| k.compacted_bytes).sum::<u64>();
    }

    /// Ends the boot; returns the newest commit that must survive.
    fn end(&mut self, end: End) -> Check<u64> {
        self.count_work();
        let floor = match end {
            End::PowerCut => self.durable,
            End::Kill if self.sync_failed => self.durable,
            End::Kill => self.written,
            End::Close => {
                if let Some(db) = self.db.take() {
                    self.faults_before = self.vfs.injected();
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
        self.db = None;
        self.sync_failed = false;
        Ok(floor)
    }

    /// Opens, perhaps after attempts that a power cut interrupts. `floor`: the commit that must survive,
    /// which decreases with them.
    fn open<W: World>(&mut self, mut floor: u64, trouble: bool) -> Check<u64> {
        for attempt in 0.. {
            if trouble && attempt < 3 && self.dice.one_in(3) {
                self.vfs.crash_at(self.vfs.operations() + self.dice.between(1, 40));
            }
            self.faults_before = self.vfs.injected();
            self.counts.opens += 1;
            let env = Env { vfs: Arc::new(self.vfs.process()), ..self.env.clone() };
            match open::<W>(self.options.clone().env(env)) {
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
        // Faults planned for the opening must not affect the comparison.
        self.vfs.calm();
        Ok(floor)
    }
}

/// Verification finds nothing.
pub(crate) fn verify(db: &Database) -> Check {
    let report = db.verify()?;
    ensure!(report.violations.is_empty(), "verify: {:?}", report.violations);
    ensure!(report.store.damage.is_empty(), "verify: {:?}", report.store.damage);
    Ok(())
}

/// Runs a scenario: so many boots, each with one kind of injected fault.
pub(crate) fn run<W: World>(world: W, boots: u64) -> Run {
    guarded(world, |world| live(world, boots))
}

/// Runs the first `steps` steps of a scenario once for each operation of its disk and each of `tears`
/// outcomes, with a power cut there; and once more with a kill there and a power cut after the opening that
/// follows. `make` gets the seed of the disk.
pub(crate) fn exhaust<W: World>(make: impl Fn(u64) -> W, steps: u64, tears: u64) -> Exhausted {
    let mut points = 0;
    let undisturbed = guarded(make(0), |world| {
        cut_at(world, steps, None)?;
        points = world.boots().vfs.operations();
        Ok(())
    });
    let mut exhausted = Exhausted { points, runs: 1, failure: None };
    if undisturbed.bug.is_some() {
        exhausted.failure = Some((0, 0, undisturbed));
        return exhausted;
    }
    for point in 1..=points {
        for tear in 0..=tears {
            let disk_seed = point * 1_000 + tear;
            let end = if tear == tears { End::Kill } else { End::PowerCut };
            let run = guarded(make(disk_seed), |world| cut_at(world, steps, Some((point, end))));
            exhausted.runs += 1;
            if run.bug.is_some() {
                exhausted.failure = Some((point, disk_seed, run));
                return exhausted;
            }
        }
    }
    exhausted
}

/// Runs so many steps with an end at one operation of the disk, creation included; the remaining database
/// must work.
fn cut_at<W: World>(world: &mut W, steps: u64, at: Option<(u64, End)>) -> Check {
    let plan = |boots: &mut Boots| match at {
        Some((point, _)) if boots.vfs.operations() < point => boots.vfs.crash_at(point),
        _ => {}
    };
    let boots = world.boots();
    plan(boots);
    boots.open::<W>(0, false)?;
    let db = boots.db()?;
    world.reconcile(&db)?;
    drop(db);
    plan(world.boots());
    for _ in 0..steps {
        if world.boots().vfs.is_off() {
            break;
        }
        step(world)?;
    }
    let Some((_, end)) = at.filter(|_| world.boots().vfs.is_off()) else { return Ok(()) };
    restart(world, end, false)?;
    if end == End::Kill {
        restart(world, End::PowerCut, false)?;
    }
    for _ in 0..4 {
        step(world)?;
    }
    world.leave();
    let db = world.boots().db()?;
    world.compare(&db)
}

/// Runs a world; a panic is a bug like any other.
fn guarded<W: World>(mut world: W, body: impl FnOnce(&mut W) -> Check) -> Run {
    let result = crate::guarded(&mut world, body);
    let boots = world.boots();
    boots.counts.faults = boots.vfs.injected();
    let tail = boots.trace.split_off(boots.trace.len().saturating_sub(TRACE_LINES));
    let (hash, counts) = (boots.vfs.fingerprint(), boots.counts);
    let bug = result.err().map(|Bug(what)| what);
    if bug.is_some() {
        // A database in an impossible state may not even close; its memory is the price of the report.
        std::mem::forget(world);
    }
    Run { hash, counts, bug, tail }
}

fn live<W: World>(world: &mut W, boots: u64) -> Check {
    restart(world, End::Kill, false)?;
    for _ in 0..boots {
        troubled_boot(world)?;
    }
    world.boots().heal();
    restart(world, End::Close, false)?;
    for _ in 0..20 {
        step(world)?;
    }
    world.leave();
    let db = world.boots().db()?;
    db.compact()?;
    world.compare(&db)?;
    drop(db);
    restart(world, End::Close, false)
}

fn step<W: World>(world: &mut W) -> Check {
    let boots = world.boots();
    boots.counts.steps += 1;
    boots.faults_before = boots.vfs.injected();
    if boots.dice.one_in(60) { backup(world) } else { world.step() }
}

/// Copies the database; the copy must equal the model, and all of it is durable.
fn backup<W: World>(world: &mut W) -> Check {
    let boots = world.boots();
    boots.note("backup");
    let db = boots.db()?;
    let done = db.backup(TARGET);
    if let Err(error) = &done {
        boots.excuse("backup", error)?;
    }
    let copy = take_copy(&boots.vfs, boots.dice.number())?;
    let Ok(backup) = done else { return Ok(()) };
    ensure!(backup.seq == db.seq(), "the backup has commit {:?}, readers see {:?}", backup.seq, db.seq());
    (boots.durable, boots.written) = (backup.seq.0, backup.seq.0);
    boots.counts.copies += 1;
    let disk = copy.ok_or_else(|| Bug("there is no copy".to_owned()))?;
    let env = Env { vfs: Arc::new(disk), ..boots.env.clone() };
    let copy = boots.options.clone().env(env).open(Path::new(TARGET))?;
    world.compare(&copy)
}

fn troubled_boot<W: World>(world: &mut W) -> Check {
    let steps = world.boots().dice.between(10, 120);
    world.boots().plan_trouble();
    for at in 0..steps {
        step(world)?;
        let boots = world.boots();
        if boots.vfs.is_off() || boots.stopped() {
            break;
        }
        if boots.full && at > steps / 2 {
            boots.heal();
        }
    }
    let boots = world.boots();
    let end = boots.how_it_ends();
    let is_killed_inside = boots.vfs.is_off() && end == End::Kill;
    boots.heal();
    let trouble = boots.dice.one_in(2);
    restart(world, end, trouble)?;
    if is_killed_inside && world.boots().later.one_in(2) {
        // Commits found by the opening after a kill must survive, even if the power fails at once.
        restart(world, End::PowerCut, false)?;
    }
    Ok(())
}

/// Ends the boot, opens again, and compares.
fn restart<W: World>(world: &mut W, end: End, trouble: bool) -> Check {
    world.boots().note(format!("---- {end:?}"));
    world.leave();
    let boots = world.boots();
    let floor = boots.end(end)?;
    let floor = boots.open::<W>(floor, trouble)?;
    if boots.vfs.is_off() {
        boots.vfs.crash();
        return restart(world, End::PowerCut, false);
    }
    let db = boots.db()?;
    // Without commits of the opening itself, such as the removal of a load that was cut.
    let found = db.engine().opened_at().0;
    boots.note(format!("opened at commit {found}, promised {floor}"));
    ensure!(found >= floor, "commit {floor} was acknowledged and is lost: reopened at commit {found}");
    (boots.durable, boots.written) = (found, found);
    world.reconcile(&db)
}
