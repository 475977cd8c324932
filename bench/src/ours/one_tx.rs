//! Transactions over four models and over one, through the API that an application uses.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ropewalk::documents::lang::{Doc, Filter, Options as Language, Update, Value as Bson, Writer};
use ropewalk::documents::{Collection, UpdateSpec};
use ropewalk::series::{Labels, SampleBatch, SeriesStore};
use ropewalk::tables::{ColumnDef, Table, TableDef, Type, Value};
use ropewalk::{AppendOptions, Database, Durability, Event, EventStore, Isolation, Options};
use ropewalk_bench::harness::worker::{Latencies, Outcome, Task};
use ropewalk_bench::workloads::one_tx::input::{Client, EVENT, Kind, SERIES, TOTALS, Totals, Writes};
use ropewalk_bench::workloads::one_tx::rates::Rates;
use ropewalk_sql::Session;

const MEMORY_BYTES: u64 = 3 << 30;
const ATTEMPTS: usize = 100;
/// Before the first pass, for each kind.
const WARM_UP: Duration = Duration::from_millis(50);
/// Documents of one insert.
const CHUNK: usize = 1_000;

/// Kinds in turn, in passes of `--seconds` in all for each kind.
pub(crate) fn run(task: &Task) -> Result<Outcome> {
    let shop = Shop::open(task)?;
    let count = task.threads as u64;
    let labels = |client: u64| -> Result<Vec<Labels>> {
        (0..SERIES).map(|n| Ok(Labels::new(Writes::labels(client, n))?)).collect()
    };
    let mut clients = (0..count)
        .map(|client| Ok((Client::new(client, count, task.rows), labels(client)?)))
        .collect::<Result<Vec<(Client, Vec<Labels>)>>>()?;
    for kind in Kind::ALL {
        shop.pass(kind, &mut clients, WARM_UP)?;
    }
    let mut rates = Rates::default();
    for _ in 0..task.passes {
        for kind in Kind::ALL {
            let (rate, latencies) =
                shop.pass(kind, &mut clients, Duration::from_secs_f64(task.seconds / task.passes as f64))?;
            rates.add(kind, rate, &latencies);
        }
    }
    let mut written = Totals::default();
    clients.iter().for_each(|(client, _)| written += client.written);
    let stored = shop.totals()?;
    ensure!(stored == written, "{written:?} were acknowledged, {stored:?} are stored");
    Ok(rates.outcome())
}

/// An event store, a collection, a table and a series store.
struct Shop {
    db: Database,
    durability: Durability,
    events: EventStore,
    carts: Collection,
    stock: Table,
    metrics: SeriesStore,
}

fn absent() -> ropewalk::Error {
    ropewalk::Error::Invalid("no such document or row".into())
}

fn document(key: i64, n: i64, note: &str) -> Vec<u8> {
    let mut out = Writer::new();
    out.put("_id", Bson::Int64(key));
    out.put("n", Bson::Int64(n));
    out.put("note", Bson::String(note));
    out.finish().into_bytes()
}

impl Shop {
    fn open(task: &Task) -> Result<Self> {
        let db = Options::new().memory_budget(MEMORY_BYTES).log_retention(0).open(&task.dir)?;
        let int = |name: &str| ColumnDef::new(name, Type::INT8).not_null();
        let def = TableDef::new("stock").column(int("id")).column(int("n"));
        let def = def.column(ColumnDef::new("note", Type::TEXT).not_null()).primary_key(["id"]);
        let mut tx = db.begin();
        let stock = tx.tables().create_table(def)?;
        tx.commit()?;
        let keys = task.rows.cast_signed();
        let mut load = db.tables().load(&stock)?;
        (0..keys).try_for_each(|id| load.row(&[id.into(), 0_i64.into(), "".into()]))?;
        load.finish()?;
        let carts = db.collection("carts")?;
        let documents: Vec<Vec<u8>> = (0..keys).map(|key| document(key, 0, "")).collect();
        for some in documents.chunks(CHUNK) {
            let done = carts.insert_many(some, true, Durability::Buffered)?;
            ensure!(done.errors.is_empty(), "{:?}", done.errors);
        }
        let durability = if task.durable { Durability::Sync } else { Durability::Buffered };
        let (events, metrics) = (db.events("shop")?, db.series("default")?);
        Ok(Self { db, durability, events, carts, stock, metrics })
    }

    /// Transactions of one kind by all clients for `time`: their rate and latencies.
    fn pass(
        &self,
        kind: Kind,
        clients: &mut [(Client, Vec<Labels>)],
        time: Duration,
    ) -> Result<(f64, Latencies)> {
        let begin = Instant::now();
        let one = |client: &mut Client, labels: &[Labels]| -> Result<Latencies> {
            let mut latencies = Latencies::default();
            while begin.elapsed() < time {
                let writes = client.next(kind);
                let started = Instant::now();
                self.commit(&writes, labels)?;
                latencies.record(started.elapsed());
            }
            Ok(latencies)
        };
        let mut all = Latencies::default();
        thread::scope(|scope| -> Result<()> {
            let one = &one;
            let threads: Vec<_> =
                clients.iter_mut().map(|(client, labels)| scope.spawn(move || one(client, labels))).collect();
            for thread in threads {
                all.merge(&thread.join().ok().context("a client panicked")??);
            }
            Ok(())
        })?;
        Ok((all.count() as f64 / begin.elapsed().as_secs_f64(), all))
    }

    fn commit(&self, writes: &Writes, labels: &[Labels]) -> Result<()> {
        let tag = || format!("client:{}", writes.client);
        let event = writes.event.as_ref().map(|text| [Event::new(EVENT).tag(tag()).data(text.as_str())]);
        let replacement = |(n, text): &(i64, String)| -> Result<UpdateSpec> {
            let document = document(writes.key, *n, text);
            let update = Update::parse(Bson::Document(Doc::check(&document)?), None, &Language::default())?;
            Ok(UpdateSpec::new(Filter::equals("_id", Bson::Int64(writes.key)), update))
        };
        let replacement = writes.document.as_ref().map(replacement).transpose()?;
        let mut samples = SampleBatch::new();
        for labels in labels.iter().filter(|_| !writes.times.is_empty()) {
            let mut series = samples.series(labels);
            for time in &writes.times {
                series.push(*time, 1.0);
            }
        }
        self.db.transact_with(Isolation::Serializable, self.durability, ATTEMPTS, |tx| {
            if let Some(event) = &event {
                tx.append(&self.events, event, AppendOptions::default())?;
            }
            if let Some(spec) = &replacement
                && tx.documents().update_one(&self.carts, spec)?.matched != 1
            {
                return Err(absent());
            }
            if let Some(text) = &writes.row {
                let mut tables = tx.tables();
                let row = tables.get(&self.stock, &[Value::Int8(writes.key)])?.ok_or_else(absent)?;
                let n = row.get(1)?.as_integer().unwrap_or_default();
                tables
                    .update_row(&row, &[("n", Value::Int8(n + 1)), ("note", Value::text(text.as_str()))])?;
            }
            if !samples.is_empty() {
                tx.append_samples(&self.metrics, &samples)?;
            }
            Ok::<_, ropewalk::Error>(())
        })?;
        Ok(())
    }

    /// The writes that the database has.
    fn totals(&self) -> Result<Totals> {
        let mut session = Session::new(self.db.clone());
        let mut totals = Totals::default();
        for (total, query) in totals.0.iter_mut().zip(TOTALS) {
            let answer = session.execute(query, &[])?;
            let value = answer.rows.first().and_then(|row| row.first()).and_then(Value::as_integer);
            *total = value.with_context(|| format!("no number: {query}"))?;
        }
        Ok(totals)
    }
}
