//! Quantiles of plain values.

/// The `q`-quantile, interpolated between adjacent values. Sorts the values, NaN first.
pub(super) fn quantile(q: f64, values: &mut [f64]) -> f64 {
    if values.is_empty() || q.is_nan() {
        return f64::NAN;
    }
    if q < 0.0 {
        return f64::NEG_INFINITY;
    }
    if q > 1.0 {
        return f64::INFINITY;
    }
    let rank = q * (values.len() - 1) as f64;
    let (below, weight) = (rank.floor() as usize, rank - rank.floor());
    let nan_first = |a: &f64, b: &f64| match (a.is_nan(), b.is_nan()) {
        (true, true) => std::cmp::Ordering::Equal,
        (true, false) => std::cmp::Ordering::Less,
        (false, true) => std::cmp::Ordering::Greater,
        (false, false) => a.total_cmp(b),
    };
    let (_, low, above) = values.select_nth_unstable_by(below, nan_first);
    let low = *low;
    let high = above.iter().copied().min_by(nan_first).unwrap_or(low);
    low * (1.0 - weight) + high * weight
}
