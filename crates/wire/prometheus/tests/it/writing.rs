//! Remote write 1.0 and 2.0.

use ropewalk_auth::Caller;
use ropewalk_prometheus::PrometheusSettings;
use ropewalk_wire::Limits;

use crate::kit::{Message, Reply, Server, m};

const V1: [(&str, &str); 2] = [("content-type", "application/x-protobuf"), ("content-encoding", "snappy")];
const V2: [(&str, &str); 2] = [
    ("content-type", "application/x-protobuf;proto=io.prometheus.write.v2.Request"),
    ("content-encoding", "snappy"),
];

async fn write(server: &Server, headers: &[(&str, &str)], request: &Message) -> Reply {
    server.send("POST", "/api/v1/write", headers, &request.snappy()).await
}

fn labels(pairs: &[(&str, &str)]) -> Message {
    pairs.iter().fold(m(), |series, (name, value)| series.message(1, m().bytes(1, name).bytes(2, value)))
}

fn sample(time: i64, value: f64) -> Message {
    m().double(1, value).int(2, time)
}

/// Counts 1 (zero bucket), 2, 3 in buckets 1, 2 and 5 in bucket 4, of integers.
fn histogram(time: i64) -> Message {
    let span = |offset, length| m().sint(1, offset).int(2, length);
    m().int(1, 11)
        .double(3, 18.4)
        .sint(4, 1)
        .double(5, 0.001)
        .int(6, 1)
        .message(11, span(1, 2))
        .message(11, span(1, 1))
        .packed(12, &[4, 2, 4])
        .int(14, 2)
        .int(15, time)
}

#[tokio::test]
async fn samples_and_histograms_of_version_one() {
    let server = Server::new();
    let up = labels(&[("__name__", "up"), ("job", "a")])
        .message(2, sample(1000, 1.0))
        .message(2, sample(2000, -0.5));
    let latency = labels(&[("__name__", "latency")]).message(4, histogram(1000));
    // Out of order in the request, and with metadata.
    let odd = labels(&[("job", "b"), ("__name__", "ünïcode.name"), ("empty", "")])
        .message(2, sample(-5, f64::INFINITY));
    let metadata = m().int(1, 1).bytes(2, "up").bytes(4, "Is it?").bytes(5, "units");
    let request = m().message(1, up).message(1, latency).message(3, metadata).message(1, odd);
    let reply = write(&server, &V1, &request).await;
    assert_eq!((reply.status, reply.text()), (204, ""));
    assert_eq!(
        server.dump(),
        "latency 1000:Histogram { hint: NotReset, schema: 1, zero_threshold: 0.001, zero_count: 1.0, count: 11.0, sum: 18.4, \
         positive: [Bucket { index: 1, count: 2.0 }, Bucket { index: 2, count: 3.0 }, Bucket { index: 4, count: 5.0 }], \
         negative: [], custom: [] }\n\
         up{job=\"a\"} 1000:1 2000:-0.5\n\
         {__name__=\"ünïcode.name\",job=\"b\"} -5:inf"
    );
    let metadata = server.get("/api/v1/metadata?metric=up&limit=1").await.json();
    assert_eq!(
        metadata["data"],
        serde_json::json!({"up": [{"type": "counter", "help": "Is it?", "unit": "units"}]})
    );
    // Sent again: the last one wins, and nothing is doubled.
    write(&server, &V1, &request).await.is(204);
    assert!(server.dump().contains("up{job=\"a\"} 1000:1 2000:-0.5"));
}

#[tokio::test]
async fn version_two_reports_written_counts() {
    let server = Server::new();
    let symbols = ["", "__name__", "up", "job", "a", "latency"];
    let request = symbols.iter().fold(m(), |request, symbol| request.bytes(4, symbol));
    let started = m().double(1, 2.0).int(2, 2000).int(3, 500);
    let up = m().packed(1, &[1, 2, 3, 4]).message(2, sample(1000, 1.0)).message(2, started);
    let exemplar = m().packed(1, &[3, 4]).double(2, 1.0).int(3, 1000);
    let latency = m().packed(1, &[1, 5]).message(3, histogram(1000)).message(4, exemplar);
    // A gauge whose help is "latency".
    let up = up.message(5, m().int(1, 2).int(3, 5));
    let request = request.message(5, up).message(5, latency);
    let reply = write(&server, &V2, &request).await;
    reply.is(204);
    let written = |what: &str| reply.header(&format!("x-prometheus-remote-write-{what}-written")).to_owned();
    assert_eq!([written("samples"), written("histograms"), written("exemplars")], ["2", "1", "1"]);
    assert!(server.dump().contains("up{job=\"a\"} 1000:1 2000:2@500"), "{}", server.dump());
    let metadata = server.get("/api/v1/metadata").await.json();
    assert_eq!(
        metadata["data"],
        serde_json::json!({"up": [{"type": "gauge", "help": "latency", "unit": ""}]})
    );
    let exemplars = server.get("/api/v1/query_exemplars?query=latency&start=0&end=5").await.json();
    assert_eq!(exemplars["data"][0]["exemplars"][0]["labels"], serde_json::json!({"job": "a"}));
}

#[tokio::test]
async fn invalid_series_does_not_reject_the_others() {
    let server = Server::new();
    let good = |name: &str| labels(&[("__name__", name)]).message(2, sample(1, 1.0));
    let twice = labels(&[("__name__", "x"), ("a", "1"), ("a", "2")]).message(2, sample(1, 1.0));
    let nameless = labels(&[("a", "1")]).message(2, sample(1, 1.0));
    let bytes = m().message(1, m().bytes(1, "__name__").bytes(2, b"\xff")).message(2, sample(1, 1.0));
    let span = m().sint(1, 0).int(2, 1_000_000);
    let lying = labels(&[("__name__", "y")]).message(4, m().int(1, 1).message(11, span).packed(12, &[2]));
    let request =
        [good("a"), twice, nameless, bytes, lying, good("b")].into_iter().fold(m(), |r, s| r.message(1, s));
    let reply = write(&server, &V1, &request).await;
    reply.says(400, "partial write: 4 not taken, the rest is written; first: series {__name__=\"x\"");
    assert!(reply.text().contains("a label name occurs twice"));
    assert_eq!(server.dump(), "a 1:1\nb 1:1");

    // The same in version two, with invalid symbol references.
    let request = ["", "__name__", "c"].iter().fold(m(), |request, symbol| request.bytes(4, symbol));
    let series = |references: &[u64]| m().packed(1, references).message(2, sample(1, 1.0));
    let request = request.message(5, series(&[1, 2])).message(5, series(&[1, 9])).message(5, series(&[1]));
    let reply = write(&server, &V2, &request).await;
    reply.says(400, "2 not taken");
    assert!(reply.text().contains("there is no symbol 9; the request has 3"));
    assert_eq!(reply.header("x-prometheus-remote-write-samples-written"), "1");
    assert_eq!(server.dump(), "a 1:1\nb 1:1\nc 1:1");
}

#[tokio::test]
async fn rejects_invalid_requests_completely() {
    let server = Server::new();
    let send = async |headers: &[(&str, &str)], body: &[u8]| {
        server.send("POST", "/api/v1/write", headers, body).await
    };
    send(&V1, b"").await.is(400);
    send(&V1, b"\xff\xff\xff").await.says(400, "inflated");
    send(&V1, &Message(b"\x0a\x05ab".to_vec()).snappy())
        .await
        .says(400, "malformed protobuf: a field is longer");
    send(&V1, &Message(b"\x0b".to_vec()).snappy()).await.says(400, "malformed protobuf: a group");
    // Declares four gigabytes.
    send(&V1, b"\xff\xff\xff\xff\x0f").await.says(413, "over the limit");
    let good = m().message(1, labels(&[("__name__", "a")]).message(2, sample(1, 1.0)));
    for kind in ["text/plain", "application/x-protobuf;proto=some.Other", "application/json"] {
        let headers = [("content-type", kind), ("content-encoding", "snappy")];
        send(&headers, &good.snappy()).await.says(415, "Content-Type has to be");
    }
    let headers = [("content-type", "application/x-protobuf"), ("content-encoding", "br")];
    send(&headers, &good.snappy()).await.says(415, "snappy");
    let first = m().bytes(4, "not empty").message(5, m().packed(1, &[0, 0]).message(2, sample(1, 1.0)));
    write(&server, &V2, &first).await.says(400, "the first symbol");
    server.get("/api/v1/write").await.is(405);
    assert_eq!(server.dump(), "");
    // An empty request is valid.
    write(&server, &V1, &m()).await.is(204);
}

#[tokio::test]
async fn symbol_references_are_bounded() {
    let limits = Limits { request_bytes: 64 << 10, ..Limits::default() };
    let server = Server::with(limits, PrometheusSettings::default(), Caller::everybody());
    let long = "x".repeat(20_000);
    let mut request = ["", "__name__", &long].iter().fold(m(), |request, symbol| request.bytes(4, symbol));
    for time in 0..1000 {
        request = request.message(5, m().packed(1, &[1, 2]).message(2, sample(time, 1.0)));
    }
    write(&server, &V2, &request).await.says(413, "labels of the request");
    assert_eq!(server.dump(), "");
}

#[tokio::test]
async fn full_store_returns_retryable_error() {
    let server = Server::new();
    let store = server.service.database().series("default").unwrap();
    store.configure(ropewalk::series::SeriesOptions { series_max: 1, ..Default::default() }).unwrap();
    let series = |name: &str| m().message(1, labels(&[("__name__", name)]).message(2, sample(1, 1.0)));
    write(&server, &V1, &series("a")).await.is(204);
    write(&server, &V1, &series("b")).await.says(429, "at most 1");
    write(&server, &V1, &series("a")).await.is(204);
}

#[tokio::test]
async fn cached_series_are_found_by_label_bytes() {
    let server = Server::new();
    let up = |time: i64| labels(&[("__name__", "up"), ("job", "a")]).message(2, sample(time, 1.0));
    let send = async |series: Message| {
        write(&server, &V1, &m().message(1, series)).await.is(204);
    };
    for time in 1..4 {
        send(up(time)).await;
    }
    assert_eq!(server.dump(), "up{job=\"a\"} 1:1 2:1 3:1");
    // The same bytes and another label after the samples: another series.
    send(up(4).message(1, m().bytes(1, "zone").bytes(2, "z"))).await;
    send(up(5).message(1, m().bytes(1, "zone").bytes(2, "z"))).await;
    assert_eq!(server.dump(), "up{job=\"a\",zone=\"z\"} 4:1 5:1\nup{job=\"a\"} 1:1 2:1 3:1");
    // A deleted series is created again, under another number.
    server.send("POST", "/api/v1/admin/tsdb/delete_series?match[]=up", &[], b"").await.is(204);
    assert_eq!(server.dump(), "");
    let two = m().message(1, up(6)).message(1, labels(&[("__name__", "new")]).message(2, sample(6, 2.0)));
    write(&server, &V1, &two).await.is(204);
    send(up(7)).await;
    assert_eq!(server.dump(), "new 6:2\nup{job=\"a\"} 6:1 7:1");
    // Dropped series are not written, whether cached or not.
    server.send("POST", "/api/v1/config/drop-rules", &[], b"up").await;
    send(up(8)).await;
    assert_eq!(server.dump(), "new 6:2\nup{job=\"a\"} 6:1 7:1");
}

#[tokio::test]
async fn histogram_whose_count_contradicts_its_buckets_is_refused() {
    let server = Server::new();
    let span = || m().sint(1, 0).int(2, 2);
    // Counts 2 and 3 in two buckets.
    let of = |count: i64, sum: f64| {
        m().int(1, count).double(3, sum).int(6, 1).message(11, span()).packed(12, &[4, 2]).int(15, 1000)
    };
    let send = async |histogram: Message| {
        let request = ["", "__name__", "h"].iter().fold(m(), |request, symbol| request.bytes(4, symbol));
        let series = m().packed(1, &[1, 2]).message(3, histogram.clone());
        let two = write(&server, &V2, &request.message(5, series)).await;
        let one = labels(&[("__name__", "h")]).message(4, histogram);
        (two, write(&server, &V1, &m().message(1, one)).await)
    };
    for wrong in [of(5, 1.0), of(7, 1.0), of(5, f64::NAN), of(0, 1.0)] {
        let (two, one) = send(wrong).await;
        two.says(400, "the buckets hold 6 observations");
        one.says(400, "the buckets hold 6 observations");
    }
    assert_eq!(server.dump(), "");
    // An observation of NaN is counted and is in no bucket.
    for right in [of(6, 1.0), of(7, f64::NAN)] {
        let (two, one) = send(right).await;
        two.is(204);
        one.is(204);
    }
}
