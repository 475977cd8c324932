//! A single client never gets a conflict: whatever its transaction wrote and rolled back, it commits.
//!
//! Random statements on tables that refer to each other in all ways, one transaction after the other. A
//! statement may violate a rule, and has no effect then; the transaction continues. Every commit succeeds,
//! and every reference holds afterwards.

use proptest::prelude::*;
use ropewalk_engine::Isolation;
use ropewalk_tables::{Action, DefaultValue, ForeignKeyDef, Table, TableDef, TablesError, TablesTx, Value};
use ropewalk_vfs::Env;

use crate::{Db, Tx, id, int, lines};

#[derive(Debug, Clone)]
enum Op {
    InsertParent(i64, Option<i64>),
    InsertChild(i64, Option<i64>, Option<i64>),
    UpdateParent(i64, i64, Option<i64>),
    UpdateChild(i64, i64, Option<i64>, Option<i64>),
    DeleteParent(i64),
    DeleteChild(i64),
    /// Every row, children first.
    DeleteAll,
    Truncate,
    Savepoint,
    RollbackTo,
    Release,
}

fn op() -> impl Strategy<Value = Op> {
    let key = || 0..3_i64;
    let some = || prop::option::weighted(0.8, 0..3_i64);
    prop_oneof![
        5 => (key(), some()).prop_map(|(k, code)| Op::InsertParent(k, code)),
        5 => (key(), some(), some()).prop_map(|(k, parent, code)| Op::InsertChild(k, parent, code)),
        3 => (key(), key(), some()).prop_map(|(k, to, code)| Op::UpdateParent(k, to, code)),
        3 => (key(), key(), some(), some()).prop_map(|(k, to, parent, code)| Op::UpdateChild(k, to, parent, code)),
        4 => key().prop_map(Op::DeleteParent),
        4 => key().prop_map(Op::DeleteChild),
        1 => Just(Op::DeleteAll),
        1 => Just(Op::Truncate),
        2 => Just(Op::Savepoint),
        1 => Just(Op::RollbackTo),
        1 => Just(Op::Release),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    use Action::{Cascade, NoAction, Restrict, SetDefault, SetNull};
    prop::sample::select(vec![NoAction, Restrict, Cascade, SetNull, SetDefault])
}

fn isolation() -> impl Strategy<Value = Isolation> {
    prop::sample::select(vec![Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted])
}

/// `parents (id primary key, code unique, up)`, where `up` refers to the table itself, and
/// `children (id primary key, parent, code)`, which refer to both keys of parents.
fn family(db: &Db, actions: [Action; 4]) -> (Table, Table) {
    let [deleted, updated, code_deleted, code_updated] = actions;
    let parents = db.create(
        TableDef::new("parents")
            .column(int("id"))
            .column(int("code"))
            .column(int("up"))
            .primary_key(["id"])
            .unique(["code"])
            .foreign_key(ForeignKeyDef::new(["up"], "parents", ["id"]).on_delete(deleted).on_update(updated)),
    );
    let parent = ForeignKeyDef::new(["parent"], "parents", ["id"]).on_delete(deleted).on_update(updated);
    let code = ForeignKeyDef::new(["code"], "parents", ["code"]);
    let children = db.create(
        TableDef::new("children")
            .column(int("id"))
            .column(int("parent").default(DefaultValue::Value(0_i64.into())))
            .column(int("code"))
            .primary_key(["id"])
            .foreign_key(parent)
            .foreign_key(code.on_delete(code_deleted).on_update(code_updated)),
    );
    (parents, children)
}

fn run(t: &mut TablesTx<'_>, (parents, children): (&Table, &Table), op: &Op) -> Result<(), TablesError> {
    let value = |number: Option<i64>| number.map_or(Value::Null, Value::Int8);
    match *op {
        Op::InsertParent(key, code) => {
            let up = Value::Int8(key);
            t.insert_row(parents, &[key.into(), value(code), up]).map(drop)
        }
        Op::InsertChild(key, parent, code) => {
            t.insert_row(children, &[key.into(), value(parent), value(code)]).map(drop)
        }
        Op::UpdateParent(key, to, code) => {
            t.update(parents, &id(key), &[("id", to.into()), ("code", value(code))]).map(drop)
        }
        Op::UpdateChild(key, to, parent, code) => {
            let changes = [("id", to.into()), ("parent", value(parent)), ("code", value(code))];
            t.update(children, &id(key), &changes).map(drop)
        }
        Op::DeleteParent(key) => t.delete(parents, &id(key)).map(drop),
        Op::DeleteChild(key) => t.delete(children, &id(key)).map(drop),
        Op::DeleteAll => {
            for table in [children, parents] {
                for key in 0..3 {
                    t.delete(table, &id(key))?;
                }
            }
            Ok(())
        }
        Op::Truncate => t.truncate_all(&["parents", "children"], false, false).map(drop),
        Op::Savepoint | Op::RollbackTo | Op::Release => Ok(()),
    }
}

fn step(tx: &mut Tx, marks: &mut Vec<ropewalk_engine::KvMark>, tables: (&Table, &Table), op: &Op) {
    match op {
        Op::Savepoint => marks.push(tx.savepoint()),
        Op::RollbackTo => marks.pop().into_iter().for_each(|mark| tx.rollback_to(mark)),
        Op::Release => drop(marks.pop()),
        op => match run(&mut tx.t(), tables, op) {
            Ok(()) | Err(TablesError::Unique { .. } | TablesError::ForeignKey { .. }) => {}
            Err(other) => panic!("{op:?}: {other}"),
        },
    }
}

/// Checks that every child's parent exists.
fn check_references(db: &Db, parents: &Table, children: &Table) -> Result<(), TestCaseError> {
    let column = |lines: &[String], place: usize| -> Vec<String> {
        lines.iter().map(|line| line.split(' ').nth(place).unwrap().to_owned()).collect()
    };
    let (parents, children) = (db.lines(parents), db.lines(children));
    for (refers, to) in [
        (column(&children, 1), column(&parents, 0)),
        (column(&children, 2), column(&parents, 1)),
        (column(&parents, 2), column(&parents, 0)),
    ] {
        for value in refers.iter().filter(|value| *value != "NULL") {
            prop_assert!(to.contains(value), "{:?} refer to {:?}", children, parents);
        }
    }
    Ok(())
}

fn play(actions: [Action; 4], transactions: Vec<(Isolation, Vec<Op>)>) -> Result<(), TestCaseError> {
    let db = Db::manual(&Env::memory());
    let (parents, children) = family(&db, actions);
    for (isolation, ops) in transactions {
        let mut tx = db.begin_with(isolation);
        let mut marks = Vec::new();
        for op in &ops {
            step(&mut tx, &mut marks, (&parents, &children), op);
        }
        let own = [lines(&mut tx.t(), &parents), lines(&mut tx.t(), &children)];
        let committed = tx.commit();
        prop_assert!(committed.is_ok(), "{:?} of {:?} at {:?}", committed, ops, isolation);
        prop_assert_eq!([db.lines(&parents), db.lines(&children)], own);
        check_references(&db, &parents, &children)?;
    }
    db.verify();
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 2000, ..ProptestConfig::default() })]
    #[test]
    fn transactions_of_a_single_client_commit(
        actions in [action(), action(), action(), action()],
        transactions in prop::collection::vec((isolation(), prop::collection::vec(op(), 1..12)), 1..6),
    ) {
        play(actions, transactions)?;
    }
}

#[test]
fn transaction_that_deletes_the_parent_it_referred_to_commits() {
    for isolation in [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted] {
        let ops = vec![
            Op::InsertParent(1, Some(1)),
            Op::InsertChild(1, Some(1), Some(1)),
            Op::DeleteChild(1),
            Op::DeleteParent(1),
        ];
        play([Action::NoAction; 4], vec![(isolation, ops)]).unwrap();
    }
}
