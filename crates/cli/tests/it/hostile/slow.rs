//! Stalled and half-open clients hold no memory and block no others.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use ropewalk_grpc::proto::umadb::v1 as proto;
use serde_json::json;

use super::calls::{Grpc, Http};
use super::{ends_clean, memory_kib, resident_mib};
use crate::Place;
use crate::serving::Server;

const EVENT_BYTES: usize = 64 << 10;
/// 24 MiB in all: far more than the buffers of a connection.
const EVENTS: u64 = 384;
const SLOW: usize = 40;
/// Complete responses for all of them would be 2 GiB.
const GROWTH_MIB: u64 = 320;
/// Feeds of changes, which took 22 MiB each when they were not read, and the memory limit for all of them.
const FEEDS: usize = 100;
const FED_EVENTS: u64 = 160;
const FEEDS_MIB: u64 = 200;
/// Silent connections per port, and the memory limit for all of them. They took 7 MiB when the futures of MongoDB
/// and PostgreSQL connections had bytes for several copies of themselves.
const SILENT: usize = 200;
const SILENT_KIB: u64 = 6 << 10;

/// A client that requests everything, reads the beginning, and stops reading.
fn slow_reader(server: &Server, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address("http")).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes()).unwrap();
    stream.read_exact(&mut [0; 256]).unwrap();
    stream
}

fn event(bytes: usize) -> proto::Event {
    proto::Event { event_type: "Large".into(), data: vec![7; bytes], ..Default::default() }
}

fn append(grpc: &mut Grpc, events: Vec<proto::Event>) -> u64 {
    let request = proto::AppendRequest { events, ..Default::default() };
    grpc.runtime.block_on(grpc.client.append(request)).unwrap().into_inner().position
}

#[test]
fn slow_readers_use_no_memory_and_block_no_others() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let mut grpc = Grpc::connect(server.address("grpc"));
    for _ in 0..EVENTS / 32 {
        append(&mut grpc, vec![event(EVENT_BYTES); 32]);
    }
    let before = resident_mib(&place);
    let over_http: Vec<_> = (0..SLOW).map(|_| slow_reader(&server, "/v1/stores/default/events")).collect();
    let mut over_grpc = Vec::new();
    for _ in 0..SLOW {
        let mut reader = Grpc::connect(server.address("grpc"));
        let answer = reader.runtime.block_on(reader.client.read(proto::ReadRequest::default())).unwrap();
        over_grpc.push((reader, answer.into_inner()));
    }
    let mut follower = Grpc::connect(server.address("grpc"));
    let request = proto::SubscribeRequest { after: Some(EVENTS), ..Default::default() };
    let mut followed = follower.runtime.block_on(follower.client.subscribe(request)).unwrap().into_inner();
    for i in 1..=500 {
        assert_eq!(append(&mut grpc, vec![event(1000)]), EVENTS + i);
    }
    let grown = resident_mib(&place).saturating_sub(before);
    assert!(grown < GROWTH_MIB, "{grown} MiB for {} slow readers", 2 * SLOW);
    // A reader that resumes gets the requested snapshot; the follower gets all events in order.
    let (reader, mut stream) = over_grpc.pop().unwrap();
    let mut seen = 0;
    while let Some(message) = reader.runtime.block_on(stream.message()).unwrap() {
        seen += message.events.len() as u64;
    }
    assert_eq!(seen, EVENTS);
    let mut next = EVENTS + 1;
    while next <= EVENTS + 500 {
        for event in follower.runtime.block_on(followed.message()).unwrap().unwrap().events {
            assert_eq!(event.position, next);
            next += 1;
        }
    }
    drop((over_http, over_grpc, followed, follower, grpc));
    ends_clean(&place, server);
}

#[test]
fn m8_change_feeds_that_are_not_read_take_little_memory() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let mut grpc = Grpc::connect(server.address("grpc"));
    // One commit each: a reader has to hold one commit.
    for _ in 0..FED_EVENTS {
        append(&mut grpc, vec![event(EVENT_BYTES)]);
    }
    let before = resident_mib(&place);
    let feeds: Vec<_> = (0..FEEDS).map(|_| slow_reader(&server, "/v1/changes?from=1&follow=true")).collect();
    assert_eq!(append(&mut grpc, vec![event(1)]), FED_EVENTS + 1);
    let grown = resident_mib(&place).saturating_sub(before);
    assert!(grown < FEEDS_MIB, "{grown} MiB for {FEEDS} feeds");
    drop((feeds, grpc));
    ends_clean(&place, server);
}

#[test]
fn half_open_connections_block_no_others() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let body = json!({ "events": [{ "type": "A", "tags": [], "data": 1 }] });
    let beginnings: [&[u8]; 5] = [
        b"",
        b"GET /v1/stores HTTP/1.1\r\nho",
        b"POST /v1/stores/default/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{\"ev",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"PRI * HT",
    ];
    let mut open = Vec::new();
    for i in 0..300 {
        for protocol in ["http", "grpc"] {
            let mut stream = TcpStream::connect(server.address(protocol)).unwrap();
            stream.write_all(beginnings[i % beginnings.len()]).unwrap();
            open.push(stream);
        }
        let (status, answer) = Http::connect(server.address("http")).post("/v1/stores/default/events", &body);
        assert_eq!((status / 100, answer["last"].as_u64()), (2, Some(i as u64 + 1)), "{answer}");
    }
    let mut grpc = Grpc::connect(server.address("grpc"));
    assert_eq!(append(&mut grpc, vec![event(1)]), 301);
    // Closed in the middle of an append: nothing of it is stored.
    drop(open);
    assert_eq!(append(&mut grpc, vec![event(1)]), 302);
    drop(grpc);
    ends_clean(&place, server);
}

#[test]
fn d1_24_silent_connections_take_little_memory() {
    let place = Place::new();
    let server =
        Server::start(&place, &["--mongo-listen", "127.0.0.1:0", "--postgres-listen", "127.0.0.1:0"]);
    let open = |count| -> Vec<TcpStream> {
        let ports = ["http", "grpc", "mongo", "postgres"].map(|protocol| server.address(protocol));
        ports.iter().cycle().take(4 * count).map(|port| TcpStream::connect(port).unwrap()).collect()
    };
    let body = json!({ "events": [{ "type": "A", "tags": [], "data": 1 }] });
    let append = || Http::connect(server.address("http")).post("/v1/stores/default/events", &body);
    let first = open(10);
    append();
    // Without the pages of the program, which are loaded when its code first runs.
    let held = || memory_kib(&place, "RssAnon:");
    let before = held();
    let others = open(SILENT);
    assert_eq!(append().0 / 100, 2);
    let grown = held().saturating_sub(before);
    println!("{grown} KiB for {} silent connections", 4 * SILENT);
    assert!(grown < SILENT_KIB, "{grown} KiB for {} silent connections", 4 * SILENT);
    drop((first, others));
    ends_clean(&place, server);
}
