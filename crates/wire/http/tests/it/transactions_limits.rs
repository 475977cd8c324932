//! Limits of transactions: of each caller, of time, of memory, and of results; errors at them.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ropewalk::Database;
use ropewalk_auth::{Caller, Right, Roles};
use ropewalk_http::HttpSettings;
use ropewalk_sql::Session;
use ropewalk_wire::{Limits, Service, ServiceSettings, TransactionLimits};
use serde_json::{Value, json};

use crate::client::{Reply, Server};
use crate::transactions::{JSON, PASSWORD, counts, order, run, run_with_key, shop, shop_with};

async fn limited(transactions: TransactionLimits) -> Server {
    shop_with(Limits { transactions, ..Limits::default() }).await
}

/// A server with a user for each name, who may do everything.
async fn with_admins(transactions: TransactionLimits, names: &[&str]) -> Server {
    let server = limited(transactions).await;
    for name in names {
        let roles = Roles::from([("*".to_owned(), BTreeSet::from([Right::Admin]))]);
        server.service.access().create_user(&Caller::everybody(), name, PASSWORD, roles).await.unwrap();
    }
    server
}

async fn ask(server: &Server, user: &str, method: &str, path: &str, body: &Value) -> Reply {
    let credentials = format!("Basic {}", STANDARD.encode(format!("{user}:{PASSWORD}")));
    let headers = [JSON, ("authorization", credentials.as_str())];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    server.request(method, path, &headers, body.as_bytes()).await
}

/// Opens a database that the tasks of a stopped server may still hold for a moment.
async fn opened(path: &Path) -> Database {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        match Database::open(path) {
            Ok(db) => return db,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn begin_as(server: &Server, user: &str) -> String {
    let begun = ask(server, user, "POST", "/v1/transactions/begin", &json!({})).await;
    assert_eq!(begun.status, 201, "{}", begun.text());
    format!("/v1/transactions/{}", begun.json()["transaction"].as_str().unwrap())
}

async fn begin(server: &Server) -> String {
    let begun = server.post("/v1/transactions/begin", json!({})).await;
    assert_eq!(begun.status, 201, "{}", begun.text());
    format!("/v1/transactions/{}", begun.json()["transaction"].as_str().unwrap())
}

fn sql(text: &str) -> Value {
    json!({ "operations": [{ "sql": { "sql": text } }] })
}

/// An append of so many bytes to `store`.
fn append(store: &str, bytes: usize) -> Value {
    json!({ "operations": [{ "append": { "store": store, "events": [{ "type": "A", "data": "x".repeat(bytes) }] } }] })
}

#[tokio::test]
async fn idempotency_keys_over_the_limit_of_a_caller_are_rejected() {
    let limits = TransactionLimits { keys_per_caller: 2, ..TransactionLimits::default() };
    let server = with_admins(limits, &["ann", "bob"]).await;
    let update = sql("UPDATE stock SET n = n + 1");
    let keyed = |user: &'static str, key: &'static str, body: Value| {
        let server = &server;
        async move {
            let credentials = format!("Basic {}", STANDARD.encode(format!("{user}:{PASSWORD}")));
            let headers = [JSON, ("authorization", credentials.as_str()), ("idempotency-key", key)];
            server.request("POST", "/v1/transactions", &headers, body.to_string().as_bytes()).await
        }
    };
    keyed("ann", "k1", update.clone()).await.ok();
    // A transaction that fails, or writes nothing, stores no key.
    let failing =
        json!({ "operations": [update["operations"][0], { "sql": { "sql": "UPDATE stock SET n = -1" } }] });
    keyed("ann", "failed", failing).await.refused(400, "invalid_argument");
    keyed("ann", "read", sql("SELECT 1")).await.ok();
    keyed("ann", "k2", update.clone()).await.ok();
    let refused = keyed("ann", "k3", update.clone()).await;
    refused.refused(429, "resource_exhausted");
    assert!(
        refused.detail().contains("2 idempotency keys of this caller are stored"),
        "{}",
        refused.detail()
    );
    assert_eq!(refused.header("retry-after"), Some("60"));
    // Known keys return their results, other callers and requests without a key are not affected.
    assert_eq!(keyed("ann", "k1", update.clone()).await.ok()["repeated"], true);
    keyed("bob", "k3", update.clone()).await.ok();
    ask(&server, "ann", "POST", "/v1/transactions", &update).await.ok();
    let n = ask(&server, "ann", "POST", "/v1/transactions", &sql("SELECT n FROM stock")).await.ok();
    assert_eq!(n["results"][0]["rows"], json!([[7]]), "{n}");
}

#[tokio::test]
async fn results_of_keys_over_the_bytes_of_a_caller_are_rejected() {
    let limits = TransactionLimits { key_bytes_per_caller: 10_000, ..TransactionLimits::default() };
    let server = limited(limits).await;
    let large = json!({ "operations": [
        { "append": { "store": "shop", "events": [{ "type": "A", "data": "x".repeat(3_000) }] } },
        { "read": { "store": "shop", "backwards": true, "limit": 1 } },
    ]});
    for key in ["k1", "k2", "k3"] {
        run_with_key(&server, key, &large).await.ok();
    }
    run_with_key(&server, "k4", &large).await.refused(429, "resource_exhausted");
    run_with_key(&server, "k5", &append("shop", 3_000)).await.ok();
}

#[tokio::test]
async fn keys_of_earlier_processes_count() {
    let directory = tempfile::tempdir().unwrap();
    let limits = TransactionLimits { keys_per_caller: 3, ..TransactionLimits::default() };
    let settings = || ServiceSettings {
        limits: Limits { transactions: limits.clone(), ..Limits::default() },
        ..ServiceSettings::default()
    };
    let db = Database::open(directory.path()).unwrap();
    let server = Server::over(Service::new(db, settings()).unwrap(), HttpSettings::default()).await;
    for key in ["k1", "k2", "k3"] {
        run_with_key(&server, key, &append("shop", 1)).await.ok();
    }
    server.service.stop().begin();
    drop(server);
    let db = opened(directory.path()).await;
    let server = Server::over(Service::new(db, settings()).unwrap(), HttpSettings::default()).await;
    let mut stored = 0;
    // Until the earlier keys are counted, about a second, those of this process have the whole limit.
    while run_with_key(&server, &format!("later{stored}"), &append("shop", 1)).await.status == 200 {
        stored += 1;
        assert!(stored <= 3);
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    assert!(stored < 3, "the earlier keys were not counted");
    assert_eq!(run_with_key(&server, "k1", &append("shop", 1)).await.ok()["repeated"], true);
}

#[tokio::test]
async fn rights_of_statements_are_checked_again_at_a_repetition() {
    let server = shop().await;
    let all = Caller::everybody();
    let roles = Roles::from([("*".to_owned(), BTreeSet::from([Right::Read, Right::Append]))]);
    server.service.access().create_user(&all, "ann", PASSWORD, roles).await.unwrap();
    let credentials = format!("Basic {}", STANDARD.encode(format!("ann:{PASSWORD}")));
    let headers = [JSON, ("authorization", credentials.as_str()), ("idempotency-key", "k")];
    let body = sql("UPDATE stock SET n = n + 1 RETURNING n").to_string();
    let keyed = || server.request("POST", "/v1/transactions", &headers, body.as_bytes());
    keyed().await.ok();
    assert_eq!(keyed().await.ok()["repeated"], true);
    server.service.access().revoke(&all, "ann", "*", Right::Read).await.unwrap();
    let refused = keyed().await;
    refused.refused(403, "permission_denied");
    assert_eq!(refused.json()["operation"], 0);
}

#[tokio::test]
async fn includes_is_checked_before_admission() {
    let transactions =
        TransactionLimits { visible_time: Duration::from_millis(20), ..TransactionLimits::default() };
    let limits = Limits { appends_in_flight: 0, transactions, ..Limits::default() };
    let server = Server::with(limits, HttpSettings::default()).await;
    let mut body = append("shop", 1);
    run(&server, body.clone()).await.refused(429, "resource_exhausted");
    // A request that waits holds no place among the writes.
    body["includes"] = json!(server.service.database().seq().0 + 1);
    run(&server, body).await.refused(504, "timeout");
}

#[tokio::test]
async fn results_of_earlier_attempts_do_not_count() {
    let limits = TransactionLimits { result_bytes: 100_000, ..TransactionLimits::default() };
    let server = Arc::new(limited(limits).await);
    let db = server.service.database().clone();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let disturber = {
        let (db, stop) = (db.clone(), stop.clone());
        std::thread::spawn(move || {
            let mut session = Session::new(db);
            session.configure("synchronous_commit", "off").unwrap();
            let mut updates = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                session.execute("UPDATE stock SET n = 1 + n % 2", &[]).unwrap();
                updates += 1;
            }
            updates
        })
    };
    // Each attempt reads most of the limit, and conflicts as long as the row changes.
    let body = json!({ "operations": [
        { "sql": { "sql": "SELECT repeat('x', 60000)" } },
        { "sql": { "sql": "SELECT n FROM stock" } },
        { "sql": { "sql": "SELECT pg_sleep(0.01)" } },
        { "sql": { "sql": "UPDATE stock SET n = n + 1" } },
    ]});
    let request = tokio::spawn({
        let server = server.clone();
        async move { run(&server, body).await }
    });
    let stopping = stop.clone();
    tokio::task::spawn_blocking(move || {
        std::thread::sleep(Duration::from_millis(500));
        stopping.store(true, std::sync::atomic::Ordering::Relaxed);
    })
    .await
    .unwrap();
    assert!(disturber.join().unwrap() > 0);
    let answer = request.await.unwrap().ok();
    assert_eq!(answer["results"][3], json!({ "command": "UPDATE 1" }));
    let twice = json!({ "operations": [
        { "sql": { "sql": "SELECT repeat('x', 60000)" } },
        { "sql": { "sql": "SELECT repeat('x', 60000)" } },
    ]});
    run(&server, twice).await.refused(413, "too_large");
}

#[tokio::test]
async fn open_transaction_ends_after_its_idle_time() {
    let limits = TransactionLimits { idle_time: Duration::from_millis(200), ..TransactionLimits::default() };
    let server = limited(limits).await;
    let begun = server.post("/v1/transactions/begin", json!({})).await.json();
    assert_eq!(begun["idle_ms"], 200);
    let path = begin(&server).await;
    server.post(&format!("{path}/operations"), append("shop", 1)).await.ok();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let gone = server.request("POST", &format!("{path}/commit"), &[], b"").await;
    gone.refused(404, "not_found");
    assert!(gone.detail().contains("200ms after its last request"), "{}", gone.detail());
    assert_eq!(counts(&server).await, json!([0, 0, 0, 3]));
}

#[tokio::test]
async fn open_transaction_ends_after_its_lifetime() {
    let limits = TransactionLimits { lifetime: Duration::from_millis(400), ..TransactionLimits::default() };
    let server = limited(limits).await;
    let begun = Instant::now();
    let path = begin(&server).await;
    // Requests do not prolong it.
    loop {
        let reply = server.post(&format!("{path}/operations"), sql("SELECT 1")).await;
        if reply.status != 200 {
            reply.refused(404, "not_found");
            assert!(reply.detail().contains("400ms after its begin"), "{}", reply.detail());
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(30));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(begun.elapsed() >= Duration::from_millis(400));
}

#[tokio::test]
async fn changes_of_open_transactions_over_the_memory_of_a_caller_are_rejected() {
    let limits = TransactionLimits {
        open_bytes_per_caller: 100_000,
        open_bytes: 150_000,
        ..TransactionLimits::default()
    };
    let server = with_admins(limits, &["ann", "bob"]).await;
    let grow = async |user: &str, path: &str| {
        ask(&server, user, "POST", &format!("{path}/operations"), &append("shop", 60_000)).await
    };
    let (first, second) = (begin_as(&server, "ann").await, begin_as(&server, "ann").await);
    grow("ann", &first).await.ok();
    let refused = grow("ann", &second).await;
    refused.refused(429, "resource_exhausted");
    assert!(
        refused.detail().contains("this caller's open transactions; at most 100000"),
        "{}",
        refused.detail()
    );
    // It ended, the other one did not.
    grow("ann", &second).await.refused(404, "not_found");
    // All callers together.
    let (third, fourth) = (begin_as(&server, "bob").await, begin_as(&server, "bob").await);
    grow("bob", &third).await.ok();
    ask(&server, "ann", "DELETE", &first, &Value::Null).await;
    let fifth = begin_as(&server, "ann").await;
    grow("ann", &fifth).await.ok();
    ask(&server, "bob", "POST", &format!("{fourth}/operations"), &append("shop", 35_000))
        .await
        .refused(429, "resource_exhausted");
    let done = ask(&server, "bob", "POST", &format!("{third}/commit"), &Value::Null).await.ok();
    assert_eq!(done["appended"][0]["first"], 1);
}

#[tokio::test]
async fn commit_after_a_refused_operation_writes_nothing() {
    let server = shop().await;
    for refused in [
        sql("UPDATE stock SET n = -1"),
        sql("SELECT 1 FROM nothing"),
        json!({ "operations": [{ "documents": { "collection": "orders", "get": 1, "expect": 1 } }] }),
        json!({ "operations": [{ "append": { "store": "shop", "events": [{ "type": "" }] } }] }),
        json!({ "operations": [{ "checkpoint": { "store": "shop", "consumer": "c", "position": 9 } }] }),
    ] {
        let path = begin(&server).await;
        server
            .post(&format!("{path}/operations"), json!({ "operations": order("o1")["operations"] }))
            .await
            .ok();
        let reply = server.post(&format!("{path}/operations"), &refused).await;
        assert!((400..500).contains(&reply.status), "{}", reply.text());
        server.request("POST", &format!("{path}/commit"), &[], b"").await.refused(404, "not_found");
        assert_eq!(counts(&server).await, json!([0, 0, 0, 3]), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rollback_cancels_the_running_request() {
    let server = Arc::new(shop().await);
    let holder = begin(&server).await;
    server.post(&format!("{holder}/operations"), sql("SELECT pg_advisory_lock(7)")).await.ok();
    let steps = |then: Value| json!({ "$reduce": { "input": { "$range": [0, 4000] }, "initialValue": 0, "in": then } });
    let slow = steps(steps(json!({ "$add": ["$$value", 1] })));
    let documents: Vec<Value> = (0..300).map(|n| json!({ "_id": n })).collect();
    server
        .post("/v1/databases/default/collections/many/documents", json!({ "documents": documents }))
        .await
        .ok();
    let filter = json!({ "$expr": { "$lt": [slow, 0] } });
    for long in [
        sql("SELECT pg_sleep(25)"),
        sql("SELECT pg_advisory_lock(7)"),
        json!({ "operations": [{ "documents": { "collection": "many", "find": { "filter": filter } } }] }),
    ] {
        let path = begin(&server).await;
        server.post(&format!("{path}/operations"), append("shop", 1)).await.ok();
        let running = tokio::spawn({
            let (server, path, long) = (server.clone(), format!("{path}/operations"), long.clone());
            async move { server.post(&path, long).await }
        });
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!running.is_finished());
        let asked = Instant::now();
        assert_eq!(server.request("DELETE", &path, &[], b"").await.status, 204);
        running.await.unwrap().refused(404, "not_found");
        assert!(asked.elapsed() < Duration::from_secs(10), "{long}: {:?}", asked.elapsed());
        server.request("POST", &format!("{path}/commit"), &[], b"").await.refused(404, "not_found");
    }
    // The lock that the second transaction waited for is still held by the first.
    server.request("POST", &format!("{holder}/commit"), &[], b"").await.ok();
    assert_eq!(counts(&server).await, json!([0, 0, 0, 3]));
}

#[tokio::test(flavor = "multi_thread")]
async fn deadline_of_a_request_is_named_in_its_error() {
    let server = shop_with(Limits { request_time: Duration::from_secs(1), ..Limits::default() }).await;
    let steps = |then: Value| json!({ "$reduce": { "input": { "$range": [0, 3000] }, "initialValue": 0, "in": then } });
    let slow = json!({ "$expr": { "$lt": [steps(steps(json!({ "$add": ["$$value", 1] }))), 0] } });
    let documents: Vec<Value> = (0..300).map(|n| json!({ "_id": n })).collect();
    server
        .post("/v1/databases/default/collections/many/documents", json!({ "documents": documents }))
        .await
        .ok();
    for long in [
        sql("SELECT pg_sleep(25)"),
        json!({ "operations": [{ "documents": { "collection": "many", "find": { "filter": slow } } }] }),
    ] {
        let path = begin(&server).await;
        for reply in
            [run(&server, long.clone()).await, server.post(&format!("{path}/operations"), &long).await]
        {
            reply.refused(504, "timeout");
            let expected = "operations[0]: the request took longer than 1s, the setting limits.request_time";
            assert_eq!(reply.detail(), expected);
        }
    }
}

#[tokio::test]
async fn advisory_locks_of_the_transactions_of_a_caller_are_limited() {
    let limits = TransactionLimits { advisory_locks_per_caller: 2, ..TransactionLimits::default() };
    let server = with_admins(limits, &["ann", "bob"]).await;
    let lock = async |user: &str, path: &str, number: u32| {
        let body = sql(&format!("SELECT pg_advisory_xact_lock({number})"));
        ask(&server, user, "POST", path, &body).await
    };
    let first = begin_as(&server, "ann").await;
    lock("ann", &format!("{first}/operations"), 1).await.ok();
    lock("ann", &format!("{first}/operations"), 2).await.ok();
    let second = begin_as(&server, "ann").await;
    for path in [format!("{second}/operations"), "/v1/transactions".to_owned()] {
        let refused = lock("ann", &path, 3).await;
        refused.refused(429, "resource_exhausted");
        assert_eq!(refused.json()["sqlstate"], "53200");
        assert!(refused.detail().contains("the caller holds 2 advisory locks"), "{}", refused.detail());
    }
    lock("bob", "/v1/transactions", 3).await.ok();
    assert_eq!(ask(&server, "ann", "DELETE", &first, &Value::Null).await.status, 204);
    lock("ann", "/v1/transactions", 3).await.ok();
}

#[tokio::test]
async fn preconditions_count_documents_and_rows_exactly() {
    let server = shop().await;
    for id in ["o1", "o2"] {
        run(&server, order(id)).await.ok();
    }
    let documents = |count: u64| json!({ "documents": { "collection": "orders", "filter": { "sku": "rope" }, "count": count } });
    let rows =
        |expect: u64| json!({ "sql": { "sql": "SELECT doc FROM \"default\".orders", "expect": expect } });
    for (precondition, holds) in [
        (documents(0), false),
        (documents(1), false),
        (documents(2), true),
        (documents(3), false),
        (rows(0), false),
        (rows(2), true),
        (rows(3), false),
        (json!({ "sql": { "sql": "SELECT 1 FROM stock WHERE n > 9", "expect": 0 } }), true),
    ] {
        let body =
            json!({ "preconditions": [precondition], "operations": [{ "sql": { "sql": "SELECT 1" } }] });
        let reply = run(&server, body).await;
        if holds {
            assert_eq!(reply.status, 200, "{precondition}: {}", reply.text());
        } else {
            reply.refused(412, "precondition_failed");
        }
    }
}

#[tokio::test]
async fn append_with_too_many_events_is_rejected() {
    let server =
        Server::with(Limits { append_events: 2, ..Limits::default() }, HttpSettings::default()).await;
    let events = |count: usize| {
        let events = vec![json!({ "type": "A" }); count];
        json!({ "operations": [{ "append": { "store": "shop", "events": events } }] })
    };
    run(&server, events(2)).await.ok();
    let refused = run(&server, events(3)).await;
    refused.refused(413, "too_large");
    assert!(refused.detail().contains("3 events in one append; at most 2"), "{}", refused.detail());
    let path = begin(&server).await;
    server.post(&format!("{path}/operations"), events(3)).await.refused(413, "too_large");
}

#[tokio::test]
async fn errors_of_statements_hide_the_paths_of_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let serve = async || {
        let db = opened(directory.path()).await;
        let service = Service::new(db.clone(), ServiceSettings::default()).unwrap();
        (db, Server::over(service, HttpSettings::default()).await)
    };
    let (db, server) = serve().await;
    run(&server, sql("CREATE TABLE t (id int PRIMARY KEY, text text)")).await.ok();
    let rows = "SELECT n, repeat(md5(n::text), 30) FROM generate_series(1, 2000) AS g(n)";
    run(&server, sql(&format!("INSERT INTO t {rows}"))).await.ok();
    db.checkpoint().unwrap();
    drop(server);
    db.close().unwrap();
    let files = std::fs::read_dir(directory.path().join("store")).unwrap();
    let runs =
        files.map(|file| file.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "run"));
    let largest = runs.max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let mut bytes = std::fs::read(&largest).unwrap();
    // Blocks of rows; the footer is at the end.
    let (from, to) = (bytes.len() / 4, bytes.len() / 2);
    bytes[from..to].iter_mut().for_each(|byte| *byte ^= 0x55);
    std::fs::write(&largest, bytes).unwrap();
    let (_db, server) = serve().await;
    let reply = run(&server, sql("SELECT count(*), min(text) FROM t")).await;
    assert_eq!(reply.status, 500, "{}", reply.text());
    assert!(!reply.text().contains(directory.path().to_str().unwrap()), "{}", reply.text());
    assert!(reply.json()["sqlstate"].is_string(), "{}", reply.text());
}
