//! The paths of Bundoc's server, for its clients: `/v1/projects/{project}/databases/(default)/…`. A project
//! is a database.
//!
//! | path | |
//! |---|---|
//! | `collections`, `collections/{name}`, `…/rules`, `…/indexes/{field}` | list, create, get, change, drop |
//! | `documents/{collection}`, `documents/{collection}/{id}` | insert, list, get, merge, delete; names of collections may hold slashes |
//! | `documents/query` | `{collection, query, skip, limit, sortField, sortDesc, fields}` |
//! | `indexes` | list, create, drop |
//!
//! Differences from Bundoc: callers are users and tokens of the server, never headers that any client can
//! write; filters are MongoDB's, and `$gte`, `$lte` and `$in` are supported; a duplicate `_id` is rejected;
//! errors are problem documents. Ids are texts, as there.

use std::sync::Arc;

use axum::Json;
use axum::extract::RawQuery;
use axum::handler::Handler;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use ropewalk::Durability;
use ropewalk::documents::lang::extjson::{self, Form};
use ropewalk::documents::lang::{DocBuf, Filter, Projection, Sort, Update, Value, Writer};
use ropewalk::documents::{
    Collection, CollectionOptions, DocumentsError, Find, IndexDef, OnDelete, Reference, UpdateSpec, id_filter,
};
use ropewalk_auth::{Needs, Resource};
use ropewalk_http_kit::response;
use ropewalk_wire::Code;
use ropewalk_wire::extjson_parser;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value as Schema, json};

use super::requests::{self, number};
use super::responses::{self, Answer};
use super::{DocumentContext, Place, refused};
use crate::app::App;
use crate::kit::body::{JsonText, NoBody, from_json};
use crate::kit::params::Params;
use crate::kit::problem::{Problem, Result};
use crate::route::Route;

/// Documents of a list by default.
const LIST: u64 = 100;
const ROOT: &str = "/v1/projects/{project}/databases/(default)";

pub(super) fn routes() -> Vec<Route> {
    let project = Resource::Path("project");
    let (read_only, append, admin) = (Needs::read(project), Needs::append(project), Needs::admin(project));
    vec![
        at(read_only, Method::GET, "collections", collections),
        at(admin, Method::POST, "collections", create),
        at(read_only, Method::GET, "collections/{collection}", look),
        at(admin, Method::PATCH, "collections/{collection}", change),
        at(admin, Method::DELETE, "collections/{collection}", drop_collection),
        at(admin, Method::PATCH, "collections/{collection}/rules", rules),
        at(append, Method::DELETE, "collections/{collection}/indexes/{field}", drop_field_index),
        at(read_only, Method::POST, "documents/query", query),
        at(read_only, Method::GET, "documents/{*path}", read),
        at(append, Method::POST, "documents/{*path}", insert),
        at(append, Method::PATCH, "documents/{*path}", merge),
        at(append, Method::DELETE, "documents/{*path}", remove),
        at(read_only, Method::GET, "indexes", indexes),
        at(append, Method::POST, "indexes", create_index),
        at(append, Method::DELETE, "indexes", drop_index),
    ]
}

fn at<T: 'static>(needs: Needs, method: Method, path: &str, handler: impl Handler<T, App>) -> Route {
    Route::undescribed(needs, method, format!("{ROOT}/{path}"), handler)
}

#[derive(Deserialize)]
struct Project {
    project: String,
}

#[derive(Deserialize)]
struct InCollection {
    project: String,
    collection: String,
}

#[derive(Deserialize)]
struct FieldIndex {
    project: String,
    collection: String,
    field: String,
}

#[derive(Deserialize)]
struct At {
    project: String,
    path: String,
}

in_database!(project: Project, InCollection, FieldIndex, At);

/// The collection with the longest name that is a prefix of the path, and the rest: the `_id` of a document.
fn resolved(context: &DocumentContext, path: &str) -> Result<Option<(Collection, String)>> {
    let mut name = path;
    loop {
        let collection = context.collection(name)?;
        if collection.definition().map_err(refused)?.is_some() {
            let rest = path.get(name.len()..).unwrap_or_default();
            return Ok(Some((collection, rest.trim_start_matches('/').to_owned())));
        }
        match name.rsplit_once('/') {
            Some((shorter, _)) => name = shorter,
            None => return Ok(None),
        }
    }
}

fn unknown(path: &str) -> Problem {
    Problem::new(Code::NotFound, format!("there is no collection {path:?}"))
}

fn no_document(id: &str) -> Problem {
    Problem::new(Code::NotFound, format!("there is no document with the _id {id:?}"))
}

fn put(document: &DocBuf) -> Response {
    let mut out = Vec::new();
    extjson::put_document(&mut out, document.doc(), Form::Relaxed);
    response::json(out)
}

/// Only these fields, `_id` among them if it is named.
fn only(fields: &[String]) -> Result<Option<Projection>> {
    if fields.is_empty() {
        return Ok(None);
    }
    let mut spec = Writer::new();
    fields.iter().for_each(|field| spec.put(field, Value::Int32(1)));
    if !fields.iter().any(|field| field == "_id") {
        spec.put("_id", Value::Int32(0));
    }
    let spec = Projection::parse(spec.finish().doc(), &Default::default());
    spec.map(Some).map_err(|error| refused(error.into()))
}

fn separated(fields: Option<String>) -> Vec<String> {
    let fields = fields.unwrap_or_default();
    fields.split(',').map(str::trim).filter(|field| !field.is_empty()).map(str::to_owned).collect()
}

/// A unique `_id`: time and chance, 24 hexadecimal digits.
fn new_id(context: &DocumentContext) -> String {
    let env = context.service.database().engine().env();
    let seconds = env.clock.wall_micros().div_euclid(1_000_000) as u32;
    format!("{seconds:08x}{:016x}", env.random.next_u64())
}

/// `POST documents/{collection}`: 201 and the document.
async fn insert(Place { context, name: At { path, .. } }: Place<At>, body: JsonText) -> Result<Response> {
    let mut document = context.parse(body, |text| requests::document("the body", text)).await?;
    match document.doc().get("_id") {
        Some(Value::String(_)) => {}
        None => document = super::document::with_id(Value::String(&new_id(&context)), &document)?,
        Some(other) => {
            let what = format!("_id: a text is needed, not {}", other.type_name());
            return Err(Problem::invalid_field(what));
        }
    }
    let collection = context.collection(&path)?;
    let size = (document.bytes().len(), false);
    context.change(size, Durability::Sync, |tx| tx.insert_one(&collection, document.bytes())).await?;
    Ok((StatusCode::CREATED, put(&document)).into_response())
}

/// `GET documents/{collection}/{id}`: a document. `GET documents/{collection}?skip&limit&fields`: a list.
/// With a `*` in the path: the documents of all matching collections, filtered by `?field=value`.
async fn read(
    Place { context, name: At { path, .. } }: Place<At>,
    RawQuery(query): RawQuery,
) -> Result<Response> {
    let mut params = Params::parse(query.as_deref())?;
    let permit = context.reading()?;
    let snapshot = context.service.database().snapshot();
    if path.contains('*') {
        return group(&context, &path, params).await;
    }
    let Some((collection, id)) = resolved(&context, &path)? else { return Err(unknown(&path)) };
    let find = if id.is_empty() {
        let (skip, limit) = (params.number("skip")?, params.number("limit")?);
        let mut find = Find::all().skip(number("skip", skip.unwrap_or(0))?);
        find = find.limit(number("limit", limit.unwrap_or(LIST))?);
        match only(&separated(params.one("fields")?))? {
            Some(projection) => find.project(projection),
            None => find,
        }
    } else {
        Find::matching(id_filter(Value::String(&id))).limit(1)
    };
    params.finish()?;
    let open = || collection.find_for(context.asked(), snapshot.engine().clone(), &find);
    let mut cursor = context.run_blocking_limited(open).await.map_err(refused)?;
    if id.is_empty() {
        return Answer::new(cursor, context.service.clone(), permit, (false, Form::Relaxed)).send().await;
    }
    let found = context.bounds.run(|| cursor.next_batch(1, usize::MAX)).map_err(refused)?;
    Ok(put(found.first().ok_or_else(|| no_document(&id))?))
}

/// Most documents of a group.
const GROUP_DOCUMENTS_MAX: usize = 10_000;
/// And bytes of them.
const GROUP_BYTES_MAX: usize = 64 << 20;

async fn group(context: &DocumentContext, glob: &str, params: Params) -> Result<Response> {
    let mut filter = Writer::new();
    for (name, value) in params.rest() {
        // A value that parses as JSON is that value; any other is a text.
        match extjson_parser::parse_value(&value) {
            Ok(parsed) => filter.put(&name, parsed.value()),
            Err(_) => filter.put(&name, Value::String(&value)),
        }
    }
    let filter = context.bounds.run(|| Filter::parse(filter.finish().doc(), &context.options()));
    let find = Find::matching(filter.map_err(|error| refused(error.into()))?);
    let snapshot = context.service.database().snapshot();
    let may_continue = || context.bounds.look();
    let mut memory = responses::Memory::new(&context.service);
    let names = context.collections(Some(glob))?;
    let look = || {
        let (mut found, mut bytes) = (Vec::new(), 0);
        for name in names {
            let collection = context.documents().collection(&context.database, &name)?;
            let rest = find.clone().limit(GROUP_DOCUMENTS_MAX - found.len());
            let mut cursor = collection.find_for(context.asked(), snapshot.engine().clone(), &rest)?;
            let batch = cursor.next_batch_while(usize::MAX, GROUP_BYTES_MAX, &may_continue)?;
            bytes += batch.iter().map(|document| document.bytes().len()).sum::<usize>();
            memory.cover(bytes)?;
            if bytes > GROUP_BYTES_MAX {
                return Err(DocumentsError::TooLarge { what: "answer", bytes, max: GROUP_BYTES_MAX });
            }
            found.extend(batch);
            if found.len() >= GROUP_DOCUMENTS_MAX {
                break;
            }
        }
        Ok(found)
    };
    let found = context.run_blocking_limited(look).await.map_err(refused)?;
    if found.len() >= GROUP_DOCUMENTS_MAX {
        let what = format!("a group shows less than {GROUP_DOCUMENTS_MAX} documents; choose among them");
        return Err(Problem::new(Code::TooLarge, what));
    }
    let values = found.iter().map(|document| Value::Document(document.doc()));
    memory.json(responses::listed("documents", values, Form::Relaxed))
}

/// `PATCH documents/{collection}/{id}`: the fields of the body replace those of the document. Returns the
/// body.
async fn merge(Place { context, name: At { path, .. } }: Place<At>, body: JsonText) -> Result<Response> {
    let fields = context.parse(body, |text| requests::document("the body", text)).await?;
    let Some((collection, id)) = resolved(&context, &path)? else { return Err(unknown(&path)) };
    if id.is_empty() {
        return Err(Problem::invalid_path("the path names no document"));
    }
    let mut update = Writer::new();
    update.open_document("$set");
    fields.doc().iter().for_each(|(name, value)| update.put(name, value));
    update.close();
    let parse = || Update::parse(Value::Document(update.finish().doc()), None, &context.options());
    let update = context.bounds.run(parse);
    let update = update.map_err(|error| refused(error.into()))?;
    let spec = UpdateSpec::new(id_filter(Value::String(&id)), update);
    let size = (fields.bytes().len(), false);
    let updated = context.change(size, Durability::Sync, |tx| tx.update_one(&collection, &spec)).await?;
    if updated.matched == 0 { Err(no_document(&id)) } else { Ok(put(&fields)) }
}

/// `DELETE documents/{collection}/{id}`
async fn remove(Place { context, name: At { path, .. } }: Place<At>, NoBody: NoBody) -> Result<StatusCode> {
    let Some((collection, id)) = resolved(&context, &path)? else { return Err(unknown(&path)) };
    if id.is_empty() {
        return Err(Problem::invalid_path("the path names no document"));
    }
    let filter = id_filter(Value::String(&id));
    let deleted = context.change((0, false), Durability::Sync, |tx| tx.delete_one(&collection, &filter));
    if deleted.await? { Ok(StatusCode::NO_CONTENT) } else { Err(no_document(&id)) }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct QueryIn<'a> {
    collection: String,
    #[serde(borrow, default)]
    query: Option<&'a RawValue>,
    #[serde(default)]
    skip: u64,
    /// 0: all.
    #[serde(default)]
    limit: u64,
    #[serde(default)]
    sort_field: String,
    #[serde(default)]
    sort_desc: bool,
    #[serde(default)]
    fields: Vec<String>,
}

impl QueryIn<'_> {
    fn find(&self, context: &DocumentContext) -> Result<Find> {
        let filter = requests::filter(self.query.map(RawValue::get), &context.options())?;
        let mut find = Find::matching(filter).skip(number("skip", self.skip)?);
        if self.limit > 0 {
            find = find.limit(number("limit", self.limit)?);
        }
        if !self.sort_field.is_empty() {
            let mut sort = Writer::new();
            sort.put(&self.sort_field, Value::Int32(if self.sort_desc { -1 } else { 1 }));
            find = find.sort(Sort::parse(sort.finish().doc()).map_err(|error| refused(error.into()))?);
        }
        Ok(match only(&self.fields)? {
            Some(projection) => find.project(projection),
            None => find,
        })
    }
}

/// `POST documents/query`
async fn query(Place { context, .. }: Place<Project>, body: JsonText) -> Result<Response> {
    let context = Arc::new(context);
    let at = context.clone();
    let parse = move |text: &str| {
        let asked: QueryIn<'_> = from_json(text)?;
        Ok((asked.find(&at)?, asked.collection))
    };
    let (find, name) = context.parse(body, parse).await?;
    let permit = context.reading()?;
    let (collection, _) = context.existing(&name)?;
    let snapshot = context.service.database().snapshot().engine().clone();
    let open = || collection.find_for(context.asked(), snapshot, &find);
    let cursor = context.run_blocking_limited(open).await.map_err(refused)?;
    Answer::new(cursor, context.service.clone(), permit, (false, Form::Relaxed)).send().await
}

/// `GET collections?prefix`: names.
async fn collections(
    Place { context, .. }: Place<Project>,
    RawQuery(query): RawQuery,
) -> Result<Json<Schema>> {
    let mut params = Params::parse(query.as_deref())?;
    let prefix = params.one("prefix")?.unwrap_or_default();
    params.finish()?;
    let mut names = context.collections(None)?;
    names.retain(|name| name.starts_with(&prefix));
    Ok(Json(json!({ "collections": names })))
}

/// The options for a JSON Schema: its requirements on values, and its references.
fn options_of(schema: Option<Schema>, protected: bool) -> Result<CollectionOptions> {
    let mut references = Vec::new();
    let validator = match schema {
        None => None,
        Some(schema) => {
            let schema = translated(schema, "", &mut references)?;
            Some(requests::document("schema", &json!({ "$jsonSchema": schema }).to_string())?)
        }
    };
    Ok(CollectionOptions { validator, protected, references, ..CollectionOptions::default() })
}

/// Translates a schema to MongoDB's: `$schema` names the dialect and requires nothing, whole numbers are
/// `integer` there, and `x-bundoc-ref` makes a reference.
fn translated(schema: Schema, path: &str, references: &mut Vec<Reference>) -> Result<Schema> {
    let Schema::Object(mut fields) = schema else { return Ok(schema) };
    fields.remove("$schema");
    if fields.get("type") == Some(&json!("integer")) {
        fields.insert("type".to_owned(), json!("number"));
        fields.entry("multipleOf").or_insert(json!(1));
    }
    if let Some(reference) = fields.remove("x-bundoc-ref") {
        references.push(reference_of(path, &reference)?);
    }
    if let Some(Schema::Object(properties)) = fields.remove("properties") {
        let mut kept = Map::new();
        for (name, property) in properties {
            let inner = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            kept.insert(name, translated(property, &inner, references)?);
        }
        fields.insert("properties".to_owned(), Schema::Object(kept));
    }
    if let Some(items) = fields.remove("items") {
        fields.insert("items".to_owned(), translated(items, path, references)?);
    }
    Ok(Schema::Object(fields))
}

fn reference_of(path: &str, reference: &Schema) -> Result<Reference> {
    let refuse =
        |what: &str| Err(Problem::invalid_field(format!("schema: x-bundoc-ref of {path:?}: {what}")));
    let Schema::Object(fields) = reference else { return refuse("an object is needed") };
    if let Some(name) =
        fields.keys().find(|name| !["collection", "field", "on_delete"].contains(&name.as_str()))
    {
        return refuse(&format!("unknown field {name:?}"));
    }
    let text = |name: &str| fields.get(name).and_then(Schema::as_str);
    let Some(collection) = text("collection") else { return refuse("collection is needed") };
    if text("field").is_some_and(|field| field != "_id") {
        return refuse("field is _id");
    }
    let on_delete = match text("on_delete") {
        None | Some("restrict") => OnDelete::Restrict,
        Some("set_null") => OnDelete::SetNull,
        Some("cascade") => OnDelete::Cascade,
        Some(_) => return refuse("on_delete is restrict, set_null or cascade"),
    };
    Ok(Reference { field: path.to_owned(), collection: collection.to_owned(), on_delete })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CollectionIn {
    name: String,
    schema: Option<Schema>,
    #[serde(default)]
    update_if_exists: bool,
    #[serde(default)]
    prevent_schema_override: bool,
}

/// `POST collections`
async fn create(Place { context, .. }: Place<Project>, body: JsonText) -> Result<Response> {
    let asked: CollectionIn = context.parse(body, |text| from_json(text)).await?;
    let options = options_of(asked.schema.clone(), asked.prevent_schema_override)?;
    let collection = context.collection(&asked.name)?;
    let there = collection.definition().map_err(refused)?;
    let status = match there {
        Some(_) if !asked.update_if_exists => {
            let what = format!("there is a collection {:?} already", asked.name);
            return Err(Problem::new(Code::AlreadyExists, what));
        }
        Some(_) => {
            context
                .change((0, true), Durability::Sync, |tx| tx.set_options(&collection, options.clone()))
                .await?;
            StatusCode::OK
        }
        None => {
            let create = context
                .change((0, true), Durability::Sync, |tx| tx.create_collection(&collection, options.clone()));
            create.await?;
            StatusCode::CREATED
        }
    };
    Ok((status, Json(json!({ "name": asked.name, "schema": asked.schema }))).into_response())
}

/// `GET collections/{name}`
async fn look(
    Place { context, name: InCollection { collection, .. } }: Place<InCollection>,
) -> Result<Response> {
    let (_, definition) = context.existing(&collection)?;
    let options = definition.options();
    let schema = options.validator.as_ref().and_then(|validator| validator.doc().get("$jsonSchema"));
    let rules = options.rules.as_ref().map(|rules| Value::Document(rules.doc()));
    let mut out = Writer::new();
    out.put("name", Value::String(&collection));
    out.put("schema", schema.unwrap_or(Value::Null));
    out.put("rules", rules.unwrap_or(Value::Null));
    Ok(put(&out.finish()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeIn {
    schema: Option<Schema>,
    prevent_schema_override: Option<bool>,
}

/// `PATCH collections/{name}`: another schema.
async fn change(
    Place { context, name: InCollection { collection, .. } }: Place<InCollection>,
    body: JsonText,
) -> Result<Json<Schema>> {
    let asked: ChangeIn = context.parse(body, |text| from_json(text)).await?;
    let (handle, definition) = context.existing(&collection)?;
    let mut options = definition.options().clone();
    if let Some(schema) = asked.schema {
        let new = options_of(Some(schema), false)?;
        (options.validator, options.references) = (new.validator, new.references);
    }
    options.protected = asked.prevent_schema_override.unwrap_or(options.protected);
    context.change((0, true), Durability::Sync, |tx| tx.set_options(&handle, options.clone())).await?;
    Ok(Json(json!({ "status": "collection updated" })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesIn<'a> {
    #[serde(borrow)]
    rules: &'a RawValue,
}

/// `PATCH collections/{name}/rules`
async fn rules(
    Place { context, name: InCollection { collection, .. } }: Place<InCollection>,
    body: JsonText,
) -> Result<Json<Schema>> {
    let parse = |text: &str| requests::document("rules", from_json::<RulesIn<'_>>(text)?.rules.get());
    let rules = context.parse(body, parse).await?;
    let (handle, definition) = context.existing(&collection)?;
    let options = CollectionOptions { rules: Some(rules), ..definition.options().clone() };
    context.change((0, true), Durability::Sync, |tx| tx.set_options(&handle, options.clone())).await?;
    Ok(Json(json!({ "status": "rules updated" })))
}

/// `DELETE collections/{name}`
async fn drop_collection(
    Place { context, name: InCollection { collection, .. } }: Place<InCollection>,
    NoBody: NoBody,
) -> Result<StatusCode> {
    let (handle, _) = context.existing(&collection)?;
    context.change((0, true), Durability::Sync, |tx| tx.drop_collection(&handle)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Drops the index on one field.
async fn drop_on(context: &DocumentContext, name: &str, field: &str) -> Result<StatusCode> {
    let (collection, definition) = context.existing(name)?;
    let on_field = |fields: &[String]| fields.iter().map(String::as_str).eq([field]);
    let found = definition.indexes().iter().find(|index| on_field(&requests::fields(&index.def().fields)));
    let missing = || Problem::new(Code::NotFound, format!("collection {name:?} has no index on {field:?}"));
    let index = found.ok_or_else(missing)?.name().to_owned();
    context.change((0, true), Durability::Sync, |tx| tx.drop_index(&collection, &index)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `DELETE collections/{name}/indexes/{field}`
async fn drop_field_index(
    Place { context, name: FieldIndex { collection, field, .. } }: Place<FieldIndex>,
    NoBody: NoBody,
) -> Result<StatusCode> {
    drop_on(&context, &collection, &field).await
}

/// `DELETE indexes?collection&field`
async fn drop_index(
    Place { context, .. }: Place<Project>,
    RawQuery(query): RawQuery,
    NoBody: NoBody,
) -> Result<StatusCode> {
    let mut params = Params::parse(query.as_deref())?;
    let (collection, field) = (params.one("collection")?, params.one("field")?);
    params.finish()?;
    let (Some(collection), Some(field)) = (collection, field) else {
        return Err(Problem::invalid_parameter("the parameters collection and field are needed"));
    };
    drop_on(&context, &collection, &field).await
}

/// `GET indexes?collection`: the fields that have an index.
async fn indexes(Place { context, .. }: Place<Project>, RawQuery(query): RawQuery) -> Result<Json<Schema>> {
    let mut params = Params::parse(query.as_deref())?;
    let collection = params.one("collection")?;
    params.finish()?;
    let collection =
        collection.ok_or_else(|| Problem::invalid_parameter("the parameter collection is needed"))?;
    let (_, definition) = context.existing(&collection)?;
    let names = definition.indexes().iter().map(|index| requests::fields(&index.def().fields).join(","));
    Ok(Json(json!({ "indexes": names.collect::<Vec<_>>() })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IndexIn {
    collection: String,
    field: String,
}

/// `POST indexes`: an index on one field; with a `*` in the collection, on all that match.
async fn create_index(Place { context, .. }: Place<Project>, body: JsonText) -> Result<Response> {
    let asked: IndexIn = context.parse(body, |text| from_json(text)).await?;
    let def = IndexDef::on([asked.field.as_str()]);
    let group = asked.collection.contains('*');
    let names = match group {
        true => context.collections(Some(&asked.collection))?,
        false => vec![asked.collection.clone()],
    };
    for name in &names {
        let (collection, _) = context.existing(name)?;
        context.service.run_blocking_limited(|| collection.create_index(&def)).await.map_err(refused)?;
    }
    let body = match group {
        true => json!({ "status": "group index created", "pattern": asked.collection, "field": asked.field }),
        false => json!({ "status": "index created", "field": asked.field }),
    };
    Ok((StatusCode::CREATED, Json(body)).into_response())
}
