//! The gRPC client for both servers: generated from our description of UmaDB's protocol, one connection for
//! each client, window sizes as in UmaDB's own client.

use anyhow::{Context, Result, ensure};
use ropewalk_bench::workloads::events::event_store::{Answer, Direction, Event, Query, Visitor};
use ropewalk_grpc::proto::umadb::v1::{self as proto, dcb_client::DcbClient};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Streaming};

const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
const MESSAGE_BYTES: usize = 64 << 20;

/// One connection.
#[derive(Clone)]
pub(crate) struct Client(DcbClient<Channel>);

impl Client {
    pub(crate) async fn connect(address: &str) -> Result<Self> {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))?
            .tcp_nodelay(true)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        let channel = endpoint.connect().await.with_context(|| format!("connecting to {address}"))?;
        Ok(Self(DcbClient::new(channel).max_decoding_message_size(MESSAGE_BYTES)))
    }

    /// `n` connections.
    pub(crate) async fn connect_all(address: &str, n: usize) -> Result<Vec<Self>> {
        let mut clients = Vec::with_capacity(n);
        for _ in 0..n {
            clients.push(Self::connect(address).await?);
        }
        Ok(clients)
    }

    /// Appends; returns the last position, or `None` when the condition failed.
    pub(crate) async fn append(
        &mut self,
        events: Vec<proto::Event>,
        condition: Option<proto::AppendCondition>,
    ) -> Result<Option<u64>> {
        let request = proto::AppendRequest { events, condition, tracking_info: None };
        match self.0.append(request).await {
            Ok(response) => Ok(Some(response.into_inner().position)),
            Err(status) if status.code() == Code::FailedPrecondition => Ok(None),
            Err(status) => Err(status.into()),
        }
    }

    /// Reads all matches, touching every part of each; returns the accompanying head, too.
    pub(crate) async fn read(
        &mut self,
        query: Option<proto::Query>,
        direction: Direction,
        limit: Option<u32>,
    ) -> Result<(Answer, Option<u64>)> {
        let backwards = (direction == Direction::Backward).then_some(true);
        let request = proto::ReadRequest { query, backwards, limit, ..proto::ReadRequest::default() };
        let mut stream = self.0.read(request).await?.into_inner();
        let (mut answer, mut head) = (Answer::default(), None);
        while let Some(message) = stream.message().await? {
            head = message.head.or(head);
            for sequenced in &message.events {
                let event = sequenced.event.as_ref().context("a position without an event")?;
                answer.event(sequenced.position, &event.event_type, &event.data);
                event.tags.iter().for_each(|tag| answer.tag(tag));
            }
        }
        Ok((answer, head))
    }

    /// Subscribes to matches after `after`.
    pub(crate) async fn subscribe(
        &mut self,
        query: Option<proto::Query>,
        after: Option<u64>,
    ) -> Result<Streaming<proto::SubscribeResponse>> {
        let request = proto::SubscribeRequest { query, after, batch_size: None };
        Ok(self.0.subscribe(request).await?.into_inner())
    }

    pub(crate) async fn head(&mut self) -> Result<u64> {
        Ok(self.0.head(proto::HeadRequest {}).await?.into_inner().position.unwrap_or_default())
    }

    /// Fails unless exactly `events` were appended and all of them can be read.
    pub(crate) async fn ensure_holds(&mut self, events: u64) -> Result<()> {
        let (answer, _) = self.read(None, Direction::Forward, None).await?;
        ensure!(answer.events == events, "{events} events acknowledged, {} present", answer.events);
        ensure!(self.head().await? == events, "{events} events, but the head is {}", self.head().await?);
        Ok(())
    }
}

/// An event in the protocol's form.
pub(crate) fn event(event: Event) -> proto::Event {
    proto::Event { event_type: event.kind, tags: event.tags, data: event.data, ..proto::Event::default() }
}

/// A query in the protocol's form.
pub(crate) fn query(query: &Query) -> proto::Query {
    let items = query.items.iter();
    proto::Query {
        items: items
            .map(|item| proto::QueryItem { types: item.kinds.clone(), tags: item.tags.clone() })
            .collect(),
    }
}

/// Fails if an event after `after` matches.
pub(crate) fn condition(if_none: &Query, after: Option<u64>) -> proto::AppendCondition {
    proto::AppendCondition { fail_if_events_match: Some(query(if_none)), after }
}
