//! Invalid input: rejected with the location and reason, without effect.

use ropewalk_tables::{
    Array, ColumnDef, DefaultValue, Expr, ForeignKeyDef, Identity, IndexDef, KeyRange, Scalar, TableDef,
    TablesError, Type, Value,
};

use crate::{Db, id, int, people, text};

#[test]
fn values_that_do_not_fit_are_refused() {
    let db = Db::memory();
    let columns = [
        ("i2", Type::INT2),
        ("i4", Type::INT4),
        ("f4", Type::FLOAT4),
        ("n", Type::numeric(4, 2)),
        ("b", Type::BOOL),
        ("t", Type::TEXT),
        ("time", Type::TIME),
        ("j", Type::JSON),
        ("a", Type::INT4.array()),
    ];
    let def =
        columns.iter().fold(TableDef::new("t"), |def, (name, ty)| def.column(ColumnDef::new(*name, *ty)));
    let table = db.create(def);
    let mut tx = db.begin();
    let mut refused = |column: &str, value: Value<'_>| {
        let error = tx.t().insert(&table, &[(column, value)]).unwrap_err();
        assert!(matches!(error, TablesError::Value { .. }), "{error}");
        error.to_string()
    };
    let message = refused("i2", Value::Int4(40_000));
    assert_eq!(message, r#"table "t", column "i2": the value 40000 is out of range of int2"#);
    assert_eq!(refused("b", Value::Int4(1)), r#"table "t", column "b": the value is of type int4, not bool"#);
    refused("i4", Value::Int8(i64::MAX));
    refused("i4", "1".into());
    refused("i4", Value::Float8(1.0));
    refused("f4", Value::Float8(1e300));
    refused("n", Value::Numeric("100".parse().unwrap()));
    refused("n", Value::Float8(1.0));
    refused("t", Value::Int4(1));
    refused("time", Value::Time(-1));
    assert_eq!(
        refused("j", Value::json("{\"a\":}")),
        r#"table "t", column "j": the value is not JSON at byte 5"#
    );
    refused("a", Value::Int4(1));
    refused("a", Value::Array(Array::new(Scalar::Text, ["x".into()]).unwrap()));
    refused("a", Value::Array(Array::new(Scalar::Int8, [i64::MAX.into()]).unwrap()));
    assert!(Array::new(Scalar::Int2, [Value::Int4(40_000)]).is_err());
    let mut t = tx.t();
    // Values that fit are converted and rounded.
    let row = t.insert(
        &table,
        &[
            ("i2", Value::Int8(-3)),
            ("f4", Value::Int4(2)),
            ("n", Value::Numeric("1.005".parse().unwrap())),
            ("j", Value::text("[1]")),
            ("a", Value::Array(Array::new(Scalar::Int8, [7_i64.into(), Value::Null]).unwrap())),
        ],
    );
    assert_eq!(crate::line(row.unwrap().row()), "-3 NULL 2 1.01 NULL NULL NULL [1] {7,NULL}");
    assert!(matches!(t.insert(&table, &[("none", Value::Null)]), Err(TablesError::UnknownColumn { .. })));
    assert!(matches!(
        t.insert(&table, &[("b", true.into()), ("b", true.into())]),
        Err(TablesError::Duplicate { .. })
    ));
    assert!(matches!(
        t.insert_row(&table, &[Value::Null]),
        Err(TablesError::Arity { expected: 9, found: 1, .. })
    ));
    assert_eq!(t.count(&table, &KeyRange::all()).unwrap(), 1);
}

#[test]
fn keys_and_rows_over_the_limits_are_refused() {
    let db = Db::memory();
    let table = db.create(
        TableDef::new("t").column(text("k")).column(text("v")).primary_key(["k"]).index(IndexDef::on(["v"])),
    );
    let heap = db.create(TableDef::new("heap").column(text("v")));
    let long = |n: usize| Value::text("x".repeat(n));
    let too_large = |result: Result<ropewalk_tables::OwnedRow, TablesError>| {
        let error = result.unwrap_err();
        assert!(matches!(error, TablesError::TooLarge { .. }), "{error}");
        error.to_string()
    };
    let message = too_large(db.run(|t| t.insert_row(&table, &[long(20_000), Value::Null])));
    assert_eq!(message, r#"table "t": key of 20002 bytes exceeds the limit of 16384"#);
    // No row has such a key; lookups report that.
    assert!(db.run(|t| t.get(&table, &[long(20_000)])).unwrap().is_none());
    assert!(!db.run(|t| t.delete(&table, &[long(20_000)])).unwrap());
    too_large(db.run(|t| t.insert_row(&table, &["a".into(), long(20_000)])));
    too_large(db.run(|t| t.insert_row(&heap, &[long((16 << 20) + 1)])));
    db.run(|t| t.insert_row(&heap, &[long(15 << 20)])).unwrap();
    db.run(|t| t.insert_row(&table, &[long(16_000), long(16_000)])).unwrap();
    db.verify();
}

#[test]
fn bounds_and_keys_that_do_not_fit_are_refused() {
    let db = Db::memory();
    let table = db.create(people().index(IndexDef::on(["age"])));
    let mut tx = db.begin();
    let mut t = tx.t();
    assert!(matches!(t.get(&table, &[]), Err(TablesError::Arity { .. })));
    assert!(matches!(t.get(&table, &["x".into()]), Err(TablesError::Value { .. })));
    assert!(matches!(t.get(&table, &[Value::Null]), Err(TablesError::NotNull { .. })));
    assert!(t.count(&table, &KeyRange::prefix([1_i64.into(), 2_i64.into()])).is_err());
    assert!(t.collect_index(&table, "people_age_idx", &KeyRange::prefix(["x".into()]), false, 1).is_err());
    assert!(t.delete(&table, &[true.into()]).is_err());
    assert!(matches!(t.table("nobody"), Err(TablesError::UnknownTable { .. })));
}

#[test]
fn invalid_definitions_are_rejected() {
    let db = Db::memory();
    db.create(people());
    let refused = |def: TableDef| {
        let error = db.run(|t| t.create_table(def.clone())).unwrap_err();
        assert!(!matches!(error, TablesError::Engine(_)), "{error}");
        error.to_string()
    };
    let t = || TableDef::new("t").column(int("a")).column(text("b"));
    refused(people());
    refused(TableDef::new(""));
    refused(TableDef::new("x".repeat(300)));
    refused(TableDef::new("a\nb"));
    refused(t().column(int("a")));
    refused(t().column(int("")));
    refused(t().primary_key(["c"]));
    refused(t().primary_key(["a", "a"]));
    refused(t().column(ColumnDef::new("j", Type::JSON)).primary_key(["j"]));
    refused(t().column(ColumnDef::new("j", Type::JSON)).index(IndexDef::on(["j"])));
    refused(t().column(ColumnDef::new("n", Type::numeric(39, 0))));
    refused(t().column(ColumnDef::new("n", Type::numeric(2, 3))));
    refused(t().column(ColumnDef::new("n", Type::numeric(0, 0))));
    refused(t().column(text("i").identity(Identity::Always)));
    refused(t().column(int("i").identity(Identity::Always).default(DefaultValue::Value(1_i64.into()))));
    refused(t().column(int("i").default(DefaultValue::Value("x".into()))));
    refused(t().column(int("i").default(DefaultValue::Now)));
    refused(t().column(int("i").default(DefaultValue::NewUuid)));
    refused(t().check("c", Expr::column("a")));
    refused(t().check("c", Expr::column("x").eq(1)));
    refused(t().check("c", Expr::column("a").eq("x")));
    refused(t().check("c", Expr::value(true)).check("c", Expr::value(true)));
    refused(t().index(IndexDef::on::<String>([])));
    refused(t().index(IndexDef::on(["a"]).filter(Expr::column("b"))));
    refused(t().index(IndexDef::on(["a"]).named("n")).index(IndexDef::on(["b"]).named("n")));
    refused(t().foreign_key(ForeignKeyDef::new(["a"], "nobody", ["id"])));
    refused(t().foreign_key(ForeignKeyDef::new(["a"], "people", ["age"])));
    refused(t().foreign_key(ForeignKeyDef::new(["b"], "people", ["id"])));
    refused(t().foreign_key(ForeignKeyDef::new(["a", "b"], "people", ["id"])));
    let set_null = ForeignKeyDef::new(["a"], "people", ["id"]).on_delete(ropewalk_tables::Action::SetNull);
    refused(t().primary_key(["a"]).foreign_key(set_null));
    refused((0..1601).fold(TableDef::new("wide"), |def, i| def.column(int(&format!("c{i}")))));
    refused((0..257).fold(t(), |def, i| def.index(IndexDef::on(["a"]).named(format!("i{i}")))));
    let key: Vec<String> = (0..33).map(|i| format!("c{i}")).collect();
    refused(key.iter().fold(TableDef::new("k"), |def, name| def.column(int(name))).primary_key(key.clone()));
    assert_eq!(db.tables.names().unwrap(), ["people"]);
    // A definition retains former layouts of its columns; their number is limited.
    let wide = (0..1500).fold(TableDef::new("past"), |def, i| def.column(int(&format!("c{i}"))));
    db.create(wide);
    let mut tx = db.begin();
    let failed = (0..1000).find_map(|i| {
        let column = format!("c{i}");
        tx.t().drop_column("past", &column).err()
    });
    assert!(failed.unwrap().to_string().contains("exceeds the limit of 1048576"));
    drop(tx);
    db.run(|t| t.drop_table("past")).unwrap();
    // At the limits it works.
    let wide = db.create((0..1600).fold(TableDef::new("wide"), |def, i| def.column(int(&format!("c{i}")))));
    db.run(|t| t.insert(&wide, &[("c1599", 5_i64.into())])).unwrap();
    db.verify();
}

#[test]
fn failing_expression_rejects_the_row() {
    let db = Db::memory();
    let table = db.create(people().check("ratio", Expr::value(10_i64).div(Expr::column("age")).gt(0_i64)));
    let insert = |age: i64| db.run(|t| t.insert(&table, &[("id", 1_i64.into()), ("age", age.into())]));
    assert!(
        matches!(insert(0), Err(TablesError::Evaluation { what, .. }) if what.contains("division by zero"))
    );
    assert!(matches!(insert(20), Err(TablesError::Check { .. })));
    insert(5).unwrap();
    assert!(matches!(
        db.run(|t| t.update(&table, &id(1), &[("age", 0_i64.into())])),
        Err(TablesError::Evaluation { .. })
    ));
}

#[test]
fn generated_columns_reject_values() {
    let db = Db::memory();
    let table = db.create(
        TableDef::new("t").column(int("n").identity(Identity::Always)).column(text("s")).primary_key(["n"]),
    );
    assert!(matches!(
        db.run(|t| t.insert(&table, &[("n", 1_i64.into())])),
        Err(TablesError::Generated { .. })
    ));
    db.run(|t| t.insert(&table, &[("s", "x".into())])).unwrap();
    assert!(matches!(
        db.run(|t| t.update(&table, &id(1), &[("n", 2_i64.into())])),
        Err(TablesError::Generated { .. })
    ));
    assert!(db.run(|t| t.update(&table, &id(1), &[("s", "y".into())])).unwrap());
}
