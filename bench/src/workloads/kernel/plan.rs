//! `bench kernel`: durable commits, bulk load, point reads, scans and size of ordered rows.

use crate::harness::plan::Better::{Higher, Lower};
use crate::harness::plan::{Plan, Row, Step, short};
use crate::harness::worker::{Group, Task};
use crate::workloads::kernel::rows::Order;

const COMMIT_PEERS: &[&str] = &["sqlite_full", "rocksdb", "lmdb", "redb"];
const ORDERED_PEERS: &[&str] = &["sqlite_tuned", "rocksdb", "lmdb", "redb", "btreemap"];

/// The plan; `quick` stops at 1M random rows and makes fewer lookups.
pub fn plan(quick: bool) -> Plan {
    let mut steps: Vec<Step> = [1, 16, 64].into_iter().map(|threads| commit(threads, quick)).collect();
    steps.push(submit(quick));
    let sizes: &[(u64, Order)] = if quick {
        &[(1_000_000, Order::Rand)]
    } else {
        &[
            (1_000_000, Order::Seq),
            (1_000_000, Order::Rand),
            (10_000_000, Order::Seq),
            (10_000_000, Order::Rand),
        ]
    };
    steps.extend(sizes.iter().map(|&(rows, order)| ordered(rows, order, quick)));
    Plan { name: "kernel", steps }
}

fn commit(threads: usize, quick: bool) -> Step {
    let task = Task { threads, seconds: seconds(quick), ..Task::new(Group::Commit) };
    let what = if threads == 1 {
        "durable commits, 1 writer".into()
    } else {
        format!("durable commits, {threads} writers")
    };
    let row = Row::new(format!("commit/sync/{threads}"), what, "op/s", Higher, "commit").durable("sync");
    Step { task, victim: None, peers: COMMIT_PEERS, rounds: if quick { 1 } else { 2 }, rows: vec![row] }
}

fn submit(quick: bool) -> Step {
    let task = Task { seconds: seconds(quick), ..Task::new(Group::Submit) };
    let what = "durable commits, 1 thread, submit call";
    let row = Row::new("commit/submit", what, "op/s", Higher, "submit").durable("sync");
    Step { task, victim: None, peers: &[], rounds: 1, rows: vec![row] }
}

fn ordered(rows: u64, order: Order, quick: bool) -> Step {
    let (size, name) = (short(rows), order.name());
    let (lookups, passes) = if quick { (250_000, 1) } else { (500_000, 3) };
    let task = Task { rows, order, lookups, passes, ..Task::new(Group::Ordered) };
    let id = |what: &str| format!("{what}/{size}/{name}");
    let of = |what: &str| format!("{what}, {size} {name} rows");
    let ablation = |name: &str, what: &str| {
        Row::new(format!("{}/{name}", id("point/hit")), of(what), "ns", Lower, format!("hit/{name}"))
    };
    let rows = vec![
        Row::new(id("load"), of("bulk load, durable at the end"), "row/s", Higher, "load")
            .durable("sync at end"),
        Row::new(id("settle"), of("flush and compact after the load"), "s", Lower, "settle"),
        Row::new(id("disk"), of("bytes on disk ÷ raw bytes"), "ratio", Lower, "disk"),
        Row::new(id("point/hit"), of("point read, hit"), "ns", Lower, "hit"),
        ablation("model_on", "the same after opening again, with the learned model"),
        ablation("model_off", "the same after opening again, without it"),
        Row::new(id("point/miss"), of("point read, miss"), "ns", Lower, "miss"),
        Row::new(id("scan100"), of("scan of 100 rows"), "µs", Lower, "scan100"),
    ];
    Step { task, victim: None, peers: ORDERED_PEERS, rounds: 1, rows }
}

fn seconds(quick: bool) -> f64 {
    if quick { 1.0 } else { 3.0 }
}
