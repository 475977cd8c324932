//! Routes for whoever runs the server.

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use ropewalk_wire::Service;

pub(crate) fn router(service: Service) -> Router {
    Router::new().route("/metrics", get(metrics)).with_state(service)
}

async fn metrics(State(service): State<Service>) -> String {
    service.metrics().render(service.database())
}
