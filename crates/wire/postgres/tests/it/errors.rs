//! The machine-readable fields of errors.

use crate::client::{Server, framed, texts};

#[tokio::test(flavor = "multi_thread")]
async fn d1_17_errors_name_object_and_position() {
    let server = Server::new();
    let mut client = server.connect().await;
    for sql in [
        "CREATE SCHEMA shop",
        "CREATE TABLE shop.users (id int PRIMARY KEY, name text NOT NULL UNIQUE, age int CHECK (age > 0))",
        "CREATE TABLE orders (id int PRIMARY KEY, owner int REFERENCES shop.users (id))",
        "INSERT INTO shop.users VALUES (1, 'ann', 3)",
    ] {
        let answers = client.query(sql).await;
        assert!(!answers[0].starts_with("ERROR"), "{sql}: {answers:?}");
    }
    // Code, schema, table, column, constraint, position.
    let expected = [
        ("INSERT INTO shop.users VALUES (1, 'b', 3)", "23505", "shop", "users", "", "users_pkey", ""),
        ("INSERT INTO shop.users VALUES (2, 'ann', 3)", "23505", "shop", "users", "", "users_name_key", ""),
        ("INSERT INTO shop.users VALUES (2, NULL, 3)", "23502", "shop", "users", "name", "", ""),
        ("INSERT INTO shop.users VALUES (2, 'b', 0)", "23514", "shop", "users", "", "users_age_check", ""),
        ("INSERT INTO orders VALUES (1, 7)", "23503", "public", "orders", "", "orders_owner_fkey", ""),
        ("SELECT id,\n  nam FROM shop.users", "42703", "", "", "", "", "14"),
        ("SELECT 'é', x.name FROM shop.users", "42P01", "", "", "", "", "13"),
        ("SELECT * FROM absent", "42P01", "", "", "", "", "15"),
        ("SELEC 1", "42601", "", "", "", "", "1"),
    ];
    for (sql, code, schema, table, column, constraint, position) in expected {
        client.send(&framed(b'Q', &texts(&[sql]))).await;
        let answers = client.until_ready().await;
        let error = answers.iter().find(|answer| answer.tag == 'E').unwrap_or_else(|| panic!("{sql}"));
        let field = |name| error.field(name).unwrap_or_default();
        let found = [field(b'C'), field(b's'), field(b't'), field(b'c'), field(b'n'), field(b'P')];
        assert_eq!(found, [code, schema, table, column, constraint, position], "{sql}");
    }
    client.send(&framed(b'Q', &texts(&["INSERT INTO shop.users VALUES (1, 'b', 3)"]))).await;
    let answers = client.until_ready().await;
    assert_eq!(answers[0].field(b'D').unwrap(), "Key (id)=(1) already exists.");
    client.send(&framed(b'Q', &texts(&["SELECT nam FROM shop.users"]))).await;
    let answers = client.until_ready().await;
    let hint = "Perhaps you meant to reference the column \"users.name\".";
    assert_eq!(answers[0].field(b'H').as_deref(), Some(hint));
}
