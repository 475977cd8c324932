//! Chapter 4: a process is killed while it writes; every acknowledged write is found afterwards.
//!
//! ```text
//! demo ── starts ──▶ ropewalk demo-writer: 8 threads append, each prints the acknowledged position
//!      ◀── "thread ordinal position" lines ── … ── SIGKILL ──▶ dead
//! demo: reads the complete lines, opens the directory, finds each acknowledged append
//! ```

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use clap::Args;
use ropewalk::events::ReadOptions;
use ropewalk::{Database, Event, Query};

use super::story::Story;
use super::{fresh, open, took};
use crate::database::context::Context;
use crate::output::cell::thousands;
use crate::output::failure::{Exit, Failure, Result};

#[derive(Debug, Args)]
pub(crate) struct Writer {
    /// Threads that append
    #[arg(long, default_value_t = 8)]
    threads: u32,
}

const THREADS: u32 = 8;
/// Acknowledged appends after which the writer is killed, …
const ACKNOWLEDGED: u64 = 5_000;
/// … or time after its start, on a slow disk.
const LOAD: Duration = Duration::from_secs(3);
/// The writer ends after this time, even if the demo dies.
const WRITER_LIFE: Duration = Duration::from_secs(60);

/// Appends until its reader is gone, for at most a minute; the demo kills it earlier.
pub(crate) fn writer(context: &Context, writer: &Writer) -> Result {
    let db = context.open()?;
    let store = db.events(context.store_name())?;
    let started = Instant::now();
    let out = std::sync::Mutex::new(std::io::stdout());
    std::thread::scope(|scope| {
        let work = |thread: u32| -> Result {
            for ordinal in 0u64.. {
                if started.elapsed() > WRITER_LIFE {
                    break;
                }
                let event = Event::new("Written").tag(format!("writer:{thread}")).data(ordinal.to_string());
                let appended = store.append(&[event], None)?;
                let mut out = out.lock().expect("no writer panics while it prints");
                writeln!(out, "{thread} {ordinal} {}", appended.last)?;
            }
            Ok(())
        };
        let running: Vec<_> = (0..writer.threads).map(|thread| scope.spawn(move || work(thread))).collect();
        running.into_iter().try_for_each(|thread| thread.join().expect("a writer does not panic"))
    })
}

/// An append that was acknowledged before the writer died.
struct Acknowledged {
    thread: u64,
    ordinal: u64,
    position: u64,
}

impl Acknowledged {
    /// Only a complete line is an acknowledgement: the last may be torn.
    fn parse(line: &str) -> Option<Self> {
        let mut numbers = line.strip_suffix('\n')?.split(' ').map(str::parse);
        let mut number = || numbers.next()?.ok();
        Some(Self { thread: number()?, ordinal: number()?, position: number()? })
    }
}

/// Closes the database, kills a child that writes to it, and opens it again.
///
/// Returns it with the store of the child. No other handle on the database may exist: a directory has one
/// owner.
///
/// No other handle on the database may exist: a directory has one owner.
pub(super) fn survive(story: &mut Story, db: Database, at: &Path) -> Result<(Database, String)> {
    story.chapter("SIGKILL in the middle of writing")?;
    story.say(&format!(
        "Another process opens this database, and {THREADS} threads append to it as fast as they can. Each prints the \
         acknowledged positions. Then the process is killed with SIGKILL, which no handler can catch.",
    ))?;
    let name = fresh(&db, "crash")?.name().to_owned();
    db.close()?;
    let acknowledged = kill_a_writer(at, &name)?;

    let begun = Instant::now();
    let db = open(at)?;
    let recovery = begun.elapsed();
    let found = db.engine().recovery();
    let cut = found.cut.as_ref().map_or(0, |cut| cut.bytes);
    let store = db.events(&name)?;
    let head = store.head()?.map_or(0, |head| head.0);
    story.say(&format!(
        "Killed after {} acknowledged appends. Reopened in {}: {} commits replayed from {:.1} MiB of log, {} bytes of a torn \
         write cut off.",
        thousands(acknowledged.len() as u64),
        took(recovery),
        thousands(found.records),
        found.bytes as f64 / f64::from(1 << 20),
        thousands(cut),
    ))?;
    let mut at_position = HashMap::new();
    let mut gapless = true;
    for (expected, event) in (1..).zip(store.read(&Query::all(), ReadOptions::default())?) {
        let event = event?;
        gapless &= event.position.0 == expected;
        at_position.insert(event.position.0, (event.event.tags, event.event.data));
    }
    let lost = acknowledged.iter().filter(|ack| {
        let promised = (vec![format!("writer:{}", ack.thread)], ack.ordinal.to_string().into_bytes());
        at_position.get(&ack.position) != Some(&promised)
    });
    let lost = lost.count();
    let acknowledged = acknowledged.len() as u64;
    story.check(acknowledged > 0, "the writer was killed while appending")?;
    story.check(
        lost == 0,
        &format!(
            "all {} acknowledged appends are present, at their positions, with their data",
            thousands(acknowledged)
        ),
    )?;
    story.check(gapless && at_position.len() as u64 == head, "positions run without a gap")?;
    story.say(&format!(
        "{} more events had reached the disk, but their acknowledgements had not arrived: that is allowed, the \
         reverse is not.",
        thousands(head.saturating_sub(acknowledged)),
    ))?;
    story.figure("acknowledged before SIGKILL", format!("{} appends, {lost} lost", thousands(acknowledged)));
    story.figure("reopening after SIGKILL", took(recovery));
    Ok((db, name))
}

fn kill_a_writer(at: &Path, store: &str) -> Result<Vec<Acknowledged>> {
    let failed = |doing: &str, error: &std::io::Error| {
        Failure::new(Exit::Io, format!("{doing} the writer: {error}"), "")
    };
    let program = std::env::current_exe().map_err(|error| failed("find", &error))?;
    let mut child = Command::new(program)
        .arg("demo-writer")
        .arg("--at")
        .arg(at)
        .args(["--store", store, "--threads", &THREADS.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failed("start", &error))?;
    let mut lines = BufReader::new(child.stdout.take().expect("standard output is piped"));
    let heard = AtomicU64::new(0);
    let acknowledged = std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut acknowledged = Vec::new();
            let mut line = String::new();
            while lines.read_line(&mut line).is_ok_and(|read| read > 0) {
                acknowledged.extend(Acknowledged::parse(&line));
                heard.store(acknowledged.len() as u64, Relaxed);
                line.clear();
            }
            acknowledged
        });
        let started = Instant::now();
        while heard.load(Relaxed) < ACKNOWLEDGED && started.elapsed() < LOAD && !reading.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let killed = child.kill();
        let acknowledged = reading.join().expect("the reading thread does not panic");
        killed.map(|()| acknowledged)
    });
    let status = child.wait().map_err(|error| failed("wait for", &error))?;
    let acknowledged = acknowledged.map_err(|error| failed("kill", &error))?;
    if status.code().is_some() {
        return Err(Failure::new(Exit::Internal, format!("the writer ended by itself: {status}"), ""));
    }
    Ok(acknowledged)
}
