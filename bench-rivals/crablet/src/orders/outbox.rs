//! An order, its event and its outbox row are one transaction of PostgreSQL; a relay moves events to the read
//! model.
//!
//! The relay takes rows that are not sent, in order, and inserts them into the read model in one transaction, so
//! that each event is applied once. It asks again at once while there were rows, and pauses otherwise.

use std::time::Duration;

use anyhow::Result;
use ropewalk_crablet_sql::pool::Pool;

use crate::{Order, Totals};

const PLACE: &str = "
    WITH event AS (
        INSERT INTO outbox (type, tags, data) VALUES (
            'OrderPlaced', ARRAY['order:' || $1::text],
            jsonb_build_object('id', $1::text, 'sku', $2::bigint, 'cents', $3::bigint))),
    document AS (
        INSERT INTO orders VALUES (
            $1::text,
            jsonb_build_object('_id', $1::text, 'sku', $2::bigint, 'cents', $3::bigint, 'note', $6::text))),
    sample AS (INSERT INTO samples VALUES ($4::bigint, $5::bigint, $3::bigint))
    UPDATE stock SET n = n - 1 WHERE sku = $2::bigint";

const RELAY: &str = "
    WITH taken AS (
        SELECT position, data FROM outbox WHERE NOT sent ORDER BY position LIMIT 1000 FOR UPDATE SKIP LOCKED),
    shown AS (INSERT INTO board SELECT data->>'id', (data->>'cents')::bigint FROM taken)
    UPDATE outbox SET sent = true FROM taken WHERE outbox.position = taken.position";

const TOTALS: &str = "
    SELECT ARRAY[
        (SELECT count(*) FROM outbox), (SELECT count(*) FROM board),
        (SELECT coalesce(sum(cents), 0)::bigint FROM board), (SELECT sum(n)::bigint FROM stock),
        (SELECT count(*) FROM orders), (SELECT count(*) FROM samples)]";

pub(crate) async fn place(pool: &Pool, order: &Order) -> Result<()> {
    let mut connection = pool.get().await?;
    let place = connection.statement(PLACE).await?;
    let Order { id, client, sku, cents, at_ms, note } = order;
    let rows = connection.client.execute(&place, &[id, sku, cents, client, at_ms, note]).await?;
    anyhow::ensure!(rows == 1, "there is no product {sku}");
    Ok(())
}

/// Moves events until PostgreSQL ends.
pub(crate) async fn relay(pool: &Pool, pause: Duration) -> Result<()> {
    let mut connection = pool.get().await?;
    let relay = connection.statement(RELAY).await?;
    loop {
        if connection.client.execute(&relay, &[]).await? == 0 {
            tokio::time::sleep(pause).await;
        }
    }
}

/// The price of an order in the read model.
pub(crate) async fn board(pool: &Pool, id: &str) -> Result<Option<i64>> {
    let mut connection = pool.get().await?;
    let select = connection.statement("SELECT cents FROM board WHERE id = $1").await?;
    Ok(connection.client.query_opt(&select, &[&id]).await?.map(|row| row.get(0)))
}

pub(crate) async fn totals(pool: &Pool) -> Result<Totals> {
    let row = pool.get().await?.client.query_one(TOTALS, &[]).await?;
    let totals: Vec<i64> = row.get(0);
    Totals::try_from(totals).map_err(|totals| anyhow::anyhow!("{totals:?} are not six totals"))
}
