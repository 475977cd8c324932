//! Views through commands.

use bson::{Document, doc};
use ropewalk_auth::{Caller, Right, Roles};

use crate::access::login_as;
use crate::client::{Client, Server, batch, lsid};

async fn with_view(server: &Server) -> Client {
    let mut client = server.connect();
    let all: Vec<_> =
        (0..10).map(|n| doc! { "_id": n, "n": n, "tags": ["t", n % 3], "in": [{ "a": n % 2 }] }).collect();
    client.ok(doc! { "insert": "c", "documents": all }).await;
    let stages =
        [doc! { "$match": { "n": { "$gte": 4 } } }, doc! { "$addFields": { "m": { "$add": ["$n", 1] } } }];
    client.ok(doc! { "create": "v", "viewOn": "c", "pipeline": stages.to_vec() }).await;
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_read_a_view_like_a_collection() {
    let mut client = with_view(&Server::new()).await;
    let find = doc! { "find": "v", "filter": { "m": { "$lt": 9 } }, "sort": { "n": -1 }, "skip": 1, "limit": 2, "projection": { "m": 1 } };
    let found = client.ok(find.clone()).await;
    assert_eq!(batch(&found, "firstBatch"), [doc! { "_id": 6, "m": 7 }, doc! { "_id": 5, "m": 6 }]);
    assert_eq!(found.get_document("cursor").unwrap().get_str("ns").unwrap(), "app.v");
    assert_eq!(client.ok(doc! { "count": "v" }).await.get_i32("n").unwrap(), 6);
    let counted = client.ok(doc! { "count": "v", "query": { "n": 4 }, "limit": 1 }).await;
    assert_eq!(counted.get_i32("n").unwrap(), 1);
    for (key, values) in [("m", 6), ("tags", 4), ("in.a", 2), ("none", 0)] {
        let values_of = client.ok(doc! { "distinct": "v", "key": key }).await;
        assert_eq!(values_of.get_array("values").unwrap().len(), values, "{key}");
    }
    let totals = doc! { "aggregate": "v", "cursor": {}, "pipeline": [{ "$group": { "_id": null, "s": { "$sum": "$m" } } }] };
    assert_eq!(batch(&client.ok(totals).await, "firstBatch")[0].get_i32("s").unwrap(), 45);
    let joined = doc! { "aggregate": "c", "cursor": {}, "pipeline": [
        { "$match": { "_id": 5 } },
        { "$lookup": { "from": "v", "localField": "n", "foreignField": "n", "as": "l" } },
        { "$project": { "m": "$l.m" } },
    ] };
    assert_eq!(batch(&client.ok(joined).await, "firstBatch"), [doc! { "_id": 5, "m": [6] }]);
    // The same within a transaction, with its own writes.
    let mut number = 0;
    let mut inside = |mut command: Document| {
        number += 1;
        command.extend(doc! { "lsid": lsid(1), "txnNumber": 1_i64, "autocommit": false });
        if number == 1 {
            command.insert("startTransaction", true);
        }
        command
    };
    client.ok(inside(doc! { "insert": "c", "documents": [{ "_id": 20, "n": 7 }] })).await;
    assert_eq!(batch(&client.ok(inside(find)).await, "firstBatch").len(), 2);
    let found = client.ok(inside(doc! { "find": "v" })).await;
    assert_eq!(batch(&found, "firstBatch").len(), 7);
    let values = client.ok(inside(doc! { "distinct": "v", "key": "_id" })).await;
    assert_eq!(values.get_array("values").unwrap().len(), 7);
    assert_eq!(client.find("v", doc! {}).await.len(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn views_are_listed_changed_and_dropped() {
    let mut client = with_view(&Server::new()).await;
    let listed = client.ok(doc! { "listCollections": 1, "filter": { "type": "view" } }).await;
    let [view] = batch(&listed, "firstBatch").try_into().unwrap();
    assert_eq!(view.get_document("options").unwrap().get_str("viewOn").unwrap(), "c");
    assert_eq!(view.get_document("info").unwrap(), &doc! { "readOnly": true });
    let names = client.ok(doc! { "listCollections": 1, "nameOnly": true }).await;
    assert_eq!(
        batch(&names, "firstBatch"),
        [doc! { "name": "c", "type": "collection" }, doc! { "name": "v", "type": "view" }]
    );
    assert_eq!(client.ok(doc! { "dbStats": 1 }).await.get_i32("views").unwrap(), 1);
    client.ok(doc! { "collMod": "v", "viewOn": "c", "pipeline": [{ "$limit": 2 }] }).await;
    assert_eq!(client.find("v", doc! {}).await.len(), 2);
    client.ok(doc! { "drop": "v" }).await;
    assert!(client.find("v", doc! {}).await.is_empty());
    client.ok(doc! { "insert": "v", "documents": [{}] }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_that_views_lack_are_rejected_with_mongodbs_codes() {
    let mut client = with_view(&Server::new()).await;
    for (code, command) in [
        (166, doc! { "insert": "v", "documents": [{}] }),
        (166, doc! { "update": "v", "updates": [{ "q": {}, "u": { "$set": { "a": 1 } } }] }),
        (166, doc! { "delete": "v", "deletes": [{ "q": {}, "limit": 0 }] }),
        (166, doc! { "findAndModify": "v", "query": {}, "remove": true }),
        (166, doc! { "createIndexes": "v", "indexes": [{ "key": { "a": 1 }, "name": "a" }] }),
        (166, doc! { "listIndexes": "v" }),
        (166, doc! { "collStats": "v" }),
        (166, doc! { "validate": "v" }),
        (166, doc! { "explain": { "find": "v" } }),
        (166, doc! { "find": "v", "tailable": true }),
        (166, doc! { "aggregate": "v", "cursor": {}, "pipeline": [{ "$changeStream": {} }] }),
        (167, doc! { "find": "v", "hint": "_id_" }),
        (167, doc! { "aggregate": "v", "cursor": {}, "pipeline": [], "hint": "_id_" }),
        (48, doc! { "create": "v" }),
        (48, doc! { "create": "c", "viewOn": "d" }),
        (48, doc! { "create": "v", "viewOn": "d" }),
        (2, doc! { "create": "w", "pipeline": [] }),
        (5, doc! { "create": "w", "viewOn": "w" }),
        (72, doc! { "create": "w", "viewOn": "c", "capped": true, "size": 4096 }),
        (72, doc! { "collMod": "v", "viewOn": "c" }),
        (167, doc! { "create": "w", "viewOn": "c", "pipeline": [{ "$out": "x" }] }),
        (40324, doc! { "create": "w", "viewOn": "c", "pipeline": [{ "$none": 1 }] }),
        (26, doc! { "collMod": "none", "viewOn": "c", "pipeline": [] }),
    ] {
        assert_eq!(client.refused(command.clone()).await.0, code, "{command}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_of_the_collection_apply_to_readers_of_a_view() {
    let server = Server::new();
    let mut client = with_view(&server).await;
    let documents = server.service.database().documents();
    let collection = documents.collection("app", "c").unwrap();
    let rules = doc! { "list": "resource.n == 5" };
    let rules = ropewalk::documents::lang::DocBuf::check(rules.to_vec().unwrap()).unwrap();
    let options = collection.definition().unwrap().unwrap().options().clone();
    collection.set_options(ropewalk::documents::CollectionOptions { rules: Some(rules), ..options }).unwrap();
    assert_eq!(client.find("v", doc! { "n": { "$gt": 0 } }).await.len(), 6);
    let roles = Roles::from([("app".to_owned(), [Right::Read].into())]);
    server.service.access().create_user(&Caller::everybody(), "ann", "secret", roles).await.unwrap();
    let mut reader = server.connect();
    login_as(&mut reader, "ann", "secret", true).await;
    let found = reader.find("v", doc! { "n": { "$gt": 0 } }).await;
    assert_eq!(found.iter().map(|document| document.get_i32("n").unwrap()).collect::<Vec<_>>(), [5]);
    let listed = doc! { "aggregate": "v", "cursor": {}, "pipeline": [{ "$match": { "n": { "$gt": 0 } } }, { "$count": "n" }] };
    assert_eq!(batch(&reader.ok(listed).await, "firstBatch"), [doc! { "n": 1 }]);
}
