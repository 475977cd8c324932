//! Rows as Rust types, tables that may exist already, counters.
#![allow(clippy::unwrap_used)] // clippy.toml allows it in test functions, not in their helpers

use std::borrow::Cow;

use ropewalk::tables::{ColumnDef, KeyRange, Numeric, TableDef, TablesError, Type, Value};
use ropewalk::{Class, Database, Error, Isolation};

fn stock() -> TableDef {
    TableDef::new("stock")
        .column(ColumnDef::new("sku", Type::TEXT))
        .column(ColumnDef::new("quantity", Type::INT8).not_null())
        .column(ColumnDef::new("note", Type::TEXT))
        .column(ColumnDef::new("weight", Type::FLOAT8))
        .column(ColumnDef::new("photo", Type::BYTEA))
        .column(ColumnDef::new("fragile", Type::BOOL))
        .primary_key(["sku"])
}

fn open() -> Database {
    let db = Database::in_memory().unwrap();
    let mut tx = db.begin();
    let table = tx.tables().create_table_if_absent(stock()).unwrap();
    let row = [
        ("sku", "rope".into()),
        ("quantity", 5_000_000_000_i64.into()),
        ("weight", 1.5_f64.into()),
        ("photo", Value::from(&b"\x01\x02"[..])),
        ("fragile", true.into()),
    ];
    tx.tables().insert(&table, &row).unwrap();
    tx.commit().unwrap();
    db
}

#[test]
fn d1_9_columns_are_read_as_rust_types() -> Result<(), Error> {
    let db = open();
    let (table, snapshot) = (db.table("stock")?, db.snapshot());
    // No trait is imported for these reads.
    let row = snapshot.tables(&db).get(&table, &["rope".into()])?.unwrap();
    assert_eq!(row.get_as::<i64>("quantity")?, 5_000_000_000);
    assert_eq!(row.get_as::<u64>("quantity")?, 5_000_000_000);
    assert_eq!(row.get_as::<f64>("quantity")?, 5e9);
    assert_eq!(row.get_as::<Numeric>("quantity")?, Numeric::from(5_000_000_000));
    assert_eq!(row.get_as::<String>("sku")?, "rope");
    assert!(matches!(row.get_as::<Cow<'_, str>>("sku")?, Cow::Borrowed("rope")));
    assert_eq!(row.get_as::<Option<String>>("note")?, None);
    assert_eq!(row.get_as::<Option<f64>>("weight")?, Some(1.5));
    assert_eq!(row.get_as::<Vec<u8>>("photo")?, [1, 2]);
    assert!(row.get_as::<bool>("fragile")?);
    assert_eq!(row.get_as::<Value<'_>>("note")?, Value::Null);

    let value = row.column("photo")?;
    assert_eq!((value.as_bytes(), value.as_str(), value.as_bool()), (Some(&[1, 2][..]), None, None));
    assert_eq!(row.column("sku")?.as_str(), Some("rope"));
    assert_eq!(row.column("weight")?.as_f64(), Some(1.5));
    assert_eq!(row.column("fragile")?.as_bool(), Some(true));
    let mut seen = Vec::new();
    snapshot.tables(&db).scan(&table, &KeyRange::all(), false, &mut |row| {
        seen.push(row.get_as::<String>("sku")?);
        Ok(true)
    })?;
    assert_eq!(seen, ["rope"]);
    Ok(())
}

#[test]
fn d1_9_wrong_type_names_table_column_value_and_type() -> Result<(), Error> {
    let db = open();
    let row = db.snapshot().tables(&db).get(&db.table("stock")?, &["rope".into()])?.unwrap();
    for (error, shown) in [
        (row.get_as::<i64>("sku").map(drop), "column \"sku\": rope of type text cannot be read as i64"),
        (
            row.get_as::<i32>("quantity").map(drop),
            "column \"quantity\": 5000000000 of type int8 cannot be read as i32",
        ),
        (row.get_as::<String>("note").map(drop), "column \"note\": NULL cannot be read as String"),
        (
            row.get_as::<Option<bool>>("weight").map(drop),
            "column \"weight\": 1.5 of type float8 cannot be read as bool",
        ),
    ] {
        let error = error.unwrap_err();
        assert_eq!(error.to_string(), format!("table \"stock\", {shown}"));
        assert!(matches!(error, TablesError::WrongType { .. }));
        assert_eq!(Error::from(error).class(), Class::Invalid);
    }
    let error = row.get_as::<i64>("nothing").unwrap_err();
    assert!(matches!(error, TablesError::UnknownColumn { .. }));
    Ok(())
}

#[test]
fn d1_9_table_is_created_if_absent() -> Result<(), Error> {
    let db = open();
    let mut tx = db.begin();
    let table = tx.tables().create_table_if_absent(stock())?;
    assert_eq!(tx.tables().count(&table, &KeyRange::all())?, 1);
    let other =
        tx.tables().create_table_if_absent(TableDef::new("other").column(ColumnDef::new("a", Type::INT4)))?;
    tx.tables().insert_row(&other, &[1_i32.into()])?;
    tx.commit()?;
    assert_eq!(db.snapshot().tables(&db).count(&db.table("other")?, &KeyRange::all())?, 1);
    Ok(())
}

fn sell(db: &Database, isolation: Isolation, sku: &str, sold: i64) -> Result<i64, Error> {
    let table = db.table("stock")?;
    db.transact(isolation, usize::MAX, |tx| {
        let row = tx.tables().upsert_with(&table, &[sku.into()], |old| {
            let quantity = old.map_or(Ok(0), |row| row.get_as("quantity"))?;
            Ok([("quantity", Value::from(quantity + sold))])
        })?;
        Ok::<_, Error>(row.get_as("quantity")?)
    })
}

#[test]
fn d1_9_counters_lose_no_update() -> Result<(), Error> {
    for isolation in [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted] {
        let db = open();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..25).for_each(|_| assert!(sell(&db, isolation, "knot", 2).unwrap() > 0)));
            }
        });
        assert_eq!(sell(&db, isolation, "knot", 0)?, 200, "{isolation:?}");
        // Unnamed columns are unchanged.
        sell(&db, isolation, "rope", -1)?;
        let row = db.snapshot().tables(&db).get(&db.table("stock")?, &["rope".into()])?.unwrap();
        assert_eq!((row.get_as("quantity")?, row.get_as("weight")?), (4_999_999_999_i64, 1.5));
    }
    Ok(())
}

#[test]
fn d1_9_upsert_with_that_fails_leaves_nothing() -> Result<(), Error> {
    let db = open();
    let table = db.table("stock")?;
    let mut tx = db.begin();
    let wrong = tx.tables().upsert_with(&table, &["rope".into()], |row| {
        row.unwrap().get_as::<i64>("sku").map(|sku| [("quantity", Value::from(sku))])
    });
    assert!(matches!(wrong, Err(TablesError::WrongType { .. })));
    // A new row needs values for columns without a default.
    let missing = tx.tables().upsert_with(&table, &["new".into()], |_| Ok([("note", Value::from("x"))]));
    assert!(matches!(missing, Err(TablesError::NotNull { .. })));
    let twice = [("quantity", Value::from(1_i64)), ("quantity", Value::from(1_i64))];
    assert!(tx.tables().upsert_with(&table, &["new".into()], |_| Ok(twice)).is_err());
    assert!(tx.tables().upsert_with(&table, &[], |_| Ok([])).is_err());
    assert_eq!(tx.tables().count(&table, &KeyRange::all())?, 1);
    Ok(())
}
