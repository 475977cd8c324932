//! Databases, collections and indexes.

use axum::Json;
use axum::extract::RawQuery;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use ropewalk::Durability;
use ropewalk::documents::lang::extjson::{self, Form};
use ropewalk::documents::lang::{DocBuf, Value, Writer};
use ropewalk::documents::{Collection, Definition, DocumentsError, ID_INDEX, Index, OnDelete};
use ropewalk_auth::{Needs, Resource, Right};
use ropewalk_http_kit::response::json;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::queries::{AtCollection, CollectionName};
use super::requests::{CollectionIn, IndexIn, fields};
use super::{DocumentContext, Place, refused};
use crate::kit::body::{JsonText, NoBody, from_json};
use crate::kit::params::{PageParams, Params};
use crate::kit::path::PathRequest;
use crate::kit::problem::{Problem, Result};
use crate::route::{DATABASE, Route};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Needs::LOGIN.later("databases that the caller may not read are left out"),
            routes!(databases),
        ),
        Route::new(Needs::read(DATABASE), routes!(database)),
        Route::new(Needs::read(DATABASE), routes!(collections)),
        Route::new(Needs::read(DATABASE), routes!(look)),
        Route::new(Needs::read(DATABASE), routes!(indexes)),
        Route::new(Needs::admin(DATABASE), routes!(drop_database)),
        Route::new(Needs::admin(DATABASE), routes!(create, drop_collection)),
        // Users who fill a database must not choose its quota.
        Route::new(Needs::admin(Resource::AllStores), routes!(put_quota)),
        Route::new(Needs::append(DATABASE), routes!(create_index)),
        Route::new(Needs::append(DATABASE), routes!(drop_index)),
    ]
}

/// `{database}`.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct DatabaseName {
    /// The database.
    #[param(min_length = 1, max_length = 63)]
    pub(crate) database: String,
}

in_database!(database: DatabaseName);

/// `{database}`, `{collection}` and `{index}`.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct IndexName {
    /// The database.
    #[param(min_length = 1, max_length = 63)]
    database: String,
    /// The collection; a slash in its name is written `%2F`.
    #[param(min_length = 1, max_length = 255)]
    collection: String,
    /// The index's name.
    index: String,
}

in_database!(database: IndexName);

#[derive(Serialize, ToSchema)]
#[schema(as = Databases)]
struct DatabasesOut {
    #[schema(example = json!(["shop"]))]
    databases: Vec<String>,
    /// `after` of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Database)]
struct DatabaseOut {
    name: String,
    /// Number of collections.
    collections: u64,
    /// Bytes of documents, without collections whose access rules bind the caller.
    bytes: u64,
    /// The most bytes of documents that it may hold; null: any.
    quota: Option<u64>,
}

/// The limit of a database.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Quota)]
struct QuotaIn {
    /// The most bytes of documents that it may hold; null: any. A write that would exceed it is refused (422).
    #[serde(deserialize_with = "Option::deserialize")]
    #[schema(required = true)]
    bytes: Option<u64>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Collections)]
struct CollectionsOut {
    collections: Vec<CollectionListed>,
    /// `after` of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = CollectionListed)]
struct CollectionListed {
    name: String,
    /// Number of documents; null where access rules may hide some from the caller.
    documents: Option<u64>,
    /// Their bytes.
    bytes: Option<u64>,
}

/// A collection.
#[derive(Serialize, ToSchema)]
#[schema(as = Collection)]
#[allow(dead_code)] // only its schema is used: validators and rules are written by hand
struct CollectionOut {
    name: String,
    /// Number of documents; null where access rules may hide some from the caller.
    documents: Option<u64>,
    /// Their bytes.
    bytes: Option<u64>,
    #[schema(value_type = Option<Object>)]
    validator: Option<serde_json::Value>,
    moderate: bool,
    protected: bool,
    #[schema(value_type = Option<Object>)]
    rules: Option<serde_json::Value>,
    /// By dotted path: the collection, and what happens on deletion there.
    #[schema(value_type = Object)]
    references: serde_json::Value,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Indexes)]
#[allow(dead_code)] // only its schema is used: filters are written by hand
struct IndexesOut {
    #[schema(value_type = Vec<Object>)]
    indexes: Vec<serde_json::Value>,
}

/// The databases that the caller may read, by name.
#[utoipa::path(
    get, path = "/v1/databases", operation_id = "list_databases", tag = "documents",
    params(PageParams),
    responses((status = 200, description = "A page of those that have a collection.", body = DatabasesOut)),
)]
async fn databases(at: PathRequest) -> Result<Json<DatabasesOut>> {
    let page = Params::only_page(at.query.as_deref())?;
    let may_read = |name: &str| at.caller.may(Right::Read, Some(name));
    let documents = at.app.service.database().documents();
    let found = documents.databases_after(page.after(), page.sought(), may_read).map_err(refused)?;
    let (databases, next) = page.cut(found, String::as_str);
    Ok(Json(DatabasesOut { databases, next }))
}

fn no_database(name: &str) -> Problem {
    Problem::new(ropewalk_wire::Code::NotFound, format!("there is no database {name:?}"))
}

/// A database.
#[utoipa::path(
    get, path = "/v1/databases/{database}", operation_id = "get_database", tag = "documents",
    params(DatabaseName),
    responses((status = 200, description = "It has a collection.", body = DatabaseOut)),
)]
async fn database(Place { context, .. }: Place<DatabaseName>) -> Result<Json<DatabaseOut>> {
    context.named()?;
    let _permit = context.reading()?;
    let look = || {
        let names = context.collections(None)?;
        let bytes = match context.asked() {
            None => context.documents().database_bytes(&context.database),
            Some(_) => context.documents().unruled_bytes(&context.database),
        };
        let quota = context.documents().quota(&context.database).map_err(refused)?;
        Ok::<_, Problem>((names.len() as u64, bytes.map_err(refused)?, quota))
    };
    let (collections, bytes, quota) = context.run_blocking_limited(look).await?;
    if collections == 0 {
        return Err(no_database(&context.database));
    }
    Ok(Json(DatabaseOut { name: context.database, collections, bytes, quota }))
}

/// Limits the bytes of documents of a database. It may already hold more, and shrink.
#[utoipa::path(
    put, path = "/v1/databases/{database}/quota", operation_id = "put_quota", tag = "documents",
    params(DatabaseName),
    request_body = QuotaIn,
    responses((status = 204, description = "It counts from here on.")),
)]
async fn put_quota(Place { context, .. }: Place<DatabaseName>, body: JsonText) -> Result<StatusCode> {
    context.named()?;
    let QuotaIn { bytes } = context.parse(body, |text| from_json(text)).await?;
    context.change((0, true), Durability::Sync, |tx| tx.set_quota(&context.database, bytes)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Drops a database with everything in it.
#[utoipa::path(
    delete, path = "/v1/databases/{database}", operation_id = "drop_database", tag = "documents",
    params(DatabaseName),
    responses((status = 204, description = "Dropped.")),
)]
async fn drop_database(Place { context, .. }: Place<DatabaseName>, NoBody: NoBody) -> Result<StatusCode> {
    context.named()?;
    let dropped =
        context.change((0, true), Durability::Sync, |tx| tx.drop_database(&context.database)).await?;
    if dropped.is_empty() { Err(no_database(&context.database)) } else { Ok(StatusCode::NO_CONTENT) }
}

/// The collections of a database, by name.
#[utoipa::path(
    get, path = "/v1/databases/{database}/collections", operation_id = "list_collections", tag = "documents",
    params(
        DatabaseName,
        PageParams,
        ("glob" = Option<String>, Query, description = "Only those whose names match: `*` and `?` stop at slashes, `**` does not. `users/*/posts` is the posts of every user."),
    ),
    responses((status = 200, description = "A page of them; none if there is no such database.", body = CollectionsOut)),
)]
async fn collections(
    Place { context, .. }: Place<DatabaseName>,
    RawQuery(query): RawQuery,
) -> Result<Json<CollectionsOut>> {
    context.named()?;
    let mut params = Params::parse(query.as_deref())?;
    let (glob, page) = (params.one("glob")?, params.page()?);
    params.finish()?;
    let _permit = context.reading()?;
    let look = || -> Result<CollectionsOut> {
        let listed = |name: String| {
            let collection = context.collection(&name)?;
            let count = context.count(&collection).map_err(refused)?;
            let (documents, bytes) = (count.map(|count| count.documents), count.map(|count| count.bytes));
            Ok::<_, Problem>(CollectionListed { name, documents, bytes })
        };
        let names = context.collections_after(glob.as_deref(), page.after(), page.sought())?;
        let (names, next) = page.cut(names, String::as_str);
        Ok(CollectionsOut { collections: names.into_iter().map(listed).collect::<Result<_, _>>()?, next })
    };
    Ok(Json(context.run_blocking_limited(look).await?))
}

fn optional(doc: Option<&DocBuf>) -> Value<'_> {
    doc.map_or(Value::Null, |doc| Value::Document(doc.doc()))
}

fn described(context: &DocumentContext, collection: &Collection, definition: &Definition) -> Result<Vec<u8>> {
    let count = context.count(collection).map_err(refused)?;
    let number =
        |number: Option<u64>| number.map_or(Value::Null, |number| Value::Int64(number.cast_signed()));
    let options = definition.options();
    let mut out = Writer::new();
    out.put("name", Value::String(collection.name()));
    out.put("documents", number(count.map(|count| count.documents)));
    out.put("bytes", number(count.map(|count| count.bytes)));
    out.put("validator", optional(options.validator.as_ref()));
    out.put("moderate", Value::Bool(options.moderate));
    out.put("protected", Value::Bool(options.protected));
    out.put("rules", optional(options.rules.as_ref()));
    out.open_document("references");
    for reference in &options.references {
        out.open_document(&reference.field);
        out.put("collection", Value::String(&reference.collection));
        let on_delete = match reference.on_delete {
            OnDelete::Restrict => "restrict",
            OnDelete::SetNull => "set_null",
            OnDelete::Cascade => "cascade",
        };
        out.put("on_delete", Value::String(on_delete));
        out.close();
    }
    let mut text = Vec::new();
    extjson::put_document(&mut text, out.finish().doc(), Form::Relaxed);
    Ok(text)
}

/// A collection: its size, and its requirements on documents.
#[utoipa::path(
    get, path = "/v1/databases/{database}/collections/{collection}", operation_id = "get_collection", tag = "documents",
    params(CollectionName),
    responses((status = 200, description = "The collection.", body = CollectionOut)),
)]
async fn look(Place { context, name }: AtCollection) -> Result<Response> {
    let _permit = context.reading()?;
    let (collection, definition) = context.existing(&name.collection)?;
    let text = context.run_blocking_limited(|| described(&context, &collection, &definition)).await?;
    Ok(json(text))
}

/// Creates a collection, or replaces the rules of an existing one. Existing documents are not checked.
#[utoipa::path(
    put, path = "/v1/databases/{database}/collections/{collection}", operation_id = "put_collection", tag = "documents",
    params(CollectionName),
    request_body = CollectionIn<'static>,
    responses(
        (status = 200, description = "It was there, and has these rules now.", body = CollectionOut),
        (status = 201, description = "Made.", body = CollectionOut),
    ),
)]
async fn create(Place { context, name }: AtCollection, body: JsonText) -> Result<Response> {
    let options = context.parse(body, |text| from_json::<CollectionIn<'_>>(text)?.options()).await?;
    let collection = context.collection(&name.collection)?;
    let created = context.change((0, true), Durability::Sync, |tx| {
        match tx.create_collection(&collection, options.clone()) {
            Err(DocumentsError::CollectionExists { .. }) => {
                tx.set_options(&collection, options.clone()).map(|()| false)
            }
            created => created,
        }
    });
    let status = if created.await? { StatusCode::CREATED } else { StatusCode::OK };
    let (collection, definition) = context.existing(&name.collection)?;
    let text = context.run_blocking_limited(|| described(&context, &collection, &definition)).await?;
    Ok((status, json(text)).into_response())
}

/// Drops a collection with its documents and indexes.
#[utoipa::path(
    delete, path = "/v1/databases/{database}/collections/{collection}", operation_id = "drop_collection", tag = "documents",
    params(CollectionName),
    responses((status = 204, description = "Dropped.")),
)]
async fn drop_collection(Place { context, name }: AtCollection, NoBody: NoBody) -> Result<StatusCode> {
    let collection = context.collection(&name.collection)?;
    if !context.change((0, true), Durability::Sync, |tx| tx.drop_collection(&collection)).await? {
        context.existing(&name.collection)?;
    }
    Ok(StatusCode::NO_CONTENT)
}

fn put_index(out: &mut Writer, index: &Index) {
    let def = index.def();
    out.put("name", Value::String(index.name()));
    out.open_array("fields");
    fields(&def.fields).iter().for_each(|field| out.put("", Value::String(field)));
    out.close();
    out.put("unique", Value::Bool(def.unique));
    out.put("sparse", Value::Bool(def.sparse));
    out.put("hidden", Value::Bool(def.hidden));
    out.put("ready", Value::Bool(index.is_ready()));
    if let Some(partial) = &def.partial {
        out.put("partial", Value::Document(partial.doc()));
    }
    if let Some(seconds) = def.expire_after_seconds {
        out.put("expire_after_seconds", Value::Int64(seconds));
    }
}

/// The indexes of a collection.
#[utoipa::path(
    get, path = "/v1/databases/{database}/collections/{collection}/indexes", operation_id = "list_indexes", tag = "documents",
    params(CollectionName),
    responses((status = 200, description = "All of them, the one on `_id` first.", body = IndexesOut)),
)]
async fn indexes(Place { context, name }: AtCollection) -> Result<Response> {
    let _permit = context.reading()?;
    let (_, definition) = context.existing(&name.collection)?;
    let mut out = Writer::new();
    out.open_array("indexes");
    out.open_document("");
    out.put("name", Value::String(ID_INDEX));
    out.open_array("fields");
    out.put("", Value::String("_id"));
    out.close();
    out.put("unique", Value::Bool(true));
    out.put("ready", Value::Bool(true));
    out.close();
    for index in definition.indexes() {
        out.open_document("");
        put_index(&mut out, index);
        out.close();
    }
    let mut text = Vec::new();
    extjson::put_document(&mut text, out.finish().doc(), Form::Relaxed);
    Ok(json(text))
}

/// The name of an index.
#[derive(Serialize, ToSchema)]
#[schema(as = IndexCreated)]
struct IndexOut {
    name: String,
}

/// Creates an index while others read and write; responds when it is complete.
#[utoipa::path(
    post, path = "/v1/databases/{database}/collections/{collection}/indexes", operation_id = "create_index", tag = "documents",
    params(CollectionName),
    request_body = IndexIn<'static>,
    responses(
        (status = 200, description = "It was there.", body = IndexOut),
        (status = 201, description = "Made.", body = IndexOut),
        (status = 409, description = "Documents break its uniqueness, or there is one with other options: `already_exists`."),
    ),
)]
async fn create_index(
    Place { context, name }: AtCollection,
    body: JsonText,
) -> Result<(StatusCode, Json<IndexOut>)> {
    let def = context.parse(body, |text| from_json::<IndexIn<'_>>(text)?.def()).await?;
    let collection = context.collection(&name.collection)?;
    let new =
        context.service.run_blocking_limited(|| collection.create_index(&def)).await.map_err(refused)?;
    let (_, definition) = context.existing(&name.collection)?;
    let same = |index: &&std::sync::Arc<Index>| match &def.name {
        Some(name) => index.name() == name,
        None => fields(&index.def().fields) == fields(&def.fields),
    };
    let made = definition.indexes().iter().find(same).map(|index| index.name().to_owned());
    let status = if new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(IndexOut { name: made.unwrap_or_default() })))
}

/// Drops an index.
#[utoipa::path(
    delete, path = "/v1/databases/{database}/collections/{collection}/indexes/{index}", operation_id = "drop_index", tag = "documents",
    params(IndexName),
    responses((status = 204, description = "Dropped.")),
)]
async fn drop_index(Place { context, name }: Place<IndexName>, NoBody: NoBody) -> Result<StatusCode> {
    let (collection, _) = context.existing(&name.collection)?;
    context.change((0, true), Durability::Sync, |tx| tx.drop_index(&collection, &name.index)).await?;
    Ok(StatusCode::NO_CONTENT)
}
