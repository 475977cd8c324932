//! Indexes whose entries hold other columns of the row.

use ropewalk_tables::{ColumnDef, Expr, IndexDef, KeyRange, TableDef, TablesError, TablesRead, Type, Value};

use crate::{Db, id, int, text};

fn things() -> TableDef {
    TableDef::new("things")
        .column(int("id"))
        .column(int("kind"))
        .column(text("name"))
        .column(int("price"))
        .primary_key(["id"])
        .index(IndexDef::on(["kind"]).named("by_kind").include(["name"]))
}

fn thing(number: i64, kind: i64, name: &'static str, price: i64) -> [Value<'static>; 4] {
    [number.into(), kind.into(), name.into(), price.into()]
}

/// The id, kind and name of each entry of an index.
fn entries(db: &Db, index: &str) -> Vec<String> {
    let (snapshot, table) = (db.engine.snapshot(), db.tables.table("things").unwrap());
    let mut found = Vec::new();
    let each = &mut |row: ropewalk_tables::Row<'_>| {
        found.push(format!("{} {} {}", row.column("id")?, row.column("kind")?, row.column("name")?));
        Ok(true)
    };
    db.tables.at(&snapshot).scan_entries(&table, index, &KeyRange::all(), false, each).unwrap();
    found
}

#[test]
fn entries_follow_the_included_columns() {
    let db = Db::memory();
    let table = db.create(things());
    db.run(|t| {
        t.insert_row(&table, &thing(1, 20, "pen", 5))?;
        t.insert_row(&table, &thing(2, 10, "ink", 6))
    })
    .unwrap();
    assert_eq!(entries(&db, "by_kind"), ["2 10 ink", "1 20 pen"]);
    db.run(|t| t.update(&table, &id(1), &[("name", "pencil".into())])).unwrap();
    db.run(|t| t.update(&table, &id(2), &[("price", 7_i64.into())])).unwrap();
    assert_eq!(entries(&db, "by_kind"), ["2 10 ink", "1 20 pencil"]);
    db.run(|t| t.delete(&table, &id(2))).unwrap();
    let mut load = db.tables.load(&table).unwrap();
    load.row(&thing(3, 5, "box", 1)).unwrap();
    load.finish().unwrap();
    assert_eq!(entries(&db, "by_kind"), ["3 5 box", "1 20 pencil"]);
    db.verify();
}

#[test]
fn columns_that_entries_lack_are_an_error() {
    let db = Db::memory();
    let table = db.create(things());
    db.run(|t| t.insert_row(&table, &thing(1, 20, "pen", 5))).unwrap();
    let (snapshot, schema) = (db.engine.snapshot(), db.tables.schema(&db.engine.snapshot(), &table).unwrap());
    let covered = |name: &str| schema.is_covered("by_kind", schema.index_of(name).unwrap());
    assert!(covered("id") && covered("kind") && covered("name") && !covered("price"));
    let each = &mut |row: ropewalk_tables::Row<'_>| row.column("price").map(|_| true);
    let read = db.tables.at(&snapshot).scan_entries(&table, "by_kind", &KeyRange::all(), false, each);
    assert!(matches!(read, Err(TablesError::Damaged { .. })), "{read:?}");
}

#[test]
fn definitions_of_covering_indexes_change() {
    let db = Db::memory();
    let table = db.create(things());
    db.run(|t| t.insert_row(&table, &thing(1, 20, "pen", 5))).unwrap();
    let unique = IndexDef::on(["price"]).named("by_price").unique().alone().include(["kind", "name"]);
    db.run(|t| t.create_index("things", unique)).unwrap();
    let same = db.run(|t| t.insert_row(&table, &thing(2, 21, "ink", 5)));
    assert!(matches!(same, Err(TablesError::Unique { .. })));
    assert!(matches!(db.run(|t| t.drop_column("things", "name")), Err(TablesError::Dependent { .. })));
    db.run(|t| t.set_nullable("things", "name", true)).unwrap();
    db.run(|t| t.update(&table, &id(1), &[("name", Value::Null)])).unwrap();
    assert_eq!(entries(&db, "by_price"), ["1 20 NULL"]);
    db.run(|t| t.truncate("things", false)).unwrap();
    db.run(|t| t.insert_row(&table, &thing(4, 4, "four", 4))).unwrap();
    assert_eq!(entries(&db, "by_price"), ["4 4 four"]);
    let unknown = IndexDef::on(["price"]).include(["nothing"]);
    let unknown = db.run(|t| t.create_index("things", unknown));
    assert!(matches!(unknown, Err(TablesError::UnknownColumn { .. })));
    db.verify();
}

#[test]
fn nulls_can_be_equal_in_a_unique_index() {
    let db = Db::memory();
    let half = IndexDef::on(["a"]).unique().nulls_equal().filter(Expr::column("id").lt(10_i64));
    let table = db.create(
        TableDef::new("t")
            .column(int("id"))
            .column(ColumnDef::new("a", Type::INT8))
            .primary_key(["id"])
            .index(half),
    );
    let row = |number: i64| [Value::Int8(number), Value::Null];
    db.run(|t| t.insert_row(&table, &row(1))).unwrap();
    assert!(matches!(db.run(|t| t.insert_row(&table, &row(2))), Err(TablesError::Unique { .. })));
    db.run(|t| t.insert_row(&table, &row(12))).unwrap();
    db.verify();
}
