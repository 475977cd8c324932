//! The first steps of a new leader, next to the work that begins with leading by itself.
//!
//!   leads ─▶ default stores ─▶ secret, own addresses ─▶ interrupted builds of indexes

use std::sync::Arc;

use ropewalk_wire::{Service, WireError};

use crate::cluster::view::View;

/// Waits until this node leads, and prepares it. `stores`: those of the ports of `grpc.stores`.
pub(super) async fn lead(service: Service, view: Arc<View>, stores: Vec<String>) {
    if !service.until_leading().await {
        return;
    }
    tracing::info!(term = view.database().engine().place().term, "this node leads");
    // Each step waits for the disk, and the last may take long.
    let prepared = tokio::task::spawn_blocking(move || prepare(&service, &view, &stores)).await;
    match prepared {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::error!(%error, "a step of the new leader failed"),
        Err(error) => tracing::error!(%error, "a step of the new leader was interrupted"),
    }
}

fn prepare(service: &Service, view: &View, stores: &[String]) -> Result<(), WireError> {
    service.begin_leading()?;
    for store in stores {
        service.database().events(store)?.create()?;
    }
    view.members.make_secret(view.database())?;
    view.join()?;
    let resumed = service.database().resume_index_builds()?;
    if resumed > 0 {
        tracing::info!(resumed, "interrupted builds of indexes are complete");
    }
    Ok(())
}
