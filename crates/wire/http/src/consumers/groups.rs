//! Consumer groups: take, acknowledge, retry and park (dead-letter) events; parked events; the groups
//! themselves.

use std::time::Duration;

use axum::Json;
use axum::extract::{FromRequest, FromRequestParts as _, Request};
use axum::http::StatusCode;
use axum::response::Response;
use ropewalk::events::SequencedEvent;
use ropewalk::groups::{ConsumerGroup, GroupSettings, GroupStatus, Settled};
use ropewalk::{Error, Position, Query};
use ropewalk_auth::{Needs, Right};
use ropewalk_http_kit::json::{put_list, put_number};
use ropewalk_http_kit::response::json;
use ropewalk_wire::{AskedStore, WireError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::app::App;
use crate::kit::body::{BodyProblem, JsonText, NoBody, from_json};
use crate::kit::counted::counted;
use crate::kit::encode::{put_event, put_string, put_time, time};
use crate::kit::json::{EventOut, Object, QueryIn};
use crate::kit::params::{MustExist, PageParams, Params};
use crate::kit::path::{PathRequest, StoreAndGroup, StoreName};
use crate::kit::problem::Result;
use crate::route::{Route, STORE};

/// Default number of events of one take, and of parked events in one response.
const BATCH: usize = 100;
/// Most parked events of one response.
const PARKED_MAX: u64 = 1_000;

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::new(Needs::read(STORE), routes!(list_groups)),
        Route::new(Needs::read(STORE), routes!(get_group)),
        Route::new(Needs::admin(STORE), routes!(put_group, delete_group)),
        // Consumers acknowledge the events that they read.
        Route::new(Needs::read(STORE), routes!(take)),
        Route::new(Needs::read(STORE), routes!(acknowledge)),
        Route::new(Needs::read(STORE), routes!(retry)),
        Route::new(Needs::read(STORE), routes!(park)),
        Route::new(Needs::read(STORE), routes!(extend)),
        Route::new(Needs::read(STORE), routes!(parked)),
        Route::new(Needs::read(STORE), routes!(replay)),
        Route::new(Needs::read(STORE), routes!(discard)),
    ]
}

/// Settings of a group. Absent fields: the defaults.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = GroupRequest)]
struct GroupIn {
    /// The query for its events. Absent: every event.
    #[serde(default)]
    #[schema(value_type = QueryIn)]
    query: Object<QueryIn>,
    /// A new group begins after this position. Absent: with the first event.
    after: Option<u64>,
    /// Lease time of taken events. Default 30,000.
    lease_ms: Option<u64>,
    /// Pause before a retried event is handed out again. Default 1,000.
    pause_ms: Option<u64>,
    /// How often an event is handed out before it is parked. Default 10.
    tries: Option<u32>,
    /// Most leased events that are not yet settled. Default 1,000, at most 100,000.
    pending: Option<u32>,
    /// One batch at a time, so that events stay in order.
    #[serde(default)]
    in_order: bool,
}

impl GroupIn {
    fn into_settings(self) -> GroupSettings {
        let query: Query = self.query.0.into();
        let defaults = GroupSettings::new(query);
        GroupSettings {
            lease: self.lease_ms.map_or(defaults.lease, Duration::from_millis),
            pause: self.pause_ms.map_or(defaults.pause, Duration::from_millis),
            tries_max: self.tries.unwrap_or(defaults.tries_max),
            pending_max: self.pending.unwrap_or(defaults.pending_max),
            in_order: self.in_order,
            ..defaults
        }
    }
}

/// State of a group.
#[derive(Serialize, ToSchema)]
#[schema(as = Group)]
struct GroupOut {
    #[schema(example = "mailers")]
    name: String,
    #[schema(value_type = QueryIn)]
    query: QueryIn,
    lease_ms: u64,
    pause_ms: u64,
    tries: u32,
    in_order: bool,
    /// Matching events up to here were handed out at least once.
    cursor: u64,
    /// Last position of the store; 0 while it is empty.
    head: u64,
    /// Matching events that were never handed out.
    waiting: u64,
    /// Events that were handed out and are not settled.
    pending: u64,
    /// Most of them.
    pending_max: u32,
    /// Pending events whose lease is running.
    leased: u64,
    /// Parked events, which are no longer handed out.
    parked: u64,
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis().try_into().unwrap_or(u64::MAX)
}

impl GroupOut {
    fn new(name: String, status: GroupStatus) -> Self {
        let GroupStatus { settings, cursor, head, waiting, pending, leased, parked } = status;
        let GroupSettings { query, lease, pause, tries_max, pending_max, in_order } = settings;
        Self {
            name,
            query: query.into(),
            lease_ms: millis(lease),
            pause_ms: millis(pause),
            tries: tries_max,
            in_order,
            cursor: cursor.0,
            head: head.0,
            waiting,
            pending,
            pending_max,
            leased,
            parked,
        }
    }

    fn of(group: &ConsumerGroup) -> Result<Self, Error> {
        Ok(Self::new(group.name().to_owned(), group.status()?))
    }
}

#[derive(Serialize, ToSchema)]
#[schema(as = Groups)]
struct GroupsOut {
    groups: Vec<GroupOut>,
    /// `after` of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// The store of a group, which may be older than the first event of the store.
fn of_group(store: &str) -> AskedStore<'_> {
    AskedStore { name: store, must_exist: false }
}

/// The group in a path.
fn group_of(at: &PathRequest<StoreAndGroup>) -> Result<ConsumerGroup> {
    Ok(at.app.service.group(&at.caller, of_group(&at.names.store), &at.names.group)?)
}

/// A request to one group, with its body.
struct GroupRequest<T> {
    app: App,
    group: ConsumerGroup,
    asked: T,
}

impl<T: DeserializeOwned + Send + 'static> FromRequest<App> for GroupRequest<T> {
    type Rejection = BodyProblem;

    async fn from_request(request: Request, app: &App) -> Result<Self, BodyProblem> {
        let (mut parts, body) = request.into_parts();
        let at = PathRequest::from_request_parts(&mut parts, app).await?;
        let body = JsonText::from_request(Request::from_parts(parts, body), app).await?;
        let group = group_of(&at)?;
        Ok(Self { app: at.app, group, asked: body.json().await? })
    }
}

/// The consumer groups of a store, by name.
#[utoipa::path(
    get, path = "/v1/stores/{store}/groups", operation_id = "list_groups", tag = "consumers",
    params(StoreName, MustExist, PageParams),
    responses((status = 200, description = "A page of them.", body = GroupsOut)),
)]
async fn list_groups(at: PathRequest<StoreName>) -> Result<Json<GroupsOut>> {
    let (store, page) = at.asked_page()?;
    let groups = at.app.service.groups(&at.caller, Right::Read, store)?;
    let found = at.app.service.run_blocking_limited(|| -> Result<GroupsOut, Error> {
        let (names, next) = page.cut(groups.names_after(page.after(), page.sought())?, String::as_str);
        let states = names.iter().map(|name| GroupOut::of(&groups.group(name)?));
        Ok(GroupsOut { groups: states.collect::<Result<_, Error>>()?, next })
    });
    Ok(Json(found.await.map_err(WireError::from)?))
}

/// The state of a consumer group.
#[utoipa::path(
    get, path = "/v1/stores/{store}/groups/{group}", operation_id = "get_group", tag = "consumers",
    params(StoreAndGroup),
    responses((status = 200, description = "The group.", body = GroupOut)),
)]
async fn get_group(at: PathRequest<StoreAndGroup>) -> Result<Json<GroupOut>> {
    let group = group_of(&at)?;
    let status = at.app.service.run_blocking_limited(|| GroupOut::of(&group)).await;
    Ok(Json(status.map_err(WireError::from)?))
}

/// Creates a consumer group, or changes the settings of an existing one, which keeps its position.
#[utoipa::path(
    put, path = "/v1/stores/{store}/groups/{group}", operation_id = "put_group", tag = "consumers",
    params(
        StoreAndGroup,
        ("must_exist" = Option<bool>, Query, description = "A store that does not exist is refused with 404. Without it, the group waits for the first event."),
    ),
    request_body = GroupIn,
    responses(
        (status = 200, description = "It was there and has the settings now.", body = GroupOut),
        (status = 201, description = "Created.", body = GroupOut),
    ),
)]
async fn put_group(at: PathRequest<StoreAndGroup>, body: JsonText) -> Result<(StatusCode, Json<GroupOut>)> {
    let groups = at.app.service.groups(&at.caller, Right::Admin, at.asked_store()?)?;
    let group = &at.names.group;
    let (settings, after) = body
        .parse(|text| {
            let asked = from_json::<GroupIn>(text)?;
            let after = asked.after.map(Position);
            Ok((asked.into_settings(), after))
        })
        .await?;
    let write = || {
        let created = groups.create(group, settings, after)?;
        Ok((created, GroupOut::of(&groups.group(group)?)?))
    };
    let (created, status) = at.app.service.write(write).await?;
    Ok((if created { StatusCode::CREATED } else { StatusCode::OK }, Json(status)))
}

/// Deletes a consumer group with what is pending and parked in it.
#[utoipa::path(
    delete, path = "/v1/stores/{store}/groups/{group}", operation_id = "delete_group", tag = "consumers",
    params(StoreAndGroup),
    responses((status = 204, description = "Deleted.")),
)]
async fn delete_group(at: PathRequest<StoreAndGroup>, NoBody: NoBody) -> Result<StatusCode> {
    let StoreAndGroup { store, group } = &at.names;
    let groups = at.app.service.groups(&at.caller, Right::Admin, of_group(store))?;
    let write = || {
        groups.group(group)?;
        groups.delete(group)
    };
    at.app.service.write(write).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// How many events, and for how long.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TakeRequest)]
struct TakeIn {
    /// At most so many events, up to 1,000. Default 100.
    max: Option<usize>,
    /// Lease time. Absent: that of the group.
    lease_ms: Option<u64>,
    /// Waits so long for the first event, up to 20,000. Default 0.
    #[serde(default)]
    wait_ms: u64,
}

/// Events leased to a consumer. Only described here: written by hand, with the events as they are stored.
#[derive(ToSchema)]
#[schema(as = Lease)]
#[allow(dead_code)]
struct LeaseOut {
    /// Id by which the events are settled; null when no event was taken.
    #[schema(example = 7)]
    lease: Option<u64>,
    /// End of the lease, RFC 3339, UTC. Later another consumer may get the events.
    #[schema(format = DateTime)]
    until: Option<String>,
    events: Vec<TakenOut>,
}

#[derive(ToSchema)]
#[schema(as = Taken)]
#[allow(dead_code)]
struct TakenOut {
    /// Number of the try, from 1.
    tries: u32,
    event: EventOut,
}

fn put_owned(out: &mut Vec<u8>, event: &SequencedEvent) {
    event.with_ref(|event| put_event(out, event));
}

/// Takes events: retried events that are due first, then new ones. Each is this consumer's until the lease
/// expires.
#[utoipa::path(
    post, path = "/v1/stores/{store}/groups/{group}/take", operation_id = "take", tag = "consumers",
    params(StoreAndGroup),
    request_body = TakeIn,
    responses((status = 200, description = "The leased events, possibly none.", body = LeaseOut)),
)]
async fn take(GroupRequest { app, group, asked }: GroupRequest<TakeIn>) -> Result<Response> {
    let (lease, wait) = (asked.lease_ms.map(Duration::from_millis), Duration::from_millis(asked.wait_ms));
    let taken = app.service.take(&group, asked.max.unwrap_or(BATCH), lease, wait).await?;
    let mut out = Vec::new();
    if taken.events.is_empty() {
        out.extend_from_slice(b"{\"lease\":null,\"until\":null,\"events\":");
    } else {
        out.extend_from_slice(b"{\"lease\":");
        put_number(&mut out, taken.id);
        out.extend_from_slice(b",\"until\":\"");
        put_time(&mut out, taken.until_micros);
        out.extend_from_slice(b"\",\"events\":");
    }
    put_list(&mut out, &taken.events, |out, one| {
        out.extend_from_slice(b"{\"tries\":");
        put_number(out, one.tries);
        out.extend_from_slice(b",\"event\":");
        put_owned(out, &one.event);
        out.push(b'}');
    });
    out.push(b'}');
    Ok(json(out))
}

/// Selects events of a lease.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = LeasedRequest)]
struct LeasedIn {
    /// The lease of the take.
    lease: u64,
    /// These events of it. Absent: all.
    positions: Option<Vec<u64>>,
}

/// Selects events of a lease, and says why they failed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RetryRequest)]
struct RetryIn {
    /// The lease of the take.
    lease: u64,
    /// These events of it. Absent: all.
    positions: Option<Vec<u64>>,
    /// They are handed out again after so long. Absent: as the group says.
    pause_ms: Option<u64>,
    /// Stored with the event, up to 1,024 bytes of it.
    #[serde(default)]
    reason: String,
}

/// Selects events of a lease, and says why they must not be handed out again.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ParkRequest)]
struct ParkIn {
    /// The lease of the take.
    lease: u64,
    /// These events of it. Absent: all.
    positions: Option<Vec<u64>>,
    /// Stored with the event, up to 1,024 bytes of it.
    #[serde(default)]
    reason: String,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ExtendRequest)]
struct ExtendIn {
    /// The lease of the take.
    lease: u64,
    /// New lease time from now on. Absent: that of the group.
    lease_ms: Option<u64>,
}

/// Selects parked events.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ParkedRequest)]
struct ParkedIn {
    /// These. Absent: all.
    positions: Option<Vec<u64>>,
}

/// Result of a call.
#[derive(Serialize, ToSchema)]
#[schema(as = Settled)]
struct SettledOut {
    /// Events that the call affected.
    done: u64,
    /// Events that were parked, by the call or because this was their last try.
    parked: u64,
    /// Requested positions that the call no longer concerns.
    lost: Vec<u64>,
}

impl From<Settled> for SettledOut {
    fn from(settled: Settled) -> Self {
        let lost = settled.lost.into_iter().map(|position| position.0).collect();
        Self { done: settled.done, parked: settled.parked, lost }
    }
}

fn positions(asked: Option<Vec<u64>>) -> Option<Vec<Position>> {
    asked.map(|positions| positions.into_iter().map(Position).collect())
}

/// Acknowledges events of a lease as processed. They are not handed out again.
#[utoipa::path(
    post, path = "/v1/stores/{store}/groups/{group}/acknowledge", operation_id = "acknowledge", tag = "consumers",
    params(StoreAndGroup),
    request_body = LeasedIn,
    responses((status = 200, description = "Durable.", body = SettledOut)),
)]
async fn acknowledge(GroupRequest { app, group, asked }: GroupRequest<LeasedIn>) -> Result<Json<SettledOut>> {
    let which = positions(asked.positions);
    let settled = app.service.write(|| group.acknowledge(asked.lease, which.as_deref())).await?;
    Ok(Json(settled.into()))
}

/// Returns events of a lease, to be handed out again after a pause; those on their last try are parked.
#[utoipa::path(
    post, path = "/v1/stores/{store}/groups/{group}/retry", operation_id = "retry", tag = "consumers",
    params(StoreAndGroup),
    request_body = RetryIn,
    responses((status = 200, description = "Durable.", body = SettledOut)),
)]
async fn retry(GroupRequest { app, group, asked }: GroupRequest<RetryIn>) -> Result<Json<SettledOut>> {
    let (which, pause) = (positions(asked.positions), asked.pause_ms.map(Duration::from_millis));
    let write = || group.retry(asked.lease, which.as_deref(), pause, &asked.reason);
    Ok(Json(app.service.write(write).await?.into()))
}

/// Parks events of a lease: they are not handed out until they are replayed.
#[utoipa::path(
    post, path = "/v1/stores/{store}/groups/{group}/park", operation_id = "park", tag = "consumers",
    params(StoreAndGroup),
    request_body = ParkIn,
    responses((status = 200, description = "Durable.", body = SettledOut)),
)]
async fn park(GroupRequest { app, group, asked }: GroupRequest<ParkIn>) -> Result<Json<SettledOut>> {
    let which = positions(asked.positions);
    let settled = app.service.write(|| group.park(asked.lease, which.as_deref(), &asked.reason)).await?;
    Ok(Json(settled.into()))
}

/// The rest of a lease, and its end.
#[derive(Serialize, ToSchema)]
#[schema(as = Extended)]
struct ExtendedOut {
    /// Events that are still held.
    done: u64,
    /// End of the lease, RFC 3339, UTC.
    #[schema(format = DateTime)]
    until: String,
}

/// Extends the rest of a lease.
#[utoipa::path(
    post, path = "/v1/stores/{store}/groups/{group}/extend", operation_id = "extend", tag = "consumers",
    params(StoreAndGroup),
    request_body = ExtendIn,
    responses((status = 200, description = "Durable.", body = ExtendedOut)),
)]
async fn extend(GroupRequest { app, group, asked }: GroupRequest<ExtendIn>) -> Result<Json<ExtendedOut>> {
    let lease_time = asked.lease_ms.map(Duration::from_millis);
    let (settled, until) = app.service.write(|| group.extend(asked.lease, lease_time)).await?;
    Ok(Json(ExtendedOut { done: settled.done, until: time(until) }))
}

/// Events that are no longer handed out. Only described here.
#[derive(ToSchema)]
#[schema(as = Parked)]
#[allow(dead_code)]
struct ParkedOut {
    parked: Vec<ParkedEventOut>,
}

#[derive(ToSchema)]
#[schema(as = ParkedEvent)]
#[allow(dead_code)]
struct ParkedEventOut {
    /// How often it was handed out.
    tries: u32,
    /// When it was parked, RFC 3339, UTC.
    #[schema(format = DateTime)]
    parked_at: String,
    /// Why.
    reason: String,
    event: EventOut,
}

/// The parked events of a group, by position.
#[utoipa::path(
    get, path = "/v1/stores/{store}/groups/{group}/parked", operation_id = "list_parked", tag = "consumers",
    params(
        StoreAndGroup,
        ("after" = Option<u64>, Query, description = "Only events after this position."),
        ("limit" = Option<u64>, Query, description = "At most so many, up to 1,000. Default 100. A page ends early after 4 MiB of events; only an empty one is the last."),
    ),
    responses((status = 200, description = "A page of them.", body = ParkedOut)),
)]
async fn parked(at: PathRequest<StoreAndGroup>) -> Result<Response> {
    let mut params = Params::parse(at.query.as_deref())?;
    let after = params.number("after")?.map(Position);
    let limit = params.number("limit")?.unwrap_or(BATCH as u64).min(PARKED_MAX);
    params.finish()?;
    let group = group_of(&at)?;
    let found = at.app.service.run_blocking_limited(|| group.parked(after, limit as usize)).await;
    let mut out = b"{\"parked\":".to_vec();
    put_list(&mut out, &found.map_err(WireError::from)?, |out, one| {
        out.extend_from_slice(b"{\"tries\":");
        put_number(out, one.tries);
        out.extend_from_slice(b",\"parked_at\":\"");
        put_time(out, one.time_micros);
        out.extend_from_slice(b"\",\"reason\":");
        put_string(out, &one.reason);
        out.extend_from_slice(b",\"event\":");
        put_owned(out, &one.event);
        out.push(b'}');
    });
    out.push(b'}');
    counted(&at.app.service, out)
}

/// Hands parked events out again, at once and with all their tries.
#[utoipa::path(
    post, path = "/v1/stores/{store}/groups/{group}/parked/replay", operation_id = "replay_parked", tag = "consumers",
    params(StoreAndGroup),
    request_body = ParkedIn,
    responses((status = 200, description = "Durable.", body = SettledOut)),
)]
async fn replay(GroupRequest { app, group, asked }: GroupRequest<ParkedIn>) -> Result<Json<SettledOut>> {
    let which = positions(asked.positions);
    Ok(Json(app.service.write(|| group.replay(which.as_deref())).await?.into()))
}

/// Deletes parked events.
#[utoipa::path(
    post, path = "/v1/stores/{store}/groups/{group}/parked/discard", operation_id = "discard_parked", tag = "consumers",
    params(StoreAndGroup),
    request_body = ParkedIn,
    responses((status = 200, description = "Durable.", body = SettledOut)),
)]
async fn discard(GroupRequest { app, group, asked }: GroupRequest<ParkedIn>) -> Result<Json<SettledOut>> {
    let which = positions(asked.positions);
    Ok(Json(app.service.write(|| group.discard(which.as_deref())).await?.into()))
}
