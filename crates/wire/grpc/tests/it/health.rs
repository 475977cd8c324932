//! Health and reflection, as used by probes and tools.

use prost::Message;
use ropewalk_grpc::proto::umadb::v1::HeadRequest;
use tonic::Code;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};

use crate::{Server, within};

fn about(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.to_owned() }
}

fn status(response: &HealthCheckResponse) -> ServingStatus {
    response.status()
}

#[tokio::test]
async fn serving_until_the_stop() {
    let server = Server::start().await;
    let mut client = HealthClient::new(server.channel.clone());
    let mut watches = Vec::new();
    for name in ["", "umadb.v1.DCB", "ropewalk.events.v1.Events", "ropewalk.v1.Transactions"] {
        let response = within(client.check(about(name))).await.unwrap().into_inner();
        assert_eq!(status(&response), ServingStatus::Serving, "{name}");
        let mut watch = within(client.watch(about(name))).await.unwrap().into_inner();
        assert_eq!(status(&within(watch.message()).await.unwrap().unwrap()), ServingStatus::Serving);
        watches.push(watch);
    }
    assert_eq!(within(client.check(about("other"))).await.unwrap_err().code(), Code::NotFound);
    server.service.stop().begin();
    for mut watch in watches {
        assert_eq!(status(&within(watch.message()).await.unwrap().unwrap()), ServingStatus::NotServing);
        assert!(within(watch.message()).await.unwrap().is_none());
    }
    drop(client);
    server.ended().await;
}

#[tokio::test]
async fn stopped_database_is_not_serving() {
    let server = Server::start().await;
    let mut client = HealthClient::new(server.channel.clone());
    let mut watch = within(client.watch(about(""))).await.unwrap().into_inner();
    assert_eq!(status(&within(watch.message()).await.unwrap().unwrap()), ServingStatus::Serving);
    server.service.database().clone().close().unwrap();
    assert_eq!(status(&within(watch.message()).await.unwrap().unwrap()), ServingStatus::NotServing);
    for name in ["", "umadb.v1.DCB", "ropewalk.events.v1.Events", "ropewalk.v1.Transactions"] {
        let response = within(client.check(about(name))).await.unwrap().into_inner();
        assert_eq!(status(&response), ServingStatus::NotServing, "{name}");
    }
    server.service.stop().begin();
    assert!(within(watch.message()).await.unwrap().is_none());
    drop(client);
    server.ended().await;
}

#[tokio::test]
async fn health_needs_no_key() {
    let server = Server::start().await;
    crate::access::close(&server).await;
    assert_eq!(within(server.umadb().head(HeadRequest {})).await.unwrap_err().code(), Code::Unauthenticated);
    let mut client = HealthClient::new(server.channel.clone());
    assert_eq!(status(within(client.check(about(""))).await.unwrap().get_ref()), ServingStatus::Serving);
}

async fn reflect(server: &Server, message: MessageRequest) -> MessageResponse {
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(message) };
    let mut client = ServerReflectionClient::new(server.channel.clone());
    let requests = tokio_stream::iter([request]);
    let mut stream = within(client.server_reflection_info(requests)).await.unwrap().into_inner();
    let response: ServerReflectionResponse = within(stream.message()).await.unwrap().unwrap();
    response.message_response.unwrap()
}

#[tokio::test]
async fn reflection_lists_services_and_files() {
    let server = Server::start().await;
    let MessageResponse::ListServicesResponse(list) =
        reflect(&server, MessageRequest::ListServices(String::new())).await
    else {
        panic!("not a list")
    };
    let names: Vec<_> = list.service.iter().map(|service| service.name.as_str()).collect();
    for expected in
        ["umadb.v1.DCB", "ropewalk.events.v1.Events", "ropewalk.v1.Transactions", "grpc.health.v1.Health"]
    {
        assert!(names.contains(&expected), "{names:?}");
    }
    for (symbol, method) in [
        ("umadb.v1.DCB", "GetTrackingInfo"),
        ("ropewalk.events.v1.Events", "DeleteStore"),
        ("ropewalk.v1.Transactions", "CommitOpen"),
    ] {
        let request = MessageRequest::FileContainingSymbol(symbol.to_owned());
        let MessageResponse::FileDescriptorResponse(file) = reflect(&server, request).await else {
            panic!("not a file")
        };
        let file = prost_types::FileDescriptorProto::decode(&*file.file_descriptor_proto[0]).unwrap();
        assert!(file.service[0].method.iter().any(|m| m.name() == method), "{symbol} has {method}");
    }
}

#[tokio::test]
async fn older_tools_reflect_too() {
    use tonic_reflection::pb::v1alpha::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1alpha::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1alpha::server_reflection_response::MessageResponse;
    let server = Server::start().await;
    let message_request = Some(MessageRequest::ListServices(String::new()));
    let request =
        tonic_reflection::pb::v1alpha::ServerReflectionRequest { host: String::new(), message_request };
    let mut client = ServerReflectionClient::new(server.channel.clone());
    let requests = tokio_stream::iter([request]);
    let mut stream = within(client.server_reflection_info(requests)).await.unwrap().into_inner();
    let response = within(stream.message()).await.unwrap().unwrap().message_response.unwrap();
    assert!(matches!(response, MessageResponse::ListServicesResponse(list) if list.service.len() >= 3));
}
