//! `ropewalk.events.v1.Events`: the operations on events, call by call.

use core::ops::RangeInclusive;
use std::sync::Arc;

use ropewalk::events::{ReadOptions, SequencedEvent};
use ropewalk::{AppendOptions, Position};
use ropewalk_auth::Caller;
use ropewalk_wire::{Page, Service, WireError};
use tonic::{Request, Response};

use crate::convert;
use crate::frame::{Dialect, Head};
use crate::proto::ropewalk::events::v1 as proto;
use crate::request::{self, Protocol, Reply};
use crate::server::events::events_server;
use crate::status;
use crate::streams::{self, FollowPlan, FrameStream, ReadPlan};

pub(crate) const PROTOCOL: Protocol = Protocol { name: "grpc", status: status::events };

/// Events per message: the default, and below it the limit of a client's choice.
const BATCH_EVENTS: u32 = 1024;
const BATCH_EVENTS_ALLOWED: RangeInclusive<u32> = 1..=65_536;

/// The service.
pub(crate) struct Events(pub(crate) Service, pub(crate) Arc<str>);

impl Events {
    /// Authenticates and runs a call with one response.
    async fn call<T, R, F>(
        &self,
        operation: &'static str,
        request: Request<T>,
        work: impl FnOnce(Caller, T) -> F,
    ) -> Reply<R>
    where
        F: Future<Output = Result<R, WireError>>,
    {
        request::unary(&self.0, PROTOCOL, operation, async {
            let caller = request::caller(&request)?;
            work(caller, request.into_inner()).await
        })
        .await
    }

    fn store<'n>(&'n self, name: &'n str) -> &'n str {
        if name.is_empty() { &self.1 } else { name }
    }

    async fn open_read(
        &self,
        request: Request<proto::ReadRequest>,
    ) -> Result<(ropewalk_wire::Reading, ReadPlan), WireError> {
        let caller = request::caller(&request)?;
        let message = request.into_inner();
        let events = message.batch_events.unwrap_or(BATCH_EVENTS);
        if !BATCH_EVENTS_ALLOWED.contains(&events) {
            return Err(WireError::invalid(format!("batch_events {events}: 1 to 65,536 are allowed")));
        }
        let options = ReadOptions {
            from: message.from.map(Position),
            after: message.after.map(Position),
            before: message.before.map(Position),
            backwards: message.backwards,
            limit: message.limit,
        };
        let store = self.store(&message.store);
        let reading = self.0.read(&caller, store, convert::query(message.query), options)?;
        let head = reading.head();
        let plan = ReadPlan {
            dialect: Dialect::Events,
            head: head.map_or(Head::Absent, Head::At),
            events: events as usize,
            empty_head: head,
        };
        Ok((reading, plan))
    }
}

fn sequenced(event: SequencedEvent) -> proto::SequencedEvent {
    let SequencedEvent { position, seq, time_micros, event, tracking } = event;
    let entry = |(key, value)| proto::MetadataEntry { key, value };
    proto::SequencedEvent {
        position: position.0,
        event: Some(proto::Event {
            r#type: event.event_type,
            tags: event.tags,
            data: event.data,
            id: event.id.map(|id| id.to_string()).unwrap_or_default(),
            metadata: event.metadata.into_iter().map(entry).collect(),
        }),
        tracking: tracking.map(|t| proto::UpstreamPosition { source: t.source, position: t.position }),
        seq: seq.0,
        recorded_at_micros: time_micros,
    }
}

#[tonic::async_trait]
impl events_server::Events for Events {
    type ReadStream = FrameStream;
    type SubscribeStream = FrameStream;

    async fn append(&self, request: Request<proto::AppendRequest>) -> Reply<proto::AppendResponse> {
        self.call("append", request, async |caller, message: proto::AppendRequest| {
            let events = convert::events(message.events)?;
            let options = AppendOptions {
                conditions: convert::conditions(message.conditions)?,
                tracking: message.tracking.map(convert::tracking),
                idempotency_key: message.idempotency_key,
                durability: convert::durability(message.durability, message.async_interval_millis)?,
                ..AppendOptions::default()
            };
            let appended = self.0.append(&caller, self.store(&message.store), &events, options).await?;
            let (first, last) = (appended.first.0, appended.last.0);
            Ok(proto::AppendResponse { first, last, seq: appended.seq.0 })
        })
        .await
    }

    async fn read(&self, request: Request<proto::ReadRequest>) -> Reply<FrameStream> {
        let timer = self.0.metrics().request(PROTOCOL.name, "read");
        match self.open_read(request).await {
            Ok((reading, plan)) => Ok(Response::new(streams::read(&self.0, PROTOCOL, reading, plan, timer))),
            Err(error) => {
                timer.done(Err(error.code));
                Err(status::events(&error))
            }
        }
    }

    async fn last(&self, request: Request<proto::LastRequest>) -> Reply<proto::LastResponse> {
        self.call("last", request, async |caller, message: proto::LastRequest| {
            let query = convert::query(message.query);
            let last = self.0.last(&caller, self.store(&message.store), &query).await?;
            Ok(proto::LastResponse { event: last.map(sequenced) })
        })
        .await
    }

    async fn count(&self, request: Request<proto::CountRequest>) -> Reply<proto::CountResponse> {
        self.call("count", request, async |caller, message: proto::CountRequest| {
            let query = convert::query(message.query);
            let count = self.0.count(&caller, self.store(&message.store), &query).await?;
            Ok(proto::CountResponse { count })
        })
        .await
    }

    async fn exists(&self, request: Request<proto::ExistsRequest>) -> Reply<proto::ExistsResponse> {
        self.call("exists", request, async |caller, message: proto::ExistsRequest| {
            let (query, after) = (convert::query(message.query), message.after.map(Position));
            let exists = self.0.exists(&caller, self.store(&message.store), &query, after).await?;
            Ok(proto::ExistsResponse { exists })
        })
        .await
    }

    async fn head(&self, request: Request<proto::HeadRequest>) -> Reply<proto::HeadResponse> {
        self.call("head", request, async |caller, message: proto::HeadRequest| {
            let head = self.0.head(&caller, self.store(&message.store)).await?;
            Ok(proto::HeadResponse { position: head.map(|head| head.0) })
        })
        .await
    }

    async fn tracking(&self, request: Request<proto::TrackingRequest>) -> Reply<proto::TrackingResponse> {
        self.call("tracking", request, async |caller, message: proto::TrackingRequest| {
            let store = self.store(&message.store);
            let position = self.0.tracking(&caller, store, &message.source).await?;
            Ok(proto::TrackingResponse { position })
        })
        .await
    }

    async fn subscribe(&self, request: Request<proto::SubscribeRequest>) -> Reply<FrameStream> {
        self.call("subscribe", request, async |caller, message: proto::SubscribeRequest| {
            let (query, after) = (convert::query(message.query), message.after.map(Position));
            let following = self.0.follow(&caller, self.store(&message.store), query, after)?;
            let plan = FollowPlan { dialect: Dialect::Events, events: usize::MAX };
            Ok(streams::follow(PROTOCOL, following, plan))
        })
        .await
    }

    async fn list_stores(
        &self,
        request: Request<proto::ListStoresRequest>,
    ) -> Reply<proto::ListStoresResponse> {
        self.call("stores", request, async |caller, message: proto::ListStoresRequest| {
            let page = Page::new(message.after, message.limit)?;
            let (stores, next) = self.0.stores(&caller, &page)?;
            let head = |head: Option<Position>| head.map_or(0, |head| head.0);
            let stores = stores.into_iter().map(|s| proto::StoreInfo { name: s.name, head: head(s.head) });
            Ok(proto::ListStoresResponse { stores: stores.collect(), next })
        })
        .await
    }

    async fn create_store(
        &self,
        request: Request<proto::CreateStoreRequest>,
    ) -> Reply<proto::CreateStoreResponse> {
        self.call("create_store", request, async |caller, message: proto::CreateStoreRequest| {
            let created = self.0.create_store(&caller, &message.store).await?;
            Ok(proto::CreateStoreResponse { created })
        })
        .await
    }

    async fn delete_store(
        &self,
        request: Request<proto::DeleteStoreRequest>,
    ) -> Reply<proto::DeleteStoreResponse> {
        self.call("delete_store", request, async |caller, message: proto::DeleteStoreRequest| {
            self.0.delete_store(&caller, &message.store).await?;
            Ok(proto::DeleteStoreResponse {})
        })
        .await
    }
}
