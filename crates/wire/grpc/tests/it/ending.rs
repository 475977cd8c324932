//! How streams and servers end: a client that disconnects, a server that stops.

use ropewalk_grpc::proto::ropewalk::events::v1 as ours;
use ropewalk_grpc::proto::umadb::v1::dcb_client::DcbClient;
use ropewalk_grpc::proto::umadb::v1::{AppendRequest, Event, HeadRequest, ReadRequest, SubscribeRequest};
use tonic::Code;

use crate::{Server, until, within};

fn append(data: usize) -> AppendRequest {
    let event = Event { event_type: "A".to_owned(), data: vec![0; data], ..Event::default() };
    AppendRequest { events: vec![event], ..AppendRequest::default() }
}

fn gauge(server: &Server, name: &str, value: u64) -> bool {
    let text = server.service.metrics().render(server.service.database());
    text.lines().any(|line| line == format!("{name} {value}"))
}

#[tokio::test]
async fn dropped_stream_releases_its_memory() {
    let server = Server::start().await;
    let mut streams = Vec::new();
    for _ in 0..20 {
        streams.push(within(server.umadb().subscribe(SubscribeRequest::default())).await.unwrap());
    }
    until(|| gauge(&server, "ropewalk_subscriptions", 20)).await;
    streams.truncate(5);
    until(|| gauge(&server, "ropewalk_subscriptions", 5)).await;
    drop(streams);
    until(|| gauge(&server, "ropewalk_subscriptions", 0)).await;
}

#[tokio::test]
async fn a_slow_reader_holds_a_batch_not_the_result() {
    let server = Server::start().await;
    for _ in 0..40 {
        within(server.umadb().append(append(1 << 20))).await.unwrap();
    }
    let mut stream = within(server.umadb().read(ReadRequest::default())).await.unwrap().into_inner();
    within(stream.message()).await.unwrap().unwrap();
    // The server has read as much as the connection buffers, and waits.
    let read = |server: &Server| {
        let text = server.service.metrics().render(server.service.database());
        let line = text.lines().find_map(|line| line.strip_prefix("ropewalk_events_read_total "));
        line.unwrap().parse::<u64>().unwrap()
    };
    tokio::time::sleep(core::time::Duration::from_millis(50)).await;
    assert!(read(&server) < 40, "{} of 40 MiB were fetched for a client that does not read", read(&server));
    let mut count = 1;
    while within(stream.message()).await.unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, 40);
    until(|| gauge(&server, "ropewalk_reads", 0)).await;
}

#[tokio::test]
async fn a_stop_ends_subscriptions_and_then_the_server() {
    let server = Server::start().await;
    within(server.umadb().append(append(1))).await.unwrap();
    let mut uma = within(server.umadb().subscribe(SubscribeRequest::default())).await.unwrap().into_inner();
    assert_eq!(within(uma.message()).await.unwrap().unwrap().events.len(), 1);
    let mut own =
        within(server.events().subscribe(ours::SubscribeRequest::default())).await.unwrap().into_inner();
    while within(own.message()).await.unwrap().unwrap().caught_up.is_none() {}
    server.service.stop().begin();
    assert!(within(uma.message()).await.unwrap().is_none(), "UmaDB's streams end without a fault");
    assert_eq!(within(own.message()).await.unwrap_err().code(), Code::Unavailable);
    drop((uma, own));
    server.ended().await;
}

#[tokio::test]
async fn stopping_server_rejects_new_calls() {
    let server = Server::start().await;
    // Another connection, with an open call, so that it is not closed at once.
    let mut other = DcbClient::connect(server.address.clone()).await.unwrap();
    for _ in 0..40 {
        within(other.append(append(1 << 20))).await.unwrap();
    }
    let mut stream = within(other.read(ReadRequest::default())).await.unwrap().into_inner();
    within(stream.message()).await.unwrap().unwrap();
    server.service.stop().begin();
    let status = within(other.head(HeadRequest {})).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    // An incomplete read must not look complete.
    let status = within(async {
        loop {
            match stream.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the read ended as if it were whole"),
                Err(status) => return status,
            }
        }
    })
    .await;
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    drop((stream, other));
    server.ended().await;
}
