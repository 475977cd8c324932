//! Seeded simulation of the whole engine on a disk that fails.
//!
//!   dice ─▶ scheduler ─▶ actors ─▶ ropewalk ─▶ FaultyVfs ◀─ nemesis
//!                           └─ every result ─▶ oracle (an obvious model) ─▶ equal, or a bug
//!
//! One thread, one seeded RNG, a clock that only the simulation moves: the same seed is the same run, so a
//! failure is repeated by its number. Read `oracle` for the model, `world` for durability promises and
//! restarts, `nemesis` for faults, `actors`, `transactions` and `readers` for the workload, `backups` for
//! copies, `exhaust` for crashes at every point. `tables`, `documents`, `series` and `consumers` are separate
//! scenarios, for rows and documents under rules, for samples, and for groups and projections. `audit` and
//! `mixed` are about transactions over all models: a bank with auditors, and histories that the independent
//! [`checker`] judges. `restarts` is their common part. `cluster` runs three nodes that share a log.
//!
//! Checked: acknowledged commits survive, each completely or not at all; the order is total and positions
//! have no gaps; conditions, tracking and idempotency keys hold; transactions equal a serial run; snapshots
//! are stable; every query in both directions equals the model; feeds and subscriptions skip nothing; a copy
//! is complete or absent, and holds the commits acknowledged before it; a stopped engine refuses; bit
//! corruption is noticed, also by reads that lie; background work, files and the bytes that an opening reads
//! stay bounded.
//! Source: deterministic simulation as in FoundationDB (Zhou et al., SIGMOD 2021) and TigerBeetle.

pub mod checker;
mod cluster;
mod events;
mod models;
mod runs;

use std::panic::{AssertUnwindSafe, catch_unwind};

use ropewalk_base::threads::panic_text;

pub use cluster::run_cluster;
pub use events::scenario::Counts;
use events::scenario::{Bug, Check, End, World};
pub use models::audit::{Plant, exhaust_audit, run_audit};
pub use models::consumers::run_consumers;
pub use models::documents::{exhaust_documents, run_documents};
pub use models::mixed::{race, run_mixed};
pub use models::series::run_series;
pub use models::tables::run_tables;
pub use runs::crash_everywhere::{Exhausted, exhaust};

/// Settings of a run.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Boots, each with one kind of injected fault.
    pub boots: u64,
    /// Longest boot, in steps of actors.
    pub steps: u64,
    /// Plants the bug: in every boot one sync returns Ok and does nothing.
    pub plant_lost_sync: bool,
    /// Retains the complete trace, not only its end.
    pub whole_trace: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { boots: 6, steps: 160, plant_lost_sync: false, whole_trace: false }
    }
}

/// Result of a run.
#[derive(Debug)]
pub struct Run {
    /// Hash of all operations and results; equal for equal runs.
    pub hash: u64,
    /// Statistics of the run.
    pub counts: Counts,
    /// The bug, if one was found.
    pub bug: Option<String>,
    /// The last lines of the trace.
    pub tail: Vec<String>,
}

/// Runs one seed.
pub fn run(seed: u64, settings: &Settings) -> Run {
    let mut world = World::new(seed, seed ^ 0xd15c);
    if settings.whole_trace {
        world.trace_lines = usize::MAX / 4;
    }
    let result = guarded(&mut world, |world| live(world, settings));
    finish(world, result)
}

/// A panic is a bug like any other.
fn guarded<W>(world: &mut W, body: impl FnOnce(&mut W) -> Check) -> Check {
    catch_unwind(AssertUnwindSafe(|| body(world))).unwrap_or_else(|panic| {
        Err(Bug(format!("panic: {}", panic_text(&*panic).unwrap_or("without a message"))))
    })
}

fn finish(mut world: World, result: Check) -> Run {
    world.counts.faults = world.vfs.injected();
    let (hash, counts, tail) = (world.hash(), world.counts, world.tail().to_vec());
    let bug = result.err().map(|Bug(what)| what);
    if bug.is_some() {
        // A database in an impossible state may not even close; its memory is the price of the report.
        std::mem::forget(world);
    }
    Run { hash, counts, bug, tail }
}

fn live(world: &mut World, settings: &Settings) -> Check {
    world.restart(End::Kill, false)?;
    for _ in 0..settings.boots {
        let steps = world.dice.between(settings.steps / 8, settings.steps);
        world.troubled_boot(steps, settings.plant_lost_sync)?;
    }
    settle_down(world)
}

/// Without faults everything works again, all data is there, and verify finds nothing.
fn settle_down(world: &mut World) -> Check {
    world.heal();
    for _ in 0..20 {
        world.step()?;
    }
    world.drive()?;
    world.check_upkeep()?;
    world.compare_all()?;
    world.oracle.recheck_conditions().map_err(Bug)?;
    world.verify()?;
    world.mark();
    world.compact()?;
    world.compare_all()?;
    world.verify()?;
    world.restart(End::Close, false)?;
    world.check_files()?;
    world.end()?;
    let flips = world.dice.below(4);
    world.rot(flips)
}
