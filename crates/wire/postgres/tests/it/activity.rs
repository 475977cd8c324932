//! `pg_stat_activity`, and cancelling and terminating other connections by number.

use crate::client::{Client, Server, bind, execute, framed, parse, startup, sync, texts};

/// The number that the server gives a client.
async fn number(client: &mut Client) -> String {
    client.query("SELECT pg_backend_pid()").await.remove(0)
}

async fn tell(watcher: &mut Client, columns: &str, of: &str) -> String {
    watcher.query(&format!("SELECT {columns} FROM pg_stat_activity WHERE pid = {of}")).await.remove(0)
}

/// Waits until another client sees this state.
async fn until(watcher: &mut Client, columns: &str, of: &str, wanted: &str) {
    while tell(watcher, columns, of).await != wanted {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
}

async fn say(client: &mut Client, sql: &str) {
    client.send(&framed(b'Q', &texts(&[sql]))).await;
}

async fn heard(client: &mut Client) -> Vec<String> {
    client.until_ready().await.iter().map(|answer| answer.line()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_listed_with_their_state() {
    let server = Server::new();
    let mut ann = server.connect().await;
    let mut bob = server.dial();
    bob.send(&startup(&[("user", "bob"), ("application_name", "shop")])).await;
    bob.until_ready().await;
    let (of_ann, of_bob) = (number(&mut ann).await, number(&mut bob).await);
    assert_eq!(
        tell(
            &mut ann,
            "datname, usename, application_name, client_addr, client_port, backend_type, state, query",
            &of_bob
        )
        .await,
        "ropewalk|bob|shop|127.0.0.1|5|client backend|idle|SELECT pg_backend_pid()"
    );
    // A session sees itself as active.
    let own = "SELECT state, query FROM pg_stat_activity WHERE pid = pg_backend_pid()";
    assert_eq!(ann.query(own).await[0], format!("active|{own}"));
    let lines = ann.lines(&[parse("", own), bind("", "", &[]), execute("", 0), sync()].concat()).await;
    assert_eq!(lines[2], format!("active|{own}"));
    assert_eq!(tell(&mut bob, "state, query", &of_ann).await, format!("idle|{own}"));
    // A changed name is reported; a change that is rolled back is not.
    bob.query("SET application_name = 'till'").await;
    bob.query("BEGIN; SET application_name = 'never'; ROLLBACK").await;
    assert_eq!(tell(&mut ann, "application_name", &of_bob).await, "till");
    // States of transactions.
    let state = "state, xact_start IS NOT NULL, query_start >= xact_start, state_change >= query_start, backend_start <= xact_start";
    assert_eq!(tell(&mut ann, state, &of_bob).await, "idle|f|NULL|t|NULL");
    bob.query("BEGIN").await;
    bob.query("SELECT 1").await;
    assert_eq!(tell(&mut ann, state, &of_bob).await, "idle in transaction|t|t|t|t");
    bob.query("SELECT 1 / 0").await;
    assert_eq!(tell(&mut ann, state, &of_bob).await, "idle in transaction (aborted)|t|t|t|t");
    bob.query("ROLLBACK").await;
    assert_eq!(tell(&mut ann, "state, xact_start, wait_event", &of_bob).await, "idle|NULL|NULL");
    // A long text is truncated.
    let long = format!("SELECT '{}'", "x".repeat(2_000));
    bob.query(&long).await;
    assert_eq!(tell(&mut ann, "query", &of_bob).await, long[..1023]);
    // A closed session is no longer listed.
    drop(bob);
    while ann.query("SELECT count(*) FROM pg_stat_activity").await[0] != "1" {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_waiter_is_listed_and_cancelled() {
    let server = Server::new();
    let (mut ann, mut bob) = (server.connect().await, server.connect().await);
    for client in [&mut ann, &mut bob] {
        client.query("SET default_transaction_isolation = 'read committed'").await;
    }
    let of_bob = number(&mut bob).await;
    ann.query("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 0)").await;
    ann.query("BEGIN; UPDATE t SET v = 1").await;
    say(&mut bob, "UPDATE t SET v = 2").await;
    until(&mut ann, "state, wait_event_type, wait_event", &of_bob, "active|Lock|tuple").await;
    assert_eq!(ann.query(&format!("SELECT pg_cancel_backend({of_bob})")).await[0], "t");
    assert_eq!(heard(&mut bob).await, ["ERROR 57014: canceling statement due to user request", "ready I"]);
    assert_eq!(tell(&mut ann, "state, wait_event", &of_bob).await, "idle|NULL");
    // A request without a statement to cancel has no effect.
    ann.query(&format!("SELECT pg_cancel_backend({of_bob})")).await;
    assert_eq!(bob.query("SELECT v FROM t").await, ["0", "SELECT 1", "ready I"]);
    // By a query over all of them, including itself.
    let all = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_cancel%'";
    assert_eq!(ann.query(all).await, ["ERROR 57014: canceling statement due to user request", "ready E"]);
    ann.query("ROLLBACK").await;
    assert_eq!(ann.query("SELECT pg_cancel_backend(99), pg_cancel_backend(NULL)").await[0], "f|NULL");
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_terminated_in_any_state() {
    let ended = "ERROR 57P01: terminating connection due to administrator command";
    let server = Server::new();
    let mut ann = server.connect().await;
    ann.query("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 0)").await;
    for begun in ["", "BEGIN; UPDATE t SET v = 7", "BEGIN; SELECT 1 / 0"] {
        let mut bob = server.connect().await;
        let of_bob = number(&mut bob).await;
        if !begun.is_empty() {
            bob.query(begun).await;
        }
        // With a timeout, the session is gone when this returns.
        let end = format!("SELECT pg_terminate_backend({of_bob}, 60000)");
        assert_eq!(ann.query(&end).await[0], "t");
        let last = bob.last().await;
        assert_eq!((last.line().as_str(), last.field(b'S').as_deref()), (ended, Some("FATAL")));
        assert_eq!(ann.query("SELECT count(*) FROM pg_stat_activity").await[0], "1");
    }
    // A running, waiting or copying session gets no other error.
    for running in ["SELECT pg_sleep(600)", "UPDATE t SET v = 2", "COPY t FROM STDIN"] {
        let mut bob = server.connect().await;
        let of_bob = number(&mut bob).await;
        bob.query("SET default_transaction_isolation = 'read committed'").await;
        ann.query("BEGIN ISOLATION LEVEL READ COMMITTED; UPDATE t SET v = 1").await;
        say(&mut bob, running).await;
        until(&mut ann, "query, state", &of_bob, &format!("{running}|active")).await;
        if running.starts_with("UPDATE") {
            until(&mut ann, "wait_event", &of_bob, "tuple").await;
        }
        assert_eq!(ann.query(&format!("SELECT pg_terminate_backend({of_bob})")).await[0], "t");
        let mut lines = Vec::new();
        while let Some(answer) = bob.answer().await {
            lines.push(answer.line());
        }
        lines.retain(|line| line != "columns" && line != "G?");
        assert_eq!(lines, [ended], "{running}");
        ann.query("ROLLBACK").await;
    }
    assert_eq!(ann.query("SELECT v FROM t").await[0], "0");
    assert_eq!(
        ann.query(
            "SELECT pg_terminate_backend(99), pg_terminate_backend(99, 5), pg_terminate_backend(1, NULL)"
        )
        .await[0],
        "f|f|NULL"
    );
    assert_eq!(
        ann.query("SELECT pg_terminate_backend(99, -1)").await[0],
        "ERROR 22003: \"timeout\" must not be negative"
    );
    // A session may terminate itself.
    say(&mut ann, "SELECT pg_terminate_backend(pg_backend_pid())").await;
    assert_eq!(ann.answer().await.unwrap().line(), ended);
    assert_eq!(ann.answer().await, None);
}
