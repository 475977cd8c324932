//! Declared projections over HTTP.

use std::sync::Arc;

use ropewalk::Query;
use ropewalk::documents::lang::{Value as Bson, Writer};
use ropewalk::events::SequencedEventRef;
use ropewalk::projections::{ApplyError, MaterializedProjection, Output, ProjectionRun, RebuildMode};
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

/// A projection whose rebuild stops at the second event.
struct Stopping;

impl MaterializedProjection for Stopping {
    fn query(&self) -> Query {
        Query::all()
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::table("tallies"), Output::collection_in("shop", "docs")]
    }

    fn prepare(&self, run: &mut ProjectionRun<'_>) -> Result<(), ApplyError> {
        let name = run.name("tallies")?;
        run.tx().tables().create_table_like("tallies", &name)?;
        Ok(())
    }

    fn apply(&self, run: &mut ProjectionRun<'_>, event: &SequencedEventRef<'_>) -> Result<(), ApplyError> {
        if event.position.0 > 1 {
            return Err("the event is refused".into());
        }
        let docs = run.collection_in("shop", "docs")?;
        let mut document = Writer::new();
        document.put("_id", Bson::Int32(1));
        run.tx().documents().insert_one(&docs, document.finish().bytes())?;
        Ok(())
    }
}

#[tokio::test]
async fn outputs_of_an_unfinished_rebuild_are_not_listed_and_their_names_are_reserved() {
    let server = Server::start().await;
    server.append("s", json!([{ "type": "A", "data": {} }, { "type": "A", "data": {} }])).await;
    let db = server.service.database();
    let mut session = Session::new(db.clone());
    session.execute("CREATE TABLE tallies (position bigint PRIMARY KEY)", &[]).unwrap();
    session.execute("INSERT INTO shop.docs (doc) VALUES ('{}')", &[]).unwrap();
    let path = |name: &str| format!("/v1/databases/shop/collections/{name}/documents");
    let documents = json!({ "documents": [{ "_id": 1 }] });
    server.post(&path("docs__g1"), documents.clone()).await.refused(400, "invalid_argument");
    server.post(&path("docs__g"), documents.clone()).await.ok();
    let statements =
        ["INSERT INTO tallies VALUES (event.position)", "INSERT INTO shop.docs (doc) VALUES (event.json)"];
    let body = json!({ "version": 1, "on": [{ "types": ["A"], "statements": statements }] });
    assert_eq!(put(&server, body).await.status, 201);
    // No runner of projections runs here: the rebuild is that of a handler of the same name.
    let projections = db.projections("s").unwrap();
    projections.register("p", Arc::new(Stopping)).unwrap();
    projections.rebuild("p", RebuildMode::ForceFullRebuild).unwrap_err();
    assert_eq!(db.documents().collections("shop").unwrap(), ["docs", "docs__g", "docs__g1"]);
    assert!(db.tables().names().unwrap().contains(&"tallies__g1".to_owned()));

    let names = |objects: &Value| -> Vec<String> {
        objects.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    let schema = server.get("/v1/schema").await.ok();
    assert_eq!(
        (names(&schema["collections"]), names(&schema["tables"])),
        (vec!["docs".into(), "docs__g".into()], vec!["tallies".into()])
    );
    let listed = server.get("/v1/databases/shop/collections").await.ok();
    assert_eq!(names(&listed["collections"]), ["docs", "docs__g"]);
    let tables = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE 'tallies%'";
    assert_eq!(session.execute(tables, &[]).unwrap().rows.len(), 1);
    // It can be used by its name.
    server.post(&path("docs__g1"), json!({ "documents": [{ "_id": 2 }] })).await.ok();
}
