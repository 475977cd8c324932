//! Time without writes after SIGKILL of the leader, alone and together with the server of NATS that leads the stream.
//!
//!   clients at the other nodes: a write every few milliseconds ─▶ kill ─▶ the first write that began after it and was
//!   acknowledged ends the gap ─▶ the processes start again, and the replicas of the stream become current
//!
//! At the end every acknowledged write must be stored.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ropewalk_bench::harness::worker::{Figure, Outcome, Task};
use serde_json::Value;

use super::nodes::Nodes;
use crate::wire::http::Http;

const EVENTS: &str = "/v1/stores/gap/events";
/// Load before each kill.
const LOAD: Duration = Duration::from_secs(1);
/// Between two writes of a client, and after one that was refused.
const PAUSE: Duration = Duration::from_millis(5);
/// Only to end a hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// A write that was acknowledged.
struct Acknowledged {
    name: String,
    began: Instant,
    ended: Instant,
}

/// State that the clients of a round share.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    acknowledged: Mutex<Vec<Acknowledged>>,
}

impl Shared {
    fn with<R>(&self, work: impl FnOnce(&mut Vec<Acknowledged>) -> R) -> R {
        work(&mut self.acknowledged.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// End of the first write that began after `killed`.
    fn first_after(&self, killed: Instant) -> Option<Instant> {
        self.with(|all| all.iter().filter(|write| write.began > killed).map(|write| write.ended).min())
    }
}

/// Kills of both kinds in turn.
pub(crate) fn run(task: &Task) -> Result<Outcome> {
    let mut nodes = Nodes::start(&task.dir, task.batch, false)?;
    let (mut ours, mut both) = (Figure::default(), Figure::default());
    let mut names = Vec::new();
    for round in 0..task.passes {
        for (figure, with_log) in [(&mut ours, false), (&mut both, true)] {
            let place = format!("{round}-{with_log}");
            figure.samples.push(gap(&mut nodes, with_log, &place, &mut names)?);
        }
    }
    check(&nodes, &names)?;
    let mut outcome = Outcome::default();
    outcome.figure("our_leader", ours);
    outcome.figure("log_leader", both);
    Ok(outcome)
}

/// Seconds without writes after one kill. `names` gets those of the acknowledged writes.
fn gap(nodes: &mut Nodes, with_log: bool, place: &str, names: &mut Vec<String>) -> Result<f64> {
    let leader = nodes.leader()?;
    let log_leader = nodes.log.leader()?;
    let others: Vec<String> =
        nodes.all().filter(|(number, _)| *number != leader).map(|(_, node)| node.http.clone()).collect();
    let shared = Shared::default();
    let gap = thread::scope(|scope| {
        for (number, host) in others.iter().enumerate() {
            let shared = &shared;
            scope.spawn(move || client(shared, host, &format!("{place}-{number}")));
        }
        let gap = kill(nodes, leader, with_log.then_some(log_leader), &shared);
        shared.stop.store(true, Ordering::Relaxed);
        gap
    })?;
    names.extend(shared.with(std::mem::take).into_iter().map(|write| write.name));
    if with_log {
        nodes.log.restart(log_leader)?;
    }
    nodes.restart(leader)?;
    Ok(gap.as_secs_f64())
}

fn kill(nodes: &mut Nodes, leader: usize, log_leader: Option<usize>, shared: &Shared) -> Result<Duration> {
    thread::sleep(LOAD);
    ensure!(shared.with(|all| !all.is_empty()), "no write was acknowledged before the kill");
    if let Some(number) = log_leader {
        nodes.log.kill(number)?;
    }
    nodes.kill(leader)?;
    // The processes have ended: no later write can be acknowledged by them.
    let killed = Instant::now();
    loop {
        if let Some(first) = shared.first_after(killed) {
            return Ok(first - killed);
        }
        ensure!(killed.elapsed() < PATIENCE, "no write within {} s of the kill", PATIENCE.as_secs());
        thread::sleep(PAUSE);
    }
}

/// Writes events at a node, which sends them to its leader, until the round ends. Each has a separate tag, so that a
/// write that was not acknowledged is never counted for another.
fn client(shared: &Shared, host: &str, place: &str) {
    let mut connection = None;
    let mut number = 0;
    while !shared.stop.load(Ordering::Relaxed) {
        number += 1;
        let name = format!("{place}-{number}");
        let began = Instant::now();
        let is_acknowledged = match write(&mut connection, host, &name) {
            Ok(status) => status == 200,
            Err(_) => {
                connection = None;
                false
            }
        };
        if is_acknowledged {
            shared.with(|all| all.push(Acknowledged { name, began, ended: Instant::now() }));
        }
        thread::sleep(PAUSE);
    }
}

fn write(connection: &mut Option<Http>, host: &str, name: &str) -> Result<u16> {
    let client = match connection {
        Some(client) => client,
        None => connection.insert(Http::connect(host)?),
    };
    client.post_json(EVENTS, &format!(r#"{{"events":[{{"type":"Written","tags":["{name}"]}}]}}"#))
}

/// Fails unless the leader has every acknowledged write.
fn check(nodes: &Nodes, names: &[String]) -> Result<()> {
    let mut client = Http::connect(&nodes.node(nodes.leader()?)?.http)?;
    client.ask(EVENTS)?;
    let stored: Value = serde_json::from_slice(&client.body)?;
    let events = stored.get("events").and_then(Value::as_array).context("no events")?;
    let tag = |event| Value::pointer(event, "/tags/0").and_then(Value::as_str);
    let stored: HashSet<&str> = events.iter().filter_map(tag).collect();
    let lost: Vec<&String> = names.iter().filter(|name| !stored.contains(name.as_str())).collect();
    ensure!(
        lost.is_empty(),
        "{} of {} acknowledged writes are lost, such as {:?}",
        lost.len(),
        names.len(),
        lost.first()
    );
    Ok(())
}
