//! PromQL: the language of Prometheus, as a parser and an evaluator over a reader trait.
//!
//!   text ─▶ lexer ─▶ parser ─▶ syntax tree ─▶ plan ─▶ eval ─▶ Answer        Source: who has the samples
//!
//! ```
//! use ropewalk_promql::{Options, Query, Value};
//! # use ropewalk_promql::*;
//! # struct Nothing;
//! # impl Source for Nothing {
//! #     fn select<'s>(&'s self, _: &Select<'_>, _: &'s Budget<'_>) -> Result<Box<dyn SeriesSet + 's>, SourceError> { unreachable!() }
//! # }
//! # let source = Nothing;
//! let query = Query::parse("1 + 2 * 3", Options::default())?;
//! let answer = query.instant(&source, 0, &|| None)?;
//! assert_eq!(answer.value, Value::Scalar(7.0));
//! # Ok::<(), ropewalk_promql::Error>(())
//! ```
//!
//! Not here: storage, clocks, threads, wire formats. A [`Source`] brings samples; the caller says when to stop.

pub mod ast;
pub mod functions;

mod annotations;
mod budget;
mod calendar;
mod error;
mod eval;
mod histogram;
mod kahan;
mod labels;
mod lexer;
mod matcher;
mod metricsql;
mod parser;
mod plan;
mod position;
mod pretty;
mod print;
mod query;
pub mod script;
mod source;
mod text;

pub use annotations::{Annotation, Severity};
pub use budget::{Budget, BudgetError, Limits, Share, SharedMemory, Spent, Stop};
pub use error::Error;
pub use histogram::{Bounded, Bucket, CUSTOM_SCHEMA, Histogram, ResetHint};
pub use labels::{BUCKET, Labels, METRIC_NAME, METRIC_TYPE, METRIC_UNIT};
pub use matcher::{MatchOp, Matcher, PATTERNS_BYTES_MAX, RegexError};
pub use parser::{ParseError, ParseOptions, parse, parse_selector};
pub use position::Span;
pub use query::{Answer, Options, Query, Sample, Series, Value};
pub use source::{Hints, Runs, STALE, STALE_BITS, Samples, Select, SeriesSet, Source, SourceError, is_stale};
pub use text::{duration as format_duration, float as format_float, parse_duration};
