//! Events in three stores, and a key that is written in the commit of an event: every acknowledged event is
//! there with its bytes, in its place, once, batches are complete, and the keys match the events.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Mutex;

use ropewalk::engine::{Keyspace, KeyspaceOptions};
use ropewalk::events::ReadOptions;
use ropewalk::{AppendCondition, AppendOptions, Database, Durability, Error, Event, EventStore, Query};
use ropewalk_vfs::{Random, SeededRandom};

use crate::{Load, THREADS};

fn last(db: &Database) -> Result<Keyspace, Error> {
    db.keyspace("last", KeyspaceOptions::default())
}

/// The payload that belongs to an id, so that a reader can check every byte.
fn payload(id: &str) -> Vec<u8> {
    let seed = id.bytes().fold(7_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let random = SeededRandom::new(seed);
    let len = if random.next_u64().is_multiple_of(50) { 20_000 } else { random.next_u64() % 400 };
    std::iter::repeat_with(|| random.next_u64().to_le_bytes()).flatten().take(len as usize).collect()
}

fn event(id: &str, thread: u64, batch: &str) -> Event {
    Event::new("Written").tag(format!("id:{id}")).tag(format!("thread:{thread}")).tag(batch).data(payload(id))
}

/// Writes in one thread until the process is killed.
pub(crate) fn write_on(
    db: &Database,
    (round, thread): (u64, u64),
    out: &Mutex<std::io::Stdout>,
) -> Result<(), Error> {
    let last = last(db)?;
    let store = db.events(&format!("store{}", thread % 3))?;
    for n in 0_u64.. {
        let ids: Vec<String> = (0..1 + n % 3).map(|part| format!("{round}-{thread}-{n}-{part}")).collect();
        let batch = format!("batch:{}", ids.len());
        let events: Vec<Event> = ids.iter().map(|id| event(id, thread, &batch)).collect();
        let first = if n % 4 == 3 {
            // Events and a key in one commit; no other thread writes the key.
            let mut both = db.begin();
            both.append(&store, &events, AppendOptions::default())?;
            both.put(last, format!("thread{thread}").as_bytes(), format!("{round}-{n}").as_bytes());
            let done = both.commit()?;
            done.and_then(|done| Some(done.appended.first()?.first.0)).unwrap_or_default()
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
        // One write call, so that a line is complete or absent; without a reader the thread ends.
        let mut out = out.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if out.write_all(lines.as_bytes()).and_then(|()| out.flush()).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Everything that was ever acknowledged.
#[derive(Default)]
pub(crate) struct Acknowledged {
    events: BTreeMap<(u64, u64), String>,
    /// Thread to the newest `round-n` of its key.
    keys: BTreeMap<u64, (u64, u64)>,
}

fn round_and_n(text: &str) -> Option<(u64, u64)> {
    let (round, n) = text.split_once('-')?;
    Some((round.parse().ok()?, n.parse().ok()?))
}

impl Load for Acknowledged {
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
    fn check(&mut self, db: &Database) -> Result<u64, String> {
        let last = last(db).map_err(|e| e.to_string())?;
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

    fn acknowledged(&self) -> usize {
        self.events.len()
    }
}

impl Acknowledged {
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
