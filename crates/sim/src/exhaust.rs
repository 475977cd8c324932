//! A power cut at every operation of a short workload, several times each, because each cut has many outcomes.

use crate::world::{Check, End, World};
use crate::{Run, finish, guarded};

/// What [`exhaust`] did.
#[derive(Debug)]
pub struct Exhausted {
    /// Operations of the disk in the undisturbed workload: each was a point of a power cut.
    pub points: u64,
    /// Runs in all.
    pub runs: u64,
    /// The first run that found a bug, and the point and disk seed of its power cut.
    pub failure: Option<(u64, u64, Run)>,
}

/// Runs the workload of `seed`, `steps` steps long, once for each of its points and each of `tears` disk seeds.
pub fn exhaust(seed: u64, steps: u64, tears: u64) -> Exhausted {
    let mut undisturbed = World::new(seed, 0);
    let result = guarded(&mut undisturbed, |world| cut_at(world, steps, None));
    let points = undisturbed.vfs.operations();
    let mut exhausted = Exhausted { points, runs: 1, failure: None };
    if result.is_err() {
        exhausted.failure = Some((0, 0, finish(undisturbed, result)));
        return exhausted;
    }
    for point in 1..=points {
        for tear in 0..tears {
            let disk_seed = point * 1_000 + tear;
            let mut world = World::new(seed, disk_seed);
            let result = guarded(&mut world, |world| cut_at(world, steps, Some(point)));
            exhausted.runs += 1;
            if result.is_err() {
                exhausted.failure = Some((point, disk_seed, finish(world, result)));
                return exhausted;
            }
        }
    }
    exhausted
}

/// The workload with a power cut at one operation, creation and the end included; then what is left must work.
fn cut_at(world: &mut World, steps: u64, point: Option<u64>) -> Check {
    if let Some(point) = point {
        world.vfs.crash_at(point);
    }
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
    if world.vfs.is_off() {
        world.restart(End::PowerCut, false)?;
        for _ in 0..4 {
            world.step()?;
        }
        world.drive()?;
        world.mark();
        world.compare_all()?;
        world.verify()?;
    }
    Ok(())
}
