//! Consumer groups and checkpoints of consumers.

use std::time::Duration;

use ropewalk_auth::{Caller, Right, Roles};
use serde_json::{Value, json};

use crate::client::{Reply, Server};

const GROUP: &str = "/v1/stores/s/groups/g";

async fn put(server: &Server, path: &str, body: Value) -> Reply {
    let headers = [("content-type", "application/json")];
    server.request("PUT", path, &headers, body.to_string().as_bytes()).await
}

/// A server with six events, every second of type `A`, and a group of those.
async fn filled(settings: Value) -> Server {
    let server = Server::start().await;
    let events = (1..=6).map(|n| json!({ "type": if n % 2 == 0 { "A" } else { "B" }, "data": { "n": n } }));
    server.append("s", events.collect()).await;
    assert_eq!(put(&server, GROUP, settings).await.status, 201);
    server
}

fn group_of_a() -> Value {
    json!({ "query": { "items": [{ "types": ["A"] }] }, "tries": 2 })
}

async fn post(server: &Server, what: &str, body: Value) -> Value {
    server.post(&format!("{GROUP}/{what}"), body).await.ok()
}

fn positions(taken: &Value) -> Vec<u64> {
    let events = taken["events"].as_array().unwrap();
    events.iter().map(|one| one["event"]["position"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn events_are_taken_acknowledged_retried_and_parked() {
    let server = filled(group_of_a()).await;
    let taken = post(&server, "take", json!({ "max": 2 })).await;
    assert_eq!((positions(&taken), &taken["lease"]), (vec![2, 4], &json!(1)));
    assert_eq!(taken["events"][0]["tries"], 1);
    assert_eq!(taken["events"][0]["event"]["data"], json!({ "n": 2 }));
    assert!(taken["until"].as_str().unwrap().ends_with('Z'));
    let done = post(&server, "acknowledge", json!({ "lease": 1, "positions": [2, 3] })).await;
    assert_eq!(done, json!({ "done": 1, "parked": 0, "lost": [3] }));
    let again = post(&server, "retry", json!({ "lease": 1, "pause_ms": 0, "reason": "no" })).await;
    assert_eq!(again, json!({ "done": 1, "parked": 0, "lost": [] }));
    let taken = post(&server, "take", json!({})).await;
    assert_eq!((positions(&taken), taken["events"][0]["tries"].as_u64()), (vec![4, 6], Some(2)));
    let extended = post(&server, "extend", json!({ "lease": 2, "lease_ms": 60_000 })).await;
    assert_eq!(extended["done"], 2);
    // An event is parked when its last try asks for a retry.
    let last = post(&server, "retry", json!({ "lease": 2, "positions": [4], "reason": "no again" })).await;
    assert_eq!(last, json!({ "done": 0, "parked": 1, "lost": [] }));
    let parked = post(&server, "park", json!({ "lease": 2, "reason": "poison" })).await;
    assert_eq!(parked["parked"], 1);

    let page = server.get(&format!("{GROUP}/parked?limit=1")).await.ok();
    assert_eq!((&page["parked"][0]["reason"], &page["parked"][0]["tries"]), (&json!("no again"), &json!(2)));
    assert_eq!(page["parked"][0]["event"]["position"], 4);
    let page = server.get(&format!("{GROUP}/parked?after=4")).await.ok();
    assert_eq!(page["parked"].as_array().unwrap().len(), 1);
    assert_eq!(page["parked"][0]["reason"], "poison");
    assert_eq!(post(&server, "parked/replay", json!({ "positions": [6] })).await["done"], 1);
    assert_eq!(post(&server, "parked/discard", json!({})).await["done"], 1);
    assert_eq!(positions(&post(&server, "take", json!({})).await), [6]);
    let none = post(&server, "take", json!({})).await;
    assert_eq!(none, json!({ "lease": null, "until": null, "events": [] }));
}

#[tokio::test]
async fn take_waits_for_new_and_for_retried_events() {
    let server = filled(group_of_a()).await;
    post(&server, "take", json!({ "lease_ms": 60_000 })).await;
    let waiting = async { post(&server, "take", json!({ "wait_ms": 20_000 })).await };
    let appending = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        server.append("s", json!([{ "type": "B" }, { "type": "A" }])).await;
    };
    let (taken, ()) = tokio::join!(waiting, appending);
    assert_eq!(positions(&taken), [8]);
    post(&server, "retry", json!({ "lease": taken["lease"], "pause_ms": 30 })).await;
    // No commit arrives; the pause ends all the same.
    assert_eq!(positions(&post(&server, "take", json!({ "wait_ms": 20_000 })).await), [8]);
    assert_eq!(positions(&post(&server, "take", json!({ "wait_ms": 1 })).await), [0; 0]);
}

#[tokio::test]
async fn waiting_take_ends_on_shutdown() {
    let server = filled(json!({ "query": { "items": [{ "types": ["C"] }] } })).await;
    let path = format!("{GROUP}/take");
    let waiting = server.post(&path, json!({ "wait_ms": 20_000 }));
    let stopping = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        server.service.stop().begin();
    };
    let (reply, ()) = tokio::join!(waiting, stopping);
    reply.refused(503, "stopping");
}

#[tokio::test]
async fn groups_are_created_read_changed_and_deleted() {
    let server = filled(group_of_a()).await;
    let group = server.get(GROUP).await.ok();
    let expected = json!({
        "name": "g", "query": { "items": [{ "types": ["A"] }] }, "lease_ms": 30_000, "pause_ms": 1_000, "tries": 2,
        "in_order": false, "cursor": 0, "head": 6, "waiting": 3, "pending": 0, "pending_max": 1_000, "leased": 0,
        "parked": 0
    });
    assert_eq!(group, expected);
    post(&server, "take", json!({ "max": 1 })).await;
    let changed = put(&server, GROUP, json!({ "lease_ms": 5, "in_order": true, "after": 0 })).await;
    let changed = changed.ok();
    assert_eq!(
        (&changed["cursor"], &changed["lease_ms"], &changed["pending"]),
        (&json!(2), &json!(5), &json!(1))
    );
    assert_eq!(put(&server, "/v1/stores/s/groups/b%20c", json!({ "after": 5 })).await.status, 201);
    let listed = server.get("/v1/stores/s/groups").await.ok();
    let names: Vec<&Value> =
        listed["groups"].as_array().unwrap().iter().map(|group| &group["name"]).collect();
    assert_eq!(names, ["b c", "g"]);
    assert_eq!(server.request("DELETE", GROUP, &[], b"").await.status, 204);
    server.request("DELETE", GROUP, &[], b"").await.refused(404, "not_found");
    server.get(GROUP).await.refused(404, "not_found");
    server.post(&format!("{GROUP}/take"), json!({})).await.refused(404, "not_found");
}

#[tokio::test]
async fn d1_20_group_may_be_older_than_its_store() {
    let server = Server::start().await;
    let group = "/v1/stores/late/groups/g";
    put(&server, &format!("{group}?must_exist=true"), json!({})).await.refused(404, "not_found");
    assert_eq!(put(&server, group, json!({})).await.status, 201);
    let take = format!("{group}/take");
    assert_eq!(server.post(&take, json!({})).await.ok()["events"], json!([]));
    server.append("late", json!([{ "type": "A" }])).await;
    assert_eq!(server.post(&take, json!({})).await.ok()["events"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn d1_19_lease_that_was_never_handed_out_is_not_found() {
    let server = filled(group_of_a()).await;
    let taken = post(&server, "take", json!({ "max": 1 })).await;
    let lease = taken["lease"].as_u64().unwrap();
    for call in ["acknowledge", "retry", "park", "extend"] {
        for wrong in [0, lease + 1, 999] {
            let reply = server.post(&format!("{GROUP}/{call}"), json!({ "lease": wrong })).await;
            reply.refused(404, "no_such_lease");
        }
    }
    assert_eq!(post(&server, "acknowledge", json!({ "lease": lease })).await["done"], 1);
}

#[tokio::test]
async fn invalid_group_requests_are_rejected_by_name() {
    let server = filled(group_of_a()).await;
    for (path, body) in [
        ("take", json!({ "max": 1_001 })),
        ("take", json!({ "max": 0 })),
        ("take", json!({ "wait_ms": 20_001 })),
        ("take", json!({ "most": 1 })),
        ("acknowledge", json!({ "positions": [1] })),
        ("retry", json!({ "lease": "x" })),
        ("parked/replay", json!([])),
    ] {
        server.post(&format!("{GROUP}/{path}"), body).await.refused(400, "invalid_argument");
    }
    put(&server, GROUP, json!({ "tries": 0 })).await.refused(400, "invalid_argument");
    put(&server, GROUP, json!({ "query": { "items": [{}] } })).await.refused(400, "invalid_argument");
    server.get(&format!("{GROUP}/parked?limit=x")).await.refused(400, "invalid_argument");
}

#[tokio::test]
async fn readers_consume_and_administrators_create_groups() {
    let server = filled(group_of_a()).await;
    let (access, admin) = (server.service.access(), Caller::everybody());
    let mut tokens = Vec::new();
    for right in [Right::Read, Right::Append, Right::Admin] {
        let roles = Roles::from([("s".to_owned(), [right].into())]);
        let (_, token) = access.create_token(&admin, right.as_str(), roles, None).await.unwrap();
        tokens.push(format!("Bearer {token}"));
    }
    let call = async |method: &str, path: &str, token: &str| {
        let headers = [("content-type", "application/json"), ("authorization", token)];
        server.request(method, path, &headers, b"{}").await.status
    };
    let take = format!("{GROUP}/take");
    let checkpoint = "/v1/stores/s/checkpoints/c";
    for (token, takes, makes) in [(&tokens[0], 200, 403), (&tokens[1], 403, 403), (&tokens[2], 200, 200)] {
        assert_eq!(call("POST", &take, token).await, takes);
        assert_eq!(call("PUT", GROUP, token).await, makes);
        let read = call("PUT", checkpoint, token).await;
        assert_eq!(read, if takes == 200 { 400 } else { 403 }, "without a position it is refused later");
    }
}

#[tokio::test]
async fn checkpoints_are_stored_and_subscriptions_start_there() {
    let server = filled(group_of_a()).await;
    let path = "/v1/stores/s/checkpoints/mailer";
    assert_eq!(server.get(path).await.ok(), json!({ "consumer": "mailer", "position": null }));
    let kept = put(&server, path, json!({ "position": 5 })).await.ok();
    assert_eq!(kept, json!({ "consumer": "mailer", "position": 5 }));
    put(&server, path, json!({ "position": 7 })).await.refused(400, "invalid_argument");
    assert_eq!(server.get(path).await.ok()["position"], 5);
    let listed = server.get("/v1/stores/s/checkpoints").await.ok();
    assert_eq!(
        (&listed["checkpoints"][0]["consumer"], &listed["checkpoints"][0]["position"]),
        (&json!("mailer"), &json!(5))
    );
    let mut stream = server.follow("/v1/stores/s/subscribe?checkpoint=mailer", &[]).await;
    assert_eq!(stream.event().await.unwrap().0, "6");
    let mut stream = server.follow("/v1/stores/s/subscribe?checkpoint=nobody", &[]).await;
    assert_eq!(stream.event().await.unwrap().0, "1");
    server.get("/v1/stores/s/subscribe?checkpoint=mailer&after=1").await.refused(400, "invalid_argument");
    assert_eq!(server.request("DELETE", path, &[], b"").await.status, 204);
    assert_eq!(server.get(path).await.ok()["position"], Value::Null);
}
