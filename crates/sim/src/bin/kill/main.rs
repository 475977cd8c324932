//! `kill`: a real process on the real disk, repeatedly ended by SIGKILL during a write load, in one
//! directory.
//!
//!   parent ─ spawn ─▶ child: threads write; each acknowledgement goes down a pipe ─▶ SIGKILL after 20-300 ms
//!     └─ open the same directory: everything acknowledged is there, and nothing is half there ─▶ next round
//!
//! `events` defines the default workload, `documents` and `series` those of `--documents` and `--series`.
//!
//! This tests recovery with an intact page cache: the code's order of writes, recovery, checkpoints and
//! compaction, each interrupted. Power cuts are for `sim`. The last line is `N passed, N failed`.
#![allow(clippy::print_stdout)]

mod documents;
mod events;
mod series;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use clap::Parser;
use ropewalk::engine::Env;
use ropewalk::{Database, Error, Options};
use ropewalk_vfs::{Random, SeededRandom};

const THREADS: u64 = 6;
/// Rounds between two checks of every checksum and every index.
const VERIFY_EVERY: u64 = 10;

/// Workload of the children, as known to the parent.
trait Load {
    /// Processes a line that a child wrote.
    fn take(&mut self, line: &str) -> Result<(), String>;
    /// Compares an opened database with everything acknowledged so far; returns the number of entries.
    fn check(&mut self, db: &Database) -> Result<u64, String>;
    /// Number of acknowledgements so far.
    fn acknowledged(&self) -> usize;
}

/// Kills a writing process repeatedly and checks whether anything acknowledged is lost.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many times to kill.
    #[arg(long, default_value_t = 200)]
    rounds: u64,
    /// The directory, retained afterwards. Default: a temporary one.
    #[arg(long)]
    at: Option<PathBuf>,
    /// Chooses when to kill. Default: random.
    #[arg(long)]
    seed: Option<u64>,
    /// Writes documents under indexes instead of events.
    #[arg(long)]
    documents: bool,
    /// Writes samples of series instead.
    #[arg(long, conflicts_with = "documents")]
    series: bool,
    /// Run as the child: write until killed.
    #[arg(long, hide = true)]
    write: Option<u64>,
}

fn open(path: &Path) -> Result<Database, Error> {
    // Small, so that segments, checkpoints and compactions occur many times.
    let mut options = Options::new().memory_budget(2 << 20).log_retention(256 << 10);
    options.engine_mut().log.segment_bytes_first = 64 << 10;
    options.engine_mut().log.segment_bytes_max = 512 << 10;
    options.engine_mut().store.run_bytes = 256 << 10;
    options.open(path)
}

fn child(arguments: &Arguments, path: &Path, round: u64) -> Result<(), Error> {
    let db = open(path)?;
    let out = Mutex::new(std::io::stdout());
    let write_on = match (arguments.documents, arguments.series) {
        (true, _) => documents::write_on,
        (_, true) => series::write_on,
        _ => events::write_on,
    };
    if arguments.documents {
        documents::define(&db)?;
    }
    std::thread::scope(|scope| {
        let (db, out) = (&db, &out);
        let writers: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || write_on(db, (round, thread), out))).collect();
        writers.into_iter().try_for_each(|writer| writer.join().unwrap_or(Ok(())))
    })
}

/// Runs a child for `life`, kills it, and notes what it acknowledged.
fn kill_one(
    arguments: &Arguments,
    path: &Path,
    round: u64,
    life: Duration,
    load: &mut dyn Load,
) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut child = Command::new(program)
        .args(["--write", &round.to_string(), "--at"])
        .arg(path)
        .args(arguments.documents.then_some("--documents"))
        .args(arguments.series.then_some("--series"))
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| e.to_string())?;
    let pipe = child.stdout.take().ok_or("the child has no pipe")?;
    let listener = std::thread::spawn(move || {
        // A line without its end was cut by the kill; its commit was acknowledged, but the parent does not
        // know.
        let mut lines = Vec::new();
        let mut reader = BufReader::new(pipe);
        let mut line = String::new();
        while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 0) && line.ends_with('\n') {
            lines.push(line.trim_end().to_owned());
            line.clear();
        }
        lines
    });
    std::thread::sleep(life);
    child.kill().map_err(|e| e.to_string())?;
    let status = child.wait().map_err(|e| e.to_string())?;
    let lines = listener.join().map_err(|_| "the listener panicked")?;
    lines.iter().try_for_each(|line| load.take(line))?;
    match status.code() {
        None => Ok(lines.len() as u64),
        Some(code) => Err(format!("the child ended by itself with code {code}")),
    }
}

fn one_round(
    arguments: &Arguments,
    path: &Path,
    round: u64,
    life: Duration,
    load: &mut dyn Load,
) -> Result<String, String> {
    let lines = kill_one(arguments, path, round, life, load)?;
    let db = open(path).map_err(|e| format!("open: {e}"))?;
    let total = load.check(&db)?;
    let mut verified = "";
    if arguments.documents || round.is_multiple_of(VERIFY_EVERY) {
        let report = db.verify().map_err(|e| format!("verify: {e}"))?;
        if !report.store.damage.is_empty() || !report.violations.is_empty() {
            return Err(format!("verify finds {:?} {:?}", report.store.damage, report.violations));
        }
        verified = ", verified";
    }
    let replayed = db.engine().recovery().records;
    db.close().map_err(|e| format!("close: {e}"))?;
    Ok(format!("killed after {life:?}, {lines} lines, {replayed} commits replayed, {total} there{verified}"))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let temporary = tempfile::tempdir();
    let (Some(path), Ok(_)) = (
        arguments.at.clone().or_else(|| temporary.as_ref().ok().map(|dir| dir.path().join("db"))),
        &temporary,
    ) else {
        println!("no temporary directory");
        return ExitCode::FAILURE;
    };
    if let Some(round) = arguments.write {
        return match child(&arguments, &path, round) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                println!("child: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let seed = arguments.seed.unwrap_or_else(|| Env::real().random.next_u64());
    let random = SeededRandom::new(seed);
    let mut load: Box<dyn Load> = match (arguments.documents, arguments.series) {
        (true, _) => Box::new(documents::Acknowledged::default()),
        (_, true) => Box::new(series::Acknowledged::default()),
        _ => Box::new(events::Acknowledged::default()),
    };
    let (mut passed, mut failed) = (0, 0);
    println!("seed {seed}, {}", path.display());
    for round in 1..=arguments.rounds {
        let life = Duration::from_millis(20 + random.next_u64() % 281);
        match one_round(&arguments, &path, round, life, load.as_mut()) {
            Ok(line) => {
                passed += 1;
                println!("round {round}: {line}");
            }
            Err(problem) => {
                failed += 1;
                println!("round {round} FAILED: {problem}");
                break;
            }
        }
    }
    println!("{} acknowledged", load.acknowledged());
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
