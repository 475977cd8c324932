//! Cost of the log: one writer with one synced record after the other, compared to the same writes without a
//! log.
//!
//!     cargo run --release -p ropewalk-log --example barrier -- [DIR] [SECONDS PER ROUND]
//!
//! Both sides write as many bytes to a file of zeros of the same size on the same disk, one record each in turn, so that
//! other activity of the machine affects both alike.
#![allow(clippy::print_stdout)]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ropewalk_base::{Lsn, Seq};
use ropewalk_log::{CommitLog, LocalLog, LogOptions, Record};
use ropewalk_vfs::{Env, OpenMode};

const PAYLOAD: [u8; 128] = [0x5a; 128];
const RECORD_BYTES: u64 = 160;
const FILE_BYTES: u64 = 64 << 20;
const ROUNDS: usize = 5;

type AnyError = Box<dyn std::error::Error>;

/// Microseconds of each step of one side.
#[derive(Default)]
struct Times(Vec<f64>);

impl Times {
    fn add(&mut self, step: impl FnOnce() -> Result<(), AnyError>) -> Result<(), AnyError> {
        let before = Instant::now();
        step()?;
        self.0.push(before.elapsed().as_nanos() as f64 / 1000.0);
        Ok(())
    }

    /// Steps per second, and the median and 99th percentile.
    fn summary(mut self) -> (f64, f64, f64) {
        let rate = 1e6 * self.0.len() as f64 / self.0.iter().sum::<f64>();
        self.0.sort_by(f64::total_cmp);
        let at = |part: f64| self.0.get((self.0.len() as f64 * part) as usize).copied().unwrap_or_default();
        (rate, at(0.5), at(0.99))
    }
}

/// One round; returns the ratio of the medians.
fn round(env: &Env, dir: &Path, time: Duration) -> Result<f64, AnyError> {
    let (path, log_dir) = (dir.join("raw"), dir.join("log"));
    let file = env.vfs.open(&path, OpenMode::CreateNew)?;
    let zeros = vec![0; 1 << 20];
    for offset in (0..FILE_BYTES).step_by(zeros.len()) {
        file.write_all_at(&zeros, offset)?;
    }
    file.sync_data()?;
    let options = LogOptions { segment_bytes_first: FILE_BYTES, ..LogOptions::default() };
    let (log, _) = LocalLog::open(env, &log_dir, options, Lsn::ZERO, Seq::ZERO, &mut |_| Ok(()))?;
    let (mut seq, mut tail, mut offset) = (Seq::ZERO, log.tail(), 64);
    let (mut raw, mut logged) = (Times::default(), Times::default());
    let record = [0x5a; RECORD_BYTES as usize];
    let start = Instant::now();
    while start.elapsed() < time {
        raw.add(|| {
            file.write_all_at(&record, offset)?;
            Ok(file.sync_data()?)
        })?;
        logged.add(|| {
            seq = seq.next();
            tail = log.append(&[Record { seq, payload: &PAYLOAD }], tail)?;
            log.barrier()?;
            Ok(())
        })?;
        offset = 64 + (offset - 64 + RECORD_BYTES) % (FILE_BYTES - 4096);
    }
    env.vfs.remove(&path)?;
    std::fs::remove_dir_all(&log_dir)?;
    let ((raw, raw_p50, raw_p99), (logged, log_p50, log_p99)) = (raw.summary(), logged.summary());
    println!(
        "pwrite+fdatasync {raw:7.0}/s p50 {raw_p50:6.1} µs p99 {raw_p99:6.1} µs   \
         append+barrier {logged:7.0}/s p50 {log_p50:6.1} µs p99 {log_p99:6.1} µs   ratio of rates {:.3}, of medians {:.3}",
        logged / raw,
        raw_p50 / log_p50
    );
    Ok(raw_p50 / log_p50)
}

/// Nanoseconds to put one record into memory, and million records replayed per second when the log is opened.
fn append_and_replay(env: &Env, dir: &Path) -> Result<(f64, f64), AnyError> {
    let dir = dir.join("append");
    let (log, _) = LocalLog::open(env, &dir, LogOptions::default(), Lsn::ZERO, Seq::ZERO, &mut |_| Ok(()))?;
    let (mut seq, mut tail, mut spent) = (Seq::ZERO, log.tail(), Duration::ZERO);
    for _ in 0..200 {
        let start = Instant::now();
        for _ in 0..10_000 {
            seq = seq.next();
            tail = log.append(&[Record { seq, payload: &PAYLOAD }], tail)?;
        }
        spent += start.elapsed();
        log.flush()?;
    }
    log.barrier()?;
    drop(log);
    let start = Instant::now();
    let (_, recovery) =
        LocalLog::open(env, &dir, LogOptions::default(), Lsn::ZERO, Seq::ZERO, &mut |_| Ok(()))?;
    let replayed = recovery.records as f64 / start.elapsed().as_micros() as f64;
    std::fs::remove_dir_all(&dir)?;
    Ok((spent.as_nanos() as f64 / 2e6, replayed))
}

fn main() -> Result<(), AnyError> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from).join("ropewalk-barrier");
    let time = Duration::from_secs_f64(arguments.next().map_or(Ok(3.0), |seconds| seconds.parse())?);
    let env = Env::real();
    env.vfs.create_dir_all(&dir)?;
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        ratios.push(round(&env, &dir, time)?);
    }
    ratios.sort_by(f64::total_cmp);
    println!("median of the ratios of medians {:.3}", ratios.get(ROUNDS / 2).copied().unwrap_or_default());
    let (nanos, replayed) = append_and_replay(&env, &dir)?;
    println!("append of {} bytes to memory: {nanos:.0} ns; replay: {replayed:.1} million/s", PAYLOAD.len());
    std::fs::remove_dir(&dir)?;
    Ok(())
}
