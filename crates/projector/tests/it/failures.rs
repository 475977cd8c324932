//! Events that cannot be applied, with both policies.

use crate::{COUNTING, COUNTS, Shop, placed};

const CHECKED: &str = "CREATE TABLE counts (kind text PRIMARY KEY, n bigint CONSTRAINT small CHECK (n < 3))";

/// A projection whose third order of a kind violates a check.
fn checked(policy: &str) -> Shop {
    let mut shop = Shop::counting();
    shop.run("DROP PROJECTION counting");
    shop.run("DROP TABLE counts");
    shop.run(CHECKED);
    shop.run(&format!(
        "CREATE PROJECTION counting FROM EVENTS shop ON ERROR {policy} ON 'Placed' DO (
            INSERT INTO counts VALUES ('all ' || event.position, 1);
            INSERT INTO counts VALUES (event.json->>'kind', 1) ON CONFLICT (kind) DO UPDATE SET n = counts.n + 1)"
    ));
    shop.append(&[placed("a"), placed("a"), placed("a"), placed("b")]).unwrap();
    shop.catch_up();
    shop
}

#[test]
fn failing_event_stops_projection_until_it_is_retried() {
    let mut shop = checked("STOP");
    assert_eq!(shop.counts(), ["a|2", "all 1|1", "all 2|1"]);
    let row = shop.run("SELECT state, checkpoint, lag, parked, error FROM ropewalk_projections");
    assert!(row[0].starts_with("failed|2|2|0|23514: "), "{row:?}");
    assert!(row[0].contains("statement: INSERT INTO counts VALUES"), "{row:?}");
    shop.catch_up();
    assert_eq!(shop.counts().len(), 3);
    shop.run("ALTER TABLE counts DROP CONSTRAINT small");
    shop.run("ALTER PROJECTION counting RETRY");
    shop.catch_up();
    assert_eq!(shop.counts(), ["a|3", "all 1|1", "all 2|1", "all 3|1", "all 4|1", "b|1"]);
    assert_eq!(shop.state(), "live");
}

#[test]
fn failing_event_is_skipped() {
    let mut shop = checked("STOP");
    assert_eq!(shop.refused("ALTER PROJECTION counting SKIP 2"), "42704");
    shop.run("ALTER PROJECTION counting SKIP 3");
    shop.catch_up();
    assert_eq!(shop.counts(), ["a|2", "all 1|1", "all 2|1", "all 4|1", "b|1"]);
}

#[test]
fn poison_event_is_parked_and_retried() {
    let mut shop = checked("PARK");
    assert_eq!(shop.counts(), ["a|2", "all 1|1", "all 2|1", "all 4|1", "b|1"]);
    assert_eq!(shop.run("SELECT state, checkpoint, parked FROM ropewalk_projections"), ["live|4|1"]);
    let parked = "SELECT projection, position, type, sqlstate, retry FROM ropewalk_parked_events";
    assert_eq!(shop.run(parked), ["counting|3|Placed|23514|f"]);
    let statement = shop.run("SELECT statement FROM ropewalk_parked_events");
    assert!(statement[0].starts_with("INSERT INTO counts VALUES (event.json"), "{statement:?}");

    // Another failure leaves it parked.
    shop.run("ALTER PROJECTION counting RETRY 3");
    assert_eq!(shop.run(parked), ["counting|3|Placed|23514|t"]);
    shop.catch_up();
    assert_eq!(shop.run(parked), ["counting|3|Placed|23514|f"]);
    shop.run("ALTER TABLE counts DROP CONSTRAINT small");
    shop.run("ALTER PROJECTION counting RETRY");
    shop.catch_up();
    assert_eq!(shop.counts(), ["a|3", "all 1|1", "all 2|1", "all 3|1", "all 4|1", "b|1"]);
    assert!(shop.run(parked).is_empty());
}

#[test]
fn many_parked_events_are_retried_in_few_commits() {
    let mut shop = Shop::counting();
    shop.run("DROP PROJECTION counting");
    shop.run("ALTER TABLE counts ADD CONSTRAINT small CHECK (n < 2)");
    shop.run(&COUNTING.replace("ON 'Placed'", "ON ERROR PARK ON 'Placed'"));
    shop.append(&vec![placed("a"); 600]).unwrap();
    shop.catch_up_by(1_000);
    let parked = "SELECT count(*) FROM ropewalk_projection_parked WHERE NOT retry";
    assert_eq!((shop.counts(), shop.run(parked)), (vec!["a|1".to_owned()], vec!["599".to_owned()]));
    // Half of them can be applied.
    shop.run("ALTER TABLE counts DROP CONSTRAINT small");
    shop.run("ALTER TABLE counts ADD CONSTRAINT small CHECK (n <= 300)");
    shop.run("ALTER PROJECTION counting RETRY");
    let before = shop.db.seq().0;
    shop.catch_up_by(1_000);
    let commits = shop.db.seq().0 - before;
    assert!((2..=5).contains(&commits), "{commits} commits");
    assert_eq!((shop.counts(), shop.run(parked)), (vec!["a|300".to_owned()], vec!["300".to_owned()]));
}

#[test]
fn parked_event_is_discarded() {
    let mut shop = checked("PARK");
    assert_eq!(shop.refused("ALTER PROJECTION counting RETRY 4"), "42704");
    shop.run("ALTER PROJECTION counting SKIP 3");
    assert!(shop.run("SELECT * FROM ropewalk_parked_events").is_empty());
    shop.catch_up();
    assert_eq!(shop.counts().len(), 5);
}

#[test]
fn rebuild_parks_again_and_replaces_parked_events() {
    let mut shop = checked("PARK");
    shop.run("ALTER PROJECTION counting REBUILD");
    assert_eq!(shop.state(), "rebuilding");
    shop.catch_up();
    let parked = "SELECT position FROM ropewalk_parked_events";
    assert_eq!((shop.run(parked), shop.state()), (vec!["3".to_owned()], "live".to_owned()));
    assert_eq!(shop.run("SELECT count(*) FROM ropewalk_projection_parked"), ["1"]);
    assert_eq!(shop.counts(), ["a|2", "all 1|1", "all 2|1", "all 4|1", "b|1"]);
}

#[test]
fn dropped_table_fails_the_event_and_its_return_lets_it_continue() {
    let mut shop = Shop::counting();
    shop.run("DROP TABLE counts");
    shop.append(&[placed("a")]).unwrap();
    shop.catch_up();
    assert_eq!(shop.state(), "failed");
    shop.run(COUNTS);
    shop.run("ALTER PROJECTION counting RETRY");
    shop.catch_up();
    assert_eq!((shop.counts(), shop.state()), (vec!["a|1".to_owned()], "live".to_owned()));
}
