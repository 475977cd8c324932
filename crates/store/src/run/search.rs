//! Searching short sorted lists by counting: all candidates are loaded at the same time, nothing is mispredicted.

/// Below this many candidates counting beats halving.
const COUNT_MAX: usize = 40;

/// Number of leading items for which `before` holds; the items must be partitioned by it.
#[inline]
pub(crate) fn count_before<T>(items: &[T], before: impl Fn(&T) -> bool) -> usize {
    let mut rest = items;
    let mut base = 0;
    while rest.len() > COUNT_MAX {
        let (left, right) = rest.split_at(rest.len() / 2);
        if right.first().is_some_and(&before) {
            base += left.len();
            rest = right;
        } else {
            rest = left;
        }
    }
    base + rest.iter().map(|item| usize::from(before(item))).sum::<usize>()
}

/// Distance from a guess that is searched first: for evenly spread keys a guess in a block of 4 KiB is wrong
/// by three to five entries (a standard deviation, √(n/4)).
pub(crate) const NEAR: usize = 12;

/// As [`count_before`], when the result is likely to be near `guess`: it reads fewer items, so fewer cache
/// lines.
#[inline]
pub(crate) fn count_near<T>(items: &[T], guess: usize, before: impl Fn(&T) -> bool) -> usize {
    let (left, rest) = items.split_at(guess.saturating_sub(NEAR).min(items.len()));
    let (window, right) = rest.split_at((2 * NEAR).min(rest.len()));
    let count = window.iter().map(|item| usize::from(before(item))).sum::<usize>();
    // The items next to the window prove the result.
    if count == 0 && left.last().is_some_and(|item| !before(item)) {
        count_before(left, before)
    } else if count == window.len() && right.first().is_some_and(&before) {
        left.len() + count + count_before(right, before)
    } else {
        left.len() + count
    }
}

#[cfg(test)]
mod tests {
    use super::count_before;
    use super::count_near;

    #[test]
    fn counts_like_a_partition_point() {
        for len in [0, 1, 39, 40, 41, 80, 81, 1000] {
            let items: Vec<usize> = (0..len).map(|i| i / 3).collect();
            for limit in 0..=len / 3 + 2 {
                let expected = items.partition_point(|&i| i < limit);
                assert_eq!(count_before(&items, |&i| i < limit), expected);
                for guess in [0, 1, len / 4, len / 2, expected, len, len + 20] {
                    assert_eq!(count_near(&items, guess, |&i| i < limit), expected, "guess {guess}");
                }
            }
        }
    }
}
