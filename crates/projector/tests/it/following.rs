//! Batches, live events, rebuilds while events arrive.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ropewalk::events::SequencedEventRef;
use ropewalk::projections::{ApplyError, MaterializedProjection, Output, ProjectionRun, RebuildMode};
use ropewalk::tables::{ColumnDef, TableDef, Type};
use ropewalk::{Event, Query};
use ropewalk_projector::{Runner, RunnerOptions};
use ropewalk_sql::Session;

use crate::{Shop, placed};

/// Waits until a query returns these rows.
fn eventually(shop: &mut Shop, sql: &str, rows: &[&str]) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while shop.run(sql) != rows {
        assert!(Instant::now() < deadline, "{sql}: {:?}", shop.run(sql));
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn events_are_applied_in_batches_then_live() {
    let mut shop = Shop::counting();
    shop.append(&[placed("a"), placed("b"), Event::new("Seen"), placed("a")]).unwrap();
    shop.catch_up();
    assert_eq!(shop.counts(), ["a|2", "b|1"]);
    let relation =
        "SELECT name, version, store, state, checkpoint, head, lag, parked, error FROM ropewalk_projections";
    assert_eq!(shop.run(relation), ["counting|1|shop|live|4|4|0|0|NULL"]);
    // A second run starts after the checkpoint.
    shop.catch_up();
    assert_eq!(shop.counts(), ["a|2", "b|1"]);

    let running = Runner::new(shop.db.clone(), RunnerOptions::default()).start().unwrap();
    for _ in 0..3 {
        shop.append(&[placed("b")]).unwrap();
    }
    eventually(&mut shop, "SELECT n FROM counts ORDER BY kind", &["2", "4"]);
    // A projection that is declared later is followed, too.
    shop.run("CREATE TABLE seen (position bigint PRIMARY KEY)");
    shop.run(
        "CREATE PROJECTION seen FROM EVENTS shop ON 'Seen' DO (INSERT INTO seen VALUES (event.position))",
    );
    eventually(&mut shop, "SELECT position FROM seen", &["3"]);
    running.stop();
    shop.append(&[placed("b")]).unwrap();
    assert_eq!(shop.counts(), ["a|2", "b|4"]);
}

#[test]
fn events_between_commits_of_other_models_are_applied() {
    let mut shop = Shop::counting();
    shop.run("CREATE TABLE other (k int PRIMARY KEY)");
    let running = Runner::new(shop.db.clone(), RunnerOptions::default()).start().unwrap();
    for round in 1..=5 {
        shop.append(&[placed("a")]).unwrap();
        shop.run(&format!("INSERT INTO other VALUES ({round})"));
        let count = round.to_string();
        eventually(&mut shop, "SELECT n FROM counts", &[&count]);
        shop.run(&format!("INSERT INTO other VALUES (-{round})"));
    }
    running.stop();
}

#[test]
fn projection_without_others_starts_soon_after_its_declaration() {
    let mut shop = Shop::counting();
    shop.run("DROP PROJECTION counting");
    let running = Runner::new(shop.db.clone(), RunnerOptions::default()).start().unwrap();
    for _ in 0..100 {
        shop.append(&[placed("a")]).unwrap();
    }
    shop.run(crate::COUNTING);
    eventually(&mut shop, "SELECT n FROM counts", &["100"]);
    let begin = Instant::now();
    running.stop();
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}

#[test]
fn statements_read_all_columns_of_an_event() {
    let mut shop = Shop::counting();
    shop.run("DROP PROJECTION counting");
    shop.run(
        "CREATE TABLE log (position bigint PRIMARY KEY, type text, tags text[], first text, data bytea, json json,
            metadata json, recorded_at timestamptz, day date, id uuid)",
    );
    shop.run(
        "CREATE PROJECTION log FROM EVENTS shop INTO log ON ERROR STOP ON 'Placed', 'Seen' DO (
            INSERT INTO log VALUES (event.position, event.type, event.tags, event.tags[1], event.data, event.json,
                event.metadata, event.recorded_at, event.recorded_at::date, event.id);
            UPDATE log SET type = type || '!' WHERE position = event.position;)",
    );
    shop.append(&[placed("a").tag("x:1").tag("y:2"), Event::new("Seen").data("not json")]).unwrap();
    shop.catch_up();
    let rows = shop.run(
        "SELECT position, type, tags, first, json, id, day = recorded_at::date FROM log ORDER BY position",
    );
    assert_eq!(rows[0], r#"1|Placed!|{x:1,y:2}|x:1|{"kind":"a"}|NULL|t"#);
    assert_eq!(rows[1], "2|Seen!|{}|NULL|NULL|NULL|t");
    let events = shop.run("SELECT position, data, metadata, recorded_at FROM events.shop ORDER BY position");
    assert_eq!(shop.run("SELECT position, data, metadata, recorded_at FROM log ORDER BY position"), events);
}

#[test]
fn readers_see_the_old_or_the_new_rows_during_a_rebuild() {
    let mut shop = Shop::counting();
    let old: Vec<Event> = (0..200).map(|_| placed("a")).collect();
    shop.append(&old).unwrap();
    shop.catch_up_by(10);
    let options = RunnerOptions { batch_events: 10, ..RunnerOptions::default() };
    let running = Runner::new(shop.db.clone(), options).start().unwrap();
    let (db, stops) = (shop.db.clone(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut session = Session::new(db);
            let (mut old, mut new) = (0, 0);
            while !stops.load(Ordering::Relaxed) {
                let rows = session.execute("SELECT n FROM counts", &[]).unwrap().rows;
                let n = rows[0][0].as_integer().unwrap();
                assert_eq!(rows.len(), 1);
                // The new version counts thousands.
                if n >= 1_000 {
                    assert!(n % 1_000 == 0 && (200_000..=300_000).contains(&n), "{n}");
                    new += 1;
                } else {
                    assert!((200..=300).contains(&n) && new == 0, "{n} after {new}");
                    old += 1;
                }
            }
            (old, new)
        });
        shop.run(
            "CREATE OR REPLACE PROJECTION counting VERSION 2 FROM EVENTS shop ON 'Placed' DO (
                INSERT INTO counts VALUES (event.json->>'kind', 1000)
                    ON CONFLICT (kind) DO UPDATE SET n = counts.n + 1000)",
        );
        for _ in 0..100 {
            shop.append(&[placed("a")]).unwrap();
        }
        eventually(&mut shop, "SELECT n FROM counts", &["300000"]);
        eventually(&mut shop, "SELECT version, state FROM ropewalk_projections", &["2|live"]);
        std::thread::sleep(Duration::from_millis(10));
        stops.store(true, Ordering::Relaxed);
        let (_, new) = reader.join().unwrap();
        assert!(new > 0);
    });
    running.stop();
    let tables = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE 'counts%'";
    assert_eq!(shop.run(tables), ["counts"]);
}

/// A projection whose rebuild creates a table that it does not declare.
struct Taking;

impl MaterializedProjection for Taking {
    fn query(&self) -> Query {
        Query::all()
    }

    fn outputs(&self) -> Vec<Output> {
        Vec::new()
    }

    fn prepare(&self, run: &mut ProjectionRun<'_>) -> Result<(), ApplyError> {
        let table = TableDef::new("counts__g2").column(ColumnDef::new("k", Type::INT4)).primary_key(["k"]);
        run.tx().tables().create_table(table)?;
        Ok(())
    }

    fn apply(&self, _: &mut ProjectionRun<'_>, _: &SequencedEventRef<'_>) -> Result<(), ApplyError> {
        Ok(())
    }
}

#[test]
fn rebuild_that_cannot_begin_does_not_delay_live_events() {
    let mut shop = Shop::counting();
    shop.append(&[placed("a")]).unwrap();
    shop.catch_up();
    // The name of the table that the rebuild fills is taken: by another rebuild, because it is reserved.
    assert_eq!(shop.refused("CREATE TABLE counts__g2 (k int PRIMARY KEY)"), "42939");
    let others = shop.db.projections("other").unwrap();
    others.register("taking", Arc::new(Taking)).unwrap();
    others.rebuild("taking", RebuildMode::ForceFullRebuild).unwrap().unwrap();
    shop.run("INSERT INTO counts__g2 VALUES (1)");
    shop.run("ALTER PROJECTION counting REBUILD");
    let running = Runner::new(shop.db.clone(), RunnerOptions::default()).start().unwrap();
    let begun = Instant::now();
    for count in 2..=20 {
        shop.append(&[placed("a")]).unwrap();
        let count = count.to_string();
        eventually(&mut shop, "SELECT n FROM counts", &[&count]);
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(shop.state(), "rebuilding");
    // It is tried again without a further request.
    shop.run("DROP TABLE counts__g2");
    eventually(&mut shop, "SELECT state FROM ropewalk_projections", &["live"]);
    assert_eq!(shop.counts(), ["a|20"]);
    running.stop();
}

#[test]
fn dropped_table_is_not_replaced_by_a_collection_of_its_name() {
    let mut shop = Shop::counting();
    shop.run("CREATE SCHEMA s");
    shop.run("CREATE TABLE s.notes (doc json)");
    shop.run(
        "CREATE PROJECTION notes FROM EVENTS shop ON 'Noted' DO (
            INSERT INTO s.notes (doc) VALUES (event.json))",
    );
    let noted = || Event::new("Noted").data(r#"{"_id":7}"#);
    let running = Runner::new(shop.db.clone(), RunnerOptions::default()).start().unwrap();
    shop.append(&[noted()]).unwrap();
    eventually(&mut shop, "SELECT count(*) FROM s.notes", &["1"]);
    shop.run("DROP TABLE s.notes");
    shop.run("DROP SCHEMA s");
    shop.run(r#"INSERT INTO s.notes (doc) VALUES ('{"_id": 1}')"#);
    shop.append(&[noted()]).unwrap();
    // By a plan made before the table was dropped, and by a new one.
    for again in [false, true] {
        if again {
            shop.run("ALTER PROJECTION notes RETRY");
        }
        eventually(&mut shop, "SELECT state FROM ropewalk_projections WHERE name = 'notes'", &["failed"]);
        let error = shop.run("SELECT error FROM ropewalk_projections WHERE name = 'notes'");
        assert!(error[0].starts_with("42P01: relation \"s.notes\" does not exist"), "{error:?}");
        assert_eq!(shop.run("SELECT count(*) FROM s.notes"), ["1"]);
    }
    running.stop();
    shop.run("ALTER PROJECTION notes RETRY");
    shop.catch_up();
    assert_eq!(shop.run("SELECT count(*) FROM s.notes"), ["1"]);
}

#[test]
fn stopped_runner_leaves_rebuild_to_the_next_one() {
    let mut shop = Shop::counting();
    shop.append(&(0..500).map(|_| placed("a")).collect::<Vec<_>>()).unwrap();
    shop.catch_up_by(100);
    for _ in 0..5 {
        shop.run("ALTER PROJECTION counting REBUILD");
        let options = RunnerOptions { batch_events: 1, ..RunnerOptions::default() };
        let running = Runner::new(shop.db.clone(), options).start().unwrap();
        std::thread::sleep(Duration::from_millis(3));
        running.stop();
        assert_eq!(shop.counts(), ["a|500"]);
    }
    shop.catch_up_by(100);
    assert_eq!((shop.counts(), shop.state()), (vec!["a|500".to_owned()], "live".to_owned()));
}
