//! Commands that no driver would send: each gets ok or an error that is not an internal one, and the
//! connection and the stored data are unaffected.

use bson::{Bson, Document, doc};

use crate::client::{Client, MSG, Server, framed, lsid, message, sequence};
use ropewalk_mongo::Compressor;
use tokio::io::AsyncWriteExt as _;

/// Commands with their fields, each with a valid value.
fn commands() -> Vec<Document> {
    vec![
        doc! { "find": "c", "filter": {}, "sort": { "a": 1 }, "projection": { "a": 1 }, "skip": 1, "limit": 1, "batchSize": 1, "hint": "_id_", "let": {}, "singleBatch": true, "maxTimeMS": 1000 },
        doc! { "aggregate": "c", "pipeline": [{ "$match": {} }], "cursor": { "batchSize": 1 }, "let": {}, "explain": false, "hint": "_id_" },
        doc! { "count": "c", "query": {}, "limit": 1, "skip": 1 },
        doc! { "distinct": "c", "key": "a", "query": {} },
        doc! { "insert": "c", "documents": [{ "a": 1 }], "ordered": true, "writeConcern": { "w": 1 } },
        doc! { "update": "c", "updates": [{ "q": {}, "u": { "$set": { "a": 1 } }, "arrayFilters": [], "upsert": false }], "let": {} },
        doc! { "delete": "c", "deletes": [{ "q": { "_id": -1 }, "limit": 1 }] },
        doc! { "findAndModify": "c", "query": { "_id": -1 }, "sort": {}, "update": { "$set": { "a": 1 } }, "new": true, "upsert": false, "fields": {}, "arrayFilters": [] },
        doc! { "ropewalkAppend": "s", "events": [{ "type": "t", "tags": ["a"], "data": 1, "metadata": {} }], "conditions": [{ "failIfEventsMatch": { "items": [{ "types": ["u"], "tags": [] }] }, "after": 1 }] },
        doc! { "ropewalkSql": "SELECT $1::text, $2::jsonb, $3::timestamptz, $4::int[]", "parameters": ["a", { "b": 1 }, bson::DateTime::from_millis(0), [1]] },
        doc! { "ropewalkSamples": "default", "series": [{ "labels": { "a": "b" }, "samples": [[1, 1.0]] }] },
        doc! { "create": "made", "validator": {}, "validationLevel": "strict", "validationAction": "error" },
        doc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a_1", "unique": false, "sparse": false, "expireAfterSeconds": 1 }] },
        doc! { "dropIndexes": "c", "index": "none" },
        doc! { "collMod": "c", "index": { "name": "none", "hidden": true }, "validator": {} },
        doc! { "renameCollection": "app.none", "to": "app.other", "dropTarget": true },
        doc! { "listCollections": 1, "filter": {}, "nameOnly": true, "cursor": {} },
        doc! { "listDatabases": 1, "filter": {}, "nameOnly": true },
        doc! { "listIndexes": "c", "cursor": {} },
        doc! { "getMore": 7_i64, "collection": "c", "batchSize": 1 },
        doc! { "killCursors": "c", "cursors": [7_i64] },
        doc! { "explain": { "find": "c", "filter": {} }, "verbosity": "queryPlanner" },
        doc! { "validate": "c", "full": true },
        doc! { "collStats": "c", "scale": 1 },
        doc! { "usersInfo": 1 },
        doc! { "hello": 1, "compression": ["zlib"], "client": { "application": { "name": "x" } }, "saslSupportedMechs": "a.b" },
        doc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": "n,,n=a,r=b", "options": {} },
        doc! { "saslContinue": 1, "conversationId": 1, "payload": "" },
        doc! { "endSessions": [lsid(9)] },
        doc! { "commitTransaction": 1, "lsid": lsid(9), "txnNumber": 1_i64, "autocommit": false },
        doc! { "getParameter": 1, "quiet": 1 },
        doc! { "currentOp": 1, "$all": true, "$ownOps": true, "$db": "admin" },
        doc! { "killOp": 1, "op": 1, "$db": "admin" },
        doc! { "aggregate": 1, "pipeline": [{ "$currentOp": {} }], "cursor": {}, "$db": "admin" },
    ]
}

/// Values of wrong types, and extremes of valid ones.
fn values() -> Vec<Bson> {
    let mut deep = Bson::Int32(1);
    for _ in 0..90 {
        deep = Bson::Document(doc! { "$and": [deep] });
    }
    vec![
        Bson::Null,
        Bson::Boolean(true),
        Bson::Int32(-1),
        Bson::Int64(i64::MAX),
        Bson::Double(f64::NAN),
        Bson::Double(-1e300),
        Bson::String(String::new()),
        Bson::String("$x".repeat(300)),
        Bson::Array(vec![Bson::Null, Bson::Array(vec![])]),
        Bson::Document(doc! { "$": 1, "": { "$expr": "$$none" } }),
        Bson::RegularExpression(bson::Regex {
            pattern: "(".try_into().unwrap(),
            options: "q".try_into().unwrap(),
        }),
        Bson::MinKey,
        deep,
    ]
}

async fn is_answered(client: &mut Client, command: &Document) {
    let answer = client.run(command.clone()).await;
    if answer.get_f64("ok").unwrap() == 0.0 {
        assert_ne!(answer.get_i32("code").unwrap(), 1, "{command}\n{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_of_any_type_never_cause_internal_errors() {
    let mut client = Server::new().connect();
    client.ok(doc! { "insert": "c", "documents": [{ "_id": 1 }] }).await;
    for command in commands() {
        is_answered(&mut client, &command).await;
        for name in command.keys().cloned().collect::<Vec<_>>() {
            for value in values() {
                let mut changed = command.clone();
                changed.insert(name.clone(), value);
                is_answered(&mut client, &changed).await;
            }
            let mut twice = command.clone();
            twice.remove(&name);
            if !twice.is_empty() {
                is_answered(&mut client, &twice).await;
            }
        }
    }
    assert!(client.find("c", doc! { "_id": 1 }).await.len() <= 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_out_of_bounds_are_refused_with_mongodbs_codes() {
    let mut client = Server::new().connect();
    client.ok(doc! { "insert": "c", "documents": [{ "_id": 1, "a": i64::MIN, "b": i64::MAX }] }).await;
    let dates = |expression: Document| {
        let project = doc! { "$project": { "x": expression } };
        doc! { "aggregate": "c", "pipeline": [project], "cursor": {} }
    };
    let (first, last) = (doc! { "$toDate": "$a" }, doc! { "$toDate": "$b" });
    for (command, code) in [
        (doc! { "find": "c", "skip": -1 }, 51_024),
        (doc! { "find": "c", "limit": i64::MIN }, 51_024),
        (doc! { "find": "c", "batchSize": -1 }, 51_024),
        (doc! { "aggregate": "c", "pipeline": [], "cursor": { "batchSize": -1 } }, 51_024),
        (doc! { "find": "c", "maxTimeMS": -1 }, 2),
        (doc! { "find": "c", "hint": "none" }, 2),
        (
            dates(doc! { "$dateDiff": { "startDate": &first, "endDate": &last, "unit": "millisecond" } }),
            5_166_308,
        ),
        (
            dates(doc! { "$dateDiff": { "startDate": &last, "endDate": &first, "unit": "millisecond" } }),
            5_166_308,
        ),
        (dates(doc! { "$dateAdd": { "startDate": &first, "unit": "month", "amount": i64::MIN } }), 5_166_406),
        (
            dates(doc! { "$dateAdd": { "startDate": &last, "unit": "quarter", "amount": i64::MIN } }),
            5_166_406,
        ),
    ] {
        assert_eq!(client.refused(command.clone()).await.0, code, "{command}");
    }
    let found = doc! { "find": "c", "skip": i64::MAX, "limit": i64::MAX, "sort": { "a": 1 } };
    assert!(crate::client::batch(&client.ok(found).await, "firstBatch").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_that_no_commit_can_hold_changes_nothing() {
    let mut client = Server::new().connect();
    let text = "x".repeat(15 << 20);
    for n in 0..5 {
        client.ok(doc! { "insert": "c", "documents": [{ "_id": n, "text": &text }] }).await;
    }
    let all = doc! { "q": {}, "u": { "$set": { "n": 1 } }, "multi": true };
    assert_eq!(client.refused(doc! { "update": "c", "updates": [all] }).await.0, 257);
    let changed = client.ok(doc! { "count": "c", "query": { "n": 1 } }).await;
    assert_eq!(changed.get_i32("n").unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_document_sequences_are_rejected() {
    let mut client = Server::new().connect();
    let one = |name: &str, id: i32| sequence(name, &[doc! { "_id": id }]);
    for (command, sequences, code) in [
        ("insert", [one("documents", 1), one("documents", 2)], 40_431),
        ("insert", [one("documents", 1), one("others", 2)], 40_415),
        ("find", [one("filter", 1), Vec::new()], 40_415),
    ] {
        let mut payload = message(0, &doc! { command: "c", "$db": "app" });
        payload.extend(sequences.concat());
        client.send(MSG, &payload).await;
        let answer = client.answer().await.unwrap().document();
        assert_eq!(answer.get_i32("code").unwrap(), code, "{command}: {answer}");
    }
    assert!(client.find("c", doc! {}).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn nesting_depth_is_limited() {
    let mut client = Server::new().connect();
    for (open, close) in
        [("$and", true), ("$nor", true), ("x", false), ("$elemMatch", false), ("$not", false)]
    {
        for depth in [99, 150, 5000] {
            // Bytes, since the crate that makes documents would recurse itself.
            let mut inner = vec![5, 0, 0, 0, 0];
            for _ in 0..depth {
                let mut around = Vec::new();
                if close {
                    let mut list = Vec::new();
                    list.extend((inner.len() as i32 + 8).to_le_bytes());
                    list.extend(b"\x030\0");
                    list.extend(&inner);
                    list.push(0);
                    inner = list;
                }
                around.extend((inner.len() as i32 + open.len() as i32 + 7).to_le_bytes());
                around.push(if close { 4 } else { 3 });
                around.extend(open.as_bytes());
                around.push(0);
                around.extend(&inner);
                around.push(0);
                inner = around;
            }
            let mut body = b"\x02find\0\x02\0\0\0c\0\x02$db\0\x04\0\0\0app\0\x03filter\0".to_vec();
            body.extend(&inner);
            body.push(0);
            let mut payload = vec![0; 5];
            payload.extend((body.len() as i32 + 4).to_le_bytes());
            payload.extend(body);
            client.send(MSG, &payload).await;
            let answer = client.answer().await.unwrap().document();
            if depth > 1000 {
                assert_eq!(answer.get_f64("ok").unwrap(), 0.0, "{open} {depth}");
            }
        }
    }
    client.ok(doc! { "ping": 1 }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_messages_over_a_connection_never_stop_the_server() {
    let server = Server::new();
    let mut insert = message(0, &doc! { "insert": "c", "$db": "app" });
    insert.extend(sequence("documents", &[doc! { "_id": 1 }, doc! { "a": [1, { "b": "c" }] }]));
    let mut compressed = MSG.to_le_bytes().to_vec();
    compressed.extend((insert.len() as i32).to_le_bytes());
    compressed.push(Compressor::Zstd.number());
    compressed.extend(Compressor::Zstd.compress(&insert).unwrap());
    // A separate seeded generator, so that a failure can be reproduced.
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for (opcode, payload) in [(MSG, insert), (2012, compressed)] {
        for _ in 0..300 {
            let mut bytes = framed(1, opcode, &payload);
            for _ in 0..=random(3) {
                let at = random(bytes.len());
                bytes[at] = random(256) as u8;
            }
            let mut client = server.connect();
            // The server may disconnect before everything is written.
            let _ = client.stream.write_all(&bytes).await;
            let _ = client.stream.shutdown().await;
            while client.answer().await.is_some() {}
        }
    }
    server.connect().ok(doc! { "ping": 1 }).await;
}
