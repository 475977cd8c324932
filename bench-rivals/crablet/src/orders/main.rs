//! The peers of the orders in `bench one-tx`: an HTTP server that takes orders, and a read model of them.
//!
//! ```text
//! POST /orders      outbox: one transaction with a row of the outbox        dual writes: PostgreSQL, then MongoDB
//!                   └ relay, which polls the outbox ─▶ table board                       and Prometheus
//! GET /board/{id}   the price in the read model, or null
//! GET /totals       events, rows of the read model, their cents, pieces in stock, documents, samples
//! ```
//! Both are coded for speed: one statement and one round trip for a transaction, statements prepared once, and
//! the writes after the first one at the same time. PostgreSQL acknowledges a commit after its sync.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for the terminal")]

mod dual_writes;
mod mongo;
mod outbox;
mod prometheus;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use axum::extract::{Path, Query, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use clap::Parser;
use ropewalk_crablet_sql::failed::Failed;
use ropewalk_crablet_sql::pool::Pool;
use serde::Deserialize;

use dual_writes::Others;

/// One for the relay in addition to those of the requests.
const CONNECTIONS: usize = 21;

/// The peers of the orders.
#[derive(Parser)]
struct Arguments {
    /// Directory of the cluster's socket.
    #[arg(long)]
    socket: PathBuf,
    /// Where to listen.
    #[arg(long)]
    listen: SocketAddr,
    /// Pause of the relay when the outbox is empty, in milliseconds.
    #[arg(long, default_value_t = 10)]
    pause_ms: u64,
    /// Host and port of MongoDB: dual writes instead of an outbox.
    #[arg(long, requires = "prometheus")]
    mongo: Option<String>,
    /// Host and port of Prometheus.
    #[arg(long, requires = "mongo")]
    prometheus: Option<String>,
}

/// An order as it is sent.
#[derive(Deserialize)]
struct Order {
    id: String,
    client: i64,
    sku: i64,
    cents: i64,
    at_ms: i64,
    note: String,
}

/// The time at which samples are counted, in seconds since 1970.
#[derive(Deserialize)]
struct At {
    at: i64,
}

/// Events, rows of the read model, their cents, pieces in stock, documents, samples.
type Totals = [i64; 6];

struct Shop {
    pool: Pool,
    /// Empty with an outbox.
    others: Option<Others>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Arguments { socket, listen, pause_ms, mongo, prometheus } = Arguments::parse();
    let pool = Pool::connect(&socket, CONNECTIONS).await?;
    let others = match mongo.zip(prometheus) {
        Some((mongo, prometheus)) => Some(Others::connect(&mongo, &prometheus).await?),
        None => None,
    };
    pool.get().await?.client.batch_execute(include_str!("schema.sql")).await?;
    let shop = Arc::new(Shop { pool, others });
    if shop.others.is_none() {
        let shop = shop.clone();
        tokio::spawn(async move {
            let ended = outbox::relay(&shop.pool, Duration::from_millis(pause_ms)).await;
            eprintln!("the relay ended: {ended:?}");
        });
    }
    let router = Router::new()
        .route("/orders", post(place))
        .route("/board/{id}", get(board))
        .route("/totals", get(totals))
        .with_state(shop);
    let listener = tokio::net::TcpListener::bind(listen).await?;
    println!("listening {}", listener.local_addr()?);
    axum::serve(listener, router).await?;
    Ok(())
}

async fn place(State(shop): State<Arc<Shop>>, Json(order): Json<Order>) -> Result<(), Failed> {
    match &shop.others {
        None => outbox::place(&shop.pool, &order).await?,
        Some(others) => dual_writes::place(&shop.pool, others, &order).await?,
    }
    Ok(())
}

async fn board(State(shop): State<Arc<Shop>>, Path(id): Path<String>) -> Result<Json<Option<i64>>, Failed> {
    Ok(Json(match &shop.others {
        None => outbox::board(&shop.pool, &id).await?,
        Some(others) => others.board(&id).await?,
    }))
}

async fn totals(State(shop): State<Arc<Shop>>, Query(At { at }): Query<At>) -> Result<Json<Totals>, Failed> {
    Ok(Json(match &shop.others {
        None => outbox::totals(&shop.pool).await?,
        Some(others) => dual_writes::totals(&shop.pool, others, at).await?,
    }))
}
