//! Projections of an event store into the table `t (k, n)`, in Rust and declared by SQL.
//!
//! ```text
//! events stored ─▶ catch-up ─▶ rebuild next to the live table ─▶ caught up again ─▶ table compared with the events
//!                  └──────────── one thread appends live events ┘
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use ropewalk::events::SequencedEventRef;
use ropewalk::projections::{
    ApplyError, MaterializedProjection, Output, ProjectionOptions, ProjectionRun, Projections, RebuildMode,
};
use ropewalk::tables::{ColumnDef, TableDef, Type, Value};
use ropewalk::{Database, Event, EventStore, Options, Query};
use ropewalk_bench::harness::worker::{Figure, Latencies, Outcome, Task};
use ropewalk_bench::workloads::projections::plan::STATEMENTS;
use ropewalk_projector::{Runner, RunnerOptions};
use ropewalk_sql::Session;
use serde::Deserialize;

const MEMORY_BYTES: u64 = 3 << 30;
const TYPE: &str = "Placed";
const NAME: &str = "p";
/// Events of one append before the clock starts.
const CHUNK: u64 = 10_000;
/// The number in each live event.
const LIVE: i64 = 3;
/// Time from one live commit to the next.
const PAUSE: Duration = Duration::from_millis(1);
/// Between two checks whether a rebuild is complete.
const CHECK: Duration = Duration::from_millis(2);
/// Events of one commit, as in the runner of declared projections.
const BATCH: usize = 5_000;

/// The data of an event.
#[derive(Deserialize)]
struct Placed {
    n: i64,
}

/// An event with the number `n`.
fn placed(n: i64) -> Event {
    Event::new(TYPE).data(format!(r#"{{"kind":"rope","n":{n}}}"#))
}

/// A row with the number of each event.
struct Numbers;

impl MaterializedProjection for Numbers {
    fn query(&self) -> Query {
        Query::from_types([TYPE])
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::table("t")]
    }

    fn prepare(&self, run: &mut ProjectionRun<'_>) -> Result<(), ApplyError> {
        let int = |name: &str| ColumnDef::new(name, Type::INT8);
        let name = run.name("t")?;
        run.tx().tables().create_table(
            TableDef::new(name).column(int("k")).column(int("n").not_null()).primary_key(["k"]),
        )?;
        Ok(())
    }

    fn apply(&self, run: &mut ProjectionRun<'_>, event: &SequencedEventRef<'_>) -> Result<(), ApplyError> {
        let Placed { n } = serde_json::from_slice(event.data())?;
        let table = run.table("t")?;
        let row = [Value::Int8(event.position.0.cast_signed()), Value::Int8(n)];
        run.tx().tables().insert_row(&table, &row)?;
        Ok(())
    }
}

/// Stored events, and the sum of their numbers.
struct Store {
    db: Database,
    events: EventStore,
    sum: i64,
}

impl Store {
    fn fill(task: &Task) -> Result<Self> {
        let db = Options::new().memory_budget(MEMORY_BYTES).log_retention(0).open(&task.dir)?;
        let events = db.events("shop")?;
        let mut sum = 0;
        for first in (0..task.rows).step_by(CHUNK as usize) {
            let numbers = (first..task.rows.min(first + CHUNK)).map(|i| (i % 10).cast_signed());
            let chunk: Vec<Event> = numbers.inspect(|n| sum += n).map(placed).collect();
            events.append(&chunk, None)?;
        }
        Ok(Self { db, events, sum })
    }

    /// Runs `work` while live events are appended, one in a commit. Figures of the phase: events per second,
    /// and the 99th percentile of the live commits.
    fn during(
        &mut self,
        outcome: &mut Outcome,
        phase: &str,
        work: impl FnOnce(&Database) -> Result<u64>,
    ) -> Result<()> {
        let stop = AtomicBool::new(false);
        let append = || -> Result<Latencies> {
            let (mut latencies, mut due) = (Latencies::default(), Instant::now());
            while !stop.load(Relaxed) {
                let started = Instant::now();
                self.events.append(&[placed(LIVE)], None)?;
                latencies.record(started.elapsed());
                due += PAUSE;
                thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            Ok(latencies)
        };
        let (rate, latencies) = thread::scope(|scope| -> Result<(f64, Latencies)> {
            let live = scope.spawn(append);
            let started = Instant::now();
            let done = work(&self.db);
            let seconds = started.elapsed().as_secs_f64();
            stop.store(true, Relaxed);
            let latencies = live.join().ok().context("the live writer panicked")??;
            Ok((done? as f64 / seconds, latencies))
        })?;
        self.sum += LIVE * latencies.count().cast_signed();
        outcome.figure(phase, Figure::one(rate));
        let p99 = latencies.quantile_us(0.99).unwrap_or_default() / 1e3;
        outcome.figure(format!("{phase}/live"), Figure::one(p99).with(&latencies));
        Ok(())
    }

    fn projections(&self) -> Result<Projections> {
        let options = ProjectionOptions {
            batch_events: BATCH,
            rebuild_batch_events: BATCH,
            ..ProjectionOptions::default()
        };
        Ok(self.db.projections_with("shop", options)?)
    }

    /// Fails unless the rows are those of `rows` events and their numbers sum up to `sum`.
    fn check(&self, rows: Option<u64>, sum: i64) -> Result<()> {
        let mut session = Session::new(self.db.clone());
        let answer = session.execute("SELECT count(*), sum(n)::bigint FROM t", &[])?;
        let row = answer.rows.first().map(|row| row.iter().map(Value::as_integer).collect::<Vec<_>>());
        let Some([Some(count), Some(total)]) = row.as_deref() else {
            return Err(anyhow!("no rows: {row:?}"));
        };
        ensure!(*total == sum, "the numbers sum up to {total} instead of {sum}");
        ensure!(rows.is_none_or(|rows| rows.cast_signed() == *count), "{count} rows instead of {rows:?}");
        Ok(())
    }

    fn head(&self) -> Result<u64> {
        Ok(self.events.head()?.map_or(0, |head| head.0))
    }
}

/// The projection as code of the application.
pub(crate) fn rust(task: &Task) -> Result<Outcome> {
    let mut store = Store::fill(task)?;
    let projections = store.projections()?;
    projections.register(NAME, Arc::new(Numbers))?;
    let mut outcome = Outcome::default();
    store.during(&mut outcome, "catch_up", |_| Ok(projections.catch_up(NAME)?.applied))?;
    let following = projections.start();
    store.during(&mut outcome, "rebuild", |_| {
        let rebuilt = projections.rebuild(NAME, RebuildMode::ForceFullRebuild)?.context("no rebuild")?;
        ensure!(rebuilt.finished, "the rebuild was interrupted");
        Ok(rebuilt.applied)
    })?;
    if let Some((_, error)) = following.stop().into_iter().next() {
        return Err(error.into());
    }
    projections.catch_up(NAME)?;
    store.check(Some(store.head()?), store.sum)?;
    Ok(outcome)
}

/// The declared projection with the statement of the task.
pub(crate) fn declared(task: &Task) -> Result<Outcome> {
    let (name, _, statement) = STATEMENTS.get(task.batch).context("no such statement")?;
    let mut store = Store::fill(task)?;
    let mut session = Session::new(store.db.clone());
    session.execute("CREATE TABLE t (k bigint PRIMARY KEY, n bigint NOT NULL)", &[])?;
    let declare = format!("CREATE PROJECTION {NAME} FROM EVENTS shop ON '{TYPE}' DO ({statement})");
    session.execute(&declare, &[])?;
    // Its handler is not registered here: this reads checkpoints and generations.
    let (projections, query) = (store.projections()?, Query::from_types([TYPE]));
    let status = |db: &Database| projections.status_at(&db.snapshot(), NAME, &query);
    let options = || RunnerOptions {
        batch_events: BATCH,
        report: Arc::new(|name: &str, error: &dyn std::error::Error| eprintln!("{name}: {error}")),
        ..RunnerOptions::default()
    };

    let mut outcome = Outcome::default();
    store.during(&mut outcome, "catch_up", |db| {
        Runner::new(db.clone(), options()).catch_up()?;
        Ok(status(db)?.checkpoint.context("no checkpoint")?.0)
    })?;
    session.execute(&format!("ALTER PROJECTION {NAME} REBUILD"), &[])?;
    store.during(&mut outcome, "rebuild", |db| {
        let running = Runner::new(db.clone(), options()).start()?;
        let rebuilt = loop {
            let status = status(db)?;
            ensure!(status.failure.is_none(), "{:?}", status.failure);
            match status.checkpoint {
                Some(checkpoint) if status.rebuild.is_none() && status.generation > Some(1) => {
                    break checkpoint.0;
                }
                _ => thread::sleep(CHECK),
            }
        };
        running.stop();
        Ok(rebuilt)
    })?;
    Runner::new(store.db.clone(), options()).catch_up()?;
    let head = store.head()?;
    match *name {
        "json" => store.check(Some(head), store.sum)?,
        "insert" => store.check(Some(head), head.cast_signed())?,
        _ => store.check(None, head.cast_signed())?,
    }
    Ok(outcome)
}
