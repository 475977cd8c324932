//! Enum types: labels change without rewriting rows, and a type in use cannot be dropped.

use ropewalk_engine::{EngineOptions, Isolation};
use ropewalk_tables::{
    ColumnDef, DefaultValue, EnumChange, EnumPlace, EnumType, Expr, IndexDef, KeyRange, TableDef,
    TablesError, TablesRead, ValueError,
};
use ropewalk_vfs::Env;

use crate::{Db, int, shown};

/// `mood` and `people (id int8 primary key, mood mood default 'ok', past mood[])`
fn people(db: &Db) -> EnumType {
    let mood = db.run(|t| t.create_enum("mood", &["sad", "ok", "happy"])).unwrap();
    let ok = DefaultValue::Value(mood.value_of("ok").unwrap().into_owned());
    let def = TableDef::new("people")
        .column(int("id"))
        .column(ColumnDef::new("mood", mood.column_type()).default(ok.clone()))
        .column(ColumnDef::new("past", mood.column_type().array()))
        .primary_key(["id"])
        .index(IndexDef::on(["mood"]).named("by_mood"))
        .check(
            "not_both",
            Expr::column("id")
                .lt(9_i64)
                .or(Expr::column("mood").ne(mood.value_of("sad").unwrap().into_owned())),
        );
    db.create(def);
    mood
}

fn by_mood(db: &Db) -> Vec<String> {
    let snapshot = db.engine.snapshot();
    let mut found = Vec::new();
    let table = db.tables.table("people").unwrap();
    let mut read = db.tables.at(&snapshot);
    read.scan_index(&table, "by_mood", &KeyRange::all(), false, &mut |row| {
        found.push(row.to_owned());
        Ok::<bool, TablesError>(true)
    })
    .unwrap();
    shown(&found)
}

#[test]
fn labels_can_be_inserted_between_and_renamed() {
    let env = Env::memory();
    let db = Db::open(&env, EngineOptions::default());
    let mood = people(&db);
    let table = db.tables.table("people").unwrap();
    let past = mood.read(ropewalk_tables::Value::Array(
        ropewalk_tables::Array::new(ropewalk_tables::Scalar::Text, ["happy".into(), "sad".into()]).unwrap(),
    ));
    db.run(|t| t.insert_row(&table, &[1_i64.into(), "happy".into(), past.unwrap()])).unwrap();
    db.run(|t| t.insert(&table, &[("id", 2_i64.into())])).unwrap();
    db.run(|t| t.insert(&table, &[("id", 3_i64.into()), ("mood", "sad".into())])).unwrap();
    assert_eq!(by_mood(&db), ["3 sad NULL", "2 ok NULL", "1 happy {happy,sad}"]);
    let version = db.tables.schema(&db.engine.snapshot(), &table).unwrap().version();
    let change = |change| db.run(|t| t.alter_enum("mood", &change)).unwrap();
    change(EnumChange::Add("awful".into(), EnumPlace::Before("sad".into())));
    change(EnumChange::Add("fine".into(), EnumPlace::After("ok".into())));
    change(EnumChange::RenameLabel("happy".into(), "glad".into()));
    change(EnumChange::Rename("feeling".into()));
    let now = db.tables.schema(&db.engine.snapshot(), &table).unwrap().version();
    assert_eq!(now, version + 4, "who holds a plan for the table learns of it");
    db.run(|t| t.insert(&table, &[("id", 4_i64.into()), ("mood", "fine".into())])).unwrap();
    db.run(|t| t.insert(&table, &[("id", 5_i64.into()), ("mood", "awful".into())])).unwrap();
    let expected = ["5 awful NULL", "3 sad NULL", "2 ok NULL", "4 fine NULL", "1 glad {glad,sad}"];
    assert_eq!(by_mood(&db), expected);
    let unknown = db.run(|t| t.insert(&table, &[("id", 6_i64.into()), ("mood", "happy".into())]));
    let is_label = |error| matches!(error, TablesError::Value { source: ValueError::Label { .. }, .. });
    assert!(unknown.is_err_and(is_label));
    let checked = db.run(|t| t.insert(&table, &[("id", 9_i64.into()), ("mood", "sad".into())]));
    assert!(matches!(checked, Err(TablesError::Check { .. })));
    db.verify();
    db.engine.compact().unwrap();
    drop(db);
    let db = Db::open(&env, EngineOptions::default());
    assert_eq!(by_mood(&db), expected);
    let snapshot = db.engine.snapshot();
    let known = db.tables.at(&snapshot).enum_named("feeling").unwrap().unwrap();
    assert_eq!(known.labels().collect::<Vec<_>>(), ["awful", "sad", "ok", "fine", "glad"]);
    assert_eq!(db.tables.at(&snapshot).enum_named("mood").unwrap(), None);
    db.verify();
}

#[test]
fn snapshot_reads_labels_as_of_its_commit() {
    let db = Db::memory();
    people(&db);
    let table = db.tables.table("people").unwrap();
    db.run(|t| t.insert(&table, &[("id", 1_i64.into())])).unwrap();
    let before = db.engine.snapshot();
    db.run(|t| t.alter_enum("mood", &EnumChange::RenameLabel("ok".into(), "fair".into()))).unwrap();
    let line = |snapshot: &ropewalk_engine::Snapshot| crate::lines(&mut db.tables.at(snapshot), &table);
    assert_eq!(line(&before), ["1 ok NULL"]);
    assert_eq!(line(&db.engine.snapshot()), ["1 fair NULL"]);
    db.run(|t| t.insert(&table, &[("id", 2_i64.into())])).unwrap();
    assert_eq!(
        line(&db.engine.snapshot()),
        ["1 fair NULL", "2 fair NULL"],
        "the default is the label, not its name"
    );
}

#[test]
fn drop_type_in_use_is_rejected() {
    let db = Db::memory();
    let mood = people(&db);
    let dropped = db.run(|t| t.drop_enum("mood"));
    assert!(matches!(dropped, Err(TablesError::Dependent { .. })));
    // Also while a column of the type is being added, at any isolation.
    for level in [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted] {
        db.run(|t| t.create_enum("size", &["s"])).unwrap();
        let size = db.run(|t| t.enum_named("size")).unwrap().unwrap();
        let mut making = db.begin_with(level);
        let def = TableDef::new("shirts").column(ColumnDef::new("size", size.column_type()));
        making.t().create_table(def).unwrap();
        let mut dropping = db.begin_with(level);
        dropping.t().drop_enum("size").unwrap();
        dropping.commit().unwrap();
        let made = making.commit();
        assert!(made.is_err_and(|error| error.is_conflict()), "{level:?}");
    }
    db.run(|t| t.drop_table("people")).unwrap();
    db.run(|t| t.drop_enum("mood")).unwrap();
    let unknown =
        db.run(|t| t.create_table(TableDef::new("late").column(ColumnDef::new("m", mood.column_type()))));
    assert!(matches!(unknown, Err(TablesError::Definition { .. })));
    db.verify();
}

#[test]
fn rolled_back_type_change_has_no_effect() {
    let db = Db::memory();
    people(&db);
    let table = db.tables.table("people").unwrap();
    let mut tx = db.begin();
    let mark = tx.savepoint();
    tx.t().alter_enum("mood", &EnumChange::Add("great".into(), EnumPlace::Last)).unwrap();
    tx.t().insert(&table, &[("id", 1_i64.into()), ("mood", "great".into())]).unwrap();
    tx.rollback_to(mark);
    assert!(tx.t().insert(&table, &[("id", 1_i64.into()), ("mood", "great".into())]).is_err());
    tx.t().insert(&table, &[("id", 1_i64.into()), ("mood", "happy".into())]).unwrap();
    tx.commit().unwrap();
    assert_eq!(by_mood(&db), ["1 happy NULL"]);
    db.verify();
}
