//! Changes of definitions inside transactions; existing rows are read through the newer definition.

use ropewalk_engine::EngineOptions;
use ropewalk_tables::{
    Action, ColumnDef, DefaultValue, Expr, ForeignKeyDef, Identity, Index, IndexDef, KeyRange, TableDef,
    TablesError, TablesRead, Type, Value,
};
use ropewalk_vfs::Env;

use crate::{Db, id, int, lines, people, person, text};

#[test]
fn add_and_drop_column_rewrite_no_rows() {
    let env = Env::memory();
    let db = Db::open(&env, EngineOptions::default());
    let table = db.create(people());
    db.run(|t| t.insert_row(&table, &person(1, "Ann", 30))).unwrap();
    db.run(|t| t.add_column("people", text("mail").default(DefaultValue::Value("none".into())))).unwrap();
    db.run(|t| t.insert(&table, &[("id", 2_i64.into())])).unwrap();
    assert_eq!(db.lines(&table), ["1 Ann 30 none", "2 NULL NULL none"]);
    // A new default applies to new rows; values of older rows are unchanged.
    db.run(|t| t.set_default("people", "mail", DefaultValue::Value("later".into()))).unwrap();
    db.run(|t| t.insert(&table, &[("id", 3_i64.into())])).unwrap();
    db.run(|t| t.drop_column("people", "name")).unwrap();
    db.run(|t| t.rename_column("people", "mail", "email")).unwrap();
    // A new column with the old name is a different column.
    db.run(|t| t.add_column("people", int("name").not_null().default(DefaultValue::Value(0_i64.into()))))
        .unwrap();
    db.run(|t| t.update(&table, &id(3), &[("email", Value::Null)])).unwrap();
    let expected = ["1 30 none 0", "2 NULL none 0", "3 NULL NULL 0"];
    assert_eq!(db.lines(&table), expected);
    db.run(|t| t.rename_table("people", "folk")).unwrap();
    assert!(matches!(db.tables.table("people"), Err(TablesError::UnknownTable { .. })));
    assert_eq!(db.lines(&table), expected, "a handle follows its table");
    db.engine.compact().unwrap();
    drop(db);
    let db = Db::open(&env, EngineOptions::default());
    let table = db.tables.table("folk").unwrap();
    assert_eq!(db.lines(&table), expected);
    assert_eq!(db.tables.names().unwrap(), ["folk"]);
    db.verify();
}

#[test]
fn names_for_rebuilds_of_projections_are_reserved() {
    let db = Db::memory();
    let def = |name: &str| TableDef::new(name).column(int("id")).primary_key(["id"]);
    let is_reserved =
        |result: Result<(), TablesError>| matches!(result, Err(TablesError::ReservedName { .. }));
    db.create(def("t"));
    assert!(is_reserved(db.run(|t| t.create_table(def("t__g2")).map(drop))));
    assert!(is_reserved(db.run(|t| t.create_table_if_absent(def("s\u{1f}t__g2")).map(drop))));
    assert!(is_reserved(db.run(|t| t.create_table_like("t", "t__g2").map(drop))));
    assert!(is_reserved(db.run(|t| t.rename_table("t", "t__g2"))));
    // A rebuild may use such a name, and then everyone may.
    let mut tx = db.begin();
    tx.state.mark_rebuild();
    tx.t().create_table(def("t__g2")).unwrap();
    tx.commit().unwrap();
    let taken = db.tables.table("t__g2").unwrap();
    db.run(|t| t.insert_row(&taken, &id(1))).unwrap();
    db.run(|t| t.create_table_if_absent(def("t__g2"))).unwrap();
    db.run(|t| t.rename_table("t__g2", "s\u{1f}t__g2")).unwrap();
    db.run(|t| t.rename_table("s\u{1f}t__g2", "u")).unwrap();
    assert_eq!(db.lines(&taken), ["1"]);
}

#[test]
fn type_change_to_null_fails_in_a_not_null_column() {
    let db = Db::memory();
    let def = TableDef::new("t").column(int("id")).column(text("a").not_null()).primary_key(["id"]);
    let table = db.create(def);
    db.run(|t| t.insert_row(&table, &[1_i64.into(), "x".into()])).unwrap();
    let changed = db.run(|t| t.set_type("t", "a", Type::INT8, &mut |_| Some(Value::Null)));
    assert!(matches!(changed, Err(TablesError::NotNull { .. })), "{changed:?}");
    assert_eq!(db.lines(&table), ["1 x"]);
}

#[test]
fn rolled_back_definition_has_no_effect() {
    let db = Db::memory();
    let table = db.create(people());
    db.run(|t| t.insert_row(&table, &person(1, "Ann", 30))).unwrap();
    let mut tx = db.begin();
    tx.t().add_column("people", int("extra")).unwrap();
    let mark = tx.savepoint();
    let other = tx.t().create_table(TableDef::new("other").column(int("a")).primary_key(["a"])).unwrap();
    tx.t().insert(&other, &[("a", 1_i64.into())]).unwrap();
    tx.t().truncate("people", false).unwrap();
    assert!(lines(&mut tx.t(), &table).is_empty());
    tx.t().insert_row(&table, &[9_i64.into(), "new".into(), Value::Null, Value::Null]).unwrap();
    tx.t().create_index("people", IndexDef::on(["name"])).unwrap();
    tx.t().drop_column("people", "age").unwrap();
    assert_eq!(lines(&mut tx.t(), &table), ["9 new NULL"]);
    tx.rollback_to(mark);
    assert_eq!(lines(&mut tx.t(), &table), ["1 Ann 30 NULL"]);
    assert!(tx.t().table("other").is_err());
    assert!(matches!(tx.t().insert(&other, &[]), Err(TablesError::UnknownTable { .. })));
    drop(tx);
    assert_eq!(db.lines(&table), ["1 Ann 30"]);
    assert_eq!(db.tables.names().unwrap(), ["people"]);
    db.verify();
}

#[test]
fn truncate_and_drop_leave_no_keys() {
    let db = Db::memory();
    let def = || {
        TableDef::new("t")
            .column(int("id").identity(Identity::Always))
            .column(text("s"))
            .primary_key(["id"])
            .index(IndexDef::on(["s"]))
    };
    let table = db.create(def());
    let fill = |n: usize| {
        db.run(|t| (0..n).try_for_each(|_| t.insert(&table, &[("s", "x".into())]).map(|_| ()))).unwrap();
    };
    fill(100);
    let old = db.engine.snapshot();
    db.run(|t| {
        t.insert(&table, &[("s", "lost".into())])?;
        t.truncate("t", false)?;
        assert_eq!(t.count(&table, &KeyRange::all())?, 0);
        t.insert(&table, &[("s", "kept".into())])
    })
    .unwrap();
    assert_eq!(db.lines(&table), ["102 kept"]);
    assert_eq!(
        db.tables.at(&old).count(&table, &KeyRange::all()).unwrap(),
        100,
        "an old snapshot keeps its rows"
    );
    db.verify();
    db.run(|t| t.truncate("t", true)).unwrap();
    fill(1);
    assert_eq!(db.lines(&table), ["1 x"]);
    db.verify();
    db.run(|t| t.drop_table("t")).unwrap();
    db.verify();
    // The name is reusable, the number is not: the old handle does not read the new table.
    let again = db.create(def());
    assert_ne!(again.id(), table.id());
    assert!(matches!(db.run(|t| t.insert(&table, &[])), Err(TablesError::UnknownTable { .. })));
    drop(old);
    db.engine.compact().unwrap();
    let stats = db.engine.stats().store;
    let rows = stats.keyspaces.iter().find(|k| k.name == "tables").unwrap();
    assert_eq!(rows.entries, 0, "the rows of dropped tables are gone from the files");
    db.verify();
}

#[test]
fn drop_of_needed_object_is_rejected() {
    let db = Db::memory();
    db.create(people().unique(["name"]).check("adult", Expr::column("age").ge(18_i64)));
    db.create(
        TableDef::new("pets")
            .column(int("id"))
            .column(text("owner"))
            .primary_key(["id"])
            .foreign_key(ForeignKeyDef::new(["owner"], "people", ["name"]).on_delete(Action::Cascade)),
    );
    let dependent = |result: Result<(), TablesError>| {
        assert!(matches!(result, Err(TablesError::Dependent { .. })), "{result:?}");
    };
    dependent(db.run(|t| t.drop_table("people")));
    dependent(db.run(|t| t.truncate("people", false)));
    dependent(db.run(|t| t.drop_column("people", "id")));
    dependent(db.run(|t| t.drop_column("people", "age")));
    dependent(db.run(|t| t.drop_column("people", "name")));
    dependent(db.run(|t| t.drop_index("people", "people_name_key")));
    dependent(db.run(|t| t.drop_index("pets", "pets_owner_fkey")));
    db.run(|t| t.drop_table("pets")).unwrap();
    db.run(|t| t.drop_index("people", "people_name_key")).unwrap();
    db.run(|t| t.drop_table("people")).unwrap();
    assert!(db.tables.names().unwrap().is_empty());
    db.verify();
}

#[test]
fn add_column_without_default_requires_empty_table() {
    let db = Db::memory();
    let table = db.create(people());
    let add = |def: ColumnDef| db.run(|t| t.add_column("people", def));
    add(int("a").not_null()).unwrap();
    add(int("n").identity(Identity::ByDefault)).unwrap();
    db.run(|t| t.insert(&table, &[("id", 1_i64.into()), ("a", 1_i64.into())])).unwrap();
    assert!(matches!(add(int("b").not_null()), Err(TablesError::Definition { .. })));
    assert!(matches!(add(int("c").identity(Identity::ByDefault)), Err(TablesError::Definition { .. })));
    let uuid = ColumnDef::new("u", Type::UUID).default(DefaultValue::NewUuid);
    assert!(matches!(add(uuid), Err(TablesError::Definition { .. })));
    add(ColumnDef::new("t", Type::TIMESTAMP).not_null().default(DefaultValue::Now)).unwrap();
    assert_eq!(db.lines(&table).len(), 1);
}

#[test]
fn constraints_can_be_added_to_and_dropped_from_tables_with_rows() {
    let db = Db::memory();
    let table = db.create(people());
    let pets = db.create(TableDef::new("pets").column(int("owner")));
    db.run(|t| {
        t.insert_row(&table, &person(1, "Ann", 30))?;
        t.insert(&table, &[("id", 2_i64.into())])?;
        t.insert_row(&pets, &[1_i64.into()])?;
        t.insert_row(&pets, &[7_i64.into()])?;
        t.insert_row(&pets, &[Value::Null])
    })
    .unwrap();
    let adult = || Expr::column("age").ge(40_i64);
    assert!(matches!(db.run(|t| t.add_check("people", "adult", adult())), Err(TablesError::Check { .. })));
    let key = || ForeignKeyDef::new(["owner"], "people", ["id"]).named("owned").on_delete(Action::Cascade);
    assert!(matches!(db.run(|t| t.add_foreign_key("pets", key())), Err(TablesError::ForeignKey { .. })));
    assert!(matches!(db.run(|t| t.set_nullable("people", "age", false)), Err(TablesError::NotNull { .. })));
    db.verify();
    // The obstacle is removed in the same transaction.
    db.run(|t| {
        t.insert(&table, &[("id", 7_i64.into())])?;
        t.add_foreign_key("pets", key())?;
        t.update(&table, &id(1), &[("age", 50_i64.into())])?;
        t.add_check("people", "adult", adult())?;
        t.update(&table, &id(2), &[("age", 60_i64.into())])?;
        t.update(&table, &id(7), &[("age", 70_i64.into())])?;
        t.set_nullable("people", "age", false)
    })
    .unwrap();
    db.verify();
    assert!(matches!(
        db.run(|t| t.insert(&table, &[("id", 3_i64.into())])),
        Err(TablesError::NotNull { .. })
    ));
    assert!(matches!(db.run(|t| t.insert_row(&table, &person(3, "x", 1))), Err(TablesError::Check { .. })));
    assert!(matches!(db.run(|t| t.insert_row(&pets, &[9_i64.into()])), Err(TablesError::ForeignKey { .. })));
    db.run(|t| t.delete(&table, &id(7))).unwrap();
    assert_eq!(db.lines(&pets), ["1", "NULL"]);
    db.run(|t| {
        t.drop_constraint("people", "adult")?;
        t.drop_constraint("pets", "owned")?;
        t.set_nullable("people", "age", true)
    })
    .unwrap();
    assert!(matches!(
        db.run(|t| t.drop_constraint("pets", "owned")),
        Err(TablesError::UnknownConstraint { .. })
    ));
    assert!(matches!(db.run(|t| t.set_nullable("people", "id", true)), Err(TablesError::Definition { .. })));
    db.run(|t| t.insert_row(&pets, &[9_i64.into()])).unwrap();
    db.run(|t| t.insert(&table, &[("id", 3_i64.into())])).unwrap();
    db.run(|t| t.drop_table("people")).unwrap();
    db.verify();
    // Others' rows while a constraint is checked.
    let mut tx = db.begin_with(ropewalk_engine::Isolation::ReadCommitted);
    tx.t()
        .add_check("pets", "none", Expr::column("owner").is_null().or(Expr::column("owner").gt(0_i64)))
        .unwrap();
    db.run(|t| t.insert_row(&pets, &[(-1_i64).into()])).unwrap();
    assert!(tx.commit().unwrap_err().is_conflict());
}

/// Rows of a table without a key: few are in the transaction's writes, many bypass the log.
fn unkeyed(db: &Db, rows: i64) -> ropewalk_tables::Table {
    let def = TableDef::new("log").column(int("id")).column(text("what")).index(IndexDef::on(["what"]));
    let table = db.create(def);
    let mut load = db.tables.load(&table).unwrap();
    for n in 0..rows {
        let what = format!("number {} of those that are many", n % 10);
        load.row(&[((n * 7919) % rows).into(), what.into()]).unwrap();
    }
    load.finish().unwrap();
    table
}

#[test]
fn add_primary_key_to_table_with_rows() {
    for log_everything in [false, true] {
        add_primary_keys(&EngineOptions { log_everything, ..EngineOptions::default() });
    }
}

fn add_primary_keys(options: &EngineOptions) {
    for rows in [0_i64, 37, 30_011] {
        let env = Env::memory();
        let db = Db::open(&env, options.clone());
        let table = unkeyed(&db, rows);
        let mut tx = db.begin();
        tx.t().add_primary_key("log", None, &["id".into()]).unwrap();
        // The transaction itself reads and writes by the new key.
        let first = tx.t().get(&table, &id(1)).unwrap();
        assert_eq!(first.is_some(), rows > 1);
        tx.t().insert_row(&table, &[(-5_i64).into(), "new".into()]).unwrap();
        if rows > 0 {
            assert!(tx.t().update(&table, &id(0), &[("what", "changed".into())]).unwrap());
            assert!(tx.t().delete(&table, &id(1)).unwrap());
        }
        let before = lines(&mut tx.t(), &table);
        tx.commit().unwrap();
        assert_eq!(db.lines(&table), before);
        assert_eq!(before.first().unwrap(), "-5 new");
        assert_eq!(before.len() as i64, if rows == 0 { 1 } else { rows });
        let again = db.run(|t| t.insert_row(&table, &[(-5_i64).into(), "again".into()])).unwrap_err();
        assert!(
            matches!(&again, TablesError::Unique { constraint, .. } if constraint == "log_pkey"),
            "{again}"
        );
        db.verify();
        drop(db);
        let db = Db::open(&env, options.clone());
        assert_eq!(db.tables.recover().unwrap(), 0);
        assert_eq!(db.lines(&db.tables.table("log").unwrap()), before);
        db.verify();
    }
}

#[test]
fn add_primary_key_rejects_violating_rows() {
    let db = Db::memory();
    let table = unkeyed(&db, 20_000);
    let key = ["id".to_owned()];
    let twice = db.run(|t| t.insert_row(&table, &[5_i64.into(), Value::Null])).unwrap();
    let before = db.lines(&table);
    let error = db.run(|t| t.add_primary_key("log", Some("log_key"), &key)).unwrap_err();
    assert!(matches!(&error, TablesError::Unique { constraint, .. } if constraint == "log_key"), "{error}");
    db.run(|t| t.delete_rows(&[twice])).unwrap();
    let null = db.run(|t| t.insert_row(&table, &[Value::Null, "x".into()])).unwrap();
    let error = db.run(|t| t.add_primary_key("log", None, &key)).unwrap_err();
    assert!(matches!(&error, TablesError::NotNull { column, .. } if column == "id"), "{error}");
    db.run(|t| t.delete_rows(&[null])).unwrap();
    // Rolled back it has no effect, and objects loaded for it are deleted.
    let mut tx = db.begin();
    tx.t().add_primary_key("log", None, &key).unwrap();
    drop(tx);
    assert_eq!(db.tables.recover().unwrap(), 0);
    // The concurrent writer wins.
    let mut tx = db.begin();
    tx.t().add_primary_key("log", None, &key).unwrap();
    db.run(|t| t.insert_row(&table, &[(-1_i64).into(), "meanwhile".into()])).unwrap();
    assert!(tx.commit().unwrap_err().is_conflict());
    assert_eq!(db.tables.recover().unwrap(), 0);
    db.verify();
    assert_eq!(db.lines(&table).len(), before.len());
    db.run(|t| t.add_primary_key("log", None, &key)).unwrap();
    let error = db.run(|t| t.add_primary_key("log", None, &key)).unwrap_err();
    assert!(error.to_string().contains("multiple primary keys"), "{error}");
    db.verify();
}

#[test]
fn index_created_by_foreign_key_belongs_to_it() {
    let db = Db::memory();
    db.create(people().unique(["name"]));
    let pets = db.create(
        TableDef::new("pets")
            .column(int("id"))
            .column(text("owner"))
            .primary_key(["id"])
            .foreign_key(ForeignKeyDef::new(["owner"], "people", ["name"]).on_delete(Action::Cascade)),
    );
    let indexes = || {
        let schema = db.run(|t| t.schema(&pets)).unwrap();
        let shown = |index: &Index| format!("{} {}", index.name(), index.is_of_foreign_key());
        schema.indexes().iter().map(shown).collect::<Vec<_>>()
    };
    assert_eq!(indexes(), ["pets_owner_fkey true"]);
    // An explicit CREATE INDEX takes over the index, with a name; dropping it leaves it to the key.
    db.run(|t| t.create_index("pets", IndexDef::on(["owner"]))).unwrap();
    assert_eq!(indexes(), ["pets_owner_idx false"]);
    db.run(|t| t.create_index("pets", IndexDef::on(["owner"]).named("again"))).unwrap();
    assert_eq!(indexes(), ["pets_owner_idx false", "again false"]);
    db.run(|t| t.drop_index("pets", "pets_owner_idx")).unwrap();
    assert_eq!(indexes(), ["pets_owner_fkey true", "again false"]);
    let taken = db.run(|t| t.create_index("pets", IndexDef::on(["owner"]).named("again")));
    assert!(matches!(taken, Err(TablesError::Duplicate { .. })), "{taken:?}");
    db.run(|t| t.create_index("pets", IndexDef::on(["owner"]).unique().named("one"))).unwrap();
    assert_eq!(indexes(), ["pets_owner_fkey true", "again false", "one false"]);
    db.verify();
    db.run(|t| t.drop_constraint("pets", "pets_owner_fkey")).unwrap();
    assert_eq!(indexes(), ["again false", "one false"]);
    db.verify();
}

#[test]
fn update_of_a_row_read_before_a_truncate_finds_none() {
    let db = Db::memory();
    let table = db.create(people());
    let numbered = db.create(TableDef::new("numbered").column(int("a")));
    db.run(|t| t.insert_row(&table, &person(1, "Ann", 30))).unwrap();
    db.run(|t| t.insert(&numbered, &[("a", 1_i64.into())])).unwrap();
    let mut tx = db.begin();
    let row = tx.t().get(&table, &id(1)).unwrap().unwrap();
    let other = tx.t().collect(&numbered, &KeyRange::all(), false, 9).unwrap().remove(0);
    tx.t().truncate("people", false).unwrap();
    tx.t().truncate("numbered", false).unwrap();
    assert!(!tx.t().update_row(&row, &[("name", "Bob".into())]).unwrap());
    assert!(!tx.t().update_row(&other, &[("a", 2_i64.into())]).unwrap());
    assert_eq!(tx.t().delete_rows(&[row, other]).unwrap(), 0);
    tx.commit().unwrap();
    assert!(db.lines(&table).is_empty() && db.lines(&numbered).is_empty());
    db.verify();
}
