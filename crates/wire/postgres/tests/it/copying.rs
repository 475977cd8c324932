use crate::client::{Client, Server, bind, execute, framed, parse, sync, texts};

fn data(bytes: &[u8]) -> Vec<u8> {
    framed(b'd', bytes)
}

fn done() -> Vec<u8> {
    framed(b'c', &[])
}

fn query(sql: &str) -> Vec<u8> {
    framed(b'Q', &texts(&[sql]))
}

const IN: &str = "COPY t FROM STDIN";

/// A server with the table, and one client that has begun to copy into it.
async fn copying() -> (Server, Client) {
    let server = Server::new();
    let mut client = server.connect().await;
    client.query("CREATE TABLE t (id int PRIMARY KEY, name text)").await;
    client.send(&query(IN)).await;
    let begun = client.answer().await.unwrap();
    assert_eq!((begun.tag, begun.body), ('G', vec![0, 0, 2, 0, 0, 0, 0]));
    (server, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_accepts_chunks_of_any_size() {
    let (_, mut client) = copying().await;
    let rows: String = (0..20_000).map(|id| format!("{id}\tname {id}\n")).collect();
    for piece in rows.as_bytes().chunks(777) {
        client.send(&data(piece)).await;
    }
    assert_eq!(client.lines(&done()).await, ["COPY 20000", "ready I"]);
    assert_eq!(client.query("SELECT count(*), max(name) FROM t").await[0], "20000|name 9999");
    // And out again: a message for each row.
    client.send(&query("COPY (SELECT * FROM t WHERE id < 3 ORDER BY id) TO STDOUT")).await;
    let answers = client.until_ready().await;
    assert_eq!((answers[0].tag, answers[0].body.as_slice()), ('H', [0, 0, 2, 0, 0, 0, 0].as_slice()));
    let rows: Vec<_> =
        answers.iter().filter(|answer| answer.tag == 'd').map(|row| row.body.clone()).collect();
    assert_eq!(rows, [b"0\tname 0\n", b"1\tname 1\n", b"2\tname 2\n"]);
    assert_eq!((answers[4].tag, answers[5].line().as_str()), ('c', "COPY 3"));
    client.send(&query("COPY t TO STDOUT (FORMAT binary)")).await;
    let answers = client.until_ready().await;
    assert_eq!(answers.iter().filter(|answer| answer.tag == 'd').count(), 20_001);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_copy_copies_nothing_and_skips_the_rest() {
    let (_, mut client) = copying().await;
    client.send(&data(b"1\tone\n")).await;
    let lines = client.lines(&framed(b'f', &texts(&["no more"]))).await;
    assert_eq!(lines, ["ERROR 57014: COPY from stdin failed: no more", "ready I"]);
    client.send(&[query(IN), data(b"1\tone\nx\ty\n"), data(b"2\ttwo\n"), done()].concat()).await;
    assert_eq!(client.answer().await.unwrap().tag, 'G');
    let answers = client.until_ready().await;
    assert_eq!(answers[0].field(b'C').as_deref(), Some("22P02"));
    assert_eq!(client.query("SELECT count(*) FROM t").await, ["0", "SELECT 1", "ready I"]);
    // Another statement during a COPY does not belong to it.
    client.send(&[query(IN), query("SELECT 1")].concat()).await;
    assert_eq!(client.answer().await.unwrap().tag, 'G');
    assert!(client.until_ready().await[0].line().starts_with("ERROR 08P01"));
    // In a transaction it fails the transaction.
    client.query("BEGIN").await;
    client.send(&[query(IN), data(b"1\n"), done()].concat()).await;
    assert_eq!(client.answer().await.unwrap().tag, 'G');
    let lines: Vec<_> = client.until_ready().await.iter().map(|answer| answer.line()).collect();
    assert!(lines[0].starts_with("ERROR 22P04"), "{lines:?}");
    assert_eq!(lines[1], "ready E");
    client.query("ROLLBACK").await;
    assert_eq!(client.query("COPY t TO STDOUT").await.last().unwrap(), "ready I");
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_works_in_the_extended_protocol() {
    let server = Server::new();
    let mut client = server.connect().await;
    client.query("CREATE TABLE t (id int PRIMARY KEY, name text)").await;
    // As libpq does it: a Sync after the Execute, and another after the data.
    client.send(&[parse("", IN), bind("", "", &[]), execute("", 0), sync()].concat()).await;
    for tag in ['1', '2', 'G'] {
        assert_eq!(client.answer().await.unwrap().tag, tag);
    }
    let lines = client.lines(&[data(b"1\tone\n"), done(), sync()].concat()).await;
    assert_eq!(lines, ["COPY 1", "ready I"]);
    // After an error messages are skipped until Sync.
    client.send(&[parse("", IN), bind("", "", &[]), execute("", 0), sync()].concat()).await;
    for tag in ['1', '2', 'G'] {
        assert_eq!(client.answer().await.unwrap().tag, tag);
    }
    let lines = client.lines(&[data(b"1\ttwice\n"), data(b"2\n"), done(), sync()].concat()).await;
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("ERROR 23505") || lines[0].starts_with("ERROR 22P04"), "{lines:?}");
    let lines = client
        .lines(
            &[parse("", "COPY t TO STDOUT (FORMAT csv)"), bind("", "", &[]), execute("", 0), sync()].concat(),
        )
        .await;
    assert_eq!(lines, ["parsed", "bound", "H?", "d?", "c?", "COPY 1", "ready I"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn client_killed_during_copy_has_copied_nothing() {
    let (server, mut client) = copying().await;
    for id in 0..1000 {
        client.send(&data(format!("{id}\t{}\n", "x".repeat(200)).as_bytes())).await;
    }
    drop(client);
    let mut other = server.connect().await;
    assert_eq!(other.query("SELECT count(*) FROM t").await[0], "0");
    assert_eq!(other.query("INSERT INTO t VALUES (1, 'there is room')").await[0], "INSERT 0 1");
    // A client that reads nothing blocks no other one.
    let rows: Vec<String> = (2..40_000).map(|id| format!("({id}, '{}')", "x".repeat(100))).collect();
    other.query(&format!("INSERT INTO t VALUES {}", rows.join(","))).await;
    let mut deaf = Vec::new();
    for _ in 0..20 {
        let mut client = server.connect().await;
        client.send(&query("COPY t TO STDOUT")).await;
        deaf.push(client);
    }
    assert_eq!(other.query("SELECT count(*) FROM t a JOIN t b ON a.id = b.id + 1").await[0], "39998");
    drop(deaf);
    assert_eq!(other.query("SELECT 1").await[0], "1");
}
