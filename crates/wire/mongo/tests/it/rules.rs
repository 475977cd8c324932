//! Rules of collections and withdrawn rights: what bound callers can learn.

use std::collections::BTreeSet;

use bson::{Document, doc};
use ropewalk::Durability;
use ropewalk::documents::CollectionOptions;
use ropewalk::documents::lang::DocBuf;
use ropewalk_auth::{Caller, Right, Roles};

use crate::access::login;
use crate::client::{Client, Server, batch, cursor_id};

fn roles(all: &[(&str, &[Right])]) -> Roles {
    let set = |rights: &[Right]| BTreeSet::from_iter(rights.iter().copied());
    all.iter().map(|(database, rights)| ((*database).to_owned(), set(rights))).collect()
}

async fn set_roles(server: &Server, all: &[(&str, &[Right])]) {
    let roles = roles(all);
    let access = server.service.access();
    access.update_user(&Caller::everybody(), "ann", None, move |own| *own = roles).await.unwrap();
}

/// Gives collection `notes` rules: callers see what they own.
fn set_rules(server: &Server) {
    let rules = doc! {
        "read": "resource.owner == request.auth.uid",
        "write": "request.resource.owner == request.auth.uid || resource.owner == request.auth.uid",
    };
    let rules = Some(DocBuf::check(rules.to_vec().unwrap()).unwrap());
    let notes = server.service.database().documents().collection("app", "notes").unwrap();
    notes.set_options(CollectionOptions { rules, ..CollectionOptions::default() }).unwrap();
}

fn insert(server: &Server, document: Document) {
    let notes = server.service.database().documents().collection("app", "notes").unwrap();
    notes.insert_one(&document.to_vec().unwrap(), Durability::Sync).unwrap();
}

/// A collection `notes` with a document that rules hide from ann, and a client of hers who may read and
/// append.
async fn hidden() -> (Server, Client) {
    let server = Server::new();
    insert(&server, doc! { "_id": 1, "owner": "ann", "secret": "mine" });
    insert(&server, doc! { "_id": 2, "owner": "bob", "secret": "pin-5838" });
    set_rules(&server);
    let client = ann(&server).await;
    (server, client)
}

async fn ann(server: &Server) -> Client {
    let own = roles(&[("app", &[Right::Read, Right::Append])]);
    server.service.access().create_user(&Caller::everybody(), "ann", "secret", own).await.unwrap();
    let mut client = server.connect();
    login(&mut client, "secret", true).await;
    client
}

/// The parts of a reply that can reveal something to a client.
fn told(answer: &Document) -> Document {
    let mut told = answer.clone();
    for field in ["$clusterTime", "operationTime"] {
        told.remove(field);
    }
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn m4_filter_on_hidden_values_reveals_nothing() {
    let (server, mut client) = hidden().await;
    let index = doc! { "createIndexes": "notes", "indexes": [{ "key": { "secret": 1 }, "name": "secret" }] };
    for indexed in [false, true] {
        if indexed {
            client.ok(index.clone()).await;
        }
        // Of two guesses the first is right.
        let guess = |pin: &str| doc! { "_id": { "$gte": 2 }, "secret": { "$regex": format!("^pin-{pin}") } };
        let fails_if = |pin: &str| {
            let divisor = doc! { "$cond": [{ "$eq": ["$secret", format!("pin-{pin}")] }, 0, 1] };
            doc! { "$expr": { "$eq": [{ "$divide": [1, divisor] }, 1] }, "owner": "bob" }
        };
        let commands = |filter: Document| {
            let set = doc! { "$inc": { "secret": 1 } };
            vec![
                doc! { "find": "notes", "filter": filter.clone() },
                doc! { "find": "notes", "filter": filter.clone(), "sort": { "secret": 1 }, "limit": 1 },
                doc! { "count": "notes", "query": filter.clone() },
                doc! { "distinct": "notes", "key": "secret", "query": filter.clone() },
                doc! { "aggregate": "notes", "pipeline": [{ "$match": filter.clone() }], "cursor": {} },
                doc! { "update": "notes", "updates": [{ "q": filter.clone(), "u": set.clone(), "multi": true }] },
                doc! { "update": "notes", "updates": [{ "q": filter.clone(), "u": set.clone() }] },
                doc! { "delete": "notes", "deletes": [{ "q": filter.clone(), "limit": 0 }] },
                doc! { "findAndModify": "notes", "query": filter.clone(), "update": set },
                doc! { "findAndModify": "notes", "query": filter.clone(), "remove": true },
                doc! { "explain": { "find": "notes", "filter": filter }, "verbosity": "executionStats" },
            ]
        };
        for (right, wrong) in [(guess("5"), guess("6")), (fails_if("5838"), fails_if("5839"))] {
            for (right, wrong) in commands(right).into_iter().zip(commands(wrong)) {
                let (right_told, wrong_told) = (client.run(right.clone()).await, client.run(wrong).await);
                assert_eq!(told(&right_told), told(&wrong_told), "{right}");
            }
        }
    }
    // The order of hidden documents is not revealed, either.
    for limit in [1, 2] {
        let first = doc! { "find": "notes", "sort": { "secret": -1 }, "limit": limit };
        assert_eq!(batch(&client.ok(first).await, "firstBatch").len(), 1);
    }
    // Queries that depend on ids alone are rejected: ids are no secret.
    for filter in [doc! {}, doc! { "_id": 2 }] {
        assert_eq!(client.refused(doc! { "find": "notes", "filter": filter }).await.0, 13);
    }
    let all = server.service.database().documents().collection("app", "notes").unwrap();
    assert_eq!(all.estimated_count().unwrap().documents, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn h4_duplicate_errors_do_not_reveal_hidden_values() {
    let (server, mut client) = hidden().await;
    insert(&server, doc! { "_id": 3, "owner": "bob", "secret": "pin-5838" });
    let unique = |name: &str| {
        let index = doc! { "key": { name: 1 }, "name": name, "unique": true, "sparse": true };
        doc! { "createIndexes": "notes", "indexes": [index] }
    };
    let refused = client.run(unique("secret")).await;
    assert_eq!(refused.get_i32("code").unwrap(), 11_000);
    assert!(!refused.to_string().contains("5838"), "{refused}");
    client.ok(unique("other")).await;
    insert(&server, doc! { "_id": 4, "owner": "bob", "other": "hidden" });
    for document in [doc! { "_id": 4, "owner": "ann" }, doc! { "owner": "ann", "other": "hidden" }] {
        let answer = client.ok(doc! { "insert": "notes", "documents": [document] }).await;
        let error = answer.get_array("writeErrors").unwrap()[0].as_document().unwrap();
        assert_eq!(error.get_i32("code").unwrap(), 11_000);
        assert!(error.get_document("keyValue").unwrap().is_empty(), "{error}");
    }
    // A caller who may not create a document does not learn whether it exists.
    let answer = client.ok(doc! { "insert": "notes", "documents": [{ "_id": 4, "owner": "bob" }] }).await;
    assert_eq!(
        answer.get_array("writeErrors").unwrap()[0].as_document().unwrap().get_i32("code").unwrap(),
        13
    );
    set_roles(&server, &[("app", &[Right::Admin])]).await;
    assert!(client.run(unique("secret")).await.to_string().contains("pin-5838"));
}

#[tokio::test(flavor = "multi_thread")]
async fn l4_counts_of_collections_with_rules_require_admin() {
    let (server, mut client) = hidden().await;
    let commands = [
        doc! { "collStats": "notes" },
        doc! { "validate": "notes" },
        doc! { "aggregate": "notes", "pipeline": [{ "$collStats": { "count": {} } }], "cursor": {} },
    ];
    for command in &commands {
        assert_eq!(client.refused(command.clone()).await.0, 13);
    }
    assert_eq!(client.ok(doc! { "dbStats": 1 }).await.get_i32("objects").unwrap(), 0);
    set_roles(&server, &[("app", &[Right::Admin])]).await;
    for command in commands {
        client.ok(command).await;
    }
    assert_eq!(client.ok(doc! { "dbStats": 1 }).await.get_i32("objects").unwrap(), 2);
}

async fn watch(client: &mut Client, everything: bool) -> (i64, &'static str, &'static str) {
    let (database, spec) = match everything {
        true => ("admin", doc! { "allChangesForCluster": true }),
        false => ("app", doc! {}),
    };
    let on: bson::Bson = if everything { 1.into() } else { "notes".into() };
    let command =
        doc! { "aggregate": on, "pipeline": [{ "$changeStream": spec }], "cursor": {}, "$db": database };
    let collection = if everything { "$cmd.aggregate" } else { "notes" };
    (cursor_id(&client.ok(command).await), database, collection)
}

fn more((id, database, collection): (i64, &str, &str)) -> Document {
    doc! { "getMore": id, "collection": collection, "maxTimeMS": 1000, "$db": database }
}

/// The ids of the documents that events show.
async fn seen(client: &mut Client, stream: (i64, &str, &str)) -> Vec<i32> {
    let events = batch(&client.ok(more(stream)).await, "nextBatch");
    let keys = events.iter().filter_map(|event| event.get_document("documentKey").ok());
    keys.map(|key| key.get_i32("_id").unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn h2_stream_over_everything_omits_ruled_documents() {
    let (server, mut client) = hidden().await;
    set_roles(&server, &[("*", &[Right::Read])]).await;
    let mut root = server.connect();
    let stream = watch(&mut client, true).await;
    insert(&server, doc! { "_id": 50, "owner": "bob" });
    let plain = server.service.database().documents().collection("app", "plain").unwrap();
    let insert_plain =
        |id: i32| plain.insert_one(&doc! { "_id": id }.to_vec().unwrap(), Durability::Sync).unwrap();
    insert_plain(1);
    assert_eq!(seen(&mut client, stream).await, [1]);
    // Rules added after the event hide it, too; a dropped collection keeps its last rules.
    insert_plain(2);
    let options = |rules: Option<Document>| CollectionOptions {
        rules: rules.map(|rules| DocBuf::check(rules.to_vec().unwrap()).unwrap()),
        ..CollectionOptions::default()
    };
    plain.set_options(options(Some(doc! { "read": "false" }))).unwrap();
    insert_plain(3);
    let other = server.service.database().documents().collection("app", "other").unwrap();
    other.insert_one(&doc! { "_id": 4 }.to_vec().unwrap(), Durability::Sync).unwrap();
    plain.drop_collection().unwrap();
    other.drop_collection().unwrap();
    assert_eq!(seen(&mut client, stream).await, [4]);
    // An administrator of everything sees all.
    login(&mut root, "secret", true).await;
    set_roles(&server, &[("*", &[Right::Admin])]).await;
    let stream = watch(&mut root, true).await;
    insert(&server, doc! { "_id": 51, "owner": "bob" });
    assert_eq!(seen(&mut root, stream).await, [51]);
}

#[tokio::test(flavor = "multi_thread")]
async fn m3_withdrawn_right_ends_cursors_and_streams() {
    let server = Server::new();
    (0..10).for_each(|id| insert(&server, doc! { "_id": id, "owner": "ann" }));
    let mut client = ann(&server).await;
    let find = doc! { "find": "notes", "batchSize": 2 };
    let group =
        doc! { "aggregate": "notes", "pipeline": [{ "$sort": { "_id": 1 } }], "cursor": { "batchSize": 2 } };
    let list = doc! { "listCollections": 1, "cursor": { "batchSize": 0 } };
    let cursors = [
        (cursor_id(&client.ok(find.clone()).await), "notes"),
        (cursor_id(&client.ok(group).await), "notes"),
        (cursor_id(&client.ok(list).await), "$cmd.listCollections"),
    ];
    let stream = watch(&mut client, false).await;
    let mut waiting = server.connect();
    login(&mut waiting, "secret", true).await;
    let long = watch(&mut waiting, false).await;
    let waiting = tokio::spawn(async move {
        let mut command = more(long);
        command.insert("maxTimeMS", 60_000);
        waiting.run(command).await
    });
    // The stream waits before the right goes.
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    set_roles(&server, &[("app", &[Right::Append])]).await;
    insert(&server, doc! { "_id": 10, "owner": "ann" });
    let answer = waiting.await.unwrap();
    assert_eq!(answer.get_i32("code").ok(), Some(13), "{answer}");
    for (id, collection) in cursors {
        assert_eq!(client.refused(doc! { "getMore": id, "collection": collection }).await.0, 13);
        // The cursor is removed permanently.
        set_roles(&server, &[("app", &[Right::Read])]).await;
        assert_eq!(client.refused(doc! { "getMore": id, "collection": collection }).await.0, 43);
        set_roles(&server, &[("app", &[Right::Append])]).await;
    }
    assert_eq!(client.refused(more(stream)).await.0, 13);
    // An administrator's cursor cannot be used by a caller bound by rules.
    set_roles(&server, &[("app", &[Right::Admin])]).await;
    let id = cursor_id(&client.ok(find).await);
    set_roles(&server, &[("app", &[Right::Read])]).await;
    assert_eq!(client.refused(doc! { "getMore": id, "collection": "notes" }).await.0, 13);
}

#[tokio::test(flavor = "multi_thread")]
async fn m3_new_rules_end_cursors_and_streams() {
    let server = Server::new();
    (0..10).for_each(|id| insert(&server, doc! { "_id": id, "owner": "bob" }));
    let mut client = ann(&server).await;
    let joined =
        doc! { "$lookup": { "from": "notes", "localField": "_id", "foreignField": "_id", "as": "x" } };
    client
        .ok(doc! { "insert": "plain", "documents": (0..4).map(|n| doc! { "_id": n }).collect::<Vec<_>>() })
        .await;
    let lookup = doc! { "aggregate": "plain", "pipeline": [joined], "cursor": { "batchSize": 1 } };
    let cursors = [
        (cursor_id(&client.ok(doc! { "find": "notes", "batchSize": 2 }).await), "notes"),
        (cursor_id(&client.ok(lookup).await), "plain"),
    ];
    let other = cursor_id(&client.ok(doc! { "find": "plain", "batchSize": 2 }).await);
    let stream = watch(&mut client, false).await;
    let database = doc! { "aggregate": 1, "pipeline": [{ "$changeStream": {} }], "cursor": {} };
    let database = (cursor_id(&client.ok(database).await), "app", "$cmd.aggregate");
    set_rules(&server);
    for (id, collection) in cursors {
        assert_eq!(client.refused(doc! { "getMore": id, "collection": collection }).await.0, 13);
    }
    client.ok(doc! { "getMore": other, "collection": "plain" }).await;
    for stream in [stream, database] {
        assert_eq!(client.refused(more(stream)).await.0, 13);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c_output_into_another_database_obeys_the_rules_there() {
    let server = Server::new();
    insert(&server, doc! { "_id": 0, "owner": "ann" });
    set_rules(&server);
    let own = roles(&[("src", &[Right::Admin]), ("app", &[Right::Read, Right::Append])]);
    server.service.access().create_user(&Caller::everybody(), "ann", "secret", own).await.unwrap();
    let mut client = server.connect();
    login(&mut client, "secret", true).await;
    client.ok(doc! { "insert": "c", "documents": [{ "_id": 1, "owner": "bob" }], "$db": "src" }).await;
    let target = doc! { "db": "app", "coll": "notes" };
    for stage in [doc! { "$merge": { "into": target.clone() } }, doc! { "$out": target }] {
        let command = doc! { "aggregate": "c", "pipeline": [stage.clone()], "cursor": {}, "$db": "src" };
        assert_eq!(client.refused(command).await.0, 13, "{stage}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sizes_of_databases_do_not_count_collections_with_rules() {
    let (server, mut client) = hidden().await;
    let list = doc! { "listDatabases": 1, "$db": "admin" };
    let size = |answer: &Document| {
        let databases = answer.get_array("databases").unwrap();
        databases[0].as_document().unwrap().get_i64("sizeOnDisk").unwrap()
    };
    assert_eq!(size(&client.ok(list.clone()).await), 0);
    set_roles(&server, &[("app", &[Right::Admin])]).await;
    assert!(size(&client.ok(list).await) > 0);
}
