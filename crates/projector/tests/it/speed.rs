//! The rate of catching up, to be run by hand in release.

use std::time::Instant;

use ropewalk::{Database, Event};
use ropewalk_projector::{Runner, RunnerOptions};
use ropewalk_sql::Session;

const EVENTS: usize = 2_000_000;

fn rate(statement: &str) -> f64 {
    let db = Database::in_memory().unwrap();
    let store = db.events("shop").unwrap();
    let mut session = Session::new(db.clone());
    session.execute("CREATE TABLE t (k bigint PRIMARY KEY, n bigint)", &[]).unwrap();
    session
        .execute(&format!("CREATE PROJECTION p FROM EVENTS shop ON 'Placed' DO ({statement})"), &[])
        .unwrap();
    let events: Vec<Event> = (0..10_000).map(|_| Event::new("Placed").data(r#"{"n":7}"#)).collect();
    for _ in 0..EVENTS / events.len() {
        store.append(&events, None).unwrap();
    }
    let start = Instant::now();
    Runner::new(db, RunnerOptions::default()).catch_up().unwrap();
    EVENTS as f64 / start.elapsed().as_secs_f64()
}

#[test]
#[ignore = "a measurement"]
fn catch_up_rate() {
    for statement in [
        "INSERT INTO t VALUES (event.position, 1)",
        "INSERT INTO t VALUES (event.position % 100, 1) ON CONFLICT (k) DO UPDATE SET n = t.n + 1",
        "INSERT INTO t VALUES (event.position, (event.json->>'n')::int)",
    ] {
        println!("{:.0} events/s: {statement}", rate(statement));
    }
}
