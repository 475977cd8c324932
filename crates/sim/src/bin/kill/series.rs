//! Samples: every batch is forty series of one thread with fifty samples each, so two thousand in one commit; batches come
//! out of the order of time, some series are new, and what earlier rounds wrote is deleted again.
//!
//! Series, time and value follow from round, thread and number of the batch, so every sample read identifies
//! its batch and its expected value.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Stdout, Write};
use std::sync::{Mutex, PoisonError};

use ropewalk::series::{Labels, Matcher, SampleBatch, Samples, SeriesStore};
use ropewalk::{Database, Error};

use crate::{Load, THREADS};

/// Series of a batch.
const SERIES: u64 = 40;
/// Samples of each series in a batch.
const SAMPLES: u64 = 50;
/// Samples of each series in long batches, which are encoded as chunks.
const SAMPLES_LONG: u64 = 100;
/// Number of rounds after which a round's samples are deleted.
const ROUNDS_KEPT: u64 = 12;
/// Batches of a thread in a round, at most.
const BATCHES_MAX: u64 = 1 << 20;

/// Every so often a batch creates a separate series.
const FRESH_EVERY: u64 = 8;

fn samples_of(batch: u64) -> u64 {
    if batch % 5 == 4 { SAMPLES_LONG } else { SAMPLES }
}

/// The number of the batch whose samples come `n`-th in a thread: neighbours change places.
fn place_of(n: u64) -> u64 {
    n ^ 1
}

fn first_time(round: u64, place: u64) -> i64 {
    ((round * BATCHES_MAX + place) * 128).cast_signed()
}

fn value(series: u64, time: i64) -> f64 {
    let mixed = (series ^ time.cast_unsigned().wrapping_mul(0x9e37_79b9)).wrapping_mul(0x0100_0000_01b3);
    ((mixed >> 20) % 100_000) as f64 / if series.is_multiple_of(2) { 100.0 } else { 7.0 }
}

fn series_labels(thread: u64, series: u64) -> Result<Labels, Error> {
    let (thread, series) = (thread.to_string(), series.to_string());
    Ok(Labels::new([("__name__", "kill"), ("thread", &*thread), ("series", &*series)])?)
}

fn fresh_labels(thread: u64, round: u64, n: u64) -> Result<Labels, Error> {
    let (thread, batch) = (thread.to_string(), format!("{round}-{n}"));
    Ok(Labels::new([("__name__", "fresh"), ("thread", &*thread), ("batch", &*batch)])?)
}

fn of_thread(name: &str, thread: u64) -> [Matcher; 2] {
    [Matcher::equal("__name__", name), Matcher::equal("thread", thread.to_string())]
}

/// Writes complete lines in one write call. False when the reader is gone.
fn say(out: &Mutex<Stdout>, lines: &str) -> bool {
    let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
    out.write_all(lines.as_bytes()).and_then(|()| out.flush()).is_ok()
}

/// Writes in one thread until the process is killed.
pub(crate) fn write_on(db: &Database, (round, thread): (u64, u64), out: &Mutex<Stdout>) -> Result<(), Error> {
    let store = db.series("kill")?;
    if let Some(old) = round.checked_sub(ROUNDS_KEPT) {
        let (from, to) = (first_time(old, 0), first_time(old + 1, 0) - 1);
        if !say(out, &format!("going {thread} {old}\n")) {
            return Ok(());
        }
        store.delete(&of_thread("kill", thread), from, to)?;
        if !say(out, &format!("gone {thread} {old}\n")) {
            return Ok(());
        }
    }
    let mut batch = SampleBatch::new();
    let labels = (0..SERIES).map(|series| series_labels(thread, series)).collect::<Result<Vec<_>, _>>()?;
    for n in 0..BATCHES_MAX {
        batch.clear();
        let first = first_time(round, place_of(n));
        for (series, labels) in (0..).zip(&labels) {
            let mut to = batch.series(labels);
            for time in (first..).take(samples_of(n) as usize) {
                to.push(time, value(series, time));
            }
        }
        if n % FRESH_EVERY == 0 {
            batch.push(&fresh_labels(thread, round, n)?, first, n as f64);
        }
        store.append(&batch)?;
        if !say(out, &format!("batch {thread} {round}\n")) {
            break;
        }
    }
    Ok(())
}

/// Acknowledged changes, by thread and round.
#[derive(Default)]
pub(crate) struct Acknowledged {
    /// Number of acknowledged batches.
    batches: BTreeMap<(u64, u64), u64>,
    /// Threads and rounds for which a deletion was begun.
    going: BTreeSet<(u64, u64)>,
    /// Threads and rounds whose deletion was acknowledged.
    gone: BTreeSet<(u64, u64)>,
}

impl Load for Acknowledged {
    fn take(&mut self, line: &str) -> Result<(), String> {
        let strange = || format!("the child says {line:?}");
        let words: Vec<&str> = line.split(' ').collect();
        let &[what, thread, round] = words.as_slice() else { return Err(strange()) };
        let number = |word: &str| word.parse::<u64>().map_err(|_| strange());
        let key = (number(thread)?, number(round)?);
        match what {
            "batch" => *self.batches.entry(key).or_default() += 1,
            "going" => _ = self.going.insert(key),
            "gone" => _ = self.gone.insert(key),
            _ => return Err(strange()),
        }
        Ok(())
    }

    fn check(&mut self, db: &Database) -> Result<u64, String> {
        let store = db.series("kill").map_err(|e| e.to_string())?;
        let mut total = 0;
        for thread in 0..THREADS {
            let found = found(db, &store, thread).map_err(|e| e.to_string())??;
            total += found.samples;
            self.judge(thread, &found)?;
        }
        Ok(total)
    }

    fn acknowledged(&self) -> usize {
        self.batches.values().sum::<u64>() as usize
    }
}

/// Stored samples of a thread.
#[derive(Default)]
struct Found {
    samples: u64,
    /// By round and place: samples of all series together.
    batches: BTreeMap<(u64, u64), u64>,
    /// Round and number of the batches with a separate series.
    fresh: BTreeSet<(u64, u64)>,
}

/// Reads everything of a thread; each value must be the one that belongs to its series and time.
fn found(db: &Database, store: &SeriesStore, thread: u64) -> Result<Result<Found, String>, Error> {
    let snapshot = db.snapshot();
    let at = snapshot.series(store);
    let (mut found, mut columns) = (Found::default(), Samples::default());
    let mut selection = at.select(&of_thread("kill", thread), i64::MIN, i64::MAX)?;
    while selection.next().is_some() {
        let series = selection.labels().and_then(|labels| labels.get("series").parse().ok()).unwrap_or(0);
        columns.clear();
        selection.samples(&mut columns)?;
        for (time, bits) in columns.bits() {
            if value(series, time).to_bits() != bits {
                return Ok(Err(format!("series {series} of thread {thread} has another value at {time} ms")));
            }
            let batch = time.cast_unsigned() / 128;
            *found.batches.entry((batch / BATCHES_MAX, batch % BATCHES_MAX)).or_default() += 1;
            found.samples += 1;
        }
    }
    let mut selection = at.select(&of_thread("fresh", thread), i64::MIN, i64::MAX)?;
    while selection.next().is_some() {
        let batch = selection.labels().and_then(|labels| {
            let (round, n) = labels.get("batch").split_once('-')?;
            Some((round.parse().ok()?, n.parse().ok()?))
        });
        columns.clear();
        if selection.samples(&mut columns)? != 1 {
            return Ok(Err(format!("a fresh series of thread {thread} has {} samples", columns.len())));
        }
        found.fresh.extend(batch);
    }
    Ok(Ok(found))
}

impl Acknowledged {
    /// Complete batches only, no gap in their order, no acknowledged one missing, no deleted one back.
    fn judge(&self, thread: u64, found: &Found) -> Result<(), String> {
        for ((round, place), samples) in &found.batches {
            let n = place_of(*place);
            if *samples != SERIES * samples_of(n) {
                return Err(format!("batch {n} of thread {thread}, round {round}, has {samples} samples"));
            }
        }
        let newest = found.batches.keys().map(|(round, _)| *round).max().unwrap_or(0);
        let rounds = self.batches.keys().filter(|(of, _)| *of == thread).map(|(_, round)| *round);
        for round in rounds.chain([newest]).collect::<BTreeSet<u64>>() {
            let promised = self.batches.get(&(thread, round)).copied().unwrap_or(0);
            let places =
                found.batches.range((round, 0)..(round + 1, 0)).map(|((_, place), _)| place_of(*place));
            let there: BTreeSet<u64> = places.collect();
            let fresh = found.fresh.range((round, 0)..(round + 1, 0)).count() as u64;
            if fresh < promised.div_ceil(FRESH_EVERY) {
                return Err(format!(
                    "thread {thread}, round {round}: {fresh} fresh series of {promised} batches"
                ));
            }
            // A deletion is acknowledged, or its acknowledgement was cut by the kill.
            let (going, gone) = (self.going.contains(&(thread, round)), self.gone.contains(&(thread, round)));
            if gone && !there.is_empty() {
                return Err(format!(
                    "thread {thread}, round {round}: deleted, and {} batches are there",
                    there.len()
                ));
            }
            if going && there.is_empty() {
                continue;
            }
            let gapless = (0..there.len() as u64).eq(there.iter().copied());
            if !gapless || (there.len() as u64) < promised {
                return Err(format!(
                    "thread {thread}, round {round}: {promised} batches acknowledged, {} there, gapless: {gapless}",
                    there.len()
                ));
            }
        }
        Ok(())
    }
}
