//! Incremental window functions, folded from segments: sum, average, smallest, largest, count.
//!
//!   samples   ┃ a ┃  b  ┃ c ┃ d ┃      each window is a run of segments; each segment is folded once, however many windows
//!   windows   ┗━━━━━━━━━━━━━┛   ┃      hold it. A day's average every hour reads a sample once, not 24 times.
//!                 ┗━━━━━━━━━━━━━┛
//!
//! Sums are compensated within segments and across them, so that they lose no more than a sum of all samples
//! would.

use ropewalk_labels::Samples;
use ropewalk_labels::kahan::add as kahan;

use super::number::Numbers;

/// A function that can be folded from segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fold {
    Sum,
    Average,
    Min,
    Max,
    Count,
}

impl Fold {
    pub(super) fn find(name: &str) -> Option<Self> {
        Some(match name {
            "sum_over_time" => Fold::Sum,
            "avg_over_time" => Fold::Average,
            "min_over_time" => Fold::Min,
            "max_over_time" => Fold::Max,
            "count_over_time" => Fold::Count,
            _ => return None,
        })
    }

    /// The fold of a run of samples: (sum, its compensation), or (the extreme, 0).
    fn of(self, values: &[f64]) -> (f64, f64) {
        match self {
            Fold::Sum | Fold::Average => compensated(values),
            Fold::Min => (extreme(values, smaller), 0.0),
            Fold::Max => (extreme(values, larger), 0.0),
            Fold::Count => (values.len() as f64, 0.0),
        }
    }

    fn join(self, a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
        match self {
            Fold::Sum | Fold::Average => {
                let (sum, lost) = kahan(b.0, a);
                (sum, lost + b.1)
            }
            Fold::Min => (smaller(a.0, b.0), 0.0),
            Fold::Max => (larger(a.0, b.0), 0.0),
            Fold::Count => (a.0 + b.0, 0.0),
        }
    }

    fn nothing(self) -> (f64, f64) {
        match self {
            Fold::Min | Fold::Max => (f64::NAN, 0.0),
            _ => (0.0, 0.0),
        }
    }

    /// Finishes a fold of `count` samples, which the rows `values` represent.
    fn finish(self, (value, lost): (f64, f64), values: &[f64], count: usize) -> f64 {
        match self {
            Fold::Sum if value.is_infinite() => value,
            Fold::Sum => value + lost,
            // The sum overflows: calculate a running mean instead.
            Fold::Average if !value.is_finite() && count == values.len() => super::window::mean(values),
            Fold::Average if !value.is_finite() => {
                let parts = values.iter().map(|value| value / count as f64);
                let (mean, lost) = parts.fold((0.0, 0.0), |total, part| kahan(part, total));
                mean + lost
            }
            Fold::Average => value / count as f64 + lost / count as f64,
            _ => value,
        }
    }
}

/// The smaller; the earlier of equals, so that 0 and -0 do not depend on segment borders. Ignores NaN unless
/// there is nothing else.
fn smaller(earlier: f64, later: f64) -> f64 {
    if later < earlier || earlier.is_nan() { later } else { earlier }
}

/// The larger, in the same way.
fn larger(earlier: f64, later: f64) -> f64 {
    if later > earlier || earlier.is_nan() { later } else { earlier }
}

/// Accumulators that are updated in parallel, independent of each other.
const LANES: usize = 8;

/// The best value by `better`.
#[inline]
fn extreme(values: &[f64], better: impl Fn(f64, f64) -> f64) -> f64 {
    let (chunks, rest) = values.as_chunks::<LANES>();
    let mut lanes = [f64::NAN; LANES];
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane = better(*lane, *value);
        }
    }
    let best = lanes.iter().chain(rest).copied().fold(f64::NAN, &better);
    // Lanes lose the order of equal zeros, and which NaN was the last.
    if best == 0.0 || best.is_nan() { values.iter().copied().fold(f64::NAN, better) } else { best }
}

/// The sum and its compensation. Source: the error-free sum of two numbers, Knuth, TAOCP volume 2, 4.2.2.
fn compensated(values: &[f64]) -> (f64, f64) {
    let (chunks, rest) = values.as_chunks::<LANES>();
    let (mut sums, mut lost) = ([0.0; LANES], [0.0; LANES]);
    for chunk in chunks {
        for ((sum, lost), value) in sums.iter_mut().zip(&mut lost).zip(chunk) {
            let total = *sum + value;
            let added = total - *sum;
            *lost += (*sum - (total - added)) + (value - added);
            *sum = total;
        }
    }
    let lanes = sums.iter().chain(rest).copied();
    let (sum, carried) = lanes.fold((0.0, 0.0), |total, value| kahan(value, total));
    let lost = carried + lost.iter().sum::<f64>();
    // An infinite sum has no compensation.
    (sum, if sum.is_finite() { lost } else { 0.0 })
}

/// Buffers for [`windows`], reused for each series.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    cuts: Vec<usize>,
    segments: Vec<(f64, f64)>,
}

/// Sets each float whose window is not empty. Windows are (first sample, one past the last); both only rise.
pub(super) fn windows(
    fold: Fold,
    samples: &Samples,
    windows: &[(usize, usize)],
    floats: &mut [f64],
    scratch: &mut Scratch,
) {
    let numbers = Numbers::of(&samples.counts);
    let slice = |from: usize, to: usize| samples.values.get(from..to).unwrap_or_default();
    let total: usize = windows.iter().map(|(from, to)| to - from).sum();
    let Scratch { cuts, segments } = scratch;
    cuts.clear();
    cuts.extend(windows.iter().filter(|(from, to)| from < to).flat_map(|(from, to)| [*from, *to]));
    cuts.sort_unstable();
    cuts.dedup();
    let covered = cuts.last().copied().unwrap_or(0) - cuts.first().copied().unwrap_or(0);
    if total <= covered.saturating_mul(2) || fold == Fold::Count {
        for (place, (from, to)) in floats.iter_mut().zip(windows).filter(|(_, (from, to))| from < to) {
            *place = match fold {
                Fold::Count => numbers.within(*from, *to) as f64,
                _ => fold.finish(fold.of(slice(*from, *to)), slice(*from, *to), numbers.within(*from, *to)),
            };
        }
        return;
    }
    segments.clear();
    segments.extend(cuts.iter().zip(cuts.iter().skip(1)).map(|(from, to)| fold.of(slice(*from, *to))));
    let (mut first, mut last) = (0, 0);
    for (place, (from, to)) in floats.iter_mut().zip(windows).filter(|(_, (from, to))| from < to) {
        while cuts.get(first).is_some_and(|cut| cut < from) {
            first += 1;
        }
        while cuts.get(last).is_some_and(|cut| cut < to) {
            last += 1;
        }
        let parts = segments.get(first..last).unwrap_or_default();
        let value = parts.iter().fold(fold.nothing(), |all, part| fold.join(all, *part));
        *place = fold.finish(value, slice(*from, *to), numbers.within(*from, *to));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: &[f64]) -> Samples {
        let mut samples = Samples::default();
        (0..).zip(values).for_each(|(time, value)| samples.push(time, *value));
        samples
    }

    #[test]
    fn rows_count_for_the_samples_they_represent() {
        let mut runs = samples(&[10.0, 3.0, 5.0]);
        runs.counts = vec![4, 1, 2];
        let all = [(0, 1), (0, 3), (0, 3), (1, 3)];
        for (fold, wanted) in [
            (Fold::Sum, [10.0, 18.0, 18.0, 8.0]),
            (Fold::Average, [2.5, 18.0 / 7.0, 18.0 / 7.0, 8.0 / 3.0]),
            (Fold::Count, [4.0, 7.0, 7.0, 3.0]),
        ] {
            let mut floats = [f64::NAN; 4];
            windows(fold, &runs, &all, &mut floats, &mut Scratch::default());
            assert_eq!(floats, wanted, "{fold:?}");
        }
        // A sum that overflows.
        let mut huge = samples(&[1.6e308, 1.6e308]);
        huge.counts = vec![2, 2];
        let mut floats = [f64::NAN];
        windows(Fold::Average, &huge, &[(0, 2)], &mut floats, &mut Scratch::default());
        assert_eq!(floats, [0.8e308]);
    }

    #[test]
    fn earlier_of_equal_zeros_is_returned() {
        let values = [0.0, -0.0, 0.0, -0.0, -1.0, -0.0];
        let overlapping = [(0, 4), (0, 5), (1, 5), (1, 6), (3, 6)];
        for (fold, wanted) in
            [(Fold::Max, [0.0, 0.0, -0.0, -0.0, -0.0]), (Fold::Min, [0.0, -1.0, -1.0, -1.0, -1.0])]
        {
            let mut floats = [f64::NAN; 5];
            windows(fold, &samples(&values), &overlapping, &mut floats, &mut Scratch::default());
            assert_eq!(floats.map(f64::to_bits), wanted.map(f64::to_bits), "{fold:?}");
        }
    }

    #[test]
    fn segments_equal_samples() {
        let values: Vec<f64> = (0..500).map(|i| f64::from((i * 7919) % 1000) / 7.0 - 50.0).collect();
        let overlapping: Vec<(usize, usize)> = (0..40).map(|i| (i * 5, i * 5 + 300)).collect();
        for fold in [Fold::Sum, Fold::Average, Fold::Min, Fold::Max, Fold::Count] {
            let mut floats = vec![0.0; overlapping.len()];
            windows(fold, &samples(&values), &overlapping, &mut floats, &mut Scratch::default());
            for (got, (from, to)) in floats.iter().zip(&overlapping) {
                let slice = &values[*from..*to];
                let wanted = fold.finish(fold.of(slice), slice, slice.len());
                assert!((got - wanted).abs() <= 1e-12 * wanted.abs(), "{fold:?}: {got} {wanted}");
            }
        }
    }

    #[test]
    fn sum_of_large_numbers_is_compensated() {
        let values = [1.0, 1e100, 1.0, -1e100];
        assert_eq!(Fold::Sum.finish(Fold::Sum.of(&values), &values, 4), 2.0);
        let mut floats = [0.0; 3];
        windows(
            Fold::Sum,
            &samples(&values),
            &[(0, 4), (0, 4), (0, 4)],
            &mut floats,
            &mut Scratch::default(),
        );
        assert_eq!(floats, [2.0; 3]);
        let huge = [1e308, 1e308, -1e308];
        assert_eq!(Fold::Average.finish(Fold::Average.of(&huge), &huge, 3), 1e308 / 3.0);
    }
}
