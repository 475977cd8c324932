//! The OpenAPI document.

use serde_json::Value;

use crate::client::Server;

const COMMITTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/openapi.json");

/// `UPDATE_OPENAPI=1 cargo test -p ropewalk-http document` rewrites the file.
#[test]
fn committed_openapi_document_matches_the_code() {
    let generated = ropewalk_http::openapi_json();
    if std::env::var_os("UPDATE_OPENAPI").is_some() {
        std::fs::write(COMMITTED, &generated).unwrap();
    }
    let committed = std::fs::read_to_string(COMMITTED).unwrap_or_default();
    assert!(committed == generated, "docs/openapi.json is old; UPDATE_OPENAPI=1 writes it anew");
}

#[tokio::test]
async fn openapi_document_is_served() {
    let server = Server::start().await;
    let reply = server.get("/openapi.json").await;
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.text(), ropewalk_http::openapi_json());
}

#[test]
fn every_operation_documents_every_failure_and_all_references_resolve() {
    let document: Value = serde_json::from_str(&ropewalk_http::openapi_json()).unwrap();
    let mut operations = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            operations += 1;
            let responses = operation["responses"].as_object().unwrap();
            for status in
                ["400", "401", "403", "404", "405", "408", "413", "415", "429", "431", "500", "503", "504"]
            {
                assert!(responses.contains_key(status), "{method} {path}: {status}");
            }
            assert!(
                operation["operationId"].is_string() && operation["summary"].is_string(),
                "{method} {path}"
            );
        }
    }
    assert!(operations >= 20, "{operations}");
    let mut references = Vec::new();
    collect(&document, &mut references);
    for reference in references {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

fn collect(value: &Value, references: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            references.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|value| collect(value, references));
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, references)),
        _ => {}
    }
}
