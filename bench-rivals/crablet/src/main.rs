//! The peer of `bench crablet`: an HTTP server over PostgreSQL, a reimplementation of go-crablet's published
//! approach, so that the report's workload has a baseline on the same machine.
//!
//!   POST /append ─▶ put_events, or put_events_if under a condition (see schema.sql) ─▶ one transaction
//!   POST /read   ─▶ all matching rows, ordered by (transaction, position), loaded to be counted
//!   POST /cleanup ─▶ TRUNCATE        GET /health
//!
//! Its guarantees are go-crablet's: READ COMMITTED, or SERIALIZABLE where the header requests it and there is
//! a condition; conditions with several items are flattened; two overlapping appends may both pass the same
//! condition. As in the original there are at most twenty connections. The omitted parts, validation and
//! advisory locks, can only make it faster.
#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::{get, post};
use axum::{Json, Router};
use clap::Parser;
use ropewalk_crablet_sql::failed::Failed;
use ropewalk_crablet_sql::pool::Pool;
use serde::{Deserialize, Serialize};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

const CONNECTIONS: usize = 20;

/// The peer of the crablet benchmark.
#[derive(Parser)]
struct Arguments {
    /// Directory of the cluster's socket.
    #[arg(long)]
    socket: PathBuf,
    /// Where to listen.
    #[arg(long)]
    listen: SocketAddr,
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    tags: Vec<String>,
    data: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Events {
    One(Event),
    Many(Vec<Event>),
}

#[derive(Deserialize, Default)]
struct Item {
    #[serde(default)]
    types: Vec<String>,
    #[serde(default)]
    tags: Vec<String>,
}

#[derive(Deserialize)]
struct Query {
    items: Vec<Item>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Condition {
    fail_if_events_match: Query,
}

#[derive(Deserialize)]
struct Append {
    events: Events,
    condition: Option<Condition>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Appended {
    duration_in_microseconds: u64,
    append_condition_failed: bool,
}

#[derive(Deserialize)]
struct Read {
    query: Query,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Counted {
    duration_in_microseconds: u64,
    number_of_matching_events: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint_event_id: Option<String>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let pool = Arc::new(Pool::connect(&arguments.socket, CONNECTIONS).await?);
    pool.get().await?.client.batch_execute(include_str!("schema.sql")).await?;
    let router = Router::new()
        .route("/health", get(async || Json(serde_json::json!({ "status": "ok" }))))
        .route("/cleanup", post(cleanup))
        .route("/append", post(append))
        .route("/read", post(read))
        .with_state(pool);
    let listener = tokio::net::TcpListener::bind(arguments.listen).await?;
    println!("listening {}", listener.local_addr()?);
    axum::serve(listener, router).await?;
    Ok(())
}

async fn cleanup(State(pool): State<Arc<Pool>>) -> Result<Json<serde_json::Value>, Failed> {
    pool.get().await?.client.batch_execute("TRUNCATE events RESTART IDENTITY").await?;
    Ok(Json(serde_json::json!({ "success": true, "message": "the table is empty" })))
}

async fn append(
    State(pool): State<Arc<Pool>>,
    headers: HeaderMap,
    Json(append): Json<Append>,
) -> Result<Json<Appended>, Failed> {
    let started = Instant::now();
    let events = match append.events {
        Events::One(event) => vec![event],
        Events::Many(events) => events,
    };
    let (mut types, mut tags, mut data) = (Vec::new(), Vec::new(), Vec::new());
    for event in events {
        types.push(event.kind);
        tags.push(literal(&event.tags));
        data.push(event.data);
    }
    let (no_types, no_tags) = append.condition.map(flatten).unwrap_or_default();
    let mut connection = pool.get().await?;
    let held = if no_types.is_empty() && no_tags.is_empty() {
        let put = connection.statement("SELECT put_events($1, $2, $3)").await?;
        connection.client.execute(&put, &[&types, &tags, &data]).await?;
        true
    } else {
        let put = connection.statement("SELECT put_events_if($1, $2, $3, $4, $5)").await?;
        let parameters: [&(dyn ToSql + Sync); 5] = [&types, &tags, &data, &no_types, &no_tags];
        let serializable = headers
            .get("x-append-if-isolation")
            .is_some_and(|level| level.as_bytes().eq_ignore_ascii_case(b"serializable"));
        if serializable {
            let transaction = connection.client.build_transaction();
            let level = tokio_postgres::IsolationLevel::Serializable;
            let transaction = transaction.isolation_level(level).start().await?;
            let outcome = match transaction.query_one(&put, &parameters).await {
                Ok(row) => transaction.commit().await.map(|()| row.get(0)),
                Err(error) => Err(error),
            };
            match outcome {
                Ok(held) => held,
                // Of two conflicting transactions the other one continues; this one reports a conflict.
                Err(error) if error.code() == Some(&SqlState::T_R_SERIALIZATION_FAILURE) => false,
                Err(error) => return Err(error.into()),
            }
        } else {
            connection.client.query_one(&put, &parameters).await?.get(0)
        }
    };
    Ok(Json(Appended { duration_in_microseconds: micros(started), append_condition_failed: !held }))
}

async fn read(State(pool): State<Arc<Pool>>, Json(read): Json<Read>) -> Result<Json<Counted>, Failed> {
    let started = Instant::now();
    let mut wanted = Vec::new();
    let mut parameters: Vec<&(dyn ToSql + Sync)> = Vec::new();
    for item in &read.query.items {
        let mut all = Vec::new();
        if !item.types.is_empty() {
            parameters.push(&item.types);
            all.push(format!("type = ANY (${}::text[])", parameters.len()));
        }
        if !item.tags.is_empty() {
            parameters.push(&item.tags);
            all.push(format!("tags @> ${}::text[]", parameters.len()));
        }
        wanted.push(if all.is_empty() { "true".to_owned() } else { format!("({})", all.join(" AND ")) });
    }
    let wanted = if wanted.is_empty() { "true".to_owned() } else { wanted.join(" OR ") };
    let text = format!(
        "SELECT type, tags, data::text, position, occurred_at::text FROM events WHERE {wanted}
         ORDER BY transaction_id, position"
    );
    let mut connection = pool.get().await?;
    let select = connection.statement(&text).await?;
    let rows = connection.client.query(&select, &parameters).await?;
    let last = rows.last().map(|row| row.get::<_, i64>(3).to_string());
    Ok(Json(Counted {
        duration_in_microseconds: micros(started),
        number_of_matching_events: rows.len(),
        checkpoint_event_id: last,
    }))
}

/// Merges all items of a condition into one.
fn flatten(condition: Condition) -> (Vec<String>, Vec<String>) {
    let mut whole = Item::default();
    for item in condition.fail_if_events_match.items {
        whole.types.extend(item.types);
        whole.tags.extend(item.tags);
    }
    (whole.types, whole.tags)
}

/// Tags as PostgreSQL writes an array, since arrays of arrays of different lengths cannot be sent.
fn literal(tags: &[String]) -> String {
    let quoted = tags.iter().map(|tag| format!("\"{}\"", tag.replace('\\', "\\\\").replace('"', "\\\"")));
    format!("{{{}}}", quoted.collect::<Vec<_>>().join(","))
}

fn micros(started: Instant) -> u64 {
    (started.elapsed().as_micros() as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_written_as_an_array() {
        assert_eq!(literal(&[]), "{}");
        assert_eq!(literal(&["a:1".into(), "b\"\\".into()]), r#"{"a:1","b\"\\"}"#);
    }

    #[test]
    fn items_are_flattened() {
        let item = |kind: &str, tag: &str| Item { types: vec![kind.into()], tags: vec![tag.into()] };
        let query = Query { items: vec![item("A", "x:1"), item("B", "y:2")] };
        let (types, tags) = flatten(Condition { fail_if_events_match: query });
        assert_eq!((types.join(","), tags.join(",")), ("A,B".into(), "x:1,y:2".into()));
    }
}
