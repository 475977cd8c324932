//! At a limit there is an answer at once, and room again afterwards.

use prost::Message;
use ropewalk_grpc::proto::ropewalk::events::v1 as ours;
use ropewalk_grpc::proto::umadb::v1::{
    AppendRequest, ErrorResponse, Event, HeadRequest, ReadRequest, SubscribeRequest,
};
use ropewalk_wire::Limits;
use tonic::Code;

use crate::{Server, until, within};

fn event(data: usize) -> Event {
    Event { event_type: "A".to_owned(), data: vec![0; data], ..Event::default() }
}

fn append(events: Vec<Event>) -> AppendRequest {
    AppendRequest { events, ..AppendRequest::default() }
}

#[tokio::test]
async fn too_much_in_one_append() {
    let limits = Limits { append_events: 10, request_bytes: 1 << 20, ..Limits::default() };
    let server = Server::with(limits).await;
    let mut client = server.umadb();
    let status = within(client.append(append(vec![event(0); 11]))).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(ErrorResponse::decode(status.details()).unwrap().message.contains("at most 10"), "{status}");
    let status = within(client.append(append(vec![event((1 << 20) + 1)]))).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    // Beyond that a message is not even taken in.
    let status = within(client.append(append(vec![event(3 << 20)]))).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange);
    within(client.append(append(vec![event(100); 10]))).await.unwrap();
    assert_eq!(within(client.head(HeadRequest {})).await.unwrap().into_inner().position, Some(10));
}

#[tokio::test]
async fn too_many_appends_at_once() {
    let server = Server::with(Limits { appends_in_flight: 0, ..Limits::default() }).await;
    let status = within(server.umadb().append(append(vec![event(1)]))).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status.metadata().get("grpc-retry-pushback-ms").unwrap(), "1000");
    let event = ours::Event { r#type: "A".to_owned(), ..Default::default() };
    let request = ours::AppendRequest { events: vec![event], ..Default::default() };
    let status = within(server.events().append(request)).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
}

#[tokio::test]
async fn too_many_streams() {
    let server = Server::with(Limits { subscriptions: 1, reads: 1, ..Limits::default() }).await;
    // More than the connection has room for, so that the read stays open.
    for _ in 0..12 {
        within(server.umadb().append(append(vec![event(1 << 20)]))).await.unwrap();
    }
    let first = within(server.umadb().subscribe(SubscribeRequest::default())).await.unwrap();
    let status = within(server.umadb().subscribe(SubscribeRequest::default())).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    drop(first);
    within(async {
        while server.umadb().subscribe(SubscribeRequest::default()).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let first = within(server.umadb().read(ReadRequest::default())).await.unwrap();
    let status = within(server.umadb().read(ReadRequest::default())).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    drop(first);
    let open = |name: &str| {
        let text = server.service.metrics().render(server.service.database());
        text.lines().any(|line| line == format!("{name} 0"))
    };
    until(|| open("ropewalk_reads") && open("ropewalk_subscriptions")).await;
    within(server.umadb().read(ReadRequest::default())).await.unwrap();
}

#[tokio::test]
async fn bytes_that_are_no_message() {
    let server = Server::start().await;
    // Field 1 as a number instead of a message; a length beyond the end; text that is not UTF-8.
    for body in [&b"\x08\x01"[..], b"\x0a\x7f", b"\x0a\x03\x0a\x01\xff"] {
        let mut grpc = tonic::client::Grpc::new(server.channel.clone());
        grpc.ready().await.unwrap();
        let path = http::uri::PathAndQuery::from_static("/umadb.v1.DCB/Append");
        let request = tonic::Request::new(bytes::Bytes::copy_from_slice(body));
        let status = within(grpc.unary(request, path, Raw)).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    }
    assert_eq!(within(server.umadb().head(HeadRequest {})).await.unwrap().into_inner().position, None);
}

/// Sends bytes as they are.
#[derive(Default, Clone, Copy)]
struct Raw;

impl tonic::codec::Codec for Raw {
    type Encode = bytes::Bytes;
    type Decode = ();
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl tonic::codec::Encoder for Raw {
    type Item = bytes::Bytes;
    type Error = tonic::Status;

    fn encode(
        &mut self,
        item: bytes::Bytes,
        out: &mut tonic::codec::EncodeBuf<'_>,
    ) -> Result<(), tonic::Status> {
        bytes::BufMut::put_slice(out, &item);
        Ok(())
    }
}

impl tonic::codec::Decoder for Raw {
    type Item = ();
    type Error = tonic::Status;

    fn decode(&mut self, _: &mut tonic::codec::DecodeBuf<'_>) -> Result<Option<()>, tonic::Status> {
        Ok(Some(()))
    }
}
