//! Behaviour of the event store.
#![allow(clippy::unwrap_used)] // clippy.toml allows it in test functions, not in their helpers

mod bad_input;
mod concurrency;
mod contents;
mod decisions;
mod deleting;
mod golden;
mod model;
mod probes;
mod reopening;
mod subscriptions;
mod tracking;
mod transactions;

use std::path::Path;
use std::sync::Arc;

use ropewalk_engine::{Background, Engine, EngineOptions};
use ropewalk_events::{Event, EventStore, EventsModel, Query, ReadOptions, SequencedEvent};
use ropewalk_vfs::Env;

/// An engine with the events model, and handles on its stores.
pub struct Db {
    pub engine: Arc<Engine>,
    pub model: Arc<EventsModel>,
}

impl Db {
    pub fn open(env: &Env, options: EngineOptions) -> Self {
        let model = Arc::new(EventsModel::new(1));
        let engine = Engine::open(env, Path::new("/db"), options, vec![model.clone()]).unwrap();
        Self { engine: Arc::new(engine), model }
    }

    pub fn memory() -> Self {
        Self::open(&Env::memory(), EngineOptions::default())
    }

    /// Background work only on request, memtables of 64 KiB.
    pub fn manual(env: &Env) -> Self {
        let options = EngineOptions {
            memory_budget: 1 << 19,
            background: Background::Manual,
            ..EngineOptions::default()
        };
        Self::open(env, options)
    }

    pub fn store(&self, name: &str) -> EventStore {
        EventStore::new(self.engine.clone(), self.model.clone(), name).unwrap()
    }
}

pub fn read(store: &EventStore, query: &Query, options: ReadOptions) -> Vec<SequencedEvent> {
    store.read(query, options).unwrap().collect::<Result<_, _>>().unwrap()
}

pub fn positions(store: &EventStore, query: &Query, options: ReadOptions) -> Vec<u64> {
    read(store, query, options).iter().map(|event| event.position.0).collect()
}

pub fn event(event_type: &str, tags: &[&str]) -> Event {
    tags.iter().fold(Event::new(event_type), |event, tag| event.tag(*tag))
}
