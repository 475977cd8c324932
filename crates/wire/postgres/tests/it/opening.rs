use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use ropewalk_auth::{Caller, Right, Roles};
use ropewalk_postgres::PostgresSettings;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::client::{Answer, Client, Server, describe, framed, parse, startup, sync, texts};

#[tokio::test(flavor = "multi_thread")]
async fn startup_reports_settings_and_key_data() {
    let mut client = Server::new().dial();
    client.start(&[("user", "ann"), ("application_name", "psql"), ("database", "ropewalk")]).await;
    let answers = client.until_ready().await;
    let settings: Vec<String> = answers.iter().filter(|a| a.tag == 'S').map(Answer::line).collect();
    for expected in ["setting client_encoding=UTF8", "setting application_name=psql", "setting TimeZone=UTC"]
    {
        assert!(settings.iter().any(|found| found == expected), "{settings:?}");
    }
    assert!(settings.iter().any(|found| found.starts_with("setting server_version=15.")), "{settings:?}");
    assert!(answers.iter().any(|answer| answer.tag == 'K' && answer.body.len() == 8));
    assert_eq!(answers.last().unwrap().line(), "ready I");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_startup_messages_are_rejected() {
    for (settings, code) in [
        (vec![("user", "ann"), ("database", "elsewhere")], "3D000"),
        (vec![("database", "ropewalk")], "28000"),
        (vec![("user", "ann"), ("nonsense", "1")], "42704"),
        (vec![("user", "ann"), ("client_encoding", "LATIN1")], "22023"),
        (vec![("user", "ann"), ("replication", "database")], "0A000"),
    ] {
        let mut client = Server::new().dial();
        client.start(&settings).await;
        let last = client.last().await;
        assert_eq!((last.field(b'S').unwrap().as_str(), last.field(b'C').unwrap().as_str()), ("FATAL", code));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn encryption_without_a_certificate_is_declined() {
    let mut client = Server::new().dial();
    for code in [80_877_103_i32, 80_877_104] {
        client.send(&[8_i32.to_be_bytes(), code.to_be_bytes()].concat()).await;
        assert_eq!(client.stream.read_u8().await.unwrap(), b'N');
    }
    client.start(&[("user", "ann")]).await;
    assert_eq!(client.until_ready().await.last().unwrap().line(), "ready I");
}

#[tokio::test(flavor = "multi_thread")]
async fn newer_protocol_is_negotiated_down() {
    let mut client = Server::new().dial();
    let mut message = startup(&[("user", "ann"), ("_pq_.new", "1")]);
    message[4..8].copy_from_slice(&((3_i32 << 16) + 2).to_be_bytes());
    client.send(&message).await;
    let answers = client.until_ready().await;
    assert_eq!(answers[0].tag, 'v');
    assert_eq!(answers[0].body, [vec![0, 0, 0, 0, 0, 0, 0, 1], texts(&["_pq_.new"])].concat());
}

fn keyed(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}

/// A login as by libpq; returns the server's last reply.
pub(crate) async fn login(client: &mut Client, user: &str, password: &str) -> Answer {
    client.start(&[("user", user)]).await;
    let asked = client.answer().await.unwrap();
    assert_eq!(asked.body, [10_i32.to_be_bytes().to_vec(), texts(&["SCRAM-SHA-256", ""])].concat());
    let bare = "n=,r=abcdef";
    let first = format!("n,,{bare}");
    let mut body = texts(&["SCRAM-SHA-256"]);
    body.extend((first.len() as i32).to_be_bytes());
    body.extend(first.as_bytes());
    client.send(&framed(b'p', &body)).await;
    let challenge = client.answer().await.unwrap();
    if challenge.tag == 'E' {
        return challenge;
    }
    let challenge = String::from_utf8(challenge.body[4..].to_vec()).unwrap();
    let field = |name: &str| challenge.split(',').find_map(|part| part.strip_prefix(name)).unwrap();
    let mut salted = [0; 32];
    let salt = STANDARD.decode(field("s=")).unwrap();
    pbkdf2::pbkdf2_hmac::<Sha256>(password.as_bytes(), &salt, field("i=").parse().unwrap(), &mut salted);
    let client_key = keyed(&salted, b"Client Key");
    let without = format!("c=biws,r={}", field("r="));
    let messages = format!("{bare},{challenge},{without}");
    let sign = keyed(&Sha256::digest(&client_key), messages.as_bytes());
    let proof: Vec<u8> = client_key.iter().zip(sign).map(|(key, sign)| key ^ sign).collect();
    client.send(&framed(b'p', format!("{without},p={}", STANDARD.encode(proof)).as_bytes())).await;
    let verdict = client.answer().await.unwrap();
    if verdict.tag == 'R' {
        let signature = keyed(&keyed(&salted, b"Server Key"), messages.as_bytes());
        assert_eq!(verdict.body[4..], *format!("v={}", STANDARD.encode(signature)).as_bytes());
    }
    verdict
}

#[tokio::test(flavor = "multi_thread")]
async fn passwords_and_rights() {
    let server = Server::new();
    let access = server.service.access();
    let all = Caller::everybody();
    let mut owner = server.connect().await;
    owner.query("CREATE TABLE t (id int PRIMARY KEY)").await;
    for (name, rights) in [("reader", vec![Right::Read]), ("writer", vec![Right::Read, Right::Append])] {
        let roles = Roles::from([("*".to_owned(), rights.into_iter().collect())]);
        access.create_user(&all, name, "secret", roles).await.unwrap();
    }
    // Anonymous connections lose access once there are users.
    assert!(owner.query("SELECT 1").await[0].starts_with("ERROR 28P01"));
    let mut wrong = server.dial();
    let refused = login(&mut wrong, "reader", "guess").await;
    assert_eq!(refused.field(b'C').as_deref(), Some("28P01"));
    assert_eq!(refused.field(b'M').as_deref(), Some("password authentication failed for user \"reader\""));
    assert_eq!(login(&mut server.dial(), "nobody", "secret").await.field(b'C').as_deref(), Some("28P01"));

    let mut reader = server.dial();
    assert_eq!(login(&mut reader, "reader", "secret").await.tag, 'R');
    reader.until_ready().await;
    assert_eq!(reader.query("SELECT * FROM t").await[0], "SELECT 0");
    assert!(reader.query("INSERT INTO t VALUES (1)").await[0].starts_with("ERROR 42501"));
    assert!(reader.query("DROP TABLE t").await[0].starts_with("ERROR 42501"));
    assert_eq!(reader.query("BEGIN").await[0], "BEGIN");

    let mut writer = server.dial();
    login(&mut writer, "writer", "secret").await;
    writer.until_ready().await;
    assert_eq!(writer.query("INSERT INTO t VALUES (1)").await[0], "INSERT 0 1");
    assert!(writer.query("CREATE TABLE u (id int PRIMARY KEY)").await[0].starts_with("ERROR 42501"));
    access.drop_user(&all, "writer").await.unwrap();
    assert!(writer.query("INSERT INTO t VALUES (2)").await[0].starts_with("ERROR 28P01"));
}

#[tokio::test(start_paused = true)]
async fn silent_clients_are_disconnected_unless_idle() {
    let settings = PostgresSettings {
        opening_time: Duration::from_secs(5),
        transaction_idle_time: Duration::from_secs(5),
        ..PostgresSettings::default()
    };
    let server = Server::with(settings);
    // Before login.
    let mut silent = server.dial();
    assert_eq!(silent.stream.read(&mut [0; 1]).await.unwrap(), 0);
    // In the middle of a message.
    let mut slow = server.connect().await;
    slow.send(b"Q\0\0\0\x20SELECT").await;
    assert_eq!(slow.stream.read(&mut [0; 1]).await.unwrap(), 0);
    // In a transaction.
    let mut idle = server.connect().await;
    idle.query("BEGIN").await;
    assert_eq!(idle.last().await.field(b'C').as_deref(), Some("25P03"));
    // Outside of one it may be silent.
    let mut patient = server.connect().await;
    tokio::time::sleep(Duration::from_secs(100_000)).await;
    assert_eq!(patient.query("SELECT 1").await[0], "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_is_reported_to_clients() {
    let server = Server::new();
    let mut client = server.connect().await;
    server.service.stop().begin();
    let last = client.last().await;
    assert_eq!((last.field(b'S').as_deref(), last.field(b'C').as_deref()), (Some("FATAL"), Some("57P01")));
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_beyond_the_limit_get_an_error() {
    let server = Server::new();
    let (mut ours, theirs) = tokio::io::duplex(1 << 16);
    let postgres = server.postgres.clone();
    tokio::spawn(async move { postgres.turn_away(theirs, None).await });
    ours.write_all(&startup(&[("user", "ann")])).await.unwrap();
    assert_eq!(Client { stream: ours }.last().await.field(b'C').as_deref(), Some("53300"));
}

/// The beginning of a password message of 16 MiB.
const ANNOUNCED: &[u8] = b"p\x01\0\0\0";

#[tokio::test(start_paused = true)]
async fn c3_announced_length_before_login_reserves_nothing() {
    let server = Server::new();
    let access = server.service.access();
    access.create_user(&Caller::everybody(), "ann", "secret", Roles::new()).await.unwrap();
    let memory = server.service.request_memory();
    let free = memory.available_bytes();
    for _ in 0..17 {
        let mut client = server.dial();
        client.start(&[("user", "ann")]).await;
        client.send(ANNOUNCED).await;
        // More than a login needs: the server disconnects.
        while client.answer().await.is_some_and(|answer| answer.tag == 'R') {}
        assert_eq!(memory.available_bytes(), free);
    }
}

#[tokio::test(start_paused = true)]
async fn m6_message_has_one_deadline() {
    let server = Server::new();
    let mut slow = server.connect().await;
    slow.send(b"Q\0\0\x10\0SELECT").await;
    let mut sent = 0;
    while slow.stream.write_all(b" ").await.is_ok() {
        tokio::time::sleep(Duration::from_secs(7)).await;
        sent += 1;
        assert!(sent < 30, "still open after {sent} bytes");
    }
    let memory = server.service.request_memory();
    let mut announced = server.connect().await;
    let free = memory.available_bytes();
    announced.send(b"Q\0\xff\0\0SELECT").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(memory.available_bytes(), free);
}

/// A client that logged in as `user`, whose password is "secret".
async fn logged_in(server: &Server, user: &str) -> Client {
    let mut client = server.dial();
    assert_eq!(login(&mut client, user, "secret").await.tag, 'R');
    client.until_ready().await;
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn l1_session_ends_when_its_user_is_recreated_or_its_password_changes() {
    let server = Server::new();
    let access = server.service.access();
    let all = Caller::everybody();
    let roles = |right| Roles::from([("*".to_owned(), [right].into_iter().collect())]);
    for name in ["again", "changed", "promoted"] {
        access.create_user(&all, name, "secret", roles(Right::Read)).await.unwrap();
    }
    let mut again = logged_in(&server, "again").await;
    let mut changed = logged_in(&server, "changed").await;
    let mut promoted = logged_in(&server, "promoted").await;
    for client in [&mut again, &mut changed, &mut promoted] {
        assert_eq!(client.query("SELECT 1").await[0], "1");
    }
    access.drop_user(&all, "again").await.unwrap();
    access.create_user(&all, "again", "secret", roles(Right::Admin)).await.unwrap();
    access.set_password(&all, "changed", "another").await.unwrap();
    access.update_user(&all, "promoted", None, |_| {}).await.unwrap();
    assert!(again.query("SELECT 1").await[0].starts_with("ERROR 28P01"));
    assert!(changed.query("SELECT 1").await[0].starts_with("ERROR 28P01"));
    assert_eq!(promoted.query("SELECT 1").await[0], "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn l2_rights_are_checked_before_parse_and_describe() {
    let server = Server::new();
    let access = server.service.access();
    let all = Caller::everybody();
    let mut owner = server.connect().await;
    owner.query("CREATE TABLE t (id int PRIMARY KEY)").await;
    access.create_user(&all, "nothing", "secret", Roles::new()).await.unwrap();
    let writes = Roles::from([("*".to_owned(), [Right::Append].into_iter().collect())]);
    access.create_user(&all, "writer", "secret", writes).await.unwrap();
    let mut nothing = logged_in(&server, "nothing").await;
    for sql in ["SELECT * FROM t", "SELECT * FROM missing", "SELECT 1 WHERE 'x' ~ '(\\w{60})'"] {
        assert!(nothing.query(sql).await[0].starts_with("ERROR 42501"), "{sql}");
        nothing.send(&[parse("", sql), describe(b'S', ""), sync()].concat()).await;
        let answers = nothing.until_ready().await;
        assert_eq!(answers.iter().map(|answer| answer.tag).collect::<String>(), "EZ", "{sql}");
        assert_eq!(answers[0].field(b'C').as_deref(), Some("42501"), "{sql}");
    }
    assert_eq!(nothing.query("BEGIN").await[0], "BEGIN");
    let mut writer = logged_in(&server, "writer").await;
    assert_eq!(writer.query("INSERT INTO t VALUES (1)").await[0], "INSERT 0 1");
    assert!(writer.query("UPDATE t SET id = id RETURNING *").await[0].starts_with("ERROR 42501"));
    // A withdrawn right also affects existing statements.
    writer.query("PREPARE p AS INSERT INTO t VALUES (2)").await;
    access.update_user(&all, "writer", None, |roles| roles.clear()).await.unwrap();
    assert!(writer.query("EXECUTE p").await[0].starts_with("ERROR 42501"));
}
