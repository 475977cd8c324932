//! `features`: the supported features, in the categories and by the names of Prometheus. Unsupported features
//! of Prometheus are listed as `false`; those of MetricsQL have separate categories.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::Response;
use ropewalk::promql::ast::{AggregateOp, BinaryOp};
use ropewalk::promql::functions::{FUNCTIONS, Function, of_metricsql};

use crate::app::App;
use crate::request::response::{ApiError, Notes, success};
use crate::settings::Deltas;

/// Features of the language other than functions and operators, by name.
const LANGUAGE: [(&str, bool); 21] = [
    ("anchored", true),
    ("at_modifier", true),
    ("bool", true),
    ("by", true),
    ("delayed_name_removal", false),
    ("duration_expr", true),
    ("fill", true),
    ("fill_left", true),
    ("fill_right", true),
    ("group_left", true),
    ("group_right", true),
    ("ignoring", true),
    ("negative_offset", true),
    ("offset", true),
    ("on", true),
    ("per_query_lookback_delta", true),
    ("per_step_stats", false),
    ("smoothed", true),
    ("subqueries", true),
    ("type_and_unit_labels", false),
    ("without", true),
];

const API: [(&str, bool); 13] = [
    ("admin", true),
    ("exclude_alerts", true),
    ("label_values_match", true),
    ("lifecycle", true),
    ("openapi_3.1", false),
    ("openapi_3.2", false),
    ("otlp_write_receiver", true),
    ("query_stats", true),
    ("query_warnings", true),
    ("remote_write_receiver", true),
    ("search", false),
    ("time_range_labels", true),
    ("time_range_series", true),
];

const RULES: [(&str, bool); 3] =
    [("concurrent_rule_eval", false), ("keep_firing_for", true), ("query_offset", true)];

const SCRAPE: [(&str, bool); 3] = [
    ("extra_scrape_metrics", false),
    ("start_timestamp_zero_ingestion", false),
    ("type_and_unit_labels", false),
];

const DISCOVERY: [(&str, bool); 3] = [("file", true), ("http", true), ("static", true)];

const STORAGE: [(&str, bool); 4] =
    [("exemplar_storage", true), ("isolation", true), ("native_histograms", true), ("st_storage", true)];

/// Functions in the templates of alerts.
const TEMPLATES: [(&str, bool); 8] = [
    ("humanize", true),
    ("humanize1024", true),
    ("humanizeDuration", true),
    ("humanizePercentage", true),
    ("humanizeTimestamp", true),
    ("title", true),
    ("toLower", true),
    ("toUpper", true),
];

/// `features`.
pub(crate) async fn features(State(app): State<App>) -> Result<Response, ApiError> {
    let list = |pairs: &[(&'static str, bool)]| pairs.iter().copied().collect::<BTreeMap<_, _>>();
    let functions = |all: &'static [Function]| {
        all.iter().map(|function| (function.name, true)).collect::<BTreeMap<_, _>>()
    };
    let operators =
        BinaryOp::ALL.iter().map(|op| op.name()).chain(AggregateOp::ALL.iter().map(|op| op.name()));
    let mut operators: BTreeMap<&str, bool> = operators.map(|name| (name, true)).collect();
    operators.extend([("=~", true), ("!~", true), ("@", true)]);
    let deltas = app.settings.otlp_deltas == Deltas::Cumulate;
    let all = BTreeMap::from([
        ("api", list(&API)),
        ("metricsql_aggregations", AggregateOp::OF_METRICSQL.iter().map(|op| (op.name(), true)).collect()),
        ("metricsql_functions", functions(of_metricsql())),
        ("otlp_receiver", BTreeMap::from([("delta_conversion", deltas)])),
        ("prometheus", list(&[("agent_mode", false), ("auto_reload_config", false), ("server_mode", true)])),
        ("promql", list(&LANGUAGE)),
        ("promql_functions", functions(FUNCTIONS)),
        ("promql_operators", operators),
        ("rules", list(&RULES)),
        ("scrape", list(&SCRAPE)),
        ("service_discovery_providers", list(&DISCOVERY)),
        ("templating_functions", list(&TEMPLATES)),
        ("tsdb", list(&STORAGE)),
    ]);
    let text = serde_json::json!(all).to_string();
    Ok(success(&Notes::default(), |out| out.extend_from_slice(text.as_bytes())))
}
