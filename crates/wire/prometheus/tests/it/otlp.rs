//! OTLP metrics.

use ropewalk_auth::Caller;
use ropewalk_prometheus::{Deltas, PrometheusSettings};
use ropewalk_wire::Limits;

use crate::kit::{Message, Reply, Server, m};

const PATH: &str = "/api/v1/otlp/v1/metrics";
const NANOS: u64 = 1_000_000;

async fn send(server: &Server, request: &Message) -> Reply {
    server.send("POST", PATH, &[("content-type", "application/x-protobuf")], &request.0).await
}

fn fixed(message: Message, number: u64, value: u64) -> Message {
    let mut message = message.varint(number << 3 | 1);
    message.0.extend(value.to_le_bytes());
    message
}

fn attribute(name: &str, value: &str) -> Message {
    m().bytes(1, name).message(2, m().bytes(1, value))
}

/// A request of one resource with these metrics.
fn request(metrics: &[Message]) -> Message {
    let resource =
        m().message(1, attribute("service.name", "shop")).message(1, attribute("service.instance.id", "i1"));
    let resource = resource.message(1, attribute("host.name", "h"));
    let scope = metrics.iter().fold(m(), |scope, metric| scope.message(2, metric.clone()));
    m().message(1, m().message(1, resource).message(2, scope))
}

fn metric(name: &str, unit: &str, kind: u64, data: Message) -> Message {
    m().bytes(1, name).bytes(2, "Some help.").bytes(3, unit).message(kind, data)
}

fn point(value: f64) -> Message {
    fixed(fixed(m(), 2, 1000 * NANOS), 3, 2000 * NANOS)
        .double(4, value)
        .message(7, attribute("http.method", "GET"))
}

#[tokio::test]
async fn each_kind_of_metric() {
    let server = Server::new();
    let gauge = metric("queue.length", "1", 5, m().message(1, point(0.5)));
    let sum = metric("requests", "{request}", 7, m().message(1, point(3.0)).int(2, 2).int(3, 1));
    let counts: Vec<u8> = [1_u64, 2, 3].iter().flat_map(|count| count.to_le_bytes()).collect();
    let bounds: Vec<u8> = [0.1_f64, 1.0].iter().flat_map(|bound| bound.to_le_bytes()).collect();
    let buckets = fixed(fixed(m(), 3, 2000 * NANOS), 4, 6).double(5, 9.5).bytes(6, counts).bytes(7, bounds);
    let exemplar = fixed(m(), 2, 1500 * NANOS).double(3, 0.7).bytes(5, [0xab; 16]);
    let histogram = metric("latency", "s", 9, m().message(1, buckets.message(8, exemplar)).int(2, 2));
    let side = m().sint(1, 2).packed(2, &[5, 0, 1]);
    let exponential =
        fixed(fixed(fixed(m(), 3, 2000 * NANOS), 4, 7), 7, 1).double(5, 8.5).sint(6, 1).message(8, side);
    let exponential = metric("size", "By", 10, m().message(1, exponential).int(2, 2));
    let quantile = m().double(1, 0.99).double(2, 4.0);
    let summary = fixed(fixed(m(), 3, 2000 * NANOS), 4, 7).double(5, 8.5).message(6, quantile);
    let summary = metric("old", "", 11, m().message(1, summary));
    let reply = send(&server, &request(&[gauge, sum, histogram, exponential, summary])).await;
    assert_eq!(
        (reply.is(200).body.as_slice(), reply.header("content-type")),
        (&b""[..], "application/x-protobuf")
    );
    let own = "instance=\"i1\",job=\"shop\"";
    let lines = [
        format!("latency_seconds_bucket{{{own},le=\"+Inf\"}} 2000:6"),
        format!("latency_seconds_bucket{{{own},le=\"0.1\"}} 2000:1"),
        format!("latency_seconds_bucket{{{own},le=\"1\"}} 2000:3"),
        format!("latency_seconds_count{{{own}}} 2000:6"),
        format!("latency_seconds_sum{{{own}}} 2000:9.5"),
        format!("old_count{{{own}}} 2000:7"),
        format!("old_sum{{{own}}} 2000:8.5"),
        format!("old{{{own},quantile=\"0.99\"}} 2000:4"),
        format!("queue_length_ratio{{http_method=\"GET\",{own}}} 2000:0.5@1000"),
        format!("requests_total{{http_method=\"GET\",{own}}} 2000:3@1000"),
        format!(
            "size_bytes{{{own}}} 2000:Histogram {{ hint: Unknown, schema: 1, zero_threshold: 1e-128, zero_count: 1.0, count: 7.0, \
             sum: 8.5, positive: [Bucket {{ index: 3, count: 5.0 }}, Bucket {{ index: 5, count: 1.0 }}], negative: [], custom: [] }}"
        ),
        format!("target_info{{host_name=\"h\",{own}}} 2000:1"),
    ];
    assert_eq!(server.dump(), lines.join("\n"));
    let metadata = server.get("/api/v1/metadata?metric=requests_total").await.json();
    assert_eq!(metadata["data"]["requests_total"][0]["type"], "counter");
    let exemplars =
        server.get("/api/v1/query_exemplars?query=latency_seconds_bucket&start=0&end=5").await.json();
    assert_eq!(exemplars["data"][0]["seriesLabels"]["le"], "1");
    assert_eq!(exemplars["data"][0]["exemplars"][0]["labels"]["trace_id"], "ab".repeat(16));
}

#[tokio::test]
async fn rejected_points_are_counted() {
    let server = Server::new();
    let delta = metric("delta", "", 7, m().message(1, point(1.0)).message(1, point(2.0)).int(2, 1).int(3, 1));
    let good = metric("good", "", 5, m().message(1, point(1.0)));
    let reply = send(&server, &request(&[delta, good])).await;
    let why = "metric \"delta\" is a delta, and the setting prometheus.otlp_deltas refuses those";
    assert_eq!(reply.is(200).body, m().message(1, m().int(1, 2).bytes(2, why)).0);
    assert!(server.dump().contains("good{") && !server.dump().contains("delta"), "{}", server.dump());
    // The scale is finer than any of ours; the counts of two of its buckets are merged.
    let side = m().sint(1, -1).packed(2, &[1, 2, 4]);
    let fine = fixed(fixed(m(), 3, 2000 * NANOS), 4, 7).sint(6, 9).message(8, side);
    send(&server, &request(&[metric("fine", "", 10, m().message(1, fine).int(2, 2))])).await.is(200);
    assert!(
        server.dump().contains("schema: 8")
            && server.dump().contains("[Bucket { index: 0, count: 1.0 }, Bucket { index: 1, count: 6.0 }]"),
        "{}",
        server.dump()
    );
    send(&server, &Message(b"\x0a\x05ab".to_vec())).await.says(400, "malformed protobuf");
    server.send("POST", PATH, &[("content-type", "text/plain")], b"{}").await.is(415);
    // Attribute values that are nested too deep.
    let deep = (0..100).fold(m().bytes(1, "x"), |inner, _| m().message(5, m().message(1, inner)));
    let resource = m().message(1, m().message(1, m().bytes(1, "a").message(2, deep)));
    send(&server, &m().message(1, resource)).await.says(400, "too deep");
}

#[tokio::test]
async fn the_same_as_json() {
    let server = Server::new();
    let json = r#"{"resourceMetrics":[{
        "resource":{"attributes":[
            {"key":"service.name","value":{"stringValue":"shop"}},
            {"key":"tags","value":{"arrayValue":{"values":[{"intValue":"1"},{"boolValue":true},{"bytesValue":"/w=="}]}}}]},
        "scopeMetrics":[{"scope":{"name":"s"},"metrics":[
            {"name":"queue.length","unit":"1","gauge":{"dataPoints":[
                {"timeUnixNano":"2000000000","asDouble":0.5,"attributes":[{"key":"a","value":{"doubleValue":1.5}}]},
                {"timeUnixNano":2000000000,"asDouble":"NaN"}]}},
            {"name":"requests","description":"Some help.","sum":{"aggregationTemporality":2,"isMonotonic":true,"dataPoints":[
                {"startTimeUnixNano":"1000000000","timeUnixNano":"2000000000","asInt":"3",
                 "exemplars":[{"timeUnixNano":"1500000000","asInt":7,"traceId":"5B8EFFF798038103D269B633813FC60C"}]}]}},
            {"name":"size","unit":"By","exponentialHistogram":{"aggregationTemporality":2,"dataPoints":[
                {"timeUnixNano":"2000000000","count":"7","sum":8.5,"scale":-1,"zeroCount":1,
                 "positive":{"offset":2,"bucketCounts":["5","0",1]}}]}},
            {"name":"delta","sum":{"aggregationTemporality":1,"dataPoints":[{"asInt":1}]}}]}]}]}"#;
    let reply = server.send("POST", PATH, &[("content-type", "application/json")], json.as_bytes()).await;
    assert_eq!(reply.header("content-type"), "application/json");
    assert_eq!(reply.is(200).json()["partialSuccess"]["rejectedDataPoints"], "1");
    let lines = [
        "queue_length_ratio{a=\"1.5\",job=\"shop\"} 2000:0.5",
        "queue_length_ratio{job=\"shop\"} 2000:NaN",
        "requests_total{job=\"shop\"} 2000:3@1000",
        "size_bytes{job=\"shop\"} 2000:Histogram { hint: Unknown, schema: -1, zero_threshold: 1e-128, zero_count: 1.0, count: 7.0, \
         sum: 8.5, positive: [Bucket { index: 3, count: 5.0 }, Bucket { index: 5, count: 1.0 }], negative: [], custom: [] }",
        "target_info{job=\"shop\",tags=\"[\\\"1\\\",\\\"true\\\",\\\"ff\\\"]\"} 2000:1",
    ];
    assert_eq!(server.dump(), lines.join("\n"));
    let exemplars = server.get("/api/v1/query_exemplars?query=requests_total&start=0&end=5").await.json();
    assert_eq!(
        exemplars["data"][0]["exemplars"][0]["labels"]["trace_id"],
        "5b8efff798038103d269b633813fc60c"
    );
    let all_taken =
        server.send("POST", PATH, &[("content-type", "application/json; charset=utf-8")], b"{}").await;
    assert_eq!(all_taken.is(200).text(), "{}");
    server
        .send("POST", PATH, &[("content-type", "application/json")], b"{\"resourceMetrics\":7}")
        .await
        .says(400, "resourceMetrics holds a number");
}

#[tokio::test]
async fn the_same_over_grpc() {
    const CALL: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
    let server = Server::new();
    let framed =
        |flag: u8, message: &[u8]| [&[flag], &(message.len() as u32).to_be_bytes()[..], message].concat();
    let export = async |headers: &[(&str, &str)], body: &[u8]| {
        let grpc = [&[("content-type", "application/grpc"), ("te", "trailers")], headers].concat();
        let reply = server.send("POST", CALL, &grpc, body).await;
        assert_eq!((reply.is(200).header("content-type"), reply.status), ("application/grpc", 200));
        reply
    };
    let good = request(&[metric("queue.length", "1", 5, m().message(1, point(0.5)))]).0;
    let reply = export(&[], &framed(0, &good)).await;
    assert_eq!((reply.body.as_slice(), reply.trailers["grpc-status"].to_str().unwrap()), (&[0; 5][..], "0"));
    assert!(server.dump().contains("queue_length_ratio{"), "{}", server.dump());

    let delta = metric("delta", "", 7, m().message(1, point(1.0)).int(2, 1).int(3, 1));
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut packed, &request(&[delta]).0).unwrap();
    let reply = export(&[("grpc-encoding", "gzip")], &framed(1, &packed.finish().unwrap())).await;
    let why = "metric \"delta\" is a delta, and the setting prometheus.otlp_deltas refuses those";
    assert_eq!(reply.body, framed(0, &m().message(1, m().int(1, 1).bytes(2, why)).0));

    for (headers, body, status, words) in [
        (&[("grpc-encoding", "lz77")][..], framed(1, &good), "12", "gzip and zstd"),
        (&[], framed(0, b"\x0a\x05ab"), "3", "malformed protobuf"),
        (&[], framed(0, &good)[..9].to_vec(), "3", "not one whole message"),
        (&[], b"\0\0".to_vec(), "3", "not one whole message"),
        (&[("grpc-encoding", "gzip")], framed(1, b"no gzip"), "3", "could not be inflated"),
    ] {
        let reply = export(headers, &body).await;
        assert_eq!(reply.header("grpc-status"), status, "{:?}", reply.headers);
        assert!(reply.header("grpc-message").contains(words), "{:?}", reply.headers);
    }
}

fn with_deltas(otlp_deltas: Deltas) -> Server {
    let settings = PrometheusSettings { otlp_deltas, ..PrometheusSettings::default() };
    Server::with(Limits::default(), settings, Caller::everybody())
}

/// From one time to another, in milliseconds.
fn interval(start_ms: u64, time_ms: u64) -> Message {
    fixed(fixed(m(), 2, start_ms * NANOS), 3, time_ms * NANOS)
}

/// A sum, a histogram and an exponential histogram over an interval, as deltas; the resource has no other
/// labels.
fn deltas((start_ms, time_ms): (u64, u64), value: f64, counts: [u64; 2], scale: i64) -> Message {
    let sum = interval(start_ms, time_ms).double(4, value);
    let sum = metric("requests", "", 7, m().message(1, sum).int(2, 1).int(3, 1));
    let packed: Vec<u8> = counts.iter().flat_map(|count| count.to_le_bytes()).collect();
    let total = counts[0] + counts[1];
    let buckets = fixed(interval(start_ms, time_ms), 4, total).double(5, value).bytes(6, packed);
    let buckets = buckets.bytes(7, 1.0_f64.to_le_bytes());
    let histogram = metric("latency", "", 9, m().message(1, buckets).int(2, 1));
    let side = m().sint(1, 3).packed(2, &counts);
    let exponential =
        fixed(interval(start_ms, time_ms), 4, total).double(5, value).sint(6, scale).message(8, side);
    let exponential = metric("size", "", 10, m().message(1, exponential).int(2, 1));
    let scope = [sum, histogram, exponential].into_iter().fold(m(), |scope, metric| scope.message(2, metric));
    let resource = m().message(1, attribute("service.name", "shop"));
    m().message(1, m().message(1, resource).message(2, scope))
}

#[tokio::test]
async fn deltas_add_up_to_counters() {
    let server = with_deltas(Deltas::Cumulate);
    let first = deltas((1000, 2000), 3.0, [1, 2], 1);
    let second = deltas((2000, 3000), 4.0, [0, 5], 0);
    // The response to the second is lost, and it is sent again.
    for request in [&first, &second, &second] {
        assert!(send(&server, request).await.is(200).body.is_empty());
    }
    let lines = [
        "latency_bucket{job=\"shop\",le=\"+Inf\"} 2000:3@1000 3000:8@1000",
        "latency_bucket{job=\"shop\",le=\"1\"} 2000:1@1000 3000:1@1000",
        "latency_count{job=\"shop\"} 2000:3@1000 3000:8@1000",
        "latency_sum{job=\"shop\"} 2000:3@1000 3000:7@1000",
        "requests_total{job=\"shop\"} 2000:3@1000 3000:7@1000",
    ];
    let dump = server.dump();
    assert_eq!(dump.lines().take(5).collect::<Vec<_>>(), lines, "{dump}");
    // Buckets 4 and 5 of scale 1 are 2 and 3 of scale 0.
    let size = dump.lines().nth(5).unwrap();
    assert!(
        size.contains("3000:Histogram { hint: Unknown, schema: 0, zero_threshold: 1e-128, zero_count: 0.0, count: 8.0, sum: 7.0,")
            && size.contains("positive: [Bucket { index: 2, count: 1.0 }, Bucket { index: 3, count: 2.0 }, Bucket { index: 5, count: 5.0 }]"),
        "{size}"
    );
    let metadata = server.get("/api/v1/metadata").await.json();
    assert_eq!(metadata["data"]["requests_total"][0]["type"], "counter");

    // Late points are not added to the totals, and each is counted once.
    let late = send(&server, &first).await;
    let why = "a delta of \"requests_total\" at 2000 ms is older than the last, at 3000 ms";
    assert_eq!(late.is(200).body, m().message(1, m().int(1, 3).bytes(2, why)).0);
    assert_eq!(server.dump(), dump);

    // With other bounds the histogram restarts completely.
    let packed: Vec<u8> = [1_u64, 1, 1].iter().flat_map(|count| count.to_le_bytes()).collect();
    let bounds: Vec<u8> = [1.0_f64, 2.0].iter().flat_map(|bound| bound.to_le_bytes()).collect();
    let buckets = fixed(interval(3000, 4000), 4, 3).double(5, 2.0).bytes(6, packed).bytes(7, bounds);
    let latency = metric("latency", "", 9, m().message(1, buckets).int(2, 1));
    let resource = m().message(1, attribute("service.name", "shop"));
    send(&server, &m().message(1, m().message(1, resource).message(2, m().message(2, latency))))
        .await
        .is(200);
    for line in
        ["le=\"+Inf\"} 2000:3@1000 3000:8@1000 4000:3@3000", "le=\"1\"} 2000:1@1000 3000:1@1000 4000:1@3000"]
    {
        assert!(server.dump().contains(line), "{}", server.dump());
    }
}

#[tokio::test]
async fn deltas_are_stored_as_gauges_when_configured() {
    let server = with_deltas(Deltas::Keep);
    for request in [deltas((1000, 2000), 3.0, [1, 2], 1), deltas((2000, 3000), 4.0, [0, 5], 1)] {
        assert!(send(&server, &request).await.is(200).body.is_empty());
    }
    let dump = server.dump();
    for line in ["requests_total{job=\"shop\"} 2000:3 3000:4", "latency_count{job=\"shop\"} 2000:3 3000:5"] {
        assert!(dump.contains(line), "{dump}");
    }
    assert_eq!(dump.matches("hint: Gauge").count(), 2, "{dump}");
    let metadata = server.get("/api/v1/metadata").await.json();
    assert_eq!(metadata["data"]["requests_total"][0]["type"], "unknown");
    // Points that are neither cumulative nor deltas are rejected.
    let neither = metric("neither", "", 7, m().message(1, point(1.0)).int(3, 1));
    let why = "metric \"neither\" is neither cumulative nor a delta";
    assert_eq!(
        send(&server, &request(&[neither])).await.is(200).body,
        m().message(1, m().int(1, 1).bytes(2, why)).0
    );
}
