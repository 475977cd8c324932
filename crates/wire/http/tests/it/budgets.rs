//! Requests over documents have a budget of memory and time; what a pipeline writes elsewhere needs the
//! rights there.

use std::time::Duration;

use ropewalk_auth::{Caller, Right, Roles};
use ropewalk_http::HttpSettings;
use ropewalk_wire::Limits;
use serde_json::{Value, json};

use crate::client::{Reply, Server};

const JSON: (&str, &str) = ("content-type", "application/json");
const C: &str = "/v1/databases/shop/collections/c";

async fn with_documents(limits: Limits, documents: Value) -> Server {
    let server = Server::with(limits, HttpSettings::default()).await;
    server.post(&format!("{C}/documents"), json!({ "documents": documents })).await.ok();
    server
}

/// An expression of `n` times `n` steps; one alone may take 20 million.
fn steps(n: u32) -> Value {
    let over = |then: Value| {
        let input = json!({ "$range": [0, n] });
        json!({ "$reduce": { "input": input, "initialValue": 0, "in": then } })
    };
    over(over(json!({ "$add": ["$$value", 1] })))
}

#[tokio::test(flavor = "multi_thread")]
async fn c_document_requests_end_at_their_deadline() {
    let limits = Limits { request_time: Duration::from_millis(300), ..Limits::default() };
    let mut documents = vec![json!({ "_id": "a", "n": 1 })];
    documents.extend((0..300).map(|n| json!({ "_id": n })));
    let server = with_documents(limits, documents.into()).await;
    let filter = json!({ "$expr": { "$lt": [steps(1700), 0] } });
    let update = json!([{ "$set": { "n": steps(1700) } }]);
    for (action, body) in [
        ("documents:query", json!({ "filter": filter })),
        ("documents:query", json!({ "projection": { "n": steps(1700) } })),
        ("documents:count", json!({ "filter": filter })),
        ("documents:distinct", json!({ "field": "n", "filter": filter })),
        ("documents:explain", json!({ "filter": filter })),
        ("documents:aggregate", json!({ "pipeline": [{ "$set": { "n": steps(1700) } }] })),
        ("documents:aggregate", json!({ "pipeline": [{ "$set": { "n": steps(1700) } }, { "$out": "d" }] })),
        ("documents:update", json!({ "filter": {}, "update": update })),
        ("documents:delete", json!({ "filter": filter })),
        ("documents:modify", json!({ "filter": filter, "delete": true })),
    ] {
        let reply = server.post(&format!("{C}/{action}"), &body).await;
        assert_eq!(reply.problem(), (504, "timeout".to_owned()), "{action} {body}: {}", reply.text());
    }
    let stages: Vec<Value> = (0..20).map(|n| json!({ "$set": { format!("n{n}"): steps(3000) } })).collect();
    let body = Value::from(stages).to_string();
    let reply = server.request("PATCH", &format!("{C}/documents/a"), &[JSON], body.as_bytes()).await;
    reply.refused(504, "timeout");
    let operations = json!([{ "collection": "c", "find": { "filter": filter } }]);
    let reply = server.post("/v1/databases/shop/transaction", json!({ "operations": operations })).await;
    reply.refused(504, "timeout");
    let query = json!({ "collection": "c", "query": filter });
    server.post("/v1/projects/shop/databases/(default)/documents/query", query).await.refused(504, "timeout");
    assert_eq!(server.get(&format!("{C}/documents/a")).await.ok()["n"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn c_requests_over_documents_have_a_budget_of_memory() {
    let server =
        with_documents(Limits::default(), json!([{ "_id": "a", "text": "x".repeat(1 << 20) }])).await;
    let text = json!({ "$concat": ["$text", "$text"] });
    let many = json!({ "$map": { "input": { "$range": [0, 1000] }, "in": text } });
    let filter = json!({ "$expr": { "$gt": [many, 0] } });
    let reply = server.post(&format!("{C}/documents:count"), json!({ "filter": filter })).await;
    reply.refused(413, "too_large");
    assert_eq!(server.service.commands().used(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn c_responses_share_memory_until_they_are_read() {
    let text = "x".repeat(1 << 20);
    let server = with_documents(Limits::default(), json!([{ "_id": "a", "text": text }])).await;
    let memory = server.service.answer_memory();
    let available = memory.available_bytes();
    let mut held = Vec::new();
    while memory.available_bytes() >= 4 << 20 {
        let mut reservation = memory.connection().reservation();
        reservation.try_cover(4 << 20).unwrap();
        held.push(reservation);
    }
    let mut last = memory.connection().reservation();
    let _ = last.try_cover(memory.available_bytes());
    let requests = [
        (format!("{C}/documents:aggregate"), json!({ "pipeline": [] })),
        (format!("{C}/documents:distinct"), json!({ "field": "text" })),
        (
            "/v1/databases/shop/transaction".to_owned(),
            json!({ "operations": [{ "collection": "c", "find": {} }] }),
        ),
    ];
    for (path, body) in &requests {
        server.post(path, body).await.refused(429, "resource_exhausted");
    }
    let group = "/v1/projects/shop/databases/(default)/documents/*";
    server.get(group).await.refused(429, "resource_exhausted");
    drop((held, last));
    for (path, body) in &requests {
        server.post(path, body).await.ok();
    }
    assert_eq!(memory.available_bytes(), available);
}

#[tokio::test]
async fn c_output_into_another_database_needs_its_rights_and_obeys_its_rules() {
    let server = with_documents(Limits::default(), json!([{ "_id": "a", "n": 1 }])).await;
    let target = "/v1/databases/other/collections/ruled";
    let rules = r#"{"rules":{"read":"true","write":"false"}}"#;
    assert_eq!(server.request("PUT", target, &[JSON], rules.as_bytes()).await.status, 201);
    let access = server.service.access();
    let mut authorization = Vec::new();
    for (name, other) in [
        ("nothing", &[][..]),
        ("append", &[Right::Append]),
        ("both", &[Right::Read, Right::Append]),
        ("admin", &[Right::Admin]),
    ] {
        let roles = Roles::from([
            ("shop".to_owned(), [Right::Admin].into_iter().collect()),
            ("other".to_owned(), other.iter().copied().collect()),
        ]);
        let token = access.create_token(&Caller::everybody(), name, roles, None).await.unwrap().1;
        authorization.push(format!("Bearer {token}"));
    }
    let [nothing, append, both, admin] = &authorization[..] else { panic!() };
    let write = |who: &String, stage: Value| {
        let (server, who) = (&server, who.clone());
        let body = json!({ "pipeline": [stage] }).to_string();
        async move {
            let headers = [JSON, ("authorization", &*who)];
            server.request("POST", &format!("{C}/documents:aggregate"), &headers, body.as_bytes()).await
        }
    };
    let out = |name: &str| json!({ "$out": { "db": "other", "coll": name } });
    let merge = |name: &str| json!({ "$merge": { "into": { "db": "other", "coll": name } } });
    let denied = |reply: Reply| reply.refused(403, "permission_denied");
    denied(write(nothing, out("free")).await);
    denied(write(nothing, merge("free")).await);
    denied(write(append, merge("free")).await);
    write(append, out("free")).await.ok();
    write(both, merge("free")).await.ok();
    // The rules of the target apply to an administrator of the source.
    denied(write(both, out("ruled")).await);
    denied(write(both, merge("ruled")).await);
    write(admin, merge("ruled")).await.ok();
}
