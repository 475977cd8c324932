//! HTTP of the server: the product API under `/v1`, its OpenAPI document, and two compatible surfaces.
//!
//!   CORS ─▶ header limit ─▶ host and origin ─▶ metrics ─▶ who calls ─▶ time limit ─▶ compression ─▶ route ─▶ its rights ─▶ Service
//!
//! Read `routes` for the table of rights, `events` for the routes of the event store, `groups` for its consumers, `documents` for those of documents, `stream` and `encode` for how results leave, `subscribe` for live
//! streams, `body` for what may come in, `problem` for errors, `compatible` for the surfaces of others.
//!
//! Nothing here holds state of the database or decides about access: that is [`ropewalk_wire`]'s. The listener (TLS,
//! connections, header time) is the server's; it passes the peer's address as
//! [`axum::extract::ConnectInfo`]`<`[`std::net::SocketAddr`]`>`.
#![deny(missing_docs)]

mod accept;
mod auth;
mod backups;
mod body;
mod changes;
mod checkpoints;
mod compatible;
mod documents;
mod encode;
mod events;
mod groups;
mod hosts;
mod json;
mod layers;
mod openapi;
mod params;
mod path;
mod problem;
mod routes;
mod settings;
mod stores;
mod stream;
mod subscribe;
mod users;

use std::sync::Arc;

use axum::Router;
use axum::http::HeaderName;
use axum::middleware::from_fn_with_state;
pub use hosts::{Hosts, InvalidHost};
use ropewalk_wire::{Operation, Service};
pub use settings::{Cors, HttpSettings, InvalidOrigin};

use routes::Routes;

/// Header of reads: the last position of the store at the moment of the read; 0 when it was empty.
pub(crate) const HEAD: HeaderName = HeaderName::from_static("ropewalk-head");

/// What every handler has at hand.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) service: Service,
    pub(crate) settings: Arc<HttpSettings>,
}

/// Everything that HTTP offers, over `service`.
pub fn router(service: Service, settings: HttpSettings) -> Router {
    router_with(service, settings, Router::new(), Router::new())
}

/// As [`router`], with routes of another protocol on the same port: `others` find the caller as an extension of the request,
/// under the same limits; `others_open` are for everybody, such as probes.
pub fn router_with(service: Service, settings: HttpSettings, others: Router, others_open: Router) -> Router {
    let app = App { service, settings: Arc::new(settings) };
    let Routes { open, finite, live, unhurried } = Routes::new(&app);
    let cors = app.settings.cors.layer();
    // A compressor would hold back what is live, and cost memory for each idle subscription.
    let router = finite
        .merge(others.with_state(()))
        .layer(layers::compression())
        .merge(live)
        .fallback(layers::no_route)
        .layer(from_fn_with_state(app.clone(), layers::limit_time))
        .merge(unhurried)
        .layer(from_fn_with_state(app.clone(), auth::authenticate))
        .merge(open)
        .merge(others_open.with_state(()))
        .method_not_allowed_fallback(layers::other_methods)
        .layer(from_fn_with_state(app.clone(), layers::enter));
    let router = match cors {
        Some(cors) => router.layer(cors),
        None => router,
    };
    router.with_state(app)
}

/// Every operation with the rights that it needs, those of the setting `dev` included. Routes of other protocols are not among them.
pub fn operations() -> Vec<Operation> {
    routes::operations()
}

/// The OpenAPI document as it is served at `/openapi.json` and kept in `docs/openapi.json`.
pub fn openapi_json() -> String {
    openapi::json()
}
