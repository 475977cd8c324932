//! Calls that are rejected: missing rights, invalid messages, limits.

use std::time::Duration;

use axum::body::Body;
use prost::Message as _;
use ropewalk_auth::{Caller, Right, Roles};
use ropewalk_grpc::proto::ropewalk::events::v1 as events;
use ropewalk_grpc::proto::ropewalk::v1::document::Encoding;
use ropewalk_grpc::proto::ropewalk::v1::documents_operation::Operation as Work;
use ropewalk_grpc::proto::ropewalk::v1::index_hint::Index;
use ropewalk_grpc::proto::ropewalk::v1::operation::Operation as Kind;
use ropewalk_grpc::proto::ropewalk::v1::transaction_error::Place;
use ropewalk_grpc::proto::ropewalk::v1::update_documents::Change;
use ropewalk_grpc::proto::ropewalk::v1::{self as proto, CommitRequest};
use ropewalk_wire::Limits;
use tonic::{Code, Status};

use super::{
    PASSWORD, append, by, checkpoint, commit, counts, create_user, documents, find, insert, json, operation,
    order, read, refusal, run, samples, shop, sql,
};
use crate::limits::status_of;
use crate::{Server, until, within};

#[tokio::test]
async fn each_operation_is_checked_as_if_it_came_alone() {
    let server = shop().await;
    run(&server, commit(order("o1"))).await.unwrap();
    for (name, store, right) in [
        ("appender", "shop", Right::Append),
        ("reader", "shop", Right::Read),
        ("keeper", "default", Right::Append),
        ("sql-reader", "*", Right::Read),
        ("admin", "*", Right::Admin),
    ] {
        create_user(&server, name, store, right).await;
    }
    let update = proto::UpdateDocuments {
        filter: Some(json("{}")),
        change: Some(Change::Update(json(r#"{"$set": {"a": 1}}"#))),
        ..proto::UpdateDocuments::default()
    };
    let operations = [
        ("append", append("shop", "A", &[])),
        ("read", read("shop")),
        ("insert", insert("{}")),
        ("find", find()),
        ("update", documents(Work::Update(update), None)),
        ("samples", samples("m")),
        ("select", sql("SELECT 1 FROM stock")),
        ("sql update", sql("UPDATE stock SET n = n")),
        ("ddl", sql("CREATE TABLE IF NOT EXISTS u (id int)")),
        ("checkpoint", checkpoint(1, None)),
    ];
    let all = operations.each_ref().map(|(kind, _)| *kind);
    let allowed: [(&str, &[&str]); 5] = [
        ("appender", &["append"]),
        ("reader", &["read", "checkpoint"]),
        ("keeper", &["insert", "samples"]),
        ("sql-reader", &["read", "find", "select", "checkpoint"]),
        ("admin", &all),
    ];
    let mut client = server.transactions();
    for (name, allowed) in allowed {
        for (kind, operation) in &operations {
            let expected = if allowed.contains(kind) { Code::Ok } else { Code::PermissionDenied };
            let request = by(name, commit(vec![operation.clone()]));
            let in_one_call = within(client.commit(request)).await.map(drop);
            assert_eq!(code(&in_one_call), expected, "{name}: {kind}: {in_one_call:?}");
            let executed = execute_alone(&server, name, operation).await;
            assert_eq!(code(&executed), expected, "{name}: {kind}: {executed:?}");
        }
    }
    let anonymous = run(&server, commit(vec![read("shop")])).await.unwrap_err();
    assert_eq!(anonymous.code(), Code::Unauthenticated);
}

fn code(result: &Result<(), Status>) -> Code {
    result.as_ref().err().map_or(Code::Ok, Status::code)
}

/// Runs an operation in an open transaction, which is rolled back.
async fn execute_alone(server: &Server, name: &str, operation: &proto::Operation) -> Result<(), Status> {
    let mut client = server.transactions();
    let begun = within(client.begin(by(name, proto::BeginRequest::default()))).await?;
    let transaction = begun.into_inner().transaction;
    let request = proto::ExecuteRequest {
        transaction: transaction.clone(),
        operations: vec![operation.clone()],
        ..proto::ExecuteRequest::default()
    };
    within(client.execute(by(name, request))).await?;
    within(client.rollback(by(name, proto::RollbackRequest { transaction }))).await.map(drop)
}

/// Operations that are invalid, with the begin of their error.
fn invalid_operations() -> Vec<(proto::Operation, &'static str)> {
    let update = |change, many| {
        let (filter, sort) = (Some(json("{}")), Some(json(r#"{"a": 1}"#)).filter(|_| many));
        let update = proto::UpdateDocuments { filter, change, many, sort, ..Default::default() };
        documents(Work::Update(update), None)
    };
    let operators = |text: &str| Some(Change::Update(json(text)));
    let delete = |filter| documents(Work::Delete(proto::DeleteDocuments { filter, many: true }), None);
    let get = |text: &str| documents(Work::Get(json(text)), None);
    let insert_of = |document| documents(Work::Insert(document), None);
    let damaged = proto::Document { encoding: Some(Encoding::Bson(vec![9; 9])) };
    let hint = Some(proto::IndexHint { index: Some(Index::Fields(json(r#"{"a": "x"}"#))) });
    let hinted = proto::FindDocuments { hint, ..proto::FindDocuments::default() };
    let nameless = proto::AppendSamples {
        series: vec![proto::SeriesSamples::default()],
        ..proto::AppendSamples::default()
    };
    let mut without_query = append("shop", "A", &[]);
    if let Some(Kind::Append(append)) = &mut without_query.operation {
        append.conditions = vec![events::AppendCondition::default()];
    }
    vec![
        (proto::Operation { operation: None }, "one of append, read, documents"),
        (without_query, "condition 0 has no query"),
        (insert_of(proto::Document::default()), "insert: one of bson and extended_json"),
        (insert("{"), "insert: it is not JSON"),
        (insert_of(damaged), "insert: "),
        (get(r#"{"id": 1}"#), "get: a document with the field _id alone"),
        (get(r#"{"_id": 1, "a": 1}"#), "get: a document with the field _id alone"),
        (delete(None), "delete: filter: it is absent"),
        (delete(Some(json(r#"{"$no": 1}"#))), "delete: filter: "),
        (update(None, false), "update: one of update and pipeline"),
        (update(operators("{}"), true), "update: sort excludes many"),
        (update(operators(r#"{"$no": {}}"#), false), "update: update: "),
        (documents(Work::Find(hinted), None), "find: hint: "),
        (operation(Kind::Samples(nameless)), "samples.series[0]: "),
    ]
}

#[tokio::test]
async fn invalid_messages_are_rejected_with_their_place() {
    let server = shop().await;
    for (wrong, said) in invalid_operations() {
        let request = commit(vec![append("shop", "A", &[]), wrong.clone()]);
        let status = run(&server, request).await.unwrap_err();
        let (code, name, detail) = refusal(&status);
        assert_eq!((code, name.as_str()), (Code::InvalidArgument, "invalid_argument"), "{wrong:?}: {status}");
        assert_eq!(detail.place, Some(Place::Operation(1)), "{wrong:?}");
        assert!(status.message().starts_with(&format!("operations[1]: {said}")), "{wrong:?}: {status}");
    }
    let one = || commit(vec![append("shop", "A", &[])]);
    let precondition = vec![proto::Precondition::default()];
    for (request, said) in [
        (commit(Vec::new()), "at least one operation"),
        (commit(vec![proto::Operation::default(); 10_001]), "at most 10000"),
        (CommitRequest { isolation: 2, ..one() }, "isolation 2 is not known"),
        (CommitRequest { durability: 9, ..one() }, "durability 9 is not known"),
        (CommitRequest { async_interval_millis: Some(1), ..one() }, "async_interval_millis"),
        (CommitRequest { document_encoding: 7, ..one() }, "document_encoding 7 is not known"),
        (
            CommitRequest { preconditions: precondition, ..one() },
            "preconditions[0]: one of events, documents",
        ),
    ] {
        let status = run(&server, request).await.unwrap_err();
        assert_eq!(refusal(&status).0, Code::InvalidArgument);
        assert!(status.message().contains(said), "{status}");
    }
    assert_eq!(counts(&server).await, [0, 0, 0, 3]);
}

#[tokio::test]
async fn message_over_the_limit_is_not_received() {
    let limits = Limits { request_bytes: 1 << 20, ..Limits::default() };
    let server = Server::with(limits).await;
    let mut large = append("shop", "A", &[]);
    if let Some(Kind::Append(append)) = &mut large.operation {
        append.events[0].data = vec![0; (1 << 20) + 1];
    }
    assert_eq!(run(&server, commit(vec![large.clone()])).await.unwrap_err().code(), Code::OutOfRange);
    run(&server, commit(vec![append("shop", "A", &[])])).await.unwrap();
    // A caller without any right sends little.
    let roles = Roles::new();
    let access = server.service.access();
    access.create_user(&Caller::everybody(), "ann", PASSWORD, roles).await.unwrap();
    if let Some(Kind::Append(append)) = &mut large.operation {
        append.events[0].data.truncate(128 << 10);
    }
    let status = within(server.transactions().commit(by("ann", commit(vec![large])))).await.unwrap_err();
    assert_eq!(refusal(&status).1, "too_large", "{status}");
}

#[tokio::test]
async fn response_memory_is_released_after_the_response() {
    let server = shop().await;
    let memory = server.service.answer_memory().clone();
    let available = memory.available_bytes();
    let wide = || commit(vec![sql("SELECT repeat('x', 1000000)")]);
    run(&server, wide()).await.unwrap();
    until(|| memory.available_bytes() == available).await;
    let mut held = Vec::new();
    while memory.available_bytes() > 0 {
        let mut reservation = memory.connection().reservation();
        reservation.try_cover(memory.available_bytes().min(32 << 20)).unwrap();
        held.push(reservation);
    }
    let status = run(&server, wide()).await.unwrap_err();
    assert_eq!(refusal(&status).0, Code::ResourceExhausted);
    drop(held);
    run(&server, wide()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn statement_ends_at_the_deadline_of_the_client() {
    let server = Server::start().await;
    let message = commit(vec![sql("SELECT pg_sleep(600)")]).encode_to_vec();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let framed = [&[0_u8][..], &length, &message].concat();
    let request = |timeout: &str| {
        http::Request::post("/ropewalk.v1.Transactions/Commit")
            .header("content-type", "application/grpc")
            .header("grpc-timeout", timeout)
            .body(Body::from(framed.clone()))
            .unwrap()
    };
    let begun = std::time::Instant::now();
    assert_eq!(within(status_of(&server, request("200m"))).await.as_deref(), Some("4"));
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!(within(status_of(&server, request("soon"))).await.as_deref(), Some("3"));
}
