//! Reads of a document by its id, over HTTP, at each level and at one or all nodes of an idle cluster.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ropewalk_bench::harness::random::SplitMix;
use ropewalk_bench::harness::worker::{Figure, Latencies, Outcome, Task};
use ropewalk_bench::workloads::cluster::plan::{LEASE_S, SPARE_PROCESSORS};
use serde_json::{Value, json};

use super::nodes::{Nodes, status};
use crate::wire::calls::Connection;

const DOCUMENTS: &str = "/v1/databases/bench/collections/read/documents";
/// Bytes of the text in a document.
const TEXT_BYTES: usize = 256;
/// Threads of the clients where there are processors to spare: the nodes have three.
const THREADS: usize = 4;
/// Before the clock starts.
const WARM_UP: Duration = Duration::from_millis(200);

/// All levels, then passes at one node and at all in turn.
pub(crate) fn run(task: &Task) -> Result<Outcome> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let has_own_processors = processors >= SPARE_PROCESSORS;
    let nodes = Nodes::start(&task.dir, LEASE_S, has_own_processors)?;
    let threads = if has_own_processors { THREADS } else { 1 };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    runtime.block_on(drive(&nodes, task))
}

async fn drive(nodes: &Nodes, task: &Task) -> Result<Outcome> {
    let leader = nodes.leader()?;
    let hosts = |with: fn(bool) -> bool| -> Vec<String> {
        nodes.all().filter(|(number, _)| with(*number == leader)).map(|(_, node)| node.http.clone()).collect()
    };
    let (leaders, followers, every) = (hosts(|leads| leads), hosts(|leads| !leads), hosts(|_| true));
    let (at_leader, at_follower) =
        (leaders.first().context("no leader")?, followers.first().context("no follower")?);
    let newest = load(at_leader, task.rows).await?;
    let session = format!("ropewalk-seq: {newest}\r\n");
    let mut outcome = Outcome::default();
    for (name, host, headers) in [
        ("local", at_follower, "ropewalk-read: local\r\n"),
        ("session", at_follower, session.as_str()),
        ("linearizable", at_follower, "ropewalk-read: linearizable\r\n"),
        ("linearizable_leader", at_leader, "ropewalk-read: linearizable\r\n"),
    ] {
        let load = Load { hosts: std::slice::from_ref(host), headers, clients: 1, rows: task.rows };
        let latencies = load.run(task.seconds).await.with_context(|| name.to_owned())?.latencies;
        let ms = latencies.quantile_us(0.5).context("no read")? / 1e3;
        outcome.figure(name, Figure::one(ms).with(&latencies));
    }
    let mut sums = [Sessions::default(), Sessions::default()];
    for _ in 0..task.passes {
        for (sum, hosts) in sums.iter_mut().zip([&leaders, &every]) {
            let load = Load { hosts, headers: &session, clients: task.threads, rows: task.rows };
            let before = processor_time(nodes)?;
            let read = load.run(task.seconds).await?;
            let used = processor_time(nodes)? - before;
            sum.rates.push(read.latencies.count() as f64 / task.seconds);
            sum.micros.push(used.as_secs_f64() * 1e6 / read.requests as f64);
        }
    }
    let [one, three] = sums;
    let ratios: Vec<f64> = one.rates.iter().zip(&three.rates).map(|(one, three)| three / one).collect();
    for (name, samples) in [
        ("ratio", ratios),
        ("nodes1", one.rates),
        ("nodes3", three.rates),
        ("cpu1", one.micros),
        ("cpu3", three.micros),
    ] {
        outcome.figure(name, Figure { samples, ..Figure::default() });
    }
    Ok(outcome)
}

/// Session reads, by pass: reads a second, and the nodes' processor time for each read in microseconds.
#[derive(Default)]
struct Sessions {
    rates: Vec<f64>,
    micros: Vec<f64>,
}

/// Processor time that all nodes have used.
fn processor_time(nodes: &Nodes) -> Result<Duration> {
    nodes.all().map(|(_, node)| node.cpu()).sum()
}

/// Inserts the documents, and returns the number of a commit that has them.
async fn load(leader: &str, rows: u64) -> Result<u64> {
    let documents: Vec<Value> =
        (0..rows).map(|id| json!({ "_id": format!("k{id}"), "text": "t".repeat(TEXT_BYTES) })).collect();
    let body = json!({ "documents": documents }).to_string();
    Connection::connect(leader).await?.call("POST", DOCUMENTS, &body).await?;
    status(leader)?.get("seq").and_then(Value::as_u64).context("the newest commit of the leader")
}

/// Clients of a closed loop, each at one of the hosts.
struct Load<'a> {
    hosts: &'a [String],
    headers: &'a str,
    clients: usize,
    rows: u64,
}

/// Results of all clients.
#[derive(Default)]
struct Read {
    /// Of the reads that began after the warm-up.
    latencies: Latencies,
    requests: u64,
}

impl Load<'_> {
    async fn run(&self, seconds: f64) -> Result<Read> {
        let mut connections = Vec::with_capacity(self.clients);
        for host in self.hosts.iter().cycle().take(self.clients) {
            connections.push(Connection::connect(host).await?);
        }
        let begin = Instant::now() + WARM_UP;
        let end = begin + Duration::from_secs_f64(seconds);
        let mut clients = Vec::with_capacity(self.clients);
        for (number, connection) in (0..).zip(connections) {
            let (headers, random) = (self.headers.to_owned(), SplitMix::new(number));
            clients.push(tokio::spawn(client(connection, headers, random, self.rows, (begin, end))));
        }
        let mut all = Read::default();
        for client in clients {
            let read = client.await.context("a client panicked")??;
            all.latencies.merge(&read.latencies);
            all.requests += read.requests;
        }
        Ok(all)
    }
}

async fn client(
    mut connection: Connection,
    headers: String,
    mut random: SplitMix,
    rows: u64,
    (begin, end): (Instant, Instant),
) -> Result<Read> {
    let mut read = Read::default();
    loop {
        let request = connection.get(&format!("{DOCUMENTS}/k{}", random.below(rows)), &headers);
        let started = Instant::now();
        if started >= end {
            return Ok(read);
        }
        let (status, answer) = connection.send(&request).await?;
        ensure!(status == 200, "{status}: {answer}");
        read.requests += 1;
        if started >= begin {
            read.latencies.record(started.elapsed());
        }
    }
}
