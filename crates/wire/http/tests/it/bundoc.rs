//! The paths of Bundoc's server.

use serde_json::{Value, json};

use crate::client::{Reply, Server};

const ROOT: &str = "/v1/projects/p1/databases/(default)";

async fn send(server: &Server, method: &str, path: &str, body: Value) -> Reply {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let headers: &[(&str, &str)] =
        if body.is_empty() { &[] } else { &[("content-type", "application/json")] };
    server.request(method, &format!("{ROOT}/{path}"), headers, body.as_bytes()).await
}

#[tokio::test]
async fn documents_are_inserted_got_merged_and_deleted() {
    let server = Server::start().await;
    let made = send(&server, "POST", "documents/users", json!({ "_id": "u1", "name": "Ann", "n": 9 })).await;
    assert_eq!((made.status, made.json()), (201, json!({ "_id": "u1", "name": "Ann", "n": 9 })));
    send(&server, "POST", "documents/users", json!({ "_id": "u1" })).await.refused(409, "already_exists");
    send(&server, "POST", "documents/users", json!({ "_id": 1 })).await.refused(400, "invalid_argument");
    let given = send(&server, "POST", "documents/users", json!({ "name": "Bob" })).await.json();
    assert_eq!(given["_id"].as_str().unwrap().len(), 24);
    let merged = send(&server, "PATCH", "documents/users/u1", json!({ "n": 10, "x": null })).await;
    assert_eq!(merged.ok(), json!({ "n": 10, "x": null }));
    let got = send(&server, "GET", "documents/users/u1", Value::Null).await.ok();
    assert_eq!(got, json!({ "_id": "u1", "name": "Ann", "n": 10, "x": null }));
    assert_eq!(send(&server, "DELETE", "documents/users/u1", Value::Null).await.status, 204);
    for method in ["GET", "DELETE"] {
        send(&server, method, "documents/users/u1", Value::Null).await.refused(404, "not_found");
    }
    send(&server, "PATCH", "documents/users/u1", json!({ "n": 1 })).await.refused(404, "not_found");
    send(&server, "GET", "documents/nobody", Value::Null).await.refused(404, "not_found");
}

#[tokio::test]
async fn collections_hold_slashes_and_are_read_as_groups() {
    let server = Server::start().await;
    for (user, post, likes) in [("ann", "p1", 1), ("ann", "p2", 2), ("bob", "p3", 2)] {
        let path = format!("collections/users%2F{user}%2Fposts");
        assert_eq!(
            send(&server, "GET", &path, Value::Null).await.status,
            if post == "p2" { 200 } else { 404 }
        );
        let path = format!("documents/users/{user}/posts");
        let body = json!({ "_id": post, "likes": likes });
        assert_eq!(send(&server, "POST", &path, body).await.status, 201);
    }
    let got = send(&server, "GET", "documents/users/ann/posts/p2", Value::Null).await.ok();
    assert_eq!(got, json!({ "_id": "p2", "likes": 2 }));
    let list =
        send(&server, "GET", "documents/users/ann/posts?limit=1&skip=1&fields=likes", Value::Null).await;
    assert_eq!(list.ok(), json!({ "documents": [{ "likes": 2 }] }));
    let group = send(&server, "GET", "documents/users/*/posts?likes=2", Value::Null).await.ok();
    assert_eq!(group, json!({ "documents": [{ "_id": "p2", "likes": 2 }, { "_id": "p3", "likes": 2 }] }));
    let listed = send(&server, "GET", "collections?prefix=users/b", Value::Null).await.ok();
    assert_eq!(listed, json!({ "collections": ["users/bob/posts"] }));
}

#[tokio::test]
async fn queries_mean_what_they_say() {
    let server = Server::start().await;
    for n in 0..12 {
        send(&server, "POST", "documents/c", json!({ "_id": format!("d{n:02}"), "n": n })).await;
    }
    let query = |query: Value| {
        let server = &server;
        async move { send(server, "POST", "documents/query", query).await }
    };
    let found = query(
        json!({ "collection": "c", "query": { "n": { "$gte": 9 } }, "sortField": "n", "sortDesc": true, "limit": 2, "fields": ["n"] }),
    );
    // Ten is more than nine, as a number.
    assert_eq!(found.await.ok(), json!({ "documents": [{ "n": 11 }, { "n": 10 }] }));
    let found = query(json!({ "collection": "c", "query": { "n": { "$in": [3] } }, "fields": ["_id"] }));
    assert_eq!(found.await.ok(), json!({ "documents": [{ "_id": "d03" }] }));
    query(json!({ "collection": "none" })).await.refused(404, "not_found");
    query(json!({ "collection": "c", "sort": 1 })).await.refused(400, "invalid_argument");
}

#[tokio::test]
async fn schemas_references_rules_and_indexes() {
    let server = Server::start().await;
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "required": ["age"],
        "properties": {
            "age": { "type": "integer", "minimum": 0 },
            "boss": { "type": "string", "x-bundoc-ref": { "collection": "staff", "field": "_id", "on_delete": "restrict" } },
        },
    });
    let body = json!({ "name": "staff", "schema": schema, "prevent_schema_override": true });
    let made = send(&server, "POST", "collections", body.clone()).await;
    assert_eq!((made.status, &made.json()["name"]), (201, &json!("staff")));
    send(&server, "POST", "collections", body).await.refused(409, "already_exists");
    let insert = |document: Value| {
        let server = &server;
        async move { send(server, "POST", "documents/staff", document).await }
    };
    for bad in [json!({ "age": 1.5 }), json!({ "age": -1 }), json!({}), json!({ "age": 1, "boss": "nobody" })]
    {
        insert(bad).await.refused(422, "validation_failed");
    }
    assert_eq!(insert(json!({ "_id": "a", "age": 1 })).await.status, 201);
    assert_eq!(insert(json!({ "_id": "b", "age": 1, "boss": "a" })).await.status, 201);
    send(&server, "DELETE", "documents/staff/a", Value::Null).await.refused(422, "validation_failed");
    send(&server, "PATCH", "collections/staff", json!({ "schema": { "type": "object" } }))
        .await
        .refused(403, "permission_denied");
    let rules = json!({ "rules": { "read": "true" } });
    send(&server, "PATCH", "collections/staff/rules", rules).await.ok();
    let looked = send(&server, "GET", "collections/staff", Value::Null).await.ok();
    assert_eq!(
        (&looked["rules"], &looked["schema"]["required"]),
        (&json!({ "read": "true" }), &json!(["age"]))
    );

    let made = send(&server, "POST", "indexes", json!({ "collection": "staff", "field": "age" })).await;
    assert_eq!((made.status, made.json()), (201, json!({ "status": "index created", "field": "age" })));
    let listed = send(&server, "GET", "indexes?collection=staff", Value::Null).await.ok();
    assert_eq!(listed, json!({ "indexes": ["age"] }));
    assert_eq!(send(&server, "DELETE", "collections/staff/indexes/age", Value::Null).await.status, 204);
    send(&server, "DELETE", "indexes?collection=staff&field=age", Value::Null)
        .await
        .refused(404, "not_found");
    let group = send(&server, "POST", "indexes", json!({ "collection": "st*", "field": "age" })).await;
    assert_eq!((group.status, &group.json()["pattern"]), (201, &json!("st*")));
    assert_eq!(send(&server, "DELETE", "collections/staff", Value::Null).await.status, 204);
    send(&server, "DELETE", "collections/staff", Value::Null).await.refused(404, "not_found");
}
