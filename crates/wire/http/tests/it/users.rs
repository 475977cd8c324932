//! Users and tokens over HTTP.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::client::{Reply, Server};

async fn call(server: &Server, method: &str, path: &str, login: &str, body: Value) -> Reply {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let mut headers = vec![("content-type", "application/json")];
    if !login.is_empty() {
        headers.push(("authorization", login));
    }
    server.request(method, path, &headers, body.as_bytes()).await
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

#[tokio::test]
async fn first_user_ends_anonymous_access() {
    let server = Server::start().await;
    let root = json!({ "password": "correct horse", "roles": { "*": ["admin"] } });
    assert_eq!(call(&server, "PUT", "/v1/users/root", "", root.clone()).await.status, 201);
    call(&server, "PUT", "/v1/users/eve", "", root.clone()).await.refused(401, "unauthenticated");
    let login = basic("root", "correct horse");
    call(&server, "PUT", "/v1/users/root", &login, root).await.refused(409, "already_exists");

    let ann = json!({ "password": "battery staple", "roles": { "s": ["append"] } });
    assert_eq!(call(&server, "PUT", "/v1/users/ann", &login, ann).await.status, 201);
    let listed = call(&server, "GET", "/v1/users", &login, Value::Null).await;
    assert!(!listed.text().contains("battery") && !listed.text().contains("scram"));
    let listed = listed.ok();
    assert_eq!(listed["users"][0]["name"], "ann");
    assert_eq!(listed["users"][0]["roles"], json!({ "s": ["append"] }));
    assert!(listed["users"][0]["created_at"].as_str().unwrap().ends_with('Z'));

    let her = basic("ann", "battery staple");
    call(&server, "POST", "/v1/stores/s/events", &her, json!({ "events": [{ "type": "A" }] })).await.ok();
    call(&server, "GET", "/v1/stores/s/head", &her, Value::Null).await.refused(403, "permission_denied");
    for path in ["/v1/users", "/v1/tokens"] {
        call(&server, "GET", path, &her, Value::Null).await.refused(403, "permission_denied");
    }
    assert_eq!(call(&server, "PUT", "/v1/users/ann/roles/s/read", &login, Value::Null).await.status, 204);
    call(&server, "GET", "/v1/stores/s/head", &her, Value::Null).await.ok();
    assert_eq!(call(&server, "DELETE", "/v1/users/ann/roles/s/read", &login, Value::Null).await.status, 204);
    call(&server, "GET", "/v1/stores/s/head", &her, Value::Null).await.refused(403, "permission_denied");
    call(&server, "PUT", "/v1/users/ann/roles/s/write", &login, Value::Null)
        .await
        .refused(400, "invalid_argument");

    let password = json!({ "password": "another one" });
    assert_eq!(call(&server, "PUT", "/v1/users/ann/password", &her, password).await.status, 204);
    call(&server, "GET", "/v1/stores", &her, Value::Null).await.refused(401, "unauthenticated");
    let her = basic("ann", "another one");
    call(&server, "GET", "/v1/stores", &her, Value::Null).await.ok();
    call(&server, "PUT", "/v1/users/root/password", &her, json!({ "password": "x" }))
        .await
        .refused(403, "permission_denied");

    assert_eq!(call(&server, "DELETE", "/v1/users/ann", &login, Value::Null).await.status, 204);
    call(&server, "DELETE", "/v1/users/ann", &login, Value::Null).await.refused(404, "not_found");
    call(&server, "GET", "/v1/stores", &her, Value::Null).await.refused(401, "unauthenticated");
}

#[tokio::test]
async fn tokens_are_returned_once() {
    let server = Server::start().await;
    let chief = json!({ "name": "chief", "roles": { "*": ["admin"] } });
    let created = call(&server, "POST", "/v1/tokens", "", chief).await;
    assert_eq!(created.status, 201);
    let token = created.json()["token"].as_str().unwrap().to_owned();
    let login = format!("Bearer {token}");
    let short = json!({ "name": "short", "roles": { "s": ["read"] }, "expires_in_seconds": 3600 });
    let id =
        call(&server, "POST", "/v1/tokens", &login, short).await.json()["id"].as_str().unwrap().to_owned();
    let listed = call(&server, "GET", "/v1/tokens", &login, Value::Null).await;
    assert!(!listed.text().contains(&token));
    let listed = listed.ok();
    let names: Vec<&Value> =
        listed["tokens"].as_array().unwrap().iter().map(|token| &token["name"]).collect();
    assert_eq!(names, ["chief", "short"]);
    assert_eq!(listed["tokens"][0]["expires_at"], Value::Null);
    assert!(
        listed["tokens"][1]["expires_at"].as_str().unwrap()
            > listed["tokens"][1]["created_at"].as_str().unwrap()
    );
    assert_eq!(call(&server, "DELETE", &format!("/v1/tokens/{id}"), &login, Value::Null).await.status, 204);
    call(&server, "DELETE", &format!("/v1/tokens/{id}"), &login, Value::Null).await.refused(404, "not_found");
    let typo = json!({ "name": "x", "roles": {}, "expires": 1 });
    call(&server, "POST", "/v1/tokens", &login, typo).await.refused(400, "invalid_argument");
    let expired = json!({ "name": "x", "roles": {}, "expires_in_seconds": 0 });
    call(&server, "POST", "/v1/tokens", &login, expired).await.refused(400, "invalid_argument");
}
