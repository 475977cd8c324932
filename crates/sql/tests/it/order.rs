//! Results without ORDER BY: the parts of a query one after the other, a table in the order of its keys,
//! every time.

use ropewalk::Database;
use ropewalk_sql::Session;

use crate::golden::shown;

const AGAIN: usize = 200;

fn rows(session: &mut Session, sql: &str) -> Vec<String> {
    shown(&session.execute(sql, &[]).unwrap_or_else(|error| panic!("{sql}: {}", error.message)))
}

#[test]
fn the_parts_of_union_all_come_in_their_order() {
    let mut session = Session::new(Database::in_memory().unwrap());
    let parts: Vec<String> = (1..=7).map(|n| format!("SELECT {n} AS n")).collect();
    let want: Vec<String> = (1..=7).map(|n| n.to_string()).collect();
    let sql = parts.join(" UNION ALL ");
    for round in 0..AGAIN {
        assert_eq!(rows(&mut session, &sql), want, "round {round}");
    }
}

#[test]
fn returning_follows_the_insert_order() {
    let mut session = Session::new(Database::in_memory().unwrap());
    rows(&mut session, "CREATE TABLE t (id bigserial PRIMARY KEY, what text)");
    for round in 0..AGAIN {
        let sql = "INSERT INTO t (what) SELECT 'a' UNION ALL SELECT 'b' UNION ALL SELECT 'c' UNION ALL SELECT 'd' \
                   RETURNING what";
        assert_eq!(rows(&mut session, sql), ["a", "b", "c", "d"], "round {round}");
    }
    let want: Vec<String> = (0..AGAIN).flat_map(|_| ["a", "b", "c", "d"].map(str::to_owned)).collect();
    assert_eq!(rows(&mut session, "SELECT what FROM t ORDER BY id"), want);
}

#[test]
fn a_table_that_is_read_in_parts_comes_in_the_order_of_its_keys() {
    let mut session = Session::new(Database::in_memory().unwrap());
    rows(&mut session, "CREATE TABLE t (id int PRIMARY KEY, n int, what text)");
    rows(&mut session, "INSERT INTO t SELECT n, n % 7, 'x' FROM generate_series(1, 30000) AS g (n)");
    let asked = |sql: &str| format!("{sql} AND upper(what) = 'X'");
    let all: Vec<String> = (1..=30_000).filter(|n| n % 7 != 3).map(|n| n.to_string()).collect();
    for round in 0..20 {
        let found = rows(&mut session, &asked("SELECT id FROM t WHERE n <> 3"));
        assert!(found == all, "round {round}");
        let found = rows(&mut session, &(asked("SELECT id FROM t WHERE n <> 3") + " LIMIT 20000"));
        assert!(found == all[..20_000], "round {round}, with a limit");
        let found = rows(
            &mut session,
            "SELECT id FROM t WHERE id > 29990 AND upper(what) = 'X' UNION ALL SELECT -id FROM t WHERE n = 3 \
             UNION ALL SELECT max(id) + 1 FROM t",
        );
        let mut want: Vec<String> = (29_991..=30_000).map(|n: i32| n.to_string()).collect();
        want.extend((1..=30_000).filter(|n| n % 7 == 3).map(|n| format!("-{n}")));
        want.push("30001".into());
        assert!(found == want, "round {round}, with UNION ALL");
    }
}

#[test]
fn error_of_a_later_part_fails_the_query() {
    let mut session = Session::new(Database::in_memory().unwrap());
    rows(&mut session, "CREATE TABLE t (id int PRIMARY KEY)");
    rows(&mut session, "INSERT INTO t VALUES (0), (1)");
    for _ in 0..20 {
        let sql = "SELECT 1 UNION ALL SELECT 1 / id FROM t UNION ALL SELECT 2";
        let error = session.execute(sql, &[]).map(|found| shown(&found)).unwrap_err();
        assert_eq!(error.state.0, "22012");
    }
}
