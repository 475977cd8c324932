//! `umadb.v1.DCB`: every call, every rule in which it differs from ours.

use prost::Message;
use ropewalk_grpc::proto::umadb::v1::error_response::ErrorType;
use ropewalk_grpc::proto::umadb::v1::{
    AppendCondition, AppendRequest, ErrorResponse, Event, HeadRequest, HeadResponse, MetadataEntry, Query,
    QueryItem, ReadRequest, ReadResponse, SubscribeRequest, TrackingInfo, TrackingRequest,
};
use tonic::{Code, Request, Status};

use crate::{Server, within};

fn event(event_type: &str, tags: &[&str]) -> Event {
    let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
    Event { event_type: event_type.to_owned(), tags, data: b"data".to_vec(), ..Event::default() }
}

fn tagged(tags: &[&str]) -> Option<Query> {
    let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
    Some(Query { items: vec![QueryItem { types: Vec::new(), tags }] })
}

fn plain(events: &[Event]) -> AppendRequest {
    AppendRequest { events: events.to_vec(), ..AppendRequest::default() }
}

async fn append(server: &Server, request: AppendRequest) -> Result<u64, Status> {
    within(server.umadb().append(request)).await.map(|response| response.into_inner().position)
}

async fn read(server: &Server, request: ReadRequest) -> Result<Vec<ReadResponse>, Status> {
    within(async {
        let mut stream = server.umadb().read(request).await?.into_inner();
        let mut messages = Vec::new();
        while let Some(message) = stream.message().await? {
            messages.push(message);
        }
        Ok(messages)
    })
    .await
}

fn positions(messages: &[ReadResponse]) -> Vec<u64> {
    messages.iter().flat_map(|message| message.events.iter().map(|event| event.position)).collect()
}

/// The code, the kind in the details, and the message of both.
fn failure(status: &Status) -> (Code, ErrorType, String) {
    let details = ErrorResponse::decode(status.details()).unwrap();
    assert_eq!(details.message, status.message());
    (status.code(), details.error_type(), details.message)
}

#[tokio::test]
async fn read_returns_events_as_appended() {
    let server = Server::start().await;
    let entry = |key: &str, value: &str| MetadataEntry { key: key.to_owned(), value: value.to_owned() };
    let full = Event {
        uuid: "00112233-4455-6677-8899-aabbccddeeff".to_owned(),
        metadata: vec![entry("z", "1"), entry("a", ""), entry("", "ü")],
        ..event("Cræted", &["user:1", "größe"])
    };
    let bare = Event { event_type: "B".to_owned(), ..Event::default() };
    let tracking = TrackingInfo { source: "up".to_owned(), position: 1 << 40 };
    let request =
        AppendRequest { tracking_info: Some(tracking.clone()), ..plain(&[full.clone(), bare.clone()]) };
    assert_eq!(append(&server, request).await.unwrap(), 2);
    assert_eq!(append(&server, plain(std::slice::from_ref(&bare))).await.unwrap(), 3);
    let messages = read(&server, ReadRequest::default()).await.unwrap();
    assert_eq!((messages.len(), messages[0].head), (1, Some(3)));
    let found: Vec<_> = messages[0]
        .events
        .iter()
        .map(|e| (e.position, e.event.clone().unwrap(), e.tracking_info.clone()))
        .collect();
    let expected = [(1, full, Some(tracking.clone())), (2, bare.clone(), Some(tracking)), (3, bare, None)];
    assert_eq!(found, expected);
}

#[tokio::test]
async fn reads_honour_start_direction_and_limit() {
    let server = Server::start().await;
    let events: Vec<_> = (0..10).map(|n| event("A", &[if n % 2 == 0 { "even" } else { "odd" }])).collect();
    append(&server, plain(&events)).await.unwrap();
    let all = ReadRequest::default();
    let back = Some(true);
    for (request, expected) in [
        (ReadRequest { start: Some(8), ..all.clone() }, vec![8, 9, 10]),
        (ReadRequest { start: Some(0), limit: Some(2), ..all.clone() }, vec![1, 2]),
        (ReadRequest { start: Some(3), backwards: back, ..all.clone() }, vec![3, 2, 1]),
        (ReadRequest { backwards: back, limit: Some(2), ..all.clone() }, vec![10, 9]),
        (ReadRequest { start: Some(u64::MAX), backwards: back, limit: Some(1), ..all.clone() }, vec![10]),
        (ReadRequest { query: tagged(&["odd"]), ..all.clone() }, vec![2, 4, 6, 8, 10]),
        (ReadRequest { query: Some(Query::default()), start: Some(10), ..all.clone() }, vec![10]),
        (ReadRequest { query: tagged(&[]), start: Some(10), ..all.clone() }, vec![10]),
        (ReadRequest { start: Some(11), ..all.clone() }, vec![]),
    ] {
        let messages = read(&server, request.clone()).await.unwrap();
        assert_eq!(positions(&messages), expected, "{request:?}");
    }
}

#[tokio::test]
async fn the_head_of_a_read() {
    let server = Server::start().await;
    let all = ReadRequest::default();
    let empty = |head| [ReadResponse { events: Vec::new(), head }];
    assert_eq!(read(&server, all.clone()).await.unwrap(), empty(None));
    append(&server, plain(&vec![event("A", &["t"]); 5])).await.unwrap();
    // Without a limit, the store's last position, in every message and in the one of a read that finds
    // nothing.
    let messages = read(&server, ReadRequest { batch_size: Some(2), ..all.clone() }).await.unwrap();
    assert_eq!(
        messages.iter().map(|m| (m.events.len(), m.head)).collect::<Vec<_>>(),
        [(2, Some(5)), (2, Some(5)), (1, Some(5))]
    );
    let missing = ReadRequest { query: tagged(&["none"]), ..all.clone() };
    assert_eq!(read(&server, missing.clone()).await.unwrap(), empty(Some(5)));
    // With a limit, the message's last event; without an event, no head.
    let limited = ReadRequest { limit: Some(3), batch_size: Some(2), ..all.clone() };
    let messages = read(&server, limited).await.unwrap();
    assert_eq!(messages.iter().map(|m| m.head).collect::<Vec<_>>(), [Some(2), Some(3)]);
    assert_eq!(read(&server, ReadRequest { limit: Some(3), ..missing }).await.unwrap(), empty(None));
    assert_eq!(read(&server, ReadRequest { limit: Some(0), ..all }).await.unwrap(), []);
}

#[tokio::test]
#[allow(deprecated)]
async fn read_with_subscribe_is_rejected() {
    let server = Server::start().await;
    let status =
        read(&server, ReadRequest { subscribe: Some(true), ..Default::default() }).await.unwrap_err();
    let (code, kind, text) = failure(&status);
    assert_eq!((code, kind), (Code::InvalidArgument, ErrorType::InvalidArgument));
    assert!(text.contains("Subscribe"), "{text}");
    assert!(read(&server, ReadRequest { subscribe: Some(false), ..Default::default() }).await.is_ok());
}

#[tokio::test]
async fn batches_are_clamped_and_split_below_four_mebibytes() {
    let server = Server::start().await;
    append(&server, plain(&vec![event("A", &[]); 5000])).await.unwrap();
    let sizes = async |batch_size| {
        let messages = read(&server, ReadRequest { batch_size, ..Default::default() }).await.unwrap();
        messages.iter().map(|m| m.events.len()).max()
    };
    assert_eq!(sizes(None).await, Some(1024));
    assert_eq!(sizes(Some(0)).await, Some(1));
    assert_eq!(sizes(Some(u32::MAX)).await, Some(4096));
    // A client with the default limit reads large events, also in one subscription's batch.
    let large = Event { data: vec![7; 700 << 10], ..event("L", &["large"]) };
    for _ in 0..10 {
        append(&server, plain(std::slice::from_ref(&large))).await.unwrap();
    }
    let client = || ropewalk_grpc::proto::umadb::v1::dcb_client::DcbClient::new(server.channel.clone());
    let request = ReadRequest { query: tagged(&["large"]), ..Default::default() };
    let mut stream = client().read(request).await.unwrap().into_inner();
    let mut count = 0;
    while let Some(message) = within(stream.message()).await.unwrap() {
        assert!(message.encoded_len() <= 4 << 20);
        count += message.events.len();
    }
    assert_eq!(count, 10);
    let request = SubscribeRequest { query: tagged(&["large"]), ..Default::default() };
    let mut stream = client().subscribe(request).await.unwrap().into_inner();
    let mut count = 0;
    while count < 10 {
        count += within(stream.message()).await.unwrap().unwrap().events.len();
    }
}

#[tokio::test]
async fn event_of_message_size_is_sent_alone() {
    let server = Server::start().await;
    let sized = |bytes| Event { data: vec![7; bytes], ..event("L", &[]) };
    append(&server, plain(&[sized(900 << 10), sized(7 << 19), sized(1)])).await.unwrap();
    let mut client = ropewalk_grpc::proto::umadb::v1::dcb_client::DcbClient::new(server.channel.clone());
    // The first subscription to send a batch, and the next: both respect a client's default limit.
    for _ in 0..2 {
        let mut stream = client.subscribe(SubscribeRequest::default()).await.unwrap().into_inner();
        for expected in [1, 2, 3] {
            let message = within(stream.message()).await.unwrap().unwrap();
            assert_eq!(message.events.iter().map(|e| e.position).collect::<Vec<_>>(), [expected]);
        }
    }
}

#[tokio::test]
async fn conditions() {
    let server = Server::start().await;
    let unless = |query, after| AppendRequest {
        condition: Some(AppendCondition { fail_if_events_match: query, after }),
        ..plain(&[event("A", &["t:1"])])
    };
    assert_eq!(append(&server, unless(tagged(&["t:1"]), None)).await.unwrap(), 1);
    for condition in [unless(tagged(&["t:1"]), None), unless(tagged(&["t:1"]), Some(0)), unless(None, None)] {
        let (code, kind, text) = failure(&append(&server, condition).await.unwrap_err());
        assert_eq!((code, kind), (Code::FailedPrecondition, ErrorType::Integrity));
        assert!(text.starts_with("integrity error: condition failed:"), "{text}");
    }
    assert_eq!(append(&server, unless(tagged(&["t:1"]), Some(1))).await.unwrap(), 2);
    assert_eq!(append(&server, unless(tagged(&["t:1"]), Some(u64::MAX))).await.unwrap(), 3);
    assert_eq!(append(&server, unless(tagged(&["t:2"]), None)).await.unwrap(), 4);
}

#[tokio::test]
async fn retry_with_same_uuids_returns_first_position() {
    let server = Server::start().await;
    let with_uuid =
        |n: u8| Event { uuid: format!("00000000-0000-0000-0000-0000000000{n:02x}"), ..event("A", &["t"]) };
    let request = |events: &[Event]| AppendRequest {
        condition: Some(AppendCondition { fail_if_events_match: tagged(&["t"]), after: None }),
        ..plain(events)
    };
    let both = [with_uuid(1), with_uuid(2)];
    for _ in 0..3 {
        assert_eq!(append(&server, request(&both)).await.unwrap(), 2);
    }
    for others in
        [vec![with_uuid(2), with_uuid(1)], vec![with_uuid(1), event("A", &["t"])], vec![with_uuid(3)]]
    {
        assert_eq!(failure(&append(&server, request(&others)).await.unwrap_err()).1, ErrorType::Integrity);
    }
    assert_eq!(append(&server, plain(&both)).await.unwrap(), 4, "without a condition a repeat is appended");
}

#[tokio::test]
async fn tracking_rises_also_without_events() {
    let server = Server::start().await;
    let at = |position, events: &[Event]| AppendRequest {
        tracking_info: Some(TrackingInfo { source: "up".to_owned(), position }),
        ..plain(events)
    };
    let stored = async || {
        let request = TrackingRequest { source: "up".to_owned() };
        within(server.umadb().get_tracking_info(request)).await.unwrap().into_inner().position
    };
    assert_eq!(stored().await, None);
    assert_eq!(append(&server, at(3, &[])).await.unwrap(), 0);
    assert_eq!(stored().await, Some(3));
    assert_eq!(append(&server, at(4, &[event("A", &[])])).await.unwrap(), 1);
    for position in [0, 3, 4] {
        let (code, kind, text) = failure(&append(&server, at(position, &[])).await.unwrap_err());
        assert_eq!((code, kind), (Code::FailedPrecondition, ErrorType::Integrity));
        assert!(text.contains("non-increasing tracking position for source"), "{text}");
    }
    assert_eq!(stored().await, Some(4));
    let long = TrackingInfo { source: "s".repeat(256), position: 1 };
    let request = AppendRequest { tracking_info: Some(long), ..plain(&[]) };
    assert_eq!(failure(&append(&server, request).await.unwrap_err()).0, Code::InvalidArgument);
}

#[tokio::test]
async fn empty_append_only_checks_condition() {
    let server = Server::start().await;
    assert_eq!(append(&server, plain(&[])).await.unwrap(), 0);
    append(&server, plain(&[event("A", &["t"])])).await.unwrap();
    let asks = |query| AppendRequest {
        condition: Some(AppendCondition { fail_if_events_match: query, after: None }),
        ..plain(&[])
    };
    assert_eq!(append(&server, asks(tagged(&["none"]))).await.unwrap(), 0);
    assert_eq!(failure(&append(&server, asks(tagged(&["t"]))).await.unwrap_err()).1, ErrorType::Integrity);
}

#[tokio::test]
async fn the_head() {
    let server = Server::start().await;
    let head = async || within(server.umadb().head(HeadRequest {})).await.unwrap().into_inner();
    assert_eq!(head().await, HeadResponse { position: None });
    append(&server, plain(&vec![event("A", &[]); 3])).await.unwrap();
    assert_eq!(head().await, HeadResponse { position: Some(3) });
}

#[tokio::test]
async fn events_over_the_limits_are_refused() {
    let server = Server::start().await;
    let entry = |key: &str| MetadataEntry { key: key.to_owned(), value: "v".to_owned() };
    let long = "x".repeat(65_536);
    for (bad, said) in [
        (event(&long, &[]), "type of 65536 bytes"),
        (event("", &[]), "type of 0 bytes"),
        (event("A", &[&long]), "tag of 65536 bytes"),
        (event("A", &["t", "t"]), "duplicate tag"),
        (Event { metadata: vec![entry("k"), entry("k")], ..event("A", &[]) }, "duplicate metadata key"),
        (Event { metadata: vec![entry(&long)], ..event("A", &[]) }, "metadata key or value over"),
    ] {
        let (code, kind, text) = failure(&append(&server, plain(&[event("A", &[]), bad])).await.unwrap_err());
        assert_eq!((code, kind), (Code::InvalidArgument, ErrorType::InvalidArgument));
        assert!(text.contains(said) && text.contains("event 1"), "{text}");
    }
    let bad = Event { uuid: "no".to_owned(), ..event("A", &[]) };
    let (code, kind, text) = failure(&append(&server, plain(&[bad])).await.unwrap_err());
    assert_eq!((code, kind), (Code::DataLoss, ErrorType::Corruption));
    assert!(text.contains("event 0"), "{text}");
    assert_eq!(within(server.umadb().head(HeadRequest {})).await.unwrap().into_inner().position, None);
}

fn at<T>(store: &'static str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("x-store", store.parse().unwrap());
    request
}

#[tokio::test]
async fn the_header_selects_the_store() {
    let server = Server::start().await;
    let two = plain(&[event("A", &[]), event("A", &[])]);
    let appended = within(server.umadb().append(at("other", two))).await.unwrap();
    assert_eq!(appended.into_inner().position, 2);
    let head = async |name| within(server.umadb().head(at(name, HeadRequest {}))).await;
    assert_eq!(head("other").await.unwrap().into_inner().position, Some(2));
    assert_eq!(head("default").await.unwrap().into_inner().position, None);
    assert_eq!(within(server.umadb().head(HeadRequest {})).await.unwrap().into_inner().position, None);
    let (code, kind, text) = failure(&head("missing").await.unwrap_err());
    assert_eq!((code, kind), (Code::NotFound, ErrorType::InvalidArgument));
    assert!(text.contains("missing"), "{text}");
}

#[tokio::test]
async fn subscriptions_catch_up_and_continue_live() {
    let server = Server::start().await;
    append(&server, plain(&vec![event("A", &["t"]); 5])).await.unwrap();
    let request = SubscribeRequest { query: tagged(&["t"]), after: Some(1), batch_size: Some(3) };
    let mut first = within(server.umadb().subscribe(request.clone())).await.unwrap().into_inner();
    let mut second = within(server.umadb().subscribe(request)).await.unwrap().into_inner();
    let take = async |stream: &mut tonic::Streaming<_>, count: usize| {
        let mut found = Vec::new();
        while found.len() < count {
            let message: ropewalk_grpc::proto::umadb::v1::SubscribeResponse =
                within(stream.message()).await.unwrap().unwrap();
            assert!((1..=3).contains(&message.events.len()));
            found.extend(message.events.iter().map(|event| event.position));
        }
        found
    };
    assert_eq!(take(&mut first, 4).await, [2, 3, 4, 5]);
    append(&server, plain(&[event("B", &["u"]), event("B", &["t"])])).await.unwrap();
    assert_eq!(take(&mut first, 1).await, [7]);
    assert_eq!(take(&mut second, 5).await, [2, 3, 4, 5, 7]);
    let request = SubscribeRequest { after: Some(u64::MAX), ..Default::default() };
    let mut never = within(server.umadb().subscribe(request)).await.unwrap().into_inner();
    assert!(within(never.message()).await.unwrap().is_none());
}

#[tokio::test]
async fn the_older_path_is_the_same_service() {
    let server = Server::start().await;
    append(&server, plain(&[event("A", &[])])).await.unwrap();
    let mut old = tonic::client::Grpc::new(server.channel.clone());
    old.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<HeadRequest, HeadResponse>::default();
    let path = http::uri::PathAndQuery::from_static("/umadb.UmaDBService/Head");
    let head = within(old.unary(Request::new(HeadRequest {}), path, codec)).await.unwrap();
    assert_eq!(head.into_inner().position, Some(1));
    old.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<ReadRequest, ReadResponse>::default();
    let path = http::uri::PathAndQuery::from_static("/umadb.UmaDBService/Read");
    let mut stream = within(old.server_streaming(Request::new(ReadRequest::default()), path, codec))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(within(stream.message()).await.unwrap().unwrap().events.len(), 1);
    old.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<HeadRequest, HeadResponse>::default();
    let path = http::uri::PathAndQuery::from_static("/umadb.UmaDBService/Nothing");
    let status = within(old.unary(Request::new(HeadRequest {}), path, codec)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
}
