//! Remote read, in both formats.

use crate::kit::{Message, Reply, Server, m};

const HEADERS: [(&str, &str); 2] =
    [("content-type", "application/x-protobuf"), ("content-encoding", "snappy")];

fn matcher(kind: i64, name: &str, value: &str) -> Message {
    m().int(1, kind).bytes(2, name).bytes(3, value)
}

fn query(start: i64, end: i64, matchers: &[Message]) -> Message {
    matchers.iter().fold(m().int(1, start).int(2, end), |query, matcher| query.message(3, matcher.clone()))
}

async fn read(server: &Server, request: &Message) -> Reply {
    server.send("POST", "/api/v1/read", &HEADERS, &request.snappy()).await
}

fn labels(pairs: &[(&str, &str)]) -> Message {
    pairs.iter().fold(m(), |series, (name, value)| series.message(1, m().bytes(1, name).bytes(2, value)))
}

async fn filled() -> Server {
    let server = Server::new();
    server.import("up{job=\"b\"} 1 1000\nup{job=\"b\"} 0 2000\nup{job=\"a\"} 5 1500\ndown 1 1500\n").await;
    server
}

#[tokio::test]
async fn samples() {
    let server = filled().await;
    let up = [matcher(0, "__name__", "up"), matcher(2, "job", "a|b")];
    let request = m().message(1, query(1000, 1999, &up)).message(1, query(0, 10, &up));
    let reply = read(&server, &request).await;
    reply.is(200);
    assert_eq!(
        (reply.header("content-type"), reply.header("content-encoding")),
        ("application/x-protobuf", "snappy")
    );
    let row = |time, value| m().double(1, value).int(2, time);
    let a = labels(&[("__name__", "up"), ("job", "a")]).message(2, row(1500, 5.0));
    let b = labels(&[("__name__", "up"), ("job", "b")]).message(2, row(1000, 1.0));
    let expected = m().message(1, m().message(1, a).message(1, b)).message(1, m());
    assert_eq!(snap::raw::Decoder::new().decompress_vec(&reply.body).unwrap(), expected.0);
}

#[tokio::test]
async fn chunks() {
    let server = filled().await;
    let request = m().message(1, query(0, 5000, &[matcher(0, "job", "b")])).packed(2, &[1, 0]);
    let reply = read(&server, &request).await;
    reply.is(200);
    assert_eq!(
        reply.header("content-type"),
        "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse"
    );
    // Two samples 1000 ms apart, 1.0 then 0.0: see the tests of the chunk encoder for the bits.
    let (length, rest) = (usize::from(reply.body[0]), &reply.body[1..]);
    let (sum, data) = rest.split_at(4);
    assert_eq!((length, crc32c::crc32c(data).to_be_bytes()), (data.len(), sum.try_into().unwrap()));
    let head = labels(&[("__name__", "up"), ("job", "b")]).0;
    let series = &data[2..2 + usize::from(data[1])];
    assert!(series.starts_with(&head), "{series:?}");
    let chunk = &series[head.len() + 2..];
    let bounds = m().int(1, 1000).int(2, 2000).int(3, 1).0;
    assert!(chunk.starts_with(&bounds), "{chunk:?}");
    assert_eq!(&chunk[bounds.len() + 2..][..4], [0, 2, 0xd0, 0x0f], "count and first time");
    assert_eq!(&data[data.len() - 2..], [0x10, 0], "number of the query");
}

#[tokio::test]
async fn histograms_go_as_samples() {
    let server = filled().await;
    let span = m().sint(1, 3).int(2, 1);
    let histogram = m().int(1, 7).double(3, 1.5).sint(4, 2).message(11, span).packed(12, &[14]).int(15, 1000);
    let series = labels(&[("__name__", "h")]).message(4, histogram);
    server.send("POST", "/api/v1/write", &HEADERS, &m().message(1, series).snappy()).await.is(204);
    let asked = m().message(1, query(0, 5000, &[matcher(0, "__name__", "h")]));
    let reply = read(&server, &asked.clone().packed(2, &[1, 0])).await;
    let body = snap::raw::Decoder::new().decompress_vec(&reply.is(200).body).unwrap();
    let span = m().sint(1, 3).int(2, 1);
    let histogram =
        m().double(2, 7.0).double(3, 1.5).sint(4, 2).double(5, 0.0).double(7, 0.0).message(11, span);
    let histogram = histogram.bytes(13, 7.0_f64.to_le_bytes()).int(14, 0).int(15, 1000);
    let expected = m().message(1, m().message(1, labels(&[("__name__", "h")]).message(4, histogram)));
    assert_eq!(body, expected.0);
    read(&server, &asked.packed(2, &[1])).await.says(422, "as samples only");
}

#[tokio::test]
async fn rejects_malformed_input() {
    let server = filled().await;
    read(&server, &Message(b"\x0a\x05ab".to_vec())).await.says(400, "malformed protobuf");
    read(&server, &m().message(1, query(0, 1, &[matcher(9, "a", "b")]))).await.says(400, "no matcher type 9");
    read(&server, &m().message(1, query(0, 1, &[matcher(2, "a", "(")]))).await.is(400);
    let many = (0..1001).fold(m(), |request, _| request.message(1, m()));
    read(&server, &many).await.says(400, "1001 queries");
    server.send("POST", "/api/v1/read", &[("content-encoding", "gzip")], b"").await.is(415);
}

#[tokio::test]
async fn chunked_response_has_one_frame_per_series() {
    let server = filled().await;
    let request = m().message(1, query(0, 5000, &[matcher(3, "__name__", "")])).packed(2, &[1]);
    let body = read(&server, &request).await.is(200).body.clone();
    let (mut rest, mut frames) = (&body[..], 0);
    while !rest.is_empty() {
        let length = usize::from(rest[0]);
        let data = &rest[5..5 + length];
        // One field 1, the series, then the number of the query.
        assert_eq!((data[0], usize::from(data[1]) + 4), (0x0a, length));
        rest = &rest[5 + length..];
        frames += 1;
    }
    assert_eq!(frames, server.dump().lines().count());
}
