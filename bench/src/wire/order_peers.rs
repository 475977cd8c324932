//! The peers of the orders in `one-tx`: the thin server in `bench-rivals/crablet/src/orders` over PostgreSQL with
//! an outbox, or over PostgreSQL, MongoDB and Prometheus with dual writes.

use std::env;
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::{Context, Result, bail};
use ropewalk_bench::workloads::one_tx::plan::{DUAL_WRITES, OUTBOX};

use super::postgres::{Cluster, is_there};
use super::servers::{PROMETHEUS, Server, beside, free_port, prometheus, spawn, wait};

/// The thin server.
const PROGRAM: &str = "ropewalk-orders-sql";
/// Port in the name of the cluster's socket.
const SOCKET_PORT: u16 = 5432;

/// A thin server with its databases; all are stopped on drop.
pub(crate) struct OrderPeer {
    _server: Process,
    _mongo: Option<Process>,
    _prometheus: Option<Server>,
    _cluster: Cluster,
    /// Host and port.
    pub(crate) http: String,
}

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The peers that can be started here.
pub(crate) fn installed() -> Vec<&'static str> {
    if !is_there() || beside(PROGRAM).is_err() {
        return Vec::new();
    }
    let has_all = mongod().is_ok() && prometheus().is_ok();
    [OUTBOX].into_iter().chain(has_all.then_some(DUAL_WRITES)).collect()
}

/// MongoDB's server in the search path: no package registry has it.
fn mongod() -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|dir| dir.join("mongod")).find(|file| file.is_file());
    found.context("mongod is not installed")
}

impl OrderPeer {
    /// Starts a peer with all data below `dir`.
    pub(crate) fn start(system: &str, dir: &Path) -> Result<Self> {
        let cluster = Cluster::start(dir, SOCKET_PORT, &["listen_addresses=", "shared_buffers=1GB"])?;
        let http = format!("127.0.0.1:{}", free_port()?);
        let mut command = Command::new(beside(PROGRAM)?);
        command.arg("--socket").arg(cluster.socket()).args(["--listen", &http]);
        let (mut mongo, mut prometheus) = (None, None);
        match system {
            OUTBOX => {}
            DUAL_WRITES => {
                let (process, address) = start_mongo(&below(dir, "mongo")?)?;
                let server = Server::start(PROMETHEUS, &below(dir, "prometheus")?)?;
                command.args(["--mongo", &address, "--prometheus", &server.http]);
                (mongo, prometheus) = (Some(process), Some(server));
            }
            other => bail!("{other} takes no orders"),
        }
        let logs = below(dir, "thin")?;
        let mut server = Process(spawn(&mut command, &logs)?);
        wait(&mut server.0, &logs, || TcpStream::connect(&http).ok())?;
        Ok(Self { _server: server, _mongo: mongo, _prometheus: prometheus, _cluster: cluster, http })
    }
}

fn below(dir: &Path, name: &str) -> Result<PathBuf> {
    let path = dir.join(name);
    fs::create_dir(&path).with_context(|| path.display().to_string())?;
    Ok(path)
}

/// MongoDB with its defaults, which include the journal; its host and port.
fn start_mongo(dir: &Path) -> Result<(Process, String)> {
    let port = free_port()?.to_string();
    let data = below(dir, "data")?;
    let mut command = Command::new(mongod()?);
    command
        .args(["--bind_ip", "127.0.0.1", "--port", &port, "--nounixsocket", "--quiet", "--dbpath"])
        .arg(data);
    let mut process = Process(spawn(&mut command, dir)?);
    let address = format!("127.0.0.1:{port}");
    wait(&mut process.0, dir, || TcpStream::connect(&address).ok())?;
    Ok((process, address))
}
