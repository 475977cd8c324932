//! Sessions of browsers: cookies, write tokens, and how they end.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ropewalk_auth::{Caller, Right, Roles};
use ropewalk_http::{HttpSettings, SettingInForce};
use ropewalk_wire::Limits;
use serde_json::json;

use crate::client::{Reply, Server};

const EVENT: &[u8] = br#"{"events":[{"type":"A"}]}"#;

fn basic() -> String {
    format!("Basic {}", STANDARD.encode("ann:correct horse"))
}

async fn add_ann(server: &Server) {
    let roles = Roles::from([("s".to_owned(), [Right::Read, Right::Append].into())]);
    let access = server.service.access();
    access.create_user(&Caller::everybody(), "ann", "correct horse", roles).await.unwrap();
}

async fn closed() -> Server {
    let server = Server::start().await;
    add_ann(&server).await;
    server
}

/// Logs ann in; returns the cookie as a browser sends it, and the write token.
async fn begin(server: &Server) -> (String, String) {
    let reply = server.request("POST", "/v1/session", &[("authorization", &basic())], b"").await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    let cookie = reply.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    (cookie, reply.json()["write_token"].as_str().unwrap().to_owned())
}

async fn append(server: &Server, headers: &[(&str, &str)]) -> Reply {
    let mut all = vec![("content-type", "application/json")];
    all.extend_from_slice(headers);
    server.request("POST", "/v1/stores/s/events", &all, EVENT).await
}

#[tokio::test]
async fn session_cookie_replaces_credentials_and_is_out_of_reach_of_scripts_and_other_sites() {
    let server = closed().await;
    let reply = server.request("POST", "/v1/session", &[("authorization", &basic())], b"").await;
    let set = reply.header("set-cookie").unwrap();
    assert!(
        set.starts_with("ropewalk_session=") && set.ends_with("; Path=/; HttpOnly; SameSite=Strict"),
        "{set}"
    );
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    let (cookie, token) = begin(&server).await;
    let session = server.request("GET", "/v1/session", &[("cookie", &cookie)], b"").await.ok();
    assert_eq!((&session["name"], &session["kind"]), (&json!("ann"), &json!("user")));
    assert_eq!(session["roles"], json!({ "s": ["read", "append"] }));
    assert_eq!(session["write_token"], token);
    server.request("GET", "/v1/stores", &[("cookie", &cookie)], b"").await.ok();
    server.get("/v1/stores").await.refused(401, "unauthenticated");
    let with_header = server.request("GET", "/v1/session", &[("authorization", &basic())], b"").await.ok();
    assert_eq!(with_header.get("write_token"), None);
}

#[tokio::test]
async fn write_by_cookie_needs_the_write_token_of_its_session() {
    let server = closed().await;
    let (cookie, token) = begin(&server).await;
    let (_, other) = begin(&server).await;
    append(&server, &[("cookie", &cookie), ("x-write-token", &token)]).await.ok();
    append(&server, &[("cookie", &cookie)]).await.refused(403, "write_token_needed");
    append(&server, &[("cookie", &cookie), ("x-write-token", &other)])
        .await
        .refused(403, "write_token_needed");
    // Credentials in a header are sent by our caller itself, never added by a browser.
    append(&server, &[("authorization", &basic())]).await.ok();
    let count = server.request("GET", "/v1/stores/s/events:count", &[("cookie", &cookie)], b"").await.ok();
    assert_eq!(count["count"], 2);
}

#[tokio::test]
async fn ended_session_is_not_accepted() {
    let server = closed().await;
    let (cookie, token) = begin(&server).await;
    server
        .request("DELETE", "/v1/session", &[("cookie", &cookie)], b"")
        .await
        .refused(403, "write_token_needed");
    let headers = [("cookie", cookie.as_str()), ("x-write-token", &token)];
    let ended = server.request("DELETE", "/v1/session", &headers, b"").await;
    assert_eq!(ended.status, 204);
    assert!(ended.header("set-cookie").unwrap().ends_with("; Max-Age=0"));
    server.request("GET", "/v1/stores", &[("cookie", &cookie)], b"").await.refused(401, "unauthenticated");
}

#[tokio::test]
async fn session_is_not_begun_by_another_session_and_replaces_that_of_its_cookie() {
    let server = closed().await;
    let (cookie, token) = begin(&server).await;
    let headers = [("cookie", cookie.as_str()), ("x-write-token", &token)];
    server.request("POST", "/v1/session", &headers, b"").await.refused(400, "invalid_argument");
    server.request("GET", "/v1/stores", &[("cookie", &cookie)], b"").await.ok();
    let basic = basic();
    let headers = [("cookie", cookie.as_str()), ("authorization", &basic)];
    assert_eq!(server.request("POST", "/v1/session", &headers, b"").await.status, 201);
    server.request("GET", "/v1/stores", &[("cookie", &cookie)], b"").await.refused(401, "unauthenticated");
}

#[tokio::test]
async fn response_by_cookie_is_not_stored_by_caches() {
    let server = closed().await;
    let (cookie, _) = begin(&server).await;
    let by_cookie = server.request("GET", "/v1/stores", &[("cookie", &cookie)], b"").await;
    assert_eq!(by_cookie.header("cache-control"), Some("no-store"));
    let by_header = server.request("GET", "/v1/stores", &[("authorization", &basic())], b"").await;
    assert_eq!(by_header.header("cache-control"), None);
}

#[tokio::test]
async fn open_server_has_a_caller_and_no_sessions() {
    let server = Server::start().await;
    let caller = server.get("/v1/session").await.ok();
    assert_eq!((&caller["kind"], &caller["roles"]), (&json!("anonymous"), &json!({ "*": ["admin"] })));
    server.request("POST", "/v1/session", &[], b"").await.refused(400, "invalid_argument");
    // A cookie of another server on this host changes nothing.
    server.request("GET", "/v1/session", &[("cookie", "ropewalk_session=x")], b"").await.ok();
}

#[tokio::test]
async fn cookie_is_secure_with_tls_and_scripts_get_no_login_dialog() {
    let settings = HttpSettings { secure_cookies: true, ..HttpSettings::default() };
    let server = Server::with(Limits::default(), settings).await;
    add_ann(&server).await;
    let reply = server.request("POST", "/v1/session", &[("authorization", &basic())], b"").await;
    assert!(reply.header("set-cookie").unwrap().contains("; Secure"));
    let reply = server.request("GET", "/v1/session", &[("x-requested-with", "console")], b"").await;
    reply.refused(401, "unauthenticated");
    assert_eq!(reply.header("www-authenticate"), Some("Bearer realm=\"ropewalk\""));
    assert!(server.get("/v1/session").await.header("www-authenticate").unwrap().starts_with("Basic"));
}

#[tokio::test]
async fn settings_in_force_are_listed_with_their_origin() {
    let setting = |name: &str, value: &str, origin: &str| SettingInForce {
        name: name.to_owned(),
        value: value.to_owned(),
        origin: origin.to_owned(),
    };
    let in_force = vec![setting("memory", "1GiB", "ROPEWALK_MEMORY"), setting("dev", "false", "default")];
    let server = Server::with(Limits::default(), HttpSettings { in_force, ..HttpSettings::default() }).await;
    let expected = json!({ "settings": [
        { "name": "memory", "value": "1GiB", "origin": "ROPEWALK_MEMORY" },
        { "name": "dev", "value": "false", "origin": "default" },
    ] });
    assert_eq!(server.get("/v1/settings").await.ok(), expected);
}
