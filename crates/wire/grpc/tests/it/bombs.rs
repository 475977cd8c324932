//! Messages of very many empty elements: small on the wire, and large if they were decoded.

use std::time::{Duration, Instant};

use axum::body::Body;
use ropewalk::hooks::put_varint;
use ropewalk_grpc::proto::umadb::v1::{AppendRequest, Event};
use ropewalk_wire::Limits;

use crate::allocations::most_held;
use crate::limits::status_of;
use crate::{Server, within};

/// Elements of a message, of two bytes each: just below the limit of the message.
const ELEMENTS: usize = 8_000_000;
/// Most memory of a rejected call, in addition to its body.
const HELD_MAX: u64 = 32 << 20;
/// Far more than a call needs on a busy machine.
const TIME_MAX: Duration = Duration::from_secs(60);

/// Calls, and the numbers of a repeated field and of the fields around it.
const REPEATED: &[(&str, &[u8])] = &[
    ("/umadb.v1.DCB/Append", &[1]),
    ("/umadb.v1.DCB/Append", &[1, 2]),
    ("/umadb.v1.DCB/Append", &[2, 1, 1]),
    ("/umadb.v1.DCB/Read", &[1, 1]),
    ("/umadb.UmaDBService/Append", &[1]),
    ("/ropewalk.events.v1.Events/Append", &[2]),
    ("/ropewalk.events.v1.Events/Append", &[2, 5]),
    ("/ropewalk.events.v1.Events/Append", &[3]),
    ("/ropewalk.events.v1.Events/Count", &[2, 1, 1]),
    ("/ropewalk.v1.Transactions/Commit", &[1]),
    ("/ropewalk.v1.Transactions/Commit", &[2]),
    ("/ropewalk.v1.Transactions/Commit", &[1, 1, 2]),
    ("/ropewalk.v1.Transactions/Commit", &[1, 3, 4, 3, 1]),
    ("/ropewalk.v1.Transactions/Commit", &[1, 4, 2]),
    ("/ropewalk.v1.Transactions/Commit", &[1, 5, 2]),
    ("/ropewalk.v1.Transactions/Commit", &[1, 5, 2, 2]),
    ("/ropewalk.v1.Transactions/Execute", &[2]),
];

/// The body of a request with so many empty elements of a repeated field.
fn bomb(path: &[u8], elements: usize) -> Vec<u8> {
    let (last, around) = path.split_last().unwrap();
    let mut message = [last << 3 | 2, 0].repeat(elements);
    for number in around.iter().rev() {
        let mut outer = vec![number << 3 | 2];
        put_varint(&mut outer, message.len() as u64);
        outer.append(&mut message);
        message = outer;
    }
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0_u8][..], &length, &message].concat()
}

fn request(path: &str, body: Vec<u8>) -> http::Request<Body> {
    let request = http::Request::post(path).header("content-type", "application/grpc");
    request.body(Body::from(body)).unwrap()
}

#[test]
fn message_of_empty_elements_is_rejected_before_it_takes_memory() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime.block_on(Server::start());
    for (path, field) in REPEATED {
        let request = request(path, bomb(field, ELEMENTS));
        let started = Instant::now();
        let (held, status) = most_held(|| runtime.block_on(status_of(&server, request)));
        println!("{path} {field:?}: {held} bytes, {:?}", started.elapsed());
        assert_eq!(status.as_deref(), Some("3"), "{path} {field:?}");
        assert!(held < HELD_MAX, "{path} {field:?}: {held} bytes");
        assert!(started.elapsed() < TIME_MAX, "{path} {field:?}: {:?}", started.elapsed());
    }
    let memory = server.service.request_memory();
    assert_eq!(memory.available_bytes(), Limits::default().request_memory);
}

#[tokio::test(flavor = "multi_thread")]
async fn append_of_as_many_events_as_allowed_is_decoded() {
    let limits = Limits::default();
    let server = Server::with(limits.clone()).await;
    let event = Event {
        event_type: "Placed".to_owned(),
        tags: vec!["order:1".to_owned(), "sku:rope".to_owned()],
        data: vec![7; 100],
        ..Event::default()
    };
    let events = vec![event; limits.append_events];
    let request = AppendRequest { events, ..AppendRequest::default() };
    let appended = within(server.umadb().append(request)).await.unwrap().into_inner();
    assert_eq!(appended.position, limits.append_events as u64);
}
