//! Every route with the rights it needs. They are checked before the body is read and before anything in it
//! is parsed.
//!
//! A handler without a row here is not served, and handlers check no rights themselves.

use axum::Router;
use axum::extract::{Request, State};
use axum::handler::Handler;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use ropewalk_auth::{Caller, Needs, Operation, Resource};
use ropewalk_wire::{Code, WireError};

use crate::app::App;
use crate::export::{federate, remote_read};
use crate::ingest::{csv, exposition, flight, influx, json_lines, otlp, remote_write};
use crate::query::{ast_json, names};
use crate::request::response::ApiError;
use crate::status::{admin, features, monitoring};
use crate::{query, runtime_rules, status};

const STORE: Resource = Resource::Setting("prometheus.store");
const READ: Needs = Needs::read(STORE);
const APPEND: Needs = Needs::append(STORE);
const ADMIN: Needs = Needs::admin(STORE);

/// One row: its path and methods, the rights it needs, the format of errors, and the handler.
pub(crate) struct Route {
    path: &'static str,
    methods: Methods,
    needs: Needs,
    refuse: fn(ApiError) -> Response,
    handler: MethodRouter<App>,
}

/// Methods of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Methods {
    Get,
    Post,
    Delete,
    GetPost,
    PostPut,
}

impl Methods {
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::Get => &["GET"],
            Self::Post => &["POST"],
            Self::Delete => &["DELETE"],
            Self::GetPost => &["GET", "POST"],
            Self::PostPut => &["POST", "PUT"],
        }
    }

    fn filter(self) -> MethodFilter {
        match self {
            Self::Get => MethodFilter::GET,
            Self::Post => MethodFilter::POST,
            Self::Delete => MethodFilter::DELETE,
            Self::GetPost => MethodFilter::GET.or(MethodFilter::POST),
            Self::PostPut => MethodFilter::POST.or(MethodFilter::PUT),
        }
    }
}

fn api<T: 'static>(
    path: &'static str,
    methods: Methods,
    needs: Needs,
    handler: impl Handler<T, App>,
) -> Route {
    Route { path, methods, needs, refuse: ApiError::into_response, handler: on(methods.filter(), handler) }
}

/// For writing clients: they display or log the body unchanged.
fn text<T: 'static>(
    path: &'static str,
    methods: Methods,
    needs: Needs,
    handler: impl Handler<T, App>,
) -> Route {
    Route { refuse: ApiError::into_text, ..api(path, methods, needs, handler) }
}

fn call<T: 'static>(path: &'static str, handler: impl Handler<T, App>) -> Route {
    Route { refuse: |error| otlp::grpc::refused(&error), ..api(path, Methods::Post, APPEND, handler) }
}

/// The routes of the HTTP port. A path may have several rows with different methods.
pub(crate) fn http() -> Vec<Route> {
    use Methods::{Delete, Get, GetPost, Post, PostPut};
    vec![
        text("/api/v1/write", Post, APPEND, remote_write::write),
        text("/api/v1/read", Post, READ, remote_read::read),
        api("/api/v1/query", GetPost, READ, query::instant),
        api("/api/v1/query_range", GetPost, READ, query::range),
        api("/api/v1/query_exemplars", GetPost, READ, query::exemplars),
        api("/api/v1/format_query", GetPost, READ, query::format),
        api("/api/v1/parse_query", GetPost, READ, ast_json::parse),
        api("/api/v1/labels", GetPost, READ, names::names),
        api("/api/v1/label/{name}/values", Get, READ, names::values),
        api("/api/v1/series", GetPost, READ, names::series),
        api("/api/v1/series", Delete, ADMIN, names::refuse_delete),
        api("/api/v1/metadata", Get, READ, status::metadata),
        api("/api/v1/targets", Get, READ, monitoring::targets),
        api("/api/v1/scrape_pools", Get, READ, monitoring::scrape_pools),
        api("/api/v1/targets/metadata", Get, READ, status::targets_metadata),
        api("/api/v1/rules", Get, READ, monitoring::rules),
        api("/api/v1/alerts", Get, READ, monitoring::alerts),
        api("/api/v1/alertmanagers", Get, READ, monitoring::alertmanagers),
        api("/api/v1/status/buildinfo", Get, READ, status::build_info),
        api("/api/v1/status/runtimeinfo", Get, READ, status::runtime_info),
        api("/api/v1/status/flags", Get, READ, status::flags),
        // The configuration file may contain passwords.
        api("/api/v1/status/config", Get, ADMIN, status::config),
        api("/api/v1/status/tsdb", Get, READ, status::tsdb),
        api("/api/v1/status/walreplay", Get, READ, status::replayed),
        api("/api/v1/notifications", Get, READ, status::notifications),
        api("/api/v1/features", Get, READ, features::features),
        api("/api/v1/admin/tsdb/delete_series", PostPut, ADMIN, admin::delete_series),
        api("/api/v1/admin/tsdb/clean_tombstones", PostPut, ADMIN, admin::clean),
        // The copy contains all stores.
        api("/api/v1/admin/tsdb/snapshot", PostPut, Needs::admin(Resource::AllStores), admin::snapshot),
        text("/api/v1/import", Post, APPEND, json_lines::import),
        text("/api/v1/import/csv", Post, APPEND, csv::import),
        text("/api/v1/import/prometheus", Post, APPEND, exposition::import),
        text("/api/v1/otlp/v1/metrics", Post, APPEND, otlp::write),
        api("/api/v1/config/drop-rules", Get, READ, runtime_rules::drop_rules),
        api("/api/v1/config/drop-rules", Post, ADMIN, runtime_rules::add_drop_rule),
        api("/api/v1/config/drop-rules", Delete, ADMIN, runtime_rules::remove_drop_rule),
        api("/api/v1/config/derived-metrics", Get, READ, runtime_rules::derived_metrics),
        api("/api/v1/config/derived-metrics", Post, ADMIN, runtime_rules::add_derived_metric),
        api("/api/v1/config/derived-metrics", Delete, ADMIN, runtime_rules::remove_derived_metric),
        text("/-/reload", PostPut, ADMIN, monitoring::reload),
        api("/write", Post, APPEND, influx::write),
        api("/api/v2/write", Post, APPEND, influx::write),
        api("/federate", Get, READ, federate::federate),
    ]
}

/// The calls of the gRPC port.
pub(crate) fn grpc() -> Vec<Route> {
    vec![call(otlp::grpc::PATH, otlp::grpc::export), call(flight::PATH, flight::do_put)]
}

/// Every row as operations; a gRPC call is named by its path.
pub(crate) fn operations() -> Vec<Operation> {
    let mut operations = Vec::new();
    for Route { path, methods, needs, .. } in http() {
        let named = |method: &&str| Operation { name: format!("{method} {path}"), needs };
        operations.extend(methods.names().iter().map(named));
    }
    let called = |call: Route| Operation { name: call.path.to_owned(), needs: call.needs };
    operations.extend(grpc().into_iter().map(called));
    let open = |path| Operation { name: format!("GET {path}"), needs: Needs::PUBLIC };
    operations.extend(OPEN.map(open));
    operations
}

/// Paths of the routes that need no credentials.
pub(crate) const OPEN: [&str; 2] = ["/-/healthy", "/-/ready"];

/// A router of the rows, each with the check of its rights.
pub(crate) fn router(routes: Vec<Route>, app: &App) -> Router {
    let rows = routes.into_iter().fold(Router::new(), |router, route| {
        let guard = Guard { app: app.clone(), needs: route.needs, refuse: route.refuse };
        router.route(route.path, route.handler.route_layer(middleware::from_fn_with_state(guard, check)))
    });
    rows.layer(middleware::from_fn_with_state(app.clone(), status::measure)).with_state(app.clone())
}

#[derive(Clone)]
struct Guard {
    app: App,
    needs: Needs,
    refuse: fn(ApiError) -> Response,
}

async fn check(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let Guard { app, needs, refuse } = guard;
    let allowed = match request.extensions().get::<Caller>() {
        Some(caller) => app.service.authorize(caller, needs, Some(&app.settings.store)),
        None => Err(WireError::new(Code::Unauthenticated, "credentials are needed")),
    };
    match allowed {
        Ok(()) => next.run(request).await,
        Err(error) => refuse(error.into()),
    }
}
