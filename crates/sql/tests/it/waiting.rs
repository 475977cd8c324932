//! Sessions at read committed that wait for each other's row locks.
//!
//! The scripts of `tests/isolation` are like those of `tests/golden`, with several sessions, all at read
//! committed. A statement that has to wait prints `waits`; its result is printed below the statement that
//! ended the wait, after the session's name. No test sleeps: a wait with a time limit expires at once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use ropewalk::Database;
use ropewalk::tables::Value;
use ropewalk_sql::{Outcome, Prepared, Progress, RowWait, Session, SqlError, Status, Zone};

use crate::golden::{answer, check_scripts};

fn session(db: &Database) -> Session {
    let mut session = Session::new(db.clone());
    session.configure("default_transaction_isolation", "read committed").unwrap();
    session
}

struct Actor {
    session: Session,
    waiting: Option<(Prepared, RowWait)>,
}

impl Actor {
    fn run(&mut self, sql: &str) -> Option<Result<Outcome, SqlError>> {
        assert!(self.waiting.is_none(), "the session still waits: {sql}");
        match self.session.prepare(sql) {
            Ok(prepared) => self.go_on(prepared),
            Err(error) => Some(Err(error)),
        }
    }

    /// `None`: the statement waits.
    fn go_on(&mut self, mut prepared: Prepared) -> Option<Result<Outcome, SqlError>> {
        match self.session.submit(&mut prepared, &[]) {
            Ok(Progress::Ran(submitted)) => {
                let committed = submitted.commit.map_or(Ok(()), |commit| commit.wait().map(drop));
                Some(committed.map(|()| submitted.outcome).map_err(SqlError::from))
            }
            Ok(Progress::Waits(wait)) if wait.limit().is_some() => {
                let error = wait.verdict().unwrap_err();
                drop(wait);
                self.session.give_up();
                Some(Err(error))
            }
            Ok(Progress::Waits(wait)) => {
                self.waiting = Some((prepared, wait));
                None
            }
            Err(error) => Some(Err(error)),
        }
    }
}

fn replay(script: &str) -> String {
    let db = Database::in_memory().unwrap();
    let mut actors: BTreeMap<String, Actor> = BTreeMap::new();
    let mut out = Vec::new();
    for record in script.split("\n\n").filter(|record| !record.trim().is_empty()) {
        let mut lines: Vec<&str> = record.trim_matches('\n').lines().collect();
        let mut head = Vec::new();
        while lines.first().is_some_and(|line| line.starts_with('#') || line.starts_with("-- ")) {
            head.push(lines.remove(0));
        }
        let name = head.iter().find_map(|line| line.strip_prefix("-- ")).unwrap_or("main").to_owned();
        out.extend(head.iter().map(|line| (*line).to_owned()));
        if !lines.is_empty() {
            let sql: Vec<&str> = lines.iter().copied().take_while(|line| !line.starts_with("--->")).collect();
            let actor = actors.entry(name).or_insert_with(|| Actor { session: session(&db), waiting: None });
            out.extend(sql.iter().map(|line| (*line).to_owned()));
            match actor.run(&sql.join("\n")) {
                None => out.push("---> waits".into()),
                Some(result) => {
                    let (head, rows) = answer("--->", &result, &Zone::UTC);
                    out.push(head.trim_end().to_owned());
                    out.extend(rows);
                }
            }
            while let Some((name, actor)) = actors
                .iter_mut()
                .find(|(_, actor)| actor.waiting.as_ref().is_some_and(|(_, wait)| wait.is_granted()))
            {
                let (prepared, wait) = actor.waiting.take().unwrap();
                drop(wait);
                match actor.go_on(prepared) {
                    None => out.push(format!("---> {name} waits again")),
                    Some(result) => {
                        let (head, rows) = answer(&format!("---> {name}:"), &result, &Zone::UTC);
                        out.push(head.trim_end().to_owned());
                        out.extend(rows);
                    }
                }
            }
        }
        out.push(String::new());
    }
    assert!(db.engine().locks().is_empty() || actors.values().any(|a| a.session.status() != Status::Idle));
    out.join("\n")
}

#[test]
fn scripts() {
    check_scripts("tests/isolation", replay);
}

fn number(session: &mut Session, sql: &str) -> i64 {
    session.execute(sql, &[]).unwrap().rows[0][0].as_integer().unwrap()
}

#[test]
fn concurrent_updates_of_one_row_all_succeed() {
    const THREADS: usize = 8;
    const TURNS: usize = 150;
    let db = Database::in_memory().unwrap();
    session(&db)
        .execute_all("CREATE TABLE c (id int PRIMARY KEY, n int); INSERT INTO c VALUES (1, 0)")
        .unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let db = &db;
            scope.spawn(move || {
                let mut session = session(db);
                for turn in 0..TURNS {
                    if (thread + turn) % 2 == 0 {
                        session.execute("UPDATE c SET n = n + 1 WHERE id = 1", &[]).unwrap();
                        continue;
                    }
                    session.execute("BEGIN", &[]).unwrap();
                    let before = "SELECT n FROM c WHERE id = 1 FOR UPDATE";
                    let n = session.execute(before, &[]).unwrap().rows[0][0].as_integer().unwrap();
                    let set = "UPDATE c SET n = $1 WHERE id = 1 RETURNING n";
                    let now = session.execute(set, &[Value::Int4(i32::try_from(n).unwrap() + 1)]).unwrap();
                    assert_eq!(now.rows[0][0].as_integer(), Some(n + 1));
                    session.execute("COMMIT", &[]).unwrap();
                }
            });
        }
    });
    assert_eq!(number(&mut session(&db), "SELECT n FROM c"), (THREADS * TURNS) as i64);
    assert!(db.engine().locks().is_empty());
}

#[test]
fn transfers_lose_nothing_and_only_deadlocks_are_run_again() {
    const ACCOUNTS: usize = 6;
    let db = Database::in_memory().unwrap();
    let mut setup = session(&db);
    setup
        .execute_all("CREATE TABLE a (id int PRIMARY KEY, n int CHECK (n >= 0)); INSERT INTO a SELECT i, 100 FROM generate_series(0, 5) AS g (i)")
        .unwrap();
    let (done, deadlocks) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let (db, done, deadlocks) = (&db, &done, &deadlocks);
            scope.spawn(move || {
                let mut session = session(db);
                let mut seed = thread as u64 + 1;
                let mut random = |below: usize| {
                    seed =
                        seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (seed >> 33) as usize % below
                };
                for _ in 0..100 {
                    let (from, to) = (random(ACCOUNTS), random(ACCOUNTS));
                    let transfer = format!(
                        "BEGIN; UPDATE a SET n = n - 1 WHERE id = {from} AND n > 0; \
                         UPDATE a SET n = n + 1 WHERE id = {to}; COMMIT"
                    );
                    loop {
                        match session.execute_all(&transfer) {
                            Ok(outcomes) => {
                                // No account becomes negative; with these amounts no account reaches zero.
                                assert_eq!(outcomes[1].count, Some(1));
                                done.fetch_add(1, Ordering::Relaxed);
                                break;
                            }
                            Err(error) => {
                                assert_eq!(error.state.0, "40P01", "{error}");
                                deadlocks.fetch_add(1, Ordering::Relaxed);
                                let _ = session.execute("ROLLBACK", &[]);
                            }
                        }
                        let all = number(&mut session, "SELECT sum(n) FROM a");
                        assert_eq!(all, 100 * ACCOUNTS as i64);
                    }
                }
            });
        }
    });
    assert_eq!(done.load(Ordering::Relaxed), 600);
    assert_eq!(number(&mut setup, "SELECT sum(n) FROM a"), 100 * ACCOUNTS as i64);
    assert!(db.engine().locks().is_empty());
}

#[test]
fn a_queue_gives_each_job_to_one_worker() {
    let db = Database::in_memory().unwrap();
    let mut setup = session(&db);
    setup
        .execute_all("CREATE TABLE jobs (id int PRIMARY KEY, done int); INSERT INTO jobs SELECT i, 0 FROM generate_series(1, 300) AS g (i)")
        .unwrap();
    std::thread::scope(|scope| {
        for _ in 0..6 {
            let db = &db;
            scope.spawn(move || {
                let mut session = session(db);
                loop {
                    session.execute("BEGIN", &[]).unwrap();
                    let next =
                        "SELECT id FROM jobs WHERE done = 0 ORDER BY id LIMIT 2 FOR UPDATE SKIP LOCKED";
                    let found = session.execute(next, &[]).unwrap().rows;
                    for row in &found {
                        let set = "UPDATE jobs SET done = done + 1 WHERE id = $1";
                        assert_eq!(session.execute(set, &row[..1]).unwrap().count, Some(1));
                    }
                    session.execute("COMMIT", &[]).unwrap();
                    if found.is_empty() {
                        break;
                    }
                }
            });
        }
    });
    assert_eq!(number(&mut setup, "SELECT count(*) FROM jobs WHERE done = 1"), 300);
}

#[test]
fn lock_wait_can_be_cancelled_and_times_out() {
    let db = Database::in_memory().unwrap();
    let (mut ann, mut bob) = (session(&db), session(&db));
    ann.execute_all("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 0)").unwrap();
    ann.execute_all("BEGIN; UPDATE t SET v = 1").unwrap();
    bob.execute("SET lock_timeout = '5ms'", &[]).unwrap();
    let error = bob.execute("UPDATE t SET v = 2 WHERE id = 1", &[]).unwrap_err();
    assert_eq!((error.state.0, error.message.as_str()), ("55P03", "canceling statement due to lock timeout"));
    bob.execute_all("SET lock_timeout = 0; SET statement_timeout = '5ms'").unwrap();
    let error = bob.execute("DELETE FROM t", &[]).unwrap_err();
    assert_eq!(
        (error.state.0, error.message.as_str()),
        ("57014", "canceling statement due to statement timeout")
    );
    bob.execute("SET statement_timeout = 0", &[]).unwrap();
    let canceller = bob.canceller();
    let error = std::thread::scope(|scope| {
        let waits = scope.spawn(|| bob.execute("DELETE FROM t", &[]).unwrap_err());
        while db.engine().locks().iter().all(|lock| lock.is_granted) {
            std::thread::yield_now();
        }
        canceller.cancel();
        waits.join().unwrap()
    });
    assert_eq!((error.state.0, error.message.as_str()), ("57014", "canceling statement due to user request"));
    canceller.reset();
    ann.execute("COMMIT", &[]).unwrap();
    assert_eq!(bob.execute("DELETE FROM t", &[]).unwrap().count, Some(1));
    assert!(db.engine().locks().is_empty());
}

#[test]
fn locks_are_listed_with_the_number_of_their_session() {
    let db = Database::in_memory().unwrap();
    let (mut ann, mut bob, mut zoe) = (session(&db), session(&db), session(&db));
    ann.set_number(71);
    bob.set_number(72);
    ann.execute("CREATE TABLE t (id int PRIMARY KEY)", &[]).unwrap();
    ann.execute("INSERT INTO t VALUES (1), (2), (3)", &[]).unwrap();
    for (session, id) in [(&mut ann, 1), (&mut bob, 2), (&mut zoe, 3)] {
        session.execute("BEGIN", &[]).unwrap();
        session.execute(&format!("SELECT id FROM t WHERE id = {id} FOR UPDATE"), &[]).unwrap();
    }
    let listed = zoe.execute("SELECT pid FROM pg_locks ORDER BY pid", &[]).unwrap();
    assert_eq!(crate::golden::shown(&listed), ["1", "71", "72"]);
    bob.execute("COMMIT", &[]).unwrap();
    let own = ann.execute("SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid()", &[]).unwrap();
    assert_eq!(crate::golden::shown(&own), ["1"]);
}
