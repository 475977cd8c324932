//! The functions of the language: names, arguments, results. Their implementation is in `eval`.

use crate::syntax::ast::ValueType::{self, Matrix, Scalar, String, Vector};

/// A function.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: &'static str,
    /// Types of its arguments; the last one repeats when there are more.
    pub args: &'static [ValueType],
    /// How many of the last argument are optional or may repeat.
    pub variadic: Variadic,
    /// Type of its result.
    pub returns: ValueType,
    /// Must be enabled.
    pub experimental: bool,
    /// The value at a step depends on other steps, so a range query differs from instant queries.
    pub across_steps: bool,
}

/// How the number of arguments may vary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variadic {
    /// Exactly as many as listed.
    None,
    /// The last may be missing, or come up to this many times.
    UpTo(usize),
    /// The last may be missing or repeat without limit.
    Any,
}

pub(crate) const fn function(name: &'static str, args: &'static [ValueType]) -> Function {
    Function {
        name,
        args,
        variadic: Variadic::None,
        returns: Vector,
        experimental: false,
        across_steps: false,
    }
}

const fn scalar(name: &'static str, args: &'static [ValueType]) -> Function {
    Function { returns: Scalar, ..function(name, args) }
}

pub(crate) const fn optional(name: &'static str, args: &'static [ValueType]) -> Function {
    Function { variadic: Variadic::UpTo(1), ..function(name, args) }
}

const fn experimental(function: Function) -> Function {
    Function { experimental: true, ..function }
}

pub(crate) const fn any(name: &'static str, args: &'static [ValueType]) -> Function {
    Function { variadic: Variadic::Any, ..function(name, args) }
}

/// All functions, by name.
pub static FUNCTIONS: &[Function] = &[
    function("abs", &[Vector]),
    function("absent", &[Vector]),
    function("absent_over_time", &[Matrix]),
    function("acos", &[Vector]),
    function("acosh", &[Vector]),
    function("asin", &[Vector]),
    function("asinh", &[Vector]),
    function("atan", &[Vector]),
    function("atanh", &[Vector]),
    function("avg_over_time", &[Matrix]),
    function("ceil", &[Vector]),
    function("changes", &[Matrix]),
    function("clamp", &[Vector, Scalar, Scalar]),
    function("clamp_max", &[Vector, Scalar]),
    function("clamp_min", &[Vector, Scalar]),
    function("cos", &[Vector]),
    function("cosh", &[Vector]),
    function("count_over_time", &[Matrix]),
    optional("day_of_month", &[Vector]),
    optional("day_of_week", &[Vector]),
    optional("day_of_year", &[Vector]),
    optional("days_in_month", &[Vector]),
    function("deg", &[Vector]),
    function("delta", &[Matrix]),
    function("deriv", &[Matrix]),
    experimental(function("double_exponential_smoothing", &[Matrix, Scalar, Scalar])),
    experimental(scalar("end", &[])),
    function("exp", &[Vector]),
    function("first_over_time", &[Matrix]),
    function("floor", &[Vector]),
    function("histogram_avg", &[Vector]),
    function("histogram_count", &[Vector]),
    function("histogram_fraction", &[Scalar, Scalar, Vector]),
    function("histogram_quantile", &[Scalar, Vector]),
    experimental(Function {
        variadic: Variadic::UpTo(9),
        ..function("histogram_quantiles", &[Vector, String, Scalar, Scalar])
    }),
    function("histogram_stddev", &[Vector]),
    function("histogram_stdvar", &[Vector]),
    function("histogram_sum", &[Vector]),
    optional("hour", &[Vector]),
    function("idelta", &[Matrix]),
    function("increase", &[Matrix]),
    experimental(optional("info", &[Vector, Vector])),
    function("irate", &[Matrix]),
    any("label_join", &[Vector, String, String, String]),
    function("label_replace", &[Vector, String, String, String, String]),
    function("last_over_time", &[Matrix]),
    function("ln", &[Vector]),
    function("log10", &[Vector]),
    function("log2", &[Vector]),
    experimental(function("mad_over_time", &[Matrix])),
    experimental(scalar("max_of", &[Scalar, Scalar])),
    function("max_over_time", &[Matrix]),
    experimental(scalar("min_of", &[Scalar, Scalar])),
    function("min_over_time", &[Matrix]),
    optional("minute", &[Vector]),
    optional("month", &[Vector]),
    scalar("pi", &[]),
    function("predict_linear", &[Matrix, Scalar]),
    function("present_over_time", &[Matrix]),
    function("quantile_over_time", &[Scalar, Matrix]),
    function("rad", &[Vector]),
    experimental(scalar("range", &[])),
    function("rate", &[Matrix]),
    function("resets", &[Matrix]),
    optional("round", &[Vector, Scalar]),
    scalar("scalar", &[Vector]),
    function("sgn", &[Vector]),
    function("sin", &[Vector]),
    function("sinh", &[Vector]),
    function("sort", &[Vector]),
    experimental(any("sort_by_label", &[Vector, String])),
    experimental(any("sort_by_label_desc", &[Vector, String])),
    function("sort_desc", &[Vector]),
    function("sqrt", &[Vector]),
    experimental(scalar("start", &[])),
    experimental(function("start_timestamp", &[Vector])),
    function("stddev_over_time", &[Matrix]),
    function("stdvar_over_time", &[Matrix]),
    experimental(scalar("step", &[])),
    function("sum_over_time", &[Matrix]),
    function("tan", &[Vector]),
    function("tanh", &[Vector]),
    scalar("time", &[]),
    function("timestamp", &[Vector]),
    experimental(function("ts_of_first_over_time", &[Matrix])),
    experimental(function("ts_of_last_over_time", &[Matrix])),
    experimental(function("ts_of_max_over_time", &[Matrix])),
    experimental(function("ts_of_min_over_time", &[Matrix])),
    function("vector", &[Scalar]),
    optional("year", &[Vector]),
];

/// The additional functions of MetricsQL, by name.
pub fn of_metricsql() -> &'static [Function] {
    crate::syntax::metricsql::FUNCTIONS
}

/// The function of a name; names are lower case.
pub(crate) fn find(name: &str) -> Option<&'static Function> {
    find_in(FUNCTIONS, name)
}

/// The function of a name in a list sorted by names.
pub(crate) fn find_in(list: &'static [Function], name: &str) -> Option<&'static Function> {
    list.binary_search_by(|function| function.name.cmp(name)).ok().and_then(|at| list.get(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_sorted_and_counted() {
        assert!(FUNCTIONS.is_sorted_by(|a, b| a.name < b.name));
        assert_eq!(FUNCTIONS.len(), 90);
        assert_eq!(FUNCTIONS.iter().filter(|f| f.experimental).count(), 17);
    }
}
