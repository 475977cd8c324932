//! Garbage on every port: random bytes, mutated requests, malformed HTTP/2 frames. Meanwhile valid clients
//! are served, memory remains bounded, and the log contains only valid records.

use std::io::{Read as _, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use super::calls::{Grpc, Http};
use super::{Dice, ends_clean, number, resident_mib};
use crate::Place;
use crate::serving::Server;
use ropewalk_grpc::proto::umadb::v1 as proto;

const SENDERS: u64 = 4;
const GROWTH_MIB: u64 = 192;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Valid requests, to be mutated.
const REQUESTS: [&str; 6] = [
    "GET /v1/stores/default/events?type=A&limit=10 HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "GET /v1/stores/default/subscribe?format=sse HTTP/1.1\r\nhost: localhost\r\nlast-event-id: 7\r\n\r\n",
    "POST /v1/stores/fuzz/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 66\r\n\r\n\
     {\"events\":[{\"type\":\"A\",\"tags\":[\"t:1\"],\"data\":{\"a\":[1,2,3,null]}}]}  ",
    "POST /append HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n\
     20\r\n{\"events\":[{\"type\":\"A\",\"data\":\"\"}\r\n2\r\n]}\r\n0\r\n\r\n",
    "GET /read?query=%7B%22items%22%3A%5B%5D%7D&options=%7B%7D HTTP/1.1\r\nhost: localhost\r\nauthorization: Basic eDp5\r\n\r\n",
    "PUT /v1/stores/fuzz HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-encoding: zstd\r\ncontent-length: 9\r\n\r\n123456789",
];

fn frame(out: &mut Vec<u8>, length: usize, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&(length as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Frames with random headers, some with a larger length than their payload.
fn frames(dice: &mut Dice) -> Vec<u8> {
    let mut out = PREFACE.to_vec();
    frame(&mut out, 0, 4, 0, 0, &[]);
    for _ in 0..dice.below(20) {
        let size = dice.below(300);
        let payload = dice.bytes(size);
        let length = if dice.below(4) == 0 { dice.below(1 << 24) as usize } else { payload.len() };
        let stream = if dice.below(2) == 0 { 1 } else { dice.next() as u32 };
        frame(&mut out, length, dice.below(12) as u8, dice.next() as u8, stream, &payload);
    }
    out
}

/// A call with a garbage message or message length.
fn call(dice: &mut Dice) -> Vec<u8> {
    let methods = ["Read", "Append", "Subscribe", "Head", "GetTrackingInfo", "Nothing"];
    let path = format!("/umadb.v1.DCB/{}", methods[dice.below(6) as usize]);
    // POST, http, path, authority, content-type: by their index in the static table.
    let mut headers = vec![0x83, 0x86, 0x04, path.len() as u8];
    headers.extend_from_slice(path.as_bytes());
    headers.extend_from_slice(b"\x01\x01x\x0f\x10\x10application/grpc\x00\x02te\x08trailers");
    let mut out = PREFACE.to_vec();
    frame(&mut out, 0, 4, 0, 0, &[]);
    for stream in 0..1 + dice.below(5) as u32 {
        frame(&mut out, headers.len(), 1, 4, 2 * stream + 1, &headers);
        let size = dice.below(200);
        let message = dice.bytes(size);
        let length = if dice.below(3) == 0 { dice.next() as u32 } else { message.len() as u32 };
        let mut data = vec![(dice.below(8) == 0).into()];
        data.extend_from_slice(&length.to_be_bytes());
        data.extend_from_slice(&message);
        frame(&mut out, data.len(), 0, dice.below(2) as u8, 2 * stream + 1, &data);
    }
    out
}

fn mutated(dice: &mut Dice) -> Vec<u8> {
    let mut bytes = REQUESTS[dice.below(REQUESTS.len() as u64) as usize].as_bytes().to_vec();
    for _ in 0..dice.below(6) {
        let at = dice.below(bytes.len() as u64) as usize;
        match dice.below(3) {
            0 => bytes[at] = dice.next() as u8,
            1 => bytes.truncate(at.max(1)),
            _ => {
                let piece = bytes[at..].to_vec();
                bytes.extend(piece);
            }
        }
    }
    bytes
}

fn garbage(dice: &mut Dice) -> Vec<u8> {
    match dice.below(5) {
        0 => {
            let size = 1 + dice.below(4096);
            dice.bytes(size)
        }
        1 => frames(dice),
        2 => call(dice),
        3 => [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(), dice.bytes(517)].concat(),
        _ => mutated(dice),
    }
}

/// Sends garbage to the ports in turn until the time is over; returns the number of connections.
fn send(seed: u64, addresses: &[String], socket: &Path, until: Instant) -> u64 {
    let mut dice = Dice(seed);
    let mut sent = 0;
    while Instant::now() < until {
        let bytes = garbage(&mut dice);
        let patience = Some(Duration::from_millis(1 + dice.below(10)));
        // The server may close the connection at any time, or be at its limit; neither is an error here.
        if dice.below(4) == 0 {
            let Ok(mut stream) = UnixStream::connect(socket) else { continue };
            stream.set_read_timeout(patience).unwrap();
            let _ = stream.write_all(&bytes);
            let _ = stream.read(&mut [0; 512]);
        } else {
            let Ok(mut stream) = TcpStream::connect(&addresses[dice.below(2) as usize]) else { continue };
            stream.set_read_timeout(patience).unwrap();
            let _ = stream.write_all(&bytes);
            if dice.below(2) == 0 {
                let _ = stream.shutdown(Shutdown::Write);
            }
            let _ = stream.read(&mut [0; 512]);
        }
        sent += 1;
    }
    sent
}

#[test]
fn garbage_on_every_port_changes_nothing() {
    let place = Place::new();
    let server = Server::start(&place, &["--log-level=error"]);
    let addresses = [server.address("http").to_owned(), server.address("grpc").to_owned()];
    let (mut http, mut grpc) = (Http::connect(&addresses[0]), Grpc::connect(&addresses[1]));
    let honest = json!({ "events": [{ "type": "Honest", "tags": ["honest:1"], "data": 1 }] });
    assert_eq!(http.post("/v1/stores/honest/events", &honest).0 / 100, 2);
    let before = resident_mib(&place);
    let until = Instant::now() + Duration::from_secs(number("ROPEWALK_GARBAGE_SECONDS", 2));
    let senders: Vec<_> = (0..SENDERS)
        .map(|seed| {
            let (addresses, socket) = (addresses.clone(), place.path().join("ropewalk.db/ropewalk.sock"));
            std::thread::spawn(move || send(seed, &addresses, &socket, until))
        })
        .collect();
    let mut appended = 1;
    while Instant::now() < until {
        let (status, answer) = http.post("/v1/stores/honest/events", &honest);
        assert_eq!((status / 100, answer["last"].as_u64()), (2, Some(appended + 1)), "{answer}");
        appended += 1;
        grpc.runtime.block_on(grpc.client.head(proto::HeadRequest {})).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    let sent: u64 = senders.into_iter().map(|sender| sender.join().unwrap()).sum();
    assert!(sent > 10, "only {sent} connections");
    let grown = resident_mib(&place).saturating_sub(before);
    assert!(grown < GROWTH_MIB, "{grown} MiB more after {sent} connections");
    // Both accept new connections.
    let (status, count) = Http::connect(&addresses[0])
        .post("/v1/stores/honest/events:count", &json!({ "query": { "items": [{ "types": ["Honest"] }] } }));
    assert_eq!((status, count["count"].as_u64()), (200, Some(appended)), "{count}");
    Grpc::connect(&addresses[1]);
    drop((http, grpc));
    ends_clean(&place, server);
    let db = ropewalk::Database::open(place.path().join("ropewalk.db")).unwrap();
    let honest = db.existing_events("honest").unwrap();
    assert_eq!(honest.head().unwrap().unwrap().0, appended);
}
