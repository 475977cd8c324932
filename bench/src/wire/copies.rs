//! COPY over the wire: psql's `\copy` of a file into a table and out of it.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use ropewalk_bench::harness::worker::{Outcome, Task};
use ropewalk_bench::workloads::sql::copying::{TABLE, digest, rate, write};

use super::pgbench::{psql, with_server};

/// Copies in and out again.
pub(crate) fn run(system: &str, task: &Task) -> Result<Outcome> {
    with_server(system, task, |address| drive(address, task))
}

fn drive(address: &str, task: &Task) -> Result<Outcome> {
    let (from, to) = (task.dir.join("in.text"), task.dir.join("out.text"));
    write(&from, task.rows)?;
    psql(address, &["-c", TABLE])?;
    let copy =
        |way: &str, file: &Path| psql(address, &["-c", &format!("\\copy lines {way} '{}'", file.display())]);
    let mut outcome = Outcome::default();
    let started = Instant::now();
    copy("from", &from)?;
    outcome.figure("in", rate(task, started));
    let started = Instant::now();
    copy("to", &to)?;
    outcome.figure("out", rate(task, started));
    let (went, came) = (digest(&from)?, digest(&to)?);
    ensure!(went == came, "{went} went in, {came} came out");
    outcome.digest("rows", came);
    Ok(outcome)
}
