//! PromQL: the language of Prometheus, as a parser and an evaluator over a reader trait.
//!
//!   text ─▶ lexer ─▶ parser ─▶ syntax tree ─▶ plan ─▶ eval ─▶ Answer        Source: reads the samples
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
//! Not here: storage, clocks, threads, wire formats. A [`Source`] supplies samples; the caller decides when
//! to stop.

mod annotations;
mod budget;
mod data;
mod error;
mod eval;
mod options;
mod plan;
mod query;
pub mod script;
mod syntax;

pub use annotations::{Annotation, Severity};
pub use budget::{Budget, BudgetError, Limits, Share, SharedMemory, StopReason, Usage};
pub use data::patterns::PATTERNS_BYTES_MAX;
pub use data::source::{Hints, SampleRuns, Select, SeriesSet, Source, SourceError};
pub use data::text::{
    duration as format_duration, float as format_float, float_open_metrics as format_float_open_metrics,
    parse_duration,
};
pub use error::Error;
pub use options::Options;
pub use query::{Answer, Query, Sample, Series, Value};
pub use syntax::parser::{ParseError, ParseOptions, parse, parse_selector};
pub use syntax::position::Span;
pub use syntax::{ast, functions};
