//! The vocabulary of time series: label sets, matchers, native histograms, columns of samples.
//!
//!   series ─▶ stores and selects them          promql ─▶ evaluates them
//!
//! Read `labels` for the one form of a label set, `matcher` for conditions on labels, `histogram` for buckets
//! and their arithmetic.
//!
//! Not here: the storage form of samples and histograms (`ropewalk-series`), the limits of a query
//! (`ropewalk-promql`).

mod error;
mod histogram;
pub mod kahan;
mod labels;
mod matcher;
mod samples;
pub mod text;

pub use error::LabelError;
pub use histogram::{
    BUCKETS_MAX, Bounded, Bucket, CUSTOM_SCHEMA, Fraction, Histogram, HistogramSum, Incompatible, Outcome,
    Quantile, ResetHint,
};
pub use labels::{
    BUCKET, BytePairs, LABEL_NAME_BYTES_MAX, LABEL_SET_BYTES_MAX, LABEL_VALUE_BYTES_MAX, LABELS_MAX, Labels,
    LabelsIter, LabelsRef, METRIC_NAME, METRIC_TYPE, METRIC_UNIT, check_labels, is_metadata,
};
pub use matcher::{Lookup, MatchOp, Matcher, Part, Pattern, PatternError};
pub use samples::{STALE, STALE_BITS, Samples, is_stale};
