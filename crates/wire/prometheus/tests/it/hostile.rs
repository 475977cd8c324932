//! Nothing that a client sends breaks the server: every answer is one of the protocol's, and the next request is served.

use proptest::prelude::*;
use proptest::test_runner::{Config as Runs, RngAlgorithm, TestRng, TestRunner};
use ropewalk_prometheus::PrometheusSettings;
use ropewalk_wire::{Caller, Limits};

use crate::kit::{Message, Server, m};

const V1: (&str, &str) = ("content-type", "application/x-protobuf");
const V2: (&str, &str) = ("content-type", "application/x-protobuf;proto=io.prometheus.write.v2.Request");
const SNAPPY: (&str, &str) = ("content-encoding", "snappy");

fn labels(pairs: &[(&str, &str)]) -> Message {
    pairs.iter().fold(m(), |series, (name, value)| series.message(1, m().bytes(1, name).bytes(2, value)))
}

fn histogram() -> Message {
    let span = |offset, length| m().sint(1, offset).int(2, length);
    m().int(1, 5)
        .double(3, 18.4)
        .sint(4, 0)
        .double(5, 0.001)
        .int(6, 1)
        .message(11, span(1, 2))
        .packed(12, &[2, 2])
        .int(15, 2000)
}

/// A request of each kind that is right, as it lies in its packing.
fn seeds() -> Vec<(&'static str, Vec<(&'static str, &'static str)>, Vec<u8>, bool)> {
    let sample = |time: i64, value: f64| m().double(1, value).int(2, time);
    let exemplar = m().message(1, m().bytes(1, "trace_id").bytes(2, "x")).double(2, 1.0).int(3, 1000);
    let one = labels(&[("__name__", "up"), ("job", "a")])
        .message(2, sample(1000, 1.5))
        .message(3, exemplar)
        .message(4, histogram());
    let v1 = m().message(1, one).message(3, m().int(1, 1).bytes(2, "up").bytes(4, "help").bytes(5, "unit"));
    let two = m()
        .packed(1, &[1, 2, 3, 4])
        .message(2, sample(1000, 2.5))
        .message(3, histogram())
        .message(5, m().int(1, 1).int(3, 5));
    let symbols = ["", "__name__", "up", "job", "b", "help"];
    let v2 = symbols.iter().fold(m(), |request, symbol| request.bytes(4, symbol)).message(5, two);
    let matcher = m().int(1, 0).bytes(2, "__name__").bytes(3, "up");
    let read = m().message(1, m().int(1, 0).int(2, 5000).message(3, matcher)).int(2, 1).int(2, 0);
    let number = m().int(3, 1_000_000_000).double(4, 1.0);
    let metric = m().bytes(1, "otlp.gauge").message(5, m().message(1, number));
    let otlp = m().message(1, m().message(2, m().message(2, metric)));
    let text = b"# TYPE a counter\n# HELP a b\na{b=\"c\",d=\"e\\\"\"} 1.5e3 1000\n{\"x y\"} +Inf\n".to_vec();
    let open = b"# TYPE a counter\na_total{b=\"c\"} 1 1 # {trace_id=\"t\"} 0.5 1\n# EOF\n".to_vec();
    let influx = b"cpu,host=a\\ b usage=0.5,n=3i,ok=true,s=\"t\" 1000\n".to_vec();
    vec![
        ("/api/v1/write", vec![V1, SNAPPY], v1.0, true),
        ("/api/v1/write", vec![V2, SNAPPY], v2.0, true),
        ("/api/v1/read", vec![V1, SNAPPY], read.0, true),
        ("/api/v1/otlp/v1/metrics", vec![V1], otlp.0, false),
        ("/api/v1/import/prometheus", vec![], text, false),
        ("/api/v1/import/prometheus", vec![("content-type", "application/openmetrics-text")], open, false),
        ("/write", vec![], influx, false),
    ]
}

/// Bytes changed, taken out, put in twice, cut.
#[derive(Debug, Clone)]
enum Change {
    Set(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Remove(prop::sample::Index, u8),
    Repeat(prop::sample::Index, u8, u8),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        1 => any::<prop::sample::Index>().prop_map(Change::Cut),
        1 => (any::<prop::sample::Index>(), 1..9_u8).prop_map(|(at, n)| Change::Remove(at, n)),
        1 => (any::<prop::sample::Index>(), 1..40_u8, 1..9_u8).prop_map(|(at, n, times)| Change::Repeat(at, n, times)),
    ]
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    if bytes.is_empty() {
        return;
    }
    let end = |at: usize, n: u8, len: usize| (at + usize::from(n)).min(len);
    match change {
        Change::Set(at, byte) => {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
        Change::Cut(at) => bytes.truncate(at.index(bytes.len())),
        Change::Remove(at, n) => {
            let at = at.index(bytes.len());
            bytes.drain(at..end(at, *n, bytes.len()));
        }
        Change::Repeat(at, n, times) => {
            let at = at.index(bytes.len());
            let piece = bytes[at..end(at, *n, bytes.len())].repeat(usize::from(*times));
            bytes.splice(at..at, piece);
        }
    }
}

#[test]
fn damaged_requests_are_answered_and_harm_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = Server::new();
    let mut runner = TestRunner::new_with_rng(
        Runs { cases: 1500, failure_persistence: None, ..Runs::default() },
        TestRng::deterministic_rng(RngAlgorithm::ChaCha),
    );
    let cases = (prop::sample::select(seeds()), prop::collection::vec(change(), 1..6));
    let all = runner.run(&cases, |((path, headers, mut body, packed), changes)| {
        changes.iter().for_each(|change| apply(&mut body, change));
        if packed {
            body = snap::raw::Encoder::new().compress_vec(&body).unwrap();
        }
        let reply = runtime.block_on(server.send("POST", path, &headers, &body));
        prop_assert!(
            matches!(reply.status, 200 | 204 | 400 | 413 | 415 | 422),
            "{path}: {}: {:?}",
            reply.status,
            body
        );
        Ok(())
    });
    all.unwrap();
    // Each right one is still taken.
    for (path, headers, mut body, packed) in seeds() {
        if packed {
            body = snap::raw::Encoder::new().compress_vec(&body).unwrap();
        }
        let reply = runtime.block_on(server.send("POST", path, &headers, &body));
        assert!(matches!(reply.status, 200 | 204), "{path}: {}", reply.text());
    }
    assert!(server.service.database().verify().unwrap().violations.is_empty());
}

#[tokio::test]
async fn label_bombs_are_refused_and_the_rest_is_taken() {
    let server = Server::new();
    let many: Vec<(String, String)> =
        (0..10_000).map(|n| (format!("label_{n:05}"), "x".to_owned())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    let long = "v".repeat(4 << 20);
    let sample = || m().double(1, 1.0).int(2, 1000);
    let named =
        |more: &[(&str, &str)]| labels(&[&[("__name__", "bomb")], more].concat()).message(2, sample());
    let good = labels(&[("__name__", "good")]).message(2, sample());
    for bomb in [named(&many), named(&[("a", &long)]), named(&[(&long, "a")])] {
        let request = m().message(1, bomb).message(1, good.clone());
        let reply = server.send("POST", "/api/v1/write", &[V1, SNAPPY], &request.snappy()).await;
        assert_eq!(reply.status, 400, "{}", reply.text());
        assert!(reply.text().len() < 2000, "the answer repeats the bomb");
    }
    assert_eq!(server.dump(), "good 1000:1");
}

#[tokio::test]
async fn absurd_queries_end_with_an_error() {
    let settings = PrometheusSettings {
        query_time: std::time::Duration::from_secs(2),
        query_bytes: 64 << 20,
        ..PrometheusSettings::default()
    };
    let server = Server::with(Limits::default(), settings, Caller::everybody());
    let text: String = (0..500).map(|n| format!("up{{n=\"{n}\"}} {n} 1000\n")).collect();
    server.import(&text).await;
    let long_or = vec!["up"; 20_000].join(" or ");
    for query in [
        "(".repeat(100_000),
        "-".repeat(200_000) + "1",
        long_or,
        "up[100y:1ms]".to_owned(),
        "max_over_time(sum(up)[10y:1ms])".to_owned(),
        "sum_over_time((sum_over_time((sum_over_time(up[1y:1ms]))[1y:1ms]))[1y:1ms])".to_owned(),
        format!("up{{n=~\"{}\"}}", "(a+)+".repeat(10_000)),
        format!("up{{n=~\"{}{{1000}}{{1000}}\"}}", "(a*)*"),
        "up * on () group_left up".to_owned(),
        "\u{0}".to_owned(),
        "count_values(\"\\xff\", up)".to_owned(),
        "label_replace(up, \"a\", \"$1\", \"n\", \"(.*){1000}{1000}\")".to_owned(),
    ] {
        let form: String = form_urlencoded::Serializer::new(String::new())
            .append_pair("query", &query)
            .append_pair("time", "1")
            .finish();
        let kind = ("content-type", "application/x-www-form-urlencoded");
        let reply = server.send("POST", "/api/v1/query", &[kind], form.as_bytes()).await;
        let short: String = query.chars().take(60).collect();
        // An expression in linear time is no bomb.
        let harmless = query.contains("(a+)+") && reply.status == 200;
        assert!(
            harmless || matches!(reply.status, 400 | 422 | 503),
            "{short}: {} {:.200}",
            reply.status,
            reply.text()
        );
    }
    server.get("/api/v1/query?query=count(up)&time=1").await.is(200);
}
