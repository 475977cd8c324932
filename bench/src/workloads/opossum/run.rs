//! Every row of the Opossum report, in two lanes.
//!
//! `report/…` as the report ran it: a fresh store per append, the store opened inside the timed region of
//! every read, results as arrays. `honest/…` measures the operation in the label: an open store in use,
//! events prepared outside the timed region, descending against ascending on the same query, queries that
//! find what they are named for, results streamed.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::harness::counting::bytes_allocated;
use crate::harness::plan::short;
use crate::harness::worker::{Figure, Latencies, Outcome, Task};
use crate::workloads::events::event_store::Direction::{Backward, Forward};
use crate::workloads::events::event_store::{Answer, Direction, Event, EventStore, Flush, Query, Visitor};
use crate::workloads::opossum::data::{
    FIVE_TYPES, FOUR_TYPES, Maker, TWO_TYPES, query_cases, read_cases, registration, students,
};

/// Events per append while filling a store.
const FILL_BATCH: usize = 1000;

/// All rows on small stores.
pub fn run<S: EventStore>(task: &Task) -> Result<Outcome> {
    let mut rows = Rows::new(task);
    rows.report_appends::<S>()?;
    rows.report_reads::<S>()?;
    rows.report_queries::<S>()?;
    rows.report_others::<S>()?;
    rows.honest_appends::<S>("")?;
    rows.honest_queries::<S>()?;
    for size in [100, 1000, 10_000] {
        let store = rows.store::<S>(&mut Maker::new(FOUR_TYPES, 3), size)?;
        rows.honest_reads(&store, size)?;
    }
    Ok(rows.outcome)
}

/// The honest rows on a store of `task.rows` events.
pub fn run_at<S: EventStore>(task: &Task) -> Result<Outcome> {
    let mut rows = Rows::new(task);
    let size = task.rows as usize;
    let mut maker = Maker::new(FOUR_TYPES, 3);
    let store = rows.store::<S>(&mut maker, size)?;
    rows.honest_reads(&store, size)?;
    rows.appends_to(&store, &mut maker, &format!("@{}", short(task.rows)))?;
    Ok(rows.outcome)
}

struct Rows {
    dir: PathBuf,
    seconds: f64,
    outcome: Outcome,
    stores: usize,
}

impl Rows {
    fn new(task: &Task) -> Self {
        Self { dir: task.dir.clone(), seconds: task.seconds, outcome: Outcome::default(), stores: 0 }
    }

    // ---- as the report ran it ----

    fn report_appends<S: EventStore>(&mut self) -> Result<()> {
        for n in [1, 2, 5, 10, 20, 50, 100] {
            let name =
                if n == 1 { "report/append/single".to_owned() } else { format!("report/append/batch{n}") };
            self.fresh::<S>(&name, n, Flush::Buffered)?;
        }
        self.fresh::<S>("report/append/single_flush", 1, Flush::Synced)?;
        self.fresh::<S>("report/append/batch5_flush", 5, Flush::Synced)?;
        self.fresh::<S>("report/append/batch10_flush", 10, Flush::Synced)?;

        let mut maker = Maker::new(FOUR_TYPES, 2);
        self.each_fresh("report/append/condition", |dir| {
            let store = S::open(dir)?;
            let (event, query) = registration(&mut maker);
            let started = Instant::now();
            let position = store.append(S::batch(vec![event]), Some(&S::filter(&query)), Flush::Buffered)?;
            ensure!(position.is_some(), "the condition holds in an empty store");
            Ok(started.elapsed())
        })
    }

    /// One append of `n` events on a new store. With `Flush::Synced` opening the store is timed, as in the
    /// report; preparing the events always is.
    fn fresh<S: EventStore>(&mut self, name: &str, n: usize, flush: Flush) -> Result<()> {
        let mut maker = Maker::new(FOUR_TYPES, 2);
        self.each_fresh(name, |dir| {
            let early = Instant::now();
            let store = S::open(dir)?;
            let started = if flush == Flush::Synced { early } else { Instant::now() };
            store.append(S::batch(maker.take(n)), None, flush)?;
            Ok(started.elapsed())
        })
    }

    /// Calls `once` with new directories until the time is over, at least five times.
    fn each_fresh(&mut self, name: &str, mut once: impl FnMut(&Path) -> Result<Duration>) -> Result<()> {
        let dir = self.dir.join("fresh");
        let (begin, mut latencies) = (Instant::now(), Latencies::default());
        while latencies.count() < 5 || begin.elapsed().as_secs_f64() < self.seconds {
            fs::create_dir(&dir)?;
            latencies.record(once(&dir)?);
            fs::remove_dir_all(&dir)?;
        }
        self.latencies(name, &latencies);
        Ok(())
    }

    fn report_reads<S: EventStore>(&mut self) -> Result<()> {
        for (i, size) in [100, 1000, 10_000].into_iter().enumerate() {
            let dir = self.filled::<S>(&mut Maker::new(FOUR_TYPES, 3), size)?;
            for case in read_cases() {
                if case.reported_ms.get(i).is_some_and(|&ms| ms > 0.0) {
                    let name = format!("{}/{}", case.name, short(size as u64));
                    self.open_and_collect::<S>(&dir, &name, "read", &case.query, Forward)?;
                }
            }
        }
        Ok(())
    }

    fn report_queries<S: EventStore>(&mut self) -> Result<()> {
        let dir = self.filled::<S>(&mut Maker::new(FIVE_TYPES, 5), 2000)?;
        for case in query_cases() {
            let direction = if case.backward { Backward } else { Forward };
            self.open_and_collect::<S>(&dir, case.name, "query", &case.query, direction)?;
        }
        Ok(())
    }

    /// Opens the store and reads into an array, both timed; then once more for the memory.
    fn open_and_collect<S: EventStore>(
        &mut self,
        dir: &Path,
        name: &str,
        lane: &str,
        query: &Query,
        direction: Direction,
    ) -> Result<()> {
        let filter = S::filter(query);
        let events = S::open(dir)?.collect(&filter, direction)?.len();
        let latencies = self.repeat(|| {
            let started = Instant::now();
            let store = S::open(dir)?;
            let found = store.collect(&filter, direction)?;
            let elapsed = started.elapsed();
            ensure!(found.len() == events, "{name}: two reads differ");
            Ok(elapsed)
        })?;
        self.latencies(format!("report/{lane}/{name}"), &latencies);
        let store = S::open(dir)?;
        self.outcome.digest(format!("{lane}/{name}"), store.answer(&filter, direction, None)?);
        if events > 0 {
            let (bytes, found) = bytes_allocated(|| store.collect(&filter, direction));
            found?;
            let per_event = Figure::one(bytes as f64 / events as f64);
            self.outcome.figure(format!("report/memory/{lane}/{name}"), per_event);
        }
        Ok(())
    }

    fn report_others<S: EventStore>(&mut self) -> Result<()> {
        let isolated = self.store::<S>(&mut Maker::new(TWO_TYPES, 2), 500)?;
        for (name, direction) in [("ascending", Forward), ("descending", Backward)] {
            self.collects(
                &isolated,
                &format!("report/isolated/{name}"),
                &Query::of(TWO_TYPES, &[]),
                direction,
            )?;
        }
        for size in [100, 1000, 10_000] {
            let store = self.store::<S>(&mut Maker::new(FOUR_TYPES, 3), size)?;
            self.read_last(&store, "report", size)?;
        }
        let dir = self.new_dir()?;
        S::open(&dir)?.append(S::batch(students()), None, Flush::Synced)?;
        for count in [50, 250, 500] {
            let filter = S::filter(&Query::of(&[format!("Student{count}").as_str()], &[]));
            let store = S::open(&dir)?;
            let latencies = self.repeat(|| {
                let started = Instant::now();
                let mut fold = Students::default();
                store.read(&filter, Forward, None, &mut fold)?;
                let elapsed = started.elapsed();
                ensure!(fold.by_id.len() == count, "{} students instead of {count}", fold.by_id.len());
                Ok(elapsed)
            })?;
            self.latencies(format!("report/rebuild/{count}"), &latencies);
        }
        Ok(())
    }

    // ---- rows that measure their labels ----

    fn honest_appends<S: EventStore>(&mut self, suffix: &str) -> Result<()> {
        let mut maker = Maker::new(FOUR_TYPES, 2);
        let store = self.store::<S>(&mut maker, 1000)?;
        self.appends_to(&store, &mut maker, suffix)?;
        for (name, tags, bytes) in [("100B_0tags", 0, 100), ("1KB_3tags", 3, 1000), ("10KB_5tags", 5, 10_000)]
        {
            let mut maker = Maker::new(FOUR_TYPES, tags).padded(bytes);
            self.appends(&store, &format!("honest/size/{name}"), &mut maker, 1, Flush::Synced)?;
        }
        Ok(())
    }

    fn appends_to<S: EventStore>(&mut self, store: &S, maker: &mut Maker, suffix: &str) -> Result<()> {
        for n in [1, 2, 5, 10, 20, 50, 100] {
            let batch = if n == 1 { "single".to_owned() } else { format!("batch{n}") };
            self.appends(store, &format!("honest/append/{batch}{suffix}"), maker, n, Flush::Buffered)?;
            self.appends(store, &format!("honest/append/{batch}_flush{suffix}"), maker, n, Flush::Synced)?;
        }
        for (name, flush) in [("condition", Flush::Buffered), ("condition_flush", Flush::Synced)] {
            let latencies = self.repeat(|| {
                let (event, query) = registration(maker);
                let (batch, filter) = (S::batch(vec![event]), S::filter(&query));
                let started = Instant::now();
                let position = store.append(batch, Some(&filter), flush)?;
                let elapsed = started.elapsed();
                ensure!(position.is_some(), "a condition on a new tag holds");
                Ok(elapsed)
            })?;
            self.latencies(format!("honest/append/{name}{suffix}"), &latencies);
        }
        Ok(())
    }

    /// Appends of `n` events, and the bytes allocated for each event.
    fn appends<S: EventStore>(
        &mut self,
        store: &S,
        name: &str,
        maker: &mut Maker,
        n: usize,
        flush: Flush,
    ) -> Result<()> {
        let latencies = self.repeat(|| {
            let batch = S::batch(maker.take(n));
            let started = Instant::now();
            store.append(batch, None, flush)?;
            Ok(started.elapsed())
        })?;
        self.latencies(name, &latencies);
        let calls = 100;
        let ready: Vec<Vec<Event>> = (0..calls).map(|_| maker.take(n)).collect();
        let (bytes, appended) = bytes_allocated(|| {
            ready.into_iter().try_for_each(|events| store.append(S::batch(events), None, flush).map(|_| ()))
        });
        appended?;
        let memory = name.replacen("honest/", "honest/memory/", 1);
        self.outcome.figure(memory, Figure::one(bytes as f64 / (calls * n) as f64));
        Ok(())
    }

    fn honest_queries<S: EventStore>(&mut self) -> Result<()> {
        let five = self.store::<S>(&mut Maker::new(FIVE_TYPES, 5), 2000)?;
        let ten = self.store::<S>(&mut Maker::new(FIVE_TYPES, 10), 2000)?;
        for case in query_cases() {
            let store = if case.never_hits { &ten } else { &five };
            self.both_ways(store, &format!("honest/query/{}", case.name), &case.query)?;
        }
        Ok(())
    }

    fn honest_reads<S: EventStore>(&mut self, store: &S, size: usize) -> Result<()> {
        let at = short(size as u64);
        for case in read_cases() {
            self.both_ways(store, &format!("honest/read/{}/{at}", case.name), &case.query)?;
        }
        self.read_last(store, "honest", size)
    }

    // ---- shared ----

    fn read_last<S: EventStore>(&mut self, store: &S, lane: &str, size: usize) -> Result<()> {
        let at = short(size as u64);
        let cases = [
            ("type", Query::of(&["OrderCreated"], &[])),
            ("tag", Query::of(&[], &["Region=US-West"])),
            ("all", Query::all()),
        ];
        for (name, query) in cases {
            let filter = S::filter(&query);
            let latencies = self.repeat(|| {
                let started = Instant::now();
                let answer = store.answer(&filter, Backward, Some(1))?;
                let elapsed = started.elapsed();
                ensure!(answer.events == 1, "the newest event of a {name} is missing");
                Ok(elapsed)
            })?;
            self.latencies(format!("{lane}/read_last/{name}/{at}"), &latencies);
        }
        Ok(())
    }

    fn collects<S: EventStore>(
        &mut self,
        store: &S,
        name: &str,
        query: &Query,
        direction: Direction,
    ) -> Result<()> {
        let filter = S::filter(query);
        let latencies = self.repeat(|| {
            let started = Instant::now();
            let found = store.collect(&filter, direction)?;
            let elapsed = started.elapsed();
            ensure!(!found.is_empty(), "{name} finds nothing");
            Ok(elapsed)
        })?;
        self.latencies(name, &latencies);
        Ok(())
    }

    /// Streams the matches ascending and descending in turn; also records the ratio of the medians and the
    /// bytes allocated for each event.
    fn both_ways<S: EventStore>(&mut self, store: &S, name: &str, query: &Query) -> Result<()> {
        let filter = S::filter(query);
        let (ascending, descending) =
            (store.answer(&filter, Forward, None)?, store.answer(&filter, Backward, None)?);
        ensure!(ascending.is_reverse_of(&descending), "{name}: {ascending}, backwards {descending}");
        self.outcome.digest(name, ascending);
        let timed = |direction, expected: Answer| -> Result<Duration> {
            let started = Instant::now();
            let answer = store.answer(&filter, direction, None)?;
            let elapsed = started.elapsed();
            ensure!(answer == expected, "{name}: two reads differ");
            Ok(elapsed)
        };
        let mut backward = Latencies::default();
        let forward = self.repeat(|| {
            backward.record(timed(Backward, descending)?);
            timed(Forward, ascending)
        })?;
        self.latencies(format!("{name}/ascending"), &forward);
        self.latencies(format!("{name}/descending"), &backward);
        if let (Some(forward), Some(backward)) = (forward.quantile_us(0.5), backward.quantile_us(0.5)) {
            self.outcome.figure(format!("{name}/desc_to_asc"), Figure::one(backward / forward));
        }
        if ascending.events > 0 {
            let (bytes, answer) = bytes_allocated(|| store.answer(&filter, Forward, None));
            answer?;
            let memory = name.replacen("honest/", "honest/memory/", 1);
            self.outcome.figure(memory, Figure::one(bytes as f64 / ascending.events as f64));
        }
        Ok(())
    }

    /// Runs `once` untimed, then until the time is over: at least 5 times, at most 2000.
    fn repeat(&mut self, mut once: impl FnMut() -> Result<Duration>) -> Result<Latencies> {
        once()?;
        let (begin, mut latencies) = (Instant::now(), Latencies::default());
        while latencies.count() < 5
            || (latencies.count() < 2000 && begin.elapsed().as_secs_f64() < self.seconds)
        {
            latencies.record(once()?);
        }
        Ok(latencies)
    }

    /// Records the mean, as in the report, with the quantiles.
    fn latencies(&mut self, name: impl Into<String>, latencies: &Latencies) {
        let mean = latencies.mean_us().unwrap_or_default();
        self.outcome.figure(name, Figure::one(mean).with(latencies));
    }

    fn new_dir(&mut self) -> Result<PathBuf> {
        self.stores += 1;
        let dir = self.dir.join(format!("store{}", self.stores));
        fs::create_dir(&dir)?;
        Ok(dir)
    }

    fn filled<S: EventStore>(&mut self, maker: &mut Maker, size: usize) -> Result<PathBuf> {
        let dir = self.new_dir()?;
        fill(&S::open(&dir)?, maker, size)?;
        Ok(dir)
    }

    fn store<S: EventStore>(&mut self, maker: &mut Maker, size: usize) -> Result<S> {
        let store = S::open(&self.new_dir()?)?;
        fill(&store, maker, size)?;
        Ok(store)
    }
}

fn fill<S: EventStore>(store: &S, maker: &mut Maker, size: usize) -> Result<()> {
    let mut left = size;
    while left > 0 {
        let n = left.min(FILL_BATCH);
        store.append(S::batch(maker.take(n)), None, Flush::Synced)?;
        left -= n;
    }
    ensure!(store.head()? == size as u64, "{size} events filled in, but the head is {}", store.head()?);
    store.settle()
}

/// The rebuilt state: the length of each student's latest payload.
#[derive(Default)]
struct Students {
    by_id: HashMap<String, usize>,
    bytes: usize,
}

impl Visitor for Students {
    fn event(&mut self, _position: u64, _kind: &str, data: &[u8]) {
        self.bytes = data.len();
    }

    fn tag(&mut self, tag: &str) {
        if let Some(id) = tag.strip_prefix("studentId=") {
            self.by_id.insert(id.to_owned(), self.bytes);
        }
    }
}
