//! Every route, requested by every caller of the matrix; and a second table of their rights.

use ropewalk_auth::{Needs, Operation, Resource};

use crate::kit::Server;
use crate::matrix::{self, Matrix};

const OTLP: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
const FLIGHT: &str = "/arrow.flight.protocol.FlightService/DoPut";

const STORE: Resource = Resource::Setting("prometheus.store");
const READ: Needs = Needs::read(STORE);
const APPEND: Needs = Needs::append(STORE);
const ADMIN: Needs = Needs::admin(STORE);

/// Path, methods, rights. A route that is not here fails the test.
const RIGHTS: &[(&str, &[&str], Needs)] = &[
    ("/api/v1/write", &["POST"], APPEND),
    ("/api/v1/read", &["POST"], READ),
    ("/api/v1/query", &["GET", "POST"], READ),
    ("/api/v1/query_range", &["GET", "POST"], READ),
    ("/api/v1/query_exemplars", &["GET", "POST"], READ),
    ("/api/v1/format_query", &["GET", "POST"], READ),
    ("/api/v1/parse_query", &["GET", "POST"], READ),
    ("/api/v1/labels", &["GET", "POST"], READ),
    ("/api/v1/label/{name}/values", &["GET"], READ),
    ("/api/v1/series", &["GET", "POST"], READ),
    ("/api/v1/series", &["DELETE"], ADMIN),
    ("/api/v1/metadata", &["GET"], READ),
    ("/api/v1/targets", &["GET"], READ),
    ("/api/v1/scrape_pools", &["GET"], READ),
    ("/api/v1/targets/metadata", &["GET"], READ),
    ("/api/v1/rules", &["GET"], READ),
    ("/api/v1/alerts", &["GET"], READ),
    ("/api/v1/alertmanagers", &["GET"], READ),
    ("/api/v1/status/buildinfo", &["GET"], READ),
    ("/api/v1/status/runtimeinfo", &["GET"], READ),
    ("/api/v1/status/flags", &["GET"], READ),
    ("/api/v1/status/config", &["GET"], ADMIN),
    ("/api/v1/status/tsdb", &["GET"], READ),
    ("/api/v1/status/walreplay", &["GET"], READ),
    ("/api/v1/notifications", &["GET"], READ),
    ("/api/v1/features", &["GET"], READ),
    ("/api/v1/admin/tsdb/delete_series", &["POST", "PUT"], ADMIN),
    ("/api/v1/admin/tsdb/clean_tombstones", &["POST", "PUT"], ADMIN),
    ("/api/v1/admin/tsdb/snapshot", &["POST", "PUT"], Needs::admin(Resource::AllStores)),
    ("/api/v1/import", &["POST"], APPEND),
    ("/api/v1/import/csv", &["POST"], APPEND),
    ("/api/v1/import/prometheus", &["POST"], APPEND),
    ("/api/v1/otlp/v1/metrics", &["POST"], APPEND),
    ("/api/v1/config/drop-rules", &["GET"], READ),
    ("/api/v1/config/drop-rules", &["POST", "DELETE"], ADMIN),
    ("/api/v1/config/derived-metrics", &["GET"], READ),
    ("/api/v1/config/derived-metrics", &["POST", "DELETE"], ADMIN),
    ("/-/reload", &["POST", "PUT"], ADMIN),
    ("/write", &["POST"], APPEND),
    ("/api/v2/write", &["POST"], APPEND),
    ("/federate", &["GET"], READ),
    (OTLP, &["POST"], APPEND),
    (FLIGHT, &["POST"], APPEND),
    ("/-/healthy", &["GET"], Needs::PUBLIC),
    ("/-/ready", &["GET"], Needs::PUBLIC),
];

/// The rights in this test's table.
fn needed(method: &str, path: &str) -> Option<Needs> {
    let row = RIGHTS.iter().find(|(known, methods, _)| *known == path && methods.contains(&method));
    row.map(|(.., needs)| *needs)
}

/// Method and path of an operation; gRPC calls are posted.
fn request(operation: &Operation) -> (&str, &str) {
    operation.name.split_once(' ').unwrap_or(("POST", &operation.name))
}

#[tokio::test]
async fn every_route_is_refused_exactly_without_its_rights() {
    let operations = ropewalk_prometheus::operations();
    let mut matrix = Matrix::new("prometheus");
    let users = Server::new();
    matrix::create_users(users.service.access()).await;
    for caller in matrix::callers() {
        let known = caller.login(users.service.access()).await;
        let server = Server::of(known);
        for operation in &operations {
            let (method, path) = request(operation);
            let reply = server.send(method, &path.replace("{name}", "job"), &[], b"").await;
            let grpc = reply.headers.get("grpc-status").or_else(|| reply.trailers.get("grpc-status"));
            let is_refused =
                reply.status == 403 || grpc.is_some_and(|status| status == "7" || status == "16");
            let is_allowed = caller.is_allowed(operation.needs);
            matrix.note(&operation.name, &caller, is_allowed, (is_refused, reply.status));
        }
    }
    matrix.finish(operations.len());
}

#[tokio::test]
async fn routes_are_those_of_the_table_of_this_test_with_the_same_rights() {
    let (server, operations) = (Server::new(), ropewalk_prometheus::operations());
    for (path, methods, needs) in RIGHTS {
        for method in *methods {
            let found = operations.iter().find(|operation| request(operation) == (*method, *path));
            assert_eq!(found.map(|operation| operation.needs), Some(*needs), "{method} {path}");
        }
    }
    for operation in &operations {
        let path = request(operation).1;
        for method in ["GET", "POST", "PUT", "DELETE"] {
            if needed(method, path).is_none() {
                let reply = server.send(method, &path.replace("{name}", "job"), &[], b"").await;
                assert_eq!(reply.status, 405, "{method} {path} has no row in this test");
            }
        }
    }
}

#[tokio::test]
async fn h12_right_is_checked_before_the_query_is_parsed() {
    let users = Server::new();
    matrix::create_users(users.service.access()).await;
    let stranger = &matrix::callers()[1];
    let server = Server::of(stranger.login(users.service.access()).await);
    for path in ["parse_query", "format_query", "query", "query_exemplars"] {
        server.get(&format!("/api/v1/{path}?query=((")).await.is(403);
    }
    let form = [("content-type", "application/x-www-form-urlencoded")];
    // The body is not read either.
    let over = vec![b'x'; 64 << 20];
    server.send("POST", "/api/v1/parse_query", &form, &over).await.is(403);
}
