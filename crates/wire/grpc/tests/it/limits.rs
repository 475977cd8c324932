//! Calls over a limit fail immediately, and succeed again once capacity is free.

use core::task::Poll;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::{BodyExt as _, StreamBody};
use prost::Message;
use ropewalk_grpc::proto::ropewalk::events::v1 as ours;
use ropewalk_grpc::proto::umadb::v1::{
    AppendRequest, ErrorResponse, Event, HeadRequest, ReadRequest, SubscribeRequest,
};
use ropewalk_wire::Limits;
use tonic::{Code, Status};

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
    // A larger message is not even received.
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
    // More than the connection can buffer, so that the read stays open.
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
async fn malformed_bytes_are_rejected() {
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

/// Sends bytes unchanged.
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

/// A body that declares 16 MiB in an unknown field, sends frames of 1 MiB and then waits; `read` counts its
/// frames.
fn slow_body(frames: usize, read: &Arc<AtomicUsize>) -> Body {
    let read = read.clone();
    let mut sent = 0;
    Body::new(StreamBody::new(futures_util::stream::poll_fn(move |_| {
        if sent == frames {
            return Poll::Pending;
        }
        sent += 1;
        read.fetch_add(1, Relaxed);
        let mut data = vec![0; 1 << 20];
        if sent == 1 {
            data[1..5].copy_from_slice(&(16_u32 << 20).to_be_bytes());
            // Number 15, and the length of the rest: 16 MiB without these five bytes.
            data[5..10].copy_from_slice(b"\x7a\xfb\xff\xff\x07");
        }
        Poll::Ready(Some(Ok::<_, Status>(hyper::body::Frame::data(Bytes::from(data)))))
    })))
}

async fn call(server: &Server, path: &str, body: Body) -> Option<String> {
    let request = http::Request::post(path).header("content-type", "application/grpc").body(body).unwrap();
    status_of(server, request).await
}

/// Runs a request without a connection, and returns its status.
pub(crate) async fn status_of(server: &Server, request: http::Request<Body>) -> Option<String> {
    let settings = ropewalk_grpc::GrpcSettings::default();
    let routes = ropewalk_grpc::routes(&server.service, &server.transactions, &settings).await;
    let mut router = routes.into_axum_router();
    let response = tower_service::Service::call(&mut router, request).await.unwrap();
    let status = |headers: &http::HeaderMap| Some(headers.get("grpc-status")?.to_str().unwrap().to_owned());
    match status(response.headers()) {
        Some(found) => Some(found),
        None => status(response.into_body().collect().await.unwrap().trailers()?),
    }
}

#[tokio::test(start_paused = true)]
async fn c1_body_without_credentials_is_not_read() {
    let server = Server::start().await;
    crate::access::close(&server).await;
    for path in ["/umadb.v1.DCB/Append", "/umadb.UmaDBService/Append", "/ropewalk.events.v1.Events/Append"] {
        let read = Arc::default();
        let status = call(&server, path, slow_body(15, &read)).await;
        assert_eq!((status.as_deref(), read.load(Relaxed)), (Some("16"), 0), "{path}");
    }
    // Services that need no credentials accept small requests only.
    let read = Arc::default();
    let path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    call(&server, path, slow_body(15, &read)).await;
    assert_eq!(read.load(Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn c1_body_has_a_deadline_and_shares_memory() {
    let server = Server::start().await;
    let (read, memory) = (Arc::default(), server.service.request_memory().clone());
    let free = memory.available_bytes();
    let begun = tokio::time::Instant::now();
    let body = slow_body(15, &read);
    let calling = async { call(&server, "/umadb.v1.DCB/Append", body).await };
    let watching = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        free - memory.available_bytes()
    };
    let (status, held) = tokio::join!(calling, watching);
    assert_eq!((status.as_deref(), held), (Some("4"), 15 << 20));
    assert!(begun.elapsed() <= 2 * server.service.limits().request_time);
    assert_eq!(memory.available_bytes(), free);
}
