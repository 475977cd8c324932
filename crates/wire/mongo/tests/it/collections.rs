//! Events and tables as collections of the database `ropewalk`.

use std::collections::BTreeSet;
use std::sync::Arc;

use bson::oid::ObjectId;
use bson::{Bson, Decimal128, Document, doc};
use ropewalk::Query;
use ropewalk::events::SequencedEventRef;
use ropewalk::projections::{ApplyError, MaterializedProjection, Output, ProjectionRun, RebuildMode};
use ropewalk_auth::{Caller, Right, Roles};
use ropewalk_sql::Session;

use crate::access::login;
use crate::client::{Client, MSG, Server, batch, cursor_id, lsid, message, sequence};
use crate::transactions::{end, part};

const DB: &str = "ropewalk";

/// Runs statements as the application that owns the tables.
fn define(server: &Server, statements: &[&str]) {
    let mut session = Session::new(server.service.database().clone());
    for text in statements {
        session.execute(text, &[]).unwrap();
    }
}

fn find(collection: &str, more: Document) -> Document {
    let mut command = doc! { "find": collection, "$db": DB };
    command.extend(more);
    command
}

fn insert(collection: &str, documents: Vec<Document>) -> Document {
    doc! { "insert": collection, "documents": documents, "$db": DB }
}

async fn found(client: &mut Client, collection: &str, more: Document) -> Vec<Document> {
    batch(&client.ok(find(collection, more)).await, "firstBatch")
}

/// The integers in the field `_id`.
async fn ids(client: &mut Client, collection: &str, more: Document) -> Vec<i64> {
    let id = |document: Document| match document.get("_id").unwrap() {
        Bson::Int32(id) => i64::from(*id),
        id => id.as_i64().unwrap(),
    };
    found(client, collection, more).await.into_iter().map(id).collect()
}

/// A server with four events.
async fn with_events() -> (Server, Client) {
    let server = Server::new();
    let mut client = server.connect();
    let events = vec![
        doc! { "type": "Sold", "tags": ["item:pen", "order:1"], "data": { "pieces": 2 } },
        doc! { "type": "Packed", "tags": ["order:1"], "metadata": { "by": "ann" } },
        doc! { "type": "Sold", "tags": ["item:ink", "order:2"], "data": { "pieces": 5 } },
        doc! { "type": "Sent", "tags": ["order:2"] },
    ];
    let answer = client.ok(insert("events.orders", events)).await;
    assert_eq!(answer.get_i32("n").unwrap(), 4);
    (server, client)
}

/// A server with a table of two rows.
async fn with_rows() -> (Server, Client) {
    let server = Server::new();
    define(&server, &["CREATE TABLE stock (item text PRIMARY KEY, pieces int NOT NULL, price numeric)"]);
    let mut client = server.connect();
    let price: Decimal128 = "1.50".parse().unwrap();
    let rows = vec![doc! { "_id": "pen", "pieces": 5, "price": price }, doc! { "item": "ink", "pieces": 2 }];
    assert_eq!(client.ok(insert("tables.stock", rows)).await.get_i32("n").unwrap(), 2);
    (server, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_found_by_type_tags_position_and_data() {
    let (_server, mut client) = with_events().await;
    for (filter, expected) in [
        (doc! {}, &[1_i64, 2, 3, 4][..]),
        (doc! { "type": "Sold" }, &[1, 3]),
        (doc! { "type": { "$eq": "Sold" }, "_id": { "$lt": 3 } }, &[1]),
        (doc! { "type": { "$in": ["Packed", "Sent"] } }, &[2, 4]),
        (doc! { "type": { "$in": [] } }, &[]),
        (doc! { "type": { "$ne": "Sold" } }, &[2, 4]),
        (doc! { "type": { "$regex": "^S" } }, &[1, 3, 4]),
        (doc! { "tags": "order:1" }, &[1, 2]),
        (doc! { "tags": { "$all": ["order:2", "item:ink"] } }, &[3]),
        (doc! { "tags": { "$in": ["item:pen", "order:2"] } }, &[1, 3, 4]),
        (doc! { "tags": ["order:2"] }, &[4]),
        (doc! { "_id": 3 }, &[3]),
        (doc! { "_id": { "$gt": 1, "$lte": 3 } }, &[2, 3]),
        (doc! { "_id": { "$in": [1, 4] } }, &[1, 4]),
        (doc! { "data.pieces": { "$gte": 3 } }, &[3]),
        (doc! { "$or": [{ "type": "Sent" }, { "data.pieces": 2 }] }, &[1, 4]),
        (doc! { "metadata.by": "ann", "tags": "order:1" }, &[2]),
    ] {
        assert_eq!(ids(&mut client, "events.orders", doc! { "filter": &filter }).await, expected, "{filter}");
    }
    let mut first = found(&mut client, "events.orders", doc! { "filter": { "_id": 1 } }).await.remove(0);
    assert!(first.remove("recordedAt").unwrap().as_datetime().is_some());
    assert!(first.remove("seq").unwrap().as_i64().is_some());
    let tags = ["item:pen", "order:1"];
    assert_eq!(first, doc! { "_id": 1_i64, "type": "Sold", "tags": tags, "data": { "pieces": 2 } });
    assert!(found(&mut client, "events.missing", doc! {}).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn sort_bounds_and_projection_apply_to_events_in_and_outside_of_transactions() {
    let (_server, mut client) = with_events().await;
    let mut number = 0;
    for (more, expected) in [
        (doc! { "sort": { "_id": -1 } }, &[4_i64, 3, 2, 1][..]),
        (doc! { "sort": { "$natural": -1 }, "limit": 1 }, &[4]),
        (doc! { "sort": { "type": 1, "_id": -1 } }, &[2, 4, 3, 1]),
        (doc! { "sort": { "type": 1, "_id": -1 }, "skip": 1, "limit": 2 }, &[4, 3]),
        (doc! { "skip": 1, "limit": 2 }, &[2, 3]),
        (doc! { "filter": { "type": "Sold" }, "limit": 1 }, &[1]),
        (doc! { "limit": 0 }, &[1, 2, 3, 4]),
    ] {
        assert_eq!(ids(&mut client, "events.orders", more.clone()).await, expected, "{more}");
        number += 1;
        let inside = client.ok(part(find("events.orders", more.clone()), 1, number, true)).await;
        let inside: Vec<i64> =
            batch(&inside, "firstBatch").iter().map(|d| d.get_i64("_id").unwrap()).collect();
        assert_eq!(inside, expected, "{more}");
    }
    let some = found(&mut client, "events.orders", doc! { "projection": { "type": 1 }, "limit": 1 }).await;
    assert_eq!(some, [doc! { "_id": 1_i64, "type": "Sold" }]);
}

#[tokio::test(flavor = "multi_thread")]
async fn cursor_over_events_reads_one_snapshot_in_batches() {
    let server = Server::new();
    let mut client = server.connect();
    let events = (0..700).map(|_| doc! { "type": "Counted" }).collect();
    client.ok(insert("events.counts", events)).await;
    let mut answer = client.ok(find("events.counts", doc! { "batchSize": 300 })).await;
    client.ok(insert("events.counts", vec![doc! { "type": "Counted" }])).await;
    let mut positions: Vec<i64> = Vec::new();
    let mut field = "firstBatch";
    loop {
        let documents = batch(&answer, field);
        assert!(documents.len() <= 300);
        positions.extend(documents.iter().map(|document| document.get_i64("_id").unwrap()));
        let id = cursor_id(&answer);
        if id == 0 {
            break;
        }
        let more = doc! { "getMore": id, "collection": "events.counts", "batchSize": 300, "$db": DB };
        (answer, field) = (client.ok(more).await, "nextBatch");
    }
    assert!(positions.iter().copied().eq(1..=700));
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_found_by_key_and_by_other_columns() {
    let (server, mut client) = with_rows().await;
    let price: Decimal128 = "1.50".parse().unwrap();
    let pen = doc! { "_id": "pen", "item": "pen", "pieces": 5, "price": price };
    let ink = doc! { "_id": "ink", "item": "ink", "pieces": 2, "price": Bson::Null };
    for (more, expected) in [
        (doc! {}, vec![&ink, &pen]),
        (doc! { "filter": { "_id": "pen" } }, vec![&pen]),
        (doc! { "filter": { "item": { "$eq": "pen" }, "pieces": 5 } }, vec![&pen]),
        (doc! { "filter": { "item": "pen", "pieces": 6 } }, vec![]),
        (doc! { "filter": { "item": 5 } }, vec![]),
        (doc! { "filter": { "item": { "$gt": "ink" } } }, vec![&pen]),
        (doc! { "filter": { "pieces": { "$lt": 5 } } }, vec![&ink]),
        (doc! { "filter": { "price": null } }, vec![&ink]),
        (doc! { "sort": { "pieces": -1 } }, vec![&pen, &ink]),
        (doc! { "sort": { "_id": 1 }, "skip": 1 }, vec![&pen]),
        (doc! { "sort": { "_id": -1 }, "limit": 1 }, vec![&pen]),
    ] {
        let rows = found(&mut client, "tables.stock", more.clone()).await;
        assert_eq!(rows.iter().collect::<Vec<_>>(), expected, "{more}");
    }
    define(&server, &["CREATE TABLE numbers (n int PRIMARY KEY)"]);
    define(&server, &["INSERT INTO numbers SELECT n FROM generate_series(1, 1000) AS g(n)"]);
    for n in [Bson::Int32(700), Bson::Int64(700), Bson::Double(700.0)] {
        assert_eq!(ids(&mut client, "tables.numbers", doc! { "filter": { "_id": n } }).await, [700]);
    }
    let mut answer = client.ok(find("tables.numbers", doc! { "batchSize": 400 })).await;
    let mut all = batch(&answer, "firstBatch").len();
    while cursor_id(&answer) != 0 {
        let more = doc! { "getMore": cursor_id(&answer), "collection": "tables.numbers", "$db": DB };
        answer = client.ok(more).await;
        all += batch(&answer, "nextBatch").len();
    }
    assert_eq!(all, 1000);
}

#[tokio::test(flavor = "multi_thread")]
async fn id_of_a_row_is_its_primary_key() {
    let server = Server::new();
    define(
        &server,
        &[
            "CREATE TABLE lines (receipt int, line int, item text, PRIMARY KEY (receipt, line))",
            "CREATE TABLE people (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text DEFAULT 'ann')",
            "CREATE TABLE notes (note text)",
            "CREATE TABLE own (_id text, n int PRIMARY KEY)",
            "CREATE SCHEMA shop",
            "CREATE TABLE shop.items (id int PRIMARY KEY)",
        ],
    );
    let mut client = server.connect();
    let lines = vec![
        doc! { "_id": { "receipt": 1, "line": 2 }, "item": "pen" },
        doc! { "receipt": 1, "line": 1, "item": "ink" },
        doc! { "receipt": 2, "line": 1 },
    ];
    client.ok(insert("tables.lines", lines)).await;
    for (filter, expected) in [
        (doc! { "receipt": 1 }, 2),
        (doc! { "_id": { "receipt": 1, "line": 2 } }, 1),
        (doc! { "_id": { "line": 2, "receipt": 1 } }, 0),
        (doc! { "_id.line": 1 }, 2),
        (doc! { "line": 1, "receipt": 2 }, 1),
    ] {
        let rows = found(&mut client, "tables.lines", doc! { "filter": &filter }).await;
        assert_eq!(rows.len(), expected, "{filter}");
    }
    // The ObjectId of drivers is not a key.
    let id = ObjectId::parse_str("0123456789abcdef01234567").unwrap();
    client.ok(insert("tables.people", vec![doc! { "_id": id }, doc! { "_id": id, "name": "bob" }])).await;
    let people = found(&mut client, "tables.people", doc! {}).await;
    assert_eq!(people[0], doc! { "_id": 1_i64, "id": 1_i64, "name": "ann" });
    assert_eq!(people[1].get_str("name").unwrap(), "bob");
    client.ok(insert("tables.notes", vec![doc! { "_id": id, "note": "x" }])).await;
    assert_eq!(found(&mut client, "tables.notes", doc! {}).await, [doc! { "note": "x" }]);
    client.ok(insert("tables.own", vec![doc! { "_id": "a", "n": 1 }])).await;
    assert_eq!(found(&mut client, "tables.own", doc! {}).await, [doc! { "_id": "a", "n": 1 }]);
    client.ok(insert("tables.shop.items", vec![doc! { "_id": 7 }])).await;
    assert_eq!(ids(&mut client, "tables.shop.items", doc! {}).await, [7]);
    for (collection, row) in [
        ("tables.notes", doc! { "_id": 1, "note": "y" }),
        ("tables.lines", doc! { "_id": 1 }),
        ("tables.lines", doc! { "_id": { "receipt": 1, "line": 3, "item": "x" } }),
        ("events.orders", doc! { "_id": 1, "type": "Sold" }),
    ] {
        assert_eq!(client.refused(insert(collection, vec![row])).await.0, 2, "{collection}");
    }
    // An event has the ObjectId as metadata, so that a driver's result can be traced to it.
    client.ok(insert("events.orders", vec![doc! { "_id": id, "type": "Sold" }])).await;
    let by_id = doc! { "filter": { "metadata._id": id.to_hex() } };
    assert_eq!(ids(&mut client, "events.orders", by_id).await, [1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_insert_writes_nothing_and_has_its_sqlstate() {
    let (_server, mut client) = with_rows().await;
    for (row, code, state) in [
        (doc! { "_id": "pen", "pieces": 1 }, 11_000, "23505"),
        (doc! { "_id": "cup" }, 125, "23502"),
        (doc! { "_id": "cup", "pieces": 1, "colour": "red" }, 125, "42703"),
        (doc! { "_id": "cup", "pieces": "many" }, 125, "22P02"),
        (doc! { "_id": "cup", "item": "cup", "pieces": 1 }, 125, "42701"),
    ] {
        let rows = vec![doc! { "_id": "box", "pieces": 1 }, row];
        let refused = client.run(insert("tables.stock", rows)).await;
        let found = (refused.get_i32("code").unwrap(), refused.get_str("sqlstate").unwrap());
        assert_eq!(found, (code, state), "{refused}");
    }
    assert_eq!(found(&mut client, "tables.stock", doc! {}).await.len(), 2);
    let events = vec![doc! { "type": "Sold" }, doc! { "type": "Sold", "colour": "red" }];
    assert_eq!(client.refused(insert("events.orders", events)).await.0, 40_415);
    assert!(found(&mut client, "events.orders", doc! {}).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn transaction_of_a_session_covers_a_document_an_event_and_a_row() {
    let (server, mut client) = with_rows().await;
    // The first collection of a database also reserves numbers of collections, in another commit.
    client.ok(doc! { "create": "receipts" }).await;
    for (number, ending) in [(1, "abortTransaction"), (2, "commitTransaction")] {
        let before = server.service.database().seq();
        let receipt = doc! { "insert": "receipts", "documents": [{ "_id": 1 }] };
        client.ok(part(receipt, 1, number, true)).await;
        let event = insert("events.orders", vec![doc! { "type": "Sold", "tags": ["item:cup"] }]);
        client.ok(part(event, 1, number, false)).await;
        let row = insert("tables.stock", vec![doc! { "_id": "cup", "pieces": 1 }]);
        client.ok(part(row, 1, number, false)).await;
        // The transaction sees its writes, other connections do not.
        let event = find("events.orders", doc! { "filter": { "tags": "item:cup" } });
        let event = client.ok(part(event, 1, number, false)).await;
        assert_eq!(batch(&event, "firstBatch")[0].get_str("type").unwrap(), "Sold");
        let row =
            client.ok(part(find("tables.stock", doc! { "filter": { "_id": "cup" } }), 1, number, false));
        assert_eq!(batch(&row.await, "firstBatch")[0].get_i32("pieces").unwrap(), 1);
        let mut other = server.connect();
        assert!(found(&mut other, "events.orders", doc! {}).await.is_empty());
        assert_eq!(found(&mut other, "tables.stock", doc! {}).await.len(), 2);
        client.ok(end(ending, 1, number)).await;
        let commits = server.service.database().seq().0 - before.0;
        assert_eq!(commits, u64::from(ending == "commitTransaction"));
    }
    assert_eq!(ids(&mut client, "events.orders", doc! {}).await, [1]);
    assert_eq!(found(&mut client, "tables.stock", doc! {}).await.len(), 3);
    assert_eq!(client.find("receipts", doc! {}).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_insert_is_executed_once() {
    let (_server, mut client) = with_rows().await;
    for (number, mut command) in [
        (1_i64, insert("events.orders", vec![doc! { "type": "Sold" }])),
        (2, insert("tables.stock", vec![doc! { "_id": "cup", "pieces": 1 }])),
    ] {
        command.extend(doc! { "lsid": lsid(1), "txnNumber": number });
        for _ in 0..2 {
            assert_eq!(client.ok(command.clone()).await.get_i32("n").unwrap(), 1);
        }
    }
    assert_eq!(ids(&mut client, "events.orders", doc! {}).await, [1]);
    assert_eq!(found(&mut client, "tables.stock", doc! {}).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn insert_takes_documents_of_a_sequence() {
    let (_server, mut client) = with_rows().await;
    let mut payload = message(0, &doc! { "insert": "tables.stock", "$db": DB });
    let rows = [doc! { "_id": "cup", "pieces": 1 }, doc! { "_id": "box", "pieces": 2 }];
    payload.extend(sequence("documents", &rows));
    client.send(MSG, &payload).await;
    assert_eq!(client.answer().await.unwrap().document().get_i32("n").unwrap(), 2);
    assert_eq!(found(&mut client, "tables.stock", doc! {}).await.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn list_collections_shows_event_stores_and_tables() {
    let (server, mut client) = with_rows().await;
    define(
        &server,
        &["CREATE SCHEMA shop", "CREATE TABLE shop.items (id int)", "CREATE VIEW seen AS SELECT 1 AS n"],
    );
    client.ok(insert("events.orders", vec![doc! { "type": "Sold" }])).await;
    let names = |answer: &Document| {
        let name = |document: Document| document.get_str("name").unwrap().to_owned();
        batch(answer, "firstBatch").into_iter().map(name).collect::<Vec<_>>()
    };
    let all = client.ok(doc! { "listCollections": 1, "$db": DB }).await;
    assert!(names(&all).contains(&"events.orders".to_owned()));
    let filter = doc! { "name": { "$regex": "^tables" } };
    let tables =
        client.ok(doc! { "listCollections": 1, "filter": filter, "nameOnly": true, "$db": DB }).await;
    assert_eq!(names(&tables), ["tables.shop.items", "tables.stock"]);
    let databases = client.ok(doc! { "listDatabases": 1, "$db": "admin" }).await;
    let databases = databases.get_array("databases").unwrap();
    assert!(databases.iter().all(|known| known.as_document().unwrap().get_str("name").unwrap() != DB));
}

/// A projection whose rebuild stops at its first event.
struct Stopping;

impl MaterializedProjection for Stopping {
    fn query(&self) -> Query {
        Query::all()
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::table("counts")]
    }

    fn prepare(&self, run: &mut ProjectionRun<'_>) -> Result<(), ApplyError> {
        let name = run.name("counts")?;
        run.tx().tables().create_table_like("counts", &name)?;
        // A table that is not an output; its name is older than the rule that reserves it.
        run.tx().tables().create_table_like("counts", "counts__g7")?;
        Ok(())
    }

    fn apply(&self, _: &mut ProjectionRun<'_>, _: &SequencedEventRef<'_>) -> Result<(), ApplyError> {
        Err("the event is refused".into())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_an_unfinished_rebuild_are_not_listed() {
    let (server, mut client) = with_rows().await;
    client.ok(insert("events.orders", vec![doc! { "type": "Sold" }])).await;
    define(
        &server,
        &[
            "CREATE TABLE counts (kind text PRIMARY KEY, n int NOT NULL)",
            "CREATE PROJECTION counting FROM EVENTS orders ON 'Sold' DO (INSERT INTO counts VALUES (event.type, 1))",
        ],
    );
    // No runner of projections runs here: the rebuild is that of a handler of the same name.
    let database = server.service.database();
    let projections = database.projections("orders").unwrap();
    projections.register("counting", Arc::new(Stopping)).unwrap();
    projections.rebuild("counting", RebuildMode::ForceFullRebuild).unwrap_err();
    assert!(database.tables().names().unwrap().contains(&"counts__g1".to_owned()));
    let filter = doc! { "name": { "$regex": "^tables" } };
    let listed = client.ok(doc! { "listCollections": 1, "filter": filter, "$db": DB }).await;
    let listed = batch(&listed, "firstBatch");
    let names: Vec<_> = listed.iter().map(|known| known.get_str("name").unwrap()).collect();
    assert_eq!(names, ["tables.counts", "tables.counts__g7", "tables.stock"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_definitions_are_rejected_and_not_listed() {
    let (server, mut client) = with_rows().await;
    define(
        &server,
        &[
            "CREATE SCHEMA shop",
            "CREATE VIEW seen AS SELECT 1 AS n",
            "CREATE SEQUENCE numbers",
            "COMMENT ON TABLE stock IS 'goods'",
        ],
    );
    let database = server.service.database();
    let stored = database.tables().names().unwrap();
    let ours: Vec<_> = stored.iter().filter(|name| name.starts_with("ropewalk_")).collect();
    assert!(ours.len() >= 4, "{ours:?}");
    let before = database.seq();
    for name in ours {
        for collection in [format!("tables.{name}"), format!("tables.public.{name}")] {
            for command in [find(&collection, doc! {}), insert(&collection, vec![doc! { "name": "seen" }])] {
                let refused = client.run(command.clone()).await;
                assert_eq!(refused.get_i32("code").unwrap(), 13, "{command}\n{refused}");
                assert!(refused.get_str("errmsg").unwrap().contains("stores definitions"), "{refused}");
            }
        }
    }
    assert_eq!(client.refused(find("tables.ropewalk_projection_parked", doc! {})).await.0, 13);
    assert_eq!(database.seq(), before);
    let filter = doc! { "name": { "$regex": "ropewalk_" } };
    let listed = client.ok(doc! { "listCollections": 1, "filter": filter, "$db": DB }).await;
    assert!(batch(&listed, "firstBatch").is_empty(), "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unsupported_commands_and_names_have_typed_errors() {
    let (_server, mut client) = with_rows().await;
    let name = "tables.stock";
    for mut command in [
        doc! { "count": name },
        doc! { "distinct": name, "key": "item" },
        doc! { "aggregate": name, "pipeline": [], "cursor": {} },
        doc! { "aggregate": name, "pipeline": [{ "$changeStream": {} }], "cursor": {} },
        doc! { "explain": { "find": name } },
        doc! { "update": name, "updates": [{ "q": {}, "u": { "$set": { "pieces": 1 } } }] },
        doc! { "delete": name, "deletes": [{ "q": {}, "limit": 0 }] },
        doc! { "findAndModify": name, "query": {}, "remove": true },
        doc! { "create": "tables.new" },
        doc! { "drop": name },
        doc! { "dropDatabase": 1 },
        doc! { "createIndexes": name, "indexes": [{ "key": { "pieces": 1 }, "name": "pieces" }] },
        doc! { "listIndexes": name },
        doc! { "renameCollection": "ropewalk.tables.stock", "to": "app.stock", "$db": "admin" },
        doc! { "renameCollection": "app.c", "to": "ropewalk.tables.c", "$db": "admin" },
        doc! { "aggregate": "c", "pipeline": [{ "$out": { "db": DB, "coll": "c" } }], "cursor": {}, "$db": "app" },
        doc! { "aggregate": "c", "pipeline": [{ "$merge": { "into": { "db": DB, "coll": "c" } } }], "cursor": {}, "$db": "app" },
    ] {
        command.entry("$db".to_owned()).or_insert(DB.into());
        let refused = client.run(command.clone()).await;
        assert_eq!(refused.get_i32("code").unwrap(), 115, "{command}\n{refused}");
        assert_eq!(refused.get_str("codeName").unwrap(), "CommandNotSupported");
    }
    let distinct = doc! { "distinct": name, "key": "item", "$db": DB };
    assert_eq!(client.refused(part(distinct, 1, 1, true)).await.0, 115);
    assert_eq!(client.refused(end("commitTransaction", 1, 1)).await.0, 251);
    for (command, code) in [
        (find("stock", doc! {}), 73),
        (find("tables.", doc! {}), 73),
        (find("documents.c", doc! {}), 73),
        (find("tables.missing", doc! {}), 26),
        (insert("tables.missing", vec![doc! { "n": 1 }]), 26),
        (find("tables.missing.stock", doc! {}), 26),
        (find(name, doc! { "hint": "pieces" }), 238),
        (find(name, doc! { "tailable": true }), 238),
        (find(name, doc! { "colour": 1 }), 40_415),
        (find(name, doc! { "filter": { "$colour": 1 } }), 2),
    ] {
        assert_eq!(client.refused(command.clone()).await.0, code, "{command}");
    }
    let mut unordered = insert(name, vec![doc! { "_id": "cup", "pieces": 1 }]);
    unordered.insert("ordered", false);
    assert_eq!(client.refused(unordered).await.0, 238);
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_are_those_of_the_store_and_of_all_tables() {
    let (server, mut root) = with_rows().await;
    let many = (0..200).map(|_| doc! { "type": "Sold" }).collect();
    root.ok(insert("events.orders", many)).await;
    root.ok(insert("events.other", vec![doc! { "type": "Sold" }])).await;
    let (access, everybody) = (server.service.access(), Caller::everybody());
    let roles = Roles::from([("orders".to_owned(), BTreeSet::from([Right::Read]))]);
    access.create_user(&everybody, "ann", "secret", roles).await.unwrap();
    let mut client = server.connect();
    login(&mut client, "secret", true).await;
    let opened = client.ok(find("events.orders", doc! { "batchSize": 5 })).await;
    for command in [
        find("events.other", doc! {}),
        find("tables.stock", doc! {}),
        insert("events.orders", vec![doc! { "type": "Sold" }]),
        insert("tables.stock", vec![doc! { "_id": "cup", "pieces": 1 }]),
    ] {
        assert_eq!(client.refused(command.clone()).await.0, 13, "{command}");
    }
    let listed = client.ok(doc! { "listCollections": 1, "$db": DB }).await;
    assert_eq!(batch(&listed, "firstBatch").len(), 1);
    // A withdrawn right ends the cursor.
    access.update_user(&everybody, "ann", None, |roles| roles.clear()).await.unwrap();
    let more = doc! { "getMore": cursor_id(&opened), "collection": "events.orders", "$db": DB };
    assert_eq!(client.refused(more).await.0, 13);
}

#[tokio::test(flavor = "multi_thread")]
async fn time_and_memory_of_queries_are_limited() {
    let server = Server::new();
    define(&server, &["CREATE TABLE numbers (n int PRIMARY KEY)"]);
    define(&server, &["INSERT INTO numbers SELECT n FROM generate_series(1, 100000) AS g(n)"]);
    let mut client = server.connect();
    for more in [doc! { "filter": { "n": -1.5 } }, doc! { "sort": { "n": -1 } }] {
        let mut command = find("tables.numbers", more);
        command.insert("maxTimeMS", 1);
        let refused = client.run(command).await;
        assert_eq!(refused.get_i32("code").unwrap(), 50, "{refused}");
        assert!(refused.get_str("errmsg").unwrap().contains("1ms, maxTimeMS"), "{refused}");
    }
    for _ in 0..5 {
        let text = "x".repeat(15 << 20);
        client.ok(insert("events.large", vec![doc! { "type": "Large", "data": text }])).await;
    }
    let sorted = find("events.large", doc! { "sort": { "type": 1 } });
    assert_eq!(client.refused(sorted).await.0, 10_334);
    // A batch has at most 16 MiB.
    let first = client.ok(find("events.large", doc! {})).await;
    assert_eq!(batch(&first, "firstBatch").len(), 1);
    assert!(cursor_id(&first) > 0);
}
