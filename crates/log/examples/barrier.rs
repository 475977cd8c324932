//! One writer, one synced record after the other, beside the same writes without a log: what does the log cost?
//!
//!     cargo run --release -p ropewalk-log --example barrier -- [DIR] [SECONDS PER ROUND]
//!
//! Both sides write the same bytes to a file of zeros of the same size, in turns (A/B), on the same disk.
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

/// Runs `step` for `time`; returns steps per second and the median and 99th percentile in microseconds.
fn measure(
    time: Duration,
    mut step: impl FnMut() -> Result<(), AnyError>,
) -> Result<(f64, f64, f64), AnyError> {
    let start = Instant::now();
    let mut nanos = Vec::new();
    while start.elapsed() < time {
        let before = Instant::now();
        step()?;
        nanos.push(before.elapsed().as_nanos() as f64 / 1000.0);
    }
    let rate = nanos.len() as f64 / start.elapsed().as_secs_f64();
    nanos.sort_by(f64::total_cmp);
    let at = |part: f64| nanos.get((nanos.len() as f64 * part) as usize).copied().unwrap_or_default();
    Ok((rate, at(0.5), at(0.99)))
}

fn raw(env: &Env, dir: &Path, time: Duration) -> Result<(f64, f64, f64), AnyError> {
    let path = dir.join("raw");
    let file = env.vfs.open(&path, OpenMode::CreateNew)?;
    let zeros = vec![0; 1 << 20];
    for offset in (0..FILE_BYTES).step_by(zeros.len()) {
        file.write_all_at(&zeros, offset)?;
    }
    file.sync_data()?;
    let record = [0x5a; RECORD_BYTES as usize];
    let mut offset = 64;
    let result = measure(time, || {
        file.write_all_at(&record, offset)?;
        file.sync_data()?;
        offset = 64 + (offset - 64 + RECORD_BYTES) % (FILE_BYTES - 4096);
        Ok(())
    });
    env.vfs.remove(&path)?;
    result
}

fn log(env: &Env, dir: &Path, time: Duration) -> Result<(f64, f64, f64), AnyError> {
    let dir = dir.join("log");
    let options = LogOptions { segment_bytes_first: FILE_BYTES, ..LogOptions::default() };
    let (log, _) = LocalLog::open(env, &dir, options, Lsn::ZERO, Seq::ZERO, &mut |_| Ok(()))?;
    let (mut seq, mut tail) = (Seq::ZERO, log.tail());
    let result = measure(time, || {
        seq = seq.next();
        tail = log.append(&[Record { seq, payload: &PAYLOAD }], tail)?;
        log.barrier()?;
        Ok(())
    });
    drop(log);
    std::fs::remove_dir_all(&dir)?;
    result
}

/// Nanoseconds to put one record into memory.
fn append_only(env: &Env, dir: &Path) -> Result<f64, AnyError> {
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
    drop(log);
    std::fs::remove_dir_all(&dir)?;
    Ok(spent.as_nanos() as f64 / 2e6)
}

fn main() -> Result<(), AnyError> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from).join("ropewalk-barrier");
    let time = Duration::from_secs_f64(arguments.next().map_or(Ok(3.0), |seconds| seconds.parse())?);
    let env = Env::real();
    env.vfs.create_dir_all(&dir)?;
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        let (raw, raw_p50, raw_p99) = raw(&env, &dir, time)?;
        let (log, log_p50, log_p99) = log(&env, &dir, time)?;
        println!(
            "pwrite+fdatasync {raw:8.0}/s p50 {raw_p50:6.1} µs p99 {raw_p99:6.1} µs    \
             append+barrier {log:8.0}/s p50 {log_p50:6.1} µs p99 {log_p99:6.1} µs    ratio {:.3}",
            log / raw
        );
        ratios.push(log / raw);
    }
    ratios.sort_by(f64::total_cmp);
    println!("median ratio {:.3}", ratios.get(ROUNDS / 2).copied().unwrap_or_default());
    println!("append of {} bytes to memory: {:.0} ns", PAYLOAD.len(), append_only(&env, &dir)?);
    std::fs::remove_dir(&dir)?;
    Ok(())
}
