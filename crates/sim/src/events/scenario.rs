//! The simulated environment: disk, clock, the open database, the oracle, and the commits that must survive.
//!
//!   actors ─▶ database ─▶ results ─▶ settle: oracle decides the same request; both must agree
//!   crash / kill / close ─▶ open ─▶ reconcile: the contents are a long enough prefix of the oracle
//!
//! Promises are two numbers: every commit up to `durable` survives a power cut, every commit up to `written`
//! survives the end of the process. A `Sync` acknowledgement raises both, a `Buffered` one the second.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use ropewalk::engine::{Background, Compression, Env, FilterPolicy, Keyspace, KeyspaceOptions};
use ropewalk::events::{EventsError, PendingAppend};
use ropewalk::{AppendCondition, Class, Database, Durability, Error, Event, Options};
use ropewalk_engine::{CommitHandle, EngineError};
use ropewalk_vfs::{Clock, FaultyVfs, ManualClock, SeededRandom};

use crate::events::backups::BACKUPS;
use crate::events::generators::Author;
use crate::events::oracle::{Ask, Expect, Oracle, Refusal};
use crate::events::readers::Readers;
use crate::events::rng::Dice;
use crate::events::transactions::OpenTransaction;

/// Keyspaces that every opening finds or creates. The first one creates them, in its first commits.
pub(crate) const KEYSPACES: usize = 2;

/// Where the database lives on the simulated disk.
pub(crate) const DIR: &str = "/data/db";

/// A violated check.
#[derive(Debug)]
pub(crate) struct Bug(pub(crate) String);

pub(crate) type Check<T = ()> = Result<T, Bug>;

macro_rules! ensure {
    ($holds:expr, $($what:tt)+) => {
        if !$holds {
            return Err($crate::events::scenario::Bug(format!($($what)+)));
        }
    };
}
pub(crate) use ensure;

/// Response of the database to a transaction.
#[derive(Debug)]
pub(crate) enum Answer {
    Committed {
        seq: u64,
        outcomes: Vec<(u64, u64)>,
        time: Option<i64>,
    },
    Refused(Refusal),
    /// Class, text, and whether it is the response of a stopped engine.
    Failed(Class, String, bool),
}

impl From<Error> for Answer {
    fn from(error: Error) -> Self {
        match error {
            Error::Events(EventsError::AppendConditionFailed { condition, position, item, .. }) => {
                Self::Refused(Refusal::Condition { ordinal: condition, position: position.0, item })
            }
            Error::Events(EventsError::TrackingConflict { stored, .. }) => {
                Self::Refused(Refusal::Tracking { stored })
            }
            Error::Events(EventsError::IdempotencyMismatch { first, last, .. }) => {
                Self::Refused(Refusal::Idempotency { first: first.0, last: last.0 })
            }
            Error::KeyConflict(_) => Self::Refused(Refusal::Keys),
            other => {
                let engine = match &other {
                    Error::Engine(error) | Error::Events(EventsError::Engine(error)) => Some(error),
                    _ => None,
                };
                let stopped = matches!(engine, Some(EngineError::Stopped { .. }));
                Self::Failed(other.class(), other.to_string(), stopped)
            }
        }
    }
}

impl From<Result<ropewalk::events::Appended, EventsError>> for Answer {
    fn from(result: Result<ropewalk::events::Appended, EventsError>) -> Self {
        match result {
            Ok(appended) => {
                let outcomes = vec![(appended.first.0, appended.last.0)];
                Self::Committed { seq: appended.seq.0, outcomes, time: None }
            }
            Err(error) => Error::from(error).into(),
        }
    }
}

impl<E: Into<Error>> From<Result<ropewalk_engine::Committed, E>> for Answer {
    fn from(result: Result<ropewalk_engine::Committed, E>) -> Self {
        match result {
            Ok(done) => {
                Self::Committed { seq: done.seq.0, outcomes: done.outcomes, time: Some(done.time_micros) }
            }
            Err(error) => error.into().into(),
        }
    }
}

pub(crate) enum Waiting {
    Append(PendingAppend),
    Keys(CommitHandle),
}

/// A transaction that was submitted and has no response yet.
pub(crate) struct Pending {
    pub(crate) ask: Ask,
    pub(crate) durability: Durability,
    pub(crate) waiting: Waiting,
}

/// An open database and the objects that reference it.
pub(crate) struct Boot {
    pub(crate) keyspaces: Vec<Keyspace>,
    pub(crate) pending: Vec<Pending>,
    pub(crate) transactions: Vec<OpenTransaction>,
    pub(crate) db: Database,
}

/// How a boot ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    PowerCut,
    Kill,
    Close,
}

/// Counts of what happened, for the summary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Steps of actors.
    pub steps: u64,
    /// Acknowledged commits.
    pub commits: u64,
    /// Transactions that were refused as expected.
    pub refusals: u64,
    /// Results of readers that were compared with the oracle.
    pub reads: u64,
    /// Times the database was opened.
    pub opens: u64,
    /// Power cuts.
    pub power_cuts: u64,
    /// Calls of the disk that were made to fail.
    pub faults: u64,
    /// Copies that were opened and compared.
    pub copies: u64,
    /// Bits flipped.
    pub flips: u64,
    /// Bytes of runs written by flushes.
    pub flushed_bytes: u64,
    /// Bytes of runs written by compaction.
    pub compacted_bytes: u64,
    /// Log segments that were filled.
    pub rolls: u64,
    /// Times a node began to lead.
    pub leaders: u64,
    /// Nodes that ended: deposed, stopped, or because of the shared log.
    pub ends: u64,
    /// Commits whose outcome was unknown to the client.
    pub unknown: u64,
    /// Checkpoints that nodes of a cluster made.
    pub checkpoints: u64,
    /// Times the leader trimmed the shared log.
    pub trims: u64,
    /// Statements of leaders about contents.
    pub statements: u64,
    /// Nodes whose contents were changed, and that stopped.
    pub distortions: u64,
}

pub(crate) struct World {
    pub(crate) dice: Dice,
    pub(crate) vfs: FaultyVfs,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) author: Author,
    pub(crate) oracle: Oracle,
    /// Alternatives to the oracle: a stopped engine has responded to requests for which both results are
    /// right.
    alternatives: Vec<Oracle>,
    pub(crate) boot: Option<Boot>,
    /// Events and conditions that were last sent under an idempotency key.
    pub(crate) sent: BTreeMap<(String, String), (Vec<Event>, Vec<AppendCondition>)>,
    /// Decisions that were read and not acted on yet.
    pub(crate) decisions: Vec<(String, AppendCondition)>,
    pub(crate) readers: Readers,
    /// Commits up to here survive a power cut.
    pub(crate) durable: u64,
    /// Commits up to here survive the end of the process.
    pub(crate) written: u64,
    /// Commits up to here are followed by a record that confirms their durability.
    pub(crate) claimed: u64,
    /// A copy that was begun, and the commit it holds if it was finished.
    pub(crate) backup: Option<Option<u64>>,
    /// `Async` commits, and the monotonic time from which a background step owes them a sync.
    pub(crate) owed: Vec<(u64, u64)>,
    /// The disk is full now.
    pub(crate) full: bool,
    /// Reads lie now.
    pub(crate) lies: bool,
    /// A sync may have failed in this boot, so that not even the cache holds what was written.
    pub(crate) sync_failed: bool,
    faults_before: u64,
    /// Ends inside an operation, the next one last: operations since the previous end, and the kind of end.
    planned: Vec<(u64, End)>,
    pub(crate) counts: Counts,
    trace: Vec<String>,
    /// Lines of the trace retained for a report.
    pub(crate) trace_lines: usize,
    hash: u64,
    pub(crate) options: Options,
    pub(crate) env: Env,
}

/// A disk that fails, a clock that only moves when it is advanced, and an environment of both.
pub(crate) fn machine(seed: u64, disk_seed: u64) -> (FaultyVfs, Arc<ManualClock>, Env) {
    let vfs = FaultyVfs::new(disk_seed);
    let clock = Arc::new(ManualClock::default());
    clock.jump_wall_micros(1_700_000_000_000_000);
    let random = Arc::new(SeededRandom::new(seed ^ 0x5eed));
    let env = Env { vfs: Arc::new(vfs.clone()), clock: clock.clone(), random };
    (vfs, clock, env)
}

impl World {
    pub(crate) fn new(seed: u64, disk_seed: u64) -> Self {
        let (vfs, clock, env) = machine(seed, disk_seed);
        let dice = Dice::new(seed);
        let options = small_options(&dice);
        Self {
            dice,
            vfs,
            clock,
            author: Author::default(),
            oracle: Oracle::with_keyspaces(KEYSPACES),
            alternatives: Vec::new(),
            boot: None,
            sent: BTreeMap::new(),
            decisions: Vec::new(),
            readers: Readers::default(),
            durable: 0,
            written: 0,
            claimed: 0,
            backup: None,
            owed: Vec::new(),
            full: false,
            lies: false,
            sync_failed: false,
            faults_before: 0,
            planned: Vec::new(),
            counts: Counts::default(),
            trace: Vec::new(),
            trace_lines: 60,
            hash: 0xcbf2_9ce4_8422_2325,
            options,
            env,
        }
    }

    pub(crate) fn note(&mut self, line: impl Into<String>) {
        let line = format!("{:>4} {}", self.counts.steps, line.into());
        for byte in line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if self.trace.len() >= 2 * self.trace_lines {
            self.trace.drain(..self.trace_lines);
        }
        self.trace.push(line);
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash ^ self.vfs.fingerprint().rotate_left(1)
    }

    pub(crate) fn tail(&self) -> &[String] {
        self.trace.get(self.trace.len().saturating_sub(self.trace_lines)..).unwrap_or(&[])
    }

    pub(crate) fn boot(&mut self) -> &mut Boot {
        self.boot.as_mut().expect("the database is open while actors act")
    }

    pub(crate) fn db(&mut self) -> Database {
        self.boot().db.clone()
    }

    /// The newest commit that readers see.
    pub(crate) fn visible(&mut self) -> u64 {
        self.boot().db.seq().0
    }

    /// Begins a call: faults from here on excuse a failure.
    pub(crate) fn mark(&mut self) {
        self.faults_before = self.vfs.injected();
    }

    pub(crate) fn stopped(&self) -> bool {
        self.boot.as_ref().is_some_and(|boot| boot.db.engine().stopped().is_some())
    }

    /// True when a failure of this class is expected now.
    pub(crate) fn excused(&self, class: Class) -> bool {
        let typed = matches!(class, Class::Io | Class::Busy | Class::Internal)
            || self.lies && class == Class::Corrupt;
        let troubled = self.vfs.is_off() || self.full || self.lies || self.stopped();
        typed && (troubled || self.vfs.injected() > self.faults_before)
    }

    /// A result, or `None` for a failure that the disk explains.
    pub(crate) fn allow<T, E: Into<Error>>(&mut self, what: &str, result: Result<T, E>) -> Check<Option<T>> {
        let error: Error = match result {
            Ok(value) => return Ok(Some(value)),
            Err(error) => error.into(),
        };
        self.note(format!("{what}: {error}"));
        ensure!(self.excused(error.class()), "{what} failed without a reason: {error} ({:?})", error.class());
        Ok(None)
    }

    /// Compares a result with the oracle's, and applies the same to the oracle.
    pub(crate) fn settle(
        &mut self,
        ask: &Ask,
        durability: Durability,
        answer: Answer,
        time: Option<i64>,
    ) -> Check {
        let expect = self.oracle.decide(ask);
        self.note(format!("  {answer:?}"));
        match (answer, expect) {
            (
                Answer::Committed { seq, outcomes, time: told },
                Expect::Commit | Expect::CommitOrRefuseKeys,
            ) => {
                let time = told.or(time);
                if let (Some(time), Some(last)) = (time, self.oracle.last_time()) {
                    ensure!(time >= last, "commit time {time} is before {last}, that of the commit before");
                }
                let expected = self.oracle.apply(ask, time);
                ensure!(
                    expected == (seq, outcomes.clone()),
                    "expected commit {expected:?}, got {seq} {outcomes:?}"
                );
                self.counts.commits += 1;
                self.acknowledged(durability, seq);
            }
            (Answer::Committed { outcomes, .. }, Expect::Done { outcome, by }) => {
                ensure!(
                    outcomes.first() == Some(&outcome),
                    "expected the first answer {outcome:?} again, got {outcomes:?}"
                );
                self.counts.refusals += 1;
                self.acknowledged(durability, by);
            }
            (Answer::Refused(found), Expect::Refuse(expected)) => {
                ensure!(found == expected, "expected the refusal {expected:?}, got {found:?}");
                self.counts.refusals += 1;
            }
            (Answer::Refused(Refusal::Keys), Expect::CommitOrRefuseKeys) => self.counts.refusals += 1,
            (Answer::Failed(class, text, stopped), _) => {
                ensure!(self.excused(class), "failed without a reason: {text} ({class:?})");
                // Sequenced before the engine stopped, or not: a crash decides. Any other failure wrote nothing.
                if stopped {
                    self.doubt(ask, time);
                }
            }
            (answer, expect) => return Err(Bug(format!("expected {expect:?}, got {answer:?}"))),
        }
        Ok(())
    }

    /// A request that the engine may have sequenced before it stopped. A failed read of this boot may have
    /// rejected it, too: a group that does not settle hides the reasons of its rejections.
    fn doubt(&mut self, ask: &Ask, time: Option<i64>) {
        let mut refused = Vec::new();
        let may_have_failed = self.vfs.injected() > self.faults_before;
        for history in self.alternatives.iter_mut().chain([&mut self.oracle]) {
            match history.decide(ask) {
                Expect::Commit if !may_have_failed => {
                    history.apply(ask, time);
                }
                Expect::Commit | Expect::CommitOrRefuseKeys => {
                    refused.push(history.clone());
                    history.apply(ask, time);
                }
                Expect::Done { .. } | Expect::Refuse(_) => {}
            }
        }
        self.alternatives.append(&mut refused);
    }

    fn acknowledged(&mut self, durability: Durability, seq: u64) {
        match durability {
            Durability::Sync => {
                self.durable = self.durable.max(seq);
                self.written = self.written.max(seq);
            }
            Durability::Buffered => self.written = self.written.max(seq),
            Durability::Async { interval } => {
                let by = self.clock.deadline(interval);
                self.owed.push((seq, by));
            }
        }
    }

    /// Everything visible became durable.
    pub(crate) fn all_durable(&mut self) {
        let visible = self.visible();
        self.durable = self.durable.max(visible);
        self.written = self.written.max(visible);
        self.owed.clear();
    }

    /// A background step has done the syncs due at this time.
    pub(crate) fn paid(&mut self, now: u64) {
        let due = self.owed.extract_if(.., |(_, by)| *by <= now).map(|(seq, _)| seq).max().unwrap_or(0);
        self.durable = self.durable.max(due);
        self.written = self.written.max(due);
    }

    /// Collects the results of everything submitted; the first waiter leads.
    pub(crate) fn settle_pending(&mut self, time: Option<i64>) -> Check {
        let pending = std::mem::take(&mut self.boot().pending);
        let (durable, last) = (self.durable, self.oracle.last());
        for Pending { ask, durability, waiting } in pending {
            let answer = match waiting {
                Waiting::Append(pending) => pending.wait().into(),
                Waiting::Keys(handle) => handle.wait().into(),
            };
            let time = time.and_then(|wall| Some(wall.max(self.oracle.last_time()?)));
            self.settle(&ask, durability, answer, time)?;
        }
        if self.oracle.last() > last {
            self.claimed = durable;
        }
        Ok(())
    }

    /// Ends the boot, opens the database again, and compares its contents with the expected ones.
    pub(crate) fn restart(&mut self, end: End, trouble: bool) -> Check {
        self.note(format!("---- {end:?}"));
        let mut floor = self.end_boot(end)?;
        self.arm();
        for attempt in 0.. {
            if trouble && attempt < 3 && self.dice.one_in(3) {
                self.vfs.crash_at(self.vfs.operations() + self.dice.between(1, 25));
            }
            self.mark();
            self.counts.opens += 1;
            let read_before = self.vfs.bytes_read();
            let env = Env { vfs: Arc::new(self.vfs.process()), ..self.env.clone() };
            match open(&self.options.clone().env(env)) {
                Ok((db, keyspaces)) => {
                    self.boot = Some(Boot { db, keyspaces, pending: Vec::new(), transactions: Vec::new() });
                    self.check_opening(self.vfs.bytes_read() - read_before)?;
                    break;
                }
                Err(error) => {
                    self.note(format!("open: {error}"));
                    ensure!(
                        self.excused(error.class()),
                        "open failed without a reason: {error} ({:?})",
                        error.class()
                    );
                }
            }
            if self.vfs.is_off() {
                let is_killed = trouble && self.planned.is_empty() && self.dice.one_in(3);
                let end = if is_killed { End::Kill } else { self.planned_end() };
                self.note(format!("{end:?} while it opens"));
                match end {
                    End::Kill => self.vfs.kill(),
                    End::PowerCut | End::Close => {
                        self.power_cut();
                        floor = self.durable;
                    }
                }
                self.arm();
            }
            if attempt > 2 {
                self.heal();
            }
        }
        self.reconcile(floor)
    }

    /// Plans ends inside operations, each so many operations after the previous one.
    pub(crate) fn plan(&mut self, ends: &[(u64, End)]) {
        self.note(format!("planned: {ends:?}"));
        self.planned = ends.iter().rev().copied().collect();
        self.arm();
    }

    fn arm(&mut self) {
        if let Some((operations, _)) = self.planned.last() {
            self.vfs.crash_at(self.vfs.operations() + operations);
        }
    }

    /// The kind of end at the operation at which the disk went off; without a plan it was a power cut.
    pub(crate) fn planned_end(&mut self) -> End {
        self.planned.pop().map_or(End::PowerCut, |(_, end)| end)
    }

    fn power_cut(&mut self) {
        self.vfs.crash();
        self.counts.power_cuts += 1;
    }

    /// Stops all faults.
    pub(crate) fn heal(&mut self) {
        self.vfs.calm();
        (self.full, self.lies) = (false, false);
    }

    /// Returns the commit up to which the next boot must find everything.
    fn end_boot(&mut self, end: End) -> Check<u64> {
        if self.boot.is_none() {
            return Ok(0);
        }
        self.readers.park();
        let floor = match end {
            End::PowerCut => {
                self.power_cut();
                self.durable
            }
            End::Kill => {
                self.vfs.kill();
                if self.sync_failed { self.durable } else { self.written }
            }
            End::Close => self.close()?,
        };
        if let Some(boot) = self.boot.take() {
            let stats = boot.db.stats();
            self.counts.rolls += stats.log.rolls;
            self.counts.flushed_bytes += stats.store.keyspaces.iter().map(|k| k.flushed_bytes).sum::<u64>();
            self.counts.compacted_bytes +=
                stats.store.keyspaces.iter().map(|k| k.compacted_bytes).sum::<u64>();
        }
        self.sync_failed = false;
        self.owed.clear();
        Ok(floor)
    }

    /// Closes cleanly: submitted transactions still get a response, and everything is durable.
    fn close(&mut self) -> Check<u64> {
        self.mark();
        let running = !self.stopped();
        let (db, wall) = (self.db(), Some(self.clock.wall_micros()));
        let closed = db.clone().close();
        let closed = self.allow("close", closed)?.is_some();
        self.settle_pending(wall)?;
        if closed && running {
            self.durable = db.seq().0;
        }
        Ok(self.durable)
    }

    /// Closes the database finally.
    pub(crate) fn end(&mut self) -> Check {
        self.end_boot(End::Close)?;
        self.vfs.wipe(Path::new(BACKUPS));
        Ok(())
    }

    fn reconcile(&mut self, floor: u64) -> Check {
        let found = self.visible();
        let last = self.alternatives.iter().chain([&self.oracle]).map(Oracle::last).max().unwrap_or(0);
        self.note(format!("opened at commit {found}, promised {floor}, last {last}"));
        ensure!(
            found >= floor,
            "commit {floor} was acknowledged and is lost: the database reopened at commit {found}"
        );
        ensure!(
            found <= last,
            "the database reopened at commit {found}, but only {last} were ever submitted"
        );
        (self.durable, self.written) = (found, found);
        self.claimed = self.claimed.min(found);
        self.mark();
        self.choose_history(found)?;
        self.rewind_readers(found);
        self.look_at_backup()
    }
}

impl World {
    /// The contents must equal one history up to commit `found`, which becomes the oracle.
    fn choose_history(&mut self, found: u64) -> Check {
        for other in std::mem::take(&mut self.alternatives) {
            self.oracle.truncate(found);
            if self.oracle.last() == found && self.compare_all().is_ok() {
                return Ok(());
            }
            self.oracle = other;
        }
        self.oracle.truncate(found);
        self.compare_all()
    }
}

/// Opens the database and its keyspaces.
pub(crate) fn open(options: &Options) -> Result<(Database, Vec<Keyspace>), Error> {
    open_in(options, Path::new(DIR))
}

/// As [`open`], a copy in another directory.
pub(crate) fn open_in(options: &Options, dir: &Path) -> Result<(Database, Vec<Keyspace>), Error> {
    let db = options.clone().open(dir)?;
    let plain = KeyspaceOptions { block_bytes: 512, ..KeyspaceOptions::default() };
    let packed = KeyspaceOptions {
        compression: Compression::Lz4,
        filter: FilterPolicy::All,
        ..KeyspaceOptions::default()
    };
    let keyspaces: [Keyspace; KEYSPACES] = [db.keyspace("plain", plain)?, db.keyspace("packed", packed)?];
    Ok((db, keyspaces.to_vec()))
}

/// All limits so small that a few hundred transactions roll segments, flush, compact and trim.
pub(crate) fn small_options(dice: &Dice) -> Options {
    let mut options = Options::new().background(Background::Manual);
    let engine = options.engine_mut();
    let kilobytes = dice.between(64, 512);
    engine.memory_budget = kilobytes << 10;
    // Derived, so that every seed draws the same numbers as before this setting existed.
    engine.log_everything = kilobytes.is_multiple_of(2);
    engine.log_retention_bytes = dice.below(4) * (64 << 10);
    engine.log.segment_bytes_first = dice.between(1, 4) * 4096;
    engine.log.segment_bytes_max = engine.log.segment_bytes_first << dice.below(4);
    engine.log.spare_segments_max = dice.below(3) as usize;
    engine.store.run_bytes = dice.between(4, 64) << 10;
    engine.store.l0_runs_max = dice.between(1, 4) as usize;
    engine.store.fanout = dice.between(2, 4);
    // Taken from other choices, so that old seeds stay what they were.
    engine.replay_bytes = engine.store.run_bytes * 2;
    let is_odd = engine.memory_budget >> 10 & 1 == 1;
    engine.resident_bytes = if is_odd { engine.memory_budget / 4 } else { 0 };
    options
}
