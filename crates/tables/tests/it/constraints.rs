//! NOT NULL, CHECK, UNIQUE, FOREIGN KEY: the error names the constraint, and the failed statement has no
//! effect.

use ropewalk_tables::{
    Action, DefaultValue, Expr, ForeignKeyDef, IndexDef, KeyRange, OwnedRow, TableDef, TablesError, TablesTx,
    Value,
};

use crate::{Db, id, int, lines, people, person, text};

#[test]
fn violated_constraint_is_named_and_statement_has_no_effect() {
    let db = Db::memory();
    let table = db.create(
        TableDef::new("t")
            .column(int("id"))
            .column(text("name").not_null())
            .column(int("age"))
            .primary_key(["id"])
            .unique(["name"])
            .index(IndexDef::on(["age"]).unique().filter(Expr::column("age").gt(100_i64)).named("elders"))
            .check("adult", Expr::column("age").ge(18_i64)),
    );
    let mut tx = db.begin();
    let mut t = tx.t();
    t.insert_row(&table, &person(1, "Ann", 130)).unwrap();
    let refused = |row: Result<OwnedRow, TablesError>| row.map(drop).unwrap_err().to_string();
    let named = |t: &mut TablesTx<'_>, id: i64, name: &'static str, age: i64| {
        refused(t.insert_row(&table, &person(id, name, age)))
    };
    let exists = |row: &str, index: &str| {
        format!(r#"table "t": a row with {row} exists already, "{index}" allows one"#)
    };
    assert_eq!(named(&mut t, 1, "Bob", 20), exists("(id)=(1)", "t_pkey"));
    assert_eq!(named(&mut t, 2, "Ann", 20), exists("(name)=(Ann)", "t_name_key"));
    assert_eq!(named(&mut t, 2, "Bob", 130), exists("(age)=(130)", "elders"));
    assert_eq!(named(&mut t, 2, "Bob", 17), r#"table "t": the row breaks check "adult""#);
    let nameless = refused(t.insert(&table, &[("id", 2_i64.into())]));
    assert_eq!(nameless, r#"table "t", column "name": NULL is not allowed"#);
    // An unknown check passes; equal values outside a partial index are allowed.
    t.insert(&table, &[("id", 2_i64.into()), ("name", "Bob".into())]).unwrap();
    t.insert_row(&table, &person(3, "Cat", 50)).unwrap();
    t.insert_row(&table, &person(4, "Dan", 50)).unwrap();
    let bad: [&[(&str, Value<'_>)]; 2] =
        [&[("id", 5_i64.into()), ("name", "Eve".into())], &[("id", 6_i64.into()), ("name", "Ann".into())]];
    assert!(t.insert_many(&table, &bad).is_err());
    assert!(t.update(&table, &id(3), &[("name", "Dan".into())]).is_err());
    assert!(t.update(&table, &id(3), &[("id", 4_i64.into())]).is_err());
    let expected = ["1 Ann 130", "2 Bob NULL", "3 Cat 50", "4 Dan 50"];
    assert_eq!(lines(&mut t, &table), expected);
    tx.commit().unwrap();
    assert_eq!(db.lines(&table), expected);
    db.verify();
}

#[test]
fn a_unique_value_can_move_within_a_transaction() {
    let db = Db::memory();
    let table = db.create(people().unique(["name"]));
    db.run(|t| t.insert_row(&table, &person(1, "Ann", 1))).unwrap();
    db.run(|t| {
        t.delete(&table, &id(1))?;
        t.insert_row(&table, &person(2, "Ann", 1))?;
        t.update(&table, &id(2), &[("id", 1_i64.into())])
    })
    .unwrap();
    assert_eq!(db.lines(&table), ["1 Ann 1"]);
    // NULLs are never equal.
    db.run(|t| {
        t.insert(&table, &[("id", 5_i64.into())])?;
        t.insert(&table, &[("id", 6_i64.into())])
    })
    .unwrap();
    db.verify();
}

fn family(on_delete: Action, on_update: Action) -> (Db, ropewalk_tables::Table, ropewalk_tables::Table) {
    let db = Db::memory();
    let parents = db.create(TableDef::new("parents").column(int("id")).primary_key(["id"]));
    let children = db.create(
        TableDef::new("children")
            .column(int("id"))
            .column(int("parent").default(DefaultValue::Value(0_i64.into())))
            .primary_key(["id"])
            .foreign_key(
                ForeignKeyDef::new(["parent"], "parents", ["id"]).on_delete(on_delete).on_update(on_update),
            ),
    );
    db.run(|t| {
        for parent in [0, 1, 2] {
            t.insert_row(&parents, &id(parent))?;
        }
        for (child, parent) in [(10, 1), (11, 1), (20, 2)] {
            t.insert_row(&children, &[Value::Int8(child), Value::Int8(parent)])?;
        }
        t.insert(&children, &[("id", 30_i64.into()), ("parent", Value::Null)])
    })
    .unwrap();
    (db, parents, children)
}

#[test]
fn foreign_key_requires_parent() {
    let (db, parents, children) = family(Action::NoAction, Action::NoAction);
    let foreign = |result: Result<bool, TablesError>| match result {
        Err(TablesError::ForeignKey { constraint, what, .. }) => format!("{constraint}: {what}"),
        other => panic!("{other:?}"),
    };
    let insert =
        |parent: i64| db.run(|t| t.insert_row(&children, &[99_i64.into(), parent.into()]).map(|_| true));
    assert_eq!(foreign(insert(7)), r#"children_parent_fkey: (parent)=(7) is not in table "parents""#);
    assert_eq!(
        foreign(db.run(|t| t.delete(&parents, &id(1)))),
        "children_parent_fkey: row (id)=(10) still refers to it"
    );
    foreign(db.run(|t| t.update(&parents, &id(1), &[("id", 9_i64.into())])));
    foreign(db.run(|t| t.update(&children, &id(10), &[("parent", 7_i64.into())])));
    // In one transaction parents may be inserted first, in one statement in any order.
    db.run(|t| {
        t.insert_row(&parents, &id(7))?;
        t.insert_row(&children, &[99_i64.into(), 7_i64.into()])
    })
    .unwrap();
    db.run(|t| {
        t.delete(&children, &id(99))?;
        t.delete(&parents, &id(7))
    })
    .unwrap();
    db.verify();
}

#[test]
fn foreign_key_actions_apply() {
    use Action::{Cascade, NoAction, Restrict, SetDefault, SetNull};
    for (action, deleted, updated) in [
        (Cascade, &["20 2", "30 NULL"][..], &["10 5", "11 5", "20 2", "30 NULL"][..]),
        (SetNull, &["10 NULL", "11 NULL", "20 2", "30 NULL"], &["10 NULL", "11 NULL", "20 2", "30 NULL"]),
        (SetDefault, &["10 0", "11 0", "20 2", "30 NULL"], &["10 0", "11 0", "20 2", "30 NULL"]),
    ] {
        let (db, parents, children) = family(action, action);
        assert!(db.run(|t| t.delete(&parents, &id(1))).unwrap());
        assert_eq!(db.lines(&children), deleted, "{action:?}");
        db.verify();
        let (db, parents, children) = family(action, action);
        assert!(db.run(|t| t.update(&parents, &id(1), &[("id", 5_i64.into())])).unwrap());
        assert_eq!(db.lines(&children), updated, "{action:?}");
        db.verify();
    }
    for action in [NoAction, Restrict] {
        let (db, parents, _) = family(action, action);
        assert!(db.run(|t| t.delete(&parents, &id(1))).is_err());
        assert!(db.run(|t| t.update(&parents, &id(1), &[("id", 5_i64.into())])).is_err());
        assert!(db.run(|t| t.delete(&parents, &id(0))).unwrap());
        db.verify();
    }
    // A default without a parent is rejected like any other value.
    let (db, parents, _) = family(SetDefault, SetDefault);
    db.run(|t| t.delete(&parents, &id(0))).unwrap();
    assert!(matches!(db.run(|t| t.delete(&parents, &id(1))), Err(TablesError::ForeignKey { .. })));
    db.verify();
}

#[test]
fn a_table_may_refer_to_itself() {
    let db = Db::memory();
    let table =
        db.create(TableDef::new("tree").column(int("id")).column(int("up")).primary_key(["id"]).foreign_key(
            ForeignKeyDef::new(["up"], "tree", ["id"]).on_delete(Action::Cascade).on_update(Action::Cascade),
        ));
    let rows: Vec<[(&str, Value<'_>); 2]> = (0..2000)
        .map(|i| [("id", Value::Int8(i)), ("up", if i == 1999 { Value::Null } else { Value::Int8(i + 1) })])
        .collect();
    // Children before their parents, in one statement.
    db.run(|t| t.insert_many(&table, &rows.iter().map(|r| &r[..]).collect::<Vec<_>>())).unwrap();
    db.run(|t| t.insert_row(&table, &[5000_i64.into(), 5000_i64.into()])).unwrap();
    db.run(|t| t.update(&table, &id(5000), &[("id", 6000_i64.into()), ("up", 6000_i64.into())])).unwrap();
    db.run(|t| t.delete(&table, &id(6000))).unwrap();
    // A long chain is deleted at once.
    assert!(db.run(|t| t.delete(&table, &id(1999))).unwrap());
    let snapshot = db.engine.snapshot();
    assert_eq!(db.tables.at(&snapshot).count(&table, &KeyRange::all()).unwrap(), 0);
    db.verify();
}

#[test]
fn a_reference_may_be_to_a_unique_index_of_several_columns() {
    let db = Db::memory();
    let parents = db.create(
        TableDef::new("p")
            .column(int("id"))
            .column(text("a"))
            .column(int("b"))
            .primary_key(["id"])
            .unique(["a", "b"]),
    );
    let children = db.create(
        TableDef::new("c")
            .column(text("x"))
            .column(int("y"))
            .foreign_key(ForeignKeyDef::new(["x", "y"], "p", ["a", "b"]).on_update(Action::Cascade)),
    );
    db.run(|t| t.insert_row(&parents, &[1_i64.into(), "k".into(), 2_i64.into()])).unwrap();
    db.run(|t| t.insert_row(&children, &["k".into(), 2_i64.into()])).unwrap();
    db.run(|t| t.insert_row(&children, &["zz".into(), Value::Null])).unwrap();
    assert!(db.run(|t| t.insert_row(&children, &["k".into(), 3_i64.into()])).is_err());
    db.run(|t| t.update(&parents, &id(1), &[("b", 9_i64.into())])).unwrap();
    assert_eq!(db.lines(&children), ["k 9", "zz NULL"]);
    // An update that does not touch the key does not read the children.
    db.run(|t| t.update(&parents, &id(1), &[("id", 4_i64.into())])).unwrap();
    assert!(db.run(|t| t.delete(&parents, &id(4))).is_err());
    db.verify();
}
