//! Measures how long opening a database takes, by its size, after a kill and after a clean close.
//!
//! ```text
//! cargo run --release -p ropewalk-events --example open_times -- [--quick] [DIR]
//! ```
//!
//! Each database is filled by a process that ends without closing it. A time is that from the call to the
//! newest event or row, in a separate process, which ends without closing, too; files are in the page cache.
#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use std::path::Path;
use std::process::{Command, exit};
use std::sync::Arc;
use std::time::Instant;

use ropewalk_engine::{Durability, Engine, EngineOptions, KeyspaceOptions, KvBatch};
use ropewalk_events::{AppendOptions, Event, EventStore, EventsModel, Query};
use ropewalk_vfs::Env;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// An engine and its event store.
struct Database {
    engine: Arc<Engine>,
    events: EventStore,
}

impl Database {
    fn open(dir: &Path) -> Result<Self> {
        let model = Arc::new(EventsModel::new(1));
        let engine = Engine::open(&Env::real(), dir, EngineOptions::default(), vec![model.clone()])?;
        let engine = Arc::new(engine);
        let events = EventStore::new(engine.clone(), model, "events")?;
        Ok(Self { engine, events })
    }
}

const OPENINGS: usize = 7;
/// Events or rows of one commit.
const BATCH: u64 = 100;

fn main() -> Result {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["fill", model, count, dir] => fill(model, count.parse()?, Path::new(dir)),
        ["open", model, count, dir] => open(model, count.parse()?, Path::new(dir)),
        ["close", dir] => Ok(Database::open(Path::new(dir))?.engine.close()?),
        options => {
            let quick = options.contains(&"--quick");
            let dir = options.iter().find(|option| !option.starts_with("--"));
            report(quick, Path::new(dir.unwrap_or(&"open-times-data")))
        }
    }
}

fn report(quick: bool, dir: &Path) -> Result {
    let sizes: &[(&str, u64)] = &[
        ("events", 0),
        ("events", 100_000),
        ("rows", 300_000),
        ("events", 1_000_000),
        ("events", 10_000_000),
        ("rows", 10_000_000),
    ];
    println!("model       count   fill/s   after a kill: ms (min median max), replayed KiB   after a close");
    for (model, count) in sizes.iter().filter(|(_, count)| !quick || *count <= 1_000_000) {
        let place = dir.join(format!("{model}-{count}"));
        if place.exists() {
            std::fs::remove_dir_all(&place)?;
        }
        let (place, count) = (place.to_string_lossy().into_owned(), count.to_string());
        let rate = child(&["fill", model, &count, &place])?;
        let killed = openings(model, &count, &place)?;
        child(&["close", &place])?;
        let closed = openings(model, &count, &place)?;
        println!("{model:6} {count:>10} {rate:>8}   {killed}   {closed}");
        std::fs::remove_dir_all(&place)?;
    }
    Ok(())
}

/// Smallest, median and largest time of several openings, and how much they replayed.
fn openings(model: &str, count: &str, place: &str) -> Result<String> {
    let mut times = Vec::new();
    let mut replayed = String::new();
    for _ in 0..OPENINGS {
        let line = child(&["open", model, count, place])?;
        let (time, bytes) = line.split_once(' ').ok_or("an opening reports two numbers")?;
        times.push(time.parse::<f64>()?);
        replayed = bytes.to_owned();
    }
    times.sort_by(f64::total_cmp);
    let at = |index: usize| times.get(index).copied().unwrap_or_default();
    Ok(format!("{:>7.2} {:>7.2} {:>7.2} {replayed:>7}", at(0), at(OPENINGS / 2), at(OPENINGS - 1)))
}

/// The last line that this program prints with other arguments.
fn child(arguments: &[&str]) -> Result<String> {
    let output = Command::new(std::env::current_exe()?).args(arguments).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(String::from_utf8(output.stdout)?.lines().last().unwrap_or_default().to_owned())
}

/// Fills a database, reports events or rows a second, and ends the process without closing.
fn fill(model: &str, count: u64, dir: &Path) -> Result {
    std::fs::create_dir_all(dir)?;
    let db = Database::open(dir)?;
    let started = Instant::now();
    for first in (0..count.max(1)).step_by(BATCH as usize) {
        let numbers = first..(first + BATCH).min(count);
        let last = numbers.end == count;
        let durability = if last { Durability::Sync } else { Durability::Buffered };
        match model {
            "events" => append(&db, numbers, count, durability)?,
            _ => put(&db, numbers, durability)?,
        }
    }
    println!("{:.0}", count as f64 / started.elapsed().as_secs_f64());
    exit(0)
}

fn append(db: &Database, numbers: std::ops::Range<u64>, count: u64, durability: Durability) -> Result {
    let events: Vec<Event> = numbers.map(|i| event(i, count)).collect();
    if !events.is_empty() {
        db.events.append_with(&events, AppendOptions { durability, ..AppendOptions::default() })?;
    }
    Ok(())
}

/// 100 bytes and three tags: one unique, one of an account with 100 events, one of a region with 2,000.
fn event(i: u64, count: u64) -> Event {
    let kind = ["A", "B", "C", "D", "E"].get(i as usize % 5).copied().unwrap_or("A");
    Event::new(kind)
        .tag(format!("id:{i}"))
        .tag(format!("acct:{}", i % (count / 100).max(1)))
        .tag(format!("region:{}", i % (count / 2000).max(1)))
        .data(random_bytes(i))
}

fn random_bytes(i: u64) -> [u8; 100] {
    let mut bytes = [0; 100];
    for (word, place) in (0..).zip(bytes.chunks_mut(8)) {
        let random = scramble(i * 13 + word).to_le_bytes();
        place.iter_mut().zip(random).for_each(|(to, from)| *to = from);
    }
    bytes
}

fn scramble(i: u64) -> u64 {
    let mixed = (i ^ (i >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

/// Keys of 8 bytes in no order, values of 100.
fn put(db: &Database, numbers: std::ops::Range<u64>, durability: Durability) -> Result {
    let keyspace = db.engine.keyspace("rows", KeyspaceOptions::default())?;
    let mut batch = KvBatch::new();
    numbers.for_each(|i| batch.put(keyspace, &scramble(i).to_be_bytes(), &random_bytes(i)));
    db.engine.commit(vec![Box::new(batch)], durability)?;
    Ok(())
}

/// Opens, reads the newest event or row, reports milliseconds and the KiB that were replayed, and ends
/// without closing.
fn open(model: &str, count: u64, dir: &Path) -> Result {
    let started = Instant::now();
    let db = Database::open(dir)?;
    let found = match model {
        "events" => db.events.read_last(&Query::all())?.is_some(),
        _ => {
            let keyspace = db.engine.keyspace("rows", KeyspaceOptions::default())?;
            let key = scramble(count.saturating_sub(1)).to_be_bytes();
            db.engine.snapshot().read().get(keyspace, &key)?.is_some()
        }
    };
    let elapsed = started.elapsed();
    if found != (count > 0) {
        return Err("the newest event or row is not there".into());
    }
    println!("{:.3} {}", elapsed.as_secs_f64() * 1e3, db.engine.recovery().bytes >> 10);
    exit(0)
}
