//! SQL and the other models in one commit: [`Session::with_transaction`].

use ropewalk::documents::lang::{Value as Bson, Writer};
use ropewalk::documents::{Collection, DocumentsError, IndexDef};
use ropewalk::series::{Labels, SampleBatch, SeriesStore};
use ropewalk::{AppendOptions, Database, Error, Event, EventStore, Transaction};
use ropewalk_sql::{AdvisoryLimit, Rights, Session, SqlError, Status};

use crate::golden::shown;

struct Shop {
    session: Session,
    orders: EventStore,
    receipts: Collection,
    metrics: SeriesStore,
}

impl Shop {
    fn open() -> Self {
        let db = Database::in_memory().unwrap();
        let (orders, receipts) =
            (db.events("orders").unwrap(), db.documents().collection("shop", "receipts").unwrap());
        receipts.create_index(&IndexDef::on(["n"])).unwrap();
        let metrics = db.series("default").unwrap();
        let mut session = Session::new(db);
        let made = "CREATE TABLE stock (item text PRIMARY KEY, pieces int CHECK (pieces >= 0)); INSERT INTO stock VALUES ('pen', 5)";
        session.execute_all(made).unwrap();
        Self { session, orders, receipts, metrics }
    }

    fn run(&mut self, sql: &str) {
        self.session.execute(sql, &[]).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    fn state(&mut self, sql: &str) -> &'static str {
        self.session.execute(sql, &[]).unwrap_err().state.0
    }

    /// Sells a pen: the stock by SQL, the other models by `work`.
    fn sell(&mut self, number: i32) -> Result<(), SqlError> {
        self.session.execute("UPDATE stock SET pieces = pieces - 1 WHERE item = 'pen'", &[])?;
        let Self { session, orders, receipts, metrics } = self;
        session.with_transaction(|tx| note(tx, orders, receipts, metrics, number))
    }

    fn counts(&mut self) -> String {
        self.counts_with(", (SELECT count(*) FROM metrics.sold)")
    }

    /// All counts except samples: a transaction that wrote samples cannot read them before its commit.
    fn own_counts(&mut self) -> String {
        self.counts_with("")
    }

    fn counts_with(&mut self, more: &str) -> String {
        let sql = format!(
            "SELECT (SELECT pieces FROM stock), (SELECT count(*) FROM shop.receipts), \
             (SELECT count(*) FROM events.orders){more}"
        );
        shown(&self.session.execute(&sql, &[]).unwrap()).concat()
    }
}

fn note(
    tx: &mut Transaction,
    orders: &EventStore,
    receipts: &Collection,
    metrics: &SeriesStore,
    number: i32,
) -> Result<(), SqlError> {
    let mut receipt = Writer::new();
    receipt.put("_id", Bson::Int32(number));
    let inserted = tx.documents().insert_one(receipts, receipt.finish().bytes());
    inserted.map_err(|error: DocumentsError| Error::from(error))?;
    tx.append(orders, &[Event::new("Sold")], AppendOptions::default())?;
    let mut sold = SampleBatch::new();
    sold.push(&Labels::new([("__name__", "sold")]).unwrap(), 1_000 * i64::from(number), 1.0);
    tx.append_samples(metrics, &sold)?;
    Ok(())
}

#[test]
fn d1_10_commit_of_sql_and_other_models_writes_all_of_them() {
    let mut shop = Shop::open();
    shop.run("BEGIN");
    shop.sell(1).unwrap();
    // Later statements read the transaction's own writes; samples are rejected instead.
    assert_eq!(shop.own_counts(), "4|1|1");
    assert_eq!(shop.state("SELECT count(*) FROM metrics.sold"), "55000");
    shop.run("ROLLBACK");
    shop.run("BEGIN");
    shop.sell(1).unwrap();
    shop.run("COMMIT");
    assert_eq!(shop.counts(), "4|1|1|1");
    let commits = shop.session.database().seq();
    shop.run("BEGIN");
    shop.sell(2).unwrap();
    shop.run("COMMIT");
    assert_eq!(shop.session.database().seq().0 - commits.0, 1, "one commit");
}

#[test]
fn d1_10_rollback_takes_back_sql_and_other_models() {
    let mut shop = Shop::open();
    shop.run("BEGIN");
    shop.sell(1).unwrap();
    shop.run("ROLLBACK");
    assert_eq!(shop.counts(), "5|0|0|0");
    // Rolls back to a savepoint of the session; savepoints of `work` nest within it.
    shop.run("BEGIN");
    shop.sell(1).unwrap();
    shop.run("SAVEPOINT one");
    let nested = shop.session.with_transaction(|tx| {
        tx.savepoint();
        Ok::<_, SqlError>(tx.savepoints())
    });
    assert_eq!(nested.unwrap(), 2);
    shop.sell(2).unwrap();
    shop.run("SAVEPOINT two");
    shop.sell(3).unwrap();
    shop.run("ROLLBACK TO two");
    assert_eq!(shop.own_counts(), "3|2|2");
    shop.run("ROLLBACK TO one");
    assert_eq!(shop.own_counts(), "4|1|1");
    // `work` may use up a savepoint of the session.
    shop.sell(4).unwrap();
    assert!(shop.session.with_transaction(|tx| Ok::<_, SqlError>(tx.rollback_to_savepoint())).unwrap());
    assert_eq!(shop.own_counts(), "4|1|1");
    assert_eq!(shop.state("ROLLBACK TO one"), "3B001");
    shop.run("COMMIT");
    assert_eq!(shop.counts(), "5|0|0|0", "a failed transaction");
}

#[test]
fn d1_10_failed_statement_or_work_aborts_the_transaction() {
    let mut shop = Shop::open();
    shop.run("BEGIN");
    shop.sell(1).unwrap();
    assert_eq!(shop.state("UPDATE stock SET pieces = -1"), "23514");
    assert_eq!(shop.sell(2).unwrap_err().state.0, "25P02");
    let refused = shop.session.with_transaction(|_| -> Result<(), SqlError> { panic!("not run") });
    assert_eq!(refused.unwrap_err().state.0, "25P02");
    assert_eq!(shop.session.execute("COMMIT", &[]).unwrap().command, "ROLLBACK");
    assert_eq!(shop.counts(), "5|0|0|0");
    // An error of `work` is returned unchanged, and fails the transaction.
    #[derive(Debug, PartialEq)]
    enum Refusal {
        SoldOut,
        Database,
    }
    impl From<SqlError> for Refusal {
        fn from(_: SqlError) -> Self {
            Self::Database
        }
    }
    shop.run("BEGIN");
    shop.sell(1).unwrap();
    assert_eq!(shop.session.with_transaction(|_| Err::<(), _>(Refusal::SoldOut)), Err(Refusal::SoldOut));
    assert_eq!(shop.session.status(), Status::Failed);
    assert_eq!(shop.state("SELECT 1"), "25P02");
    assert_eq!(shop.session.with_transaction(|_| Ok(())), Err(Refusal::Database));
    shop.run("ROLLBACK");
    assert_eq!(shop.counts(), "5|0|0|0");
}

#[test]
fn d1_10_with_transaction_is_refused_outside_of_begin_and_in_a_read_only_transaction() {
    let mut shop = Shop::open();
    assert_eq!(shop.session.with_transaction(|_| Ok::<_, SqlError>(())).unwrap_err().state.0, "25P01");
    shop.run("BEGIN READ ONLY");
    assert_eq!(shop.session.with_transaction(|_| Ok::<_, SqlError>(())).unwrap_err().state.0, "25006");
    shop.run("ROLLBACK");
    // The rights of the session's user are those of its statements.
    shop.session.act_for(Rights::READ, "ann");
    shop.run("BEGIN");
    assert_eq!(shop.session.with_transaction(|tx| Ok::<_, SqlError>(tx.pending_appends())).unwrap(), 0);
    assert_eq!(shop.state("UPDATE stock SET pieces = 1"), "42501");
    shop.run("ROLLBACK");
}

#[test]
fn d1_10_conflict_of_the_work_is_reported_by_commit() {
    let mut shop = Shop::open();
    let sequence = |event: &str| [Event::new(event)];
    shop.run("BEGIN");
    let orders = shop.orders.clone();
    let seen = shop.session.with_transaction(|tx| {
        tx.read_events(&orders, &ropewalk::Query::all(), ropewalk::events::ReadOptions::default())?;
        tx.append(&orders, &sequence("Sold"), AppendOptions::default())?;
        Ok::<_, SqlError>(())
    });
    seen.unwrap();
    orders.append(&sequence("Other"), None).unwrap();
    assert_eq!(shop.state("COMMIT"), "40001");
    assert_eq!(shop.counts(), "5|0|1|0");
    // At read committed each call of `work` sees the newest commit.
    shop.run("BEGIN ISOLATION LEVEL READ COMMITTED");
    let seq =
        |shop: &mut Shop| shop.session.with_transaction(|tx| Ok::<_, SqlError>(tx.snapshot().seq())).unwrap();
    let before = seq(&mut shop);
    orders.append(&sequence("Other"), None).unwrap();
    assert!(seq(&mut shop) > before);
    shop.run("COMMIT");
}

#[test]
fn transaction_at_an_earlier_commit_reads_all_models_there_and_rejects_writes() {
    let mut shop = Shop::open();
    let sell = |shop: &mut Shop, number| {
        shop.run("BEGIN");
        shop.sell(number).unwrap();
        shop.run("COMMIT");
    };
    sell(&mut shop, 1);
    let seq = shop.session.database().seq();
    sell(&mut shop, 2);
    let earlier = shop.session.database().snapshot_at(seq).unwrap();
    let read = |shop: &mut Shop| {
        shop.session.begin_at(&earlier);
        assert_eq!(shop.counts(), "4|1|1|1");
        let orders = shop.orders.clone();
        let options = ropewalk::events::ReadOptions::default();
        let found = shop.session.with_reads(|tx| {
            let events = tx.read_events(&orders, &ropewalk::Query::all(), options)?;
            Ok::<_, SqlError>((tx.snapshot().seq(), events.count()))
        });
        assert_eq!(found.unwrap(), (seq, 1));
    };
    read(&mut shop);
    assert!(shop.session.submit_commit().unwrap().is_none());
    for write in ["UPDATE stock SET pieces = 1", "CREATE TABLE t (id int)", "SELECT pg_advisory_lock(1)"] {
        read(&mut shop);
        assert_eq!(shop.state(write), "25006", "{write}");
    }
    read(&mut shop);
    let orders = shop.orders.clone();
    let append = |tx: &mut Transaction| -> Result<(), SqlError> {
        Ok(tx.append(&orders, &[Event::new("Sold")], AppendOptions::default())?)
    };
    assert_eq!(shop.session.with_transaction(append).unwrap_err().state.0, "25006");
    read(&mut shop);
    assert_eq!(shop.session.with_reads(append).unwrap_err().state.0, "25006");
    assert!(shop.session.submit_commit().unwrap().is_none());
    assert_eq!(shop.counts(), "3|2|2|2");
}

#[test]
fn advisory_locks_over_the_shared_limit_of_sessions_are_rejected() {
    let db = Database::in_memory().unwrap();
    let limit = AdvisoryLimit::new(2);
    let session = || {
        let session = Session::new(db.clone());
        session.limit_advisory_locks(limit.clone());
        session
    };
    let state = |session: &mut Session, sql: &str| session.execute(sql, &[]).err().map(|error| error.state.0);
    let (mut first, mut second) = (session(), session());
    assert_eq!(state(&mut first, "SELECT pg_advisory_lock(1)"), None);
    assert_eq!(state(&mut first, "SELECT pg_advisory_lock(1)"), None, "the same lock counts once");
    assert_eq!(state(&mut second, "SELECT pg_advisory_lock(2)"), None);
    for sql in ["SELECT pg_advisory_lock(3)", "SELECT pg_try_advisory_xact_lock(3)"] {
        assert_eq!(state(&mut second, sql), Some("53200"), "{sql}");
    }
    // Sessions without the limit are not affected, and the rejected lock is free.
    assert_eq!(state(&mut Session::new(db.clone()), "SELECT pg_advisory_lock(3)"), None);
    drop(first);
    assert_eq!(state(&mut second, "SELECT pg_advisory_lock(3)"), None);
    assert_eq!(state(&mut second, "SELECT pg_advisory_unlock_all()"), None);
    assert_eq!(state(&mut second, "SELECT pg_advisory_lock(4), pg_advisory_lock(5)"), None);
}
