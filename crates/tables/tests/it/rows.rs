//! Rows: written, and read by key, by range, through indexes, in both directions, in transactions and at
//! snapshots.

use ropewalk_engine::Isolation;
use ropewalk_tables::{
    Array, ColumnDef, DefaultValue, Expr, Function, Identity, IndexDef, KeyOrder, KeyRange, Scalar, TableDef,
    TablesError, Type, Value,
};
use ropewalk_vfs::Env;

use crate::{Db, id, int, line, lines, people, person, shown, text};

fn five(db: &Db) -> ropewalk_tables::Table {
    let table = db.create(
        people()
            .index(IndexDef::on(["age"]))
            .index(
                IndexDef::on::<String>([])
                    .then_by(Expr::column("name").call(Function::Lower), KeyOrder::DESC)
                    .named("lower"),
            )
            .index(IndexDef::on(["name"]).named("old").filter(Expr::column("age").gt(40_i64))),
    );
    db.run(|t| {
        for row in [
            person(-5, "Eve", 30),
            person(0, "ann", 50),
            person(1, "Bob", 41),
            person(i64::MIN, "Min", 41),
            person(i64::MAX, "", 20),
        ] {
            t.insert_row(&table, &row)?;
        }
        t.insert(&table, &[("id", 2_i64.into())])
    })
    .unwrap();
    table
}

#[test]
fn dropped_transaction_sees_own_writes_and_has_no_effect() {
    let db = Db::memory();
    let table = five(&db);
    let before = db.lines(&table);
    let mut tx = db.begin();
    tx.t().insert_row(&table, &person(7, "Fay", 9)).unwrap();
    assert!(tx.t().update(&table, &id(0), &[("age", 10_i64.into()), ("id", 100_i64.into())]).unwrap());
    assert!(tx.t().delete(&table, &id(1)).unwrap());
    assert!(!tx.t().delete(&table, &id(1)).unwrap());
    assert!(!tx.t().update(&table, &id(0), &[("age", 1_i64.into())]).unwrap());
    let seen = lines(&mut tx.t(), &table);
    assert_eq!(seen[1..], ["-5 Eve 30", "2 NULL NULL", "7 Fay 9", "100 ann 10", "9223372036854775807  20"]);
    let young = tx
        .t()
        .collect_index(&table, "people_age_idx", &KeyRange::all().to([30_i64.into()]), false, 9)
        .unwrap();
    assert_eq!(shown(&young), ["7 Fay 9", "100 ann 10", "9223372036854775807  20", "-5 Eve 30"]);
    assert_eq!(tx.t().count(&table, &KeyRange::all()).unwrap(), 6);
    drop(tx);
    assert_eq!(db.lines(&table), before);
    db.verify();
}

#[test]
fn ranges_run_both_ways_across_zero() {
    let db = Db::memory();
    let table = five(&db);
    let mut tx = db.begin();
    let mut ids = |range: KeyRange<'_>, backward, limit| {
        let rows = tx.t().collect(&table, &range, backward, limit).unwrap();
        rows.iter().map(|row| row.get(0).unwrap().as_integer().unwrap()).collect::<Vec<_>>()
    };
    let all = [i64::MIN, -5, 0, 1, 2, i64::MAX];
    assert_eq!(ids(KeyRange::all(), false, 99), all);
    assert_eq!(ids(KeyRange::all(), true, 99), all.iter().rev().copied().collect::<Vec<_>>());
    assert_eq!(ids(KeyRange::all().from(id(-5)).to(id(1)), false, 99), [-5, 0, 1]);
    assert_eq!(ids(KeyRange::all().after(id(-5)).before(id(1)), true, 99), [0]);
    assert_eq!(ids(KeyRange::all().from(id(-4)), false, 2), [0, 1]);
    assert_eq!(ids(KeyRange::all().before(id(0)), true, 1), [-5]);
    assert_eq!(ids(KeyRange::prefix(id(2)), false, 9), [2]);
    assert_eq!(ids(KeyRange::all().after(id(i64::MAX)), false, 9), [0_i64; 0]);
    assert_eq!(ids(KeyRange::all().from(id(5)).to(id(1)), false, 9), [0_i64; 0]);
    assert_eq!(ids(KeyRange::all(), false, 0), [0_i64; 0]);
}

#[test]
fn indexes_are_in_their_own_order_with_nulls_last() {
    let db = Db::memory();
    let table = five(&db);
    let snapshot = db.engine.snapshot();
    let mut at = db.tables.at(&snapshot);
    let names = |rows: &[ropewalk_tables::OwnedRow]| {
        rows.iter().map(|row| row.column("name").unwrap().to_string()).collect::<Vec<_>>()
    };
    let rows = at.collect_index(&table, "lower", &KeyRange::all(), false, 99).unwrap();
    assert_eq!(names(&rows), ["NULL", "Min", "Eve", "Bob", "ann", ""]);
    let rows = at.collect_index(&table, "people_age_idx", &KeyRange::all(), true, 99).unwrap();
    assert_eq!(names(&rows), ["NULL", "ann", "Bob", "Min", "Eve", ""]);
    let rows = at.collect_index(&table, "old", &KeyRange::all(), false, 99).unwrap();
    assert_eq!(names(&rows), ["Bob", "Min", "ann"]);
    let rows = at.collect_index(&table, "lower", &KeyRange::prefix(["ann".into()]), false, 99).unwrap();
    assert_eq!(shown(&rows), ["0 ann 50"]);
    assert!(matches!(
        at.collect_index(&table, "none", &KeyRange::all(), false, 1),
        Err(TablesError::UnknownIndex { .. })
    ));
    // An update that does not touch an index leaves its entry; others move it.
    db.run(|t| t.update(&table, &id(0), &[("age", 3_i64.into())])).unwrap();
    let rows = at.collect_index(&table, "old", &KeyRange::all(), false, 99).unwrap();
    assert_eq!(rows.len(), 3, "the snapshot stays as it was");
    let snapshot = db.engine.snapshot();
    let rows = db.tables.at(&snapshot).collect_index(&table, "old", &KeyRange::all(), false, 99).unwrap();
    assert_eq!(names(&rows), ["Bob", "Min"]);
    db.verify();
}

#[test]
fn long_index_scans_go_page_by_page() {
    let db = Db::memory();
    let table = db.create(people().index(IndexDef::on(["age"])));
    db.run(|t| {
        for i in 0..1000 {
            t.insert_row(&table, &person(i, "x", i % 3))?;
        }
        Ok(())
    })
    .unwrap();
    let mut tx = db.begin();
    tx.t().delete(&table, &id(5)).unwrap();
    let mut ids = |backward| {
        let rows =
            tx.t().collect_index(&table, "people_age_idx", &KeyRange::prefix(id(2)), backward, 9999).unwrap();
        rows.iter().map(|r| r.get(0).unwrap().as_integer().unwrap()).collect::<Vec<_>>()
    };
    let expected: Vec<i64> = (0..1000).filter(|i| i % 3 == 2 && *i != 5).collect();
    assert_eq!(ids(false), expected);
    assert_eq!(ids(true), expected.iter().rev().copied().collect::<Vec<_>>());
}

#[test]
fn every_type_round_trips() {
    let env = Env::memory();
    let db = Db::open(&env, ropewalk_engine::EngineOptions::default());
    let values: Vec<Value<'static>> = vec![
        Value::Bool(true),
        Value::Int2(i16::MIN),
        Value::Int4(i32::MAX),
        Value::Int8(-1),
        Value::Float4(-0.0),
        Value::Float8(f64::NAN),
        Value::Numeric("-12.50".parse().unwrap()),
        Value::text("é\0x"),
        Value::bytea(&b"\0\x01\xff"[..]),
        Value::Date(-1),
        Value::Time(86_399_999_999),
        Value::Timestamp(i64::MIN),
        Value::Timestamptz(1),
        Value::Uuid([7; 16]),
        Value::json("{\"a\": [1, null]}"),
        Value::Array(Array::new(Scalar::Text, ["a".into(), Value::Null, "".into()]).unwrap()),
    ];
    let columns = |nullable: bool| {
        values.iter().enumerate().map(move |(i, value)| {
            let column = ColumnDef::new(format!("c{i}"), value.value_type().unwrap());
            if nullable { column } else { column.not_null() }
        })
    };
    let heap = db.create(columns(true).fold(TableDef::new("heap"), TableDef::column));
    // Every type that is allowed in a key.
    let key: Vec<String> = (0..values.len()).filter(|i| *i != 14).map(|i| format!("c{i}")).collect();
    let keyed = db.create(columns(false).fold(TableDef::new("keyed"), TableDef::column).primary_key(key));
    let nulls = vec![Value::Null; values.len()];
    db.run(|t| {
        t.insert_row(&heap, &values)?;
        t.insert_row(&heap, &nulls)?;
        t.insert_row(&keyed, &values)
    })
    .unwrap();
    db.engine.compact().unwrap();
    drop(db);
    let db = Db::open(&env, ropewalk_engine::EngineOptions::default());
    let snapshot = db.engine.snapshot();
    let (heap, keyed) = (db.tables.table("heap").unwrap(), db.tables.table("keyed").unwrap());
    let rows = db.tables.at(&snapshot).collect(&heap, &KeyRange::all(), false, 9).unwrap();
    // Debug format, so that NaN equals itself.
    assert_eq!(format!("{:?}", rows[0].values().unwrap()), format!("{values:?}"));
    assert_eq!(rows[1].values().unwrap(), nulls);
    let rows = db.tables.at(&snapshot).collect(&keyed, &KeyRange::all(), false, 9).unwrap();
    assert_eq!(format!("{:?}", rows[0].values().unwrap()), format!("{values:?}"));
    db.verify();
}

#[test]
fn keys_of_several_columns_take_prefixes() {
    let db = Db::memory();
    let table = db.create(
        TableDef::new("t")
            .column(text("region"))
            .column(int("n"))
            .column(text("note"))
            .primary_key(["region", "n"]),
    );
    db.run(|t| {
        for (region, n) in [("eu", 2), ("eu", -1), ("", 5), ("eu\0", 1), ("us", 1)] {
            t.insert_row(&table, &[region.into(), Value::Int8(n), "x".into()])?;
        }
        Ok(())
    })
    .unwrap();
    let mut tx = db.begin();
    let mut t = tx.t();
    let rows = t.collect(&table, &KeyRange::prefix(["eu".into()]), false, 9).unwrap();
    assert_eq!(shown(&rows), ["eu -1 x", "eu 2 x"]);
    let rows = t.collect(&table, &KeyRange::all().after(["eu".into(), Value::Int2(-1)]), false, 9).unwrap();
    assert_eq!(rows.len(), 3);
    let keys: [&[Value<'_>]; 3] =
        [&["us".into(), Value::Int8(1)], &["us".into(), Value::Int8(2)], &["".into(), Value::Int4(5)]];
    let found = t.get_many(&table, &keys).unwrap();
    assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true]);
    assert!(t.get(&table, &["eu".into()]).is_err());
}

#[test]
fn upsert_replaces_by_primary_key() {
    let db = Db::memory();
    let table = five(&db);
    db.run(|t| t.upsert(&table, &[("id", 0_i64.into()), ("name", "New".into())])).unwrap();
    db.run(|t| t.upsert(&table, &[("id", 55_i64.into()), ("age", 1_i64.into())])).unwrap();
    let all = db.lines(&table);
    assert!(all.contains(&"0 New NULL".to_owned()) && all.contains(&"55 NULL 1".to_owned()), "{all:?}");
    db.verify();
}

#[test]
fn defaults_identities_and_rows_without_a_key() {
    let env = Env::memory();
    let db = Db::open(&env, ropewalk_engine::EngineOptions::default());
    let table = db.create(
        TableDef::new("t")
            .column(int("n").identity(Identity::ByDefault))
            .column(text("s").default(DefaultValue::Value("d".into())))
            .column(ColumnDef::new("at", Type::TIMESTAMPTZ).default(DefaultValue::Now))
            .column(ColumnDef::new("u", Type::UUID).default(DefaultValue::NewUuid)),
    );
    let first = db.run(|t| t.insert(&table, &[])).unwrap();
    let second = db.run(|t| t.insert(&table, &[("n", 70_i64.into()), ("s", Value::Null)])).unwrap();
    let third = db.run(|t| t.insert(&table, &[])).unwrap();
    assert_eq!(
        [first.get(0).unwrap(), second.get(0).unwrap(), third.get(0).unwrap()].map(|v| v.as_integer()),
        [1, 70, 2].map(Some)
    );
    assert_eq!(first.column("s").unwrap(), Value::text("d"));
    assert_eq!(second.column("s").unwrap(), Value::Null);
    assert!(matches!(first.column("at").unwrap(), Value::Timestamptz(t) if t > 0));
    assert_ne!(first.column("u").unwrap(), third.column("u").unwrap());
    // Rows that are equal in every column are two rows.
    let same: [(&str, Value<'_>); 3] = [("n", 9_i64.into()), ("at", Value::Null), ("u", Value::Null)];
    db.run(|t| t.insert(&table, &same)).unwrap();
    db.run(|t| t.insert(&table, &same)).unwrap();
    assert_eq!(db.lines(&table).len(), 5);
    // Found, and updated through the row that was read.
    db.run(|t| {
        let rows = t.collect(&table, &KeyRange::all(), false, 9)?;
        assert!(t.update_row(&rows[4], &[("s", "last".into())])?);
        assert_eq!(t.delete_rows(&rows[..2])?, 2);
        Ok(())
    })
    .unwrap();
    let all = db.lines(&table);
    assert_eq!(all.len(), 3);
    assert!(all[2].starts_with("9 last"), "{all:?}");
    // Numbers drawn before a crash are never drawn again.
    drop(db);
    let db = Db::open(&env, ropewalk_engine::EngineOptions::default());
    let table = db.tables.table("t").unwrap();
    let next = db.run(|t| t.insert(&table, &[])).unwrap();
    assert!(next.get(0).unwrap().as_integer().unwrap() > 2);
    db.verify();
}

#[test]
fn prepared_point_read_follows_table_changes() {
    let db = Db::memory();
    let table = five(&db);
    let mut point = db.tables.point(&table);
    let old = db.engine.snapshot();
    {
        let row = point.get(&old, &id(0)).unwrap().unwrap();
        assert_eq!(line(row.row()), "0 ann 50");
        assert!(matches!(row.row().get(1).unwrap(), Value::Text(std::borrow::Cow::Borrowed("ann"))));
    }
    assert!(point.get(&old, &id(9)).unwrap().is_none());
    db.run(|t| t.add_column("people", int("extra").default(DefaultValue::Value(7_i64.into())))).unwrap();
    db.run(|t| t.update(&table, &id(0), &[("extra", 8_i64.into())])).unwrap();
    let new = db.engine.snapshot();
    assert_eq!(line(point.get(&new, &id(0)).unwrap().unwrap().row()), "0 ann 50 8");
    assert_eq!(line(point.get(&new, &id(1)).unwrap().unwrap().row()), "1 Bob 41 7");
    assert_eq!(
        line(point.get(&old, &id(0)).unwrap().unwrap().row()),
        "0 ann 50",
        "the old schema for the old snapshot"
    );
    db.run(|t| t.drop_table("people")).unwrap();
    assert!(point.get(&old, &id(0)).unwrap().is_some());
    let gone = db.engine.snapshot();
    assert!(matches!(point.get(&gone, &id(0)), Err(TablesError::UnknownTable { .. })));
}

/// Insertions in the order of their keys are checked against the last row only.
#[test]
fn insertions_in_key_order_find_every_duplicate() {
    for isolation in [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted] {
        let db = Db::memory();
        let table = db.create(people());
        db.run(|t| {
            for n in 900..=1_000 {
                t.insert_row(&table, &person(n, "", 0))?;
            }
            Ok(())
        })
        .unwrap();
        assert!(db.run(|t| t.delete(&table, &id(1_000))).unwrap());
        let mut tx = db.begin_with(isolation);
        let is_taken = |tx: &mut crate::Tx, n| match tx.t().insert_row(&table, &person(n, "", 0)) {
            Ok(_) => false,
            Err(TablesError::Unique { .. }) => true,
            Err(error) => panic!("{error}"),
        };
        for n in 1_000..1_200 {
            assert!(!is_taken(&mut tx, n), "{isolation:?}: {n}");
        }
        for n in [999, 900, 1_000, 1_150, 1_199] {
            assert!(is_taken(&mut tx, n), "{isolation:?}: {n}");
        }
        let mark = tx.savepoint();
        assert!(tx.t().update(&table, &id(1_199), &[("id", 2_000_i64.into())]).unwrap());
        assert!(is_taken(&mut tx, 2_000) && !is_taken(&mut tx, 1_199));
        tx.rollback_to(mark);
        assert!(is_taken(&mut tx, 1_199) && !is_taken(&mut tx, 2_000));
        assert!(tx.t().delete(&table, &id(2_000)).unwrap() && !is_taken(&mut tx, 2_000));
        tx.commit().unwrap();
        assert_eq!(db.lines(&table).len(), 301);
        db.verify();
    }
}

#[test]
fn concurrent_insertions_in_key_order_conflict() {
    let db = Db::memory();
    let table = db.create(people());
    let filled = || {
        let mut tx = db.begin();
        for n in 0..200 {
            tx.t().insert_row(&table, &person(n, "", 0)).unwrap();
        }
        tx
    };
    let (first, second) = (filled(), filled());
    first.commit().unwrap();
    assert!(second.commit().unwrap_err().is_conflict());
    assert_eq!(db.lines(&table).len(), 200);
}
