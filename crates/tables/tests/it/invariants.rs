//! Random interleaved sessions of every isolation level that write rows and change definitions: whichever
//! commits or is rejected, indexes match their rows, and every child has its parent.

use proptest::prelude::*;
use ropewalk_engine::Isolation;
use ropewalk_tables::{
    Action, DefaultValue, Expr, ForeignKeyDef, Identity, IndexDef, TableDef, TablesError, TablesTx, Value,
};
use ropewalk_vfs::Env;

use crate::{Db, Tx, id, int, text};

#[derive(Debug, Clone)]
enum Op {
    Parent(i64, u8),
    MoveParent(i64, i64),
    DropParent(i64),
    Child(i64, Option<i64>),
    ChangeChild(i64, Option<i64>),
    DropChild(i64),
    Truncate,
    Index(u8),
    DropIndex(u8),
    AddColumn(u8),
    DropColumn(u8),
    AddKey,
    DropKey,
}

#[derive(Debug, Clone)]
enum Step {
    Do(usize, Op),
    Savepoint(usize),
    RollbackTo(usize),
    Commit(usize),
    Checkpoint,
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let key = || 0..4_i64;
    prop_oneof![
        4 => (key(), 0..3_u8).prop_map(|(id, name)| Op::Parent(id, name)),
        2 => (key(), key()).prop_map(|(a, b)| Op::MoveParent(a, b)),
        2 => key().prop_map(Op::DropParent),
        4 => (0..8_i64, prop::option::of(key())).prop_map(|(id, parent)| Op::Child(id, parent)),
        2 => (0..8_i64, prop::option::of(key())).prop_map(|(id, parent)| Op::ChangeChild(id, parent)),
        2 => (0..8_i64).prop_map(Op::DropChild),
        1 => Just(Op::Truncate),
        1 => (0..2_u8).prop_map(Op::Index),
        1 => (0..2_u8).prop_map(Op::DropIndex),
        1 => (0..2_u8).prop_map(Op::AddColumn),
        1 => (0..2_u8).prop_map(Op::DropColumn),
        1 => Just(Op::AddKey),
        1 => Just(Op::DropKey),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let session = || 0..3_usize;
    prop_oneof![
        16 => (session(), op()).prop_map(|(session, op)| Step::Do(session, op)),
        1 => session().prop_map(Step::Savepoint),
        1 => session().prop_map(Step::RollbackTo),
        6 => session().prop_map(Step::Commit),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Reopen),
    ]
}

fn key(action: Action) -> ForeignKeyDef {
    ForeignKeyDef::new(["parent"], "parents", ["id"]).named("of").on_delete(action).on_update(action)
}

fn run(t: &mut TablesTx<'_>, action: Action, op: &Op) -> Result<(), TablesError> {
    let (parents, children) = (t.table("parents")?, t.table("children")?);
    let some = |parent: Option<i64>| -> Value<'static> { parent.into() };
    match op.clone() {
        Op::Parent(key, name) => {
            let name = ["a", "b", "c"][usize::from(name)];
            t.upsert(&parents, &[("id", key.into()), ("name", name.into())]).map(|_| ())
        }
        Op::MoveParent(from, to) => t.update(&parents, &id(from), &[("id", to.into())]).map(|_| ()),
        Op::DropParent(key) => t.delete(&parents, &id(key)).map(|_| ()),
        Op::Child(key, parent) => {
            t.insert(&children, &[("id", key.into()), ("parent", some(parent))]).map(|_| ())
        }
        Op::ChangeChild(key, parent) => {
            t.update(&children, &id(key), &[("parent", some(parent))]).map(|_| ())
        }
        Op::DropChild(key) => t.delete(&children, &id(key)).map(|_| ()),
        Op::Truncate => t.truncate("children", true),
        Op::Index(0) => t.create_index("children", IndexDef::on(["serial", "parent"]).named("i0")),
        Op::Index(_) => {
            let filter = Expr::column("parent").gt(1_i64);
            t.create_index("children", IndexDef::on(["id"]).unique().filter(filter).named("i1"))
        }
        Op::DropIndex(number) => t.drop_index("children", &format!("i{number}")),
        Op::AddColumn(number) => {
            let default = DefaultValue::Value(i64::from(number).into());
            t.add_column("children", int(&format!("c{number}")).default(default))
        }
        Op::DropColumn(number) => t.drop_column("children", &format!("c{number}")),
        Op::AddKey => t.add_foreign_key("children", key(action)),
        Op::DropKey => t.drop_constraint("children", "of"),
    }
}

fn play(isolation: [Isolation; 3], action: Action, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let env = Env::memory();
    let mut db = Db::manual(&env);
    db.create(
        TableDef::new("parents").column(int("id")).column(text("name")).primary_key(["id"]).unique(["name"]),
    );
    db.create(
        TableDef::new("children")
            .column(int("id"))
            .column(int("parent").default(DefaultValue::Value(0_i64.into())))
            .column(int("serial").identity(Identity::ByDefault))
            .primary_key(["id"])
            .foreign_key(key(action)),
    );
    let mut sessions: [Option<(Tx, Vec<crate::Mark>)>; 3] = [None, None, None];
    for step in steps {
        match step {
            Step::Do(number, op) => {
                let (tx, _) =
                    sessions[number].get_or_insert_with(|| (db.begin_with(isolation[number]), Vec::new()));
                if let Err(error) = run(&mut tx.t(), action, &op) {
                    let ours = matches!(error, TablesError::Damaged { .. } | TablesError::Engine(_));
                    prop_assert!(!ours, "{:?}: {}", op, error);
                }
            }
            Step::Savepoint(number) => {
                if let Some((tx, marks)) = &mut sessions[number] {
                    marks.push(tx.savepoint());
                }
            }
            Step::RollbackTo(number) => {
                if let Some((tx, marks)) = &mut sessions[number]
                    && let Some(mark) = marks.pop()
                {
                    tx.rollback_to(mark);
                }
            }
            Step::Commit(number) => {
                let Some((tx, _)) = sessions[number].take() else { continue };
                if let Err(error) = tx.commit() {
                    prop_assert!(error.is_conflict(), "{}", error);
                }
                let report = db.engine.verify().unwrap();
                prop_assert!(report.violations.is_empty(), "{:?}", report.violations);
            }
            Step::Checkpoint => db.engine.checkpoint().unwrap(),
            Step::Reopen => {
                sessions = [None, None, None];
                drop(db);
                db = Db::manual(&env);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, max_shrink_iters: 2000, ..ProptestConfig::default() })]
    #[test]
    fn indexes_and_references_hold_under_random_sessions(
        isolation in prop::array::uniform3(prop::sample::select(vec![
            Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted,
        ])),
        action in prop::sample::select(vec![Action::NoAction, Action::Cascade, Action::SetNull, Action::SetDefault]),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        play(isolation, action, steps)?;
    }
}
