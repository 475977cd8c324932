//! Tests of the shared parts of the protocols.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)] // helpers outside of test functions

mod access;
#[path = "../cluster/mod.rs"]
mod cluster;
mod cluster_service;
mod following;
mod limits;
#[path = "../../../../auth/tests/it/logins.rs"]
mod logins;
mod operations;

use ropewalk::{AppendOptions, Database, Event};
use ropewalk_auth::Caller;
use ropewalk_wire::{Service, ServiceSettings};

pub fn service() -> Service {
    Service::new(Database::in_memory().unwrap(), ServiceSettings::default()).unwrap()
}

pub fn everybody() -> Caller {
    Caller::everybody()
}

pub fn event(event_type: &str, tags: &[&str]) -> Event {
    tags.iter().fold(Event::new(event_type), |event, tag| event.tag(*tag))
}

/// Appends without conditions to the default store.
pub async fn append(service: &Service, events: &[Event]) -> u64 {
    let appended = service.append(&everybody(), "default", events, AppendOptions::default()).await;
    appended.unwrap().last.0
}
