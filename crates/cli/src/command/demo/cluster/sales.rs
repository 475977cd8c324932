//! Clients that sell at some of the nodes while others are killed or halted.
//!
//! ```text
//! client ─ sale n with its key, to its node ─▶ 200: acknowledged, n + 1      no response, 5xx: the same sale with the same key
//! ```
//! A sale whose outcome is unknown is therefore repeated until it is acknowledged, and is stored once.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::http::{Http, Response};
use super::waiting::until;
use crate::command::demo::load::{now_ms, sale};
use crate::output::failure::{Exit, Failure, Result};

/// Longest time of an attempt: shorter than an election, so that none of them delays the first sale after it.
const ATTEMPT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(5);
/// Sales before the trouble.
const BEFORE: usize = 20;

/// The sales that were acknowledged.
#[derive(Default)]
pub(super) struct Sales(Mutex<Vec<Sale>>);

struct Sale {
    order: String,
    /// Of the attempt that was acknowledged.
    began: Instant,
    ended: Instant,
}

impl Sales {
    fn with<R>(&self, work: impl FnOnce(&mut Vec<Sale>) -> R) -> R {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn count(&self) -> usize {
        self.with(|sales| sales.len())
    }

    /// Order numbers of the acknowledged sales.
    pub(super) fn orders(&self) -> HashSet<String> {
        self.with(|sales| sales.iter().map(|sale| sale.order.clone()).collect())
    }

    pub(super) fn add(&self, order: String, began: Instant) {
        self.with(|sales| sales.push(Sale { order, began, ended: Instant::now() }));
    }

    /// Waits for sales, and returns how long none was acknowledged of those that began after `moment`.
    pub(super) fn gap(&self, moment: Instant) -> Result<Duration> {
        let ended =
            || self.with(|all| all.iter().filter(|sale| sale.began > moment).map(|sale| sale.ended).min());
        Ok(until("a sale is acknowledged after the leader is gone", || Ok(ended()))? - moment)
    }

    /// Lets a client sell at each of the hosts while `trouble` runs, which begins after some sales. `round` is part of the order
    /// numbers.
    pub(super) fn during<T>(
        &self,
        round: &str,
        hosts: &[String],
        trouble: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let (before, is_over) = (self.count(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let clients: Vec<_> = (1..)
                .zip(hosts)
                .map(|(number, host)| {
                    let (buyer, is_over) = (format!("{round}-client{number}"), &is_over);
                    scope.spawn(move || self.sell(&buyer, host, is_over))
                })
                .collect();
            let begun = until("clients sell", || {
                let is_begun = self.count() >= before + BEFORE;
                Ok((is_begun || clients.iter().any(|client| client.is_finished())).then_some(()))
            });
            let result = begun.and_then(|()| trouble());
            is_over.store(true, Relaxed);
            for client in clients {
                client.join().expect("a client does not panic")?;
            }
            result
        })
    }

    fn sell(&self, buyer: &str, host: &str, is_over: &AtomicBool) -> Result {
        let http = Http::new(host, ATTEMPT)?;
        let (mut orders, mut last_ms) = (0u64, 0i64);
        while !is_over.load(Relaxed) {
            // Two samples of a series at one time would be one sample.
            (orders, last_ms) = (orders + 1, now_ms().max(last_ms + 1));
            let order = format!("{buyer}-{orders}");
            let body = sale(&order, buyer, last_ms);
            let began = until("a sale is acknowledged", || {
                let began = Instant::now();
                let response =
                    http.ask("/v1/transactions", &[("idempotency-key", order.as_str())], Some(&body));
                Ok(is_acknowledged(response)?.then_some(began))
            })?;
            self.add(order, began);
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}

/// False if the attempt is to be repeated, an error if that would be in vain.
fn is_acknowledged(response: Result<Response>) -> Result<bool> {
    match response {
        Ok(response) if response.status == 200 => Ok(true),
        Ok(response)
            if response.status >= 500 || matches!(response.code(), "key_conflict" | "resource_exhausted") =>
        {
            Ok(false)
        }
        Ok(response) => {
            let what = format!("a sale was rejected: {} {}", response.status, response.body);
            Err(Failure::new(Exit::Internal, what, ""))
        }
        Err(_) => Ok(false),
    }
}
