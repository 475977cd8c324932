//! Transactions, retryable writes, sessions.

use std::time::{Duration, Instant};

use bson::{Document, doc};
use ropewalk::engine::EngineError;
use ropewalk::{Database, Error};

use crate::client::{Client, Server, batch, cursor_id, lsid};

/// A command as part of a transaction.
pub(crate) fn part(mut command: Document, session: u8, number: i64, first: bool) -> Document {
    command.extend(doc! { "lsid": lsid(session), "txnNumber": number, "autocommit": false });
    if first {
        command.insert("startTransaction", true);
    }
    command
}

/// The end of a transaction.
pub(crate) fn end(command: &str, session: u8, number: i64) -> Document {
    part(doc! { command: 1, "$db": "admin" }, session, number, false)
}

fn insert(id: i32) -> Document {
    doc! { "insert": "c", "documents": [{ "_id": id, "n": 0 }] }
}

async fn count(client: &mut Client) -> usize {
    client.find("c", doc! {}).await.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn transaction_is_visible_completely_or_not_at_all() {
    let server = Server::new();
    let (mut ann, mut bob) = (server.connect(), server.connect());
    ann.ok(insert(0)).await;
    ann.ok(part(insert(1), 1, 1, true)).await;
    ann.ok(part(doc! { "create": "made" }, 1, 1, false)).await;
    let own = ann.ok(part(doc! { "find": "c", "sort": { "_id": 1 } }, 1, 1, false)).await;
    assert_eq!((batch(&own, "firstBatch").len(), count(&mut bob).await), (2, 1));
    ann.ok(end("commitTransaction", 1, 1)).await;
    // A retry has the same result.
    ann.ok(end("commitTransaction", 1, 1)).await;
    assert_eq!(count(&mut bob).await, 2);
    assert_eq!(ann.refused(end("abortTransaction", 1, 1)).await.0, 256);

    ann.ok(part(insert(2), 1, 2, true)).await;
    ann.ok(end("abortTransaction", 1, 2)).await;
    let (code, labels) = ann.refused(end("commitTransaction", 1, 2)).await;
    assert_eq!((code, labels), (251, vec!["TransientTransactionError".to_owned()]));
    assert_eq!(count(&mut bob).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn second_transaction_to_change_a_document_gets_a_transient_error() {
    let server = Server::new();
    let (mut ann, mut bob) = (server.connect(), server.connect());
    ann.ok(insert(0)).await;
    let change = doc! { "update": "c", "updates": [{ "q": { "_id": 0 }, "u": { "$inc": { "n": 1 } } }] };
    ann.ok(part(change.clone(), 1, 1, true)).await;
    bob.ok(part(change.clone(), 2, 1, true)).await;
    ann.ok(end("commitTransaction", 1, 1)).await;
    let (code, labels) = bob.refused(end("commitTransaction", 2, 1)).await;
    assert_eq!((code, labels), (112, vec!["TransientTransactionError".to_owned()]));
    bob.ok(part(change, 2, 2, true)).await;
    bob.ok(end("commitTransaction", 2, 2)).await;
    assert_eq!(ann.find("c", doc! {}).await, [doc! { "_id": 0, "n": 2 }]);
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_ends_the_transaction() {
    let mut client = Server::new().connect();
    client.ok(insert(0)).await;
    client.ok(part(insert(1), 1, 1, true)).await;
    let duplicate = client.ok(part(insert(0), 1, 1, false)).await;
    assert!(duplicate.get_array("writeErrors").is_ok());
    assert_eq!(client.refused(part(doc! { "find": "c" }, 1, 1, false)).await.0, 251);
    assert_eq!(client.refused(end("commitTransaction", 1, 1)).await.0, 251);
    client.ok(part(insert(1), 1, 2, true)).await;
    assert_eq!(client.refused(part(doc! { "find": "c", "filter": { "$fly": 1 } }, 1, 2, false)).await.0, 2);
    assert_eq!(count(&mut client).await, 1);
}

fn sleep(seconds: u32) -> Document {
    doc! { "ropewalkSql": format!("SELECT pg_sleep({seconds})") }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn command_that_awaits_its_turn_in_a_transaction_blocks_no_thread() {
    let server = Server::new();
    let (mut ann, mut bob, mut carl) = (server.connect(), server.connect(), server.connect());
    ann.ok(part(insert(1), 1, 1, true)).await;
    let begun = Instant::now();
    let slow = tokio::spawn(async move { ann.ok(part(sleep(3), 1, 1, false)).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let next = tokio::spawn(async move { bob.ok(part(insert(2), 1, 1, false)).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    carl.ok(doc! { "ping": 1 }).await;
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    slow.await.unwrap();
    next.await.unwrap();
    carl.ok(end("commitTransaction", 1, 1)).await;
    assert_eq!(count(&mut carl).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_a_transaction_may_overtake_the_one_that_begins_it() {
    let server = Server::new();
    let mut first = server.connect();
    first.ok(doc! { "ping": 1 }).await;
    let early: Vec<_> = (2..10)
        .map(|number| {
            let mut client = server.connect();
            tokio::spawn(async move { client.ok(part(insert(number), 1, 1, false)).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(20)).await;
    first.ok(part(insert(1), 1, 1, true)).await;
    for one in early {
        one.await.unwrap();
    }
    first.ok(end("commitTransaction", 1, 1)).await;
    assert_eq!(count(&mut first).await, 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn abort_ends_a_transaction_with_a_running_command() {
    let server = Server::new();
    let (mut ann, mut bob) = (server.connect(), server.connect());
    ann.ok(part(insert(1), 1, 1, true)).await;
    let begun = Instant::now();
    let slow = tokio::spawn(async move { ann.refused(part(sleep(3), 1, 1, false)).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    bob.ok(end("abortTransaction", 1, 1)).await;
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(slow.await.unwrap(), (251, vec!["TransientTransactionError".to_owned()]));
    assert_eq!(bob.refused(end("commitTransaction", 1, 1)).await.0, 251);
    assert_eq!(count(&mut bob).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn transaction_numbers_must_increase() {
    let mut client = Server::new().connect();
    client.ok(part(insert(1), 1, 5, true)).await;
    assert_eq!(client.refused(part(insert(2), 1, 4, true)).await.0, 225);
    assert_eq!(client.refused(part(insert(2), 1, 4, false)).await.0, 225);
    assert_eq!(client.refused(part(insert(2), 1, 5, true)).await.0, 117);
    assert_eq!(client.refused(part(insert(2), 1, 6, false)).await.0, 251);
    assert_eq!(client.refused(part(insert(2), 9, 1, false)).await.0, 251);
    // A higher number ends the previous transaction.
    client.ok(part(insert(7), 1, 7, true)).await;
    client.ok(end("commitTransaction", 1, 7)).await;
    assert_eq!(client.find("c", doc! {}).await, [doc! { "_id": 7, "n": 0 }]);
    // Sessions end with their transactions.
    client.ok(part(insert(8), 1, 8, true)).await;
    client.ok(doc! { "endSessions": [lsid(1)] }).await;
    assert_eq!(client.refused(end("commitTransaction", 1, 8)).await.0, 251);
}

#[tokio::test(flavor = "multi_thread")]
async fn retried_write_returns_the_stored_result() {
    let mut client = Server::new().connect();
    client.ok(insert(0)).await;
    let retry = |number: i64, mut command: Document| {
        command.extend(doc! { "lsid": lsid(3), "txnNumber": number });
        command
    };
    let change = doc! { "update": "c", "updates": [{ "q": { "_id": 0 }, "u": { "$inc": { "n": 1 } } }] };
    let first = client.ok(retry(1, change.clone())).await;
    let again = client.ok(retry(1, change)).await;
    assert_eq!(first.get_i32("nModified").unwrap(), again.get_i32("nModified").unwrap());
    let modify =
        doc! { "findAndModify": "c", "query": { "_id": 0 }, "update": { "$inc": { "n": 1 } }, "new": true };
    let first = client.ok(retry(2, modify.clone())).await;
    let again = client.ok(retry(2, modify)).await;
    assert_eq!(first.get_document("value").unwrap(), again.get_document("value").unwrap());
    // Failures are reported again, too.
    let twice = doc! { "insert": "c", "documents": [{ "_id": 5 }, { "_id": 0 }] };
    let first = client.ok(retry(3, twice.clone())).await;
    let again = client.ok(retry(3, twice)).await;
    assert_eq!(first.get_array("writeErrors").unwrap(), again.get_array("writeErrors").unwrap());
    assert_eq!((again.get_i32("n").unwrap(), count(&mut client).await), (1, 2));
    assert_eq!(client.refused(retry(1, insert(9))).await.0, 225);
    assert_eq!(client.find("c", doc! { "_id": 0 }).await[0].get_i32("n").unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn retried_commit_is_recognized_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path()).unwrap();
    let server = Server::over(db.clone());
    let mut client = server.connect();
    client.ok(part(insert(1), 1, 1, true)).await;
    client.ok(end("commitTransaction", 1, 1)).await;
    client.ok(part(insert(2), 1, 2, true)).await;
    let mut write = insert(3);
    write.extend(doc! { "lsid": lsid(2), "txnNumber": 1_i64 });
    client.ok(write.clone()).await;
    drop((client, server));
    db.close().unwrap();

    // The server's side of the connection ends soon after its client, and releases the directory then.
    let db = loop {
        match Database::open(dir.path()) {
            Err(Error::Engine(EngineError::Locked { .. })) => {
                tokio::time::sleep(Duration::from_millis(5)).await
            }
            opened => break opened.unwrap(),
        }
    };
    let server = Server::over(db);
    let mut client = server.connect();
    client.ok(end("commitTransaction", 1, 1)).await;
    assert_eq!(client.refused(end("commitTransaction", 1, 2)).await.0, 251);
    assert_eq!(client.ok(write).await.get_i32("n").unwrap(), 1);
    assert_eq!(count(&mut client).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn cursor_belongs_to_its_session_and_transaction() {
    let mut client = Server::new().connect();
    let all: Vec<_> = (0..10).map(|n| doc! { "_id": n }).collect();
    client.ok(doc! { "insert": "c", "documents": all }).await;
    let answer = client.ok(part(doc! { "find": "c", "batchSize": 3 }, 1, 1, true)).await;
    let more = doc! { "getMore": cursor_id(&answer), "collection": "c" };
    assert_eq!(client.refused(more.clone()).await.0, 50738);
    let mut outside = more.clone();
    outside.insert("lsid", lsid(1));
    assert_eq!(client.refused(outside).await.0, 50740);
    let rest = client.ok(part(more, 1, 1, false)).await;
    assert_eq!(batch(&rest, "nextBatch").len(), 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_started_refreshed_and_ended() {
    let mut client = Server::new().connect();
    let made = client.ok(doc! { "startSession": 1 }).await;
    let id = made.get_document("id").unwrap().clone();
    client.ok(doc! { "ping": 1, "lsid": id.clone() }).await;
    client.ok(doc! { "refreshSessions": [id.clone()] }).await;
    let all = doc! { "insert": "c", "documents": (0..10).map(|n| doc! { "_id": n }).collect::<Vec<_>>() };
    client.ok(all).await;
    let answer = client.ok(doc! { "find": "c", "batchSize": 2, "lsid": id.clone() }).await;
    client.ok(doc! { "endSessions": [id.clone()] }).await;
    let more = doc! { "getMore": cursor_id(&answer), "collection": "c", "lsid": id };
    assert_eq!(client.refused(more).await.0, 43);
    client.ok(doc! { "killAllSessions": [], "$db": "admin" }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_commits_of_one_transaction_commit_once() {
    let server = Server::new();
    let mut first = server.connect();
    for number in 1..=50 {
        first.ok(part(insert(number as i32), 1, number, true)).await;
        let mut others = Vec::new();
        for _ in 0..4 {
            let mut client = server.connect();
            others.push(tokio::spawn(async move { client.ok(end("commitTransaction", 1, number)).await }));
        }
        for other in others {
            other.await.unwrap();
        }
    }
    assert_eq!(count(&mut first).await, 50);
}

/// An insert of one document of so many MiB.
fn large(id: i32, mebibytes: usize) -> Document {
    doc! { "insert": "c", "documents": [{ "_id": id, "text": "x".repeat(mebibytes << 20) }] }
}

#[tokio::test(flavor = "multi_thread")]
async fn h9_statement_beyond_the_size_limit_ends_its_transaction() {
    let mut client = Server::new().connect();
    client.ok(doc! { "create": "c" }).await;
    for id in 0..6 {
        client.ok(part(large(id, 10), 1, 1, id == 0)).await;
    }
    assert_eq!(client.refused(part(large(6, 10), 1, 1, false)).await.0, 257);
    assert_eq!(client.refused(end("commitTransaction", 1, 1)).await.0, 251);
    assert_eq!(count(&mut client).await, 0);
    // A document that is written many times counts once: only its last state is committed.
    client.ok(part(large(0, 10), 1, 2, true)).await;
    for n in 0..10 {
        let update = doc! { "update": "c", "updates": [{ "q": { "_id": 0 }, "u": { "$set": { "n": n } } }] };
        client.ok(part(update, 1, 2, false)).await;
    }
    client.ok(end("commitTransaction", 1, 2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h9_open_transactions_share_one_memory_limit() {
    let mut client = Server::new().connect();
    client.ok(doc! { "create": "c" }).await;
    let (mut session, mut refused) = (0, (0, Vec::new()));
    while refused.0 == 0 && session < 10 {
        session += 1;
        for n in 0..4 {
            let answer = client.run(part(large(i32::from(session) * 10 + n, 15), session, 1, n == 0)).await;
            if let Ok(code) = answer.get_i32("code") {
                let labels = answer.get_array("errorLabels").unwrap();
                refused = (code, labels.iter().map(|label| label.as_str().unwrap().to_owned()).collect());
                break;
            }
        }
    }
    assert_eq!((refused.0, session), (365, 5), "256 MiB hold four transactions of 60 MiB and a document");
    assert_eq!(refused.1, ["TransientTransactionError"]);
    // The memory of the rejected transaction is free, and an abort frees more.
    client.ok(part(insert(1), 6, 1, true)).await;
    client.ok(end("abortTransaction", 1, 1)).await;
    for n in 0..4 {
        client.ok(part(large(n, 15), 7, 1, n == 0)).await;
    }
    client.ok(end("abortTransaction", 7, 1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn find_whose_reply_fails_ends_the_transaction_that_it_began() {
    let server = Server::new();
    let mut client = server.connect();
    client.ok(insert(1)).await;
    client.ok(insert(2)).await;
    let events = vec![doc! { "type": "Sold" }, doc! { "type": "Sold" }];
    client.ok(doc! { "insert": "events.orders", "documents": events, "$db": "ropewalk" }).await;
    // The field is read when a cursor is opened for the second document.
    for (number, find) in [
        (1, doc! { "find": "c", "batchSize": 1, "noCursorTimeout": "yes" }),
        (2, doc! { "find": "events.orders", "batchSize": 1, "noCursorTimeout": "yes", "$db": "ropewalk" }),
    ] {
        assert_eq!(client.refused(part(find.clone(), 1, number, true)).await.0, 14, "{find}");
        assert_eq!(client.refused(part(insert(3), 1, number, false)).await.0, 251, "{find}");
        assert_eq!(client.refused(end("commitTransaction", 1, number)).await.0, 251, "{find}");
    }
    assert_eq!(count(&mut client).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn second_start_of_a_transaction_is_rejected_and_does_not_end_it() {
    let server = Server::new();
    let mut client = server.connect();
    client.ok(insert(1)).await;
    client.ok(part(insert(2), 1, 1, true)).await;
    assert_eq!(client.refused(part(doc! { "find": "c" }, 1, 1, true)).await.0, 117);
    client.ok(end("commitTransaction", 1, 1)).await;
    assert_eq!(count(&mut client).await, 2);
}
