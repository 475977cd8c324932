//! One transaction over events, documents, samples and rows is one commit, despite crashes.

use bson::doc;
use ropewalk::documents::Collection;
use ropewalk::documents::lang::Value as Bson;
use ropewalk::engine::{Background, Env};
use ropewalk::series::{Labels, SampleBatch, Samples, SeriesStore};
use ropewalk::tables::{ColumnDef, OwnedRow, Table, TableDef, Type};
use ropewalk::{
    AppendCondition, AppendOptions, Class, Database, Error, Event, EventStore, Isolation, Options, Query,
    Seq, Snapshot,
};
use ropewalk_vfs::FaultyVfs;

use crate::env;

/// A shop: orders as events and documents, its stock as a table, its turnover as a series.
struct Shop {
    db: Database,
    events: EventStore,
    orders: Collection,
    stock: Table,
    metrics: SeriesStore,
}

const STOCK: i64 = 5;

fn left_in(row: Option<OwnedRow>) -> i64 {
    row.unwrap().column("left").unwrap().as_integer().unwrap()
}

impl Shop {
    fn open(options: Options) -> Result<Self, Error> {
        let db = options.background(Background::Manual).open("/shop")?;
        let stock = match db.table("stock") {
            Ok(table) => table,
            Err(_) => {
                let table = TableDef::new("stock")
                    .column(ColumnDef::new("item", Type::TEXT))
                    .column(ColumnDef::new("left", Type::INT8).not_null())
                    .primary_key(["item"]);
                db.transact(Isolation::Serializable, 1, |tx| {
                    let table = tx.tables().create_table(table.clone())?;
                    tx.tables().insert_row(&table, &["rope".into(), STOCK.into()])?;
                    Ok::<_, Error>(table)
                })?
            }
        };
        Ok(Self {
            events: db.events("orders")?,
            orders: db.collection("orders")?,
            metrics: db.series("shop")?,
            stock,
            db,
        })
    }

    /// Sells one rope under an unused order number.
    fn sell(&self, order: i32) -> Result<(), Error> {
        let tag = format!("order:{order}");
        let new = AppendCondition::none_match(Query::from_tags([tag.clone()]));
        let document = bson::serialize_to_vec(&doc! { "_id": order, "item": "rope" }).unwrap();
        let mut turnover = SampleBatch::new();
        turnover.push(&Labels::new([("__name__", "sold")]).unwrap(), i64::from(order), 1.0);

        let mut tx = self.db.begin();
        let left = left_in(tx.tables().get(&self.stock, &["rope".into()])?);
        tx.tables().update(&self.stock, &["rope".into()], &[("left", (left - 1).into())])?;
        // An error of one model does not undo the writes of another; the caller drops the transaction.
        tx.documents().insert_one(&self.orders, &document)?;
        tx.append_samples(&self.metrics, &turnover)?;
        tx.append(&self.events, &[Event::new("Sold").tag(tag)], AppendOptions::condition(new))?;
        tx.commit().map(|_| ())
    }

    /// The number of orders in each model, at one snapshot.
    fn sold(&self, snapshot: &Snapshot) -> [i64; 4] {
        let events = snapshot.events(&self.events, &Query::all(), Default::default()).unwrap();
        let mut rows = snapshot.tables(&self.db);
        let mut documents = snapshot.documents(&self.db);
        let orders = (0..10).filter(|id| documents.get(&self.orders, Bson::Int32(*id)).unwrap().is_some());
        let at = snapshot.series(&self.metrics);
        let mut selection = at.select(&[], i64::MIN, i64::MAX).unwrap();
        let mut samples = Samples::default();
        while selection.next().is_some() {
            selection.samples(&mut samples).unwrap();
        }
        [
            events.count() as i64,
            orders.count() as i64,
            STOCK - left_in(rows.get(&self.stock, &["rope".into()]).unwrap()),
            samples.values.len() as i64,
        ]
    }

    fn now(&self) -> [i64; 4] {
        self.sold(&self.db.snapshot())
    }
}

#[test]
fn sale_commits_in_all_models_or_none() {
    let env = Env::memory();
    let shop = Shop::open(Options::new().env(env.clone())).unwrap();
    let before = shop.db.snapshot();
    shop.sell(1).unwrap();
    let seq = shop.db.seq();
    shop.sell(2).unwrap();
    assert_eq!(shop.db.seq().0, seq.0 + 1, "one transaction, one commit");
    assert_eq!((shop.sold(&before), shop.now()), ([0; 4], [2; 4]));

    // Rejected at once by the documents: the number is taken.
    assert!(shop.sell(2).is_err());
    // Rejected at commit by the events, the only model with this order.
    shop.events.append(&[Event::new("Reserved").tag("order:3")], None).unwrap();
    let error = shop.sell(3).unwrap_err();
    assert_eq!(error.class(), Class::Refused, "{error}");
    // Rejected because of the row: another transaction has sold one since.
    let mut tx = shop.db.begin();
    let left = left_in(tx.tables().get(&shop.stock, &["rope".into()]).unwrap());
    tx.tables().update(&shop.stock, &["rope".into()], &[("left", (left - 1).into())]).unwrap();
    tx.append(&shop.events, &[Event::new("Sold")], AppendOptions::default()).unwrap();
    shop.sell(4).unwrap();
    assert!(tx.commit().map(|_| ()).unwrap_err().is_conflict());
    // A reservation is not a sale and counts as an event only.
    let expected = [4, 3, 3, 3];
    assert_eq!(shop.now(), expected);

    shop.db.checkpoint().unwrap();
    shop.sell(5).unwrap();
    drop((before, shop));
    let shop = Shop::open(Options::new().env(env)).unwrap();
    assert_eq!(shop.now(), expected.map(|n| n + 1));
    assert!(shop.db.verify().unwrap().violations.is_empty());
}

#[test]
fn earlier_commit_is_read_in_all_models_while_memory_or_a_snapshot_holds_it() {
    let shop = Shop::open(Options::new().env(Env::memory())).unwrap();
    let sale = |order| {
        shop.sell(order).unwrap();
        shop.db.seq()
    };
    let sales: Vec<Seq> = (1..=4).map(sale).collect();
    let sold_at = |seq| shop.db.snapshot_at(seq).map(|snapshot| shop.sold(&snapshot));
    for (before, seq) in sales.iter().enumerate() {
        assert_eq!(sold_at(*seq).unwrap(), [before as i64 + 1; 4]);
    }
    let held = shop.db.begin_at(&shop.db.snapshot_at(sales[1]).unwrap(), Isolation::Snapshot);
    shop.db.checkpoint().unwrap();
    sale(5);
    assert_eq!(sold_at(sales[0]).unwrap_err().class(), Class::NotFound);
    assert_eq!(sold_at(sales[1]).unwrap(), [2; 4]);
    assert_eq!(held.snapshot().seq(), sales[1]);
    drop(held);
    assert_eq!(sold_at(sales[1]).unwrap_err().class(), Class::NotFound);
    assert_eq!(shop.now(), [5; 4]);
}

#[test]
fn power_cut_at_any_operation_leaves_complete_sales() {
    // Returns the number of sales acknowledged before the power failure.
    let work = |disk: &FaultyVfs| {
        let Ok(shop) = Shop::open(Options::new().env(env(disk))) else { return 0 };
        let sold = (1..=4)
            .take_while(|order| shop.sell(*order).is_ok() && (*order != 2 || shop.db.checkpoint().is_ok()));
        sold.count() as i64
    };
    let disk = FaultyVfs::new(1);
    assert_eq!(work(&disk), 4);
    let operations = disk.operations();
    assert!(operations > 40, "{operations}");
    for point in 1..=operations {
        let disk = FaultyVfs::new(point);
        disk.crash_at(point);
        let acknowledged = work(&disk);
        disk.crash();
        let shop = Shop::open(Options::new().env(env(&disk))).unwrap();
        let sold = shop.now();
        assert!(sold.iter().all(|n| *n == sold[0]), "cut at {point}: {sold:?}");
        // The sale after the last acknowledged one may also exist, and the one before a failed checkpoint.
        assert!(
            (acknowledged..=acknowledged + 1).contains(&sold[0]),
            "cut at {point}: {acknowledged}, {sold:?}"
        );
        shop.sell(9).unwrap();
        assert_eq!(shop.now(), sold.map(|n| n + 1));
    }
}
