//! `events-wire`: our server and UmaDB's, each a process of its own, driven by one and the same client.
//!
//!   worker SYSTEM GROUP ─▶ servers (child process, own port) ◀─ gRPC ─ client (tokio, 2 workers) ─▶ figures, digests

mod appends;
mod client;
mod follow;
mod reads;
mod servers;

use anyhow::{Result, bail};
use ropewalk_bench::worker::{Group, Outcome, Task};

use servers::Server;

/// Threads of the client: the machine of the published figures has two.
const CLIENT_THREADS: usize = 2;

/// The peers that can be started here.
pub(crate) fn peers() -> Vec<&'static str> {
    if servers::umadb().is_ok() { vec![servers::UMADB] } else { Vec::new() }
}

/// Measures one task on one server.
pub(crate) fn measure(system: &str, task: &Task) -> Result<Outcome> {
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
            group => bail!("{group:?} is no task for a server"),
        }
    })
}
