//! Servers under load, each a separate process with an empty directory.
//!
//!   worker SYSTEM GROUP ─▶ servers, postgres (child processes, own ports)
//!                             ▲ gRPC: client (tokio, 2 workers) ─▶ figures, digests     `events-wire`
//!                             ▲ HTTP: k6, our scripts           ─▶ figures              `crablet`
//!                             ▲ HTTP: http, a thread for each client ─▶ figures, digests `mytsdb`
//!                             ▲ HTTP: calls, a task for each client  ─▶ figures, digests `one-tx`
//!                             ▲ PostgreSQL: pgbench             ─▶ figures, balances    `sql-point`, `copy`
//!                             ▲ HTTP: console, a thread for each stream ─▶ figures      `console`
//!   cluster: nats-server, nodes ▲ PostgreSQL: pgbench; HTTP: http, calls ─▶ figures      `cluster`
//!                                                                                   Python: DuckDB, SQLite  `sql-analytic`

mod analytic;
mod appends;
mod calls;
mod client;
mod cluster;
mod console;
mod copies;
mod crablet;
mod follow;
mod http;
mod mytsdb;
mod mytsdb_answers;
mod one_tx;
mod order_peers;
mod orders;
mod pgbench;
mod postgres;
mod reads;
mod servers;

use anyhow::{Result, bail};
use ropewalk_bench::harness::worker::{Group, Outcome, Task};

use servers::Server;

/// Threads of the client: the machine of the published figures has two.
const CLIENT_THREADS: usize = 2;

/// The peers that can be started here.
pub(crate) fn peers() -> Vec<&'static str> {
    let mut peers = Vec::new();
    if servers::umadb().is_ok() {
        peers.push(servers::UMADB);
    }
    if servers::prometheus().is_ok() {
        peers.push(servers::PROMETHEUS);
    }
    if servers::victoriametrics().is_ok() {
        peers.push(servers::VICTORIAMETRICS);
    }
    if postgres::installed().is_ok() {
        peers.push(postgres::CRABLET);
    }
    if postgres::is_there() {
        peers.push(pgbench::POSTGRES);
    }
    peers.extend(cluster::peers());
    peers.extend(order_peers::installed());
    if analytic::python().is_ok() {
        peers.extend([analytic::DUCKDB, analytic::SQLITE]);
    }
    peers
}

/// Fails unless the servers of a cluster's log can be started.
pub(crate) fn ensure_log_servers() -> Result<()> {
    cluster::program().map(drop)
}

/// Measures one task on one server.
pub(crate) fn measure(system: &str, task: &Task) -> Result<Outcome> {
    if task.group.is_of_k6() {
        return crablet::run(system, task);
    }
    if task.group.is_of_cluster() {
        return cluster::run(system, task);
    }
    if task.group == Group::MytsdbHonest {
        return mytsdb::run(system, task);
    }
    if task.group == Group::OneTxHttp {
        return one_tx::run(system, task);
    }
    if task.group == Group::Orders {
        return orders::run(system, task);
    }
    if task.group == Group::Pgbench {
        return pgbench::run(system, task);
    }
    if task.group == Group::CopyWire {
        return copies::run(system, task);
    }
    if task.group == Group::Analytic {
        return analytic::run(system, task);
    }
    let server = Server::start(system, &task.dir)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(CLIENT_THREADS).enable_all().build()?;
    runtime.block_on(async {
        match task.group {
            Group::WireAppend | Group::WireConditional | Group::WireDecide => {
                appends::run(&server, task).await
            }
            Group::WireQueries => reads::run(&server, task).await,
            Group::WireSubscribe => follow::end_to_end(&server, task).await,
            Group::WireIdle => follow::idle(&server, task).await,
            Group::ConsoleIdle => console::idle(&server, task).await,
            group => bail!("{group:?} is no task for a server"),
        }
    })
}
