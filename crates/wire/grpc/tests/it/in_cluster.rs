//! Calls to a node that follows.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use ropewalk_grpc::GrpcSettings;
use ropewalk_grpc::proto::umadb::v1::dcb_client::DcbClient;
use ropewalk_grpc::proto::umadb::v1::{AppendRequest, Event, HeadRequest};
use ropewalk_http_kit::leader::{FORWARDED, LeaderResponse, ToLeader, ToLeaderError};
use ropewalk_transactions::OpenTransactions;
use ropewalk_wire::Service;
use tonic::{Code, Status};
use tower_service::Service as _;

use crate::cluster::Node;

async fn router(service: &Service, settings: GrpcSettings) -> Router {
    let transactions = OpenTransactions::new(service.clone());
    ropewalk_grpc::routes(service, &transactions, &settings).await.into_axum_router()
}

/// The way to a leader, which notes what it sends.
struct Way {
    leader: Option<Router>,
    sent: Mutex<Vec<String>>,
}

impl core::fmt::Debug for Way {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Way")
    }
}

impl ToLeader for Way {
    fn send<'a>(&'a self, leader: &'a str, mut request: Request) -> LeaderResponse<'a> {
        Box::pin(async move {
            let store = request.headers().get("x-store").map(|store| store.to_str().unwrap().to_owned());
            let line = format!("{leader} {} {}", request.uri().path(), store.unwrap_or_default());
            self.sent.lock().unwrap().push(line);
            request.headers_mut().insert(FORWARDED, "1".parse().unwrap());
            match &self.leader {
                Some(leader) => Ok(leader.clone().call(request).await.unwrap()),
                None => Err(ToLeaderError::NoAnswer("reset".to_owned())),
            }
        })
    }
}

/// A transport over a router.
#[derive(Clone)]
struct Port(Router, Option<&'static str>);

impl tower_service::Service<http::Request<tonic::body::Body>> for Port {
    type Response = Response;
    type Error = core::convert::Infallible;
    type Future = core::pin::Pin<Box<dyn Future<Output = Result<Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut core::task::Context<'_>) -> core::task::Poll<Result<(), Self::Error>> {
        core::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: http::Request<tonic::body::Body>) -> Self::Future {
        if let Some(header) = self.1 {
            request.headers_mut().insert(header, "1".parse().unwrap());
        }
        let mut router = self.0.clone();
        Box::pin(async move { router.call(request.map(axum::body::Body::new)).await })
    }
}

struct Pair {
    nodes: (Node, Node),
    way: Arc<Way>,
    follower: DcbClient<Port>,
}

async fn pair(is_reached: bool, settings: GrpcSettings) -> Pair {
    let nodes = Node::pair();
    nodes.1.follow();
    let leader =
        if is_reached { Some(router(&nodes.0.service, GrpcSettings::default()).await) } else { None };
    let way = Arc::new(Way { leader, sent: Mutex::default() });
    let settings = GrpcSettings { leader: Some(way.clone()), ..settings };
    let follower = DcbClient::new(Port(router(&nodes.1.service, settings).await, None));
    Pair { nodes, way, follower }
}

fn event() -> AppendRequest {
    let event = Event { event_type: "A".to_owned(), ..Event::default() };
    AppendRequest { events: vec![event], ..AppendRequest::default() }
}

fn sent(way: &Way) -> Vec<String> {
    std::mem::take(&mut way.sent.lock().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn write_on_a_follower_is_carried_out_by_the_leader() {
    let Pair { nodes, way, mut follower } = pair(true, GrpcSettings::default()).await;
    let appended = follower.append(event()).await.unwrap().into_inner();
    assert_eq!(appended.position, 1);
    assert_eq!(sent(&way), ["grpc://n1:50051 /umadb.v1.DCB/Append default"]);
    assert_eq!(follower.head(HeadRequest {}).await.unwrap().into_inner().position, None, "reads stay");
    nodes.1.follow();
    assert_eq!(follower.head(HeadRequest {}).await.unwrap().into_inner().position, Some(1));
    assert!(sent(&way).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_of_a_port_is_sent_along() {
    let of_store = GrpcSettings { store: Some("orders".to_owned()), ..GrpcSettings::default() };
    let Pair { nodes, way, mut follower } = pair(true, of_store).await;
    follower.append(event()).await.unwrap();
    assert_eq!(sent(&way), ["grpc://n1:50051 /umadb.v1.DCB/Append orders"]);
    assert!(nodes.0.db().events("orders").unwrap().head().unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn write_that_was_sent_on_goes_no_further() {
    let Pair { nodes, way, .. } = pair(true, GrpcSettings::default()).await;
    let settings = GrpcSettings { leader: Some(way.clone()), ..GrpcSettings::default() };
    let port = Port(router(&nodes.1.service, settings).await, Some("ropewalk-forwarded"));
    let status: Status = DcbClient::new(port).append(event()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.metadata().get("ropewalk-leader").unwrap().to_str().unwrap().contains("grpc://n1:50051"));
    assert!(sent(&way).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leader_without_an_answer_leaves_the_outcome_unknown() {
    let Pair { mut follower, .. } = pair(false, GrpcSettings::default()).await;
    let status = follower.append(event()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unknown);
    assert!(status.message().contains("may have carried out"), "{}", status.message());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn caller_without_the_right_is_refused_before_the_leader_is_asked() {
    let Pair { nodes, way, mut follower } = pair(true, GrpcSettings::default()).await;
    let roles =
        std::collections::BTreeMap::from([("default".to_owned(), [ropewalk_auth::Right::Read].into())]);
    let admin = ropewalk_auth::Caller::everybody();
    let token = nodes.0.service.access().create_token(&admin, "reader", roles, None).await.unwrap().1;
    nodes.1.follow();
    assert_eq!(follower.append(event()).await.unwrap_err().code(), Code::Unauthenticated);
    let mut request = tonic::Request::new(event());
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    assert_eq!(follower.append(request).await.unwrap_err().code(), Code::PermissionDenied);
    assert!(sent(&way).is_empty());
}
