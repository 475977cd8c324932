//! `bench omendb`: the report's table, with its own shape of SQLite, SQLite prepared and tuned, and the ordered stores.

use crate::harness::plan::Better::{Higher, Lower};
use crate::harness::plan::{Plan, Row, Step, short};
use crate::harness::worker::{Group, Task};
use crate::workloads::kernel::rows::Order;

/// The report's machine.
pub const MACHINE: &str =
    "Mac M3 Max, 128 GB, NVMe, macOS 14.6 (OmenDB, 14 October 2025; its load was not synced)";

const PEERS: &[&str] = &["sqlite_report_shape", "sqlite_prepared", "sqlite_tuned", "rocksdb", "lmdb", "redb"];

/// The report's figures for OmenDB: load ms, query µs, mean speedup over SQLite. After tuning only 10M
/// sequential was run again, and only its query.
const REPORT: [(u64, Order, [f64; 3]); 8] = [
    (10_000, Order::Seq, [3.23, 0.87, 3.54]),
    (10_000, Order::Rand, [5.91, 0.94, 3.24]),
    (100_000, Order::Seq, [27.57, 1.19, 3.15]),
    (100_000, Order::Rand, [89.9, 1.35, 2.69]),
    (1_000_000, Order::Seq, [283.2, 2.53, 2.40]),
    (1_000_000, Order::Rand, [892.0, 3.30, 2.40]),
    (10_000_000, Order::Seq, [3362.0, 3.915, 1.93]),
    (10_000_000, Order::Rand, [20_003.0, 5.09, 1.53]),
];

/// The plan; `quick` stops at 1M rows and loads each once.
pub fn plan(quick: bool) -> Plan {
    let sizes = REPORT.iter().filter(|(rows, ..)| !quick || *rows <= 1_000_000);
    Plan {
        name: "omendb",
        steps: sizes
            .map(|&(rows, order, report)| step(rows, order, report, quick))
            .chain([busy(quick)])
            .collect(),
    }
}

/// Only ours: the latencies of reads and commits during a load.
fn busy(quick: bool) -> Step {
    let (rows, seconds) = if quick { (1_000_000, 3.0) } else { (10_000_000, 20.0) };
    let task = Task { rows, seconds, ..Task::new(Group::Busy) };
    let row = |id: &str, what: &str, unit, better, figure: &str| {
        Row::new(format!("busy/{id}"), format!("{what}, {} rows", short(rows)), unit, better, figure)
    };
    let rows = vec![
        row("read/idle", "p99.9 of reads by key, nothing else running", "µs", Lower, "idle"),
        row("read", "p99.9 of reads by key during load and commits", "µs", Lower, "read"),
        row("read/ratio", "the second over the first", "ratio", Lower, "ratio"),
        row("commit", "p99 of durable commits during the load", "µs", Lower, "commit").durable("sync"),
        row("load", "load, a thousand rows a transaction", "row/s", Higher, "load").durable("no sync"),
    ];
    Step { task, victim: None, peers: &[], rounds: 1, rows }
}

fn step(rows: u64, order: Order, [insert, query, mean]: [f64; 3], quick: bool) -> Step {
    let passes = if quick || rows > 1_000_000 { 1 } else { 3 };
    let lookups = if quick { 100_000 } else { 500_000 };
    let task = Task { rows, order, passes, lookups, ..Task::new(Group::Omendb) };
    let (size, name) = (short(rows), order.name());
    let id = |what: &str| format!("{what}/{size}/{name}");
    let of = |what: &str| format!("{what}, {size} {name} rows");
    let ours = |figure: &str, what: &str| Row::new(id(figure), of(what), "ns", Lower, figure);
    let rows = vec![
        Row::new(id("insert"), of("load in one transaction"), "ms", Lower, "insert")
            .durable("sync at end")
            .reported(insert),
        Row::new(id("query"), of("1000 reads by key after it"), "µs", Lower, "query").reported(query),
        Row::new(id("mean"), of("mean speedup over SQLite as the report drove it"), "x", Higher, "mean")
            .reported(mean),
        ours("get", "prepared read of one row, warm, keys drawn at random"),
        ours("get_many", "the same, 32 keys at a time, per key"),
    ];
    Step { task, victim: None, peers: PEERS, rounds: 1, rows }
}
