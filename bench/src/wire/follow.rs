//! Live subscriptions: the latency from an append to the client that follows, and the cost of ten thousand
//! idle subscriptions.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ropewalk_bench::harness::worker::{Figure, Group, Latencies, Outcome, Task};
use ropewalk_bench::workloads::events::dataset::Dataset;
use ropewalk_bench::workloads::events::event_store::Query;

use super::appends::drive;
use super::client::{self, Client};
use super::servers::Server;

/// Subscriptions on one connection: below the 1,024 that a connection may have at once.
const STREAMS_PER_CONNECTION: usize = 100;
/// Wait after ten thousand streams were opened or closed.
const SETTLE: Duration = Duration::from_millis(500);
/// Events before the clock starts.
const WARM_UP: u64 = 100;

/// One client appends, the other follows with a filter that the event passes; each on a separate connection.
pub(crate) async fn end_to_end(server: &Server, task: &Task) -> Result<Outcome> {
    let mut follower = Client::connect(&server.grpc).await?;
    let mut appender = Client::connect(&server.grpc).await?;
    let dataset = Dataset::new(task.rows);
    // A first event, for stores that open with their first event.
    appender.append(vec![client::event(dataset.event(0))], None).await?;
    let filter = client::query(&Query::of(&["A", "B", "C", "D", "E"], &[]));
    let mut stream = follower.subscribe(Some(filter), Some(1)).await?;
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let reading = tokio::spawn(async move {
        while let Some(message) = stream.message().await? {
            let now = Instant::now();
            for event in message.events {
                if sender.send((event.position, now)).is_err() {
                    break;
                }
            }
        }
        Ok::<_, anyhow::Error>(())
    });
    let (mut latencies, begin) = (Latencies::default(), Instant::now());
    for i in 1.. {
        let events = vec![client::event(dataset.event(i))];
        let started = Instant::now();
        let position = appender.append(events, None).await?;
        let (seen, at) = receiver.recv().await.context("the subscription ended")?;
        ensure!(position == Some(seen), "appended {position:?}, followed {seen}");
        if i > WARM_UP {
            latencies.record(at.saturating_duration_since(started));
        }
        if begin.elapsed().as_secs_f64() > task.seconds {
            break;
        }
    }
    reading.abort();
    let mut outcome = Outcome::default();
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99)] {
        let ms = latencies.quantile_us(quantile).unwrap_or_default() / 1e3;
        outcome.figure(name, Figure::one(ms).with(&latencies));
    }
    Ok(outcome)
}

/// Appends without and with `task.rows` idle subscriptions, and the memory of these in the server. If
/// `task.batch` is 1 all have the same filter, otherwise each has a separate tag.
pub(crate) async fn idle(server: &Server, task: &Task) -> Result<Outcome> {
    let appending = Task { group: Group::WireAppend, batch: 1, ..task.clone() };
    let before = drive(server, &appending).await?;
    let resident = server.resident_mib()?;
    let head = Client::connect(&server.grpc).await?.head().await?;
    let subscriptions = task.rows as usize;
    let connections =
        Client::connect_all(&server.grpc, subscriptions.div_ceil(STREAMS_PER_CONNECTION)).await?;
    let mut streams = Vec::with_capacity(subscriptions);
    for (i, connection) in (0..subscriptions).zip(connections.iter().cycle()) {
        let tag = if task.batch == 1 { "idle:all".to_owned() } else { format!("idle:{i}") };
        let filter = client::query(&Query::of(&[], &[&tag]));
        streams.push(connection.clone().subscribe(Some(filter), Some(head)).await?);
    }
    tokio::time::sleep(SETTLE).await;
    let grown = server.resident_mib()? - resident;
    let with = drive(server, &appending).await?;
    for tag in ["idle:all", "idle:0"] {
        let mut event = Dataset::new(1000).event(0);
        event.tags = vec![tag.to_owned()];
        Client::connect(&server.grpc).await?.append(vec![client::event(event)], None).await?;
    }
    let first = streams.first_mut().context("no subscription")?;
    ensure!(
        first.message().await?.is_some_and(|m| m.events.len() == 1),
        "an idle subscription misses its event"
    );
    drop((streams, connections));
    tokio::time::sleep(SETTLE).await;
    let after = drive(server, &appending).await?;
    let mut outcome = Outcome::default();
    outcome.figure("resident", Figure::one(grown));
    outcome.figure("append", Figure::one(with.rate));
    outcome.figure("kept", Figure::one(100.0 * with.rate / f64::midpoint(before.rate, after.rate)));
    outcome.figure("cpu", Figure::one(with.cpu_us));
    outcome.figure("cpu_without", Figure::one(f64::midpoint(before.cpu_us, after.cpu_us)));
    Ok(outcome)
}
