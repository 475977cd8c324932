//! Guarantees under concurrent writes, tested at every isolation level.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ropewalk_engine::Isolation;
use ropewalk_tables::{
    Action, DefaultValue, ForeignKeyDef, Identity, IndexDef, KeyRange, TableDef, TablesError, Value,
};

use crate::{Db, id, int, people, person, text};

const LEVELS: [Isolation; 3] = [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted];

#[test]
fn one_of_many_inserts_of_a_key_wins() {
    for level in LEVELS {
        let db = Db::memory();
        let table = db.create(people().unique(["name"]));
        let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let won = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..16_i64 {
                let (db, table, won) = (&db, &table, &won);
                scope.spawn(move || {
                    for (n, name) in names.iter().enumerate() {
                        // Half of them collide in the primary key, half in the unique index.
                        let key = if thread % 2 == 0 { n as i64 } else { 1000 * (thread + 1) + n as i64 };
                        match db.insist(level, |t| t.insert_row(table, &person(key, name, thread))) {
                            Ok(_) => won.fetch_add(1, Ordering::Relaxed),
                            Err(TablesError::Unique { .. }) => 0,
                            Err(other) => panic!("{other}"),
                        };
                    }
                });
            }
        });
        assert_eq!(won.into_inner(), 8, "{level:?}");
        assert_eq!(db.lines(&table).len(), 8);
        db.verify();
    }
}

#[test]
fn children_never_lose_their_parents() {
    for level in LEVELS {
        for action in [Action::NoAction, Action::Cascade, Action::SetNull] {
            let db = Db::memory();
            let parents =
                db.create(TableDef::new("parents").column(int("id")).column(int("n")).primary_key(["id"]));
            let children = db.create(
                TableDef::new("children")
                    .column(int("id").identity(Identity::ByDefault))
                    .column(int("parent"))
                    .primary_key(["id"])
                    .foreign_key(
                        ForeignKeyDef::new(["parent"], "parents", ["id"]).on_delete(action).on_update(action),
                    ),
            );
            std::thread::scope(|scope| {
                for thread in 0..4_i64 {
                    let (db, parents, children) = (&db, &parents, &children);
                    scope.spawn(move || {
                        for round in 0..40_i64 {
                            let parent: Value<'static> = (round % 3).into();
                            // Rejections are expected; `verify` checks for forbidden results.
                            let _ = db.insist(level, |t| match (round + thread) % 4 {
                                0 => t
                                    .upsert(parents, &[("id", parent.clone()), ("n", round.into())])
                                    .map(|_| ()),
                                1 => t.delete(parents, std::slice::from_ref(&parent)).map(|_| ()),
                                2 => t
                                    .update(
                                        parents,
                                        std::slice::from_ref(&parent),
                                        &[("id", (round % 5).into())],
                                    )
                                    .map(|_| ()),
                                _ => t.insert(children, &[("parent", parent.clone())]).map(|_| ()),
                            });
                            let _ = db.insist(level, |t| t.insert(children, &[("parent", parent.clone())]));
                        }
                    });
                }
            });
            db.verify();
        }
    }
}

#[test]
fn parent_update_does_not_conflict_with_child_inserts() {
    let db = Db::memory();
    let parents = db.create(TableDef::new("p").column(int("id")).column(int("n")).primary_key(["id"]));
    let children =
        db.create(TableDef::new("c").column(int("p")).foreign_key(ForeignKeyDef::new(["p"], "p", ["id"])));
    db.run(|t| t.insert_row(&parents, &[1_i64.into(), 0_i64.into()])).unwrap();
    let mut child = db.begin();
    child.t().insert_row(&children, &[1_i64.into()]).unwrap();
    db.run(|t| t.update(&parents, &id(1), &[("n", 5_i64.into())])).unwrap();
    child.commit().unwrap();
    let mut child = db.begin();
    child.t().insert_row(&children, &[1_i64.into()]).unwrap();
    db.run(|t| {
        let rows = t.collect(&children, &KeyRange::all(), false, 9)?;
        t.delete_rows(&rows)?;
        t.delete(&parents, &id(1))
    })
    .unwrap();
    let error = child.commit().unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "table \"p\", row (id)=(1) was changed by commit {} while the transaction ran; retry",
            db.engine.seq()
        )
    );
    db.verify();
}

#[test]
fn index_build_with_concurrent_writers() {
    for level in LEVELS {
        let db = Db::memory();
        let table = db.create(people());
        db.run(|t| (0..2000).try_for_each(|i| t.insert_row(&table, &person(i, "x", i % 10)).map(|_| ())))
            .unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..3_i64 {
                let (db, table, stop) = (&db, &table, &stop);
                scope.spawn(move || {
                    for round in (0_i64..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                        let key = (round * 7 + thread * 661) % 2500;
                        db.insist(level, |t| match round % 3 {
                            0 => t.delete(table, &id(key)).map(|_| ()),
                            1 => t.update(table, &id(key), &[("age", (round % 13).into())]).map(|_| ()),
                            _ => t.upsert(table, &[("id", key.into()), ("age", (-round).into())]).map(|_| ()),
                        })
                        .unwrap();
                    }
                });
            }
            db.tables.create_index("people", IndexDef::on(["age"]).named("ages")).unwrap();
            stop.store(true, Ordering::Relaxed);
        });
        let snapshot = db.engine.snapshot();
        let mut at = db.tables.at(&snapshot);
        let through_index =
            at.collect_index(&table, "ages", &KeyRange::all(), false, usize::MAX).unwrap().len();
        assert_eq!(through_index as u64, at.count(&table, &KeyRange::all()).unwrap());
        db.verify();
    }
}

#[test]
fn index_removed_during_its_build_leaves_no_entries() {
    for truncates in [false, true] {
        let db = Db::memory();
        let table = db.create(people());
        db.run(|t| (0..20_000).try_for_each(|i| t.insert_row(&table, &person(i, "x", i)).map(|_| ())))
            .unwrap();
        let other = db.create(TableDef::new("other").column(text("a")));
        db.run(|t| t.insert(&other, &[("a", "other".into())])).unwrap();
        let is_declared = || {
            let schema = db.tables.schema(&db.engine.snapshot(), &table).unwrap();
            !schema.indexes().is_empty()
        };
        std::thread::scope(|scope| {
            let build = scope.spawn(|| db.tables.create_index("people", IndexDef::on(["age"]).named("ages")));
            while !is_declared() {
                std::thread::yield_now();
            }
            db.insist(Isolation::Serializable, |t| match truncates {
                false => t.drop_index("people", "ages"),
                true => t.truncate("people", false),
            })
            .unwrap();
            db.insist(Isolation::Serializable, |t| t.insert_row(&table, &person(50_000, "x", 1))).unwrap();
            match build.join().unwrap() {
                Ok(()) | Err(TablesError::UnknownIndex { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        });
        db.verify();
    }
}

#[test]
fn unique_index_build_with_duplicates_leaves_no_index() {
    let db = Db::memory();
    let table = db.create(people());
    db.run(|t| {
        t.insert_row(&table, &person(1, "Ann", 5))?;
        t.insert_row(&table, &person(2, "Bob", 5))
    })
    .unwrap();
    let unique = || IndexDef::on(["age"]).unique().named("u");
    assert!(matches!(db.tables.create_index("people", unique()), Err(TablesError::Unique { .. })));
    assert!(matches!(db.run(|t| t.create_index("people", unique())), Err(TablesError::Unique { .. })));
    let snapshot = db.engine.snapshot();
    assert!(db.tables.schema(&snapshot, &table).unwrap().indexes().is_empty());
    db.run(|t| t.update(&table, &id(2), &[("age", 6_i64.into())])).unwrap();
    db.tables.create_index("people", unique()).unwrap();
    assert!(matches!(
        db.run(|t| t.insert_row(&table, &person(3, "Cat", 6))),
        Err(TablesError::Unique { .. })
    ));
    db.verify();
}

#[test]
fn definition_and_row_changes_conflict_with_clear_errors() {
    for level in LEVELS {
        let db = Db::memory();
        let table = db.create(people());
        let mut writer = db.begin_with(level);
        writer.t().insert_row(&table, &person(1, "Ann", 5)).unwrap();
        db.run(|t| t.create_index("people", IndexDef::on(["name"]))).unwrap();
        let error = writer.commit().unwrap_err();
        assert!(
            error.is_conflict() && error.to_string().starts_with(r#"the definition of table "people""#),
            "{error}"
        );
        // The reverse: rows inserted while an index is created.
        let mut definer = db.begin_with(level);
        definer.t().create_index("people", IndexDef::on(["age"])).unwrap();
        db.run(|t| t.insert_row(&table, &person(2, "Bob", 6))).unwrap();
        assert!(definer.commit().unwrap_err().is_conflict());
        let mut definer = db.begin_with(level);
        definer.t().create_table(TableDef::new("x").column(int("a"))).unwrap();
        db.create(TableDef::new("x").column(text("b")));
        let error = definer.commit().unwrap_err();
        assert!(error.is_conflict() && error.to_string().starts_with(r#"the table name "x""#), "{error}");
        // Rows of another table do not conflict.
        let mut writer = db.begin_with(level);
        writer.t().insert_row(&table, &person(3, "Cat", 7)).unwrap();
        db.run(|t| t.add_column("x", int("c").default(DefaultValue::Value(1_i64.into())))).unwrap();
        writer.commit().unwrap();
        db.verify();
    }
}

#[test]
fn identity_numbers_are_unique() {
    let db = Db::memory();
    let table = db.create(TableDef::new("t").column(int("n").identity(Identity::Always)).primary_key(["n"]));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            // It cannot conflict, so it is not retried.
            scope.spawn(|| (0..300).for_each(|_| drop(db.run(|t| t.insert(&table, &[])).unwrap())));
        }
    });
    assert_eq!(db.lines(&table).len(), 1200);
}

#[test]
fn readers_at_snapshots_are_not_disturbed() {
    let db = Db::memory();
    let table = db.create(people().index(IndexDef::on(["age"])));
    db.run(|t| (0..500).try_for_each(|i| t.insert_row(&table, &person(i, "x", 1)).map(|_| ()))).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in (0..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                // Moves one unit from row to row; the sum is constant.
                db.insist(Isolation::Serializable, |t| {
                    t.update(&table, &id(round % 500), &[("age", 0_i64.into())])?;
                    t.update(&table, &id((round + 1) % 500), &[("age", 2_i64.into())])?;
                    t.update(&table, &id(round % 500), &[("age", 1_i64.into())])?;
                    t.update(&table, &id((round + 1) % 500), &[("age", 1_i64.into())])
                })
                .unwrap();
            }
        });
        for round in 0..30 {
            let snapshot = db.engine.snapshot();
            let mut at = db.tables.at(&snapshot);
            if round % 10 == 5 {
                db.engine.checkpoint().unwrap();
            }
            let rows = at.collect(&table, &KeyRange::all(), false, 999).unwrap();
            let sum: i64 = rows.iter().map(|row| row.get(2).unwrap().as_integer().unwrap()).sum();
            assert_eq!(sum, 500);
            let ones = at
                .collect_index(&table, "people_age_idx", &KeyRange::prefix(id(1)), round % 2 == 0, 999)
                .unwrap();
            assert_eq!(ones.len(), 500);
        }
        stop.store(true, Ordering::Relaxed);
    });
    db.verify();
}
