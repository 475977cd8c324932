//! Projections into collections of documents.

use std::sync::atomic::{AtomicBool, Ordering};

use ropewalk::Event;
use ropewalk::documents::{Collection, CollectionOptions, IndexDef};
use ropewalk::engine::Env;
use ropewalk_sql::Session;

use crate::{COUNTS, Shop, placed};

/// Counts the orders of each kind in documents `{"_id": kind, "n": number}`.
const ORDERS: &str = "CREATE PROJECTION orders FROM EVENTS shop INTO COLLECTION shop.orders
    ON 'Placed' DO (
        INSERT INTO shop.orders AS o (_id, doc) VALUES (event.json->>'kind', jsonb_build_object('n', 1))
            ON CONFLICT (_id) DO UPDATE SET doc = jsonb_build_object('n', (o.doc->>'n')::bigint + 1))
    ON 'Noted' DO (
        UPDATE shop.orders SET doc = doc::jsonb || jsonb_build_object('note', event.position)
            WHERE _id = event.json->>'kind')
    ON 'Cancelled' DO (DELETE FROM shop.orders WHERE _id = event.json->>'kind')";

fn about(event_type: &str, kind: &str) -> Event {
    Event::new(event_type).data(format!(r#"{{"kind":"{kind}"}}"#))
}

impl Shop {
    /// A database in memory with the projection of orders into documents.
    fn with_orders() -> Self {
        let mut shop = Self::open(&Env::memory()).unwrap();
        shop.run(ORDERS);
        shop
    }

    fn orders(&self) -> Collection {
        self.db.documents().collection("shop", "orders").unwrap()
    }

    fn collections(&self) -> Vec<String> {
        self.db.documents().collections("shop").unwrap()
    }

    fn counted(&mut self) -> Vec<String> {
        self.run("SELECT _id, doc->>'n' FROM shop.orders ORDER BY _id")
    }
}

#[test]
fn events_become_documents() {
    let mut shop = Shop::with_orders();
    assert_eq!(shop.collections(), ["orders"]);
    shop.append(&[placed("a"), placed("b"), placed("a"), placed("c")]).unwrap();
    shop.append(&[about("Noted", "a"), about("Cancelled", "b"), placed("c")]).unwrap();
    shop.catch_up();
    let documents = shop.run("SELECT doc FROM shop.orders ORDER BY _id");
    assert_eq!(documents, [r#"{"_id":"a","n":2,"note":5}"#, r#"{"_id":"c","n":2}"#]);
    assert_eq!(shop.run("SELECT state, checkpoint, lag FROM ropewalk_projections"), ["live|7|0"]);
    // A second run starts after the checkpoint.
    shop.catch_up();
    assert_eq!(shop.counted(), ["a|2", "c|2"]);
    shop.run("DROP PROJECTION orders");
    assert_eq!(shop.counted(), ["a|2", "c|2"]);
}

#[test]
fn readers_see_the_old_or_the_new_documents_during_a_rebuild() {
    let mut shop = Shop::with_orders();
    shop.orders().create_index(&IndexDef::on(["n"])).unwrap();
    shop.append(&(0..100).map(|_| placed("a")).collect::<Vec<_>>()).unwrap();
    shop.catch_up();
    let version =
        ORDERS.replace("CREATE", "CREATE OR REPLACE").replace("FROM EVENTS", "VERSION 2 FROM EVENTS");
    let version = version.replace("'n', 1)", "'n', 1000)").replace("bigint + 1)", "bigint + 1000)");
    shop.run(&version);
    let (db, stops) = (shop.db.clone(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut session = Session::new(db);
            while !stops.load(Ordering::Relaxed) {
                let rows = session.execute("SELECT (doc->>'n')::bigint FROM shop.orders", &[]).unwrap().rows;
                assert_eq!(rows.len(), 1);
                let n = rows[0][0].as_integer().unwrap();
                assert!(n == 100 || n == 100_000, "{n}");
            }
        });
        shop.catch_up();
        stops.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    assert_eq!(shop.counted(), ["a|100000"]);
    assert_eq!(shop.collections(), ["orders"]);
    let definition = shop.orders().definition().unwrap().unwrap();
    let indexes: Vec<&str> = definition.indexes().iter().map(|index| index.name()).collect();
    assert_eq!(indexes, ["n_1"]);
    // The generation that is live now continues.
    shop.append(&[placed("a"), placed("b")]).unwrap();
    shop.catch_up();
    assert_eq!(shop.counted(), ["a|101000", "b|1000"]);
}

#[test]
fn rebuild_of_a_table_and_a_collection_replaces_both() {
    let mut shop = Shop::open(&Env::memory()).unwrap();
    shop.run(COUNTS);
    shop.run(
        "CREATE PROJECTION pair FROM EVENTS shop INTO counts, COLLECTION shop.counts ON 'Placed' DO (
            INSERT INTO counts VALUES (event.json->>'kind', 1) ON CONFLICT (kind) DO UPDATE SET n = counts.n + 1;
            INSERT INTO shop.counts (_id, doc)
                SELECT kind, jsonb_build_object('n', n) FROM counts WHERE kind = event.json->>'kind'
                ON CONFLICT (_id) DO UPDATE SET doc = excluded.doc)",
    );
    shop.append(&[placed("a"), placed("a"), placed("b")]).unwrap();
    shop.catch_up();
    shop.run("ALTER PROJECTION pair REBUILD");
    shop.catch_up();
    assert_eq!(shop.counts(), ["a|2", "b|1"]);
    assert_eq!(shop.run("SELECT _id, doc->>'n' FROM shop.counts ORDER BY _id"), ["a|2", "b|1"]);
}

#[test]
fn table_created_later_does_not_replace_the_collection() {
    let mut shop = Shop::with_orders();
    shop.append(&[placed("a")]).unwrap();
    shop.catch_up();
    shop.run("CREATE SCHEMA shop");
    shop.run("CREATE TABLE shop.orders (_id text PRIMARY KEY, doc json)");
    shop.append(&[placed("b"), about("Noted", "a")]).unwrap();
    shop.catch_up();
    shop.run("ALTER PROJECTION orders REBUILD");
    shop.catch_up();
    assert_eq!(shop.run("SELECT count(*) FROM shop.orders"), ["0"]);
    assert_eq!((shop.orders().estimated_count().unwrap().documents, shop.state()), (2, "live".to_owned()));
}

#[test]
fn dropped_collection_fails_the_event_and_its_return_lets_it_continue() {
    let mut shop = Shop::with_orders();
    shop.append(&[placed("a")]).unwrap();
    shop.catch_up();
    shop.orders().drop_collection().unwrap();
    shop.append(&[placed("b")]).unwrap();
    shop.catch_up();
    let state = shop.run("SELECT state, checkpoint, error FROM ropewalk_projections");
    assert!(state[0].starts_with("failed|1|42P01: collection \"shop.orders\" does not exist"), "{state:?}");
    assert!(shop.collections().is_empty());
    shop.orders().create(CollectionOptions::default()).unwrap();
    shop.run("ALTER PROJECTION orders RETRY");
    shop.catch_up();
    assert_eq!((shop.counted(), shop.state()), (vec!["b|1".to_owned()], "live".to_owned()));
}

#[test]
fn parked_document_is_written_by_a_retry() {
    let mut shop = Shop::open(&Env::memory()).unwrap();
    shop.run(
        "CREATE PROJECTION copies FROM EVENTS shop INTO COLLECTION shop.copies ON ERROR PARK ON 'Placed' DO (
            INSERT INTO shop.copies (_id, doc) VALUES (event.json->>'kind', event.json))",
    );
    shop.append(&[placed("a"), placed("a"), placed("b")]).unwrap();
    shop.catch_up();
    assert_eq!(shop.run("SELECT position, sqlstate FROM ropewalk_parked_events"), ["2|23505"]);
    shop.run("DELETE FROM shop.copies WHERE _id = 'a'");
    shop.run("ALTER PROJECTION copies RETRY 2");
    shop.catch_up();
    assert_eq!(shop.run("SELECT _id FROM shop.copies ORDER BY _id"), ["a", "b"]);
    assert!(shop.run("SELECT * FROM ropewalk_parked_events").is_empty());
}

#[test]
fn outputs_that_are_not_declared_are_refused() {
    let mut shop = Shop::with_orders();
    shop.run("CREATE TABLE other (a int)");
    let insert = "INSERT INTO shop.lines (doc) VALUES (event.json)";
    let mut refused = |into: &str, statement: &str| {
        shop.refused(&format!("CREATE PROJECTION p FROM EVENTS shop {into} ON 'Placed' DO ({statement})"))
    };
    // An unknown collection is created by INTO, not by a statement.
    assert_eq!(refused("", insert), "42P01");
    assert_eq!(refused("INTO COLLECTION shop.fresh", "DELETE FROM shop.nothing"), "42P01");
    assert_eq!(refused("INTO COLLECTION lines", insert), "42601");
    assert_eq!(refused("INTO COLLECTION shop.lines", "INSERT INTO other VALUES (1)"), "22023");
    assert_eq!(refused("INTO other", "DELETE FROM shop.orders"), "22023");
    // Another projection writes it.
    assert_eq!(refused("", "DELETE FROM shop.orders"), "55000");
    // Events and samples cannot be replaced by a rebuild.
    assert_eq!(refused("", "INSERT INTO events.other (type) VALUES ('Copied')"), "0A000");
    assert_eq!(refused("", "INSERT INTO metrics.orders (value) VALUES (1)"), "0A000");
    assert_eq!(shop.collections(), ["orders"]);
    shop.run(&format!(
        "CREATE PROJECTION p FROM EVENTS shop INTO COLLECTION shop.lines ON 'Placed' DO ({insert})"
    ));
    assert_eq!(shop.collections(), ["lines", "orders"]);
}
