//! The oldest time touched by recent commits, so that cached results over the past remain valid as long as
//! possible.
//!
//!   commit ─▶ (seq, oldest time that it touches)      oldest(since): oldest time touched after `since`
//!
//! The list holds suffix minima: times rise from entry to entry, so the first entry after `since` has the
//! oldest time of all later commits. When it is long, neighbours are merged into the later commit with the
//! older time: the result may then be older than the true time, but never newer.

use std::collections::VecDeque;

use parking_lot::Mutex;
use ropewalk_base::Seq;

/// Entries at which neighbours are joined.
const ENTRIES_MAX: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Changes(Mutex<VecDeque<(Seq, i64)>>);

impl Changes {
    /// Records that commit `seq` touches samples at `oldest` ms and maybe later. Commits come in order.
    pub(crate) fn note(&self, seq: Seq, oldest: i64) {
        let mut list = self.0.lock();
        debug_assert!(list.back().is_none_or(|(last, _)| *last <= seq), "commits are noted in their order");
        while list.back().is_some_and(|(_, time)| *time >= oldest) {
            list.pop_back();
        }
        list.push_back((seq, oldest));
        if list.len() >= ENTRIES_MAX {
            let all = std::mem::take(&mut *list);
            let mut all = all.into_iter();
            while let Some((seq, time)) = all.next() {
                let later = all.next().map_or(seq, |(later, _)| later);
                list.push_back((later, time));
            }
            debug_assert!(
                list.iter().is_sorted_by(|a, b| a.0 <= b.0 && a.1 < b.1),
                "commits and oldest times rise"
            );
        }
    }

    /// The oldest time that a commit after `since` touched; `None` without any.
    pub(crate) fn oldest(&self, since: Seq) -> Option<i64> {
        self.since(since).map(|(oldest, _)| oldest)
    }

    /// The same, with the newest commit of all.
    pub(crate) fn since(&self, since: Seq) -> Option<(i64, Seq)> {
        let list = self.0.lock();
        let first = list.partition_point(|(seq, _)| *seq <= since);
        Some((list.get(first)?.1, list.back()?.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_list_of_all_commits_says_the_same(times in prop::collection::vec(0..50_i64, 1..60), since in 0..60_u64) {
            let changes = Changes::default();
            for (seq, time) in (1..).zip(&times) {
                changes.note(Seq(seq), *time);
            }
            prop_assert_eq!(changes.oldest(Seq(since)), times.iter().skip(since as usize).min().copied());
        }
    }

    #[test]
    fn a_long_list_is_careful() {
        let changes = Changes::default();
        let last = 3 * ENTRIES_MAX as u64;
        for seq in 1..=last {
            changes.note(Seq(seq), seq as i64);
        }
        assert!(changes.0.lock().len() < ENTRIES_MAX);
        for since in (0..last).step_by(97) {
            assert!(changes.oldest(Seq(since)) <= Some(since as i64 + 1));
        }
        assert_eq!(changes.oldest(Seq(last)), None);
        assert!(changes.oldest(Seq(last - 1)) > Some(last as i64 - 10_000));
        changes.note(Seq(last + 1), i64::MIN);
        assert_eq!(changes.oldest(Seq(last)), Some(i64::MIN));
    }
}
