//! A process that is killed inside a change of the manifest, an opening, and a power cut after or inside that opening.

use std::path::Path;
use std::sync::Arc;

use ropewalk_store::{Store, StoreError};
use ropewalk_vfs::{DiskOp, Env, FaultyVfs, create_dir_durably};

use crate::failures::{DIR, in_force, options, round, small_blocks};

const ROUNDS: u64 = 3;

fn env(disk: &FaultyVfs) -> Env {
    Env { vfs: Arc::new(disk.process()), ..Env::memory() }
}

/// A disk with the store's directory, which the store's owner makes durable.
fn disk(seed: u64) -> FaultyVfs {
    let disk = FaultyVfs::new(seed);
    create_dir_durably(&disk, Path::new(DIR)).unwrap();
    disk
}

/// Writes and compacts, round after round, as far as the disk allows.
fn work(disk: &FaultyVfs) -> Result<(), StoreError> {
    let store = Store::open(&env(disk), Path::new(DIR), options())?;
    let keyspace = store.keyspace("rows", small_blocks())?;
    (1..=ROUNDS).try_for_each(|number| round(&store, keyspace, number, false))
}

/// A disk on which the process was killed inside operation `point`; `None` when the work ends before.
fn killed_at(point: u64, seed: u64) -> Option<FaultyVfs> {
    let disk = disk(seed);
    disk.crash_at(disk.operations() + point);
    work(&disk).err()?;
    disk.kill();
    Some(disk)
}

#[test]
fn power_cut_after_reopening_a_killed_store_preserves_its_state() {
    let mut points = 0;
    for point in 1.. {
        let Some(_) = killed_at(point, 0) else { break };
        points += 1;
        for seed in 0..6 {
            let disk = killed_at(point, point * 100 + seed).expect("the work does the same for every seed");
            let shown = in_force(&env(&disk));
            disk.crash();
            assert_eq!(in_force(&env(&disk)), shown, "kill at operation {point}, disk seed {seed}");
        }
    }
    assert!(points > 50, "the work does something: {points}");
}

#[test]
fn power_cut_inside_reopening_a_killed_store_loses_no_file() {
    for point in 1.. {
        let Some(disk) = killed_at(point, 0) else { break };
        let before = disk.operations();
        in_force(&env(&disk));
        for cut in 1..=disk.operations() - before {
            let disk = killed_at(point, point * 100 + cut).expect("the work does the same for every seed");
            disk.crash_at(disk.operations() + cut);
            // The power may fail in a removal whose failure the store does not report.
            let _ = Store::open(&env(&disk), Path::new(DIR), options());
            disk.crash();
            in_force(&env(&disk));
        }
    }
}

#[test]
fn failed_directory_sync_keeps_the_runs_of_a_manifest_that_may_survive() {
    let mut survived = 0;
    for seed in 0..40 {
        let disk = disk(seed);
        let store = Store::open(&env(&disk), Path::new(DIR), options()).unwrap();
        let keyspace = store.keyspace("rows", small_blocks()).unwrap();
        round(&store, keyspace, 1, false).unwrap();
        // Of the two syncs of the directory in a switch, the second follows the rename.
        disk.fail(DiskOp::SyncDir, 1);
        let failed = round(&store, keyspace, 2, false).unwrap_err();
        assert!(failed.to_string().contains("sync the directory of"), "{failed}");
        drop(store);
        disk.crash();
        let found = in_force(&env(&disk));
        assert!((1..=2).contains(&found), "round {found}");
        survived += u64::from(found == 2);
    }
    assert!((1..40).contains(&survived), "the rename is kept on some disks: {survived}");
}
