//! Every route with the right that it needs. The right is checked before the body is read and before anything in it is parsed.
//!
//! A handler without a row here is not served, and checks nothing itself.

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post};
use ropewalk_wire::{Caller, Right};

use crate::answer::{ApiError, Kind};
use crate::jobs::kept;
use crate::{
    App, admin, csv, exposition, features, federate, flight, influx, jobs, json_lines, names, otlp, query,
    read, status, tree, write,
};

/// One row: where, who may, how a refusal looks, and the handlers by method.
pub(crate) struct Route {
    pub(crate) path: &'static str,
    right: Right,
    refuse: fn(ApiError) -> Response,
    methods: MethodRouter<App>,
}

fn api(path: &'static str, right: Right, methods: MethodRouter<App>) -> Route {
    Route { path, right, refuse: ApiError::into_response, methods }
}

/// For clients that write: they show or log the body as it is.
fn text(path: &'static str, right: Right, methods: MethodRouter<App>) -> Route {
    Route { path, right, refuse: ApiError::into_text, methods }
}

fn call(path: &'static str, methods: MethodRouter<App>) -> Route {
    Route { path, right: Right::Append, refuse: |error| otlp::grpc::refused(&error), methods }
}

/// The routes of the HTTP port. A path may have several rows with different methods.
pub(crate) fn http() -> Vec<Route> {
    use Right::{Admin, Append, Read};
    vec![
        text("/api/v1/write", Append, post(write::write)),
        text("/api/v1/read", Read, post(read::read)),
        api("/api/v1/query", Read, get(query::instant).post(query::instant)),
        api("/api/v1/query_range", Read, get(query::range).post(query::range)),
        api("/api/v1/query_exemplars", Read, get(query::exemplars).post(query::exemplars)),
        api("/api/v1/format_query", Read, get(query::format).post(query::format)),
        api("/api/v1/parse_query", Read, get(tree::parse).post(tree::parse)),
        api("/api/v1/labels", Read, get(names::names).post(names::names)),
        api("/api/v1/label/{name}/values", Read, get(names::values)),
        api("/api/v1/series", Read, get(names::series).post(names::series)),
        api("/api/v1/series", Admin, delete(names::refuse_delete)),
        api("/api/v1/metadata", Read, get(status::metadata)),
        api("/api/v1/targets", Read, get(jobs::show::targets)),
        api("/api/v1/scrape_pools", Read, get(jobs::show::scrape_pools)),
        api("/api/v1/targets/metadata", Read, get(status::targets_metadata)),
        api("/api/v1/rules", Read, get(jobs::show::rules)),
        api("/api/v1/alerts", Read, get(jobs::show::alerts)),
        api("/api/v1/alertmanagers", Read, get(jobs::show::alertmanagers)),
        api("/api/v1/status/buildinfo", Read, get(status::build_info)),
        api("/api/v1/status/runtimeinfo", Read, get(status::runtime_info)),
        api("/api/v1/status/flags", Read, get(status::flags)),
        // The file may hold passwords.
        api("/api/v1/status/config", Admin, get(status::config)),
        api("/api/v1/status/tsdb", Read, get(status::tsdb)),
        api("/api/v1/status/walreplay", Read, get(status::replayed)),
        api("/api/v1/notifications", Read, get(status::notifications)),
        api("/api/v1/features", Read, get(features::features)),
        api("/api/v1/admin/tsdb/delete_series", Admin, post(admin::delete_series).put(admin::delete_series)),
        api("/api/v1/admin/tsdb/clean_tombstones", Admin, post(admin::clean).put(admin::clean)),
        // The copy is of all stores: `Service::backup` needs the right on every one.
        api("/api/v1/admin/tsdb/snapshot", Admin, post(admin::snapshot).put(admin::snapshot)),
        text("/api/v1/import", Append, post(json_lines::import)),
        text("/api/v1/import/csv", Append, post(csv::import)),
        text("/api/v1/import/prometheus", Append, post(exposition::import)),
        text("/api/v1/otlp/v1/metrics", Append, post(otlp::write)),
        api("/api/v1/config/drop-rules", Read, get(kept::drop_rules)),
        api("/api/v1/config/drop-rules", Admin, post(kept::add_drop_rule).delete(kept::remove_drop_rule)),
        api("/api/v1/config/derived-metrics", Read, get(kept::derived_metrics)),
        api(
            "/api/v1/config/derived-metrics",
            Admin,
            post(kept::add_derived_metric).delete(kept::remove_derived_metric),
        ),
        text("/-/reload", Admin, post(jobs::reload_now).put(jobs::reload_now)),
        api("/write", Append, post(influx::write)),
        api("/api/v2/write", Append, post(influx::write)),
        api("/federate", Read, get(federate::federate)),
    ]
}

/// The calls of the gRPC port.
pub(crate) fn grpc() -> Vec<Route> {
    vec![call(otlp::grpc::PATH, post(otlp::grpc::export)), call(flight::PATH, post(flight::do_put))]
}

/// A router of the rows, each behind the check of its right.
pub(crate) fn router(routes: Vec<Route>, app: &App) -> Router {
    let rows = routes.into_iter().fold(Router::new(), |router, route| {
        let guard = Guard { app: app.clone(), right: route.right, refuse: route.refuse };
        router.route(route.path, route.methods.route_layer(middleware::from_fn_with_state(guard, check)))
    });
    rows.layer(middleware::from_fn_with_state(app.clone(), status::measure)).with_state(app.clone())
}

#[derive(Clone)]
struct Guard {
    app: App,
    right: Right,
    refuse: fn(ApiError) -> Response,
}

async fn check(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let Guard { app, right, refuse } = guard;
    let allowed = match request.extensions().get::<Caller>() {
        Some(caller) => app.service.check(caller, right, &app.settings.store).map_err(ApiError::from),
        None => Err(ApiError::new(Kind::Internal, "the request has no caller")),
    };
    match allowed {
        Ok(()) => next.run(request).await,
        Err(error) => refuse(error),
    }
}
