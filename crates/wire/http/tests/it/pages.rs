//! Lists that are sorted by name come page by page.

use ropewalk_auth::{Caller, Right, Roles};
use serde_json::{Value, json};

use crate::client::Server;

/// The path of a list, its field, and the field that has the name of an entry; none: the entry is the name.
const LISTS: [(&str, &str, Option<&str>); 5] = [
    ("/v1/stores", "stores", Some("name")),
    ("/v1/stores/s/groups", "groups", Some("name")),
    ("/v1/stores/s/checkpoints", "checkpoints", Some("consumer")),
    ("/v1/databases", "databases", None),
    ("/v1/databases/s/collections", "collections", Some("name")),
];

/// A server on which each list has the names `a`, `b`, `bb`, `c`, `s` and `z`.
async fn filled() -> Server {
    let server = Server::start().await;
    server.request("DELETE", "/v1/stores/default", &[], b"").await;
    let headers = [("content-type", "application/json")];
    let put = async |path: String, body: &str| {
        let done = server.request("PUT", &path, &headers, body.as_bytes()).await;
        assert!(matches!(done.status, 200 | 201), "{path}: {}", done.text());
    };
    server.append("s", json!([{ "type": "A" }])).await;
    for name in ["a", "b", "bb", "c", "z", "s"] {
        if name != "s" {
            server.append(name, json!([{ "type": "A" }])).await;
            put(format!("/v1/databases/{name}/collections/c"), "{}").await;
        }
        put(format!("/v1/stores/s/groups/{name}"), "{}").await;
        put(format!("/v1/stores/s/checkpoints/{name}"), r#"{"position":1}"#).await;
        put(format!("/v1/databases/s/collections/{name}"), "{}").await;
    }
    server
}

fn names(page: &Value, (_, field, name): (&str, &str, Option<&str>)) -> Vec<String> {
    let entries = page[field].as_array().unwrap().iter();
    let names = entries.map(|entry| name.map_or(entry, |name| &entry[name]));
    names.map(|name| name.as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn pages_of_each_list_have_every_name_once() {
    let server = filled().await;
    let expected = ["a", "b", "bb", "c", "s", "z"];
    for list in LISTS {
        let path = list.0;
        let whole = server.get(path).await.ok();
        assert_eq!(
            (names(&whole, list), whole.get("next")),
            (expected.map(str::to_owned).to_vec(), None),
            "{path}"
        );
        let (mut seen, mut after) = (Vec::new(), String::new());
        loop {
            let page = server.get(&format!("{path}?limit=2{after}")).await.ok();
            assert_eq!(names(&page, list).len(), 2, "{path}: {page}");
            seen.extend(names(&page, list));
            let Some(next) = page.get("next") else { break };
            after = format!("&after={}", next.as_str().unwrap());
        }
        assert_eq!(seen, expected, "{path}");
        let later = server.get(&format!("{path}?after=bc&limit=5000")).await.ok();
        assert_eq!(names(&later, list), ["c", "s", "z"], "{path}: the name need not exist");
    }
}

#[tokio::test]
async fn pages_after_no_name_or_without_entries_are_rejected() {
    let server = filled().await;
    let long = format!("after={}", "x".repeat(256));
    for (path, ..) in LISTS {
        for invalid in
            ["after=", "after=%00", long.as_str(), "limit=0", "limit=-1", "limit=2&limit=2", "page=2"]
        {
            server.get(&format!("{path}?{invalid}")).await.refused(400, "invalid_argument");
        }
    }
    server.get("/v1/stores/s/projections/p/parked?after=x").await.refused(400, "invalid_argument");
}

#[tokio::test]
async fn pages_count_only_what_the_caller_may_read() {
    let server = filled().await;
    let roles = ["b", "z"].map(|name| (name.to_owned(), [Right::Read].into()));
    let access = server.service.access();
    let (_, token) = access.create_token(&Caller::everybody(), "t", Roles::from(roles), None).await.unwrap();
    let bearer = format!("Bearer {token}");
    for list in [LISTS[0], LISTS[3]] {
        let page = async |query: &str| {
            let path = format!("{}?{query}", list.0);
            server.request("GET", &path, &[("authorization", &bearer)], b"").await.ok()
        };
        let first = page("limit=1").await;
        assert_eq!((names(&first, list), &first["next"]), (vec!["b".to_owned()], &json!("b")));
        let second = page("limit=1&after=b").await;
        assert_eq!((names(&second, list), second.get("next")), (vec!["z".to_owned()], None));
    }
}
