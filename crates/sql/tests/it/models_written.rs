//! SQL writes documents, samples and events: rules of the models, types, and one commit.

use ropewalk::documents::lang::{DocBuf, Value as Bson, Writer};
use ropewalk::documents::{
    Caller, Collection, CollectionOptions, DocumentsError, IndexDef, OnDelete, Reference,
};
use ropewalk::tables::{Type, Value};
use ropewalk::{Database, Durability};
use ropewalk_sql::{Rights, Session, SqlError};

use crate::golden::shown;

fn object(fields: &[(&str, Bson<'_>)]) -> DocBuf {
    let mut object = Writer::new();
    fields.iter().for_each(|(name, value)| object.put(name, *value));
    object.finish()
}

fn collection(db: &Database, name: &str) -> Collection {
    db.documents().collection("shop", name).unwrap()
}

fn rows(session: &mut Session, sql: &str) -> Vec<String> {
    shown(&session.execute(sql, &[]).unwrap_or_else(|error| panic!("{sql}: {error}")))
}

fn refusal(session: &mut Session, sql: &str) -> SqlError {
    session.execute(sql, &[]).expect_err(sql)
}

/// The SQLSTATE, and the constraint of an error.
fn state_and_constraint(error: &SqlError) -> (&'static str, Option<&str>) {
    (error.state.0, error.about.as_ref().and_then(|about| about.constraint.as_deref()))
}

#[test]
fn constraints_of_collections_have_sqlstates() {
    let db = Database::in_memory().unwrap();
    let users = collection(&db, "users");
    users.create_index(&IndexDef { unique: true, ..IndexDef::on(["email"]) }).unwrap();
    let mut at_least = Writer::new();
    at_least.open_document("age");
    at_least.put("$gte", Bson::Int32(18));
    at_least.close();
    let validator = Some(at_least.finish());
    users.set_options(CollectionOptions { validator, ..Default::default() }).unwrap();
    let orders = collection(&db, "orders");
    let user = Reference { field: "user".into(), collection: "users".into(), on_delete: OnDelete::Restrict };
    orders.create(CollectionOptions { references: vec![user], ..Default::default() }).unwrap();
    let mut session = Session::new(db.clone());
    let ann = r#"INSERT INTO shop.users (doc) VALUES ('{"_id": 1, "email": "ann@x", "age": 40}')"#;
    session.execute(ann, &[]).unwrap();
    for (sql, expected) in [
        (ann, ("23505", Some("_id_"))),
        (
            r#"INSERT INTO shop.users (doc) VALUES ('{"_id": 2, "email": "ann@x", "age": 40}')"#,
            ("23505", Some("email_1")),
        ),
        (
            r#"INSERT INTO shop.users (doc) VALUES ('{"_id": 2, "email": "ann@x", "age": 40}') ON CONFLICT (_id) DO NOTHING"#,
            ("23505", Some("email_1")),
        ),
        (r#"INSERT INTO shop.users (doc) VALUES ('{"age": 3}')"#, ("23514", Some("validator"))),
        (r#"UPDATE shop.users SET doc = '{"age": 3}'"#, ("23514", Some("validator"))),
        (r#"INSERT INTO shop.orders (doc) VALUES ('{"user": 9}')"#, ("23503", Some("user"))),
    ] {
        let error = refusal(&mut session, sql);
        assert_eq!(state_and_constraint(&error), expected, "{sql}: {error}");
    }
    // Without a target, ON CONFLICT handles every unique index.
    let nothing = r#"INSERT INTO shop.users (doc) VALUES ('{"_id": 2, "email": "ann@x", "age": 40}') ON CONFLICT DO NOTHING"#;
    assert_eq!(session.execute(nothing, &[]).unwrap().count, Some(0));
    session.execute(r#"INSERT INTO shop.orders (doc) VALUES ('{"_id": 1, "user": 1}')"#, &[]).unwrap();
    let error = refusal(&mut session, "DELETE FROM shop.users");
    assert_eq!(state_and_constraint(&error), ("23503", Some("user")), "{error}");
    let mut transaction = db.begin();
    transaction.documents().set_quota("shop", Some(200)).unwrap();
    transaction.commit().unwrap();
    let large = "INSERT INTO shop.notes (doc) VALUES (json_build_object('text', repeat('x', 500)))";
    assert_eq!(refusal(&mut session, large).state.0, "53400");
}

#[test]
fn rules_of_collections_hold_for_writes() {
    let db = Database::in_memory().unwrap();
    let notes = collection(&db, "notes");
    let rules = object(&[
        ("read", Bson::String("resource.owner == request.auth.uid")),
        ("create", Bson::String("request.resource.owner == request.auth.uid")),
        ("update", Bson::String("request.resource.owner == request.auth.uid")),
        ("delete", Bson::String("resource.n > 1")),
    ]);
    notes.create(CollectionOptions { rules: Some(rules), ..Default::default() }).unwrap();
    let mut session = Session::new(db.clone());
    session.act_for(Rights::READ_APPEND, "ann");
    let insert = |id: &str, owner: &str| {
        format!(r#"INSERT INTO shop.notes (_id, doc) VALUES ('{id}', '{{"owner": "{owner}", "n": 1}}')"#)
    };
    session.execute(&insert("a", "ann"), &[]).unwrap();
    for sql in [
        insert("b", "bob"),
        // A caller must not learn which documents exist.
        format!("{} ON CONFLICT DO NOTHING", insert("a", "bob")),
        r#"UPDATE shop.notes SET doc = '{"owner": "bob"}' WHERE _id = 'a'"#.into(),
        "DELETE FROM shop.notes WHERE _id = 'a'".into(),
    ] {
        assert_eq!(refusal(&mut session, &sql).state.0, "42501", "{sql}");
        session.execute("BEGIN", &[]).unwrap();
        assert_eq!(refusal(&mut session, &sql).state.0, "42501", "{sql}");
        session.execute("ROLLBACK", &[]).unwrap();
    }
    let bob = object(&[("_id", Bson::String("c")), ("owner", Bson::String("bob")), ("n", Bson::Int32(5))]);
    notes.insert_one(bob.bytes(), Durability::Buffered).unwrap();
    // Documents that the caller may not read are not found by other columns, and deny by `_id`.
    let by_id = r#"UPDATE shop.notes SET doc = '{"owner": "ann"}' WHERE _id = 'c'"#;
    assert_eq!(refusal(&mut session, by_id).state.0, "42501");
    let mine =
        r#"UPDATE shop.notes SET doc = '{"owner": "ann", "n": 2}' WHERE _id = 'a' RETURNING doc->>'n'"#;
    assert_eq!(rows(&mut session, mine), ["2"]);
    assert_eq!(rows(&mut session, "DELETE FROM shop.notes WHERE _id = 'a' RETURNING _id"), ["a"]);
    // `with_transaction` runs with the rights of the application.
    session.execute("BEGIN", &[]).unwrap();
    session.execute(&insert("d", "ann"), &[]).unwrap();
    let eve = object(&[("_id", Bson::String("e")), ("owner", Bson::String("eve"))]);
    session
        .with_transaction(|tx| {
            let inserted = tx.documents().insert_one(&notes, eve.bytes());
            inserted.map(drop).map_err(|error| SqlError::from(ropewalk::Error::from(error)))
        })
        .unwrap();
    session.execute("COMMIT", &[]).unwrap();
    session.act_for(Rights::ADMIN, "root");
    assert_eq!(rows(&mut session, "SELECT count(*) FROM shop.notes"), ["3"]);
    assert_eq!(session.execute("DELETE FROM shop.notes", &[]).unwrap().count, Some(3));
}

#[test]
fn statement_in_a_transaction_of_the_caller_leaves_its_rules_in_force() {
    let db = Database::in_memory().unwrap();
    let notes = collection(&db, "notes");
    let rules = object(&[("create", Bson::String("request.resource.owner == request.auth.uid"))]);
    notes.create(CollectionOptions { rules: Some(rules), ..Default::default() }).unwrap();
    let mut session = Session::new(db.clone());
    let mut transaction = db.begin();
    let ann = object(&[("uid", Bson::String("ann"))]);
    transaction.documents().act_for(Some(Caller { auth: Some(ann) }));
    for sql in [
        r#"INSERT INTO shop.notes (doc) VALUES ('{"owner": "bob"}')"#,
        "SELECT doc FROM shop.notes",
        "DELETE FROM shop.notes",
    ] {
        let mut prepared = session.prepare(sql).unwrap();
        session.execute_in(&mut transaction, &mut prepared, &[]).unwrap();
        let bob = object(&[("owner", Bson::String("bob"))]);
        let refused = transaction.documents().insert_one(&notes, bob.bytes()).unwrap_err();
        assert!(matches!(refused, DocumentsError::Denied { .. }), "{sql}: {refused}");
    }
}

#[test]
fn update_of_a_document_by_itself_changes_nothing() {
    let db = Database::in_memory().unwrap();
    let typed = collection(&db, "typed");
    let inner = object(&[("zeta", Bson::Int64(5)), ("a", Bson::Double(-0.0))]);
    let document = object(&[
        ("_id", Bson::Int64(7)),
        ("zz", Bson::Int64(1)),
        ("at", Bson::DateTime(-62_135_596_800_001)),
        ("oid", Bson::ObjectId([7; 12])),
        ("b", Bson::Document(inner.doc())),
        ("long", Bson::Int64(1 << 40)),
        ("float", Bson::Double(1e300)),
    ]);
    typed.insert_one(document.bytes(), Durability::Sync).unwrap();
    let mut session = Session::new(db.clone());
    let before = db.seq();
    for sql in [
        "UPDATE shop.typed SET doc = doc",
        "UPDATE shop.typed SET doc = doc::jsonb",
        "UPDATE shop.typed SET doc = doc::jsonb WHERE _id = '7'",
        "UPDATE shop.typed SET doc = doc::jsonb - '_id'",
    ] {
        assert_eq!(session.execute(sql, &[]).unwrap().count, Some(1), "{sql}");
        assert_eq!(db.seq(), before, "{sql}");
    }
    session.execute("UPDATE shop.typed SET doc = jsonb_set(doc::jsonb, '{zz}', '2')", &[]).unwrap();
    let changed = typed.get(Bson::Int32(7)).unwrap().unwrap();
    assert_eq!(changed.doc().get("zz").map(|value| value.to_string()).as_deref(), Some("NumberLong(2)"));
    let names: Vec<&str> = changed.doc().iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["_id", "zz", "at", "oid", "b", "long", "float"]);
    assert_eq!(changed.doc().get("b").map(|value| value.to_string()), {
        Some(Bson::Document(inner.doc()).to_string())
    });
}

#[test]
fn parameters_take_the_types_of_columns() {
    let mut session = Session::new(Database::in_memory().unwrap());
    let json = Type::JSON;
    for (sql, types) in [
        ("INSERT INTO shop.users (doc) VALUES ($1)", vec![json]),
        ("INSERT INTO shop.users (_id, doc) VALUES ($1, $2)", vec![Type::TEXT, json]),
        (
            "INSERT INTO metrics.load (time, value, host, labels) VALUES ($1, $2, $3, $4)",
            vec![Type::TIMESTAMPTZ, Type::FLOAT8, Type::TEXT, Type::JSONB],
        ),
        (
            "INSERT INTO events (type, tags, data, metadata, id) VALUES ($1, $2, $3, $4, $5)",
            vec![Type::TEXT, Type::Array(ropewalk::tables::Scalar::Text), Type::BYTEA, json, Type::UUID],
        ),
    ] {
        assert_eq!(session.prepare(sql).unwrap().parameters(), types, "{sql}");
    }
    let mut insert = session.prepare("INSERT INTO shop.users (doc) VALUES ($1)").unwrap();
    for number in 0..3 {
        let doc = Value::text(format!(r#"{{"_id": {number}}}"#));
        session.run(&mut insert, &[doc]).unwrap();
    }
    let mut update = session.prepare("UPDATE shop.users SET doc = $1 WHERE _id = $2 RETURNING doc").unwrap();
    assert_eq!(update.parameters(), [json, Type::TEXT]);
    let doc = Value::Jsonb(r#"{"n": 1}"#.into());
    let outcome = session.run(&mut update, &[doc, Value::text("2")]).unwrap();
    assert_eq!(shown(&outcome), [r#"{"_id":2,"n":1}"#]);
}

#[test]
fn one_transaction_of_sql_writes_all_models_in_one_commit() {
    let db = Database::in_memory().unwrap();
    let mut session = Session::new(db.clone());
    session.execute("CREATE TABLE stock (item text PRIMARY KEY, pieces int)", &[]).unwrap();
    session.execute("INSERT INTO stock VALUES ('pen', 5)", &[]).unwrap();
    // The first collection of a database also reserves numbers of collections, in another commit.
    session.execute(r#"INSERT INTO shop.receipts (doc) VALUES ('{"_id": 0}')"#, &[]).unwrap();
    session.execute("DELETE FROM shop.receipts", &[]).unwrap();
    let writes = [
        "UPDATE stock SET pieces = pieces - 1",
        r#"INSERT INTO shop.receipts (doc) VALUES ('{"_id": 1, "item": "pen"}')"#,
        "INSERT INTO metrics.sold (value, item) VALUES (1, 'pen')",
        r#"INSERT INTO events.orders (type, tags, json) VALUES ('Sold', '{item:pen}', '{"n": 1}')"#,
    ];
    let counts = "SELECT (SELECT pieces FROM stock), (SELECT count(*) FROM shop.receipts), \
                  (SELECT count(*) FROM metrics.sold), (SELECT count(*) FROM events.orders)";
    for end in ["ROLLBACK", "COMMIT"] {
        let before = db.seq();
        session.execute("BEGIN", &[]).unwrap();
        for sql in writes {
            assert_eq!(session.execute(sql, &[]).unwrap().count, Some(1), "{sql}");
        }
        session.execute(end, &[]).unwrap();
        assert_eq!(db.seq().0 - before.0, u64::from(end == "COMMIT"), "{end}");
    }
    assert_eq!(rows(&mut session, counts), ["4|1|1|1"]);
    // The labels of a metric are columns from now on.
    assert_eq!(rows(&mut session, "SELECT item, value FROM metrics.sold"), ["pen|1"]);
}

#[test]
fn concurrent_updates_of_one_document_all_succeed() {
    let db = Database::in_memory().unwrap();
    Session::new(db.clone())
        .execute(r#"INSERT INTO shop.counters (doc) VALUES ('{"_id": "n", "n": 0}')"#, &[])
        .unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut session = Session::new(db.clone());
                let sql = "UPDATE shop.counters SET doc = jsonb_set(doc::jsonb, '{n}', to_jsonb((doc->>'n')::int + 1))";
                for _ in 0..20 {
                    // Each statement is retried; only under unusual load are the attempts used up.
                    while session.execute(sql, &[]).is_err_and(|error| error.state.0 == "40001") {}
                }
            });
        }
    });
    let mut session = Session::new(db);
    assert_eq!(rows(&mut session, "SELECT doc->>'n' FROM shop.counters"), ["40"]);
}
