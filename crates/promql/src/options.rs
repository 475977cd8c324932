//! Options of a query.

use crate::budget::Limits;
use crate::syntax::parser::ParseOptions;

/// Options of parsing and evaluation. The default accepts the complete language, and evaluates as Prometheus
/// does without feature flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Accepted parts of the language.
    pub parse: ParseOptions,
    /// Maximum age of a sample for instant selectors, in milliseconds.
    pub lookback_ms: i64,
    /// Default step of subqueries, in milliseconds.
    pub subquery_step_ms: i64,
    /// Removes metric names at the end of the query instead of in each function, so that labels can still be
    /// derived from them.
    pub delayed_name_removal: bool,
    /// Rates use the start timestamps of counters.
    pub start_timestamps: bool,
    /// The labels `__type__` and `__unit__` are maintained by the storage.
    pub type_and_unit_labels: bool,
    /// Cost limits of a query.
    pub limits: Limits,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            parse: ParseOptions::default(),
            lookback_ms: 300_000,
            subquery_step_ms: 60_000,
            delayed_name_removal: false,
            start_timestamps: false,
            type_and_unit_labels: false,
            limits: Limits::default(),
        }
    }
}
