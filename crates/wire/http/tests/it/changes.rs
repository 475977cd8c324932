//! The change feed.

use std::time::Duration;

use ropewalk_auth::{Caller, Right, Roles};
use ropewalk_http::HttpSettings;
use ropewalk_wire::Limits;
use serde_json::{Value, json};

use crate::client::Server;

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn commits_arrive_in_order_and_complete() {
    let server = Server::start().await;
    let first = server.append("s", json!([{ "type": "A", "data": 1 }, { "type": "B" }])).await["seq"]
        .as_u64()
        .unwrap();
    server.append("t", json!([{ "type": "C", "data_base64": "/w==" }])).await;
    let reply = server.get(&format!("/v1/changes?from={first}")).await;
    assert_eq!(reply.header("content-type"), Some("application/x-ndjson"));
    let commits = lines(reply.text());
    assert_eq!(commits.iter().map(|c| c["seq"].as_u64().unwrap()).collect::<Vec<_>>(), [first, first + 1]);
    let events = server.get("/v1/stores/s/events").await.ok()["events"].clone();
    assert_eq!(commits[0]["appends"], json!([{ "store": "s", "events": events }]));
    assert_eq!(commits[1]["appends"][0]["events"][0]["data_base64"], "/w==");

    let newest = lines(server.get("/v1/changes?last=1").await.text());
    assert_eq!(newest, commits[1..]);
    let limited = lines(server.get(&format!("/v1/changes?from={first}&limit=1")).await.text());
    assert_eq!(limited, commits[..1]);
    assert!(lines(server.get("/v1/changes").await.text()).ends_with(&commits));
    assert_eq!(server.get(&format!("/v1/changes?from={}", first + 2)).await.text(), "");
    // A client that accepts compression gets the same.
    let gzip = [("accept-encoding", "gzip")];
    assert_eq!(lines(server.request("GET", "/v1/changes?last=1", &gzip, b"").await.text()), newest);
    server.get("/v1/changes?from=1&last=1").await.refused(400, "invalid_argument");
    server.get("/v1/changes?sinc=1").await.refused(400, "invalid_argument");

    server.request("DELETE", "/v1/stores/t", &[], b"").await;
    let deleted = lines(server.get("/v1/changes?last=1").await.text());
    assert_eq!(deleted[0]["appends"][0]["deleted"], true);
}

#[tokio::test]
async fn commits_are_found_by_time() {
    let server = Server::start().await;
    for number in 0..20 {
        server.append("s", json!([{ "type": "A", "data": number }])).await;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let all = lines(server.get("/v1/changes").await.text());
    for (place, commit) in all.iter().enumerate() {
        let time = commit["recorded_at"].as_str().unwrap();
        // Several commits may have one time: the first of them is found.
        let first = all.iter().position(|other| other["recorded_at"] == time).unwrap();
        let found = lines(server.get(&format!("/v1/changes?since={time}&limit=1")).await.text());
        assert_eq!(found, all[first..=first], "{place}: {time}");
    }
    assert_eq!(lines(server.get("/v1/changes?since=1999-01-01T00:00:00Z").await.text()), all);
    assert_eq!(server.get("/v1/changes?since=2999-01-01T00:00:00Z").await.text(), "");
    for wrong in ["since=soon", "since=", "since=2026-01-01&from=1", "since=2026-01-01&last=1"] {
        server.get(&format!("/v1/changes?{wrong}")).await.refused(400, "invalid_argument");
    }
}

#[tokio::test]
async fn writes_to_documents_series_and_tables_are_reported() {
    use ropewalk::series::{Labels, SampleBatch};
    use ropewalk::tables::{ColumnDef, TableDef, Type};
    let server = Server::start().await;
    let db = server.service.database();
    let series = db.series("metrics").unwrap();
    let begin = db.seq().0 + 1;
    let mut samples = SampleBatch::new();
    samples.push(&Labels::new([("__name__", "up")]).unwrap(), 1, 1.0);
    let table = TableDef::new("t").column(ColumnDef::new("id", Type::INT8)).primary_key(["id"]);
    let mut tx = db.begin();
    tx.append_samples(&series, &samples).unwrap();
    tx.tables().create_table(table).unwrap();
    tx.commit().unwrap();
    let json = [("content-type", "application/json")];
    let path = "/v1/databases/d/collections/c/documents/1";
    assert_eq!(server.request("PUT", path, &json, b"{\"n\":1}").await.status, 201);
    server.append("s", json!([{ "type": "A" }])).await;
    let commits = lines(server.get(&format!("/v1/changes?from={begin}")).await.text());
    let models = |commit: &Value| {
        let others = commit["others"].as_array().cloned().unwrap_or_default();
        assert!(others.iter().all(|other| other["bytes"].as_u64().unwrap() > 0), "{commit}");
        others.iter().map(|other| other["model"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let mut told: Vec<String> = commits.iter().flat_map(models).collect();
    told.sort();
    told.dedup();
    assert_eq!(told, ["documents", "tables", "time series"]);
    // A reader of events alone sees the same as before.
    assert!(commits.last().unwrap().get("others").is_none());
}

#[tokio::test]
async fn a_follower_sees_new_commits_heartbeats_and_the_stop() {
    let settings = HttpSettings { heartbeat: Duration::from_millis(20), ..HttpSettings::default() };
    let server = Server::with(Limits::default(), settings).await;
    let mut feed = server.follow("/v1/changes?follow=true&last=0", &[("accept-encoding", "gzip")]).await;
    let next = async |feed: &mut crate::client::Stream| {
        loop {
            let line = feed.line().await.unwrap();
            if line["control"] != "heartbeat" {
                return line;
            }
        }
    };
    assert_eq!(feed.line().await.unwrap(), json!({ "control": "heartbeat" }));
    for n in 1..=3 {
        server.append("s", json!([{ "type": "A" }])).await;
        assert_eq!(next(&mut feed).await["appends"][0]["events"][0]["position"], n);
    }
    server.service.stop().begin();
    assert_eq!(next(&mut feed).await["problem"]["code"], "stopping");
    assert!(feed.line().await.is_none());
}

#[tokio::test]
async fn follower_at_an_interval_gets_the_newest_commits_and_the_number_of_the_others() {
    let server = Server::start().await;
    let mut feed = server.follow("/v1/changes?follow=true&last=0&interval_ms=3000&newest=2", &[]).await;
    for _ in 0..6 {
        server.append("s", json!([{ "type": "A" }])).await;
    }
    let newest = server.service.database().seq().0;
    assert_eq!(feed.line().await.unwrap(), json!({ "control": "skipped", "commits": 4 }));
    for seq in [newest - 1, newest] {
        assert_eq!(feed.line().await.unwrap()["seq"], seq);
    }
    for invalid in [
        "newest=2",
        "interval_ms=500",
        "follow=true&newest=0",
        "follow=true&newest=10001",
        "follow=true&interval_ms=99",
        "follow=true&interval_ms=10001",
    ] {
        server.get(&format!("/v1/changes?{invalid}")).await.refused(400, "invalid_argument");
    }
}

#[tokio::test]
async fn feed_requires_admin_and_contains_no_values() {
    let server = Server::start().await;
    let (access, admin) = (server.service.access(), Caller::everybody());
    let roles = |right| Roles::from([("*".to_owned(), [right].into())]);
    let (_, reader) = access.create_token(&admin, "reader", roles(Right::Read), None).await.unwrap();
    let (_, chief) = access.create_token(&admin, "chief", roles(Right::Admin), None).await.unwrap();
    let get = async |token: &str| {
        let bearer = format!("Bearer {token}");
        server.request("GET", "/v1/changes", &[("authorization", &bearer)], b"").await
    };
    get(&reader).await.refused(403, "permission_denied");
    let commits = lines(get(&chief).await.text());
    let writes = commits.iter().flat_map(|commit| commit["writes"].as_array().unwrap());
    assert!(writes.clone().count() >= 2);
    for write in writes {
        let fields: Vec<&String> = write.as_object().unwrap().keys().collect();
        assert_eq!(fields, ["change", "key_base64", "keyspace"]);
    }
}

#[tokio::test]
async fn m3_feed_ends_when_the_token_of_its_reader_is_dropped() {
    let server = Server::start().await;
    let (access, admin) = (server.service.access(), Caller::everybody());
    let roles = Roles::from([("*".to_owned(), [Right::Admin].into())]);
    access.create_token(&admin, "other", roles.clone(), None).await.unwrap();
    let (info, token) = access.create_token(&admin, "chief", roles, None).await.unwrap();
    let bearer = format!("Bearer {token}");
    let mut feed = server.follow("/v1/changes?follow=true&last=1", &[("authorization", &bearer)]).await;
    assert!(feed.line().await.unwrap()["seq"].is_u64());
    access.drop_token(&admin, &info.id).await.unwrap();
    // The commit that dropped the token is the first that the reader must not see.
    loop {
        let line = feed.line().await.unwrap();
        if line["control"] != "heartbeat" {
            assert_eq!(line["problem"]["code"], "unauthenticated", "{line}");
            break;
        }
    }
    assert!(feed.line().await.is_none());
}
