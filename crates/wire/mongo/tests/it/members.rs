//! The members of a set: what each says about itself, which commands it runs, and reads that wait.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bson::{Bson, Document, Timestamp, doc};
use ropewalk_mongo::{Mongo, MongoSettings};

use crate::client::{MSG, Server, batch, message};
use crate::cluster::Node;
use crate::transactions::part;

fn server(node: &Node) -> Server {
    let service = node.service.clone();
    Server { mongo: Mongo::new(service.clone(), MongoSettings::default()), service }
}

fn insert(id: i32) -> Document {
    doc! { "insert": "c", "documents": [{ "_id": id }] }
}

/// A command of a client that reads from any member.
fn anywhere(mut command: Document) -> Document {
    command.insert("$readPreference", doc! { "mode": "secondaryPreferred" });
    command
}

/// The time of a commit.
fn time(seq: u64) -> Timestamp {
    Timestamp { time: (seq >> 32) as u32, increment: seq as u32 }
}

fn read_after(seq: u64) -> Document {
    anywhere(doc! { "find": "c", "readConcern": { "level": "local", "afterClusterTime": time(seq) } })
}

#[tokio::test(flavor = "multi_thread")]
async fn hello_names_primary_and_members() {
    let (leader, follower) = Node::pair();
    follower.follow();
    let hosts = vec![Bson::from("n1:27017"), Bson::from("n2:27017")];
    let hello = server(&leader).connect().ok(doc! { "hello": 1 }).await;
    assert!(hello.get_bool("isWritablePrimary").unwrap() && !hello.get_bool("secondary").unwrap());
    assert_eq!(hello.get_array("hosts").unwrap(), &hosts);
    assert_eq!((hello.get_str("me").unwrap(), hello.get_str("primary").unwrap()), ("n1:27017", "n1:27017"));
    let election = hello.get_object_id("electionId").unwrap().bytes();
    assert_eq!(election, [0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1]);

    let hello = server(&follower).connect().ok(doc! { "hello": 1 }).await;
    assert!(!hello.get_bool("isWritablePrimary").unwrap() && hello.get_bool("secondary").unwrap());
    assert_eq!(hello.get_array("hosts").unwrap(), &hosts);
    assert_eq!((hello.get_str("me").unwrap(), hello.get_str("primary").unwrap()), ("n2:27017", "n1:27017"));
    assert!(hello.get("electionId").is_none());
    let old = server(&follower).connect().ok(doc! { "isMaster": 1 }).await;
    assert!(!old.get_bool("ismaster").unwrap() && old.get_bool("secondary").unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn secondary_runs_no_write_and_no_transaction() {
    let (leader, follower) = Node::pair();
    follower.follow();
    let seq = leader.db().seq();
    let mut client = server(&follower).connect();
    let commands = [
        insert(1),
        doc! { "update": "c", "updates": [{ "q": {}, "u": { "$set": { "a": 1 } } }] },
        doc! { "delete": "c", "deletes": [{ "q": {}, "limit": 0 }] },
        doc! { "findAndModify": "c", "query": {}, "remove": true },
        doc! { "create": "made" },
        doc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a" }] },
        doc! { "drop": "c" },
        doc! { "dropDatabase": 1 },
        doc! { "createUser": "ann", "pwd": "correct horse", "roles": [] },
        doc! { "aggregate": "c", "pipeline": [{ "$out": "d" }], "cursor": {} },
        doc! { "aggregate": "c", "pipeline": [{ "$match": {} }, { "$merge": "d" }], "cursor": {} },
        part(doc! { "find": "c" }, 1, 1, true),
    ];
    for command in commands {
        let reply = client.run(anywhere(command.clone())).await;
        assert_eq!(reply.get_i32("code").ok(), Some(10_107), "{command}\n{reply}");
        assert_eq!(reply.get_str("codeName").unwrap(), "NotWritablePrimary");
        // Drivers mark the server as unknown only when this is newer than what they know.
        assert!(reply.get_document("topologyVersion").is_ok());
    }
    follower.follow();
    assert_eq!((leader.db().seq(), follower.db().seq()), (seq, seq));
    client.ok(doc! { "ping": 1 }).await;
    client.ok(doc! { "endSessions": [crate::client::lsid(1)] }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn secondary_serves_reads_of_clients_that_allow_it() {
    let (leader, follower) = Node::pair();
    server(&leader).connect().ok(insert(1)).await;
    follower.follow();
    let mut client = server(&follower).connect();
    let find = doc! { "find": "c" };
    assert_eq!(client.refused(find.clone()).await.0, 13_435);
    let primary = doc! { "find": "c", "$readPreference": { "mode": "primary" } };
    assert_eq!(client.refused(primary).await.0, 13_435);
    let found = client.ok(anywhere(find)).await;
    assert_eq!(batch(&found, "firstBatch"), [doc! { "_id": 1 }]);
    let count = doc! { "aggregate": "c", "pipeline": [{ "$count": "n" }], "cursor": {} };
    assert_eq!(batch(&client.ok(anywhere(count)).await, "firstBatch"), [doc! { "n": 1 }]);
    let missing = doc! { "find": "never", "filter": {} };
    assert!(batch(&client.ok(anywhere(missing)).await, "firstBatch").is_empty());
    client.ok(anywhere(doc! { "listCollections": 1 })).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn read_waits_for_its_cluster_time() {
    let (leader, follower) = Node::pair();
    let written = server(&leader).connect().ok(insert(1)).await;
    let after = written.get_timestamp("operationTime").unwrap();
    let seq = leader.db().seq().0;
    assert_eq!(after, time(seq));
    let follower = Arc::new(follower);
    let later = follower.follow_later();
    let mut client = server(&follower).connect();
    assert_eq!(batch(&client.ok(read_after(seq)).await, "firstBatch"), [doc! { "_id": 1 }]);
    later.join().unwrap();
    let mut never = read_after(seq + 1);
    never.insert("maxTimeMS", 20);
    assert_eq!(client.refused(never).await.0, 50);
}

#[tokio::test(flavor = "multi_thread")]
async fn linearizable_read_is_proven_by_the_primary() {
    let (leader, follower) = Node::pair();
    server(&leader).connect().ok(insert(1)).await;
    follower.follow();
    let before = leader.state.barriers.load(Ordering::Relaxed);
    let read = doc! { "find": "c", "readConcern": { "level": "linearizable" } };
    server(&leader).connect().ok(read.clone()).await;
    assert_eq!(leader.state.barriers.load(Ordering::Relaxed), before + 1);
    assert_eq!(server(&follower).connect().refused(anywhere(read)).await.0, 10_107);
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_may_ask_for_all_members() {
    let (leader, _follower) = Node::pair();
    let mut client = server(&leader).connect();
    for (members, fails) in [(Bson::from(2), false), (Bson::from("majority"), false), (Bson::from(3), true)] {
        let updates = vec![doc! { "q": {}, "u": { "$set": { "a": 1 } } }];
        let update = doc! { "update": "c", "updates": updates, "writeConcern": { "w": members } };
        let reply = client.ok(update).await;
        assert_eq!(reply.get("writeConcernError").is_some(), fails, "{reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_hello_is_answered_when_the_member_becomes_primary() {
    let (leader, follower) = Node::pair();
    follower.follow();
    let mut client = server(&follower).connect();
    let hello = client.ok(doc! { "hello": 1 }).await;
    let topology = hello.get_document("topologyVersion").unwrap().clone();
    let wait =
        doc! { "hello": 1, "topologyVersion": topology.clone(), "maxAwaitTimeMS": 60_000, "$db": "admin" };
    let begun = Instant::now();
    client.send(MSG, &message(0, &wait)).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    follower.lead();
    let hello = client.answer().await.unwrap().document();
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert!(hello.get_bool("isWritablePrimary").unwrap());
    let election = hello.get_object_id("electionId").unwrap().bytes();
    assert_eq!(election[11], 2, "the second term");
    let changed = hello.get_document("topologyVersion").unwrap();
    assert_eq!(changed.get("processId"), topology.get("processId"));
    assert!(changed.get_i64("counter").unwrap() > topology.get_i64("counter").unwrap());
    client.ok(insert(1)).await;
    // The deposed primary finds that out with its next write.
    let reply = server(&leader).connect().run(insert(2)).await;
    assert_eq!(reply.get_f64("ok").unwrap(), 0.0, "{reply}");
}
