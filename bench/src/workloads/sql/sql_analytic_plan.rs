//! `bench sql-analytic`: the 22 queries of TPC-H, through the library, compared with DuckDB and SQLite.

use crate::harness::plan::Better::{Higher, Lower};
use crate::harness::plan::{Plan, Row, Step};
use crate::harness::worker::{Group, Task};
use crate::workloads::sql::tpch;

const PEERS: &[&str] = &["duckdb", "sqlite"];

/// The plan: scale 0.1, and in full runs 1 as well.
pub fn plan(quick: bool) -> Plan {
    let step = |scale: &str, orders: u64, passes: usize| {
        let at = if scale == "0.1" { String::new() } else { format!("@{scale}") };
        let row = |id: String, what: String| Row::new(format!("{id}{at}"), what, "ms", Lower, id);
        let mut rows: Vec<Row> = (1..=tpch::QUESTIONS)
            .map(|number| row(format!("q{number}"), format!("TPC-H question {number}, scale {scale}")))
            .collect();
        rows.push(row("total".into(), format!("all 22, scale {scale}")));
        let load = format!("rows loaded, scale {scale}");
        rows.push(Row::new(format!("load{at}"), load, "row/s", Higher, "load").durable("sync"));
        let task = Task { rows: orders, passes, ..Task::new(Group::Analytic) };
        Step { task, victim: None, peers: PEERS, rounds: 1, rows }
    };
    let mut steps = vec![step("0.1", tpch::ORDERS / 10, if quick { 3 } else { 5 })];
    if !quick {
        steps.push(step("1", tpch::ORDERS, 3));
    }
    Plan { name: "sql-analytic", steps }
}
