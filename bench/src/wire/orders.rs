//! Orders over HTTP, from the request until the read model shows them.
//!
//! ```text
//! checked   one client, some orders: the answers of all systems must be equal
//! alone     one client places an order and queries it until it is shown, again and again
//! busy      the same while all other clients place orders; ends when the last order of each client is shown
//! ```
//! Afterwards events, documents, samples, stock and read model must agree with the acknowledged orders.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ropewalk_bench::harness::report::OURS;
use ropewalk_bench::harness::worker::{Figure, Latencies, Outcome, Task};
use ropewalk_bench::workloads::one_tx::orders::{
    EVENT, Order, Orders, PIECES, PRODUCTS, PROJECTION, TABLES, TOTALS, board_cents, board_query,
};

use super::calls::Connection;
use super::one_tx::{TRANSACTIONS, numbers, run_sql};
use super::order_peers::OrderPeer;
use super::servers::Server;

/// Orders before the answers are compared.
const CHECKED: usize = 200;
/// Rows of one INSERT.
const ROWS: u64 = 1_000;
/// Longer than any relay takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Samples may be later than the clock by a millisecond for each order.
const LATER_S: i64 = 3_600;

/// A running system.
enum Shop {
    Ours(Server),
    Peer(OrderPeer),
}

impl Shop {
    fn start(system: &str, dir: &Path) -> Result<Self> {
        Ok(match system {
            OURS => Self::Ours(Server::start(system, dir)?),
            _ => Self::Peer(OrderPeer::start(system, dir)?),
        })
    }

    fn http(&self) -> &str {
        match self {
            Self::Ours(server) => &server.http,
            Self::Peer(peer) => &peer.http,
        }
    }

    fn is_ours(&self) -> bool {
        matches!(self, Self::Ours(_))
    }
}

/// All phases on one system.
pub(crate) fn run(system: &str, task: &Task) -> Result<Outcome> {
    let shop = Shop::start(system, &task.dir)?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(drive(&shop, task))
}

async fn drive(shop: &Shop, task: &Task) -> Result<Outcome> {
    let mut connection = Connection::connect(shop.http()).await?;
    if shop.is_ours() {
        prepare(&mut connection).await?;
    }
    let begin_ms = jiff::Timestamp::now().as_millisecond();
    let mut clients = Vec::with_capacity(task.threads);
    for number in 0..task.threads as u64 {
        let connection = Connection::connect(shop.http()).await?;
        clients.push(Client {
            connection,
            is_of_ours: shop.is_ours(),
            orders: Orders::new(number, begin_ms),
            last: None,
        });
    }
    let mut outcome = Outcome::default();
    let first = clients.first_mut().context("no client")?;
    for _ in 0..CHECKED {
        first.place().await?;
    }
    first.until_shown().await?;
    let totals = totals(&mut connection, shop, begin_ms).await?;
    outcome.digest("answers", format!("{totals:?}"));

    let time = Duration::from_secs_f64(task.seconds);
    let mut alone = Latencies::default();
    let begin = Instant::now();
    while begin.elapsed() < time {
        alone.record(first.place_and_wait().await?);
    }
    let quantiles = |outcome: &mut Outcome, phase: &str, latencies: &Latencies| {
        for (name, quantile) in [("p50", 0.5), ("p99", 0.99)] {
            let ms = latencies.quantile_us(quantile).unwrap_or_default() / 1e3;
            outcome.figure(format!("{phase}/{name}"), Figure::one(ms).with(latencies));
        }
    };
    quantiles(&mut outcome, "alone", &alone);

    let before = placed(&clients);
    let (clients, rate, latencies) = busy(clients, time, before).await?;
    quantiles(&mut outcome, "busy", &latencies);
    outcome.figure("busy/orders_per_s", Figure::one(rate));
    check(&self::totals(&mut connection, shop, begin_ms).await?, placed(&clients))?;
    Ok(outcome)
}

/// Number of acknowledged orders.
fn placed(clients: &[Client]) -> u64 {
    clients.iter().map(|client| client.orders.count).sum()
}

/// Clients, shown orders per second, and the latencies of the first client.
async fn busy(clients: Vec<Client>, time: Duration, before: u64) -> Result<(Vec<Client>, f64, Latencies)> {
    let begin = Instant::now();
    let running: Vec<_> = clients
        .into_iter()
        .enumerate()
        .map(|(number, client)| tokio::spawn(client.place_until(begin + time, number == 0)))
        .collect();
    let (mut clients, mut all) = (Vec::with_capacity(running.len()), Latencies::default());
    for client in running {
        let (client, latencies) = client.await.context("a client panicked")??;
        all.merge(&latencies);
        clients.push(client);
    }
    for client in &mut clients {
        client.until_shown().await?;
    }
    let rate = (placed(&clients) - before) as f64 / begin.elapsed().as_secs_f64();
    Ok((clients, rate, all))
}

/// Fails unless events, read model, stock, documents and samples are those of `orders` orders.
fn check(totals: &[i64; 6], orders: u64) -> Result<()> {
    let [events, board, _, pieces, documents, samples] = *totals;
    let sold = (PRODUCTS * PIECES).cast_signed() - pieces;
    let found = [events, board, sold, documents, samples];
    ensure!(found.iter().all(|&n| n == orders.cast_signed()), "{orders} orders, but {found:?}");
    Ok(())
}

/// Creates our tables, stock and projection.
async fn prepare(connection: &mut Connection) -> Result<()> {
    for table in TABLES {
        run_sql(connection, table).await?;
    }
    for first in (0..PRODUCTS).step_by(ROWS as usize) {
        let rows: Vec<String> = (first..first + ROWS).map(|sku| format!("({sku},{PIECES})")).collect();
        run_sql(connection, &format!("INSERT INTO stock VALUES {}", rows.join(","))).await?;
    }
    let rules = serde_json::json!([{ "types": [EVENT], "statements": [PROJECTION] }]);
    let body = serde_json::json!({ "version": 1, "on": rules }).to_string();
    connection.call("PUT", "/v1/stores/shop/projections/board", &body).await?;
    Ok(())
}

/// Events, rows of the read model, their cents, pieces in stock, documents, samples.
async fn totals(connection: &mut Connection, shop: &Shop, begin_ms: i64) -> Result<[i64; 6]> {
    if shop.is_ours() {
        return numbers(connection, TOTALS).await;
    }
    let answer = connection.call("GET", &format!("/totals?at={}", begin_ms / 1000 + LATER_S), "").await?;
    Ok(serde_json::from_str(answer)?)
}

/// A client with its orders.
struct Client {
    connection: Connection,
    is_of_ours: bool,
    orders: Orders,
    last: Option<Order>,
}

impl Client {
    /// Places an order; it is durable.
    async fn place(&mut self) -> Result<()> {
        let order = self.orders.next().context("no order")?;
        let (path, body) = match self.is_of_ours {
            true => (TRANSACTIONS, order.transaction()),
            false => ("/orders", order.json()),
        };
        self.connection.call("POST", path, &body).await?;
        self.last = Some(order);
        Ok(())
    }

    /// Places an order, and waits until the read model shows it.
    async fn place_and_wait(&mut self) -> Result<Duration> {
        let begin = Instant::now();
        self.place().await?;
        self.until_shown().await?;
        Ok(begin.elapsed())
    }

    /// Waits until the read model shows the last order.
    async fn until_shown(&mut self) -> Result<()> {
        let Some(Order { id, cents, .. }) = &self.last else { return Ok(()) };
        let begin = Instant::now();
        loop {
            let shown = match self.is_of_ours {
                true => board_cents(self.connection.call("POST", TRANSACTIONS, &board_query(id)).await?),
                false => {
                    serde_json::from_str(self.connection.call("GET", &format!("/board/{id}"), "").await?)?
                }
            };
            if let Some(shown) = shown {
                ensure!(shown == *cents, "{id} has {cents} cents, {shown} are shown");
                return Ok(());
            }
            ensure!(begin.elapsed() < PATIENCE, "{id} is not shown");
        }
    }

    /// Places orders until then; with `waits` each one until it is shown, with its latency.
    async fn place_until(mut self, until: Instant, waits: bool) -> Result<(Self, Latencies)> {
        let mut latencies = Latencies::default();
        while Instant::now() < until {
            match waits {
                true => latencies.record(self.place_and_wait().await?),
                false => self.place().await?,
            }
        }
        Ok((self, latencies))
    }
}
