//! Status endpoints.

use ropewalk_auth::Caller;
use ropewalk_monitoring::Config;
use ropewalk_prometheus::{Prometheus, PrometheusSettings};
use ropewalk_wire::Limits;
use serde_json::json;
use std::time::Duration;

use crate::kit::Server;

#[tokio::test]
async fn unsupported_lists_are_empty() {
    let server = Server::new();
    for (path, data) in [
        ("rules", json!({"groups": []})),
        ("alerts", json!({"alerts": []})),
        ("metadata", json!({})),
        ("targets", json!({"activeTargets": [], "droppedTargets": [], "droppedTargetCounts": {}})),
        ("targets/metadata", json!([])),
        ("alertmanagers", json!({"activeAlertmanagers": [], "droppedAlertmanagers": []})),
    ] {
        let reply = server.get(&format!("/api/v1/{path}")).await;
        assert_eq!(reply.is(200).json(), json!({"status": "success", "data": data}), "{path}");
        assert_eq!(reply.header("content-type"), "application/json");
    }
}

#[tokio::test]
async fn status_endpoints_list_all_fields() {
    let server = Server::new();
    server.import("up{job=\"a\"} 1 1\nup{job=\"b\"} 1 1\ndown{job=\"a\"} 1 1\n").await;
    let data =
        async |path: &str| server.get(&format!("/api/v1/status/{path}")).await.is(200).json()["data"].clone();
    assert_eq!(data("buildinfo").await["version"], "3.15.0");
    assert_eq!(data("flags").await["query.timeout"], "120s");
    assert!(data("runtimeinfo").await["startTime"].as_str().unwrap().ends_with('Z'));
    assert!(data("config").await["yaml"].is_string());
    assert_eq!(
        data("tsdb?limit=1").await,
        json!({
            "headStats": {"numSeries": 3, "numLabelPairs": 4},
            "seriesCountByMetricName": [{"name": "up", "value": 2}],
            "labelValueCountByLabelName": [{"name": "__name__", "value": 2}],
            "seriesCountByLabelValuePair": [{"name": "__name__=up", "value": 2}],
        })
    );
    server.get("/api/v1/status/tsdb?limit=x").await.says(400, "limit must be a positive number");
    assert_eq!(server.get("/-/healthy").await.is(200).text(), "Ropewalk is healthy.\n");
    server.get("/-/ready").await.is(200);
    server.service.stop().begin();
    server.get("/-/ready").await.is(503);
    server.get("/api/v1/status/tsdb").await.is(503);
}

#[tokio::test]
async fn features_are_listed_by_name() {
    let server = Server::new();
    let features = server.get("/api/v1/features").await.is(200).json()["data"].clone();
    for (category, name, there) in [
        ("promql", "anchored", true),
        ("promql", "delayed_name_removal", false),
        ("promql_functions", "info", true),
        ("promql_operators", "limitk", true),
        ("metricsql_functions", "median_over_time", true),
        ("metricsql_aggregations", "outliersk", true),
        ("api", "search", false),
        ("otlp_receiver", "delta_conversion", false),
    ] {
        assert_eq!(features[category][name], there, "{category} {name}");
    }
    // Listed features are supported.
    for query in
        ["info(up)", "limitk(1,up)", "rate(up%5B5m%5D%20anchored)", "up%2Bfill(1)up", "outliersk(1,up)"]
    {
        server.get(&format!("/api/v1/query?query={query}")).await.is(200);
    }
    assert_eq!(server.get("/api/v1/notifications").await.is(200).json()["data"], json!([]));
    assert_eq!(server.get("/api/v1/status/walreplay").await.is(200).json()["data"]["current"], 0);
}

#[tokio::test]
async fn own_metrics_are_stored_as_series() {
    let server = Server::new();
    let settings = PrometheusSettings::default();
    let every = Duration::from_millis(5);
    let prometheus = Prometheus::new(server.service.clone(), settings, Config::default()).unwrap();
    let scraping = tokio::spawn(prometheus.scrape_self(every, "here:1".to_owned()));
    while !server.dump().contains("ropewalk_commits_total{instance=\"here:1\",job=\"ropewalk\"}") {
        tokio::time::sleep(every).await;
    }
    server.service.stop().begin();
    scraping.await.unwrap();
}

#[tokio::test]
async fn requests_without_rights_are_rejected() {
    let admin = Server::new();
    let access = admin.service.access();
    let roles = |right: &str| {
        let rights = std::collections::BTreeSet::from([right.parse().unwrap()]);
        ropewalk_auth::Roles::from([("default".to_owned(), rights)])
    };
    let (_, token) = access.create_token(&Caller::everybody(), "reader", roles("read"), None).await.unwrap();
    let reader = access.authenticate(ropewalk_auth::Credentials::Token(&token), None).await.unwrap();
    let server = Server::with(Limits::default(), PrometheusSettings::default(), reader);
    server.send("POST", "/api/v1/import/prometheus", &[], b"a 1").await.says(403, "lacks the right");
    server.send("POST", "/api/v1/write", &[], b"").await.is(403);
    server.send("POST", "/-/reload", &[], b"").await.is(403);
    server.get("/api/v1/status/tsdb").await.is(200);
}
