//! Several operations on documents of one database in one commit: all of them, or none.

use std::sync::Arc;

use axum::response::Response;
use ropewalk::documents::lang::{DocBuf, Owned, Value};
use ropewalk::documents::{Collection, DocumentsError, DocumentsTx, Find, UpdateSpec};
use ropewalk_wire::Needs;
use ropewalk_wire::extjson::{self, Form};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::collections::DatabaseName;
use super::queries::put_updated;
use super::requests::{self, DeleteIn, FindIn, UpdateIn};
use super::{Desk, Place, responses};
use crate::kit::body::{JsonText, from_json};
use crate::kit::json::{DurabilityIn, Object};
use crate::kit::problem::{Problem, ProblemBody, Refusal};
use crate::route::{DATABASE, Route};

/// Most operations of one transaction.
const OPERATIONS_MAX: usize = 10_000;
/// Most bytes of documents in its response.
const ANSWER_BYTES_MAX: usize = 64 << 20;

pub(super) fn routes() -> Vec<Route> {
    vec![Route::new(Needs::read_and_append(DATABASE), routes!(transaction))]
}

/// One operation: a collection, and one of `insert`, `update`, `delete`, `get`, `find`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TransactionOperation)]
struct OperationIn<'a> {
    collection: String,
    /// A document.
    #[serde(borrow, default)]
    #[schema(value_type = Option<Object>)]
    insert: Option<&'a RawValue>,
    #[serde(borrow, default)]
    #[schema(value_type = Option<UpdateIn<'a>>)]
    update: Option<Object<UpdateIn<'a>>>,
    #[serde(borrow, default)]
    #[schema(value_type = Option<DeleteIn<'a>>)]
    delete: Option<Object<DeleteIn<'a>>>,
    /// The `_id` of a document.
    #[serde(borrow, default)]
    #[schema(value_type = Option<serde_json::Value>)]
    get: Option<&'a RawValue>,
    #[serde(borrow, default)]
    #[schema(value_type = Option<FindIn<'a>>)]
    find: Option<Object<FindIn<'a>>>,
    /// How many documents it has to match, delete or find: otherwise the entire transaction is rejected
    /// (412).
    expect: Option<u64>,
}

/// A transaction.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TransactionRequest)]
struct TransactionIn<'a> {
    /// In this order; each sees the writes of those before it.
    #[serde(borrow)]
    #[schema(value_type = Vec<OperationIn<'a>>)]
    operations: Vec<Object<OperationIn<'a>>>,
    /// As for appends.
    #[serde(default)]
    #[schema(value_type = Option<String>, pattern = "^(sync|buffered|async:[0-9]+)$")]
    durability: DurabilityIn,
}

/// The result of each operation, as its own route returns it.
#[derive(Serialize, ToSchema)]
#[schema(as = TransactionResults)]
#[allow(dead_code)] // only its schema is used: the results are written by hand
struct ResultsOut {
    #[schema(value_type = Vec<Object>)]
    results: Vec<serde_json::Value>,
}

enum Work {
    Insert(DocBuf),
    Update(UpdateSpec, bool),
    Delete(Find),
    Get(Owned),
    Find(Find, Form),
}

struct Operation {
    collection: Collection,
    work: Work,
    expect: Option<u64>,
}

fn parsed(desk: &Desk, asked: &OperationIn<'_>) -> Result<Operation, Problem> {
    let options = desk.options();
    let own_durability = asked.update.as_ref().is_some_and(|update| update.0.durability.is_some())
        || asked.delete.as_ref().is_some_and(|delete| delete.0.durability.is_some());
    if own_durability {
        return Err(Problem::invalid("durability is that of the transaction"));
    }
    let mut works = Vec::new();
    if let Some(text) = asked.insert {
        works.push(Work::Insert(requests::document("insert", text.get())?));
    }
    if let Some(Object(update)) = &asked.update {
        works.push(Work::Update(update.spec(&options)?, update.many));
    }
    if let Some(Object(delete)) = &asked.delete {
        works.push(Work::Delete(delete.find(&options)?));
    }
    if let Some(text) = asked.get {
        let id = extjson::parse_value(text.get()).map_err(|error| Problem::from(error).within("get"))?;
        works.push(Work::Get(id));
    }
    if let Some(Object(find)) = &asked.find {
        works.push(Work::Find(find.find(&options)?, responses::form(find.canonical)));
    }
    let work = works.pop().filter(|_| works.is_empty());
    let work =
        work.ok_or_else(|| Problem::invalid("one of insert, update, delete, get and find is needed"))?;
    Ok(Operation { collection: desk.collection(&asked.collection)?, work, expect: asked.expect })
}

impl Operation {
    /// Runs the operation; writes its result, and returns how many documents it concerned.
    fn run(
        &self,
        tx: &mut DocumentsTx<'_>,
        out: &mut Vec<u8>,
        memory: &mut responses::Memory,
    ) -> Result<u64, DocumentsError> {
        let collection = &self.collection;
        match &self.work {
            Work::Insert(document) => {
                let id = tx.insert_one(collection, document.bytes())?;
                out.extend_from_slice(&responses::named("id", Some(id.value()), Form::Relaxed));
                Ok(1)
            }
            Work::Update(spec, many) => {
                let updated = match many {
                    true => tx.update_many(collection, spec)?,
                    false => tx.update_one(collection, spec)?,
                };
                put_updated(out, &updated);
                Ok(updated.matched)
            }
            Work::Delete(find) => {
                let deleted = tx.delete(collection, find)?;
                out.extend_from_slice(format!("{{\"deleted\":{deleted}}}").as_bytes());
                Ok(deleted)
            }
            Work::Get(id) => {
                let found = tx.get(collection, id.value())?;
                let document = found.as_ref().map(|found| Value::Document(found.doc()));
                out.extend_from_slice(&responses::named("document", document, Form::Relaxed));
                Ok(u64::from(found.is_some()))
            }
            Work::Find(find, form) => {
                let (mut found, mut bytes) = (Vec::new(), out.len());
                tx.visit(collection, find, &mut |document: DocBuf| {
                    bytes += document.bytes().len();
                    if bytes > ANSWER_BYTES_MAX {
                        return Err(DocumentsError::TooLarge {
                            what: "answer",
                            bytes,
                            max: ANSWER_BYTES_MAX,
                        });
                    }
                    memory.cover(bytes)?;
                    found.push(document);
                    Ok(true)
                })?;
                let values = found.iter().map(|document| Value::Document(document.doc()));
                out.extend_from_slice(&responses::listed("documents", values, *form));
                Ok(found.len() as u64)
            }
        }
    }
}

/// Runs all of the operations, in one commit, or none.
///
/// Each reads the writes of those before it. Nothing that they have read has changed at the commit: the
/// server retries a transaction that conflicts with others. With `expect` an operation fails the entire
/// transaction when it does not concern so many documents.
#[utoipa::path(
    post, path = "/v1/databases/{database}/transaction", operation_id = "transaction", tag = "documents",
    params(DatabaseName),
    request_body = TransactionIn<'static>,
    responses(
        (status = 200, description = "Committed. A result for each operation, in order.", body = ResultsOut),
        (status = 409, description = "A document is there, or a unique index has its values: `already_exists`. Nothing was written.", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
async fn transaction(Place { desk, .. }: Place<DatabaseName>, body: JsonText) -> Result<Response, Problem> {
    let desk = Arc::new(desk);
    let at = desk.clone();
    let parse = move |text: &str| {
        let TransactionIn { operations, durability } = from_json(text)?;
        if operations.is_empty() || operations.len() > OPERATIONS_MAX {
            let what =
                format!("operations: there are {}; 1 to {OPERATIONS_MAX} are possible", operations.len());
            return Err(Problem::invalid(what));
        }
        let each = |(place, Object(operation)): (usize, &Object<OperationIn<'_>>)| {
            parsed(&at, operation).map_err(|problem| problem.within(&format!("operations[{place}]")))
        };
        let parsed = operations.iter().enumerate().map(each).collect::<Result<Vec<_>, _>>()?;
        Ok((parsed, durability.0, text.len()))
    };
    let (operations, durability, bytes) = desk.parse(body, parse).await?;
    let (mut stopped, mut place) = (None, 0);
    let mut memory = responses::Memory::new(&desk.service);
    let done = desk.change((bytes, true), durability, |tx| {
        stopped = None;
        let mut out = b"{\"results\":[".to_vec();
        for (number, operation) in operations.iter().enumerate() {
            place = number;
            if number > 0 {
                out.push(b',');
            }
            let count = operation.run(tx, &mut out, &mut memory)?;
            if let Some(expected) = operation.expect.filter(|expected| *expected != count) {
                let what = format!("it is about {count} documents, {expected} are expected");
                stopped = Some(Problem::refused(Refusal::Precondition, &what));
                // Any error rolls the transaction back; the other one is reported.
                return Err(DocumentsError::InvalidOptions { what });
            }
        }
        out.extend_from_slice(b"]}");
        Ok(out)
    });
    let done = done.await;
    let done =
        done.map_err(|problem| stopped.take().unwrap_or(problem).within(&format!("operations[{place}]")))?;
    memory.json(done)
}
