//! Orders of an application: an event, a document, a row of stock and a sample each, and a read model.
//!
//! ```text
//! ours                  one transaction ─▶ commit ─▶ declared projection ─▶ table board
//! outbox                one transaction with a row of the outbox ─▶ relay, which polls ─▶ table board
//! dual writes           PostgreSQL, then MongoDB (orders, board) and Prometheus
//! ```

use crate::harness::random::SplitMix;

/// Products in stock.
pub const PRODUCTS: u64 = 10_000;
/// Pieces of each product.
pub const PIECES: u64 = 1_000_000;
/// Type of the events.
pub const EVENT: &str = "OrderPlaced";
/// The statement of the declared projection.
pub const PROJECTION: &str = "INSERT INTO board VALUES (event.json->>'id', (event.json->>'cents')::bigint)";
/// Definitions of the tables.
pub const TABLES: [&str; 2] = [
    "CREATE TABLE stock (sku bigint PRIMARY KEY, n bigint NOT NULL)",
    "CREATE TABLE board (id text PRIMARY KEY, cents bigint NOT NULL)",
];
/// Queries of: events, rows of the read model, their cents, pieces in stock, documents, samples.
pub const TOTALS: [&str; 6] = [
    "SELECT count(*) FROM events.shop",
    "SELECT count(*) FROM board",
    "SELECT sum(cents)::bigint FROM board",
    "SELECT sum(n)::bigint FROM stock",
    "SELECT count(*) FROM \"default\".orders",
    "SELECT count(*) FROM metrics.order_cents",
];

const NOTE_BYTES: usize = 100;

/// An order.
#[derive(Debug, Clone)]
pub struct Order {
    /// Its identifier.
    pub id: String,
    /// Price.
    pub cents: i64,
    /// Time of its sample, milliseconds since 1970.
    pub at_ms: i64,
    client: u64,
    sku: u64,
    note: String,
}

/// The orders of one client.
#[derive(Debug)]
pub struct Orders {
    client: u64,
    begin_ms: i64,
    random: SplitMix,
    /// Number of orders so far.
    pub count: u64,
}

impl Orders {
    /// The orders of the client with this number; their samples begin at `begin_ms`, a millisecond apart.
    pub fn new(client: u64, begin_ms: i64) -> Self {
        Self { client, begin_ms, random: SplitMix::new(5000 + client), count: 0 }
    }
}

impl Iterator for Orders {
    type Item = Order;

    fn next(&mut self) -> Option<Order> {
        let number = self.count;
        self.count += 1;
        Some(Order {
            id: format!("o-{}-{number}", self.client),
            cents: 100 + self.random.below(10_000).cast_signed(),
            at_ms: self.begin_ms + number.cast_signed(),
            client: self.client,
            sku: self.random.below(PRODUCTS),
            note: (0..NOTE_BYTES).map(|_| char::from(b'a' + self.random.below(26) as u8)).collect(),
        })
    }
}

impl Order {
    /// The body of our POST /v1/transactions.
    pub fn transaction(&self) -> String {
        let Self { id, cents, at_ms, client, sku, note } = self;
        let append = format!(
            r#"{{"append":{{"store":"shop","events":[{{"type":"{EVENT}","tags":["order:{id}"],"data":{{"id":"{id}","sku":{sku},"cents":{cents}}}}}]}}}}"#
        );
        let insert = format!(
            r#"{{"documents":{{"collection":"orders","insert":{{"_id":"{id}","sku":{sku},"cents":{cents},"note":"{note}"}}}}}}"#
        );
        let take = format!(
            r#"{{"sql":{{"sql":"UPDATE stock SET n = n - 1 WHERE sku = $1","params":[{sku}],"expect":1}}}}"#
        );
        let sample = format!(
            r#"{{"samples":{{"series":[{{"labels":{{"__name__":"order_cents","client":"{client}"}},"samples":[[{at_ms},{cents}]]}}]}}}}"#
        );
        format!(r#"{{"operations":[{append},{insert},{take},{sample}]}}"#)
    }

    /// The body of the peers' POST /orders.
    pub fn json(&self) -> String {
        let Self { id, cents, at_ms, client, sku, note } = self;
        format!(
            r#"{{"id":"{id}","client":{client},"sku":{sku},"cents":{cents},"at_ms":{at_ms},"note":"{note}"}}"#
        )
    }
}

/// Our request for the price of an order in the read model.
pub fn board_query(id: &str) -> String {
    format!(
        r#"{{"operations":[{{"sql":{{"sql":"SELECT cents FROM board WHERE id = $1","params":["{id}"]}}}}]}}"#
    )
}

/// The price in our response; `None` if the read model does not have the order.
pub fn board_cents(response: &str) -> Option<i64> {
    let (_, rows) = response.split_once(r#""rows":[["#)?;
    rows.split(']').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_json_with_the_same_order() {
        let order = Orders::new(3, 1_000).nth(1).unwrap();
        assert_eq!((order.id.as_str(), order.at_ms), ("o-3-1", 1_001));
        let ours: serde_json::Value = serde_json::from_str(&order.transaction()).unwrap();
        let theirs: serde_json::Value = serde_json::from_str(&order.json()).unwrap();
        let document = &ours["operations"][1]["documents"]["insert"];
        assert_eq!(document["cents"], theirs["cents"]);
        assert_eq!(document["note"], theirs["note"]);
        assert_eq!(ours["operations"][2]["sql"]["params"][0], theirs["sku"]);
        let query: serde_json::Value = serde_json::from_str(&board_query(&order.id)).unwrap();
        assert_eq!(query["operations"][0]["sql"]["params"][0], "o-3-1");
    }

    #[test]
    fn price_is_read_only_from_a_row() {
        let response = |rows: &str| {
            format!(r#"{{"seq":7,"results":[{{"columns":[{{"name":"cents"}}],"rows":[{rows}]}}]}}"#)
        };
        assert_eq!(board_cents(&response("[1999]")), Some(1999));
        assert_eq!(board_cents(&response("")), None);
    }
}
