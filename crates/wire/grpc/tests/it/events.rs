//! `ropewalk.events.v1.Events`: features that UmaDB's protocol lacks, and machine-readable errors.

use prost::Message;
use ropewalk_grpc::proto::ropewalk::events::v1::events_client::EventsClient;
use ropewalk_grpc::proto::ropewalk::events::v1::{
    AppendCondition, AppendRequest, AppendResponse, Conflict, CountRequest, CreateStoreRequest,
    DeleteStoreRequest, Durability, Error, Event, ExistsRequest, HeadRequest, LastRequest, ListStoresRequest,
    MetadataEntry, Query, QueryItem, ReadRequest, SequencedEvent, StoreInfo, SubscribeRequest,
    TrackingRequest, UpstreamPosition,
};
use tonic::{Code, Status};

use crate::{Server, within};

fn event(event_type: &str, tags: &[&str]) -> Event {
    let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
    Event { r#type: event_type.to_owned(), tags, data: b"data".to_vec(), ..Event::default() }
}

fn query(types: &[&str], tags: &[&str]) -> Option<Query> {
    let own = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    Some(Query { items: vec![QueryItem { types: own(types), tags: own(tags) }] })
}

fn plain(events: &[Event]) -> AppendRequest {
    AppendRequest { events: events.to_vec(), ..AppendRequest::default() }
}

async fn append(server: &Server, request: AppendRequest) -> Result<AppendResponse, Status> {
    within(server.events().append(request)).await.map(|response| response.into_inner())
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    pub(crate) details: Vec<prost_types::Any>,
}

/// The code and our details.
pub(crate) fn failure(status: &Status) -> (Code, Error) {
    let rpc = RpcStatus::decode(status.details()).unwrap();
    assert_eq!((rpc.code, rpc.message.as_str()), (status.code() as i32, status.message()));
    assert_eq!(rpc.details[0].type_url, "type.googleapis.com/ropewalk.events.v1.Error");
    (status.code(), Error::decode(&*rpc.details[0].value).unwrap())
}

async fn refused(server: &Server, request: AppendRequest) -> (Code, Error) {
    failure(&append(server, request).await.unwrap_err())
}

#[tokio::test]
async fn an_event_with_everything() {
    let server = Server::start().await;
    let entry = |key: &str, value: &str| MetadataEntry { key: key.to_owned(), value: value.to_owned() };
    let full = Event {
        id: "00112233-4455-6677-8899-aabbccddeeff".to_owned(),
        metadata: vec![entry("b", "1"), entry("a", "")],
        ..event("A", &["t:1", "ü"])
    };
    let tracking = Some(UpstreamPosition { source: "up".to_owned(), position: 9 });
    let request = AppendRequest { tracking: tracking.clone(), ..plain(std::slice::from_ref(&full)) };
    let appended = append(&server, request).await.unwrap();
    assert_eq!((appended.first, appended.last), (1, 1));
    let last = LastRequest { query: query(&["A"], &["t:1"]), ..LastRequest::default() };
    let last = within(server.events().last(last)).await.unwrap().into_inner().event.unwrap();
    let SequencedEvent { position, event: found, tracking: tracked, seq, recorded_at_micros } = last.clone();
    assert_eq!((position, found, tracked, seq), (1, Some(full), tracking, appended.seq));
    assert!(recorded_at_micros > 1_577_836_800_000_000, "{recorded_at_micros} is after 2020");
    // A frame of one event is what prost would write.
    let mut stream = within(server.events().read(ReadRequest::default())).await.unwrap().into_inner();
    let message = within(stream.message()).await.unwrap().unwrap();
    assert_eq!((message.events, message.head), (vec![last], 1));
    assert!(within(stream.message()).await.unwrap().is_none());
    let nothing = LastRequest { query: query(&["B"], &[]), ..LastRequest::default() };
    assert_eq!(within(server.events().last(nothing)).await.unwrap().into_inner().event, None);
}

#[tokio::test]
async fn all_conditions_must_hold() {
    let server = Server::start().await;
    append(&server, plain(&[event("A", &["x"]), event("B", &["y"])])).await.unwrap();
    let condition = |types: &[&str], tags: &[&str], after| AppendCondition {
        fail_if_events_match: query(types, tags),
        after,
    };
    let request = |conditions: &[AppendCondition]| AppendRequest {
        conditions: conditions.to_vec(),
        ..plain(&[event("C", &[])])
    };
    let holds = [condition(&["A"], &["x"], Some(1)), condition(&["Z"], &[], None)];
    assert_eq!(append(&server, request(&holds)).await.unwrap().last, 3);
    let mut fails = vec![holds[1].clone(), condition(&[], &["x"], None)];
    fails[1]
        .fail_if_events_match
        .as_mut()
        .unwrap()
        .items
        .insert(0, QueryItem { types: vec!["Z".to_owned()], tags: vec![] });
    let (code, error) = refused(&server, request(&fails)).await;
    assert_eq!((code, error.code.as_str()), (Code::FailedPrecondition, "condition_failed"));
    assert_eq!(error.conflict, Some(Conflict { condition: 1, position: 1, item: Some(1) }));
    // A condition on all events must be explicit.
    let everything = AppendCondition { fail_if_events_match: Some(Query::default()), after: None };
    let (_, error) = refused(&server, request(&[everything])).await;
    assert_eq!(error.conflict, Some(Conflict { condition: 0, position: 1, item: None }));
    let (code, error) = refused(&server, request(&[AppendCondition::default()])).await;
    assert_eq!((code, error.code.as_str()), (Code::InvalidArgument, "invalid_argument"));
    assert_eq!(error.message, "condition 0 has no query");
}

#[tokio::test]
async fn a_key_makes_a_retry_safe() {
    let server = Server::start().await;
    let request = |event_type| AppendRequest {
        idempotency_key: Some("order-7".to_owned()),
        ..plain(&[event(event_type, &[])])
    };
    let first = append(&server, request("A")).await.unwrap();
    let again = append(&server, request("A")).await.unwrap();
    assert_eq!((again.first, again.last), (first.first, first.last));
    let (code, error) = refused(&server, request("B")).await;
    assert_eq!((code, error.code.as_str()), (Code::FailedPrecondition, "idempotency_mismatch"));
}

#[tokio::test]
async fn tracking_and_durability() {
    let server = Server::start().await;
    let at = |position| AppendRequest {
        tracking: Some(UpstreamPosition { source: "up".to_owned(), position }),
        ..AppendRequest::default()
    };
    assert_eq!(append(&server, at(5)).await.unwrap().last, 0);
    assert_eq!(refused(&server, at(5)).await.1.code, "tracking_conflict");
    let request = TrackingRequest { source: "up".to_owned(), ..Default::default() };
    assert_eq!(within(server.events().tracking(request)).await.unwrap().into_inner().position, Some(5));
    for durability in [Durability::Sync, Durability::Buffered, Durability::Async] {
        let request = AppendRequest { durability: durability.into(), ..plain(&[event("A", &[])]) };
        append(&server, request).await.unwrap();
    }
    let (code, error) = refused(&server, AppendRequest { durability: 9, ..plain(&[event("A", &[])]) }).await;
    assert_eq!((code, error.message.as_str()), (Code::InvalidArgument, "durability 9 is not known"));
}

#[tokio::test]
async fn rejects_invalid_arguments() {
    let server = Server::start().await;
    let (code, error) = refused(&server, plain(&[])).await;
    assert_eq!((code, error.code.as_str()), (Code::InvalidArgument, "invalid_argument"));
    let bad = Event { id: "x".to_owned(), ..event("A", &[]) };
    assert!(refused(&server, plain(&[event("A", &[]), bad])).await.1.message.contains("event 1"));
    let empty_item = Some(Query { items: vec![QueryItem::default()] });
    let count = CountRequest { query: empty_item.clone(), ..Default::default() };
    let status = within(server.events().count(count)).await.unwrap_err();
    assert!(failure(&status).1.message.contains("neither types nor tags"), "{status}");
    for batch_events in [0, 65_537] {
        let request = ReadRequest { batch_events: Some(batch_events), ..Default::default() };
        let status = within(server.events().read(request)).await.unwrap_err();
        assert_eq!(failure(&status).0, Code::InvalidArgument);
    }
    let request = HeadRequest { store: "missing".to_owned() };
    let (code, error) = failure(&within(server.events().head(request)).await.unwrap_err());
    assert_eq!((code, error.code.as_str()), (Code::NotFound, "not_found"));
}

#[tokio::test]
async fn reads_counts_and_existence() {
    let server = Server::start().await;
    let events: Vec<_> = (0..10).map(|n| event(if n % 2 == 0 { "Even" } else { "Odd" }, &["n"])).collect();
    append(&server, plain(&events)).await.unwrap();
    let read = async |request: ReadRequest| {
        let mut stream = within(server.events().read(request)).await.unwrap().into_inner();
        let mut positions = Vec::new();
        while let Some(message) = within(stream.message()).await.unwrap() {
            assert_eq!(message.head, 10);
            positions.extend(message.events.iter().map(|event| event.position));
        }
        positions
    };
    let all = ReadRequest::default();
    assert_eq!(read(ReadRequest { query: query(&["Odd"], &["n"]), ..all.clone() }).await, [2, 4, 6, 8, 10]);
    assert_eq!(read(ReadRequest { after: Some(3), before: Some(6), ..all.clone() }).await, [4, 5]);
    let back = ReadRequest { from: Some(4), backwards: true, limit: Some(2), ..all.clone() };
    assert_eq!(read(back).await, [4, 3]);
    assert_eq!(read(ReadRequest { batch_events: Some(1), ..all.clone() }).await.len(), 10);
    assert_eq!(read(ReadRequest { query: query(&["None"], &[]), ..all }).await, [0; 0]);
    let count = CountRequest { query: query(&["Even"], &[]), ..Default::default() };
    assert_eq!(within(server.events().count(count)).await.unwrap().into_inner().count, 5);
    for (after, expected) in [(None, true), (Some(8), true), (Some(9), false)] {
        let request = ExistsRequest { query: query(&["Even"], &[]), after, ..Default::default() };
        let exists = within(server.events().exists(request)).await.unwrap().into_inner().exists;
        assert_eq!(exists, expected, "after {after:?}");
    }
    let head = within(server.events().head(HeadRequest::default())).await.unwrap().into_inner();
    assert_eq!(head.position, Some(10));
}

#[tokio::test]
async fn stores_are_made_listed_and_deleted() {
    let server = Server::start().await;
    let create = async |name: &str| {
        let request = CreateStoreRequest { store: name.to_owned() };
        within(server.events().create_store(request)).await.map(|r| r.into_inner().created)
    };
    assert!(create("a").await.unwrap() && !create("a").await.unwrap());
    assert_eq!(failure(&create("").await.unwrap_err()).1.code, "invalid_argument");
    append(&server, AppendRequest { store: "b".to_owned(), ..plain(&[event("A", &[])]) }).await.unwrap();
    let page = async |after: Option<&str>, limit| {
        let request = ListStoresRequest { after: after.map(str::to_owned), limit };
        within(server.events().list_stores(request)).await.map(tonic::Response::into_inner)
    };
    let list = async || page(None, None).await.unwrap().stores;
    let info = |name: &str, head| StoreInfo { name: name.to_owned(), head };
    assert_eq!(list().await, [info("a", 0), info("b", 1), info("default", 0)]);
    let first = page(None, Some(2)).await.unwrap();
    assert_eq!((first.stores.len(), first.next.as_deref()), (2, Some("b")));
    let second = page(first.next.as_deref(), Some(2)).await.unwrap();
    assert_eq!((second.stores, second.next), (vec![info("default", 0)], None));
    for (after, limit) in [(Some(""), None), (Some("a\0"), None), (None, Some(0))] {
        assert_eq!(failure(&page(after, limit).await.unwrap_err()).1.code, "invalid_argument");
    }
    let delete = async |name: &str| {
        within(server.events().delete_store(DeleteStoreRequest { store: name.to_owned() })).await
    };
    delete("b").await.unwrap();
    assert_eq!(failure(&delete("b").await.unwrap_err()).0, Code::NotFound);
    assert_eq!(list().await, [info("a", 0), info("default", 0)]);
}

#[tokio::test]
async fn subscription_signals_catch_up() {
    let server = Server::start().await;
    append(&server, plain(&[event("A", &["t"]), event("B", &[])])).await.unwrap();
    let request = SubscribeRequest { query: query(&[], &["t"]), ..Default::default() };
    let mut stream = within(server.events().subscribe(request)).await.unwrap().into_inner();
    let first = within(stream.message()).await.unwrap().unwrap();
    assert_eq!(first.events.iter().map(|e| e.position).collect::<Vec<_>>(), [1]);
    let second = within(stream.message()).await.unwrap().unwrap();
    assert_eq!((second.events.len(), second.caught_up), (0, Some(2)));
    append(&server, plain(&[event("C", &["t"])])).await.unwrap();
    let third = within(stream.message()).await.unwrap().unwrap();
    assert_eq!(third.events[0].position, 3);
    let empty = SubscribeRequest { query: query(&["Z"], &[]), after: Some(3), ..Default::default() };
    let mut stream = within(server.events().subscribe(empty)).await.unwrap().into_inner();
    assert_eq!(within(stream.message()).await.unwrap().unwrap().caught_up, Some(3));
}

#[tokio::test]
async fn d1_18_empty_name_is_the_store_of_the_port() {
    let server = Server::start().await;
    let mut shop = EventsClient::new(server.port("shop").await);
    within(shop.append(plain(&[event("A", &[])]))).await.unwrap();
    let head = |store: &str| HeadRequest { store: store.to_owned() };
    let position =
        async |store: &str| within(shop.clone().head(head(store))).await.unwrap().into_inner().position;
    assert_eq!((position("").await, position("shop").await), (Some(1), Some(1)));
    assert_eq!(position("default").await, None);
    assert_eq!(within(server.events().head(head(""))).await.unwrap().into_inner().position, None);
}
