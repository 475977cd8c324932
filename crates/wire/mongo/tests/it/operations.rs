//! Running operations: listed, and ended by deadline, disconnect, `killOp` and shutdown.

use bson::{Bson, Document, doc};
use tokio::io::AsyncWriteExt as _;
use tokio::task::JoinHandle;

use crate::client::{Client, MSG, Server, batch, cursor_id, framed, lsid, message};

const DOCUMENTS: i32 = 20_000;

/// A filter that is slow for each document, and matches none or all.
fn slow(finds: bool) -> Document {
    taking(finds, 5000)
}

fn taking(finds: bool, steps: i32) -> Document {
    let sum = doc! { "$add": ["$$value", "$$this"] };
    let sum = doc! { "$reduce": { "input": { "$range": [0, steps] }, "initialValue": 0, "in": sum } };
    let operator = if finds { "$ne" } else { "$eq" };
    doc! { "$expr": { operator: [sum, -1] } }
}

async fn server() -> Server {
    let server = Server::new();
    let all: Vec<_> = (0..DOCUMENTS).map(|n| doc! { "_id": n }).collect();
    server.connect().ok(doc! { "insert": "c", "documents": all }).await;
    server
}

fn inside(mut command: Document, number: u8) -> Document {
    let session =
        doc! { "lsid": lsid(number), "txnNumber": 1_i64, "startTransaction": true, "autocommit": false };
    command.extend(session);
    command
}

/// Commands that scan everything.
fn walks(filter: &Document) -> Vec<Document> {
    let set = doc! { "$set": { "x": 1 } };
    let find = doc! { "find": "c", "filter": filter.clone() };
    let update =
        doc! { "update": "c", "updates": [{ "q": filter.clone(), "u": set.clone(), "multi": true }] };
    let joined = doc! { "from": "c", "let": {}, "pipeline": [{ "$match": filter.clone() }], "as": "j" };
    vec![
        find.clone(),
        doc! { "find": "c", "filter": filter.clone(), "sort": { "x": 1 } },
        inside(find, 1),
        doc! { "count": "c", "query": filter.clone() },
        doc! { "distinct": "c", "key": "x", "query": filter.clone() },
        doc! { "aggregate": "c", "pipeline": [{ "$match": filter.clone() }], "cursor": {} },
        doc! { "aggregate": "c", "pipeline": [{ "$limit": 1 }, { "$lookup": joined }], "cursor": {} },
        doc! { "explain": { "find": "c", "filter": filter.clone() }, "verbosity": "executionStats" },
        update.clone(),
        inside(update, 2),
        doc! { "delete": "c", "deletes": [{ "q": filter.clone(), "limit": 0 }] },
        doc! { "findAndModify": "c", "query": filter.clone(), "update": set },
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn deadline_ends_a_scan_without_matches() {
    let mut client = server().await.connect();
    for mut command in walks(&taking(false, 500)) {
        command.insert("maxTimeMS", 1);
        assert_eq!(client.refused(command).await.0, 50);
    }
    // Nothing remains of the ended commands, and later commands succeed.
    assert_eq!(client.ok(doc! { "count": "c", "query": { "x": 1 } }).await.get_i32("n").unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn write_ends_when_client_disconnects() {
    let server = server().await;
    let mut command = doc! {
        "update": "c", "updates": [{ "q": slow(true), "u": { "$set": { "x": 1 } }, "multi": true }]
    };
    command.insert("$db", "app");
    let (mut ours, theirs) = tokio::io::duplex(1 << 20);
    let mongo = server.mongo.clone();
    let connection = tokio::spawn(async move { mongo.serve(theirs, None, None).await });
    ours.write_all(&framed(1, MSG, &message(0, &command))).await.unwrap();
    operation(&mut server.connect(), "update").await;
    drop(ours);
    connection.await.unwrap();
    let changed = server.connect().ok(doc! { "count": "c", "query": { "x": 1 } }).await;
    assert_eq!(changed.get_i32("n").unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn scan_ends_when_the_server_stops() {
    let server = server().await;
    let mut watching = server.connect();
    let running = in_background(server.connect(), doc! { "find": "c", "filter": slow(false) });
    operation(&mut watching, "query").await;
    server.service.stop().begin();
    assert_eq!(running.await.unwrap().get_i32("code").unwrap(), 11_600);
}

fn in_background(mut client: Client, command: Document) -> JoinHandle<Document> {
    tokio::spawn(async move { client.run(command).await })
}

async fn listed(client: &mut Client, filter: Document) -> Vec<Document> {
    let mut command = doc! { "currentOp": 1, "$db": "admin" };
    command.extend(filter);
    let answer = client.ok(command).await;
    answer.get_array("inprog").unwrap().iter().map(|op| op.as_document().unwrap().clone()).collect()
}

/// Waits until an operation of that kind runs, and returns its entry.
async fn operation(client: &mut Client, kind: &str) -> Document {
    loop {
        if let Some(found) = listed(client, doc! { "op": kind }).await.pop() {
            return found;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

fn kill(number: impl Into<Bson>) -> Document {
    doc! { "killOp": 1, "op": number.into(), "$db": "admin" }
}

#[tokio::test(flavor = "multi_thread")]
async fn running_operations_are_listed_and_killed() {
    let server = server().await;
    let mut admin = server.connect();
    let commands = [
        ("query", doc! { "find": "c", "filter": slow(false), "comment": "why" }),
        ("remove", doc! { "delete": "c", "deletes": [{ "q": slow(true), "limit": 0 }] }),
        ("command", doc! { "count": "c", "query": slow(false) }),
    ];
    for (kind, command) in commands {
        let running = in_background(server.connect(), command.clone());
        let found = loop {
            let found = operation(&mut admin, kind).await;
            if found.get_str("ns").unwrap() == "app.c" {
                break found;
            }
        };
        assert!(found.get_bool("active").unwrap());
        assert_eq!(found.get_str("client").unwrap(), "127.0.0.1:5");
        assert!(found.get_i64("microsecs_running").unwrap() > 0);
        let shown = found.get_document("command").unwrap();
        assert_eq!(shown.get("comment"), command.get("comment"));
        assert_eq!(shown.keys().next(), command.keys().next());
        let opid = found.get_i32("opid").unwrap();
        assert_eq!(admin.ok(kill(opid)).await.get_str("info").unwrap(), "attempting to kill op");
        let ended = running.await.unwrap();
        assert_eq!(ended.get_i32("code").unwrap(), 11_601, "{ended}");
        assert_eq!(ended.get_str("codeName").unwrap(), "Interrupted");
    }
    // A completed operation cannot be killed any more, and the next one of the connection has another id.
    admin.ok(kill(1)).await;
    let left = admin.ok(doc! { "count": "c", "query": { "_id": { "$gte": 0 } } }).await;
    assert_eq!(left.get_i32("n").unwrap(), DOCUMENTS);
}

#[tokio::test(flavor = "multi_thread")]
async fn current_op_options_select_operations() {
    let server = Server::new();
    let (mut client, mut idle) = (server.connect(), server.connect());
    idle.ok(doc! { "ping": 1 }).await;
    let own = listed(&mut client, doc! { "$ownOps": true }).await;
    assert_eq!(own.len(), 1);
    assert_eq!(own[0].get_str("ns").unwrap(), "admin.$cmd");
    assert_eq!(own[0].get_document("command").unwrap().get_i32("currentOp").unwrap(), 1);
    let all = listed(&mut client, doc! { "$all": true }).await;
    assert_eq!(all.len(), 2);
    let idle = listed(&mut client, doc! { "$all": true, "active": false }).await;
    assert_eq!((idle.len(), idle[0].get_str("op").unwrap()), (1, "none"));
    assert!(listed(&mut client, doc! { "ns": "other.c" }).await.is_empty());

    let stage = |options: Document, more: Vec<Document>| {
        let mut stages = vec![doc! { "$currentOp": options }];
        stages.extend(more);
        doc! { "aggregate": 1, "pipeline": stages, "cursor": {}, "$db": "admin" }
    };
    let options = doc! { "allUsers": true, "idleConnections": true, "truncateOps": false, "localOps": true };
    let told = client.ok(stage(options, vec![doc! { "$match": { "active": true } }])).await;
    let told = batch(&told, "firstBatch");
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].get_str("ns").unwrap(), "admin.$cmd.aggregate");
    let shown = told[0].get_document("command").unwrap().get_array("pipeline").unwrap();
    assert!(shown[0].as_document().unwrap().contains_key("$currentOp"));

    // Long commands are truncated to their names.
    let long = "x".repeat(2000);
    let mut command = stage(doc! { "truncateOps": true }, vec![]);
    command.insert("comment", &long);
    let told = batch(&client.ok(command).await, "firstBatch").remove(0);
    let shown = told.get_document("command").unwrap();
    assert!(shown.get_bool("$truncated").unwrap() && !shown.contains_key("comment"));

    let mut elsewhere = stage(doc! {}, vec![]);
    elsewhere.insert("$db", "app");
    let mut over = stage(doc! {}, vec![]);
    over.insert("aggregate", "c");
    for (command, code) in [
        (elsewhere, 13),
        (over, 73),
        (stage(doc! { "idleCursors": true }, vec![]), 238),
        (stage(doc! { "what": true }, vec![]), 40415),
        (doc! { "currentOp": 1 }, 13),
        (doc! { "killOp": 1, "op": 1 }, 13),
        (doc! { "killOp": 1, "$db": "admin" }, 40414),
        (kill("a:1"), 14),
        (kill(i64::MAX), 26_823),
    ] {
        assert_eq!(client.refused(command.clone()).await.0, code, "{command}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_get_more_can_be_killed() {
    let server = Server::new();
    let mut admin = server.connect();
    for number in 0..3_u8 {
        let mut client = server.connect();
        let watch = doc! {
            "aggregate": "c", "pipeline": [{ "$changeStream": {} }], "cursor": {}, "lsid": lsid(number)
        };
        let id = cursor_id(&client.ok(watch).await);
        let more = doc! { "getMore": id, "collection": "c", "maxTimeMS": 600_000, "lsid": lsid(number) };
        let running = in_background(client, more);
        let opid = operation(&mut admin, "getmore").await.get_i32("opid").unwrap();
        let end = match number {
            0 => kill(opid),
            1 => doc! { "killSessions": [lsid(number)] },
            _ => doc! { "killCursors": "c", "cursors": [id] },
        };
        admin.ok(end).await;
        assert_eq!(running.await.unwrap().get_i32("code").unwrap(), 11_601);
        let again = doc! { "getMore": id, "collection": "c", "lsid": lsid(number) };
        assert_eq!(admin.refused(again).await.0, 43);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn list_of_operations_is_at_most_a_document() {
    const WAITING: usize = 1_100;
    let server = Server::new();
    let mut admin = server.connect();
    let comment = "x".repeat(16_000);
    let mut waiting = Vec::new();
    for _ in 0..WAITING {
        let mut client = server.connect();
        let watch = doc! { "aggregate": "c", "pipeline": [{ "$changeStream": {} }], "cursor": {} };
        let id = cursor_id(&client.ok(watch).await);
        let more = doc! { "getMore": id, "collection": "c", "maxTimeMS": 600_000, "comment": &comment };
        waiting.push(in_background(client, more));
    }
    while listed(&mut admin, doc! { "op": "getmore", "$truncateOps": true }).await.len() < WAITING {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let refused = admin.run(doc! { "currentOp": 1, "$db": "admin" }).await;
    assert_eq!(refused.get_i32("code").unwrap(), 10_334, "{refused}");
    assert!(refused.get_str("errmsg").unwrap().contains("set $truncateOps"), "{refused}");
    assert_eq!(listed(&mut admin, doc! { "ns": "admin.$cmd" }).await.len(), 1);
    let of_stage = |short: bool| {
        let listing = doc! { "$currentOp": { "allUsers": true, "truncateOps": short } };
        let stages = vec![listing, doc! { "$match": { "op": "getmore" } }];
        doc! { "aggregate": 1, "pipeline": stages, "cursor": {}, "$db": "admin" }
    };
    assert_eq!(admin.refused(of_stage(false)).await.0, 10_334);
    let mut answer = admin.ok(of_stage(true)).await;
    let mut found = batch(&answer, "firstBatch").len();
    while cursor_id(&answer) != 0 {
        let more = doc! { "getMore": cursor_id(&answer), "collection": "$cmd.aggregate", "$db": "admin" };
        answer = admin.ok(more).await;
        found += batch(&answer, "nextBatch").len();
    }
    assert_eq!(found, WAITING);
    waiting.iter().for_each(JoinHandle::abort);
}
