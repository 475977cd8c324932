//! Transactions in one call.

use ropewalk::documents::lang::Value;
use ropewalk_grpc::proto::ropewalk::v1::documents_operation::Operation as Work;
use ropewalk_grpc::proto::ropewalk::v1::operation::Operation as Kind;
use ropewalk_grpc::proto::ropewalk::v1::operation_result::Kind as Done;
use ropewalk_grpc::proto::ropewalk::v1::precondition::Precondition as Check;
use ropewalk_grpc::proto::ropewalk::v1::sql_value::Kind as Sql;
use ropewalk_grpc::proto::ropewalk::v1::transaction_error::Place;
use ropewalk_grpc::proto::ropewalk::v1::update_documents::Change;
use ropewalk_grpc::proto::ropewalk::v1::{self as proto, CommitRequest, CommitResponse};
use tonic::Code;

use super::{
    append, appended, bson, checkpoint, commit, counts, documents, find, insert, json, kinds, number,
    operation, order, read, refusal, rows, run, shop, sql, statement, tagged, text, value,
};
use crate::events::failure;

#[tokio::test]
async fn transaction_over_four_models_is_one_commit() {
    let server = shop().await;
    let before = server.service.database().seq().0;
    let done = run(&server, commit(order("o1"))).await.unwrap();
    assert_eq!((done.seq, done.is_repetition), (before + 1, false));
    let updated =
        proto::SqlResult { command: "UPDATE 1".to_owned(), count: Some(1), ..proto::SqlResult::default() };
    let expected = [
        Done::Appended(appended("shop", 1, 1)),
        Done::Sql(updated),
        Done::Inserted(proto::InsertedDocument { id: Some(bson(&[("_id", Value::String("o1"))])) }),
        Done::Samples(proto::AppendedSamples { samples: 1 }),
    ];
    assert_eq!(kinds(done.results), expected);
    assert_eq!(counts(&server).await, [1, 1, 1, 2]);
}

#[tokio::test]
async fn failed_operation_rolls_back_all_models_and_is_named() {
    let server = shop().await;
    run(&server, commit(order("o1"))).await.unwrap();
    let unknown = Work::Get(json(r#"{"_id": "none"}"#));
    for (last, code, name) in [
        (sql("UPDATE stock SET n = n - 9"), Code::InvalidArgument, "invalid_argument"),
        (sql("UPDATE nothing SET n = 1"), Code::NotFound, "not_found"),
        (sql("COMMIT"), Code::InvalidArgument, "invalid_argument"),
        (insert(r#"{"_id": "o1"}"#), Code::AlreadyExists, "already_exists"),
        (documents(unknown, Some(1)), Code::FailedPrecondition, "precondition_failed"),
        (checkpoint(99, None), Code::InvalidArgument, "invalid_argument"),
        (checkpoint(1, Some(7)), Code::FailedPrecondition, "precondition_failed"),
    ] {
        let request = commit([order("o2"), vec![last.clone()]].concat());
        let status = run(&server, request).await.unwrap_err();
        let (found, found_name, detail) = refusal(&status);
        assert_eq!((found, found_name.as_str()), (code, name), "{last:?}: {status}");
        assert_eq!(detail.place, Some(Place::Operation(4)), "{last:?}");
        assert!(status.message().starts_with("operations[4]: "), "{status}");
        assert_eq!(counts(&server).await, [1, 1, 1, 2], "{last:?}");
    }
    let status = run(&server, commit(vec![sql("UPDATE stock SET n = -1")])).await.unwrap_err();
    let detail = refusal(&status).2;
    assert_eq!(
        (detail.sqlstate.as_deref(), detail.constraint.as_deref()),
        (Some("23514"), Some("stock_n_check"))
    );
    // The condition of an append is checked by the commit.
    let mut again = order("o1");
    again.truncate(2);
    let status = run(&server, commit(again)).await.unwrap_err();
    let conflict = failure(&status).1.conflict.unwrap();
    assert_eq!((conflict.condition, conflict.position), (0, 1));
    let (code, name, detail) = refusal(&status);
    assert_eq!((code, name.as_str(), detail.place), (Code::FailedPrecondition, "condition_failed", None));
    assert_eq!(counts(&server).await, [1, 1, 1, 2]);
}

#[tokio::test]
async fn unmet_precondition_is_named_and_nothing_is_written() {
    let server = shop().await;
    run(&server, commit(order("o1"))).await.unwrap();
    let unchanged = |after| {
        let (store, query) = ("shop".to_owned(), Some(tagged("order:o1")));
        Check::Events(proto::EventsUnchanged { store, query, after })
    };
    let matches = |filter: proto::Document, count| {
        let (database, collection) = (String::new(), "orders".to_owned());
        Check::Documents(proto::DocumentsMatch { database, collection, filter: Some(filter), count })
    };
    let query = |n| Check::Sql(statement("SELECT 1 FROM stock WHERE n = $1", &[number(n)], None));
    for (check, holds) in [
        (unchanged(1), true),
        (unchanged(0), false),
        (matches(json(r#"{"_id": "o1", "sku": "rope"}"#), None), true),
        (matches(bson(&[("sku", Value::String("x"))]), None), false),
        (matches(json(r#"{"sku": "x"}"#), Some(0)), true),
        (query(2), true),
        (query(3), false),
    ] {
        let precondition = |check| proto::Precondition { precondition: Some(check) };
        let request = CommitRequest {
            preconditions: vec![precondition(query(2)), precondition(check.clone())],
            ..commit(vec![sql("UPDATE stock SET n = n")])
        };
        let before = server.service.database().seq();
        match run(&server, request).await {
            Ok(done) => {
                assert!(holds, "{check:?}");
                assert_eq!(done.results.len(), 1, "{check:?}");
            }
            Err(status) => {
                assert!(!holds, "{check:?}: {status}");
                let (code, name, detail) = refusal(&status);
                assert_eq!((code, name.as_str()), (Code::FailedPrecondition, "precondition_failed"));
                assert_eq!(detail.place, Some(Place::Precondition(1)));
                assert!(status.message().starts_with("preconditions[1]: "), "{status}");
                assert_eq!(server.service.database().seq(), before);
            }
        }
    }
}

#[tokio::test]
async fn operations_see_the_writes_of_those_before_them() {
    let server = shop().await;
    let change = proto::UpdateDocuments {
        filter: Some(bson(&[("_id", Value::Int32(1))])),
        change: Some(Change::Update(json(r#"{"$inc": {"n": 1}}"#))),
        ..proto::UpdateDocuments::default()
    };
    let stages = vec![json(r#"{"$set": {"n": {"$add": [1, 2]}}}"#)];
    let pipeline = proto::UpdateDocuments {
        filter: Some(json(r#"{"_id": 2}"#)),
        change: Some(Change::Pipeline(proto::Pipeline { stages })),
        upsert: true,
        ..proto::UpdateDocuments::default()
    };
    let sorted = proto::FindDocuments {
        sort: Some(json(r#"{"_id": -1}"#)),
        projection: Some(json(r#"{"n": 1}"#)),
        limit: Some(2),
        ..proto::FindDocuments::default()
    };
    let first = bson(&[("_id", Value::Int32(1)), ("n", Value::Int32(1)), ("x", Value::Int32(0))]);
    let request = CommitRequest {
        document_encoding: proto::DocumentEncoding::ExtendedJson.into(),
        ..commit(vec![
            append("shop", "A", &["t"]),
            read("shop"),
            documents(Work::Insert(first), None),
            documents(Work::Update(change), Some(1)),
            documents(Work::Update(pipeline), None),
            documents(Work::Find(sorted), Some(2)),
            documents(Work::Get(json(r#"{"_id": 1}"#)), None),
            documents(Work::Get(json(r#"{"_id": 9}"#)), None),
            append("shop", "B", &[]),
        ])
    };
    let results = kinds(run(&server, request).await.unwrap().results);
    assert_eq!(results[0], Done::Appended(appended("shop", 1, 1)));
    let Done::Events(found) = &results[1] else { panic!("{:?}", results[1]) };
    let event = found.events[0].event.clone().unwrap();
    assert_eq!((found.events.len(), found.events[0].position, event.r#type.as_str()), (1, 1, "A"));
    assert_eq!(event.tags, ["t"]);
    let updated = |matched, upserted_id| {
        Done::Updated(proto::UpdatedDocuments { matched, modified: matched, upserted_id })
    };
    assert_eq!(results[3], updated(1, None));
    assert_eq!(results[4], updated(0, Some(json(r#"{"_id":2}"#))));
    let listed = vec![json(r#"{"_id":2,"n":3}"#), json(r#"{"_id":1,"n":2}"#)];
    assert_eq!(results[5], Done::Documents(proto::Documents { documents: listed }));
    let found = |document| Done::Document(proto::FoundDocument { document });
    assert_eq!(results[6], found(Some(json(r#"{"_id":1,"n":2,"x":0}"#))));
    assert_eq!(results[7], found(None));
    assert_eq!(results[8], Done::Appended(appended("shop", 2, 2)));
}

#[tokio::test]
async fn sql_values_retain_their_types() {
    let server = shop().await;
    let create =
        "CREATE TABLE t (a bool, b smallint, c bigint, d float8, e text, f bytea, g numeric, h date)";
    let insert = "INSERT INTO t VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    let values = [
        value(Sql::BoolValue(true)),
        number(-7),
        number(i64::MAX),
        value(Sql::DoubleValue(f64::INFINITY)),
        text("größe"),
        value(Sql::BytesValue(vec![0, 255])),
        text("12.50"),
        proto::SqlValue { kind: None },
    ];
    let insert = operation(Kind::Sql(statement(insert, &values, Some(1))));
    let request = commit(vec![sql(create), insert, sql("SELECT * FROM t")]);
    let results = kinds(run(&server, request).await.unwrap().results);
    assert_eq!(rows(&results[2]), [values.to_vec()]);
    let Done::Sql(selected) = &results[2] else { panic!("{:?}", results[2]) };
    assert_eq!((selected.command.as_str(), selected.count), ("SELECT 1", Some(1)));
    let column = &selected.columns[1];
    assert_eq!((column.name.as_str(), column.r#type.as_str()), ("b", "smallint"));
    let large = statement("INSERT INTO t (b) VALUES ($1)", &[number(1 << 20)], None);
    let status = run(&server, commit(vec![operation(Kind::Sql(large))])).await.unwrap_err();
    assert_eq!(refusal(&status).2.sqlstate.as_deref(), Some("22003"), "{status}");
}

#[tokio::test]
async fn repeated_key_returns_the_first_result() {
    let server = shop().await;
    let keyed =
        |key: &str, id: &str| CommitRequest { idempotency_key: Some(key.to_owned()), ..commit(order(id)) };
    let first = run(&server, keyed("k1", "o1")).await.unwrap();
    run(&server, commit(vec![append("shop", "Other", &[])])).await.unwrap();
    let again = run(&server, keyed("k1", "o1")).await.unwrap();
    assert_eq!(again, CommitResponse { is_repetition: true, ..first });
    assert_eq!(counts(&server).await, [2, 1, 1, 2]);
    let status = run(&server, keyed("k1", "o2")).await.unwrap_err();
    let (code, name, _) = refusal(&status);
    assert_eq!((code, name.as_str()), (Code::FailedPrecondition, "idempotency_mismatch"));
    // A failed transaction stores no result.
    assert_eq!(run(&server, keyed("k2", "o1")).await.unwrap_err().code(), Code::AlreadyExists);
    assert!(!run(&server, keyed("k2", "o2")).await.unwrap().is_repetition);
    let status = run(&server, keyed("", "o3")).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn newest_commit_is_a_precondition() {
    let server = shop().await;
    let seen = server.service.database().seq();
    let request = |id: &str| {
        let check = proto::Precondition { precondition: Some(Check::Seq(seen.0)) };
        CommitRequest { preconditions: vec![check], ..commit(order(id)) }
    };
    assert_eq!(run(&server, request("o1")).await.unwrap().seq, seen.0 + 1);
    let status = run(&server, request("o2")).await.unwrap_err();
    let (code, name, detail) = refusal(&status);
    assert_eq!((code, name.as_str()), (Code::FailedPrecondition, "precondition_failed"));
    assert_eq!(detail.place, Some(Place::Precondition(0)));
    assert_eq!(counts(&server).await, [1, 1, 1, 2]);
}

#[tokio::test]
async fn earlier_commit_is_read_until_it_is_unreadable() {
    let server = shop().await;
    let first = run(&server, commit(order("o1"))).await.unwrap().seq;
    let second = run(&server, commit(order("o2"))).await.unwrap().seq;
    let read = || CommitRequest { at: Some(first), ..commit(vec![sql("SELECT n FROM stock"), read("shop")]) };
    let done = run(&server, read()).await.unwrap();
    assert_eq!(done.seq, first);
    let results = kinds(done.results);
    assert_eq!(rows(&results[0]), [[number(2)]]);
    let Done::Events(found) = &results[1] else { panic!("{:?}", results[1]) };
    assert_eq!(found.events.len(), 1);
    let write = CommitRequest { at: Some(first), ..commit(order("o3")) };
    assert_eq!(refusal(&run(&server, write).await.unwrap_err()).0, Code::InvalidArgument);
    let both = CommitRequest { includes: Some(first), ..read() };
    assert_eq!(refusal(&run(&server, both).await.unwrap_err()).0, Code::InvalidArgument);

    server.service.database().checkpoint().unwrap();
    let third = run(&server, commit(order("o3"))).await.unwrap().seq;
    let (code, name, detail) = refusal(&run(&server, read()).await.unwrap_err());
    assert_eq!((code, name.as_str()), (Code::OutOfRange, "commit_unreadable"));
    let oldest = detail.oldest_readable.unwrap();
    assert!((second..=third).contains(&oldest), "{oldest}");
}

#[tokio::test]
async fn snapshot_includes_a_commit() {
    let server = shop().await;
    let done = run(&server, commit(order("o1"))).await.unwrap();
    let request = CommitRequest { includes: Some(done.seq), ..commit(vec![find()]) };
    let read = run(&server, request).await.unwrap();
    assert_eq!(read.seq, done.seq);
    let results = kinds(read.results);
    let Done::Documents(found) = &results[0] else { panic!("{:?}", results[0]) };
    let fields = [("_id", Value::String("o1")), ("sku", Value::String("rope"))];
    assert_eq!(found.documents, [bson(&fields)]);
}
