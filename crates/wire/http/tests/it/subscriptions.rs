//! Server-sent events and NDJSON.

use std::time::Duration;

use ropewalk_http::HttpSettings;
use ropewalk_wire::Limits;
use serde_json::{Value, json};

use crate::client::Server;

const SUBSCRIBE: &str = "/v1/stores/s/subscribe";

async fn filled(events: u64) -> Server {
    let server = Server::start().await;
    let event =
        |n: u64| json!({ "type": if n.is_multiple_of(2) { "Even" } else { "Odd" }, "data": { "n": n } });
    server.append("s", (1..=events).map(event).collect()).await;
    server
}

#[tokio::test]
async fn server_sent_events_catch_up_and_continue_live() {
    let server = filled(4).await;
    let mut stream =
        server.follow(&format!("{SUBSCRIBE}?type=Even"), &[("accept", "text/event-stream")]).await;
    assert_eq!(stream.status, 200);
    assert_eq!(stream.header("content-type"), Some("text/event-stream"));
    assert_eq!(stream.header("cache-control"), Some("no-cache"));
    for position in [2, 4] {
        let (id, event, data) = stream.event().await.unwrap();
        assert_eq!((id, event.as_str(), &data["position"]), (position.to_string(), "", &json!(position)));
        assert_eq!(data["data"], json!({ "n": position }));
    }
    assert_eq!(stream.event().await.unwrap(), ("4".into(), "caught-up".into(), json!({ "head": 4 })));
    server.append("s", json!([{ "type": "Odd" }, { "type": "Even" }])).await;
    let (id, _, data) = stream.event().await.unwrap();
    assert_eq!((id.as_str(), &data["type"]), ("6", &json!("Even")));
}

#[tokio::test]
async fn d1_20_subscription_waits_for_a_store_that_does_not_exist() {
    let server = Server::start().await;
    let mut streams = Vec::new();
    for after in ["", "&after=head", "&checkpoint=c"] {
        let path = format!("/v1/stores/late/subscribe?type=A{after}");
        let mut stream = server.follow(&path, &[("accept", "text/event-stream")]).await;
        assert_eq!(stream.event().await.unwrap(), ("0".into(), "caught-up".into(), json!({ "head": 0 })));
        streams.push(stream);
    }
    server.append("other", json!([{ "type": "A" }])).await;
    server.append("late", json!([{ "type": "B" }, { "type": "A" }])).await;
    for stream in &mut streams {
        let (id, _, data) = stream.event().await.unwrap();
        assert_eq!((id.as_str(), &data["type"]), ("2", &json!("A")));
    }
    server.append("late", json!([{ "type": "A" }])).await;
    for stream in &mut streams {
        assert_eq!(stream.event().await.unwrap().0, "3");
    }
}

#[tokio::test]
async fn a_resumed_stream_neither_skips_nor_repeats() {
    let server = filled(1_500).await;
    let mut seen = Vec::new();
    let mut last = String::new();
    while seen.len() < 1_500 {
        let resume = [("last-event-id", last.as_str())];
        let headers = if last.is_empty() { &[][..] } else { &resume[..] };
        // The position in the URL counts only for the first connection.
        let mut stream = server.follow(&format!("{SUBSCRIBE}?after=0"), headers).await;
        for _ in 0..401 {
            let (id, event, data) = stream.event().await.unwrap();
            last = id;
            match event.as_str() {
                "" => seen.push(data["position"].as_u64().unwrap()),
                _ => break,
            }
        }
    }
    assert_eq!(seen, (1..=1_500).collect::<Vec<_>>());
    let reply = server.request("GET", SUBSCRIBE, &[("last-event-id", "x")], b"").await;
    reply.refused(400, "invalid_argument");
}

#[tokio::test]
async fn ndjson_subscription_delivers_lines() {
    let server = filled(2).await;
    for (path, headers) in [
        (format!("{SUBSCRIBE}?format=ndjson"), &[][..]),
        (SUBSCRIBE.into(), &[("accept", "application/x-ndjson")]),
    ] {
        let mut stream = server.follow(&path, headers).await;
        assert_eq!(stream.header("content-type"), Some("application/x-ndjson"));
        assert_eq!(stream.line().await.unwrap()["position"], 1);
        assert_eq!(stream.line().await.unwrap()["position"], 2);
        assert_eq!(stream.line().await.unwrap(), json!({ "control": "caught-up", "head": 2 }));
    }
    let mut news = server.follow(&format!("{SUBSCRIBE}?format=ndjson&after=head"), &[]).await;
    assert_eq!(news.line().await.unwrap(), json!({ "control": "caught-up", "head": 2 }));
    server.append("s", json!([{ "type": "A" }])).await;
    assert_eq!(news.line().await.unwrap()["position"], 3);
    server
        .request("GET", SUBSCRIBE, &[("accept", "application/json")], b"")
        .await
        .refused(406, "not_acceptable");
}

#[tokio::test]
async fn idle_stream_sends_heartbeats() {
    let settings = HttpSettings { heartbeat: Duration::from_millis(20), ..HttpSettings::default() };
    let server = Server::with(Limits::default(), settings).await;
    server.request("PUT", "/v1/stores/s", &[], b"").await;
    let mut stream = server.follow(&format!("{SUBSCRIBE}?format=sse"), &[]).await;
    assert_eq!(stream.until("\n\n").await.unwrap(), "id: 0\nevent: caught-up\ndata: {\"head\":0}");
    for _ in 0..3 {
        assert_eq!(stream.until("\n\n").await.unwrap(), ": heartbeat");
    }
    let mut lines = server.follow(&format!("{SUBSCRIBE}?format=ndjson"), &[]).await;
    lines.line().await.unwrap();
    assert_eq!(lines.line().await.unwrap(), json!({ "control": "heartbeat" }));
    // A heartbeat loses nothing.
    server.append("s", json!([{ "type": "A" }])).await;
    let (id, ..) = stream.event().await.unwrap();
    assert_eq!(id, "1");
}

#[tokio::test]
async fn shutdown_is_announced_and_ends_streams() {
    let server = filled(1).await;
    let mut sse = server.follow(SUBSCRIBE, &[]).await;
    let mut lines = server.follow(&format!("{SUBSCRIBE}?format=ndjson"), &[]).await;
    for _ in 0..2 {
        sse.event().await.unwrap();
        lines.line().await.unwrap();
    }
    server.service.stop().begin();
    let (_, event, problem) = sse.event().await.unwrap();
    assert_eq!((event.as_str(), &problem["code"]), ("error", &json!("stopping")));
    assert_eq!(lines.line().await.unwrap()["problem"]["code"], "stopping");
    assert!(sse.event().await.is_none() && lines.line().await.is_none());
    let refused = server.get(SUBSCRIBE).await;
    refused.refused(503, "stopping");
    assert!(refused.header("retry-after").is_some());
}

#[tokio::test]
async fn followers_are_limited() {
    let server =
        Server::with(Limits { subscriptions: 1, ..Limits::default() }, HttpSettings::default()).await;
    server.append("s", json!([{ "type": "A" }])).await;
    let mut first = server.follow(SUBSCRIBE, &[]).await;
    first.event().await.unwrap();
    let refused = server.get(SUBSCRIBE).await;
    refused.refused(429, "resource_exhausted");
    assert_eq!(refused.header("retry-after"), Some("1"));
    drop(first);
    // The slot is free once the server has noticed; until then the response is 429.
    loop {
        let stream = server.follow(SUBSCRIBE, &[]).await;
        if stream.status == 200 {
            break;
        }
        assert_eq!(stream.status, 429);
        server.append("s", json!([{ "type": "A" }])).await;
    }
}

#[tokio::test]
async fn slow_reader_gets_everything() {
    let server = filled(1).await;
    let mut slow = server.follow(&format!("{SUBSCRIBE}?format=ndjson"), &[]).await;
    let text = "x".repeat(10_000);
    for _ in 0..40 {
        let events: Vec<Value> = (0..50).map(|_| json!({ "type": "Big", "data": text })).collect();
        server.append("s", events.into()).await;
    }
    let mut positions = Vec::new();
    while positions.len() < 2_001 {
        let line = slow.line().await.unwrap();
        positions.extend(line["position"].as_u64());
    }
    assert_eq!(positions, (1..=2_001).collect::<Vec<_>>());
}
