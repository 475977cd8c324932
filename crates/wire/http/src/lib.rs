//! HTTP of the server: the product API under `/v1`, its OpenAPI document, and two compatible interfaces.
//!
//!   CORS ─▶ header limit ─▶ host and origin ─▶ metrics ─▶ who calls ─▶ time limit ─▶ compression ─▶ route ─▶ its rights ─▶ Service
//!
//! `routes` has the table of rights, `events` the routes of the event store, `groups` its consumers,
//! `documents` the routes of documents, `stream` and `encode` the sending of results, `subscribe` live
//! streams, `body` the limits of requests, `problem` errors, `compatible` the interfaces of other projects.
//!
//! Nothing here holds state of the database ([`ropewalk_wire`] does) or decides about access
//! ([`ropewalk_auth`] does). The listener (TLS, connections, header time) is the server's; it passes the
//! peer's address as [`axum::extract::ConnectInfo`]`<`[`std::net::SocketAddr`]`>`.
#![deny(missing_docs)]

mod admin;
mod consumers;
mod documents;
mod events;
mod kit;
mod openapi;
mod routes;
mod settings;
mod transactions;

use std::sync::Arc;

pub use admin::hosts::{Hosts, InvalidHost};
use axum::Router;
use axum::http::HeaderName;
use axum::middleware::from_fn_with_state;
use ropewalk_auth::Operation;
use ropewalk_transactions::OpenTransactions;
use ropewalk_wire::Service;
pub use settings::{Cors, HttpSettings, InvalidOrigin};

use routes::Routes;

/// Header of reads: the last position of the store at the time of the read; 0 when it was empty.
pub(crate) const HEAD: HeaderName = HeaderName::from_static("ropewalk-head");

/// State available to every handler.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) service: Service,
    pub(crate) settings: Arc<HttpSettings>,
    pub(crate) transactions: OpenTransactions,
}

/// All routes of HTTP, over `service`.
pub fn router(service: Service, settings: HttpSettings) -> Router {
    router_with(service, settings, Router::new(), Router::new())
}

/// As [`router`], with routes of another protocol on the same port: `others` find the caller as an extension
/// of the request, under the same limits; `others_open` need no credentials, such as probes.
pub fn router_with(service: Service, settings: HttpSettings, others: Router, others_open: Router) -> Router {
    let transactions = OpenTransactions::new(service.clone());
    let app = App { service, settings: Arc::new(settings), transactions };
    let Routes { open, finite, live, unhurried } = Routes::new(&app);
    let cors = app.settings.cors.layer();
    // Compression would delay live streams, and cost memory for each idle subscription.
    let router = finite
        .merge(others.with_state(()))
        .layer(kit::layers::compression())
        .merge(live)
        .fallback(kit::layers::no_route)
        .layer(from_fn_with_state(app.clone(), kit::layers::limit_time))
        .merge(unhurried)
        .layer(from_fn_with_state(app.clone(), admin::auth::authenticate))
        .merge(open)
        .merge(others_open.with_state(()))
        .method_not_allowed_fallback(kit::layers::other_methods)
        .layer(from_fn_with_state(app.clone(), kit::layers::enter));
    let router = match cors {
        Some(cors) => router.layer(cors),
        None => router,
    };
    router.with_state(app)
}

/// Every operation with its rights, including those of the setting `dev`, without routes of other protocols.
pub fn operations() -> Vec<Operation> {
    routes::operations()
}

/// The OpenAPI document as served at `/openapi.json` and stored in `docs/openapi.json`.
pub fn openapi_json() -> String {
    openapi::json()
}
