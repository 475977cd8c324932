//! Statements that need no analytic executor. `cargo test -p ropewalk-sql --no-default-features --test sql_by_key`
//! runs them in a build without it.
#![allow(clippy::unwrap_used, clippy::panic)] // helpers outside of test functions

use ropewalk::documents::lang::{Value as Bson, Writer};
use ropewalk::tables::Value;
use ropewalk::{Database, Durability, Event};
use ropewalk_sql::{Session, to_text};

/// The rows of a statement, values separated by `|`.
fn rows(session: &mut Session, sql: &str) -> Vec<String> {
    let outcome = session.execute(sql, &[]).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let shown = |row: &Vec<Value<'static>>| {
        let values: Vec<String> = row.iter().map(|value| to_text(value).unwrap_or_default()).collect();
        values.join("|")
    };
    outcome.rows.iter().map(shown).collect()
}

fn shop() -> Session {
    let mut session = Session::new(Database::in_memory().unwrap());
    let script = "CREATE TABLE customers (id bigint PRIMARY KEY, name text NOT NULL UNIQUE); \
        CREATE TABLE orders (id bigint PRIMARY KEY, customer bigint NOT NULL REFERENCES customers, cents bigint); \
        CREATE INDEX ON orders (customer); \
        INSERT INTO customers VALUES (1, 'Ann'), (2, 'Bob'), (3, 'Cleo'); \
        INSERT INTO orders VALUES (10, 1, 500), (11, 1, 700), (12, 2, 100)";
    session.execute_all(script).unwrap();
    session
}

#[test]
fn rows_are_read_and_written_by_key() {
    let mut session = shop();
    assert_eq!(rows(&mut session, "SELECT name FROM customers WHERE id = 2"), ["Bob"]);
    assert_eq!(
        rows(&mut session, "UPDATE orders SET cents = cents + 1 WHERE id = 10 RETURNING cents"),
        ["501"]
    );
    let upsert =
        "INSERT INTO customers VALUES (3, 'x') ON CONFLICT (id) DO UPDATE SET name = 'Zoe' RETURNING name";
    assert_eq!(rows(&mut session, upsert), ["Zoe"]);
    assert_eq!(rows(&mut session, "DELETE FROM orders WHERE customer = 2 RETURNING id"), ["12"]);
    assert_eq!(rows(&mut session, "SELECT id FROM orders ORDER BY cents DESC LIMIT 1"), ["11"]);
}

#[test]
fn joins_groups_and_subqueries_run_without_the_engine() {
    let mut session = shop();
    let joined = "SELECT c.name, sum(o.cents) FROM customers c JOIN orders o ON o.customer = c.id \
        GROUP BY c.name HAVING count(*) > 1 ORDER BY c.name";
    assert_eq!(rows(&mut session, joined), ["Ann|1200"]);
    let outer =
        "SELECT c.name, o.id FROM customers c LEFT JOIN orders o ON o.customer = c.id ORDER BY c.name, o.id";
    assert_eq!(rows(&mut session, outer), ["Ann|10", "Ann|11", "Bob|12", "Cleo|"]);
    let none = "SELECT name FROM customers c WHERE NOT EXISTS (SELECT FROM orders o WHERE o.customer = c.id)";
    assert_eq!(rows(&mut session, none), ["Cleo"]);
}

#[test]
fn transaction_over_models_is_one_commit() {
    let mut session = shop();
    let db = session.database().clone();
    let notes = db.documents().collection("shop", "notes").unwrap();
    let mut note = Writer::new();
    note.put("_id", Bson::String("first"));
    notes.insert_one(note.finish().bytes(), Durability::Buffered).unwrap();
    db.events("default").unwrap().append(&[Event::new("Opened").tag("shop:1")], None).unwrap();

    session.execute("BEGIN", &[]).unwrap();
    session.execute("INSERT INTO orders VALUES (13, 3, 900)", &[]).unwrap();
    session.execute("DELETE FROM shop.notes WHERE _id = 'first'", &[]).unwrap();
    assert_eq!(rows(&mut session, "SELECT count(*) FROM shop.notes"), ["0"]);
    session.execute("ROLLBACK", &[]).unwrap();
    assert_eq!(rows(&mut session, "SELECT _id FROM shop.notes"), ["first"]);
    assert_eq!(rows(&mut session, "SELECT type FROM events WHERE 'shop:1' = ANY (tags)"), ["Opened"]);
    assert_eq!(rows(&mut session, "SELECT count(*) FROM orders"), ["3"]);
}

#[cfg(not(feature = "analytic"))]
#[test]
fn statement_for_the_analytic_executor_is_rejected_by_name() {
    let mut session = shop();
    let error = session.execute("CREATE VIEW v AS SELECT name FROM customers", &[]).unwrap_err();
    assert_eq!(error.state.0, "0A000");
    assert!(error.to_string().contains("analytic executor"), "{error}");
}
