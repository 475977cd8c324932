//! Exactly once: a power cut at any operation of the disk.

use std::sync::Arc;

use ropewalk::Error;
use ropewalk::engine::Env;
use ropewalk_vfs::{FaultyVfs, ManualClock, SeededRandom};

use crate::{COUNTING, COUNTS, Shop, placed};

fn env(disk: &FaultyVfs) -> Env {
    Env {
        vfs: Arc::new(disk.process()),
        clock: Arc::new(ManualClock::default()),
        random: Arc::new(SeededRandom::new(7)),
    }
}

/// Declares, applies batches, rebuilds, parks an event and changes the version.
fn work(disk: &FaultyVfs) -> Result<(), Error> {
    let mut shop = Shop::open(&env(disk))?;
    let opaque = |error: ropewalk_sql::SqlError| Error::Invalid(error.to_string());
    shop.try_run(COUNTS).map_err(opaque)?;
    shop.try_run(&COUNTING.replace("ON 'Placed'", "ON ERROR PARK ON 'Placed'")).map_err(opaque)?;
    shop.append(&[placed("a"), placed("b"), ropewalk::Event::new("Placed"), placed("a")])?;
    shop.catch_up();
    shop.append(&[placed("c")])?;
    shop.try_run("ALTER PROJECTION counting REBUILD").map_err(opaque)?;
    shop.catch_up();
    shop.append(&[placed("b")])?;
    shop.catch_up();
    Ok(())
}

/// The rows that the events up to a position give.
fn expected(shop: &mut Shop, checkpoint: &str) -> Vec<String> {
    shop.run(&format!(
        "SELECT json->>'kind', count(*) FROM events.shop
            WHERE type = 'Placed' AND json IS NOT NULL AND position <= {checkpoint} GROUP BY 1 ORDER BY 1"
    ))
}

#[test]
fn power_cut_at_any_operation_leaves_each_event_applied_once() {
    let disk = FaultyVfs::new(1);
    work(&disk).unwrap();
    let operations = disk.operations();
    assert!(operations > 30, "{operations}");
    for point in 1..=operations {
        let disk = FaultyVfs::new(point);
        disk.crash_at(point);
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&disk)));
        disk.crash();
        let mut shop = Shop::open(&env(&disk)).unwrap();
        let declared = shop.run("SELECT coalesce(checkpoint, 0) FROM ropewalk_projections");
        if let Some(checkpoint) = declared.first() {
            let rows = expected(&mut shop, checkpoint);
            assert_eq!(shop.counts(), rows, "cut at {point}");
            shop.append(&[placed("d")]).unwrap();
            shop.catch_up();
            let rows = expected(&mut shop, "1000");
            assert_eq!(shop.counts(), rows, "cut at {point}, caught up");
            assert_eq!(shop.state(), "live", "cut at {point}");
        }
        assert!(shop.db.verify().unwrap().violations.is_empty(), "cut at {point}");
    }
}
