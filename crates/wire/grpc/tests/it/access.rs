//! Keys, passwords and rights.

use std::collections::BTreeMap;

use prost::Message;
use ropewalk_grpc::proto::umadb::v1::error_response::ErrorType;
use ropewalk_grpc::proto::umadb::v1::{AppendRequest, ErrorResponse, Event, HeadRequest};
use ropewalk_wire::{Caller, Right};
use tonic::{Code, Request, Status};

use crate::{Server, within};

/// Makes a token that may read the store `default`; from then on the server wants to know who asks.
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
async fn a_token_opens_what_it_is_for() {
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
async fn a_password_works_as_well() {
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
