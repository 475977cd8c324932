//! The hash of all contents, by which nodes of a cluster compare: equal for equal samples, whatever their chunks.

use ropewalk_base::ContentHash;
use ropewalk_engine::ContentsSlice;
use ropewalk_labels::{Bucket, Histogram};
use ropewalk_series::SampleBatch;

use crate::{Db, labels, matchers};

/// Milliseconds of a day: a partition.
const DAY: i64 = 86_400_000;

/// All contents, in slices of so many bytes.
fn slices(db: &Db, bytes: u64) -> Vec<ContentsSlice> {
    let snapshot = db.engine.snapshot();
    let mut slices = vec![db.engine.hash_slice(&snapshot, &[], bytes).unwrap()];
    while let Some(start) = slices.last().and_then(|slice| slice.next.clone()) {
        slices.push(db.engine.hash_slice(&snapshot, &start, bytes).unwrap());
    }
    slices
}

/// The hash of all contents, in slices of so many bytes.
fn contents(db: &Db, bytes: u64) -> ContentHash {
    slices(db, bytes).iter().fold(ContentHash::default(), |sum, slice| sum.plus(slice.hash))
}

/// One commit of a sequence that follows from its number.
fn change(db: &Db, round: i64) {
    let mut batch = SampleBatch::new();
    for series in 0..5 {
        let mut group = batch.series_bytes(labels(&format!("m{{s={series}}}")).as_bytes());
        // Out of order, with duplicates, over forty days.
        for sample in 0..8 {
            let time = (round * 7 + sample * 13) % 40 * DAY + (round * 31 + sample) % 500;
            group.push(time, (round * sample) as f64);
        }
        if round % 9 == series {
            let bucket = Bucket { index: 1, count: round as f64 };
            let histogram = Histogram { positive: vec![bucket], ..Histogram::default() };
            group.push_histogram(round * DAY / 10, &histogram, round).push_started(round, 1.0, -5);
        }
    }
    db.store.append(&batch).unwrap();
    if round % 20 == 19 {
        db.store.delete(&matchers("s=3"), 0, round * DAY / 4).unwrap();
    }
    if round == 50 {
        db.store.delete(&matchers("s=4"), i64::MIN, i64::MAX).unwrap();
    }
}

#[test]
fn hash_of_samples_does_not_depend_on_chunks_and_finds_one_that_differs() {
    let (never, often) = (Db::memory(), Db::memory());
    for round in 0..120 {
        change(&never, round);
        change(&often, round);
        if round % 7 == 0 {
            often.checkpoint();
        }
        if round % 40 == 20 {
            often.compact();
        }
        if round % 30 == 29 {
            let wanted = contents(&never, u64::MAX);
            for bytes in [1, 2_000, u64::MAX] {
                assert_eq!(contents(&often, bytes), wanted, "round {round}, slices of {bytes} bytes");
                assert_eq!(slices(&often, bytes), slices(&never, bytes), "round {round}: they end equally");
            }
        }
    }
    never.append(&[("m{s=0}", 5, 1.5)]);
    often.append(&[("m{s=0}", 5, 1.25)]);
    assert_ne!(contents(&never, u64::MAX), contents(&often, u64::MAX));
    often.append(&[("m{s=0}", 5, 1.5)]);
    assert_eq!(contents(&never, u64::MAX), contents(&often, u64::MAX), "the later one counts");
}

#[test]
fn slices_end_within_a_series_and_reach_both_ends_of_time() {
    let (never, often) = (Db::memory(), Db::memory());
    let mut times: Vec<i64> = (0..50).map(|number| number * DAY / 2 + 1).collect();
    times.extend([i64::MIN, i64::MIN + DAY, i64::MAX - DAY, i64::MAX]);
    for (number, time) in (0..).zip(times) {
        for db in [&never, &often] {
            db.append(&[("m", time, f64::from(number))]);
        }
        if number % 10 == 0 {
            often.checkpoint();
        }
    }
    // Two samples on each of 25 days.
    let all = slices(&often, 1);
    assert!(all.len() > 25 + 4, "{} slices", all.len());
    assert_eq!(all, slices(&never, 1));
    assert_eq!(contents(&often, 1), contents(&never, u64::MAX));
}
