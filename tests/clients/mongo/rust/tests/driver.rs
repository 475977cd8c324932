//! MongoDB's Rust driver as it is published, with its defaults, against `ropewalk serve --mongo-listen`.
//! Run by `cargo test` with MONGO_URL in the environment.

use std::time::Duration;

use futures_util::{FutureExt as _, TryStreamExt as _};
use mongodb::bson::{Document, doc};
use mongodb::change_stream::event::OperationType;
use mongodb::error::{ErrorKind, WriteFailure};
use mongodb::options::FullDocumentType;
use mongodb::{Client, ClientSession, Collection, Database, IndexModel};

type Outcome = mongodb::error::Result<()>;

async fn open(name: &str) -> mongodb::error::Result<Database> {
    let url = std::env::var("MONGO_URL").expect("MONGO_URL is the server's address");
    Ok(Client::with_uri_str(url).await?.database(&format!("rust_{name}")))
}

#[tokio::test]
async fn documents() -> Outcome {
    let things: Collection<Document> = open("documents").await?.collection("things");
    things.insert_many((0..300).map(|n| doc! { "_id": n, "tens": n / 10 })).await?;
    let cursor = things.find(doc! { "_id": { "$gte": 100 } }).sort(doc! { "_id": -1 }).batch_size(30).await?;
    let found: Vec<Document> = cursor.try_collect().await?;
    assert_eq!((found.len(), found[0].get_i32("_id").unwrap()), (200, 299));
    let updated = things.update_many(doc! { "tens": 3 }, doc! { "$set": { "x": true } }).await?;
    assert_eq!(updated.modified_count, 10);
    let before = things.find_one_and_update(doc! { "_id": 7 }, doc! { "$inc": { "tens": 5 } }).await?;
    assert_eq!(before, Some(doc! { "_id": 7, "tens": 0 }));
    let error = things.insert_one(doc! { "_id": 1 }).await.unwrap_err();
    match *error.kind {
        ErrorKind::Write(WriteFailure::WriteError(error)) => assert_eq!(error.code, 11_000),
        other => panic!("a duplicate key, not {other}"),
    }
    things.create_index(IndexModel::builder().keys(doc! { "tens": 1 }).build()).await?;
    assert_eq!(things.list_index_names().await?, ["_id_", "tens_1"]);
    let pipeline = [doc! { "$group": { "_id": "$x", "n": { "$sum": 1 } } }, doc! { "$sort": { "n": 1 } }];
    let groups: Vec<Document> = things.aggregate(pipeline).await?.try_collect().await?;
    assert_eq!(groups, [doc! { "_id": true, "n": 10 }, doc! { "_id": null, "n": 290 }]);
    assert_eq!(things.delete_many(doc! { "tens": { "$gte": 10 } }).await?.deleted_count, 200);
    assert_eq!(things.count_documents(doc! {}).await?, 100);
    Ok(())
}

async fn add_two(session: &mut ClientSession, things: &Collection<Document>, id: i32) -> Outcome {
    things.insert_one(doc! { "_id": id }).session(&mut *session).await?;
    things.insert_one(doc! { "_id": id + 1 }).session(session).await?;
    Ok(())
}

#[tokio::test]
async fn transactions() -> Outcome {
    let database = open("transactions").await?;
    let things: Collection<Document> = database.collection("things");
    let mut session = database.client().start_session().await?;
    session
        .start_transaction()
        .and_run(&things, |session, things| add_two(session, things, 1).boxed())
        .await?;
    assert_eq!(things.count_documents(doc! {}).await?, 2);

    session.start_transaction().await?;
    add_two(&mut session, &things, 10).await?;
    assert_eq!(things.count_documents(doc! {}).await?, 2, "others do not see it");
    assert_eq!(things.count_documents(doc! {}).session(&mut session).await?, 4);
    session.abort_transaction().await?;
    assert_eq!(things.count_documents(doc! {}).await?, 2);

    session.start_transaction().await?;
    things.update_one(doc! { "_id": 1 }, doc! { "$set": { "by": "one" } }).session(&mut session).await?;
    let mut other = database.client().start_session().await?;
    other.start_transaction().await?;
    let met =
        things.update_one(doc! { "_id": 1 }, doc! { "$set": { "by": "two" } }).session(&mut other).await;
    session.commit_transaction().await?;
    let error = match met {
        Ok(_) => other.commit_transaction().await.unwrap_err(),
        Err(error) => error,
    };
    assert!(error.contains_label("TransientTransactionError"), "{error}");
    let kept = things.find_one(doc! { "_id": 1 }).await?;
    assert_eq!(kept, Some(doc! { "_id": 1, "by": "one" }));
    Ok(())
}

#[tokio::test]
async fn change_streams() -> Outcome {
    let things: Collection<Document> = open("change_streams").await?.collection("things");
    let mut stream = things.watch().full_document(FullDocumentType::UpdateLookup).await?;
    things.insert_one(doc! { "_id": 1 }).await?;
    things.update_one(doc! { "_id": 1 }, doc! { "$set": { "x": 2 } }).await?;
    things.delete_one(doc! { "_id": 1 }).await?;
    let mut events = Vec::new();
    while events.len() < 3 {
        let next = tokio::time::timeout(Duration::from_secs(30), stream.try_next()).await;
        events.push(next.expect("an event comes")?.expect("the stream goes on"));
    }
    let kinds: Vec<_> = events.iter().map(|event| event.operation_type.clone()).collect();
    assert_eq!(kinds, [OperationType::Insert, OperationType::Update, OperationType::Delete]);

    let mut resumed = things.watch().resume_after(events[1].id.clone()).await?;
    let next = tokio::time::timeout(Duration::from_secs(30), resumed.try_next()).await;
    assert_eq!(next.expect("an event comes")?.map(|event| event.operation_type), Some(OperationType::Delete));
    Ok(())
}
