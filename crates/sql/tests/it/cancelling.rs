//! Statements that are cancelled, or run out of time, in each executor.

use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use ropewalk::Database;
use ropewalk_sql::{Canceller, Session};

use crate::golden::shown;

/// A statement that runs longer than this counts as not cancellable.
const GUARD: Duration = Duration::from_secs(60);

type Answer = Result<Vec<String>, String>;

fn run(session: &mut Session, sql: &str) -> Answer {
    session.execute(sql, &[]).map(|outcome| shown(&outcome)).map_err(|error| error.state.0.to_owned())
}

/// Runs a statement in a new session on a separate thread.
fn begin(db: &Database, setting: &str, sql: &'static str) -> (Canceller, Receiver<Answer>) {
    let mut session = Session::new(db.clone());
    run(&mut session, setting).unwrap();
    let canceller = session.canceller();
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let _ = sender.send(run(&mut session, sql));
    });
    (canceller, receiver)
}

fn database() -> Database {
    let db = Database::in_memory().unwrap();
    let mut session = Session::new(db.clone());
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, a int)").unwrap();
    run(&mut session, "INSERT INTO t SELECT i, i FROM generate_series(1, 1000) AS s (i)").unwrap();
    db
}

/// Queries that take hours.
const ENDLESS: [&str; 5] = [
    "SELECT count(*) FROM t a, t b, t c, t d WHERE (SELECT u.id FROM t u WHERE u.id = a.id) = b.id + c.id + d.id",
    "SELECT count(*) FROM pg_class a, pg_type b, pg_class c, pg_type d, pg_class e, pg_type f",
    "SELECT (SELECT count(*) FROM t b, t c, t d WHERE b.a + c.a + d.a = a.id AND b.a * c.a <> d.a) FROM t a, pg_class p",
    "WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r, pg_class WHERE n < 100 AND oid > 0) SELECT count(*) FROM r",
    "SELECT count(*) FROM pg_proc a, pg_proc b, pg_proc c, pg_type d WHERE a.proname < b.proname || c.proname AND d.typname IS NULL",
];

#[test]
fn nested_loops_end_with_the_statement_timeout() {
    let db = database();
    for sql in ENDLESS {
        let (_, answer) = begin(&db, "SET statement_timeout = '100ms'", sql);
        let found = answer.recv_timeout(GUARD).unwrap_or_else(|_| panic!("still running: {sql}"));
        assert_eq!(found, Err("57014".to_owned()), "{sql}");
    }
}

#[test]
fn nested_loops_end_when_another_session_cancels_them() {
    let db = database();
    for sql in ENDLESS {
        let (canceller, answer) = begin(&db, "SET statement_timeout = 0", sql);
        thread::sleep(Duration::from_millis(50));
        canceller.cancel();
        let found = answer.recv_timeout(GUARD).unwrap_or_else(|_| panic!("still running: {sql}"));
        assert_eq!(found, Err("57014".to_owned()), "{sql}");
    }
}

/// Waiting statements, more of them than the query engine has threads.
fn sleepers(db: &Database, sql: &'static str) -> Vec<(Canceller, Receiver<Answer>)> {
    let threads = thread::available_parallelism().map_or(1, usize::from) * 2;
    let sleepers: Vec<_> = (0..threads).map(|_| begin(db, "SET statement_timeout = 0", sql)).collect();
    thread::sleep(Duration::from_millis(300));
    sleepers
}

const SLEEPS: &str = "SELECT pg_sleep(600) FROM (VALUES (1)) AS v (n)";
const ANALYSES: &str = "SELECT count(*) FROM (SELECT a % 7 AS k FROM t UNION SELECT 1) AS u";

#[test]
fn waiting_functions_do_not_block_engine_threads() {
    let db = database();
    let sleepers = sleepers(&db, SLEEPS);
    let (_, answer) = begin(&db, "SET statement_timeout = 0", ANALYSES);
    assert_eq!(answer.recv_timeout(GUARD).unwrap(), Ok(vec!["7".to_owned()]));
    for (canceller, _) in &sleepers {
        canceller.cancel();
    }
    for (_, answer) in sleepers {
        assert_eq!(answer.recv_timeout(GUARD).unwrap(), Err("57014".to_owned()));
    }
}

#[test]
fn cancelled_query_stops_waiting_for_a_lock_in_the_engine() {
    let db = database();
    let mut holder = Session::new(db.clone());
    run(&mut holder, "SELECT pg_advisory_lock(7)").unwrap();
    let waiting = sleepers(&db, "SELECT pg_advisory_lock(7) FROM (VALUES (1)) AS v (n)");
    for (canceller, _) in &waiting {
        canceller.cancel();
    }
    for (_, answer) in waiting {
        assert_eq!(answer.recv_timeout(GUARD).unwrap(), Err("57014".to_owned()));
    }
    run(&mut holder, "SELECT pg_advisory_unlock(7)").unwrap();
    // No cancelled waiter takes the lock afterwards.
    let (_, answer) = begin(&db, "SET statement_timeout = 0", "SELECT pg_try_advisory_lock(7)");
    assert_eq!(answer.recv_timeout(GUARD).unwrap(), Ok(vec!["t".to_owned()]));
}

#[test]
fn h8_correlated_subquery_ends_with_the_statement_timeout() {
    let db = Database::in_memory().unwrap();
    let mut session = Session::new(db.clone());
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, a int)").unwrap();
    run(&mut session, "INSERT INTO t SELECT i, i FROM generate_series(1, 40000) AS s (i)").unwrap();
    for sql in [
        "SELECT count(*) FROM t a WHERE (SELECT count(*) FROM t b WHERE b.id < a.id) > 5",
        "SELECT (SELECT count(*) FROM t b WHERE b.id < a.id) FROM t a",
        "SELECT (SELECT max(b.a) FROM t b WHERE b.a < a.a) FROM t a",
        "SELECT repeat('a', 16000000) LIKE '%' || repeat('a', 8000000) || 'b'",
    ] {
        let (_, answer) = begin(&db, "SET statement_timeout = '100ms'", sql);
        let found = answer.recv_timeout(GUARD).unwrap_or_else(|_| panic!("still running: {sql}"));
        assert_eq!(found, Err("57014".to_owned()), "{sql}");
    }
}

/// A million steps, each over a window of many.
const PROMQL: &str =
    "SELECT count(*) FROM promql('quantile_over_time(0.5, vector(1)[4d:1s])', '2026-01-01', '2026-01-06', 1)";

/// Runs [`PROMQL`] outside and inside of a transaction.
fn promql(db: &Database, timeout: &str) -> [(Canceller, Receiver<Answer>); 2] {
    [vec![], vec!["BEGIN"]].map(|before| {
        let mut session = Session::new(db.clone());
        for sql in std::iter::once(timeout).chain(before) {
            run(&mut session, sql).unwrap();
        }
        let canceller = session.canceller();
        let (sender, receiver) = channel();
        thread::spawn(move || {
            let _ = sender.send(run(&mut session, PROMQL));
        });
        (canceller, receiver)
    })
}

#[test]
fn promql_ends_with_the_statement_timeout() {
    for (_, answer) in promql(&database(), "SET statement_timeout = '100ms'") {
        assert_eq!(answer.recv_timeout(GUARD).unwrap(), Err("57014".to_owned()));
    }
}

#[test]
fn promql_ends_when_another_session_cancels_it() {
    let queries = promql(&database(), "SET statement_timeout = 0");
    thread::sleep(Duration::from_millis(50));
    for (canceller, answer) in queries {
        canceller.cancel();
        assert_eq!(answer.recv_timeout(GUARD).unwrap(), Err("57014".to_owned()));
    }
}

#[test]
fn promql_respects_statement_and_shared_memory_limits() {
    let db = database();
    let query =
        "SELECT count(*) FROM promql('sum_over_time(vector(1)[1d:1s])', '2026-01-01', '2026-01-02', 60)";
    let mut session = Session::new(db.clone());
    run(&mut session, "SET work_mem = '64kB'").unwrap();
    assert_eq!(run(&mut session, query), Err("53200".to_owned()));
    run(&mut session, "RESET work_mem").unwrap();
    assert_eq!(run(&mut session, query), Ok(vec!["1441".to_owned()]));
    ropewalk_sql::share_promql_memory(&db, ropewalk::promql::SharedMemory::new(1000));
    assert_eq!(run(&mut session, query), Err("53200".to_owned()));
}
