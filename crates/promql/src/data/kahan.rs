//! Compensated summation (Kahan's, as improved by Neumaier): the sum of many floats as if it had been made with twice the digits.

/// Adds `value` to (sum, what the sum has lost). Infinite sums lose nothing.
#[inline]
pub(crate) fn add(value: f64, (sum, lost): (f64, f64)) -> (f64, f64) {
    let total = sum + value;
    let lost = if total.is_infinite() {
        0.0
    } else if sum.abs() >= value.abs() {
        lost + ((sum - total) + value)
    } else {
        lost + ((value - total) + sum)
    };
    (total, lost)
}
