//! The plans that a session caches, by statement text.
//!
//! ```text
//! text ─▶ take ─▶ run ─▶ put        the entry of a text is empty while its plan runs
//! ```

use std::collections::HashMap;

use ropewalk::Seq;

use crate::session::prepared::Prepared;

#[derive(Default)]
pub(crate) struct PlanCache {
    /// `None`: the plan runs, or was dropped.
    plans: HashMap<String, Option<Prepared>>,
    /// The oldest snapshot at which one of them was planned.
    planned_at: Seq,
}

impl PlanCache {
    /// Takes the plan of a text out, to run it.
    pub(crate) fn take(&mut self, text: &str) -> Option<Prepared> {
        self.plans.get_mut(text)?.take()
    }

    /// Caches a plan that was made at the snapshot `at`, or later. At `max` texts all others are dropped.
    pub(crate) fn put(&mut self, text: &str, plan: Prepared, max: usize, at: Seq) {
        if !self.plans.contains_key(text) && self.plans.len() >= max {
            self.plans.clear();
        }
        self.planned_at = if self.plans.is_empty() { at } else { self.planned_at.min(at) };
        match self.plans.get_mut(text) {
            Some(place) => *place = Some(plan),
            None => drop(self.plans.insert(text.to_owned(), Some(plan))),
        }
    }

    /// Drops all plans if one of them may not have seen commit `definition`, the newest that changed a
    /// definition.
    pub(crate) fn drop_older_than(&mut self, definition: Seq) {
        if self.planned_at < definition {
            self.clear();
        }
    }

    pub(crate) fn clear(&mut self) {
        self.plans.clear();
    }
}

#[cfg(test)]
mod tests {
    use ropewalk::Database;

    use super::*;
    use crate::session::Session;

    #[test]
    fn plans_are_bounded_and_dropped_after_a_later_definition() {
        let mut session = Session::new(Database::in_memory().unwrap());
        let mut cache = PlanCache::default();
        let mut put = |cache: &mut PlanCache, text: &str, at: u64| {
            cache.put(text, session.prepare(text).unwrap(), 3, Seq(at));
        };
        for number in 0..10 {
            put(&mut cache, &format!("SELECT {number}"), 5);
            assert!((1..=3).contains(&cache.plans.len()));
        }
        assert!(cache.take("SELECT 9").is_some() && cache.take("SELECT 9").is_none());
        put(&mut cache, "SELECT 9", 7);
        cache.drop_older_than(Seq(5));
        assert!(cache.take("SELECT 9").is_some());
        put(&mut cache, "SELECT 9", 7);
        cache.drop_older_than(Seq(6));
        assert!(cache.take("SELECT 9").is_none(), "another plan is of commit 5");
        put(&mut cache, "SELECT 9", 7);
        cache.drop_older_than(Seq(6));
        assert!(cache.take("SELECT 9").is_some());
        put(&mut cache, "SELECT 9", 4);
        cache.drop_older_than(Seq(6));
        assert!(cache.take("SELECT 9").is_none(), "it was planned at an earlier commit");
    }
}
