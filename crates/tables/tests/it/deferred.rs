//! Deferrable constraints: checks that wait for the commit.

use ropewalk_engine::Isolation;
use ropewalk_tables::{Deferral, ForeignKeyDef, IndexDef, LoadOptions, Table, TableDef, TablesError, Value};

use crate::{Db, id, int};

fn family(deferral: Deferral) -> (Db, Table, Table) {
    let db = Db::memory();
    let parents = db.create(TableDef::new("parents").column(int("id")).primary_key(["id"]));
    let children = db.create(
        TableDef::new("children").column(int("id")).column(int("parent")).primary_key(["id"]).foreign_key(
            ForeignKeyDef::new(["parent"], "parents", ["id"]).named("to_parent").deferral(deferral),
        ),
    );
    (db, parents, children)
}

fn child(number: i64, parent: i64) -> [Value<'static>; 2] {
    [number.into(), parent.into()]
}

fn constraint<T: std::fmt::Debug>(result: Result<T, TablesError>) -> String {
    match result {
        Err(TablesError::ForeignKey { constraint, .. } | TablesError::Unique { constraint, .. }) => {
            constraint
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn deferred_reference_is_checked_at_commit() {
    for isolation in [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted] {
        let (db, parents, children) = family(Deferral::InitiallyDeferred);
        let mut tx = db.begin_with(isolation);
        tx.t().insert_row(&children, &child(1, 7)).unwrap();
        tx.t().insert_row(&parents, &id(7)).unwrap();
        tx.commit().unwrap();
        let mut tx = db.begin_with(isolation);
        tx.t().insert_row(&children, &child(2, 8)).unwrap();
        assert_eq!(constraint(tx.commit()), "to_parent");
        let mut tx = db.begin_with(isolation);
        tx.t().delete(&parents, &id(7)).unwrap();
        assert_eq!(constraint(tx.t().check_deferred()), "to_parent");
        tx.t().delete(&children, &id(1)).unwrap();
        tx.commit().unwrap();
        assert_eq!(db.lines(&children), Vec::<String>::new());
        db.verify();
    }
}

#[test]
fn rollback_to_a_savepoint_restores_waiting_checks() {
    let (db, parents, children) = family(Deferral::InitiallyImmediate);
    let mut tx = db.begin();
    assert_eq!(constraint(tx.t().insert_row(&children, &child(1, 7))), "to_parent");
    tx.t().defer("children", "to_parent", true).unwrap();
    tx.t().insert_row(&children, &child(1, 7)).unwrap();
    let mark = tx.savepoint();
    tx.t().insert_row(&parents, &id(7)).unwrap();
    tx.t().defer_all(false).unwrap();
    assert_eq!(constraint(tx.t().insert_row(&children, &child(2, 8))), "to_parent");
    tx.rollback_to(mark);
    // The parent is gone again, and the constraint is deferred again.
    tx.t().insert_row(&children, &child(2, 8)).unwrap();
    assert_eq!(constraint(tx.t().defer_all(false)), "to_parent");
    tx.t().delete(&children, &id(1)).unwrap();
    tx.t().delete(&children, &id(2)).unwrap();
    tx.commit().unwrap();
    db.verify();
}

#[test]
fn concurrent_delete_of_a_parent_conflicts_with_a_deferred_reference() {
    for isolation in [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted] {
        let (db, parents, children) = family(Deferral::InitiallyDeferred);
        db.run(|t| t.insert_row(&parents, &id(7))).unwrap();
        let (mut one, mut two) = (db.begin_with(isolation), db.begin_with(isolation));
        one.t().insert_row(&children, &child(1, 7)).unwrap();
        two.t().delete(&parents, &id(7)).unwrap();
        let outcomes = [one.commit(), two.commit()];
        assert!(
            outcomes.iter().filter(|outcome| outcome.is_ok()).count() == 1,
            "{isolation:?}: {outcomes:?}"
        );
        db.verify();
    }
}

fn places(deferral: Deferral) -> (Db, Table) {
    let db = Db::memory();
    let index = IndexDef::on(["place"]).unique().named("one_place").deferral(deferral);
    let table =
        db.create(TableDef::new("t").column(int("id")).column(int("place")).primary_key(["id"]).index(index));
    (db, table)
}

#[test]
fn values_of_a_deferred_unique_constraint_may_repeat_until_the_commit() {
    for isolation in [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted] {
        let (db, table) = places(Deferral::InitiallyDeferred);
        db.run(|t| {
            t.insert_row(&table, &child(1, 1))?;
            t.insert_row(&table, &child(2, 2))
        })
        .unwrap();
        let mut tx = db.begin_with(isolation);
        tx.t().update(&table, &id(1), &[("place", 2_i64.into())]).unwrap();
        assert_eq!(constraint(tx.t().check_deferred()), "one_place");
        tx.t().update(&table, &id(2), &[("place", 1_i64.into())]).unwrap();
        tx.commit().unwrap();
        assert_eq!(db.lines(&table), ["1 2", "2 1"]);
        let mut tx = db.begin_with(isolation);
        tx.t().insert_row(&table, &child(3, 1)).unwrap();
        assert_eq!(constraint(tx.commit()), "one_place");
        // NULLs are never equal.
        db.run(|t| {
            t.insert_row(&table, &[4_i64.into(), Value::Null])?;
            t.insert_row(&table, &[5_i64.into(), Value::Null])
        })
        .unwrap();
        db.verify();
    }
}

#[test]
fn concurrent_inserts_of_one_value_conflict_under_a_deferred_unique_constraint() {
    for isolation in [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted] {
        let (db, table) = places(Deferral::InitiallyDeferred);
        let (mut one, mut two) = (db.begin_with(isolation), db.begin_with(isolation));
        one.t().insert_row(&table, &child(1, 7)).unwrap();
        two.t().insert_row(&table, &child(2, 7)).unwrap();
        let outcomes = [one.commit(), two.commit()];
        assert!(
            outcomes.iter().filter(|outcome| outcome.is_ok()).count() == 1,
            "{isolation:?}: {outcomes:?}"
        );
        db.verify();
    }
}

#[test]
fn statement_of_several_changes_is_checked_at_its_end() {
    let (db, table) = places(Deferral::InitiallyImmediate);
    db.run(|t| {
        t.insert_row(&table, &child(1, 1))?;
        t.insert_row(&table, &child(2, 2))
    })
    .unwrap();
    let shift = |t: &mut ropewalk_tables::TablesTx<'_>, last: i64| {
        t.begin_checks();
        t.update(&table, &id(1), &[("place", 2_i64.into())])?;
        t.update(&table, &id(2), &[("place", last.into())])?;
        t.end_checks()
    };
    db.run(|t| shift(t, 3)).unwrap();
    assert_eq!(constraint(db.run(|t| shift(t, 2))), "one_place");
    assert_eq!(constraint(db.run(|t| t.update(&table, &id(1), &[("place", 3_i64.into())]))), "one_place");
    assert_eq!(db.lines(&table), ["1 2", "2 3"]);
    db.verify();
}

#[test]
fn definition_does_not_change_while_a_check_waits() {
    let (db, parents, children) = family(Deferral::InitiallyDeferred);
    let mut tx = db.begin();
    tx.t().insert_row(&children, &child(1, 7)).unwrap();
    let refused = |result: Result<(), TablesError>| matches!(result, Err(TablesError::ChecksWait { .. }));
    assert!(refused(tx.t().add_column("children", int("note"))));
    assert!(refused(tx.t().truncate("children", false)));
    assert!(refused(tx.t().drop_table("children")));
    // Tables that refer to it do not matter.
    let other = ForeignKeyDef::new(["child"], "children", ["id"]);
    tx.t().create_table(TableDef::new("other").column(int("child")).foreign_key(other)).unwrap();
    tx.t().insert_row(&parents, &id(7)).unwrap();
    tx.t().defer_all(false).unwrap();
    tx.t().add_column("children", int("note")).unwrap();
    tx.commit().unwrap();
    db.verify();
}

#[test]
fn loaded_rows_wait_for_their_parents_when_their_foreign_key_is_deferred() {
    for log_bytes_max in [0, 1 << 20] {
        let (db, parents, children) = family(Deferral::InitiallyDeferred);
        let options = LoadOptions { log_bytes_max, memory_bytes: None };
        let load = |tx: &mut crate::Tx| {
            let mut t = tx.t();
            let mut load = t.load(&children, options).unwrap().unwrap();
            for number in 0..100 {
                load.row(&mut t, &child(number, 7 + number % 2)).unwrap();
            }
            load.finish(&mut t).unwrap();
        };
        let mut tx = db.begin();
        load(&mut tx);
        tx.t().insert_row(&parents, &id(7)).unwrap();
        assert_eq!(constraint(tx.commit()), "to_parent");
        let mut tx = db.begin();
        load(&mut tx);
        tx.t().insert_row(&parents, &id(7)).unwrap();
        tx.t().insert_row(&parents, &id(8)).unwrap();
        tx.commit().unwrap();
        assert_eq!(db.lines(&children).len(), 100);
        db.verify();
    }
    // A table with a deferrable unique constraint is not loaded: equal entries do not meet in sorted runs.
    let (db, table) = places(Deferral::InitiallyDeferred);
    let mut tx = db.begin();
    assert!(tx.t().load(&table, LoadOptions::default()).unwrap().is_none());
}

#[test]
fn new_constraint_is_checked_at_once() {
    let db = Db::memory();
    let table = db.create(TableDef::new("t").column(int("id")).column(int("place")).primary_key(["id"]));
    db.create(TableDef::new("parents").column(int("id")).primary_key(["id"]));
    db.run(|t| {
        t.insert_row(&table, &child(1, 7))?;
        t.insert_row(&table, &child(2, 7))
    })
    .unwrap();
    let mut tx = db.begin();
    let unique = IndexDef::on(["place"]).unique().named("u").deferral(Deferral::InitiallyDeferred);
    assert_eq!(constraint(tx.t().create_index("t", unique.clone())), "u");
    let key = ForeignKeyDef::new(["place"], "parents", ["id"]).named("k");
    let key = key.deferral(Deferral::InitiallyDeferred);
    assert_eq!(constraint(tx.t().add_foreign_key("t", key)), "k");
    tx.commit().unwrap();
    assert_eq!(constraint(db.tables.create_index("t", unique)), "u");
    db.verify();
}

#[test]
fn deferrable_unique_constraint_is_no_target_of_a_foreign_key() {
    let (db, _) = places(Deferral::InitiallyImmediate);
    let key = ForeignKeyDef::new(["a"], "t", ["place"]);
    let refused = db.run(|t| t.create_table(TableDef::new("u").column(int("a")).foreign_key(key)));
    assert!(matches!(refused, Err(TablesError::Definition { .. })));
    let index = IndexDef::on(["id"]).deferral(Deferral::InitiallyDeferred);
    assert!(matches!(db.run(|t| t.create_index("t", index)), Err(TablesError::Definition { .. })));
    let unknown = db.run(|t| t.defer("t", "nothing", true));
    assert!(matches!(unknown, Err(TablesError::UnknownConstraint { .. })));
    assert!(matches!(db.run(|t| t.defer("t", "t_pkey", true)), Err(TablesError::Definition { .. })));
}
