//! The interfaces of the DCB k6 suite and of go-crablet, request by request and response by response.

use ropewalk_http::HttpSettings;
use ropewalk_wire::Limits;
use serde_json::{Value, json};

use crate::client::{Reply, Server};

/// Checks a response of `/append` and removes the duration, which varies.
#[track_caller]
fn appended(reply: Reply, condition_failed: bool) {
    let json = reply.ok();
    assert!(json["durationInMicroseconds"].as_u64().unwrap() > 0);
    let expected = json!({ "durationInMicroseconds": json["durationInMicroseconds"], "appendConditionFailed": condition_failed });
    assert_eq!(json, expected);
}

fn encoded(json: Value) -> String {
    json.to_string().bytes().map(|byte| format!("%{byte:02X}")).collect()
}

async fn read(server: &Server, query: Value, options: Option<Value>) -> Value {
    let options = options.map_or(String::new(), |options| format!("&options={}", encoded(options)));
    server.get(&format!("/read?query={}{options}", encoded(query))).await.ok()
}

#[tokio::test]
async fn the_dcb_suite_reads_and_appends() {
    let server = Server::start().await;
    let all = || json!({ "items": [] });
    assert_eq!(read(&server, all(), None).await, json!([]));
    let event = |kind: &str| json!({ "type": kind, "data": "{\"a\": 1}", "tags": ["t:1"] });
    appended(server.post("/append", json!({ "events": [event("A"), event("B")] })).await, false);
    let a = json!({ "position": 1, "type": "A", "tags": ["t:1"], "data": "{\"a\": 1}" });
    let b = json!({ "position": 2, "type": "B", "tags": ["t:1"], "data": "{\"a\": 1}" });
    assert_eq!(read(&server, all(), None).await, json!([a, b]));
    assert_eq!(read(&server, all(), Some(json!({ "from": 0 }))).await, json!([a, b]));
    assert_eq!(read(&server, all(), Some(json!({ "from": 2, "limit": null }))).await, json!([b]));
    assert_eq!(read(&server, all(), Some(json!({ "backwards": true, "limit": 1 }))).await, json!([b]));
    assert_eq!(read(&server, all(), Some(json!({ "backwards": true, "from": 1 }))).await, json!([a]));
    assert_eq!(
        read(&server, json!({ "items": [{ "types": ["A"], "tags": ["t:1"] }] }), None).await,
        json!([a])
    );
    assert_eq!(read(&server, json!({ "items": [{ "tags": ["none"] }] }), None).await, json!([]));

    let query = json!({ "items": [{ "types": ["A"], "tags": ["t:1"] }] });
    let guarded = |after: Value| json!({ "events": [event("C")], "condition": { "failIfEventsMatch": query, "after": after } });
    appended(
        server
            .post("/append", json!({ "events": [event("C")], "condition": { "failIfEventsMatch": query } }))
            .await,
        true,
    );
    appended(server.post("/append", guarded(Value::Null)).await, true);
    appended(server.post("/append", guarded(json!(0))).await, true);
    appended(server.post("/append", guarded(json!(1))).await, false);
    appended(server.post("/append", json!({ "events": [event("D")], "condition": null })).await, false);
    assert_eq!(read(&server, all(), None).await.as_array().unwrap().len(), 4);
}

#[tokio::test]
async fn crablet_appends_one_or_many_and_counts() {
    let server = Server::start().await;
    assert_eq!(server.get("/health").await.ok(), json!({ "status": "ok" }));
    let event =
        |tag: &str| json!({ "type": "TestEvent", "data": "{\"id\":\"1\"}", "tags": [tag, "test:quick"] });
    appended(server.post("/append", json!({ "events": event("unique:1") })).await, false);
    appended(
        server.post("/append", json!({ "events": [event("unique:2"), event("unique:3")] })).await,
        false,
    );
    let counted = async |items: Value| {
        let json = server.post("/read", json!({ "query": { "items": items } })).await.ok();
        assert!(json["durationInMicroseconds"].as_u64().unwrap() > 0);
        (json["numberOfMatchingEvents"].clone(), json.get("checkpointEventId").cloned())
    };
    assert_eq!(
        counted(json!([{ "types": ["TestEvent"], "tags": ["unique:2"] }])).await,
        (json!(1), Some(json!("2")))
    );
    assert_eq!(counted(json!([])).await, (json!(3), Some(json!("3"))));
    assert_eq!(counted(json!([{ "types": ["Other"], "tags": ["x"] }])).await, (json!(0), None));

    // Items are not flattened, and `after` (a text there) is honoured.
    let crossed = json!({ "items": [{ "types": ["TestEvent"], "tags": ["y:2"] }, { "types": ["B"], "tags": ["test:quick"] }] });
    appended(
        server
            .post(
                "/append",
                json!({ "events": event("unique:4"), "condition": { "failIfEventsMatch": crossed } }),
            )
            .await,
        false,
    );
    let query = json!({ "items": [{ "types": ["TestEvent"], "tags": ["test:quick"] }] });
    for (after, failed) in [("3", true), ("4", false)] {
        let body = json!({ "events": event("unique:5"), "condition": { "failIfEventsMatch": query, "after": after } });
        appended(server.post("/append", body).await, failed);
    }
}

#[tokio::test]
async fn isolation_headers_are_honoured_or_rejected() {
    let server = Server::start().await;
    let body = json!({ "events": { "type": "A", "data": "", "tags": [] } }).to_string();
    for (header, level) in [
        ("x-append-if-isolation", "SERIALIZABLE"),
        ("x-append-if-isolation", "REPEATABLE READ"),
        ("x-isolation-level", "read_committed"),
        ("x-isolation-level", "serializable"),
    ] {
        let headers = [("content-type", "application/json"), (header, level)];
        appended(server.request("POST", "/append", &headers, body.as_bytes()).await, false);
    }
    let headers = [("content-type", "application/json"), ("x-isolation-level", "chaos")];
    server.request("POST", "/append", &headers, body.as_bytes()).await.refused(400, "invalid_argument");
}

#[tokio::test]
async fn d1_20_fields_of_an_append_that_are_unknown_are_ignored() {
    let server = Server::start().await;
    let event = json!({ "type": "A", "tags": [], "data": "", "extra": 1 });
    let condition = json!({ "failIfEventsMatch": { "items": [{ "types": ["B"] }] }, "extra": 1 });
    appended(
        server
            .post("/append", json!({ "events": event, "condition": condition, "extra": { "a": [] } }))
            .await,
        false,
    );
    assert_eq!(read(&server, json!({ "items": [] }), None).await.as_array().unwrap().len(), 1);
    // A store that does not exist yet reads as empty.
    let headers = [("content-type", "application/json"), ("x-store", "none")];
    let counted = server.request("POST", "/read", &headers, br#"{"query":{"items":[]}}"#).await.ok();
    assert_eq!(counted["numberOfMatchingEvents"], 0);
}

#[tokio::test]
async fn header_selects_another_store() {
    let server = Server::start().await;
    let headers = [("content-type", "application/json"), ("x-store", "other")];
    let body = json!({ "events": { "type": "A" } }).to_string();
    appended(server.request("POST", "/append", &headers, body.as_bytes()).await, false);
    assert_eq!(server.get("/v1/stores/other/head").await.ok()["head"], 1);
    assert_eq!(server.get("/v1/stores/default/head").await.ok()["head"], Value::Null);
}

#[tokio::test]
async fn invalid_append_is_a_problem_and_not_a_failed_condition() {
    let server = Server::start().await;
    let wrong = [
        (json!({ "events": [] }), "at least one event"),
        (json!({ "events": "A" }), "an event or an array of events"),
        (json!({ "events": { "type": "A", "data": {} } }), "expected a string"),
        (
            json!({ "events": { "type": "A" }, "condition": { "failIfEventsMatch": {}, "after": "x" } }),
            "a position",
        ),
        (json!({ "events": { "type": "A" }, "condition": {} }), "failIfEventsMatch"),
    ];
    for (body, expected) in wrong {
        let reply = server.post("/append", &body).await;
        reply.refused(400, "invalid_argument");
        assert!(reply.detail().contains(expected), "{expected}: {}", reply.detail());
    }
    server.get("/read?query=x").await.refused(400, "invalid_argument");
    server.get("/read?query=%7B%7D&options=%7B%22form%22:1%7D").await.refused(400, "invalid_argument");
    server.post("/read", json!({ "query": {}, "options": {} })).await.refused(400, "invalid_argument");
}

#[tokio::test]
async fn cleanup_requires_the_setting_dev() {
    let closed = Server::start().await;
    closed.request("POST", "/cleanup", &[], b"").await.refused(404, "no_such_route");
    let settings = HttpSettings { dev: true, ..HttpSettings::default() };
    let server = Server::with(Limits::default(), settings).await;
    appended(server.post("/append", json!({ "events": { "type": "A" } })).await, false);
    for _ in 0..2 {
        let reply = server.request("POST", "/cleanup", &[("content-type", "application/json")], b"").await;
        assert_eq!(reply.ok(), json!({ "success": true, "message": "the store is empty" }));
        assert_eq!(read(&server, json!({ "items": [] }), None).await, json!([]));
    }
    appended(server.post("/append", json!({ "events": { "type": "A" } })).await, false);
    assert_eq!(read(&server, json!({ "items": [] }), None).await[0]["position"], 1);
}
