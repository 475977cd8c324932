//! Self-checks over random tables: equivalent forms of a query must agree.
//!
//! ```text
//! TLP     all rows  =  rows where c  +  rows where NOT c  +  rows where c IS NULL            (Rigger and Su, OOPSLA 2020)
//! NoREC   rows where c  =  those for which the value of c, computed without WHERE, is true   (Rigger and Su, ESEC/FSE 2020)
//! paths   a table read by its keys and indexes  =  the same rows from a WITH, which the engine reads
//! DML     a DELETE leaves the rows for which c is not true, an UPDATE changes the rest
//! ```
//! In each executor. No result may be an internal error. `ROPEWALK_SEED` and `ROPEWALK_ROUNDS` override the
//! defaults.

use ropewalk_sql::{Executor, Session};

use crate::executor_setting::session_in;
use crate::golden::shown;
use crate::random::{Expressions, Random, Table, chosen, tables};

struct Checker {
    session: Session,
    seed: u64,
    asked: usize,
    refused: usize,
}

impl Checker {
    /// The sorted rows of a result; `None` for an error that a user may cause.
    fn rows(&mut self, sql: &str) -> Option<Vec<String>> {
        self.asked += 1;
        match self.session.execute(sql, &[]) {
            Ok(outcome) => {
                let mut rows = shown(&outcome);
                rows.sort();
                Some(rows)
            }
            Err(error) => {
                assert!(
                    !error.state.0.starts_with("XX"),
                    "seed {}: {sql}: {} {}",
                    self.seed,
                    error.state,
                    error.message
                );
                if error.state.0 == "0A000" {
                    self.refused += 1;
                }
                if self.session.status() == ropewalk_sql::Status::Failed {
                    self.session.execute("ROLLBACK", &[]).unwrap();
                }
                None
            }
        }
    }

    fn same(&self, what: &str, left: Option<Vec<String>>, right: Option<Vec<String>>) {
        // When one form overflows, the other may not have evaluated the expression.
        if let (Some(left), Some(right)) = (left, right) {
            assert_eq!(left, right, "seed {}: {what}", self.seed);
        }
    }

    fn partitions(&mut self, list: &str, from: &str, condition: &str) {
        let all = self.rows(&format!("SELECT {list} FROM {from}"));
        let mut parts = Some(Vec::new());
        for part in [condition.to_owned(), format!("NOT {condition}"), format!("({condition}) IS NULL")] {
            let rows = self.rows(&format!("SELECT {list} FROM {from} WHERE {part}"));
            parts = parts.zip(rows).map(|(mut all, rows)| {
                all.extend(rows);
                all
            });
        }
        if let Some(parts) = &mut parts {
            parts.sort();
        }
        self.same(&format!("TLP of {from} by {condition}"), all, parts);
    }

    fn values(&mut self, list: &str, from: &str, condition: &str) {
        let filtered = self.rows(&format!("SELECT {list} FROM {from} WHERE {condition}"));
        let computed = self.rows(&format!("SELECT {list}, {condition} AS v FROM {from}")).map(|rows| {
            rows.into_iter().filter_map(|row| row.strip_suffix("|t").map(str::to_owned)).collect::<Vec<_>>()
        });
        self.same(&format!("NoREC of {from} by {condition}"), filtered, computed);
    }

    fn paths(&mut self, table: &Table, condition: &str) {
        let name = table.name;
        let by_keys = self.rows(&format!("SELECT * FROM {name} WHERE {condition}"));
        let by_engine = self
            .rows(&format!("WITH {name} AS (SELECT * FROM {name}) SELECT * FROM {name} WHERE {condition}"));
        self.same(&format!("paths of {name} by {condition}"), by_keys, by_engine);
    }

    fn writes(&mut self, table: &Table, condition: &str) {
        let name = table.name;
        let column = &table.numbers[1];
        let kept = self.rows(&format!("SELECT * FROM {name} WHERE ({condition}) IS NOT TRUE"));
        let met = self.rows(&format!("SELECT * FROM {name} WHERE {condition}"));
        self.session.execute("BEGIN", &[]).unwrap();
        let deleted = self.session.execute(&format!("DELETE FROM {name} WHERE {condition}"), &[]);
        if deleted.is_ok() {
            let left = self.rows(&format!("SELECT * FROM {name}"));
            self.same(&format!("DELETE FROM {name} WHERE {condition}"), left, kept);
        }
        self.session.execute("ROLLBACK", &[]).unwrap();
        self.session.execute("BEGIN", &[]).unwrap();
        let updated =
            self.session.execute(&format!("UPDATE {name} SET {column} = 777 WHERE {condition}"), &[]);
        if updated.is_ok() {
            let changed = self.rows(&format!("SELECT count(*) FROM {name} WHERE {column} = 777"));
            let met = met.map(|rows| vec![rows.len().to_string()]);
            self.same(&format!("UPDATE {name} WHERE {condition}"), changed, met);
        }
        self.session.execute("ROLLBACK", &[]).unwrap();
    }

    fn joins(&mut self, left: &Table, right: &Table, condition: &str) {
        let (l, r) = (left.name, right.name);
        let inner = self.rows(&format!("SELECT * FROM {l} JOIN {r} ON {condition}"));
        let crossed = self.rows(&format!("SELECT * FROM {l} CROSS JOIN {r} WHERE {condition}"));
        self.same(&format!("JOIN by {condition}"), inner.clone(), crossed);
        let outer = self.rows(&format!("SELECT * FROM {l} LEFT JOIN {r} ON {condition}"));
        let nulls = vec!["NULL"; right.columns().len()].join(", ");
        let lonely = self.rows(&format!(
            "SELECT {l}.*, {nulls} FROM {l} WHERE NOT EXISTS (SELECT 1 FROM {r} WHERE {condition})"
        ));
        let both = inner.zip(lonely).map(|(mut all, lonely)| {
            all.extend(lonely);
            all.sort();
            all
        });
        self.same(&format!("LEFT JOIN by {condition}"), outer.clone(), both);
        let turned = self.rows(&format!("SELECT {l}.*, {r}.* FROM {r} RIGHT JOIN {l} ON {condition}"));
        self.same(&format!("RIGHT JOIN by {condition}"), outer, turned);
    }

    fn aggregates(&mut self, table: &Table, condition: &str, key: &str) {
        let name = table.name;
        let column = &table.numbers[0];
        let grouped = self.rows(&format!(
            "SELECT g, count(*), sum({column}) FROM (SELECT {name}.*, {key} AS g FROM {name}) AS {name} WHERE {condition} GROUP BY g"
        ));
        let filtered = self.rows(&format!(
            "SELECT g, n, s FROM (SELECT {key} AS g, count(*) FILTER (WHERE {condition}) AS n, \
             sum({column}) FILTER (WHERE {condition}) AS s FROM {name} GROUP BY {key}) AS x WHERE n > 0"
        ));
        self.same(&format!("GROUP BY {key} of {name} by {condition}"), grouped, filtered);
        let distinct = self.rows(&format!("SELECT DISTINCT {key} FROM {name} WHERE {condition}"));
        let grouped = self.rows(&format!("SELECT {key} FROM {name} WHERE {condition} GROUP BY {key}"));
        let united = self.rows(&format!(
            "SELECT {key} FROM {name} WHERE {condition} UNION SELECT {key} FROM {name} WHERE {condition}"
        ));
        self.same(&format!("DISTINCT {key} of {name} by {condition}"), distinct.clone(), grouped);
        self.same(&format!("UNION {key} of {name} by {condition}"), distinct, united);
    }
}

#[test]
fn partitions_and_values_of_conditions_agree() {
    println!("{}", agrees_in(Executor::Auto));
}

#[test]
fn partitions_and_values_of_conditions_agree_in_rows() {
    println!("{}", agrees_in(Executor::Rows));
}

#[test]
fn partitions_and_values_of_conditions_agree_in_the_engine() {
    println!("{}", agrees_in(Executor::Engine));
}

#[test]
fn partitions_and_values_of_conditions_agree_in_nested_loops() {
    println!("{}", agrees_in(Executor::Nested));
}

/// Runs the checks in an executor; returns the number of statements.
fn agrees_in(executor: Executor) -> String {
    let first = chosen("ROPEWALK_SEED", 1);
    let (mut asked, mut refused) = (0, 0);
    // Regression: the last seed evaluated a constant NOT IN over rows with a NULL incorrectly.
    for seed in (first..first + chosen("ROPEWALK_ROUNDS", 40)).chain([1013]) {
        let mut random = Random::new(seed);
        let (all, statements) = tables(&mut random);
        let mut checker = Checker { session: session_in(executor), seed, asked: 0, refused: 0 };
        for statement in statements {
            checker.session.execute(&statement, &[]).unwrap();
        }
        let [t, u] = <[Table; 2]>::try_from(all).unwrap();
        for _ in 0..6 {
            let mut over = |tables: &[&Table], inner: Option<&Table>| {
                let tables = tables.iter().map(|table| (*table).clone()).collect();
                Expressions { random: &mut random, tables, inner: inner.cloned() }.condition(3)
            };
            let of_one = over(&[&t], None);
            let with_subquery = over(&[&t], Some(&u));
            let of_both = over(&[&t, &u], None);
            let key = {
                let mut over = Expressions { random: &mut random, tables: vec![t.clone()], inner: None };
                if over.random.odds(2) { over.number(2) } else { over.text(2) }
            };
            checker.partitions("*", "t", &of_one);
            checker.partitions("*", "t", &with_subquery);
            checker.partitions("*", "t CROSS JOIN u", &of_both);
            checker.partitions("*", "t LEFT JOIN u ON t.a1 = u.c0", &of_both);
            checker.values("*", "t", &of_one);
            checker.values("*", "t", &with_subquery);
            checker.values("*", "t CROSS JOIN u", &of_both);
            checker.paths(&t, &of_one);
            checker.paths(&t, &with_subquery);
            checker.writes(&t, &of_one);
            checker.writes(&t, &with_subquery);
            checker.joins(&t, &u, &of_both);
            checker.aggregates(&t, &of_one, &key);
        }
        asked += checker.asked;
        refused += checker.refused;
    }
    assert!(refused * 20 < asked, "{refused} of {asked} statements are not served");
    format!("{asked} statements, {refused} not served")
}
