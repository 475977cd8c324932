//! Behaviour of the facade.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // clippy.toml allows it in test functions, not in their helpers

mod backup;
mod changes;
mod deciding;
mod documents;
mod fixtures;
mod four_models;
mod groups;
mod opening;
mod projections;
mod projections_refused;
mod promql;
mod series;
mod series_guards;
mod tables;
mod transactions;
mod typed_documents;
mod typed_events;
mod typed_rows;
