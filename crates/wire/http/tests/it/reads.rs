//! Reads, counts and other queries of events.

use serde_json::{Value, json};

use crate::client::Server;

const EVENTS: &str = "/v1/stores/s/events";

fn positions(read: &Value) -> Vec<u64> {
    read["events"].as_array().unwrap().iter().map(|event| event["position"].as_u64().unwrap()).collect()
}

async fn filled() -> Server {
    let server = Server::start().await;
    let event = |n: u64| json!({ "type": if n.is_multiple_of(2) { "Even" } else { "Odd" }, "tags": [format!("mod3:{}", n % 3), "all"], "data": n });
    server.append("s", (1..=10).map(event).collect()).await;
    server
}

#[tokio::test]
async fn queries_by_address_and_by_body_are_the_same() {
    let server = filled().await;
    let cases = [
        ("", json!({}), vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        ("?type=Even", json!({ "query": { "items": [{ "types": ["Even"] }] } }), vec![2, 4, 6, 8, 10]),
        (
            "?type=Even&type=Odd&tag=mod3:0",
            json!({ "query": { "items": [{ "types": ["Even", "Odd"], "tags": ["mod3:0"] }] } }),
            vec![3, 6, 9],
        ),
        (
            "?tag=mod3:0&tag=all&backwards=true&limit=2",
            json!({ "query": { "items": [{ "tags": ["mod3:0", "all"], "types": null }] }, "backwards": true, "limit": 2 }),
            vec![9, 6],
        ),
        (
            "?type_prefix=Ev&tag_prefix=mod3:2",
            json!({ "query": { "items": [{ "type_prefixes": ["Ev"], "tag_prefixes": ["mod3:2"] }] } }),
            vec![2, 8],
        ),
        (
            "?tag=mod3:1&tag_prefix=al&type=Odd&type_prefix=X",
            json!({ "query": { "items": [{ "tags": ["mod3:1"], "tag_prefixes": ["al"], "types": ["Odd"], "type_prefixes": ["X"] }] } }),
            vec![1, 7],
        ),
        ("?from=4&before=8", json!({ "from": 4, "before": 8 }), vec![4, 5, 6, 7]),
        ("?after=4&limit=1", json!({ "after": 4, "limit": 1 }), vec![5]),
        ("?from=4&backwards", json!({ "from": 4, "backwards": true }), vec![4, 3, 2, 1]),
        ("?limit=0", json!({ "limit": 0 }), vec![]),
        (
            "?query=%7B%22items%22%3A%5B%7B%22types%22%3A%5B%22Odd%22%5D%7D%5D%7D&limit=1",
            json!({ "query": { "items": [{ "types": ["Odd"] }] }, "limit": 1 }),
            vec![1],
        ),
    ];
    for (address, body, expected) in cases {
        let got = server.get(&format!("{EVENTS}{address}")).await;
        assert_eq!(got.header("ropewalk-head"), Some("10"));
        assert_eq!(got.header("content-type"), Some("application/json"));
        let got = got.ok();
        let posted = server.post("/v1/stores/s/events:query", &body).await.ok();
        assert_eq!(got, posted, "{address}");
        assert_eq!((got["head"].as_u64(), positions(&got)), (Some(10), expected), "{address}");
    }
}

#[tokio::test]
async fn ndjson_is_returned_on_request() {
    let server = filled().await;
    for (method, path, body) in [("GET", EVENTS, ""), ("POST", "/v1/stores/s/events:query", "{}")] {
        let headers = [("accept", "application/x-ndjson"), ("content-type", "application/json")];
        let reply = server.request(method, path, &headers, body.as_bytes()).await;
        assert_eq!(reply.header("content-type"), Some("application/x-ndjson"));
        assert_eq!(reply.header("ropewalk-head"), Some("10"));
        let lines: Vec<Value> =
            reply.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 10);
        assert!(lines.iter().enumerate().all(|(n, line)| line["position"] == n as u64 + 1));
    }
    server.request("GET", EVENTS, &[("accept", "text/html")], b"").await.refused(406, "not_acceptable");
}

#[tokio::test]
async fn exact_payloads_preserve_every_byte() {
    let server = Server::start().await;
    let pretty = "ewogICJhIjogMQp9Cg=="; // an object over three lines, with a line break at its end
    server.append("s", json!([{ "type": "A", "data_base64": pretty }, { "type": "B" }])).await;
    assert_eq!(server.get(EVENTS).await.ok()["events"][0]["data"], json!({ "a": 1 }));
    let exact = [("accept", "application/x-ndjson; payload=base64")];
    for path in [EVENTS, "/v1/changes?last=1"] {
        let reply = server.request("GET", path, &exact, b"").await;
        assert_eq!(reply.header("content-type"), Some("application/x-ndjson; payload=base64"));
        assert!(reply.text().contains(&format!("\"data_base64\":\"{pretty}\"")), "{}", reply.text());
    }
}

#[tokio::test]
async fn last_count_and_exists_return_no_event_list() {
    let server = filled().await;
    let even = json!({ "query": { "items": [{ "types": ["Even"] }] } });
    for reply in [
        server.get("/v1/stores/s/events:last?type=Even").await,
        server.post("/v1/stores/s/events:last", &even).await,
    ] {
        assert_eq!(reply.ok()["event"]["position"], 10);
    }
    assert_eq!(server.get("/v1/stores/s/events:last?type=None").await.ok(), json!({ "event": null }));
    for reply in [
        server.get("/v1/stores/s/events:count?type=Even").await,
        server.post("/v1/stores/s/events:count", &even).await,
    ] {
        assert_eq!(reply.ok(), json!({ "count": 5 }));
    }
    assert_eq!(server.get("/v1/stores/s/events:count").await.ok(), json!({ "count": 10 }));
    for (after, exists) in [(9, true), (10, false)] {
        let got = server.get(&format!("/v1/stores/s/events:exists?type=Even&after={after}")).await.ok();
        let body = json!({ "query": even["query"], "after": after });
        let posted = server.post("/v1/stores/s/events:exists", body).await.ok();
        assert_eq!((got, posted), (json!({ "exists": exists }), json!({ "exists": exists })));
    }
}

#[tokio::test]
async fn head_has_an_etag() {
    let server = Server::start().await;
    server.request("PUT", "/v1/stores/s", &[], b"").await;
    let empty = server.get("/v1/stores/s/head").await;
    assert_eq!(empty.header("etag"), Some("\"0\""));
    assert_eq!(empty.ok(), json!({ "head": null }));
    server.append("s", json!([{ "type": "A" }])).await;
    let reply = server.get("/v1/stores/s/head").await;
    assert_eq!((reply.header("etag"), reply.header("cache-control")), (Some("\"1\""), Some("no-cache")));
    assert_eq!(reply.ok(), json!({ "head": 1 }));
    for known in ["\"1\"", "W/\"1\"", "\"0\", \"1\"", "*"] {
        let same = server.request("GET", "/v1/stores/s/head", &[("if-none-match", known)], b"").await;
        assert_eq!((same.status, same.body.len(), same.header("etag")), (304, 0, Some("\"1\"")), "{known}");
    }
    server.append("s", json!([{ "type": "A" }])).await;
    let changed = server.request("GET", "/v1/stores/s/head", &[("if-none-match", "\"1\"")], b"").await;
    assert_eq!(changed.ok(), json!({ "head": 2 }));
    let head = server.request("HEAD", "/v1/stores/s/head", &[], b"").await;
    assert_eq!((head.status, head.header("etag"), head.body.len()), (200, Some("\"2\""), 0));
}

#[tokio::test]
async fn invalid_parameters_are_rejected_by_name() {
    let server = filled().await;
    let wrong = [
        ("events?typo=1", "\"typo\""),
        ("events?limit=-1", "\"limit\""),
        ("events?limit=1&limit=2", "2 times"),
        ("events?from=x", "\"from\""),
        ("events?backwards=maybe", "\"backwards\""),
        ("events?query=%7B", "\"query\""),
        ("events?query=%7B%22item%22%3A1%7D", "unknown field `item`"),
        ("events?query=%7B%7D&type=A", "excludes"),
        ("events?tag=%FF", "UTF-8"),
        ("events?type=", "empty"),
        ("events:count?after=1", "\"after\""),
        ("events:last?limit=1", "\"limit\""),
        ("subscribe?format=xml", "\"format\""),
        ("subscribe?after=x", "\"after\""),
        ("subscribe?limit=1", "\"limit\""),
    ];
    for (path, expected) in wrong {
        let reply = server.get(&format!("/v1/stores/s/{path}")).await;
        reply.refused(400, "invalid_argument");
        assert!(reply.detail().contains(expected), "{path}: {}", reply.detail());
    }
}

#[tokio::test]
async fn unknown_stores_are_not_found_when_they_must_exist() {
    let server = Server::start().await;
    server.get("/v1/stores/none").await.refused(404, "not_found");
    for path in [
        "/events",
        "/events:last",
        "/events:count",
        "/events:exists",
        "/head",
        "/subscribe",
        "/tracking/x",
        "/groups",
        "/checkpoints",
        "/checkpoints/c",
    ] {
        server.get(&format!("/v1/stores/none{path}?must_exist=true")).await.refused(404, "not_found");
        server.get(&format!("/v1/stores/none{path}?must_exist=yes")).await.refused(400, "invalid_argument");
    }
    for path in ["/events:query", "/events:last", "/events:count", "/events:exists"] {
        server.post(&format!("/v1/stores/none{path}?must_exist"), "{}").await.refused(404, "not_found");
        server.post(&format!("/v1/stores/none{path}?other=1"), "{}").await.refused(400, "invalid_argument");
    }
    server
        .post("/v1/stores/%00/events", json!({ "events": [{ "type": "A" }] }))
        .await
        .refused(400, "invalid_argument");
    server.get("/v1/stores/%FF/head").await.refused(400, "invalid_argument");
}

#[tokio::test]
async fn d1_20_store_that_does_not_exist_reads_as_empty() {
    let server = Server::start().await;
    for (path, expected) in [
        ("events", json!({ "events": [] })),
        ("events:last", json!({ "event": null })),
        ("events:count", json!({ "count": 0 })),
        ("events:exists", json!({ "exists": false })),
        ("head", json!({ "head": null })),
        ("tracking/x", json!({ "source": "x", "position": null })),
        ("groups", json!({ "groups": [] })),
        ("checkpoints", json!({ "checkpoints": [] })),
        ("checkpoints/c", json!({ "consumer": "c", "position": null })),
    ] {
        let found = server.get(&format!("/v1/stores/none/{path}")).await.ok();
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(&found[name], value, "{path}");
        }
        server.get(&format!("/v1/stores/none/{path}?must_exist=false")).await.ok();
    }
    for path in ["events:query", "events:last", "events:count", "events:exists"] {
        server.post(&format!("/v1/stores/none/{path}"), "{}").await.ok();
    }
    // No request created it.
    let stores = server.get("/v1/stores").await.ok();
    assert!(stores["stores"].as_array().unwrap().iter().all(|store| store["name"] != "none"), "{stores}");
}

#[tokio::test]
async fn a_large_result_is_a_stream_and_complete() {
    let server = Server::start().await;
    let data = "x".repeat(1_000);
    for _ in 0..20 {
        let events: Vec<Value> =
            (0..250).map(|n| json!({ "type": "Big", "data": { "n": n, "text": data } })).collect();
        server.append("s", events.into()).await;
    }
    let reply = server.get(EVENTS).await;
    assert_eq!(reply.header("transfer-encoding"), Some("chunked"));
    assert_eq!(positions(&reply.ok()), (1..=5_000).collect::<Vec<_>>());
    // A slow reader that then leaves blocks no other request.
    let mut slow = server.follow(EVENTS, &[("accept", "application/x-ndjson")]).await;
    for n in 1..=100 {
        assert_eq!(slow.line().await.unwrap()["position"], n);
    }
    server.append("s", json!([{ "type": "A" }])).await;
    for n in 101..=5_000 {
        assert_eq!(slow.line().await.unwrap()["position"], n, "the snapshot of its beginning");
    }
}
