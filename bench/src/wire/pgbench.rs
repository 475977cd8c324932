//! pgbench against a server of the PostgreSQL protocol.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ropewalk_bench::harness::report::OURS;
use ropewalk_bench::harness::worker::{Figure, Latencies, Outcome, Task};
use ropewalk_bench::workloads::sql::sql_point_plan::{ACCOUNTS, Load, loads};

use super::postgres::{Cluster, PROGRAMS};
use super::servers::{Server, free_port};

/// Its name as a peer.
pub(crate) const POSTGRES: &str = "postgres15";
/// Rows of one INSERT.
const ROWS: u64 = 5_000;

/// Loads the tables and measures every script.
pub(crate) fn run(system: &str, task: &Task) -> Result<Outcome> {
    with_server(system, task, |address| drive(address, task))
}

/// Measures `work` on a new server, whose address it receives.
pub(crate) fn with_server(
    system: &str,
    task: &Task,
    work: impl FnOnce(&str) -> Result<Outcome>,
) -> Result<Outcome> {
    if system == POSTGRES {
        let settings = ["listen_addresses=127.0.0.1", "shared_buffers=1GB"];
        let cluster = Cluster::start(&task.dir, free_port()?, &settings)?;
        return work(&cluster.tcp);
    }
    ensure!(system == OURS, "{system} does not take part");
    let server = Server::start(system, &task.dir)?;
    work(&server.postgres)
}

fn program(name: &str, address: &str) -> Result<Command> {
    let (host, port) = address.rsplit_once(':').context("an address without a port")?;
    let mut command = Command::new(Path::new(PROGRAMS).join(name));
    command.args(["-h", host, "-p", port, "-U", "postgres"]).env("PGDATABASE", "postgres");
    Ok(command)
}

fn done(name: &str, output: Output) -> Result<String> {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("{name}: {}: {}{}", output.status, said, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(said)
}

pub(crate) fn psql(address: &str, arguments: &[&str]) -> Result<String> {
    let mut psql = program("psql", address)?;
    psql.args(["-X", "-q", "-At", "-v", "ON_ERROR_STOP=1"]).args(arguments).stdin(Stdio::null());
    done("psql", psql.output().context("starting psql")?)
}

/// pgbench's tables, with a key for the history, which pgbench defines without one.
fn load(address: &str, task: &Task) -> Result<()> {
    let branches = task.rows / ACCOUNTS;
    let filler = " ".repeat(84);
    let mut script = String::from(
        "CREATE TABLE pgbench_branches (bid int PRIMARY KEY, bbalance int, filler text);
         CREATE TABLE pgbench_tellers (tid int PRIMARY KEY, bid int, tbalance int, filler text);
         CREATE TABLE pgbench_accounts (aid int PRIMARY KEY, bid int, abalance int, filler text);
         CREATE TABLE pgbench_history (id bigserial PRIMARY KEY, tid int, bid int, aid int, delta int, mtime timestamp,
                                       filler text);\n",
    );
    let mut table = |name: &str, rows: u64, per_branch: u64, filler: &str| -> Result<()> {
        for start in (1..=rows).step_by(ROWS as usize) {
            write!(script, "INSERT INTO pgbench_{name} VALUES ")?;
            for id in start..=rows.min(start + ROWS - 1) {
                let comma = if id == start { "" } else { "," };
                match per_branch {
                    1 => write!(script, "{comma}({id},0,'{filler}')")?,
                    n => write!(script, "{comma}({id},{},0,'{filler}')", (id - 1) / n + 1)?,
                }
            }
            script.push_str(";\n");
        }
        Ok(())
    };
    table("branches", branches, 1, &filler)?;
    table("tellers", branches * 10, 10, &filler)?;
    table("accounts", task.rows, ACCOUNTS, &filler)?;
    let file = task.dir.join("load.sql");
    fs::write(&file, script)?;
    psql(address, &["-f", &file.to_string_lossy()])?;
    fs::remove_file(file)?;
    Ok(())
}

fn drive(address: &str, task: &Task) -> Result<Outcome> {
    load(address, task)?;
    let mut outcome = Outcome::default();
    for load in loads() {
        outcome.figure(load.id(), Figure::one(pgbench(address, task, load)?));
        if load.script != "select-only" {
            check(address).with_context(|| load.id())?;
        }
    }
    outcome.digest("balances", "right");
    Ok(outcome)
}

/// Transactions per second.
fn pgbench(address: &str, task: &Task, load: Load) -> Result<f64> {
    let mut pgbench = program("pgbench", address)?;
    pgbench.args(["-n", "-b", load.script, "-M", load.mode, "-j", "2", "--max-tries=0"]);
    pgbench.args(["-c", &load.clients.to_string(), "-T", &task.seconds.ceil().to_string()]);
    pgbench.args(["-s", &(task.rows / ACCOUNTS).to_string()]);
    let isolation = load.isolation.replace(' ', "\\ ");
    pgbench.env("PGOPTIONS", format!("-c default_transaction_isolation={isolation}"));
    Ok(finished(pgbench)?.rate)
}

/// Result of a run of pgbench without failed transactions.
pub(crate) struct Ran {
    /// Transactions a second, without the time to connect.
    pub(crate) rate: f64,
    pub(crate) transactions: u64,
    /// Of all transactions, if they were recorded.
    pub(crate) latencies: Latencies,
}

/// Runs pgbench and reads its summary.
fn finished(mut pgbench: Command) -> Result<Ran> {
    let said = done("pgbench", pgbench.output().context("starting pgbench")?)?;
    let number = |name: &str| -> Result<f64> {
        let line = said.lines().find_map(|line| line.strip_prefix(name));
        let line = line.with_context(|| format!("pgbench said nothing of {name}: {said}"))?;
        let number = line.trim_start_matches([' ', '=', ':']).split([' ', '/']).next().unwrap_or_default();
        number.parse().with_context(|| format!("{name} is {line}"))
    };
    ensure!(number("number of failed transactions")? == 0.0, "transactions failed: {said}");
    let transactions = number("number of transactions actually processed")? as u64;
    Ok(Ran { rate: number("tps")?, transactions, latencies: Latencies::default() })
}

/// A script, by statements that are prepared once.
pub(crate) struct Script<'a> {
    pub(crate) text: &'a str,
    pub(crate) clients: usize,
    /// The option that names the end, and its value.
    pub(crate) until: [&'a str; 2],
    /// A variable of each client with its first value.
    pub(crate) variable: &'a str,
}

impl Script<'_> {
    /// Runs the script with the latency of each transaction; `dir` is for files.
    pub(crate) fn run(&self, address: &str, dir: &Path) -> Result<Ran> {
        let own = dir.join("pgbench");
        fs::create_dir(&own)?;
        let file = own.join("script.sql");
        fs::write(&file, self.text)?;
        let log = own.join("log");
        let mut pgbench = program("pgbench", address)?;
        pgbench.args(["-n", "-M", "prepared", "-c", &self.clients.to_string()]);
        pgbench.args(["-j", &self.clients.min(2).to_string(), "-D", self.variable]).args(self.until);
        pgbench.arg("-f").arg(&file).arg("-l").arg("--log-prefix").arg(&log);
        let mut ran = finished(pgbench)?;
        fs::remove_file(file)?;
        for entry in fs::read_dir(&own)? {
            recorded(&fs::read_to_string(entry?.path())?, &mut ran.latencies)?;
        }
        fs::remove_dir_all(own)?;
        let (all, some) = (ran.transactions, ran.latencies.count());
        ensure!(all == some && all > 0, "pgbench recorded {some} of {all} transactions");
        Ok(ran)
    }
}

/// Adds the latencies of a file that pgbench wrote: the third number of each line, in microseconds.
fn recorded(text: &str, latencies: &mut Latencies) -> Result<()> {
    for line in text.lines() {
        let micros: Option<u64> = line.split(' ').nth(2).and_then(|micros| micros.parse().ok());
        latencies.record(Duration::from_micros(micros.with_context(|| format!("no latency: {line}"))?));
    }
    Ok(())
}

/// Checks that every delta is in the history, and in one account, one teller and one branch.
fn check(address: &str) -> Result<()> {
    let history = psql(address, &["-c", "SELECT sum(delta) FROM pgbench_history"])?;
    for (table, column) in [("accounts", "abalance"), ("tellers", "tbalance"), ("branches", "bbalance")] {
        let sum = psql(address, &["-c", &format!("SELECT sum({column}) FROM pgbench_{table}")])?;
        ensure!(sum == history, "the {table} sum up to {sum}, the history to {history}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_is_the_third_number_of_a_line() {
        let mut latencies = Latencies::default();
        recorded("0 1 2000 0 1764275543 1\n1 1 4000 0 1764275543 2\n", &mut latencies).unwrap();
        assert_eq!(latencies.count(), 2);
        assert!((2990.0..3010.0).contains(&latencies.mean_us().unwrap()));
        for line in ["", "0 1", "0 1 failed 0 1764275543 1"] {
            recorded(&format!("{line}\n"), &mut latencies).unwrap_err();
        }
    }
}
