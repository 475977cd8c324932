//! Declared projections over HTTP.

use ropewalk_sql::{Session, StoredProjection};
use serde_json::{Value, json};

use crate::client::{Reply, Server};

const PROJECTION: &str = "/v1/stores/s/projections/p";

async fn put(server: &Server, body: Value) -> Reply {
    let headers = [("content-type", "application/json")];
    server.request("PUT", PROJECTION, &headers, body.to_string().as_bytes()).await
}

fn declared(version: u64, statement: &str) -> Value {
    json!({ "version": version, "on_error": "park", "on": [{ "types": ["A"], "statements": [statement] }] })
}

#[tokio::test]
async fn projection_is_declared_changed_and_deleted() {
    let server = Server::start().await;
    server.append("s", json!([{ "type": "A", "data": { "n": 1 } }])).await;
    let mut session = Session::new(server.service.database().clone());
    session.execute("CREATE TABLE t (position bigint PRIMARY KEY)", &[]).unwrap();
    let insert = "INSERT INTO t VALUES (event.position) -- each event";

    put(&server, declared(1, "INSERT INTO missing VALUES (1)")).await.refused(400, "invalid_argument");
    server.get(PROJECTION).await.refused(404, "not_found");
    let created = put(&server, declared(1, insert)).await;
    assert_eq!(created.status, 201, "{}", created.text());
    let state = created.json();
    assert_eq!(state["on"][0]["statements"][0], "INSERT INTO t VALUES (event.position)");
    assert_eq!((&state["state"], &state["tables"]), (&json!("catching_up"), &json!(["t"])));
    assert_eq!(state["collections"], json!([]));
    assert_eq!((&state["head"], &state["lag"], &state["on_error"]), (&json!(1), &json!(1), &json!("park")));
    assert_eq!(put(&server, declared(1, insert)).await.status, 200);
    put(&server, declared(1, "DELETE FROM t")).await.refused(409, "already_exists");

    let all = server.get("/v1/stores/s/projections").await.ok();
    assert_eq!(all["projections"][0]["name"], "p");
    let none = server.get("/v1/stores/other/projections").await.ok();
    assert_eq!(none["projections"], json!([]));
    server.get("/v1/stores/other/projections/p").await.refused(404, "not_found");

    let path = |what: &str| format!("{PROJECTION}/{what}");
    let post = async |what: &str| server.request("POST", &path(what), &[], b"").await;
    assert_eq!(post("pause").await.ok()["state"], "paused");
    assert_eq!(post("resume").await.ok()["state"], "catching_up");
    assert_eq!(post("rebuild").await.ok()["state"], "rebuilding");
    assert_eq!(server.post(&path("retry"), json!({})).await.status, 200);
    server.post(&path("skip"), json!({ "position": 9 })).await.refused(404, "not_found");
    assert_eq!(server.get(&path("parked")).await.ok(), json!({ "parked": [] }));

    assert_eq!(server.request("DELETE", PROJECTION, &[], b"").await.status, 204);
    server.request("DELETE", PROJECTION, &[], b"").await.refused(404, "not_found");
    assert_eq!(session.execute("SELECT * FROM t", &[]).unwrap().rows.len(), 0);

    session.execute("INSERT INTO shop.docs (doc) VALUES ('{}')", &[]).unwrap();
    let created = put(&server, declared(1, "INSERT INTO shop.docs (doc) VALUES (event.json)")).await;
    assert_eq!(created.status, 201, "{}", created.text());
    let state = created.json();
    assert_eq!((&state["tables"], &state["collections"]), (&json!([]), &json!(["shop.docs"])));
}

#[tokio::test]
async fn damaged_declaration_is_listed_with_the_others() {
    let server = Server::start().await;
    server.append("s", json!([{ "type": "A", "data": { "n": 1 } }])).await;
    let db = server.service.database();
    Session::new(db.clone()).execute("CREATE TABLE t (position bigint PRIMARY KEY)", &[]).unwrap();
    assert_eq!(put(&server, declared(1, "INSERT INTO t VALUES (event.position)")).await.status, 201);
    let damaged = StoredProjection {
        name: "q".to_owned(),
        store: "s".to_owned(),
        text: "CREATE NOTHING".to_owned(),
        before: None,
        since: Some(1),
        is_paused: false,
        wants_rebuild: false,
        requests: 0,
    };
    let mut transaction = db.begin();
    damaged.put_in(&mut transaction).unwrap();
    transaction.commit().unwrap();

    let all = server.get("/v1/stores/s/projections").await.ok();
    assert_eq!((&all["projections"][0]["name"], &all["projections"][0]["lag"]), (&json!("p"), &json!(1)));
    let (name, state) = (&all["projections"][1]["name"], &all["projections"][1]["state"]);
    assert_eq!((name, state), (&json!("q"), &json!("damaged")));
    let other = server.get("/v1/stores/other/projections").await.ok();
    assert_eq!(other["projections"], json!([]));
}
