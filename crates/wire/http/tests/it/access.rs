//! Authentication over HTTP. `ropewalk-auth` documents users and tokens; here is how HTTP carries them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ropewalk_auth::{Caller, Right, Roles};
use serde_json::json;

use crate::client::{Reply, Server};

/// A server with a user who reads store `s`, and a token that may append there.
async fn closed() -> (Server, String) {
    let server = Server::start().await;
    server.append("s", json!([{ "type": "A" }])).await;
    let (access, admin) = (server.service.access(), Caller::everybody());
    let roles = |right| Roles::from([("s".to_owned(), [right].into())]);
    access.create_user(&admin, "ann", "correct horse", roles(Right::Read)).await.unwrap();
    let (_, token) = access.create_token(&admin, "writer", roles(Right::Append), None).await.unwrap();
    (server, token)
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

async fn get(server: &Server, path: &str, authorization: &str) -> Reply {
    server.request("GET", path, &[("authorization", authorization)], b"").await
}

async fn append(server: &Server, authorization: &str) -> Reply {
    let headers = [("content-type", "application/json"), ("authorization", authorization)];
    server.request("POST", "/v1/stores/s/events", &headers, br#"{"events":[{"type":"A"}]}"#).await
}

#[tokio::test]
async fn users_and_tokens_have_the_rights_of_their_roles() {
    let (server, token) = closed().await;
    let (ann, token) = (basic("ann", "correct horse"), format!("Bearer {token}"));
    get(&server, "/v1/stores/s/head", &ann).await.ok();
    append(&server, &ann).await.refused(403, "permission_denied");
    append(&server, &token).await.ok();
    get(&server, "/v1/stores/s/head", &token).await.refused(403, "permission_denied");
    get(&server, "/v1/stores/s/subscribe", &token).await.refused(403, "permission_denied");
    get(&server, "/v1/stores/other/head", &ann).await.refused(403, "permission_denied");
    get(&server, "/v1/stats", &ann).await.refused(403, "permission_denied");
    server
        .request("DELETE", "/v1/stores/s", &[("authorization", &ann)], b"")
        .await
        .refused(403, "permission_denied");
    let listed = get(&server, "/v1/stores", &ann).await.ok();
    assert_eq!(listed["stores"].as_array().unwrap().len(), 1);
    // The compatible interfaces do not bypass authentication.
    server.get("/read?query=%7B%7D").await.refused(401, "unauthenticated");
    get(&server, "/read?query=%7B%7D", &ann).await.refused(403, "permission_denied");
    server.post("/append", json!({ "events": { "type": "A" } })).await.refused(401, "unauthenticated");
}

#[tokio::test]
async fn invalid_credentials_are_rejected() {
    let (server, token) = closed().await;
    let wrong = [
        "Digest x",
        "Basic !",
        "Basic YW5u",
        "Bearer rw_unknown",
        "Bearer",
        &token,
        "",
        &basic("ann", "x"),
        &basic("eve", "x"),
    ];
    for value in wrong {
        let reply = get(&server, "/v1/stores", value).await;
        reply.refused(401, "unauthenticated");
        let ways = || reply.headers.iter().filter(|(name, _)| name == "www-authenticate").map(|(_, way)| way);
        assert!(ways().any(|way| way.starts_with("Basic ")) && ways().any(|way| way.starts_with("Bearer")));
    }
    server.get("/v1/stores").await.refused(401, "unauthenticated");
    server.get("/v1/nothing").await.refused(401, "unauthenticated");
    let twice = [("authorization", "Bearer a"), ("authorization", "Bearer b")];
    server.request("GET", "/v1/stores", &twice, b"").await.refused(401, "unauthenticated");
    // Probes say that the process lives, to any client.
    for path in ["/health", "/ready", "/openapi.json"] {
        assert_eq!(get(&server, path, "Bearer rw_unknown").await.status, 200);
    }
}

#[tokio::test]
async fn password_guessing_is_throttled_by_peer_address_not_by_header() {
    let (server, _) = closed().await;
    let mut statuses = Vec::new();
    for n in 0..50 {
        let guess = basic("ann", "wrong");
        let forwarded = format!("10.0.0.{n}");
        let headers =
            [("authorization", guess.as_str()), ("x-forwarded-for", &forwarded), ("forwarded", &forwarded)];
        let reply = server.request("GET", "/v1/stores", &headers, b"").await;
        statuses.push(reply.status);
        if reply.status == 429 {
            assert!(reply.header("retry-after").is_some());
            break;
        }
    }
    assert_eq!(statuses.last(), Some(&429), "{statuses:?}");
}

#[tokio::test]
async fn h5_rights_are_checked_before_a_body_is_read() {
    let (server, _) = closed().await;
    let access = server.service.access();
    access.create_user(&Caller::everybody(), "roleless", "correct horse", Roles::new()).await.unwrap();
    let (roleless, ann) = (basic("roleless", "correct horse"), basic("ann", "correct horse"));
    // The body of 16 MiB is announced and never sent.
    let announced = |path: &str, authorization: &str| {
        let method = if path.ends_with("/password") { "PUT" } else { "POST" };
        format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: {authorization}\r\n\
             content-type: application/json\r\ncontent-length: 16000000\r\n\r\n"
        )
    };
    for (path, who) in [
        ("/v1/stores/s/events", &roleless),
        ("/v1/stores/other/events", &ann),
        ("/v1/databases/shop/transaction", &ann),
        ("/v1/stores/s/events", &ann),
        ("/v1/tokens", &ann),
        ("/v1/tokens", &roleless),
    ] {
        server.raw(announced(path, who).as_bytes()).await.refused(403, "permission_denied");
    }
    let password = announced("/v1/users/roleless/password", &roleless);
    server.raw(password.as_bytes()).await.refused(413, "too_large");
}
