//! Changes of declarations: pause, versions, removal, declarations that are refused.

use crate::{COUNTING, Shop, placed};

#[test]
fn paused_projection_applies_nothing_until_it_is_resumed() {
    let mut shop = Shop::counting();
    shop.append(&[placed("a")]).unwrap();
    shop.catch_up();
    shop.run("ALTER PROJECTION counting PAUSE");
    shop.append(&[placed("a"), placed("a")]).unwrap();
    shop.catch_up();
    assert_eq!((shop.counts(), shop.state()), (vec!["a|1".to_owned()], "paused".to_owned()));
    shop.run("ALTER PROJECTION counting RESUME");
    shop.catch_up();
    assert_eq!((shop.counts(), shop.state()), (vec!["a|3".to_owned()], "live".to_owned()));
}

#[test]
fn new_version_is_built_next_to_the_live_one() {
    let mut shop = Shop::counting();
    shop.append(&[placed("a"), placed("b")]).unwrap();
    shop.catch_up();
    shop.run("ALTER TABLE counts ADD COLUMN last bigint");
    let second =
        COUNTING.replace("CREATE", "CREATE OR REPLACE").replace("FROM EVENTS", "VERSION 2 FROM EVENTS");
    let second = second.replace(", 1)", ", 1, event.position)");
    let second = second.replace("counts.n + 1", "counts.n + 1, last = event.position");
    assert_eq!(shop.refused(&second.replace("VERSION 2", "VERSION 1")), "42710");
    shop.run(&second);
    assert_eq!(shop.state(), "rebuilding");
    shop.append(&[placed("a")]).unwrap();
    shop.catch_up();
    let rows = shop.run("SELECT kind, n, last FROM counts ORDER BY kind");
    assert_eq!(rows, ["a|2|3", "b|1|2"]);
    assert_eq!(shop.run("SELECT version, state FROM ropewalk_projections"), ["2|live"]);
    // The same text again changes nothing.
    shop.run(&second);
    assert_eq!(shop.state(), "live");
    let third =
        "CREATE OR REPLACE PROJECTION counting VERSION 3 FROM EVENTS other ON 'A' DO (DELETE FROM counts)";
    assert_eq!(shop.refused(third), "22023");
}

#[test]
fn version_that_was_never_run_is_replaced_at_once() {
    let mut shop = Shop::counting();
    let second =
        COUNTING.replace("CREATE", "CREATE OR REPLACE").replace("FROM EVENTS", "VERSION 2 FROM EVENTS");
    shop.run(&second.replace("n + 1", "n + 10"));
    assert_eq!(shop.state(), "catching_up");
    shop.append(&[placed("a"), placed("a")]).unwrap();
    shop.catch_up();
    assert_eq!(shop.counts(), ["a|11"]);
}

#[test]
fn dropped_projection_leaves_its_table_and_starts_from_the_first_event_again() {
    let mut shop = Shop::counting();
    shop.append(&[placed("a")]).unwrap();
    shop.catch_up();
    shop.run("DROP PROJECTION counting");
    assert_eq!(shop.refused("DROP PROJECTION counting"), "42704");
    shop.run("DROP PROJECTION IF EXISTS counting");
    assert!(shop.run("SELECT * FROM ropewalk_projections").is_empty());
    assert_eq!(shop.counts(), ["a|1"]);
    shop.run(COUNTING);
    shop.catch_up();
    assert_eq!(shop.counts(), ["a|2"]);
}

#[test]
fn declaration_is_part_of_its_transaction() {
    let mut shop = Shop::counting();
    shop.run("BEGIN");
    shop.run("CREATE TABLE other (position bigint PRIMARY KEY)");
    shop.run(
        "CREATE PROJECTION other FROM EVENTS shop ON 'Placed' DO (INSERT INTO other VALUES (event.position))",
    );
    shop.run("ROLLBACK");
    assert_eq!(shop.run("SELECT name FROM ropewalk_projections"), ["counting"]);
}

#[test]
fn declarations_with_mistakes_are_refused() {
    let mut shop = Shop::counting();
    let mut refused = |statement: &str| {
        shop.refused(&format!("CREATE PROJECTION p FROM EVENTS shop ON 'Placed' DO ({statement})"))
    };
    assert_eq!(refused("INSERT INTO nothing VALUES (1)"), "42P01");
    assert_eq!(refused("INSERT INTO counts VALUES (event.size, 1)"), "42703");
    assert_eq!(refused("INSERT INTO counts VALUES (event.type, event.type)"), "42804");
    assert_eq!(refused("INSERT INTO counts VALUES ($1, 1)"), "42P02");
    assert_eq!(refused("SELECT 1"), "0A000");
    assert_eq!(refused("DROP TABLE counts"), "0A000");
    assert_eq!(refused("INSERT INTO counts VALUES"), "42601");
    assert_eq!(refused(""), "42601");
    // The other projection writes the table.
    assert_eq!(refused("DELETE FROM counts"), "55000");
    // The size is checked before the statements are planned.
    let large = format!("DELETE FROM nothing WHERE kind = '{}'", "x".repeat(1 << 20));
    assert_eq!(refused(&large), "54000");
    let into = "CREATE PROJECTION p FROM EVENTS shop INTO other ON 'Placed' DO (DELETE FROM counts)";
    shop.run("CREATE TABLE other (a int)");
    assert_eq!(shop.refused(into), "22023");
    assert_eq!(shop.refused(COUNTING), "42710");
    assert_eq!(shop.refused("ALTER PROJECTION nothing PAUSE"), "42704");
    assert_eq!(
        shop.refused("CREATE PROJECTION p VERSION 0 FROM EVENTS shop ON 'A' DO (DELETE FROM other)"),
        "22023"
    );
}
