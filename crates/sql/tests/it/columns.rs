//! Cached columns return the same as the rows, with writes in between.

use std::collections::BTreeMap;
use std::thread;

use ropewalk::Database;
use ropewalk::tables::Value;
use ropewalk_sql::Session;

use crate::golden::shown;

/// More rows than a segment has.
const ROWS: i32 = 70_000;

fn filled(db: &Database, rows: i32) -> Session {
    let mut s = Session::new(db.clone());
    s.execute("CREATE TABLE t (id int PRIMARY KEY, v int, name text)", &[]).unwrap();
    for start in (0..rows).step_by(10_000) {
        let last = (start + 9_999).min(rows - 1);
        let sql = format!(
            "INSERT INTO t SELECT n, n % 1000, 'name ' || n FROM generate_series({start}, {last}) AS g(n)"
        );
        s.execute(&sql, &[]).unwrap();
    }
    s
}

fn plan(s: &mut Session, sql: &str) -> String {
    shown(&s.execute(&format!("EXPLAIN {sql}"), &[]).unwrap()).join("\n")
}

/// A deterministic pseudo-random sequence.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: i32) -> i32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % below as u64) as i32
    }
}

#[test]
fn cached_columns_return_the_same_as_rows() {
    let db = Database::in_memory().unwrap();
    let mut s = filled(&db, ROWS);
    let mut model: BTreeMap<i32, i64> = (0..ROWS).map(|id| (id, i64::from(id % 1000))).collect();
    let sums = "SELECT count(*), sum(v), min(id), max(id) FROM t WHERE v >= 10";
    assert!(plan(&mut s, sums).contains("of cached columns"), "{}", plan(&mut s, sums));
    let mut numbers = Numbers(7);
    for round in 0..60 {
        match round % 6 {
            0 => {
                let id = numbers.next(ROWS);
                s.execute("UPDATE t SET v = 5000 WHERE id = $1", &[Value::Int4(id)]).unwrap();
                model.entry(id).and_modify(|v| *v = 5000);
            }
            1 => {
                let id = numbers.next(ROWS);
                s.execute("DELETE FROM t WHERE id BETWEEN $1 AND $1 + 50", &[Value::Int4(id)]).unwrap();
                model.retain(|known, _| !(id..=id + 50).contains(known));
            }
            2 => {
                let id = ROWS + round;
                s.execute("INSERT INTO t VALUES ($1, 77, NULL)", &[Value::Int4(id)]).unwrap();
                model.insert(id, 77);
            }
            // Writes leave memory, before or after a query has read them.
            3 => db.checkpoint().unwrap(),
            4 => {
                let id = numbers.next(ROWS);
                s.execute("BEGIN", &[]).unwrap();
                s.execute("UPDATE t SET v = -1 WHERE id >= $1", &[Value::Int4(id)]).unwrap();
                s.execute("ROLLBACK", &[]).unwrap();
            }
            _ => {}
        }
        if round % 4 == 1 {
            continue;
        }
        let large: Vec<(&i32, &i64)> = model.iter().filter(|(_, v)| **v >= 10).collect();
        let sum: i64 = large.iter().map(|(_, v)| **v).sum();
        let (first, last) = (large.first().unwrap().0, large.last().unwrap().0);
        let expected = format!("{}|{sum}|{first}|{last}", large.len());
        assert_eq!(shown(&s.execute(sums, &[]).unwrap()), [expected], "round {round}");
        // Another column, of cached segments.
        let names = "SELECT count(name), count(DISTINCT name) FROM t WHERE id >= 0";
        let named = model.keys().filter(|id| **id < ROWS).count();
        assert_eq!(shown(&s.execute(names, &[]).unwrap()), [format!("{named}|{named}")], "round {round}");
    }
    assert!(db.verify().unwrap().violations.is_empty());
}

#[test]
fn changed_definition_invalidates_cached_columns() {
    let db = Database::in_memory().unwrap();
    let mut s = filled(&db, 20_000);
    let count = |s: &mut Session, sql: &str| shown(&s.execute(sql, &[]).unwrap());
    assert_eq!(count(&mut s, "SELECT sum(v), count(*) FROM t WHERE v > 0"), ["9990000|19980"]);
    s.execute("ALTER TABLE t ADD COLUMN w int DEFAULT 3", &[]).unwrap();
    assert_eq!(count(&mut s, "SELECT sum(w), sum(v) FROM t WHERE v > 0"), ["59940|9990000"]);
    s.execute("TRUNCATE t", &[]).unwrap();
    assert_eq!(count(&mut s, "SELECT count(*), sum(w) FROM t WHERE v > 0"), ["0|NULL"]);
    s.execute("INSERT INTO t SELECT n, 1, 'x' FROM generate_series(1, 9000) AS g(n)", &[]).unwrap();
    assert_eq!(count(&mut s, "SELECT count(*), sum(w) FROM t WHERE v > 0"), ["9000|27000"]);
    s.execute("ALTER TABLE t DROP COLUMN v", &[]).unwrap();
    assert_eq!(count(&mut s, "SELECT count(*), sum(w) FROM t WHERE w > 0"), ["9000|27000"]);
}

/// Long values: segments of few rows, and a column that does not fit into cached segments.
#[test]
fn long_values_are_read_in_short_segments() {
    let db = Database::in_memory().unwrap();
    let mut s = Session::new(db.clone());
    s.execute("CREATE TABLE t (id int PRIMARY KEY, v int, body text)", &[]).unwrap();
    for part in 0..10 {
        let (first, last) = (part * 1000, part * 1000 + 999);
        let sql = format!(
            "INSERT INTO t SELECT n, 1, repeat('x', 3000) FROM generate_series({first}, {last}) AS g(n)"
        );
        s.execute(&sql, &[]).unwrap();
    }
    for sql in ["SELECT sum(v) FROM t WHERE v > 0", "SELECT sum(length(body)) / 3000 FROM t WHERE v > 0"] {
        for _ in 0..2 {
            assert_eq!(shown(&s.execute(sql, &[]).unwrap()), ["10000"], "{sql}");
        }
    }
}

#[test]
fn columns_beyond_the_limit_are_read_uncached() {
    let db = Database::in_memory().unwrap();
    let mut s = filled(&db, 20_000);
    for bytes in [0, 100_000, 1 << 20] {
        ropewalk_sql::limit_columns(&db, bytes);
        for _ in 0..2 {
            let sql = "SELECT count(DISTINCT name), sum(v) FROM t WHERE id >= 0";
            assert_eq!(shown(&s.execute(sql, &[]).unwrap()), ["20000|9990000"]);
        }
        assert!(ropewalk_sql::column_bytes(&db) <= bytes);
    }
}

/// Transfers between rows during sums over all of them: every sum is that of one commit.
#[test]
fn every_sum_is_of_one_commit_while_writers_write() {
    let db = Database::in_memory().unwrap();
    let mut s = filled(&db, 10_000);
    let expected = shown(&s.execute("SELECT sum(v) FROM t WHERE id >= 0", &[]).unwrap());
    let writer = {
        let mut s = Session::new(db.clone());
        thread::spawn(move || {
            let mut numbers = Numbers(3);
            for _ in 0..400 {
                s.execute("BEGIN", &[]).unwrap();
                for sign in [1, -1] {
                    let sql = "UPDATE t SET v = v + $2 WHERE id = $1";
                    let id = numbers.next(5_000) * 2 + i32::from(sign > 0);
                    s.execute(sql, &[Value::Int4(id), Value::Int4(sign)]).unwrap();
                }
                s.execute("COMMIT", &[]).unwrap();
            }
        })
    };
    while !writer.is_finished() {
        assert_eq!(shown(&s.execute("SELECT sum(v) FROM t WHERE id >= 0", &[]).unwrap()), expected);
    }
    writer.join().unwrap();
    assert_eq!(shown(&s.execute("SELECT sum(v) FROM t WHERE id >= 0", &[]).unwrap()), expected);
}
