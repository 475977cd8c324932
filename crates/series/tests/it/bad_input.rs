//! Refused input, its error texts, and that nothing of it is written.

use ropewalk_labels::{LabelError, Labels};
use ropewalk_series::{SampleBatch, SeriesError, SeriesId, SeriesOptions, SeriesStore};

use crate::{Db, labels};

#[test]
fn invalid_labels_are_refused() {
    let db = Db::memory();
    let refused = |bytes: &[u8]| {
        let mut batch = SampleBatch::new();
        batch.push(&labels("good"), 1, 1.0);
        batch.series_bytes(bytes).push(1, 1.0);
        match db.store.append(&batch) {
            Err(SeriesError::Label(LabelError::InvalidLabels { what, .. })) => what,
            other => panic!("{other:?}"),
        }
    };
    assert!(refused(b"").contains("at least one"));
    assert!(refused(b"\x01b\x011\x01a\x011").contains("sorted"));
    assert!(refused(b"\x01a\x011\x01a\x012").contains("twice"));
    assert!(refused(b"\x01a\x02\xff\xff").contains("UTF-8"));
    assert!(refused(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01").contains("name"));
    assert_eq!(db.show(""), "");
}

#[test]
fn a_limit_on_series() {
    let db = Db::memory();
    db.store.configure(SeriesOptions { series_max: 2, ..Default::default() }).unwrap();
    db.append(&[("a", 1, 1.0)]);
    let mut batch = SampleBatch::new();
    batch.push(&labels("a"), 2, 1.0);
    batch.push(&labels("b"), 2, 1.0);
    batch.push(&labels("c{x=1}"), 2, 1.0);
    let error = db.store.append(&batch).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the batch has 2 new series, the store \"main\" holds 1 of at most 2; first new one: b"
    );
    assert_eq!(db.show(""), "a: 1=1");
    db.append(&[("a", 2, 1.0), ("b", 2, 1.0)]);
    assert_eq!(db.store.at(&db.engine.snapshot()).count(&[]), 2);
}

#[test]
fn unknown_series_ids_are_refused() {
    let db = Db::memory();
    let mut batch = SampleBatch::new();
    batch.series_id(SeriesId(7)).push(1, 1.0);
    assert!(matches!(db.store.append(&batch), Err(SeriesError::UnknownSeries { .. })));
    db.append(&[("a", 1, 1.0)]);
    for id in [0, 2, u32::MAX] {
        batch.clear();
        batch.series_id(SeriesId(id)).push(1, 1.0);
        assert!(matches!(db.store.append(&batch), Err(SeriesError::UnknownSeries { .. })));
    }
}

#[test]
fn invalid_store_names_are_refused() {
    let db = Db::memory();
    for name in ["", "a\nb", &"x".repeat(256)] {
        let store = SeriesStore::new(db.engine.clone(), db.model.clone(), name);
        assert!(matches!(store.map(|_| ()), Err(SeriesError::InvalidName { .. })));
    }
}

#[test]
fn a_batch_over_the_record_limit() {
    let db = Db::memory();
    let mut batch = SampleBatch::new();
    let value = "x".repeat(60_000);
    for i in 0..1200 {
        let labels = Labels::new([("id", i.to_string()), ("long", value.clone())]).unwrap();
        batch.push(&labels, 1, 1.0);
    }
    let error = db.store.append(&batch).unwrap_err();
    assert!(error.to_string().contains("exceeds the limit"), "{error}");
    assert_eq!(db.show(""), "");
}

#[test]
fn an_empty_batch_is_fine() {
    let db = Db::memory();
    assert_eq!(db.store.append(&SampleBatch::new()).unwrap().samples, 0);
    let mut batch = SampleBatch::new();
    let _ = batch.series(&labels("alone"));
    assert_eq!(db.store.append(&batch).unwrap().created, 1);
    assert_eq!(db.store.at(&db.engine.snapshot()).count(&[]), 1);
}
