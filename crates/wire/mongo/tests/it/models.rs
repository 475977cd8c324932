//! Commands on events, rows and samples, in transactions of documents and alone.

use bson::spec::BinarySubtype;
use bson::{Binary, Bson, DateTime, Decimal128, Document, doc};
use ropewalk::Query;
use ropewalk::events::ReadOptions;
use ropewalk::series::Matcher;
use ropewalk_sql::Session;

use crate::client::{Client, Server, lsid};
use crate::transactions::{end, part};

/// Runs a statement as the application that owns the tables.
fn define(server: &Server, text: &str) {
    Session::new(server.service.database().clone()).execute(text, &[]).unwrap();
}

fn append(event_type: &str, tag: &str) -> Document {
    doc! { "ropewalkAppend": "orders", "events": [{ "type": event_type, "tags": [tag] }] }
}

/// An append that fails if an event with the tag exists after the position.
fn unless(tag: &str, after: Option<i64>) -> Document {
    let mut condition = doc! { "failIfEventsMatch": { "items": [{ "types": ["Sold"], "tags": [tag] }] } };
    condition.extend(after.map(|after| ("after".to_owned(), Bson::Int64(after))));
    let mut command = append("Sold", tag);
    command.insert("conditions", vec![condition]);
    command
}

fn sql(text: &str) -> Document {
    doc! { "ropewalkSql": text }
}

fn samples(time: impl Into<Bson>, value: f64) -> Document {
    let time: Bson = time.into();
    let series = doc! { "labels": { "__name__": "sold", "item": "pen" }, "samples": [[time, value]] };
    doc! { "ropewalkSamples": "default", "series": [series] }
}

/// The data of all events, as text.
fn events(server: &Server) -> Vec<String> {
    let store = server.service.database().events("orders").unwrap();
    let events = store.read(&Query::all(), ReadOptions::default()).unwrap();
    events.map(|event| String::from_utf8(event.unwrap().event.data).unwrap()).collect()
}

fn series(server: &Server) -> u64 {
    let db = server.service.database();
    let store = db.series("default").unwrap();
    db.snapshot().series(&store).count(&[Matcher::equal("__name__", "sold")])
}

async fn rows(client: &mut Client, query: &str) -> Vec<Bson> {
    client.ok(sql(query)).await.get_array("rows").unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn transaction_over_four_models_is_one_commit() {
    let server = Server::new();
    define(&server, "CREATE TABLE stock (item text PRIMARY KEY, pieces int NOT NULL)");
    define(&server, "INSERT INTO stock VALUES ('pen', 5)");
    let mut client = server.connect();
    // The first collection of a database also reserves numbers of collections, in another commit.
    client.ok(doc! { "create": "receipts" }).await;
    for (number, ending) in [(1, "abortTransaction"), (2, "commitTransaction")] {
        let before = server.service.database().seq();
        let receipt = doc! { "insert": "receipts", "documents": [{ "_id": 1, "item": "pen" }] };
        client.ok(part(receipt, 1, number, true)).await;
        let sold = doc! {
            "ropewalkAppend": "orders",
            "events": [
                { "type": "Sold", "tags": ["item:pen"], "data": { "pieces": 2, "cents": 250_i64 } },
                {
                    "type": "Packed",
                    "data": Binary { subtype: BinarySubtype::Generic, bytes: b"raw".to_vec() },
                    "id": "6f1c2a52-5c58-4c53-9a3b-0f2f3d6b9a10",
                    "metadata": { "by": "ann" },
                },
            ],
        };
        let appended = client.ok(part(sold, 1, number, false)).await;
        assert_eq!((appended.get_i32("count").unwrap(), appended.get("first")), (2, None));
        let mut update = sql("UPDATE stock SET pieces = pieces - $1 WHERE item = $2 RETURNING pieces");
        update.insert("parameters", vec![Bson::Int64(2), "pen".into()]);
        let updated = client.ok(part(update, 1, number, false)).await;
        assert_eq!(updated.get_str("command").unwrap(), "UPDATE 1");
        assert_eq!(updated.get_array("rows").unwrap(), &[Bson::Array(vec![Bson::Int32(3)])]);
        let metric = samples(DateTime::from_millis(1_000), 2.0);
        assert_eq!(client.ok(part(metric, 1, number, false)).await.get_i32("n").unwrap(), 1);
        // The transaction sees its writes, other connections do not.
        let seen = client.ok(part(sql("SELECT type FROM events.orders"), 1, number, false)).await;
        assert_eq!(seen.get_array("rows").unwrap().len(), 2);
        let mut other = server.connect();
        assert_eq!(rows(&mut other, "SELECT pieces FROM stock").await, [Bson::Array(vec![5.into()])]);
        assert_eq!((events(&server).len(), series(&server)), (0, 0));
        client.ok(end(ending, 1, number)).await;
        let commits = server.service.database().seq().0 - before.0;
        assert_eq!(commits, u64::from(ending == "commitTransaction"));
    }
    assert_eq!(events(&server), [r#"{"pieces":2,"cents":250}"#, "raw"]);
    assert_eq!(rows(&mut client, "SELECT pieces FROM stock").await, [Bson::Array(vec![3.into()])]);
    assert_eq!((series(&server), client.find("receipts", doc! {}).await.len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn append_returns_positions_and_rejects_matching_events() {
    let server = Server::new();
    let mut client = server.connect();
    let first = client.ok(append("Sold", "order:1")).await;
    assert_eq!((first.get_i64("first").unwrap(), first.get_i64("last").unwrap()), (1, 1));
    client.ok(unless("order:1", Some(1))).await;
    for after in [None, Some(1)] {
        let refused = client.run(unless("order:1", after)).await;
        assert_eq!(refused.get_i32("code").unwrap(), 940_001);
        assert_eq!(refused.get_str("codeName").unwrap(), "AppendConditionFailed");
        let position = if after.is_some() { 2_i64 } else { 1 };
        let info = doc! { "condition": 0_i64, "item": 0_i64, "position": position };
        assert_eq!(refused.get_document("errInfo").unwrap(), &info);
        assert!(refused.get("errorLabels").is_none());
        // Checked at the commit of a transaction.
        let number = after.unwrap_or_default() + 1;
        client.ok(part(unless("order:1", after), 1, number, true)).await;
        let (code, labels) = client.refused(end("commitTransaction", 1, number)).await;
        assert_eq!((code, labels), (940_001, Vec::new()));
    }
    // An event of the same transaction matches at once.
    client.ok(part(append("Sold", "order:2"), 1, 3, true)).await;
    assert_eq!(client.refused(part(unless("order:2", None), 1, 3, false)).await, (940_001, Vec::new()));
    assert_eq!(client.refused(end("commitTransaction", 1, 3)).await.0, 251);
    assert_eq!(events(&server).len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn conflicting_rows_are_transient_in_transactions_and_retried_alone() {
    let server = Server::new();
    define(&server, "CREATE TABLE counters (id int PRIMARY KEY, n int)");
    define(&server, "INSERT INTO counters VALUES (1, 0)");
    let update = || sql("UPDATE counters SET n = n + 1 WHERE id = 1");
    let (mut ann, mut bob) = (server.connect(), server.connect());
    ann.ok(part(update(), 1, 1, true)).await;
    bob.ok(part(update(), 2, 1, true)).await;
    ann.ok(end("commitTransaction", 1, 1)).await;
    let (code, labels) = bob.refused(end("commitTransaction", 2, 1)).await;
    assert_eq!((code, labels), (112, vec!["TransientTransactionError".to_owned()]));
    let mut writers = Vec::new();
    for _ in 0..4 {
        let mut client = server.connect();
        writers.push(tokio::spawn(async move {
            for _ in 0..10 {
                client.ok(sql("UPDATE counters SET n = n + 1 WHERE id = 1")).await;
            }
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(rows(&mut ann, "SELECT n FROM counters").await, [Bson::Array(vec![41.into()])]);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_statement_has_its_sqlstate_and_ends_the_transaction() {
    let server = Server::new();
    define(&server, "CREATE TABLE users (id int PRIMARY KEY, name text UNIQUE)");
    let mut client = server.connect();
    client.ok(part(append("Registered", "user:1"), 1, 1, true)).await;
    client.ok(part(sql("INSERT INTO users VALUES (1, 'ann')"), 1, 1, false)).await;
    let taken = client.run(part(sql("INSERT INTO users VALUES (2, 'ann')"), 1, 1, false)).await;
    assert_eq!((taken.get_i32("code").unwrap(), taken.get_str("codeName").unwrap()), (125, "CommandFailed"));
    let field = |name: &str| taken.get_str(name).unwrap().to_owned();
    assert_eq!((field("sqlstate"), field("table")), ("23505".to_owned(), "users".to_owned()));
    assert_eq!(field("constraint"), "users_name_key");
    assert!(taken.get("errorLabels").is_none());
    assert_eq!(client.refused(end("commitTransaction", 1, 1)).await.0, 251);
    assert!(events(&server).is_empty() && rows(&mut client, "SELECT * FROM users").await.is_empty());
    for (text, state) in [
        ("SELEC 1", "42601"),
        ("SELECT * FROM missing", "42P01"),
        ("BEGIN", "0A000"),
        ("COMMIT", "0A000"),
        ("COPY users TO STDOUT", "0A000"),
        ("LISTEN news", "0A000"),
        ("VACUUM", "0A000"),
        ("CREATE TABLE t (id int)", "0A000"),
        ("SELECT * FROM users FOR UPDATE", "0A000"),
        ("SELECT $1::int", "42601"),
    ] {
        let refused = client.run(sql(text)).await;
        let (code, sqlstate) = (refused.get_i32("code").unwrap(), refused.get_str("sqlstate").unwrap());
        assert_eq!((code, sqlstate), (125, state), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_and_rows_have_the_types_of_bson() {
    let mut client = Server::new().connect();
    let id = bson::oid::ObjectId::parse_str("0123456789abcdef01234567").unwrap();
    let uuid = Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] };
    let bytes = Binary { subtype: BinarySubtype::Generic, bytes: vec![0, 255] };
    let decimal: Decimal128 = "12.50".parse().unwrap();
    let time = DateTime::from_millis(1_732_406_400_123);
    let types = [
        ("int", Bson::Int64(7), Bson::Int32(7), "integer"),
        ("bigint", Bson::Double(7.0), Bson::Int64(7), "bigint"),
        ("float8", Bson::Double(1.5), Bson::Double(1.5), "double precision"),
        ("bool", Bson::Boolean(true), Bson::Boolean(true), "boolean"),
        ("numeric", Bson::Decimal128(decimal), Bson::Decimal128(decimal), "numeric"),
        ("text", "a'b".into(), "a'b".into(), "text"),
        ("text", id.into(), id.to_hex().into(), "text"),
        ("timestamptz", time.into(), time.into(), "timestamp with time zone"),
        ("date", time.into(), "2024-11-24".into(), "date"),
        ("uuid", uuid.clone().into(), uuid.into(), "uuid"),
        ("bytea", bytes.clone().into(), bytes.into(), "bytea"),
        ("jsonb", doc! { "b": [1, null] }.into(), doc! { "b": [1, null] }.into(), "jsonb"),
        (
            "text[]",
            Bson::Array(vec!["a".into(), Bson::Null]),
            Bson::Array(vec!["a".into(), Bson::Null]),
            "text[]",
        ),
        ("text", Bson::Null, Bson::Null, "text"),
    ];
    for (ty, given, returned, name) in types {
        let mut query = sql(&format!("SELECT $1::{ty} AS v"));
        query.insert("parameters", vec![given]);
        let answer = client.ok(query).await;
        let column: Bson = doc! { "name": "v", "type": name }.into();
        assert_eq!(answer.get_array("columns").unwrap(), &[column], "{ty}");
        assert_eq!(answer.get_array("rows").unwrap(), &[Bson::Array(vec![returned])], "{ty}");
    }
    let mut query = sql("SELECT $1::int");
    query.insert("parameters", vec![Bson::MinKey]);
    assert_eq!(client.run(query).await.get_str("sqlstate").unwrap(), "42804");
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_commands_return_the_stored_answer() {
    let server = Server::new();
    define(&server, "CREATE TABLE counters (id int PRIMARY KEY, n int)");
    define(&server, "INSERT INTO counters VALUES (1, 0)");
    let mut client = server.connect();
    let update = sql("UPDATE counters SET n = n + 1 RETURNING n");
    for (number, mut command) in [(1_i64, unless("order:1", None)), (2, update), (3, samples(1_000_i64, 1.0))]
    {
        command.extend(doc! { "lsid": lsid(1), "txnNumber": number });
        let plain = |mut answer: Document| {
            answer.remove("operationTime");
            answer.remove("$clusterTime");
            answer
        };
        let first = plain(client.ok(command.clone()).await);
        client.ok(append("Other", "order:9")).await;
        assert_eq!(plain(client.ok(command).await), first);
    }
    assert_eq!(events(&server).len(), 4);
    let mut old = append("Sold", "order:2");
    old.extend(doc! { "lsid": lsid(1), "txnNumber": 1_i64 });
    assert_eq!(client.refused(old).await.0, 225);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_arguments_end_the_transaction() {
    let mut client = Server::new().connect();
    let series = doc! { "labels": { "__name__": "sold" }, "samples": [["now", 1]] };
    let invalid = [
        doc! { "ropewalkAppend": "orders", "events": [{ "tags": ["a"] }] },
        doc! { "ropewalkSql": 1 },
        doc! { "ropewalkSamples": "default", "series": [series] },
        doc! { "insert": "receipts", "documents": 1 },
        doc! { "find": "receipts", "filter": { "$fly": 1 } },
    ];
    for (number, command) in (1..).zip(invalid) {
        let receipt = doc! { "insert": "receipts", "documents": [{ "_id": 1 }] };
        client.ok(part(receipt, 1, number, true)).await;
        client.refused(part(command.clone(), 1, number, false)).await;
        assert_eq!(client.refused(end("commitTransaction", 1, number)).await.0, 251, "{command}");
    }
    // Also if it is the first command.
    client.refused(part(doc! { "ropewalkSql": 1 }, 1, 9, true)).await;
    assert_eq!(client.refused(end("commitTransaction", 1, 9)).await.0, 251);
    assert!(client.find("receipts", doc! {}).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn repeatable_command_that_only_reads_stores_nothing() {
    let server = Server::new();
    define(&server, "CREATE TABLE counters (id int PRIMARY KEY, n int)");
    let mut client = server.connect();
    let before = server.service.database().seq();
    for text in ["SELECT repeat('x', 1000000)", "UPDATE counters SET n = n + 1 RETURNING n"] {
        let mut command = sql(text);
        command.extend(doc! { "lsid": lsid(1), "txnNumber": 1_i64 });
        client.ok(command.clone()).await;
        client.ok(command).await;
    }
    assert_eq!(server.service.database().seq(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_fields_are_rejected() {
    let mut client = Server::new().connect();
    for (command, code) in [
        (doc! { "ropewalkAppend": "s", "events": [{ "type": "t" }], "colour": 1 }, 40_415),
        (doc! { "ropewalkAppend": "s", "events": [{ "type": "t", "colour": 1 }] }, 40_415),
        (doc! { "ropewalkAppend": "s", "events": [{ "tags": ["a"] }] }, 40_414),
        (doc! { "ropewalkAppend": "s", "events": [{ "type": "t", "tags": [1] }] }, 14),
        (doc! { "ropewalkAppend": "s", "events": [{ "type": "t", "id": "x" }] }, 2),
        (doc! { "ropewalkAppend": "s", "events": [] }, 2),
        (doc! { "ropewalkAppend": "s", "events": [{ "type": "t" }], "conditions": [{ "after": 1 }] }, 40_414),
        (doc! { "ropewalkAppend": 1, "events": [{ "type": "t" }] }, 14),
        (doc! { "ropewalkSql": "SELECT 1", "params": [] }, 40_415),
        (doc! { "ropewalkSql": 1 }, 14),
        (doc! { "ropewalkSamples": "default", "series": [{ "labels": { "a": "b" } }] }, 40_414),
        (doc! { "ropewalkSamples": "default", "series": [{ "labels": { "a": 1 }, "samples": [] }] }, 14),
        (doc! { "ropewalkSamples": "default", "series": [{ "labels": { "a": "b" }, "samples": [[1]] }] }, 14),
        (doc! { "ropewalkSamples": "default", "series": [{ "labels": {}, "samples": [] }] }, 2),
    ] {
        assert_eq!(client.refused(command.clone()).await.0, code, "{command}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn open_transactions_of_all_models_share_one_memory_limit() {
    let mut client = Server::new().connect();
    let large = |mebibytes: usize| {
        let data = Binary { subtype: BinarySubtype::Generic, bytes: vec![0; mebibytes << 20] };
        doc! { "ropewalkAppend": "orders", "events": [{ "type": "Large", "data": data }] }
    };
    for session in 1..=4 {
        for n in 0..4 {
            client.ok(part(large(15), session, 1, n == 0)).await;
        }
    }
    client.ok(part(large(15), 5, 1, true)).await;
    let (code, labels) = client.refused(part(large(5), 5, 1, false)).await;
    assert_eq!((code, labels), (365, vec!["TransientTransactionError".to_owned()]));
    client.ok(end("abortTransaction", 1, 1)).await;
    client.ok(part(large(15), 6, 1, true)).await;
}
