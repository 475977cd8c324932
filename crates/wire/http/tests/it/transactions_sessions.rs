//! Transactions reuse SQL sessions with their plans: no request sees what an earlier one or another caller left.

use std::collections::BTreeSet;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ropewalk_auth::{Caller, Right, Roles};
use serde_json::{Value, json};

use crate::client::{Reply, Server};
use crate::transactions::{JSON, PASSWORD};

type User = (&'static str, &'static [Right]);

const ANN: User = ("ann", &[Right::Read, Right::Append]);
const BOB: User = ("bob", &[Right::Read]);
const ADMIN: User = ("admin", &[Right::Admin]);

/// A server with a table, and users with these rights on all stores.
async fn server(users: &[User]) -> Server {
    let server = Server::start().await;
    let create = "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 10)";
    for statement in create.split("; ") {
        server.post("/v1/transactions", statements(&[(statement, json!([]))])).await.ok();
    }
    for (name, rights) in users {
        let roles = Roles::from([("*".to_owned(), BTreeSet::from_iter(rights.iter().copied()))]);
        server.service.access().create_user(&Caller::everybody(), name, PASSWORD, roles).await.unwrap();
    }
    server
}

fn statements(all: &[(&str, Value)]) -> Value {
    let operation = |(sql, params): &(&str, Value)| json!({ "sql": { "sql": sql, "params": params } });
    json!({ "operations": all.iter().map(operation).collect::<Vec<_>>() })
}

async fn run_as(server: &Server, user: &str, body: &Value) -> Reply {
    let credentials = format!("Basic {}", STANDARD.encode(format!("{user}:{PASSWORD}")));
    let headers = [JSON, ("authorization", credentials.as_str())];
    server.request("POST", "/v1/transactions", &headers, body.to_string().as_bytes()).await
}

/// The rows of the last statement.
fn rows(reply: Reply) -> Value {
    let results = reply.ok()["results"].clone();
    results.as_array().unwrap().last().unwrap()["rows"].clone()
}

#[tokio::test]
async fn right_withdrawn_between_two_requests_rejects_the_same_statement() {
    let server = server(&[ANN, ADMIN]).await;
    let update = statements(&[("UPDATE t SET v = v + $1 WHERE id = $2", json!([1, 1]))]);
    for _ in 0..3 {
        run_as(&server, "ann", &update).await.ok();
    }
    let all = Caller::everybody();
    server.service.access().revoke(&all, "ann", "*", Right::Append).await.unwrap();
    // A wrong parameter does not show that the plan is known.
    let wrong = statements(&[("UPDATE t SET v = v + $1 WHERE id = $2", json!(["x", 1]))]);
    for body in [&update, &wrong, &update] {
        run_as(&server, "ann", body).await.refused(403, "permission_denied");
    }
    let read = statements(&[("SELECT v FROM t WHERE id = $1", json!([1]))]);
    assert_eq!(rows(run_as(&server, "ann", &read).await), json!([[13]]));
    server.service.access().grant(&all, "ann", "*", Right::Append).await.unwrap();
    run_as(&server, "ann", &update).await.ok();
    assert_eq!(rows(run_as(&server, "ann", &read).await), json!([[14]]));
}

#[tokio::test]
async fn statement_follows_definitions_that_change_between_two_requests() {
    let server = server(&[ANN, ADMIN]).await;
    let read = statements(&[("SELECT v FROM t WHERE id = $1", json!([1]))]);
    let define = async |statement: &str| {
        run_as(&server, "admin", &statements(&[(statement, json!([]))])).await.ok();
    };
    for _ in 0..3 {
        assert_eq!(rows(run_as(&server, "ann", &read).await), json!([[10]]));
    }
    define("ALTER TABLE t ALTER COLUMN v TYPE text").await;
    assert_eq!(rows(run_as(&server, "ann", &read).await), json!([["10"]]));
    define("ALTER TABLE t RENAME COLUMN v TO w").await;
    run_as(&server, "ann", &read).await.refused(404, "not_found");
    define("DROP TABLE t").await;
    run_as(&server, "ann", &read).await.refused(404, "not_found");
    define("CREATE TABLE t (id int PRIMARY KEY, v bool)").await;
    define("INSERT INTO t VALUES (1, true)").await;
    for _ in 0..2 {
        assert_eq!(rows(run_as(&server, "ann", &read).await), json!([[true]]));
    }
    // A schema with the user's name comes first.
    define("CREATE SCHEMA ann").await;
    define("CREATE TABLE ann.t (id int PRIMARY KEY, v int)").await;
    assert_eq!(rows(run_as(&server, "ann", &read).await), json!([]));
}

#[tokio::test]
async fn request_sees_no_settings_locks_or_cursors_of_an_earlier_one() {
    let server = server(&[ADMIN, ("other", &[Right::Admin])]).await;
    let none = || json!([]);
    run_as(&server, "admin", &statements(&[("CREATE SEQUENCE q", none())])).await.ok();
    let leaving = [
        ("SET timezone = 'Europe/Paris'", none()),
        ("SELECT nextval('q')", none()),
        ("SELECT pg_advisory_lock(7)", none()),
        ("DECLARE c CURSOR WITH HOLD FOR SELECT 1", none()),
        ("UPDATE t SET v = v + $1 WHERE id = $2", json!([1, 1])),
    ];
    let lock = statements(&[("SELECT pg_try_advisory_xact_lock(7)", none())]);
    for round in 0..3 {
        run_as(&server, "admin", &statements(&leaving)).await.ok();
        assert_eq!(rows(run_as(&server, "other", &lock).await), json!([[true]]), "{round}");
        let zone = statements(&[("SHOW timezone", none())]);
        assert_eq!(rows(run_as(&server, "admin", &zone).await), json!([["UTC"]]), "{round}");
        for (sql, sqlstate) in [("SELECT lastval()", "55000"), ("FETCH c", "34000")] {
            let refused = run_as(&server, "admin", &statements(&[(sql, none())])).await;
            assert_eq!(refused.json()["sqlstate"], sqlstate, "{round}: {}", refused.text());
        }
    }
    let read = statements(&[("SELECT v FROM t WHERE id = $1", json!([1]))]);
    assert_eq!(rows(run_as(&server, "other", &read).await), json!([[13]]));
}

#[tokio::test]
async fn callers_at_the_same_time_have_their_own_rights_and_names() {
    let server = Arc::new(server(&[ANN, BOB]).await);
    let update = statements(&[("UPDATE t SET v = v + $1 WHERE id = $2", json!([1, 1]))]);
    let name = statements(&[("SELECT current_user, v FROM t WHERE id = $1", json!([1]))]);
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..40 {
        let (server, update, name) = (server.clone(), update.clone(), name.clone());
        tasks.spawn(async move {
            let user = if number % 2 == 0 { "ann" } else { "bob" };
            assert_eq!(rows(run_as(&server, user, &name).await)[0][0], user);
            (user, run_as(&server, user, &update).await.status)
        });
    }
    let statuses = tasks.join_all().await;
    for (user, status) in statuses {
        assert_eq!(status, if user == "ann" { 200 } else { 403 }, "{user}");
    }
    let read = statements(&[("SELECT v FROM t WHERE id = $1", json!([1]))]);
    assert_eq!(rows(run_as(&server, "bob", &read).await), json!([[30]]));
}
