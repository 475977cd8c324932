//! Samples that trickle in end in long chunks, so that a sample takes little space.

use ropewalk_series::SampleBatch;
use ropewalk_vfs::Env;

use crate::{Db, labels};

#[test]
fn trickling_samples_end_in_long_chunks() {
    let env = Env::memory();
    let db = Db::open(&env);
    let all: Vec<_> = (0..5).map(|i| labels(&format!("m{{i={i}}}"))).collect();
    let mut batch = SampleBatch::new();
    for step in 0..600_i64 {
        batch.clear();
        for labels in &all {
            // Every ninth comes late.
            let at = if step % 9 == 8 { step - 5 } else { step };
            batch.push(labels, at * 15_000 + step % 9 / 8, at as f64);
        }
        db.store.append(&batch).unwrap();
        if step % 3 == 2 {
            db.checkpoint();
        }
    }
    let before = db.show("");
    db.compact();
    assert_eq!(db.show(""), before);
    let entries = || {
        let stats = db.engine.stats();
        stats.store.keyspaces.iter().filter(|k| k.name == "series").map(|k| k.entries).sum::<u64>()
    };
    // 600 samples in 200 flushes: a handful of chunks for each series.
    assert!(entries() < 5 * 12, "{} chunks", entries());
    assert!(db.engine.verify().unwrap().violations.is_empty());
    let written = db.engine.stats().store.keyspaces.iter().find(|k| k.name == "series").unwrap().raw_bytes;
    assert!(written < 3000 * 3, "{written} bytes for 3000 samples");
}

#[test]
fn a_checkpoint_of_nothing_changes_nothing() {
    let db = Db::memory();
    db.checkpoint();
    db.compact();
    db.append(&[("a", 1, 1.0)]);
    db.checkpoint();
    db.checkpoint();
    assert_eq!(db.show(""), "a: 1=1");
}
