//! A power cut at every operation of a short workload, several times each, because each cut has many outcomes; and a kill
//! there, with a power cut after or inside the opening that follows.

use crate::events::scenario::{Check, End, World};
use crate::{Run, finish, guarded};

/// Result of [`exhaust`].
#[derive(Debug)]
pub struct Exhausted {
    /// Operations of the disk in the undisturbed workload: each was a point of a power cut and of kills.
    pub points: u64,
    /// Runs in all.
    pub runs: u64,
    /// The first run that found a bug, and the point and disk seed of its end.
    pub failure: Option<(u64, u64, Run)>,
}

/// Operations of an opening among which its power cut falls: about as many as an opening after a kill has.
const OPENING_OPERATIONS: u64 = 16;

/// Runs the workload of `seed`, `steps` steps long, once for each of its points, each of `tears` disk seeds, and each
/// way to end there: a power cut; a kill and a power cut after the next opening; a kill and a power cut inside that opening.
pub fn exhaust(seed: u64, steps: u64, tears: u64) -> Exhausted {
    let mut undisturbed = World::new(seed, 0);
    let result = guarded(&mut undisturbed, |world| cut_at(world, steps, &[]));
    let points = undisturbed.vfs.operations();
    let mut exhausted = Exhausted { points, runs: 1, failure: None };
    if result.is_err() {
        exhausted.failure = Some((0, 0, finish(undisturbed, result)));
        return exhausted;
    }
    for point in 1..=points {
        for tear in 0..tears {
            let disk_seed = point * 1_000 + tear;
            let inside = 1 + (point + tear) % OPENING_OPERATIONS;
            let ends: [&[(u64, End)]; 3] = [
                &[(point, End::PowerCut)],
                &[(point, End::Kill)],
                &[(point, End::Kill), (inside, End::PowerCut)],
            ];
            for ends in ends {
                let mut world = World::new(seed, disk_seed);
                let result = guarded(&mut world, |world| cut_at(world, steps, ends));
                exhausted.runs += 1;
                if result.is_err() {
                    exhausted.failure = Some((point, disk_seed, finish(world, result)));
                    return exhausted;
                }
            }
        }
    }
    exhausted
}

/// The workload with these ends, the first at one operation of it, creation and the last checkpoint included.
/// After a kill the power fails once more. Then the remaining database must work.
fn cut_at(world: &mut World, steps: u64, ends: &[(u64, End)]) -> Check {
    world.plan(ends);
    world.restart(End::Kill, false)?;
    for _ in 0..steps {
        if world.vfs.is_off() {
            break;
        }
        world.step()?;
    }
    if !world.vfs.is_off() {
        world.checkpoint()?;
    }
    if ends.is_empty() {
        return Ok(());
    }
    if world.vfs.is_off() {
        let end = world.planned_end();
        world.restart(end, false)?;
    }
    if ends.iter().any(|(_, end)| *end == End::Kill) {
        world.restart(End::PowerCut, false)?;
    }
    world.heal();
    for _ in 0..4 {
        world.step()?;
    }
    world.drive()?;
    world.mark();
    world.compare_all()?;
    world.verify()
}
