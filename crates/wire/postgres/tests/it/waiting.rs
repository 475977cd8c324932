//! Clients that wait for each other's row locks.

use crate::client::{Client, Server, framed, texts};

async fn waits(server: &Server, count: usize) {
    let waiting =
        || server.service.database().engine().locks().iter().filter(|lock| !lock.is_granted).count();
    while waiting() < count {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
}

async fn reader_committed(server: &Server) -> Client {
    let mut client = server.connect().await;
    client.query("SET default_transaction_isolation = 'read committed'").await;
    client
}

/// Far more waiters than threads, of which the owner needs one to continue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_wait_for_one_row_while_its_owner_continues() {
    const CLIENTS: usize = 300;
    let server = Server::new();
    let mut owner = reader_committed(&server).await;
    owner.query("CREATE TABLE c (id int PRIMARY KEY, n int); INSERT INTO c VALUES (1, 0)").await;
    owner.query("BEGIN; UPDATE c SET n = n + 1 WHERE id = 1").await;
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let mut client = reader_committed(&server).await;
        clients.push(tokio::spawn(async move {
            let update = if number % 2 == 0 {
                "UPDATE c SET n = n + 1 WHERE id = 1"
            } else {
                "UPDATE c SET n = n + 1"
            };
            assert_eq!(
                client.query(&format!("BEGIN; {update}; COMMIT")).await,
                ["BEGIN", "UPDATE 1", "COMMIT", "ready I"]
            );
            assert_eq!(client.query(update).await, ["UPDATE 1", "ready I"]);
        }));
    }
    waits(&server, CLIENTS).await;
    assert_eq!(owner.query("SELECT n FROM c").await, ["1", "SELECT 1", "ready T"]);
    assert_eq!(owner.query("COMMIT").await, ["COMMIT", "ready I"]);
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(owner.query("SELECT n FROM c").await[0], (1 + 2 * CLIENTS).to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn disconnect_releases_row_to_next_waiter() {
    let server = Server::new();
    let (mut ann, mut bob) = (reader_committed(&server).await, reader_committed(&server).await);
    ann.query("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 0)").await;
    ann.query("BEGIN; UPDATE t SET v = 1").await;
    bob.send(&framed(b'Q', &texts(&["UPDATE t SET v = v + 10 RETURNING v"]))).await;
    waits(&server, 1).await;
    drop(ann);
    let lines: Vec<String> = bob.until_ready().await.iter().map(|answer| answer.line()).collect();
    assert_eq!(lines[1..], ["10", "UPDATE 1", "ready I"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_wait_times_out_and_fails_the_transaction() {
    let server = Server::new();
    let (mut ann, mut bob) = (reader_committed(&server).await, reader_committed(&server).await);
    ann.query("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 0)").await;
    ann.query("BEGIN; UPDATE t SET v = 1").await;
    bob.query("SET lock_timeout = '2ms'").await;
    bob.query("BEGIN").await;
    let lines = bob.query("DELETE FROM t WHERE id = 1").await;
    assert_eq!(lines, ["ERROR 55P03: canceling statement due to lock timeout", "ready E"]);
    bob.query("ROLLBACK").await;
    let lines = bob.query("SELECT 1; DELETE FROM t WHERE id = 1; SELECT 2").await;
    assert_eq!(lines[2..], ["ERROR 55P03: canceling statement due to lock timeout", "ready I"]);
    ann.query("ROLLBACK").await;
    assert_eq!(bob.query("DELETE FROM t WHERE id = 1").await, ["DELETE 1", "ready I"]);
}
