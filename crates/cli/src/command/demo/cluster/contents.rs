//! The contents of a node, to be compared with those of others.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::{Value, json};

use super::nodes::{Node, rows};
use crate::output::failure::{Exit, Failure, Result};

const EVENTS: &str = "/v1/stores/shop/events";
const ROWS: &str = "SELECT item, sold FROM stock ORDER BY sold DESC, item";
const DOCUMENTS: &str = "SELECT _id, doc FROM shop.orders ORDER BY _id";
const SAMPLES: &str = "SELECT time, buyer, value FROM metrics.ropes_sold ORDER BY time, buyer";

/// Number of the newest commit, which contains every sale that was acknowledged before, by any node.
pub(super) fn newest(node: &Node) -> Result<u64> {
    let response = node.read(EVENTS, &[("ropewalk-read", "linearizable")], None)?;
    let missing = || Failure::new(Exit::Internal, format!("{}: no Ropewalk-Seq", node.name), "");
    response.seq.ok_or_else(missing)
}

/// All that the demo has written to all models, of one commit.
#[derive(PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) seq: u64,
    pub(super) orders: HashSet<String>,
    pub(super) events: u64,
    /// Ropes sold, by the row that counts them.
    pub(super) sold: u64,
    pub(super) documents: u64,
    pub(super) samples: u64,
    /// The contents as text.
    text: String,
}

impl Contents {
    /// Reads the contents of a node itself, with the commit `seq`. Returns `None` if there was a later commit.
    pub(super) fn read(node: &Node, seq: u64) -> Result<Option<Self>> {
        let number = seq.to_string();
        let header = ("ropewalk-seq", number.as_str());
        let sql = |sql: &str| node.read("/v1/sql", &[header], Some(&json!({ "sql": sql }).to_string()));
        let events = node.read(EVENTS, &[header], None)?;
        let (stock, documents, samples) = (sql(ROWS)?, sql(DOCUMENTS)?, sql(SAMPLES)?);
        let all = [&events, &stock, &documents, &samples];
        if all.iter().any(|response| response.seq != Some(seq)) {
            return Ok(None);
        }
        let list = events.body.get("events").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let order =
            |event: &Value| Some(event.pointer("/tags/0")?.as_str()?.strip_prefix("order:")?.to_owned());
        Ok(Some(Self {
            seq,
            orders: list.iter().filter_map(order).collect(),
            events: list.len() as u64,
            sold: rows(&stock).first().and_then(|row| row.get(1)?.as_u64()).unwrap_or_default(),
            documents: rows(&documents).len() as u64,
            samples: rows(&samples).len() as u64,
            text: all.map(|response| response.body.to_string()).join("\n"),
        }))
    }

    /// A hash of the contents, to look at: equality compares the contents themselves.
    pub(super) fn digest(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.text.hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    }
}
