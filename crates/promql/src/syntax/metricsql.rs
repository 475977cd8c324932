//! The functions that MetricsQL, the language of VictoriaMetrics, adds to PromQL: names, arguments, results.
//! Their implementation is in `eval::metricsql`.
//!
//! Names in both languages have PromQL's meaning. Windows contain the samples of the range only, as
//! everywhere in PromQL; a step without a value is a gap.
//! Source: the documentation of MetricsQL.

use crate::syntax::ast::ValueType::{Matrix, Scalar, String, Vector};
use crate::syntax::functions::{Function, any, find_in, function, optional};

const fn across(function: Function) -> Function {
    Function { across_steps: true, ..function }
}

/// All of them, by name.
pub(crate) static FUNCTIONS: &[Function] = &[
    function("alias", &[Vector, String]),
    function("ascent_over_time", &[Matrix]),
    function("count_eq_over_time", &[Matrix, Scalar]),
    function("count_gt_over_time", &[Matrix, Scalar]),
    function("count_le_over_time", &[Matrix, Scalar]),
    function("count_ne_over_time", &[Matrix, Scalar]),
    function("decreases_over_time", &[Matrix]),
    function("deriv_fast", &[Matrix]),
    function("descent_over_time", &[Matrix]),
    function("distinct_over_time", &[Matrix]),
    any("drop_common_labels", &[Vector, Vector]),
    function("duration_over_time", &[Matrix, Scalar]),
    function("geomean_over_time", &[Matrix]),
    function("ideriv", &[Matrix]),
    function("increases_over_time", &[Matrix]),
    function("integrate", &[Matrix]),
    across(function("interpolate", &[Vector])),
    across(function("keep_last_value", &[Vector])),
    across(function("keep_next_value", &[Vector])),
    any("label_copy", &[Vector, String]),
    any("label_del", &[Vector, String]),
    any("label_keep", &[Vector, String]),
    any("label_lowercase", &[Vector, String]),
    any("label_map", &[Vector, String, String]),
    function("label_match", &[Vector, String, String]),
    function("label_mismatch", &[Vector, String, String]),
    any("label_move", &[Vector, String]),
    any("label_set", &[Vector, String]),
    function("label_transform", &[Vector, String, String, String]),
    any("label_uppercase", &[Vector, String]),
    function("label_value", &[Vector, String]),
    any("labels_equal", &[Vector, String]),
    function("lag", &[Matrix]),
    function("lifetime", &[Matrix]),
    function("limit_offset", &[Scalar, Scalar, Vector]),
    function("median_over_time", &[Matrix]),
    function("mode_over_time", &[Matrix]),
    function("outlier_iqr_over_time", &[Matrix]),
    across(function("range_avg", &[Vector])),
    across(function("range_first", &[Vector])),
    across(function("range_last", &[Vector])),
    across(function("range_linear_regression", &[Vector])),
    across(function("range_mad", &[Vector])),
    across(function("range_max", &[Vector])),
    across(function("range_median", &[Vector])),
    across(function("range_min", &[Vector])),
    across(function("range_normalize", &[Vector])),
    function("range_over_time", &[Matrix]),
    across(function("range_quantile", &[Scalar, Vector])),
    across(function("range_stddev", &[Vector])),
    across(function("range_stdvar", &[Vector])),
    across(function("range_sum", &[Vector])),
    across(function("range_trim_outliers", &[Scalar, Vector])),
    across(function("range_trim_spikes", &[Scalar, Vector])),
    across(function("range_trim_zscore", &[Scalar, Vector])),
    across(function("range_zscore", &[Vector])),
    function("rate_over_sum", &[Matrix]),
    across(function("remove_resets", &[Vector])),
    optional("rollup", &[Matrix, String]),
    optional("rollup_candlestick", &[Matrix, String]),
    optional("rollup_delta", &[Matrix, String]),
    optional("rollup_deriv", &[Matrix, String]),
    optional("rollup_increase", &[Matrix, String]),
    optional("rollup_rate", &[Matrix, String]),
    optional("rollup_scrape_interval", &[Matrix, String]),
    across(function("running_avg", &[Vector])),
    across(function("running_max", &[Vector])),
    across(function("running_min", &[Vector])),
    across(function("running_sum", &[Vector])),
    function("scrape_interval", &[Matrix]),
    function("share_eq_over_time", &[Matrix, Scalar]),
    function("share_gt_over_time", &[Matrix, Scalar]),
    function("share_le_over_time", &[Matrix, Scalar]),
    across(function("smooth_exponential", &[Vector, Scalar])),
    any("sort_by_label_numeric", &[Vector, String]),
    any("sort_by_label_numeric_desc", &[Vector, String]),
    function("sum2_over_time", &[Matrix]),
    function("sum_eq_over_time", &[Matrix, Scalar]),
    function("sum_gt_over_time", &[Matrix, Scalar]),
    function("sum_le_over_time", &[Matrix, Scalar]),
    function("tfirst_over_time", &[Matrix]),
    function("tlast_change_over_time", &[Matrix]),
    function("tlast_over_time", &[Matrix]),
    function("tmax_over_time", &[Matrix]),
    function("tmin_over_time", &[Matrix]),
    any("union", &[Vector, Vector]),
    function("zscore_over_time", &[Matrix]),
];

/// The function of a name.
pub(crate) fn find(name: &str) -> Option<&'static Function> {
    find_in(FUNCTIONS, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_none_is_one_of_promql() {
        assert!(FUNCTIONS.is_sorted_by(|a, b| a.name < b.name));
        assert!(FUNCTIONS.iter().all(|function| crate::syntax::functions::find(function.name).is_none()));
    }

    #[test]
    fn each_is_calculated_somewhere() {
        use crate::eval::metricsql;
        for function in FUNCTIONS {
            let places = [
                metricsql::window(function.name).is_some(),
                metricsql::parts(function.name).is_some(),
                function.args.contains(&Vector),
            ];
            assert_eq!(places.iter().filter(|there| **there).count(), 1, "{}", function.name);
            assert!(function.across_steps <= function.args.contains(&Vector), "{}", function.name);
        }
    }
}
