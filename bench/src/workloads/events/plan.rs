//! `bench events-embedded`: the event store as a library, compared with UmaDB's core used the same way.
//!
//! UmaDB is measured with one writing thread only: its core is not safe with more. The quick form omits it in
//! the rows at 1M, where preloading it takes most of a minute each time.

use crate::harness::plan::Better::{Higher, Lower};
use crate::harness::plan::{Plan, Row, Step, short};
use crate::harness::worker::{Group, Task};

const PEERS: &[&str] = &["umadb"];

/// The plan: reads at 100K and at 1M events; a plain id is the 1M one.
pub fn plan(quick: bool) -> Plan {
    let seconds = if quick { 0.7 } else { 3.0 };
    let mut steps = Vec::new();
    for threads in [1, 8, 32] {
        let task = Task { threads, seconds, ..Task::new(Group::Append) };
        let what = if threads == 1 {
            "append 1 event, 1 thread".into()
        } else {
            format!("append 1 event, {threads} threads")
        };
        let row =
            Row::new(format!("append/1/threads{threads}"), what, "ev/s", Higher, "append").durable("sync");
        steps.push(step(task, if threads == 1 { PEERS } else { &[] }, quick, vec![row]));
    }
    for batch in [100, 1000] {
        let task = Task { batch, seconds, ..Task::new(Group::Append) };
        let what = format!("append {batch} events at once, 1 thread");
        let row = Row::new(format!("append/batch{batch}"), what, "ev/s", Higher, "append").durable("sync");
        steps.push(step(task, PEERS, quick, vec![row]));
    }
    let what = "append 1 event if its type and unique tag are new";
    let row = Row::new("append/conditional", what, "ev/s", Higher, "append").durable("sync");
    steps.push(step(Task { seconds, ..Task::new(Group::Conditional) }, PEERS, quick, vec![row]));
    for size in [100_000, 1_000_000] {
        let peers = if quick && size > 100_000 { &[] } else { PEERS };
        steps.push(queries(size, peers, quick));
        steps.push(reopen(size, peers));
    }
    if !quick {
        steps.push(reopen(10_000_000, &[]));
    }
    Plan { name: "events-embedded", steps }
}

fn step(task: Task, peers: &'static [&'static str], quick: bool, rows: Vec<Row>) -> Step {
    Step { task, victim: None, peers, rounds: if quick { 1 } else { 2 }, rows }
}

fn suffix(size: u64) -> String {
    if size == 1_000_000 { String::new() } else { format!("@{}", short(size)) }
}

fn queries(size: u64, peers: &'static [&'static str], quick: bool) -> Step {
    let at = suffix(size);
    let row = |figure: &str, what: &str, unit: &'static str| {
        let better = if unit == "ev/s" { Higher } else { Lower };
        Row::new(format!("{figure}{at}"), format!("{what}, of {}", short(size)), unit, better, figure)
    };
    let rows = vec![
        row("read/all/forward", "read every event, oldest first", "ev/s"),
        row("read/all/backward", "read every event, newest first", "ev/s"),
        row("tag/100", "read the 100 events of a tag", "µs"),
        row("tag/2000", "read the 2,000 events of a tag", "µs"),
        row("tag_and_type/100", "read the 100 events of a type and a tag", "µs"),
        row("type/20pct/forward", "read a type with 20 % of the events, oldest first", "ev/s"),
        row("type/20pct/backward", "the same, newest first", "ev/s"),
        row("type/miss", "read a type that no event has", "µs"),
        row("condition/miss", "append 1 event if a type that no event has is absent", "µs").durable("sync"),
    ];
    let task = Task { rows: size, seconds: if quick { 0.3 } else { 2.0 }, ..Task::new(Group::Queries) };
    Step { task, victim: None, peers, rounds: 1, rows }
}

fn reopen(size: u64, peers: &'static [&'static str]) -> Step {
    let resident = format!("peak memory of opening and reading {} events both ways", short(size));
    let what = format!("open after kill -9 under load, to the newest of {} events", short(size));
    let rows = vec![
        Row::new(format!("open/after_kill{}", suffix(size)), what, "ms", Lower, "open"),
        Row::new(format!("resident{}", suffix(size)), resident, "MiB", Lower, "resident"),
    ];
    let task = Task { rows: size, ..Task::new(Group::Reopen) };
    let victim = Some(Task { rows: size, ..Task::new(Group::Fill) });
    Step { task, victim, peers, rounds: 1, rows }
}
