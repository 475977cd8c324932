//! Sessions as code: parameters, prepared statements, plans that follow definitions, several statements, limits, threads.

use std::thread;

use ropewalk::tables::{Type, Value};
use ropewalk::{Database, Isolation};
use ropewalk_sql::{Session, Settings, Status, TempFileLimits};

use crate::golden::shown;

fn session() -> Session {
    Session::new(Database::in_memory().unwrap())
}

fn rows(session: &mut Session, sql: &str, params: &[Value<'_>]) -> Vec<String> {
    shown(&session.execute(sql, params).unwrap())
}

fn code(session: &mut Session, sql: &str, params: &[Value<'_>]) -> &'static str {
    session.execute(sql, params).unwrap_err().state.0
}

#[test]
fn statement_that_may_wait_is_not_brief() {
    let mut s = session();
    s.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", &[]).unwrap();
    for sql in [
        "SELECT v FROM t WHERE id = 1",
        "INSERT INTO t VALUES (1, 'a') ON CONFLICT (id) DO UPDATE SET v = 'b'",
        "UPDATE t SET v = 'a' WHERE id = 1",
        "DELETE FROM t WHERE id = 1 RETURNING v",
        "INSERT INTO shop.c (doc) VALUES ('{}')",
        "INSERT INTO events (type) VALUES ('A')",
        "SELECT append_event('A', ARRAY['a'], '')",
        "SELECT pg_notify('c', 'x')",
    ] {
        assert!(s.prepare(sql).unwrap().is_brief(), "{sql}");
    }
    for sql in [
        "SELECT pg_sleep(1)",
        "SELECT 1 WHERE pg_sleep(1) = ''",
        "SELECT v FROM t WHERE id = 1 AND pg_sleep(1) = ''",
        "SELECT v FROM t WHERE id = 1 LIMIT length(pg_sleep(1))",
        "SELECT max(pg_sleep(1)) FROM t WHERE id = 1",
        "INSERT INTO t VALUES (1, pg_sleep(1))",
        "INSERT INTO t VALUES (1, 'a') RETURNING pg_sleep(1)",
        "INSERT INTO t VALUES (1, 'a') ON CONFLICT (id) DO UPDATE SET v = pg_sleep(1)",
        "UPDATE t SET v = pg_sleep(1) WHERE id = 1",
        "UPDATE t SET v = 'a' WHERE id = 1 RETURNING pg_advisory_lock(1)",
        "DELETE FROM t WHERE id = 1 AND pg_advisory_lock(1) = ''",
        "INSERT INTO metrics.load (value, host) VALUES (1, pg_sleep(1))",
        "INSERT INTO shop.c (_id, doc) VALUES (pg_sleep(1), '{}')",
        "INSERT INTO shop.c (_id, doc) VALUES ('a', '{}') RETURNING pg_sleep(1)",
        "INSERT INTO events (type) VALUES (pg_sleep(1))",
        "SELECT append_event('A', ARRAY['a'], '') WHERE pg_sleep(1) = ''",
        "SELECT pg_notify('c', pg_sleep(1))",
    ] {
        assert!(!s.prepare(sql).unwrap().is_brief(), "{sql}");
    }
}

#[test]
fn statement_with_large_values_is_not_brief() {
    let mut s = session();
    s.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", &[]).unwrap();
    let large = "x".repeat(100_000);
    for sql in [
        format!("INSERT INTO t VALUES (1, '{large}')"),
        format!("UPDATE t SET v = lower('{large}') WHERE id = 1"),
        format!("INSERT INTO shop.c (doc) VALUES ('[\"{large}\"]')"),
    ] {
        assert!(!s.prepare(&sql).unwrap().is_brief());
    }
    let insert = s.prepare("INSERT INTO shop.c (_id, doc) VALUES ($1, '{}')").unwrap();
    assert!(insert.is_brief_with(&[Value::text("a")]));
    assert!(!insert.is_brief_with(&[Value::text(large)]));
}

#[test]
fn row_locks_are_rejected_where_neither_locks_nor_reads_hold() {
    let db = Database::in_memory().unwrap();
    let mut s = Session::new(db.clone());
    s.execute_all("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1), (2, 2)").unwrap();
    for sql in [
        "SELECT v FROM t WHERE id = 1 FOR UPDATE",
        "UPDATE t SET v = 0 WHERE id = (SELECT id FROM t ORDER BY id LIMIT 1 FOR UPDATE)",
        "WITH first AS (SELECT id FROM t ORDER BY id LIMIT 1 FOR UPDATE) SELECT * FROM first",
        "SELECT * FROM (SELECT id FROM t FOR SHARE) AS s",
    ] {
        s.execute("BEGIN ISOLATION LEVEL REPEATABLE READ", &[]).unwrap();
        assert_eq!(code(&mut s, sql, &[]), "0A000", "{sql}");
        s.execute("ROLLBACK", &[]).unwrap();
        for (isolation, expected) in [
            (Isolation::Serializable, None),
            (Isolation::Snapshot, Some("0A000")),
            (Isolation::ReadCommitted, Some("0A000")),
        ] {
            let mut transaction = db.begin_with(isolation);
            let mut prepared = s.prepare(sql).unwrap();
            let done = s.execute_in(&mut transaction, &mut prepared, &[]);
            assert_eq!(done.err().map(|error| error.state.0), expected, "{isolation:?} {sql}");
        }
    }
}

#[test]
fn parameters_take_their_types_from_the_context() {
    let mut s = session();
    s.execute("CREATE TABLE t (id bigint PRIMARY KEY, n numeric, d date, j json, tags text[])", &[]).unwrap();
    let insert = s.prepare("INSERT INTO t VALUES ($1, $2, $3, $4, $5)").unwrap();
    let array = Type::TEXT.array();
    assert_eq!(insert.parameters(), [Type::INT8, Type::NUMERIC, Type::DATE, Type::JSON, array]);
    let mut insert = insert;
    // Text parameters are read as the required type; numbers widen.
    let texts = ["1", "1.50", "2024-02-29", "{\"a\":1}", "{x,y}"].map(Value::text);
    s.run(&mut insert, &texts).unwrap();
    s.run(&mut insert, &[Value::Int4(2), Value::Int4(7), Value::Null, Value::Null, Value::Null]).unwrap();
    assert_eq!(
        rows(&mut s, "SELECT * FROM t", &[]),
        ["1|1.50|2024-02-29|{\"a\":1}|{x,y}", "2|7|NULL|NULL|NULL"]
    );
    assert_eq!(
        rows(&mut s, "SELECT id FROM t WHERE id = $1 OR n > $2", &[Value::Int8(9), Value::text("1.4")]),
        ["1", "2"]
    );
    assert_eq!(rows(&mut s, "SELECT id FROM t WHERE id = ANY ($1)", &[Value::text("{2,3}")]), ["2"]);
    assert_eq!(
        rows(&mut s, "SELECT $1 || 'x', $2::int + 1", &[Value::text("a"), Value::text("41")]),
        ["ax|42"]
    );
    assert_eq!(code(&mut s, "SELECT id FROM t WHERE id = $1", &[Value::text("x")]), "22P02");
    assert_eq!(code(&mut s, "SELECT id FROM t WHERE id = $1", &[]), "42P02");
    assert_eq!(code(&mut s, "SELECT id FROM t WHERE id = $1", &[Value::Bool(true)]), "42804");
    assert_eq!(code(&mut s, "SELECT $0", &[]), "42P02");
    assert_eq!(code(&mut s, "SELECT $99999999", &[]), "42P02");
}

#[test]
fn a_prepared_statement_follows_the_definitions() {
    let mut s = session();
    s.execute("CREATE TABLE t (id int PRIMARY KEY, a int)", &[]).unwrap();
    s.execute("INSERT INTO t VALUES (1, 10), (2, 20)", &[]).unwrap();
    let mut get = s.prepare("SELECT * FROM t WHERE id = $1").unwrap();
    let one = [Value::Int4(1)];
    assert_eq!(shown(&s.run(&mut get, &one).unwrap()), ["1|10"]);
    s.execute("ALTER TABLE t ADD COLUMN b text DEFAULT 'new'", &[]).unwrap();
    assert_eq!(shown(&s.run(&mut get, &one).unwrap()), ["1|10|new"]);
    // Also in a transaction that changes the table itself, and after its rollback.
    s.execute("BEGIN", &[]).unwrap();
    s.execute("ALTER TABLE t DROP COLUMN a", &[]).unwrap();
    assert_eq!(shown(&s.run(&mut get, &one).unwrap()), ["1|new"]);
    s.execute("ROLLBACK", &[]).unwrap();
    assert_eq!(shown(&s.run(&mut get, &one).unwrap()), ["1|10|new"]);
    s.execute("ALTER TABLE t RENAME TO u", &[]).unwrap();
    assert_eq!(s.run(&mut get, &one).unwrap_err().state.0, "42P01");
    s.execute("CREATE TABLE t (id int PRIMARY KEY)", &[]).unwrap();
    assert_eq!(shown(&s.run(&mut get, &one).unwrap()), [""; 0]);
    s.execute("INSERT INTO t VALUES (1)", &[]).unwrap();
    assert_eq!(shown(&s.run(&mut get, &one).unwrap()), ["1"]);
    assert_eq!(get.columns().unwrap().len(), 1);
}

#[test]
fn lookup_by_key_returns_the_same_as_other_reads() {
    let mut s = session();
    s.execute("CREATE TABLE t (a text, b int, v int, PRIMARY KEY (a, b))", &[]).unwrap();
    s.execute("INSERT INTO t VALUES ('x', 1, 10), ('x', 2, NULL), ('', -1, 5)", &[]).unwrap();
    let by_key = "SELECT v FROM t WHERE a = $1 AND b = $2 AND v > 5";
    assert_eq!(rows(&mut s, by_key, &[Value::text("x"), Value::Int4(1)]), ["10"]);
    assert_eq!(rows(&mut s, by_key, &[Value::text("x"), Value::Int4(2)]), [""; 0]);
    assert_eq!(rows(&mut s, by_key, &[Value::text(""), Value::Int4(-1)]), [""; 0]);
    assert_eq!(rows(&mut s, by_key, &[Value::Null, Value::Int4(1)]), [""; 0]);
    assert_eq!(rows(&mut s, "SELECT v + 1 FROM t WHERE b = 1 AND a = 'x'", &[]), ["11"]);
    s.execute("BEGIN", &[]).unwrap();
    s.execute("UPDATE t SET v = 11 WHERE a = 'x' AND b = 1", &[]).unwrap();
    assert_eq!(rows(&mut s, by_key, &[Value::text("x"), Value::Int4(1)]), ["11"]);
    s.execute("ROLLBACK", &[]).unwrap();
    assert_eq!(rows(&mut s, by_key, &[Value::text("x"), Value::Int4(1)]), ["10"]);
}

#[test]
fn several_statements_are_one_transaction() {
    let mut s = session();
    s.execute_all("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1); SELECT * FROM t;").unwrap();
    let error = s.execute_all("INSERT INTO t VALUES (2); INSERT INTO t VALUES (1)").unwrap_err();
    assert_eq!(error.state.0, "23505");
    assert_eq!(s.status(), Status::Idle);
    assert_eq!(rows(&mut s, "SELECT count(*) FROM t", &[]), ["1"]);
    // A COMMIT inside commits the statements before it; BEGIN makes the rest a transaction that stays open.
    s.execute_all(
        "INSERT INTO t VALUES (2); COMMIT; INSERT INTO t VALUES (3); BEGIN; INSERT INTO t VALUES (4)",
    )
    .unwrap();
    assert_eq!(s.status(), Status::Open);
    assert_eq!(s.execute_all("SELECT 1/0").unwrap_err().state.0, "22012");
    assert_eq!(s.status(), Status::Failed);
    s.execute_all("ROLLBACK").unwrap();
    assert_eq!(rows(&mut s, "SELECT max(id) FROM t", &[]), ["2"]);
    assert!(s.execute_all("").unwrap().is_empty());
    assert_eq!(code(&mut s, "SELECT 1; SELECT 2", &[]), "42601");
    assert_eq!(code(&mut s, "", &[]), "42601");
}

#[test]
fn transaction_beyond_the_size_limit_fails() {
    let mut s = session();
    s.execute("CREATE TABLE large (id int PRIMARY KEY, body text)", &[]).unwrap();
    let fill = |from: i32| {
        format!(
            "INSERT INTO large SELECT i, repeat('x', 4000000) FROM generate_series({from}, {}) i",
            from + 8
        )
    };
    let all = format!("{}; {}", fill(0), fill(9));
    assert_eq!(s.execute_all(&all).unwrap_err().state.0, "54000");
    assert_eq!(s.execute(&fill(0).replace("8)", "17)"), &[]).unwrap_err().state.0, "54000");
    // The statement that exceeds the limit fails, and not the COMMIT.
    let error = s.execute_all(&format!("BEGIN; {all}")).unwrap_err();
    s.execute("ROLLBACK", &[]).unwrap();
    assert_eq!(error.state.0, "54000", "{error}");
    assert!(error.message.contains("exceeds the limit of 67108864") && error.hint.is_some(), "{error:?}");
    assert_eq!(rows(&mut s, "SELECT count(*) FROM large", &[]), ["0"]);
    s.execute(&fill(0), &[]).unwrap();
    assert_eq!(rows(&mut s, "SELECT count(*) FROM large", &[]), ["9"]);
}

#[test]
fn invalid_and_excessive_statements_are_rejected() {
    let mut s = session();
    for (sql, expected) in [
        ("SELEC 1", "42601"),
        ("SELECT 'open", "42601"),
        (&format!("SELECT {}1{}", "(".repeat(5000), ")".repeat(5000)), "54001"),
        (&format!("SELECT 1{}", "+1".repeat(5000)), "54001"),
        (&format!("SELECT 1{}", "+1".repeat(1500)), "54001"),
        (&format!("SELECT {}true", "NOT ".repeat(5000)), "54001"),
        (&format!("SELECT 1{}", " UNION SELECT 1".repeat(251)), "54001"),
        ("SELECT repeat('x', 2000000000)", "54000"),
        ("SELECT lpad('x', 2000000000)", "54000"),
        ("MERGE INTO t USING u ON true WHEN MATCHED THEN DELETE", "42P01"),
        ("COPY t FROM STDIN", "42P01"),
    ] {
        let error = s.execute(sql, &[]).unwrap_err();
        assert_eq!(error.state.0, expected, "{} {}", sql.chars().take(40).collect::<String>(), error.message);
    }
    // The permitted maximum fits into the stacks, with all kinds of set operations, and over tables that the
    // engine reads.
    for all in ["UNION ALL", "UNION", "EXCEPT", "INTERSECT"] {
        rows(&mut s, &format!("SELECT 1{}", format!(" {all} SELECT 1").repeat(250)), &[]);
    }
    s.execute("CREATE TABLE large (id int PRIMARY KEY, v int)", &[]).unwrap();
    s.execute("INSERT INTO large SELECT i, i FROM generate_series(1, 9000) i", &[]).unwrap();
    let joins: String = (1..620).map(|i| format!(" LEFT JOIN large t{i} ON t{i}.id = t0.id")).collect();
    let plan = rows(&mut s, &format!("EXPLAIN SELECT count(*), sum(t0.v) FROM large t0{joins}"), &[]);
    assert!(plan.len() > 620, "{}", plan.len());
    // Long chains of AND and OR are traversed with a loop, not by recursion.
    let chain = format!("SELECT true{}", " AND true".repeat(1500));
    assert_eq!(rows(&mut s, &chain, &[]), ["t"]);
    let list: Vec<String> = (0..20_000).map(|n| n.to_string()).collect();
    assert_eq!(rows(&mut s, &format!("SELECT 19999 IN ({})", list.join(",")), &[]), ["t"]);
}

#[test]
fn d1_17_error_of_a_misspelt_column_has_the_nearest_one_as_its_hint() {
    let mut s = session();
    s.execute("CREATE TABLE users (id int PRIMARY KEY, name text, birthday date)", &[]).unwrap();
    for (sql, meant) in [
        ("SELECT nam FROM users", Some("users.name")),
        ("SELECT id FROM users u WHERE u.birtday > now()", Some("u.birthday")),
        ("SELECT 1 FROM users u, pg_am a WHERE u.id = 1 AND nmae IS NULL", Some("u.name")),
        ("UPDATE users SET name = nme", Some("users.name")),
        ("SELECT nme FROM users a, users b", None),
        ("SELECT x FROM users", None),
        ("SELECT nothing FROM users", None),
    ] {
        let error = s.execute(sql, &[]).unwrap_err();
        let hint = meant.map(|meant| format!("Perhaps you meant to reference the column \"{meant}\"."));
        assert_eq!((error.state.0, error.hint), ("42703", hint), "{sql}");
    }
}

#[test]
fn h6_prepared_statements_and_their_patterns_are_bounded() {
    let mut s = session();
    s.execute("CREATE TABLE w (v text)", &[]).unwrap();
    let mut first_refused = |statement: &dyn Fn(usize) -> String| {
        let refused = (0..400).find_map(|number| s.execute(&statement(number), &[]).err());
        let error = refused.expect("the statements of a session are bounded");
        s.execute("DEALLOCATE ALL", &[]).unwrap();
        s.execute("PREPARE again AS SELECT 'x' ~ 'y'", &[]).unwrap();
        s.execute("DEALLOCATE ALL", &[]).unwrap();
        (error.state.0, error.message)
    };
    let long = "x".repeat(4 << 20);
    let (state, message) = first_refused(&|number| format!("PREPARE p{number} AS SELECT '{long}'"));
    assert!(state == "53200" && message.contains("prepared statements of the session"), "{state} {message}");
    let patterns = |number: usize| -> String {
        let each = (0..20).map(|part| format!("v ~ '(\\w{{20}}{number}x{part})'"));
        format!("PREPARE p{number} AS SELECT {} FROM w", each.collect::<Vec<_>>().join(" OR "))
    };
    let (state, message) = first_refused(&patterns);
    assert!(state == "53200" && message.contains("regular expressions of the session"), "{state} {message}");
}

#[test]
fn l7_results_with_too_many_columns_or_arrays_are_rejected_as_such() {
    let mut s = session();
    s.execute("CREATE TABLE w (id int PRIMARY KEY)", &[]).unwrap();
    let wide = |count: usize| vec!["1"; count].join(", ");
    for count in [1665, 100_000] {
        for from in ["", " FROM w", " FROM pg_class", " FROM w GROUP BY id"] {
            let error = s.execute(&format!("SELECT {}{from}", wide(count)), &[]).unwrap_err();
            assert_eq!(error.state.0, "54011", "{count} columns{from}: {}", error.message);
        }
    }
    assert_eq!(rows(&mut s, &format!("SELECT {}", wide(1664)), &[])[0].split('|').count(), 1664);
    let arrays = vec!["array_fill(1, array[1000000])"; 1000].join(", ");
    let error = s.execute(&format!("SELECT {arrays}"), &[]).unwrap_err();
    assert!(matches!(error.state.0, "53200" | "54000"), "{} {}", error.state.0, error.message);
}

#[test]
fn nested_expressions_are_parsed_once() {
    let mut s = session();
    let nested = |open: &str, middle: &str, close: &str| {
        format!("SELECT {}{middle}{}", open.repeat(40), close.repeat(40))
    };
    // Without a limit on the parser's backtracking each of these would run practically forever.
    assert_eq!(rows(&mut s, &nested("abs(", "-1", ")"), &[]), ["1"]);
    assert_eq!(rows(&mut s, &nested("replace(", "'a'", ", 'a', 'a')"), &[]), ["a"]);
    for (open, close) in [
        ("array[", "]"),
        ("abs(", ")"),
        ("coalesce(", ")"),
        ("cast(", " AS int)"),
        ("position(", " IN 'a')"),
        ("substring(", " FROM 1)"),
        ("overlay(", " PLACING 'a' FROM 1)"),
        ("(VALUES (", "))"),
    ] {
        let code = code(&mut s, &nested(open, "1 1", close), &[]);
        assert!(["42601", "54001"].contains(&code), "{open}: {code}");
    }
    assert_eq!(code(&mut s, &nested("array[", "1 1", "]"), &[]), "54001");
    assert_eq!(code(&mut s, "SELECT abs(abs(1 1))", &[]), "42601");
    let declare = format!("DECLARE c CURSOR FOR {}", nested("array[", "1 1", "]"));
    assert_eq!(code(&mut s, &declare, &[]), "54001");
}

#[test]
fn batch_of_large_texts_beyond_the_memory_limit_fails() {
    let db = Database::in_memory().unwrap();
    let mut s = Session::with_settings(db, Settings { memory_bytes_max: 1_000_000, ..Settings::default() });
    let sql = |rows: u32| {
        let v = "SELECT repeat('x', 1000000) || i AS v";
        format!("SELECT count(*) FROM ({v} FROM generate_series(1, {rows}) i) t WHERE v <> ''")
    };
    assert_eq!(code(&mut s, &sql(100), &[]), "53200");
    assert_eq!(rows(&mut session(), &sql(10), &[]), ["10"]);
}

#[test]
fn statement_beyond_the_memory_limit_fails() {
    let db = Database::in_memory().unwrap();
    let mut s = Session::with_settings(db, Settings { memory_bytes_max: 200_000, ..Settings::default() });
    s.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", &[]).unwrap();
    for id in 0..1000 {
        s.execute("INSERT INTO t VALUES ($1, repeat('x', 500))", &[Value::Int4(id)]).unwrap();
    }
    for sql in [
        "SELECT * FROM t",
        "SELECT v FROM t ORDER BY v, id",
        "SELECT DISTINCT id, v FROM t",
        "SELECT string_agg(v, '') FROM t",
        "SELECT id, count(*), min(v) FROM t GROUP BY id, v",
        "SELECT count(*) FROM t a, t b WHERE a.v < b.v",
        "UPDATE t SET v = 'y'",
    ] {
        assert_eq!(code(&mut s, sql, &[]), "53200", "{sql}");
    }
    assert_eq!(rows(&mut s, "SELECT count(*), min(v) = max(v) FROM t WHERE id > 5", &[]), ["994|t"]);
    assert_eq!(rows(&mut s, "SELECT id FROM t WHERE id > 990 ORDER BY v LIMIT 1", &[]).len(), 1);
}

#[test]
fn join_beyond_the_memory_limit_spills() {
    let db = Database::in_memory().unwrap();
    let mut s = Session::with_settings(db, Settings { memory_bytes_max: 4 << 20, ..Settings::default() });
    let join = "SELECT count(*), sum(a.n), min(b.n), max(b.n) FROM generate_series(1, 200000) AS a(n) \
                JOIN generate_series(100001, 300000) AS b(n) ON a.n * 1000 = b.n * 1000";
    let plan = rows(&mut s, &format!("EXPLAIN {join}"), &[]).join("\n");
    assert!(plan.contains("HashJoinExec"), "{plan}");
    assert_eq!(rows(&mut s, join, &[]), ["100000|15000050000|100001|200000"]);
    // The spilling strategy was used, and EXPLAIN ANALYZE reports the plan that ran.
    let plan = rows(&mut s, &format!("EXPLAIN ANALYZE {join}"), &[]).join("\n");
    assert!(plan.contains("SortMergeJoinExec") && !plan.contains("HashJoinExec"), "{plan}");
}

#[test]
fn temporary_files_are_bounded_for_a_statement_and_for_all() {
    let db = Database::in_memory().unwrap();
    let settings = Settings { memory_bytes_max: 4 << 20, ..Settings::default() };
    let mut s = Session::with_settings(db.clone(), settings);
    let sorts = "SELECT n, repeat('x', 50) || n AS t FROM generate_series(1, 300000) AS a(n) ORDER BY -n";
    let cursor = "DECLARE c CURSOR WITH HOLD FOR SELECT n FROM generate_series(1, 300000) AS a(n)";
    let sum = format!("SELECT sum(n), max(t) FROM ({sorts} OFFSET 10) AS s");
    assert_eq!(rows(&mut s, &sum, &[]).len(), 1);
    let mut refused = |limits, sql: &str| {
        ropewalk_sql::limit_temp_files(&db, limits);
        let error = s.execute(sql, &[]).unwrap_err();
        assert!(error.hint.is_some(), "{error:?}");
        (error.state.0, error.message)
    };
    let small = TempFileLimits { statement: 1 << 20, ..TempFileLimits::default() };
    let (state, message) = refused(small, &sum);
    assert!(state == "53100" && message.contains("of the statement"), "{message}");
    let small = TempFileLimits { all: 1 << 20, ..TempFileLimits::default() };
    let (state, message) = refused(small, cursor);
    assert!(state == "53100" && message.contains("of all statements"), "{message}");
    // The files of the failed cursor have been deleted.
    ropewalk_sql::limit_temp_files(&db, TempFileLimits { all: 4 << 20, ..TempFileLimits::default() });
    s.execute(cursor, &[]).unwrap();
}

#[test]
fn grouping_in_little_memory_ends() {
    let db = Database::in_memory().unwrap();
    let mut s = Session::with_settings(db, Settings { memory_bytes_max: 2 << 20, ..Settings::default() });
    let sql = "SELECT g, count(DISTINCT t) FROM (SELECT v % 13 AS g, repeat('x', 28) || (v % 337)::text AS t \
               FROM generate_series(1, 40000) AS s(v)) AS x GROUP BY g ORDER BY g";
    for _ in 0..10 {
        let found = rows(&mut s, sql, &[]);
        assert_eq!((found.len(), found[0].as_str()), (13, "0|337"));
    }
}

#[test]
fn writers_of_many_threads_lose_nothing() {
    let db = Database::in_memory().unwrap();
    let mut s = Session::new(db.clone());
    s.execute("CREATE TABLE accounts (id int PRIMARY KEY, balance int NOT NULL)", &[]).unwrap();
    s.execute("INSERT INTO accounts VALUES (1, 0), (2, 0)", &[]).unwrap();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let settings = Settings { attempts: 1000, ..Settings::default() };
            let mut session = Session::with_settings(db.clone(), settings);
            thread::spawn(move || {
                for turn in 0..50 {
                    let sql = "UPDATE accounts SET balance = balance + 1 WHERE id = $1";
                    session.execute(sql, &[Value::Int4(1 + turn % 2)]).unwrap();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(rows(&mut s, "SELECT sum(balance) FROM accounts", &[]), ["200"]);
}

#[test]
fn updates_at_read_committed_lose_nothing() {
    let db = Database::in_memory().unwrap();
    let mut s = Session::new(db.clone());
    s.execute("CREATE TABLE tellers (id int PRIMARY KEY, balance int NOT NULL)", &[]).unwrap();
    s.execute("INSERT INTO tellers VALUES (1, 0), (2, 0), (3, 0), (4, 0)", &[]).unwrap();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let mut session = Session::new(db.clone());
            thread::spawn(move || {
                let sql = "UPDATE tellers SET balance = balance + 1 WHERE id = $1";
                let mut update = session.prepare(sql).unwrap();
                for turn in 0..1000 {
                    loop {
                        session.execute("BEGIN ISOLATION LEVEL READ COMMITTED", &[]).unwrap();
                        session.run(&mut update, &[Value::Int4(1 + turn % 4)]).unwrap();
                        // A statement between the write and the commit.
                        session.execute("SELECT 1", &[]).unwrap();
                        match session.execute("COMMIT", &[]) {
                            Ok(_) => break,
                            Err(error) => assert_eq!(error.state.0, "40001", "{error}"),
                        }
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(rows(&mut s, "SELECT sum(balance) FROM tellers", &[]), ["4000"]);
}

#[test]
fn schemas_survive_reopen() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Session::new(Database::open(folder.path()).unwrap());
    {
        let mut s = open();
        for sql in [
            "CREATE SCHEMA other",
            "CREATE TABLE other.t (id int PRIMARY KEY)",
            "CREATE TABLE t (id int PRIMARY KEY)",
            "INSERT INTO other.t VALUES (1), (2)",
            "SET search_path = other",
            "CREATE VIEW v AS SELECT count(*) AS n FROM t",
        ] {
            s.execute(sql, &[]).unwrap();
        }
    }
    let mut s = open();
    assert_eq!(rows(&mut s, "SELECT n, (SELECT count(*) FROM t) FROM other.v", &[]), ["2|0"]);
    assert_eq!(code(&mut s, "DROP SCHEMA other", &[]), "2BP01");
    s.execute("DROP SCHEMA other CASCADE", &[]).unwrap();
    assert_eq!(code(&mut s, "SELECT * FROM other.t", &[]), "42P01");
    assert_eq!(rows(&mut s, "SELECT count(*) FROM public.t", &[]), ["0"]);
}

#[test]
fn unsupported_table_kinds_fail_with_a_hint() {
    let mut session = Session::new(Database::in_memory().unwrap());
    for (sql, message, hint) in [
        ("CREATE TEMP TABLE t (a int)", "a temporary table is not supported", "WITH defines one"),
        ("CREATE TEMP TABLE t AS SELECT 1 AS a", "a temporary table is not supported", "WITH defines one"),
        (
            "CREATE TABLE t (a int) PARTITION BY RANGE (a)",
            "a table in partitions is not supported",
            "one table",
        ),
        (
            "CREATE MATERIALIZED VIEW v AS SELECT 1 AS a",
            "a materialized view is not supported",
            "CREATE TABLE ... AS",
        ),
        ("CREATE TEMP VIEW v AS SELECT 1 AS a", "a temporary view is not supported", "CREATE VIEW"),
    ] {
        let error = session.execute(sql, &[]).unwrap_err();
        assert_eq!((error.state.0, error.message.as_str()), ("0A000", message), "{sql}");
        assert!(error.hint.as_ref().is_some_and(|found| found.contains(hint)), "{sql}: {:?}", error.hint);
    }
}
