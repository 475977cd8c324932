//! Machines, the shared log and time, and the choice of the next act.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ropewalk::cluster::{Role, SharedOptions};
use ropewalk::engine::Env;
use ropewalk::{Class, Database, Error};
use ropewalk_base::sync::Mutex;
use ropewalk_cluster::checkpoint::{Checkpoints, DirectoryStore, Maker, Upkeep, UpkeepSettings};
use ropewalk_cluster::{Done, End, Node, Settings};
use ropewalk_log::LogId;
use ropewalk_log::shared::{EntryIndex, MemorySharedLog};
use ropewalk_vfs::{DiskOp, SeededRandom};

use crate::Counts;
use crate::cluster::copies::{StoreLink, new_store};
use crate::cluster::history::History;
use crate::cluster::link::{Link, NodeClock, ProcessLink};
use crate::cluster::member::{Member, Network, Process};
use crate::events::rng::Dice;
use crate::events::scenario::{Bug, Check, DIR, ensure};
use crate::models::audit::books::START_MS;

const NODES: usize = 3;
pub(super) const SESSIONS: usize = 3;
/// Calls inside calls in which other nodes run.
const DEPTH_MAX: u64 = 2;
const TRACE_LINES: usize = 80;
/// Time without an entry after which a follower may try to lead.
pub(super) const LEASE: Duration = Duration::from_secs(3);

/// Everything that a run has. Acts nest: a node that waits lets others act inside its call.
pub(super) struct World {
    pub(super) dice: Dice,
    /// A handle without faults, for the checks.
    pub(super) log: MemorySharedLog,
    members: Vec<Member>,
    now: AtomicU64,
    depth: AtomicU64,
    is_troubled: AtomicBool,
    is_quiet: AtomicBool,
    /// How long a node repeats an append without an answer.
    patience: Duration,
    /// When nodes compare their contents.
    hash_interval: u64,
    hash_time: Duration,
    pass_interval: Duration,
    /// Objects of checkpoints, and how they are made.
    pub(super) store: Arc<DirectoryStore>,
    block_bytes: u32,
    upkeep: UpkeepSettings,
    pub(super) record: Mutex<Record>,
    /// The newest commit that each session of a client has seen.
    pub(super) sessions: Mutex<[u64; SESSIONS]>,
    /// Number of the next transfer and of the next load, and time of the samples of the next transfer.
    pub(super) next: Mutex<(i64, i64, i64)>,
    this: Weak<World>,
}

/// Record of a simulation run.
pub(super) struct Record {
    pub(super) history: History,
    pub(super) counts: Counts,
    pub(super) trace: Vec<String>,
    /// So many last lines are retained.
    pub(super) trace_lines: usize,
    pub(super) hash: u64,
    pub(super) bug: Option<String>,
}

impl World {
    pub(super) fn new(seed: u64) -> Arc<Self> {
        let dice = Dice::new(seed ^ 0xc1a5_7e12);
        let mut id = [0; 16];
        id.copy_from_slice(&dice.bytes(16));
        let entry_bytes_max = dice.weighted(&[(3, 1 << 20), (1, 4 << 10), (1, 600)]);
        let record = Record {
            history: History::default(),
            counts: Counts::default(),
            trace: Vec::new(),
            trace_lines: TRACE_LINES,
            hash: 0xcbf2_9ce4_8422_2325,
            bug: None,
        };
        Arc::new_cyclic(|this| Self {
            log: MemorySharedLog::with_entry_bytes_max(LogId(id), entry_bytes_max),
            members: (0..NODES).map(|number| Member::new(number, seed)).collect(),
            now: AtomicU64::new(1_000_000_000),
            depth: AtomicU64::new(0),
            is_troubled: AtomicBool::new(true),
            is_quiet: AtomicBool::new(false),
            patience: Duration::from_millis(dice.between(500, 12_000)),
            hash_interval: dice.weighted(&[(1, 1), (2, 4), (1, 16)]),
            // Long compared with the time between two reports, as in a server.
            hash_time: Duration::from_millis(dice.between(6_000, 15_000)),
            pass_interval: Duration::from_millis(dice.between(500, 20_000)),
            store: new_store(dice.number()),
            block_bytes: dice.weighted(&[(1, 700), (2, 8 << 10), (1, 1 << 20)]),
            upkeep: UpkeepSettings {
                interval: Duration::from_millis(dice.between(500, 10_000)),
                pause: Duration::from_millis(dice.between(10, 500)),
                grace: Duration::from_millis(dice.between(100, 30_000)),
            },
            dice,
            record: Mutex::new(record),
            sessions: Mutex::default(),
            next: Mutex::new((1, 1, START_MS + 1)),
            this: this.clone(),
        })
    }

    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }

    pub(super) fn member(&self, node: usize) -> &Member {
        self.members.get(node).expect("a node has a machine")
    }

    pub(super) fn any_member(&self) -> &Member {
        self.member(self.dice.index(NODES))
    }

    pub(super) fn now(&self) -> u64 {
        self.now.load(Ordering::SeqCst)
    }

    /// The monotonic clock of a machine.
    pub(super) fn local_nanos(&self, node: usize) -> u64 {
        let member = self.member(node);
        member.clock_start + self.now() / 1000 * member.clock_rate
    }

    /// Faults may happen.
    pub(super) fn is_troubled(&self) -> bool {
        self.is_troubled.load(Ordering::SeqCst)
    }

    /// Faults may happen from now on.
    pub(super) fn begin_trouble(&self) {
        self.is_troubled.store(true, Ordering::SeqCst);
    }

    /// Whether clients write nothing. A cluster need not be as fast as its clients, and nodes that lag agree when these pause.
    pub(super) fn set_quiet(&self, is_quiet: bool) {
        self.is_quiet.store(is_quiet, Ordering::SeqCst);
    }

    pub(super) fn advance(&self, milliseconds: u64) {
        self.now.fetch_add(milliseconds * 1_000_000, Ordering::SeqCst);
    }

    /// Ends all faults.
    pub(super) fn heal(&self) {
        self.is_troubled.store(false, Ordering::SeqCst);
        for member in &self.members {
            member.disk.calm();
            let mut trouble = member.trouble.lock();
            (trouble.network_until, trouble.paused_until) = (0, 0);
        }
    }

    pub(super) fn network(&self, node: usize) -> Network {
        let trouble = self.member(node).trouble.lock();
        match (self.now() < trouble.network_until, trouble.no_answers) {
            (false, _) => Network::Up,
            (true, false) => Network::Down,
            (true, true) => Network::NoAnswers,
        }
    }

    pub(super) fn note(&self, line: impl Into<String>) {
        let mut record = self.record.lock();
        let depth = usize::try_from(self.depth.load(Ordering::SeqCst)).unwrap_or(0);
        let milliseconds = self.now() / 1_000_000;
        let line =
            format!("{:>5} {milliseconds:>7} {}{}", record.counts.steps, "| ".repeat(depth), line.into());
        for byte in line.bytes() {
            record.hash = (record.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        let most = record.trace_lines;
        if record.trace.len() >= 2 * most {
            record.trace.drain(..most);
        }
        record.trace.push(line);
    }

    pub(super) fn count(&self, add: impl FnOnce(&mut Counts)) {
        add(&mut self.record.lock().counts);
    }

    pub(super) fn has_bug(&self) -> bool {
        self.record.lock().bug.is_some()
    }

    /// Lets others act inside a call.
    pub(super) fn interleave(&self) {
        if self.dice.one_in(4) {
            self.nested(self.dice.between(1, 4));
        }
    }

    /// Lets time pass inside a call.
    pub(super) fn pass(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.now.fetch_add(nanos, Ordering::SeqCst);
        self.nested(1);
    }

    fn nested(&self, acts: u64) {
        if self.depth.load(Ordering::SeqCst) >= DEPTH_MAX {
            return;
        }
        self.depth.fetch_add(1, Ordering::SeqCst);
        for _ in 0..acts {
            if self.has_bug() {
                break;
            }
            if let Err(Bug(what)) = self.act() {
                self.record.lock().bug.get_or_insert(what);
            }
        }
        self.depth.fetch_sub(1, Ordering::SeqCst);
    }

    /// One act at the top, with all that it nests.
    pub(super) fn act_alone(&self) -> Check {
        self.act()?;
        self.record.lock().bug.clone().map_or(Ok(()), |what| Err(Bug(what)))
    }

    fn act(&self) -> Check {
        self.count(|counts| counts.steps += 1);
        let is_top = self.depth.load(Ordering::SeqCst) == 0;
        match self.dice.below(100) {
            0..40 => self.step(self.any_member())?,
            40..50 => {
                let most = if self.dice.one_in(8) { LEASE.as_millis() as u64 } else { 300 };
                self.advance(self.dice.between(1, most));
            }
            50..68 if self.is_quiet.load(Ordering::SeqCst) => {}
            50..68 => self.write()?,
            68..72 => self.read_session()?,
            72..76 => self.report_hashes(self.any_member())?,
            76..80 => self.read_linearizably()?,
            80..84 => self.compare(self.any_member())?,
            84..87 => self.housekeeping(self.any_member())?,
            87..89 => self.upkeep(self.any_member())?,
            89..95 => self.boot(self.any_member())?,
            _ if self.is_troubled() && (is_top || self.dice.one_in(3)) => self.trouble(self.any_member())?,
            _ => {}
        }
        for member in &self.members {
            if member.disk.is_off() {
                self.end_process(member, true);
            }
        }
        self.check()
    }

    /// One step of a node.
    pub(super) fn step(&self, member: &Member) -> Check {
        if self.now() < member.trouble.lock().paused_until {
            return Ok(());
        }
        let Some(used) = member.begin() else { return Ok(()) };
        used.let_read();
        let stepped = used.process.node.step(self.local_nanos(member.number));
        if !used.is_alive() {
            return Ok(());
        }
        match &stepped.done {
            Done::Ended(end) => {
                let end = end.clone();
                let process = used.process.clone();
                drop(used);
                self.ended(member, &process, &end)
            }
            Done::Led { term } => {
                self.note(format!("node {} leads in term {term}", member.number));
                self.count(|counts| counts.leaders += 1);
                Ok(())
            }
            Done::Stated => {
                self.count(|counts| counts.statements += 1);
                Ok(())
            }
            Done::Unavailable { cause } => {
                self.note(format!("node {}: {cause}", member.number));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A node has ended: its owner closes it.
    fn ended(&self, member: &Member, process: &Process, end: &End) -> Check {
        self.note(format!("node {} ended: {end}", member.number));
        self.count(|counts| counts.ends += 1);
        let is_disk = member.disk.is_off() || member.trouble.lock().disk;
        let is_damaged = self.record.lock().history.is_damaged();
        let has_reason = match end {
            End::Deposed | End::SteppedDown => true,
            End::Stopped { error } => is_disk && !error.to_string().contains("panic"),
            End::Diverged { .. } => is_damaged || member.trouble.lock().has_gap,
            End::Differs { .. } => member.trouble.lock().differs,
            End::Trimmed { .. } if self.oldest_entry()? > EntryIndex(1) => true,
            _ => is_damaged,
        };
        ensure!(has_reason, "node {} ended without a reason: {end}", member.number);
        if matches!(end, End::Trimmed { .. }) && !is_damaged {
            member.trouble.lock().is_trimmed = true;
        // An operator opens a database again that has missed an entry of an intact log.
        } else if !end.is_reopened() && (is_damaged || matches!(end, End::Differs { .. })) {
            member.trouble.lock().ended = Some(end.clone());
        }
        self.close(member, process)
    }

    /// Closes the database of a machine, which stays on.
    pub(super) fn close(&self, member: &Member, process: &Process) -> Check {
        let Some(used) = member.begin() else { return Ok(()) };
        let is_running = process.db.stopped().is_none();
        let closed = process.db.clone().close();
        let is_disk = member.disk.is_off() || member.trouble.lock().disk;
        // A leader that is cut off from the log cannot close cleanly.
        let is_cut = self.is_troubled() || self.network(member.number) != Network::Up;
        if let Err(error) = closed {
            self.note(format!("node {} closes: {error}", member.number));
            ensure!(is_disk || is_cut || !is_running, "close failed without a reason: {error}");
        }
        drop(used);
        if member.is_alive(process.incarnation) {
            self.end_process(member, false);
        }
        Ok(())
    }

    pub(super) fn end_process(&self, member: &Member, power_cut: bool) {
        if power_cut {
            self.note(format!("node {} loses power", member.number));
            self.count(|counts| counts.power_cuts += 1);
        }
        member.end(power_cut);
    }

    /// Starts the process of a machine that has none.
    pub(super) fn boot(&self, member: &Member) -> Check {
        let opened = member.boot(|incarnation| {
            self.count(|counts| counts.opens += 1);
            match self.open(member, incarnation) {
                Ok(None) => (None, Ok(())),
                Ok(Some(process)) => {
                    let (seq, place) = (process.db.seq(), process.db.engine().place());
                    self.note(format!("node {} opens at commit {seq}, {place:?}", member.number));
                    self.opened(member, incarnation, &process.db);
                    (Some(process), Ok(()))
                }
                Err(error) => (None, Err(error)),
            }
        });
        let Some(Err(error)) = opened else { return Ok(()) };
        self.note(format!("node {} does not open: {error}", member.number));
        let is_disk = member.disk.is_off() || member.trouble.lock().disk;
        if self.record.lock().history.is_damaged() && error.class() == Class::Corrupt {
            let error = match error {
                Error::Engine(error) => error,
                other => ropewalk::engine::EngineError::Stopped { cause: other.to_string().into() },
            };
            member.trouble.lock().ended = Some(End::Diverged { error });
            return Ok(());
        }
        ensure!(is_disk, "node {} does not open: {error} ({:?})", member.number, error.class());
        Ok(())
    }

    /// A process has an open database; in a damaged log it matters what it has already.
    pub(super) fn opened(&self, member: &Member, incarnation: u64, db: &Database) {
        let (seq, index) = (db.seq().0, db.engine().place().index);
        self.record.lock().history.opened((member.number, incarnation), seq, index);
    }

    /// Opens a database, unless it has to be joined first and that fails.
    fn open(&self, member: &Member, incarnation: u64) -> Result<Option<Process>, Error> {
        let link = ProcessLink { world: self.this.clone(), node: member.number, incarnation };
        let clock = NodeClock { process: link.clone(), asleep: AtomicU64::new(0) };
        let store = StoreLink { process: link.clone(), store: self.store.clone() };
        let checkpoints = Checkpoints::new(Arc::new(store)).block_bytes(self.block_bytes);
        let random = SeededRandom::new(self.dice.number());
        let vfs = Arc::new(member.disk.process());
        let env = Env { vfs, clock: Arc::new(clock), random: Arc::new(random) };
        let log = Arc::new(Link { process: link, log: self.log.handle() });
        match self.prepare(member, incarnation, &env, &*log, &checkpoints) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(Bug(what)) => {
                self.record.lock().bug.get_or_insert(what);
                return Ok(None);
            }
        }
        let address = format!("node-{}", member.number);
        let shared = SharedOptions {
            patience: self.patience,
            hash_interval: self.hash_interval,
            ..SharedOptions::new(log.clone(), member.name, &*address)
        };
        let db = member.options.clone().env(env).shared(shared).open(Path::new(DIR))?;
        let settings = Settings {
            lease: LEASE,
            seed: u64::from(member.name.first().copied().unwrap_or(0)),
            read_wait: Duration::ZERO,
            read_bytes: self.dice.weighted(&[(2, 1 << 20), (1, 500)]),
            hash_time: self.hash_time,
            slice_bytes: self.dice.weighted(&[(1, 300), (2, 4 << 10), (1, 1 << 20)]),
            pass_interval: self.pass_interval,
        };
        let maker = Maker::new(checkpoints, db.clone(), Path::new(DIR), member.name, address);
        let upkeep = Mutex::new(Upkeep::new(maker, log.clone(), self.upkeep));
        let node = Node::new(db.clone(), log, settings);
        Ok(Some(Process { incarnation, node, db, upkeep, seen: Mutex::new((0, 0)) }))
    }

    /// Maintenance of one node.
    pub(super) fn housekeeping(&self, member: &Member) -> Check {
        let Some(used) = member.begin() else { return Ok(()) };
        let db = &used.process.db;
        let done = match self.dice.below(12) {
            0 => db.checkpoint(),
            1 => db.compact(),
            _ => db.engine().background_step().map(|_| ()).map_err(Error::from),
        };
        done.or_else(|error| self.excuse(member, &used.process, "maintenance", &error))
    }

    /// A failure of a process, for which there is a reason.
    pub(super) fn excuse(&self, member: &Member, process: &Process, what: &str, error: &Error) -> Check {
        self.note(format!("node {}: {what}: {error}", member.number));
        let is_disk = member.disk.is_off() || member.trouble.lock().disk;
        let is_stopped = process.db.stopped().is_some();
        let is_log = matches!(error.class(), Class::NotLeader | Class::Unknown | Class::Busy);
        let has_reason = is_disk || is_stopped || is_log || !member.is_alive(process.incarnation);
        let is_panic = error.to_string().contains("panic");
        ensure!(has_reason && !is_panic, "{what} failed without a reason: {error} ({:?})", error.class());
        Ok(())
    }

    /// One fault of a machine.
    fn trouble(&self, member: &Member) -> Check {
        let number = member.number;
        match self.dice.below(20) {
            0 if self.dice.one_in(2) => self.lose_disk(member),
            0..3 => self.end_process(member, true),
            3..5 => {
                self.note(format!("node {number} is killed"));
                self.end_process(member, false);
            }
            5 => {
                if self.dice.one_in(2)
                    && let Some(used) = member.begin()
                    && matches!(used.process.db.role(), Role::Leader { .. })
                {
                    let successor = self.any_member();
                    self.note(format!("node {number} steps down, for node {}", successor.number));
                    let _ = used.process.node.step_down(Some(successor.name));
                } else if let Some(process) = member.process() {
                    self.note(format!("node {number} is closed"));
                    self.close(member, &process)?;
                }
            }
            6..9 => {
                let operations = self.dice.between(1, 200);
                member.disk.crash_at(member.disk.operations() + operations);
                member.trouble.lock().disk = true;
            }
            9 | 10 => {
                let op = self.dice.weighted(&[(1, DiskOp::Sync), (1, DiskOp::Write)]);
                member.disk.fail(op, self.dice.below(40));
                member.trouble.lock().disk = true;
            }
            11..14 => {
                let until = self.now() + self.dice.between(100, 10_000) * 1_000_000;
                self.note(format!("node {number} pauses"));
                member.trouble.lock().paused_until = until;
            }
            14..18 => {
                let until = self.now() + self.dice.between(100, 10_000) * 1_000_000;
                let no_answers = self.dice.one_in(2);
                self.note(format!("node {number} is cut off, no answers: {no_answers}"));
                let mut trouble = member.trouble.lock();
                (trouble.network_until, trouble.no_answers) = (until, no_answers);
            }
            _ => {
                let by = self.dice.below(20_000_000).cast_signed() - 10_000_000;
                member.jump_wall_micros(by);
            }
        }
        Ok(())
    }

    /// The shared log is one chain, and no node shows a commit that it does not hold.
    pub(super) fn check(&self) -> Check {
        let mut record = self.record.lock();
        record.history.read_log(&self.log)?;
        let newest = record.history.logged();
        drop(record);
        for member in &self.members {
            let Some(process) = member.process() else { continue };
            let (number, seq) = (member.number, process.db.seq().0);
            let (record, mut seen) = (self.record.lock(), process.seen.lock());
            ensure!(seq >= seen.1, "node {number}: commit {seq} is visible after {}", seen.1);
            seen.1 = seq;
            if record.history.is_damaged() {
                if !member.is_busy() {
                    let index = process.db.engine().place().index;
                    record.history.check_damaged((number, process.incarnation), index)?;
                }
                continue;
            }
            ensure!(seq <= newest, "node {number} shows commit {seq}, and the shared log ends at {newest}");
            // A call that is under way may hold the locks of the rest.
            if member.is_busy() {
                continue;
            }
            let (term, role) = (process.db.engine().place().term, process.db.role());
            ensure!(term >= seen.0, "node {number}: term {term} after {}", seen.0);
            seen.0 = term;
            if let Role::Leader { term } = role {
                let has_led = record.history.has_led(term, member.name);
                ensure!(has_led, "node {number} leads in term {term}, which the shared log does not say");
            }
        }
        Ok(())
    }
}
