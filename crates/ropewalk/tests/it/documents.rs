//! Documents and other models in one transaction and one commit.
#![allow(clippy::unwrap_used)] // clippy.toml allows it in test functions, not in their helpers

use bson::{Document, doc};
use ropewalk::documents::lang::{Filter, Options, Update, Value};
use ropewalk::documents::{Collection, Find, IndexDef, UpdateSpec};
use ropewalk::tables::{ColumnDef, TableDef, Type};
use ropewalk::{
    AppendCondition, AppendOptions, Class, Database, Durability, Event, Isolation, Query, Transaction,
};

fn bytes(document: &Document) -> Vec<u8> {
    bson::serialize_to_vec(document).unwrap()
}

fn add(tx: &mut Transaction, accounts: &Collection, id: i32, amount: i64) -> Result<(), ropewalk::Error> {
    let change = bytes(&doc! { "$inc": { "balance": amount } });
    let change = ropewalk::documents::lang::Doc::check(&change).unwrap();
    let update = Update::parse(Value::Document(change), None, &Options::default()).unwrap();
    let spec = UpdateSpec::new(Filter::equals("_id", Value::Int32(id)), update);
    assert_eq!(tx.documents().update_one(accounts, &spec)?.matched, 1);
    Ok(())
}

fn open() -> (Database, Collection) {
    let db = Database::in_memory().unwrap();
    let accounts = db.collection("accounts").unwrap();
    accounts.create_index(&IndexDef::on(["balance"])).unwrap();
    let documents: Vec<Vec<u8>> = (0..4).map(|id| bytes(&doc! { "_id": id, "balance": 100_i64 })).collect();
    assert!(accounts.insert_many(&documents, true, Durability::Sync).unwrap().errors.is_empty());
    (db, accounts)
}

fn balances(db: &Database, accounts: &Collection) -> Vec<i64> {
    let found = db.snapshot().documents(db).find(accounts, &Find::all()).unwrap();
    found.iter().map(|document| document.doc().get("balance").unwrap().as_integer().unwrap()).collect()
}

#[test]
fn events_documents_and_rows_commit_together_or_not_at_all() {
    let (db, accounts) = open();
    let events = db.events("e").unwrap();
    let mut tx = db.begin();
    let table = TableDef::new("audit").column(ColumnDef::new("id", Type::INT8)).primary_key(["id"]);
    let table = tx.tables().create_table(table).unwrap();
    tx.commit().unwrap();
    let attempt = |row: i64| {
        let mut tx = db.begin();
        add(&mut tx, &accounts, 1, -30).unwrap();
        tx.tables().insert_row(&table, &[row.into()]).unwrap();
        let guard = AppendCondition::none_match(Query::from_tags(["payment:1"]));
        let paid = Event::new("Paid").tag("payment:1");
        tx.append(&events, &[paid], AppendOptions::condition(guard)).unwrap();
        tx.commit().map(|_| ())
    };
    attempt(1).unwrap();
    // The event exists the second time, so document and row are unchanged.
    assert_eq!(attempt(2).unwrap_err().class(), Class::Refused);
    assert_eq!(balances(&db, &accounts), [100, 70, 100, 100]);
    assert_eq!(events.head().unwrap().unwrap().0, 1);
    let snapshot = db.snapshot();
    assert!(snapshot.tables(&db).get(&table, &[2_i64.into()]).unwrap().is_none());
    // Conversely, when another transaction changes the document, no event is appended.
    let mut tx = db.begin();
    assert!(tx.documents().get(&accounts, Value::Int32(2)).unwrap().is_some());
    tx.append(&events, &[Event::new("Seen")], AppendOptions::default()).unwrap();
    db.transact(Isolation::Serializable, 1, |tx| add(tx, &accounts, 2, 5)).unwrap();
    let error = tx.commit().map(|_| ()).unwrap_err();
    assert_eq!(error.class(), Class::Conflict);
    assert!(error.to_string().starts_with("collection \"accounts\", document 2 was changed by"), "{error}");
    assert_eq!(events.head().unwrap().unwrap().0, 1);
    // Rolled-back writes leave no trace.
    let mut tx = db.begin();
    add(&mut tx, &accounts, 3, 1).unwrap();
    tx.append(&events, &[Event::new("Lost")], AppendOptions::default()).unwrap();
    tx.rollback();
    assert_eq!((balances(&db, &accounts)[3], events.head().unwrap().unwrap().0), (100, 1));
    assert!(db.verify().unwrap().violations.is_empty());
}

#[test]
fn savepoints_cut_documents_and_events() {
    let (db, accounts) = open();
    let store = db.events("e").unwrap();
    let mut tx = db.begin();
    add(&mut tx, &accounts, 0, 5).unwrap();
    tx.savepoint();
    add(&mut tx, &accounts, 0, 50).unwrap();
    tx.documents().insert_one(&accounts, &bytes(&doc! { "_id": 9, "balance": 1 })).unwrap();
    tx.append(&store, &[Event::new("Lost")], AppendOptions::default()).unwrap();
    assert!(tx.rollback_to_savepoint());
    tx.commit().unwrap();
    assert_eq!(balances(&db, &accounts), [105, 100, 100, 100]);
    assert_eq!(store.head().unwrap(), None);
    assert!(db.verify().unwrap().violations.is_empty());
}

#[test]
fn transfers_keep_the_sum_and_conflicts_are_run_again() {
    for isolation in [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted] {
        let (db, accounts) = open();
        std::thread::scope(|scope| {
            for thread in 0..4_i32 {
                let (db, accounts) = (&db, &accounts);
                scope.spawn(move || {
                    for round in 0..40_i32 {
                        db.transact(isolation, usize::MAX, |tx| {
                            add(tx, accounts, (thread + round) % 4, -1)?;
                            add(tx, accounts, (thread + round * 3 + 1) % 4, 1)
                        })
                        .unwrap();
                    }
                });
            }
        });
        assert_eq!(balances(&db, &accounts).iter().sum::<i64>(), 400, "{isolation:?}");
        assert!(db.verify().unwrap().violations.is_empty());
    }
}

#[test]
fn errors_have_the_documented_class() {
    let (db, accounts) = open();
    let class = |result: Result<(), ropewalk::Error>| result.unwrap_err().class();
    assert_eq!(class(db.collection("a$b").map(|_| ())), Class::Invalid);
    assert_eq!(
        class(db.keyspace("documents.catalog", ropewalk::engine::KeyspaceOptions::default()).map(|_| ())),
        Class::Invalid
    );
    let twice = accounts.insert_one(&bytes(&doc! { "_id": 1 }), Durability::Sync).map(|_| ());
    assert_eq!(class(twice.map_err(Into::into)), Class::Invalid);
    assert_eq!(class(accounts.drop_index("nobody").map_err(Into::into)), Class::NotFound);
}
