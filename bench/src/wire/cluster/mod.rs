//! Nodes that share a log in three servers of NATS, their peers, and what is measured on them.
//!
//!   log_servers: three nats-server ◀── nodes: three ropewalk ◀── commits (pgbench), reads, gaps (HTTP)
//!            ▲ nats: state of the stream, bare appends           new_node: a fourth one

mod commits;
mod gaps;
mod log_servers;
mod nats;
mod new_node;
mod nodes;
mod reads;

use anyhow::{Result, bail, ensure};
use ropewalk_bench::harness::report::OURS;
use ropewalk_bench::harness::worker::{Group, Outcome, Task};
use ropewalk_bench::workloads::cluster::plan::{JETSTREAM, SINGLE_NODE, STANDBY};

use crate::wire::postgres;

pub(crate) use log_servers::program;

/// The peers that can be started here.
pub(crate) fn peers() -> Vec<&'static str> {
    let mut peers = vec![SINGLE_NODE];
    if program().is_ok() {
        peers.push(JETSTREAM);
    }
    if postgres::is_there() {
        peers.push(STANDBY);
    }
    peers
}

/// Measures one task.
pub(crate) fn run(system: &str, task: &Task) -> Result<Outcome> {
    if task.group == Group::ClusterCommits {
        return commits::run(system, task);
    }
    ensure!(system == OURS, "{system} does not take part");
    match task.group {
        Group::ClusterReads => reads::run(task),
        Group::ClusterNew => new_node::run(task),
        Group::ClusterGap => gaps::run(task),
        group => bail!("{group:?} is no task for a cluster"),
    }
}
