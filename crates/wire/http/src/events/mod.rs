//! The events of a store: append, read, and queries that return no events (count, exists).

pub(crate) mod compat_crablet;
pub(crate) mod live_stats;
pub(crate) mod stores;
pub(crate) mod subscribe;

use core::convert::Infallible;

use axum::Json;
use axum::extract::FromRequestParts;
use axum::http::header::{CACHE_CONTROL, ETAG, IF_NONE_MATCH};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use ropewalk::events::{QueryItem, ReadOptions};
use ropewalk::{Position, Query};
use ropewalk_auth::Needs;
use ropewalk_wire::AskedStore;
use utoipa_axum::routes;

use crate::kit::body::{JsonText, from_json};
use crate::kit::encode::exact_asked;
use crate::kit::json::{
    AppendIn, AppendedOut, AskIn, CountOut, EventsOut, ExistsIn, ExistsOut, HeadOut, LastOut, QueryIn, ReadIn,
};
use crate::kit::params::{MustExist, Params, QueryParams};
use crate::kit::path::{PathRequest, StoreName};
use crate::kit::problem::{Problem, Result};
use crate::kit::stream;
use crate::kit::stream::{Form, NDJSON, preferred};
use crate::route::{Route, STORE};

/// The header `Idempotency-Key`. A copy of all headers would hold the buffer that they were read into.
pub(crate) struct IdempotencyHeader(pub(crate) Option<HeaderValue>);

impl<S: Sync> FromRequestParts<S> for IdempotencyHeader {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(parts.headers.get("idempotency-key").cloned()))
    }
}

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::new(Needs::append(STORE), routes!(append)),
        Route::new(Needs::read(STORE), routes!(get_events)),
        Route::new(Needs::read(STORE), routes!(query_events)),
        Route::new(Needs::read(STORE), routes!(last, get_last)),
        Route::new(Needs::read(STORE), routes!(count, get_count)),
        Route::new(Needs::read(STORE), routes!(exists, get_exists)),
        Route::new(Needs::read(STORE), routes!(head)),
    ]
}

/// Appends events together or not at all.
///
/// Conditions make it conditional: it fails with 409 when an existing event matches one of them. Responds
/// when it is durable. With an idempotency key a repetition is safe: it writes nothing and gets the first
/// result.
#[utoipa::path(
    post, path = "/v1/stores/{store}/events", operation_id = "append", tag = "events",
    params(StoreName, ("idempotency-key" = Option<String>, Header, description = "The same as the field of the body.")),
    request_body = AppendIn<'static>,
    responses(
        (status = 200, description = "Appended.", body = AppendedOut),
        (status = 409, description = "A condition failed, or the tracking position does not rise. Nothing was written."),
        (status = 422, description = "The idempotency key was used for other events. Nothing was written."),
    ),
)]
async fn append(
    PathRequest { app, caller, names: StoreName { store }, .. }: PathRequest<StoreName>,
    IdempotencyHeader(key): IdempotencyHeader,
    body: JsonText,
) -> Result<Json<AppendedOut>> {
    let (events, mut options) = body.parse(|text| from_json::<AppendIn<'_>>(text)?.into_parts()).await?;
    if let Some(key) = key {
        let key =
            key.to_str().map_err(|_| Problem::invalid_header("the header Idempotency-Key is not ASCII"))?;
        if options.idempotency_key.as_deref().is_some_and(|other| other != key) {
            return Err(Problem::invalid_header(
                "the header Idempotency-Key and the field idempotency_key differ",
            ));
        }
        options.idempotency_key = Some(key.to_owned());
    }
    let appended = app.service.append(&caller, &store, &events, options).await?;
    let position = |position: Position| (position.0 > 0).then_some(position.0);
    Ok(Json(AppendedOut {
        first: position(appended.first),
        last: position(appended.last),
        seq: appended.seq.0,
    }))
}

/// Matching events of one snapshot, as JSON or, with `Accept: application/x-ndjson`, one per line. With
/// `Accept: application/x-ndjson; payload=base64` every payload is base64: where it is JSON, white space
/// between its tokens may change otherwise.
///
/// The response is a stream: a client may read a store of any size in little memory. It is one snapshot,
/// whatever is appended meanwhile.
#[utoipa::path(
    get, path = "/v1/stores/{store}/events", operation_id = "read", tag = "events",
    params(
        StoreName, QueryParams,
        ("from" = Option<u64>, Query, description = "First position to look at, inclusive, in the direction of reading."),
        ("after" = Option<u64>, Query, description = "Only events after this position."),
        ("before" = Option<u64>, Query, description = "Only events before this position."),
        ("backwards" = Option<bool>, Query, description = "Newest first."),
        ("limit" = Option<u64>, Query, description = "At most so many events."),
        MustExist,
    ),
    responses(
        (status = 200, description = "Matching events.",
            headers(("ropewalk-head" = u64, description = "Last position of the store at this moment; 0 when it is empty.")),
            content((EventsOut = "application/json"), (String = "application/x-ndjson"))),
        (status = 406, description = "There is JSON and NDJSON."),
    ),
)]
async fn get_events(at: PathRequest<StoreName>, headers: HeaderMap) -> Result<Response> {
    let form = form(&headers)?;
    let mut params = Params::parse(at.query.as_deref())?;
    let store = params.asked(&at.names.store)?;
    let query = query_of(&mut params)?;
    let options = ReadOptions {
        from: params.number("from")?.map(Position),
        after: params.number("after")?.map(Position),
        before: params.number("before")?.map(Position),
        backwards: params.flag("backwards")?,
        limit: params.number("limit")?,
    };
    params.finish()?;
    stream::answer(at.app.service.read(&at.caller, store, query, options)?, form).await
}

/// Matching events, requested by a body: for queries that are too long for a URL.
#[utoipa::path(
    post, path = "/v1/stores/{store}/events:query", operation_id = "query", tag = "events",
    params(StoreName, MustExist),
    request_body = ReadIn,
    responses(
        (status = 200, description = "Matching events.",
            headers(("ropewalk-head" = u64, description = "Last position of the store at this moment; 0 when it is empty.")),
            content((EventsOut = "application/json"), (String = "application/x-ndjson"))),
        (status = 406, description = "There is JSON and NDJSON."),
    ),
)]
async fn query_events(at: PathRequest<StoreName>, headers: HeaderMap, body: JsonText) -> Result<Response> {
    let store = at.asked_store()?;
    let form = form(&headers)?;
    let (query, options) = body.parse(|text| Ok(from_json::<ReadIn>(text)?.into_parts())).await?;
    stream::answer(at.app.service.read(&at.caller, store, query, options)?, form).await
}

/// The newest matching event. Its cost does not grow with the store.
#[utoipa::path(
    get, path = "/v1/stores/{store}/events:last", operation_id = "get_last", tag = "events",
    params(StoreName, QueryParams, MustExist),
    responses((status = 200, description = "The event, or null.", body = LastOut)),
)]
async fn get_last(at: PathRequest<StoreName>) -> Result<Response> {
    let (store, query) = only_query(&at)?;
    newest(&at, store, query).await
}

/// The newest matching event, requested by a body.
#[utoipa::path(
    post, path = "/v1/stores/{store}/events:last", operation_id = "last", tag = "events",
    params(StoreName, MustExist),
    request_body = AskIn,
    responses((status = 200, description = "The event, or null.", body = LastOut)),
)]
async fn last(at: PathRequest<StoreName>, body: JsonText) -> Result<Response> {
    let (store, query) = query_in(&at, body).await?;
    newest(&at, store, query).await
}

async fn newest(at: &PathRequest<StoreName>, store: AskedStore<'_>, query: Query) -> Result<Response> {
    let newest = ReadOptions::backwards().limit(1);
    stream::newest(at.app.service.read(&at.caller, store, query, newest)?).await
}

/// The number of matching events. The events themselves are not read.
#[utoipa::path(
    get, path = "/v1/stores/{store}/events:count", operation_id = "get_count", tag = "events",
    params(StoreName, QueryParams, MustExist),
    responses((status = 200, description = "Counted.", body = CountOut)),
)]
async fn get_count(at: PathRequest<StoreName>) -> Result<Json<CountOut>> {
    let (store, query) = only_query(&at)?;
    Ok(Json(CountOut { count: at.app.service.count(&at.caller, store, &query).await? }))
}

/// The number of matching events, requested by a body.
#[utoipa::path(
    post, path = "/v1/stores/{store}/events:count", operation_id = "count", tag = "events",
    params(StoreName, MustExist),
    request_body = AskIn,
    responses((status = 200, description = "Counted.", body = CountOut)),
)]
async fn count(at: PathRequest<StoreName>, body: JsonText) -> Result<Json<CountOut>> {
    let (store, query) = query_in(&at, body).await?;
    Ok(Json(CountOut { count: at.app.service.count(&at.caller, store, &query).await? }))
}

/// Whether an event matches. Stops at the first.
#[utoipa::path(
    get, path = "/v1/stores/{store}/events:exists", operation_id = "get_exists", tag = "events",
    params(
        StoreName, QueryParams,
        ("after" = Option<u64>, Query, description = "Only events after this position."),
        MustExist,
    ),
    responses((status = 200, description = "Looked.", body = ExistsOut)),
)]
async fn get_exists(at: PathRequest<StoreName>) -> Result<Json<ExistsOut>> {
    let mut params = Params::parse(at.query.as_deref())?;
    let store = params.asked(&at.names.store)?;
    let query = query_of(&mut params)?;
    let after = params.number("after")?.map(Position);
    params.finish()?;
    Ok(Json(ExistsOut { exists: at.app.service.exists(&at.caller, store, &query, after).await? }))
}

/// Whether an event matches, requested by a body.
#[utoipa::path(
    post, path = "/v1/stores/{store}/events:exists", operation_id = "exists", tag = "events",
    params(StoreName, MustExist),
    request_body = ExistsIn,
    responses((status = 200, description = "Looked.", body = ExistsOut)),
)]
async fn exists(at: PathRequest<StoreName>, body: JsonText) -> Result<Json<ExistsOut>> {
    let store = at.asked_store()?;
    let build = |text: &str| {
        let asked: ExistsIn = from_json(text)?;
        Ok((Query::from(asked.query.0), asked.after.map(Position)))
    };
    let (query, after) = body.parse(build).await?;
    Ok(Json(ExistsOut { exists: at.app.service.exists(&at.caller, store, &query, after).await? }))
}

/// The last position of the store. With `If-None-Match` it responds with 304 as long as nothing was appended.
#[utoipa::path(
    get, path = "/v1/stores/{store}/head", operation_id = "head", tag = "events",
    params(
        StoreName,
        MustExist,
        ("if-none-match" = Option<String>, Header, description = "The `ETag` of an earlier answer."),
    ),
    responses(
        (status = 200, description = "The last position.", body = HeadOut,
            headers(("etag" = String, description = "Changes with every append."))),
        (status = 304, description = "Nothing was appended since."),
    ),
)]
async fn head(at: PathRequest<StoreName>, headers: HeaderMap) -> Result<Response> {
    let head = at.app.service.head(&at.caller, at.asked_store()?).await?.map(|head| head.0);
    let tag = format!("\"{}\"", head.unwrap_or(0));
    let known = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let same = known.flat_map(|list| list.split(',')).any(|known| {
        let known = known.trim();
        known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag
    });
    let mut response =
        if same { StatusCode::NOT_MODIFIED.into_response() } else { Json(HeadOut { head }).into_response() };
    let fields = response.headers_mut();
    fields.insert(ETAG, HeaderValue::from_str(&tag).expect("a number in quotes is a header value"));
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}

fn form(headers: &HeaderMap) -> Result<Form> {
    let chosen = preferred(headers, &["application/json", NDJSON])?;
    Ok(match chosen == NDJSON {
        true if exact_asked(headers) => Form::ExactLines,
        true => Form::Lines,
        false => Form::Object,
    })
}

/// The query of `query=<json>`, or of `type=` and `tag=`, which make one item.
pub(crate) fn query_of(params: &mut Params) -> Result<Query> {
    let query: Option<QueryIn> = params.json("query")?;
    let (types, tags) = (params.all("type"), params.all("tag"));
    let (type_prefixes, tag_prefixes) = (params.all("type_prefix"), params.all("tag_prefix"));
    let item = QueryItem { types, tags, type_prefixes, tag_prefixes };
    match query {
        Some(_) if !item.is_empty() => {
            Err(Problem::invalid_parameter("the parameter query excludes type and tag"))
        }
        Some(query) => Ok(query.into()),
        None if !item.is_empty() => Ok(Query::from_items([item])),
        None => Ok(Query::all()),
    }
}

fn only_query(at: &PathRequest<StoreName>) -> Result<(AskedStore<'_>, Query)> {
    let mut params = Params::parse(at.query.as_deref())?;
    let asked = (params.asked(&at.names.store)?, query_of(&mut params)?);
    params.finish()?;
    Ok(asked)
}

/// The query of a body.
async fn query_in(at: &PathRequest<StoreName>, body: JsonText) -> Result<(AskedStore<'_>, Query)> {
    let store = at.asked_store()?;
    Ok((store, body.parse(|text| Ok(from_json::<AskIn>(text)?.query.0.into())).await?))
}
