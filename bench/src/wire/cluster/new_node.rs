//! A node that joins with an empty directory: it reads the whole shared log before it serves.

use std::fs;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use ropewalk_bench::harness::random::SplitMix;
use ropewalk_bench::harness::worker::{Figure, Outcome, Task};
use ropewalk_bench::workloads::cluster::plan::LEASE_S;
use serde_json::Value;

use super::commits::Table;
use super::nodes::Nodes;
use crate::wire::http::Http;

/// Clients that write the commits.
const CLIENTS: usize = 256;
const STORE: &str = "/v1/stores/large";
/// Events of one commit, of 10,000 bytes each: about a megabyte.
const EVENTS: u64 = 100;
const EVENT_BYTES: usize = 10_000;
/// Clients that write the events, so that the log service has a commit to store at any time.
const WRITERS: u64 = 4;

/// Fills the log, and adds new nodes one after the other.
pub(crate) fn run(task: &Task) -> Result<Outcome> {
    let nodes = Nodes::start(&task.dir, LEASE_S, false)?;
    let leader = nodes.node(nodes.leader()?)?;
    let mut table = Table::create(&leader.postgres, &task.dir)?;
    let each = task.rows / CLIENTS as u64;
    let commits = each * CLIENTS as u64;
    if commits > 0 {
        table.load(CLIENTS, ["-t", &each.to_string()])?;
    }
    let events = task.batch as u64 * EVENTS;
    fill(&leader.http, task.batch as u64)?;
    let bytes = nodes.log.state()?.bytes;
    let mut samples = [const { Vec::new() }; 3];
    for _ in 0..task.passes {
        let dir = task.dir.join("new");
        let begin = Instant::now();
        let node = nodes.new_node(&dir)?;
        let seconds = begin.elapsed().as_secs_f64();
        table.check(&node.postgres)?;
        ensure!(events == 0 || count(&node.http)? == events, "the new node lacks events");
        drop(node);
        fs::remove_dir_all(dir)?;
        for (samples, value) in
            samples.iter_mut().zip([seconds, commits as f64 / seconds, bytes as f64 / 1e6 / seconds])
        {
            samples.push(value);
        }
    }
    let mut outcome = Outcome::default();
    for (name, samples) in ["seconds", "commits_per_s", "mb_per_s"].into_iter().zip(samples) {
        outcome.figure(name, Figure { samples, ..Figure::default() });
    }
    Ok(outcome)
}

/// Appends `commits` commits of a megabyte.
fn fill(leader: &str, commits: u64) -> Result<()> {
    let append = |writer: u64| -> Result<()> {
        let mut client = Http::connect(leader)?;
        for number in (0..commits).filter(|number| number % WRITERS == writer) {
            let status = client.post_json(&format!("{STORE}/events"), &events(number))?;
            ensure!(status == 200, "{status}: {}", String::from_utf8_lossy(&client.body));
        }
        Ok(())
    };
    let append = &append;
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || append(writer))).collect();
        writers.into_iter().try_for_each(|writer| writer.join().ok().context("a writer panicked")?)
    })
}

/// The body of a request, with text that cannot be compressed to less than half.
fn events(number: u64) -> String {
    let mut random = SplitMix::new(number);
    let mut body = String::with_capacity((EVENT_BYTES + 40) * EVENTS as usize);
    body.push_str(r#"{"events":["#);
    for event in 0..EVENTS {
        body.push_str(if event == 0 { "" } else { "," });
        body.push_str(r#"{"type":"Large","data":""#);
        for _ in 0..EVENT_BYTES / 16 {
            body.push_str(&format!("{:016x}", random.next_u64()));
        }
        body.push_str("\"}");
    }
    body + "]}"
}

fn count(node: &str) -> Result<u64> {
    let mut client = Http::connect(node)?;
    client.ask(&format!("{STORE}/events:count"))?;
    let answer: Value = serde_json::from_slice(&client.body)?;
    answer.get("count").and_then(Value::as_u64).context("no count")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_of_a_commit_is_json_of_a_megabyte() {
        let body = events(7);
        assert!((1_000_000..1_010_000).contains(&body.len()), "{}", body.len());
        let parsed: Value = serde_json::from_str(&body).unwrap();
        let events = parsed.get("events").and_then(Value::as_array).unwrap();
        assert_eq!(events.len() as u64, EVENTS);
        assert!(events.iter().all(|event| event["data"].as_str().unwrap().len() == EVENT_BYTES));
    }
}
