use std::time::Duration;

use ropewalk_postgres::PostgresSettings;

use crate::client::{Server, bind, execute, framed, parse, startup, sync, texts};

#[tokio::test(flavor = "multi_thread")]
async fn notifications_reach_listeners() {
    let server = Server::new();
    let (mut ann, mut bob) = (server.connect().await, server.connect().await);
    assert_eq!(ann.query("LISTEN orders").await, ["LISTEN", "ready I"]);
    let listening = "SELECT * FROM pg_listening_channels()";
    assert_eq!(ann.query(listening).await, ["orders", "SELECT 1", "ready I"]);
    assert_eq!(bob.query(listening).await, ["SELECT 0", "ready I"]);
    let numbers = [ann.query("SELECT pg_backend_pid()").await, bob.query("SELECT pg_backend_pid()").await];
    assert_ne!(numbers[0], numbers[1]);
    assert_eq!(bob.query("NOTIFY orders, 'one'").await, ["NOTIFY", "ready I"]);
    // It arrives without a query.
    assert_eq!(ann.answer().await.unwrap().line(), "heard orders one");
    // Notifications are sent at commit; those rolled back are never sent.
    bob.query("BEGIN; NOTIFY orders, 'two'; SAVEPOINT s; NOTIFY orders, 'never'; ROLLBACK TO s").await;
    assert_eq!(ann.query("SELECT 1").await, ["1", "SELECT 1", "ready I"]);
    bob.query("COMMIT").await;
    assert_eq!(ann.answer().await.unwrap().line(), "heard orders two");
    bob.query("BEGIN; NOTIFY orders, 'lost'; ROLLBACK").await;
    // Inside a transaction notifications are delayed.
    ann.query("BEGIN").await;
    bob.lines(
        &[
            parse("", "SELECT pg_notify($1, $2)"),
            bind("", "", &[Some("orders"), Some("three")]),
            execute("", 0),
            sync(),
        ]
        .concat(),
    )
    .await;
    assert_eq!(ann.query("SELECT 1").await, ["1", "SELECT 1", "ready T"]);
    let lines = ann.query("COMMIT").await;
    assert_eq!(lines, ["COMMIT", "ready I"]);
    assert_eq!(ann.answer().await.unwrap().line(), "heard orders three");
    // A connection receives its own notifications.
    let lines = ann.query("NOTIFY orders, 'mine'").await;
    assert_eq!(lines, ["NOTIFY", "ready I"]);
    assert_eq!(ann.answer().await.unwrap().line(), "heard orders mine");
    ann.query("UNLISTEN *").await;
    bob.query("NOTIFY orders, 'late'").await;
    assert_eq!(ann.query("SELECT 1").await, ["1", "SELECT 1", "ready I"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sleeping_statement_is_cancelled() {
    let server = Server::with(PostgresSettings::default());
    let mut client = server.dial();
    client.start(&[("user", "ann")]).await;
    let answers = client.until_ready().await;
    let key = answers.iter().find(|answer| answer.tag == 'K').unwrap().body.clone();
    assert_eq!(client.query("SELECT pg_sleep(0.01)").await, ["", "SELECT 1", "ready I"]);
    client.send(&framed(b'Q', &texts(&["SELECT pg_sleep(600)"]))).await;
    let cancelled = async {
        // Another client retries the cancel, since the statement may not have begun.
        loop {
            let mut canceller = server.dial();
            canceller
                .send(&[16_i32.to_be_bytes().as_slice(), &80_877_102_i32.to_be_bytes(), &key].concat())
                .await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        answers = client.until_ready() => {
            assert!(answers.iter().any(|answer| answer.line().starts_with("ERROR 57014")), "{answers:?}");
        }
        () = cancelled => {}
    }
    assert_eq!(client.query("SET statement_timeout = '50ms'; SELECT pg_sleep(600)").await.len(), 3);
    // While one statement sleeps other clients are served.
    let mut sleepers = Vec::new();
    for _ in 0..4 {
        let mut sleeper = server.dial();
        sleeper
            .send(&[startup(&[("user", "ann")]), framed(b'Q', &texts(&["SELECT pg_sleep(1)"]))].concat())
            .await;
        sleepers.push(sleeper);
    }
    let mut other = server.connect().await;
    other.query("CREATE TABLE t (id int PRIMARY KEY)").await;
    assert_eq!(other.query("SELECT * FROM t WHERE id = 1").await, ["SELECT 0", "ready I"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_notifications_arrive_in_commit_order() {
    const SPEAKERS: usize = 8;
    const TURNS: usize = 25;
    let server = Server::new();
    let mut ann = server.connect().await;
    ann.query("CREATE TABLE said (n int PRIMARY KEY, v bigint); INSERT INTO said VALUES (1, 0)").await;
    ann.query("LISTEN c").await;
    let mut clients = Vec::new();
    for _ in 0..SPEAKERS {
        clients.push(server.connect().await);
    }
    let speakers = clients.into_iter().map(|mut client| {
        tokio::spawn(async move {
            client.query("SET default_transaction_isolation = 'read committed'").await;
            for _ in 0..TURNS {
                // The row is passed from commit to commit, so its number is their order.
                client.query("BEGIN").await;
                let counted = client.query("UPDATE said SET v = v + 1 WHERE n = 1 RETURNING v").await;
                client.query(&format!("NOTIFY c, '{}'", counted[0])).await;
                assert_eq!(client.query("COMMIT").await, ["COMMIT", "ready I"]);
            }
        })
    });
    for speaker in speakers.collect::<Vec<_>>() {
        speaker.await.unwrap();
    }
    for number in 1..=SPEAKERS * TURNS {
        assert_eq!(ann.answer().await.unwrap().line(), format!("heard c {number}"));
    }
}
