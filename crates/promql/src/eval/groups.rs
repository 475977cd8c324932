//! Grouping of series by some of their labels: the key is written to one buffer and looked up by hash, so
//! that only a new group allocates.

use ropewalk_base::HashedMap;

use crate::data::labels::Labels;

/// Groups in order of their first series.
#[derive(Default)]
pub(super) struct Groups {
    places: HashedMap<u64, usize>,
    labels: Vec<Labels>,
    key: String,
}

impl Groups {
    /// The number of the group of the labels for which `keep` returns true, and its labels when it is new.
    /// `keep` is not called for names after `last`.
    pub(super) fn place(
        &mut self,
        labels: &Labels,
        last: Option<&str>,
        keep: impl FnMut(&str) -> bool,
    ) -> (usize, Option<Labels>) {
        labels.key(&mut self.key, last, keep);
        let next = self.labels.len();
        let hash = ropewalk_base::hash64(self.key.as_bytes());
        let mut place = *self.places.entry(hash).or_insert(next);
        if self.labels.get(place).is_some_and(|group| !group.is(&self.key)) {
            // Two groups with the same hash are rare: search them linearly.
            place = self.labels.iter().position(|group| group.is(&self.key)).unwrap_or(next);
        }
        if place < next {
            return (place, None);
        }
        let group = Labels::from_key(&self.key);
        self.labels.push(group.clone());
        (next, Some(group))
    }
}
