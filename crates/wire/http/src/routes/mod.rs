//! Routes with the rights that they need: one row for each method of a path.
//!
//! The right of a row is checked before the body is read. Only rows become routes, so a handler without a row
//! is not served. Handlers check rights that are known only later: rules of collections, further stores in
//! one request.

mod cluster;
mod elsewhere;
pub(crate) mod layers;
pub(crate) mod openapi;

use axum::Router;
use axum::extract::{FromRequestParts as _, RawPathParams, Request, State};
use axum::http::Method;
use axum::http::request::Parts;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use futures_util::FutureExt as _;
use futures_util::future::{Either, ready};
use ropewalk_auth::{Caller, Needs, Operation, Resource};
use ropewalk_wire::Code;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use crate::admin::{self, backups, in_force, schema, session, users};
use crate::app::App;
use crate::consumers::{changes, checkpoints, commit, groups, projections};
use crate::events::{compat_crablet, live_stats, stores, subscribe};
use crate::kit::problem::Problem;
use crate::route::Route;
use crate::{console, documents, events, transactions};

/// Puts the check of its rights in front of the handlers of a row.
fn guarded(mut route: Route, app: &App) -> Route {
    if route.needs.resource != Resource::Public {
        let guard = Guard { app: app.clone(), needs: route.needs };
        let methods: MethodRouter<App> = std::mem::take(&mut route.methods.2);
        route.methods.2 = methods.route_layer(from_fn_with_state(guard, check));
    }
    route
}

/// Routes that are served without credentials.
fn open(has_console: bool) -> Vec<Route> {
    let mut routes = vec![
        Route::undescribed(Needs::PUBLIC, Method::GET, "/health", layers::health),
        Route::undescribed(Needs::PUBLIC, Method::GET, "/live", layers::health),
        layers::readiness(),
        Route::undescribed(Needs::PUBLIC, Method::GET, "/openapi.json", openapi::document),
    ];
    routes.extend(admin::cluster::open());
    if has_console {
        routes.extend(console::routes());
    }
    routes
}

/// Routes whose responses end.
fn finite(dev: bool) -> Vec<Route> {
    let mut routes = events::routes();
    routes.extend(groups::routes());
    routes.extend(checkpoints::routes());
    routes.extend(projections::routes());
    routes.extend(commit::routes());
    routes.extend(documents::routes());
    routes.extend(transactions::routes());
    routes.extend(stores::routes());
    routes.extend(schema::routes());
    routes.extend(users::routes());
    routes.extend(session::routes());
    routes.extend(in_force::routes());
    routes.extend(admin::cluster::routes());
    routes.extend(compat_crablet::routes(dev));
    routes.extend(layers::routes());
    routes
}

/// Routes whose responses may never end.
fn live() -> Vec<Route> {
    let mut routes = subscribe::routes();
    routes.extend(documents::live());
    routes.extend(live_stats::routes());
    routes.extend(changes::routes());
    routes
}

/// Every route, in groups with different layers.
pub(crate) struct Routes {
    pub(crate) open: Router<App>,
    pub(crate) finite: Router<App>,
    pub(crate) live: Router<App>,
    /// Routes without a time limit.
    pub(crate) unhurried: Router<App>,
}

impl Routes {
    /// Builds every row, with its check in front of its handlers.
    pub(crate) fn new(app: &App) -> Self {
        let guarded = |routes: Vec<Route>| {
            let routes = routes.into_iter().map(|route| guarded(route, app));
            router(routes, OpenApi::default()).split_for_parts().0
        };
        Self {
            open: guarded(open(!app.settings.console.is_empty())),
            finite: guarded(finite(app.settings.dev)),
            live: guarded(live()),
            unhurried: guarded(backups::routes()),
        }
    }
}

/// Every row, with those that only the settings `dev` and `console` serve.
fn all() -> impl Iterator<Item = Route> {
    finite(true).into_iter().chain(live()).chain(backups::routes()).chain(open(true))
}

/// The rows as operations.
pub(crate) fn operations() -> Vec<Operation> {
    let named =
        |route: Route| route.names().into_iter().map(move |name| Operation { name, needs: route.needs });
    all().flat_map(named).collect()
}

/// The OpenAPI document of all rows, on top of `base`.
pub(crate) fn described(base: OpenApi) -> OpenApi {
    router(all(), base).into_openapi()
}

fn router(routes: impl Iterator<Item = Route>, base: OpenApi) -> OpenApiRouter<App> {
    routes.fold(OpenApiRouter::with_openapi(base), |router, route| match route.undescribed {
        Some((_, path)) => router.route(&path, route.methods.2),
        None => router.routes(route.methods),
    })
}

#[derive(Clone)]
struct Guard {
    app: App,
    needs: Needs,
}

/// Rejects a caller without the rights of the row.
fn check(State(guard): State<Guard>, request: Request, next: Next) -> impl Future<Output = Response> + Send {
    let (mut parts, body) = request.into_parts();
    match guard.check(&mut parts) {
        Ok(()) => Either::Left(next.run(Request::from_parts(parts, body))),
        Err(problem) => Either::Right(ready(problem.into_response())),
    }
}

impl Guard {
    fn check(&self, parts: &mut Parts) -> Result<(), Problem> {
        let store = match self.needs.resource {
            Resource::Path(wanted) => {
                // The extractor waits for nothing.
                let names = RawPathParams::from_request_parts(parts, &()).now_or_never();
                let names = names.ok_or_else(|| Problem::new(Code::Internal, "the path cannot be read"))?;
                let names = names.map_err(|rejection| Problem::invalid_path(rejection.body_text()))?;
                names.iter().find(|(name, _)| *name == wanted).map(|(_, store)| store.to_owned())
            }
            Resource::Header => Some(compat_crablet::store(&self.app, &parts.headers)?),
            _ => None,
        };
        let caller = parts.extensions.get::<Caller>();
        let caller = caller.ok_or_else(|| Problem::new(Code::Internal, "the request has no caller"))?;
        Ok(self.app.service.authorize(caller, self.needs, store.as_deref())?)
    }
}
