//! Seeded simulation of the whole engine on a disk that fails.
//!
//!   dice ─▶ scheduler ─▶ actors ─▶ ropewalk ─▶ FaultyVfs ◀─ nemesis
//!                           └─ every answer ─▶ oracle (an obvious model) ─▶ equal, or a bug
//!
//! One thread, one source of chance, a clock that moves when told: the same seed is the same run, so a failure is
//! repeated by its number. Read `oracle` for what must hold, `world` for promises and restarts, `nemesis` for what goes
//! wrong, `actors`, `transactions` and `readers` for who does what, `backups` for copies, `exhaust` for crashes at every point. `tables`,
//! `documents`, `series` and `consumers` are worlds of their own, for rows and documents under rules, for samples, and for groups and
//! projections; `boots` is what they
//! share.
//!
//! Checked: what was acknowledged survives, and all of it or nothing; the order is total and positions have no gaps;
//! conditions, tracking and idempotency keys hold; transactions equal a serial run; snapshots stay; every query in both
//! directions equals the model; feeds and subscriptions skip nothing; a copy is whole or not there, and holds what was
//! acknowledged before; a stopped engine refuses; rot is noticed, also by reads that lie; background work, files and what an opening
//! reads stay bounded.
//! Source: deterministic simulation as in FoundationDB (Zhou et al., SIGMOD 2021) and TigerBeetle.

mod actors;
mod backups;
mod boots;
mod bounds;
mod consumers;
mod dice;
mod documents;
mod exhaust;
mod nemesis;
mod oracle;
mod readers;
mod rot;
mod series;
mod tables;
mod transactions;
mod words;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use consumers::run_consumers;
pub use documents::{exhaust_documents, run_documents};
pub use exhaust::{Exhausted, exhaust};
pub use series::run_series;
pub use tables::run_tables;
pub use world::Counts;
use world::{Bug, Check, End, World};

/// How a run is done.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Boots, each under some trouble.
    pub boots: u64,
    /// Longest boot, in steps of actors.
    pub steps: u64,
    /// Plants the bug: in every boot one sync answers Ok and does nothing.
    pub plant_lost_sync: bool,
    /// Keeps the whole trace, not only its end.
    pub whole_trace: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { boots: 6, steps: 160, plant_lost_sync: false, whole_trace: false }
    }
}

/// What a run was.
#[derive(Debug)]
pub struct Run {
    /// Of everything that was done and answered; equal for equal runs.
    pub hash: u64,
    /// What happened.
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
fn guarded(world: &mut World, body: impl FnOnce(&mut World) -> Check) -> Check {
    catch_unwind(AssertUnwindSafe(|| body(world))).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        Err(Bug(format!("panic: {}", text.unwrap_or("without a message"))))
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

/// Without faults everything works again, everything is there, and verify has nothing to say.
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
