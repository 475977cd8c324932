//! `ropewalk.v1.Transactions`: all models in one commit. `commit` has transactions in one call, `open` those
//! over several, `refused` calls that are rejected.

mod commit;
mod open;
mod refused;

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost::Message as _;
use ropewalk::documents::lang::{Value, Writer};
use ropewalk_auth::{Caller, Right, Roles};
use ropewalk_grpc::proto::ropewalk::events::v1 as events;
use ropewalk_grpc::proto::ropewalk::v1::document::Encoding;
use ropewalk_grpc::proto::ropewalk::v1::documents_operation::Operation as Work;
use ropewalk_grpc::proto::ropewalk::v1::operation::Operation as Kind;
use ropewalk_grpc::proto::ropewalk::v1::operation_result::Kind as Done;
use ropewalk_grpc::proto::ropewalk::v1::sql_value::Kind as Sql;
use ropewalk_grpc::proto::ropewalk::v1::{self as proto, CommitRequest, CommitResponse};
use tonic::{Code, Request, Status};

use crate::events::{RpcStatus, failure};
use crate::{Server, within};

const PASSWORD: &str = "secret";

fn operation(kind: Kind) -> proto::Operation {
    proto::Operation { operation: Some(kind) }
}

fn json(text: &str) -> proto::Document {
    proto::Document { encoding: Some(Encoding::ExtendedJson(text.to_owned())) }
}

fn bson(fields: &[(&str, Value<'_>)]) -> proto::Document {
    let mut document = Writer::new();
    fields.iter().for_each(|(name, value)| document.put(name, *value));
    proto::Document { encoding: Some(Encoding::Bson(document.finish().into_bytes())) }
}

fn value(kind: Sql) -> proto::SqlValue {
    proto::SqlValue { kind: Some(kind) }
}

fn number(number: i64) -> proto::SqlValue {
    value(Sql::Int64Value(number))
}

fn text(text: &str) -> proto::SqlValue {
    value(Sql::TextValue(text.to_owned()))
}

fn tagged(tag: &str) -> events::Query {
    events::Query { items: vec![events::QueryItem { types: Vec::new(), tags: vec![tag.to_owned()] }] }
}

fn append(store: &str, event_type: &str, tags: &[&str]) -> proto::Operation {
    let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
    let event = events::Event { r#type: event_type.to_owned(), tags, ..events::Event::default() };
    let (store, events) = (store.to_owned(), vec![event]);
    operation(Kind::Append(proto::AppendEvents { store, events, ..proto::AppendEvents::default() }))
}

fn read(store: &str) -> proto::Operation {
    operation(Kind::Read(proto::ReadEvents { store: store.to_owned(), ..proto::ReadEvents::default() }))
}

fn statement(sql: &str, parameters: &[proto::SqlValue], expect: Option<u64>) -> proto::Statement {
    proto::Statement { sql: sql.to_owned(), parameters: parameters.to_vec(), expect }
}

fn sql(sql: &str) -> proto::Operation {
    operation(Kind::Sql(statement(sql, &[], None)))
}

fn documents(work: Work, expect: Option<u64>) -> proto::Operation {
    let (database, collection) = (String::new(), "orders".to_owned());
    let work = Some(work);
    operation(Kind::Documents(proto::DocumentsOperation { database, collection, operation: work, expect }))
}

fn insert(text: &str) -> proto::Operation {
    documents(Work::Insert(json(text)), None)
}

fn find() -> proto::Operation {
    documents(Work::Find(proto::FindDocuments::default()), None)
}

fn samples(name: &str) -> proto::Operation {
    let label = |name: &str, value: &str| proto::Label { name: name.to_owned(), value: value.to_owned() };
    let series = proto::SeriesSamples {
        labels: vec![label("__name__", name), label("sku", "rope")],
        samples: vec![proto::Sample { timestamp_millis: 1000, value: 1.0 }],
    };
    operation(Kind::Samples(proto::AppendSamples { store: String::new(), series: vec![series] }))
}

fn checkpoint(position: u64, expect: Option<u64>) -> proto::Operation {
    let (store, consumer) = ("shop".to_owned(), "board".to_owned());
    operation(Kind::Checkpoint(proto::SetCheckpoint { store, consumer, position, expect }))
}

fn commit(operations: Vec<proto::Operation>) -> CommitRequest {
    CommitRequest { operations, ..CommitRequest::default() }
}

async fn run(server: &Server, request: CommitRequest) -> Result<CommitResponse, Status> {
    within(server.transactions().commit(request)).await.map(|response| response.into_inner())
}

fn kinds(results: Vec<proto::OperationResult>) -> Vec<Done> {
    results.into_iter().map(|result| result.kind.unwrap()).collect()
}

fn appended(store: &str, first: u64, last: u64) -> proto::AppendedEvents {
    proto::AppendedEvents { store: store.to_owned(), first: Some(first), last: Some(last) }
}

fn rows(done: &Done) -> Vec<Vec<proto::SqlValue>> {
    let Done::Sql(result) = done else { panic!("{done:?} has no rows") };
    result.rows.iter().map(|row| row.values.clone()).collect()
}

/// The code, the stable name and the details of an error.
fn refusal(status: &Status) -> (Code, String, proto::TransactionError) {
    let (code, error) = failure(status);
    let details = RpcStatus::decode(status.details()).unwrap().details;
    let detail = details.get(1).map(|detail| {
        assert_eq!(detail.type_url, "type.googleapis.com/ropewalk.v1.TransactionError");
        proto::TransactionError::decode(&*detail.value).unwrap()
    });
    (code, error.code, detail.unwrap_or_default())
}

/// A server with a table of stock.
async fn shop() -> Server {
    let server = Server::start().await;
    let everything = proto::DeleteDocuments { filter: Some(json("{}")), many: true };
    let create = commit(vec![
        sql("CREATE TABLE stock (sku text PRIMARY KEY, n int NOT NULL CHECK (n >= 0))"),
        sql("INSERT INTO stock VALUES ('rope', 3)"),
        insert(r#"{"_id": 0}"#),
        documents(Work::Delete(everything), Some(1)),
    ]);
    run(&server, create).await.unwrap();
    server
}

/// The order `id` of one rope: an event, a row, a document and a sample.
fn order(id: &str) -> Vec<proto::Operation> {
    let tag = format!("order:{id}");
    let mut first = append("shop", "OrderPlaced", &[&tag]);
    if let Some(Kind::Append(append)) = &mut first.operation {
        append.conditions =
            vec![events::AppendCondition { fail_if_events_match: Some(tagged(&tag)), after: None }];
    }
    let update = "UPDATE stock SET n = n - $1 WHERE sku = $2";
    vec![
        first,
        operation(Kind::Sql(statement(update, &[number(1), text("rope")], Some(1)))),
        insert(&format!(r#"{{"_id": "{id}", "sku": "rope"}}"#)),
        samples("sold"),
    ]
}

/// Events, documents, samples and the total of the rows, by SQL in one snapshot.
async fn counts(server: &Server) -> [i64; 4] {
    let query = "SELECT (SELECT count(*) FROM events.shop), (SELECT count(*) FROM \"default\".orders), \
                 (SELECT count(*) FROM metrics.sold), (SELECT n FROM stock)";
    let results = kinds(run(server, commit(vec![sql(query)])).await.unwrap().results);
    let row = rows(&results[0]).remove(0);
    let numbers = row.into_iter().map(|value| match value.kind {
        Some(Sql::Int64Value(number)) => number,
        other => panic!("{other:?} is not a number"),
    });
    numbers.collect::<Vec<_>>().try_into().unwrap()
}

async fn create_user(server: &Server, name: &str, store: &str, right: Right) {
    let roles = Roles::from([(store.to_owned(), BTreeSet::from([right]))]);
    server.service.access().create_user(&Caller::everybody(), name, PASSWORD, roles).await.unwrap();
}

/// A message by a user.
fn by<T>(name: &str, message: T) -> Request<T> {
    let credentials = format!("Basic {}", STANDARD.encode(format!("{name}:{PASSWORD}")));
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", credentials.parse().unwrap());
    request
}
