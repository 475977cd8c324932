//! `POST /v1/stores/{store}/events`.

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::client::Server;

const EVENTS: &str = "/v1/stores/s/events";

#[tokio::test]
async fn events_round_trip() {
    let server = Server::start().await;
    let id = "0193e8a5-0000-7000-8000-000000000001";
    // Written by hand: the order inside data and metadata is part of the promise.
    let body = r#"{"events":[
        {"type":"A","tags":["x:1","ä\n\"q\""],"data":{"b":1,"a":[null,1.5]},"id":"ID","metadata":{"z":"1","a":"2"}},
        {"type":"B","data_base64":"/wA=","metadata":[["k","v"],["j",""]]},
        {"type":"C","data":null},
        {"type":"D"}
    ],"tracking":{"source":"up","position":7}}"#
        .replace("ID", id);
    let appended = server.post(EVENTS, &body).await.ok();
    assert_eq!(appended, json!({ "first": 1, "last": 4, "seq": appended["seq"] }));

    let read = server.get(EVENTS).await;
    for part in [r#""metadata":{"z":"1","a":"2"}"#, r#""data":{"b":1,"a":[null,1.5]}"#] {
        assert!(read.text().contains(part), "{}", read.text());
    }
    let read = read.ok();
    assert_eq!(read["head"], 4);
    let events = read["events"].as_array().unwrap();
    assert_eq!(events.len(), 4);
    let common = |event: &Value| {
        assert!(event["recorded_at"].as_str().unwrap().ends_with('Z'));
        assert_eq!(event["tracking"], json!({ "source": "up", "position": 7 }));
    };
    events.iter().for_each(common);
    assert_eq!(events[0]["tags"], json!(["x:1", "ä\n\"q\""]));
    assert_eq!(events[0]["data"], json!({ "b": 1, "a": [null, 1.5] }));
    assert_eq!(events[0]["id"], id);
    assert_eq!(events[1]["data_base64"], "/wA=");
    assert_eq!(events[1]["metadata"], json!({ "k": "v", "j": "" }));
    assert_eq!(events[2].get("data"), Some(&Value::Null));
    assert_eq!((events[3].get("data"), events[3].get("data_base64")), (None, None));
    assert_eq!(events[3]["tags"], json!([]));
}

#[tokio::test]
async fn payloads_preserve_their_spelling() {
    let server = Server::start().await;
    let body = r#"{"events":[{"type":"A","data":{"n":1.0e2,"big":123456789012345678901234567890,"n":[1,
        2]}}]}"#;
    server.post(EVENTS, body).await.ok();
    let read = server.get(EVENTS).await;
    assert!(
        read.text().contains(r#""data":{"n":1.0e2,"big":123456789012345678901234567890,"n":[1,         2]}"#)
    );
}

#[tokio::test]
async fn failed_condition_reports_condition_and_position() {
    let server = Server::start().await;
    server.append("s", json!([{ "type": "A", "tags": ["x"] }, { "type": "B", "tags": ["y"] }])).await;
    let conditions = json!([
        { "fail_if_events_match": { "items": [{ "types": ["Z"] }] } },
        { "fail_if_events_match": { "items": [{ "types": ["Z"] }, { "types": ["B"], "tags": ["y"] }] }, "after": 1 },
    ]);
    let body = json!({ "events": [{ "type": "C" }], "conditions": conditions });
    let reply = server.post(EVENTS, &body).await;
    reply.refused(409, "condition_failed");
    assert_eq!(reply.json()["conflict"], json!({ "condition": 1, "position": 2, "item": 1 }));

    let all =
        json!({ "events": [{ "type": "C" }], "conditions": [{ "fail_if_events_match": {}, "after": 1 }] });
    assert_eq!(
        server.post(EVENTS, &all).await.json()["conflict"],
        json!({ "condition": 0, "position": 2, "item": null })
    );
    let beyond =
        json!({ "events": [{ "type": "C" }], "conditions": [{ "fail_if_events_match": {}, "after": 2 }] });
    assert_eq!(server.post(EVENTS, &beyond).await.ok()["last"], 3);
}

#[tokio::test]
async fn retries_and_tracking() {
    let server = Server::start().await;
    let body = json!({ "events": [{ "type": "A" }], "idempotency_key": "k1" });
    let first = server.post(EVENTS, &body).await.ok();
    let again = server.post(EVENTS, &body).await.ok();
    assert_eq!((&first["first"], &first["last"]), (&again["first"], &again["last"]));
    let headers = [("content-type", "application/json"), ("idempotency-key", "k1")];
    let plain = json!({ "events": [{ "type": "A" }] }).to_string();
    assert_eq!(server.request("POST", EVENTS, &headers, plain.as_bytes()).await.ok()["last"], first["last"]);
    let other = json!({ "events": [{ "type": "B" }] }).to_string();
    server.request("POST", EVENTS, &headers, other.as_bytes()).await.refused(422, "idempotency_mismatch");
    let both = json!({ "events": [{ "type": "A" }], "idempotency_key": "k2" }).to_string();
    server.request("POST", EVENTS, &headers, both.as_bytes()).await.refused(400, "invalid_argument");

    let tracked = json!({ "events": [], "tracking": { "source": "up", "position": 5 } });
    assert_eq!(server.post(EVENTS, &tracked).await.ok()["last"], Value::Null);
    server.post(EVENTS, &tracked).await.refused(409, "tracking_conflict");
    assert_eq!(server.get("/v1/stores/s/tracking/up").await.ok(), json!({ "source": "up", "position": 5 }));
    assert_eq!(
        server.get("/v1/stores/s/tracking/a%2Fb").await.ok(),
        json!({ "source": "a/b", "position": null })
    );

    let ids = json!({
        "events": [{ "type": "U", "id": "0193e8a5-0000-7000-8000-000000000001" }],
        "conditions": [{ "fail_if_events_match": { "items": [{ "types": ["U"] }] } }],
        "repeat_by_id": true,
    });
    let first = server.post(EVENTS, &ids).await.ok();
    assert_eq!(server.post(EVENTS, &ids).await.ok()["last"], first["last"]);
}

#[tokio::test]
async fn every_durability_is_accepted() {
    let server = Server::start().await;
    for durability in ["sync", "buffered", "async:5"] {
        server.post(EVENTS, json!({ "events": [{ "type": "A" }], "durability": durability })).await.ok();
    }
    for durability in [json!("fast"), json!("async:"), json!("async:-1"), json!(1), Value::Null] {
        let reply =
            server.post(EVENTS, json!({ "events": [{ "type": "A" }], "durability": durability })).await;
        reply.refused(400, "invalid_argument");
    }
    assert_eq!(server.get("/v1/stores/s/head").await.ok()["head"], 3);
}

#[tokio::test]
async fn invalid_appends_are_rejected_by_name() {
    let server = Server::start().await;
    let long = "t".repeat(65_536);
    let wrong = [
        (json!({ "events": [] }), "at least one event"),
        (json!({ "events": [{ "type": "" }] }), "event 0"),
        (json!({ "events": [{ "type": "A" }, { "type": long }] }), "event 1"),
        (json!({ "events": [{ "type": "A", "tags": ["x", "x"] }] }), "duplicate tag"),
        (
            json!({ "events": [{ "type": "A", "metadata": [["k", "1"], ["k", "2"]] }] }),
            "duplicate metadata key",
        ),
        (json!({ "events": [{ "type": "A", "metadata": { "k": 1 } }] }), "expected a string"),
        (json!({ "events": [{ "type": "A", "data": 1, "data_base64": "" }] }), "both data and data_base64"),
        (json!({ "events": [{ "type": "A", "data_base64": "%" }] }), "data_base64"),
        (json!({ "events": [{ "type": "A", "id": "x" }] }), "UUID"),
        (json!({ "events": [{ "type": "A", "tag": [] }] }), "unknown field `tag`"),
        (json!({ "events": [{ "type": "A" }], "condition": {} }), "unknown field `condition`"),
        (
            json!({ "events": [{ "type": "A" }], "conditions": [{ "fail_if_event_match": {} }] }),
            "fail_if_events_match",
        ),
        (
            json!({ "events": [{ "type": "A" }], "conditions": [{ "fail_if_events_match": { "items": [{}] } }] }),
            "item 0",
        ),
        (
            json!({ "events": [{ "type": "A" }], "conditions": [{ "fail_if_events_match": {}, "after": -1 }] }),
            "invalid",
        ),
        (
            json!({ "events": [{ "type": "A" }], "tracking": { "source": "", "position": 1 } }),
            "tracking source",
        ),
        (json!({ "events": [{ "type": "A" }], "idempotency_key": "" }), "idempotency key"),
    ];
    for (body, expected) in wrong {
        let reply = server.post(EVENTS, &body).await;
        reply.refused(400, "invalid_argument");
        assert!(reply.detail().contains(expected), "{expected}: {}", reply.detail());
    }
    server.get("/v1/stores/s").await.refused(404, "not_found");
}

#[tokio::test]
async fn disconnect_during_append_leaves_no_partial_append() {
    let server = Server::start().await;
    server.append("s", json!([{ "type": "A" }])).await;
    let body = json!({ "events": [{ "type": "B" }, { "type": "B" }] }).to_string();
    for sent in [0, 1, body.len() / 2, body.len() - 1, body.len()] {
        let mut socket = server.connect().await;
        let head = format!(
            "POST {EVENTS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        socket.write_all(head.as_bytes()).await.unwrap();
        socket.write_all(&body.as_bytes()[..sent]).await.unwrap();
        drop(socket);
    }
    // Completely received appends may have happened, each atomically; the server continues.
    server.append("s", json!([{ "type": "C" }])).await;
    let count = server.get("/v1/stores/s/events:count?type=B").await.ok()["count"].as_u64().unwrap();
    assert!(count == 0 || count == 2, "{count}");
}
