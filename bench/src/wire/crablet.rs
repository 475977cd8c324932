//! `crablet`: the sections of the go-crablet report by k6, with our scripts in the same shape.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use ropewalk_bench::harness::report::OURS;
use ropewalk_bench::harness::worker::{Figure, Group, Outcome, Task};
use serde::Deserialize;

use super::postgres::{CRABLET, Crablet};
use super::servers::{Server, peers};

const SCRIPTS: [(&str, &str); 5] = [
    ("common.js", include_str!("../../k6/common.js")),
    ("quick.js", include_str!("../../k6/quick.js")),
    ("append.js", include_str!("../../k6/append.js")),
    ("isolation.js", include_str!("../../k6/isolation.js")),
    ("concurrency.js", include_str!("../../k6/concurrency.js")),
];

/// The summary that a script writes at its end.
#[derive(Deserialize)]
struct Summary {
    rps: f64,
    p50_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    errors: f64,
    accepted_once_only: f64,
}

/// Runs one section against one system.
pub(crate) fn run(system: &str, task: &Task) -> Result<Outcome> {
    if system == CRABLET {
        let server = Crablet::start(&task.dir)?;
        return drive(&server.http, task);
    }
    ensure!(system == OURS, "{system} does not take part");
    let server = Server::start(system, &task.dir)?;
    drive(&server.http, task)
}

fn drive(address: &str, task: &Task) -> Result<Outcome> {
    let (script, sleep) = match task.group {
        Group::CrabletQuick => ("quick.js", "yes"),
        Group::CrabletAppend => ("append.js", "yes"),
        Group::CrabletAppendBusy => ("append.js", "no"),
        Group::CrabletIsolation => ("isolation.js", "yes"),
        Group::CrabletConcurrency => ("concurrency.js", "yes"),
        _ => ("concurrency.js", "no"),
    };
    for (name, text) in SCRIPTS {
        fs::write(task.dir.join(name), text)?;
    }
    let program = peers()?.join("k6/k6");
    ensure!(program.is_file(), "{} is not installed", program.display());
    let summary = task.dir.join("summary.json");
    let mut k6 = Command::new(program);
    k6.args(["run", "--quiet", "--no-usage-report", "--address="]).arg(task.dir.join(script));
    k6.env("BASE_URL", format!("http://{address}")).env("SUMMARY", &summary);
    k6.env("SECONDS", task.seconds.to_string()).env("SLEEP", sleep);
    let said = k6.output().context("starting k6")?;
    let errors = String::from_utf8_lossy(&said.stderr);
    ensure!(said.status.success(), "k6: {}: {}", said.status, errors.trim());
    // An exception in a script ends an iteration, not the run.
    ensure!(!errors.contains("level=error"), "k6: {}", errors.trim());
    let text = fs::read(&summary).context("k6 wrote no summary")?;
    let summary: Summary = serde_json::from_slice(&text).context("the summary of k6")?;
    let mut outcome = Outcome::default();
    let mut rps = Figure::one(summary.rps);
    let micros = |ms: f64| Some(ms * 1e3);
    (rps.p50_us, rps.p95_us, rps.p99_us) =
        (micros(summary.p50_ms), micros(summary.p95_ms), micros(summary.p99_ms));
    outcome.figure("rps", rps);
    outcome.figure("p95", Figure::one(summary.p95_ms));
    outcome.figure("errors", Figure::one(summary.errors));
    outcome.figure("violations", Figure::one((summary.accepted_once_only - 1.0).max(0.0)));
    Ok(outcome)
}
