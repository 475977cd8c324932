//! Bugs of OmenDB, one test for each row of the list that concerns the library. Rows 2 to 5 and 12
//! (rollback, own reads, isolation, uniqueness) are in the scripts and `concurrency`, as is row 14.

use std::sync::Arc;

use ropewalk_engine::{EngineOptions, Isolation};
use ropewalk_tables::{IndexDef, KeyRange, TableDef, Value};
use ropewalk_vfs::{Env, FaultyVfs};

use crate::{Db, id, int, people, person, shown};

/// Row 3: a transaction is private to its client.
#[test]
fn transaction_is_private_to_its_session() {
    let db = Db::memory();
    let table = db.create(people());
    let mut ann = db.begin();
    ann.t().insert_row(&table, &person(1, "Ann", 1)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (db, table) = (&db, &table);
            scope.spawn(move || db.run(|t| t.insert_row(table, &person(100 + thread, "x", 0))).unwrap());
        }
    });
    assert_eq!(db.lines(&table).len(), 8, "others commit by themselves");
    drop(ann);
    assert_eq!(db.lines(&table).len(), 8);
}

/// Row 4: own inserts, updates and deletes are visible by keys, ranges, counts and indexes, at every level.
#[test]
fn own_writes_are_seen_everywhere() {
    for level in [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted] {
        let db = Db::memory();
        let table = db.create(people().index(IndexDef::on(["age"])));
        db.run(|t| (0..3).try_for_each(|i| t.insert_row(&table, &person(i, "x", 10 * i)).map(|_| ())))
            .unwrap();
        let mut tx = db.begin_with(level);
        let mut t = tx.t();
        t.insert_row(&table, &person(3, "new", 15)).unwrap();
        t.update(&table, &id(0), &[("age", 99_i64.into())]).unwrap();
        t.delete(&table, &id(1)).unwrap();
        assert_eq!(
            shown(&t.collect(&table, &KeyRange::all(), true, 9).unwrap()),
            ["3 new 15", "2 x 20", "0 x 99"]
        );
        let ages =
            t.collect_index(&table, "people_age_idx", &KeyRange::all().from(id(15)), false, 9).unwrap();
        assert_eq!(shown(&ages), ["3 new 15", "2 x 20", "0 x 99"]);
        assert_eq!(t.count(&table, &KeyRange::all()).unwrap(), 3);
        assert!(t.get(&table, &id(1)).unwrap().is_none());
    }
}

/// Rows 6 and 7: opening reads no row, and a hit in a compacted table touches one block of one run.
#[test]
fn opening_reads_no_rows() {
    let env = Env::memory();
    let db = Db::open(&env, EngineOptions::default());
    let table = db.create(people());
    for chunk in 0..20 {
        db.run(|t| {
            (0..1000)
                .try_for_each(|i| t.insert_row(&table, &person(chunk * 1000 + i, "somebody", i)).map(|_| ()))
        })
        .unwrap();
    }
    db.engine.compact().unwrap();
    drop(db);
    let db = Db::open(&env, EngineOptions::default());
    assert_eq!(db.engine.recovery().records, 0, "nothing is replayed after a checkpoint");
    let table = db.tables.table("people").unwrap();
    let snapshot = db.engine.snapshot();
    let mut point = db.tables.point(&table);
    for key in [0, 7777, 19_999] {
        assert_eq!(point.get(&snapshot, &id(key)).unwrap().unwrap().row().get(0).unwrap(), Value::Int8(key));
    }
    assert!(point.get(&snapshot, &id(20_000)).unwrap().is_none());
}

/// Row 8: negative keys come before positive ones, and a range across zero is complete.
#[test]
fn ranges_cross_zero() {
    let db = Db::memory();
    let table = db.create(TableDef::new("t").column(int("id")).primary_key(["id"]));
    let keys = [i64::MIN, i64::MIN + 1, -1000, -1, 0, 1, 1000, i64::MAX];
    db.run(|t| keys.iter().rev().try_for_each(|key| t.insert_row(&table, &id(*key)).map(|_| ()))).unwrap();
    let snapshot = db.engine.snapshot();
    let mut at = db.tables.at(&snapshot);
    let mut ids = |range: KeyRange<'_>| {
        let rows = at.collect(&table, &range, false, 99).unwrap();
        rows.iter().map(|row| row.get(0).unwrap().as_integer().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(ids(KeyRange::all()), keys);
    assert_eq!(ids(KeyRange::all().from(id(-1000)).to(id(1))), [-1000, -1, 0, 1]);
}

/// Row 9: a scan without matches reads nothing; a short one counts as read only the part it scanned.
#[test]
fn an_empty_range_reads_nothing_else() {
    let db = Db::memory();
    let table = db.create(people());
    db.run(|t| (0..100).try_for_each(|i| t.insert_row(&table, &person(i * 10, "x", 0)).map(|_| ()))).unwrap();
    let mut tx = db.begin();
    assert_eq!(tx.t().count(&table, &KeyRange::all().from(id(11)).to(id(19))).unwrap(), 0);
    assert_eq!(tx.t().collect(&table, &KeyRange::all().from(id(500)), false, 2).unwrap().len(), 2);
    tx.t().insert_row(&table, &person(-1, "mine", 0)).unwrap();
    // Outside the empty range, and after the two rows that were read.
    for key in [20, 520] {
        db.run(|t| t.update(&table, &id(key), &[("age", 1_i64.into())])).unwrap();
    }
    tx.commit().unwrap();
}

/// Row 10: count, scan and index agree after duplicates, delete and insert again, reopening and a crash.
#[test]
fn count_scan_and_index_agree() {
    let env = Env::memory();
    let mut db = Db::open(&env, EngineOptions::default());
    db.create(people().index(IndexDef::on(["age"])));
    for round in 0..5_i64 {
        let table = db.tables.table("people").unwrap();
        for i in 0..40 {
            let _ = db.run(|t| t.insert_row(&table, &person(i % 30, "x", round)));
            let _ = db.run(|t| t.delete(&table, &id((i * 7) % 30)));
            db.run(|t| t.upsert(&table, &[("id", (i % 11).into()), ("age", round.into())])).unwrap();
        }
        if round % 2 == 0 {
            db.engine.checkpoint().unwrap();
        }
        drop(db);
        db = Db::open(&env, EngineOptions::default());
        let table = db.tables.table("people").unwrap();
        let snapshot = db.engine.snapshot();
        let mut at = db.tables.at(&snapshot);
        let count = at.count(&table, &KeyRange::all()).unwrap();
        assert_eq!(at.collect(&table, &KeyRange::all(), true, 999).unwrap().len() as u64, count);
        let indexed = at.collect_index(&table, "people_age_idx", &KeyRange::all(), false, 999).unwrap();
        assert_eq!(indexed.len() as u64, count);
        db.verify();
    }
}

/// Row 11: acknowledged writes survive the loss of all bytes that were not synced.
#[test]
fn an_acknowledged_row_survives_the_loss_of_unsynced_bytes() {
    for seed in 0..20 {
        let disk = FaultyVfs::new(seed);
        let open = || Db::manual(&Env { vfs: Arc::new(disk.process()), ..Env::memory() });
        let db = open();
        let table = db.create(people().index(IndexDef::on(["age"])));
        for i in 0..10 {
            db.run(|t| t.insert_row(&table, &person(i, "x", i))).unwrap();
        }
        // Never committed: it must not reappear.
        let mut lost = db.begin();
        lost.t().insert_row(&table, &person(77, "lost", 0)).unwrap();
        disk.crash();
        drop(lost);
        drop(db);
        let db = open();
        let table = db.tables.table("people").unwrap();
        assert_eq!(db.lines(&table).len(), 10);
        db.verify();
    }
}

/// With definitions, writes and an index build in progress, a power cut at every step preserves transaction
/// atomicity.
#[test]
fn crash_at_any_step_preserves_transaction_atomicity() {
    let steps = |disk: &FaultyVfs| -> Result<(), Box<dyn std::error::Error>> {
        let env = Env { vfs: Arc::new(disk.process()), ..Env::memory() };
        let db = Db::try_open(&env)?;
        db.run(|t| t.create_table(people()))?;
        let table = db.tables.table("people")?;
        db.run(|t| (0..20).try_for_each(|i| t.insert_row(&table, &person(i, "x", i)).map(|_| ())))?;
        db.run(|t| t.add_column("people", int("extra")))?;
        db.tables.create_index("people", IndexDef::on(["age"]).named("ages"))?;
        db.run(|t| t.update(&table, &id(3), &[("age", 50_i64.into()), ("id", 300_i64.into())]))?;
        db.engine.checkpoint()?;
        db.run(|t| t.truncate("people", false))?;
        db.run(|t| t.insert(&table, &[("id", 1_i64.into())]))?;
        db.run(|t| t.drop_table("people"))?;
        Ok(())
    };
    let whole = FaultyVfs::new(1);
    steps(&whole).unwrap();
    for operation in 0..whole.operations() {
        let disk = FaultyVfs::new(operation);
        disk.crash_at(operation);
        let _ = steps(&disk);
        disk.crash();
        let db = Db::manual(&Env { vfs: Arc::new(disk.process()), ..Env::memory() });
        db.verify();
        if let Ok(table) = db.tables.table("people") {
            let count = db.lines(&table).len();
            assert!([0, 1, 20].contains(&count), "{count} rows after a crash at operation {operation}");
        }
        // An interrupted index build is completed, or the index was never declared.
        if db.tables.table("people").is_ok() {
            let again = db.tables.create_index("people", IndexDef::on(["age"]).named("ages"));
            assert!(
                again.is_ok() || matches!(again, Err(ropewalk_tables::TablesError::Duplicate { .. })),
                "{again:?}"
            );
            db.verify();
        }
    }
}
