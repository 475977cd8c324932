//! Change streams.

use bson::{Document, doc};

use crate::client::{Client, MSG, Server, batch, cursor_id, message};

async fn open(
    client: &mut Client,
    on: impl Into<bson::Bson>,
    spec: Document,
    stages: &[Document],
) -> (i64, Document) {
    let mut pipeline = vec![doc! { "$changeStream": spec }];
    pipeline.extend_from_slice(stages);
    let answer = client.ok(doc! { "aggregate": on.into(), "pipeline": pipeline, "cursor": {} }).await;
    let token = answer.get_document("cursor").unwrap().get_document("postBatchResumeToken").unwrap().clone();
    assert!(batch(&answer, "firstBatch").is_empty());
    (cursor_id(&answer), token)
}

/// The next events; waits until there is one.
async fn next(client: &mut Client, id: i64, of: &str) -> (Vec<Document>, i64) {
    let answer = client.ok(doc! { "getMore": id, "collection": of, "maxTimeMS": 60_000 }).await;
    (batch(&answer, "nextBatch"), cursor_id(&answer))
}

fn kinds(events: &[Document]) -> Vec<&str> {
    events.iter().map(|event| event.get_str("operationType").unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_get_more_returns_events() {
    let server = Server::new();
    let (mut watcher, mut writer) = (server.connect(), server.connect());
    writer.ok(doc! { "insert": "c", "documents": [{ "_id": 0 }] }).await;
    let (id, _) = open(&mut watcher, "c", doc! { "fullDocument": "updateLookup" }, &[]).await;
    let waiting = tokio::spawn(async move {
        let heard = next(&mut watcher, id, "c").await;
        (watcher, heard)
    });
    writer.ok(doc! { "insert": "other", "documents": [{ "_id": 0 }] }).await;
    writer.ok(doc! { "update": "c", "updates": [{ "q": { "_id": 0 }, "u": { "$set": { "a": 1 } } }] }).await;
    let (mut watcher, (events, _)) = waiting.await.unwrap();
    assert_eq!(kinds(&events), ["update"]);
    assert_eq!(events[0].get_document("fullDocument").unwrap(), &doc! { "_id": 0, "a": 1 });
    assert_eq!(events[0].get_document("ns").unwrap(), &doc! { "db": "app", "coll": "c" });
    writer.ok(doc! { "delete": "c", "deletes": [{ "q": {}, "limit": 0 }] }).await;
    writer.ok(doc! { "drop": "c" }).await;
    let (mut heard, mut open) = (Vec::new(), id);
    while open != 0 {
        let (events, still) = next(&mut watcher, id, "c").await;
        heard.extend(kinds(&events).into_iter().map(str::to_owned));
        open = still;
    }
    assert_eq!(heard, ["delete", "drop", "invalidate"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_resumes_after_its_token_and_applies_its_pipeline() {
    let mut client = Server::new().connect();
    client.ok(doc! { "create": "c" }).await;
    let (id, token) = open(&mut client, 1, doc! {}, &[]).await;
    for n in 0..4 {
        client.ok(doc! { "insert": "c", "documents": [{ "_id": n }] }).await;
    }
    let (events, _) = next(&mut client, id, "$cmd.aggregate").await;
    assert_eq!(events.len(), 4);
    let second = events[1].get_document("_id").unwrap().clone();
    for (spec, left) in
        [(doc! { "resumeAfter": second }, vec![2, 3]), (doc! { "startAfter": token }, vec![0, 1, 2, 3])]
    {
        let pipeline = vec![doc! { "$changeStream": spec }];
        let answer = client.ok(doc! { "aggregate": "c", "pipeline": pipeline, "cursor": {} }).await;
        let ids: Vec<_> = batch(&answer, "firstBatch")
            .iter()
            .map(|event| event.get_document("documentKey").unwrap().get_i32("_id").unwrap())
            .collect();
        assert_eq!(ids, left);
    }
    let (id, _) = open(
        &mut client,
        "c",
        doc! {},
        &[doc! { "$match": { "operationType": "delete" } }, doc! { "$project": { "documentKey": 1 } }],
    )
    .await;
    client.ok(doc! { "insert": "c", "documents": [{ "_id": 9 }] }).await;
    client.ok(doc! { "delete": "c", "deletes": [{ "q": { "_id": 9 }, "limit": 1 }] }).await;
    let (events, _) = next(&mut client, id, "c").await;
    assert_eq!(events[0].get_document("documentKey").unwrap(), &doc! { "_id": 9 });
    assert_eq!(events[0].len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_change_streams_are_rejected() {
    let mut client = Server::new().connect();
    for (spec, stage, code) in [
        (doc! { "resumeAfter": { "_data": "nonsense" } }, None, 260),
        (doc! { "colour": 1 }, None, 40415),
        (doc! { "fullDocument": "always" }, None, 2),
        (doc! { "fullDocumentBeforeChange": "required" }, None, 238),
        (doc! { "allChangesForCluster": true }, None, 72),
        (doc! {}, Some(doc! { "$group": { "_id": 1 } }), 20),
    ] {
        let pipeline: Vec<_> = std::iter::once(doc! { "$changeStream": spec }).chain(stage).collect();
        let command = doc! { "aggregate": "c", "pipeline": pipeline, "cursor": {} };
        assert_eq!(client.refused(command.clone()).await.0, code, "{command}");
    }
    // A pipeline that removes the token ends the stream.
    let (id, _) = open(&mut client, "c", doc! {}, &[doc! { "$project": { "_id": 0 } }]).await;
    client.ok(doc! { "insert": "c", "documents": [{}] }).await;
    assert_eq!(client.refused(doc! { "getMore": id, "collection": "c" }).await.0, 280);
    assert_eq!(client.refused(doc! { "getMore": id, "collection": "c" }).await.0, 43);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_get_more_ends_when_the_server_stops() {
    let server = Server::new();
    let mut client = server.connect();
    let (id, _) = open(&mut client, "c", doc! {}, &[]).await;
    let more = doc! { "getMore": id, "collection": "c", "maxTimeMS": 60_000, "$db": "app" };
    client.send(MSG, &message(0, &more)).await;
    server.service.stop().begin();
    // If the server has not begun to read it disconnects, which drivers treat in the same way.
    if let Some(answer) = client.answer().await {
        assert_eq!(answer.document().get_i32("code").unwrap(), 91);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn database_stream_ends_with_drop_and_can_start_after_it() {
    let mut client = Server::new().connect();
    let (id, _) = open(&mut client, 1, doc! {}, &[]).await;
    client.ok(doc! { "insert": "c", "documents": [{ "_id": 1 }] }).await;
    client.ok(doc! { "dropDatabase": 1 }).await;
    let (mut heard, mut still) = (Vec::new(), id);
    while still != 0 {
        let (events, open) = next(&mut client, id, "$cmd.aggregate").await;
        heard.extend(events);
        still = open;
    }
    assert_eq!(kinds(&heard), ["insert", "drop", "dropDatabase", "invalidate"]);
    let token = heard[3].get_document("_id").unwrap().clone();
    let resume = |field: &str| {
        doc! { "aggregate": 1, "pipeline": [{ "$changeStream": { field: token.clone() } }], "cursor": {} }
    };
    assert_eq!(client.refused(resume("resumeAfter")).await.0, 260);
    let id = cursor_id(&client.ok(resume("startAfter")).await);
    client.ok(doc! { "insert": "c", "documents": [{ "_id": 2 }] }).await;
    assert_eq!(kinds(&next(&mut client, id, "$cmd.aggregate").await.0), ["insert"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn expanded_events_cover_collections_and_indexes() {
    let mut client = Server::new().connect();
    let (id, _) = open(&mut client, 1, doc! { "showExpandedEvents": true }, &[]).await;
    client.ok(doc! { "create": "c" }).await;
    let index = doc! { "key": { "a.1": 1 }, "name": "by_a" };
    client.ok(doc! { "insert": "c", "documents": [{ "_id": 1, "a": { "1": 1 }, "b": [{ "1": 1 }] }] }).await;
    client.ok(doc! { "createIndexes": "c", "indexes": [index] }).await;
    client
        .ok(doc! { "update": "c", "updates": [{ "q": {}, "u": { "$set": { "a.1": 2, "b.0.1": 2 } } }] })
        .await;
    client.ok(doc! { "collMod": "c", "index": { "name": "by_a", "hidden": true } }).await;
    client.ok(doc! { "dropIndexes": "c", "index": "by_a" }).await;
    client.ok(doc! { "create": "target" }).await;
    client
        .ok(doc! { "renameCollection": "app.c", "to": "app.target", "dropTarget": true, "$db": "admin" })
        .await;
    let mut events = Vec::new();
    while events.len() < 8 {
        events.extend(next(&mut client, id, "$cmd.aggregate").await.0);
    }
    let expected =
        ["create", "insert", "createIndexes", "update", "modify", "dropIndexes", "create", "rename"];
    assert_eq!(kinds(&events), expected);
    let uuid = events[0].get("collectionUUID").unwrap();
    assert!([1, 3, 5].into_iter().all(|place: usize| events[place].get("collectionUUID") == Some(uuid)));
    let made = events[2].get_document("operationDescription").unwrap().get_array("indexes").unwrap();
    assert_eq!(made[0].as_document().unwrap(), &doc! { "v": 2, "key": { "a.1": 1 }, "name": "by_a" });
    let paths =
        events[3].get_document("updateDescription").unwrap().get_document("disambiguatedPaths").unwrap();
    assert_eq!(paths, &doc! { "b.0": ["b", 0] });
    let renamed = events[7].get_document("operationDescription").unwrap();
    assert_eq!(renamed.get_document("to").unwrap(), &doc! { "db": "app", "coll": "target" });
    assert!(renamed.get("dropTarget").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn events_before_a_rename_have_the_old_name() {
    let mut client = Server::new().connect();
    client.ok(doc! { "create": "c" }).await;
    let (id, _) = open(&mut client, "c", doc! {}, &[]).await;
    client.ok(doc! { "insert": "c", "documents": [{ "_id": 1 }] }).await;
    client.ok(doc! { "renameCollection": "app.c", "to": "app.d", "$db": "admin" }).await;
    let (mut heard, mut still) = (Vec::new(), id);
    while still != 0 {
        let (events, open) = next(&mut client, id, "c").await;
        heard.extend(events);
        still = open;
    }
    assert_eq!(kinds(&heard), ["insert", "rename", "invalidate"]);
    assert_eq!(heard[0].get_document("ns").unwrap().get_str("coll").unwrap(), "c");
}
