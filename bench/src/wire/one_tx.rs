//! Transactions over four models and over one through POST /v1/transactions, by clients with one connection each.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ropewalk_bench::harness::worker::{Latencies, Outcome, Task};
use ropewalk_bench::workloads::one_tx::input::{Client, Kind, TOTALS, Totals};
use ropewalk_bench::workloads::one_tx::rates::Rates;

use super::calls::Connection;
use super::servers::Server;

/// The route of transactions.
pub(crate) const TRANSACTIONS: &str = "/v1/transactions";
/// Before the first pass, for each kind.
const WARM_UP: Duration = Duration::from_millis(200);
/// Rows and documents of one request.
const CHUNK: usize = 1_000;

/// Kinds in turn, in passes of `--seconds` in all for each kind.
pub(crate) fn run(system: &str, task: &Task) -> Result<Outcome> {
    let server = Server::start(system, &task.dir)?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(drive(&server, task))
}

async fn drive(server: &Server, task: &Task) -> Result<Outcome> {
    let mut setup = Connection::connect(&server.http).await?;
    load(&mut setup, task.rows).await?;
    let count = task.threads as u64;
    let mut clients = Vec::with_capacity(task.threads);
    for number in 0..count {
        clients.push((Client::new(number, count, task.rows), Connection::connect(&server.http).await?));
    }
    for kind in Kind::ALL {
        clients = pass(kind, clients, WARM_UP).await?.clients;
    }
    let mut rates = Rates::default();
    for _ in 0..task.passes {
        for kind in Kind::ALL {
            let time = Duration::from_secs_f64(task.seconds / task.passes as f64);
            let passed = pass(kind, clients, time).await?;
            rates.add(kind, passed.rate, &passed.latencies);
            clients = passed.clients;
        }
    }
    let mut written = Totals::default();
    clients.iter().for_each(|(client, _)| written += client.written);
    let stored = Totals(numbers(&mut setup, TOTALS).await?);
    ensure!(stored == written, "{written:?} were acknowledged, {stored:?} are stored");
    Ok(rates.outcome())
}

type Clients = Vec<(Client, Connection)>;

struct Passed {
    clients: Clients,
    rate: f64,
    latencies: Latencies,
}

/// Transactions of one kind by all clients for `time`.
async fn pass(kind: Kind, clients: Clients, time: Duration) -> Result<Passed> {
    let begin = Instant::now();
    let running: Vec<_> = clients
        .into_iter()
        .map(|(client, connection)| tokio::spawn(one(kind, client, connection, begin + time)))
        .collect();
    let (mut clients, mut latencies) = (Vec::with_capacity(running.len()), Latencies::default());
    for client in running {
        let (client, connection, some) = client.await.context("a client panicked")??;
        latencies.merge(&some);
        clients.push((client, connection));
    }
    let rate = latencies.count() as f64 / begin.elapsed().as_secs_f64();
    Ok(Passed { clients, rate, latencies })
}

async fn one(
    kind: Kind,
    mut client: Client,
    mut connection: Connection,
    until: Instant,
) -> Result<(Client, Connection, Latencies)> {
    let mut latencies = Latencies::default();
    while Instant::now() < until {
        let request = connection.request("POST", TRANSACTIONS, &client.next(kind).json());
        let started = Instant::now();
        let (status, answer) = connection.send(&request).await?;
        ensure!(status == 200, "{status}: {answer}");
        latencies.record(started.elapsed());
    }
    Ok((client, connection, latencies))
}

/// Creates the table, and a row and a document for each key.
async fn load(connection: &mut Connection, keys: u64) -> Result<()> {
    let table = "CREATE TABLE stock (id bigint PRIMARY KEY, n bigint NOT NULL, note text NOT NULL)";
    run_sql(connection, table).await?;
    for first in (0..keys).step_by(CHUNK) {
        let (mut rows, mut documents) = (String::new(), String::new());
        for key in first..keys.min(first + CHUNK as u64) {
            let comma = if key == first { "" } else { "," };
            write!(rows, "{comma}({key},0,'')")?;
            write!(
                documents,
                r#",{{"documents":{{"collection":"carts","insert":{{"_id":{key},"n":0,"note":""}}}}}}"#
            )?;
        }
        let insert = format!(r#"{{"sql":{{"sql":"INSERT INTO stock VALUES {rows}"}}}}"#);
        let body = format!(r#"{{"operations":[{insert}{documents}]}}"#);
        connection.call("POST", TRANSACTIONS, &body).await?;
    }
    Ok(())
}

/// Runs a statement without quotation marks.
pub(crate) async fn run_sql(connection: &mut Connection, statement: &str) -> Result<()> {
    let body = format!(r#"{{"operations":[{{"sql":{{"sql":"{statement}"}}}}]}}"#);
    connection.call("POST", TRANSACTIONS, &body).await?;
    Ok(())
}

/// The number that each query returns, all at one snapshot.
pub(crate) async fn numbers<const N: usize>(
    connection: &mut Connection,
    queries: [&str; N],
) -> Result<[i64; N]> {
    let operations = queries.map(|query| serde_json::json!({ "sql": { "sql": query } }));
    let body = serde_json::json!({ "operations": operations.as_slice() });
    let answer = connection.call("POST", TRANSACTIONS, &body.to_string()).await?;
    let answer: serde_json::Value = serde_json::from_str(answer)?;
    let mut numbers = [0; N];
    for (place, number) in numbers.iter_mut().enumerate() {
        let value = answer.pointer(&format!("/results/{place}/rows/0/0"));
        *number =
            value.and_then(serde_json::Value::as_i64).with_context(|| format!("no number: {answer}"))?;
    }
    Ok(numbers)
}
