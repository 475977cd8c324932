//! Documents, collections and indexes through commands.

use std::time::Duration;

use bson::{Document, doc};
use tokio::io::AsyncWriteExt as _;

use crate::client::{Client, MSG, Server, batch, cursor_id, framed, lsid, message, sequence};

async fn with(documents: i32) -> Client {
    let mut client = Server::new().connect();
    let all: Vec<_> = (0..documents).map(|n| doc! { "_id": n, "n": n, "tens": n / 10 }).collect();
    client.ok(doc! { "insert": "c", "documents": all }).await;
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn inserts_come_in_the_body_or_in_a_document_sequence() {
    let mut client = with(1).await;
    let mut payload = message(0, &doc! { "insert": "c", "$db": "app" });
    payload.extend(sequence("documents", &[doc! { "_id": "a" }, doc! { "x": 1 }]));
    client.send(MSG, &payload).await;
    let answer = client.answer().await.unwrap().document();
    assert_eq!(answer.get_i32("n").unwrap(), 2);
    let found = client.find("c", doc! {}).await;
    assert_eq!(found.len(), 3);
    assert!(found.iter().any(|document| document.get_object_id("_id").is_ok()));
}

#[tokio::test(flavor = "multi_thread")]
async fn unacknowledged_write_gets_no_reply() {
    let mut client = with(1).await;
    let insert =
        doc! { "insert": "c", "documents": [{ "_id": 5 }], "writeConcern": { "w": 0 }, "$db": "app" };
    client.send(MSG, &message(2, &insert)).await;
    // The next reply is to the next request.
    client.ok(doc! { "ping": 1 }).await;
    assert_eq!(client.find("c", doc! { "_id": 5 }).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn unsatisfiable_write_concern_is_reported_with_the_result() {
    let mut client = with(1).await;
    for (n, w, code) in [(1, bson::Bson::from(3), 100), (2, bson::Bson::from("rome"), 79)] {
        let insert = doc! { "insert": "c", "documents": [{ "_id": n }], "writeConcern": { "w": w } };
        let answer = client.ok(insert).await;
        assert_eq!(answer.get_document("writeConcernError").unwrap().get_i32("code").unwrap(), code);
        assert_eq!(client.find("c", doc! { "_id": n }).await.len(), 1);
    }
    let answer =
        client.ok(doc! { "insert": "c", "documents": [{}], "writeConcern": { "w": "majority" } }).await;
    assert!(answer.get("writeConcernError").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicate_keys_are_reported_one_by_one() {
    let mut client = with(3).await;
    let documents = [doc! { "_id": 7 }, doc! { "_id": 1 }, doc! { "_id": 8 }, doc! { "_id": 2 }];
    let answer = client.ok(doc! { "insert": "c", "documents": documents.to_vec(), "ordered": false }).await;
    let errors = answer.get_array("writeErrors").unwrap();
    let error = |at: usize| errors[at].as_document().unwrap();
    assert_eq!((answer.get_i32("n").unwrap(), errors.len()), (2, 2));
    assert_eq!(error(0).get_i32("index").unwrap(), 1);
    assert_eq!(error(0).get_i32("code").unwrap(), 11000);
    assert_eq!(error(0).get_document("keyValue").unwrap(), &doc! { "_id": 1 });
    assert!(error(0).get_str("errmsg").unwrap().contains("app.c index: _id_"));
    let ordered =
        client.ok(doc! { "insert": "c", "documents": [{ "_id": 20 }, { "_id": 1 }, { "_id": 21 }] }).await;
    assert_eq!(ordered.get_i32("n").unwrap(), 1);
    assert_eq!(client.find("c", doc! { "_id": { "$gte": 20 } }).await, [doc! { "_id": 20 }]);
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_and_deletes_report_counts() {
    let mut client = with(30).await;
    let answer = client
        .ok(doc! { "update": "c", "updates": [
            { "q": { "tens": 1 }, "u": { "$inc": { "n": 100 } }, "multi": true },
            { "q": { "_id": 99 }, "u": { "$set": { "x": 1 } }, "upsert": true },
            { "q": { "_id": 3 }, "u": { "_id": 3, "replaced": true } },
        ] })
        .await;
    assert_eq!((answer.get_i32("n").unwrap(), answer.get_i32("nModified").unwrap()), (12, 11));
    assert_eq!(
        answer.get_array("upserted").unwrap()[0].as_document().unwrap(),
        &doc! { "index": 1, "_id": 99 }
    );
    assert_eq!(client.find("c", doc! { "_id": 3 }).await, [doc! { "_id": 3, "replaced": true }]);
    let answer = client
        .ok(doc! { "delete": "c", "deletes": [
            { "q": { "n": { "$gte": 100 } }, "limit": 1 }, { "q": { "tens": 2 }, "limit": 0 },
        ] })
        .await;
    assert_eq!(answer.get_i32("n").unwrap(), 11);
    // An invalid statement is reported as a failed one.
    let answer = client.ok(doc! { "update": "c", "updates": [
        { "q": { "_id": 0 }, "u": { "$fly": { "n": 1 } } }, { "q": { "_id": 0 }, "u": { "$set": { "n": 1 } } },
    ], "ordered": false }).await;
    assert_eq!(answer.get_i32("n").unwrap(), 1);
    assert_eq!(
        answer.get_array("writeErrors").unwrap()[0].as_document().unwrap().get_i32("code").unwrap(),
        9
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn find_and_modify_changes_and_returns_document() {
    let mut client = with(10).await;
    let change = doc! { "findAndModify": "c", "query": { "n": { "$gt": 4 } }, "sort": { "n": -1 },
    "update": { "$set": { "seen": true } }, "new": true, "fields": { "seen": 1 } };
    let answer = client.ok(change).await;
    assert_eq!(answer.get_document("value").unwrap(), &doc! { "_id": 9, "seen": true });
    assert_eq!(answer.get_document("lastErrorObject").unwrap(), &doc! { "n": 1, "updatedExisting": true });
    let answer = client.ok(doc! { "findAndModify": "c", "query": { "_id": 0 }, "remove": true }).await;
    assert_eq!(answer.get_document("value").unwrap().get_i32("_id").unwrap(), 0);
    let answer = client.ok(doc! { "findAndModify": "c", "query": { "_id": 0 }, "remove": true }).await;
    assert!(answer.get("value").unwrap().as_null().is_some());
    assert_eq!(client.refused(doc! { "findAndModify": "c", "query": {} }).await.0, 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn cursor_returns_batches_on_any_connection_and_ends() {
    let server = Server::new();
    let mut client = server.connect();
    let all: Vec<_> = (0..250).map(|n| doc! { "_id": n }).collect();
    client.ok(doc! { "insert": "c", "documents": all }).await;
    let answer = client.ok(doc! { "find": "c", "sort": { "_id": 1 } }).await;
    let (mut seen, id) = (batch(&answer, "firstBatch").len(), cursor_id(&answer));
    assert!(seen == 101 && id > 0);
    // Later writes are not seen.
    client.ok(doc! { "insert": "c", "documents": [{ "_id": 1000 }] }).await;
    let mut other = server.connect();
    assert_eq!(other.refused(doc! { "getMore": id, "collection": "d" }).await.0, 13);
    let answer = other.ok(doc! { "getMore": id, "collection": "c", "batchSize": 100 }).await;
    seen += batch(&answer, "nextBatch").len();
    let answer = client.ok(doc! { "getMore": id, "collection": "c" }).await;
    assert_eq!((seen + batch(&answer, "nextBatch").len(), cursor_id(&answer)), (250, 0));
    assert_eq!(client.refused(doc! { "getMore": id, "collection": "c" }).await.0, 43);

    let answer = client.ok(doc! { "find": "c", "batchSize": 5 }).await;
    let id = cursor_id(&answer);
    let killed = client.ok(doc! { "killCursors": "c", "cursors": [id, 12_i64] }).await;
    assert_eq!(killed.get_array("cursorsKilled").unwrap().len(), 1);
    assert_eq!(killed.get_array("cursorsNotFound").unwrap().len(), 1);
    assert_eq!(client.refused(doc! { "getMore": id, "collection": "c" }).await.0, 43);
    for (find, open) in [
        (doc! { "find": "c", "batchSize": 251 }, false),
        (doc! { "find": "c", "batchSize": 250 }, true),
        (doc! { "find": "c", "limit": 3, "batchSize": 3 }, false),
        (doc! { "find": "c", "batchSize": 3, "singleBatch": true }, false),
        (doc! { "find": "c", "batchSize": 0 }, true),
    ] {
        assert_eq!(cursor_id(&client.ok(find.clone()).await) != 0, open, "{find}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_stay_below_the_size_of_a_message() {
    let mut client = Server::new().connect();
    for n in 0..5 {
        client.ok(doc! { "insert": "big", "documents": [{ "_id": n, "x": "x".repeat(7 << 20) }] }).await;
    }
    let answer = client.ok(doc! { "find": "big" }).await;
    let mut seen = batch(&answer, "firstBatch").len();
    let mut id = cursor_id(&answer);
    assert_eq!(seen, 2);
    while id != 0 {
        let answer = client.ok(doc! { "getMore": id, "collection": "big" }).await;
        (seen, id) = (seen + batch(&answer, "nextBatch").len(), cursor_id(&answer));
    }
    assert_eq!(seen, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn count_distinct_and_aggregate_return_results() {
    let mut client = with(45).await;
    let n = |answer: Document| answer.get_i32("n").unwrap();
    assert_eq!(n(client.ok(doc! { "count": "c" }).await), 45);
    assert_eq!(n(client.ok(doc! { "count": "c", "query": { "tens": 1 }, "skip": 3, "limit": 5 }).await), 5);
    assert_eq!(n(client.ok(doc! { "count": "nothing" }).await), 0);
    let values = client.ok(doc! { "distinct": "c", "key": "tens", "query": { "n": { "$lt": 25 } } }).await;
    assert_eq!(values.get_array("values").unwrap(), &vec![0.into(), 1.into(), 2.into()]);
    let counted = doc! { "aggregate": "c", "cursor": {}, "pipeline": [
        { "$match": { "n": { "$gte": 40 } } }, { "$group": { "_id": 1, "n": { "$sum": 1 } } },
    ] };
    assert_eq!(batch(&client.ok(counted).await, "firstBatch"), [doc! { "_id": 1, "n": 5 }]);
    client.ok(doc! { "insert": "names", "documents": [{ "_id": 4, "name": "four" }] }).await;
    let joined = doc! { "aggregate": "c", "cursor": {}, "pipeline": [
        { "$match": { "_id": 40 } },
        { "$lookup": { "from": "names", "localField": "tens", "foreignField": "_id", "as": "name" } },
    ] };
    let joined = batch(&client.ok(joined).await, "firstBatch");
    assert_eq!(joined[0].get_array("name").unwrap().len(), 1);
    let told = doc! { "aggregate": "c", "cursor": {}, "pipeline": [
        { "$collStats": { "storageStats": { "scale": 1 }, "count": {} } },
        { "$project": { "_id": 0, "ns": 1, "count": 1, "indexes": "$storageStats.nindexes" } },
    ] };
    let told = batch(&client.ok(told).await, "firstBatch");
    assert_eq!(told, [doc! { "ns": "app.c", "count": 45, "indexes": 1 }]);
    let latency =
        doc! { "aggregate": "c", "cursor": {}, "pipeline": [{ "$collStats": { "latencyStats": {} } }] };
    assert_eq!(client.refused(latency).await.0, 238);
    assert_eq!(
        client.refused(doc! { "aggregate": "c", "cursor": {}, "pipeline": [{ "$fly": {} }] }).await.0,
        40324
    );
    assert_eq!(client.refused(doc! { "aggregate": "c", "pipeline": [] }).await.0, 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn collections_are_created_listed_renamed_and_dropped() {
    let mut client = with(1).await;
    client.ok(doc! { "create": "ruled", "validator": { "age": { "$gt": 0 } } }).await;
    let refused = client.ok(doc! { "insert": "ruled", "documents": [{ "age": -1 }] }).await;
    assert_eq!(
        refused.get_array("writeErrors").unwrap()[0].as_document().unwrap().get_i32("code").unwrap(),
        121
    );
    let listed = batch(&client.ok(doc! { "listCollections": 1 }).await, "firstBatch");
    let names: Vec<_> = listed.iter().map(|collection| collection.get_str("name").unwrap()).collect();
    assert_eq!(names, ["c", "ruled"]);
    assert!(listed[1].get_document("options").unwrap().get_document("validator").is_ok());
    assert_eq!(client.refused(doc! { "create": "ruled" }).await.0, 48);
    let rename = |to: &str, drop: bool| doc! { "renameCollection": "app.c", "to": to, "dropTarget": drop, "$db": "admin" };
    assert_eq!(client.refused(rename("app.ruled", false)).await.0, 48);
    client.ok(rename("app.ruled", true)).await;
    let databases = client.ok(doc! { "listDatabases": 1, "$db": "admin" }).await;
    assert_eq!(databases.get_array("databases").unwrap().len(), 1);
    let stats = client.ok(doc! { "collStats": "ruled" }).await;
    assert_eq!(stats.get_i32("count").unwrap(), 1);
    client.ok(doc! { "dbStats": 1 }).await;
    client.ok(doc! { "drop": "ruled" }).await;
    client.ok(doc! { "drop": "ruled" }).await;
    client.ok(doc! { "insert": "c", "documents": [{}] }).await;
    let dropped = client.ok(doc! { "dropDatabase": 1 }).await;
    assert_eq!(dropped.get_str("dropped").unwrap(), "app");
    assert!(batch(&client.ok(doc! { "listCollections": 1 }).await, "firstBatch").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn many_collections_are_listed_completely_and_large_definitions_within_memory() {
    let mut client = with(1).await;
    let names: Vec<String> = (0..250).map(|number| format!("c{number:03}")).collect();
    for name in &names {
        client.ok(doc! { "create": name }).await;
    }
    client.ok(doc! { "drop": "c" }).await;
    let mut answer =
        client.ok(doc! { "listCollections": 1, "nameOnly": true, "cursor": { "batchSize": 70 } }).await;
    let mut listed = batch(&answer, "firstBatch");
    while cursor_id(&answer) != 0 {
        let more =
            doc! { "getMore": cursor_id(&answer), "collection": "$cmd.listCollections", "batchSize": 70 };
        answer = client.ok(more).await;
        listed.extend(batch(&answer, "nextBatch"));
    }
    let listed: Vec<_> = listed.iter().map(|one| one.get_str("name").unwrap()).collect();
    assert_eq!(listed, names);

    let long = "x".repeat(10 << 20);
    for number in 0..7 {
        client.ok(doc! { "create": format!("large{number}"), "validator": { "a": &long } }).await;
    }
    assert_eq!(client.refused(doc! { "listCollections": 1 }).await.0, 10334);
    let filter = doc! { "name": { "$lt": "d" } };
    let few = client.ok(doc! { "listCollections": 1, "filter": filter }).await;
    assert_eq!(batch(&few, "firstBatch").len(), 250);
}

#[tokio::test(flavor = "multi_thread")]
async fn indexes_are_created_used_changed_and_dropped() {
    let mut client = with(20).await;
    let made = client.ok(doc! { "createIndexes": "c", "indexes": [
        { "key": { "tens": 1, "n": -1 }, "name": "both" }, { "key": { "n": 1 }, "name": "n", "unique": true },
    ] }).await;
    assert_eq!((made.get_i32("numIndexesBefore").unwrap(), made.get_i32("numIndexesAfter").unwrap()), (1, 3));
    let again = client
        .ok(doc! { "createIndexes": "c", "indexes": [{ "key": { "n": 1 }, "name": "n", "unique": true }] })
        .await;
    assert!(again.get_str("note").is_ok());
    let listed = batch(&client.ok(doc! { "listIndexes": "c" }).await, "firstBatch");
    assert_eq!(listed[1].get_document("key").unwrap(), &doc! { "tens": 1, "n": -1 });
    let explained = client
        .ok(doc! { "explain": { "find": "c", "filter": { "n": 3 } }, "verbosity": "executionStats" })
        .await;
    let stats = explained.get_document("executionStats").unwrap();
    assert_eq!(stats.get_i64("totalDocsExamined").unwrap(), 1);
    let twice = client.ok(doc! { "insert": "c", "documents": [{ "_id": 100, "n": 3 }] }).await;
    assert!(twice.get_array("writeErrors").is_ok());
    let changed = client.ok(doc! { "collMod": "c", "index": { "name": "both", "hidden": true } }).await;
    assert!(!changed.get_bool("hidden_old").unwrap() && changed.get_bool("hidden_new").unwrap());
    assert_eq!(client.refused(doc! { "dropIndexes": "c", "index": "nothing" }).await.0, 27);
    client.ok(doc! { "dropIndexes": "c", "index": { "n": 1 } }).await;
    let dropped = client.ok(doc! { "dropIndexes": "c", "index": "*" }).await;
    assert_eq!(dropped.get_i32("nIndexesWas").unwrap(), 2);
    for (key, code) in [(doc! { "a": "text" }, 238), (doc! { "a": 0 }, 67), (doc! { "a.": 1 }, 67)] {
        let bad = doc! { "createIndexes": "c", "indexes": [{ "key": key, "name": "bad" }] };
        assert_eq!(client.refused(bad).await.0, code);
    }
    assert_eq!(client.refused(doc! { "listIndexes": "nothing" }).await.0, 26);
}

#[tokio::test(flavor = "multi_thread")]
async fn collation_of_commands_and_indexes_ignores_case() {
    let mut client = with(1).await;
    let caseless = doc! { "locale": "en_US", "strength": 2 };
    let key = doc! { "name": 1 };
    let plain = doc! { "key": key.clone(), "name": "plain", "unique": true };
    let index = doc! { "key": key, "name": "caseless", "unique": true, "collation": caseless.clone() };
    client.ok(doc! { "createIndexes": "people", "indexes": [plain, index] }).await;
    let listed = batch(&client.ok(doc! { "listIndexes": "people" }).await, "firstBatch");
    let collation = listed[2].get_document("collation").unwrap();
    assert_eq!((collation.get_str("locale").unwrap(), collation.get_i32("strength").unwrap()), ("en_US", 2));
    let people = ["Cid", "ann", "Bob"].map(|name| doc! { "name": name });
    client.ok(doc! { "insert": "people", "documents": people.to_vec() }).await;
    let again = client.ok(doc! { "insert": "people", "documents": [{ "name": "ANN" }] }).await;
    assert!(again.get_array("writeErrors").is_ok());
    let filter = doc! { "name": { "$in": ["ANN", "bob"] } };
    let find = doc! { "find": "people", "filter": filter.clone(), "sort": { "name": -1 }, "collation": caseless.clone() };
    let found = batch(&client.ok(find.clone()).await, "firstBatch");
    let names: Vec<&str> = found.iter().map(|found| found.get_str("name").unwrap()).collect();
    assert_eq!(names, ["Bob", "ann"]);
    let explained = client.ok(doc! { "explain": find }).await;
    assert!(explained.to_string().contains("caseless"), "{explained}");
    let count = doc! { "count": "people", "query": filter, "collation": caseless.clone() };
    assert_eq!(client.ok(count).await.get_i32("n").unwrap(), 2);
    let statement =
        doc! { "q": { "name": "CID" }, "u": { "$set": { "age": 7 } }, "collation": caseless.clone() };
    let updated = client.ok(doc! { "update": "people", "updates": [statement] }).await;
    assert_eq!(updated.get_i32("nModified").unwrap(), 1);
    let modify = doc! { "findAndModify": "people", "query": { "name": "BOB" }, "remove": true, "collation": caseless.clone() };
    let removed = client.ok(modify).await;
    assert_eq!(removed.get_document("value").unwrap().get_str("name").unwrap(), "Bob");
    let statement = doc! { "q": { "name": "Ann" }, "limit": 1, "collation": caseless };
    let deleted = client.ok(doc! { "delete": "people", "deletes": [statement] }).await;
    assert_eq!(deleted.get_i32("n").unwrap(), 1);
    let without =
        batch(&client.ok(doc! { "find": "people", "filter": { "name": "CID" } }).await, "firstBatch");
    assert_eq!(without, Vec::<Document>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn collation_of_aggregate_and_distinct_applies_to_collections_and_views() {
    let mut client = with(1).await;
    let caseless = doc! { "locale": "en", "strength": 2 };
    let people = ["ann", "Bob", "ANN"].map(|name| doc! { "name": name });
    client.ok(doc! { "insert": "people", "documents": people.to_vec() }).await;
    client.ok(doc! { "create": "view", "viewOn": "people", "pipeline": [] }).await;
    for name in ["people", "view"] {
        let stages = [
            doc! { "$match": { "$expr": { "$ne": ["$name", "BOB"] } } },
            doc! { "$group": { "_id": "$name", "n": { "$sum": 1 } } },
        ];
        let command = doc! { "aggregate": name, "pipeline": stages.to_vec(), "cursor": {}, "collation": caseless.clone() };
        let found = batch(&client.ok(command).await, "firstBatch");
        assert_eq!(found, [doc! { "_id": "ann", "n": 2 }]);
        let command = doc! { "distinct": name, "key": "name", "collation": caseless.clone() };
        let values = client.ok(command).await;
        assert_eq!(values.get_array("values").unwrap().len(), 2);
        let command = doc! { "find": name, "filter": { "name": "aNN" }, "sort": { "name": 1 }, "collation": caseless.clone() };
        assert_eq!(batch(&client.ok(command).await, "firstBatch").len(), 2);
        let command = doc! { "count": name, "query": { "name": "aNN" }, "collation": caseless.clone() };
        assert_eq!(client.ok(command).await.get_i32("n").unwrap(), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_and_unsupported_commands_fail_with_mongodbs_codes() {
    let mut client = with(1).await;
    for (command, code) in [
        (doc! { "find": "c", "colour": 1 }, 40415),
        (doc! { "find": 7 }, 14),
        (doc! { "find": "" }, 73),
        (doc! { "find": "c", "filter": { "$fly": 1 } }, 2),
        (doc! { "find": "c", "filter": 3 }, 14),
        (doc! { "find": "c", "skip": -1 }, 51_024),
        (doc! { "find": "c", "tailable": true }, 2),
        (doc! { "find": "c", "awaitData": true }, 9),
        (doc! { "find": "c", "collation": { "locale": "klingon" } }, 2),
        (doc! { "find": "c", "collation": { "locale": "fr", "colour": 1 } }, 40415),
        (doc! { "find": "c", "collation": { "locale": "fr", "backwards": true } }, 115),
        (doc! { "find": "c", "collation": { "locale": "fr", "version": "57.1" } }, 161),
        (
            doc! { "aggregate": "c", "pipeline": [{ "$merge": "x" }], "cursor": {}, "collation": { "locale": "fr" } },
            115,
        ),
        (doc! { "create": "x", "collation": { "locale": "fr" } }, 115),
        (doc! { "find": "c", "readConcern": { "level": "psychic" } }, 2),
        (doc! { "find": "c", "lsid": { "id": 3 } }, 14),
        (doc! { "find": "c", "apiVersion": "2" }, 322),
        (doc! { "insert": "c" }, 40414),
        (doc! { "insert": "c", "documents": [] }, 16),
        (doc! { "insert": "c", "documents": [{}], "writeConcern": { "w": 51 } }, 9),
        (doc! { "insert": "c", "documents": [{}], "txnNumber": 1_i64 }, 72),
        (doc! { "create": "x", "capped": true }, 72),
        (doc! { "create": "x", "size": 100 }, 72),
        (
            doc! { "drop": "c", "lsid": lsid(1), "txnNumber": 1_i64, "startTransaction": true, "autocommit": false },
            263,
        ),
        (doc! { "mapReduce": "c" }, 59),
    ] {
        assert_eq!(client.refused(command.clone()).await.0, code, "{command}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deadline_ends_a_query() {
    let mut client = with(1).await;
    let all: Vec<_> = (0..20_000).map(|n| doc! { "_id": n + 10, "x": n }).collect();
    client.ok(doc! { "insert": "c", "documents": all }).await;
    // A millisecond may be enough for this query; success and timeout are both correct, a hang is not.
    let answer = client.run(doc! { "find": "c", "batchSize": 20_000, "maxTimeMS": 1 }).await;
    assert!(answer.get_f64("ok").unwrap() == 1.0 || answer.get_i32("code").unwrap() == 50);
}

/// A pipeline that would run for days without a result.
fn endless(last: &[Document]) -> Document {
    let mut stages = Vec::new();
    for _ in 0..4 {
        stages.push(doc! { "$project": { "a": { "$range": [0, 1000] } } });
        stages.push(doc! { "$unwind": "$a" });
    }
    stages.push(doc! { "$count": "n" });
    stages.extend_from_slice(last);
    doc! { "aggregate": "c", "pipeline": stages, "cursor": {} }
}

/// The same in a transaction, with and without another collection, and with output into a collection.
fn endless_in_every_way() -> Vec<Document> {
    let inside = |mut command: Document, number: u8| {
        let session =
            doc! { "lsid": lsid(number), "txnNumber": 1_i64, "startTransaction": true, "autocommit": false };
        command.extend(session);
        command
    };
    let joined = [doc! { "$lookup": { "from": "d", "localField": "n", "foreignField": "n", "as": "d" } }];
    vec![
        endless(&[]),
        inside(endless(&[]), 1),
        inside(endless(&joined), 2),
        endless(&[doc! { "$out": "made" }]),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn deadline_ends_a_pipeline_without_results() {
    let mut client = with(1).await;
    for mut command in endless_in_every_way() {
        command.insert("maxTimeMS", 50);
        assert_eq!(client.refused(command).await.0, 50);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pipeline_ends_when_client_disconnects() {
    let server = Server::new();
    server.connect().ok(doc! { "insert": "c", "documents": [{ "_id": 1 }] }).await;
    for mut command in endless_in_every_way() {
        command.insert("$db", "app");
        let (mut ours, theirs) = tokio::io::duplex(1 << 20);
        let mongo = server.mongo.clone();
        let connection = tokio::spawn(async move { mongo.serve(theirs, None, None).await });
        ours.write_all(&framed(1, MSG, &message(0, &command))).await.unwrap();
        // It has begun, or will check before it does.
        tokio::time::sleep(Duration::from_millis(300)).await;
        drop(ours);
        let ended = tokio::time::timeout(Duration::from_secs(60), connection).await;
        if ended.is_err() {
            // A command that runs on would keep the test from ending.
            server.service.stop().begin();
            panic!("it runs on: {command}");
        }
    }
    assert_eq!(server.connect().find("made", doc! {}).await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn out_and_merge_write_into_collections() {
    let mut client = Server::new().connect();
    client.ok(doc! { "insert": "c", "documents": [{ "_id": 1, "n": 1 }, { "_id": 2, "n": 2 }] }).await;
    let run =
        |stages: Vec<Document>| doc! { "aggregate": "c", "pipeline": stages, "cursor": { "batchSize": 0 } };
    let answer = client.ok(run(vec![doc! { "$match": { "n": 2 } }, doc! { "$out": "made" }])).await;
    assert!(batch(&answer, "firstBatch").is_empty() && cursor_id(&answer) == 0);
    assert_eq!(client.find("made", doc! {}).await, [doc! { "_id": 2, "n": 2 }]);
    client.ok(run(vec![doc! { "$merge": { "into": { "db": "other", "coll": "m" } } }])).await;
    let there = client.ok(doc! { "find": "m", "filter": {}, "$db": "other" }).await;
    assert_eq!(batch(&there, "firstBatch").len(), 2);
    let fail = doc! { "$merge": { "into": "made", "whenMatched": "fail" } };
    assert_eq!(client.refused(run(vec![fail])).await.0, 11000);
    // A pipeline that fails writes nothing.
    assert_eq!(client.find("made", doc! {}).await.len(), 1);
    let mut linearizable = run(vec![doc! { "$out": "made" }]);
    linearizable.insert("readConcern", doc! { "level": "linearizable" });
    assert_eq!(client.refused(linearizable).await.0, 72);
}

#[tokio::test(flavor = "multi_thread")]
async fn administrators_may_bypass_validation() {
    let mut client = Server::new().connect();
    client.ok(doc! { "create": "c", "validator": { "n": { "$gt": 0 } } }).await;
    let insert = doc! { "insert": "c", "documents": [{ "_id": 1, "n": 0 }] };
    let told = client.ok(insert.clone()).await;
    assert_eq!(
        told.get_array("writeErrors").unwrap()[0].as_document().unwrap().get_i32("code").unwrap(),
        121
    );
    let mut bypass = insert;
    bypass.insert("bypassDocumentValidation", true);
    assert_eq!(client.ok(bypass).await.get_i32("n").unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_of_a_command_are_expressions() {
    let mut client = Server::new().connect();
    client.ok(doc! { "insert": "c", "documents": [{ "_id": 1 }] }).await;
    let project = doc! { "$project": { "x": "$$x", "y": "$$y", "z": "$$z" } };
    let variables = doc! { "x": { "$literal": "$bar" }, "y": { "$add": [1, 2] }, "z": "plain" };
    let answer =
        client.ok(doc! { "aggregate": "c", "pipeline": [project], "cursor": {}, "let": variables }).await;
    assert_eq!(batch(&answer, "firstBatch"), [doc! { "_id": 1, "x": "$bar", "y": 3, "z": "plain" }]);
}

#[tokio::test(flavor = "multi_thread")]
async fn collections_are_validated_and_sessions_and_users_listed() {
    let mut client = Server::new().connect();
    client.ok(doc! { "insert": "c", "documents": [{ "_id": 1, "a": [1, 2] }] }).await;
    client.ok(doc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a_1" }] }).await;
    let found = client.ok(doc! { "validate": "c", "full": true }).await;
    assert!(found.get_bool("valid").unwrap());
    assert_eq!(found.get_document("keysPerIndex").unwrap(), &doc! { "_id_": 1, "a_1": 2 });
    assert_eq!(client.refused(doc! { "validate": "none" }).await.0, 26);
    let list = doc! {
        "aggregate": 1, "pipeline": [{ "$listLocalSessions": {} }, { "$count": "n" }], "cursor": {},
        "lsid": crate::client::lsid(1), "$db": "admin",
    };
    assert_eq!(batch(&client.ok(list).await, "firstBatch"), [doc! { "n": 1 }]);
    assert!(client.ok(doc! { "usersInfo": 1 }).await.get_array("users").unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_with_a_query_is_explained() {
    let mut client = Server::new().connect();
    client.ok(doc! { "insert": "c", "documents": [{ "_id": 1, "a": 1 }] }).await;
    client.ok(doc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a_1" }] }).await;
    for command in [
        doc! { "find": "c", "filter": { "a": 1 } },
        doc! { "count": "c", "query": { "a": 1 } },
        doc! { "distinct": "c", "key": "b", "query": { "a": 1 } },
        doc! { "aggregate": "c", "pipeline": [{ "$match": { "a": 1 } }], "cursor": {} },
        doc! { "findAndModify": "c", "query": { "a": 1 }, "remove": true },
        doc! { "update": "c", "updates": [{ "q": { "a": 1 }, "u": { "$set": { "b": 1 } } }] },
        doc! { "delete": "c", "deletes": [{ "q": { "a": 1 }, "limit": 0 }] },
    ] {
        let plan = client.ok(doc! { "explain": command.clone(), "verbosity": "queryPlanner" }).await;
        assert!(plan.get_document("queryPlanner").unwrap().to_string().contains("a_1"), "{command}\n{plan}");
    }
    assert_eq!(client.find("c", doc! {}).await.len(), 1);
    assert_eq!(client.refused(doc! { "explain": { "ping": 1 } }).await.0, 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn exhaust_cursor_sends_batches_without_requests() {
    let mut client = Server::new().connect();
    let documents: Vec<_> = (0..10).map(|n| doc! { "_id": n }).collect();
    client.ok(doc! { "insert": "c", "documents": documents }).await;
    let id = cursor_id(&client.ok(doc! { "find": "c", "batchSize": 2 }).await);
    let more = doc! { "getMore": id, "collection": "c", "batchSize": 3, "$db": "app" };
    client.send(crate::client::MSG, &crate::client::message(1 << 16, &more)).await;
    let mut found = 0;
    loop {
        let answer = client.answer().await.unwrap();
        let more_to_come = answer.payload[0] & 2 != 0;
        found += batch(&answer.document(), "nextBatch").len();
        assert_eq!(more_to_come, cursor_id(&answer.document()) != 0);
        if !more_to_come {
            break;
        }
    }
    assert_eq!(found, 8);
    client.ok(doc! { "ping": 1 }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshot_is_read_again_at_its_cluster_time() {
    let mut client = Server::new().connect();
    client.ok(doc! { "insert": "c", "documents": [{ "_id": 1, "n": 1 }] }).await;
    let read = |mut command: Document, at: Option<bson::Bson>| {
        let mut concern = doc! { "level": "snapshot" };
        concern.extend(at.map(|at| ("atClusterTime".to_owned(), at)));
        command.insert("readConcern", concern);
        command
    };
    let find = doc! { "find": "c", "filter": {} };
    let first = client.ok(read(find.clone(), None)).await;
    let at = first.get_document("cursor").unwrap().get("atClusterTime").cloned();
    client.ok(doc! { "update": "c", "updates": [{ "q": {}, "u": { "$set": { "n": 2 } } }] }).await;
    let again = client.ok(read(find, at.clone())).await;
    assert_eq!(batch(&again, "firstBatch"), [doc! { "_id": 1, "n": 1 }]);
    let values = client.ok(read(doc! { "distinct": "c", "key": "n" }, at.clone())).await;
    assert_eq!(
        (values.get_array("values").unwrap(), values.get("atClusterTime").cloned()),
        (&vec![1.into()], at.clone())
    );
    let sum = doc! { "$group": { "_id": 1, "n": { "$sum": "$n" } } };
    let sum = client.ok(read(doc! { "aggregate": "c", "pipeline": [sum], "cursor": {} }, at.clone())).await;
    assert_eq!(batch(&sum, "firstBatch")[0].get_i32("n").unwrap(), 1);
    for command in
        [doc! { "insert": "c", "documents": [{}] }, doc! { "listCollections": 1 }, doc! { "count": "c" }]
    {
        assert_eq!(client.refused(read(command, at.clone())).await.0, 72);
    }
    let gone = bson::Bson::Timestamp(bson::Timestamp { time: 0, increment: 1 });
    assert_eq!(client.refused(read(doc! { "find": "c" }, Some(gone))).await.0, 239);
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_statement_field_fails_command_and_api_strict_is_enforced() {
    let mut client = with(1).await;
    let update = doc! { "q": {}, "u": { "$set": { "a": 1 } }, "sort": { "_id": 1 } };
    assert_eq!(client.refused(doc! { "update": "c", "updates": [update] }).await.0, 40415);
    let told = client.ok(doc! { "update": "c", "updates": [{ "q": { "$fly": 1 }, "u": {} }] }).await;
    assert_eq!(told.get_array("writeErrors").unwrap().len(), 1);
    let strict = |mut command: Document| {
        command.extend(doc! { "apiVersion": "1", "apiStrict": true });
        command
    };
    client.ok(strict(doc! { "find": "c" })).await;
    assert_eq!(client.refused(strict(doc! { "distinct": "c", "key": "a" })).await.0, 323);
    assert_eq!(client.refused(doc! { "createSearchIndexes": "c", "indexes": [] }).await.0, 31082);
}
