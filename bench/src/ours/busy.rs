//! Latency of reads and durable commits during a load at full speed, with flushes and compaction.
//!
//! One thread reads, one loads, one commits, and background threads work: more threads than a small machine
//! has processors, so scheduling delays are part of every figure.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ropewalk::tables::{KeyRange, Table, Value};
use ropewalk::{Database, Durability, Isolation, Options};
use ropewalk_bench::harness::random::SplitMix;
use ropewalk_bench::harness::worker::{Figure, Latencies, Outcome, Task};
use ropewalk_bench::workloads::kernel::ordered::touch;
use ropewalk_bench::workloads::kernel::rows::{Order, Rows, VALUE_BYTES, signed, value};

/// Small enough that a load of some seconds is flushed and merged many times.
const MEMORY_BYTES: u64 = 256 << 20;
const ROWS_PER_COMMIT: u64 = 1000;
const ATTEMPTS: usize = 1000;

/// Reads alone, then reads and commits during the load.
pub(crate) fn run(task: &Task) -> Result<Outcome> {
    let (db, table) = open(&task.dir)?;
    let stored = Rows { count: task.rows, order: Order::Rand };
    let mut load = db.tables().load(&table)?;
    for (key, value) in stored.iter() {
        load.row(&[Value::Int8(signed(key)), Value::bytea(&value[..])])?;
    }
    load.finish()?;

    let during = Duration::from_secs_f64(task.seconds);
    read(&db, &table, stored, Duration::from_secs_f64(task.seconds.min(1.0)), 1)?;
    let idle = read(&db, &table, stored, during, 2)?;
    let stop = AtomicBool::new(false);
    let (busy, loaded, commits) = thread::scope(|scope| -> Result<_> {
        let loader = scope.spawn(|| load_until(&db, &table, task.rows, &stop));
        let committer = scope.spawn(|| commit_until(&db, &table, 2 * task.rows + (1 << 32), &stop));
        let busy = read(&db, &table, stored, during, 3);
        stop.store(true, Relaxed);
        let loaded = loader.join().ok().context("the loader panicked")??;
        let commits = committer.join().ok().context("the committer panicked")??;
        Ok((busy?, loaded, commits))
    })?;
    let rows = db.snapshot().tables(&db).count(&table, &KeyRange::all())?;
    let expected = task.rows + loaded + commits.count();
    ensure!(rows == expected, "{rows} rows, {expected} were acknowledged");

    let tail = |latencies: &Latencies, quantile| {
        Figure::one(latencies.quantile_us(quantile).unwrap_or_default()).with(latencies)
    };
    let (idle_tail, busy_tail) = (tail(&idle, 0.999), tail(&busy, 0.999));
    let ratio = |of: &Figure| of.samples.first().copied().unwrap_or_default();
    let mut outcome = Outcome::default();
    outcome.figure("ratio", Figure::one(ratio(&busy_tail) / ratio(&idle_tail)));
    outcome.figure("idle", idle_tail);
    outcome.figure("read", busy_tail);
    outcome.figure("commit", tail(&commits, 0.99));
    outcome.figure("load", Figure::one(loaded as f64 / during.as_secs_f64()));
    Ok(outcome)
}

fn open(dir: &Path) -> Result<(Database, Table)> {
    let db = Options::new().memory_budget(MEMORY_BYTES).open(dir)?;
    let mut tx = db.begin();
    let table = tx.tables().create_table(super::shared::rows())?;
    tx.commit()?;
    Ok((db, table))
}

/// Reads random keys of `stored` one by one, each at a separate snapshot.
fn read(db: &Database, table: &Table, stored: Rows, during: Duration, seed: u64) -> Result<Latencies> {
    let mut point = db.tables().point(table);
    let mut random = SplitMix::new(seed);
    let (mut latencies, begin) = (Latencies::default(), Instant::now());
    let mut started = begin;
    let mut sum = 0_u64;
    while started - begin < during {
        let key = stored.key(random.below(stored.count));
        let snapshot = db.snapshot();
        let row = point.get(snapshot.engine(), &[Value::Int8(signed(key))])?.context("a row is missing")?;
        if let Value::Bytea(bytes) = row.row().get(1)? {
            sum = sum.wrapping_add(touch(&bytes));
        }
        let ended = Instant::now();
        latencies.record(ended - started);
        started = ended;
    }
    std::hint::black_box(sum);
    Ok(latencies)
}

/// Inserts new rows, a thousand per transaction, at full speed. Returns their number.
fn load_until(db: &Database, table: &Table, from: u64, stop: &AtomicBool) -> Result<u64> {
    let fresh = Rows { count: u64::MAX, order: Order::Rand };
    let mut loaded = 0;
    while !stop.load(Relaxed) {
        db.transact_with(Isolation::Snapshot, Durability::Buffered, ATTEMPTS, |tx| {
            let mut tables = tx.tables();
            for i in 0..ROWS_PER_COMMIT {
                let key = fresh.key(from + loaded + i);
                tables.insert_row(table, &[Value::Int8(signed(key)), Value::bytea(&value(key)[..])])?;
            }
            Ok::<_, ropewalk::Error>(())
        })?;
        loaded += ROWS_PER_COMMIT;
    }
    Ok(loaded)
}

/// Inserts new rows one by one, each durable before the next.
fn commit_until(db: &Database, table: &Table, from: u64, stop: &AtomicBool) -> Result<Latencies> {
    let fresh = Rows { count: u64::MAX, order: Order::Rand };
    let (mut latencies, mut next) = (Latencies::default(), from);
    while !stop.load(Relaxed) {
        let key = fresh.key(next);
        let row: [u8; VALUE_BYTES] = value(key);
        let started = Instant::now();
        db.transact_with(Isolation::Snapshot, Durability::Sync, ATTEMPTS, |tx| {
            tx.tables().insert_row(table, &[Value::Int8(signed(key)), Value::bytea(&row[..])])?;
            Ok::<_, ropewalk::Error>(())
        })?;
        latencies.record(started.elapsed());
        next += 1;
    }
    Ok(latencies)
}
