//! Random interleaved transactions against a serial model: a commit has the effect of running alone at that
//! point.
//!
//! Two sessions run interleaved. Each operation runs in the session and, on a copy of the session's initial
//! state, in the model; the results must be equal. At commit a serializable session's operations are run
//! again on the model's newest state: the results must still be equal, or the commit should have been
//! rejected.

use std::collections::BTreeMap;

use proptest::prelude::*;
use ropewalk_tables::{Expr, IndexDef, KeyRange, Table, TableDef, TablesError, TablesTx, Value};
use ropewalk_vfs::Env;

use crate::{Db, Tx, id, int, shown, text};

/// id -> (name, n). `name` is unique, `n` is indexed where it is positive, and `n` must not be 13.
type State = BTreeMap<i64, (Option<String>, Option<i64>)>;

#[derive(Debug, Clone)]
enum Op {
    Insert(i64, Option<u8>, Option<i64>),
    Upsert(i64, Option<u8>, Option<i64>),
    Update(i64, Option<i64>, Option<u8>, i64),
    Delete(i64),
    Get(i64),
    Range(i64, i64, bool, usize),
    ByN(i64, i64, bool),
    Savepoint,
    RollbackTo,
}

#[derive(Debug, Clone)]
enum Step {
    Do(usize, Op),
    Commit(usize),
    Rollback(usize),
    Checkpoint,
    Compact,
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let key = || -4..5_i64;
    let name = || prop::option::of(0..5_u8);
    let n = || prop::option::of(prop_oneof![4 => -3..4_i64, 1 => Just(13)]);
    prop_oneof![
        4 => (key(), name(), n()).prop_map(|(k, s, n)| Op::Insert(k, s, n)),
        2 => (key(), name(), n()).prop_map(|(k, s, n)| Op::Upsert(k, s, n)),
        3 => (key(), prop::option::weighted(0.2, key()), name(), -3..4_i64).prop_map(|(k, to, s, n)| Op::Update(k, to, s, n)),
        2 => key().prop_map(Op::Delete),
        3 => key().prop_map(Op::Get),
        3 => (key(), key(), any::<bool>(), 0..6_usize).prop_map(|(a, b, back, limit)| Op::Range(a, b, back, limit)),
        2 => (1..4_i64, 1..4_i64, any::<bool>()).prop_map(|(a, b, back)| Op::ByN(a, b, back)),
        1 => Just(Op::Savepoint),
        1 => Just(Op::RollbackTo),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (0..2_usize, op()).prop_map(|(session, op)| Step::Do(session, op)),
        4 => (0..2_usize).prop_map(Step::Commit),
        1 => (0..2_usize).prop_map(Step::Rollback),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Compact),
        1 => Just(Step::Reopen),
    ]
}

fn name(number: Option<u8>) -> Option<String> {
    number.map(|n| ["", "a", "b", "a\0", "ab"][usize::from(n)].to_owned())
}

fn show(id: i64, (name, n): &(Option<String>, Option<i64>)) -> String {
    let n = n.map_or("NULL".to_owned(), |n| n.to_string());
    format!("{id} {} {n}", name.as_deref().unwrap_or("NULL"))
}

/// Runs an operation on the model; returns its result.
fn on_model(state: &mut State, savepoints: &mut Vec<State>, op: &Op) -> String {
    let taken = |state: &State, id: i64, name: &Option<String>| {
        name.is_some() && state.iter().any(|(other, row)| *other != id && row.0 == *name)
    };
    match op.clone() {
        Op::Insert(id, s, n) => {
            let row = (name(s), n);
            if state.contains_key(&id) {
                return "unique".into();
            }
            write(state, id, id, row, taken)
        }
        Op::Upsert(id, s, n) => write(state, id, id, (name(s), n), taken),
        Op::Update(id, to, s, n) => {
            if !state.contains_key(&id) {
                return "none".into();
            }
            let to = to.unwrap_or(id);
            if to != id && state.contains_key(&to) {
                return "unique".into();
            }
            write(state, id, to, (name(s), Some(n)), |state, _, name| taken(state, id, name))
        }
        Op::Delete(id) => {
            if state.remove(&id).is_some() {
                "ok".into()
            } else {
                "none".into()
            }
        }
        Op::Get(id) => state.get(&id).map_or("none".into(), |row| show(id, row)),
        Op::Range(a, b, back, limit) => {
            let inside =
                state.iter().filter(|(id, _)| a <= **id && **id <= b).map(|(id, row)| show(*id, row));
            let mut rows: Vec<String> = inside.collect();
            if back {
                rows.reverse();
            }
            rows.truncate(limit);
            rows.join(", ")
        }
        Op::ByN(a, b, back) => {
            let inside = state.iter().filter(|(_, (_, n))| n.is_some_and(|n| n > 0 && a <= n && n <= b));
            let mut rows: Vec<_> = inside.map(|(id, row)| (row.1, *id, show(*id, row))).collect();
            rows.sort();
            if back {
                rows.reverse();
            }
            rows.into_iter().map(|(_, _, row)| row).collect::<Vec<_>>().join(", ")
        }
        Op::Savepoint => {
            savepoints.push(state.clone());
            "ok".into()
        }
        Op::RollbackTo => {
            if let Some(saved) = savepoints.pop() {
                *state = saved;
            }
            "ok".into()
        }
    }
}

fn write(
    state: &mut State,
    from: i64,
    to: i64,
    row: (Option<String>, Option<i64>),
    taken: impl Fn(&State, i64, &Option<String>) -> bool,
) -> String {
    if row.1 == Some(13) {
        return "check".into();
    }
    if taken(state, to, &row.0) {
        return "unique".into();
    }
    state.remove(&from);
    state.insert(to, row);
    "ok".into()
}

fn on_tables(tx: &mut Session, table: &Table, op: &Op) -> String {
    let mark = tx.tx.savepoint();
    match op {
        Op::Savepoint => {
            tx.marks.push(mark);
            return "ok".into();
        }
        Op::RollbackTo => {
            if let Some(mark) = tx.marks.pop() {
                tx.tx.rollback_to(mark);
            }
            return "ok".into();
        }
        _ => {}
    }
    match run(&mut tx.tx.t(), table, op) {
        Ok(answer) => answer,
        Err(TablesError::Unique { .. }) => "unique".into(),
        Err(TablesError::Check { .. }) => "check".into(),
        Err(other) => panic!("{op:?}: {other}"),
    }
}

fn run(t: &mut TablesTx<'_>, table: &Table, op: &Op) -> Result<String, TablesError> {
    let done = |found: bool| if found { "ok".to_owned() } else { "none".to_owned() };
    let row = |id: i64, s: Option<u8>, n: Option<i64>| {
        [("id", id.into()), ("name", name(s).into()), ("n", n.into())]
    };
    Ok(match op.clone() {
        Op::Insert(id, s, n) => t.insert(table, &row(id, s, n)).map(|_| done(true))?,
        Op::Upsert(id, s, n) => t.upsert(table, &row(id, s, n)).map(|_| done(true))?,
        Op::Update(key, to, s, n) => {
            let mut changes: Vec<(&str, Value<'_>)> = vec![("name", name(s).into()), ("n", n.into())];
            changes.extend(to.map(|to| ("id", to.into())));
            done(t.update(table, &id(key), &changes)?)
        }
        Op::Delete(key) => done(t.delete(table, &id(key))?),
        Op::Get(key) => t.get(table, &id(key))?.map_or(done(false), |row| shown(&[row]).join("")),
        Op::Range(a, b, back, limit) => {
            shown(&t.collect(table, &KeyRange::all().from(id(a)).to(id(b)), back, limit)?).join(", ")
        }
        Op::ByN(a, b, back) => {
            shown(&t.collect_index(table, "by_n", &KeyRange::all().from(id(a)).to(id(b)), back, 99)?)
                .join(", ")
        }
        Op::Savepoint | Op::RollbackTo => done(true),
    })
}

struct Session {
    tx: Tx,
    marks: Vec<ropewalk_engine::KvMark>,
    state: State,
    savepoints: Vec<State>,
    history: Vec<(Op, String)>,
}

fn play(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let env = Env::memory();
    let mut db = Db::manual(&env);
    let table = db.create(
        TableDef::new("t")
            .column(int("id"))
            .column(text("name"))
            .column(int("n"))
            .primary_key(["id"])
            .unique(["name"])
            .index(IndexDef::on(["n"]).filter(Expr::column("n").gt(0_i64)).named("by_n"))
            .check("lucky", Expr::column("n").ne(13_i64)),
    );
    let mut sessions: [Option<Session>; 2] = [None, None];
    let mut model = State::new();
    for step in steps {
        match step {
            Step::Do(number, op) => {
                let session = sessions[number].get_or_insert_with(|| Session {
                    tx: db.begin(),
                    marks: Vec::new(),
                    state: model.clone(),
                    savepoints: Vec::new(),
                    history: Vec::new(),
                });
                let expected = on_model(&mut session.state, &mut session.savepoints, &op);
                let answer = on_tables(session, &table, &op);
                prop_assert_eq!(&answer, &expected, "{:?}", op);
                session.history.push((op, answer));
            }
            Step::Commit(number) => {
                let Some(session) = sessions[number].take() else { continue };
                let Session { tx, history, .. } = session;
                let wrote = tx.wrote();
                match tx.commit() {
                    Ok(()) => {
                        let (mut serial, mut savepoints) = (model.clone(), Vec::new());
                        let again: Vec<String> = history
                            .iter()
                            .map(|(op, _)| on_model(&mut serial, &mut savepoints, op))
                            .collect();
                        // A read-only transaction is serial at its snapshot, not now.
                        for ((op, answer), again) in history.iter().zip(again).filter(|_| wrote) {
                            prop_assert_eq!(&again, answer, "{:?} was accepted out of order", op);
                        }
                        if !wrote {
                            continue;
                        }
                        model = serial;
                    }
                    Err(error) => prop_assert!(error.is_conflict(), "{}", error),
                }
                let stored = db.lines(&table);
                let expected: Vec<String> = model.iter().map(|(id, row)| show(*id, row)).collect();
                prop_assert_eq!(stored, expected);
            }
            Step::Rollback(number) => sessions[number] = None,
            Step::Checkpoint => db.engine.checkpoint().unwrap(),
            Step::Compact => db.engine.compact().unwrap(),
            Step::Reopen => {
                sessions = [None, None];
                drop(db);
                db = Db::manual(&env);
            }
        }
    }
    drop(sessions);
    db.verify();
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 2000, ..ProptestConfig::default() })]
    #[test]
    fn serializable_transactions_equal_serial_execution(steps in prop::collection::vec(step(), 1..80)) {
        play(steps)?;
    }
}
