//! `bench copy`: rows as text into a table and out of it, through the library and over the wire.

use crate::harness::plan::Better::Higher;
use crate::harness::plan::{Plan, Row, Step, short};
use crate::harness::worker::{Group, Task};

/// The plan; `quick` copies a tenth.
pub fn plan(quick: bool) -> Plan {
    let (rows, rounds) = if quick { (1_000_000, 1) } else { (10_000_000, 2) };
    let step = |group, below: &str, how: &str, peers: &'static [&'static str]| {
        let row = |id: &str, what: &str| {
            let what = format!("COPY of {} rows {what}, {how}", short(rows));
            Row::new(format!("copy/{id}{below}"), what, "row/s", Higher, id)
        };
        let rows_of = vec![row("in", "into an empty table").durable("sync"), row("out", "out of it")];
        Step { task: Task { rows, ..Task::new(group) }, victim: None, peers, rounds, rows: rows_of }
    };
    let steps = vec![
        step(Group::CopyWire, "", "by psql", &["postgres15"]),
        step(Group::CopyEmbedded, "/embedded", "through the library", &["sqlite_prepared"]),
    ];
    Plan { name: "copy", steps }
}
