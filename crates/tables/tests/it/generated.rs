//! Generated columns, and changes of primary keys.

use ropewalk_tables::{ColumnDef, Expr, Function, IndexDef, TableDef, TablesError, Type, Value};

use crate::{Db, id, int, text};

fn items() -> TableDef {
    TableDef::new("t")
        .column(int("id"))
        .column(int("price"))
        .column(int("double").generated(Expr::column("price").mul(2_i64)))
        .column(text("name"))
        .column(text("lower").generated(Expr::column("name").call(Function::Lower)))
        .primary_key(["id"])
        .index(IndexDef::on(["lower"]).unique())
}

#[test]
fn generated_columns_follow_every_write() {
    let db = Db::memory();
    let table = db.create(items());
    let named = |number: i64, price: i64, name: &'static str| {
        [("id", Value::Int8(number)), ("price", price.into()), ("name", name.into())]
    };
    db.run(|t| t.insert(&table, &named(1, 5, "Pen"))).unwrap();
    db.run(|t| t.upsert(&table, &named(2, 6, "Ink"))).unwrap();
    db.run(|t| t.update(&table, &id(1), &[("price", 7_i64.into())])).unwrap();
    assert_eq!(db.lines(&table), ["1 7 14 Pen pen", "2 6 12 Ink ink"]);
    let refused = |result: Result<bool, TablesError>| matches!(result, Err(TablesError::Generated { .. }));
    assert!(refused(db.run(|t| t.update(&table, &id(1), &[("double", 1_i64.into())]))));
    assert!(refused(
        db.run(|t| t.insert(&table, &[("id", 3_i64.into()), ("lower", "x".into())]).map(|_| true))
    ));
    let same = db.run(|t| t.update(&table, &id(1), &[("name", "INK".into())]));
    assert!(matches!(same, Err(TablesError::Unique { .. })));
    let mut load = db.tables.load(&db.create(items_called("loaded"))).unwrap();
    load.insert(&named(1, 1, "A")).unwrap();
    assert_eq!(load.finish().unwrap(), 1);
    db.verify();
}

fn items_called(name: &str) -> TableDef {
    TableDef::new(name)
        .column(int("id"))
        .column(int("price"))
        .column(int("double").generated(Expr::column("price").mul(2_i64)))
        .column(text("name"))
        .primary_key(["id"])
}

#[test]
fn generated_column_is_computed_for_existing_rows() {
    let db = Db::memory();
    let table = db.create(TableDef::new("t").column(int("a")).primary_key(["a"]));
    let half = || ColumnDef::new("half", Type::INT8).generated(Expr::column("a").div(2_i64));
    db.run(|t| {
        t.insert_row(&table, &id(4))?;
        t.insert_row(&table, &id(9))
    })
    .unwrap();
    db.run(|t| t.add_column("t", half())).unwrap();
    assert_eq!(db.lines(&table), ["4 2", "9 4"]);
    // A column that others are computed from stays.
    assert!(matches!(db.run(|t| t.drop_column("t", "a")), Err(TablesError::Dependent { .. })));
    let chained = ColumnDef::new("again", Type::INT8).generated(Expr::column("half"));
    assert!(matches!(db.run(|t| t.add_column("t", chained)), Err(TablesError::Definition { .. })));
    assert!(db.run(|t| t.drop_expression("t", "half")).unwrap());
    db.run(|t| t.update(&table, &id(4), &[("half", 7_i64.into())])).unwrap();
    assert_eq!(db.lines(&table), ["4 7", "9 4"]);
    db.verify();
}

#[test]
fn dropped_primary_key_leaves_numbered_rows() {
    let db = Db::memory();
    let table =
        db.create(TableDef::new("t").column(int("a")).column(int("b")).primary_key(["a"]).unique(["b"]));
    let row = |a: i64, b: i64| [Value::Int8(a), Value::Int8(b)];
    db.run(|t| {
        t.insert_row(&table, &row(2, 20))?;
        t.insert_row(&table, &row(1, 10))
    })
    .unwrap();
    db.run(|t| t.drop_primary_key("t")).unwrap();
    db.run(|t| t.insert_row(&table, &row(1, 30))).unwrap();
    assert_eq!(db.lines(&table), ["1 10", "2 20", "1 30"]);
    assert!(matches!(db.run(|t| t.drop_primary_key("t")), Err(TablesError::UnknownConstraint { .. })));
    db.run(|t| t.add_primary_key("t", Some("key"), &["b".into()])).unwrap();
    db.run(|t| t.rename_constraint("t", "key", "other")).unwrap();
    assert!(
        matches!(db.run(|t| t.insert_row(&table, &row(7, 30))), Err(TablesError::Unique { constraint, .. }) if constraint == "other")
    );
    db.verify();
}
