use proptest::prelude::*;
use ropewalk::Database;
use ropewalk_postgres::PostgresSettings;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::client::{Server, execute, framed, parse, startup, sync, texts};

#[tokio::test(flavor = "multi_thread")]
async fn absurd_lengths_end_the_connection() {
    for length in [-1_i32, 0, 3, i32::MAX, 1 << 30] {
        let mut client = Server::new().connect().await;
        client.send(&[vec![b'Q'], length.to_be_bytes().to_vec()].concat()).await;
        let last = client.last().await;
        assert_eq!(last.field(b'C').as_deref(), Some("54000"), "{length}");
    }
    for length in [-1_i32, 0, 7, 10_005, i32::MAX] {
        let mut client = Server::new().dial();
        client.send(&length.to_be_bytes()).await;
        assert_eq!(client.stream.read(&mut [0; 1]).await.unwrap(), 0, "{length}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_messages_are_skipped() {
    let mut client = Server::new().connect().await;
    for tag in 0..=255_u8 {
        // Queries, Terminate, and messages with individual replies are tested elsewhere.
        if b"QXSH".contains(&tag) {
            continue;
        }
        let lines = client.lines(&[framed(tag, &[0xff, 0, 1]), sync()].concat()).await;
        assert_eq!(lines.last().unwrap(), "ready I", "{tag}");
    }
    assert!(client.query("SELECT 1").await[0] == "1");
    let lines = client.lines(&framed(b'Q', b"no end")).await;
    assert!(lines[0].starts_with("ERROR 08P01"), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_clients_write_at_once() {
    let server = Server::new();
    let mut first = server.connect().await;
    first.query("CREATE TABLE t (id int PRIMARY KEY)").await;
    let mut clients = Vec::new();
    for _ in 0..1000 {
        clients.push(server.connect().await);
    }
    for (id, client) in clients.iter_mut().enumerate() {
        client.send(&framed(b'Q', &texts(&[&format!("INSERT INTO t VALUES ({id})")]))).await;
    }
    for client in &mut clients {
        let lines: Vec<String> = client.until_ready().await.iter().map(|answer| answer.line()).collect();
        assert_eq!(lines, ["INSERT 0 1", "ready I"]);
    }
    assert_eq!(first.query("SELECT count(*) FROM t").await[0], "1000");
}

/// Messages each of which is valid or nearly so.
fn messages() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let one = prop_oneof![
        any::<Vec<u8>>().prop_map(|bytes| framed(b'B', &bytes)),
        (any::<u8>().prop_filter("Terminate", |tag| *tag != b'X'), any::<Vec<u8>>())
            .prop_map(|(tag, bytes)| framed(tag, &bytes)),
        Just(parse("", "SELECT $1::int")),
        Just(parse("s", "INSERT INTO t VALUES ($1)")),
        "[a-z ';0-9()]{0,40}".prop_map(|sql| parse("", &sql)),
        "[A-Z ';0-9()$]{0,40}".prop_map(|sql| framed(b'Q', &texts(&[&sql]))),
        Just(execute("", 1)),
        Just(sync()),
    ];
    proptest::collection::vec(one, 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_client_sends_the_next_one_is_served(messages in messages(), cut in 0_usize..40) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let server = Server::new();
            let mut other = server.connect().await;
            other.query("CREATE TABLE t (id int PRIMARY KEY)").await;
            let mut client = server.dial();
            let mut bytes = startup(&[("user", "ann")]);
            bytes.extend(messages.concat());
            bytes.truncate(bytes.len().saturating_sub(cut));
            client.stream.write_all(&bytes).await.unwrap();
            client.stream.shutdown().await.unwrap();
            let mut answers = Vec::new();
            client.stream.read_to_end(&mut answers).await.unwrap();
            assert_eq!(other.query("SELECT 1").await[0], "1");
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn corrupt_file_is_named_relative_to_the_database() {
    let dir = tempfile::tempdir().unwrap();
    let fill = "INSERT INTO t SELECT i, repeat('x' || i, 60) FROM generate_series(1, 2000) AS i";
    {
        let db = Database::open(dir.path()).unwrap();
        let mut session = ropewalk_sql::Session::new(db.clone());
        session.execute("CREATE TABLE t (a int PRIMARY KEY, b text)", &[]).unwrap();
        session.execute(fill, &[]).unwrap();
        db.compact().unwrap();
    }
    let runs = std::fs::read_dir(dir.path().join("store")).unwrap().map(|entry| entry.unwrap().path());
    let largest = runs.max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let mut bytes = std::fs::read(&largest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&largest, &bytes).unwrap();
    let server = Server::over(Database::open(dir.path()).unwrap(), PostgresSettings::default());
    let mut client = server.connect().await;
    let said = client.query("SELECT count(b) FROM t WHERE b <> ''").await.join("\n");
    let file = largest.file_name().unwrap().to_str().unwrap();
    assert!(said.starts_with("ERROR XX001"), "{said}");
    assert!(said.contains(&format!("store/{file} at byte")), "{said}");
    assert!(!said.contains(dir.path().to_str().unwrap()), "{said}");
}
