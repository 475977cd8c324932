//! Compensated summation (Kahan's, as improved by Neumaier): sums floats as if with twice the digits.

/// Adds `value` to (sum, compensation). Infinite sums have no compensation.
#[inline]
pub fn add(value: f64, (sum, lost): (f64, f64)) -> (f64, f64) {
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
