//! Lists that are sorted by name come page by page.

use ropewalk_auth::{Caller, Right, Roles};
use ropewalk_sql::Session;
use serde_json::{Value, json};

use crate::client::Server;

/// The path of a list, its field, and the field that has the name of an entry; none: the entry is the name.
const LISTS: [(&str, &str, Option<&str>); 6] = [
    ("/v1/stores", "stores", Some("name")),
    ("/v1/stores/s/groups", "groups", Some("name")),
    ("/v1/stores/s/checkpoints", "checkpoints", Some("consumer")),
    ("/v1/stores/s/projections", "projections", Some("name")),
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
    let mut session = Session::new(server.service.database().clone());
    let mut declare = async |store: &str, name: &str| {
        session.execute(&format!("CREATE TABLE {name} (position bigint PRIMARY KEY)"), &[]).unwrap();
        let rule =
            format!(r#"{{"types":["A"],"statements":["INSERT INTO {name} VALUES (event.position)"]}}"#);
        put(format!("/v1/stores/{store}/projections/{name}"), &format!(r#"{{"on":[{rule}]}}"#)).await;
    };
    // Lists of one store do not have those of another.
    declare("other", "az").await;
    for name in ["a", "b", "bb", "c", "z", "s"] {
        if name != "s" {
            server.append(name, json!([{ "type": "A" }])).await;
            put(format!("/v1/databases/{name}/collections/c"), "{}").await;
        }
        declare("s", name).await;
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
    for path in ["/v1/users", "/v1/tokens", "/v1/stats", "/v1/stats/live"] {
        server.get(&format!("{path}?limit=0")).await.refused(400, "invalid_argument");
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
    for list in [LISTS[0], LISTS[4]] {
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

/// The pages of a list, of at most two entries each. `between` runs after each page.
async fn two_by_two(
    server: &Server,
    path: &str,
    authorization: &str,
    mut between: impl AsyncFnMut(&Value),
) -> Vec<Value> {
    let (mut pages, mut after) = (Vec::new(), String::new());
    loop {
        let path = format!("{path}?limit=2{after}");
        let header = [("authorization", authorization)];
        let headers = if authorization.is_empty() { &[][..] } else { &header };
        let page = server.request("GET", &path, headers, b"").await.ok();
        between(&page).await;
        let next = page.get("next").map(|next| next.as_str().unwrap().to_owned());
        pages.push(page);
        let Some(next) = next else { return pages };
        after = format!("&after={next}");
    }
}

fn entries<'p>(pages: &'p [Value], field: &str) -> Vec<&'p Value> {
    pages.iter().flat_map(|page| page[field].as_array().unwrap()).collect()
}

#[tokio::test]
async fn pages_of_users_and_tokens_continue_although_the_last_entry_was_dropped() {
    let server = Server::start().await;
    let (access, root) = (server.service.access(), Caller::everybody());
    let admin = Roles::from([("*".to_owned(), [Right::Admin].into())]);
    let (_, token) = access.create_token(&root, "t0", admin, None).await.unwrap();
    let authorization = format!("Bearer {token}");
    for name in ["d", "a", "c", "b"] {
        access.create_user(&root, name, "correct horse", Roles::new()).await.unwrap();
        access.create_token(&root, &format!("of-{name}"), Roles::new(), None).await.unwrap();
    }
    let users = two_by_two(&server, "/v1/users", &authorization, async |page| {
        if page["users"][1]["name"] == "b" {
            access.drop_user(&root, "b").await.unwrap();
        }
    });
    let users = users.await;
    let names: Vec<_> = entries(&users, "users").iter().map(|user| user["name"].as_str().unwrap()).collect();
    assert_eq!((names, users.len()), (vec!["a", "b", "c", "d"], 2));

    // Tokens come in the order of their creation.
    let tokens = two_by_two(&server, "/v1/tokens", &authorization, async |page| {
        if page["tokens"][1]["name"] == "of-d" {
            access.drop_token(&root, page["tokens"][1]["id"].as_str().unwrap()).await.unwrap();
        }
    });
    let tokens = tokens.await;
    let names: Vec<_> = entries(&tokens, "tokens").iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!((names, tokens.len()), (vec!["t0", "of-d", "of-a", "of-c", "of-b"], 3));
}

#[tokio::test]
async fn pages_of_keyspaces_have_every_one_once_with_its_number() {
    let server = Server::start().await;
    server.append("s", json!([{ "type": "A" }])).await;
    let pages = two_by_two(&server, "/v1/stats", "", async |_| {}).await;
    let listed: Vec<(String, u64)> = entries(&pages, "keyspaces")
        .iter()
        .map(|keyspace| (keyspace["name"].as_str().unwrap().to_owned(), keyspace["number"].as_u64().unwrap()))
        .collect();
    let defined = server.service.database().stats().store.keyspaces.into_iter().map(|keyspace| keyspace.name);
    let mut expected: Vec<(String, u64)> = defined.zip(0..).collect();
    expected.sort_unstable();
    assert!(expected.len() > 4, "{expected:?}");
    assert_eq!(listed, expected);
    let mut live = server.follow("/v1/stats/live?format=ndjson&limit=1", &[]).await;
    let line = live.line().await.unwrap();
    assert_eq!(
        (&line["keyspaces"][0]["name"], &line["next"]),
        (&json!(expected[0].0), &json!(expected[0].0))
    );
}

#[tokio::test]
async fn page_of_large_projections_ends_early() {
    let server = Server::start().await;
    let mut session = Session::new(server.service.database().clone());
    let headers = [("content-type", "application/json")];
    for name in ["a", "b", "c", "d", "e", "f", "g"] {
        session
            .execute(&format!("CREATE TABLE {name} (position bigint PRIMARY KEY, text text)"), &[])
            .unwrap();
        let statement = format!("INSERT INTO {name} VALUES (event.position, '{}')", "x".repeat(900_000));
        let body = json!({ "on": [{ "types": ["A"], "statements": [statement] }] }).to_string();
        let path = format!("/v1/stores/s/projections/{name}");
        assert_eq!(server.request("PUT", &path, &headers, body.as_bytes()).await.status, 201);
    }
    let first = server.get("/v1/stores/s/projections").await.ok();
    assert_eq!((first["projections"].as_array().unwrap().len(), &first["next"]), (5, &json!("e")));
    let last = server.get("/v1/stores/s/projections?after=e").await.ok();
    assert_eq!((last["projections"].as_array().unwrap().len(), last.get("next")), (2, None));
}
