//! COPY: bytes in chunks of any size become rows, and rows become the same bytes again.

use ropewalk::Database;
use ropewalk::tables::Value;
use ropewalk_sql::{CopyDirection, Outcome, Session, SqlError, Status};

fn session() -> Session {
    let mut session = Session::new(Database::in_memory().unwrap());
    session
        .execute_all(
            "CREATE TABLE kinds (id int PRIMARY KEY, name text);
             CREATE TABLE things (id bigint PRIMARY KEY, kind int REFERENCES kinds, name varchar(20) NOT NULL,
                 price numeric(8,2) DEFAULT 1.5, made timestamptz, tags text[]);
             CREATE INDEX ON things (kind);
             INSERT INTO kinds VALUES (0, 'zero'), (1, 'one'), (2, 'two')",
        )
        .unwrap();
    session
}

/// Copies `text` in, in chunks of `piece` bytes.
fn copy_in(session: &mut Session, sql: &str, text: &[u8], piece: usize) -> Result<Outcome, SqlError> {
    let mut prepared = session.prepare(sql)?;
    assert_eq!(prepared.copy().unwrap().way, CopyDirection::In);
    let mut copy = session.copy_in(&mut prepared)?;
    for bytes in text.chunks(piece) {
        session.copy_data(&mut copy, bytes)?;
    }
    session.copy_end(copy)
}

fn copy_out(session: &mut Session, sql: &str) -> Vec<u8> {
    let mut prepared = session.prepare(sql).unwrap();
    assert_eq!(prepared.copy().unwrap().way, CopyDirection::Out);
    let mut out = Vec::new();
    session
        .copy_out(&mut prepared, &mut |bytes| {
            out.extend_from_slice(bytes);
            Ok(())
        })
        .unwrap();
    out
}

fn count(session: &mut Session) -> i64 {
    let answer = session.execute("SELECT count(*) FROM things", &[]).unwrap();
    answer.rows[0][0].as_integer().unwrap()
}

const ROWS: &[u8] =
    b"1\t1\tone\t2.50\t2024-02-29 12:00:00+00\t{a,\"b c\"}\n2\t\\N\ttab\\there\t\\N\t\\N\t{}\n";

#[test]
fn rows_go_in_and_come_out_the_same() {
    for piece in [1, 5, 1000] {
        let mut session = session();
        let done = copy_in(&mut session, "COPY things FROM STDIN", ROWS, piece).unwrap();
        assert_eq!(done.tag().to_string(), "COPY 2");
        assert_eq!(copy_out(&mut session, "COPY things TO STDOUT"), ROWS);
        let csv = copy_out(
            &mut session,
            "COPY (SELECT id, name, tags FROM things ORDER BY id DESC) TO STDOUT (FORMAT csv, HEADER)",
        );
        assert_eq!(
            String::from_utf8(csv).unwrap(),
            "id,name,tags\n2,tab\there,{}\n1,one,\"{a,\"\"b c\"\"}\"\n"
        );
        // Every format reads its own output.
        for options in [
            "(FORMAT csv, HEADER match)",
            "(FORMAT binary)",
            "(DELIMITER '|', NULL 'none')",
            "WITH CSV QUOTE ''''",
        ] {
            let given =
                copy_out(&mut session, &format!("COPY things TO STDOUT {}", options.replace(" match", "")));
            session.execute("TRUNCATE things", &[]).unwrap();
            copy_in(&mut session, &format!("COPY things FROM STDIN {options}"), &given, piece).unwrap();
            assert_eq!(copy_out(&mut session, "COPY things TO STDOUT"), ROWS, "{options}");
        }
        // Columns that are not listed get their defaults.
        session.execute("DELETE FROM things", &[]).unwrap();
        copy_in(&mut session, "COPY things (name, id) FROM STDIN", b"x\t7\n", piece).unwrap();
        let row = session.execute("SELECT price FROM things WHERE id = 7", &[]).unwrap().rows;
        assert_eq!(row[0][0], Value::Numeric("1.50".parse().unwrap()));
    }
}

#[test]
fn copy_is_atomic() {
    let many = |rows: i64| -> Vec<u8> {
        (0..rows).flat_map(|n| format!("{n}\t{}\tname {n}\t1\t\\N\t\\N\n", n % 3).into_bytes()).collect()
    };
    let good = many(40_000);
    for inside in [false, true] {
        let mut session = session();
        if inside {
            session.execute("BEGIN", &[]).unwrap();
        }
        // A large copy into an empty table; then one into a table with rows.
        copy_in(&mut session, "COPY things FROM STDIN (FREEZE)", &good, 64 << 10).unwrap();
        assert_eq!(count(&mut session), 40_000, "the transaction itself reads them");
        let more = b"50000\t1\tmore\t1\t\\N\t\\N\n";
        copy_in(&mut session, "COPY things FROM STDIN", more, 7).unwrap();
        if inside {
            session.execute("COMMIT", &[]).unwrap();
        }
        assert_eq!(count(&mut session), 40_001);
        let by_kind = session.execute("SELECT count(*) FROM things WHERE kind = 1", &[]).unwrap();
        assert_eq!(by_kind.rows[0][0], Value::Int8(13_334));
        // Cancelled and dropped copies.
        for sql in ["TRUNCATE things", "BEGIN", "COPY things FROM STDIN"] {
            if sql.starts_with("COPY") {
                let mut prepared = session.prepare(sql).unwrap();
                let mut copy = session.copy_in(&mut prepared).unwrap();
                session.copy_data(&mut copy, &good).unwrap();
                let error = session.copy_fail(copy, "changed my mind");
                assert_eq!((error.state.0, session.status()), ("57014", Status::Failed));
            } else {
                session.execute(sql, &[]).unwrap();
            }
        }
        session.execute("ROLLBACK", &[]).unwrap();
        assert_eq!(count(&mut session), 0);
        session.database().verify().unwrap();
    }
}

#[test]
fn copy_of_bad_data_reports_position_and_stores_nothing() {
    for (sql, data, state, hint) in [
        ("COPY things FROM STDIN", "1\t1\ta\t1\t\\N\t\\N\nx\t1\ta\t1\t\\N\t\\N\n", "22P02", "line 2"),
        ("COPY things FROM STDIN", "1\t1\n", "22P04", "line 1"),
        ("COPY things FROM STDIN", "1\t1\ta\t1\t\\N\t\\N\tmore\n", "22P04", "line 1"),
        ("COPY things FROM STDIN", "1\t9\ta\t1\t\\N\t\\N\n", "23503", ""),
        ("COPY things FROM STDIN", "1\t1\t\\N\t1\t\\N\t\\N\n", "23502", "line 1"),
        ("COPY things FROM STDIN", "1\t1\ta\t1\t\\N\t\\N\n1\t1\ta\t1\t\\N\t\\N\n", "23505", ""),
        ("COPY things FROM STDIN (FORMAT binary)", "nothing like it at all", "22P04", ""),
        ("COPY things (id, name) FROM STDIN (FORMAT csv, HEADER match)", "id,nom\n", "22P04", ""),
    ] {
        for inside in [false, true] {
            let mut session = session();
            if inside {
                session.execute("BEGIN", &[]).unwrap();
            }
            let error = copy_in(&mut session, sql, data.as_bytes(), 9).unwrap_err();
            assert_eq!(error.state.0, state, "{error} {data}");
            assert!(error.hint.clone().unwrap_or_default().contains(hint), "{:?}", error.hint);
            if inside {
                assert_eq!(session.status(), Status::Failed);
                session.execute("ROLLBACK", &[]).unwrap();
            }
            assert_eq!(count(&mut session), 0);
        }
    }
    let mut session = session();
    for (sql, state) in [
        ("COPY things FROM 'file'", "0A000"),
        ("COPY things TO STDOUT (FORMAT parquet)", "22023"),
        ("COPY things TO STDOUT (QUOTE '\"')", "0A000"),
        ("COPY things (id, id) FROM STDIN", "42701"),
        ("COPY things (nothing) FROM STDIN", "42703"),
        ("COPY nowhere FROM STDIN", "42P01"),
        ("COPY things FROM STDIN WHERE id > 1", "42601"),
        ("COPY (DELETE FROM things) TO STDOUT", "0A000"),
    ] {
        assert_eq!(session.prepare(sql).unwrap_err().state.0, state, "{sql}");
    }
    assert_eq!(session.execute("COPY things FROM STDIN", &[]).unwrap_err().state.0, "0A000");
}

#[test]
fn columns_that_are_always_generated_take_what_a_dump_has() {
    let mut session = session();
    session.execute("CREATE TABLE g (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n int)", &[]).unwrap();
    // Into an empty table, and into one with rows.
    for rows in [&b"7\t1\n9\t2\n"[..], b"4\t3\n"] {
        copy_in(&mut session, "COPY g (id, n) FROM STDIN", rows, 1024).unwrap();
    }
    copy_in(&mut session, "COPY g (n) FROM STDIN", b"4\n", 1024).unwrap();
    let found = session.execute("SELECT id, n FROM g ORDER BY n", &[]).unwrap();
    let expected = [(7, 1), (9, 2), (4, 3), (1, 4)].map(|(id, n)| vec![Value::Int4(id), Value::Int4(n)]);
    assert_eq!(found.rows, expected);
    let refused = session.execute("INSERT INTO g (id, n) VALUES (5, 5)", &[]).unwrap_err();
    assert_eq!(refused.state.0, "428C9");
}

#[test]
fn rows_that_refer_to_each_other_come_in_any_order() {
    let mut session = Session::new(Database::in_memory().unwrap());
    session.execute("CREATE TABLE tree (id int PRIMARY KEY, parent int REFERENCES tree)", &[]).unwrap();
    let rows: String = (0..2000).map(|n| format!("{n}\t{}\n", (n + 1) % 2000)).collect();
    copy_in(&mut session, "COPY tree FROM STDIN", rows.as_bytes(), 100).unwrap();
    let answer = session.execute("SELECT count(*) FROM tree", &[]).unwrap();
    assert_eq!(answer.rows[0][0], Value::Int8(2000));
}

#[test]
fn copy_out_sends_rows_of_the_query_engine() {
    let mut session = session();
    copy_in(&mut session, "COPY things FROM STDIN", ROWS, 1000).unwrap();
    let out = copy_out(
        &mut session,
        "COPY (SELECT k.id, count(t.id) FROM kinds k FULL JOIN things t ON t.kind = k.id GROUP BY k.id ORDER BY k.id NULLS LAST) TO STDOUT",
    );
    assert_eq!(out, b"0\t0\n1\t1\n2\t0\n\\N\t1\n");
}
