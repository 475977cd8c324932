//! `umadb.v1.DCB`: the five calls of UmaDB, with its rules where they differ from ours.
//!
//! - The header `x-store` names the store; without it, the port's store.
//! - A query that is missing or has no items, or an item without types and tags, matches everything.
//! - An append may carry tracking alone; its position is then zero, as is that of an empty append.
//! - A conditional append that is repeated with the same ids on all its events gets its first result.
//! - A subscription after the last possible position ends at once; a read with limit zero sends nothing.

use std::sync::Arc;

use ropewalk::events::{ReadOptions, Tracking};
use ropewalk::{AppendCondition, AppendOptions, Event, Position};
use ropewalk_wire::{Code, Service, WireError};
use tonic::{Request, Response};

use crate::convert;
use crate::frame::{Dialect, Head};
use crate::proto::umadb::v1 as proto;
use crate::request::{self, Protocol, Reply};
use crate::server::umadb::d_c_b_server::DCB;
use crate::status;
use crate::streams::{self, FollowPlan, FrameStream, ReadPlan};

pub(crate) const PROTOCOL: Protocol = Protocol { name: "umadb", status: status::umadb };

/// Events per message: default and limit.
const BATCH_EVENTS: u32 = 1024;
const BATCH_EVENTS_MAX: u32 = 4096;

/// The service, and the store of calls that name none.
pub(crate) struct Umadb(pub(crate) Service, pub(crate) Arc<str>);

fn batch_events(asked: Option<u32>) -> usize {
    asked.unwrap_or(BATCH_EVENTS).clamp(1, BATCH_EVENTS_MAX) as usize
}

impl Umadb {
    fn store<'r, T>(&'r self, request: &'r Request<T>) -> Result<&'r str, WireError> {
        request::store(&self.1, request.metadata().as_ref())
    }

    async fn open_read(
        &self,
        request: &mut Request<proto::ReadRequest>,
    ) -> Result<Option<(ropewalk_wire::Reading, ReadPlan)>, WireError> {
        let caller = request::caller(request)?;
        let message = std::mem::take(request.get_mut());
        let store = self.store(request)?;
        #[allow(deprecated)] // refused, because clients of old versions would wait for ever
        if message.subscribe == Some(true) {
            return Err(WireError::invalid(
                "a read does not subscribe any more; call Subscribe (`subscribe()` of the client)",
            ));
        }
        let options = ReadOptions {
            from: message.start.map(Position),
            backwards: message.backwards.unwrap_or(false),
            limit: message.limit.map(u64::from),
            ..ReadOptions::default()
        };
        let reading = self.0.read(&caller, store, convert::umadb_query(message.query), options)?;
        if message.limit == Some(0) {
            return Ok(None);
        }
        let (head, empty_head) = match (message.limit, reading.head()) {
            (Some(_), _) => (Head::LastEvent, None),
            (None, Some(head)) => (Head::At(head), Some(head)),
            (None, None) => (Head::Absent, None),
        };
        let events = batch_events(message.batch_size);
        Ok(Some((reading, ReadPlan { dialect: Dialect::Umadb, head, events, empty_head })))
    }

    async fn open_subscription(
        &self,
        request: &mut Request<proto::SubscribeRequest>,
    ) -> Result<FrameStream, WireError> {
        let caller = request::caller(request)?;
        let message = std::mem::take(request.get_mut());
        let query = convert::umadb_query(message.query);
        let following = self.0.follow(&caller, self.store(request)?, query, message.after.map(Position))?;
        if message.after == Some(u64::MAX) {
            return Ok(streams::nothing());
        }
        let plan = FollowPlan { dialect: Dialect::Umadb, events: batch_events(message.batch_size) };
        Ok(streams::follow(PROTOCOL, following, plan))
    }

    async fn append_events(
        &self,
        request: &Request<()>,
        events: Vec<Event>,
        options: AppendOptions,
    ) -> Result<proto::AppendResponse, WireError> {
        let caller = request::caller(request)?;
        let store = self.store(request)?;
        if !events.is_empty() || options.tracking.is_some() {
            let appended = self.0.append(&caller, store, &events, options).await?;
            return Ok(proto::AppendResponse { position: appended.last.0 });
        }
        // Nothing to write; it only remains to check the condition.
        for AppendCondition { fail_if_events_match, after } in options.conditions {
            if self.0.exists(&caller, store, &fail_if_events_match, after).await? {
                return Err(WireError::new(Code::ConditionFailed, "an event matches the condition's query"));
            }
        }
        Ok(proto::AppendResponse { position: 0 })
    }
}

#[tonic::async_trait]
impl DCB for Umadb {
    type ReadStream = FrameStream;
    type SubscribeStream = FrameStream;

    async fn read(&self, mut request: Request<proto::ReadRequest>) -> Reply<FrameStream> {
        let timer = self.0.metrics().request(PROTOCOL.name, "read");
        match self.open_read(&mut request).await {
            Ok(Some((reading, plan))) => {
                Ok(Response::new(streams::read(&self.0, PROTOCOL, reading, plan, timer)))
            }
            Ok(None) => {
                timer.done(Ok(()));
                Ok(Response::new(streams::nothing()))
            }
            Err(error) => {
                timer.done(Err(error.code));
                Err(status::umadb(&error))
            }
        }
    }

    async fn subscribe(&self, mut request: Request<proto::SubscribeRequest>) -> Reply<FrameStream> {
        let open = self.open_subscription(&mut request);
        request::unary(&self.0, PROTOCOL, "subscribe", open).await
    }

    async fn append(&self, request: Request<proto::AppendRequest>) -> Reply<proto::AppendResponse> {
        let (metadata, extensions, message) = request.into_parts();
        let request = Request::from_parts(metadata, extensions, ());
        let events = convert::umadb_events(message.events);
        let bad_uuid = events.as_ref().err().copied();
        let options = AppendOptions {
            conditions: message.condition.map(convert::umadb_condition).into_iter().collect(),
            tracking: message.tracking_info.map(|t| Tracking { source: t.source, position: t.position }),
            repeat_by_id: true,
            ..AppendOptions::default()
        };
        let append = async {
            let events = events.map_err(|_| WireError::invalid("a uuid does not parse"))?;
            self.append_events(&request, events, options).await
        };
        let answer = request::unary(&self.0, PROTOCOL, "append", append).await;
        answer.map_err(|status| bad_uuid.map_or(status, status::umadb_bad_uuid))
    }

    async fn head(&self, request: Request<proto::HeadRequest>) -> Reply<proto::HeadResponse> {
        request::unary(&self.0, PROTOCOL, "head", async {
            let caller = request::caller(&request)?;
            let head = self.0.head(&caller, self.store(&request)?).await?;
            Ok(proto::HeadResponse { position: head.map(|head| head.0) })
        })
        .await
    }

    async fn get_tracking_info(
        &self,
        request: Request<proto::TrackingRequest>,
    ) -> Reply<proto::TrackingResponse> {
        request::unary(&self.0, PROTOCOL, "tracking", async {
            let caller = request::caller(&request)?;
            let source = &request.get_ref().source;
            let position = self.0.tracking(&caller, self.store(&request)?, source).await?;
            Ok(proto::TrackingResponse { position })
        })
        .await
    }
}
