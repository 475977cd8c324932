//! The peers of `sql-analytic`, driven by Python: DuckDB from its wheel, and the SQLite of Python.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use ropewalk_bench::harness::worker::{Outcome, Task};
use ropewalk_bench::workloads::sql::tpch::{TABLES, Tables, questions};
use serde::Serialize;

use super::servers::peers;

pub(crate) const DUCKDB: &str = "duckdb";
pub(crate) const SQLITE: &str = "sqlite";

const SCRIPT: &str = include_str!("../../python/analytic.py");

#[derive(Serialize)]
struct Asked {
    tables: Vec<(&'static str, &'static str)>,
    questions: Vec<String>,
    rows: u64,
}

/// The Python interpreter with DuckDB.
pub(crate) fn python() -> Result<PathBuf> {
    let python = peers()?.join("duckdb/bin/python");
    ensure!(python.is_file(), "{} is not installed", python.display());
    Ok(python)
}

/// Writes the tables as files, and runs the queries.
pub(crate) fn run(system: &str, task: &Task) -> Result<Outcome> {
    let tables = Tables::new(task.rows)?;
    let mut rows = 0;
    for (name, _) in TABLES {
        let mut file = BufWriter::new(File::create(task.dir.join(format!("{name}.text")))?);
        rows += tables.rows(name, &mut |bytes| Ok(file.write_all(bytes)?))?;
        file.flush()?;
    }
    let asked = Asked { tables: TABLES.to_vec(), questions: questions(task.rows), rows };
    let mut command = Command::new(python()?);
    command.args(["-c", SCRIPT, system]).arg(&task.dir).arg(task.passes.to_string());
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("starting Python")?;
    serde_json::to_writer(child.stdin.take().context("no pipe")?, &asked)?;
    let said = child.wait_with_output()?;
    ensure!(said.status.success(), "{system}: {}", String::from_utf8_lossy(&said.stderr).trim());
    serde_json::from_slice(&said.stdout).context("the answer of Python")
}
