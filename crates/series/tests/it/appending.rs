//! Effects of an append, read at once, after a flush, and after reopening.

use ropewalk_labels::{Labels, STALE_BITS, Samples};
use ropewalk_series::{Duplicates, SampleBatch, SeriesError, SeriesOptions};
use ropewalk_vfs::Env;

use crate::{Db, labels, matchers};

#[test]
fn samples_in_any_order_are_read_in_order() {
    let db = Db::memory();
    assert_eq!(db.show("up"), "");
    db.append(&[("up{job=a}", 30, 3.0), ("up{job=b}", 5, 0.5), ("up{job=a}", 10, 1.0)]);
    let expected = "up{job=\"a\"}: 10=1 20=2 30=3\nup{job=\"b\"}: 5=0.5";
    db.append(&[("up{job=a}", 20, 2.0)]);
    assert_eq!(db.show("up"), expected);
    db.checkpoint();
    assert_eq!(db.show("up"), expected);
    db.append(&[("up{job=a}", 15, 1.5)]);
    assert_eq!(db.show("up job=a"), "up{job=\"a\"}: 10=1 15=1.5 20=2 30=3");
}

#[test]
fn long_groups_of_one_series_are_read_back() {
    let env = Env::memory();
    let db = Db::open(&env);
    // Groups of a series that has several do not travel as chunks, so each arrives whole.
    let mut batch = SampleBatch::new();
    for first in [0, 10_000] {
        let times: Vec<i64> = (first..first + 10_000).collect();
        let values: Vec<f64> = times.iter().map(|time| *time as f64).collect();
        batch.series(&labels("m")).extend(&times, &values);
    }
    assert_eq!(db.store.append(&batch).unwrap().samples, 20_000);
    let expected: Vec<(i64, u64)> = (0..20_000).map(|time| (time, (time as f64).to_bits())).collect();
    let found = |db: &Db| {
        let snapshot = db.engine.snapshot();
        let at = db.store.at(&snapshot);
        let mut selection = at.select(&matchers("m"), i64::MIN, i64::MAX).unwrap();
        let mut samples = Samples::default();
        selection.next().unwrap();
        selection.samples(&mut samples).unwrap();
        samples.bits().collect::<Vec<_>>()
    };
    assert!(found(&db) == expected);
    drop(db);
    let db = Db::open(&env);
    assert!(found(&db) == expected);
    db.checkpoint();
    assert!(found(&db) == expected);
}

#[test]
fn append_reports_written_samples_and_created_series() {
    let db = Db::memory();
    let mut batch = SampleBatch::new();
    batch.series(&labels("a")).push(1, 1.0).push(2, 2.0);
    batch.series(&labels("b")).extend(&[1, 2, 3], &[1.0, 1.0, 1.0]);
    let first = db.store.append(&batch).unwrap();
    assert_eq!((first.samples, first.created), (5, 2));
    let again = db.store.append(&batch).unwrap();
    assert_eq!((again.samples, again.created), (5, 0));
    assert!(again.seq > first.seq);
    let id = db.store.resolve(&labels("b")).unwrap();
    batch.clear();
    batch.series_id(id).push(9, 9.0);
    let pending = db.store.submit(&batch, Default::default()).unwrap();
    db.engine.drive();
    assert_eq!(pending.wait().unwrap().created, 0);
    assert_eq!(db.show("b"), "b: 1=1 2=1 3=1 9=9");
}

#[test]
fn a_series_created_by_two_batches_at_once_is_one() {
    let db = Db::memory();
    let mut batch = SampleBatch::new();
    let pending: Vec<_> = (0..4)
        .map(|i| {
            batch.clear();
            batch.push(&labels("new{job=a}"), i, i as f64);
            batch.push(&labels(&format!("other{i}")), i, 0.0);
            db.store.submit(&batch, Default::default()).unwrap()
        })
        .collect();
    db.engine.drive();
    let created: Vec<u64> = pending.into_iter().map(|p| p.wait().unwrap().created).collect();
    assert_eq!(created, [2, 1, 1, 1]);
    assert_eq!(db.show("new"), "new{job=\"a\"}: 0=0 1=1 2=2 3=3");
    // The same where there is a store already.
    batch.clear();
    batch.push(&labels("new{job=b}"), 9, 9.0);
    let made = db.store.submit(&batch, Default::default()).unwrap();
    let again = db.store.submit(&batch, Default::default()).unwrap();
    db.engine.drive();
    assert_eq!((made.wait().unwrap().created, again.wait().unwrap().created), (1, 0));
    assert_eq!(db.show("new"), "new{job=\"a\"}: 0=0 1=1 2=2 3=3\nnew{job=\"b\"}: 9=9");
}

#[test]
fn append_preserves_every_bit_of_a_value() {
    let env = Env::memory();
    let bits = [
        STALE_BITS,
        f64::NAN.to_bits(),
        0xfff8_0000_dead_beef,
        f64::INFINITY.to_bits(),
        f64::NEG_INFINITY.to_bits(),
        (-0.0_f64).to_bits(),
        0,
        1,
        f64::MIN_POSITIVE.to_bits(),
        f64::MAX.to_bits(),
        0.1_f64.to_bits(),
        9_007_199_254_740_993_f64.to_bits(),
    ];
    let times = [i64::MIN, i64::MIN + 1, -86_400_001, -86_400_000, -1, 0, 1, 86_399_999, 86_400_000];
    let mut db = Db::open(&env);
    let mut batch = SampleBatch::new();
    let mut all = Vec::new();
    for (i, time) in times.iter().chain(&[i64::MAX - 1, i64::MAX]).enumerate() {
        batch.series(&labels("wide")).push(*time, f64::from_bits(bits[i]));
        all.push((*time, bits[i]));
    }
    db.store.append(&batch).unwrap();
    for _ in 0..3 {
        let snapshot = db.engine.snapshot();
        let at = db.store.at(&snapshot);
        let mut selection = at.select(&matchers("wide"), i64::MIN, i64::MAX).unwrap();
        let mut samples = Samples::default();
        selection.next().unwrap();
        selection.samples(&mut samples).unwrap();
        assert_eq!(samples.bits().collect::<Vec<_>>(), all);
        db.checkpoint();
        drop(selection);
        drop(snapshot);
        drop(db);
        db = Db::open(&env);
    }
}

#[test]
fn long_groups_and_short_ones_mix() {
    let db = Db::memory();
    let times: Vec<i64> = (0..5000).map(|i| i * 15_000).collect();
    let values: Vec<f64> = (0..5000).map(|i| f64::from(i) / 8.0).collect();
    let mut batch = SampleBatch::new();
    batch.series(&labels("long")).extend(&times, &values);
    batch.series(&labels("short")).push(7, 7.0);
    db.store.append(&batch).unwrap();
    // A correction in the middle, and one long group after a short one of the same series.
    batch.clear();
    batch.series(&labels("long")).push(15_000, -1.0);
    batch.series(&labels("long")).extend(&times[2..100], &values[102..200]);
    db.store.append(&batch).unwrap();
    let check = || {
        let snapshot = db.engine.snapshot();
        let at = db.store.at(&snapshot);
        let mut selection = at.select(&matchers("long"), 0, i64::MAX).unwrap();
        selection.next().unwrap();
        let mut samples = Samples::default();
        selection.samples(&mut samples).unwrap();
        assert_eq!(samples.times_ms, times);
        let mut expected = values.clone();
        expected[1] = -1.0;
        expected[2..100].copy_from_slice(&values[102..200]);
        assert_eq!(samples.values, expected);
        let part = db.show_at(&snapshot, "long", 15_000, 30_000);
        assert_eq!(part, "long: 15000=-1 30000=12.75");
    };
    check();
    db.checkpoint();
    check();
    db.compact();
    check();
    assert!(db.engine.verify().unwrap().violations.is_empty());
}

#[test]
fn duplicates_resolve_to_last_first_or_error() {
    let both = |duplicates: Duplicates| {
        let db = Db::memory();
        db.store.configure(SeriesOptions { duplicates, ..Default::default() }).unwrap();
        db.append(&[("m", 1, 1.0), ("m", 2, 2.0), ("m", 2, 2.5)]);
        db.append(&[("m", 1, 1.5)]);
        let before = db.show("m");
        db.checkpoint();
        assert_eq!(db.show("m"), before);
        db.append(&[("m", 2, 2.75)]);
        let after = db.show("m");
        db.compact();
        assert_eq!(db.show("m"), after);
        after
    };
    assert_eq!(both(Duplicates::KeepLast), "m: 1=1.5 2=2.75");
    assert_eq!(both(Duplicates::KeepFirst), "m: 1=1 2=2");
    let db = Db::memory();
    let options = SeriesOptions { duplicates: Duplicates::Refuse, ..Default::default() };
    db.store.configure(options).unwrap();
    db.append(&[("m{job=a}", 1, 1.0), ("m{job=a}", 2, 2.0)]);
    let refused = |time, value| {
        let mut batch = SampleBatch::new();
        batch.push(&labels("m{job=a}"), time, value);
        db.store.append(&batch)
    };
    refused(1, 1.0).unwrap();
    for _ in 0..2 {
        let error = refused(1, 1.5).unwrap_err();
        assert!(matches!(error, SeriesError::DuplicateSample { time_ms: 1, .. }), "{error}");
        assert!(error.to_string().contains("m{job=\"a\"}"), "{error}");
        db.checkpoint();
    }
    assert_eq!(db.show("m"), "m{job=\"a\"}: 1=1 2=2");
    assert_eq!(db.store.options(), options);
}

/// Two nodes flush at different times, and so does one node before and after a crash.
#[test]
fn changed_treatment_of_duplicates_counts_from_its_commit_wherever_flushes_fall() {
    const STEPS: u32 = 7;
    for flushes in 0..1_u32 << STEPS {
        let env = Env::memory();
        let db = Db::open(&env);
        let configure = |duplicates: Duplicates| {
            db.store.configure(SeriesOptions { duplicates, ..db.store.options() }).unwrap();
        };
        let step = |step: u32| match step {
            0 => db.append(&[("m", 1, 1.0), ("m", 2, 1.0), ("m", 3, 1.0)]),
            1 => db.append(&[("m", 1, 2.0), ("m", 5, 2.0)]),
            2 => configure(Duplicates::KeepFirst),
            3 => db.append(&[("m", 1, 3.0), ("m", 2, 3.0), ("m", 4, 3.0)]),
            4 => db.append(&[("m", 4, 4.0)]),
            5 => configure(Duplicates::KeepLast),
            _ => db.append(&[("m", 2, 5.0), ("m", 5, 5.0)]),
        };
        let mut before = None;
        for number in 0..STEPS {
            step(number);
            if flushes & 1 << number != 0 {
                db.checkpoint();
            }
            if number == 3 {
                before = Some(db.engine.snapshot());
            }
        }
        let earlier = || {
            let mut snapshot = before.clone().unwrap();
            snapshot.refresh_sources();
            db.show_at(&snapshot, "m", i64::MIN, i64::MAX)
        };
        let shown = "m: 1=2 2=5 3=1 4=3 5=5";
        for _ in 0..2 {
            assert_eq!(db.show("m"), shown, "flushes {flushes:b}");
            assert_eq!(earlier(), "m: 1=2 2=1 3=1 4=3 5=2", "flushes {flushes:b}");
            db.compact();
        }
        // A decision stays, also where the deciding commits are in one chunk with later ones.
        db.append(&[("m", 6, 6.0)]);
        db.checkpoint();
        drop(before);
        drop(db);
        let db = Db::open(&env);
        assert_eq!(db.show("m"), format!("{shown} 6=6"), "flushes {flushes:b}");
        db.append(&[("m", 1, 7.0)]);
        assert!(db.show("m").starts_with("m: 1=7 "), "the reopened store keeps the last");
        assert!(db.engine.verify().unwrap().violations.is_empty());
    }
}

#[test]
fn stores_are_independent() {
    let env = Env::memory();
    let db = Db::open(&env);
    let other = ropewalk_series::SeriesStore::new(db.engine.clone(), db.model.clone(), "other").unwrap();
    db.append(&[("m", 1, 1.0)]);
    let mut batch = SampleBatch::new();
    batch.push(&labels("m"), 1, 2.0);
    other.append(&batch).unwrap();
    db.checkpoint();
    drop((db, other));
    let db = Db::open(&env);
    assert_eq!(db.show("m"), "m: 1=1");
    assert_eq!(db.model.stores(), ["main", "other"]);
}

#[test]
fn ids_survive_reopening_and_are_never_reused() {
    let env = Env::memory();
    let db = Db::open(&env);
    db.append(&[("a", 1, 1.0), ("b", 1, 1.0), ("c", 1, 1.0)]);
    let ids = |db: &Db| ["a", "b", "c"].map(|l| db.store.resolve(&labels(l)));
    let before = ids(&db);
    db.store.delete(&matchers("c"), i64::MIN, i64::MAX).unwrap();
    db.checkpoint();
    drop(db);
    let db = Db::open(&env);
    assert_eq!(ids(&db), [before[0], before[1], None]);
    db.append(&[("c", 2, 2.0)]);
    assert!(ids(&db)[2] > before[2]);
    assert_eq!(db.show(""), "a: 1=1\nb: 1=1\nc: 2=2");
}

#[test]
fn the_log_is_compact() {
    let db = Db::memory();
    let series: Vec<Labels> = (0..100).map(|i| labels(&format!("m{{pod=pod-{i}}}"))).collect();
    let mut batch = SampleBatch::new();
    let mut append = |step: i64| {
        batch.clear();
        for (i, labels) in series.iter().enumerate() {
            batch.push(labels, step * 15_000, (step * 100 + i as i64) as f64);
        }
        db.store.append(&batch).unwrap();
    };
    append(0);
    let before = db.engine.stats().log.appended_bytes;
    (1..=10).for_each(&mut append);
    let bytes = db.engine.stats().log.appended_bytes - before;
    assert!(bytes < 10 * 100 * 8, "{bytes} bytes for 1000 samples");
}
