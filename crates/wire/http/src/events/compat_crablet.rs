//! Two HTTP interfaces of other projects, so that their load tests run unmodified.
//!
//! | request | defined by | answer |
//! |---|---|---|
//! | `GET /read?query=&options=` | the DCB k6 suite (dcb.events) | an array of events, the payload as text |
//! | `POST /append` | both; go-crablet also sends one event instead of an array | always 200: `durationInMicroseconds`, `appendConditionFailed` |
//! | `POST /read` | go-crablet's web app | counts, no events |
//! | `POST /cleanup` | go-crablet's web app | deletes the store; only with the setting `dev` |
//!
//! Where the originals are weaker than their specification we follow the specification: a condition's items
//! are not flattened, `after` is honoured, and an append is serializable whatever isolation a header
//! requests. Unknown fields of an append are ignored, as in the originals: their clients send more than they
//! define. An invalid request gets a problem with a 4xx status, as on every other path.
//! Source: the scripts of dcb-events/dcb-events.github.io and rodolfodpk/go-crablet, described in our own
//! words.

use std::fmt;
use std::time::Instant;

use axum::Json;
use axum::http::HeaderMap;
use axum::response::Response;
use ropewalk::events::ReadOptions;
use ropewalk::{AppendCondition, AppendOptions, Event, Position, Query};
use ropewalk_auth::{Needs, Resource};
use ropewalk_wire::{AskedStore, Code};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;
use uuid::Uuid;

use crate::app::App;
use crate::kit::body::{JsonText, from_json};
use crate::kit::json::{Object, QueryIn};
use crate::kit::params::Params;
use crate::kit::path::PathRequest;
use crate::kit::problem::{Problem, Result};
use crate::kit::stream;
use crate::kit::stream::Form;
use crate::route::Route;

pub(crate) fn routes(dev: bool) -> Vec<Route> {
    let mut routes = vec![
        Route::new(Needs::read(Resource::Header), routes!(read, count)),
        Route::new(Needs::append(Resource::Header), routes!(append)),
    ];
    if dev {
        routes.push(Route::new(Needs::admin(Resource::Header), routes!(cleanup)));
    }
    routes
}

/// The header that [`store`] reads. Only described here.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[allow(dead_code)]
struct StoreHeader {
    /// Another store than the default one.
    #[param(rename = "x-store")]
    store: Option<String>,
}

/// An event whose payload is a text.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = PlainEvent)]
struct PlainEvent {
    #[serde(rename = "type")]
    #[schema(example = "UserCreated")]
    event_type: String,
    #[serde(default)]
    #[schema(example = json!(["user:1"]))]
    tags: Vec<String>,
    #[serde(default)]
    #[schema(example = "{}")]
    data: String,
    id: Option<Uuid>,
}

impl From<PlainEvent> for Event {
    fn from(event: PlainEvent) -> Self {
        Self {
            event_type: event.event_type,
            tags: event.tags,
            data: event.data.into_bytes(),
            id: event.id,
            metadata: Vec::new(),
        }
    }
}

/// One event, or an array of events.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum OneOrMany {
    One(PlainEvent),
    Many(Vec<PlainEvent>),
}

impl OneOrMany {
    fn into_events(self) -> Vec<Event> {
        match self {
            Self::One(event) => vec![event.into()],
            Self::Many(events) => events.into_iter().map(Event::from).collect(),
        }
    }
}

/// Written by hand, because a derived untagged enum cannot say which field is wrong.
impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = OneOrMany;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an event or an array of events")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OneOrMany, A::Error> {
                PlainEvent::deserialize(MapAccessDeserializer::new(map)).map(OneOrMany::One)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<OneOrMany, A::Error> {
                let mut events = Vec::new();
                while let Some(Object(event)) = seq.next_element()? {
                    events.push(event);
                }
                Ok(OneOrMany::Many(events))
            }
        }

        deserializer.deserialize_any(Either)
    }
}

/// A position, as a number or (go-crablet) as a text of digits.
struct After(Position);

impl<'de> Deserialize<'de> for After {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl Visitor<'_> for Either {
            type Value = After;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a position")
            }

            fn visit_u64<E>(self, number: u64) -> Result<After, E> {
                Ok(After(Position(number)))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<After, E> {
                let number = text.parse().map_err(|_| E::invalid_value(Unexpected::Str(text), &self))?;
                Ok(After(Position(number)))
            }
        }

        deserializer.deserialize_any(Either)
    }
}

#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlainAppendCondition)]
struct PlainCondition {
    #[schema(value_type = QueryIn)]
    fail_if_events_match: Object<QueryIn>,
    /// Events up to this position are ignored; also as a text of digits.
    #[schema(value_type = Option<u64>)]
    after: Option<After>,
}

/// An append with at most one condition.
#[derive(Deserialize, ToSchema)]
#[schema(as = PlainAppendRequest)]
struct PlainAppend {
    events: OneOrMany,
    #[schema(value_type = Option<PlainCondition>)]
    condition: Option<Object<PlainCondition>>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlainAppended)]
struct PlainAppended {
    #[schema(minimum = 1)]
    duration_in_microseconds: u64,
    append_condition_failed: bool,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = PlainReadRequest)]
struct PlainRead {
    #[schema(value_type = QueryIn)]
    query: Object<QueryIn>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlainCount)]
struct PlainCount {
    #[schema(minimum = 1)]
    duration_in_microseconds: u64,
    number_of_matching_events: u64,
    /// Position of the newest of them, as a text; absent when no event matches.
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint_event_id: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Cleaned)]
struct Cleaned {
    success: bool,
    message: &'static str,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PlainOptions {
    from: Option<u64>,
    limit: Option<u64>,
    backwards: Option<bool>,
}

/// Appends one event or several; always responds with 200 when the condition was decided.
#[utoipa::path(
    post, path = "/append", operation_id = "compatible_append", tag = "compatible",
    params(
        StoreHeader,
        ("x-append-if-isolation" = Option<String>, Header, description = "An isolation level; every one is met by serializable."),
        ("x-isolation-level" = Option<String>, Header, description = "The same."),
    ),
    request_body = PlainAppend,
    responses((status = 200, description = "Appended, or the condition failed and nothing was written.", body = PlainAppended)),
)]
async fn append(
    PathRequest { app, caller, .. }: PathRequest,
    headers: HeaderMap,
    body: JsonText,
) -> Result<Json<PlainAppended>> {
    let start = Instant::now();
    check_isolation(&headers)?;
    let store = store(&app, &headers)?;
    let (events, options) = body
        .parse(|text| {
            let append: PlainAppend = from_json(text)?;
            let condition = append.condition.map(|Object(condition)| AppendCondition {
                fail_if_events_match: condition.fail_if_events_match.0.into(),
                after: condition.after.map(|After(position)| position),
            });
            let options = AppendOptions { conditions: condition.into_iter().collect(), ..Default::default() };
            Ok((append.events.into_events(), options))
        })
        .await?;
    let append_condition_failed = match app.service.append(&caller, &store, &events, options).await {
        Ok(_) => false,
        Err(error) if error.code == Code::ConditionFailed => true,
        Err(error) => return Err(error.into()),
    };
    Ok(Json(PlainAppended { duration_in_microseconds: micros_since(start), append_condition_failed }))
}

/// Matching events as an array.
#[utoipa::path(
    get, path = "/read", operation_id = "compatible_read", tag = "compatible",
    params(
        ("query" = Option<String>, Query, description = "`{\"items\":[{\"types\":[],\"tags\":[]}]}`; no items: every event."),
        ("options" = Option<String>, Query, description = "`{\"from\":1,\"limit\":10,\"backwards\":true}`; from 0 is no bound."),
        StoreHeader,
    ),
    responses((status = 200, description = "An array of events: position, type, tags, data as text.", body = Vec<Object>)),
)]
async fn read(PathRequest { app, caller, query, .. }: PathRequest, headers: HeaderMap) -> Result<Response> {
    let store = store(&app, &headers)?;
    let mut params = Params::parse(query.as_deref())?;
    let query: QueryIn = params.json("query")?.unwrap_or_default();
    let options: PlainOptions = params.json("options")?.unwrap_or_default();
    params.finish()?;
    let options = ReadOptions {
        from: options.from.filter(|from| *from > 0).map(Position),
        limit: options.limit,
        backwards: options.backwards.unwrap_or(false),
        ..ReadOptions::default()
    };
    let reading = app.service.read(&caller, maybe_absent(&store), query.into(), options)?;
    stream::answer(reading, Form::PlainArray).await
}

/// The number of matching events.
#[utoipa::path(
    post, path = "/read", operation_id = "compatible_count", tag = "compatible",
    params(StoreHeader),
    request_body = PlainRead,
    responses((status = 200, description = "Counted.", body = PlainCount)),
)]
async fn count(
    PathRequest { app, caller, .. }: PathRequest,
    headers: HeaderMap,
    body: JsonText,
) -> Result<Json<PlainCount>> {
    let start = Instant::now();
    let store = store(&app, &headers)?;
    let query: Query = body.parse(|text| Ok(from_json::<PlainRead>(text)?.query.0.into())).await?;
    let store = maybe_absent(&store);
    let count = app.service.count(&caller, store, &query).await?;
    let last = if count > 0 { app.service.last(&caller, store, &query).await? } else { None };
    Ok(Json(PlainCount {
        duration_in_microseconds: micros_since(start),
        number_of_matching_events: count,
        checkpoint_event_id: last.map(|event| event.position.to_string()),
    }))
}

/// Deletes the store. Only served with the setting `dev`.
#[utoipa::path(
    post, path = "/cleanup", operation_id = "compatible_cleanup", tag = "compatible",
    params(StoreHeader),
    responses((status = 200, description = "The store is empty.", body = Cleaned)),
)]
async fn cleanup(PathRequest { app, caller, .. }: PathRequest, headers: HeaderMap) -> Result<Json<Cleaned>> {
    let store = store(&app, &headers)?;
    match app.service.delete_store(&caller, &store).await {
        Err(error) if error.code != Code::NotFound => return Err(error.into()),
        _ => app.service.create_store(&caller, &store).await?,
    };
    Ok(Json(Cleaned { success: true, message: "the store is empty" }))
}

/// The store of the header `x-store`, else the default one.
pub(crate) fn store(app: &App, headers: &HeaderMap) -> Result<String> {
    match headers.get("x-store") {
        None => Ok(app.service.default_store().to_owned()),
        Some(name) => match name.to_str() {
            Ok(name) => Ok(name.to_owned()),
            Err(_) => Err(Problem::invalid_header("the header x-store is not ASCII text")),
        },
    }
}

/// A store that does not exist reads as empty.
fn maybe_absent(name: &str) -> AskedStore<'_> {
    AskedStore { name, must_exist: false }
}

/// Accepts the standard isolation levels; each is met, since an append is always serializable.
fn check_isolation(headers: &HeaderMap) -> Result<()> {
    const LEVELS: [&str; 5] =
        ["serializable", "repeatable read", "read committed", "read uncommitted", "snapshot"];
    for name in ["x-append-if-isolation", "x-isolation-level"] {
        let Some(value) = headers.get(name) else { continue };
        let level = value.to_str().unwrap_or_default().replace('_', " ").to_ascii_lowercase();
        if !LEVELS.contains(&level.trim()) {
            let detail = format!("the header {name} is {value:?}; known are {}", LEVELS.join(", "));
            return Err(Problem::invalid_header(detail));
        }
    }
    Ok(())
}

/// At least one: the clients check that something took time.
fn micros_since(start: Instant) -> u64 {
    (start.elapsed().as_nanos() as u64).div_ceil(1_000).max(1)
}
