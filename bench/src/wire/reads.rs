//! Ingest of the data set over gRPC, one client and one batch after the other, and reads over the result.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use ropewalk_bench::harness::worker::{Figure, Latencies, Outcome, Task};
use ropewalk_bench::workloads::events::dataset::{ACCOUNT_EVENTS, Dataset, REGION_EVENTS};
use ropewalk_bench::workloads::events::event_store::Direction;
use ropewalk_bench::workloads::events::event_store::Direction::{Backward, Forward};
use ropewalk_bench::workloads::events::event_store::Query;

use super::client::{self, Client};
use super::servers::Server;

/// All rows over `task.rows` events.
pub(crate) async fn run(server: &Server, task: &Task) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut connection = Client::connect(&server.grpc).await?;
    ingest(&mut connection, task, &mut outcome).await?;
    let (size, fifth) = (task.rows, task.rows / 5);
    let mut reads = Reads { connection, seconds: task.seconds, outcome };
    reads.rate("read/all/forward", &Query::all(), Forward, size).await?;
    reads.rate("read/all/backward", &Query::all(), Backward, size).await?;
    reads.time("tag/100", &Query::of(&[], &["acct:7"]), Forward, None, ACCOUNT_EVENTS).await?;
    reads.time("tag/2000", &Query::of(&[], &["region:7"]), Forward, None, REGION_EVENTS).await?;
    reads.time("tag_and_type/100", &Query::of(&["C"], &["acct:7"]), Forward, None, ACCOUNT_EVENTS).await?;
    reads.time("tag/1", &Query::of(&[], &["id:7"]), Forward, None, 1).await?;
    reads.time("tag/miss", &Query::of(&[], &["id:never"]), Forward, None, 0).await?;
    reads.rate("type/20pct/forward", &Query::of(&["A"], &[]), Forward, fifth).await?;
    reads.rate("type/20pct/backward", &Query::of(&["A"], &[]), Backward, fifth).await?;
    reads.time("type/newest", &Query::of(&["A"], &[]), Backward, Some(1), 1).await?;
    reads.time("type/miss", &Query::of(&["Never"], &[]), Forward, None, 0).await?;
    Ok(reads.outcome)
}

/// One client, a hundred events at a time, each with a unique tag. The events are prepared before the clock
/// starts.
async fn ingest(connection: &mut Client, task: &Task, outcome: &mut Outcome) -> Result<()> {
    let (dataset, batch) = (Dataset::new(task.rows), task.batch as u64);
    let batches: Vec<Vec<_>> = (0..task.rows)
        .step_by(task.batch)
        .map(|start| dataset.events(start..(start + batch).min(task.rows)))
        .map(|events| events.into_iter().map(client::event).collect())
        .collect();
    let (begin, mut latencies) = (Instant::now(), Latencies::default());
    for events in batches {
        let started = Instant::now();
        ensure!(connection.append(events, None).await?.is_some(), "there is no condition");
        latencies.record(started.elapsed());
    }
    let rate = task.rows as f64 / begin.elapsed().as_secs_f64();
    outcome.figure("ingest/unique_tags", Figure::one(rate).with(&latencies));
    let head = connection.head().await?;
    ensure!(head == task.rows, "{} events appended, but the head is {head}", task.rows);
    Ok(())
}

struct Reads {
    connection: Client,
    seconds: f64,
    outcome: Outcome,
}

impl Reads {
    async fn rate(&mut self, name: &str, query: &Query, direction: Direction, events: u64) -> Result<()> {
        let seconds = self.repeat(name, query, direction, None, events).await?;
        let samples = seconds.iter().map(|seconds| events as f64 / seconds).collect();
        self.outcome.figure(name, Figure { samples, ..Figure::default() });
        Ok(())
    }

    async fn time(
        &mut self,
        name: &str,
        query: &Query,
        direction: Direction,
        limit: Option<u32>,
        events: u64,
    ) -> Result<()> {
        let samples = self.repeat(name, query, direction, limit, events).await?;
        let mut latencies = Latencies::default();
        samples.iter().for_each(|&seconds| latencies.record(Duration::from_secs_f64(seconds)));
        let p50 = latencies.quantile_us(0.5).unwrap_or_default();
        self.outcome.figure(name, Figure::one(p50).with(&latencies));
        Ok(())
    }

    /// Seconds of each read, after an untimed one; between 3 and 2000 of them. The answer is added to the
    /// digests.
    async fn repeat(
        &mut self,
        name: &str,
        query: &Query,
        direction: Direction,
        limit: Option<u32>,
        events: u64,
    ) -> Result<Vec<f64>> {
        let filter = client::query(query);
        let (expected, _) = self.connection.read(Some(filter.clone()), direction, limit).await?;
        ensure!(expected.events == events, "{name}: {} events instead of {events}", expected.events);
        self.outcome.digest(name, expected);
        let (begin, mut samples) = (Instant::now(), Vec::new());
        while samples.len() < 3 || (samples.len() < 2000 && begin.elapsed().as_secs_f64() < self.seconds) {
            let filter = Some(filter.clone());
            let started = Instant::now();
            let (answer, _) = self.connection.read(filter, direction, limit).await?;
            samples.push(started.elapsed().as_secs_f64());
            ensure!(answer == expected, "{name}: two reads differ: {answer}; {expected}");
        }
        Ok(samples)
    }
}
