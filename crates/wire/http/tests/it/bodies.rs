//! Bodies of the wrong type, size, encoding and form.

use std::io::Write;
use std::time::Duration;

use ropewalk_http::HttpSettings;
use ropewalk_wire::Limits;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use crate::client::Server;

const EVENTS: &str = "/v1/stores/s/events";
const JSON: (&str, &str) = ("content-type", "application/json");

async fn small() -> Server {
    Server::with(Limits { request_bytes: 10_000, ..Limits::default() }, HttpSettings::default()).await
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn other_types_are_refused() {
    let server = Server::start().await;
    let body = br#"{"events":[{"type":"A"}]}"#;
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/json; charset=latin1",
        "application/jsonx",
        "",
    ] {
        let reply = server.request("POST", EVENTS, &[("content-type", kind)], body).await;
        reply.refused(415, "unsupported_media_type");
        assert!(reply.detail().contains("application/json"));
    }
    server.request("POST", EVENTS, &[], body).await.refused(415, "unsupported_media_type");
    for kind in ["application/json", "Application/JSON; charset=UTF-8"] {
        server.request("POST", EVENTS, &[("content-type", kind)], body).await.ok();
    }
}

#[tokio::test]
async fn invalid_json_is_rejected_with_its_position() {
    let server = Server::start().await;
    let wrong: [(&[u8], &str); 9] = [
        (b"", "line 1 column 0"),
        (b"{", "line 1 column 1"),
        (b"{\n  \"events\": [}\n", "line 2 column 14"),
        (b"{\"events\":[{\"type\":\"A\"}]} x", "line 1 column 27"),
        (b"{\"events\":[{\"type\":\"\xff\"}]}", "byte 20"),
        (b"[]", "expected an object at line 1"),
        (b"{\"events\":[[\"A\",[]]]}", "expected an object at line 1"),
        (b"{\"events\":[],\"conditions\":[[{}]]}", "expected an object at line 1"),
        (b"{\"events\":[{\"type\":\"A\",\"type\":\"B\"}]}", "duplicate field `type`"),
    ];
    for (body, expected) in wrong {
        let reply = server.request("POST", EVENTS, &[JSON], body).await;
        reply.refused(400, "invalid_argument");
        assert!(reply.detail().contains(expected), "{expected}: {}", reply.detail());
    }
    let deep =
        format!("{{\"events\":[{{\"type\":\"A\",\"data\":{}1{}}}]}}", "[".repeat(50_000), "]".repeat(50_000));
    server.post(EVENTS, &deep).await.ok();
    assert_eq!(server.get(EVENTS).await.status, 200);
    let deep = "[".repeat(1_000_000);
    server.post(EVENTS, &deep).await.refused(400, "invalid_argument");
}

#[tokio::test]
async fn large_bodies_are_rejected_before_and_while_they_arrive() {
    let server = small().await;
    let event = |bytes: usize| json!({ "events": [{ "type": "A", "data": "x".repeat(bytes) }] });
    server.post(EVENTS, event(9_000)).await.ok();
    server.post(EVENTS, event(20_000)).await.refused(413, "too_large");
    // Announced too large: rejected without a byte of the body.
    let announced = format!(
        "POST {EVENTS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 99999999999\r\n\r\n"
    );
    server.raw(announced.as_bytes()).await.refused(413, "too_large");
    // Not announced at all.
    let mut chunked = format!("POST {EVENTS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n").into_bytes();
    for _ in 0..20 {
        chunked.extend_from_slice(b"400\r\n");
        chunked.extend_from_slice(&[b' '; 0x400]);
        chunked.extend_from_slice(b"\r\n");
    }
    server.raw(&chunked).await.refused(413, "too_large");
    assert_eq!(server.get("/v1/stores/s/head").await.ok()["head"], 1);
}

#[tokio::test]
async fn too_many_events_are_refused() {
    let server =
        Server::with(Limits { append_events: 2, ..Limits::default() }, HttpSettings::default()).await;
    let events = |n: usize| json!({ "events": vec![json!({ "type": "A" }); n] });
    server.post(EVENTS, events(2)).await.ok();
    server.post(EVENTS, events(3)).await.refused(413, "too_large");
}

#[tokio::test]
async fn compressed_bodies_are_inflated_up_to_the_limit() {
    let server = small().await;
    let body = json!({ "events": [{ "type": "A", "data": "x".repeat(5_000) }] }).to_string();
    let bomb = vec![b' '; 2_000_000];
    type Compress = fn(&[u8]) -> Vec<u8>;
    let zstd: Compress = |bytes| zstd::encode_all(bytes, 1).unwrap();
    for (name, compress) in [("gzip", gzip as Compress), ("zstd", zstd)] {
        let headers = [JSON, ("content-encoding", name)];
        server.request("POST", EVENTS, &headers, &compress(body.as_bytes())).await.ok();
        let compressed = compress(&bomb);
        assert!(compressed.len() < 10_000);
        server.request("POST", EVENTS, &headers, &compressed).await.refused(413, "too_large");
        server.request("POST", EVENTS, &headers, body.as_bytes()).await.refused(400, "invalid_argument");
        let cut = compress(body.as_bytes());
        server
            .request("POST", EVENTS, &headers, &cut[..cut.len() - 6])
            .await
            .refused(400, "invalid_argument");
    }
    for encoding in ["br", "deflate", "gzip, zstd", "x"] {
        let headers = [JSON, ("content-encoding", encoding)];
        let reply = server.request("POST", EVENTS, &headers, body.as_bytes()).await;
        reply.refused(415, "unsupported_media_type");
        assert_eq!(reply.header("accept-encoding"), Some("gzip, zstd"));
    }
    server.request("POST", EVENTS, &[JSON, ("content-encoding", "identity")], body.as_bytes()).await.ok();
    assert_eq!(server.get("/v1/stores/s/head").await.ok()["head"], 3);
}

#[tokio::test]
async fn large_bodies_are_parsed_off_the_async_threads() {
    let server = Server::start().await;
    let events: Vec<_> = (0..5_000)
        .map(|n| json!({ "type": "A", "tags": [format!("n:{n}")], "data": "x".repeat(100) }))
        .collect();
    assert_eq!(server.append("s", events.into()).await["last"], 5_000);
}

#[tokio::test]
async fn missing_body_ends_the_request() {
    let limits = Limits { request_time: Duration::from_millis(200), ..Limits::default() };
    let server = Server::with(limits, HttpSettings::default()).await;
    let head = format!(
        "POST {EVENTS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{{"
    );
    server.raw(head.as_bytes()).await.refused(408, "request_timeout");
}

#[tokio::test]
async fn continue_is_sent_only_when_the_body_is_wanted() {
    let server = small().await;
    let mut socket = server.connect().await;
    let body = r#"{"events":[{"type":"A"}]}"#;
    let head = format!(
        "POST {EVENTS} HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut answer = vec![0; 25];
    tokio::io::AsyncReadExt::read_exact(&mut socket, &mut answer).await.unwrap();
    assert_eq!(answer, b"HTTP/1.1 100 Continue\r\n\r\n");
    socket.write_all(body.as_bytes()).await.unwrap();
    let mut rest = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut socket, &mut rest).await.unwrap();
    assert!(rest.starts_with("HTTP/1.1 200"), "{rest}");

    let unwanted = head.replace(&format!("content-length: {}", body.len()), "content-length: 20000");
    server.raw(unwanted.as_bytes()).await.refused(413, "too_large");
}

#[tokio::test]
async fn h5_bodies_share_memory_and_inflate_within_a_ratio() {
    let server = Server::start().await;
    let memory = server.service.request_memory();
    let free = memory.available_bytes();
    let mut socket = server.connect().await;
    let head = format!(
        "POST {EVENTS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 15000000\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    socket.write_all(&vec![b' '; 4 << 20]).await.unwrap();
    let within = |from: usize, to: usize| (from..=to).contains(&(free - memory.available_bytes()));
    while !within(3 << 20, 5 << 20) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(socket);
    while memory.available_bytes() != free {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // 15 MB of blanks are 15 KB: a ratio of a thousand.
    let headers = [JSON, ("content-encoding", "gzip")];
    let bomb = gzip(&vec![b' '; 15_000_000]);
    server.request("POST", EVENTS, &headers, &bomb).await.refused(413, "too_large");
    assert_eq!(memory.available_bytes(), free);
}
