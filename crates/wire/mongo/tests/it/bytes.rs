//! Invalid bytes: an error reply or a closed connection; never a panic, never an endless wait.

use bson::doc;
use proptest::prelude::*;
use ropewalk_mongo::Compressor;
use ropewalk_mongo::frame::{FrameError, HEADER_BYTES, Header, Request};
use tokio::io::AsyncWriteExt as _;

use crate::client::{MSG, Server, framed, message, sequence};

fn decode(bytes: &[u8]) -> Result<Option<Request>, FrameError> {
    let header = Header::decode(bytes[..HEADER_BYTES].try_into().unwrap())?;
    Request::decode(header, bytes[HEADER_BYTES..].to_vec()).map(Result::ok)
}

/// A message of every kind.
fn samples() -> Vec<Vec<u8>> {
    let body =
        doc! { "insert": "c", "$db": "app", "ordered": true, "deep": { "a": [1, 2.5, "x", { "b": null }] } };
    let mut with_sequence = message(0, &body);
    with_sequence.extend(sequence("documents", &[doc! { "_id": 1 }, doc! { "_id": "two", "x": [1, 2] }]));
    let mut query = 0_i32.to_le_bytes().to_vec();
    query.extend(b"admin.$cmd\0");
    query.extend(0_i32.to_le_bytes());
    query.extend((-1_i32).to_le_bytes());
    query.extend(doc! { "isMaster": 1 }.to_vec().unwrap());
    let mut samples =
        vec![framed(7, MSG, &with_sequence), framed(8, 2004, &query), checksummed(&with_sequence)];
    for compressor in Compressor::ALL {
        let mut payload = MSG.to_le_bytes().to_vec();
        payload.extend((with_sequence.len() as i32).to_le_bytes());
        payload.push(compressor.number());
        payload.extend(compressor.compress(&with_sequence).unwrap());
        samples.push(framed(9, 2012, &payload));
    }
    samples
}

fn checksummed(payload: &[u8]) -> Vec<u8> {
    let mut payload = payload.to_vec();
    payload[0] |= 1;
    payload.extend([0; 4]);
    let mut bytes = framed(3, MSG, &payload);
    let end = bytes.len() - 4;
    let sum = crc32c::crc32c(&bytes[..end]);
    bytes[end..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn every_kind_of_message_is_decoded() {
    for bytes in samples() {
        let request = decode(&bytes).unwrap().unwrap();
        assert!(request.body().first().is_some());
        if request.database() == Some("app") {
            assert_eq!(request.sequence("documents").unwrap().len(), 2);
            assert_eq!(request.sequence_names().collect::<Vec<_>>(), ["documents"]);
        }
    }
}

#[test]
fn truncated_message_is_rejected() {
    for bytes in samples() {
        for end in HEADER_BYTES..bytes.len() {
            assert!(decode(&bytes[..end]).is_err(), "{end} of {}", bytes.len());
            // The same with a matching length.
            let mut shorter = bytes[..end].to_vec();
            shorter[..4].copy_from_slice(&(end as i32).to_le_bytes());
            let _ = decode(&shorter);
        }
    }
}

#[test]
fn wrong_checksum_is_detected() {
    let bytes = checksummed(&message(0, &doc! { "ping": 1, "$db": "app" }));
    assert!(decode(&bytes).unwrap().is_some());
    for at in 4..bytes.len() {
        let mut broken = bytes.clone();
        broken[at] ^= 0x40;
        assert!(decode(&broken).is_err(), "{at}");
    }
}

#[test]
fn impossible_lengths_are_rejected_before_the_body_is_read() {
    for length in [i32::MIN, -1, 0, 15, 48_000_001, i32::MAX] {
        let mut bytes = framed(1, MSG, &[0; 8]);
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        assert_eq!(decode(&bytes), Err(FrameError::Length { length }));
    }
}

#[test]
fn double_compression_and_wrong_size_are_rejected() {
    let inner = message(0, &doc! { "ping": 1 });
    for (opcode, size, compressor) in [
        (2012, inner.len() as i32, 1),
        (MSG, 1 << 30, 1),
        (MSG, -1, 1),
        (MSG, 5, 1),
        (MSG, 5, 0),
        (MSG, 5, 77),
    ] {
        let mut payload = i32::to_le_bytes(opcode).to_vec();
        payload.extend(i32::to_le_bytes(size));
        payload.push(compressor);
        payload.extend(Compressor::Snappy.compress(&inner).unwrap());
        assert!(decode(&framed(1, 2012, &payload)).is_err(), "{opcode} {size} {compressor}");
    }
}

proptest! {
    #[test]
    fn changed_bytes_never_panic(sample in 0_usize..6, at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = samples().swap_remove(sample);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(Some(request)) = decode(&bytes) {
            let names: Vec<_> = request.sequence_names().map(str::to_owned).collect();
            names.iter().for_each(|name| { request.sequence(name); });
        }
    }

    #[test]
    fn bytes_by_chance_never_panic(opcode in prop::sample::select(vec![1, 2004, 2012, 2013, 7]), payload in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&framed(1, opcode, &payload));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_body_gets_error_reply_and_connection_stays_open() {
    let mut client = Server::new().connect();
    let mut payload = message(0, &doc! { "ping": 1, "$db": "app" });
    payload[9] = 0x55; // not a BSON type
    client.send(MSG, &payload).await;
    assert_eq!(client.answer().await.unwrap().document().get_i32("code").unwrap(), 22);
    client.ok(doc! { "ping": 1 }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn incomplete_message_closes_the_connection() {
    for bytes in [
        framed(1, 7, &[]),
        framed(1, MSG, &[0; 3]),
        vec![0xFF; 64],
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n".to_vec(),
    ] {
        let mut client = Server::new().connect();
        client.stream.write_all(&bytes).await.unwrap();
        assert!(client.answer().await.is_none());
    }
}
