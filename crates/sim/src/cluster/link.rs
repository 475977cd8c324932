//! The connection of a process to the shared log, and its clock: where other nodes run meanwhile.
//!
//! ```text
//! call ─▶ others run ─▶ fault? ─▶ shared log ─▶ others run ─▶ answer          sleep ─▶ others run while time passes
//! ```
//! One thread runs all nodes, so a node that waits for the log or sleeps lets the others run inside its call. A process
//! that ended meanwhile gets no answers any more.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ropewalk_log::LogId;
use ropewalk_log::shared::{
    AppendError, EntryIndex, MemorySharedLog, SharedBounds, SharedEntry, SharedError, SharedFault, SharedLog,
    SharedResult,
};
use ropewalk_vfs::Clock;

use crate::cluster::member::Network;
use crate::cluster::world::World;

/// One process of a node, as the shared log and the clock know it.
#[derive(Clone)]
pub(super) struct ProcessLink {
    pub(super) world: Weak<World>,
    /// Number of the node.
    pub(super) node: usize,
    /// Which of its processes.
    pub(super) incarnation: u64,
}

impl ProcessLink {
    /// The world, if this process is alive in it.
    pub(super) fn world(&self) -> Option<Arc<World>> {
        let world = self.world.upgrade()?;
        world.member(self.node).is_alive(self.incarnation).then_some(world)
    }

    /// Lets others run; `None` when this process did not survive that.
    pub(super) fn pause(&self) -> Option<Arc<World>> {
        let world = self.world()?;
        world.interleave();
        self.world()
    }
}

/// A handle on the shared log.
pub(super) struct Link {
    pub(super) process: ProcessLink,
    pub(super) log: MemorySharedLog,
}

impl core::fmt::Debug for Link {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Link({})", self.process.node)
    }
}

fn unavailable() -> SharedError {
    SharedError::Unavailable { cause: "no answer".to_owned() }
}

impl Link {
    /// A call that changes nothing.
    fn ask<T>(&self, call: impl FnOnce() -> SharedResult<T>) -> SharedResult<T> {
        let world = self.process.pause().ok_or_else(unavailable)?;
        let is_lost = world.is_troubled() && world.dice.one_in(50);
        if is_lost || world.network(self.process.node) != Network::Up {
            return Err(unavailable());
        }
        call()
    }

    fn fault(&self, world: &World) -> Option<SharedFault> {
        match world.network(self.process.node) {
            Network::Up if world.is_troubled() => world.dice.weighted(&[
                (40, None),
                (1, Some(SharedFault::DropRequest)),
                (2, Some(SharedFault::LoseAnswer)),
                (1, Some(SharedFault::Delay { calls: world.dice.below(60) })),
            ]),
            Network::Up => None,
            Network::Down => Some(SharedFault::DropRequest),
            Network::NoAnswers => Some(SharedFault::LoseAnswer),
        }
    }
}

impl SharedLog for Link {
    fn identity(&self) -> SharedResult<LogId> {
        self.ask(|| self.log.identity())
    }

    fn entry_bytes_max(&self) -> usize {
        self.log.entry_bytes_max()
    }

    fn append(&self, expected: EntryIndex, entry: &[u8]) -> Result<EntryIndex, AppendError> {
        let unknown = || AppendError::Unknown { cause: "no answer".to_owned() };
        let world = self.process.pause().ok_or_else(unknown)?;
        if let Some(fault) = self.fault(&world) {
            world.note(format!("node {}: append after {expected} meets {fault:?}", self.process.node));
            self.log.queue_fault(fault);
        }
        let appended = self.log.append(expected, entry);
        self.process.pause().ok_or_else(unknown)?;
        appended
    }

    fn read(&self, after: EntryIndex, bytes_max: usize, wait: Duration) -> SharedResult<Vec<SharedEntry>> {
        let mut entries = self.ask(|| self.log.read(after, bytes_max, wait))?;
        if let Some(world) = self.process.world().filter(|world| world.is_troubled())
            && entries.len() > 1
            && world.dice.one_in(200)
        {
            // A connection that breaks its promise. The node has to notice.
            world.note(format!("node {} misses entry {}", self.process.node, after.next()));
            world.member(self.process.node).trouble.lock().has_gap = true;
            entries.remove(0);
        }
        Ok(entries)
    }

    fn bounds(&self) -> SharedResult<SharedBounds> {
        self.ask(|| {
            let mut bounds = self.log.bounds()?;
            if let Some(world) = self.process.world().filter(|world| world.is_troubled()) {
                // Another copy of the service answers, which lags.
                let stale = world.dice.below(6).saturating_sub(2);
                bounds.newest.0 = bounds.newest.0.saturating_sub(stale).max(bounds.oldest.0 - 1);
            }
            Ok(bounds)
        })
    }

    fn trim(&self, oldest: EntryIndex) -> SharedResult<()> {
        self.ask(|| self.log.trim(oldest))
    }
}

/// The clock of a process: it is set differently from those of other nodes, and runs faster or slower.
pub(super) struct NodeClock {
    pub(super) process: ProcessLink,
    /// Time that a process has slept after its end.
    pub(super) asleep: AtomicU64,
}

impl Clock for NodeClock {
    fn wall_micros(&self) -> i64 {
        let nanos = self.monotonic_nanos() / 1000;
        let offset = self.process.world.upgrade().map_or(0, |w| w.member(self.process.node).wall_offset());
        nanos.cast_signed() + offset
    }

    fn monotonic_nanos(&self) -> u64 {
        let asleep = self.asleep.load(Ordering::SeqCst);
        self.process.world.upgrade().map_or(0, |world| world.local_nanos(self.process.node)) + asleep
    }

    fn sleep(&self, duration: Duration) {
        match self.process.world() {
            Some(world) => world.pass(duration),
            None => {
                let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
                self.asleep.fetch_add(nanos, Ordering::SeqCst);
            }
        }
    }
}
