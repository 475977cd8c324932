//! `bench events-wire`: our server and UmaDB's under the same gRPC client on the same machine.
//!
//! Both sync every append before they acknowledge it; UmaDB has no other mode.

use crate::harness::plan::Better;
use crate::harness::plan::Better::{Higher, Lower};
use crate::harness::plan::{Plan, Row, Step, short};
use crate::harness::worker::{Group, Task};

const PEERS: &[&str] = &["umadb"];
/// Events under the read rows, as published for UmaDB.
const EVENTS: u64 = 100_000;
/// Idle subscriptions.
const IDLE: u64 = 10_000;

/// The plan; `quick` spends less time on each row.
pub fn plan(quick: bool) -> Plan {
    let seconds = if quick { 0.7 } else { 3.0 };
    let rounds = if quick { 1 } else { 2 };
    let step = |task: Task, rows: Vec<Row>| Step { task, victim: None, peers: PEERS, rounds, rows };
    let append = |group: Group, threads: usize, batch: usize, id: &str, what: &str| {
        let what = format!("{what}, {threads} client{}", if threads == 1 { "" } else { "s" });
        let row = Row::new(format!("{id}/c{threads}"), what, "ev/s", Higher, "append").durable("sync");
        let cpu = Row::new(
            format!("{id}/c{threads}/cpu"),
            format!("{}: the server's processor time for each", row.what),
            "µs",
            Lower,
            "cpu",
        );
        step(Task { threads, batch, seconds, ..Task::new(group) }, vec![row, cpu])
    };
    let mut steps = Vec::new();
    for clients in [1, 8, 32, 256] {
        steps.push(append(Group::WireAppend, clients, 1, "append/1", "append 1 event"));
    }
    for clients in [1, 8, 32] {
        let what = "append 1 event if its type and unique tag are new";
        steps.push(append(Group::WireConditional, clients, 1, "conditional", what));
    }
    for clients in [1, 8, 32] {
        let what = "read an account, append if nothing was added";
        steps.push(append(Group::WireDecide, clients, 1, "decide", what));
    }
    for clients in [1, 8] {
        steps.push(append(Group::WireAppend, clients, 100, "batch100", "append 100 events at once"));
    }
    steps.push(step(
        Task { rows: EVENTS, batch: 100, seconds: seconds / 2.0, ..Task::new(Group::WireQueries) },
        queries(),
    ));
    let row =
        |id: &str, what: &str| Row::new(format!("subscribe/{id}"), what, "ms", Lower, id).durable("sync");
    steps.push(step(
        Task { rows: EVENTS, seconds, ..Task::new(Group::WireSubscribe) },
        vec![
            row("p50", "from the append to the client that follows, median"),
            row("p99", "from the append to the client that follows, 99th percentile"),
        ],
    ));
    for (name, kinds, filters) in [("idle", IDLE, "each its own filter"), ("idle_same", 1, "one filter")] {
        let task =
            Task { rows: IDLE, batch: kinds as usize, threads: 8, seconds, ..Task::new(Group::WireIdle) };
        steps.push(Step { peers: &[], rounds: 0, ..step(task, idle(name, filters)) });
    }
    Plan { name: "events-wire", steps }
}

fn queries() -> Vec<Row> {
    let row = |id: &str, what: &str, unit: &'static str, better: Better| {
        Row::new(id, format!("{what}, of {}", short(EVENTS)), unit, better, id)
    };
    let rate = |id: &str, what: &str| row(id, what, "ev/s", Higher);
    let time = |id: &str, what: &str| row(id, what, "µs", Lower);
    vec![
        rate("ingest/unique_tags", "append 100 events at once, one tag of each unique, 1 client")
            .durable("sync"),
        rate("read/all/forward", "read every event, oldest first"),
        rate("read/all/backward", "read every event, newest first"),
        time("tag/1", "read the 1 event of a tag"),
        time("tag/100", "read the 100 events of a tag"),
        time("tag/2000", "read the 2,000 events of a tag"),
        time("tag/miss", "read a tag that no event has"),
        time("tag_and_type/100", "read the 100 events of a type and a tag"),
        rate("type/20pct/forward", "read a type with 20 % of the events, oldest first"),
        rate("type/20pct/backward", "the same, newest first"),
        time("type/newest", "read the newest event of a type"),
        time("type/miss", "read a type that no event has"),
    ]
}

fn idle(name: &str, filters: &str) -> Vec<Row> {
    let row = |id: &str, what: &str, unit: &'static str, better: Better| {
        let what = format!("{what} {} idle subscriptions, {filters}", short(IDLE));
        Row::new(format!("{name}/{id}"), what, unit, better, id)
    };
    vec![
        row("resident", "memory that the server needs for", "MiB", Lower),
        row("append", "append 1 event, 8 clients, with", "ev/s", Higher).durable("sync"),
        row("kept", "remaining rate of appends with", "%", Higher).durable("sync"),
        row("cpu", "the server's processor time for each append with", "µs", Lower),
        row("cpu_without", "the same before and after", "µs", Lower),
    ]
}
