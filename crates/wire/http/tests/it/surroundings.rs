//! The layers around every route: unknown paths, methods, headers, compression, CORS, readiness, metrics.

use std::io::Read;

use ropewalk_http::{Cors, HttpSettings};
use ropewalk_wire::Limits;
use serde_json::{Value, json};

use crate::client::Server;

#[tokio::test]
async fn unknown_paths_and_methods_are_rejected() {
    let server = Server::start().await;
    for path in ["/", "/v2", "/v1/stores/s/nothing", "/v1/stores/s/events:nothing", "/cleanup"] {
        server.get(path).await.refused(404, "no_such_route");
    }
    for (method, path, allowed) in [
        ("DELETE", "/v1/stores/s/events", "GET,HEAD,POST"),
        ("POST", "/v1/stores/s/head", "GET,HEAD"),
        ("PUT", "/append", "POST"),
        ("POST", "/health", "GET,HEAD"),
    ] {
        let reply = server.request(method, path, &[], b"").await;
        reply.refused(405, "method_not_allowed");
        let mut methods: Vec<&str> = reply.header("allow").unwrap_or_default().split(',').collect();
        methods.sort_unstable();
        assert_eq!(methods.join(","), allowed, "{method} {path}");
    }
}

#[tokio::test]
async fn title_names_the_invalid_part_of_a_request() {
    let server = Server::start().await;
    let events = "/v1/stores/s/events";
    let json = ("content-type", "application/json");
    let event = r#"{"events": [{"type": "A"}]}"#;
    let statement = r#"{"operations": [{"sql": {"sql": "SELEC 1"}}]}"#;
    for (method, path, headers, body, title) in [
        ("POST", events, &[json][..], "{", "Invalid body"),
        ("POST", events, &[json], r#"{"events": [{"typ": "A"}]}"#, "Invalid field"),
        ("POST", events, &[json, ("idempotency-key", "\u{e9}")], event, "Invalid header"),
        ("GET", "/v1/stores/s/events?limit=x", &[], "", "Invalid query parameter"),
        ("POST", "/v1/transactions", &[json], statement, "SQL syntax error"),
    ] {
        let reply = server.request(method, path, headers, body.as_bytes()).await;
        reply.refused(400, "invalid_argument");
        assert_eq!(reply.json()["title"], title, "{method} {path}");
    }
    for (headers, title) in [
        (&[("content-type", "text/plain")][..], "Unsupported Content-Type"),
        (&[json, ("content-encoding", "br")], "Unsupported Content-Encoding"),
    ] {
        let reply = server.request("POST", events, headers, event.as_bytes()).await;
        reply.refused(415, "unsupported_media_type");
        assert_eq!(reply.json()["title"], title);
    }
}

#[tokio::test]
async fn headers_over_the_limit_are_rejected() {
    let server = Server::start().await;
    let long = "x".repeat(20_000);
    server.request("GET", "/health", &[("x-long", &long)], b"").await.refused(431, "headers_too_large");
    server.request("GET", "/health", &[("x-long", &long[..10_000])], b"").await.ok();
}

#[tokio::test]
async fn long_responses_are_compressed_and_live_ones_are_not() {
    let server = Server::start().await;
    let events: Vec<Value> = (0..200).map(|n| json!({ "type": "A", "data": { "n": n } })).collect();
    server.append("s", events.into()).await;
    let plain = server.get("/v1/stores/s/events").await;
    assert_eq!(plain.header("content-encoding"), None);
    for encoding in ["gzip", "zstd"] {
        let reply = server.request("GET", "/v1/stores/s/events", &[("accept-encoding", encoding)], b"").await;
        assert_eq!(reply.header("content-encoding"), Some(encoding));
        assert!(reply.header("vary").is_some_and(|vary| vary.eq_ignore_ascii_case("accept-encoding")));
        assert!(reply.body.len() < plain.body.len() / 2);
        let mut inflated = Vec::new();
        match encoding {
            "gzip" => flate2::read::GzDecoder::new(&reply.body[..]).read_to_end(&mut inflated).unwrap(),
            _ => {
                zstd::stream::read::Decoder::new(&reply.body[..]).unwrap().read_to_end(&mut inflated).unwrap()
            }
        };
        assert_eq!(inflated, plain.body);
    }
    let short = server.request("GET", "/v1/stores/s/head", &[("accept-encoding", "gzip")], b"").await;
    assert_eq!(short.header("content-encoding"), None);
    let mut live =
        server.follow("/v1/stores/s/subscribe?format=ndjson", &[("accept-encoding", "gzip")]).await;
    assert_eq!(live.header("content-encoding"), None);
    assert_eq!(live.line().await.unwrap()["position"], 1);
}

#[tokio::test]
async fn cors_is_off_unless_set() {
    let preflight = [
        ("origin", "https://app.example"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "content-type,authorization,idempotency-key"),
    ];
    let server = Server::start().await;
    let reply = server.request("OPTIONS", "/v1/stores/s/events", &preflight, b"").await;
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (405, None));

    let settings =
        |origin: &str| HttpSettings { cors: Cors::origins([origin]).unwrap(), ..HttpSettings::default() };
    let server = Server::with(Limits::default(), settings("https://app.example")).await;
    let reply = server.request("OPTIONS", "/v1/stores/s/events", &preflight, b"").await;
    assert_eq!(
        (reply.status, reply.header("access-control-allow-origin")),
        (200, Some("https://app.example"))
    );
    assert!(reply.header("access-control-allow-headers").unwrap().contains("idempotency-key"));
    assert!(reply.header("access-control-allow-methods").unwrap().contains("DELETE"));
    let reply = server.request("GET", "/v1/stores", &[("origin", "https://app.example")], b"").await;
    assert!(reply.header("access-control-expose-headers").unwrap().contains("ropewalk-head"));
    let reply = server.request("GET", "/v1/stores", &[("origin", "https://other.example")], b"").await;
    assert_eq!(reply.header("access-control-allow-origin"), None);

    let server = Server::with(Limits::default(), settings("*")).await;
    let reply = server.request("GET", "/v1/stores", &[("origin", "https://other.example")], b"").await;
    assert_eq!(reply.header("access-control-allow-origin"), Some("*"));
}

#[tokio::test]
async fn database_that_rejects_writes_is_not_ready() {
    let server = Server::start().await;
    server.post("/v1/stores/s/events", json!({ "events": [{ "type": "A" }] })).await.ok();
    server.service.database().clone().close().unwrap();
    server.get("/ready").await.refused(500, "internal");
    let refused = server.post("/v1/stores/s/events", json!({ "events": [{ "type": "A" }] })).await;
    refused.refused(500, "internal");
    assert!(refused.json()["detail"].as_str().unwrap().contains("rejects writes"));
    server.get("/health").await.ok();
    assert_eq!(server.get("/v1/stores/s/events:count").await.ok()["count"], 1);
}

#[tokio::test]
async fn readiness_ends_with_the_stop_and_liveness_does_not() {
    let server = Server::start().await;
    assert_eq!(server.get("/ready").await.ok(), json!({ "status": "ready" }));
    server.service.stop().begin();
    server.get("/ready").await.refused(503, "stopping");
    server.get("/health").await.ok();
    let refused = server.post("/v1/stores/s/events", json!({ "events": [{ "type": "A" }] })).await;
    refused.refused(503, "stopping");
    assert!(refused.header("retry-after").is_some());
}

#[tokio::test]
async fn appends_over_the_limit_get_retry_after() {
    let limits = Limits { appends_in_flight: 0, ..Limits::default() };
    let server = Server::with(limits, HttpSettings::default()).await;
    let refused = server.post("/v1/stores/s/events", json!({ "events": [{ "type": "A" }] })).await;
    refused.refused(429, "resource_exhausted");
    assert_eq!(refused.header("retry-after"), Some("1"));
}

#[tokio::test]
async fn requests_are_counted_by_operation_and_outcome() {
    let server = Server::start().await;
    server.append("s", json!([{ "type": "A" }])).await;
    server.get("/v1/stores/none/head?must_exist=true").await;
    server.get("/nowhere").await;
    let text = server.service.metrics().render(server.service.database());
    for row in [
        "protocol=\"http\",operation=\"append\",code=\"ok\"} 1",
        "protocol=\"http\",operation=\"head\",code=\"not_found\"} 1",
        "protocol=\"http\",operation=\"no_route\",code=\"invalid_argument\"} 1",
    ] {
        assert!(text.contains(row), "{row}\n{text}");
    }
}

#[tokio::test]
async fn garbage_gets_a_response_or_a_closed_connection() {
    let server = Server::start().await;
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"[..],
        b"GET / HTTP/9.9\r\n\r\n",
        b"\r\n\r\n\r\nNONSENSE\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
    ] {
        assert_eq!(server.raw(bytes).await.status, 400);
    }
    server.get("/health").await.ok();
}

#[tokio::test]
async fn a5_other_hosts_and_pages_of_other_origins_are_refused() {
    let hosts = ropewalk_http::Hosts::names(["db.example"]).unwrap();
    let settings = HttpSettings { hosts, ..HttpSettings::default() };
    let server = Server::with(Limits::default(), settings).await;
    let send = async |method: &str, host: &str, headers: &str| {
        let raw = format!(
            "{method} /v1/stores/s HTTP/1.1\r\nhost: {host}\r\n{headers}content-length: 0\r\nconnection: close\r\n\r\n"
        );
        server.raw(raw.as_bytes()).await
    };
    for host in ["localhost", "localhost:4780", "127.0.0.1:4780", "[::1]:4780", "db.example", "DB.example:1"]
    {
        assert!(send("PUT", host, "").await.status < 300, "{host}");
    }
    for host in ["evil.example", "evil.example:4780", "localhost.evil.example"] {
        for method in ["GET", "PUT"] {
            send(method, host, "").await.refused(421, "unknown_host");
        }
    }
    assert!(send("PUT", "localhost", "origin: http://localhost\r\n").await.status < 300);
    for headers in [
        "origin: http://evil.example\r\n",
        "origin: null\r\n",
        "origin: http://localhost:9999\r\n",
        "sec-fetch-site: cross-site\r\n",
    ] {
        send("PUT", "localhost", headers).await.refused(403, "foreign_origin");
        send("DELETE", "localhost", headers).await.refused(403, "foreign_origin");
    }
    assert_eq!(send("GET", "localhost", "origin: http://evil.example\r\n").await.status, 200);
}
