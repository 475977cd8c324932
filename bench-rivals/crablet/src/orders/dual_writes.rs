//! The event and the stock are one transaction of PostgreSQL. Then the order, the read model and the sample are
//! written to MongoDB and Prometheus, at the same time.
//!
//! A crash after the first write loses the others: no record says that they are missing.

use anyhow::{Context, Result, ensure};
use bson::doc;
use ropewalk_crablet_sql::pool::Pool;

use crate::mongo::Mongo;
use crate::prometheus::Prometheus;
use crate::{Order, Totals};

const CONNECTIONS: usize = 20;

const PLACE: &str = "
    WITH event AS (
        INSERT INTO outbox (type, tags, data) VALUES (
            'OrderPlaced', ARRAY['order:' || $1::text],
            jsonb_build_object('id', $1::text, 'sku', $2::bigint, 'cents', $3::bigint)))
    UPDATE stock SET n = n - 1 WHERE sku = $2::bigint";

/// The databases in addition to PostgreSQL.
pub(crate) struct Others {
    mongo: Mongo,
    prometheus: Prometheus,
}

impl Others {
    pub(crate) async fn connect(mongo: &str, prometheus: &str) -> Result<Self> {
        Ok(Self {
            mongo: Mongo::connect(mongo, CONNECTIONS).await?,
            prometheus: Prometheus::connect(prometheus, CONNECTIONS).await?,
        })
    }

    /// The price of an order in the read model.
    pub(crate) async fn board(&self, id: &str) -> Result<Option<i64>> {
        let find = doc! { "find": "board", "filter": { "_id": id }, "limit": 1_i32, "singleBatch": true };
        let found = self.mongo.first(find).await?;
        Ok(found.map(|board| board.get_i64("cents")).transpose()?)
    }
}

pub(crate) async fn place(pool: &Pool, others: &Others, order: &Order) -> Result<()> {
    let Order { id, client, sku, cents, at_ms, note } = order;
    {
        let mut connection = pool.get().await?;
        let place = connection.statement(PLACE).await?;
        let rows = connection.client.execute(&place, &[id, sku, cents]).await?;
        ensure!(rows == 1, "there is no product {sku}");
    }
    let document = doc! { "_id": id, "sku": *sku, "cents": *cents, "note": note };
    let board = doc! { "_id": id, "cents": *cents };
    tokio::try_join!(
        others.mongo.insert("orders", document),
        others.mongo.insert("board", board),
        others.prometheus.write(*client, *at_ms, *cents as f64),
    )?;
    Ok(())
}

pub(crate) async fn totals(pool: &Pool, others: &Others, at: i64) -> Result<Totals> {
    let query = "SELECT (SELECT count(*) FROM outbox), (SELECT sum(n)::bigint FROM stock)";
    let row = pool.get().await?.client.query_one(query, &[]).await?;
    let sum = |collection: &str, of: &str| {
        let group = doc! { "$group": { "_id": null, "n": { "$sum": 1_i64 }, "sum": { "$sum": of } } };
        others.mongo.first(doc! { "aggregate": collection, "pipeline": [group], "cursor": {} })
    };
    let board = sum("board", "$cents").await?.context("the read model is empty")?;
    let orders = sum("orders", "$cents").await?.context("there are no orders")?;
    let samples = others.prometheus.samples(at).await?;
    Ok([row.get(0), board.get_i64("n")?, board.get_i64("sum")?, row.get(1), orders.get_i64("n")?, samples])
}
