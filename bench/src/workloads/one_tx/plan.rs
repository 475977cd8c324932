//! `bench one-tx`: a transaction over four models, embedded and over HTTP, compared with transactions over one
//! model that write the same bytes; and orders until the read model shows them, compared with an outbox and
//! with dual writes.
//!
//! Goals: four models take at most 1.3 times as long as the slowest single model, 32 clients reach 25,000
//! transactions over HTTP a second, and the read model shows an order five times as soon as the peers'.

use super::input::Kind;
use crate::harness::plan::Better::{Higher, Lower};
use crate::harness::plan::{Plan, Row, Step};
use crate::harness::worker::{Group, Task};

/// PostgreSQL 15 with an outbox and a relay that polls it.
pub const OUTBOX: &str = "postgres_outbox";
/// PostgreSQL 15, MongoDB and Prometheus, written one after the other.
pub const DUAL_WRITES: &str = "postgres_mongo_prometheus";
const PEERS: &[&str] = &[OUTBOX, DUAL_WRITES];

const RATIO_GOAL: f64 = 1.3;
const HTTP_GOAL: f64 = 25_000.0;

/// The rows of one task: `place` ends their ids, `by` their descriptions.
fn rows(place: &str, by: &str, durability: &'static str) -> Vec<Row> {
    let of = |kind: Kind, what: &str| {
        let id = format!("{}/{place}", kind.name());
        Row::new(id, format!("{what}, {by}"), "tx/s", Higher, kind.name()).durable(durability)
    };
    let slowest = format!("the slowest of the single models, {by}");
    let ratio = format!("time of four models relative to the slowest single one, {by}");
    vec![
        of(Kind::Four, "an event, a document, a row and 8 samples in one transaction"),
        Row::new(format!("slowest_single/{place}"), slowest, "tx/s", Higher, "slowest_single")
            .durable(durability),
        Row::new(format!("ratio/{place}"), ratio, "x", Lower, "ratio")
            .durable(durability)
            .with_goal(RATIO_GOAL),
        of(Kind::Event, "an event of the same bytes"),
        of(Kind::Document, "a document of the same bytes is replaced"),
        of(Kind::Row, "a row of the same bytes is updated"),
        of(Kind::Samples, "32 samples of 8 series"),
    ]
}

fn plural(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// The embedded steps, then those over HTTP.
fn transactions(quick: bool) -> Vec<Step> {
    let (keys, passes, rounds) = if quick { (10_000, 2, 0) } else { (100_000, 5, 2) };
    let step = |group: Group, threads, durable, rows| {
        let seconds = match (quick, group) {
            (true, Group::OneTx) => 0.4,
            (true, _) => 0.8,
            (false, _) => 5.0,
        };
        let task = Task { rows: keys, threads, seconds, passes, durable, ..Task::new(group) };
        Step { task, victim: None, peers: &[], rounds, rows }
    };
    let mut steps = Vec::new();
    for durable in [true, false] {
        let durability = if durable { "sync" } else { "buffered" };
        for threads in [1, 8, 32] {
            let place = format!("embedded/{durability}/threads{threads}");
            let by = format!("{durability}, {}", plural(threads, "thread"));
            steps.push(step(Group::OneTx, threads, durable, rows(&place, &by, durability)));
        }
    }
    for clients in [1, 32] {
        let by = format!("over HTTP, {}", plural(clients, "client"));
        let with_goal =
            |row: Row| if row.id == "four_models/http/c32" { row.with_goal(HTTP_GOAL) } else { row };
        let rows = rows(&format!("http/c{clients}"), &by, "sync").into_iter().map(with_goal).collect();
        steps.push(step(Group::OneTxHttp, clients, true, rows));
    }
    steps
}

fn orders(quick: bool) -> Step {
    let ms = |figure: &'static str, what: &str| {
        let row = Row::new(format!("outbox_end_to_end/{figure}"), what, "ms", Lower, figure);
        row.durable("sync")
    };
    let rate = Row::new(
        "outbox_end_to_end/busy/orders_per_s",
        "32 clients, until the read model shows all orders",
        "orders/s",
        Higher,
        "busy/orders_per_s",
    );
    let rows = vec![
        ms("alone/p50", "one client, from the request until the read model shows the order, median"),
        ms("alone/p99", "the same, 99th percentile"),
        ms("busy/p50", "the same while 31 clients place orders, median"),
        ms("busy/p99", "the same, 99th percentile"),
        rate.durable("sync"),
    ];
    let seconds = if quick { 1.5 } else { 20.0 };
    let task = Task { threads: 32, seconds, ..Task::new(Group::Orders) };
    Step { task, victim: None, peers: PEERS, rounds: if quick { 1 } else { 2 }, rows }
}

/// The plan; `quick` has fewer keys and shorter passes.
pub fn plan(quick: bool) -> Plan {
    let mut steps = transactions(quick);
    steps.push(orders(quick));
    Plan { name: "one-tx", steps }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_states_the_goals_of_its_rows() {
        let plan = plan(true);
        let rows: Vec<&Row> = plan.steps.iter().flat_map(|step| &step.rows).collect();
        let goal = |id: &str| rows.iter().find(|row| row.id == id).and_then(|row| row.goal);
        assert_eq!(goal("four_models/http/c32"), Some(25_000.0));
        assert_eq!(goal("four_models/http/c1"), None);
        assert_eq!(goal("ratio/embedded/buffered/threads8"), Some(1.3));
        assert!(rows.iter().all(|row| row.durability.is_some()));
    }
}
