//! Clients that write until the server is killed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::clients::connect;
use super::server::Server;
use crate::database::remote::Remote;
use crate::output::failure::Result;

pub(super) const WRITERS: usize = 4;
/// Acknowledged sales after which the server is killed, …
const ACKNOWLEDGED: u64 = 500;
/// … or time after the first request, on a slow disk.
const LOAD: Duration = Duration::from_secs(3);

/// A transaction over four models, as JSON for `POST /v1/transactions`.
const SALE: &str = r#"{"operations": [
  {"append": {"store": "shop", "events": [{"type": "Sold", "tags": ["order:ORDER"], "data": {"buyer": "BUYER"}}],
              "conditions": [{"fail_if_events_match": {"items": [{"tags": ["order:ORDER"]}]}}]}},
  {"sql": {"sql": "UPDATE stock SET sold = sold + 1 WHERE item = 'rope'", "expect": 1}},
  {"documents": {"database": "shop", "collection": "orders", "insert": {"_id": "ORDER", "buyer": "BUYER"}}},
  {"samples": {"series": [{"labels": {"__name__": "ropes_sold", "buyer": "BUYER"}, "samples": [[MILLIS, 1]]}]}}
]}"#;

/// The sale of one rope.
pub(super) fn sale(order: &str, buyer: &str, time_ms: i64) -> String {
    SALE.replace("ORDER", order).replace("BUYER", buyer).replace("MILLIS", &time_ms.to_string())
}

pub(super) fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

/// Results of the clients.
pub(super) struct Load {
    pub(super) acknowledged: u64,
    /// Key and body of each request without a response.
    pub(super) pending: Vec<(String, String)>,
}

/// Sends sales from several clients, and kills the server in the middle.
pub(super) fn run(server: &mut Server) -> Result<Load> {
    let clients = (0..WRITERS).map(|_| connect(&server.at.http)).collect::<Result<Vec<_>>>()?;
    let (acknowledged, is_killed) = (AtomicU64::new(0), AtomicBool::new(false));
    let pending = std::thread::scope(|scope| {
        let (acknowledged, is_killed) = (&acknowledged, &is_killed);
        let writers: Vec<_> = (1..)
            .zip(clients)
            .map(|(number, client)| scope.spawn(move || write(number, &client, acknowledged, is_killed)))
            .collect();
        let begun = Instant::now();
        let is_over = || acknowledged.load(Relaxed) >= ACKNOWLEDGED || begun.elapsed() > LOAD;
        while !is_over() && !writers.iter().any(|writer| writer.is_finished()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        is_killed.store(true, Relaxed);
        server.kill()?;
        writers
            .into_iter()
            .map(|writer| writer.join().expect("a client does not panic"))
            .collect::<Result<Vec<_>>>()
    })?;
    Ok(Load { acknowledged: acknowledged.into_inner(), pending })
}

/// Sends sales until the server is gone. Returns the request without a response.
fn write(
    number: u32,
    client: &Remote,
    acknowledged: &AtomicU64,
    is_killed: &AtomicBool,
) -> Result<(String, String)> {
    let (buyer, mut orders, mut last_ms) = (format!("client{number}"), 0u64, 0i64);
    loop {
        // Two samples of a series at one time would be one sample.
        while now_ms() <= last_ms {
            std::thread::sleep(Duration::from_micros(100));
        }
        (orders, last_ms) = (orders + 1, now_ms());
        let order = format!("{buyer}-{orders}");
        let body = sale(&order, &buyer, last_ms);
        match client.transact(Some(&order), &body) {
            Ok(_) => {
                acknowledged.fetch_add(1, Relaxed);
            }
            Err(_) if is_killed.load(Relaxed) => return Ok((order, body)),
            Err(failure) => return Err(failure),
        }
    }
}
