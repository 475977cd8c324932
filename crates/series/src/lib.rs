//! Ropewalk's time series: samples of labelled series, in any order, exact at every snapshot.
//!
//!   SampleBatch ─▶ append (look up, compress) ─▶ commit ─▶ memory ─▶ flush ─▶ chunks in runs, by day and series
//!   matchers ─▶ index (postings) ─▶ Selection ─▶ read: chunks and memory merged by time
//!
//! Read `ropewalk-labels` and `sample` for the types, `store` for the API, `memory` and `storage::flush` for the
//! life of a sample, `chunk` and `chunk::value_column` for the compression. An acknowledged sample is durable and
//! visible.

mod chunk;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod id;
mod import;
mod memory;
mod model;
mod query;
mod retention;
mod sample;
mod storage;
mod store;

pub use chunk::{Aggregates, Part};
pub use error::SeriesError;
pub use id::SeriesId;
pub use import::{BlockError, Imported, PrometheusBlock};
pub use model::committed::CommittedSamples;
pub use model::{SERIES, SeriesModel};
pub use query::reads::{ReadGuard, SeriesReads};
pub use query::select::{Selection, SeriesAt};
pub use retention::enforce::Enforced;
pub use retention::rules::{Downsampling, Retention, RetentionRule, Rules};
pub use sample::batch::{Exemplar, SampleBatch, SeriesSamples};
pub use sample::metadata::{HELP_BYTES_MAX, Metadata, MetricType, UNIT_BYTES_MAX};
pub use sample::types::{Appended, Duplicates, SeriesOptions};
pub use storage::chunk_keys::PARTITION_MS;
pub use storage::read::Chunk;
pub use store::admin::{Cardinality, LabelCount, ValueCount};
pub use store::append::AppendSamples;
pub use store::{PendingSamples, SeriesStore};
