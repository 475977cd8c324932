//! Documents in Extended JSON: by `_id`, by query, in transactions, and their change streams.

use ropewalk::documents::View;
use ropewalk::documents::lang::{self, Writer};
use ropewalk_auth::{Caller, Right, Roles};
use serde_json::{Value, json};

use crate::client::{Reply, Server};

const JSON: (&str, &str) = ("content-type", "application/json");
const PEOPLE: &str = "/v1/databases/shop/collections/people";

async fn people() -> Server {
    let server = Server::start().await;
    let documents = json!([
        { "_id": "ann", "age": 41, "city": "Oslo", "tags": ["a", "b"] },
        { "_id": "bob", "age": 17, "city": "Bergen" },
        { "_id": "cleo", "age": 29, "city": "Oslo", "tags": ["b"] },
    ]);
    let inserted = server.post(&format!("{PEOPLE}/documents"), json!({ "documents": documents })).await;
    assert_eq!(inserted.ok(), json!({ "ids": ["ann", "bob", "cleo"] }));
    server
}

async fn send(server: &Server, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
    server.request(method, path, &[&[JSON], headers].concat(), body.as_bytes()).await
}

async fn ids(server: &Server, query: Value) -> Vec<String> {
    let found = server.post(&format!("{PEOPLE}/documents:query"), query).await.ok();
    let documents = found["documents"].as_array().unwrap().iter();
    documents.map(|document| document["_id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn document_preserves_types_and_field_order() {
    let server = Server::start().await;
    let text = r#"{"z":1,"l":9007199254740993,"d":2.0,"at":{"$date":"2026-11-22T00:00:00Z"},"a":{"y":[1,null,true],"b":{"$numberDecimal":"1.50"}}}"#;
    let path = format!("{PEOPLE}/documents/ann");
    let put = send(&server, "PUT", &path, &[], text).await;
    let stored = format!("{{\"_id\":\"ann\",{}", &text[1..]);
    assert_eq!((put.status, put.text()), (201, stored.as_str()));
    let got = server.get(&path).await;
    assert_eq!((got.status, got.text()), (200, stored.as_str()));
    let canonical = server.get(&format!("{path}?canonical=true")).await;
    assert!(canonical.text().contains(r#""z":{"$numberInt":"1"}"#), "{}", canonical.text());
    // Any type may be an `_id`.
    let inserted = server.post(&format!("{PEOPLE}/documents"), r#"{"documents":[{"n":1},{"_id":7}]}"#).await;
    let inserted = inserted.ok();
    let oid = inserted["ids"][0]["$oid"].as_str().unwrap();
    assert_eq!(server.get(&format!("{PEOPLE}/documents/{oid}?id=oid")).await.ok()["n"], 1);
    assert_eq!(server.get(&format!("{PEOPLE}/documents/7?id=json")).await.ok(), json!({ "_id": 7 }));
    server.get(&format!("{PEOPLE}/documents/7")).await.refused(404, "not_found");
    server.get(&format!("{PEOPLE}/documents/7?id=int")).await.refused(400, "invalid_argument");
}

#[tokio::test]
async fn etags_prevent_lost_updates() {
    let server = people().await;
    let path = format!("{PEOPLE}/documents/ann");
    let first = server.get(&path).await;
    let tag = first.header("etag").unwrap().to_owned();
    let unchanged = server.request("GET", &path, &[("if-none-match", &tag)], b"").await;
    assert_eq!((unchanged.status, unchanged.body.len()), (304, 0));
    let changed = send(&server, "PATCH", &path, &[("if-match", &tag)], r#"{"$inc":{"age":1}}"#).await;
    let new = changed.header("etag").unwrap().to_owned();
    assert_eq!(changed.ok()["age"], 42);
    assert_ne!(new, tag);
    for (method, body) in [("PATCH", r#"{"$inc":{"age":1}}"#), ("PUT", "{}"), ("DELETE", "")] {
        let headers: &[(&str, &str)] = if body.is_empty() { &[] } else { &[JSON] };
        let headers = [headers, &[("if-match", &tag)]].concat();
        server.request(method, &path, &headers, body.as_bytes()).await.refused(412, "precondition_failed");
    }
    send(&server, "PUT", &path, &[("if-none-match", "*")], "{}").await.refused(412, "precondition_failed");
    let replaced = send(&server, "PUT", &path, &[("if-match", &new)], r#"{"age":1}"#).await;
    assert_eq!(replaced.ok(), json!({ "_id": "ann", "age": 1 }));
    assert_eq!(server.request("DELETE", &path, &[("if-match", "*")], b"").await.status, 204);
    server.request("DELETE", &path, &[], b"").await.refused(404, "not_found");
    send(&server, "PATCH", &path, &[], r#"{"$inc":{"age":1}}"#).await.refused(404, "not_found");
    send(&server, "PUT", &path, &[("if-match", "*")], "{}").await.refused(412, "precondition_failed");
    send(&server, "PATCH", &format!("{PEOPLE}/documents/bob"), &[], r#"{"age":1}"#)
        .await
        .refused(400, "invalid_argument");
    send(&server, "PUT", &format!("{PEOPLE}/documents/bob"), &[], r#"{"_id":"eve"}"#)
        .await
        .refused(400, "invalid_argument");
}

#[tokio::test]
async fn queries_by_address_and_by_body() {
    let server = people().await;
    assert_eq!(
        ids(&server, json!({ "filter": { "age": { "$gte": 18 } }, "sort": { "age": -1 } })).await,
        ["ann", "cleo"]
    );
    assert_eq!(ids(&server, json!({ "sort": { "_id": 1 }, "skip": 1, "limit": 1 })).await, ["bob"]);
    let address = format!(
        "{PEOPLE}/documents?filter=%7B%22city%22:%22Oslo%22%7D&projection=%7B%22_id%22:1%7D&sort=%7B%22_id%22:-1%7D"
    );
    let listed = server.get(&address).await;
    assert_eq!(listed.text(), r#"{"documents":[{"_id":"cleo"},{"_id":"ann"}]}"#);
    let lines = server.request("GET", &address, &[("accept", "application/x-ndjson")], b"").await;
    assert_eq!(lines.text(), "{\"_id\":\"cleo\"}\n{\"_id\":\"ann\"}\n");
    let ask = |what: &str, body: Value| {
        let path = format!("{PEOPLE}/documents:{what}");
        let server = &server;
        async move { server.post(&path, body).await.ok() }
    };
    assert_eq!(ask("count", json!({ "filter": { "city": "Oslo" } })).await, json!({ "count": 2 }));
    assert_eq!(ask("distinct", json!({ "field": "tags" })).await, json!({ "values": ["a", "b"] }));
    let stages = json!([{ "$group": { "_id": "$city", "n": { "$sum": 1 } } }, { "$sort": { "_id": 1 } }]);
    assert_eq!(
        ask("aggregate", json!({ "pipeline": stages })).await,
        json!({ "documents": [{ "_id": "Bergen", "n": 1 }, { "_id": "Oslo", "n": 2 }] })
    );
    let out = json!({ "pipeline": [{ "$match": { "city": "Oslo" } }, { "$out": "oslo" }] });
    assert_eq!(ask("aggregate", out).await, json!({ "documents": [] }));
    assert_eq!(server.get("/v1/databases/shop/collections/oslo").await.ok()["documents"], 2);
    let plan = ask("explain", json!({ "filter": { "_id": "ann" } })).await;
    assert_eq!(plan["executionStats"]["nReturned"], 1);
    server.get("/v1/databases/shop/collections/none/documents").await.refused(404, "not_found");
}

#[tokio::test]
async fn a_large_result_is_a_stream_and_complete() {
    let server = Server::start().await;
    let documents: Vec<Value> = (0..5_000).map(|n| json!({ "_id": n, "pad": "x".repeat(100) })).collect();
    server.post(&format!("{PEOPLE}/documents"), json!({ "documents": documents })).await.ok();
    let found = server.get(&format!("{PEOPLE}/documents")).await.ok();
    assert_eq!(found["documents"].as_array().unwrap().as_slice(), documents);
}

#[tokio::test]
async fn updates_and_deletions_of_one_and_of_many() {
    let server = people().await;
    let ask = |what: &str, body: Value| {
        let path = format!("{PEOPLE}/documents:{what}");
        let server = &server;
        async move { server.post(&path, body).await }
    };
    let grow = |many: bool| json!({ "filter": { "city": "Oslo" }, "update": { "$inc": { "age": 1 } }, "many": many });
    assert_eq!(
        ask("update", grow(true)).await.ok(),
        json!({ "matched": 2, "modified": 2, "upserted": null })
    );
    let one = json!({ "filter": {}, "sort": { "age": -1 }, "update": [{ "$set": { "old": true } }] });
    assert_eq!(ask("update", one).await.ok()["modified"], 1);
    assert_eq!(ids(&server, json!({ "filter": { "old": true } })).await, ["ann"]);
    let put = json!({ "filter": { "_id": "dan" }, "update": { "age": 3 }, "upsert": true });
    assert_eq!(ask("update", put).await.ok()["upserted"], "dan");
    let filters = json!({ "filter": { "_id": "ann" }, "update": { "$set": { "tags.$[t]": "c" } }, "array_filters": [{ "t": "a" }] });
    assert_eq!(ask("update", filters).await.ok()["modified"], 1);
    let take = json!({ "filter": {}, "sort": { "age": 1 }, "delete": true, "projection": { "age": 1 } });
    assert_eq!(ask("modify", take).await.ok(), json!({ "document": { "_id": "dan", "age": 3 } }));
    let change = json!({ "filter": { "_id": "bob" }, "update": { "$inc": { "age": 1 } }, "after": true, "projection": { "age": 1 } });
    assert_eq!(ask("modify", change).await.ok(), json!({ "document": { "_id": "bob", "age": 18 } }));
    assert_eq!(ask("delete", json!({ "filter": { "city": "Oslo" } })).await.ok(), json!({ "deleted": 1 }));
    assert_eq!(ask("delete", json!({ "filter": {}, "many": true })).await.ok(), json!({ "deleted": 2 }));
    ask("modify", json!({ "filter": {} })).await.refused(400, "invalid_argument");
    ask("modify", json!({ "filter": {}, "delete": true, "upsert": true }))
        .await
        .refused(400, "invalid_argument");
}

#[tokio::test]
async fn inserts_are_atomic_and_report_the_conflict() {
    let server = people().await;
    let refused = server
        .post(&format!("{PEOPLE}/documents"), json!({ "documents": [{ "_id": "eve" }, { "_id": "ann" }] }))
        .await;
    refused.refused(409, "already_exists");
    assert!(refused.detail().starts_with("documents[1]: duplicate key"), "{}", refused.detail());
    server.get(&format!("{PEOPLE}/documents/eve")).await.refused(404, "not_found");
}

#[tokio::test]
async fn invalid_documents_are_rejected_by_name() {
    let server = people().await;
    let cases = [
        ("documents", json!({ "documents": [] }), "at least one"),
        ("documents", json!({ "documents": [1] }), "documents[0]: a document is needed"),
        ("documents", json!({ "documents": [{ "_id": [1] }] }), "_id"),
        ("documents", json!({ "documents": [{}], "ordered": true }), "unknown field `ordered`"),
        ("documents:query", json!({ "filter": { "$foo": 1 } }), "filter: unknown"),
        ("documents:query", json!({ "filter": [] }), "filter: a document is needed"),
        ("documents:query", json!({ "sort": { "a": 7 } }), "sort"),
        ("documents:query", json!({ "hint": "nothing_1" }), "hint"),
        ("documents:query", json!({ "limt": 1 }), "unknown field `limt`"),
        ("documents:count", json!([]), "object"),
        ("documents:aggregate", json!({ "pipeline": {} }), "array"),
        ("documents:aggregate", json!({ "pipeline": [{ "$foo": 1 }] }), "pipeline"),
        ("documents:update", json!({ "filter": {} }), "update"),
        ("documents:update", json!({ "filter": {}, "update": { "a": 1 }, "many": true }), "replacement"),
        ("documents:update", json!({ "filter": {}, "update": { "$inc": { "_id": 1 } } }), "_id"),
        ("documents:distinct", json!({}), "field"),
    ];
    for (route, body, why) in cases {
        let reply = server.post(&format!("{PEOPLE}/{route}"), &body).await;
        reply.refused(400, "invalid_argument");
        assert!(reply.detail().contains(why), "{route} {body}: {}", reply.detail());
    }
    for path in ["", "/collections", "/watch"] {
        server.get(&format!("/v1/databases/a%20b{path}")).await.refused(400, "invalid_argument");
    }
    server.get("/v1/databases/a.b/collections/c/documents").await.refused(400, "invalid_argument");
    let listed = server.get(&format!("{PEOPLE}/documents?filtre=1")).await;
    listed.refused(400, "invalid_argument");
}

#[tokio::test]
async fn database_size_is_limited_by_quota() {
    let server = people().await;
    let held = server.get("/v1/databases/shop").await.ok();
    assert_eq!(held["quota"], Value::Null);
    let quota = "/v1/databases/shop/quota";
    let room = held["bytes"].as_u64().unwrap() + 50;
    assert_eq!(send(&server, "PUT", quota, &[], &json!({ "bytes": room }).to_string()).await.status, 204);
    assert_eq!(server.get("/v1/databases/shop").await.ok()["quota"], room);
    let insert = |text: &str| json!({ "documents": [{ "text": text }] });
    server.post(&format!("{PEOPLE}/documents"), insert("")).await.ok();
    server.post(&format!("{PEOPLE}/documents"), insert("more")).await.refused(422, "quota_exceeded");
    assert_eq!(send(&server, "PUT", quota, &[], r#"{"bytes":null}"#).await.status, 204);
    server.post(&format!("{PEOPLE}/documents"), insert("more")).await.ok();
    for bad in ["{}", r#"{"bytes":-1}"#, r#"{"bytes":1,"more":1}"#] {
        send(&server, "PUT", quota, &[], bad).await.refused(400, "invalid_argument");
    }
    // Administrators of a database may not change its quota.
    let roles = Roles::from([("shop".to_owned(), [Right::Admin].into())]);
    server.service.access().create_user(&Caller::everybody(), "ann", "secret", roles).await.unwrap();
    let basic = ("authorization", "Basic YW5uOnNlY3JldA==");
    send(&server, "PUT", quota, &[basic], r#"{"bytes":null}"#).await.refused(403, "permission_denied");
}

#[tokio::test]
async fn collections_and_their_indexes() {
    let server = people().await;
    assert_eq!(server.get("/v1/databases").await.ok(), json!({ "databases": ["shop"] }));
    let shop = server.get("/v1/databases/shop").await.ok();
    assert_eq!((&shop["name"], &shop["collections"]), (&json!("shop"), &json!(1)));
    server.get("/v1/databases/none").await.refused(404, "not_found");
    for name in ["users%2Fann%2Fposts", "users%2Fbob%2Fposts"] {
        let made = send(&server, "PUT", &format!("/v1/databases/shop/collections/{name}"), &[], "{}").await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
    let group = server.get("/v1/databases/shop/collections?glob=users/*/posts").await.ok();
    let names: Vec<&Value> = group["collections"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
    assert_eq!(names, ["users/ann/posts", "users/bob/posts"]);
    let rules = r#"{"validator":{"age":{"$gte":0}},"references":{"boss":{"collection":"people","on_delete":"set_null"}}}"#;
    let changed = send(&server, "PUT", PEOPLE, &[], rules).await.ok();
    assert_eq!(changed["validator"], json!({ "age": { "$gte": 0 } }));
    assert_eq!(changed["references"], json!({ "boss": { "collection": "people", "on_delete": "set_null" } }));
    let bad = send(&server, "PATCH", &format!("{PEOPLE}/documents/bob"), &[], r#"{"$set":{"age":-1}}"#).await;
    bad.refused(422, "validation_failed");
    send(&server, "PATCH", &format!("{PEOPLE}/documents/bob"), &[], r#"{"$set":{"boss":"zoe"}}"#)
        .await
        .refused(422, "validation_failed");

    let indexes = format!("{PEOPLE}/indexes");
    let made = server.post(&indexes, json!({ "fields": ["city", "-age"], "unique": true })).await;
    assert_eq!((made.status, made.json()), (201, json!({ "name": "city_1_age_-1" })));
    let again = server.post(&indexes, json!({ "fields": ["city", "-age"], "unique": true })).await;
    assert_eq!(again.status, 200);
    server.post(&indexes, json!({ "fields": ["city", "-age"] })).await.refused(409, "already_exists");
    server.post(&indexes, json!({ "fields": ["city"], "unique": true })).await.refused(409, "already_exists");
    server.post(&indexes, json!({ "fields": [] })).await.refused(400, "invalid_argument");
    let listed = server.get(&indexes).await.ok();
    assert_eq!(listed["indexes"][1]["fields"], json!(["city", "-age"]));
    assert_eq!(listed["indexes"][0]["name"], "_id_");
    assert_eq!(server.request("DELETE", &format!("{indexes}/city_1_age_-1"), &[], b"").await.status, 204);
    server.request("DELETE", &format!("{indexes}/city_1_age_-1"), &[], b"").await.refused(404, "not_found");

    assert_eq!(server.request("DELETE", PEOPLE, &[], b"").await.status, 204);
    server.request("DELETE", PEOPLE, &[], b"").await.refused(404, "not_found");
    assert_eq!(server.request("DELETE", "/v1/databases/shop", &[], b"").await.status, 204);
    server.request("DELETE", "/v1/databases/shop", &[], b"").await.refused(404, "not_found");
}

#[tokio::test]
async fn transaction_is_one_commit_or_nothing() {
    let server = people().await;
    let transact = |operations: Value| {
        let server = &server;
        async move { server.post("/v1/databases/shop/transaction", json!({ "operations": operations })).await }
    };
    let before = server.service.database().seq();
    let done = transact(json!([
        { "collection": "people", "update": { "filter": { "_id": "ann" }, "update": { "$inc": { "age": -1 } } }, "expect": 1 },
        { "collection": "people", "get": "ann" },
        { "collection": "log", "insert": { "_id": 1, "who": "ann" } },
        { "collection": "people", "delete": { "filter": { "_id": "bob" } } },
        { "collection": "people", "find": { "filter": {}, "projection": { "_id": 1 } } },
    ]))
    .await
    .ok();
    let results = json!([
        { "matched": 1, "modified": 1, "upserted": null },
        { "document": { "_id": "ann", "age": 40, "city": "Oslo", "tags": ["a", "b"] } },
        { "id": 1 },
        { "deleted": 1 },
        { "documents": [{ "_id": "ann" }, { "_id": "cleo" }] },
    ]);
    assert_eq!(done["results"], results);
    assert_eq!(server.service.database().seq().0, before.0 + 1);

    let refused = transact(json!([
        { "collection": "log", "insert": { "_id": 2 } },
        { "collection": "people", "update": { "filter": { "_id": "zoe" }, "update": { "$inc": { "age": -1 } } }, "expect": 1 },
    ]))
    .await;
    refused.refused(412, "precondition_failed");
    assert_eq!(refused.detail(), "operations[1]: it is about 0 documents, 1 are expected");
    let refused =
        transact(json!([{ "collection": "log", "insert": { "_id": 2 } }, { "collection": "log", "insert": { "_id": 1 } }])).await;
    refused.refused(409, "already_exists");
    assert!(refused.detail().starts_with("operations[1]: "), "{}", refused.detail());
    server.get("/v1/databases/shop/collections/log/documents/2?id=json").await.refused(404, "not_found");
    for broken in
        [json!([]), json!([{ "collection": "a" }]), json!([{ "collection": "a", "get": 1, "insert": {} }])]
    {
        transact(broken).await.refused(400, "invalid_argument");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_transfers_lose_no_update() {
    let server = std::sync::Arc::new(Server::start().await);
    let accounts: Vec<Value> = (0..4).map(|n| json!({ "_id": n, "money": 100 })).collect();
    server.post("/v1/databases/bank/collections/a/documents", json!({ "documents": accounts })).await.ok();
    let work = |seed: i64| {
        let server = server.clone();
        async move {
            for step in 0..10 {
                let by = |id: i64, money: i64| {
                    json!({ "collection": "a", "expect": 1, "update": {
                    "filter": { "_id": id }, "update": { "$inc": { "money": money } } } })
                };
                let operations = [by((seed + step) % 4, -1), by((seed + 3 * step + 1) % 4, 1)];
                server.post("/v1/databases/bank/transaction", json!({ "operations": operations })).await.ok();
            }
        }
    };
    let tasks: Vec<_> = (0..8).map(|seed| tokio::spawn(work(seed))).collect();
    for task in tasks {
        task.await.unwrap();
    }
    let sum = json!({ "pipeline": [{ "$group": { "_id": null, "sum": { "$sum": "$money" } } }] });
    let sum = server.post("/v1/databases/bank/collections/a/documents:aggregate", sum).await.ok();
    assert_eq!(sum["documents"][0]["sum"], 400);
}

#[tokio::test]
async fn change_stream_delivers_events_and_resumes_after_any() {
    let server = people().await;
    let watch = format!("{PEOPLE}/watch?full_document=true");
    let mut stream = server.follow(&format!("{watch}&from=1"), &[]).await;
    assert_eq!((stream.status, stream.header("content-type")), (200, Some("text/event-stream")));
    for name in ["ann", "bob", "cleo"] {
        let (_, kind, event) = stream.event().await.unwrap();
        assert_eq!((kind.as_str(), &event["documentKey"]["_id"]), ("insert", &json!(name)));
    }
    send(&server, "PATCH", &format!("{PEOPLE}/documents/bob"), &[], r#"{"$set":{"age":18}}"#).await.ok();
    let (token, kind, event) = stream.event().await.unwrap();
    assert_eq!(
        (kind.as_str(), &event["updateDescription"]["updatedFields"]),
        ("update", &json!({ "age": 18 }))
    );
    assert_eq!((&event["fullDocument"]["age"], &event["_id"]["_data"]), (&json!(18), &json!(token)));
    server.request("DELETE", &format!("{PEOPLE}/documents/bob"), &[], b"").await;
    server.request("DELETE", PEOPLE, &[], b"").await;

    let mut resumed = server.follow(&watch, &[("last-event-id", &token)]).await;
    for expected in ["delete", "drop", "invalidate"] {
        assert_eq!(resumed.event().await.unwrap().1, expected);
    }
    assert!(resumed.event().await.is_none());
    // The same as lines, filtered by a pipeline, of the entire database.
    let pipeline = "%5B%7B%22$match%22:%7B%22operationType%22:%22delete%22%7D%7D%5D";
    let path = format!("/v1/databases/shop/watch?from=1&format=ndjson&pipeline={pipeline}");
    let mut lines = server.follow(&path, &[]).await;
    assert_eq!(lines.line().await.unwrap()["documentKey"], json!({ "_id": "bob" }));
    for bad in ["after=x", "from=1&after=00000000000000010000000000000000", "pipeline=%7B%7D", "format=xml"] {
        server.get(&format!("{PEOPLE}/watch?{bad}")).await.refused(400, "invalid_argument");
    }
}

#[tokio::test]
async fn users_are_limited_by_roles_and_rules() {
    let server = people().await;
    let rules =
        r#"{"rules":{"read":"true","list":"resource.city == 'Oslo'","write":"request.auth.uid == 'ann'"}}"#;
    send(&server, "PUT", PEOPLE, &[], rules).await.ok();
    let (access, admin) = (server.service.access(), Caller::everybody());
    let roles = |rights: &[Right]| Roles::from([("shop".to_owned(), rights.iter().copied().collect())]);
    let mut tokens = Vec::new();
    for (name, rights) in [
        ("ann", &[Right::Read, Right::Append][..]),
        ("bob", &[Right::Read, Right::Append]),
        ("reader", &[Right::Read]),
        ("root", &[Right::Admin]),
    ] {
        tokens.push(format!(
            "Bearer {}",
            access.create_token(&admin, name, roles(rights), None).await.unwrap().1
        ));
    }
    let [ann, bob, reader, root] = &tokens[..] else { panic!() };
    let path = format!("{PEOPLE}/documents/bob");
    let get = |path: String, who: String| {
        let server = &server;
        async move { server.request("GET", &path, &[("authorization", &who)], b"").await }
    };
    server.get(&path).await.refused(401, "unauthenticated");
    get(path.clone(), reader.clone()).await.ok();
    get(format!("{PEOPLE}/documents"), bob.clone()).await.refused(403, "permission_denied");
    let oslo = format!("{PEOPLE}/documents?filter=%7B%22city%22:%22Oslo%22%7D");
    assert_eq!(get(oslo, bob.clone()).await.ok()["documents"].as_array().unwrap().len(), 2);
    assert_eq!(
        get(format!("{PEOPLE}/documents"), root.clone()).await.ok()["documents"].as_array().unwrap().len(),
        3
    );
    // Sizes do not tell about hidden documents.
    for (who, counted) in [(root, true), (bob, false)] {
        let one = get(PEOPLE.to_owned(), who.clone()).await.ok();
        let all = get("/v1/databases/shop/collections".to_owned(), who.clone()).await.ok();
        let schema = get("/v1/schema".to_owned(), who.clone()).await.ok();
        for collection in [&one, &all["collections"][0], &schema["collections"][0]] {
            assert_eq!(collection["documents"], if counted { json!(3) } else { Value::Null }, "{collection}");
            assert_eq!(collection["bytes"].is_null(), !counted, "{collection}");
        }
        let database = get("/v1/databases/shop".to_owned(), who.clone()).await.ok();
        assert_eq!(database["bytes"] != 0, counted, "{database}");
    }
    let patch = r#"{"$set":{"age":1}}"#;
    send(&server, "PATCH", &path, &[("authorization", ann)], patch).await.ok();
    let patch = r#"{"$set":{"age":2}}"#;
    for who in [bob, reader] {
        send(&server, "PATCH", &path, &[("authorization", who)], patch)
            .await
            .refused(403, "permission_denied");
        get(format!("{PEOPLE}/watch"), who.clone()).await.refused(403, "permission_denied");
    }
    let all = r#"{"pipeline":[{"$match":{}}]}"#;
    let aggregate = format!("{PEOPLE}/documents:aggregate");
    send(&server, "POST", &aggregate, &[("authorization", bob)], all).await.refused(403, "permission_denied");
    let modify = r#"{"filter":{"_id":"bob"},"delete":true}"#;
    let path = format!("{PEOPLE}/documents:modify");
    send(&server, "POST", &path, &[("authorization", bob)], modify).await.refused(403, "permission_denied");
    send(&server, "POST", &path, &[("authorization", ann)], modify).await.ok();
    send(&server, "PUT", PEOPLE, &[("authorization", ann)], "{}").await.refused(403, "permission_denied");
    get("/v1/databases/other/collections".to_owned(), ann.clone()).await.refused(403, "permission_denied");
    assert_eq!(get("/v1/databases".to_owned(), ann.clone()).await.ok(), json!({ "databases": ["shop"] }));
}

#[tokio::test]
async fn view_is_read_by_pipelines_and_dropped() {
    let server = people().await;
    let documents = server.service.database().documents();
    let view = documents.collection("shop", "adults").unwrap();
    let mut stages = Writer::array();
    ["", "$match", "age"].iter().for_each(|name| stages.open_document(name));
    stages.put("$gte", lang::Value::Int32(18));
    (0..3).for_each(|_| stages.close());
    let definition = View { on: "people".to_owned(), stages: stages.finish() };
    documents.transact(ropewalk::Durability::Sync, |tx| tx.create_view(&view, &definition)).unwrap();
    let path = "/v1/databases/shop/collections/adults";
    let counted = json!({ "pipeline": [{ "$count": "n" }] });
    let found = server.post(&format!("{path}/documents:aggregate"), counted).await.ok();
    assert_eq!(found, json!({ "documents": [{ "n": 2 }] }));
    for call in ["documents:query", "documents:count", "documents:explain"] {
        server.post(&format!("{path}/{call}"), json!({})).await.refused(400, "invalid_argument");
    }
    let distinct = json!({ "field": "age" });
    server.post(&format!("{path}/documents:distinct"), distinct).await.refused(400, "invalid_argument");
    server.get(&format!("{path}/documents")).await.refused(400, "invalid_argument");
    server.get(path).await.refused(400, "invalid_argument");
    let insert = json!({ "documents": [{}] });
    server.post(&format!("{path}/documents"), insert).await.refused(400, "invalid_argument");
    assert_eq!(send(&server, "DELETE", path, &[], "").await.status, 204);
    server.get(path).await.refused(404, "not_found");
}
