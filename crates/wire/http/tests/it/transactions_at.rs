//! Transactions at a chosen commit, and the precondition on the newest commit.

use std::time::Duration;

use ropewalk_wire::{Limits, TransactionLimits};
use serde_json::{Value, json};

use crate::client::{Reply, Server};
use crate::transactions::{order, run, run_with_key, shop, shop_with};

/// A server that waits only briefly for a commit.
async fn hasty() -> Server {
    let transactions =
        TransactionLimits { visible_time: Duration::from_millis(50), ..TransactionLimits::default() };
    shop_with(Limits { transactions, ..Limits::default() }).await
}

/// Buys a rope; returns the number of the commit.
async fn buy(server: &Server, id: &str) -> u64 {
    run(server, order(id)).await.ok()["seq"].as_u64().unwrap()
}

/// Reads all models as of a commit.
async fn read_at(server: &Server, at: u64) -> Reply {
    let sql = "SELECT (SELECT count(*) FROM metrics.sold), (SELECT n FROM stock)";
    let body = json!({ "at": at, "operations": [
        { "read": { "store": "shop" } },
        { "documents": { "collection": "orders", "find": { "filter": {} } } },
        { "sql": { "sql": sql } },
    ]});
    run(server, body).await
}

/// Events, documents, samples and the rows' total as of a commit. All orders write a sample of the same time.
async fn counts_at(server: &Server, at: u64) -> [u64; 4] {
    let answer = read_at(server, at).await.ok();
    assert_eq!(answer["seq"], at);
    let results = &answer["results"];
    let row = &results[2]["rows"][0];
    let count = |value: &Value| value.as_array().unwrap().len() as u64;
    [
        count(&results[0]["events"]),
        count(&results[1]["documents"]),
        row[0].as_u64().unwrap(),
        row[1].as_u64().unwrap(),
    ]
}

async fn begin_at(server: &Server, at: u64) -> String {
    let begun = server.post("/v1/transactions/begin", json!({ "at": at })).await;
    assert_eq!(begun.status, 201, "{}", begun.text());
    assert_eq!(begun.json()["snapshot"], at);
    format!("/v1/transactions/{}", begun.json()["transaction"].as_str().unwrap())
}

#[tokio::test]
async fn read_at_an_earlier_commit_returns_its_state_in_all_models() {
    let server = shop().await;
    let (first, second) = (buy(&server, "o1").await, buy(&server, "o2").await);
    assert_eq!(counts_at(&server, first).await, [1, 1, 1, 2]);
    assert_eq!(counts_at(&server, second).await, [2, 2, 1, 1]);
    assert_eq!(server.service.database().seq().0, second, "a read is no commit");
}

#[tokio::test]
async fn read_at_a_later_commit_waits_until_it_is_visible() {
    let server = std::sync::Arc::new(shop().await);
    let next = server.service.database().seq().0 + 1;
    let reader = server.clone();
    let waiting = tokio::spawn(async move { counts_at(&reader, next).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!waiting.is_finished());
    assert_eq!(buy(&server, "o1").await, next);
    assert_eq!(waiting.await.unwrap(), [1, 1, 1, 2]);
}

#[tokio::test]
async fn commit_that_does_not_become_visible_is_a_timeout_with_the_wait() {
    let server = hasty().await;
    let newest = server.service.database().seq().0;
    let late = newest + 9;
    let select = json!([{ "sql": { "sql": "SELECT 1" } }]);
    for (field, body) in [
        ("at", json!({ "at": late, "operations": select })),
        ("includes", json!({ "includes": late, "operations": select })),
        ("seq", json!({ "preconditions": [{ "seq": late }], "operations": select })),
    ] {
        let reply = run(&server, body).await;
        reply.refused(504, "timeout");
        let expected = format!(
            "{field}: commit {late} is not visible after 50ms, the longest wait; the newest is {newest}"
        );
        assert_eq!(reply.detail(), expected);
    }
    server.post("/v1/transactions/begin", json!({ "at": late })).await.refused(504, "timeout");
}

#[tokio::test]
async fn commit_that_is_gone_is_410_with_the_oldest_readable_one() {
    let server = shop().await;
    let (first, second) = (buy(&server, "o1").await, buy(&server, "o2").await);
    server.service.database().checkpoint().unwrap();
    let third = buy(&server, "o3").await;
    let reply = read_at(&server, first).await;
    reply.refused(410, "commit_unreadable");
    let oldest = reply.json()["oldest_readable"].as_u64().unwrap();
    assert!((second..=third).contains(&oldest), "{oldest}");
    assert!(reply.detail().contains(&format!("every commit from {oldest} to {third}")), "{}", reply.detail());
    assert_eq!(counts_at(&server, second).await, [2, 2, 1, 1]);
    server.post("/v1/transactions/begin", json!({ "at": first })).await.refused(410, "commit_unreadable");
}

#[tokio::test]
async fn open_transaction_at_a_commit_holds_it_for_others() {
    let server = shop().await;
    let first = buy(&server, "o1").await;
    let path = begin_at(&server, first).await;
    buy(&server, "o2").await;
    server.service.database().compact().unwrap();
    buy(&server, "o3").await;
    assert_eq!(counts_at(&server, first).await, [1, 1, 1, 2]);
    let read = json!({ "operations": [{ "sql": { "sql": "SELECT n FROM stock" } }, { "read": { "store": "shop" } }] });
    let own = server.post(&format!("{path}/operations"), read).await.ok();
    assert_eq!(own["results"][0]["rows"], json!([[2]]));
    assert_eq!(own["results"][1]["events"].as_array().unwrap().len(), 1);
    let committed = server.request("POST", &format!("{path}/commit"), &[], b"").await.ok();
    assert_eq!(committed, json!({ "seq": first, "appended": [] }));
    read_at(&server, first).await.refused(410, "commit_unreadable");
}

#[tokio::test]
async fn transaction_at_a_commit_rejects_writes() {
    let server = shop().await;
    let at = buy(&server, "o1").await;
    let only_reads = "a transaction at a chosen commit only reads";
    for (write, detail) in [
        (json!({ "append": { "store": "shop", "events": [{ "type": "A" }] } }), only_reads),
        (json!({ "documents": { "collection": "orders", "insert": { "_id": 1 } } }), only_reads),
        (json!({ "documents": { "collection": "orders", "delete": { "filter": {} } } }), only_reads),
        (
            json!({ "documents": { "collection": "orders", "update": { "filter": {}, "update": { "$set": { "a": 1 } } } } }),
            only_reads,
        ),
        (
            json!({ "samples": { "series": [{ "labels": { "__name__": "m" }, "samples": [[1, 1]] }] } }),
            only_reads,
        ),
        (json!({ "checkpoint": { "store": "shop", "consumer": "c", "position": 1 } }), only_reads),
        (json!({ "sql": { "sql": "UPDATE stock SET n = 1" } }), "UPDATE"),
        (json!({ "sql": { "sql": "SET TRANSACTION READ WRITE" } }), "SET"),
        (
            json!({ "sql": { "sql": "SELECT append_event('T', ARRAY['x'], '1', store => 'shop')" } }),
            "append_event",
        ),
    ] {
        let reply = run(&server, json!({ "at": at, "operations": [write.clone()] })).await;
        reply.refused(400, "invalid_argument");
        assert!(reply.detail().contains(detail), "{write}: {}", reply.detail());
        let path = begin_at(&server, at).await;
        let reply = server.post(&format!("{path}/operations"), json!({ "operations": [write] })).await;
        reply.refused(400, "invalid_argument");
        server.request("POST", &format!("{path}/commit"), &[], b"").await.refused(404, "not_found");
    }
    let both = json!({ "at": at, "includes": at, "operations": [{ "read": { "store": "shop" } }] });
    run(&server, both).await.refused(400, "invalid_argument");
    assert_eq!(server.service.database().seq().0, at);
}

#[tokio::test]
async fn seq_precondition_holds_only_directly_after_its_commit() {
    let server = shop().await;
    let seen = buy(&server, "o1").await;
    let update = |seq: u64| json!({ "preconditions": [{ "seq": seq }], "operations": [{ "sql": { "sql": "UPDATE stock SET n = n + 1" } }] });
    let done = run_with_key(&server, "k", &update(seen)).await.ok();
    assert_eq!((&done["seq"], &done["results"]), (&json!(seen + 1), &json!([{ "command": "UPDATE 1" }])));
    let late = run(&server, update(seen)).await;
    late.refused(412, "precondition_failed");
    let expected = format!("preconditions[0]: the newest commit is {}, {seen} is expected", seen + 1);
    assert_eq!(late.detail(), expected);
    // A repetition has been committed: its precondition is not checked again.
    assert_eq!(run_with_key(&server, "k", &update(seen)).await.ok()["repeated"], true);
    let read =
        json!({ "preconditions": [{ "seq": seen }], "operations": [{ "sql": { "sql": "SELECT 1" } }] });
    run(&server, read).await.refused(412, "precondition_failed");
    let two = json!({ "preconditions": [{ "seq": seen, "sql": { "sql": "SELECT 1" } }], "operations": [{ "sql": { "sql": "SELECT 1" } }] });
    run(&server, two).await.refused(400, "invalid_argument");
}

#[tokio::test]
async fn first_use_of_a_key_makes_no_extra_commit() {
    let server = Server::start().await;
    let seq = server.append("s", json!([{ "type": "A" }])).await["seq"].as_u64().unwrap();
    let append = json!({ "append": { "store": "s", "events": [{ "type": "B" }] } });
    let body = json!({ "preconditions": [{ "seq": seq }], "operations": [append] });
    let done = run_with_key(&server, "k", &body).await.ok()["seq"].as_u64().unwrap();
    assert_eq!(server.service.database().seq().0, done);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_transactions_after_one_commit_write_once() {
    let server = std::sync::Arc::new(shop().await);
    for round in 0..5 {
        let seen = server.service.database().seq().0;
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..8 {
            let server = server.clone();
            tasks.spawn(async move {
                let document =
                    json!({ "collection": "orders", "insert": { "_id": format!("{round}:{number}") } });
                let body =
                    json!({ "preconditions": [{ "seq": seen }], "operations": [{ "documents": document }] });
                run(&server, body).await.status
            });
        }
        let mut statuses = tasks.join_all().await;
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 412, 412, 412, 412, 412, 412, 412], "round {round}");
    }
}
