//! Keys, passwords and rights.

use std::collections::BTreeMap;

use prost::Message;
use ropewalk_auth::{Caller, Right};
use ropewalk_grpc::proto::umadb::v1::dcb_client::DcbClient;
use ropewalk_grpc::proto::umadb::v1::error_response::ErrorType;
use ropewalk_grpc::proto::umadb::v1::{AppendRequest, ErrorResponse, Event, HeadRequest};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use crate::{Server, within};

/// Creates a token that may read the store `default`; from then on the server requires credentials.
pub(crate) async fn close(server: &Server) -> String {
    let roles = BTreeMap::from([("default".to_owned(), [Right::Read].into())]);
    let admin = Caller::everybody();
    let created = server.service.access().create_token(&admin, "reader", roles, None).await;
    created.unwrap().1
}

fn with<T>(authorization: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", authorization.parse().unwrap());
    request
}

fn refused(status: &Status) -> (Code, ErrorType) {
    (status.code(), ErrorResponse::decode(status.details()).unwrap().error_type())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_grants_only_its_rights() {
    let server = Server::start().await;
    within(server.umadb().head(HeadRequest {})).await.unwrap();
    let token = close(&server).await;
    let head =
        async |authorization: &str| within(server.umadb().head(with(authorization, HeadRequest {}))).await;
    head(&format!("Bearer {token}")).await.unwrap();
    head(&format!("bearer {token}")).await.unwrap();
    let unknown = (Code::Unauthenticated, ErrorType::Authentication);
    assert_eq!(refused(&within(server.umadb().head(HeadRequest {})).await.unwrap_err()), unknown);
    for wrong in [format!("Bearer {token}x"), token.clone(), "Digest x".to_owned(), "Basic ?".to_owned()] {
        assert_eq!(refused(&head(&wrong).await.unwrap_err()), unknown, "{wrong}");
    }
    let append = AppendRequest {
        events: vec![Event { event_type: "A".to_owned(), ..Event::default() }],
        ..AppendRequest::default()
    };
    let bearer = format!("Bearer {token}");
    for message in [append, AppendRequest::default()] {
        let status = within(server.umadb().append(with(&bearer, message))).await.unwrap_err();
        assert_eq!(refused(&status), (Code::PermissionDenied, ErrorType::Authentication));
    }
    let mut elsewhere = with(&bearer, HeadRequest {});
    elsewhere.metadata_mut().insert("x-store", "other".parse().unwrap());
    let status = within(server.umadb().head(elsewhere)).await.unwrap_err();
    assert_eq!(refused(&status), (Code::PermissionDenied, ErrorType::Authentication));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn password_authenticates() {
    let server = Server::start().await;
    let roles = BTreeMap::from([("*".to_owned(), [Right::Admin].into())]);
    let access = server.service.access();
    access.create_user(&Caller::everybody(), "ann", "correct horse", roles).await.unwrap();
    let head =
        async |authorization: &str| within(server.umadb().head(with(authorization, HeadRequest {}))).await;
    head("Basic YW5uOmNvcnJlY3QgaG9yc2U=").await.unwrap();
    let status = head("Basic YW5uOndyb25nIGhvcnNl").await.unwrap_err();
    assert_eq!(refused(&status), (Code::Unauthenticated, ErrorType::Authentication));
}

/// Creates a token with these rights on one store.
async fn token(server: &Server, store: &str, right: Right) -> String {
    let roles = BTreeMap::from([(store.to_owned(), [right].into())]);
    let created = server.service.access().create_token(&Caller::everybody(), store, roles, None).await;
    format!("Bearer {}", created.unwrap().1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d1_18_rights_are_those_on_the_store_of_the_port() {
    let server = Server::start().await;
    server.service.database().events("shop").unwrap().create().unwrap();
    let shop = server.port("shop").await;
    let (of_default, of_shop) =
        (token(&server, "default", Right::Read).await, token(&server, "shop", Right::Read).await);
    let (main, shop) = (server.umadb(), DcbClient::new(shop));
    let head = async |client: &DcbClient<Channel>, token: &str, store: Option<&'static str>| {
        let mut request = with(token, HeadRequest {});
        if let Some(store) = store {
            request.metadata_mut().insert("x-store", store.parse().unwrap());
        }
        within(client.clone().head(request)).await.map(drop).map_err(|status| status.code())
    };
    let denied = Err(Code::PermissionDenied);
    assert_eq!(head(&main, &of_default, None).await, Ok(()));
    assert_eq!(head(&shop, &of_default, None).await, denied);
    assert_eq!(head(&main, &of_shop, None).await, denied);
    assert_eq!(head(&shop, &of_shop, None).await, Ok(()));
    // The header overrides the port, and the right is checked on the header's store.
    assert_eq!(head(&shop, &of_default, Some("default")).await, Ok(()));
    assert_eq!(head(&shop, &of_shop, Some("default")).await, denied);
    assert_eq!(head(&main, &of_shop, Some("shop")).await, Ok(()));
}
