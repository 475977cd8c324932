//! Arrow Flight: columnar ingest.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::builder::{MapBuilder, StringBuilder};
use arrow_array::types::{Int8Type, Int32Type};
use arrow_array::{
    ArrayRef, DictionaryArray, Float64Array, Int64Array, LargeStringArray, RecordBatch, StringArray,
    TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray, TimestampSecondArray,
};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow_schema::{DataType, Field, Schema};
use axum::body::Body;
use futures_util::{StreamExt as _, stream};
use ropewalk_auth::Caller;
use ropewalk_prometheus::PrometheusSettings;
use ropewalk_wire::Limits;
use serde_json::{Value, json};

use crate::kit::{Message, Reply, Server, m};

const PATH: &str = "/arrow.flight.protocol.FlightService/DoPut";

/// The messages of a stream of these batches, header and body each.
fn messages(batches: &[RecordBatch]) -> Vec<(Vec<u8>, Vec<u8>)> {
    packed(batches, None)
}

fn packed(batches: &[RecordBatch], codec: Option<CompressionType>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut stream = Vec::new();
    let options = IpcWriteOptions::default().try_with_compression(codec).unwrap();
    let schema = batches[0].schema();
    let mut writer = StreamWriter::try_new_with_options(&mut stream, &schema, options).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.finish().unwrap();
    drop(writer);
    let (mut rest, mut found) = (&stream[..], Vec::new());
    while let Some((head, after)) = rest.split_first_chunk::<8>() {
        let length = u32::from_le_bytes(head[4..].try_into().unwrap()) as usize;
        if length == 0 {
            break;
        }
        let (header, after) = after.split_at(length);
        let body = arrow_ipc::root_as_message(header).unwrap().bodyLength() as usize;
        let (body, after) = after.split_at(body);
        found.push((header.to_vec(), body.to_vec()));
        rest = after;
    }
    found
}

fn framed(message: &Message) -> Vec<u8> {
    [&[0][..], &(message.0.len() as u32).to_be_bytes(), &message.0].concat()
}

/// A call: the descriptor is sent with the first message.
fn call(metric: Option<&str>, messages: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut call = Vec::new();
    for (ordinal, (header, body)) in messages.iter().enumerate() {
        let descriptor = m().int(1, 1);
        let descriptor = metric.map_or(descriptor.clone(), |metric| descriptor.bytes(3, metric));
        let message = if ordinal == 0 { m().message(1, descriptor) } else { m() };
        call.extend(framed(&message.bytes(2, header).bytes(1000, body)));
    }
    call
}

async fn put(server: &Server, call: &[u8]) -> Reply {
    let headers = [("content-type", "application/grpc"), ("te", "trailers")];
    let reply = server.send("POST", PATH, &headers, call).await;
    assert_eq!(reply.is(200).header("content-type"), "application/grpc");
    reply
}

/// The counts in the responses of a call, in their order.
fn counts(reply: &Reply) -> Vec<Value> {
    let (mut rest, mut found) = (&reply.body[..], Vec::new());
    while let Some((&[flag, a, b, c, d], after)) = rest.split_first_chunk::<5>() {
        let (message, after) = after.split_at(u32::from_be_bytes([a, b, c, d]) as usize);
        // A field 1 of bytes; its length takes one byte or two.
        assert_eq!((flag, message[0]), (0, 0x0a));
        let head = if message[1] < 0x80 { 2 } else { 3 };
        found.push(serde_json::from_slice(&message[head..]).unwrap());
        rest = after;
    }
    found
}

/// The status of a response: in its trailers, or in its headers when it is rejected before it begins.
fn status(reply: &Reply) -> (&str, &str) {
    let found = |name| reply.trailers.get(name).or_else(|| reply.headers.get(name));
    let text = |name| found(name).map_or("", |value| value.to_str().unwrap());
    (text("grpc-status"), text("grpc-message"))
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let fields: Vec<Field> =
        columns.iter().map(|(name, column)| Field::new(*name, column.data_type().clone(), true)).collect();
    RecordBatch::try_new(
        Arc::new(Schema::new(fields)),
        columns.into_iter().map(|(_, column)| column).collect(),
    )
    .unwrap()
}

fn times(ms: &[i64]) -> ArrayRef {
    Arc::new(TimestampMillisecondArray::from(ms.to_vec()))
}

fn values(values: &[f64]) -> ArrayRef {
    Arc::new(Float64Array::from(values.to_vec()))
}

fn texts(texts: &[Option<&str>]) -> ArrayRef {
    Arc::new(StringArray::from(texts.to_vec()))
}

fn simple(ms: &[i64], numbers: &[f64]) -> RecordBatch {
    batch(vec![("timestamp", times(ms)), ("value", values(numbers))])
}

#[tokio::test]
async fn batches_become_samples() {
    let server = Server::new();
    let region: DictionaryArray<Int32Type> = [Some("eu"), Some("us"), None, Some("eu")].into_iter().collect();
    let zone: DictionaryArray<Int8Type> = [Some("a"), Some("a"), Some("b"), Some("a")].into_iter().collect();
    let first = batch(vec![
        ("host", texts(&[Some("h1"), Some("h1"), Some("é"), Some("h1")])),
        ("timestamp", times(&[1000, 1000, 1000, 2000])),
        ("region", Arc::new(region)),
        ("value", values(&[0.5, f64::INFINITY, -3.0, 1e300])),
        ("zone", Arc::new(zone)),
        ("rack", Arc::new(LargeStringArray::from(vec![None::<&str>, Some(""), Some("r"), None]))),
    ]);
    let again = first.slice(1, 3);
    let reply = put(&server, &call(Some("cpu"), &messages(&[first, again]))).await;
    assert_eq!(status(&reply), ("0", ""));
    let expected = [
        json!({ "batches": 1, "samples": 4, "rejected": 0 }),
        json!({ "batches": 2, "samples": 7, "rejected": 0 }),
    ];
    assert_eq!(counts(&reply), expected);
    let lines = [
        "cpu{host=\"h1\",region=\"eu\",zone=\"a\"} 1000:0.5 2000:1e300",
        "cpu{host=\"h1\",region=\"us\",zone=\"a\"} 1000:inf",
        "cpu{host=\"é\",rack=\"r\",zone=\"b\"} 1000:-3",
    ];
    let dump = server.dump().replace(&format!(":{}", 1e300), ":1e300");
    assert_eq!(dump, lines.join("\n"));
    // No batch at all, and one without rows.
    for (metric, batches) in [("none", vec![]), ("cpu", vec![simple(&[], &[])])] {
        let mut sent = messages(&[simple(&[], &[])]);
        sent.truncate(1 + batches.len());
        assert_eq!(status(&put(&server, &call(Some(metric), &sent)).await), ("0", ""));
    }
    assert_eq!(server.dump().lines().count(), 3);
}

#[tokio::test]
async fn times_of_every_unit() {
    let server = Server::new();
    let int64 = |unit: &str| {
        let fields = vec![
            Field::new("timestamp", DataType::Int64, false)
                .with_metadata([("unit".to_owned(), unit.to_owned())].into()),
            Field::new("value", DataType::Float64, false),
        ];
        let time = match unit {
            "s" => 7,
            "ms" => 7_000,
            "us" => 7_000_000,
            _ => 7_000_000_000,
        };
        let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(vec![time])), values(&[1.0])];
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
    };
    let stamped = |column: ArrayRef| batch(vec![("timestamp", column), ("value", values(&[1.0]))]);
    let batches = [
        ("a", stamped(Arc::new(TimestampSecondArray::from(vec![7])))),
        ("b", stamped(Arc::new(TimestampMillisecondArray::from(vec![7_000]).with_timezone("UTC")))),
        ("c", stamped(Arc::new(TimestampMicrosecondArray::from(vec![7_000_999])))),
        ("d", stamped(Arc::new(TimestampNanosecondArray::from(vec![7_000_999_999])))),
        ("e", int64("s")),
        ("f", int64("ms")),
        ("g", int64("us")),
        ("h", int64("ns")),
        ("before", stamped(Arc::new(TimestampNanosecondArray::from(vec![-1])))),
    ];
    for (metric, batch) in &batches {
        let reply = put(&server, &call(Some(metric), &messages(std::slice::from_ref(batch)))).await;
        assert_eq!(status(&reply), ("0", ""), "{metric}");
    }
    let dump = server.dump();
    assert_eq!((dump.matches(" 7000:1").count(), dump.contains("before -1:1")), (8, true), "{dump}");
}

#[tokio::test]
async fn a_column_may_name_the_metric() {
    let server = Server::new();
    let named = batch(vec![
        ("__name__", texts(&[Some("up"), Some("down"), None])),
        ("timestamp", times(&[1, 2, 3])),
        ("value", values(&[1.0, 2.0, 3.0])),
    ]);
    let reply = put(&server, &call(None, &messages(std::slice::from_ref(&named)))).await;
    // A row without a name is rejected; the others are stored.
    let counted = &counts(&reply)[0];
    assert_eq!((&counted["samples"], &counted["rejected"]), (&json!(2), &json!(1)), "{counted}");
    assert!(counted["why"].as_str().is_some_and(|why| why.contains("name")), "{counted}");
    assert_eq!(server.dump(), "down 2:2\nup 1:1");
    let twice = put(&server, &call(Some("up"), &messages(&[named]))).await;
    assert_eq!(status(&twice).0, "3");
}

/// A map of each row; `None` for null.
fn maps(rows: &[Option<&[(&str, Option<&str>)]>]) -> ArrayRef {
    let mut builder = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
    for row in rows {
        for (key, value) in row.unwrap_or_default() {
            builder.keys().append_value(key);
            builder.values().append_option(*value);
        }
        builder.append(row.is_some()).unwrap();
    }
    Arc::new(builder.finish())
}

#[tokio::test]
async fn a_map_has_the_labels_of_its_row() {
    let server = Server::new();
    let int64 = |times: &[i64]| Arc::new(Int64Array::from(times.to_vec())) as ArrayRef;
    // Streams of mytsdb's clients: int64 are milliseconds, every row has all tags.
    let web: &[_] = &[("pod", Some("web")), ("zone", Some("a"))];
    let rows = [
        Some(web),
        Some(web),
        Some(&[("zone", Some("a")), ("pod", Some("db"))][..]),
        Some(&[("__name__", Some("other")), ("pod", None)][..]),
        None,
        Some(&[("pod", Some("x")), ("pod", Some("y"))][..]),
    ];
    let tagged = batch(vec![
        ("timestamp", int64(&[1, 2, 3, 4, 5, 6])),
        ("value", values(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
        ("tags", maps(&rows)),
    ]);
    let reply = put(&server, &call(Some("cpu"), &messages(&[tagged.clone(), tagged.slice(2, 2)]))).await;
    assert_eq!(status(&reply), ("0", ""));
    let last = counts(&reply).pop().unwrap();
    assert_eq!((&last["samples"], &last["rejected"]), (&json!(7), &json!(1)), "{last}");
    let lines =
        ["cpu 5:5", "cpu{pod=\"db\",zone=\"a\"} 3:3", "cpu{pod=\"web\",zone=\"a\"} 1:1 2:2", "other 4:4"];
    assert_eq!(server.dump(), lines.join("\n"));
    // A map together with label columns; without a path the map has to name the metric.
    let server = Server::new();
    let named = batch(vec![
        ("timestamp", times(&[1, 2])),
        ("value", values(&[1.0, 2.0])),
        ("host", texts(&[Some("h"), Some("h")])),
        ("labels", maps(&[Some(&[("__name__", Some("up")), ("a", Some("b"))]), Some(&[("a", Some("b"))])])),
    ]);
    let reply = put(&server, &call(None, &messages(&[named]))).await;
    assert_eq!(counts(&reply)[0]["rejected"], 1);
    assert_eq!(server.dump(), "up{a=\"b\",host=\"h\"} 1:1");
}

#[tokio::test]
async fn buffers_may_be_compressed() {
    for codec in [CompressionType::LZ4_FRAME, CompressionType::ZSTD] {
        let server = Server::new();
        let rows = 3000;
        let ms: Vec<i64> = (0..rows).collect();
        let numbers: Vec<f64> = ms.iter().map(|ms| *ms as f64).collect();
        let pods: DictionaryArray<Int32Type> =
            ms.iter().map(|ms| Some(if ms % 2 == 0 { "even" } else { "odd" })).collect();
        let hosts: Vec<_> = ms.iter().map(|ms| (ms % 3 > 0).then_some("host")).collect();
        let all = batch(vec![
            ("timestamp", times(&ms)),
            ("value", values(&numbers)),
            ("pod", Arc::new(pods)),
            ("host", texts(&hosts)),
            ("tags", maps(&vec![Some(&[("a", Some("b"))][..]); rows as usize])),
        ]);
        let sent = packed(&[all.clone(), all.slice(0, 1)], Some(codec));
        assert!(sent[2].1.len() < messages(&[all])[2].1.len());
        let reply = put(&server, &call(Some("cpu"), &sent)).await;
        assert_eq!(status(&reply), ("0", ""));
        assert_eq!(counts(&reply).last().unwrap()["samples"], rows + 1);
        let dump = server.dump();
        assert_eq!((dump.lines().count(), dump.matches(':').count()), (4, rows as usize), "{codec:?}");
        assert!(dump.contains("cpu{a=\"b\",host=\"host\",pod=\"odd\"} 1:1 5:5 7:7"), "{codec:?}");

        // Decompressed buffers may be no larger than a message.
        let limits = Limits { request_bytes: 40_000, ..Limits::default() };
        let small = Server::with(limits, PrometheusSettings::default(), Caller::everybody());
        let sent = packed(&[simple(&[7; 3000], &[7.0; 3000])], Some(codec));
        let reply = put(&small, &call(Some("x"), &sent)).await;
        assert!(status(&reply).1.contains("over 40000 bytes"), "{:?}", status(&reply));

        // Corrupt buffers are rejected, or yield a value.
        let sent = packed(&[simple(&[7; 100], &[7.0; 100])], Some(codec));
        let (mut taken, mut refused) = (0, 0);
        for at in 0..sent[1].1.len() {
            for byte in [0, 0xff, sent[1].1[at] ^ 1, sent[1].1[at] ^ 0x80] {
                let mut broken = sent.clone();
                broken[1].1[at] = byte;
                match status(&put(&server, &call(Some("x"), &broken)).await) {
                    ("0", _) => taken += 1,
                    ("13", why) => panic!("{codec:?} {at} {byte}: {why}"),
                    _ => refused += 1,
                }
            }
        }
        assert!(taken > 0 && refused > 20, "{codec:?}: {taken} {refused}");
    }
}

#[tokio::test]
async fn rejected_streams_report_the_reason() {
    let server = Server::new();
    let value = || ("value", values(&[1.0]));
    let time = || ("timestamp", times(&[1]));
    let good = || batch(vec![time(), value()]);
    let int: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let numbers: DictionaryArray<Int32Type> = [Some("x")].into_iter().collect();
    for (columns, words) in [
        (vec![time()], "a column `value` are needed"),
        (vec![value()], "a column `timestamp`"),
        (vec![time(), ("value", int.clone())], "\"value\" is Int; it has to be float64"),
        (vec![("timestamp", int.clone()), value()], "or int64 with the metadata `unit`"),
        (vec![time(), value(), ("load", int.clone())], "\"load\" is Int; it has to be a text"),
        (vec![("timestamp", Arc::new(numbers)), value()], "\"timestamp\" is Utf8"),
        (vec![("timestamp", Arc::new(TimestampMillisecondArray::from(vec![None]))), value()], "has nulls"),
        (vec![time(), ("value", Arc::new(Float64Array::from(vec![None])))], "has nulls"),
        (vec![time(), value(), ("a", texts(&[None])), ("a", texts(&[None]))], "name \"a\" is invalid"),
    ] {
        let reply = put(&server, &call(Some("x"), &messages(&[batch(columns)]))).await;
        let (code, message) = status(&reply);
        assert!(code == "3" && message.contains(words), "{words}: {code} {message}");
    }
    let sent = messages(&[good()]);
    let cut = call(Some("x"), &sent);
    let command = framed(&m().message(1, m().int(1, 2).bytes(2, "x")).bytes(2, &sent[0].0));
    let deep = framed(&m().message(1, m().int(1, 1).bytes(3, "a").bytes(3, "b")).bytes(2, &sent[0].0));
    for (call, words) in [
        (call(None, &sent), "neither in the path nor in a column"),
        (cut[..cut.len() - 1].to_vec(), "ends within a message"),
        (call(Some("x"), &sent[1..]), "the first message has to be a schema"),
        (call(Some("x"), &[sent[0].clone(), sent[0].clone()]), "one schema"),
        (call(Some("x"), &[(b"garbage".to_vec(), vec![])]), "no message of Arrow"),
        (call(Some("x"), &[sent[0].clone(), (sent[1].0.clone(), vec![])]), "outside the body"),
        (command, "a command"),
        (deep, "extra element \"b\""),
        (framed(&Message(b"\x0a\x05ab".to_vec())), "malformed protobuf"),
    ] {
        let reply = put(&server, &call).await;
        let (code, message) = status(&reply);
        assert!(code == "3" && message.contains(words), "{words}: {code} {message}");
    }
    assert_eq!(server.dump(), "");

    let limits = Limits { request_bytes: 2000, ..Limits::default() };
    let small = Server::with(limits, PrometheusSettings::default(), Caller::everybody());
    let many: Vec<i64> = (0..300).collect();
    let reply = put(&small, &call(Some("x"), &messages(&[simple(&many, &vec![1.0; 300])]))).await;
    assert!(status(&reply).1.contains("at most 2000 are allowed"), "{:?}", status(&reply));
    // A dictionary expands: its bytes are counted for every row that has them.
    let long = "x".repeat(1500);
    let alternating: DictionaryArray<Int8Type> =
        (0..60).map(|n| (n % 2 == 0).then_some(long.as_str())).collect();
    let columns = vec![
        ("timestamp", times(&many[..60])),
        ("value", values(&[1.0; 60])),
        ("long", Arc::new(alternating) as ArrayRef),
    ];
    let reply = put(&small, &call(Some("x"), &messages(&[batch(columns)]))).await;
    assert!(status(&reply).1.contains("too long in all"), "{:?}", status(&reply));
    // Two equal values of one dictionary are compared repeatedly: those bytes are counted, too.
    let twice = StringArray::from(vec![long.as_str(), long.as_str()]);
    let keys: arrow_array::Int8Array = (0..120).map(|n| n % 2).collect();
    let columns = vec![
        ("timestamp", times(&many[..120])),
        ("value", values(&[1.0; 120])),
        ("long", Arc::new(DictionaryArray::new(keys, Arc::new(twice))) as ArrayRef),
    ];
    let roomy = Limits { request_bytes: 5000, ..Limits::default() };
    let roomy = Server::with(roomy, PrometheusSettings::default(), Caller::everybody());
    let reply = put(&roomy, &call(Some("x"), &messages(&[batch(columns)]))).await;
    assert!(status(&reply).1.contains("too long in all"), "{:?}", status(&reply));
    assert_eq!(small.dump(), "");
}

#[tokio::test]
async fn stopping_server_rejects_streams() {
    let server = Server::new();
    server.service.stop().begin();
    let reply = put(&server, &call(Some("x"), &messages(&[simple(&[1], &[1.0])]))).await;
    assert_eq!(status(&reply).0, "14", "{:?}", status(&reply));
}

/// A call whose client sends these bytes and then nothing.
async fn put_and_stop(server: &Server, bytes: Vec<u8>) -> Reply {
    let sent = stream::iter([Ok::<_, std::convert::Infallible>(bytes)]).chain(stream::pending());
    let headers = [("content-type", "application/grpc"), ("te", "trailers")];
    server.send_body("POST", PATH, &headers, Body::from_stream(sent)).await
}

#[tokio::test]
async fn c_stream_without_complete_message_times_out() {
    let limits = Limits { request_time: Duration::from_millis(200), ..Limits::default() };
    let server = Server::with(limits, PrometheusSettings::default(), Caller::everybody());
    let whole = call(Some("x"), &messages(&[simple(&[1], &[1.0])]));
    for bytes in [Vec::new(), whole[..whole.len() - 1].to_vec(), whole.clone()] {
        let reply = put_and_stop(&server, bytes).await;
        assert_eq!(status(&reply).0, "4", "{:?}", status(&reply));
    }
    // A whole message was stored before its client fell silent.
    assert_eq!(server.dump(), "x 1:1");
}

#[tokio::test]
async fn c_messages_of_streams_share_the_memory_of_requests() {
    let limits = Limits {
        request_bytes: 1 << 20,
        request_memory: 4 << 20,
        request_time: Duration::from_secs(5),
        ..Limits::default()
    };
    let server = Arc::new(Server::with(limits, PrometheusSettings::default(), Caller::everybody()));
    let memory = server.service.request_memory().clone();
    let free = memory.available_bytes();
    let begin = |sent: usize| {
        let (server, mut bytes) = (server.clone(), vec![0; 5 + sent]);
        bytes[1..5].copy_from_slice(&(1_u32 << 20).to_be_bytes());
        tokio::spawn(async move { put_and_stop(&server, bytes).await })
    };
    // A declared length reserves nothing.
    let announced: Vec<_> = (0..64).map(|_| begin(0)).collect();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(memory.available_bytes(), free);
    let arrived: Vec<_> = (0..8).map(|_| begin(900_000)).collect();
    while memory.available_bytes() >= 1 << 20 {
        tokio::task::yield_now().await;
    }
    announced.iter().chain(&arrived).for_each(|call| call.abort());
    for call in announced.into_iter().chain(arrived) {
        let _ = call.await;
    }
    while memory.available_bytes() < free {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn corrupt_bytes_are_rejected_without_side_effects() {
    let server = Server::new();
    let host: DictionaryArray<Int8Type> = [Some("a"), None, Some("b")].into_iter().collect();
    let columns = vec![
        ("timestamp", times(&[1, 2, 3])),
        ("value", values(&[1.0, 2.0, 3.0])),
        ("host", Arc::new(host) as ArrayRef),
        ("text", texts(&[Some("x"), None, Some("y")])),
        ("tags", maps(&[Some(&[("a", Some("b"))]), None, Some(&[("c", None)])])),
    ];
    let sent = messages(&[batch(columns)]);
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..1500 {
        let mut broken = sent.clone();
        for _ in 0..=draw(3) {
            let which = draw(broken.len());
            let (header, body) = &mut broken[which];
            let bytes = if body.is_empty() || draw(4) > 0 { header } else { body };
            let at = draw(bytes.len());
            bytes[at] = [0, 0xff, 0x80, 1, draw(256) as u8][draw(5)];
        }
        match status(&put(&server, &call(Some("x"), &broken)).await).0 {
            "0" => taken += 1,
            "3" => refused += 1,
            other => panic!("{other}"),
        }
    }
    assert!(taken > 50 && refused > 50, "{taken} {refused}");
}
