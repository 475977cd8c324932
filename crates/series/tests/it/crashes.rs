//! A power cut instead of each operation of the disk: acknowledged commits are there, and no commit in part.

use std::sync::Arc;
use std::time::Duration;

use ropewalk_labels::Labels;
use ropewalk_series::{Downsampling, RetentionRule, Rules, SampleBatch};
use ropewalk_vfs::{Env, FaultyVfs, ManualClock, SeededRandom};

use crate::{Db, labels, matchers};

fn env(disk: &FaultyVfs) -> Env {
    let clock = ManualClock::default();
    clock.advance(Duration::from_secs(2 * 86_400));
    Env { vfs: Arc::new(disk.process()), clock: Arc::new(clock), random: Arc::new(SeededRandom::new(5)) }
}

fn batch(step: i64) -> SampleBatch {
    let mut batch = SampleBatch::new();
    let series: Vec<Labels> = (0..3).map(|i| labels(&format!("m{{i={i},s={}}}", step / 4))).collect();
    for labels in &series {
        batch.push(labels, step, step as f64);
    }
    let times: Vec<i64> = (0..80).map(|i| step * 1000 + i).collect();
    batch.series(&labels("long")).extend(&times, &vec![0.5; times.len()]);
    batch
}

fn thin_out(db: &Db) -> Result<(), ropewalk_series::SeriesError> {
    let thin =
        Downsampling { matchers: matchers("long"), after_ms: 0, step_ms: 40, keep: RetentionRule::Last };
    db.store.set_rules(&Rules { downsampling: vec![thin], ..Rules::default() })?;
    let done = db.store.enforce()?;
    assert_eq!(done.thinned, 5 * 78, "two are left of each eighty");
    Ok(())
}

/// Runs until the power fails; returns the contents after each acknowledged commit.
fn work(db: &Db) -> Option<Vec<String>> {
    let mut states = vec![db.show("")];
    for step in 0..10 {
        let done = match step {
            5 => db.store.delete(&matchers("i=1"), 2, 3).map(|_| ()),
            6 => thin_out(db),
            7 => db.store.delete(&matchers("s=0"), i64::MIN, i64::MAX).map(|_| ()),
            _ => db.store.append(&batch(step)).map(|_| ()),
        };
        let ok = done.is_ok() && (step % 3 != 2 || db.engine.checkpoint().is_ok());
        if done.is_ok() {
            // Without power nothing can be read, and this state is not compared.
            states.push(if ok { db.show("") } else { String::new() });
        }
        if !ok || step == 9 && db.engine.compact().is_err() {
            break;
        }
    }
    Some(states)
}

#[test]
fn a_power_cut_at_every_operation() {
    let disk = FaultyVfs::new(1);
    let states = work(&Db::open(&env(&disk))).unwrap();
    assert_eq!(states.len(), 11);
    let points = disk.operations();
    let mut cuts = 0;
    for point in 1..=points {
        let disk = FaultyVfs::new(point);
        disk.crash_at(point);
        let acknowledged = Db::try_open(&env(&disk)).ok().and_then(|db| work(&db)).map_or(0, |s| s.len() - 1);
        assert!(disk.is_off() || acknowledged == 10);
        cuts += u64::from(disk.is_off());
        disk.crash();
        let db = Db::open(&env(&disk));
        let found = db.show("");
        let expected = states.iter().skip(acknowledged).take(2);
        assert!(
            expected.into_iter().any(|state| *state == found),
            "cut at {point}: after {acknowledged}: {found}"
        );
        assert!(db.engine.verify().unwrap().violations.is_empty());
        db.append(&[("after", 1, 1.0)]);
        db.compact();
        assert_eq!(db.show("after"), "after: 1=1");
    }
    assert!(cuts > 50, "{cuts}");
}
