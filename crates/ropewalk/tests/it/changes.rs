//! The change feed: every commit, every model, in order, resumable.

use core::time::Duration;

use ropewalk::changes::ChangedPart;
use ropewalk::engine::KeyspaceOptions;
use ropewalk::events::Tracking;
use ropewalk::hooks::KvWrite;
use ropewalk::series::{Labels, SampleBatch};
use ropewalk::tables::{ColumnDef, OwnedRow, TableDef, Type, Value};
use ropewalk::{AppendOptions, Database, Event, Seq};

const LONG: Duration = Duration::from_secs(20);

#[test]
fn a_commit_over_two_models_arrives_whole() {
    let db = Database::in_memory().unwrap();
    let keys = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    let store = db.events("s").unwrap();
    store.append(&[Event::new("First")], None).unwrap();
    let mut tx = db.begin();
    tx.put(keys, b"balance", b"90");
    let tracking = Some(Tracking { source: "up".into(), position: 7 });
    tx.append(&store, &[Event::new("Paid").tag("order:1")], AppendOptions { tracking, ..Default::default() })
        .unwrap();
    tx.commit().unwrap();
    let mut feed = db.changes(Seq(1)).unwrap();
    let definition = feed.next(LONG).unwrap().unwrap();
    let models: Vec<_> = definition.parts.iter().map(ChangedPart::model).collect();
    assert_eq!((definition.seq, models), (Seq(1), vec![Some("keyspaces")]));
    assert_eq!(feed.next(LONG).unwrap().unwrap().seq, Seq(2), "the first event");
    let change = feed.next(LONG).unwrap().unwrap();
    assert_eq!((change.seq, change.parts.len()), (Seq(3), 2));
    for part in &change.parts {
        match part {
            ChangedPart::Events { store, append } => {
                assert_eq!((store.as_str(), append.tracking), ("s", Some(("up", 7))));
                let (position, body) = append.events().next().unwrap().unwrap();
                assert_eq!((position.0, body.event_type()), (2, "Paid"));
            }
            ChangedPart::Keys(writes) => assert_eq!(writes, &[(keys, KvWrite::Put(b"balance", b"90"))]),
            ChangedPart::Other(..) => panic!("no such model"),
        }
    }
    assert_eq!(feed.next_seq(), Seq(4));
    assert!(feed.next(Duration::ZERO).unwrap().is_none());
}

#[test]
fn a_follower_sees_live_commits() {
    let db = Database::in_memory().unwrap();
    let mut feed = db.changes(Seq(1)).unwrap();
    std::thread::scope(|scope| {
        let writer = db.clone();
        scope.spawn(move || {
            let store = writer.events("s").unwrap();
            for _ in 0..200 {
                store.append(&[Event::new("E")], None).unwrap();
            }
        });
        for seq in 1..=200 {
            let change = loop {
                if let Some(change) = feed.next(LONG).unwrap() {
                    break change.seq;
                }
            };
            assert_eq!(change, Seq(seq));
        }
    });
}

#[test]
fn rows_and_samples_of_a_commit_are_decoded_with_the_rows_before_it() {
    let db = Database::in_memory().unwrap();
    let series = db.series("metrics").unwrap();
    let table = TableDef::new("stock")
        .column(ColumnDef::new("sku", Type::TEXT))
        .column(ColumnDef::new("n", Type::INT8));
    let mut tx = db.begin();
    let stock = tx.tables().create_table(table.primary_key(["sku"]).unique(["n"])).unwrap();
    for (sku, n) in [("hook", 1), ("rope", 2)] {
        tx.tables().insert_row(&stock, &[sku.into(), Value::Int8(n)]).unwrap();
    }
    tx.commit().unwrap();
    let seq = db.seq().next();
    let mut tx = db.begin();
    tx.tables().update(&stock, &["rope".into()], &[("n", Value::Int8(7))]).unwrap();
    tx.tables().delete(&stock, &["hook".into()]).unwrap();
    let mut samples = SampleBatch::new();
    let up = Labels::new([("__name__", "up"), ("job", "api")]).unwrap();
    samples.series(&up).push(1_000, 1.0).push(2_000, 0.5);
    tx.append_samples(&series, &samples).unwrap();
    tx.commit().unwrap();

    let mut feed = db.changes(seq).unwrap();
    let change = feed.next(LONG).unwrap().unwrap();
    let bytes_max = 1 << 20;
    let changed = db.changed_rows(&change, 10, bytes_max).unwrap();
    let number = |row: &Option<OwnedRow>| row.as_ref().map(|row| row.column("n").unwrap().to_string());
    let mut rows: Vec<_> = changed
        .rows
        .iter()
        .map(|row| (row.table.as_str(), number(&row.before), number(&row.after)))
        .collect();
    rows.sort();
    let (one, two, seven) = (Some("1".to_owned()), Some("2".to_owned()), Some("7".to_owned()));
    assert_eq!(rows, [("stock", one, None), ("stock", two, seven)]);
    assert!(changed.knows_before && !changed.is_truncated);
    for (rows_max, bytes_max) in [(1, bytes_max), (10, 1)] {
        let one = db.changed_rows(&change, rows_max, bytes_max).unwrap();
        assert!(one.rows.len() == 1 && one.is_truncated);
    }

    let changed = db.changed_samples(&change, 10, 1, bytes_max).unwrap();
    let [found] = changed.series.as_slice() else { panic!("one series: {changed:?}") };
    assert_eq!((found.store.as_str(), &found.labels, found.count), ("metrics", &up, 2));
    assert_eq!(found.samples, [(1_000, 1.0)]);
    assert!(db.changed_samples(&change, 0, 1, bytes_max).unwrap().is_truncated);
}
