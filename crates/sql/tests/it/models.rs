//! Every model is a relation, and one statement reads all of them at one snapshot.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ropewalk::documents::lang::{Value as Bson, Writer};
use ropewalk::series::{Labels, SampleBatch};
use ropewalk::tables::Value;
use ropewalk::{AppendOptions, Database, Durability, Event};
use ropewalk_sql::Session;

use crate::golden::shown;

fn rows(session: &mut Session, sql: &str) -> Vec<String> {
    shown(&session.execute(sql, &[]).unwrap_or_else(|error| panic!("{sql}: {error}")))
}

fn order(number: i64) -> Event {
    let data = format!("{{\"order\":{number},\"total\":{}.5}}", number * 2);
    Event::new(if number % 2 == 0 { "Paid" } else { "Opened" })
        .tag(format!("order:{number}"))
        .tag("shop:a")
        .data(data.into_bytes())
        .metadata("by", "ann")
}

#[test]
fn events_are_a_relation() {
    let db = Database::in_memory().unwrap();
    let mut session = Session::new(db.clone());
    assert_eq!(rows(&mut session, "SELECT count(*) FROM events"), ["0"]);
    db.events("default").unwrap().append(&(1..=6).map(order).collect::<Vec<_>>(), None).unwrap();
    db.events("other").unwrap().append(&[order(9)], None).unwrap();
    let by_tag = "SELECT position, type, tags, json->>'total', metadata->>'by' FROM events WHERE 'order:4' = ANY (tags)";
    assert_eq!(rows(&mut session, by_tag), ["4|Paid|{order:4,shop:a}|8.5|ann"]);
    let explained = rows(&mut session, &format!("EXPLAIN {by_tag}")).join("\n");
    assert!(explained.contains("tags [order:4]"), "{explained}");
    let by_all = "SELECT position FROM events WHERE type IN ('Paid', 'Gone') AND tags @> ARRAY['shop:a'] AND position > 2 ORDER BY 1 DESC";
    assert_eq!(rows(&mut session, by_all), ["6", "4"]);
    let explained = rows(&mut session, &format!("EXPLAIN {by_all}")).join("\n");
    assert!(explained.contains("types [Paid, Gone], tags [shop:a], a range of positions"), "{explained}");
    assert_eq!(rows(&mut session, "SELECT sum((json->>'total')::numeric) FROM events.other"), ["18.5"]);
    assert_eq!(rows(&mut session, "SELECT count(*) FROM events WHERE recorded_at > now()"), ["0"]);
    assert_eq!(rows(&mut session, "SELECT count(*) FROM events.unknown"), ["0"]);
}

#[test]
fn conditions_go_to_keys_and_indexes() {
    let mut session = Session::new(Database::in_memory().unwrap());
    for sql in [
        "CREATE TABLE t (a int, b int, c text, PRIMARY KEY (a, b))",
        "CREATE INDEX t_c ON t (c)",
        "INSERT INTO t SELECT i / 10, i % 10, 'c' || i FROM (WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 99) SELECT i FROM n) s",
    ] {
        session.execute(sql, &[]).unwrap();
    }
    let mut explained = |condition: &str| {
        let sql =
            format!("EXPLAIN SELECT x.b FROM (SELECT * FROM t WHERE {condition}) x JOIN t y ON y.a = x.b");
        rows(&mut session, &sql).join("\n")
    };
    for (condition, path) in [
        ("a = 3 AND b > 4", "Read by primary key (a =, b from)"),
        ("a IN (1, 2)", "Read by primary key (a one of)"),
        ("c = 'c7'", "Read by index t_c (c =)"),
        ("b = 1", "Scan of cached columns"),
    ] {
        let shown = explained(condition);
        assert!(shown.contains(path), "{condition}: {shown}");
    }
    let analyzed =
        rows(&mut session, "EXPLAIN ANALYZE SELECT count(*) FROM t x FULL JOIN t y ON x.a = y.a").join("\n");
    assert!(analyzed.contains("output_rows"), "{analyzed}");
    let analyzed = rows(&mut session, "EXPLAIN ANALYZE SELECT * FROM t WHERE a = 1").join("\n");
    assert!(analyzed.contains("Rows: 10"), "{analyzed}");
}

#[test]
fn parameters_are_bound_in_whole_queries() {
    let mut session = Session::new(Database::in_memory().unwrap());
    session.execute("CREATE TABLE t (a bigint PRIMARY KEY, w text)", &[]).unwrap();
    session.execute("INSERT INTO t VALUES (1, 'one'), (2, 'two'), (3, 'three')", &[]).unwrap();
    let sql = "SELECT w FROM t x WHERE a > $1 AND EXISTS (SELECT 1 FROM t y WHERE y.a = x.a - 1 AND y.w <> $2) ORDER BY a LIMIT $3";
    let mut prepared = session.prepare(sql).unwrap();
    assert_eq!(
        prepared.parameters(),
        [ropewalk::tables::Type::INT8, ropewalk::tables::Type::TEXT, ropewalk::tables::Type::INT8]
    );
    for (low, word, limit, wanted) in
        [(0, "-", 9, vec!["two", "three"]), (0, "one", 9, vec!["three"]), (1, "-", 1, vec!["two"])]
    {
        let params = [Value::Int8(low), Value::text(word), Value::Int8(limit)];
        assert_eq!(shown(&session.run(&mut prepared, &params).unwrap()), wanted);
    }
}

#[test]
fn join_beyond_the_memory_limit_fails() {
    let db = Database::in_memory().unwrap();
    let mut session = Session::new(db.clone());
    session.execute("CREATE TABLE t (a bigint PRIMARY KEY, w text)", &[]).unwrap();
    let numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)";
    session.execute(&format!("INSERT INTO t {numbers} SELECT i, repeat('x', 100) || i FROM n"), &[]).unwrap();
    let join = "SELECT count(*) FROM t a JOIN t b ON a.w = b.w AND a.a + b.a > 0";
    assert_eq!(rows(&mut session, join), ["2000"]);
    let settings = ropewalk_sql::Settings { memory_bytes_max: 64 << 10, ..ropewalk_sql::Settings::default() };
    let mut small = Session::with_settings(db, settings);
    assert_eq!(small.execute(join, &[]).unwrap_err().state.0, "53200");
    assert_eq!(rows(&mut small, "SELECT 1 UNION ALL SELECT 2 ORDER BY 1"), ["1", "2"]);
}

#[test]
fn documents_are_relations() {
    let db = Database::in_memory().unwrap();
    let mut session = Session::new(db.clone());
    let users = db.documents().collection("shop", "users").unwrap();
    for (name, age) in [("ann", 41), ("bob", 17)] {
        let mut user = Writer::new();
        user.put("_id", Bson::String(name));
        user.put("age", Bson::Int32(age));
        user.open_document("address");
        user.put("city", Bson::String("Oslo \"N\""));
        user.close();
        users.insert_one(user.finish().bytes(), Durability::Sync).unwrap();
    }
    let adults = "SELECT _id, doc->'address'->>'city' FROM shop.users WHERE (doc->>'age')::int >= 18";
    assert_eq!(rows(&mut session, adults), ["ann|Oslo \"N\""]);
    assert_eq!(
        rows(&mut session, "SELECT doc FROM shop.users WHERE _id = 'bob'"),
        [r#"{"_id":"bob","age":17,"address":{"city":"Oslo \"N\""}}"#]
    );
    assert_eq!(session.execute("SELECT * FROM shop.none", &[]).unwrap_err().state.0, "42P01");
}

#[test]
fn metrics_are_relations() {
    let db = Database::in_memory().unwrap();
    let mut session = Session::new(db.clone());
    let metrics = db.series("default").unwrap();
    let mut batch = SampleBatch::new();
    for (pod, first) in [("a", 1.0), ("b", 10.0)] {
        let labels = Labels::new([("__name__", "load"), ("pod", pod)]).unwrap();
        for step in 0..3_i64 {
            batch.push(&labels, step * 60_000, first + step as f64);
        }
    }
    metrics.append(&batch).unwrap();
    assert_eq!(
        rows(&mut session, "SELECT pod, count(*), max(value) FROM metrics.load GROUP BY pod ORDER BY pod"),
        ["a|3|3", "b|3|12"]
    );
    let at = "SELECT time, value FROM metrics.load WHERE pod = 'b' AND time >= '1970-01-01 00:01:00Z' ORDER BY time";
    assert_eq!(rows(&mut session, at), ["1970-01-01 00:01:00+00|11", "1970-01-01 00:02:00+00|12"]);
    let explained = rows(&mut session, &format!("EXPLAIN {at}")).join("\n");
    assert!(explained.contains("samples, 2 matchers"), "{explained}");
    let query = "SELECT time, value, labels->>'pod' FROM promql('sum by (pod) (load)', '1970-01-01 00:01:00', '1970-01-01 00:02:00', 60) ORDER BY 3, 1";
    assert_eq!(rows(&mut session, query).len(), 4);
}

#[test]
fn d1_21_new_label_does_not_break_a_prepared_statement_over_labels() {
    let db = Database::in_memory().unwrap();
    let metrics = db.series("default").unwrap();
    let write = |labels: Labels| {
        let mut batch = SampleBatch::new();
        batch.push(&labels, 0, 1.0);
        metrics.append(&batch).unwrap();
    };
    write(Labels::new([("__name__", "cents"), ("pod", "a")]).unwrap());
    let mut session = Session::new(db.clone());
    let sql = "SELECT labels->>'pod', labels->>'region', value FROM metrics.cents ORDER BY 1";
    let mut by_labels = session.prepare(sql).unwrap();
    assert_eq!(shown(&session.run(&mut by_labels, &[]).unwrap()), ["a|NULL|1"]);
    write(Labels::new([("__name__", "cents"), ("pod", "b"), ("region", "eu")]).unwrap());
    assert_eq!(shown(&session.run(&mut by_labels, &[]).unwrap()), ["a|NULL|1", "b|eu|1"]);
    // The label is a column, too, from its first sample on.
    assert_eq!(rows(&mut session, "SELECT pod, region FROM metrics.cents ORDER BY pod"), ["a|NULL", "b|eu"]);
}

#[test]
fn events_are_appended_from_sql() {
    let db = Database::in_memory().unwrap();
    let mut session = Session::new(db.clone());
    session.execute("CREATE TABLE taken (name text PRIMARY KEY)", &[]).unwrap();
    session.execute("BEGIN", &[]).unwrap();
    session.execute("INSERT INTO taken VALUES ('ann')", &[]).unwrap();
    let append = "SELECT append_event('Registered', ARRAY['user:ann'], '{\"name\":\"ann\"}', fail_if_tags => ARRAY['user:ann'])";
    session.execute(append, &[]).unwrap();
    session.execute("COMMIT", &[]).unwrap();
    let refused = session.execute(append, &[]).unwrap_err();
    assert_eq!(refused.state.0, "23505", "{refused}");
    assert_eq!(
        rows(&mut session, "SELECT position, json->>'name' FROM events JOIN taken ON name = json->>'name'"),
        ["1|ann"]
    );
}

#[test]
fn d1_2_only_a_condition_with_after_is_a_serialization_failure() {
    let db = Database::in_memory().unwrap();
    let mut session = Session::new(db.clone());
    let append = |condition: &str| format!("SELECT append_event('A', ARRAY['n'], '{{}}', {condition})");
    session.execute(&append("fail_if_tags => ARRAY['n']"), &[]).unwrap();
    for (condition, state) in
        [("fail_if_tags => ARRAY['n']", "23505"), ("fail_if_tags => ARRAY['n'], after => 0", "40001")]
    {
        let refused = session.execute(&append(condition), &[]).unwrap_err();
        assert_eq!(refused.state.0, state, "{refused}");
        assert_eq!(refused.detail.as_deref(), Some(r#"{"condition":0,"position":1,"item":0}"#));
    }
    // Two appends of one transaction under the same condition.
    session.execute("BEGIN", &[]).unwrap();
    let rule = append("fail_if_tags => ARRAY['m']").replace("['n']", "['m']");
    session.execute(&rule, &[]).unwrap();
    assert_eq!(session.execute(&rule, &[]).unwrap_err().state.0, "23505");
    session.execute("ROLLBACK", &[]).unwrap();
}

#[test]
fn d1_5_transaction_reads_its_own_appends_and_guards_what_it_read() {
    let db = Database::in_memory().unwrap();
    let (mut first, mut second) = (Session::new(db.clone()), Session::new(db.clone()));
    let append = |tag: &str| format!("SELECT append_event('A', ARRAY['{tag}'], '{{}}')");
    first.execute(&append("a"), &[]).unwrap();
    let count = "SELECT count(*), max(position) FROM events WHERE 'a' = ANY (tags)";
    for (level, other, refused) in [
        ("SERIALIZABLE", "a", true),
        ("SERIALIZABLE", "b", false),
        ("REPEATABLE READ", "a", false),
        ("READ COMMITTED", "a", false),
    ] {
        let head = db.events("default").unwrap().head().unwrap().unwrap().0;
        let before = rows(&mut first, count).remove(0);
        first.execute(&format!("BEGIN ISOLATION LEVEL {level}"), &[]).unwrap();
        assert_eq!(rows(&mut first, count), [before.as_str()]);
        first.execute(&append("a"), &[]).unwrap();
        let (number, _) = before.split_once('|').unwrap();
        let own = format!("{}|{}", number.parse::<u64>().unwrap() + 1, head + 1);
        assert_eq!(rows(&mut first, count), [own], "{level}");
        second.execute(&append(other), &[]).unwrap();
        let state = first.execute("COMMIT", &[]).err().map(|error| error.state.0);
        assert_eq!(state, refused.then_some("40001"), "{level}, {other}");
    }
}

#[test]
fn d1_15_serializable_transaction_guards_the_samples_it_read() {
    let db = Database::in_memory().unwrap();
    let metrics = db.series("default").unwrap();
    let write = |pod: &str, seconds: i64| {
        let mut batch = SampleBatch::new();
        batch.push(&Labels::new([("__name__", "load"), ("pod", pod)]).unwrap(), seconds * 1000, 1.0);
        metrics.append(&batch).unwrap();
    };
    write("a", 10);
    write("b", 10);
    let mut session = Session::new(db.clone());
    session.execute("CREATE TABLE seen (id serial PRIMARY KEY, load float8)", &[]).unwrap();
    let all = "SELECT sum(value) FROM metrics.load";
    let pod = "SELECT sum(value) FROM metrics.load WHERE pod = 'a'";
    let times = "SELECT sum(value) FROM metrics.load WHERE time < '1970-01-01 00:01:00Z'";
    let promql =
        "SELECT value FROM promql('load{pod=\"a\"}', '1970-01-01 00:00:10', '1970-01-01 00:00:10', 10)";
    let inserted = "INSERT INTO seen (load) SELECT value FROM metrics.load WHERE pod = 'a'";
    let mut seconds = 10;
    for (level, read, pod, ahead, refused) in [
        ("SERIALIZABLE", all, "a", 1, true),
        ("SERIALIZABLE", all, "new", 1, true),
        ("SERIALIZABLE", pod, "a", 1, true),
        ("SERIALIZABLE", pod, "b", 1, false),
        ("SERIALIZABLE", times, "b", 1, true),
        ("SERIALIZABLE", times, "b", 1_000, false),
        ("SERIALIZABLE", promql, "a", -200, false),
        ("SERIALIZABLE", promql, "b", 0, false),
        ("SERIALIZABLE", promql, "a", 0, true),
        ("SERIALIZABLE", inserted, "a", 2_000, true),
        ("REPEATABLE READ", all, "a", 1, false),
        ("READ COMMITTED", all, "a", 1, false),
    ] {
        session.execute(&format!("BEGIN ISOLATION LEVEL {level}"), &[]).unwrap();
        session.execute(read, &[]).unwrap();
        session.execute("INSERT INTO seen (load) VALUES (1)", &[]).unwrap();
        // PromQL sees samples of five minutes before 10 s.
        let at = if read == promql { 10 + 3 * ahead } else { seconds + ahead };
        write(pod, at);
        seconds += i64::from(ahead == 1);
        let error = session.execute("COMMIT", &[]).err();
        assert_eq!(error.is_some(), refused, "{level}, {read}, {pod} at {at}: {error:?}");
        if let Some(error) = error {
            assert_eq!(error.state.0, "40001", "{error}");
            let text = error.to_string();
            assert!(text.contains("series store \"default\"") && text.contains("load{pod="), "{text}");
        }
    }
    // A read-only transaction conflicts with no other.
    session.execute("BEGIN ISOLATION LEVEL SERIALIZABLE", &[]).unwrap();
    session.execute(all, &[]).unwrap();
    write("a", seconds + 1);
    session.execute("COMMIT", &[]).unwrap();
}

/// One statement joins four models while two writers change all of them, each time in one transaction: all
/// counts, within the join and outside of it, are equal, a thousand times.
#[test]
fn one_statement_reads_all_models_at_one_snapshot() {
    const REPETITIONS: usize = 1000;
    let db = Database::in_memory().unwrap();
    let store = db.events("default").unwrap();
    let carts = db.documents().collection("shop", "carts").unwrap();
    let metrics = db.series("default").unwrap();
    let mut session = Session::new(db.clone());
    session.execute("CREATE TABLE orders (id bigint PRIMARY KEY)", &[]).unwrap();
    let table = db.table("orders").unwrap();
    let numbers = AtomicUsize::new(1);
    let write = || {
        // Two writers commit in another order than they take numbers, so ids differ from positions.
        let number = numbers.fetch_add(1, Ordering::Relaxed) as i64;
        let mut tx = db.begin();
        tx.tables().insert(&table, &[("id", Value::Int8(number))]).unwrap();
        tx.append(&store, &[order(number)], AppendOptions::default()).unwrap();
        let mut cart = Writer::new();
        cart.put("_id", Bson::Int64(number));
        tx.documents().insert_one(&carts, cart.finish().bytes()).unwrap();
        let mut batch = SampleBatch::new();
        batch.push(&Labels::new([("__name__", "orders_total")]).unwrap(), number * 1000, number as f64);
        tx.append_samples(&metrics, &batch).unwrap();
        tx.commit_with(Durability::Buffered).unwrap();
    };
    write();
    let (read, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let together = "SELECT count(*), (SELECT count(*) FROM orders), (SELECT count(*) FROM events), \
                    (SELECT count(*) FROM shop.carts), (SELECT count(*) FROM metrics.orders_total) \
                    FROM orders o JOIN events e ON (e.json->>'order')::bigint = o.id JOIN shop.carts c ON c._id = o.id::text \
                    JOIN metrics.orders_total m ON m.value = o.id";
    let mut seen = std::collections::BTreeSet::new();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    // Writers keep pace with the reader, so that the join stays small.
                    if numbers.load(Ordering::Relaxed) < 10 + read.load(Ordering::Relaxed) / 4 {
                        write();
                    }
                    std::thread::yield_now();
                }
            });
        }
        for repetition in 0..REPETITIONS {
            let row = rows(&mut session, together).remove(0);
            let counts: Vec<&str> = row.split('|').collect();
            assert!(counts.iter().all(|count| *count == counts[0]), "{row}");
            seen.insert(counts[0].to_owned());
            read.store(repetition, Ordering::Relaxed);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(seen.len() > REPETITIONS / 10, "only {} different snapshots were seen", seen.len());
}

#[test]
fn statements_that_models_do_not_take_fail_with_a_hint() {
    let db = Database::in_memory().unwrap();
    let mut session = Session::new(db.clone());
    db.events("default").unwrap().append(&[order(1)], None).unwrap();
    db.events("other").unwrap().append(&[order(2)], None).unwrap();
    let users = db.documents().collection("shop", "users").unwrap();
    let mut user = Writer::new();
    user.put("_id", Bson::String("ann"));
    users.insert_one(user.finish().bytes(), Durability::Sync).unwrap();
    let load = db.series("default").unwrap();
    let mut batch = SampleBatch::new();
    batch.push(&Labels::new([("__name__", "load"), ("host", "a")]).unwrap(), 1_000, 1.0);
    load.append(&batch).unwrap();
    session.execute("CREATE TABLE t (a int PRIMARY KEY)", &[]).unwrap();
    for (sql, name, hint) in [
        ("UPDATE events SET type = 'x'", "events", "append_event"),
        ("UPDATE events.other SET type = 'x'", "events.other", "append_event"),
        ("DELETE FROM events WHERE position = 1", "events", "events never change"),
        ("DELETE FROM events USING t WHERE t.a = position", "events", "append_event"),
        (
            "MERGE INTO events e USING t ON t.a = e.position WHEN MATCHED THEN DELETE",
            "events",
            "append_event",
        ),
        ("WITH gone AS (DELETE FROM events RETURNING 1) SELECT * FROM gone", "events", "append_event"),
        ("EXPLAIN DELETE FROM events", "events", "append_event"),
        ("COPY events (type) FROM STDIN", "events", "append_event"),
        ("TRUNCATE events", "events", "append_event"),
        ("DROP TABLE events", "events", "append_event"),
        ("ALTER TABLE events ADD COLUMN a int", "events", "append_event"),
        ("CREATE INDEX ON events (type)", "events", "append_event"),
        (
            "WITH gone AS (DELETE FROM shop.users RETURNING 1) SELECT * FROM gone",
            "shop.users",
            "not part of WITH",
        ),
        (
            "WITH new AS (INSERT INTO shop.users (doc) VALUES ('{}') RETURNING 1) SELECT * FROM new",
            "shop.users",
            "not part of WITH",
        ),
        (
            "MERGE INTO shop.users u USING t ON false WHEN NOT MATCHED THEN DO NOTHING",
            "shop.users",
            "INSERT, UPDATE and DELETE",
        ),
        ("COPY shop.users (doc) FROM STDIN", "shop.users", "INSERT, UPDATE and DELETE"),
        ("TRUNCATE t, shop.users", "shop.users", "MongoDB"),
        ("UPDATE metrics.load SET value = 2", "metrics.load", "Prometheus API"),
        ("DELETE FROM metrics.load", "metrics.load", "samples never change"),
        ("COPY metrics.load (value) FROM STDIN", "metrics.load", "INSERT"),
    ] {
        let error = session.execute(sql, &[]).unwrap_err();
        assert_eq!(error.state.0, "0A000", "{sql}: {error}");
        assert_eq!(error.message, format!("this statement cannot write relation \"{name}\""), "{sql}");
        assert!(error.hint.as_ref().is_some_and(|found| found.contains(hint)), "{sql}: {:?}", error.hint);
    }
    // Relations that do not exist are reported as such.
    for sql in [
        "DELETE FROM shop.nobody",
        "UPDATE shop.nobody SET doc = doc",
        "INSERT INTO shop.nobody VALUES ('x', '{}')",
        "INSERT INTO public.nobody (doc) VALUES ('{}')",
        "INSERT INTO pg_catalog.nobody (doc) VALUES ('{}')",
        "INSERT INTO nowhere VALUES (1)",
        "UPDATE metrics.none SET value = 1",
    ] {
        assert_eq!(session.execute(sql, &[]).unwrap_err().state.0, "42P01", "{sql}");
    }
    // A table with the same name takes precedence.
    session.execute("CREATE TABLE events (type text PRIMARY KEY)", &[]).unwrap();
    session.execute("INSERT INTO events VALUES ('mine')", &[]).unwrap();
    assert_eq!(rows(&mut session, "SELECT type FROM events"), ["mine"]);
}
