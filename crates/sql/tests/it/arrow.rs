//! Results as Arrow record batches.

use ropewalk::Database;
use ropewalk::tables::Value;
use ropewalk_sql::arrow::RecordBatch;
use ropewalk_sql::{ArrowRows, Session, arrow_rows, single_rows};

fn rows(s: &mut Session, sql: &str) -> ArrowRows {
    let mut prepared = s.prepare(sql).unwrap();
    let outcome = s.run_columnar(&mut prepared, &[]).unwrap();
    arrow_rows(&outcome).unwrap()
}

fn types(rows: &ArrowRows) -> Vec<String> {
    rows.schema.fields().iter().map(|field| field.data_type().to_string()).collect()
}

fn count(rows: &ArrowRows) -> usize {
    rows.batches.iter().map(RecordBatch::num_rows).sum()
}

const VALUES: &str = "SELECT id::smallint AS a, id AS b, id::bigint AS c, id::real AS d, id::double precision AS e,
    id::numeric AS f, (id / 4.0)::numeric(10, 2) AS g, 'x' || id AS h, id > 1 AS i, '2026-01-02'::date AS j,
    '2026-01-02 03:04:05+00'::timestamptz AS k, '00000000-0000-0000-0000-000000000001'::uuid AS l,
    '{\"a\": 1}'::jsonb AS m, ARRAY[id, NULL] AS n, '1 day'::interval AS o, NULL::int AS p FROM t ORDER BY id";

#[test]
fn arrow_types_are_the_same_from_rows_and_from_the_query_engine() {
    let mut s = Session::new(Database::in_memory().unwrap());
    s.execute_all("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1), (2), (3)").unwrap();
    let mut seen = Vec::new();
    for executor in ["rows", "engine"] {
        s.execute(&format!("SET ropewalk.executor = {executor}"), &[]).unwrap();
        let rows = rows(&mut s, VALUES);
        assert_eq!(count(&rows), 3, "{executor}");
        seen.push(types(&rows));
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0].len(), 16);
    assert!(seen[0][5].starts_with("Decimal128(38"), "{:?}", seen[0]);
    assert!(seen[0][10].contains("UTC"), "{:?}", seen[0]);
    assert!(seen[0][13].starts_with("List"), "{:?}", seen[0]);
}

#[test]
fn columnar_rows_have_the_values_of_the_statement() {
    let mut s = Session::new(Database::in_memory().unwrap());
    s.execute("CREATE TABLE t (n int PRIMARY KEY)", &[]).unwrap();
    s.execute("INSERT INTO t SELECT n FROM generate_series(1, 1000) AS g(n)", &[]).unwrap();
    s.execute("SET ropewalk.executor = engine", &[]).unwrap();
    let sql = "SELECT n, n * 2 AS twice, 'x' || n AS name FROM t WHERE n % 2 = 0 ORDER BY n";
    let mut prepared = s.prepare(sql).unwrap();
    let plain = s.run(&mut prepared, &[]).unwrap();
    let columnar = s.run_columnar(&mut prepared, &[]).unwrap();
    assert_eq!((columnar.tag().to_string(), columnar.count), (plain.tag().to_string(), plain.count));
    assert!(plain.batches.is_empty() && columnar.rows.is_empty());
    assert_eq!(count(&arrow_rows(&columnar).unwrap()), 500);
    assert_eq!(single_rows(&columnar).unwrap(), plain.rows);
    assert_eq!(single_rows(&plain).unwrap(), plain.rows);
    // A later run of the same statement returns rows again.
    assert_eq!(s.run(&mut prepared, &[]).unwrap().rows, plain.rows);
    assert_eq!(single_rows(&s.execute_columnar(sql, &[]).unwrap()).unwrap(), plain.rows);
    assert_eq!(s.execute(sql, &[]).unwrap().rows, plain.rows);
}

#[test]
fn statement_that_writes_returns_its_rows_as_arrow() {
    let mut s = Session::new(Database::in_memory().unwrap());
    s.execute("CREATE TABLE t (id int PRIMARY KEY, name text)", &[]).unwrap();
    let mut insert = s.prepare("INSERT INTO t VALUES ($1, $2) RETURNING id, name").unwrap();
    let outcome = s.run_columnar(&mut insert, &[Value::Int4(1), Value::text("a")]).unwrap();
    let rows = arrow_rows(&outcome).unwrap();
    assert_eq!((count(&rows), types(&rows)), (1, vec!["Int32".to_owned(), "Utf8View".to_owned()]));
    let mut none = s.prepare("DELETE FROM t").unwrap();
    let outcome = s.run_columnar(&mut none, &[]).unwrap();
    assert!(arrow_rows(&outcome).unwrap().schema.fields().is_empty());
}

#[test]
fn columnar_rows_over_the_memory_limit_are_rejected() {
    let mut s = Session::new(Database::in_memory().unwrap());
    s.execute("SET work_mem = '1MB'", &[]).unwrap();
    let mut prepared = s.prepare("SELECT n, n * 2 FROM generate_series(1, 1000000) AS g(n)").unwrap();
    let error = s.run_columnar(&mut prepared, &[]).unwrap_err();
    assert_eq!(error.state.0, "53200");
}
