//! Builds a benchmark in release, with `--peers` its peers, and runs it.

use std::env;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::peers::{
    DUCKDB, K6, MONGODB, NATS, POSTGRES, PROMETHEUS, Peer, ROCKSDB_LIBRARY, UMADB, VICTORIA_METRICS, execute,
};
use crate::runner::{ROOT, find, say, search_path, target};

const NAMES: &str = "kernel, events-embedded, events-wire, bundoc, crablet, mytsdb, opossum, omendb, series-embedded, ycsb, tpcb-embedded, mongo-wire, sql-point, sql-analytic, copy, one-tx, projections, cluster or console";

/// Parts of a benchmark that are built or installed before it runs.
struct Parts {
    /// Ours: packages that cargo builds.
    packages: &'static [&'static str],
    /// Programs without which the benchmark does not run.
    tools: &'static [Peer],
    /// Only with `--peers`.
    peers: &'static [Peer],
}

const HARNESS: &[&str] = &["-p", "ropewalk-bench"];
const PROGRAM: &[&str] = &["-p", "ropewalk-cli"];
const BOTH: &[&str] = &["-p", "ropewalk-bench", "-p", "ropewalk-cli"];

const RIVALS: Peer = Peer::Built(&["-p", "ropewalk-rivals"]);
const RIVALS_AND_ROCKSDB: Peer = Peer::Built(&["-p", "ropewalk-rivals", "--features", "rocksdb"]);
/// Thin servers over PostgreSQL.
const SQL_SERVERS: Peer = Peer::Built(&["-p", "ropewalk-crablet-sql"]);

#[rustfmt::skip]
fn parts(name: &str) -> Parts {
    match name {
        "mongo-wire" => Parts { packages: PROGRAM, tools: &[], peers: &[] },
        "events-wire" => Parts { packages: BOTH, tools: &[], peers: &[UMADB] },
        "mytsdb" => Parts { packages: BOTH, tools: &[], peers: &[PROMETHEUS, VICTORIA_METRICS] },
        // pgbench and psql also drive our server.
        "sql-point" | "copy" => Parts { packages: BOTH, tools: &[POSTGRES], peers: &[RIVALS] },
        "sql-analytic" => Parts { packages: HARNESS, tools: &[], peers: &[DUCKDB] },
        "crablet" => Parts { packages: BOTH, tools: &[K6], peers: &[POSTGRES, SQL_SERVERS] },
        "one-tx" => Parts { packages: BOTH, tools: &[], peers: &[POSTGRES, SQL_SERVERS, PROMETHEUS, MONGODB] },
        // pgbench drives our nodes, too.
        "cluster" if has_nats() => Parts { packages: BOTH, tools: &[POSTGRES], peers: &[] },
        "cluster" => Parts { packages: BOTH, tools: &[POSTGRES, NATS], peers: &[] },
        "console" => Parts { packages: BOTH, tools: &[], peers: &[] },
        "projections" => Parts { packages: HARNESS, tools: &[], peers: &[] },
        _ => Parts { packages: HARNESS, tools: &[], peers: &[ROCKSDB_LIBRARY, RIVALS_AND_ROCKSDB] },
    }
}

/// True when `bench/src/wire/cluster/log_servers.rs` finds the server of NATS without an installation.
fn has_nats() -> bool {
    env::var_os("ROPEWALK_NATS_SERVER").is_some() || find("nats-server").is_some()
}

/// Runs the benchmark with the arguments, except `--peers`.
pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let (peers, arguments): (Vec<&str>, Vec<&str>) =
        arguments.iter().copied().partition(|word| *word == "--peers");
    let Some((name, options)) = arguments.split_first() else { bail!("bench needs a name: {NAMES}") };
    env::set_current_dir(ROOT).context(ROOT)?;
    say("building the benchmark (release)");
    let start = Instant::now();
    let parts = parts(name);
    let peers: &[Peer] = if peers.is_empty() { &[] } else { parts.peers };
    Peer::Built(parts.packages).install()?;
    for peer in parts.tools.iter().chain(peers) {
        peer.install()?;
    }
    println!("--- built in {} s", start.elapsed().as_secs());
    let release = target().join("release");
    if *name == "mongo-wire" {
        let mut figures = Command::new("python3");
        figures.args(["tests/clients/mongo/figures.py", "--binary"]).arg(release.join("ropewalk"));
        return execute(figures.args(options).env("PATH", search_path()));
    }
    execute(Command::new(release.join("ropewalk-bench")).arg("bench").args(&arguments))
}
