//! Capped collections and tailable cursors.

use bson::{Document, doc};

use crate::client::{Client, Server, batch, cursor_id};

fn ids(documents: &[Document]) -> Vec<i32> {
    documents.iter().map(|document| document.get_i32("_id").unwrap()).collect()
}

async fn insert(client: &mut Client, ids: std::ops::Range<i32>) {
    let documents: Vec<Document> = ids.map(|id| doc! { "_id": id }).collect();
    client.ok(doc! { "insert": "c", "documents": documents }).await;
}

async fn more(client: &mut Client, id: i64) -> (Vec<i32>, i64) {
    let answer = client.ok(doc! { "getMore": id, "collection": "c" }).await;
    (ids(&batch(&answer, "nextBatch")), cursor_id(&answer))
}

#[tokio::test(flavor = "multi_thread")]
async fn capped_collection_is_created_listed_and_resized() {
    let mut client = Server::new().connect();
    client.ok(doc! { "create": "c", "capped": true, "size": 5000, "max": 3 }).await;
    insert(&mut client, 0..5).await;
    assert_eq!(ids(&client.find("c", doc! {}).await), [2, 3, 4]);
    let listed = client.ok(doc! { "listCollections": 1, "filter": { "options.capped": true } }).await;
    let options = batch(&listed, "firstBatch")[0].get_document("options").unwrap().clone();
    assert_eq!(options, doc! { "capped": true, "size": 5120, "max": 3 });
    let stats = client.ok(doc! { "collStats": "c" }).await;
    assert!(stats.get_bool("capped").unwrap() && stats.get_i32("max").unwrap() == 3);
    client.ok(doc! { "collMod": "c", "cappedMax": 2 }).await;
    assert_eq!(ids(&client.find("c", doc! {}).await), [3, 4]);
    let valid = client.ok(doc! { "validate": "c" }).await;
    assert!(valid.get_bool("valid").unwrap(), "{valid}");

    client.ok(doc! { "insert": "plain", "documents": [{ "_id": 2 }, { "_id": 1 }] }).await;
    assert_eq!(client.refused(doc! { "collMod": "plain", "cappedSize": 1 }).await.0, 72);
    client.ok(doc! { "convertToCapped": "plain", "size": 1000 }).await;
    client.ok(doc! { "insert": "plain", "documents": [{ "_id": 0 }] }).await;
    assert_eq!(ids(&client.find("plain", doc! {}).await), [1, 2, 0]);
    assert_eq!(client.refused(doc! { "convertToCapped": "none", "size": 1 }).await.0, 26);
}

#[tokio::test(flavor = "multi_thread")]
async fn tailable_cursor_stays_open_and_resumes() {
    let mut client = Server::new().connect();
    client.ok(doc! { "create": "c", "capped": true, "size": 4096, "max": 4 }).await;
    let tail = doc! { "find": "c", "tailable": true };
    // Without a document there is no position to stay at.
    assert_eq!(cursor_id(&client.ok(tail.clone()).await), 0);
    insert(&mut client, 0..2).await;
    let first = client.ok(tail).await;
    assert_eq!(ids(&batch(&first, "firstBatch")), [0, 1]);
    let id = cursor_id(&first);
    assert_eq!(more(&mut client, id).await, (vec![], id));
    insert(&mut client, 2..4).await;
    assert_eq!(more(&mut client, id).await, (vec![2, 3], id));
    assert_eq!(
        client.refused(doc! { "getMore": id, "collection": "c", "maxTimeMS": 5 }).await.0,
        2,
        "nothing is waited for"
    );
    insert(&mut client, 4..10).await;
    assert_eq!(client.refused(doc! { "getMore": id, "collection": "c" }).await.0, 136);
    assert_eq!(client.refused(doc! { "getMore": id, "collection": "c" }).await.0, 43);
    for (option, code) in [
        (doc! { "sort": { "_id": 1 } }, 2),
        (doc! { "sort": { "$natural": -1 } }, 2),
        (doc! { "hint": { "_id": 1 } }, 2),
        (doc! { "singleBatch": true }, 2),
    ] {
        let mut find = doc! { "find": "c", "tailable": true };
        find.extend(option);
        assert_eq!(client.refused(find.clone()).await.0, code, "{find}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn await_data_returns_when_a_document_arrives() {
    let server = Server::new();
    let (mut reader, mut writer) = (server.connect(), server.connect());
    writer.ok(doc! { "create": "c", "capped": true, "size": 4096 }).await;
    insert(&mut writer, 0..1).await;
    let tail = doc! { "find": "c", "tailable": true, "awaitData": true, "batchSize": 0 };
    let first = reader.ok(tail).await;
    let id = cursor_id(&first);
    assert!(batch(&first, "firstBatch").is_empty() && id != 0);
    assert_eq!(more(&mut reader, id).await, (vec![0], id));
    let waiting = tokio::spawn(async move {
        let asked = doc! { "getMore": id, "collection": "c", "maxTimeMS": 60_000 };
        let answer = reader.ok(asked).await;
        (ids(&batch(&answer, "nextBatch")), reader)
    });
    insert(&mut writer, 1..2).await;
    let (heard, mut reader) = waiting.await.unwrap();
    assert_eq!(heard, [1]);
    let none = reader.ok(doc! { "getMore": id, "collection": "c", "maxTimeMS": 1 }).await;
    assert!(batch(&none, "nextBatch").is_empty() && cursor_id(&none) == id);
}
