//! The nodes, each a process of this program, at addresses that remain when a node starts again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::http::{Http, Response};
use super::log_servers::LogServers;
use super::processes::{Process, free_addresses};
use super::waiting::until;
use crate::command::demo::clients::{Clients, quoted};
use crate::command::demo::server::{Addresses, command};
use crate::output::failure::{Exit, Failure, Result};

const NODES: usize = 3;
const PROTOCOLS: usize = 4;
/// Time without a leader after which a node tries to lead.
pub(super) const LEASE: &str = "1s";
/// Longest time of a read.
const READ: Duration = Duration::from_secs(30);
/// Longest time in which a node reports its role; one that is halted does not respond.
const STATUS: Duration = Duration::from_secs(2);

/// A node.
pub(super) struct Node {
    pub(super) name: String,
    pub(super) at: Addresses,
    pub(super) process: Process,
    config: PathBuf,
    ready: PathBuf,
    http: Http,
    status: Http,
}

/// The report of a node about itself.
pub(super) struct Status {
    pub(super) role: String,
    term: u64,
    members: usize,
}

impl Node {
    fn start(name: String, at: Addresses, log: &str, place: &Path, clients: &Clients) -> Result<Self> {
        let [config, ready, output] =
            ["toml", "ready", "log"].map(|kind| place.join(format!("{name}.{kind}")));
        let settings = settings(&at, log, &place.join(&name));
        std::fs::write(&config, settings).map_err(|error| Failure::file("write", &config, &error))?;
        let mut command = command(&clients.program);
        command.args(["serve", "--config"]).arg(&config).arg("--ready-file").arg(&ready);
        let process = Process::start(command, &output)?;
        let (http, status) = (Http::new(&at.http, READ)?, Http::new(&at.http, STATUS)?);
        Ok(Self { name, at, process, config, ready, http, status })
    }

    /// The command that starts the node.
    pub(super) fn command(&self) -> String {
        format!("ropewalk serve --config {}", quoted(self.config.display()))
    }

    /// Waits until the node has opened its ports.
    fn until_ready(&mut self) -> Result {
        until(&format!("{} opens its ports", self.name), || {
            self.process.must_run()?;
            Ok(self.ready.exists().then_some(()))
        })
    }

    /// Starts the node after SIGKILL, and waits until it has opened its ports.
    pub(super) fn restart(&mut self) -> Result {
        // That of the killed process is left.
        let _ = std::fs::remove_file(&self.ready);
        self.process.restart()?;
        self.until_ready()
    }

    /// State of the node; `None` while it does not respond.
    pub(super) fn status(&self) -> Option<Status> {
        let Response { status: 200, body, .. } = self.status.ask("/v1/cluster", &[], None).ok()? else {
            return None;
        };
        Some(Status {
            role: body.get("role")?.as_str()?.to_owned(),
            term: body.get("term")?.as_u64()?,
            members: body.get("members")?.as_array()?.len(),
        })
    }

    /// Reads from the node. A response with an error status is an error.
    pub(super) fn read(&self, path: &str, headers: &[(&str, &str)], body: Option<&str>) -> Result<Response> {
        let response = self.http.ask(path, headers, body)?;
        if response.status == 200 {
            return Ok(response);
        }
        let what = format!("{}: {path}: {} {}", self.name, response.status, response.body);
        Err(Failure::new(Exit::Internal, what, ""))
    }
}

fn settings(at: &Addresses, log: &str, dir: &Path) -> String {
    let Addresses { http, grpc, postgres, mongo, .. } = at;
    format!(
        r#"dir = {:?}
[cluster]
log = "{log}"
advertise = "127.0.0.1"
lease = "{LEASE}"
[http]
listen = "{http}"
[grpc]
listen = "{grpc}"
[postgres]
listen = "{postgres}"
[mongo]
listen = "{mongo}"
[prometheus]
self_scrape = "off"
"#,
        dir.display().to_string(),
    )
}

/// The nodes, with their log.
pub(super) struct Nodes {
    // Dropped first: nodes without a log write messages about it.
    pub(super) all: Vec<Node>,
    _log: LogServers,
}

impl Nodes {
    /// Starts the nodes, whose files are in `place`, and waits until one leads and knows the others.
    pub(super) fn start(mut log: LogServers, place: &Path, clients: &Clients) -> Result<Self> {
        let mut addresses = free_addresses(NODES * PROTOCOLS)?.into_iter();
        let mut all = Vec::new();
        for number in 1..=NODES {
            let [http, grpc, postgres, mongo] =
                std::array::from_fn(|_| addresses.next().expect("there is an address for each protocol"));
            let at = Addresses { http, grpc, shop: String::new(), postgres, mongo };
            all.push(Node::start(format!("node{number}"), at, &log.url, place, clients)?);
        }
        for node in &mut all {
            log.must_run()?;
            node.until_ready()?;
        }
        let nodes = Self { all, _log: log };
        until("the leader knows all nodes", || {
            let leader = nodes.node(nodes.leader()?)?;
            Ok(leader.status().filter(|status| status.members == NODES).map(drop))
        })?;
        Ok(nodes)
    }

    pub(super) fn node(&self, number: usize) -> Result<&Node> {
        self.all
            .get(number)
            .ok_or_else(|| Failure::new(Exit::Internal, format!("there is no node {number}"), ""))
    }

    pub(super) fn node_mut(&mut self, number: usize) -> Result<&mut Node> {
        let missing = || Failure::new(Exit::Internal, format!("there is no node {number}"), "");
        self.all.get_mut(number).ok_or_else(missing)
    }

    /// Waits for a leader. Of several nodes that report to lead it is the one with the largest term.
    pub(super) fn leader(&self) -> Result<usize> {
        until("a node leads", || {
            let leading = self.all.iter().enumerate().filter_map(|(number, node)| {
                let status = node.status()?;
                (status.role == "leader").then_some((status.term, number))
            });
            Ok(leading.max().map(|(_, number)| number))
        })
    }

    /// HTTP addresses of the nodes except one.
    pub(super) fn except(&self, number: usize) -> Vec<String> {
        let others = self.all.iter().enumerate().filter(|(other, _)| *other != number);
        others.map(|(_, node)| node.at.http.clone()).collect()
    }

    /// Connection string of libpq that finds the leader.
    pub(super) fn psql(&self) -> String {
        let ports: Vec<_> =
            self.all.iter().filter_map(|node| Some(node.at.postgres.rsplit_once(':')?.1)).collect();
        let hosts = vec!["127.0.0.1"; ports.len()].join(",");
        format!(
            "'host={hosts} port={} user=demo dbname=ropewalk target_session_attrs=read-write'",
            ports.join(",")
        )
    }

    /// URL with which MongoDB's drivers find the primary.
    pub(super) fn mongo(&self) -> String {
        let hosts: Vec<_> = self.all.iter().map(|node| node.at.mongo.as_str()).collect();
        format!("mongodb://{}/?replicaSet=ropewalk", hosts.join(","))
    }
}

/// The rows of the only statement of a response.
pub(super) fn rows(response: &Response) -> &[Value] {
    let rows = response.body.pointer("/results/0/rows").and_then(Value::as_array);
    rows.map_or(&[], Vec::as_slice)
}
