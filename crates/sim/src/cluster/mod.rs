//! A cluster of three nodes that share a log, with everything that can fail.
//!
//! ```text
//! clients ─▶ node 0 ┐            power cuts, kills, pauses, failing disks, clocks that differ
//! clients ─▶ node 1 ├─▶ link ─▶ one shared log
//! clients ─▶ node 2 ┘    └ lost requests, lost answers, delayed requests, cut off
//! ```
//! One thread runs everything: [`world`] chooses the next act, and a node that waits for the shared log lets others act
//! inside its call ([`link`]), so that leaders change between any two calls of the log. The bank of `models::audit` is
//! written by [`clients`] through the leader and read on all nodes; [`history`] judges.
//!
//! Checked: nothing acknowledged is lost; no node shows a commit that the shared log does not hold; at equal commits
//! every node has equal contents in all models; an unknown outcome resolves to one of both, for ever; sessions never read
//! backwards; a linearizable read sees every commit that was acknowledged before it; terms only grow; a damaged log
//! stops the nodes that have seen more ([`damage`]); nodes that agree have equal hashes ([`hashes`]), and a node that has
//! applied or stored something else stops ([`distortion`]); a node that lost its disk comes back from a checkpoint ([`copies`]); after the last fault the cluster works again.

mod clients;
mod copies;
mod damage;
mod distortion;
mod hashes;
mod history;
mod link;
mod member;
mod world;

use crate::cluster::world::World;
use crate::events::scenario::{Bug, Check};
use crate::{Run, guarded};

/// Acts of a phase.
const ACTS: u64 = 160;

/// Runs one seed: so many phases, between which all nodes agree again.
pub fn run_cluster(seed: u64, phases: u64, whole_trace: bool) -> Run {
    let mut world = World::new(seed);
    if whole_trace {
        world.record.lock().trace_lines = usize::MAX / 4;
    }
    let result = guarded(&mut world, |world| live(world, phases));
    let bug = result.err().map(|Bug(what)| what);
    let (hash, mut counts, tail) = {
        let record = world.record.lock();
        (record.hash, record.counts, record.trace.clone())
    };
    counts.faults = world.members().iter().map(|member| member.disk.injected()).sum();
    if bug.is_some() {
        // A database in an impossible state may not even close; its memory is the price of the report.
        std::mem::forget(world);
    }
    Run { hash, counts, bug, tail }
}

fn live(world: &World, phases: u64) -> Check {
    for _ in 0..phases {
        world.begin_trouble();
        for _ in 0..world.dice.between(ACTS / 4, ACTS) {
            world.act_alone()?;
        }
        world.settle()?;
    }
    match world.dice.below(4) {
        0 => return world.damage_log(),
        1 => world.distort()?,
        _ => {}
    }
    world.finish()
}
