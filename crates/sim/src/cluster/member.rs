//! A machine of the cluster: its disk, its clock, and the process that runs on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use ropewalk::Database;
use ropewalk_base::sync::Mutex;
use ropewalk_cluster::checkpoint::Upkeep;
use ropewalk_cluster::{End, Node};
use ropewalk_vfs::FaultyVfs;

use crate::events::rng::Dice;
use crate::events::scenario::small_options;

/// Connection of a machine to the shared log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Network {
    /// Calls are answered.
    Up,
    /// Calls have no effect and no answer.
    Down,
    /// Appends are carried out; no call is answered.
    NoAnswers,
}

/// A machine.
pub(super) struct Member {
    pub(super) number: usize,
    pub(super) disk: FaultyVfs,
    pub(super) options: ropewalk::Options,
    /// Name of the node in the shared log.
    pub(super) name: [u8; 16],
    /// How fast its clock runs, in thousandths, and what it showed at the beginning.
    pub(super) clock_rate: u64,
    pub(super) clock_start: u64,
    wall_offset: AtomicI64,
    incarnation: AtomicU64,
    process: Mutex<Option<Arc<Process>>>,
    /// A call of the process is under way, further up the stack.
    is_busy: AtomicBool,
    /// ... which is a commit or a step, so that others may read meanwhile.
    is_readable: AtomicBool,
    pub(super) trouble: Mutex<Trouble>,
}

/// Faults of a machine that are in force.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    pub(super) network_until: u64,
    pub(super) no_answers: bool,
    /// The process does not run until then.
    pub(super) paused_until: u64,
    /// The disk was made to fail since the process began.
    pub(super) disk: bool,
    /// Entries were withheld from the process.
    pub(super) has_gap: bool,
    /// The shared log no longer has what the node needs next.
    pub(super) is_trimmed: bool,
    /// The contents of the machine were changed, and its node has not noticed yet.
    pub(super) differs: bool,
    /// Why the process ended for good.
    pub(super) ended: Option<End>,
}

/// A process: an open database and its node.
pub(super) struct Process {
    pub(super) incarnation: u64,
    pub(super) node: Node,
    pub(super) db: Database,
    pub(super) upkeep: Mutex<Upkeep>,
    /// The newest term and commit that it has shown.
    pub(super) seen: Mutex<(u64, u64)>,
}

/// Use of a process; no other call reaches it meanwhile.
pub(super) struct Use<'a> {
    member: &'a Member,
    pub(super) process: Arc<Process>,
}

impl Use<'_> {
    pub(super) fn member(&self) -> &Member {
        self.member
    }

    /// Others may read from now on.
    pub(super) fn let_read(&self) {
        self.member.is_readable.store(true, Ordering::SeqCst);
    }

    /// The process has not ended meanwhile.
    pub(super) fn is_alive(&self) -> bool {
        self.member.is_alive(self.process.incarnation)
    }
}

impl Drop for Use<'_> {
    fn drop(&mut self) {
        self.member.is_readable.store(false, Ordering::SeqCst);
        self.member.is_busy.store(false, Ordering::SeqCst);
    }
}

impl Member {
    pub(super) fn new(number: usize, seed: u64) -> Self {
        let dice = Dice::new(seed ^ 0x00de_u64.wrapping_mul(number as u64 + 1));
        let mut name = [0; 16];
        name.copy_from_slice(&dice.bytes(16));
        Self {
            number,
            disk: FaultyVfs::new(dice.number()),
            options: small_options(&dice),
            name,
            clock_rate: dice.between(900, 1100),
            clock_start: dice.below(1 << 40),
            wall_offset: AtomicI64::new(1_700_000_000_000_000 + dice.below(1 << 34).cast_signed()),
            incarnation: AtomicU64::new(0),
            process: Mutex::new(None),
            is_busy: AtomicBool::new(false),
            is_readable: AtomicBool::new(false),
            trouble: Mutex::new(Trouble::default()),
        }
    }

    pub(super) fn wall_offset(&self) -> i64 {
        self.wall_offset.load(Ordering::SeqCst)
    }

    /// Sets the wall clock, as an administrator would.
    pub(super) fn jump_wall_micros(&self, by: i64) {
        self.wall_offset.fetch_add(by, Ordering::SeqCst);
    }

    pub(super) fn is_alive(&self, incarnation: u64) -> bool {
        self.incarnation.load(Ordering::SeqCst) == incarnation
    }

    pub(super) fn process(&self) -> Option<Arc<Process>> {
        self.process.lock().clone()
    }

    pub(super) fn is_up(&self) -> bool {
        self.process.lock().is_some()
    }

    /// Begins a call of the process, unless it is down or has one.
    pub(super) fn begin(&self) -> Option<Use<'_>> {
        let process = self.process()?;
        if self.is_busy.swap(true, Ordering::SeqCst) {
            return None;
        }
        Some(Use { member: self, process })
    }

    pub(super) fn is_busy(&self) -> bool {
        self.is_busy.load(Ordering::SeqCst)
    }

    /// The process, for a read that may come while a commit of it is under way.
    pub(super) fn readable(&self) -> Option<Arc<Process>> {
        let is_open = !self.is_busy() || self.is_readable.load(Ordering::SeqCst);
        self.process().filter(|_| is_open)
    }

    /// Begins a process, whose number is passed to `open`, unless there is one or the machine has ended for good.
    pub(super) fn boot<R>(&self, open: impl FnOnce(u64) -> (Option<Process>, R)) -> Option<R> {
        if self.is_up() || self.trouble.lock().ended.is_some() || self.is_busy.swap(true, Ordering::SeqCst) {
            return None;
        }
        let (process, result) = open(self.incarnation.fetch_add(1, Ordering::SeqCst) + 1);
        // It may have ended while it began.
        if let Some(process) = process.filter(|process| self.is_alive(process.incarnation)) {
            *self.process.lock() = Some(Arc::new(process));
        }
        self.is_busy.store(false, Ordering::SeqCst);
        Some(result)
    }

    /// Ends the process, with the machine for a power cut.
    pub(super) fn end(&self, power_cut: bool) {
        self.incarnation.fetch_add(1, Ordering::SeqCst);
        if power_cut {
            self.disk.crash();
        } else {
            self.disk.kill();
        }
        // Its memory goes when the call that is under way has returned.
        let process = self.process.lock().take();
        drop(process);
        self.disk.calm();
        let mut trouble = self.trouble.lock();
        (trouble.disk, trouble.has_gap, trouble.paused_until) = (false, false, 0);
    }
}
