//! HTTP of the server: the product API under `/v1`, its OpenAPI document, and two compatible interfaces.
//!
//!   CORS ─▶ header limit ─▶ host and origin ─▶ metrics ─▶ who calls, time limit ─▶ compression ─▶ route ─▶ its rights ─▶ Service
//!
//! Rooms, from top to bottom, each using only those below it: `routes` has the table of rights, the layers and
//! the OpenAPI document; `transactions`, `documents`, `consumers`, `events`, `admin` and `console` have the handlers;
//! `kit` has bodies, parameters, results and problems; `route` is a row of the table, `app` the state of the handlers.
//!
//! Nothing here holds state of the database ([`ropewalk_wire`] does) or decides about access
//! ([`ropewalk_auth`] does). The listener (TLS, connections, header time) is the server's; it passes the
//! peer's address as [`axum::extract::ConnectInfo`]`<`[`std::net::SocketAddr`]`>`.
#![deny(missing_docs)]

mod admin;
mod app;
mod console;
mod consumers;
mod documents;
mod events;
mod kit;
mod route;
mod routes;
mod settings;
mod transactions;

use axum::Router;
use axum::middleware::from_fn_with_state;
use ropewalk_auth::Operation;
use ropewalk_transactions::OpenTransactions;
use ropewalk_wire::Service;
pub use settings::console::ConsoleFile;
pub use settings::hosts::{Hosts, InvalidHost};
pub use settings::{Cors, HttpSettings, InvalidOrigin, SettingInForce};

use app::App;
use routes::{Routes, layers, openapi};

/// All routes of HTTP, over `service`.
pub fn router(service: Service, settings: HttpSettings) -> Router {
    let transactions = OpenTransactions::new(service.clone());
    router_with(service, transactions, settings, Router::new(), Router::new())
}

/// As [`router`], with open transactions that other protocols share, and with routes of another protocol on
/// the same port: `others` find the caller as an extension of the request, under the same limits;
/// `others_open` need no credentials, such as probes.
pub fn router_with(
    service: Service,
    transactions: OpenTransactions,
    settings: HttpSettings,
    others: Router,
    others_open: Router,
) -> Router {
    let app = App::new(service, settings, transactions);
    let Routes { open, finite, live, unhurried } = Routes::new(&app);
    let cors = app.settings.cors.layer();
    // Compression would delay live streams, and cost memory for each idle subscription.
    let router = finite
        .merge(others.with_state(()))
        .layer(layers::compression())
        .merge(live)
        .fallback(layers::no_route)
        .layer(from_fn_with_state(app.clone(), layers::admit))
        .merge(unhurried.layer(from_fn_with_state(app.clone(), layers::admit_without_limit)))
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

/// Every operation with its rights, including those of the setting `dev` and of the console, without routes of
/// other protocols.
pub fn operations() -> Vec<Operation> {
    routes::operations()
}

/// The OpenAPI document as served at `/openapi.json` and stored in `docs/openapi.json`.
pub fn openapi_json() -> String {
    openapi::json()
}
