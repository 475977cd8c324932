//! Tables and other models in one transaction and one commit.
#![allow(clippy::unwrap_used)] // clippy.toml allows it in test functions, not in their helpers

use std::sync::atomic::{AtomicUsize, Ordering};

use ropewalk::engine::KeyspaceOptions;
use ropewalk::tables::{ColumnDef, IndexDef, KeyRange, TableDef, TablesRead, Type, Value};
use ropewalk::{AppendCondition, AppendOptions, Class, Database, Event, Isolation, Query, Transaction};

fn accounts() -> TableDef {
    TableDef::new("accounts")
        .column(ColumnDef::new("id", Type::INT8))
        .column(ColumnDef::new("balance", Type::INT8).not_null())
        .primary_key(["id"])
}

fn open() -> Database {
    let db = Database::in_memory().unwrap();
    let mut tx = db.begin();
    let table = tx.tables().create_table(accounts()).unwrap();
    for id in 0..4_i64 {
        tx.tables().insert_row(&table, &[id.into(), 100_i64.into()]).unwrap();
    }
    tx.commit().unwrap();
    db
}

fn add(tx: &mut Transaction, id: i64, amount: i64) -> Result<(), ropewalk::Error> {
    let table = tx.tables().table("accounts")?;
    let row = tx.tables().get(&table, &[id.into()])?.unwrap();
    let balance = row.column("balance")?.as_integer().unwrap() + amount;
    tx.tables().update(&table, &[id.into()], &[("balance", balance.into())])?;
    Ok(())
}

#[test]
fn events_rows_and_keys_commit_together_or_not_at_all() {
    let db = open();
    let (events, keys) = (db.events("e").unwrap(), db.keyspace("k", KeyspaceOptions::default()).unwrap());
    let table = db.table("accounts").unwrap();
    let attempt = || {
        let mut tx = db.begin();
        add(&mut tx, 1, -30).unwrap();
        tx.put(keys, b"paid", b"30");
        let guard = AppendCondition::none_match(Query::from_tags(["payment:1"]));
        let paid = Event::new("Paid").tag("payment:1");
        tx.append(&events, &[paid], AppendOptions::condition(guard)).unwrap();
        tx.commit().map(|_| ())
    };
    attempt().unwrap();
    // The event exists the second time, so the row is unchanged.
    assert_eq!(attempt().unwrap_err().class(), Class::Refused);
    let snapshot = db.snapshot();
    let row = snapshot.tables(&db).get(&table, &[1_i64.into()]).unwrap().unwrap();
    assert_eq!(row.column("balance").unwrap(), Value::Int8(70));
    assert!(snapshot.get(keys, b"paid").unwrap().is_some());
    assert_eq!(events.head().unwrap().unwrap().0, 1);
    assert!(db.verify().unwrap().violations.is_empty());
}

#[test]
fn savepoints_cut_rows_definitions_and_events() {
    let db = open();
    let store = db.events("e").unwrap();
    let table = db.table("accounts").unwrap();
    let mut tx = db.begin();
    add(&mut tx, 0, 5).unwrap();
    tx.savepoint();
    add(&mut tx, 0, 50).unwrap();
    tx.tables().create_index("accounts", IndexDef::on(["balance"])).unwrap();
    tx.append(&store, &[Event::new("Lost")], AppendOptions::default()).unwrap();
    assert!(tx.rollback_to_savepoint());
    tx.commit().unwrap();
    let snapshot = db.snapshot();
    let mut at = snapshot.tables(&db);
    assert_eq!(at.get(&table, &[0_i64.into()]).unwrap().unwrap().get(1).unwrap(), Value::Int8(105));
    assert!(at.schema(&table).unwrap().indexes().is_empty());
    assert_eq!(store.head().unwrap(), None);
}

#[test]
fn transfers_keep_the_sum_and_conflicts_are_run_again() {
    for isolation in [Isolation::Serializable, Isolation::Snapshot] {
        let db = open();
        let runs = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4_i64 {
                let (db, runs) = (&db, &runs);
                scope.spawn(move || {
                    for round in 0..50_i64 {
                        db.transact(isolation, usize::MAX, |tx| {
                            runs.fetch_add(1, Ordering::Relaxed);
                            add(tx, (thread + round) % 4, -1)?;
                            add(tx, (thread + round * 3 + 1) % 4, 1)
                        })
                        .unwrap();
                    }
                });
            }
        });
        let table = db.table("accounts").unwrap();
        let snapshot = db.snapshot();
        let rows = snapshot.tables(&db).rows(&table, &KeyRange::all(), 9).unwrap();
        let sum: i64 = rows.iter().map(|row| row.get(1).unwrap().as_integer().unwrap()).sum();
        assert_eq!(sum, 400, "{isolation:?}");
        assert!(runs.into_inner() >= 200);
    }
}

#[test]
fn errors_have_the_documented_class() {
    let db = open();
    let table = db.table("accounts").unwrap();
    let class = |result: Result<(), ropewalk::Error>| result.unwrap_err().class();
    assert_eq!(class(db.table("nobody").map(|_| ())), Class::NotFound);
    assert_eq!(class(db.keyspace("tables", KeyspaceOptions::default()).map(|_| ())), Class::Invalid);
    assert_eq!(class(db.keyspace("tables.x", KeyspaceOptions::default()).map(|_| ())), Class::Invalid);
    let twice = db.transact(Isolation::Serializable, 3, |tx| {
        tx.tables().insert_row(&table, &[1_i64.into(), 1_i64.into()])?;
        Ok(())
    });
    assert_eq!(class(twice), Class::Invalid);
    let mut slow = db.begin();
    add(&mut slow, 2, 1).unwrap();
    db.transact(Isolation::Serializable, 1, |tx| add(tx, 2, 1)).unwrap();
    let error = slow.commit().map(|_| ()).unwrap_err();
    assert!(error.is_conflict());
    assert!(
        error.to_string().starts_with("table \"accounts\", row (id)=(2) was changed by commit"),
        "{error}"
    );
}

#[test]
fn a_transaction_that_only_read_tables_touches_no_log() {
    let db = open();
    let table = db.table("accounts").unwrap();
    for _ in 0..10 {
        let mut tx = db.begin();
        tx.tables().collect(&table, &KeyRange::all(), false, 9).unwrap();
        assert_eq!(tx.commit().unwrap(), None);
    }
}

#[test]
fn a_statement_of_several_operations_reads_one_snapshot_at_read_committed() {
    let db = open();
    let balance = |tx: &mut Transaction| {
        let table = tx.tables().table("accounts").unwrap();
        let row = tx.tables().get(&table, &[1_i64.into()]).unwrap().unwrap();
        row.column("balance").unwrap().as_integer().unwrap()
    };
    let raise = || {
        let mut other = db.begin();
        add(&mut other, 1, 1000).unwrap();
        other.commit().unwrap();
    };
    let mut tx = db.begin_with(Isolation::ReadCommitted);
    tx.begin_statement();
    let read = balance(&mut tx);
    raise();
    assert_eq!(balance(&mut tx), read, "a statement sees one state");
    let table = tx.tables().table("accounts").unwrap();
    tx.tables().update(&table, &[1_i64.into()], &[("balance", (read + 1).into())]).unwrap();
    assert!(tx.commit().unwrap_err().is_conflict(), "the other's change would be lost");
    // The next statement sees what was committed before it.
    let mut tx = db.begin_with(Isolation::ReadCommitted);
    tx.begin_statement();
    assert_eq!(balance(&mut tx), 1100);
    raise();
    tx.begin_statement();
    assert_eq!(balance(&mut tx), 2100);
    add(&mut tx, 1, 1).unwrap();
    tx.commit().unwrap();
}
