//! Chapter 4: each sale writes an event, a document, a sample and a row in one transaction.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Instant;

use jiff::Timestamp;
use ropewalk::documents::{Collection, CollectionOptions, Find};
use ropewalk::events::ReadOptions;
use ropewalk::series::{Labels, Matcher, SampleBatch, Samples, SeriesStore};
use ropewalk::tables::{ColumnDef, OwnedRow, Table, TableDef, Type};
use ropewalk::{
    AppendCondition, AppendOptions, Database, Error, Event, EventStore, Isolation, Query, Snapshot,
};

use super::story::Story;
use super::{rate, took};
use crate::output::cell::thousands;
use crate::output::failure::Result;

const THREADS: usize = 8;
pub(super) const STOCK: i64 = 100;
/// More orders than there is stock, so that some transactions find nothing left.
const ORDERS: i64 = 120;
const ATTEMPTS: usize = 1000;
const ITEM: &str = "rope";

/// The metric that counts the sales of a shop.
pub(super) fn metric(shop: &str) -> String {
    format!("{shop}_sold")
}

/// The shop's name in all four models, and one of its orders.
pub(super) struct Sold {
    pub(super) shop: String,
    pub(super) order: i64,
}

/// One name in all four models: an event store, a collection, a metric and a table.
struct Shop {
    name: String,
    events: EventStore,
    orders: Collection,
    metrics: SeriesStore,
    stock: Table,
}

impl Shop {
    fn open(db: &Database) -> Result<Self> {
        let taken = db.event_stores();
        let mut names = std::iter::once("shop".to_owned()).chain((2u64..).map(|n| format!("shop{n}")));
        let name = names.find(|name| !taken.contains(name)).expect("there are more numbers than stores");
        let table = TableDef::new(&name)
            .column(ColumnDef::new("item", Type::TEXT))
            .column(ColumnDef::new("available", Type::INT8).not_null())
            .primary_key(["item"]);
        let stock = db.transact(Isolation::Serializable, 1, |tx| {
            let table = tx.tables().create_table(table.clone())?;
            tx.tables().insert_row(&table, &[ITEM.into(), STOCK.into()])?;
            Ok::<_, Error>(table)
        })?;
        let orders = db.collection(&name)?;
        orders.create(CollectionOptions::default())?;
        Ok(Self { events: db.events(&name)?, orders, metrics: db.series("default")?, stock, name })
    }

    /// Sells one item under a new order number. Returns false, and writes nothing, when none is left.
    fn sell(&self, db: &Database, order: i64, time_ms: i64) -> std::result::Result<bool, Error> {
        let tag = format!("order:{order}");
        let unused = AppendCondition::none_match(Query::from_tags([tag.clone()]));
        let document = bson::rawdoc! { "_id": order, "item": ITEM };
        let labels = Labels::new([("__name__", metric(&self.name).as_str())])?;
        let mut sold = SampleBatch::new();
        sold.push(&labels, time_ms, 1.0);
        db.transact(Isolation::Serializable, ATTEMPTS, |tx| {
            let left = available(tx.tables().get(&self.stock, &[ITEM.into()])?)?;
            if left == 0 {
                return Ok(false);
            }
            tx.tables().update(&self.stock, &[ITEM.into()], &[("available", (left - 1).into())])?;
            tx.documents().insert_one(&self.orders, document.as_bytes())?;
            tx.append_samples(&self.metrics, &sold)?;
            let event = Event::new("Sold").tag(tag.clone());
            tx.append(&self.events, &[event], AppendOptions::condition(unused.clone()))?;
            Ok(true)
        })
    }
}

fn available(row: Option<OwnedRow>) -> std::result::Result<i64, Error> {
    Ok(row.map(|row| row.get_as::<i64>("available")).transpose()?.unwrap_or(0))
}

/// Samples of the shop's metric at the snapshot.
fn samples(snapshot: &Snapshot, shop: &Shop) -> std::result::Result<i64, Error> {
    let metric = Matcher::equal("__name__", metric(&shop.name));
    let at = snapshot.series(&shop.metrics);
    let mut selection = at.select(&[metric], i64::MIN, i64::MAX)?;
    let mut samples = Samples::default();
    while selection.next().is_some() {
        selection.samples(&mut samples)?;
    }
    Ok(samples.values.len() as i64)
}

/// Sells the whole stock on several threads, and compares the four models afterwards.
pub(super) fn sell_out(story: &mut Story, db: &Database) -> Result<Sold> {
    story.chapter("One transaction over four models")?;
    story.say(&format!(
        "{THREADS} threads sell {STOCK} ropes. Each sale takes one from the stock (a row), stores the order (a document), \
         counts it (a sample) and records it (an event, on the condition that its order number is unused): one \
         transaction, one log record, one sync.",
    ))?;
    let shop = Shop::open(db)?;
    let before = db.seq().0;
    let begin_ms = Timestamp::now().as_millisecond();
    let next = AtomicI64::new(0);
    // Not every order is sold: which ones find the stock empty depends on the threads.
    let an_order = AtomicI64::new(0);
    let started = Instant::now();
    let work = || -> std::result::Result<(i64, i64), Error> {
        let (mut sold, mut none_left) = (0, 0);
        loop {
            let order = next.fetch_add(1, Relaxed);
            if order >= ORDERS {
                return Ok((sold, none_left));
            }
            if shop.sell(db, order, begin_ms + order)? {
                an_order.store(order, Relaxed);
                sold += 1;
            } else {
                none_left += 1;
            }
        }
    };
    let results: Vec<std::result::Result<(i64, i64), Error>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a thread of the demo does not panic"))
            .collect()
    });
    let duration = started.elapsed();
    let (mut sold, mut none_left) = (0, 0);
    for result in results {
        let (mine, late) = result?;
        sold += mine;
        none_left += late;
    }
    story.say(&format!("{sold} sales in {}; {none_left} orders found the stock empty.", took(duration)))?;
    compare(story, db, &shop, sold, before)?;
    story.figure("sales over four models, 8 threads", rate(sold.unsigned_abs(), "transactions", duration));
    Ok(Sold { shop: shop.name, order: an_order.into_inner() })
}

/// Checks that events, documents, samples and the row agree, and that each sale was one commit.
fn compare(story: &mut Story, db: &Database, shop: &Shop, sold: i64, before: u64) -> Result {
    let snapshot = db.snapshot();
    let events = snapshot.events(&shop.events, &Query::all(), ReadOptions::default())?.count() as i64;
    let documents = snapshot.documents(db).count(&shop.orders, &Find::default())? as i64;
    let samples = samples(&snapshot, shop)?;
    let left = available(snapshot.tables(db).get(&shop.stock, &[ITEM.into()]).map_err(Error::from)?)?;
    story.check(
        [events, documents, samples, STOCK - left] == [sold; 4] && sold == STOCK,
        &format!("{events} events, {documents} documents, {samples} samples, {left} in stock: all four models agree"),
    )?;
    let commits = db.seq().0 - before;
    story.check(
        commits == sold.unsigned_abs(),
        &format!("{} commits for {sold} sales: one for each, none for the others", thousands(commits)),
    )
}
