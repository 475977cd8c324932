//! Backups over HTTP: inside one directory, for administrators of everything.

use ropewalk::Database;
use ropewalk_http::HttpSettings;
use ropewalk_wire::ServiceSettings;
use serde_json::json;

use crate::client::Server;

async fn server() -> Server {
    let settings = ServiceSettings { backups: Some("/backups".into()), ..ServiceSettings::default() };
    Server::with_settings(settings, HttpSettings::default()).await
}

/// The copy that lies in the server's memory.
fn copy(server: &Server, name: &str) -> Database {
    let env = server.service.database().engine().env().clone();
    ropewalk::Options::new().env(env).must_exist().open(format!("/backups/{name}")).unwrap()
}

#[tokio::test]
async fn backup_gets_a_generated_name_or_the_clients() {
    let server = server().await;
    server.append("s", json!([{ "type": "A" }])).await;
    let made = server.request("POST", "/v1/backups", &[], b"").await;
    assert_eq!(made.status, 201, "{}", made.text());
    let made = made.json();
    let name = made["name"].as_str().unwrap();
    assert!(name.len() == 33 && name.as_bytes()[15..17] == *b"Z-", "{name}");
    assert_eq!(made["seq"], server.service.database().seq().0);
    assert!(made["bytes"].as_u64() > Some(0) && made["files"].as_u64() > Some(1), "{made}");
    assert!(made["lsn"].as_u64() > Some(0) && made["linked_bytes"] == 0, "{made}");

    server.append("s", json!([{ "type": "B" }])).await;
    let named = server.request("PUT", "/v1/backups/nightly.1", &[], b"").await;
    assert_eq!((named.status, named.json()["name"].clone()), (201, json!("nightly.1")));
    for (name, events) in [(name, 1), ("nightly.1", 2)] {
        let copy = copy(&server, name);
        assert_eq!(copy.events("s").unwrap().head().unwrap().unwrap().0, events);
    }
    server.request("PUT", "/v1/backups/nightly.1", &[], b"").await.refused(409, "already_exists");
    let listed = server.get("/v1/backups").await.ok();
    assert_eq!(listed, json!({ "backups": [{ "name": "nightly.1" }, { "name": name }] }));
}

#[tokio::test]
async fn backup_names_cannot_leave_the_directory() {
    let server = server().await;
    for name in ["..", "%2e%2e", "a%2Fb", "%2Ftmp%2Fa", ".a", "a.partial", "a%00"] {
        let path = format!("/v1/backups/{name}");
        server.request("PUT", &path, &[], b"").await.refused(400, "invalid_argument");
    }
    server.request("POST", "/v1/backups", &[], b"{}").await.refused(400, "invalid_argument");
}

#[tokio::test]
async fn backups_without_a_directory_are_rejected() {
    assert_eq!(server().await.get("/v1/backups").await.ok(), json!({ "backups": [] }));
    let server = Server::start().await;
    server.get("/v1/backups").await.refused(400, "invalid_argument");
    let refused = server.request("POST", "/v1/backups", &[], b"").await;
    refused.refused(400, "invalid_argument");
    assert!(refused.detail().contains("`backups`"), "{}", refused.detail());
}

#[tokio::test]
async fn backup_requires_admin_on_all_stores() {
    let server = server().await;
    for (user, roles) in
        [("root", json!({ "*": ["admin"] })), ("ann", json!({ "s": ["admin"], "*": ["read"] }))]
    {
        let body = json!({ "password": "correct horse", "roles": roles }).to_string();
        // base64 of root:correct horse
        let login = ("authorization", "Basic cm9vdDpjb3JyZWN0IGhvcnNl");
        let headers = [("content-type", "application/json"), login];
        let headers = if user == "root" { &headers[..1] } else { &headers[..] };
        let made = server.request("PUT", &format!("/v1/users/{user}"), headers, body.as_bytes()).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
    server.request("POST", "/v1/backups", &[], b"").await.refused(401, "unauthenticated");
    // base64 of ann:correct horse
    let ann = [("authorization", "Basic YW5uOmNvcnJlY3QgaG9yc2U=")];
    server.request("POST", "/v1/backups", &ann, b"").await.refused(403, "permission_denied");
    let root = [("authorization", "Basic cm9vdDpjb3JyZWN0IGhvcnNl")];
    assert_eq!(server.request("POST", "/v1/backups", &root, b"").await.status, 201);
}
