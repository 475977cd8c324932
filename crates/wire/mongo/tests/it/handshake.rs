//! The handshake of drivers.

use bson::doc;
use ropewalk_mongo::Compressor;
use tokio::io::AsyncWriteExt as _;

use crate::client::{Client, MSG, Server, message};

#[tokio::test(flavor = "multi_thread")]
async fn hello_reports_a_replica_set_of_one() {
    let mut client = Server::new().connect();
    let hello =
        client.ok(doc! { "hello": 1, "helloOk": true, "client": { "driver": { "name": "test" } } }).await;
    assert!(hello.get_bool("isWritablePrimary").unwrap() && hello.get_bool("helloOk").unwrap());
    assert_eq!(hello.get_str("setName").unwrap(), "ropewalk");
    assert_eq!(hello.get_array("hosts").unwrap(), &vec![bson::Bson::from("127.0.0.1:27017")]);
    assert_eq!(hello.get_str("me").unwrap(), hello.get_str("primary").unwrap());
    assert_eq!(hello.get_i32("logicalSessionTimeoutMinutes").unwrap(), 30);
    assert_eq!(hello.get_i32("maxWireVersion").unwrap(), 21);
    assert!(hello.get_document("$clusterTime").is_ok() && hello.get_timestamp("operationTime").is_ok());
    let old = client.ok(doc! { "isMaster": 1 }).await;
    assert!(old.get_bool("ismaster").unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn old_drivers_open_with_a_query() {
    let mut client = Server::new().connect();
    let mut query = 4_i32.to_le_bytes().to_vec();
    query.extend(b"admin.$cmd\0");
    query.extend([0, 0, 0, 0, 1, 0, 0, 0]);
    query.extend(doc! { "ismaster": 1, "helloOk": true }.to_vec().unwrap());
    client.send(2004, &query).await;
    let answer = client.answer().await.unwrap();
    assert_eq!((answer.opcode, answer.to), (1, client.id));
    assert!(answer.document().get_bool("ismaster").unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn compression_is_negotiated_and_replies_use_that_of_the_request() {
    let mut client = Server::new().connect();
    let hello = client.ok(doc! { "hello": 1, "compression": ["zstd", "lz77", "snappy"] }).await;
    let agreed: Vec<_> =
        hello.get_array("compression").unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(agreed, ["zstd", "snappy"]);
    for compressor in Compressor::ALL {
        let inner = message(0, &doc! { "ping": 1, "$db": "app" });
        let mut payload = MSG.to_le_bytes().to_vec();
        payload.extend((inner.len() as i32).to_le_bytes());
        payload.push(compressor.number());
        payload.extend(compressor.compress(&inner).unwrap());
        client.send(2012, &payload).await;
        let answer = client.answer().await.unwrap();
        assert_eq!((answer.opcode, answer.payload[8]), (2012, compressor.number()));
    }
}

async fn waiting(client: &mut Client, flags: u32) {
    let hello = client.ok(doc! { "hello": 1 }).await;
    let topology = hello.get_document("topologyVersion").unwrap();
    let wait = doc! { "hello": 1, "topologyVersion": topology, "maxAwaitTimeMS": 5, "$db": "admin" };
    client.send(MSG, &message(flags, &wait)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn awaitable_hello_replies_after_its_wait_time() {
    let mut client = Server::new().connect();
    waiting(&mut client, 0).await;
    let answer = client.answer().await.unwrap();
    assert_eq!(answer.payload[0], 0, "no other answer follows");
    assert!(answer.document().get_bool("isWritablePrimary").unwrap());
    client.ok(doc! { "ping": 1 }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exhaust_hello_is_replied_to_repeatedly() {
    let server = Server::new();
    let mut client = server.connect();
    waiting(&mut client, 1 << 16).await;
    let mut to = client.id;
    for _ in 0..3 {
        let answer = client.answer().await.unwrap();
        assert_eq!((answer.to, answer.payload[0]), (to, 2));
        // Each responds to the previous one.
        to = answer.id;
    }
    // The replies end when the server stops.
    server.service.stop().begin();
    while client.answer().await.is_some() {}
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_shells_describe_the_server() {
    let mut client = Server::new().connect();
    for command in [
        "buildInfo",
        "hostInfo",
        "whatsmyuri",
        "connectionStatus",
        "serverStatus",
        "listCommands",
        "getCmdLineOpts",
    ] {
        client.ok(doc! { command: 1, "$db": "admin" }).await;
    }
    let parameter =
        client.ok(doc! { "getParameter": 1, "featureCompatibilityVersion": 1, "$db": "admin" }).await;
    assert_eq!(
        parameter.get_document("featureCompatibilityVersion").unwrap().get_str("version").unwrap(),
        "7.0"
    );
    client.ok(doc! { "getLog": "startupWarnings", "$db": "admin" }).await;
    assert_eq!(client.refused(doc! { "getParameter": 1, "colour": 1 }).await.0, 72);
    assert_eq!(client.refused(doc! { "noSuchCommand": 1 }).await.0, 59);
    assert_eq!(client.refused(doc! { "ping": 1, "colour": 1 }).await.0, 40415);
}

/// The header of a compressed message of 47 MB, and its decompressed content.
fn announced() -> Vec<u8> {
    let mut message = Vec::new();
    for word in [47_000_000_i32, 1, 0, 2012, 2013, 47_000_000] {
        message.extend(word.to_le_bytes());
    }
    message.push(2);
    message
}

#[tokio::test(start_paused = true)]
async fn c2_announced_length_reserves_nothing() {
    let server = Server::new();
    let memory = server.service.request_memory();
    let free = memory.available_bytes();
    let mut hostile = Vec::new();
    for _ in 0..9 {
        let mut client = server.connect();
        client.stream.write_all(&announced()).await.unwrap();
        hostile.push(client);
    }
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    // One step of 64 KiB each at most.
    assert!(free - memory.available_bytes() <= 9 * (64 << 10));
    let large = doc! { "insert": "c", "documents": [{ "a": "x".repeat(100_000) }] };
    server.connect().ok(large).await;
    // One deadline for the complete message.
    for client in &mut hostile {
        assert!(client.answer().await.is_none());
    }
    assert_eq!(memory.available_bytes(), free);
}

#[tokio::test(start_paused = true)]
async fn c2_message_before_login_is_small_and_silence_ends() {
    let server = Server::new();
    let access = server.service.access();
    access
        .create_user(&ropewalk_auth::Caller::everybody(), "ann", "secret", ropewalk_auth::Roles::new())
        .await
        .unwrap();
    let mut client = server.connect();
    client.stream.write_all(&announced()).await.unwrap();
    assert!(client.answer().await.is_none());
    let mut client = server.connect();
    client.send(MSG, &message(0, &doc! { "hello": 1, "a": "x".repeat(100_000), "$db": "admin" })).await;
    assert!(client.answer().await.is_none());
    // A monitor never logs in, and says hello every ten seconds.
    let mut client = server.connect();
    for _ in 0..20 {
        client.ok(doc! { "hello": 1 }).await;
        tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    }
    let silent = tokio::time::timeout(std::time::Duration::from_secs(61), client.answer()).await;
    assert!(silent.expect("silence before login ends").is_none());
}
