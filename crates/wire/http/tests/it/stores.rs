//! Stores and statistics of the engine.

use serde_json::{Value, json};

use crate::client::Server;

#[tokio::test]
async fn stores_are_created_listed_and_read() {
    let server = Server::start().await;
    let created = server.request("PUT", "/v1/stores/a%20b", &[], b"").await;
    assert_eq!((created.status, created.json()), (201, json!({ "name": "a b", "head": null, "events": 0 })));
    server.append("a%20b", json!([{ "type": "A" }, { "type": "A" }])).await;
    server.append("c", json!([{ "type": "A" }])).await;
    let again = server.request("PUT", "/v1/stores/a%20b", &[], b"").await;
    assert_eq!(again.ok(), json!({ "name": "a b", "head": 2, "events": 2 }));
    assert_eq!(server.get("/v1/stores/c").await.ok(), json!({ "name": "c", "head": 1, "events": 1 }));
    let listed = server.get("/v1/stores").await.ok();
    let names: Vec<&Value> =
        listed["stores"].as_array().unwrap().iter().map(|store| &store["name"]).collect();
    assert_eq!(names, ["a b", "c", "default"]);
    server.request("PUT", "/v1/stores/x%0A", &[], b"").await.refused(400, "invalid_argument");
    server.request("PUT", "/v1/stores/x", &[], b"{}").await.refused(400, "invalid_argument");
}

#[tokio::test]
async fn stats_report_the_engines_state() {
    let server = Server::start().await;
    server.append("s", json!([{ "type": "A" }])).await;
    let stats = server.get("/v1/stats").await.ok();
    assert!(stats["seq"].as_u64().unwrap() > 0 && stats["log"]["syncs"].as_u64().unwrap() > 0, "{stats}");
    assert!(stats["keyspaces"].is_array());
    let operations = stats["operations"].as_array().unwrap();
    let appends = operations.iter().find(|operation| operation["operation"] == "append").unwrap();
    assert_eq!((&appends["protocol"], &appends["requests"]), (&json!("http"), &json!(1)), "{stats}");
    // Ports count their connections; this test has none.
    assert_eq!(stats["connections"], json!([]));
    let _open = server.service.metrics().connections_of("http").open();
    let stats = server.get("/v1/stats").await.ok();
    assert_eq!(stats["connections"], json!([{ "protocol": "http", "open": 1 }]));
    assert!(stats["log"]["sync_mean_micros"].is_u64(), "{stats}");
}

#[tokio::test]
async fn schema_lists_every_model_as_far_as_the_caller_may_read() {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use ropewalk::series::{Labels, SampleBatch};
    use ropewalk::tables::{ColumnDef, TableDef, Type};
    use ropewalk_auth::{Caller, Right, Roles};
    let server = Server::start().await;
    server.append("shop", json!([{ "type": "A" }, { "type": "A" }])).await;
    let path = "/v1/databases/shop/collections/orders/documents";
    server.post(path, json!({ "documents": [{ "_id": 1 }, { "_id": 2 }] })).await.ok();
    server
        .post("/v1/databases/other/collections/c/documents", json!({ "documents": [{ "_id": 1 }] }))
        .await
        .ok();
    let db = server.service.database();
    let mut samples = SampleBatch::new();
    samples.push(&Labels::new([("__name__", "up")]).unwrap(), 1, 1.0);
    db.series("metrics").unwrap().append(&samples).unwrap();
    let table = TableDef::new("stock")
        .column(ColumnDef::new("sku", Type::TEXT).not_null())
        .column(ColumnDef::new("n", Type::INT8));
    let mut tx = db.begin();
    tx.tables().create_table(table).unwrap();
    tx.commit().unwrap();
    let all = server.get("/v1/schema").await.ok();
    assert!(all["stores"].as_array().unwrap().contains(&json!({ "name": "shop", "events": 2 })), "{all}");
    let orders = &all["collections"][1];
    assert_eq!(
        (&orders["database"], &orders["name"], &orders["documents"]),
        (&json!("shop"), &json!("orders"), &json!(2))
    );
    let columns = json!([
        { "name": "sku", "type": "text", "nullable": false },
        { "name": "n", "type": "bigint", "nullable": true },
    ]);
    assert_eq!(all["tables"], json!([{ "name": "stock", "columns": columns }]));
    assert_eq!(all["series"], json!([{ "name": "metrics", "series": 1 }]));
    assert_eq!(all["truncated"], false);
    let roles = Roles::from([("shop".to_owned(), [Right::Read].into())]);
    server.service.access().create_user(&Caller::everybody(), "ann", "correct horse", roles).await.unwrap();
    let ann = format!("Basic {}", STANDARD.encode("ann:correct horse"));
    let some = server.request("GET", "/v1/schema", &[("authorization", &ann)], b"").await.ok();
    assert_eq!(some["stores"], json!([{ "name": "shop", "events": 2 }]));
    assert_eq!(some["collections"].as_array().unwrap().len(), 1);
    assert_eq!((&some["tables"], &some["series"]), (&json!([]), &json!([])));
}

#[tokio::test]
async fn live_stats_are_sent_at_once_and_at_an_interval_until_the_right_is_withdrawn() {
    use ropewalk_auth::{Caller, Right, Roles};
    let server = Server::start().await;
    let mut live = server.follow("/v1/stats/live?interval_ms=100", &[]).await;
    assert_eq!(live.header("content-type"), Some("text/event-stream"));
    let (_, event, first) = live.event().await.unwrap();
    assert_eq!(event, "stats");
    server.append("s", json!([{ "type": "A" }])).await;
    let seq = server.service.database().seq().0;
    while live.event().await.unwrap().2["seq"] != seq {}
    assert!(first["keyspaces"].is_array() && first["seq"].as_u64() < Some(seq));
    let mut lines = server.follow("/v1/stats/live?format=ndjson&interval_ms=60000", &[]).await;
    assert_eq!(lines.line().await.unwrap()["seq"], seq);
    for refused in ["99", "60001", "x"] {
        server.get(&format!("/v1/stats/live?interval_ms={refused}")).await.refused(400, "invalid_argument");
    }
    // The first user ends the rights of anonymous callers.
    let roles = Roles::from([("*".to_owned(), [Right::Admin].into())]);
    server.service.access().create_user(&Caller::everybody(), "ann", "correct horse", roles).await.unwrap();
    let problem = loop {
        let (_, event, data) = live.event().await.unwrap();
        if event == "error" {
            break data;
        }
    };
    assert_eq!(problem["code"], "unauthenticated");
    assert!(live.event().await.is_none());
}

#[tokio::test]
async fn deleted_store_is_gone_and_its_name_starts_empty() {
    let server = Server::start().await;
    server.append("s", json!([{ "type": "A" }, { "type": "A" }])).await;
    let deleted = server.request("DELETE", "/v1/stores/s", &[], b"").await;
    assert_eq!((deleted.status, deleted.body.len()), (204, 0));
    server.get("/v1/stores/s").await.refused(404, "not_found");
    server.request("DELETE", "/v1/stores/s", &[], b"").await.refused(404, "not_found");
    assert_eq!(server.append("s", json!([{ "type": "B" }])).await["first"], 1);
}
