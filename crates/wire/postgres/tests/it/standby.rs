//! A node that follows another one answers like a standby of PostgreSQL.

use ropewalk_postgres::{Postgres, PostgresSettings};
use serde_json::json;

use crate::client::{Answer, Client, Server};
use crate::cluster::Node;

fn server(node: &Node) -> Server {
    let service = node.service.clone();
    Server { postgres: Postgres::new(service.clone(), PostgresSettings::default()), service }
}

/// A connection, and the messages of the server at login.
async fn connect(server: &Server) -> (Client, Vec<String>) {
    let mut client = server.dial();
    client.start(&[("user", "ann")]).await;
    let told = client.until_ready().await.iter().map(Answer::line).collect();
    (client, told)
}

/// A leader with a table of one row and a sequence, and a follower that has both.
async fn pair() -> (Node, Node) {
    let (leader, follower) = Node::pair();
    let mut client = server(&leader).connect().await;
    client.query("CREATE TABLE t (id int PRIMARY KEY, name text); CREATE SEQUENCE numbers").await;
    assert_eq!(client.query("INSERT INTO t VALUES (1, 'one')").await[0], "INSERT 0 1");
    follower.follow();
    (leader, follower)
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_see_which_node_leads() {
    let (leader, follower) = pair().await;
    for (node, standby) in [(&leader, "off"), (&follower, "on")] {
        let (mut client, told) = connect(&server(node)).await;
        // `target_session_attrs` of clients uses these two.
        assert!(told.contains(&format!("setting in_hot_standby={standby}")), "{told:?}");
        assert!(told.contains(&"setting default_transaction_read_only=off".to_owned()), "{told:?}");
        assert_eq!(client.query("SHOW in_hot_standby").await[0], standby);
        assert_eq!(client.query("SHOW transaction_read_only").await[0], standby);
        let is_standby = if standby == "on" { "t" } else { "f" };
        assert_eq!(client.query("SELECT pg_is_in_recovery()").await[0], is_standby);
        assert_eq!(client.query("SELECT pg_catalog.pg_is_in_recovery()").await[0], is_standby);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn follower_reads_and_does_not_write() {
    let (leader, follower) = pair().await;
    let mut client = server(&follower).connect().await;
    assert_eq!(client.query("SELECT id, name FROM t").await[..2], ["1|one", "SELECT 1"]);
    for statement in [
        "INSERT INTO t VALUES (2, 'two')",
        "UPDATE t SET name = 'x'",
        "DELETE FROM t",
        "TRUNCATE t",
        "COPY t FROM STDIN",
        "CREATE TABLE u (id int PRIMARY KEY)",
        "CREATE TABLE IF NOT EXISTS t (id int PRIMARY KEY)",
        "DROP TABLE t",
        "ALTER TABLE t ADD COLUMN more text",
        "CREATE INDEX by_name ON t (name)",
        "SELECT * FROM t FOR UPDATE",
        "SELECT * FROM (SELECT * FROM t FOR SHARE) AS locked",
        "SELECT nextval('numbers')",
        "WITH gone AS (DELETE FROM t RETURNING id) SELECT * FROM gone",
        "SELECT append_event('Made', ARRAY['a:1'], '{}')",
        "NOTIFY news",
        "SELECT pg_notify('news', '')",
        "LISTEN news",
    ] {
        let lines = client.query(statement).await;
        assert!(lines[0].starts_with("ERROR 25006: cannot execute "), "{statement}: {lines:?}");
        assert_eq!(lines[1], "ready I");
    }
    follower.follow();
    assert_eq!(leader.db().seq(), follower.db().seq());
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_of_a_follower_only_read() {
    let (leader, follower) = pair().await;
    let mut client = server(&follower).connect().await;
    assert_eq!(client.query("BEGIN").await, ["BEGIN", "ready T"]);
    assert_eq!(client.query("SHOW transaction_read_only").await[0], "on");
    assert_eq!(client.query("SELECT count(*) FROM t").await[0], "1");
    // The snapshot does not have later commits of the leader.
    server(&leader).connect().await.query("INSERT INTO t VALUES (2, 'two')").await;
    follower.follow();
    assert_eq!(client.query("SELECT count(*) FROM t").await[0], "1");
    assert_eq!(client.query("COMMIT").await, ["COMMIT", "ready I"]);
    assert_eq!(client.query("SELECT count(*) FROM t").await[0], "2");
    for statement in ["BEGIN READ WRITE", "START TRANSACTION READ WRITE"] {
        let lines = client.query(statement).await;
        assert!(lines[0].starts_with("ERROR 0A000"), "{statement}: {lines:?}");
    }
    assert_eq!(client.query("BEGIN READ ONLY; SELECT 1; COMMIT").await[1], "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn session_writes_once_its_node_leads() {
    let (_leader, follower) = pair().await;
    let mut client = server(&follower).connect().await;
    assert!(client.query("INSERT INTO t VALUES (2, 'two')").await[0].starts_with("ERROR 25006"));
    follower.lead();
    assert_eq!(client.query("SELECT pg_is_in_recovery()").await[0], "f");
    assert_eq!(client.query("INSERT INTO t VALUES (2, 'two')").await[0], "INSERT 0 1");
    assert_eq!(client.query("SHOW in_hot_standby").await[0], "off");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_end_when_the_node_is_deposed() {
    let (leader, follower) = pair().await;
    let mut client = server(&leader).connect().await;
    follower.lead();
    // The node finds out with its next write, whose transaction did not happen.
    let lines = client.query("INSERT INTO t VALUES (3, 'three')").await;
    assert!(lines[0].starts_with("ERROR 25006") || lines[0].starts_with("ERROR 57P01"), "{lines:?}");
    // The server then ends the service of the node.
    leader.service.stop().begin();
    let last = client.last().await;
    assert_eq!((last.tag, last.field(b'C').as_deref()), ('E', Some("57P01")));
    follower.follow();
    let mut other = server(&follower).connect().await;
    assert_eq!(other.query("SELECT count(*) FROM t").await[0], "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn write_by_http_on_a_follower_names_the_leader() {
    let (_leader, follower) = pair().await;
    let server = server(&follower);
    let write = json!({ "sql": "INSERT INTO t VALUES (2, 'two')" });
    let (status, problem) = crate::http::ask(&server, write).await;
    assert_eq!((status, problem["code"].as_str()), (503, Some("not_leader")), "{problem}");
    let (status, read) = crate::http::ask(&server, json!({ "sql": "SELECT count(*) FROM t" })).await;
    assert_eq!((status, &read["results"][0]["rows"]), (200, &json!([[1]])), "{read}");
}
