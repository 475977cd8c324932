//! Requests to the nodes of a cluster: writes reach the leader, reads wait, responses carry their commit.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use ropewalk_http::HttpSettings;
use ropewalk_http_kit::leader::{LeaderResponse, ToLeader, ToLeaderError};
use serde_json::json;

use crate::client::{Reply, Server};
use crate::cluster::Node;

/// Records what is sent to the leader, and answers for it.
#[derive(Debug, Default)]
struct Sent {
    requests: Mutex<Vec<String>>,
    fails: bool,
    /// It receives requests and never answers.
    hangs: bool,
}

impl Sent {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }
}

impl ToLeader for Sent {
    fn send<'a>(&'a self, leader: &'a str, request: Request) -> LeaderResponse<'a> {
        Box::pin(async move {
            let line = format!("{leader} {} {}", request.method(), request.uri().path());
            let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
            self.requests.lock().unwrap().push(format!("{line} {}", String::from_utf8_lossy(&body)));
            if self.fails {
                return Err(ToLeaderError::NoAnswer("reset".to_owned()));
            }
            if self.hangs {
                std::future::pending::<()>().await;
            }
            Ok(Response::builder()
                .status(201)
                .header("ropewalk-seq", "77")
                .body(Body::from("there"))
                .unwrap())
        })
    }
}

struct Pair {
    leader: Server,
    follower: Server,
    sent: Arc<Sent>,
    nodes: (Node, Arc<Node>),
}

async fn pair() -> Pair {
    pair_with(Sent::default()).await
}

async fn pair_with(sent: Sent) -> Pair {
    let (leader, follower) = Node::pair();
    follower.follow();
    let (sent, follower) = (Arc::new(sent), Arc::new(follower));
    let settings = HttpSettings { leader: Some(sent.clone()), ..HttpSettings::default() };
    Pair {
        leader: Server::over(leader.service.clone(), HttpSettings::default()).await,
        follower: Server::over(follower.service.clone(), settings).await,
        sent,
        nodes: (leader, follower),
    }
}

fn event() -> String {
    json!({ "events": [{ "type": "A", "tags": [], "data": {} }] }).to_string()
}

async fn post(server: &Server, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
    let headers = [&[("content-type", "application/json")], headers].concat();
    server.request("POST", path, &headers, body.as_bytes()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn write_on_a_follower_is_carried_out_by_the_leader() {
    let pair = pair().await;
    let reply = post(&pair.follower, "/v1/stores/shop/events", &[], &event()).await;
    assert_eq!((reply.status, reply.text(), reply.header("ropewalk-seq")), (201, "there", Some("77")));
    assert_eq!(pair.sent.take(), [format!("http://n1:4780 POST /v1/stores/shop/events {}", event())]);
    let written = post(&pair.leader, "/v1/stores/shop/events", &[], &event()).await;
    assert_eq!(written.status, 200, "{}", written.text());
    assert_eq!(written.header("ropewalk-seq"), Some(pair.nodes.0.db().seq().0.to_string().as_str()));
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_prefers_it_is_sent_to_the_leader() {
    let pair = pair().await;
    let reply = post(&pair.follower, "/v1/stores/shop/events?a=1", &[("prefer", "redirect")], &event()).await;
    assert_eq!(reply.status, 307);
    assert_eq!(reply.header("location"), Some("http://n1:4780/v1/stores/shop/events?a=1"));
    assert!(pair.sent.take().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn write_that_cannot_be_sent_on_names_the_leader() {
    let pair = pair().await;
    let forwarded = [("ropewalk-forwarded", "1")];
    let reply = post(&pair.follower, "/v1/stores/shop/events", &forwarded, &event()).await;
    reply.refused(503, "not_leader");
    assert!(reply.json()["leader"].as_str().unwrap().starts_with("http://n1:4780"));
    assert!(reply.header("retry-after").is_some());
    assert!(pair.sent.take().is_empty());

    let broken = pair_with(Sent { fails: true, ..Sent::default() }).await;
    let reply = post(&broken.follower, "/v1/stores/shop/events", &[], &event()).await;
    reply.refused(504, "outcome_unknown");
}

#[tokio::test(flavor = "multi_thread")]
async fn write_at_a_leader_that_does_not_answer_ends_when_another_node_leads() {
    let pair = pair_with(Sent { hangs: true, ..Sent::default() }).await;
    let (sent, follower) = (pair.sent.clone(), pair.nodes.1.clone());
    let replace = std::thread::spawn(move || {
        while sent.take().is_empty() {
            std::thread::sleep(Duration::from_millis(10));
        }
        follower.lead();
    });
    let reply = post(&pair.follower, "/v1/stores/shop/events", &[], &event()).await;
    reply.refused(504, "outcome_unknown");
    replace.join().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pipeline_that_writes_goes_to_the_leader_and_others_stay() {
    let pair = pair().await;
    let path = "/v1/databases/app/collections/c/documents:aggregate";
    let documents = json!({ "documents": [{ "_id": 1 }] }).to_string();
    let stored = post(&pair.leader, "/v1/databases/app/collections/c/documents", &[], &documents).await;
    assert_eq!(stored.status, 200, "{}", stored.text());
    pair.nodes.1.follow();
    let reads = json!({ "pipeline": [{ "$match": {} }] }).to_string();
    assert_eq!(post(&pair.follower, path, &[], &reads).await.status, 200);
    assert!(pair.sent.take().is_empty());
    let writes = json!({ "pipeline": [{ "$match": {} }, { "$out": "d" }] }).to_string();
    assert_eq!(post(&pair.follower, path, &[], &writes).await.status, 201);
    assert_eq!(pair.sent.take(), [format!("http://n1:4780 POST {path} {writes}")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn read_waits_for_the_commit_of_its_header() {
    let pair = pair().await;
    let (leader, follower) = &pair.nodes;
    leader.db().events("shop").unwrap().append(&[ropewalk::Event::new("A")], None).unwrap();
    let seq = leader.db().seq().0.to_string();
    let path = "/v1/stores/shop/head";
    let later = follower.follow_later();
    let reply = pair.follower.request("GET", path, &[("ropewalk-seq", &seq)], b"").await;
    assert_eq!((reply.status, reply.header("ropewalk-seq")), (200, Some(seq.as_str())));
    assert_eq!(reply.json()["head"], 1);
    later.join().unwrap();
    // A local read does not wait.
    let far = [("ropewalk-seq", "1000000"), ("ropewalk-read", "local")];
    assert_eq!(pair.follower.request("GET", path, &far, b"").await.status, 200);
    for (name, value) in [("ropewalk-seq", "x"), ("ropewalk-read", "strong")] {
        pair.follower.request("GET", path, &[(name, value)], b"").await.refused(400, "invalid_argument");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commit_that_does_not_arrive_ends_the_wait_at_the_deadline() {
    use ropewalk_wire::{Limits, Service, ServiceSettings};
    let (_leader, follower) = Node::pair();
    follower.follow();
    let limits = Limits { request_time: Duration::from_millis(50), ..Limits::default() };
    let settings = ServiceSettings { limits, ..ServiceSettings::default() };
    let service = Service::new(follower.db().clone(), settings).unwrap();
    service.join(follower.state.clone());
    let server = Server::over(service, HttpSettings::default()).await;
    let reply = server.request("GET", "/v1/stores", &[("ropewalk-seq", "1000000")], b"").await;
    reply.refused(504, "timeout");
}

#[tokio::test(flavor = "multi_thread")]
async fn linearizable_read_is_proven_by_the_leader() {
    let pair = pair().await;
    let header = [("ropewalk-read", "linearizable")];
    assert_eq!(pair.leader.request("GET", "/v1/stores", &header, b"").await.status, 200);
    assert_eq!(pair.nodes.0.state.barriers.load(Ordering::Relaxed), 1);
    assert_eq!(pair.follower.request("GET", "/v1/stores", &header, b"").await.status, 201);
    assert_eq!(pair.sent.take(), ["http://n1:4780 GET /v1/stores "]);
}

#[tokio::test(flavor = "multi_thread")]
async fn status_shows_role_leader_and_members() {
    let pair = pair().await;
    let status = pair.follower.get("/v1/cluster").await.ok();
    assert_eq!((status["role"].as_str(), status["term"].as_u64()), (Some("follower"), Some(1)));
    assert_eq!(status["leader"][0], "http://n1:4780");
    assert_eq!(status["members"].as_array().unwrap().len(), 2);
    assert_eq!(status["warnings"][0], "one server");
    let checkpoints = json!({ "number": 5, "age_ms": 1500, "made": 2, "failures": 1 });
    assert_eq!(status["checkpoints"], checkpoints);
    let contents = json!({
        "equal_seq": 1024, "hashed_commits": 4, "hashed_bytes": 400, "differing": [format!("{:032x}", 2)],
        "check": { "bytes": 7, "seq": 3 }, "last_check": { "bytes": 9, "seq": 2, "age_ms": 2500 }, "checks": 0,
    });
    assert_eq!(status["contents"], contents);
    assert_eq!(pair.leader.get("/v1/cluster").await.ok()["role"], "leader");
    let alone = Server::start().await;
    let status = alone.get("/v1/cluster").await.ok();
    let absent = (status.get("checkpoints"), status.get("contents"));
    assert_eq!((&status["role"], absent), (&"alone".into(), (None, None)));
    assert!(alone.get("/v1/stores").await.header("ropewalk-seq").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn follower_that_lags_is_not_ready_and_serves() {
    let pair = pair().await;
    assert_eq!(pair.follower.get("/ready").await.status, 200);
    pair.nodes.1.state.lags.store(true, Ordering::Relaxed);
    pair.follower.get("/ready").await.refused(429, "resource_exhausted");
    assert_eq!(pair.follower.get("/v1/stores").await.status, 200);
    assert_eq!(pair.leader.get("/ready").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn leader_steps_down_on_request_and_other_nodes_refuse() {
    let pair = pair().await;
    let path = "/v1/cluster/step-down";
    let reply = pair.follower.request("POST", path, &[], b"").await;
    reply.refused(503, "not_leader");
    assert!(reply.json()["leader"].as_str().unwrap().starts_with("http://n1:4780"));
    assert!(pair.sent.take().is_empty(), "the node that was named is meant");
    post(&pair.leader, path, &[], "{}").await.refused(400, "invalid_argument");
    let stepped = pair.leader.request("POST", path, &[], b"").await.ok();
    let (node, successor) = (format!("{:032x}", 1), format!("{:032x}", 2));
    let expected = json!({ "node": node, "term": 1, "successor": successor, "leads_within_ms": 7000 });
    assert_eq!(stepped, expected);
    pair.leader.request("POST", path, &[], b"").await.refused(503, "not_leader");
    post(&pair.leader, "/v1/stores/shop/events", &[], &event()).await.refused(503, "not_leader");
    let alone = Server::start().await;
    alone.request("POST", path, &[], b"").await.refused(404, "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn member_is_removed_by_the_leader() {
    let pair = pair().await;
    let node = format!("{:032x}", 2);
    let path = format!("/v1/cluster/members/{node}");
    assert_eq!(pair.follower.request("DELETE", &path, &[], b"").await.status, 201);
    assert_eq!(pair.sent.take(), [format!("http://n1:4780 DELETE {path} ")]);
    let removed = pair.leader.request("DELETE", &path, &[], b"").await.ok();
    assert_eq!((&removed["node"], &removed["reports"]), (&node.into(), &1.into()));
    assert_eq!(removed["addresses"][0], "http://n2:4780");
    let other = format!("/v1/cluster/members/{:032x}", 3);
    pair.leader.request("DELETE", &other, &[], b"").await.refused(404, "not_found");
    let alone = Server::start().await;
    alone.request("DELETE", &path, &[], b"").await.refused(404, "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn check_of_contents_begins_on_the_leader() {
    let pair = pair().await;
    let path = "/v1/cluster/check";
    assert_eq!(pair.follower.request("POST", path, &[], b"").await.status, 201);
    assert_eq!(pair.sent.take(), [format!("http://n1:4780 POST {path} ")]);
    let contents = pair.leader.request("POST", path, &[], b"").await.ok();
    assert_eq!((&contents["checks"], &contents["check"]["bytes"]), (&1.into(), &7.into()));
    post(&pair.leader, path, &[], "{}").await.refused(400, "invalid_argument");
    let alone = Server::start().await;
    alone.request("POST", path, &[], b"").await.refused(404, "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn report_of_a_node_needs_the_secret() {
    let pair = pair().await;
    let report = json!({ "node": "0".repeat(32), "addresses": "http://n2:4780", "seq": 3 }).to_string();
    let path = "/v1/cluster/members";
    let known = [("ropewalk-cluster-secret", "known")];
    let answer = post(&pair.leader, path, &known, &report).await.ok();
    assert_eq!(answer, json!({ "seq": pair.nodes.0.db().seq().0, "differs": false }));
    let with_hashes = [known[0], ("ropewalk-cluster-hashes", "other")];
    assert_eq!(post(&pair.leader, path, &with_hashes, &report).await.ok()["differs"], true);
    assert_ne!(post(&pair.leader, path, &[], &report).await.status, 200);
    post(&pair.follower, path, &known, &report).await.refused(503, "not_leader");
    let bad = json!({ "node": "x", "addresses": "elsewhere", "seq": 3 }).to_string();
    post(&pair.leader, path, &known, &bad).await.refused(400, "invalid_argument");
    let alone = Server::start().await;
    post(&alone, path, &known, &report).await.refused(404, "not_found");
}
