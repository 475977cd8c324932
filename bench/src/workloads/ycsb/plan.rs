//! `bench ycsb`: the six core workloads, uniform and zipfian, by 1 and 8 threads; in full runs also with every commit synced.

use crate::harness::plan::Better::Higher;
use crate::harness::plan::{Plan, Row, Step};
use crate::harness::worker::{Group, Task};
use crate::workloads::ycsb::run::WORKLOADS;

const PEERS: &[&str] = &["sqlite_tuned", "rocksdb", "lmdb", "redb"];

/// The plan; `quick` has fewer rows and a quarter of a second for each workload.
pub fn plan(quick: bool) -> Plan {
    let mut steps = Vec::new();
    for durable in if quick { &[false][..] } else { &[false, true] } {
        for zipfian in [false, true] {
            steps.extend([1, 8].map(|threads| step(threads, zipfian, *durable, quick)));
        }
    }
    Plan { name: "ycsb", steps }
}

fn step(threads: usize, zipfian: bool, durable: bool, quick: bool) -> Step {
    let (rows, seconds) = if quick { (100_000, 0.25) } else { (1_000_000, 1.5) };
    let task = Task { rows, threads, seconds, zipfian, durable, ..Task::new(Group::Ycsb) };
    let keys = if zipfian { "zipfian" } else { "uniform" };
    let (prefix, how) = if durable { ("durable/", "sync") } else { ("", "buffered") };
    let mut rows: Vec<Row> = WORKLOADS
        .iter()
        .map(|(name, workload)| {
            let what = format!("YCSB {workload:?}, {keys} keys, {threads} threads");
            Row::new(format!("{prefix}{name}/{keys}/threads{threads}"), what, "op/s", Higher, *name)
                .durable(how)
        })
        .collect();
    rows.sort_by(|a, b| a.id.cmp(&b.id));
    Step { task, victim: None, peers: PEERS, rounds: 1, rows }
}
