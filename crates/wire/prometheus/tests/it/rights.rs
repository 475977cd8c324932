//! Every route with the right that it needs, called by callers of each right.

use std::collections::BTreeSet;

use ropewalk_prometheus::PrometheusSettings;
use ropewalk_wire::{Caller, Credentials, Limits, Right, Roles};

use crate::kit::Server;

const METHODS: [&str; 4] = ["GET", "POST", "PUT", "DELETE"];
const OTLP: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
const FLIGHT: &str = "/arrow.flight.protocol.FlightService/DoPut";

/// Path, methods, right. A route that is not here fails the test.
const RIGHTS: &[(&str, &[&str], Right)] = &[
    ("/api/v1/write", &["POST"], Right::Append),
    ("/api/v1/read", &["POST"], Right::Read),
    ("/api/v1/query", &["GET", "POST"], Right::Read),
    ("/api/v1/query_range", &["GET", "POST"], Right::Read),
    ("/api/v1/query_exemplars", &["GET", "POST"], Right::Read),
    ("/api/v1/format_query", &["GET", "POST"], Right::Read),
    ("/api/v1/parse_query", &["GET", "POST"], Right::Read),
    ("/api/v1/labels", &["GET", "POST"], Right::Read),
    ("/api/v1/label/{name}/values", &["GET"], Right::Read),
    ("/api/v1/series", &["GET", "POST"], Right::Read),
    ("/api/v1/series", &["DELETE"], Right::Admin),
    ("/api/v1/metadata", &["GET"], Right::Read),
    ("/api/v1/targets", &["GET"], Right::Read),
    ("/api/v1/scrape_pools", &["GET"], Right::Read),
    ("/api/v1/targets/metadata", &["GET"], Right::Read),
    ("/api/v1/rules", &["GET"], Right::Read),
    ("/api/v1/alerts", &["GET"], Right::Read),
    ("/api/v1/alertmanagers", &["GET"], Right::Read),
    ("/api/v1/status/buildinfo", &["GET"], Right::Read),
    ("/api/v1/status/runtimeinfo", &["GET"], Right::Read),
    ("/api/v1/status/flags", &["GET"], Right::Read),
    ("/api/v1/status/config", &["GET"], Right::Admin),
    ("/api/v1/status/tsdb", &["GET"], Right::Read),
    ("/api/v1/status/walreplay", &["GET"], Right::Read),
    ("/api/v1/notifications", &["GET"], Right::Read),
    ("/api/v1/features", &["GET"], Right::Read),
    ("/api/v1/admin/tsdb/delete_series", &["POST", "PUT"], Right::Admin),
    ("/api/v1/admin/tsdb/clean_tombstones", &["POST", "PUT"], Right::Admin),
    ("/api/v1/admin/tsdb/snapshot", &["POST", "PUT"], Right::Admin),
    ("/api/v1/import", &["POST"], Right::Append),
    ("/api/v1/import/csv", &["POST"], Right::Append),
    ("/api/v1/import/prometheus", &["POST"], Right::Append),
    ("/api/v1/otlp/v1/metrics", &["POST"], Right::Append),
    ("/api/v1/config/drop-rules", &["GET"], Right::Read),
    ("/api/v1/config/drop-rules", &["POST", "DELETE"], Right::Admin),
    ("/api/v1/config/derived-metrics", &["GET"], Right::Read),
    ("/api/v1/config/derived-metrics", &["POST", "DELETE"], Right::Admin),
    ("/-/reload", &["POST", "PUT"], Right::Admin),
    ("/write", &["POST"], Right::Append),
    ("/api/v2/write", &["POST"], Right::Append),
    ("/federate", &["GET"], Right::Read),
    (OTLP, &["POST"], Right::Append),
    (FLIGHT, &["POST"], Right::Append),
];

fn needed(path: &str, method: &str) -> Option<Right> {
    let row = RIGHTS.iter().find(|(known, methods, _)| *known == path && methods.contains(&method));
    row.map(|(.., right)| *right)
}

/// A caller with one right on every store, or with none.
async fn caller(right: Option<Right>) -> Caller {
    let server = Server::new();
    let access = server.service.access();
    let store = if right.is_none() { "another" } else { "*" };
    let rights = BTreeSet::from([right.unwrap_or(Right::Read)]);
    let roles = Roles::from([(store.to_owned(), rights)]);
    let (_, token) = access.create_token(&Caller::everybody(), "one", roles, None).await.unwrap();
    access.authenticate(Credentials::Token(&token), None).await.unwrap()
}

#[tokio::test]
async fn every_route_needs_the_right_of_its_row() {
    let paths = ropewalk_prometheus::paths();
    for (path, ..) in RIGHTS {
        assert!(paths.contains(path), "{path} has a row and is no route");
    }
    for held in [None, Some(Right::Read), Some(Right::Append), Some(Right::Admin)] {
        let server = Server::with(Limits::default(), PrometheusSettings::default(), caller(held).await);
        for path in &paths {
            for method in METHODS {
                let reply = server.send(method, &path.replace("{name}", "job"), &[], b"").await;
                let Some(right) = needed(path, method) else {
                    assert_eq!(reply.status, 405, "{method} {path} has no row in this test");
                    continue;
                };
                let may = held == Some(right) || held == Some(Right::Admin);
                let grpc = reply.headers.get("grpc-status").or_else(|| reply.trailers.get("grpc-status"));
                let refused = reply.status == 403 || grpc.is_some_and(|status| status == "7");
                assert_eq!(refused, !may, "{method} {path} for a caller with {held:?}: {}", reply.status);
            }
        }
    }
}

#[tokio::test]
async fn h12_right_is_checked_before_the_query_is_parsed() {
    let server = Server::with(Limits::default(), PrometheusSettings::default(), caller(None).await);
    for path in ["parse_query", "format_query", "query", "query_exemplars"] {
        server.get(&format!("/api/v1/{path}?query=((")).await.is(403);
    }
    let form = [("content-type", "application/x-www-form-urlencoded")];
    // Nor is the body read.
    let over = vec![b'x'; 64 << 20];
    server.send("POST", "/api/v1/parse_query", &form, &over).await.is(403);
}
