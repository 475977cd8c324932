//! Limits of time, size and number: no event, and no flood of them, stops or grows a runner without end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ropewalk::Event;
use ropewalk::engine::Env;
use ropewalk_projector::{Runner, RunnerOptions};
use ropewalk_sql::{PARKED_MAX, ParkedEvent, StoredProjection};

use crate::{COUNTING, COUNTS, Shop, placed};

/// A projection that sets failing events aside, and waits for as long as an event says.
fn waiting() -> Shop {
    let mut shop = Shop::open(&Env::memory()).unwrap();
    shop.run(COUNTS);
    shop.run(
        "CREATE PROJECTION counting FROM EVENTS shop ON ERROR PARK ON 'Placed' DO (
            INSERT INTO counts SELECT event.json->>'kind' || pg_sleep((event.json->>'seconds')::float8), 1)",
    );
    shop
}

fn lasting(kind: &str, seconds: u32) -> Event {
    Event::new("Placed").data(format!(r#"{{"kind":"{kind}","seconds":{seconds}}}"#))
}

#[test]
fn statement_that_runs_too_long_is_a_failure_of_its_event() {
    let mut shop = waiting();
    shop.append(&[lasting("a", 600), lasting("b", 0)]).unwrap();
    let options = RunnerOptions { statement_time: Duration::from_millis(100), ..RunnerOptions::default() };
    Runner::new(shop.db.clone(), options).catch_up().unwrap();
    assert_eq!(shop.run("SELECT position, sqlstate FROM ropewalk_parked_events"), ["1|57014"]);
    assert_eq!((shop.counts(), shop.state()), (vec!["b|1".to_owned()], "live".to_owned()));
}

#[test]
fn stopped_runner_ends_its_statements_without_a_failure() {
    let mut shop = waiting();
    shop.append(&[lasting("a", 600)]).unwrap();
    let running = Runner::new(shop.db.clone(), RunnerOptions::default()).start().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let begun = Instant::now();
    running.stop();
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let relation = "SELECT checkpoint, lag, parked, error FROM ropewalk_projections";
    assert_eq!(shop.run(relation), ["NULL|1|0|NULL"]);
}

#[test]
fn events_of_a_batch_that_exceeds_a_transaction_are_all_applied() {
    let mut shop = Shop::open(&Env::memory()).unwrap();
    shop.run("CREATE TABLE copies (position bigint PRIMARY KEY, body text)");
    shop.run(
        "CREATE PROJECTION copies FROM EVENTS shop ON ERROR PARK ON 'Placed' DO (
            INSERT INTO copies VALUES (event.position, repeat('x', 12000000)))",
    );
    shop.append(&[(); 6].map(|()| placed("a"))).unwrap();
    shop.catch_up_by(6);
    assert_eq!(shop.run("SELECT count(*) FROM copies"), ["6"]);
    assert_eq!(shop.run("SELECT state, checkpoint, parked FROM ropewalk_projections"), ["live|6|0"]);
}

/// A projection that sets failing events aside.
fn parking() -> Shop {
    let mut shop = Shop::open(&Env::memory()).unwrap();
    shop.run(COUNTS);
    shop.run(&COUNTING.replace("ON 'Placed'", "ON ERROR PARK ON 'Placed'"));
    shop
}

#[test]
fn projection_stops_when_too_many_events_are_parked() {
    let mut shop = parking();
    let poison: Vec<Event> = (0..=PARKED_MAX).map(|_| Event::new("Placed")).collect();
    shop.append(&poison).unwrap();
    shop.append(&[placed("a")]).unwrap();
    shop.catch_up_by(5_000);
    let row = shop.run("SELECT state, checkpoint, parked, error FROM ropewalk_projections");
    let expected = format!("failed|{PARKED_MAX}|{PARKED_MAX}|{PARKED_MAX} events are parked");
    assert!(row[0].starts_with(&expected), "{row:?}");
    // With room for one more event, the failing one is parked, too.
    shop.run("ALTER PROJECTION counting SKIP 1");
    shop.run(&format!("ALTER PROJECTION counting RETRY {}", PARKED_MAX + 1));
    shop.catch_up_by(5_000);
    assert_eq!((shop.counts(), shop.state()), (vec!["a|1".to_owned()], "live".to_owned()));
    shop.run("DROP PROJECTION counting");
    assert_eq!(shop.run("SELECT count(*) FROM ropewalk_projection_parked"), ["0"]);
}

#[test]
fn statement_of_a_parked_event_is_cut() {
    let mut shop = Shop::open(&Env::memory()).unwrap();
    shop.run(COUNTS);
    shop.run(&format!(
        "CREATE PROJECTION counting FROM EVENTS shop ON ERROR PARK ON 'Placed' DO (
            INSERT INTO counts VALUES (event.json->>'kind', length('{}')))",
        "é".repeat(5_000)
    ));
    shop.append(&[Event::new("Placed")]).unwrap();
    shop.catch_up();
    let parked = "SELECT sqlstate, octet_length(statement) BETWEEN 4000 AND 4096 FROM ropewalk_parked_events";
    assert_eq!(shop.run(parked), ["23502|t"]);
}

#[test]
fn parked_event_of_a_replaced_generation_is_not_applied_again() {
    let mut shop = parking();
    shop.append(&[placed("a")]).unwrap();
    shop.catch_up();
    shop.run("ALTER PROJECTION counting REBUILD");
    shop.catch_up();
    // As if the process had ended between the switch and the removal of what the first generation had parked.
    let stale = ParkedEvent {
        projection: "counting".to_owned(),
        generation: 1,
        position: 1,
        event_type: "Placed".to_owned(),
        statement: String::new(),
        sqlstate: "23514".to_owned(),
        message: String::new(),
        parked_at: 0,
        wants_retry: true,
    };
    let mut transaction = shop.db.begin();
    stale.put_in(&mut transaction).unwrap();
    transaction.commit().unwrap();
    shop.catch_up();
    assert_eq!((shop.counts(), shop.state()), (vec!["a|1".to_owned()], "live".to_owned()));
    assert_eq!(shop.run("SELECT count(*) FROM ropewalk_projection_parked"), ["0"]);
}

#[test]
fn declaration_that_cannot_be_run_does_not_stop_the_others() {
    let mut shop = parking();
    let damaged = StoredProjection {
        name: "another".to_owned(),
        store: "shop".to_owned(),
        text: "CREATE NOTHING".to_owned(),
        before: None,
        since: Some(1),
        is_paused: false,
        wants_rebuild: false,
        requests: 0,
    };
    let mut transaction = shop.db.begin();
    damaged.put_in(&mut transaction).unwrap();
    transaction.commit().unwrap();
    shop.append(&[placed("a"), placed("a"), placed("a")]).unwrap();
    let reported = Arc::new(Mutex::new(Vec::new()));
    let names = reported.clone();
    let report = Arc::new(move |name: &str, _: &dyn std::error::Error| names.lock().push(name.to_owned()));
    let options = RunnerOptions { batch_events: 1, report, ..RunnerOptions::default() };
    Runner::new(shop.db.clone(), options).catch_up().unwrap();
    assert_eq!(shop.counts(), ["a|3"]);
    assert_eq!(*reported.lock(), ["another"]);
    // It is listed with the others, and neither prevents a new one nor its removal.
    let listed = "SELECT name, state, lag FROM ropewalk_projections ORDER BY name";
    assert_eq!(shop.run(listed), ["another|damaged|NULL", "counting|live|0"]);
    let error = shop.run("SELECT error FROM ropewalk_projections WHERE name = 'another'");
    assert!(error[0].starts_with("XX001: the stored projection cannot be parsed"), "{error:?}");
    shop.run("CREATE TABLE seen (position bigint PRIMARY KEY)");
    shop.run("CREATE PROJECTION seen FROM EVENTS shop ON 'Seen' DO (DELETE FROM seen)");
    shop.run("DROP PROJECTION another");
    assert_eq!(shop.run("SELECT name FROM ropewalk_projections ORDER BY name"), ["counting", "seen"]);
}
