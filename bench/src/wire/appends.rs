//! Appends over gRPC by one or many clients: plain, conditional, and read → decide → conditional append.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ropewalk_bench::harness::random::SplitMix;
use ropewalk_bench::harness::worker::{Figure, Group, Latencies, Outcome, Task};
use ropewalk_bench::workloads::events::event_store::{Direction, Event, Query};
use tokio::sync::Barrier;

use super::client::{self, Client};
use super::servers::Server;

const DATA_BYTES: usize = 100;
const REGIONS: u64 = 50;
/// Appends of a decide loop before its client continues with a new account.
const DECISIONS_PER_ACCOUNT: u64 = 10;
/// Warms up connections and caches before the clock starts.
const WARM_UP: Duration = Duration::from_millis(200);

/// Measures one row; checks that all acknowledged events exist and that the condition rejects.
pub(crate) async fn run(server: &Server, task: &Task) -> Result<Outcome> {
    let total = drive(server, task).await?;
    let mut connection = Client::connect(&server.grpc).await?;
    connection.ensure_holds(total.requests * task.batch as u64).await?;
    if task.group != Group::WireAppend {
        let again = client::condition(&Query::of(&["Reserved"], &["request:0-0"]), None);
        let twice = connection.append(vec![client::event(reserved(0, 0))], Some(again)).await?;
        ensure!(twice.is_none(), "a condition held that must fail");
    }
    let mut outcome = Outcome::default();
    outcome.figure("append", Figure::one(total.rate * task.batch as f64).with(&total.latencies));
    outcome.figure("cpu", Figure::one(total.cpu_us));
    Ok(outcome)
}

/// Combined results of all clients.
#[derive(Default)]
pub(crate) struct Total {
    latencies: Latencies,
    /// Also those before the clock started.
    pub(crate) requests: u64,
    /// Requests per second.
    pub(crate) rate: f64,
    /// Processor time of the server for each request, in microseconds.
    pub(crate) cpu_us: f64,
}

/// `task.threads` clients send one request after the other for `task.seconds`, after a short warm-up.
pub(crate) async fn drive(server: &Server, task: &Task) -> Result<Total> {
    let barrier = Arc::new(Barrier::new(task.threads));
    let mut running = Vec::with_capacity(task.threads);
    for (number, connection) in (0..).zip(Client::connect_all(&server.grpc, task.threads).await?) {
        let writer = Writer { connection, number, batch: task.batch, requests: 0 };
        running.push(tokio::spawn(client(writer, barrier.clone(), task.clone())));
    }
    let (mut total, cpu) = (Total::default(), server.cpu()?);
    for client in running {
        let done = client.await.context("a client panicked")??;
        total.rate += done.latencies.count() as f64 / done.busy.as_secs_f64();
        total.requests += done.requests;
        total.latencies.merge(&done.latencies);
    }
    total.cpu_us = (server.cpu()? - cpu).as_secs_f64() * 1e6 / total.requests as f64;
    Ok(total)
}

async fn client(mut writer: Writer, barrier: Arc<Barrier>, task: Task) -> Result<Done> {
    barrier.wait().await;
    let (begin, mut done) = (Instant::now(), Done::default());
    while begin.elapsed().as_secs_f64() < WARM_UP.as_secs_f64() + task.seconds {
        let began = begin.elapsed();
        let latency = writer.one(task.group).await?;
        if began >= WARM_UP {
            done.latencies.record(latency);
            done.busy = begin.elapsed() - WARM_UP;
        }
    }
    done.requests = writer.requests;
    Ok(done)
}

/// Results of one client.
#[derive(Default)]
struct Done {
    latencies: Latencies,
    requests: u64,
    busy: Duration,
}

/// A client's connection and its counters.
struct Writer {
    connection: Client,
    number: u64,
    batch: usize,
    requests: u64,
}

impl Writer {
    /// Sends one request, or makes one decision; returns its duration.
    async fn one(&mut self, group: Group) -> Result<Duration> {
        let events: Vec<_> =
            (0..self.batch).map(|_| client::event(reserved(self.number, self.requests))).collect();
        let unique = Query::of(&["Reserved"], &[&format!("request:{}-{}", self.number, self.requests)]);
        self.requests += 1;
        let started = Instant::now();
        let position = match group {
            Group::WireAppend => self.connection.append(events, None).await?,
            Group::WireConditional => {
                self.connection.append(events, Some(client::condition(&unique, None))).await?
            }
            _ => return self.decide().await,
        };
        ensure!(position.is_some(), "a condition failed that holds");
        Ok(started.elapsed())
    }

    /// Reads the events of an account and appends if no event was added in the meantime.
    async fn decide(&mut self) -> Result<Duration> {
        let decision = self.requests - 1;
        let account = format!("account:{}-{}", self.number, decision / DECISIONS_PER_ACCOUNT);
        let known = Query::of(&["Reserved"], &[&account]);
        let mut event = reserved(self.number, decision);
        event.tags.push(account);
        let event = client::event(event);
        let started = Instant::now();
        let (answer, head) =
            self.connection.read(Some(client::query(&known)), Direction::Forward, None).await?;
        ensure!(
            answer.events == decision % DECISIONS_PER_ACCOUNT,
            "the account has {} events",
            answer.events
        );
        let position = self.connection.append(vec![event], Some(client::condition(&known, head))).await?;
        ensure!(position.is_some(), "a condition failed that holds");
        Ok(started.elapsed())
    }
}

/// An event of a request: 100 bytes, three tags, one of them unique to this request.
fn reserved(client: u64, request: u64) -> Event {
    let mut data = vec![0; DATA_BYTES];
    SplitMix::new(request << 16 | client).fill(&mut data);
    Event {
        kind: "Reserved".to_owned(),
        data,
        tags: vec![
            format!("request:{client}-{request}"),
            format!("region:{}", request % REGIONS),
            format!("client:{client}"),
        ],
    }
}
