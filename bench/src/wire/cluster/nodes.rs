//! The nodes of a cluster, each a process, over servers of NATS. All are killed on drop.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::log_servers::LogServers;
use crate::wire::http::Http;
use crate::wire::servers::Server;

const NODES: usize = 3;
/// Longer than it takes until a node leads.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// Nodes with their log.
pub(crate) struct Nodes {
    // Dropped first: nodes without a log write messages about it.
    running: Vec<Option<Server>>,
    pub(crate) log: LogServers,
    dir: PathBuf,
    lease: String,
    has_own_processors: bool,
}

impl Nodes {
    /// Starts servers of NATS, and nodes with a lease of `lease` seconds, with all data in `dir`. `has_own_processors`:
    /// each node is limited to one processor.
    pub(crate) fn start(dir: &Path, lease: usize, has_own_processors: bool) -> Result<Self> {
        let log = LogServers::start(dir)?;
        let (dir, lease) = (dir.to_owned(), format!("{lease}s"));
        let mut nodes = Self { running: Vec::new(), log, dir, lease, has_own_processors };
        for number in 0..NODES {
            let node = nodes.launched(number)?;
            nodes.running.push(Some(node));
        }
        nodes.leader()?;
        Ok(nodes)
    }

    fn launched(&self, number: usize) -> Result<Server> {
        let processor = self.has_own_processors.then_some(number);
        let dir = self.dir.join(format!("node{number}"));
        Server::node(&dir, &self.log.url(), &self.lease, processor)
    }

    /// A node that was not in the cluster before, with its data in `dir`; it is not among the others.
    pub(crate) fn new_node(&self, dir: &Path) -> Result<Server> {
        Server::node(dir, &self.log.url(), &self.lease, None)
    }

    /// A node that runs.
    pub(crate) fn node(&self, number: usize) -> Result<&Server> {
        let node = self.running.get(number).and_then(Option::as_ref);
        node.with_context(|| format!("node {number} does not run"))
    }

    /// Every node that runs, with its number.
    pub(crate) fn all(&self) -> impl Iterator<Item = (usize, &Server)> {
        self.running.iter().enumerate().filter_map(|(number, node)| Some((number, node.as_ref()?)))
    }

    /// Number of the node that leads: of those that report it the one with the largest term.
    pub(crate) fn leader(&self) -> Result<usize> {
        let begin = Instant::now();
        loop {
            let leading = |(number, node): (usize, &Server)| {
                let status = status(&node.http).ok()?;
                let leads = status.get("role").and_then(Value::as_str) == Some("leader");
                Some((status.get("term").and_then(Value::as_u64).filter(|_| leads)?, number))
            };
            if let Some((_, number)) = self.all().filter_map(leading).max() {
                return Ok(number);
            }
            ensure!(begin.elapsed() < PATIENCE, "no node leads within {} s", PATIENCE.as_secs());
            thread::sleep(PAUSE);
        }
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self, number: usize) -> Result<()> {
        let node = self.running.get_mut(number).and_then(Option::take);
        drop(node.context("the node does not run")?);
        Ok(())
    }

    /// Starts a node that was killed, and waits until it serves.
    pub(crate) fn restart(&mut self, number: usize) -> Result<()> {
        let node = self.launched(number)?;
        *self.running.get_mut(number).context("no such node")? = Some(node);
        Ok(())
    }

    /// Kills all nodes; the log remains.
    pub(crate) fn into_log(self) -> LogServers {
        drop(self.running);
        self.log
    }
}

/// Statement of a node about itself and the cluster.
pub(crate) fn status(http: &str) -> Result<Value> {
    let mut client = Http::connect(http)?;
    client.ask("/v1/cluster")?;
    serde_json::from_slice(&client.body).context("the state of a node")
}
