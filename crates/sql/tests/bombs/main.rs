//! Hostile statements: each ends with rows or a typed error, within a bound on the memory of the process.
//!
//! The peak of the resident memory is reset and read for each statement, so these tests run in a separate
//! process, one at a time.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::print_stdout)] // helpers outside of test functions

mod corpus;

use std::fs;
use std::time::{Duration, Instant};

use ropewalk::Database;
use ropewalk_sql::{Session, Settings};

/// Memory of a statement.
const MEMORY_BYTES_MAX: usize = 64 << 20;
/// Permitted growth of the resident memory: the statement's memory, the operands of two threads, the values
/// of one aggregate while it is finished, and the columns of batches in progress.
const GROWTH_BYTES_MAX: u64 = 768 << 20;
/// Time of a statement.
const STATEMENT_MILLIS: u64 = 1_000;
/// Far more than such a statement needs on a busy machine.
const TIME_MAX: Duration = Duration::from_secs(120);
/// Number of generated statements.
const GENERATED: usize = 210;

/// A number of bytes from `/proc/self/status`; `None` if the file or the field does not exist.
fn status(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? << 10)
}

/// Resets the peak of the resident memory; returns the current value in bytes.
fn reset_peak() -> Option<u64> {
    fs::write("/proc/self/clear_refs", "5").ok()?;
    status("VmRSS")
}

struct Bomb {
    sql: String,
    outcome: String,
    growth: u64,
    took: Duration,
}

fn session(db: &Database) -> Session {
    let settings = Settings {
        memory_bytes_max: MEMORY_BYTES_MAX,
        statement_millis: STATEMENT_MILLIS,
        ..Settings::default()
    };
    Session::with_settings(db.clone(), settings)
}

fn explode(db: &Database, sql: &str) -> Bomb {
    let mut session = session(db);
    // Printed first, to identify the statement if the process dies.
    let shown: String = sql.chars().take(160).collect();
    println!("{shown}");
    let before = reset_peak().unwrap_or_default();
    let started = Instant::now();
    let outcome = session.execute_all(sql);
    let growth = status("VmHWM").unwrap_or_default().saturating_sub(before);
    let outcome = match outcome {
        Ok(_) => "done".to_owned(),
        Err(error) => format!("{} {}", error.state.0, error.message),
    };
    Bomb { sql: shown, outcome, growth, took: started.elapsed() }
}

fn assert_bounded(db: &Database, statements: impl IntoIterator<Item = String>) {
    let mut bombs: Vec<Bomb> = statements.into_iter().map(|sql| explode(db, &sql)).collect();
    assert!(bombs.len() >= 300, "{} statements", bombs.len());
    let show = |bomb: &Bomb| {
        println!(
            "{:5} MiB {:5} ms  {}  {}",
            bomb.growth >> 20,
            bomb.took.as_millis(),
            bomb.outcome,
            bomb.sql
        );
    };
    println!("{} statements; those that took longest:", bombs.len());
    bombs.sort_by_key(|bomb| std::cmp::Reverse(bomb.took));
    bombs.iter().take(10).for_each(show);
    println!("those that held most:");
    bombs.sort_by_key(|bomb| std::cmp::Reverse(bomb.growth));
    bombs.iter().take(10).for_each(show);
    let is_wrong = |bomb: &&Bomb| {
        bomb.outcome.starts_with("XX") || bomb.growth > GROWTH_BYTES_MAX || bomb.took > TIME_MAX
    };
    let shown =
        |bomb: &Bomb| format!("{} MiB, {:?}: {}: {}", bomb.growth >> 20, bomb.took, bomb.outcome, bomb.sql);
    let wrong: Vec<String> = bombs.iter().filter(is_wrong).map(shown).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn database() -> Database {
    let db = Database::in_memory().unwrap();
    let setup = "CREATE TABLE t (id int PRIMARY KEY, a int, v text); \
                 INSERT INTO t SELECT i, i % 7, repeat('x', 100) FROM generate_series(1, 3000) AS s (i)";
    Session::new(db.clone()).execute_all(setup).unwrap();
    db
}

#[test]
fn hostile_statements_stay_within_memory() {
    let db = database();
    let generated = corpus::Generator::new(24).take(GENERATED);
    assert_bounded(&db, corpus::written().into_iter().chain(generated));
}
