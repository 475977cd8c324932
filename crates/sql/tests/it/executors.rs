//! Results that must not depend on the executor: row by row (`rows`), the query engine from 8,192 rows on,
//! nested loops for queries that neither can run. Each case runs on a table of 100 rows and on one of 10,000,
//! outside of a transaction and within one.

use ropewalk::Database;
use ropewalk_sql::{Session, Settings};

use crate::golden::shown;

/// A size on either side of the border between the executors.
const SIZES: [usize; 2] = [100, 10_000];

fn run(session: &mut Session, sql: &str) -> Result<Vec<String>, String> {
    match session.execute(sql, &[]) {
        Ok(outcome) => Ok(shown(&outcome)),
        Err(error) => Err(error.state.0.to_owned()),
    }
}

fn rows(session: &mut Session, sql: &str) -> Vec<String> {
    run(session, sql).unwrap_or_else(|state| panic!("{sql}: {state}"))
}

fn number(session: &mut Session, sql: &str) -> i64 {
    rows(session, sql)[0].parse().unwrap()
}

/// `t (id, a, b, g)` with rows 1 to `size`: `a` is 2 * id, `b` is 0 for every other row and 1 for the rest, `g` is id % 4.
fn table(size: usize) -> Session {
    let mut session = Session::new(Database::in_memory().unwrap());
    rows(&mut session, "CREATE TABLE t (id int PRIMARY KEY, a int, b int, g int)");
    rows(
        &mut session,
        &format!("INSERT INTO t SELECT i, 2 * i, i % 2, i % 4 FROM generate_series(1, {size}) AS s (i)"),
    );
    session
}

/// Calls `check` for each size, outside of a transaction and within one.
fn everywhere(mut check: impl FnMut(&mut Session, usize)) {
    for size in SIZES {
        let mut session = table(size);
        check(&mut session, size);
        rows(&mut session, "BEGIN");
        check(&mut session, size);
        rows(&mut session, "ROLLBACK");
    }
}

/// A condition that holds for every row and that only nested loops can run.
const NESTED: &str = "(SELECT u.id FROM t u WHERE u.id = t.id) IS NOT NULL";

#[test]
fn volatile_condition_is_evaluated_for_each_row() {
    everywhere(|session, size| {
        for from in ["t", "t JOIN t v USING (id)", "t LEFT JOIN t v ON v.id = t.id"] {
            for and in ["", &format!(" AND {NESTED}")] {
                let sql = format!("SELECT count(*) FROM {from} WHERE random() < 0.5{and}");
                let count = number(session, &sql);
                assert!(0 < count && count < size as i64, "{sql}: {count} of {size}");
            }
        }
        assert_eq!(number(session, "SELECT count(*) FROM t WHERE random() < 2"), size as i64);
        assert_eq!(number(session, "SELECT count(*) FROM t WHERE random() > 2"), 0);
    });
}

#[test]
fn volatile_output_is_what_rows_are_sorted_by() {
    everywhere(|session, size| {
        for filter in ["", &format!(" WHERE {NESTED}")] {
            for (list, order, place) in [
                ("random() AS r", "r", 0),
                ("random() AS r", "1", 0),
                ("random()", "random()", 0),
                ("id, random() AS r", "r, id", 1),
                ("random() AS r, random() AS s", "s", 1),
            ] {
                let found = rows(session, &format!("SELECT {list} FROM t{filter} ORDER BY {order}"));
                let keys = found.iter().map(|row| row.split('|').nth(place).unwrap().parse::<f64>().unwrap());
                assert_eq!(found.len(), size);
                assert!(keys.is_sorted(), "{list} by {order}{filter}, {size} rows");
            }
            let sql = format!("SELECT random() AS r FROM t{filter} ORDER BY r DESC LIMIT 5");
            let found: Vec<f64> = rows(session, &sql).iter().map(|row| row.parse().unwrap()).collect();
            assert!(found.is_sorted_by(|a, b| a >= b) && found.len() == 5, "{sql}: {found:?}");
        }
    });
}

#[test]
fn sequence_is_drawn_from_once_for_each_row_that_is_sorted() {
    for size in SIZES {
        for filter in ["", &format!(" WHERE {NESTED}")] {
            let mut session = table(size);
            rows(&mut session, "CREATE SEQUENCE s");
            let found = rows(&mut session, &format!("SELECT nextval('s') AS n FROM t{filter} ORDER BY n"));
            let expected: Vec<String> = (1..=size).map(|number| number.to_string()).collect();
            assert_eq!(found, expected);
            assert_eq!(number(&mut session, "SELECT nextval('s')"), size as i64 + 1);
        }
    }
}

#[test]
fn volatile_group_key_is_shown_as_it_was_compared() {
    everywhere(|session, size| {
        for filter in ["", &format!(" WHERE {NESTED}")] {
            let sql = format!(
                "SELECT floor(random() * 3)::int AS f, count(*) FROM t{filter} GROUP BY 1 ORDER BY 1"
            );
            let found = rows(session, &sql);
            let keys: Vec<&str> = found.iter().map(|row| row.split('|').next().unwrap()).collect();
            assert_eq!(keys, ["0", "1", "2"], "{sql}, {size} rows");
        }
    });
}

/// Queries over `t` in which a condition guards another expression, with their results for `size` rows.
fn guarded(size: usize) -> Vec<(String, Result<Vec<String>, String>)> {
    let half = (size / 2).to_string();
    let one = |answer: &str| Ok(vec![answer.to_owned()]);
    let division = Err("22012".to_owned());
    let groups =
        |odd: &str| Ok(["0|NULL", odd, "2|NULL", &odd.replacen('1', "3", 1)].map(str::to_owned).to_vec());
    let quarter = (size / 4).to_string();
    vec![
        ("SELECT count(*) FROM t WHERE b <> 0 AND a / b > 1".into(), one(&half)),
        ("SELECT count(*) FROM t WHERE b <> 0 AND a > 0 AND (a / b) * 2 > 1".into(), one(&half)),
        ("SELECT count(*) FROM t WHERE b = 0 OR a / b > 1".into(), one(&size.to_string())),
        ("SELECT count(*) FROM t WHERE NOT (b = 0 OR a / b < 1)".into(), one(&half)),
        ("SELECT count(*) FROM t WHERE (b <> 0 AND a / b > 1) IS TRUE".into(), one(&half)),
        ("SELECT count(*) FROM (SELECT a, b FROM t WHERE b <> 0) s WHERE a / b > 1".into(), one(&half)),
        ("SELECT count(*) FROM t WHERE CASE WHEN b <> 0 THEN a / b > 1 ELSE false END".into(), one(&half)),
        ("SELECT sum(CASE WHEN b <> 0 THEN 1 / b ELSE 0 END) FROM t".into(), one(&half)),
        ("SELECT count(*) FROM (SELECT b <> 0 AND a / b > 1 AS c FROM t) s WHERE c".into(), one(&half)),
        ("SELECT sum(1 / b) FILTER (WHERE b <> 0) FROM t".into(), one(&half)),
        (
            "SELECT g, sum(1 / b) FILTER (WHERE b <> 0) FROM t GROUP BY g ORDER BY g".into(),
            groups(&format!("1|{quarter}")),
        ),
        (
            "SELECT g, max(10 / b) FILTER (WHERE b <> 0) FROM t GROUP BY g ORDER BY g".into(),
            groups("1|10"),
        ),
        ("SELECT count(*) FROM t JOIN t u ON t.id = 1 / u.b AND u.b <> 0".into(), one(&half)),
        ("SELECT count(*) FROM t JOIN t u ON u.b <> 0 AND 1 / u.b = t.id".into(), one(&half)),
        ("SELECT count(*) FROM t JOIN t u ON u.id = t.id AND t.b <> 0 AND u.a / t.b > 1".into(), one(&half)),
        ("SELECT count(*) FROM t WHERE g IN (1, 3) AND a / b > 1".into(), one(&half)),
        ("SELECT max(a / b) FROM t WHERE b <> 0".into(), one(&(2 * (size - 1)).to_string())),
        ("SELECT count(*) FROM (SELECT g, sum(b) AS s FROM t GROUP BY g HAVING sum(b) <> 0 AND 1 / sum(b) >= 0) h".into(), one("2")),
        // Without a guard all of them fail.
        ("SELECT count(*) FROM t WHERE a / b > 1".into(), division.clone()),
        ("SELECT count(*) FROM t WHERE g > 1 AND a / b > 1".into(), division.clone()),
        ("SELECT count(*) FROM t WHERE g > 1 OR a / b > 1".into(), division.clone()),
        ("SELECT sum(1 / b) FILTER (WHERE g > 1) FROM t".into(), division),
    ]
}

#[test]
fn condition_guards_what_follows_it() {
    for size in SIZES {
        for (sql, expected) in guarded(size) {
            let mut session = table(size);
            assert_eq!(run(&mut session, &sql), expected, "{sql}, {size} rows");
            rows(&mut session, "BEGIN");
            assert_eq!(run(&mut session, &sql), expected, "{sql}, {size} rows in a transaction");
        }
    }
}

#[test]
fn condition_guards_what_nested_loops_compute() {
    let mut session = table(100);
    let nested = "(SELECT u.id FROM t u WHERE u.id = t.id) = t.id";
    for (sql, expected) in [
        (format!("SELECT count(*) FROM t WHERE b <> 0 AND a / b > 1 AND {nested}"), "50"),
        (format!("SELECT count(*) FROM t JOIN t v ON t.id = 1 / v.b AND v.b <> 0 WHERE {nested}"), "50"),
        (
            "SELECT count(*) FROM t WHERE (SELECT v.id FROM t v WHERE v.b <> 0 AND v.id / v.b = t.id) = t.id"
                .into(),
            "50",
        ),
    ] {
        assert_eq!(run(&mut session, &sql), Ok(vec![expected.to_owned()]), "{sql}");
    }
}

#[test]
fn sum_beyond_the_digits_of_numeric_is_refused() {
    let most = "99999999999999999999999999999999999999";
    for size in SIZES {
        let mut session = Session::new(Database::in_memory().unwrap());
        rows(&mut session, "CREATE TABLE w (id int PRIMARY KEY, g int, n numeric(38, 0))");
        let values = format!("SELECT i, i % 2, CASE WHEN i <= 8 THEN {most} ELSE 0 END");
        rows(&mut session, &format!("INSERT INTO w {values} FROM generate_series(1, {size}) AS s (i)"));
        for begin in [false, true] {
            for sql in [
                "SELECT sum(n) FROM w",
                "SELECT g, sum(n) FROM w GROUP BY g",
                "SELECT avg(n) FROM w",
                "SELECT sum(n) OVER (ORDER BY id ROWS 3 PRECEDING) FROM w",
                "SELECT sum(-n) FROM w",
                "SELECT count(*) FROM (SELECT g FROM w GROUP BY g HAVING sum(n) > 0) h",
            ] {
                assert_eq!(run(&mut session, sql), Err("22003".to_owned()), "{sql}, {size} rows");
                if begin {
                    rows(&mut session, "ROLLBACK");
                }
                rows(&mut session, if begin { "BEGIN" } else { "SELECT 1" });
            }
            for (sql, expected) in [
                ("SELECT sum(n) FROM w WHERE id >= 8", most),
                ("SELECT sum(DISTINCT n) FROM w", most),
                ("SELECT sum(n) FILTER (WHERE id = 1) FROM w", most),
                ("SELECT sum(n) FROM w WHERE id > 8", "0"),
                ("SELECT sum(n) FROM w WHERE id > 1000000", "NULL"),
            ] {
                assert_eq!(rows(&mut session, sql), [expected], "{sql}, {size} rows");
            }
            if begin {
                rows(&mut session, "ROLLBACK");
            } else {
                rows(&mut session, "BEGIN");
            }
        }
    }
}

#[test]
fn nan_in_a_column_of_decimals_is_answered() {
    for size in SIZES {
        let mut session = Session::new(Database::in_memory().unwrap());
        rows(&mut session, "CREATE TABLE n (id int PRIMARY KEY, v numeric(10, 2))");
        rows(
            &mut session,
            &format!(
                "INSERT INTO n SELECT i, CASE WHEN i = 5 THEN 'NaN' ELSE 1.5 END::numeric FROM generate_series(1, {size}) AS s (i)"
            ),
        );
        assert_eq!(rows(&mut session, "SELECT max(v) FROM n"), ["NaN"]);
        assert_eq!(
            rows(&mut session, "SELECT v, count(*) FROM n GROUP BY v ORDER BY v DESC LIMIT 1"),
            ["NaN|1"]
        );
    }
}

#[test]
fn distinct_is_ordered_by_what_it_shows() {
    everywhere(|session, _| {
        for sql in [
            "SELECT DISTINCT g FROM t ORDER BY id",
            "SELECT DISTINCT relname FROM pg_class ORDER BY oid",
            "SELECT DISTINCT ON (g) id FROM t ORDER BY id",
            "SELECT DISTINCT ON (relkind) relname FROM pg_class ORDER BY oid",
        ] {
            assert_eq!(run(session, sql), Err("42P10".to_owned()), "{sql}");
            // Within a transaction, roll back after the error.
            let _ = run(session, "ROLLBACK");
            rows(session, "BEGIN");
        }
        rows(session, "ROLLBACK");
        rows(session, "BEGIN");
    });
}

/// A session with a memory limit in bytes.
fn small_memory(bytes: usize) -> Session {
    let settings = Settings { memory_bytes_max: bytes, ..Settings::default() };
    Session::with_settings(Database::in_memory().unwrap(), settings)
}

#[test]
fn rows_of_a_finished_join_release_their_memory() {
    let mut session = small_memory(1 << 20);
    rows(&mut session, "CREATE TABLE j (id int PRIMARY KEY, k int)");
    rows(&mut session, "CREATE INDEX by_k ON j (k)");
    rows(&mut session, "INSERT INTO j SELECT i, i % 10 FROM generate_series(1, 500) AS s (i)");
    // 25,000 rows are visited, 50 at a time.
    let sql = "SELECT count(*) FROM j JOIN j v ON v.k = j.k";
    assert_eq!(rows(&mut session, sql), ["25000"]);
    let nested = "SELECT count(*) FROM j WHERE (SELECT v.k FROM j v WHERE v.id = j.id AND v.k >= 0) = j.k";
    assert_eq!(rows(&mut session, nested), ["500"]);
}

#[test]
fn subquery_of_nested_loops_takes_from_the_memory_of_the_statement() {
    let mut session = small_memory(8 << 20);
    rows(&mut session, "CREATE TABLE o (id int PRIMARY KEY)");
    rows(&mut session, "INSERT INTO o SELECT i FROM generate_series(1, 20000) AS s (i)");
    let sql = "SELECT p.id, (SELECT array_length(ARRAY(SELECT repeat('x', 1000) FROM o WHERE o.id <> p.id LIMIT 19000), 1)) \
               FROM o p WHERE p.id = 1";
    assert_eq!(run(&mut session, sql), Err("53200".to_owned()));
    // Memory used for one outer row is free again for the next one.
    let sql = "SELECT count(*) FROM o p WHERE p.id <= 200 AND \
               (SELECT array_length(ARRAY(SELECT repeat('x', 1000) FROM o WHERE o.id <> p.id AND o.id <= 501), 1)) = 500";
    assert_eq!(rows(&mut session, sql), ["200"]);
}

#[test]
fn nested_loops_guard_only_the_keys_that_they_look_up() {
    let db = Database::in_memory().unwrap();
    let (mut ann, mut bob) = (Session::new(db.clone()), Session::new(db));
    rows(&mut ann, "CREATE TABLE t (id int PRIMARY KEY, a int)");
    rows(&mut ann, "CREATE TABLE done (id int PRIMARY KEY, a int)");
    rows(&mut ann, "INSERT INTO t SELECT i, i FROM generate_series(1, 50) AS s (i)");
    for (number, sql) in [
        "SELECT (SELECT u.a FROM t u WHERE u.id = t.id) FROM t WHERE t.id = 1",
        "SELECT a AS pg_class FROM t WHERE id = 3",
        "SELECT (SELECT u.a FROM t u WHERE u.id = t.id LIMIT 1) FROM t WHERE t.id BETWEEN 1 AND 3",
    ]
    .into_iter()
    .enumerate()
    {
        rows(&mut ann, "BEGIN ISOLATION LEVEL SERIALIZABLE");
        rows(&mut ann, sql);
        rows(&mut bob, &format!("INSERT INTO t VALUES ({}, 0)", 1000 + number));
        rows(&mut ann, &format!("INSERT INTO done VALUES ({number}, 0)"));
        assert_eq!(run(&mut ann, "COMMIT"), Ok(Vec::new()), "{sql}");
        // The key itself is guarded.
        rows(&mut ann, "BEGIN ISOLATION LEVEL SERIALIZABLE");
        rows(&mut ann, sql);
        rows(&mut bob, "UPDATE t SET a = a + 1 WHERE id IN (1, 3)");
        rows(&mut ann, &format!("UPDATE done SET a = 1 WHERE id = {number}"));
        assert_eq!(run(&mut ann, "COMMIT"), Err("40001".to_owned()), "{sql}");
    }
}
