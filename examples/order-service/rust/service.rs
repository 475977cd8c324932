//! Orders: placed, paid and shipped. The event of a command and its sample are one commit; the table `board` and
//! the e-mails follow from the events, see `readers`.

use std::collections::BTreeMap;

use ropewalk::events::{FromEvent, Projection, QueryItem, typed_projection};
use ropewalk::promql::{self, Sample, Value};
use ropewalk::series::{Labels, SampleBatch};
use ropewalk::tables::KeyRange;
use ropewalk::{Database, Error, Event, Query};

/// The store of the events.
pub(crate) const STORE: &str = "shop";

#[rustfmt::skip]
#[derive(Debug, Clone, PartialEq, Event)]
pub(crate) enum Shop {
    StockAdded { #[event(tag)] sku: String, n: u32 },
    OrderPlaced { #[event(tag)] order: String, #[event(tag)] sku: String, n: u32, cents: u32, #[event(personal)] email: String },
    OrderPaid { #[event(tag)] order: String },
    OrderShipped { #[event(tag)] order: String },
}

/// A rule of the shop does not allow a command, or the database failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShopError {
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Database(Error),
}

impl<E: Into<Error>> From<E> for ShopError {
    fn from(error: E) -> Self {
        Self::Database(error.into())
    }
}

/// The result of a command. Each decides on the current events, and again if these change meanwhile.
pub(crate) type Outcome = Result<(), ShopError>;

/// Units of a product that are left.
fn stock(sku: &str) -> impl Projection<State = i64> {
    let query = QueryItem::new(["StockAdded", "OrderPlaced"], [format!("sku:{sku}")]);
    typed_projection(Query::from_items([query]), 0, |left: &mut i64, event| match event {
        Shop::StockAdded { n, .. } => *left += i64::from(n),
        Shop::OrderPlaced { n, .. } => *left -= i64::from(n),
        Shop::OrderPaid { .. } | Shop::OrderShipped { .. } => {}
    })
}

/// State of an order, if it exists.
fn state(order: &str) -> impl Projection<State = Option<&'static str>> {
    typed_projection(Shop::tagged([format!("order:{order}")]), None, |state, event| match event {
        Shop::OrderPlaced { .. } => *state = Some("placed"),
        Shop::OrderPaid { .. } => *state = Some("paid"),
        Shop::OrderShipped { .. } => *state = Some("shipped"),
        Shop::StockAdded { .. } => {}
    })
}

pub(crate) fn add_stock(db: &Database, sku: &str, n: u32) -> Result<(), Error> {
    let shop = db.events(STORE)?;
    db.run(|tx| tx.publish(&shop, &[Shop::StockAdded { sku: sku.to_owned(), n }])).map(drop)
}

/// Places an order, unless it exists or the stock is too small.
pub(crate) fn place(db: &Database, order: &str, sku: &str, n: u32, cents: u32, email: &str) -> Outcome {
    let (shop, metrics) = (db.events(STORE)?, db.series("default")?);
    db.run(|tx| {
        // The queries of these models are the condition of the commit: other products do not conflict.
        let (left, found) = tx.decision(&shop, &(stock(sku), state(order)))?;
        if found.is_some() {
            return Err(ShopError::Refused(format!("order {order} exists")));
        }
        if left < i64::from(n) {
            return Err(ShopError::Refused(format!("{left} of {sku} left, {n} ordered")));
        }
        let mut turnover = SampleBatch::new();
        let labels = Labels::new([("__name__", "order_cents"), ("sku", sku), ("order", order)])?;
        turnover.push(&labels, db.engine().env().clock.wall_micros() / 1_000, f64::from(cents));
        tx.append_samples(&metrics, &turnover)?;
        let (order, sku, email) = (order.to_owned(), sku.to_owned(), email.to_owned());
        Ok(tx.publish(&shop, &[Shop::OrderPlaced { order, sku, n, cents, email }])?)
    })?;
    Ok(())
}

pub(crate) fn pay(db: &Database, order: &str) -> Outcome {
    advance(db, order, "placed", &Shop::OrderPaid { order: order.to_owned() })
}

pub(crate) fn ship(db: &Database, order: &str) -> Outcome {
    advance(db, order, "paid", &Shop::OrderShipped { order: order.to_owned() })
}

fn advance(db: &Database, order: &str, from: &str, event: &Shop) -> Outcome {
    let shop = db.events(STORE)?;
    db.run(|tx| match tx.decision(&shop, &state(order))? {
        Some(state) if state == from => Ok(tx.publish(&shop, [event])?),
        state => Err(ShopError::Refused(format!("order {order} is {}", state.unwrap_or("unknown")))),
    })?;
    Ok(())
}

/// The state of each order, as of the last batch of the board.
pub(crate) fn board(db: &Database) -> Result<BTreeMap<String, String>, ShopError> {
    let rows = db.snapshot().tables(db).collect(&db.table("board")?, &KeyRange::all(), false, usize::MAX)?;
    rows.iter().map(|row| Ok((row.get_as("id")?, row.get_as("state")?))).collect()
}

/// The revenue of the last day by product, in cents.
pub(crate) fn revenue(db: &Database) -> Result<BTreeMap<String, f64>, Box<dyn std::error::Error>> {
    let query = promql::Query::parse("sum by (sku) (sum_over_time(order_cents[1d]))", Default::default())?;
    let (metrics, now_ms) = (db.series("default")?, db.engine().env().clock.wall_micros() / 1_000);
    let answer = query.instant(&db.snapshot().metrics(&metrics), now_ms, &|| None)?;
    let Value::Vector(rows) = answer.value else { return Ok(BTreeMap::new()) };
    let cents = |sample| if let Sample::Float(cents) = sample { cents } else { 0.0 };
    Ok(rows.into_iter().map(|(labels, sum)| (labels.get("sku").to_owned(), cents(sum))).collect())
}
