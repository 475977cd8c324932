//! Documents by query: insert, find, count, aggregate, update, delete.

use std::sync::Arc;

use axum::Json;
use axum::extract::RawQuery;
use axum::http::HeaderMap;
use axum::response::Response;
use ropewalk::Durability;
use ropewalk::documents::lang::extjson::{self, Form};
use ropewalk::documents::lang::{DocBuf, OutputMode, Owned, Pipeline, Value};
use ropewalk::documents::{DocumentsError, DocumentsRead, Find, PIPELINE_BYTES_MAX};
use ropewalk_auth::{Needs, Right};
use ropewalk_http_kit::response::json;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::requests::{
    self, AggregateIn, CountIn, DeleteIn, DistinctIn, FindIn, FindTexts, InsertIn, ModifyIn, UpdateIn,
};
use super::responses::{self, Answer, Canonical};
use super::{DocumentContext, Place, refused};
use crate::kit::body::{JsonText, from_json};
use crate::kit::params::Params;
use crate::kit::problem::{Problem, Result};
use crate::route::{DATABASE, Route};

/// Most documents, or bytes, of an insert that is short work.
const SHORT: usize = 16;
const SHORT_BYTES: usize = 64 << 10;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Needs::append(DATABASE), routes!(insert)),
        Route::new(Needs::read(DATABASE), routes!(list)),
        Route::new(Needs::read(DATABASE), routes!(query)),
        Route::new(Needs::read(DATABASE), routes!(count)),
        Route::new(Needs::read(DATABASE), routes!(distinct)),
        Route::new(
            Needs::read(DATABASE).later(
                "on the database that is written: `append` for `$out`, `read` and `append` for `$merge`",
            ),
            routes!(aggregate),
        ),
        Route::new(Needs::read(DATABASE), routes!(explain)),
        Route::new(Needs::read_and_append(DATABASE), routes!(update)),
        Route::new(Needs::read_and_append(DATABASE), routes!(delete)),
        Route::new(Needs::read_and_append(DATABASE), routes!(modify)),
    ]
}

/// `{database}` and `{collection}`.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct CollectionName {
    /// The database.
    #[param(min_length = 1, max_length = 63)]
    pub(super) database: String,
    /// The collection; a slash in its name is written `%2F`.
    #[param(min_length = 1, max_length = 255)]
    pub(super) collection: String,
}

/// A request to a collection.
pub(super) type AtCollection = Place<CollectionName>;

in_database!(database: CollectionName);

/// The `_id` of each document, in order.
#[derive(Serialize, ToSchema)]
#[schema(as = Inserted)]
#[allow(dead_code)] // only its schema is used: the values are written by hand
struct InsertedOut {
    /// In Extended JSON.
    ids: Vec<serde_json::Value>,
}

/// Documents in Extended JSON.
#[derive(Serialize, ToSchema)]
#[schema(as = Documents)]
#[allow(dead_code)] // only its schema is used: the documents are written by hand
struct DocumentsOut {
    #[schema(value_type = Vec<Object>)]
    documents: Vec<serde_json::Value>,
}

/// The document, or null.
#[derive(Serialize, ToSchema)]
#[schema(as = FoundDocument)]
#[allow(dead_code)] // only its schema is used: the document is written by hand
struct DocumentOut {
    #[schema(value_type = Option<Object>)]
    document: Option<serde_json::Value>,
}

/// Values in Extended JSON.
#[derive(Serialize, ToSchema)]
#[schema(as = DistinctValues)]
#[allow(dead_code)] // only its schema is used: the values are written by hand
struct ValuesOut {
    values: Vec<serde_json::Value>,
}

/// How many documents there are.
#[derive(Serialize, ToSchema)]
#[schema(as = DocumentsCount)]
struct CountOut {
    count: u64,
}

/// Result of an update.
#[derive(Serialize, ToSchema)]
#[schema(as = Updated)]
#[allow(dead_code)] // only its schema is used: the `_id` is written by hand
struct UpdatedOut {
    /// Documents that matched.
    matched: u64,
    /// Documents that were changed.
    modified: u64,
    /// The `_id` of the document that was inserted because none matched; null if none was.
    upserted: Option<serde_json::Value>,
}

/// Result of a deletion.
#[derive(Serialize, ToSchema)]
#[schema(as = Deleted)]
struct DeletedOut {
    /// Deleted documents.
    deleted: u64,
}

/// Inserts documents together, or not at all. The first one makes its collection.
#[utoipa::path(
    post, path = "/v1/databases/{database}/collections/{collection}/documents", operation_id = "insert_documents", tag = "documents",
    params(CollectionName),
    request_body = InsertIn<'static>,
    responses(
        (status = 200, description = "Inserted.", body = InsertedOut),
        (status = 409, description = "One of them is there, or a unique index has its values: `already_exists`. Nothing was written."),
    ),
)]
async fn insert(Place { context, name }: AtCollection, body: JsonText) -> Result<Response> {
    let parse = |text: &str| {
        let InsertIn { documents, durability } = from_json(text)?;
        let document = |(place, text): (usize, &&serde_json::value::RawValue)| {
            requests::document(&format!("documents[{place}]"), text.get())
        };
        let documents = documents.iter().enumerate().map(document).collect::<Result<Vec<DocBuf>, _>>()?;
        Ok((documents, durability.0))
    };
    let (documents, durability) = context.parse(body, parse).await?;
    if documents.is_empty() {
        return Err(Problem::invalid_field("documents: at least one is needed"));
    }
    let most = context.service.limits().append_events;
    if documents.len() > most {
        let error = ropewalk_wire::WireError::too_large("documents in one insert", documents.len(), most);
        return Err(error.into());
    }
    let collection = context.collection(&name.collection)?;
    let bytes: usize = documents.iter().map(|document| document.bytes().len()).sum();
    let size = (bytes, documents.len() > SHORT || bytes > SHORT_BYTES);
    let mut at = 0;
    let ids = context.change(size, durability, |tx| {
        let each = |(place, document): (usize, &DocBuf)| {
            at = place;
            tx.insert_one(&collection, document.bytes())
        };
        documents.iter().enumerate().map(each).collect::<Result<Vec<Owned>, DocumentsError>>()
    });
    let ids = ids.await;
    let ids = ids.map_err(|problem| problem.within(&format!("documents[{at}]")))?;
    Ok(json(responses::listed("ids", ids.iter().map(Owned::value), Form::Relaxed)))
}

async fn find(
    context: DocumentContext,
    collection: &str,
    find: &Find,
    form: (bool, Form),
) -> Result<Response> {
    let permit = context.reading()?;
    let (collection, _) = context.existing(collection)?;
    let snapshot = context.service.database().snapshot().engine().clone();
    let open = || collection.find_for(context.asked(), snapshot, find);
    let cursor = context.run_blocking_limited(open).await.map_err(refused)?;
    Answer::new(cursor, context.service.clone(), permit, form).send().await
}

/// The documents that match, as JSON or, with `Accept: application/x-ndjson`, one per line.
///
/// The response is a stream of one snapshot, whatever is written meanwhile.
#[utoipa::path(
    get, path = "/v1/databases/{database}/collections/{collection}/documents", operation_id = "list_documents", tag = "documents",
    params(
        CollectionName,
        ("filter" = Option<String>, Query, description = "Which documents: a filter as JSON. Absent: all."),
        ("sort" = Option<String>, Query, description = "Fields and directions as JSON."),
        ("projection" = Option<String>, Query, description = "Which fields are shown, as JSON."),
        ("hint" = Option<String>, Query, description = "By this index: its name or its fields, as JSON."),
        ("skip" = Option<u64>, Query, description = "Leaves out the first ones."),
        ("limit" = Option<u64>, Query, description = "At most so many."),
        Canonical,
    ),
    responses(
        (status = 200, description = "Matching documents.", content((DocumentsOut = "application/json"), (String = "application/x-ndjson"))),
        (status = 406, description = "There is JSON and NDJSON."),
    ),
)]
async fn list(
    Place { context, name }: AtCollection,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response> {
    let lines = responses::lines(&headers)?;
    let mut params = Params::parse(query.as_deref())?;
    let texts = [params.one("filter")?, params.one("sort")?, params.one("projection")?, params.one("hint")?];
    let [filter, sort, projection, hint] = texts.each_ref().map(Option::as_deref);
    let (skip, limit) = (params.number("skip")?, params.number("limit")?);
    let form = responses::form(params.flag("canonical")?);
    params.finish()?;
    let texts = FindTexts { filter, sort, projection, hint, skip, limit };
    let wanted = context.bounds.run(|| texts.find(&context.options()))?;
    find(context, &name.collection, &wanted, (lines, form)).await
}

/// The documents that match, requested by a body.
#[utoipa::path(
    post, path = "/v1/databases/{database}/collections/{collection}/documents:query", operation_id = "query_documents", tag = "documents",
    params(CollectionName),
    request_body = FindIn<'static>,
    responses(
        (status = 200, description = "Matching documents.", content((DocumentsOut = "application/json"), (String = "application/x-ndjson"))),
        (status = 406, description = "There is JSON and NDJSON."),
    ),
)]
async fn query(
    Place { context, name }: AtCollection,
    headers: HeaderMap,
    body: JsonText,
) -> Result<Response> {
    let lines = responses::lines(&headers)?;
    let options = context.options();
    let parse = move |text: &str| {
        let asked: FindIn<'_> = from_json(text)?;
        Ok((asked.find(&options)?, responses::form(asked.canonical)))
    };
    let (wanted, form) = context.parse(body, parse).await?;
    find(context, &name.collection, &wanted, (lines, form)).await
}

/// The number of documents that match.
#[utoipa::path(
    post, path = "/v1/databases/{database}/collections/{collection}/documents:count", operation_id = "count_documents", tag = "documents",
    params(CollectionName),
    request_body = CountIn<'static>,
    responses((status = 200, description = "Counted.", body = CountOut)),
)]
async fn count(Place { context, name }: AtCollection, body: JsonText) -> Result<Json<CountOut>> {
    let options = context.options();
    let parse = move |text: &str| {
        let asked: CountIn<'_> = from_json(text)?;
        Ok(Find::matching(requests::filter(asked.filter.map(|text| text.get()), &options)?))
    };
    let find = context.parse(body, parse).await?;
    let count = context.look(&name.collection, |at, collection| at.count(collection, &find)).await?;
    Ok(Json(CountOut { count }))
}

/// The distinct values of a field, elements of arrays one by one, in the order of values.
#[utoipa::path(
    post, path = "/v1/databases/{database}/collections/{collection}/documents:distinct", operation_id = "distinct", tag = "documents",
    params(CollectionName),
    request_body = DistinctIn<'static>,
    responses((status = 200, description = "The values.", body = ValuesOut)),
)]
async fn distinct(Place { context, name }: AtCollection, body: JsonText) -> Result<Response> {
    let options = context.options();
    let parse = move |text: &str| {
        let asked: DistinctIn<'_> = from_json(text)?;
        Ok((requests::filter(asked.filter.map(|text| text.get()), &options)?, asked.field))
    };
    let (filter, field) = context.parse(body, parse).await?;
    let found = context.look(&name.collection, |at, collection| at.distinct(collection, &field, &filter));
    let found = found.await?;
    let memory = responses::Memory::new(&context.service);
    memory.json(responses::listed("values", found.iter().map(Owned::value), Form::Relaxed))
}

/// The result of a pipeline over the documents. One that ends with `$out` or `$merge` writes, in one commit,
/// and returns no documents.
#[utoipa::path(
    post, path = "/v1/databases/{database}/collections/{collection}/documents:aggregate", operation_id = "aggregate", tag = "documents",
    params(CollectionName),
    request_body = AggregateIn<'static>,
    responses(
        (status = 200, description = "The result, at most 100 MiB.", body = DocumentsOut),
        (status = 409, description = "A document written by `$out` or `$merge` violates a unique index: `already_exists`."),
    ),
)]
async fn aggregate(Place { context, name }: AtCollection, body: JsonText) -> Result<Response> {
    let options = context.options();
    let parse = move |text: &str| {
        let asked: AggregateIn<'_> = from_json(text)?;
        Ok((asked.pipeline(options)?, responses::form(asked.canonical)))
    };
    let (pipeline, form) = context.parse(body, parse).await?;
    let permit = context.reading()?;
    let (collection, _) = context.existing(&name.collection)?;
    let mut memory = responses::Memory::new(&context.service);
    let documents = if let Some(output) = pipeline.output() {
        let target = output.database.as_deref().unwrap_or(&context.database);
        context.service.check(&context.caller, Right::Append, target)?;
        if !matches!(output.mode, OutputMode::Replace) {
            // The effect of `$merge` depends on the existing documents.
            context.service.check(&context.caller, Right::Read, target)?;
        }
        let asked = context.asked_in(Some(target));
        context
            .change_for(asked, (0, true), Durability::Sync, |tx| tx.aggregate(&collection, &pipeline))
            .await?
    } else {
        let work = || aggregated(&context, &collection, &pipeline, &mut memory);
        context.run_blocking_limited(work).await.map_err(refused)?
    };
    drop(permit);
    let values = documents.iter().map(|document| Value::Document(document.doc()));
    memory.json(responses::listed("documents", values, form))
}

/// The result of a pipeline without `$out` or `$merge`.
fn aggregated(
    context: &DocumentContext,
    collection: &ropewalk::documents::Collection,
    pipeline: &Pipeline,
    memory: &mut responses::Memory,
) -> Result<Vec<DocBuf>, DocumentsError> {
    if let Some(asked) = context.asked() {
        // Rules are checked within transactions; this one has nothing to commit.
        let mut transaction = context.service.database().begin();
        let mut documents = transaction.documents();
        documents.act_for(Some(asked));
        let look = || context.bounds.look();
        let found = documents.with_cancellation(&look).aggregate(collection, pipeline)?;
        memory.cover(found.iter().map(|document| document.bytes().len()).sum())?;
        return Ok(found);
    }
    let (mut documents, mut bytes) = (Vec::new(), 0);
    let snapshot = context.service.database().snapshot().engine().clone();
    collection.aggregate_at(snapshot, pipeline, &mut |document| {
        bytes += document.bytes().len();
        if bytes > PIPELINE_BYTES_MAX {
            return Err(DocumentsError::TooLarge { what: "result", bytes, max: PIPELINE_BYTES_MAX });
        }
        memory.cover(bytes)?;
        documents.push(document);
        Ok(true)
    })?;
    Ok(documents)
}

/// The plan of a query, and its cost.
#[utoipa::path(
    post, path = "/v1/databases/{database}/collections/{collection}/documents:explain", operation_id = "explain", tag = "documents",
    params(CollectionName),
    request_body = FindIn<'static>,
    responses((status = 200, description = "As MongoDB explains.", body = Object)),
)]
async fn explain(Place { context, name }: AtCollection, body: JsonText) -> Result<Response> {
    let options = context.options();
    let parse = move |text: &str| {
        let asked: FindIn<'_> = from_json(text)?;
        Ok((asked.find(&options)?, responses::form(asked.canonical)))
    };
    let (find, form) = context.parse(body, parse).await?;
    let explained =
        context.look(&name.collection, |at, collection| at.explain(collection, &find, true)).await?;
    let mut out = Vec::new();
    extjson::put_document(&mut out, explained.doc(), form);
    Ok(json(out))
}

/// `{"matched":1,"modified":1,"upserted":null}`
pub(crate) fn put_updated(out: &mut Vec<u8>, updated: &ropewalk::documents::Updated) {
    let head = format!("{{\"matched\":{},\"modified\":{},\"upserted\":", updated.matched, updated.modified);
    out.extend_from_slice(head.as_bytes());
    let id = updated.upserted.as_ref().map_or(Value::Null, Owned::value);
    extjson::put_value(out, id, Form::Relaxed);
    out.push(b'}');
}

/// Changes the first document that matches, or all.
#[utoipa::path(
    post, path = "/v1/databases/{database}/collections/{collection}/documents:update", operation_id = "update_documents", tag = "documents",
    params(CollectionName),
    request_body = UpdateIn<'static>,
    responses(
        (status = 200, description = "Done, for all that match or for none.", body = UpdatedOut),
        (status = 409, description = "A unique index has the values: `already_exists`."),
    ),
)]
async fn update(Place { context, name }: AtCollection, body: JsonText) -> Result<Response> {
    let options = context.options();
    let parse = move |text: &str| {
        let asked: UpdateIn<'_> = from_json(text)?;
        Ok((asked.spec(&options)?, asked.many, asked.durability.unwrap_or_default().0))
    };
    let (spec, many, durability) = context.parse(body, parse).await?;
    let collection = context.collection(&name.collection)?;
    let long = many || spec.filter.only_id().is_none();
    let updated = context.change((0, long), durability, |tx| match many {
        true => tx.update_many(&collection, &spec),
        false => tx.update_one(&collection, &spec),
    });
    let mut out = Vec::new();
    put_updated(&mut out, &updated.await?);
    Ok(json(out))
}

/// Deletes the first document that matches, or all.
#[utoipa::path(
    post, path = "/v1/databases/{database}/collections/{collection}/documents:delete", operation_id = "delete_documents", tag = "documents",
    params(CollectionName),
    request_body = DeleteIn<'static>,
    responses((status = 200, description = "Done, for all that match or for none.", body = DeletedOut)),
)]
async fn delete(Place { context, name }: AtCollection, body: JsonText) -> Result<Json<DeletedOut>> {
    let options = context.options();
    let parse = move |text: &str| {
        let asked: DeleteIn<'_> = from_json(text)?;
        Ok((asked.find(&options)?, asked.durability.unwrap_or_default().0))
    };
    let (find, durability) = context.parse(body, parse).await?;
    let collection = context.collection(&name.collection)?;
    let deleted = context.change((0, true), durability, |tx| tx.delete(&collection, &find));
    Ok(Json(DeletedOut { deleted: deleted.await? }))
}

/// Changes or deletes one document and returns it, as it was before or as it is after.
#[utoipa::path(
    post, path = "/v1/databases/{database}/collections/{collection}/documents:modify", operation_id = "modify_document", tag = "documents",
    params(CollectionName),
    request_body = ModifyIn<'static>,
    responses(
        (status = 200, description = "The document, or null when none matched.", body = DocumentOut),
        (status = 409, description = "A unique index has the values: `already_exists`."),
    ),
)]
async fn modify(Place { context, name }: AtCollection, body: JsonText) -> Result<Response> {
    let options = context.options();
    let parse = move |text: &str| {
        let asked: ModifyIn<'_> = from_json(text)?;
        Ok((Arc::new(asked.spec(&options)?), asked.durability.0))
    };
    let (spec, durability) = context.parse(body, parse).await?;
    let collection = context.collection(&name.collection)?;
    let long = spec.filter.only_id().is_none();
    let done = context.change((0, long), durability, |tx| tx.find_and_modify(&collection, &spec)).await?;
    let found = done.0.as_ref().map(|document| Value::Document(document.doc()));
    Ok(json(responses::named("document", found, Form::Relaxed)))
}
