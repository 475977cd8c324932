//! Every row of the table of routes, requested by every caller of the matrix.

use std::collections::BTreeSet;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ropewalk_auth::{Caller, Operation, Resource, Right, Roles};
use ropewalk_http::HttpSettings;
use ropewalk_wire::ServiceSettings;
use serde_json::json;

use crate::client::Server;
use crate::console::FILES;
use crate::matrix::{self, Matrix, MatrixCaller, PASSWORD, STORE};

/// The path of a row, with names in the place of its parameters.
fn address(path: &str, caller: &MatrixCaller) -> String {
    // Users may change their own password; the other operations on users are about one who does not exist.
    let user = if path.ends_with("/password") { caller.name } else { "missing" };
    let names = [
        ("{store}", STORE),
        ("{database}", STORE),
        ("{project}", STORE),
        ("{user}", user),
        ("{right}", "read"),
        ("{*path}", "c/1"),
    ];
    let path = names.iter().fold(path.to_owned(), |path, (name, value)| path.replace(name, value));
    path.split('/').map(|part| if part.starts_with('{') { "x" } else { part }).collect::<Vec<_>>().join("/")
}

/// The status of a row's response to a caller. A rejected caller never sends the body that its headers
/// announce.
async fn status(server: &Server, operation: &Operation, caller: &MatrixCaller, is_allowed: bool) -> u16 {
    let (method, path) = operation.name.split_once(' ').unwrap();
    let credentials = format!("Basic {}", STANDARD.encode(format!("{}:{PASSWORD}", caller.name)));
    let mut headers = vec![("content-type", "application/json")];
    if caller.roles.is_some() {
        headers.push(("authorization", &credentials));
    }
    let has_body = ["POST", "PUT", "PATCH"].contains(&method);
    let (announced, body): (_, &[u8]) = if is_allowed { ("2", b"{}") } else { ("1000000", b"") };
    if has_body {
        headers.push(("content-length", announced));
    }
    server.status(method, &address(path, caller), &headers, if has_body { body } else { b"" }).await
}

#[tokio::test]
async fn every_route_is_rejected_exactly_without_its_rights() {
    let operations = ropewalk_http::operations();
    let heartbeat = Duration::from_millis(10);
    let http = HttpSettings { dev: true, heartbeat, console: FILES, ..HttpSettings::default() };
    let mut matrix = Matrix::new("http");
    for caller in matrix::callers() {
        let server = Server::with_settings(ServiceSettings::default(), http.clone()).await;
        matrix::create_users(server.service.access()).await;
        for operation in &operations {
            let is_allowed = caller.is_allowed(operation.needs);
            let status = status(&server, operation, &caller, is_allowed).await;
            matrix.note(&operation.name, &caller, is_allowed, ([401, 403].contains(&status), status));
        }
    }
    matrix.finish(operations.len());
}

/// Served by the crate of PostgreSQL's protocol; a test of the server compares their rows with the document.
const ELSEWHERE: [&str; 2] = ["POST /v1/sql", "DELETE /v1/sql/{id}"];

#[tokio::test]
async fn every_documented_operation_has_a_row_and_paths_have_no_other_methods() {
    let rows: Vec<String> = ropewalk_http::operations().into_iter().map(|row| row.name).collect();
    let document: serde_json::Value = serde_json::from_str(&ropewalk_http::openapi_json()).unwrap();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            let name = format!("{} {path}", method.to_uppercase());
            assert!(rows.contains(&name) || ELSEWHERE.contains(&name.as_str()), "{name}");
        }
    }
    let http = HttpSettings { dev: true, console: FILES, ..HttpSettings::default() };
    let server = Server::with_settings(ServiceSettings::default(), http).await;
    let caller = &matrix::callers()[0];
    for row in &rows {
        let path = row.split_once(' ').unwrap().1;
        for method in ["GET", "PUT", "POST", "PATCH", "DELETE"] {
            if !rows.contains(&format!("{method} {path}")) {
                let reply = server.request(method, &address(path, caller), &[], b"").await;
                assert_eq!(reply.status, 405, "{method} {path}");
            }
        }
    }
}

#[tokio::test]
async fn merge_into_another_database_requires_read_there() {
    let server = Server::start().await;
    server
        .post("/v1/databases/mine/collections/c/documents", json!({ "documents": [{ "_id": 1 }] }))
        .await
        .ok();
    let access = server.service.access();
    let both = BTreeSet::from([Right::Read, Right::Append]);
    for (name, rights) in [("writer", vec![Right::Append]), ("reader", vec![Right::Read, Right::Append])] {
        let target = BTreeSet::from_iter(rights);
        let roles = Roles::from([("mine".to_owned(), both.clone()), ("theirs".to_owned(), target)]);
        access.create_user(&Caller::everybody(), name, PASSWORD, roles).await.unwrap();
    }
    for (name, stage, status) in
        [("writer", "$out", 200), ("writer", "$merge", 403), ("reader", "$merge", 200)]
    {
        let into = json!({ "db": "theirs", "coll": "d" });
        let target = if stage == "$out" { into } else { json!({ "into": into }) };
        let body = json!({ "pipeline": [{ stage: target }] }).to_string();
        let credentials = format!("Basic {}", STANDARD.encode(format!("{name}:{PASSWORD}")));
        let headers = [("content-type", "application/json"), ("authorization", &credentials)];
        let path = "/v1/databases/mine/collections/c/documents:aggregate";
        let reply = server.request("POST", path, &headers, body.as_bytes()).await;
        assert_eq!(reply.status, status, "{name} {stage}: {}", reply.text());
    }
}

#[test]
fn public_operations_are_exactly_these() {
    let rows = ropewalk_http::operations().into_iter();
    let open: Vec<_> =
        rows.filter(|row| row.needs.resource == Resource::Public).map(|row| row.name).collect();
    let probes = ["GET /health", "GET /live", "GET /ready", "GET /openapi.json"];
    // With the secret that the nodes of a cluster share.
    let nodes = ["POST /v1/cluster/members"];
    let console = ["GET /", "GET /ui", "GET /ui/", "GET /ui/{*path}"];
    assert_eq!(open, [&probes[..], &nodes, &console].concat());
}
