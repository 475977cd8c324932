//! `bench tpcb-embedded`: durable transactions of three updates and one insert, by 1, 8 and 64 threads.

use crate::harness::plan::Better::Higher;
use crate::harness::plan::{Plan, Row, Step};
use crate::harness::worker::{Group, Task};

const PEERS: &[&str] = &["sqlite_full", "rocksdb"];

/// The plan.
pub fn plan(quick: bool) -> Plan {
    let steps = [1, 8, 64].map(|threads| {
        let (rows, seconds, rounds) = if quick { (100_000, 1.0, 1) } else { (1_000_000, 5.0, 2) };
        let task = Task { rows, threads, seconds, ..Task::new(Group::Tpcb) };
        let what = format!("transactions of three updates and one insert, {threads} threads");
        let row = Row::new(format!("threads{threads}"), what, "tx/s", Higher, "tpcb").durable("sync");
        Step { task, victim: None, peers: PEERS, rounds, rows: vec![row] }
    });
    Plan { name: "tpcb-embedded", steps: steps.into() }
}
