//! Ropewalk's time series: samples of labelled series, in any order, exact at every snapshot.
//!
//!   SampleBatch ─▶ append (look up, compress) ─▶ commit ─▶ memory ─▶ flush ─▶ chunks in runs, by day and series
//!   matchers ─▶ index (postings) ─▶ Selection ─▶ read: chunks and memory merged by time
//!
//! Read `types` and `labels` for the words, `store` for the calls, `memory` and `flush` for the life of a sample, `chunk`
//! and `values` for how little it takes. An acknowledged sample is durable and visible.

mod admin;
mod append;
mod batch;
mod block;
mod changes;
mod chunk;
mod column;
mod enforce;
mod error;
mod flush;
#[doc(hidden)]
pub mod fuzzing;
mod histogram;
mod index;
mod labels;
mod matcher;
mod memory;
mod metadata;
mod model;
mod pack;
mod postings;
mod reach;
mod read;
mod reads;
mod rich;
mod rules;
mod section;
mod select;
mod store;
mod stored;
mod types;
mod values;
mod verify;

pub use admin::{Cardinality, LabelCount, ValueCount};
pub use append::AppendSamples;
pub use batch::{Exemplar, SampleBatch, SeriesSamples};
pub use block::{BlockError, Imported, PrometheusBlock};
pub use chunk::{Aggregates, Part, STALE_BITS};
pub use enforce::Enforced;
pub use error::SeriesError;
pub use histogram::{BUCKETS_MAX, Bucket, CUSTOM_SCHEMA, Histogram, ResetHint};
pub use labels::{
    LABEL_NAME_BYTES_MAX, LABEL_SET_BYTES_MAX, LABEL_VALUE_BYTES_MAX, LABELS_MAX, Labels, LabelsIter,
    LabelsRef, METRIC_NAME,
};
pub use matcher::{MatchOp, Matcher};
pub use metadata::{HELP_BYTES_MAX, Metadata, MetricType, UNIT_BYTES_MAX};
pub use model::{SERIES, SeriesModel};
pub use read::Chunk;
pub use reads::{ReadGuard, SeriesReads};
pub use rules::{Downsampling, Keep, Retention, Rules};
pub use select::{Selection, SeriesAt};
pub use store::{PendingSamples, SeriesStore};
pub use stored::PARTITION_MS;
pub use types::{Appended, Duplicates, Samples, SeriesId, SeriesOptions};
