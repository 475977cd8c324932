//! `bench bundoc`: the report's rows, compared with SQLite with one shared connection, and with a connection
//! each.

use crate::harness::plan::Better::{Higher, Lower};
use crate::harness::plan::{Plan, Row, Step, short};
use crate::harness::worker::{Group, Task};
use crate::workloads::kernel::rows::Order;

/// The report's machine.
pub const MACHINE: &str = "Apple M4, macOS (Bundoc, 1 February 2026)";

const DURABLE: &[&str] = &["sqlite_full_shared", "sqlite_full_own"];
const BUFFERED: &[&str] = &["sqlite_normal_shared", "sqlite_normal_own"];
const READING: &[&str] = &["sqlite_full_own"];

/// The plan; `quick` runs fewer operations.
pub fn plan(quick: bool) -> Plan {
    let (writes, reads) = if quick { (3_000, 100_000) } else { (10_000, 1_000_000) };
    let rounds = if quick { 1 } else { 2 };
    let mut steps = Vec::new();
    let mut add = |task: Task, peers: &'static [&'static str], row: Row| {
        let durable = row.durability == Some("sync");
        steps.push(Step { task: Task { durable, ..task }, victim: None, peers, rounds, rows: vec![row] });
    };
    let row = |id: &str, what: &str| Row::new(id, what, "ops/s", Higher, "rate");
    let inserts = |threads: usize, lookups: usize| {
        let what = format!("insert a document, {threads} workers");
        (Task { threads, lookups, ..Task::new(Group::BundocInsert) }, what)
    };
    for (threads, report) in [(1, 69.29), (10, 698.6), (50, 3659.0)] {
        let (task, what) = inserts(threads, writes);
        add(task, DURABLE, row(&format!("insert/{threads}"), &what).durable("sync").reported(report));
    }
    for threads in [1, 50] {
        let (task, what) = inserts(threads, 5 * writes);
        let row = row(&format!("insert/{threads}/buffered"), &format!("{what}, not synced"));
        add(task, BUFFERED, row.durable("buffered"));
    }
    for (threads, report) in [(1, 69.23), (10, 714.4), (50, 1621.0)] {
        let task = Task { threads, rows: 10_000, lookups: reads, ..Task::new(Group::BundocFind) };
        let what = format!("find a document by its id, {threads} workers, 10K documents");
        add(task, READING, row(&format!("find/{threads}"), &what).reported(report));
    }
    let task = Task { rows: 1_000, lookups: writes, ..Task::new(Group::BundocUpdate) };
    let what = "replace a document, 1 worker, 1K documents";
    add(task, DURABLE, row("update/1", what).durable("sync").reported(69.23));
    for (batch, name, report) in [(80, "80-20", 705.3), (50, "50-50", 692.7), (20, "20-80", 705.7)] {
        for (order, suffix, how) in [(Order::Seq, "", "as coded"), (Order::Rand, "/shuffled", "shuffled")] {
            let (threads, rows, lookups) = (10, 5_000, if quick { 10_000 } else { 20_000 });
            let task = Task { threads, rows, lookups, batch, order, ..Task::new(Group::BundocMix) };
            let what = format!("{name} reads and writes, 10 workers, {how}");
            add(task, DURABLE, row(&format!("mix/{name}{suffix}"), &what).durable("sync").reported(report));
        }
    }
    let task = Task { batch: 10_000, passes: if quick { 5 } else { 20 }, ..Task::new(Group::BundocBatch) };
    let batch = Row::new("batch/10000", "10K documents in one transaction", "docs/s", Higher, "rate");
    add(task, DURABLE, batch.durable("sync").reported(70_000.0));
    steps.push(reopen(if quick { 100_000 } else { 1_000_000 }));
    Plan { name: "bundoc", steps }
}

/// Opening after a kill in the middle of inserts.
fn reopen(documents: u64) -> Step {
    let size = short(documents);
    let what = format!("open {size} documents after a kill, and read the first and the last");
    let row = Row::new(format!("reopen/{size}"), what, "ms", Lower, "open");
    let of = |group| Task { rows: documents, durable: true, ..Task::new(group) };
    let victim = Some(of(Group::BundocFill));
    Step { task: of(Group::BundocReopen), victim, peers: READING, rounds: 1, rows: vec![row] }
}
