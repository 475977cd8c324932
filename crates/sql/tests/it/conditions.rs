//! The WHERE of an UPDATE or a DELETE selects the same rows as in a SELECT, however it is planned.
//!
//! Engines have lost a WHERE that is no plain predicate: an IN or an EXISTS, a join, a constant false
//! condition (apache/datafusion#24654). So each condition runs three times: SELECT, DELETE and UPDATE must
//! select the same rows.

use ropewalk::tables::Value;
use ropewalk_sql::{Executor, state};

use crate::executor_setting::session_in;
use crate::golden::shown;

/// Conditions; `$1` is 2.
const CONDITIONS: [&str; 48] = [
    "true",
    "false",
    "NULL",
    "1 = 0",
    "b IS NULL",
    "a = 2",
    "a = $1",
    "a <> $1 AND b > $1",
    "a IN (1, 3)",
    "a IN (1, 3) AND false",
    "a > 1 AND a < 1",
    "a BETWEEN 2 AND 4",
    "(a, b) IN ((1, 10), (2, 99))",
    "c LIKE 'x%'",
    "c = 'x2' OR a = 5",
    "(a = 2 AND b > 10) OR (a = 2 AND c = 'x1') OR (c = 'x2' AND a = 2)",
    "(a > 1 AND b > 10) OR a > 1",
    "(b > 10 AND c LIKE 'x%') OR (b > 10 AND NULL)",
    "(a IN (SELECT a FROM u) AND b > 10) OR (a IN (SELECT a FROM u) AND c = 'y3')",
    "a IN (SELECT a FROM u)",
    "a IN (SELECT a FROM u WHERE false)",
    "a IN (SELECT a FROM u WHERE a = $1)",
    "a IN (SELECT a FROM u) AND b > 10",
    "a NOT IN (SELECT a FROM u WHERE a IS NOT NULL)",
    "a NOT IN (SELECT a FROM u)",
    "b IN (SELECT t.b FROM t t JOIN u ON u.a = t.a)",
    "a IN (SELECT v.a FROM u v WHERE v.a = t.a)",
    "a IN (SELECT max(a) FROM u GROUP BY w)",
    "a IN (SELECT a FROM u UNION SELECT 5)",
    "a IN (WITH x AS (SELECT a FROM u) SELECT a FROM x)",
    "a = (SELECT max(a) FROM u)",
    "a = (SELECT a FROM u WHERE a = $1)",
    "a = (SELECT a FROM u WHERE a = 99)",
    "b > (SELECT avg(b) FROM t)",
    "b > (SELECT avg(x.b) FROM t x WHERE x.a <> t.a)",
    "a = ANY (SELECT a FROM u)",
    "a > ALL (SELECT a FROM u WHERE a < 4)",
    "EXISTS (SELECT 1 FROM u WHERE u.a = t.a)",
    "EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.w = $1)",
    "EXISTS (SELECT 1 FROM u)",
    "EXISTS (SELECT 1 FROM u WHERE false)",
    "EXISTS (SELECT 1 FROM u WHERE u.a > t.a GROUP BY u.w HAVING count(*) > 1)",
    "EXISTS (SELECT 1 FROM u) AND a = 1",
    "EXISTS (SELECT 1 FROM u WHERE u.a = t.a) OR a = 5",
    "a IN (SELECT a FROM u) AND EXISTS (SELECT 1 FROM u WHERE u.a = t.a + 1)",
    "CASE WHEN a IN (SELECT a FROM u) THEN b > 10 ELSE a = 1 END",
    "(SELECT count(*) FROM u WHERE u.a = t.a) = 0",
    "a IN (SELECT ps.a FROM u ps WHERE ps.w > (SELECT count(*) FROM t x WHERE x.a = ps.a))",
];

/// Conditions that are not supported, in all three statements.
const REFUSED: [&str; 0] = [];

fn parameters(sql: &str) -> Vec<Value<'static>> {
    if sql.contains("$1") { vec![Value::Int4(2)] } else { Vec::new() }
}

#[test]
fn where_selects_the_same_rows_in_every_statement() {
    Executor::ALL.iter().for_each(|(_, executor)| where_is_the_same(*executor));
}

fn where_is_the_same(executor: Executor) {
    let mut session = session_in(executor);
    for sql in [
        "CREATE TABLE t (a int PRIMARY KEY, b int, c text)",
        "CREATE INDEX t_c ON t (c)",
        "CREATE TABLE u (a int, w int)",
        "INSERT INTO t VALUES (1, 10, 'x1'), (2, 20, 'x2'), (3, NULL, 'y3'), (4, 40, NULL), (5, 50, 'y5')",
        "INSERT INTO u VALUES (2, 2), (3, 2), (3, 1), (9, 0), (NULL, 7)",
    ] {
        session.execute(sql, &[]).unwrap();
    }
    let mut refused = Vec::new();
    for condition in CONDITIONS {
        for condition in [condition.to_owned(), format!("NOT ({condition})")] {
            let params = parameters(&condition);
            let select = format!("SELECT a FROM t WHERE {condition}");
            if session
                .execute(&select, &params)
                .is_err_and(|error| error.state == state::FEATURE_NOT_SUPPORTED)
            {
                // An unsupported condition is rejected by all three.
                for sql in [
                    format!("UPDATE t SET b = 0 WHERE {condition}"),
                    format!("DELETE FROM t WHERE {condition}"),
                ] {
                    assert_eq!(
                        session.execute(&sql, &params).unwrap_err().state,
                        state::FEATURE_NOT_SUPPORTED,
                        "{sql}"
                    );
                }
                refused.push(condition);
                continue;
            }
            let mut ask = |sql: &str, params: &[Value<'_>]| match session.execute(sql, params) {
                Ok(outcome) => shown(&outcome),
                Err(error) => panic!("{sql}: {error}"),
            };
            let mut found = ask(&select, &params);
            found.sort();
            let all = ask("SELECT * FROM t ORDER BY a", &[]);
            let others: Vec<String> = all
                .iter()
                .filter(|row| !found.contains(&row.split('|').next().unwrap().to_owned()))
                .cloned()
                .collect();
            ask("BEGIN", &[]);
            let mut changed =
                ask(&format!("UPDATE t SET c = 'changed' WHERE {condition} RETURNING a"), &params);
            changed.sort();
            assert_eq!(changed, found, "UPDATE WHERE {condition}");
            assert_eq!(
                ask("SELECT * FROM t WHERE c IS DISTINCT FROM 'changed' ORDER BY a", &[]),
                others,
                "{condition}"
            );
            ask("ROLLBACK", &[]);
            ask("BEGIN", &[]);
            ask(&format!("DELETE FROM t WHERE {condition}"), &params);
            assert_eq!(ask("SELECT * FROM t ORDER BY a", &[]), others, "DELETE WHERE {condition}");
            ask("ROLLBACK", &[]);
            assert_eq!(ask("SELECT * FROM t ORDER BY a", &[]), all);
        }
    }
    assert_eq!(refused, REFUSED);
}

#[test]
fn joined_tables_choose_the_same_rows() {
    let mut session = session_in(Executor::Auto);
    let mut ask = |sql: &str, params: &[Value<'_>]| {
        shown(&session.execute(sql, params).unwrap_or_else(|error| panic!("{sql}: {error}")))
    };
    ask("CREATE TABLE t (a int PRIMARY KEY, b int)", &[]);
    ask("CREATE TABLE u (a int, w int)", &[]);
    ask("INSERT INTO t VALUES (1, 10), (2, 20), (3, 30)", &[]);
    ask("INSERT INTO u VALUES (2, 2), (2, 5), (3, 9)", &[]);
    for condition in [
        "t.a = u.a",
        "t.a = u.a AND u.w = $1",
        "t.a = u.a AND false",
        "u.w > 4 AND t.b < u.w * 5",
        "NOT (t.a = u.a)",
    ] {
        let params = parameters(condition);
        let found = ask(&format!("SELECT DISTINCT t.a FROM t, u WHERE {condition} ORDER BY 1"), &params);
        ask("BEGIN", &[]);
        ask(&format!("UPDATE t SET b = -1 FROM u WHERE {condition}"), &params);
        assert_eq!(ask("SELECT a FROM t WHERE b = -1 ORDER BY a", &[]), found, "UPDATE FROM, {condition}");
        ask("ROLLBACK", &[]);
        ask("BEGIN", &[]);
        let mut gone = ask(&format!("DELETE FROM t USING u WHERE {condition} RETURNING t.a"), &params);
        gone.sort();
        assert_eq!(gone, found, "DELETE USING, {condition}");
        assert_eq!(ask("SELECT count(*) FROM t", &[]), [(3 - found.len()).to_string()]);
        ask("ROLLBACK", &[]);
    }
}

#[test]
fn equality_in_all_branches_of_or_becomes_a_hash_join_key() {
    let mut session = session_in(Executor::Auto);
    session.execute("CREATE TABLE t (a int PRIMARY KEY, b int)", &[]).unwrap();
    session.execute("CREATE TABLE u (a int, w int)", &[]).unwrap();
    let sql = "EXPLAIN SELECT sum(t.b) FROM t FULL JOIN (SELECT 1 AS one) o ON t.a = o.one, u \
               WHERE (t.a = u.a AND t.b > u.w) OR (t.a = u.a AND t.b < 7)";
    let plan = shown(&session.execute(sql, &[]).unwrap()).join("\n");
    assert!(
        plan.contains("HashJoinExec") && !plan.contains("NestedLoop") && !plan.contains("Cross"),
        "{plan}"
    );
}
