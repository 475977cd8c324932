//! `bench projections`: catch-up over stored events and a rebuild, into a table, while live commits continue.
//!
//! The projection is Rust code of the application, or declared by SQL. Goals: a million events a second in
//! Rust, half a million for a declared projection.

use crate::harness::plan::Better::{Higher, Lower};
use crate::harness::plan::{Plan, Row, Step, short};
use crate::harness::worker::{Group, Task};

/// The declared statements: name, description, SQL. Data of an event is `{"kind":"rope","n":7}`.
pub const STATEMENTS: [(&str, &str, &str); 3] = [
    ("insert", "a row of constants for each event", "INSERT INTO t VALUES (event.position, 1)"),
    (
        "json",
        "a row with a number of the event's JSON",
        "INSERT INTO t VALUES (event.position, (event.json->>'n')::int)",
    ),
    (
        "count",
        "one of 100 rows counts the event",
        "INSERT INTO t VALUES (event.position % 100, 1) ON CONFLICT (k) DO UPDATE SET n = t.n + 1",
    ),
];

const RUST_GOAL: f64 = 1e6;
const SQL_GOAL: f64 = 5e5;

fn rows(name: &str, what: &str, events: u64, goal: f64) -> Vec<Row> {
    let size = short(events);
    let rate = |phase: &str, words: &str| {
        let what = format!("{words} of {size} events with live commits: {what}");
        Row::new(format!("{phase}/{name}"), what, "ev/s", Higher, phase).durable("sync").with_goal(goal)
    };
    let live = |phase: &str, words: &str| {
        let what = format!("a live commit during the {words}, 99th percentile: {what}");
        let figure = format!("{phase}/live");
        Row::new(format!("{phase}/live/{name}"), what, "ms", Lower, figure).durable("sync")
    };
    vec![
        rate("catch_up", "catch-up"),
        live("catch_up", "catch-up"),
        rate("rebuild", "rebuild"),
        live("rebuild", "rebuild"),
    ]
}

/// The plan; `quick` has a million events instead of ten.
pub fn plan(quick: bool) -> Plan {
    let events = if quick { 1_000_000 } else { 10_000_000 };
    let rounds = if quick { 0 } else { 1 };
    let step = |group: Group, batch, rows| {
        let task = Task { rows: events, batch, ..Task::new(group) };
        Step { task, victim: None, peers: &[], rounds, rows }
    };
    let rust = rows("rust", "in Rust, a row with a number of the event's JSON", events, RUST_GOAL);
    let mut steps = vec![step(Group::ProjectionRust, 0, rust)];
    for (number, (name, what, _)) in STATEMENTS.iter().enumerate() {
        let rows = rows(&format!("sql/{name}"), &format!("declared, {what}"), events, SQL_GOAL);
        steps.push(step(Group::ProjectionSql, number, rows));
    }
    Plan { name: "projections", steps }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_measures_every_statement_with_its_goal() {
        let plan = plan(true);
        let rows: Vec<&Row> = plan.steps.iter().flat_map(|step| &step.rows).collect();
        let goal = |id: &str| rows.iter().find(|row| row.id == id).and_then(|row| row.goal);
        assert_eq!(goal("catch_up/rust"), Some(RUST_GOAL));
        for (name, ..) in STATEMENTS {
            assert_eq!(goal(&format!("rebuild/sql/{name}")), Some(SQL_GOAL), "{name}");
        }
    }
}
