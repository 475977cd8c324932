//! Options of a query.

use crate::budget::Limits;
use crate::syntax::parser::ParseOptions;

/// How queries are read and evaluated. The default understands the whole language, and evaluates as Prometheus does without feature
/// flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Which parts of the language are understood.
    pub parse: ParseOptions,
    /// How old a sample may be that an instant selector sees, in milliseconds.
    pub lookback_ms: i64,
    /// Step of subqueries that give none, in milliseconds.
    pub subquery_step_ms: i64,
    /// Names are taken away at the end of the query instead of by each function, so that labels can still be made from them.
    pub delayed_name_removal: bool,
    /// Rates know when a counter began.
    pub start_timestamps: bool,
    /// The labels `__type__` and `__unit__` are maintained by the storage.
    pub type_and_unit_labels: bool,
    /// What a query may cost.
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
