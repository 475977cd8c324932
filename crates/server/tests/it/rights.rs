//! `docs/rights.md`: the table of rights of every protocol.

use std::fmt::Write as _;

use ropewalk_auth::Operation;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/rights.md");

const HEAD: &str = "# Rights

Which rights a caller needs for each operation of each protocol. This file is generated from the tables that the server checks:
`UPDATE=1 cargo test --test server rights` writes it. The check is made before the body of a request is read, and before a command or
statement runs; an operation without a row is not served.

- A right is `read`, `append` or `admin`, on a store or on all stores (`*`); `admin` includes the others. A database of documents counts as
  the store of its name. *all stores* needs the right on `*`.
- *login*: any user or token. *none*: no credentials.
- Without users and tokens, or with `insecure`, callers without credentials have every right.
- *Checked later*: what the operation needs beyond its row, once the request is decoded. Rules of collections come on top.
- Each protocol has a test that tries every operation by callers without credentials, without a right, with each right alone, on this
  store, on another store and on all stores, and prints `matrix PROTOCOL: N operations, M cells`.
";

/// The protocols: heading, name of an operation, rows.
fn protocols() -> [(&'static str, &'static str, Vec<Operation>); 5] {
    [
        ("HTTP", "Request", [ropewalk_http::operations(), ropewalk_postgres::http_operations()].concat()),
        ("gRPC", "Call", ropewalk_grpc::operations()),
        ("Prometheus", "Request or call", ropewalk_prometheus::operations()),
        ("MongoDB", "Command", ropewalk_mongo::operations()),
        ("PostgreSQL", "Statement", ropewalk_postgres::operations()),
    ]
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    for (protocol, kind, operations) in protocols() {
        let _ = write!(
            page,
            "\n## {protocol}\n| {kind} | Rights | Object | Checked later |\n|---|---|---|---|\n"
        );
        for Operation { name, needs } in operations {
            let name = if kind == "Statement" { name } else { format!("`{name}`") };
            let _ = writeln!(page, "| {name} | {needs} | {} | {} |", needs.resource, needs.later);
        }
    }
    page
}

/// To write the file: `UPDATE=1 cargo test --test server rights`.
#[test]
fn document_of_rights_is_up_to_date() {
    let current = page();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(PATH, &current).unwrap();
    }
    let committed = std::fs::read_to_string(PATH).unwrap_or_default();
    assert!(committed == current, "docs/rights.md is old; UPDATE=1 writes it");
}

#[test]
fn every_protocol_has_rows_without_repetition() {
    for (protocol, _, operations) in protocols() {
        let mut names: Vec<_> = operations.iter().map(|operation| &operation.name).collect();
        assert!(names.len() > 10, "{protocol}");
        names.sort();
        names.dedup();
        assert_eq!(names.len(), operations.len(), "{protocol}");
    }
}

/// The document is made by another crate than the one that serves these operations.
#[test]
fn openapi_document_has_the_operations_of_sql() {
    let document: serde_json::Value = serde_json::from_str(&ropewalk_http::openapi_json()).unwrap();
    for Operation { name, .. } in ropewalk_postgres::http_operations() {
        let (method, path) = name.split_once(' ').unwrap();
        assert!(document["paths"][path][method.to_lowercase()].is_object(), "{name}");
    }
}
