//! Commits of one row each, over PostgreSQL's protocol by pgbench: to a cluster, a single server, and PostgreSQL with a
//! synchronous standby. For NATS alone, one message for each commit.
//!
//! PostgreSQL's protocol takes less of the client's and server's processor time for a commit than HTTP and gRPC do, and
//! processors are the limit where clients, nodes and servers of NATS share one machine.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ropewalk_bench::harness::report::OURS;
use ropewalk_bench::harness::worker::{Figure, Latencies, Outcome, Task};
use ropewalk_bench::workloads::cluster::plan::{
    CLIENTS, JETSTREAM, LEASE_S, SINGLE_NODE, STANDBY, TEXT_BYTES, WINDOWS,
};

use super::log_servers::LogServers;
use super::nodes::Nodes;
use crate::wire::pgbench::{Ran, Script, psql};
use crate::wire::postgres::Cluster;
use crate::wire::servers::{Server, free_ports};

/// Streams of messages that no node writes.
const BARE: &str = "bare";
const OF_OUR_SIZE: &str = "sized";

/// Settings of PostgreSQL in addition to initdb's.
const SETTINGS: [&str; 3] = ["listen_addresses=127.0.0.1", "shared_buffers=256MB", "max_connections=300"];
/// Longer than a standby takes to connect.
const STANDBY_TIME: Duration = Duration::from_secs(60);

/// All numbers of clients on one system.
pub(crate) fn run(system: &str, task: &Task) -> Result<Outcome> {
    match system {
        OURS => cluster(task),
        SINGLE_NODE => {
            let server = Server::start(OURS, &task.dir)?;
            all(&server.postgres, task)
        }
        JETSTREAM => messages(task),
        STANDBY => with_standby(task),
        other => bail!("{other} does not take part"),
    }
}

/// The table that the commits fill.
pub(crate) struct Table<'a> {
    address: &'a str,
    /// For files.
    dir: &'a Path,
    loads: u64,
    /// Acknowledged.
    rows: u64,
}

impl<'a> Table<'a> {
    /// Creates the table at a server of the PostgreSQL protocol.
    pub(crate) fn create(address: &'a str, dir: &'a Path) -> Result<Self> {
        psql(address, &["-c", "CREATE TABLE commits (id bigint PRIMARY KEY, note text NOT NULL)"])?;
        Ok(Self { address, dir, loads: 0, rows: 0 })
    }

    /// Inserts rows by `clients`. `until`: the option of pgbench that names the end, and its value.
    pub(crate) fn load(&mut self, clients: usize, until: [&str; 2]) -> Result<Ran> {
        // Each client of each load has a separate range of keys.
        let text = format!(
            "\\set n :n + 1\n\\set id ({} + :client_id) * 1000000000 + :n\n\
             INSERT INTO commits (id, note) VALUES (:id, '{}');\n",
            self.loads * 1000,
            "r".repeat(TEXT_BYTES)
        );
        self.loads += 1;
        let ran = Script { text: &text, clients, until, variable: "n=0" }.run(self.address, self.dir)?;
        self.rows += ran.transactions;
        Ok(ran)
    }

    /// Fails unless exactly the acknowledged rows are stored.
    pub(crate) fn check(&self, address: &str) -> Result<()> {
        let stored = psql(address, &["-c", "SELECT count(*) FROM commits"])?;
        let (stored, rows) = (stored.trim(), self.rows);
        ensure!(stored == rows.to_string(), "{rows} rows were acknowledged, {stored} are stored");
        Ok(())
    }
}

fn add(outcome: &mut Outcome, clients: usize, rate: f64, latencies: &Latencies) {
    let mut figure =
        |name: &str, value| outcome.figure(format!("c{clients}/{name}"), Figure::one(value).with(latencies));
    figure("commits_per_s", rate);
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99)] {
        figure(name, latencies.quantile_us(quantile).unwrap_or_default() / 1e3);
    }
}

fn seconds(task: &Task) -> String {
    task.seconds.ceil().to_string()
}

/// All numbers of clients on one server.
fn all(address: &str, task: &Task) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut table = Table::create(address, &task.dir)?;
    for clients in CLIENTS {
        let ran = table.load(clients, ["-T", &seconds(task)])?;
        add(&mut outcome, clients, ran.rate, &ran.latencies);
    }
    table.check(address)?;
    Ok(outcome)
}

/// Entries of the shared log during a load.
struct Entries {
    bytes: u64,
    commits: f64,
    /// Commits a second.
    rate: f64,
}

fn cluster(task: &Task) -> Result<Outcome> {
    let nodes = Nodes::start(&task.dir, LEASE_S, false)?;
    let mut outcome = Outcome::default();
    let leader = nodes.node(nodes.leader()?)?;
    let mut table = Table::create(&leader.postgres, &task.dir)?;
    let mut busiest = None;
    for clients in CLIENTS {
        let before = nodes.log.state()?;
        let ran = table.load(clients, ["-T", &seconds(task)])?;
        let after = nodes.log.state()?;
        let entries = after.last.saturating_sub(before.last).max(1);
        busiest = Some(Entries {
            bytes: after.bytes.saturating_sub(before.bytes) / entries,
            commits: ran.transactions as f64 / entries as f64,
            rate: ran.rate,
        });
        add(&mut outcome, clients, ran.rate, &ran.latencies);
    }
    table.check(&leader.postgres)?;
    let entries = busiest.context("no load")?;
    outcome.figure("commits_per_entry", Figure::one(entries.commits));
    compare(&nodes.into_log(), &entries, task, &mut outcome)?;
    Ok(outcome)
}

/// Appends messages with the bytes of the entries to the same servers, without nodes.
fn compare(log: &LogServers, entries: &Entries, task: &Task, outcome: &mut Outcome) -> Result<()> {
    let mut nats = log.connect()?;
    nats.create(OF_OUR_SIZE)?;
    let bytes = entries.bytes.saturating_sub(nats.overhead(OF_OUR_SIZE)?);
    for window in WINDOWS {
        let time = Duration::from_secs_f64(task.seconds);
        let bare = nats.append(OF_OUR_SIZE, bytes as usize, window, time)?;
        let share = 100.0 * entries.rate / (bare.rate * entries.commits);
        outcome.figure(format!("of_jetstream/window{window}"), Figure::one(share));
    }
    Ok(())
}

/// A message of the commit's text for each commit, as many in flight as there would be clients.
fn messages(task: &Task) -> Result<Outcome> {
    let log = LogServers::start(&task.dir)?;
    let mut nats = log.connect()?;
    nats.create(BARE)?;
    let mut outcome = Outcome::default();
    for clients in CLIENTS {
        let time = Duration::from_secs_f64(task.seconds);
        let appended = nats.append(BARE, TEXT_BYTES, clients, time)?;
        add(&mut outcome, clients, appended.rate, &appended.latencies);
    }
    Ok(outcome)
}

/// PostgreSQL that waits for a standby at each commit.
fn with_standby(task: &Task) -> Result<Outcome> {
    let ports = free_ports(2)?;
    let [first, second] = ports.as_slice() else { bail!("no ports") };
    let dirs = ["primary", "standby"].map(|name| task.dir.join(name));
    dirs.iter().try_for_each(std::fs::create_dir)?;
    let [primary, standby] = &dirs;
    let primary = Cluster::start(primary, *first, &SETTINGS)?;
    let _standby = primary.copy(standby, *second, &SETTINGS)?;
    psql(&primary.tcp, &["-c", "ALTER SYSTEM SET synchronous_standby_names = '*'"])?;
    psql(&primary.tcp, &["-c", "SELECT pg_reload_conf()"])?;
    let connected = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
    let begin = Instant::now();
    while psql(&primary.tcp, &["-c", connected])?.trim() != "1" {
        ensure!(begin.elapsed() < STANDBY_TIME, "the standby is not synchronous");
        thread::sleep(Duration::from_millis(50));
    }
    all(&primary.tcp, task)
}
