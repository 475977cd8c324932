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

#[cfg(test)]
mod tests {
    use super::count_before;

    #[test]
    fn counts_like_a_partition_point() {
        for len in [0, 1, 39, 40, 41, 80, 81, 1000] {
            let items: Vec<usize> = (0..len).map(|i| i / 3).collect();
            for limit in 0..=len / 3 + 2 {
                assert_eq!(count_before(&items, |&i| i < limit), items.partition_point(|&i| i < limit));
            }
        }
    }
}
