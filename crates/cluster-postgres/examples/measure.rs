//! Cost of the shared log in PostgreSQL: appends one after the other, and a reader far from the end.
//!
//!     cargo run --release -p ropewalk-cluster-postgres --example measure -- CONNECTION [SECONDS]
//!
//! Reads the log `measure` from its beginning, and appends to it from one caller: each append expects the one before.
#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use std::time::{Duration, Instant};

use ropewalk_cluster_postgres::{PostgresLog, PostgresOptions};
use ropewalk_log::shared::{EntryIndex, SharedLog};

type AnyError = Box<dyn std::error::Error>;

const SIZES: [usize; 4] = [256, 16 << 10, 64 << 10, 256 << 10];

/// Appends for a time, and prints the rate and the latencies.
fn append(log: &PostgresLog, bytes: usize, time: Duration) -> Result<(), AnyError> {
    let mut last = log.bounds()?.newest;
    let entry = vec![0x5a; bytes];
    let mut micros = Vec::new();
    let start = Instant::now();
    while start.elapsed() < time {
        let before = Instant::now();
        last = log.append(last, &entry)?;
        micros.push(before.elapsed().as_micros());
    }
    let rate = micros.len() as f64 / start.elapsed().as_secs_f64();
    micros.sort_unstable();
    let at = |part: f64| micros.get((micros.len() as f64 * part) as usize).copied().unwrap_or_default();
    println!(
        "append {bytes:>7} B: {rate:>6.0}/s {:>6.1} MB/s  p50 {:>6} µs  p99 {:>6} µs",
        rate * bytes as f64 / 1e6,
        at(0.5),
        at(0.99)
    );
    Ok(())
}

/// Reads the entries after `after`, and prints the rate.
fn read(log: &PostgresLog, mut after: EntryIndex, what: &str) -> Result<(), AnyError> {
    let start = Instant::now();
    let (mut entries, mut total) = (0_u64, 0_usize);
    loop {
        let found = log.read(after, 1 << 20, Duration::ZERO)?;
        let Some(last) = found.last() else { break };
        after = last.index;
        entries += found.len() as u64;
        total += found.iter().map(|entry| entry.bytes.len()).sum::<usize>();
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("read   {what}: {:>8.0}/s {:>6.1} MB/s", entries as f64 / seconds, total as f64 / 1e6 / seconds);
    Ok(())
}

/// Time from the append of an entry to its arrival at a reader that waits.
fn delivery(leader: &PostgresLog, follower: &PostgresLog, time: Duration) -> Result<(), AnyError> {
    let mut last = leader.bounds()?.newest;
    let mut micros = std::thread::scope(|scope| -> Result<Vec<u128>, AnyError> {
        let (sender, arrived) = std::sync::mpsc::channel();
        let end = Instant::now() + time;
        let mut after = last;
        scope.spawn(move || {
            while Instant::now() < end {
                let Ok(found) = follower.read(after, 1 << 20, Duration::from_millis(200)) else { return };
                for entry in found {
                    after = entry.index;
                    if sender.send(Instant::now()).is_err() {
                        return;
                    }
                }
            }
        });
        let mut micros = Vec::new();
        loop {
            std::thread::sleep(Duration::from_millis(2));
            let before = Instant::now();
            last = leader.append(last, &[0x5a; 256])?;
            let Ok(at) = arrived.recv() else { return Ok(micros) };
            micros.push(at.duration_since(before).as_micros());
        }
    })?;
    micros.sort_unstable();
    let at = |part: f64| micros.get((micros.len() as f64 * part) as usize).copied().unwrap_or_default();
    println!("append to arrival at a reader: p50 {} µs  p99 {} µs", at(0.5), at(0.99));
    Ok(())
}

fn main() -> Result<(), AnyError> {
    let mut arguments = std::env::args().skip(1);
    let connection = arguments.next().ok_or("usage: measure CONNECTION [SECONDS]")?;
    let time = Duration::from_secs_f64(arguments.next().map_or(Ok(3.0), |seconds| seconds.parse())?);
    let options = PostgresOptions { shard: "measure".to_owned(), ..PostgresOptions::default() };
    let log = PostgresLog::open(&connection, options.clone())?;
    let reader = PostgresLog::open(&connection, options)?;
    for warning in log.warnings()? {
        println!("warning: {warning}");
    }
    let bounds = log.bounds()?;
    read(&reader, EntryIndex(bounds.oldest.0 - 1), "from the beginning")?;
    for bytes in SIZES {
        let after = log.bounds()?.newest;
        append(&log, bytes, time)?;
        read(&reader, after, &format!("{bytes:>7} B"))?;
    }
    delivery(&log, &reader, time)
}
