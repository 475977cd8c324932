use crate::client::{Server, bind, describe, execute, framed, parse, sync, texts};

async fn lines(client: &mut crate::client::Client, messages: &[Vec<u8>]) -> Vec<String> {
    client.lines(&messages.concat()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn parse_bind_describe_execute() {
    let mut client = Server::new().connect().await;
    client.query("CREATE TABLE t (id int PRIMARY KEY, name text); INSERT INTO t VALUES (1, 'one')").await;
    let found = lines(
        &mut client,
        &[
            parse("s", "SELECT name, id FROM t WHERE id = $1"),
            describe(b'S', "s"),
            bind("", "s", &[Some("1")]),
            describe(b'P', ""),
            execute("", 0),
            sync(),
        ],
    )
    .await;
    let expected = ["parsed", "parameters", "columns", "bound", "columns", "one|1", "SELECT 1", "ready I"];
    assert_eq!(found, expected);
    // It may be run again with other parameters, without another description.
    let again = [bind("", "s", &[Some("2")]), execute("", 0), bind("", "s", &[None]), execute("", 0), sync()];
    assert_eq!(lines(&mut client, &again).await, ["bound", "SELECT 0", "bound", "SELECT 0", "ready I"]);
    let closed = [framed(b'C', b"Ss\0"), framed(b'C', b"Snever\0"), bind("", "s", &[Some("1")]), sync()];
    let found = lines(&mut client, &closed).await;
    assert_eq!(found[..2], ["closed", "closed"]);
    assert!(found[2].starts_with("ERROR 26000"), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn describe_reports_types() {
    let mut client = Server::new().connect().await;
    client.query("CREATE TABLE t (id bigint PRIMARY KEY, price numeric(10,2), tags text[])").await;
    let sql = "SELECT id, price, tags FROM t WHERE id = $1 AND price > $2";
    client.send(&[parse("", sql), describe(b'S', ""), sync()].concat()).await;
    let answers = client.until_ready().await;
    assert_eq!(
        answers[1].body,
        [vec![0, 2], 20_i32.to_be_bytes().to_vec(), 1700_i32.to_be_bytes().to_vec()].concat()
    );
    let columns = &answers[2].body;
    let number = |at: usize| i32::from_be_bytes(columns[at..at + 4].try_into().unwrap());
    let (id, price, tags) = (2 + 3, 2 + 3 + 18 + 6, 2 + 3 + 18 + 6 + 18 + 5);
    assert_eq!((number(id + 6), number(price + 6), number(tags + 6)), (20, 1700, 1009));
    assert_eq!((number(id + 12), number(price + 12)), (-1, (10 << 16 | 2) + 4));
}

#[tokio::test(flavor = "multi_thread")]
async fn portals_return_rows_in_batches() {
    let mut client = Server::new().connect().await;
    client.query("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1), (2), (3), (4), (5)").await;
    client.query("BEGIN").await;
    let first = [parse("", "SELECT id FROM t ORDER BY id"), bind("p", "", &[]), execute("p", 2), sync()];
    assert_eq!(lines(&mut client, &first).await, ["parsed", "bound", "1", "2", "suspended", "ready T"]);
    assert_eq!(lines(&mut client, &[execute("p", 2), sync()]).await, ["3", "4", "suspended", "ready T"]);
    assert_eq!(lines(&mut client, &[execute("p", 2), sync()]).await, ["5", "SELECT 1", "ready T"]);
    assert_eq!(lines(&mut client, &[execute("p", 2), sync()]).await, ["SELECT 0", "ready T"]);
    client.query("COMMIT").await;
    let gone = lines(&mut client, &[execute("p", 2), sync()]).await;
    assert!(gone[0].starts_with("ERROR 34000"), "{gone:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn open_portals_hold_no_more_than_work_mem_together() {
    let mut client = Server::new().connect().await;
    client.query("SET work_mem = '16MB'").await;
    client.query("BEGIN").await;
    let sql = "SELECT repeat('x', 3000000) FROM generate_series(1, 2)";
    let open = |name: &str| [parse("", sql), bind(name, "", &[]), execute(name, 1), sync()];
    for name in ["a", "b"] {
        let opened = lines(&mut client, &open(name)).await;
        assert_eq!(opened[3..], ["suspended", "ready T"], "{}", opened[2].get(..100).unwrap_or(&opened[2]));
    }
    // Fetched rows no longer count.
    let fetched = lines(&mut client, &[execute("a", 0), sync()]).await;
    assert_eq!(fetched[1..], ["SELECT 1", "ready T"]);
    let opened = lines(&mut client, &open("c")).await;
    assert_eq!(opened[3..], ["suspended", "ready T"]);
    let refused = lines(&mut client, &open("d")).await;
    assert!(
        refused[2].starts_with("ERROR 53200: the open portals and cursors of the session"),
        "{refused:?}"
    );
    client.query("ROLLBACK").await;
    client.query("BEGIN").await;
    for name in ["a", "b"] {
        let opened = lines(&mut client, &open(name)).await;
        assert_eq!(opened[3..], ["suspended", "ready T"]);
    }
    // Parameters of named portals count, too.
    let large = "y".repeat(6_000_000);
    let refused =
        lines(&mut client, &[parse("", "SELECT $1::text"), bind("c", "", &[Some(&large)]), sync()]).await;
    assert!(refused[1].starts_with("ERROR 53200"), "{}", refused[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn cursors_are_described_like_portals() {
    let mut client = Server::new().connect().await;
    client.query("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 1000)").await;
    client.query("BEGIN").await;
    let sql = "DECLARE \"A c\" CURSOR FOR SELECT id FROM t WHERE id > $1 ORDER BY id";
    let declared = lines(
        &mut client,
        &[parse("", sql), bind("", "", &[Some("990")]), execute("", 0), describe(b'P', "A c"), sync()],
    )
    .await;
    assert_eq!(declared, ["parsed", "bound", "DECLARE CURSOR", "columns", "ready T"]);
    let fetch = [parse("f", "FETCH FORWARD 4 FROM \"A c\""), describe(b'S', "f"), sync()];
    assert_eq!(lines(&mut client, &fetch).await, ["parsed", "parameters", "columns", "ready T"]);
    for expected in [["991", "992", "993", "994"], ["995", "996", "997", "998"]] {
        let found = lines(&mut client, &[bind("", "f", &[]), execute("", 0), sync()]).await;
        assert_eq!(found[1..5], expected);
        assert_eq!(found[5..], ["FETCH 4", "ready T"]);
    }
    assert_eq!(client.query("MOVE BACKWARD ALL IN \"A c\"").await, ["MOVE 7", "ready T"]);
    let closed = [framed(b'C', b"PA c\0"), describe(b'P', "A c"), sync()];
    assert!(lines(&mut client, &closed).await[1].starts_with("ERROR 34000"));
    client.query("ROLLBACK").await;
    // Rows of a binary cursor are binary in the simple protocol, too.
    client.query("DECLARE b BINARY CURSOR WITH HOLD FOR SELECT id FROM t WHERE id = 258").await;
    client.send(&framed(b'Q', b"FETCH b\0")).await;
    let answers = client.until_ready().await;
    assert_eq!(answers[1].values(), [Some(258_i32.to_be_bytes().to_vec())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_between_two_syncs_are_one_transaction() {
    let mut client = Server::new().connect().await;
    client.query("CREATE TABLE t (id int PRIMARY KEY)").await;
    let insert = |id: &str| [bind("", "s", &[Some(id)]), execute("", 0)].concat();
    let messages =
        [parse("s", "INSERT INTO t VALUES ($1)"), insert("1"), insert("2"), insert("1"), insert("3"), sync()];
    let found = lines(&mut client, &messages).await;
    assert_eq!(found[..6], ["parsed", "bound", "INSERT 0 1", "bound", "INSERT 0 1", "bound"]);
    assert!(found[6].starts_with("ERROR 23505"), "{found:?}");
    // The rest was skipped.
    assert_eq!(found[7..], ["ready I"]);
    assert_eq!(client.query("SELECT count(*) FROM t").await[0], "0");
    let found = lines(&mut client, &[insert("1"), insert("2"), sync()]).await;
    assert_eq!(found, ["bound", "INSERT 0 1", "bound", "INSERT 0 1", "ready I"]);
    assert_eq!(client.query("SELECT count(*) FROM t").await[0], "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn pipeline_of_many_syncs_is_answered_in_order() {
    let mut client = Server::new().connect().await;
    let mut messages = vec![parse("s", "SELECT $1::int + 1")];
    for id in 0..500 {
        messages.extend([bind("", "s", &[Some(&id.to_string())]), execute("", 0), sync()]);
    }
    client.send(&messages.concat()).await;
    for id in 0..500 {
        let answers = client.until_ready().await;
        let row = answers.iter().find(|answer| answer.tag == 'D').unwrap();
        assert_eq!(row.line(), (id + 1).to_string());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_and_results_in_binary() {
    let mut client = Server::new().connect().await;
    let mut body = texts(&["", ""]);
    body.extend([0, 1, 0, 1, 0, 2]);
    for number in [40_i32, 2] {
        body.extend(4_i32.to_be_bytes());
        body.extend(number.to_be_bytes());
    }
    body.extend([0, 1, 0, 1]);
    let sql = "SELECT $1::int + $2::int";
    client.send(&[parse("", sql), framed(b'B', &body), execute("", 0), sync()].concat()).await;
    let answers = client.until_ready().await;
    assert_eq!(answers[2].values(), [Some(42_i32.to_be_bytes().to_vec())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn enum_labels_work_in_both_formats() {
    let mut client = Server::new().connect().await;
    client
        .query(
            "CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TABLE t (id int PRIMARY KEY, m mood, a mood[])",
        )
        .await;
    let sql = "INSERT INTO t VALUES (1, $1, $2) RETURNING m, a";
    client.send(&[parse("s", sql), describe(b'S', "s"), sync()].concat()).await;
    let answers = client.until_ready().await;
    let number = |at: usize| u32::from_be_bytes(answers[1].body[at..at + 4].try_into().unwrap());
    let (mood, moods) = (number(2), number(6));
    // A string in both formats, an array of one element in binary.
    let mut array = Vec::new();
    for number in [1, 0, mood, 1, 1, 3] {
        array.extend(number.to_be_bytes());
    }
    array.extend(b"sad");
    let mut body = texts(&["", "s"]);
    body.extend([0, 2, 0, 0, 0, 1, 0, 2]);
    for value in [b"ok".as_slice(), &array] {
        body.extend((value.len() as i32).to_be_bytes());
        body.extend(value);
    }
    body.extend([0, 1, 0, 1]);
    client.send(&[framed(b'B', &body), execute("", 0), sync()].concat()).await;
    let answers = client.until_ready().await;
    assert_eq!(answers[1].values(), [Some(b"ok".to_vec()), Some(array)]);
    let asked =
        format!("SELECT typname, typtype FROM pg_type WHERE oid IN ({mood}, {moods}) ORDER BY typname");
    assert_eq!(client.query(&asked).await[..2], ["_mood|b", "mood|e"]);
    let found = lines(&mut client, &[bind("", "s", &[Some("fine"), None]), execute("", 0), sync()]).await;
    assert!(found[1].starts_with("ERROR 22P02"), "{found:?}");
    // A parameter of an unknown type.
    let none = [texts(&["", "SELECT $1"]), vec![0, 1], (mood + 100).to_be_bytes().to_vec()].concat();
    let found = lines(&mut client, &[framed(b'P', &none), sync()]).await;
    assert!(found[0].starts_with("ERROR 42704"), "{found:?}");
    // A prepared statement accepts a new label.
    client.query("ALTER TYPE mood ADD VALUE 'fine'; DELETE FROM t").await;
    let found =
        lines(&mut client, &[bind("", "s", &[Some("fine"), Some("{fine,NULL}")]), execute("", 0), sync()])
            .await;
    assert_eq!(found, ["bound", "fine|{fine,NULL}", "INSERT 0 1", "ready I"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_counts_formats_and_values_are_refused() {
    let mut client = Server::new().connect().await;
    client.query("CREATE TABLE t (id int PRIMARY KEY)").await;
    let parsed = parse("s", "SELECT id FROM t WHERE id = $1");
    assert_eq!(lines(&mut client, &[parsed, sync()]).await, ["parsed", "ready I"]);
    for (bound, code) in [
        (bind("", "s", &[]), "08P01"),
        (bind("", "s", &[Some("1"), Some("2")]), "08P01"),
        (bind("", "s", &[Some("one")]), "22P02"),
        (bind("", "s", &[Some("99999999999")]), "22003"),
        (bind("", "t", &[Some("1")]), "26000"),
        (execute("never", 0), "34000"),
        (describe(b'S', "never"), "26000"),
        (describe(b'P', "never"), "34000"),
        (describe(b'?', ""), "08P01"),
        (framed(b'B', b"\0s\0\0\x03\0\0\0\0\0\0"), "08P01"),
        (framed(b'B', b"\0s\0\0\x01\0\x01\0\x01\0\0\0\x03abc\0\0"), "22P03"),
        (framed(b'B', b"\0s"), "08P01"),
        (parse("s", "SELECT 1"), "42P05"),
        (parse("", "SELECT 1; SELECT 2"), "42601"),
        (parse("", "SELEC"), "42601"),
        (framed(b'P', &[texts(&["", "SELECT $1"]), vec![0, 1, 0, 0, 2, 88]].concat()), "0A000"),
        (framed(b'F', b""), "0A000"),
        (framed(b'p', b"password\0"), "08P01"),
    ] {
        let found = lines(&mut client, &[bound, sync()]).await;
        assert!(found[0].starts_with(&format!("ERROR {code}")), "{code} {found:?}");
        assert_eq!(found[1..], ["ready I"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_follows_definitions_unless_its_result_changes() {
    let mut client = Server::new().connect().await;
    client.query("CREATE TABLE t (id int PRIMARY KEY, a int); INSERT INTO t VALUES (1, 2)").await;
    let messages = [parse("s", "SELECT * FROM t"), parse("n", "SELECT a FROM t"), sync()];
    lines(&mut client, &messages).await;
    client.query("ALTER TABLE t ADD COLUMN b int").await;
    let found = lines(&mut client, &[bind("", "n", &[]), execute("", 0), sync()]).await;
    assert_eq!(found, ["bound", "2", "SELECT 1", "ready I"]);
    let found = lines(&mut client, &[bind("", "s", &[]), execute("", 0), sync()]).await;
    assert_eq!(found[1], "ERROR 0A000: cached plan must not change result type");
    // A text that is parsed again is planned again.
    let found =
        lines(&mut client, &[parse("", "SELECT * FROM t"), bind("", "", &[]), execute("", 0), sync()]).await;
    assert_eq!(found[2], "1|2|NULL");
    client.query("DROP TABLE t").await;
    let found = lines(&mut client, &[parse("", "SELECT * FROM t"), sync()]).await;
    assert!(found[0].starts_with("ERROR 42P01"), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn deallocate_drops_statements_prepared_by_the_protocol() {
    let mut client = Server::new().connect().await;
    lines(&mut client, &[parse("s", "SELECT 1"), parse("t", "SELECT 1"), sync()]).await;
    assert_eq!(client.query("DEALLOCATE s").await, ["DEALLOCATE", "ready I"]);
    assert!(client.query("DEALLOCATE s").await[0].starts_with("ERROR 26000"));
    assert_eq!(client.query("DEALLOCATE ALL").await[1], "ready I");
    assert!(lines(&mut client, &[bind("", "t", &[]), sync()]).await[0].starts_with("ERROR 26000"));
}
