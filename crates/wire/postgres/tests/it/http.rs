//! `POST /v1/sql`.

use std::time::Duration;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_ipc::reader::StreamReader;
use axum::Extension;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use ropewalk::Database;
use ropewalk_auth::{Caller, Credentials, Right, Roles};
use ropewalk_postgres::{Postgres, PostgresSettings};
use ropewalk_wire::{Limits, ServiceSettings};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::client::Server;

async fn post(server: &Server, caller: Caller, body: &str) -> (u16, Value) {
    let router = server.postgres.routes().layer(Extension(caller));
    let request = Request::post("/v1/sql").header("content-type", "application/json");
    let request = request.body(Body::from(body.to_owned())).unwrap();
    let response = router.oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let bytes = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (status, serde_json::from_slice(&bytes).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&bytes))))
}

pub(crate) async fn ask(server: &Server, body: Value) -> (u16, Value) {
    post(server, Caller::everybody(), &body.to_string()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn d1_23_statements_are_answered_as_json() {
    let server = Server::new();
    let sql = "CREATE TABLE users (id int PRIMARY KEY, name text, score float8, extra jsonb, n numeric); \
               INSERT INTO users VALUES (1, 'é\"', 1.5, '{\"a\": [1]}', 1.50), (2, NULL, 'NaN', NULL, 2); \
               SELECT * FROM users ORDER BY id";
    let (status, answer) = ask(&server, json!({ "sql": sql })).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["results"][1], json!({ "command": "INSERT 0 2" }));
    let columns = &answer["results"][2]["columns"];
    assert_eq!(columns[2], json!({ "name": "score", "type": "double precision" }));
    let rows = json!([[1, "é\"", 1.5, { "a": [1] }, "1.50"], [2, null, "NaN", null, "2"]]);
    assert_eq!(answer["results"][2]["rows"], rows);
    let by_key =
        json!({ "sql": "SELECT name FROM users WHERE id = $1 AND score = $2", "params": [1, "1.5"] });
    assert_eq!(ask(&server, by_key).await.1["results"][0]["rows"], json!([["é\""]]));
    let appended = json!({ "sql": "BEGIN; SELECT append_event('Made', ARRAY['user:' || id], '{}') FROM users; COMMIT; SELECT last_event_position()" });
    assert_eq!(ask(&server, appended).await.1["results"][3]["rows"], json!([[2]]));
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_problems_with_an_sqlstate() {
    let server = Server::new();
    ask(&server, json!({ "sql": "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)" })).await;
    let (status, problem) = ask(&server, json!({ "sql": "INSERT INTO t VALUES (2), (1)" })).await;
    assert_eq!((status, problem["sqlstate"].as_str()), (409, Some("23505")), "{problem}");
    assert_eq!(problem["constraint"], "t_pkey");
    assert_eq!(problem["title"], "A unique constraint is violated");
    let (_, problem) = ask(&server, json!({ "sql": "SELECT nothing FROM t" })).await;
    assert_eq!((problem["sqlstate"].as_str(), problem["position"].as_u64()), (Some("42703"), Some(8)));
    assert_eq!(problem["title"], "Unknown name in an SQL statement");
    for (body, state, title) in [
        ("{\"sql\": \"SELECT 1\", \"more\": 1}", "22023", "Invalid value"),
        ("nothing", "22023", "Invalid value"),
        ("{\"sql\": \"SELECT $1\", \"params\": [1, 2]}", "42601", "SQL syntax error"),
        ("{\"sql\": \"SELECT $1::int\", \"params\": [\"x\"]}", "22P02", "Invalid value"),
        (
            "{\"sql\": \"BEGIN; INSERT INTO t VALUES (5)\"}",
            "25001",
            "Not possible in this state of the transaction",
        ),
    ] {
        let (status, problem) = post(&server, Caller::everybody(), body).await;
        assert_eq!((status, problem["sqlstate"].as_str()), (400, Some(state)), "{body}: {problem}");
        assert_eq!(problem["title"], title, "{body}: {problem}");
    }
    let (_, count) = ask(&server, json!({ "sql": "SELECT count(*) FROM t" })).await;
    assert_eq!(count["results"][0]["rows"], json!([[1]]));
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_are_those_of_the_caller_and_answers_are_bounded() {
    let server = Server::new();
    ask(&server, json!({ "sql": "CREATE TABLE t (id int PRIMARY KEY)" })).await;
    let access = server.service.access();
    let all = Caller::everybody();
    for (name, right) in [("reader", Right::Read), ("writer", Right::Append)] {
        let roles = Roles::from([("*".to_owned(), [right].into())]);
        access.create_user(&all, name, "secret", roles).await.unwrap();
    }
    for (name, sql, expected) in [
        ("reader", "SELECT * FROM t", 200),
        ("reader", "INSERT INTO t VALUES (1)", 403),
        ("reader", "SELECT append_event('A', ARRAY['a'], '{}')", 403),
        ("reader", "BEGIN; CREATE TABLE u (id int); COMMIT", 403),
        ("writer", "INSERT INTO t VALUES (1)", 200),
        ("writer", "INSERT INTO t VALUES (2) RETURNING id", 403),
        ("writer", "SELECT append_event('A', ARRAY['a'], '{}')", 200),
        ("writer", "SELECT append_event('A', ARRAY['a'], '{}') FROM t", 403),
    ] {
        let credentials = Credentials::Password { user: name, password: "secret" };
        let caller = access.authenticate(credentials, None).await.unwrap();
        let (status, answer) = post(&server, caller, &json!({ "sql": sql }).to_string()).await;
        assert_eq!(status, expected, "{name}: {sql}: {answer}");
    }
    let (status, problem) =
        ask(&server, json!({ "sql": "SELECT repeat('x', 10000000) FROM generate_series(1, 10)" })).await;
    assert!((status == 413 || status == 429) && problem["sqlstate"].as_str().is_some(), "{status} {problem}");
}

#[tokio::test(flavor = "multi_thread")]
async fn reused_plan_needs_the_rights_of_each_request() {
    let server = Server::new();
    ask(&server, json!({ "sql": "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 0)" }))
        .await;
    let (access, all) = (server.service.access(), Caller::everybody());
    let roles = |rights: &[Right]| Roles::from([("*".to_owned(), rights.iter().copied().collect())]);
    access.create_user(&all, "ann", "secret", roles(&[])).await.unwrap();
    let update = json!({ "sql": "UPDATE t SET v = v + 1 WHERE id = $1", "params": [1] }).to_string();
    for (rights, expected) in [
        (&[Right::Read, Right::Append][..], 200),
        (&[Right::Read], 403),
        (&[Right::Read, Right::Append], 200),
        (&[Right::Append], 403),
    ] {
        let own = roles(rights);
        access.update_user(&all, "ann", None, move |held| *held = own).await.unwrap();
        let credentials = Credentials::Password { user: "ann", password: "secret" };
        let caller = access.authenticate(credentials, None).await.unwrap();
        let (status, answer) = post(&server, caller, &update).await;
        assert_eq!(status, expected, "{rights:?}: {answer}");
    }
    let row = ask(&server, json!({ "sql": "SELECT v FROM t WHERE id = $1", "params": [1] })).await.1;
    assert_eq!(row["results"][0]["rows"], json!([[2]]));
}

#[tokio::test(flavor = "multi_thread")]
async fn request_deadline_ends_text_regardless_of_its_settings() {
    let limits = Limits { request_time: Duration::from_millis(200), ..Limits::default() };
    let service = ServiceSettings { limits, ..ServiceSettings::default() };
    let server = Server::with_service(Database::in_memory().unwrap(), service, PostgresSettings::default());
    for sql in
        ["SELECT pg_sleep(600)", "SET statement_timeout = 0; SELECT pg_sleep(600); SELECT pg_sleep(600)"]
    {
        let (status, problem) = ask(&server, json!({ "sql": sql })).await;
        assert_eq!((status, problem["sqlstate"].as_str()), (504, Some("57014")), "{sql}: {problem}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c_answers_of_statements_share_memory() {
    let server = Server::new();
    let memory = server.service.answer_memory().clone();
    let available = memory.available_bytes();
    let mut held = Vec::new();
    while memory.available_bytes() > 0 {
        let mut reservation = memory.connection().reservation();
        reservation.try_cover(memory.available_bytes().min(32 << 20)).unwrap();
        held.push(reservation);
    }
    let ask_for = json!({ "sql": "SELECT repeat('x', 1000000)" });
    let (status, problem) = ask(&server, ask_for.clone()).await;
    assert_eq!((status, problem["sqlstate"].as_str()), (429, Some("53000")), "{problem}");
    drop(held);
    assert_eq!(ask(&server, ask_for).await.0, 200);
    assert_eq!(memory.available_bytes(), available);
}

#[tokio::test(flavor = "multi_thread")]
async fn statement_with_too_large_result_is_not_committed() {
    let server = Server::new();
    ask(&server, json!({ "sql": "CREATE TABLE t (id int PRIMARY KEY)" })).await;
    // A control character is six in JSON.
    let sql = "INSERT INTO t VALUES (1) RETURNING repeat(chr(1), 12000000)";
    let (status, problem) = ask(&server, json!({ "sql": sql })).await;
    assert_eq!((status, problem["sqlstate"].as_str()), (413, Some("54000")), "{problem}");
    let (_, count) = ask(&server, json!({ "sql": "SELECT count(*) FROM t" })).await;
    assert_eq!(count["results"][0]["rows"], json!([[0]]));
}

async fn bytes_as(server: &Server, accept: &str, sql: &str) -> (u16, String, Vec<u8>) {
    let router = server.postgres.routes().layer(Extension(Caller::everybody()));
    let request =
        Request::post("/v1/sql").header("content-type", "application/json").header("accept", accept);
    let request = request.body(Body::from(json!({ "sql": sql }).to_string())).unwrap();
    let response = router.oneshot(request).await.unwrap();
    let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
    let status = response.status().as_u16();
    let bytes = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (status, kind, bytes.to_vec())
}

async fn text_as(server: &Server, accept: &str, sql: &str) -> (u16, String, String) {
    let (status, kind, bytes) = bytes_as(server, accept, sql).await;
    (status, kind, String::from_utf8(bytes).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_one_statement_are_ndjson_or_csv() {
    let server = Server::new();
    let sql = "SELECT * FROM (VALUES (1, 'a,\"b\"', '[1]'::jsonb), (2, '', NULL)) AS t (n, \"na me\", j)";
    let (status, kind, text) = text_as(&server, "application/x-ndjson", sql).await;
    assert_eq!((status, kind.as_str()), (200, "application/x-ndjson"), "{text}");
    assert_eq!(text, "{\"n\":1,\"na me\":\"a,\\\"b\\\"\",\"j\":[1]}\n{\"n\":2,\"na me\":\"\",\"j\":null}\n");
    let (status, kind, text) = text_as(&server, "text/csv", sql).await;
    assert_eq!((status, kind.as_str()), (200, "text/csv; charset=utf-8"), "{text}");
    assert_eq!(text, "n,na me,j\r\n1,\"a,\"\"b\"\"\",[1]\r\n2,\"\",\r\n");
    let (_, kind, _) = text_as(&server, "text/html, */*", sql).await;
    assert_eq!(kind, "application/json");
    for rejected in ["SELECT 1; SELECT 2", "CREATE TABLE made (id int)"] {
        let (status, kind, text) = text_as(&server, "text/csv", rejected).await;
        assert_eq!((status, kind.as_str()), (400, "application/problem+json"), "{text}");
        assert!(text.contains("\"22023\""), "{text}");
    }
    let (_, problem) = ask(&server, json!({ "sql": "SELECT * FROM made" })).await;
    assert_eq!(problem["sqlstate"], "42P01", "a rejected statement has no effect: {problem}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_one_statement_are_an_arrow_stream() {
    const ARROW: &str = "application/vnd.apache.arrow.stream";
    let server = Server::new();
    let sql = "SELECT n, t, made, j FROM (VALUES \
                 (9007199254740993, 'é', '2024-02-29 12:00:00+00'::timestamptz, '[1]'::jsonb), \
                 (NULL, '', NULL, NULL)) AS v (n, t, made, j)";
    let (status, kind, bytes) = bytes_as(&server, ARROW, sql).await;
    assert_eq!((status, kind.as_str()), (200, ARROW), "{}", String::from_utf8_lossy(&bytes));
    let reader = StreamReader::try_new(bytes.as_slice(), None).unwrap();
    let names: Vec<String> = reader.schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, ["n", "t", "made", "j"]);
    let batches = reader.collect::<Result<Vec<_>, _>>().unwrap();
    assert_eq!(batches.iter().map(|batch| batch.num_rows()).collect::<Vec<_>>(), [2]);
    let batch = &batches[0];
    let numbers = batch.column(0).as_primitive::<Int64Type>();
    assert_eq!(numbers.iter().collect::<Vec<_>>(), [Some(9_007_199_254_740_993), None]);
    assert_eq!(batch.column(1).as_string_view().iter().collect::<Vec<_>>(), [Some("é"), Some("")]);
    let times = batch.column(2).as_primitive::<TimestampMicrosecondType>();
    assert_eq!(times.iter().collect::<Vec<_>>(), [Some(1_709_208_000_000_000), None]);
    assert_eq!(batch.column(3).as_string_view().iter().collect::<Vec<_>>(), [Some("[1]"), None]);

    let (status, _, bytes) = bytes_as(&server, ARROW, "SELECT 1 AS one WHERE false").await;
    let mut reader = StreamReader::try_new(bytes.as_slice(), None).unwrap();
    assert_eq!((status, reader.schema().field(0).name().as_str()), (200, "one"));
    assert!(reader.next().is_none());
    let (status, kind, text) = text_as(&server, ARROW, "SELECT 1; SELECT 2").await;
    assert_eq!((status, kind.as_str()), (400, "application/problem+json"), "{text}");
}

async fn ask_as(server: &Server, id: &str, sql: &str) -> (u16, Value) {
    let router = server.postgres.routes().layer(Extension(Caller::everybody()));
    let request =
        Request::post("/v1/sql").header("content-type", "application/json").header("x-statement-id", id);
    let response =
        router.oneshot(request.body(Body::from(json!({ "sql": sql }).to_string())).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    (status, serde_json::from_slice(&to_bytes(response.into_body(), 1 << 20).await.unwrap()).unwrap())
}

async fn cancel(postgres: &Postgres, id: &str) -> u16 {
    let router = postgres.routes().layer(Extension(Caller::everybody()));
    let request = Request::delete(format!("/v1/sql/{id}")).body(Body::empty()).unwrap();
    router.oneshot(request).await.unwrap().status().as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn caller_cancels_its_request_by_its_id() {
    let server = Server::new();
    let postgres = server.postgres.clone();
    assert_eq!(cancel(&postgres, "slow").await, 404);
    // In its own task: a statement blocks the task that runs it.
    let cancelling = tokio::spawn(async move {
        while cancel(&postgres, "slow").await == 404 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let (status, problem) = ask_as(&server, "slow", "SELECT pg_sleep(600); SELECT pg_sleep(600)").await;
    assert_eq!((status, problem["sqlstate"].as_str()), (504, Some("57014")), "{problem}");
    cancelling.await.unwrap();
    assert_eq!(cancel(&server.postgres, "slow").await, 404, "the request has ended");
    for id in ["", "an id of more than 64 bytes, which is more than an id of a request has"] {
        let (status, problem) = ask_as(&server, id, "SELECT 1").await;
        assert_eq!((status, problem["sqlstate"].as_str()), (400, Some("22023")), "{problem}");
    }
    assert_eq!(ask_as(&server, "one", "SELECT 1").await.0, 200);
}
