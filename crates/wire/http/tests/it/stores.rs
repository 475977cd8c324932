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
