//! Single documents by their `_id`.
//!
//! An `ETag` identifies the bytes of a document. `If-Match` makes a write conditional, in the same commit:
//! the document is unchanged, or nothing is written. So two clients that read, change and write back do not
//! undo each other's work.

use axum::extract::RawQuery;
use axum::http::header::{CONTENT_TYPE, ETAG, HeaderName, IF_MATCH, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use ropewalk::Durability;
use ropewalk::documents::lang::extjson::{self, Form};
use ropewalk::documents::lang::{DocBuf, Filter, Owned, Update, Value, Writer};
use ropewalk::documents::{DocumentsError, DocumentsTx, UpdateSpec, id_filter};
use ropewalk::hooks::hex;
use ropewalk_auth::Needs;
use ropewalk_wire::extjson_parser;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use utoipa::IntoParams;
use utoipa_axum::routes;

use super::responses::Canonical;
use super::{DocumentContext, Place, refused, requests};
use crate::kit::body::{JsonText, NoBody};
use crate::kit::params::Params;
use crate::kit::problem::{Problem, Refusal, Result};
use crate::route::{DATABASE, Route};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Needs::read(DATABASE), routes!(get)),
        Route::new(Needs::append(DATABASE), routes!(put, delete)),
        // The changed document is returned.
        Route::new(Needs::read_and_append(DATABASE), routes!(patch)),
    ]
}

/// `{database}`, `{collection}` and `{id}`.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct DocumentName {
    /// The database.
    #[param(min_length = 1, max_length = 63)]
    pub(super) database: String,
    /// The collection; a slash in its name is written `%2F`.
    #[param(min_length = 1, max_length = 255)]
    pub(super) collection: String,
    /// The document's `_id`: a text, or as the parameter `id` says.
    #[param(min_length = 1)]
    pub(super) id: String,
}

in_database!(database: DocumentName);

/// The parameter `id` of [`Address`]. Only described here.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code)]
struct IdType {
    /// Type of the identifier in the path: `text` (default), `oid` (an ObjectId in hex), `json` (any type, in Extended JSON).
    id: Option<String>,
}

/// Query parameters: the kind of `_id` in the path, and the form of the response.
struct Address {
    id: Owned,
    form: Form,
}

impl Address {
    fn read(id: &str, query: Option<&str>) -> Result<Self> {
        let mut params = Params::parse(query)?;
        let kind = params.one("id")?;
        let form = super::responses::form(params.flag("canonical")?);
        params.finish()?;
        let json = |text: &str| {
            extjson_parser::parse_value(text)
                .map_err(|error| Problem::from(error).within("the _id in the path"))
        };
        let id = match kind.as_deref() {
            None | Some("text") => Owned::from(Value::String(id)),
            Some("oid") => json(&format!("{{\"$oid\":{}}}", serde_json::Value::from(id)))?,
            Some("json") => json(id)?,
            Some(other) => {
                let what = format!("parameter \"id\" is {other:?}; text, oid or json is needed");
                return Err(Problem::invalid_parameter(what));
            }
        };
        Ok(Self { id, form })
    }
}

/// The `ETag` of a document.
fn tag(document: &DocBuf) -> String {
    let hash = Sha256::digest(document.bytes());
    format!("\"{}\"", hex(hash.get(..16).unwrap_or_default()))
}

/// Whether a header lists a tag; weak tags count like strong ones.
fn lists(headers: &HeaderMap, name: &HeaderName, wanted: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values
        .flat_map(|list| list.split(','))
        .map(str::trim)
        .any(|given| given == "*" || given.strip_prefix("W/").unwrap_or(given) == wanted)
}

/// Rejects a write whose headers expect another document, or none.
fn expected(headers: &HeaderMap, current: Option<&DocBuf>) -> Result<()> {
    let refuse = |what: &str| Err(Problem::refused(Refusal::Precondition, what));
    match current {
        Some(current) => {
            let tag = tag(current);
            if headers.contains_key(IF_MATCH) && !lists(headers, &IF_MATCH, &tag) {
                return refuse("the document is not the one that If-Match names");
            }
            if headers.contains_key(IF_NONE_MATCH) && lists(headers, &IF_NONE_MATCH, &tag) {
                return refuse("there is a document, which If-None-Match excludes");
            }
            Ok(())
        }
        None if headers.contains_key(IF_MATCH) => refuse("there is no document, which If-Match requires"),
        None => Ok(()),
    }
}

fn answer(status: StatusCode, document: &DocBuf, form: Form) -> Response {
    let mut out = Vec::with_capacity(2 * document.bytes().len());
    extjson::put_document(&mut out, document.doc(), form);
    let tag = HeaderValue::from_str(&tag(document)).expect("hexadecimal digits in quotes are a header value");
    (status, [(CONTENT_TYPE, HeaderValue::from_static("application/json")), (ETAG, tag)], out).into_response()
}

fn missing(id: &Owned) -> Problem {
    let text = extjson::to_text(id.value(), Form::Relaxed);
    Problem::new(ropewalk_wire::Code::NotFound, format!("there is no document with the _id {text}"))
}

/// A document as it will be stored: with this `_id`, in front.
pub(super) fn with_id(id: Value<'_>, document: &DocBuf) -> Result<DocBuf> {
    let mut out = Writer::new();
    out.put("_id", id);
    for (name, value) in document.doc() {
        if name != "_id" {
            out.put(name, value);
        } else if Owned::from(value) != Owned::from(id) {
            return Err(Problem::invalid_field("the _id of the document and the one of the path differ"));
        }
    }
    Ok(out.finish())
}

/// The stored document, regardless of rules: for the preconditions of a write.
fn stored(
    tx: &mut DocumentsTx<'_>,
    context: &DocumentContext,
    collection: &ropewalk::documents::Collection,
    id: &Owned,
) -> Result<Option<DocBuf>, DocumentsError> {
    tx.act_for(None);
    let found = tx.get(collection, id.value());
    tx.act_for(context.asked());
    found
}

/// A document.
///
/// With `If-None-Match` it responds with 304 as long as the document has that tag.
#[utoipa::path(
    get, path = "/v1/databases/{database}/collections/{collection}/documents/{id}", operation_id = "get_document", tag = "documents",
    params(
        DocumentName, IdType, Canonical,
        ("if-none-match" = Option<String>, Header, description = "The `ETag` of an earlier answer."),
    ),
    responses(
        (status = 200, description = "The document.", body = Object, headers(("etag" = String, description = "Changes with every change of the document."))),
        (status = 304, description = "It is still the same."),
    ),
)]
async fn get(
    Place { context, name }: Place<DocumentName>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response> {
    let Address { id, form } = Address::read(&name.id, query.as_deref())?;
    let _permit = context.reading()?;
    let collection = context.collection(&name.collection)?;
    let read = || match context.asked() {
        None => collection.get(id.value()),
        Some(asked) => {
            let snapshot = context.service.database().snapshot();
            snapshot.documents(context.service.database()).as_caller(asked).get(&collection, id.value())
        }
    };
    let Some(document) = context.bounds.run(read).map_err(refused)? else { return Err(missing(&id)) };
    if headers.contains_key(IF_NONE_MATCH) && lists(&headers, &IF_NONE_MATCH, &tag(&document)) {
        return Ok((StatusCode::NOT_MODIFIED, [(ETAG, tag(&document))]).into_response());
    }
    Ok(answer(StatusCode::OK, &document, form))
}

/// Stores a complete document: a new one, or in place of the existing one.
///
/// `If-Match` with an `ETag` replaces only that document, `If-None-Match: *` only creates a new one.
#[utoipa::path(
    put, path = "/v1/databases/{database}/collections/{collection}/documents/{id}", operation_id = "put_document", tag = "documents",
    params(
        DocumentName, IdType, Canonical,
        ("if-match" = Option<String>, Header, description = "Only in place of the document with this `ETag`."),
        ("if-none-match" = Option<String>, Header, description = "`*`: only if no document has this `_id`."),
    ),
    request_body = Object,
    responses(
        (status = 200, description = "It took the place of another.", body = Object, headers(("etag" = String, description = "Of the document as it is now."))),
        (status = 201, description = "It is new.", body = Object, headers(("etag" = String, description = "Of the document as it is now."))),
        (status = 409, description = "A unique index has its values: `already_exists`."),
    ),
)]
async fn put(
    Place { context, name }: Place<DocumentName>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
    body: JsonText,
) -> Result<Response> {
    let Address { id, form } = Address::read(&name.id, query.as_deref())?;
    let document = context.parse(body, |text| requests::document("the body", text)).await?;
    let document = with_id(id.value(), &document)?;
    let collection = context.collection(&name.collection)?;
    let parse = || Update::parse(Value::Document(document.doc()), None, &context.options());
    let replacement = context.bounds.run(parse);
    let replacement = replacement.map_err(|error| refused(error.into()))?;
    let spec = UpdateSpec::new(id_filter(id.value()), replacement);
    let size = (document.bytes().len(), false);
    let new = context.change(size, Durability::Sync, |tx| {
        let current = stored(tx, &context, &collection, &id)?;
        if let Err(problem) = expected(&headers, current.as_ref()) {
            return Ok(Err(problem));
        }
        match current {
            Some(_) => tx.update_one(&collection, &spec).map(|_| Ok(false)),
            None => tx.insert_one(&collection, document.bytes()).map(|_| Ok(true)),
        }
    });
    let status = if new.await?? { StatusCode::CREATED } else { StatusCode::OK };
    Ok(answer(status, &document, form))
}

/// Changes a document by operators, `{"$set": {"age": 42}}`, or by stages of a pipeline, and returns the
/// result.
#[utoipa::path(
    patch, path = "/v1/databases/{database}/collections/{collection}/documents/{id}", operation_id = "patch_document", tag = "documents",
    params(
        DocumentName, IdType, Canonical,
        ("if-match" = Option<String>, Header, description = "Only the document with this `ETag`."),
    ),
    request_body = serde_json::Value,
    responses(
        (status = 200, description = "The document as it is now.", body = Object, headers(("etag" = String, description = "Of the document as it is now."))),
        (status = 409, description = "A unique index has its values: `already_exists`."),
    ),
)]
async fn patch(
    Place { context, name }: Place<DocumentName>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
    body: JsonText,
) -> Result<Response> {
    let Address { id, form } = Address::read(&name.id, query.as_deref())?;
    let options = context.options();
    let update = context.parse(body, move |text| requests::update(text, None, &options)).await?;
    if update.is_replacement() {
        return Err(Problem::invalid_field("PATCH takes operators such as $set; PUT takes whole documents"));
    }
    let collection = context.collection(&name.collection)?;
    let spec = UpdateSpec::new(id_filter(id.value()), update);
    let changed = context.change((0, false), Durability::Sync, |tx| {
        let Some(current) = tx.get(&collection, id.value())? else { return Ok(Err(missing(&id))) };
        if let Err(problem) = expected(&headers, Some(&current)) {
            return Ok(Err(problem));
        }
        tx.update_one(&collection, &spec)?;
        let new = stored(tx, &context, &collection, &id)?;
        Ok(Ok(new.unwrap_or(current)))
    });
    Ok(answer(StatusCode::OK, &changed.await??, form))
}

/// Deletes a document.
#[utoipa::path(
    delete, path = "/v1/databases/{database}/collections/{collection}/documents/{id}", operation_id = "delete_document", tag = "documents",
    params(
        DocumentName, IdType,
        ("if-match" = Option<String>, Header, description = "Only the document with this `ETag`."),
    ),
    responses((status = 204, description = "Deleted.")),
)]
async fn delete(
    Place { context, name }: Place<DocumentName>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
    NoBody: NoBody,
) -> Result<StatusCode> {
    let Address { id, .. } = Address::read(&name.id, query.as_deref())?;
    let collection = context.collection(&name.collection)?;
    let filter: Filter = id_filter(id.value());
    let deleted = context.change((0, false), Durability::Sync, |tx| {
        let Some(current) = stored(tx, &context, &collection, &id)? else { return Ok(Err(missing(&id))) };
        if let Err(problem) = expected(&headers, Some(&current)) {
            return Ok(Err(problem));
        }
        tx.delete_one(&collection, &filter)?;
        Ok(Ok(()))
    });
    deleted.await??;
    Ok(StatusCode::NO_CONTENT)
}
