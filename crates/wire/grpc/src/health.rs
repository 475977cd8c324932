use std::pin::pin;

use futures_util::future::select;
use ropewalk_wire::Service;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::server::health_reporter;

/// The service names of health checks; the empty one is the server.
const NAMES: [&str; 4] = ["", "umadb.v1.DCB", "ropewalk.events.v1.Events", "ropewalk.v1.Transactions"];

/// `grpc.health.v1.Health`: serving until the database stops writing or the server stops, then not serving.
/// Watches end when the server stops.
pub(crate) async fn health(service: &Service) -> HealthServer<impl Health + use<>> {
    let (mut reporter, server) = health_reporter();
    let status = if service.readiness().is_ok() { ServingStatus::Serving } else { ServingStatus::NotServing };
    for name in NAMES {
        reporter.set_service_status(name, status).await;
    }
    let (stop, stopped) = (service.stop().clone(), service.database().until_stopped());
    tokio::spawn(async move {
        select(stopped, pin!(stop.wait())).await;
        for name in NAMES {
            reporter.set_service_status(name, ServingStatus::NotServing).await;
        }
        stop.wait().await;
        for name in NAMES {
            // Watches that are open see the last status and end.
            reporter.clear_service_status(name).await;
        }
    });
    server
}
