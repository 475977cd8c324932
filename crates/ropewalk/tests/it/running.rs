//! `Database::run`, and observers of transactions.

use std::sync::{Arc, Mutex};

use ropewalk::engine::{Env, KeyspaceOptions};
use ropewalk::events::{ReadOptions, count};
use ropewalk::transaction::{RunOptions, Step};
use ropewalk::{AppendOptions, Database, Durability, Error, Event, Isolation, Options, Query};

#[derive(Debug)]
enum Failure {
    Refused,
    Database(Error),
}

impl<E: Into<Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Database(error.into())
    }
}

#[derive(Debug, Event)]
struct Placed {
    #[event(tag)]
    order: u32,
}

#[test]
fn run_returns_the_value_the_commit_and_the_positions() {
    let db = Database::in_memory().unwrap();
    let (orders, log) = (db.events("orders").unwrap(), db.events("log").unwrap());
    let done = db.run(|tx| {
        tx.publish(&orders, &[Placed { order: 1 }, Placed { order: 2 }])?;
        tx.publish(&log, [&Placed { order: 1 }])?;
        tx.publish(&log, &[] as &[Placed])?;
        Ok::<_, Error>("done")
    });
    let done = done.unwrap();
    assert_eq!((done.value, done.seq()), ("done", Some(db.seq())));
    let positions: Vec<_> = done.appended().iter().map(|a| (a.store.as_str(), a.first.0, a.last.0)).collect();
    assert_eq!(positions, [("orders", 1, 2), ("log", 1, 1)]);
    let tags = orders.read_last(&Query::all()).unwrap().unwrap().event.tags;
    assert_eq!(tags, ["order:2"]);

    let read =
        db.run(|tx| Ok::<_, Error>(tx.read_events(&orders, &Query::all(), ReadOptions::default())?.count()));
    let read = read.unwrap();
    assert_eq!((read.value, read.seq(), read.appended().len()), (2, None, 0));
}

#[test]
fn run_converts_errors_of_all_models_and_writes_nothing_after_one() {
    let db = Database::in_memory().unwrap();
    let orders = db.events("orders").unwrap();
    let refused = db.run(|tx| {
        tx.publish(&orders, &[Placed { order: 1 }])?;
        if orders.head()?.is_none() { Err(Failure::Refused) } else { Ok(()) }
    });
    assert!(matches!(refused, Err(Failure::Refused)));
    let missing = db.run(|tx| -> Result<(), Failure> {
        tx.publish(&orders, &[Placed { order: 1 }])?;
        tx.tables().table("stock")?; // an error of the tables
        Ok(())
    });
    assert!(matches!(missing, Err(Failure::Database(Error::Tables(_)))));
    assert_eq!(orders.head().unwrap(), None);
}

#[test]
fn run_with_options_limits_attempts_and_sets_isolation() {
    let db = Database::in_memory().unwrap();
    let (orders, keys) =
        (db.events("orders").unwrap(), db.keyspace("k", KeyspaceOptions::default()).unwrap());
    let mut runs = 0;
    let options = RunOptions { attempts: 3, ..RunOptions::default() };
    let result = db.run_with(&options, |tx| {
        runs += 1;
        tx.decision(&orders, &count(Query::all()))?;
        orders.append(&[Event::new("Placed")], None)?;
        tx.append(&orders, &[Event::new("Placed")], AppendOptions::default())
    });
    assert!(result.unwrap_err().is_conflict());
    assert_eq!((runs, orders.head().unwrap().unwrap().0), (3, 3));

    // At snapshot isolation a key that was only read may change.
    for (isolation, expected) in [(Isolation::Snapshot, 1), (Isolation::Serializable, 2)] {
        let mut runs = 0;
        let options = RunOptions { isolation, durability: Durability::Buffered, ..RunOptions::default() };
        let done = db.run_with(&options, |tx| {
            runs += 1;
            tx.get(keys, b"read")?;
            if runs == 1 {
                db.put(keys, b"read", &[1], Durability::Buffered)?;
            }
            tx.put(keys, b"written", b"1");
            Ok::<_, Error>(())
        });
        assert!(done.unwrap().seq().is_some());
        assert_eq!(runs, expected, "{isolation:?}");
    }
}

/// A database, and the steps of its transactions as texts.
fn observed() -> (Database, Arc<Mutex<Vec<String>>>) {
    let steps = Arc::new(Mutex::new(Vec::new()));
    let seen = steps.clone();
    let options = Options::new().env(Env::memory()).observer(move |transaction, step| {
        let text = match step {
            Step::Begin { isolation } => format!("{transaction} begins, {isolation:?}"),
            Step::Submit { .. } => format!("{transaction} submits"),
            Step::Commit { seq: Some(_), .. } => format!("{transaction} commits"),
            Step::Commit { seq: None, .. } => format!("{transaction} ends without writes"),
            Step::Conflict { error, .. } => format!("{transaction} conflicts: {}", error.is_conflict()),
            Step::Failure { error, .. } => format!("{transaction} fails: {:?}", error.class()),
            Step::Rollback { .. } => format!("{transaction} rolls back"),
            Step::Retry { attempts_left, .. } => format!("{transaction} is retried, {attempts_left} left"),
            other => format!("{other:?}"),
        };
        seen.lock().unwrap().push(text);
    });
    (options.open("/db").unwrap(), steps)
}

fn taken(steps: &Mutex<Vec<String>>) -> Vec<String> {
    std::mem::take(&mut *steps.lock().unwrap())
}

#[test]
fn observer_sees_each_step_of_a_retried_transaction() {
    let (db, steps) = observed();
    let orders = db.events("orders").unwrap();
    let mut runs = 0;
    let done = db.run(|tx| {
        runs += 1;
        tx.decision(&orders, &count(Query::all()))?;
        if runs == 1 {
            orders.append(&[Event::new("Placed")], None)?;
        }
        tx.append(&orders, &[Event::new("Placed")], AppendOptions::default())
    });
    assert_eq!(done.unwrap().seq(), Some(db.seq()));
    let expected = [
        "1 begins, Serializable",
        "1 submits",
        "1 conflicts: true",
        "1 is retried, 8 left",
        "2 begins, Serializable",
        "2 submits",
        "2 commits",
    ];
    assert_eq!(taken(&steps), expected);
}

#[test]
fn observer_sees_rollbacks_failures_and_commits_without_writes() {
    let (db, steps) = observed();
    let orders = db.events("orders").unwrap();
    drop(db.begin_with(Isolation::Snapshot));
    assert_eq!(taken(&steps), ["1 begins, Snapshot", "1 rolls back"]);
    assert_eq!(db.begin().commit().unwrap(), None);
    assert_eq!(taken(&steps), ["2 begins, Serializable", "2 submits", "2 ends without writes"]);

    let unique = ropewalk::AppendCondition::none_match(Query::all());
    let append = || {
        let mut tx = db.begin();
        let options = AppendOptions::condition(unique.clone());
        tx.append(&orders, &[Event::new("Placed")], options).map(|()| tx)
    };
    // The second transaction fails before its commit is queued, because the first one is visible.
    append().unwrap().commit().unwrap();
    append().unwrap().commit().unwrap_err();
    let expected = ["3 submits", "3 commits", "4 begins, Serializable", "4 submits", "4 fails: Refused"];
    assert_eq!(taken(&steps)[1..], expected);

    // A submitted commit ends when its result is taken.
    let mut tx = db.begin();
    tx.append(&orders, &[Event::new("Placed")], AppendOptions::default()).unwrap();
    let pending = tx.submit_with(Durability::Sync).unwrap().unwrap();
    assert_eq!(taken(&steps), ["5 begins, Serializable", "5 submits"]);
    pending.wait().unwrap();
    assert_eq!(taken(&steps), ["5 commits"]);
    assert!(db.begin().submit_with(Durability::Sync).unwrap().is_none());
    assert_eq!(taken(&steps), ["6 begins, Serializable", "6 submits", "6 ends without writes"]);
}
