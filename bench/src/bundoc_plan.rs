//! `bench bundoc`: the report's rows, beside SQLite with one shared connection, with a connection each, and unsynced.

use crate::plan::Better::Higher;
use crate::plan::{Plan, Row, Step};
use crate::rows::Order;
use crate::worker::{Group, Task};

/// The report's machine.
pub const MACHINE: &str = "Apple M4, macOS (Bundoc, 1 February 2026)";

const DURABLE: &[&str] = &["sqlite_full_shared", "sqlite_full_own"];
const READING: &[&str] = &["sqlite_full_own"];

/// The plan; `quick` runs fewer operations.
pub fn plan(quick: bool) -> Plan {
    let (writes, reads) = if quick { (3_000, 100_000) } else { (20_000, 1_000_000) };
    let rounds = if quick { 1 } else { 2 };
    let mut steps = Vec::new();
    let mut add = |task: Task, peers: &'static [&'static str], row: Row| {
        steps.push(Step { task, victim: None, peers, rounds, rows: vec![row] });
    };
    let row =
        |id: &str, what: &str, report: f64| Row::new(id, what, "ops/s", Higher, "rate").reported(report);
    for (threads, report) in [(1, 69.29), (10, 698.6), (50, 3659.0)] {
        let task = Task { threads, lookups: writes, ..Task::new(Group::BundocInsert) };
        let row = row(&format!("insert/{threads}"), &format!("insert a document, {threads} workers"), report);
        add(task, DURABLE, row.durable("sync"));
    }
    for (threads, report) in [(1, 69.23), (10, 714.4), (50, 1621.0)] {
        let task = Task { threads, rows: 10_000, lookups: reads, ..Task::new(Group::BundocFind) };
        let what = format!("find a document by its id, {threads} workers, 10K documents");
        add(task, READING, row(&format!("find/{threads}"), &what, report));
    }
    let task = Task { rows: 1_000, lookups: writes, ..Task::new(Group::BundocUpdate) };
    add(task, DURABLE, row("update/1", "replace a document, 1 worker, 1K documents", 69.23).durable("sync"));
    for (batch, name, report) in [(80, "80-20", 705.3), (50, "50-50", 692.7), (20, "20-80", 705.7)] {
        for (order, suffix, how) in [(Order::Seq, "", "as coded"), (Order::Rand, "/shuffled", "shuffled")] {
            let (threads, rows, lookups) = (10, 5_000, if quick { 10_000 } else { 50_000 });
            let task = Task { threads, rows, lookups, batch, order, ..Task::new(Group::BundocMix) };
            let what = format!("{name} reads and writes, 10 workers, {how}");
            let row = row(&format!("mix/{name}{suffix}"), &what, report);
            add(task, DURABLE, row.durable("sync"));
        }
    }
    let task = Task { batch: 10_000, passes: if quick { 5 } else { 20 }, ..Task::new(Group::BundocBatch) };
    let batch = Row::new("batch/10000", "10K documents in one transaction", "docs/s", Higher, "rate");
    add(task, DURABLE, batch.durable("sync").reported(70_000.0));
    Plan { name: "bundoc", steps }
}
