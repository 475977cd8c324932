//! Transactions over all models, in one request and over several.

use std::collections::BTreeSet;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ropewalk_auth::{Caller, Right, Roles};
use ropewalk_http::HttpSettings;
use ropewalk_wire::{Limits, Service, ServiceSettings};
use serde_json::{Value, json};

use crate::client::{Reply, Server};

pub(crate) const JSON: (&str, &str) = ("content-type", "application/json");
pub(crate) const PASSWORD: &str = "secret";

/// A server with a table of stock.
pub(crate) async fn shop() -> Server {
    shop_with(Limits::default()).await
}

/// The same with other limits.
pub(crate) async fn shop_with(limits: Limits) -> Server {
    let server = Server::with(limits, HttpSettings::default()).await;
    let created = json!({ "operations": [
        { "sql": { "sql": "CREATE TABLE stock (sku text PRIMARY KEY, n int NOT NULL CHECK (n >= 0))" } },
        { "sql": { "sql": "INSERT INTO stock VALUES ('rope', 3)" } },
        { "documents": { "collection": "orders", "insert": { "_id": 0 } } },
        { "documents": { "collection": "orders", "delete": { "filter": {} } } },
    ]});
    run(&server, created).await.ok();
    server
}

pub(crate) async fn run(server: &Server, body: Value) -> Reply {
    server.post("/v1/transactions", body).await
}

pub(crate) async fn run_with_key(server: &Server, key: &str, body: &Value) -> Reply {
    let headers = [JSON, ("idempotency-key", key)];
    server.request("POST", "/v1/transactions", &headers, body.to_string().as_bytes()).await
}

/// The order `id` of one rope: an event, a row, a document and a sample.
pub(crate) fn order(id: &str) -> Value {
    let tag = format!("order:{id}");
    json!({ "operations": [
        { "append": { "store": "shop", "events": [{ "type": "OrderPlaced", "tags": [tag], "data": { "n": 1 } }],
            "conditions": [{ "fail_if_events_match": { "items": [{ "tags": [tag] }] } }] } },
        { "sql": { "sql": "UPDATE stock SET n = n - $1 WHERE sku = $2", "params": [1, "rope"], "expect": 1 } },
        { "documents": { "collection": "orders", "insert": { "_id": id, "sku": "rope" } } },
        { "samples": { "series": [{ "labels": { "__name__": "sold", "sku": "rope" }, "samples": [[1000, 1]] }] } },
    ]})
}

/// Events, documents, samples and the rows' total, by SQL in one snapshot.
pub(crate) async fn counts(server: &Server) -> Value {
    let sql = "SELECT (SELECT count(*) FROM events.shop), (SELECT count(*) FROM \"default\".orders), \
               (SELECT count(*) FROM metrics.sold), (SELECT n FROM stock)";
    let read = json!({ "operations": [{ "sql": { "sql": sql } }] });
    run(server, read).await.ok()["results"][0]["rows"][0].clone()
}

#[tokio::test]
async fn transaction_over_four_models_is_one_commit() {
    let server = shop().await;
    let before = server.service.database().seq().0;
    let done = run(&server, order("o1")).await.ok();
    assert_eq!(done["seq"], before + 1);
    assert_eq!(done["repeated"], false);
    assert_eq!(
        done["results"],
        json!([{ "first": 1, "last": 1 }, { "command": "UPDATE 1" }, { "id": "o1" }, { "samples": 1 }])
    );
    assert_eq!(counts(&server).await, json!([1, 1, 1, 2]));
}

#[tokio::test]
async fn failed_operation_rolls_back_all_models_and_is_named() {
    let server = shop().await;
    run(&server, order("o1")).await.ok();
    for (change, status, code, operation) in [
        // The condition of the append.
        (json!(null), 409, "condition_failed", None),
        (json!({ "sql": { "sql": "UPDATE stock SET n = n - 9" } }), 400, "invalid_argument", Some(4)),
        (
            json!({ "sql": { "sql": "UPDATE stock SET n = 1 WHERE sku = 'x'", "expect": 1 } }),
            412,
            "precondition_failed",
            Some(4),
        ),
        (
            json!({ "documents": { "collection": "orders", "insert": { "_id": "o1" } } }),
            409,
            "already_exists",
            Some(4),
        ),
        (json!({ "sql": { "sql": "COMMIT" } }), 400, "invalid_argument", Some(4)),
        (
            json!({ "documents": { "collection": "orders", "get": "none", "expect": 1 } }),
            412,
            "precondition_failed",
            Some(4),
        ),
        (
            json!({ "checkpoint": { "store": "shop", "consumer": "c", "position": 99 } }),
            400,
            "invalid_argument",
            Some(4),
        ),
    ] {
        let mut body = order(if change.is_null() { "o1" } else { "o2" });
        if change.is_null() {
            // Only the condition may fail.
            body["operations"].as_array_mut().unwrap().truncate(2);
        } else {
            body["operations"].as_array_mut().unwrap().push(change.clone());
        }
        let reply = run(&server, body).await;
        assert_eq!(reply.problem(), (status, code.to_owned()), "{change}: {}", reply.text());
        assert_eq!(reply.json()["operation"].as_u64(), operation, "{}", reply.text());
        assert_eq!(counts(&server).await, json!([1, 1, 1, 2]), "{change}");
    }
    let violated = json!({ "operations": [{ "sql": { "sql": "UPDATE stock SET n = -1" } }] });
    let problem = run(&server, violated).await.json();
    assert_eq!(
        (problem["sqlstate"].as_str(), problem["constraint"].as_str()),
        (Some("23514"), Some("stock_n_check"))
    );
}

#[tokio::test]
async fn operations_see_the_writes_of_those_before_them() {
    let server = shop().await;
    let body = json!({ "operations": [
        { "append": { "store": "shop", "events": [{ "type": "A", "data": [1] }] } },
        { "read": { "store": "shop", "query": { "items": [{ "types": ["A"] }] } } },
        { "documents": { "collection": "orders", "insert": { "_id": 1, "n": 1 } } },
        { "documents": { "collection": "orders", "update": { "filter": { "_id": 1 }, "update": { "$inc": { "n": 1 } } } } },
        { "documents": { "collection": "orders", "find": { "filter": {} } } },
        { "sql": { "sql": "UPDATE stock SET n = 7 RETURNING sku, n" } },
        { "sql": { "sql": "SELECT doc->>'n' AS n FROM \"default\".orders" } },
        { "append": { "store": "shop", "events": [{ "type": "B" }, { "type": "C" }] } },
    ]});
    let results = run(&server, body).await.ok()["results"].clone();
    assert_eq!(results[0], json!({ "first": 1, "last": 1 }));
    assert_eq!(results[1]["events"][0]["data"], json!([1]));
    assert_eq!(results[4], json!({ "documents": [{ "_id": 1, "n": 2 }] }));
    assert_eq!(results[5]["rows"], json!([["rope", 7]]));
    assert_eq!(results[6]["rows"], json!([["2"]]));
    assert_eq!(results[7], json!({ "first": 2, "last": 3 }));
}

#[tokio::test]
async fn preconditions_hold_at_the_commit_or_nothing_is_written() {
    let server = shop().await;
    run(&server, order("o1")).await.ok();
    let write = json!([{ "sql": { "sql": "UPDATE stock SET n = n" } }]);
    for (precondition, holds) in [
        (
            json!({ "events": { "store": "shop", "query": { "items": [{ "tags": ["order:o1"] }] }, "after": 1 } }),
            true,
        ),
        (json!({ "events": { "store": "shop", "query": { "items": [{ "tags": ["order:o1"] }] } } }), false),
        (json!({ "documents": { "collection": "orders", "filter": { "_id": "o1", "sku": "rope" } } }), true),
        (json!({ "documents": { "collection": "orders", "filter": { "_id": "o1", "sku": "x" } } }), false),
        (json!({ "sql": { "sql": "SELECT 1 FROM stock WHERE n = $1", "params": [2] } }), true),
        (json!({ "sql": { "sql": "SELECT 1 FROM stock WHERE n = $1", "params": [3] } }), false),
    ] {
        let reply = run(&server, json!({ "preconditions": [precondition], "operations": write })).await;
        if holds {
            assert_eq!(reply.ok()["results"].as_array().unwrap().len(), 1, "{precondition}");
        } else {
            reply.refused(412, "precondition_failed");
            assert!(reply.detail().starts_with("preconditions[0]: "), "{}", reply.detail());
        }
    }
}

#[tokio::test]
async fn repeated_request_with_key_returns_the_first_result_and_writes_nothing() {
    let server = shop().await;
    let first = run_with_key(&server, "k1", &order("o1")).await.ok();
    run(
        &server,
        json!({ "operations": [{ "append": { "store": "shop", "events": [{ "type": "Other" }] } }] }),
    )
    .await
    .ok();
    let mut again = run_with_key(&server, "k1", &order("o1")).await.ok();
    assert_eq!(again["repeated"], true);
    again["repeated"] = json!(false);
    assert_eq!(again, first);
    assert_eq!(counts(&server).await, json!([2, 1, 1, 2]));
    run_with_key(&server, "k1", &order("o2")).await.refused(422, "idempotency_mismatch");
    // A failed transaction stores no result.
    run_with_key(&server, "k2", &order("o1")).await.refused(409, "already_exists");
    run_with_key(&server, "k2", &order("o2")).await.ok();
    run_with_key(&server, "", &order("o3")).await.refused(400, "invalid_argument");
}

#[tokio::test]
async fn concurrent_repetitions_of_a_key_write_once() {
    let server = std::sync::Arc::new(shop().await);
    let body = json!({ "operations": [
        { "append": { "store": "shop", "events": [{ "type": "A" }] } },
        { "sql": { "sql": "UPDATE stock SET n = n + 1" } },
    ]});
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..40 {
        let (server, body) = (server.clone(), body.clone());
        tasks.spawn(async move { run_with_key(&server, &format!("k{}", number % 4), &body).await.ok() });
    }
    let answers = tasks.join_all().await;
    assert_eq!(answers.iter().filter(|answer| answer["repeated"] == false).count(), 4);
    let seqs: BTreeSet<u64> = answers.iter().map(|answer| answer["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs.len(), 4);
    let rows = json!({ "operations": [{ "sql": { "sql": "SELECT n, (SELECT count(*) FROM events.shop) FROM stock" } }] });
    assert_eq!(run(&server, rows).await.ok()["results"][0]["rows"], json!([[7, 4]]));
}

#[tokio::test]
async fn concurrent_transactions_are_serializable_and_retried() {
    let server = std::sync::Arc::new(shop().await);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..30 {
        let server = server.clone();
        tasks.spawn(async move {
            let body = json!({ "operations": [
                { "sql": { "sql": "UPDATE stock SET n = n + 1" } },
                { "documents": { "collection": "totals", "update": { "filter": { "_id": 1 }, "update": { "$inc": { "n": 1 } }, "upsert": true } } },
            ]});
            run(&server, body).await.ok();
        });
    }
    tasks.join_all().await;
    let sql = "SELECT n, (SELECT doc->>'n' FROM \"default\".totals) FROM stock";
    let read = json!({ "operations": [{ "sql": { "sql": sql } }] });
    assert_eq!(run(&server, read).await.ok()["results"][0]["rows"], json!([[33, "30"]]));
}

#[tokio::test]
async fn statement_that_is_no_longer_brief_has_the_same_result() {
    let server = shop().await;
    let change = json!({ "operations": [
        { "append": { "store": "shop", "events": [{ "type": "Bought" }] } },
        { "sql": { "sql": "UPDATE stock SET n = n + $1 WHERE sku = $2", "params": [1, "rope"], "expect": 1 } },
    ]});
    for _ in 0..3 {
        run(&server, change.clone()).await.ok();
    }
    // The same text then reads all rows.
    for statement in [
        "DROP TABLE stock",
        "CREATE TABLE stock (id int PRIMARY KEY, sku text, n int)",
        "INSERT INTO stock VALUES (1, 'rope', 3), (2, 'tar', 5)",
    ] {
        run(&server, json!({ "operations": [{ "sql": { "sql": statement } }] })).await.ok();
    }
    for _ in 0..2 {
        run(&server, change.clone()).await.ok();
    }
    let read = json!({ "operations": [{ "sql": { "sql": "SELECT n, (SELECT count(*) FROM events.shop) FROM stock ORDER BY id" } }] });
    assert_eq!(run(&server, read).await.ok()["results"][0]["rows"], json!([[5, 5], [5, 5]]));
    run(&server, json!({ "operations": [{ "sql": { "sql": "DROP TABLE stock" } }] })).await.ok();
    let refused = run(&server, change).await;
    assert_eq!(refused.json()["operation"], 1, "{}", refused.text());
}

#[tokio::test]
async fn checkpoint_fences_a_second_worker() {
    let server = shop().await;
    server.append("shop", json!([{ "type": "A" }, { "type": "B" }])).await;
    let step = |expect: u64, position: u64| {
        json!({ "operations": [
            { "sql": { "sql": "UPDATE stock SET n = n + 1" } },
            { "checkpoint": { "store": "shop", "consumer": "board", "position": position, "expect": expect } },
        ]})
    };
    run(&server, step(0, 1)).await.ok();
    run(&server, step(0, 1)).await.refused(412, "precondition_failed");
    run(&server, step(1, 2)).await.ok();
    let read = json!({ "operations": [{ "sql": { "sql": "SELECT n FROM stock" } }] });
    assert_eq!(run(&server, read).await.ok()["results"][0]["rows"], json!([[5]]));
    assert_eq!(server.get("/v1/stores/shop/checkpoints/board").await.ok()["position"], 2);
}

#[tokio::test]
async fn each_operation_is_checked_as_if_it_came_alone() {
    let server = shop().await;
    run(&server, order("o1")).await.ok();
    let grants: [(&str, &str, &[Right]); 5] = [
        ("appender", "shop", &[Right::Append]),
        ("reader", "shop", &[Right::Read]),
        ("keeper", "default", &[Right::Append]),
        ("sql-reader", "*", &[Right::Read]),
        ("admin", "*", &[Right::Admin]),
    ];
    for (name, store, rights) in grants {
        let roles = Roles::from([(store.to_owned(), BTreeSet::from_iter(rights.iter().copied()))]);
        server.service.access().create_user(&Caller::everybody(), name, PASSWORD, roles).await.unwrap();
    }
    let operations = [
        ("append", json!({ "append": { "store": "shop", "events": [{ "type": "A" }] } })),
        ("read", json!({ "read": { "store": "shop" } })),
        ("insert", json!({ "documents": { "collection": "orders", "insert": {} } })),
        ("find", json!({ "documents": { "collection": "orders", "find": {} } })),
        (
            "update",
            json!({ "documents": { "collection": "orders", "update": { "filter": {}, "update": { "$set": { "a": 1 } } } } }),
        ),
        (
            "samples",
            json!({ "samples": { "series": [{ "labels": { "__name__": "m" }, "samples": [[1, 1]] }] } }),
        ),
        ("select", json!({ "sql": { "sql": "SELECT 1 FROM stock" } })),
        ("sql update", json!({ "sql": { "sql": "UPDATE stock SET n = n" } })),
        ("ddl", json!({ "sql": { "sql": "CREATE TABLE IF NOT EXISTS u (id int)" } })),
        ("checkpoint", json!({ "checkpoint": { "store": "shop", "consumer": "c", "position": 1 } })),
    ];
    let allowed: [(&str, &[&str]); 5] = [
        ("appender", &["append"]),
        ("reader", &["read", "checkpoint"]),
        ("keeper", &["insert", "samples"]),
        ("sql-reader", &["read", "find", "select", "checkpoint"]),
        (
            "admin",
            &[
                "append",
                "read",
                "insert",
                "find",
                "update",
                "samples",
                "select",
                "sql update",
                "ddl",
                "checkpoint",
            ],
        ),
    ];
    for (name, allowed) in allowed {
        let credentials = format!("Basic {}", STANDARD.encode(format!("{name}:{PASSWORD}")));
        let headers = [JSON, ("authorization", credentials.as_str())];
        for (kind, operation) in &operations {
            let body = json!({ "operations": [operation] }).to_string();
            let reply = server.request("POST", "/v1/transactions", &headers, body.as_bytes()).await;
            let expected = if allowed.contains(kind) { 200 } else { 403 };
            assert_eq!(reply.status, expected, "{name}: {kind}: {}", reply.text());
        }
    }
    let anonymous = run(&server, json!({ "operations": [{ "read": { "store": "shop" } }] })).await;
    anonymous.refused(401, "unauthenticated");
}

#[tokio::test]
async fn open_transaction_commits_once_and_sees_its_writes() {
    let server = shop().await;
    let begun = server.post("/v1/transactions/begin", json!({})).await;
    assert_eq!(begun.status, 201, "{}", begun.text());
    let path = format!("/v1/transactions/{}", begun.json()["transaction"].as_str().unwrap());
    let operations = json!({ "operations": order("o1")["operations"] });
    let done = server.post(&format!("{path}/operations"), operations).await.ok();
    assert_eq!(done["results"][0], json!({ "first": null, "last": null }));
    let read = json!({ "operations": [{ "sql": { "sql": "SELECT n FROM stock" } }] });
    let own = server.post(&format!("{path}/operations"), read).await.ok();
    assert_eq!(own["results"][0]["rows"], json!([[2]]));
    assert_eq!(counts(&server).await, json!([0, 0, 0, 3]), "before the commit");
    let committed = server.request("POST", &format!("{path}/commit"), &[], b"").await.ok();
    assert_eq!(committed["appended"], json!([{ "store": "shop", "first": 1, "last": 1 }]));
    assert_eq!(counts(&server).await, json!([1, 1, 1, 2]));
    server.request("POST", &format!("{path}/commit"), &[], b"").await.refused(404, "not_found");
}

#[tokio::test]
async fn open_transaction_ends_by_rollback_error_and_conflict() {
    let server = shop().await;
    let begin = || async {
        let begun = server.post("/v1/transactions/begin", json!({})).await;
        format!("/v1/transactions/{}", begun.json()["transaction"].as_str().unwrap())
    };
    let update = json!({ "operations": [{ "sql": { "sql": "UPDATE stock SET n = n + 1" } }] });
    let path = begin().await;
    server.post(&format!("{path}/operations"), &update).await.ok();
    assert_eq!(server.request("DELETE", &path, &[], b"").await.status, 204);
    server.post(&format!("{path}/operations"), &update).await.refused(404, "not_found");

    let path = begin().await;
    let wrong = json!({ "operations": [{ "sql": { "sql": "UPDATE nothing SET n = 1" } }] });
    assert_eq!(server.post(&format!("{path}/operations"), wrong).await.problem().0, 404);
    server.post(&format!("{path}/operations"), &update).await.refused(404, "not_found");

    let path = begin().await;
    server.post(&format!("{path}/operations"), &update).await.ok();
    run(&server, update.clone()).await.ok();
    server.request("POST", &format!("{path}/commit"), &[], b"").await.refused(409, "key_conflict");
    assert_eq!(counts(&server).await[3], 4);
    server.post("/v1/transactions/xyz/operations", &update).await.refused(404, "not_found");
}

#[tokio::test]
async fn open_transactions_are_private_and_limited() {
    let server = shop().await;
    for name in ["ann", "bob"] {
        let roles = Roles::from([("*".to_owned(), BTreeSet::from([Right::Admin]))]);
        server.service.access().create_user(&Caller::everybody(), name, PASSWORD, roles).await.unwrap();
    }
    let ask = |name: &str, method: &'static str, path: String| {
        let credentials = format!("Basic {}", STANDARD.encode(format!("{name}:{PASSWORD}")));
        let server = &server;
        async move {
            let headers = [JSON, ("authorization", credentials.as_str())];
            server.request(method, &path, &headers, if method == "POST" { b"{}" } else { b"" }).await
        }
    };
    let begun = ask("ann", "POST", "/v1/transactions/begin".to_owned()).await.json();
    let path = format!("/v1/transactions/{}", begun["transaction"].as_str().unwrap());
    ask("bob", "DELETE", path.clone()).await.refused(404, "not_found");
    assert_eq!(ask("ann", "DELETE", path).await.status, 204);
    for _ in 0..256 {
        assert_eq!(ask("ann", "POST", "/v1/transactions/begin".to_owned()).await.status, 201);
    }
    ask("ann", "POST", "/v1/transactions/begin".to_owned()).await.refused(429, "resource_exhausted");
    assert_eq!(ask("bob", "POST", "/v1/transactions/begin".to_owned()).await.status, 201);
}

#[tokio::test]
async fn results_of_keys_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let open = || {
        Service::new(ropewalk::Database::open(directory.path()).unwrap(), ServiceSettings::default()).unwrap()
    };
    let body = json!({ "operations": [{ "append": { "store": "shop", "events": [{ "type": "A" }, { "type": "B" }] } }] });
    let server = Server::over(open(), HttpSettings::default()).await;
    server.append("shop", json!([{ "type": "Before" }])).await;
    let first = run_with_key(&server, "k", &body).await.ok();
    server.service.stop().begin();
    drop(server);
    // The sweep holds the database until its next turn.
    let mut server = None;
    for _ in 0..100 {
        match ropewalk::Database::open(directory.path()) {
            Ok(db) => {
                let service = Service::new(db, ServiceSettings::default()).unwrap();
                server = Some(Server::over(service, HttpSettings::default()).await);
                break;
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    let server = server.expect("the database is closed");
    let again = run_with_key(&server, "k", &body).await.ok();
    assert_eq!((&again["seq"], &again["results"]), (&first["seq"], &json!([{ "first": 2, "last": 3 }])));
    assert_eq!(again["repeated"], true);
}

#[tokio::test]
async fn no_statement_ends_the_transaction_of_its_request() {
    let server = shop().await;
    for (first, second) in [
        ("PREPARE c AS COMMIT", "EXECUTE c"),
        ("PREPARE c AS ROLLBACK", "EXECUTE c"),
        ("COMMIT", "SELECT 1"),
        ("ROLLBACK", "SELECT 1"),
        ("SAVEPOINT s", "SELECT 1"),
        ("BEGIN", "SELECT 1"),
        ("DISCARD ALL", "SELECT 1"),
    ] {
        let body = json!({ "operations": [
            { "append": { "store": "shop", "events": [{ "type": "A" }] } },
            { "sql": { "sql": "UPDATE stock SET n = n + 1" } },
            { "sql": { "sql": first } },
            { "sql": { "sql": second } },
            { "sql": { "sql": "SELECT 1 FROM stock WHERE false", "expect": 1 } },
        ]});
        let reply = run(&server, body).await;
        assert_eq!(reply.json()["sqlstate"], "0A000", "{first}: {}", reply.text());
        assert_eq!(counts(&server).await, json!([0, 0, 0, 3]), "{first}");
    }
}

#[tokio::test]
async fn appends_report_their_positions_after_appends_of_statements() {
    let server = shop().await;
    let body = json!({ "operations": [
        { "sql": { "sql": "SELECT append_event('T', ARRAY['x'], '1', store => 'a')" } },
        { "append": { "store": "b", "events": [{ "type": "X" }, { "type": "Y" }] } },
        { "sql": { "sql": "SELECT append_event('T', ARRAY['x'], '1', store => 'b')" } },
        { "append": { "store": "b", "events": [{ "type": "Z" }] } },
        { "append": { "store": "a", "events": [{ "type": "Z" }] } },
    ]});
    let done = run_with_key(&server, "k", &body).await.ok();
    let results = |answer: &Value| json!([answer["results"][1], answer["results"][3], answer["results"][4]]);
    let expected = json!([{ "first": 1, "last": 2 }, { "first": 4, "last": 4 }, { "first": 2, "last": 2 }]);
    assert_eq!(results(&done), expected);
    let again = run_with_key(&server, "k", &body).await.ok();
    assert_eq!((again["repeated"].clone(), results(&again)), (json!(true), expected));
}

#[tokio::test]
async fn concurrent_copies_with_a_condition_all_get_the_result() {
    let server = std::sync::Arc::new(shop().await);
    for round in 0..5 {
        let tag = format!("order:{round}");
        let body = json!({ "operations": [{ "append": {
            "store": "shop", "events": [{ "type": "A", "tags": [tag] }],
            "conditions": [{ "fail_if_events_match": { "items": [{ "tags": [tag] }] } }],
        } }]});
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let (server, body) = (server.clone(), body.clone());
            tasks.spawn(async move { run_with_key(&server, &format!("k{round}"), &body).await.ok() });
        }
        let answers = tasks.join_all().await;
        assert_eq!(answers.iter().filter(|answer| answer["repeated"] == false).count(), 1, "{answers:?}");
        // Another request with the same condition still fails.
        run_with_key(&server, "other", &body).await.refused(409, "condition_failed");
    }
}

#[tokio::test]
async fn transaction_that_writes_nothing_stores_no_result() {
    let server = shop().await;
    let before = server.service.database().seq();
    for statement in ["SET search_path = public", "SELECT n FROM stock"] {
        let body = json!({ "operations": [{ "sql": { "sql": statement } }] });
        for _ in 0..2 {
            assert_eq!(run_with_key(&server, statement, &body).await.ok()["repeated"], false, "{statement}");
        }
    }
    assert_eq!(server.service.database().seq(), before);
    let writing = json!({ "preconditions": [{ "sql": { "sql": "UPDATE stock SET n = 1" } }],
        "operations": [{ "sql": { "sql": "SELECT 1" } }] });
    assert_eq!(run(&server, writing).await.json()["sqlstate"], "0A000");
}

#[tokio::test]
async fn token_with_the_name_of_a_user_is_another_caller() {
    let server = shop().await;
    let all = Caller::everybody();
    let access = server.service.access();
    let admin = || Roles::from([("*".to_owned(), BTreeSet::from([Right::Admin]))]);
    access.create_user(&all, "ann", PASSWORD, admin()).await.unwrap();
    let basic = format!("Basic {}", STANDARD.encode(format!("ann:{PASSWORD}")));
    let headers = [JSON, ("authorization", basic.as_str())];
    let made = server
        .request("POST", "/v1/tokens", &headers, br#"{"name": "ann", "roles": {"*": ["admin"]}}"#)
        .await;
    assert!(made.status < 300, "{}", made.text());
    let bearer = format!("Bearer {}", made.json()["token"].as_str().unwrap());
    let begun = server.request("POST", "/v1/transactions/begin", &headers, b"{}").await.json();
    let path = format!("/v1/transactions/{}", begun["transaction"].as_str().unwrap());
    let token = [JSON, ("authorization", bearer.as_str())];
    server.request("DELETE", &path, &token, b"").await.refused(404, "not_found");
    let key = |authorization| [JSON, ("idempotency-key", "k"), ("authorization", authorization)];
    let body = json!({ "operations": [{ "sql": { "sql": "UPDATE stock SET n = n + 1" } }] }).to_string();
    for authorization in [basic.as_str(), bearer.as_str()] {
        let reply = server.request("POST", "/v1/transactions", &key(authorization), body.as_bytes()).await;
        assert_eq!(reply.ok()["repeated"], false);
    }
    assert_eq!(server.request("DELETE", &path, &headers, b"").await.status, 204);
}

#[tokio::test]
async fn withdrawn_rights_end_an_open_transaction_at_its_commit() {
    let server = shop().await;
    let all = Caller::everybody();
    let roles = Roles::from([("shop".to_owned(), BTreeSet::from([Right::Append]))]);
    server.service.access().create_user(&all, "ann", PASSWORD, roles).await.unwrap();
    let basic = format!("Basic {}", STANDARD.encode(format!("ann:{PASSWORD}")));
    let headers = [JSON, ("authorization", basic.as_str())];
    let begun = server.request("POST", "/v1/transactions/begin", &headers, b"{}").await.json();
    let path = format!("/v1/transactions/{}", begun["transaction"].as_str().unwrap());
    let append = json!({ "operations": [{ "append": { "store": "shop", "events": [{ "type": "A" }] } }] });
    let path_of_operations = format!("{path}/operations");
    server.request("POST", &path_of_operations, &headers, append.to_string().as_bytes()).await.ok();
    server.service.access().revoke(&all, "ann", "shop", Right::Append).await.unwrap();
    let committed = server.request("POST", &format!("{path}/commit"), &headers, b"").await;
    committed.refused(403, "permission_denied");
}
