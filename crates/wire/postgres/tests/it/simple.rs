use ropewalk_postgres::PostgresSettings;

use crate::client::{Server, framed, texts};

#[tokio::test(flavor = "multi_thread")]
async fn statements_and_their_tags() {
    let mut client = Server::new().connect().await;
    assert_eq!(
        client.query("CREATE TABLE t (id int PRIMARY KEY, name text)").await,
        ["CREATE TABLE", "ready I"]
    );
    assert_eq!(client.query("INSERT INTO t VALUES (1, 'one'), (2, NULL)").await, ["INSERT 0 2", "ready I"]);
    assert_eq!(client.query("SELECT * FROM t ORDER BY id").await, ["1|one", "2|NULL", "SELECT 2", "ready I"]);
    assert_eq!(client.query("UPDATE t SET name = 'two' WHERE id = 2").await, ["UPDATE 1", "ready I"]);
    assert_eq!(
        client.query("DELETE FROM t WHERE id = 2 RETURNING name").await,
        ["two", "DELETE 1", "ready I"]
    );
    assert_eq!(client.query("").await, ["empty", "ready I"]);
    assert_eq!(client.query(" -- nothing\n;").await, ["empty", "ready I"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn several_statements_are_one_transaction() {
    let mut client = Server::new().connect().await;
    client.query("CREATE TABLE t (id int PRIMARY KEY)").await;
    let lines = client.query("INSERT INTO t VALUES (1); SELECT 1; INSERT INTO t VALUES (1); SELECT 2").await;
    assert_eq!(lines[..3], ["INSERT 0 1", "1", "SELECT 1"]);
    assert!(lines[3].starts_with("ERROR 23505"), "{lines:?}");
    assert_eq!(lines[4..], ["ready I"]);
    assert_eq!(client.query("SELECT count(*) FROM t").await[0], "0");
    let lines = client.query("BEGIN; INSERT INTO t VALUES (1); COMMIT; INSERT INTO t VALUES (1)").await;
    assert!(lines[3].starts_with("ERROR 23505"), "{lines:?}");
    assert_eq!(client.query("SELECT count(*) FROM t").await[0], "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn ready_for_query_reports_transaction_status() {
    let server = Server::new();
    let (mut client, mut other) = (server.connect().await, server.connect().await);
    client.query("CREATE TABLE t (id int PRIMARY KEY)").await;
    assert_eq!(client.query("BEGIN").await, ["BEGIN", "ready T"]);
    assert_eq!(client.query("BEGIN").await[0], "WARNING there is already a transaction in progress");
    assert_eq!(client.query("INSERT INTO t VALUES (1)").await, ["INSERT 0 1", "ready T"]);
    assert_eq!(client.query("SELECT * FROM t").await, ["1", "SELECT 1", "ready T"]);
    assert_eq!(other.query("SELECT * FROM t").await, ["SELECT 0", "ready I"]);
    let lines = client.query("SELECT nothing").await;
    assert!(lines[0].starts_with("ERROR 42703"), "{lines:?}");
    assert_eq!(lines[1], "ready E");
    assert!(client.query("SELECT 1").await[0].starts_with("ERROR 25P02"));
    assert_eq!(client.query("COMMIT").await, ["ROLLBACK", "ready I"]);
    assert_eq!(client.query("SELECT * FROM t").await, ["SELECT 0", "ready I"]);
    client.query("BEGIN; INSERT INTO t VALUES (2)").await;
    // A client that disconnects leaves no transaction open.
    drop(client);
    assert_eq!(other.query("INSERT INTO t VALUES (2)").await, ["INSERT 0 1", "ready I"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_have_severity_sqlstate_and_message() {
    let mut client = Server::new().connect().await;
    client.send(&framed(b'Q', &texts(&["SELECT 1/0"]))).await;
    let answers = client.until_ready().await;
    let error = answers.iter().find(|answer| answer.tag == 'E').unwrap();
    let field = |name| error.field(name);
    assert_eq!(field(b'S').as_deref(), Some("ERROR"));
    assert_eq!(field(b'V').as_deref(), Some("ERROR"));
    assert_eq!(field(b'C').as_deref(), Some("22012"));
    assert_eq!(field(b'M').as_deref(), Some("division by zero"));
    client.send(&framed(b'Q', &texts(&["SELECT jsonb '1'"]))).await;
    let answers = client.until_ready().await;
    let error = answers.iter().find(|answer| answer.tag == 'E');
    assert!(error.is_none_or(|error| error.field(b'C').unwrap().len() == 5));
}

#[tokio::test(flavor = "multi_thread")]
async fn conflicting_writers_are_retried() {
    let server = Server::new();
    let mut client = server.connect().await;
    client
        .query(
            "CREATE TABLE counters (id int PRIMARY KEY, n int NOT NULL); INSERT INTO counters VALUES (1, 0)",
        )
        .await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let server = server.clone();
        tasks.spawn(async move {
            let mut client = server.connect().await;
            let mut done = 0;
            while done < 20 {
                let lines = client.query("UPDATE counters SET n = n + 1 WHERE id = 1").await;
                // After many attempts a conflict error is allowed.
                assert!(lines[0] == "UPDATE 1" || lines[0].starts_with("ERROR 40001"), "{lines:?}");
                done += i32::from(lines[0] == "UPDATE 1");
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(client.query("SELECT n FROM counters").await[0], "160");
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_settings_are_reported() {
    let mut client = Server::new().connect().await;
    let lines = client.lines(&framed(b'Q', &texts(&["SET application_name = 'shop'"]))).await;
    assert_eq!(lines, ["SET", "setting application_name=shop", "ready I"]);
    assert_eq!(client.query("SHOW application_name").await[0], "shop");
    assert!(client.query("SET nonsense = 1").await[0].starts_with("ERROR 42704"));
}

#[tokio::test(flavor = "multi_thread")]
async fn large_results_arrive_completely() {
    let mut client = Server::new().connect().await;
    client.query("CREATE TABLE t (id int PRIMARY KEY, filler text)").await;
    let rows: Vec<String> = (0..5000).map(|id| format!("({id}, '{}')", "x".repeat(100))).collect();
    assert_eq!(client.query(&format!("INSERT INTO t VALUES {}", rows.join(","))).await[0], "INSERT 0 5000");
    let lines = client.query("SELECT * FROM t ORDER BY id").await;
    assert_eq!(lines.len(), 5002);
    assert!(lines[4999].starts_with("4999|xxx"));
}

/// Texts that differ only in their numbers share one plan, with the same results.
#[tokio::test(flavor = "multi_thread")]
async fn automatic_parameters_preserve_results() {
    let mut client = Server::new().connect().await;
    client.query("CREATE TABLE t (id int PRIMARY KEY, n bigint, s smallint, w text, x numeric)").await;
    for id in 1..=3 {
        let insert = format!("INSERT INTO t VALUES ({id}, -{id}000000, {id}, 'id = {id}', {id}.5);");
        assert_eq!(client.query(&insert).await, ["INSERT 0 1", "ready I"]);
        let row = format!("{id}|-{id}000000|{id}|id = {id}|{id}.5");
        assert_eq!(
            client.query(&format!("SELECT * FROM t WHERE id = {id}")).await,
            [&row, "SELECT 1", "ready I"]
        );
    }
    assert_eq!(client.query("SELECT * FROM t WHERE id = 3000000000").await, ["SELECT 0", "ready I"]);
    assert_eq!(client.query("SELECT n FROM t WHERE id = -1").await, ["SELECT 0", "ready I"]);
    assert_eq!(
        client.query("SELECT n + 1, 7 FROM t WHERE id = 2").await,
        ["-1999999|7", "SELECT 1", "ready I"]
    );
    assert_eq!(client.query("UPDATE t SET n = n + 3000000000 WHERE id = 1").await[0], "UPDATE 1");
    assert_eq!(client.query("UPDATE t SET n = n - 5 WHERE id = 1 RETURNING n").await[0], "2998999995");
    for (number, answer) in [(5, "UPDATE 1"), (70_000, "ERROR 22003"), (6, "UPDATE 1")] {
        let lines = client.query(&format!("UPDATE t SET s = {number} WHERE id = 2")).await;
        assert!(lines[0].starts_with(answer), "{lines:?}");
    }
    let lines = client.query("SELECT w FROM t WHERE w = 5").await;
    assert!(lines[0].starts_with("ERROR 42883"), "{lines:?}");
    // A failed transaction stays failed, and the next one works.
    client.query("BEGIN").await;
    assert!(client.query("INSERT INTO t (id) VALUES (1)").await[0].starts_with("ERROR 23505"));
    assert!(client.query("SELECT n FROM t WHERE id = 2").await[0].starts_with("ERROR 25P02"));
    assert!(client.query("SELECT s FROM t WHERE id = 2").await[0].starts_with("ERROR 25P02"));
    client.query("ROLLBACK").await;
    assert_eq!(client.query("SELECT s FROM t WHERE id = 2").await[0], "6");
    // Definitions change under the plan.
    client.query("ALTER TABLE t DROP COLUMN s, ADD COLUMN s text DEFAULT 'new'").await;
    assert_eq!(client.query("SELECT s FROM t WHERE id = 2").await[0], "new");
    client.query("DROP TABLE t").await;
    assert!(client.query("SELECT s FROM t WHERE id = 2").await[0].starts_with("ERROR 42P01"));
}

/// The memory for cached columns is a setting.
#[tokio::test(flavor = "multi_thread")]
async fn column_memory_limit_is_respected() {
    for column_memory in [0, 64 << 20] {
        let server = Server::with(PostgresSettings { column_memory, ..PostgresSettings::default() });
        let mut client = server.connect().await;
        client.query("CREATE TABLE t (id int PRIMARY KEY, v int)").await;
        client.query("INSERT INTO t SELECT n, n % 7 FROM generate_series(1, 10000) n").await;
        let answer = client.query("SELECT count(*) FROM t WHERE v = 3").await;
        assert_eq!(answer, ["1429", "SELECT 1", "ready I"]);
        let kept = ropewalk_sql::column_bytes(server.service.database());
        assert_eq!(kept > 0, column_memory > 0, "{kept} bytes");
    }
}
