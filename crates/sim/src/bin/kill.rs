//! `kill`: a real process on the real disk, ended by SIGKILL in the middle of a write load, again and again in one directory.
//!
//!   parent ─ spawn ─▶ child: threads append, transact; each acknowledgement goes down a pipe ─▶ SIGKILL after 20-300 ms
//!     └─ open the same directory: everything acknowledged is there with its bytes, in its place, once ─▶ next round
//!
//! This proves what the kernel's page cache outlives: the code's own order of writes, recovery, checkpoints and
//! compaction in the middle of their work. Power cuts are for `sim`. The last line is `N passed, N failed`.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use clap::Parser;
use ropewalk::{
    AppendCondition, AppendOptions, Database, Durability, Env, Error, Event, EventStore, Keyspace,
    KeyspaceOptions, Options, Query, ReadOptions,
};
use ropewalk_vfs::{Random, SeededRandom};

const THREADS: u64 = 6;
/// Between two looks at every checksum.
const VERIFY_EVERY: u64 = 10;

/// Kills a writing process again and again and looks whether anything acknowledged is lost.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many times to kill.
    #[arg(long, default_value_t = 200)]
    rounds: u64,
    /// The directory, kept afterwards. Default: a temporary one.
    #[arg(long)]
    at: Option<PathBuf>,
    /// Chooses when to kill. Default: random.
    #[arg(long)]
    seed: Option<u64>,
    /// The child's part: write until killed.
    #[arg(long, hide = true)]
    write: Option<u64>,
}

fn open(path: &Path) -> Result<(Database, Keyspace), Error> {
    // Small, so that segments, checkpoints and compactions come round many times.
    let mut options = Options::new().memory_budget(2 << 20).log_retention(256 << 10);
    options.engine_mut().log.segment_bytes_first = 64 << 10;
    options.engine_mut().log.segment_bytes_max = 512 << 10;
    options.engine_mut().store.run_bytes = 256 << 10;
    let db = options.open(path)?;
    let keyspace = db.keyspace("last", KeyspaceOptions::default())?;
    Ok((db, keyspace))
}

/// The payload that belongs to an id, so that a reader can tell every byte.
fn payload(id: &str) -> Vec<u8> {
    let seed = id.bytes().fold(7_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let random = SeededRandom::new(seed);
    let len = if random.next_u64().is_multiple_of(50) { 20_000 } else { random.next_u64() % 400 };
    std::iter::repeat_with(|| random.next_u64().to_le_bytes()).flatten().take(len as usize).collect()
}

fn event(id: &str, thread: u64, batch: &str) -> Event {
    Event::new("Written").tag(format!("id:{id}")).tag(format!("thread:{thread}")).tag(batch).data(payload(id))
}

/// What one thread does until the process is killed.
fn write_on(
    db: &Database,
    last: Keyspace,
    (round, thread): (u64, u64),
    out: &Mutex<std::io::Stdout>,
) -> Result<(), Error> {
    let store = db.events(&format!("store{}", thread % 3))?;
    for n in 0_u64.. {
        let ids: Vec<String> = (0..1 + n % 3).map(|part| format!("{round}-{thread}-{n}-{part}")).collect();
        let batch = format!("batch:{}", ids.len());
        let events: Vec<Event> = ids.iter().map(|id| event(id, thread, &batch)).collect();
        let first = if n % 4 == 3 {
            // Events and a key in one commit; nobody else writes the key.
            let mut both = db.begin();
            both.append(&store, &events, AppendOptions::default())?;
            both.put(last, format!("thread{thread}").as_bytes(), format!("{round}-{n}").as_bytes());
            let done = both.commit()?;
            done.and_then(|done| done.outcomes.first().copied()).unwrap_or_default().0
        } else {
            let unique = Query::from_tags(ids.iter().take(1).map(|id| format!("id:{id}")));
            let conditions = if n % 2 == 0 { vec![AppendCondition::none_match(unique)] } else { Vec::new() };
            let options =
                AppendOptions { conditions, durability: Durability::Sync, ..AppendOptions::default() };
            store.append_with(&events, options)?.first.0
        };
        let mut lines = String::new();
        for (id, position) in ids.iter().zip(first..) {
            lines.push_str(&format!("{} {position} {id}\n", thread % 3));
        }
        if n % 4 == 3 {
            lines.push_str(&format!("key {thread} {round}-{n}\n"));
        }
        // One write call, so that a line is whole or absent; without a reader there is nobody to write for.
        let mut out = out.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if out.write_all(lines.as_bytes()).and_then(|()| out.flush()).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

fn child(path: &Path, round: u64) -> Result<(), Error> {
    let (db, last) = open(path)?;
    let out = Mutex::new(std::io::stdout());
    std::thread::scope(|scope| {
        let (db, out) = (&db, &out);
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || write_on(db, last, (round, thread), out)))
            .collect();
        writers.into_iter().try_for_each(|writer| writer.join().unwrap_or(Ok(())))
    })
}

/// Everything that was ever acknowledged.
#[derive(Default)]
struct Acknowledged {
    events: BTreeMap<(u64, u64), String>,
    /// Thread to the newest `round-n` of its key.
    keys: BTreeMap<u64, (u64, u64)>,
}

fn round_and_n(text: &str) -> Option<(u64, u64)> {
    let (round, n) = text.split_once('-')?;
    Some((round.parse().ok()?, n.parse().ok()?))
}

impl Acknowledged {
    fn take(&mut self, line: &str) -> Result<(), String> {
        let mut words = line.split(' ');
        let mut next = || words.next().ok_or_else(|| format!("the child says {line:?}"));
        let (first, second, third) = (next()?, next()?, next()?);
        let number = |word: &str| word.parse::<u64>().map_err(|_| format!("the child says {line:?}"));
        if first == "key" {
            let value = round_and_n(third).ok_or_else(|| format!("the child says {line:?}"))?;
            let newest = self.keys.entry(number(second)?).or_default();
            *newest = value.max(*newest);
            return Ok(());
        }
        match self.events.insert((number(first)?, number(second)?), third.to_owned()) {
            None => Ok(()),
            Some(other) => {
                Err(format!("position {second} of store{first} was given to {other} and to {third}"))
            }
        }
    }

    /// Compares an opened database with everything acknowledged so far.
    fn check(&self, db: &Database, last: Keyspace) -> Result<u64, String> {
        let mut written: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        let mut total = 0;
        for number in 0..3 {
            let store = db.events(&format!("store{number}")).map_err(|e| e.to_string())?;
            total += self.check_store(&store, number, &mut written)?;
        }
        for thread in 0..THREADS {
            let snapshot = db.snapshot();
            let stored =
                snapshot.get(last, format!("thread{thread}").as_bytes()).map_err(|e| e.to_string())?;
            let stored = stored.and_then(|value| round_and_n(std::str::from_utf8(&value).ok()?));
            let promised = self.keys.get(&thread).copied();
            if stored < promised {
                return Err(format!("key of thread {thread} is {stored:?}, {promised:?} was acknowledged"));
            }
            if stored != written.get(&thread).copied() {
                return Err(format!(
                    "key of thread {thread} is {stored:?}, the events of the same commit say {:?}",
                    written.get(&thread)
                ));
            }
        }
        Ok(total)
    }

    fn check_store(
        &self,
        store: &EventStore,
        number: u64,
        written: &mut BTreeMap<u64, (u64, u64)>,
    ) -> Result<u64, String> {
        let mut expected = 1;
        let mut seen = std::collections::BTreeSet::new();
        let mut problem = None;
        let mut batch_left = 0;
        let mut reader = store.read(&Query::all(), ReadOptions::default()).map_err(|e| e.to_string())?;
        let mut look = |position: u64, event: &Event| -> Result<(), String> {
            if position != expected {
                return Err(format!("position {position} follows {}", expected - 1));
            }
            expected += 1;
            let tag = |prefix: &str| event.tags.iter().find_map(|tag| tag.strip_prefix(prefix));
            let (id, batch) =
                (tag("id:").unwrap_or_default().to_owned(), tag("batch:").and_then(|b| b.parse().ok()));
            if event.data != payload(&id) {
                return Err(format!("event {id} at position {position} has other bytes"));
            }
            if let Some(acknowledged) = self.events.get(&(number, position)).filter(|known| **known != id) {
                return Err(format!("position {position} holds {id}, {acknowledged} was acknowledged"));
            }
            let parts: Vec<u64> = id.split('-').filter_map(|part| part.parse().ok()).collect();
            let &[round, thread, n, part] = parts.as_slice() else {
                return Err(format!("a foreign event {id:?}"));
            };
            // All of a batch, in order and next to each other.
            if part == 0 {
                if batch_left != 0 {
                    return Err(format!("a batch ends early before position {position}"));
                }
                batch_left = batch.unwrap_or(0_u64);
            }
            batch_left =
                batch_left.checked_sub(1).ok_or_else(|| format!("half a batch at position {position}"))?;
            if n % 4 == 3 {
                let newest = written.entry(thread).or_default();
                *newest = (round, n).max(*newest);
            }
            if seen.insert(id.clone()) { Ok(()) } else { Err(format!("event {id} is there twice")) }
        };
        while reader
            .visit(1024, |event| {
                if problem.is_none() {
                    problem = look(event.position.0, &event.to_event()).err();
                }
            })
            .map_err(|e| e.to_string())?
            > 0
        {}
        if let Some(problem) =
            problem.or_else(|| (batch_left != 0).then(|| "the last batch is not whole".to_owned()))
        {
            return Err(format!("store{number}: {problem}"));
        }
        let promised = self
            .events
            .range((number, 0)..(number + 1, 0))
            .next_back()
            .map_or(0, |((_, position), _)| *position);
        if promised >= expected {
            return Err(format!(
                "store{number}: position {promised} was acknowledged, the last one is {}",
                expected - 1
            ));
        }
        Ok(expected - 1)
    }
}

/// Runs a child for `life`, kills it, and notes what it acknowledged.
fn kill_one(path: &Path, round: u64, life: Duration, acknowledged: &mut Acknowledged) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut child = Command::new(program)
        .args(["--write", &round.to_string(), "--at"])
        .arg(path)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| e.to_string())?;
    let pipe = child.stdout.take().ok_or("the child has no pipe")?;
    let listener = std::thread::spawn(move || {
        // A line without its end was cut by the kill; its commit was acknowledged all the same, but to nobody.
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
    lines.iter().try_for_each(|line| acknowledged.take(line))?;
    match status.code() {
        None => Ok(lines.len() as u64),
        Some(code) => Err(format!("the child ended by itself with code {code}")),
    }
}

fn one_round(
    path: &Path,
    round: u64,
    life: Duration,
    acknowledged: &mut Acknowledged,
) -> Result<String, String> {
    let lines = kill_one(path, round, life, acknowledged)?;
    let (db, last) = open(path).map_err(|e| format!("open: {e}"))?;
    let total = acknowledged.check(&db, last)?;
    let mut verified = "";
    if round.is_multiple_of(VERIFY_EVERY) {
        let report = db.verify().map_err(|e| format!("verify: {e}"))?;
        if !report.store.damage.is_empty() || !report.violations.is_empty() {
            return Err(format!("verify finds {:?} {:?}", report.store.damage, report.violations));
        }
        verified = ", verified";
    }
    let replayed = db.engine().recovery().records;
    db.close().map_err(|e| format!("close: {e}"))?;
    Ok(format!(
        "killed after {life:?}, {lines} acknowledged, {replayed} commits replayed, {total} events there{verified}"
    ))
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
        return match child(&path, round) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                println!("child: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let seed = arguments.seed.unwrap_or_else(|| Env::real().random.next_u64());
    let random = SeededRandom::new(seed);
    let mut acknowledged = Acknowledged::default();
    let (mut passed, mut failed) = (0, 0);
    println!("seed {seed}, {}", path.display());
    for round in 1..=arguments.rounds {
        let life = Duration::from_millis(20 + random.next_u64() % 281);
        match one_round(&path, round, life, &mut acknowledged) {
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
    println!("{} acknowledged events", acknowledged.events.len());
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
