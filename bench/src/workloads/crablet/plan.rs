//! `bench crablet`: the sections of the go-crablet report, for us and for its approach on this machine.
//!
//! We acknowledge every append after its sync, always serializable. The peer implements go-crablet's
//! published approach over PostgreSQL 15: synced too, READ COMMITTED unless the header requests SERIALIZABLE,
//! conditions that overlapping appends can both pass; `concurrency/violations` counts those. In sections 2 to
//! 4 the users pause, which caps the rate at the client; the `busy` rows omit the pauses.

use crate::harness::plan::Better::{Higher, Lower};
use crate::harness::plan::{Plan, Row, Step};
use crate::harness::worker::{Group, Task};

/// As far as the report states it.
pub const MACHINE: &str = "go-crablet with PostgreSQL in Docker, machine not named, July 2025";

const PEERS: &[&str] = &["go_crablet_sql"];

/// A section: name, description, seconds of the original, reported requests per second and 95th percentile in
/// ms.
type Section = (Group, &'static str, &'static str, f64, Option<(f64, f64)>);

const SECTIONS: [Section; 6] = [
    (Group::CrabletQuick, "quick", "append and read back, 2 users", 10.0, Some((1271.0, 2.24))),
    (
        Group::CrabletAppend,
        "append",
        "appends of 1 to 50 events, up to 100 users",
        260.0,
        Some((61.5, 2820.0)),
    ),
    (Group::CrabletAppendBusy, "append_busy", "the same without pauses", 60.0, None),
    (
        Group::CrabletIsolation,
        "isolation",
        "three isolation levels, up to 20 users",
        260.0,
        Some((32.2, 1390.0)),
    ),
    (
        Group::CrabletConcurrency,
        "concurrency",
        "the same tags for up to 20 users",
        250.0,
        Some((29.4, 1950.0)),
    ),
    (Group::CrabletConcurrencyBusy, "concurrency_busy", "the same without pauses", 60.0, None),
];

/// The plan; `quick` shortens every ramp to a few seconds.
pub fn plan(quick: bool) -> Plan {
    let steps = SECTIONS.map(|(group, name, what, seconds, reported)| {
        let seconds = if !quick {
            seconds
        } else if reported.is_some() && seconds > 100.0 {
            5.0
        } else {
            2.0
        };
        let row = |figure: &'static str, what: String, unit, better| {
            Row::new(format!("{name}/{figure}"), what, unit, better, figure).durable("sync")
        };
        let rps = row("rps", format!("{what}: requests"), "req/s", Higher);
        let p95 = row("p95", format!("{what}: 95th percentile"), "ms", Lower);
        let (rps, p95) = match reported {
            Some((rate, ms)) => (rps.reported(rate), p95.reported(ms)),
            None => (rps, p95),
        };
        let mut rows = vec![rps, p95, row("errors", format!("{what}: wrong answers"), "count", Lower)];
        if matches!(group, Group::CrabletConcurrency | Group::CrabletConcurrencyBusy) {
            rows.push(row(
                "violations",
                format!("{what}: appends that their condition forbids"),
                "count",
                Lower,
            ));
        }
        Step { task: Task { seconds, ..Task::new(group) }, victim: None, peers: PEERS, rounds: 1, rows }
    });
    Plan { name: "crablet", steps: steps.into() }
}
