//! Number of samples that the rows of a window represent.

/// Prefix sums over [`ropewalk_labels::Samples::counts`].
pub(super) struct Numbers {
    /// Of the rows before each row, and of all; empty when each row is one sample.
    totals: Vec<usize>,
}

impl Numbers {
    pub(super) fn of(counts: &[u32]) -> Self {
        let mut total = 0;
        let rows = counts.iter().map(|count| {
            total += *count as usize;
            total
        });
        let totals = if counts.is_empty() { Vec::new() } else { std::iter::once(0).chain(rows).collect() };
        Self { totals }
    }

    /// Samples of the rows from `from` to before `to`.
    #[inline]
    pub(super) fn within(&self, from: usize, to: usize) -> usize {
        match (self.totals.get(from), self.totals.get(to)) {
            (Some(before), Some(all)) => all - before,
            _ => to - from,
        }
    }
}
